"""Simulation of the paper's game.

`Game` is a setting (adversary, behavior policy, rounds, contexts) and `play` plays it round by
round. `simulate` plays many runs of a game, or of all cells of a `Sweep`, on the fastest path that
each learner allows, and returns regrets. `plan` simulates a log before it is collected.
"""

from __future__ import annotations

from understudy.simulation import adversaries
from understudy.simulation.game import Game, play
from understudy.simulation.planned_game import PlannedGuardrail
from understudy.simulation.planning import Plan, plan
from understudy.simulation.simulate import Simulation, simulate
from understudy.simulation.sweep import Results, Sweep

__all__ = [
    "Game",
    "Plan",
    "PlannedGuardrail",
    "Results",
    "Simulation",
    "Sweep",
    "adversaries",
    "plan",
    "play",
    "simulate",
]
