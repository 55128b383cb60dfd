"""The service with its writer's thread, without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from understudy.live.clock import ServiceClock
from understudy.live.decision_log import export
from understudy.live.models import Event
from understudy.live.service import Service
from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store import open_reader
from understudy.live.store.records import Decision

__all__ = ["Event", "Service", "TurnedClock", "exported", "policy_after", "served", "study_spec"]

SECOND = 1_000_000


class TurnedClock(ServiceClock):
    """A clock that the test turns; `seconds` is the machine's time at the start."""

    def __init__(self, seconds: float) -> None:
        self._passed = 0
        super().__init__(lambda: round(seconds * SECOND) + self._passed, lambda: self._passed)

    def turn(self, seconds: float) -> None:
        """Let time pass."""
        self._passed += round(seconds * SECOND)


def study_spec(name: str, reward_wait: float = 3600.0) -> StudySpec:
    """A study of two actions."""
    return StudySpec.of({"name": name, "actions": ["a", "b"], "reward_wait": reward_wait})


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
    policy = StudyState.begin(spec).after(decisions).policy
    assert policy is not None
    return policy.to_json()
