"""The parts that all experiments share: sizes, games to play, rows of numbers, curves, files."""

from __future__ import annotations

import csv
import io
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from understudy.constraints import COUNT, N_ACTIONS, SEED, Array, Checked
from understudy.plots import RegretCurve, draw_regret, to_bytes
from understudy.protocols import Learner
from understudy.simulation import Game, Sweep, simulate
from understudy.simulation.engine import Comparator, Rewards
from understudy.simulation.simulate import JOBS, KEEP
from understudy.simulation.sweep import CellResult
from understudy.snapshots import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Any]  # frozen dataclasses, all of one class
Column = Callable[[Any], str]  # the text of a row in one column of the table
LARGE_BOUND = 1e5  # from here on, only the size of a bound matters: three digits are enough


@dataclass(frozen=True)
class ExperimentOptions(Checked):
    """Sizes of an experiment (runs per point, rounds per run, actions, points along α) and more.

    An experiment's `sizes` names those of the first four that it has. `keep` is a folder for
    finished cells: an experiment that was stopped goes on from them.
    """

    runs: int
    rounds: int = 1
    actions: int = 2
    alphas: int = 1
    seed: int = 0
    jobs: int = 1
    keep: Path | None = None
    CONSTRAINTS: ClassVar = {
        "runs": COUNT,
        "rounds": COUNT,
        "actions": N_ACTIONS,
        "alphas": COUNT,
        "seed": SEED,
        "jobs": JOBS,
        "keep": KEEP,
    }

    def grid(self) -> list[float]:
        """The values of α: from 0 to 1 in equal steps."""
        return np.linspace(0.0, 1.0, self.alphas).tolist()  # type: ignore[no-any-return] # floats


class Experiment(ABC):
    """Games to play, the rows of numbers that they give, a table and a figure.

    `sizes` are the options that change its size, of runs, rounds, actions and alphas. `columns`
    make the table: a heading, and the text under it for a row. Columns in `text_columns` hold
    words, all others numbers. A line is drawn between rows that differ in a field of `sections`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    defaults: ClassVar[ExperimentOptions]
    sizes: ClassVar[Sequence[str]]
    columns: ClassVar[Mapping[str, Column]]
    text_columns: ClassVar[Sequence[str]]
    sections: ClassVar[Sequence[str]]

    @abstractmethod
    def run(self, options: ExperimentOptions, *, progress: bool = False) -> Rows:
        """Play all games, with a progress bar on request."""

    @abstractmethod
    def draw(self, options: ExperimentOptions, rows: Any) -> Figure:
        """Draw the rows."""

    @abstractmethod
    def notes(self, options: ExperimentOptions) -> list[str]:
        """Explain the columns."""


@dataclass(frozen=True, eq=False)
class GamePoint:
    """A game of an experiment, its learners by name, and the comparators of their regret."""

    game: Game
    learners: Mapping[str, Learner[Any]]
    comparators: Sequence[Comparator]


PointType = TypeVar("PointType", bound=GamePoint)


def play_points(
    points: Sequence[PointType],
    options: ExperimentOptions,
    *,
    progress: bool,
    rewards: Rewards = "mean",
) -> Iterator[tuple[PointType, str, CellResult]]:
    """Play all points as one sweep; yield the result of every learner at every point."""
    by_game = {point.game: point for point in points}
    sweep = Sweep(
        games={str(i): point.game for i, point in enumerate(points)},
        learners=lambda game: by_game[game].learners,
        seeds=[options.seed],
        runs=options.runs,
        comparators=lambda game: by_game[game].comparators,
        rewards=rewards,
    )
    results = simulate(sweep, jobs=options.jobs, progress=progress, keep=options.keep)
    for cell, result in results.items():
        yield points[int(cell.game)], cell.learner, result


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
    """Regret along α, the parameter of a family of behavior policies.

    `x` is the column of the horizontal axis.
    """

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
            regret_curves(rows, self.x),
            title=f"{self.title}\n{size_text(options)}",
            x_label=self.x_label,
            bound_label=self.bound_label,
        )


def quartiles(regret: Array) -> dict[str, float]:
    """The mean over the runs, and the first and third quartile."""
    q25, q75 = np.quantile(regret, [0.25, 0.75]).tolist()
    return {"mean": float(regret.mean()), "q25": q25, "q75": q75}


def standard_error(values: Array) -> float:
    """Standard error of the mean; 0 for a single value, where it is unknown."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def regret_curves(rows: Rows, x: str) -> list[RegretCurve]:
    """One curve per learner, over the column `x` of its rows."""
    curves = []
    for learner in dict.fromkeys(row.learner for row in rows):
        own = [row for row in rows if row.learner == learner]
        own.sort(key=operator.attrgetter(x))
        names = (x, "mean", "q25", "q75", "bound")
        positions, mean, low, high, bounds = ([getattr(row, name) for row in own] for name in names)
        bound = None if None in bounds else bounds
        curves.append(RegretCurve(learner, positions, mean, low, high, bound))
    return curves


def bound_text(bound: float | None) -> str:
    """A bound with one digit after the point, or with three digits if it is large."""
    if bound is None:
        return ""
    return f"{bound:.1f}" if bound < LARGE_BOUND else f"{bound:.3g}"


def size_text(options: ExperimentOptions) -> str:
    """The size of an experiment, for the title of its figure."""
    return f"K = {options.actions}, n = {options.rounds:,}, {options.runs:,} runs"


def as_csv(rows: Rows) -> str:
    """The rows as CSV; None is an empty cell."""
    buffer = io.StringIO()
    names = [field.name for field in fields(rows[0])]
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return buffer.getvalue()


def as_json(rows: Rows) -> str:
    """The rows as a JSON array of objects."""
    return json.dumps([asdict(row) for row in rows], allow_nan=False)


def write(experiment: Experiment, options: ExperimentOptions, rows: Rows, out: Path) -> list[Path]:
    """Write the figure as PNG and SVG and the rows as CSV, each file whole or not at all."""
    figure = experiment.draw(options, rows)
    contents = {
        "png": to_bytes(figure, "png"),
        "svg": to_bytes(figure, "svg"),
        "csv": as_csv(rows).encode(),
    }
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{experiment.name}.{suffix}" for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_atomically(path, content)
    return paths
