"""The paper's statements, each as a test that is exact: an identity, or a sum over all outcomes.

Pathwise inequalities on random logs, and expected regrets over all sequences of small games
(`enumeration.py`). No test here needs Monte Carlo.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.enumeration import (
    ADVERSARIES,
    KNOWN,
    PESSIMISTIC,
    RECIPES,
    ROUNDING,
    Adversary,
    adversaries,
    assert_at_most,
    comparator_tables,
    comparators,
    estimated_rewards,
    expected,
    expected_linear,
    gains_along,
    lin_prod_policies,
    log_of_mean_growth,
    mild_behaviors,
    mild_rates,
    nodes_of,
    plug_in_gain,
    theta_hat,
    total_gains,
)
from tests.support.strategies import (
    Array,
    Game,
    LinearGame,
    behaviors,
    games,
    linear_games,
    linear_logs,
    logs,
    policies,
    quick,
    rates,
    seeds,
    unit_numbers,
)
from understudy import theory
from understudy.learners import ExponentialWeights

LINEAR = [us.lin_prod, us.lin_prod_compact]

# Section 4, pathwise: what holds on every log


@pytest.mark.parametrize("name", RECIPES)
@quick
@given(data=st.data(), behavior=mild_behaviors, eta=mild_rates)
def test_telescoping(name: str, data: st.DataObject, behavior: Array, eta: float) -> None:
    """Proof of Lemma rbound_partial: Σ_t log⟨π_t, e^{ηg_t}⟩ = log Σ_a e^{ηG(a)} − log K."""
    learner = RECIPES[name](behavior, eta)
    log = data.draw(logs(KNOWN["exp3"](behavior, eta), max_rounds=20))
    gains = gains_along(name, behavior, eta, log)
    totals = total_gains(len(behavior), log.actions, gains)
    potential = np.logaddexp.reduce(eta * totals) - math.log(len(behavior))
    growth = log_of_mean_growth(learner, log, gains).sum()
    assert growth == pytest.approx(potential, rel=1e-10, abs=1e-10)
    state, _ = learner.replay(learner.init(), log)
    np.testing.assert_allclose(state.scores, totals, rtol=1e-12)


@pytest.mark.parametrize("name", RECIPES)
@quick
@given(data=st.data(), behavior=mild_behaviors, eta=mild_rates)
def test_lemma_rbound_partial(name: str, data: st.DataObject, behavior: Array, eta: float) -> None:
    """Lemma rbound_partial: Σ_t⟨π*, r̃_t⟩ ≤ (log K + Σ_t log⟨π_t, e^{ηr̃_t}⟩)/η, for every π*.

    It is tight up to log K/η: without that term the right side is at most the left one of the
    best action.
    """
    learner = RECIPES[name](behavior, eta)
    log = data.draw(logs(KNOWN["exp3"](behavior, eta), max_rounds=20))
    gains = gains_along(name, behavior, eta, log)
    totals = total_gains(len(behavior), log.actions, gains)
    growth = log_of_mean_growth(learner, log, gains).sum()
    for comparator in comparators(len(behavior)):
        assert_at_most(comparator @ totals, (math.log(len(behavior)) + growth) / eta)
    assert_at_most(growth / eta, totals.max())


@pytest.mark.parametrize("name", ["exp3_ix", "prod"])
@quick
@given(data=st.data(), behavior=mild_behaviors, eta=mild_rates)
def test_almostbound(name: str, data: st.DataObject, behavior: Array, eta: float) -> None:
    """Equation (almostbound): Σ_t⟨π*, r̃_t⟩ ≤ log K/η + Σ_t⟨π_t, r̂_t⟩ with γ = η/2."""
    learner = RECIPES[name](behavior, eta)
    log = data.draw(logs(learner, max_rounds=20))
    totals = total_gains(len(behavior), log.actions, gains_along(name, behavior, eta, log))
    _, trace = learner.replay(learner.init(), log)
    unbiased = float(trace.probability @ (log.rewards / behavior[log.actions]))
    assert_at_most(totals.max(), math.log(len(behavior)) / eta + unbiased)


@quick
@given(game=linear_games(), data=st.data(), fraction=st.floats(0.05, 1.0))
def test_telescoping_of_lin_prod(game: LinearGame, data: st.DataObject, fraction: float) -> None:
    """Proof of Lemma prod_classic_bound, in every context x:

    Σ_t log Σ_a π_t(a|x)(1 + η r̂_t(x,a)) = log W_{n+1}(x) − log K.
    """
    eta = fraction * game.largest_rate
    contexts, log = data.draw(linear_logs(game))
    factors = 1 + eta * estimated_rewards(game, contexts, log)
    table = lin_prod_policies(game.learner(eta), game, log)[:-1]
    growth = np.log((table * factors).sum(axis=2)).sum(axis=0)
    weights = factors.prod(axis=0).sum(axis=1)
    np.testing.assert_allclose(growth, np.log(weights / game.n_actions), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("recipe", LINEAR)
@quick
@given(game=linear_games(), data=st.data(), fraction=st.floats(0.05, 1.0))
def test_lemma_prod_classic_bound(
    recipe: Callable[..., Any], game: LinearGame, data: st.DataObject, fraction: float
) -> None:
    """Lemma prod_classic_bound: R̂eg(π*, x) ≤ log K/η + c η Σ_tΣ_a π*(a|x) r̂_t(x,a)².

    The paper's c is 1, ours is 0.7726.
    """
    eta = fraction * game.largest_rate
    contexts, log = data.draw(linear_logs(game))
    r_hat = estimated_rewards(game, contexts, log)
    assert (eta * np.abs(r_hat) <= 0.5 + ROUNDING).all()  # the condition, by Cauchy–Schwarz
    learner = game.play(recipe, eta)
    earned = (lin_prod_policies(learner, game, log)[:-1] * r_hat).sum(axis=(0, 2))
    for comparator in comparator_tables(*game.behavior.shape):
        regret = (comparator * r_hat).sum(axis=(0, 2)) - earned
        squares = learner.curvature * (comparator * r_hat**2).sum(axis=(0, 2))
        bounds = math.log(game.n_actions) / eta + eta * squares
        for found, bound in zip(regret, bounds, strict=True):
            assert_at_most(found, bound)


def estimates(learner: ExponentialWeights, n_actions: int, rewards: Array) -> Array:
    """What its estimator makes of each action, if it is the one that is played in round 1."""
    estimator = learner.estimator
    log = us.Log(actions=np.arange(n_actions), rewards=rewards)
    each = [estimator.gains(estimator.init(), 0, log[a : a + 1])[0] for a in range(n_actions)]
    return np.concatenate(each)


@quick
@given(behavior=behaviors(zeros=False), gamma=st.floats(1e-3, 5.0), reward=unit_numbers)
def test_ix_vs_prod(behavior: Array, gamma: float, reward: float) -> None:
    """Equation (IX_vs_prod): R/(q + γ) ≤ log(1 + 2γ r̂)/(2γ) ≤ r̂: IX ≤ Prod ≤ unbiased."""
    K, rewards = len(behavior), np.full(len(behavior), reward)
    ix = estimates(us.exp3_ix(behavior, eta=2 * gamma), K, rewards)
    prod = estimates(us.prod(behavior, eta=2 * gamma), K, rewards)
    unbiased = estimates(us.exp3(behavior, eta=2 * gamma), K, rewards)
    assert (ix <= prod * (1 + 1e-12)).all()
    assert (prod <= unbiased * (1 + 1e-12)).all()
    assert ((reward == 0) | (ix < unbiased)).all()
    np.testing.assert_allclose(np.expm1(2 * gamma * prod), 2 * gamma * unbiased, rtol=1e-12)


# Expected estimates: the K actions enumerated


@quick
@given(data=st.data(), behavior=behaviors(zeros=False), gamma=st.floats(1e-3, 5.0))
def test_expected_estimates(data: st.DataObject, behavior: Array, gamma: float) -> None:
    """Equation (ixr_to_r): E[r̂(a)] = r(a) and E[r̃(a)] = r(a) q(a)/(q(a) + γ) ≤ r(a)."""
    K = len(behavior)
    rewards = np.array(data.draw(st.lists(unit_numbers, min_size=K, max_size=K)))
    unbiased = behavior * estimates(us.exp3(behavior, eta=0.5), K, rewards)
    np.testing.assert_allclose(unbiased, rewards, rtol=1e-12)
    ix = behavior * estimates(us.exp3_ix(behavior, eta=0.5, gamma=gamma), K, rewards)
    np.testing.assert_allclose(ix, rewards * behavior / (behavior + gamma), rtol=1e-12)
    np.testing.assert_allclose(ix, rewards - gamma * rewards / (behavior + gamma), atol=1e-12)


@pytest.mark.parametrize("recipe", LINEAR)
@quick
@given(game=linear_games(rounds=1), fraction=st.floats(0.05, 1.0))
def test_expected_theta_hat(recipe: Callable[..., Any], game: LinearGame, fraction: float) -> None:
    """Equation (theta_hat): E[θ̂] = θ over contexts and actions, E[r̂(x,a)²] ≤ φᵀV⁻¹φ."""
    learner = game.play(recipe, fraction * game.largest_rate)
    mean, squares = np.zeros(len(game.V)), np.zeros(game.behavior.shape)
    for x, a in np.ndindex(game.behavior.shape):
        event = us.Feedback(a, float(game.rewards[0, x, a]), None, game.shown[x])
        theta = theta_hat(game, learner.init(), learner.update(learner.init(), event))
        chance = game.probabilities[x] * game.behavior[x, a]
        mean += chance * theta
        squares += chance * (game.features @ theta) ** 2
    np.testing.assert_allclose(mean, game.thetas[0], rtol=1e-9, atol=1e-9)
    solved = np.einsum("de,xke->xkd", np.linalg.inv(game.V), game.features)
    assert (squares <= (solved * game.features).sum(axis=2) * (1 + ROUNDING)).all()


# Expected regret: all sequences enumerated


LARGE_GAMES = {
    "two actions": Game(np.array([0.9, 0.1]), np.random.default_rng(5).random((7, 2))),
    "three actions": Game(np.array([0.1, 0.3, 0.6]), np.random.default_rng(6).random((6, 3))),
    "unseen action": Game(np.array([0.25, 0.0, 0.75]), np.random.default_rng(7).random((7, 3))),
    "hidden reward": Game(np.array([0.02, 0.98]), np.tile([1.0, 0.0], (7, 1))),
}


def assert_theorem1(name: str, eta: float, game: Game, adversary: Adversary) -> None:
    """E Reg(π*) ≤ log K/η + E Σ_t⟨π*, r_t − g_t⟩ ≤ prod_bound ≤ theorem1_bound, for every π*."""
    K, n = len(game.behavior), game.rounds
    exact = expected(RECIPES[name](game.behavior, eta), game, adversary)
    for comparator in comparators(K):
        arguments: Any = {"horizon": n, "eta": eta, "total_rewards": exact.rewards}
        bound = PESSIMISTIC[name](comparator, game.behavior, **arguments)
        sharpest = math.log(K) / eta + exact.bias(comparator)
        assert_at_most(exact.regret(comparator), sharpest)
        assert_at_most(sharpest, bound)
        assert_at_most(bound, theory.theorem1_bound(comparator, game.behavior, **arguments))
        assert_at_most(bound, PESSIMISTIC[name](comparator, game.behavior, horizon=n, eta=eta))


@pytest.mark.parametrize("name", PESSIMISTIC)
@quick
@given(game=games(), adversary=adversaries, eta=st.floats(0.02, 20.0))
def test_theorem1(name: str, game: Game, adversary: Adversary, eta: float) -> None:
    """Theorem 1, Equation (bound_full), with any η > 0: Exp3-IX at γ = η/2, and Prod."""
    assert_theorem1(name, eta, game, adversary)


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("size", LARGE_GAMES)
@pytest.mark.parametrize("name", PESSIMISTIC)
def test_theorem1_in_larger_games(name: str, size: str, adversary: str) -> None:
    """Theorem 1 over up to 3⁶ sequences, at small rates and at large ones."""
    for eta in (0.1, 1.0, 10.0):
        assert_theorem1(name, eta, LARGE_GAMES[size], ADVERSARIES[adversary])


@quick
@given(game=games(), adversary=adversaries, eta=st.floats(0.02, 20.0), data=st.data())
def test_the_price_of_pessimism(
    game: Game, adversary: Adversary, eta: float, data: st.DataObject
) -> None:
    """Proof of Theorem 1: E Σ⟨π*, r̃_t⟩ = E Σ⟨π*, r_t⟩ − γ Σ_tΣ_a π*(a) E r_t(a)/(q(a) + γ).

    So Equation (bound_full) is log K/η and this price, nothing else.
    """
    comparator = data.draw(policies(len(game.behavior)))
    exact = expected(us.exp3_ix(game.behavior, eta=eta), game, adversary)
    price = sum(
        p * (eta / 2) * r / (q + eta / 2)
        for p, r, q in zip(comparator, exact.rewards, game.behavior, strict=True)
    )
    assert exact.bias(comparator) == pytest.approx(price, rel=1e-10, abs=1e-10)
    bound = theory.theorem1_bound(
        comparator, game.behavior, horizon=game.rounds, eta=eta, total_rewards=exact.rewards
    )
    wanted = math.log(len(game.behavior)) / eta + price
    assert bound == pytest.approx(wanted, rel=1e-10)


@quick
@given(game=games(), adversary=adversaries, eta=st.floats(0.02, 20.0), data=st.data())
def test_the_price_of_prod(
    game: Game, adversary: Adversary, eta: float, data: st.DataObject
) -> None:
    """For rewards of 0 and 1, Prod's bound is log K/η + E Σ⟨π*, r_t − g_t⟩ exactly.

    The bias is r − (q/η) log(1 + ηr/q), convex in r and 0 at r = 0.
    """
    binary = Game(game.behavior, game.rewards.round())
    comparator = data.draw(policies(len(game.behavior)))
    exact = expected(us.prod(game.behavior, eta=eta), binary, adversary)
    bound = theory.prod_bound(
        comparator, game.behavior, horizon=game.rounds, eta=eta, total_rewards=exact.rewards
    )
    wanted = math.log(len(game.behavior)) / eta + exact.bias(comparator)
    assert bound == pytest.approx(wanted, rel=1e-10)


@quick
@given(game=games(), adversary=adversaries, eta=rates, floor=st.floats(0.5, 3.0))
def test_theorem1_with_any_larger_gamma(
    game: Game, adversary: Adversary, eta: float, floor: float
) -> None:
    """Proof of Theorem 1 with any γ_t ≥ η/2: E Reg(π*) ≤ log K/η + E Σ⟨π*, r_t − r̃_t⟩."""
    learner = us.exp3_ix(game.behavior, eta=eta, gamma=lambda t: eta * (floor + 1 / t))
    exact = expected(learner, game, adversary)
    for comparator in comparators(len(game.behavior)):
        bound = math.log(len(game.behavior)) / eta + exact.bias(comparator)
        assert_at_most(exact.regret(comparator), bound)


@quick
@given(game=games(zeros=False), adversary=adversaries, data=st.data())
def test_theorem1_simplified(game: Game, adversary: Adversary, data: st.DataObject) -> None:
    """Theorem 1's √(n log K)(1 + C/2), for all comparators, and √(2 C n log K), for one C."""
    K, n = len(game.behavior), game.rounds
    uniform = expected(us.exp3_ix(game.behavior, horizon=n), game, adversary)
    for comparator in comparators(K):
        ratio = us.coverage(comparator, game.behavior)
        assert_at_most(uniform.regret(comparator), theory.theorem1_uniform_bound(K, n, ratio))
    target = data.draw(policies(K))
    ratio = us.coverage(target, game.behavior)
    tuned = expected(us.exp3_ix(game.behavior, horizon=n, coverage=ratio), game, adversary)
    assert_at_most(tuned.regret(target), theory.theorem1_tuned_bound(K, n, ratio))


