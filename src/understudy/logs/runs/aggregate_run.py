"""Learning, coverage and certificates from sums over a log, whose rows have no order.

`--engine` names the engine, or the log is a native frame of DuckDB, Dask or PySpark.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from understudy.behaviors import Behavior
from understudy.certificates import Certificate
from understudy.certificates.evidence import confidence_of_each
from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.aggregation.aggregates import log_statistics, row_counts, seen_actions
from understudy.logs.aggregation.engines import lazy, open_frame
from understudy.logs.aggregation.sufficient_statistics import SummedState, learn_sums
from understudy.logs.aggregation.summed_questions import SummedQuestion
from understudy.logs.encoder import UnexpectedValues
from understudy.logs.evaluation.questions import QuarantinedRows
from understudy.logs.evaluation.repeated_rows import (
    RepeatedRows,
    RowCounter,
    histogram_finding,
)
from understudy.logs.evaluation.sticky_columns import StickyColumns
from understudy.logs.evaluation.target_policies import (
    ColumnTarget,
    Target,
    all_candidates,
    baseline_over,
    certify_candidates,
    is_hindsight,
    may_play_others,
)
from understudy.logs.evaluation.verdicts import Candidate
from understudy.logs.features import LearnerFactory
from understudy.logs.options import Options
from understudy.logs.outputs import QUARANTINE_FILE, ProgressCallback, Quarantine
from understudy.logs.policy import Policy, Provenance
from understudy.logs.readers.inputs import (
    FrameSource,
    LogReader,
    LogSource,
    count_rows,
    has_propensities,
    prefetch,
    sources_name,
)
from understudy.logs.rules import nothing_left, refuse_rejected_rows, too_few
from understudy.logs.runs.certificate_path import CertificatePath
from understudy.logs.runs.setup import (
    ResolvedLog,
    RowTests,
    RunOutcome,
    behavior_of,
    columns_of,
    declared_actions,
    fingerprints_of,
    provenance_of,
    rules_of,
    unread_files,
    validated_batches,
)
from understudy.logs.runs.study import Study
from understudy.logs.schema import (
    ESTIMATED,
    LOG,
    NO_VECTORS,
    QUARANTINE,
    UNIT,
    VECTOR,
    Actions,
    Columns,
    PropensitySource,
    WeightBound,
)
from understudy.logs.settings import CHECK, Assumption, Choice, choose
from understudy.logs.statistics import ActionStatistics, CountsOverTime, LogStatistics

# Its gains are sums of formulas, for given and for logged propensities alike. prod-grid's are too,
# but production is one of its experts, whose gains no group of an action has.
SUMMED_DEFAULT = "coverage-adaptive"
# Rows in which sticky columns are sought, before sums decide: a few for each of the 100,000 values
# of a column that are followed. They are read in a second or two, and fit into memory.
EXAMINED = 1 << 19


@dataclass(frozen=True, eq=False)
class AggregateRun:
    """A run over rows in no order, from files that an engine opens or a `native` frame."""

    sources: Sequence[LogSource]
    options: Options
    folder: Path
    watch: ProgressCallback
    strict: bool
    engine: str
    native: Any = None

    def __post_init__(self) -> None:
        if self.engine != "polars" and any(isinstance(one, FrameSource) for one in self.sources):
            reason = "the frame is in memory already, where Polars computes"
            remedy = "pass engine='polars', a path, or a native frame of the engine"
            raise InvalidArgument("engine", self.engine, reason, remedy)

    # ------------------------------------------------------------------------------------ learn

    def learn(
        self,
        earlier: Policy | None,
        earlier_quarantine: Path | None,  # noqa: ARG002 - it cannot go on
    ) -> tuple[Policy, Provenance, UnexpectedValues]:
        """Learn with a fixed rate from sums per action; without an order there is no certificate.

        Rejected rows are found by a second pass, in order.
        """
        if earlier is not None:
            raise InvalidArgument(
                "resume", self.engine, "sums cannot go on from a policy", "leave out --engine"
            )
        with ThreadPoolExecutor(1) as pool:
            hashing = pool.submit(fingerprints_of, self.sources)
            policy, log = self._learn_sums()
            fingerprints = hashing.result()
        if self.strict:
            refuse_rejected_rows(policy.refused)
        with Quarantine(self.folder / QUARANTINE_FILE) as quarantine:
            if policy.refused and self.sources:
                for _ in validated_batches(
                    log, quarantine, "quarantining", self.watch, strict=self.strict
                ):
                    pass
            else:
                quarantine.rows.update(count_rows(self.sources, log.reader.columns))
        repeated = self._repeated(log.reader.columns)
        bound = self._bound(policy.settings.behavior)
        provenance = provenance_of(
            self.sources, fingerprints, quarantine, repeated=repeated, bound=bound
        )
        policy = dataclasses.replace(policy, files=provenance.files, repeated=repeated)
        if not self.sources:
            provenance = self._provenance(policy.refused, repeated, bound)
        return policy, provenance, UnexpectedValues()

    def _learn_sums(self) -> tuple[Policy, ResolvedLog]:
        """The policy, and the same log resolved for reading in order."""
        options = self.options
        columns, source = self._columns()
        if options.horizon is None or source == ESTIMATED:
            raise InvalidArgument(
                "horizon" if options.horizon is None else "behavior",
                options.horizon if options.horizon is None else source,
                f"{self.engine} gives rows in no order, which takes a fixed rate and known "
                "propensities",
                "pass --horizon N and propensities, or leave out --engine",
            )
        declared = options.declared()
        with self._opened(columns) as frame:
            actions = options.actions or (
                Actions.from_labels(declared) if declared else seen_actions(frame, columns)
            )
            choice, behavior, summed = self._sum(frame, columns, source, actions)
            if not summed.counts.sum():
                raise nothing_left(LOG, summed.reject_counts)
            if not declared and not summed.counts.all():  # a label needs a valid row
                labels = np.array(actions.texts)[summed.counts > 0].tolist()
                if len(labels) == 1:
                    raise too_few(LOG, labels[0], summed.reject_counts)
                actions = Actions.from_labels(labels)
                choice, behavior, summed = self._sum(frame, columns, source, actions)
        sums = ActionStatistics.without_propensities(summed.counts, summed.rewards)
        unmet = () if declared else (Assumption.DECLARED_ACTIONS,)
        settings = dataclasses.replace(
            choice.settings(columns, options.scale, source, *unmet),
            repeated_rows=options.repeated_rows or CHECK,
        )
        rules = rules_of(options, source, actions, behavior, closed=bool(declared))
        log = ResolvedLog(LogReader(self.sources, columns), rules, actions, source, behavior, None)
        no_counts = CountsOverTime.empty(len(actions))  # without an order there is no time
        policy = Policy(
            actions=actions,
            study=Study(behavior, sums, no_counts, (None,), choice.learner, summed.state),
            settings=settings,
            average=choice.learner.policy(summed.state),
            files=(),
            refused=summed.reject_counts,
        )
        return policy, log

    def _sum(
        self, frame: Any, columns: Columns, source: PropensitySource, actions: Actions
    ) -> tuple[Choice, Behavior | None, SummedState]:
        """The learner for these actions, and its state after all rows."""
        options, behavior = self.options, behavior_of(source, self.options, actions)
        wanted = options.learner or SUMMED_DEFAULT
        choice = choose(wanted, LearnerFactory(behavior, len(actions), options.horizon))
        summed = learn_sums(
            frame,
            columns,
            choice.learner,  # type: ignore[arg-type] # refused if it is of another kind
            actions=actions,
            reward_range=self._range,
        )
        return choice, behavior, summed

    # ------------------------------------------------------------------------------------ cover

    def cover(
        self, targets: Sequence[Target], fingerprints: Sequence[str]
    ) -> tuple[RunOutcome, Sequence[Candidate], Sequence[Certificate | None]]:
        """The outcome, and the candidates with their certificates."""
        options = self.options
        columns, source = self._columns()
        with self._opened(columns) as frame:
            known = frozenset(label for target in targets for label in target.labels)
            statistics = self._statistics(frame, columns, known, options.actions)
            declared = bool(options.declared())
            candidates = all_candidates(targets, fingerprints, statistics, declared=declared)
            certificates: Sequence[Certificate | None] = ()
            if source != ESTIMATED:
                certificates = certify_candidates(
                    frame,
                    columns,
                    statistics,
                    candidates,
                    confidence=options.confidence_or_default,
                    **self._reading,
                )
            sticky = self._sticky(frame, columns, source, statistics.actions)
        repeated, bound = self._repeated(columns), self._bound(source)
        provenance = self._provenance(statistics.reject_counts, repeated, bound, sticky)
        return RunOutcome(statistics, source, provenance), candidates, certificates

    # ---------------------------------------------------------------------------------- certify

    def certify(
        self,
        targets: Sequence[Target],
        baseline: Target | None,
        fingerprints: Sequence[str],  # noqa: ARG002 - sums do not distinguish files
    ) -> tuple[list[CertificatePath], RunOutcome]:
        """The certificates of fixed policies at the end of the log, without a curve."""
        options = self.options
        columns, source = self._columns()
        if source == ESTIMATED:
            reason = "its estimate takes an order"
            raise InvalidArgument("behavior", source, reason, "pass propensities, or no --engine")
        question = options.question
        if question.guardrails and question.quarantined is QuarantinedRows.MISSING_AT_RANDOM:
            reason = "sums in no order do not leave out the same rows of each metric"
            value = question.quarantined.value
            raise InvalidArgument("quarantined", value, reason, "leave out --engine")
        every = [*targets, *([] if baseline is None else [baseline])]
        labels = frozenset(label for target in every for label in target.labels)
        with self._opened(columns) as frame:
            statistics = None
            if options.probabilities is None:
                statistics = self._statistics(frame, columns, options.declared() | labels)
                actions = statistics.actions
            else:
                actions = declared_actions(options, labels)
            confidence = confidence_of_each(options.confidence_or_default, len(targets))
            against = None
            if baseline is not None:
                if baseline.fixed(actions) is None:
                    reason = "it depends on the row"
                    raise InvalidArgument("against", baseline.name, reason, "leave out --engine")
                against = baseline_over(baseline, actions, options.declared()).fixed(actions)
            found = [
                SummedQuestion(
                    frame,
                    columns,
                    question,
                    actions,
                    self._policy(target, actions),
                    against,
                    confidence,
                    {
                        **self._reading,
                        "partial": may_play_others(target, actions, options.actions),
                    },
                ).path()
                for target in targets
            ]
            paths, reject_counts = [path for path, _ in found], found[0][1]
            if statistics is None:
                statistics = self._statistics(frame, columns, frozenset(), actions)
            if not statistics.sums.rows:
                raise nothing_left(LOG, reject_counts)
            sticky = self._sticky(frame, columns, source, actions)
        if self.strict:
            refuse_rejected_rows(reject_counts)
        with Quarantine(self.folder / QUARANTINE_FILE):
            pass  # sums do not identify the rejected rows
        statistics = dataclasses.replace(statistics, reject_counts=reject_counts)
        repeated, bound = self._repeated(columns), self._bound(source)
        provenance = self._provenance(reject_counts, repeated, bound, sticky)
        return paths, RunOutcome(statistics, source, provenance)

    def _statistics(
        self, frame: Any, columns: Columns, known: frozenset[str], actions: Actions | None = None
    ) -> LogStatistics:
        """The statistics over the actions, by default those of the log and the `known` ones."""
        if actions is None:
            # How large a propensity may be depends on how many actions the log shows.
            anyhow = {**self._reading, "least_propensity": None}
            found = log_statistics(frame, columns, **anyhow)
            if known <= set(found.actions.keys) and self.options.least_propensity is None:
                return found
            actions = Actions.from_labels(known | set(found.actions.keys))
        return log_statistics(frame, columns, actions=actions, **self._reading)

    def _policy(self, target: Target, actions: Actions) -> Array | None:
        """The target's probabilities, or None if a column has them."""
        if is_hindsight(target, actions, self.options.declared()):
            reason = "it plays actions that only the log shows, which takes an order to certify"
            remedy = "declare all of them with --actions FILE, or leave out --engine"
            raise InvalidArgument("policy", target.name, reason, remedy)
        policy = target.fixed(actions)
        if policy is None and not isinstance(target, ColumnTarget):
            raise InvalidArgument(
                "policy", target.name, "it depends on the row", "leave out --engine"
            )
        return policy

    # ---------------------------------------------------------------------------------- reading

    def _repeated(self, columns: Columns) -> RepeatedRows | None:
        """The finding about equal rows, by a pass over the files, or by the engine of a frame."""
        if not self.options.compares_rows:
            return None
        if self.native is not None:
            return histogram_finding(row_counts(self.native))
        self.watch("comparing", 0, None)
        counter = RowCounter()
        for hashes in prefetch(LogReader(self.sources, columns).hashes()):
            counter.add(hashes)
            self.watch("comparing", len(hashes), None)
        return counter.finding()

    def _sticky(
        self, frame: Any, columns: Columns, source: PropensitySource, actions: Actions
    ) -> StickyColumns | None:
        """The finding about sticky columns in the first rows, which Polars reads in order."""
        if self.options.no_unit or source == ESTIMATED:  # sums certify nothing by estimates
            return None
        sources = self.sources
        if self.native is not None:
            rows = lazy(frame).head(EXAMINED)
            known = [name for name, kind in rows.collect_schema().items() if kind != nw.Object]
            sources = [FrameSource(rows.select(known).collect("polars").to_native())]
        behavior = behavior_of(source, self.options, actions)
        rules = rules_of(self.options, source, actions, behavior, closed=True)
        reader = LogReader(sources, columns, examined=True)
        log = ResolvedLog(reader, rules, actions, source, behavior, None)
        tests, left = RowTests(log), EXAMINED
        for batch in log.batches(tests):
            self.watch("examining", sum(batch.files.values()), EXAMINED)
            left -= sum(batch.files.values())
            if left <= 0:
                break
        return tests.sticky_columns()

    @contextmanager
    def _opened(self, columns: Columns) -> Iterator[Any]:
        """The native frame, as long as the context lasts."""
        tables = [source.frame for source in self.sources if isinstance(source, FrameSource)]
        if self.native is not None or tables:
            yield self.native if self.native is not None else tables[0]
            return
        files = [source for source in self.sources if not isinstance(source, FrameSource)]
        try:
            with open_frame(self.engine, files, columns) as frame:
                yield frame
        except InvalidLog as error:
            if error.value != LOG:
                raise
            raise InvalidLog(LOG, sources_name(files), error.reason, error.remedy) from None

    def _bound(self, source: PropensitySource) -> WeightBound | None:
        return WeightBound.of(source, self.options.least_propensity, vectors=False)

    def _columns(self) -> tuple[Columns, PropensitySource]:
        """The columns to read, and the source of the propensities."""
        for role in ("time", "eligible", "context", "id", "experts", "unit"):
            if self.options.columns.get(role):
                reason = "sums in no order do not read it"
                remedy = "leave it out, or --engine"
                if role == UNIT:  # without it, all of its rows would count as draws
                    remedy = "leave out --engine"
                    if self.native is not None:
                        remedy = "pass files, or a frame of Polars, in place of the native frame"
                raise InvalidArgument(role, self.options.columns[role], reason, remedy)
        if name := self.options.columns.get(VECTOR):
            reason = "sums in no order need one bound on the weights of all rows"
            remedy = (
                f"pass --propensity-vector {NO_VECTORS}, and --least-propensity F if every action "
                "has at least the propensity F in every row; or leave out --engine"
            )
            raise InvalidArgument(VECTOR, name, reason, remedy)
        return columns_of(self.options, self._has_propensities)

    def _has_propensities(self, columns: Columns) -> bool:
        if self.native is not None:
            return columns.propensity in nw.from_native(self.native).collect_schema()
        return any(has_propensities(source, columns) for source in self.sources)

    def _provenance(
        self,
        reject_counts: Mapping[str, int],
        repeated: RepeatedRows | None,
        bound: WeightBound | None,
        sticky: StickyColumns | None = None,
    ) -> Provenance:
        """The provenance of sums, which do not distinguish files and rows."""
        where = f"all files, as {self.engine} read them"
        counts = {(where, reason): count for reason, count in reject_counts.items()}
        unread = unread_files(self.sources)
        return Provenance(
            (),
            counts,
            pl.DataFrame(schema=QUARANTINE),
            unread,
            repeated,
            sticky,
            weight_bound=bound,
        )

    @property
    def _range(self) -> tuple[float, float]:
        return self.options.scale.low, self.options.scale.high

    @property
    def _reading(self) -> dict[str, Any]:
        """The options that all sums take."""
        return {
            "behavior": self.options.probabilities,
            "reward_range": self._range,
            "least_propensity": self.options.least_propensity,
        }
