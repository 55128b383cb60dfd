"""Games whose certificates can be compared with the truth, because the referee saw all rewards."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from understudy import behaviors
from understudy.certificates import Certificate
from understudy.constraints import Array
from understudy.experiments.experiment import ExperimentOptions
from understudy.learners import exp3_ix
from understudy.simulation import adversaries
from understudy.simulation.engine import log_chunks
from understudy.simulation.game import Game, play
from understudy.simulation.random_streams import RandomStreams
from understudy.types import Log, Trace

# Games that show when a promotion is justified are longer, so that the hard one is promoted too;
# there are fewer of them, as each takes ten times as long.
LONGER, FEWER = 10, 0.4
SHORTER = 0.25  # for games against an adaptive adversary: they are played in Python
EXP3_IX = "Exp3-IX"


@dataclass(frozen=True)
class GameKind:
    """A game of any number of rounds, and its target: Exp3-IX, or a fixed policy.

    `length` and `share` are factors of the experiment's rounds and runs.
    """

    name: str
    game: Callable[[int], Game]
    policy: tuple[float, ...] | None = None
    length: float = 1.0
    share: float = 1.0

    @property
    def target(self) -> str:
        return EXP3_IX if self.policy is None else "fixed policy"

    def rounds(self, options: ExperimentOptions) -> int:
        return max(1, round(self.length * options.rounds))

    def games(self, options: ExperimentOptions) -> int:
        return max(1, round(self.share * options.runs))


@dataclass(frozen=True, eq=False)
class GameRecord:
    """A game that was played: its log, every π_t and all realised rewards, (n, K)."""

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
    """Ten actions, each played more often than the one before; the second pays .7, others .4."""
    weights, means = np.linspace(1.0, 3.0, 10), np.full(10, 0.4)
    means[1] = 0.7
    return Game(adversaries.stationary(means), weights / weights.sum(), rounds)


def settled(rounds: int) -> Game:
    """Production already plays the best of ten actions, four times in five."""
    behavior, means = np.append(np.full(9, 0.2 / 9), 0.8), np.append(np.full(9, 0.2), 0.6)
    return Game(adversaries.stationary(means), behavior, rounds)


def switching(rounds: int) -> Game:
    """The paper's game, with ten actions."""
    behavior = behaviors.interpolated(n_actions=10, alpha=0.9)
    return Game(adversaries.switching(n_actions=10, rounds=rounds), behavior, rounds)


def retaliating(rounds: int) -> Game:
    """An adversary that punishes the learner's last policy and action."""
    behavior = behaviors.interpolated(n_actions=5, alpha=0.9)
    return Game(adversaries.retaliating(n_actions=5), behavior, rounds)


def rare(rounds: int) -> Game:
    """The best action is played once in a thousand rounds."""
    behavior = np.append(np.full(4, 0.999 / 4), 0.001)
    return Game(adversaries.stationary([0.5, 0.4, 0.3, 0.2, 0.9]), behavior, rounds)


KINDS = (
    GameKind("stationary", rising),
    GameKind("switching", switching),
    GameKind("adaptive adversary", retaliating, length=SHORTER),
    GameKind("tiny propensities", rare),
    GameKind("tiny, fixed policy", rare, policy=(0.25, 0.25, 0.0, 0.0, 0.5)),
    GameKind("promotion, easy", rising, length=LONGER, share=FEWER),
    GameKind("promotion, hard", settled, length=LONGER, share=FEWER),
)


def record_game(kind: GameKind, options: ExperimentOptions, run: int) -> GameRecord:
    """Play a game of this kind; the record is a function of the seed and the run."""
    game = kind.game(kind.rounds(options))
    learner = exp3_ix(game.behavior, horizon=game.rounds)
    if not isinstance(game.adversary, adversaries.Oblivious):
        played = list(play(game, learner, seed=options.seed, run=run))
        rewards = np.array([one.rewards for one in played])
        actions = np.array([one.behavior_action for one in played])
        log = Log(actions, rewards[np.arange(len(actions)), actions])
        return GameRecord(log, np.array([one.policy for one in played]), rewards, game.behavior)
    streams = RandomStreams(options.seed, run)
    (whole,) = log_chunks(game, streams, size=game.rounds, all_rewards=True)
    log = whole.log.visible(propensities=False, features=False)
    if kind.policy is None:
        policies = learner.policies(learner.init(), log)[1]
    else:
        policies = np.broadcast_to(np.array(kind.policy), whole.rewards.shape)
    return GameRecord(log, policies, whole.rewards, game.behavior)


def ever_wrong(record: GameRecord, certificate: Certificate) -> tuple[bool, bool, bool]:
    """Whether the lower bound, the upper bound and the gain were wrong after any round.

    A bound m exceeds the true mean μ̄ exactly where the mixture at μ̄ exceeds 1/δ, so no root is
    computed.

    >>> record = record_game(KINDS[0], ExperimentOptions(runs=1, rounds=20), run=0)
    >>> ever_wrong(record, Certificate(behavior=record.behavior))
    (False, False, False)
    """
    R, w = record.log.rewards, record.trace.probability / record.behavior[record.log.actions]
    t, delta = np.arange(1, len(R) + 1), 1.0 - certificate.confidence
    lower, upper, gain = certificate.grids
    mean, gained = np.cumsum(record.earned) / t, np.cumsum(record.gained) / t

    def ever(lambdas: Array, x: Array, means: Array, share: float) -> bool:
        S = np.cumsum(np.log1p(np.outer(x, lambdas)), axis=0)
        fair = t[:, np.newaxis] * np.log1p(lambdas * means[:, np.newaxis])
        mixtures = np.logaddexp.reduce(S - fair, axis=-1) - np.log(len(lambdas))
        return bool((mixtures > -math.log(share)).any())

    return (
        ever(lower, w * R, mean, delta / 2),
        ever(upper, w * (1 - R), 1 - mean, delta / 2),
        ever(gain, (w - 1) * R, gained, delta),
    )
