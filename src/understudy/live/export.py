"""Export of a study's processed decisions, in order, as a log that `understudy learn` reads."""

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
from understudy.live.ingest import is_ready
from understudy.live.spec import StudySpec
from understudy.live.state import COLUMN_TYPES
from understudy.live.store.records import Decision, StudyRecord, moment
from understudy.live.store.sql import Reader
from understudy.logs.outputs import ProgressCallback, scratch_folder
from understudy.logs.schema import ACTION, LOGGED, PROPENSITY, REWARD

FORMATS = (".parquet", ".ndjson")


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
        with _open_file(part, spec) as write:
            for decisions in _ready(store, record, spec, now):
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
    """Yield the decisions that are processed, up to the first one that still waits."""
    snapshot = store.snapshot(record.key)
    processed = 0 if snapshot is None else snapshot.seq  # even if the clock has gone back since

    def is_due(decision: Decision) -> bool:
        return decision.seq <= processed or is_ready(decision, spec, now)

    for decisions in store.in_order(record.key):
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
    if spec.kind == LOGGED:
        schema[PROPENSITY] = pl.Float64()
    return schema | {name: COLUMN_TYPES[kind] for name, kind in (spec.context or {}).items()}
