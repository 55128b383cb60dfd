"""Rows that certificates cannot use, or not centered (`understudy.logs.runs.certificate_path`)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.falling import falling, never_wrong
from understudy.logs.runs.certificate_path import (
    CertificatePath,
    among_all,
    with_unusable,
    without_first_plays,
)

LOGGED = us.Logged(n_actions=3)
Rejected: Any


@dataclass(frozen=True, eq=False)
class RejectedRows:
    """The rejected rows of a batch, with the fields of the library's own class."""

    valid: Any
    actions: Any
    rewards: Any
    has_reward: Any
    propensities: Any


Rejected = RejectedRows


def test_what_is_known_of_a_rejected_row_is_used() -> None:
    """A missing reward leaves w; rows that lack more have the worst w too."""
    log = us.Log([0, 1, 0], [1.0, 0.0, 1.0], [0.5, 0.5, 0.5])
    behavior, policy = us.Logged(2, least_propensity=0.5), us.FixedPolicy([0.6, 0.4])
    valid = np.array([True, True, False, True])
    gains = []
    for actions, has_reward, q in (
        ([0], [False], [0.5]),
        ([-1], [False], [0.5]),
        ([0], [True], [np.nan]),
    ):
        rejected = Rejected(
            valid, np.array(actions), np.array([1.0]), np.array(has_reward), np.array(q)
        )
        path = CertificatePath(us.Certificate(behavior=behavior))
        after = path.after(log, policy, np.zeros(2, dtype=int), rejected).certificate
        assert after.gain is not None
        gains.append(after.gain)
    assert gains[0] > gains[1]
    assert gains[0] > gains[2]


@pytest.mark.parametrize("sets", [False, True])
def test_guard_actions_that_were_not_declared_or_not_eligible(sets: bool) -> None:
    """Weights are 0 in the first row of each action, or where the policy's is not eligible."""
    K, R, rng = 2_000, falling(), np.random.default_rng(1)
    n = len(R)
    actions = rng.integers(K, size=n)
    behavior = us.Logged(K, least_propensity=1 / K)
    log, policy = us.Log(actions, R, np.full(n, 1 / K)), np.full(n, 1 / K)
    if sets:  # in two rows of three, the action of the policy cannot be played
        policy = np.where(np.arange(n) % 3 == 0, 1 / K, 0.0)
    target = us.Trace(policy, 0, K, np.full(n, 1 / K))
    nothing = np.zeros(K, dtype=np.int64)
    guarded = CertificatePath(us.Certificate(behavior=behavior), hindsight=not sets, partial=sets)
    open_path = CertificatePath(us.Certificate(behavior=behavior))
    gains = np.zeros(n)  # every policy earns the same, and w is too small
    after = guarded.after(log, target, nothing, None).certificate
    assert never_wrong(after, gains)
    if not sets:
        target = us.Trace(without_first_plays(policy, actions, nothing), 0, K, target.largest)
    wrong = open_path.after(log, target, nothing, None).certificate
    assert not never_wrong(wrong, gains)


def test_guard_rows_that_cannot_be_used() -> None:
    """If they were left out, a log that loses its bad rows would show a gain."""
    rng, n = np.random.default_rng(4), 4_000
    b, R = rng.integers(2, size=n), (rng.random(n) < 0.5).astype(float)
    lost = (b == 1) & (R == 0.0) & (rng.random(n) < 0.2)
    log = us.Log(b[~lost], R[~lost])
    behavior, policy = np.array([0.5, 0.5]), us.FixedPolicy([0.1, 0.9])
    one: Any = np.array([-1]), np.array([1.0]), np.array([False])
    columns = [np.repeat(x, lost.sum()) for x in one]
    rejected = Rejected(~lost, columns[0], columns[1], columns[2], None)
    path = CertificatePath(us.Certificate(behavior=behavior))
    nothing = np.zeros(2, dtype=np.int64)
    assert never_wrong(path.after(log, policy, nothing, rejected).certificate, np.zeros(n))
    assert not never_wrong(
        path.after(log, policy, nothing, None).certificate, np.zeros(int((~lost).sum()))
    )


