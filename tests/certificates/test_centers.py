"""Centered bets: the kernel against a formula a line, largest ratios, and where no center is valid.

Each guard has a world in which a certificate without it is false.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import understudy as us
from tests.support import formulas
from tests.support.falling import falling, never_wrong
from tests.support.saved_values import saved_text
from tests.support.strategies import behaviors, quick, seeds
from understudy.certificates import largest_ratios
from understudy.errors import InvalidArgument, InvalidEvent

Array = NDArray[np.float64]
LOGGED = us.Logged(n_actions=3)
RATIO = st.floats(1.0, 3.0) | st.floats(1.0, 1e6)


@st.composite
def rows(draw: st.DrawFn) -> tuple[Array, Array, Array]:
    """w, R and W ≥ w of rows, of which some lack w, R or W."""
    n = draw(st.integers(1, 70))
    W = np.array(draw(st.lists(RATIO, min_size=n, max_size=n)))
    w = W * np.array(draw(st.lists(st.floats(0.0, 1.0), min_size=n, max_size=n)))
    R = np.array(draw(st.lists(st.sampled_from([0.0, 1.0, 0.25, 0.9]), min_size=n, max_size=n)))
    kind = np.array(draw(st.lists(st.integers(0, 11), min_size=n, max_size=n)))
    w[(kind == 1) | (kind == 3)] = np.nan
    R[(kind == 2) | (kind == 3)] = np.nan
    W[(kind == 4)] = np.inf
    W[(kind == 5)] = np.nan
    return w, R, W


def observed(start: us.Certificate, w: Array, R: Array, W: Array) -> us.Certificate:
    """The certificate after rows with these columns, whose propensities are 1."""
    log = us.Log._of(np.zeros(len(R), dtype=np.int64), R, np.ones(len(R)))
    return start.advance(log, w, W)


@quick
@given(columns=rows(), centers=st.sampled_from([None, [0.25, 1.0]]))
def test_the_kernel_is_the_formula(
    columns: tuple[Array, Array, Array], centers: list[float] | None
) -> None:
    start = us.Certificate(behavior=LOGGED, centers=centers)
    S = formulas.centered_wealths(*columns, start.bets.values, start.bets.gains, centers=centers)
    found = observed(start, *columns)
    np.testing.assert_allclose(found.evidence.log_wealths(), S[-1], rtol=1e-9, atol=1e-9)
    if centers is None:
        windows = [S[2**j - 2][start.bets.place(2)] for j in range(1, 8) if 2**j <= len(S)]
        wanted = np.array(windows).reshape(-1, 44)
        np.testing.assert_allclose(found.evidence.windows, wanted, rtol=1e-9, atol=1e-9)


@quick
@given(columns=rows(), cut=st.integers(0, 70))
def test_any_batching_gives_the_same_bits(columns: tuple[Array, Array, Array], cut: int) -> None:
    start = us.Certificate(behavior=LOGGED)
    first, second = ([x[part] for x in columns] for part in (slice(cut), slice(cut, None)))
    both = observed(observed(start, *first), *second)
    assert saved_text(both) == saved_text(observed(start, *columns))


@quick
@given(columns=rows(), confidence=st.floats(0.05, 0.99))
def test_decisions_are_in_the_first_round_that_justifies_them(
    columns: tuple[Array, Array, Array], confidence: float
) -> None:
    """By the mixture after every round, by windows after the rounds in which they are looked at."""
    certificate = observed(us.Certificate(behavior=LOGGED, confidence=confidence), *columns)
    bets, n = certificate.bets, len(columns[0])
    S = formulas.centered_wealths(*columns, bets.values, bets.gains)
    evidence: Any = certificate.evidence
    found = evidence.crossed or n + 1, evidence.worse or n + 1
    assert found == formulas.first_decisions(S, bets)


# ----------------------------------------------------------------------------- rows that are not


@quick
@given(data=st.data())
def test_a_row_that_cannot_be_used_has_the_least_wealth_of_all_that_it_may_be(
    data: st.DataObject,
) -> None:
    """Every part and bet, for any w ≤ W and any R that agree with what is known of the row."""
    draw = data.draw
    W = draw(st.floats(1.0, 50.0))
    past_w, past_R = (
        np.array(draw(st.lists(st.floats(0, 1), min_size=3, max_size=3))) for _ in range(2)
    )
    known_w, known_R = draw(st.booleans()), draw(st.booleans())
    w, R = draw(st.floats(0.0, 1.0)) * W, draw(st.floats(0.0, 1.0))
    start = observed(us.Certificate(behavior=LOGGED), past_w, past_R, np.full(3, 2.0))
    row = np.array([w]), np.array([R]), np.array([W])
    missing = np.array([np.nan])
    unusable = (
        row[0] if known_w and not known_R else missing,
        row[1] if known_R else missing,
        row[2]
        if known_w and not known_R
        else np.array([draw(st.sampled_from([W, 2.0 * W, np.nan]))]),  # the row's own W, or more
    )
    least, real = (observed(start, *x).evidence.log_wealths() for x in (unusable, row))
    assert (least <= real + 1e-9).all()


# ------------------------------------------------------------------------------- largest ratios

BEHAVIOR = np.array([0.5, 0.3, 0.2])
GRID = us.Logged(n_actions=3)
LEARNERS: dict[str, Any] = {
    "exp3_ix": us.exp3_ix(BEHAVIOR, horizon=500),
    "exp3_ix, no horizon": us.exp3_ix(BEHAVIOR),
    "prod, prior": us.prod(BEHAVIOR, horizon=500, prior="behavior"),
    "exp3_ix_unknown": us.exp3_ix_unknown(n_actions=3, horizon=500),
    "coverage_adaptive": us.coverage_adaptive(BEHAVIOR, horizon=500),
    "coverage_adaptive, no horizon": us.coverage_adaptive(BEHAVIOR),
    "coverage_adaptive, logged": us.coverage_adaptive(GRID, horizon=500),
    "prod_grid": us.prod_grid(BEHAVIOR),
    "prod_grid, logged": us.prod_grid(GRID),
    "exp4": us.exp4(BEHAVIOR, {"production": "production", "ix": us.exp3_ix(BEHAVIOR, eta=0.5)}),
}


def played(seed: int, n: int = 1_500) -> tuple[us.Log, Any]:
    rng = np.random.default_rng(seed)
    actions = rng.choice(3, p=BEHAVIOR, size=n)
    rewards = (rng.random(n) < np.array([0.2, 0.5, 0.8])[actions]).astype(float)
    return us.Log(actions, rewards), rng


@pytest.mark.parametrize("name", LEARNERS)
def test_a_trace_bounds_the_largest_ratio(name: str) -> None:
    """π_t(a) v(a) ≤ follows + largest for all a; exactly so for learners of one rate per action."""
    learner, (log, _) = LEARNERS[name], played(1)
    if learner.spec.propensities:
        log = us.Log(log.actions, log.rewards, BEHAVIOR[log.actions])
    _, trace = learner.replay(learner.init(), log)
    production = np.broadcast_to(BEHAVIOR, (len(log), 3))
    if learner.spec.outside:
        _, policies = learner.policies(learner.init(), log, production=production)
    else:
        _, policies = learner.policies(learner.init(), log)
    vector = trace.inverse is not None
    assert vector == (not learner.spec.propensities and name != "exp3_ix_unknown")
    ratios = policies / BEHAVIOR if vector else policies
    own = trace.follows if vector else trace.follows[:, np.newaxis] * BEHAVIOR
    wanted = (ratios - (own[:, np.newaxis] if vector else own)).max(axis=1)
    assert (trace.largest >= wanted - 1e-9).all()
    if "grid" not in name and "logged" not in name and name != "exp4":
        np.testing.assert_allclose(trace.largest, wanted, rtol=1e-9)
    elif name != "exp4":
        assert (trace.largest <= 3.0 * wanted + 1e-9).mean() > 0.95  # it is no crude bound
    W = largest_ratios(trace, log, BEHAVIOR if vector else us.Logged(3, 0.2))
    assert ((policies / BEHAVIOR).max(axis=1) - 1e-9 <= W).all()
    assert (W <= 5.0).all()


@pytest.mark.parametrize("name", LEARNERS)
def test_the_largest_ratio_of_a_round_does_not_depend_on_batches(name: str) -> None:
    learner, (log, _) = LEARNERS[name], played(2, 1_100)
    if learner.spec.propensities:
        log = us.Log(log.actions, log.rewards, BEHAVIOR[log.actions])
    state, first = learner.replay(learner.init(), log[:333])
    _, second = learner.replay(state, log[333:])
    _, whole = learner.replay(learner.init(), log)
    for column in ("largest", "follows"):
        parts = [getattr(trace, column) for trace in (first, second)]
        assert np.concatenate(parts).tolist() == getattr(whole, column).tolist()


@quick
@given(seed=seeds, pi_b=behaviors(zeros=True))
def test_ratios_of_all_kinds_of_targets(seed: int, pi_b: Array) -> None:
    """A policy has its own; a column that of any policy; inf where an action is never shown."""
    K, rng = len(pi_b), np.random.default_rng(seed)
    policy = rng.dirichlet(np.ones(K))
    log = us.Log(rng.choice(K, p=pi_b, size=5), rng.random(5))
    exact = largest_ratios(us.FixedPolicy(policy), log, pi_b)
    crude = largest_ratios(us.Trace(policy[log.actions], 0, K), log, pi_b)
    if (pi_b == 0).any():
        assert np.isinf(exact).all()
        assert np.isinf(crude).all()
        return
    np.testing.assert_allclose(exact, (policy / pi_b).max())
    np.testing.assert_allclose(crude, 1 / pi_b.min())
    q = us.Log(log.actions, log.rewards, pi_b[log.actions])
    assert np.isinf(largest_ratios(policy, q, us.Logged(K))).all()
    f = pi_b.min()
    found = largest_ratios(us.FixedPolicy(policy), q, us.Logged(K, least_propensity=f))
    np.testing.assert_allclose(found, policy.max() / f)
    vectors = us.Log(q.actions, q.rewards, q.propensities, propensity_vectors=np.tile(pi_b, (5, 1)))
    np.testing.assert_allclose(largest_ratios(us.FixedPolicy(policy), vectors, us.Logged(K)), exact)
    trace = us.Trace(policy[log.actions], 0, K, np.full(5, policy.max()), np.zeros(5))
    np.testing.assert_allclose(largest_ratios(trace, vectors, us.Logged(K)), policy.max() / f)


@pytest.mark.parametrize("inverse", [None, 1 / BEHAVIOR])
def test_a_largest_probability_below_that_of_a_logged_action_is_refused(
    inverse: Array | None,
) -> None:
    """With such a ratio a bet could lose more than it has."""
    log, most = us.Log([0, 1], [1.0, 0.0]), np.array([0.5, 0.4]) * (1 if inverse is None else 2)
    trace = us.Trace(np.array([0.5, 0.9]), 0, 3, most, inverse=inverse)
    with pytest.raises(
        InvalidArgument, match=r"^target\.largest = 0\.[48]: the logged action of round 1"
    ):
        us.certify(log, trace, behavior=BEHAVIOR)
    follows = us.Trace(trace.probability, 0, 3, most, np.full(2, 2.2), inverse)
    assert us.certify(log, follows, behavior=BEHAVIOR).certificate.rounds == 2


def test_a_learner_that_may_play_an_action_that_is_never_shown_has_no_center() -> None:
    pi_b = np.array([0.5, 0.5, 0.0])
    log = us.Log([0, 1, 0], [1.0, 0.0, 1.0])
    learners: list[tuple[Any, bool]] = [
        (us.exp3_ix(pi_b, eta=0.1), False),
        (us.coverage_adaptive(pi_b, horizon=3), True),
    ]
    for learner, finite in learners:
        _, trace = learner.replay(learner.init(), log)
        assert np.isfinite(largest_ratios(trace, log, pi_b)).all() == finite


# ------------------------------------------------------- guards: false certificates without them


def test_guard_an_action_that_is_never_shown() -> None:
    """The target plays it most of the time, and no reward of it is ever seen: it may be 0."""
    pi_b, policy, R = np.array([0.5, 0.5, 0.0]), np.array([0.2, 0.2, 0.6]), falling()
    rng = np.random.default_rng(0)
    log, gains = us.Log(rng.integers(2, size=len(R)), R), -0.6 * R
    start = us.Certificate(behavior=pi_b)
    assert never_wrong(start.observe(log, us.FixedPolicy(policy)), gains)
    wrong = start.advance(log, policy[log.actions], 1.0)  # W as if π and q had one support
    assert wrong.promoted
    assert not never_wrong(wrong, gains)


def test_guard_propensities_that_are_counted() -> None:
    """Upper confidence bounds on q make w too small on purpose."""
    K, R, rng = 200, falling(), np.random.default_rng(2)
    log = us.Log(rng.integers(K, size=len(R)), R)
    counted = us.Certificate(behavior=None, n_actions=K)
    policy = us.FixedPolicy(np.full(K, 1 / K))
    assert not counted.centered
    assert counted.observe(log, policy).gain is None
    evidence: Any = counted.evidence
    q, _ = evidence.count(log.actions, 0.01)
    assert (q > 1 / K).mean() > 0.99
    as_if = us.Log(log.actions, R, q)
    wrong = us.Certificate(behavior=us.Logged(K)).advance(as_if, np.full(len(R), 1 / K), 1.0)
    assert not never_wrong(wrong, np.zeros(len(R)))


def test_guard_a_ratio_that_is_known_after_the_action_only() -> None:
    """The logged propensities show q_t(b_t): a W made of it gives another center to each action."""
    rng, n = np.random.default_rng(3), 3_000
    q = np.where(rng.random(n) < 0.01, 0.01, 0.99)
    w = np.where(q < 0.5, 100.0, 0.0)
    log = us.Log((q > 0.5).astype(int), np.full(n, 0.5), q)
    start = us.Certificate(behavior=us.Logged(2))
    assert never_wrong(start.observe(log, us.FixedPolicy([1.0, 0.0])), np.zeros(n))
    wrong = start.advance(log, w * q, np.maximum(w, 1.0))
    assert wrong.evidence.crossed
    assert not never_wrong(wrong, np.zeros(n))


def test_guard_deterministic_rows_under_a_declared_least_propensity() -> None:
    """In a row of propensity 1 another action has none, so the policy's weight is too small."""
    R, f = falling(), 0.1
    n = len(R)
    deterministic = np.arange(n) % 2 == 0
    log = us.Log(np.zeros(n, dtype=int), R, np.where(deterministic, 1.0, 0.9))
    start = us.Certificate(behavior=us.Logged(2, least_propensity=f))
    with pytest.raises(InvalidEvent, match=r"which leaves at most 0.9 for"):
        start.observe(log, us.FixedPolicy([0.5, 0.5]))
    wrong = start.advance(log, np.full(n, 0.5), 0.5 / f)
    assert not never_wrong(wrong, np.zeros(n))


