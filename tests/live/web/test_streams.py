"""Streams: every watcher gets the newest state, which is made once; logs take turns."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, MutableMapping
from typing import Any

import anyio
import pytest

from tests.support.asgi import HttpError
from understudy.live.web import streams
from understudy.live.web.streams import LogResponse, Slots, Streams
from understudy.live.web.views import StudyViews

pytestmark = pytest.mark.plain

SOON = 0.001  # seconds between two looks
PATIENCE = 30.0  # seconds until a test that hangs has failed
Message = MutableMapping[str, Any]


class Counted(StudyViews):
    """Studies that count how often, and by which thread, they are asked for what is shown."""

    def __init__(self, *names: str) -> None:
        self.versions = dict.fromkeys(names, 0)
        self.asked: Counter[tuple[str, str, int]] = Counter()
        self.threads: set[int] = set()
        self.looks = 0
        self.while_drawing: Callable[[], None] = lambda: None

    def names(self) -> list[str]:
        self.looks += 1
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


def watch(shared: Streams, name: str | None) -> AsyncIterator[bytes]:
    return shared.events(name, lambda: True)


async def changed(watcher: AsyncIterator[bytes]) -> Any:
    """The next state."""
    return json.loads((await anext(watcher)).removeprefix(b"event: state\ndata: "))


def test_a_state_comes_at_once_and_again_when_it_has_changed() -> None:
    async def test() -> None:
        watched = Counted("a", "b")
        watcher = watch(Streams(watched, asyncio.Event(), SOON), "a")
        assert await changed(watcher) == {"study": "a", "version": 0}
        watched.versions["b"] += 1
        watched.versions["a"] += 1
        assert await changed(watcher) == {"study": "a", "version": 1}
        assert watched.asked == {("view", "a", 0): 1, ("view", "a", 1): 1}

    run(test())


def test_a_state_is_made_once_for_all_who_watch_it_and_by_another_thread() -> None:
    async def test() -> None:
        watched = Counted("a")
        shared = Streams(watched, asyncio.Event(), SOON)
        watchers = [watch(shared, "a") for _ in range(20)]
        for version in range(3):
            watched.versions["a"] = version
            states = await asyncio.gather(*(changed(watcher) for watcher in watchers))
            assert states == [{"study": "a", "version": version}] * 20
        late = await changed(watch(shared, "a"))
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
        watcher = watch(Streams(watched, asyncio.Event(), SOON), "a")
        assert [(await changed(watcher))["version"] for _ in range(2)] == [0, 1]

    run(test())


def test_of_all_studies_only_those_that_changed_are_drawn_again() -> None:
    async def test() -> None:
        watched = Counted("a", "b")
        watcher = watch(Streams(watched, asyncio.Event(), SOON), None)
        assert [s["study"] for s in (await changed(watcher))["studies"]] == ["a", "b"]
        watched.versions["b"] = 1
        assert [s["version"] for s in (await changed(watcher))["studies"]] == [0, 1]
        watched.versions["c"] = 0
        assert [s["study"] for s in (await changed(watcher))["studies"]] == ["a", "b", "c"]
        assert set(watched.asked.values()) == {1}
        assert watched.asked.total() == 4

    run(test())


def test_all_clients_share_one_look_per_interval() -> None:
    """1,000 studies that each of 400 clients looked at took the time that events need."""

    async def test() -> None:
        watched, interval = Counted("a", "b"), 10 * SOON
        shared, time = Streams(watched, asyncio.Event(), interval), asyncio.get_running_loop().time
        watchers = [watch(shared, None) for _ in range(50)]
        events = await asyncio.gather(*(anext(watcher) for watcher in watchers))
        assert len({*map(id, events)}) == 1
        assert watched.looks <= 2  # that of the first, and one that began after all had come
        begun, watched.looks = time(), 0
        waiting = [asyncio.ensure_future(changed(watcher)) for watcher in watchers]
        while watched.looks < 10:
            await asyncio.sleep(SOON)
        assert watched.looks <= 1 + (time() - begun) / interval
        watched.versions["b"] = 1
        states = await asyncio.gather(*waiting)
        assert [study["version"] for study in states[0]["studies"]] == [0, 1]
        assert states == [states[0]] * 50

    run(test())


def test_a_client_that_comes_gets_the_state_of_its_time() -> None:
    async def test() -> None:
        watched = Counted("a")
        shared = Streams(watched, asyncio.Event(), interval=3_600.0)
        for version in range(3):
            watched.versions["a"] = version
            for name in ("a", None):
                assert f'"version": {version}'.encode() in await anext(watch(shared, name))

    run(test())


def test_without_studies_the_state_is_that_there_are_none() -> None:
    async def test() -> None:
        watcher = watch(Streams(Counted(), asyncio.Event(), SOON), None)
        assert await changed(watcher) == {"studies": []}

    run(test())


@pytest.mark.parametrize("name", ["a", None])
def test_stopping_ends_a_stream_though_it_waits(name: str | None) -> None:
    async def test() -> None:
        stop = asyncio.Event()
        watcher = watch(Streams(Counted("a"), stop, interval=3_600.0), name)
        await anext(watcher)
        asyncio.get_running_loop().call_later(SOON, stop.set)
        assert [event async for event in watcher] == []

    run(test())


@pytest.mark.parametrize("name", ["a", None])
def test_a_stream_ends_with_its_token(name: str | None) -> None:
    async def test() -> None:
        valid = [True]
        shared = Streams(Counted("a"), asyncio.Event(), SOON)
        watcher = shared.events(name, lambda: valid[0])
        await anext(watcher)
        valid[0] = False
        assert [event async for event in watcher] == []

    run(test())


# ── as responses ──────────────────────────────────────────────────────────────────────────────────


SCOPE: dict[str, Any] = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.3"},
    "method": "GET",
    "path": "/v1/live",
    "headers": [],
    "query_string": b"",
}


class Reader:
    """A client that leaves after so many parts of a body."""

    def __init__(self, parts: int) -> None:
        self.sent: list[Message] = []
        self._left = parts
        self._gone = asyncio.Event()

    async def receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        self._left -= bool(message.get("body"))
        if self._left == 0:
            self._gone.set()

    @property
    def bodies(self) -> list[str]:
        return [one["body"].decode() for one in self.sent if one.get("body")]


def test_a_stream_is_server_sent_events_and_ends_when_its_watcher_is_gone() -> None:
    async def test() -> None:
        reader = Reader(1)
        shared = Streams(Counted("a"), asyncio.Event(), interval=3_600.0)
        await shared.respond(SCOPE, "a")(SCOPE, reader.receive, reader.send)
        assert reader.bodies == ['event: state\ndata: {"study": "a", "version": 0}\n\n']
        headers = {name.decode(): value.decode() for name, value in reader.sent[0]["headers"]}
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["x-accel-buffering"] == "no"

    run(test())


def test_while_nothing_changes_only_a_comment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 5 * SOON)

    async def test() -> None:
        reader = Reader(4)
        shared = Streams(Counted("a"), asyncio.Event(), interval=SOON)
        await shared.respond(SCOPE, "a")(SCOPE, reader.receive, reader.send)
        state, *comments = reader.bodies
        assert state.startswith("event: state")
        assert comments == [": still here\n\n"] * 3

    run(test())


def test_no_heartbeat_interrupts_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large event takes several writes: bytes between two of them would break its JSON."""
    monkeypatch.setattr(streams, "HEARTBEAT", SOON)

    async def test() -> None:
        writing = interrupted = False
        reader = Reader(3)

        async def send(message: Message) -> None:
            nonlocal writing, interrupted
            interrupted |= writing
            writing = True
            await asyncio.sleep(20 * SOON)
            writing = False
            await reader.send(message)

        shared = Streams(Counted("a"), asyncio.Event(), interval=SOON)
        await shared.respond(SCOPE, "a")(SCOPE, reader.receive, send)
        assert len(reader.bodies) == 3
        assert not interrupted

    run(test())


