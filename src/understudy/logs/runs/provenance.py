"""Where rows come from: files or frames, their fingerprints, and how many rows each gave.

A policy is not judged by the rows that it was learned from: fingerprints and sums tell them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.aggregation.aggregates import LogStatistics
from understudy.logs.outputs import ProgressCallback, Quarantine, by_reason
from understudy.logs.policy import FileRead, Policy
from understudy.logs.readers.bandit_feedback import from_bandit_feedback
from understudy.logs.readers.files import FileSource, UnreadFiles, find_files
from understudy.logs.readers.inputs import FrameSource, LogSource, prefetch
from understudy.logs.runs.setup import ResolvedLog
from understudy.logs.schema import QUARANTINE
from understudy.logs.validate import ValidatedBatch
from understudy.types import Integers

MANY = 1_000  # rows: so many do not have the same sums by chance
REMEDY = "pass a path, several, a frame (Polars, pandas, PyArrow, …), or a bandit_feedback dict"


def origins_of(log: Any, format: str | None = None) -> list[LogSource]:  # noqa: A002 - the option's name
    """The files or the frame that are meant.

    >>> [table.name for table in origins_of(pl.DataFrame({"action": [1]}))]
    ['frame']
    """
    if isinstance(log, str | os.PathLike):
        return list(find_files([log], format))
    if isinstance(log, Mapping):
        _refuse_columns(log)
        return [FrameSource(from_bandit_feedback(log), "bandit_feedback")]
    if isinstance(log, Sequence) and all(isinstance(path, str | os.PathLike) for path in log):
        return list(find_files(log, format))
    return [FrameSource(as_polars(log))]


def _refuse_columns(log: Mapping[Any, Any]) -> None:
    """Raise `InvalidLog` for a dictionary of columns, which `bandit_feedback` is not."""
    if "n_rounds" not in log:
        raise InvalidLog(
            "log",
            [str(key) for key in log],
            "a dictionary is taken for Open Bandit Pipeline's bandit_feedback, with its 'n_rounds'",
            "pass columns as a frame, such as pl.DataFrame(log)",
        )


def as_polars(frame: Any) -> pl.DataFrame:
    """A frame of any library that narwhals knows, in memory."""
    try:
        native = nw.from_native(frame)
    except TypeError:
        raise InvalidLog("log", frame, "it is not a log", REMEDY) from None
    if isinstance(native, nw.LazyFrame):
        native = native.collect("polars")
    found: pl.DataFrame = native.to_polars()
    return found


def fingerprints_of(origins: Sequence[LogSource]) -> list[str]:
    """What tells the rows of each file or frame from those of others.

    Two files of the same bytes are refused: their rows would count twice.

    >>> len(fingerprints_of([FrameSource(pl.DataFrame({"action": [1]}))]))
    1
    """
    found = [origin.fingerprint() for origin in origins]
    _refuse_twice(origins, found)
    return found


def refuse_learned(
    origins: Sequence[LogSource], fingerprints: Sequence[str], policy: Policy
) -> None:
    """Raise `InvalidLog` if the policy was learned from one of these files already."""
    known = {file.sha256: file.name for file in policy.files}
    names = {file.name for file in policy.files}
    for origin, fingerprint in zip(origins, fingerprints, strict=True):
        if fingerprint in known:
            raise InvalidLog(
                "log",
                origin.name,
                f"the policy was learned from this file already, as {known[fingerprint]}",
                "pass a log of other rows: what was learned from cannot be learned from again, "
                "nor judge what was learned",
            )
        if isinstance(origin, FileSource) and origin.name in names:
            raise InvalidLog(
                "log",
                origin.name,
                "the policy was learned from a file of this name that has changed since",
                "put new rows into a file of their own, or rename it if all of its rows are new",
            )


def refuse_same_rows(tallied: LogStatistics, stretches: Integers | None, policy: Policy) -> None:
    """Raise `InvalidLog` if these are the rows that the policy was learned from, however they came.

    They have the same sums of each action; few rows may by chance, if their order is not known.
    """
    if knows_rows(policy, tallied, stretches):
        raise InvalidLog(
            "log",
            f"{tallied.tally.rows:,} rows",
            "the policy was learned from these rows",
            "pass a log of other rows: what was learned from cannot judge what was learned",
        )


def knows_rows(policy: Policy, tallied: LogStatistics, stretches: Integers | None) -> bool:
    """Whether the sums are those of the rows that the policy was learned from."""
    here, there = tallied.tally, policy.study.tally
    place = {text: i for i, text in enumerate(tallied.actions.texts)}
    if here.rows != there.rows or not place.keys() >= set(policy.actions.texts):
        return False
    own = [place[text] for text in policy.actions.texts]
    same = all(
        np.allclose(column[own], kept, rtol=1e-9, atol=0.0, equal_nan=True)
        for column, kept in ((here.counts, there.counts), (here.rewards, there.rewards))
    )
    early, before = stretches, policy.study.stretches.counts
    if early is None or not len(before):
        return same and here.rows >= MANY
    return same and np.array_equal(early[:, own], before)


def _refuse_twice(origins: Sequence[LogSource], fingerprints: Sequence[str]) -> None:
    """Raise `InvalidLog` if two files hold the same bytes: rows would count twice."""
    seen: dict[str, str] = {}
    for origin, fingerprint in zip(origins, fingerprints, strict=True):
        if fingerprint in seen:
            raise InvalidLog(
                "log",
                origin.name,
                f"it is a copy of {seen[fingerprint]}, whose rows would count twice",
                "leave one of them out",
            )
        seen[fingerprint] = origin.name


def refuse_inside(out: Path, origins: Iterable[LogSource]) -> None:
    """Raise `InvalidArgument` if results would be written among the files of the log.

    >>> refuse_inside(Path("logs"), [FileSource(Path("logs/a.csv"), "csv")])
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: out = 'logs': the log is in this folder; choose another ...
    """
    where = out.resolve()
    if any(isinstance(one, FileSource) and where == one.path.resolve().parent for one in origins):
        raise InvalidArgument(
            "out", str(out), "the log is in this folder", "choose another folder for the results"
        )


@dataclass(frozen=True, eq=False)
class Provenance:
    """What came in: the files, and how many rows of which were refused for which reason.

    `examples` are some of them, as in quarantine.parquet; `unread` names files of
    folders that did not come in.
    """

    files: tuple[FileRead, ...]
    quarantined: Mapping[tuple[str, str], int]
    examples: pl.DataFrame
    unread: tuple[UnreadFiles, ...] = ()

    @property
    def refused(self) -> Counter[str]:
        """How many rows were refused for which reason, of all files."""
        return by_reason(self.quarantined)

    @staticmethod
    def in_no_order(
        engine: str, refused: Mapping[str, int], origins: Sequence[LogSource]
    ) -> Provenance:
        """From sums, which do not tell files and rows apart."""
        where = f"all files, as {engine} read them"
        counts = {(where, reason): count for reason, count in refused.items()}
        return Provenance((), counts, pl.DataFrame(schema=QUARANTINE), _unread(origins))


def good_rows(
    log: ResolvedLog, quarantine: Quarantine, phase: str, watch: ProgressCallback, *, strict: bool
) -> Iterator[ValidatedBatch]:
    """Batches of rows, in their order; those that are bad go into quarantine, or are an error."""
    for checked in prefetch(log.batches()):
        if strict and len(checked.quarantined):
            raise _fatal(checked.quarantined)
        quarantine.add(checked.quarantined)
        quarantine.rows.update(checked.files)
        watch(phase, len(checked), log.rows)
        if sum(checked.files.values()):
            yield checked


def intake_of(
    origins: Sequence[LogSource], fingerprints: Sequence[str], quarantine: Quarantine
) -> Provenance:
    """What came in, once a log was gone over."""
    refused = quarantine.by_file()
    files = tuple(
        FileRead(origin.name, fingerprint, quarantine.rows[origin.name], refused[origin.name])
        for origin, fingerprint in zip(origins, fingerprints, strict=True)
    )
    return Provenance(files, quarantine.counts, quarantine.examples, _unread(origins))


def _unread(origins: Sequence[LogSource]) -> tuple[UnreadFiles, ...]:
    return tuple(
        origin.unread for origin in origins if isinstance(origin, FileSource) and origin.unread
    )


def _fatal(quarantined: pl.DataFrame) -> InvalidLog:
    file, row, reason = quarantined.select("file", "row", "reason").row(0)
    return InvalidLog(
        "log",
        file,
        f"row {row}: {reason}",
        "correct it, or leave out --strict to put such rows into quarantine.parquet",
    )
