"""Kernels of games (`understudy.kernels`): which action a number stands for, logs, counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st
from numpy.random import PCG64, Generator

import understudy as us
from tests.support import formulas
from tests.support.kernel_arrays import kernel_view
from tests.support.strategies import Array, Integers, quick, seeds
from understudy import kernels

STEP = 2.0**-53  # between the numbers that a generator draws


LAST = 1.0 - STEP


MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645  # of PCG64


WORD = 1 << 128


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
    kernels.confidence.count_before(after, kernel_view(actions), before)
    assert before.tolist() == formulas.count_before(counts, actions).tolist()
    np.testing.assert_array_equal(after, counts + np.bincount(actions, minlength=n_actions))
