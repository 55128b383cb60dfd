"""Logs that tests make: rows with propensities, and the files that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

import understudy as us
from understudy.logs.readers.files import find_files
from understudy.logs.readers.inputs import LogReader
from understudy.logs.schema import Columns

K = 4
LABELS = ("north", "south", "east", "west")
MEANS = np.array([0.2, 0.8, 0.4, 0.5])


def make_rows(rows: int, seed: int = 0, *, context: bool = False) -> pl.DataFrame:
    """Bernoulli rewards of four actions, of which a drifting production prefers the worst."""
    rng = np.random.default_rng(seed)
    drift = np.linspace(0.0, 1.0, rows)[:, np.newaxis]
    q = (1 - drift) * np.array([0.4, 0.1, 0.3, 0.2]) + drift * np.array([0.55, 0.15, 0.2, 0.1])
    actions = us.behaviors.choose(q, rng.random(rows))
    means = MEANS[actions]
    columns: dict[str, object] = {}
    if context:
        x, color = rng.normal(size=rows), rng.choice(["red", "blue"], size=rows)
        best = np.where(x > 0, 1, 2)
        means = np.where(actions == best, 0.9, 0.3)
        columns = {"x": x, "color": color}
    return pl.DataFrame(
        {
            "action": [LABELS[a] for a in actions],
            "reward": (rng.random(rows) < means).astype(float),
            "propensity": q[np.arange(rows), actions],
            **columns,
        }
    )


def as_log(rows: pl.DataFrame, labels: tuple[str, ...]) -> us.Log:
    """The arrays of a log, with actions counted in the order of the labels."""
    place = {label: i for i, label in enumerate(labels)}
    return us.Log([place[label] for label in rows["action"]], rows["reward"], rows["propensity"])


def write(path: Path, rows: pl.DataFrame) -> Path:
    """In the format that the file's name says."""
    writers = {
        ".csv": rows.write_csv,
        ".parquet": rows.write_parquet,
        ".ndjson": rows.write_ndjson,
        ".arrow": rows.write_ipc,
    }
    writers[path.suffix](path)  # type: ignore[operator] # all take a path
    return path


def batches_of(*paths: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    """The batches of rows of files, each with the name of its file."""
    return LogReader(find_files(paths), Columns()).batches()
