"""The learners of logs by name, with their theorems, and the settings that policy.json stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import polars as pl

from understudy import learners
from understudy.behaviors import Behavior
from understudy.constraints import HORIZON
from understudy.errors import InvalidArgument, InvalidSnapshot
from understudy.logs.encoder import Encoder
from understudy.logs.features import ContextFeatures, fit_context_features
from understudy.logs.schema import LOGGED, Columns, PropensitySource, RewardScale
from understudy.protocols import Learner
from understudy.snapshots import fields_as_data, fields_from_data
from understudy.types import Integers

REMEDY = "pass a policy.json that `understudy learn` wrote, unchanged"
RepeatedRowsOption = Literal["check", "allow"]
CHECK: RepeatedRowsOption = "check"  # decide nothing if rows are copies of each other
ALLOW: RepeatedRowsOption = "allow"  # equal rows are separate decisions
REPEATED_ROWS = (CHECK, ALLOW)


class Theorem(StrEnum):
    """The theorem that bounds the regret of a learner. `report.words` states its bound."""

    NONE = "none"
    KNOWN_BEHAVIOR = "theorem 1"
    UNKNOWN_BEHAVIOR = "theorem 2"
    LINEAR = "theorem 3"
    COVERAGE_ADAPTIVE = "coverage-adaptive"


class Assumption(StrEnum):
    """An assumption of a theorem that a log does not meet, or that no log can show."""

    FIXED_BEHAVIOR = "fixed behavior"
    FIXED_RATE = "fixed rate"
    SMALL_RATE = "small rate"
    DECLARED_ACTIONS = "declared actions"
    KNOWN_PROPENSITIES = "known propensities"
    TIME_ORDER = "time order"


UNKNOWN, CONTEXTUAL = "exp3-ix-unknown", "lin-prod-compact"
# The theorem of each learner and the assumptions to check, with a horizon and without.
GUARANTEES: dict[str, tuple[tuple[Theorem, *tuple[Assumption, ...]], ...]] = {
    "exp3": ((Theorem.NONE, Assumption.SMALL_RATE), (Theorem.NONE, Assumption.FIXED_RATE)),
    "exp3-ix": ((Theorem.KNOWN_BEHAVIOR,), (Theorem.KNOWN_BEHAVIOR,)),
    "prod": ((Theorem.KNOWN_BEHAVIOR,), (Theorem.KNOWN_BEHAVIOR,)),
    "coverage-adaptive": ((Theorem.COVERAGE_ADAPTIVE,), (Theorem.COVERAGE_ADAPTIVE,)),
    UNKNOWN: (
        (Theorem.UNKNOWN_BEHAVIOR, Assumption.FIXED_BEHAVIOR),
        (Theorem.NONE, Assumption.FIXED_RATE, Assumption.FIXED_BEHAVIOR),
    ),
    CONTEXTUAL: ((Theorem.LINEAR,), (Theorem.LINEAR,)),
}
LEARNERS = tuple(GUARANTEES)


def guarantee(learner: str, horizon: int | None) -> tuple[Theorem, *tuple[Assumption, ...]]:
    """The theorem of a learner, and the assumptions of it that need a check."""
    with_horizon, without = GUARANTEES[learner]
    return without if horizon is None else with_horizon


WITH_PROPENSITIES: dict[str, Callable[..., Learner[Any]]] = {
    "exp3": learners.exp3,
    "exp3-ix": learners.exp3_ix,
    "prod": learners.prod,
    "coverage-adaptive": learners.coverage_adaptive,
}


@dataclass(frozen=True, eq=False)
class Choice:
    """A learner with its name and the horizon that it was made for."""

    name: str
    learner: Learner[Any]
    horizon: int | None

    def settings(
        self, columns: Columns, scale: RewardScale, source: PropensitySource, *unmet: Assumption
    ) -> Settings:
        """The settings of a first run; `unmet` come after the assumptions of the theorem."""
        theorem, *assumptions = guarantee(self.name, self.horizon)
        return Settings(
            columns=columns,
            reward_range=(scale.low, scale.high),
            behavior=source,
            learner=self.name,
            horizon=self.horizon,
            theorem=theorem,
            unmet=(*assumptions, *unmet),
        )


def name_of_default(behavior: Behavior | None, *, contexts: bool) -> str:
    """The name of the default learner for a log, by its behavior policy (None if unknown)."""
    if contexts:
        return CONTEXTUAL
    return UNKNOWN if behavior is None else "coverage-adaptive"


def choose(name: str, behavior: Behavior | None, n_actions: int, horizon: int | None) -> Choice:
    """Make a learner without contexts by its name."""
    if name == CONTEXTUAL:
        reason = "it learns from contexts, and none are named"
        raise InvalidArgument("learner", name, reason, "name columns with --context")
    if name == UNKNOWN:
        learner: Learner[Any] = learners.exp3_ix_unknown(n_actions, horizon=horizon, width="kl")
    elif behavior is not None:
        learner = WITH_PROPENSITIES[name](behavior, horizon=horizon)
    else:
        reason = "it needs the propensities of the behavior policy, and they are to be estimated"
        remedy = f"pass --learner {UNKNOWN}, or the propensities"
        raise InvalidArgument("learner", name, reason, remedy)
    return Choice(name, learner, horizon)


def choose_contextual(
    frame: pl.DataFrame,
    played: Integers,
    context: Sequence[str],
    n_actions: int,
    horizon: int | None,
) -> tuple[Choice, ContextFeatures]:
    """Fit the features of contexts, and the learner that takes them, to the rows of a warm-up."""
    encoder = Encoder.fit(frame, context)
    contextual = fit_context_features(encoder, frame, played, n_actions, horizon=horizon)
    return Choice(CONTEXTUAL, contextual.learner, horizon), contextual


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The choices of the first run, which later runs keep: columns, scale, behavior, learner."""

    columns: Columns
    reward_range: tuple[float, float]
    behavior: PropensitySource
    learner: str
    horizon: int | None
    theorem: Theorem
    unmet: tuple[Assumption, ...]
    repeated_rows: RepeatedRowsOption = CHECK

    @property
    def scale(self) -> RewardScale:
        """The units of rewards."""
        return RewardScale(*self.reward_range)

    def as_data(self) -> dict[str, Any]:
        """The settings as policy.json has them; those that 0.5 did not have, only if they are set.

        So a snapshot of 0.5 in a store has the bits of the same state now.
        """
        data: dict[str, Any] = fields_as_data(self)
        if self.columns.id is None:
            del data["columns"]["id"]
        if self.repeated_rows == CHECK:
            del data["repeated_rows"]
        return data

    @staticmethod
    def from_data(data: dict[str, Any]) -> Settings:
        """The settings of a policy.json, or `InvalidSnapshot`."""
        logged = data["behavior"] == LOGGED
        settings = fields_from_data(
            Settings,
            {"repeated_rows": CHECK} | data,
            "settings",
            REMEDY,
            columns=lambda columns: _columns(columns, logged=logged),
            reward_range=lambda two: dataclasses.astuple(RewardScale.from_range(two or ())),
            horizon=lambda n: HORIZON.optional()("horizon", n),
            theorem=str,
            unmet=_assumptions,
        )
        if settings.repeated_rows not in REPEATED_ROWS:
            raise InvalidSnapshot("repeated_rows", settings.repeated_rows, "unknown", REMEDY)
        if settings.learner not in LEARNERS:
            raise InvalidSnapshot("learner", settings.learner, "there is no such learner", REMEDY)
        theorem, *_ = guarantee(settings.learner, settings.horizon)
        return dataclasses.replace(settings, theorem=theorem)


