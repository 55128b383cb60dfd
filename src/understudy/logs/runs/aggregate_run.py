"""Learning, coverage and certificates from sums of a log in no order, on an engine of your choice.

`--engine` names it, or the log is a native frame of DuckDB, Dask or PySpark.
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

from understudy.behaviors import Behavior
from understudy.certificates import Certificate, Certified
from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.aggregation.aggregates import seen_actions, tally
from understudy.logs.aggregation.engines import open_frame
from understudy.logs.aggregation.sufficient_statistics import SummedState, certify_sums, learn_sums
from understudy.logs.encoder import UnexpectedValues
from understudy.logs.evaluation.target_policies import (
    Asked,
    ColumnTarget,
    Target,
    candidates_beside,
    certify_candidates,
    is_hindsight,
)
from understudy.logs.evaluation.verdicts import Candidate
from understudy.logs.options import Options
from understudy.logs.outputs import QUARANTINE_FILE, ProgressCallback, Quarantine
from understudy.logs.policy import Policy
from understudy.logs.readers.inputs import (
    FrameSource,
    LogReader,
    LogSource,
    count_rows,
    has_propensities,
    sources_name,
)
from understudy.logs.reject_reasons import nothing_left, refuse_bad_rows
from understudy.logs.runs.default_learner import Choice, choose, name_of_default
from understudy.logs.runs.provenance import (
    Provenance,
    RunOutcome,
    fingerprints_of,
    intake_of,
)
from understudy.logs.runs.setup import (
    ResolvedLog,
    behavior_of,
    columns_of,
    declared_actions,
    good_rows,
    rules_of,
)
from understudy.logs.runs.study import Study
from understudy.logs.schema import ESTIMATED, LOG, Actions, Columns, PropensitySource
from understudy.logs.settings import Assumption
from understudy.logs.statistics import ActionStatistics, CountsOverTime, LogStatistics


@dataclass(frozen=True, eq=False)
class AggregateRun:
    """One run over a log in no order: files that an engine opens, or a `native` frame of it."""

    sources: Sequence[LogSource]
    options: Options
    folder: Path
    watch: ProgressCallback
    strict: bool
    engine: str
    native: Any = None

    def __post_init__(self) -> None:
        if self.engine != "polars" and any(isinstance(one, FrameSource) for one in self.sources):
            raise InvalidArgument(
                "engine",
                self.engine,
                "the frame is in memory already, where Polars computes",
                "pass engine='polars', a path, or a native frame of the engine",
            )

    # ------------------------------------------------------------------------------------ learn

    def learn(
        self,
        resume: Policy | None,
        earlier: Path | None,  # noqa: ARG002 - it cannot go on
    ) -> tuple[Policy, Provenance, UnexpectedValues]:
        """The policy of a fixed rate, a sum per action. There is no certificate without an order.

        Which rows were refused is for a second look to say, in order.
        """
        if resume is not None:
            raise InvalidArgument(
                "resume", self.engine, "sums in no order cannot go on", "leave out --engine"
            )
        with ThreadPoolExecutor(1) as pool:
            hashing = pool.submit(fingerprints_of, self.sources)
            policy, log = self._learned()
            fingerprints = hashing.result()
        if self.strict:
            refuse_bad_rows(policy.refused)
        with Quarantine(self.folder / QUARANTINE_FILE) as quarantine:
            if policy.refused and self.sources:
                for _ in good_rows(log, quarantine, "quarantining", self.watch, strict=self.strict):
                    pass
            else:
                quarantine.rows.update(count_rows(self.sources, log.reading.columns))
        intake = intake_of(self.sources, fingerprints, quarantine)
        policy = dataclasses.replace(policy, files=intake.files)
        if not self.sources:
            intake = self._intake(policy.refused)
        return policy, intake, UnexpectedValues()

    def _learned(self) -> tuple[Policy, ResolvedLog]:
        """The policy, and how the same rows would be read in order."""
        options = self.options
        columns, kind = self._columns()
        if options.horizon is None or kind == ESTIMATED:
            raise InvalidArgument(
                "horizon" if options.horizon is None else "behavior",
                options.horizon if options.horizon is None else kind,
                f"{self.engine} gives rows in no order, which takes a fixed rate and known "
                "propensities",
                "pass --horizon N and propensities, or leave out --engine",
            )
        declared = options.declared()
        with self._opened(columns) as frame:
            actions = options.actions or (
                Actions.from_labels(declared) if declared else seen_actions(frame, columns)
            )
            choice, behavior, found = self._summed(frame, columns, kind, actions)
            if not found.counts.sum():
                raise nothing_left(LOG, found.refused)
            if not declared and not found.counts.all():  # labels of bad rows alone are no actions
                actions = Actions.from_labels(np.array(actions.texts)[found.counts > 0].tolist())
                choice, behavior, found = self._summed(frame, columns, kind, actions)
        sums = ActionStatistics.without_propensities(found.counts, found.rewards)
        unmet = () if declared else (Assumption.DECLARED_ACTIONS,)
        settings = choice.settings(columns, options.scale, kind, *unmet)
        rules = rules_of(options, kind, actions, behavior, closed=bool(declared))
        log = ResolvedLog(LogReader(self.sources, columns), rules, actions, kind, behavior, None)
        never = CountsOverTime.empty(len(actions))  # in no order there is no early or late
        policy = Policy(
            actions=actions,
            study=Study(behavior, sums, never, (None,), choice.learner, found.state),
            settings=settings,
            average=choice.learner.policy(found.state),
            files=(),
            refused=found.refused,
        )
        return policy, log

    def _summed(
        self, frame: Any, columns: Columns, kind: PropensitySource, actions: Actions
    ) -> tuple[Choice, Behavior | None, SummedState]:
        """The learner for these actions, and its state after all rows."""
        options, behavior = self.options, behavior_of(kind, self.options, actions)
        name = options.learner or name_of_default(behavior, contexts=False)
        choice = choose(name, behavior, len(actions), options.horizon)
        found = learn_sums(
            frame,
            columns,
            choice.learner,  # type: ignore[arg-type] # refused if it is of another kind
            actions=actions,
            reward_range=self._range,
        )
        return choice, behavior, found

    # ------------------------------------------------------------------------------------ cover

    def cover(
        self, asked: Sequence[Asked], fingerprints: Sequence[str]
    ) -> tuple[RunOutcome, Sequence[Candidate], Sequence[Certificate | None]]:
        """What the log can say, also about policies that were asked about."""
        options = self.options
        columns, kind = self._columns()
        with self._opened(columns) as frame:
            actions = options.actions
            known = {label for target, _ in asked for label in target.labels}
            tallied = tally(frame, columns, actions=actions, **self._reading)
            if actions is None and not known <= set(tallied.actions.texts):
                actions = Actions.from_labels(known | set(tallied.actions.texts))
                tallied = tally(frame, columns, actions=actions, **self._reading)
            declared = bool(options.declared())
            candidates = candidates_beside(asked, fingerprints, tallied, declared=declared)
            certificates: Sequence[Certificate | None] = ()
            if kind != ESTIMATED:
                certificates = certify_candidates(
                    frame, columns, tallied, candidates, confidence=options.sure, **self._reading
                )
        return RunOutcome(tallied, kind, self._intake(tallied.refused)), candidates, certificates

    # ---------------------------------------------------------------------------------- certify

    def certify(
        self,
        target: Target,
        fingerprints: Sequence[str],  # noqa: ARG002 - sums do not distinguish files
    ) -> tuple[Certified, RunOutcome]:
        """The certificate of a fixed policy at the end of the log, without a curve."""
        options = self.options
        columns, kind = self._columns()
        if kind == ESTIMATED:
            raise InvalidArgument(
                "behavior", kind, "counting it takes an order", "pass propensities, or no --engine"
            )
        with self._opened(columns) as frame:
            sums = None
            if options.probabilities is None:
                sums = tally(frame, columns, **self._reading)
                known = options.declared() | target.labels
                actions = Actions.from_labels(known | set(sums.actions.texts))
            else:
                actions = declared_actions(options, target.labels)
            found = certify_sums(
                frame,
                columns,
                actions=actions,
                policy=self._policy(target, actions),
                confidence=options.sure,
                **self._reading,
            )
            if sums is None or actions != sums.actions:
                sums = tally(frame, columns, actions=actions, **self._reading)
            if not sums.tally.rows:
                raise nothing_left(LOG, found.refused)
        if self.strict:
            refuse_bad_rows(found.refused)
        with Quarantine(self.folder / QUARANTINE_FILE):
            pass  # which rows they are is not known
        tallied = LogStatistics(sums.actions, sums.tally, found.refused)
        outcome = RunOutcome(tallied, kind, self._intake(found.refused))
        return Certified.of(found.certificate), outcome

    def _policy(self, target: Target, actions: Actions) -> Array | None:
        """The target's probabilities, or None if they stand in a column."""
        if is_hindsight(target, actions, self.options.declared()):
            raise InvalidArgument(
                "policy",
                target.name,
                "over actions that only the log tells, it takes an order to certify",
                "declare all of them with --actions FILE, or leave out --engine",
            )
        policy = target.fixed(actions)
        if policy is None and not isinstance(target, ColumnTarget):
            raise InvalidArgument(
                "policy", target.name, "it looks at contexts, row by row", "leave out --engine"
            )
        return policy

    # ---------------------------------------------------------------------------------- reading

    @contextmanager
    def _opened(self, columns: Columns) -> Iterator[Any]:
        """The native frame, for as long as it is needed."""
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

    def _columns(self) -> tuple[Columns, PropensitySource]:
        """Which columns are read, and where the propensities come from."""
        for role in ("time", "eligible", "context"):
            if self.options.columns.get(role):
                raise InvalidArgument(
                    role,
                    self.options.columns[role],
                    "sums in no order do not read it",
                    "leave it out, or --engine",
                )
        return columns_of(self.options, self._has_propensities)

    def _has_propensities(self, columns: Columns) -> bool:
        if self.native is not None:
            return columns.propensity in nw.from_native(self.native).collect_schema()
        return any(has_propensities(source, columns) for source in self.sources)

    def _intake(self, refused: Mapping[str, int]) -> Provenance:
        return Provenance.in_no_order(self.engine, refused, self.sources)

    @property
    def _range(self) -> tuple[float, float]:
        return self.options.scale.low, self.options.scale.high

    @property
    def _reading(self) -> dict[str, Any]:
        """What sums need to know of the options."""
        return {"behavior": self.options.probabilities, "reward_range": self._range}
