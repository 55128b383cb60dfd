"""Chernoff's bounds on an unknown behavior: the estimator, and each inequality of its theorem.

Probabilities and expectations over the counts are binomial sums, the regret is summed over all
sequences of small games: nothing here is Monte Carlo.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support import formulas
from tests.support.enumeration import (
    ADVERSARIES,
    Adversary,
    History,
    adversaries,
    assert_at_most,
    comparators,
    expected,
    nodes_of,
)
from tests.support.strategies import Array, Game, games, quick, rates, unit_numbers
from understudy import theory
from understudy.errors import InvalidArgument
from understudy.theory.bounds import pessimism

PROBABILITIES = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
ROUNDS = (2, 3, 4, 6, 10, 20, 50, 200, 1000, 5000)
SIZES = (2, 10, 100)
ETAS = (0.002, 0.05, 1.0)


@cache
def exact_bound(count: int, past: int, n_actions: int) -> Any:
    """u_t of an action that was played `count` times in `past` rounds, by sixty digits."""
    if count == past:
        return mpmath.mpf(1)
    with mpmath.workdps(60):
        return formulas.exact_upper(count / past, past, math.log(n_actions * (past + 1) ** 2))


def chernoff_gain(
    reward: float, action: int, history: History, n_actions: int, eta: float
) -> float:
    """r̃_t = R/(u_t(b) + η/2) after the actions of `history`."""
    u = exact_bound(history.count(action), len(history), n_actions)
    return float(reward / (u + eta / 2))


@cache
def upper_bounds(m: int, n_actions: int) -> Array:
    """u_t(a) for t = m + 1 if a was played 0, 1, …, m times."""
    no_gamma: Any = 0.0  # R/(u + γ) is 1/u then
    estimator = us.estimators.ChernoffPlugIn(n_actions, no_gamma)
    played, t = np.arange(m + 1), np.full(m + 1, m + 1)
    return np.asarray(1 / estimator.gain(np.ones(m + 1), played / m, t))


@cache
def binomial(m: int, q: float) -> Array:
    """P(N = 0), …, P(N = m)."""
    k = np.arange(m + 1)
    logs = np.array([math.lgamma(i + 1) for i in range(m + 1)])
    return np.asarray(
        np.exp(logs[m] - logs - logs[::-1] + k * math.log(q) + (m - k) * math.log1p(-q))
    )


@quick
@given(game=games(max_rounds=3), adversary=adversaries, eta=rates)
def test_chernoff_estimates(game: Game, adversary: Adversary, eta: float) -> None:
    """r̃_t(a) = r_t(a)/(u_t(a) + η/2) in every round that can happen."""
    K = len(game.behavior)
    learner = us.exp3_ix_unknown(K, eta=eta, width="kl")
    for node in nodes_of(learner, game, adversary):
        for a, after in node.after.items():
            wanted = chernoff_gain(float(node.rewards[a]), a, node.history, K, eta)
            found = after.scores[a] - node.state.scores[a]
            assert found == pytest.approx(wanted, rel=1e-10, abs=1e-12)


def test_gamma_may_be_zero_as_no_upper_bound_is() -> None:
    """A hundred thousand rounds of one action, then the other: a gain, and a finite one."""
    learner = us.exp3_ix_unknown(2, eta=0.1, gamma=0.0, width="kl")
    log = us.Log(actions=[0] * 100_000 + [1], rewards=[0.0] * 100_000 + [1.0])
    state, _ = learner.replay(learner.init(), log)
    wanted = 1 / -math.expm1(-math.log(2 * 100_001**2) / 100_000)
    assert state.scores[1] == pytest.approx(wanted, rel=1e-9)
    with pytest.raises(InvalidArgument, match="γ > 0"):
        us.exp3_ix_unknown(2, eta=0.1, gamma=0.0)


@pytest.mark.parametrize("eta", [0.1, None], ids=["rate", "no horizon"])
def test_the_laws_of_learners(eta: float | None) -> None:
    us.check_learner(us.exp3_ix_unknown(4, eta=eta, width="kl"))


def test_no_less_eager_than_theorem_2_once_something_was_seen() -> None:
    """kl(q̂, p) ≥ 2(p − q̂)²: u_t − q̂ is at most Hoeffding's width for the same log(K t²)."""
    for K in SIZES:
        for t in ROUNDS:
            width = math.sqrt(math.log(K * t**2) / (2 * (t - 1)))
            frequencies = np.arange(t) / (t - 1)
            assert (upper_bounds(t - 1, K) <= frequencies + width + 1e-12).all()


# The proof, step by step


