"""The queue between the event loop and the writer's thread: requests go in, answers come back.

The loop adds requests and waits for their futures. The thread takes them in groups, and answers a
group in one call to the loop.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from understudy.errors import StoreUnavailable
from understudy.live.ingest import Outcome, weight
from understudy.live.live_study import LiveStudy
from understudy.live.models import Event

# In events, where one with a long context counts as several.
MOST_IN_GROUP = 4_096  # a larger group makes its first request wait, and saves nothing
MOST_QUEUED = 100_000  # five seconds at 20 000 a second, half of a client's time-out; some 200 MB
BUSY = 4  # requests in a group: from here on, more are expected while one is being written
# A group then waits for them: as long as the last group took to write, which they wait for anyway.
LONGEST_GATHER = 3e-3  # seconds: on slow disks, larger groups save no more time


@dataclass(eq=False)
class EventRequest:
    """The events of one request, their weight, and the future that gets their outcomes."""

    future: asyncio.Future[Any]
    study: LiveStudy
    events: Sequence[Event]
    weight: int


@dataclass(eq=False)
class StoreTask:
    """Other work with the store, to be done in the thread that owns it."""

    future: asyncio.Future[Any]
    work: Callable[[], Any]
    weight: int = 0


Request = EventRequest | StoreTask
Answer = tuple[Request, Callable[[], None]]  # and the way to resolve its future


class RequestQueue:
    """Requests in their order. The thread calls `take`, `answer` and `refuse`, the loop the rest.

    `is_busy` says whether the last group was so large that more requests are on their way.
    """

    def __init__(self) -> None:
        self.is_busy = False
        self._loop: asyncio.AbstractEventLoop
        self._queue: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._weight = 0  # of all requests without an answer
        self._taken_at = 0.0  # when the thread got its last group
        self._pending: set[asyncio.Future[Any]] = set()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer to this event loop."""
        self._loop = loop

    def add_events(
        self, study: LiveStudy, events: Sequence[Event]
    ) -> asyncio.Future[list[Outcome]]:
        """Add the events of a request; raise if there is no room for them."""
        weighed = weight(study.spec, events)
        if self._weight + weighed > MOST_QUEUED:
            raise StoreUnavailable("more events are waiting to be written than there is room for")
        self._weight += weighed
        return self._add(EventRequest(self._loop.create_future(), study, events, weighed))

    def add_task(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """Add work for the thread."""
        return self._add(StoreTask(self._loop.create_future(), work))

    def _add(self, request: Request) -> asyncio.Future[Any]:
        self._pending.add(request.future)
        self._queue.put(request)
        return request.future

    def end(self) -> None:
        """Let the thread stop after the requests that were added."""
        self._queue.put(None)

    def fail_pending(self, reason: str) -> None:
        """Answer all requests that wait: the thread hangs."""
        for future in self._pending:
            if not future.done():
                future.set_exception(StoreUnavailable(reason))
        self._pending.clear()

    def take(self, wait: float) -> tuple[list[Request], bool]:
        """Return the next group, empty if there is none in so many seconds; and whether to stop."""
        gather = min(time.monotonic() - self._taken_at, LONGEST_GATHER)
        group: list[Request] = []
        size = 0
        while size < MOST_IN_GROUP:
            try:
                item = self._queue.get(block=not group and wait > 0.0, timeout=wait or None)
            except queue.Empty:
                break
            if item is None:
                return group, True
            if not group and self.is_busy:
                time.sleep(gather)
            group.append(item)
            size += max(1, item.weight)
        self.is_busy = len(group) >= BUSY
        self._taken_at = time.monotonic()
        return group, False

    def answer(self, requests: Sequence[Request], results: Sequence[Any]) -> None:
        """Give each request its result."""
        pairs = zip(requests, results, strict=True)
        self._resolve_in_loop(
            [(request, partial(request.future.set_result, result)) for request, result in pairs]
        )

    def refuse(self, requests: Sequence[Request], error: Exception) -> None:
        """Give all requests an error."""
        self._resolve_in_loop(
            [(request, partial(request.future.set_exception, error)) for request in requests]
        )

    def _resolve_in_loop(self, answers: Sequence[Answer]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the service ended while the store hung
            self._loop.call_soon_threadsafe(self._resolve, answers)

    def _resolve(self, answers: Sequence[Answer]) -> None:
        for request, resolve in answers:
            self._weight -= request.weight
            self._pending.discard(request.future)
            if not request.future.done():  # else it was cancelled, or the thread was too slow
                resolve()
