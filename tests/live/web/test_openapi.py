"""The document says what the service does: every path, status, scope and parameter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog

from tests.support.asgi import Answer, Service, ask
from tests.support.live.temporary_stores import TokenRecord
from understudy.live.web.app import document, make_app
from understudy.live.web.middleware import LIMITS
from understudy.live.web.tokens import digest_of

pytestmark = pytest.mark.plain

TOKENS = [TokenRecord(scope, digest_of(f"us_{scope}"), scope) for scope in ("read", "write")]
DOCUMENT = document()


class Operation(NamedTuple):
    method: str
    path: str
    described: dict[str, Any]

    @property
    def url(self) -> str:
        return self.path.replace("{study}", "nowhere")


OPERATIONS = [
    Operation(method.upper(), path, described)
    for path, methods in DOCUMENT["paths"].items()
    for method, described in methods.items()
]
every_operation = pytest.mark.parametrize(
    "operation", OPERATIONS, ids=lambda one: one.described["operationId"]
)


@pytest.fixture
def app(tmp_path: Path) -> Any:
    """A service without studies that answers in this thread."""
    return make_app(Service(str(tmp_path / "store.db")))


def with_tokens(app: Any) -> Any:
    app.state.shared.service.writer.tokens = list(TOKENS)
    return app


def bearer(scope: str) -> dict[str, str]:
    return {"Authorization": f"Bearer us_{scope}"}


def every(value: Any) -> Iterator[dict[str, Any]]:
    """All objects of a document."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from every(inner)


def found(pointer: str) -> Any:
    place: Any = DOCUMENT
    for name in pointer.removeprefix("#/").split("/"):
        place = place[name]
    return place


def test_the_document_is_openapi_and_survives_json(app: Any) -> None:
    assert ask(app, path="/openapi.json").json == DOCUMENT
    from schemathesis import openapi  # noqa: PLC0415 - half a second that few tests need

    schema = openapi.from_dict(json.loads(json.dumps(DOCUMENT)))
    schema.validate()
    results: list[Any] = list(schema.get_all_operations())
    assert {result.ok().label for result in results} == {
        f"{one.method} {one.path}" for one in OPERATIONS
    }


