"""Weights with a different rate for each group of experts, in O(groups) a round.

    w(e) = w₁(e) exp(η_e (G(e) − Λ)),   Λ such that Σ_e w(e) = 1

Experts with the same rate and prior form a group j. For each group, S_j = Σ exp(η_j (G −
reference_j)) is updated with each event, like W in `exponential_weights`. So Λ is the root of a sum
over groups (`normalizer`), and π(a) is the sum of its experts' exp(η_j (G − reference_j)) times the
scales of the groups. These weights are computed on first use, and cached until G or the reference
changes.

The experts of an action are a row of (K, experts), and their groups a row of (rows, experts):
either every action is one expert, of the group `rows[a]`, or of none if that is the number of
groups; or every action is an expert of every group, and there is one row. The behavior policy may
be one more row of experts, at the index `production` (−1: it is none). Its estimated reward is R
in every round, whatever was played, because π_B(b)/q(b) = 1.

Functions that run in every round take arrays, not tuples or parts of arrays, and call only such
functions: numba then counts no references, which would cost more than the arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from understudy.kernels.compiler import compiled
from understudy.kernels.exponential_weights import (
    LARGEST_EXPONENT,
    UNKNOWN,
    exponent,
    is_due,
    largest,
    plus,
    probability_of,
)
from understudy.kernels.normalizer import exp, rescale, seek, settle

Array = Any
# Rates, log w₁, the row of every action; which gain; the index of the behavior policy, or −1;
# whether rates without weight may be ignored in the search of Λ (`active_rate`).
GroupTuning = tuple[Array, Array, Array, bool, int, bool]
GroupSums = tuple[Array, Array]  # reference and S of every group
LARGEST_LOSS = 0.5  # of ηx: then ηx − log(1 + ηx) ≤ 0.7726 (ηx)²
NEGLIGIBLE = 1e-12  # of all weights: far above rounding, far below the accuracy of Λ
Events = tuple[Array, Array, Array]  # actions, rewards, and the probabilities they were played with


@compiled
def gain_of(logarithmic: bool, reward: float, propensity: float, rate: float) -> float:
    """Return log(1 + ηR/q)/η, or R/(q + η/2): never negative, so that no weight falls.

    `np.divide` has no check for a divisor 0, which would prevent vectorization.
    """
    if logarithmic:
        return float(np.divide(np.log1p(rate * np.divide(reward, propensity)), rate))
    return float(np.divide(reward, propensity + rate / 2.0))


@compiled
def in_rows(values: Array, experts: int) -> Array:
    """Return a view of values per group as (rows, experts)."""
    return values.reshape(values.size // experts, experts)


@compiled
def weigh(
    rates: Array,
    references: Array,
    row: int,
    scores: Array,
    residues: Array,
    action: int,
    weights: Array,
) -> None:
    """Compute exp(η_j (G − reference_j)) of an action's experts."""
    for i in range(weights.shape[1]):
        x = exponent(rates[row, i], scores[action, i], residues[action, i], references[row, i])
        weights[action, i] = exp(x)


@compiled
def weigh_all(
    rates: Array, references: Array, rows: Array, scores: Array, residues: Array, weights: Array
) -> None:
    """Compute the weights of all actions, 0 without experts; `exp` runs in one vectorized loop."""
    for a in range(rows.size):
        row = rows[a]
        for i in range(weights.shape[1]):
            weights[a, i] = -math.inf
            if row < rates.shape[0]:
                weights[a, i] = exponent(
                    rates[row, i], scores[a, i], residues[a, i], references[row, i]
                )
    flat = weights.reshape(weights.size)
    for k in range(flat.size):
        flat[k] = exp(flat[k])


@compiled
def weighted_sums(rows: Array, weights: Array, values: Array, out: Array) -> None:
    """Compute Σ exp(η_j (G(a) − reference_j)) v(a) over each group's experts."""
    out[:] = 0.0
    for a in range(rows.size):
        if rows[a] < out.shape[0]:
            for i in range(out.shape[1]):
                out[rows[a], i] += weights[a, i] * values[a]


@compiled
def refresh(
    rates: Array,
    references: Array,
    totals: Array,
    rows: Array,
    scores: Array,
    residues: Array,
    weights: Array,
) -> None:
    """Compute each group's reference, its largest score, and S relative to it, from scores only."""
    references[:] = -math.inf
    for a in range(rows.size):
        if rows[a] < rates.shape[0]:
            for i in range(rates.shape[1]):
                references[rows[a], i] = max(references[rows[a], i], scores[a, i])
    weigh_all(rates, references, rows, scores, residues, weights)
    weighted_sums(rows, weights, np.ones(rows.size), totals)


