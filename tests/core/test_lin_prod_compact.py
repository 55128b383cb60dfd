"""LinProd in constant memory: its inequality, its bounds, and the same bits in any batching."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

import understudy as us
from tests.support import formulas
from tests.support.enumeration import (
    assert_at_most,
    comparator_tables,
    estimated_rewards,
    expected_linear,
    lin_prod_policies,
)
from tests.support.example_learners import example_log
from tests.support.reference import disjoint
from tests.support.strategies import (
    Array,
    LinearGame,
    falling_rate,
    linear_games,
    linear_logs,
    quick,
    seeds,
)
from understudy import theory
from understudy.errors import InvalidArgument, InvalidEvent

K = 3
C = us.learners.LinProd.curvature


# The inequality, and what follows from it


@forall(z=st.floats(-0.5, 1e6))
def test_the_inequality(z: float) -> None:
    """e^{z − c z²} ≤ 1 + z for z ≥ −½."""
    assert z - C * z * z <= math.log1p(z) + 1e-15


def test_the_constant_is_the_smallest_of_four_digits() -> None:
    """At z = −½ it must be 4 log 2 − 2: 0.7725 is too small, and a little below −½ so is 0.7726.

    Above −½ less will do: (z − log(1 + z))/z² is the integral of s/(1 + sz) over [0, 1], and falls.
    """
    smallest = 4 * math.log(2) - 2
    assert smallest < C < smallest + 1e-4
    assert -0.5 - smallest / 4 == pytest.approx(math.log(0.5), rel=1e-15)
    assert math.log(0.5) < -0.5 - (C - 1e-4) / 4
    assert math.log(0.4999) < -0.5001 - C * 0.5001**2
    z = np.concatenate([np.linspace(-0.5, -0.01, 1000), np.geomspace(0.01, 1e6, 1000)])
    needed = (z - np.log1p(z)) / z**2
    assert (np.diff(needed) < 0).all()
    assert needed[0] == pytest.approx(smallest, rel=1e-14)


def test_the_worst_event_leaves_nothing_of_the_constant() -> None:
    """φ = 1, −1, 0 at η = 1/(2κ): action 1 gets the product's weight ½ but for its fifth digit."""
    phi = np.array([[1.0], [-1.0], [0.0]])
    recipes: list[Any] = [us.lin_prod_compact, us.lin_prod]
    ratios = []
    for recipe in recipes:
        learner = recipe([[1.0]], n_actions=3, eta=0.5, kappa=1.0)
        event = us.Feedback(action=0, reward=1.0, features=phi)
        policy = learner.policy(learner.update(learner.init(), event), phi)
        ratios.append(policy / policy[2])
    compact, product = ratios
    np.testing.assert_allclose(product, [1.5, 0.5, 1.0], rtol=1e-12)
    assert (compact[:2] < product[:2]).all()
    assert compact[1] == pytest.approx(0.5, rel=1e-5)


@quick
@forall(game=linear_games(), data=st.data(), fraction=st.floats(0.05, 1.0))
def test_no_factor_is_above_the_products(
    game: LinearGame, data: st.DataObject, fraction: float
) -> None:
    """η⟨θ̂, φ⟩ − c η² ⟨θ̂, φ⟩² ≤ log(1 + η⟨θ̂, φ⟩) for each round, context and action of a log.

    The left side is what the sums say of a log of one round.
    """
    eta = fraction * game.largest_rate
    learner = game.play(us.lin_prod_compact, eta)
    contexts, log = data.draw(linear_logs(game))
    r_hat = estimated_rewards(game, contexts, log)
    for t, event in enumerate(log.events()):
        found = log_weights(learner.update(learner.init(), event), eta, game)
        np.testing.assert_allclose(found, eta * r_hat[t] - C * (eta * r_hat[t]) ** 2, atol=1e-9)
        assert (found <= np.log1p(eta * r_hat[t]) + 1e-9).all()


