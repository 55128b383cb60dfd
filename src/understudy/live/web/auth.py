"""Authorization: which requests may pass, by their token, or by where they come from."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from starlette.types import Scope as HttpScope

from understudy.live.service import HttpError
from understudy.live.store.records import Scope
from understudy.live.web.connections import AUTHORIZE, share_of
from understudy.live.web.streams import ALLOWED
from understudy.live.web.tokens import BadTokens, Clock, TokenRegistry, digest_of

READING = frozenset({"GET", "HEAD"})
PUBLIC = frozenset({"/", "/docs", "/openapi.json", "/healthz", "/readyz"})
PUBLIC_FOLDERS = ("/assets/", "/studies/")  # the files of the page, and its frame of each study
DRAW = re.compile(r"/v1/studies/[^/]+/draw")
LOOPBACK = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
FORWARDED = re.compile(rb"^(forwarded|x-forwarded-.*|x-real-ip|via)$", re.MULTILINE)

Headers = Mapping[bytes, bytes]


def needed_scope(method: str, path: str) -> Scope | None:
    """Return the scope that a token must have for a request; None if it needs no token.

    A draw changes nothing, though it is a POST: a drawn action must not come from a cache.

    >>> needed_scope("GET", "/v1/studies"), needed_scope("POST", "/v1/studies")
    ('read', 'write')
    >>> needed_scope("POST", "/v1/studies/a/draw"), needed_scope("GET", "/docs")
    ('read', None)
    """
    if method in READING:
        return None if path in PUBLIC or path.startswith(PUBLIC_FOLDERS) else "read"
    return "read" if method == "POST" and DRAW.fullmatch(path) else "write"


class Authorization:
    """The rules of a service: its tokens, and whether it listens on its own machine alone.

    With tokens in the store, a request needs one that allows it. Without any, the service answers
    its own machine if it listens there alone (`loopback_only`), and refuses all requests otherwise.
    """

    def __init__(
        self, tokens: TokenRegistry, *, loopback_only: bool, clock: Clock = time.monotonic
    ) -> None:
        self._tokens = tokens
        self._loopback_only = loopback_only
        self._bad_tokens = BadTokens(clock)

    def check(self, scope: HttpScope, headers: Headers) -> None:
        """Note in its scope that a request is authorized, or raise `HttpError`."""
        hosts = sum(name == b"host" for name, _ in scope["headers"])
        if hosts > 1:  # as RFC 9112 asks: a proxy may have checked the other one
            raise HttpError(400, "malformed", "Host is there twice; send it once")
        needed = needed_scope(scope["method"], scope["path"])
        if self._loopback_only and not self._tokens.exist():
            _check_own(scope["scheme"].encode(), headers)
            if needed is not None:
                _pass(scope, lambda: not self._tokens.exist())
        elif needed is not None:
            self._check_token(needed, scope, headers)

    def _check_token(self, needed: Scope, scope: HttpScope, headers: Headers) -> None:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if not token or scheme.lower() != b"bearer":
            raise _challenge(401, "no token", "send Authorization: Bearer TOKEN")
        digest = digest_of(token.strip().decode("latin-1"))
        address = address_of(scope)
        # Others may share the address of one who guesses: tokens that were valid are not limited.
        known = self._tokens.was_accepted(digest)
        seconds = 0 if known else self._bad_tokens.wait(share_of(address))
        if seconds:
            message = f"too many wrong tokens came from your address; wait {seconds} seconds"
            raise HttpError(429, "too many wrong tokens", message, {"retry-after": str(seconds)})
        granted = self._tokens.scope_of(digest)
        if granted is None:
            self._bad_tokens.note(share_of(address))
            message = "this token does not exist or was removed; ask the operator of the service"
            raise _challenge(401, "wrong token", message, ', error="invalid_token"')
        if needed == "write" and granted == "read":
            message = "this token may only read; use one with the scope write"
            details = ', error="insufficient_scope", scope="write"'
            raise _challenge(403, "read only", message, details)
        _pass(scope, lambda: self._tokens.scope_of(digest) is not None)


def _challenge(status: int, error: str, message: str, details: str = "") -> HttpError:
    """The refusal of credentials, with the kind that is needed."""
    headers = {"www-authenticate": f'Bearer realm="understudy"{details}'}
    return HttpError(status, error, message, headers)


def _pass(scope: HttpScope, allowed: Callable[[], bool]) -> None:
    """Mark a request as authorized, or raise a 503 if too many are; streams call `allowed`."""
    scope[ALLOWED] = allowed
    if AUTHORIZE in scope:
        scope[AUTHORIZE]()


def _check_own(scheme: bytes, headers: Headers) -> None:
    """Refuse a request to an open service that is not of this machine and its pages.

    A page of another site can send requests to this machine, and DNS rebinding can point the name
    of that site at this machine.
    A proxy on this machine passes on requests of others.
    """
    host = headers.get(b"host", b"")
    if LOOPBACK.fullmatch(host) is None:
        message = "without tokens only this machine is served; ask for http://localhost"
        raise HttpError(403, "foreign host", message)
    origin = headers.get(b"origin")
    if origin is not None and origin.lower() != scheme + b"://" + host.lower():
        message = "pages of other sites may not ask an open service; create a token"
        raise HttpError(403, "foreign origin", message)
    if FORWARDED.search(b"\n".join(headers)):  # all names at once: 1 µs faster
        message = (
            "a proxy forwarded this request, and the service has no tokens, so anyone could use "
            "it; create a token: understudy token add NAME --scope write"
        )
        raise HttpError(403, "forwarded", message)


def address_of(scope: HttpScope) -> str:
    """Return the address that a request comes from.

    >>> address_of({"client": ("127.0.0.1", 50312)}), address_of({"client": None})
    ('127.0.0.1', 'unknown')
    """
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
