"""Bounds in bytes: long contexts count in `understudy.live.request_queue`, and in reads."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.live.running_service import Event, Service, served, study_spec
from tests.support.live.single_study import SECOND, Decision, SingleStudy
from understudy.errors import StoreUnavailable
from understudy.live import request_queue

pytestmark = pytest.mark.plain

TEXTS = {f"text {number}": "text" for number in range(10)}
WIDE = {f"column {number}": "number" for number in range(64)}  # as many as a context may have


def long_event(name: str) -> Event:
    """An event of ten kilobytes."""
    context: dict[str, Any] = dict.fromkeys(TEXTS, 1_000 * "a")
    return Event(id=name, action="a", propensity=0.5, context=context, reward=1.0)


async def sent_while_it_writes(service: Service, names: str) -> list[Any]:
    """Queue one event after another behind a write that lasts; return their outcomes."""
    study = await service.create(study_spec("long", context=TEXTS))
    go_on = threading.Event()
    holding = service.writer.run(go_on.wait)
    sent = [asyncio.ensure_future(service.ingest(study, [long_event(name)])) for name in names]
    await asyncio.sleep(0)  # so that all are queued
    go_on.set()
    await holding
    return await asyncio.gather(*sent, return_exceptions=True)


def test_the_queue_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_queue, "MOST_QUEUED", 25)

    async def play() -> None:
        async with served(tmp_path / "store.db") as service:
            first, second, third = await sent_while_it_writes(service, "123")
            assert [one[0].status for one in (first, second)] == ["accepted", "accepted"]
            assert isinstance(third, StoreUnavailable)
            assert "than there is room for" in str(third)
            (again,) = await service.ingest(service.study("long"), [long_event("3")])
            assert again.status == "accepted"

    asyncio.run(play())


def test_a_group_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_queue, "MOST_IN_GROUP", 20)

    async def play() -> None:
        async with served(tmp_path / "store.db") as service:
            found = await sent_while_it_writes(service, "12345")
            assert [one[0].status for one in found] == ["accepted"] * 5
            assert service.writer.commits == 3

    asyncio.run(play())


def test_wide_decisions_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """Each may have 64 KB: an audit, a log and the learner read 512 of them at a time."""
    single = SingleStudy(tmp_path, context=WIDE, warmup=100_000)
    context = single.study.spec.context_text(dict.fromkeys(WIDE, 1.0))
    ingest = single.study.ingest(single.store, [], single.now)
    ingest.changes.decisions += [
        Decision(n, str(n), 0, 0.5, context, SECOND, 1.0, SECOND) for n in range(1, 601)
    ]
    single.store.write([ingest.changes], single.now)
    read: list[int] = []

    def progress(_: str, rows: int, __: int) -> None:
        read.append(rows)

    assert [result.faults for result in single.audit(progress)] == [()]
    assert read == [512, 88]
    single.study.reload(single.store)
    assert single.study.process(single.store, single.now)
    assert single.study.state.seq == 512
    single.store.close()

    async def lines() -> list[int]:
        service = Service(str(single.path))
        await service.start()
        try:
            study = service.study("study")
            while study.state.seq < 600:
                await asyncio.sleep(0.01)
            found = await asyncio.to_thread(list, service.log_lines(study))
            return [text.count("\n") for text in found]
        finally:
            await service.stop()

    assert asyncio.run(lines()) == [512, 88]
