"""The decisions of a study, read from a store in their order: their audit, and their export.

The audit processes them again and compares the result with the snapshot; the export is a log that
`understudy learn` reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from understudy.errors import InvalidArgument, InvalidLog
from understudy.live.clock import RewardWait, reward_wait
from understudy.live.spec import StudySpec
from understudy.live.state import COLUMN_TYPES, StudyState
from understudy.live.store.records import Decision, Snapshot, StudyRecord, moment
from understudy.live.store.sql import BATCH, Reader
from understudy.logs.outputs import ProgressCallback, scratch_folder
from understudy.logs.schema import ACTION, LOGGED, PROPENSITY, REWARD

MOST_FAULTS = 10  # reported per study: one damaged row often makes all later ones wrong
PROSE = ("theorem", "unmet")  # words in a snapshot's settings: other versions write other ones
# Errors of reading a damaged policy.json
DAMAGED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
FORMATS = (".parquet", ".ndjson")


@dataclass(frozen=True)
class AuditResult:
    """The audit of one study, or of the whole store if `study` is None.

    The newest snapshot covers `processed` of its `decisions`, 0 if there is none yet. Without
    `faults`, the snapshot equals the fold of the decisions, bit for bit.
    """

    study: str | None
    decisions: int
    processed: int
    faults: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.faults


def audit(store: Reader, watch: ProgressCallback) -> list[AuditResult]:
    """Audit every study of a store from its first decision; writes that are lost come first."""
    lost = store.lost_writes()
    fault = f"{lost:,} acknowledged writes are missing: restore a newer copy, or --accept-loss"
    faults = [AuditResult(None, 0, 0, (fault,))] if lost else []
    return faults + [_audit_study(store, record, watch) for record in store.studies()]


def _audit_study(store: Reader, record: StudyRecord, watch: ProgressCallback) -> AuditResult:
    spec = StudySpec.model_validate_json(record.spec)
    snapshot = store.snapshot(record.key)
    processed = 0 if snapshot is None else snapshot.seq
    last = store.last_seq(record.key)
    state = replace(StudyState.begin(spec, record.base), least_warmup=_warmup_of(snapshot))
    compared = processed
    faults: list[str] = []
    previous = Decision(0, "", 0, None, None, 0)
    rows = spec.rows_at_a_time(BATCH)
    for decisions in store.batches(record.key, last, most=rows):  # a running service may add more
        wait = reward_wait(store, record, spec)  # read after the rewards that depend on it
        for decision in decisions:
            faults += _faults(previous, decision, wait)
            previous = decision
        try:
            state = state.after([d for d in decisions if d.seq <= compared])
        except InvalidLog:  # no snapshot could be made of these decisions
            state, compared = StudyState(spec), 0
        watch(f"auditing {spec.name}", len(decisions), last)
    if previous.seq != last or processed > last:
        faults.append(f"{last} decisions are counted, {previous.seq} were found")
    if snapshot is not None and not _are_equal(state.snapshot(), snapshot):
        faults.append(f"the snapshot after decision {processed} differs from the log")
    return AuditResult(spec.name, last, processed, tuple(faults[:MOST_FAULTS]))


def _faults(previous: Decision, decision: Decision, wait: RewardWait) -> Iterator[str]:
    """Yield the faults of a decision that follows another."""
    if decision.seq != previous.seq + 1:
        yield f"decision {decision.seq} comes after {previous.seq}"
    if decision.decided_at < previous.decided_at:
        yield f"decision {decision.seq} was made before the one before it"
    rewards = [reward for reward in (decision.reward, decision.late_reward) if reward is not None]
    if len(rewards) != (decision.rewarded_at is not None):
        yield f"decision {decision.seq} has a reward without a time, or a time without one"
    elif decision.rewarded_at is not None:
        waited = wait.waited(decision.decided_at, decision.rewarded_at)
        early = decision.rewarded_at < decision.decided_at
        if early or (decision.reward is not None and waited > wait.length):
            yield f"decision {decision.seq} was rewarded when it did not wait"


def _are_equal(found: Snapshot | None, kept: Snapshot) -> bool:
    """Return whether two snapshots hold the same numbers, bit for bit; their prose may differ."""
    if found is None or (found.seq, found.expired) != (kept.seq, kept.expired):
        return False
    return _without_prose(found.policy) == _without_prose(kept.policy)


def _warmup_of(snapshot: Snapshot | None) -> int:
    """Return how many decisions a snapshot's warm-up had; 0 if it is damaged."""
    try:
        warmup = 0 if snapshot is None else json.loads(snapshot.policy)["provenance"]["warmup"]
    except DAMAGED:
        return 0
    return warmup if isinstance(warmup, int) else 0


