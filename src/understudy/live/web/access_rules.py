"""The rules of the middleware, as plain functions and data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from understudy.live.store.records import Scope

MEBIBYTE = 2**20
READING = frozenset({"GET", "HEAD"})
PUBLIC = frozenset({"/", "/docs", "/openapi.json", "/healthz", "/readyz"})
ASSETS, PAGES, API, SNAPSHOTS = "/assets/", "/studies/", "/v1/", "/v1/snapshots"
DRAW = re.compile(r"/v1/studies/[^/]+/draw")
LOOPBACK = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)

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
NO_STORE = (b"cache-control", b"no-store")


@dataclass(frozen=True)
class Limits:
    """The largest bodies, in bytes.

    >>> Limits().of("/v1/snapshots") // Limits().of("/v1/studies")
    64
    """

    body: int = MEBIBYTE
    snapshot: int = 64 * MEBIBYTE

    def of(self, path: str) -> int:
        """What a request to this path may bring."""
        return self.snapshot if path == SNAPSHOTS else self.body


def needed_scope(method: str, path: str) -> Scope | None:
    """What a token must allow for this request; None if it needs no token.

    A draw changes nothing, though it is a POST: what was drawn must not come from a cache.

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


def is_loopback(host: bytes) -> bool:
    """Whether a Host header names this machine, as a page of another site cannot.

    >>> is_loopback(b"localhost:8000"), is_loopback(b"[::1]"), is_loopback(b"localhost.evil.com")
    (True, True, False)
    """
    return LOOPBACK.fullmatch(host) is not None


def is_same_origin(origin: bytes, scheme: str, host: bytes) -> bool:
    """Whether the page that asks is one of this service.

    >>> is_same_origin(b"http://localhost:8000", "http", b"localhost:8000")
    True
    >>> is_same_origin(b"null", "http", b"localhost:8000")
    False
    """
    return origin.lower() == scheme.encode() + b"://" + host.lower()
