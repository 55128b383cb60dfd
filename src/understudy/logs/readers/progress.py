"""How far a run has come."""

from __future__ import annotations

from collections.abc import Callable

ProgressCallback = Callable[[str, int, int | None], None]  # what is done, rows since, rows expected


def no_progress(phase: str, rows: int, expected: int | None) -> None:
    """No progress reporting.

    >>> no_progress("learning", 10, None)
    """
