"""Adversaries choose the rewards of a game.

An adversary gives the conditional means of the rewards of round t, one per action. With
`bernoulli` the rewards are 0 or 1 with these means; without it they are the means. In a linear
game it gives θ_t instead, and the means are ⟨θ_t, φ(X_t, ·)⟩.

The means of an oblivious adversary depend on t only. An adaptive adversary also sees every earlier
round: the learner's policy and drawn action, the behavior's action, the rewards. A new adversary is
a dataclass with `init`, `choose` and `observe`, in plain Python. To make it fast, add `compiled`
(the protocol `Compiled`), as `kernels/games.py` explains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.constraints import (
    COUNT,
    N_ACTIONS,
    TRUTH,
    Array,
    array,
    constrained,
    enforce,
    number,
)
from understudy.deprecated import old_module_names
from understudy.errors import InvalidArgument
from understudy.types import Integers, Round, saved, segments

__all__ = [
    "Adaptive",
    "Adversary",
    "Compiled",
    "Drifting",
    "Hiding",
    "Oblivious",
    "Piecewise",
    "Retaliating",
    "RewardTable",
    "drifting",
    "halves",
    "hiding",
    "retaliating",
    "stationary",
    "switching",
    "table",
]

VALUES = array("pass one number per action (or the entries of θ)")
MEAN = number(0.0, 1.0, "pass a mean reward in [0, 1]")


class Adversary(Protocol):
    """Chooses the means of round t from its memory of the earlier rounds."""

    @property
    def size(self) -> int: ...

    @property
    def bernoulli(self) -> bool: ...

    def init(self) -> Any: ...

    def choose(self, memory: Any, t: int) -> Array: ...

    def observe(self, memory: Any, played: Round) -> Any: ...


@runtime_checkable
class Compiled(Protocol):
    """An adaptive adversary whose games a compiled referee can play."""

    def compiled(self) -> tuple[Callable[..., Any], Array, Array]:
        """A loop made by `kernels.games.play`, the memory before round 1, and parameters."""
        ...


class Oblivious(ABC):
    """An adversary that fixes all means before the game: those of round t depend on t only."""

    bernoulli: bool
    rounds: int | None  # the longest game that it has means for; None for any length

    @property
    def size(self) -> int:
        return int(self.corners().shape[1])

    @abstractmethod
    def between(self, start: int, stop: int) -> Array:
        """Means of rounds start+1 … stop, one row each."""

    @abstractmethod
    def corners(self) -> Array:
        """Rows whose convex hull contains the means of all rounds; their range is checked."""

    def init(self) -> None:
        return None

    def choose(self, memory: None, t: int) -> Array:  # noqa: ARG002 - it has no memory
        return np.asarray(self.between(t - 1, t)[0])

    def observe(self, memory: None, played: Round) -> None:  # noqa: ARG002 - it ignores the rounds
        return memory


@saved
@dataclass(frozen=True, eq=False)
class Piecewise(Oblivious):
    """Constant means in each segment; segment i begins after `starts[i]` rounds."""

    values: Array
    starts: Integers
    bernoulli: bool = True
    rounds: int | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            values: ArrayLike,
            starts: ArrayLike,
            bernoulli: bool = True,
            rounds: int | None = None,
        ) -> None: ...

    CONSTRAINTS: ClassVar = {
        "values": array("pass one row of means per segment", dimensions=(2,)),
        "starts": array("pass the number of rounds before each segment", dtype=np.int64, low=0),
        "bernoulli": TRUTH,
    }

    def __post_init__(self) -> None:
        enforce(self)
        ordered = len(self.starts) > 0 and self.starts[0] == 0 and (np.diff(self.starts) > 0).all()
        if not ordered or len(self.starts) != len(self.values):
            raise InvalidArgument(
                "starts",
                self.starts,
                f"they must be {len(self.values)} increasing numbers, the first of them 0",
                "pass the number of rounds played before each segment begins",
            )

    def between(self, start: int, stop: int) -> Array:
        segment = np.searchsorted(self.starts, np.arange(start, stop), side="right") - 1
        return self.values[segment]

    def corners(self) -> Array:
        return self.values

    def pieces(self, start: int, stop: int) -> tuple[Array, Integers]:
        """Means of rounds start+1 … stop, one row per segment, and where each segment starts.

        >>> values, starts = switching(n_actions=2, rounds=10).pieces(3, 8)
        >>> values.tolist(), starts.tolist()
        ([[0.5, 0.8], [1.0, 0.5]], [0, 2])
        """
        return segments(self.values, self.starts, start, stop - start)


@saved
@dataclass(frozen=True, eq=False)
class Drifting(Oblivious):
    """Means that change in equal steps from `first` in round 1 to `last` in round `rounds`.

    >>> Drifting([0.0, 1.0], [1.0, 0.0], rounds=3).between(0, 3).tolist()
    [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    """

    first: Array
    last: Array
    rounds: int
    bernoulli: bool = True

    if TYPE_CHECKING:

        def __init__(
            self, first: ArrayLike, last: ArrayLike, rounds: int, bernoulli: bool = True
        ) -> None: ...

    CONSTRAINTS: ClassVar = {"first": VALUES, "last": VALUES, "rounds": COUNT, "bernoulli": TRUTH}

    def __post_init__(self) -> None:
        enforce(self)
        if self.first.shape != self.last.shape:
            raise InvalidArgument(
                "last", self.last.shape, f"first has shape {self.first.shape}", "pass equal lengths"
            )

    def between(self, start: int, stop: int) -> Array:
        progress = np.arange(start, stop)[:, np.newaxis] / max(self.rounds - 1, 1)
        return np.asarray((1 - progress) * self.first + progress * self.last)

    def corners(self) -> Array:
        return np.stack([self.first, self.last])


@saved(tag="Table")
@dataclass(frozen=True, eq=False)
class RewardTable(Oblivious):
    """Row t of a table (n, K) in round t: the rewards themselves, or means if `bernoulli`.

    >>> RewardTable([[0.0, 1.0], [0.25, 0.5]]).between(1, 2).tolist()
    [[0.25, 0.5]]
    """

    values: Array
    bernoulli: bool = False
    rounds: int = field(init=False)

    if TYPE_CHECKING:

        def __init__(self, values: ArrayLike, bernoulli: bool = False) -> None: ...

    CONSTRAINTS: ClassVar = {
        "values": array("pass one row of rewards per round, (n, K)", dimensions=(2,)),
        "bernoulli": TRUTH,
    }

    def __post_init__(self) -> None:
        enforce(self)
        object.__setattr__(self, "rounds", len(self.values))

    def between(self, start: int, stop: int) -> Array:
        return self.values[start:stop]

    def corners(self) -> Array:
        return self.values


@constrained(n_actions=N_ACTIONS, rounds=COUNT)
def switching(*, n_actions: int, rounds: int) -> Piecewise:
    """The paper's adversary: the last action is best (0.8) at first, the first one (1.0) later.

    All other means are 0.5; rewards are Bernoulli. The first half is t ≤ n/2.

    >>> switching(n_actions=3, rounds=4).between(0, 4).tolist()
    [[0.5, 0.5, 0.8], [0.5, 0.5, 0.8], [1.0, 0.5, 0.5], [1.0, 0.5, 0.5]]
    """
    values = np.full((2, n_actions), 0.5)
    values[0, -1], values[1, 0] = 0.8, 1.0
    return halves(values, rounds=rounds)


@constrained(rounds=COUNT)
def halves(values: ArrayLike, *, rounds: int) -> Piecewise:
    """The first row while t ≤ n/2, then the second row: means, or θ in a linear game.

    >>> halves([[0.0, 1.0], [1.0, 0.0]], rounds=3).between(0, 3).tolist()
    [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]
    """
    first, second = np.asarray(values)
    if rounds == 1:  # t = 1 is past n/2: there is no first half
        return Piecewise([second], [0], rounds=rounds)
    return Piecewise([first, second], [0, rounds // 2], rounds=rounds)


@constrained(means=VALUES)
def stationary(means: ArrayLike, *, bernoulli: bool = True) -> Piecewise:
    """The same means in every round.

    >>> stationary([0.1, 0.9]).between(7, 8).tolist()
    [[0.1, 0.9]]
    """
    return Piecewise(np.asarray(means)[np.newaxis], np.array([0]), bernoulli)


@dataclass(frozen=True)
class Adaptive(ABC):
    """An adversary that sees the earlier rounds; its means lie between `low` and `high`."""

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
    """Adaptive: lowers the means of the actions that the learner favored in the last round.

    An action's mean falls from `high` toward `low` with its probability in the learner's last
    policy; the action that the learner drew last has mean `low`.

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

    def choose(self, memory: tuple[Array, int | None], t: int) -> Array:  # noqa: ARG002 - its memory is enough
        policy, action = memory
        means = self.high - (self.high - self.low) * policy
        if action is not None:
            means[action] = self.low
        return np.asarray(means)

    def observe(self, memory: tuple[Array, int | None], played: Round) -> tuple[Array, int]:  # noqa: ARG002 - the last round is enough
        return played.policy, played.action

    def compiled(self) -> tuple[Callable[..., Any], Array, Array]:
        memory = np.zeros(self.n_actions + 1)  # the last policy and, at the end, the last action
        return kernels.games.retaliating, memory, np.array([self.low, self.high])


@saved
@dataclass(frozen=True)
class Hiding(Adaptive):
    """Adaptive: the action that the behavior has played least so far is best.

    >>> adversary = Hiding(n_actions=3)
    >>> adversary.choose(np.array([4, 1, 2]), 8).tolist()
    [0.5, 0.9, 0.5]
    """

    low: float = 0.5
    high: float = 0.9

    def init(self) -> Integers:
        return np.zeros(self.n_actions, dtype=np.int64)

    def choose(self, memory: Integers, t: int) -> Array:  # noqa: ARG002 - its memory is enough
        means = np.full(self.n_actions, self.low)
        means[np.argmin(memory)] = self.high
        return means

    def observe(self, memory: Integers, played: Round) -> Integers:
        counts = memory.copy()
        counts[played.behavior_action] += 1
        return counts

    def compiled(self) -> tuple[Callable[..., Any], Array, Array]:
        return kernels.games.hiding, np.zeros(self.n_actions), np.array([self.low, self.high])


# Lower case for all adversaries, as for the functions `switching` and `stationary`.
drifting = Drifting
table = RewardTable
retaliating = Retaliating
hiding = Hiding

__getattr__ = old_module_names("us.adversaries", {"Table": RewardTable})
