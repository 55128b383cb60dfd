"""What a log can say, by `understudy.logs.evaluation`: coverage, calibration, drift, verdicts."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import understudy as us
from tests.support.logs.invalid_rows import by_hand, dirty_log, labels_of
from tests.support.logs.sums import (
    LOGGED,
    ActionStatistics,
    as_log,
    fixed_sums,
    row_sums,
    sums_of,
)
from tests.support.strategies import behaviors, policies, quick, seeds
from understudy.errors import InvalidArgument
from understudy.logs.evaluation.diagnostics import (
    CalibrationFinding,
    DriftFinding,
    calibrate,
    drift_of,
    estimate_gain,
    estimate_gain_of_rows,
    exploration_for,
    homogeneity,
    overlap_of,
    rows_for,
    second_moment,
    visible_gain,
)
from understudy.logs.evaluation.outcomes import (
    NextStep,
    Obstacle,
    PolicyDecision,
    Reason,
    Step,
    VerdictOutcome,
)
from understudy.logs.evaluation.target_policies import certify_candidates
from understudy.logs.evaluation.verdicts import Candidate, candidates_of, coverage_from

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def frame_of(actions: Any, rewards: Any, q: Any) -> pl.DataFrame:
    return pl.DataFrame({"action": actions, "reward": rewards, "propensity": q})


def drawn(q: Array, means: Array, rows: int, seed: int) -> pl.DataFrame:
    """A log of a fixed behavior, with rewards of 0 and 1."""
    rng = np.random.default_rng(seed)
    actions = us.behaviors.choose(q, rng.random(rows))
    return frame_of(actions, (rng.random(rows) < means[actions]).astype(float), q[actions])


# ------------------------------------------------------------------------------------ the table


def test_the_table_is_what_python_finds_row_by_row() -> None:
    table, labels = dirty_log(3_000), (*labels_of("integers"), "9")
    found = coverage_from(sums_of(table, labels)).table
    hand = by_hand(table, known=labels)
    n, rows = len(hand.rows), len(table)
    assert found["action"].to_list() == [0, 1, 2, 3, 4, 9]
    assert found["calibration"].count()  # of some action there is enough
    for row in found.iter_rows(named=True):
        own = [(R, q) for text, R, q, _ in hand.rows if text == str(row["action"])]
        if not own:
            assert (row["count"], row["share"], row["effective_sample_size"]) == (0, 0.0, 0.0)
            assert row["coverage_ratio"] == math.inf
            assert row["mean_reward"] is row["estimate"] is row["self_normalised"] is None
            continue
        inverse, squares = sum(1 / q for _, q in own), sum(1 / q**2 for _, q in own)
        weighted = sum(R / q for R, q in own)
        lost = (rows - n) * inverse / len(own)  # if all that was rejected had been its own
        distance = (min(rows, inverse + lost) if inverse < rows else inverse) / rows - 1
        expected = {
            "count": len(own),
            "share": len(own) / n,
            "mean_reward": sum(R for R, _ in own) / len(own),
            "lowest_propensity": min(q for _, q in own),
            "highest_propensity": max(q for _, q in own),
            "coverage_ratio": squares / n,
            "effective_sample_size": inverse**2 / squares,
            "estimate": weighted / n,
            "self_normalised": weighted / inverse,
            "calibration": inverse / rows,
            "calibration_score": distance / math.sqrt((squares / inverse - 1) / rows),
        }
        enough = rows >= 30 / min(q for _, q in own)
        for name, value in expected.items():
            known = enough or not name.startswith("calibration")
            assert row[name] == (pytest.approx(value, rel=1e-12) if known else None), name


@given(first=behaviors(max_actions=3, zeros=False), second=st.data())
@quick
def test_the_coverage_ratio_is_unbiased(first: Array, second: Any) -> None:
    """E (1/n) Σ_{b=a} 1/q² is the mean of 1/q_t(a), over all ways that two rows can go."""
    other = second.draw(policies(len(first)).filter(lambda p: bool((p > 0).all())))
    q = np.stack([first, other])
    mean = np.zeros(len(first))
    for played in itertools.product(range(len(first)), repeat=2):
        own = q[[0, 1], played]
        ratios = np.zeros(len(first))
        np.add.at(ratios, list(played), 1 / own**2 / 2)
        mean += own.prod() * ratios
    found = coverage_from(sums_of(frame_of([0, 1], [0, 1], q[[0, 1], [0, 1]]))).table
    assert found["coverage_ratio"].to_list() == pytest.approx(
        [max(1.0, 1 / (2 * q[a, a] ** 2)) for a in (0, 1)]
    )
    np.testing.assert_allclose(mean, (1 / q).mean(axis=0))


def test_frequencies_stand_for_propensities_that_are_not_logged() -> None:
    frame = frame_of([0, 0, 0, 1], [1, 0, 1, 1], None).drop("propensity")
    found = coverage_from(sums_of(frame, propensities=False))
    assert found.table["coverage_ratio"].to_list() == [4 / 3, 4.0]
    assert found.table["effective_sample_size"].to_list() == [3.0, 1.0]
    assert found.table["self_normalised"].to_list() == pytest.approx([2 / 3, 1.0])
    assert found.calibration.finding is CalibrationFinding.NO_PROPENSITIES
    assert coverage_from(
        sums_of(frame_of([0, 0, 0, 1], 1, [0.9, 0.8, 0.7, 0.6])), behavior="estimated"
    ).table["coverage_ratio"].to_list() == [4 / 3, 4.0]


# --------------------------------------------------------------------------------- calibration


@given(q=st.floats(0.01, 0.99), share=st.floats(0.0, 1.0), n=st.integers(4000, 10**6))
@quick
def test_the_score_of_one_propensity_is_that_of_a_binomial_count(
    q: float, share: float, n: int
) -> None:
    counts = np.array([max(1, round(n * share)), 0])
    counts[1] = n - counts[0]
    found = calibrate(fixed_sums(np.array([q, 1 - q]), counts))
    score = (counts[0] - n * q) / math.sqrt(n * q * (1 - q))
    assert found.scores[0] == pytest.approx(score, rel=1e-6, abs=1e-6)
    assert found.ratios[0] == pytest.approx(counts[0] / (n * q))


def varying(seed: int, rows: int = 4000) -> tuple[Array, Integers]:
    """Propensities of three actions that change from row to row, and what was played."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet([4.0, 2.0, 2.0], size=rows)
    return q, us.behaviors.choose(q, rng.random(rows))


