"""The setup of a run: from the log that a user passes to validated batches and their provenance."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa

from understudy.behaviors import Behavior, Logged
from understudy.errors import InvalidArgument, InvalidLog, first_line
from understudy.logs.action_files import probability_vector
from understudy.logs.encoder import Unexpected
from understudy.logs.evaluation.repeated_rows import RepeatedRows, RowCounter
from understudy.logs.evaluation.sticky_columns import StickyColumns, StickyDetector
from understudy.logs.options import Options
from understudy.logs.outputs import ProgressCallback, Quarantine
from understudy.logs.policy import FileRead, Policy, Provenance
from understudy.logs.readers.bandit_feedback import from_bandit_feedback
from understudy.logs.readers.files import FileSource, UnreadFiles, find_files
from understudy.logs.readers.inputs import (
    FrameSource,
    Hashed,
    LogReader,
    LogSource,
    has_propensities,
    prefetch,
    sources_name,
    with_vectors_of,
)
from understudy.logs.readers.propensity_vectors import small_parts
from understudy.logs.readers.units import UnitRows, UsedUnits
from understudy.logs.rules import RejectReason, nothing_left, too_few
from understudy.logs.schema import (
    ACTION,
    ESTIMATED,
    GIVEN,
    LOGGED,
    ROW_HASH,
    UNKNOWN,
    VALUE_HASH,
    VECTOR,
    Actions,
    Columns,
    PropensitySource,
    WeightBound,
)
from understudy.logs.statistics import LogStatistics
from understudy.logs.validate import (
    MOST_ACTIONS,
    RowRules,
    SeenIds,
    ValidatedBatch,
    check,
    labels_of,
)
from understudy.types import Integers

REMEDY = "pass a path, several, a frame (Polars, pandas, PyArrow, …), or a bandit_feedback dict"


@dataclass(frozen=True, eq=False)
class LogInput:
    """The log that a user passed: files or a frame in memory, or a native frame of an engine."""

    sources: Sequence[LogSource]
    native: Any = None

    @staticmethod
    def of(log: Any, format: str | None = None) -> LogInput:  # noqa: A002 - the option's name
        """The input of a path, several paths, a frame, or a bandit_feedback."""
        if isinstance(log, str | os.PathLike):
            return LogInput(find_files([log], format))
        if isinstance(log, Mapping):
            if "n_rounds" not in log:
                raise InvalidLog(
                    "log",
                    [str(key) for key in log],
                    "a dictionary must be Open Bandit Pipeline's bandit_feedback, with 'n_rounds'",
                    "pass columns as a frame, such as pl.DataFrame(log)",
                )
            return LogInput([FrameSource(from_bandit_feedback(log), "bandit_feedback")])
        if isinstance(log, Sequence) and all(isinstance(path, str | os.PathLike) for path in log):
            return LogInput(find_files(log, format))
        try:
            frame = nw.from_native(log)
        except TypeError:
            raise InvalidLog("log", log, "it is not a log", REMEDY) from None
        if isinstance(frame, nw.DataFrame):
            try:
                return LogInput([FrameSource(frame.to_polars())])
            except pa.ArrowException as error:  # a column of objects, which pandas can have
                reason = f"a column has values of several types ({first_line(error)})"
                remedy = "make it a column of texts or of numbers, such as with astype(str)"
                raise InvalidLog("log", "frame", reason, remedy) from None
        if frame.implementation.is_polars():
            return LogInput([FrameSource(frame.collect("polars").to_polars())])
        return LogInput([], log)

    def refuse_folder(self, out: Path) -> None:
        """Raise `InvalidArgument` if results would be written among the files of the log."""
        files = [source.path for source in self.sources if isinstance(source, FileSource)]
        if any(out.resolve() == path.resolve().parent for path in files):
            remedy = "choose another folder for the results"
            raise InvalidArgument("out", str(out), "the log is in this folder", remedy)


@dataclass(frozen=True, eq=False)
class ResolvedLog:
    """A log that can be read: its reader, its rules, its actions, its behavior policy.

    `behavior` holds the probabilities of production, `us.Logged`, or None if they are not known;
    `rows` counts the valid rows if the log was scanned.
    """

    reader: LogReader
    rules: RowRules
    actions: Actions
    propensity_source: PropensitySource
    behavior: Behavior | None
    rows: int | None
    declared_only: bool = False

    @property
    def weight_bound(self) -> WeightBound | None:
        """What bounds the importance weights of its rows."""
        vectors = self.reader.columns.propensity_vector is not None
        least = self.behavior.least_propensity if isinstance(self.behavior, Logged) else None
        return WeightBound.of(self.propensity_source, least, vectors=vectors)

    def batches(self, tests: RowTests | None = None) -> Iterator[ValidatedBatch]:
        """The batches in order; `UnexpectedAction` if one has an action that must be declared.

        Tests of rows see all of them.
        """
        for batch in _validated(self.reader, self.rules, tests, self.behavior):
            if self.declared_only and RejectReason.ACTION_UNKNOWN in batch.reasons():
                raise UnexpectedAction
            yield batch


class RowTests:
    """The search for copies of rows, and for columns in which the action is sticky."""

    def __init__(self, log: ResolvedLog) -> None:
        self._reader = log.reader
        self.copies = RowCounter() if log.reader.compared else None
        counted = log.propensity_source == ESTIMATED
        detector = StickyDetector(in_order=not counted, counted=counted)
        self._sticky = detector if log.reader.examined else None

    @property
    def examined(self) -> bool:
        """Whether the hashes of single values are needed."""
        return self._sticky is not None

    def add(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Count rows as they were read; return them without the hashes of rows."""
        if self.copies is None:
            return frame
        self.copies.add(frame[ROW_HASH])
        return frame.drop(ROW_HASH)

    def bet(self, hashes: pl.DataFrame, batch: ValidatedBatch, behavior: Behavior | None) -> None:
        """Bet on the rows of a batch, given the hashes of values in all of them.

        Rejected rows are draws too: without them, actions whose rewards are missing would be rare.
        """
        actions, q, rejected = batch.actions, batch.propensities, batch.rejected
        if rejected is not None:
            actions = np.full(len(rejected.valid), UNKNOWN)
            actions[rejected.valid], actions[~rejected.valid] = batch.actions, rejected.actions
        assert self._sticky is not None  # the batch is examined
        columns = {name.removeprefix(VALUE_HASH): hashes[name] for name in hashes.columns}
        if q is None and behavior is None:
            self._sticky.add(columns, actions, None)
            return
        if q is None:
            assert isinstance(behavior, np.ndarray)  # there is a column of logged ones
            q = np.where(actions == UNKNOWN, np.nan, behavior[actions])
        elif rejected is not None:
            assert rejected.propensities is not None  # as the valid rows
            own, q = q, np.empty(len(actions))
            q[rejected.valid], q[~rejected.valid] = own, rejected.propensities
        known = q > 0.0  # not where it is nan
        self._sticky.add(columns, np.where(known, actions, UNKNOWN), np.where(known, q, 1.0))

    def repeated(self) -> RepeatedRows | None:
        """The finding about equal rows; one about some columns is tested again, in all of them."""
        if self.copies is None:
            return None
        found = self.copies.finding()
        if found.found:
            counter = RowCounter()
            for hashes in prefetch(self._reader.hashes()):
                counter.add(hashes)
            found = counter.finding()
        return found

    def sticky_columns(self) -> StickyColumns | None:
        """The finding about sticky columns, None if none are examined."""
        return None if self._sticky is None else self._sticky.finding(self._reader.columns.unit)


