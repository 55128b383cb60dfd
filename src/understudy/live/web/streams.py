"""Responses that last: the newest state of a study as server-sent events, and logs."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Protocol

import anyio
import anyio.to_thread
from sse_starlette import EventSourceResponse
from sse_starlette.event import ServerSentEvent
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Send
from starlette.types import Scope as HttpScope

from understudy.live.service import HttpError

NDJSON, EVENT_STREAM = "application/x-ndjson", "text/event-stream"
ALLOWED = "understudy.allowed"  # where a scope holds the function that checks its token again
HEARTBEAT = 15.0  # seconds: less than proxies and browsers wait for
SEND_SECONDS = 30.0  # for a client to take a part of a response: two heartbeats
MOST_LOGS = 4  # that are read at a time: events do not wait for more


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


class StateResponse(EventSourceResponse):
    """The newest states of studies; a client that does not read them is left after a while."""

    media_type = EVENT_STREAM

    def __init__(self, states: AsyncIterator[str]) -> None:
        super().__init__(
            (ServerSentEvent(text, event="state", sep="\n") async for text in states),
            ping=HEARTBEAT,
            ping_message_factory=lambda: ServerSentEvent(comment="still here", sep="\n"),
            sep="\n",
            send_timeout=SEND_SECONDS,
        )
        del self.headers["cache-control"]  # the middleware has it for all of the API


class Streams:
    """The views of each study, made once for all clients that watch it, until `stop` is set."""

    def __init__(self, views: ViewSource, stop: asyncio.Event, interval: float = 1.0) -> None:
        self.logs = asyncio.Semaphore(MOST_LOGS)
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
    """A log in parts; it ends if its client does not take a part in time.

    Few are read at a time (`slots`), since reading holds the interpreter that events wait for.
    """

    media_type = NDJSON

    def __init__(self, lines: Iterator[str], slots: asyncio.Semaphore) -> None:
        super().__init__(())
        self._lines = lines
        self._slots = slots

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Send the log, or raise `HttpError` if too many are being read."""
        if self._slots.locked():
            message = f"{MOST_LOGS} logs are being read now; try again"
            raise HttpError(503, "busy", message)
        async with self._slots:
            first = await asyncio.to_thread(next, self._lines, "")  # raises if the store is away
            self.body_iterator = iterate_in_threadpool(chain([first], self._lines))
            await super().__call__(scope, receive, partial(_send_in_time, send))


async def _send_in_time(send: Send, message: Message) -> None:
    try:
        with anyio.fail_after(SEND_SECONDS):
            await send(message)
    except TimeoutError:
        raise ClientDisconnect from None
