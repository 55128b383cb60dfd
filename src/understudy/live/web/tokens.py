"""Tokens, which only their holders know, and the addresses that guess at them."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from understudy.live.store.records import Scope, TokenRecord

PREFIX = "us_"  # so that people, and programs that look for secrets in code, know what it is
RANDOM_BYTES = 32
MOST_BAD, WINDOW_SECONDS, MOST_ADDRESSES = 10, 60.0, 10_000

Clock = Callable[[], float]


def new_token() -> str:
    """Return a new random token.

    >>> token = new_token()
    >>> token[:3], len(token)
    ('us_', 46)
    """
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def digest_of(token: str) -> bytes:
    """Return the part of a token that a store keeps.

    >>> digest_of("us_a").hex()[:8]
    '0d4df3fa'
    """
    # Slow hashes protect passwords that people choose. A token has 256 random bits, which cannot be
    # guessed from a fast hash either, and every request would pay for a slow one.
    return hashlib.sha256(token.encode()).digest()


class TokenRegistry:
    """The tokens that may be used now, as `load` gives them; it must be quick.

    >>> tokens = TokenRegistry(lambda: [TokenRecord("ci", digest_of("us_a"), "read")])
    >>> tokens.exist(), tokens.scope_of(digest_of("us_a")), tokens.scope_of(digest_of("us_b"))
    (True, 'read', None)
    """

    def __init__(self, load: Callable[[], Sequence[TokenRecord]]) -> None:
        self._load = load
        self._accepted: set[bytes] = set()

    def exist(self) -> bool:
        """Whether there is any token: without one, the service is open to its own machine."""
        return len(self._load()) > 0

    def scope_of(self, digest: bytes) -> Scope | None:
        """Return the scope of a token by its digest; None if there is no such token.

        It compares all records: how long it takes does not depend on the token.
        """
        compare = hmac.compare_digest
        scopes = [record.scope for record in self._load() if compare(record.digest, digest)]
        if not scopes:
            self._accepted.discard(digest)
            return None
        self._accepted.add(digest)
        return "write" if "write" in scopes else "read"

    def was_accepted(self, digest: bytes) -> bool:
        """Whether the token was accepted since the service started, and not refused since."""
        return digest in self._accepted


class BadTokens:
    """Addresses that sent wrong tokens: ten in a minute, then their tokens are not compared.

    >>> bad = BadTokens(clock=lambda: 0.0)
    >>> for _ in range(10):
    ...     bad.note("192.0.2.1")
    >>> bad.wait("192.0.2.1"), bad.wait("192.0.2.2")
    (60, 0)
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> int:
        """Return the seconds for which tokens of an address are not compared, or 0."""
        times = self._times.get(address)
        if times is None or len(times) < MOST_BAD:
            return 0
        return max(0, math.ceil(WINDOW_SECONDS - (self._clock() - times[0])))

    def note(self, address: str) -> None:
        """Note a wrong token."""
        self._times.setdefault(address, deque(maxlen=MOST_BAD)).append(self._clock())
        self._times.move_to_end(address)
        if len(self._times) > MOST_ADDRESSES:
            self._times.popitem(last=False)
