"""From values to the coordinates of a chart, and the values that its axes name."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Scale", "decades", "fitted", "round_values"]

MARGIN = 0.06  # of the range, left free below and above
NARROWEST = 1e-9  # of the values: a narrower range is mostly rounding
SMALLEST = 1e-290  # of a range whose pixels are doubles
STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """A range of values over a range of pixels, linear or logarithmic.

    >>> Scale(0.0, 10.0, 100.0, 200.0)([0.0, 5.0]).tolist()
    [100.0, 150.0]
    >>> Scale(1.0, 100.0, 0.0, 200.0, logarithmic=True)(10.0).tolist()
    100.0
    """

    low: float
    high: float
    start: float
    stop: float
    logarithmic: bool = False

    def __call__(self, values: ArrayLike) -> NDArray[np.float64]:
        """Where the values are, in pixels; those beyond the range lie outside."""
        x, low, high = np.asarray(values, dtype=np.float64), self.low, self.high
        if self.logarithmic:
            x, low, high = np.log(x), math.log(low), math.log(high)
        return self.start + (x - low) / (high - low) * (self.stop - self.start)


def fitted(values: ArrayLike, start: float, stop: float, *, zero: bool = False) -> Scale:
    """A linear scale on which all finite values can be seen, and 0 if wanted.

    >>> fitted([2.0, 4.0], 0.0, 100.0)
    Scale(low=1.88, high=4.12, start=0.0, stop=100.0, logarithmic=False)
    >>> fitted([], 0.0, 100.0).low < 0.0 < fitted([], 0.0, 100.0).high
    True
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[np.isfinite(x)]
    if zero or not len(x):
        x = np.append(x, 0.0)
    low, high = float(x.min()), float(x.max())
    size = max(abs(low), abs(high))
    if size < SMALLEST:  # too small to be divided by
        low, high = -1.0, 1.0
    elif high - low <= NARROWEST * size:
        low, high = low - size / 10, high + size / 10
    margin = MARGIN * (high - low)
    return Scale(low - margin, high + margin, start, stop)


def round_values(low: float, high: float, most: int) -> list[float]:
    """Round numbers in a range, with at most so many equal steps over all of it.

    >>> round_values(0.13, 0.38, most=5)
    [0.15, 0.2, 0.25, 0.3, 0.35]
    """
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * s for s in STEPS if power * s >= least * (1 - NARROWEST))
    first, last = math.ceil(low / step), math.floor(high / step)
    decimals = max(0, 1 - math.floor(math.log10(step)))
    return [round(k * step, decimals) for k in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """The powers of ten in a range, or 1, 2 and 5 times them where these are few.

    >>> decades(1.0, 2000.0)
    [1.0, 10.0, 100.0, 1000.0]
    >>> decades(60.0, 600.0)
    [100.0, 200.0, 500.0]
    """
    powers = [10.0**k for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    inside = [power for power in powers if low <= power <= high]
    if len(inside) > 2:  # noqa: PLR2004 - fewer say little
        return inside
    return [s * power for power in powers for s in STEPS[:3] if low <= s * power <= high]
