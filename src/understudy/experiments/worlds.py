"""Worlds in which one rate cannot be right: a rarely shown action that is best, or that is not.

All actions but action 0 are shown equally often, action 0 with probability q. The best action has a
larger mean than all others, which have ½. If the rare action is best, a learner must be slow enough
for its few, large estimates; if a common one is, it may be fast.
"""

from __future__ import annotations

import numpy as np

from understudy import adversaries
from understudy.constraints import Array
from understudy.game import Game

__all__ = ["COMMON", "RARE", "world"]

RARE, COMMON = 0, 1


def behavior_with_rare(q: float, n_actions: int) -> Array:
    """Action 0 with probability q, all others alike.

    >>> behavior_with_rare(0.1, 4).round(2).tolist()
    [0.1, 0.3, 0.3, 0.3]
    """
    behavior = np.full(n_actions, (1 - q) / (n_actions - 1))
    behavior[RARE] = q
    return behavior


def world(q: float, best: int, mean: float, *, n_actions: int, rounds: int) -> Game:
    """A stationary game in which one action is best.

    >>> world(0.1, best=RARE, mean=0.9, n_actions=4, rounds=10).behavior.round(2).tolist()
    [0.1, 0.3, 0.3, 0.3]
    """
    means = np.full(n_actions, 0.5)
    means[best] = mean
    return Game(adversaries.stationary(means), behavior_with_rare(q, n_actions), rounds)
