"""Responses that last: the newest state of a study as server-sent events, and logs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
from sse_starlette import EventSourceResponse
from sse_starlette.event import ServerSentEvent
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as HttpScope

from understudy.live.service import HttpError
from understudy.live.web.views import StudyViews

NDJSON, EVENT_STREAM = "application/x-ndjson", "text/event-stream"
ALLOWED = "understudy.allowed"  # where a scope holds the function that checks its token again
MOST_STREAMS = 400  # of the 900 requests under way: events find room, whatever is watched
HEARTBEAT = 15.0  # seconds: less than proxies and browsers wait for
COMMENT = b": still here\n\n"
LONGEST_LOG = 3_600.0  # seconds: some 10 GB at 3 MB/s. A client that hardly reads holds its slot
Make = Callable[[str], dict[str, Any]]  # of the view of a study


def allowed_by(scope: HttpScope) -> Callable[[], bool]:
    """Return the function that says whether the token of a request is still valid."""
    found: Callable[[], bool] = scope.get(ALLOWED, lambda: True)
    return found


class Slots:
    """Slots for requests that take much memory, or hold the GIL, which delays events."""

    def __init__(self, most: int, busy: str) -> None:
        self._free = asyncio.Semaphore(most)
        self._busy = busy

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a slot, or raise a 503 if none is free: requests that wait take memory too."""
        if self._free.locked():
            raise HttpError(503, "busy", f"{self._busy}; try again")
        async with self._free:
            yield


class StateResponse(EventSourceResponse):
    """The newest states of studies.

    The pings of `EventSourceResponse` are off: they come between two pieces of a large event.
    """

    media_type = EVENT_STREAM

    def __init__(self, events: AsyncIterator[bytes], slots: Slots) -> None:
        super().__init__(events, ping=0)
        del self.headers["cache-control"]  # the middleware has it for all of the API
        self._slots = slots

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Send states; raise, before it begins, if there is no slot."""
        async with self._slots.one():
            await super().__call__(scope, receive, send)


class Look(NamedTuple):
    """A look at one study, or at all: its time, versions and texts by study, and the event."""

    time: float
    versions: Mapping[str, int]
    texts: Mapping[str, str]
    event: bytes


class Streams:
    """The newest states, for all clients that watch them, until `stop` is set.

    All clients of a study, and all of the list of studies, share one look per interval: 400 of them
    that looked at 1,000 studies each took the time that events need.
    """

    def __init__(self, views: StudyViews, stop: asyncio.Event, interval: float = 1.0) -> None:
        self._views = views
        self._stop = stop
        self._interval = interval
        self._looks: dict[str | None, Look] = {}
        self._clients: Counter[str | None] = Counter()
        self._slots = Slots(MOST_STREAMS, f"{MOST_STREAMS} streams are open")
        self._looking = asyncio.Lock()  # one at a time: events wait for the interpreter

    def respond(self, scope: HttpScope, name: str | None) -> StateResponse:
        """The response about one study, or about all (None), while its token is valid."""
        return StateResponse(self.events(name, allowed_by(scope)), self._slots)

    async def events(self, name: str | None, allowed: Callable[[], bool]) -> AsyncGenerator[bytes]:
        """Yield the state now, every later one, and a comment every heartbeat without one."""
        time = asyncio.get_running_loop().time
        shown, sent_at = None, time()
        self._clients[name] += 1
        try:
            while not self._stop.is_set() and allowed():
                oldest = time() if shown is None else time() - self._interval
                event = await self._newest(name, oldest)
                if event is not shown or time() >= sent_at + HEARTBEAT:
                    yield COMMENT if event is shown else event
                    shown, sent_at = event, time()
                with anyio.move_on_after(self._interval):
                    await self._stop.wait()
        finally:
            self._clients[name] -= 1
            if not self._clients[name]:  # the texts of 1,000 studies take 0.4 GB
                del self._clients[name]
                self._looks.pop(name, None)

    async def _newest(self, name: str | None, oldest: float) -> bytes:
        """The event of the last look, or of a new one if that is older than `oldest`."""
        async with self._looking:
            last = self._looks.get(name)
            if last is None or last.time <= oldest:
                self._looks[name] = last = await self._look(name, last)
            return last.event

    async def _look(self, name: str | None, last: Look | None) -> Look:
        """Look at versions first, so that no state is missed; make the texts that changed."""
        time = asyncio.get_running_loop().time()
        make = self._views.summary if name is None else self._views.view
        names = self._views.names() if name is None else [name]
        versions = {each: self._views.version(each) for each in names}
        if last is not None and last.versions == versions:
            return last._replace(time=time)
        texts: dict[str, str] = {}
        for each, version in versions.items():
            if last is not None and last.versions.get(each) == version:
                texts[each] = last.texts[each]
            else:
                texts[each] = await anyio.to_thread.run_sync(_encoded, make, each)
        listed = ", ".join(texts.values())
        shown = f'{{"studies": [{listed}]}}' if name is None else listed
        event = ServerSentEvent(shown, event="state", sep="\n").encode()
        return Look(time, versions, texts, event)


def _encoded(make: Make, name: str) -> str:
    return json.dumps(make(name), allow_nan=False)


class LogResponse(StreamingResponse):
    """A log, a batch of lines at a time, while it holds one of a few `slots`.

    The connection breaks off if the token is removed, or after an hour: then the log must not look
    complete.
    """

    media_type = NDJSON

    def __init__(
        self, lines: Iterator[str], slots: Slots, allowed: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(())
        self._lines = lines
        self._slots = slots
        self._allowed = allowed

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Send the log; raise, before it begins, if there is no slot or no store."""
        async with self._slots.one():
            first = await asyncio.to_thread(next, self._lines, "")
            with anyio.move_on_after(LONGEST_LOG) as limit:
                self.body_iterator = self._batches(first, limit)
                await super().__call__(scope, receive, send)

    async def _batches(self, first: str, limit: anyio.CancelScope) -> AsyncIterator[str]:
        async for batch in iterate_in_threadpool(chain([first], self._lines)):
            if not self._allowed():
                limit.cancel()
                await anyio.sleep_forever()  # which raises at once
            yield batch
