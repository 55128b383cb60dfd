"""A grid of rates with logarithmic gains: the theorem on every path, and the first-order bound.

The experts are (action, rate), and production with every rate. `test_exp4` has other experts.
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
    Adversary,
    Event,
    History,
    Node,
    adversaries,
    assert_at_most,
    comparators,
    reachable,
)
from tests.support.formulas import weighted_entropy
from tests.support.strategies import Array, Game, behaviors, games, quick, seeds, unit_numbers
from tests.theory.test_coverage_adaptive import price
from tests.theory.test_priors import drawn_prior, kl
from understudy import theory
from understudy.learners import CoverageAdaptive, LeveledScores

ROUNDING = 1e-9  # relative


def weights_of(learner: CoverageAdaptive) -> tuple[Array, Array]:
    """Rates (L,) and the prior of every expert, (L, E), once more; production is the last."""
    K = learner.spec.n_actions
    actions = np.full(K, 1 / K) if learner.action_prior is None else learner.action_prior
    share = learner.production
    experts = [*((1 - share) * actions).tolist(), *([share] if share > 0 else [])]
    return learner.rates, learner.prior[:, np.newaxis] * np.array(experts)


def estimates_of(learner: CoverageAdaptive, log: us.Log, q: Array) -> Array:
    """r̂_t of every expert, (n, E): R/q of the logged action; R of production, in every round."""
    found = np.eye(learner.spec.n_actions)[log.actions] * (log.rewards / q)[:, np.newaxis]
    if learner.production > 0:
        found = np.column_stack([found, log.rewards])
    return np.asarray(found)


def logarithmic(rates: Array, estimates: Array) -> Array:
    """log(1 + η_i r̂_t(e))/η_i, (n, L, E)."""
    eta = rates[:, np.newaxis]
    return np.asarray(np.log1p(eta * estimates[:, np.newaxis]) / eta)


def assert_theorem(rates: Array, prior: Array, estimates: Array, earned: float) -> None:
    """Σ_t [g_t(e, i) − ⟨w_t, r̂_t⟩] ≤ D_{e,i} for every expert and rate, on one log.

    D = (log(1/w₁) − 1 + w₁)/η + Σ w₁/η over all others = (log(1/w₁) − 1)/η + Σ w₁/η over all.
    """
    totals = logarithmic(rates, estimates).sum(axis=0)
    each = np.repeat(rates, prior.shape[1])
    bounds = price(each, prior.ravel()).reshape(prior.shape)
    assert (totals - earned <= bounds + ROUNDING * (bounds + max(1.0, earned))).all()


def potential(rates: Array, prior: Array, scores: Array, level: float) -> float:
    """Λ + Σ_e (w₁(e)/η_e)(exp(η_e (G(e) − Λ)) − 1): its minimum over Λ is at Λ_t."""
    eta = rates[:, np.newaxis]
    return level + float((prior / eta * np.expm1(eta * (scores - level))).sum())


def assert_identity(
    rates: Array, prior: Array, estimates: Array, earned: Array, levels: Array
) -> None:
    """F_{t+1}(Λ_t) − F_t(Λ_t) = ⟨w_t, r̂_t⟩ exactly, and Λ_{t+1} minimises F_{t+1}, in all rounds.

    F_t is the potential of the scores before round t; its steps add up to the theorem.
    """
    totals = np.cumsum(logarithmic(rates, estimates), axis=0)
    scores = np.concatenate([np.zeros((1, *prior.shape)), totals])
    assert levels[0] == pytest.approx(0.0, abs=1e-12)
    for t in range(len(estimates)):
        before, after = scores[t], scores[t + 1]
        grown = potential(rates, prior, after, levels[t])
        step = grown - potential(rates, prior, before, levels[t])
        assert step == pytest.approx(earned[t], rel=1e-7, abs=1e-7 * max(1.0, abs(levels[t])))
        least = potential(rates, prior, after, levels[t + 1])
        assert_at_most(least, grown)
        weights = prior * np.exp(rates[:, np.newaxis] * (after - levels[t + 1]))
        assert weights.sum() == pytest.approx(1.0, abs=1e-8)


def wild_grid(rng: np.random.Generator, smallest: float = -6.0) -> tuple[CoverageAdaptive, Array]:
    """Any rates, any prior of rates and actions, any share of production; and π_B."""
    K = int(rng.integers(2, 6))
    q = 10.0 ** rng.uniform(smallest, 0, K)
    q /= q.sum()
    behavior: Any = us.Logged(K) if rng.random() < 0.5 else q
    share = float(rng.choice([0.0, 0.0, 0.5, 1e-6, 0.99]))
    actions = drawn_prior(int(rng.integers(2**32)), K) if rng.random() < 0.5 else None
    if rng.random() < 0.5:
        return us.prod_grid(behavior, prior=actions, production=share), q
    L = int(rng.integers(1, 6))
    levels = rng.dirichlet(np.full(L, 0.5)) + 1e-6
    made = CoverageAdaptive(
        behavior,
        10.0 ** rng.uniform(-2, 2, L),
        levels / levels.sum(),
        "logarithmic",
        grid=True,
        action_prior=actions,
        production=share,
    )
    return made, q


def known_weights(learner: CoverageAdaptive, state: LeveledScores, q: Array) -> Array:
    """π_t, where production would play q if only propensities are logged."""
    known, shares = learner.known_at(state, None)
    return np.asarray(known[0] + (shares[0] * q if len(shares) else 0.0))


def hostile_log(
    learner: CoverageAdaptive, q: Array, rng: np.random.Generator, rounds: int
) -> tuple[us.Log, Array, Array]:
    """Rewards chosen against the policy; with logged propensities they are down to 1e-6.

    By turns the least trusted action pays 1, the most trusted pays nothing, and anything happens.
    Return also the propensities, and Λ_t of every round.
    """
    state, events = learner.init(), []
    levels, played = [state.level], []
    for t in range(rounds):
        policy = known_weights(learner, state, q)
        kind = t % 4
        b = int([policy.argmin(), policy.argmax(), rng.integers(len(q)), policy.argmin()][kind])
        reward = [1.0, 0.0, float(rng.choice([0.0, 1.0, rng.random()])), 1.0][kind]
        logged = isinstance(learner.behavior, us.Logged)
        propensity = float(10.0 ** rng.uniform(-6, 0)) if logged else None
        events.append(us.Feedback(b, reward, propensity))
        played.append(float(q[b]) if propensity is None else propensity)
        state = learner.update(state, events[-1])
        levels.append(state.level)
    actions, rewards = [one.action for one in events], [one.reward for one in events]
    logged_q = played if isinstance(learner.behavior, us.Logged) else None
    return us.Log(actions, rewards, logged_q), np.array(played), np.array(levels)


@quick
@given(seed=seeds)
def test_the_theorem_of_the_grid_against_an_adversary_that_watches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    learner, q = wild_grid(rng)
    log, played, levels = hostile_log(learner, q, rng, 40)
    _, trace = learner.replay(learner.init(), log)
    estimates = estimates_of(learner, log, played)
    earned = trace.probability * (log.rewards / played)
    assert_theorem(*weights_of(learner), estimates, float(earned.sum()))
    assert_identity(*weights_of(learner), estimates, earned, levels)


@pytest.mark.parametrize("production", [0.0, 0.5])
@pytest.mark.parametrize("prior", [None, "behavior", "drawn"])
@quick
@given(behavior=behaviors(zeros=False, max_actions=4, decades=6.0), seed=seeds)
def test_the_theorem_of_prod_grid(
    production: float, prior: Any, behavior: Array, seed: int
) -> None:
    """The recipe itself with every prior, for a known π_B and for logged propensities.

    A share of production multiplies the priors of actions by the rest.
    """
    K, rng = len(behavior), np.random.default_rng(seed)
    w1 = drawn_prior(seed, K) if prior == "drawn" else prior
    own = {None: np.full(K, 1 / K), "behavior": (behavior + 1 / K) / 2, "drawn": w1}[prior]
    made = [us.prod_grid(behavior, prior=w1, production=production)]
    if prior != "behavior":
        made.append(us.prod_grid(us.Logged(K), prior=w1, production=production))
    for learner in made:
        rates, weights = weights_of(learner)
        np.testing.assert_allclose(weights.sum(axis=0)[:K], (1 - production) * own, rtol=1e-12)
        log, q, levels = hostile_log(learner, behavior, rng, 30)
        _, trace = learner.replay(learner.init(), log)
        estimates, earned = estimates_of(learner, log, q), trace.probability * (log.rewards / q)
        assert_theorem(rates, weights, estimates, float(earned.sum()))
        assert_identity(rates, weights, estimates, earned, levels)


@quick
@given(seed=seeds)
def test_policies_of_the_grid_are_those_of_the_reference(seed: int) -> None:
    """Priors of actions and production as an expert, against bisection, expert by expert."""
    rng = np.random.default_rng(seed)
    learner, q = wild_grid(rng, smallest=-3.0)
    log, played, _ = hostile_log(learner, q, rng, 20)
    rates, prior = weights_of(learner)
    gains = logarithmic(rates, estimates_of(learner, log, played))
    production = np.tile(q, (len(log), 1))
    follows = learner.production > 0 and isinstance(learner.behavior, us.Logged)
    known: Any = {"production": production} if follows else {}
    _, found = learner.policies(learner.init(), log, **known)
    for t in range(len(log)):
        each = np.repeat(rates, prior.shape[1])
        weights = weighted_entropy(each, prior.ravel(), gains[:t].sum(axis=0).ravel())
        shares = weights.reshape(prior.shape).sum(axis=0)
        wanted = shares[: len(q)] + (shares[-1] * q if learner.production > 0 else 0.0)
        np.testing.assert_allclose(found[t], wanted, rtol=1e-8, atol=1e-12)


# The price of one round


@quick
@given(
    q=st.floats(1e-6, 1.0),
    eta=st.floats(1e-6, 100.0),
    rewards=st.lists(unit_numbers, min_size=1, max_size=5),
    probability=unit_numbers,
)
def test_the_price_of_the_logarithmic_gain(
    q: float, eta: float, rewards: list[float], probability: float
) -> None:
    """π r − E g ≤ (η/2) π² r²/q, with r = R itself; IX's price is not below the logarithm's.

    The price is convex in r: of rewards with a given mean, 0 and 1 have the largest.
    """

    def missed(r: float) -> float:
        return probability * r - q / eta * math.log1p(eta * probability * r / q)

    for r in rewards:
        assert missed(r) >= -1e-12
        assert_at_most(missed(r), eta / 2 * probability**2 * r**2 / q)
        implicit = eta / 2 * probability**2 * r / (q + eta * probability / 2)
        assert_at_most(missed(r), implicit)
    mean = sum(rewards) / len(rewards)
    average = sum(map(missed, rewards)) / len(rewards)
    assert_at_most(missed(mean), average)
    assert_at_most(average, mean * missed(1.0))
    squares = eta / 2 * probability**2 * sum(r**2 for r in rewards) / len(rewards) / q
    assert_at_most(average, squares)


def test_the_mean_reward_is_not_the_reward() -> None:
    """Clicks of 2 %: with r² the square of the mean, S would be 50 times too small, and wrong."""
    q, eta, mean = 0.5, 1.0, 0.02
    price_of_clicks = mean * (1 - q / eta * math.log1p(eta / q))
    assert price_of_clicks <= eta / 2 * mean / q  # E[r²] = mean
    assert price_of_clicks > 10 * (eta / 2 * mean**2 / q)


# Expected regret


def test_prices_of_the_experts_are_the_bound() -> None:
    """`exp4_bound` is min_i (D_{m,i} + η_i S/2), with D of all experts together."""
    rates, levels = theory.prod_grid_tuning()
    for shares in ([0.2] * 5, [0.5, 0.25, 0.125, 0.125], [1e-6, 1 - 1e-6]):
        prior = levels[:, np.newaxis] * np.array(shares)
        prices = price(np.repeat(rates, len(shares)), prior.ravel()).reshape(prior.shape)
        for m, share in enumerate(shares):
            for squares in (0.0, 1.0, 1e3, 1e9, 1e15):
                wanted = (prices[:, m] + rates / 2 * squares).min()
                found = theory.exp4_bound(len(shares), squares=squares, share=share)
                assert found == pytest.approx(wanted, rel=1e-12)
    equal = theory.exp4_bound(5, squares=10.0)
    assert equal == theory.exp4_bound(5, squares=10.0, share=0.2)


def test_the_rates_are_close_enough() -> None:
    """A factor 4 between rates costs at most a quarter of A/η + ηS/2, within the grid's range."""
    rates, prior = theory.prod_grid_tuning()
    for A in (1.0, 5.0, 30.0):
        for best in np.geomspace(float(rates[-1]), float(rates[0]), 200):
            S = 2 * A / best**2
            assert_at_most(float((A / rates + rates / 2 * S).min()), 1.25 * math.sqrt(2 * A * S))
    assert float((prior / rates).sum()) < 10.0


