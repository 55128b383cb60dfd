"""The question that is asked of a log, and its answers (`understudy.logs.evaluation`)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.command_line import Place, place  # noqa: F401 - a fixture
from tests.support.logs.sums import use_constant_centers
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs import CertifyResult, certify
from understudy.logs.evaluation.answers import GuardrailState
from understudy.logs.evaluation.outcomes import Reason, VerdictOutcome
from understudy.logs.evaluation.questions import Question, parse_guardrails, parse_segments

K, EXACT = 3, 1e-9
LABELS = np.array(["first", "second", "none"])
SPEED = {"latency": (0.0, 100.0, "lower", 4.0)}
FIRST: dict[int | str, float] = {"first": 0.9, "second": 0.1}


def make_rows(
    n: int = 6_000, seed: int = 0, *, means: Any = (0.6, 0.5, 0.3), slower: float = 0.0
) -> pl.DataFrame:
    """Rows of three actions with propensities of 1/3, a latency, and a country.

    The first action is `slower` than the others by so much.
    """
    rng = np.random.default_rng(seed)
    a = rng.integers(K, size=n)
    latency = np.clip(rng.normal(40.0 + slower * (a == 0), 5.0), 0.0, 100.0)
    return pl.DataFrame(
        {
            "action": LABELS[a],
            "reward": (rng.random(n) < np.array(means)[a]) * 1.0,
            "propensity": 1 / K,
            "latency": latency,
            "country": np.array(["it", "es", "fr"])[rng.integers(3, size=n)],
        }
    )


def with_losses(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows without some rewards, latencies, propensities and actions."""
    number = pl.int_range(pl.len())
    return rows.with_columns(
        reward=pl.when(number % 50 != 3).then("reward"),
        latency=pl.when(number % 40 != 7).then("latency"),
        propensity=pl.when(number % 97 != 5).then("propensity"),
        action=pl.when(number % 101 != 9).then("action"),
    )


def numbers(found: CertifyResult) -> list[float | None]:
    """All bounds of a result."""
    (verdict, *_), values = found.coverage.verdicts, [*found.coverage.verdicts[0].gain[:3]]
    for guardrail in verdict.guardrails:
        values += [guardrail.low, guardrail.high, float(guardrail.state is GuardrailState.HOLDS)]
    if verdict.segments is not None:
        for one in sorted(verdict.segments.segments, key=lambda one: one.gain.name):
            values += [one.gain.lower, one.gain.upper, one.estimate, float(one.gain.rounds)]
    return values


# -------------------------------------------------------------- sums say what rows in order say

QUESTIONS: dict[str, dict[str, Any]] = {
    "an action, in pairs": {"against": "action:none", "least_propensity": 0.3},
    "an action, by a difference": {"against": "action:none"},
    "a policy, of a given behavior": {
        "against": {"none": 0.5, "second": 0.5},
        "behavior": dict.fromkeys(LABELS.tolist(), 1 / K),
    },
    "guardrails": {"guardrail": SPEED, "least_propensity": 0.3},
    "guardrails against an action": {
        "guardrail": SPEED,
        "least_propensity": 0.3,
        "against": "action:none",
    },
    "segments": {"segment": "country=it,es", "least_propensity": 0.3},
    "segments against an action": {"segment": {"country": ["es", "it"]}, "against": "action:none"},
}


