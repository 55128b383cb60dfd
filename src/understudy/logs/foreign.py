"""What other libraries say, in a line of ours."""

from __future__ import annotations

__all__ = ["first_line"]

WORDS = 160  # characters of a foreign message


def first_line(error: BaseException) -> str:
    """What a reader says, without its advice for programmers.

    >>> first_line(ValueError("no such page\\n\\nConsider another."))
    'no such page'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:WORDS] if lines else type(error).__name__
