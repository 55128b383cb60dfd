"""A refusal names every wrong field once, says what to send, and is never a fault of ours."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from fastapi import APIRouter, FastAPI
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tests.support.asgi import Answer, ask
from tests.support.strategies import quick
from understudy.live.web.hot_paths import HotPaths
from understudy.live.web.refusals import (
    HANDLERS,
    MOST_ERRORS,
    MOST_FIELDS,
    parse_json,
    refuse,
    validate,
)
from understudy.live.web.routes import JsonRoute

pytestmark = pytest.mark.plain

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Study(Strict):
    name: Annotated[str, Field(pattern="^[a-z]+$", min_length=1, max_length=20)]
    actions: Annotated[list[str], Field(min_length=2, max_length=50)]
    behavior: Literal["logged", "estimated"] | dict[str, Annotated[float, Field(gt=0.0)]] = "logged"
    horizon: Annotated[int, Field(ge=1)] | None = None
    archived: bool = False


class Event(Strict):
    id: Annotated[str, Field(min_length=1, max_length=128)]
    reward: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    context: dict[str, float | str] | None = None


class Batch(Strict):
    events: Annotated[list[Event], Field(min_length=1, max_length=1000)]


router = APIRouter(route_class=JsonRoute)


@router.post("/study")
async def take_study(study: Study) -> None:
    """By FastAPI."""


@router.post("/batch")
async def take_batch(batch: Batch) -> None:
    """By FastAPI."""


async def take_plainly(request: Request) -> Response:
    """By a plain route, as events are."""
    validate(Batch, parse_json(await request.body()))
    return Response()


APP = FastAPI(routes=router.routes, exception_handlers=HANDLERS)
APP.add_route("/plain", take_plainly, methods=["POST"])


def sent(path: str, body: object) -> Answer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ask(APP, "POST", path, {"content-type": "application/json"}, [content])


def wrong(path: str, body: object) -> dict[str, str]:
    """The message of each wrong field; the same from a plain route."""
    found = sent(path, body)
    if path == "/batch":
        assert sent("/plain", body).json == found.json
    assert (found.status, found.json["error"]) == (422, "invalid")
    fields = found.json["fields"]
    assert all(set(one) == {"field", "message"} for one in fields)
    assert len({one["field"] for one in fields}) == len(fields)
    return {one["field"]: one["message"] for one in fields}


STUDY = {"name": "a", "actions": ["x", "y"]}
CASES: list[tuple[str, Any, dict[str, str]]] = [
    ("/study", {}, {"name": "it is missing; send it too", "actions": "it is missing; send it too"}),
    (
        "/study",
        STUDY | {"colour": 1},
        {"colour": "there is no such field; leave it out, or see /docs"},
    ),
    (
        "/study",
        STUDY | {"propnsity": 1},
        {"propnsity": "there is no such field; did you mean propensity?"},
    ),
    ("/study", STUDY | {"name": 7}, {"name": "7: it must be a valid string"}),
    ("/study", STUDY | {"name": "A"}, {"name": "\"A\": string should match pattern '^[a-z]+$'"}),
    (
        "/study",
        STUDY | {"actions": ["x"]},
        {"actions": "a list of 1 item: send 2 or more actions"},
    ),
    ("/study", STUDY | {"actions": ["x", None]}, {"actions.1": "null: it must be a valid string"}),
    ("/study", STUDY | {"actions": {"x": 1}}, {"actions": "an object: it must be a valid list"}),
    (
        "/study",
        STUDY | {"behavior": 7},
        {"behavior": "7: it must be 'logged' or 'estimated', or an object, in { }"},
    ),
    (
        "/study",
        STUDY | {"behavior": "guessed"},
        {"behavior": "\"guessed\": it must be 'logged' or 'estimated', or an object, in { }"},
    ),
    (
        "/study",
        STUDY | {"behavior": {"x": 0.5, "y": 0}},
        {"behavior.y": "0: it must be greater than 0"},
    ),
    ("/study", STUDY | {"horizon": 1.5}, {"horizon": "1.5: it must be a valid integer"}),
    ("/study", STUDY | {"horizon": 0}, {"horizon": "0: it must be at least 1"}),
    ("/study", STUDY | {"archived": "yes"}, {"archived": '"yes": it must be a valid boolean'}),
    (
        "/batch",
        {"events": [{"id": "a"}, {"id": "b", "reward": "high"}, {"id": "", "reward": 1.5}]},
        {
            "events.1.reward": '"high": it must be a valid number',
            "events.2.id": '"": it is empty; send a text',
            "events.2.reward": "1.5: it must be less than or equal to 1",
        },
    ),
    (
        "/batch",
        {"events": [{"id": "a", "context": {"Age": None, "City": [1], "float": {}, "str": True}}]},
        {
            f"events.0.context.{name}": f"{shown}: it must be a valid number, or a valid string"
            for name, shown in (
                ("Age", "null"),
                ("City", "a list of 1 item"),
                ("float", "an object"),
                ("str", "true"),
            )
        },
    ),
    (
        "/batch",
        b'{"events": [{"id": "a"}, {"id": "b", "reward": 1, "reward": 0}]}',
        {"events.1.reward": "it is there twice; send it once"},
    ),
    (
        "/batch",
        rb'{"events": [{"id": "a"}, {"\u0072eward": 1, "reward": 0}]}',
        {"events.1.reward": "it is there twice; send it once"},
    ),
    (
        "/batch",
        rb'{"events": [{"id": "\ud800"}]}',
        {
            "events.0.id": '"\\ud800": it must be a valid string, unable to parse raw data as a '
            "unicode string"
        },
    ),
    ("/batch", b'{"events": [{"id": "a", "reward": 1e999}]}', {
        "events.0.reward": "inf: it must be a finite number"
    }),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "expected"), CASES)
def test_each_wrong_field_is_told_once(path: str, value: Any, expected: dict[str, str]) -> None:
    assert wrong(path, value) == expected


def test_one_wrong_field_is_told_in_the_message_and_several_are_counted() -> None:
    one = sent("/study", STUDY | {"horizon": 0}).json
    assert one["message"] == "horizon: 0: it must be at least 1"
    two = sent("/study", STUDY | {"horizon": 0, "archived": 1}).json
    assert two["message"] == "2 fields are wrong: horizon, archived"


@pytest.mark.parametrize("body", [[], None, 1, "x"])
def test_a_body_that_is_no_object_has_no_field(body: object) -> None:
    for path in ("/study", "/batch", "/plain"):
        found = sent(path, body)
        assert (found.status, found.json["error"]) == (422, "invalid")
        assert set(found.json) == {"error", "message"}
        assert found.json["message"].startswith("the body: ")


MALFORMED = [
    b"{",
    b"{'a': 1}",
    b"\x00",
    b"nil",
    b'{"a": 1} x',
    b'{"a": NaN}',
    b'{"a": -Infinity}',
    b"\xff",
    b'{"a": "\xe4"}',
    '{"a": 1}'.encode("utf-16"),
    b"\xef\xbb\xbf{}",
    b"[" * 100_000,
    b'{"a": ' * 50_000 + b"1" + b"}" * 50_000,
    b'{"a": ' + b"9" * 10_000 + b"}",
    json.dumps(dict.fromkeys(map(str, range(10_001)))).encode(),
]


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: repr(body[:12]))
@pytest.mark.parametrize("path", ["/study", "/plain"])
def test_what_is_no_json_is_malformed(path: str, body: bytes) -> None:
    found = sent(path, body)
    assert (found.status, found.json["error"]) == (400, "malformed")
    assert "body" in found.json["message"]
    assert len(found.body) < 200


def longest_echo(message: str, letter: str) -> int:
    return max(map(len, "".join(c if c == letter else " " for c in message).split()), default=0)


@given(JSON_VALUES, st.sampled_from(["/study", "/batch"]))
@quick
def test_whatever_is_sent_is_taken_or_told_what_is_wrong(value: Any, path: str) -> None:
    field = "name" if path == "/study" else "events"
    for body in (value, STUDY | {"behavior": value}, {"events": [value]}, {field: value}):
        found = sent(path, body)
        assert found.status in {200, 422}
        if found.status == 422:
            for one in [found.json, *found.json.get("fields", [])]:
                assert one["message"].isprintable()
                assert len(one["message"]) < 350


@given(JSON_VALUES)
@quick
def test_json_is_read_as_python_reads_it(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False)) == value


def test_a_body_comes_in_pieces_or_its_client_leaves() -> None:
    study = SimpleNamespace(malformed=0)
    service: Any = SimpleNamespace(study=lambda _: study)
    app = HotPaths(APP, service)
    found = ask(app, "POST", "/v1/studies/a/events", chunks=[b'{"id": ', b'"a"', b', "x": 1}'])
    assert [one["field"] for one in found.json["fields"]] == ["x"]
    assert study.malformed == 1
    messages = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(_: object) -> None:
        raise AssertionError("a client that left is answered")

    path = "/v1/studies/a/events"
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    with pytest.raises(ClientDisconnect):
        asyncio.run(app(scope, receive, send))
    assert study.malformed == 1


@pytest.mark.parametrize("value", ["x" * 10_000, ["x" * 10_000] * 99, {"x" * 10_000: "x" * 10_000}])
def test_no_more_than_sixty_characters_come_back(value: Any) -> None:
    for body in (value, STUDY | {"name": value}, {"events": [{"id": value, "x" * 10_000: value}]}):
        for path in ("/study", "/batch", "/plain"):
            found = sent(path, body)
            assert found.status == 422
            assert longest_echo(found.body.decode(), "x") <= 60


def test_long_lists_of_wrong_fields_are_cut_and_said_to_be() -> None:
    many = {"events": [{"id": ""}] * (MOST_FIELDS + 1)}
    found = sent("/batch", many).json
    assert len(found["fields"]) == MOST_FIELDS
    assert found["message"] == (
        "101 fields are wrong: events.0.id, events.1.id, events.2.id, …; the first 100 are listed"
    )
    hostile = {str(i): 1 for i in range(MOST_ERRORS)}
    for path in ("/batch", "/plain"):
        found = sent(path, hostile).json
        assert "1,001 things are wrong" in found["message"]
        assert "fields" not in found


def test_errors_of_values_that_operations_make_are_told_too() -> None:
    async def fail(_: Request) -> Response:
        Study.model_validate({"name": 1, "actions": ["a", "b"]})
        raise AssertionError

    app = FastAPI(exception_handlers=HANDLERS)
    app.add_route("/", fail)

    async def fail_often(_: Request) -> Response:
        Study.model_validate(dict.fromkeys(map(str, range(MOST_ERRORS))))
        raise AssertionError

    app.add_route("/often", fail_often)
    found = ask(app, "GET", "/")
    assert (found.status, found.json["fields"][0]["field"]) == (422, "name")
    found = ask(app, "GET", "/often")
    assert (found.status, found.json["message"][:33]) == (422, "the body: 1,002 things are wrong;")
    with pytest.raises(ValidationError):
        Study.model_validate({})


def test_refusals_that_pass_say_when_to_try_again() -> None:
    assert refuse(503, "busy", "too much").headers["retry-after"] == "1"
    assert (
        refuse(503, "busy", "too much", headers={"retry-after": "9"}).headers["retry-after"] == "9"
    )
    assert "retry-after" not in refuse(409, "conflict", "no").headers
