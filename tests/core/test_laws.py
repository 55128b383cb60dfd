"""What learners obey beyond `us.check_learner`: sums, permutations, rewards, very long logs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.enumeration import KNOWN, PESSIMISTIC, RECIPES, gain, policy_table
from tests.support.strategies import (
    Array,
    Integers,
    LinearGame,
    behaviors,
    linear_games,
    linear_logs,
    logs,
    quick,
    rates,
    unit_numbers,
)
from understudy.errors import InfiniteCoverage, InvalidArgument, InvalidEvent, NotMergeable
from understudy.learners import Learner, Scores

# Laws of the learners


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("name", KNOWN)
@quick
@given(data=st.data(), behavior=behaviors(), eta=rates)
def test_states_add_up(
    name: str, logged: bool, data: st.DataObject, behavior: Array, eta: float
) -> None:
    """G(a) = Σ_t g_t(a): merging is commutative and associative, split anywhere, with a zero."""
    learner = KNOWN[name](us.Logged(len(behavior)) if logged else behavior, eta)
    log = data.draw(logs(learner))
    merge, zero = learner.merge, learner.init()
    i, j = sorted(data.draw(st.tuples(*[st.integers(0, len(log))] * 2)))
    a, b, c = (learner.replay(zero, part)[0] for part in (log[:i], log[i:j], log[j:]))
    whole, _ = learner.replay(zero, log)
    shuffled, _ = learner.replay(zero, permuted_rounds(log, data))
    assert_same_scores(merge(a, b), merge(b, a), 0.0)
    assert_same_scores(merge(merge(a, b), c), merge(a, merge(b, c)))
    assert_same_scores(merge(merge(a, b), c), whole)
    assert_same_scores(shuffled, whole)
    assert_same_scores(merge(whole, zero), whole, 0.0)
    assert_same_scores(merge(zero, whole), whole, 0.0)


def permuted_rounds(log: us.Log, data: st.DataObject) -> us.Log:
    """The same events in another order."""
    order = np.array(data.draw(st.permutations(range(len(log)))), dtype=np.int64)
    propensities = None if log.propensities is None else log.propensities[order]
    return us.Log(log.actions[order], log.rewards[order], propensities)


def assert_same_scores(first: Scores, second: Scores, tolerance: float = 1e-12) -> None:
    assert first.rounds == second.rounds
    np.testing.assert_allclose(first.scores, second.scores, rtol=tolerance)


@pytest.mark.parametrize("recipe", [us.lin_prod, us.lin_prod_compact])
@quick
@given(data=st.data(), game=linear_games())
def test_states_of_lin_prod_add_up(
    recipe: Callable[..., Any], data: st.DataObject, game: LinearGame
) -> None:
    """A product does not depend on its order: the same laws for LinProd, in every context."""
    learner = game.play(recipe, game.largest_rate)
    _, log = data.draw(linear_logs(game))
    merge, zero = learner.merge, learner.init()
    i, j = sorted(data.draw(st.tuples(*[st.integers(0, len(log))] * 2)))
    a, b, c = (learner.replay(zero, part)[0] for part in (log[:i], log[i:j], log[j:]))
    wanted = policy_table(learner, game, learner.replay(zero, log)[0])
    left, right = merge(merge(a, b), c), merge(a, merge(b, c))
    for state in (left, right, merge(c, merge(b, a)), merge(left, zero), merge(zero, right)):
        assert learner.rounds(state) == len(log)
        found = policy_table(learner, game, state)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "learner",
    [
        us.exp3_ix_unknown(2, eta=0.1),
        us.exp3_ix_unknown(2, eta=0.1, width="kl"),
        us.exp3_ix([0.5, 0.5], eta=0.1, gamma=[0.3, 0.2]),
        us.exp3_ix([0.5, 0.5], eta=0.1, gamma=lambda t: 1 / t),
        us.lin_prod_compact(np.eye(2), n_actions=2, kappa=2.0),
        us.lin_prod_unknown(n_actions=2, dimension=2, feature_bound=1.0, horizon=9),
    ],
    ids=["plug-in", "plug-in, kl", "array", "function", "falling rate", "estimated V"],
)
def test_states_that_read_the_past_do_not_add_up(learner: Learner[Any]) -> None:
    """Where a gain depends on when it was seen, merging would be wrong and is refused."""
    with pytest.raises(NotMergeable):
        learner.merge(learner.init(), learner.init())


@pytest.mark.parametrize("name", RECIPES)
@quick
@given(data=st.data(), behavior=behaviors(), eta=rates)
def test_actions_have_no_names(name: str, data: st.DataObject, behavior: Array, eta: float) -> None:
    """Permuting the actions of π_B and of the log permutes the policies."""
    learner = RECIPES[name](behavior, eta)
    log = data.draw(logs(KNOWN["exp3"](behavior, eta)))
    order = np.array(data.draw(st.permutations(range(len(behavior)))))
    renamed = us.Log(np.argsort(order)[log.actions], log.rewards)
    other = RECIPES[name](behavior[order], eta)
    state, found = other.policies(other.init(), renamed)
    after, wanted = learner.policies(learner.init(), log)
    np.testing.assert_allclose(found, wanted[:, order], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(state.scores, after.scores[order])


@quick
@given(data=st.data(), game=linear_games())
def test_actions_have_no_names_for_lin_prod(data: st.DataObject, game: LinearGame) -> None:
    """Permuting the actions of φ (or the blocks of V) and of the log permutes π_t(·|x)."""
    contexts, log = data.draw(linear_logs(game))
    order = np.array(data.draw(st.permutations(range(game.n_actions))))
    disjoint = game.contexts is not None
    V = game.shown_V[order] if disjoint else game.V
    shown = game.shown if disjoint else game.shown[:, order]
    eta = 0.9 * game.largest_rate
    learner = game.learner(eta)
    other = us.lin_prod(V, n_actions=game.n_actions, eta=eta, kappa=learner.kappa)
    renamed = us.Log(np.argsort(order)[log.actions], log.rewards, None, shown[contexts[:-1]])
    _, found = other.policies(other.init(), renamed)
    _, wanted = learner.policies(learner.init(), log)
    np.testing.assert_allclose(found, wanted[:, order], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", RECIPES)
@quick
@given(data=st.data(), behavior=behaviors(), eta=rates, reward=unit_numbers)
def test_a_reward_speaks_for_its_action(
    name: str, *, data: st.DataObject, behavior: Array, eta: float, reward: float
) -> None:
    """R = 0 leaves all scores alone; R > 0 raises that of the played action and no other."""
    learner = RECIPES[name](behavior, eta)
    source = logs(KNOWN["exp3"](behavior, eta), max_rounds=10)
    before, _ = learner.replay(learner.init(), data.draw(source))
    action = data.draw(st.sampled_from(np.flatnonzero(behavior).tolist()))
    after = learner.update(before, us.Feedback(action, reward))
    others = np.arange(len(behavior)) != action
    np.testing.assert_array_equal(after.scores[others], before.scores[others])
    assert (after.scores[action] == before.scores[action]) == (reward == 0)
    assert after.scores[action] >= before.scores[action]
    assert learner.policy(after)[action] >= learner.policy(before)[action] * (1 - 1e-12)


@quick
@given(data=st.data(), game=linear_games(), reward=unit_numbers)
def test_a_reward_speaks_for_its_features(
    data: st.DataObject, game: LinearGame, reward: float
) -> None:
    """LinProd: R = 0 changes no policy; with disjoint features R > 0 favors the played action."""
    learner = game.learner(game.largest_rate)
    contexts, log = data.draw(linear_logs(game))
    before, _ = learner.replay(learner.init(), log)
    x, action = int(contexts[-1]), data.draw(st.integers(0, game.n_actions - 1))
    wanted = policy_table(learner, game, before)
    silent = learner.update(before, us.Feedback(action, 0.0, None, game.shown[x]))
    np.testing.assert_array_equal(policy_table(learner, game, silent), wanted)
    if game.contexts is not None:
        after = learner.update(before, us.Feedback(action, reward, None, game.shown[x]))
        found = policy_table(learner, game, after)[x, action]
        assert found >= wanted[x, action] * (1 - 1e-12)


@pytest.mark.parametrize("name", KNOWN)
@quick
@given(data=st.data(), behavior=behaviors(max_actions=4), eta=rates)
def test_an_unseen_action(name: str, data: st.DataObject, behavior: Array, eta: float) -> None:
    """q(a) = 0: its weight stays 1, C = ∞ with a warning, Theorem 1's full bound is finite."""
    unseen = np.append(behavior, 0.0)
    learner, last = KNOWN[name](unseen, eta), len(behavior)
    log = data.draw(logs(learner))
    state, _ = learner.replay(learner.init(), log)
    assert state.scores[last] == 0
    with pytest.warns(InfiniteCoverage, match=f"action {last}"):
        ratio = us.coverage(last, unseen)
    assert ratio == math.inf
    n = max(1, len(log))
    for bound in PESSIMISTIC.values():
        found = bound(last, unseen, horizon=n, eta=eta)
        assert found == pytest.approx(math.log(last + 1) / eta + n, rel=1e-12)


