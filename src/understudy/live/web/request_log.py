"""The request log: every request gets an id, is counted and timed; refusals are logged."""

from __future__ import annotations

import itertools
import secrets
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from starlette.responses import Response
from starlette.types import Message, Send
from starlette.types import Scope as HttpScope

from understudy.live.web.access_rules import API, HEADERS, NO_STORE
from understudy.live.web.answers import refuse
from understudy.live.web.metrics import OTHER, RequestMetrics, Warnings
from understudy.live.web.tokens import Clock

OPERATION = "understudy.operation"  # where a route says which operation it leads to
API_HEADERS = (*HEADERS, NO_STORE)
WARNED = frozenset({401, 403, 429})
GONE = 499  # for the counters: the client disconnected before there was a response


class RequestLog:
    """The state that all requests share: metrics, warnings, and the next id."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self.metrics = RequestMetrics(registry)
        self.warnings = Warnings(clock)
        self.clock = clock
        # Unlike those of another start, and made without asking for randomness every time.
        first = secrets.token_hex(4)
        self.names = (f"{first}-{number:x}" for number in itertools.count(1))


class LoggedRequest:
    """One request; `deliver` sends its response with the headers that all responses have."""

    __slots__ = ("_begun", "_name", "_reason", "_scope", "_send", "_shared", "_started")

    def __init__(self, shared: RequestLog, scope: HttpScope, send: Send) -> None:
        self._shared = shared
        self._scope = scope
        self._send = send
        self._name = next(shared.names)
        self._reason = ""
        self._started = False
        self._begun = shared.clock()

    async def deliver(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self._started = True
            headers = API_HEADERS if self._scope["path"].startswith(API) else HEADERS
            name = (b"x-request-id", self._name.encode())
            message["headers"] = [*message.get("headers", ()), *headers, name]
            self._count(message["status"])
        await self._send(message)

    def lost(self) -> None:
        """Count a request whose client has disconnected."""
        if not self._started:
            self._count(GONE)

    def failed(self, error: Exception, explained: Response | None) -> Response:
        """The answer to an error: what explains it, if it was foreseen.

        An answer that has begun cannot be taken back: then the connection must break, so that
        its half does not pass for the whole.
        """
        if explained is not None and not self._started:
            self._reason = str(error)
            return explained
        self._shared.warnings.broken(error, self._facts())
        if self._started:
            raise error
        message = f"an error of the service; its log has it as request {self._name}"
        return refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", message)

    def _count(self, status: int) -> None:
        scope, shared = self._scope, self._shared
        operation = scope.get(OPERATION, OTHER)
        shared.metrics.count(scope["method"], operation, status, shared.clock() - self._begun)
        if status in WARNED or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            shared.warnings.refused(status, self._facts())

    def _facts(self) -> dict[str, str]:
        return {
            "method": self._scope["method"],
            "path": self._scope["path"],
            "address": address_of(self._scope),
            "request": self._name,
            "reason": self._reason,
        }


def address_of(scope: HttpScope) -> str:
    """Where a request comes from.

    >>> address_of({"client": ("127.0.0.1", 50312)}), address_of({"client": None})
    ('127.0.0.1', 'unknown')
    """
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