def test_right_propensities_raise_few_alarms() -> None:
    """At a level of 1 %, 4 of 200 are expected; 9 or more have a probability below 1 in 10⁴."""
    alarms = 0
    for seed in range(200):
        q, played = varying(seed, rows=600)
        inverse = 1.0 / q[np.arange(len(q)), played]
        counts, none = np.bincount(played, minlength=3), np.zeros(3)
        weights, squares = np.zeros(3), np.zeros(3)
        np.add.at(weights, played, inverse)
        np.add.at(squares, played, inverse**2)
        lowest = np.array([1.0 / inverse[played == a].max() for a in range(3)])
        sums = ActionStatistics(counts, none, none, weights, squares, lowest, np.ones(3))
        alarms += calibrate(sums).finding is CalibrationFinding.DISAGREES
    assert alarms <= 8


CATALOGUES = [(20, 10**6, 0.1), (100, 10**5, 0.05), (1_000, 10**6, 0.01), (2_000, 10**7, 0.01)]


@pytest.mark.parametrize(("rows", "size", "explored"), CATALOGUES)
def test_exploration_of_a_large_catalogue_raises_few_alarms(
    rows: int, size: int, explored: float
) -> None:
    """Right propensities; the first play of an action, however rare, is no sign against them.

    At a level of 1 %, 5 of 500 are expected; 12 or more have a probability below 1 in 150.
    """
    rng, alarms, counted = np.random.default_rng(21), 0, 0
    for _ in range(500):
        plays = np.where(rng.random(rows) < explored, rng.integers(1, size, rows), 0)
        actions, counts = np.unique(plays, return_counts=True)
        q = np.where(actions == 0, 1.0 - explored, explored / size)
        sums = ActionStatistics.of_behavior(counts, np.float64(0.5) * counts, q)
        found = calibrate(sums, declared=False)
        alarms += found.finding is CalibrationFinding.DISAGREES
        counted += bool(calibrate(sums, declared=True).wrong.any())
    assert alarms <= 11
    assert counted > 400 or size < 10**6  # if the play that makes an action known counts


@pytest.mark.parametrize(("rows", "size", "explored"), [(20, 10**4, 0.1), (2_000, 10**4, 0.05)])
def test_exploration_of_a_declared_catalogue_raises_few_alarms(
    rows: int, size: int, explored: float
) -> None:
    rng, alarms = np.random.default_rng(23), 0
    q = np.full(size, explored / size)
    q[0] += 1.0 - explored
    for _ in range(500):
        plays = np.where(rng.random(rows) < explored, rng.integers(0, size, rows), 0)
        counts = np.bincount(plays, minlength=size)
        sums = ActionStatistics.of_behavior(counts, np.float64(0.5) * counts, q)
        alarms += calibrate(sums, declared=True).finding is CalibrationFinding.DISAGREES
    assert alarms <= 11


