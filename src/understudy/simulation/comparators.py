"""Comparators of a regret, and the rewards that they would have earned."""

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

BEST = "best"  # the best fixed action in hindsight, which may differ from run to run

Comparator = int | ArrayLike | ContextPolicy | str


@dataclass(frozen=True, eq=False)
class Totals:
    """Total rewards of one run: the learner's, the behavior's and each comparator's."""

    learner: float
    behavior: float
    comparators: Array


class ComparatorTotals:
    """Running totals of the behavior and of the comparators (actions, policies or `BEST`)."""

    def __init__(self, game: Game, comparators: Sequence[Comparator]) -> None:
        self.game = game
        self.fixed: dict[int, Array] = {}
        self.contextual: dict[int, ContextPolicy] = {}
        for i, comparator in enumerate(comparators):
            self._sort(i, comparator)
        self.behavior = 0.0
        self.by_action = np.zeros(game.n_actions)
        self.earned = np.zeros(len(comparators))  # only the contextual ones are filled in

    def add(
        self, contexts: NDArray[Any], behavior: Array, rewards: Array, rounds: Integers
    ) -> None:
        """Add a chunk. Row i of the rewards counts `rounds[i]` times; once if it has a context."""
        weights = rounds[:, np.newaxis]
        self.behavior += float((behavior * rewards * weights).sum())
        self.by_action += (rewards * weights).sum(axis=0)  # not `@`: BLAS may reorder sums
        for i, comparator in self.contextual.items():
            policy = rows(comparator, contexts, self.game.n_actions, "comparators")
            self.earned[i] += (policy * rewards).sum()

    def totals(self, earned: float) -> Totals:
        """The totals so far, beside what a learner earned."""
        comparators = np.full(len(self.earned), self.by_action.max())  # BEST; others overwrite it
        for i, policy in self.fixed.items():
            comparators[i] = (policy * self.by_action).sum()
        for i in self.contextual:
            comparators[i] = self.earned[i]
        return Totals(float(earned), self.behavior, comparators)

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
