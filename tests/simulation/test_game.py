"""The game: what adversaries, contexts and the referee do, and what they refuse to do."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.refusals import assert_refused
from tests.support.saved_values import saved_form
from tests.support.strategies import Array
from understudy import Feedback, Round
from understudy.contexts import ContinuousContexts, FiniteContexts, rows
from understudy.learners import EventSpec
from understudy.simulation.adversaries import Oblivious, Piecewise
from understudy.simulation.game import feedback_for
from understudy.theory import feature_covariance

PI = np.array([0.4, 0.3, 0.2, 0.1])
LEARNER = us.exp3_ix(PI, horizon=300)
TABLE = np.random.default_rng(0).random((300, 4))
CHI_SQUARE_999 = {2: 13.82, 3: 16.27}  # exceeded once in a thousand, by degrees of freedom

PHI = np.random.default_rng(1).uniform(0.1, 0.5, (3, 4, 2))
FINITE = FiniteContexts(table=PHI, probabilities=[0.5, 0.3, 0.2])
BY_CONTEXT = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]])
CONTINUOUS = ContinuousContexts(
    sample=lambda rng, n: rng.random(n),
    feature_map=lambda x: np.stack([np.stack([x**a, 1 - x**a], axis=1) for a in range(4)], axis=1),
    n_actions=4,
    dimension=2,
)
THETA = us.adversaries.stationary([0.9, 0.4])


def softly(contexts: Any) -> Array:
    """A policy over [0, 1]: it moves from the first action to the last as the context grows."""
    weights = np.exp(np.multiply.outer(np.asarray(contexts), np.arange(4.0)))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def game(**changed: Any) -> us.Game:
    return us.Game(**{"adversary": switching(300), "behavior": PI, "rounds": 300, **changed})


def contextual(**changed: Any) -> us.Game:
    return game(**{"adversary": THETA, "contexts": FINITE, "behavior": BY_CONTEXT, **changed})


def switching(rounds: int) -> Piecewise:
    return us.adversaries.switching(n_actions=4, rounds=rounds)


GAMES: dict[str, us.Game] = {
    "switching": game(),
    "table": game(adversary=us.adversaries.table(TABLE)),
    "Bernoulli table": game(adversary=us.adversaries.table(TABLE, bernoulli=True)),
    "drifting": game(adversary=us.adversaries.drifting([0, 0.2, 0.4, 1], [1] * 4, rounds=300)),
    "retaliating": game(adversary=us.adversaries.retaliating(n_actions=4)),
    "hiding": game(adversary=us.adversaries.hiding(n_actions=4)),
    "finite contexts": contextual(),
    "continuous contexts": contextual(contexts=CONTINUOUS, behavior=softly),
}


@functools.cache
def records(name: str, seed: int = 0, run: int = 0) -> list[Round]:
    """The referee's record of a game."""
    return list(us.play(GAMES[name], LEARNER, seed=seed, run=run))


# Adversaries give what they say.


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 7, 10, 100])
def test_the_switching_game_has_the_papers_halves(rounds: int) -> None:
    """Round t is in the first half if t ≤ n/2; action K pays 0.8 there, action 1 pays 1 after."""
    means = us.adversaries.switching(n_actions=5, rounds=rounds).between(0, rounds)
    for t, row in enumerate(means, start=1):
        first_half = t <= rounds / 2
        assert row.tolist() == ([0.5] * 4 + [0.8] if first_half else [1.0] + [0.5] * 4)


def test_a_table_is_played_as_it_stands() -> None:
    adversary = us.adversaries.table(TABLE)
    assert adversary.rounds == len(TABLE)
    assert not adversary.bernoulli
    np.testing.assert_array_equal(adversary.between(20, 50), TABLE[20:50])
    np.testing.assert_array_equal([r.means for r in records("table")], TABLE)
    np.testing.assert_array_equal([r.rewards for r in records("table")], TABLE)


