"""Experiments that show regret along α, the parameter of a family of behavior policies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from understudy.constraints import Array
from understudy.experiments.experiment import (
    Column,
    Experiment,
    ExperimentOptions,
    GamePoint,
    bound_text,
    play_points,
    size_text,
)
from understudy.plots import RegretCurve, draw_regret

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class RegretPoint(GamePoint):
    """A game at one α, the comparator's coverage, and the bound on each regret, if any."""

    alpha: float
    coverage: float
    bounds: Mapping[str, float | None]


@dataclass(frozen=True)
class RegretRow:
    """The regret of a learner at a point: its mean and quartiles over the runs."""

    alpha: float
    learner: str
    mean: float
    q25: float
    q75: float
    coverage: float
    bound: float | None


class RegretExperiment(Experiment):
    """Regret at every point; `x` is the column of the horizontal axis."""

    x: ClassVar[str]
    x_label: ClassVar[str]
    bound_label: ClassVar[str]
    sizes: ClassVar = ("runs", "rounds", "actions", "alphas")
    text_columns: ClassVar = ("learner",)
    sections: ClassVar = ("alpha",)
    columns: ClassVar[Mapping[str, Column]] = {
        "α": lambda row: f"{row.alpha:.3f}",
        "learner": lambda row: row.learner,
        "regret": lambda row: f"{row.mean:.1f}",
        "25 %": lambda row: f"{row.q25:.1f}",
        "75 %": lambda row: f"{row.q75:.1f}",
        "coverage": lambda row: f"{row.coverage:.2f}",
        "bound": lambda row: bound_text(row.bound),
    }

    @abstractmethod
    def points(self, options: ExperimentOptions) -> Iterator[RegretPoint]:
        """The games, one for each α."""

    def run(self, options: ExperimentOptions, *, progress: bool = False) -> list[RegretRow]:
        """Play all games, with a progress bar on request.

        >>> from understudy.experiments import EXPERIMENTS
        >>> options = ExperimentOptions(runs=1, rounds=10, actions=2, alphas=2)
        >>> [row.learner for row in EXPERIMENTS["figure1"].run(options)]
        ['Exp3', 'Exp3-IX', 'Exp3', 'Exp3-IX']
        """
        points = list(self.points(options))
        return [
            RegretRow(
                alpha=point.alpha,
                learner=learner,
                **quartiles(result.regret[:, 0]),
                coverage=point.coverage,
                bound=point.bounds[learner],
            )
            for point, learner, result in play_points(points, options, progress=progress)
        ]

    def draw(self, options: ExperimentOptions, rows: Sequence[RegretRow]) -> Figure:
        return draw_regret(
            curves(rows, self.x),
            title=f"{self.title}\n{size_text(options)}",
            x_label=self.x_label,
            bound_label=self.bound_label,
        )


def quartiles(regret: Array) -> dict[str, float]:
    """The mean over the runs, and the first and third quartile."""
    q25, q75 = np.quantile(regret, [0.25, 0.75]).tolist()
    return {"mean": float(regret.mean()), "q25": q25, "q75": q75}


def curves(rows: Sequence[Any], x: str) -> list[RegretCurve]:
    """One curve per learner, over the column `x` of its rows."""
    found = []
    for name in dict.fromkeys(row.learner for row in rows):
        own = sorted(
            (row for row in rows if row.learner == name), key=lambda row: float(getattr(row, x))
        )
        bounds = [row.bound for row in own]
        found.append(
            RegretCurve(
                name=name,
                x=[getattr(row, x) for row in own],
                mean=[row.mean for row in own],
                low=[row.q25 for row in own],
                high=[row.q75 for row in own],
                bound=None if None in bounds else bounds,
            )
        )
    return found
