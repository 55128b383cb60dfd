"""A learner of contexts from a warm-up: V, κ, and the features of `understudy.logs.features`."""

from __future__ import annotations

import json
import math
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

import understudy as us
from tests.support.kernel_arrays import use_small_chunks
from tests.support.logs.encoders import Encoder
from tests.support.strategies import Array, Integers, quick, seeds
from understudy.errors import InvalidLog, InvalidSnapshot
from understudy.logs.features import ContextFeatures, LearnerFactory, Warmup, context_features

K = 3
NAMES = ("size", "age", "city")
ABSURD: dict[str, list[Any]] = {
    "size": [1e300, -1e300, math.inf, math.nan, None, 0.0, 5e-324, 1.7e308],
    "age": ["text", "1e400", "", None, "-7", "x" * 10_000, "nan", "0"],
    "city": ["nowhere", "", None, "a", "b", "c", "A", "a "],
}


def rows(seed: int, n: int) -> pl.DataFrame:
    """Contexts of a number, a number as text, and a label; some of each are missing."""
    rng = np.random.default_rng(seed)
    size = np.where(rng.random(n) < 0.1, np.nan, rng.lognormal(size=n))
    age = [None if rng.random() < 0.1 else f"{x:.1f}" for x in rng.normal(40, 10, n)]
    city = rng.choice(["a", "b", "c", "d"], p=[0.6, 0.2, 0.15, 0.05], size=n)
    return frame_of(size=size, age=age, city=city)


def frame_of(**columns: Any) -> pl.DataFrame:
    return pl.DataFrame({f"context.{name}": values for name, values in columns.items()})


def played(seed: int, n: int) -> Integers:
    return np.random.default_rng([seed, 1]).choice(K, p=[0.7, 0.25, 0.05], size=n)


def fit_context_features(
    encoder: Encoder,
    frame: pl.DataFrame,
    actions: Integers,
    n_actions: int,
    *,
    horizon: int | None = None,
) -> ContextFeatures:
    """LinProd of a warm-up whose propensities are unknown."""
    warmup = Warmup.fit(frame, actions, None, encoder.names)
    assert warmup.encoder == encoder
    factory = LearnerFactory(None, n_actions, horizon, warmup=warmup)
    return context_features(factory.make("lin-prod-compact", {}), warmup, factory)


@cache
def made(seed: int = 0, n: int = 300, horizon: int | None = None) -> ContextFeatures:
    warmup = rows(seed, n)
    encoder = Encoder.fit(warmup, NAMES)
    return fit_context_features(encoder, warmup, played(seed, n), K, horizon=horizon)


def rewards(seed: int, n: int) -> Array:
    return np.random.default_rng([seed, 2]).random(n)


@cache
def learned() -> tuple[ContextFeatures, Any]:
    """A learner with its state after 200 rows."""
    contextual, later = made(), rows(7, 200)
    log = us.Log(played(7, 200), rewards(7, 200), features=contextual.features(later))
    return contextual, contextual.learner.replay(contextual.learner.init(), log)[0]


# V and κ


