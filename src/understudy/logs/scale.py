"""Rewards between 0 and 1, as learners see them, in the units of the log, as people do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from understudy.constraints import Array
from understudy.errors import InvalidArgument

__all__ = ["Scale"]

NARROWEST, WIDEST = 1e-100, 1e100  # so that squares of rewards are numbers too
Numbers = TypeVar("Numbers", float, Array)


@dataclass(frozen=True)
class Scale:
    """The smallest and the largest reward that are possible: 0 and 1 of the learner.

    >>> Scale(-1.0, 3.0).reward(0.5), Scale(-1.0, 3.0).gain(0.5), Scale(-1.0, 3.0).unit(0.0)
    (1.0, 2.0, 0.25)
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        width = self.high - self.low
        if not (self.low < self.high and NARROWEST <= width <= WIDEST):
            raise InvalidArgument(
                "reward_range",
                (self.low, self.high),
                "it must be a lower and a higher number, 1e-100 to 1e100 apart",
                "pass the smallest and the largest reward that are possible",
            )

    @staticmethod
    def of(reward_range: Sequence[float] | None) -> Scale:
        """As people pass it: two numbers, or nothing for [0, 1].

        >>> Scale.of([0, 5])
        Scale(low=0.0, high=5.0)
        """
        if reward_range is None:
            return Scale()
        try:
            low, high = (float(value) for value in reward_range)
        except (TypeError, ValueError):
            raise InvalidArgument(
                "reward_range", reward_range, "it must be two numbers", "pass LOW HIGH, such as 0 5"
            ) from None
        return Scale(low, high)

    @property
    def is_unit(self) -> bool:
        return self == Scale()

    def reward(self, mean: Numbers) -> Numbers:
        """A mean reward."""
        return self.low + (self.high - self.low) * mean

    def gain(self, difference: Numbers) -> Numbers:
        """A difference of mean rewards."""
        return (self.high - self.low) * difference

    def weighted(self, rewards: Numbers, weights: Numbers) -> Numbers:
        """Σ w R in these units, of Σ w R between 0 and 1 and of Σ w.

        >>> Scale(-1.0, 3.0).weighted(0.5 * 0.25 + 2.0 * 1.0, 0.5 + 2.0)  # rewards of 0 and 3
        6.0
        """
        return self.low * weights + (self.high - self.low) * rewards

    def unit(self, reward: Numbers) -> Numbers:
        """A reward of the log as the learner sees it; the same bits if it is in [0, 1] already."""
        return reward if self.is_unit else (reward - self.low) / (self.high - self.low)
