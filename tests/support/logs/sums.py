"""The sums of small logs, as coverage and verdicts take them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import understudy as us
from understudy.certificates import CENTERS
from understudy.logs.aggregation.aggregates import log_statistics
from understudy.logs.readers.files import FileSource
from understudy.logs.schema import Actions, Columns
from understudy.logs.statistics import ActionStatistics, LogStatistics

__all__ = [
    "LOGGED",
    "ActionStatistics",
    "Actions",
    "Columns",
    "FileSource",
    "LogStatistics",
    "as_log",
    "fixed_sums",
    "row_sums",
    "sums_of",
    "use_constant_centers",
]

LOGGED = Columns()


def fixed_sums(
    q: NDArray[np.float64], counts: NDArray[np.int64], means: NDArray[np.float64] | None = None
) -> ActionStatistics:
    """The sums of so many rows of each action of a fixed behavior."""
    rewards = counts * (np.zeros(len(q)) if means is None else means)
    played = np.where(counts > 0, q, np.nan)
    return ActionStatistics(counts, rewards, rewards / q, counts / q, counts / q**2, played, played)


def row_sums(
    n_actions: int, actions: Sequence[int] | NDArray[np.int64] = (), q: object = None
) -> ActionStatistics:
    """The sums of rows without a reward, with these propensities; of no rows, if none are given."""
    empty = ActionStatistics.empty(n_actions)
    return empty.after(us.Log(actions, np.zeros(len(actions)), q)) if len(actions) else empty  # type: ignore[arg-type] # arrays


def sums_of(
    frame: pl.DataFrame, labels: int | Sequence[str] | None = None, *, propensities: bool = True
) -> LogStatistics:
    """The sums of a frame: of actions 0 to K − 1, of these labels, or of those that it shows."""
    columns = LOGGED if propensities else Columns(propensity=None)
    names = [str(a) for a in range(labels)] if isinstance(labels, int) else labels
    return log_statistics(frame, columns, actions=None if names is None else Actions(tuple(names)))


def as_log(sums: ActionStatistics) -> LogStatistics:
    """Sums as those of a log of actions 0 to K − 1, of which no row was rejected."""
    return LogStatistics(Actions(tuple(str(a) for a in range(len(sums.counts)))), sums, {})


def use_constant_centers(patch: pytest.MonkeyPatch) -> None:
    """Let certificates of rows in order have the constant centers of sums."""
    constant = functools.partial(us.Certificate, centers=CENTERS)
    patch.setattr("understudy.logs.runs.row_run.Certificate", constant)
