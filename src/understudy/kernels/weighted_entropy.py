"""Weights with a rate of their own for each group of experts: O(groups) a round.

    w(e) = w₁(e) exp(η_e (G(e) − Λ)),   Λ such that Σ_e w(e) = 1

Experts with the same rate and prior are a group j. Either every action is one expert, of the group
`groups[a]` (the number of groups stands for none), or `groups` is empty and every action is an
expert of every group. Scores are (K, 1), or (K, groups): the experts of an action lie side by side.
Of a group, S_j = Σ exp(η_j (G − reference_j)) is carried along, as `exponential_weights` carries W:
so that Λ is the root of a sum over groups (`levels`).

The exp(η_j (G − reference_j)) of an action's experts are made when they are first needed, and kept
while G and the reference stay. With `scales` from Λ, π(a) is a sum of products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from understudy.kernels.compiler import compiled
from understudy.kernels.exponential_weights import (
    UNKNOWN,
    exponent,
    is_due,
    is_risky,
    plus,
    probability_of,
)
from understudy.kernels.levels import Sums, Tuning, rescale, root, seek, settle

__all__ = ["add", "begin", "earn", "policies", "policy", "replay", "root"]

Array = Any
Experts = tuple[Array, Array, Array]  # scores, residues, and weights as far as they are known


@compiled
def with_weights(scores: Array, residues: Array) -> Experts:
    """The experts, no weight of whom is known yet."""
    weights = np.empty(scores.shape)
    weights[:, 0] = UNKNOWN
    return scores, residues, weights


@compiled
def begin(tuning: Tuning, scores: Array, residues: Array, sums: Sums) -> float:
    """Λ, and all sums, from nothing but the scores: twice, the second time from nearby."""
    refresh(tuning, with_weights(scores, residues), sums)
    scales = np.empty(tuning[0].size)
    level, _ = seek(tuning, sums, sums[0].max(), scales)
    level, _ = seek(tuning, sums, level, scales)
    return level


@compiled
def add(scores: Array, residues: Array, others: Array) -> None:
    """G += the other scores; the residues have been added."""
    for a in range(scores.shape[0]):
        for i in range(scores.shape[1]):
            scores[a, i], residues[a, i] = plus(scores[a, i], residues[a, i], others[a, i])


@compiled
def groups_of(groups: Array, n_groups: int, action: int) -> tuple[int, int]:
    """The first group of an action's experts, and how many experts there are."""
    if groups.size == 0:
        return 0, n_groups
    return groups[action], min(1, n_groups - groups[action])


@compiled
def weigh(tuning: Tuning, experts: Experts, references: Array, action: int) -> None:
    """exp(η_j (G − reference_j)) of an action's experts."""
    rates, _, groups = tuning
    scores, residues, weights = experts
    first, count = groups_of(groups, rates.size, action)
    for i in range(count):
        j = first + i
        x = exponent(rates[j], scores[action, i], residues[action, i], references[j])
        weights[action, i] = math.exp(x)


@compiled
def refresh(tuning: Tuning, experts: Experts, sums: Sums) -> None:
    """Each group's reference, its largest score, and S relative to it, from nothing but scores."""
    rates, _, groups = tuning
    scores, _, weights = experts
    references, totals = sums
    references[:], totals[:] = -math.inf, 0.0
    for a in range(scores.shape[0]):
        first, count = groups_of(groups, rates.size, a)
        for i in range(count):
            references[first + i] = max(references[first + i], scores[a, i])
    for a in range(scores.shape[0]):
        weigh(tuning, experts, references, a)
        first, count = groups_of(groups, rates.size, a)
        for i in range(count):
            totals[first + i] += weights[a, i]


@compiled
def probability(
    tuning: Tuning, experts: Experts, references: Array, scales: Array, mass: float, action: int
) -> float:
    """π(a): the sum over its experts."""
    rates, _, groups = tuning
    weights = experts[2]
    if weights[action, 0] == UNKNOWN:
        weigh(tuning, experts, references, action)
    first, count = groups_of(groups, rates.size, action)
    total = 0.0
    for i in range(count):
        total += scales[first + i] * weights[action, i]
    return probability_of(total, mass)


@compiled
def policy(
    tuning: Tuning, scores: Array, residues: Array, sums: Sums, level: float, out: Array
) -> None:
    """π(a) of every action."""
    experts, scales = with_weights(scores, residues), np.empty(tuning[0].size)
    mass = rescale(tuning, sums, level, scales)
    for a in range(out.size):
        out[a] = probability(tuning, experts, sums[0], scales, mass, a)


