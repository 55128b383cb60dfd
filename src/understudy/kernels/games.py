"""Compiled games: piecewise constant means in O(1) a round, and adaptive adversaries.

`play_adaptive` is the loop of `game.play`, compiled.

An adversary is two compiled functions over a memory of its own, a float64 vector:

    choose(memory, parameters, t, means)                     fill the means of round t = 1, 2, …
    observe(memory, parameters, t, policy, action, b, rewards)      update the memory

and `play_adaptive` with these two is its game (`hiding`, `retaliating`). The actions of the
behavior policy do not depend on the adversary, so the caller draws them and computes their gains,
for either reward; the kernel computes the rest, which depends on the past.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.random import Generator

from understudy.kernels.compiler import compiled, inlined
from understudy.kernels.exponential_weights import expected_reward, replay
from understudy.kernels.exponential_weights import policy as make_policy

Array = Any

SMALLEST_GUIDE = 1024  # fits the fastest cache, and mostly leaves no step of the search
BLOCK = 1024  # rounds at a time, or K if that is more: each block computes all weights once


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
def draw_log(
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


def init(runs: int, n_learners: int, n_actions: int) -> tuple[Array, ...]:
    """Return initial scores, residues, references, totals and rewards of all learners and runs."""
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
    """Play the next rounds, after the first `start`; update all learners and rewards in place.

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
        draw_log(behavior, observed, edges, guide, means[row], seen, won)
        for one in range(etas.size):
            for t in range(seen.size):
                more[t] = gains[one, int(won[t]), seen[t]]
            references[one], totals[one], own = expected_reward(
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
def play_runs(
    streams: tuple[tuple[Generator, ...], tuple[Generator, ...]],
    world: tuple[Array, Array, Array, Array],
    start: int,
    rounds: int,
    learners: tuple[Array, Array],
    state: tuple[Array, Array, Array, Array, Array],
) -> None:
    """Call `play` for several runs, one per row of the state.

    Several runs share a call because threads wait for the interpreter between calls.
    """
    behaviors, observed = streams
    scores, residues, references, totals, earned = state
    for run in range(earned.shape[0]):
        own = scores[run], residues[run], references[run], totals[run], earned[run]
        play((behaviors[run], observed[run]), world, start, rounds, learners, own)


ROUNDING = 1e-9  # of means: an adversary may compute 1 + 1e-16


@compiled
def draw(probabilities: Array, u: float) -> int:
    """Return the action at u in the cumulative distribution, like `behaviors.choose`."""
    whole = 0.0
    for a in range(probabilities.size):
        whole += probabilities[a]
    edge = 0.0
    for a in range(probabilities.size - 1):
        edge += probabilities[a]
        if u < edge / whole:
            return a
    return int(probabilities.size - 1)


@inlined
def play_adaptive(
    choose: Any,
    observe: Any,
    adversary: tuple[Array, Array],
    stage: tuple[Array, Array, bool, Generator, Generator, Generator],
    learner: tuple[float, Array, Array, float, float, int, Array, Array],
) -> tuple[float, float, float, float]:
    """Play a chunk of rounds; return the reference, W, and the rewards of learner and behavior.

    `adversary` is its memory and its parameters. `stage` is π_B, the total reward of every action,
    whether realised rewards count, and three random streams: for the observed reward, all rewards,
    the learner's draw. `learner` has the arguments of `replay`, except that gains are (2, n): the
    gain of each round's action if the reward is 0, or 1. Means outside [0, 1] end the game with a
    reward of nan.
    """
    memory, parameters = adversary
    behavior, by_action, realised, observed, unobserved, own = stage
    eta, scores, residues, reference, total, rounds, actions, gains = learner
    n_actions = scores.size
    means, rewards, policy = np.empty(n_actions), np.empty(n_actions), np.empty(n_actions)
    played, gain, nothing = np.empty(1), np.empty(1), np.empty(0)
    earned = by_behavior = 0.0
    for i in range(actions.size):
        t = rounds + i + 1
        choose(memory, parameters, t, means)
        for a in range(n_actions):
            if not -ROUNDING <= means[a] <= 1.0 + ROUNDING:
                return reference, total, math.nan, by_behavior
        make_policy(eta, scores, residues, reference, total, policy)
        action = draw(policy, own.random())
        b = actions[i]
        won = observed.random() < means[b]
        for a in range(n_actions):
            rewards[a] = 1.0 if unobserved.random() < means[a] else 0.0
        rewards[b] = 1.0 if won else 0.0
        for a in range(n_actions):
            counted = rewards[a] if realised else means[a]
            earned += policy[a] * counted
            by_behavior += behavior[a] * counted
            by_action[a] += counted
        gain[0] = gains[1, i] if won else gains[0, i]
        one = actions[i : i + 1]
        reference, total = replay(
            eta,
            scores,
            residues,
            reference,
            total,
            t - 1,
            one,
            gain,
            played,
            nothing,
            nothing,
            nothing,
        )
        observe(memory, parameters, t, policy, action, b, rewards)
    return reference, total, earned, by_behavior


@compiled
def choose_hiding(memory: Array, parameters: Array, t: int, means: Array) -> None:  # noqa: ARG001 - the form of all adversaries
    """Set the mean `high` for the action that the behavior policy has played least."""
    means[:] = parameters[0]
    means[np.argmin(memory)] = parameters[1]


@compiled
def observe_hiding(
    memory: Array,
    parameters: Array,  # noqa: ARG001 - the form of all adversaries
    t: int,  # noqa: ARG001
    policy: Array,  # noqa: ARG001
    action: int,  # noqa: ARG001
    b: int,
    rewards: Array,  # noqa: ARG001
) -> None:
    memory[b] += 1.0


@compiled
def choose_retaliating(memory: Array, parameters: Array, t: int, means: Array) -> None:
    """Lower the means of actions that the last policy favored; the drawn action gets `low`."""
    low, high = parameters[0], parameters[1]
    for a in range(means.size):
        means[a] = high - (high - low) * memory[a]
    if t > 1:
        means[int(memory[means.size])] = low


@compiled
def observe_retaliating(
    memory: Array,
    parameters: Array,  # noqa: ARG001 - the form of all adversaries
    t: int,  # noqa: ARG001
    policy: Array,
    action: int,
    b: int,  # noqa: ARG001
    rewards: Array,  # noqa: ARG001
) -> None:
    memory[: policy.size] = policy
    memory[policy.size] = action


@compiled
def hiding(adversary: Any, stage: Any, learner: Any) -> tuple[float, float, float, float]:
    """Play against `adversaries.hiding`."""
    return play_adaptive(choose_hiding, observe_hiding, adversary, stage, learner)


@compiled
def retaliating(adversary: Any, stage: Any, learner: Any) -> tuple[float, float, float, float]:
    """Play against `adversaries.retaliating`."""
    return play_adaptive(choose_retaliating, observe_retaliating, adversary, stage, learner)
