"""LinProd with an estimated V: it stays in the safe range, and becomes the learner that knows V."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

import understudy as us
from tests.support.strategies import quick, seeds

K = 3


@pytest.mark.large
def test_an_estimated_covariance_becomes_the_known_one() -> None:
    """On a long log of a fixed behavior the policies of both come together.

    The estimate of V has an error of order 1/√t and a bias of β = 2ηB²; so θ̂ differs by as much.
    """
    rng = np.random.default_rng(7)
    n, eta = 40_000, 0.002
    features = rng.uniform(-1, 1, (8, K, 2)) + np.array([1.0, 0.0])
    behavior = rng.dirichlet(np.ones(K), size=8)
    V = us.theory.feature_covariance(behavior, features)
    B = float(np.linalg.norm(features, axis=2).max())
    x = rng.integers(8, size=n)
    actions = (rng.random((n, 1)) > behavior[x].cumsum(axis=1)).sum(axis=1)
    rewards = (features[x, actions] @ np.array([0.3, 0.1])).clip(0, 1)
    log = us.Log(actions, rewards, features=features[x])
    known = us.lin_prod_compact(
        V, n_actions=K, eta=eta, kappa=us.theory.largest_leverage(features, V)
    )
    unknown = us.lin_prod_unknown(n_actions=K, dimension=2, feature_bound=B, eta=eta)
    one, _ = known.replay(known.init(), log)
    other, _ = unknown.replay(unknown.init(), log)
    M = np.linalg.inv(V + unknown.beta * np.eye(2))
    np.testing.assert_allclose(other.inverse, M, rtol=0.03, atol=0.03)
    np.testing.assert_allclose(other.sums.theta / n, one.theta / n, rtol=0, atol=0.02)
    wanted = np.array([known.policy(one, phi) for phi in features])
    found = np.array([unknown.policy(other, phi) for phi in features])
    assert np.abs(found - wanted).max() < 0.05
    assert wanted.max() > 0.9  # and both have learned something


@quick
@forall(seed=seeds, eta=st.floats(0.001, 2.0), apart=st.booleans())
def test_the_unknown_covariance_never_leaves_the_safe_range(
    seed: int, eta: float, apart: bool
) -> None:
    """|η⟨θ̂_t, φ⟩| ≤ ½ for every φ with ‖φ‖ ≤ B, whatever was seen: β = 2ηB² sees to it."""
    rng = np.random.default_rng(seed)
    n, d, B = 30, 3, 1.5
    learner = us.lin_prod_unknown(
        n_actions=K, dimension=d, feature_bound=B, eta=eta, disjoint=apart
    )
    features = rng.normal(size=(n, d) if apart else (n, K, d)) * 10.0 ** -rng.integers(0, 4)
    features *= np.minimum(1, B / np.linalg.norm(features, axis=-1, keepdims=True))
    log = us.Log(rng.integers(K, size=n), np.ones(n), features=features)
    state = learner.init()
    for event in log.events():
        after = learner.update(state, event)
        theta = (after.sums.theta - state.sums.theta).reshape(-1, d)
        assert eta * np.linalg.norm(theta, axis=1).max() * B <= 0.5 * (1 + 1e-9)
        learner.validate(after)
        state = after


def test_the_smallest_beta_is_the_default() -> None:
    learner = us.lin_prod_unknown(n_actions=K, dimension=2, feature_bound=3.0, eta=0.1)
    assert learner.beta == pytest.approx(2 * 0.1 * 9, rel=1e-15)
    with pytest.raises(us.errors.InadmissibleRate, match=r"beta >= 1\.8") as caught:
        us.lin_prod_unknown(n_actions=K, dimension=2, feature_bound=3.0, eta=0.1, beta=1.79)
    assert caught.value.largest == pytest.approx(1.79 / 18)


@pytest.mark.parametrize("eta", [1e-6, 1e-8, 1e-10])
def test_states_of_tiny_rates_are_its_own(eta: float) -> None:
    """β is tiny then, and the inverse of features that depend on each other only so exact."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(200, 2, 3))
    features = np.concatenate([own, own[..., :2] + own[..., 1:], 0 * own[..., :1]], axis=-1)
    features /= np.linalg.norm(features, axis=-1, keepdims=True)
    learner = us.lin_prod_unknown(n_actions=2, dimension=6, feature_bound=1.0, eta=eta)
    log = us.Log(rng.integers(2, size=200), rng.random(200), features=features)
    state, _ = learner.replay(learner.init(), log)
    learner.validate(state)