@compiled
def begin(tuning: GroupTuning, scores: Array, residues: Array, sums: GroupSums) -> float:
    """Compute all sums from the scores only; return Λ, found in two passes for accuracy."""
    rates, log_prior, rows, _, _, _ = tuning
    references, totals = sums
    experts, weights = scores.shape[1], np.empty(scores.shape)
    rates_of, references_of = in_rows(rates, experts), in_rows(references, experts)
    totals_of = in_rows(totals, experts)
    refresh(rates_of, references_of, totals_of, rows, scores, residues, weights)
    level, room = largest(references), np.empty(rates.size)
    for _ in range(2):
        level = seek(rates, log_prior, references, totals, level, room)
    return level


@compiled
def add(scores: Array, residues: Array, others: Array) -> None:
    """Add other scores to G (residues are already added)."""
    for a in range(scores.shape[0]):
        for i in range(scores.shape[1]):
            scores[a, i], residues[a, i] = plus(scores[a, i], residues[a, i], others[a, i])


@compiled
def probability(scales: Array, row: int, weights: Array, action: int, mass: float) -> float:
    """Return π(a), the sum over its experts; 0 if it has none."""
    total = 0.0
    if row < scales.shape[0]:
        for i in range(scales.shape[1]):
            total += scales[row, i] * weights[action, i]
    return probability_of(total, mass)


@compiled
def policy(
    tuning: GroupTuning, scores: Array, residues: Array, sums: GroupSums, level: float, out: Array
) -> None:
    """Compute π(a) of every action."""
    rates, log_prior, rows, _, _, _ = tuning
    references, totals = sums
    scales, weights, experts = np.empty(rates.size), np.empty(scores.shape), scores.shape[1]
    mass = rescale(rates, log_prior, references, totals, level, scales)
    rates_of, references_of = in_rows(rates, experts), in_rows(references, experts)
    weigh_all(rates_of, references_of, rows, scores, residues, weights)
    for a in range(out.size):
        out[a] = probability(in_rows(scales, experts), rows[a], weights, a, mass)


@compiled
def learn(
    rates: Array,
    references: Array,
    row: int,
    scores: Array,
    residues: Array,
    event: tuple[int, float, float, bool],
    room: Array,
) -> bool:
    """Add an event to the scores of its experts, and put their new weights into `room`.

    Return whether a weight is too large, so that all must be refreshed.
    """
    action, reward, propensity, logarithmic = event
    for i in range(room.size):
        gain = gain_of(logarithmic, reward, propensity, rates[row, i])
        score, residue = plus(scores[action, i], residues[action, i], gain)
        scores[action, i], residues[action, i] = score, residue
    too_large = False
    for i in range(room.size):
        x = exponent(rates[row, i], scores[action, i], residues[action, i], references[row, i])
        too_large |= x > LARGEST_EXPONENT
        room[i] = exp(x)
    return too_large


@compiled
def active_rate(rates: Array, totals: Array, scales: Array) -> float:
    """Return the largest rate with some of the weight.

    Λ never falls at fixed rates, so a weight below `NEGLIGIBLE` stays there, and does not limit
    steps towards Λ. Large rates lose their weight soon; with them every step would be too long.
    """
    fastest = 0.0
    for j in range(rates.size):
        if scales[j] * totals[j] > NEGLIGIBLE:
            fastest = max(fastest, rates[j])
    return fastest


@compiled
def replace(totals: Array, row: int, weights: Array, action: int, room: Array) -> None:
    """Replace an action's weights by those in `room`, and put their growth into `room`."""
    for i in range(room.size):
        growth = room[i] - weights[action, i]
        totals[row, i] += growth
        weights[action, i] = room[i]
        room[i] = growth


@compiled
def largest_products(
    rows: Array, weights: Array, factors: Array, production: int, largest: Array
) -> None:
    """Compute max_a weight(a) v(a) for every group, (rows, experts), without the behavior policy.

    v may be infinite, for actions that are not played.
    """
    largest[:] = 0.0
    for a in range(rows.size):
        if a != production and rows[a] < largest.shape[0]:
            for i in range(largest.shape[1]):
                if weights[a, i] > 0.0:
                    largest[rows[a], i] = max(largest[rows[a], i], weights[a, i] * factors[a])


@compiled
def bound_of(scales: Array, largest: Array, mass: float) -> float:
    """Return an upper bound on max_a π(a) v(a), from the largest products of groups."""
    found = 0.0
    for row in range(largest.shape[0]):
        total = 0.0
        for i in range(largest.shape[1]):
            total += scales[row, i] * largest[row, i]
        found = max(found, total)
    return found / mass


