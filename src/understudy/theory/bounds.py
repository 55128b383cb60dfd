"""The bounds on the expected regret E[Reg(π*)], one function per statement.

"Full" forms depend on the comparator and the rewards; simplified ones on its coverage only.
All are nonnegative numbers, `inf` where the statement is empty.

Theorem 1 with high probability: the same learner, realised rewards, any adversary.

Exp3-IX with Chernoff's upper bounds on an unknown behavior (`ChernoffPlugIn`): its regret.

Sharper than Theorem 2: what it costs not to know π_B grows with √C, not with C. docs/theory.md has
the proof.
"""

from __future__ import annotations

import math
from typing import Any

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
    number,
)
from understudy.errors import InadmissibleRate, InvalidArgument
from understudy.theory.coverage_ratio import as_policy
from understudy.theory.rates import smallest_probability
from understudy.types import chunks, rounds_per_chunk


def ratio(low: float) -> Constraint:
    """A coverage ratio of at least `low`, or infinity."""
    finite = number(low, math.inf, "pass us.coverage(...) or us.feature_coverage(...), inf too")

    def parse(value: Any) -> float:
        infinite = isinstance(value, float | np.floating) and value == math.inf
        return math.inf if infinite else float(finite.parse(value))

    wrong = tuple(value for value in finite.wrong if value != math.inf)
    return Constraint(finite.remedy, parse, wrong)


RATIO = ratio(1.0 - 1e-8)  # C(π*; π_B) ≥ 1, but for the rounding of probabilities
FEATURE_RATIO = ratio(0.0)
LONGEST_SUM = 10**8
TOTALS = array("pass Σ_t E[r_t(a)] for every action, (K,)", low=0.0)
PROBABILITY_TOTALS = array("pass Σ_t E[π_t(a)] for every action, (K,)", low=0.0)


def comparator_rewards(
    comparator: int | ArrayLike, n_actions: int, horizon: int, total_rewards: ArrayLike | None
) -> Array:
    """π*(a) Σ_t E[r_t(a)] for every action; each sum is n at the most and by default.

    >>> comparator_rewards(1, 2, horizon=10, total_rewards=None).tolist()
    [0.0, 10.0]
    """
    policy = as_policy(comparator, n_actions)
    if total_rewards is None:
        return policy * float(horizon)
    totals = np.asarray(total_rewards)
    if totals.shape != (n_actions,) or totals.max() > horizon * (1 + 1e-9):
        raise InvalidArgument(
            "total_rewards",
            total_rewards,
            f"they must be {n_actions} sums over n = {horizon} rounds of rewards in [0, 1]",
            "pass Σ_t E[r_t(a)] for every action, or leave it out for the worst case n",
        )
    return np.asarray(policy * totals)


@constrained(pi_b=PROBABILITIES, horizon=HORIZON, eta=RATE, total_rewards=TOTALS.optional())
def theorem1_bound(
    comparator: int | ArrayLike,
    pi_b: ArrayLike,
    *,
    horizon: int,
    eta: float,
    total_rewards: ArrayLike | None = None,
) -> float:
    r"""Theorem 1 in full, for Exp3-IX (and Prod) with any η and γ = η/2:

    $$\frac{\log K}{\eta} + \frac\eta2 \sum_t \sum_a \frac{\pi^*(a) E[r_t(a)]}{q(a) + \eta/2}$$

    `total_rewards` is Σ_t E[r_t(a)]; without it, its largest value n. Finite for every
    comparator, covered or not.

    >>> round(theorem1_bound(0, [0.5, 0.5], horizon=100, eta=0.1), 4)
    16.0224
    """
    q = np.asarray(pi_b)
    earned = comparator_rewards(comparator, len(q), horizon, total_rewards)
    return math.log(len(q)) / eta + eta / 2 * float((earned / (q + eta / 2)).sum())


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=RATIO)
def theorem1_uniform_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""Theorem 1 at η = √(log K/n): $\sqrt{n \log K} (1 + C/2)$, for all comparators at once.

    >>> round(theorem1_uniform_bound(100, 10_000, coverage=50.5), 1)
    5633.2
    """
    return math.sqrt(horizon * math.log(n_actions)) * (1 + coverage / 2)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=RATIO)
def theorem1_tuned_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""Theorem 1 at η = √(2 log K/(C n)): $\sqrt{2 C n \log K}$, for comparators of coverage ≤ C.

    >>> round(theorem1_tuned_bound(100, 10_000, coverage=50.5), 1)
    2156.7
    """
    return math.sqrt(2 * coverage * horizon * math.log(n_actions))


