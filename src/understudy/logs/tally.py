"""What a log says about each action, as sums: the order of its rows does not matter."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy import kernels
from understudy.constraints import LARGEST_COUNT, SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidSnapshot
from understudy.types import Integers, Log, frozen, given

__all__ = ["Tally"]

ENOUGH = 30  # rows of one propensity, to take it for the only one

ROUNDING = 1.0 + 1e-9


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over the rows of each action, (K,): everything that coverage is made of.

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
    def empty(n_actions: int) -> Tally:
        """Before the first row.

        >>> Tally.empty(2).counts.tolist()
        [0, 0]
        """
        none, unseen = frozen(np.zeros(n_actions)), frozen(np.full(n_actions, np.nan))
        counts = frozen(np.zeros(n_actions, dtype=np.int64))
        return Tally(counts, none, none, none, none, unseen, unseen)

    @staticmethod
    def without_propensities(counts: Integers, rewards: Array) -> Tally:
        """Of rows whose propensities nobody knows.

        >>> Tally.without_propensities(np.array([2]), np.array([1.0])).weights.tolist()
        [nan]
        """
        unknown = frozen(np.full(len(counts), np.nan))
        return Tally(counts, rewards, unknown, unknown, unknown, unknown, unknown)

    @staticmethod
    def of_behavior(counts: Integers, rewards: Array, q: Array) -> Tally:
        """Of rows that were all played with the same K probabilities.

        >>> Tally.of_behavior(np.array([2, 0]), np.array([1.0, 0.0]), np.array([0.5, 0.5])).weights
        array([4., 0.])
        """
        inverse = np.where(q == 0.0, 0.0, 1.0 / np.where(q == 0.0, 1.0, q))
        played = frozen(np.where(counts > 0, q, np.nan))
        weights, squares = frozen(counts * inverse), frozen(counts * inverse**2)
        return Tally(counts, rewards, frozen(rewards * inverse), weights, squares, played, played)

    @property
    def rows(self) -> int:
        """n, the number of rows."""
        return int(self.counts.sum())

    def coverage_ratios(self) -> Array:
        """The mean of 1/q_t(a) of each action, (K,); inf where it was never played.

        1/q itself, where enough rows show that there is only one; else Σ 1/q² / n, which is
        unbiased, or 1, if chance has it below.
        """
        n = max(self.rows, 1)
        fixed = (self.lowest == self.highest) & (self.counts >= ENOUGH)
        with np.errstate(invalid="ignore"):
            known = 1.0 / np.where(fixed, self.lowest, 1.0)
        return np.where(
            self.counts > 0, np.where(fixed, known, np.maximum(self.squares / n, 1.0)), np.inf
        )

    def after(self, log: Log) -> Tally:
        """With more rows, which all carry propensities or none: the bits do not depend on cuts.

        >>> Tally.empty(2).after(Log([1, 1], [1.0, 0.0], [0.5, 0.25])).weights.tolist()
        [0.0, 6.0]
        """
        known = log.propensities is not None
        q = log.propensities if known else np.ones(len(log))
        counts = self.counts.copy()
        totals = np.stack([self.rewards, self.weighted, self.weights, self.squares])
        ranges = np.stack([self.lowest, self.highest])
        kernels.logs.tally(given(log.actions), given(log.rewards), given(q), counts, totals, ranges)  # type: ignore[arg-type] # not None
        if not known:
            totals[1:], ranges[:] = np.nan, np.nan
        return Tally(frozen(counts), *(frozen(row.copy()) for row in (*totals, *ranges)))

    def merge(self, other: Tally) -> Tally:
        """Of the rows of both."""
        return Tally(
            frozen(self.counts + other.counts),
            frozen(self.rewards + other.rewards),
            frozen(self.weighted + other.weighted),
            frozen(self.weights + other.weights),
            frozen(self.squares + other.squares),
            frozen(np.fmin(self.lowest, other.lowest)),
            frozen(np.fmax(self.highest, other.highest)),
        )

    def as_data(self) -> dict[str, list[float | None]]:
        """As what JSON can hold, exactly: null for nan.

        >>> Tally.empty(1).as_data()["lowest"]
        [None]
        """
        return {
            field.name: [
                None if math.isnan(value) else value for value in getattr(self, field.name).tolist()
            ]
            for field in dataclasses.fields(self)
        }

    @staticmethod
    def from_data(data: dict[str, Any], n_actions: int) -> Tally:
        """What `as_data` made data of.

        >>> Tally.from_data(Tally.empty(2).after(Log([1], [0.5])).as_data(), 2).rewards.tolist()
        [0.0, 0.5]
        """
        names = [field.name for field in dataclasses.fields(Tally)]
        columns = {name: np.array(data[name], dtype=np.float64) for name in names}
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
        columns["counts"] = counts.astype(np.int64)
        return Tally(**{name: frozen(column) for name, column in columns.items()})


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
    """What a sum can be, by action, if propensities are neither 0 nor above 1."""
    ranges: dict[str, tuple[float, Array | float]] = {
        "counts": (0.0, LARGEST_COUNT),
        "rewards": (0.0, counts),
        "squares": (0.0, counts / SMALLEST_PROBABILITY**2),
        "lowest": (SMALLEST_PROBABILITY, 1.0),
        "highest": (SMALLEST_PROBABILITY, 1.0),
    }
    return ranges.get(name, (0.0, counts / SMALLEST_PROBABILITY))


def _within(values: Array, low: float, high: Array | float) -> bool:
    """Whether those that are known are, but for rounding."""
    return bool((np.isnan(values) | ((values >= low) & (values <= high * ROUNDING))).all())