class UnexpectedAction(Exception):
    """The log shows an action that was not declared, so it has to be scanned first."""


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
    used: UsedUnits | None = None,
) -> ResolvedLog:
    """Fix what the options leave open; the log is scanned only if they do not name its actions.

    A list of actions, or a given behavior, declares the actions. Without either, or if a list may
    `grow`, the actions of the log and the `known` ones are added. A given behavior does not grow by
    the log, because an action that it does not name could not be played. `count` asks for the
    number of rows. `declared_only` skips the scan of a list that may grow: `ResolvedLog.batches`
    then raises if the log shows another action. Rows out of order are sorted in the folder. Units
    that were `used` are left out.
    """
    columns, propensity_source = columns_of(
        options, lambda columns: any(has_propensities(source, columns) for source in sources)
    )
    if VECTOR not in options.columns:
        columns = with_vectors_of(sources, columns)
    reader = reader_of(
        sources, columns, options, folder, watch, source=propensity_source, used=used
    )
    declared = options.declared()
    fixed = options.probabilities is not None or not grow
    closed = bool(declared) and (fixed or declared_only)
    labels, rows = set[str](), None
    if not closed or count:
        rules = rules_of(options, propensity_source, None, None, closed=False)
        labels, rows, reject_counts = _scan(prefetch(_validated(reader, rules)), watch)
        if not rows:
            raise nothing_left(sources_name(sources), reject_counts)
        if len(declared | known | labels) == 1:
            raise too_few(sources_name(sources), next(iter(labels)), reject_counts)
    if closed:
        listed = options.actions is not None and not grow
        actions = declared_actions(options, frozenset() if listed else known)
    else:
        actions = Actions.from_labels(declared | known | labels)
    behavior = behavior_of(propensity_source, options, actions)
    rules = rules_of(options, propensity_source, actions, behavior, closed=closed, known=known)
    return ResolvedLog(reader, rules, actions, propensity_source, behavior, rows, declared_only)


