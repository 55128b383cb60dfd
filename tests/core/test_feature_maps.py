"""`us.learners`' maps of features: random Fourier features, leverage, and learners behind them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support import formulas
from tests.support.refusals import assert_refused
from tests.support.saved_values import saved_text
from tests.support.strategies import Array, quick, seeds
from understudy.learners import Leverage, Mapped, RandomFourier, random_fourier

K, P = 3, 4


@quick
@given(seed=seeds, shape=st.tuples(*[st.integers(1, 5)] * 3))
def test_fourier_features_are_cosines(seed: int, shape: tuple[int, int, int]) -> None:
    n, p, D = shape
    rng = np.random.default_rng(seed)
    drawn = random_fourier(dimension=p, features=D, gamma=0.5, rng=rng, constant=False)
    contexts = rng.normal(size=(n, p))
    wanted = formulas.fourier(drawn.frequencies, drawn.phases, contexts)
    np.testing.assert_allclose(drawn(contexts), wanted, rtol=0, atol=1e-14)
    assert (drawn.dimension, drawn.shape) == (p, (D + 1,))
    each = [drawn(contexts[t : t + 1])[0] for t in range(n)]
    assert drawn(contexts).tobytes() == np.array(each).tobytes()


def test_inner_products_are_the_kernel_in_the_mean() -> None:
    """⟨z(x), z(x')⟩ is 1 + the mean of D independent terms: within five standard errors."""
    rng, D, gamma = np.random.default_rng(2), 40_000, 0.3
    drawn = random_fourier(dimension=P, features=D, gamma=gamma, rng=rng)
    contexts = np.column_stack([np.ones(6), rng.normal(size=(6, P - 1))])
    z = drawn(contexts)
    for i, j in np.ndindex(6, 6):
        terms = D * z[i, 1:] * z[j, 1:]
        kernel = np.exp(-gamma * ((contexts[i] - contexts[j]) ** 2).sum())
        assert abs(terms.mean() - kernel) <= 5 * terms.std() / np.sqrt(D)


def test_the_constant_makes_no_difference() -> None:
    """Its frequency is 0, so features are those of the rest of the context."""
    drawn = random_fourier(dimension=2, features=9, gamma=1.0, rng=np.random.default_rng(3))
    assert drawn(np.array([[1.0, 0.5]])).tolist() == drawn(np.array([[7.0, 0.5]])).tolist()


@quick
@given(seed=seeds, kappa=st.floats(0.5, 20.0))
def test_leverage_is_at_most_kappa(seed: int, kappa: float) -> None:
    """A context above κ shrinks to it along its own line; others, and 0, stay as they are."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(K, P, P))
    V = roots @ roots.transpose(0, 2, 1) + np.eye(P)
    contexts = np.concatenate(
        [rng.normal(size=(20, P)) * rng.exponential(3.0, (20, 1)), np.zeros((1, P))]
    )
    mapped = Leverage(V, kappa)(contexts)
    before, after = (
        np.array([[x @ np.linalg.solve(block, x) for block in V] for x in rows]).max(axis=1)
        for rows in (contexts, mapped)
    )
    np.testing.assert_allclose(after, np.minimum(before, kappa), rtol=1e-9)
    small = before < kappa * (1 - 1e-9)
    assert mapped[small].tobytes() == contexts[small].tobytes()
    lengths = np.linalg.norm(contexts, axis=1) * np.linalg.norm(mapped, axis=1)
    np.testing.assert_allclose((contexts * mapped).sum(axis=1), lengths, rtol=1e-12)


def learners() -> dict[str, tuple[Any, Any]]:
    blocks = np.tile(np.eye(P) / 2, (K, 1, 1))
    drawn = random_fourier(dimension=P, features=5, gamma=0.2, rng=np.random.default_rng(4))
    return {
        "ridge": (us.ridge(n_actions=K, dimension=6, temperature=[0.1, 0.5], beta=0.2), drawn),
        "lin_prod": (us.lin_prod_compact(blocks, n_actions=K, kappa=3.0), Leverage(blocks, 3.0)),
    }


@pytest.mark.parametrize("name", learners())
def test_a_learner_behind_a_map_is_the_learner_of_mapped_contexts(name: str) -> None:
    """Bit for bit: states, traces, policies, variants, one context or many."""
    inner, map_ = learners()[name]
    mapped, rng = Mapped(inner, map_), np.random.default_rng(5)
    contexts: Array = rng.normal(size=(40, P))
    log = us.Log(rng.integers(K, size=40), rng.random(40), features=contexts)
    shown = us.Log(log.actions, log.rewards, features=map_(contexts))
    (state, trace), (alone, wanted) = (
        learner.replay(learner.init(), rows) for learner, rows in ((mapped, log), (inner, shown))
    )
    assert saved_text(state) == saved_text(alone)
    assert trace.probability.tobytes() == wanted.probability.tobytes()
    direct = inner.policies_at(alone, shown.features)
    assert mapped.policies_at(state, contexts).tobytes() == direct.tobytes()
    each = [mapped.policy(state, x) for x in contexts]
    assert np.array(each).tobytes() == direct.tobytes()
    variants = inner.variants_at(alone, shown.features)
    assert mapped.variants_at(state, contexts).tobytes() == variants.tobytes()
    assert mapped.variants == inner.variants
    assert mapped.spec.features == (P,)
    assert mapped.order_dependence == inner.order_dependence
    for x in ([1.0], contexts, [np.nan] * P, None):
        assert_refused(partial(mapped.policy, state, x), "features", "")
    assert_refused(lambda: mapped.policies_at(state, contexts[:, :2]), "features", f"({P},)")


def test_maps_are_checked() -> None:
    rng = np.random.default_rng(0)
    good: Any = {"dimension": 2, "features": 3, "gamma": 0.5, "rng": rng}
    for name, values in {
        "dimension": (0, 1.5),
        "features": (0, "many"),
        "gamma": (0.0, -1.0, np.nan),
        "rng": (None, 0),
    }.items():
        for value in values:
            assert_refused(partial(random_fourier, **{**good, name: value}), name, "")
    assert_refused(lambda: RandomFourier(np.ones((2, 3)), np.ones(2)), "phases", "3 frequencies")
    assert_refused(lambda: RandomFourier(np.ones(3), np.ones(3)), "frequencies", "dimension")
    assert_refused(lambda: RandomFourier(np.full((1, 1), np.nan), np.ones(1)), "frequencies", "")
    assert_refused(lambda: Leverage(np.zeros((K, P, P)), 1.0), "V", "")
    assert_refused(lambda: Leverage(np.tile(np.eye(P), (K, 1, 1)), 0.0), "kappa", "above 0")
    inner = us.ridge(n_actions=K, dimension=2)
    for map_ in (None, np.cos, 3):
        assert_refused(partial(Mapped, inner, map_), "map", "feature maps")
