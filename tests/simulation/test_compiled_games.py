"""Compiled games: logs, means that stay for a while, adversaries that watch."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest

import understudy as us
from tests.support import formulas
from tests.support.compiled_adversaries import CompiledWaves, Waves
from tests.support.enumeration import RECIPES
from tests.support.strategies import Array
from understudy.learners import ExponentialWeights
from understudy.simulation.adversaries import Adaptive
from understudy.simulation.engine import SimulationPlan, Totals, play_runs
from understudy.simulation.game import RandomStreams

Rewards = Literal["mean", "realised"]
REWARDS: tuple[Rewards, ...] = ("mean", "realised")


# Whole games


def whole_game(game: us.Game, learner: ExponentialWeights, table: Array, seed: int) -> float:
    """Σ_t ⟨π_t, r_t⟩ against a table of means (n, K), in NumPy."""
    streams = RandomStreams(seed, 0)
    uniforms = np.array(
        [streams.behavior.random(game.rounds), streams.observed.random(game.rounds)]
    )
    edges = np.cumsum(game.behavior)
    actions, rewards = formulas.observe(edges / edges[-1], table, uniforms)
    log = us.Log(actions, rewards)
    gains, _ = learner.gains(learner.init().memory, 0, log)
    nothing = np.zeros(game.n_actions)
    policies = formulas.exponential_weights(learner.rate(0), nothing, actions, gains)
    return math.fsum((policies[:-1] * table).ravel())


@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize(("n_actions", "rounds"), [(3, 2100), (3, 2048), (3, 700), (1100, 1250)])
def test_a_whole_game_is_the_sum_over_policies(
    n_actions: int, rounds: int, rewards: Rewards
) -> None:
    """Longer than a block; the means change in the middle of it. All learners in one call."""
    pi_b = us.behaviors.interpolated(n_actions=n_actions, alpha=0.8)
    adversary = us.adversaries.switching(n_actions=n_actions, rounds=rounds)
    game = us.Game(adversary, pi_b, rounds)
    learners = {name: recipe(pi_b, 0.05) for name, recipe in RECIPES.items()}
    found = us.simulate(game, learners, seed=4, rewards=rewards)
    assert set(found.path.values()) == {"compiled"}
    if rewards == "mean":
        for name, learner in learners.items():
            wanted = whole_game(game, learner, adversary.between(0, rounds), seed=4)
            assert found.reward[name][0] == pytest.approx(wanted, rel=1e-9)


# Adversaries that watch


PI = np.array([0.4, 0.3, 0.2, 0.1])
LEARNERS: dict[str, ExponentialWeights] = {
    **{name: recipe(PI, 0.3) for name, recipe in RECIPES.items()},
    "unknown, kl": us.exp3_ix_unknown(4, eta=0.3, width="kl"),
    "logged exp3": us.exp3(us.Logged(4), eta=0.3),
    "logged exp3_ix": us.exp3_ix(us.Logged(4), eta=0.3, gamma=lambda t: 1 / t),
    "logged prod": us.prod(us.Logged(4), eta=0.3),
}
WATCHING: dict[str, Adaptive] = {
    "hiding": us.adversaries.hiding(n_actions=4),
    "retaliating": us.adversaries.retaliating(n_actions=4),
    "waves": CompiledWaves(4),
}


def totals(adversary: Any, learner: Any, rewards: Rewards, rounds: int, seed: int = 3) -> Totals:
    """The only run of a game."""
    game = us.Game(adversary, PI, rounds)
    plan = SimulationPlan(game, {"one": learner}, [0, 1, 2, 3, "best"], rewards, seed)
    (run,) = play_runs(plan, [0])
    return run["one"]


def assert_same_totals(found: Totals, wanted: Totals) -> None:
    assert found.learner == pytest.approx(wanted.learner, abs=1e-9)
    assert found.behavior == pytest.approx(wanted.behavior, abs=1e-9)
    np.testing.assert_allclose(found.comparators, wanted.comparators, rtol=0, atol=1e-9)


def by_hand(
    adversary: Any, learner: ExponentialWeights, rewards: Rewards, rounds: int, seed: int = 3
) -> Totals:
    """The same from the record of `us.play`, which is plain Python."""
    game = us.Game(adversary, PI, rounds)
    own = behavior = 0.0
    actions = np.zeros(4)
    for played in us.play(game, learner, seed=seed):
        counted = played.means if rewards == "mean" else played.rewards
        own += float(played.policy @ counted)
        behavior += float(played.behavior @ counted)
        actions += counted
    return Totals(own, behavior, np.append(actions, actions.max()))


@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("watching", WATCHING)
def test_the_compiled_referee_is_the_readable_one(
    watching: str, name: str, rewards: Rewards
) -> None:
    """Same seed, same totals to 1e-9, with known, logged and unknown behavior."""
    adversary, learner = WATCHING[watching], LEARNERS[name]
    found = totals(adversary, learner, rewards, rounds=300)
    assert_same_totals(found, by_hand(adversary, learner, rewards, rounds=300))


@pytest.mark.parametrize("watching", WATCHING)
def test_the_compiled_referee_across_refreshes(watching: str) -> None:
    """2100 rounds are two refreshes of W; `t` goes on over them."""
    adversary, learner = WATCHING[watching], LEARNERS["exp3"]
    found = totals(adversary, learner, "mean", rounds=2100)
    assert_same_totals(found, by_hand(adversary, learner, "mean", rounds=2100))


@pytest.mark.large
def test_the_compiled_referee_across_stretches() -> None:
    """The behavior's actions are drawn 8192 at a time; memory, streams and rounds go on."""
    adversary, learner = WATCHING["waves"], LEARNERS["exp3_ix_unknown"]
    found = totals(adversary, learner, "realised", rounds=8200)
    assert_same_totals(found, by_hand(adversary, learner, "realised", rounds=8200))


