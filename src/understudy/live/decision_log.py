"""The decisions of a study, read from a store in their order: their audit, and their export.

The audit processes them again and compares the result with the snapshot; the export is a log that
`understudy learn` reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from understudy.errors import InvalidArgument, InvalidLog
from understudy.live.clock import RewardWait, reward_wait
from understudy.live.decision_contexts import COLUMN_TYPES
from understudy.live.spec import UNIT, VECTOR, StudySpec
from understudy.live.state import StudyState, reward_of
from understudy.live.store.records import (
    Decision,
    Snapshot,
    StudyRecord,
    moment,
    unpack_doubles,
)
from understudy.live.store.sql import BATCH, Reader
from understudy.logs.outputs import ProgressCallback, scratch_folder
from understudy.logs.schema import ACTION, LOGGED, PROPENSITY, REWARD

MOST_FAULTS = 10  # reported per study: one damaged row often makes all later ones wrong
PROSE = ("theorem", "unmet")  # words in a snapshot's settings: other versions write other ones
SETTINGS = "settings"  # of a snapshot: they are not computed, so nothing rounds them
# Relative and absolute: processors and libraries of linear algebra round by some 1e-16 each time,
# and the compensations of sums are rounding errors themselves.
ROUNDING = 1e-9
# Errors of reading a damaged policy.json
DAMAGED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
FORMATS = (".parquet", ".ndjson")
Keys = tuple[str | int, ...]  # from the whole of a JSON text to a part of it


@dataclass(frozen=True)
class AuditResult:
    """The audit of one study, or of the whole store if `study` is None.

    The newest snapshot covers `processed` of its `decisions`, 0 if there is none yet. Without
    `faults`, the snapshot equals the fold of the decisions, bit for bit but for `rounded` numbers:
    they differ by less than 1e-9, because another machine made the snapshot, or a part of it.
    """

    study: str | None
    decisions: int
    processed: int
    faults: tuple[str, ...]
    rounded: int = 0

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
    try:
        begin = StudyState.begin(spec, record.base)
    except InvalidArgument as error:  # the policy.json that it continues cannot be read
        return AuditResult(spec.name, last, processed, (str(error),))
    state = replace(begin, least_warmup=_warmup_of(snapshot))
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
    rounded = 0 if snapshot is None else _rounded(state.snapshot(), snapshot)
    if rounded is None:
        faults.append(f"the snapshot after decision {processed} differs from the log")
    return AuditResult(spec.name, last, processed, tuple(faults[:MOST_FAULTS]), rounded or 0)


def _faults(previous: Decision, decision: Decision, wait: RewardWait) -> Iterator[str]:
    """Yield the faults of a decision that follows another."""
    if decision.seq != previous.seq + 1:
        yield f"decision {decision.seq} comes after {previous.seq}"
    if decision.decided_at < previous.decided_at:
        yield f"decision {decision.seq} was made before the one before it"
    for place, event in enumerate((decision, *decision.events), start=1):
        name = f"decision {decision.seq}"
        if place > 1:
            name = f"event {place} of the unit of {name}"
            late = wait.waited(decision.decided_at, event.decided_at) > wait.length
            if event.place != place or place > wait.events:
                yield f"{name} is missing, or one too many"
            if late or event.decided_at < decision.decided_at:
                yield f"{name} came when it did not wait"
        yield from _faults_of_reward(name, event, decision.decided_at, wait)


def _faults_of_reward(name: str, event: Decision, since: int, wait: RewardWait) -> Iterator[str]:
    """Yield the faults of the reward of an event, whose decision waits since a time."""
    rewards = [reward for reward in (event.reward, event.late_reward) if reward is not None]
    if len(rewards) != (event.rewarded_at is not None):
        yield f"{name} has a reward without a time, or a time without one"
    elif event.rewarded_at is not None:
        waited = wait.waited(since, event.rewarded_at)
        early = event.rewarded_at < event.decided_at
        if early or (event.reward is not None and waited > wait.length):
            yield f"{name} was rewarded when it did not wait"


def _rounded(found: Snapshot | None, kept: Snapshot) -> int | None:
    """Count the numbers of a snapshot that differ by rounding; None if anything else differs."""
    if found is None or (found.seq, found.expired) != (kept.seq, kept.expired):
        return None
    if found.policy == kept.policy:
        return 0
    rounded = 0
    try:
        for one, other in zip_longest(_parts(_content(found)), _parts(_content(kept))):
            if repr(one) == repr(other):  # as text, because 0.0 == -0.0
                continue
            if one is None or other is None or not _differ_by_rounding(*one, *other):
                return None
            rounded += 1
    except DAMAGED:
        return None
    return rounded


def _content(snapshot: Snapshot) -> dict[str, Any]:
    """Return a policy.json without the words in its settings."""
    content: dict[str, Any] = json.loads(snapshot.policy)
    for name in PROSE:
        content[SETTINGS].pop(name, None)
    return content


def _parts(value: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield all parts of JSON with their paths; of an object or a list, its type."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in inside:
        if isinstance(part, dict | list):
            yield (*path, name), type(part)
            yield from _parts(part, (*path, name))
        else:
            yield (*path, name), part


def _differ_by_rounding(path: Keys, one: Any, other_path: Keys, other: Any) -> bool:
    return (
        path == other_path
        and path[0] != SETTINGS
        and isinstance(one, float)
        and isinstance(other, float)
        and math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING)
    )


def _warmup_of(snapshot: Snapshot | None) -> int:
    """Return how many decisions a snapshot's warm-up had; 0 if it is damaged."""
    try:
        warmup = 0 if snapshot is None else json.loads(snapshot.policy)["provenance"]["warmup"]
    except DAMAGED:
        return 0
    return warmup if isinstance(warmup, int) else 0


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
    """Return decisions as NDJSON, one per line; a unit is one decision.

    The reward of a unit whose action changes is unknown, so it is null.

    >>> spec = StudySpec.of({"name": "a", "actions": ["x", "y"], "behavior": "estimated"})
    >>> as_lines([Decision(1, "d1", 0, None, None, 0, 0.5, 0)], spec)
    '{"id":"d1","time":"1970-01-01T00:00:00.000000Z","action":"x","reward":0.5,"rewarded":true}\\n'
    """
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return "".join(encode(_row(decision, spec)) + "\n" for decision in decisions)


def _row(decision: Decision, spec: StudySpec) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": decision.id,
        "time": moment(decision.decided_at).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        ACTION: spec.labels.labels[decision.action],
        REWARD: None if decision.changes_action else reward_of(decision, spec),
        "rewarded": decision.is_rewarded(spec.unit_rows or 1),
    }
    if spec.propensity_source == LOGGED:
        row[PROPENSITY] = decision.propensity
    if decision.propensity_vector is not None:
        vector = unpack_doubles(decision.propensity_vector).tolist()
        row[VECTOR] = dict(zip(spec.labels.texts, vector, strict=True))
    if decision.unit is not None:
        row[UNIT] = decision.unit
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
            for row in rows if spec.propensity_vectors else ():
                row[VECTOR] = json.dumps(row[VECTOR], ensure_ascii=False)
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
    schema |= dict.fromkeys(spec.extra_columns, pl.String())
    return schema | {name: COLUMN_TYPES[kind] for name, kind in (spec.context or {}).items()}
