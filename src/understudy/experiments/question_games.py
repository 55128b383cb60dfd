"""Games about the questions that users ask: another baseline, guardrails, segments, candidates.

Each kind plays a game as those of `certificate_games` do. Its record holds records of these, one
for each metric, candidate or baseline; `question_validity` judges them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from understudy.behaviors import Logged, choose
from understudy.certificates import Certificate, Guardrail, JointCertificate, SegmentCertificates
from understudy.certificates.evidence import GAIN
from understudy.certificates.evidence import LOSS as LOSS_PART
from understudy.certificates.targets import ratio_of_policy
from understudy.constraints import Array
from understudy.experiments.certificate_games import (
    CONFIDENCE,
    LOSS,
    GameKind,
    GameRecord,
    coins,
    record_of,
    with_lost_rows,
)
from understudy.simulation.game import RandomStreams
from understudy.types import Integers, Log

BLOCK = 10  # rounds between two looks of an adversary: it sees nearly all that happens
NEARLY = 0.3  # of the wealth that decides
HALF = np.array([0.5, 0.5])


@dataclass(frozen=True, eq=False)
class DifferenceRecord:
    """A game of which two certificates are subtracted; `whole` has the baseline.

    With `counted` propensities these are not seen, and the behavior is the same in all rounds.
    """

    whole: GameRecord
    counted: bool


@dataclass(frozen=True, eq=False)
class JointRecord:
    """A game with a goal, the first of the `metrics`, and guardrails with `margins`."""

    metrics: tuple[GameRecord, ...]
    margins: tuple[float, ...]

    def begin(self, confidence: float = CONFIDENCE) -> JointCertificate:
        """The certificate before round 1."""
        return begin_joint(self.metrics[0].certificate(confidence), self.margins)


@dataclass(frozen=True, eq=False)
class SegmentRecord:
    """A game whose rounds belong to segments 0, …, m − 1."""

    whole: GameRecord
    codes: Integers
    m: int

    def begin(self, confidence: float = CONFIDENCE) -> SegmentCertificates:
        """The certificates before round 1."""
        return begin_segments(self.whole.certificate(confidence), self.m)


@dataclass(frozen=True, eq=False)
class CandidateRecord:
    """Candidates that an earlier log chose, judged by one later log."""

    candidates: tuple[GameRecord, ...]


def begin_joint(goal: Certificate, margins: tuple[float, ...]) -> JointCertificate:
    metrics = [Guardrail(f"metric {k}", 0.0, 1.0, "higher", m) for k, m in enumerate(margins, 1)]
    return JointCertificate.begin(goal, metrics)


def begin_segments(whole: Certificate, m: int) -> SegmentCertificates:
    return SegmentCertificates.begin(whole, tuple(f"segment {s}" for s in range(1, m + 1)))


def drawn(behavior: Array, streams: RandomStreams) -> Integers:
    """An action of each round, from the behavior of each, (n, K)."""
    uniforms = streams.behavior.random(len(behavior))[:, np.newaxis]
    below = np.cumsum(behavior, axis=1) <= uniforms
    return np.asarray(np.minimum(below.sum(axis=1), behavior.shape[1] - 1))


# ------------------------------------------------------------------------- another baseline


def play_over_action(rounds: int, streams: RandomStreams, *, lost: bool = False) -> GameRecord:
    """A rare action over a less rare one; both pay the same, and production's first one more.

    Rows that speak against the target are `lost` in part.
    """
    q, policy, baseline = np.array([0.6, 0.3, 0.1]), np.eye(3)[2], np.eye(3)[1]
    paid = coins(streams.observed, [0.5, 0.8], rounds)
    rewards = paid[:, [1, 0, 0]]
    actions = choose(q, streams.behavior.random(rounds))
    record = record_of(policy, q, rewards, actions, known=q, ratios=ratio_of_policy(policy, q))
    record = replace(record, baseline=np.broadcast_to(baseline, rewards.shape))
    if not lost:
        return record
    chance = streams.unobserved.random((2, rounds)) < LOSS
    against = np.where(actions == 1, rewards[:, 1] == 1.0, rewards[:, 2] == 0.0)
    return with_lost_rows(record, against & chance[0], against & chance[1])


def play_drift(rounds: int, streams: RandomStreams) -> GameRecord:
    """The gain of one action over another falls from .3 to −.3."""
    q, rise = np.array([0.5, 0.3, 0.2]), np.linspace(0.15, -0.15, rounds)
    means = np.stack([np.full(rounds, 0.5), 0.5 + rise, 0.5 - rise], axis=1)
    rewards, policy = coins(streams.observed, means, rounds), np.eye(3)[1]
    actions = choose(q, streams.behavior.random(rounds))
    record = record_of(policy, q, rewards, actions, known=q, ratios=ratio_of_policy(policy, q))
    return replace(record, baseline=np.broadcast_to(np.eye(3)[2], rewards.shape))


LEAST = 0.2  # the declared least propensity


def play_over_rule(rounds: int, streams: RandomStreams) -> GameRecord:
    """The target does what a rule does not, which is another action in every context: no gain.

    The propensities are others in each round; the least one is declared.
    """
    contexts = streams.contexts.integers(2, size=rounds)
    one = streams.unobserved.uniform(LEAST, 1.0 - LEAST, rounds)
    behavior = np.stack([one, 1.0 - one], axis=1)
    baseline, policies = np.eye(2)[contexts], 0.1 + 0.8 * np.eye(2)[1 - contexts]
    rewards = np.repeat(coins(streams.observed, [0.5], rounds), 2, axis=1)
    record = record_of(
        policies,
        behavior,
        rewards,
        drawn(behavior, streams),
        known=Logged(2, least_propensity=LEAST),
        ratios=policies.max(axis=1) / LEAST,
    )
    return replace(record, baseline=baseline, most=1.0 / LEAST)


def play_apart(
    rounds: int, streams: RandomStreams, *, counted: bool = False, ineligible: bool = False
) -> DifferenceRecord:
    """No largest weight of the baseline is known, or no propensity, or an action is ineligible.

    Of its two actions the target plays the second, and the baseline the first; both pay the same,
    and less and less. Where the second is ineligible, weights are too small on average.
    """
    one = streams.unobserved.uniform(0.1, 0.9, rounds)
    if counted:
        one = np.full(rounds, 0.3)
    closed = (streams.contexts.random(rounds) < HALF[0]) & ineligible
    one = np.where(closed, 1.0, one)
    behavior, level = np.stack([one, 1.0 - one], axis=1), np.linspace(0.9, 0.1, rounds)
    rewards = np.repeat(coins(streams.observed, level[:, np.newaxis], rounds), 2, axis=1)
    known_vectors = 1.0 / np.maximum(1.0 - one, 0.05)
    record = record_of(
        np.eye(2)[1],
        behavior,
        rewards,
        drawn(behavior, streams),
        known=Logged(2),
        ratios=np.where(closed, math.inf, known_vectors) if ineligible else math.inf,
    )
    baseline = np.broadcast_to(np.eye(2)[0], rewards.shape)
    return DifferenceRecord(replace(record, baseline=baseline), counted)


# ------------------------------------------------------------------------------ guardrails

TARGET = np.array([0.2, 0.8])
MARGIN = 0.05
AT_MARGIN = MARGIN / (TARGET[1] - HALF[1])  # the difference of the actions that loses this much


def metrics_of(policy: Array, rewards: list[Array], actions: Integers) -> tuple[GameRecord, ...]:
    """The records of a game with these rewards of each metric, under a fair coin."""
    ratio = ratio_of_policy(policy, HALF)
    return tuple(record_of(policy, HALF, r, actions, known=HALF, ratios=ratio) for r in rewards)


def play_at_margin(
    rounds: int, streams: RandomStreams, *, m: int, missing: bool = False
) -> JointRecord:
    """The goal gains, and in every round the first guardrail is at its margin: never to promote.

    Its values go with those of the goal, which makes the errors of both alike. The other guardrails
    are as good with either action. Where values are `missing`, they speak against the target.
    """
    goal = coins(streams.observed, [0.3, 0.7], rounds)
    level = 0.2 + 0.6 * goal.mean(axis=1)
    first = np.stack([level + AT_MARGIN / 2.0, level - AT_MARGIN / 2.0], axis=1)
    others = [np.repeat(coins(streams.observed, [0.5], rounds), 2, axis=1) for _ in range(1, m)]
    actions = choose(HALF, streams.behavior.random(rounds))
    metrics = metrics_of(TARGET, [goal, first, *others], actions)
    if missing:
        gone = (actions == 1) & (level < HALF[0]) & (streams.unobserved.random(rounds) < LOSS)
        lost = with_lost_rows(metrics[1], gone, np.zeros(rounds, dtype=bool))
        metrics = (metrics[0], lost, *metrics[2:])
    return JointRecord(metrics, (MARGIN,) * m)


def play_no_goal(rounds: int, streams: RandomStreams, *, m: int) -> JointRecord:
    """The goal has no gain in any round; all guardrails become better."""
    goal = np.repeat(coins(streams.observed, [0.5], rounds), 2, axis=1)
    others = [coins(streams.observed, [0.4, 0.6], rounds) for _ in range(m)]
    actions = choose(HALF, streams.behavior.random(rounds))
    return JointRecord(metrics_of(TARGET, [goal, *others], actions), (MARGIN,) * m)


def play_turns(rounds: int, streams: RandomStreams, *, m: int) -> JointRecord:
    """An adversary that knows the certificate: goal and guardrails are good in turns.

    The goal gains, and the guardrails lose, until the goal is shown in some window; then the other
    way round, until it is not.
    """
    margins, policy = (MARGIN,) * m, TARGET
    ratio, goal_gains = ratio_of_policy(policy, HALF), True
    certificate = begin_joint(Certificate(HALF, CONFIDENCE), margins)
    actions = choose(HALF, streams.behavior.random(rounds))
    every: list[list[Array]] = [[] for _ in range(m + 1)]
    for first in range(0, rounds, BLOCK):
        b = actions[first : first + BLOCK]
        for k, rows in enumerate(every):
            means = [0.3, 0.7] if goal_gains == (k == 0) else [0.7, 0.3]
            rows.append(coins(streams.observed, means, len(b)))
        each = np.arange(len(b))
        R, *values = (rows[-1][each, b] for rows in every)
        log = Log._of(b, R, HALF[b], None)
        certificate = certificate.advance(log, policy[b], ratio, np.stack(values, axis=1))
        goal = certificate.goal
        goal_gains = not any(goal.shows_gain(0.0, j) for j in range(goal.window_count + 1))
    rewards = [np.concatenate(rows) for rows in every]
    return JointRecord(metrics_of(policy, rewards, actions), margins)


# -------------------------------------------------------------------------------- segments


def play_even_segments(rounds: int, streams: RandomStreams, *, m: int) -> SegmentRecord:
    """Segments of different sizes and levels, none of them with a gain; a rare action is played."""
    q, policy = np.array([0.8, 0.2]), np.array([0.2, 0.8])
    shares = 1.0 / np.arange(1.0, m + 1.0)
    codes = choose(shares / shares.sum(), streams.contexts.random(rounds))
    level = np.linspace(0.2, 0.8, m)[codes][:, np.newaxis]
    rewards = np.repeat(coins(streams.observed, level, rounds), 2, axis=1)
    actions = choose(q, streams.behavior.random(rounds))
    record = record_of(policy, q, rewards, actions, known=q, ratios=ratio_of_policy(policy, q))
    return SegmentRecord(record, codes, m)


def play_moving_segments(rounds: int, streams: RandomStreams, *, m: int) -> SegmentRecord:
    """An adversary that knows the certificates: each segment turns before it is decided."""
    codes, ratio = streams.contexts.integers(m, size=rounds), ratio_of_policy(TARGET, HALF)
    certificates = begin_segments(Certificate(HALF, CONFIDENCE), m)
    actions, gains = choose(HALF, streams.behavior.random(rounds)), np.arange(m) % 2 == 0
    every = []
    for first in range(0, rounds, BLOCK):
        part = slice(first, first + BLOCK)
        b, own = actions[part], codes[part]
        means = np.where(gains[own][:, np.newaxis], [0.3, 0.7], [0.7, 0.3])
        r = coins(streams.observed, means, len(b))
        every.append(r)
        log = Log._of(b, r[np.arange(len(b)), b], HALF[b], None)
        certificates = certificates.advance(log, TARGET[b], ratio, own)
        for s, one in enumerate(certificates.certificates):
            assert isinstance(one, Certificate)
            bets = one.bets
            shares = [
                float(np.exp(one.evidence.part(bets, part)).mean() / bets.thresholds[part - GAIN])
                for part in (GAIN, LOSS_PART)
            ]
            if max(shares) > NEARLY:
                gains[s] = shares[0] < shares[1]
    rewards = np.concatenate(every)
    record = record_of(TARGET, HALF, rewards, actions, known=HALF, ratios=ratio)
    return SegmentRecord(record, codes, m)


# --------------------------------------------- candidates, and rows that are missing at random

CANDIDATES, DRAWN = 5, 200


def play_candidates(rounds: int, streams: RandomStreams) -> CandidateRecord:
    """Of many policies an earlier log chooses those with the best estimates; none has a gain."""
    K = 10
    q = np.linspace(1.0, 3.0, K) / np.linspace(1.0, 3.0, K).sum()
    policies = streams.unobserved.dirichlet(np.full(K, 0.3), DRAWN)
    actions = choose(q, streams.behavior.random(2 * rounds))
    rewards = np.repeat(coins(streams.observed, [0.5], 2 * rounds), K, axis=1)
    first, later = actions[:rounds], actions[rounds:]
    estimates = (policies[:, first] / q[first]) @ rewards[:rounds, 0]
    best = policies[np.argsort(estimates)[-CANDIDATES:]]
    records = [
        record_of(one, q, rewards[rounds:], later, known=q, ratios=ratio_of_policy(one, q))
        for one in best
    ]
    return CandidateRecord(tuple(records))


def play_missing_at_random(rounds: int, streams: RandomStreams) -> GameRecord:
    """Rows are lost before an action is drawn, more of them later, and more where rewards are low.

    The rows that are left are certified; there is no gain in them.
    """
    q, policy = np.array([0.8, 0.2]), np.array([0.2, 0.8])
    rewards = np.repeat(coins(streams.observed, [0.5], 2 * rounds), 2, axis=1)
    chance = np.linspace(0.1, 0.6, 2 * rounds) * (1.3 - rewards[:, 0])
    left = np.flatnonzero(streams.unobserved.random(2 * rounds) >= chance)[:rounds]
    actions = choose(q, streams.behavior.random(2 * rounds))
    return record_of(
        policy, q, rewards[left], actions[left], known=q, ratios=ratio_of_policy(policy, q)
    )


def kind(name: str, play: Callable[..., object], length: float = 0.5, **own: object) -> GameKind:
    """A kind of games about questions; most have half of the experiment's rounds."""
    return GameKind(name, partial(play, **own), length=length)  # type: ignore[arg-type] # any record


QUESTIONS = (
    kind("over an action", play_over_action),
    kind("over an action, lost rows", play_over_action, lost=True),
    kind("over an action, drift", play_drift),
    kind("over a rule", play_over_rule),
    kind("two certificates", play_apart),
    kind("two certificates, counted", play_apart, counted=True),
    kind("two certificates, ineligible", play_apart, ineligible=True),
    kind("1 guardrail at its margin", play_at_margin, m=1),
    kind("2 guardrails, one at its margin", play_at_margin, m=2),
    kind("5 guardrails, one at its margin", play_at_margin, m=5),
    kind("2 guardrails, missing when bad", play_at_margin, m=2, missing=True),
    kind("3 guardrails, no gain", play_no_goal, m=3),
    kind("1 guardrail, in turns", play_turns, m=1),
    kind("4 guardrails, in turns", play_turns, m=4),
    kind("2 segments, no gain", play_even_segments, m=2),
    kind("20 segments, no gain", play_even_segments, m=20),
    kind("2 segments, gains move", play_moving_segments, m=2),
    kind("12 segments, gains move", play_moving_segments, m=12),
    kind("5 candidates of 200", play_candidates),
    kind("missing at random", play_missing_at_random),
)
