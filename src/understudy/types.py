"""Feedback, logs, traces and rounds, and the arrays of a chunk of rounds.

`Feedback` has no field for the learner's own reward, so that no learner can read it.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.constraints import (
    COUNT,
    SMALLEST_PROBABILITY,
    Array,
    Checked,
    Constraint,
    ConstraintViolation,
    array,
    enforce,
    integer,
    number,
)
from understudy.errors import InvalidArgument, InvalidEvent

Integers = NDArray[np.int64]
Class = TypeVar("Class", bound=type)

SAVED: dict[str, Any] = {}
ADDED, ABSENT = "added", "absent"  # marks of such a field in its metadata


@overload
def saved(cls: Class) -> Class: ...


@overload
def saved(*, tag: str) -> Callable[[Class], Class]: ...


def saved(cls: Class | None = None, *, tag: str | None = None) -> Any:
    """Let snapshots hold instances of this dataclass, under its name or under `tag`.

    Files store the tag as `kind`, so a renamed class keeps its old name as its tag.

    >>> saved(Feedback) is Feedback, SAVED.pop("Feedback") is Feedback
    (True, True)
    >>> saved(tag="Event")(Feedback) is SAVED.pop("Event")
    True
    """
    if cls is None:
        return functools.partial(saved, tag=tag)
    tag = cls.__name__ if tag is None else tag
    taken = SAVED.setdefault(tag, cls)
    if (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InvalidArgument(
            "cls", cls, f"snapshots know {taken} by this name already", "choose another name"
        )
    SAVED[tag] = cls
    return cls


def saved_tag(cls: type) -> str | None:
    """The tag of a class that was marked `@saved` itself, or None."""
    return next((tag for tag, known in SAVED.items() if known is cls), None)


def added(default: Any, absent: Any = None) -> Any:
    """A field that older files do not have: it is saved only where it differs from `absent`.

    That is the value of the older files; left out, the default. So a value that an older release
    saved has the same text now.
    """
    meant = default if absent is None else absent
    return field(default=default, metadata={ADDED: True, ABSENT: meant})


REWARD_REMEDY = (
    "rescale rewards to [0, 1] before learning; more must stay better, because pessimism "
    "turns into optimism for losses"
)
PROPENSITY_REMEDY = "pass the probability with which the behavior policy played this action"
FEATURES = array(
    "pass φ(X, ·) as (K, d), or the context as (p,) if each action has its own block",
    dimensions=(1, 2),
)
CONTEXTS = array("pass φ(x, ·) as (n, K, d), or contexts as (n, p)", dimensions=(2, 3))
VECTORS_REMEDY = (
    "pass the propensities of all actions: they sum to 1, and that of the logged action is the "
    "event's propensity"
)
COLUMNS = ("actions", "rewards", "propensities", "features", "experts", "propensity_vectors")
EXPERTS_REMEDY = (
    "pass the probability of the logged action under each outside expert, an array in the order of "
    "`learner.spec.columns`"
)


def _experts(dimensions: int) -> Constraint:
    """Probabilities of outside experts in their order; columns with names may have another one."""
    numbers = array(EXPERTS_REMEDY, dimensions=(dimensions,), low=0.0, high=1.0)

    def parse(value: Any) -> Array:
        if isinstance(value, Mapping) or hasattr(value, "columns"):
            raise ConstraintViolation("its columns have names, and a log goes by their order")
        return np.asarray(numbers.parse(value))

    return Constraint(EXPERTS_REMEDY, parse, numbers.wrong)


EXPERTS_OF_ONE, EXPERTS_OF_MANY = _experts(1), _experts(2)
BLOCK = 1 << 16  # numbers in the table of one chunk: half a megabyte, which fits the cache


@dataclass(frozen=True, eq=False)
class Feedback(Checked):
    """One round as the learner sees it: the action of the behavior policy, and its reward.

    >>> Feedback(action=3, reward=1.0)
    Feedback(action=3, reward=1.0, ...)
    >>> Feedback(action=0, reward=1.5)
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: reward = 1.5: it must be at most 1; rescale rewards ...
    """

    action: int
    reward: float
    propensity: float | None = None
    features: Array | None = None
    experts: Array | None = None
    propensity_vector: Array | None = None

    if TYPE_CHECKING:  # anything that NumPy takes for an array is converted

        def __init__(
            self,
            action: SupportsIndex,
            reward: float,
            propensity: float | None = None,
            features: ArrayLike | None = None,
            experts: ArrayLike | None = None,
            *,
            propensity_vector: ArrayLike | None = None,
        ) -> None: ...

    CONSTRAINTS: ClassVar = {
        "action": integer(0, "pass the 0-based index of the action that was played"),
        "reward": number(0.0, 1.0, REWARD_REMEDY),
        "propensity": number(SMALLEST_PROBABILITY, 1.0, PROPENSITY_REMEDY).optional(),
        "features": FEATURES.optional(),
        "experts": EXPERTS_OF_ONE.optional(),
        "propensity_vector": array(VECTORS_REMEDY, low=0.0, high=1.0).optional(),
    }


@dataclass(frozen=True, eq=False)
class Log:
    """Many rounds of feedback in the order in which they happened, one column per field.

    `features` is (n, K, d): φ(X_t, ·) of every round; or (n, p), one context each. `experts` is
    (n, E): the probability of the logged action under E policies of your own, for `us.exp4`.
    `propensity_vectors` is (n, K): the propensities of all actions, which sharpen certificates.

    >>> log = Log(actions=[0, 2, 1], rewards=[1.0, 0.0, 0.5])
    >>> len(log), log[1:].actions.tolist()
    (3, [2, 1])
    """

    actions: Integers
    rewards: Array
    propensities: Array | None = None
    features: Array | None = None
    experts: Array | None = None
    propensity_vectors: Array | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            actions: ArrayLike,
            rewards: ArrayLike,
            propensities: ArrayLike | None = None,
            features: ArrayLike | None = None,
            experts: ArrayLike | None = None,
            *,
            propensity_vectors: ArrayLike | None = None,
        ) -> None: ...

    CONSTRAINTS: ClassVar = {
        "actions": array("pass the 0-based indices of the played actions", dtype=np.int64, low=0),
        "rewards": array(REWARD_REMEDY, low=0.0, high=1.0),
        "propensities": array(PROPENSITY_REMEDY, low=SMALLEST_PROBABILITY, high=1.0).optional(),
        "features": array("pass (n, K, d), or contexts as (n, p)", dimensions=(2, 3)).optional(),
        "experts": EXPERTS_OF_MANY.optional(),
        "propensity_vectors": array(VECTORS_REMEDY, dimensions=(2,), low=0.0, high=1.0).optional(),
    }

    def __post_init__(self) -> None:
        enforce(self)
        for name in COLUMNS:
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
        """A part of the log; its columns are views and are not checked again."""
        if not isinstance(rounds, slice):
            raise InvalidArgument(
                "log[...]",
                rounds,
                "only parts log[a:b] can be taken",
                "iterate over log.events()",
            )
        columns = [getattr(self, name) for name in COLUMNS]
        # A list: tuples made of a generator would pile up in the interpreter's list of free ones.
        return self._of(*[None if column is None else column[rounds] for column in columns])

    def visible(
        self, *, propensities: bool, features: bool, experts: bool = False, vectors: bool = False
    ) -> Log:
        """The log without the columns that a learner does not read.

        >>> log = Log(actions=[0], rewards=[1.0], propensities=[0.5])
        >>> log.visible(propensities=False, features=False).propensities is None
        True
        """
        return self._of(
            self.actions,
            self.rewards,
            self.propensities if propensities else None,
            self.features if features else None,
            self.experts if experts else None,
            self.propensity_vectors if vectors else None,
        )

    def with_features(self, features: Array) -> Log:
        """The log with other features of its rounds."""
        columns = [getattr(self, name) for name in COLUMNS]
        columns[COLUMNS.index("features")] = features
        return self._of(*columns)

    def take(self, rows: Integers) -> Log:
        """The rounds at these places.

        >>> Log(actions=[0, 1, 1], rewards=[1.0, 0.0, 1.0]).take(np.array([0, 2])).actions.tolist()
        [0, 1]
        """
        columns = (getattr(self, name) for name in COLUMNS)
        return self._of(*(None if column is None else column[rows] for column in columns))

    def with_rewards(self, rewards: Array) -> Log:
        """The log with other rewards of its rounds, which were checked before."""
        columns = [getattr(self, name) for name in COLUMNS]
        columns[COLUMNS.index("rewards")] = rewards
        return self._of(*columns)

    @staticmethod
    def _of(*columns: NDArray[Any] | None) -> Log:
        """A log of columns that were checked before, in their order; the rest are None."""
        log = object.__new__(Log)
        for name, column in zip_longest(COLUMNS, columns):
            object.__setattr__(log, name, column)
        return log

    def stretches(self, rounds: int) -> Iterator[Log]:
        """The log in chunks of at most `rounds` rounds.

        >>> [len(part) for part in Log(actions=[0, 2, 1], rewards=[1.0, 0.0, 0.5]).stretches(2)]
        [2, 1]
        """
        size = COUNT("rounds", rounds)
        return (self[start : start + size] for start in range(0, len(self), size))

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
                experts=None if self.experts is None else self.experts[t],
                propensity_vector=(
                    None if self.propensity_vectors is None else self.propensity_vectors[t]
                ),
            )


@dataclass(frozen=True, eq=False)
class Trace:
    """Per round, the probability that the learner gave to the logged action before it updated.

    `probability[t]` is π_t(A^B_t). `past_horizon` counts the rounds after the horizon that the
    learner was tuned for. `n_actions` is K.

    For every action a, π_t(a) v(a) is at most `largest[t]` + `follows[t]` π_B(a) v(a), where v is
    `inverse`, 1/q of the learner's behavior, or 1 if that is None. Certificates center their bets
    by it. `largest` is None if that is not known, `follows` if it is 0.
    """

    probability: Array
    past_horizon: int
    n_actions: int
    largest: Array | None = None
    follows: Array | None = None
    inverse: Array | None = None

    def __len__(self) -> int:
        return len(self.probability)

    def __getitem__(self, rounds: slice) -> Trace:
        """The trace of a part of the rounds; its columns are views.

        >>> Trace(np.array([0.5, 0.25]), 0, 2)[1:].probability.tolist()
        [0.25]
        """
        columns = (self.probability, self.largest, self.follows)
        probability, largest, follows = (
            None if column is None else column[rounds] for column in columns
        )
        own = range(len(self))[rounds]
        ascending = own if own.step > 0 else own[::-1]
        horizon = len(self) - self.past_horizon  # the rounds past the horizon are the last
        return Trace(
            probability,  # type: ignore[arg-type] # it is never None
            len(own) - bisect_left(ascending, horizon),
            self.n_actions,
            largest,
            follows,
            self.inverse,
        )


@dataclass(frozen=True, eq=False)
class Round:
    """All that happened in round t; adversaries see it afterwards, learners never."""

    t: int
    context: NDArray[Any]
    features: Array | None
    means: Array
    rewards: Array
    policy: Array
    action: int
    behavior: Array
    behavior_action: int


def one_event(feedback: Feedback) -> Log:
    """A single round as a log of length one."""
    if not isinstance(feedback, Feedback):
        raise InvalidEvent(
            "feedback",
            feedback,
            "it is not a us.Feedback",
            "pass us.Feedback(action=..., reward=...); a us.Log goes to learner.replay",
        )
    return Log._of(  # checked already, one value at a time
        np.array([feedback.action]),
        np.array([feedback.reward]),
        None if feedback.propensity is None else np.array([feedback.propensity]),
        None if feedback.features is None else feedback.features[np.newaxis],
        None if feedback.experts is None else feedback.experts[np.newaxis],
        None if feedback.propensity_vector is None else feedback.propensity_vector[np.newaxis],
    )


def rounds_per_chunk(width: int) -> int:
    """How many rounds to treat at a time if each needs a table row of that many numbers."""
    return max(1, BLOCK // width)


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """The same array, made read-only: for the fields of a state."""
    values.flags.writeable = False
    return values


def kernel_view(values: NDArray[Any]) -> NDArray[Any]:
    """A contiguous read-only view: the one layout of kernel inputs, so that each compiles once."""
    return read_only(np.ascontiguousarray(values).view())


def chunks(rounds: int, size: int) -> Iterator[tuple[int, int]]:
    """Start and length of each chunk of at most `size` rounds.

    >>> list(chunks(5, size=2))
    [(0, 2), (2, 2), (4, 1)]
    """
    return ((start, min(size, rounds - start)) for start in range(0, rounds, size))


def durations(starts: Integers, rounds: int) -> Integers:
    """How long each row holds, if row i holds from round starts[i] on."""
    return np.append(starts[1:], rounds) - starts


def segments(rows: Array, starts: Integers, first: int, rounds: int) -> tuple[Array, Integers]:
    """The rows that hold in a part of the rounds, and from which of its rounds on.

    >>> rows, starts = segments(np.array([[0.1], [0.2], [0.3]]), np.array([0, 2, 4]), 1, 3)
    >>> rows.tolist(), starts.tolist()
    ([[0.1], [0.2]], [0, 1])
    """
    low = int(np.searchsorted(starts, first, side="right")) - 1
    high = int(np.searchsorted(starts, first + rounds, side="left"))
    return rows[low:high], np.maximum(starts[low:high] - first, 0)


def expand(rows: Array, starts: Integers, rounds: int) -> Array:
    """A row per round, where row i holds from round starts[i] on."""
    return np.repeat(rows, durations(starts, rounds), axis=0)
