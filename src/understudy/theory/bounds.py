"""Bounds on the regret Reg(π*) in full, one function per statement.

They depend on the comparator, and on its rewards where these are given; `rates.py` has the bounds
that depend on its coverage alone. All are nonnegative numbers, `inf` where the statement is empty.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import (
    DELTA,
    HORIZON,
    N_ACTIONS,
    PROBABILITIES,
    RATE,
    TRUTH,
    Array,
    Constraint,
    array,
    constrained,
    integer,
)
from understudy.errors import InadmissibleRate, InvalidArgument
from understudy.schedules import Decaying, rounds_at_each_rate
from understudy.theory.coverage_ratio import RATIO, as_policy, smallest_probability
from understudy.types import chunks, rounds_per_chunk

TOTALS = array("pass Σ_t E[r_t(a)] for every action, (K,)", low=0.0)
PROBABILITY_TOTALS = array("pass Σ_t E[π_t(a)] for every action, (K,)", low=0.0)


def summable_horizon(instead: str) -> Constraint:
    """A horizon of at most 10^8 rounds: a bound that sums them one by one takes a second."""
    return integer(1, f"pass at most 10^8 rounds, which are summed, or use {instead}", 10**8)


def comparator_rewards(
    comparator: int | ArrayLike, n_actions: int, horizon: int, total_rewards: ArrayLike | None
) -> Array:
    """π*(a) Σ_t E[r_t(a)] for every action; each sum is n at the most and by default."""
    policy = as_policy(comparator, n_actions)
    if total_rewards is None:
        return policy * float(horizon)
    totals = np.asarray(total_rewards)
    if totals.shape != (n_actions,) or totals.max() > horizon * (1 + 1e-9):  # 1e-9: rounding
        raise InvalidArgument(
            "total_rewards",
            total_rewards,
            f"they must be {n_actions} sums over n = {horizon} rounds of rewards in [0, 1]",
            "pass Σ_t E[r_t(a)] for every action, or leave it out for the worst case n",
        )
    return np.asarray(policy * totals)


def divergence(comparator: int | ArrayLike, n_actions: int, prior: ArrayLike | None) -> float:
    """KL(π*‖w₁), the divergence of the comparator from the first policy; log K without a prior.

    A uniform prior has log K minus the entropy of π*. The theorems say log K for all comparators.
    """
    if prior is None:
        return math.log(n_actions)
    policy, w1 = as_policy(comparator, n_actions), np.asarray(prior)
    if len(w1) != n_actions:
        reason = f"there are {n_actions} actions"
        raise InvalidArgument("prior", f"{len(w1)} weights", reason, "pass one per action")
    played = policy > 0
    with np.errstate(divide="ignore"):  # of a prior of 0
        return float((policy[played] * np.log(policy[played] / w1[played])).sum())


@constrained(
    pi_b=PROBABILITIES,
    horizon=HORIZON,
    eta=RATE,
    total_rewards=TOTALS.optional(),
    prior=PROBABILITIES.optional(),
)
def theorem1_bound(
    comparator: int | ArrayLike,
    pi_b: ArrayLike,
    *,
    horizon: int,
    eta: float,
    total_rewards: ArrayLike | None = None,
    prior: ArrayLike | None = None,
) -> float:
    r"""Theorem 1 in full, for Exp3-IX (and Prod) with any η and γ = η/2:

    $$\frac{\log K}{\eta} + \frac\eta2 \sum_t \sum_a \frac{\pi^*(a) E[r_t(a)]}{q(a) + \eta/2}$$

    `total_rewards` is Σ_t E[r_t(a)]; without it, its largest value n. Finite for every
    comparator, covered or not. With the learner's `prior` w₁, KL(π*‖w₁) is in place of log K.

    >>> round(theorem1_bound(0, [0.5, 0.5], horizon=100, eta=0.1), 4)
    16.0224
    >>> round(theorem1_bound(0, [0.5, 0.5], horizon=100, eta=0.1, prior=[0.9, 0.1]), 4)
    10.1445
    """
    q = np.asarray(pi_b)
    earned = comparator_rewards(comparator, len(q), horizon, total_rewards)
    start = divergence(comparator, len(q), prior)
    return start / eta + eta / 2 * float((earned / (q + eta / 2)).sum())


@constrained(pi_b=PROBABILITIES, horizon=HORIZON, scale=RATE, prior=PROBABILITIES.optional())
def theorem1_anytime_bound(
    comparator: int | ArrayLike,
    pi_b: ArrayLike,
    *,
    horizon: int,
    scale: float,
    prior: ArrayLike | None = None,
) -> float:
    r"""Theorem 1 for Exp3-IX (and Prod) with the rates η_t = s/√t of `us.schedules.Decaying`:

    $$\frac{\log K}{\eta_n} + \sum_t \sum_a \pi^*(a) \frac{\eta_t/2}{q(a) + \eta_t/2}$$

    after any number n of rounds, which need not be known before. Rewards count as 1, the worst
    case. `us.theory.anytime_scale` is the s of the recipes. With the learner's `prior` w₁,
    KL(π*‖w₁) is in place of log K.

    >>> round(theorem1_anytime_bound(0, [0.5, 0.5], horizon=100, scale=0.6), 4)
    21.0967
    """
    q = np.asarray(pi_b)
    policy = as_policy(comparator, len(q))
    moves, lasting = rounds_at_each_rate(horizon)
    half: Array = Decaying(scale)(moves)[:, np.newaxis] / 2
    price = float((lasting[:, np.newaxis] * policy * half / (q + half)).sum())
    return divergence(comparator, len(q), prior) / (2 * float(half[-1, 0])) + price


@constrained(
    pi_b=PROBABILITIES,
    horizon=HORIZON,
    eta=RATE,
    total_rewards=TOTALS.optional(),
    prior=PROBABILITIES.optional(),
)
def prod_bound(
    comparator: int | ArrayLike,
    pi_b: ArrayLike,
    *,
    horizon: int,
    eta: float,
    total_rewards: ArrayLike | None = None,
    prior: ArrayLike | None = None,
) -> float:
    r"""Prod's bound, exact for rewards in {0, 1}, and valid for rewards in [0, 1]:

    $$\frac{\log K}{\eta} + \sum_t \sum_a \pi^*(a) E[r_t(a)]
      \Big(1 - \frac{q(a)}{\eta} \log\big(1 + \frac{\eta}{q(a)}\big)\Big)$$

    The bias r − (q/η) log(1 + ηr/q) is convex in r, so 0 and 1 are its worst case. Never above
    `theorem1_bound`, because the logarithmic gain is never below IX's. `prior` as there.

    >>> round(prod_bound(0, [0.5, 0.5], horizon=100, eta=0.1), 4)
    15.7707
    """
    q = np.asarray(pi_b)
    earned = comparator_rewards(comparator, len(q), horizon, total_rewards)
    seen = q > 0
    bias = np.ones(len(q))  # the estimate misses all reward of an action that is never seen
    bias[seen] = 1 - q[seen] / eta * np.log1p(eta / q[seen])
    return divergence(comparator, len(q), prior) / eta + float((earned * bias).sum())


@constrained(eta=RATE, pi_b=PROBABILITIES)
def exp3_condition(eta: float, pi_b: ArrayLike) -> bool:
    """Return whether Exp3's bound holds: η ≤ min q, so that η r̂ ≤ 1.

    >>> exp3_condition(0.0215, [0.000198, 0.999802])
    False
    """
    return bool(eta <= np.asarray(pi_b).min())


@constrained(
    pi_b=PROBABILITIES, horizon=HORIZON, eta=RATE, total_probabilities=PROBABILITY_TOTALS.optional()
)
def exp3_bound(
    pi_b: ArrayLike,
    *,
    horizon: int,
    eta: float,
    total_probabilities: ArrayLike | None = None,
) -> float:
    r"""Exp3's bound, which needs η ≤ min q and does not depend on the comparator:

    $$\frac{\log K}{\eta} + \eta \sum_t \sum_a \frac{E[\pi_t(a)]}{q(a)}$$

    `total_probabilities` is Σ_t E[π_t(a)]; without it, the worst case n/min q for the sum.

    >>> exp3_bound([0.5, 0.5], horizon=100, eta=0.1) == math.log(2) / 0.1 + 0.1 * 100 / 0.5
    True
    """
    q = np.asarray(pi_b)
    smallest = smallest_probability(q)
    if not exp3_condition(eta, q):
        raise InadmissibleRate(
            "eta",
            eta,
            f"Exp3's bound needs eta <= min(pi_b) = {smallest:g}",
            f"pass eta <= {smallest!r}, or use theorem1_bound, which has no condition",
            largest=smallest,
        )
    if total_probabilities is None:
        return math.log(len(q)) / eta + eta * horizon / smallest
    totals = np.asarray(total_probabilities)
    if totals.shape != q.shape or abs(totals.sum() - horizon) > 1e-6 * horizon:  # 1e-6: rounding
        raise InvalidArgument(
            "total_probabilities",
            total_probabilities,
            f"they must be {len(q)} sums of probabilities, {horizon} in all",
            "pass Σ_t E[π_t(a)] for every action",
        )
    return math.log(len(q)) / eta + eta * float((totals / q).sum())


@constrained(
    n_actions=N_ACTIONS,
    horizon=summable_horizon("theorem2_simplified_bound"),
    eta=RATE,
    coverage=RATIO,
)
def theorem2_bound(n_actions: int, *, horizon: int, eta: float, coverage: float) -> float:
    r"""Theorem 2 in full, with exact sums:

    $$\frac{\log K}{\eta} + \Big(1 + \frac2\eta\Big) \sum_{t=2}^n 2\delta_t
      + \Big(\frac{\eta n}{2} + 2\sum_{t=1}^n \varepsilon_t\Big) C$$

    with δ_t = (t−1)⁻², ε_1 = 1, ε_t = √(log(K(t−1)²)/(2t−2)). Two-sided Hoeffding fails with
    probability 2δ_t, not δ_t as in the paper.

    >>> round(theorem2_bound(10, horizon=1000, eta=0.05, coverage=10.0), 1)
    3502.1
    """
    past = np.arange(1, horizon, dtype=np.float64)
    failures = float((2.0 / past**2).sum())
    widths = 1.0 + float(np.sqrt((math.log(n_actions) + 2 * np.log(past)) / (2 * past)).sum())
    return (
        math.log(n_actions) / eta
        + (1 + 2 / eta) * failures
        + (eta * horizon / 2 + 2 * widths) * coverage
    )


@constrained(
    pi_b=PROBABILITIES,
    horizon=HORIZON,
    eta=RATE,
    delta=DELTA,
    total_rewards=TOTALS.optional(),
    every_comparator=TRUTH,
    prior=PROBABILITIES.optional(),
)
def theorem1_high_probability_bound(
    comparator: int | ArrayLike,
    pi_b: ArrayLike,
    *,
    horizon: int,
    eta: float,
    delta: float,
    total_rewards: ArrayLike | None = None,
    every_comparator: bool = False,
    prior: ArrayLike | None = None,
) -> float:
    r"""The bound on Reg(π*) with probability 1 − δ, for Exp3-IX (and Prod), any η and γ = η/2:

    $$\frac{\log K + 2 \log(2/\delta)}{\eta}
      + \eta \sum_t \sum_a \frac{\pi^*(a) r_t(a)}{q(a) + \eta/2}$$

    It holds after all numbers of rounds at once: with probability 1 − δ no n = `horizon` ever has a
    regret above it. The rate is fixed, and need not be tuned for n.

    Regret and bound use the rewards r_t themselves, not their means; the adversary may be adaptive.
    `total_rewards` is Σ_t r_t(a); without it, its largest value n. The comparator is fixed before
    the game. With `every_comparator` the bound holds for all comparators at once, also for one
    chosen after the game, and log(2/δ) + log(2K/δ) replaces 2 log(2/δ). `prior` as in
    `theorem1_bound`.

    >>> round(theorem1_high_probability_bound(0, [0.5, 0.5], horizon=100, eta=0.1, delta=0.05), 3)
    98.891
    """
    q = np.asarray(pi_b)
    K = len(q)
    earned = comparator_rewards(comparator, K, horizon, total_rewards)
    confidence = 2 * math.log(2 / delta) + (math.log(K) if every_comparator else 0.0)
    start = divergence(comparator, K, prior)
    return (start + confidence) / eta + eta * float((earned / (q + eta / 2)).sum())


def pessimism(q: Array, t: Array, n_actions: int, eta: float) -> Array:
    r"""A bound on E[1 − q/(u_t + η/2)], the share of a reward that the estimate misses:

    $$\min\Big\{1 - \frac{q}{1 + \eta/2}, \frac{\eta/2 + q w_t}{q + \eta/2}\Big\}, \quad
    w_t = \Big(\frac12 + \sqrt{2 \log(K t^2)}\Big) \sqrt{\frac{1-q}{(t-1)(q+\eta/2)}}$$
    """
    gamma = eta / 2
    past = np.maximum(t - 1, 1)
    deviations = 0.5 + np.sqrt(2 * (math.log(n_actions) + 2 * np.log(t)))
    width = deviations * np.sqrt((1 - q) / (past * (q + gamma)))
    share = (gamma + q * width) / (q + gamma)
    largest = 1 - q / (1 + gamma)  # as u_t ≤ 1, and u_1 = 1
    return np.asarray(np.where(t == 1, largest, np.minimum(largest, share)))


@constrained(pi_b=PROBABILITIES, horizon=summable_horizon("chernoff_simplified_bound"), eta=RATE)
def chernoff_bound(
    comparator: int | ArrayLike, pi_b: ArrayLike, *, horizon: int, eta: float
) -> float:
    r"""The bound in full for Exp3-IX with Chernoff's bounds u_t, γ = η/2 and any η > 0:

    $$\frac{\log K}{\eta} + \frac{2}{\eta K} \sum_{t=2}^n \frac1{t^2} + \sum_t \sum_a \pi^*(a)
      \min\Big\{1 - \frac{q(a)}{1 + \eta/2},
      \frac{\eta/2 + q(a) w_t(a)}{q(a) + \eta/2}\Big\}$$

    with w_t(a) = (½ + √(2 log(K t²))) √((1 − q(a))/((t − 1)(q(a) + η/2))). Finite for
    every comparator, covered or not. What it costs not to know π_B grows with √C, in Theorem 2
    with C (docs/theory.md has the proof).

    >>> round(chernoff_bound(0, [0.5, 0.5], horizon=1000, eta=0.05), 1)
    342.9
    """
    q = np.asarray(pi_b)
    policy, K = as_policy(comparator, len(q)), len(q)
    played = policy > 0
    failures = price = 0.0
    for before, rounds in chunks(horizon, rounds_per_chunk(int(played.sum()))):
        t = np.arange(before + 1.0, before + rounds + 1.0)[:, np.newaxis]
        failures += float((t[t > 1] ** -2).sum()) / K
        price += float((policy[played] * pessimism(q[played], t, K, eta)).sum())
    return (math.log(K) + 2 * failures) / eta + price
