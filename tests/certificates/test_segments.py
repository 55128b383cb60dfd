"""Segments: the rows of each are a log of their own, and a mean of e-processes is one."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import understudy as us
from tests.support import formulas
from tests.support.refusals import assert_refused
from tests.support.saved_values import damaged, saved_form, saved_text
from understudy.certificates import BaselineRounds, DifferenceCertificate
from understudy.certificates.evidence import POINTS
from understudy.errors import InvalidSnapshot

Array = NDArray[np.float64]
PI = np.array([0.5, 0.5])
NAMES = ("new", "old", "other")
POLICY = us.FixedPolicy([0.2, 0.8])


def played(
    seed: int, n: int, means: Any = ((0.2, 0.8), (0.5, 0.5), (0.8, 0.2))
) -> tuple[us.Log, Any]:
    """A log, and the segment of each row; −1 is in none."""
    rng = np.random.default_rng(seed)
    codes, b = rng.integers(-1, 3, size=n), rng.integers(2, size=n)
    chance = np.where(codes < 0, 0.5, np.array(means)[codes, b])
    return us.Log(b, (rng.random(n) < chance).astype(float)), codes


def columns(log: us.Log) -> tuple[us.Log, Array, float]:
    return log, POLICY.probabilities[log.actions], 1.6


def started(kind: str) -> tuple[Any, Any]:
    """A certificate before round 1, and the probabilities of its baseline, if it is passed."""
    plain = us.Certificate(PI)
    if kind == "production":
        return plain, None
    if kind == "pairs":
        return us.Certificate(PI, against=[0.9, 0.1]), None
    if kind == "by round":
        return us.Certificate(PI, baseline_ratio=2.0), np.array([0.9, 0.1])
    counted = us.Certificate(None if kind == "counted" else PI, n_actions=2)
    return DifferenceCertificate(counted, counted), np.array([0.9, 0.1])


KINDS = ["production", "pairs", "by round", "difference", "counted"]


def other_rounds(baseline: Array | None, log: us.Log) -> BaselineRounds | None:
    if baseline is None:
        return None
    return BaselineRounds(baseline[log.actions], np.full(len(log), 1.8))


@pytest.mark.parametrize("kind", KINDS)
def test_a_segment_is_the_log_of_its_rows(kind: str) -> None:
    """Each decides with δ/m; the bounds on its gain spend δ/(2m) each."""
    (log, codes), (whole, baseline) = played(1, 900), started(kind)
    found = us.SegmentCertificates.begin(whole, NAMES).advance(
        *columns(log), codes, other_rounds(baseline, log)
    )
    for code, gain in enumerate(found.gains):
        part = log.take(np.flatnonzero(codes == code))
        own = whole.with_confidence(1 - 0.05 / 3)
        own = own.advance(*columns(part), other_rounds(baseline, part))
        assert saved_text(own) == saved_text(found.certificates[code])
        bounds = own.with_confidence(1 - 0.05 / 6)
        assert gain == us.certificates.SegmentGain(
            NAMES[code],
            len(part),
            bounds.gain / len(part),
            bounds.gain_upper / len(part),
            own.promoted,
            own.worse,
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cuts", [(0,), (1, 2, 3), (250, 251), (399, 400)])
def test_any_batching_gives_the_same_bits(kind: str, cuts: tuple[int, ...]) -> None:
    (log, codes), (whole, baseline) = played(2, 400), started(kind)
    start = us.SegmentCertificates.begin(whole, NAMES)
    parts = start
    for low, high in itertools.pairwise((0, *cuts, 400)):
        part = log[low:high]
        parts = parts.advance(*columns(part), codes[low:high], other_rounds(baseline, part))
    at_once = start.advance(*columns(log), codes, other_rounds(baseline, log))
    assert saved_text(parts) == saved_text(at_once)


def test_a_decision_between_two_points_is_that_of_the_next_one() -> None:
    """Round by round, as a live study observes, and all at once."""
    log, codes = played(2, 400, means=((0.5, 0.5), (0.5, 0.5), (0.9, 0.1)))
    certificates = start = us.SegmentCertificates.begin(us.Certificate(PI), NAMES)
    between = 0
    for t in range(400):
        certificates = certificates.advance(*columns(log[t : t + 1]), codes[t : t + 1])
        between += certificates.worse_somewhere and not certificates.worse_at
    assert saved_text(certificates) == saved_text(start.advance(*columns(log), codes))
    assert between > 0  # it is said at once, and kept from the next point on


def test_a_log_is_observed_with_the_names_of_segments() -> None:
    log, codes = played(3, 300)
    names = [(*NAMES, "unknown")[code] for code in codes]
    start = us.SegmentCertificates.begin(us.Certificate(PI), list(NAMES))
    found = start.observe(log, POLICY, names)
    assert saved_text(found) == saved_text(start.advance(*columns(log), codes))
    assert saved_text(start.observe(log, POLICY, np.array(names))) == saved_text(found)  # type: ignore[arg-type]
    one = start.observe(us.Feedback(0, 1.0), POLICY, "old")
    assert [part.rounds for part in one.certificates] == [0, 1, 0]


# --------------------------------------------------------------------- worse in some segment


def test_worse_somewhere_is_decided_at_the_first_point_of_the_mean_of_wealths() -> None:
    log, codes = played(4, 600, means=((0.5, 0.5), (0.5, 0.5), (0.9, 0.1)))
    found = us.SegmentCertificates.begin(us.Certificate(PI), NAMES).advance(*columns(log), codes)
    bets, wealth = us.Certificate(PI).bets, np.ones((len(log), 3))
    for code in range(3):
        rows = np.flatnonzero(codes == code)
        w, W = POLICY.probabilities[log.actions[rows]] / 0.5, np.full(len(rows), 1.6)
        S = formulas.centered_wealths(w, log.rewards[rows], W, bets.values, bets.gains)
        own = np.exp(np.logaddexp.reduce(S[:, bets.place(3)] + np.log(bets.prior), axis=1))
        seen = np.cumsum(codes == code)
        wealth[seen > 0, code] = own[seen[seen > 0] - 1]
    mean = wealth.mean(axis=1)
    first = next(n for n in POINTS.tolist() if mean[n - 1] >= 1 / 0.05)
    assert found.worse_at == first
    assert found.worse_somewhere
    assert not us.SegmentCertificates.begin(us.Certificate(PI), NAMES).worse_somewhere


def test_the_mean_of_wealths_is_an_e_process() -> None:
    """Over all sequences of actions, with segments that an adversary chooses by those before.

    Where no segment has a gain or a loss its mean is exactly 1 after every round, and it ever
    reaches 1/δ with probability δ at most.
    """
    rounds, q = 8, np.array([0.3, 0.7])
    start = us.SegmentCertificates.begin(us.Certificate(q, 0.5), ("a", "b", "c"))
    policy = us.FixedPolicy([0.9, 0.1])
    expected, ever = np.zeros(rounds), 0.0
    pending: list[tuple[Any, tuple[int, ...], float, bool]] = [(start, (), 1.0, False)]
    while pending:
        certificate, past, probability, reached = pending.pop()
        if len(past) == rounds:
            ever += probability * reached
            continue
        name = "abc"[(sum(past) + len(past)) % 3]  # known before the action
        reward = (len(past) + 3 * sum(past)) % 5 / 4
        for action in (0, 1):
            after = certificate.observe(us.Feedback(action, reward), policy, name)
            mean = np.mean([math.exp(one.log_loss_wealth) for one in after.certificates])
            chance = probability * q[action]
            expected[len(past)] += chance * mean
            pending.append((after, (*past, action), chance, reached or bool(mean >= 2.0)))
    np.testing.assert_allclose(expected, 1.0, rtol=1e-9)
    assert 0.0 < ever <= 0.5


def test_guard_segments_that_are_known_after_the_action_only() -> None:
    """The page that a user came to is made by the action: the policy seems to lose in one.

    Where enough rounds contradict each other the verdict is withheld, as of wrong propensities.
    """
    log, _ = played(5, 2_000, means=((0.5, 0.5),) * 3)
    start = us.SegmentCertificates.begin(us.Certificate(PI), ("left", "right"))
    wrong = start.observe(log, POLICY, [("left", "right")[b] for b in log.actions])
    assert wrong.worse_at
    assert wrong.contradicts
    assert not wrong.worse_somewhere
    rng = np.random.default_rng(0)
    right = start.observe(log, POLICY, [("left", "right")[b] for b in rng.integers(2, size=2_000)])
    assert not right.worse_at
    assert not right.contradicts


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_a_loss_of_one_segment_counts_whatever_the_rounding(confidence: float) -> None:
    """Of m differences, one that shows a loss at δ/m has the wealth m/δ, and the mean 1/δ."""
    plain = us.Certificate(PI, confidence)
    lost = us.Log([0, 1] * 1_000, [1.0, 0.0] * 1_000)
    for m in range(1, 21):
        names = tuple(map(str, range(m)))
        start = us.SegmentCertificates.begin(DifferenceCertificate(plain, plain), names)
        after = start.observe(
            lost, us.FixedPolicy([0.0, 1.0]), ["0"] * 2_000, us.FixedPolicy([1.0, 0.0])
        )
        assert after.gains[0].worse
        assert after.worse_somewhere


def test_segments_without_rounds_say_nothing() -> None:
    for kind in KINDS:
        whole, _ = started(kind)
        empty = us.SegmentCertificates.begin(whole, ("a",))
        gain = empty.gains[0]
        assert (gain.rounds, gain.lower, gain.upper, gain.worse) == (0, None, None, False)
        assert not gain.promoted
        assert not empty.worse_somewhere
    log, codes = played(6, 100)
    for behavior, rules in ((None, 2), (PI, 1)):  # no upper bound on a gain
        start = us.Certificate(behavior, n_actions=2, rules=rules)
        found = us.SegmentCertificates.begin(start, NAMES).advance(*columns(log), codes)
        assert not found.worse_somewhere
        assert all(one.upper is None for one in found.gains)


# ----------------------------------------------------------------------------------- refusals


def seen(rounds: int = 100) -> us.SegmentCertificates:
    log, codes = played(7, rounds)
    return us.SegmentCertificates.begin(us.Certificate(PI), NAMES).advance(*columns(log), codes)


WRONG: dict[str, tuple[Any, str, str]] = {
    "no segment": (
        lambda: us.SegmentCertificates.begin(us.Certificate(PI), []),
        "names",
        "no segment",
    ),
    "a text": (
        lambda: us.SegmentCertificates.begin(us.Certificate(PI), "new"),
        "names",
        "must be a tuple",
    ),
    "the same twice": (
        lambda: us.SegmentCertificates.begin(us.Certificate(PI), ["a", "a"]),
        "names",
        "two are the same",
    ),
    "a number": (
        lambda: us.SegmentCertificates.begin(us.Certificate(PI), [1]),  # type: ignore[list-item]
        "names",
        "not blank",
    ),
    "no certificate": (
        lambda: us.SegmentCertificates.begin(None, ["a"]),  # type: ignore[arg-type]
        "whole",
        "us.Certificate",
    ),
    "one that has observed": (
        lambda: us.SegmentCertificates.begin(seen().certificates[0], ["a"]),
        "whole",
        "just made",
    ),
    "too few names": (
        lambda: seen().observe(us.Log([0, 1], [1.0, 0.0]), POLICY, ["new"]),
        "segments",
        "1, and the log has 2 rounds",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str) -> None:
    call, argument, part = WRONG[name]
    refused = assert_refused(call, argument, part)
    assert refused.argument == argument


# -------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("kind", KINDS)
def test_files_give_every_bit_back(kind: str, tmp_path: Path) -> None:
    (log, codes), (whole, baseline) = played(8, 500), started(kind)

    def after(start: Any, part: slice) -> us.SegmentCertificates:
        rows = log[part]
        found = start.advance(*columns(rows), codes[part], other_rounds(baseline, rows))
        assert isinstance(found, us.SegmentCertificates)
        return found

    half = after(us.SegmentCertificates.begin(whole, NAMES), slice(222))
    us.save_certificate(half, tmp_path / "half.json")
    both = [
        after(one, slice(222, 500)) for one in (half, us.load_certificate(tmp_path / "half.json"))
    ]
    assert saved_text(both[0]) == saved_text(both[1])
    assert repr(both[0]) == repr(both[1])


DAMAGES: dict[str, dict[str, Any]] = {
    "a negative round": {"worse_at": -1},
    "a later round": {"worse_at": 101},
    "half a round": {"rounds": 0.5},
    "too few rounds": {"rounds": 10},
    "too few segments": {"names": ["new"]},
    "no segment": {"names": [], "certificates": []},
    "the same twice": {"names.0": "old"},
    "a number": {"names.0": 3},
    "too few certificates": {"certificates": []},
    "no certificate": {"certificates.0": 3},
    "another certificate": {"certificates.0": {"kind": "Logged", "n_actions": 2}},
    "another share": {"certificates.0.confidence": 0.95},
    "another confidence": {"confidence": 0.9},
    "a confidence of 1": {"confidence": 1.0},
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    path.write_text(damaged(seen(), {}))
    assert saved_form(us.load_certificate(path)) == saved_form(seen())
    path.write_text(damaged(seen(), DAMAGES[name]))
    with pytest.raises(InvalidSnapshot):
        us.load_certificate(path)


def test_the_words_name_the_segments() -> None:
    start = us.SegmentCertificates.begin(us.Certificate(PI), NAMES)
    assert repr(start) == "SegmentCertificates(3 segments, 95 % confidence, nothing observed yet)"
    assert repr(seen(2_000)) == (
        "3 segments after 2,000 rounds, with 95 % confidence. Better in: new. Worse in: other."
    )
