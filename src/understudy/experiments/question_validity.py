"""Whether statements about the questions that users ask are ever wrong, after any round.

The bounds of a goal and its guardrails, of segments and of candidates hold together: one wrong
bound makes the statement wrong. As of other games, no root is computed where the mixture at the
truth decides; the difference of two bounds needs both.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from understudy import kernels
from understudy.behaviors import Logged
from understudy.certificates import Certificate, UncenteredEvidence
from understudy.certificates.certificate import COUNTING_SHARE
from understudy.certificates.evidence import GAIN, LOSS, LOWER, UPPER
from understudy.constraints import Array
from understudy.experiments.certificate_games import CONFIDENCE, GameRecord
from understudy.experiments.certificate_validity import (
    TINY,
    ever_wrong,
    gain_wrong,
    mixture,
    starts_of,
    wealths,
)
from understudy.experiments.question_games import (
    CandidateRecord,
    DifferenceRecord,
    JointRecord,
    SegmentRecord,
)
from understudy.types import Integers

Record = GameRecord | DifferenceRecord | JointRecord | SegmentRecord | CandidateRecord
ROUNDING = 1e-9  # of the mean of a bound


def statements_wrong(record: Record, confidence: float = CONFIDENCE) -> dict[str, bool]:
    """Whether each of the statements that the record has was wrong after any round."""
    match record:
        case DifferenceRecord():
            return difference_wrong(record, confidence)
        case JointRecord():
            return joint_wrong(record, confidence)
        case SegmentRecord():
            return segments_wrong(record, confidence)
        case CandidateRecord():
            share = 1.0 - (1.0 - confidence) / len(record.candidates)
            each = [ever_wrong(one, share) for one in record.candidates]
            return {name: any(one[name] for one in each) for name in each[0]}
        case _:
            return ever_wrong(record, confidence)


def joint_wrong(record: JointRecord, confidence: float) -> dict[str, bool]:
    """The bounds on all metrics together, promotions, and guardrails that were called broken.

    A promotion is wrong if, in a window that shows it, the goal has no gain or a guardrail is at
    its margin or beyond.
    """
    joint = record.begin(confidence)
    margins, n = (0.0, *record.margins), len(record.metrics[0].log)
    own = [
        (certificate.bets, wealths(metric), metric.gains)
        for certificate, metric in zip((joint.goal, *joint.guardrails), record.metrics, strict=True)
        if isinstance(certificate, Certificate)
    ]
    found = dict.fromkeys(("gain", "gain_upper", "windows", "promoted", "worse"), False)
    starts = starts_of(own[0][0], n)
    for j, start in enumerate(starts):
        rounds = np.arange(1, n - start + 2)
        shown, violated = np.ones(len(rounds), dtype=bool), np.zeros(len(rounds), dtype=bool)
        for (bets, path, gains), margin in zip(own, margins, strict=True):
            threshold = [bets.thresholds[0], *bets.thresholds[2]][j]
            S = path[:, bets.place(GAIN)]
            since = S[start - 1 :] - (S[start - 2] if start > 1 else 0.0)
            means = np.cumsum(gains[start - 1 :]) / rounds
            wrong = bool((mixture(bets, GAIN, since, rounds, means) >= threshold).any())
            found["gain"] |= wrong and start == 1
            found["windows"] |= wrong
            shown &= mixture(bets, GAIN, since, rounds, -margin) >= threshold
            violated |= means <= -margin + TINY
        found["promoted"] |= bool((shown & violated).any())
    rounds = np.arange(1, n + 1)
    for (bets, path, gains), margin in zip(own, margins, strict=True):
        S, means = path[:, bets.place(LOSS)], np.cumsum(gains) / rounds
        upper = mixture(bets, LOSS, S, rounds, -means) >= bets.thresholds[1]
        broken = mixture(bets, LOSS, S, rounds, margin) >= bets.thresholds[1]
        found["gain_upper"] |= bool(upper.any())
        found["worse"] |= bool((broken & (means >= -margin - TINY)).any())
    return found


def segments_wrong(record: SegmentRecord, confidence: float) -> dict[str, bool]:
    """The bounds on the gains of all segments together, and the decisions about any of them."""
    start = record.begin(confidence)
    decided, delta = start.certificates[0], 1.0 - confidence
    bounded = decided.with_confidence(1.0 - delta / (2 * record.m))
    assert isinstance(decided, Certificate)
    assert isinstance(bounded, Certificate)
    found = dict.fromkeys(("gain", "gain_upper", "promoted", "worse"), False)
    n = len(record.codes)
    wealth, harmless = np.ones((n, record.m)), np.ones((n, record.m), dtype=bool)
    for segment in range(record.m):
        rows = np.flatnonzero(record.codes == segment)
        if not len(rows):
            continue
        own, rounds = take(record.whole, rows), np.arange(1, len(rows) + 1)
        path, means = wealths(own), np.cumsum(own.gains) / rounds
        for part, sign, name in ((GAIN, 1.0, "gain"), (LOSS, -1.0, "gain_upper")):
            S, threshold = path[:, bounded.bets.place(part)], bounded.bets.thresholds[part - GAIN]
            reached = mixture(bounded.bets, part, S, rounds, sign * means) >= threshold
            found[name] |= bool(reached.any())
        S, (better, _, later) = path[:, decided.bets.place(GAIN)], decided.bets.thresholds
        for at, threshold in zip(
            starts_of(decided.bets, len(rows)), [better, *later], strict=False
        ):
            wrong = gain_wrong(decided.bets, GAIN, S, own.gains, start=at, threshold=threshold)
            found["promoted"] |= wrong[1]
        S = path[:, decided.bets.place(LOSS)]
        seen = np.cumsum(record.codes == segment)
        begun = seen > 0
        wealth[begun, segment] = mixture(decided.bets, LOSS, S, rounds, 0.0)[seen[begun] - 1]
        harmless[begun, segment] = (means >= -TINY)[seen[begun] - 1]
    worse = wealth.mean(axis=1) >= 1.0 / delta
    found["worse"] = bool((worse & harmless.all(axis=1)).any())
    return found


def take(record: GameRecord, rows: Integers) -> GameRecord:
    """Some of the rounds of a game without a baseline."""
    names = ("policies", "behavior", "rewards", "probabilities", "ratios")
    parts = {name: getattr(record, name)[rows] for name in names}
    return replace(record, log=record.log.take(rows), **parts)


def difference_wrong(record: DifferenceRecord, confidence: float) -> dict[str, bool]:
    """The bounds on the target and on the gain, by roots after every round, and the decisions."""
    whole = record.whole
    assert whole.baseline is not None
    other = replace(whole, policies=whole.baseline, ratios=np.full(len(whole.log), math.inf))
    own = np.arange(len(whole.log)), whole.log.actions
    other = replace(other, probabilities=whole.baseline[own])
    lower, upper = bounds_of(replace(whole, baseline=None), confidence, counted=record.counted)
    least, most = bounds_of(replace(other, baseline=None), confidence, counted=record.counted)
    rounds = np.arange(1, len(lower) + 1)
    earned, gain = (np.cumsum(x) / rounds for x in (whole.target_rewards, whole.gains))
    return {
        "lower": bool((lower > earned + ROUNDING).any()),
        "upper": bool((upper < earned - ROUNDING).any()),
        "gain": bool((lower - most > gain + ROUNDING).any()),
        "gain_upper": bool((upper - least < gain - ROUNDING).any()),
        "promoted": bool(((lower - most > 0.0) & (gain <= TINY)).any()),
        "worse": bool(((upper - least < 0.0) & (gain >= -TINY)).any()),
    }


def bounds_of(record: GameRecord, confidence: float, *, counted: bool) -> tuple[Array, Array]:
    """Lower and upper bounds on the mean reward after every round."""
    n, delta = len(record.log), 1.0 - confidence
    if counted:
        K = record.rewards.shape[1]
        certificate = Certificate(None, confidence, K)
        evidence = UncenteredEvidence.none(certificate.bets, K)
        q, _ = evidence.count(record.log.actions, COUNTING_SHARE * delta)
        w, R, grid = record.probabilities / q, record.log.rewards, certificate.bets.values
        parts = [np.cumsum(np.log1p(np.outer(w * x, grid)), axis=0) for x in (R, 1.0 - R)]
        side = (1.0 - COUNTING_SHARE) * delta / 2.0
    else:
        assert isinstance(record.known, Logged)
        bets, path = record.certificate(confidence).bets, wealths(record)
        grid, side = bets.values, delta / 2.0
        shape = n, bets.rows, len(grid)
        parts = [
            np.logaddexp.reduce(
                path[:, bets.place(part)].reshape(shape) + np.log(bets.weights), axis=1
            )
            for part in (LOWER, UPPER)
        ]
    roots = [
        [kernels.certificates.root(S[t], grid, t + 1, -math.log(side), 0.0) for t in range(n)]
        for S in map(np.ascontiguousarray, parts)
    ]
    return np.array(roots[0]), 1.0 - np.array(roots[1])
