"""What a log says to a question: the baseline, guardrails and segments, with their estimates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from understudy.certificates import (
    AnyCertificate,
    Guardrail,
    JointCertificate,
    SegmentCertificates,
    SegmentGain,
)
from understudy.certificates.evidence import Evidence
from understudy.constraints import Array
from understudy.errors import InvalidArgument
from understudy.logs.statistics import BaselineSums


class GuardrailState(StrEnum):
    """Whether a guardrail is certain to hold, certain to be broken, or neither."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNCERTAIN = "uncertain"


class GuardrailBounds(NamedTuple):
    """A guardrail with the change of its metric, in its units: the estimate, and bounds.

    `rows` estimates how many rows like these would show that it holds, None if none are known to.
    In `unusable` rows the metric is missing or out of its range, and counts as the worst value.
    """

    metric: Guardrail
    state: GuardrailState
    estimate: float | None
    low: float | None
    high: float | None
    rows: float | None
    unusable: int = 0


class SegmentBounds(NamedTuple):
    """The gain in a segment: its estimate, bounds that hold for all segments, and its decision."""

    gain: SegmentGain
    estimate: float | None


@dataclass(frozen=True)
class SegmentVerdict:
    """The segments of a column, and whether the policy is certainly worse in some of them."""

    column: str
    segments: tuple[SegmentBounds, ...]
    worse_somewhere: bool


@dataclass(frozen=True)
class BaselineReward:
    """The baseline that the gain is over: its name, and its estimated mean reward."""

    name: str
    reward: float


NO_SUMS = BaselineSums()


@dataclass(frozen=True)
class Baseline:
    """The baseline of a question: its name, and its probabilities or, by rows, its sums."""

    name: str
    policy: Array | None
    sums: BaselineSums = NO_SUMS


@dataclass(frozen=True)
class Answers:
    """What a log says to the question about one policy, beside its certificate."""

    baseline: Baseline | None = None
    joint: JointCertificate | None = None
    guardrails: tuple[GuardrailBounds, ...] = ()
    segments: SegmentVerdict | None = None
    missing_at_random: bool = False
    other_gain: float | None = None


NO_QUESTION = Answers()


def guardrails_of(
    joint: JointCertificate, sums: BaselineSums | None
) -> tuple[GuardrailBounds, ...]:
    """Each guardrail with the estimated change of its metric, and its bounds."""
    baselines = [None] * len(joint.metrics) if sums is None else _means(sums.metrics)
    return tuple(
        _guardrail_of(metric, one, baseline)
        for metric, one, baseline in zip(joint.metrics, joint.guardrails, baselines, strict=True)
    )


def segments_of(
    column: str, segments: SegmentCertificates, sums: BaselineSums | None
) -> SegmentVerdict:
    """The gain in each segment, the largest estimate first."""
    baselines = [None] * len(segments.names) if sums is None else _means(sums.segments)
    found = [
        SegmentBounds(gain, estimated_gain(one, baseline))
        for gain, one, baseline in zip(
            segments.gains, segments.certificates, baselines, strict=True
        )
    ]
    found.sort(key=lambda one: math.inf if one.estimate is None else -one.estimate)
    return SegmentVerdict(column, tuple(found), segments.worse_somewhere)


def estimated_gain(certificate: AnyCertificate, baseline: float | None) -> float | None:
    """The self-normalised mean reward of the target less that of the baseline, or of production.

    The mean is over rows that can be used; None if the target plays in none.
    """
    _, weighted, weights, _ = certificate.evidence.totals.tolist()
    if not weights or not isinstance(certificate.evidence, Evidence):
        return None
    rows, earned, _ = certificate.evidence.usable.tolist()
    other = earned / rows if baseline is None else baseline
    return None if math.isnan(other) else weighted / weights - other


def _means(sums: Array | None) -> list[float]:
    """Means from sums of products and sums of weights; nan without weights."""
    assert sums is not None  # they are made where there are metrics or segments
    return [total / weight if weight else math.nan for total, weight in sums.tolist()]


def _guardrail_of(
    metric: Guardrail, one: AnyCertificate, baseline: float | None
) -> GuardrailBounds:
    n, margin, estimate = one.rounds, metric.unit_margin, estimated_gain(one, baseline)
    state = GuardrailState.UNCERTAIN
    if one.shows_loss(-margin):
        state = GuardrailState.BROKEN
    elif one.shows_gain(-margin):
        state = GuardrailState.HOLDS
    usable = one.evidence.usable[0] if isinstance(one.evidence, Evidence) else n
    unusable = n - int(usable)
    if n and not usable:
        raise never_usable(metric)
    if not n or one.gain is None or one.gain_upper is None:
        return GuardrailBounds(metric, state, None, None, None, None, unusable)
    gains = sorted(metric.gain(total / n) for total in (one.gain, one.gain_upper))
    rows = None
    if state is GuardrailState.UNCERTAIN and estimate is not None and estimate > -margin:
        # A bound nears the estimate as 1/√n.
        rows = n * ((estimate - one.gain / n) / (estimate + margin)) ** 2
    found = None if estimate is None else metric.gain(estimate)
    return GuardrailBounds(metric, state, found, gains[0], gains[1], rows, unusable)


def never_usable(metric: Guardrail) -> InvalidArgument:
    """The error about a guardrail whose metric no row has."""
    reason = f"no row has a number of it from {metric.low:g} to {metric.high:g}"
    remedy = "check the column, and the range of the metric"
    return InvalidArgument("guardrail", metric.name, reason, remedy)


def most_rows(guardrails: Sequence[GuardrailBounds]) -> float:
    """The number of rows that would show every uncertain guardrail; infinite if none is known."""
    left = [one.rows for one in guardrails if one.state is GuardrailState.UNCERTAIN]
    return max((math.inf if rows is None else rows for rows in left), default=math.inf)