# ---------------------------------------------------------------------------------- what users see


def test_windows_show_that_a_learner_has_become_good() -> None:
    """It loses in the first rounds, and gains later: only a window can say so early."""
    rng, n = np.random.default_rng(5), 2_500
    b = rng.integers(2, size=n)
    R = (rng.random(n) < np.array([0.2, 0.8])[b]).astype(float)
    policies = np.where(np.arange(n)[:, np.newaxis] < 1_500, [[1.0, 0.0]], [[0.0, 1.0]])
    trace = us.Trace(policies[np.arange(n), b], 0, 2)
    found = us.certify(us.Log(b, R), trace, behavior=[0.5, 0.5])
    assert found.gain is not None
    assert found.gain < 0
    assert found.promoted
    assert found.window is not None
    assert found.window.start == 2_048
    assert 0.1 < found.window.gain < 0.3
    assert "since round 2,048" in repr(found)
    assert found.promoted_at is not None
    assert 2_048 < found.promoted_at < 2_300


def test_a_worse_policy_is_worse() -> None:
    rng, n = np.random.default_rng(6), 3_000
    b = rng.choice(2, p=[0.8, 0.2], size=n)
    R = (rng.random(n) < np.array([0.9, 0.6])[b]).astype(float)
    found = us.certify(us.Log(b, R), us.FixedPolicy([0.0, 1.0]), behavior=[0.8, 0.2])
    assert found.worse
    assert found.worse_at is not None
    assert not found.promoted
    assert found.gain_upper is not None
    assert -0.24 * n - 100 < found.gain_upper < 0
    assert repr(found).startswith(
        "Worse than production after 3,000 rounds. Gain per round: at least −"
    )
    first = us.certify(us.Log(b, R), us.FixedPolicy([0.0, 1.0]), behavior=[0.8, 0.2], rules=1)
    assert (first.worse, first.worse_at, first.gain_upper) == (None, None, None)


