"""The thread of `understudy.live.writer`: what fails is answered, and spoils nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.live.running_service import Event, lose_answer, served, study_spec
from understudy.errors import StoreUnavailable
from understudy.live import writer

pytestmark = pytest.mark.plain


def event(name: str) -> Event:
    return Event(id=name, action="a", propensity=0.5, reward=1.0)


async def processed(study: Any, decisions: int) -> None:
    """Wait until so many are."""
    async with asyncio.timeout(60):
        while study.state.seq != decisions:
            await asyncio.sleep(0.01)


def test_one_is_processed_when_it_is_answered_and_a_crowd_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "POLL", 3_600.0)

    async def play() -> None:
        async with served(tmp_path / "store.db") as service:
            study = service.study("ads")
            await service.ingest(study, [event("alone")])
            assert study.state.seq == 1
            await asyncio.gather(*(service.ingest(study, [event(str(i))]) for i in range(200)))
            assert study.state.seq < 201
        assert study.state.seq == 201

    asyncio.run(play())


NOTHING_IS_COMPILED = """
from numba.core.dispatcher import Dispatcher
from understudy.live.state import precompile
from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store.records import Decision

precompile()

def compile(*_):
    raise AssertionError("an event would wait for the compiler")

Dispatcher.compile = compile
contexts = {"age": "number", "city": "text"}
for more in ({}, {"behavior": {"a": 0.5, "b": 0.5, "c": 0.0}}, {"context": contexts}):
    spec = StudySpec.of({"name": "ads", "actions": ["a", "b", "c"], "warmup": 10, **more})
    state = StudyState.begin(spec)
    for seq in range(1, 50):
        context = '{"age": %d, "city": "x%d"}' % (seq, seq % 3) if spec.context else None
        propensity = None if "behavior" in more else 0.5
        decision = Decision(seq, str(seq), seq % 2, propensity, context, seq, 1.0, seq)
        state = state.after([decision])
    assert state.learned > 0
    state.snapshot()
    assert state.result is not None
"""


def test_no_event_waits_for_the_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", NOTHING_IS_COMPILED], check=False)
    assert done.returncode == 0


def test_one_request_cannot_spoil_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with served(tmp_path / "store.db") as service:
            study, store = service.study("ads"), service.writer.store
            write = store.write

            def write_but_one(changes: Sequence[Any], clock: int) -> None:
                if any(decision.id == "poison" for one in changes for decision in one.decisions):
                    raise RuntimeError("an unexpected error")
                write(changes, clock)

            monkeypatch.setattr(store, "write", write_but_one)
            names = [*map(str, range(10)), "poison", *map(str, range(10, 20))]
            sent = [service.ingest(study, [event(name)]) for name in names]
            found = await asyncio.gather(*sent, return_exceptions=True)
            failed = {
                name for name, one in zip(names, found, strict=True) if not isinstance(one, list)
            }
            assert failed == {"poison"}
            await processed(study, 20)

    asyncio.run(play())


def test_a_store_that_fails_is_waited_for(tmp_path: Path) -> None:
    """A write that may or may not have happened: what was not acknowledged is sent again, once."""

    async def play() -> None:
        async with served(tmp_path / "store.db") as service:
            study = service.study("ads")
            await lose_answer(service, event("1"))
            with pytest.raises(StoreUnavailable):  # refused at once, for a while
                await service.ingest(study, [event("1")])
            await asyncio.sleep(0.6)
            (again,) = await service.ingest(study, [event("1")])
            assert again.status == "known"
            assert (study.state.seq, study.next_seq) == (1, 2)

    asyncio.run(play())


def test_who_waits_for_a_store_does_not_spin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was more to process when the store went away: the writer pauses all the same."""

    async def play() -> None:
        async with served(tmp_path / "store.db") as service:
            turns, take = [0], service.writer._requests.take
            answers = iter([True])

            def process(*_: object) -> bool:
                for more in answers:
                    return more
                raise StoreUnavailable("it is gone")

            def counted(wait: float) -> object:
                turns[0] += 1
                return take(wait)

            monkeypatch.setattr(service.writer._requests, "take", counted)
            with monkeypatch.context() as patched:
                patched.setattr(type(service.study("ads")), "process", process)
                await asyncio.sleep(1.0)
            assert 0 < turns[0] < 100

    asyncio.run(play())


def test_a_study_that_cannot_be_kept_does_not_trouble_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with served(tmp_path / "store.db") as service:
            await service.create(study_spec("other"))
            ads, other = service.study("ads"), service.study("other")
            state_class = type(ads.state)
            snapshot = state_class.snapshot

            def one_fails(state: Any, *_: object) -> Any:
                if state.spec.name == "ads" and state.seq:
                    raise ValueError("no number")
                return snapshot(state)

            for study in (ads, other):
                await service.ingest(study, [event("1")])
            monkeypatch.setattr(state_class, "snapshot", one_fails)
            await service.writer.run(lambda: service.writer._save_snapshots(all_of_them=True))
            assert (ads.fault, other.fault) == ("ValueError: no number", None)
            assert (ads.snapshot_seq, other.snapshot_seq) == (0, 1)
            assert service.writer.store_error is None

    asyncio.run(play())


def test_the_clock_never_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with served(tmp_path / "store.db") as service:
            study = service.study("ads")
            await service.ingest(study, [event("1")])
            monkeypatch.setattr("time.time_ns", lambda: 1_000)
            await service.ingest(study, [event("2")])
        async with served(tmp_path / "store.db") as again:
            await again.ingest(again.study("ads"), [event("3")])
            rows = await again.writer.run(lambda: again.writer.store.decisions(1, 0, 10))
            times = [row.decided_at for row in rows]
            assert times == sorted(times)
            assert len(times) == 3

    asyncio.run(play())


def test_a_study_that_cannot_go_on_keeps_its_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with served(tmp_path / "store.db") as service:
            study = service.study("ads")

            def fail(*_: object) -> None:
                raise RuntimeError("a learner gave up")

            with monkeypatch.context() as patched:
                patched.setattr(type(study.state), "after", fail)
                (first,) = await service.ingest(study, [event("1")])
            assert first.status == "accepted"
            assert study.fault == "RuntimeError: a learner gave up"
            (second,) = await service.ingest(study, [event("2")])
            assert (second.status, study.state.seq) == ("accepted", 0)
        async with served(tmp_path / "store.db") as again:
            await processed(again.study("ads"), 2)

    asyncio.run(play())
