"""The cost of not knowing the right learning rate: single rates beside the adaptive learner.

All actions but action 0 are played equally often, action 0 with probability q. The best action has
a larger mean than all others, which have ½. If the rare action is best, a learner must be slow
enough for its few, large estimates; if a common one is best, it may be fast.

A pair is two worlds that only the rewards tell apart: in world A the rare action is best, in world
B a common one. Exp3-IX runs with each rate of a grid, tuned for coverages C from 1 to 10⁵. A
learner's ratio in a world is its mean regret over that of the grid's best rate there. Its worst
ratio in a pair is the price of not knowing the world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from understudy.constraints import Array
from understudy.experiments.experiment import (
    Column,
    Experiment,
    ExperimentOptions,
    GamePoint,
    play_points,
    standard_error,
)
from understudy.learners import coverage_adaptive, exp3_ix
from understudy.plots import CurvePanel, RegretCurve, draw_curve_panels
from understudy.protocols import Learner
from understudy.simulation import adversaries
from understudy.simulation.game import Game

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RARE, COMMON = 0, 1
RARE_MEAN = 0.9
COVERAGES = np.geomspace(1.0, 1e5, 21)  # of the single rates: four per factor of ten
ADAPTIVES = {"adaptive": 1.0, "adaptive, 2 η": 2.0}


def world(q: float, best: int, mean: float, *, n_actions: int, rounds: int) -> Game:
    """A stationary game with one best action; the behavior plays action 0 with probability q.

    >>> world(0.1, best=RARE, mean=0.9, n_actions=4, rounds=10).behavior.round(2).tolist()
    [0.1, 0.3, 0.3, 0.3]
    """
    means, behavior = np.full(n_actions, 0.5), np.full(n_actions, (1 - q) / (n_actions - 1))
    means[best], behavior[RARE] = mean, q
    return Game(adversaries.stationary(means), behavior, rounds)


@dataclass(frozen=True)
class WorldPair:
    """Worlds A and B: the probability of action 0, the mean of B's best action, the rounds."""

    name: str
    q: float
    common_mean: float
    rounds: int

    def rounds_at(self, options: ExperimentOptions) -> int:
        """All pairs are shorter by the same factor if the options ask for fewer rounds."""
        return max(1, round(self.rounds * options.rounds / PAIRS[-1].rounds))

    def worlds(self, options: ExperimentOptions) -> list[GamePoint]:
        """Both games, with their best actions as comparators."""
        sizes = {"n_actions": options.actions, "rounds": self.rounds_at(options)}
        worlds = {
            RARE: world(self.q, RARE, RARE_MEAN, **sizes),
            COMMON: world(self.q, COMMON, self.common_mean, **sizes),
        }
        return [GamePoint(game, learners(game), [best]) for best, game in worlds.items()]


# The rarer the action, the smaller the gap in B and the longer the games: with these sizes, both
# worlds can be learned, and no single rate is good in both.
PAIRS = (
    WorldPair("0.002", 2e-3, 0.55, 40_000),
    WorldPair("0.0005", 5e-4, 0.52, 200_000),
    WorldPair("0.0001", 1e-4, 0.51, 1_000_000),
)


@dataclass(frozen=True)
class RateRow:
    """A learner in both worlds of a pair; `coverage` is the C that a single rate is tuned for."""

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
    """Exp3-IX at every rate of the grid, and the adaptive learner at two rates."""
    q, n = game.behavior, game.rounds
    single = {rate_name(C): exp3_ix(q, horizon=n, coverage=C) for C in COVERAGES.tolist()}
    adaptive = {
        name: coverage_adaptive(q, horizon=n, multiplier=c) for name, c in ADAPTIVES.items()
    }
    return {**single, **adaptive}


def rate_name(coverage: float) -> str:
    """The name of a single rate.

    >>> rate_name(31.6228), rate_name(17782.8)
    ('C = 31.6', 'C = 17,783')
    """
    return f"C = {coverage:,.0f}" if coverage > 100 else f"C = {coverage:.3g}"  # noqa: PLR2004 - three digits


