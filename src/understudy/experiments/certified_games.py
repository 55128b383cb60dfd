"""Games whose certificates can be held against the truth, because a referee saw all rewards."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from understudy import behaviors
from understudy.certificates import Certificate
from understudy.constraints import Array
from understudy.experiments.experiment import Options
from understudy.kernels.reference import log_mixture, log_wealths
from understudy.learners import exp3_ix
from understudy.simulation import adversaries
from understudy.simulation.engine import stretches
from understudy.simulation.game import Game, RandomStreams, play
from understudy.types import Log, Trace

__all__ = ["KINDS", "Kind", "Watched", "watch", "wrong"]

LONGER = 10  # how many times as long, and
FEWER = 0.4  # what share as many, the games are that show when a promotion is justified
WATCHING = 0.25  # as long are games against an adversary that watches: they are played in Python
EXP3_IX = "Exp3-IX"


@dataclass(frozen=True)
class Kind:
    """One kind of game, for a number of rounds; and the policy of a target that does not learn."""

    name: str
    game: Callable[[int], Game]
    policy: tuple[float, ...] | None = None
    longer: float = 1.0
    fewer: float = 1.0

    @property
    def target(self) -> str:
        return EXP3_IX if self.policy is None else "fixed policy"

    def rounds(self, options: Options) -> int:
        return max(1, round(self.longer * options.rounds))

    def games(self, options: Options) -> int:
        return max(1, round(self.fewer * options.runs))


@dataclass(frozen=True, eq=False)
class Watched:
    """A game that was played: the log, every π_t and all realised rewards, (n, K)."""

    log: Log
    policies: Array
    rewards: Array
    behavior: Array

    @property
    def trace(self) -> Trace:
        played = self.policies[np.arange(len(self.log)), self.log.actions]
        return Trace(played, past_horizon=0, n_actions=self.policies.shape[1])

    @property
    def earned(self) -> Array:
        """⟨π_t, r_t⟩ of every round."""
        return np.asarray((self.policies * self.rewards).sum(axis=1))

    @property
    def gained(self) -> Array:
        """⟨π_t − π_B, r_t⟩ of every round."""
        return np.asarray(((self.policies - self.behavior) * self.rewards).sum(axis=1))


def rising(rounds: int) -> Game:
    """Ten actions that are played more and more often; the second pays .7, all others .4."""
    weights, means = np.linspace(1.0, 3.0, 10), np.full(10, 0.4)
    means[1] = 0.7
    return Game(adversaries.stationary(means), weights / weights.sum(), rounds)


def settled(rounds: int) -> Game:
    """Production plays the best of ten actions already, four times in five."""
    behavior, means = np.append(np.full(9, 0.2 / 9), 0.8), np.append(np.full(9, 0.2), 0.6)
    return Game(adversaries.stationary(means), behavior, rounds)


def switching(rounds: int) -> Game:
    """The paper's game, with ten actions."""
    behavior = behaviors.interpolated(n_actions=10, alpha=0.9)
    return Game(adversaries.switching(n_actions=10, rounds=rounds), behavior, rounds)


def retaliating(rounds: int) -> Game:
    """An adversary that punishes what the learner has just done."""
    behavior = behaviors.interpolated(n_actions=5, alpha=0.9)
    return Game(adversaries.retaliating(n_actions=5), behavior, rounds)


def rare(rounds: int) -> Game:
    """The best action is played once in a thousand rounds."""
    behavior = np.append(np.full(4, 0.999 / 4), 0.001)
    return Game(adversaries.stationary([0.5, 0.4, 0.3, 0.2, 0.9]), behavior, rounds)


KINDS = (
    Kind("stationary", rising),
    Kind("switching", switching),
    Kind("adaptive adversary", retaliating, longer=WATCHING),
    Kind("tiny propensities", rare),
    Kind("tiny, fixed policy", rare, policy=(0.25, 0.25, 0.0, 0.0, 0.5)),
    Kind("promotion, easy", rising, longer=LONGER, fewer=FEWER),
    Kind("promotion, hard", settled, longer=LONGER, fewer=FEWER),
)


def watch(kind: Kind, options: Options, run: int) -> Watched:
    """Play a game of this kind: a function of the seed and the run.

    >>> watch(KINDS[0], Options(runs=1, rounds=20), run=0).policies.shape
    (20, 10)
    """
    game = kind.game(kind.rounds(options))
    learner = exp3_ix(game.behavior, horizon=game.rounds)
    if not isinstance(game.adversary, adversaries.Oblivious):
        played = list(play(game, learner, seed=options.seed, run=run))
        rewards = np.array([one.rewards for one in played])
        actions = np.array([one.behavior_action for one in played])
        log = Log(actions, rewards[np.arange(len(actions)), actions])
        return Watched(log, np.array([one.policy for one in played]), rewards, game.behavior)
    dice = RandomStreams(options.seed, run)
    (whole,) = stretches(game, dice, size=game.rounds, all_rewards=True)
    log = whole.log.visible(propensities=False, features=False)
    if kind.policy is None:
        policies = learner.policies(learner.init(), log)[1]
    else:
        policies = np.broadcast_to(np.array(kind.policy), whole.rewards.shape)
    return Watched(log, policies, whole.rewards, game.behavior)


def wrong(watched: Watched, certificate: Certificate) -> tuple[bool, bool, bool]:
    """Whether the lower bound, the upper bound and the gain were wrong after any round.

    >>> watched = watch(KINDS[0], Options(runs=1, rounds=20), run=0)
    >>> wrong(watched, Certificate(behavior=watched.behavior))
    (False, False, False)
    """
    R, w = watched.log.rewards, watched.trace.probability / watched.behavior[watched.log.actions]
    t, delta = np.arange(1, len(R) + 1), 1.0 - certificate.confidence
    lower, upper, gain = certificate.grids
    mean, gained = np.cumsum(watched.earned) / t, np.cumsum(watched.gained) / t

    def ever(lambdas: Array, x: Array, means: Array, share: float) -> bool:
        mixtures = log_mixture(log_wealths(lambdas, x), lambdas, t, means)
        return bool((mixtures > -math.log(share)).any())

    return (
        ever(lower, w * R, mean, delta / 2),
        ever(upper, w * (1 - R), 1 - mean, delta / 2),
        ever(gain, (w - 1) * R, gained, delta),
    )
