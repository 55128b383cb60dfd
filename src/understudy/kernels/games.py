"""A whole game against means that stay for a while, in one call: O(1) a round, O(K) memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from understudy.kernels.compiler import compiled
from understudy.kernels.exponential_weights import earn
from understudy.kernels.logs import observe

__all__ = ["play"]

Array = Any

BLOCK = 1024  # rounds at a time, or K if that is more: each block makes all weights once


@compiled
def play(
    behavior: Generator,
    observed: Generator,
    edges: Array,
    guide: Array,
    means: Array,
    starts: Array,
    rounds: int,
    etas: Array,
    gains: Array,
) -> Array:
    """What every learner earns, Σ_t ⟨π_t, r_t⟩.

    Row i of `means` holds after starts[i] rounds. Learner l has rate etas[l], and its score of
    action a grows by gains[l, r, a] if a is played and its reward is r ∈ {0, 1}.
    """
    n_learners, n_actions = etas.size, edges.size
    scores, residues = np.zeros((n_learners, n_actions)), np.zeros((n_learners, n_actions))
    references, totals = np.zeros(n_learners), np.full(n_learners, float(n_actions))
    earned = np.zeros(n_learners)
    size = max(BLOCK, n_actions)
    actions, rewards, grown = np.empty(size, dtype=np.int64), np.empty(size), np.empty(size)
    begin = np.zeros(1, dtype=np.int64)
    row, first = 0, 0
    while first < rounds:
        if row + 1 < starts.size and starts[row + 1] == first:
            row += 1
        last = min(first + size, rounds)
        if row + 1 < starts.size:
            last = min(last, starts[row + 1])
        seen, won = actions[: last - first], rewards[: last - first]
        observe(behavior, observed, edges, guide, means[row], True, seen, won)
        for one in range(n_learners):
            more = grown[: last - first]
            for t in range(seen.size):
                more[t] = gains[one, int(won[t]), seen[t]]
            references[one], totals[one], own = earn(
                etas[one],
                scores[one],
                residues[one],
                references[one],
                totals[one],
                first,
                seen,
                more,
                means[row : row + 1],
                begin,
            )
            earned[one] += own
        first = last
    return earned
