"""Which learner suits which log, which theorem covers it, and what that assumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import polars as pl

from understudy import learners
from understudy.behaviors import Behavior, Logged
from understudy.errors import InvalidArgument
from understudy.logs.encoder import Encoder
from understudy.logs.features import ContextFeatures, fit_context_features
from understudy.protocols import Learner
from understudy.types import Integers

KNOWN: dict[str, Callable[..., Learner[Any]]] = {
    "exp3": learners.exp3,
    "exp3-ix": learners.exp3_ix,
    "prod": learners.prod,
    "coverage-adaptive": learners.coverage_adaptive,
}
UNKNOWN, CONTEXTUAL = "exp3-ix-unknown", "lin-prod-compact"
LEARNERS = (*KNOWN, UNKNOWN, CONTEXTUAL)


@dataclass(frozen=True, eq=False)
class Choice:
    """A learner by name, the theorem that applies to it, and which assumptions are not met."""

    name: str
    learner: Learner[Any]
    theorem: str
    unmet: tuple[str, ...]


def name_of_default(behavior: Behavior | None, *, contexts: bool) -> str:
    """The learner for a log of which this is known.

    >>> name_of_default(Logged(n_actions=3), contexts=False), name_of_default(None, contexts=False)
    ('coverage-adaptive', 'exp3-ix-unknown')
    """
    if contexts:
        return CONTEXTUAL
    return UNKNOWN if behavior is None else "coverage-adaptive"


def choose(name: str, behavior: Behavior | None, n_actions: int, horizon: int | None) -> Choice:
    """A learner without contexts, by name.

    >>> choose("exp3-ix", Logged(n_actions=3), 3, horizon=None).theorem
    'Theorem 1 in its form without a horizon: regret at most √2·√(n log K)·(1 + C/2)'
    """
    if name == CONTEXTUAL:
        raise InvalidArgument(
            "learner",
            name,
            "it learns from contexts, and none are named",
            "name columns with --context",
        )
    if name == UNKNOWN:
        learner: Learner[Any] = learners.exp3_ix_unknown(n_actions, horizon=horizon, width="kl")
    elif behavior is not None:
        learner = KNOWN[name](behavior, horizon=horizon)
    else:
        raise InvalidArgument(
            "learner",
            name,
            "it needs the propensities of the behavior policy, and they are to be estimated",
            f"pass --learner {UNKNOWN}, or the propensities",
        )
    return Choice(name, learner, *guarantee(name, behavior, horizon))


class Assumption(StrEnum):
    """What a guarantee assumes and this use does not give, or cannot check."""

    FIXED_BEHAVIOR = (
        "the behavior policy must be the same in all rows; the report's drift test can deny it"
    )
    FIXED_RATE = "without a horizon its rate falls with time, which no theorem covers"
    FIXED_RATE_YET = "without a horizon its rate falls with time, which no theorem covers yet"
    SMALL_RATE = "its bound needs a rate below every propensity, which rare actions break"
    DECLARED_ACTIONS = (
        "the list of actions was read from the log itself; declare it with --actions FILE if it "
        "was known before"
    )
    PROPENSITIES = (
        "there is no column 'propensity'; if the log has propensities, name their column with "
        "--propensity, or a file of fixed ones with --behavior"
    )
    ORDER = "rows were taken to be in the order of time; --time COLUMN checks it"


FIXED = Assumption.FIXED_BEHAVIOR
NO_THEOREM = "none"


def guarantee(
    name: str, behavior: Behavior | None, horizon: int | None
) -> tuple[str, tuple[str, ...]]:
    """The theorem of a learner, and what it assumes that this use does not give or cannot check."""
    anytime = horizon is None
    if name == "exp3":
        return NO_THEOREM, (Assumption.FIXED_RATE if anytime else Assumption.SMALL_RATE,)
    if name == "coverage-adaptive":
        grid = isinstance(behavior, Logged)
        coverage = "the mean of 1/q_t" if grid else "its coverage ratio Σ π(a)/q(a)"
        form = ", in its form without a horizon" if anytime else ""
        return (
            f"the coverage-adaptive theorem{form}: regret of order √(C n) against every policy at "
            f"once, C being {coverage}",
            (),
        )
    if name == UNKNOWN:
        if anytime:
            return NO_THEOREM, (Assumption.FIXED_RATE_YET, FIXED)
        return "Theorem 2 with Chernoff's bound in place of Hoeffding's", (FIXED,)
    form, factor = (" in its form without a horizon", "√2·") if anytime else ("", "")
    return f"Theorem 1{form}: regret at most {factor}√(n log K)·(1 + C/2)", ()


def choose_contextual(
    frame: pl.DataFrame,
    played: Integers,
    context: Sequence[str],
    n_actions: int,
    horizon: int | None,
) -> tuple[Choice, ContextFeatures]:
    """The learner of contexts that the rows of a warm-up prepare, and their features."""
    encoder = Encoder.fit(frame, context)
    contextual = fit_context_features(encoder, frame, played, n_actions, horizon=horizon)
    unmet = tuple(contextual.assumptions())
    theorem = "Theorem 3, for LinProd in constant memory: regret at most log K/η + η n C_φ"
    return Choice(CONTEXTUAL, contextual.learner, theorem, unmet), contextual
