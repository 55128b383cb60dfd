"""What a log says about each action, as sums: the order of its rows does not matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from understudy.constraints import Array
from understudy.types import Integers, frozen

__all__ = ["Tally"]


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

    @property
    def rows(self) -> int:
        """n, the number of rows."""
        return int(self.counts.sum())

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
