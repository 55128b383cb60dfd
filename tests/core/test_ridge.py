"""`us.ridge`: direct solves of A_a⁻¹b_a say the same, in any order of rows, in parts, from sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support import formulas
from tests.support.refusals import assert_refused
from tests.support.strategies import Array, quick, seeds
from understudy.learners import Regressions, Ridge

K, P, N = 3, 4, 40
TAUS = np.array([0.05, 0.4, 1.0])
# A row costs a few roundings, which a temperature of 0.05 multiplies by 20.
ROUNDING = 1e-10
FIELDS = [field.name for field in dataclasses.fields(Regressions)]


def some_log(rng: np.random.Generator, rounds: int = N, dimension: int = P) -> us.Log:
    """Rows of which the last action is never played."""
    features = rng.normal(size=(rounds, dimension))
    features[:, 0] = 1.0
    return us.Log(rng.integers(K - 1, size=rounds), rng.random(rounds), features=features)


def center_of(learner: Ridge, rewards: Array) -> float:
    return float(rewards.mean()) if learner.centered and len(rewards) else 0.0


def expected_policies(learner: Ridge, log: us.Log, contexts: Array) -> Array:
    """The policies of all variants after a log, for each of these contexts: (m, variants, K)."""
    assert log.features is not None
    moments = formulas.ridge_moments(learner.ridge, K, log.features, log.actions, log.rewards)
    center = center_of(learner, log.rewards)
    settings = center, learner.betas, learner.temperatures
    return np.array([formulas.ridge_policy(moments, *settings, x) for x in contexts])


def assert_same(first: Regressions, second: Regressions, rounding: float = ROUNDING) -> None:
    for name in FIELDS:
        found, wanted = getattr(first, name), getattr(second, name)
        np.testing.assert_allclose(found, wanted, rtol=rounding, atol=rounding, err_msg=name)


LEARNERS = st.builds(
    lambda ridge, taus, beta, centered: us.ridge(
        n_actions=K,
        dimension=P,
        ridge=ridge,
        temperature=TAUS[:taus],
        beta=np.array([0.0, beta, 2 * beta])[:taus],
        centered=centered,
    ),
    st.sampled_from([0.1, 1.0, 30.0]),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.5]),
    st.booleans(),
)


@quick
@given(learner=LEARNERS, seed=seeds)
def test_every_policy_is_that_of_direct_solves(learner: Ridge, seed: int) -> None:
    """Before each row, of all variants; the recorded probability is that of the row's action."""
    log = some_log(np.random.default_rng(seed))
    assert log.features is not None
    state, found = learner.advance_variants(learner.init(), log, whole=True)
    again, played = learner.advance_variants(learner.init(), log, whole=False)
    wanted = [expected_policies(learner, log[:t], log.features[t : t + 1])[0] for t in range(N)]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=ROUNDING)
    own = np.take_along_axis(found, log.actions[:, np.newaxis, np.newaxis], axis=2)
    assert played.tobytes() == own.tobytes()
    assert_same(again, state, 0.0)
    policy = learner.policies(learner.init(), log)[1]
    np.testing.assert_allclose(policy, np.mean(wanted, axis=1), rtol=0, atol=ROUNDING)


@quick
@given(learner=LEARNERS, seed=seeds)
def test_the_state_is_the_solution(learner: Ridge, seed: int) -> None:
    """A⁻¹, A⁻¹ Σ xR, A⁻¹ Σ x and the counts; and the policies of any contexts in this state."""
    rng = np.random.default_rng(seed)
    log = some_log(rng)
    assert log.features is not None
    state, _ = learner.replay(learner.init(), log)
    A, *vectors = formulas.ridge_moments(learner.ridge, K, log.features, log.actions, log.rewards)
    inverse = np.linalg.inv(A)
    rows, columns = np.tril_indices(P)
    np.testing.assert_allclose(state.inverse, inverse[:, rows, columns], rtol=0, atol=ROUNDING)
    for found, vector in zip((state.by_reward, state.by_one), vectors, strict=True):
        solved = np.linalg.solve(A, vector[..., np.newaxis])[..., 0]
        np.testing.assert_allclose(found, solved, rtol=0, atol=ROUNDING)
    assert state.counts.tolist() == np.bincount(log.actions, minlength=K).tolist()
    assert state.rewards == pytest.approx(log.rewards.sum(), abs=1e-12)
    contexts = rng.normal(size=(5, P))
    wanted = expected_policies(learner, log, contexts)
    np.testing.assert_allclose(learner.variants_at(state, contexts), wanted, rtol=0, atol=ROUNDING)
    each = [learner.policy(state, x) for x in contexts]
    assert learner.policies_at(state, contexts).tobytes() == np.array(each).tobytes()
    np.testing.assert_allclose(each, wanted.mean(axis=1), rtol=0, atol=ROUNDING)