def test_a_state_that_is_not_watched_takes_no_memory() -> None:
    async def test() -> None:
        shared = Streams(Counted("a", "b"), asyncio.Event(), SOON)
        watchers = [shared.events(name, lambda: True) for name in ("a", "a", None)]
        for watcher in watchers:
            await anext(watcher)
        left = []
        for watcher in watchers:
            left.append(set(shared._looks))
            await watcher.aclose()
        assert left == [{"a", None}, {"a", None}, {None}]
        assert not shared._looks

    run(test())


def test_streams_leave_room_for_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_STREAMS", 1)

    async def test() -> None:
        shared = Streams(Counted("a"), asyncio.Event(), interval=3_600.0)
        first, second = Reader(2), Reader(1)
        watching = asyncio.create_task(shared.respond(SCOPE, "a")(SCOPE, first.receive, first.send))
        while not first.bodies:
            await asyncio.sleep(SOON)
        with pytest.raises(HttpError) as caught:
            await shared.respond(SCOPE, "a")(SCOPE, second.receive, second.send)
        assert (caught.value.status, second.sent) == (503, [])
        watching.cancel()

    run(test())


def test_logs_take_turns_and_those_that_find_no_place_are_refused() -> None:
    """A client that does not read its log holds its place until the server closes it."""

    async def test() -> None:
        slots = Slots(2, "2 logs are being read")
        reading, closed = asyncio.Event(), []

        def lines() -> Iterator[str]:
            try:
                yield "1\n"
                yield "2\n"
            finally:
                closed.append(True)

        async def unread(_: Message) -> None:
            await reading.wait()

        async def never() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        slow = [
            asyncio.create_task(LogResponse(lines(), slots)(SCOPE, never, unread)) for _ in range(2)
        ]
        while not slots._free.locked():
            await asyncio.sleep(0)
        third = Reader(99)
        with pytest.raises(HttpError) as caught:
            await LogResponse(lines(), slots)(SCOPE, never, third.send)
        assert (caught.value.status, caught.value.error) == (503, "busy")
        assert third.sent == []
        reading.set()
        await asyncio.gather(*slow)
        await LogResponse(lines(), slots)(SCOPE, never, third.send)
        assert "".join(third.bodies) == "1\n2\n"
        assert closed == [True] * 3

    run(test())


