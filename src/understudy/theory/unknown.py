"""Exp3-IX with Chernoff's upper bounds on an unknown behavior (`ChernoffPlugIn`): its regret.

Sharper than Theorem 2: what it costs not to know π_B grows with √C, not with C. docs/theory.md has
the proof.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import HORIZON, N_ACTIONS, PROBABILITIES, RATE, Array, constrained
from understudy.theory.bounds import LONGEST_SUM, RATIO, too_long
from understudy.theory.coverage import as_policy
from understudy.types import cut, rounds_per_stretch

__all__ = ["chernoff_bound", "chernoff_simplified_bound", "pessimism"]


def pessimism(q: Array, t: Array, n_actions: int, eta: float) -> Array:
    r"""A bound on E[1 − q/(u_t + η/2)], the share of a reward that the estimate leaves out:

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
    r"""The regret of Exp3-IX with Chernoff's bounds u_t and γ = η/2, any η > 0, in full:

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
    for before, rounds in cut(horizon, rounds_per_stretch(int(played.sum()))):
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
