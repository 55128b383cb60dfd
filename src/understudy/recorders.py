"""Recorders: what a caller wants to know of the policies π_t along a log.

`Learner.advance` shows a recorder every π_t before it learns from round t, in the order of rounds.
A learner in Python calls `add` with policies. A compiled learner runs the kernel that `kernel`
names, which fills or reads the arrays of `kernel_arguments`: so that the probability of the logged
action, all that `replay` needs, costs O(1) a round and not O(K).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from understudy.constraints import Array
from understudy.types import Integers, expand, kernel_view, segments


class Recorder:
    """Records nothing: for `update`, which wants the next state alone."""

    wants_policies: ClassVar[bool] = False
    one_sum: ClassVar[bool] = False  # its bits depend on how a learner cuts the log into chunks
    kernel: ClassVar[str] = "replay"

    def __init__(self) -> None:
        self.recorded = 0

    def add(self, policies: Array) -> None:
        """Record the policy of the next round, (K,), or those of the next rounds, (n, K)."""

    def kernel_arguments(self, rounds: int) -> tuple[Array, ...]:
        """The arrays of the next rounds that the kernel takes."""
        return (np.empty(rounds),)

    def add_found(self, found: Any) -> None:
        """Record what the kernel returned for these rounds beside the state."""

    def _next(self, rounds: int) -> slice:
        start = self.recorded
        self.recorded += rounds
        return slice(start, start + rounds)


class ActionProbabilities(Recorder):
    """π_t(A_t), the probability of the logged action, in `probability`.

    >>> recorder = ActionProbabilities(np.array([1, 0]))
    >>> recorder.add(np.array([[0.75, 0.25], [0.5, 0.5]]))
    >>> recorder.probability.tolist()
    [0.25, 0.5]
    """

    wants_policies = True

    def __init__(self, actions: Integers) -> None:
        super().__init__()
        self.actions = actions
        self.probability = np.empty(len(actions))

    def add(self, policies: Array) -> None:
        rows = np.atleast_2d(policies)
        part = self._next(len(rows))
        self.probability[part] = rows[np.arange(len(rows)), self.actions[part]]

    def kernel_arguments(self, rounds: int) -> tuple[Array, ...]:
        return (self.probability[self._next(rounds)],)


class AllPolicies(Recorder):
    """Every π_t in full, in `policies`, (n, K)."""

    wants_policies = True
    kernel = "policies"

    def __init__(self, rounds: int, n_actions: int) -> None:
        super().__init__()
        self.policies = np.empty((rounds, n_actions))

    def add(self, policies: Array) -> None:
        rows = np.atleast_2d(policies)
        part = self._next(len(rows))
        if rows.shape == self.policies.shape:  # all rounds at once: no copy
            self.policies = rows
        else:
            self.policies[part] = rows

    def kernel_arguments(self, rounds: int) -> tuple[Array, ...]:
        return (self.policies[self._next(rounds)],)


class ExpectedReward(Recorder):
    """Σ_t ⟨π_t, r_t⟩, in `total`; row i of `rewards` holds from round starts[i] on.

    >>> recorder = ExpectedReward(np.array([[0.0, 1.0]]), np.array([0]))
    >>> recorder.add(np.array([[0.75, 0.25], [0.5, 0.5]]))
    >>> recorder.total
    0.75
    """

    wants_policies = True
    one_sum = True
    kernel = "expected_reward"

    def __init__(self, rewards: Array, starts: Integers) -> None:
        super().__init__()
        self.rewards, self.starts = rewards, starts
        self.total = 0.0

    def add(self, policies: Array) -> None:
        rows = np.atleast_2d(policies)
        rewards, starts = self._rewards_of(len(rows))
        self.total += float((rows * expand(rewards, starts, len(rows))).sum())

    def kernel_arguments(self, rounds: int) -> tuple[Array, ...]:
        rewards, starts = self._rewards_of(rounds)
        return kernel_view(rewards), kernel_view(starts)

    def add_found(self, found: Any) -> None:
        self.total += float(found)

    def _rewards_of(self, rounds: int) -> tuple[Array, Integers]:
        part = self._next(rounds)
        return segments(self.rewards, self.starts, part.start, rounds)
