"""The coverage-adaptive learner: its rates, its prior, and its regret bounds (docs/theory.md).

The weighted entropy Σ_a w(a) log w(a)/η_a gives each action a rate of its own. Small rates suit
actions that the behavior rarely shows, large ones the others; the prior keeps the price of having
all of them low.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import (
    COUNT,
    HORIZON,
    N_ACTIONS,
    NONNEGATIVE,
    POSITIVE,
    PROBABILITIES,
    SMALLEST_PROBABILITY,
    SUM_TOLERANCE,
    TRUTH,
    Array,
    Constraint,
    ConstraintViolation,
    array,
    constrained,
    number,
)
from understudy.errors import InvalidArgument
from understudy.schedules import rounds_at_each_rate
from understudy.theory.bounds import TOTALS, comparator_rewards
from understudy.theory.coverage_ratio import RATIO, as_policy

# The grid of `prod_grid`. At a rate of 8 an action leads after a few rewards that production plays
# rarely. Rates down to 2^-9 serve Σ r²/q up to some 10⁶; below them weights fall faster, so that
# the sum of all prices stays bounded, down to 2^-25, for 10^15.
LARGEST_RATE, USUAL_LEVELS, GRID_LEVELS = 8.0, 6, 15
FINEST_LEVEL = 25  # levels of the grid without a horizon: rates fall by 2²⁵, enough for 2⁵⁰ rounds
# 1e9 is far above all useful rates, and its square is far from overflow. A multiplier of at most
# 1e6 keeps c √(2 log(eK)/n) below it for every K.
RATES = array("pass one positive rate per action (or level), at most 1e9", low=0.0, high=1e9)
PROBABILITY = number(0.0, 1.0, "pass a prior weight, above 0 and at most 1", above=True)
MULTIPLIER = number(0.0, 1e6, "pass a positive number, such as 2.0", above=True)


def _prior(value: Any) -> Array:
    checked: Array = WEIGHTS.parse(value)
    if abs(float(checked.sum()) - 1.0) > SUM_TOLERANCE:
        raise ConstraintViolation(f"the weights sum to {float(checked.sum()):.12g}, not to 1")
    return checked


WEIGHTS = array("pass one weight per action (or level), summing to 1", low=0.0, high=1.0)
PRIOR = Constraint(WEIGHTS.remedy, _prior, (*WEIGHTS.wrong, [], [0.5, 0.4]))


def _positive_prior(value: Any) -> Array:
    checked = _prior(value)
    if not (checked >= SMALLEST_PROBABILITY).all():
        raise ConstraintViolation(f"a weight is below {SMALLEST_PROBABILITY:g}")
    return checked


POSITIVE_PRIOR = Constraint(
    "pass one positive weight per action, summing to 1, or 'behavior' to begin as a known π_B",
    _positive_prior,
    (*PRIOR.wrong, [1.0, 0.0]),
)


class Tuning(NamedTuple):
    """A rate and a prior weight for every action, or for every level of a grid.

    Without a horizon the rates are those of round 1: in round t they are divided by √t.
    """

    rates: Array
    prior: Array


@constrained(pi_b=PROBABILITIES, horizon=HORIZON.optional(), multiplier=MULTIPLIER)
def coverage_adaptive_tuning(
    pi_b: ArrayLike, *, horizon: int | None = None, multiplier: float = 1.0
) -> Tuning:
    r"""Rates and prior by dyadic groups of q, with $j(a) = \lfloor\log_2(q_{\max}/q(a))\rfloor$:

    $$w_1(a) \propto \frac{2^{-j/2}}{(j+1)(j+2)\,\#j}, \quad L_a = 1 + \log\frac{1}{w_1(a)}, \quad
    \eta_a = c \sqrt{2 L_a q_j / n}, \quad q_j = q_{\max} 2^{-(j+1/2)}$$

    and, without a horizon, $\eta_{a,t} = c\sqrt{L_a q_j / t}$. An action with q(a) = 0 gets the
    prior 0: it is never played.

    >>> rates, prior = coverage_adaptive_tuning([0.1, 0.45, 0.45], horizon=1000)
    >>> prior.round(3).tolist(), rates.round(4).tolist()
    ([0.077, 0.462, 0.462], [0.0238, 0.0336, 0.0336])
    """
    q = np.asarray(pi_b)
    seen = q > 0
    # The ratio before its logarithm: differences of logarithms misplace exact powers of 2.
    groups = np.floor(np.log2(q.max() / q[seen])).astype(np.int64)
    j, sizes = groups.astype(np.float64), np.bincount(groups)[groups]
    u = 2.0 ** (-j / 2) / ((j + 1) * (j + 2) * sizes)
    w1 = u / u.sum()
    q_j = q.max() * 2.0 ** -(j + 0.5)
    L = 1.0 - np.log(w1)
    rates, prior = np.ones(len(q)), np.zeros(len(q))
    rates[seen] = multiplier * (
        np.sqrt(L * q_j) if horizon is None else np.sqrt(2 * L * q_j / horizon)
    )
    prior[seen] = w1
    return Tuning(rates, prior)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON.optional(), multiplier=MULTIPLIER)
def coverage_grid_tuning(
    n_actions: int, *, horizon: int | None = None, multiplier: float = 1.0
) -> Tuning:
    r"""Levels i = 0, 1, … (at least two) for a behavior that is known one event at a time:

    $$\eta_i = c\,2^{-i} \sqrt{2 \log(eK)/n}, \quad i \le \lceil\tfrac12\log_2 n\rceil, \qquad
    w_1(a, i) \propto 4^{-i}/K$$

    and, without a horizon, $\eta_{i,t} = c\,2^{-i}\sqrt{\log(eK)/t}$, i ≤ 25. The prior is that of
    the levels, of which each is shared by all actions alike.

    >>> rates, prior = coverage_grid_tuning(10, horizon=16)
    >>> rates.round(3).tolist(), prior.round(3).tolist()
    ([0.643, 0.321, 0.161], [0.762, 0.19, 0.048])
    """
    finest = FINEST_LEVEL if horizon is None else max(1, math.ceil(math.log2(horizon) / 2))
    i = np.arange(finest + 1, dtype=np.float64)
    entropy = 1.0 + math.log(n_actions)  # log(eK)
    largest = math.sqrt(entropy if horizon is None else 2 * entropy / horizon)
    return Tuning(multiplier * largest * 2.0**-i, 4.0**-i / (4.0**-i).sum())


def prod_grid_tuning() -> Tuning:
    r"""The rates of `us.prod_grid` and `us.exp4`, and their prior, for any number of rounds:

    $$\eta_i = 8 \cdot 4^{-i}, \quad i = 0, \dots, 14, \qquad
    w_1(i) \propto 2^{-\min(i, 6)} \, 16^{-\max(i - 6, 0)}$$

    The prior favors large rates, which lose little if they are wrong: the price of a rate that is
    not used is w₁/η, and all prices together are below 10. With a factor 4 between rates one is
    within a factor 2 of the best, which costs at most a quarter of A/η + ηS/2.

    >>> rates, prior = prod_grid_tuning()
    >>> rates[:4].tolist(), prior[:4].round(3).tolist(), round(float((prior / rates).sum()), 1)
    ([8.0, 2.0, 0.5, 0.125], [0.504, 0.252, 0.126, 0.063], 9.3)
    """
    i = np.arange(GRID_LEVELS, dtype=np.float64)
    weights = 2.0 ** -np.minimum(i, USUAL_LEVELS) * 16.0 ** -np.maximum(i - USUAL_LEVELS, 0.0)
    return Tuning(LARGEST_RATE * 4.0**-i, weights / weights.sum())


@constrained(rates=RATES, prior=PRIOR)
def coverage_adaptive_price(rates: ArrayLike, prior: ArrayLike) -> Array:
    r"""The price of competing with each action, for any rates and prior:

    $$D_a = \frac{\log(1/w_1(a)) - 1 + w_1(a)}{\eta_a} + \sum_{i \ne a} \frac{w_1(i)}{\eta_i}$$

    `inf` for an action with prior 0.

    >>> coverage_adaptive_price([0.5, 0.5], [0.5, 0.5]).round(4).tolist()
    [1.3863, 1.3863]
    """
    eta, w1 = np.asarray(rates), np.asarray(prior)
    check_tuning(eta, w1)
    with np.errstate(divide="ignore"):  # of a prior of 0
        own = (np.log(1.0 / w1) - 1.0 + w1) / eta
    shares = w1 / eta
    return np.asarray(own + (shares.sum() - shares))


@constrained(
    pi_b=PROBABILITIES,
    horizon=HORIZON,
    rates=RATES.optional(),
    prior=PRIOR.optional(),
    multiplier=MULTIPLIER,
    total_rewards=TOTALS.optional(),
    anytime=TRUTH,
)
def coverage_adaptive_bound(
    comparator: int | ArrayLike,
    pi_b: ArrayLike,
    *,
    horizon: int,
    rates: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    multiplier: float = 1.0,
    total_rewards: ArrayLike | None = None,
    anytime: bool = False,
) -> float:
    r"""The regret of `us.coverage_adaptive` against any comparator, for any rates and prior:

    $$\sum_a \pi^*(a) \Big(D_a + \frac{\eta_a}{2} \sum_t \frac{E[r_t(a)]}{q(a) + \eta_a/2}\Big)$$

    with the arguments that the recipe takes. `total_rewards` is Σ_t E[r_t(a)]; without it, its
    largest value n. With `anytime` the learner has no horizon: its rates are divided by √t, D_a is
    taken at the last ones, and rewards count as 1.

    >>> round(coverage_adaptive_bound(0, [0.1, 0.45, 0.45], horizon=1000), 1)
    202.8
    """
    q = np.asarray(pi_b)
    own = coverage_adaptive_tuning(q, horizon=None if anytime else horizon, multiplier=multiplier)
    eta, w1 = override_tuning(own, rates, prior, multiplier)
    refuse_other_length(eta, len(q))
    policy = as_policy(comparator, len(q))
    if anytime:
        for name, value in (("total_rewards", total_rewards), ("rates", rates)):
            if value is not None:
                raise InvalidArgument(
                    name,
                    value,
                    "without a horizon rates fall, and it matters when the rewards came",
                    "leave it out: rewards then count as 1, and rates are the tuning's",
                )
        moves, lasting = rounds_at_each_rate(horizon)
        half = eta / 2 / np.sqrt(moves)[:, np.newaxis]
        pessimism = (lasting[:, np.newaxis] * half / (q + half)).sum(axis=0)
        price = coverage_adaptive_price(2 * half[-1], w1)
        return expected_under(policy, price + pessimism)
    earned = comparator_rewards(comparator, len(q), horizon, total_rewards)
    price = coverage_adaptive_price(eta, w1)
    return expected_under(policy, price) + float((eta / 2 * earned / (q + eta / 2)).sum())


@constrained(pi_b=PROBABILITIES, horizon=HORIZON, coverage=RATIO)
def coverage_adaptive_uniform_bound(pi_b: ArrayLike, *, horizon: int, coverage: float) -> float:
    r"""For all comparators at once: $(\sqrt{2 \max_a L_a} + 2) \sqrt{C(\pi^*) n}$.

    Proved for L ≤ 250, which no probabilities of at least 10⁻¹⁰⁰ exceed.

    >>> round(coverage_adaptive_uniform_bound([0.1, 0.45, 0.45], horizon=1000, coverage=10.0), 1)
    467.0
    """
    _, prior = coverage_adaptive_tuning(pi_b, horizon=horizon)
    L = 1.0 - math.log(float(prior[prior > 0].min()))
    return (math.sqrt(2 * L) + 2) * math.sqrt(coverage * horizon)


@constrained(
    n_actions=N_ACTIONS,
    horizon=HORIZON,
    inverse_propensities=POSITIVE,
    multiplier=MULTIPLIER,
)
def coverage_grid_bound(
    n_actions: int, *, horizon: int, inverse_propensities: float, multiplier: float = 1.0
) -> float:
    r"""The regret of the grid form against an action a, with $S = \sum_t E[1/q_t(a)]$:

    $$\min_i \Big\{\frac{\log K + i \log 4 + \log(4/3)}{\eta_i} + \frac{\eta_i}{2} S\Big\}
      + \frac{1.5}{\eta_0}$$

    >>> round(coverage_grid_bound(10, horizon=1000, inverse_propensities=10_000.0), 1)
    319.5
    """
    if inverse_propensities < horizon * (1 - 1e-9):
        raise InvalidArgument(
            "inverse_propensities",
            inverse_propensities,
            f"it is a sum of 1/q_t ≥ 1 over n = {horizon} rounds",
            "pass Σ_t E[1/q_t(a)], which is n/q(a) where the behavior stays",
        )
    rates, _ = coverage_grid_tuning(n_actions, horizon=horizon, multiplier=multiplier)
    entropy = math.log(n_actions) + np.arange(len(rates)) * math.log(4) + math.log(4 / 3)
    best = (entropy / rates + rates / 2 * inverse_propensities).min()
    return float(best) + 1.5 / float(rates[0])


@constrained(n_experts=COUNT, squares=NONNEGATIVE, share=PROBABILITY.optional())
def exp4_bound(n_experts: int, *, squares: float, share: float | None = None) -> float:
    r"""The regret of `us.exp4` against an expert m, and of `us.prod_grid`, after any n rounds:

    $$\min_i \Big\{\frac{\log(1/w_1(m, i)) - 1}{\eta_i} + \frac{\eta_i}{2} S\Big\}
      + \sum_i \frac{w_1(i)}{\eta_i}, \qquad
    S = \sum_{t \le n} E \sum_a \frac{\pi_{m,t}(a)^2 r_t(a)^2}{q_t(a)}$$

    `squares` is S, `share` the prior weight w₁(m) of the expert, 1/M if it is left out. For
    `us.prod_grid` the experts are the actions: S = Σ_t E[r_t(a)²/q_t(a)]; for production S ≤ n.
    r_t are the rewards themselves and not their means: a click that comes in 2 % of rounds has
    E[r_t²] = 0.02, which makes S a fiftieth of Σ_t 1/q_t(a). Against a distribution u over experts
    the share is exp(−KL(u‖w₁)), and S the mean under u. If `us.exp4` centers its estimates, S is
    1.5452 Σ_t E[r̂_t(m)²], largest over the rates (docs/theory.md).

    >>> round(exp4_bound(5, squares=50_000.0), 1)
    814.1
    """
    rates, prior = prod_grid_tuning()
    entropy = -np.log(prior * (1.0 / n_experts if share is None else share))
    best = ((entropy - 1.0) / rates + rates / 2 * squares).min()
    return float(best) + float((prior / rates).sum())


def override_tuning(
    own: Tuning, rates: ArrayLike | None, prior: ArrayLike | None, multiplier: float
) -> Tuning:
    """The tuning with the given rates, times the multiplier, and the given prior, if any."""
    return Tuning(
        own.rates if rates is None else multiplier * np.asarray(rates),
        own.prior if prior is None else np.asarray(prior),
    )


def refuse_other_length(values: Array, n_actions: int, argument: str = "rates") -> None:
    """Raise `InvalidArgument` unless there is a rate, or a prior weight, for every action."""
    if len(values) != n_actions:
        raise InvalidArgument(
            argument,
            f"{len(values)} {'rates' if argument == 'rates' else 'weights'}",
            f"there are {n_actions} actions",
            "pass one rate and one prior weight per action",
        )


def check_tuning(eta: Array, w1: Array) -> None:
    """Raise `InvalidArgument` unless rates are above 0, and as many as prior weights."""
    if eta.shape != w1.shape:
        raise InvalidArgument(
            "rates",
            f"{len(eta)} rates",
            f"there are {len(w1)} prior weights, and must be as many of both",
            "pass both, with one entry per action (or level)",
        )
    if not (eta > 0).all():
        raise InvalidArgument("rates", eta, "a rate of 0 learns nothing", RATES.remedy)


def expected_under(policy: Array, values: Array) -> float:
    """Σ_a π(a) v(a), where 0 · ∞ = 0."""
    return float((policy[policy > 0] * values[policy > 0]).sum())
