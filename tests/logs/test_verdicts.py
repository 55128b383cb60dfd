"""Verdicts of `understudy.logs.evaluation` hold as often as they say, and none is against facts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.logs.sums import fixed_sums, row_sums
from tests.support.strategies import quick, seeds
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.evaluation import diagnostics
from understudy.logs.evaluation.diagnostics import calibrate, drift_of, rows_for
from understudy.logs.evaluation.outcomes import Obstacle, PolicyDecision, Reason

pytestmark = pytest.mark.plain

PAIR = np.array(["a", "b"])


def frame(actions: Any, rewards: Any, q: Any, **more: Any) -> pl.DataFrame:
    return pl.DataFrame({"action": actions, "reward": rewards, "propensity": q, **more})


def drawn(rng: np.random.Generator, rows: int, means: tuple[float, float]) -> tuple[Any, Any]:
    """What a fair coin played, and rewards of 0 and 1."""
    actions = rng.integers(2, size=rows)
    return actions, (rng.random(rows) < np.array(means)[actions]).astype(float)


# ---------------------------------------------------------------------------- what was in the log


@pytest.mark.parametrize(("n_actions", "rows"), [(200, 600), (1_000, 2_000)])
def test_who_knows_which_actions_come_up_gains_nothing_by_it(n_actions: int, rows: int) -> None:
    """Production is uniform and all actions pay alike, but a few never come up.

    Over those that do, "uniform" has larger probabilities than production: most logs promoted it.
    """
    rng, promoted = np.random.default_rng(3), dict.fromkeys(("certify", "coverage", "learn"), 0)
    for _ in range(10):
        actions = rng.integers(n_actions, size=rows)
        log = frame(actions, (rng.random(rows) < 0.5).astype(float), 1 / n_actions)
        promoted["certify"] += us.logs.certify(log, "uniform").verdict == "promote"
        found = us.logs.coverage(log).coverage.verdicts
        promoted["coverage"] += any(one.decision is PolicyDecision.BETTER for one in found)
        promoted["learn"] += us.logs.learn(log).verdict == "promote"
    assert max(promoted.values()) <= 2, promoted  # more have a probability of 1 %


def test_declared_actions_are_known_before_and_count_from_the_first_row() -> None:
    rng = np.random.default_rng(0)
    actions, rewards = drawn(rng, 300, (0.2, 0.8))
    log = frame(PAIR[actions], rewards, 0.5)
    uniform = us.logs.certify(log, "uniform", actions=["a", "b"]).certified
    found = us.logs.certify(log, "uniform").certified
    assert uniform.estimate == pytest.approx(rewards.sum())
    first = [int(np.flatnonzero(actions == a)[0]) for a in (0, 1)]
    assert found.estimate == pytest.approx(rewards.sum() - rewards[first].sum())
    learned, named = us.logs.learn(log), us.logs.learn(log, actions=["a", "b"])
    assert learned.policy.probabilities() == named.policy.probabilities()
    assert learned.certified is not None
    assert named.certified is not None
    assert learned.certified.estimate <= named.certified.estimate
    with pytest.raises(InvalidArgument, match="declare all of them with --actions"):
        us.logs.certify(log, "uniform", engine="polars")


def test_what_the_first_run_has_seen_is_declared_for_the_next(tmp_path: Path) -> None:
    """From a file or from memory, also an action that only the warm-up had."""
    rng = np.random.default_rng(10)
    rows = [
        frame(PAIR[actions], rewards, 0.5, x=rng.normal(size=400))
        for actions, rewards in (drawn(rng, 400, (0.2, 0.8)) for _ in range(2))
    ]
    rare = pl.when(pl.int_range(400) == 5).then(pl.lit("c")).otherwise("action")
    first, second = (one.with_columns(action=rare) for one in rows)
    learned = us.logs.learn(first, context="x", out=tmp_path)
    assert learned.policy.study.sums.counts.min() == 0
    kept, loaded = (
        us.logs.learn(second, resume=one).certified for one in (learned, tmp_path / "policy.json")
    )
    assert kept is not None
    assert loaded is not None
    assert kept.estimate == loaded.estimate


def test_the_same_rows_do_not_judge_what_was_learned_from_them(tmp_path: Path) -> None:
    """Whatever they come in: sums tell them."""
    rng = np.random.default_rng(1)
    actions = rng.integers(50, size=2_000)
    log = frame(actions, (rng.random(2_000) < 0.5).astype(float), 1 / 50)
    log.write_parquet(tmp_path / "log.parquet")
    learned = us.logs.learn(tmp_path / "log.parquet", out=tmp_path / "out", learner="exp3-ix")
    for engine in (None, "polars"):
        with pytest.raises(InvalidLog, match="the policy was learned from these rows"):
            us.logs.certify(log, learned, engine=engine)
        covered = us.logs.coverage(log, learned, engine=engine).coverage.verdicts[0]
        assert (covered.decision, covered.certificate) == (PolicyDecision.UNKNOWN, None)
        assert covered.obstacle is None
    small = log[:300]
    with pytest.raises(InvalidLog, match="the policy was learned from these rows"):
        us.logs.certify(small.clone().with_columns(note=1), us.logs.learn(small))
    assert us.logs.certify(log[300:600], us.logs.learn(small)).certified.certificate.rounds == 300


@pytest.mark.parametrize("n", [2_000, 500])
def test_the_rows_of_a_warm_up_are_told_by_their_sums_too(n: int, tmp_path: Path) -> None:
    """With contexts the rows of a log are those of the warm-up, and those learned from."""
    rng = np.random.default_rng(2)
    actions = rng.integers(5, size=n + 200)
    log = frame(actions, rng.random(n + 200), 0.2, x=rng.normal(size=n + 200))
    us.logs.learn(log[:n], context="x", warmup=200, out=tmp_path)
    path = tmp_path / "policy.json"
    for own in (log[:n], log[200:n]):
        with pytest.raises(InvalidLog, match="the policy was learned from these rows"):
            us.logs.certify(own.with_columns(note=1), path)
    for other in (log[200:], log[100:n], log[199:n]):
        assert us.logs.certify(other, path).certified.certificate.rounds == len(other)
    text = path.read_text(encoding="utf-8")
    old, wrong = json.loads(text), json.loads(text)
    del old["provenance"]["warmup_tally"]  # 0.5 has none
    path.write_text(json.dumps(old), encoding="utf-8")
    assert us.logs.certify(log[:n].with_columns(note=1), path).certified.certificate.rounds == n
    wrong["provenance"]["warmup"] += 1
    path.write_text(json.dumps(wrong), encoding="utf-8")
    with pytest.raises(us.errors.InvalidSnapshot, match="its sums have another number"):
        us.logs.certify(log, path)


@pytest.mark.parametrize(("rows", "mean", "least"), [(60, 0.02, 20), (40, 0.05, 5), (100, 0.02, 5)])
def test_other_rows_with_few_rewards_are_accepted(rows: int, mean: float, least: int) -> None:
    """They often have the sums of the policy's own rows, if their actions take turns."""
    rng, equal = np.random.default_rng(3), 0
    actions, x = np.arange(rows) % 2, np.arange(rows) % 7
    own = (rng.random(rows) < mean).astype(float)
    policy = us.logs.learn(
        frame(actions, own, 0.5, x=x), context="x", learner="ridge", warmup=rows // 5
    )
    for _ in range(200):
        others = (rng.random(rows) < mean).astype(float)
        equal += all(others[actions == a].sum() == own[actions == a].sum() for a in (0, 1))
        us.logs.certify(frame(actions, others, 0.5, x=rng.random(rows)), policy)
    assert equal > least


