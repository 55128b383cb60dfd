"""Exponential weights that begin at a prior: the identity, the theorem on every path, the bounds.

KL(π*‖w₁) takes the place of log K, with a fixed rate and with one that falls.
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
    PESSIMISTIC,
    Adversary,
    Expected,
    Node,
    adversaries,
    assert_at_most,
    comparators,
    expected,
    gain,
    gains_along,
    log_of_mean_growth,
    mild_behaviors,
    mild_rates,
    nodes_of,
    summed,
    total_gains,
)
from tests.support.formulas import softmax
from tests.support.strategies import Array, Game, behaviors, games, logs, quick, seeds
from tests.theory.test_anytime import gains_of, rate
from tests.theory.test_theorems import LARGE_GAMES
from understudy import theory
from understudy.errors import InvalidArgument
from understudy.learners import ExponentialWeights

FIXED: dict[str, Callable[[Array, float, Array], ExponentialWeights]] = {
    "exp3": lambda q, eta, prior: us.exp3(q, eta=eta, prior=prior),
    "exp3_ix": lambda q, eta, prior: us.exp3_ix(q, eta=eta, prior=prior),
    "prod": lambda q, eta, prior: us.prod(q, eta=eta, prior=prior),
    "exp3_ix_unknown": lambda q, eta, prior: us.exp3_ix_unknown(len(q), eta=eta, prior=prior),
}
FALLING: dict[str, Callable[..., ExponentialWeights]] = {"exp3_ix": us.exp3_ix, "prod": us.prod}


def drawn_prior(seed: int, n_actions: int) -> Array:
    """Weights over six orders of magnitude."""
    weights = 10.0 ** np.random.default_rng(seed).uniform(-6.0, 0.0, n_actions)
    return np.asarray(weights / weights.sum())


def kl(policy: Array, prior: Array) -> float:
    """KL(π*‖w₁), once more, a term at a time."""
    pairs = zip(policy.tolist(), prior.tolist(), strict=True)
    return math.fsum(p * math.log(p / w) for p, w in pairs if p > 0)


def hostile_log(learner: ExponentialWeights, rng: np.random.Generator, rounds: int) -> us.Log:
    """Every event is about the action that the learner trusts least, or most, by turns."""
    state, actions, rewards = learner.init(), [], []
    for t in range(rounds):
        policy = learner.policy(state)
        least = t % 5 < 3
        actions.append(int(policy.argmin() if least else policy.argmax()))
        rewards.append(float(least or rng.random() < 0.2))
        state = learner.update(state, us.Feedback(actions[-1], rewards[-1]))
    return us.Log(actions, rewards)


@pytest.mark.parametrize("name", FIXED)
@quick
@given(data=st.data(), behavior=mild_behaviors, eta=mild_rates, seed=seeds)
def test_telescoping_from_a_prior(
    name: str, data: st.DataObject, behavior: Array, eta: float, seed: int
) -> None:
    """Σ_t log⟨π_t, e^{ηg_t}⟩ = log Σ_a w₁(a) e^{ηG(a)}, and the first policy is w₁."""
    prior = drawn_prior(seed, len(behavior))
    learner = FIXED[name](behavior, eta, prior)
    np.testing.assert_allclose(learner.policy(learner.init()), prior, rtol=1e-12)
    log = data.draw(logs(us.exp3(behavior, eta=eta), max_rounds=20))
    gains = gains_along(name, behavior, eta, log)
    totals = total_gains(len(behavior), log.actions, gains)
    potential = np.logaddexp.reduce(np.log(prior) + eta * totals)
    growth = log_of_mean_growth(learner, log, gains).sum()
    assert growth == pytest.approx(potential, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("name", FALLING)
@quick
@given(data=st.data(), behavior=behaviors(zeros=False, decades=1.0), seed=seeds)
def test_a_prior_stays_while_rates_fall(
    name: str, data: st.DataObject, behavior: Array, seed: int
) -> None:
    """π_t(a) ∝ w₁(a) exp(η_t Σ_{k<t} g_k(a)): the rate falls on gains, not on the prior."""
    K, prior = len(behavior), drawn_prior(seed, len(behavior))
    learner = FALLING[name](behavior, prior=prior)
    log = data.draw(logs(learner, max_rounds=60))
    gains = gains_of(name, behavior, log)
    _, found = learner.policies(learner.init(), log)
    for t in range(len(log)):
        totals = total_gains(K, log.actions[:t], gains[:t])
        wanted = softmax(np.log(prior) + rate(K, t + 1) * totals)
        np.testing.assert_allclose(found[t], wanted, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("name", FALLING)
@quick
@given(behavior=behaviors(zeros=False, decades=6.0), eta=st.floats(0.01, 20.0), seed=seeds)
def test_the_theorem_from_a_prior(
    name: str, *, falling: bool, behavior: Array, eta: float, seed: int
) -> None:
    """Σ_t⟨π*, g_t⟩ ≤ KL(π*‖w₁)/η_n + Σ_t⟨π_t, r̂_t⟩ against an adversary that watches.

    Without a term for the price: propensities down to 1e-6, and any π*.
    """
    K, prior, n = len(behavior), drawn_prior(seed, len(behavior)), 40
    if falling:
        learner, last = FALLING[name](behavior, prior=prior), rate(K, n)
    else:
        learner, last = FIXED[name](behavior, eta, prior), eta
    log = hostile_log(learner, np.random.default_rng(seed), n)
    gains = gains_of(name, behavior, log) if falling else gains_along(name, behavior, eta, log)
    totals = total_gains(K, log.actions, gains)
    _, trace = learner.replay(learner.init(), log)
    unbiased = float(trace.probability @ (log.rewards / behavior[log.actions]))
    best = softmax(np.log(prior) + last * totals)  # π* for which the inequality is sharpest
    for comparator in [*comparators(K), prior, best]:
        assert_at_most(comparator @ totals, kl(comparator, prior) / last + unbiased)


def expected_with_prior(
    name: str, learner: ExponentialWeights, game: Game, adversary: Adversary
) -> Expected:
    """The exact expectations without a horizon; scores hold the prior, so gains are formulas."""
    K = len(game.behavior)

    def gains_at(node: Node) -> Array:
        eta, gains = rate(K, len(node.history) + 1), np.zeros(K)
        for a in node.after:
            q = float(game.behavior[a])
            gains[a] = q * gain(name, float(node.rewards[a]), q, eta)
        return gains

    return summed(nodes_of(learner, game, adversary), gains_at)


def assert_bounds(name: str, eta: float, prior: Array, game: Game, adversary: Adversary) -> None:
    """E Reg(π*) ≤ KL(π*‖w₁)/η + E Σ⟨π*, r_t − g_t⟩ ≤ the bounds, horizon or none."""
    K, n, q = len(game.behavior), game.rounds, game.behavior
    exact = expected(FIXED[name](q, eta, prior), game, adversary)
    for comparator in comparators(K):
        sharpest = kl(comparator, prior) / eta + exact.bias(comparator)
        assert_at_most(exact.regret(comparator), sharpest)
        arguments: Any = {"horizon": n, "eta": eta, "prior": prior}
        bound = PESSIMISTIC[name](comparator, q, total_rewards=exact.rewards, **arguments)
        assert_at_most(sharpest, bound)
        assert_at_most(bound, theory.theorem1_bound(comparator, q, **arguments))
    exact = expected_with_prior(name, FALLING[name](q, prior=prior), game, adversary)
    scale = theory.anytime_scale(K)
    for comparator in comparators(K):
        sharpest = kl(comparator, prior) / rate(K, n) + exact.bias(comparator)
        assert_at_most(exact.regret(comparator), sharpest)
        bound = theory.theorem1_anytime_bound(comparator, q, horizon=n, scale=scale, prior=prior)
        assert_at_most(sharpest, bound)


@pytest.mark.parametrize("name", FALLING)
@quick
@given(game=games(), adversary=adversaries, eta=st.floats(0.02, 20.0), seed=seeds)
def test_expected_regret_from_a_prior(
    name: str, game: Game, adversary: Adversary, eta: float, seed: int
) -> None:
    assert_bounds(name, eta, drawn_prior(seed, len(game.behavior)), game, adversary)


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("name", FALLING)
def test_expected_regret_from_a_prior_in_larger_games(name: str, adversary: str) -> None:
    game = LARGE_GAMES["three actions"]
    for eta in (0.3, 10.0):
        assert_bounds(name, eta, np.array([0.7, 0.2, 0.1]), game, ADVERSARIES[adversary])


@quick
@given(behavior=behaviors(zeros=False), eta=mild_rates, n=st.integers(1, 10**6))
def test_a_learner_that_begins_as_production(behavior: Array, eta: float, n: int) -> None:
    """With w₁ = π_B the logarithm is log C(a), at most log C(π*), and 0 against production."""
    for recipe in (us.exp3, us.exp3_ix, us.prod):
        learner = recipe(behavior, eta=eta, prior="behavior")
        np.testing.assert_allclose(learner.policy(learner.init()), behavior, rtol=1e-12)
    nothing = np.zeros(len(behavior))

    def logarithm(comparator: int | Array) -> float:
        bound = theory.theorem1_bound(
            comparator, behavior, horizon=n, eta=eta, prior=behavior, total_rewards=nothing
        )
        return bound * eta

    for a in range(len(behavior)):
        assert logarithm(a) == pytest.approx(math.log(us.coverage(a, behavior)), abs=1e-12)
    for comparator in comparators(len(behavior)):
        assert_at_most(logarithm(comparator), math.log(us.coverage(comparator, behavior)))
    against = theory.theorem1_bound(behavior, behavior, horizon=n, eta=eta, prior=behavior)
    assert_at_most(against, eta * n * len(behavior) / 2)
    assert abs(logarithm(behavior)) <= 1e-12


@quick
@given(behavior=mild_behaviors, eta=mild_rates, seed=seeds, data=st.data())
def test_every_bound_of_theorem_1_takes_the_prior(
    behavior: Array, eta: float, seed: int, data: st.DataObject
) -> None:
    """The prior moves each by (KL(π*‖w₁) − log K)/η, and nothing else."""
    K, prior = len(behavior), drawn_prior(seed, len(behavior))
    n = data.draw(st.integers(1, 1000))
    last = rate(K, n)
    for comparator in comparators(K):
        moved = kl(comparator, prior) - math.log(K)
        for bound, own, arguments in (
            (theory.theorem1_bound, eta, {"eta": eta}),
            (theory.prod_bound, eta, {"eta": eta}),
            (theory.theorem1_high_probability_bound, eta, {"eta": eta, "delta": 0.1}),
            (theory.theorem1_anytime_bound, last, {"scale": theory.anytime_scale(K)}),
        ):
            options: Any = {"horizon": n, **arguments}
            without = bound(comparator, behavior, **options)
            found = bound(comparator, behavior, prior=prior, **options)
            assert found - without == pytest.approx(moved / own, rel=1e-9, abs=1e-9 * without)


@quick
@given(behavior=behaviors(zeros=False, decades=6.0), eta=st.floats(0.01, 20.0), seed=seeds)
def test_the_step_to_high_probability_from_a_prior(behavior: Array, eta: float, seed: int) -> None:
    """Step (1) of the proof: Σ⟨π*, r̃_t⟩ ≤ KL(π*‖w₁)/η + Σ log(1 + η⟨π_t, r̂_t⟩)/η."""
    K, prior = len(behavior), drawn_prior(seed, len(behavior))
    learner = us.exp3_ix(behavior, eta=eta, prior=prior)
    log = hostile_log(learner, np.random.default_rng(seed), 30)
    totals = total_gains(K, log.actions, gains_along("exp3_ix", behavior, eta, log))
    _, trace = learner.replay(learner.init(), log)
    growth = np.log1p(eta * trace.probability * log.rewards / behavior[log.actions]).sum()
    for comparator in [*comparators(K), prior]:
        assert_at_most(comparator @ totals, (kl(comparator, prior) + growth) / eta)


@pytest.mark.parametrize("name", ["exp3", "exp3_ix", "prod"])
@quick
@given(data=st.data(), behavior=behaviors(zeros=False), eta=mild_rates, seed=seeds)
def test_states_with_a_prior_add_up(
    name: str, data: st.DataObject, behavior: Array, eta: float, seed: int
) -> None:
    """The prior counts once, not once for each part."""
    learner = FIXED[name](behavior, eta, drawn_prior(seed, len(behavior)))
    log = data.draw(logs(learner))
    cut = data.draw(st.integers(0, len(log)))
    first, second = (learner.replay(learner.init(), part)[0] for part in (log[:cut], log[cut:]))
    whole, _ = learner.replay(learner.init(), log)
    np.testing.assert_allclose(
        learner.policy(learner.merge(first, second)), learner.policy(whole), rtol=1e-9, atol=1e-300
    )


def test_an_action_of_prior_0_has_no_bound() -> None:
    q, prior = [0.5, 0.3, 0.2], [0.5, 0.5, 0.0]
    assert theory.theorem1_bound(2, q, horizon=9, eta=0.1, prior=prior) == math.inf
    assert theory.theorem1_bound(1, q, horizon=9, eta=0.1, prior=prior) < math.inf


def test_a_prior_of_another_length_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="3 actions"):
        theory.theorem1_bound(0, [0.5, 0.3, 0.2], horizon=9, eta=0.1, prior=[0.5, 0.5])
