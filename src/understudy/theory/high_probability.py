"""Theorem 1 with high probability: the same learner, realised rewards, any adversary."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import DELTA, HORIZON, PROBABILITIES, RATE, TRUTH, constrained
from understudy.theory.bounds import TOTALS, comparator_rewards

__all__ = ["theorem1_high_probability_bound"]


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
    r"""What Reg(π*) exceeds with probability δ at the most: Exp3-IX (and Prod), any η, γ = η/2.

    $$\frac{\log K + 2 \log(2/\delta)}{\eta}
      + \eta \sum_t \sum_a \frac{\pi^*(a) r_t(a)}{q(a) + \eta/2}$$

    Regret and bound are of the rewards r_t themselves, not their means; an adversary may choose
    them by all that has happened. `total_rewards` is Σ_t r_t(a); without it, its largest value n.
    The comparator is fixed before the game. With `every_comparator` the statement holds for all of
    them at once, also one that is chosen afterwards, and log(2/δ) + log(2K/δ) replaces 2 log(2/δ).

    >>> round(theorem1_high_probability_bound(0, [0.5, 0.5], horizon=100, eta=0.1, delta=0.05), 3)
    98.891
    """
    q = np.asarray(pi_b)
    K = len(q)
    earned = comparator_rewards(comparator, K, horizon, total_rewards)
    confidence = 2 * math.log(2 / delta) + (math.log(K) if every_comparator else 0.0)
    return (math.log(K) + confidence) / eta + eta * float((earned / (q + eta / 2)).sum())
