"""Decisions about policies against production, as data: what a log decides, and what is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np

from understudy.certificates import Certificate
from understudy.constraints import Array
from understudy.logs.evaluation.diagnostics import (
    Calibration,
    RejectedShare,
    SampleSize,
    exploration_for,
    rows_for,
    second_moment,
)
from understudy.logs.schema import RewardScale
from understudy.logs.statistics import ActionStatistics

VerdictKind = Literal["promote", "not yet", "cannot tell", "worse", "coverage"]
USUAL_GAIN = 0.05  # a row: what a log should be able to show if the policy seems to have no gain
HIDDEN = 0.001  # the share of its plays that a policy may make where the log shows nothing
NEAR = 10  # times the rows: a gain that needs more is not within reach of this log
THREE = 3.0  # standard errors
NOTICEABLE = 1e-6  # a gain a row: less may be rounding
UNIT = RewardScale()


class PolicyDecision(StrEnum):
    """What a log decides about a policy, against production."""

    BETTER = "better"
    WORSE = "worse"
    UNKNOWN = "unknown"


class Obstacle(StrEnum):
    """Why no number of rows like these would decide."""

    MOSTLY_REJECTED = "mostly rejected"
    BEHAVIOR_CHANGED = "behavior changed"
    UNKNOWN_ACTIONS = "unknown actions"
    CONTRADICTORY_BOUNDS = "contradictory bounds"
    WRONG_PROPENSITIES = "wrong propensities"
    BEHAVIOR_ESTIMATED = "behavior estimated"
    NO_ORDER = "no order"
    NO_PROPENSITIES_WITH_ELIGIBLE_SETS = "no propensities with eligible sets"
    NO_PROPENSITIES_WITH_CONTEXTS = "no propensities with contexts"


@dataclass(frozen=True)
class Overlap:
    """How well a log covers a policy.

    `coverage_ratio` is C(π) = Σ π(a) C(a), None where the policy depends on the row;
    `effective_sample_size` how many plays of its own would say as much; `estimate` its
    self-normalised mean reward, nan if it plays nothing that is logged; `hidden` the share of its
    plays that the log does not show.
    """

    coverage_ratio: float | None
    effective_sample_size: float
    estimate: float
    hidden: float


@dataclass(frozen=True, eq=False)
class JudgeContext:
    """What the verdicts about all policies of a log have in common.

    Nothing is decided if there is an `obstacle`, and nothing with propensities that the
    `calibration` calls wrong: too small ones would make a policy look better than it is. Where the
    behavior was `estimated`, no gain is certified. `gain` is the gain a row that a log should be
    able to show: left out, the one that a policy seems to have, or else 0.05, or production's mean
    reward if that is less, or what a policy that differs so little from production can gain at
    most.
    """

    calibration: Calibration
    obstacle: Obstacle | None = None
    estimated: bool = False
    gain: float | None = None
    confidence: float = 0.95


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a log decides about one policy, with the numbers that words are made of.

    An unknown decision has either an `obstacle`, or the `sample_size` that would show a gain, the
    estimated one if `gain_is_estimated`. It is `near` if the policy seems to have a gain, and not
    many times as many rows would show it. Some of all `rows` were `rejected`; in the others
    production `earned` a total. `hidden` is the share of the policy's plays that the log does not
    show, 0 if it is negligible, and `plays_unseen` whether it plays actions that were never logged.
    The decision holds with the `confidence`, also about a policy that was chosen out of several,
    whose certificate has a higher one.
    """

    name: str
    decision: PolicyDecision
    obstacle: Obstacle | None
    overlap: Overlap
    hidden: float
    sample_size: SampleSize | None
    near: bool
    gain_is_estimated: bool
    plays_unseen: bool
    certificate: Certificate | None
    confidence: float
    rows: int
    rejected: int
    earned: float

    @property
    def sound(self) -> bool:
        """Whether nothing speaks against the certificate."""
        return self.obstacle in (None, Obstacle.BEHAVIOR_ESTIMATED)

    @property
    def kind(self) -> VerdictKind:
        """'promote', 'worse', 'not yet' or 'cannot tell'."""
        if self.decision is PolicyDecision.UNKNOWN:
            return "not yet" if self.near else "cannot tell"
        return "promote" if self.decision is PolicyDecision.BETTER else "worse"

    @property
    def production(self) -> float:
        """Production's mean reward in the rows that could be read."""
        return self.earned / max(self.rows - self.rejected, 1)

    @property
    def estimated_gain(self) -> float:
        """The estimated gain a row over production; nan if the log shows none of its plays."""
        return self.overlap.estimate - self.production


