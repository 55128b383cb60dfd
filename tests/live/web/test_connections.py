"""Connections of which nothing good can come are closed; all others are left alone."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.support.live.local_server import serving
from understudy.live.web import http_protocol

pytestmark = pytest.mark.plain

SILENCE = 0.5


async def echo(request: Request) -> Response:
    return Response(await request.body())


async def stream(_: Request) -> Response:
    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(4):
            await asyncio.sleep(SILENCE)
            yield b"."

    return StreamingResponse(slowly())


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(http_protocol, "SILENCE", SILENCE)
    routes = [Route("/echo", echo, methods=["POST"]), Route("/stream", stream)]
    with serving(lambda: Starlette(routes=routes)) as found:
        yield found


def left_alone_after(url: str, data: bytes) -> float:
    """For how many seconds a connection is kept open that sends this and no more."""
    where = urlsplit(url)
    begun = time.monotonic()
    address = (where.hostname or "", where.port or 0)
    with socket.create_connection(address, timeout=60.0) as own, suppress(ConnectionError):
        own.sendall(data)
        while own.recv(65_536):
            pass
    return time.monotonic() - begun


HEAD = b"POST /echo HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize(
    "sent", [b"", HEAD[:20], HEAD, HEAD + b"content-length: 9\r\n\r\nhalf"], ids=repr
)
def test_what_is_never_finished_is_closed(url: str, sent: bytes) -> None:
    assert SILENCE <= left_alone_after(url, sent) < 20.0


@pytest.mark.parametrize("header", [b"x: " + b"a" * 300_000, b"x: a\r\n" * 50_000])
def test_a_head_without_end_is_closed_at_once(
    url: str, header: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "SILENCE", 3_600.0)
    assert left_alone_after(url, HEAD + header) < 20.0


def test_a_large_body_a_pause_and_a_stream_are_left_alone(url: str) -> None:
    body = bytes(1_000_000)
    with httpx.Client(base_url=url, timeout=60.0) as client:
        assert client.post("/echo", content=body).content == body
        assert client.get("/stream").content == b"...."
        time.sleep(2.5 * SILENCE)  # between two requests it is uvicorn who counts
        assert client.post("/echo", content=body).content == body
