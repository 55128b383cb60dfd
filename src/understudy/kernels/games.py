"""A whole game against means that stay for a while, in one call: O(1) a round, O(K) memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from understudy.kernels.compiler import compiled
from understudy.kernels.exponential_weights import earn
from understudy.kernels.logs import observe

__all__ = ["init", "play", "play_abreast"]

Array = Any

BLOCK = 1024  # rounds at a time, or K if that is more: each block makes all weights once


def init(runs: int, n_learners: int, n_actions: int) -> tuple[Array, ...]:
    """Scores, residues, references, totals and earnings, of all learners in all runs, at first."""
    return (
        np.zeros((runs, n_learners, n_actions)),
        np.zeros((runs, n_learners, n_actions)),
        np.zeros((runs, n_learners)),
        np.full((runs, n_learners), float(n_actions)),
        np.zeros((runs, n_learners)),
    )


@compiled
def play(
    streams: tuple[Generator, Generator],
    world: tuple[Array, Array, Array, Array],
    start: int,
    rounds: int,
    learners: tuple[Array, Array],
    state: tuple[Array, Array, Array, Array, Array],
) -> None:
    """The next rounds, after `start` of them: all learners learn and earn in place.

    `streams` are of the behavior's actions and of the observed rewards. `world` is `edges` and
    `guide` of the behavior, and `means`, whose row i holds after starts[i] rounds. `learners` are
    `etas` and `gains`: the score of learner l grows by gains[l, r, a] if a is played and its
    reward is r ∈ {0, 1}.
    """
    behavior, observed = streams
    edges, guide, means, starts = world
    etas, gains = learners
    scores, residues, references, totals, earned = state
    size = max(BLOCK, edges.size)
    actions, rewards, grown = np.empty(size, dtype=np.int64), np.empty(size), np.empty(size)
    begin = np.zeros(1, dtype=np.int64)
    row, first, end = 0, start, start + rounds
    while first < end:
        while row + 1 < starts.size and starts[row + 1] <= first:
            row += 1
        last = min(first + size, end)
        if row + 1 < starts.size:
            last = min(last, starts[row + 1])
        seen, won, more = actions[: last - first], rewards[: last - first], grown[: last - first]
        observe(behavior, observed, edges, guide, means[row], seen, won)
        for one in range(etas.size):
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


@compiled
def play_abreast(
    streams: tuple[tuple[Generator, ...], tuple[Generator, ...]],
    world: tuple[Array, Array, Array, Array],
    start: int,
    rounds: int,
    learners: tuple[Array, Array],
    state: tuple[Array, Array, Array, Array, Array],
) -> None:
    """`play` for several runs, as many as there are rows of the state.

    One call for several, because threads that often come back for the interpreter wait for it.
    """
    behaviors, observed = streams
    scores, residues, references, totals, earned = state
    for run in range(earned.shape[0]):
        own = scores[run], residues[run], references[run], totals[run], earned[run]
        play((behaviors[run], observed[run]), world, start, rounds, learners, own)
