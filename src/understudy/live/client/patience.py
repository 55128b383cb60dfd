"""When to ask a service again, and how long to wait before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

__all__ = ["AGAIN", "Outcome", "Patience"]

Outcome = httpx.Response | httpx.RequestError

AGAIN = {429, 502, 503, 504}  # nothing was taken, and later it may be
FIRST_WAIT = 0.25  # doubled from try to try; five waits outlast a restart
LONGEST_WAIT = 10.0
LONGEST_OBEYED = 120.0  # who asks for more than that is not waited for


@dataclass(frozen=True)
class Patience:
    """How often to try again; `random`, in [0, 1), keeps many clients from marching in step."""

    retries: int
    random: Callable[[], float]

    def wait(self, outcome: Outcome, tries: int) -> float | None:
        """Seconds until the next try, or None if there is none: it worked, or will not work.

        >>> Patience(retries=5, random=lambda: 1.0).wait(httpx.ConnectError("no"), tries=3)
        1.0
        >>> Patience(retries=5, random=lambda: 1.0).wait(httpx.Response(404), tries=1)
        """
        if tries > self.retries:
            return None
        asked = 0.0
        if isinstance(outcome, httpx.Response):
            if outcome.status_code not in AGAIN:
                return None
            asked = _retry_after(outcome)
            if asked > LONGEST_OBEYED:
                return None
        backoff: float = min(FIRST_WAIT * 2.0 ** (tries - 1), LONGEST_WAIT)
        return asked + backoff * (1.0 + self.random()) / 2.0


def _retry_after(response: httpx.Response) -> float:
    """Seconds that a service asks to be left alone for: they come as a number, or as a date."""
    said = response.headers.get("retry-after", "")
    if said.isascii() and said.isdigit():
        return float(said)
    try:
        until = parsedate_to_datetime(said)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
