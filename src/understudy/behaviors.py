"""Behavior policies: the probability with which production plays each action.

A behavior is a vector π_B of K probabilities, the same in every round, or `Logged`, which says
that every event of the log carries the probability of its own action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.constraints import (
    N_ACTIONS,
    PROBABILITIES,
    SMALLEST_PROBABILITY,
    Array,
    Checked,
    Constraint,
    constrained,
    number,
)
from understudy.deprecated import old_module_names
from understudy.errors import InvalidArgument
from understudy.types import Log, added, read_only, saved

__all__ = ["BEHAVIOR", "Behavior", "Logged", "cdf", "choose", "interpolated", "uniform"]


SLACK = 1e-6  # of a propensity: logs round to six digits or more
MOST_SLACK = 1e-4  # of a sum: the rounding of many propensities goes both ways
LEAST_DECLARED = "the least propensity is declared as {}"
LEAST_REMEDY = "declare a smaller one, or none if some actions are never played"
LEAST_PROPENSITY = number(
    SMALLEST_PROBABILITY, 1.0, "pass the smallest propensity that an action ever has"
)


@saved
@dataclass(frozen=True, repr=False)
class Logged(Checked):
    """The behavior is known one event at a time: each carries its own `propensity`.

    With a `least_propensity` f you declare that in every round every action that a target may play
    has a propensity of at least f. Certificates then center their bets, and need fewer rounds. A
    propensity below f, or above 1 − (K − 1) f, contradicts it. An action that cannot be played, or
    not in all rounds, contradicts it too, and no propensity shows that: then bounds are false.
    `us.certify` and `us.logs.certify` compare the counts of actions with f as well.

    >>> Logged(n_actions=3, least_propensity=0.05)
    Logged(n_actions=3, least_propensity=0.05)
    """

    n_actions: int
    least_propensity: float | None = added(None)
    CONSTRAINTS: ClassVar = {
        "n_actions": N_ACTIONS,
        "least_propensity": LEAST_PROPENSITY.optional(),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        f = self.least_propensity
        if f is not None and f * self.n_actions > 1.0 + SLACK:
            raise InvalidArgument(
                "least_propensity",
                f,
                f"{self.n_actions} propensities of at least {f:g} sum to more than 1",
                f"pass at most 1/{self.n_actions}",
            )

    def __repr__(self) -> str:
        f = self.least_propensity
        return f"Logged(n_actions={self.n_actions}{'' if f is None else f', least_propensity={f}'})"

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest propensity that an action may have."""
        if self.least_propensity is None:
            return 0.0, 1.0
        f = self.least_propensity
        return f * (1.0 - SLACK), 1.0 - (self.n_actions - 1) * f + SLACK


Behavior = Array | Logged


def _behavior(value: Any) -> Behavior:
    return value if isinstance(value, Logged) else PROBABILITIES.parse(value)


def n_actions_of(behavior: Any) -> int:
    """K of a checked behavior."""
    return behavior.n_actions if isinstance(behavior, Logged) else len(behavior)


def inverse_of(behavior: Any) -> Array | None:
    """1/q of every action of a checked vector, inf where it is 0; None if it is logged."""
    if isinstance(behavior, Logged):
        return None
    with np.errstate(divide="ignore"):
        return read_only(1.0 / np.asarray(behavior))


def sum_slack(n_actions: Any) -> Any:
    """The distance from 1 that the sum of so many rounded propensities may have.

    >>> float(sum_slack(2)), float(sum_slack(10**6))
    (2e-06, 0.0001)
    """
    return np.minimum(SLACK * np.maximum(n_actions, 1), MOST_SLACK)


def propensities_of(behavior: Behavior, log: Log) -> Array:
    """q_t(b_t) of every event of a checked log: the log's, or the behavior's."""
    if isinstance(behavior, Logged):
        assert log.propensities is not None  # `EventSpec.check` requires them
        return log.propensities
    return behavior[log.actions]


BEHAVIOR = Constraint(
    f"{PROBABILITIES.remedy}, or us.Logged(n_actions=K) if each event carries its own propensity",
    _behavior,
    PROBABILITIES.wrong,
)


@constrained(
    n_actions=N_ACTIONS, alpha=number(0.0, 1.0, "pass a number from 0 (last action) to 1 (first)")
)
def interpolated(*, n_actions: int, alpha: float) -> Array:
    r"""The paper's family: from favoring the last action (α = 0) to favoring the first (α = 1).

    $$\pi_{B,\alpha}(i) = \frac{2[(1-\alpha) i + \alpha (K - i + 1)]}{K(K+1)}, \quad i = 1..K$$

    >>> interpolated(n_actions=3, alpha=1.0).round(3).tolist()
    [0.5, 0.333, 0.167]
    >>> interpolated(n_actions=4, alpha=0.5).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    i = np.arange(1, n_actions + 1)
    weights = (1 - alpha) * i + alpha * (n_actions - i + 1)
    return np.asarray(2 * weights / (n_actions * (n_actions + 1)), dtype=np.float64)


@constrained(n_actions=N_ACTIONS)
def uniform(*, n_actions: int) -> Array:
    """Every action with probability 1/K.

    >>> uniform(n_actions=4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    return np.full(n_actions, 1.0 / n_actions)


def cdf(probabilities: Array) -> Array:
    """Cumulative distribution of each row of probabilities; the last entry is 1.

    >>> cdf(np.array([0.25, 0.0, 0.75])).tolist()
    [0.25, 0.25, 1.0]
    """
    edges = np.cumsum(probabilities, axis=-1)
    return np.asarray(edges / edges[..., -1:])


def choose(probabilities: Array, uniforms: Array) -> NDArray[np.int64]:
    """Draw an index per uniform number, from one row of probabilities or from a row each.

    An index of probability 0 is never drawn.

    >>> choose(np.array([0.5, 0.0, 0.5]), np.array([0.0, 0.49, 0.5, 0.99])).tolist()
    [0, 0, 2, 2]
    """
    edges = cdf(probabilities)
    if edges.ndim == 1:
        return np.searchsorted(edges, uniforms, side="right").astype(np.int64)
    return np.asarray((edges <= uniforms[:, np.newaxis]).sum(axis=1), dtype=np.int64)


if not TYPE_CHECKING:
    __getattr__ = old_module_names(__name__, {"edges_of": cdf})
