"""Exponential weights in O(1) a round: an event changes one weight, and its change updates W.

    w(a) = exp(η (G(a) − reference)),   W = Σ_a w(a),   π(a) = w(a) / W

- G(a) is a compensated sum: `scores[a]` + `residues[a]` is exact to the last digit after any
  number of rounds.
- w(a) is always computed from G(a), never multiplied, so a weight that underflowed can recover. It
  is computed on first use, and cached until G(a) or the reference changes.
- W is refreshed, relative to the largest score, after the rounds E, 2E, … (E = max(1024, K)),
  counted from the beginning of the log and not of the call; before a weight could overflow; and
  whenever a weight falls. So rounding errors do not grow, and any batching gives the same bits.

Helpers that run every round take numbers, not arrays: numba then compiles them away.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from understudy.kernels.compiler import compiled

Array = Any  # float64 or int64 vectors

LARGEST_EXPONENT = 600.0  # of a weight: below overflow, also for a sum of very many of them
LARGEST_RESIDUE = 300.0  # of an exponent, after a refresh
SHORTEST_REFRESH = 1024  # rounds: refreshes cost next to nothing, and W cannot drift
UNKNOWN = -1.0  # a weight that is not computed yet


@compiled
def exponent(eta: float, score: float, residue: float, reference: float) -> float:
    """Return log w = η (G − reference).

    A residue is at most half a last digit of its score. If even that is a factor of e^300,
    no digit is significant, but weights must stay finite, and one of them positive.
    """
    rest = max(-LARGEST_RESIDUE, min(LARGEST_RESIDUE, eta * residue))
    return eta * (score - reference) + rest


@compiled
def plus(score: float, residue: float, gain: float) -> tuple[float, float]:
    """Return G + gain as a compensated sum: score and residue, by Knuth's two-sum."""
    total = score + gain
    arrived = total - score
    residue += (score - (total - arrived)) + (gain - arrived)
    whole = total + residue
    return whole, residue - (whole - total)


@compiled
def largest(values: Array) -> float:
    """Return the largest value. numba's own `max` imports SciPy when its code is loaded."""
    found = values[0]
    for value in values[1:]:
        found = max(found, value)
    return float(found)


@compiled
def weigh(eta: float, scores: Array, residues: Array, reference: float, weights: Array) -> None:
    """Compute w(a) of every action."""
    for a in range(scores.size):
        weights[a] = math.exp(exponent(eta, scores[a], residues[a], reference))


@compiled
def largest_product(weights: Array, factors: Array) -> float:
    """Return max_a w(a) v(a) over the actions that are played; v may be infinite."""
    found = 0.0
    for a in range(weights.size):
        if weights[a] > 0.0:
            found = max(found, weights[a] * factors[a])
    return found


@compiled
def refresh(eta: float, scores: Array, residues: Array, weights: Array) -> tuple[float, float]:
    """Return the reference, max G, and W relative to it, from the scores only."""
    reference = largest(scores)
    weigh(eta, scores, residues, reference, weights)
    total = 0.0
    for a in range(scores.size):
        total += weights[a]
    return reference, total


@compiled
def probability_of(weight: float, total: float) -> float:
    """Return w / W, at most 1: by rounding, W may be slightly below a dominant w."""
    return min(1.0, weight / total)


@compiled
def policy(
    eta: float, scores: Array, residues: Array, reference: float, total: float, out: Array
) -> None:
    """Compute π(a) of every action."""
    weigh(eta, scores, residues, reference, out)
    for a in range(scores.size):
        out[a] = probability_of(out[a], total)


@compiled
def is_due(n_actions: int, rounds: int) -> bool:
    """Return whether W is due for a refresh: every K rounds or more, so it costs O(1) a round."""
    return rounds % max(SHORTEST_REFRESH, n_actions) == 0


@compiled
def is_risky(gain: float, x: float) -> bool:
    """Return whether W must be refreshed after a gain that gives w = e^x.

    If a large weight falls, W has lost the digits of the small ones; and e^x must not overflow.
    """
    return gain < 0.0 or x > LARGEST_EXPONENT


