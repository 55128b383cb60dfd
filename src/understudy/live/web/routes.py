"""The operations of the API, as typed functions; their OpenAPI follows from their types."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Body, Depends, Path, Query
from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from understudy.errors import InvalidArgument
from understudy.formatting import plain
from understudy.live import models
from understudy.live.live_study import LiveStudy
from understudy.live.models import Batch, Draw, Event, Number
from understudy.live.service import HttpError, Service
from understudy.live.snapshot_saver import let_others_run
from understudy.live.spec import NAMING, StudySpec
from understudy.live.web import refusals, study_json
from understudy.live.web.streams import (
    EVENT_STREAM,
    NDJSON,
    LogResponse,
    Slots,
    Streams,
    allowed_by,
)
from understudy.live.web.study_json import StudyDetails, StudyList, StudyNow

JSON = "application/json"
UNKNOWN, TWICE = "there is no such parameter; leave it out", "it came more than once; send it once"
NAMED = {"pattern": NAMING}  # for the document only: an invalid name is unknown, so a 404
EVENT = {"id": "d-1", "action": "small", "propensity": 0.5, "reward": 1.0}
SPEC = {"name": "router", "actions": ["small", "large"], "reward_wait": 600.0}
NO_CONTEXT = Draw()
# The policy.json of a default mixture of 3,500 actions has 1,360,000 commas. Python parses more
# numbers, or lists, without letting events in: 32 MiB of "[]," take some 5 s and 810 MiB.
MOST_COMMAS = 1_500_000

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class JsonRequest(Request):
    """A request whose body `parse_json` reads: it refuses repeated names."""

    async def json(self) -> Any:
        """Return the body."""
        return refusals.parse_json(await self.body())


class JsonRoute(APIRoute):
    """A route of FastAPI that refuses unknown parameters, and answers HEAD with headers alone."""

    def get_route_handler(self) -> Handler:
        """Wrap FastAPI's own handler."""
        handle = super().get_route_handler()
        known = {field.alias for field in self.dependant.query_params}

        async def handler(request: Request) -> Response:
            check_query(request, known)
            response = await handle(JsonRequest(request.scope, request.receive))
            if request.method == "HEAD":  # a stream would never end
                head = Response(status_code=response.status_code)
                head.raw_headers = response.raw_headers
                return head
            return response

        return handler


def check_query(request: Request, known: set[str]) -> None:
    """Refuse parameters of the query that would be ignored: they may be typos."""
    if not request.scope["query_string"]:
        return
    sent = Counter(name for name, _ in request.query_params.multi_items())
    wrong = {
        plain(name, refusals.LONGEST_INPUT): TWICE if name in known else UNKNOWN
        for name, times in sent.items()
        if name not in known or times > 1
    }
    if wrong:
        raise refusals.WrongFields(wrong)


class Shared(NamedTuple):
    """The objects that all requests share."""

    service: Service
    streams: Streams
    reading: Slots
    making: asyncio.Lock
    loading: Slots


async def _shared(request: Request) -> Shared:
    found: Shared = request.app.state.shared
    return found


TheShared = Annotated[Shared, Depends(_shared)]


async def _service(shared: TheShared) -> Service:
    return shared.service


TheService = Annotated[Service, Depends(_service)]
Name = Annotated[str, Path(description="The name of a study.", json_schema_extra=NAMED)]


async def _study(service: TheService, study: Name) -> LiveStudy:
    return service.study(study)


TheStudy = Annotated[LiveStudy, Depends(_study)]


