"""Games in which the referee judges certificates: kind ones, and unkind ones.

A `GameKind` plays a game; its `GameRecord` has what the certificate sees of each round, and the
truth. Some adversaries know the certificate so far, and attack it. Quarantined rows and actions
that were not declared come as `logs.runs.study` hands them to a certificate, and users with several
rows as `logs.readers.units` makes one round of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from understudy import behaviors
from understudy.behaviors import Behavior, Logged, choose
from understudy.certificates import BaselineRounds, Certificate, FixedPolicy
from understudy.certificates.evidence import GAIN
from understudy.certificates.targets import Target, largest_ratios, ratio_of_policy
from understudy.constraints import Array
from understudy.kernels.certificates import KAPPA
from understudy.learners import exp3_ix
from understudy.logs.readers.units import UnitRows
from understudy.simulation import Game, adversaries, play
from understudy.simulation.game import RandomStreams, log_chunks
from understudy.types import Integers, Log

CONFIDENCE = 0.95
Mask = NDArray[np.bool_]
LEARNER, FIXED = "Exp3-IX", "fixed policy"


@dataclass(frozen=True, eq=False)
class GameRecord:
    """A game that was played: the truth, and what the certificate sees of each round.

    The truth are π_t, q_t and the realised rewards r_t, (n, K) each. The certificate knows the
    behavior as `known`; it sees the log, π_t(b_t) and W_t, as `Certificate.advance` takes them. A
    `baseline` has π₀ of every round, (n, K): always the same, or with `most` its largest weight.
    """

    policies: Array
    behavior: Array
    rewards: Array
    known: Behavior
    log: Log
    probabilities: Array
    ratios: Array
    centers: tuple[float, ...] | None = None
    baseline: Array | None = None
    most: float | None = None

    def certificate(self, confidence: float = CONFIDENCE) -> Certificate:
        """The certificate before round 1."""
        against = self.baseline[0] if self.baseline is not None and self.most is None else None
        own: dict[str, Any] = {"against": against, "baseline_ratio": self.most}
        return Certificate(self.known, confidence, centers=self.centers, **own)

    @property
    def baseline_rounds(self) -> BaselineRounds | None:
        """π₀(b_t) and W_t, if there is a baseline."""
        if self.baseline is None:
            return None
        own = self.baseline[np.arange(len(self.log)), self.log.actions]
        return BaselineRounds(own, np.full(len(own), math.inf))

    @property
    def target_rewards(self) -> Array:
        """⟨π_t, r_t⟩ of every round."""
        return np.asarray((self.policies * self.rewards).sum(axis=1))

    @property
    def gains(self) -> Array:
        """⟨π_t − q_t, r_t⟩ of every round, or over the baseline."""
        other = self.behavior if self.baseline is None else self.baseline
        return np.asarray(((self.policies - other) * self.rewards).sum(axis=1))


def record_of(
    policies: ArrayLike,
    behavior: ArrayLike,
    rewards: Array,
    actions: Integers,
    *,
    known: Behavior,
    ratios: ArrayLike,
) -> GameRecord:
    """The record of a game in which the certificate sees all π_t(b_t).

    A vector is the same in all rounds.
    """
    n, K = rewards.shape
    policies, behavior = np.broadcast_to(policies, (n, K)), np.broadcast_to(behavior, (n, K))
    R, pi, q = (every[np.arange(n), actions] for every in (rewards, policies, behavior))
    seen = Log._of(actions, R, q, None), pi, np.broadcast_to(ratios, n)
    return GameRecord(policies, behavior, rewards, known, *seen)


@dataclass(frozen=True)
class GameKind:
    """Games of a kind, of any number of rounds: `play` makes the record of one.

    `length` is a factor of the experiment's rounds.
    """

    name: str
    play: Callable[[int, RandomStreams], GameRecord]
    target: str = FIXED
    length: float = 1.0

    def rounds(self, rounds: int) -> int:
        return max(1, round(self.length * rounds))

    def record(self, rounds: int, seed: int, run: int) -> GameRecord:
        """Play a game; the record is a function of its rounds, the seed and the run."""
        return self.play(self.rounds(rounds), RandomStreams(seed, run))


def coins(rng: Generator, means: ArrayLike, rounds: int) -> Array:
    """Realised rewards with these means, (n, K)."""
    means = np.asarray(means)
    return (rng.random((rounds, means.shape[-1])) < means).astype(float)


# --------------------------------------------------------------------- games of the library's own


def rising_game(rounds: int) -> Game:
    """Ten actions, each played more often than the one before; the second pays .7, others .4."""
    weights, means = np.linspace(1.0, 3.0, 10), np.full(10, 0.4)
    means[1] = 0.7
    return Game(adversaries.stationary(means), weights / weights.sum(), rounds)


def switching_game(rounds: int) -> Game:
    """The paper's game, with ten actions."""
    behavior = behaviors.interpolated(n_actions=10, alpha=0.9)
    return Game(adversaries.switching(n_actions=10, rounds=rounds), behavior, rounds)