@compiled
def inner(x: Array, y: Array) -> float:
    """Return ⟨x, y⟩, summed in the order of the entries."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@compiled
def merge(eta: float, scores: Array, residues: Array, others: Array) -> tuple[float, float]:
    """Add other scores to G (residues are already added); return the new reference and W."""
    for a in range(scores.size):
        scores[a], residues[a] = plus(scores[a], residues[a], others[a])
    return refresh(eta, scores, residues, np.empty(scores.size))


@compiled
def replay(
    eta: float,
    scores: Array,
    residues: Array,
    reference: float,
    total: float,
    rounds: int,
    actions: Array,
    gains: Array,
    probability: Array,
    factors: Array,
    bound: Array,
    follows: Array,  # noqa: ARG001 - no share of these weights is production's
) -> tuple[float, float]:
    """Learn from all events in place; return the reference and W.

    Before each round, record π_t(b_t), and max_a π_t(a) v(a) in `bound`, where v are `factors`; not
    the latter if there are none. Its maximum is carried along: weights grow one at a time.
    """
    n_actions, bounded, most = scores.size, factors.size > 0, 0.0
    weights = np.full(n_actions, UNKNOWN)
    if bounded:
        weigh(eta, scores, residues, reference, weights)
        most = largest_product(weights, factors)
    for t in range(actions.size):
        b, gain = actions[t], gains[t]
        if weights[b] == UNKNOWN:
            weights[b] = math.exp(exponent(eta, scores[b], residues[b], reference))
        before = weights[b]
        probability[t] = probability_of(before, total)
        if bounded:
            bound[t] = most / total
        due = is_due(n_actions, rounds + t + 1)
        if gain == 0.0 and not due:  # a common case: rewards of 0
            continue
        score, residue = plus(scores[b], residues[b], gain)
        scores[b], residues[b] = score, residue
        x = exponent(eta, score, residue, reference)
        if due or is_risky(gain, x):
            reference, total = refresh(eta, scores, residues, weights)
            if bounded:
                most = largest_product(weights, factors)
        else:
            weights[b] = math.exp(x)
            total += weights[b] - before
            if bounded:
                most = max(most, weights[b] * factors[b])
    return reference, total


@compiled
def policies(
    eta: float,
    scores: Array,
    residues: Array,
    reference: float,
    total: float,
    rounds: int,
    actions: Array,
    gains: Array,
    out: Array,
) -> tuple[float, float]:
    """Like `replay`, but record every policy π_t, (n, K)."""
    played, nothing = np.empty(1), np.empty(0)
    for t in range(actions.size):
        policy(eta, scores, residues, reference, total, out[t])
        one = slice(t, t + 1)
        reference, total = replay(
            eta,
            scores,
            residues,
            reference,
            total,
            rounds + t,
            actions[one],
            gains[one],
            played,
            nothing,
            nothing,
            nothing,
        )
    return reference, total


@compiled
def expected_reward(
    eta: float,
    scores: Array,
    residues: Array,
    reference: float,
    total: float,
    rounds: int,
    actions: Array,
    gains: Array,
    rewards: Array,
    starts: Array,
) -> tuple[float, float, float]:
    """Like `replay`, but return the expected reward Σ_t ⟨π_t, r_t⟩, given all rewards.

    Row i of `rewards` applies from event starts[i] on. A round costs O(1), a new row O(K).
    """
    n_actions = scores.size
    weights = np.empty(n_actions)
    weigh(eta, scores, residues, reference, weights)
    weighted, earned, row = 0.0, 0.0, -1
    for t in range(actions.size):
        b, gain = actions[t], gains[t]
        if row + 1 < starts.size and starts[row + 1] == t:
            row += 1
            weighted = inner(weights, rewards[row])
        earned += weighted / total
        due = is_due(n_actions, rounds + t + 1)
        if gain == 0.0 and not due:
            continue
        before = weights[b]
        score, residue = plus(scores[b], residues[b], gain)
        scores[b], residues[b] = score, residue
        x = exponent(eta, score, residue, reference)
        if due or is_risky(gain, x):
            reference, total = refresh(eta, scores, residues, weights)
            weighted = inner(weights, rewards[row])
        else:
            weights[b] = math.exp(x)
            total += weights[b] - before
            weighted += (weights[b] - before) * rewards[row, b]
    return reference, total, earned
