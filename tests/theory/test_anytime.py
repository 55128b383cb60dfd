"""Learners that need no horizon: `understudy.schedules`, policies, the theorem, every path."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support import formulas
from tests.support.enumeration import (
    ADVERSARIES,
    Adversary,
    adversaries,
    assert_at_most,
    comparators,
    expected,
    gain,
    plug_in_gain,
    total_gains,
)
from tests.support.strategies import Array, Game, behaviors, games, logs, quick
from tests.theory.test_theorems import LARGE_GAMES
from understudy import schedules, theory
from understudy.errors import NotMergeable
from understudy.learners import ExponentialWeights
from understudy.schedules import (
    CHANGES,
    Decaying,
    chunks_of_constant_rate,
    geometric_grid,
    last_change,
)

ANYTIME: dict[str, Callable[[Array], ExponentialWeights]] = {
    "exp3": us.exp3,
    "exp3_ix": us.exp3_ix,
    "prod": us.prod,
    "exp3_ix_unknown": lambda behavior: us.exp3_ix_unknown(len(behavior)),
}
PESSIMISTIC = ("exp3_ix", "prod")


def rate(n_actions: int, t: int) -> float:
    """√(log K/(2t')), with t' the round in which it was set: said once more, by counting."""
    return math.sqrt(math.log(n_actions) / (2 * float(formulas.last_change(t))))


def gains_of(name: str, behavior: Array, log: us.Log) -> Array:
    """g_t(A^B_t), each frozen with the rate of its own round."""
    K, actions = len(behavior), log.actions.tolist()
    found = []
    for t, (a, reward) in enumerate(zip(actions, log.rewards.tolist(), strict=True), start=1):
        eta = rate(K, t)
        if name == "exp3_ix_unknown":
            found.append(plug_in_gain(reward, a, tuple(actions[: t - 1]), K, eta))
        else:
            found.append(gain(name, reward, float(behavior[a]), eta))
    return np.array(found)


def test_rates_fall_and_are_held_for_at_most_five_percent() -> None:
    t = np.concatenate([np.arange(1, 5000), np.geomspace(5000, 2**53, 4000).astype(np.int64)])
    assert (last_change(t) <= t).all()
    assert (21 * last_change(t) > 20 * t - 20).all()
    assert (np.diff(Decaying(1.0)(t)) <= 0).all()
    assert (np.diff(CHANGES) > 0).all()
    assert [rate(2, k) for k in range(1, 400)] == pytest.approx(
        Decaying(theory.anytime_scale(2))(np.arange(1, 400)).tolist(), rel=1e-14
    )


@pytest.mark.parametrize(("before", "rounds", "size"), [(0, 300, 7), (98, 50, 9), (10**6, 10, 3)])
def test_stretches_are_cut_where_rates_move(before: int, rounds: int, size: int) -> None:
    cuts = list(chunks_of_constant_rate(before, rounds, size))
    covered = [before + start + i for start, count in cuts for i in range(count)]
    assert covered == list(range(before, before + rounds))
    for start, count in cuts:
        t = before + start + 1 + np.arange(count)
        assert count <= size
        assert len(set(last_change(t).tolist())) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("held", last_change),
        ("spaced", geometric_grid),
        ("cut_where_rates_move", chunks_of_constant_rate),
    ],
)
def test_old_names_answer(old: str, new: object) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is now"):
        assert getattr(schedules, old) is new
    with pytest.raises(AttributeError, match=f"no attribute '{old}s'"):
        getattr(schedules, f"{old}s")


@pytest.mark.parametrize("name", ANYTIME)
@quick
@given(data=st.data(), behavior=behaviors(zeros=False, decades=1.0))
def test_policies_are_dual_averaging(name: str, data: st.DataObject, behavior: Array) -> None:
    """π_t(a) ∝ exp(η_t Σ_{k<t} g_k(a)): today's rate on all gains, each frozen with its own."""
    learner, K = ANYTIME[name](behavior), len(behavior)
    log = data.draw(logs(us.exp3(behavior, eta=1.0), max_rounds=60))
    gains = gains_of(name, behavior, log)
    _, found = learner.policies(learner.init(), log)
    for t in range(len(log)):
        exponents = rate(K, t + 1) * total_gains(K, log.actions[:t], gains[:t])
        wanted = np.exp(exponents - exponents.max())
        np.testing.assert_allclose(found[t], wanted / wanted.sum(), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", PESSIMISTIC)
@quick
@given(data=st.data(), behavior=behaviors(zeros=False, decades=1.0))
def test_no_horizon_pathwise(name: str, data: st.DataObject, behavior: Array) -> None:
    """max_a Σ_t g_t(a) ≤ log K/η_n + Σ_t ⟨π_t, r̂_t⟩ on every log, whatever its length."""
    learner, K = ANYTIME[name](behavior), len(behavior)
    log = data.draw(logs(learner, max_rounds=60).filter(len))
    totals = total_gains(K, log.actions, gains_of(name, behavior, log))
    _, trace = learner.replay(learner.init(), log)
    unbiased = float(trace.probability @ (log.rewards / behavior[log.actions]))
    assert_at_most(totals.max(), math.log(K) / rate(K, len(log)) + unbiased)


def assert_no_horizon(name: str, game: Game, adversary: Adversary) -> None:
    """E Reg(π*) ≤ log K/η_n + E Σ⟨π*, r_t − g_t⟩ ≤ the bounds, for every π*."""
    K, n = len(game.behavior), game.rounds
    exact = expected(ANYTIME[name](game.behavior), game, adversary)
    for comparator in comparators(K):
        sharpest = math.log(K) / rate(K, n) + exact.bias(comparator)
        bound = theory.theorem1_anytime_bound(
            comparator, game.behavior, horizon=n, scale=theory.anytime_scale(K)
        )
        assert_at_most(exact.regret(comparator), sharpest)
        assert_at_most(sharpest, bound)
        if (game.behavior > 0).all():
            ratio = us.coverage(comparator, game.behavior)
            assert_at_most(bound, theory.theorem1_anytime_uniform_bound(K, n, ratio))


@pytest.mark.parametrize("name", PESSIMISTIC)
@quick
@given(game=games(), adversary=adversaries)
def test_no_horizon_expected(name: str, game: Game, adversary: Adversary) -> None:
    assert_no_horizon(name, game, adversary)


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("size", LARGE_GAMES)
@pytest.mark.parametrize("name", PESSIMISTIC)
def test_no_horizon_in_larger_games(name: str, size: str, adversary: str) -> None:
    assert_no_horizon(name, LARGE_GAMES[size], ADVERSARIES[adversary])


@quick
@given(game=games(zeros=False), adversary=adversaries)
def test_no_horizon_tuned(game: Game, adversary: Adversary) -> None:
    """(1 + √1.05)√(C n log K) for the coverage that it was tuned to."""
    K, n = len(game.behavior), game.rounds
    for comparator in comparators(K):
        ratio = us.coverage(comparator, game.behavior)
        exact = expected(us.exp3_ix(game.behavior, coverage=ratio), game, adversary)
        scale = theory.anytime_scale(K, ratio)
        full = theory.theorem1_anytime_bound(comparator, game.behavior, horizon=n, scale=scale)
        assert_at_most(exact.regret(comparator), full)
        assert_at_most(full, theory.theorem1_anytime_tuned_bound(K, n, ratio))


def test_bounds_add_up_round_by_round() -> None:
    """The sum over held rates, against one term a round."""
    q, n, scale = np.array([0.2, 0.8]), 777, 0.4
    etas = [scale / rate(2, 1) * rate(2, t) for t in range(1, n + 1)]
    for comparator in ([1.0, 0.0], [0.3, 0.7]):
        price = sum(p * (e / 2) / (x + e / 2) for e in etas for p, x in zip(comparator, q))  # noqa: B905 - two and two
        found = theory.theorem1_anytime_bound(comparator, q, horizon=n, scale=scale)
        assert found == pytest.approx(math.log(2) / etas[-1] + price, rel=1e-12)


@pytest.mark.parametrize("name", ANYTIME)
@pytest.mark.parametrize("rewards", ["mean", "realised"])
def test_simulations_play_what_the_referee_plays(name: str, rewards: Any) -> None:
    """Compiled stretches, cut where the rate moves, against round after round in Python."""
    behavior = np.array([0.2, 0.3, 0.5])
    learner = ANYTIME[name](behavior)
    for adversary in (
        us.adversaries.switching(n_actions=3, rounds=300),
        us.adversaries.retaliating(n_actions=3),
    ):
        game = us.Game(adversary, behavior, rounds=300)
        found = us.simulate(game, {"it": learner}, runs=2, seed=3, comparators=[0], rewards=rewards)
        assert found.path == {"it": "compiled"}
        for run in range(2):
            regret = 0.0
            for played in us.play(game, learner, seed=3, run=run):
                counted = played.means if rewards == "mean" else played.rewards
                regret += counted[0] - played.policy @ counted
            assert found.regret["it"][run, 0] == pytest.approx(regret, abs=1e-9)


@pytest.mark.parametrize("name", ANYTIME)
def test_states_without_a_horizon_do_not_add_up(name: str) -> None:
    learner = ANYTIME[name](np.array([0.5, 0.5]))
    with pytest.raises(NotMergeable, match=r"depends on"):
        learner.merge(learner.init(), learner.init())


@pytest.mark.large
def test_a_million_rounds_without_a_horizon() -> None:
    """Regret √n against a good action, without a horizon."""
    behavior = us.behaviors.uniform(n_actions=10)
    means = np.full(10, 0.5)
    means[3] = 0.6
    game = us.Game(us.adversaries.stationary(means), behavior, rounds=1_000_000)
    found = us.simulate(game, {"it": us.exp3_ix(behavior)}, runs=2, comparators=[3])
    assert found.path == {"it": "compiled"}
    bound = theory.theorem1_anytime_uniform_bound(10, 1_000_000, coverage=10.0)
    assert (found.regret["it"] < bound / 3).all()