def judge_policy(
    name: str,
    policy: Array,
    tally: ActionStatistics,
    context: JudgeContext,
    certificate: Certificate | None = None,
) -> Verdict:
    """The verdict about a fixed policy, from the sums of the log; deciding takes a certificate.

    >>> from understudy.logs.evaluation.diagnostics import calibrate
    >>> counts, rewards = np.array([500, 500]), np.array([200.0, 200.0])
    >>> sums = ActionStatistics.of_behavior(counts, rewards, np.full(2, 0.5))
    >>> found = judge_policy("b", np.array([0.0, 1.0]), sums, JudgeContext(calibrate(sums)))
    >>> found.decision.value, found.overlap.effective_sample_size
    ('unknown', 500.0)
    """
    evidence = PolicyRows(
        rows=tally.rows,
        earned=float(tally.rewards.sum()),
        second_moment=second_moment(tally, policy),
        largest_gain=float(np.maximum(policy - tally.counts / max(tally.rows, 1), 0.0).sum()),
        wrong_propensities=bool(policy[context.calibration.wrong].any()),
        plays_unseen=bool(policy[tally.counts == 0].any()),
    )
    overlap = overlap_of(policy, tally, context.calibration.shown)
    return _judge(name, overlap, evidence, context, certificate)


def judge_rows(
    name: str, certificate: Certificate, tally: ActionStatistics, context: JudgeContext
) -> Verdict:
    """The verdict about a policy that depends on the row, from the weights w that it gave rise to.

    Of what it plays the log does not show what is missing from a mean weight of 1, beyond three
    standard errors. The `tally` is of the rows that could be read; rejected ones have no weight.
    """
    _, weighted, weights, squares = certificate.evidence.totals.tolist()
    read, earned = max(tally.rows, 1), float(tally.rewards.sum())
    error = math.sqrt(max(0.0, squares / read - (weights / read) ** 2) / read)
    hidden = max(0.0, 1.0 - weights / read - THREE * error)
    estimate = weighted / weights if weights else math.nan
    evidence = PolicyRows(
        rows=tally.rows,
        earned=earned,
        second_moment=earned / read * max(0.0, squares - 2.0 * weights + read) / read,
        wrong_propensities=bool(context.calibration.wrong.any()),
    )
    overlap = Overlap(None, certificate.effective_sample_size, estimate, hidden)
    return _judge(name, overlap, evidence, context, certificate)


def overlap_of(policy: Array, tally: ActionStatistics, shown: Array) -> Overlap:
    """How well the sums of a log cover a policy, before any certificate.

    >>> sums = ActionStatistics.of_behavior(np.array([500, 0]), np.zeros(2), np.array([0.5, 0.5]))
    >>> overlap_of(np.array([0.9, 0.1]), sums, np.array([1.0, 0.0]))
    Overlap(coverage_ratio=inf, effective_sample_size=500.0, estimate=0.0, hidden=0.1)
    """
    seen = tally.counts > 0
    pi = policy[seen]
    weights = float((pi * tally.weights[seen]).sum())
    weighted = float((pi * tally.weighted[seen]).sum())
    squares = float((pi**2 * tally.squares[seen]).sum())
    ratio = float((pi * tally.coverage_ratios()[seen]).sum())
    return Overlap(
        math.inf if policy[~seen].any() else ratio,
        weights * (weights / squares) if squares else 0.0,
        weighted / weights if weights else math.nan,
        float((policy * (1.0 - shown)).sum()),
    )


