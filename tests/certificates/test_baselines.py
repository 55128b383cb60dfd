"""Gains over a policy other than production: in pairs, and as the difference of two certificates.

Each guard has a world in which a certificate without it is false.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import understudy as us
from tests.support import formulas
from tests.support.falling import falling, never_wrong
from tests.support.refusals import assert_refused
from tests.support.saved_values import damaged, saved_form, saved_text
from tests.support.strategies import behaviors, policies, quick, seeds, unit_numbers
from understudy.certificates import BaselineRounds, DifferenceCertificate
from understudy.certificates.difference import certificate_against
from understudy.certificates.evidence import POINTS, parts_between_points
from understudy.errors import InvalidArgument, InvalidEvent, InvalidSnapshot, NotMergeable

Array = NDArray[np.float64]
LOGGED = us.Logged(n_actions=3)
PI = np.array([0.5, 0.3, 0.2])
TARGET = us.FixedPolicy([0.1, 0.1, 0.8])
BASELINE = np.array([0.2, 0.5, 0.3])


@st.composite
def rows(draw: st.DrawFn) -> tuple[Array, Array, Array, Array, float]:
    """w, R, W ≥ w, w₀ ≤ B and B of rows, of which some lack w, R or W."""
    n, most = draw(st.integers(1, 70)), draw(st.floats(1.0, 3.0) | st.floats(1.0, 1e6))
    ratio = st.floats(1.0, 3.0) | st.floats(1.0, 1e6)
    W, shares, others = (
        np.array(draw(st.lists(each, min_size=n, max_size=n)))
        for each in (ratio, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
    )
    R = np.array(draw(st.lists(st.sampled_from([0.0, 1.0, 0.25, 0.9]), min_size=n, max_size=n)))
    kind = np.array(draw(st.lists(st.integers(0, 11), min_size=n, max_size=n)))
    w, w0 = W * shares, most * others
    w[(kind == 1) | (kind == 3)] = np.nan
    w0[(kind == 1) | (kind == 3)] = np.nan
    R[(kind == 2) | (kind == 3)] = np.nan
    W[kind == 4] = np.inf
    W[kind == 5] = np.nan
    return w, R, W, w0, most


def paired(most: float, **arguments: Any) -> us.Certificate:
    """A certificate of rows whose propensities are 1, so that π is w, and π₀ is w₀."""
    return us.Certificate(behavior=LOGGED, baseline_ratio=most, **arguments)


def observed(start: us.Certificate, w: Array, R: Array, W: Array, w0: Array) -> us.Certificate:
    """The certificate after rows with these columns."""
    log = us.Log._of(np.zeros(len(R), dtype=np.int64), R, np.ones(len(R)))
    return start.advance(log, w, W, BaselineRounds(w0, W))


@quick
@given(columns=rows(), centers=st.sampled_from([None, [0.25, 1.0]]))
def test_the_kernel_is_the_formula(
    columns: tuple[Array, Array, Array, Array, float], centers: list[float] | None
) -> None:
    w, R, W, w0, most = columns
    start = paired(most, centers=centers)
    np.testing.assert_allclose(start.bets.gains, us.Certificate(behavior=LOGGED).bets.gains / most)
    S = formulas.centered_wealths(
        *(w, R, W, start.bets.values, start.bets.gains), centers=centers, baseline=w0, most=most
    )
    found = observed(start, w, R, W, w0)
    np.testing.assert_allclose(found.evidence.log_wealths(), S[-1], rtol=1e-9, atol=1e-9)
    if centers is None:
        windows = [S[2**j - 2][start.bets.place(2)] for j in range(1, 8) if 2**j <= len(S)]
        wanted = np.array(windows).reshape(-1, 44)
        np.testing.assert_allclose(found.evidence.windows, wanted, rtol=1e-9, atol=1e-9)


@quick
@given(columns=rows(), cut=st.integers(0, 70))
def test_any_batching_gives_the_same_bits(
    columns: tuple[Array, Array, Array, Array, float], cut: int
) -> None:
    *arrays, most = columns
    start = paired(most)
    first, second = ([x[part] for x in arrays] for part in (slice(cut), slice(cut, None)))
    both = observed(observed(start, *first), *second)
    assert saved_text(both) == saved_text(observed(start, *arrays))


@quick
@given(columns=rows(), confidence=st.floats(0.05, 0.99))
def test_decisions_are_in_the_first_round_that_justifies_them(
    columns: tuple[Array, Array, Array, Array, float], confidence: float
) -> None:
    w, R, W, w0, most = columns
    certificate = observed(paired(most, confidence=confidence), w, R, W, w0)
    bets, n = certificate.bets, len(R)
    S = formulas.centered_wealths(w, R, W, bets.values, bets.gains, baseline=w0, most=most)
    evidence: Any = certificate.evidence
    found = evidence.crossed or n + 1, evidence.worse or n + 1
    assert found == formulas.first_decisions(S, bets)


# ------------------------------------------------------------------------------------- theorems


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Array, Array, Array, Array, Array]:
    """q without zeros, π₁, π₀, the rewards of one round, and those of rounds before."""
    q = draw(behaviors(zeros=False))
    K = len(q)
    r, past = (np.array(draw(st.lists(unit_numbers, min_size=K, max_size=K))) for _ in range(2))
    return q, draw(policies(K)), draw(policies(K)), r, past


def factors(start: us.Certificate, after: us.Certificate) -> list[Array]:
    """What one round multiplied the wealth of the bets by, on the gain and on the loss."""
    growth = np.exp(after.evidence.log_wealths() - start.evidence.log_wealths())
    return [growth[start.bets.place(part)] for part in (2, 3)]


@quick
@given(world=worlds(), form=st.sampled_from(["fixed", "round by round", "constant centers"]))
def test_factors_have_the_mean_of_the_gain_and_never_take_all(
    world: tuple[Array, Array, Array, Array, Array], form: str
) -> None:
    """E_b[1 + λ x] = 1 + λ D for every bet, by a sum over actions; and no factor is below .1."""
    q, policy, baseline, r, past = world
    K = len(q)
    by_round = form == "round by round"
    own: Any = {"baseline_ratio": float((1 / q).max())} if by_round else {"against": baseline}
    centers = [0.25, 1.0] if form == "constant centers" else None
    start = us.Certificate(behavior=q, centers=centers, **own)
    past_log = us.Log(np.arange(K), past)
    start = start.observe(
        past_log, us.Trace(np.zeros(K), 0, K), *([np.zeros(K)] if by_round else [])
    )
    after = [
        start.observe(
            us.Feedback(b, r[b]),
            us.FixedPolicy(policy),
            *([baseline[b]] if by_round else []),
        )
        for b in range(K)
    ]
    gain = float((policy - baseline) @ r)
    each = [factors(start, one) for one in after]
    for part, sign in ((0, 1.0), (1, -1.0)):
        found = sum(p * one[part] for p, one in zip(q, each, strict=True))
        wanted = 1.0 + sign * gain * np.tile(start.bets.gains, start.bets.rows)
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
        assert min(one[part].min() for one in each) >= 0.1 * (1 - 1e-9)


def test_where_an_action_of_the_target_is_never_shown_the_gain_is_bounded_from_below() -> None:
    """q = 0 < π: the mean factor is at most 1 + λ D, of the gain and of the loss."""
    q, r = np.array([0.5, 0.5, 0.0]), np.array([0.3, 1.0, 0.7])
    policy, baseline = np.array([0.2, 0.2, 0.6]), np.array([0.9, 0.1, 0.0])
    start = us.Certificate(behavior=q, against=baseline)
    each = [
        factors(start, start.observe(us.Feedback(b, r[b]), us.FixedPolicy(policy))) for b in (0, 1)
    ]
    gain = float((policy - baseline) @ r)
    for part, sign in ((0, 1.0), (1, -1.0)):
        wanted = 1.0 + sign * gain * np.tile(start.bets.gains, 2)
        assert (0.5 * (each[0][part] + each[1][part]) < wanted).all()


@quick
@given(data=st.data())
def test_a_row_that_cannot_be_used_has_the_least_wealth_of_all_that_it_may_be(
    data: st.DataObject,
) -> None:
    """Every part and bet, for any w ≤ W, w₀ ≤ B and R that agree with what is known of the row."""
    draw = data.draw
    W, most = draw(st.floats(1.0, 50.0)), draw(st.floats(1.0, 50.0))
    known_w, known_R = draw(st.booleans()), draw(st.booleans())
    w, w0, R = (draw(st.floats(0.0, 1.0)) * most_of for most_of in (W, most, 1.0))
    past = (np.array([1.0, 0.0, 2.0]), np.array([1.0, 0.5, 0.0]), np.full(3, 2.0), np.ones(3))
    start = observed(paired(most), *past)
    real = [np.array([x]) for x in (w, R, W, w0)]
    missing, own = np.array([np.nan]), known_w and not known_R
    other = np.array([draw(st.sampled_from([W, 2.0 * W, np.nan]))])
    unusable = [
        real[0] if own else missing,
        real[1] if known_R else missing,
        real[2] if own else other,
        real[3] if own else missing,
    ]
    least, true = (observed(start, *row).evidence.log_wealths() for row in (unusable, real))
    assert (least <= true + 1e-9).all()


@quick
@given(pi_b=behaviors(zeros=False), seed=seeds)
def test_against_production_is_the_certificate_of_the_gain_over_production(
    pi_b: Array, seed: int
) -> None:
    """w₀ = 1 and B = 1; the caps differ by 1 in W, and where the largest W is small none binds."""
    rng, K = np.random.default_rng(seed), len(pi_b)
    policy = 0.95 * pi_b + 0.05 / K * pi_b / pi_b.max()
    policy /= policy.sum()
    log = us.Log(rng.choice(K, p=pi_b, size=300), rng.random(300))
    if (policy / pi_b).max() >= 2.0:  # κ/(λ D) ≥ .9/.9/(W − 1) may be below a center
        return
    own = us.Certificate(behavior=pi_b, centers=[0.25, 0.5])
    same = us.Certificate(behavior=pi_b, centers=[0.25, 0.5], against=pi_b)
    one, other = (start.observe(log, us.FixedPolicy(policy)) for start in (own, same))
    assert saved_form(one.evidence) == saved_form(other.evidence)
    assert (one.gain, one.gain_upper, one.promoted_at) == (
        *(other.gain, other.gain_upper),
        other.promoted_at,
    )


def test_a_fixed_baseline_is_that_of_its_column() -> None:
    log = played(1, 400)
    fixed = us.Certificate(behavior=PI, against=BASELINE).observe(log, TARGET)
    start = us.Certificate(behavior=PI, baseline_ratio=float((BASELINE / PI).max()))
    for baseline in (BASELINE[log.actions], us.FixedPolicy(BASELINE)):
        by_round = start.observe(log, TARGET, baseline)
        assert saved_form(fixed.evidence) == saved_form(by_round.evidence)


# ---------------------------------------------------------------------------------- the difference


def played(
    seed: int, n: int, behavior: Array = PI, means: tuple[float, ...] = (0.2, 0.4, 0.8)
) -> us.Log:
    """A log of a known behavior."""
    rng = np.random.default_rng(seed)
    b = rng.choice(len(behavior), p=behavior, size=n)
    return us.Log(b, (rng.random(n) < np.array(means)[b]) * 1.0)


def with_propensities(log: us.Log, behavior: Array = PI) -> us.Log:
    return us.Log(log.actions, log.rewards, behavior[log.actions])


def difference(n: int, seed: int = 1) -> DifferenceCertificate:
    """A certificate of a log with propensities of which no least one is known."""
    start = us.Certificate(behavior=LOGGED)
    return DifferenceCertificate(start, start).observe(
        with_propensities(played(seed, n)), TARGET, us.FixedPolicy(BASELINE)
    )


@pytest.mark.parametrize("counted", [False, True])
def test_the_difference_is_that_of_two_certificates(counted: bool) -> None:
    """Of the target alone, and of the baseline alone; decided at the points and at the end."""
    log, other = played(2, 3_000, means=(0.1, 0.3, 0.9)), us.FixedPolicy([0.8, 0.1, 0.1])
    if not counted:
        log = with_propensities(log)
    start = us.Certificate(behavior=None if counted else LOGGED, n_actions=3)
    found = DifferenceCertificate(start, start).observe(log, TARGET, other)
    target, baseline = start.observe(log, TARGET), start.observe(log, other)
    assert found.gain == target.lower - baseline.upper
    assert found.gain_upper == target.upper - baseline.lower
    first = next(
        n
        for n in POINTS.tolist()
        if start.observe(log[:n], TARGET).lower > start.observe(log[:n], other).upper
    )
    assert found.promoted_at == first
    assert (found.worse, found.worse_at) == (False, None)
    swapped = DifferenceCertificate(start, start).observe(log, other, TARGET)
    assert (swapped.worse_at, swapped.promoted) == (first, False)


def test_certificates_that_cannot_bet_in_pairs() -> None:
    """No largest weight, no propensities, rules 1, or no choice in some rows."""
    in_pairs = certificate_against(us.Certificate(PI), BASELINE)
    assert isinstance(in_pairs, us.Certificate)
    assert in_pairs.against is not None
    by_round = certificate_against(us.Certificate(us.Logged(3, least_propensity=0.2)), None)
    assert isinstance(by_round, us.Certificate)
    assert by_round.baseline_ratio == 5.0
    for plain in (us.Certificate(LOGGED), us.Certificate(None, n_actions=3)):
        for policy in (BASELINE, None):
            assert isinstance(certificate_against(plain, policy), DifferenceCertificate)
    first = us.Certificate(PI, rules=1)
    assert isinstance(certificate_against(first, BASELINE), DifferenceCertificate)
    apart = certificate_against(us.Certificate(PI), BASELINE, paired=False)
    assert isinstance(apart, DifferenceCertificate)


@pytest.mark.parametrize("cuts", [(0,), (1, 2, 3), (250, 251), (600,)])
def test_the_difference_is_the_same_in_any_batching(cuts: tuple[int, ...]) -> None:
    log, other = with_propensities(played(1, 600)), us.FixedPolicy(BASELINE)
    start = us.Certificate(behavior=LOGGED)
    certificate: Any = DifferenceCertificate(start, start)
    for low, high in zip((0, *cuts), (*cuts, 600), strict=True):
        certificate = certificate.observe(log[low:high], TARGET, other)
    assert saved_text(certificate) == saved_text(difference(600))


def test_parts_end_after_points() -> None:
    for before, rounds in ((0, 500), (7, 0), (99, 1), (100, 333)):
        parts = parts_between_points(before, rounds)
        covered = [t for part in parts for t in range(part.start, part.stop)]
        assert covered == list(range(rounds))
        ends = {before + part.stop for part in parts}
        assert {p for p in POINTS.tolist() if before < p <= before + rounds} <= ends


def test_another_confidence_is_that_of_a_certificate_made_with_it() -> None:
    log = played(3, 900)
    for behavior, against in ((PI, None), (PI, BASELINE)):
        start = us.Certificate(behavior=behavior, against=against)
        at_99 = us.Certificate(behavior=behavior, against=against, confidence=0.99)
        later, made = start.observe(log, TARGET).with_confidence(0.99), at_99.observe(log, TARGET)
        assert (later.gain, later.gain_upper, later.lower) == (
            made.gain,
            made.gain_upper,
            made.lower,
        )
        assert later.window == made.window
        assert made.promoted_at is not None
        assert later.promoted_at == 900  # earlier rounds are not looked at again
    lost = start.observe(log, TARGET)
    assert (
        not lost.with_confidence(1 - 1e-12)
        .with_confidence(0.999)
        .observe(log[:1], us.FixedPolicy(BASELINE))
        .worse
    )


def test_another_confidence_forgets_what_was_shown_with_the_former_one(tmp_path: Path) -> None:
    """A weak gain is shown with a half, not with nearly all; such a certificate can be saved."""
    log = played(4, 60)
    weak = us.Certificate(behavior=PI, confidence=0.5).observe(log, TARGET)
    assert weak.promoted
    strict = weak.with_confidence(0.999_999)
    assert not strict.promoted
    for one in (strict, strict.with_confidence(0.5)):
        us.save_certificate(one, tmp_path / "one.json")
        assert us.load_certificate(tmp_path / "one.json").promoted == one.promoted
    assert strict.with_confidence(0.5).promoted_at == 60


# --------------------------------------------------------------- guards: false ones without them


def test_guard_an_action_of_the_baseline_that_production_never_plays() -> None:
    """Its rewards are in no row, so that the baseline seems to earn nothing: a gain of nothing."""
    q, n = np.array([0.5, 0.5, 0.0]), 3_000
    rng = np.random.default_rng(0)
    log, baseline = us.Log(rng.integers(2, size=n), np.full(n, 0.5)), np.array([0.0, 0.2, 0.8])
    policy = us.FixedPolicy([0.5, 0.5, 0.0])  # and action 2 always earns 1
    gains = np.full(n, 0.5 - (0.1 + 0.8))
    with pytest.raises(InvalidArgument, match=r"against = .*: production never plays one of its"):
        us.Certificate(behavior=q, against=baseline)
    with pytest.raises(InvalidArgument, match=r"against = .*: production never plays action 2"):
        us.certify(log, policy, behavior=q, against=us.FixedPolicy(baseline))
    with pytest.raises(InvalidArgument, match=r"against = .*: production never plays action 2"):
        us.certify(log, policy, behavior=q, against=2)
    wrong = us.Certificate(behavior=q, baseline_ratio=2.0).observe(
        log, policy, us.FixedPolicy(baseline)
    )
    assert wrong.promoted
    assert not never_wrong(wrong, gains)
    start = us.Certificate(behavior=q)  # two certificates need no such rewards
    right = DifferenceCertificate(start, start).observe(log, policy, us.FixedPolicy(baseline))
    assert never_wrong(right, gains)
    assert not right.promoted


def test_guard_a_baseline_that_the_plays_contradict() -> None:
    """A declared least propensity of an action that is never possible, and no column shows it."""
    rng, n = np.random.default_rng(0), 4_000
    b = (rng.random(n) < 0.4).astype(int)
    log = us.Log(b, np.full(n, 0.5), np.array([0.6, 0.4])[b])
    known, policy = us.Logged(3, least_propensity=0.2), us.FixedPolicy([0.5, 0.5, 0.0])
    with pytest.raises(InvalidEvent, match=r"action 2 in 0 of 4,000 rounds.: the least propensity"):
        us.certify(log, policy, behavior=known, against=2)
    wrong = us.Certificate(known, against=[0.0, 0.0, 1.0]).observe(log, policy)
    assert wrong.promoted  # whatever action 2 earns
    right = us.certify(log, policy, behavior=us.Logged(3), against=2)
    assert not right.promoted


def test_guard_a_ratio_that_a_baseline_exceeds() -> None:
    """λ w₀ > 1 could take more than all the wealth: such a column is refused before it is used."""
    log = played(5, 50)
    start = us.Certificate(behavior=PI, baseline_ratio=1.5)
    with pytest.raises(
        InvalidArgument, match=r"^baseline_ratio = 1.5: π₀\(b\)/q\(b\) of round \d+ is larger"
    ):
        start.observe(log, TARGET, us.FixedPolicy([0.0, 0.0, 1.0]))
    assert start.observe(log, TARGET, us.FixedPolicy([0.5, 0.3, 0.2])).rounds == 50


def test_guard_a_center_whose_cap_is_that_of_another_difference() -> None:
    """Of production D is W − 1; over an action with w₀ = 0 the difference is W itself."""
    q, policy = [1 / 3, 2 / 3], us.FixedPolicy([1.0, 0.0])
    start = us.Certificate(behavior=q, against=[0.0, 1.0])
    start = start.observe(us.Log([1] * 9, [1.0] * 9), us.Trace(np.zeros(9), 0, 2))  # c is .95
    growth = factors(start, start.observe(us.Feedback(0, 0.0), policy))[0]
    assert growth.min() == pytest.approx(0.1)  # w = 3, R = 0: 1 − 3 κ/3; with κ/2 it is below 0


def test_guard_a_difference_of_centered_bets_where_weights_are_too_small() -> None:
    """Where the target may play an action of propensity 0, its certificate takes no center."""
    R = falling()
    n = len(R)
    rng = np.random.default_rng(0)
    vectors = np.tile([0.5, 0.5, 0.0], (n, 1))
    log = us.Log(rng.integers(2, size=n), R, np.full(n, 0.5), propensity_vectors=vectors)
    policy, half = us.FixedPolicy([0.2, 0.2, 0.6]), us.FixedPolicy([0.5, 0.5, 0.0])
    gains = -0.6 * R  # action 2 earns nothing
    right = us.certify(log, policy, behavior=us.Logged(3), against=half)
    assert isinstance(right.certificate, DifferenceCertificate)
    assert never_wrong(right.certificate, gains)
    start = us.Certificate(behavior=us.Logged(3))
    columns = [x.probabilities[log.actions] for x in (policy, half)]
    wrong = DifferenceCertificate(start, start).advance(
        log, columns[0], 1.0, BaselineRounds(columns[1], np.ones(n))
    )
    assert not never_wrong(wrong, gains)


# ------------------------------------------------------------------------------- us.certify


def test_against_whatever_a_baseline_may_be() -> None:
    """An action, a policy, a column and a trace, of behaviors that are known or logged."""
    log = played(6, 3_000)
    logged = with_propensities(log)
    vectors = us.Log(
        *(log.actions, log.rewards, logged.propensities),
        propensity_vectors=np.tile(PI, (3_000, 1)),
    )
    one_hot = np.array([1.0, 0.0, 0.0])
    learner = us.exp3_ix(PI, eta=0.1)
    _, trace = learner.replay(learner.init(), log)
    worlds: list[tuple[us.Log, Any, bool]] = [
        (log, PI, True),
        (logged, us.Logged(3, least_propensity=0.2), True),
        (vectors, us.Logged(3, least_propensity=0.2), True),
        (logged, LOGGED, False),
        (vectors, LOGGED, False),
        (log, None, False),
    ]
    for shown, behavior, in_pairs in worlds:
        found = [
            us.certify(shown, TARGET, behavior=behavior, n_actions=3, against=against)
            for against in (0, np.int64(0), one_hot, us.FixedPolicy(one_hot), one_hot[log.actions])
        ]
        kind = us.Certificate if in_pairs else DifferenceCertificate
        assert all(type(one.certificate) is kind for one in found)
        assert all(one.promoted for one in found)
        gains = [(one.gain, one.gain_upper) for one in found]
        assert len(set(gains[:4])) == 1
        low, high = gains[0]
        assert low is not None
        assert high is not None
        assert low <= 0.54 * 3_000 <= high
        after = us.certify(shown, TARGET, behavior=behavior, n_actions=3, against=trace)
        assert type(after.certificate) is kind
        assert after.certificate.rounds == 3_000


def test_pairs_are_sharper_than_the_difference() -> None:
    log = played(7, 2_000)
    pairs = us.certify(log, TARGET, behavior=PI, against=1)
    apart = us.certify(with_propensities(log), TARGET, behavior=LOGGED, against=1)
    assert pairs.gain is not None
    assert apart.gain is not None
    assert pairs.gain > apart.gain + 50.0
    assert pairs.promoted_at is not None
    assert apart.promoted_at is not None
    assert pairs.promoted_at < apart.promoted_at


def test_rules_1_compare_two_certificates() -> None:
    found = us.certify(played(8, 900), TARGET, behavior=PI, against=1, rules=1)
    assert isinstance(found.certificate, DifferenceCertificate)
    assert found.promoted


def test_left_out_the_baseline_is_production() -> None:
    log = played(9, 100)
    start = us.Certificate(behavior=PI)
    plain = us.certify(log, TARGET, behavior=PI)
    assert saved_text(plain.certificate) == saved_text(start.observe(log, TARGET))


SHORT = played(10, 5)
WRONG: dict[str, tuple[Any, str, str]] = {
    "an action that is none": (
        lambda: us.certify(SHORT, TARGET, behavior=PI, against=3),
        "against",
        "at most 2",
    ),
    "an action below 0": (
        lambda: us.certify(SHORT, TARGET, behavior=PI, against=-1),
        "against",
        "at least 0",
    ),
    "a truth": (
        lambda: us.certify(SHORT, TARGET, behavior=PI, against=True),
        "against",
        "a whole number",
    ),
    "a label": (
        lambda: us.certify(SHORT, TARGET, behavior=PI, against="b"),
        "against",
        "a whole number; pass one of the actions 0 to 2",
    ),
    "no probabilities": (
        lambda: us.certify(SHORT, TARGET, behavior=PI, against=[0.5, 0.6, 0.7]),
        "against",
        "sum to 1.8",
    ),
    "too many": (
        lambda: us.certify(SHORT, TARGET, behavior=PI, against=[0.5] * 4),
        "against",
        "it has 4 entries, and the log 5 rounds",
    ),
    "a policy of other actions": (
        lambda: us.certify(SHORT, TARGET, behavior=PI, against=us.FixedPolicy([0.5, 0.5])),
        "against",
        "3 actions",
    ),
    "a trace of other actions": (
        lambda: us.certify(SHORT, TARGET, behavior=PI, against=us.Trace(np.zeros(5), 0, 2)),
        "against",
        "a trace of 2 actions",
    ),
    "too few entries": (
        lambda: us.Certificate(PI, against=[0.5, 0.5]),
        "against",
        "2 entries for 3 actions",
    ),
    "logged, no least propensity": (
        lambda: us.Certificate(LOGGED, against=PI),
        "against",
        "us.certify(..., against=...)",
    ),
    "counted": (lambda: us.Certificate(None, n_actions=3, against=PI), "against", "leave it out"),
    "rules 1": (lambda: us.Certificate(PI, against=PI, rules=1), "against", "leave it out"),
    "rules 1, a ratio": (
        lambda: us.Certificate(PI, baseline_ratio=2.0, rules=1),
        "baseline_ratio",
        "leave it out",
    ),
    "both": (
        lambda: us.Certificate(PI, against=PI, baseline_ratio=2.0),
        "baseline_ratio",
        "same policy in all rounds",
    ),
    "a ratio below 1": (
        lambda: us.Certificate(PI, baseline_ratio=0.5),
        "baseline_ratio",
        "at least 1",
    ),
    "no baseline": (
        lambda: us.Certificate(PI, baseline_ratio=2.0).observe(SHORT, TARGET),
        "baseline",
        "made with baseline_ratio",
    ),
    "a baseline of production's": (
        lambda: us.Certificate(PI).observe(SHORT, TARGET, us.FixedPolicy(PI)),
        "baseline",
        "made without baseline_ratio",
    ),
    "no baseline of a difference": (
        lambda: difference(0).observe(with_propensities(SHORT), TARGET, None),  # type: ignore[arg-type]
        "baseline",
        "no production",
    ),
    "a difference of unlike ones": (
        lambda: DifferenceCertificate(us.Certificate(PI), us.Certificate(PI, 0.9)),
        "baseline",
        "the confidence",
    ),
    "a difference of unlike behaviors": (
        lambda: DifferenceCertificate(us.Certificate(PI), us.Certificate(BASELINE)),
        "baseline",
        "not of the behavior",
    ),
    "a difference of unlike rounds": (
        lambda: DifferenceCertificate(
            us.Certificate(PI), us.Certificate(PI).observe(SHORT, TARGET)
        ),
        "baseline",
        "the rounds",
    ),
    "a decision after the last round": (
        lambda: DifferenceCertificate(us.Certificate(PI), us.Certificate(PI), crossed=1),
        "crossed",
        "0 rounds were observed",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str) -> None:
    call, argument, part = WRONG[name]
    refused = assert_refused(call, argument, part)
    assert refused.argument == argument
    assert refused.remedy


# --------------------------------------------------------------------------------------- files


def test_certificates_are_merged_with_those_of_the_same_baseline() -> None:
    log = played(11, 200)
    start = us.Certificate(behavior=PI, against=BASELINE, centers=[0.5])
    whole = start.observe(log, TARGET)
    both = start.observe(log[:90], TARGET).merge(start.observe(log[90:], TARGET))
    np.testing.assert_allclose(both.evidence.log_wealths(), whole.evidence.log_wealths(), atol=1e-9)
    assert both.gain == pytest.approx(whole.gain)
    others = [
        us.Certificate(behavior=PI, centers=[0.5]),
        us.Certificate(behavior=PI, centers=[0.5], against=PI),
        us.Certificate(behavior=PI, centers=[0.5], baseline_ratio=2.0),
    ]
    for other in others:
        with pytest.raises(InvalidArgument, match="centers and baseline"):
            start.merge(other)
    with pytest.raises(NotMergeable):
        us.Certificate(None, n_actions=3).merge(us.Certificate(None, n_actions=3))


@pytest.mark.parametrize("kind", ["against", "by round", "difference", "counted"])
def test_files_give_every_bit_back(kind: str, tmp_path: Path) -> None:
    log, other = played(12, 300), us.FixedPolicy(BASELINE)
    start: Any = us.Certificate(behavior=PI, against=BASELINE)
    if kind == "by round":
        start = us.Certificate(behavior=PI, baseline_ratio=5.0)
    if kind in {"difference", "counted"}:
        start = us.Certificate(None if kind == "counted" else PI, n_actions=3)
        start = DifferenceCertificate(start, start)
    own = () if kind == "against" else (other,)
    half = start.observe(log[:137], TARGET, *own)
    us.save_certificate(half, tmp_path / "half.json")
    again = us.load_certificate(tmp_path / "half.json")
    assert saved_text(again) == saved_text(half)
    assert repr(again) == repr(half)
    after = [one.observe(log[137:], TARGET, *own) for one in (half, again)]
    assert saved_text(after[0]) == saved_text(after[1])


DAMAGES: dict[str, tuple[str, Any]] = {
    "a negative round": ("crossed", -1),
    "half a round": ("lost", 0.5),
    "a later round": ("crossed", 10**6),
    "no target": ("target", None),
    "a policy as target": ("target", {"kind": "Logged", "n_actions": 3, "least_propensity": None}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    field, value = DAMAGES[name]
    path = tmp_path / "damaged.json"
    path.write_text(damaged(difference(100), {}))
    assert us.load_certificate(path).rounds == 100
    path.write_text(damaged(difference(100), {field: value}))
    with pytest.raises(InvalidSnapshot):
        us.load_certificate(path)


def test_the_words_name_the_baseline() -> None:
    log = played(13, 1_500)
    better = us.certify(log, TARGET, behavior=PI, against=1)
    assert repr(better).startswith("Promote (first certain after round ")
    assert "Gain over the baseline per round: at least +0.1" in repr(better)
    worse = us.certify(log, us.FixedPolicy([1.0, 0.0, 0.0]), behavior=PI, against=2)
    assert repr(worse).startswith("Worse than the baseline after 1,500 rounds.")
    apart = us.certify(with_propensities(log), TARGET, behavior=LOGGED, against=1)
    assert repr(apart).startswith("Promote after 1,500 rounds. Gain over the baseline per round: ")
    start = us.Certificate(behavior=LOGGED)
    none = DifferenceCertificate(start, start)
    assert repr(none) == "DifferenceCertificate(95 % confidence, nothing observed yet)"