def log_weights(state: Any, eta: float, game: LinearGame) -> Array:
    """η(⟨Θ, φ⟩ − c φᵀSφ) in every context, from the sums on their own, (X, K)."""
    S = state.squares
    if game.contexts is not None:
        S, _ = disjoint(S, game.contexts)
    linear = game.features @ state.theta.ravel()
    square = np.einsum("xkd,de,xke->xk", game.features, S, game.features)
    return np.asarray(eta * (linear - C * square))


# Without a horizon


@quick
@forall(game=linear_games(), data=st.data(), first=st.floats(0.1, 3.0))
def test_a_falling_rate_pathwise(game: LinearGame, data: st.DataObject, first: float) -> None:
    """Σ_t g_t(x, a) − Σ_t ⟨π_t(·|x), r̂_t(x, ·)⟩ ≤ log K/η_n for every context and action."""
    learner = game.falling(first)
    contexts, log = data.draw(linear_logs(game))
    etas = learner.rates(np.arange(1, len(log) + 1))
    r_hat = estimated_rewards(game, contexts, log)
    gains = (r_hat - C * etas[:, np.newaxis, np.newaxis] * r_hat**2).sum(axis=0)
    earned = (lin_prod_policies(learner, game, log)[:-1] * r_hat).sum(axis=(0, 2))
    if len(log):
        bound = math.log(game.n_actions) / float(etas[-1])
        for found in (gains - earned[:, np.newaxis]).ravel():
            assert_at_most(float(found), bound)


@pytest.mark.parametrize("adaptive", [False, True])
@quick
@forall(game=linear_games(max_contexts=2, rounds=3), first=st.floats(0.1, 2.0))
def test_the_bound_without_a_horizon(adaptive: bool, game: LinearGame, first: float) -> None:
    """E Reg(π*) ≤ log K/η_n + c C_φ Σ_t η_t over all sequences of contexts and actions."""
    learner = game.falling(first)
    n, exact = len(game.thetas), expected_linear(learner, game, adaptive=adaptive)
    for comparator in comparator_tables(*game.behavior.shape):
        coverage = us.feature_coverage(game.covariance(comparator), game.V)
        own: Any = {"eta": learner.eta, "kappa": learner.kappa, "curvature": learner.curvature}
        bound = theory.lin_prod_anytime_bound(game.n_actions, horizon=n, coverage=coverage, **own)
        assert_at_most(exact.regret(comparator), bound)


@quick
@forall(
    n=st.integers(1, 3000),
    scale=st.floats(0.01, 10.0),
    kappa=st.floats(1.0, 100.0),
    coverage=st.floats(0.0, 50.0),
    curvature=st.floats(C, 1.0),
)
def test_the_bound_is_its_sum(
    n: int, scale: float, kappa: float, coverage: float, curvature: float
) -> None:
    """Term by term; with a rate that stays it is Theorem 3's."""
    changes = formulas.last_change(np.arange(1, n + 1)).tolist()
    rates = [min(1 / (2 * kappa), scale / math.sqrt(changed)) for changed in changes]
    for own in ({"curvature": curvature}, {}):  # the paper's is 1
        wanted = math.log(K) / rates[-1] + own.get("curvature", 1.0) * coverage * math.fsum(rates)
        arguments: Any = {"horizon": n, "coverage": coverage, **own}
        falling = falling_rate(scale)
        found = theory.lin_prod_anytime_bound(K, eta=falling, kappa=kappa, **arguments)
        assert found == pytest.approx(wanted, rel=1e-12)
        eta = 1 / (2 * kappa)
        found = theory.lin_prod_anytime_bound(K, eta=eta, kappa=kappa, **arguments)
        wanted = theory.lin_prod_bound(K, eta=eta, **arguments)
        assert found == pytest.approx(wanted, rel=1e-12)


@quick
@forall(coverage=st.floats(0.1, 1e4), n=st.integers(1, 10**9))
def test_the_papers_rate_is_within_a_hundredth_of_the_best(coverage: float, n: int) -> None:
    """(1 + c) √(C n log K) at √(log K/(C n)), and 2 √(c C n log K) at the best rate."""
    arguments: Any = {"horizon": n, "coverage": coverage, "curvature": C}
    eta = theory.lin_prod_rate(K, n, coverage)
    found = theory.lin_prod_bound(K, eta=eta, **arguments)
    assert found == pytest.approx((1 + C) / 2 * theory.lin_prod_tuned_bound(K, n, coverage))
    best = theory.lin_prod_bound(K, eta=eta / math.sqrt(C), **arguments)
    assert best < found < 1.01 * best