# ------------------------------------------------------------------------------------ worse


@given(seed=seeds, rows=st.integers(1, 300), mean=st.floats(0.0, 1.0))
@quick
def test_the_least_that_production_is_worth_is_the_lower_bound_of_itself(
    seed: int, rows: int, mean: float
) -> None:
    """With w = 1: the same for rewards of 0 and 1, at most that for others."""
    rng = np.random.default_rng(seed)
    q = np.array([0.3, 0.7])
    actions = us.behaviors.choose(q, rng.random(rows))
    rewards = (rng.random(rows) < mean).astype(float)
    for R, exact in ((rewards, True), (rewards * rng.random(rows), False)):
        log = us.Log(actions, R)
        found = us.Certificate(behavior=q).observe(log, us.Trace(q[actions], 0, 2))
        least = found.least_production()
        assert least == pytest.approx(found.lower, abs=1e-9) if exact else least <= found.lower
        assert found.least_production(earned=0.0) == 0.0


def test_luck_of_production_makes_no_policy_worse() -> None:
    """Both actions are worth the same, the one that is judged without any chance in it.

    Against what production happened to earn, every fourth log called it worse.
    """
    rng, worse = np.random.default_rng(1), 0
    for _ in range(20):
        actions, risky = drawn(rng, 20_000, (0.99, 0.99))
        log = frame(PAIR[actions], np.where(actions == 0, 0.99, risky), 0.5)
        worse += us.logs.certify(log, {"a": 1.0}).verdict == "worse"
    assert worse <= 3  # 5 % are 1