@pytest.mark.parametrize("n_actions", SIZES)
@pytest.mark.parametrize("t", ROUNDS)
def test_upper_bounds_fail_with_probability_one_in_k_t_squared(t: int, n_actions: int) -> None:
    """P(u_t(a) < q(a)) ≤ e^{−log(K t²)} = 1/(K t²), one-sided Chernoff, exactly."""
    for q in PROBABILITIES:
        failing = upper_bounds(t - 1, n_actions) < q
        assert_at_most(float(binomial(t - 1, q)[failing].sum()) * n_actions * t**2, 1.0)


def test_the_failure_probability_is_not_far_below_what_is_allowed() -> None:
    """So that log(K t) in place of log(K t²), or half the budget, would be seen."""
    shares = [
        float(binomial(t - 1, q)[upper_bounds(t - 1, K) < q].sum()) * K * t**2
        for K in SIZES
        for t in ROUNDS
        for q in PROBABILITIES
    ]
    assert max(shares) > 0.5


@quick
@given(
    q=st.floats(1e-4, 1.0),
    u=st.floats(1e-4, 1.0),
    own=unit_numbers,
    reward=unit_numbers,
    eta=st.floats(0.01, 10.0),
)
def test_one_round(q: float, u: float, own: float, reward: float, eta: float) -> None:
    """log⟨π_t, e^{ηg}⟩/η ≤ ⟨π_t, r̂⟩ if q(b) ≤ u(b), and ≤ 2/η whatever u(b) is."""
    gain = reward / (u + eta / 2)
    growth = math.log1p(own * math.expm1(eta * gain)) / eta
    if q <= u:
        assert_at_most(growth, own * reward / q)
    assert_at_most(growth, 2 / eta)


