"""Limits of connections, `understudy.live.web.connections`: slow, silent, greedy and many clients.

Deadlines are small here, and no test measures time: each waits until the service has closed the
connection, or has answered.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.support.live.local_server import serving, serving_store
from tests.support.live.temporary_stores import add_tokens
from understudy.live.web.connections import ConnectionLimits

pytestmark = pytest.mark.plain

HANGS = 60.0  # seconds after which a test fails
SHORT = 0.3
NEVER = 3_600.0
LARGE = 30_000_000  # bytes: more than the buffers of two sockets
QUICK = ConnectionLimits(
    head_seconds=SHORT, body_seconds=SHORT, write_seconds=SHORT, check_seconds=0.05
)
PATIENT = ConnectionLimits(head_seconds=NEVER, body_seconds=NEVER, write_seconds=NEVER)
HEAD = b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
WHOLE = HEAD + b"content-length: 2\r\n\r\n{}"
OTHER = "127.0.0.2"  # another address of this machine

stream_has_ended = threading.Event()


async def echo(request: Request) -> Response:
    return Response(await request.body())


async def stream(_: Request) -> Response:
    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(4):
            await asyncio.sleep(SHORT)
            yield b"."

    return StreamingResponse(slowly())


async def endless(_: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        try:
            while True:
                await asyncio.sleep(0.0)
                yield bytes(65_536)
        finally:
            stream_has_ended.set()

    stream_has_ended.clear()
    return StreamingResponse(parts())


async def large(_: Request) -> Response:
    return Response(bytes(LARGE))


def app() -> Starlette:
    return Starlette(
        routes=[
            Route("/echo", echo, methods=["POST"]),
            Route("/stream", stream),
            Route("/endless", endless),
            Route("/large", large),
        ]
    )


@pytest.fixture
def quick() -> Iterator[str]:
    with serving(app, limits=QUICK) as url:
        yield url


@pytest.fixture
def patient() -> Iterator[str]:
    with serving(app, limits=PATIENT) as url:
        yield url


@contextmanager
def connected(url: str, address: str = "127.0.0.1") -> Iterator[socket.socket]:
    where = urlsplit(url)
    target = (where.hostname or "", where.port or 0)
    with socket.create_connection(target, HANGS, source_address=(address, 0)) as own:
        yield own


def read_all(own: socket.socket) -> bytes:
    """Everything until the service closes the connection."""
    parts = []
    with suppress(ConnectionError):
        while part := own.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def read_response(own: socket.socket) -> bytes:
    """One response with a body of known length."""
    found = b""
    while b"\r\n\r\n" not in found:
        part = own.recv(65_536)
        assert part, found
        found += part
    head, _, body = found.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        part = own.recv(1_000_000)
        assert part, f"{len(body)} of {length} bytes came"
        body += part
    return head + b"\r\n\r\n" + body


def is_open(own: socket.socket) -> bool:
    """Whether the service still answers here."""
    with suppress(ConnectionError):
        own.sendall(WHOLE)
        return own.recv(65_536).startswith(b"HTTP/1.1 200")
    return False


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n",
        HEAD[:20],
        HEAD,
        HEAD + b"content-length: 9\r\n\r\nhalf",
        CHUNKED + b"2\r\n{}\r\n",
        WHOLE,
        WHOLE + b"\r\n",
        WHOLE + HEAD,
        WHOLE + HEAD + b"content-length: 9\r\n\r\nhalf",
    ],
    ids=repr,
)
def test_a_silent_connection_is_closed_whatever_came_before(quick: str, sent: bytes) -> None:
    with connected(quick) as own:
        own.sendall(sent)
        read_all(own)


@pytest.mark.parametrize("sent", [b"\r\n", HEAD, b"what"])
def test_bytes_after_a_response_do_not_keep_a_connection(quick: str, sent: bytes) -> None:
    """uvicorn forgets its own time-out when bytes come that are no request yet."""
    with connected(quick) as own:
        own.sendall(WHOLE)
        read_response(own)
        own.sendall(sent)
        read_all(own)


@pytest.mark.parametrize(
    "begin", [HEAD + b"x: ", HEAD + b"content-length: 999999\r\n\r\n", CHUNKED + b"fffff\r\n"]
)
def test_a_request_that_comes_byte_by_byte_is_closed(quick: str, begin: bytes) -> None:
    """Bytes do not extend the deadline, however often they come."""
    with connected(quick) as own:
        own.sendall(begin)
        own.settimeout(SHORT / 10)
        for _ in range(round(HANGS / SHORT * 10)):
            try:
                own.sendall(b"a")
                if not own.recv(65_536):
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
        pytest.fail("it is still open")


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"x: " + b"a" * 1_000 + b"\r\n"),
        (CHUNKED + b"2\r\n{}\r\n0\r\nx: ", b"a" * 1_000),
        (CHUNKED + b"2;x=", b"a" * 1_000),
        (HEAD, b"x: " + b"a" * 1_000 + b"\r\n"),
        (HEAD + b"x: ", b"a" * 1_000),
        (b"GET /", b"a" * 1_000),
    ],
    ids=["trailers", "trailer", "chunk extension", "headers", "header", "path"],
)
def test_bytes_outside_of_bodies_are_bounded(patient: str, begin: bytes, more: bytes) -> None:
    """Heads, trailers and chunk extensions: the connection is closed long before 64 MiB."""
    with connected(patient) as own:
        own.sendall(begin)
        for _ in range(64):
            try:
                own.sendall(more * 1_000)
            except ConnectionError:
                return
        pytest.fail("64 MiB were taken")


@pytest.mark.parametrize(
    ("sent", "status", "error"),
    [
        (HEAD + b"x: " + b"a" * 70_000, 431, "request header fields too large"),
        (b"what\r\n\r\n", 400, "bad request"),
        *(
            (HEAD + b"content-length: " + length + b"\r\n\r\n", 400, "bad request")
            for length in (b"-1", b"x", b"", b"1.0", b"+1", b"1_0", b"\xb2", b"9" * 5000)
        ),
        (HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", 400, "bad request"),
        (WHOLE + b"what\r\n\r\n", 400, "bad request"),
    ],
)
def test_bytes_that_are_no_request_are_answered_in_json(
    patient: str, sent: bytes, status: int, error: str
) -> None:
    with connected(patient) as own:
        if sent.startswith(WHOLE):
            own.sendall(WHOLE)
            read_response(own)
            sent = sent.removeprefix(WHOLE)
        own.sendall(sent)
        head, _, body = read_all(own).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in head
    assert json.loads(body)["error"] == error
    assert json.loads(body)["message"]


def test_an_error_does_not_get_into_a_response_that_is_under_way(patient: str) -> None:
    with connected(patient) as own:
        own.sendall(b"GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
        found = own.recv(65_536)
        own.sendall(b"what\r\n\r\n")
        found += read_all(own)
    assert found.count(b"HTTP/1.1") == 1


def test_many_pipelined_requests_are_closed_few_are_answered(patient: str) -> None:
    """Every queued request costs memory, and tens of thousands fit into one packet."""
    with connected(patient) as own:
        own.sendall(WHOLE * 3 + HEAD + b"connection: close\r\ncontent-length: 2\r\n\r\n{}")
        assert read_all(own).count(b"200 OK") == 4
    with connected(patient) as own:
        own.sendall(WHOLE * 400)
        assert read_all(own).count(b"200 OK") < 20


def test_a_response_that_is_not_read_ends(quick: str) -> None:
    with connected(quick) as own:
        own.sendall(b"GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert own.recv(10)
        assert stream_has_ended.wait(HANGS)


def test_a_response_that_is_read_late_is_not_cut() -> None:
    """For uvicorn it is complete when it is in a buffer: that begins no wait for another head."""
    limits = replace(QUICK, write_seconds=NEVER)
    with serving(app, limits=limits) as url, connected(url) as own:
        own.sendall(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n")
        time.sleep(4 * SHORT)  # the deadline of a head has passed
        assert len(read_response(own)) > LARGE


def test_a_large_body_and_a_slow_stream_are_left_alone(quick: str) -> None:
    body = bytes(1_000_000)
    with httpx.Client(base_url=quick, timeout=HANGS) as client:
        assert client.post("/echo", content=body).content == body
        assert client.get("/stream").content == b"...."


def test_small_chunks_of_a_large_body_are_no_trailers(patient: str) -> None:
    """Their lines are many more bytes than a head may have."""
    body = b"2\r\n{}\r\n" * 50_000 + b"0\r\n\r\n"
    with connected(patient) as own:
        own.sendall(CHUNKED + body)
        assert read_response(own).count(b"{}") == 50_000


# the number of connections


def few(connections: int, authorized: int) -> ConnectionLimits:
    return ConnectionLimits(
        connections=connections,
        authorized=authorized,
        head_seconds=NEVER,
        body_seconds=NEVER,
        write_seconds=NEVER,
    )


def test_a_newcomer_takes_the_place_of_the_oldest_of_the_largest_address() -> None:
    with serving(app, limits=few(4, 4)) as url, ExitStack() as opened:
        lonely = opened.enter_context(connected(url, OTHER))  # the oldest of all
        silent = [opened.enter_context(connected(url)) for _ in range(3)]
        assert is_open(silent[0])  # it has sent a request, without a token
        newcomer = opened.enter_context(connected(url, OTHER))
        assert is_open(newcomer)
        assert [is_open(own) for own in silent] == [False, True, True]
        assert is_open(lonely)


def test_connections_that_have_ended_do_not_count() -> None:
    with serving(app, limits=few(3, 2)) as url, connected(url) as silent:
        for _ in range(9):
            with connected(url) as own:
                assert is_open(own)
                own.shutdown(socket.SHUT_WR)
                read_all(own)
        assert is_open(silent)


@contextmanager
def service(folder: Path, limits: ConnectionLimits) -> Iterator[str]:
    store = folder / "store.db"
    add_tokens(store, write="valid")
    with serving_store(store, limits) as url:
        yield url


def get(path: str, token: str = "") -> bytes:
    credentials = f"authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{credentials}\r\n".encode()


STREAM = get("/v1/live", "valid")


def test_requests_with_a_token_are_kept_and_find_room(tmp_path: Path) -> None:
    """A stream goes on while more and more connections without a token come."""
    with service(tmp_path, few(6, 4)) as url, ExitStack() as opened:
        watching = opened.enter_context(connected(url))
        watching.sendall(STREAM)
        assert watching.recv(65_536).startswith(b"HTTP/1.1 200")
        refused = [opened.enter_context(connected(url)) for _ in range(20)]
        for own in refused[-3:]:
            own.sendall(get("/v1/studies"))
            assert b" 401 " in read_response(own)
        for own in refused[-3:]:  # a request with a token is answered where one without was
            own.sendall(get("/v1/studies", "valid"))
            assert b" 200 " in read_response(own)
        asks = opened.enter_context(connected(url))
        asks.sendall(get("/v1/studies", "valid"))
        assert b" 200 " in read_response(asks)
        watching.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                assert watching.recv(65_536), "the stream was closed"


def test_too_many_authorized_requests_get_our_503(tmp_path: Path) -> None:
    """There is room to say so, and for the checks of an orchestrator."""
    with service(tmp_path, few(4, 2)) as url, ExitStack() as opened:
        for _ in range(2):
            own = opened.enter_context(connected(url))
            own.sendall(STREAM)
            assert own.recv(65_536).startswith(b"HTTP/1.1 200")
        response = httpx.get(
            f"{url}/v1/studies", headers={"authorization": "Bearer valid"}, timeout=HANGS
        )
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert response.json()["error"] == "overloaded"
        assert httpx.get(f"{url}/healthz", timeout=HANGS).status_code == 200
