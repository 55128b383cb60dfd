"""Sampling of logs from a behavior policy, and sums per action of logs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from understudy.kernels.compiler import compiled

Array = Any

SMALLEST_GUIDE = 1024  # fits the fastest cache, and mostly leaves no step of the search


@compiled
def guide_table(edges: Array) -> Array:
    """Return the starts of the search for u: guide[⌊u · size⌋] is its first possible action.

    `edges` is the cumulative distribution; the action of u is the first whose edge is above u.
    From the guide on, the search takes at most one step on average.
    """
    size = max(SMALLEST_GUIDE, edges.size)
    guide = np.empty(size, dtype=np.int64)
    a = 0
    for i in range(size):
        while edges[a] * size < i:  # not ≤: a product may have been rounded up
            a += 1
        guide[i] = a
    return guide


@compiled
def observe(
    behavior: Generator,
    observed: Generator,
    edges: Array,
    guide: Array,
    means: Array,
    actions: Array,
    rewards: Array,
) -> None:
    """Draw A^B_t and Bernoulli R^B_t of rounds with the same means, one uniform number for each."""
    for t in range(actions.size):
        u = behavior.random()
        b = guide[int(u * guide.size)]
        while edges[b] <= u:
            b += 1
        actions[t] = b
        rewards[t] = 1.0 if observed.random() < means[b] else 0.0


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
