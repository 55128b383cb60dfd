"""Whom the learner is compared with, and what they would have earned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.constraints import Array, dimensions_of
from understudy.contexts import ContextPolicy, rows
from understudy.errors import InvalidArgument
from understudy.simulation.game import Game
from understudy.theory.coverage_ratio import as_policy
from understudy.types import Integers

__all__ = ["BEST", "Comparator", "ComparatorTotals", "Comparators", "Totals"]

BEST = "best"  # the best fixed action in hindsight, found anew in every run

Comparator = int | ArrayLike | ContextPolicy | str


class Comparators:
    """What several comparators would have earned in one run: actions, policies, or `BEST`."""

    def __init__(self, game: Game, comparators: Sequence[Comparator]) -> None:
        self.game = game
        self.fixed: dict[int, Array] = {}
        self.contextual: dict[int, ContextPolicy] = {}
        for i, comparator in enumerate(comparators):
            self._sort(i, comparator)
        self.by_action = np.zeros(game.n_actions)
        self.earned = np.zeros(len(comparators))

    def add(self, contexts: NDArray[Any], rewards: Array, lasting: Integers) -> None:
        """Count more rounds: their contexts, and rows of all actions' rewards.

        A row lasts that many rounds; where there are contexts, each lasts one.
        """
        self.by_action += (rewards * lasting[:, np.newaxis]).sum(axis=0)  # BLAS may reorder sums
        for i, comparator in self.contextual.items():
            policy = rows(comparator, contexts, self.game.n_actions, "comparators")
            self.earned[i] += (policy * rewards).sum()

    def totals(self) -> Array:
        """The reward of each comparator so far."""
        totals = np.full(len(self.earned), self.by_action.max())  # BEST, unless it is another
        for i, policy in self.fixed.items():
            totals[i] = (policy * self.by_action).sum()
        for i in self.contextual:
            totals[i] = self.earned[i]
        return totals

    def _sort(self, i: int, comparator: Comparator) -> None:
        if isinstance(comparator, str):
            if comparator != BEST:
                raise InvalidArgument(
                    "comparators",
                    comparator,
                    f"the only one with a name is {BEST!r}, the best fixed action in hindsight",
                    f"pass {BEST!r}, an action, or a policy",
                )
        elif callable(comparator) or dimensions_of(comparator) > 1:
            if self.game.contexts is None:
                raise InvalidArgument(
                    "comparators", comparator, "the game has no contexts", "pass K probabilities"
                )
            self.contextual[i] = comparator
        else:
            self.fixed[i] = as_policy(comparator, self.game.n_actions)


@dataclass(frozen=True, eq=False)
class Totals:
    """The reward of a learner, of the behavior that it watched, of the comparators: of one run."""

    learner: float
    behavior: float
    comparators: Array


class ComparatorTotals:
    """What the behavior and the comparators would have earned."""

    def __init__(self, game: Game, comparators: Sequence[Comparator]) -> None:
        self.comparators = Comparators(game, comparators)
        self.behavior = 0.0

    def add(
        self, contexts: NDArray[Any], behavior: Array, rewards: Array, rounds: Integers
    ) -> None:
        """Count a stretch: row i of the rewards lasts that many rounds."""
        self.behavior += float((behavior * rewards * rounds[:, np.newaxis]).sum())
        self.comparators.add(contexts, rewards, rounds)

    def totals(self, earned: float) -> Totals:
        return Totals(float(earned), self.behavior, self.comparators.totals())
