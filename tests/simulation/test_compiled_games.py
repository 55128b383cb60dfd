"""Compiled games: logs, means that stay for a while, adversaries that watch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st
from numpy.random import PCG64, Generator

import understudy as us
from tests.support import formulas
from tests.support.enumeration import RECIPES
from tests.support.strategies import Array, Integers, quick, seeds
from understudy import Round, kernels
from understudy.kernels.compiler import compiled
from understudy.kernels.games import play_adaptive
from understudy.learners import ExponentialWeights
from understudy.simulation.adversaries import Adaptive
from understudy.simulation.engine import SimulationPlan, Totals, play_runs
from understudy.simulation.game import RandomStreams
from understudy.types import kernel_view

Rewards = Literal["mean", "realised"]
REWARDS: tuple[Rewards, ...] = ("mean", "realised")
STEP = 2.0**-53  # between the numbers that a generator draws
LAST = 1.0 - STEP
MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645  # of PCG64
WORD = 1 << 128


# Which action a uniform number stands for


def about_to_draw(u: float) -> Generator:
    """A generator whose next number is u, a multiple of 2^-53: PCG64 can be run backwards."""
    bits = PCG64(0)
    state: Any = bits.state
    after = int(u / STEP) << 11
    state["state"]["state"] = (after - state["state"]["inc"]) * pow(MULTIPLIER, -1, WORD) % WORD
    bits.state = state
    return Generator(bits)


def action_of(u: float, edges: Array, guide: Integers) -> int:
    """The action that `observe` finds if the generator draws u."""
    actions, rewards = np.empty(1, dtype=np.int64), np.empty(1)
    means = kernel_view(np.zeros(len(edges)))
    luck = np.random.default_rng(0)
    kernels.games.draw_log(about_to_draw(u), luck, edges, guide, means, actions, rewards)
    return int(actions[0])


def assert_all_stand_for_the_same(edges: Array, uniforms: Array) -> None:
    shown = kernel_view(edges)
    guide = kernel_view(kernels.games.guide_table(shown))
    found = [action_of(float(u), shown, guide) for u in uniforms]
    assert found == np.searchsorted(edges, uniforms, side="right").tolist()


def edges_of(probabilities: Array) -> Array:
    edges = np.cumsum(probabilities)
    return np.asarray(edges / edges[-1])


def around(numbers: Array) -> Array:
    """What a generator can draw on, just below and just above these numbers, and both ends."""
    on = np.floor(np.unique(numbers) / STEP) * STEP
    near = np.concatenate([on - STEP, on, on + STEP, [0.0, LAST]])
    return near[(near >= 0) & (near <= LAST)]


def test_a_generator_can_be_told_what_to_draw() -> None:
    for u in (0.0, STEP, 0.5, 0.1 // STEP * STEP, LAST):
        assert about_to_draw(u).random() == u


@st.composite
def probabilities(draw: st.DrawFn) -> Array:
    """K from 2 to 1000: some 0, some as small as 1e-300, or all of it on one action."""
    n_actions = draw(st.sampled_from([2, 3, 5, 10, 64, 100, 1000]))
    rng = np.random.default_rng(draw(seeds))
    weights = rng.random(n_actions)
    kind = draw(st.sampled_from(["any", "zeros", "tiny", "one"]))
    if kind == "zeros":
        weights *= rng.random(n_actions) < 0.3
    elif kind == "tiny":
        weights *= 10.0 ** -rng.choice([0, 3, 300], n_actions)
    if kind == "one" or weights.sum() == 0:
        weights = np.eye(n_actions)[rng.integers(n_actions)]
    return np.asarray(weights / weights.sum())


@quick
@forall(chances=probabilities(), seed=seeds)
def test_a_number_stands_for_the_first_action_whose_edge_lies_above(
    chances: Array, seed: int
) -> None:
    """Numbers on an edge and next to it, 0, the largest below 1, and any other."""
    edges, rng = edges_of(chances), np.random.default_rng(seed)
    uniforms = np.concatenate([around(rng.choice(edges, 20)), rng.random(40)])
    assert_all_stand_for_the_same(edges, uniforms)


@pytest.mark.parametrize("n_actions", [2, 4, 8, 64, 1024])
def test_numbers_on_the_edges_of_halves(n_actions: int) -> None:
    """π_B uniform over a power of two: every edge is a number that can be drawn."""
    edges = edges_of(np.full(n_actions, 1 / n_actions))
    assert_all_stand_for_the_same(edges, around(edges[:100]))


@pytest.mark.parametrize("n_actions", [3, 5, 6, 7, 9, 10, 11, 100])
def test_numbers_next_to_the_edges_of_a_uniform_behavior(n_actions: int) -> None:
    """Edges are i/K but for rounding: K times an edge may round to i from above or below."""
    edges = edges_of(us.behaviors.uniform(n_actions=n_actions))
    assert_all_stand_for_the_same(edges, around(edges))


def test_a_number_just_below_an_edge_that_rounds_to_a_multiple_of_one_over_k() -> None:
    """3 · 0.6666666666666666 and 3 · 0.6666666666666667 are both 2.0, the numbers are not one."""
    edges = np.array([1 / 3, math.nextafter(2 / 3, 1.0), 1.0])
    assert_all_stand_for_the_same(edges, np.array([2 / 3]))


@quick
@forall(chances=probabilities(), seed=seeds)
def test_logs_are_the_reference(chances: Array, seed: int) -> None:
    """One uniform number for the action and one for the reward, 1 where it lies below the mean."""
    n, edges = 200, edges_of(chances)
    means = np.random.default_rng(seed).random(len(edges)).round(1)
    actions, rewards = np.empty(n, dtype=np.int64), np.empty(n)
    own, luck = (np.random.default_rng([seed, i]) for i in (0, 1))
    shown, guide = kernel_view(edges), kernel_view(kernels.games.guide_table(kernel_view(edges)))
    kernels.games.draw_log(own, luck, shown, guide, kernel_view(means), actions, rewards)
    uniforms = np.array([np.random.default_rng([seed, i]).random(n) for i in (0, 1)])
    played, won = formulas.observe(edges, np.broadcast_to(means, (n, len(means))), uniforms)
    np.testing.assert_array_equal(actions, played)
    np.testing.assert_array_equal(rewards, won)


@quick
@forall(seed=seeds, n_actions=st.integers(1, 6), n=st.integers(0, 40))
def test_counts_before_every_event(seed: int, n_actions: int, n: int) -> None:
    """From any counts; and the counts go on."""
    rng = np.random.default_rng(seed)
    counts, actions = rng.integers(100, size=n_actions), rng.integers(n_actions, size=n)
    after, before = counts.copy(), np.empty(n, dtype=np.int64)
    kernels.certificates.count_before(after, kernel_view(actions), before)
    assert before.tolist() == formulas.count_before(counts, actions).tolist()
    np.testing.assert_array_equal(after, counts + np.bincount(actions, minlength=n_actions))


# Whole games


def whole_game(game: us.Game, learner: ExponentialWeights, table: Array, seed: int) -> float:
    """Σ_t ⟨π_t, r_t⟩ against a table of means (n, K), in NumPy."""
    streams = RandomStreams(seed, 0)
    uniforms = np.array(
        [streams.behavior.random(game.rounds), streams.observed.random(game.rounds)]
    )
    actions, rewards = formulas.observe(edges_of(game.behavior), table, uniforms)
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


@compiled
def choose_waves(memory: Any, parameters: Any, t: int, means: Any) -> None:
    """More for what the behavior plays while it wins, with a wave of time over it."""
    for a in range(means.size):
        means[a] = parameters[0] + parameters[1] * memory[a] / t
    means[t % means.size] = parameters[2]


@compiled
def observe_waves(  # noqa: PLR0917 - the form of all adversaries
    memory: Any, parameters: Any, t: int, policy: Any, action: int, b: int, rewards: Any
) -> None:
    memory[b] += 0.25 * rewards[b]
    memory[action] += 0.25 * policy[action]
    memory[t % policy.size] += parameters[0] * rewards[(b + 1) % policy.size]


@compiled
def waves(adversary: Any, stage: Any, learner: Any) -> Any:
    return play_adaptive(choose_waves, observe_waves, adversary, stage, learner)


@dataclass(frozen=True)
class Waves(Adaptive):
    """An adversary of a user's own, in plain Python."""

    low: float = 0.2
    high: float = 0.7

    def init(self) -> Array:
        return np.zeros(self.n_actions)

    def choose(self, memory: Array, t: int) -> Array:
        means = self.low + 0.5 * memory / t
        means[t % self.n_actions] = self.high
        return np.asarray(means)

    def observe(self, memory: Array, played: Round) -> Array:
        after, b = memory.copy(), played.behavior_action
        after[b] += 0.25 * played.rewards[b]
        after[played.action] += 0.25 * played.policy[played.action]
        after[played.t % self.n_actions] += self.low * played.rewards[(b + 1) % self.n_actions]
        return after


@dataclass(frozen=True)
class CompiledWaves(Waves):
    """Its compiled twin."""

    def compiled(self) -> tuple[Callable[..., Any], Array, Array]:
        return waves, self.init(), np.array([self.low, 0.5, self.high])


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