def _refused(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Declare refusals, for the document; its description says what each status means."""
    return {status: {"model": models.Refusal} for status in statuses}


def _stream(media_type: str) -> dict[int | str, dict[str, Any]]:
    """Describe a stream; its refusals would be of its type if it were the `response_class`."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}}}}}


ALWAYS, WITH_BODY = (401, 403, 422, 429, 503), (400, 413, 415)  # refusals of operations
Router = partial(
    APIRouter, route_class=JsonRoute, generate_unique_id_function=lambda route: route.name
)
ONE, ALL = "/v1/studies/{study}", "/v1"
feedback = Router(prefix=ONE, tags=["feedback"], responses=_refused(*ALWAYS, *WITH_BODY, 404, 409))
answers = Router(prefix=ONE, tags=["answers"], responses=_refused(*ALWAYS, 404))
studies = Router(prefix=ALL, tags=["studies"], responses=_refused(*ALWAYS))
live = Router(prefix=ALL, tags=["live"], responses=_refused(*ALWAYS) | _stream(EVENT_STREAM))


@feedback.post("/events", response_model=models.Taken)
async def send_event(
    service: TheService, study: TheStudy, event: Annotated[Event, Body(examples=[EVENT])]
) -> dict[str, str]:
    """Send an event.

    A decision with its reward, a decision alone, or the reward of a decision that was sent before.
    It is on disk when it is answered.
    """
    if faults := study.spec.faults(event):
        raise refusals.WrongFields(faults)
    (outcome,) = await service.ingest(study, (event,))
    if outcome.is_refused:
        raise HttpError(409, outcome.status, f"{plain(outcome.id, 60)}: {outcome.reason}")
    # A model would cost 2.5 µs more.
    return {"id": outcome.id, "status": "known" if outcome.status == "known" else "accepted"}


@feedback.post("/batches")
async def send_batch(
    service: TheService,
    study: TheStudy,
    batch: Annotated[Batch, Body(examples=[{"events": [EVENT]}])],
) -> models.BatchTaken:
    """Send up to 1000 events.

    If one of them is malformed, none is taken.
    """
    faults = {
        f"events.{index}.{field}": message
        for index, event in enumerate(batch.events)
        for field, message in study.spec.faults(event).items()
    }
    if faults:
        raise refusals.WrongFields(faults)
    outcomes = await service.ingest(study, batch.events)
    refused = tuple(
        models.RefusedEvent(index=index, id=one.id, error=one.status, message=one.reason)
        for index, one in enumerate(outcomes)
        if one.is_refused
    )
    known = sum(outcome.status == "known" for outcome in outcomes)
    accepted = len(outcomes) - known - len(refused)
    return models.BatchTaken(accepted=accepted, known=known, refused=refused)


ANY_CONTEXT = {"schema": {"type": "object", "additionalProperties": True}, "example": {"age": 40.0}}
IN_QUERY = {  # FastAPI cannot describe a parameter that is JSON
    "name": "context",
    "in": "query",
    "required": False,
    "description": "Where the study has contexts: one of them, as JSON.",
    "content": {JSON: ANY_CONTEXT},
}


PRODUCTION_IN_QUERY = {
    "name": "production",
    "in": "query",
    "required": False,
    "description": "Where the policy does as production does in part: the probabilities of "
    "production by action, as JSON.",
    "content": {
        JSON: {
            "schema": {"type": "object", "additionalProperties": {"type": "number"}},
            "example": {"small": 0.9, "large": 0.1},
        }
    },
}


@answers.get(
    "/policy",
    response_model=models.PolicyNow,
    responses=_refused(400),
    openapi_extra={"parameters": [IN_QUERY, PRODUCTION_IN_QUERY]},
)
async def read_policy(
    study: TheStudy,
    context: Annotated[str | None, Query(include_in_schema=False)] = None,
    production: Annotated[str | None, Query(include_in_schema=False)] = None,
) -> Any:
    """Read the policy of the understudy: the probabilities with which it would act now."""
    return Response(policy_json(study, context, production), media_type=JSON)


def policy_json(
    study: LiveStudy, context: str | None = None, production: str | None = None
) -> bytes:
    """Return the policy, for a context and for probabilities of production that are JSON."""
    if context is None and study.spec.context is None and production is None:
        return study.policy_json(study_json.policy_of)
    given = {"context": context, "production": production}
    sent = {
        name: refusals.parse_json(text, f"the {name}")
        for name, text in given.items()
        if text is not None
    }
    draw = refusals.validate(Draw, sent)
    return to_json(study_json.policy_of(study, study.state, draw.context, draw.production))


@answers.post("/draw", responses=_refused(*WITH_BODY))
async def draw_action(
    service: TheService, study: TheStudy, draw: Annotated[Draw, Body(examples=[{}])] = NO_CONTEXT
) -> models.Drawn:
    """Draw an action from the policy.

    With its probability. Nothing is written: if it is played, send it as an event.
    """
    state = study.state
    probabilities = state.probabilities(draw.context, draw.production)
    action, probability = service.draw(probabilities, study)
    left = study_json.warmup_left(study, state)
    return models.Drawn(
        action=action, probability=probability, learned=state.learned, warmup_left=left
    )


@answers.get("/certificate")
async def read_certificate(service: TheService, study: TheStudy) -> models.CertificateNow:
    """Read the verdict, the certificate, and its curve."""
    return await asyncio.to_thread(study_json.certificate_of, service, study)


@answers.get("/coverage")
async def read_coverage(study: TheStudy) -> models.CoverageNow:
    """Read how well the log covers each action, and candidate policies."""
    return await asyncio.to_thread(study_json.coverage_of, study)


@answers.get("/snapshot", response_model=dict[str, Any], responses=_refused(409))
async def read_snapshot(shared: TheShared, study: TheStudy) -> Response:
    """Read the study as a policy.json, as `understudy learn` writes it."""
    state = study.state
    async with shared.reading.one(), shared.making:  # one at a time: events wait for each
        made = await asyncio.to_thread(state.snapshot, let_others_run)
    if made is None and study.fault is not None:
        raise HttpError(409, "stopped", study.fault)
    if made is None:
        raise HttpError(409, "warming up", f"{state.warmup_left} more decisions prepare contexts")
    name = f'attachment; filename="{study.spec.name}.policy.json"'
    return Response(made.policy, media_type=JSON, headers={"content-disposition": name})


@answers.get("/log", response_class=Response, responses=_stream(NDJSON))
async def read_log(request: Request, shared: TheShared, study: TheStudy) -> Response:
    """Read the decisions that were learned from, in order, one JSON object a line."""
    return LogResponse(shared.service.log_lines(study), shared.reading, allowed_by(request.scope))


@studies.post("/studies", status_code=201, responses=_refused(*WITH_BODY, 409))
async def create_study(
    service: TheService, spec: Annotated[StudySpec, Body(examples=[SPEC])]
) -> StudyNow:
    """Create a study.

    What production does, what it earns, how long rewards take, and who learns.
    """
    new = spec.as_new()
    new.check()
    return _now(service, await service.create(new))


@studies.get("/studies", response_model=StudyList)
async def read_studies(
    service: TheService,
    archived: Annotated[
        Literal["true", "false"], Query(description="Archived ones too.")
    ] = "false",
) -> Response:
    """List studies."""
    found = service.studies.values()
    chosen = [one for one in found if archived == "true" or one.record.archived_at is None]
    # In a thread: 20 studies of 10,000 actions have 7 MB, and take 17 ms.
    return Response(await asyncio.to_thread(_list_json, service, chosen), media_type=JSON)


@studies.get("/studies/{study}", responses=_refused(404))
async def read_study(service: TheService, study: TheStudy) -> StudyDetails:
    """Read a study, the counts of its events, and the experts that it mixes."""
    return study_json.details_of(service, study)


@studies.post("/studies/{study}/archive", responses=_refused(*WITH_BODY, 404))
async def archive_study(service: TheService, study: Name) -> StudyNow:
    """Archive a study.

    It takes no more decisions, only rewards of those that wait. It keeps what it learned.
    """
    return _now(service, await service.archive(study))


POLICY = {"requestBody": {"required": True, "content": {JSON: {"schema": {"type": "object"}}}}}
NewName = Annotated[str, Query(description="The name of the new study.", json_schema_extra=NAMED)]
Wait = Annotated[Number | None, Query(gt=0, description="Seconds to wait for a reward.")]
Default = Annotated[Number | None, Query(description="The reward of a decision that gets none.")]
Vectors = Annotated[
    Literal["true", "false"],
    Query(description="Whether every decision carries the propensities of all actions."),
]


@studies.post(
    "/snapshots", status_code=201, responses=_refused(*WITH_BODY, 409), openapi_extra=POLICY
)
async def load_snapshot(
    request: Request,
    shared: TheShared,
    *,
    name: NewName,
    reward_wait: Wait = None,
    default_reward: Default = None,
    propensity_vectors: Vectors = "false",
) -> StudyNow:
    """Create a study that continues from a policy.json.

    The body is a file that `understudy learn` wrote, or the snapshot of another service.
    """
    async with shared.loading.one():
        text = (await request.body()).decode("utf-8", errors="replace")
        if text.count(",") > MOST_COMMAS:
            reason = f"it has too many parts: more than {MOST_COMMAS:,} commas"
            remedy = "learn one with fewer columns or labels of contexts, or continue it with learn"
            raise InvalidArgument("policy", None, reason, remedy)
        study = await shared.service.create_from_policy(
            name,
            text,
            reward_wait=reward_wait,
            default_reward=default_reward,
            propensity_vectors=propensity_vectors == "true",
        )
    return _now(shared.service, study)


@live.get("/studies/{study}/live", response_class=Response, responses=_refused(404))
async def watch_study(request: Request, shared: TheShared, study: TheStudy) -> Response:
    """Watch a study.

    Server-sent events, at most one a second; each holds all that the page shows.
    """
    return shared.streams.respond(request.scope, study.spec.name)


@live.get("/live", response_class=Response)
async def watch_studies(request: Request, shared: TheShared) -> Response:
    """Watch all studies: their state, whenever one changes."""
    return shared.streams.respond(request.scope, None)


def _list_json(service: Service, chosen: Iterable[LiveStudy]) -> bytes:
    return to_json(StudyList(studies=[_now(service, study) for study in chosen]))


def _now(service: Service, study: LiveStudy) -> StudyNow:
    return study_json.describe(study, study.state, service.writer.time())


ROUTERS = (feedback, answers, studies, live)
OPERATIONS = [one for router in ROUTERS for one in router.routes if isinstance(one, JsonRoute)]
HEADS = [
    JsonRoute(
        one.path,
        one.endpoint,
        methods=["HEAD"],
        include_in_schema=False,
        response_model=one.response_model,
    )
    for one in OPERATIONS
    if one.methods == {"GET"}
]
