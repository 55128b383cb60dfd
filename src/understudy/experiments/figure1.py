"""Figure 1 of the paper, and the same games with an unknown behavior policy.

Regret against action 0 as the behavior comes to cover it. K = 100 actions, n = 10 000 rounds of
Bernoulli rewards: the last action is best in the first half, the first one in the second. The
behavior changes from favoring the last action (α = 0) to favoring the first (α = 1). All learners
use η = √(log K/n), Exp3-IX with γ = η/2.

Where the behavior policy is unknown, its frequencies are counted. Theorem 2 widens them by
Hoeffding's inequality, alike for every action; Chernoff's bounds are far smaller for actions that
the behavior rarely plays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from understudy import behaviors, theory
from understudy.experiments.experiment import ExperimentOptions, RegretExperiment, RegretPoint
from understudy.learners import exp3, exp3_ix, exp3_ix_unknown
from understudy.protocols import Learner
from understudy.simulation import Game, adversaries
from understudy.types import durations

COMPARATOR = 0  # the paper's arm 1


def paper_game(options: ExperimentOptions, alpha: float) -> Game:
    """The paper's switching game, with its behavior policy of parameter α."""
    return Game(
        adversary=adversaries.switching(n_actions=options.actions, rounds=options.rounds),
        behavior=behaviors.interpolated(n_actions=options.actions, alpha=alpha),
        rounds=options.rounds,
    )


def theorem1_for(game: Game, eta: float) -> float:
    """Theorem 1's full bound against the comparator, with the game's own rewards."""
    means, starts = game.pieces_between(0, game.rounds)
    totals = (means * durations(starts, game.rounds)[:, np.newaxis]).sum(axis=0)
    return theory.theorem1_bound(
        COMPARATOR, game.behavior, horizon=game.rounds, eta=eta, total_rewards=totals
    )


class Figure1(RegretExperiment):
    """Exp3 and Exp3-IX with a known behavior policy."""

    name = "figure1"
    title = "Regret as the behavior policy comes to cover the comparator"
    defaults = ExperimentOptions(runs=100, rounds=10_000, actions=100, alphas=20)
    x = "alpha"
    x_label = r"$\alpha$: from favoring the last action to favoring the comparator"
    bound_label = "Theorem 1, Exp3-IX"

    def points(self, options: ExperimentOptions) -> Iterator[RegretPoint]:
        for alpha in options.grid():
            game = paper_game(options, alpha)
            contenders = self.contenders(game)
            yield RegretPoint(
                game=game,
                learners={name: learner for name, (learner, _) in contenders.items()},
                comparators=[COMPARATOR],
                alpha=alpha,
                coverage=theory.coverage(COMPARATOR, game.behavior),
                bounds={name: bound for name, (_, bound) in contenders.items()},
            )

    def contenders(self, game: Game) -> dict[str, tuple[Learner[Any], float | None]]:
        """The learners, each with the bound on its regret."""
        q, n = game.behavior, game.rounds
        known = exp3_ix(q, horizon=n)
        return {
            "Exp3": (exp3(q, horizon=n), None),
            "Exp3-IX": (known, theorem1_for(game, known.rate(0))),
        }

    def notes(self, options: ExperimentOptions) -> list[str]:
        eta = theory.exp3_ix_rate(options.actions, options.rounds)
        family = (paper_game(options, alpha).behavior for alpha in options.grid())
        holds = sum(theory.exp3_condition(eta, pi_b) for pi_b in family)
        return [
            "bound: Theorem 1 in full, for Exp3-IX; none for Exp3, whose own is the same for every "
            "comparator and needs η ≤ min q, which holds at "
            f"{holds} of {options.alphas} values of α",
            "regret against action 0, the paper's arm 1, counted with conditional mean rewards",
        ]


class UnknownBehavior(Figure1):
    """Exp3-IX with a known behavior policy, and with one that is only counted."""

    name = "unknown"
    title = "Exp3-IX, behavior policy known and unknown"
    bound_label = "Theorem 1 (known), Theorem 2 (unknown), Chernoff (unknown, kl)"

    def contenders(self, game: Game) -> dict[str, tuple[Learner[Any], float | None]]:
        q, n, K = game.behavior, game.rounds, game.n_actions
        known = exp3_ix(q, horizon=n)
        eta, coverage = known.rate(0), theory.coverage(COMPARATOR, q)  # η of all three learners
        theorem2 = theory.theorem2_bound(K, horizon=n, eta=eta, coverage=coverage)
        chernoff = theory.chernoff_bound(COMPARATOR, q, horizon=n, eta=eta)
        return {
            "Exp3-IX, unknown": (exp3_ix_unknown(K, horizon=n), theorem2),
            "Exp3-IX, unknown, kl": (exp3_ix_unknown(K, horizon=n, width="kl"), chernoff),
            "Exp3-IX": (known, theorem1_for(game, eta)),
        }

    def notes(self, options: ExperimentOptions) -> list[str]:
        return [
            "bound: in full, Theorem 1 where the behavior is known, Theorem 2 where it is not, and "
            "the one for Chernoff's bounds (docs/theory.md); no regret on this game exceeds "
            f"{options.rounds / 4:g}, so larger bounds say nothing",
            "regret against action 0, counted with conditional mean rewards",
        ]


FIGURE_1 = Figure1()
UNKNOWN = UnknownBehavior()
