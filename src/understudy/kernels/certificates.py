"""Betting confidence sequences in O(1) a round: products of 1 + λ x for a grid of bets λ.

    lower  x = w R          on the target's mean reward        w = π_t(b) / q_t(b)
    upper  x = w (1 − R)    on one minus it
    gain   x = (w − 1) R    on its mean gain over production

`lambdas` holds the three grids one after the other. The first two are equal and have `size`
entries; the third is empty if no gain is needed. S_i = Σ_t log(1 + λ_i x_t) is `sums[i]` +
log `products[i]`: up to 16 factors are multiplied before a logarithm is taken. That happens at
rounds counted from the beginning of the log and not of the call, so that any batching gives the
same bits, and sooner if a product grows large.

Chernoff's upper confidence bound on a probability, from the frequency of an action
(`count_before`):

    kl_upper(q̂, m, ℓ) = max{p ∈ [q̂, 1] : m kl(q̂, p) ≤ ℓ}
    kl(q, p) = q log(q/p) + (1−q) log((1−q)/(1−p))

With p = q + d and h(x) = x − log(1 + x) ≥ 0 this is kl = q h(d/q) + (1−q) h(−d/(1−q)). This form
has no cancellation, so it is exact to the last digits for any small d. kl is convex and increasing
in d, so Newton's steps from above never pass the root: after each step, p is an upper bound.
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
STEPS = 1000  # a guard against an endless loop: every step is a valid bound
NEGLIGIBLE = 60.0  # e^-60 of the largest term is below its last digit


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


@compiled
def log_wealths(sums: Array, products: Array, out: Array) -> None:
    """Compute the log wealth S_i = Σ_t log(1 + λ_i x_t) of every bet."""
    for i in range(sums.size):
        out[i] = sums[i] + math.log(products[i])


@compiled
def log_mixture(
    S: Array, lambdas: Array, rounds: int, m: float, exponents: Array
) -> tuple[float, float]:
    """Return log Σ_i ρ_i exp(S_i − n log(1 + λ_i m)), and its derivative in m."""
    largest = -math.inf
    for i in range(S.size):
        exponents[i] = S[i] - rounds * math.log1p(lambdas[i] * m)
        largest = max(largest, exponents[i])
    total = slope = 0.0
    for i in range(S.size):
        if exponents[i] < largest - NEGLIGIBLE:
            continue
        weight = math.exp(exponents[i] - largest)
        total += weight
        slope -= weight * rounds * lambdas[i] / (1.0 + lambdas[i] * m)
    return largest + math.log(total / S.size), slope / total


@compiled
def root(S: Array, lambdas: Array, rounds: int, log_threshold: float, low: float) -> float:
    """Return the m in [low, 1] at which `log_mixture` falls to `log_threshold`, or an end.

    `log_mixture` is decreasing and convex in m, so Newton's steps from the left never pass the
    root: each step is a valid bound.
    """
    exponents = np.empty(S.size)
    value, slope = log_mixture(S, lambdas, rounds, low, exponents)
    if value <= log_threshold:
        return low
    for _ in range(STEPS):
        m = min(1.0, low + (log_threshold - value) / slope)
        if m <= low:
            break
        low = m
        value, slope = log_mixture(S, lambdas, rounds, low, exponents)
        if value <= log_threshold or low == 1.0:
            break
    return low


SMALL = 0.1  # below, x − log(1 + x) is computed by its series
OUTWARD = 2.0**-44  # relative to d: more than rounding can take from it
LAST_DIGITS = 2.0**-51  # relative to p
LAST_STEP = 2.0**-24  # relative to d: the remaining error is about its square
MOST_STEPS = 50  # never needed: the tests count them


@compiled
def beyond_log(x: float) -> float:
    """Return h(x) = x − log(1 + x) for x > −1, by log(1 + x) = 2 artanh(r), r = x/(2 + x)."""
    if abs(x) > SMALL:
        return x - math.log1p(x)
    r = x / (2.0 + x)
    s = r * r
    tail = s * (1 / 9 + s * (1 / 11 + s / 13))
    return r * (x - 2.0 * s * (1 / 3 + s * (1 / 5 + s * (1 / 7 + tail))))


@compiled
def largest_distance(q: float, c: float) -> float:
    """Return an upper bound on the d with kl(q, q + d) = c, by two lower bounds on kl.

    By log(1+x) ≤ x(6+x)/(6+4x), h(x) ≥ x²/(2 + 4x/3); and h(−y) ≥ y²/2; so d² ≤ 2c(1−q)(q + 2d/3).
    By q log(1+d/q) ≤ min(d, −q log q), c ≥ (1−q) log((1−q)/(1−q−d)) − min(1−q, −q log q).
    """
    rest = 1.0 - q
    a = 2.0 * c * rest / 3.0
    near = a + math.sqrt(a * (a + 3.0 * q))
    if near < rest / 2.0:  # there the second bound is no better, and costs as much as a step
        return near
    return min(near, -rest * math.expm1(-c / rest - min(1.0, -q * math.log(q) / rest)))


@compiled
def kl_upper(frequency: float, count: float, budget: float) -> float:
    """Return max{p : count · kl(frequency, p) ≤ budget}, rounded up; 1 if `count` is 0.

    For frequencies of 0, and from 1e-200 to 1; the budget is not negative.
    """
    q, rest = frequency, 1.0 - frequency
    if count <= 0.0 or rest <= 0.0:
        return 1.0
    c = budget / count
    if q <= 0.0:
        return min(1.0, -math.expm1(-c) * (1.0 + LAST_DIGITS))
    d = largest_distance(q, c)
    for _ in range(MOST_STEPS):
        if d >= rest or d <= 0.0:
            break
        excess = q * beyond_log(d / q) + rest * beyond_log(-d / rest) - c
        step = excess * (q + d) * (rest - d) / d
        d -= step
        if step <= LAST_STEP * d:
            break
    return min(1.0, (q + d * (1.0 + OUTWARD)) * (1.0 + LAST_DIGITS))


@compiled
def kl_uppers(frequencies: Array, counts: Array, budgets: Array, out: Array) -> None:
    """Compute `kl_upper` for each entry."""
    for i in range(out.size):
        out[i] = kl_upper(frequencies[i], float(counts[i]), budgets[i])


@compiled
def count_before(counts: Array, actions: Array, before: Array) -> None:
    """Count the earlier plays of each event's action; update `counts` in place."""
    for t in range(actions.size):
        before[t] = counts[actions[t]]
        counts[actions[t]] += 1


@compiled
def tally(
    actions: Array,
    rewards: Array,
    propensities: Array,
    counts: Array,
    totals: Array,
    ranges: Array,
) -> None:
    """Add events to the sums of their actions, in place, in order.

    `totals` are Σ R, Σ R/q, Σ 1/q and Σ 1/q², (4, K); `ranges` the smallest and largest q, (2, K),
    nan before the first.
    """
    for t in range(actions.size):
        a, R, q = actions[t], rewards[t], propensities[t]
        weight = 1.0 / q
        counts[a] += 1
        totals[0, a] += R
        totals[1, a] += R * weight
        totals[2, a] += weight
        totals[3, a] += weight * weight
        if not ranges[0, a] <= q:  # also where it is nan
            ranges[0, a] = q
        if not ranges[1, a] >= q:
            ranges[1, a] = q