@pytest.mark.parametrize(
    ("engine", "lossy", "name"),
    [
        *[("polars", lossy, name) for name in QUESTIONS for lossy in (False, True)],
        ("duckdb", True, "guardrails against an action"),
    ],
)
def test_sums_answer_as_rows_in_order_do(
    engine: str,
    lossy: bool,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the same constant centers; estimates of lossy guardrails leave out other rows."""
    asked = QUESTIONS[name]
    rows = with_losses(make_rows()) if lossy else make_rows()
    rows.write_parquet(path := tmp_path / "log.parquet")
    use_constant_centers(monkeypatch)
    in_order, summed = (certify(path, FIRST, engine=one, **asked) for one in (None, engine))
    assert numbers(in_order) == pytest.approx(numbers(summed), rel=EXACT, abs=EXACT)
    verdicts = [found.coverage.verdicts[0] for found in (in_order, summed)]
    assert len({verdict.outcome for verdict in verdicts}) == 1
    if lossy and "guardrail" not in asked:
        assert verdicts[0].other_gain == pytest.approx(verdicts[1].other_gain, rel=1e-6)


# --------------------------------------------------------------------------------- baselines


def test_the_gain_over_an_action_is_that_of_certify() -> None:
    """Of a log of arrays, in pairs and as a difference."""
    rows = make_rows()
    codes = {label: i for i, label in enumerate(sorted(LABELS))}
    actions = np.array([codes[label] for label in rows["action"]])
    policy = [FIRST.get(label, 0.0) for label in codes]
    log = us.Log(actions, rows["reward"].to_numpy(), rows["propensity"].to_numpy())
    for least in (None, 0.3):
        found = certify(rows, FIRST, against="action:none", least_propensity=least)
        wanted = us.certify(
            log,
            us.FixedPolicy(policy),
            behavior=us.Logged(K, least_propensity=least),
            against=codes["none"],
        )
        assert found.certified.gain == wanted.gain
        assert found.certified.gain_upper == wanted.gain_upper
        assert found.certified.promoted_at == wanted.promoted_at


def test_a_baseline_that_plays_as_production_earns_as_production() -> None:
    rows = make_rows(2_000)
    even = dict.fromkeys(LABELS.tolist(), 1 / K)
    found = certify(rows, FIRST, against=even, behavior=even)
    (verdict,) = found.coverage.verdicts
    assert verdict.baseline is not None
    assert verdict.baseline.reward == pytest.approx(rows["reward"].mean(), abs=0.02)
    other = certify(rows, FIRST, behavior=even).certified
    assert found.certified.gain == pytest.approx(other.gain, rel=0.05)


def test_a_baseline_may_be_a_file_and_a_policy_with_contexts(tmp_path: Path) -> None:
    """The same probabilities by rows give the same bounds, where both are differences."""
    rows = make_rows(3_000)
    even = pl.int_range(pl.len()) % 2 == 0
    old = make_rows(3_000, seed=1).with_columns(x=even)
    learned = us.logs.learn(old, context="x", out=tmp_path / "old")
    rows = rows.with_columns(x=even)
    found = certify(rows, FIRST, against=f"policy:{tmp_path / 'old'}", least_propensity=0.3)
    (verdict,) = found.coverage.verdicts
    assert verdict.baseline is not None
    assert verdict.baseline.reward == pytest.approx(
        learned.policy.average @ [0.6, 0.3, 0.5], abs=0.1
    )
    lower, upper = found.certified.gain, found.certified.gain_upper
    assert lower is not None
    assert upper is not None
    assert lower < upper


def test_gains_over_an_action_take_no_propensities() -> None:
    """The difference of two bounds that count the behavior: no gain over production has one."""
    rows = make_rows(40_000, means=(0.9, 0.5, 0.1)).drop("propensity")
    found = certify(rows, {"first": 1.0}, against="action:none")
    assert (found.certified.gain or 0.0) > 0.0
    assert found.coverage.verdicts[0].outcome is VerdictOutcome.PROMOTE
    assert certify(rows, {"first": 1.0}).certified.gain is None


# --------------------------------------------------------------------------------- guardrails


@pytest.mark.parametrize(
    ("slower", "outcome", "state"),
    [
        (0.0, VerdictOutcome.PROMOTE, GuardrailState.HOLDS),
        (30.0, VerdictOutcome.GUARDRAIL_BROKEN, GuardrailState.BROKEN),
        (6.9, VerdictOutcome.NOT_ENOUGH_DATA, GuardrailState.UNCERTAIN),
    ],
)
def test_a_goal_is_promoted_if_its_guardrail_holds(
    slower: float, outcome: VerdictOutcome, state: GuardrailState
) -> None:
    """By .9 of the policy's plays against 1/3 of production's: the change is .57 × slower."""
    rows = make_rows(20_000, slower=slower)
    found = certify(rows, FIRST, guardrail=SPEED, least_propensity=0.3)
    (verdict,) = found.coverage.verdicts
    (guardrail,) = verdict.guardrails
    assert (verdict.outcome, guardrail.state) == (outcome, state)
    assert guardrail.estimate == pytest.approx(17 / 30 * slower, abs=0.5)
    assert guardrail.low is not None
    assert guardrail.high is not None
    assert guardrail.low <= 17 / 30 * slower <= guardrail.high
    assert (guardrail.rows is not None) == (state is GuardrailState.UNCERTAIN)
    if outcome is VerdictOutcome.NOT_ENOUGH_DATA:
        assert verdict.reason is Reason.GUARDRAIL_IS_UNCERTAIN
        assert verdict.next_step.rows == guardrail.rows


def test_a_metric_that_is_missing_is_the_worst_for_itself_alone() -> None:
    """No value that a missing latency may have gives a lower bound; the goal is the same."""
    rows = make_rows(2_000)
    lost = pl.int_range(pl.len()) % 20 == 3
    asked: dict[str, Any] = {"guardrail": SPEED, "least_propensity": 0.3}
    worst = certify(rows.with_columns(latency=pl.when(~lost).then("latency")), FIRST, **asked)
    assert worst.joint is not None
    for value in (0.0, 100.0, 40.0):
        filled = rows.with_columns(latency=pl.when(~lost).then("latency").otherwise(value))
        found = certify(filled, FIRST, **asked)
        assert found.joint is not None
        assert found.certified.gain == worst.certified.gain
        (mine,), (other,) = worst.joint.guardrails, found.joint.guardrails
        assert (mine.gain or 0.0) <= (other.gain or 0.0) + 1e-9
        assert (mine.gain_upper or 0.0) >= (other.gain_upper or 0.0) - 1e-9


def test_a_row_without_a_reward_still_has_its_metrics() -> None:
    """Where the policy is fixed, so that the weight of the row is known."""
    rows = make_rows(2_000)
    lossy = rows.with_columns(reward=pl.when(pl.int_range(pl.len()) % 10 != 3).then("reward"))
    asked: dict[str, Any] = {"guardrail": SPEED, "least_propensity": 0.3}
    whole, found = certify(rows, FIRST, **asked), certify(lossy, FIRST, **asked)
    assert whole.joint is not None
    assert found.joint is not None
    assert found.joint.guardrails[0].gain == whole.joint.guardrails[0].gain
    assert (found.certified.gain or 0.0) < (whole.certified.gain or 0.0)


def test_the_metric_of_a_unit_is_that_of_its_rows() -> None:
    """Users with two rows each are one row with the means of both."""
    users = make_rows(1_000).with_columns(user=pl.int_range(pl.len()))
    twice = pl.concat([users.with_columns(pl.col("latency") + by) for by in (-3.0, 3.0)])
    asked: dict[str, Any] = {"guardrail": SPEED, "segment": "country=it,es", "unit": "user"}
    once, found = (certify(rows, FIRST, **asked) for rows in (users, twice))
    assert numbers(found) == pytest.approx(numbers(once), rel=1e-12)
    lost = twice.with_columns(latency=pl.when(pl.int_range(pl.len()) != 1_500).then("latency"))
    (guardrail,) = certify(lost, FIRST, **asked).coverage.verdicts[0].guardrails
    (before,) = found.coverage.verdicts[0].guardrails
    assert guardrail.high is not None
    assert before.high is not None
    assert guardrail.high > before.high


# ------------------------------------------------------------------------- segments, lost rows


def test_segments_are_certified_as_logs_of_their_own() -> None:
    rows = make_rows()
    found = certify(rows, FIRST, segment="country=it,es", least_propensity=0.3)
    assert found.segments is not None
    for gain in found.segments.gains:
        own = rows.filter(pl.col("country") == gain.name)
        alone = certify(own, FIRST, least_propensity=0.3, confidence=1.0 - 0.05 / 4).certified
        assert gain.rounds == len(own)
        assert gain.lower == pytest.approx((alone.gain or 0.0) / len(own), rel=1e-12)
        assert gain.upper == pytest.approx((alone.gain_upper or 0.0) / len(own), rel=1e-12)


def test_a_segment_in_which_the_policy_is_worse_is_named() -> None:
    """The policy gains over all rows, and loses in one country."""
    good, bad = make_rows(9_000), make_rows(4_000, seed=1, means=(0.1, 0.5, 0.9))
    rows = pl.concat(
        [good.with_columns(country=pl.lit("it")), bad.with_columns(country=pl.lit("es"))]
    )
    found = certify(rows, FIRST, segment="country=it,es", least_propensity=0.3)
    (verdict,) = found.coverage.verdicts
    assert verdict.segments is not None
    assert verdict.segments.worse_somewhere
    assert [one.gain.name for one in verdict.segments.segments] == ["it", "es"]
    assert [one.gain.worse for one in verdict.segments.segments] == [False, True]


def test_rows_that_are_missing_at_random_are_left_out() -> None:
    """Both numbers are there, whichever is asked for; the worst case is the log's own default."""
    lossy = with_losses(make_rows())
    kept = lossy.drop_nulls(["action", "reward", "propensity"])
    asked: dict[str, Any] = {"least_propensity": 0.3, "guardrail": SPEED, "segment": "country=it"}
    worst, left_out = (
        certify(lossy, FIRST, quarantined=one, **asked)
        for one in ("worst-case", "missing-at-random")
    )
    alone = certify(kept, FIRST, **asked)
    assert numbers(left_out) == numbers(alone)
    (mine,), (other,) = worst.coverage.verdicts, left_out.coverage.verdicts
    assert (mine.missing_at_random, other.missing_at_random) == (False, True)
    assert (mine.other_gain, other.other_gain) == (other.gain.low, mine.gain.low)
    assert (mine.gain.low or 0.0) < (other.gain.low or 0.0)
    assert alone.coverage.verdicts[0].other_gain is None


def test_several_policies_hold_together() -> None:
    """Each has δ/m; the result is about the one with the largest certain gain."""
    rows = make_rows()
    second: dict[int | str, float] = {"second": 1.0}
    found = certify(rows, [second, FIRST], against="action:none", least_propensity=0.3)
    alone = certify(
        rows, FIRST, against="action:none", least_propensity=0.3, confidence=1.0 - 0.05 / 2
    )
    assert found.policy == alone.policy
    assert found.certified.gain == pytest.approx(alone.certified.gain)
    certificates = [verdict.certificate for verdict in found.coverage.verdicts]
    assert [one.confidence for one in certificates if one is not None] == [0.975, 0.975]
    gains = [verdict.gain.low or 0.0 for verdict in found.coverage.verdicts]
    assert gains == sorted(gains, reverse=True)


# --------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("against", "none", "action:LABEL"),
        ("against", "action:", "it names no action"),
        ("guardrail", "latency:0:100:lower", "3 fields after the name"),
        ("guardrail", "latency:0:100:smaller:4", "pass 'higher' or 'lower'"),
        ("guardrail", "latency:100:0:lower:4", "not above the smallest"),
        ("guardrail", "latency:0:100:lower:-4", "it must be at least 0"),
        ("guardrail", "latency:0:100:lower:400", "pass a smaller margin"),
        ("guardrail", "latency:0:100:lower:much", "no number"),
        ("guardrail", {"latency": (0, 100)}, "it needs low, high, better, margin"),
        ("guardrail", {"latency": {"low": 0}}, "give 'latency' low, high"),
        ("guardrail", 7, "it is no guardrail"),
        ("guardrail", ["latency:0:100:lower:4"] * 2, "declared twice"),
        ("guardrail", "nowhere.toml", "cannot be read"),
        ("segment", "country", "COLUMN=VALUE,VALUE"),
        ("segment", "country=it,,es", "is empty"),
        ("segment", "country=it,it", "repeated"),
        ("segment", {"country": "it"}, "no list of values"),
        ("segment", {"country": ["it"], "city": ["Rome"]}, "2 columns"),
        ("segment", ["country=it", "city=Rome"], "combine"),
        ("quarantined", "random", "missing-at-random"),
    ],
)
def test_a_wrong_question_is_refused_with_its_remedy(name: str, value: Any, part: str) -> None:
    with pytest.raises(InvalidArgument, match=name) as refused:
        certify(make_rows(50), FIRST, **{name: value})
    assert part in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ({"against": "action:noen"}, "name one of the log's actions: first, none, second"),
        ({"against": "policy:nowhere.json"}, "against = 'nowhere.json': it cannot be read"),
        ({"against": "policy:uniform"}, "declare all of them with --actions FILE"),
        ({"guardrail": "speed:0:1:lower:0.1"}, "it has no column 'speed'"),
        ({"guardrail": "country:0:1:lower:0.1"}, "no row has a number of it from 0 to 1"),
        ({"guardrail": "latency:0:1:lower:0.1"}, "no row has a number of it from 0 to 1"),
        ({"segment": "city=Rome"}, "it has no column 'city'"),
        ({"guardrail": "reward:0:1:lower:0.1"}, "two roles name this column"),
    ],
)
@pytest.mark.parametrize("engine", [None, "polars"])
def test_a_question_that_the_log_cannot_answer(
    asked: dict[str, Any], part: str, engine: str | None
) -> None:
    with pytest.raises((InvalidArgument, InvalidLog)) as refused:
        certify(make_rows(200), FIRST, engine=engine, **asked)
    assert part in str(refused.value)