@compiled
def learn(
    tuning: Tuning, experts: Experts, sums: Sums, action: int, gains: Array, due: bool
) -> bool:
    """Add the gains of an event to its experts, whose weights are known; whether all are anew."""
    rates, _, groups = tuning
    scores, residues, weights = experts
    references, totals = sums
    first, count = groups_of(groups, rates.size, action)
    risky = due
    for i in range(count):
        j = first + i
        score, residue = plus(scores[action, i], residues[action, i], gains[i])
        scores[action, i], residues[action, i] = score, residue
        risky |= is_risky(gains[i], exponent(rates[j], score, residue, references[j]))
    if risky:
        refresh(tuning, experts, sums)
        return True
    for i in range(count):
        j = first + i
        x = exponent(rates[j], scores[action, i], residues[action, i], references[j])
        weight = math.exp(x)
        totals[j] += weight - weights[action, i]
        weights[action, i] = weight
    return False


@compiled
def replay(
    tuning: Tuning,
    scores: Array,
    residues: Array,
    sums: Sums,
    level: float,
    rounds: int,
    actions: Array,
    gains: Array,
    played: Array,
) -> tuple[float, float]:
    """Learn from every event in place, with π_t(b_t) before each; the last Λ, and nothing more."""
    experts, scales = with_weights(scores, residues), np.empty(tuning[0].size)
    fastest = tuning[0].max()
    mass = rescale(tuning, sums, level, scales)
    for t in range(actions.size):
        b = actions[t]
        played[t] = probability(tuning, experts, sums[0], scales, mass, b)
        due = is_due(scores.shape[0], rounds + t + 1)
        if gains[t, 0] == 0.0 and not due:  # then those of all levels are: the reward was 0
            continue
        if learn(tuning, experts, sums, b, gains[t], due):
            level, mass = seek(tuning, sums, level, scales)
        else:
            level, mass = settle(tuning, sums, level, scales, fastest)
    return level, 0.0


@compiled
def policies(
    tuning: Tuning,
    scores: Array,
    residues: Array,
    sums: Sums,
    level: float,
    rounds: int,
    actions: Array,
    gains: Array,
    out: Array,
) -> tuple[float, float]:
    """`replay` with every π_t in full, (n, K), in place of a trace."""
    played = np.empty(1)
    for t in range(actions.size):
        policy(tuning, scores, residues, sums, level, out[t])
        one = slice(t, t + 1)
        level, _ = replay(
            tuning, scores, residues, sums, level, rounds + t, actions[one], gains[one], played
        )
    return level, 0.0


@compiled
def weighted_sums(
    tuning: Tuning, experts: Experts, references: Array, rewards: Array, out: Array
) -> None:
    """Σ exp(η_j (G(a) − reference_j)) r(a) over each group's experts."""
    rates, _, groups = tuning
    weights = experts[2]
    out[:] = 0.0
    for a in range(weights.shape[0]):
        if weights[a, 0] == UNKNOWN:
            weigh(tuning, experts, references, a)
        first, count = groups_of(groups, rates.size, a)
        for i in range(count):
            out[first + i] += weights[a, i] * rewards[a]


@compiled
def earn(
    tuning: Tuning,
    scores: Array,
    residues: Array,
    sums: Sums,
    level: float,
    rounds: int,
    actions: Array,
    gains: Array,
    rewards: Array,
    starts: Array,
) -> tuple[float, float]:
    """`replay` for a referee, who knows all rewards: Σ_t ⟨π_t, r_t⟩ in place of a trace.

    Row i of `rewards` holds from event starts[i] on. A round costs O(groups), a new row that for
    every action.
    """
    rates, _, groups = tuning
    references, totals = sums
    experts, fastest = with_weights(scores, residues), rates.max()
    scales, weighted, before = np.empty(rates.size), np.empty(rates.size), np.empty(rates.size)
    mass = rescale(tuning, sums, level, scales)
    earned, value, row_of_rewards = 0.0, 0.0, -1
    for t in range(actions.size):
        b = actions[t]
        new_row = row_of_rewards + 1 < starts.size and starts[row_of_rewards + 1] == t
        if new_row:
            row_of_rewards += 1
            weighted_sums(tuning, experts, references, rewards[row_of_rewards], weighted)
            value = worth(scales, weighted) / mass
        earned += value
        due = is_due(scores.shape[0], rounds + t + 1)
        if gains[t, 0] == 0.0 and not due:
            continue
        before[:] = totals
        reward = rewards[row_of_rewards]
        if learn(tuning, experts, sums, b, gains[t], due):
            weighted_sums(tuning, experts, references, reward, weighted)
            level, mass = seek(tuning, sums, level, scales)
        else:
            first, count = groups_of(groups, rates.size, b)
            for j in range(first, first + count):
                weighted[j] += (totals[j] - before[j]) * reward[b]
            level, mass = settle(tuning, sums, level, scales, fastest)
        value = worth(scales, weighted) / mass
    return level, earned


@compiled
def worth(scales: Array, weighted: Array) -> float:
    """Σ_a π(a) r(a), by groups, of weights that sum to 1."""
    value = 0.0
    for j in range(scales.size):
        value += scales[j] * weighted[j]
    return value
