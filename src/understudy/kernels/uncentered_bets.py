"""Bets without centers, of certificates of rules 1 and of counted behaviors: products of 1 + λ x.

    lower  x = w R          on the target's mean reward        w = π_t(b) / q_t(b)
    upper  x = w (1 − R)    on one minus it
    gain   x = (w − 1) R    on its mean gain over production

`lambdas` holds the three grids one after the other. The first two are equal and have `size`
entries; the third is empty if no gain is needed. S_i = Σ_t log(1 + λ_i x_t) is `sums[i]` +
log `products[i]`: up to 16 factors are multiplied before a logarithm is taken. That happens at
rounds counted from the beginning of the log and not of the call, so that any batching gives the
same bits, and sooner if a product grows large.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from understudy.kernels.compiler import compiled

Array = Any

FACTORS = 16  # multiplications per logarithm, enough to make its cost negligible
LARGEST_PRODUCT = 1e100  # times 1 + λ x, with λ, x ≤ 1e100, it is still a double
LARGEST_EXPONENT = 600.0  # of a weight: far above any threshold, below overflow
ROUNDING = 1e-9  # more than rounding can add to the mixture in a round


@compiled
def multiply(products: Array, lambdas: Array, start: int, stop: int, x: float) -> None:
    """Multiply the product of each λ of a grid by 1 + λ x."""
    for i in range(start, stop):
        products[i] *= 1.0 + lambdas[i] * x


@compiled
def flush(sums: Array, products: Array, start: int, stop: int) -> None:
    """Move the products of a grid into its sums."""
    for i in range(start, stop):
        sums[i] += math.log(products[i])
        products[i] = 1.0


@compiled
def weigh(sums: Array, start: int, weights: Array) -> None:
    """Compute ρ e^S of each λ of the last grid, without the pending products."""
    for i in range(weights.size):
        weights[i] = math.exp(min(LARGEST_EXPONENT, sums[start + i])) / weights.size


@compiled
def mixture(weights: Array, products: Array, start: int) -> float:
    """Return Σ_i ρ_i e^{S_i}, summed in a fixed order."""
    total = 0.0
    for i in range(weights.size):
        total += weights[i] * products[start + i]
    return total


@compiled
def observe(
    lambdas: Array,
    size: int,
    threshold: float,
    sums: Array,
    products: Array,
    totals: Array,
    rounds: int,
    crossed: int,
    probabilities: Array,
    propensities: Array,
    rewards: Array,
) -> int:
    """Add a chunk of rounds to sums, products and totals (Σ R, Σ w R, Σ w, Σ w²), in place.

    Return the first round after which the mixture Σ_i ρ_i e^{S_i} of the gains is at least
    `threshold`, or 0; that is `crossed` if it is an earlier round. Exact tests are rare: between
    them a ceiling bounds the mixture, which grows by 1 + λ_1 x at most, and falls if x ≤ 0.
    """
    paired = lambdas.size > 2 * size
    testing = paired and crossed == 0
    weights, ceiling = np.empty(lambdas.size - 2 * size), math.inf
    weigh(sums, 2 * size, weights)
    R_total, wR_total, w_total, w2_total = totals[0], totals[1], totals[2], totals[3]
    for k in range(rewards.size):
        R, w, t = rewards[k], probabilities[k] / propensities[k], rounds + k + 1
        R_total += R
        wR_total += w * R
        w_total += w
        w2_total += w * w
        if R > 0.0 and w > 0.0:
            multiply(products, lambdas, 0, size, w * R)
        if R < 1.0 and w > 0.0:
            multiply(products, lambdas, size, 2 * size, w * (1.0 - R))
        if paired and R > 0.0:
            x = (w - 1.0) * R
            multiply(products, lambdas, 2 * size, lambdas.size, x)
            if testing and x > 0.0:
                ceiling *= (1.0 + lambdas[2 * size] * x) * (1.0 + ROUNDING)
                if ceiling >= threshold:
                    ceiling = mixture(weights, products, 2 * size)
                    if ceiling >= threshold:
                        crossed, testing = t, False
        # No product of a grid is above its first, and none of a gain above the first of all.
        if t % FACTORS == 0 or max(products[0], products[size]) > LARGEST_PRODUCT:
            flush(sums, products, 0, lambdas.size)
            if testing:
                weigh(sums, 2 * size, weights)
    totals[0], totals[1], totals[2], totals[3] = R_total, wR_total, w_total, w2_total
    return crossed