def reader_of(
    sources: Sequence[LogSource],
    columns: Columns,
    options: Options,
    folder: Path,
    watch: ProgressCallback,
    *,
    source: PropensitySource,
    used: UsedUnits | None = None,
) -> LogReader:
    """The reader of the rows in their order, or of one row for each unit that was not `used`."""
    varies = bool(columns.context or columns.eligible)  # then no certificate has estimates
    reader = LogReader(
        sources,
        columns,
        compared=options.compares_rows and columns.id is None and columns.unit is None,
        examined=not options.no_unit and not (source == ESTIMATED and varies),
    )
    reader = reader.in_time_order(folder, watch)
    if columns.unit is None:
        return reader
    reader = reader.by_unit(
        column=columns.unit,
        scale=options.scale,
        most_rows=options.unit_rows,
        used=used,
        guardrails=options.question.guardrails,
        watch=watch,
    )
    counts = reader.units.counts  # type: ignore[union-attr] # made just now
    if counts.units == counts.left_out > 0:
        reason = f"the policy was learned from all of its {counts.units:,} units"
        remedy = "pass a log of other units: the action of a unit was drawn once, for both logs"
        raise InvalidLog("log", sources_name(sources), reason, remedy)
    return reader


def _scan(
    batches: Iterator[ValidatedBatch], watch: ProgressCallback
) -> tuple[set[str], int, Counter[str]]:
    """The labels and the number of the valid rows, and the number of others by reason."""
    labels: set[str] = set()
    reject_counts: Counter[str] = Counter()
    rows = 0
    for batch in batches:
        labels |= set(labels_of(batch.frame[ACTION].unique()).drop_nulls())
        rows += len(batch)
        reject_counts.update(batch.reasons())
        watch("looking", len(batch), None)
        if len(labels) > MOST_ACTIONS:
            reason = f"the log shows more than {MOST_ACTIONS:,} actions, this among them"
            remedy = "check --action, or declare so many with --actions FILE"
            raise InvalidLog("action", min(labels), reason, remedy)
    return labels, rows, reject_counts