# Very long logs


LONG = [1_000_000, pytest.param(10_000_000, marks=pytest.mark.full)]
THIRDS = np.array([1 / 3, 1 / 3, 1 / 3])


def in_turn(rounds: int) -> Integers:
    """0, 1, 2, 0, 1, 2, …"""
    return np.resize(np.arange(3), rounds)


def closed_form(name: str, eta: float, reward: float, rounds: int) -> Array:
    """G(a) after so many rounds of one reward, actions in turn."""
    if name != "exp3_ix_unknown":
        counts = np.bincount(in_turn(rounds), minlength=3)
        return np.asarray(counts * gain(name, reward, 1 / 3, eta))
    past = np.arange(rounds, dtype=np.float64)
    width = np.sqrt(np.log(3 * np.maximum(past, 1) ** 2) / (2 * np.maximum(past, 1)))
    frequency = (past // 3) / np.maximum(past, 1)
    gains = reward / (frequency + np.where(past > 0, width, 1.0) + eta / 2)
    return np.array([gains[a::3].sum() for a in range(3)])


@pytest.mark.large
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("rounds", LONG)
def test_millions_of_rounds(name: str, rounds: int) -> None:
    """e^{ηG} would overflow after 10⁵ rounds; scores and policies stay right after 10⁶, and 10⁷.

    All actions earn the same, so the policy must come back to 1/K whenever each was played
    equally often.
    """
    eta, reward = 0.01, 0.7
    learner = RECIPES[name](THIRDS, eta)
    log = us.Log(actions=in_turn(rounds), rewards=np.full(rounds, reward))
    state, trace = learner.replay(learner.init(), log)
    wanted = closed_form(name, eta, reward, rounds)
    np.testing.assert_allclose(state.scores, wanted, rtol=1e-9)
    assert eta * wanted.min() > math.log(np.finfo(float).max)
    assert np.isfinite(trace.probability).all()
    assert abs(trace.probability - 1 / 3).max() < 0.05
    final = learner.policy(state)
    assert final.sum() == pytest.approx(1.0, abs=1e-12)
    ahead = np.exp(eta * (wanted - wanted.max()))
    np.testing.assert_allclose(final, ahead / ahead.sum(), rtol=1e-4)


@pytest.mark.large
@pytest.mark.parametrize("name", RECIPES)
def test_a_million_rounds_of_one_action(name: str) -> None:
    """One action earns everything: its probability tends to 1 and stays there, without a NaN."""
    n = 1_000_000
    learner = RECIPES[name](THIRDS, 0.5)
    log = us.Log(actions=np.zeros(n, dtype=np.int64), rewards=np.ones(n))
    state, trace = learner.replay(learner.init(), log)
    last_digits = 1e-12  # of W, which is carried along for a thousand rounds
    assert (np.diff(trace.probability) >= -last_digits).all()
    assert 1 - last_digits <= trace.probability[-1] <= trace.probability.max() <= 1.0
    np.testing.assert_allclose(learner.policy(state), [1.0, 0.0, 0.0], rtol=0, atol=last_digits)


@pytest.mark.large
@pytest.mark.parametrize("disjoint", [False, True])
def test_ten_thousand_rounds_of_lin_prod(disjoint: bool) -> None:
    """With constant features w_{n+1}(x, a) = (1 + η r̂(a))ⁿ, here far above the largest double."""
    n, eta, q = 10_000, 0.1, np.array([0.4, 0.6])
    V = q[:, np.newaxis, np.newaxis] if disjoint else np.diag(q)
    shown = np.ones(1) if disjoint else np.eye(2)
    learner = us.lin_prod(V, n_actions=2, eta=eta, kappa=1 / q.min())
    counts = np.array([4070, 5930])  # 4070 log(1 + η/.4) and 5930 log(1 + η/.6) are close
    actions = np.repeat([0, 1], counts)
    features = np.broadcast_to(shown, (n, *shown.shape))
    log = us.Log(actions=actions, rewards=np.ones(n), features=features)
    state, trace = learner.replay(learner.init(), log)
    exponents = counts * np.log1p(eta / q)
    assert exponents.min() > math.log(np.finfo(float).max)
    wanted = np.exp(exponents - exponents.max())
    wanted /= wanted.sum()
    assert wanted.min() > 1e-6
    np.testing.assert_allclose(learner.policy(state, shown), wanted, rtol=1e-9)
    assert np.isfinite(trace.probability).all()


def test_states_of_other_learners_are_not_used() -> None:
    """A state of three actions is refused by a learner of two, in every method."""
    two, three = us.exp3([0.5, 0.5], eta=0.1), us.exp3([0.2, 0.3, 0.5], eta=0.1)
    foreign, event = three.init(), us.Feedback(action=0, reward=1.0)
    uses: list[Callable[[], object]] = [
        lambda: two.policy(foreign),
        lambda: two.update(foreign, event),
        lambda: two.replay(foreign, us.Log([0], [1.0])),
        lambda: two.policies(foreign, us.Log([0], [1.0])),
        lambda: two.merge(two.init(), foreign),
        lambda: two.merge(foreign, two.init()),
        lambda: us.Understudy(two, foreign),
    ]
    for use in uses:
        with pytest.raises(InvalidArgument, match="not a state of this learner"):
            use()


@pytest.mark.parametrize("bound", ["kappa", "feature_bound"])
def test_events_above_what_was_promised_are_refused(bound: str) -> None:
    """κ (here B²) and B are promises to a millionth: φ at the edge passes, just above does not."""
    kappa, feature_bound = (2.0, None) if bound == "kappa" else (None, 2.0)
    learner = us.lin_prod(np.eye(1), n_actions=2, eta=0.1, kappa=kappa, feature_bound=feature_bound)
    edge = 2.0 if bound == "feature_bound" else math.sqrt(2.0)
    learner.update(learner.init(), us.Feedback(0, 1.0, features=[[edge], [0.0]]))
    with pytest.raises(InvalidEvent, match=bound):
        learner.update(learner.init(), us.Feedback(0, 1.0, features=[[edge * (1 + 1e-6)], [0.0]]))


def test_a_log_owns_its_columns() -> None:
    """What the caller does to its arrays afterwards does not reach the learner."""
    actions, rewards = np.array([0, 1]), np.array([1.0, 1.0])
    log = us.Log(actions, rewards)
    actions[0], rewards[1] = 7, 9.0
    assert (log.actions.tolist(), log.rewards.tolist()) == ([0, 1], [1.0, 1.0])
    with pytest.raises(ValueError, match="read-only"):
        log.rewards[0] = 0.5


def test_features_of_any_number_of_rounds_are_estimated_in_stretches() -> None:
    """θ̂ of a long log with many features, the same as one event at a time."""
    rng = np.random.default_rng(0)
    d, n = 300, 20
    learner = us.lin_prod(np.eye(d), n_actions=2, horizon=n, kappa=1e4)
    features = rng.normal(size=(n, 2, d))
    log = us.Log(rng.integers(2, size=n), rng.random(n), features=features)
    state, _ = learner.replay(learner.init(), log)
    played = features[np.arange(n), log.actions]
    assert np.array_equal(state.thetas, played * log.rewards[:, np.newaxis])


@pytest.mark.parametrize("past", [0, 2, 5])
@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_a_part_of_a_trace_counts_its_rounds_past_the_horizon(past: int, step: int) -> None:
    trace = us.Trace(np.arange(5) / 10, past, 2)
    for start, stop in itertools.product([None, 0, 1, 3, 4], [None, 0, 2, 4, 5]):
        part = slice(start, stop, step)
        wanted = sum(t >= 5 - past for t in range(5)[part])
        assert trace[part].past_horizon == wanted