@constrained(pi_b=PROBABILITIES, horizon=HORIZON, eta=RATE, total_rewards=TOTALS.optional())
def prod_bound(
    comparator: int | ArrayLike,
    pi_b: ArrayLike,
    *,
    horizon: int,
    eta: float,
    total_rewards: ArrayLike | None = None,
) -> float:
    r"""Prod's bound, exact for rewards in {0, 1}, and valid for rewards in [0, 1]:

    $$\frac{\log K}{\eta} + \sum_t \sum_a \pi^*(a) E[r_t(a)]
      \Big(1 - \frac{q(a)}{\eta} \log\big(1 + \frac{\eta}{q(a)}\big)\Big)$$

    The bias r − (q/η) log(1 + ηr/q) is convex in r, so 0 and 1 are its worst case. Never above
    `theorem1_bound`, because the logarithmic gain is never below IX's.

    >>> round(prod_bound(0, [0.5, 0.5], horizon=100, eta=0.1), 4)
    15.7707
    """
    q = np.asarray(pi_b)
    earned = comparator_rewards(comparator, len(q), horizon, total_rewards)
    seen = q > 0
    bias = np.ones(len(q))  # the estimate misses all reward of an action that is never seen
    bias[seen] = 1 - q[seen] / eta * np.log1p(eta / q[seen])
    return math.log(len(q)) / eta + float((earned * bias).sum())


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
    if totals.shape != q.shape or abs(totals.sum() - horizon) > 1e-6 * horizon:
        raise InvalidArgument(
            "total_probabilities",
            total_probabilities,
            f"they must be {len(q)} sums of probabilities, {horizon} in all",
            "pass Σ_t E[π_t(a)] for every action",
        )
    return math.log(len(q)) / eta + eta * float((totals / q).sum())


@constrained(pi_b=PROBABILITIES, horizon=HORIZON)
def exp3_worst_case_bound(pi_b: ArrayLike, *, horizon: int) -> float:
    r"""Exp3's bound at its best rate in the worst case: $2\sqrt{n \log K / \min q}$.

    The rate is `exp3_worst_case_rate`; it is admissible for n ≥ log K/min q.

    >>> round(exp3_worst_case_bound([0.01, 0.99], horizon=10_000), 1)
    1665.1
    """
    q = np.asarray(pi_b)
    return 2 * math.sqrt(horizon * math.log(len(q)) / smallest_probability(q))


@constrained(pi_b=PROBABILITIES, horizon=HORIZON)
def exp3_order(pi_b: ArrayLike, *, horizon: int) -> float:
    r"""The paper's remark on Exp3: its regret is of the order $\sqrt{n / \min q}$, constants apart.

    >>> round(exp3_order([0.01, 0.99], horizon=10_000), 6)
    1000.0
    """
    return math.sqrt(horizon / smallest_probability(pi_b))