def test_upper_bounds_are_not_far_above_the_frequency() -> None:
    """kl(q̂, u) ≥ (u − q̂)²/(2u(1−q̂)), so u − q̂ ≤ √(2 u (1−q̂) ℓ/(t−1)), on a grid."""
    frequency, upper = np.meshgrid(np.linspace(0, 0.999, 400), np.linspace(1e-4, 0.9999, 401))
    above = upper > frequency
    q, u = frequency[above], upper[above]
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = np.where(q > 0, q * np.log(q / u), 0.0) + (1 - q) * np.log((1 - q) / (1 - u))
    assert (kl >= (u - q) ** 2 / (2 * u * (1 - q)) - 1e-12).all()
    for K in SIZES:
        for t in ROUNDS:
            bounds, seen = upper_bounds(t - 1, K), np.arange(t) / (t - 1)
            width = np.sqrt(2 * bounds * (1 - seen) * math.log(K * t**2) / (t - 1))
            assert (bounds - seen <= width * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize("t", ROUNDS)
def test_frequencies_exceed_their_probability_by_half_a_standard_deviation(t: int) -> None:
    """E(q̂ − q)₊ ≤ ½ √(q(1−q)/(t−1)), exactly."""
    for q in PROBABILITIES:
        excess = np.maximum(np.arange(t) / (t - 1) - q, 0.0)
        assert_at_most(float(binomial(t - 1, q) @ excess), 0.5 * math.sqrt(q * (1 - q) / (t - 1)))


@pytest.mark.parametrize("n_actions", SIZES)
@pytest.mark.parametrize("t", ROUNDS)
def test_pessimism(t: int, n_actions: int) -> None:
    """E[1 − q/(u_t + η/2)] ≤ min{1 − q/(1 + η/2), (η/2 + q w_t)/(q + η/2)}, exactly."""
    for q in PROBABILITIES:
        for eta in ETAS:
            share = 1 - q / (upper_bounds(t - 1, n_actions) + eta / 2)
            found = float(binomial(t - 1, q) @ share)
            bound = float(pessimism(np.array(q), np.array(float(t)), n_actions, eta))
            assert_at_most(found, bound)
            assert bound < 2 * found  # so the price is known to a factor of two


@pytest.mark.parametrize("n_actions", SIZES)
@pytest.mark.parametrize("t", ROUNDS)
def test_pessimism_is_what_the_steps_add_up_to(t: int, n_actions: int) -> None:
    """1 − q/(u+γ) ≤ (γ + q(u−q)₊/(u+γ))/(q+γ), and (u−q)₊ ≤ (q̂−q)₊ + √(2uℓ(1−q̂)/(t−1))."""
    length = math.log(n_actions * t**2)
    for q in PROBABILITIES:
        for gamma in (eta / 2 for eta in ETAS):
            u = upper_bounds(t - 1, n_actions)
            exact = (gamma + q * np.maximum(u - q, 0) / (u + gamma)) / (q + gamma)
            assert (1 - q / (u + gamma) <= exact + 1e-12).all()
            excess = 0.5 * math.sqrt(q * (1 - q) / (t - 1)) / (q + gamma)
            width = math.sqrt(2 * length * (1 - q) / ((t - 1) * (q + gamma)))
            steps = (gamma + q * (excess + width)) / (q + gamma)
            assert_at_most(float(binomial(t - 1, q) @ exact), steps)
            bound = float(pessimism(np.array(q), np.array(float(t)), n_actions, 2 * gamma))
            assert_at_most(min(steps, 1 - q / (1 + gamma)), bound)


@pytest.mark.parametrize("eta", ETAS)
def test_pessimism_of_the_unseen_and_of_the_first_round(eta: float) -> None:
    """Nothing of an action that is never played arrives; in round 1, u = 1."""
    t = np.array([1.0, 2.0, 1e6])
    assert pessimism(np.array(0.0), t, 3, eta).tolist() == [1.0, 1.0, 1.0]
    assert pessimism(np.array(0.7), t, 3, eta)[0] == 1 - 0.7 / (1 + eta / 2)


# The theorem


def assert_chernoff(game: Game, adversary: Adversary, eta: float) -> None:
    """E Reg ≤ log K/η + 2/(ηK) Σ t⁻² + E Σ⟨π*, r_t − g_t⟩ ≤ the full bound ≤ the simplified."""
    K, n = len(game.behavior), game.rounds
    exact = expected(us.exp3_ix_unknown(K, eta=eta, width="kl"), game, adversary)
    failures = sum(1 / (K * t**2) for t in range(2, n + 1))
    for comparator in comparators(K):
        sharpest = (math.log(K) + 2 * failures) / eta + exact.bias(comparator)
        bound = theory.chernoff_bound(comparator, game.behavior, horizon=n, eta=eta)
        assert_at_most(exact.regret(comparator), sharpest)
        assert_at_most(sharpest, bound)
        if (game.behavior[comparator > 0] > 0).all():
            C = us.coverage(comparator, game.behavior)
            simple = theory.chernoff_simplified_bound(K, horizon=n, eta=eta, coverage=C)
            assert_at_most(bound, simple)


@quick
@given(game=games(), adversary=adversaries, eta=st.floats(0.02, 20.0))
def test_chernoff_bound(game: Game, adversary: Adversary, eta: float) -> None:
    assert_chernoff(game, adversary, eta)


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("rounds", [7, 9])
def test_chernoff_bound_in_larger_games(rounds: int, adversary: str) -> None:
    rewards = np.random.default_rng(rounds).random((rounds, 2))
    for eta in (0.1, 1.0, 10.0):
        assert_chernoff(Game(np.array([0.9, 0.1]), rewards), ADVERSARIES[adversary], eta)


def test_the_whole_price_of_pessimism() -> None:
    """Σ_t E[1 − q/(u_t + η/2)] over 500 rounds, by binomial sums, below the full bound's."""
    n, K, eta = 500, 10, 0.05
    for q in (0.01, 0.1, 0.5):
        price = 1 - q / (1 + eta / 2)
        for t in range(2, n + 1):
            price += float(binomial(t - 1, q) @ (1 - q / (upper_bounds(t - 1, K) + eta / 2)))
        pi_b = [q, *[(1 - q) / (K - 1)] * (K - 1)]
        bound = theory.chernoff_bound(0, pi_b, horizon=n, eta=eta)
        start = (math.log(K) + 2 / K * sum(t**-2 for t in range(2, n + 1))) / eta
        assert start + price <= bound <= start + 2 * price


@pytest.mark.parametrize("coverage", [1.0, 2.0, 50.5, 5050.0])
def test_the_simplified_bound_is_above_the_full_one(coverage: float) -> None:
    """For K from 2 to 1000, n from 1 to 10⁵, small and large rates."""
    for K in (2, 10, 1000):
        for n in (1, 2, 10, 1000, 100_000):
            for eta in (math.sqrt(math.log(K) / n), 0.01, 5.0):
                q = min(1 / coverage, 1 - 1e-9)
                pi_b = [q, *[(1 - q) / (K - 1)] * (K - 1)]
                full = theory.chernoff_bound(0, pi_b, horizon=n, eta=eta)
                simple = theory.chernoff_simplified_bound(K, horizon=n, eta=eta, coverage=1 / q)
                assert_at_most(full, simple)
                assert math.isfinite(full)


def test_below_theorem_2_by_the_root_of_the_coverage() -> None:
    """On the paper's game at α = 1, C = 50.5: below half of Theorem 2's, at the same rate."""
    K, n = 100, 10_000
    eta = theory.exp3_ix_rate(K, n)
    pi_b = us.behaviors.interpolated(n_actions=K, alpha=1.0)
    ratio = us.coverage(0, pi_b)
    theorem2 = theory.theorem2_bound(K, horizon=n, eta=eta, coverage=ratio)
    simple = theory.chernoff_simplified_bound(K, horizon=n, eta=eta, coverage=ratio)
    assert theory.chernoff_bound(0, pi_b, horizon=n, eta=eta) < simple < theorem2 / 2


def test_long_sums_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="chernoff_simplified_bound"):
        theory.chernoff_bound(0, [0.5, 0.5], horizon=10**9, eta=0.1)