@pytest.mark.parametrize("coverage", [None, 4.0])
def test_not_knowing_the_horizon_costs_a_factor_of_about_the_root_of_two(
    coverage: float | None,
) -> None:
    """√2 (1 + 2.5 %) times Theorem 3 at its own rate, once the cap no longer bites."""
    for n in (10**4, 10**6):
        eta = us.lin_prod_compact(np.eye(2), n_actions=K, kappa=2.0, coverage=coverage).eta
        found = theory.lin_prod_anytime_bound(K, horizon=n, eta=eta, kappa=1e-3, coverage=4.0)
        known = theory.lin_prod_rate(K, n, coverage)
        wanted = theory.lin_prod_bound(K, horizon=n, eta=known, coverage=4.0)
        assert 1.38 < found / wanted < math.sqrt(2) * math.sqrt(1.05)


@quick
@forall(seed=seeds, d=st.integers(1, 9), n=st.integers(0, 5))
def test_leverages(seed: int, d: int, n: int) -> None:
    """xᵀ V_a⁻¹ x, also where x is 0 in places; of each context the bits that it has alone."""
    rng = np.random.default_rng(seed)
    x, M = rng.normal(size=(n, d)) * rng.integers(2, size=(n, d)), rng.normal(size=(K, d, d))
    found = theory.leverage(x, M)
    np.testing.assert_allclose(found, np.einsum("xi,kij,xj->xk", x, M, x), rtol=1e-9, atol=1e-12)
    alone = [theory.leverage(x[t : t + 1], M)[0].tobytes() for t in range(n)]
    assert alone == [row.tobytes() for row in found]


# Any batching, any shape


def learners() -> dict[str, Any]:
    V = 0.5 * np.eye(3) + 0.1
    blocks, sizes = np.stack([V] * K), dict[str, Any](n_actions=K, kappa=20.0)
    unknown: Any = {"n_actions": K, "dimension": 3, "feature_bound": 2.0, "eta": 0.05}
    return {
        "shared": us.lin_prod_compact(V, eta=0.02, **sizes),
        "disjoint": us.lin_prod_compact(blocks, eta=0.02, **sizes),
        "falling": us.lin_prod_compact(V, **sizes, coverage=50.0),
        "unknown": us.lin_prod_unknown(**unknown),
        "unknown, disjoint": us.lin_prod_unknown(**unknown, disjoint=True),
    }


LEARNERS = learners()
ROUNDS = 130
LOGS = {name: example_log(learner, ROUNDS, seed=2) for name, learner in LEARNERS.items()}


def bits(state: Any) -> list[bytes]:
    sums = getattr(state, "sums", state)
    arrays = [sums.theta, sums.squares]
    if sums is not state:
        arrays += [state.seen, state.inverse]
    return [array.tobytes() for array in arrays]


@pytest.mark.parametrize("name", LEARNERS)
@quick
@forall(cuts=st.sets(st.integers(1, ROUNDS - 1), max_size=12))
def test_any_batching_gives_the_same_bits(name: str, cuts: set[int]) -> None:
    """Whether a log is cut before, in or after a round in which the rate or the inverse moves."""
    learner, log = LEARNERS[name], LOGS[name]
    whole, table = learner.policies(learner.init(), log)
    state, edges = learner.init(), [0, *sorted(cuts), ROUNDS]
    for start, stop in pairwise(edges):
        assert log.features is not None
        asked = learner.policy(state, log.features[start])
        assert asked.tobytes() == table[start].tobytes()
        state, part = learner.policies(state, log[start:stop])
        assert part.tobytes() == table[start:stop].tobytes()
    assert bits(state) == bits(whole)


