"""A reader of a store in a thread of its own: a store that hangs delays its users for seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import Any, Self, TypeVar

from understudy.errors import StoreUnavailable
from understudy.live.store.sql import Reader

MOST_READERS = 32  # at a time, with those that hang: each holds a thread and a connection

Found = TypeVar("Found")
Work = Callable[[Reader], Any]


class ReaderThread:
    """Reads a store for other threads: each waits `limit` seconds at most, and as long for a slot.

    `open_reader` is called in the thread, which closes the reader in the end. If the store hangs,
    the thread closes the reader when the store answers, and holds one of the `slots` until then.
    """

    def __init__(
        self, open_reader: Callable[[], Reader], slots: threading.Semaphore, limit: float
    ) -> None:
        if not slots.acquire(timeout=limit):
            raise StoreUnavailable("too many requests read the store, or wait for it, already")
        self._open_reader, self._slots, self._limit = open_reader, slots, limit
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
        thread = threading.Thread(target=self._run, name="understudy-reader", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more of them
            slots.release()
            raise StoreUnavailable(f"no thread can read the store now ({error})") from error

    def read(self, work: Callable[[Reader], Found]) -> Found:
        """Return the result of `work`, or raise its error; `StoreUnavailable` after the limit."""
        self._work.put(work)
        try:
            result, error = self._results.get(timeout=self._limit)
        except Empty:
            message = f"the store has not answered for {self._limit:.0f} seconds"
            raise StoreUnavailable(message) from None
        if error is not None:
            raise error
        found: Found = result
        return found

    def _run(self) -> None:
        try:
            with closing(self._open_reader()) as reader:
                while (work := self._work.get()) is not None:
                    self._results.put((work(reader), None))
        except Exception as error:  # noqa: BLE001 - `read` raises it
            self._results.put((None, error))
        finally:
            self._slots.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._work.put(None)