@pytest.mark.parametrize("lost", [0.1, 0.3])
def test_rejected_rows_make_no_policy_worse(lost: float) -> None:
    """Rewards of 0 are lost, and count as 1 for production where it is to be beaten, not here."""
    rng, worse = np.random.default_rng(2), 0
    for _ in range(10):
        actions, rewards = drawn(rng, 5_000, (0.5, 0.5))
        gone = (actions == 1) & (rewards == 0) & (rng.random(5_000) < lost)
        log = frame(PAIR[actions], np.where(gone, np.nan, rewards), 0.5)
        worse += us.logs.certify(log, {"a": 1.0}).verdict == "worse"
    assert worse <= 1


# --------------------------------------------------------------------- one verdict, not several


def test_a_policy_that_was_ahead_once_and_is_worse_now_is_worse() -> None:
    rng = np.random.default_rng(7)
    early = np.arange(20_000) < 5_000
    actions = rng.integers(2, size=20_000)
    means = np.where(early, np.array([0.2, 0.8])[actions], np.array([0.6, 0.1])[actions])
    log = frame(PAIR[actions], (rng.random(20_000) < means).astype(float), 0.5)
    found = us.logs.certify(log, {"b": 1.0})
    assert found.certified.promoted_at is not None
    assert found.verdict == "worse"
    assert found.coverage.verdicts[0].decision is PolicyDecision.WORSE


@pytest.mark.parametrize("what", ["certify", "learn", "column"])
def test_nothing_is_promoted_by_propensities_that_are_wrong(what: str) -> None:
    """Half as large as they are, for one action, where all pay alike: it looks twice as good."""
    rng = np.random.default_rng(4)
    actions, rewards = drawn(rng, 3_000, (0.9, 0.9))
    log = frame(PAIR[actions], rewards, np.where(actions == 1, 0.25, 0.5), model=actions * 1.0)
    found: us.logs.LearnResult | us.logs.CertifyResult = us.logs.learn(log, no_unit=True)
    if what == "certify":
        found = us.logs.certify(log, {"b": 1.0}, no_unit=True)
    elif what == "column":
        found = us.logs.certify(log, target_probability="model", no_unit=True)
    assert found.verdict == "cannot tell"
    assert found.report.certificate is None
    wrong = {Obstacle.WRONG_PROPENSITIES, Obstacle.CONTRADICTORY_BOUNDS}
    assert found.coverage.verdicts[0].obstacle in wrong


# ------------------------------------------------------------------- propensities that are counted


