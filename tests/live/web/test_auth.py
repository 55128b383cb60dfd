"""The middleware passes what its rules allow, and nothing else; what fails inside is answered."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import TypeAdapter
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Send
from starlette.types import Scope as Connection

from tests.support.asgi import ADDRESS, Answer, HttpError, Service, ask
from tests.support.live.temporary_stores import Scope, TokenRecord
from tests.support.strategies import quick
from understudy.errors import InvalidArgument, InvalidSnapshot, StoreInUse, StoreUnavailable
from understudy.live.web import tokens
from understudy.live.web.app import make_app
from understudy.live.web.auth import Authorization
from understudy.live.web.middleware import HEADERS, Limits, RequestMiddleware
from understudy.live.web.refusals import HANDLERS
from understudy.live.web.tokens import BadTokens, TokenRegistry, digest_of, new_token

pytestmark = pytest.mark.plain

READ, WRITE, WRONG = "us_read", "us_write", "us_wrong"
RECORDS = [
    TokenRecord("reader", digest_of(READ), "read"),
    TokenRecord("writer", digest_of(WRITE), "write"),
]
JSON = {"content-type": "application/json"}
LIMITS = Limits(body=100, snapshot=300)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Inside:
    """What is behind the middleware: it notes what comes through, and answers or raises."""

    def __init__(self, outcome: Response | Exception | None = None) -> None:
        self.outcome = outcome or PlainTextResponse("inside")
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            self.bodies.append(scope["type"].encode())
            return
        scope["endpoint"] = Inside
        self.bodies.append(await Request(scope, receive).body())
        if isinstance(self.outcome, Exception):
            raise self.outcome
        await self.outcome(scope, receive, send)


def make(
    inside: Any = None,
    records: Sequence[TokenRecord] = RECORDS,
    *,
    loopback_only: bool = True,
    clock: Clock | None = None,
    registry: CollectorRegistry | None = None,
) -> RequestMiddleware:
    clock = clock or Clock()
    return RequestMiddleware(
        ExceptionMiddleware(inside or Inside(), HANDLERS),  # as an application has it inside
        Authorization(TokenRegistry(lambda: records), loopback_only=loopback_only, clock=clock),
        registry=registry or CollectorRegistry(),
        operations={Inside: "inside"},
        limits=LIMITS,
        clock=clock,
    )


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────

PUBLIC = ["/", "/docs", "/openapi.json", "/healthz", "/readyz", "/assets/page.js"]
PRIVATE = [
    "/v1/studies",
    "/v1/studies/a/draw",
    "/v1/studies/a/draw/b",
    "/v1/studies/draw",
    "/v1/studies/a/b/draw",
    "/v1/draw",
    "/metrics",
    "/assets",
    "/docs/",
    "/unknown",
    "//docs",
]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"]
CREDENTIALS = {
    "none": {},
    "basic": {"authorization": "Basic dXNfcmVhZDo="},
    "bare": {"authorization": WRITE},
    "empty": {"authorization": "Bearer "},
    "wrong": bearer(WRONG),
    "digest": bearer(digest_of(WRITE).hex()),
    "umlaut": bearer("us_ä"),
    "read": bearer(READ),
    "write": bearer(WRITE),
    "lower case": {"authorization": f"bearer {WRITE}"},
}
MAY = {"read": {"read"}, "write": {"read", "write"}, "lower case": {"read", "write"}}


def expected(method: str, path: str, credentials: str) -> int:
    """The rules again, written as a table."""
    reads = method in {"GET", "HEAD"}
    if reads and path in PUBLIC:
        return 200
    if credentials not in MAY:
        return 401
    needed = "read" if reads or (method, path) == ("POST", "/v1/studies/a/draw") else "write"
    return 200 if needed in MAY[credentials] else 403


@pytest.mark.parametrize("credentials", CREDENTIALS)
@pytest.mark.parametrize("method", METHODS)
def test_a_token_opens_what_it_is_for(method: str, credentials: str) -> None:
    for path in PUBLIC + PRIVATE:
        inside = Inside()
        answer = ask(make(inside), method, path, CREDENTIALS[credentials])
        assert answer.status == expected(method, path, credentials), path
        assert len(inside.bodies) == (answer.status == 200)
        challenge = answer.header("www-authenticate")
        assert (challenge is None) == (answer.status == 200)
        if answer.status == 403:
            assert 'error="insufficient_scope", scope="write"' in str(challenge)
        if answer.status == 401:
            assert str(challenge).startswith("Bearer realm=")
            told_wrong = credentials in {"wrong", "digest", "umlaut"}
            assert ("invalid_token" in str(challenge)) == told_wrong


def test_without_tokens_and_beyond_loopback_nobody_gets_in() -> None:
    """Such as when the last token is taken away from a service that the world can reach."""
    middleware = make(records=[], loopback_only=False)
    for method, path in itertools.product(METHODS, PRIVATE):
        assert ask(middleware, method, path, bearer(WRITE), client=None).status in {401, 429}
    assert ask(middleware, "GET", "/healthz").status == 200


def test_tokens_cannot_be_guessed_and_only_their_digest_is_kept() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"us_[\w-]{43}", token) for token in made)
    assert digest_of(WRITE) == hashlib.sha256(WRITE.encode()).digest()


@given(st.lists(st.sampled_from(["read", "write"]), max_size=6), st.data())
@quick
def test_every_record_is_looked_at_whatever_is_found(
    scopes: list[Scope], data: st.DataObject
) -> None:
    """A token that is wrong at its first letter takes as long as the right one."""
    known = [f"us_{i}" for i in range(len(scopes))]
    records = [
        TokenRecord(name, digest_of(name), scope) for name, scope in zip(known, scopes, strict=True)
    ]
    token = data.draw(st.sampled_from([*known, WRONG]))
    looked: list[bytes] = []

    def compare(a: bytes, b: bytes) -> bool:
        looked.append(a)
        return a == b

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.live.web.tokens.hmac.compare_digest", compare)
        found = TokenRegistry(lambda: records).scope_of(digest_of(token))
    assert looked == [record.digest for record in records]
    assert found == dict(zip(known, scopes, strict=True)).get(token)


@pytest.mark.parametrize("scopes", [("read", "write"), ("write", "read")])
def test_one_token_under_two_names_may_what_either_may(scopes: tuple[Scope, Scope]) -> None:
    records = [TokenRecord(scope, digest_of(READ), scope) for scope in scopes]
    assert TokenRegistry(lambda: records).scope_of(digest_of(READ)) == "write"


def test_a_token_that_is_added_or_removed_counts_at_once() -> None:
    records = list(RECORDS)
    middleware = make(records=records)
    assert ask(middleware, headers=bearer(WRITE)).status == 200
    records.pop()
    assert ask(middleware, headers=bearer(WRITE)).status == 401
    records.clear()
    assert ask(middleware).status == 200  # open to its own machine again


# ── wrong tokens ──────────────────────────────────────────────────────────────────────────────────


PAUSES = st.sampled_from([0.0, 0.25, 1.0, 3.0, 10.0, 45.0])


@given(st.lists(st.tuples(st.sampled_from("aab"), PAUSES), min_size=30, max_size=90))
@quick
def test_ten_wrong_tokens_in_any_minute_and_no_more(steps: list[tuple[str, float]]) -> None:
    """Against a list of all that was ever compared."""
    clock = Clock()
    bad = BadTokens(clock)
    compared: dict[str, list[float]] = defaultdict(list)
    for address, seconds in steps:
        clock.now += seconds
        recent = [at for at in compared[address] if clock.now - at < 60.0]
        wait = bad.wait(address)
        assert (wait == 0) == (len(recent) < 10)
        if wait == 0:
            bad.note(address)
            compared[address].append(clock.now)
        else:
            assert wait == math.ceil(60.0 - (clock.now - recent[-10]))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The digests that were compared with those of the store."""
    found: list[bytes] = []

    def compare(kept: bytes, sent: bytes) -> bool:
        found.append(sent)
        return kept == sent

    monkeypatch.setattr("understudy.live.web.tokens.hmac.compare_digest", compare)
    return found


