"""The audit of a store: its decisions are processed again, and compared with its snapshots."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store.records import Decision, StudyRecord
from understudy.live.store.sql import Reader
from understudy.logs.outputs import ProgressCallback

MOST_FAULTS = 10  # reported per study: one damaged row often makes all later ones wrong


@dataclass(frozen=True)
class AuditResult:
    """The audit of one study.

    The newest snapshot covers `processed` of its `decisions`, 0 if there is none yet. Without
    `faults`, the snapshot is the fold of the log, bit for bit.
    """

    study: str
    decisions: int
    processed: int
    faults: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.faults


def audit(store: Reader, watch: ProgressCallback) -> list[AuditResult]:
    """Audit every study of a store from its first decision."""
    return [_audit_study(store, record, watch) for record in store.studies()]


def _audit_study(store: Reader, record: StudyRecord, watch: ProgressCallback) -> AuditResult:
    spec = StudySpec.model_validate_json(record.spec)
    snapshot = store.snapshot(record.key)
    processed = 0 if snapshot is None else snapshot.seq
    last = store.last_seq(record.key)
    state, faults = StudyState.begin(spec, record.base), []
    previous = Decision(0, "", 0, None, None, 0)
    for decisions in store.in_order(record.key, last):  # a running service may add more
        for decision in decisions:
            faults += _faults(previous, decision, spec)
            previous = decision
        state = state.after([decision for decision in decisions if decision.seq <= processed])
        watch(f"auditing {spec.name}", len(decisions), last)
    if previous.seq != last or processed > last:
        faults.append(f"{last} decisions are counted, {previous.seq} were found")
    if snapshot is not None and state.snapshot() != snapshot:
        faults.append(f"the snapshot after decision {processed} is not the fold of the log")
    return AuditResult(spec.name, last, processed, tuple(faults[:MOST_FAULTS]))


def _faults(previous: Decision, decision: Decision, spec: StudySpec) -> list[str]:
    """Return what is impossible about a decision that follows another."""
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
        if waited < 0 or (decision.reward is not None and waited > spec.reward_wait_us):
            found.append(f"decision {decision.seq} was rewarded when it did not wait")
    return found