@pytest.mark.parametrize("has_reward", [True, False])
def test_guard_rows_in_which_production_had_no_choice(has_reward: bool) -> None:
    """A propensity of 1 contradicts the least one: E w = 1 fails there, and so would centers."""
    for seed in range(5):
        rng, n, f = np.random.default_rng(seed), 6_000, 0.4
        valid = rng.random(n) >= 0.15
        q = np.where(valid[:, np.newaxis], [1 - f, f], [1.0, 0.0])
        means = np.where(valid[:, np.newaxis], [0.1, 0.36], [1.0, 0.0])
        b, r = (rng.random(n) >= q[:, 0]).astype(int), (rng.random((n, 2)) < means).astype(float)
        policy = np.array([0.0, 1.0])
        log = us.Log(b[valid], r[np.arange(n), b][valid], q[np.arange(n), b][valid])
        ones = np.ones(int((~valid).sum()))
        rejected = Rejected(valid, 0 * ones.astype(int), ones, ones * has_reward > 0, ones)
        path = CertificatePath(us.Certificate(behavior=us.Logged(2, least_propensity=f)))
        nothing = np.zeros(2, dtype=np.int64)
        after = path.after(log, us.FixedPolicy(policy), nothing, rejected).certificate
        assert not after.promoted
        assert never_wrong(after, ((policy - q) * r).sum(axis=1))


@pytest.mark.parametrize("known", ["behavior", "least propensity", "vectors too"])
def test_guard_centers_do_not_depend_on_what_is_lost(known: str) -> None:
    """With another W in rows without a reward, the center would depend on the action."""
    n, q = 4_096, np.array([0.1, 0.9])
    R = falling(n)
    for seed in range(3):
        b = (np.random.default_rng(seed).random(n) >= q[0]).astype(int)
        valid = (R > 0.0) | (b == 1)
        lost = int((~valid).sum())
        one: Any = np.zeros(lost, dtype=int), np.ones(lost), np.zeros(lost, dtype=bool)
        behavior: Any = us.Logged(2, least_propensity=0.1)
        logged, vectors = q[b][valid], None
        of_lost: Any = np.full(lost, 0.1)
        if known == "vectors too":
            vectors = np.tile(q, (int(valid.sum()), 1))
        log = us.Log(b[valid], R[valid], logged, propensity_vectors=vectors)
        if known == "behavior":
            behavior, log, of_lost = q, us.Log(b[valid], R[valid]), None
        path = CertificatePath(us.Certificate(behavior=behavior))
        after = path.after(
            log, us.FixedPolicy([0.5, 0.5]), np.zeros(2, dtype=int), Rejected(valid, *one, of_lost)
        )
        assert after.certificate.centered_rounds == valid.sum()
        assert never_wrong(after.certificate, np.zeros(n))  # all actions pay the same


def log_of(known: str, q: Any, actions: Any, rewards: Any) -> us.Log:
    """A log that says of its propensities what is `known`."""
    vectors = np.tile(q, (len(actions), 1)) if "vectors" in known else None
    own = None if known == "behavior" else q[actions]
    return us.Log(actions, rewards, own, propensity_vectors=vectors)


def target_of(kind: str, policy: Any, actions: Any) -> Any:
    """A fixed policy as certificates get it: as such, as a trace, or as a column."""
    if kind == "fixed":
        return us.FixedPolicy(policy)
    largest = np.full(len(actions), policy.max()) if kind == "trace" else None
    return us.Trace(policy[actions], 0, len(policy), largest)


@pytest.mark.parametrize("known", ["behavior", "least propensity", "vectors", "vectors too"])
@pytest.mark.parametrize("kind", ["fixed", "trace", "column"])
def test_no_bet_wins_more_in_a_rejected_row_than_if_it_were_usable(known: str, kind: str) -> None:
    """Whatever the row lacks, and whatever is known of propensities."""
    rng, nothing = np.random.default_rng(7), np.zeros(3, dtype=np.int64)
    for _ in range(60):
        q = 0.85 * rng.dirichlet(np.ones(3)) + 0.05
        policy = rng.dirichlet(np.ones(3))
        behavior: Any = q
        if known != "behavior":
            behavior = us.Logged(3, least_propensity=None if known == "vectors" else 0.05)
        path = CertificatePath(us.Certificate(behavior=behavior))
        before, b = rng.integers(3, size=20), rng.integers(3, size=1)
        log = log_of(known, q, before, rng.random(20))
        path = path.after(log, target_of(kind, policy, before), nothing, None)
        R = rng.integers(2, size=1) * 1.0
        usable = log_of(known, q, b, R), target_of(kind, policy, b), nothing, None
        real = path.after(*usable).certificate
        none = np.zeros(0, dtype=np.int64)
        for action, has_reward, has_q in itertools.product([b, [-1]], [True, False], [True, False]):
            rejected = Rejected(
                np.array([False]),
                np.array(action),
                R if has_reward else np.ones(1),
                np.array([has_reward]),
                None if known == "behavior" else q[b] if has_q else np.array([np.nan]),
            )
            empty = log_of(known, q, none, np.zeros(0)), target_of(kind, policy, none)
            after = path.after(*empty, nothing, rejected).certificate
            assert (after.evidence.log_wealths() <= real.evidence.log_wealths() + 1e-9).all()


