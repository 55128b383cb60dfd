"""Reading ahead: one thread reads and checks while another learns."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

__all__ = ["ahead"]

Item = TypeVar("Item")
DEPTH = 4  # items that wait
POLL = 0.05  # seconds after which a reader looks whether anybody still listens


def ahead(items: Iterator[Item], depth: int = DEPTH) -> Iterator[Item]:
    """The same items in the same order, made by another thread, a few of them in advance.

    What the other thread raises is raised here, in its place.

    >>> list(ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    waiting: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(more: bool, what: Item | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return waiting.put((more, what), timeout=POLL)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(True, item)
                if stopped.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
            put(False, error)
        else:
            put(False, None)

    worker = threading.Thread(target=work, name="understudy-reader", daemon=True)
    worker.start()
    try:
        while True:
            more, what = waiting.get()
            if not more:
                if what is not None:
                    raise what  # type: ignore[misc] # an exception, since nothing more comes
                return
            yield what  # type: ignore[misc] # an item
    finally:
        stopped.set()
        worker.join()
