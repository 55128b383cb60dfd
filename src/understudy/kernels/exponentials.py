"""exp in plain arithmetic, so that a loop over it becomes a loop over vectors.

    e^x = 2^n e^r,   n the whole number nearest to x / log 2,   |r| ≤ (log 2)/2

with the first 14 terms of e^r: the next is below 2^-57. There is no branch and no call in it, which
is what the C library's has: LLVM makes as many at a time as the processor has room for.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from understudy.kernels.compiler import compiled

__all__ = ["exp", "exp_by_library", "exp_by_series"]

LOG2_E = 1.4426950408889634
LOG_2 = 0.6931471803691238  # its first 33 bits: n times it is exact
REST_OF_LOG_2 = 1.9082149292705877e-10
SMALLEST, LARGEST = -708.0, 709.0  # below, doubles have fewer digits; above, they end
ROUNDER = 1.5 * 2.0**52  # what is added to it becomes whole, and is in its last bits
MANTISSA = 52  # bits of a double, below those of its exponent


@compiled
def exp_by_series(x: float) -> float:
    """e^x to a unit in the last place; 0 below e^-708, infinite above e^709."""
    shifted = x * LOG2_E + ROUNDER
    n = shifted - ROUNDER
    r = (x - n * LOG_2) - n * REST_OF_LOG_2
    r2 = r * r
    r4 = r2 * r2
    low = (1 / 2 + r * (1 / 6)) + r2 * (1 / 24 + r * (1 / 120))
    middle = (1 / 720 + r * (1 / 5040)) + r2 * (1 / 40320 + r * (1 / 362880))
    high = (1 / 3628800 + r * (1 / 39916800)) + r2 * (1 / 479001600 + r * (1 / 6227020800))
    series = np.float64(1.0 + (r + r2 * (low + r4 * (middle + r4 * high))))
    exponent = np.float64(shifted).view(np.int64) << MANTISSA
    power = float(np.int64(series.view(np.int64) + exponent).view(np.float64))
    power = 0.0 if x < SMALLEST else power
    return math.inf if x > LARGEST else power


def exp_by_library(x: float) -> float:
    """The same, where nothing is compiled: there the C library's is the faster one.

    >>> exp_by_library(0.0), exp_by_library(-1e3)
    (1.0, 0.0)
    """
    if x > LARGEST:
        return math.inf
    return math.exp(x) if x >= SMALLEST else 0.0


exp = exp_by_library if numba.config.DISABLE_JIT else exp_by_series