# The sentences that 0.5.0 wrote. Those about contexts are left out: they follow from the features.
SENTENCES = {
    "the behavior policy must be the same in all rows; the report's drift test can deny it": (
        Assumption.FIXED_BEHAVIOR
    ),
    "without a horizon its rate falls with time, which no theorem covers": Assumption.FIXED_RATE,
    "without a horizon its rate falls with time, which no theorem covers yet": (
        Assumption.FIXED_RATE
    ),
    "its bound needs a rate below every propensity, which rare actions break": (
        Assumption.SMALL_RATE
    ),
    "the list of actions was read from the log itself; declare it with --actions FILE if it was "
    "known before": Assumption.DECLARED_ACTIONS,
    "there is no column 'propensity'; if the log has propensities, name their column with "
    "--propensity, or a file of fixed ones with --behavior": Assumption.KNOWN_PROPENSITIES,
    "rows were taken to be in the order of time; --time COLUMN checks it": Assumption.TIME_ORDER,
}


def _assumptions(texts: Iterable[str]) -> tuple[Assumption, ...]:
    known = {**SENTENCES, **{one.value: one for one in Assumption}}
    return tuple(known[text] for text in texts if text in known)


def _columns(data: dict[str, Any], *, logged: bool) -> Columns:
    columns = fields_from_data(Columns, {"id": None} | data, "columns", REMEDY, context=tuple)
    needed = {columns.action, columns.reward, *columns.context}
    if logged:
        needed.add(columns.propensity)  # type: ignore[arg-type] # its type is checked below
    optional = {columns.propensity, columns.time, columns.eligible, columns.target, columns.id}
    optional -= {None}
    if not all(isinstance(name, str) for name in needed | optional):
        raise InvalidSnapshot("columns", data, "a column has no name", REMEDY)
    return columns
