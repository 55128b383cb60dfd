"""What needs no order, with an engine of your choice: `--engine`, or a frame of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from understudy.certificates import Certificate
from understudy.errors import InvalidArgument
from understudy.logs.actions import Actions
from understudy.logs.choosing import FROM_LOG, choose, name_of_default
from understudy.logs.columns import Columns
from understudy.logs.covering import Candidate, Coverage, candidates_of, certify_candidates, covered
from understudy.logs.engines import open_frame
from understudy.logs.options import CONFIDENT, Options
from understudy.logs.order_free import certify_sums, learn_sums
from understudy.logs.policies import ESTIMATED, LOGGED, Settings
from understudy.logs.prepare import Prepared, behavior_of, rules_of
from understudy.logs.reading import Origin, Reading, Table, has_propensities
from understudy.logs.reporting import KINDS
from understudy.logs.scale import Scale
from understudy.logs.study import Study
from understudy.logs.survey import nothing_left
from understudy.logs.tallies import Tallied, seen_actions, tally
from understudy.logs.tally import Tally
from understudy.logs.targets import Column, Target
from understudy.types import frozen

__all__ = ["Summed", "Unordered", "coverage_of", "judge", "learn_from"]


@dataclass(frozen=True, eq=False)
class Unordered:
    """A log whose rows have no order: files that an engine opens, or a native frame of one."""

    engine: str
    origins: Sequence[Origin]
    frame: Any = None

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
        sources = [(origin.path, origin.format) for origin in self.origins]  # type: ignore[union-attr] # files
        also = [columns.target] if columns.target is not None else []
        with open_frame(self.engine, sources, columns, also=also) as frame:
            yield frame

    def columns(self, options: Options) -> tuple[Columns, str]:
        """Which columns are read, and where the propensities come from."""
        for role in ("time", "eligible", "context"):
            if options.columns.get(role):
                raise InvalidArgument(
                    role,
                    options.columns[role],
                    "sums in no order do not read it",
                    "leave it out, or --engine",
                )
        columns, kind = Columns(**options.columns), options.behavior
        if kind is None:
            names = nw.from_native(self.frame).collect_schema() if self.frame is not None else ()
            known = columns.propensity in names if names else self._has_propensities(columns)
            kind = LOGGED if known or "propensity" in options.columns else ESTIMATED
        if kind == LOGGED:
            return columns, kind
        return Columns(**{**options.columns, "propensity": None}), kind

    def _has_propensities(self, columns: Columns) -> bool:
        return has_propensities(self.origins[0], columns)


@dataclass(frozen=True, eq=False)
class Summed:
    """What was learned from sums, and how the same rows would be read in order."""

    study: Study
    settings: Settings
    refused: dict[str, int]
    log: Prepared


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
    reward_range, declared = options.reward_range or (0.0, 1.0), options.declared()
    with log.opened(columns) as frame:
        actions = options.actions or (
            Actions.of(declared) if declared else seen_actions(frame, columns)
        )
        behavior = behavior_of(kind, options, actions)
        assert behavior is not None
        name = options.learner or name_of_default(behavior, contexts=False)
        choice = choose(name, behavior, len(actions), options.horizon)
        found = learn_sums(
            frame,
            columns,
            choice.learner,  # type: ignore[arg-type] # refused if it is of another kind
            actions=actions,
            reward_range=reward_range,
        )
    if not found.counts.sum():
        raise nothing_left("log", found.refused)
    unknown = frozen(np.full(len(actions), np.nan))
    sums = Tally(found.counts, found.rewards, unknown, unknown, unknown, unknown, unknown)
    study = Study(choice.learner, found.state, behavior, None, sums)
    unmet = choice.unmet if declared else (*choice.unmet, FROM_LOG)
    settings = Settings(columns, reward_range, kind, name, options.horizon, choice.theorem, unmet)
    rules = rules_of(options, kind, actions, behavior, closed=bool(declared))
    prepared = Prepared(Reading(log.origins, columns), rules, actions, kind, behavior, None)
    return Summed(study, settings, found.refused, prepared)


def coverage_of(
    log: Unordered, options: Options, targets: Sequence[Target]
) -> tuple[Coverage, str]:
    """What a log can say, from sums in no order."""
    columns, kind = log.columns(options)
    confidence = options.confidence or CONFIDENT
    asked: dict[str, Any] = {
        "behavior": options.probabilities,
        "reward_range": options.reward_range or (0.0, 1.0),
    }
    with log.opened(columns) as frame:
        tallied = tally(frame, columns, actions=options.actions, **asked)
        given = [(target.name, target.fixed(tallied.actions)) for target in targets]
        candidates = [Candidate(name, policy) for name, policy in given if policy is not None]
        candidates += candidates_of(tallied)
        certificates: dict[str, Certificate] = {}
        if kind != ESTIMATED:
            certificates = certify_candidates(
                frame, columns, tallied, candidates, confidence=confidence, **asked
            )
    found = covered(
        tallied,
        behavior=KINDS[kind],
        candidates=candidates,
        certificates=certificates,
        confidence=confidence,
        scale=Scale(*asked["reward_range"]),
    )
    return found, kind


def judge(log: Unordered, options: Options, target: Target) -> tuple[Certificate, Tallied, str]:
    """The certificate of a fixed policy, from sums in no order."""
    columns, kind = log.columns(options)
    if kind == ESTIMATED:
        raise InvalidArgument(
            "behavior", kind, "counting it takes an order", "pass propensities, or no --engine"
        )
    asked: dict[str, Any] = {
        "behavior": options.probabilities,
        "reward_range": options.reward_range or (0.0, 1.0),
    }
    with log.opened(columns) as frame:
        seen = set(seen_actions(frame, columns).texts)
        actions = Actions.of(seen | options.declared() | target.labels)
        policy = target.fixed(actions)
        if policy is None and not isinstance(target, Column):
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
            **asked,
        )
        tallied = tally(frame, columns, actions=actions, **asked)
    return found.certificate, tallied, kind
