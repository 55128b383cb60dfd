"""One request to an ASGI application, without a server, a client library or their opinions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

from understudy.live.service import HttpError, Service

__all__ = ["Answer", "HttpError", "Service", "ask"]

ADDRESS = "192.0.2.7"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: ASGIApp,
    method: str = "GET",
    path: str = "/v1/studies",
    headers: Mapping[str, str] | None = None,
    chunks: Sequence[bytes] = (b"",),
    *,
    client: tuple[str, int] | None = (ADDRESS, 1),
    extra: Mapping[str, object] | None = None,
) -> Answer:
    """What it answers to a body that comes in these pieces, after which the caller leaves.

    No piece at all: an application that waits for one fails. `extra` are keys that a server adds.
    """
    given = {"host": "localhost:8000"} | dict(headers or {})
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path.partition("?")[0],
        "query_string": path.partition("?")[2].encode(),
        "scheme": "http",
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in given.items()],
        "client": client,
        "state": {},
        **(extra or {}),
    }
    incoming: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": i < len(chunks)}
        for i, chunk in enumerate(chunks, start=1)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        assert chunks, "the body was waited for"
        return incoming.pop(0) if incoming else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def whole() -> None:
        await app(scope, receive, send)

    asyncio.run(whole())
    start, *parts = sent
    assert start["type"] == "http.response.start"
    assert [bool(part.get("more_body")) for part in parts][-1:] == [False]
    return Answer(
        start["status"],
        [(name.decode(), value.decode("latin-1")) for name, value in start["headers"]],
        b"".join(part.get("body", b"") for part in parts),
    )
