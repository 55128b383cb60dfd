"""The level Λ at which the weights of groups with rates of their own sum to 1.

    Σ_j S_j w₁(j) exp(η_j (reference_j − Λ)) = 1

falls with Λ, and its logarithm is convex. `scales` are what stands beside the S_j: a function of
the references and of Λ alone. A step δ of Λ multiplies the terms by exp(−η_j δ), so that the
logarithm of the sum is

    log Σ_j t_j − κ₁ δ + κ₂ δ²/2 − …,   κ: mean and variance of the rates, weighted by the terms t_j

- From nearby, where all η_j δ are small, `settle` takes the root of that: no logarithms of the S_j,
  and the terms of the last step are those that are needed anyway.
- From anywhere else, `root` looks for it in a bracket that the single terms give: Newton's method
  from the left never leaves it.
"""

from __future__ import annotations

import math
from typing import Any

from understudy.kernels.compiler import compiled

__all__ = ["rescale", "root", "settle"]

Array = Any
Tuning = tuple[Array, Array, Array]  # rates and log w₁ of the groups, the group of every action
Sums = tuple[Array, Array]  # reference and S of every group

MOST_STEPS = 200  # of Newton or of bisection: the bracket is then one number wide
CLOSE = 1e-9  # of the logarithm of the sum of all weights: one more step squares it
NEARBY = 0.25  # the largest η_j δ: what is left after a step is below its cube,
DONE = 3e-5  # which then is nothing


@compiled
def heights(tuning: Tuning, sums: Sums, level: float, out: Array) -> None:
    """x_j, the logarithm of every group's weight at a level."""
    rates, log_prior, _ = tuning
    references, totals = sums
    for j in range(rates.size):
        out[j] = log_prior[j] + math.log(totals[j]) + rates[j] * (references[j] - level)


@compiled
def excess(rates: Array, x: Array, delta: float) -> tuple[float, float]:
    """log Σ_j exp(x_j − η_j δ), and how fast it falls with δ."""
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
    """δ with log Σ_j exp(x_j − η_j δ) = 0.

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
def rescale(tuning: Tuning, sums: Sums, level: float, scales: Array) -> float:
    """The scale of every group, and the sum of all weights: 1, but for rounding."""
    rates, log_prior, _ = tuning
    references, totals = sums
    for j in range(rates.size):
        scales[j] = math.exp(log_prior[j] + rates[j] * (references[j] - level))
    mass = 0.0
    for j in range(rates.size):
        mass += scales[j] * totals[j]
    return mass


@compiled
def step_of(rates: Array, totals: Array, scales: Array) -> float:
    """δ by the first two terms in δ: Newton's step, bent by the curvature."""
    mass, first, second = 0.0, 0.0, 0.0
    for j in range(rates.size):
        term = scales[j] * totals[j]
        mass += term
        first += rates[j] * term
        second += rates[j] * (rates[j] * term)
    mean = first / mass
    straight = math.log(mass) / mean
    return straight + (second / mass - mean * mean) / (2.0 * mean) * straight * straight


@compiled
def settle(
    tuning: Tuning, sums: Sums, level: float, scales: Array, fastest: float
) -> tuple[float, float]:
    """Λ, found from where it was, and the sum of all weights, after S has grown."""
    rates = tuning[0]
    reach = math.inf
    while reach > DONE:
        step = step_of(rates, sums[1], scales)
        reach = fastest * abs(step)
        if not reach <= NEARBY:
            return seek(tuning, sums, level, scales)
        level += step
        mass = rescale(tuning, sums, level, scales)
    return level, mass


@compiled
def seek(tuning: Tuning, sums: Sums, level: float, scales: Array) -> tuple[float, float]:
    """`settle` from anywhere, whatever the scales were."""
    heights(tuning, sums, level, scales)
    level += root(tuning[0], scales)
    return level, rescale(tuning, sums, level, scales)