@quick
@given(game=games(zeros=False), adversary=adversaries, fraction=st.floats(0.05, 1.0))
def test_exp3_bound(game: Game, adversary: Adversary, fraction: float) -> None:
    """Section 3.1: Exp3's regret ≤ log K/η + η Σ_tΣ_a E[π_t(a)]/q(a), given η ≤ min q.

    Its estimates are unbiased: E Σ⟨π_t, r̂_t⟩ = E Σ⟨π_t, r_t⟩ and E Σ r̂_t = E Σ r_t.
    """
    K, n, eta = len(game.behavior), game.rounds, fraction * float(game.behavior.min())
    exact = expected(us.exp3(game.behavior, eta=eta), game, adversary)
    assert exact.estimated == pytest.approx(exact.earned, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(exact.gains, exact.rewards, rtol=1e-9)
    bound = theory.exp3_bound(
        game.behavior, horizon=n, eta=eta, total_probabilities=exact.probabilities
    )
    for comparator in comparators(K):
        assert_at_most(exact.regret(comparator), bound)
    assert_at_most(bound, theory.exp3_bound(game.behavior, horizon=n, eta=eta))


@quick
@given(game=games(), adversary=adversaries, eta=rates)
def test_plug_in_estimates(game: Game, adversary: Adversary, eta: float) -> None:
    """Equation (pit) in every round that can happen: r̃_t(a) = r_t(a)/(π̂_t(a) + γ_t)."""
    learner, K = us.exp3_ix_unknown(len(game.behavior), eta=eta), len(game.behavior)
    for node in nodes_of(learner, game, adversary):
        for a, after in node.after.items():
            wanted = plug_in_gain(float(node.rewards[a]), a, node.history, K, eta)
            found = after.scores[a] - node.state.scores[a]
            assert found == pytest.approx(wanted, rel=1e-10, abs=1e-12)


@quick
@given(game=games(zeros=False), adversary=adversaries)
def test_theorem2(game: Game, adversary: Adversary) -> None:
    """Theorem 2: the regret without knowing π_B, against the full and the simplified bound."""
    K, n = len(game.behavior), game.rounds
    learner = us.exp3_ix_unknown(K, horizon=n)
    exact = expected(learner, game, adversary)
    for comparator in comparators(K):
        ratio = us.coverage(comparator, game.behavior)
        bound = theory.theorem2_bound(K, horizon=n, eta=learner.rate(0), coverage=ratio)
        assert_at_most(exact.regret(comparator), bound)
        assert_at_most(bound, theory.theorem2_simplified_bound(K, n, ratio))


@quick
@given(behavior=behaviors(max_actions=4), eta=rates, seed=seeds)
def test_theorem2_is_pessimistic_on_the_good_event(behavior: Array, eta: float, seed: int) -> None:
    """Equation (hpbound): where |π̂_t − π_B| ≤ ε_t, r̃_t ≤ R/(q + η/2) ≤ log(1 + η r̂_t)/η."""
    K, n = len(behavior), 200
    rng = np.random.default_rng(seed)
    log = us.Log(actions=rng.choice(K, size=n, p=behavior), rewards=rng.random(n))
    estimator = us.exp3_ix_unknown(K, eta=eta).estimator
    gains, _ = estimator.gains(estimator.init(), 0, log)
    past = np.arange(1, n)
    counts = np.cumsum(np.eye(K)[log.actions], axis=0)[:-1]
    width = np.sqrt(np.log(K * past**2) / (2 * past))
    error = np.abs(counts / past[:, np.newaxis] - behavior).max(axis=1)
    good = np.concatenate([[True], error <= width])
    assert good.sum() > n / 2
    q = behavior[log.actions]
    ix, prod = log.rewards / (q + eta / 2), np.log1p(eta * log.rewards / q) / eta
    assert (gains[good] <= ix[good] * (1 + 1e-12)).all()
    assert (ix <= prod * (1 + 1e-12)).all()


def assert_theorem3(
    recipe: Callable[..., Any], game: LinearGame, eta: float, *, adaptive: bool
) -> None:
    """Theorem 3 for every comparator, with its learner's constant, and the decomposition."""
    n, learner = len(game.thetas), game.play(recipe, eta)
    exact = expected_linear(learner, game, adaptive=adaptive)
    for comparator in comparator_tables(*game.behavior.shape):
        regret = exact.regret(comparator)
        assert exact.estimated_regret(comparator) == pytest.approx(regret, rel=1e-8, abs=1e-8)
        ratio = us.feature_coverage(game.covariance(comparator), game.V)
        bound = theory.lin_prod_bound(
            game.n_actions, horizon=n, eta=eta, coverage=ratio, curvature=learner.curvature
        )
        assert_at_most(regret, bound)


@pytest.mark.parametrize("recipe", LINEAR)
@pytest.mark.parametrize("adaptive", [False, True])
@quick
@given(game=linear_games(max_contexts=2, rounds=3), fraction=st.floats(0.1, 1.0))
def test_theorem3(
    recipe: Callable[..., Any], adaptive: bool, game: LinearGame, fraction: float
) -> None:
    """Theorem 3, log K/η + c η n C_φ(π*; π_B), over all sequences of contexts and actions.

    And Equation (regret_decomposition): E[R̂eg(π*, X_0)] = E[Reg(π*)].
    """
    assert_theorem3(recipe, game, fraction * game.largest_rate, adaptive=adaptive)


@pytest.mark.parametrize("recipe", LINEAR)
@pytest.mark.parametrize("adaptive", [False, True])
def test_theorem3_in_a_larger_game(recipe: Callable[..., Any], adaptive: bool) -> None:
    """Theorem 3 over 4⁵ sequences, with the largest admissible rate."""
    features = np.array([[[1.0, 0.0], [1.0, 1.0]], [[1.0, -0.5], [1.0, 0.5]]])
    behavior = np.array([[0.9, 0.1], [0.8, 0.2]])
    thetas = np.array([[0.5, 0.5], [0.5, -0.5], [0.4, 0.4], [0.25, 0.5], [0.5, 0.5]])
    game = LinearGame(features, np.array([0.3, 0.7]), behavior, thetas)
    assert_theorem3(recipe, game, game.largest_rate, adaptive=adaptive)
