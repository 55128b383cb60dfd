"""Worlds in which one rate cannot be right: a rarely shown action that is best, or that is not.

All actions but action 0 are shown equally often, action 0 with probability q. The best action has a
larger mean than all others, which have ½. If the rare action is best, a learner must be slow enough
for its few, large estimates; if a common one is, it may be fast.

What not knowing the right rate costs: single rates beside the adaptive learner, pair by pair.

Each pair is two worlds that look alike until they are played: in world A the rare action is best,
in world B a common one. Exp3-IX runs with each of a grid of rates, tuned for coverages C from 1 to
10⁵. A learner's ratio in a world is its mean regret over that of the grid's best rate there, and
its worst ratio in a pair is what it can be blamed for by somebody who did not know the world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from understudy.constraints import Array
from understudy.experiments.experiment import Column, Options
from understudy.experiments.regret_curves import standard_error
from understudy.learners import coverage_adaptive, exp3_ix
from understudy.plots import Curve, Frame, draw_frames
from understudy.protocols import Learner
from understudy.simulation import adversaries
from understudy.simulation.game import Game
from understudy.simulation.simulate import simulate
from understudy.simulation.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COMMON", "PAIRS", "RARE", "RATES", "world"]


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


RARE_MEAN = 0.9
COVERAGES = np.geomspace(1.0, 1e5, 21)  # what the single rates are tuned for
ADAPTIVES = {"adaptive": 1.0, "adaptive, 2 η": 2.0}


@dataclass(frozen=True)
class Pair:
    """Worlds A and B: how rare action 0 is, the mean of B's best action, and for how long."""

    name: str
    q: float
    common_mean: float
    rounds: int

    def worlds(self, options: Options) -> dict[str, tuple[Game, int]]:
        """Both games, with the best action of each; shorter by the same factor if asked for."""
        rounds = max(1, round(self.rounds * options.rounds / PAIRS[-1].rounds))
        sizes = {"n_actions": options.actions, "rounds": rounds}
        return {
            "A": (world(self.q, RARE, RARE_MEAN, **sizes), RARE),
            "B": (world(self.q, COMMON, self.common_mean, **sizes), COMMON),
        }


PAIRS = (
    Pair("0.002", 2e-3, 0.55, 40_000),
    Pair("0.0005", 5e-4, 0.52, 200_000),
    Pair("0.0001", 1e-4, 0.51, 1_000_000),
)


@dataclass(frozen=True)
class Row:
    """A learner in both worlds of a pair; `coverage` is what a single rate is tuned for."""

    pair: str
    learner: str
    coverage: float | None
    regret_a: float
    error_a: float
    ratio_a: float
    regret_b: float
    error_b: float
    ratio_b: float
    worst_ratio: float


def learners(game: Game) -> dict[str, Learner[Any]]:
    """Exp3-IX at every rate of the grid, and the adaptive learner at two."""
    q, n = game.behavior, game.rounds
    single = {rate_name(C): exp3_ix(q, horizon=n, coverage=C) for C in COVERAGES.tolist()}
    adaptive = {
        name: coverage_adaptive(q, horizon=n, multiplier=c) for name, c in ADAPTIVES.items()
    }
    return {**single, **adaptive}


def rate_name(coverage: float) -> str:
    """How a single rate is called.

    >>> rate_name(31.6228), rate_name(17782.8)
    ('C = 31.6', 'C = 17,783')
    """
    return f"C = {coverage:,.0f}" if coverage > 100 else f"C = {coverage:.3g}"  # noqa: PLR2004 - three digits