def test_rows_without_an_action_cannot_be_counted() -> None:
    """Zeros of a lose their label: among those left it pays more than it does."""
    rng = np.random.default_rng(5)
    actions, rewards = drawn(rng, 5_000, (0.5, 0.5))
    gone = (actions == 0) & (rewards == 0) & (rng.random(5_000) < 0.6)
    labels = [None if lost else str(label) for lost, label in zip(gone, PAIR[actions], strict=True)]
    found = us.logs.certify(frame(labels, rewards, 0.5).drop("propensity"), {"a": 1.0})
    assert found.verdict == "cannot tell"
    assert found.coverage.verdicts[0].obstacle is Obstacle.UNKNOWN_ACTIONS
    assert f"action is unknown in {gone.sum():,} rows" in found.report.verdict
    assert found.report.certificate is None
    assert us.logs.certify(frame(labels, rewards, 0.5), {"a": 1.0}).report.certificate is not None


def test_what_can_be_played_differs_so_it_is_not_counted() -> None:
    rng = np.random.default_rng(6)
    actions, rewards = drawn(rng, 500, (0.5, 0.5))
    log = frame(PAIR[actions], rewards, 0.5, can="a|b").drop("propensity")
    learned = us.logs.learn(log, eligible="can")
    assert learned.certified is None
    assert learned.obstacle is Obstacle.NO_PROPENSITIES_WITH_ELIGIBLE_SETS
    assert all(
        one.decision is PolicyDecision.UNKNOWN
        for one in us.logs.coverage(log, eligible="can").coverage.verdicts
    )
    with pytest.raises(InvalidArgument, match="eligible sets cannot be estimated"):
        us.logs.certify(log, {"a": 1.0}, eligible="can")


def test_drift_is_seen_however_long_the_last_stretch() -> None:
    sums = row_sums(2)
    table = np.array([[80, 20]] * 8 + [[20, 80]] * 8)
    for last in ([0, 1], [1, 0], [30, 60]):
        found = drift_of(sums, "estimated", np.vstack([table, last]))
        assert found.fixed is False
        assert found.change is not None
        assert found.change.highest == 0.8  # and not 1


# ---------------------------------------------------------------------------------- calibration


@given(seed=seeds, rows=st.integers(1, 200), spread=st.floats(0.0, 3.0))
@quick
def test_the_sums_never_say_more_than_the_bets_have_won(
    seed: int, rows: int, spread: float
) -> None:
    """Row by row, for every λ; the same where there is one propensity."""
    rng = np.random.default_rng(seed)
    weights = np.exp(spread * rng.normal(size=(rows, 3)))
    q = weights / weights.sum(axis=1, keepdims=True)
    actions = us.behaviors.choose(q, rng.random(rows))
    own = q[np.arange(rows), actions]
    sums = row_sums(3, actions, own)
    seen = sums.counts > 0
    found = diagnostics._log_wealth(sums, seen, rows - sums.counts[seen])
    for row, a in zip(found, np.flatnonzero(seen), strict=True):
        X = np.where(actions == a, 1.0 / own, 0.0)
        won = np.log1p(diagnostics.BETS * (X[:, np.newaxis] - 1.0)).sum(axis=0)
        assert (row <= won + 1e-9 * rows * (1.0 + np.abs(won))).all()
        if spread == 0.0:
            np.testing.assert_allclose(row, won, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("sharper", "least"), [(1.0, 0), (2.0, 19)])
def test_propensities_of_another_temperature_are_found(sharper: float, least: int) -> None:
    """Softmax of contexts, logged as if it were sharper: rare plays have far too small ones."""
    rng, found = np.random.default_rng(20), 0
    for _ in range(20):
        scores = rng.normal(size=(3_000, 5)) * 1.5
        q, said = (np.exp(power * scores) for power in (1.0, sharper))
        q, said = (w / w.sum(axis=1, keepdims=True) for w in (q, said))
        actions = us.behaviors.choose(q, rng.random(3_000))
        own = said[np.arange(3_000), actions]
        sums = row_sums(5, actions, own)
        found += bool(calibrate(sums).wrong.any())
    assert least <= found <= (20 if least else 1)


def test_rejected_rows_may_have_been_of_any_action() -> None:
    """Those of b lost their rewards: the propensities of a are right all the same."""
    counts = np.array([2_500, 1_900])
    sums = fixed_sums(np.array([0.5, 0.5]), counts)
    assert calibrate(sums).wrong.tolist() == [True, False]
    found = calibrate(sums, rejected=600)
    assert not found.wrong.any()
    assert found.shown.tolist() == [1.0, 1.0]


