"""Theorem 1 with high probability: how often does the regret exceed a bound that may fail?

Three games with realised rewards: one best action throughout, the paper's switch after half of the
rounds, and an adversary that punishes the actions that the learner favors. The comparator is an
action fixed before the game, or the best one in hindsight. For the latter, the bound must hold for
every comparator at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from understudy import behaviors, theory
from understudy.constraints import Array
from understudy.experiments.experiment import (
    Column,
    Experiment,
    ExperimentOptions,
    GamePoint,
    play_points,
    size_text,
)
from understudy.kernels.confidence import kl_upper
from understudy.learners import exp3_ix
from understudy.plots import COLORS, MARKERS, add_grid, in_our_style, new_figure
from understudy.simulation import Game, adversaries
from understudy.simulation.adversaries import Adversary
from understudy.types import Integers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DELTAS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)  # the last: four of 2000 runs
ALPHA = 0.75  # of the behavior: it covers all actions, some better than others
COMPARATOR = 0  # the best action of the first game, and of the second half of the second
FIXED, BEST = "fixed", "best in hindsight"
SHORT_NAMES = {FIXED: "fixed", BEST: "best"}  # in the table
LEARNER = "Exp3-IX"
ERROR = 0.05  # the failure rate exceeds `at_most` with at most this probability


@dataclass(frozen=True)
class TailRow:
    """A bound that may fail with probability δ, and how often it failed.

    A share δ of the runs exceeded `regret`. A share `above` of the runs exceeded their bounds;
    `bound` is the mean of these, as they depend on the rewards drawn. `at_most` is an upper
    confidence bound, at 95 %, on the failure rate. Without δ: the mean regret and Theorem 1's bound
    on it, which a single run may exceed.
    """

    game: str
    comparator: str
    delta: float | None
    regret: float
    bound: float
    above: float
    standard_error: float
    at_most: float


def tail_games(options: ExperimentOptions) -> dict[str, Game]:
    """The three games, by name."""
    K, n = options.actions, options.rounds
    pi_b = behaviors.interpolated(n_actions=K, alpha=ALPHA)
    by_name: dict[str, Adversary] = {
        "stationary": adversaries.stationary([0.7, *[0.5] * (K - 1)]),
        "switching": adversaries.switching(n_actions=K, rounds=n),
        "retaliating": adversaries.retaliating(n_actions=K),
    }
    return {name: Game(adversary, pi_b, rounds=n) for name, adversary in by_name.items()}


def bounds_of_runs(
    game: Game, actions: Integers, rewards: Array, comparator: str, delta: float | None
) -> Array:
    """The bound of every run, from the action compared with and its total reward."""
    K, n = game.n_actions, game.rounds

    def bound(action: int, total: float) -> float:
        eta, totals = theory.exp3_ix_rate(K, n), np.full(K, total)
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
            every_comparator=comparator == BEST,
        )

    # The bound is linear in the total reward of the comparator: its ends, 0 and n, are enough.
    ends = np.array([[bound(a, total) for a in range(K)] for total in (0.0, float(n))])
    lowest, highest = ends[:, actions]
    return np.asarray(lowest + (highest - lowest) * rewards / n)


def tail_rows(name: str, game: Game, regret: Array, rewards: Array) -> Iterator[TailRow]:
    """The rows of a game, from regrets against every action, (runs, K), and learner's rewards."""
    runs = len(regret)
    fixed, best = np.full(runs, COMPARATOR), regret.argmax(axis=1)
    for comparator, actions, deltas in ((FIXED, fixed, (None, *DELTAS)), (BEST, best, DELTAS)):
        own = regret[np.arange(runs), actions]
        for delta in deltas:
            limits = bounds_of_runs(game, actions, own + rewards, comparator, delta)
            above = float((own > limits).mean())
            yield TailRow(
                game=name,
                comparator=comparator,
                delta=delta,
                regret=float(own.mean() if delta is None else np.quantile(own, 1 - delta)),
                bound=float(limits.mean()),
                above=above,
                standard_error=math.sqrt(above * (1 - above) / runs),
                at_most=kl_upper(above, runs, -math.log(ERROR)),
            )


class ProbabilityExperiment(Experiment):
    """The regret of each game at every δ, beside its bound."""

    name = "probability"
    title = "Exp3-IX: the regret that few runs exceed, and its bound"
    defaults = ExperimentOptions(runs=2_000, rounds=2_000, actions=5)
    sizes = ("runs", "rounds", "actions")
    text_columns = ("game", "against")
    sections = ("game", "comparator")
    columns: ClassVar[Mapping[str, Column]] = {
        "game": lambda row: row.game,
        "against": lambda row: SHORT_NAMES[row.comparator],
        "δ": lambda row: "mean" if row.delta is None else f"{row.delta:g}",
        "regret": lambda row: f"{row.regret:.0f}",
        "bound": lambda row: f"{row.bound:.0f}",
        "above": lambda row: f"{row.above:.4f}",
        "±": lambda row: f"{row.standard_error:.4f}",
        "at most": lambda row: f"{row.at_most:.4f}",
    }

    def run(self, options: ExperimentOptions, *, progress: bool = False) -> list[TailRow]:
        names, actions = {}, range(options.actions)
        for name, game in tail_games(options).items():
            learner = exp3_ix(game.behavior, horizon=game.rounds)
            names[GamePoint(game, {LEARNER: learner}, actions)] = name
        results = play_points(list(names), options, progress=progress, rewards="realised")
        return [
            row
            for point, _, result in results
            for row in tail_rows(names[point], point.game, result.regret, result.reward)
        ]

    @in_our_style
    def draw(self, options: ExperimentOptions, rows: Sequence[TailRow]) -> Figure:
        """Draw a panel per game: δ on a logarithmic scale over the regret, and over its bound."""
        figure = new_figure(7.2, 3.4, f"{self.title}\n{size_text(options)}")
        names = list(dict.fromkeys(row.game for row in rows))
        panels = figure.subplots(1, len(names), sharex=True, sharey=True, squeeze=False)[0]
        for axes, game in zip(panels, names, strict=True):
            for color, marker, who in zip(COLORS, MARKERS, SHORT_NAMES, strict=False):
                every = [row for row in rows if (row.game, row.comparator) == (game, who)]
                own = [row for row in every if row.delta is not None]
                deltas = [row.delta for row in own]
                style = {"color": color, "marker": marker, "ms": 3.5}
                axes.plot([row.regret for row in own], deltas, lw=1.6, label=who, **style)
                limits = [row.bound for row in own]
                axes.plot(limits, deltas, lw=1.4, ls="--", label="its bound", **style)
                for row in every:
                    if row.delta is None:
                        label = "bound on its mean"
                        axes.axvline(row.bound, color=color, lw=1.0, ls=":", label=label)
            axes.set_yscale("log")
            add_grid(axes)
            axes.set_title(game, fontsize=9, loc="left")
            axes.set_xlabel("total regret")
        panels[0].set_ylabel("share of runs above it\n(at most, for a bound)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
        return figure

    def notes(self, options: ExperimentOptions) -> list[str]:  # noqa: ARG002 - the same at all sizes
        return [
            "regret: what a share δ of the runs exceeded, with realised rewards; bound: Theorem 1 "
            "with high probability (docs/theory.md), which may fail with probability δ; for the "
            "best action in hindsight, in its form for every comparator at once",
            "above: the share of runs above their own bound; at most: an upper confidence bound on "
            "its probability, at 95 %; mean: Theorem 1's bound on the mean, which single runs may "
            "exceed",
        ]


PROBABILITY = ProbabilityExperiment()