@pytest.mark.parametrize("name", ["shared", "disjoint", "falling"])
def test_many_contexts_at_one_state(name: str) -> None:
    """The policy of each, bit for bit."""
    learner, log = LEARNERS[name], LOGS[name]
    state, _ = learner.replay(learner.init(), log)
    found = learner.policies_at(state, log.features)
    assert log.features is not None
    for x, policy in zip(log.features, found, strict=True):
        assert learner.policy(state, x).tobytes() == policy.tobytes()
    assert learner.policies_at(state, log.features[:0]).shape == (0, K)
    for wrong in (log.features[0, ..., :1], log.features[..., :-1], [[math.nan] * 3]):
        with pytest.raises(InvalidArgument, match="features"):
            learner.policies_at(state, wrong)
    with pytest.raises(InvalidEvent, match="features of event 1 = "):
        learner.policies_at(
            state,
            log.features
            * np.array([1.0] + [1e3] * (ROUNDS - 1)).reshape(-1, *[1] * (log.features.ndim - 1)),
        )


@quick
@forall(game=linear_games(), data=st.data())
def test_blocks_are_a_block_diagonal_matrix(game: LinearGame, data: st.DataObject) -> None:
    """V in K blocks and contexts, or V whole and φ(x, a) = e_a ⊗ x: one learner."""
    contexts, log = data.draw(linear_logs(game))
    kappa, eta = game.kappa * (1 + 1e-9), 0.9 * game.largest_rate
    make: Any = {"n_actions": game.n_actions, "eta": eta, "kappa": kappa}
    small, large = us.lin_prod_compact(game.shown_V, **make), us.lin_prod_compact(game.V, **make)
    whole = us.Log(log.actions, log.rewards, features=game.features[contexts[:-1]])
    found, wanted = (x.policies(x.init(), y) for x, y in ((small, log), (large, whole)))
    np.testing.assert_allclose(found[1], wanted[1], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found[0].theta.ravel(), wanted[0].theta, rtol=0, atol=1e-8)


