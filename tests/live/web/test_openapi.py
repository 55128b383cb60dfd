"""The document says what the service does, and the page says what the document does."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.support.asgi import Answer, ask
from tests.support.live.sample_operations import CONTEXT, OPERATIONS, STUDY, health
from tests.support.live.temporary_stores import TokenRecord
from tests.support.markup import Element, tree
from tests.support.paths import PACKAGE
from tests.support.programs import find
from tests.support.strategies import quick
from understudy.errors import InvalidArgument
from understudy.live.web.access_rules import HEADERS
from understudy.live.web.docs import docs_page
from understudy.live.web.middleware import LIMITS, AuthMiddleware
from understudy.live.web.openapi import Content, Operation, Parameter, document
from understudy.live.web.router import OperationRouter
from understudy.live.web.schema_words import field_rows, type_words
from understudy.live.web.tokens import TokenRegistry, digest_of

pytestmark = pytest.mark.plain

TOKENS = [TokenRecord(scope, digest_of(f"us_{scope}"), scope) for scope in ("read", "write")]
DOCUMENT = document(OPERATIONS, "1.2.3")
PAGE = docs_page(DOCUMENT)
STYLES = {
    f"/assets/{Path(file).name}": (PACKAGE / file).read_text(encoding="utf-8")
    for file in ("report/templates/report.css", "live/web/assets/docs.css")
}


def service(
    records: list[TokenRecord],
    operations: Sequence[Operation] = OPERATIONS,
    clock: Callable[[], float] = time.monotonic,
) -> AuthMiddleware:
    return AuthMiddleware(
        OperationRouter(operations),
        TokenRegistry(lambda: records),
        loopback_only=True,
        registry=CollectorRegistry(),
        clock=clock,
    )


def bearer(scope: str) -> dict[str, str]:
    return {"Authorization": f"Bearer us_{scope}"}


def path_of(operation: Operation) -> str:
    return operation.path.replace("{study}", "checkout")


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


# ── the document ──────────────────────────────────────────────────────────────────────────────────


def test_the_document_is_openapi_and_survives_json() -> None:
    assert json.loads(json.dumps(DOCUMENT)) == DOCUMENT
    from schemathesis import openapi  # noqa: PLC0415 - half a second that few tests need

    schema = openapi.from_dict(DOCUMENT)
    schema.validate()
    results: list[Any] = list(schema.get_all_operations())
    assert {result.ok().label for result in results} == {
        f"{one.method} {one.path}" for one in OPERATIONS
    }


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    references = {one["$ref"] for one in every(DOCUMENT) if "$ref" in one}
    for reference in references:
        assert isinstance(found(reference), dict)
    assert {
        f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]
    } <= references
    assert {
        f"#/components/headers/{name}" for name in DOCUMENT["components"]["headers"]
    } <= references


def test_schemas_allow_nothing_that_they_do_not_name() -> None:
    described = [one for one in every(DOCUMENT["components"]["schemas"]) if "properties" in one]
    assert len(described) == 7
    assert all(one["additionalProperties"] is False for one in described)


def test_parameters_are_as_they_were_declared() -> None:
    draw = DOCUMENT["paths"]["/v1/studies/{study}/draw"]["get"]
    study, context = draw["parameters"]
    assert study == {
        "name": "study",
        "in": "path",
        "required": True,
        "description": STUDY.description,
        "schema": STUDY.schema,
        "example": "checkout",
    }
    assert (context["in"], context["required"]) == ("query", False)
    media = context["content"]["application/json"]
    assert media == {"schema": CONTEXT.schema, "example": CONTEXT.example}


def refusals_of_the_middleware(operation: Operation) -> Iterator[Answer]:
    """Everything that may be wrong with a request before it comes to the operation."""
    method, path = operation.method, path_of(operation)
    closed, open_ = service(TOKENS), service([])
    written = {"content-type": "application/json", "content-length": "1"}
    yield ask(closed, method, path)
    yield ask(closed, method, path, bearer("read"))
    for _ in range(11):
        yield ask(closed, method, path, bearer("neither"))
    yield ask(open_, method, path, {"host": "evil.com"})
    yield ask(open_, method, path, {"origin": "http://evil.com"})
    yield ask(open_, method, f"{path}?unknown=1")
    yield ask(open_, method, path, {"content-length": str(LIMITS.body + 1)})
    yield ask(open_, method, path, {"content-length": "x"})
    yield ask(open_, method, path, {"content-length": "1"}, [b"x"])
    yield ask(open_, method, path, written, [b"x"])
    yield ask(open_, method, path, written, [b"1"])
    yield ask(open_, method, path, {**written, "content-length": "2"}, [b"{}"])


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_every_status_that_can_come_is_declared(operation: Operation) -> None:
    responses = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
    with structlog.testing.capture_logs():
        answers = list(refusals_of_the_middleware(operation))
    for answer in answers:
        declared = responses[str(answer.status)]
        media = str(answer.header("content-type")).split(";")[0]
        assert [media] == list(declared["content"])
        for name in declared["headers"]:
            always = DOCUMENT["components"]["headers"][name]["required"]
            assert not always or answer.header(name.lower()) is not None
    came = {answer.status for answer in answers}
    of_store = {503} if operation.scope else set()
    assert came | of_store | set(operation.refusals) | {operation.status} >= set(
        map(int, responses)
    )


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_the_document_says_which_token_is_needed(operation: Operation) -> None:
    security = DOCUMENT["paths"][operation.path][operation.method.lower()]["security"]
    statuses = [
        ask(service(TOKENS), operation.method, path_of(operation), headers).status
        for headers in ({}, bearer("read"), bearer("write"))
    ]
    passed = [status not in {401, 403} for status in statuses]
    expected = {"": [True] * 3, "read": [False, True, True], "write": [False, False, True]}
    assert passed == expected[security[0]["bearer"][0] if security else ""]


def test_an_operation_is_declared_once_and_its_path_described() -> None:
    plain = Operation("GET", "/healthz", "health", "Service", "Health", health)
    again = dataclasses.replace(plain, path="/other")
    same_place = dataclasses.replace(plain, name="other")
    for operations in ([plain, again], [plain, same_place]):
        with pytest.raises(InvalidArgument, match="declared twice"):
            document(operations, "1.0")
        with pytest.raises(InvalidArgument, match="declared twice"):
            OperationRouter(operations)
    with pytest.raises(InvalidArgument, match="'study'"):
        dataclasses.replace(plain, path="/v1/{study}")


# ── routes ────────────────────────────────────────────────────────────────────────────────────────


def test_requests_come_to_their_operations() -> None:
    app = service([])
    sent = {"content-type": "application/json"}
    body = json.dumps({"name": "a", "actions": ["x", "y"]}).encode()
    created = ask(app, "POST", "/v1/studies", sent, [body])
    assert (created.status, created.json["name"]) == (201, "a")
    batch = json.dumps({"events": [{"id": "a"}, {"id": "b"}]}).encode()
    learned = ask(app, "POST", "/v1/studies/checkout/batches", sent, [batch])
    assert (learned.status, learned.json) == (200, {"accepted": 2})
    assert ask(app, "POST", "/v1/studies/other/batches", sent, [batch]).status == 404
    assert ask(app, "GET", "/healthz").body == b"ok"


def test_what_leads_nowhere_is_refused_in_json() -> None:
    app = service([])
    for path in ("/v1", "/v1/studies/", "/healthz/", "/v1/studies/a/b/draw", "/" + "x" * 1000):
        answer = ask(app, "GET", path)
        assert (answer.status, answer.json["error"]) == (404, "unknown path")
        assert len(answer.json["message"]) < 120
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        answer = ask(app, method, "/v1/studies/a/draw")
        assert (answer.status, answer.header("allow")) == (405, "GET, POST, HEAD")
        assert answer.json["error"] == "unknown method"


def test_parameters_that_nobody_reads_are_not_ignored() -> None:
    app = service([])
    path = "/v1/studies/checkout/draw"
    assert ask(app, "GET", f"{path}?context={{}}").status == 200
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
    assert ask(app, "GET", "/healthz?probe=1").status == 200
    many = "&".join(f"p{i}" for i in range(1000))
    assert len(ask(app, "GET", f"{path}?{many}").json["fields"]) == 100


def test_head_answers_as_get_without_a_body_and_ends() -> None:
    app = service([])
    for path in ("/healthz", "/v1/studies/checkout/draw"):
        got, head = ask(app, "GET", path), ask(app, "HEAD", path)
        assert (head.status, head.body) == (got.status, b"")
        assert head.header("content-length") == str(len(got.body))
        assert head.header("content-type") == got.header("content-type")
    assert ask(app, "HEAD", "/v1/live", chunks=[b""] * 9).body == b""


# ── the page ──────────────────────────────────────────────────────────────────────────────────────


def test_the_page_is_well_formed_and_can_be_read_aloud() -> None:
    root = tree(PAGE)
    ids = [one.attributes["id"] for one in root.every("*") if "id" in one.attributes]
    assert len(set(ids)) == len(ids)
    for one in root.every("*"):
        assert set(one.attributes.get("aria-labelledby", "").split()) <= set(ids)
    for one in root.every("a"):
        link = one.attributes["href"]
        assert link in {"/", "/openapi.json"} or link.removeprefix("#") in ids
    levels = [int(tag) for tag in re.findall(r"<h(\d)", PAGE)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))
    for landmark in ("header", "nav", "main", "footer"):
        assert len(root.every(landmark)) == 1
    for one in root.every("pre") + [box for box in root.every("div") if box.attributes.get("role")]:
        assert one.attributes["tabindex"] == "0"
        assert one.attributes["aria-label"]
    assert root.every("html")[0].attributes["lang"] == "en"
    assert root.every("a")[0].attributes == {"class": "skip", "href": "#operations"}


def test_the_page_needs_no_script_and_nothing_from_elsewhere() -> None:
    root = tree(PAGE)
    assert not root.every("script") + root.every("style")
    used = [
        (one.tag, name, value)
        for one in root.every("*")
        for name, value in one.attributes.items()
        if name in {"src", "href", "style", "srcset", "action"} and not value.startswith("#")
    ]
    assert {value for _, _, value in used} == {"data:,", *STYLES, "/", "/openapi.json"}
    for css in STYLES.values():
        assert "url(" not in css
        assert "@import" not in css


def shown(operation: Operation) -> Element:
    (article,) = [a for a in tree(PAGE).every("article") if a.attributes["id"] == operation.name]
    return article


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_every_operation_is_shown_with_all_that_is_said_of_it(operation: Operation) -> None:
    text = shown(operation).text
    assert all(said in text for said in (operation.summary, operation.path, operation.description))
    assert f"needs a token that may {operation.scope}" in text or operation.scope is None
    for status, description in operation.all_refusals().items():
        assert f"{status}{description.replace('`', '')}" in text
    rows = {row.every("th")[0].text.split()[0] for row in shown(operation).every("tr")}
    assert {one.name for one in operation.parameters} <= rows
    for content in (operation.request, operation.response):
        if content is not None and content.model is not None:
            assert set(content.model.model_fields) <= rows


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_the_example_can_be_pasted_and_does_what_it_says(operation: Operation) -> None:
    """As a shell would read it, sent to the service, it is answered with the declared status."""
    command = shown(operation).every("pre")[0].text.replace("\\\n", "")
    program, *words = shlex.split(command)
    assert program == "curl"
    options = {flag: words[i + 1] for i, flag in enumerate(words) if flag in {"-X", "-d"}}
    headers = dict(words[i + 1].split(": ") for i, flag in enumerate(words) if flag == "-H")
    (url,) = [urlsplit(word) for word in words if word.startswith("http")]
    headers = {name: value.replace("$TOKEN", "us_write") for name, value in headers.items()}
    body = options.get("-d", "").encode()
    length = {"content-length": str(len(body))} if body else {}
    method = options.get("-X", "GET")
    answer = ask(service(TOKENS), method, url.path, {**headers, **length}, [body])
    assert (method, answer.status) == (operation.method, operation.status)
    assert ("-N" in words) == (operation.name == "watch")
    if operation.request is not None:
        assert json.loads(body) == operation.request.example


def test_an_example_has_the_query_that_is_required() -> None:
    name = Parameter("name", {"type": "string"}, "How.", "a b&c", required=True)
    needy = Operation("GET", "/v1/x", "x", "T", "S", health, parameters=(name, CONTEXT))
    command = tree(docs_page(document([needy], "1"))).every("pre")[0].text
    url = urlsplit(shlex.split(command.replace("\\\n", ""))[1])
    assert parse_qs(url.query) == {"name": ["a b&c"]}


def test_hostile_words_stay_words() -> None:
    hostile = "<script>alert(1)</script>`<b>`"
    operation = Operation(
        "GET", "/v1/x", "x", hostile, hostile, health, hostile, response=Content(example=hostile)
    )
    page = docs_page(document([operation], hostile))
    root = tree(page)
    assert not root.every("script") + root.every("b")
    assert "<b>" in root.every("article")[0].every("code")[1].text


WORDS: list[tuple[dict[str, Any], str]] = [
    ({"type": "string"}, "text"),
    ({"type": "string", "maxLength": 5}, "text, at most 5 characters"),
    ({"type": "string", "minLength": 5}, "text, at least 5 characters"),
    ({"type": "string", "pattern": "^a$"}, "text, like ^a$"),
    ({"type": "integer", "minimum": 1000}, "whole number, at least 1,000"),
    ({"type": "number", "exclusiveMinimum": 0.0, "maximum": 1.0}, "number, above 0, at most 1"),
    ({"type": "number", "exclusiveMaximum": 0.5}, "number, below 0.5"),
    ({"type": "boolean"}, "true or false"),
    ({"type": ["number", "string"]}, "number or text"),
    ({"const": "a"}, '"a"'),
    ({"enum": ["a", 1, None]}, '"a" or 1 or null'),
    ({"type": "array", "items": {"type": "string"}}, "list, each: text"),
    ({"type": "array", "items": {"$ref": "#/A"}, "maxItems": 9}, "list of at most 9, each: object"),
    ({"type": "array", "prefixItems": [{"type": "number"}] * 2}, "[number, number]"),
    ({"type": "object", "additionalProperties": {"type": "number"}}, "object, each value: number"),
    ({"anyOf": [{"type": "number", "maximum": 0}, {"type": "null"}]}, "number, at most 0; or null"),
    ({}, "anything"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "words"), WORDS)
def test_schemas_are_put_into_words(schema: dict[str, Any], words: str) -> None:
    assert type_words(schema, {"A": {"type": "object"}}) == words


def test_fields_within_fields_have_a_row_each_and_circles_end() -> None:
    node: dict[str, Any] = {
        "type": "object",
        "properties": {
            "value": {"type": "number", "default": 1.5, "description": "Its value."},
            "next": {"anyOf": [{"$ref": "#/x/Node"}, {"type": "null"}]},
            "all": {"type": "array", "items": {"$ref": "#/x/Leaf"}},
        },
        "required": ["value"],
    }
    leaf = {"type": "object", "properties": {"name": {"type": "string"}}}
    rows = field_rows({"$ref": "#/x/Node"}, {"Node": node, "Leaf": leaf})
    assert [row.name for row in rows] == ["value", "next", "all", "all[].name"]
    assert [row.required for row in rows] == [True, False, False, False]
    assert rows[0].description == "Its value. If left out: 1.5."


# ── in a browser, under fire ──────────────────────────────────────────────────────────────────────


@pytest.mark.needs("chromium")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_a_browser_shows_the_page_under_its_own_policy(width: int, scheme: Any) -> None:
    from playwright.sync_api import Route, sync_playwright  # noqa: PLC0415 - only where it runs

    protection = {name.decode(): value.decode() for name, value in HEADERS}
    asked, complaints = [], []

    def serve(route: Route) -> None:
        asked.append(urlsplit(route.request.url).path)
        style = STYLES.get(asked[-1])
        kind = "text/html" if style is None else "text/css"
        headers = {**protection, "content-type": kind}
        route.fulfill(body=PAGE if style is None else style, headers=headers)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.on("console", lambda message: complaints.append(message.text))
        page.route("**/*", serve)
        page.goto("http://localhost:8000/docs")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(16, 18, 22)" if scheme == "dark" else "rgb(245, 244, 240)")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        browser.close()
    assert asked == ["/docs", *STYLES]
    assert complaints == []


def described_service() -> Any:
    """All operations that end, and the document of them; wrong tokens are minutes apart."""
    from schemathesis import openapi  # noqa: PLC0415 - as above

    operations = [one for one in OPERATIONS if one.name != "watch"]
    written = document(operations, "1.2.3")

    async def tell(_: Request) -> Response:
        return JSONResponse(written)

    telling = Operation("GET", "/openapi.json", "openapi", "Service", "This document", tell)
    minutes = itertools.count(0.0, 60.0)
    app = service(TOKENS, [telling, *operations], lambda: next(minutes))
    return openapi.from_asgi("/openapi.json", app)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("operation", OPERATIONS[:4], ids=lambda one: one.name)
def test_whatever_is_sent_is_answered_as_described(operation: Operation, mode: str) -> None:
    from schemathesis import GenerationMode  # noqa: PLC0415 - as above

    described = described_service()[operation.path][operation.method]

    @given(described.as_strategy(generation_mode=GenerationMode(mode)))
    @settings(quick, suppress_health_check=list(HealthCheck))
    def holds(case: Any) -> None:
        case.call_and_validate(headers=bearer("write"))

    with structlog.testing.capture_logs():
        holds()
