"""Adversaries that watch: they are shown every round that was played, never the one to come.

A new one is a dataclass with `init`, `choose` and `observe`, in plain Python. `Compiled` is for
those that must be fast: `kernels/referee.py` says how.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from understudy import kernels
from understudy.constraints import N_ACTIONS, TRUTH, Array, enforce, number
from understudy.errors import InvalidArgument
from understudy.types import Integers, Round, saved

__all__ = ["Adaptive", "Adversary", "Compiled", "Hiding", "Retaliating"]

MEAN = number(0.0, 1.0, "pass a mean reward in [0, 1]")


class Adversary(Protocol):
    """Picks the means of round t from what it remembers of the rounds before."""

    @property
    def size(self) -> int: ...

    @property
    def bernoulli(self) -> bool: ...

    def init(self) -> Any: ...

    def choose(self, memory: Any, t: int) -> Array: ...

    def observe(self, memory: Any, played: Round) -> Any: ...


@runtime_checkable
class Compiled(Protocol):
    """An adaptive adversary whose game can also be played by a compiled referee."""

    def compiled(self) -> tuple[Callable[..., Any], Array, Array]:
        """`kernels.referee.play` with its two functions, its memory before round 1, parameters."""
        ...


@dataclass(frozen=True)
class Adaptive(ABC):
    """An adversary that watches, and pays between `low` and `high`."""

    n_actions: int
    low: float
    high: float
    bernoulli: bool = True
    CONSTRAINTS: ClassVar = {
        "n_actions": N_ACTIONS,
        "low": MEAN,
        "high": MEAN,
        "bernoulli": TRUTH,
    }

    def __post_init__(self) -> None:
        enforce(self)
        if self.low > self.high:
            raise InvalidArgument("low", self.low, f"high is {self.high:g}", "pass low <= high")

    @property
    def size(self) -> int:
        return self.n_actions

    @abstractmethod
    def init(self) -> Any: ...

    @abstractmethod
    def choose(self, memory: Any, t: int) -> Array: ...

    @abstractmethod
    def observe(self, memory: Any, played: Round) -> Any: ...


@saved
@dataclass(frozen=True)
class Retaliating(Adaptive):
    """Adaptive: punishes what the learner has just done.

    An action's mean falls from `high` toward `low` with the probability that the learner's last
    policy gave to it, and the action that the learner drew last pays `low`.

    >>> adversary = Retaliating(n_actions=2)
    >>> adversary.choose(adversary.init(), 1).tolist()
    [0.9, 0.9]
    >>> adversary.choose((np.array([0.5, 0.5]), 0), 2).tolist()
    [0.1, 0.5]
    """

    low: float = 0.1
    high: float = 0.9

    def init(self) -> tuple[Array, int | None]:
        return np.zeros(self.n_actions), None

    def choose(self, memory: tuple[Array, int | None], t: int) -> Array:  # noqa: ARG002 - it remembers
        policy, action = memory
        means = self.high - (self.high - self.low) * policy
        if action is not None:
            means[action] = self.low
        return np.asarray(means)

    def observe(self, memory: tuple[Array, int | None], played: Round) -> tuple[Array, int]:  # noqa: ARG002 - the last round is all
        return played.policy, played.action

    def compiled(self) -> tuple[Callable[..., Any], Array, Array]:
        memory = np.zeros(self.n_actions + 1)  # the last policy, then the last action
        return kernels.referee.retaliating, memory, np.array([self.low, self.high])


@saved
@dataclass(frozen=True)
class Hiding(Adaptive):
    """Adaptive: hides the best reward on the action that the behavior has played least so far.

    >>> adversary = Hiding(n_actions=3)
    >>> adversary.choose(np.array([4, 1, 2]), 8).tolist()
    [0.5, 0.9, 0.5]
    """

    low: float = 0.5
    high: float = 0.9

    def init(self) -> Integers:
        return np.zeros(self.n_actions, dtype=np.int64)

    def choose(self, memory: Integers, t: int) -> Array:  # noqa: ARG002 - it remembers
        means = np.full(self.n_actions, self.low)
        means[np.argmin(memory)] = self.high
        return means

    def observe(self, memory: Integers, played: Round) -> Integers:
        counts = memory.copy()
        counts[played.behavior_action] += 1
        return counts

    def compiled(self) -> tuple[Callable[..., Any], Array, Array]:
        return kernels.referee.hiding, np.zeros(self.n_actions), np.array([self.low, self.high])
