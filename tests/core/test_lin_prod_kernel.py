"""`understudy.kernels.lin_prod`: exact products at every edge of a tile, the same bits in parts."""

from __future__ import annotations

import math
from functools import cache

import mpmath
import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

import understudy as us
from benchmarks.baselines import lin_prod_in_blocks
from tests.support import formulas
from tests.support.kernel_arrays import kernel_view
from tests.support.reference import disjoint as disjoint_features
from tests.support.reference import normalized, product_weight
from tests.support.strategies import Array, Integers, quick, seeds
from understudy import kernels

EDGES = (0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097)
DIMENSIONS = tuple(range(1, 10))
N_ACTIONS = 2
K = 3  # actions of the compact learner


def estimates(rounds: int, d: int, seed: int = 0) -> Array:
    """θ̂ with |⟨θ̂, φ⟩| ≤ ½ for all φ in [−1, 1]^d: factors in [½, 1½] for η = 1."""
    thetas = np.random.default_rng([seed, d]).uniform(-1.0, 1.0, (rounds, d))
    return np.asarray(thetas / (2 * np.abs(thetas).sum(axis=1, keepdims=True)))


def contexts(rounds: int, *shape: int) -> Array:
    rng = np.random.default_rng([1, rounds, *shape])
    return rng.uniform(-1.0, 1.0, (rounds, *shape))


def players(rounds: int) -> Integers:
    return np.random.default_rng(2).integers(N_ACTIONS, size=rounds)


def shared(thetas: Array, start: int, features: Array, eta: float = 1.0) -> Array:
    """log w of rounds start, …, by the kernel."""
    out = np.full(features.shape[:2], math.nan)
    kernels.lin_prod.shared_log_weights(eta, kernel_view(thetas), start, kernel_view(features), out)
    return out


def disjoint(thetas: Array, played: Integers, start: int, x: Array, eta: float = 1.0) -> Array:
    out = np.full((len(x), N_ACTIONS), math.nan)
    kernels.lin_prod.disjoint_log_weights(
        eta, kernel_view(thetas), kernel_view(played), start, kernel_view(x), out
    )
    return out


def as_shared(thetas: Array, played: Integers) -> Array:
    """θ̂ with its block in its place, for φ(x, a) = e_a ⊗ x."""
    d = thetas.shape[1]
    whole = np.zeros((len(thetas), N_ACTIONS, d))
    whole[np.arange(len(thetas)), played] = thetas
    return whole.reshape(len(thetas), N_ACTIONS * d)


def stacked(x: Array) -> Array:
    """φ(x, a) = e_a ⊗ x, (n, K, K p)."""
    n, d = x.shape
    features = np.zeros((n, N_ACTIONS, N_ACTIONS, d))
    for a in range(N_ACTIONS):
        features[:, a, a] = x
    return features.reshape(n, N_ACTIONS, N_ACTIONS * d)


def exact_log_weights(thetas: Array, phi: Array) -> Array:
    """Σ_k log(1 + ⟨θ̂_k, φ(a)⟩), summed without rounding."""
    return np.array([math.fsum(np.log1p((thetas * row).sum(axis=1)).tolist()) for row in phi])


def policies_of(log_weights: Array) -> Array:
    policies = log_weights.copy()
    kernels.lin_prod.softmax(policies)
    return policies


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("t", EDGES)
def test_shared_features_at_the_edges_of_tiles(t: int, d: int) -> None:
    """log w after t rounds: against the reference, and against sums without rounding."""
    thetas, features = estimates(t, d), contexts(1, N_ACTIONS, d)
    found = shared(thetas, t, features)
    np.testing.assert_allclose(found[0], exact_log_weights(thetas, features[0]), 1e-12, 1e-11)
    wanted = formulas.lin_prod(1.0, thetas, t, features)
    np.testing.assert_allclose(policies_of(found), wanted, rtol=1e-10, atol=0)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("t", EDGES)
def test_disjoint_features_at_the_edges_of_tiles(t: int, d: int) -> None:
    """The same if each θ̂ speaks of the played action only."""
    thetas, played, x = estimates(t, d), players(t), contexts(1, d)
    found = disjoint(thetas, played, t, x)
    whole, features = as_shared(thetas, played), stacked(x)
    np.testing.assert_allclose(found[0], exact_log_weights(whole, features[0]), 1e-12, 1e-11)
    wanted = formulas.lin_prod(1.0, whole, t, features)
    np.testing.assert_allclose(policies_of(found), wanted, rtol=1e-10, atol=0)


