"""The middleware of the service: who may do what, limits of bodies, headers, and the request log.

Every request pays for it, so it is one plain ASGI application around another, without a layer for
each rule.
"""

from __future__ import annotations

import itertools
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from understudy.live.store.records import Scope
from understudy.live.web.connections import CONNECTION, share_of
from understudy.live.web.metrics import OTHER, LogRateLimit, RequestMetrics
from understudy.live.web.refusals import LONGEST_INPUT, REASON, refuse, too_large
from understudy.live.web.streams import ALLOWED
from understudy.live.web.tokens import BadTokens, Clock, TokenRegistry, digest_of

MEBIBYTE = 2**20
# Bytes of a response that the server gets at a time. It buffers as many: a client that does not
# read takes no more memory, and one that reads slowly is seen to read.
PIECE = 2**16
LONGEST_LENGTH = 18  # digits of a number of bytes
READING = frozenset({"GET", "HEAD"})
PUBLIC = frozenset({"/", "/docs", "/openapi.json", "/healthz", "/readyz"})
ASSETS, PAGES, API, SNAPSHOTS = "/assets/", "/studies/", "/v1/", "/v1/snapshots"
DRAW = re.compile(r"/v1/studies/[^/]+/draw")
LOOPBACK = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
FORWARDED = re.compile(rb"^(forwarded|x-forwarded-.*|x-real-ip|via)$", re.MULTILINE)
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

Headers = dict[bytes, bytes]

log = structlog.get_logger("understudy.live")


@dataclass(frozen=True)
class Limits:
    """The largest bodies, in bytes.

    A batch of 1,000 events has some 100 kB. A policy.json of 10,000 actions has 16.6 MB, and one of
    100 actions and 64 contexts 22.9 MB: 24 MiB take both, and some 2 s to read.
    """

    body: int = MEBIBYTE
    snapshot: int = 24 * MEBIBYTE

    def of(self, path: str) -> int:
        """Return the largest body of a request to this path."""
        return self.snapshot if path == SNAPSHOTS else self.body


LIMITS = Limits()


def needed_scope(method: str, path: str) -> Scope | None:
    """Return the scope that a token must have for a request; None if it needs no token.

    A draw changes nothing, though it is a POST: a drawn action must not come from a cache.

    >>> needed_scope("GET", "/v1/studies"), needed_scope("POST", "/v1/studies")
    ('read', 'write')
    >>> needed_scope("POST", "/v1/studies/a/draw"), needed_scope("GET", "/docs")
    ('read', None)
    """
    if method in READING:
        public = path in PUBLIC or path.startswith((ASSETS, PAGES))
        return None if public else "read"
    drawing = method == "POST" and path.endswith("/draw") and DRAW.fullmatch(path) is not None
    return "read" if drawing else "write"


