"""What an experiment is: games to play, rows that come out of them, a table and a picture."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from understudy.constraints import COUNT, N_ACTIONS, SEED, Array, enforce
from understudy.plots import to_bytes
from understudy.simulation.simulate import JOBS, KEEP
from understudy.snapshots import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Column", "Experiment", "Options", "as_csv", "as_json", "write"]

Rows = Sequence[Any]  # frozen dataclasses, all of one class
Column = Callable[[Any], str]  # what a cell of the table says of a row


@dataclass(frozen=True)
class Options:
    """How large: runs per point, rounds per run, actions, points along α; and how it is run.

    An experiment's `sizes` name those of the first four that it has. `keep` is a folder for
    finished cells, from which a run that was stopped goes on.
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

    def __post_init__(self) -> None:
        enforce(self)

    def grid(self) -> Array:
        """The values of α: from 0 to 1 in equal steps.

        >>> Options(runs=1, rounds=1, actions=2, alphas=3).grid().tolist()
        [0.0, 0.5, 1.0]
        """
        return np.linspace(0.0, 1.0, self.alphas)


class Experiment(Protocol):
    """A command's worth of games.

    `sizes` are the options that it has, of runs, rounds, actions and alphas. `columns` make the
    table: a heading, and what stands under it for a row; `sections` tells where a line is drawn
    between rows. Headings in `words` are of text, all others of numbers.
    """

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def defaults(self) -> Options: ...

    @property
    def sizes(self) -> Sequence[str]: ...

    @property
    def columns(self) -> Mapping[str, Column]: ...

    @property
    def words(self) -> Sequence[str]: ...

    def sections(self, row: Any) -> object: ...

    def run(self, options: Options, *, progress: bool = False) -> Rows: ...

    def draw(self, options: Options, rows: Rows) -> Figure: ...

    def notes(self, options: Options) -> list[str]: ...


def as_csv(rows: Rows) -> str:
    """The rows as CSV; what is missing is an empty cell.

    >>> from understudy.experiments.regret_curves import Row
    >>> print(as_csv([Row(0.5, "Exp3", 1.5, 1.0, 2.0, 4.0, None)]), end="")
    alpha,learner,mean,q25,q75,coverage,bound
    0.5,Exp3,1.5,1.0,2.0,4.0,
    """
    buffer = io.StringIO()
    names = [field.name for field in fields(rows[0])]
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return buffer.getvalue()


def as_json(rows: Rows) -> str:
    """The rows as a JSON array of objects.

    >>> from understudy.experiments.regret_curves import Row
    >>> print(as_json([Row(0.5, "Exp3", 1.5, 1.0, 2.0, 4.0, None)]))
    [{"alpha": 0.5, "learner": "Exp3", "mean": 1.5, ..., "bound": null}]
    """
    return json.dumps([asdict(row) for row in rows], allow_nan=False)


def write(experiment: Experiment, options: Options, rows: Rows, out: Path) -> list[Path]:
    """Write the picture as PNG and SVG, and the rows as CSV, each whole or not at all."""
    figure = experiment.draw(options, rows)
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