@quick
@given(learner=LEARNERS, seed=seeds, cuts=st.tuples(*[st.integers(0, N)] * 2))
def test_states_add_up_in_any_order(learner: Ridge, seed: int, cuts: Sequence[int]) -> None:
    """The rows in another order, the parts of a log, and sums made elsewhere: one state."""
    rng = np.random.default_rng(seed)
    log = some_log(rng)
    assert log.features is not None
    zero, order, (i, j) = learner.init(), rng.permutation(N), sorted(cuts)
    whole, _ = learner.replay(zero, log)
    shuffled = us.Log(log.actions[order], log.rewards[order], features=log.features[order])
    assert_same(learner.replay(zero, shuffled)[0], whole)
    parts = [learner.replay(zero, part)[0] for part in (log[:i], log[i:j], log[j:])]
    merged = learner.merge(learner.merge(parts[2], parts[0]), parts[1])
    assert_same(merged, whole)
    assert_same(learner.merge(whole, zero), whole)
    A, by_reward, by_one = formulas.ridge_moments(
        learner.ridge, K, log.features, log.actions, log.rewards
    )
    made = learner.from_sufficient_statistics(
        A - learner.ridge * np.eye(P),
        by_reward,
        by_one,
        counts=np.bincount(log.actions, minlength=K),
        rewards=float(log.rewards.sum()),
    )
    assert_same(made, whole)
    for sum_of, wanted in zip(learner.moments(whole), (A, by_reward, by_one), strict=True):
        ridge = learner.ridge * np.eye(P) if sum_of.ndim == 3 else 0.0
        np.testing.assert_allclose(sum_of + ridge, wanted, rtol=1e-9, atol=1e-9)


def test_rounding_does_not_pile_up() -> None:
    """Sherman and Morrison's formula ten thousand times, of contexts that nearly depend."""
    rng = np.random.default_rng(5)
    learner = us.ridge(n_actions=K, dimension=P)
    log = some_log(rng, 10_000)
    assert log.features is not None
    features = log.features.copy()
    features[:, 3] = features[:, 2] + 1e-3 * rng.normal(size=len(log))
    log = us.Log(log.actions, log.rewards, features=features)
    state, _ = learner.replay(learner.init(), log)
    wanted = expected_policies(learner, log, features[:100])
    np.testing.assert_allclose(
        learner.variants_at(state, features[:100]), wanted, rtol=0, atol=1e-7
    )


@pytest.mark.parametrize("ridge", [1e-4, 1.0, 30.0])
@pytest.mark.parametrize(
    ("size", "entries"), [(1e-8, [1.0, 0.0]), (1e6, [1 - 1 / P, -1 / P])], ids=["small", "large"]
)
def test_contexts_that_depend_linearly_are_learned_from(
    size: float, entries: list[float], ridge: float
) -> None:
    """Of any size that is taken; the parts of the log still add up to the state."""
    rng = np.random.default_rng(7)
    learner = us.ridge(n_actions=K, dimension=P, beta=0.5, ridge=ridge)
    features = np.repeat(size * np.sqrt(ridge) * rng.uniform(-1.0, 1.0, (N, 1)), P, axis=1)
    log = us.Log(rng.integers(K, size=N), rng.random(N), features=features)
    state, policies = learner.policies(learner.init(), log)
    assert np.isfinite(policies).all()
    halves = [learner.replay(learner.init(), part)[0] for part in (log[:20], log[20:])]
    for final in (state, learner.merge(*halves)):
        learner.validate(final)
        found = ridge * final.inverse[:, :2]  # I, and I − 11ᵀ/p if contexts are large
        np.testing.assert_allclose(found, [entries] * K, rtol=0, atol=1e-3)


