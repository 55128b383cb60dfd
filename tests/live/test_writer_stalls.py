"""A store that hangs: `understudy.live.writer` says so, refuses requests, and ends in time."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from tests.support.live.load_generator import until
from tests.support.live.local_server import serving_service
from tests.support.live.running_service import Event, Service, TurnedClock, served, study_spec
from tests.support.live.single_study import statuses
from tests.support.live.temporary_stores import decisions_in
from understudy.errors import StoreUnavailable
from understudy.live import writer

pytestmark = pytest.mark.plain

REASON = r"waiting for its store for \d+ seconds"
LIMIT = 0.2  # seconds; the pauses of the thread between two turns are shorter


def event(name: str) -> Event:
    return Event(id=name, action="a", propensity=0.5, reward=1.0)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "STALLED", LIMIT, raising=False)
    monkeypatch.setattr(writer, "WATCH", 0.02, raising=False)


@contextmanager
def hanging(service: Service, method: str) -> Iterator[threading.Event]:
    """A method of the store does not return until the end; the event is set when it is called."""
    store: Any = service.writer.store
    whole, reached, go_on = getattr(store, method), threading.Event(), threading.Event()

    def hang(*arguments: Any) -> Any:
        reached.set()
        go_on.wait()
        return whole(*arguments)

    setattr(store, method, hang)
    try:
        yield reached
    finally:
        setattr(store, method, whole)
        go_on.set()


async def recovered(service: Service) -> None:
    await until(lambda: service.writer.unavailable is None and not service.writer._is_stalled)


def test_requests_are_answered_and_the_late_write_counts_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with asyncio.timeout(60), served(tmp_path / "store.db") as service:
            study = service.study("ads")
            with hanging(service, "write"):
                sent = [service.ingest(study, [event(str(i))]) for i in range(20)]
                for found in await asyncio.gather(*sent, return_exceptions=True):
                    assert isinstance(found, StoreUnavailable)
                    assert re.search(REASON, str(found))
                reason = service.writer.unavailable
                assert reason is not None
                assert re.search(REASON, reason)
                with pytest.raises(StoreUnavailable, match=REASON):  # at once
                    service.writer.submit(study, [event("more")])
                with pytest.raises(StoreUnavailable, match=REASON):
                    service.writer.run(list)
            await recovered(service)
            again = await service.ingest(study, [event(str(i)) for i in range(20)])
            assert statuses(again) == ["known"] * 20
            await until(lambda: study.state.seq == 20)

    with structlog.testing.capture_logs() as logs:
        asyncio.run(play())
    events = [entry["event"] for entry in logs]
    assert events[:2] == ["the store cannot be used", "the store can be used again"]
    assert len(decisions_in(tmp_path / "store.db")) == 20


@pytest.mark.parametrize("method", ["tokens", "save_snapshot", "write_clock"])
def test_whatever_hangs_new_requests_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Also without any request under way."""
    for name in ("TOKENS_EVERY", "SNAPSHOT_EVERY", "SNAPSHOT_SHARE"):
        monkeypatch.setattr(writer, name, 0.0)
    clock = TurnedClock(1_000.0)

    async def play() -> None:
        async with asyncio.timeout(60), served(tmp_path / "store.db", clock) as service:
            study = service.study("ads")
            with hanging(service, method):
                waiting = Event(id="waiting", action="a", propensity=0.5)
                sent = service.writer.submit(study, [event("1"), waiting])
                await until(lambda: sent.done() or service.writer.unavailable is not None)
                clock.turn(60.0)
                await until(lambda: service.writer.unavailable is not None)
                with pytest.raises(StoreUnavailable):
                    await service.ingest(study, [event("2")])
            await asyncio.gather(sent, return_exceptions=True)
            await recovered(service)
            assert statuses(await service.ingest(study, [event("2")])) == ["accepted"]

    with structlog.testing.capture_logs():
        asyncio.run(play())


