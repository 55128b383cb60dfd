"""Responses that last: the newest state of a study as server-sent events, and logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

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
Make = Callable[[str], dict[str, Any]]  # of the view of a study


class Slots:
    """Places for requests that take much memory, or the interpreter that events wait for."""

    def __init__(self, most: int, busy: str) -> None:
        self._free = asyncio.Semaphore(most)
        self._busy = busy

    @property
    def are_taken(self) -> bool:
        """Whether there is no place."""
        return self._free.locked()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a place; if there is none, raise `HttpError`: to wait would take memory too."""
        if self.are_taken:
            raise HttpError(503, "busy", f"{self._busy}; try again")
        async with self._free:
            yield


class StateResponse(EventSourceResponse):
    """The newest states of studies, and a comment every heartbeat."""

    media_type = EVENT_STREAM

    def __init__(self, states: AsyncIterator[str], slots: Slots) -> None:
        super().__init__(
            (ServerSentEvent(text, event="state", sep="\n") async for text in states),
            ping=HEARTBEAT,
            ping_message_factory=lambda: ServerSentEvent(comment="still here", sep="\n"),
            sep="\n",
        )
        del self.headers["cache-control"]  # the middleware has it for all of the API
        self._slots = slots

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Send states; raise, before it begins, if there is no slot."""
        async with self._slots.one():
            await super().__call__(scope, receive, send)


class Streams:
    """The views of each study, made once for all clients that watch it, until `stop` is set."""

    def __init__(self, views: StudyViews, stop: asyncio.Event, interval: float = 1.0) -> None:
        self._views = views
        self._stop = stop
        self._interval = interval
        self._made: dict[tuple[Make, str], tuple[int, str]] = {}
        self._slots = Slots(MOST_STREAMS, f"{MOST_STREAMS} streams are open")
        self._making = asyncio.Lock()  # one at a time: events wait for the interpreter

    def respond(self, scope: HttpScope, name: str | None) -> StateResponse:
        """The response about one study, or about all (None), while its token is valid."""
        states = self.states(name, scope.get(ALLOWED, lambda: True))
        return StateResponse(states, self._slots)

    async def states(self, name: str | None, allowed: Callable[[], bool]) -> AsyncIterator[str]:
        """Yield the state now, and every later one."""
        make = self._views.summary if name is None else self._views.view
        shown: list[int] | None = None
        while not self._stop.is_set() and allowed():
            names = self._views.names() if name is None else [name]
            if shown != [self._views.version(each) for each in names]:
                made = [await self._newest(make, each) for each in names]
                shown = [version for version, _ in made]
                texts = ", ".join(text for _, text in made)
                yield f'{{"studies": [{texts}]}}' if name is None else texts
            with anyio.move_on_after(self._interval):
                await self._stop.wait()

    async def _newest(self, make: Make, name: str) -> tuple[int, str]:
        """The version and the text; the version first, so that a state is never missed."""
        async with self._making:
            version = self._views.version(name)
            if self._made.get((make, name), (None, ""))[0] != version:
                text = await anyio.to_thread.run_sync(_encoded, make, name)
                self._made[make, name] = version, text
            return self._made[make, name]


def _encoded(make: Make, name: str) -> str:
    return json.dumps(make(name), allow_nan=False)


class LogResponse(StreamingResponse):
    """A log, a batch of lines at a time, while it holds one of a few `slots`."""

    media_type = NDJSON

    def __init__(self, lines: Iterator[str], slots: Slots) -> None:
        super().__init__(())
        self._lines = lines
        self._slots = slots

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Send the log; raise, before it begins, if there is no slot or no store."""
        async with self._slots.one():
            first = await asyncio.to_thread(next, self._lines, "")
            self.body_iterator = iterate_in_threadpool(chain([first], self._lines))
            await super().__call__(scope, receive, send)