def retaliating_game(rounds: int) -> Game:
    """An adversary that punishes the learner's last policy and action."""
    behavior = behaviors.interpolated(n_actions=5, alpha=0.9)
    return Game(adversaries.retaliating(n_actions=5), behavior, rounds)


def rare_game(rounds: int) -> Game:
    """The best action is played once in a thousand rounds."""
    behavior = np.append(np.full(4, 0.999 / 4), 0.001)
    return Game(adversaries.stationary([0.5, 0.4, 0.3, 0.2, 0.9]), behavior, rounds)


def rarest_game(rounds: int) -> Game:
    """Twenty actions are played once in a million rounds each, and pay as the last one does."""
    behavior = np.append(np.full(20, 1e-6), 1.0 - 20e-6)
    return Game(adversaries.stationary(np.full(21, 0.5)), behavior, rounds)


def play_game(
    make: Callable[[int], Game],
    policy: tuple[float, ...] | None,
    rounds: int,
    streams: RandomStreams,
) -> GameRecord:
    """Play a game of the library; without a policy the target is Exp3-IX."""
    game = make(rounds)
    q, learner = game.behavior, exp3_ix(game.behavior, horizon=rounds)
    if isinstance(game.adversary, adversaries.Oblivious):
        (whole,) = log_chunks(game, streams, size=rounds, all_rewards=True)
        actions, rewards = whole.log.actions, whole.rewards
    else:
        every = list(play(game, learner, seed=streams.seed, run=streams.run))
        actions = np.array([one.behavior_action for one in every])
        rewards = np.array([one.rewards for one in every])
    log = Log(actions, rewards[np.arange(rounds), actions])
    target: Target = FixedPolicy(policy) if policy else learner.replay(learner.init(), log)[1]
    policies = policy or learner.policies(learner.init(), log)[1]
    return record_of(policies, q, rewards, actions, known=q, ratios=largest_ratios(target, log, q))


# ------------------------------------------------------------------ nothing to gain, and changes


def play_even(
    rounds: int, streams: RandomStreams, *, centers: tuple[float, ...] | None = None
) -> GameRecord:
    """Two actions with the same rewards, and a policy far from production: no gain in any round."""
    q, policy = np.array([0.8, 0.2]), np.array([0.2, 0.8])
    rewards = np.repeat(coins(streams.observed, [0.5], rounds), 2, axis=1)
    actions = choose(q, streams.behavior.random(rounds))
    record = record_of(policy, q, rewards, actions, known=q, ratios=ratio_of_policy(policy, q))
    return replace(record, centers=centers)


FLOOR = 0.05  # of a production that learns, so that its least propensity can be declared
FIRST_MEANS, LAST_MEANS = np.array([0.2, 0.4, 0.6, 0.5]), np.array([0.7, 0.4, 0.3, 0.5])
PRODUCTION_RATE = 0.05