def _validated(
    reader: LogReader,
    rules: RowRules,
    tests: RowTests | None = None,
    behavior: Behavior | None = None,
) -> Iterator[ValidatedBatch]:
    """The validated batches of a log; a row whose id came before is in none, but quarantined.

    Tests of rows see all of them but such copies.
    """
    seen = SeenIds()
    hashed: Hashed | None = "some" if tests is not None and tests.copies is not None else None
    frames = reader.batches(hashed=hashed, values=tests is not None and tests.examined)
    for file, frame in _narrow(frames, reader.columns, rules):
        rows = frame if tests is None else tests.add(frame)
        copies = None
        if reader.columns.id is not None:
            rows, copies = seen.split(file, rows)
        hashes = rows.select(name for name in rows.columns if name.startswith(VALUE_HASH))
        batch = check(file, rows.drop(hashes.columns), rules)
        if tests is not None and tests.examined:
            tests.bet(hashes, batch, behavior)
        yield batch if copies is None else copies(batch)


def _narrow(
    frames: Iterator[tuple[str, pl.DataFrame]], columns: Columns, rules: RowRules
) -> Iterator[tuple[str, pl.DataFrame]]:
    """The frames in parts whose propensities of all actions fit into a table of bounded size."""
    if columns.propensity_vector is None or rules.actions is None:
        return frames
    K = len(rules.actions)
    return ((file, part) for file, frame in frames for part in small_parts(frame, K))


def validated_batches(
    log: ResolvedLog,
    quarantine: Quarantine,
    phase: str,
    watch: ProgressCallback,
    *,
    strict: bool,
    tests: RowTests | None = None,
) -> Iterator[ValidatedBatch]:
    """Batches in order; rejected rows go into quarantine or, if `strict`, are an error."""
    for batch in prefetch(log.batches(tests)):
        if strict and len(batch.quarantined):
            file, row, reason = batch.quarantined.select("file", "row", "reason").row(0)
            reason = f"row {row}: {reason}"
            remedy = "correct it, or leave out --strict to put such rows into quarantine.parquet"
            raise InvalidLog("log", file, reason, remedy)
        quarantine.add(batch.quarantined)
        quarantine.rows.update(batch.files)
        watch(phase, len(batch), log.rows)
        if sum(batch.files.values()):
            yield batch


def columns_of(
    options: Options, has_propensities: Callable[[Columns], bool]
) -> tuple[Columns, PropensitySource]:
    """The columns to read, and the source of the propensities."""
    columns, source = Columns(**options.columns), options.behavior
    named = "propensity" in options.columns  # the reader raises if the log has no such column
    vectors = columns.propensity_vector is not None  # which have propensities too
    if source is None:
        source = LOGGED if vectors or named or has_propensities(columns) else ESTIMATED
    if source == LOGGED and vectors and not (named or has_propensities(columns)):
        return dataclasses.replace(columns, propensity=None), source
    if source != LOGGED:
        columns = dataclasses.replace(columns, propensity=None, propensity_vector=None)
    return columns, source


def declared_actions(options: Options, known: frozenset[str]) -> Actions:
    """The declared actions and the `known` ones."""
    labels = options.declared() | known
    if len(labels) == 1:
        reason = "this action alone has a probability, and there is nothing to choose from"
        remedy = "give the others the probability 0, or name all in --actions FILE"
        raise InvalidArgument("behavior", next(iter(labels)), reason, remedy)
    return Actions.from_labels(labels)


def behavior_of(source: PropensitySource, options: Options, actions: Actions) -> Behavior | None:
    """The behavior policy: probabilities, `us.Logged`, or None if they are to be estimated."""
    if source == GIVEN:
        assert options.probabilities is not None
        return probability_vector("behavior", dict(options.probabilities), actions)
    least = options.least_propensity
    if source == LOGGED:
        return Logged(n_actions=len(actions), least_propensity=least)
    if least is not None:
        reason = "the log has no propensities that it could be about"
        remedy = "name their column with --propensity, or leave it out"
        raise InvalidArgument("least_propensity", least, reason, remedy)
    return None


