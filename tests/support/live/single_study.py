"""A study on a store of its own, with a clock that the test turns: no threads, no network."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from understudy.live.clock import Outages, set_back
from understudy.live.decision_log import AuditResult, audit, export, study_named
from understudy.live.ingest import Outcome
from understudy.live.live_study import LiveStudy
from understudy.live.models import Event
from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store import open_store
from understudy.live.store.records import Decision, Outage, Snapshot

__all__ = [
    "LEARNED",
    "SECOND",
    "Decision",
    "Event",
    "Outage",
    "SingleStudy",
    "StudyState",
    "learned_parts",
    "statuses",
]

SECOND = 1_000_000
LEARNED = (
    *("rows", "policy", "learner", "state", "behavior", "certificate", "curve", "tally"),
    *("stretches", "encoder"),
)


class SingleStudy:
    """Does what the writer's thread does, step by step."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        self.path = folder / "store.db"
        self.now = SECOND
        self.store = open_store(str(self.path))
        self.store.open()
        checked = StudySpec.of({"name": "study", "actions": ["a", "b"], **spec})
        record = self.store.add_study("study", checked.model_dump_json(), None, self.now)
        self.study = LiveStudy(record, self.store)

    def send(self, *events: Event) -> list[Outcome]:
        """Commit a group of events, and process them."""
        study = self.study
        for event in events:
            assert not study.spec.faults(event)
        ingest = study.ingest(self.store, events, self.now)
        outcomes = ingest.add(events)
        self.store.write([ingest.changes], self.now)
        study.apply(ingest)
        self.process()
        return outcomes

    def wait(self, seconds: float) -> None:
        """Let time pass, and process what has expired."""
        self.now += round(seconds * SECOND)
        self.store.write_clock(self.now)
        self.process()

    def outage(self, seconds: float) -> None:
        """Let time pass in which nothing can be delivered."""
        begun, self.now = self.now, self.now + round(seconds * SECOND)
        outages = self.study.wait.outages + Outage(begun, self.now)
        self.store.write_clock(self.now, outages.found[-1])
        self.study.wait = replace(self.study.wait, outages=outages)
        self.process()

    def process(self) -> None:
        while self.study.process(self.store, self.now):
            pass

    def restart(self, *, snapshot: bool = False) -> None:
        """Begin again from what is on disk."""
        if snapshot:
            self.study.save_snapshot(self.store)
        self.store.close()
        self.store = open_store(str(self.path))
        self.store.open()
        (record,) = self.store.studies()
        self.study = LiveStudy(record, self.store, Outages(self.store.outages()))
        self.process()

    def set_back(self, seconds: float) -> None:
        """Set the clock of the store back to a time, and begin again from what is on disk."""
        self.now = round(seconds * SECOND)
        set_back(self.store, self.now)
        self.restart()

    def audit(
        self, progress: Callable[..., None] = lambda *_: None, *, rounded: int = 0
    ) -> list[AuditResult]:
        """What an audit finds; so many numbers of the snapshot were rounded otherwise."""
        found = audit(self.store, progress)
        assert sum(result.rounded for result in found) == rounded
        return found

    def export(self, out: Path) -> int:
        """Write the log of decisions that are over now; return how many they are."""
        record = study_named(self.store, "study")
        return export(self.store, record, out, self.now, lambda *_: None)

    def save_snapshot_text(self, seq: int, text: str) -> None:
        """Store a text, good or bad, as the snapshot after so many decisions."""
        self.store.save_snapshot(self.study.record.key, Snapshot(seq, text, 0))

    def policy(self) -> str:
        """policy.json now."""
        policy = self.study.state.policy
        assert policy is not None
        return policy.to_json()


def learned_parts(policy: str) -> dict[str, Any]:
    """Of a policy.json, what was learned; not which files it was learned from."""
    content = json.loads(policy)
    return {part: content[part] for part in LEARNED}


def statuses(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]
