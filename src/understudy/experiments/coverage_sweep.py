"""Every comparator at once: regret of all learners as the coverage of the best action changes.

Three families of games. In the first, an action that the behavior rarely plays is best. In the
second, a common one is best, and a rare one distracts from it. The third is the paper's game along
α, at the size of its Figure 1 (ten times the actions, a quarter of the rounds). "Exp3-IX, told C"
is tuned to the comparator's coverage, which is unknown in practice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from understudy import theory
from understudy.behaviors import Logged
from understudy.experiments.experiment import (
    Column,
    Experiment,
    ExperimentOptions,
    GamePoint,
    bound_text,
    play_points,
    standard_error,
)
from understudy.experiments.figure1 import COMPARATOR, paper_game
from understudy.experiments.rate_sweep import COMMON, RARE, RARE_MEAN, world
from understudy.experiments.regret_curves import curves, quartiles
from understudy.learners import coverage_adaptive, exp3, exp3_ix, exp3_ix_unknown, prod
from understudy.plots import CurvePanel, draw_curve_panels
from understudy.protocols import Learner
from understudy.simulation.game import Game

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RAREST, LEAST_RARE = 1e-3, 0.1  # probabilities of the rare action: coverages from 10 to 1000
COMMON_MEAN = 0.55
RARE_BEST, COMMON_BEST, PAPER = "rare best", "common best", "paper's game"
ADAPTIVE_NAME = "adaptive"
X_LABELS = {
    RARE_BEST: "coverage ratio 1/q of the best action",
    COMMON_BEST: "1/q of a rare action beside the best",
    PAPER: "coverage ratio 1/q of the comparator",
}


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
    """The sizes of the third family: Figure 1's if the other families have their defaults.

    >>> sizes = paper_sizes(ExperimentOptions(runs=1, rounds=40_000, actions=10))
    >>> sizes.actions, sizes.rounds
    (100, 10000)
    """
    return replace(options, actions=10 * options.actions, rounds=max(1, options.rounds // 4))


def points(options: ExperimentOptions) -> Iterator[CoveragePoint]:
    sizes = {"n_actions": options.actions, "rounds": options.rounds}
    for q in np.geomspace(LEAST_RARE, RAREST, options.alphas).tolist():
        yield point(RARE_BEST, world(q, RARE, RARE_MEAN, **sizes), RARE, 1 / q)
        yield point(COMMON_BEST, world(q, COMMON, COMMON_MEAN, **sizes), COMMON, 1 / q)
    for alpha in options.grid():
        yield point(PAPER, paper_game(paper_sizes(options), alpha), COMPARATOR)


def point(family: str, game: Game, comparator: int, x: float | None = None) -> CoveragePoint:
    """A game as a point; its x is the coverage of the comparator unless given."""
    coverage = theory.coverage(comparator, game.behavior)
    return CoveragePoint(
        game=game,
        learners=learners(game, coverage),
        comparators=[comparator],
        family=family,
        x=coverage if x is None else x,
        coverage=coverage,
        bound=theory.coverage_adaptive_bound(comparator, game.behavior, horizon=game.rounds),
    )


def learners(game: Game, coverage: float) -> dict[str, Learner[Any]]:
    """All learners, and one that is tuned to the comparator's coverage."""
    q, n, K = game.behavior, game.rounds, game.n_actions
    return {
        "Exp3": exp3(q, horizon=n),
        "Exp3-IX": exp3_ix(q, horizon=n),
        "Prod": prod(q, horizon=n),
        "Exp3-IX, unknown": exp3_ix_unknown(K, horizon=n),
        ADAPTIVE_NAME: coverage_adaptive(q, horizon=n),
        "adaptive, no horizon": coverage_adaptive(q),
        "adaptive, grid": coverage_adaptive(Logged(K), horizon=n),
        "Exp3-IX, told C": exp3_ix(q, horizon=n, coverage=coverage),
    }


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
            for point, learner, result in play_points(
                list(points(options)), options, progress=progress
            )
        ]
        order = list(X_LABELS)
        return sorted(rows, key=lambda row: (order.index(row.family), row.x))

    def draw(self, options: ExperimentOptions, rows: Sequence[CoverageRow]) -> Figure:
        sizes = dict.fromkeys(X_LABELS, options) | {PAPER: paper_sizes(options)}
        panels = [
            CurvePanel(
                f"{family}: K = {sizes[family].actions}, n = {sizes[family].rounds:,}",
                label,
                curves([row for row in rows if row.family == family], "x"),
            )
            for family, label in X_LABELS.items()
        ]
        return draw_curve_panels(
            panels,
            title=f"{self.title}\n{options.runs} runs",
            y_label="total regret (mean, quartiles)",
        )

    def notes(self, options: ExperimentOptions) -> list[str]:  # noqa: ARG002 - the same at all sizes
        return [
            "bound: that of the adaptive learner, in full, against the comparator",
            "'told C' is tuned to the comparator's coverage, which is unknown in practice",
            "regret against the best action (the paper's game: action 0), conditional mean rewards",
        ]


ADAPTIVE = AdaptiveExperiment()
