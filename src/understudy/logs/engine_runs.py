"""What needs no order, with an engine of your choice: `--engine`, or a frame of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from understudy.behaviors import Behavior
from understudy.certificates import Certificate
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.aggregates import LogStatistics, seen_actions, tally
from understudy.logs.certified_targets import ColumnTarget, Target, is_hindsight
from understudy.logs.coverage_table import (
    Asked,
    Coverage,
    candidates_beside,
    certify_candidates,
    covered,
)
from understudy.logs.default_learner import FROM_LOG, Choice, choose, name_of_default
from understudy.logs.engines import open_frame
from understudy.logs.options import CONFIDENT, Options
from understudy.logs.policy import Settings
from understudy.logs.readers.inputs import Origin, Reading, Table, has_propensities, name_of
from understudy.logs.reject_reasons import nothing_left
from understudy.logs.schema import ESTIMATED, LOG, Actions, Columns, Kind
from understudy.logs.setup import (
    ResolvedLog,
    behavior_of,
    columns_of,
    declared_actions,
    rules_of,
)
from understudy.logs.statistics import ActionStatistics, CountsOverTime
from understudy.logs.study import Study
from understudy.logs.sufficient_statistics import SummedState, certify_sums, learn_sums

__all__ = ["Summed", "Unordered", "certify_from", "cover_from", "learn_from"]


@dataclass(frozen=True, eq=False)
class Unordered:
    """A log whose rows have no order: files that an engine opens, or a native frame of one."""

    engine: str
    origins: Sequence[Origin]
    frame: Any = None

    def __post_init__(self) -> None:
        if self.engine != "polars" and any(isinstance(one, Table) for one in self.origins):
            raise InvalidArgument(
                "engine",
                self.engine,
                "the frame is in memory already, where Polars computes",
                "pass engine='polars', a path, or a native frame of the engine",
            )

    @staticmethod
    def of(log: Any) -> Unordered | None:
        """A native frame of DuckDB, Dask or PySpark; None if it is something else.

        >>> Unordered.of("log.csv") is None
        True
        """
        found = nw.from_native(log, pass_through=True)
        if not isinstance(found, nw.LazyFrame) or found.implementation.is_polars():
            return None
        return Unordered(str(found.implementation), [], log)

    @contextmanager
    def opened(self, columns: Columns) -> Iterator[Any]:
        """The native frame, for as long as it is needed."""
        tables = [origin.frame for origin in self.origins if isinstance(origin, Table)]
        if self.frame is not None or tables:
            yield self.frame if self.frame is not None else tables[0]
            return
        sources = [origin for origin in self.origins if not isinstance(origin, Table)]
        try:
            with open_frame(self.engine, sources, columns) as frame:
                yield frame
        except InvalidLog as error:
            if error.value != LOG:
                raise
            raise InvalidLog(LOG, name_of(sources), error.reason, error.remedy) from None

    def columns(self, options: Options) -> tuple[Columns, Kind]:
        """Which columns are read, and where the propensities come from."""
        for role in ("time", "eligible", "context"):
            if options.columns.get(role):
                raise InvalidArgument(
                    role,
                    options.columns[role],
                    "sums in no order do not read it",
                    "leave it out, or --engine",
                )
        return columns_of(options, self._has_propensities)

    def _has_propensities(self, columns: Columns) -> bool:
        if self.frame is not None:
            return columns.propensity in nw.from_native(self.frame).collect_schema()
        return any(has_propensities(origin, columns) for origin in self.origins)


@dataclass(frozen=True, eq=False)
class Summed:
    """What was learned from sums, and how the same rows would be read in order."""

    study: Study
    settings: Settings
    refused: dict[str, int]
    log: ResolvedLog


def learn_from(log: Unordered, options: Options) -> Summed:
    """The policy of a fixed rate: a sum per action. There is no certificate without an order."""
    columns, kind = log.columns(options)
    if options.horizon is None or kind == ESTIMATED:
        raise InvalidArgument(
            "horizon" if options.horizon is None else "behavior",
            options.horizon if options.horizon is None else kind,
            f"{log.engine} gives rows in no order, which takes a fixed rate and known propensities",
            "pass --horizon N and propensities, or leave out --engine",
        )
    declared = options.declared()
    with log.opened(columns) as frame:
        actions = options.actions or (
            Actions.of(declared) if declared else seen_actions(frame, columns)
        )
        choice, behavior, found = _learned(frame, columns, kind, options, actions)
        if not found.counts.sum():
            raise nothing_left(LOG, found.refused)
        if not declared and not found.counts.all():  # labels of bad rows alone are no actions
            actions = Actions.of(np.array(actions.texts)[found.counts > 0].tolist())
            choice, behavior, found = _learned(frame, columns, kind, options, actions)
    sums = ActionStatistics.without_propensities(found.counts, found.rewards)
    settings = Settings(
        columns=columns,
        reward_range=_range(options),
        behavior=kind,
        learner=choice.name,
        horizon=options.horizon,
        theorem=choice.theorem,
        unmet=choice.unmet if declared else (*choice.unmet, FROM_LOG),
    )
    rules = rules_of(options, kind, actions, behavior, closed=bool(declared))
    prepared = ResolvedLog(Reading(log.origins, columns), rules, actions, kind, behavior, None)
    never = CountsOverTime.empty(len(actions))  # in no order there is no early or late
    study = Study(choice.learner, found.state, behavior, None, sums, never)
    return Summed(study, settings, found.refused, prepared)


def _learned(
    frame: Any, columns: Columns, kind: Kind, options: Options, actions: Actions
) -> tuple[Choice, Behavior | None, SummedState]:
    """The learner for these actions, and its state after all rows."""
    behavior = behavior_of(kind, options, actions)
    name = options.learner or name_of_default(behavior, contexts=False)
    choice = choose(name, behavior, len(actions), options.horizon)
    found = learn_sums(
        frame,
        columns,
        choice.learner,  # type: ignore[arg-type] # refused if it is of another kind
        actions=actions,
        reward_range=_range(options),
    )
    return choice, behavior, found


def cover_from(
    log: Unordered, options: Options, asked: Sequence[Asked], fingerprints: Sequence[str]
) -> tuple[Coverage, Kind]:
    """What a log can say, also about policies that somebody asks about, from sums in no order."""
    columns, kind = log.columns(options)
    confidence = options.confidence or CONFIDENT
    with log.opened(columns) as frame:
        actions = options.actions
        known = {label for target, _ in asked for label in target.labels}
        tallied = tally(frame, columns, actions=actions, **_asked(options))
        if actions is None and not known <= set(tallied.actions.texts):
            actions = Actions.of(known | set(tallied.actions.texts))
            tallied = tally(frame, columns, actions=actions, **_asked(options))
        declared = bool(options.declared())
        candidates = candidates_beside(asked, fingerprints, tallied, declared=declared)
        certificates: Sequence[Certificate | None] = ()
        if kind != ESTIMATED:
            certificates = certify_candidates(
                frame, columns, tallied, candidates, confidence=confidence, **_asked(options)
            )
    found = covered(
        tallied,
        behavior=kind,
        candidates=candidates,
        certificates=certificates,
        confidence=confidence,
        scale=options.scale,
    )
    return found, kind


def certify_from(
    log: Unordered, options: Options, target: Target
) -> tuple[Certificate, LogStatistics, Kind]:
    """The certificate of a fixed policy, from sums in no order."""
    columns, kind = log.columns(options)
    if kind == ESTIMATED:
        raise InvalidArgument(
            "behavior", kind, "counting it takes an order", "pass propensities, or no --engine"
        )
    with log.opened(columns) as frame:
        sums = None
        if options.probabilities is None:
            sums = tally(frame, columns, **_asked(options))
            known = options.declared() | target.labels
            actions = Actions.of(known | set(sums.actions.texts))
        else:
            actions = declared_actions(options, target.labels)
        if is_hindsight(target, actions, options.declared()):
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
        found = certify_sums(
            frame,
            columns,
            actions=actions,
            policy=policy,
            target_probability=columns.target,
            confidence=options.confidence or CONFIDENT,
            **_asked(options),
        )
        if sums is None or actions != sums.actions:
            sums = tally(frame, columns, actions=actions, **_asked(options))
        if not sums.tally.rows:
            raise nothing_left(LOG, found.refused)
    return found.certificate, LogStatistics(sums.actions, sums.tally, found.refused), kind


def _range(options: Options) -> tuple[float, float]:
    return options.scale.low, options.scale.high


def _asked(options: Options) -> dict[str, Any]:
    """What sums need to know of the options."""
    return {"behavior": options.probabilities, "reward_range": _range(options)}
