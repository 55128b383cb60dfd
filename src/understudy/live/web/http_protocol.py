"""uvicorn's HTTP protocol with responses in one write, and limits for heads and silence."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 64 * 1024  # bytes
SILENCE = 30.0  # seconds for which the rest of a request may fail to come


class BufferedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP, with answers in one piece: it writes the head and then the body, in two.

    It bounds neither the head of a request nor how long one may take to come: so a connection is
    closed if a head is too large, or a request that has not come to its end is not continued.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(_Joining(transport, self.loop))  # type: ignore[arg-type] # it is one, but for `write`
        self._in_head = self._incomplete = True
        self._head = 0
        self._heard = self.loop.time()
        self._watch = self.loop.call_later(SILENCE, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        super().data_received(data)
        if self._in_head:
            self._head += len(data)
            if self._head > LARGEST_HEAD:
                self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head = self._incomplete = True
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._incomplete = False
        super().on_message_complete()

    def _look(self) -> None:
        if self._incomplete and self.loop.time() >= self._heard + SILENCE:
            self.transport.close()
        else:
            self._watch = self.loop.call_later(SILENCE, self._look)


class _Joining:
    """A transport that writes what it was given in one turn of the loop at its end."""

    __slots__ = ("_loop", "_parts", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self._transport.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
