"""Which learner for which log, and what is guaranteed about it, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from understudy import learners
from understudy.behaviors import Behavior, Logged
from understudy.errors import InvalidArgument
from understudy.protocols import Learner

__all__ = ["FROM_LOG", "LEARNERS", "Choice", "choose", "name_of_default"]

Recipe = Callable[[Behavior, int | None], Learner[Any]]

KNOWN: dict[str, Recipe] = {
    "exp3": lambda pi_b, n: learners.exp3(pi_b, horizon=n),
    "exp3-ix": lambda pi_b, n: learners.exp3_ix(pi_b, horizon=n),
    "prod": lambda pi_b, n: learners.prod(pi_b, horizon=n),
    "coverage-adaptive": lambda pi_b, n: learners.coverage_adaptive(pi_b, horizon=n),
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
    if name in KNOWN and behavior is None:
        raise InvalidArgument(
            "learner",
            name,
            "it needs the propensities of the behavior policy, and they are to be estimated",
            f"pass --learner {UNKNOWN}, or the propensities",
        )
    if name in KNOWN:
        assert behavior is not None
        return Choice(name, KNOWN[name](behavior, horizon), *guarantee(name, behavior, horizon))
    if name != UNKNOWN:
        raise InvalidArgument(
            "learner",
            name,
            "it learns from contexts, and none are named"
            if name == CONTEXTUAL
            else "there is no such learner",
            "name columns with --context"
            if name == CONTEXTUAL
            else f"one of {', '.join(LEARNERS)}",
        )
    learner = learners.exp3_ix_unknown(n_actions, horizon=horizon, width="kl")
    return Choice(name, learner, *guarantee(name, behavior, horizon))


FIXED = "the behavior policy must be the same in all rows; the report's drift test can deny it"
NO_THEOREM = "none"
FROM_LOG = (
    "the list of actions was read from the log itself; declare it with --actions FILE if it was "
    "known before"
)


def guarantee(
    name: str, behavior: Behavior | None, horizon: int | None
) -> tuple[str, tuple[str, ...]]:
    """The theorem of a learner, and what it assumes that this use does not give or cannot check.

    >>> guarantee("exp3", Logged(n_actions=2), None)[1][0]
    'without a horizon its rate falls with time, which no theorem covers'
    """
    anytime = horizon is None
    if name == "exp3":
        falling = "without a horizon its rate falls with time, which no theorem covers"
        small = "its bound needs a rate below every propensity, which rare actions break"
        return NO_THEOREM, (falling if anytime else small,)
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
            none = "without a horizon its rate falls with time, which no theorem covers yet"
            return NO_THEOREM, (none, FIXED)
        return "Theorem 2 with Chernoff's bound in place of Hoeffding's", (FIXED,)
    if anytime:
        return (
            "Theorem 1 in its form without a horizon: regret at most √2·√(n log K)·(1 + C/2)",
            (),
        )
    return "Theorem 1: regret at most √(n log K)·(1 + C/2)", ()
