"""Figure 1 of the paper: regret against action 0 as the behavior comes to cover it.

K = 100 actions, n = 10 000 rounds of Bernoulli rewards: the last action is best at first, then
the first one. The behavior slides from favoring the last action (α = 0) to the first (α = 1).
Both learners use η = √(log K/n), Exp3-IX with γ = η/2.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from understudy import behaviors, theory
from understudy.experiments.experiment import Options
from understudy.experiments.regret_curves import Point, RegretExperiment
from understudy.learners import exp3, exp3_ix
from understudy.simulation import adversaries
from understudy.simulation.game import Game
from understudy.types import durations

__all__ = ["FIGURE_1", "paper_game", "theorem1_for"]

COMPARATOR = 0  # the paper's arm 1


def paper_game(options: Options, alpha: float) -> Game:
    """The paper's switching game, watched through its behavior policy of parameter α.

    >>> paper_game(Options(runs=1, rounds=10, actions=4, alphas=1), alpha=0.5).behavior.tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    return Game(
        adversary=adversaries.switching(n_actions=options.actions, rounds=options.rounds),
        behavior=behaviors.interpolated(n_actions=options.actions, alpha=alpha),
        rounds=options.rounds,
    )


def theorem1_for(game: Game, eta: float) -> float:
    """Theorem 1's full bound against the comparator, with the game's own rewards.

    >>> game = paper_game(Options(runs=1, rounds=100, actions=2, alphas=1), alpha=0.5)
    >>> round(theorem1_for(game, eta=0.1), 4)
    13.7497
    """
    means, starts = game.pieces_between(0, game.rounds)
    totals = (means * durations(starts, game.rounds)[:, np.newaxis]).sum(axis=0)
    return theory.theorem1_bound(
        COMPARATOR, game.behavior, horizon=game.rounds, eta=eta, total_rewards=totals
    )


def points(options: Options) -> Iterator[Point]:
    for alpha in options.grid():
        game = paper_game(options, float(alpha))
        ix = exp3_ix(game.behavior, horizon=options.rounds)
        yield Point(
            alpha=float(alpha),
            game=game,
            learners={"Exp3": exp3(game.behavior, horizon=options.rounds), "Exp3-IX": ix},
            comparator=COMPARATOR,
            coverage=theory.coverage(COMPARATOR, game.behavior),
            bounds={"Exp3": None, "Exp3-IX": theorem1_for(game, ix.rate(0))},
        )


def notes(options: Options) -> list[str]:
    eta = theory.exp3_ix_rate(options.actions, options.rounds)
    family = (
        behaviors.interpolated(n_actions=options.actions, alpha=alpha) for alpha in options.grid()
    )
    holds = sum(theory.exp3_condition(eta, pi_b) for pi_b in family)
    return [
        "bound: Theorem 1 in full, for Exp3-IX; none for Exp3, whose own is the same for every "
        f"comparator and needs η ≤ min q, which holds at {holds} of {options.alphas} values of α",
        "regret against action 0, the paper's arm 1, counted with conditional mean rewards",
    ]


FIGURE_1 = RegretExperiment(
    name="figure1",
    title="Regret as the behavior policy comes to cover the comparator",
    defaults=Options(runs=100, rounds=10_000, actions=100, alphas=20),
    points=points,
    x="alpha",
    x_label=r"$\alpha$: from favoring the last action to favoring the comparator",
    bound_label="Theorem 1, Exp3-IX",
    notes=notes,
)
