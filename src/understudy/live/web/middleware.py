"""The middleware of the service: authorization, limits of bodies, and the answers to errors.

Every request pays for it, so it is one plain ASGI application around another, without a layer for
each rule.
"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as HttpScope

from understudy.errors import InvalidArgument, StoreUnavailable
from understudy.formatting import count, plain
from understudy.live.service import HttpError
from understudy.live.store.records import Scope
from understudy.live.web.access_rules import (
    READING,
    Limits,
    is_loopback,
    is_same_origin,
    needed_scope,
)
from understudy.live.web.answers import JSON, refuse, refuse_argument, refuse_body
from understudy.live.web.connections import CONNECTION
from understudy.live.web.request_log import LoggedRequest, RequestLog, address_of
from understudy.live.web.tokens import BadTokens, Clock, TokenRegistry

LIMITS = Limits()
LONGEST_LENGTH = 18  # digits of a number of bytes
LONGEST_TYPE = 60
JSON_TYPE = JSON.encode()

Headers = dict[bytes, bytes]


class _TooLarge(Exception):
    """A body without a declared length has passed the limit."""


class AuthMiddleware:
    """ASGI middleware around the application that has the operations.

    With tokens in the store, a request needs one that allows it. Without any, the service answers
    its own machine if it listens there alone (`loopback_only`), and refuses all requests otherwise.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: TokenRegistry,
        *,
        loopback_only: bool,
        registry: CollectorRegistry,
        limits: Limits = LIMITS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._loopback_only = loopback_only
        self._limits = limits
        self._bad_tokens = BadTokens(clock)
        self._log = RequestLog(registry, clock)

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._without_request(scope, receive, send)
            return
        logged = LoggedRequest(self._log, scope, send)
        try:
            headers = dict(scope["headers"])
            refusal = self._refusal(scope, headers)
            if refusal is None:
                await self._app(scope, self._bounded(scope, headers, receive), logged.deliver)
                return
        except ClientDisconnect:
            logged.lost()
            return
        except Exception as error:  # noqa: BLE001 - whatever escapes an operation is answered here
            refusal = logged.failed(error, self._explained(scope, error))
        await refusal(scope, receive, logged.deliver)

    async def _without_request(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    def _refusal(self, scope: HttpScope, headers: Headers) -> Response | None:
        """Why this request does not pass; None if it does."""
        needed = needed_scope(scope["method"], scope["path"])
        try:
            open_here = self._loopback_only and not self._tokens.exist()
        except StoreUnavailable:
            if needed is None:  # health checks work without the store
                return None
            raise
        if open_here:
            refusal = _foreign(scope, headers)
        else:
            refusal = None if needed is None else self._unauthorized(needed, scope, headers)
        if refusal is None and needed is not None and CONNECTION in scope:
            scope[CONNECTION].authorize()
        if refusal is None and scope["method"] not in READING:
            refusal = self._unfit_body(scope["path"], headers)
        return refusal

    def _unauthorized(self, needed: Scope, scope: HttpScope, headers: Headers) -> Response | None:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if not token or scheme.lower() != b"bearer":
            return _challenge(401, "no token", "send Authorization: Bearer TOKEN")
        granted = self._tokens.scope_of(token.strip().decode("latin-1"))
        if granted is None:
            return self._bad_token(scope)
        if needed == "write" and granted == "read":
            return _challenge(
                403,
                "read only",
                "this token may only read; use one with the scope write",
                'error="insufficient_scope", scope="write"',
            )
        return None

    def _bad_token(self, scope: HttpScope) -> Response:
        seconds = self._bad_tokens.wait(address_of(scope))
        if seconds:
            message = f"too many wrong tokens came from your address; wait {seconds} seconds"
            return refuse(
                429, "too many wrong tokens", message, headers={"retry-after": str(seconds)}
            )
        message = "there is no such token, or no longer; ask the operator of the service for one"
        return _challenge(401, "wrong token", message, 'error="invalid_token"')

    def _unfit_body(self, path: str, headers: Headers) -> Response | None:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > LONGEST_LENGTH:
            return refuse(400, "malformed", "Content-Length is no number of bytes; send one")
        size = int(length)
        if size > self._limits.of(path):
            return self._too_large(path)
        if size == 0 and b"transfer-encoding" not in headers:
            return None
        if b"upgrade" in headers:  # then the body is not read as one
            return refuse(400, "malformed", "send HTTP/1.1, and no Upgrade with a body")
        given = headers.get(b"content-type", b"")
        if given != JSON_TYPE and given.partition(b";")[0].strip().lower() != JSON_TYPE:
            shown = plain(given.decode("latin-1"), LONGEST_TYPE) or "nothing"
            message = f"the content type is {shown}; send content-type: {JSON}"
            return refuse(415, "not JSON", message)
        return None

    def _too_large(self, path: str) -> Response:
        most = count(self._limits.of(path))
        return refuse(413, "too large", f"the body is too large; send at most {most} bytes")

    def _bounded(self, scope: HttpScope, headers: Headers, receive: Receive) -> Receive:
        """The body as it comes, up to the limit. A declared length was looked at already."""
        declared = b"content-length" in headers and b"transfer-encoding" not in headers
        if declared or scope["method"] in READING:
            return receive
        left = self._limits.of(scope["path"])

        async def receive_bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise _TooLarge
            return message

        return receive_bounded

    def _explained(self, scope: HttpScope, error: Exception) -> Response | None:
        """Return the response for an expected error, None for an unexpected one."""
        if isinstance(error, _TooLarge):
            return self._too_large(scope["path"])
        if isinstance(error, HttpError):
            return refuse(error.status, error.error, str(error))
        if isinstance(error, ValidationError):
            return refuse_body(error)
        if isinstance(error, InvalidArgument):
            return refuse_argument(error)
        if isinstance(error, StoreUnavailable):
            return refuse(503, "store unavailable", str(error))
        return None


def _foreign(scope: HttpScope, headers: Headers) -> Response | None:
    """Why a request to an open service is not from this machine and its own pages.

    A page of another site can send requests to this machine, and can make its own name lead here.
    """
    host = headers.get(b"host", b"")
    if not is_loopback(host):
        message = "without tokens only this machine is served; ask for http://localhost"
        return refuse(403, "foreign host", message)
    origin = headers.get(b"origin")
    if origin is not None and not is_same_origin(origin, scope["scheme"], host):
        message = "pages of other sites may not ask an open service; create a token"
        return refuse(403, "foreign origin", message)
    return None


def _challenge(status: int, error: str, message: str, details: str = "") -> Response:
    """No, and which kind of credentials is wanted."""
    scheme = f'Bearer realm="understudy"{details and ", " + details}'
    return refuse(status, error, message, headers={"www-authenticate": scheme})