@quick
@forall(seed=seeds, n=st.integers(4, 60))
def test_v_and_kappa_are_those_of_a_plain_loop(seed: int, n: int) -> None:
    contextual, actions = made(seed, n), played(seed, n)
    x = contextual.encoder.encode(rows(seed, n))
    p = x.shape[1]
    sums, counts = [np.zeros((p, p)) for _ in range(K)], [0] * K
    for row, action in zip(x, actions, strict=True):
        sums[action] = sums[action] + np.outer(row, row)
        counts[action] += 1
    typical = sum(np.linalg.eigvalsh(S / n).sum() for S in sums) / (K * p)
    rho = min(1.0, 16 / math.sqrt(n))
    V = [
        c / (c + p) * S / n + (p / (c + p) + rho) * typical * np.eye(p)
        for c, S in zip(counts, sums, strict=True)
    ]
    np.testing.assert_allclose(contextual.learner.features.V, V, rtol=1e-9, atol=1e-12)
    largest = sorted(max(float(row @ np.linalg.solve(B, row)) for B in V) for row in x)
    kappa = (largest[(n - 1) // 2] + largest[n // 2]) / 2
    assert contextual.learner.kappa == pytest.approx(kappa, rel=1e-9)
    assert contextual.ridge == pytest.approx(rho * typical, rel=1e-9)
    assert contextual.rows == n
    assert abs(contextual.shrunk - sum(value > kappa for value in largest)) <= 1  # ties
    assert contextual.unseen == counts.count(0)


def test_a_long_warm_up_is_gone_through_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cuts do not change a bit."""
    whole = made(1, 50).learner
    use_small_chunks(monkeypatch)
    made.cache_clear()
    cut = made(1, 50).learner
    assert cut.features.V.tobytes() == whole.features.V.tobytes()
    assert cut.kappa == whole.kappa


def test_the_ridge_falls_with_the_length_of_the_warm_up() -> None:
    """ρ = 16/√m: relative to the mean eigenvalue, which is that of one row here."""
    shares = []
    for m in (100, 1024, 4096):
        warmup = frame_of(x=np.tile([-1.0, 1.0], m // 2))
        actions = np.tile([0, 0, 1, 1], m // 4)
        found = fit_context_features(Encoder.fit(warmup, ["x"]), warmup, actions, 2)
        shares.append(found.ridge / 0.5)
    assert shares == pytest.approx([1.0, 0.5, 0.25], rel=1e-12)


def test_an_action_that_the_warm_up_never_shows_has_the_v_of_any_other() -> None:
    """(1 + ρ)λI; so that κ, and with it the rate, is hardly another."""
    warmup = rows(0, 2000)
    encoder, actions = Encoder.fit(warmup, NAMES), np.arange(2000) % K
    few, many = (fit_context_features(encoder, warmup, actions, k) for k in (K, K + 1))
    V, p = many.learner.features.V, len(encoder.features)
    assert many.unseen == 1
    typical = (np.trace(V[:K], axis1=1, axis2=2).sum() / p - K * many.ridge) / (K + 1)
    np.testing.assert_allclose(V[K], (typical + many.ridge) * np.eye(p), rtol=0.01, atol=1e-12)
    assert 1.0 < many.learner.kappa / few.learner.kappa < 2.0
    assert few.unseen == 0


@quick
@forall(seed=seeds)
def test_estimates_of_linear_rewards_are_right_up_to_the_ridge(seed: int) -> None:
    """Over the warm-up itself, the mean of θ̂ is V⁻¹ Σ x̃x̃ᵀ/m θ, with x̃ the features."""
    contextual, n = made(seed, 40), 40
    warmup, actions = rows(seed, n), played(seed, n)
    raw, x = contextual.encoder.encode(warmup), contextual.features(warmup)
    theta = np.random.default_rng([seed, 3]).normal(size=(K, x.shape[1]))
    theta[:, 0] = 0.0
    theta /= 2.1 * np.abs(raw @ theta.T).max()
    theta[:, 0] = 0.5  # so that all rewards are in [0, 1]
    log = us.Log(actions, (theta[actions] * x).sum(axis=1), features=x)
    state, _ = contextual.learner.replay(contextual.learner.init(), log)
    for a, V in enumerate(contextual.learner.features.V):
        own = x[actions == a]
        wanted = np.linalg.solve(V, own.T @ own @ theta[a] / n)
        np.testing.assert_allclose(state.theta[a] / n, wanted, rtol=1e-9, atol=1e-9)


def test_a_horizon_fixes_the_rate() -> None:
    fixed, free = made(horizon=10**9).learner, made().learner
    assert fixed.eta == pytest.approx(math.sqrt(math.log(K) / 10**9))
    assert fixed.horizon == 10**9
    assert not isinstance(free.eta, float)


# The features keep the promise


def leverages(contextual: ContextFeatures, x: Array) -> Array:
    """max_a xᵀ V_a⁻¹ x, solved."""
    V = contextual.learner.features.V
    return np.array([max(float(row @ np.linalg.solve(B, row)) for B in V) for row in x])


def test_no_context_whatever_exceeds_kappa() -> None:
    """And the learner takes all of them: nothing is refused."""
    contextual = made()
    grid = pl.DataFrame({f"context.{name}": pl.Series(v) for name, v in ABSURD.items()})
    names = grid.columns
    crossed = grid.select(names[0]).join(grid.select(names[1]), how="cross")
    crossed = crossed.join(grid.select(names[2]), how="cross")
    x = contextual.features(crossed)
    assert len(x) == 8**3
    assert np.isfinite(x).all()
    assert (leverages(contextual, x) <= contextual.learner.kappa * (1 + 1e-9)).all()
    n, learner = len(x), contextual.learner
    log = us.Log(np.arange(n) % K, np.ones(n), features=x)
    state, trace = learner.replay(learner.init(), log)
    assert np.isfinite(trace.probability).all()
    assert np.isfinite(learner.policies_at(state, x)).all()


def test_features_are_scaled_down_only_where_they_must_be() -> None:
    contextual, later = made(), rows(5, 300)
    raw, x = contextual.encoder.encode(later), contextual.features(later)
    kappa, before = contextual.learner.kappa, leverages(contextual, raw)
    small = before <= kappa
    assert 50 < small.sum() < 250
    assert np.array_equal(x[small], raw[small])
    np.testing.assert_allclose(leverages(contextual, x[~small]), kappa, rtol=1e-9)
    factors = x[:, :1] / raw[:, :1]
    np.testing.assert_allclose(x, factors * raw, rtol=1e-12)
    np.testing.assert_allclose(factors[:, 0], np.minimum(1, np.sqrt(kappa / before)), rtol=1e-9)


def test_no_more_than_half_of_the_warm_up_is_scaled_down() -> None:
    contextual = made()
    assert contextual.shrunk <= contextual.rows / 2


# The same bits


@quick
@forall(cuts=st.sets(st.integers(1, 39), max_size=6))
def test_any_batching_gives_the_same_bits(cuts: set[int]) -> None:
    contextual, state = learned()
    later = rows(9, 40)
    x = contextual.features(later)
    table = contextual.learner.policies_at(state, x)
    for start, stop in pairwise([0, *sorted(cuts), 40]):
        part = contextual.features(later[start:stop])
        assert part.tobytes() == x[start:stop].tobytes()
        assert contextual.learner.policies_at(state, part).tobytes() == table[start:stop].tobytes()


def test_one_context_has_the_bits_of_its_row() -> None:
    contextual, state = learned()
    later = rows(9, 40)
    x = contextual.features(later)
    table = contextual.learner.policies_at(state, x)
    for i, row in enumerate(later.iter_rows(named=True)):
        one = contextual.features_of_one({name: row[f"context.{name}"] for name in NAMES})
        assert one.tobytes() == x[i].tobytes()
        assert contextual.learner.policy(state, one).tobytes() == table[i].tobytes()


def test_policies_are_probabilities_that_depend_on_the_context() -> None:
    contextual, state = learned()
    x = contextual.features(rows(9, 40))
    table = contextual.learner.policies_at(state, x)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-12)
    assert len({int(row.argmax()) for row in table}) > 1


def test_data_round_trip(tmp_path: Path) -> None:
    """With the learner's own snapshot: features and policies have the same bits."""
    contextual, state = learned()
    data = json.loads(json.dumps(contextual.as_data(), allow_nan=False))
    us.Understudy(contextual.learner, state).save(tmp_path / "learner.json")
    loaded = us.load(tmp_path / "learner.json")
    found, later = ContextFeatures.from_data(data, loaded.learner), rows(9, 40)
    x = found.features(later)
    assert x.tobytes() == contextual.features(later).tobytes()
    assert (
        found.learner.policies_at(loaded.state, x).tobytes()
        == contextual.learner.policies_at(state, x).tobytes()
    )
    assert found.as_data() == contextual.as_data()


# Refusals


@pytest.mark.parametrize(
    "change",
    [
        {"rows": -1},
        {"rows": 2.5},
        {"shrunk": None},
        {"unseen": "0"},
        {"ridge": -1.0},
        {"ridge": None},
        {"encoder": None},
        {"more": 1},
    ],
)
def test_damaged_data_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidSnapshot):
        ContextFeatures.from_data({**made().as_data(), **change}, made().learner)


SMALL: Any = {"n_actions": 2, "kappa": 1.0}


def test_a_learner_of_other_features_is_refused() -> None:
    of_one = us.lin_prod_compact([[1.0]], **SMALL)
    for learner in (None, 3, us.exp3([0.5, 0.5], eta=0.1), of_one):
        with pytest.raises(InvalidSnapshot, match=r"does not take contexts|it has no spec"):
            ContextFeatures.from_data(made().as_data(), learner)


def test_a_state_that_is_too_large_is_refused() -> None:
    encoder = Encoder.fit(rows(0, 4), NAMES)
    with pytest.raises(InvalidLog, match="columns with fewer labels: at most 2 features"):
        fit_context_features(encoder, rows(0, 4), np.zeros(4, dtype=np.int64), 10**6)


def test_contexts_that_never_change_in_the_warm_up_are_no_contexts() -> None:
    warmup = frame_of(day=["1"] * 4, site=["s"] * 4)
    encoder = Encoder.fit(warmup, ("day", "site"))
    with pytest.raises(InvalidLog, match=r"day, site.* changes in the 4 rows .* a larger --warmup"):
        fit_context_features(encoder, warmup, np.zeros(4, dtype=np.int64), K)


def test_columns_that_are_left_out_are_named_with_the_rows_that_decided_it() -> None:
    warmup = frame_of(day=["1"] * 4, size=[1.0, 2.0, 3.0, 4.0])
    played_once = np.zeros(4, dtype=np.int64)
    found = fit_context_features(Encoder.fit(warmup, ("day", "size")), warmup, played_once, K)
    assert (found.encoder.constants, found.rows) == (("day",), 4)
    assert made().encoder.constants == ()


# It learns


@pytest.mark.large
@pytest.mark.parametrize("seed", [0, 1])
def test_it_beats_every_fixed_action_where_the_best_one_depends_on_the_context(seed: int) -> None:
    """And is promoted by a certificate that never saw what it would have earned."""
    n, m, rng = 20_000, 2_000, np.random.default_rng(seed)
    size, city = rng.normal(3, 2, n), rng.choice(["a", "b", "c"], size=n)
    frame = frame_of(size=[f"{x:.6f}" for x in size], city=city)
    z = ((size - 3) / 2).clip(-2, 2)
    means = np.stack([0.5 - 0.2 * z, 0.5 + 0.2 * z, np.where(city == "c", 0.9, 0.2)], axis=1)
    production = np.tile([0.5, 0.3, 0.2], (n, 1))
    actions = rng.choice(K, p=production[0], size=n)
    each = np.arange(n)
    outcome = (rng.random(n) < means[each, actions]).astype(float)
    contextual = fit_context_features(
        Encoder.fit(frame[:m], ["size", "city"]), frame[:m], actions[:m], K
    )
    learner, x = contextual.learner, contextual.features(frame[m:])
    log = us.Log(actions[m:], outcome[m:], features=x)
    state, table = learner.policies(learner.init(), log)
    earned = (table * means[m:]).sum(axis=1)
    fixed = means[m:].mean(axis=0).max()
    best = means[m:].max(axis=1).mean()
    assert earned.mean() > fixed + 0.5 * (best - fixed)
    final = (contextual.learner.policies_at(state, x) * means[m:]).sum(axis=1).mean()
    assert final > fixed + 0.8 * (best - fixed)
    seen = us.Log(actions[m:], outcome[m:], propensities=production[each, actions][m:])
    chosen = table[np.arange(n - m), actions[m:]]
    certified = us.certify(seen, chosen, behavior=us.Logged(n_actions=K))
    assert certified.promoted_at is not None
    assert certified.promoted_at < 2_000
    assert certified.lower / len(seen) < earned.mean() < certified.upper / len(seen)