@pytest.mark.parametrize("t", [1, 9, 65])
@pytest.mark.parametrize("d", [1, 4, 7])
def test_a_product_of_fifty_digits(t: int, d: int) -> None:
    """w as it is written, never as a logarithm."""
    thetas, features = estimates(t, d), contexts(1, N_ACTIONS, d)
    with mpmath.workdps(50):
        exact = normalized([product_weight(0.9, thetas.tolist(), phi) for phi in features[0]])
        wanted = [float(p) for p in exact]
    found = policies_of(shared(thetas, t, features, eta=0.9))
    np.testing.assert_allclose(found[0], wanted, rtol=1e-12)


def test_all_rounds_of_a_log_at_once() -> None:
    """Round t sees θ̂_1 … θ̂_{t−1} and nothing of what comes later, over tiles and queries."""
    n, d = 330, 3
    thetas, played = estimates(n, d), players(n)
    features, x = contexts(n, N_ACTIONS, d), contexts(n, d)
    wanted = formulas.lin_prod(1.0, thetas, 0, features)
    np.testing.assert_allclose(policies_of(shared(thetas, 0, features)), wanted, rtol=1e-11)
    wanted = formulas.lin_prod(1.0, as_shared(thetas, played), 0, stacked(x))
    np.testing.assert_allclose(policies_of(disjoint(thetas, played, 0, x)), wanted, rtol=1e-11)


LONG = 330
THETAS, PLAYED = estimates(LONG, 2), players(LONG)
FEATURES, X = contexts(LONG, N_ACTIONS, 2), contexts(LONG, 2)


@cache
def whole_shared() -> Array:
    return shared(THETAS, 0, FEATURES)


@cache
def whole_disjoint() -> Array:
    return disjoint(THETAS, PLAYED, 0, X)


@quick
@forall(start=st.integers(0, LONG - 1), length=st.integers(1, 140))
def test_any_window_has_the_bits_of_the_whole(start: int, length: int) -> None:
    """A stretch of queries, also a single one, gives what the whole log gives."""
    stop = min(LONG, start + length)
    window = slice(start, stop)
    found = shared(THETAS[:stop], start, FEATURES[window])
    assert found.tobytes() == whole_shared()[window].tobytes()
    found = disjoint(THETAS[:stop], PLAYED[:stop], start, X[window])
    assert found.tobytes() == whole_disjoint()[window].tobytes()


def test_windows_across_a_logarithm() -> None:
    """Around round 4096, where the products of all lanes are turned into logarithms."""
    first, n = 4090, 12
    thetas, played = estimates(first + n, 1), players(first + n)
    features, x = contexts(n, N_ACTIONS, 1), contexts(n, 1)
    whole = shared(thetas, first, features), disjoint(thetas, played, first, x)
    for i in range(n):
        t, one = first + i, slice(i, i + 1)
        assert shared(thetas[:t], t, features[one]).tobytes() == whole[0][one].tobytes()
        alone = disjoint(thetas[:t], played[:t], t, x[one])
        assert alone.tobytes() == whole[1][one].tobytes()


@pytest.mark.parametrize("kind", ["shared", "disjoint"])
def test_a_policy_alone_has_the_bits_of_a_replay(kind: str) -> None:
    """`policy`, `policies` and `replay` agree bit for bit, however the log is cut."""
    n, rng = 300, np.random.default_rng(3)
    one = kind == "shared"
    V = 0.5 * np.eye(3) + 0.1
    learner = us.lin_prod(V if one else np.stack([V] * 2), n_actions=2, eta=1 / 12, kappa=6.0)
    features = contexts(n, N_ACTIONS, 3) if one else contexts(n, 3)
    log = us.Log(players(n), rng.random(n), features=features)
    state, trace = learner.replay(learner.init(), log)
    _, table = learner.policies(learner.init(), log)
    np.testing.assert_array_equal(table[np.arange(n), log.actions], trace.probability)
    parts, at = [], learner.init()
    for start, stop in ((0, 1), (1, 64), (64, 256), (256, 257), (257, n)):
        np.testing.assert_array_equal(learner.policy(at, features[start]), table[start])
        at, part = learner.replay(at, log[start:stop])
        parts.append(part.probability)
    assert np.concatenate(parts).tobytes() == trace.probability.tobytes()
    assert at.thetas.tobytes() == state.thetas.tobytes()


@pytest.mark.parametrize("lead", [0, 1])
def test_factors_at_the_extremes(lead: int) -> None:
    """½ ten thousand times, then 1½ ten thousand times: w(1) = 3^lead w(0) after it, still."""
    n = 20_000 + lead
    thetas = np.where(np.arange(n) < 10_000, 0.5, -0.5)[:, np.newaxis]
    features = np.array([[[1.0], [-1.0]]])
    found = shared(thetas, n, features)
    halves, more = math.log(0.5), math.log(1.5)
    wanted = [10_000 * more + (10_000 + lead) * halves, 10_000 * halves + (10_000 + lead) * more]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-12)
    odds = np.array([1.0, 3.0**lead])
    np.testing.assert_allclose(policies_of(found)[0], odds / odds.sum(), rtol=1e-9)


