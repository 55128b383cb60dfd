"""Games with fixed means in which a certificate should promote its target, or call it worse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from understudy.behaviors import Behavior, Logged
from understudy.certificates import FixedPolicy, Guardrail
from understudy.certificates.evidence import POINTS
from understudy.certificates.targets import Target
from understudy.constraints import Array
from understudy.experiments.certificate_games import FIXED, LEARNER
from understudy.learners import exp3_ix
from understudy.simulation import Game, adversaries
from understudy.simulation.game import RandomStreams, log_chunks
from understudy.types import Integers, Log


class GameRun(NamedTuple):
    """What a certificate sees of a run, and the truth: π_t, q and the mean rewards.

    π_t is known after the rounds of `points`, (points, K). Each context has actions of its own in
    `policies`, `behavior` and `means`, which are then shares of all rows.
    """

    log: Log
    target: Target
    known: Behavior
    points: Integers
    policies: Array
    behavior: Array
    means: Array


@dataclass(frozen=True, eq=False)
class DecisionGame(ABC):
    """A game, its target, and the decision that is right about it: better, or `worse`."""

    name: str
    rounds: int
    worse: bool = field(default=False, kw_only=True)

    @property
    def target(self) -> str:
        return FIXED

    @abstractmethod
    def observe(self, rounds: int, seed: int, run: int) -> GameRun:
        """The log of a run, of so many rounds; a function of the arguments."""


@dataclass(frozen=True, eq=False)
class PlainGame(DecisionGame):
    """A game without contexts. Without a policy, the target is Exp3-IX from the uniform policy."""

    behavior: tuple[float, ...]
    means: tuple[float, ...]
    policy: tuple[float, ...] | None = None

    @property
    def target(self) -> str:
        return LEARNER if self.policy is None else FIXED

    def observe(self, rounds: int, seed: int, run: int) -> GameRun:
        game = Game(adversaries.stationary(self.means), self.behavior, rounds)
        streams, q = RandomStreams(seed, run), game.behavior
        (whole,) = log_chunks(game, streams, size=rounds, all_rewards=False)
        log = whole.log.visible(propensities=False, features=False)
        points = points_until(rounds)
        if self.policy is None:
            learner = exp3_ix(q, horizon=rounds)
            target: Target = learner.replay(learner.init(), log)[1]
            policies = learner.policies(learner.init(), log)[1][points - 1]
        else:
            target = FixedPolicy(self.policy)
            policies = np.broadcast_to(np.array(self.policy), (len(points), len(q)))
        return GameRun(log, target, q, points, policies, q, np.array(self.means))


@dataclass(frozen=True, eq=False)
class BaselineGame(PlainGame):
    """A game in which the gain over a policy is certified, and how much of it, is the question.

    Without `against` the gain is over production. `apart` says that no least propensity is known:
    then two certificates are compared.
    """

    against: int | None = None
    apart: bool = False

    @property
    def gain(self) -> float:
        """The true gain a round of the fixed policy."""
        assert self.policy is not None
        other = np.array(self.behavior) if self.against is None else np.eye(3)[self.against]
        return float((np.array(self.policy) - other) @ np.array(self.means))


class Metric(NamedTuple):
    """A guardrail on which no action has an effect: normal values with an sd, or coins."""

    guardrail: Guardrail
    mean: float
    sd: float | None = None

    def unit(self, rng: np.random.Generator, rounds: int) -> Array:
        """Values of so many rounds, on the scale of certificates; all are in the range."""
        low, high = self.guardrail.low, self.guardrail.high
        if self.sd is None:
            return self.guardrail.unit((rng.random(rounds) < self.mean).astype(np.float64))
        return self.guardrail.unit(np.clip(rng.normal(self.mean, self.sd, rounds), low, high))


@dataclass(frozen=True, eq=False)
class GuardedGame(PlainGame):
    """A game in which guardrails must hold beside the goal."""

    metrics: tuple[Metric, ...] = ()


def points_until(rounds: int) -> Integers:
    """Rounds 1, 2, …, each 2 % after the one before, and the last.

    >>> points_until(4).tolist()
    [1, 2, 3, 4]
    """
    return np.append(POINTS[: np.searchsorted(POINTS, rounds)], rounds)


def best_of(means: tuple[float, ...]) -> tuple[float, ...]:
    """The policy that always plays the best action.

    >>> best_of((0.2, 0.5))
    (0.0, 1.0)
    """
    return tuple(float(i == np.argmax(means)) for i in range(len(means)))


EASY = tuple((np.linspace(1.0, 3.0, 10) / 20.0).tolist()), (0.4, 0.7, *[0.4] * 8)
HARD = (*[0.2 / 9] * 9, 0.8), (*[0.2] * 9, 0.6)
HIGH = (0.8, 0.2), (0.90, 0.95)
CLICKS = (0.5, 0.2, 0.2, 0.1), (0.10, 0.12, 0.20, 0.05)
BETTER = (
    PlainGame("easy", 20_000, *EASY),
    PlainGame("hard", 20_000, *HARD),
    PlainGame("high rewards", 20_000, *HIGH),
    PlainGame("easy, best action", 20_000, *EASY, best_of(EASY[1])),
    PlainGame("high rewards, best action", 20_000, *HIGH, best_of(HIGH[1])),
    PlainGame("clicks, best action", 20_000, *CLICKS, best_of(CLICKS[1])),
)
WORSE = (
    PlainGame("high rewards, second", 20_000, (0.8, 0.2), (0.90, 0.85), (0.0, 1.0), worse=True),
    PlainGame("clicks, last action", 40_000, *CLICKS, (0.0, 0.0, 0.0, 1.0), worse=True),
    PlainGame("hard, uniform", 20_000, *HARD, (0.1,) * 10, worse=True),
    PlainGame("coin, a quarter", 60_000, (0.5, 0.5), (0.5, 0.45), (0.25, 0.75), worse=True),
)

ARMS = (1 / 3, 1 / 3, 1 / 3), (0.183, 0.151, 0.106), (1.0, 0.0, 0.0)
BASELINES = (
    BaselineGame("over the third action", 64_000, *ARMS, against=2),
    BaselineGame("over the third action, apart", 64_000, *ARMS, against=2, apart=True),
    BaselineGame("over production", 64_000, *ARMS),
)


def two_guardrails(share: float) -> tuple[Metric, ...]:
    """A latency of 400 ± 150 ms, and whether a user returns, which half of them do.

    Latency may grow by 50 ms, an eighth, and returns may fall by ten points; or by a `share`.
    """
    latency = Guardrail("latency_ms", 0.0, 1_000.0, "lower", 50.0 * share)
    returns = Guardrail("returns", 0.0, 1.0, "higher", 0.1 * share)
    return Metric(latency, 400.0, 150.0), Metric(returns, 0.5)


GUARDED = (
    GuardedGame("easy, two guardrails", 20_000, *EASY, metrics=two_guardrails(1.0)),
    GuardedGame("easy, half the margins", 20_000, *EASY, metrics=two_guardrails(0.5)),
)

WORLDS, WORLD_ROUNDS, LARGEST_WORLD = 16, 20_000, 15


def random_worlds(seed: int) -> list[PlainGame]:
    """Sixteen worlds, as drawn; every second target plays the best action, the others learn."""
    rng, worlds = np.random.default_rng(seed), []
    for i in range(WORLDS):
        K = int(rng.integers(2, LARGEST_WORLD + 1))
        q = 0.9 * rng.dirichlet(np.ones(K)) + 0.1 / K
        drawn = np.clip(rng.uniform(0.05, 0.9) + rng.normal(0.0, 0.08, K), 0.01, 0.99)
        behavior, means = tuple((q / q.sum()).tolist()), tuple(drawn.tolist())
        policy = best_of(means) if i % 2 else None
        worlds.append(PlainGame(f"world {i + 1}", WORLD_ROUNDS, behavior, means, policy))
    return worlds


CONTEXTS, ROUTER_ROWS, EXPLORED = 57, 14_000, 0.1  # the share of the second model
ROUTER_GAIN, ROUTER_REWARD = 0.03, 0.72
# The second model less the first one, before they are scaled: it is better in two contexts of five.
DIFFERENCES = np.linspace(-1.2, 0.8, CONTEXTS)


@dataclass(frozen=True, eq=False)
class RouterGame(DecisionGame):
    """A router's log: two models, 57 contexts, propensities .9 and .1, the least one declared.

    Each run has a world of its own: the frequencies of the contexts and the models' mean rewards in
    them. In each of them production earns .72 a row, and the policy that takes the better model of
    each context earns .03 more. Mixed with its opposite, it gains exactly nothing.
    """

    gains: bool = True

    def observe(self, rounds: int, seed: int, run: int) -> GameRun:
        rng = RandomStreams(seed, run).contexts
        shares, means = _router_means(rng)
        q = np.array([1.0 - EXPLORED, EXPLORED])
        best = np.eye(2)[means.argmax(axis=1)]
        policy = best
        if not self.gains:
            gain, loss = (shares @ ((each - q) * means).sum(axis=1) for each in (best, 1.0 - best))
            policy = (gain * (1.0 - best) - loss * best) / (gain - loss)
        x = rng.choice(CONTEXTS, p=shares, size=rounds)
        actions = (rng.random(rounds) < EXPLORED).astype(np.int64)
        rewards = (rng.random(rounds) < means[x, actions]).astype(float)
        log, atoms = Log(actions, rewards, q[actions]), shares[:, np.newaxis]
        points, policies = np.array([1, rounds]), np.tile((atoms * policy).ravel(), (2, 1))
        known = Logged(2, least_propensity=EXPLORED)
        truth = policies, (atoms * q).ravel(), means.ravel()
        return GameRun(log, policy[x, actions], known, points, *truth)


def _router_means(rng: np.random.Generator) -> tuple[Array, Array]:
    """The frequencies of the contexts, and the mean reward of both models in each, (57, 2)."""
    shares = rng.dirichlet(np.full(CONTEXTS, 2.0))
    difference = rng.permutation(DIFFERENCES)
    gain = shares @ (np.maximum(difference, 0.0) - EXPLORED * difference)
    difference *= ROUTER_GAIN / gain
    first = rng.uniform(-0.1, 0.1, CONTEXTS)
    first += ROUTER_REWARD - shares @ (first + EXPLORED * difference)
    return shares, np.stack([first, first + difference], axis=1)


ROUTERS = (
    RouterGame("router, best policy", ROUTER_ROWS),
    RouterGame("router, no gain", ROUTER_ROWS, gains=False),
)
