"""Adversaries: who decides the rewards.

An adversary gives the conditional means of the rewards of round t, one per action; with
`bernoulli` the rewards are 0 or 1 with these means, without it they are the means. In a linear
game it gives θ_t instead, and the means are ⟨θ_t, φ(X_t, ·)⟩.

Oblivious ones know t only. Adaptive ones are shown every round that was played: the learner's
policy and drawn action, the behavior's action, the rewards (never the round to come).
"""

from __future__ import annotations

from understudy.adversaries.adaptive import Adaptive, Adversary, Compiled, Hiding, Retaliating
from understudy.adversaries.oblivious import (
    Drifting,
    Oblivious,
    Piecewise,
    Table,
    halves,
    stationary,
    switching,
)

__all__ = [
    "Adaptive",
    "Adversary",
    "Compiled",
    "Drifting",
    "Hiding",
    "Oblivious",
    "Piecewise",
    "Retaliating",
    "Table",
    "drifting",
    "halves",
    "hiding",
    "retaliating",
    "stationary",
    "switching",
    "table",
]

# One spelling for all adversaries, like `switching` and `stationary`.
drifting = Drifting
table = Table
retaliating = Retaliating
hiding = Hiding
