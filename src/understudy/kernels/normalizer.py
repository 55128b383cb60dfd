"""The level Λ that normalizes the weights of groups with different rates to a sum of 1.

    Σ_j S_j w₁(j) exp(η_j (reference_j − Λ)) = 1

The sum falls with Λ, and its logarithm is convex. `scales` are the factors of the S_j: they
depend on the references and Λ only. A step δ of Λ multiplies the terms t_j by exp(−η_j δ); the
logarithm of their sum is then

    log Σ_j t_j − κ₁ δ + κ₂ δ²/2 − …,   κ₁ and κ₂ the mean and variance of the η_j, weighted by t_j

- Near the root, where all η_j δ are small, `settle` solves this series: it needs no logarithm of
  an S_j, and its last step has computed the scales.
- Elsewhere, `seek` searches the root in a bracket given by the single terms, which Newton's
  method from the left never leaves.

`exp` is plain arithmetic, so that the compiler vectorizes a loop over it:

    e^x = 2^n e^r,   n the whole number nearest to x / log 2,   |r| ≤ (log 2)/2

with the first 14 terms of e^r: the next is below 2^-57. Unlike the C library's function it has no
branch and no call.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from understudy.kernels.compiler import compiled, inlined

Array = Any

MOST_STEPS = 200  # of Newton or of bisection: the bracket is then one number wide
CLOSE = 1e-9  # of the logarithm of the sum of all weights: one more step squares it
NEARBY = 0.25  # the largest η_j δ of a step; the error after it is below its cube
NOTHING_LEFT = 3e-5  # the η_j δ of a last step: its cube is below the last digits
FEW_STEPS = 3  # enough to reach it from `NEARBY`, up to rounding


LOG2_E = 1.4426950408889634
LOG_2 = 0.6931471803691238  # its first 33 bits: n times it is exact
REST_OF_LOG_2 = 1.9082149292705877e-10
SMALLEST, LARGEST = -708.0, 709.0  # e^x is subnormal below, and overflows above
ROUNDER = 1.5 * 2.0**52  # adding it rounds a number to an integer, in the last bits
MANTISSA = 52  # bits of a double, below those of its exponent


@compiled
def exp_by_series(x: float) -> float:
    """Return e^x to a unit in the last place; 0 below e^-708, infinity above e^709."""
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
    """Return e^x of the C library, which is faster without the compiler.

    >>> exp_by_library(0.0), exp_by_library(-1e3)
    (1.0, 0.0)
    """
    if x > LARGEST:
        return math.inf
    return math.exp(x) if x >= SMALLEST else 0.0


exp = exp_by_library if numba.config.DISABLE_JIT else exp_by_series


@compiled
def excess(rates: Array, x: Array, delta: float) -> tuple[float, float]:
    """Return log Σ_j exp(x_j − η_j δ), and minus its derivative in δ."""
    largest = -math.inf
    for j in range(rates.size):
        largest = max(largest, x[j] - rates[j] * delta)
    total, slope = 0.0, 0.0
    for j in range(rates.size):
        term = math.exp(x[j] - rates[j] * delta - largest)
        total += term
        slope += rates[j] * term
    return largest + math.log(total), slope / total


@compiled
def root(rates: Array, x: Array) -> float:
    """Return the δ with log Σ_j exp(x_j − η_j δ) = 0.

    At the largest x_j/η_j one term alone is 1; at the largest (x_j + log J)/η_j none is above 1/J.
    """
    low, high, spread = -math.inf, -math.inf, math.log(rates.size)
    for j in range(rates.size):
        low = max(low, x[j] / rates[j])
        high = max(high, (x[j] + spread) / rates[j])
    delta = min(max(0.0, low), high)
    for _ in range(MOST_STEPS):
        above, slope = excess(rates, x, delta)
        step = delta + above / slope
        if abs(above) <= CLOSE and low <= step <= high:
            return step
        if above > 0.0:
            low = delta
        else:
            high = delta
        if not low < step < high:
            step = low + (high - low) / 2.0
        if step in (low, high):
            break
        delta = step
    return delta


@compiled
def seek(
    rates: Array, log_prior: Array, references: Array, totals: Array, level: float, x: Array
) -> float:
    """Return Λ from any start `level`; `x` is a buffer for the log weights of the groups."""
    for j in range(rates.size):
        x[j] = log_prior[j] + math.log(totals[j]) + rates[j] * (references[j] - level)
    return level + root(rates, x)


@compiled
def rescale(
    rates: Array, log_prior: Array, references: Array, totals: Array, level: float, scales: Array
) -> float:
    """Compute the scale of every group; return the sum of all weights, 1 up to rounding."""
    for j in range(rates.size):
        scales[j] = exp(log_prior[j] + rates[j] * (references[j] - level))
    mass = 0.0
    for j in range(rates.size):
        mass += scales[j] * totals[j]
    return mass


@compiled
def step_of(rates: Array, totals: Array, scales: Array) -> float:
    """Return δ by the terms up to δ²: Newton's step with a correction for the curvature."""
    mass, first, second = 0.0, 0.0, 0.0
    for j in range(rates.size):
        term = scales[j] * totals[j]
        mass += term
        first += rates[j] * term
        second += rates[j] * (rates[j] * term)
    mean = first / mass
    variance = second / mass - mean * mean
    straight = math.log(mass) / mean
    return straight + variance / (2.0 * mean) * (straight * straight)


@inlined
def settle(
    rates: Array,
    log_prior: Array,
    references: Array,
    totals: Array,
    level: float,
    scales: Array,
    fastest: float,
    fresh: bool,
) -> tuple[float, float]:
    """Return Λ and the sum of all weights after some S have grown; update the scales.

    If all references and S are `fresh`, the old scales are invalid. `fastest` is the largest rate.
    """
    for _ in range(0 if fresh else FEW_STEPS):
        step = step_of(rates, totals, scales)
        reach = fastest * abs(step)
        if not reach <= NEARBY:
            break
        level += step
        mass = rescale(rates, log_prior, references, totals, level, scales)
        if reach <= NOTHING_LEFT:
            return level, mass
    level = seek(rates, log_prior, references, totals, level, scales)
    return level, rescale(rates, log_prior, references, totals, level, scales)