def expected_terms(
    learner: CoverageAdaptive, tables: Array, rewards_at: Callable[[History, Array], Array]
) -> tuple[Array, Array, Array, float]:
    """Exact E Σ_t of r_t and of S, per expert (E,); of the gains (L, E); and of ⟨π_t, r_t⟩."""
    logged = isinstance(learner.behavior, us.Logged)
    rates, prior = weights_of(learner)
    E = prior.shape[1]

    def look(history: History, state: LeveledScores) -> tuple[Array, Array, list[Event]]:
        q = tables[len(history)]
        policy = known_weights(learner, state, q)
        rewards = rewards_at(history, policy)
        events: list[Event] = [
            (float(q[a]), a, us.Feedback(a, float(rewards[a]), float(q[a]) if logged else None))
            for a in np.flatnonzero(q).tolist()
        ]
        return policy, rewards, events

    rewards, squares, gains, earned = np.zeros(E), np.zeros(E), np.zeros((len(rates), E)), 0.0
    nodes: list[Node] = list(reachable(learner, len(tables), look))
    for node in nodes:
        q, r = tables[len(node.history)], node.rewards
        experts = np.eye(len(q))
        if learner.production > 0:
            experts = np.vstack([experts, q])
        rewards += node.probability * (experts @ r)
        squares += node.probability * (experts**2 @ (r**2 / q))
        earned += node.probability * float(node.policy @ r)
        for a in range(len(q)):
            estimates = (experts[:, a] * r[a] / q[a])[np.newaxis]
            gains += node.probability * q[a] * logarithmic(rates, estimates)[0]
    return rewards, squares, gains, earned


