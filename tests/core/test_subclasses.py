"""Compiled code (`understudy.kernels`) is for its own classes: a subclass is asked what it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.strategies import Array, Integers
from understudy import Log
from understudy.errors import InvalidArgument, InvalidEvent
from understudy.estimators import KnownBehavior
from understudy.kernels import games
from understudy.kernels.compiler import compiled
from understudy.learners import ExponentialWeights, Scores

HALF = np.array([0.5, 0.5])
LEARNER = us.exp3(HALF, eta=0.1)


class Shy(us.adversaries.Hiding):
    """Hides everything."""

    def choose(self, memory: Integers, t: int) -> Array:  # noqa: ARG002 - never anything
        return np.zeros(self.n_actions)


class Dry(us.adversaries.Piecewise):
    """Pays nothing, whatever its values say."""

    def between(self, start: int, stop: int) -> Array:
        return np.zeros((stop - start, self.size))


class Stubborn(ExponentialWeights):
    """Plays action 0, whatever it has learned."""

    def policy(self, state: Scores, features: Any = None) -> Array:
        del state, features
        return np.array([1.0, 0.0])

    def policies(self, state: Scores, log: Log) -> tuple[Scores, Array]:
        after, found = super().policies(state, log)
        return after, np.tile([1.0, 0.0], (len(found), 1))


@dataclass(frozen=True, eq=False)
class Centered(KnownBehavior):
    """Gains relative to the rewards of the past, which it remembers."""

    order_dependence = "the mean reward so far"

    def init(self) -> Integers:
        return np.zeros(2, dtype=np.int64)

    def gain(self, R: Array, q: Array, t: Integers) -> Array:  # noqa: ARG002 - see `gains`
        return R / q

    def gains(self, memory: Integers, start: int, log: Log) -> tuple[Array, Integers]:
        del start
        before = np.concatenate([[0], np.cumsum(log.rewards)])[:-1] + memory[0]
        rounds = np.arange(len(log)) + memory[1]
        gains = log.rewards - before / np.maximum(rounds, 1)
        seen = [int(memory[0] + log.rewards.sum()), int(memory[1] + len(log))]
        return gains, np.array(seen, dtype=np.int64)


@pytest.mark.parametrize(
    ("adversary", "path"),
    [(Shy(n_actions=2), "referee"), (Dry([[0.5, 0.9]], [0]), "compiled")],
    ids=["watching", "oblivious"],
)
def test_an_adversary_that_overrides_is_asked(adversary: Any, path: str) -> None:
    result = us.simulate(us.Game(adversary, HALF, rounds=40), {"Exp3": LEARNER})
    assert result.reward["Exp3"].tolist() == [0.0]
    assert result.path["Exp3"] == path


@pytest.mark.parametrize("name", ["stationary", "hiding"])
@pytest.mark.parametrize(
    "learner",
    [
        Stubborn(0.1, us.estimators.ImportanceWeighting(HALF)),
        ExponentialWeights(0.1, Centered(HALF)),
    ],
    ids=["learner", "estimator"],
)
def test_what_overrides_plays_as_the_referee_sees_it(name: str, learner: Any) -> None:
    adversaries: dict[str, Any] = {
        "stationary": us.adversaries.stationary([0.0, 1.0]),
        "hiding": us.adversaries.hiding(n_actions=2),
    }
    game = us.Game(adversaries[name], HALF, rounds=60)
    rounds = list(us.play(game, learner, seed=3))
    wanted = sum(float(played.policy @ played.means) for played in rounds)
    assert us.simulate(game, {"own": learner}, seed=3).reward["own"][0] == pytest.approx(wanted)


def test_a_learner_that_denies_an_action_of_the_game_is_refused() -> None:
    """As by `play` and `replay`, before anything is played."""
    denies = us.exp3_ix([1.0, 0.0], horizon=20)
    with pytest.raises(InvalidEvent):
        denies.replay(denies.init(), us.Log([1], [1.0]))
    for adversary in (us.adversaries.stationary([0.5, 0.9]), us.adversaries.hiding(n_actions=2)):
        with pytest.raises(InvalidArgument, match="never plays this action"):
            us.simulate(us.Game(adversary, HALF, rounds=20), {"ix": denies})


def test_scores_of_any_size_leave_a_policy() -> None:
    """Gains below the last digit of a score, and rates that make that digit worth e^1000."""
    logged = us.exp3(us.Logged(n_actions=3), eta=1.0)
    state, _ = logged.replay(logged.init(), us.Log([0, 1], [1.0, 1.0], [1e-20, 1e-20]))
    state, _ = logged.replay(state, us.Log([0, 1] * 1000, [1.0] * 2000, [1.0] * 2000))
    np.testing.assert_allclose(logged.policy(state), [0.5, 0.5, 0.0], atol=1e-12)
    rng = np.random.default_rng(0)
    log = us.Log(rng.integers(3, size=3000), rng.random(3000))
    for eta in (1e15, 1e18, 1e30, 1e100):
        learner = us.exp3(np.full(3, 1 / 3), eta=eta)
        state, trace = learner.replay(learner.init(), log)
        assert learner.policy(state).sum() == pytest.approx(1.0)
        assert np.isfinite(trace.probability).all()
        learner.validate(state)


MEMORY = np.zeros(1)


@compiled
def choose_much(memory: Any, parameters: Any, t: int, means: Any) -> None:  # noqa: ARG001 - the form
    means[:] = parameters[0]
    memory[0] += 1.0


@compiled
def look_away(  # noqa: PLR0917 - the form of all adversaries
    memory: Any,
    parameters: Any,
    t: int,
    policy: Any,
    action: int,
    b: int,
    rewards: Any,
) -> None:
    pass


@compiled
def greedy(adversary: Any, stage: Any, learner: Any) -> Any:
    return games.play_adaptive(choose_much, look_away, adversary, stage, learner)


@dataclass(frozen=True)
class Generous:
    """Pays the same for everything, if that is a mean; its memory is shared by all its runs."""

    mean: float
    size = 2
    bernoulli = True

    def init(self) -> None:
        return None

    def choose(self, memory: None, t: int) -> Array:  # noqa: ARG002 - always the same
        return np.full(2, self.mean)

    def observe(self, memory: None, played: us.Round) -> None:
        del memory, played

    def compiled(self) -> tuple[Any, Array, Array]:
        return greedy, MEMORY, np.array([self.mean])


@pytest.mark.parametrize("mean", [1.5, -0.1, float("nan")])
def test_means_of_a_compiled_adversary_are_checked(mean: float) -> None:
    with pytest.raises(InvalidArgument, match=r"means outside of \[0, 1\]"):
        us.simulate(us.Game(Generous(mean), HALF, rounds=5), {"Exp3": LEARNER})


def test_every_run_has_a_memory_of_its_own() -> None:
    result = us.simulate(us.Game(Generous(0.5), HALF, rounds=5), {"Exp3": LEARNER}, runs=3)
    assert result.reward["Exp3"] == pytest.approx(2.5)
    assert result.path["Exp3"] == "compiled"
    assert MEMORY.tolist() == [0.0]
