"""A study's log, as `understudy learn` reads it: what was learned from, in its order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from understudy.errors import InvalidArgument
from understudy.live.audit import in_order
from understudy.live.spec import StudySpec
from understudy.live.standing import TYPES
from understudy.live.store.records import Decision, StudyRecord, moment
from understudy.live.store.stores import Reader
from understudy.live.taking import is_ready
from understudy.logs.outputs import scratch_folder
from understudy.logs.progress import ProgressCallback
from understudy.logs.schema import ACTION, LOGGED, PROPENSITY, REWARD

__all__ = ["as_lines", "export", "study_named"]

FORMATS = (".parquet", ".ndjson")


def study_named(store: Reader, name: str) -> StudyRecord:
    """The study of this name, or `InvalidArgument`."""
    studies = {record.name: record for record in store.studies()}
    if name not in studies:
        names = ", ".join(studies) or "none"
        raise InvalidArgument("study", name, "the store has no such study", f"it has: {names}")
    return studies[name]


def export(store: Reader, record: StudyRecord, out: Path, now: int, watch: ProgressCallback) -> int:
    """Write what has been learned from up to now; how many decisions that is."""
    if out.suffix not in FORMATS:
        raise InvalidArgument(
            "out",
            str(out),
            "its name does not say which format",
            f"end it in {' or '.join(FORMATS)}",
        )
    spec = StudySpec.model_validate_json(record.spec)
    rows, last = 0, store.last_seq(record.key)
    with scratch_folder(out.parent) as hidden:
        part = hidden / out.name
        with _writing(part, spec) as write:
            for decisions in _ready(store, record, spec, now):
                write(decisions)
                rows += len(decisions)
                watch(f"exporting {spec.name}", len(decisions), last)
        part.replace(out)
    return rows


def as_lines(decisions: list[Decision], spec: StudySpec) -> str:
    """Decisions as NDJSON, one a line.

    >>> spec = StudySpec.of({"name": "a", "actions": ["x", "y"], "behavior": "estimated"})
    >>> as_lines([Decision(1, "d1", 0, None, None, 0, 0.5, 0)], spec)
    '{"id":"d1","time":"1970-01-01T00:00:00.000000Z","action":"x","reward":0.5,"rewarded":true}\\n'
    """
    rows = (_row(decision, spec) for decision in decisions)
    return "".join(
        json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows
    )


def _row(decision: Decision, spec: StudySpec) -> dict[str, Any]:
    when = moment(decision.decided_at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    rewarded = decision.reward is not None
    row: dict[str, Any] = {
        "id": decision.id,
        "time": when,
        ACTION: spec.labels.labels[decision.action],
        REWARD: decision.reward if rewarded else spec.default,
        "rewarded": rewarded,
    }
    if spec.kind == LOGGED:
        row[PROPENSITY] = decision.propensity
    row.update(json.loads(decision.context or "{}"))
    return row


def _ready(
    store: Reader, record: StudyRecord, spec: StudySpec, now: int
) -> Iterator[list[Decision]]:
    """What had its turn, or has it now, up to the first decision that still waits."""
    snapshot = store.snapshot(record.key)
    folded = 0 if snapshot is None else snapshot.seq  # whatever the clock says by now

    def is_due(decision: Decision) -> bool:
        return decision.seq <= folded or is_ready(decision, spec, now)

    for decisions in in_order(store, record.key):
        ready = list(takewhile(is_due, decisions))
        if ready:
            yield ready
        if len(ready) < len(decisions):
            return


@contextmanager
def _writing(path: Path, spec: StudySpec) -> Iterator[Callable[[list[Decision]], object]]:
    """What writes decisions to a file of either format."""
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
    if spec.kind == LOGGED:
        schema[PROPENSITY] = pl.Float64()
    return schema | {name: TYPES[kind] for name, kind in (spec.context or {}).items()}