class RequestRefused(HttpError):
    """A request that may not pass, with headers of its response."""

    def __init__(self, status: int, error: str, message: str, **headers: str) -> None:
        super().__init__(status, error, message)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


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
        operations: Mapping[Any, str],
        limits: Limits = LIMITS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._app = app
        self._limits = limits
        self._bounded = {
            most: RequestBodyLimitMiddleware(app, most) for most in (limits.body, limits.snapshot)
        }
        self._tokens = tokens
        self._loopback_only = loopback_only
        self._operations = operations
        self._clock = clock
        self._bad_tokens = BadTokens(clock)
        self._metrics = RequestMetrics(registry)
        self._log_limit = LogRateLimit()
        # Unlike those of another start, and made without asking for randomness every time.
        first = secrets.token_hex(4)
        self._names = (f"{first}-{number:x}" for number in itertools.count(1))

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._without_request(scope, receive, send)
            return
        name = next(self._names)
        begun = self._clock()
        started = False

        async def deliver(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._complete(message, scope, name)
                self._count(scope, message["status"], begun, name)
            for piece in _pieces(message):
                await send(piece)

        try:
            await self._checked(scope)(scope, receive, deliver)
        except HttpError as error:
            headers = error.headers if isinstance(error, RequestRefused) else None
            refusal = refuse(error.status, error.error, str(error), headers=headers)
            await refusal(scope, receive, deliver)
        except ClientDisconnect:
            if not started:
                self._count(scope, GONE, begun, name)
        except Exception as error:
            log.exception("request broken", exc_info=error, **_facts(scope, name))
            if started:  # a half of an answer must not pass for the whole: the connection breaks
                raise
            message = f"an error of the service; its log has it as request {name}"
            await refuse(500, "internal", message)(scope, receive, deliver)

    async def _without_request(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    def _complete(self, message: Message, scope: HttpScope, name: str) -> None:
        """Add the headers that all responses have."""
        own = API_HEADERS if scope["path"].startswith(API) else HEADERS
        given = message.get("headers", ())
        message["headers"] = [*given, *own, (b"x-request-id", name.encode())]

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

    def _checked(self, scope: HttpScope) -> ASGIApp:
        """The application, for a request that may pass; or raise `RequestRefused`."""
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        if len(headers) < len(scope["headers"]):
            _check_one_host(scope["headers"])
        needed = needed_scope(method, path)
        if self._loopback_only and not self._tokens.exist():
            _check_own(scope["scheme"].encode(), headers)
            if needed is not None:
                _pass(scope, lambda: not self._tokens.exist())
        elif needed is not None:
            self._check_token(needed, scope, headers)
        if method in READING:
            return self._app
        most = self._limits.of(path)
        _check_body(headers, most)
        is_declared = b"content-length" in headers and b"transfer-encoding" not in headers
        return self._app if is_declared else self._bounded[most]

    def _check_token(self, needed: Scope, scope: HttpScope, headers: Headers) -> None:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if not token or scheme.lower() != b"bearer":
            raise _challenge(401, "no token", "send Authorization: Bearer TOKEN")
        digest = digest_of(token.strip().decode("latin-1"))
        # Others may share the address of one who guesses: tokens that were valid are not limited.
        known = self._tokens.was_accepted(digest)
        seconds = 0 if known else self._bad_tokens.wait(share_of(address_of(scope)))
        if seconds:
            message = f"too many wrong tokens came from your address; wait {seconds} seconds"
            raise RequestRefused(429, "too many wrong tokens", message, retry_after=str(seconds))
        granted = self._tokens.scope_of(digest)
        if granted is None:
            self._bad_tokens.note(share_of(address_of(scope)))
            message = "there is no such token, or no longer; ask the operator of the service"
            raise _challenge(401, "wrong token", message, ', error="invalid_token"')
        if needed == "write" and granted == "read":
            message = "this token may only read; use one with the scope write"
            details = ', error="insufficient_scope", scope="write"'
            raise _challenge(403, "read only", message, details)
        _pass(scope, lambda: self._tokens.scope_of(digest) is not None)


def _challenge(status: int, error: str, message: str, details: str = "") -> RequestRefused:
    """The refusal of credentials, with the kind that is needed."""
    return RequestRefused(
        status, error, message, www_authenticate=f'Bearer realm="understudy"{details}'
    )


def _pass(scope: HttpScope, allowed: Callable[[], bool]) -> None:
    """Note that a request is authorized, unless too many are; a stream asks again (`allowed`)."""
    scope[ALLOWED] = allowed
    if CONNECTION in scope:
        scope[CONNECTION].authorize()


def _check_one_host(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a request with two hosts, as RFC 9112 asks: a proxy may have checked the other one."""
    if sum(name == b"host" for name, _ in headers) > 1:
        raise RequestRefused(400, "malformed", "Host is there twice; send it once")


def _check_own(scheme: bytes, headers: Headers) -> None:
    """Refuse a request to an open service that is not of this machine and its pages.

    A page of another site can send requests to this machine, and can make its own name lead here.
    A proxy on this machine passes on requests of others.
    """
    host = headers.get(b"host", b"")
    if LOOPBACK.fullmatch(host) is None:
        message = "without tokens only this machine is served; ask for http://localhost"
        raise RequestRefused(403, "foreign host", message)
    origin = headers.get(b"origin")
    if origin is not None and origin.lower() != scheme + b"://" + host.lower():
        message = "pages of other sites may not ask an open service; create a token"
        raise RequestRefused(403, "foreign origin", message)
    if FORWARDED.search(b"\n".join(headers)):  # all names at once: 1 µs faster
        message = (
            "a proxy forwarded this request, and the service has no tokens, so anyone could use "
            "it; create a token: understudy token add NAME --scope write"
        )
        raise RequestRefused(403, "forwarded", message)


def _check_body(headers: Headers, most: int) -> None:
    """Refuse a body by its headers."""
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > LONGEST_LENGTH:
        raise RequestRefused(400, "malformed", "Content-Length is no number of bytes; send one")
    if int(length) > most:
        raise RequestRefused(413, "too large", too_large(most))
    if int(length) == 0 and b"transfer-encoding" not in headers:
        return
    if b"upgrade" in headers:  # then the body is not read as one
        raise RequestRefused(400, "malformed", "send HTTP/1.1, and no Upgrade with a body")
    given = headers.get(b"content-type", b"")
    if given != JSON and given.partition(b";")[0].strip().lower() != JSON:
        shown = plain(given.decode("latin-1"), LONGEST_INPUT) or "nothing"
        message = f"the content type is {shown}; send content-type: {JSON.decode()}"
        raise RequestRefused(415, "not JSON", message)


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


def _pieces(message: Message) -> Sequence[Message]:
    """Return a part of a response as parts that are not too large."""
    body = message.get("body", b"")
    if len(body) <= PIECE:
        return (message,)
    cuts = range(0, len(body), PIECE)
    pieces = [{**message, "body": body[cut : cut + PIECE], "more_body": True} for cut in cuts]
    pieces[-1]["more_body"] = message.get("more_body", False)
    return pieces


def address_of(scope: HttpScope) -> str:
    """Return the address that a request comes from.

    >>> address_of({"client": ("127.0.0.1", 50312)}), address_of({"client": None})
    ('127.0.0.1', 'unknown')
    """
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
