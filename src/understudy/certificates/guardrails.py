"""Guardrails: metrics that may not become worse by more than a margin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import (
    LARGEST_RATE,
    Array,
    Checked,
    instance_of,
    number,
    one_of,
    text,
    tuple_of,
)
from understudy.errors import InvalidArgument
from understudy.formatting import counted
from understudy.types import saved

HIGHER, LOWER = "higher", "lower"
LARGEST_VALUE = LARGEST_RATE  # of a metric: differences and products of such values are doubles


@saved
@dataclass(frozen=True)
class Guardrail(Checked):
    """A metric that may not become worse by more than a margin.

    Args:
        name: of the metric, such as that of its column.
        low: the smallest value that is possible.
        high: the largest value that is possible.
        better: which values are better, 'higher' or 'lower'.
        margin: the loss per round that is still harmless, in the units of the metric.

    >>> latency = Guardrail("latency_ms", low=0.0, high=2000.0, better="lower", margin=20.0)
    >>> latency.unit([0.0, 500.0, 3000.0]).tolist(), latency.unit_margin
    ([1.0, 0.75, nan], 0.01)
    """

    name: str
    low: float
    high: float
    better: str
    margin: float
    CONSTRAINTS: ClassVar = {
        "name": text("pass the name of the metric, such as 'latency_ms'"),
        "low": number(-LARGEST_VALUE, LARGEST_VALUE, "pass the smallest possible value"),
        "high": number(-LARGEST_VALUE, LARGEST_VALUE, "pass the largest possible value"),
        "better": one_of("pass 'higher' or 'lower'", HIGHER, LOWER),
        "margin": number(0.0, LARGEST_VALUE, "pass the loss that is still harmless, 0 or above"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            reason = f"it is not above the smallest one, {self.low:g}"
            raise InvalidArgument("high", self.high, reason, "pass the range of possible values")
        if self.margin >= self.high - self.low:
            reason = f"no loss is larger, since values are from {self.low:g} to {self.high:g}"
            raise InvalidArgument("margin", self.margin, reason, "pass a smaller margin")

    @property
    def unit_margin(self) -> float:
        """The margin as a share of the range."""
        return self.margin / (self.high - self.low)

    def unit(self, values: ArrayLike) -> Array:
        """The values as rewards in [0, 1], of which more is better; nan where one is unusable."""
        low, high = (self.high, self.low) if self.better == LOWER else (self.low, self.high)
        unit = (self.usable(values) - low) / (high - low)
        return np.asarray(np.clip(unit, 0.0, 1.0))  # rounding; nan stays

    def usable(self, values: ArrayLike) -> Array:
        """The values in the range, nan where one is out of it."""
        found = np.asarray(values, dtype=np.float64)
        return np.where((found >= self.low) & (found <= self.high), found, np.nan)

    def column(self, values: ArrayLike, rounds: int) -> Array:
        """`unit` of the values of so many rounds, or an error if they are none."""
        try:
            found = np.atleast_1d(np.asarray(values, dtype=np.float64))
        except (TypeError, ValueError, OverflowError):
            found = np.empty((0, 0))
        if found.shape != (rounds,):
            reason = f"it must be {counted(rounds, 'number')}, one per round"
            remedy = "pass the values of this metric, nan where one is missing"
            raise InvalidArgument(f"metrics[{self.name!r}]", values, reason, remedy)
        return self.unit(found)

    def gain(self, unit: float) -> float:
        """A gain on the scale of `unit` as a change of the metric, in its units.

        >>> Guardrail("latency_ms", 0.0, 2000.0, "lower", 20.0).gain(-0.01)
        20.0
        """
        return unit * (self.high - self.low) * (-1.0 if self.better == LOWER else 1.0)


METRICS = tuple_of(
    "pass guardrails, us.Guardrail(…)", instance_of("pass a us.Guardrail", Guardrail)
)