def test_a_list_of_some_actions_declares_no_others() -> None:
    """Actions that the log made known were not declared: their first plays do not count."""
    rng, rows, size = np.random.default_rng(24), 5_000, 10**8
    plays = np.where(rng.random(rows) < 0.01, rng.integers(1, size, rows), 0)
    q = np.where(plays == 0, 0.99, 0.01 / size)
    log = pl.DataFrame({"action": plays, "reward": rng.random(rows), "propensity": q})
    policy: dict[Any, float] = {"0": 0.5, "1": 0.5}
    for actions in (["0", "1"], None):
        found = us.logs.certify(log, policy, actions=actions).coverage.calibration
        assert not found.wrong.any()
    every = sorted({"0", "1", *map(str, plays.tolist())})
    found = us.logs.certify(log, policy, actions=every).coverage.calibration
    assert found.wrong.any()  # it is false that these alone were known


@pytest.mark.parametrize("declared", [True, False])
def test_wrong_propensities_are_found_with_and_without_a_list(declared: bool) -> None:
    rng, found = np.random.default_rng(22), 0
    for _ in range(50):
        counts = np.bincount(rng.choice(2, 600, p=[0.6, 0.4]), minlength=2)
        sums = ActionStatistics.of_behavior(counts, np.float64(0.5) * counts, np.array([0.5, 0.5]))
        found += bool(calibrate(sums, declared=declared).wrong.any())
    assert found >= 30


def test_wrong_propensities_are_named_with_their_factor() -> None:
    q, played = varying(0)
    own = q[np.arange(len(q)), played]
    found = coverage_from(sums_of(frame_of(played, 0.0, np.where(played == 2, own / 2, own))))
    assert found.calibration.finding is CalibrationFinding.DISAGREES
    assert found.calibration.wrong.tolist() == [False, False, True]
    assert found.calibration.ratios[2] == pytest.approx(2.0, abs=0.2)


def test_actions_that_are_not_always_possible_are_never_called_wrong() -> None:
    """With eligible sets sums fall below n, and none rises above it: the pattern is named."""
    rng = np.random.default_rng(1)
    possible = rng.random(5000) < 0.5  # action 2, only in half of the rows
    q = np.where(possible[:, None], [0.25, 0.25, 0.5], [0.5, 0.5, 0.0])
    played = us.behaviors.choose(q, rng.random(5000))
    found = coverage_from(sums_of(frame_of(played, 0.0, q[np.arange(5000), played])))
    assert found.calibration.shown[:2].tolist() == [1.0, 1.0]
    assert found.calibration.shown[2] == pytest.approx(0.5, abs=0.03)
    assert found.calibration.rare.tolist() == [False, False, True]
    assert not found.calibration.wrong.any()
    assert found.verdicts[0].hidden == pytest.approx(1 / 6, abs=0.01)
    assert found.verdicts[0].reason is Reason.RARE_ACTIONS


def test_a_few_rows_tell_nothing_about_propensities() -> None:
    found = calibrate(fixed_sums(np.array([0.5, 0.5]), np.array([12, 10])))
    assert found.finding is CalibrationFinding.TOO_FEW_ROWS
    enough = calibrate(fixed_sums(np.array([0.5, 0.5]), np.array([520, 480])))
    assert enough.finding is CalibrationFinding.AGREES
    assert np.isfinite(enough.ratios).all()


# --------------------------------------------------------------------------------------- drift