# ------------------------------------------------------------------------------- what would suffice


def test_rejected_rows_hide_gains_smaller_than_they_are() -> None:
    rejected = (0.06, 1.0)  # their share, and what production earned in them a row
    assert rows_for(0.4, 0.05, rejected=rejected) == math.inf
    assert rows_for(0.4, 0.1, rejected=rejected) > rows_for(0.4, 0.1)
    assert rows_for(0.4, 0.1, rejected=(0.0, 0.0)) == rows_for(0.4, 0.1)
    rng = np.random.default_rng(8)
    actions, rewards = drawn(rng, 800, (0.45, 0.55))
    gone = rng.random(800) < 0.3
    log = frame(PAIR[actions], np.where(gone, np.nan, rewards), 0.5)
    found = us.logs.certify(log, {"b": 1.0})
    (verdict,) = found.coverage.verdicts
    assert verdict.rejected == gone.sum()
    assert verdict.sample_size is not None
    assert verdict.sample_size.rows == math.inf
    assert found.report.rows_needed == math.inf
    assert f"{gone.sum()} of 800 rows are quarantined" in found.report.verdict


@pytest.mark.parametrize("least", [None, 0.5])
def test_the_seeming_gain_would_show_after_as_many_rows_as_are_said(least: float | None) -> None:
    """With centers, which take most of the noise away, and without."""
    rng = np.random.default_rng(9)
    actions, rewards = drawn(rng, 700, (0.42, 0.5))
    log = frame(PAIR[actions], rewards, 0.5)
    found = us.logs.certify(log, {"b": 1.0}, least_propensity=least)
    assert found.verdict == "not yet"
    (verdict,) = found.coverage.verdicts
    assert verdict.near
    assert verdict.reason is Reason.GAIN_IS_LOST  # it was certain for a few rows
    assert verdict.certificate is not None
    assert verdict.certificate.promoted
    enough = verdict.sample_size
    assert enough is not None
    assert enough.gain == verdict.estimated_gain
    assert found.report.rows_needed == enough.rows
    half = enough.gain * 2  # what one action is worth above the other
    shown = []
    behavior, both = us.Logged(2, least_propensity=least), us.FixedPolicy([0.0, 1.0])
    for _ in range(40):
        actions, rewards = drawn(rng, round(enough.rows), (0.5 - half, 0.5))
        again = us.Log(actions, rewards, np.full(len(actions), 0.5))
        certificate = us.Certificate(behavior=behavior).observe(again, both)
        shown.append(bool(certificate.promoted))
    assert np.mean(shown) > 0.5


def test_estimates_are_in_the_units_of_the_log() -> None:
    """Σ w R / n with R as logged, not with R in [0, 1] and then rescaled: Σ w is not n."""
    rng = np.random.default_rng(12)
    q = np.array([0.4, 0.6])
    actions = us.behaviors.choose(q, rng.random(500))
    rewards = rng.uniform(-5.0, 5.0, size=500)
    log = frame(PAIR[actions], rewards, q[actions])
    found = us.logs.certify(log, {"a": 0.9, "b": 0.1}, reward_range=(-5, 5))
    w = np.array([0.9, 0.1])[actions] / q[actions]
    assert found.report.certificate is not None
    assert found.report.certificate.estimate == pytest.approx((w * rewards).mean())
    estimates = found.table["estimate"].to_list()
    plain = [(rewards * (actions == a) / q[a]).mean() for a in (0, 1)]
    assert estimates == pytest.approx(plain)
    spoiled = log.with_columns(reward=pl.when(pl.int_range(500) % 5 > 0).then(pl.col("reward")))
    again = us.logs.certify(spoiled, {"a": 0.9, "b": 0.1}, reward_range=(-5, 5)).report.certificate
    read = np.arange(500) % 5 > 0
    assert again is not None
    assert again.estimate == pytest.approx((w * rewards)[read].mean())