def test_drifting_means_go_straight_from_the_first_round_to_the_last() -> None:
    drift = us.adversaries.drifting([0.0, 1.0], [1.0, 0.5], rounds=11)
    means = drift.between(0, 11)
    assert means[0].tolist() == [0.0, 1.0]
    assert means[-1].tolist() == [1.0, 0.5]
    np.testing.assert_allclose(np.diff(means, axis=0), [[0.1, -0.05]] * 10, atol=1e-15)
    single = us.adversaries.drifting([0.25], [1.0], rounds=1)
    assert single.between(0, 1).tolist() == [[0.25]]


def test_segments_begin_where_they_are_said_to() -> None:
    pieces = Piecewise([[0.1], [0.2], [0.3]], [0, 2, 5])
    assert pieces.between(0, 7).ravel().tolist() == [0.1, 0.1, 0.2, 0.2, 0.2, 0.3, 0.3]


OBLIVIOUS = [name for name in GAMES if isinstance(GAMES[name].adversary, Oblivious)]


@pytest.mark.parametrize("name", OBLIVIOUS)
def test_oblivious_means_depend_on_the_round_only(name: str) -> None:
    """One by one or many at a time, and inside the hull of their corners."""
    adversary = GAMES[name].adversary
    assert isinstance(adversary, Oblivious)
    whole = adversary.between(0, 300)
    assert whole.shape == (300, adversary.size)
    one_by_one = [adversary.choose(None, t) for t in range(1, 301)]
    np.testing.assert_array_equal(one_by_one, whole)
    corners = adversary.corners()
    assert (whole >= corners.min(axis=0)).all()
    assert (whole <= corners.max(axis=0)).all()


def test_the_retaliating_adversary_punishes_the_last_round() -> None:
    """The means of round t follow from the learner's policy and action in round t − 1."""
    played = records("retaliating")
    assert played[0].means.tolist() == [0.9] * 4
    for before, after in itertools.pairwise(played):
        expected = 0.9 - 0.8 * before.policy
        expected[before.action] = 0.1
        np.testing.assert_allclose(after.means, expected, rtol=0, atol=1e-15)


def test_the_hiding_adversary_pays_most_for_what_was_played_least() -> None:
    counts = np.zeros(4)
    for played in records("hiding"):
        expected = np.full(4, 0.5)
        expected[counts.argmin()] = 0.9
        assert played.means.tolist() == expected.tolist()
        counts[played.behavior_action] += 1


@dataclass(frozen=True)
class Watching:
    """An adversary that remembers all it was shown, and notes what it knew when it chose."""

    known: list[list[Round]]
    size: int = 4
    bernoulli: bool = True

    def init(self) -> tuple[Round, ...]:
        return ()

    def choose(self, memory: tuple[Round, ...], t: int) -> Array:
        assert len(memory) == t - 1
        self.known.append(list(memory))
        return np.full(4, 0.5)

    def observe(self, memory: tuple[Round, ...], played: Round) -> tuple[Round, ...]:
        return (*memory, played)


def test_an_adaptive_adversary_sees_all_rounds_before_and_no_other() -> None:
    watcher = Watching(known=[])
    played = list(us.play(game(adversary=watcher, rounds=20), LEARNER))
    for t, known in enumerate(watcher.known, start=1):
        assert [id(record) for record in known] == [id(record) for record in played[: t - 1]]


# The referee.


def test_feedback_has_no_field_for_the_learners_own_reward() -> None:
    """Cheating is unrepresentable: only the behavior's action and reward reach a learner."""
    names = {field.name for field in dataclasses.fields(Feedback)}
    fields = {"action", "reward", "propensity", "features", "experts"}
    assert names == fields | {"propensity_vector"}  # which certificates read
    parameters = set(inspect.signature(us.Understudy.observe).parameters)
    assert parameters == fields | {"self"}


@pytest.mark.parametrize("name", GAMES)
def test_the_learner_is_shown_the_behaviors_action_and_reward(name: str) -> None:
    """Replaying the feedback of the referee's record gives the policies of the record."""
    state = LEARNER.init()
    for record in records(name):
        np.testing.assert_array_equal(record.policy, LEARNER.policy(state))
        event = feedback_for(LEARNER.spec, record)
        assert event.action == record.behavior_action
        assert event.reward == record.rewards[record.behavior_action]
        assert event.propensity is None
        assert event.features is None
        state = LEARNER.update(state, event)


