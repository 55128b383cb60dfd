"""The values that everything else is made of: feedback, logs, traces, and three protocols.

`Feedback` has no field for the learner's own reward. A learner that peeks cannot be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.constraints import (
    SMALLEST_PROBABILITY,
    Array,
    array,
    enforce,
    integer,
    number,
)
from understudy.errors import InvalidEvent

__all__ = ["Array", "Estimator", "Feedback", "Form", "Learner", "Log", "Round", "Trace", "saved"]

Integers = NDArray[np.int64]
State = TypeVar("State")
Class = TypeVar("Class", bound=type)

SAVED: dict[str, Any] = {}


def saved(cls: Class) -> Class:
    """Let snapshots hold instances of this dataclass, under its name.

    >>> saved(Feedback) is Feedback, SAVED.pop("Feedback") is Feedback
    (True, True)
    """
    SAVED[cls.__name__] = cls
    return cls


REWARD_REMEDY = (
    "rescale rewards to [0, 1] before learning; more must stay better, because pessimism "
    "turns into optimism for losses"
)
PROPENSITY_REMEDY = "pass the probability with which the behavior policy played this action"
FEATURES_REMEDY = "pass φ(X, ·) as (K, d), or the context as (p,) if each action has its own block"


@dataclass(frozen=True, eq=False)
class Feedback:
    """One round as the learner sees it: what the behavior policy played, and what it got.

    >>> Feedback(action=3, reward=1.0)
    Feedback(action=3, reward=1.0, propensity=None, features=None)
    >>> Feedback(action=0, reward=1.5)
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: reward = 1.5: it must be at most 1; rescale rewards ...
    """

    action: int
    reward: float
    propensity: float | None = None
    features: Array | None = None

    if TYPE_CHECKING:  # anything that NumPy takes for an array is converted

        def __init__(
            self,
            action: int,
            reward: float,
            propensity: float | None = None,
            features: ArrayLike | None = None,
        ) -> None: ...

    CONSTRAINTS: ClassVar = {
        "action": integer(0, "pass the 0-based index of the action that was played"),
        "reward": number(0.0, 1.0, REWARD_REMEDY),
        "propensity": number(SMALLEST_PROBABILITY, 1.0, PROPENSITY_REMEDY).optional(),
        "features": array(FEATURES_REMEDY, dimensions=(1, 2)).optional(),
    }

    def __post_init__(self) -> None:
        enforce(self)

    def as_log(self) -> Log:
        """The same round as a log of length one."""
        return Log(
            actions=np.array([self.action]),
            rewards=np.array([self.reward]),
            propensities=None if self.propensity is None else np.array([self.propensity]),
            features=None if self.features is None else self.features[np.newaxis],
        )


@dataclass(frozen=True, eq=False)
class Log:
    """Many rounds of feedback in the order in which they happened, as columns.

    `features` is (n, K, d): φ(X_t, ·) of every round; or (n, p), one context each.

    >>> log = Log(actions=[0, 2, 1], rewards=[1.0, 0.0, 0.5])
    >>> len(log), log[1:].actions.tolist()
    (3, [2, 1])
    """

    actions: Integers
    rewards: Array
    propensities: Array | None = None
    features: Array | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            actions: ArrayLike,
            rewards: ArrayLike,
            propensities: ArrayLike | None = None,
            features: ArrayLike | None = None,
        ) -> None: ...

    CONSTRAINTS: ClassVar = {
        "actions": array(
            "pass the 0-based indices of the played actions", dtype=np.int64, low=0, copy=False
        ),
        "rewards": array(REWARD_REMEDY, low=0.0, high=1.0, copy=False),
        "propensities": array(
            PROPENSITY_REMEDY, low=SMALLEST_PROBABILITY, high=1.0, copy=False
        ).optional(),
        "features": array(
            "pass (n, K, d), or contexts as (n, p)", dimensions=(2, 3), copy=False
        ).optional(),
    }

    def __post_init__(self) -> None:
        enforce(self)
        for name in ("rewards", "propensities", "features"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.actions):
                raise InvalidEvent(
                    name,
                    f"{len(column)} rows",
                    f"there are {len(self.actions)} actions",
                    "pass columns of one length, one row per round",
                )

    def __len__(self) -> int:
        return len(self.actions)

    def __getitem__(self, rounds: slice) -> Log:
        """A stretch of the log; its columns are views and are not checked again."""
        stretch = object.__new__(Log)
        for name in ("actions", "rewards", "propensities", "features"):
            column = getattr(self, name)
            object.__setattr__(stretch, name, None if column is None else column[rounds])
        return stretch

    def stretches(self, rounds: int) -> Iterator[Log]:
        """The log cut into pieces of at most `rounds` rounds."""
        return (self[start : start + rounds] for start in range(0, len(self), rounds))

    def events(self) -> Iterator[Feedback]:
        """The log one round at a time.

        >>> [event.action for event in Log(actions=[0, 2], rewards=[1.0, 0.0]).events()]
        [0, 2]
        """
        for t in range(len(self)):
            yield Feedback(
                action=int(self.actions[t]),
                reward=float(self.rewards[t]),
                propensity=None if self.propensities is None else float(self.propensities[t]),
                features=None if self.features is None else self.features[t],
            )


@dataclass(frozen=True, eq=False)
class Trace:
    """What a learner thought along a log.

    `probability[t]` is π_t(A^B_t), the probability that the learner gave to the action that the
    behavior policy played, before it learned from that round. `past_horizon` counts the rounds
    that were played after the horizon the learner was tuned for.
    """

    probability: Array
    past_horizon: int


@dataclass(frozen=True, eq=False)
class Round:
    """Everything that happened in round t: shown to adversaries afterwards, to learners never."""

    t: int
    context: NDArray[Any]
    features: Array | None
    means: Array
    rewards: Array
    policy: Array
    action: int
    behavior: Array
    behavior_action: int


@dataclass(frozen=True, eq=False)
class Form:
    """What an event must look like for a learner, and the check that it does.

    `support` marks the actions that the behavior can play at all; `features` is the shape of
    one round's features.
    """

    n_actions: int
    propensities: bool = False
    support: NDArray[np.bool_] | None = None
    features: tuple[int, ...] | None = None

    def check(self, log: Log) -> None:
        """Raise `InvalidEvent` at the first event that does not fit."""
        self._check_actions(log.actions)
        if self.propensities and log.propensities is None:
            raise InvalidEvent(
                "propensity",
                None,
                "the behavior is us.Logged, so every event must carry its own propensity",
                PROPENSITY_REMEDY,
            )
        if not self.propensities and log.propensities is not None:
            raise InvalidEvent(
                "propensity",
                log.propensities[:3],
                "this learner does not read it",
                "leave it out, or make the learner with us.Logged(n_actions=K) to use it",
            )
        self._check_features(log.features)

    def _check_actions(self, actions: Integers) -> None:
        if (actions >= self.n_actions).any():
            t = int(np.argmax(actions >= self.n_actions))
            raise InvalidEvent(
                f"action of event {t}",
                int(actions[t]),
                f"there are {self.n_actions} actions, counted from 0",
                f"pass an index from 0 to {self.n_actions - 1}",
            )
        if self.support is not None and not self.support[actions].all():
            t = int(np.argmin(self.support[actions]))
            raise InvalidEvent(
                f"action of event {t}",
                int(actions[t]),
                "the behavior policy plays it with probability 0, yet it was played",
                "correct pi_b, or use us.Logged or exp3_ix_unknown if it is not known",
            )

    def _check_features(self, features: Array | None) -> None:
        if self.features is None and features is not None:
            raise InvalidEvent(
                "features", features.shape, "this learner has no features", "leave them out"
            )
        if self.features is not None and (features is None or features.shape[1:] != self.features):
            found = None if features is None else features.shape[1:]
            raise InvalidEvent(
                "features",
                found,
                f"each round needs features of shape {self.features}",
                FEATURES_REMEDY,
            )


class Learner(Protocol[State]):
    """What can watch a behavior policy and say what it would do itself.

    A learner is a value and so is its state; all methods are pure and none draws a random
    number. `us.check_learner` tests the laws that every learner obeys.
    """

    @property
    def form(self) -> Form:
        """What an event must look like."""
        ...

    def init(self) -> State:
        """The state before round 1."""
        ...

    def policy(self, state: State, features: Array | None = None) -> Array:
        """π_t, the probability of each action in the next round."""
        ...

    def update(self, state: State, feedback: Feedback) -> State:
        """The state after one more round."""
        ...

    def replay(self, state: State, log: Log) -> tuple[State, Trace]:
        """The state after a whole log, bit for bit that of `update` on each event in turn."""
        ...

    def policies(self, state: State, log: Log) -> tuple[State, Array]:
        """Like `replay`, with every π_t in full: an array (n, K)."""
        ...

    def merge(self, first: State, second: State) -> State:
        """The state of a log whose two parts were learned apart, or `NotMergeable`."""
        ...

    def rounds(self, state: State) -> int:
        """How many rounds the state has seen."""
        ...

    def past_horizon(self, state: State) -> int:
        """How many of them came after the horizon that the learner was tuned for."""
        ...

    def validate(self, state: State) -> None:
        """Raise `InvalidArgument` if the state cannot be this learner's."""
        ...


class Estimator(Protocol):
    """Turns a stretch of log into gains: how much each played action's score grows.

    `memory` is what it needs to know of the past; `reads_past` says in words why states cannot
    be merged, or is None if the gain of an event depends on nothing but the event.
    """

    @property
    def form(self) -> Form: ...

    @property
    def reads_past(self) -> str | None: ...

    def init(self) -> Integers: ...

    def gains(self, memory: Integers, start: int, log: Log) -> tuple[Array, Integers]:
        """The gain of every event, when `start` rounds were played before the stretch."""
        ...


def rounds_past(horizon: int | None, rounds: int) -> int:
    """How many rounds lie past a horizon, if there is one.

    >>> rounds_past(10, 12), rounds_past(10, 7), rounds_past(None, 12)
    (2, 0, 0)
    """
    return 0 if horizon is None else max(0, rounds - horizon)


def frozen(values: NDArray[Any]) -> NDArray[Any]:
    """The same array, made read-only: for the fields of a state."""
    values.flags.writeable = False
    return values
