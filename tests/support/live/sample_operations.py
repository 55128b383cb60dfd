"""A service of a few operations, to try the middleware and the description of operations on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from understudy.live.web.answers import answer, refuse, refuse_body
from understudy.live.web.openapi import Content, Operation, Parameter

__all__ = ["OPERATIONS", "Batch", "Event", "Study"]

Name = Annotated[str, Field(pattern="^[a-z]+$", min_length=1, max_length=20)]


def whole(value: object) -> object:
    """JSON has one kind of number: 3.0 is whole."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, Field(ge=1), BeforeValidator(whole)]  # else the bound is not in the schema
Positive = Annotated[float, Field(gt=0.0)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Study(Strict):
    """What a study is created with."""

    name: Name = Field(description="Its name, also in paths.")
    actions: Annotated[list[str], Field(min_length=2, max_length=50)]
    behavior: Literal["logged", "estimated"] | dict[str, Positive] = Field(
        default="logged", description="Where propensities come from."
    )
    horizon: Whole | None = None
    archived: bool = False


class Event(Strict):
    """Facts about one decision."""

    id: Annotated[str, Field(min_length=1, max_length=128)] = Field(description="Of the decision.")
    reward: Annotated[float, Field(ge=0.0, le=1.0)] | None = Field(
        default=None, description="If known."
    )
    context: dict[str, float | str] | None = None


class Batch(Strict):
    """Events, in order."""

    events: Annotated[list[Event], Field(min_length=1, max_length=1000)]


class Counts(Strict):
    """What became of a batch."""

    accepted: int


class Drawn(Strict):
    """An action."""

    action: str
    probability: float


STUDY = Parameter(
    "study",
    {"type": "string", "pattern": "^[a-z]+$", "minLength": 1, "maxLength": 20},
    "Which study.",
    "checkout",
)
CONTEXT = Parameter(
    "context",
    {"type": "object", "additionalProperties": {"type": ["number", "string"]}},
    "For whom, if the study has contexts.",
    {"age": 40},
    json=True,
)
CONTEXTS = TypeAdapter(dict[str, float | str], config=Strict.model_config)
EVENT = {"id": "order-17", "reward": 1.0, "context": {"city": "L'Aquila"}}
KNOWN = "checkout"


async def create(request: Request) -> Response:
    return answer(201, Study.model_validate_json(await request.body()).model_dump())


async def learn(request: Request) -> Response:
    try:
        batch = Batch.model_validate_json(await request.body())
    except ValidationError as error:
        return refuse_body(error)
    if request.path_params["study"] != KNOWN:
        return refuse(404, "unknown study", "there is no such study")
    return answer(200, {"accepted": len(batch.events)})


async def draw(request: Request) -> Response:
    try:
        CONTEXTS.validate_json(request.query_params.get("context", "{}"))
    except ValidationError as error:
        return refuse_body(error)
    if request.path_params["study"] != KNOWN:
        return refuse(404, "unknown study", "there is no such study")
    return answer(200, {"action": "a", "probability": 0.5})


async def live(request: Request) -> Response:
    async def endless() -> AsyncIterator[str]:
        while not await request.is_disconnected():
            yield "data: 1\n\n"

    return StreamingResponse(endless(), media_type="text/event-stream")


async def health(_: Request) -> Response:
    return PlainTextResponse("ok")


OPERATIONS = (
    Operation(
        "POST",
        "/v1/studies",
        "create_study",
        "Studies",
        "Create a study",
        create,
        "Its actions and its learner are fixed for good. Create another to change them.",
        request=Content(Study, {"name": "checkout", "actions": ["card", "invoice"]}),
        response=Content(Study, {"name": "checkout", "actions": ["card", "invoice"]}),
        status=201,
        refusals={409: "A study of this name exists."},
    ),
    Operation(
        "POST",
        "/v1/studies/{study}/batches",
        "send_batch",
        "Events",
        "Send many events",
        learn,
        "A batch in which an event is malformed is refused whole.",
        parameters=(STUDY,),
        request=Content(Batch, {"events": [EVENT]}),
        response=Content(Counts, {"accepted": 1}),
        refusals={404: "There is no such study."},
    ),
    Operation(
        "GET",
        "/v1/studies/{study}/draw",
        "what_draws",
        "Policy",
        "How often actions are drawn",
        draw,
        parameters=(STUDY, CONTEXT),
        response=Content(Drawn, {"action": "card", "probability": 0.75}),
        refusals={404: "There is no such study."},
    ),
    Operation(
        "POST",
        "/v1/studies/{study}/draw",
        "draw",
        "Policy",
        "Draw an action from the policy",
        draw,
        parameters=(STUDY,),
        response=Content(Drawn, {"action": "card", "probability": 0.75}),
        refusals={404: "There is no such study."},
    ),
    Operation(
        "GET",
        "/v1/live",
        "watch",
        "Policy",
        "Watch all studies",
        live,
        response=Content(media="text/event-stream"),
    ),
    Operation(
        "GET",
        "/healthz",
        "health",
        "Service",
        "Whether the service lives",
        health,
        response=Content(media="text/plain", example="ok"),
    ),
)
