"""Whether a store holds what it should: its decisions, folded again, against what was kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from understudy.live.spec import StudySpec
from understudy.live.standing import StudyState
from understudy.live.store.records import Decision, StudyRecord
from understudy.live.store.stores import Reader
from understudy.logs.progress import ProgressCallback

__all__ = ["Audited", "audit", "in_order"]

STRETCH = 10_000


@dataclass(frozen=True)
class Audited:
    """What an audit found about one study.

    `folded` is how many of its `decisions` the newest snapshot stands for, 0 if there is none yet.
    `faults` are in words; without any, what was kept is the fold of the log, bit for bit.
    """

    study: str
    decisions: int
    folded: int
    faults: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.faults


def audit(store: Reader, watch: ProgressCallback) -> list[Audited]:
    """Go over every study of a store from the beginning."""
    return [_audited(store, record, watch) for record in store.studies()]


def in_order(store: Reader, study: int, until: int | None = None) -> Iterator[list[Decision]]:
    """All decisions of a study up to a `seq`, a stretch at a time."""
    after = 0
    while until is None or after < until:
        limit = STRETCH if until is None else min(STRETCH, until - after)
        found = store.decisions(study, after, limit)
        if not found:
            return
        yield found
        after = found[-1].seq


def _audited(store: Reader, record: StudyRecord, watch: ProgressCallback) -> Audited:
    spec = StudySpec.model_validate_json(record.spec)
    snapshot = store.snapshot(record.key)
    folded = 0 if snapshot is None else snapshot.seq
    last = store.last_seq(record.key)
    standing, faults = StudyState.begin(spec, record.base), []
    previous = Decision(0, "", 0, None, None, 0)
    for decisions in in_order(store, record.key, last):  # more may come in meanwhile
        for decision in decisions:
            faults += _faults(previous, decision, spec)
            previous = decision
        due = [decision for decision in decisions if decision.seq <= folded]
        standing = standing.after(due)
        watch(f"auditing {spec.name}", len(decisions), last)
    if previous.seq != last or folded > last:
        faults.append(f"{last} decisions are counted, {previous.seq} were found")
    if snapshot is not None and standing.snapshot() != snapshot:
        faults.append(f"the snapshot after decision {folded} is not the fold of the log")
    return Audited(spec.name, last, folded, tuple(faults[:10]))


def _faults(previous: Decision, decision: Decision, spec: StudySpec) -> list[str]:
    """What cannot be true of two decisions, one after the other."""
    found = []
    if decision.seq != previous.seq + 1:
        found.append(f"decision {decision.seq} comes after {previous.seq}")
    if decision.decided_at < previous.decided_at:
        found.append(f"decision {decision.seq} was made before the one before it")
    rewards = [reward for reward in (decision.reward, decision.late_reward) if reward is not None]
    if len(rewards) != (decision.rewarded_at is not None):
        found.append(f"decision {decision.seq} has a reward without a time, or a time without one")
    elif decision.rewarded_at is not None:
        waited = decision.rewarded_at - decision.decided_at
        if waited < 0 or (decision.reward is not None and waited > spec.wait):
            found.append(f"decision {decision.seq} was rewarded when it did not wait")
    return found
