"""`understudy.live.snapshot_saver`: a thread of its own makes snapshots, the writer writes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.support.live.single_study import Event, SingleStudy
from understudy.live.snapshot_saver import SnapshotSaver

EVERY, SHARE, PATIENCE = 10.0, 50.0, 60.0


class Hold:
    """Holds the making of snapshots until it is released; `errors` are those that end it."""

    def __init__(self, single: SingleStudy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.released = threading.Event()
        self.threads: list[str] = []
        self.errors: list[Exception] = []
        state_class = type(single.study.state)
        made = state_class.snapshot

        def held(state: Any, pause: Callable[[], object] = lambda: None) -> Any:
            self.threads.append(threading.current_thread().name)
            self.begun.set()
            assert self.released.wait(PATIENCE)
            try:
                pause()
            except Exception as error:
                self.errors.append(error)
                raise
            return made(state, pause)

        monkeypatch.setattr(state_class, "snapshot", held)


@pytest.fixture
def single(tmp_path: Path) -> Iterator[SingleStudy]:
    one = SingleStudy(tmp_path)
    yield one
    one.store.close()


def learn(single: SingleStudy, number: int) -> None:
    single.send(Event(id=str(number), action="a", propensity=0.5, reward=1.0))


def saved(single: SingleStudy) -> Any:
    return single.store.snapshot(single.study.record.key)


def advance_until_idle(saver: SnapshotSaver, single: SingleStudy) -> None:
    """Begin, wait for the thread, and write."""
    saver.advance(single.store, [single.study])
    thread = saver._thread
    if thread is not None:
        thread.join(PATIENCE)
        saver.advance(single.store, [single.study])


@pytest.fixture
def making(single: SingleStudy, monkeypatch: pytest.MonkeyPatch) -> tuple[Hold, SnapshotSaver]:
    """A snapshot after one decision, which is being made."""
    hold, saver = Hold(single, monkeypatch), SnapshotSaver(EVERY, SHARE)
    learn(single, 1)
    saver.advance(single.store, [single.study])
    assert hold.begun.wait(PATIENCE)
    return hold, saver


def test_the_writer_goes_on_while_a_snapshot_is_made(
    single: SingleStudy, making: tuple[Hold, SnapshotSaver]
) -> None:
    hold, saver = making
    for number in (2, 3):  # a turn of the writer: events, and a look at the snapshots
        learn(single, number)
        saver.advance(single.store, [single.study])
    assert (single.study.state.seq, saved(single)) == (3, None)
    hold.released.set()
    advance_until_idle(saver, single)
    assert (saved(single).seq, single.study.snapshot_seq) == (1, 1)
    assert hold.threads == ["understudy-snapshots"]
    assert [result.faults for result in single.audit()] == [()]


def test_at_the_end_the_newest_states_are_saved(
    single: SingleStudy, making: tuple[Hold, SnapshotSaver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot that is being made is given up: its study is saved with all its decisions."""
    hold, saver = making
    learn(single, 2)
    join = threading.Thread.join

    def release_and_join(thread: threading.Thread) -> None:
        hold.released.set()
        join(thread, PATIENCE)

    monkeypatch.setattr(threading.Thread, "join", release_and_join)
    saver.finish(single.store, [single.study])
    assert [type(error) for error in hold.errors] == [InterruptedError]
    assert (saved(single).seq, single.study.fault) == (2, None)


def test_at_the_end_snapshots_are_saved_for_a_while_the_most_useful_first(
    single: SingleStudy,
) -> None:
    """A service with many large studies must stop in time: the next start processes the rest."""
    clock = [0.0]
    order: list[str] = []

    class Large:
        def __init__(self, name: str, new: int) -> None:
            self.name, self.new = name, new

        def unsaved(self) -> int:
            return self.new

        def save_snapshot(self, _: object) -> None:
            order.append(self.name)
            clock[0] += 2.0

    sizes = {"few": 1, "none": 0, "many": 9, "some": 5, "more": 4}
    studies: Any = [Large(name, new) for name, new in sizes.items()]
    SnapshotSaver(EVERY, SHARE, lambda: clock[0]).finish(single.store, studies)
    assert order == ["many", "some", "more"]


def test_a_snapshot_of_a_study_that_was_loaded_again_is_dropped(
    single: SingleStudy, making: tuple[Hold, SnapshotSaver]
) -> None:
    hold, saver = making
    single.study.load(single.store)  # another writer may have processed other rewards
    hold.released.set()
    advance_until_idle(saver, single)
    assert saved(single) is None


def test_a_snapshot_that_is_made_while_a_study_is_loaded_is_dropped(
    single: SingleStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is the old one until the end: other threads must not take it for the new one."""
    learn(single, 1)
    made: list[Any] = []
    find = single.store.snapshot

    def make_meanwhile(key: int) -> Any:
        made.append(single.study.make_snapshot())
        return find(key)

    with monkeypatch.context() as patched:
        patched.setattr(single.store, "snapshot", make_meanwhile)
        single.study.load(single.store)
    for one in made:
        single.study.keep_snapshot(single.store, one)
    assert (len(made), saved(single)) == (1, None)


def test_a_study_that_was_loaded_again_shows_its_new_state(single: SingleStudy) -> None:
    """Another writer may have processed other rewards: as many decisions, and another policy."""
    learn(single, 1)
    policies = iter([b"1", b"2", b"3"])

    def show(*_: object) -> bytes:
        return next(policies)

    assert [single.study.policy_json(show) for _ in range(2)] == [b'"1"'] * 2
    single.study.load(single.store)
    single.process()
    assert [single.study.policy_json(show) for _ in range(2)] == [b'"2"'] * 2


def test_without_a_thread_the_writer_goes_on(
    single: SingleStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may have no more of them for a while."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    now = [0.0]
    saver = SnapshotSaver(EVERY, SHARE, lambda: now[0])
    learn(single, 1)
    with monkeypatch.context() as patched, structlog.testing.capture_logs() as logs:
        patched.setattr(threading.Thread, "start", fail)
        for _ in range(3):  # it is tried again later, not at every turn
            saver.advance(single.store, [single.study])
    assert [entry["event"] for entry in logs] == ["no snapshot was made"]
    now[0] += EVERY
    advance_until_idle(saver, single)
    assert saved(single).seq == 1


def test_an_error_stops_the_study_alone(
    single: SingleStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no number")

    learn(single, 1)
    monkeypatch.setattr(type(single.study.state), "snapshot", fail)
    saver = SnapshotSaver(EVERY, SHARE)
    advance_until_idle(saver, single)
    assert (single.study.fault, single.study.unsaved()) == ("ValueError: no number", 0)


def test_snapshots_take_a_share_of_the_time(single: SingleStudy) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0  # every look takes a second
        return now[0]

    saver = SnapshotSaver(EVERY, SHARE, clock)
    learn(single, 1)
    advance_until_idle(saver, single)
    assert single.study.snapshot_seq == 1
    learn(single, 2)
    now[0] += 100.0
    advance_until_idle(saver, single)
    assert single.study.snapshot_seq == 1  # making and writing took three seconds
    now[0] += 100.0
    advance_until_idle(saver, single)
    assert single.study.snapshot_seq == 2
