"""The price of an unknown coverage: the adaptive learner beside learners tuned to one coverage.

`rare_action_game` is the game of both experiments: action 0 is played with probability q, all
others equally often. The best action has a larger mean than all others, which have ½. If the rare
action is best, a learner must be slow enough for its few, large estimates; if a common one is best,
it may be fast.

"adaptive" shows the regret of all learners as the coverage of the best action changes, in three
families of games. In the first, the rare action is best. In the second, a common one is best, and
the rare one distracts from it. The third is the paper's game along α, at the size of its Figure 1
(ten times the actions, a quarter of the rounds). "Exp3-IX, told C" is tuned to the comparator's
coverage, which is unknown in practice.

"rates" shows the cost of not knowing the right learning rate, in pairs of worlds that only the
rewards tell apart: in world A the rare action is best, in world B a common one. Exp3-IX runs with
each rate of a grid, tuned for coverages C from 1 to 10⁵. A learner's ratio in a world is its mean
regret over that of the grid's best rate there. Its worst ratio in a pair is the price of not
knowing the world.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from understudy import theory
from understudy.behaviors import Logged
from understudy.constraints import Array
from understudy.experiments.experiment import (
    Column,
    Experiment,
    ExperimentOptions,
    GamePoint,
    bound_text,
    play_points,
    quartiles,
    regret_curves,
    standard_error,
)
from understudy.experiments.figure1 import COMPARATOR, paper_game
from understudy.learners import coverage_adaptive, exp3, exp3_ix, exp3_ix_unknown, prod
from understudy.plots import CurvePanel, RegretCurve, draw_curve_panels
from understudy.protocols import Learner
from understudy.simulation import Game, adversaries

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RARE, COMMON = 0, 1
# All others have ½. A rare action needs a large gap to be found at all in 40 000 rounds; a small
# gap of the common one makes a slow learner pay.
RARE_MEAN, COMMON_MEAN = 0.9, 0.55
RAREST, LEAST_RARE = 1e-3, 0.1  # probabilities of the rare action: coverages from 10 to 1000
RARE_BEST, COMMON_BEST, PAPER = "rare best", "common best", "paper's game"
X_LABELS = {
    RARE_BEST: "coverage ratio 1/q of the best action",
    COMMON_BEST: "1/q of a rare action beside the best",
    PAPER: "coverage ratio 1/q of the comparator",
}
ADAPTIVE_NAME = "adaptive"
ADAPTIVES = {ADAPTIVE_NAME: 1.0, "adaptive, 2 η": 2.0}  # and the multiplier of their rates
COVERAGES = np.geomspace(1.0, 1e5, 21).tolist()  # of the single rates: four per factor of ten


def rare_action_game(q: float, best: int, mean: float, *, n_actions: int, rounds: int) -> Game:
    """A stationary game with one best action; the behavior plays action 0 with probability q."""
    means, behavior = np.full(n_actions, 0.5), np.full(n_actions, (1 - q) / (n_actions - 1))
    means[best], behavior[RARE] = mean, q
    return Game(adversaries.stationary(means), behavior, rounds)


@dataclass(frozen=True, eq=False)
class CoveragePoint(GamePoint):
    """A game of a family, and its place on the horizontal axis."""

    family: str
    x: float
    coverage: float  # of the comparator
    bound: float  # of the adaptive learner's regret


@dataclass(frozen=True)
class CoverageRow:
    """The regret of a learner in a game; `coverage` is the comparator's, `x` the axis'."""

    family: str
    x: float
    coverage: float
    learner: str
    mean: float
    standard_error: float
    q25: float
    q75: float
    bound: float | None


def paper_sizes(options: ExperimentOptions) -> ExperimentOptions:
    """The sizes of the third family: Figure 1's if the other families have their defaults."""
    return replace(options, actions=10 * options.actions, rounds=max(1, options.rounds // 4))


def coverage_points(options: ExperimentOptions) -> Iterator[CoveragePoint]:
    """The games of all families, and all learners in each."""
    sizes = {"n_actions": options.actions, "rounds": options.rounds}

    def point(family: str, game: Game, comparator: int, x: float | None = None) -> CoveragePoint:
        q, n, K = game.behavior, game.rounds, game.n_actions
        coverage = theory.coverage(comparator, q)
        return CoveragePoint(
            game=game,
            learners={
                "Exp3": exp3(q, horizon=n),
                "Exp3-IX": exp3_ix(q, horizon=n),
                "Prod": prod(q, horizon=n),
                "Exp3-IX, unknown": exp3_ix_unknown(K, horizon=n),
                ADAPTIVE_NAME: coverage_adaptive(q, horizon=n),
                "adaptive, no horizon": coverage_adaptive(q),
                "adaptive, grid": coverage_adaptive(Logged(K), horizon=n),
                "Exp3-IX, told C": exp3_ix(q, horizon=n, coverage=coverage),
            },
            comparators=[comparator],
            family=family,
            x=coverage if x is None else x,
            coverage=coverage,
            bound=theory.coverage_adaptive_bound(comparator, q, horizon=n),
        )

    for q in np.geomspace(LEAST_RARE, RAREST, options.alphas).tolist():
        yield point(RARE_BEST, rare_action_game(q, RARE, RARE_MEAN, **sizes), RARE, 1 / q)
        common_best = rare_action_game(q, COMMON, COMMON_MEAN, **sizes)
        yield point(COMMON_BEST, common_best, COMMON, 1 / q)
    for alpha in options.grid():
        yield point(PAPER, paper_game(paper_sizes(options), alpha), COMPARATOR)


class AdaptiveExperiment(Experiment):
    """Regret against coverage, for all learners, in three families of games."""

    name = "adaptive"
    title = "Every comparator at once: regret against coverage"
    defaults = ExperimentOptions(runs=30, rounds=40_000, actions=10, alphas=6)
    sizes = ("runs", "rounds", "actions", "alphas")
    text_columns = ("game", "learner")
    sections = ("family", "x")
    columns: ClassVar[Mapping[str, Column]] = {
        "game": lambda row: row.family,
        "1/q": lambda row: f"{row.x:.1f}",
        "learner": lambda row: row.learner,
        "regret": lambda row: f"{row.mean:.0f}",
        "±": lambda row: f"{row.standard_error:.0f}",
        "bound": lambda row: bound_text(row.bound),
    }

    def run(self, options: ExperimentOptions, *, progress: bool = False) -> list[CoverageRow]:
        results = play_points(list(coverage_points(options)), options, progress=progress)
        rows = [
            CoverageRow(
                family=point.family,
                x=point.x,
                coverage=point.coverage,
                learner=learner,
                **quartiles(result.regret[:, 0]),
                standard_error=standard_error(result.regret[:, 0]),
                bound=point.bound if learner == ADAPTIVE_NAME else None,
            )
            for point, learner, result in results
        ]
        order = list(X_LABELS)
        return sorted(rows, key=lambda row: (order.index(row.family), row.x))

    def draw(self, options: ExperimentOptions, rows: Sequence[CoverageRow]) -> Figure:
        sizes = dict.fromkeys(X_LABELS, options) | {PAPER: paper_sizes(options)}
        panels = [
            CurvePanel(
                f"{family}: K = {sizes[family].actions}, n = {sizes[family].rounds:,}",
                label,
                regret_curves([row for row in rows if row.family == family], "x"),
            )
            for family, label in X_LABELS.items()
        ]
        title = f"{self.title}\n{options.runs} runs"
        return draw_curve_panels(panels, title=title, y_label="total regret (mean, quartiles)")

    def notes(self, options: ExperimentOptions) -> list[str]:  # noqa: ARG002 - the same at all sizes
        return [
            "bound: that of the adaptive learner, in full, against the comparator",
            "'told C' is tuned to the comparator's coverage, which is unknown in practice",
            "regret against the best action (the paper's game: action 0), conditional mean rewards",
        ]


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
        means = {RARE: RARE_MEAN, COMMON: self.common_mean}
        games = {a: rare_action_game(self.q, a, mean, **sizes) for a, mean in means.items()}
        return [GamePoint(game, rate_learners(game), [best]) for best, game in games.items()]


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


def rate_learners(game: Game) -> dict[str, Learner[Any]]:
    """Exp3-IX at every rate of the grid, and the adaptive learner at two rates."""
    q, n = game.behavior, game.rounds
    return {
        **{rate_name(C): exp3_ix(q, horizon=n, coverage=C) for C in COVERAGES},
        **{name: coverage_adaptive(q, horizon=n, multiplier=c) for name, c in ADAPTIVES.items()},
    }


def rate_name(coverage: float) -> str:
    """The name of a single rate."""
    return f"C = {coverage:,.0f}" if coverage > 100 else f"C = {coverage:.3g}"  # noqa: PLR2004 - three digits


def rate_rows(pair: WorldPair, a: Mapping[str, Array], b: Mapping[str, Array]) -> Iterator[RateRow]:
    """The rows of a pair, from the regrets of every learner in its two worlds."""
    coverages = {rate_name(C): C for C in COVERAGES}
    best_a, best_b = (min(own[name].mean() for name in coverages) for own in (a, b))
    for name in a:
        mean_a, mean_b = float(a[name].mean()), float(b[name].mean())
        ratio_a, ratio_b = float(mean_a / best_a), float(mean_b / best_b)
        yield RateRow(
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
            row
            for pair, (a, b) in worlds.items()
            for row in rate_rows(pair, regrets[a], regrets[b])
        ]

    def draw(self, options: ExperimentOptions, rows: Sequence[RateRow]) -> Figure:
        """Draw the ratios of the single rates over C; the adaptive learner's worst are lines."""
        ratios = {
            "world A: a rare action is best": "ratio_a",
            "world B: a common one is": "ratio_b",
            "the worse of the two": "worst_ratio",
        }
        panels = []
        for pair in PAIRS:
            own = [row for row in rows if row.pair == pair.name]
            curves = []
            for name, column in ratios.items():
                values = [getattr(row, column) for row in own if row.coverage is not None]
                curves.append(RegretCurve(name, COVERAGES, values, values, values))
            levels = {f"{r.learner}: its worst": r.worst_ratio for r in own if r.coverage is None}
            x_label = "coverage C that Exp3-IX is tuned for"
            panels.append(CurvePanel(f"q = {pair.name}", x_label, curves, levels))
        title = f"{self.title}\nK = {options.actions}, {options.runs} runs"
        return draw_curve_panels(panels, title=title, y_label="regret over that of the best rate")

    def notes(self, options: ExperimentOptions) -> list[str]:
        lengths = ", ".join(f"{pair.rounds_at(options):,}" for pair in PAIRS)
        return [
            "ratio: mean regret over that of the best of the single rates in the same world; "
            "worst: the larger of the two",
            f"rounds: {lengths}; A: the rare action has mean {RARE_MEAN}; B: a common one has "
            + ", ".join(f"{pair.common_mean}" for pair in PAIRS),
        ]


ADAPTIVE = AdaptiveExperiment()
RATES = RatesExperiment()