@quick
@forall(game=linear_games(), data=st.data(), reward=st.floats(0.1, 1.0))
def test_only_rewards_are_learned_from(
    game: LinearGame, data: st.DataObject, reward: float
) -> None:
    """R = 0 leaves Θ and S as they are; R scales θ̂ and, twice, its square."""
    learner = game.play(us.lin_prod_compact, game.largest_rate)
    x, action = int(data.draw(linear_logs(game))[0][-1]), data.draw(st.integers(0, 1))
    event = us.Feedback(action, 1.0, None, game.shown[x])
    full = learner.update(learner.init(), event)
    part = learner.update(learner.init(), replace(event, reward=reward))
    none = learner.update(learner.init(), replace(event, reward=0.0))
    assert none.rounds == 1
    assert not none.theta.any()
    assert not none.squares.any()
    np.testing.assert_allclose(part.theta, reward * full.theta, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(part.squares, reward**2 * full.squares, rtol=1e-12, atol=1e-12)


@pytest.mark.large
@pytest.mark.parametrize("apart", [False, True])
def test_a_million_rounds(apart: bool) -> None:
    """With constant features the sums have a closed form, and e to it has no double.

    Right to the rounding of a million additions, half an ulp each.
    """
    n, eta, q = 1_000_000, 0.1, np.array([0.4, 0.6])
    V = q[:, np.newaxis, np.newaxis] if apart else np.diag(q)
    shown = np.ones(1) if apart else np.eye(2)
    learner = us.lin_prod_compact(V, n_actions=2, eta=eta, kappa=1 / q.min())
    z = eta / q
    gain = z - C * z**2
    share = 1 / (1 + gain[0] / gain[1])
    counts = np.array([round(share * n), n - round(share * n)])  # both grow alike
    rng = np.random.default_rng(0)
    actions = rng.permutation(np.repeat([0, 1], counts))
    log = us.Log(actions, np.ones(n), features=np.broadcast_to(shown, (n, *shown.shape)))
    state, trace = learner.replay(learner.init(), log)
    exponents = counts * gain
    assert exponents.min() > 1e4
    wanted = np.exp(exponents - exponents.max())
    rounding = n * np.finfo(float).eps / 2 * exponents.max()
    found = learner.policy(state, shown)
    np.testing.assert_allclose(found, wanted / wanted.sum(), rtol=0, atol=rounding)
    assert np.isfinite(trace.probability).all()


# The constant is the learner's, not the state's


@pytest.mark.parametrize("name", LEARNERS)
def test_a_file_without_the_constant_has_that_of_0_5(name: str, tmp_path: Path) -> None:
    """1: it goes on with the bits that it had, and is written as it was."""
    learner, log = LEARNERS[name], LOGS[name]
    first = replace(learner, curvature=1.0)
    middle, _ = first.replay(first.init(), log[:60])
    path, again = tmp_path / "saved.json", tmp_path / "again.json"
    us.Understudy(first, middle).save(path)
    assert "curvature" not in path.read_text()
    loaded = us.load(path)
    old: Any = loaded.learner
    assert old.curvature == 1.0
    loaded.save(again)
    assert again.read_text() == path.read_text()
    state, found = old.policies(loaded.state, log[60:])
    wanted, table = first.policies(middle, log[60:])
    assert found.tobytes() == table.tobytes()
    assert bits(state) == bits(wanted)
    us.Understudy(learner, middle).save(again)
    new = json.loads(again.read_text())
    assert new["learner"].pop("curvature") == learner.curvature == C
    assert new == json.loads(path.read_text())


@pytest.mark.parametrize("name", LEARNERS)
def test_sums_do_not_depend_on_the_constant(name: str) -> None:
    """So states of learners with different ones are one kind; policies differ."""
    learner, log = LEARNERS[name], LOGS[name]
    first = replace(learner, curvature=1.0)
    (state, table), (other, policies) = (x.policies(x.init(), log) for x in (learner, first))
    assert bits(state) == bits(other)
    assert table[0].tobytes() == policies[0].tobytes()
    assert not np.allclose(table[-1], policies[-1], rtol=1e-4)
    if learner.order_dependence is None:
        assert bits(learner.merge(state, other)) == bits(first.merge(other, state))


# What is refused


@pytest.mark.parametrize("curvature", [0.7725, 0.5, 1.01])
@pytest.mark.parametrize("name", LEARNERS)
def test_constants_that_break_the_bound_are_refused(name: str, curvature: float) -> None:
    with pytest.raises(InvalidArgument, match=r"curvature = .* pass 0\.7726"):
        replace(LEARNERS[name], curvature=curvature)


@pytest.mark.parametrize("kappa", [50.0, None])
def test_features_that_overflow_are_refused(kappa: float | None) -> None:
    """φᵀV⁻¹φ is ∞ − ∞ then, which is not below κ either."""
    V = 0.1 * np.array([[1.0, 0.5], [0.5, 1.0]])
    bound = None if kappa else 2.0
    learner = us.lin_prod_compact(V, n_actions=2, horizon=10, kappa=kappa, feature_bound=bound)
    huge = np.full((2, 2), 1e308)
    with pytest.raises(InvalidEvent, match=r"kappa|feature_bound"):
        learner.update(learner.init(), us.Feedback(0, 1.0, features=huge))
    with pytest.raises(InvalidEvent, match=r"kappa|feature_bound"):
        learner.policy(learner.init(), huge)


def test_a_ridge_may_take_kappa_below_the_dimension() -> None:
    """Only what is shown counts: κ = sup φᵀV⁻¹φ for the V in use."""
    V = np.eye(4)
    learner = us.lin_prod_compact(V, n_actions=2, horizon=10, kappa=1.0)
    state = learner.update(learner.init(), us.Feedback(0, 1.0, features=np.full((2, 4), 0.5)))
    assert learner.rounds(state) == 1
    with pytest.raises(InvalidEvent, match="kappa"):
        learner.update(state, us.Feedback(0, 1.0, features=np.full((2, 4), 0.51)))


def test_propensities_that_nobody_reads_have_a_remedy() -> None:
    learner = us.lin_prod_compact(np.eye(2), n_actions=2, horizon=10, kappa=2.0)
    log = us.Log([0], [1.0], [0.5], np.ones((1, 2, 2)))
    with pytest.raises(InvalidEvent, match="propensities=False, features=True"):
        learner.replay(learner.init(), log)
    learner.replay(learner.init(), log.visible(propensities=False, features=True))
