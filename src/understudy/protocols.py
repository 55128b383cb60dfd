"""What a learner asks of an event, and what learners and estimators can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.constraints import Array, having
from understudy.errors import InvalidArgument, InvalidEvent
from understudy.types import FEATURES, PROPENSITY_REMEDY, Feedback, Integers, Log, Trace

__all__ = ["LEARNER", "Estimator", "EventSpec", "Learner", "not_a_state", "refuse_features"]

State = TypeVar("State")
LEARNER = having("pass a learner, such as us.exp3_ix(...)", "spec", "policies", "update")


@dataclass(frozen=True, eq=False)
class EventSpec:
    """What an event must look like for a learner, and the check that it does.

    `support` marks the actions that the behavior can play at all; `features` is the shape of
    one round's features. `unread` and `unseen` say what to do about propensities that nobody
    reads, and about an action that was played though its probability is 0.
    """

    n_actions: int
    propensities: bool = False
    support: NDArray[np.bool_] | None = None
    features: tuple[int, ...] | None = None
    unread: str = "leave it out, or make the learner with us.Logged(n_actions=K) to use it"
    unseen: str = "correct pi_b, or use us.Logged or exp3_ix_unknown if it is not known"

    def check(self, log: Log) -> None:
        """Raise `InvalidEvent` at the first event that does not fit."""
        if not isinstance(log, Log):
            raise InvalidEvent(
                "log", log, "it is not a us.Log", "pass us.Log(actions=..., rewards=...)"
            )
        self._check_actions(log.actions)
        if self.propensities and log.propensities is None:
            raise InvalidEvent(
                "propensity",
                None,
                "the behavior is us.Logged, so every event must carry its own propensity",
                f"{PROPENSITY_REMEDY}: us.Log(propensities=...), us.Feedback(propensity=...)",
            )
        if not self.propensities and log.propensities is not None:
            raise InvalidEvent(
                "propensity",
                log.propensities[:3],
                "it is not read here",
                self.unread,
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
                self.unseen,
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
                FEATURES.remedy,
            )


class Learner(Protocol[State]):
    """What can watch a behavior policy and say what it would do itself.

    A learner is a value and so is its state; all methods are pure and none draws a random
    number. `us.check_learner` tests the laws that every learner obeys.
    """

    @property
    def spec(self) -> EventSpec:
        """What an event must look like."""
        ...

    def init(self) -> State:
        """The state before round 1."""
        ...

    def policy(self, state: State, features: ArrayLike | None = None) -> Array:
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

    `memory` is what it needs to know of the past; `order_dependence` says in words why states
    cannot be merged, or is None if the gain of an event depends on nothing but the event.
    """

    @property
    def spec(self) -> EventSpec: ...

    @property
    def order_dependence(self) -> str | None: ...

    def init(self) -> Integers: ...

    def accepts_memory(self, memory: Integers, rounds: int) -> bool:
        """Whether this can be its memory after that many rounds."""
        ...

    def gains(self, memory: Integers, start: int, log: Log) -> tuple[Array, Integers]:
        """The gain of every event, when `start` rounds were played before the stretch."""
        ...


def refuse_features(features: object) -> None:
    """Raise `InvalidArgument` if a learner without contexts is asked about one.

    >>> refuse_features([1.0])
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: features = [1.0]: this learner ignores contexts; ...
    """
    if features is not None:
        raise InvalidArgument(
            "features", features, "this learner ignores contexts", "leave them out"
        )


def not_a_state(state: object, of: str) -> InvalidArgument:
    """The error for a state that cannot be this learner's.

    >>> print(not_a_state(None, of="3 actions"))
    state = None: it is not a state of this learner of 3 actions; start from learner.init(), ...
    """
    return InvalidArgument(
        "state",
        state,
        f"it is not a state of this learner of {of}",
        "start from learner.init(), or load the learner with its state",
    )