def chi_squared_tail(x: float, degrees: int) -> float:
    """P(χ² > x), exact for an even number of degrees: a sum of Poisson's terms."""
    half = x / 2
    return math.exp(-half) * sum(half**k / math.factorial(k) for k in range(degrees // 2))


@given(seed=seeds, stretches=st.sampled_from([3, 5, 9]), n_actions=st.sampled_from([2, 3, 6]))
@quick
def test_the_p_value_is_nearly_that_of_chi_squared(
    seed: int, stretches: int, n_actions: int
) -> None:
    rng = np.random.default_rng(seed)
    shift = rng.random() * 2  # so that some tables are far from one distribution
    rates = 60.0 + 20.0 * shift * rng.random((stretches, n_actions))
    table = rng.poisson(rates)
    statistic, p_value = homogeneity(table)
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    assert statistic == pytest.approx(((table - expected) ** 2 / expected).sum())
    exact = chi_squared_tail(statistic, (stretches - 1) * (n_actions - 1))
    assert p_value == pytest.approx(exact, rel=0.1, abs=2e-3)


def test_a_production_that_stays_raises_few_alarms_also_with_rare_actions() -> None:
    """At a level of 1 in 1 000, 3 or more of 300 have a probability below 1 in 250."""
    shares = np.array([0.6, 0.3] + [0.1 / 40] * 40)
    rng = np.random.default_rng(2)
    tables = [rng.multinomial(300, shares, size=10) for _ in range(300)]
    low = [p for _, p in map(homogeneity, tables) if p is not None and p < 0.001]
    assert len(low) <= 2


def test_rare_actions_are_put_together() -> None:
    """As one, they are one column: the same as if they had been one action."""
    common = np.array([[40, 60], [60, 40]])
    rare = np.eye(2, 12, dtype=np.int64) + 1
    together = np.hstack([common, rare.sum(axis=1, keepdims=True)])
    assert homogeneity(np.hstack([common, rare])) == pytest.approx(homogeneity(together))
    too_rare = np.array([[30, 70, 1], [50, 60, 1]])  # goes to the rarest of the others
    assert homogeneity(too_rare) == pytest.approx(homogeneity(np.array([[31, 70], [51, 60]])))
    assert homogeneity(np.array([[1, 2], [2, 1]]))[1] is None
    assert homogeneity(np.array([[50, 50], [0, 0]]))[1] is None
    assert homogeneity(np.zeros((2, 2), dtype=np.int64))[1] is None


def test_drift_is_fine_for_logged_propensities_and_fatal_for_others() -> None:
    sums, counts = fixed_sums(np.array([0.5, 0.5]), np.array([100, 100])), [[90, 10], [10, 90]]
    for kind in ("logged", "given", "estimated"):
        found = drift_of(sums, kind, np.array(counts))
        assert (found.fixed, found.finding, found.behavior) == (False, DriftFinding.CHANGED, kind)
        assert found.change == (0, 0.1, 0.9)
    steady = drift_of(sums, "estimated", np.array([[52, 48], [48, 52]]))
    assert (steady.fixed, steady.finding, steady.periods) == (True, DriftFinding.STEADY, 2)
    few = drift_of(sums, "estimated", np.array([[1, 2], [2, 1]]))
    assert (few.fixed, few.finding) == (None, DriftFinding.TOO_FEW_ROWS)


def test_propensities_that_vary_are_no_fixed_behavior() -> None:
    varies = drift_of(sums_of(frame_of([0, 0, 1], 0, [0.1, 0.4, 0.5])).sums)
    assert (varies.factor, varies.fixed, varies.varies) == (4.0, False, True)
    fixed = drift_of(sums_of(frame_of([0, 0, 1], 0, [0.5, 0.5, 0.5])).sums)
    assert (fixed.factor, fixed.fixed, fixed.varies) == (1.0, True, False)
    nothing = drift_of(row_sums(2), "estimated")
    assert (nothing.fixed, math.isnan(nothing.factor)) == (None, True)
    assert nothing.finding is DriftFinding.NO_TIME


# ------------------------------------------------------------------------------------ verdicts


@given(q=behaviors(max_actions=4, zeros=False, decades=1.0), data=st.data())
@quick
def test_the_second_moment_is_that_of_rewards_of_0_and_1(q: Array, data: Any) -> None:
    """E[d²] = Σ_a q(a) r(a) (π(a)/q(a) − 1)², of a log with no noise in it."""
    policy = data.draw(policies(len(q)))
    means = np.linspace(0.2, 0.9, len(q))
    n = 10**7
    counts = np.round(n * q).astype(np.int64)
    found = second_moment(fixed_sums(q, counts, means), policy)
    exact = (q * means * (policy / q - 1) ** 2).sum()
    assert found == pytest.approx(exact, rel=1e-3, abs=1e-5)


def promotions(q: Array, means: Array, policy: Array, rows: int, seed: int) -> float:
    """The share of 40 games in which a certificate finds the policy better."""
    rng, found = np.random.default_rng(seed), 0
    for _ in range(40):
        actions = us.behaviors.choose(q, rng.random(rows))
        rewards = (rng.random(rows) < means[actions]).astype(float)
        log, empty = us.Log(actions, rewards), us.Certificate(behavior=q)
        found += bool(empty.observe(log, us.FixedPolicy(policy)).promoted)
    return found / 40


GAMES = {
    "common": ([0.5, 0.3, 0.2], [0.5, 0.5, 0.7], [0.0, 0.0, 1.0]),
    "rare": ([0.9, 0.1], [0.3, 0.4], [0.0, 1.0]),
    "mixed": ([0.25, 0.25, 0.25, 0.25], [0.2, 0.2, 0.2, 0.3], [0.0, 0.0, 0.5, 0.5]),
}


@pytest.mark.large
@pytest.mark.parametrize(("q", "means", "policy"), GAMES.values(), ids=GAMES)
def test_so_many_rows_show_a_gain_and_a_tenth_do_not(
    q: list[float], means: list[float], policy: list[float]
) -> None:
    behavior, reward, pi = np.array(q), np.array(means), np.array(policy)
    gain = float(((pi - behavior) * reward).sum())
    rows = round(rows_for(float((behavior * reward * (pi / behavior - 1) ** 2).sum()), gain))
    assert promotions(behavior, reward, pi, rows, seed=1) > 0.5
    assert promotions(behavior, reward, pi, rows // 10, seed=2) < 0.5


@pytest.mark.large
def test_so_much_exploration_shows_a_gain_and_a_tenth_does_not() -> None:
    """Of a policy that production never plays; in a short log half of the rows are not enough."""
    rows, base, gain = 5_000, 0.2, 0.1
    enough = exploration_for(base + gain, gain, rows)
    assert exploration_for(base + gain, gain, 100).exploration == 0.5
    assert enough.exploration is not None
    means, always = np.array([base, base + gain]), np.array([0.0, 1.0])

    def won(exploration: float, rows: int) -> float:
        q = np.array([1.0 - exploration, exploration])
        return promotions(q, means, always, rows, seed=3)

    assert won(enough.exploration, rows) > 0.5
    assert won(enough.exploration, rows // 10) < 0.5
    assert won(enough.exploration / 10, rows) < 0.5
    assert won(0.5, 100) < 0.5


def test_bets_are_not_larger_than_certificates_make_them() -> None:
    """Below E[d²] = g/0.9 the best bet is 0.9, and its growth is what counts."""
    budget = math.log(22 / 0.05)
    assert rows_for(0.5, 0.1) == pytest.approx(2 * 0.5 * budget / 0.01)
    assert rows_for(0.01, 0.1) == pytest.approx(budget / (0.9 * 0.1 - 0.81 * 0.01 / 2))
    assert len(us.Certificate(behavior=[0.5, 0.5]).grids[2]) == 22


@given(q=behaviors(max_actions=4, zeros=False), seed=seeds, data=st.data())
@quick
def test_the_overlap_of_a_policy_is_that_of_its_certificate(q: Array, seed: int, data: Any) -> None:
    """Σ w R/Σ w and (Σ w)²/Σ w² follow from the sums of the actions."""
    policy = data.draw(policies(len(q)))
    log = drawn(q, np.linspace(0.1, 0.9, len(q)), 200, seed)
    sums = sums_of(log, len(q)).sums
    found = overlap_of(policy, sums, np.ones(len(q)))
    seen = us.Log(log["action"].to_numpy(), log["reward"].to_numpy())
    certificate = us.Certificate(behavior=q).observe(seen, us.FixedPolicy(policy))
    assert found.effective_sample_size == pytest.approx(certificate.effective_sample_size)
    mean = certificate.self_normalised / 200
    assert found.estimate == pytest.approx(mean, nan_ok=True)
    unseen = policy[sums.counts == 0]
    ratios = [1 / q[a] if sums.counts[a] >= 30 else sums.squares[a] / 200 for a in range(len(q))]
    ratio = sum(policy[a] * ratios[a] for a in range(len(q)))
    assert found.coverage_ratio == (math.inf if unseen.any() else pytest.approx(ratio))


def judged(log: pl.DataFrame, policy: list[float] | Array, **options: Any) -> Any:
    """The verdict about one policy, with its certificate."""
    sums = sums_of(log, len(policy))
    candidates = [Candidate("mine", np.asarray(policy))]
    certificates = certify_candidates(log, LOGGED, sums, candidates)
    found = coverage_from(sums, candidates=candidates, certificates=certificates, **options)
    return found.verdicts[0]


def test_better_and_worse_policies_are_decided() -> None:
    log = drawn(np.array([0.5, 0.5]), np.array([0.2, 0.8]), 2000, seed=0)
    better, worse = judged(log, [0.0, 1.0]), judged(log, [1.0, 0.0])
    assert (better.decision, better.sample_size) == (PolicyDecision.BETTER, None)
    assert worse.decision is PolicyDecision.WORSE
    assert worse.certificate.upper < 0.3 * 2000
    same = judged(log, [0.5, 0.5])
    assert (same.decision, same.sample_size) == (PolicyDecision.UNKNOWN, None)
    assert same.reason is Reason.SAME_AS_PRODUCTION
    found = [one.outcome for one in (better, worse, same)]
    assert found == [VerdictOutcome.PROMOTE, VerdictOutcome.WORSE, VerdictOutcome.NO_VISIBLE_GAIN]


def test_by_rules_1_worse_comes_first() -> None:
    """As in release 0.5, where the bounds on the reward and on the gain contradict each other."""
    log = drawn(np.array([0.5, 0.5]), np.array([0.9, 0.9]), 1000, seed=0)
    sums = sums_of(log, 2)
    empty = us.Certificate(us.Logged(2), rules=1)
    lower, gains = np.zeros(24), np.full(22, 100.0)
    S = [*lower, *1000 * np.log1p(0.9 * empty.lambdas), *gains]
    totals = [sums.sums.rewards.sum(), 100.0, 1000.0, 1000.0]
    certificate = empty.from_sufficient_statistics(1000, S, totals)
    assert certificate.promoted
    candidates = [Candidate("mine", np.array([0.2, 0.8]))]
    found = coverage_from(sums, candidates=candidates, certificates=[certificate])
    assert found.verdicts[0].decision is PolicyDecision.WORSE


def test_what_would_suffice_is_said_for_a_gain_above_its_standard_error() -> None:
    log = drawn(np.array([0.9, 0.1]), np.array([0.5, 0.6]), 1000, seed=0)
    few = judged(log, [0.0, 1.0])
    assert few.outcome is VerdictOutcome.NOT_ENOUGH_DATA
    assert few.estimated_gain > few.standard_error
    assert few.sample_size.gain == few.estimated_gain
    moment = second_moment(sums_of(log).sums, np.array([0.0, 1.0]))
    assert few.sample_size.rows == pytest.approx(rows_for(moment, few.sample_size.gain))
    assert few.next_step == NextStep(Step.LOG_MORE_ROWS, rows=few.sample_size.rows)


@pytest.mark.parametrize("mean", [0.4, 0.5])
def test_a_gain_below_its_standard_error_gives_no_number_of_rows(mean: float) -> None:
    """But the gain that these rows would have shown; also if the estimate is a loss."""
    log = drawn(np.array([0.9, 0.1]), np.array([0.5, mean]), 1000, seed=0)
    few = judged(log, [0.0, 1.0])
    assert few.outcome is VerdictOutcome.NO_VISIBLE_GAIN
    assert few.estimated_gain <= few.standard_error
    assert few.sample_size is None
    assert few.next_step == NextStep(Step.KEEP_PRODUCTION)
    moment = second_moment(sums_of(log).sums, np.array([0.0, 1.0]))
    assert rows_for(moment, few.visible_gain) == pytest.approx(1000)


@given(moment=st.floats(1e-6, 100.0), rows=st.integers(1, 10**9), share=st.floats(0.0, 0.5))
@quick
def test_the_visible_gain_is_that_which_so_many_rows_show(
    moment: float, rows: int, share: float
) -> None:
    rejected = (share, 0.3)
    gain = visible_gain(moment, rows, 0.95, rejected)
    assert rows_for(moment, gain, 0.95, rejected) == pytest.approx(rows, rel=1e-6)


WORLDS = {
    "fixed": ([0.8, 0.2], [0.3, 0.35], [0.1, 0.9]),
    "three": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.7], [0.2, 0.3, 0.5]),
    "clicks": ([0.5, 0.5], [0.02, 0.03], [0.0, 1.0]),
}


@pytest.mark.parametrize(("q", "means", "policy"), WORLDS.values(), ids=WORLDS)
def test_the_standard_error_is_the_spread_of_the_estimate(
    q: list[float], means: list[float], policy: list[float]
) -> None:
    """Over 600 logs: their spread has a standard error of 1/√1200, so 12 % are four of them."""
    rng, pi, n, found = np.random.default_rng(5), np.array(policy), 2_000, []
    for _ in range(600):
        actions = us.behaviors.choose(np.array(q), rng.random(n))
        rewards = (rng.random(n) < np.array(means)[actions]).astype(float)
        log = us.Log(actions, rewards, np.array(q)[actions])
        sums = ActionStatistics.empty(len(q)).after(log)
        certificate = us.Certificate(us.Logged(len(q))).observe(log, us.FixedPolicy(pi))
        estimate, of_rows = estimate_gain(pi, sums), estimate_gain_of_rows(certificate, sums)
        assert of_rows.value == pytest.approx(estimate.value)
        found.append((estimate.value, estimate.error, of_rows.error))
    spread = float(np.std([estimate for estimate, *_ in found]))
    of_actions, of_rows = np.mean([errors for _, *errors in found], axis=0)
    assert of_actions == pytest.approx(spread, rel=0.12)
    assert of_rows == pytest.approx(spread, rel=0.25)  # it does not know the means of actions


def test_a_policy_of_actions_that_were_never_played_asks_for_exploration() -> None:
    """Never for a number of rows."""
    log = drawn(np.array([0.5, 0.5]), np.array([0.3, 0.3]), 20_000, seed=0)
    found = judged(log.with_columns(propensity=0.5), [0.25, 0.0, 0.75])
    production = float(log["reward"].mean())  # type: ignore[arg-type] # a mean of numbers
    expected = exploration_for(production + 0.05, 0.05, 20_000)
    assert found.overlap.coverage_ratio == math.inf
    assert found.sample_size == expected
    assert (found.hidden, found.reason) == (0.75, Reason.UNSEEN_ACTIONS)
    assert found.next_step == NextStep(Step.EXPLORE, exploration=expected.exploration)
    short = judged(log[:100], [0.0, 0.0, 1.0])
    assert short.next_step == NextStep(Step.EXPLORE, exploration=0.5)
    assert short.sample_size.rows == math.inf
    rare = drawn(np.array([0.5, 0.5]), np.array([0.02, 0.02]), 500, seed=0)
    small = judged(rare, [0.0, 0.0, 1.0]).sample_size
    assert small.gain == pytest.approx(rare["reward"].mean())  # 0.05 would be a large one


def test_a_log_too_short_to_show_every_action_asks_for_more_rows() -> None:
    log = drawn(np.array([0.5, 0.5]), np.array([0.3, 0.3]), 20, seed=0)
    found = judged(log, [0.25, 0.0, 0.75])
    assert (found.outcome, found.reason) == (VerdictOutcome.NOT_ENOUGH_DATA, Reason.TOO_FEW_ROWS)
    assert found.next_step == NextStep(Step.LOG_MORE_ROWS)


def test_hidden_plays_are_no_obstacle_if_the_others_gain_enough() -> None:
    """A gain that is there although hidden plays earn nothing shows after enough such rows."""
    log = drawn(np.array([0.9, 0.1]), np.array([0.3, 0.45]), 1_500, seed=3)
    found = judged(log, [0.0, 0.95, 0.05])
    assert found.hidden == pytest.approx(0.05)
    assert found.outcome is VerdictOutcome.NOT_ENOUGH_DATA
    assert found.sample_size.gain < found.estimated_gain
    assert math.isfinite(found.next_step.rows)


@pytest.mark.parametrize("policy", [[0.0, 1.0], [0.5, 0.5], [0.99, 0.01]])
@pytest.mark.parametrize("mean", [0.5, 0.0005])
def test_no_number_of_rows_of_a_deterministic_production_is_ever_given(
    mean: float, policy: list[float]
) -> None:
    """Neither where it always played one action, nor where it followed the context."""
    rng = np.random.default_rng(0)
    rewards = (rng.random(4_000) < mean).astype(float)
    for actions in (np.zeros(4_000, dtype=int), rng.integers(2, size=4_000)):
        log = frame_of(actions, rewards, 1.0)
        found = judged(log, policy)
        assert found.outcome is VerdictOutcome.IMPOSSIBLE
        assert found.reason is Reason.DETERMINISTIC_PRODUCTION
        assert found.next_step.rows is None
        assert 0.0 < found.next_step.exploration <= 0.5
        assert found.sample_size.rows == math.inf


def test_a_deterministic_production_shows_a_policy_that_does_the_same() -> None:
    found = judged(frame_of([0] * 500, [1.0, 0.0] * 250, 1.0), [1.0, 0.0])
    assert found.reason is Reason.SAME_AS_PRODUCTION


def test_a_promotion_counts_even_if_some_plays_are_hidden() -> None:
    """What the log never shows can only add to a lower bound."""
    log = drawn(np.array([0.5, 0.5]), np.array([0.1, 0.9]), 2000, seed=0)
    assert judged(log, [0.0, 0.9, 0.1]).decision is PolicyDecision.BETTER


def test_deterministic_production_is_named_and_tells_nothing_else() -> None:
    one = frame_of([0] * 500, [1.0, 0.0] * 250, 1.0)
    found = coverage_from(sums_of(one, 2))
    assert found.deterministic
    said = str(us.logs.coverage(one, actions=["0", "1"]))
    assert "deterministic (it always played 0)" in said
    assert found.unseen == (1,)
    rng = np.random.default_rng(0)
    contexts = rng.integers(2, size=500)  # plays the action of its context, always
    both = frame_of(contexts, contexts.astype(float), 1.0)
    found = coverage_from(sums_of(both))
    assert found.deterministic
    assert "deterministic (every propensity is 1)" in str(us.logs.coverage(both))
    assert found.calibration.shown.tolist() == pytest.approx([1 - contexts.mean(), contexts.mean()])
    assert judged(both, [0.0, 1.0]).decision is PolicyDecision.UNKNOWN


def test_propensities_that_contradict_a_certificate_decide_nothing() -> None:
    q, counts = np.array([0.5, 0.5]), np.array([1000, 1000])
    sums = fixed_sums(q, counts, np.array([0.0, 1.0]))
    certificate = us.Certificate(behavior=[0.05, 0.95])  # not what the log was played with
    log = us.Log([0, 0, 1, 1] * 500, [0.0, 1.0] * 1000)
    observed = certificate.observe(log, us.FixedPolicy([1.0, 0.0]))
    assert observed.lower > observed.upper
    (found,) = coverage_from(
        as_log(sums),
        candidates=[Candidate("mine", np.array([1.0, 0.0]))],
        certificates=[observed],
    ).verdicts
    assert found.decision is PolicyDecision.UNKNOWN
    assert found.obstacle is Obstacle.CONTRADICTORY_BOUNDS
    assert not found.sound


def test_propensities_that_are_wrong_decide_nothing() -> None:
    """They are ten times too small, which would make any policy that plays them look better."""
    log = frame_of([0, 1] * 2000, [0.0, 1.0] * 2000, 0.05)
    found = judged(log, [0.0, 1.0])
    assert found.decision is PolicyDecision.UNKNOWN
    assert found.obstacle is Obstacle.WRONG_PROPENSITIES
    both = frame_of([0, 0, 1, 1] * 1000, [0.0, 1.0] * 2000, 0.05)  # the bounds contradict too
    assert judged(both, [0.0, 1.0]).obstacle is Obstacle.WRONG_PROPENSITIES  # the cause
    high = judged(log.with_columns(propensity=0.9), [0.0, 1.0])
    assert high.obstacle is None  # too large ones only make certificates more careful


def test_what_the_log_picked_pays_for_all_it_could_have_picked() -> None:
    """The best of K actions is certified at δ/K, a policy of the user's own at δ."""
    log = drawn(np.full(4, 0.25), np.array([0.1, 0.2, 0.3, 0.4]), 400, seed=0)
    sums = sums_of(log)
    uniform, best = candidates_of(sums)
    assert (uniform.chosen_from, best.chosen_from, best.name) == (1, 4, "always 3")
    assert candidates_of(sums, declared=False)[1].chosen_from == 4 * 5  # Σ_j 1/(j(j+1)) is 1
    found = certify_candidates(log, LOGGED, sums, [uniform, best], confidence=0.9)
    confidences = [certificate.confidence for certificate in found if certificate]
    assert confidences == pytest.approx([0.9, 0.975])


def test_findings_are_lines_of_text() -> None:
    table = dirty_log(rows=300)
    many = tuple(str(a) for a in range(20))
    lines = str(us.logs.coverage(table, actions=many)).split("\n")
    hand = by_hand(table)
    rejected = sum(hand.refused.values())
    assert lines[0].startswith(f"{len(hand.rows)} rows; {rejected} quarantined (action")
    assert lines[1] == "Never played: 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 and 5 more"
    assert lines[2].startswith("Calibration: ")
    assert lines[3].startswith("Drift: ")
    assert lines[4].startswith("uniform: Not enough data yet. 300 rows are too few to show")


@pytest.mark.parametrize(
    ("policies", "confidence"), [([], 1.0), ({"a": 0.5, "b": 0.1}, 0.9), ({"a": 1.5}, None)]
)
def test_wrong_questions_are_refused(policies: Any, confidence: float | None) -> None:
    log = frame_of(["a", "b"] * 9, 1.0, 0.5)
    with pytest.raises(InvalidArgument):
        us.logs.coverage(log, policies, confidence=confidence)


def test_a_verdict_needs_a_certificate() -> None:
    sums = fixed_sums(np.array([0.5, 0.5]), np.array([500, 500]), np.array([0.0, 1.0]))
    found = coverage_from(as_log(sums)).verdicts[1]
    assert (found.name, found.overlap.estimate) == ("always 1", 1.0)
    assert (found.decision, found.certificate) == (PolicyDecision.UNKNOWN, None)


@pytest.mark.parametrize("engine", [None, "polars"])
def test_the_largest_propensity_depends_on_all_actions_of_the_log(engine: str | None) -> None:
    """Of three actions with at least .2 each, none has .7; all rows of `a` have less than .2."""
    q = np.array([0.1, 0.2, 0.7])
    a = np.arange(60) % 3
    labels = np.array(["a", "b", "c"])[a]
    log = pl.DataFrame({"action": labels, "reward": a / 2, "propensity": q[a]})
    found = us.logs.coverage(log, engine=engine, least_propensity=0.2).coverage
    certified = us.logs.certify(log, {"b": 1.0}, engine=engine, least_propensity=0.2).coverage
    for one in (found, certified):
        below, above = "propensity is below the least one", "propensity contradicts the least one"
        assert one.refused == {below: 20, above: 20}
        assert one.rows == 20
