"""Every comparator at once: the regret of all learners as the coverage of the best action changes.

Three families of games. A rarely shown action is best; a common one is, and a rare one only lures;
the paper's game along α, at the size of its Figure 1 (ten times the actions, a quarter of the
rounds). Exp3-IX tuned to the comparator is told what nobody knows before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from understudy import theory
from understudy.behaviors import Logged
from understudy.experiments.experiment import Column, Options
from understudy.experiments.figure1 import COMPARATOR, paper_game
from understudy.experiments.rate_sweep import COMMON, RARE, world
from understudy.experiments.regret_curves import curves, play_points, shown, standard_error
from understudy.learners import coverage_adaptive, exp3, exp3_ix, exp3_ix_unknown, prod
from understudy.plots import Frame, draw_frames
from understudy.protocols import Learner
from understudy.simulation.game import Game

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ADAPTIVE"]

RAREST, LEAST_RARE = 1e-3, 0.1
RARE_MEAN, COMMON_MEAN = 0.9, 0.55
RARE_BEST, COMMON_BEST, FAMILY = "rare best", "common best", "paper's game"
ADAPTIVE_NAME = "adaptive"
X_LABELS = {
    RARE_BEST: "coverage ratio 1/q of the best action",
    COMMON_BEST: "1/q of a rare action beside the best",
    FAMILY: "coverage ratio 1/q of the comparator",
}


@dataclass(frozen=True, eq=False)
class Point:
    """A game of a family: where it stands on the horizontal axis, and who is the comparator."""

    family: str
    x: float
    game: Game
    comparator: int


@dataclass(frozen=True)
class Row:
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


def sizes_of_the_paper(options: Options) -> Options:
    """Figure 1's, where the other families have their default sizes.

    >>> sizes = sizes_of_the_paper(Options(runs=1, rounds=40_000, actions=10))
    >>> sizes.actions, sizes.rounds
    (100, 10000)
    """
    return replace(options, actions=10 * options.actions, rounds=max(1, options.rounds // 4))


def points(options: Options) -> Iterator[Point]:
    sizes = {"n_actions": options.actions, "rounds": options.rounds}
    for q in np.geomspace(LEAST_RARE, RAREST, options.alphas).tolist():
        yield Point(RARE_BEST, 1 / q, world(q, RARE, RARE_MEAN, **sizes), RARE)
        yield Point(COMMON_BEST, 1 / q, world(q, COMMON, COMMON_MEAN, **sizes), COMMON)
    for alpha in options.grid().tolist():
        game = paper_game(sizes_of_the_paper(options), alpha)
        yield Point(FAMILY, theory.coverage(COMPARATOR, game.behavior), game, COMPARATOR)


def learners(point: Point) -> dict[str, Learner[Any]]:
    """All of them, with one that is told the comparator's coverage."""
    q, n, K = point.game.behavior, point.game.rounds, point.game.n_actions
    told = theory.coverage(point.comparator, q)
    return {
        "Exp3": exp3(q, horizon=n),
        "Exp3-IX": exp3_ix(q, horizon=n),
        "Prod": prod(q, horizon=n),
        "Exp3-IX, unknown": exp3_ix_unknown(K, horizon=n),
        ADAPTIVE_NAME: coverage_adaptive(q, horizon=n),
        "adaptive, no horizon": coverage_adaptive(q),
        "adaptive, grid": coverage_adaptive(Logged(K), horizon=n),
        "Exp3-IX, told C": exp3_ix(q, horizon=n, coverage=told),
    }


@dataclass(frozen=True)
class AdaptiveExperiment:
    """Regret against coverage, for all learners, in three families of games."""

    name: ClassVar = "adaptive"
    title: ClassVar = "Every comparator at once: regret against coverage"
    defaults: ClassVar = Options(runs=30, rounds=40_000, actions=10, alphas=6)
    sizes: ClassVar = ("runs", "rounds", "actions", "alphas")
    words: ClassVar = ("game", "learner")
    columns: ClassVar[Mapping[str, Column]] = {
        "game": lambda row: row.family,
        "1/q": lambda row: f"{row.x:.1f}",
        "learner": lambda row: row.learner,
        "regret": lambda row: f"{row.mean:.0f}",
        "±": lambda row: f"{row.standard_error:.0f}",
        "bound": lambda row: "" if row.bound is None else shown(row.bound),
    }

    def sections(self, row: Row) -> object:
        return row.family, row.x

    def run(self, options: Options, *, progress: bool = False) -> list[Row]:
        played = play_points(list(points(options)), learners, options, progress=progress)
        rows = [row_of(point, learner, regret) for point, learner, regret in played]
        order = list(X_LABELS)
        return sorted(rows, key=lambda row: (order.index(row.family), row.x))

    def draw(self, options: Options, rows: Sequence[Row]) -> Figure:
        sizes = dict.fromkeys(X_LABELS, options) | {FAMILY: sizes_of_the_paper(options)}
        frames = [
            Frame(
                f"{family}: K = {sizes[family].actions}, n = {sizes[family].rounds:,}",
                label,
                curves([row for row in rows if row.family == family], "x"),
            )
            for family, label in X_LABELS.items()
        ]
        return draw_frames(
            frames,
            title=f"{self.title}\n{options.runs} runs",
            y_label="total regret (mean, quartiles)",
        )

    def notes(self, options: Options) -> list[str]:  # noqa: ARG002 - the same at all sizes
        return [
            "bound: that of the adaptive learner, in full, against the comparator",
            "'told C' is tuned to the comparator's coverage, which nobody knows beforehand",
            "regret against the best action (the paper's game: action 0), conditional mean rewards",
        ]


def row_of(point: Point, learner: str, regret: Any) -> Row:
    q25, q75 = np.quantile(regret, [0.25, 0.75]).tolist()
    q = point.game.behavior
    full = theory.coverage_adaptive_bound(point.comparator, q, horizon=point.game.rounds)
    return Row(
        family=point.family,
        x=point.x,
        coverage=theory.coverage(point.comparator, q),
        learner=learner,
        mean=float(regret.mean()),
        standard_error=standard_error(regret),
        q25=q25,
        q75=q75,
        bound=full if learner == ADAPTIVE_NAME else None,
    )


ADAPTIVE = AdaptiveExperiment()