def test_events_do_not_wait_while_the_document_is_encoded(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no token, so it may be asked for at any rate."""
    monkeypatch.setattr("starlette.responses.JSONResponse.render", None)
    assert ask(app, path="/openapi.json").json == DOCUMENT


def test_every_operation_is_named_and_described_once() -> None:
    names = [one.described["operationId"] for one in OPERATIONS]
    assert len(set(names)) == len(names) == 15
    summaries = [one.described["summary"] for one in OPERATIONS]
    assert len(set(summaries)) == 15
    assert all(words[0].isupper() and not words.endswith(".") for words in summaries)
    tags = {tag for one in OPERATIONS for tag in one.described["tags"]}
    assert tags == {tag["name"] for tag in DOCUMENT["tags"]}


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    references = {one["$ref"] for one in every(DOCUMENT) if "$ref" in one}
    for reference in references:
        assert isinstance(found(reference), dict)
    schemas = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert schemas == references


def test_the_bodies_of_requests_allow_nothing_that_they_do_not_name() -> None:
    names = ("Batch", "Draw", "Event", "StudySpec")
    schemas = [DOCUMENT["components"]["schemas"][name] for name in names]
    assert all(schema["additionalProperties"] is False for schema in schemas)


def refusals_of_the_middleware(app: Any, operation: Operation) -> Iterator[Answer]:
    """Everything that may be wrong with a request before it comes to the operation."""
    method, path = operation.method, operation.url
    written = {"content-type": "application/json", "content-length": "1"}
    yield ask(app, method, path, {"host": "evil.com"})
    yield ask(app, method, path, {"origin": "http://evil.com"})
    yield ask(app, method, path, {"via": "1.1 proxy"})
    yield ask(app, method, f"{path}?unknown=1")
    yield ask(app, method, path, {"content-length": str(LIMITS.of(path) + 1)})
    yield ask(app, method, path, {"content-length": "1"}, [b"x"])
    yield ask(app, method, f"{path}?name=Wrong" if "snapshots" in path else path, written, [b"x"])
    closed = with_tokens(app)
    yield ask(closed, method, path)
    yield ask(closed, method, path, bearer("read"))
    for _ in range(11):
        yield ask(closed, method, path, bearer("neither"))


@every_operation
def test_every_status_that_can_come_is_declared(app: Any, operation: Operation) -> None:
    if operation.described["tags"] == ["live"]:
        operation = operation._replace(method="HEAD")  # a stream would not end
    responses = operation.described["responses"]
    with structlog.testing.capture_logs():
        answers = list(refusals_of_the_middleware(app, operation))
    for answer in answers:
        assert str(answer.status) in responses, answer.body
        if answer.status >= 400 and operation.method != "HEAD":
            assert set(answer.json) <= {"error", "message", "fields"}
            assert list(responses[str(answer.status)]["content"]) == ["application/json"]
    came = {answer.status for answer in answers}
    expected = {401, 403, 422, 429} | ({413, 415} if operation.method == "POST" else set())
    assert came >= expected
    assert "503" in responses


@every_operation
def test_the_document_says_which_token_is_needed(app: Any, operation: Operation) -> None:
    (security,) = operation.described["security"]
    method = "HEAD" if operation.described["tags"] == ["live"] else operation.method
    headers: list[dict[str, str]] = [{}, bearer("read"), bearer("write")]
    statuses = [ask(with_tokens(app), method, operation.url, one).status for one in headers]
    passed = [status not in {401, 403} for status in statuses]
    expected = {"read": [False, True, True], "write": [False, False, True]}
    assert passed == expected[security["bearer"][0]]


def test_what_leads_nowhere_is_refused_in_json(app: Any) -> None:
    for path in ("/v1", "/v1/studies/", "/healthz/", "/v1/studies/a/b/draw", "/" + "x" * 1000):
        answer = ask(app, "GET", path)
        assert (answer.status, answer.json["error"]) == (404, "unknown path")
        assert len(answer.json["message"]) < 120
    allowed = {
        "/v1/studies": "GET, HEAD, POST",
        "/v1/studies/a/events": "POST",
        "/v1/studies/a/policy": "GET, HEAD",
        "/v1/studies/a/policy?context={}": "GET, HEAD",
        "/v1/live": "GET, HEAD",
        "/healthz": "GET, HEAD",
        "/docs": "GET, HEAD",
    }
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        for path, methods in allowed.items():
            answer = ask(app, method, path)
            assert (answer.status, answer.header("allow")) == (405, methods)
            assert answer.json["error"] == "unknown method"


def test_parameters_that_no_operation_reads_are_not_ignored(app: Any) -> None:
    path = "/v1/studies/nowhere/policy"
    assert ask(app, "GET", f"{path}?context={{}}").json["error"] == "unknown study"
    for query, fields in {
        "contxt=1": ["contxt"],
        "study=other": ["study"],
        "context=1&a=&b&a": ["a", "b"],
        "context=1&context=2": ["context"],
        "x" * 10_000: ["x" * 36 + "…" + "x" * 23],
        "=": [""],
    }.items():
        answer = ask(app, "GET", f"{path}?{query}")
        assert answer.status == 422
        assert [one["field"] for one in answer.json["fields"]] == fields
    assert ask(app, "POST", "/v1/studies/nowhere/events?id=1").status == 422
    assert ask(app, "GET", "/healthz?probe=1").status == 200
    many = "&".join(f"p{i}" for i in range(1000))
    assert len(ask(app, "GET", f"{path}?{many}").json["fields"]) == 100


def test_head_answers_as_get_without_a_body_and_ends(app: Any) -> None:
    for path in ("/v1/studies", "/v1/studies/nowhere/policy"):
        got, head = ask(app, "GET", path), ask(app, "HEAD", path)
        assert head.status == got.status
        assert head.header("content-length") == str(len(got.body))
        assert head.header("content-type") == got.header("content-type")
    assert ask(app, "HEAD", "/v1/studies").body == b""
    live = ask(app, "HEAD", "/v1/live")
    assert (live.status, live.body) == (200, b"")
    assert str(live.header("content-type")).startswith("text/event-stream")