def test_an_address_that_guesses_waits_and_its_guesses_are_not_compared(
    compared: list[bytes],
) -> None:
    clock = Clock()
    middleware = make(clock=clock)
    guesses = [f"us_guess_{i}" for i in range(1_000)]
    statuses = [ask(middleware, headers=bearer(guess)).status for guess in guesses]
    assert statuses == [401] * 10 + [429] * 990
    assert set(compared) == {digest_of(guess) for guess in guesses[:10]}
    clock.now = 12.25
    limited = ask(middleware, headers=bearer(WRONG))
    assert (limited.status, limited.header("retry-after")) == (429, "48")
    assert ask(middleware).status == 401  # a missing token is no guess
    assert ask(middleware, headers=bearer(WRONG), client=("192.0.2.8", 1)).status == 401
    clock.now += 48
    assert ask(middleware, headers=bearer(WRONG)).status == 401


def test_a_guesser_does_not_lock_out_those_who_share_its_address() -> None:
    """Such as all clients of one proxy. A token that is new to the service has to wait."""
    records = list(RECORDS)
    clock = Clock()
    middleware = make(records=records, clock=clock)
    assert ask(middleware, headers=bearer(WRITE), client=("192.0.2.8", 1)).status == 200
    for _ in range(20):
        ask(middleware, headers=bearer(WRONG))
    assert ask(middleware, headers=bearer(WRITE)).status == 200
    assert ask(middleware, headers=bearer(READ)).status == 429
    clock.now = 60.0
    assert ask(middleware, headers=bearer(READ)).status == 200
    for _ in range(20):
        ask(middleware, headers=bearer(WRONG))
    assert ask(middleware, headers=bearer(READ)).status == 200
    del records[1]  # the token that may write
    assert [ask(middleware, headers=bearer(WRITE)).status for _ in range(2)] == [401, 429]