def _without_prose(policy: str) -> str:
    """Return a policy.json without the words in its settings; a damaged one as it is."""
    try:
        content = json.loads(policy)
        for name in PROSE:
            content["settings"].pop(name, None)
    except DAMAGED:
        return policy
    return json.dumps(content)  # as text: values would call 0.0 and -0.0 equal


def study_named(store: Reader, name: str) -> StudyRecord:
    """Return the study of this name, or raise `InvalidArgument`."""
    studies = {record.name: record for record in store.studies()}
    if name not in studies:
        names = ", ".join(studies) or "none"
        raise InvalidArgument("study", name, "the store has no such study", f"it has: {names}")
    return studies[name]


def export(store: Reader, record: StudyRecord, out: Path, now: int, watch: ProgressCallback) -> int:
    """Write the decisions that are processed at the time `now`; return how many."""
    if out.suffix not in FORMATS:
        remedy = f"end it in {' or '.join(FORMATS)}"
        raise InvalidArgument("out", str(out), "its name does not say which format", remedy)
    spec = StudySpec.model_validate_json(record.spec)
    rows, last = 0, store.last_seq(record.key)
    with scratch_folder(out.parent) as hidden:
        part = hidden / out.name
        with _open_file(part, spec) as write:
            for decisions in _ready(store, record, spec, now, last):
                write(decisions)
                rows += len(decisions)
                watch(f"exporting {spec.name}", len(decisions), last)
        part.replace(out)
    return rows


def as_lines(decisions: list[Decision], spec: StudySpec) -> str:
    """Return decisions as NDJSON, one per line.

    >>> spec = StudySpec.of({"name": "a", "actions": ["x", "y"], "behavior": "estimated"})
    >>> as_lines([Decision(1, "d1", 0, None, None, 0, 0.5, 0)], spec)
    '{"id":"d1","time":"1970-01-01T00:00:00.000000Z","action":"x","reward":0.5,"rewarded":true}\\n'
    """
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return "".join(encode(_row(decision, spec)) + "\n" for decision in decisions)


def _row(decision: Decision, spec: StudySpec) -> dict[str, Any]:
    rewarded = decision.reward is not None
    row: dict[str, Any] = {
        "id": decision.id,
        "time": moment(decision.decided_at).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        ACTION: spec.labels.labels[decision.action],
        REWARD: decision.reward if rewarded else spec.expired_reward,
        "rewarded": rewarded,
    }
    if spec.propensity_source == LOGGED:
        row[PROPENSITY] = decision.propensity
    row.update(json.loads(decision.context or "{}"))
    return row


def _ready(
    store: Reader, record: StudyRecord, spec: StudySpec, now: int, last: int
) -> Iterator[list[Decision]]:
    """Yield batches of processed decisions up to `last`, or the first one that still waits."""
    snapshot = store.snapshot(record.key)
    processed = 0 if snapshot is None else snapshot.seq  # 0.5.0 did not write every time it went by
    wait = reward_wait(store, record, spec)

    def is_due(decision: Decision) -> bool:
        return decision.seq <= processed or wait.is_ready(decision, now)

    rows = spec.rows_at_a_time(BATCH)
    for decisions in store.batches(record.key, last, most=rows):  # a running service may add more
        ready = list(takewhile(is_due, decisions))
        if ready:
            yield ready
        if len(ready) < len(decisions):
            return


@contextmanager
def _open_file(path: Path, spec: StudySpec) -> Iterator[Callable[[list[Decision]], object]]:
    """Open a file of either format; yield the function that writes decisions to it."""
    if path.suffix == ".ndjson":
        with path.open("w", encoding="utf-8") as file:
            yield lambda decisions: file.write(as_lines(decisions, spec))
        return
    schema = _schema(spec)
    arrow = pl.DataFrame(schema=schema).to_arrow().schema
    with pq.ParquetWriter(path, arrow) as writer:

        def write(decisions: list[Decision]) -> None:
            rows = [_row(decision, spec) for decision in decisions]
            writer.write_table(pl.DataFrame(rows, schema=schema).to_arrow().cast(arrow))

        yield write


def _schema(spec: StudySpec) -> dict[str, pl.DataType]:
    schema: dict[str, pl.DataType] = {
        "id": pl.String(),
        "time": pl.String(),
        ACTION: pl.Int64() if isinstance(spec.labels.labels[0], int) else pl.String(),
        REWARD: pl.Float64(),
        "rewarded": pl.Boolean(),
    }
    if spec.propensity_source == LOGGED:
        schema[PROPENSITY] = pl.Float64()
    return schema | {name: COLUMN_TYPES[kind] for name, kind in (spec.context or {}).items()}
