"""What an experiment is: a list of games along α, the learners that play them, and a picture."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from understudy.comparators import Comparator
from understudy.constraints import COUNT, N_ACTIONS, SEED, Array, enforce
from understudy.game import Game
from understudy.plots import Curve, draw_regret, to_bytes
from understudy.protocols import Learner
from understudy.simulate import JOBS, KEEP, simulate
from understudy.snapshots import write_atomically
from understudy.sweeps import Sweep

__all__ = ["Experiment", "Options", "Point", "Row", "as_csv", "as_json", "run", "write"]


@dataclass(frozen=True)
class Options:
    """How large: runs per point, rounds per run, actions, points along α; and how it is run.

    `keep` is a folder for finished cells, from which a run that was stopped goes on.
    """

    runs: int
    rounds: int
    actions: int
    alphas: int
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

    def __post_init__(self) -> None:
        enforce(self)

    def grid(self) -> Array:
        """The values of α: from 0 to 1 in equal steps.

        >>> Options(runs=1, rounds=1, actions=2, alphas=3).grid().tolist()
        [0.0, 0.5, 1.0]
        """
        return np.linspace(0.0, 1.0, self.alphas)


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
class Experiment:
    """A picture's worth of games. `x` is the column of the horizontal axis."""

    name: str
    title: str
    defaults: Options
    points: Callable[[Options], Iterator[Point]]
    x: str
    x_label: str
    bound_label: str
    notes: Callable[[Options], list[str]]


def run(experiment: Experiment, options: Options, *, progress: bool = False) -> list[Row]:
    """Play all games of an experiment, with a bar if wanted.

    >>> from understudy.experiments import EXPERIMENTS
    >>> options = Options(runs=1, rounds=10, actions=2, alphas=2)
    >>> [row.learner for row in run(EXPERIMENTS["figure1"], options)]
    ['Exp3', 'Exp3-IX', 'Exp3', 'Exp3-IX']
    """
    points = {str(i): point for i, point in enumerate(experiment.points(options))}
    by_game = {point.game: point for point in points.values()}
    sweep = Sweep(
        games={name: point.game for name, point in points.items()},
        learners=lambda game: by_game[game].learners,
        seeds=[options.seed],
        runs=options.runs,
        comparators=lambda game: [by_game[game].comparator],
    )
    results = simulate(sweep, jobs=options.jobs, progress=progress, keep=options.keep)
    return [
        _row(points[cell.game], cell.learner, played.regret[:, 0])
        for cell, played in results.items()
    ]


def _row(point: Point, learner: str, regret: Array) -> Row:
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


def as_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV; a missing bound is an empty cell.

    >>> print(as_csv([Row(0.5, "Exp3", 1.5, 1.0, 2.0, 4.0, None)]), end="")
    alpha,learner,mean,q25,q75,coverage,bound
    0.5,Exp3,1.5,1.0,2.0,4.0,
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return buffer.getvalue()


def as_json(rows: Sequence[Row]) -> str:
    """The rows as a JSON array of objects.

    >>> print(as_json([Row(0.5, "Exp3", 1.5, 1.0, 2.0, 4.0, None)]))
    [{"alpha": 0.5, "learner": "Exp3", "mean": 1.5, ..., "bound": null}]
    """
    return json.dumps([asdict(row) for row in rows], allow_nan=False)


def write(experiment: Experiment, options: Options, rows: Sequence[Row], out: Path) -> list[Path]:
    """Write the picture as PNG and SVG, and the rows as CSV, each whole or not at all."""
    size = f"K = {options.actions}, n = {options.rounds:,}, {options.runs} runs"
    figure = draw_regret(
        _curves(experiment, rows),
        title=f"{experiment.title}\n{size}",
        x_label=experiment.x_label,
        bound_label=experiment.bound_label,
    )
    contents = {
        "png": to_bytes(figure, "png"),
        "svg": to_bytes(figure, "svg"),
        "csv": as_csv(rows).encode(),
    }
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{experiment.name}.{form}" for form in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_atomically(path, content)
    return paths


def _curves(experiment: Experiment, rows: Sequence[Row]) -> list[Curve]:
    curves = []
    for name in dict.fromkeys(row.learner for row in rows):
        own = sorted(
            (row for row in rows if row.learner == name),
            key=lambda row: float(getattr(row, experiment.x)),
        )
        bounds = [row.bound for row in own]
        curves.append(
            Curve(
                name=name,
                x=[getattr(row, experiment.x) for row in own],
                mean=[row.mean for row in own],
                low=[row.q25 for row in own],
                high=[row.q75 for row in own],
                bound=None if None in bounds else bounds,  # type: ignore[arg-type] # no None then
            )
        )
    return curves
