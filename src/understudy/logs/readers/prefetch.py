"""Read ahead: one thread reads and validates batches while another learns from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
DEPTH = 4  # batches that wait: enough to smooth out slow ones, a few MB of memory


def prefetch(items: Iterator[Item], depth: int = DEPTH) -> Iterator[Item]:
    """The same items in the same order, made by another thread, a few of them in advance.

    An error of the other thread is raised here, in its place.

    >>> list(prefetch(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1, thread_name_prefix="understudy-reader") as pool:
        waiting = deque(pool.submit(_next, items) for _ in range(depth))
        while found := waiting.popleft().result():
            waiting.append(pool.submit(_next, items))
            yield found[0]


def _next(items: Iterator[Item]) -> tuple[Item] | None:
    """The next item, or None at the end."""
    for item in items:
        return (item,)
    return None
