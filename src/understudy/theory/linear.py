"""The bound of LinProd in constant memory without a horizon."""

from __future__ import annotations

import math

import numpy as np

from understudy.constraints import HORIZON, N_ACTIONS, POSITIVE, constrained
from understudy.schedules import ETA, Rate, rate_at
from understudy.theory.anytime import rounds_at_each_rate
from understudy.theory.bounds import FEATURE_RATIO
from understudy.theory.rates import largest_lin_prod_rate

__all__ = ["lin_prod_anytime_bound"]


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
