"""Weights with a rate of their own for each group of experts: O(groups) a round.

    w(e) = w₁(e) exp(η_e (G(e) − Λ)),   Λ such that Σ_e w(e) = 1

Experts with the same rate and prior are a group j. Either every action is one expert, of the group
`groups[a]` (the number of groups stands for none), or `groups` is empty and every action is an
expert of every group, with a row of scores for each. Of a group, S_j = Σ exp(η_j (G − reference_j))
is carried along, as `exponential_weights` carries W: so that Λ is the root of a sum over groups.

    log Σ_j exp(x_j − η_j δ) = 0,   x_j = log w₁(j) + log S_j + η_j (reference_j − Λ)

in δ, the way from one Λ to the next: convex and falling, hence Newton's method from the left never
leaves the bracket that the single terms give. `shares` are the groups' probabilities.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from understudy.kernels.compiler import compiled
from understudy.kernels.exponential_weights import exponent, is_due, is_risky, plus, probability_of

__all__ = ["add", "begin", "earn", "policies", "policy", "replay", "root", "share_out"]

Array = Any
Tuning = tuple[Array, Array, Array]  # rates and log w₁ of the groups, the group of every action
Sums = tuple[Array, Array]  # reference and S of every group

MOST_STEPS = 200  # of Newton or of bisection: the bracket is then one number wide
CLOSE = 1e-9  # of the logarithm of the sum of all weights: one more step squares it


@compiled
def heights(tuning: Tuning, sums: Sums, level: float, out: Array) -> None:
    """x_j of every group."""
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
def settle(tuning: Tuning, sums: Sums, level: float, shares: Array) -> float:
    """Λ, found from where it was, and the probability of every group."""
    rates = tuning[0]
    heights(tuning, sums, level, shares)
    level += root(rates, shares)
    share_out(tuning, sums, level, shares)
    return level


@compiled
def share_out(tuning: Tuning, sums: Sums, level: float, shares: Array) -> None:
    """The probability of every group, at a Λ that is the root but for rounding."""
    rates, log_prior, _ = tuning
    references, totals = sums
    largest, total = -math.inf, 0.0
    for j in range(rates.size):
        shares[j] = log_prior[j] + rates[j] * (references[j] - level)
        largest = max(largest, shares[j])
    for j in range(rates.size):
        shares[j] = totals[j] * math.exp(shares[j] - largest)  # totals are e^600 K at the most
        total += shares[j]
    for j in range(shares.size):
        shares[j] /= total


@compiled
def begin(tuning: Tuning, scores: Array, residues: Array, sums: Sums) -> float:
    """Λ, and all sums, from nothing but the scores: twice, the second time from nearby."""
    refresh(tuning, scores, residues, sums)
    shares = np.empty(tuning[0].size)
    level = settle(tuning, sums, sums[0].max(), shares)
    return settle(tuning, sums, level, shares)


@compiled
def add(scores: Array, residues: Array, others: Array) -> None:
    """G += the other scores; the residues have been added."""
    for row in range(scores.shape[0]):
        for a in range(scores.shape[1]):
            scores[row, a], residues[row, a] = plus(
                scores[row, a], residues[row, a], others[row, a]
            )


@compiled
def groups_of(groups: Array, n_groups: int, action: int) -> tuple[int, int]:
    """The first group of an action's experts, and the first after them."""
    if groups.size == 0:
        return 0, n_groups
    return groups[action], min(groups[action] + 1, n_groups)


@compiled
def is_member(groups: Array, action: int, group: int) -> bool:
    return bool(groups.size == 0 or groups[action] == group)


@compiled
def refresh(tuning: Tuning, scores: Array, residues: Array, sums: Sums) -> None:
    """Each group's reference, its largest score, and S relative to it, from nothing but scores."""
    rates, _, groups = tuning
    references, totals = sums
    for j in range(rates.size):
        row = min(j, scores.shape[0] - 1)
        references[j], totals[j] = -math.inf, 0.0
        for a in range(scores.shape[1]):
            if is_member(groups, a, j):
                references[j] = max(references[j], scores[row, a])
        for a in range(scores.shape[1]):
            if is_member(groups, a, j):
                totals[j] += math.exp(
                    exponent(rates[j], scores[row, a], residues[row, a], references[j])
                )


