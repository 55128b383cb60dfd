"""`understudy.live.request_queue`: one answer for each request, in the order of the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from understudy.errors import StoreUnavailable
from understudy.live import request_queue
from understudy.live.request_queue import RequestQueue


def in_loop(play: Callable[[RequestQueue], Awaitable[None]]) -> None:
    """Play with a queue whose thread is the loop's own; no callback of the loop may fail."""
    errors: list[dict[str, Any]] = []

    async def run() -> None:
        loop, requests = asyncio.get_running_loop(), RequestQueue()
        loop.set_exception_handler(lambda _, error: errors.append(error))
        requests.start(loop)
        await play(requests)

    asyncio.run(run())
    assert errors == []


def test_answers_go_to_their_requests() -> None:
    async def play(requests: RequestQueue) -> None:
        futures = [requests.add_task(lambda: None) for _ in range(3)]
        group, stopping = requests.take(0.0)
        assert ([one.future for one in group], stopping) == (futures, False)
        requests.refuse(group[1:2], ValueError("no"))
        requests.answer([group[0], group[2]], ["first", "third"])
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert [str(one) for one in found] == ["first", "no", "third"]
        assert requests.take(0.0) == ([], False)
        assert not requests._pending  # else every request would stay in memory

    in_loop(play)


def test_a_request_has_one_answer() -> None:
    """The loop may answer for a thread that hangs, and a client may leave."""

    async def play(requests: RequestQueue) -> None:
        failed, left = requests.add_task(lambda: None), requests.add_task(lambda: None)
        left.cancel()
        requests.fail_pending("it hangs")
        group, _ = requests.take(0.0)
        requests.answer(group, ["late", "late"])
        await asyncio.sleep(0)  # so that the loop resolves them
        with pytest.raises(StoreUnavailable, match="it hangs"):
            await failed
        assert left.cancelled()

    in_loop(play)


def test_all_requests_are_taken_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_queue, "MOST_IN_GROUP", 2)

    async def play(requests: RequestQueue) -> None:
        futures = [requests.add_task(lambda: None) for _ in range(3)]
        requests.end()
        first, second = requests.take(0.0), requests.take(0.0)
        assert ([len(group) for group, _ in (first, second)]) == [2, 1]
        assert (first[1], second[1]) == (False, True)
        requests.answer([*first[0], *second[0]], [1, 2, 3])
        assert await asyncio.gather(*futures) == [1, 2, 3]

    in_loop(play)


class FakeTime:
    """A clock that only sleeping and `now` move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def test_a_group_waits_for_others_as_long_as_the_last_write_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeTime()
    monkeypatch.setattr(request_queue, "time", clock)

    async def play(requests: RequestQueue) -> None:
        for crowd, write in ((1, 0.0005), (4, 0.0005), (4, 1.0), (4, 0.0), (1, 0.0)):
            for _ in range(crowd):
                requests.add_task(lambda: None)
            assert len(requests.take(0.0)[0]) == crowd
            clock.now += write  # of the group that was taken

    in_loop(play)
    assert clock.slept == pytest.approx([0.0005, 0.003, 0.0])  # none before the first crowd


def test_an_answer_after_the_end_of_the_loop_is_dropped() -> None:
    requests = RequestQueue()

    async def play() -> None:
        requests.start(asyncio.get_running_loop())
        requests.add_task(lambda: None)

    asyncio.run(play())
    requests.answer(requests.take(0.0)[0], ["late"])
