"""γ_t, the implicit exploration of round t = 1, 2, …: a number, an array, or a function of t."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from understudy.constraints import (
    N_ACTIONS,
    NONNEGATIVE,
    RATE,
    Array,
    Constraint,
    Refused,
    array,
    dimensions_of,
    enforce,
)
from understudy.errors import InvalidArgument
from understudy.types import Integers, saved

__all__ = ["GAMMA", "Constant", "FunctionOfTime", "HoeffdingWidth", "Schedule", "Tabulated"]


class Schedule(Protocol):
    """γ_t for an array of rounds t ≥ 1; `varies` if γ_t depends on t."""

    @property
    def varies(self) -> bool: ...

    def __call__(self, t: Integers) -> Array: ...


@saved
@dataclass(frozen=True)
class Constant:
    """γ_t = γ.

    >>> Constant(0.1)(np.array([1, 2])).tolist()
    [0.1, 0.1]
    """

    gamma: float
    CONSTRAINTS: ClassVar = {"gamma": NONNEGATIVE}
    varies: ClassVar[bool] = False

    def __post_init__(self) -> None:
        enforce(self)

    def __call__(self, t: Integers) -> Array:
        return np.full(len(t), self.gamma)


@saved
@dataclass(frozen=True, eq=False)
class Tabulated:
    """γ_t is the t-th entry of an array.

    >>> Tabulated([0.3, 0.2, 0.1])(np.array([3, 1])).tolist()
    [0.1, 0.3]
    """

    gamma: Array
    CONSTRAINTS: ClassVar = {"gamma": array("pass γ_1, γ_2, … ≥ 0", low=0.0)}
    varies: ClassVar[bool] = True

    def __post_init__(self) -> None:
        enforce(self)

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
class HoeffdingWidth:
    r"""Theorem 2's $\gamma_1 = 1 + \eta/2$, $\gamma_t = \eta/2 + \sqrt{\log(K(t-1)^2)/(2t-2)}$.

    >>> HoeffdingWidth(eta=0.1, n_actions=10)(np.array([1, 2, 101])).round(4).tolist()
    [1.05, 1.123, 0.2899]
    """

    eta: float
    n_actions: int
    CONSTRAINTS: ClassVar = {"eta": RATE, "n_actions": N_ACTIONS}
    varies: ClassVar[bool] = True

    def __post_init__(self) -> None:
        enforce(self)

    def __call__(self, t: Integers) -> Array:
        past = np.maximum(t - 1, 1).astype(np.float64)
        width = np.sqrt((math.log(self.n_actions) + 2.0 * np.log(past)) / (2.0 * past))
        return np.asarray(self.eta / 2.0 + np.where(t == 1, 1.0, width), dtype=np.float64)


def _schedule(value: Any) -> Schedule:
    if isinstance(value, Constant | Tabulated | HoeffdingWidth | FunctionOfTime):
        return value
    if callable(value):
        return FunctionOfTime(value)
    if dimensions_of(value) == 0:
        return Constant(NONNEGATIVE.parse(value))
    try:
        return Tabulated(value)
    except InvalidArgument as refusal:
        raise Refused(refusal.reason) from None


GAMMA = Constraint(
    "pass γ ≥ 0 as a number, an array with one entry per round, or a function of the round t ≥ 1",
    _schedule,
    (-0.1, math.nan, math.inf, "small", True, [0.1, -0.1], [math.nan], [[0.1]], [None]),
)
