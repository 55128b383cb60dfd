"""Schedules over rounds t = 1, 2, …: γ_t, and the rate η_t of a learner without a horizon.

γ_t is a number, an array, or a function of t. A rate that falls with time is held until t has grown
by 5 %, so that weights are seldom computed again: `CHANGES` are the rounds in which it moves. This
costs at most 2.5 % of a bound, √1.05 (`theory/rates.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from understudy.constraints import (
    LARGEST_COUNT,
    N_ACTIONS,
    NONNEGATIVE,
    RATE,
    Array,
    Checked,
    Constraint,
    ConstraintViolation,
    array,
    dimensions_of,
    having,
)
from understudy.deprecated import old_module_names
from understudy.errors import InvalidArgument
from understudy.types import Integers, chunks, read_only, saved


def geometric_grid(percent: int) -> Integers:
    """Rounds 1, 2, …, each at least `percent` % after the one before, up to the largest count.

    >>> geometric_grid(5)[15:24].tolist()
    [16, 17, 18, 19, 20, 21, 23, 25, 27]
    """
    rounds = [1]
    while rounds[-1] <= LARGEST_COUNT:
        t = rounds[-1]
        rounds.append(max(t + 1, -(-t * (100 + percent) // 100)))  # whole numbers, rounded up
    return read_only(np.array(rounds))


CHANGES: Integers = geometric_grid(5)


def last_change(t: Integers) -> Integers:
    """The round in which the rate of round t was set: at most 5 % before t.

    >>> last_change(np.array([1, 2, 19, 100, 104, 10**6])).tolist()
    [1, 2, 19, 97, 102, 975206]
    """
    if t.size > 1:  # mostly one rate holds in all of them: it is enough to look at both ends
        ends = np.searchsorted(CHANGES, [t.min(), t.max()], side="right")
        if ends[0] == ends[1]:
            return np.full(t.shape, CHANGES[ends[0] - 1])
    return CHANGES[np.searchsorted(CHANGES, t, side="right") - 1]


def chunks_of_constant_rate(before: int, rounds: int, size: int) -> Iterator[tuple[int, int]]:
    """`chunks` of the rounds after `before` others, in each of which a held rate stays.

    >>> list(chunks_of_constant_rate(before=98, rounds=10, size=4))
    [(0, 3), (3, 4), (7, 2), (9, 1)]
    """
    moves = CHANGES[np.searchsorted(CHANGES, before + 1, side="right") :] - 1 - before
    edges = [0, *moves[moves < rounds].tolist(), rounds]
    for first, last in pairwise(edges):
        for start, count in chunks(last - first, size):
            yield first + start, count


def rounds_at_each_rate(horizon: int) -> tuple[Integers, Integers]:
    """The rounds up to n in which a held rate moves, and how long it then stays.

    >>> [part[-3:].tolist() for part in rounds_at_each_rate(100)]
    [[87, 92, 97], [5, 5, 4]]
    """
    moves = CHANGES[horizon >= CHANGES]
    return moves, np.diff(np.append(moves, horizon + 1))


class Schedule(Protocol):
    """γ_t for an array of rounds t ≥ 1; `varies` if γ_t depends on t."""

    @property
    def varies(self) -> bool: ...

    def __call__(self, t: Integers) -> Array: ...


@saved
@dataclass(frozen=True)
class Constant(Checked):
    """γ_t = γ.

    >>> Constant(0.1)(np.array([1, 2])).tolist()
    [0.1, 0.1]
    """

    gamma: float
    CONSTRAINTS: ClassVar = {"gamma": NONNEGATIVE}
    varies: ClassVar[bool] = False

    def __call__(self, t: Integers) -> Array:
        return np.full(len(t), self.gamma)


@saved
@dataclass(frozen=True, eq=False)
class Tabulated(Checked):
    """γ_t is the t-th entry of an array.

    >>> Tabulated([0.3, 0.2, 0.1])(np.array([3, 1])).tolist()
    [0.1, 0.3]
    """

    gamma: Array
    CONSTRAINTS: ClassVar = {"gamma": array("pass γ_1, γ_2, … ≥ 0", low=0.0)}
    varies: ClassVar[bool] = True

    def __call__(self, t: Integers) -> Array:
        if len(t) and t.max() > len(self.gamma):
            raise InvalidArgument(
                "gamma",
                f"an array of {len(self.gamma)}",
                f"round {int(t.max())} has no entry",
                "pass one entry per round, or a function of t",
            )
        return self.gamma[t - 1]


@dataclass(frozen=True)
class FunctionOfTime:
    """γ_t = f(t), with f any function of a whole number t ≥ 1. JSON cannot hold it.

    >>> FunctionOfTime(lambda t: 1 / t)(np.array([1, 4])).tolist()
    [1.0, 0.25]
    """

    gamma: Callable[[int], float]
    varies: ClassVar[bool] = True

    def __call__(self, t: Integers) -> Array:
        values = [NONNEGATIVE(f"gamma({int(k)})", self.gamma(int(k))) for k in t]
        return np.array(values, dtype=np.float64)


@saved
@dataclass(frozen=True)
class Decaying(Checked):
    r"""$\eta_t = s / \sqrt{t'}$, with t' the round in which the rate was set, at most 5 % before t.

    >>> Decaying(scale=2.0)(np.array([1, 4, 16])).tolist()
    [2.0, 1.0, 0.5]
    """

    scale: float
    CONSTRAINTS: ClassVar = {"scale": RATE}
    varies: ClassVar[bool] = True

    def __call__(self, t: Integers) -> Array:
        return np.asarray(self.scale / np.sqrt(last_change(t)))


Rate = float | Decaying


def rate_at(eta: Rate, t: Integers) -> Array | float:
    """η_t of a rate that stays, or of one that decays."""
    return eta if isinstance(eta, float) else eta(t)


def _rate(value: Any) -> Rate:
    return value if isinstance(value, Decaying) else RATE.parse(value)


ETA = Constraint("pass a positive number, or a Decaying rate", _rate, RATE.wrong)


@saved
@dataclass(frozen=True)
class HalfOf(Checked):
    """γ_t = η_t/2, the least implicit exploration that keeps a decaying rate pessimistic.

    >>> HalfOf(Decaying(scale=2.0))(np.array([1, 4])).tolist()
    [1.0, 0.5]
    """

    eta: Decaying
    CONSTRAINTS: ClassVar = {
        "eta": having("pass a Decaying rate; half of a number is a Constant", "scale")
    }
    varies: ClassVar[bool] = True

    def __call__(self, t: Integers) -> Array:
        return self.eta(t) / 2.0


@saved
@dataclass(frozen=True)
class HoeffdingWidth(Checked):
    r"""Theorem 2's $\gamma_1 = 1 + \eta/2$, $\gamma_t = \eta/2 + \sqrt{\log(K(t-1)^2)/(2t-2)}$.

    >>> HoeffdingWidth(eta=0.1, n_actions=10)(np.array([1, 2, 101])).round(4).tolist()
    [1.05, 1.123, 0.2899]
    """

    eta: Rate
    n_actions: int
    CONSTRAINTS: ClassVar = {"eta": ETA, "n_actions": N_ACTIONS}
    varies: ClassVar[bool] = True

    def __call__(self, t: Integers) -> Array:
        past = np.maximum(t - 1, 1).astype(np.float64)
        width = np.sqrt((math.log(self.n_actions) + 2.0 * np.log(past)) / (2.0 * past))
        half = rate_at(self.eta, t) / 2.0
        return np.asarray(half + np.where(t == 1, 1.0, width), dtype=np.float64)


def _schedule(value: Any) -> Schedule:
    if isinstance(value, Constant | Tabulated | HalfOf | HoeffdingWidth | FunctionOfTime):
        return value
    if callable(value):
        return FunctionOfTime(value)
    if dimensions_of(value) == 0:
        return Constant(NONNEGATIVE.parse(value))
    try:
        return Tabulated(value)
    except InvalidArgument as refusal:
        raise ConstraintViolation(refusal.reason) from None


GAMMA = Constraint(
    "pass γ ≥ 0 as a number, an array with one entry per round, or a function of the round t ≥ 1",
    _schedule,
    (-0.1, math.nan, math.inf, "small", True, [0.1, -0.1], [math.nan], [[0.1]], [None]),
)


def refuse_coverage_beside_eta(coverage: float | None) -> None:
    """Raise `InvalidArgument` if a coverage was given together with a rate."""
    if coverage is not None:
        raise InvalidArgument(
            "coverage", coverage, "eta fixes the rate already", "pass one of the two"
        )


if not TYPE_CHECKING:
    __getattr__ = old_module_names(
        __name__,
        {
            "held": last_change,
            "spaced": geometric_grid,
            "cut_where_rates_move": chunks_of_constant_rate,
        },
    )
