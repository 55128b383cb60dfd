"""What a log says about a policy against production, and how much it would take to say more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from understudy.certificates import Certificate
from understudy.constraints import Array
from understudy.logs.calibration import Calibration
from understudy.logs.sample_size import (
    RejectedShare,
    SampleSize,
    exploration_for,
    rows_for,
    second_moment,
)
from understudy.logs.schema import Scale
from understudy.logs.statistics import ActionStatistics
from understudy.logs.verdict_words import CONTRADICTION, COUNTED, WRONG, Case

__all__ = ["JudgeContext", "Overlap", "Verdict", "judge", "judge_rows", "reach_of"]

Decision = Literal["better", "worse", "unknown"]
LARGEST_GAIN = 0.05  # that is asked for if nobody says which, and the policy seems to have none
HIDDEN = 0.001  # the share of its plays that a policy may make where the log shows nothing
NEAR = 10  # times the rows: what so many would show is not shown yet, beyond nobody can tell
THREE = 3.0  # standard errors
NOTICEABLE = 1e-6  # a gain a row: less may be rounding
UNIT = Scale()


@dataclass(frozen=True)
class Overlap:
    """How far a log reaches a policy.

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

    Nothing is decided if there is an `obstacle`, given in words, and nothing with propensities that
    the `calibration` calls wrong: too small ones would make a policy look better than it is. Where
    the behavior was only `counted`, no gain is certified. `gain` is the gain a row that a log
    should be able to show: left out, the one that a policy seems to have, or else 0.05, or
    production's mean reward if that is less, or what a policy that differs so little from
    production can gain at most. Words are in the units of the `scale`.
    """

    calibration: Calibration
    obstacle: str | None = None
    counted: bool = False
    gain: float | None = None
    confidence: float = 0.95
    scale: Scale = UNIT


@dataclass(frozen=True)
class Verdict:
    """What this log says about one policy, against production; if nothing, what would suffice.

    It is `near` if it seems to have a gain, and not many times as many rows would show it. Its
    certificate is `sound` if nothing is known that speaks against it.
    """

    name: str
    decision: Decision
    words: str
    reach: Overlap
    enough: SampleSize | None
    near: bool
    sound: bool


def judge(
    name: str,
    policy: Array,
    tally: ActionStatistics,
    grounds: JudgeContext,
    certificate: Certificate | None = None,
) -> Verdict:
    """The verdict about a policy, from the sums of the log and, for a decision, its certificate.

    >>> from understudy.logs.schema import Actions
    >>> from understudy.logs.calibration import calibrate
    >>> counts, rewards = np.array([500, 500]), np.array([200.0, 200.0])
    >>> sums = ActionStatistics.of_behavior(counts, rewards, np.full(2, 0.5))
    >>> grounds = JudgeContext(calibrate(sums, Actions(("a", "b"))))
    >>> judge("second", np.array([0.0, 1.0]), sums, grounds).words
    'it is covered: 1,000 rows are worth 500 plays of its own; certify it for a verdict'
    """
    seen = Seen(
        rows=tally.rows,
        earned=float(tally.rewards.sum()),
        spread=second_moment(tally, policy),
        most=float(np.maximum(policy - tally.counts / max(tally.rows, 1), 0.0).sum()),
        wrong=bool(policy[grounds.calibration.wrong].any()),
        unseen=bool(policy[tally.counts == 0].any()),
    )
    reach = reach_of(policy, tally, grounds.calibration.shown)
    return _judged(name, reach, seen, grounds, certificate)


def judge_rows(
    name: str, certificate: Certificate, tally: ActionStatistics, grounds: JudgeContext
) -> Verdict:
    """The verdict about a policy that depends on the row, from the weights w that it gave rise to.

    Of what it plays the log does not show what is missing from a mean weight of 1, beyond three
    standard errors. The `tally` is of the rows that could be read; others were set aside, and have
    no weight.
    """
    _, weighted, weights, squares = certificate.evidence.totals.tolist()
    read, earned = max(tally.rows, 1), float(tally.rewards.sum())
    error = math.sqrt(max(0.0, squares / read - (weights / read) ** 2) / read)
    hidden = max(0.0, 1.0 - weights / read - THREE * error)
    estimate = weighted / weights if weights else math.nan
    seen = Seen(
        rows=tally.rows,
        earned=earned,
        spread=earned / read * max(0.0, squares - 2.0 * weights + read) / read,
        wrong=bool(grounds.calibration.wrong.any()),
    )
    reach = Overlap(None, certificate.effective_sample_size, estimate, hidden)
    return _judged(name, reach, seen, grounds, certificate)


def reach_of(policy: Array, tally: ActionStatistics, shown: Array) -> Overlap:
    """What the sums of a log tell about a policy before any certificate.

    >>> sums = ActionStatistics.of_behavior(np.array([500, 0]), np.zeros(2), np.array([0.5, 0.5]))
    >>> reach_of(np.array([0.9, 0.1]), sums, np.array([1.0, 0.0]))
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
class Seen:
    """What is known of a policy's rows: how many could be read, what production earned in them,

    E[d²], the gain that the policy can have at `most`, whether its propensities are `wrong`, and
    whether it plays actions that were never seen.
    """

    rows: int
    earned: float
    spread: float
    wrong: bool
    most: float = 1.0
    unseen: bool = False