def too_long(horizon: int, instead: str) -> InvalidArgument:
    """The error for sums of more terms than anybody would wait for.

    >>> print(too_long(10**9, "theorem2_simplified_bound"))
    horizon = 1000000000: the sums are taken term by term, up to n = 1e+08; use theorem2_...
    """
    return InvalidArgument(
        "horizon",
        horizon,
        f"the sums are taken term by term, up to n = {LONGEST_SUM:g}",
        f"use {instead}",
    )


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, eta=RATE, coverage=RATIO)
def theorem2_bound(n_actions: int, *, horizon: int, eta: float, coverage: float) -> float:
    r"""Theorem 2 in full, with exact sums:

    $$\frac{\log K}{\eta} + \Big(1 + \frac2\eta\Big) \sum_{t=2}^n 2\delta_t
      + \Big(\frac{\eta n}{2} + 2\sum_{t=1}^n \varepsilon_t\Big) C$$

    with δ_t = (t−1)⁻², ε_1 = 1, ε_t = √(log(K(t−1)²)/(2t−2)). Two-sided Hoeffding fails with
    probability 2δ_t, not δ_t as in the paper.

    >>> round(theorem2_bound(10, horizon=1000, eta=0.05, coverage=10.0), 1)
    3502.1
    """
    if horizon > LONGEST_SUM:
        raise too_long(horizon, "theorem2_simplified_bound")
    past = np.arange(1, horizon, dtype=np.float64)
    failures = float((2.0 / past**2).sum())
    widths = 1.0 + float(np.sqrt((math.log(n_actions) + 2 * np.log(past)) / (2 * past)).sum())
    return (
        math.log(n_actions) / eta
        + (1 + 2 / eta) * failures
        + (eta * horizon / 2 + 2 * widths) * coverage
    )


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=RATIO)
def theorem2_simplified_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""Theorem 2 at η = √(log K/n), with honest constants:

    $$\frac{16 + \log K}{\eta} + \Big(\frac{\eta n}{2} + 4\sqrt{n \log(Kn)}\Big) C + 2$$

    The paper's last display has 2√(n log(Kn)), which is too small (docs/paper.md).

    >>> round(theorem2_simplified_bound(10, 1000, coverage=10.0), 1)
    4462.2
    """
    eta = math.sqrt(math.log(n_actions) / horizon)
    width = 4 * math.sqrt(horizon * math.log(n_actions * horizon))
    return (16 + math.log(n_actions)) / eta + (eta * horizon / 2 + width) * coverage + 2


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, eta=RATE, coverage=FEATURE_RATIO)
def lin_prod_bound(n_actions: int, *, horizon: int, eta: float, coverage: float) -> float:
    r"""Theorem 3 for any admissible η: $\frac{\log K}{\eta} + \eta n C_\varphi(\pi^*; \pi_B)$.

    >>> round(lin_prod_bound(10, horizon=10_000, eta=0.01, coverage=5.0), 2)
    730.26
    """
    return math.log(n_actions) / eta + eta * horizon * coverage


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=FEATURE_RATIO)
def lin_prod_uniform_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""Theorem 3 at η = √(log K/n), if that is admissible: $\sqrt{n \log K} (1 + C_\varphi)$.

    >>> round(lin_prod_uniform_bound(10, 10_000, coverage=5.0), 2)
    910.46
    """
    return math.sqrt(horizon * math.log(n_actions)) * (1 + coverage)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=FEATURE_RATIO)