@compiled
def replay(  # noqa: C901, PLR0912 - one loop, in which the behavior policy may be one more expert
    tuning: GroupTuning,
    scores: Array,
    residues: Array,
    sums: GroupSums,
    level: float,
    rounds: int,
    events: Events,
    played: Array,
    factors: Array,
    bound: Array,
    follows: Array,
) -> tuple[float, float]:
    """Learn from all events in place; return the last Λ, and 0.

    Before each round, record π_t(b_t), and with `factors` v a bound on max_a π_t(a) v(a) without
    the share of the behavior policy, and that share.
    """
    rates, log_prior, rows, logarithmic, production, ignores = tuning
    references, totals = sums
    actions, seen, q = events
    experts, scales, weights = scores.shape[1], np.empty(rates.size), np.empty(scores.shape)
    rates_of, references_of = in_rows(rates, experts), in_rows(references, experts)
    totals_of, scales_of = in_rows(totals, experts), in_rows(scales, experts)
    weights[:, 0], room, fastest = UNKNOWN, np.empty(experts), largest(rates)
    mass = rescale(rates, log_prior, references, totals, level, scales)
    bounded, products = factors.size > 0, np.empty(rates_of.shape)
    if bounded:
        weigh_all(rates_of, references_of, rows, scores, residues, weights)
        largest_products(rows, weights, factors, production, products)
    for t in range(actions.size):
        b, row = actions[t], rows[actions[t]]
        has_experts = row < rates_of.shape[0]
        if bounded:
            bound[t] = bound_of(scales_of, products, mass)
        if has_experts and weights[b, 0] == UNKNOWN:
            weigh(rates_of, references_of, row, scores, residues, b, weights)
        played[t] = probability(scales_of, row, weights, b, mass)
        if production >= 0:
            if weights[production, 0] == UNKNOWN:
                weigh(rates_of, references_of, 0, scores, residues, production, weights)
            own = probability(scales_of, 0, weights, production, mass)
            played[t] = min(1.0, played[t] + own * q[t])
            if bounded:
                follows[t] = own
        learns, fresh = has_experts and seen[t] > 0.0, is_due(rows.size, rounds + t + 1)
        if learns:
            event = b, seen[t], q[t], logarithmic
            fresh |= learn(rates_of, references_of, row, scores, residues, event, room)
        elif not fresh:
            continue
        if not fresh:
            replace(totals_of, row, weights, b, room)
            if bounded:
                for i in range(experts):
                    products[row, i] = max(products[row, i], weights[b, i] * factors[b])
        if production >= 0 and learns:
            event = production, seen[t], 1.0, logarithmic
            fresh |= learn(rates_of, references_of, 0, scores, residues, event, room)
            if not fresh:
                replace(totals_of, 0, weights, production, room)
        if fresh:
            refresh(rates_of, references_of, totals_of, rows, scores, residues, weights)
            if bounded:
                largest_products(rows, weights, factors, production, products)
        if ignores:
            fastest = active_rate(rates, totals, scales)
        level, mass = settle(rates, log_prior, references, totals, level, scales, fastest, fresh)
    return level, 0.0


@compiled
def centered_gain(ratio: float, reward: float, center: float, excess: float, rate: float) -> float:
    """Return log(1 + ηx)/η for x = w (R − c) + c, with w = π(b)/q(b).

    c is `center`, or less, so that ηx ≥ −½ for all w ≤ 1 + `excess`. For a larger w, x is −½/η at
    least. With c = 0, x = w R.
    """
    c = min(center, LARGEST_LOSS / (rate * excess)) if excess > 0.0 else center
    return float(np.log1p(max(-LARGEST_LOSS, rate * (ratio * (reward - c) + c))) / rate)


@compiled
def replay_all(
    tuning: GroupTuning,
    scores: Array,
    residues: Array,
    sums: GroupSums,
    level: float,
    events: tuple[Array, Array, Array, Array],
    policies: Array,
) -> tuple[float, float]:
    """Learn from rounds in which every action has an estimated reward; return the last Λ, and 0.

    `events` are ratios w (n, K), and of each round R, c and the largest w less 1. Before each round
    record π_t in `policies`. All actions have the experts of the only row. All scores change in a
    round, up or down, so all sums are computed from them.
    """
    rates, log_prior, rows, _, _, _ = tuning
    references, totals = sums
    ratios, rewards, centers, excesses = events
    experts, scales, weights = scores.shape[1], np.empty(rates.size), np.empty(scores.shape)
    rates_of, references_of = in_rows(rates, experts), in_rows(references, experts)
    totals_of, scales_of = in_rows(totals, experts), in_rows(scales, experts)
    mass = rescale(rates, log_prior, references, totals, level, scales)
    weigh_all(rates_of, references_of, rows, scores, residues, weights)
    for t in range(ratios.shape[0]):
        for a in range(rows.size):
            policies[t, a] = probability(scales_of, 0, weights, a, mass)
        if rewards[t] == 0.0 and centers[t] == 0.0:
            continue
        for a in range(rows.size):
            for i in range(experts):
                g = centered_gain(ratios[t, a], rewards[t], centers[t], excesses[t], rates[i])
                scores[a, i], residues[a, i] = plus(scores[a, i], residues[a, i], g)
        refresh(rates_of, references_of, totals_of, rows, scores, residues, weights)
        level = seek(rates, log_prior, references, totals, level, scales)
        mass = rescale(rates, log_prior, references, totals, level, scales)
    return level, 0.0


