"""The service with its writer's thread, without a network."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest

from understudy.errors import StoreUnavailable
from understudy.live.clock import ServiceClock
from understudy.live.decision_log import export
from understudy.live.models import Event
from understudy.live.service import Service
from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store import open_reader
from understudy.live.store.records import Changes, Decision
from understudy.logs import policy

__all__ = [
    "Event",
    "Service",
    "TurnedClock",
    "exported",
    "lose_answer",
    "parsing_threads",
    "policy_after",
    "served",
    "study_spec",
]

SECOND = 1_000_000


class TurnedClock(ServiceClock):
    """A clock that the test turns; `seconds` is the machine's time at the start."""

    def __init__(self, seconds: float) -> None:
        self._passed = 0
        super().__init__(lambda: round(seconds * SECOND) + self._passed, lambda: self._passed)

    def turn(self, seconds: float) -> None:
        """Let time pass."""
        self._passed += round(seconds * SECOND)


def study_spec(name: str, reward_wait: float = 3600.0, **more: object) -> StudySpec:
    """A study of two actions."""
    return StudySpec.of({"name": name, "actions": ["a", "b"], "reward_wait": reward_wait, **more})


@asynccontextmanager
async def served(
    path: Path, clock: ServiceClock | None = None, reward_wait: float = 3600.0
) -> AsyncIterator[Service]:
    """The service on the store at a path, with the study 'ads'."""
    service = Service(str(path), *(() if clock is None else (clock,)))
    await service.start()
    try:
        await service.create(study_spec("ads", reward_wait))
        yield service
    finally:
        await service.stop()


async def lose_answer(service: Service, event: Event) -> None:
    """Send an event of 'ads': the store writes it, and its answer is lost."""
    store = service.writer.store
    write = store.write

    def write_and_lose(changes: Sequence[Changes], clock: int) -> None:
        write(changes, clock)
        raise StoreUnavailable("the answer was lost")

    with (
        mock.patch.object(store, "write", write_and_lose),
        pytest.raises(StoreUnavailable, match="the answer was lost"),
    ):
        await service.ingest(service.study("ads"), [event])


def parsing_threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that parse a policy.json from now on, once for each time."""
    found: list[threading.Thread] = []
    parse = policy._from_text

    def noted(text: str) -> policy.Policy:
        found.append(threading.current_thread())
        return parse(text)

    monkeypatch.setattr(policy, "_from_text", noted)
    return found


def exported(path: Path) -> int:
    """How many rows are exported now."""
    reader = open_reader(str(path))
    try:
        (record,) = reader.studies()
        out = path.with_suffix(".ndjson")
        return export(reader, record, out, reader.clock(), lambda *_: None)
    finally:
        reader.close()


def policy_after(spec: StudySpec, events: Sequence[Event]) -> str:
    """policy.json after these events, each a decision with its reward, in one piece."""
    decisions = [
        Decision(
            seq,
            sent.id,
            spec.action_index[str(sent.action)],
            sent.propensity,
            None,
            0,
            sent.reward,
            0,
        )
        for seq, sent in enumerate(events, start=1)
    ]
    learned = StudyState.begin(spec).after(decisions).policy
    assert learned is not None
    return learned.to_json()