def lin_prod_tuned_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""Theorem 3 at η = √(log K/(C_φ n)), if that is admissible: $2\sqrt{C_\varphi n \log K}$.

    >>> round(lin_prod_tuned_bound(10, 10_000, coverage=5.0), 2)
    678.61
    """
    return 2 * math.sqrt(coverage * horizon * math.log(n_actions))


@constrained(
    pi_b=PROBABILITIES,
    horizon=HORIZON,
    eta=RATE,
    delta=DELTA,
    total_rewards=TOTALS.optional(),
    every_comparator=TRUTH,
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
) -> float:
    r"""The bound on Reg(π*) with probability 1 − δ, for Exp3-IX (and Prod), any η and γ = η/2:

    $$\frac{\log K + 2 \log(2/\delta)}{\eta}
      + \eta \sum_t \sum_a \frac{\pi^*(a) r_t(a)}{q(a) + \eta/2}$$

    Regret and bound use the rewards r_t themselves, not their means; the adversary may be adaptive.
    `total_rewards` is Σ_t r_t(a); without it, its largest value n. The comparator is fixed before
    the game. With `every_comparator` the bound holds for all comparators at once, also for one
    chosen after the game, and log(2/δ) + log(2K/δ) replaces 2 log(2/δ).

    >>> round(theorem1_high_probability_bound(0, [0.5, 0.5], horizon=100, eta=0.1, delta=0.05), 3)
    98.891
    """
    q = np.asarray(pi_b)
    K = len(q)
    earned = comparator_rewards(comparator, K, horizon, total_rewards)
    confidence = 2 * math.log(2 / delta) + (math.log(K) if every_comparator else 0.0)
    return (math.log(K) + confidence) / eta + eta * float((earned / (q + eta / 2)).sum())


def pessimism(q: Array, t: Array, n_actions: int, eta: float) -> Array:
    r"""A bound on E[1 − q/(u_t + η/2)], the share of a reward that the estimate misses:

    $$\min\Big\{1 - \frac{q}{1 + \eta/2}, \frac{\eta/2 + q w_t}{q + \eta/2}\Big\}, \quad
    w_t = \Big(\frac12 + \sqrt{2 \log(K t^2)}\Big) \sqrt{\frac{1-q}{(t-1)(q+\eta/2)}}$$

    >>> pessimism(np.array([0.5]), np.array([1.0, 10_001.0]), n_actions=10, eta=0.1).round(4)
    array([0.5238, 0.151 ])
    """
    gamma = eta / 2
    past = np.maximum(t - 1, 1)
    deviations = 0.5 + np.sqrt(2 * (math.log(n_actions) + 2 * np.log(t)))
    width = deviations * np.sqrt((1 - q) / (past * (q + gamma)))
    share = (gamma + q * width) / (q + gamma)
    largest = 1 - q / (1 + gamma)  # as u_t ≤ 1, and u_1 = 1
    return np.asarray(np.where(t == 1, largest, np.minimum(largest, share)))


@constrained(pi_b=PROBABILITIES, horizon=HORIZON, eta=RATE)
def chernoff_bound(
    comparator: int | ArrayLike, pi_b: ArrayLike, *, horizon: int, eta: float
) -> float:
    r"""The bound in full for Exp3-IX with Chernoff's bounds u_t, γ = η/2 and any η > 0:

    $$\frac{\log K}{\eta} + \frac{2}{\eta K} \sum_{t=2}^n \frac1{t^2} + \sum_t \sum_a \pi^*(a)
      \min\Big\{1 - \frac{q(a)}{1 + \eta/2},
      \frac{\eta/2 + q(a) w_t(a)}{q(a) + \eta/2}\Big\}$$

    with w_t(a) = (½ + √(2 log(K t²))) √((1 − q(a))/((t − 1)(q(a) + η/2))). Finite for
    every comparator, covered or not.

    >>> round(chernoff_bound(0, [0.5, 0.5], horizon=1000, eta=0.05), 1)
    342.9
    """
    if horizon > LONGEST_SUM:
        raise too_long(horizon, "chernoff_simplified_bound")
    q = np.asarray(pi_b)
    policy, K = as_policy(comparator, len(q)), len(q)
    played = policy > 0
    failures = price = 0.0
    for before, rounds in chunks(horizon, rounds_per_chunk(int(played.sum()))):
        t = np.arange(before + 1.0, before + rounds + 1.0)[:, np.newaxis]
        failures += float((t[t > 1] ** -2).sum()) / K
        price += float((policy[played] * pessimism(q[played], t, K, eta)).sum())
    return (math.log(K) + 2 * failures) / eta + price


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, eta=RATE, coverage=RATIO)
def chernoff_simplified_bound(
    n_actions: int, *, horizon: int, eta: float, coverage: float
) -> float:
    r"""The same in terms of the coverage, with ℓ = log(K n²):

    $$\frac{\log K + 1.3/K}{\eta} + 1 + \frac{\eta n C}{2} + (1 + 2\sqrt{2\ell}) \sqrt{(C-1) n}$$

    >>> round(chernoff_simplified_bound(10, horizon=1000, eta=0.05, coverage=10.0), 1)
    1471.8
    """
    length = math.log(n_actions) + 2 * math.log(horizon)
    width = (1 + 2 * math.sqrt(2 * length)) * math.sqrt(max(0.0, coverage - 1) * horizon)
    start = (math.log(n_actions) + 1.3 / n_actions) / eta
    return start + 1 + eta * horizon * coverage / 2 + width
