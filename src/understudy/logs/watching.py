"""Whoever wants to know how far a run has come."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Watch", "unwatched"]

Watch = Callable[[str, int, int | None], None]  # what is done, rows since, rows expected


def unwatched(phase: str, rows: int, expected: int | None) -> None:
    """Nobody looks.

    >>> unwatched("learning", 10, None)
    """
