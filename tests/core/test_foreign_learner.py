"""A learner written outside of this library: four members, and it obeys the laws and plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.strategies import Array, Integers
from understudy import Log
from understudy.errors import InvalidArgument, InvalidEvent, NotMergeable

PI = [0.5, 0.3, 0.2]


@us.saved(tag="tests.Means")
@dataclass(frozen=True, eq=False)
class Means:
    """Sum of rewards and number of plays of each action."""

    sums: Array
    counts: Integers
    rounds: int


@us.saved(tag="tests.EpsilonGreedy")
@dataclass(frozen=True, eq=False)
class EpsilonGreedy(us.learners.Learner[Means]):
    """Plays the action of the best mean reward so far, and any action with probability ε."""

    n_actions: int
    epsilon: float
    horizon: int | None = None

    @property
    def spec(self) -> us.learners.EventSpec:
        return us.learners.EventSpec(self.n_actions)

    def init(self) -> Means:
        return Means(np.zeros(self.n_actions), np.zeros(self.n_actions, dtype=np.int64), 0)

    def policy(self, state: Means, features: Any = None) -> Array:
        del features
        policy = np.full(self.n_actions, self.epsilon / self.n_actions)
        policy[np.argmax(state.sums / np.maximum(state.counts, 1))] += 1.0 - self.epsilon
        return policy

    def advance(self, state: Means, log: Log, recorder: us.learners.Recorder) -> Means:
        for action, reward in zip(log.actions, log.rewards, strict=True):
            recorder.add(self.policy(state))
            sums, counts = state.sums.copy(), state.counts.copy()
            sums[action] += reward
            counts[action] += 1
            state = Means(sums, counts, state.rounds + 1)
        return state


class Mergeable(EpsilonGreedy):
    """The same, with states that add up."""

    order_dependence = None

    def add_states(self, first: Means, second: Means) -> Means:
        return Means(
            first.sums + second.sums, first.counts + second.counts, first.rounds + second.rounds
        )


class Peeking(EpsilonGreedy):
    """Shows the recorder what it plays after it has learned from a round."""

    def advance(self, state: Means, log: Log, recorder: us.learners.Recorder) -> Means:
        after = super().advance(state, log, us.learners.Recorder())
        recorder.add(np.tile(self.policy(after), (len(log), 1)))
        return after


class Forgetful(EpsilonGreedy):
    """Learns, and shows the recorder nothing."""

    def advance(self, state: Means, log: Log, recorder: us.learners.Recorder) -> Means:
        del recorder
        return super().advance(state, log, us.learners.Recorder())


@pytest.mark.parametrize("learner", [EpsilonGreedy(3, 0.1), Mergeable(3, 0.1)])
def test_it_obeys_every_law(learner: EpsilonGreedy) -> None:
    assert len(us.check_learner(learner)) == 8


def test_a_learner_that_breaks_a_law_is_caught() -> None:
    with pytest.raises(us.errors.BrokenLaw, match="replay is update"):
        us.check_learner(Peeking(3, 0.1))
    with pytest.raises(us.errors.BrokenLaw, match="recorded 0 policies of 40 rounds"):
        us.check_learner(Forgetful(3, 0.1))


@pytest.mark.parametrize(
    ("adversary", "path"),
    [
        (us.adversaries.stationary([0.2, 0.9, 0.4]), "stretches"),
        (us.adversaries.hiding(n_actions=3), "referee"),
    ],
)
def test_it_plays_as_the_referee_sees_it(adversary: Any, path: str) -> None:
    game, learner = us.Game(adversary, PI, rounds=200), EpsilonGreedy(3, 0.1)
    wanted = sum(float(played.policy @ played.means) for played in us.play(game, learner, seed=1))
    result = us.simulate(game, {"greedy": learner}, seed=1)
    assert result.reward["greedy"][0] == pytest.approx(wanted)
    assert result.path == {"greedy": path}


def test_what_follows_from_the_four_members() -> None:
    learner = EpsilonGreedy(3, 0.3, horizon=2)
    log = us.Log([1, 0, 2], [1.0, 0.0, 1.0])
    state, trace = learner.replay(learner.init(), log)
    np.testing.assert_allclose(trace.probability, [0.1, 0.1, 0.1])
    assert (learner.rounds(state), learner.past_horizon(state), trace.past_horizon) == (3, 1, 1)
    rewards, starts = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([0, 1])
    after, earned = learner.expected_reward(learner.init(), log, rewards, starts)
    assert after.sums.tolist() == state.sums.tolist()
    assert earned == pytest.approx(0.8 + 0.8 + 0.8)
    with pytest.raises(InvalidEvent, match="3 actions"):
        learner.replay(state, us.Log([3], [1.0]))
    with pytest.raises(InvalidArgument, match="not a state"):
        learner.update("no state", us.Feedback(0, 1.0))  # type: ignore[arg-type] # on purpose
    with pytest.raises(NotMergeable, match="one after the other"):
        learner.merge(state, state)
    assert Mergeable(3, 0.3).merge(state, state).counts.tolist() == [2, 2, 2]


def test_a_learner_without_the_four_members_says_what_is_missing() -> None:
    class Empty(us.learners.Learner[None]):
        pass

    empty = Empty()  # type: ignore[abstract] # on purpose
    with pytest.raises(NotImplementedError, match="defines init"):
        empty.init()
    with pytest.raises(NotImplementedError, match="defines spec"):
        us.check_learner(empty)