def test_the_addresses_of_one_site_count_together() -> None:
    """A customer with IPv6 has 2^64 addresses: each could guess ten times a minute."""
    middleware = make()
    site = [f"2001:db8::{i:x}" for i in range(11)]
    asked = [ask(middleware, headers=bearer(WRONG), client=(one, 1)).status for one in site]
    assert asked == [401] * 10 + [429]
    other = ("2001:db8:0:1::1", 1)
    assert ask(middleware, headers=bearer(WRONG), client=other).status == 401


def test_the_addresses_that_are_remembered_are_bounded_and_the_oldest_goes() -> None:
    bad = BadTokens(lambda: 0.0)
    for _ in range(10):
        bad.note("first")
        bad.note("busy")
    for i in range(tokens.MOST_ADDRESSES - 1):
        bad.note(f"address {i}")
        bad.note("busy")
    assert bad.wait("first") == 0  # forgotten, unlike the one that kept trying
    assert bad.wait("busy") == 60


# ── without tokens ────────────────────────────────────────────────────────────────────────────────

OWN = ["127.0.0.1", "localhost", "[::1]", "LocalHost", "127.0.0.1:8000", "localhost:1", "[::1]:80"]
FOREIGN = [
    "evil.com",
    "evil.com:8000",
    "localhost.evil.com",
    "evil.com#localhost",
    "127.0.0.1.nip.io",
    "127x0x0x1",
    "localhost:",
    "localhost:80x",
    "localhost:8000\n",
    "user@localhost",
    "192.168.0.1",
    "0.0.0.0",
    "::1",
    "",
]