@pytest.mark.parametrize("sign", [-0.5, 0.5])
def test_one_extreme_for_twenty_thousand_rounds(sign: float) -> None:
    """(1 ± ½)^20000 has no double; its logarithm has, for shared and disjoint features."""
    n = 20_000
    thetas, played = np.full((n, 1), sign), np.zeros(n, dtype=np.int64)
    wanted = n * math.log(1.0 + sign)
    assert abs(wanted) > math.log(np.finfo(float).max)
    found = shared(thetas, n, np.array([[[1.0], [0.0]]]))
    np.testing.assert_allclose(found, [[wanted, 0.0]], rtol=1e-12)
    found = disjoint(thetas, played, n, np.ones((1, 1)))
    np.testing.assert_allclose(found, [[wanted, 0.0]], rtol=1e-12)
    assert policies_of(found).tolist() == ([[1.0, 0.0]] if sign > 0 else [[0.0, 1.0]])


def play_compact(
    etas: Array,
    thetas: Array,
    actions: Integers,
    features: Array,
    *,
    blocks: int,
    curvature: float = 1.0,
) -> tuple[Array, Array, Array]:
    """Policies by the kernel from round 1 on, and the sums after them."""
    d = thetas.shape[1]
    Theta, S = np.zeros((blocks, d)), np.zeros((blocks, d, d))
    out = np.full((len(actions), K), math.nan)
    kernels.lin_prod.replay(
        kernel_view(etas),
        curvature,
        kernel_view(thetas),
        kernel_view(actions),
        Theta,
        S,
        kernel_view(features),
        out,
    )
    kernels.lin_prod.softmax(out)
    return out, Theta, S


@pytest.mark.parametrize("curvature", [0.7726, 1.0])
@pytest.mark.parametrize("d", range(1, 10))
def test_the_compact_kernel_is_its_reference(d: int, curvature: float) -> None:
    """With rates that differ from round to round, for shared features and for disjoint ones."""
    n, rng = 60, np.random.default_rng(d)
    thetas = np.random.default_rng([n, d]).uniform(-1.0, 1.0, (n, d)) / d
    etas, actions = rng.uniform(0.1, 1.0, n), rng.integers(K, size=n)
    features, x = rng.uniform(-1, 1, (n, K, d)), rng.uniform(-1, 1, (n, 1, d))
    found, Theta, S = play_compact(etas, thetas, actions, features, blocks=1, curvature=curvature)
    wanted = formulas.lin_prod_compact(etas, curvature, thetas, features)
    np.testing.assert_allclose(found, wanted, rtol=1e-11)
    np.testing.assert_allclose(Theta[0], thetas.sum(axis=0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(S[0], np.einsum("t,ti,tj->ij", etas, thetas, thetas), rtol=1e-12)
    assert np.array_equal(S[0], S[0].T)
    whole = np.zeros((n, K, d))
    whole[np.arange(n), actions] = thetas
    _, stacked = disjoint_features(np.zeros((K, d, d)), x[:, 0])
    found, *_ = play_compact(etas, thetas, actions, x, blocks=K, curvature=curvature)
    wanted = formulas.lin_prod_compact(etas, curvature, whole.reshape(n, K * d), stacked)
    np.testing.assert_allclose(found, wanted, rtol=1e-11)


@quick
@forall(seed=seeds, d=st.integers(1, 12), blocks=st.integers(1, 3))
def test_inverses(seed: int, d: int, blocks: int) -> None:
    """Gauss and Jordan without pivots: (A + βI) M = I for sums of squares A, however small β is."""
    rng = np.random.default_rng(seed)
    vectors, actions = rng.normal(size=(20, d)), rng.integers(blocks, size=20)
    A = np.zeros((blocks, d, d))
    kernels.lin_prod.add_squares(kernel_view(vectors), kernel_view(actions), A)
    for block in range(blocks):
        own = vectors[actions == block]
        np.testing.assert_allclose(A[block], own.T @ own, rtol=1e-12, atol=1e-12)
    A += 10.0 ** -rng.uniform(0, 4) * np.eye(d)
    M = A.copy()
    kernels.lin_prod.invert(M)
    np.testing.assert_allclose(M, np.linalg.inv(A), rtol=1e-8, atol=1e-8 * np.abs(M).max())


def test_the_blocks_of_blas_are_lin_prod() -> None:
    rng = np.random.default_rng(0)
    thetas, features = rng.normal(size=(150, 3)), rng.random((150, 4, 3))
    ours = np.empty((150, 4))
    kernels.lin_prod.shared_log_weights(0.01, thetas, 0, features, ours)
    np.testing.assert_allclose(lin_prod_in_blocks(0.01, thetas, features), ours, atol=1e-12)
