"""Learners that begin at a prior w₁ in place of the uniform policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support import formulas
from tests.support.refusals import assert_refused
from tests.support.saved_values import snapshot_text
from tests.support.strategies import Array, behaviors, logs, quick, rates
from understudy.learners import ExponentialWeights

Recipe = Callable[..., ExponentialWeights]
KNOWN: dict[str, Recipe] = {"exp3": us.exp3, "exp3_ix": us.exp3_ix, "prod": us.prod}
EVERY: dict[str, Recipe] = {
    **KNOWN,
    "unknown": lambda q, **more: us.exp3_ix_unknown(len(q), **more),
    "unknown, kl": lambda q, **more: us.exp3_ix_unknown(len(q), width="kl", **more),
}
ROUNDING = 1e-11  # of a softmax of sums of 40 gains


def weights(data: st.DataObject, n_actions: int) -> Array:
    """w₁, over four orders of magnitude."""
    powers = data.draw(st.lists(st.floats(-4.0, 0.0), min_size=n_actions, max_size=n_actions))
    w1 = 10.0 ** np.array(powers)
    return np.asarray(w1 / w1.sum())


def gains_of(learner: ExponentialWeights, log: us.Log) -> Array:
    """g_t of the played actions, as the estimator makes them."""
    return learner.gains(learner.estimator.init(), 0, log)[0]


def sums_of(log: us.Log, gains: Array, n_actions: int) -> Array:
    """G_t(a) before each round, and after the last: (n + 1, K)."""
    steps = np.zeros((len(log) + 1, n_actions))
    steps[np.arange(1, len(log) + 1), log.actions] = gains
    return np.cumsum(steps, axis=0)


@pytest.mark.parametrize("name", EVERY)
@quick
@given(data=st.data(), behavior=behaviors(zeros=False), eta=rates)
def test_policies_are_the_prior_times_exponential_weights(
    name: str, data: st.DataObject, behavior: Array, eta: float
) -> None:
    """π_1 = w₁, π_t ∝ w₁ e^{ηG_t}, and Σ_t log⟨π_t, e^{ηg_t}⟩ = log Σ_a w₁(a) e^{ηG(a)}."""
    w1 = weights(data, len(behavior))
    learner = EVERY[name](behavior, eta=eta, prior=w1)
    log = data.draw(logs(learner))
    np.testing.assert_allclose(learner.policy(learner.init()), w1, rtol=1e-13)
    state, policies = learner.policies(learner.init(), log)
    gains = gains_of(learner, log)
    sums = sums_of(log, gains, len(behavior))
    wanted = formulas.softmax(np.log(w1) + eta * sums)
    np.testing.assert_allclose(policies, wanted[:-1], rtol=ROUNDING)
    np.testing.assert_allclose(learner.policy(state), wanted[-1], rtol=ROUNDING)
    played = policies[np.arange(len(log)), log.actions]
    with np.errstate(divide="ignore"):  # where 1 − π rounds to 0
        steps = np.logaddexp(np.log1p(-played), np.log(played) + eta * gains)
    whole = np.logaddexp.reduce(np.log(w1) + eta * sums[-1])
    assert steps.sum() == pytest.approx(whole, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("name", KNOWN)
@quick
@given(data=st.data(), behavior=behaviors(zeros=False), eta=rates)
def test_merging_counts_the_prior_once(
    name: str, data: st.DataObject, behavior: Array, eta: float
) -> None:
    learner = KNOWN[name](behavior, eta=eta, prior=weights(data, len(behavior)))
    log, zero = data.draw(logs(learner)), learner.init()
    cut = data.draw(st.integers(0, len(log)))
    first, second = (learner.replay(zero, part)[0] for part in (log[:cut], log[cut:]))
    whole, _ = learner.replay(zero, log)
    sums = sums_of(log, gains_of(learner, log), len(behavior))[-1]
    made = learner.from_sufficient_statistics(sums, rounds=len(log))
    wanted = learner.policy(whole)
    for state in (
        learner.merge(first, second),
        learner.merge(second, first),
        learner.merge(whole, zero),
        learner.merge(zero, whole),
        made,
    ):
        learner.validate(state)
        assert state.rounds == len(log)
        np.testing.assert_allclose(learner.policy(state), wanted, rtol=ROUNDING)


@pytest.mark.parametrize("name", KNOWN)
def test_falling_rates_hold_for_the_prior_too(name: str) -> None:
    """Without a horizon: π_t ∝ w₁ exp(η_t G_t), also when the rate has moved a hundred times."""
    q, w1, n = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.05, 0.75]), 3_000
    learner, rng = KNOWN[name](q, prior=w1), np.random.default_rng(1)
    log = us.Log(rng.choice(3, size=n, p=q), rng.random(n))
    etas = np.sqrt(np.log(3) / (2 * formulas.last_change(np.arange(1, n + 2))))
    ratios = log.rewards / q[log.actions]
    gains = {
        "exp3": ratios,
        "exp3_ix": log.rewards / (q[log.actions] + etas[:n] / 2),
        "prod": np.log1p(etas[:n] * ratios) / etas[:n],
    }[name]
    wanted = formulas.softmax(np.log(w1) + etas[:, np.newaxis] * sums_of(log, gains, 3))
    state, policies = learner.policies(learner.init(), log)
    np.testing.assert_allclose(policies, wanted[:-1], rtol=1e-9)
    np.testing.assert_allclose(learner.policy(state), wanted[-1], rtol=1e-9)
    learner.validate(state)


@pytest.mark.parametrize("name", KNOWN)
def test_a_learner_may_begin_as_production(name: str) -> None:
    """An action that production never plays is not played either, up to 10⁻¹⁰⁰."""
    q = np.array([0.6, 0.0, 0.3, 0.1])
    learner = KNOWN[name](q, eta=0.1, prior="behavior")
    np.testing.assert_allclose(learner.policy(learner.init()), q, rtol=1e-13, atol=1e-99)
    grid = us.prod_grid(q, prior="behavior")
    np.testing.assert_allclose(grid.policy(grid.init()), (q + 0.25) / 2, rtol=1e-13)
    for recipe in (KNOWN[name], us.prod_grid):
        assert_refused(partial(recipe, us.Logged(4), prior="behavior"), "prior", "us.exp4")


@quick
@given(data=st.data(), behavior=behaviors(zeros=False))
def test_a_grid_has_a_prior_over_actions(data: st.DataObject, behavior: Array) -> None:
    """π_1 = w₁; parts of a log add up, with the prior once; so do sums made elsewhere."""
    w1 = weights(data, len(behavior))
    learner = us.prod_grid(behavior, prior=w1)
    log, zero = data.draw(logs(learner)), learner.init()
    np.testing.assert_allclose(learner.policy(zero), w1, rtol=1e-13)
    cut = data.draw(st.integers(0, len(log)))
    first, second = (learner.replay(zero, part)[0] for part in (log[:cut], log[cut:]))
    wanted = learner.policy(learner.replay(zero, log)[0])
    for state in (learner.merge(first, second), learner.merge(second, first)):
        np.testing.assert_allclose(learner.policy(state), wanted, rtol=1e-10)
    levels, _ = us.theory.prod_grid_tuning()
    sums = np.zeros((len(levels), len(behavior)))
    for action, reward in zip(log.actions, log.rewards, strict=True):
        sums[:, action] += np.log1p(levels * reward / behavior[action]) / levels
    made = learner.from_sufficient_statistics(sums, rounds=len(log))
    np.testing.assert_allclose(learner.policy(made), wanted, rtol=1e-10)


@pytest.mark.parametrize("name", EVERY)
def test_bad_priors_are_refused(name: str) -> None:
    q = [0.5, 0.3, 0.2]
    wrong: list[Any] = [[0.5, 0.5], [0.5, 0.5, 0.0], [0.6, 0.6, -0.2], [0.5, 0.3, 0.3]]
    for prior in (*wrong, [np.nan, 0.5, 0.5], "uniform", 0.5, [[0.5, 0.3, 0.2]]):
        assert_refused(partial(EVERY[name], q, eta=0.1, prior=prior), "prior", "")


FIELDS_OF_0_5 = {
    "exp3": ["kind", "eta", "estimator", "horizon"],
    "unknown": ["kind", "eta", "estimator", "horizon"],
    "adaptive": ["kind", "behavior", "rates", "prior", "gain", "horizon", "decaying"],
}


@pytest.mark.parametrize("name", FIELDS_OF_0_5)
def test_snapshots_without_a_prior_are_those_of_0_5(name: str) -> None:
    """New fields are saved only where they say something, and then they come back."""
    q = [0.5, 0.3, 0.2]
    recipes: dict[str, Any] = {**EVERY, "adaptive": us.coverage_adaptive}
    make = recipes[name]
    learner: Any = make(q, horizon=10)
    saved = json.loads(snapshot_text(learner, learner.init()))
    assert list(saved["learner"]) == FIELDS_OF_0_5[name]
    if name != "adaptive":
        with_prior: Any = make(q, horizon=10, prior=[0.2, 0.2, 0.6])
        saved = json.loads(snapshot_text(with_prior, with_prior.init()))
        assert list(saved["learner"]) == [*FIELDS_OF_0_5[name], "prior"]
