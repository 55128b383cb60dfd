"""What a log says about each action, as sums: the order of its rows does not matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from understudy import kernels
from understudy.constraints import LARGEST_COUNT, Array, array
from understudy.types import Integers, Log, frozen, given, saved

__all__ = ["Tally"]

UNKNOWN = 1.0  # in place of a propensity that nobody knows


@saved
@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over the rows of each action, (K,): everything that coverage is made of.

    With R and q the reward and the propensity of a row: `counts` its rows, `rewards` Σ R,
    `weighted` Σ R/q, `weights` Σ 1/q, `squares` Σ 1/q², and `lowest` and `highest` the range of q.
    An action that was never seen has lowest 1 and highest 0. Where nobody knows the propensities,
    q stands at 1 in all of them.
    """

    counts: Integers
    rewards: Array
    weighted: Array
    weights: Array
    squares: Array
    lowest: Array
    highest: Array
    CONSTRAINTS: ClassVar = {  # enforced by snapshots
        "counts": array("pass counts", dtype=np.int64, low=0, high=LARGEST_COUNT),
        "rewards": array("pass a sum per action", low=0.0),
        "weighted": array("pass a sum per action", low=0.0),
        "weights": array("pass a sum per action", low=0.0),
        "squares": array("pass a sum per action", low=0.0),
        "lowest": array("pass a propensity per action", low=0.0, high=1.0),
        "highest": array("pass a propensity per action", low=0.0, high=1.0),
    }

    @staticmethod
    def empty(n_actions: int) -> Tally:
        """Before the first row.

        >>> Tally.empty(2).counts.tolist()
        [0, 0]
        """
        none, one = frozen(np.zeros(n_actions)), frozen(np.ones(n_actions))
        counts = frozen(np.zeros(n_actions, dtype=np.int64))
        return Tally(counts, none, none, none, none, one, none)

    @property
    def rows(self) -> int:
        """n, the number of rows."""
        return int(self.counts.sum())

    def after(self, log: Log) -> Tally:
        """With more rows, whose log carries propensities or none: the bits do not depend on cuts.

        >>> Tally.empty(2).after(Log([1, 1], [1.0, 0.0], [0.5, 0.25])).weights.tolist()
        [0.0, 6.0]
        """
        q = np.full(len(log), UNKNOWN) if log.propensities is None else log.propensities
        counts = self.counts.copy()
        totals = np.stack([self.rewards, self.weighted, self.weights, self.squares])
        ranges = np.stack([self.lowest, self.highest])
        kernels.logs.tally(given(log.actions), given(log.rewards), given(q), counts, totals, ranges)
        return Tally(frozen(counts), *(frozen(row.copy()) for row in (*totals, *ranges)))

    def merge(self, other: Tally) -> Tally:
        """Of the rows of both."""
        return Tally(
            frozen(self.counts + other.counts),
            frozen(self.rewards + other.rewards),
            frozen(self.weighted + other.weighted),
            frozen(self.weights + other.weights),
            frozen(self.squares + other.squares),
            frozen(np.minimum(self.lowest, other.lowest)),
            frozen(np.maximum(self.highest, other.highest)),
        )
