"""Server-sent events: the newest state of a study, at most once a second for each reader."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Hashable
from functools import partial
from typing import Any, Protocol

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from understudy.errors import shorten

HEARTBEAT = 15.0  # seconds: less than what proxies and browsers wait for
STILL_HERE = ": still here\n\n"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


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


class Streams:
    """What is shown of each study, made once for all who watch it, until `stop` is set."""

    def __init__(self, views: ViewSource, stop: asyncio.Event, interval: float = 1.0) -> None:
        self._views = views
        self._stop = stop
        self._interval = interval
        self._made: dict[Hashable, tuple[int, str]] = {}
        self._locks: defaultdict[Hashable, anyio.Lock] = defaultdict(anyio.Lock)
        self._one_thread = anyio.CapacityLimiter(1)  # drawing must not crowd out answering

    async def of_study(self, request: Request) -> Response:
        """The endpoint about one study, which the path names `study`."""
        name = request.path_params["study"]
        if name not in self._views.names():
            message = f"there is no study {shorten(name)}: GET /v1/studies lists them"
            return JSONResponse({"error": "unknown study", "message": message}, status_code=404)
        return self._respond(name)

    async def of_all(self, request: Request) -> Response:  # noqa: ARG002 - what endpoints are given
        """The endpoint about all studies."""
        return self._respond(None)

    def _respond(self, name: str | None) -> Response:
        return StreamingResponse(self.stream(name), media_type="text/event-stream", headers=HEADERS)

    async def stream(self, name: str | None) -> AsyncIterator[str]:
        """An event with the state now, and with every later one; None is all studies."""
        shown: Hashable = None
        silent = 0.0
        while not self._stop.is_set():
            if self._version(name) != shown:
                shown, text = await (self._all() if name is None else self._view(name))
                silent = 0.0
                yield f"event: state\ndata: {text}\n\n"
            elif silent >= HEARTBEAT:
                silent = 0.0
                yield STILL_HERE
            with anyio.move_on_after(self._interval):
                await self._stop.wait()
            silent += self._interval

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