def test_guardrails_and_segments_need_propensities() -> None:
    rows = make_rows(300).drop("propensity")
    for asked in ({"guardrail": SPEED}, {"segment": "country=it"}):
        with pytest.raises(InvalidArgument, match="--propensity"):
            certify(rows, FIRST, **asked)


def test_questions_are_parsed_alike_from_texts_files_and_mappings(tmp_path: Path) -> None:
    file = tmp_path / "guardrails.toml"
    file.write_text('[latency]\nlow = 0\nhigh = 100\nbetter = "lower"\nmargin = 4\n')
    (wanted,) = parse_guardrails(SPEED)
    for value in ("latency:0:100:lower:4", str(file), file, [wanted], wanted):
        assert parse_guardrails(value) == (wanted,)
    given = {"latency": {"margin": 4, "better": "lower", "low": 0, "high": 100}}
    assert parse_guardrails(given) == (wanted,)
    assert parse_guardrails("a:b:0:1:higher:0")[0].name == "a:b"
    assert parse_segments("country=it,es") == parse_segments({"country": ["it", "es"]})
    assert parse_segments(["visits=1.0,2"]) == parse_segments({"visits": [1, 2]})
    assert Question.of("production") == Question.of()
    assert dataclasses.replace(Question.of(), segments=parse_segments("a=1")).names == {
        "metrics": (),
        "segments": ("a",),
    }


def test_the_command_asks_the_same(place: Place) -> None:  # noqa: F811 - a fixture
    rows = make_rows(3_000).with_columns(size=pl.lit(0.5))
    path = place.write("log.csv", rows.write_csv())
    policy = place.write("policy.json", '{"first": 0.9, "second": 0.1}')
    said = place.run(
        *("certify", path, "--policy", policy, "--policy", "uniform"),
        *("--against", "action:none", "--least-propensity", "0.3", "--segment", "country=it,es"),
        *("--guardrail", "latency:0:100:lower:4", "--guardrail", "size:0:1:higher:0.1"),
        "--json",
    )
    assert said.code == 0, said.error
    asked: dict[str, Any] = {
        "against": "action:none",
        "least_propensity": 0.3,
        "segment": "country=it,es",
        "guardrail": SPEED | {"size": (0, 1, "higher", 0.1)},
    }
    found = certify(path, [FIRST, "uniform"], **asked)
    assert len(found.coverage.verdicts) == 2
    assert found.joint is not None
    assert len(found.joint.guardrails) == 2