def test_the_least_propensity_is_checked() -> None:
    behavior = us.Logged(3, least_propensity=0.1)
    assert repr(behavior) == "Logged(n_actions=3, least_propensity=0.1)"
    start = us.Certificate(behavior=behavior)
    with pytest.raises(
        InvalidEvent, match=r"propensity of event 1 = 0.05: the least propensity is"
    ):
        start.observe(us.Log([0, 1], [1.0, 1.0], [0.5, 0.05]), [0.5, 0.5])
    with pytest.raises(InvalidEvent, match=r"which leaves at most 0.8 for"):
        start.observe(us.Feedback(0, 1.0, propensity=0.9), 0.5)
    with pytest.raises(InvalidArgument, match=r"sum to more than 1"):
        us.Logged(3, least_propensity=0.4)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[0.5, 0.6, 0.1]], r"sums to 1.2"),
        ([[0.4, 0.5, 0.1]], r"gives the logged action 0.4, whose propensity is 0.5"),
        ([[0.500002, 0.499998, 0.0]], r"gives the logged action 0.500002"),
        ([[0.5, 0.5]], r"1 events of 3 actions need \(1, 3\)"),
        (
            [[0.5, 0.49, 0.01]],
            r"an action 0.01, and the least propensity is declared as 0.05; decl",
        ),
        ([[0.5, 0.5, 0.0]], r"an action 0, and the least propensity is declared as 0.05; declare"),
    ],
)
def test_propensity_vectors_are_checked(vectors: Any, message: str) -> None:
    log = us.Log([0], [1.0], [0.5], propensity_vectors=vectors)
    with pytest.raises(InvalidEvent, match=message):
        us.Certificate(behavior=us.Logged(3, least_propensity=0.05)).observe(log, 0.5)


