"""Theorem 1 with high probability, tried: how often is the regret above a bound that may fail?

Three games of realised rewards: one best action throughout, the paper's switch at half-time, and
an adversary that punishes what the learner favors. The comparator is an action fixed before the
game, or the best one in hindsight, for which the bound must hold for every comparator at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from understudy import behaviors, kernels, theory
from understudy.constraints import Array
from understudy.experiments.experiment import Column, Options
from understudy.learners import exp3_ix
from understudy.plots import Tail, draw_tails
from understudy.simulation import adversaries
from understudy.simulation.adversaries import Adversary
from understudy.simulation.game import Game
from understudy.simulation.simulate import simulate
from understudy.simulation.sweep import Sweep
from understudy.types import Integers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PROBABILITY", "ProbabilityExperiment", "TailRow"]

DELTAS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
ALPHA = 0.75  # of the behavior: all actions are covered, not all alike
COMPARATOR = 0
FIXED, BEST = "fixed", "best in hindsight"
LEARNER = "Exp3-IX"
MISTAKEN = 0.05  # with this probability, the failure rate is above what `at_most` says


@dataclass(frozen=True)
class TailRow:
    """One line of the results: a bound that may fail with probability δ, and how often it did.

    `regret` was exceeded in a share δ of the runs; `above` is the share of runs whose regret
    exceeded its bound. `bound` is the mean over the runs: it depends on the rewards that were
    drawn. `at_most` is an upper confidence bound, at 95 %, on the failure rate. Without δ: the mean
    regret, and Theorem 1's bound on it, which no single run has to obey.
    """

    game: str
    comparator: str
    delta: float | None
    regret: float
    bound: float
    above: float
    standard_error: float
    at_most: float


def games(options: Options) -> dict[str, Game]:
    """The three games.

    >>> list(games(Options(runs=1, rounds=10, actions=3)))
    ['stationary', 'switching', 'retaliating']
    """
    K, n = options.actions, options.rounds
    pi_b = behaviors.interpolated(n_actions=K, alpha=ALPHA)
    worlds: dict[str, Adversary] = {
        "stationary": adversaries.stationary([0.7, *[0.5] * (K - 1)]),
        "switching": adversaries.switching(n_actions=K, rounds=n),
        "retaliating": adversaries.retaliating(n_actions=K),
    }
    return {name: Game(world, pi_b, rounds=n) for name, world in worlds.items()}


def bounds(game: Game, compared: Integers, rewards: Array, who: str, delta: float | None) -> Array:
    """The bound of every run: which action it is compared with, and what that one earned."""
    K, n = game.n_actions, game.rounds

    def bound(action: int, earned: float) -> float:
        eta, totals = theory.exp3_ix_rate(K, n), np.full(K, earned)
        if delta is None:
            return theory.theorem1_bound(
                action, game.behavior, horizon=n, eta=eta, total_rewards=totals
            )
        return theory.theorem1_high_probability_bound(
            action,
            game.behavior,
            horizon=n,
            eta=eta,
            delta=delta,
            total_rewards=totals,
            every_comparator=who == BEST,
        )

    ends = np.array([[bound(a, earned) for a in range(K)] for earned in (0.0, float(n))])
    none, all_of_it = ends[:, compared]  # in between, the bound is a straight line
    return np.asarray(none + (all_of_it - none) * rewards / n)


def rows_of(name: str, game: Game, regret: Array, rewards: Array) -> Iterator[TailRow]:
    """The rows of a game: (runs, K) regrets against every action, and what the learner earned."""
    runs = len(regret)
    fixed, best = np.full(runs, COMPARATOR), regret.argmax(axis=1)
    for who, compared, deltas in ((FIXED, fixed, (None, *DELTAS)), (BEST, best, DELTAS)):
        own = regret[np.arange(runs), compared]
        for delta in deltas:
            limits = bounds(game, compared, own + rewards, who, delta)
            above = float((own > limits).mean())
            yield TailRow(
                game=name,
                comparator=who,
                delta=delta,
                regret=float(own.mean() if delta is None else np.quantile(own, 1 - delta)),
                bound=float(limits.mean()),
                above=above,
                standard_error=math.sqrt(above * (1 - above) / runs),
                at_most=kernels.certificates.kl_upper(above, runs, -math.log(MISTAKEN)),
            )


@dataclass(frozen=True)
class ProbabilityExperiment:
    """Runs of each game, and their regret at every δ beside the bound."""

    defaults: Options
    name: ClassVar = "probability"
    title: ClassVar = "Exp3-IX: the regret that few runs exceed, and its bound"
    sizes: ClassVar = ("runs", "rounds", "actions")
    words: ClassVar = ("game", "against")
    columns: ClassVar[Mapping[str, Column]] = {
        "game": lambda row: row.game,
        "against": lambda row: row.comparator.removesuffix(" in hindsight"),
        "δ": lambda row: "mean" if row.delta is None else f"{row.delta:g}",
        "regret": lambda row: f"{row.regret:.0f}",
        "bound": lambda row: f"{row.bound:.0f}",
        "above": lambda row: f"{row.above:.4f}",
        "±": lambda row: f"{row.standard_error:.4f}",
        "at most": lambda row: f"{row.at_most:.4f}",
    }

    def sections(self, row: TailRow) -> object:
        return row.game, row.comparator

    def run(self, options: Options, *, progress: bool = False) -> list[TailRow]:
        """Play all games, with a bar if wanted.

        >>> rows = PROBABILITY.run(Options(runs=3, rounds=10, actions=2))
        >>> len(rows), max(row.above for row in rows)
        (51, 0.0)
        """
        worlds = games(options)
        sweep = Sweep(
            games=worlds,
            learners=lambda game: {LEARNER: exp3_ix(game.behavior, horizon=game.rounds)},
            seeds=[options.seed],
            runs=options.runs,
            comparators=range(options.actions),
            rewards="realised",
        )
        results = simulate(sweep, jobs=options.jobs, progress=progress, keep=options.keep)
        return [
            row
            for cell, played in results.items()
            for row in rows_of(cell.game, worlds[cell.game], played.regret, played.reward)
        ]

    def draw(self, options: Options, rows: Sequence[TailRow]) -> Figure:
        size = f"K = {options.actions}, n = {options.rounds:,}, {options.runs:,} runs"
        panels: dict[str, list[Tail]] = {}
        for game, who in dict.fromkeys((row.game, row.comparator) for row in rows):
            every = [row for row in rows if (row.game, row.comparator) == (game, who)]
            own = [row for row in every if row.delta is not None]
            panels.setdefault(game, []).append(
                Tail(
                    name=who,
                    delta=[row.delta for row in own],  # type: ignore[arg-type] # no None here
                    regret=[row.regret for row in own],
                    bound=[row.bound for row in own],
                    bound_on_mean=next((row.bound for row in every if row.delta is None), None),
                )
            )
        return draw_tails(panels, title=f"{self.title}\n{size}")

    def notes(self, options: Options) -> list[str]:  # noqa: ARG002 - the same for all sizes
        return [
            "regret: what a share δ of the runs exceeded, with realised rewards; bound: Theorem 1 "
            "with high probability (docs/theory.md), which may fail with probability δ; for the "
            "best action in hindsight, in its form for every comparator at once",
            "above: the share of runs above their own bound; at most: what the probability of that "
            "is below, at 95 %; mean: Theorem 1's bound on the mean, which single runs may exceed",
        ]


PROBABILITY = ProbabilityExperiment(Options(runs=2_000, rounds=2_000, actions=5))