def test_temperatures_are_variants_and_alone_the_policy_is_their_mean() -> None:
    learner = us.ridge(n_actions=K, dimension=P, temperature=[0.1, 1.0], beta=[0.0, 2.0])
    assert learner.variants == ("τ = 0.1", "τ = 1, β = 2")
    assert us.ridge(n_actions=K, dimension=P).variants == ("",)
    log = some_log(np.random.default_rng(0))
    assert log.features is not None
    state, _ = learner.replay(learner.init(), log)
    x = log.features[:1]
    each = [
        us.ridge(n_actions=K, dimension=P, temperature=tau, beta=beta).policy(state, x[0])
        for tau, beta in ((0.1, 0.0), (1.0, 2.0))
    ]
    assert learner.variants_at(state, x)[0].tobytes() == np.array(each).tobytes()
    assert learner.policy(state, x[0]).tobytes() == np.mean(each, axis=0).tobytes()


BAD_ARGUMENTS: dict[str, tuple[list[Any], str]] = {
    "temperature": ([0.0, [0.1, 0.0], [], "cold", np.nan], "temperature"),
    "beta": ([-1.0, [0.0, -1.0], np.inf], "beta"),
    "ridge": ([0.0, -1.0], "ridge"),
    "dimension": ([0, 2.5], "dimension"),
    "n_actions": ([1], "n_actions"),
    "centered": ([1, "yes"], "centered"),
}


@pytest.mark.parametrize("argument", BAD_ARGUMENTS)
def test_bad_arguments_are_refused(argument: str) -> None:
    values, words = BAD_ARGUMENTS[argument]
    for value in values:
        arguments: Any = {"n_actions": K, "dimension": P, argument: value}
        assert_refused(partial(us.ridge, **arguments), words, "")


def test_a_number_out_of_range_is_no_entry_of_an_array() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="it is -1, outside"):
        us.ridge(n_actions=K, dimension=P, temperature=-1.0)


def test_there_is_one_beta_or_one_for_each_temperature() -> None:
    assert_refused(
        lambda: us.ridge(n_actions=K, dimension=P, temperature=[0.1, 0.2], beta=[0.0, 0.1, 0.2]),
        "beta",
        "2 temperatures",
    )


def test_bad_features_are_refused() -> None:
    learner = us.ridge(n_actions=K, dimension=2)
    state = learner.init()
    for x, words in (([1.0], "(2,)"), ([1.0, 1e9], "above 1e+06"), ([1.0, np.nan], "finite")):
        assert_refused(partial(learner.policy, state, x), "features", words)
    for event in ([1.0], [1.0, 1e9]):
        feedback = us.Feedback(action=0, reward=1.0, features=event)
        assert_refused(partial(learner.update, state, feedback), "features", "")


def test_sums_of_other_shapes_or_of_no_rows_are_refused() -> None:
    learner = us.ridge(n_actions=2, dimension=1)
    good: Any = {"counts": [3, 1], "rewards": 2.0}
    squares, by_reward, by_one = [[[3.0]], [[1.0]]], [[2.0], [0.0]], [[3.0], [1.0]]
    make = learner.from_sufficient_statistics
    assert_refused(lambda: make(squares[:1], by_reward, by_one, **good), "squares", "K, p, p")
    assert_refused(
        lambda: make([[[-9.0]], [[1.0]]], by_reward, by_one, **good), "state", "not a state"
    )
    assert_refused(
        lambda: make(squares, by_reward, by_one, counts=[0, 1], rewards=2.0), "state", ""
    )
    assert_refused(
        lambda: make(squares, by_reward, by_one, counts=[0.5, 1], rewards=2.0), "counts", "whole"
    )