def test_a_form_that_asks_for_more_is_shown_more_and_no_more() -> None:
    record = records("finite contexts")[7]
    event = feedback_for(EventSpec(4, propensities=True, features=(4, 2)), record)
    assert event.propensity == record.behavior[record.behavior_action]
    np.testing.assert_array_equal(event.features, record.features)


@pytest.mark.parametrize("name", GAMES)
def test_rounds_are_complete_and_consistent(name: str) -> None:
    """Counted from 1; rewards in [0, 1], 0 or 1 if Bernoulli, and then 0 or 1 where means are."""
    played = records(name)
    assert [record.t for record in played] == list(range(1, 301))
    for record in played:
        assert record.means.shape == record.rewards.shape == record.policy.shape == (4,)
        assert ((record.means >= 0) & (record.means <= 1)).all()
        if GAMES[name].adversary.bernoulli:
            assert set(record.rewards) <= {0.0, 1.0}
            certain = np.isin(record.means, [0.0, 1.0])
            assert (record.rewards[certain] == record.means[certain]).all()
        else:
            assert (record.rewards == record.means).all()


@pytest.mark.parametrize("name", ["finite contexts", "continuous contexts"])
def test_contexts_features_and_behavior_belong_together(name: str) -> None:
    world = GAMES[name]
    assert world.contexts is not None
    for record in records(name):
        one = np.asarray(record.context)[np.newaxis]
        features = world.contexts.features(one)[0]
        np.testing.assert_array_equal(record.features, features)
        np.testing.assert_allclose(record.means, features @ [0.9, 0.4], rtol=1e-14)
        np.testing.assert_array_equal(record.behavior, rows(world.behavior, one, 4, "b")[0])


@pytest.mark.parametrize("name", GAMES)
def test_a_game_is_a_function_of_seed_and_run(name: str) -> None:
    def story(seed: int, run: int) -> list[Any]:
        played = itertools.islice(us.play(GAMES[name], LEARNER, seed=seed, run=run), 100)
        return [(r.behavior_action, r.action, r.rewards.tolist()) for r in played]

    assert story(3, 2) == story(3, 2)
    assert story(3, 2) != story(3, 1)
    assert story(3, 2) != story(2, 2)


def test_a_longer_game_begins_like_a_shorter_one() -> None:
    """Also across the edge at which the rounds are dealt."""
    short, long = (
        [
            (r.behavior_action, r.action, r.rewards.tolist(), int(r.context))
            for r in us.play(contextual(rounds=n), LEARNER)
        ]
        for n in (10, 600)
    )
    assert long[:10] == short
    assert len({context for *_, context in long}) == 3


def chi_square(found: Any, expected: Any) -> float:
    return float(((np.asarray(found) - expected) ** 2 / expected).sum())


def test_the_behaviors_actions_have_the_behaviors_frequencies() -> None:
    """χ² over 3000 rounds with a fixed seed, below its 99.9 % quantile; so are the learner's."""
    rounds = 3000
    frozen = us.exp3(PI, eta=1e-9)
    played = list(us.play(game(adversary=switching(rounds), rounds=rounds), frozen, seed=11))
    actions = np.bincount([record.behavior_action for record in played], minlength=4)
    assert chi_square(actions, PI * rounds) < CHI_SQUARE_999[3]
    own = np.bincount([record.action for record in played], minlength=4)
    assert chi_square(own, np.full(4, rounds / 4)) < CHI_SQUARE_999[3]


def test_contexts_and_their_actions_have_their_frequencies() -> None:
    rounds = 3000
    played = list(us.play(contextual(rounds=rounds), us.exp3(PI, eta=1e-9), seed=12))
    contexts = np.array([int(record.context) for record in played])
    actions = np.array([record.behavior_action for record in played])
    counts = np.bincount(contexts, minlength=3)
    assert chi_square(counts, FINITE.probabilities * rounds) < CHI_SQUARE_999[2]
    for x in range(3):
        found = np.bincount(actions[contexts == x], minlength=4)
        assert chi_square(found, BY_CONTEXT[x] * counts[x]) < CHI_SQUARE_999[3]


