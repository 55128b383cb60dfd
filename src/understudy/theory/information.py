"""The information limit: how much a round can tell about the gain of a policy.

No valid test of a fixed policy needs fewer rounds on average than log(1/δ) divided by KLinf, even
if it knows the game (half of the logs may be sooner). KLinf is the smallest divergence, per round,
of the rewards from rewards for which the policy earns no more than production, or a baseline.
"""

from __future__ import annotations

import numpy as np

from understudy.constraints import Array

BISECTIONS = 60  # of log θ between these ends: its last digits
LARGEST_LOG = 60.0


def least_divergence(
    policies: Array, behavior: Array, means: Array, baseline: Array | None = None
) -> Array:
    """KLinf of policies (n, K): min Σ_a q(a) kl(r(a), r'(a)) over r' with ⟨π − π₀, r'⟩ ≤ 0.

    π₀ is a baseline, or production. It is 0 where the policy earns no more than π₀. The minimum is
    where, for some θ ≥ 0, r' − r + θ v r' (1 − r') = 0 with v = (π − π₀)/q; ⟨q v, r'⟩ falls in θ,
    which is bisected.
    """
    v = policies / behavior - (1.0 if baseline is None else baseline / behavior)
    better = (v * behavior) @ means > 0.0
    low, high = np.full(len(v), -LARGEST_LOG), np.full(len(v), LARGEST_LOG)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        still = (_tilted(np.exp(middle)[:, np.newaxis] * v, means) * v) @ behavior > 0.0
        low, high = np.where(still, middle, low), np.where(still, high, middle)
    tilted = _tilted(np.exp(high)[:, np.newaxis] * v, means)
    divergence = _kl(means, tilted) @ behavior
    return np.asarray(np.where(better, divergence, 0.0))


def _tilted(u: Array, r: Array) -> Array:
    """The root r' of r' − r + u r' (1 − r') = 0 in [0, 1]; of the two forms, the accurate one."""
    b = 1.0 + u
    root = np.sqrt(np.maximum(b * b - 4.0 * u * r, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b > 0.0, 2.0 * r / (b + root), (b - root) / (2.0 * u))


def _kl(q: Array, p: Array) -> Array:
    """kl(q, p) of Bernoulli means, with 0 log 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.where(q > 0.0, q * np.log(q / p), 0.0)
        zero = np.where(q < 1.0, (1.0 - q) * np.log((1.0 - q) / (1.0 - p)), 0.0)
    return np.asarray(one + zero)