def test_a_long_computation_is_not_blamed_on_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    async def play() -> None:
        async with asyncio.timeout(60), served(tmp_path / "store.db") as service:
            study = service.study("ads")
            after = type(study.state).after

            def slowly(*arguments: Any) -> Any:
                go_on.wait()
                return after(*arguments)

            monkeypatch.setattr(type(study.state), "after", slowly)
            with pytest.raises(StoreUnavailable, match="processing decisions for"):
                await service.ingest(study, [event("1")])
            go_on.set()

    with structlog.testing.capture_logs():
        asyncio.run(play())


def test_a_hung_commit_does_not_count_as_waiting(tmp_path: Path) -> None:
    """Rewards could not be delivered meanwhile."""
    clock = TurnedClock(1_000.0)

    async def play() -> None:
        async with (
            asyncio.timeout(60),
            served(tmp_path / "store.db", clock, reward_wait=10.0) as service,
        ):
            study = service.study("ads")
            with hanging(service, "write"):
                with pytest.raises(StoreUnavailable):
                    await service.ingest(study, [Event(id="1", action="a", propensity=0.5)])
                clock.turn(100.0)
            await recovered(service)
            late = await service.ingest(study, [Event(id="1", reward=1.0)])
            assert statuses(late) == ["accepted"]

    with structlog.testing.capture_logs():
        asyncio.run(play())
    assert [row.reward for row in decisions_in(tmp_path / "store.db")] == [1.0]


def test_the_service_ends_while_its_store_hangs(tmp_path: Path) -> None:
    async def play() -> None:
        service = Service(str(tmp_path / "store.db"))
        await service.start()
        study = await service.create(study_spec("ads"))
        with hanging(service, "write") as reached:
            sent = service.writer.submit(study, [event("1")])
            await until(reached.is_set)
            assert not await service.writer.stop(grace=0.05)
            with pytest.raises(StoreUnavailable, match=r"ended before|waiting for its store"):
                await sent
        service.writer._thread.join()  # it ends in order when the store answers after all

    with structlog.testing.capture_logs() as logs:
        asyncio.run(play())
    assert "the service ends before its store has answered" in [entry["event"] for entry in logs]
    assert [row.id for row in decisions_in(tmp_path / "store.db")] == ["1"]


def test_an_answer_after_the_end_of_the_event_loop(tmp_path: Path) -> None:
    """The process may live longer than the service: its thread raises nothing."""
    stack = ExitStack()

    async def play() -> Service:
        service = Service(str(tmp_path / "store.db"))
        await service.start()
        study = await service.create(study_spec("ads"))
        reached = stack.enter_context(hanging(service, "write"))
        sent = service.writer.submit(study, [event("1")])
        await until(reached.is_set)
        assert not await service.writer.stop(grace=0.0)
        assert isinstance(sent.exception(), StoreUnavailable)
        return service

    with structlog.testing.capture_logs():
        with stack:
            service = asyncio.run(play())
        service.writer._thread.join()
    assert [row.id for row in decisions_in(tmp_path / "store.db")] == ["1"]


def test_a_service_that_ends_says_that_all_is_written(tmp_path: Path) -> None:
    async def play() -> bool:
        service = Service(str(tmp_path / "store.db"))
        await service.start()
        study = await service.create(study_spec("ads"))
        await service.ingest(study, [event("1")])
        return await service.stop()

    assert asyncio.run(play())


def test_readiness_and_metrics_say_so(tmp_path: Path) -> None:
    service = Service(str(tmp_path / "store.db"))
    with (
        structlog.testing.capture_logs(),
        serving_service(service) as url,
        httpx.Client(base_url=url, timeout=60.0) as http,
    ):
        spec = {"name": "ads", "actions": ["a", "b"]}
        assert http.post("/v1/studies", json=spec).status_code == 201
        assert "\nunderstudy_store_usable 1.0\n" in http.get("/metrics").text
        with hanging(service, "write"):
            sent = http.post("/v1/studies/ads/events", json=event("1").model_dump(mode="json"))
            ready = http.get("/readyz")
            for refused in (sent, ready):
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                assert re.search(REASON, refused.json()["message"])
            assert "\nunderstudy_store_usable 0.0\n" in http.get("/metrics").text
            assert http.get("/healthz").status_code == 200
            assert http.get("/v1/studies/ads/policy").status_code == 200
        while http.get("/readyz").status_code != 200:
            pass
