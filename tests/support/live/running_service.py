"""The service with its writer's thread, without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from understudy.live.decision_log import export
from understudy.live.models import Event
from understudy.live.service import Service
from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store import open_reader
from understudy.live.store.records import Decision

__all__ = ["Event", "Service", "exported", "policy_after", "served", "study_spec"]


def study_spec(name: str) -> StudySpec:
    """A study of two actions."""
    return StudySpec.of({"name": name, "actions": ["a", "b"]})


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[Service]:
    """The service on the store at a path, with the study 'ads'."""
    service = Service(str(path))
    await service.start()
    try:
        await service.create(study_spec("ads"))
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