class RatesExperiment(Experiment):
    """Single rates and the adaptive learner, by pairs of worlds."""

    name = "rates"
    title = "What not knowing the right rate costs"
    defaults = ExperimentOptions(runs=24, rounds=1_000_000, actions=10)
    sizes = ("runs", "rounds", "actions")
    text_columns = ("q", "Exp3-IX for, or")
    sections = ("pair",)
    columns: ClassVar[Mapping[str, Column]] = {
        "q": lambda row: row.pair,
        "Exp3-IX for, or": lambda row: row.learner,
        "regret in A": lambda row: f"{row.regret_a:.0f}±{row.error_a:.0f}",
        "in B": lambda row: f"{row.regret_b:.0f}±{row.error_b:.0f}",
        "× best": lambda row: f"{row.ratio_a:.2f}",
        "× best in B": lambda row: f"{row.ratio_b:.2f}",
        "worst": lambda row: f"{row.worst_ratio:.2f}",
    }

    def run(self, options: ExperimentOptions, *, progress: bool = False) -> list[RateRow]:
        worlds = {pair: pair.worlds(options) for pair in PAIRS}
        points = [point for pair in worlds.values() for point in pair]
        regrets: dict[GamePoint, dict[str, Array]] = {point: {} for point in points}
        for point, learner, result in play_points(points, options, progress=progress):
            regrets[point][learner] = result.regret[:, 0]
        return [
            row for pair, (a, b) in worlds.items() for row in rows_of(pair, regrets[a], regrets[b])
        ]

    def draw(self, options: ExperimentOptions, rows: Sequence[RateRow]) -> Figure:
        panels = [
            panel(f"q = {pair.name}", [row for row in rows if row.pair == pair.name])
            for pair in PAIRS
        ]
        return draw_curve_panels(
            panels,
            title=f"{self.title}\nK = {options.actions}, {options.runs} runs",
            y_label="regret over that of the best rate",
        )

    def notes(self, options: ExperimentOptions) -> list[str]:
        lengths = ", ".join(f"{pair.rounds_at(options):,}" for pair in PAIRS)
        return [
            "ratio: mean regret over that of the best of the single rates in the same world; "
            "worst: the larger of the two",
            f"rounds: {lengths}; A: the rare action has mean {RARE_MEAN}; B: a common one has "
            + ", ".join(f"{pair.common_mean}" for pair in PAIRS),
        ]


def rows_of(pair: WorldPair, a: Mapping[str, Array], b: Mapping[str, Array]) -> list[RateRow]:
    """The rows of a pair, from the regrets of every learner in its two worlds."""
    coverages = {rate_name(C): C for C in COVERAGES.tolist()}
    best_a, best_b = (min(own[name].mean() for name in coverages) for own in (a, b))
    rows = []
    for name in a:
        mean_a, mean_b = float(a[name].mean()), float(b[name].mean())
        ratio_a, ratio_b = float(mean_a / best_a), float(mean_b / best_b)
        rows.append(
            RateRow(
                pair=pair.name,
                learner=name,
                coverage=coverages.get(name),
                regret_a=mean_a,
                error_a=standard_error(a[name]),
                ratio_a=ratio_a,
                regret_b=mean_b,
                error_b=standard_error(b[name]),
                ratio_b=ratio_b,
                worst_ratio=max(ratio_a, ratio_b),
            )
        )
    return rows


def panel(title: str, rows: Sequence[RateRow]) -> CurvePanel:
    """The ratios of the single rates over C, and the adaptive learner's worst ratios as lines."""
    single = [row for row in rows if row.coverage is not None]
    x = [row.coverage for row in single if row.coverage is not None]
    ratios = {
        "world A: a rare action is best": [row.ratio_a for row in single],
        "world B: a common one is": [row.ratio_b for row in single],
        "the worse of the two": [row.worst_ratio for row in single],
    }
    curves = [RegretCurve(name, x, values, values, values) for name, values in ratios.items()]
    levels = {f"{row.learner}: its worst": row.worst_ratio for row in rows if row.coverage is None}
    return CurvePanel(title, "coverage C that Exp3-IX is tuned for", curves, levels)


RATES = RatesExperiment()
