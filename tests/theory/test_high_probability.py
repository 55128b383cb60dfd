"""Theorem 1 with high probability: its two supermartingales, and the probability itself, exactly.

On every path, with μ_t = ⟨π_t, r_t⟩, x_t = π_t(b)R/q(b) and v_t = Σ_a π*(a) r_t(a)/(q(a) + η/2),

    Reg_n(π*) ≤ (log K + log L_n + log M_n)/η + η Σ_t v_t
    L_n = Π_t (1 + η x_t) e^{−η μ_t},   M_n = Π_t exp(η ⟨π*, r_t − r̃_t⟩ − η² v_t)

after every round n, and L and M are supermartingales that begin at 1: so each is ever above 2/δ
with probability δ/2 at the most (Ville).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.enumeration import (
    ADVERSARIES,
    Adversary,
    adversaries,
    assert_at_most,
    comparators,
    nodes_of,
)
from tests.support.strategies import Array, Game, behaviors, games, policies, quick, unit_numbers
from understudy import theory
from understudy.learners import ExponentialWeights

DELTAS = (0.9, 0.5, 0.1, 0.01)
LARGE_GAMES = {
    "hidden reward": Game(np.array([0.1, 0.9]), np.tile([1.0, 0.0], (7, 1))),
    "two actions": Game(np.array([0.7, 0.3]), np.random.default_rng(5).random((7, 2))),
    "three actions": Game(np.array([0.1, 0.3, 0.6]), np.random.default_rng(6).random((4, 3))),
}


@dataclass(frozen=True, eq=False)
class Path:
    """A whole game that can happen: its probability, and r_t, π_t (n, K), b_t of its rounds."""

    probability: float
    rewards: Array
    policies: Array
    actions: tuple[int, ...]


def paths_of(learner: ExponentialWeights, game: Game, adversary: Adversary) -> Iterator[Path]:
    nodes = {node.history: node for node in nodes_of(learner, game, adversary)}
    for history, node in nodes.items():
        if len(history) < game.rounds - 1:
            continue
        rounds = [nodes[history[:t]] for t in range(game.rounds)]
        rewards = np.array([each.rewards for each in rounds])
        table = np.array([each.policy for each in rounds])
        for b in node.after:
            chance = node.probability * float(game.behavior[b])
            yield Path(chance, rewards, table, (*history, b))


@dataclass(frozen=True, eq=False)
class Parts:
    """What the proof is about, after each round of some paths: (paths, rounds)."""

    regret: Array
    variance: Array  # Σ_t v_t
    log_learner: Array  # log L_n
    log_comparator: Array  # log M_n


def parts_of(paths: list[Path], q: Array, eta: float, comparator: Array) -> Parts:
    r = np.array([path.rewards for path in paths])
    pi = np.array([path.policies for path in paths])
    b = np.array([path.actions for path in paths])[..., np.newaxis]
    played, own = (np.take_along_axis(table, b, axis=2)[..., 0] for table in (r, pi))
    v = (r / (q + eta / 2)) @ comparator
    estimates = comparator[b[..., 0]] * played / (q[b[..., 0]] + eta / 2)
    steps = (
        (r * (comparator - pi)).sum(axis=2),
        v,
        np.log1p(eta * own * played / q[b[..., 0]]) - eta * (pi * r).sum(axis=2),
        eta * (r @ comparator - estimates) - eta**2 * v,
    )
    return Parts(*(np.cumsum(step, axis=1) for step in steps))


@quick
@given(data=st.data(), q=behaviors(max_actions=4), eta=st.floats(0.01, 20.0))
def test_one_round_of_both_supermartingales(data: st.DataObject, q: Array, eta: float) -> None:
    """E[(1 + ηx) e^{−ημ}] ≤ 1 and E exp(η⟨π*, r − r̃⟩ − η²v) ≤ 1 over the K actions."""
    K, gamma = len(q), eta / 2
    r = np.array(data.draw(st.lists(unit_numbers, min_size=K, max_size=K)))
    pi, comparator = data.draw(policies(K)), data.draw(policies(K))
    seen = q > 0
    own = np.zeros(K)
    own[seen] = pi[seen] * r[seen] / q[seen]
    assert_at_most(float(q @ (1 + eta * own)) * math.exp(-eta * float(pi @ r)), 1.0)
    v = float(comparator @ (r / (q + gamma)))
    estimates = comparator * r / (q + gamma)
    exponent = eta * (float(comparator @ r) - estimates) - eta**2 * v
    assert_at_most(float(q @ np.exp(exponent)), 1.0)


@quick
@given(data=st.data(), q=behaviors(max_actions=4), eta=st.floats(0.01, 5.0))
def test_the_steps_inside_the_second(data: st.DataObject, q: Array, eta: float) -> None:
    """e^{−z} ≤ 1 − z + z²/2 for z ≥ 0; ⟨π*, r⟩ − E y = (η/2) v; and E y² ≤ v, y = ⟨π*, r̃⟩."""
    K, gamma = len(q), eta / 2
    r = np.array(data.draw(st.lists(unit_numbers, min_size=K, max_size=K)))
    comparator = data.draw(policies(K))
    y = comparator * r / (q + gamma)
    z = eta * y
    assert (np.exp(-z) <= 1 - z + z**2 / 2 + 1e-12).all()
    v = float(comparator @ (r / (q + gamma)))
    assert float(comparator @ r - q @ y) == pytest.approx(gamma * v, rel=1e-9, abs=1e-12)
    assert_at_most(float(q @ y**2), v)


def assert_with_high_probability(game: Game, adversary: Adversary, eta: float, name: str) -> None:
    """The inequality on every path, E L ≤ 1, E M ≤ 1, and the probabilities of ever exceeding."""
    q, n, K = game.behavior, game.rounds, len(game.behavior)
    learner = us.exp3_ix(q, eta=eta) if name == "exp3_ix" else us.prod(q, eta=eta)
    paths = list(paths_of(learner, game, adversary))
    chances = np.array([path.probability for path in paths])
    assert chances.sum() == pytest.approx(1.0)
    totals = np.cumsum([path.rewards for path in paths], axis=1)
    for comparator in comparators(K):
        parts = parts_of(paths, q, eta, comparator)
        logs = parts.log_learner + parts.log_comparator
        bounds = (math.log(K) + logs) / eta + eta * parts.variance
        for found, bound in zip(parts.regret.ravel(), bounds.ravel(), strict=True):
            assert_at_most(float(found), float(bound))
        for log_factor in (parts.log_learner, parts.log_comparator, logs / 2):
            means = chances @ np.exp(log_factor)
            assert_at_most(float(means.max()), 1.0)
            for delta in DELTAS:
                ever = (log_factor > math.log(2 / delta)).any(axis=1)
                assert_at_most(float(chances[ever].sum()), delta / 2)
        for delta in DELTAS:
            exceeded = [
                any(
                    regret
                    > theory.theorem1_high_probability_bound(
                        comparator,
                        q,
                        horizon=t,
                        eta=eta,
                        delta=delta,
                        total_rewards=total,
                    )
                    for t, regret, total in zip(range(1, n + 1), regrets, sums, strict=True)
                )
                for regrets, sums in zip(parts.regret, totals, strict=True)
            ]
            assert_at_most(float(chances[exceeded].sum()), delta)


@pytest.mark.parametrize("name", ["exp3_ix", "prod"])
@quick
@given(game=games(max_rounds=3), adversary=adversaries, eta=st.floats(0.05, 20.0))
def test_small_games(name: str, game: Game, adversary: Adversary, eta: float) -> None:
    assert_with_high_probability(game, adversary, eta, name)


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("size", LARGE_GAMES)
def test_larger_games(size: str, adversary: str) -> None:
    for eta in (0.1, 1.0):
        assert_with_high_probability(LARGE_GAMES[size], ADVERSARIES[adversary], eta, "exp3_ix")


@quick
@given(
    q=behaviors(),
    eta=st.floats(0.01, 5.0),
    delta=st.floats(1e-6, 0.999),
    n=st.integers(1, 1000),
    data=st.data(),
)
def test_the_bound_is_what_the_proof_adds_up(
    q: Array, eta: float, delta: float, n: int, data: st.DataObject
) -> None:
    """log L = log M = log(2/δ), or log M = log(2K/δ) for every action at once, and Σ_t v_t."""
    K = len(q)
    comparator = data.draw(policies(K))
    totals = n * np.array(data.draw(st.lists(unit_numbers, min_size=K, max_size=K)))
    variance = sum(comparator[a] * totals[a] / (q[a] + eta / 2) for a in range(K))
    for every, second in ((False, 2 / delta), (True, 2 * K / delta)):
        found = theory.theorem1_high_probability_bound(
            comparator,
            q,
            horizon=n,
            eta=eta,
            delta=delta,
            total_rewards=totals,
            every_comparator=every,
        )
        logs = math.log(2 / delta) + math.log(second)
        assert found == pytest.approx((math.log(K) + logs) / eta + eta * variance, rel=1e-9)


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("size", LARGE_GAMES)
def test_every_comparator_at_once(size: str, adversary: str) -> None:
    """P(some action's M is ever above 2K/δ) ≤ δ/2: so a comparator may be chosen afterwards."""
    game, eta = LARGE_GAMES[size], 0.5
    q, K = game.behavior, len(game.behavior)
    paths = list(paths_of(us.exp3_ix(q, eta=eta), game, ADVERSARIES[adversary]))
    chances = np.array([path.probability for path in paths])
    logs = np.max([parts_of(paths, q, eta, each).log_comparator for each in np.eye(K)], axis=(0, 2))
    for delta in DELTAS:
        assert_at_most(float(chances[logs > math.log(2 * K / delta)].sum()), delta / 2)


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_the_probability_of_ever_exceeding(adversary: str) -> None:
    """It is more than that at the end, for each level x, and still at most 1/x (Ville)."""
    game, eta = LARGE_GAMES["hidden reward"], 1.0
    q = game.behavior
    paths = list(paths_of(us.exp3_ix(q, eta=eta), game, ADVERSARIES[adversary]))
    chances = np.array([path.probability for path in paths])
    parts = parts_of(paths, q, eta, np.array([0.5, 0.5]))
    more = 0
    for logs in (parts.log_learner, parts.log_comparator):
        for level in np.unique(logs[logs > 0].round(9)):
            ever = float(chances[logs.max(axis=1) >= level - 1e-9].sum())
            last = float(chances[logs[:, -1] >= level - 1e-9].sum())
            assert_at_most(ever, math.exp(-level + 1e-9))
            more += ever > 1.2 * last
    assert more


def test_in_a_long_game_the_bound_is_below_the_largest_regret() -> None:
    """At n = 10⁵ and δ = 0.01 it says something: the regret could be n."""
    n, q = 100_000, [0.5, 0.5]
    bound = theory.theorem1_high_probability_bound(
        0, q, horizon=n, eta=theory.exp3_ix_rate(2, n), delta=0.01
    )
    assert bound < n / 10