def rules_of(
    options: Options,
    source: PropensitySource,
    actions: Actions | None,
    behavior: Behavior | None,
    *,
    closed: bool,
    known: frozenset[str] = frozenset(),
) -> RowRules:
    """The rules of a valid row; before the actions are known, any label is an action.

    `known` are actions of policies, which are known before the log.
    """
    support = behavior > 0 if isinstance(behavior, np.ndarray) else None
    limits = behavior.range if isinstance(behavior, Logged) else None
    return RowRules(
        actions,
        options.scale,
        source == LOGGED,
        support,
        closed,
        limits,
        order=options.action_order,
        known=known,
    )


# ----------------------------------------------------------------------------------- provenance


def fingerprints_of(sources: Sequence[LogSource]) -> list[str]:
    """The fingerprint of each file or frame; two files of the same bytes are an error."""
    seen: dict[str, str] = {}
    for source in sources:
        fingerprint = source.fingerprint()
        if fingerprint in seen:
            reason = f"it is a copy of {seen[fingerprint]}, whose rows would count twice"
            raise InvalidLog("log", source.name, reason, "leave one of them out")
        seen[fingerprint] = source.name
    return list(seen)


def refuse_learned(
    sources: Sequence[LogSource], fingerprints: Sequence[str], policy: Policy
) -> None:
    """Raise `InvalidLog` if the policy was learned from one of these files already."""
    known = {file.sha256: file.name for file in policy.files}
    names = {file.name for file in policy.files}
    for source, fingerprint in zip(sources, fingerprints, strict=True):
        if fingerprint in known:
            raise InvalidLog(
                "log",
                source.name,
                f"the policy was learned from this file already, as {known[fingerprint]}",
                "pass a log of other rows: a policy neither learns from the same rows twice, nor "
                "is it judged by them",
            )
        if isinstance(source, FileSource) and source.name in names:
            raise InvalidLog(
                "log",
                source.name,
                "the policy was learned from a file of this name that has changed since",
                "put new rows into a file of their own, or rename it if all of its rows are new",
            )


def refuse_same_rows(
    statistics: LogStatistics, counts_over_time: Integers | None, policy: Policy
) -> None:
    """Raise `InvalidLog` if these are the rows that the policy was learned from, by their sums."""
    if policy.knows_rows(statistics, counts_over_time):
        reason = "the policy was learned from these rows"
        remedy = "pass a log of other rows: a policy is not judged by the rows that it learned from"
        raise InvalidLog("log", f"{statistics.sums.rows:,} rows", reason, remedy)


@dataclass(frozen=True, eq=False)
class RunOutcome:
    """The statistics and the provenance of a run over a log.

    `counts_over_time` are known only if the rows have an order; `unexpected` counts values of
    contexts that are unlike all values of the policy's warm-up.
    """

    statistics: LogStatistics
    propensity_source: PropensitySource
    provenance: Provenance
    counts_over_time: Integers | None = None
    unexpected: Mapping[tuple[str, Unexpected], int] = field(default_factory=dict)


def provenance_of(
    sources: Sequence[LogSource],
    fingerprints: Sequence[str],
    quarantine: Quarantine,
    *,
    repeated: RepeatedRows | None = None,
    sticky: StickyColumns | None = None,
    units: UnitRows | None = None,
    bound: WeightBound | None = None,
) -> Provenance:
    """The provenance of rows that were read in order, from the quarantine of the run."""
    rejected, rows = quarantine.by_file(), quarantine.rows if units is None else units.rows_by_file
    files = tuple(
        FileRead(source.name, fingerprint, rows.get(source.name, 0), rejected[source.name])
        for source, fingerprint in zip(sources, fingerprints, strict=True)
    )
    unread = unread_files(sources)
    counts = None if units is None else units.counts
    return Provenance(
        files, quarantine.counts, quarantine.examples, unread, repeated, sticky, counts, bound
    )


def unread_files(sources: Sequence[LogSource]) -> tuple[UnreadFiles, ...]:
    """The files of folders that are not read."""
    return tuple(
        source.unread for source in sources if isinstance(source, FileSource) and source.unread
    )