@pytest.mark.parametrize("rewards", REWARDS)
def test_an_adversary_of_a_users_own_and_its_plain_twin(rewards: Rewards) -> None:
    """Two compiled functions in a file of the user's own are an adversary."""
    learner = LEARNERS["exp3_ix"]
    plain, fast = (totals(kind(4), learner, rewards, 500) for kind in (Waves, CompiledWaves))
    assert_same_totals(fast, plain)


class WithoutEarn:
    """A learner with no more than the protocol asks for."""

    def __init__(self, learner: ExponentialWeights) -> None:
        self.learner = learner

    def __getattr__(self, name: str) -> Any:
        if name in ("expected_reward", "meet"):
            raise AttributeError(name)
        return getattr(self.learner, name)


KNOWN = LEARNERS["exp3"]
OBLIVIOUS = us.adversaries.stationary([0.1, 0.2, 0.3, 0.4])
PATHS: dict[str, tuple[Any, Any, str]] = {
    "oblivious": (OBLIVIOUS, KNOWN, "compiled"),
    "oblivious, unknown behavior": (OBLIVIOUS, LEARNERS["exp3_ix_unknown"], "compiled"),
    "oblivious, unknown behavior, kl": (OBLIVIOUS, LEARNERS["unknown, kl"], "compiled"),
    "hiding": (WATCHING["hiding"], KNOWN, "compiled"),
    "hiding, unknown behavior, kl": (WATCHING["hiding"], LEARNERS["unknown, kl"], "compiled"),
    "retaliating": (WATCHING["retaliating"], LEARNERS["logged prod"], "compiled"),
    "compiled by the user": (WATCHING["waves"], KNOWN, "compiled"),
    "Python only": (Waves(4), KNOWN, "referee"),
    "means as rewards": (us.adversaries.hiding(n_actions=4, bernoulli=False), KNOWN, "referee"),
    "watched, without earn": (WATCHING["hiding"], WithoutEarn(KNOWN), "referee"),
    "without earn": (OBLIVIOUS, WithoutEarn(KNOWN), "stretches"),
}


@pytest.mark.parametrize("name", PATHS)
def test_the_path_says_how_a_game_was_played(name: str) -> None:
    adversary, learner, path = PATHS[name]
    result = us.simulate(us.Game(adversary, PI, rounds=20), {"one": learner})
    assert result.path == {"one": path}