def play_learning_production(rounds: int, streams: RandomStreams, *, vectors: bool) -> GameRecord:
    """Production learns too, from means that drift; rewards lie between 0 and 1.

    Its propensities of all actions are logged as `vectors`, or those of the actions that it played,
    with the least one declared.
    """
    K, G = len(FIRST_MEANS), np.zeros(len(FIRST_MEANS))
    drift = np.linspace(0.0, 1.0, rounds)[:, np.newaxis]
    means = (1.0 - drift) * FIRST_MEANS + drift * LAST_MEANS
    rewards = means + streams.observed.uniform(-0.2, 0.2, (rounds, K))
    behavior, actions = np.empty((rounds, K)), np.empty(rounds, dtype=np.int64)
    uniforms = streams.behavior.random(rounds)
    for t in range(rounds):
        weights = np.exp(PRODUCTION_RATE * (G - G.max()))
        behavior[t] = (1.0 - K * FLOOR) * weights / weights.sum() + FLOOR
        actions[t] = b = min(K - 1, int((np.cumsum(behavior[t]) <= uniforms[t]).sum()))
        G[b] += rewards[t, b] / behavior[t, b]
    each = np.arange(rounds)
    columns = actions, rewards[each, actions], behavior[each, actions]
    learner = exp3_ix(Logged(K), horizon=rounds)
    _, trace = learner.replay(learner.init(), Log(*columns))
    policies = learner.policies(learner.init(), Log(*columns))[1]
    log = Log(*columns, propensity_vectors=behavior) if vectors else Log(*columns)
    known = Logged(K) if vectors else Logged(K, least_propensity=FLOOR)
    return record_of(
        policies, behavior, rewards, actions, known=known, ratios=largest_ratios(trace, log, known)
    )


# ----------------------------------------------------------- adversaries that know the certificate


class Past(NamedTuple):
    """What an adversary knows before a round: the certificate, and Σ (w R − ⟨π, r⟩)."""

    certificate: Certificate
    error: float
    rng: Generator

    @property
    def wealth(self) -> float:
        """The wealth of the gain since round 1, as a share of the threshold for a promotion."""
        bets = self.certificate.bets
        S = self.certificate.evidence.part(bets, GAIN)
        return float(np.exp(S).mean() / bets.thresholds[0])


Choice = tuple[Array, Array, Array]  # π_t, q_t, r_t


def play_adaptively(
    choice: Callable[[Past], Choice], rounds: int, streams: RandomStreams
) -> GameRecord:
    """Play a game in which π_t, q_t and r_t are chosen from the past."""
    past = Past(Certificate(behavior=np.full(2, 0.5)), 0.0, streams.unobserved)
    policies, behavior, rewards = [], [], []
    actions: list[int] = []
    for uniform in streams.behavior.random(rounds):
        policy, q, r = choice(past)
        b = int(choose(q, np.array([uniform]))[0])
        if not actions:
            past = past._replace(certificate=Certificate(Logged(len(q)), CONFIDENCE))
        row = Log._of(np.array([b]), r[b : b + 1], q[b : b + 1], None)
        certificate = past.certificate.advance(row, policy[b : b + 1], float((policy / q).max()))
        error = past.error + policy[b] / q[b] * r[b] - policy @ r
        past = Past(certificate, float(error), past.rng)
        policies.append(policy)
        behavior.append(q)
        rewards.append(r)
        actions.append(b)
    pi, q = np.array(policies), np.array(behavior)
    known, ratios = past.certificate.behavior, (pi / q).max(axis=1)
    assert known is not None
    return record_of(pi, q, np.array(rewards), np.array(actions), known=known, ratios=ratios)


NEARLY = 0.5  # of the wealth that promotes


def better_until_noticed(past: Past) -> Choice:
    """The target earns more until it is nearly promoted, and less while it is."""
    means = [0.3, 0.7] if past.wealth < NEARLY else [0.7, 0.3]
    (r,) = coins(past.rng, means, 1)
    return np.array([0.1, 0.9]), np.array([0.5, 0.5]), r


BOLD_BEHAVIOR = np.array([0.2, 0.8])
BOLD_POLICIES = np.linspace(0.3, 1.0, 15)  # of the rare action