def test_the_entry_of_a_vector_is_the_propensity() -> None:
    """A weight by a rounded propensity would be above W, and a bet could lose more than it has."""
    q = np.array([1e-7, 1.0 - 1e-7])
    rounded = us.Log([0, 1], [1.0, 0.0], [5e-7, 1.0], propensity_vectors=np.stack([q, q]))
    exact = us.Log([0, 1], [1.0, 0.0], q, propensity_vectors=np.stack([q, q]))
    start = us.Certificate(behavior=us.Logged(2))
    policy = us.FixedPolicy([0.5, 0.5])
    assert saved_text(start.observe(rounded, policy)) == saved_text(start.observe(exact, policy))


def test_vectors_of_a_known_or_counted_behavior_are_not_read() -> None:
    log = us.Log([0], [1.0], propensity_vectors=[[0.9, 0.1]])
    for behavior in ([0.5, 0.5], None):
        start = us.Certificate(behavior=behavior, n_actions=2)
        with pytest.raises(InvalidEvent, match=r"propensity_vectors = .* it is not read here"):
            start.observe(log, [0.5, 0.5])


def test_a_vector_may_come_with_an_event() -> None:
    event = us.Feedback(0, 1.0, propensity=0.5, propensity_vector=[0.5, 0.3, 0.2])
    log = us.Log([0], [1.0], [0.5], propensity_vectors=[[0.5, 0.3, 0.2]])
    start = us.Certificate(behavior=LOGGED)
    policy = us.FixedPolicy([0.1, 0.1, 0.8])
    assert saved_text(start.observe(event, policy)) == saved_text(start.observe(log, policy))
    plain = us.Log([0], [1.0], [0.5])
    assert saved_text(start.observe(event, policy)) != saved_text(start.observe(plain, policy))