@pytest.mark.parametrize("production", [0.0, 0.3])
@pytest.mark.parametrize("recipe", ["grid", "wild"])
@quick
@given(
    game=games(zeros=False, max_rounds=3), adversary=adversaries, logged=st.booleans(), seed=seeds
)
def test_expected_regret_of_a_grid_of_rates(
    *, recipe: str, production: float, game: Game, adversary: Adversary, logged: bool, seed: int
) -> None:
    """E Reg(m) ≤ min_i {D + E Σ(r − g)} ≤ min_i {D + η_i S/2}, for every action and production.

    With logged propensities the behavior drifts. Rates of a wild grid are up to 100, so that the
    bound is below the number of rounds.
    """
    rng, q = np.random.default_rng(seed), game.behavior
    K, n = len(q), game.rounds
    tables = np.tile(q, (n, 1))
    if logged:
        tables = 0.9 * rng.dirichlet(np.ones(K), size=n) + 0.1 / K
    behavior: Any = us.Logged(K) if logged else q
    prior = drawn_prior(seed, K)
    if recipe == "grid":
        learner = us.prod_grid(behavior, prior=prior, production=production)
    else:
        learner = CoverageAdaptive(
            behavior,
            np.array([100.0, 10.0, 1.0]),
            np.array([0.8, 0.15, 0.05]),
            "logarithmic",
            grid=True,
            action_prior=prior,
            production=production,
        )
    rewards, squares, gains, earned = expected_terms(
        learner, tables, lambda history, policy: adversary(game, history, policy)
    )
    rates, weights = weights_of(learner)
    prices = price(np.repeat(rates, weights.shape[1]), weights.ravel()).reshape(weights.shape)
    for m, (total, S) in enumerate(zip(rewards, squares, strict=True)):
        sharp = float((prices[:, m] + total - gains[:, m]).min())
        assert_at_most(total - earned, sharp)
        bound = float((prices[:, m] + rates / 2 * S).min())
        assert_at_most(sharp, bound)
        if recipe == "grid":
            share = float(weights[:, m].sum())
            assert bound == pytest.approx(
                theory.exp4_bound(len(rewards), squares=S, share=share), rel=1e-9
            )
    if production > 0:
        assert_at_most(squares[-1], float(n))  # production's S has no 1/q
    experts = (weights / weights.sum(axis=1, keepdims=True))[0]
    for mixture in comparators(len(experts)):  # and for every distribution over experts
        start = kl(mixture, experts) - np.log(weights.sum(axis=1)) - 1.0
        total = (start / rates + rates / 2 * (mixture @ squares)).min() + (
            weights.sum(axis=1) / rates
        ).sum()
        assert_at_most(float(mixture @ rewards) - earned, float(total))
        if recipe == "grid":
            share = math.exp(-kl(mixture, experts))
            found = theory.exp4_bound(
                len(rewards), squares=float(mixture @ squares), share=min(1.0, share)
            )
            assert found == pytest.approx(total, rel=1e-9)


