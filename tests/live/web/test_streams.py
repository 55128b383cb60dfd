"""Server-sent events: every watcher gets the newest state, which is made once."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, MutableMapping
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from understudy.live.web import streams
from understudy.live.web.streams import Streams

pytestmark = pytest.mark.plain

SOON = 0.001  # seconds between two looks
PATIENCE = 30.0  # seconds until a test that hangs has failed


class Counted:
    """Studies that count how often, and by which thread, they are asked for what is shown."""

    def __init__(self, *names: str) -> None:
        self.versions = dict.fromkeys(names, 0)
        self.asked: Counter[tuple[str, str, int]] = Counter()
        self.threads: set[int] = set()
        self.while_drawing: Callable[[], None] = lambda: None

    def names(self) -> list[str]:
        return list(self.versions)

    def version(self, name: str) -> int:
        return self.versions[name]

    def _draw(self, what: str, name: str) -> dict[str, Any]:
        version = self.versions[name]
        self.asked[what, name, version] += 1
        self.threads.add(threading.get_ident())
        self.while_drawing()
        return {"study": name, "version": version}

    def summary(self, name: str) -> dict[str, Any]:
        return self._draw("summary", name)

    def view(self, name: str) -> dict[str, Any]:
        return self._draw("view", name)


def run(test: Coroutine[Any, Any, None]) -> None:
    async def patient() -> None:
        with anyio.fail_after(PATIENCE):
            await test

    asyncio.run(patient())


def told(event: str) -> Any:
    """What an event carries, read line by line."""
    kind, data, *end = event.split("\n")
    assert kind == "event: state"
    assert end == ["", ""]
    return json.loads(data.removeprefix("data: "))


async def changed(watcher: AsyncIterator[str]) -> Any:
    """The next state; what comes in between says only that the service is there."""
    async for event in watcher:
        if not event.startswith(":"):
            return told(event)
    raise AssertionError("the stream has ended")


def test_a_state_comes_at_once_and_again_when_it_has_changed() -> None:
    async def test() -> None:
        watched = Counted("a", "b")
        watcher = Streams(watched, asyncio.Event(), SOON).stream("a")
        assert await changed(watcher) == {"study": "a", "version": 0}
        watched.versions["b"] += 1
        watched.versions["a"] += 1
        assert await changed(watcher) == {"study": "a", "version": 1}
        assert watched.asked == {("view", "a", 0): 1, ("view", "a", 1): 1}

    run(test())


def test_while_nothing_changes_only_a_comment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 3 * SOON)

    async def test() -> None:
        watcher = Streams(Counted("a"), asyncio.Event(), SOON).stream("a")
        events = [await anext(watcher) for _ in range(4)]
        assert told(events[0]) == {"study": "a", "version": 0}
        assert events[1:] == [": still here\n\n"] * 3

    run(test())


@pytest.mark.parametrize(("silence", "looks"), [(15.0, 16), (14.9, 16), (15.1, 17)])
def test_the_comment_comes_after_the_silence_and_not_before(
    monkeypatch: pytest.MonkeyPatch, silence: float, looks: int
) -> None:
    """Counted in looks at a second each, with a clock that does not wait."""
    monkeypatch.setattr(streams, "HEARTBEAT", silence)
    waits = 0

    class Hurried(asyncio.Event):
        async def wait(self) -> Any:
            nonlocal waits
            waits += 1

    async def test() -> None:
        watcher = Streams(Counted("a"), Hurried(), 1.0).stream("a")
        told(await anext(watcher))
        for comments in (1, 2):
            assert await anext(watcher) == ": still here\n\n"
            assert waits == comments * (looks - 1)

    run(test())


def test_a_state_is_made_once_for_all_who_watch_it_and_by_another_thread() -> None:
    async def test() -> None:
        watched = Counted("a")
        shared = Streams(watched, asyncio.Event(), SOON)
        watchers = [shared.stream("a") for _ in range(20)]
        for version in range(3):
            watched.versions["a"] = version
            states = await asyncio.gather(*(changed(watcher) for watcher in watchers))
            assert states == [{"study": "a", "version": version}] * 20
        late = await changed(shared.stream("a"))
        assert late["version"] == 2
        assert watched.asked == {("view", "a", version): 1 for version in range(3)}
        assert threading.get_ident() not in watched.threads

    run(test())


def test_what_changes_while_it_is_drawn_is_drawn_again() -> None:
    """Else the last event before a pause could stay unseen."""

    async def test() -> None:
        watched = Counted("a")

        def arrive() -> None:
            if watched.versions["a"] == 0:
                watched.versions["a"] = 1

        watched.while_drawing = arrive
        watcher = Streams(watched, asyncio.Event(), SOON).stream("a")
        assert [(await changed(watcher))["version"] for _ in range(2)] == [0, 1]

    run(test())


def test_of_all_studies_only_those_that_changed_are_drawn_again() -> None:
    async def test() -> None:
        watched = Counted("a", "b")
        watcher = Streams(watched, asyncio.Event(), SOON).stream(None)
        assert [s["study"] for s in (await changed(watcher))["studies"]] == ["a", "b"]
        watched.versions["b"] = 1
        assert [s["version"] for s in (await changed(watcher))["studies"]] == [0, 1]
        watched.versions["c"] = 0
        assert [s["study"] for s in (await changed(watcher))["studies"]] == ["a", "b", "c"]
        assert set(watched.asked.values()) == {1}
        assert watched.asked.total() == 4

    run(test())


def test_without_studies_the_state_is_that_there_are_none() -> None:
    async def test() -> None:
        watcher = Streams(Counted(), asyncio.Event(), SOON).stream(None)
        assert await changed(watcher) == {"studies": []}

    run(test())


@pytest.mark.parametrize("name", ["a", None])
def test_stopping_ends_a_stream_though_it_waits(name: str | None) -> None:
    async def test() -> None:
        stop = asyncio.Event()
        watcher = Streams(Counted("a"), stop, interval=3_600.0).stream(name)
        await anext(watcher)
        asyncio.get_running_loop().call_later(SOON, stop.set)
        assert [event async for event in watcher] == []

    run(test())


def test_a_stream_ends_when_its_watcher_is_gone() -> None:
    """As a server tells it: the watcher leaves after the first state."""

    async def test() -> None:
        shared = Streams(Counted("a"), asyncio.Event(), interval=3_600.0)
        app = Starlette(routes=[Route("/{study}", shared.of_study)])
        seen = asyncio.Event()
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            await seen.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)
            if message.get("body"):
                seen.set()

        await app(scope("/a"), receive, send)
        assert told(sent[1]["body"].decode())["study"] == "a"
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["cache-control"] == "no-store"

    run(test())


def scope(path: str) -> dict[str, Any]:
    asgi = {"version": "3.0", "spec_version": "2.3"}
    asked = {"method": "GET", "path": path, "headers": [], "query_string": b""}
    return {"type": "http", "asgi": asgi, **asked}


def test_a_study_that_is_not_there_cannot_be_watched() -> None:
    async def test() -> None:
        request = Request({**scope("/b"), "path_params": {"study": "b"}})
        answer = await Streams(Counted("a"), asyncio.Event()).of_study(request)
        assert answer.status_code == 404
        assert json.loads(bytes(answer.body))["error"] == "unknown study"

    run(test())
