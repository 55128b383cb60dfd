"""Ridge regression for every action, one row at a time, and random Fourier features.

    A_a = ℓI + Σ x xᵀ,   u_a = A_a⁻¹ Σ x R,   v_a = A_a⁻¹ Σ x      over the rows of action a

An event changes the matrices of its own action: A⁻¹ by the formula of Sherman and Morrison, so
that a row costs O(p²). A⁻¹ is symmetric, and its lower triangle is stored, row by row: a row of it
is read and written once per event. All sums run in a fixed order, so that batching changes no bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from understudy.kernels.compiler import compiled
from understudy.kernels.exponential_weights import inner

Array = Any


@compiled
def multiply(triangle: Array, x: Array, out: Array) -> None:
    """Compute A⁻¹x from the lower triangle."""
    out[:] = 0.0
    start = 0
    for i in range(x.size):
        c, total = x[i], 0.0
        for j in range(i):
            entry = triangle[start + j]
            total += entry * x[j]
            out[j] += entry * c
        out[i] += total + triangle[start + i] * c
        start += i + 1


@compiled
def learn(triangle: Array, u: Array, v: Array, x: Array, reward: float, image: Array) -> None:
    """Add a row (x, R) to the regression of its action; `image` is a buffer for A⁻¹x."""
    multiply(triangle, x, image)
    scale = 1.0 / (1.0 + inner(x, image))
    by_reward, by_one = (reward - inner(x, u)) * scale, (1.0 - inner(x, v)) * scale
    start = 0
    for i in range(x.size):
        u[i] += by_reward * image[i]
        v[i] += by_one * image[i]
        c = scale * image[i]
        for j in range(i + 1):
            triangle[start + j] -= c * image[j]
        start += i + 1


@compiled
def estimate(
    triangles: Array,
    u: Array,
    v: Array,
    center: float,
    x: Array,
    width: bool,
    scores: Array,
    widths: Array,
    image: Array,
) -> None:
    """Compute ⟨x, u_a − center v_a⟩ of every action and, if wanted, the width √(xᵀA_a⁻¹x)."""
    for a in range(scores.size):
        total = 0.0
        for i in range(x.size):
            total += x[i] * (u[a, i] - center * v[a, i])
        scores[a] = total
        if width:
            multiply(triangles[a], x, image)
            widths[a] = math.sqrt(max(0.0, inner(x, image)))


@compiled
def play(scores: Array, widths: Array, betas: Array, temperatures: Array, policies: Array) -> None:
    """Compute the policy of every variant: softmax of (score − β width)/τ, (variants, K)."""
    for k in range(temperatures.size):
        largest = -math.inf
        for a in range(scores.size):
            value = scores[a]
            if betas[k] > 0.0:
                value -= betas[k] * widths[a]
            policies[k, a] = value / temperatures[k]
            largest = max(largest, policies[k, a])
        total = 0.0
        for a in range(scores.size):
            policies[k, a] = math.exp(policies[k, a] - largest)
            total += policies[k, a]
        for a in range(scores.size):
            policies[k, a] /= total


@compiled
def center_of(rewards: float, rounds: int, centered: bool) -> float:
    """Return the mean reward so far, to which estimates shrink; 0 if they shrink to 0."""
    return rewards / rounds if centered and rounds > 0 else 0.0


@compiled
def policies_at(
    triangles: Array,
    u: Array,
    v: Array,
    center: float,
    betas: Array,
    temperatures: Array,
    contexts: Array,
    out: Array,
) -> None:
    """Compute the policies of contexts (n, p) in one state: (n, variants, K)."""
    K = u.shape[0]
    scores, widths, image = np.empty(K), np.zeros(K), np.empty(u.shape[1])
    width = betas.max() > 0.0
    for t in range(contexts.shape[0]):
        estimate(triangles, u, v, center, contexts[t], width, scores, widths, image)
        play(scores, widths, betas, temperatures, out[t])


@compiled
def replay(
    triangles: Array,
    u: Array,
    v: Array,
    rewards: float,
    rounds: int,
    centered: bool,
    betas: Array,
    temperatures: Array,
    events: tuple[Array, Array, Array],
    whole: bool,
    out: Array,
) -> float:
    """Learn from contexts, actions and rewards in place; return Σ R.

    Before each event record its policies, (n, variants, K), or if not `whole` the probability of
    its action, (n, variants, 1).
    """
    contexts, actions, seen = events
    K = u.shape[0]
    scores, widths, image = np.empty(K), np.zeros(K), np.empty(u.shape[1])
    policies, width = np.empty((temperatures.size, K)), betas.max() > 0.0
    for t in range(actions.size):
        b, x = actions[t], contexts[t]
        center = center_of(rewards, rounds + t, centered)
        estimate(triangles, u, v, center, x, width, scores, widths, image)
        if whole:
            play(scores, widths, betas, temperatures, out[t])
        else:
            play(scores, widths, betas, temperatures, policies)
            for k in range(temperatures.size):
                out[t, k, 0] = policies[k, b]
        learn(triangles[b], u[b], v[b], x, seen[t], image)
        rewards += seen[t]
    return rewards


@compiled
def fourier(contexts: Array, frequencies: Array, phases: Array, scale: float, out: Array) -> None:
    """Compute scale · cos(⟨ω_d, x⟩ + phase_d), (n, D), for frequencies (p, D), and a constant 1."""
    D = phases.size
    angles = np.empty(D)
    for t in range(contexts.shape[0]):
        for d in range(D):
            angles[d] = phases[d]
        for i in range(contexts.shape[1]):
            c = contexts[t, i]
            for d in range(D):
                angles[d] += c * frequencies[i, d]
        out[t, 0] = 1.0
        for d in range(D):
            out[t, d + 1] = scale * math.cos(angles[d])