@dataclass(frozen=True)
class PolicyRows:
    """What is known of the rows that a policy is judged by.

    How many could be read, what production earned in them, E[d²], the gain that the policy can have
    at most, whether the propensities of its actions are wrong, and whether it plays actions that
    were never logged.
    """

    rows: int
    earned: float
    second_moment: float
    wrong_propensities: bool
    largest_gain: float = 1.0
    plays_unseen: bool = False


def _judge(
    name: str,
    overlap: Overlap,
    evidence: PolicyRows,
    context: JudgeContext,
    certificate: Certificate | None,
) -> Verdict:
    production = evidence.earned / max(evidence.rows, 1)
    estimated, hidden = overlap.estimate - production, overlap.hidden > HIDDEN
    seems = context.gain is None and estimated > NOTICEABLE and not hidden
    wanted = estimated if seems else _wanted(context.gain, production, evidence.largest_gain)
    confidence = context.confidence if certificate is None else certificate.confidence
    rows = evidence.rows if certificate is None else certificate.rounds
    if hidden:
        needed = exploration_for(min(1.0, production + wanted), wanted, rows, confidence)
    else:
        rejected = _rejected_share(certificate, evidence)
        needed = SampleSize(
            wanted, rows_for(evidence.second_moment, wanted, confidence, rejected), None
        )
    unsound = _unsound(context, evidence, certificate)
    decision = PolicyDecision.UNKNOWN if unsound else _decide(certificate, evidence.earned)
    obstacle = unsound or (Obstacle.BEHAVIOR_ESTIMATED if context.estimated else None)
    may_come = decision is PolicyDecision.UNKNOWN and obstacle is None
    return Verdict(
        name=name,
        decision=decision,
        obstacle=obstacle,
        overlap=overlap,
        hidden=overlap.hidden if hidden else 0.0,
        sample_size=needed if may_come else None,
        near=may_come and seems and 0.0 < needed.rows < NEAR * rows,
        gain_is_estimated=seems,
        plays_unseen=evidence.plays_unseen,
        certificate=certificate,
        confidence=context.confidence,
        rows=rows,
        rejected=rows - evidence.rows,
        earned=evidence.earned,
    )


def _unsound(
    context: JudgeContext, evidence: PolicyRows, certificate: Certificate | None
) -> Obstacle | None:
    """What speaks against a certificate."""
    if context.obstacle is not None:
        return context.obstacle
    if certificate is not None and certificate.lower > certificate.upper:
        return Obstacle.CONTRADICTORY_BOUNDS
    return Obstacle.WRONG_PROPENSITIES if evidence.wrong_propensities else None


def _rejected_share(certificate: Certificate | None, evidence: PolicyRows) -> RejectedShare:
    """The rows that count in the certificate though they could not be read."""
    if certificate is None or certificate.rounds <= evidence.rows:
        return RejectedShare()
    number = certificate.rounds - evidence.rows
    return RejectedShare(
        number / certificate.rounds, (certificate.production - evidence.earned) / number
    )


def _wanted(gain: float | None, production: float, largest: float) -> float:
    if gain is not None:
        return gain
    usual = min(USUAL_GAIN, production) if production > 0.0 else USUAL_GAIN
    return min(usual, largest) if largest > 0.0 else usual


def _decide(certificate: Certificate | None, earned: float) -> PolicyDecision:
    """What the certificate decides. Plays that the log never shows only make it more careful."""
    if certificate is None or not certificate.rounds:
        return PolicyDecision.UNKNOWN
    if certificate.upper < certificate.least_production(earned):
        return PolicyDecision.WORSE
    better = certificate.promoted and (certificate.gain or 0.0) > 0.0
    return PolicyDecision.BETTER if better else PolicyDecision.UNKNOWN
