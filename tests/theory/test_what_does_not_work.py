"""The reasons in docs/theory.md why other roads do not lead here, as arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

import understudy as us
from tests.support.strategies import Array, behaviors, quick, rates


def centred_second_moment(q: Array, policy: Array, action: int) -> float:
    """E[(r̂(a) − ⟨π, r̂⟩)²] with rewards 1, over the K actions that the behavior may play."""
    total = 0.0
    for b in range(len(q)):
        estimate = np.zeros(len(q))
        estimate[b] = 1 / q[b]
        total += q[b] * (estimate[action] - policy @ estimate) ** 2
    return total


@quick
@given(q=behaviors(zeros=False, decades=4.0))
def test_centred_gains_pay_the_learners_own_variance(q: Array) -> None:
    """Squint and ML-Prod pay Σ_b (1{a=b} − π(b))²/q(b), which the learner's own π decides.

    While the learner trusts a rare action, the second moment for a common comparator is that of the
    rare one: 1/min q and not 1/q(a).
    """
    rare, common = int(q.argmin()), int(q.argmax())
    for trusted in range(len(q)):
        policy = np.eye(len(q))[trusted]
        found = centred_second_moment(q, policy, common)
        wanted = sum(((b == common) - policy[b]) ** 2 / q[b] for b in range(len(q)))
        assert found == pytest.approx(wanted, rel=1e-9)
    if rare != common:
        assert centred_second_moment(q, np.eye(len(q))[rare], common) >= 1 / q.min()


@pytest.mark.parametrize("alpha", [0.3, 0.7, 0.95])
@quick
@given(eta=rates)
def test_exponential_smoothing_is_not_pessimistic_enough(alpha: float, eta: float) -> None:
    """g = R/q^α breaks e^{ηg} ≤ 1 + ηR/q at q = 1, and by any factor as q → 0, at every rate."""
    assert math.exp(eta) > 1 + eta
    q = (eta / 700) ** (1 / alpha)  # then ηg = 700
    assert math.log1p(eta / q) < eta / q**alpha - 100
    for gain in (1 / (q + eta / 2), math.log1p(eta / q) / eta):  # IX and the logarithm do not
        assert eta * gain <= math.log1p(eta / q) * (1 + 1e-12)


@pytest.mark.parametrize("beta", [0.003, 0.03, 0.3])
def test_an_estimated_covariance_has_a_bias_of_either_sign(beta: float) -> None:
    """E[⟨(V + βI)⁻¹φR, φ(x,a)⟩] − r(x, a) is above 0 for one action and below 0 for another.

    So even the regularisation alone, with V known, is no pessimism; a wrong V̂ adds errors of any
    sign. (With propensities an overestimated q always underestimates R/q, because R ≥ 0.)
    """
    features = np.array([[1.0, 0.2], [0.4, -1.0], [0.6, 0.5]])
    behavior, theta = np.array([0.6, 0.1, 0.3]), np.array([0.5, -0.3])
    V = us.theory.feature_covariance([behavior], [features])
    rewards = features @ theta
    assert ((rewards >= 0) & (rewards <= 1)).all()
    expected = features @ np.linalg.inv(V + beta * np.eye(2)) @ V @ theta
    assert (expected > rewards + 1e-4).any()
    assert (expected < rewards - 1e-4).any()


@pytest.mark.parametrize("q", [[0.5, 0.3, 0.2], [0.9, 0.05, 0.05]])
def test_an_expert_that_has_seen_the_action_earns_what_no_policy_does(q: list[float]) -> None:
    """A column of ones, "the logged action for sure": E r̂ = Σ_a r(a), and no check can tell.

    Each entry is a probability, and the theorem holds on the path; the estimate is of no policy.
    """
    behavior, rewards = np.array(q), np.array([0.5, 0.6, 0.4])
    mixture = us.exp4(q, {"production": "production", "seer": us.learners.Outside("seer")})
    estimates = 0.0
    for action, chance in enumerate(q):
        event = us.Feedback(action, float(rewards[action]), experts=np.array([1.0]))
        state = mixture.update(mixture.init(), event)
        estimates += chance * float(state.earned[1])
    assert estimates == pytest.approx(rewards.sum(), rel=1e-12)
    assert estimates > rewards.max() >= float(behavior @ rewards)


def test_ridge_alone_stays_wrong_where_rewards_are_not_linear() -> None:
    """Contexts −1, 0, 1; action 0 pays 1, 0, 1 and action 1 always 0.6: the line pays ⅔ everywhere.

    After any number of rows the policy plays action 0 at the context 0, and loses 0.6 there.
    """
    contexts = np.array([[1.0, -1.0], [1.0, 0.0], [1.0, 1.0]])
    rewards = np.array([[1.0, 0.0, 1.0], [0.6, 0.6, 0.6]])
    learner = us.ridge(n_actions=2, dimension=2, temperature=0.005)
    for rows in (10**3, 10**6, 10**9):  # of each context and action
        state = learner.from_sufficient_statistics(
            np.array([contexts.T @ contexts] * 2) * rows,
            rewards @ contexts * rows,
            np.array([contexts.sum(axis=0)] * 2) * rows,
            counts=[3 * rows] * 2,
            rewards=float(rewards.sum() * rows),
        )
        assert learner.policy(state, contexts[1])[0] > 0.99


def test_with_a_center_a_column_of_zeros_is_not_found_out() -> None:
    """It claims to play nothing. Without a center it earns 0; with one, what production earns."""
    q, n = [0.5, 0.5], 2_000
    experts = {"production": "production", "nothing": us.learners.Outside("nothing")}
    actions, rewards = np.arange(n) % 2, np.ones(n)
    shares = {}
    log = us.Log(actions, rewards, experts=np.zeros((n, 1)))
    for name, least in (("centered", 0.5), ("raw", None)):  # columns have no center by default
        learner = us.exp4(q, experts, least_propensity=least)
        state, _ = learner.replay(learner.init(), log)
        shares[name] = learner.shares(state)["nothing"]
    assert shares["raw"] < 0.001
    assert shares["centered"] > 0.1