def bold(past: Past) -> Choice:
    """Both actions pay the same; the policy stakes just so much that a win promotes it, or all.

    Where both pay nothing, it plays as production does.
    """
    q, evidence, bets = BOLD_BEHAVIOR, past.certificate.evidence, past.certificate.bets
    if not coins(past.rng, [0.5], 1).item():
        return q, q, np.zeros(2)
    S = evidence.log_wealths()[bets.place(GAIN)]
    weights, lambdas = bets.prior * np.exp(S), np.tile(bets.gains, bets.rows)
    w = BOLD_POLICIES[:, np.newaxis] / q[0]
    rows, earned, _ = evidence.usable.tolist()  # type: ignore[union-attr] # of rules 2
    center = np.minimum((0.5 + earned) / (rows + 1.0), KAPPA / (lambdas * (w - 1.0)))
    center[:, : len(bets.gains)] = 0.0  # of the bets without a center
    won = ((1.0 + lambdas * (w - 1.0) * (1.0 - center)) @ weights) >= bets.thresholds[0]
    stake = BOLD_POLICIES[np.argmax(won)] if won.any() else 1.0
    return np.array([stake, 1.0 - stake]), q, np.ones(2)


def flipping(past: Past) -> Choice:
    """The rewards flip with the sign of the error of the inverse propensity score."""
    r = np.array([1.0, 0.0] if past.error > 0.0 else [0.0, 1.0])
    return np.array([0.3, 0.7]), np.array([0.5, 0.5]), r


# ----------------------------------------------- rows that cannot be used, and undeclared actions


