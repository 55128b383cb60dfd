"""`understudy.live.live_study`: decisions that wait take bounded memory; the rest stay stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.live.single_study import Event, SingleStudy
from tests.support.live.temporary_stores import database_of
from understudy.live import live_study


def send(single: SingleStudy, *numbers: int) -> None:
    """Send decisions without rewards in one group, with contexts of 33 characters."""
    contexts = [{"size": float(number), "color": "x" * 6} for number in numbers]
    single.send(
        *(
            Event(id=str(number), action="ab"[number % 2], propensity=0.5, context=context)
            for number, context in zip(numbers, contexts, strict=True)
        )
    )


def test_long_contexts_that_wait_stay_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 decisions, ten fit in memory; the rest are read back ten at a time."""
    monkeypatch.setattr(live_study, "MOST_TEXT", 330)
    monkeypatch.setattr(live_study, "CHUNK", 10)
    columns = {"size": "number", "color": "text"}
    single = SingleStudy(tmp_path, context=columns, warmup=10, reward_wait=60.0)
    study = single.study
    for number in range(10, 50):
        send(single, number)
    assert (len(study.waiting), study.all_in_memory) == (10, False)
    single.now += 61_000_000
    while study.process(single.store, single.now):
        assert len(study.waiting) <= 10
    assert (study.state.seq, study.state.expired, study.waiting_text) == (40, 40, 0)
    send(single, *range(50, 60))  # all fits again
    assert (len(study.waiting), study.all_in_memory) == (10, True)


def steps_of_a_reward(single: SingleStudy, number: int) -> int:
    """Count the steps of SQLite's machine: a search in an index is one, a scan has one per row."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    connection = database_of(single.store).connection
    connection.set_progress_handler(count, 1)
    (outcome,) = single.send(Event(id=str(number), reward=1.0))
    connection.set_progress_handler(None, 0)
    assert outcome.status == "accepted"
    return steps


def test_a_reward_of_a_decision_that_is_not_in_memory_costs_the_same_among_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MOST_IN_MEMORY", "CHUNK"):
        monkeypatch.setattr(live_study, name, 10)
    single = SingleStudy(tmp_path, reward_wait=60.0)
    found = []
    for first, last in ((0, 100), (100, 5_000)):
        single.send(
            *(Event(id=str(number), action="a", propensity=0.5) for number in range(first, last))
        )
        single.restart()
        found.append({steps_of_a_reward(single, last - back) for back in range(2, 20)})
        assert (len(single.study.waiting), single.study.all_in_memory) == (10, False)
    assert found[0] == found[1]
    assert len(found[0]) == 1


def test_decisions_that_change_a_large_state_are_processed_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests wait while a chunk is processed: with K p² = 2 · 2² numbers, two decisions."""
    columns = {"size": "number", "color": "text"}
    single = SingleStudy(
        tmp_path, context=columns, warmup=10, reward_wait=60.0, learner="lin-prod-compact"
    )
    send(single, *range(10, 60))
    single.now += 61_000_000
    monkeypatch.setattr(live_study, "CHUNK", 10)
    study = single.study
    assert study.process(single.store, single.now)
    assert (study.state.seq, study.state.numbers) == (10, 8)
    monkeypatch.setattr(live_study, "CHUNK_WORK", 17)
    for seq in (12, 14):
        assert study.process(single.store, single.now)
        assert study.state.seq == seq