def test_the_draws_of_one_round_are_independent() -> None:
    """The learner's action, the behavior's action, and each action's reward: no correlation.

    Each correlation of 3000 rounds has a standard error of 1/√3000; five of them are allowed.
    """
    adversary = us.adversaries.stationary([0.5] * 4)
    world = game(adversary=adversary, rounds=3000, behavior=[0.25] * 4)
    played = list(us.play(world, us.exp3(PI, eta=1e-9), seed=13))
    draws = [[r.action, r.behavior_action, *r.rewards] for r in played]
    correlations = np.corrcoef(np.array(draws, dtype=float).T) - np.eye(6)
    assert np.abs(correlations).max() < 5 / np.sqrt(3000)


# V(π): exact and sampled.


def covariance_error(contexts: Any, policy: Any, samples: int) -> Array:
    """The standard error of a sampled V(π), entry by entry, from a sample of its own."""
    drawn = contexts.draw(np.random.default_rng(99), samples)
    pi, phi = rows(policy, drawn, contexts.n_actions, "policy"), contexts.features(drawn)
    each = np.einsum("xk,xkd,xke->xde", pi, phi, phi)
    return np.asarray(each.std(axis=0) / np.sqrt(samples))


@pytest.mark.parametrize("policy", [BY_CONTEXT, PI], ids=["by context", "the same everywhere"])
def test_the_covariance_of_finite_contexts_is_exact(policy: Array) -> None:
    """By the definition, and within four standard errors of a sample."""
    pi = np.broadcast_to(policy, (3, 4))
    V = sum(
        FINITE.probabilities[x] * pi[x, a] * np.outer(PHI[x, a], PHI[x, a])
        for x in range(3)
        for a in range(4)
    )
    np.testing.assert_allclose(FINITE.covariance(policy), V, rtol=1e-14)
    drawn = FINITE.draw(np.random.default_rng(2), 20_000)
    sampled = feature_covariance(rows(policy, drawn, 4, "policy"), FINITE.features(drawn))
    assert (np.abs(sampled - V) < 4 * covariance_error(FINITE, policy, 20_000)).all()


def test_the_covariance_of_continuous_contexts_is_the_integral() -> None:
    """With φ(x, a) = (xᵃ, 1 − xᵃ) and a uniform policy, E[x²ᵃ] = 1/(2a + 1), E[xᵃ] = 1/(a + 1)."""
    sampled = CONTINUOUS.covariance([0.25] * 4, samples=20_000, seed=3)
    a = np.arange(4)
    square, cross = np.mean(1 / (2 * a + 1)), np.mean(1 / (a + 1) - 1 / (2 * a + 1))
    rest = np.mean(1 - 2 / (a + 1) + 1 / (2 * a + 1))
    V = np.array([[square, cross], [cross, rest]])
    assert (np.abs(sampled - V) < 4 * covariance_error(CONTINUOUS, [0.25] * 4, 20_000)).all()


def test_sampling_a_finite_space_agrees_with_its_table() -> None:
    """The same space given as a sampler: V(π) within four standard errors of the exact one."""
    sampler = ContinuousContexts(
        sample=lambda rng, n: rng.choice(3, size=n, p=FINITE.probabilities),
        feature_map=lambda x: PHI[x],
        n_actions=4,
        dimension=2,
    )
    sampled = sampler.covariance(BY_CONTEXT, samples=20_000, seed=4)
    error = covariance_error(sampler, BY_CONTEXT, 20_000)
    assert (np.abs(sampled - FINITE.covariance(BY_CONTEXT)) < 4 * error).all()


# What is refused.


def wrong_sampler(**changed: Any) -> ContinuousContexts:
    functions = {"sample": CONTINUOUS.sample, "feature_map": CONTINUOUS.feature_map, **changed}
    return ContinuousContexts(n_actions=4, dimension=2, **functions)


@dataclass(frozen=True)
class Lying:
    """An adaptive adversary whose third choice is wrong."""

    wrong: Any
    size: int = 4
    bernoulli: bool = True

    def init(self) -> None:
        return None

    def choose(self, memory: None, t: int) -> Any:  # noqa: ARG002 - the protocol
        return self.wrong if t == 3 else np.full(4, 0.5)

    def observe(self, memory: None, played: Round) -> None:  # noqa: ARG002 - the protocol
        return None