def _judged(
    name: str, reach: Overlap, seen: Seen, grounds: JudgeContext, certificate: Certificate | None
) -> Verdict:
    production = seen.earned / max(seen.rows, 1)
    seeming, hidden = reach.estimate - production, reach.hidden > HIDDEN
    seems = grounds.gain is None and seeming > NOTICEABLE and not hidden
    wanted = seeming if seems else _wanted(grounds.gain, production, seen.most)
    confidence = grounds.confidence if certificate is None else certificate.confidence
    rows = seen.rows if certificate is None else certificate.rounds
    if hidden:
        enough = exploration_for(min(1.0, production + wanted), wanted, rows, confidence)
    else:
        lost = _lost(certificate, seen)
        enough = SampleSize(wanted, rows_for(seen.spread, wanted, confidence, lost), None)
    unsound = _unsound(grounds, seen, certificate)
    decision: Decision = "unknown" if unsound else _decide(certificate, seen.earned)
    case = Case(
        decision=decision,
        certificate=certificate,
        confidence=grounds.confidence,
        effective_sample_size=reach.effective_sample_size,
        hidden=reach.hidden if hidden else 0.0,
        enough=enough,
        rows=rows,
        aside=rows - seen.rows,
        earned=seen.earned,
        scale=grounds.scale,
        obstacle=unsound or (COUNTED if grounds.counted else None),
        unseen=seen.unseen,
        seems=seems,
    )
    may_come = decision == "unknown" and case.obstacle is None
    return Verdict(
        name,
        decision,
        case.describe(),
        reach,
        enough if may_come else None,
        near=may_come and seems and 0.0 < enough.rows < NEAR * rows,
        sound=unsound is None,
    )


def _unsound(grounds: JudgeContext, seen: Seen, certificate: Certificate | None) -> str | None:
    """What speaks against a certificate, in words."""
    if grounds.obstacle is not None:
        return grounds.obstacle
    if certificate is not None and certificate.lower > certificate.upper:
        return CONTRADICTION
    return WRONG if seen.wrong else None


def _lost(certificate: Certificate | None, seen: Seen) -> RejectedShare:
    """The rows that count in the certificate though they could not be read."""
    if certificate is None or certificate.rounds <= seen.rows:
        return RejectedShare()
    number = certificate.rounds - seen.rows
    return RejectedShare(
        number / certificate.rounds, (certificate.production - seen.earned) / number
    )


def _wanted(gain: float | None, production: float, most: float) -> float:
    if gain is not None:
        return gain
    usual = min(LARGEST_GAIN, production) if production > 0.0 else LARGEST_GAIN
    return min(usual, most) if most > 0.0 else usual


def _decide(certificate: Certificate | None, earned: float) -> Decision:
    """What the certificate decides. Plays that the log never shows only make it more careful."""
    if certificate is None or not certificate.rounds:
        return "unknown"
    if certificate.upper < certificate.least_production(earned):
        return "worse"
    better = certificate.promoted and (certificate.gain or 0.0) > 0.0
    return "better" if better else "unknown"
