"""A mixture of experts: the theorem on every path, whatever the experts are, and its bound."""

from __future__ import annotations

import math
from dataclasses import replace
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
    adversaries,
    assert_at_most,
    reachable,
)
from tests.support.formulas import softmax
from tests.support.strategies import Array, Game, Integers, games, quick, seeds
from tests.theory.test_coverage_adaptive import price
from tests.theory.test_first_order import weights_of
from tests.theory.test_priors import drawn_prior
from understudy import theory
from understudy.learners import Cell, CoverageAdaptive, Exp4, Learner, Mapped, Model, Outside

K, LABELS, N = 3, 2, 24  # actions, labels of a context, rounds
CENTERED = 0.7726  # the least c with log(1 + z) ≥ z − c z² for z ≥ −½
CELL = Cell(dimension=1 + LABELS, starts=[1], sizes=[LABELS])  # type: ignore[arg-type]


class Softmax:
    """A model of a user's: a linear score for every action."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.weights = rng.normal(scale=2.0, size=(K, 1 + LABELS))

    def probabilities(self, x: Array) -> Array:
        return np.asarray(softmax(self.weights @ x))


def single_learners(rng: np.random.Generator, behavior: Any) -> dict[str, Learner[Any]]:
    """Learners by the labels of the mixture, in which the two regressions are one learner."""
    table = us.per_context(us.prod_grid(behavior), n_contexts=CELL.n_contexts)
    regressions = {
        f"ridge, τ = {tau:g}": us.ridge(n_actions=K, dimension=1 + LABELS, temperature=tau)
        for tau in (0.05, 0.5)
    }
    return {
        "ix": us.exp3_ix(behavior, horizon=N),
        "grid": us.prod_grid(behavior),
        "table": Mapped(table, CELL),
        **regressions,
        "model": Model(Softmax(rng), K, 1 + LABELS),
    }


def mixture(
    behavior: Any,
    learners: dict[str, Learner[Any]],
    prior: Array | None = None,
    least: float | None = None,
) -> Exp4:
    """Production, two outside policies, and the learners."""
    both = us.ridge(n_actions=K, dimension=1 + LABELS, temperature=[0.05, 0.5])
    experts: dict[str, Any] = {"production": "production", "column": Outside("column")}
    for name, learner in learners.items():
        if not name.startswith("ridge"):
            experts[name] = learner
        elif "ridge" not in experts:
            experts["ridge"] = both
    experts["other"] = Outside("other")
    return us.exp4(behavior, experts, prior=prior, least_propensity=least)


def hostile_log(
    learner: Exp4, behavior: Any, rng: np.random.Generator
) -> tuple[us.Log, Array, Array]:
    """Contexts, actions and rewards against the mixture, propensities down to 1e-6.

    The columns of the outside policies are any numbers in [0, 1], often 0 or 1. Return also the
    propensities, and Λ_t of every round.
    """
    state, levels, events = learner.init(), [0.0], []
    played: list[float] = []
    for t in range(N):
        x = np.concatenate([[1.0], np.eye(LABELS)[rng.integers(LABELS)]])
        known, _ = learner.known_at(state, x[np.newaxis])
        kind = t % 4
        order: Integers = known[0].argsort()
        b = int([order[0], order[-1], rng.integers(K), order[0]][kind])
        reward = [1.0, 0.0, float(rng.choice([0.0, 1.0, rng.random()])), 1.0][kind]
        logged = isinstance(behavior, us.Logged)
        q = float(10.0 ** rng.uniform(-6, 0)) if logged else float(behavior[b])
        columns = rng.choice([0.0, 1.0, rng.random()], size=2)
        events.append(us.Feedback(b, reward, q if logged else None, x, columns))
        played.append(q)
        state = learner.update(state, events[-1])
        levels.append(state.weights.level)
    log = us.Log(
        [one.action for one in events],
        [one.reward for one in events],
        played if isinstance(behavior, us.Logged) else None,
        np.array([one.features for one in events]),
        np.array([one.experts for one in events]),
    )
    return log, np.array(played), np.array(levels)


def expert_probabilities(
    learner: Exp4, learners: dict[str, Learner[Any]], log: us.Log, q: Array
) -> Array:
    """π_{m,t}(b_t) of every expert, (n, M): each learner replays the log by itself."""
    assert log.experts is not None
    columns: list[Array] = []
    for label in learner.labels:
        if label == "production":
            columns.append(q)
        elif label in ("column", "other"):
            columns.append(log.experts[:, ["column", "other"].index(label)])
        else:
            alone = learners[label]
            _, trace = alone.replay(alone.init(), alone.spec.visible(log))
            columns.append(trace.probability)
    return np.stack(columns, axis=1)


def centers_of(rewards: Array, least: float) -> Array:
    """c_t, once more: the mean of ½ and the rewards before; 0 without a least propensity."""
    past = np.concatenate([[0.0], np.cumsum(rewards)[:-1]])
    means = (0.5 + past) / np.arange(1, len(rewards) + 1)
    return np.asarray(means if least > 0 else np.zeros(len(rewards)))


def least_before(played: Array, least: float) -> Array:
    """f_t: the least propensity that was promised, or seen in the rounds before."""
    return np.minimum(least, np.minimum.accumulate(np.append(1.0, played))[:-1])


def centered(ratios: Array, rewards: Array, centers: Array, least: Array, rates: Array) -> Array:
    """x = w (R − c) + c for every rate, (n, L, M), with c at most ½/(η (1/f − 1)).

    At least −½/η: only a w above 1/f takes it below.
    """
    with np.errstate(divide="ignore"):
        largest = 0.5 / (rates * (1.0 / least - 1.0)[:, np.newaxis])
    c = np.minimum(centers[:, np.newaxis], largest)[..., np.newaxis]
    found = ratios[:, np.newaxis] * (rewards[:, np.newaxis, np.newaxis] - c) + c
    possible = (ratios[:, np.newaxis] * least[:, np.newaxis, np.newaxis] <= 1.0) | (c == 0.0)
    assert (rates[:, np.newaxis] * found >= -0.5 - 1e-9)[possible].all()
    return np.asarray(np.maximum(found, -0.5 / rates[:, np.newaxis]))


def logs_of(rates: Array, estimates: Array) -> Array:
    """log(1 + η x)/η of estimates (n, L, M)."""
    return np.asarray(np.log1p(rates[:, np.newaxis] * estimates) / rates[:, np.newaxis])


CASES = ("known", "logged", "logged and centred")


@pytest.mark.parametrize("case", CASES)
@quick
@given(seed=seeds, with_prior=st.booleans())
def test_the_theorem_for_any_experts(*, case: str, with_prior: bool, seed: int) -> None:
    """Σ_t [g_t(m, i) − ⟨w_t, x_t⟩] ≤ D_{m,i} for every expert m and rate i, on every path.

    Learners, a table, two regressions, a model, production, and columns of any numbers. The weights
    are those of the formula at the level Λ_t that the learner has found, and sum to 1; without a
    center ⟨w_t, x_t⟩ is π_t(b)R/q.
    """
    rng = np.random.default_rng(seed)
    q = 10.0 ** rng.uniform(-6, 0, K)
    behavior: Any = q / q.sum() if case == "known" else us.Logged(K)
    learners = single_learners(rng, behavior)
    prior = drawn_prior(seed, 3 + len(learners)) if with_prior else None
    least = {"known": float(np.min(q / q.sum())), "logged": 0.0}.get(case, 1e-3)
    learner = mixture(behavior, learners, prior, least or None)
    assert len(learner.labels) == 9
    log, played, levels = hostile_log(learner, behavior, rng)
    probabilities = expert_probabilities(learner, learners, log, played)
    _, trace = learner.replay(learner.init(), log)
    rates, weights = weights_of(learner.weights)
    own = np.full(9, 1 / 9) if prior is None else prior
    np.testing.assert_allclose(weights.sum(axis=0), own, rtol=1e-12)
    assert learner.least_propensity == least
    centers = centers_of(log.rewards, least)
    ratios = probabilities / played[:, np.newaxis]
    estimates = centered(ratios, log.rewards, centers, least_before(played, least), rates)
    totals = np.cumsum(logs_of(rates, estimates), axis=0)
    scores = np.concatenate([np.zeros((1, *weights.shape)), totals])
    before = weights * np.exp(rates[:, np.newaxis] * (scores - levels[:, np.newaxis, np.newaxis]))
    np.testing.assert_allclose(before.sum(axis=(1, 2)), 1.0, rtol=1e-8)
    shares = before[:-1].sum(axis=1)
    wanted = np.minimum(1.0, (shares * probabilities).sum(axis=1))
    np.testing.assert_allclose(trace.probability, wanted, rtol=1e-7, atol=1e-12)
    earned = (before[:-1] * estimates).sum(axis=(1, 2))
    if case == "logged":
        raw = (shares * probabilities).sum(axis=1) * log.rewards / played
        np.testing.assert_allclose(earned, raw, rtol=1e-7)
    prices = price(np.repeat(rates, 9), weights.ravel()).reshape(weights.shape)
    size = np.abs(earned).sum()
    assert (totals[-1] - earned.sum() <= prices + 1e-9 * (prices + max(1.0, size))).all()


@quick
@given(seed=seeds)
def test_what_experts_would_have_earned_is_on_record(seed: int) -> None:
    """Σ wR, w = π_{m,t}(b)/q, for every expert without a center, and the moments of w and wR."""
    rng = np.random.default_rng(seed)
    q = 10.0 ** rng.uniform(-2, 0, K)
    learners = single_learners(rng, q / q.sum())
    learner = mixture(q / q.sum(), learners)
    log, played, _ = hostile_log(learner, q / q.sum(), rng)
    state, _ = learner.replay(learner.init(), log)
    ratios = expert_probabilities(learner, learners, log, played) / played[:, np.newaxis]
    rewards = log.rewards[:, np.newaxis]
    np.testing.assert_allclose(state.earned, (ratios * rewards).sum(axis=0), rtol=1e-10)
    powers = (ratios * rewards) ** 2, ((ratios - 1) * rewards) ** 2, ratios, (ratios - 1) ** 2
    np.testing.assert_allclose(state.moments, np.sum(powers, axis=1), rtol=1e-9)


@quick
@given(z=st.floats(-0.5, 1e6))
def test_the_price_of_a_centered_gain(z: float) -> None:
    """z − log(1 + z) ≤ 0.7726 z² for z ≥ −½, and z²/2 for z ≥ 0."""
    assert math.isclose(CENTERED, (-0.5 - math.log(0.5)) / 0.25, abs_tol=1e-4)
    assert_at_most(z - math.log1p(z), CENTERED * z**2)
    if z >= 0:
        assert_at_most(z - math.log1p(z), z**2 / 2)


def predictable(history: History, name: str) -> Array:
    """An outside policy that depends on the past: another for every sequence of actions."""
    seed = [len(name), *[action + 1 for action in history]]
    return np.random.default_rng(seed).dirichlet(np.full(K, 0.3))


BOLD = np.array([300.0, 30.0, 3.0])  # rates, so large that the price is below a round's reward


@pytest.mark.parametrize("recipe", ["exp4", "bold"])
@quick
@given(
    game=games(zeros=False, max_actions=3, max_rounds=3).filter(lambda one: len(one.behavior) == K),
    adversary=adversaries,
    logged=st.booleans(),
    seed=seeds,
)
def test_expected_regret_against_every_expert(
    *, recipe: str, game: Game, adversary: Adversary, logged: bool, seed: int
) -> None:
    """E Reg(m) ≤ min_i {D + E Σ(r − g)} ≤ `exp4_bound`, all sequences summed.

    With logged propensities there is no center, and S = E Σ x² = E Σ_a π² r²/q. With a known
    behavior there is one, and 1.5452 times E Σ x² takes its place. Experts are production, two
    learners, and outside policies that depend on the past. Bold rates have a bound below n.
    """
    q, names = game.behavior, ("column", "other")
    behavior: Any = us.Logged(K) if logged else q
    prior = drawn_prior(seed, 5)
    experts: dict[str, Any] = {
        "production": "production",
        "ix": us.exp3_ix(behavior, eta=2.0),
        "grid": us.prod_grid(behavior),
        **{name: Outside(name) for name in names},
    }
    least = None if logged else float(q.min())
    learner = us.exp4(behavior, experts, prior=prior, least_propensity=least)
    if recipe == "bold":
        bold = CoverageAdaptive(
            us.Logged(5), BOLD, np.array([0.8, 0.15, 0.05]), "logarithmic",
            grid=True, action_prior=prior,
        )  # fmt: skip
        learner = replace(learner, weights=bold)

    def policies_at(history: History, state: Any) -> Array:
        own = [learner.experts[m].policy(state.experts[m]) for m in (1, 2)]
        return np.array([q, *own, *(predictable(history, name) for name in names)])

    def look(history: History, state: Any) -> tuple[Array, Array, list[Event]]:
        outside = dict(zip(names, policies_at(history, state)[3:], strict=True))
        known: Any = {"production": q} if logged else {}
        policy = learner.policy(state, experts=outside, **known)
        rewards = adversary(game, history, policy)
        events: list[Event] = []
        for a in range(K):
            columns = [outside[name][a] for name in names]
            propensity = float(q[a]) if logged else None
            seen = us.Feedback(a, float(rewards[a]), propensity, experts=columns)
            events.append((float(q[a]), a, seen))
        return policy, rewards, events

    rates, weights = weights_of(learner.weights)
    least, shape = learner.least_propensity, weights.shape
    assert least == (0.0 if logged else q.min())
    rewards, squares, gains, earned = np.zeros(5), np.zeros(shape), np.zeros(shape), 0.0
    for node in reachable(learner, game.rounds, look):
        policies, r = policies_at(node.history, node.state), node.rewards
        center = (0.5 + node.state.rewards) / (node.state.rounds + 1) if least > 0 else 0.0
        mean = np.zeros(shape)
        for a in range(K):
            ratios = (policies[:, a] / q[a])[np.newaxis]
            x = centered(ratios, r[a : a + 1], np.array([center]), np.array([least]), rates)
            mean += q[a] * x[0]
            squares += node.probability * q[a] * x[0] ** 2
            gains += node.probability * q[a] * logs_of(rates, x)[0]
        np.testing.assert_allclose(mean, np.tile(policies @ r, (shape[0], 1)), rtol=1e-9, atol=1e-9)
        rewards += node.probability * (policies @ r)
        earned += node.probability * float(node.policy @ r)
    prices = price(np.repeat(rates, 5), weights.ravel()).reshape(shape)
    assert (squares[:, 0] <= game.rounds * (1 + 1e-9)).all()  # production: x = R
    each = rates[:, np.newaxis] * squares * (0.5 if logged else CENTERED)
    for m in range(5):
        sharp = float((prices[:, m] + rewards[m] - gains[:, m]).min())
        assert_at_most(rewards[m] - earned, sharp)
        bound = float((prices[:, m] + each[:, m]).min())
        assert_at_most(sharp, bound)
        if recipe == "exp4":
            S = float(squares[:, m].max()) * (1.0 if logged else 2 * CENTERED)
            found = theory.exp4_bound(5, squares=S, share=float(prior[m]))
            assert_at_most(bound, found)
            if logged:
                assert bound == pytest.approx(found, rel=1e-9)


def test_bold_rates_make_the_expected_bound_small() -> None:
    """So that the test above has power: the price is below 0.05, a twentieth of one reward."""
    prior = np.array([0.8, 0.15, 0.05])[:, np.newaxis] * np.full(5, 0.2)
    assert price(np.repeat(BOLD, 5), prior.ravel()).min() < 0.05


def test_a_rate_that_is_not_used_costs_its_prior_over_it() -> None:
    """With a rate η of weight p beside others, D grows by p/η, and log(1/(1 − p))/η_i at most.

    The other prior weights shrink to 1 − p of what they were, which takes from the sum of w₁/η.
    """
    rates, prior = np.array([0.5, 0.1]), np.array([0.6, 0.4])
    before = price(rates, prior)
    for p, eta in ((0.5, 8.0), (0.9, 2.0), (0.1, 1e-3)):
        after = price(np.append(rates, eta), np.append((1 - p) * prior, p))[:2]
        assert (after <= before + p / eta - math.log(1 - p) / rates + 1e-12).all()
        exact = before + p / eta - math.log(1 - p) / rates - p * (prior / rates).sum()
        np.testing.assert_allclose(after, exact, rtol=1e-12)