def play(world: us.Game, learner: Any = LEARNER) -> list[Round]:
    return list(us.play(world, learner))


LINEAR = us.lin_prod(np.eye(3), n_actions=4, horizon=9, kappa=9.0)
DISJOINT = us.lin_prod(np.stack([np.eye(2)] * 4), n_actions=4, horizon=9, kappa=9.0)
REFUSED: dict[str, tuple[Callable[[], object], str, str]] = {
    "adversary of another size": (
        lambda: game(adversary=us.adversaries.stationary([0.5] * 3)),
        "adversary",
        "the game has 4 actions",
    ),
    "θ of another size": (
        lambda: contextual(adversary=us.adversaries.stationary([0.5] * 4)),
        "adversary",
        "the game has 2 features",
    ),
    "a table too short": (
        lambda: game(adversary=us.adversaries.table(TABLE[:299])),
        "rounds",
        "made for 299",
    ),
    "a drift too short": (
        lambda: game(adversary=us.adversaries.drifting([0.5] * 4, [0.6] * 4, rounds=10)),
        "rounds",
        "made for 10",
    ),
    "a mean above one": (
        lambda: game(adversary=us.adversaries.stationary([0.5, 0.5, 0.5, 1.1])),
        "adversary",
        "rewards lie in [0, 1]",
    ),
    "a mean below zero, once": (
        lambda: game(adversary=us.adversaries.table(np.vstack([TABLE, [[-0.1, 0, 0, 0]]]))),
        "adversary",
        "-0.1",
    ),
    "a drift out of range": (
        lambda: game(adversary=us.adversaries.drifting([0.5] * 4, [0, 0, 0, 1.5], rounds=300)),
        "adversary",
        "1.5",
    ),
    "θ too long for some context": (
        lambda: contextual(adversary=us.adversaries.stationary([2.0, 2.0])),
        "adversary",
        "scale the means (or θ and the features)",
    ),
    "θ too long, seen when played": (
        lambda: play(
            contextual(
                adversary=us.adversaries.stationary([0.5, 1.5]),
                contexts=CONTINUOUS,
                behavior=softly,
            )
        ),
        "adversary",
        "rewards lie in [0, 1]",
    ),
    "an adaptive mean out of range": (
        lambda: play(game(adversary=Lying([0.5, 0.5, 0.5, 1.5]))),
        "adversary",
        "rewards lie in [0, 1]",
    ),
    "an adaptive mean that is NaN": (
        lambda: play(game(adversary=Lying([0.5, 0.5, 0.5, np.nan]))),
        "adversary.choose",
        "not finite",
    ),
    "an adaptive choice of another size": (
        lambda: play(game(adversary=Lying([0.5, 0.5]))),
        "adversary",
        "4",
    ),
    "a logged behavior": (
        lambda: game(behavior=us.Logged(n_actions=4)),
        "behavior",
        "pass the probabilities",
    ),
    "a behavior that does not sum to one": (lambda: game(behavior=[0.5] * 4), "behavior", "2"),
    "a behavior table that does not sum to one": (
        lambda: contextual(behavior=BY_CONTEXT * 1.1),
        "behavior",
        "rows that sum to 1",
    ),
    "a negative behavior table": (
        lambda: contextual(behavior=BY_CONTEXT - [[0.3, 0, 0, -0.3]]),
        "behavior",
        "not a probability vector",
    ),
    "a behavior table for two contexts": (
        lambda: contextual(behavior=BY_CONTEXT[:2]),
        "behavior",
        "(X, K)",
    ),
    "a behavior of three actions": (lambda: contextual(behavior=[1 / 3] * 3), "behavior", "4"),
    "a behavior that is a number": (lambda: contextual(behavior=0.5), "behavior", "(K,)"),
    "a behavior that is text": (lambda: contextual(behavior="uniform"), "behavior", "(K,)"),
    "a behavior in three dimensions": (
        lambda: contextual(behavior=BY_CONTEXT[None]),
        "behavior",
        "(K,)",
    ),
    "a behavior function of another shape": (
        lambda: contextual(behavior=lambda x: np.full((len(x), 3), 1 / 3)),
        "behavior",
        "4 actions",
    ),
    "a table over a continuous space": (
        lambda: play(contextual(contexts=CONTINUOUS, behavior=BY_CONTEXT)),
        "behavior",
        "function from contexts",
    ),
    "a learner of other actions": (
        lambda: play(game(), us.exp3([0.5, 0.5], eta=0.1)),
        "learner",
        "for 4 actions",
    ),
    "a linear learner without contexts": (lambda: play(game(), LINEAR), "learner", "none"),
    "a linear learner of other features": (
        lambda: play(contextual(), LINEAR),
        "learner",
        "features of shape (4, 2)",
    ),
    "a disjoint learner": (lambda: play(contextual(), DISJOINT), "learner", "(2,)"),
    "a negative seed": (lambda: list(us.play(game(), LEARNER, seed=-1)), "seed", "at least 0"),
    "a negative run": (lambda: list(us.play(game(), LEARNER, run=-1)), "run", "at least 0"),
    "no adversary": (lambda: game(adversary="switching"), "adversary", "us.adversaries"),
    "no contexts": (lambda: contextual(contexts="finite"), "contexts", "us.contexts"),
    "no learner": (lambda: play(game(), "exp3"), "learner", "exp3"),
    "context probabilities that do not sum to one": (
        lambda: FiniteContexts(table=PHI, probabilities=[0.5, 0.3, 0.3]),
        "probabilities",
        "sum to 1",
    ),
    "too few context probabilities": (
        lambda: FiniteContexts(table=PHI, probabilities=[0.5, 0.5]),
        "probabilities",
        "3",
    ),
    "contexts of one action": (
        lambda: FiniteContexts(table=PHI[:, :1], probabilities=FINITE.probabilities),
        "number of actions in table",
        "at least 2",
    ),
    "a sampler that gives too few": (
        lambda: wrong_sampler(sample=lambda rng, n: rng.random(n - 1)).draw(
            np.random.default_rng(0), 5
        ),
        "sample",
        "5 were asked for",
    ),
    "a feature map of another shape": (
        lambda: wrong_sampler(feature_map=lambda x: np.zeros((len(x), 4, 3))).features(np.zeros(5)),
        "feature_map",
        "(5, 4, 2)",
    ),
    "a feature map that gives NaN": (
        lambda: wrong_sampler(feature_map=lambda x: np.full((len(x), 4, 2), np.nan)).features(
            np.zeros(5)
        ),
        "feature_map",
        "finite",
    ),
    "no samples": (
        lambda: CONTINUOUS.covariance([0.25] * 4, samples=0, seed=0),
        "samples",
        "at least 1",
    ),
    "segments out of order": (
        lambda: Piecewise(TABLE[:3], np.array([0, 5, 5])),
        "starts",
        "3 increasing",
    ),
    "segments that begin late": (lambda: Piecewise(TABLE[:2], np.array([1, 5])), "starts", "0"),
    "drifts of two sizes": (
        lambda: us.adversaries.drifting([0.5], [0.5, 0.5], rounds=5),
        "last",
        "equal lengths",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_together_is_refused(name: str) -> None:
    assert_refused(*REFUSED[name])


def test_means_that_leave_the_interval_by_rounding_only_are_rewards() -> None:
    """A mean of 1 + 5·10⁻¹⁰ is taken for 1, in the referee's record and in the feedback."""
    adversary = us.adversaries.stationary([1 + 5e-10, 0.0, 0.5, -5e-10], bernoulli=False)
    for record in play(game(adversary=adversary, rounds=20)):
        assert record.rewards.tolist() == [1.0, 0.0, 0.5, 0.0]


def test_the_old_name_of_the_reward_table_warns_and_works_and_files_keep_it() -> None:
    with pytest.warns(DeprecationWarning, match="RewardTable"):
        old = us.adversaries.Table
    assert old is us.adversaries.RewardTable is us.adversaries.table
    assert saved_form(us.adversaries.table([[0.5]]))["kind"] == "Table"
    assert not hasattr(us.adversaries, "Tables")