@dataclass(frozen=True)
class RatesExperiment:
    """A table of single rates and the adaptive learner, by pairs of worlds."""

    name: ClassVar = "rates"
    title: ClassVar = "What not knowing the right rate costs"
    defaults: ClassVar = Options(runs=24, rounds=1_000_000, actions=10)
    sizes: ClassVar = ("runs", "rounds", "actions")
    words: ClassVar = ("q", "Exp3-IX for, or")
    columns: ClassVar[Mapping[str, Column]] = {
        "q": lambda row: row.pair,
        "Exp3-IX for, or": lambda row: row.learner,
        "regret in A": lambda row: f"{row.regret_a:.0f}±{row.error_a:.0f}",
        "in B": lambda row: f"{row.regret_b:.0f}±{row.error_b:.0f}",
        "× best": lambda row: f"{row.ratio_a:.2f}",
        "× best in B": lambda row: f"{row.ratio_b:.2f}",
        "worst": lambda row: f"{row.worst_ratio:.2f}",
    }

    def sections(self, row: Row) -> object:
        return row.pair

    def run(self, options: Options, *, progress: bool = False) -> list[Row]:
        worlds = {
            f"{pair.name} {name}": place
            for pair in PAIRS
            for name, place in pair.worlds(options).items()
        }
        best = dict(worlds.values())
        sweep = Sweep(
            games={name: game for name, (game, _) in worlds.items()},
            learners=learners,
            seeds=[options.seed],
            runs=options.runs,
            comparators=lambda game: [best[game]],
        )
        results = simulate(sweep, jobs=options.jobs, progress=progress, keep=options.keep)
        regrets: dict[str, dict[str, Any]] = {}
        for cell, played in results.items():
            regrets.setdefault(cell.game, {})[cell.learner] = played.regret[:, 0]
        return [
            row
            for pair in PAIRS
            for row in rows_of(pair, regrets[f"{pair.name} A"], regrets[f"{pair.name} B"])
        ]

    def draw(self, options: Options, rows: Sequence[Row]) -> Figure:
        pairs = {pair.name: [row for row in rows if row.pair == pair.name] for pair in PAIRS}
        frames = [frame(f"q = {name}", own) for name, own in pairs.items()]
        size = f"K = {options.actions}, {options.runs} runs"
        return draw_frames(
            frames, title=f"{self.title}\n{size}", y_label="regret over that of the best rate"
        )

    def notes(self, options: Options) -> list[str]:
        lengths = ", ".join(f"{pair.worlds(options)['A'][0].rounds:,}" for pair in PAIRS)
        return [
            "ratio: mean regret over that of the best of the single rates in the same world; "
            "worst: the larger of the two",
            f"rounds: {lengths}; A: the rare action has mean {RARE_MEAN}; B: a common one has "
            + ", ".join(f"{pair.common_mean}" for pair in PAIRS),
        ]


def rows_of(pair: Pair, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Row]:
    coverages = {rate_name(C): C for C in COVERAGES.tolist()}
    best_a, best_b = (min(own[name].mean() for name in coverages) for own in (a, b))
    rows = []
    for name in a:
        means, errors = [], []
        for regret in (a[name], b[name]):
            means.append(float(regret.mean()))
            errors.append(standard_error(regret))
        ratios = means[0] / best_a, means[1] / best_b
        rows.append(
            Row(
                pair=pair.name,
                learner=name,
                coverage=coverages.get(name),
                regret_a=means[0],
                error_a=errors[0],
                ratio_a=float(ratios[0]),
                regret_b=means[1],
                error_b=errors[1],
                ratio_b=float(ratios[1]),
                worst_ratio=float(max(ratios)),
            )
        )
    return rows


def frame(title: str, rows: Sequence[Row]) -> Frame:
    """The ratios of the single rates over C, and the adaptive learner's worst as a line."""
    single = [row for row in rows if row.coverage is not None]
    x = [row.coverage for row in single if row.coverage is not None]
    ratios = {
        "world A: a rare action is best": [row.ratio_a for row in single],
        "world B: a common one is": [row.ratio_b for row in single],
        "the worse of the two": [row.worst_ratio for row in single],
    }
    curves = [Curve(name, x, values, values, values) for name, values in ratios.items()]
    levels = {f"{row.learner}: its worst": row.worst_ratio for row in rows if row.coverage is None}
    return Frame(title, "coverage C that Exp3-IX is tuned for", curves, levels)


RATES = RatesExperiment()