@pytest.mark.parametrize("path", ["/", "/v1/studies", "/metrics"])
def test_an_open_service_answers_to_names_of_its_own_machine_only(path: str) -> None:
    middleware = make(records=[])
    assert [ask(middleware, path=path, headers={"host": host}).status for host in OWN] == [200] * 7
    for host in FOREIGN:
        assert ask(middleware, path=path, headers={"host": host}).status == 403, host
    behind_a_proxy = {**bearer(READ), "host": "understudy.example"}
    assert ask(make(), path=path, headers=behind_a_proxy).status == 200


@pytest.mark.parametrize("path", ["/", "/v1/studies", "/metrics"])
@pytest.mark.parametrize("hosts", [["evil.com", "localhost"], ["localhost", "localhost"]])
def test_a_request_has_one_host(path: str, hosts: list[str]) -> None:
    """A proxy or a cache may go by the first of two, and a check here by the last."""
    for records in ([], RECORDS):
        headers = [(b"host", host.encode()) for host in hosts]
        headers += [(name.encode(), value.encode()) for name, value in bearer(READ).items()]
        answer = ask(make(records=records), path=path, extra={"headers": headers})
        assert (answer.status, answer.json["error"]) == (400, "malformed")
        others = {"headers": [*headers[1:], (b"accept", b"a"), (b"accept", b"b")]}
        assert ask(make(records=records), path=path, extra=others).status == 200


PROXIED = ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"]


@pytest.mark.parametrize("name", PROXIED)
def test_an_open_service_refuses_what_a_proxy_forwards(name: str) -> None:
    """A proxy of this machine makes all the world look like this machine."""
    for path in ("/", "/v1/studies", "/metrics"):
        answer = ask(make(records=[]), path=path, headers={name: "203.0.113.9"})
        assert (answer.status, answer.json["error"]) == (403, "forwarded")
        assert "understudy token add" in answer.json["message"]
    assert ask(make(), headers={name: "203.0.113.9", **bearer(READ)}).status == 200
    assert ask(make(records=[]), headers={"x-forward": "1"}).status == 200


def test_the_server_learns_which_requests_are_authorized() -> None:
    """It keeps their connections where there are too many."""
    for records, headers, times in (
        (RECORDS, bearer(READ), 1),
        (RECORDS, bearer(WRONG), 0),
        (RECORDS, {}, 0),
        ([], {}, 1),
        ([], {"host": "evil.com"}, 0),
        ([], {"origin": "http://evil.com"}, 0),
    ):
        authorized: list[bool] = []
        extra = {"understudy.authorize": lambda kept=authorized: kept.append(True)}
        ask(make(records=records), headers=headers, extra=extra)
        ask(make(records=records), path="/healthz", extra=extra)  # for all
        assert len(authorized) == times

    def refuse() -> None:
        raise HttpError(503, "overloaded", "too many requests")

    answer = ask(make(), headers=bearer(READ), extra={"understudy.authorize": refuse})
    assert (answer.status, answer.json["error"]) == (503, "overloaded")
    assert answer.header("retry-after") == "1"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("host", OWN)
def test_an_open_service_answers_its_own_pages_only(method: str, host: str) -> None:
    middleware = make(records=[])
    assert ask(middleware, method, headers={"host": host, "origin": f"http://{host}"}).status == 200
    others = ["null", "", "http://evil.com", f"https://{host}", f"http://{host}.evil.com"]
    others += [f"http://evil.com/http://{host}", f"http://{host}1", f"http://{host}/"]
    for origin in others:
        answer = ask(middleware, method, headers={"host": host, "origin": origin})
        assert (answer.status, answer.json["error"]) == (403, "foreign origin")


# ── bodies ────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def bodies(draw: st.DrawFn, limit: int) -> list[bytes]:
    """A body of a length near the limit, in any pieces."""
    size = draw(st.one_of(st.integers(limit - 2, limit + 2), st.integers(0, 2 * limit)))
    cuts = sorted(draw(st.lists(st.integers(0, size), max_size=6)))
    whole = bytes(i % 251 for i in range(size))
    return [whole[a:b] for a, b in itertools.pairwise([0, *cuts, size])]


