"""Chernoff's upper confidence bound on a probability, from the frequency of an action
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

from understudy.kernels.compiler import compiled

Array = Any

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
