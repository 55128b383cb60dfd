"""Sums per action, which do not depend on the order of rows, and counts over time.

Both take constant memory.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from understudy import kernels
from understudy.constraints import LARGEST_COUNT, SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidSnapshot
from understudy.logs.schema import Actions
from understudy.snapshots import fields_from_data
from understudy.types import Integers, Log, kernel_view, read_only

ENOUGH = 30  # rows of one propensity, to take it for the only one: fewer may agree by chance

ROUNDING = 1.0 + 1e-9  # sums of many rows are rounded


@dataclass(frozen=True, eq=False)
class ActionStatistics:
    """Sums over the rows of each action, (K,), from which coverage is computed.

    With R and q the reward and the propensity of a row: `counts` its rows, `rewards` Σ R,
    `weighted` Σ R/q, `weights` Σ 1/q, `squares` Σ 1/q², and `lowest` and `highest` the range of q,
    nan where the action was never seen. Without propensities the last five are nan.
    """

    counts: Integers
    rewards: Array
    weighted: Array
    weights: Array
    squares: Array
    lowest: Array
    highest: Array

    @staticmethod
    def empty(n_actions: int) -> ActionStatistics:
        """The sums before the first row."""
        none, unseen = read_only(np.zeros(n_actions)), read_only(np.full(n_actions, np.nan))
        counts = read_only(np.zeros(n_actions, dtype=np.int64))
        return ActionStatistics(counts, none, none, none, none, unseen, unseen)

    @staticmethod
    def without_propensities(counts: Integers, rewards: Array) -> ActionStatistics:
        """The sums of rows without known propensities."""
        unknown = read_only(np.full(len(counts), np.nan))
        return ActionStatistics(counts, rewards, unknown, unknown, unknown, unknown, unknown)

    @staticmethod
    def of_behavior(counts: Integers, rewards: Array, q: Array) -> ActionStatistics:
        """The sums of rows that were all played with the same K probabilities."""
        inverse = np.where(q == 0.0, 0.0, 1.0 / np.where(q == 0.0, 1.0, q))
        played = read_only(np.where(counts > 0, q, np.nan))
        weights, squares = read_only(counts * inverse), read_only(counts * inverse**2)
        return ActionStatistics(
            counts, rewards, read_only(rewards * inverse), weights, squares, played, played
        )

    @property
    def rows(self) -> int:
        """n, the number of rows."""
        return int(self.counts.sum())

    def without_largest_weight(self) -> ActionStatistics:
        """The sums without one row of each action, that with the largest 1/q.

        >>> sums = ActionStatistics.empty(2).after(Log([1, 1], [1.0, 0.0], [0.5, 0.25]))
        >>> sums.without_largest_weight().weights.tolist()
        [0.0, 2.0]
        """
        largest = np.where(self.counts > 0, 1.0 / self.lowest, 0.0)
        return dataclasses.replace(
            self,
            counts=read_only(np.maximum(self.counts - 1, 0)),
            weights=read_only(np.maximum(self.weights - largest, 0.0)),
            squares=read_only(np.maximum(self.squares - largest**2, 0.0)),
        )

    def coverage_ratios(self) -> Array:
        """The mean of 1/q_t(a) of each action, (K,); inf where it was never played.

        It is 1/q itself if enough rows show the same q; else Σ 1/q² / n, which is unbiased, but at
        least 1.
        """
        n = max(self.rows, 1)
        fixed = (self.lowest == self.highest) & (self.counts >= ENOUGH)
        with np.errstate(invalid="ignore"):
            known = 1.0 / np.where(fixed, self.lowest, 1.0)
        return np.where(
            self.counts > 0, np.where(fixed, known, np.maximum(self.squares / n, 1.0)), np.inf
        )

    def after(self, log: Log) -> ActionStatistics:
        """The sums after more rows, with or without propensities: the same bits in any batching.

        >>> ActionStatistics.empty(2).after(Log([1, 1], [1.0, 0.0], [0.5, 0.25])).weights.tolist()
        [0.0, 6.0]
        """
        known = log.propensities is not None
        q = np.ones(len(log)) if log.propensities is None else log.propensities
        counts = self.counts.copy()
        totals = np.stack([self.rewards, self.weighted, self.weights, self.squares])
        ranges = np.stack([self.lowest, self.highest])
        kernels.certificates.tally(
            kernel_view(log.actions),
            kernel_view(log.rewards),
            kernel_view(q),
            counts,
            totals,
            ranges,
        )
        if not known:
            totals[1:], ranges[:] = np.nan, np.nan
        return ActionStatistics(
            read_only(counts), *(read_only(row.copy()) for row in (*totals, *ranges))
        )

    @staticmethod
    def from_data(data: dict[str, Any], n_actions: int) -> ActionStatistics:
        """Parse and check the sums of a policy.json; `InvalidSnapshot` if no log has them."""
        names = [field.name for field in dataclasses.fields(ActionStatistics)]
        decoders: dict[str, Any] = dict.fromkeys(names, _floats)
        sums = fields_from_data(ActionStatistics, data, "tally", **decoders)
        columns: dict[str, Array] = {name: getattr(sums, name) for name in names}
        counts = columns["counts"]
        bounded = counts.clip(0.0, LARGEST_COUNT)
        whole = (counts == np.floor(counts)).all() and not np.isnan(columns["rewards"]).any()
        if any(column.shape != (n_actions,) for column in columns.values()) or not (
            whole
            and all(_within(columns[name], *_range(name, bounded)) for name in names)
            and _agree(columns)
        ):
            raise InvalidSnapshot(
                "tally", data, "its sums are not those of a log", "load an unchanged file"
            )
        return dataclasses.replace(sums, counts=read_only(counts.astype(np.int64)))


@dataclass(frozen=True, eq=False)
class LogStatistics:
    """The actions of a log, their sums, and the number of rejected rows by reason."""

    actions: Actions
    sums: ActionStatistics
    reject_counts: dict[str, int]


def _floats(values: list[float | None]) -> Array:
    return read_only(np.array(values, dtype=np.float64))


def _agree(columns: dict[str, Array]) -> bool:
    """Whether propensities are known of all actions that were played, or of none."""
    played, sums = columns["counts"] > 0, ("weighted", "weights", "squares")
    unknown = np.isnan([columns[name] for name in sums])
    none = np.isnan([columns[name] for name in ("lowest", "highest")])
    if unknown.all():
        return bool(none.all())
    positive = (columns["weights"] > 0.0) == played
    return not unknown.any() and bool(positive.all()) and bool((none != played).all())


def _range(name: str, counts: Array) -> tuple[float, Array | float]:
    """The range of a sum, by action, if all propensities are in (0, 1]."""
    ranges: dict[str, tuple[float, Array | float]] = {
        "counts": (0.0, LARGEST_COUNT),
        "rewards": (0.0, counts),
        "squares": (0.0, counts / SMALLEST_PROBABILITY**2),
        "lowest": (SMALLEST_PROBABILITY, 1.0),
        "highest": (SMALLEST_PROBABILITY, 1.0),
    }
    return ranges.get(name, (0.0, counts / SMALLEST_PROBABILITY))


def _within(values: Array, low: float, high: Array | float) -> bool:
    """Whether all known values are in a range, up to rounding."""
    return bool((np.isnan(values) | ((values >= low) & (values <= high * ROUNDING))).all())


MOST = 20  # periods: enough to see a drift, few enough to keep in policy.json


@dataclass(frozen=True, eq=False)
class CountsOverTime:
    """Counts per action (B, K) in periods of `width` rows each; the last may be shorter.

    If there are too many periods, neighbors are merged: their number stays bounded, and the counts
    do not depend on batching.

    >>> CountsOverTime.empty(2).after(np.array([0, 1, 1])).counts.tolist()
    [[1, 0], [0, 1], [0, 1]]
    """

    width: int
    rows: int
    counts: Integers

    @staticmethod
    def empty(n_actions: int) -> CountsOverTime:
        """The counts before the first row."""
        return CountsOverTime(1, 0, read_only(np.zeros((0, n_actions), dtype=np.int64)))

    @staticmethod
    def from_data(data: dict[str, Any], n_actions: int) -> CountsOverTime:
        """Parse and check the counts of a policy.json; `InvalidSnapshot` if they do not add up."""
        parsed = fields_from_data(
            CountsOverTime,
            data,
            "stretches",
            width=int,
            rows=int,
            counts=lambda rows: read_only(np.array(rows, dtype=np.int64).reshape(-1, n_actions)),
        )
        width, rows, counts = parsed.width, parsed.rows, parsed.counts
        full = rows // width if width > 0 else -1
        whole = counts.sum() == rows and (counts >= 0).all() and len(counts) == -(-rows // width)
        if not whole or (counts[:full].sum(axis=1) != width).any() or len(counts) > MOST:
            raise InvalidSnapshot(
                "stretches", data["rows"], "they do not add up", "load an unchanged file"
            )
        return parsed

    def after(self, actions: Integers) -> CountsOverTime:
        """The counts after more rows."""
        width, rows = self.width, self.rows + len(actions)
        counts = self.counts
        while width * MOST < rows:
            width *= 2
            counts = _halved(counts)
        K = counts.shape[1]
        grown = np.zeros((-(-rows // width), K), dtype=np.int64)
        grown[: len(counts)] = counts
        first, last = self.rows // width, (rows - 1) // width
        for i in range(first, last + 1):
            low, high = i * width - self.rows, (i + 1) * width - self.rows
            grown[i] += np.bincount(actions[max(low, 0) : max(high, 0)], minlength=K)
        return CountsOverTime(width, rows, read_only(grown))


def _halved(counts: Integers) -> Integers:
    """The sums of pairs of neighbors; the last period stays alone if their number is odd."""
    return np.add.reduceat(counts, np.arange(0, len(counts), 2)) if len(counts) else counts


class BaselineSums(NamedTuple):
    """Sums over valid rows that estimate the gain over a baseline, with d = w − w₀.

    Σ w₀R, Σ w₀, Σ d² and Σ d²R, and the number of rows. `metrics` and `segments` have Σ w₀m and
    Σ w₀ of each metric, and Σ w₀R and Σ w₀ in each segment, (…, 2).
    """

    rewards: float = 0.0
    weights: float = 0.0
    squares: float = 0.0
    weighted_squares: float = 0.0
    rows: int = 0
    metrics: Array | None = None
    segments: Array | None = None

    @property
    def mean(self) -> float:
        """The self-normalised mean reward of the baseline; nan without a play of it."""
        return self.rewards / self.weights if self.weights else math.nan

    def moment(self, center: float) -> float:
        """An upper bound on E[d²(R − c)²]: R stands for R², exact for 0 and 1."""
        total = self.weighted_squares * (1.0 - 2.0 * center) + center**2 * self.squares
        return max(0.0, total) / max(self.rows, 1)
