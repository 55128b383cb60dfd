"""The information limit: KLinf is the smallest divergence from rewards without a gain."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.strategies import Array
from understudy.theory.information import least_divergence


def kl(q: Array, p: Array) -> Array:
    return np.asarray(q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p)))


def test_with_two_actions_the_nearest_rewards_are_equal() -> None:
    """⟨π − q, r'⟩ = 0 means equal r', and Σ q kl(r, m) is smallest at the mean m = ⟨q, r⟩."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        q, r = rng.dirichlet([1.0, 1.0]), rng.uniform(0.02, 0.98, 2)
        better = np.eye(2)[[r.argmax()]] * 0.5 + 0.5 * q
        (found,) = least_divergence(better, q, r)
        assert found == pytest.approx(float(q @ kl(r, np.full(2, q @ r))), rel=1e-6, abs=1e-15)
        worse = np.eye(2)[[r.argmin()]]
        assert least_divergence(worse, q, r).tolist() == [0.0]


def test_no_rewards_without_a_gain_are_nearer() -> None:
    """For more actions: among random r' on the boundary ⟨π − q, r'⟩ = 0, and near the best one."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        K = int(rng.integers(3, 6))
        q, policy, r = *rng.dirichlet(np.ones(K), 2), rng.uniform(0.1, 0.9, K)
        d = policy - q
        if d @ r <= 0.01:
            continue
        (found,) = least_divergence(policy[np.newaxis], q, r)
        others = r + rng.normal(0.0, 1.0, (4_000, K)) * rng.choice([0.02, 0.1, 0.3], (4_000, 1))
        others -= np.outer(others @ d / (d @ d), d)
        others = others[((others > 0.001) & (others < 0.999)).all(axis=1)]
        assert len(others) > 100
        distances = kl(r, others) @ q
        assert found <= distances.min()
        assert distances.min() < 1.5 * found + 0.02


def test_extreme_rewards_and_policies_have_a_limit() -> None:
    q, r = np.array([1e-6, 1 - 1e-6]), np.array([0.01, 0.99])
    for policy in ([0.0, 1.0], [1e-7, 1 - 1e-7]):
        assert 0.0 < least_divergence(np.array([policy]), q, r)[0] < 1e-3
    one = least_divergence(np.array([[1.0, 0.0]]), np.array([0.5, 0.5]), np.array([1.0, 0.0]))
    assert one[0] == pytest.approx(math.log(2.0))  # both pay in half of the rounds


def test_a_baseline_takes_the_place_of_production() -> None:
    """With two actions, a gain over either means that the second one earns more."""
    q, r, second = np.array([0.7, 0.3]), np.array([0.4, 0.5]), np.array([[0.0, 1.0]])
    (over_production,) = least_divergence(second, q, r)
    assert least_divergence(second, q, r, q)[0] == pytest.approx(over_production)
    assert least_divergence(second, q, r, np.array([1.0, 0.0]))[0] == pytest.approx(over_production)
    assert least_divergence(second, q, r, np.array([0.0, 1.0])).tolist() == [0.0]
