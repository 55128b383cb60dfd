"""The middleware of the service: limits of bodies, headers of responses, counters, and the log.

Every request pays for it, so it is one plain ASGI application around another, without a layer for
each rule.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import structlog
from prometheus_client import CollectorRegistry
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as HttpScope

from understudy.formatting import plain
from understudy.live.service import HttpError
from understudy.live.web.auth import READING, Authorization, Headers, address_of
from understudy.live.web.metrics import OTHER, LogRateLimit, RequestMetrics
from understudy.live.web.refusals import LONGEST_INPUT, REASON, refusal_of, refuse, too_large
from understudy.live.web.tokens import Clock

MEBIBYTE = 2**20
# Bytes of a response that uvicorn gets at a time. It buffers one piece for each connection, and the
# deadline for reading sees progress after each piece.
PIECE = 2**16
API, SNAPSHOTS = "/v1/", "/v1/snapshots"
JSON = b"application/json"
WARNED = frozenset({401, 403, 429})
LONGEST_FACT = 200  # characters of a request in the log
GONE = 499  # for the counters: the client disconnected before there was a response

# The page and its parts come from here and nowhere else, and no other site may frame or read them.
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)
API_HEADERS = (*HEADERS, (b"cache-control", b"no-store"))

log = structlog.get_logger("understudy.live")


@dataclass(frozen=True)
class Limits:
    """The largest bodies, in bytes.

    A batch of 1,000 events has some 100 kB. A policy.json of 10,000 actions has 16.6 MB, and the
    largest default mixture 33 MB (`logs.features.LARGEST_MIXTURE`), unless it has one large learner
    alone: 32 MiB take both, and some 3 s to read.
    """

    body: int = MEBIBYTE
    snapshot: int = 32 * MEBIBYTE

    def of(self, path: str) -> int:
        """Return the largest body of a request to this path."""
        return self.snapshot if path == SNAPSHOTS else self.body


LIMITS = Limits()


class RequestMiddleware:
    """ASGI middleware around the application that has the operations (names by endpoint)."""

    def __init__(
        self,
        app: ASGIApp,
        authorization: Authorization,
        *,
        registry: CollectorRegistry,
        operations: Mapping[Any, str],
        limits: Limits = LIMITS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._app = app
        self._authorization = authorization
        self._operations = operations
        self._limits = limits
        self._bounded = {
            most: RequestBodyLimitMiddleware(app, most) for most in (limits.body, limits.snapshot)
        }
        self._clock = clock
        self._metrics = RequestMetrics(registry)
        self._log_limit = LogRateLimit()
        # Request ids: a random prefix for the process, then a counter.
        first = secrets.token_hex(4)
        self._names = (f"{first}-{number:x}" for number in itertools.count(1))

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the life of the service; the framework closes websockets
            await self._app(scope, receive, send)
            return
        name = next(self._names)
        begun = self._clock()
        started = False

        async def deliver(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                own = API_HEADERS if scope["path"].startswith(API) else HEADERS
                message["headers"] = [*message["headers"], *own, (b"x-request-id", name.encode())]
                self._count(scope, message["status"], begun, name)
            for piece in _pieces(message):
                await send(piece)

        try:
            await self._checked(scope)(scope, receive, deliver)
        except HttpError as error:
            await refusal_of(scope, error)(scope, receive, deliver)
        except ClientDisconnect:
            if not started:
                self._count(scope, GONE, begun, name)
        except Exception as error:
            log.exception("request broken", exc_info=error, **_facts(scope, name))
            if started:  # a half of an answer must not pass for the whole: the connection breaks
                raise
            message = f"an error of the service; its log has it as request {name}"
            await refuse(500, "internal", message)(scope, receive, deliver)

    def _checked(self, scope: HttpScope) -> ASGIApp:
        """The application, for a request that may pass; or raise `HttpError`."""
        headers = dict(scope["headers"])
        self._authorization.check(scope, headers)
        if scope["method"] in READING:
            return self._app
        most = self._limits.of(scope["path"])
        is_declared = b"content-length" in headers and b"transfer-encoding" not in headers
        _check_body(headers, most)
        return self._app if is_declared else self._bounded[most]

    def _count(self, scope: HttpScope, status: int, begun: float, name: str) -> None:
        """Count a request, and log it if it was refused; the next line counts those left out."""
        now = self._clock()
        operation = self._operations.get(scope.get("endpoint"), OTHER)
        self._metrics.count(scope["method"], operation, status, now - begun)
        is_logged = status in WARNED or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if is_logged and self._log_limit.allows(now):
            unlogged, self._log_limit.unlogged = self._log_limit.unlogged, 0
            more = {"unlogged": unlogged} if unlogged else {}
            log.warning("request refused", status=status, **more, **_facts(scope, name))


def _check_body(headers: Headers, most: int) -> None:
    """Refuse a body by its headers; the server's parser has checked that a length is a number."""
    length = int(headers.get(b"content-length", b"0"))
    if length > most:
        raise HttpError(413, "too large", too_large(most))
    if length == 0 and b"transfer-encoding" not in headers:
        return
    if b"upgrade" in headers:  # then the body is not read as one
        raise HttpError(400, "malformed", "send HTTP/1.1, and no Upgrade with a body")
    given = headers.get(b"content-type", b"")
    if given.partition(b";")[0].strip().lower() != JSON:
        shown = plain(given.decode("latin-1"), LONGEST_INPUT) or "nothing"
        message = f"the content type is {shown}; send content-type: {JSON.decode()}"
        raise HttpError(415, "not JSON", message)


def _facts(scope: HttpScope, name: str) -> dict[str, str]:
    """A request in the log: foreign text cannot pretend to be another line, nor fill a disk."""
    facts = {
        "method": scope["method"],
        "path": scope["path"],
        "address": address_of(scope),
        "request": name,
        "reason": scope.get(REASON, ""),
    }
    return {key: plain(text, LONGEST_FACT) for key, text in facts.items() if text}


def _pieces(message: Message) -> Iterator[Message]:
    """Yield a part of a response as parts that are not too large, each when the last was sent."""
    body = message.get("body", b"")
    last = max(0, len(body) - 1) // PIECE * PIECE
    for start in range(0, last, PIECE):
        yield {**message, "body": body[start : start + PIECE], "more_body": True}
    yield {**message, "body": body[last:]} if last else message