# Tables


@quick
@given(seed=seeds)
def test_a_table_is_a_learner_for_each_context(seed: int) -> None:
    """Σ_t [g_t(a_x, i_x) − ⟨π_t, r̂_t⟩] ≤ Σ_x D: the theorem, context by context."""
    rng = np.random.default_rng(seed)
    K, N, n = 3, 4, 60
    learner = us.per_context(us.prod_grid(us.Logged(K)), n_contexts=N)
    contexts, q = rng.integers(N, size=n), 10.0 ** rng.uniform(-5, 0, n)
    actions, rewards = rng.integers(K, size=n), rng.choice([0.0, 1.0, 0.3], size=n)
    log = us.Log(actions, rewards, q, contexts[:, np.newaxis].astype(float))
    _, trace = learner.replay(learner.init(), log)
    rates, prior = weights_of(us.prod_grid(us.Logged(K)))
    prices = price(np.repeat(rates, K), prior.ravel()).reshape(prior.shape)
    regret = bound = 0.0
    for x in range(N):
        rows = contexts == x
        part = us.Log(actions[rows], rewards[rows], q[rows])
        alone = us.prod_grid(us.Logged(K))
        _, own = alone.replay(alone.init(), part)
        np.testing.assert_array_equal(trace.probability[rows], own.probability)
        estimates = estimates_of(alone, part, q[rows])
        earned = float(trace.probability[rows] @ (rewards[rows] / q[rows]))
        assert_theorem(rates, prior, estimates, earned)
        sharpest = logarithmic(rates, estimates).sum(axis=0) - prices
        i, a = np.unravel_index(int(sharpest.argmax()), sharpest.shape)
        regret += float(logarithmic(rates, estimates).sum(axis=0)[i, a]) - earned
        bound += float(prices[i, a])
    assert_at_most(regret, bound)
