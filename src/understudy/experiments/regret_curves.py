"""Regret along α: games whose behavior slides from one end to the other, and their picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np

from understudy.constraints import Array
from understudy.experiments.experiment import Column, Options
from understudy.plots import Curve, draw_regret
from understudy.protocols import Learner
from understudy.simulation.comparators import Comparator
from understudy.simulation.game import Game
from understudy.simulation.simulate import simulate
from understudy.simulation.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Point", "RegretExperiment", "Row", "curves", "play_points", "standard_error"]

LARGE = 1e5  # a bound that is only looked at for its size


class Located(Protocol):
    """A game, and with whom its learners are compared."""

    @property
    def game(self) -> Game: ...

    @property
    def comparator(self) -> Comparator: ...


Place = TypeVar("Place", bound=Located)


@dataclass(frozen=True, eq=False)
class Point:
    """One game of an experiment: learners by name, and the bound on each one's regret, if any."""

    alpha: float
    game: Game
    learners: Mapping[str, Learner[Any]]
    comparator: Comparator
    coverage: float
    bounds: Mapping[str, float | None]


@dataclass(frozen=True)
class Row:
    """One line of the results: the regret of a learner at a point."""

    alpha: float
    learner: str
    mean: float
    q25: float
    q75: float
    coverage: float
    bound: float | None


@dataclass(frozen=True)
class RegretExperiment:
    """A picture's worth of games. `x` is the column of the horizontal axis."""

    name: str
    title: str
    defaults: Options
    points: Callable[[Options], Iterator[Point]]
    x: str
    x_label: str
    bound_label: str
    notes: Callable[[Options], list[str]]
    sizes: ClassVar = ("runs", "rounds", "actions", "alphas")
    words: ClassVar = ("learner",)
    columns: ClassVar[Mapping[str, Column]] = {
        "α": lambda row: f"{row.alpha:.3f}",
        "learner": lambda row: row.learner,
        "regret": lambda row: f"{row.mean:.1f}",
        "25 %": lambda row: f"{row.q25:.1f}",
        "75 %": lambda row: f"{row.q75:.1f}",
        "coverage": lambda row: f"{row.coverage:.2f}",
        "bound": lambda row: "" if row.bound is None else shown(row.bound),
    }

    def sections(self, row: Row) -> object:
        return row.alpha

    def run(self, options: Options, *, progress: bool = False) -> list[Row]:
        """Play all games, with a bar if wanted.

        >>> from understudy.experiments import EXPERIMENTS
        >>> options = Options(runs=1, rounds=10, actions=2, alphas=2)
        >>> [row.learner for row in EXPERIMENTS["figure1"].run(options)]
        ['Exp3', 'Exp3-IX', 'Exp3', 'Exp3-IX']
        """
        points = list(self.points(options))
        played = play_points(points, lambda point: point.learners, options, progress=progress)
        return [row_of(point, learner, regret) for point, learner, regret in played]

    def draw(self, options: Options, rows: Sequence[Row]) -> Figure:
        size = f"K = {options.actions}, n = {options.rounds:,}, {options.runs} runs"
        return draw_regret(
            curves(rows, self.x),
            title=f"{self.title}\n{size}",
            x_label=self.x_label,
            bound_label=self.bound_label,
        )


def play_points(
    points: Sequence[Place],
    learners: Callable[[Place], Mapping[str, Learner[Any]]],
    options: Options,
    *,
    progress: bool,
) -> Iterator[tuple[Place, str, Array]]:
    """The game of every point with all its learners: their regrets against its comparator."""
    by_game = {point.game: point for point in points}
    sweep = Sweep(
        games={str(i): point.game for i, point in enumerate(points)},
        learners=lambda game: learners(by_game[game]),
        seeds=[options.seed],
        runs=options.runs,
        comparators=lambda game: [by_game[game].comparator],
    )
    results = simulate(sweep, jobs=options.jobs, progress=progress, keep=options.keep)
    for cell, played in results.items():
        yield points[int(cell.game)], cell.learner, played.regret[:, 0]


def standard_error(values: Array) -> float:
    """Of their mean; 0 for a single one, of which nobody knows.

    >>> standard_error(np.array([1.0, 3.0]))
    1.0
    """
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def row_of(point: Point, learner: str, regret: Array) -> Row:
    q25, q75 = np.quantile(regret, [0.25, 0.75]).tolist()
    return Row(
        alpha=point.alpha,
        learner=learner,
        mean=float(regret.mean()),
        q25=q25,
        q75=q75,
        coverage=point.coverage,
        bound=point.bounds[learner],
    )


def shown(bound: float) -> str:
    """A bound with a digit after the point, or in three digits if only its size matters.

    >>> shown(12.34), shown(123456.0)
    ('12.3', '1.23e+05')
    """
    return f"{bound:.1f}" if bound < LARGE else f"{bound:.3g}"


def curves(rows: Sequence[Any], x: str) -> list[Curve]:
    """The rows of each learner as a curve over one of their columns."""
    found = []
    for name in dict.fromkeys(row.learner for row in rows):
        own = sorted(
            (row for row in rows if row.learner == name), key=lambda row: float(getattr(row, x))
        )
        bounds = [row.bound for row in own]
        found.append(
            Curve(
                name=name,
                x=[getattr(row, x) for row in own],
                mean=[row.mean for row in own],
                low=[row.q25 for row in own],
                high=[row.q75 for row in own],
                bound=None if None in bounds else bounds,
            )
        )
    return found