def play_undeclared(rounds: int, streams: RandomStreams) -> GameRecord:
    """A policy over the actions that occur in the log, of a large catalogue; rewards fall.

    It could not be played. The truth is about the policy that could: uniform over the actions seen
    before; of an action's first row, where it has w = 0, no more is claimed. No center is valid.
    """
    K = max(2, rounds // 2)
    q = np.full(K, 1.0 / K)
    actions = choose(q, streams.behavior.random(rounds))
    level = np.where(np.arange(rounds) < rounds // 10, 0.95, 0.05)[:, np.newaxis]
    rewards = coins(streams.observed, level * np.linspace(0.9, 1.0, K), rounds)
    _, first = np.unique(actions, return_index=True)
    seen = np.zeros((rounds, K), dtype=bool)
    for t in first:
        seen[t + 1 :, actions[t]] = True
    policies = np.where(seen, 1.0, 0.0)
    policies[0] = 1.0
    policies /= policies.sum(axis=1, keepdims=True)
    record = record_of(
        policies, q, rewards, actions, known=Logged(K, least_propensity=1.0 / K), ratios=math.inf
    )
    probabilities = np.full(rounds, 1.0 / len(first))
    probabilities[first] = 0.0
    return replace(record, probabilities=probabilities)


def with_lost_rows(record: GameRecord, no_reward: Mask, no_ratio: Mask) -> GameRecord:
    """The record with nan where a row does not tell its reward, or its w."""
    R = np.where(no_reward, np.nan, record.log.rewards)
    log = Log._of(record.log.actions, R, record.log.propensities, None)
    probabilities = np.where(no_ratio, np.nan, record.probabilities)
    return replace(record, log=log, probabilities=probabilities)


# Of the rows that speak against the target: without them, most logs would show a gain.
LOSS = 0.3
WITHOUT_REWARD, WITHOUT_ACTION, WITHOUT_PROPENSITY, WITHOUT_ALL = range(4)


def play_losses(rounds: int, streams: RandomStreams, *, logged: bool) -> GameRecord:
    """Rows that speak against the target are lost, in four ways. There is no gain."""
    q, policy = np.array([0.5, 0.5]), np.array([0.1, 0.9])
    rewards = np.repeat(coins(streams.observed, [0.5], rounds), 2, axis=1)
    actions = choose(q, streams.behavior.random(rounds))
    known = Logged(2, least_propensity=0.4) if logged else q
    ratio = ratio_of_policy(policy, known)
    record = record_of(policy, q, rewards, actions, known=known, ratios=ratio)
    against = rewards[:, 0] == 1 - actions
    lost = against & (streams.unobserved.random(rounds) < LOSS)
    what = streams.unobserved.integers(4, size=rounds)
    no_reward = lost & np.isin(what, (WITHOUT_REWARD, WITHOUT_ALL))
    return with_lost_rows(record, no_reward, lost & (what != WITHOUT_REWARD))


CERTAIN, LEAST = 0.15, 0.4  # the share of rows without a choice, and the declared least propensity


def play_certain_rows(rounds: int, streams: RandomStreams) -> GameRecord:
    """In some rows production has no choice, and takes the better action; in others the worse one.

    Their propensity of 1 contradicts the declared least one, so they are quarantined; their rewards
    are known. The target gains in the other rows a little less than it loses in these.
    """
    certain = streams.unobserved.random(rounds) < CERTAIN
    behavior = np.where(certain[:, np.newaxis], [1.0, 0.0], [1.0 - LEAST, LEAST])
    means = np.where(certain[:, np.newaxis], [1.0, 0.0], [0.1, 0.38])
    rewards, policy = coins(streams.observed, means, rounds), np.array([0.0, 1.0])
    actions = choose(behavior, streams.behavior.random(rounds))
    known = Logged(2, least_propensity=LEAST)
    ratio = ratio_of_policy(policy, known)
    record = record_of(policy, behavior, rewards, actions, known=known, ratios=ratio)
    return with_lost_rows(record, np.zeros(rounds, dtype=bool), certain)


LATER_ROWS = 4  # of a user, on average, after the first one


def play_sticky_users(rounds: int, streams: RandomStreams) -> GameRecord:
    """Production draws an action once for each user, who has rows here and there in the log.

    Users have mean rewards of their own, whatever the action is: there is no gain.
    """
    user = np.append(np.arange(rounds), streams.observed.integers(rounds, size=LATER_ROWS * rounds))
    user = streams.observed.permutation(user)
    q, policy = np.array([0.8, 0.2]), np.array([0.2, 0.8])
    drawn = choose(q, streams.behavior.random(rounds))
    means = streams.observed.random(rounds)
    paid = (streams.observed.random(len(user)) < means[user]).astype(np.float64)
    rows = pl.DataFrame({"row": user, "unit": user, "action": drawn[user], "reward": paid})
    collected = UnitRows.collect([("log", rows)], column="user")
    units = pl.concat(frame for _, frame in collected.batches())
    order = pl.Series(user).unique(maintain_order=True)
    truth = (np.bincount(user, paid) / np.bincount(user))[order]
    rewards, actions = np.repeat(truth[:, np.newaxis], 2, axis=1), units["action"].to_numpy()
    record = record_of(policy, q, rewards, actions, known=q, ratios=ratio_of_policy(policy, q))
    log = replace(record.log, rewards=units["reward"].to_numpy())
    return replace(record, log=log)


KINDS = (
    GameKind("stationary", partial(play_game, rising_game, None), LEARNER),
    GameKind("switching", partial(play_game, switching_game, None), LEARNER),
    GameKind("retaliating", partial(play_game, retaliating_game, None), LEARNER, 0.25),
    GameKind("propensities 1e-3", partial(play_game, rare_game, None), LEARNER),
    GameKind(
        "propensities 1e-3, fixed", partial(play_game, rare_game, (0.25, 0.25, 0.0, 0.0, 0.5))
    ),
    GameKind("propensities 1e-6", partial(play_game, rarest_game, (*[0.025] * 20, 0.5))),
    GameKind("no gain", play_even),
    GameKind("no gain, order-free", partial(play_even, centers=(0.25, 0.5, 0.75, 1.0))),
    GameKind("bold play", partial(play_adaptively, bold), "adaptive", 0.25),
    GameKind("better until noticed", partial(play_adaptively, better_until_noticed), length=0.25),
    GameKind("flipping rewards", partial(play_adaptively, flipping), length=0.25),
    GameKind(
        "production learns, floor", partial(play_learning_production, vectors=False), LEARNER, 0.5
    ),
    GameKind(
        "production learns, vectors", partial(play_learning_production, vectors=True), LEARNER, 0.5
    ),
    GameKind("undeclared actions", play_undeclared, length=0.25),
    GameKind("no choice in some rows", play_certain_rows),
    GameKind("quarantined rows", partial(play_losses, logged=False)),
    GameKind("quarantined rows, floor", partial(play_losses, logged=True)),
    GameKind("sticky users, as units", play_sticky_users),
)
