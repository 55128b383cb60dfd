"""Who may do what: tokens, which only their holders know, and addresses that guess at them."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from understudy.errors import StoreUnavailable
from understudy.live.store.records import Scope, TokenRecord

PREFIX = "us_"  # so that people, and programs that look for secrets in code, know what it is
RANDOM_BYTES = 32
FRESH_SECONDS = 2.0
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
    """What is kept of a token.

    >>> digest_of("us_a").hex()[:8]
    '0d4df3fa'
    """
    # Slow hashes protect passwords that people choose. A token has 256 random bits, which cannot be
    # guessed from a fast hash either, and every request would pay for a slow one.
    return hashlib.sha256(token.encode()).digest()


class TokenRegistry:
    """The tokens that may be used, as `load` gave them at most two seconds ago.

    A store that fails is read again after two seconds; until then all requests are refused.

    >>> keys = TokenRegistry(lambda: [TokenRecord("ci", digest_of("us_a"), "read")])
    >>> keys.exist(), keys.scope_of("us_a"), keys.scope_of("us_b")
    (True, 'read', None)
    """

    def __init__(
        self, load: Callable[[], Sequence[TokenRecord]], clock: Clock = time.monotonic
    ) -> None:
        self._load = load
        self._clock = clock
        self._records: Sequence[TokenRecord] = ()
        self._unavailable: StoreUnavailable | None = None
        self._stale_at = -math.inf

    def exist(self) -> bool:
        """Whether there is any token: without one, the service is open to its own machine."""
        return len(self._fresh()) > 0

    def scope_of(self, token: str) -> Scope | None:
        """What the token allows; None if there is no such.

        All records are looked at whatever is found: how long it takes tells nothing.
        """
        digest = digest_of(token)
        compare = hmac.compare_digest
        scopes = [record.scope for record in self._fresh() if compare(record.digest, digest)]
        return "write" if "write" in scopes else "read" if scopes else None

    def _fresh(self) -> Sequence[TokenRecord]:
        now = self._clock()
        if now >= self._stale_at:
            self._stale_at = now + FRESH_SECONDS
            try:
                self._records, self._unavailable = self._load(), None
            except StoreUnavailable as error:
                self._unavailable = error
        if self._unavailable is not None:
            raise StoreUnavailable(*self._unavailable.args)
        return self._records


class BadTokens:
    """Addresses that sent tokens which do not exist: ten a minute, then they have to wait.

    >>> bad = BadTokens(clock=lambda: 0.0)
    >>> [bad.wait("192.0.2.1") for _ in range(11)][8:], bad.wait("192.0.2.2")
    ([0, 0, 60], 0)
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> int:
        """Note a bad token; the seconds until the next one is looked at again, 0 if this one was.

        Tokens that come during the wait do not extend it.
        """
        now = self._clock()
        times = self._times.setdefault(address, deque(maxlen=MOST_BAD))
        self._times.move_to_end(address)
        if len(self._times) > MOST_ADDRESSES:
            self._times.popitem(last=False)
        left = WINDOW_SECONDS - (now - times[0]) if len(times) == MOST_BAD else 0.0
        if left > 0.0:
            return math.ceil(left)
        times.append(now)
        return 0