@compiled
def probability(
    tuning: Tuning, scores: Array, residues: Array, sums: Sums, shares: Array, action: int
) -> float:
    """π(a): the sum over its experts."""
    rates, _, groups = tuning
    references, totals = sums
    total = 0.0
    first, last = groups_of(groups, rates.size, action)
    for j in range(first, last):
        row = min(j, scores.shape[0] - 1)
        x = exponent(rates[j], scores[row, action], residues[row, action], references[j])
        total += shares[j] * probability_of(math.exp(x), totals[j])
    return min(1.0, total)


@compiled
def policy(
    tuning: Tuning, scores: Array, residues: Array, sums: Sums, shares: Array, out: Array
) -> None:
    """π(a) of every action."""
    for a in range(out.size):
        out[a] = probability(tuning, scores, residues, sums, shares, a)


@compiled
def learn(
    tuning: Tuning,
    scores: Array,
    residues: Array,
    sums: Sums,
    action: int,
    gains: Array,
    due: bool,
) -> bool:
    """Add the gains of an event to its experts; whether all sums were made anew."""
    rates, _, groups = tuning
    references, totals = sums
    risky = due
    first, last = groups_of(groups, rates.size, action)
    for j in range(first, last):
        row = min(j, scores.shape[0] - 1)
        score, residue = scores[row, action], residues[row, action]
        before = math.exp(exponent(rates[j], score, residue, references[j]))
        score, residue = plus(score, residue, gains[row])
        scores[row, action], residues[row, action] = score, residue
        x = exponent(rates[j], score, residue, references[j])
        risky = risky or is_risky(gains[row], x)
        if not risky:
            totals[j] += math.exp(x) - before
    if risky:
        refresh(tuning, scores, residues, sums)
    return risky


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
    shares = np.empty(tuning[0].size)
    share_out(tuning, sums, level, shares)
    for t in range(actions.size):
        b = actions[t]
        played[t] = probability(tuning, scores, residues, sums, shares, b)
        due = is_due(scores.shape[1], rounds + t + 1)
        if gains[t, 0] == 0.0 and not due:  # then those of all levels are: the reward was 0
            continue
        learn(tuning, scores, residues, sums, b, gains[t], due)
        level = settle(tuning, sums, level, shares)
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
    shares, played = np.empty(tuning[0].size), np.empty(1)
    for t in range(actions.size):
        share_out(tuning, sums, level, shares)
        policy(tuning, scores, residues, sums, shares, out[t])
        one = slice(t, t + 1)
        level, _ = replay(
            tuning, scores, residues, sums, level, rounds + t, actions[one], gains[one], played
        )
    return level, 0.0


@compiled
def weighted_sums(
    tuning: Tuning,
    scores: Array,
    residues: Array,
    references: Array,
    rewards: Array,
    out: Array,
) -> None:
    """Σ exp(η_j (G(a) − reference_j)) r(a) over each group's experts."""
    rates, _, groups = tuning
    for j in range(rates.size):
        row = min(j, scores.shape[0] - 1)
        out[j] = 0.0
        for a in range(scores.shape[1]):
            if is_member(groups, a, j):
                x = exponent(rates[j], scores[row, a], residues[row, a], references[j])
                out[j] += math.exp(x) * rewards[a]


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
    shares, weighted, before = np.empty(rates.size), np.empty(rates.size), np.empty(rates.size)
    share_out(tuning, sums, level, shares)
    earned, value, row_of_rewards = 0.0, 0.0, -1
    for t in range(actions.size):
        b = actions[t]
        new_row = row_of_rewards + 1 < starts.size and starts[row_of_rewards + 1] == t
        if new_row:
            row_of_rewards += 1
            weighted_sums(tuning, scores, residues, references, rewards[row_of_rewards], weighted)
            value = worth(shares, weighted, totals)
        earned += value
        due = is_due(scores.shape[1], rounds + t + 1)
        if gains[t, 0] == 0.0 and not due:
            continue
        before[:] = totals
        reward = rewards[row_of_rewards]
        if learn(tuning, scores, residues, sums, b, gains[t], due):
            weighted_sums(tuning, scores, residues, references, reward, weighted)
        else:
            first, last = groups_of(groups, rates.size, b)
            for j in range(first, last):
                weighted[j] += (totals[j] - before[j]) * reward[b]
        level = settle(tuning, sums, level, shares)
        value = worth(shares, weighted, totals)
    return level, earned


@compiled
def worth(shares: Array, weighted: Array, totals: Array) -> float:
    """Σ_a π(a) r(a), by groups."""
    value = 0.0
    for j in range(shares.size):
        value += shares[j] * weighted[j] / totals[j]
    return value