FORMS: dict[str, Callable[[], object]] = {
    "zero": lambda: us.Certificate(behavior=LOGGED, centers=[0.0]),
    "rules 1": lambda: us.Certificate(behavior=LOGGED, centers=[0.5], rules=1),
    "counted": lambda: us.Certificate(behavior=None, n_actions=2, centers=[0.5]),
}


@pytest.mark.parametrize("name", FORMS)
def test_centers_that_no_certificate_has(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^centers = .*; "):
        FORMS[name]()


def test_vectors_do_not_stand_for_the_propensities_of_logged_actions() -> None:
    log = us.Log([0], [1.0], propensity_vectors=[[0.5, 0.5]])
    with pytest.raises(InvalidEvent, match="beside the vectors"):
        us.certify(log, [0.5, 0.5], behavior=us.Logged(2))


@pytest.mark.parametrize("kind", ["policy", "trace"])
def test_guard_a_least_propensity_that_the_plays_contradict(kind: str) -> None:
    """Action 2 is never possible, and no propensity shows it: centers make a gain of nothing."""
    rng, n = np.random.default_rng(0), 4_000
    b = (rng.random(n) < 0.4).astype(int)
    log = us.Log(b, (rng.random(n) < np.array([0.95, 0.6])[b]) * 1.0, np.array([0.6, 0.4])[b])
    known = us.Logged(3, least_propensity=0.2)
    policy, truth = us.FixedPolicy([0.5, 0.0, 0.5]), 0.475
    target: Any = policy
    if kind == "trace":
        _, target = (learner := us.exp3_ix(us.Logged(3))).replay(learner.init(), log)
    with pytest.raises(InvalidEvent, match=r"action 2 in 0 of 4,000 rounds.: the least propensity"):
        us.certify(log, target, behavior=known)
    unguarded = us.Certificate(known).observe(log, policy)
    assert unguarded.lower / n > truth + 0.3
    others = us.certify(log, us.FixedPolicy([0.5, 0.5, 0.0]), behavior=known)
    assert others.certificate.centered_rounds == n
    for seed in range(100):  # a right one is not refused
        rng = np.random.default_rng(seed)
        b = rng.choice(3, 500, p=[0.6, 0.2, 0.2])
        right = us.Log(b, np.ones(500), np.array([0.6, 0.2, 0.2])[b])
        assert us.certify(right, policy, behavior=known).certificate.centered_rounds == 500