@given(data=st.data(), method=st.sampled_from(["POST", "PUT", "DELETE"]), declared=st.booleans())
@quick
def test_a_body_passes_whole_or_not_at_all(
    data: st.DataObject, method: str, declared: bool
) -> None:
    path, limit = data.draw(st.sampled_from([("/v1/studies", 100), ("/v1/snapshots", 300)]))
    chunks = data.draw(bodies(limit))
    size = sum(map(len, chunks))
    length = {"content-length": str(size)} if declared else {"transfer-encoding": "chunked"}
    inside = Inside()
    answer = ask(make(inside, records=[]), method, path, JSON | length, chunks)
    assert answer.status == (413 if size > limit else 200)
    assert inside.bodies == ([] if size > limit else [b"".join(chunks)])
    if size > limit:
        assert str(limit) in answer.json["message"]


def test_a_body_that_is_declared_too_large_is_not_waited_for() -> None:
    declared = JSON | {"content-length": "101"}
    assert ask(make(records=[]), "POST", headers=declared, chunks=[]).status == 413


def test_a_length_that_may_be_a_lie_is_not_relied_on() -> None:
    both = JSON | {"content-length": "5", "transfer-encoding": "chunked"}
    assert ask(make(records=[]), "POST", headers=both, chunks=[b"x" * 101]).status == 413
    neither = ask(make(records=[]), "POST", headers=JSON, chunks=[b"x" * 101])  # as in HTTP/2
    assert neither.status == 413


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/json ;x", 200),
        (None, 415),
        ("", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=application/json", 415),
        ("application/jsonp", 415),
        ("application/json, text/plain", 415),
    ],
)
def test_bodies_are_sent_as_json(content_type: str | None, status: int) -> None:
    given_type = {} if content_type is None else {"content-type": content_type}
    for length in ({"content-length": "2"}, {"transfer-encoding": "chunked"}):
        answer = ask(make(records=[]), "POST", headers=given_type | length, chunks=[b"{}"])
        assert answer.status == status
    assert ask(make(records=[]), "POST", headers=given_type).status == 200  # without a body
    assert ask(make(records=[]), "GET", headers=given_type | {"content-length": "2"}).status == 200


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


def refused_value() -> Exception:
    try:
        TypeAdapter(dict[str, float]).validate_python({"reward": "high"})
    except ValueError as error:
        return error
    raise AssertionError


OUTCOMES: list[tuple[Exception, int, str]] = [
    (StoreUnavailable("the disk is full"), 503, "the disk is full"),
    (StoreInUse("another server writes"), 503, "another server writes"),
    (
        InvalidArgument("eta", -1, "it is negative", "pass 1"),
        422,
        "eta: -1: it is negative; pass 1",
    ),
    (InvalidSnapshot("file", "x", "it is damaged", "save it again"), 422, "damaged"),
    (refused_value(), 422, 'reward: "high": it must be a valid number'),
    (HttpError(404, "unknown study", "there is none"), 404, "there is none"),
    (RuntimeError("a secret"), 500, "its log has it as request"),
    (ZeroDivisionError(), 500, "its log has it as request"),
    (KeyError("a secret"), 500, "its log has it as request"),
]


@pytest.mark.parametrize(("error", "status", "message"), OUTCOMES)
def test_what_escapes_an_operation_is_answered(error: Exception, status: int, message: str) -> None:
    with structlog.testing.capture_logs() as logs:
        answer = ask(make(Inside(error), records=[]))
    assert answer.status == status
    assert message in answer.json["message"]
    assert "secret" not in answer.body.decode()
    assert answer.header("retry-after") == ("1" if status == 503 else None)
    levels = {404: [], 422: [], 503: ["warning"], 500: ["error", "warning"]}
    assert [line["log_level"] for line in logs] == levels[status]
    for line in logs:
        assert line["request"] == answer.header("x-request-id")
    if status == 500:
        assert logs[0]["exc_info"] is error
        assert str(answer.header("x-request-id")) in answer.json["message"]
    if status == 503:
        assert logs[0]["reason"] == str(error)
    if status == 422:  # the client shows a message that is the one of its only field once
        ((field, words),) = (one.values() for one in answer.json["fields"])
        assert answer.json["message"] == f"{field}: {words}"


