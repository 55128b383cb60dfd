"""Events per second, over the last ten seconds."""

from __future__ import annotations

from collections import deque

__all__ = ["Rate"]

SECOND = 1_000_000  # microseconds
SPAN = 10  # seconds


class Rate:
    """Counts of the last seconds.

    >>> rate = Rate()
    >>> rate.add(20, now=0)
    >>> rate.at(now=5 * SECOND), rate.at(now=20 * SECOND)
    (2.0, 0.0)
    """

    def __init__(self) -> None:
        self._counts = deque[tuple[int, int]](maxlen=SPAN)

    def add(self, events: int, now: int) -> None:
        """So many came now, in microseconds."""
        second = now // SECOND
        if self._counts and self._counts[-1][0] == second:
            events += self._counts.pop()[1]
        self._counts.append((second, events))

    def at(self, now: int) -> float:
        """Events per second, of the last ten."""
        oldest = now // SECOND - SPAN
        return sum(count for second, count in tuple(self._counts) if second > oldest) / SPAN