@pytest.mark.parametrize("cause", ["token", "time"])
def test_a_log_breaks_off_with_its_token_and_after_an_hour(
    cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its last part a response is not complete: the server closes the connection."""
    if cause == "time":
        monkeypatch.setattr(streams, "LONGEST_LOG", 20 * SOON)

    async def test() -> None:
        reader, valid = Reader(99), [True]

        async def send(message: Message) -> None:
            await reader.send(message)
            valid[0] = cause == "time" or len(reader.bodies) < 2
            await asyncio.sleep(SOON)

        lines = itertools.repeat("1\n", 10_000)
        slots = Slots(1, "a log is being read")
        await LogResponse(lines, slots, lambda: valid[0])(SCOPE, reader.receive, send)
        assert 2 <= len(reader.bodies) < 10_000
        assert all(message["more_body"] for message in reader.sent[1:])
        assert not slots._free.locked()

    run(test())


def test_a_log_that_cannot_be_read_gives_its_place_back() -> None:
    async def test() -> None:
        slots = Slots(1, "a log is being read")

        def lost() -> Iterator[str]:
            raise HttpError(503, "store unavailable", "gone")
            yield ""

        for _ in range(3):
            reader = Reader(1)
            with pytest.raises(HttpError, match="gone"):
                await LogResponse(lost(), slots)(SCOPE, reader.receive, reader.send)
            assert reader.sent == []

    run(test())