def test_guard_propensities_below_the_least_one_decide_nothing(tmp_path: Path) -> None:
    """Their weights are larger than W, and no worst case of their rows makes up for that."""
    n, q = 4_096, np.array([0.01, 0.49, 0.5])
    b, R = np.random.default_rng(0).choice(3, n, p=q), falling(n)
    log = pl.DataFrame({"action": np.array(["a", "b", "c"])[b], "reward": R, "propensity": q[b]})
    policy: Any = {"a": 0.6, "b": 0.2, "c": 0.2}
    options: dict[str, Any] = {"actions": ["a", "b", "c"], "least_propensity": 0.1}
    found = us.logs.certify(log, policy, **options)
    assert not never_wrong(found.certified.certificate, np.zeros(n))  # all actions pay the same
    for judged in (found, us.logs.certify(log, policy, engine="polars", **options)):
        assert judged.verdict == "cannot tell"
        assert judged.coverage.obstacle == "wrong least propensity"
    said = found.report.said
    assert f"it contradicts {(b == 0).sum()} quarantined rows. Declare a smaller" in said
    us.logs.learn(log[:2_000], out=tmp_path, **options)
    later = us.logs.learn(
        log[2_000:].filter(pl.col("action") != "a"), resume=tmp_path / "policy.json"
    )
    assert later.obstacle == "wrong least propensity"


def log_of_three(seed: int, q: np.ndarray[Any, Any], means: Any, n: int = 4_000) -> pl.DataFrame:
    """Rows of actions a, b, c with propensities q, (3,) or (n, 3)."""
    rng, q = np.random.default_rng(seed), np.broadcast_to(q, (n, 3))
    b = (rng.random((n, 1)) >= q.cumsum(axis=1)).sum(axis=1)
    rewards = (rng.random(n) < np.array(means)[b]).astype(float)
    labels, own = np.array(["a", "b", "c"])[b], q[np.arange(n), b]
    return pl.DataFrame({"action": labels, "reward": rewards, "propensity": own})


