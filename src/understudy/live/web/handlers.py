"""What the service does for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import chain
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from understudy.errors import InvalidArgument
from understudy.live.live_study import LiveStudy
from understudy.live.models import Context, Event
from understudy.live.service import HttpError, Service
from understudy.live.snapshot_saver import let_others_run
from understudy.live.spec import StudySpec
from understudy.live.web.answers import JSON, answer, refuse, refuse_body
from understudy.live.web.field_errors import names_in, names_in_spec, repeated_names
from understudy.live.web.models import Batch, Draw
from understudy.live.web.router import body_of
from understudy.live.web.study_json import certificate_of, coverage_of, describe, policy_of

MOST_FAULTS = 100
CONTEXT: TypeAdapter[dict[str, Any]] = TypeAdapter(Context)


class Handlers:
    """Every operation of a service, by the name that it has in the document."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _study(self, request: Request) -> LiveStudy:
        return self._service.study(request.path_params["study"])

    def _described(self, status: int, study: LiveStudy) -> Response:
        return answer(status, describe(study, study.state, self._service.writer.time()))

    async def send_event(self, request: Request) -> Response:
        """One event, answered when it is on disk."""
        study = self._study(request)
        body = await body_of(request)
        try:
            event = Event.model_validate_json(body)
        except ValidationError as error:
            study.malformed += 1
            return refuse_body(error)
        if faults := repeated_names(body, names_in(event)) or study.spec.faults(event):
            study.malformed += 1
            return _refuse_fields(faults)
        (outcome,) = await self._service.ingest(study, (event,))
        if outcome.is_refused:
            return refuse(409, outcome.status, f"{outcome.id[:60]}: {outcome.reason}")
        taken = {"id": outcome.id, "status": outcome.status}
        return Response(to_json(taken), media_type=JSON)

    async def send_batch(self, request: Request) -> Response:
        """Events, answered when they are on disk; nothing is taken if one of them is malformed."""
        study = self._study(request)
        body = await body_of(request)
        try:
            events = Batch.model_validate_json(body).events
        except ValidationError as error:
            study.malformed += 1
            return refuse_body(error)
        faults = repeated_names(body, 1 + sum(map(names_in, events))) or {
            f"events.{index}.{field}": message
            for index, event in enumerate(events)
            for field, message in study.spec.faults(event).items()
        }
        if faults:
            study.malformed += 1
            return _refuse_fields(faults)
        outcomes = await self._service.ingest(study, events)
        refused = [
            {
                "index": index,
                "id": found.id,
                "error": found.status,
                "message": found.reason,
            }
            for index, found in enumerate(outcomes)
            if found.is_refused
        ]
        known = sum(outcome.status == "known" for outcome in outcomes)
        accepted = len(outcomes) - known - len(refused)
        return answer(200, {"accepted": accepted, "known": known, "refused": refused})

    async def create_study(self, request: Request) -> Response:
        """A new study."""
        body = await body_of(request)
        try:
            spec = StudySpec.model_validate_json(body)
        except ValidationError as error:
            return refuse_body(error)
        if faults := repeated_names(body, names_in_spec(spec)):
            return _refuse_fields(faults)
        spec.check()
        study = await self._service.create(spec)
        return self._described(201, study)

    async def load_snapshot(self, request: Request) -> Response:
        """A study that goes on from a policy.json."""
        query = request.query_params
        if "name" not in query:
            raise InvalidArgument("name", None, "it is missing", "name the study: ?name=…")
        study = await self._service.create_from_policy(
            query["name"],
            (await body_of(request)).decode("utf-8", errors="replace"),
            reward_wait=_number(query.get("reward_wait"), "reward_wait"),
            default_reward=_number(query.get("default_reward"), "default_reward"),
        )
        return self._described(201, study)

    async def read_studies(self, request: Request) -> Response:
        """All studies; those that are archived only if asked for."""
        archived = request.query_params.get("archived", "false")
        if archived not in {"true", "false"}:
            raise InvalidArgument("archived", archived, "it is a question", "send true or false")
        studies = [
            describe(study, study.state, self._service.writer.time())
            for study in self._service.studies.values()
            if archived == "true" or study.record.archived_at is None
        ]
        return answer(200, {"studies": studies})

    async def read_study(self, request: Request) -> Response:
        """One study."""
        return self._described(200, self._study(request))

    async def archive_study(self, request: Request) -> Response:
        """Take no more events."""
        study = await self._service.archive(request.path_params["study"])
        return self._described(200, study)

    async def read_policy(self, request: Request) -> Response:
        """What the understudy would do now."""
        study = self._study(request)
        text = request.query_params.get("context")
        context = None
        if text is not None:
            try:
                context = CONTEXT.validate_json(text)
            except ValidationError as error:
                return refuse_body(error)
        elif study.spec.context is None:
            return Response(study.policy_json(policy_of), media_type="application/json")
        return answer(200, policy_of(study, study.state, context))

    async def draw_action(self, request: Request) -> Response:
        """An action drawn from the policy."""
        study = self._study(request)
        body = await body_of(request) or b"{}"
        try:
            context = Draw.model_validate_json(body).context
        except ValidationError as error:
            return refuse_body(error)
        state = study.state
        action, probability = self._service.draw(state.probabilities(context), study)
        drawn = {"action": action, "probability": probability, "learned": state.learned}
        return answer(200, drawn)

    async def read_certificate(self, request: Request) -> Response:
        """The verdict, the bounds, and how they came about."""
        found = await asyncio.to_thread(certificate_of, self._service, self._study(request))
        return answer(200, found)

    async def read_coverage(self, request: Request) -> Response:
        """What the log can say."""
        return answer(200, await asyncio.to_thread(coverage_of, self._study(request)))

    async def read_snapshot(self, request: Request) -> Response:
        """policy.json, as `understudy learn` writes it."""
        study = self._study(request)
        made = await asyncio.to_thread(study.state.snapshot, let_others_run)
        if made is None and study.fault is not None:
            raise HttpError(409, "stopped", study.fault)
        if made is None:
            left = study.state.warmup_left
            raise HttpError(409, "warming up", f"{left} more decisions prepare contexts")
        named = {"content-disposition": f'attachment; filename="{study.spec.name}.policy.json"'}
        return Response(made.policy, media_type="application/json", headers=named)

    async def read_log(self, request: Request) -> Response:
        """What was learned from, in order."""
        lines = self._service.log_lines(self._study(request))
        first = await asyncio.to_thread(next, lines, "")  # a store that is away is a 503 so far
        rest = iterate_in_threadpool(chain([first], lines))
        return StreamingResponse(rest, media_type="application/x-ndjson")


def _refuse_fields(faults: Mapping[str, str]) -> Response:
    fields = [{"field": field, "message": message} for field, message in faults.items()]
    message = f"{fields[0]['field']}: {fields[0]['message']}"
    return refuse(422, "invalid", message, fields[:MOST_FAULTS])


def _number(text: str | None, name: str) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise InvalidArgument(name, text, "it is not a number", "send a number") from None
