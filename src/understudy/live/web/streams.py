"""Responses that last: the newest state of a study as server-sent events, and logs."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from typing import Any, Protocol

import anyio
import anyio.to_thread
from sse_starlette import EventSourceResponse
from sse_starlette.event import ServerSentEvent
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as HttpScope

from understudy.live.service import HttpError

NDJSON, EVENT_STREAM = "application/x-ndjson", "text/event-stream"
ALLOWED = "understudy.allowed"  # where a scope holds the function that checks its token again
HEARTBEAT = 15.0  # seconds: less than proxies and browsers wait for


class ViewSource(Protocol):
    """Views of studies as values that JSON can hold.

    The event loop calls `names` and `version`, often: they must be quick. Another thread calls
    `summary` and `view`, one at a time: they may be slow.
    """

    def names(self) -> list[str]:
        """All studies, archived ones too."""

    def version(self, name: str) -> int:
        """Version of the view; changes with every update."""

    def summary(self, name: str) -> dict[str, Any]:
        """A study in a list of them: `views.summarize`."""

    def view(self, name: str) -> dict[str, Any]:
        """All about a study: `views.show`."""


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

    def __init__(self, states: AsyncIterator[str]) -> None:
        super().__init__(
            (ServerSentEvent(text, event="state", sep="\n") async for text in states),
            ping=HEARTBEAT,
            ping_message_factory=lambda: ServerSentEvent(comment="still here", sep="\n"),
            sep="\n",
        )
        del self.headers["cache-control"]  # the middleware has it for all of the API


class Streams:
    """The views of each study, made once for all clients that watch it, until `stop` is set."""

    def __init__(self, views: ViewSource, stop: asyncio.Event, interval: float = 1.0) -> None:
        self._views = views
        self._stop = stop
        self._interval = interval
        self._made: dict[Hashable, tuple[int, str]] = {}
        self._locks: defaultdict[Hashable, anyio.Lock] = defaultdict(anyio.Lock)
        self._one_thread = anyio.CapacityLimiter(1)  # drawing must not crowd out answering

    def respond(self, scope: HttpScope, name: str | None) -> StateResponse:
        """The response about one study, or about all (None), while its token is valid."""
        return StateResponse(self.states(name, scope.get(ALLOWED, lambda: True)))

    async def states(self, name: str | None, allowed: Callable[[], bool]) -> AsyncIterator[str]:
        """Yield the state now, and every later one."""
        shown: Hashable = None
        while not self._stop.is_set() and allowed():
            if self._version(name) != shown:
                shown, text = await (self._all() if name is None else self._view(name))
                yield text
            with anyio.move_on_after(self._interval):
                await self._stop.wait()

    def _version(self, name: str | None) -> Hashable:
        if name is not None:
            return self._views.version(name)
        return tuple((each, self._views.version(each)) for each in self._views.names())

    async def _view(self, name: str) -> tuple[Hashable, str]:
        return await self._newest("view", name, self._views.view)

    async def _all(self) -> tuple[Hashable, str]:
        names = self._views.names()
        made = [await self._newest("summary", name, self._views.summary) for name in names]
        versions = tuple((name, version) for name, (version, _) in zip(names, made, strict=True))
        return versions, f'{{"studies": [{", ".join(text for _, text in made)}]}}'

    async def _newest(
        self, what: str, name: str, make: Callable[[str], dict[str, Any]]
    ) -> tuple[int, str]:
        """The version and the text; the version first, so that a state is never missed."""
        async with self._locks[what, name]:
            version = self._views.version(name)
            if self._made.get((what, name), (None, ""))[0] != version:
                text = await anyio.to_thread.run_sync(
                    partial(_encoded, make, name), limiter=self._one_thread
                )
                self._made[what, name] = version, text
            return self._made[what, name]


def _encoded(make: Callable[[str], dict[str, Any]], name: str) -> str:
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