def test_an_answer_that_has_begun_is_broken_off_and_not_completed() -> None:
    async def half(_: Connection, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise StoreUnavailable("gone")

    with structlog.testing.capture_logs() as logs, pytest.raises(RuntimeError) as caught:
        ask(make(half, records=[]))
    assert isinstance(caught.value.__cause__, StoreUnavailable)
    assert [line["event"] for line in logs] == ["request broken"]


def test_a_client_that_leaves_is_counted_and_not_answered() -> None:
    registry = CollectorRegistry()
    middleware = make(Inside(ClientDisconnect()), records=[], registry=registry)
    with structlog.testing.capture_logs() as logs, pytest.raises(ValueError, match="unpack"):
        ask(middleware)  # nothing was sent
    assert logs == []
    labels = {"method": "GET", "operation": "inside", "status": "499"}
    assert registry.get_sample_value("understudy_requests_total", labels) == 1.0


def every_kind_of_answer() -> Iterator[tuple[str, Answer]]:
    chunked = JSON | {"transfer-encoding": "chunked"}
    for path in ("/", "/v1/studies", "/assets/page.css", "/metrics"):
        for error, _, _ in OUTCOMES:
            yield path, ask(make(Inside(error), records=[]), path=path)
        yield path, ask(make(records=[]), path=path)
        yield path, ask(make(records=[]), path=path, headers={"host": "evil.com"})
        yield path, ask(make(records=[]), "POST", path, chunked, [b"x" * 101])
        yield path, ask(make(records=[]), "POST", path, {"content-length": "1"})
        yield path, ask(make(), "POST", path, bearer(READ))
        middleware = make()
        for _ in range(11):
            yield path, ask(middleware, "POST", path, bearer(WRONG))


def test_every_answer_has_the_headers_that_protect_it() -> None:
    with structlog.testing.capture_logs():
        answers = list(every_kind_of_answer())
    assert {a.status for _, a in answers} == {200, 401, 403, 404, 413, 415, 422, 429, 500, 503}
    for path, answer in answers:
        for name, value in HEADERS:
            assert answer.header(name.decode()) == value.decode()
        assert answer.header("cache-control") == ("no-store" if path.startswith("/v1/") else None)
        assert answer.header("server") is None
    names = [answer.header("x-request-id") for _, answer in answers]
    assert len(set(names)) == len(names)


def test_the_policy_of_contents_is_the_strictest_with_which_the_page_works() -> None:
    text = dict(HEADERS)[b"content-security-policy"].decode()
    policy = dict(rule.split(" ", 1) for rule in text.split("; "))
    own = {"script-src", "style-src", "connect-src"}
    assert {name for name, sources in policy.items() if sources == "'self'"} == own
    assert policy.pop("img-src") == "'self' data:"
    closed = {"default-src", "base-uri", "form-action", "frame-ancestors"}
    assert {name for name, sources in policy.items() if sources == "'none'"} == closed
    assert set(policy) == own | closed


def test_a_websocket_is_closed(tmp_path: Path) -> None:
    """No token is asked for, so none may lead anywhere."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    app = make_app(Service(str(tmp_path / "store.db")))
    for path in ("/", "/v1/live", "/v1/studies/a/events", "/v1/studies/a/live"):
        scope: dict[str, Any] = {
            "type": "websocket",
            "path": path,
            "query_string": b"",
            "headers": [],
        }
        asyncio.run(app(scope, receive, send))
        assert [message["type"] for message in sent] == ["websocket.close"]
        sent.clear()


# ── what operators see ────────────────────────────────────────────────────────────────────────────


def test_requests_are_counted_and_timed_by_operation_and_never_by_path() -> None:
    registry, clock = CollectorRegistry(), Clock()

    class Slow(Inside):
        async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
            clock.now += 0.003
            await super().__call__(scope, receive, send)

    middleware = make(Slow(), clock=clock, registry=registry)
    for i in range(3):
        ask(middleware, "GET", f"/v1/secret-{i}", bearer(READ))
        ask(middleware, f"METHOD{i}", f"/v1/secret-{i}", bearer(WRITE))
        ask(middleware, "GET", f"/v1/secret-{i}", bearer(WRONG))
    text = generate_latest(registry).decode()
    assert "secret" not in text
    for line in (
        'understudy_requests_total{method="GET",operation="inside",status="200"} 3.0',
        'understudy_requests_total{method="other",operation="inside",status="200"} 3.0',
        'understudy_requests_total{method="GET",operation="other",status="401"} 3.0',
        'understudy_request_seconds_bucket{le="0.0025",operation="inside"} 0.0',
        'understudy_request_seconds_bucket{le="0.005",operation="inside"} 6.0',
        'understudy_request_seconds_bucket{le="+Inf",operation="inside"} 6.0',
        'understudy_request_seconds_count{operation="inside"} 6.0',
        'understudy_request_seconds_bucket{le="0.0005",operation="other"} 3.0',
    ):
        assert line in text.splitlines()


def test_refusals_are_logged_without_tokens_and_on_one_line() -> None:
    with structlog.testing.capture_logs() as logs:
        answers = [
            ask(make(), "GET", "/v1/a\nb\x1b[31m", bearer(WRONG)),
            ask(make(), "POST", "/v1/" + "x" * 1000, bearer(READ)),
            ask(make(), "POST", "/v1/studies", bearer(WRITE) | {"content-length": "1"}),  # 415
            ask(make(), "GET", "/v1/studies", bearer(READ)),
        ]
    assert [answer.status for answer in answers] == [401, 403, 415, 200]
    assert [line["status"] for line in logs] == [401, 403]
    assert [line["address"] for line in logs] == [ADDRESS] * 2
    for line in logs:
        text = " ".join(map(str, line.values()))
        assert "us_" not in text
        assert text.isprintable()
        assert len(text) < 500


def test_a_flood_of_refusals_is_no_flood_of_lines() -> None:
    clock = Clock()
    middleware = make(clock=clock)
    with structlog.testing.capture_logs() as logs:
        for _ in range(500):
            ask(middleware)
        clock.now = 1.0
        ask(middleware)
        ask(middleware)
    assert len(logs) == 12
    assert [line.get("unlogged", 0) for line in logs] == [0] * 10 + [490, 0]


def test_a_large_response_comes_in_pieces() -> None:
    """The server buffers what it gets, whether the client reads it or not.

    A piece is made when the one before was sent: a client that does not read holds one in memory.
    """

    class Body(bytes):
        def __getitem__(self, part: Any) -> Any:
            made.append(len(sent))
            return super().__getitem__(part)

    whole = Body(bytes(range(256)) * 1_000)
    sent: list[Any] = []
    made: list[int] = []

    async def inside(_: object, __: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": whole, "more_body": True})
        await send({"type": "http.response.body", "body": whole})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/assets/large.js",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "scheme": "http",
        "client": ("127.0.0.1", 1),
    }
    asyncio.run(make(inside, records=[])(scope, receive, send))
    bodies = [message for message in sent if message["type"] == "http.response.body"]
    assert b"".join(message["body"] for message in bodies) == whole * 2
    assert max(len(message["body"]) for message in bodies) <= 65_536
    assert made == [1, 2, 3, 4, 5, 6, 7, 8]
    more = [message.get("more_body", False) for message in bodies]
    assert more == [True] * (len(bodies) - 1) + [False]