@pytest.mark.parametrize("engine", [None, "polars"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_guard_a_least_propensity_that_no_row_contradicts(share: float, engine: Any) -> None:
    """An action of the policy can be played in a share of the rows, or never: E w is below 1.

    Every propensity is within the range that the declared one allows. The counts contradict it.
    """
    n = 4_000
    policy: dict[Any, float] = {"a": 0.5, "b": 0.0, "c": 0.5}
    possible = np.arange(n)[:, np.newaxis] % 2 < 2 * share
    q = np.where(possible, [0.4, 0.3, 0.3], [0.6, 0.4, 0.0])
    options: dict[str, Any] = {"actions": ["a", "b", "c"], "engine": engine}
    for seed in range(3):
        log = log_of_three(seed, q, [0.95, 0.6, 0.0])  # the policy earns less than production
        found = us.logs.certify(log, policy, least_propensity=0.2, **options)
        assert found.certified.lower / n > 0.5  # false: it earns 0.475
        assert (found.verdict, found.coverage.obstacle) == ("cannot tell", None)
        (judged,) = found.coverage.verdicts
        assert judged.obstacle == "wrong least propensity"
        assert "actions that the policy plays occur too rarely" in found.report.verdict
        without = us.logs.certify(log, policy, **options)
        assert without.coverage.verdicts[0].obstacle is None
        assert without.certified.lower / n < 0.475
    policy = {"a": 1.0, "b": 0.0, "c": 0.0}
    others = us.logs.certify(log, policy, least_propensity=0.2, **options)
    assert others.coverage.verdicts[0].obstacle is None  # it does not play c


@pytest.mark.large
def test_a_right_least_propensity_is_not_called_wrong() -> None:
    """The rarest action is near the declared least propensity."""
    for seed in range(100):
        log = log_of_three(seed, np.array([0.7, 0.2, 0.1]), [0.5, 0.5, 0.5], n=2_000)
        found = us.logs.coverage(log, actions=["a", "b", "c"], least_propensity=0.1)
        assert {one.obstacle for one in found.coverage.verdicts} == {None}


@pytest.mark.parametrize("engine", [None, "polars"])
def test_guard_a_column_of_a_policy_that_may_play_other_actions(engine: Any) -> None:
    """The policy plays an action that production never does, with a probability of .8."""
    n = 2_000
    log = pl.DataFrame({"action": ["a", "b"] * (n // 2), "reward": falling(n), "new": 0.1})
    known: dict[str, Any] = {"behavior": {"a": 0.5, "b": 0.5}, "engine": engine}
    found = us.logs.certify(log, target_probability="new", **known)
    assert found.verdict != "promote"
    assert found.certified.certificate.centered_rounds == 0
    every = us.logs.certify(log, target_probability="new", actions=["a", "b"], **known)
    gain = every.certified.gain
    assert gain is not None
    assert gain > 0.0  # false: it is no policy over a and b
    assert every.certified.certificate.centered_rounds == n
    assert every.coverage.verdicts[0].obstacle == "wrong weights"
    assert "do not have a mean of 1" in every.report.verdict


@pytest.mark.large
def test_weights_that_are_too_large_decide_nothing() -> None:
    rng, n = np.random.default_rng(3), 4_000
    b = rng.random(n) < 0.5
    log = pl.DataFrame({"action": b, "reward": rng.random(n) < 0.5, "propensity": 0.5, "new": 1.0})
    found = us.logs.certify(log, target_probability="new")
    assert found.coverage.verdicts[0].obstacle == "wrong weights"
    for seed in range(200):
        b = np.random.default_rng(seed).random(n) < 0.02
        target = np.where(b, 0.9, 0.1)
        rare = log.with_columns(
            action=b, propensity=np.where(b, 0.02, 0.98), new=np.where(b, 0.9, 0.1)
        )
        (judged,) = us.logs.certify(rare, target_probability="new").coverage.verdicts
        assert judged.obstacle is None, target.mean()


@pytest.mark.parametrize("command", ["certify", "coverage"])
def test_guard_eligible_sets_of_a_log(command: str) -> None:
    """Where an action of the policy is not eligible, its weight is too small on average."""
    n = 4_000
    every = np.arange(n)[:, np.newaxis] % 2 == 0
    q = np.where(every, [0.5, 0.3, 0.2], [0.6, 0.4, 0.0])
    sets = np.where(every[:, 0], "a|b|c", "a|b")
    log = log_of_three(1, q, [0.95, 0.6, 0.9]).with_columns(can=sets)
    options: dict[str, Any] = {"actions": ["a", "b", "c"], "eligible": "can"}
    if command == "certify":
        policy: dict[Any, float] = {"a": 0.4, "b": 0.0, "c": 0.6}
        found = us.logs.certify(log, policy, least_propensity=0.2, **options).coverage
    else:
        found = us.logs.coverage(log, least_propensity=0.2, **options).coverage
    for judged in found.verdicts:
        assert judged.certificate is not None
        assert judged.certificate.centered_rounds == 0
        assert judged.decision != "better" or judged.name == "always a"  # which is better


@pytest.mark.parametrize("first_has_sets", [True, False])
def test_a_resumed_run_has_no_centers_where_rows_have_eligible_sets(
    first_has_sets: bool, tmp_path: Path
) -> None:
    """policy.json does not say it of its certificate."""
    n, rng = 400, np.random.default_rng(5)
    columns = {"action": rng.choice(["a", "b"], n), "reward": rng.integers(2, size=n) * 1.0}
    log = pl.DataFrame({**columns, "propensity": 0.5, "could": [["a", "b"]] * n})
    sets: dict[str, Any] = {"eligible": "could"}
    options: dict[str, Any] = {"actions": ["a", "b"], "least_propensity": 0.5}
    us.logs.learn(log[:200], out=tmp_path, **options, **(sets if first_has_sets else {}))
    more = us.logs.learn(log[200:], resume=tmp_path / "policy.json", **sets)
    assert more.certified is not None
    assert more.certified.certificate.rounds == n
    assert more.certified.certificate.centered_rounds == (0 if first_has_sets else 200)


def test_values_of_valid_rows_are_in_their_places() -> None:
    log = us.Log([0], [0.5], [0.25])
    one = np.array([1]), np.array([0.25]), np.array([True]), np.array([np.nan])
    found, pi = with_unusable(
        log, np.array([0.5]), Rejected(np.array([False, True]), *one), LOGGED, [0.5]
    )
    assert found.rewards.tolist() == [0.25, 0.5]
    assert np.isnan(pi[0])
    assert among_all(np.array([3]), np.array([False, True]), 0).tolist() == [0, 3]
