"""Whether statements about questions are ever wrong: the referee's tests against the bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.formulas import lower_root
from understudy.certificates import BaselineRounds, Certificate, DifferenceCertificate, Evidence
from understudy.experiments.question_games import (
    QUESTIONS,
    DifferenceRecord,
    JointRecord,
    SegmentRecord,
)
from understudy.experiments.question_validity import statements_wrong

SHORT, LOW = 64, 0.02  # rounds, and a confidence at which some of all statements are wrong
BY_NAME = {kind.name: kind for kind in QUESTIONS}
CLOSE = 1e-9


def since_windows(certificate: Any, gains: Any, t: int) -> list[tuple[float, float]]:
    """Lower bounds on the mean gain since each round 1, 2, 4, …, by roots, and the truth."""
    bets, evidence = certificate.bets, certificate.evidence
    assert isinstance(evidence, Evidence)
    found = [(certificate.gain / (t + 1), gains[: t + 1].mean())]
    for j in range(1, len(evidence.windows) + 1):
        S, threshold = evidence.window_part(bets, j), -np.log(bets.window_delta(j))
        root = lower_root(S, bets.gains, t + 2 - 2**j, threshold, -1.0)
        found.append((root, gains[2**j - 1 : t + 1].mean()))
    return found


def joint_by_bounds(record: JointRecord, confidence: float) -> dict[str, bool]:
    joint, margins = record.begin(confidence), np.array([0.0, *record.margins])
    found = dict.fromkeys(("gain", "gain_upper", "windows", "promoted", "worse"), False)
    unit = np.stack([one.log.rewards for one in record.metrics[1:]], axis=1)
    goal = record.metrics[0]
    for t in range(len(goal.log)):
        part = slice(t, t + 1)
        joint = joint.advance(
            goal.log[part], goal.probabilities[part], goal.ratios[part], unit[part]
        )
        each: Any = (joint.goal, *joint.guardrails)
        gains = [one.gains for one in record.metrics]
        bounds = np.array([since_windows(*pair, t) for pair in zip(each, gains, strict=True)])
        wrong = bounds[:, :, 0] > bounds[:, :, 1] + CLOSE
        found["gain"] |= bool(wrong[:, 0].any())
        found["windows"] |= bool(wrong.any())
        shown = bounds[:, :, 0] > -margins[:, np.newaxis]
        violated = bounds[:, :, 1] <= -margins[:, np.newaxis] + CLOSE
        found["promoted"] |= bool((shown.all(axis=0) & violated.any(axis=0)).any())
        uppers = np.array([one.gain_upper for one in each]) / (t + 1)
        found["gain_upper"] |= bool((uppers < bounds[:, 0, 1] - CLOSE).any())
        broken = (uppers < -margins) & (bounds[:, 0, 1] >= -margins - CLOSE)
        found["worse"] |= bool(broken.any())
    return found


def segments_by_bounds(record: SegmentRecord, confidence: float) -> dict[str, bool]:
    certificates, whole = record.begin(confidence), record.whole
    found = dict.fromkeys(("gain", "gain_upper", "promoted", "worse"), False)
    for t in range(len(record.codes)):
        part = slice(t, t + 1)
        columns = whole.log[part], whole.probabilities[part], whole.ratios[part]
        certificates = certificates.advance(*columns, record.codes[part])
        harmless = True
        for segment, one in enumerate(certificates.gains):
            own = whole.gains[: t + 1][record.codes[: t + 1] == segment]
            if not len(own):
                continue
            truth = own.mean()
            assert one.lower is not None
            assert one.upper is not None
            found["gain"] |= bool(one.lower > truth + CLOSE)
            found["gain_upper"] |= bool(one.upper < truth - CLOSE)
            bounds = since_windows(certificates.certificates[segment], own, len(own) - 1)
            found["promoted"] |= any(low > 0.0 and mean <= CLOSE for low, mean in bounds)
            harmless &= bool(truth >= -CLOSE)
        found["worse"] |= harmless and certificates._worse_now()
    return found


def difference_by_bounds(record: DifferenceRecord, confidence: float) -> dict[str, bool]:
    whole = record.whole
    start = Certificate(None if record.counted else whole.known, confidence, 2)
    certificate = DifferenceCertificate(start, start)
    found = dict.fromkeys(("lower", "upper", "gain", "gain_upper", "promoted", "worse"), False)
    assert whole.baseline_rounds is not None
    other = BaselineRounds(*whole.baseline_rounds)
    for t in range(len(whole.log)):
        part = slice(t, t + 1)
        columns = whole.log[part], whole.probabilities[part], whole.ratios[part]
        certificate = certificate.advance(*columns, other.part(part))
        earned, gain = whole.target_rewards[: t + 1].sum(), whole.gains[: t + 1].sum()
        found["lower"] |= bool(certificate.lower > earned + CLOSE * (t + 1))
        found["upper"] |= bool(certificate.upper < earned - CLOSE * (t + 1))
        found["gain"] |= bool(certificate.gain > gain + CLOSE * (t + 1))
        found["gain_upper"] |= bool(certificate.gain_upper < gain - CLOSE * (t + 1))
        found["promoted"] |= bool(certificate.gain > 0.0 and gain <= CLOSE)
        found["worse"] |= bool(certificate.gain_upper < 0.0 and gain >= -CLOSE)
    return found


BY_BOUNDS: dict[type, Any] = {
    JointRecord: joint_by_bounds,
    SegmentRecord: segments_by_bounds,
    DifferenceRecord: difference_by_bounds,
}


RUNS: dict[str, dict[str, tuple[int, ...]]] = {  # among them some in which statements are wrong
    "guardrails": {
        "1 guardrail at its margin": (0, 7, 27),
        "3 guardrails, no gain": (0, 15),
        "4 guardrails, in turns": (11,),
        "2 guardrails, missing when bad": (0,),
    },
    "segments": {"2 segments, no gain": (0, 10, 16, 19), "2 segments, gains move": (0, 1)},
    "differences": {"two certificates": (0, 1), "two certificates, ineligible": (0, 1)},
    "counted": {"two certificates, counted": (0, 1)},
}


@pytest.mark.parametrize("group", RUNS)
def test_a_statement_is_wrong_exactly_where_a_bound_is(group: str) -> None:
    """In short games, at a confidence at which some statements are wrong; not all are in each."""
    each = []
    for name, runs in RUNS[group].items():
        for run in runs:
            record: Any = replace(BY_NAME[name], length=1.0).record(SHORT, 0, run)
            wrong = statements_wrong(record, LOW)
            assert wrong == BY_BOUNDS[type(record)](record, LOW), (name, run)
            each.append(list(wrong.values()))
    if group in {"guardrails", "segments"}:  # a difference of bounds is hardly ever wrong
        assert np.any(each, axis=0).all()
        assert not np.all(each, axis=0).any()


def test_candidates_share_the_confidence() -> None:
    record: Any = BY_NAME["5 candidates of 200"].record(400, 0, 0)
    five = [statements_wrong(one, 1 - 0.9 / 5) for one in record.candidates]
    wanted = {name: any(one[name] for one in five) for name in five[0]}
    assert statements_wrong(record, 0.1) == wanted


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("over an action", "promoted"),
        ("over a rule", "worse"),
        ("1 guardrail at its margin", "promoted"),
        ("3 guardrails, no gain", "gain_upper"),
        ("2 segments, no gain", "worse"),
        ("5 candidates of 200", "gain_upper"),
        ("missing at random", "promoted"),
    ],
)
def test_certificates_that_are_too_eager_are_caught(name: str, statement: str) -> None:
    """With δ = .9 in place of .05, statements are wrong in more games than chance explains."""
    records = (BY_NAME[name].record(1_000, 0, run) for run in range(60))
    assert np.mean([statements_wrong(record, 0.1)[statement] for record in records]) > 0.14
