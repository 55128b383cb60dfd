"""`understudy.live.live_study`: decisions that wait take bounded memory; the rest stay stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.live.single_study import Event, SingleStudy
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
    monkeypatch.setattr(live_study, "CHUNK_VALUES", 20)
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
