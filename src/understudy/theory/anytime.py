"""Bounds without a horizon: η_t = s/√t, held until t has grown by 5 % (docs/theory.md).

Theorem 1 for Exp3-IX and Prod, and Theorem 3 for LinProd in constant memory.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import (
    HORIZON,
    N_ACTIONS,
    POSITIVE,
    PROBABILITIES,
    RATE,
    Array,
    constrained,
)
from understudy.schedules import CHANGES, ETA, Decaying, Rate, rate_at
from understudy.theory.bounds import FEATURE_RATIO, RATIO
from understudy.theory.coverage_ratio import as_policy
from understudy.theory.rates import largest_lin_prod_rate
from understudy.types import Integers

HOLDING = math.sqrt(1.05)  # what a rate that is held may be above s/√t


def rounds_at_each_rate(horizon: int) -> tuple[Integers, Integers]:
    """The rounds up to n in which a held rate moves, and how long it then stays.

    >>> [part[-3:].tolist() for part in rounds_at_each_rate(100)]
    [[87, 92, 97], [5, 5, 4]]
    """
    moves = CHANGES[horizon >= CHANGES]
    return moves, np.diff(np.append(moves, horizon + 1))


@constrained(pi_b=PROBABILITIES, horizon=HORIZON, scale=RATE)
def theorem1_anytime_bound(
    comparator: int | ArrayLike, pi_b: ArrayLike, *, horizon: int, scale: float
) -> float:
    r"""Theorem 1 for Exp3-IX (and Prod) with the rates η_t = s/√t of `us.schedules.Decaying`:

    $$\frac{\log K}{\eta_n} + \sum_t \sum_a \pi^*(a) \frac{\eta_t/2}{q(a) + \eta_t/2}$$

    after any number n of rounds, which need not be known before. Rewards count as 1, the worst
    case. `us.theory.anytime_scale` is the s of the recipes.

    >>> round(theorem1_anytime_bound(0, [0.5, 0.5], horizon=100, scale=0.6), 4)
    21.0967
    """
    q = np.asarray(pi_b)
    policy = as_policy(comparator, len(q))
    moves, lasting = rounds_at_each_rate(horizon)
    half: Array = Decaying(scale)(moves)[:, np.newaxis] / 2
    price = float((lasting[:, np.newaxis] * policy * half / (q + half)).sum())
    return math.log(len(q)) / (2 * float(half[-1, 0])) + price


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=RATIO)
def theorem1_anytime_uniform_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""At $s = \sqrt{\log K/2}$: $\sqrt{2 n \log K} (1 + \sqrt{1.05}\, C/2)$, for all comparators.

    >>> round(theorem1_anytime_uniform_bound(100, 10_000, coverage=50.5), 1)
    8155.7
    """
    return math.sqrt(2 * horizon * math.log(n_actions)) * (1 + HOLDING * coverage / 2)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=RATIO)
def theorem1_anytime_tuned_bound(n_actions: int, horizon: int, coverage: float) -> float:
    r"""At $s = \sqrt{\log K/C}$: $(1 + \sqrt{1.05}) \sqrt{C n \log K}$, for coverage ≤ C.

    >>> round(theorem1_anytime_tuned_bound(100, 10_000, coverage=50.5), 1)
    3087.7
    """
    return (1 + HOLDING) * math.sqrt(coverage * horizon * math.log(n_actions))


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, eta=ETA, kappa=POSITIVE, coverage=FEATURE_RATIO)
def lin_prod_anytime_bound(
    n_actions: int, *, horizon: int, eta: Rate, kappa: float, coverage: float
) -> float:
    r"""Theorem 3 for a rate that falls with time, after any number of rounds n:

    $$\frac{\log K}{\eta_n} + C_\varphi(\pi^*; \pi_B) \sum_{t=1}^n \eta_t,
    \qquad \eta_t = \min\big(1/(2\kappa), c/\sqrt{t'}\big)$$

    with t' the round in which the rate was set (`learner.eta` and `learner.kappa` of
    `us.lin_prod_compact`). At c = √(log K/2), once the cap no longer bites, it is about
    √(2 n log K)(1 + C_φ): √2 times what a known horizon gives.

    >>> from understudy.schedules import Decaying
    >>> eta = Decaying(math.sqrt(math.log(10) / 2))
    >>> round(lin_prod_anytime_bound(10, horizon=10_000, eta=eta, kappa=20.0, coverage=5.0), 1)
    1064.0
    """
    moves, lasting = rounds_at_each_rate(horizon)
    wanted = np.broadcast_to(rate_at(eta, moves), moves.shape)
    rates = np.minimum(largest_lin_prod_rate(kappa), wanted)
    return math.log(n_actions) / float(rates[-1]) + coverage * float((lasting * rates).sum())
