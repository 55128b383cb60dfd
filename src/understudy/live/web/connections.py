"""The connections of the service: their number, and deadlines for all that clients send and read.

uvicorn bounds neither. docs/decisions/0001-http-server.md compares it with servers that do.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from ipaddress import IPv6Address, ip_network
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from understudy.live.service import HttpError

AUTHORIZE = "understudy.authorize"  # where a scope holds the function that keeps its connection
SMALL = 4096  # bytes: a larger part costs more to copy than another write
SITE = 64  # bits: a provider gives every IPv6 customer so many addresses, at least


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of all connections together, and of each.

    The seconds count from the beginning of a wait, whatever bytes come meanwhile.
    """

    connections: int = 1_000  # a connection costs about 20 KiB, and an open file
    authorized: int = 900  # requests under way: fewer, so that there is room to refuse others
    pipelined: int = 16  # requests that wait for the one before; most clients send none
    head_bytes: int = 64 * 1024  # eight times what other servers take: tokens are short
    head_seconds: float = 15.0  # a client that pools connections keeps them for 5 seconds
    body_seconds: float = 60.0  # 1 MiB comes within it at 140 kbit/s
    write_seconds: float = 60.0  # for the next 48 KiB of a response to be read
    check_seconds: float = 1.0  # between two looks at the deadlines: they need not be exact


class Connections:
    """All connections of a server. Its `protocol` is what uvicorn calls `http`.

    At the limit, a new connection closes an old one. The address with the most connections that
    have no authorized request loses the one that has waited longest.
    """

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self._authorized: set[ConnectionProtocol] = set()
        self._others: dict[ConnectionProtocol, None] = {}  # the oldest first

    def protocol(self, *arguments: Any, **options: Any) -> ConnectionProtocol:
        """Make the protocol of one connection."""
        return ConnectionProtocol(self, *arguments, **options)

    def add(self, connection: ConnectionProtocol) -> None:
        if len(self) >= self.limits.connections:
            shares = Counter(other.address for other in self._others)
            address, _ = shares.most_common(1)[0]
            oldest = next(other for other in self._others if other.address == address)
            oldest.logger.warning("too many connections: %s loses its oldest", oldest.address)
            oldest.transport.abort()
            self.remove(oldest)
        self._others[connection] = None

    def remove(self, connection: ConnectionProtocol) -> None:
        """Forget a connection; it may have been removed already."""
        self._authorized.discard(connection)
        self._others.pop(connection, None)

    def authorize(self, connection: ConnectionProtocol) -> None:
        """Keep a connection until its response is complete, or raise `HttpError` (503)."""
        if len(self._authorized) >= self.limits.authorized:
            message = "too many requests are under way; try again in a second"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", message)
        if connection in self._others:
            del self._others[connection]
            self._authorized.add(connection)

    def release(self, connection: ConnectionProtocol) -> None:
        """End the authorization of a connection, if it has one."""
        if connection in self._authorized:
            self._authorized.remove(connection)
            self._others[connection] = None

    def __len__(self) -> int:
        return len(self._authorized) + len(self._others)


class ConnectionProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits.

    A connection is closed without an answer when a deadline has passed: its client is too slow, or
    silent. A request that is authorized calls the function `AUTHORIZE` of its ASGI scope.
    """

    def __init__(self, connections: Connections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.address = ""
        self._all = connections
        self._authorize = partial(connections.authorize, self)
        self._limits = connections.limits
        self._read_by = self._write_by = math.inf
        self._is_draining = False
        self._timer: asyncio.TimerHandle
        self._outside_body = 0  # bytes received since a body, or since the end of a request

    def _check(self) -> None:
        """Close the connection if a deadline has passed; look again after a while."""
        now = self.loop.time()
        self._timer = self.loop.call_later(self._limits.check_seconds, self._check)
        if self.transport.is_closing():  # it waits for its client to read the rest
            self._write_by = min(self._write_by, now + self._limits.write_seconds)
        elif now >= self._read_by and not self._is_draining:
            # The last response is complete for uvicorn, but its client may still read the rest.
            self._is_draining = self.transport.get_write_buffer_size() > 0
            if self._is_draining:
                self._read_by = now + self._limits.write_seconds
        if now >= min(self._read_by, self._write_by):
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(_Joining(transport, self.loop))  # type: ignore[arg-type] # it is one, but for `write`
        self._read_by = self.loop.time() + self._limits.head_seconds
        self.address = share_of(self.client[0]) if self.client else ""
        self._all.add(self)
        self._timer = self.loop.call_later(self._limits.check_seconds, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._all.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._outside_body += len(data)
        super().data_received(data)
        if self._outside_body > self._limits.head_bytes and not self.transport.is_closing():
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._refuse(status, f"send at most {self._limits.head_bytes:,} bytes of headers")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[AUTHORIZE] = self._authorize  # type: ignore[literal-required] # extensions add keys

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self._limits.pipelined:
            raise OverflowError  # the parser stops at once, and `send_400_response` is called
        self._read_by = self.loop.time() + self._limits.body_seconds
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._outside_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._outside_body = 0
        super().on_message_complete()
        if not self.cycle.response_complete:
            self._read_by = math.inf

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._all.release(self)
        self._is_draining = False
        if self.cycle.response_complete:  # no other request waits
            self._read_by = self.loop.time() + self._limits.head_seconds

    def pause_writing(self) -> None:
        self._write_by = self.loop.time() + self._limits.write_seconds
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_by = math.inf
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
        self._refuse(HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1; send a valid request")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer bytes that are no request, unless another response is under way; close."""
        if self.cycle is None or self.cycle.response_complete:
            body = json.dumps({"error": status.phrase.lower(), "message": message})
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write((head + body).encode())
        self.transport.close()


def share_of(address: str) -> str:
    """The addresses that count as one: those of a customer with IPv6.

    >>> share_of("192.0.2.7"), share_of("2001:db8::7"), share_of("2001:db8::8")
    ('192.0.2.7', '2001:db8::/64', '2001:db8::/64')
    >>> share_of("::ffff:192.0.2.7")  # a client with IPv4 at a socket with IPv6
    '192.0.2.7'
    """
    if ":" not in address:
        return address
    found = IPv6Address(address.partition("%")[0])
    return str(found.ipv4_mapped or ip_network((found, SITE), strict=False))


class _Joining:
    """A transport that writes all parts of one turn of the loop together, at its end.

    uvicorn writes the head of a response and its body in two parts: one write is 1.2 times as fast.
    """

    __slots__ = ("_loop", "_parts", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        if len(data) > SMALL:  # the transport must know, to say when its client does not read
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
