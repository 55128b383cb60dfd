"""Rewards between 0 and 1, as learners see them, in the units of the log, as people do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from understudy.constraints import Array

__all__ = ["Scale"]

Numbers = TypeVar("Numbers", float, Array)


@dataclass(frozen=True)
class Scale:
    """The smallest and the largest reward that are possible: 0 and 1 of the learner.

    >>> Scale(-1.0, 3.0).reward(0.5), Scale(-1.0, 3.0).gain(0.5)
    (1.0, 2.0)
    """

    low: float = 0.0
    high: float = 1.0

    def reward(self, mean: Numbers) -> Numbers:
        """A mean reward."""
        return self.low + (self.high - self.low) * mean

    def gain(self, difference: Numbers) -> Numbers:
        """A difference of mean rewards."""
        return (self.high - self.low) * difference
