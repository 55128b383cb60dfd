"""Certificates as values: folds, merges, curves, snapshots, and what they refuse."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import understudy as us
from tests.support import formulas
from tests.support.saved_values import saved_text
from tests.support.strategies import behaviors, quick, seeds, unit_numbers
from understudy.certificates import Evidence, UncenteredEvidence
from understudy.certificates.evidence import POINTS
from understudy.errors import InvalidArgument, InvalidSnapshot

Array = NDArray[np.float64]

PI = np.array([0.5, 0.3, 0.2])
POLICY = np.array([0.1, 0.1, 0.8])


@dataclass(frozen=True)
class Watched:
    """A log, what the target thought along it, and the behavior."""

    log: us.Log
    trace: us.Trace
    behavior: Any

    def certificate(self, **arguments: Any) -> us.Certificate:
        K = self.trace.n_actions if self.behavior is None else None
        return us.Certificate(behavior=self.behavior, n_actions=K, **arguments)

    def observed(self, **arguments: Any) -> us.Certificate:
        return self.certificate(**arguments).observe(self.log, self.trace)

    def columns(self) -> tuple[Array, Array]:
        """w and R of every round, where the behavior is known."""
        q = self.log.propensities if self.log.propensities is not None else self.behavior
        q = q[self.log.actions] if self.log.propensities is None else q
        return self.trace.probability / q, self.log.rewards


def watched(n: int, seed: int = 0, *, kind: str = "known", better: float = 0.8) -> Watched:
    """An Exp3-IX that watches a game of three actions, the last of which is better."""
    rng = np.random.default_rng(seed)
    actions = rng.choice(3, p=PI, size=n)
    rewards = (rng.random(n) < np.array([0.3, 0.3, better])[actions]).astype(float)
    rewards[::7] = rng.random(len(rewards[::7]))
    learner = us.exp3_ix(PI, horizon=max(n, 1))
    _, trace = learner.replay(learner.init(), us.Log(actions, rewards))
    q = PI[actions] if kind == "logged" else None
    behavior = {"known": PI, "logged": us.Logged(n_actions=3), "counted": None}[kind]
    return Watched(us.Log(actions, rewards, q), trace, behavior)


@st.composite
def any_watched(draw: st.DrawFn, *, max_rounds: int = 60) -> Watched:
    """Any rewards and probabilities, propensities from 1e-100 to 1."""
    n = draw(st.integers(1, max_rounds))
    powers = draw(st.lists(st.floats(-100.0, 0.0) | st.floats(-2.0, 0.0), min_size=n, max_size=n))
    rewards, probability = (draw(st.lists(unit_numbers, min_size=n, max_size=n)) for _ in range(2))
    actions = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    q = np.maximum(10.0 ** np.array(powers), 1e-100)
    trace = us.Trace(np.array(probability), 0, n_actions=3)
    return Watched(us.Log(actions, rewards, q), trace, us.Logged(n_actions=3))


def numbers(found: us.Certificate | us.Certified) -> list[Any]:
    names = ("lower", "upper", "gain", "production", "estimate", "self_normalised")
    return [getattr(found, name) for name in (*names, "effective_sample_size", "promoted_at")]


KINDS = ("known", "logged", "counted")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 100])
def test_any_batching_gives_the_same_bits(kind: str, size: int) -> None:
    game = watched(230, kind=kind)
    certificate, start = game.certificate(), 0
    for part in game.log.stretches(size):
        certificate = certificate.observe(part, game.trace[start : start + len(part)])
        start += len(part)
    assert saved_text(certificate) == saved_text(game.observed())
    whole = us.certify(game.log, game.trace, behavior=game.behavior)
    assert saved_text(whole.certificate) == saved_text(certificate)
    assert numbers(whole) == numbers(certificate)


@quick
@given(game=any_watched(), data=st.data())
def test_any_batching_gives_the_same_bits_of_anything(game: Watched, data: st.DataObject) -> None:
    """Products that are moved early, because they grow large, are moved in the same rounds."""
    cut = data.draw(st.integers(0, len(game.log)))
    first = game.certificate().observe(game.log[:cut], game.trace[:cut])
    assert saved_text(first.observe(game.log[cut:], game.trace[cut:])) == saved_text(
        game.observed()
    )


@pytest.mark.large
def test_stretches_of_a_long_log_do_not_show() -> None:
    game = watched(40_000)
    parts = (slice(0, 9_000), slice(9_000, 33_333), slice(33_333, None))
    certificate = game.certificate()
    for part in parts:
        certificate = certificate.observe(game.log[part], game.trace[part])
    assert saved_text(certificate) == saved_text(game.observed())


def test_observing_changes_nothing_that_was_there() -> None:
    game = watched(50)
    start = game.observed()
    before = saved_text(start)
    assert saved_text(start.observe(game.log[:0], game.trace[:0])) == before
    start.observe(game.log, game.trace)
    assert saved_text(start) == before
    with pytest.raises(AttributeError):
        start.confidence = 0.5  # type: ignore[misc] # what is tested


@quick
@given(game=any_watched())
def test_sums_and_totals_are_the_reference(game: Watched) -> None:
    certificate = game.observed(rules=1)
    w, R = game.columns()
    lambdas = certificate.lambdas
    bets = 0.9 * lambdas[lambdas <= 1]
    parts = ((lambdas, w * R), (lambdas, w * (1 - R)), (bets, (w - 1) * R))
    wanted = np.concatenate([formulas.log_wealths(grid, x)[-1] for grid, x in parts])
    np.testing.assert_allclose(certificate.evidence.log_wealths(), wanted, rtol=1e-11, atol=1e-13)
    totals = [R.sum(), (w * R).sum(), w.sum(), (w * w).sum()]
    np.testing.assert_allclose(certificate.evidence.totals, totals, rtol=1e-12)
    assert certificate.production == pytest.approx(R.sum())
    assert certificate.estimate == pytest.approx((w * R).sum())
    if w.any():
        assert certificate.self_normalised == pytest.approx(len(R) * (w * R).sum() / w.sum())
        assert certificate.effective_sample_size == pytest.approx(w.sum() ** 2 / (w * w).sum())


@quick
@given(game=any_watched(), confidence=st.floats(0.01, 0.999))
def test_bounds_are_roots(game: Watched, confidence: float) -> None:
    """By Newton from the left as by bisection; δ/2 for lower and upper, δ for the gain."""
    certificate, n = game.observed(confidence=confidence, rules=1), len(game.log)
    S, lambdas = certificate.evidence.log_wealths(), certificate.lambdas
    bets, size, delta = 0.9 * lambdas[lambdas <= 1], len(lambdas), 1 - confidence
    lower = formulas.lower_root(S[:size], lambdas, n, -math.log(delta / 2), 0.0)
    upper = 1 - formulas.lower_root(S[size : 2 * size], lambdas, n, -math.log(delta / 2), 0.0)
    gain = formulas.lower_root(S[2 * size :], bets, n, -math.log(delta), -1.0)
    found = (certificate.lower / n, certificate.upper / n, (certificate.gain or 0.0) / n)
    np.testing.assert_allclose(found, (lower, upper, gain), rtol=1e-9, atol=1e-12)
    assert 0.0 <= lower <= 1.0
    assert 0.0 <= upper <= 1.0
    assert -1.0 <= gain <= 1.0


@quick
@given(game=any_watched(), delta=st.floats(1e-6, 0.9))
def test_the_mixture_is_above_the_threshold_left_of_the_root_and_below_it_right(
    game: Watched, delta: float
) -> None:
    certificate, n = game.observed(confidence=1 - delta, rules=1), len(game.log)
    lambdas = certificate.lambdas
    S = certificate.evidence.log_wealths()[: len(lambdas)]
    root = certificate.lower / n
    threshold = -math.log(certificate._side_delta)
    if root > 0:
        assert formulas.log_mixture(S, lambdas, n, root * (1 - 1e-9)) >= threshold - 1e-9
    if root < 1:
        assert formulas.log_mixture(S, lambdas, n, root + 1e-9) <= threshold + 1e-9


@quick
@given(game=any_watched())
def test_more_confidence_is_less_said(game: Watched) -> None:
    found = [game.observed(confidence=c) for c in (0.1, 0.5, 0.95, 0.999)]
    for less, more in pairwise(found):
        assert more.lower <= less.lower
        assert more.upper >= less.upper
        assert more.gain is not None
        assert less.gain is not None
        assert more.gain <= less.gain
        contradicts_itself = less.lower > less.upper  # at so little confidence: it decides nothing
        if more.promoted_at is not None and not contradicts_itself:
            assert less.promoted_at is not None
            assert less.promoted_at <= more.promoted_at


@quick
@given(game=any_watched())
def test_swapping_rewards_swaps_the_bounds(game: Watched) -> None:
    """Lower and upper are one construction, for R and for 1 − R."""
    rewards = np.where(game.log.rewards > 0.5, 1.0, 0.0)  # so that 1 − (1 − R) is R
    one, other = (
        us.Certificate(behavior=game.behavior).observe(
            us.Log(game.log.actions, r, game.log.propensities), game.trace
        )
        for r in (rewards, 1 - rewards)
    )
    n = len(rewards)
    assert one.lower == pytest.approx(n - other.upper, rel=1e-12, abs=1e-12)


@quick
@given(game=any_watched(), confidence=st.floats(0.01, 0.99))
def test_promotion_is_in_the_first_round_in_which_it_is_justified(
    game: Watched, confidence: float
) -> None:
    w, R = game.columns()
    certificate = game.observed(confidence=confidence, rules=1)
    lambdas = certificate.lambdas
    bets, log_threshold = 0.9 * lambdas[lambdas <= 1], -math.log(1 - confidence)
    mixtures = formulas.log_mixture(
        formulas.log_wealths(bets, (w - 1) * R), bets, np.zeros(len(R)), np.zeros(len(R))
    )
    assume((abs(mixtures - log_threshold) > 1e-9).all())  # no tie that rounding decides
    first = formulas.first_crossing(bets, (w - 1) * R, log_threshold)
    assert certificate.evidence.crossed == first
    credible = certificate.lower <= certificate.upper  # else no propensities like these exist
    assert certificate.promoted_at == (first if first and credible else None)
    assert certificate.promoted == (first > 0 and credible)


@pytest.mark.parametrize("rules", [1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_promotion_comes_between_the_round_before_and_its_round(seed: int, rules: int) -> None:
    """A certificate that stops one round earlier is not promoted; the gain is positive then."""
    game = watched(2_000, seed)
    certificate = game.observed(rules=rules)
    at = certificate.promoted_at
    assert at is not None
    before = game.certificate(rules=rules).observe(game.log[: at - 1], game.trace[: at - 1])
    then = game.certificate(rules=rules).observe(game.log[:at], game.trace[:at])
    assert (before.promoted, then.promoted, then.promoted_at) == (False, True, at)
    assert before.window is not None
    assert then.window is not None
    assert before.window.gain < 0 <= then.window.gain
    if rules > 1:
        return
    w, R = game.columns()
    bets = 0.9 * certificate.lambdas[certificate.lambdas <= 1]
    assert formulas.first_crossing(bets, (w - 1) * R, math.log(20)) == at


def test_once_promoted_is_promoted() -> None:
    """What comes later may lower the gain; when promotion was justified stays a fact."""
    good = watched(2_000, better=0.9)
    bad = us.Log(np.full(20_000, 0), np.ones(20_000))
    after = good.observed().observe(bad, us.Trace(np.full(20_000, 0.01), 0, 3))
    assert after.gain is not None
    assert after.gain < 0
    assert after.promoted
    assert after.promoted_at == good.observed().promoted_at


@pytest.mark.parametrize("kind", ["known", "logged"])
@pytest.mark.parametrize("cut", [1, 100, 333])
@pytest.mark.parametrize("form", [{"rules": 1}, {"centers": [0.25, 0.75]}], ids=["1", "2"])
def test_merging_is_observing_both(kind: str, cut: int, form: dict[str, Any]) -> None:
    """With rules 1, and with constant centers; else the centers of each part are its own."""
    game = watched(400, kind=kind)
    start = game.certificate(**form)
    first = start.observe(game.log[:cut], game.trace[:cut])
    second = start.observe(game.log[cut:], game.trace[cut:])
    whole = game.observed(**form)
    for merged in (first.merge(second), second.merge(first)):
        assert merged.rounds == 400
        np.testing.assert_allclose(numbers(merged)[:-1], numbers(whole)[:-1], rtol=1e-10)
        assert merged.promoted == whole.promoted
        assert merged.promoted_at is None
    third = first.merge(second).observe(game.log, game.trace)
    assert third.lower == pytest.approx(whole.merge(whole).lower, rel=1e-10)


def test_merging_with_nothing_is_nothing() -> None:
    game = watched(100)
    whole = game.observed()
    assert saved_text(whole.merge(game.certificate())) == saved_text(whole)
    assert saved_text(game.certificate().merge(whole)) == saved_text(whole)


def test_promotion_of_merged_logs_is_decided_by_both_together() -> None:
    """Half of the evidence is not enough, both halves are, and the round is unknown."""
    good = us.Log([2] * 99, [1.0] * 99)
    at = us.certify(good, POLICY, behavior=PI).promoted_at
    assert at is not None
    half = us.Certificate(behavior=PI).observe(good[: at - 1], us.FixedPolicy(POLICY))
    merged = half.merge(half)
    assert (half.promoted, merged.promoted, merged.promoted_at) == (False, True, None)
    assert repr(merged).startswith("Promote after ")
    bad = us.Certificate(behavior=PI).observe(us.Log([0] * 99, [1.0] * 99), POLICY)
    again = bad.merge(half)
    assert not again.promoted
    later = again.observe(us.Log([2] * 999, [1.0] * 999), POLICY)
    assert (later.promoted, later.promoted_at) == (True, None)


@quick
@given(seed=seeds, pi_b=behaviors(zeros=False))
def test_a_fixed_policy_does_not_care_about_the_order(seed: int, pi_b: Array) -> None:
    rng = np.random.default_rng(seed)
    log = us.Log(rng.choice(len(pi_b), p=pi_b, size=70), rng.random(70))
    order = rng.permutation(70)
    shuffled = us.Log(log.actions[order], log.rewards[order])
    target = us.FixedPolicy(pi_b[::-1])
    for form in ({"rules": 1}, {"centers": [0.3, 0.6]}):
        found = [us.certify(x, target, behavior=pi_b, **form) for x in (log, shuffled)]
        np.testing.assert_allclose(numbers(found[0])[:-1], numbers(found[1])[:-1], rtol=1e-9)


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_rewards_that_are_all_alike(reward: float, kind: str) -> None:
    log = us.Log([0, 1, 2] * 500, [reward] * 1500, [0.4] * 1500 if kind == "logged" else None)
    behavior: Any = {"known": PI, "logged": us.Logged(n_actions=3), "counted": None}[kind]
    found = us.certify(log, POLICY, behavior=behavior)
    assert (found.lower == 0.0) == (reward == 0.0)
    assert (found.upper == 1500.0) == (reward == 1.0)
    assert found.production == 1500 * reward
    if reward == 0.0:
        assert not found.promoted
        assert np.all(found.lower_curve == 0.0)


def test_production_itself_is_certified_near_what_it_earned() -> None:
    """π = q: the estimate is what production earned, and no gain is ever found."""
    game = watched(5_000)
    found = us.certify(game.log, PI, behavior=PI)
    assert found.estimate == pytest.approx(found.production)
    assert found.lower < found.production < found.upper
    assert found.effective_sample_size == pytest.approx(5_000)
    assert found.self_normalised == pytest.approx(found.production)
    assert (found.promoted, found.promoted_at) == (False, None)
    assert found.gain is not None
    assert -50 < found.gain < 0


def test_a_target_that_plays_nothing_of_the_log() -> None:
    log = us.Log([0] * 40, [1.0] * 40, [0.5] * 40)
    found = us.certify(log, [0.0, 0.0, 1.0], behavior=us.Logged(n_actions=3))
    assert (found.lower, found.upper, found.estimate) == (0.0, 40.0, 0.0)
    assert math.isnan(found.self_normalised)
    assert found.effective_sample_size == 0.0


@pytest.mark.parametrize("q", [1e-100, 1e-50, 1e-12])
def test_propensities_of_any_size(q: float) -> None:
    """One round of weight 1e100 among many: everything stays a number, and lower stays below n."""
    propensities = np.full(50, 0.5)
    propensities[[7, 8, 40]] = q
    log = us.Log(np.zeros(50, dtype=int), np.ones(50), propensities)
    found = us.certify(log, us.Trace(np.full(50, 0.5), 0, 2), behavior=us.Logged(n_actions=2))
    assert all(math.isfinite(x) for x in numbers(found))
    assert 0 < found.lower <= 50
    assert found.promoted_at == 8
    assert np.isfinite(found.certificate.evidence.log_wealths()).all()


def test_logged_propensities_that_are_the_behavior_give_its_bits() -> None:
    """And features are not read: a contextual log is certified by its propensities."""
    game = watched(100)
    features = np.ones((100, 3, 2))
    logged = us.Log(game.log.actions, game.log.rewards, PI[game.log.actions], features)
    plain = us.Trace(game.trace.probability, 0, 3)
    one = us.certify(logged, plain, behavior=us.Logged(3, least_propensity=0.2))
    other = us.certify(game.log, plain, behavior=PI)
    assert numbers(one) == numbers(other)
    event = next(logged.events())
    start = us.Certificate(behavior=us.Logged(n_actions=3))
    assert start.observe(event, 0.5).rounds == 1


def test_a_learner_with_contexts_is_certified_by_its_trace() -> None:
    rng = np.random.default_rng(3)
    features = rng.dirichlet(np.ones(2), size=(300, 3))
    actions, q = rng.integers(3, size=300), np.full(300, 1 / 3)
    rewards = (rng.random(300) < features[np.arange(300), actions, 0]).astype(float)
    learner = us.lin_prod(np.eye(2) / 3, n_actions=3, horizon=300, kappa=6.0)
    _, trace = learner.replay(learner.init(), us.Log(actions, rewards, features=features))
    log = us.Log(actions, rewards, q, features)
    found = us.certify(log, trace, behavior=us.Logged(n_actions=3))
    assert 0 < found.lower < found.estimate < found.upper < 300


def test_targets_in_every_form_are_one() -> None:
    game = watched(50)
    column = POLICY[game.log.actions]
    policies = (POLICY, POLICY.tolist(), us.FixedPolicy(POLICY))
    columns = (column, column.tolist(), us.Trace(column, 0, 3))
    for forms in (policies, columns):  # a column does not show the largest ratio
        found = [numbers(us.certify(game.log, form, behavior=PI)) for form in forms]
        assert all(one == found[0] for one in found)


@pytest.mark.parametrize("kind", KINDS)
def test_curves_end_in_the_totals(kind: str) -> None:
    game = watched(777, kind=kind)
    found = us.certify(game.log, game.trace, behavior=game.behavior)
    assert found.rounds[-1] == 777
    assert found.lower_curve[-1] == found.lower
    assert found.upper_curve[-1] == found.upper
    assert found.production_curve[-1] == found.production
    assert (found.gain_curve is None) == (kind == "counted")
    if found.gain_curve is not None:
        assert found.gain_curve[-1] == found.gain
        assert len(found.gain_curve) == len(found.rounds)
    middle = 60
    n = int(found.rounds[middle])
    early = us.certify(game.log[:n], game.trace[:n], behavior=game.behavior, n_actions=3)
    assert early.rounds.tolist() == found.rounds[: middle + 1].tolist()
    assert early.lower_curve.tolist() == found.lower_curve[: middle + 1].tolist()
    assert early.upper == found.upper_curve[middle]


def test_curves_have_few_points_however_long_the_log() -> None:
    assert len(POINTS) < 2_000
    assert POINTS[-1] > 2**53
    assert (np.diff(POINTS) >= np.maximum(1, POINTS[:-1] * 0.02)).all()
    for n in (1, 2, 50, 51, 52, 53, 1_000):
        log = us.Log(np.zeros(n, dtype=int), np.ones(n))
        rounds = us.certify(log, us.Trace(np.ones(n), 0, 2), behavior=[0.5, 0.5]).rounds.tolist()
        assert rounds == [*(point for point in POINTS.tolist() if point < n), n]


@pytest.mark.large
def test_ten_million_rounds_stay_numbers() -> None:
    n = 10**7
    log = us.Log(np.zeros(n, dtype=int), np.ones(n))
    found = us.certify(log, us.Trace(np.ones(n), 0, 2), behavior=[0.5, 0.5])
    assert found.lower == n  # the weights are 2, more than any mean reward explains
    assert found.estimate == 2 * n
    assert found.promoted_at is not None
    assert len(found.rounds) < 2_000


@pytest.mark.parametrize("kind", KINDS)
def test_snapshots_hold_certificates_bit_for_bit(kind: str, tmp_path: Path) -> None:
    game = watched(333, kind=kind)
    half = game.certificate().observe(game.log[:200], game.trace[:200])
    us.save_certificate(half, tmp_path / "half.json")
    again = us.load_certificate(tmp_path / "half.json")
    rest = (game.log[200:], game.trace[200:])
    assert saved_text(again) == saved_text(half)
    assert saved_text(again.observe(*rest)) == saved_text(game.observed())
    assert numbers(again) == numbers(half)


def damaged(folder: Path, kind: str, changes: dict[str, Any], **form: Any) -> Path:
    """A saved certificate, in whose file some values are others."""
    path = folder / "damaged.json"
    us.save_certificate(watched(40, kind=kind).observed(**form), path)
    data = json.loads(path.read_text(encoding="utf-8"))
    data["certificate"]["evidence"].update(changes)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def row(values: list[Any], dtype: str = "float64") -> Any:
    return {"array": dtype, "shape": [len(values)], "values": values}


ALIKE: dict[str, dict[str, Any]] = {
    "fewer sums": {"sums": row([0.0] * 24)},
    "fewer products": {"products": row([1.0] * 24)},
    "three totals": {"totals": row([1.0] * 3)},
    "more reward than rounds": {"totals": row([1e3, 1.0, 1.0, 1.0])},
    "a crossing after the end": {"crossed": 41},
    "a negative round": {"rounds": -1},
    "half a round": {"rounds": 0.5},
}
FIRST: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("known", changes) for name, changes in ALIKE.items()},
    "a negative sum of logarithms of factors above 1": ("known", {"sums": row([-9.0] * 70)}),
    "products where they were moved": ("known", {"rounds": 48}),
    "products of zero": ("known", {"products": row([0.0] * 70)}),
    "counts of a known behavior": ("known", {"counts": row([40, 0, 0], "int64")}),
    "counts that are not the rounds": ("counted", {"counts": row([40, 0, 1], "int64")}),
    "a crossing without a gain": ("counted", {"crossed": 3}),
    "a crossing that was forgotten": ("known", {"sums": row([9.0] * 70), "crossed": 0}),
}
CENTERED: dict[str, dict[str, Any]] = {
    **ALIKE,
    "products where they were moved": {"rounds": 64},
    "products of zero": {"products": row([0.0] * 184)},
    "a crossing that was forgotten": {"sums": row([9.0] * 184), "crossed": 0},
    "a loss that was forgotten": {"sums": row([0.0] * 140 + [9.0] * 44), "worse": 0},
    "a loss after the end": {"worse": 41},
    "a window less": {"windows": {"array": "float64", "shape": [4, 44], "values": [0.0] * 176}},
    "more usable rows than rows": {"usable": row([41.0, 1.0, 0.0])},
    "more reward than usable rows": {"usable": row([3.0, 4.0, 0.0])},
}


@pytest.mark.parametrize("name", FIRST)
def test_damaged_snapshots_of_rules_1_are_refused(name: str, tmp_path: Path) -> None:
    kind, changes = FIRST[name]
    with pytest.raises(InvalidSnapshot):
        us.load_certificate(damaged(tmp_path, kind, changes, rules=1))


@pytest.mark.parametrize("name", CENTERED)
def test_damaged_snapshots_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSnapshot):
        us.load_certificate(damaged(tmp_path, "known", CENTERED[name]))


@pytest.mark.parametrize("rules", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_undamaged_snapshots_are_not(kind: str, rules: int, tmp_path: Path) -> None:
    found = us.load_certificate(damaged(tmp_path, kind, {}, rules=rules))
    centered = rules == 2 and kind != "counted"
    assert isinstance(found.evidence, Evidence if centered else UncenteredEvidence)
    assert found.rules == rules


def test_a_file_without_a_version_has_the_first_rules(tmp_path: Path) -> None:
    """Files of release 0.5 do not name it; what they hold is written with the same text again."""
    path = damaged(tmp_path, "known", {}, rules=1)
    assert "rules" not in json.loads(path.read_text())["certificate"]
    us.save_certificate(us.load_certificate(path), tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(path.read_text())


def test_evidence_of_other_rules_is_refused(tmp_path: Path) -> None:
    path = damaged(tmp_path, "known", {}, rules=1)
    path.write_text(path.read_text().replace('"confidence"', '"rules": 2, "confidence"'))
    with pytest.raises(InvalidSnapshot, match="no certificate that was made like this one"):
        us.load_certificate(path)


def test_certificates_of_two_versions_do_not_merge() -> None:
    game = watched(50)
    with pytest.raises(InvalidArgument, match=r"rules 1.*observe one of the two logs again"):
        game.observed().merge(game.observed(rules=1))


def test_it_says_the_decision_and_the_bounds() -> None:
    game = watched(1_000)
    found = game.observed()
    said = str(found)
    assert said.startswith(
        f"Promote (first certain after round {found.promoted_at}) after 1,000 rounds."
    )
    least = math.floor((found.gain or 0) / 10) / 100  # rounded outward: what is written holds too
    most = math.ceil((found.gain_upper or 0) / 10) / 100
    assert f" Gain per round: at least +{least:g}; at most +{most:g}; each with 95 %" in said
    assert f"at least {found.lower / 1000:.4f} and at most {found.upper / 1000:.4f} per" in said
    assert f"with 95 % confidence; production earned {found.production / 1000:.4f}." in said
    assert str(us.certify(game.log, game.trace, behavior=PI)) == said
    assert str(us.certify(game.log, PI, behavior=PI)).startswith("Not enough data yet after")
    assert "propensities are estimated" in str(us.certify(game.log, PI, behavior=None))
    assert "nothing observed yet" in str(game.certificate())


LOG = us.Log([0, 1, 2, 0], [1.0, 0.0, 0.5, 1.0])


def test_a_policy_and_a_column_that_agree_are_not_ambiguous() -> None:
    """K = n, and the actions are 0, 1, 2 in turn: both readings are one."""
    found = us.certify(LOG[:3], POLICY, behavior=PI)
    column = us.Trace(POLICY, 0, 3)
    assert numbers(found) == numbers(us.certify(LOG[:3], column, behavior=PI))


def test_grids_are_sorted_and_the_gain_bets_below_one() -> None:
    certificate = us.Certificate(behavior=PI, lambdas=[0.5, 8.0, 1.0])
    assert certificate.lambdas.tolist() == [8.0, 1.0, 0.5]
    assert certificate.bets.grids.tolist() == [8.0, 1.0, 0.5, 8.0, 1.0, 0.5, 0.9, 0.45]
    default = us.Certificate(behavior=PI)
    assert default.lambdas.tolist() == [2.0**-i for i in range(-2, 22)]
    assert default.bets.grids[48:].tolist() == [0.9 * 2.0**-i for i in range(22)]


def test_what_a_caller_changes_later_changes_nothing() -> None:
    mine = PI.copy()
    certificate = us.Certificate(behavior=mine)
    mine[:] = 99.0
    assert certificate.observe(LOG, us.Trace(np.ones(4), 0, 3)).estimate == pytest.approx(6.5)


@pytest.mark.plain
def test_the_picture_of_a_certificate() -> None:
    pytest.importorskip("matplotlib")
    game = watched(500)
    found = us.certify(game.log, game.trace, behavior=PI)
    (axes,) = found.plot().axes
    labels = [line.get_label() for line in axes.get_lines()]
    assert labels[:3] == ["production", "gain, at least", "promotion"]
    (gain,) = [line for line in axes.get_lines() if line.get_label() == "gain, at least"]
    assert found.gain is not None
    assert np.asarray(gain.get_ydata())[-1] == found.gain / 500
    counted = us.certify(game.log, game.trace, behavior=None).plot(title="counted")
    assert [line.get_label() for line in counted.axes[0].get_lines()][:1] == ["production"]
