"""Goals and guardrails decide in the first round in which one window shows them all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import understudy as us
from tests.support import formulas
from tests.support.refusals import assert_refused
from tests.support.saved_values import damaged, saved_form, saved_text
from tests.support.strategies import quick
from understudy.certificates import BaselineRounds, DifferenceCertificate
from understudy.certificates.evidence import POINTS
from understudy.errors import InvalidSnapshot

Array = NDArray[np.float64]
PI = np.array([0.5, 0.5])
SPEED = us.Guardrail("latency_ms", low=0.0, high=2_000.0, better="lower", margin=100.0)
RETURNS = us.Guardrail("returns", low=0.0, high=1.0, better="higher", margin=0.1)


class World(NamedTuple):
    """A log whose goal and metrics are what the actions make of them, and π_t(b_t)."""

    log: us.Log
    target: Array
    metrics: dict[str, Array]

    def unit(self) -> Array:
        columns = [one.unit(self.metrics[one.name]) for one in (SPEED, RETURNS)]
        return np.stack(columns, axis=1)

    def part(self, rounds: slice) -> World:
        metrics = {name: values[rounds] for name, values in self.metrics.items()}
        return World(self.log[rounds], self.target[rounds], metrics)


def world(
    seed: int, n: int, *, slower: float = 0.0, begins_badly: int = 0, missing: float = 0.0
) -> World:
    """Action 1 earns more and is this much slower; at first the policy plays action 0 for sure."""
    rng = np.random.default_rng(seed)
    b = rng.integers(2, size=n)
    R = (rng.random(n) < np.array([0.1, 0.9])[b]).astype(float)
    latency = np.clip(400.0 + slower * b + 100.0 * rng.standard_normal(n), 0.0, 2_000.0)
    returned = (rng.random(n) < 0.5).astype(float)
    for column in (latency, returned):
        column[rng.random(n) < missing] = np.nan
    chance = np.where(np.arange(n) < begins_badly, 0.0, 0.8)
    target = np.where(b == 1, chance, 1.0 - chance)
    return World(us.Log(b, R), target, {"latency_ms": latency, "returns": returned})


def begun(**arguments: Any) -> us.JointCertificate:
    return us.JointCertificate.begin(us.Certificate(PI, **arguments), [SPEED, RETURNS])


def observed(start: us.JointCertificate, seen: World) -> us.JointCertificate:
    return start.advance(seen.log, seen.target, 2.0, seen.unit())


def in_some_window(
    S: Array, bets: Any, n: int, above: float, delta: float, *, loss: bool = False
) -> set[int]:
    """The windows whose bound, a root found by halving, is above this after round n."""
    lambdas, found = np.tile(bets.gains, 2), set()
    for j in range(n.bit_length()):
        if loss and j:
            break
        own = S[n - 1, bets.place(3 if loss else 2)]
        before = S[2**j - 2, bets.place(2)] if j else 0.0
        share = 0.1 * delta / (j * (j + 1)) if j else (delta if loss else 0.9 * delta)
        weights = own - before + np.log(bets.prior) + math.log(len(lambdas))
        root = formulas.lower_root(weights, lambdas, n - 2**j + 1, -math.log(share), -1.0)
        if root > above:
            found.add(j)
    return found


@pytest.mark.parametrize(
    ("seed", "n", "slower", "begins_badly"),
    [(1, 400, 0.0, 0), (2, 500, 50.0, 120), (3, 300, 900.0, 0), (4, 60, 0.0, 0)],
)
def test_decisions_are_in_the_first_point_whose_roots_justify_them(
    seed: int, n: int, slower: float, begins_badly: int
) -> None:
    """All roots of all windows at every point, each of its own share of δ, from formulas alone."""
    seen, delta = world(seed, n, slower=slower, begins_badly=begins_badly, missing=0.02), 0.05
    found, bets = observed(begun(), seen), us.Certificate(PI).bets
    w, W = seen.target / 0.5, np.full(n, 2.0)
    rewards = [seen.log.rewards, *seen.unit().T]
    S = [formulas.centered_wealths(w, R, W, bets.values, bets.gains) for R in rewards]
    above, shares = [0.0, -0.05, -0.1], [delta / 2, delta / 4, delta / 4]
    promoted, broken = 0, [0, 0]
    for t in (point for point in POINTS.tolist() if point <= n):
        each = [in_some_window(S[k], bets, t, above[k], shares[k]) for k in range(3)]
        promoted = promoted or (t if set.intersection(*each) else 0)
        lost = [
            in_some_window(S[k + 1], bets, t, -above[k + 1], delta / 4, loss=True) for k in (0, 1)
        ]
        broken = [at or (t if now else 0) for at, now in zip(broken, lost, strict=True)]
    assert found.crossed == promoted
    assert found.promoted_at == (promoted or None)
    assert list(found.broken_at) == broken
    assert bool(promoted) == (seed < 3)  # the worlds are different ones
    assert bool(broken[0]) == (seed == 3)
    assert found.broken == (seed == 3, False)


def test_shares_of_the_goal_and_of_the_guardrails_are_those_of_one_statement() -> None:
    for m in (1, 2, 5):
        metrics = [us.Guardrail(f"m{k}", 0.0, 1.0, "higher", 0.1) for k in range(m)]
        joint = us.JointCertificate.begin(us.Certificate(PI, 0.9), metrics)
        spent = 1 - joint.goal.confidence + sum(1 - one.confidence for one in joint.guardrails)
        assert spent == pytest.approx(0.1)
        assert 1 - joint.goal.confidence == pytest.approx(0.05)
        assert joint.confidence == pytest.approx(0.9)


@pytest.mark.parametrize("cuts", [(0,), (1, 2, 3), (250, 251), (399, 400)])
def test_any_batching_gives_the_same_bits(cuts: tuple[int, ...]) -> None:
    seen = world(2, 400, slower=500.0, begins_badly=100, missing=0.05)
    certificate = begun()
    for low, high in zip((0, *cuts), (*cuts, 400), strict=True):
        certificate = observed(certificate, seen.part(slice(low, high)))
    assert saved_text(certificate) == saved_text(observed(begun(), seen))


@pytest.mark.parametrize(("seed", "n", "slower"), [(0, 450, 0.0), (3, 300, 900.0)])
def test_a_decision_between_two_points_is_that_of_the_next_one(
    seed: int, n: int, slower: float
) -> None:
    """Round by round, as a live study observes, and all at once."""
    seen, certificate, between = world(seed, n, slower=slower), begun(), 0
    for t in range(n):
        certificate = observed(certificate, seen.part(slice(t, t + 1)))
        between += certificate.promoted and not certificate.crossed
        between += certificate.broken[0] and not certificate.broken_at[0]
    assert saved_text(certificate) == saved_text(observed(begun(), seen))
    assert between > 0  # it is said at once, and kept from the next point on


def test_a_log_is_observed_as_its_columns_are() -> None:
    seen = world(5, 200, missing=0.1)
    trace = us.Trace(seen.target, 0, 2)
    found = begun().observe(seen.log, trace, seen.metrics)
    assert saved_text(found) == saved_text(observed(begun(), seen))
    assert (
        found.goal.gain == us.Certificate(PI, found.goal.confidence).observe(seen.log, trace).gain
    )
    event = us.Feedback(1, 1.0)
    metrics: dict[str, Any] = {"latency_ms": [300.0], "returns": 1.0}
    one = begun().observe(event, us.FixedPolicy([0.2, 0.8]), metrics)
    assert one.rounds == 1


@pytest.mark.parametrize("kind", ["pairs", "by round", "difference"])
def test_a_joint_certificate_may_have_a_baseline(kind: str) -> None:
    """Goal and guardrails are then each against it."""
    seen, policy = world(6, 1_500, slower=-200.0), us.FixedPolicy([1.0, 0.0])
    goal: Any = us.Certificate(PI)
    if kind == "pairs":
        goal = us.Certificate(PI, against=policy.probabilities)
    elif kind == "by round":
        goal = us.Certificate(PI, baseline_ratio=2.0)
    else:
        goal = DifferenceCertificate(goal, goal)
    joint = us.JointCertificate.begin(goal, [SPEED])
    own = {"latency_ms": seen.metrics["latency_ms"]}
    trace = us.Trace(seen.target, 0, 2)
    found = joint.observe(seen.log, trace, own, *([] if kind == "pairs" else [policy]))
    assert found.promoted
    unit = SPEED.unit(own["latency_ms"])
    alone = goal.with_confidence(found.guardrails[0].confidence)
    other = BaselineRounds(policy.probabilities[seen.log.actions], np.full(1_500, 2.0))
    after = alone.advance(seen.log.with_rewards(unit), seen.target, 2.0, other)
    assert found.guardrails[0].gain == after.gain
    assert found.guardrails[0].gain_upper == after.gain_upper
    crossed = next(
        n
        for n in POINTS.tolist()
        if joint.observe(
            seen.log[:n],
            us.Trace(seen.target[:n], 0, 2),
            {"latency_ms": own["latency_ms"][:n]},
            *([] if kind == "pairs" else [policy]),
        ).shows_gain()
    )
    assert found.promoted_at == crossed


# ---------------------------------------------------------------------------- missing values


@quick
@given(data=st.data())
def test_a_metric_that_is_missing_never_helps(data: st.DataObject) -> None:
    """With constant centers: no wealth of its gain or its loss grows, and no decision is sooner."""
    seed, n = data.draw(st.integers(0, 10**6)), 150
    seen = world(seed, n, slower=data.draw(st.sampled_from([0.0, 900.0])))
    lost = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    lost &= np.random.default_rng(seed).random(n) < data.draw(st.sampled_from([0.02, 1.0]))
    gone = {**seen.metrics, "latency_ms": np.where(lost, np.nan, seen.metrics["latency_ms"])}
    start = begun(centers=[0.25, 0.75])
    whole, less = observed(start, seen), observed(start, seen._replace(metrics=gone))
    never = n + 1
    assert (less.crossed or never) >= (whole.crossed or never)
    assert (less.broken_at[0] or never) >= (whole.broken_at[0] or never)
    assert saved_form(less.goal) == saved_form(whole.goal)  # for this guardrail alone
    assert saved_form(less.guardrails[1]) == saved_form(whole.guardrails[1])
    first: Any = whole.guardrails[0]
    for part in (2, 3):
        before, after = (
            one.guardrails[0].evidence.log_wealths()[first.bets.place(part)]
            for one in (whole, less)
        )
        assert (after <= before + 1e-9).all()


def test_guard_a_metric_that_is_missing_when_it_is_bad() -> None:
    """A time-out has no latency: without these rows the new action looks fast."""
    rng, n = np.random.default_rng(7), 4_000
    b = rng.integers(2, size=n)
    R = (rng.random(n) < np.array([0.2, 0.6])[b]).astype(float)
    latency = np.where((b == 1) & (rng.random(n) < 0.3), np.nan, 500.0)  # 30 % time out, at 2 s
    joint = us.JointCertificate.begin(us.Certificate(PI), [SPEED])
    policy = us.FixedPolicy([0.0, 1.0])
    right = joint.observe(us.Log(b, R), policy, {"latency_ms": latency})
    assert not right.promoted  # 225 ms slower than production, at a margin of 100
    assert right.goal.promoted
    seen = ~np.isnan(latency)
    wrong = joint.observe(us.Log(b[seen], R[seen]), policy, {"latency_ms": latency[seen]})
    assert wrong.promoted


def test_guard_windows_of_their_own() -> None:
    """The goal gains until the guardrail begins to hold: no window since which both are true."""
    rng, n = np.random.default_rng(8), 3_000
    b, late = rng.integers(2, size=n), np.arange(n) >= 2_000
    R = rng.random(n) < np.where(late == (b == 1), 0.1, 0.9)
    value = rng.random(n) < np.where(late, np.where(b == 1, 1.0, 0.5), np.where(b == 1, 0.0, 1.0))
    joint = us.JointCertificate.begin(us.Certificate(PI), [RETURNS])
    log, policy = us.Log(b, R.astype(float)), us.FixedPolicy([0.0, 1.0])
    found = joint.observe(log, policy, {"returns": value.astype(float)})
    assert found.goal.shows_gain()
    assert found.guardrails[0].shows_gain(-0.1, window=11)  # since round 2 048
    assert not found.promoted
    assert found.broken == (True,)


# ------------------------------------------------------------------------------------ guardrails


def test_the_scale_of_a_guardrail() -> None:
    found = SPEED.unit([0.0, 2_000.0, 500.0, -1.0, 2_001.0, np.nan])
    np.testing.assert_allclose(found, [1.0, 0.0, 0.75, np.nan, np.nan, np.nan])
    np.testing.assert_allclose(RETURNS.unit([0.0, 0.25, 1.0]), [0.0, 0.25, 1.0])
    assert (SPEED.unit_margin, RETURNS.unit_margin) == (0.05, 0.1)
    assert (SPEED.gain(-0.05), RETURNS.gain(-0.05)) == (100.0, -0.05)
    wide = us.Guardrail("x", -1e100, 1e100, "higher", 0.0)
    np.testing.assert_allclose(wide.unit([-1e100, 0.0, 1e100]), [0.0, 0.5, 1.0])


WRONG: dict[str, tuple[Any, str, str]] = {
    "no range": (lambda: us.Guardrail("x", 1.0, 1.0, "higher", 0.0), "high", "range"),
    "a margin of the range": (
        lambda: us.Guardrail("x", 0.0, 1.0, "higher", 1.0),
        "margin",
        "smaller margin",
    ),
    "a negative margin": (
        lambda: us.Guardrail("x", 0.0, 1.0, "higher", -0.1),
        "margin",
        "at least 0",
    ),
    "another direction": (
        lambda: us.Guardrail("x", 0.0, 1.0, "up", 0.1),
        "better",
        "'higher' or 'lower'",
    ),
    "no guardrail": (
        lambda: us.JointCertificate.begin(us.Certificate(PI), []),
        "metrics",
        "no guardrail",
    ),
    "no guardrails but names": (
        lambda: us.JointCertificate.begin(us.Certificate(PI), ["x"]),  # type: ignore[list-item]
        "metrics",
        "us.Guardrail",
    ),
    "two of a name": (
        lambda: us.JointCertificate.begin(us.Certificate(PI), [SPEED, SPEED]),
        "metrics",
        "same name",
    ),
    "a goal that has observed": (
        lambda: us.JointCertificate.begin(
            us.Certificate(PI).observe(us.Feedback(0, 1.0), 0.5), [SPEED]
        ),
        "goal",
        "just made",
    ),
    "no goal": (
        lambda: us.JointCertificate.begin("x", [SPEED]),  # type: ignore[arg-type]
        "goal",
        "us.Certificate",
    ),
    "a metric left out": (
        lambda: begun().observe(us.Feedback(0, 1.0), 0.5, {"returns": 1.0}),
        "metrics",
        "'latency_ms', 'returns'",
    ),
    "no mapping": (
        lambda: begun().observe(us.Feedback(0, 1.0), 0.5, [1.0, 1.0]),  # type: ignore[arg-type]
        "metrics",
        "by its name",
    ),
    "too many values": (
        lambda: begun().observe(
            us.Feedback(0, 1.0), 0.5, {"returns": 1.0, "latency_ms": [1.0, 2.0]}
        ),
        "metrics['latency_ms']",
        "1 number, one per round",
    ),
    "texts": (
        lambda: begun().observe(us.Feedback(0, 1.0), 0.5, {"returns": 1.0, "latency_ms": ["fast"]}),
        "metrics['latency_ms']",
        "nan where one is missing",
    ),
    "a baseline of production's": (
        lambda: begun().observe(
            us.Feedback(0, 1.0), 0.5, {"returns": 1.0, "latency_ms": 1.0}, us.FixedPolicy(PI)
        ),
        "baseline",
        "without baseline_ratio",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str) -> None:
    call, argument, part = WRONG[name]
    refused = assert_refused(call, argument, part)
    assert refused.argument == argument


# ----------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("kind", ["production", "difference"])
def test_files_give_every_bit_back(kind: str, tmp_path: Path) -> None:
    seen, goal = world(9, 1_000, slower=900.0, missing=0.02), us.Certificate(PI)
    start = begun()
    own: list[Any] = []
    if kind == "difference":
        own = [us.FixedPolicy([1.0, 0.0])]
        start = us.JointCertificate.begin(DifferenceCertificate(goal, goal), [SPEED, RETURNS])
    first, second = seen.part(slice(140)), seen.part(slice(140, None))
    half = start.observe(first.log, us.Trace(first.target, 0, 2), first.metrics, *own)
    us.save_certificate(half, tmp_path / "half.json")
    again = us.load_certificate(tmp_path / "half.json")
    after = [
        one.observe(second.log, us.Trace(second.target, 0, 2), second.metrics, *own)
        for one in (half, again)
    ]
    assert saved_text(after[0]) == saved_text(after[1])
    assert repr(after[0]) == repr(after[1])
    assert after[0].broken == (True, False)


DAMAGES: dict[str, dict[str, Any]] = {
    "a later round": {"crossed": 10**6},
    "a negative round": {"crossed": -1},
    "a negative round of a guardrail": {"broken_at.1": -1},
    "a later round of a guardrail": {"broken_at.1": 10**6},
    "half a round": {"broken_at.0": 0.5},
    "too few rounds": {"broken_at": [0]},
    "too few guardrails": {"guardrails": []},
    "no guardrail": {"guardrails": [], "metrics": [], "broken_at": []},
    "no metric": {"metrics.0": 3},
    "a metric for a certificate": {"guardrails.0": {"kind": "Logged", "n_actions": 2}},
    "a certificate for a metric": {"metrics.0": {"kind": "Logged", "n_actions": 2}},
    "two of a name": {"metrics.1.name": "latency_ms"},
    "another share": {"guardrails.0.confidence": 0.9},
    "a goal of nothing": {"goal.confidence": 0.4},
    "a guardrail without rounds": {"guardrails.1": "none"},
    "a margin above the range": {"metrics.0.margin": 5_000.0},
    "no goal": {"goal": None},
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    whole, path = observed(begun(), world(9, 100)), tmp_path / "damaged.json"
    path.write_text(damaged(whole, {}))
    assert us.load_certificate(path).rounds == 100
    fresh = {"guardrails.1": saved_form(begun().guardrails[1])}
    path.write_text(damaged(whole, fresh if "without rounds" in name else DAMAGES[name]))
    with pytest.raises(InvalidSnapshot):
        us.load_certificate(path)


def test_the_words_say_what_was_decided() -> None:
    assert repr(begun()) == "JointCertificate(95 % confidence, nothing observed yet)"
    promoted = observed(begun(), world(1, 400))
    assert repr(promoted).startswith(
        "Promote after 400 rounds, with 95 % confidence. Goal: Promote"
    )
    assert repr(observed(begun(), world(3, 400, slower=900.0))).startswith(
        "Broken: latency_ms after"
    )
    assert repr(observed(begun(), world(1, 10))).startswith("Not enough data yet after 10 rounds")
