"""From a log as it was passed to validated batches: its sources, columns, actions, behavior."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from understudy.behaviors import Behavior, Logged
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.action_files import probability_vector
from understudy.logs.options import Options
from understudy.logs.outputs import ProgressCallback, Quarantine
from understudy.logs.readers.bandit_feedback import from_bandit_feedback
from understudy.logs.readers.files import FileSource, find_files
from understudy.logs.readers.inputs import (
    FrameSource,
    LogReader,
    LogSource,
    has_propensities,
    prefetch,
    sources_name,
)
from understudy.logs.reject_reasons import RejectReason, nothing_left, too_few
from understudy.logs.schema import (
    ACTION,
    ESTIMATED,
    GIVEN,
    LOGGED,
    Actions,
    Columns,
    PropensitySource,
)
from understudy.logs.validate import MOST_ACTIONS, RowRules, ValidatedBatch, check, labels_of

REMEDY = "pass a path, several, a frame (Polars, pandas, PyArrow, …), or a bandit_feedback dict"


@dataclass(frozen=True, eq=False)
class LogInput:
    """A log as it was passed: files or a frame in memory, or a native frame of another engine."""

    sources: Sequence[LogSource]
    native: Any = None

    @staticmethod
    def of(log: Any, format: str | None = None) -> LogInput:  # noqa: A002 - the option's name
        """What is meant by a path, several, a frame, or a bandit_feedback.

        >>> import polars as pl
        >>> [source.name for source in LogInput.of(pl.DataFrame({"action": [1]})).sources]
        ['frame']
        """
        if isinstance(log, str | os.PathLike):
            return LogInput(find_files([log], format))
        if isinstance(log, Mapping):
            if "n_rounds" not in log:
                raise InvalidLog(
                    "log",
                    [str(key) for key in log],
                    "a dictionary is taken for Open Bandit Pipeline's bandit_feedback, with its "
                    "'n_rounds'",
                    "pass columns as a frame, such as pl.DataFrame(log)",
                )
            return LogInput([FrameSource(from_bandit_feedback(log), "bandit_feedback")])
        if isinstance(log, Sequence) and all(isinstance(path, str | os.PathLike) for path in log):
            return LogInput(find_files(log, format))
        try:
            found = nw.from_native(log)
        except TypeError:
            raise InvalidLog("log", log, "it is not a log", REMEDY) from None
        if isinstance(found, nw.DataFrame):
            return LogInput([FrameSource(found.to_polars())])
        if found.implementation.is_polars():
            return LogInput([FrameSource(found.collect("polars").to_polars())])
        return LogInput([], log)

    def refuse_folder(self, out: Path) -> None:
        """Raise `InvalidArgument` if results would be written among the files of the log.

        >>> LogInput([FileSource(Path("logs/a.csv"), "csv")]).refuse_folder(Path("logs"))
        Traceback (most recent call last):
        understudy.errors.InvalidArgument: out = 'logs': the log is in this folder; choose ...
        """
        where, files = out.resolve(), [one for one in self.sources if isinstance(one, FileSource)]
        if any(where == file.path.resolve().parent for file in files):
            raise InvalidArgument(
                "out",
                str(out),
                "the log is in this folder",
                "choose another folder for the results",
            )


@dataclass(frozen=True, eq=False)
class ResolvedLog:
    """A log that can be read: its files and columns, its rules, its actions.

    `kind` says where propensities come from; `behavior` holds the probabilities of production,
    `us.Logged`, or None if they are not known; `rows` counts the valid ones if the log was scanned.
    """

    reading: LogReader
    rules: RowRules
    actions: Actions
    kind: PropensitySource
    behavior: Behavior | None
    rows: int | None
    declared_only: bool = False

    def batches(self) -> Iterator[ValidatedBatch]:
        """Its rows in their order, each batch divided into valid and rejected rows.

        `UnexpectedAction` is raised for the first action that is not declared, if it must be.
        """
        for batch in _validated(self.reading, self.rules):
            if self.declared_only and RejectReason.ACTION_UNKNOWN in batch.reasons():
                raise UnexpectedAction
            yield batch


class UnexpectedAction(Exception):
    """A log shows an action that was not declared, so it has to be scanned first."""


def resolve(
    sources: Sequence[LogSource],
    options: Options,
    folder: Path,
    watch: ProgressCallback,
    *,
    known: frozenset[str] = frozenset(),
    grow: bool = False,
    count: bool = False,
    declared_only: bool = False,
) -> ResolvedLog:
    """Fix what the options leave open; the log is scanned only if they do not say its actions.

    Actions are those declared, by a list or a given behavior; where there are none, or where a list
    may `grow`, those of the log and those `known` otherwise. What a given behavior does not name
    could not be played: it grows by what is known otherwise, not by the log. `count` asks for the
    number of rows. `declared_only` spares the scan of a list that may grow, in the hope that the
    log shows no others (`ResolvedLog.batches`). Unordered rows are sorted in the folder.
    """
    columns, kind = columns_of(
        options, lambda found: any(has_propensities(source, found) for source in sources)
    )
    reading = LogReader(sources, columns).in_time_order(folder, watch)
    declared = options.declared()
    fixed = options.probabilities is not None or not grow
    closed = bool(declared) and (fixed or declared_only)
    labels, rows = set[str](), None
    if not closed or count:
        rules = rules_of(options, kind, None, None, closed=False)
        labels, rows, refused = _scan(prefetch(_validated(reading, rules)), watch)
        if not rows:
            raise nothing_left(sources_name(sources), refused)
        if len(declared | known | labels) == 1:
            raise too_few(sources_name(sources), next(iter(labels)), refused)
    if closed:
        listed = options.actions is not None and not grow
        actions = declared_actions(options, frozenset() if listed else known)
    else:
        actions = Actions.from_labels(declared | known | labels)
    behavior = behavior_of(kind, options, actions)
    rules = rules_of(options, kind, actions, behavior, closed=closed)
    return ResolvedLog(reading, rules, actions, kind, behavior, rows, declared_only)


def _scan(
    batches: Iterator[ValidatedBatch], watch: ProgressCallback
) -> tuple[set[str], int, Counter[str]]:
    """The labels of the valid rows, as text, how many rows these are, and why others are not."""
    labels: set[str] = set()
    refused: Counter[str] = Counter()
    rows = 0
    for checked in batches:
        labels |= set(labels_of(checked.frame[ACTION].unique()).drop_nulls())
        rows += len(checked)
        refused.update(checked.reasons())
        watch("looking", len(checked), None)
        if len(labels) > MOST_ACTIONS:
            raise InvalidLog(
                "action",
                min(labels),
                f"the log shows more than {MOST_ACTIONS:,} actions, this among them",
                "check --action, or declare so many with --actions FILE",
            )
    return labels, rows, refused


def _validated(reading: LogReader, rules: RowRules) -> Iterator[ValidatedBatch]:
    """Every batch of a log, divided into valid and rejected rows."""
    return (check(file, frame, rules) for file, frame in reading.batches())


def good_rows(
    log: ResolvedLog, quarantine: Quarantine, phase: str, watch: ProgressCallback, *, strict: bool
) -> Iterator[ValidatedBatch]:
    """Batches of rows, in their order; those that are bad go into quarantine, or are an error."""
    for checked in prefetch(log.batches()):
        if strict and len(checked.quarantined):
            file, row, reason = checked.quarantined.select("file", "row", "reason").row(0)
            raise InvalidLog(
                "log",
                file,
                f"row {row}: {reason}",
                "correct it, or leave out --strict to put such rows into quarantine.parquet",
            )
        quarantine.add(checked.quarantined)
        quarantine.rows.update(checked.files)
        watch(phase, len(checked), log.rows)
        if sum(checked.files.values()):
            yield checked


def columns_of(
    options: Options, has_propensities: Callable[[Columns], bool]
) -> tuple[Columns, PropensitySource]:
    """Which columns are read, and where the propensities come from."""
    columns, kind = Columns(**options.columns), options.behavior
    if kind is None:
        named = "propensity" in options.columns  # if it is not there, the reader will say so
        kind = LOGGED if named or has_propensities(columns) else ESTIMATED
    return (columns if kind == LOGGED else dataclasses.replace(columns, propensity=None)), kind


def declared_actions(options: Options, known: frozenset[str]) -> Actions:
    """The actions that are declared, and those `known` otherwise."""
    labels = options.declared() | known
    if len(labels) == 1:
        raise InvalidArgument(
            "behavior",
            next(iter(labels)),
            "this action alone has a probability, and there is nothing to choose from",
            "give the others the probability 0, or name all in --actions FILE",
        )
    return Actions.from_labels(labels)


def behavior_of(kind: PropensitySource, options: Options, actions: Actions) -> Behavior | None:
    """The behavior policy: probabilities, `us.Logged`, or None if they are to be counted."""
    if kind == GIVEN:
        assert options.probabilities is not None
        return probability_vector("behavior", dict(options.probabilities), actions)
    return Logged(n_actions=len(actions)) if kind == LOGGED else None


def rules_of(
    options: Options,
    kind: PropensitySource,
    actions: Actions | None,
    behavior: Behavior | None,
    *,
    closed: bool,
) -> RowRules:
    """What a row must be; before the actions are known, any label is one."""
    support = behavior > 0 if isinstance(behavior, np.ndarray) else None
    return RowRules(actions, options.scale, kind == LOGGED, support, closed)
