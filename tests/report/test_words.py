"""The English of results: each finding has its sentence, with the decision first."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.verdicts import (
    BEYOND_SUCH_ROWS,
    CALIBRATION,
    COVERAGE,
    LABELS,
    STEADY,
    CalibrationFinding,
    Drift,
    DriftFinding,
    Obstacle,
    PolicyDecision,
    Reason,
    RepeatedRows,
    Repetition,
    SampleSize,
    ShareChange,
    Step,
    StickyColumn,
    StickyColumns,
    VerdictOutcome,
    certificate,
    verdict,
)
from understudy.report import as_dict, findings, words

pytestmark = pytest.mark.plain


def said(**changes: Any) -> str:
    return words.describe_verdict(verdict(**changes), COVERAGE)


def test_the_decision_comes_first_then_the_estimate_with_its_bound_then_the_next_step() -> None:
    found = certificate((0.5, 0.5))
    wanted = (
        r"Not enough data yet\. Estimated gain \+0\.0067 per row "
        r"\(at least −(\S+), at most \+(\S+), each with 95 %\)\. "
        r"Next: go on logging; if the estimate is right, about 980,000 rows like these, in all, "
        r"settle it more often than not\."
    )
    bounds = re.fullmatch(wanted, said())
    assert bounds is not None
    least, most = (float(x) for x in bounds.groups())  # rounded away: what is written holds too
    assert least - 1e-3 < -(found.gain or 0.0) / 1_000 <= least
    assert most - 1e-3 < (found.gain_upper or 0.0) / 1_000 <= most
    first = certificate((0.5, 0.5), rules=1)
    bound = f"−{math.ceil(-1_000 * (first.gain or 0.0) / 1_000) / 1_000:.3f}"  # rounded down
    assert f"(95 %: at least {bound}). Next" in said(certificate=first)


def test_a_gain_that_is_certain_since_a_later_row_says_that_the_estimate_is_over_all() -> None:
    log = us.Log([0, 1] * 500, [0.0, 1.0] * 500)
    bad_at_first = us.Trace(
        np.where(np.arange(1_000) < 500, 1.0 - log.actions, log.actions * 1.0), 0, 2
    )
    found = us.certify(log, bad_at_first, behavior=[0.5, 0.5]).certificate
    sentence = said(
        decision=PolicyDecision.BETTER,
        reason=Reason.GAIN_IS_CERTAIN_OF_LATE,
        certificate=found,
        sample_size=None,
    )
    wanted = (
        r"Promote\. Gain per row since row 512: at least \+0\.4\d with 95 % confidence \(estimated "
        r"\+0\.0067 over all rows\)\. Next: .*"
    )
    assert re.fullmatch(wanted, sentence)


def test_a_promotion_says_its_bounds_and_how_to_begin() -> None:
    better = said(
        decision=PolicyDecision.BETTER,
        reason=Reason.GAIN_IS_CERTAIN,
        certificate=certificate((0.0, 1.0)),
        sample_size=None,
    )
    assert better.startswith("Promote. Estimated gain +0.0067 per row (at least +0.4")
    assert better.endswith(
        "Next: let the policy make 1 % of the decisions, then 10 %, 50 %, 100 %; log each stage "
        "with its propensities, and certify it before the next."
    )


def test_a_loss_says_its_bounds_and_to_keep_production() -> None:
    changes: dict[str, Any] = {
        "decision": PolicyDecision.WORSE,
        "reason": Reason.LOSS_IS_CERTAIN,
        "sample_size": None,
    }
    worse = said(certificate=certificate((1.0, 0.0)), **changes)
    assert re.match(r"Worse than production\. Estimated gain .* at most −0\.4\d, each with", worse)
    assert worse.endswith(" Next: keep production, and do not roll this policy out.")
    first = said(certificate=certificate((1.0, 0.0), rules=1), **changes)
    wanted = r"Worse than production\. Estimated gain \+0\.0067 per row: the policy earns at most"
    assert re.match(wanted, first)
    assert "(95 % confidence). Next: " in first


def test_a_promotion_that_is_not_justified_any_more_says_so() -> None:
    lost = said(reason=Reason.GAIN_IS_LOST, certificate=certificate((0.0, 1.0)), sample_size=None)
    assert lost.startswith(
        "No longer certain. A gain was certain after row 12, and over all rows it is not any more. "
        "Estimated gain +0.0067 per row (at least "
    )
    step = " Next: do not raise the policy's share of the decisions, and go on logging."
    assert lost.endswith(step)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"reason": Reason.NO_CERTIFICATE, "certificate": None},
            "The log covers this policy: 1,000 rows say as much as about 500 plays of its own. "
            "Next: certify it for a decision.",
        ),
        (
            {"reason": Reason.SAME_AS_PRODUCTION, "sample_size": None},
            "No visible gain. The policy plays as production does, so there is no gain to show. "
            "Next: keep production, or try a policy that differs from it.",
        ),
        (
            {"reason": Reason.NO_REWARDS, "sample_size": None},
            "No visible gain. Every reward is the lowest there is, so policies do not differ in "
            "this log. Next: check the column of rewards.",
        ),
        (
            {
                "reason": Reason.UNSEEN_ACTIONS,
                "hidden": 0.75,
                "sample_size": SampleSize(0.05, math.inf, 0.085),
            },
            "Impossible with such a log. 75 % of the policy's plays are actions that the log never "
            "shows, so no number of such rows would show a gain. Next: let production follow the "
            "policy in about 8.5 % of its decisions, and log their propensities; then a gain of "
            "0.05 per row would show.",
        ),
        (
            {
                "reason": Reason.RARE_ACTIONS,
                "hidden": 0.2,
                "sample_size": SampleSize(0.05, math.inf, 0.5),
            },
            "Impossible with such a log. 20 % of the policy's plays are rare or impossible in "
            "these rows, so no number of such rows would show a gain. Next: let production follow "
            "the policy in about 50 % of its decisions, for more rows than these, and log their "
            "propensities; then a gain of 0.05 per row would show.",
        ),
        (
            {
                "reason": Reason.DETERMINISTIC_PRODUCTION,
                "sample_size": SampleSize(0.05, math.inf, 0.1),
            },
            "Impossible with such a log. Production was deterministic: it could play only one "
            "action in each row, so no number of such rows would show a gain. Next: let production "
            "follow the policy in about 10 % of its decisions, and log their propensities; then a "
            "gain of 0.05 per row would show.",
        ),
        (
            {"reason": Reason.TOO_FEW_ROWS, "sample_size": None, "rows": 7},
            "Not enough data yet. 7 rows are too few to show what the policy would earn. Next: go "
            "on logging, and run this again.",
        ),
        (
            {
                "reason": Obstacle.WRONG_PROPENSITIES,
                "obstacle": Obstacle.WRONG_PROPENSITIES,
                "sample_size": None,
            },
            "Cannot tell. The propensities of actions that the policy plays are wrong: see the "
            "calibration. Correct them, and run this again.",
        ),
    ],
)
def test_each_finding_has_its_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert said(**changes) == sentence


def test_quarantined_rows_that_hide_every_gain_are_the_cause() -> None:
    dirty = replace(COVERAGE, refused={"reward is out of range": 60})
    line = words.describe_verdict(verdict(reason=Reason.QUARANTINED_ROWS, rejected=60), dirty)
    assert line.startswith(
        "Impossible with such a log. 60 of 1,000 rows are quarantined, and count with the worst "
        "that they may have been, so no number of such rows would show a gain. Estimated gain "
    )
    assert line.endswith(
        " Next: correct the quarantined rows (pass the smallest and largest possible with "
        "--reward-range LOW HIGH)."
    )


def test_no_visible_gain_says_what_these_rows_would_have_shown() -> None:
    changes: dict[str, Any] = {"reason": Reason.WITHIN_ONE_STANDARD_ERROR, "sample_size": None}
    line = said(standard_error=0.012, **changes)
    assert line.startswith("No visible gain. Estimated gain +0.0067 per row (at least −")
    assert line.endswith(
        "each with 95 %): not above its standard error, 0.012. In this many rows, a gain of 0.05 "
        "or more would usually show. Next: keep production. If a smaller gain matters, log more "
        "rows; if you need a larger one, try another policy."
    )
    assert "In this many" not in said(visible_gain=1.2, **changes)  # no gain is so large


@pytest.mark.parametrize(
    ("rows", "ending"),
    [
        (2_100.0, "about 2,100 rows like these, in all, settle it"),
        (12.0, "about as many rows again settle it"),
        (1e16, "about a quadrillion rows or more like these, in all, settle it"),
    ],
)
def test_the_rows_that_are_needed_are_rough_and_more_than_there_are(
    rows: float, ending: str
) -> None:
    step = f"Next: go on logging; if the estimate is right, {ending} more often than not."
    assert said(sample_size=SampleSize(0.05, rows, None)).endswith(step)


@pytest.mark.parametrize("reason", [*Reason, *Obstacle])
def test_every_verdict_has_an_outcome_one_next_step_and_never_rows_and_exploration(
    reason: Reason | Obstacle,
) -> None:
    needed = SampleSize(0.05, math.inf if reason in BEYOND_SUCH_ROWS else 5e3, 0.1)
    found = verdict(reason=reason, sample_size=needed)
    assert found.outcome in words.MARKS
    step = found.next_step
    assert step.rows is None or step.exploration is None
    assert (step.step is Step.EXPLORE) == (step.exploration is not None)
    assert (
        (step.step is Step.RAMP_UP)
        == (found.outcome is VerdictOutcome.PROMOTE)
        == bool(step.shares)
    )
    if found.outcome is not VerdictOutcome.NOT_ENOUGH_DATA:
        assert step.rows is None
    if isinstance(reason, Reason):
        line = words.describe_verdict(found, COVERAGE)
        assert line.count("Next: ") == 1
        assert "  " not in line


def test_the_code_of_a_ramp_loads_and_plays_the_policy(tmp_path: Path) -> None:
    """Also of a policy with contexts that does as production does in part."""
    rng, n = np.random.default_rng(0), 3_000
    x = rng.normal(size=n)
    action = rng.integers(2, size=n)
    reward = (rng.random(n) < np.where(action == (x > 0), 0.8, 0.2)).astype(float)
    log = pl.DataFrame({"x": x, "action": action, "reward": reward, "propensity": 0.5})
    plain_log = log.drop("x").with_columns(reward=pl.col("action") * 1.0)
    for rows, context in ((log, ["x"]), (plain_log, None)):
        learned = us.logs.learn(rows, context=context, out=tmp_path, overwrite=True)
        assert learned.outcome is VerdictOutcome.PROMOTE
        code = learned.report.code.replace("'policy.json'", repr(str(tmp_path / "policy.json")))
        code = code.replace("'x': ...", "'x': 0.3").replace("{...}", "{0: 0.5, 1: 0.5}")
        assert "..." not in code
        played: dict[str, Any] = {}
        exec(code, played)
        assert played["label"] in (0, 1)
        assert 0.0 < played["probability"] <= 1.0


@pytest.mark.parametrize("obstacle", Obstacle)
def test_every_obstacle_says_why_and_what_to_do(obstacle: Obstacle) -> None:
    repeated = RepeatedRows(Repetition.TIMES, 2, 500, 12.0, 9_000, 9_500)
    sticky = StickyColumns((StickyColumn("user", 900, 899),), 3)
    found = words.explain_obstacle(obstacle, {"action is missing": 7}, repeated, sticky)
    assert found.finding.endswith(".")
    assert found.step.endswith(".")
    assert found.finding.count(". ") == 0
    if obstacle is Obstacle.UNKNOWN_ACTIONS:
        assert "in 7 rows" in found.finding


@pytest.mark.parametrize("trace", [one for one in Repetition if one is not Repetition.NONE])
def test_every_trace_of_copies_has_its_words(trace: Repetition) -> None:
    line = findings.repeated_line(RepeatedRows(trace, 7, 500, 12.0, 9_000, 9_500))
    assert "7 " in line
    assert "500 of 9,000" in line
    assert line.endswith("; about 12 would by chance")


@pytest.mark.parametrize("finding", CalibrationFinding)
def test_every_calibration_has_its_words(finding: CalibrationFinding) -> None:
    found = replace(
        CALIBRATION,
        finding=finding,
        ratios=np.array([1.8, 0.2]),
        wrong=np.array([True, False]),
        rare=np.array([False, True]),
    )
    line = findings.calibration_line(found, LABELS)
    wrong = (
        "action a was played 1.8× as often as its propensities say: these propensities are wrong"
    )
    rare = (
        "action b was played 0.2× as often as its propensities say: the propensities are too high"
    )
    disagrees = finding is CalibrationFinding.DISAGREES
    assert (wrong in line) == (rare in line) == disagrees
    assert line


def test_the_actions_that_differ_most_are_named() -> None:
    found = replace(
        CALIBRATION,
        finding=CalibrationFinding.DISAGREES,
        ratios=np.array([1.5, 3.0, 2.0, 1.2, 1.1]),
        wrong=np.ones(5, dtype=bool),
        rare=np.zeros(5, dtype=bool),
    )
    line = findings.calibration_line(found, tuple("abcde"))
    assert line.startswith("action b was played 3× as often as its propensities say (action c 2×, ")
    assert "action a 1.5× and 2 more): these" in line


@pytest.mark.parametrize(
    ("drift", "line"),
    [
        (
            STEADY,
            "each action has the same propensity in all rows; shares of actions are steady over "
            "time (12 periods compared)",
        ),
        (
            Drift(DriftFinding.NO_TIME, 4.0, None, "logged"),
            "the propensity of an action varies by a factor of up to 4, so use logged propensities "
            "and do not estimate them",
        ),
        (
            Drift(DriftFinding.NO_TIME, math.nan, None, "estimated"),
            "unknown; name a column with --time to see changes over time",
        ),
        (
            Drift(DriftFinding.TOO_FEW_ROWS, math.nan, None, "estimated"),
            "too few rows to see changes over time",
        ),
        (
            Drift(DriftFinding.NOT_EXAMINED, 4.0, None, "logged"),
            "not examined here; understudy coverage --engine does it",
        ),
    ],
)
def test_drift_has_its_words(drift: Drift, line: str) -> None:
    assert findings.drift_line(drift, LABELS) == line


@pytest.mark.parametrize(
    ("behavior", "factor", "ending"),
    [
        ("logged", 4.0, ", which logged propensities account for"),
        ("logged", 1.0, " though propensities do not: they are wrong, or actions were not random"),
        ("given", math.nan, ", which given propensities ignore: log that of every row"),
    ],
)
def test_what_a_change_means_depends_on_the_propensities(
    behavior: Any, factor: float, ending: str
) -> None:
    change = ShareChange(1, 0.1, 0.9)
    drift = Drift(DriftFinding.CHANGED, factor, 1e-9, behavior, 2, change)
    change_words = "shares of actions change over time (action b: between 10 % and 90 %)"
    assert findings.drift_line(drift, LABELS).endswith(change_words + ending)


def test_a_result_says_the_same_in_json_and_in_words() -> None:
    rng = np.random.default_rng(3)
    actions = rng.integers(2, size=700)
    rewards = (rng.random(700) < np.array([0.45, 0.5])[actions]).astype(float)
    log = pl.DataFrame({"action": np.array(LABELS)[actions], "reward": rewards, "propensity": 0.5})
    found = us.logs.certify(log, {"b": 1.0})
    as_json = as_dict(found.report)
    assert (as_json["verdict"], as_json["decision"]) == ("not yet", "unknown")
    assert as_json["words"] == found.report.words
    assert repr(found) == f"CertifyResult({found.report.words})"
    assert as_json["calibration"] == "agrees"
    assert as_json["drift"] == "steady"
    candidate = as_json["candidates"][0]
    assert candidate["rows_needed"] == as_json["rows_needed"] > 700
    assert as_json["next_step"]["rows"] == as_json["rows_needed"]
    for name in ("outcome", "reason", "gain", "standard_error", "visible_gain"):
        assert candidate[name] == as_json[name] is not None
    assert as_json["outcome"] == "not enough data"
    assert as_json["gain"]["estimate"] == as_json["estimated_gain"]
    assert as_json["gain"]["low"] == as_json["certificate"]["gain"]


def test_contexts_that_are_left_out_or_unexpected_are_named() -> None:
    rows = 400
    log = pl.DataFrame(
        {
            "action": ["a", "b"] * (rows // 2),
            "reward": [0.0, 1.0] * (rows // 2),
            "propensity": 0.5,
            "day": "1",
            "size": [1.0, 2.0, 3.0, 4.0] * (rows // 4),
            "city": ["Rome", "Oslo"] * 199 + ["Bonn", None],
        }
    )
    found = us.logs.learn(log, context=["day", "size", "city"], warmup=8)
    assert found.oddities == {("city", "new"): 1, ("city", "missing"): 1}
    unlike = "unlike the warm-up; encoded as rare, missing or unknown."
    assert found.warnings[:3] == [
        f"Context: city is new in 1 row, {unlike}",
        f"Context: city is missing in 1 row, {unlike}",
        "Contexts that did not change in the 8 rows of the warm-up are left out: day; a larger "
        "--warmup may see them change.",
    ]


def test_a_policy_without_an_action_of_the_log_is_named() -> None:
    log = pl.DataFrame({"action": ["a", "b"] * 90, "reward": 1.0, "propensity": 0.5})
    found = us.logs.certify(log, dict.fromkeys("cdefg", 0.2))
    assert found.strange == (tuple("cdefg"), ("a", "b"))
    assert found.warnings == [
        "The policy and the log have no action in common: the policy knows c, d, e and 2 more; "
        "the log shows a, b."
    ]


def test_rows_that_are_rescaled_late_or_quarantined_are_named() -> None:
    log = pl.DataFrame({"action": ["a", "b"] * 90, "reward": [0.0, 5.0] * 90, "propensity": 0.5})
    spoiled = log.with_columns(reward=pl.when(pl.int_range(180) != 7).then("reward"))
    found = us.logs.learn(spoiled, reward_range=(0, 5), learner="exp3-ix", horizon=100)
    late, rescaled, quarantined = found.warnings
    assert late == "79 rows came after the horizon, where no theorem holds."
    assert rescaled.startswith("Rewards were rescaled from [0, 5] to [0, 1]. The learner depends")
    assert quarantined.startswith(
        "1 row is quarantined (reward is missing: 1): check the column of the reward (where there "
    )
    assert "counts it with the worst that it may have been" in quarantined
    assert quarantined.endswith("(its mean in valid rows is 2.486).")


@pytest.mark.parametrize("context", [None, ["x"]], ids=["plain", "contexts"])
def test_a_log_without_a_reward_shows_no_difference(context: list[str] | None) -> None:
    """The policy does not play as production does: there is nothing to compare by."""
    rows = pl.DataFrame({"action": ["a", "b", "b", "c"] * 100, "reward": 0.0, "x": range(400)})
    q = pl.col("action").replace_strict({"a": 0.25, "b": 0.5, "c": 0.25})
    learned = us.logs.learn(rows.with_columns(propensity=q), context=context)
    assert learned.report.verdict.startswith("Every reward is the lowest there is")