@compiled
def mix(shares: Array, policies: Array, out: Array) -> None:
    """Compute Σ_m share_m π_m of every round, (n, K), from shares (n, M), policies (n, M, K)."""
    for t in range(shares.shape[0]):
        out[t] = 0.0
        for m in range(shares.shape[1]):
            for a in range(out.shape[1]):
                out[t, a] += shares[t, m] * policies[t, m, a]
        for a in range(out.shape[1]):
            out[t, a] = min(1.0, out[t, a])


@compiled
def policies(
    tuning: GroupTuning,
    scores: Array,
    residues: Array,
    sums: GroupSums,
    level: float,
    rounds: int,
    events: Events,
    out: Array,
) -> tuple[float, float]:
    """Like `replay`, but record the weights of every round, (n, K) or (n, K + 1): without the
    behavior policy they are π_t.
    """
    actions, rewards, propensities = events
    played, nothing = np.empty(1), np.empty(0)
    for t in range(actions.size):
        policy(tuning, scores, residues, sums, level, out[t])
        one = slice(t, t + 1)
        event = actions[one], rewards[one], propensities[one]
        level, _ = replay(
            tuning,
            scores,
            residues,
            sums,
            level,
            rounds + t,
            event,
            played,
            nothing,
            nothing,
            nothing,
        )
    return level, 0.0


@compiled
def mean_reward(scales: Array, weighted: Array, mass: float) -> float:
    """Return Σ_a π(a) r(a), summed over groups."""
    value = 0.0
    for j in range(scales.size):
        value += scales[j] * weighted[j]
    return value / mass


@compiled
def expected_reward(  # noqa: C901 - as above
    tuning: GroupTuning,
    scores: Array,
    residues: Array,
    sums: GroupSums,
    level: float,
    rounds: int,
    events: Events,
    rewards: Array,
    starts: Array,
) -> tuple[float, float]:
    """Like `replay`, but return the expected reward Σ_t ⟨π_t, r_t⟩, given all rewards.

    Row i of `rewards` applies from event starts[i] on; its last entry is the reward of the behavior
    policy, if that is an expert. A round costs O(groups), a new row one pass over all experts.
    """
    rates, log_prior, rows, logarithmic, production, ignores = tuning
    references, totals = sums
    actions, seen, q = events
    experts, scales, weights = scores.shape[1], np.empty(rates.size), np.empty(scores.shape)
    rates_of, references_of = in_rows(rates, experts), in_rows(references, experts)
    totals_of, weighted, room = in_rows(totals, experts), np.empty(rates.size), np.empty(experts)
    weighted_of, fastest = in_rows(weighted, experts), largest(rates)
    mass = rescale(rates, log_prior, references, totals, level, scales)
    weigh_all(rates_of, references_of, rows, scores, residues, weights)
    earned, value, k = 0.0, 0.0, -1
    for t in range(actions.size):
        b, row = actions[t], rows[actions[t]]
        if k + 1 < starts.size and starts[k + 1] == t:
            k += 1
            weighted_sums(rows, weights, rewards[k], weighted_of)
            value = mean_reward(scales, weighted, mass)
        earned += value
        learns, fresh = row < rates_of.shape[0] and seen[t] > 0.0, is_due(rows.size, rounds + t + 1)
        if learns:
            event = b, seen[t], q[t], logarithmic
            fresh |= learn(rates_of, references_of, row, scores, residues, event, room)
        elif not fresh:
            continue
        if not fresh:
            replace(totals_of, row, weights, b, room)
            for i in range(experts):
                weighted_of[row, i] += room[i] * rewards[k, b]
        if production >= 0 and learns:
            event = production, seen[t], 1.0, logarithmic
            fresh |= learn(rates_of, references_of, 0, scores, residues, event, room)
            if not fresh:
                replace(totals_of, 0, weights, production, room)
                for i in range(experts):
                    weighted_of[0, i] += room[i] * rewards[k, production]
        if fresh:
            refresh(rates_of, references_of, totals_of, rows, scores, residues, weights)
            weighted_sums(rows, weights, rewards[k], weighted_of)
        if ignores:
            fastest = active_rate(rates, totals, scales)
        level, mass = settle(rates, log_prior, references, totals, level, scales, fastest, fresh)
        value = mean_reward(scales, weighted, mass)
    return level, earned
