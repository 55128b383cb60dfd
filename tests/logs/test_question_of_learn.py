"""`us.logs.learn` with a baseline, guardrails and segments, and with lost rows left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.logs.log_files import LABELS, as_log, make_rows, write
from tests.support.logs.questions import QUESTION, with_metrics
from tests.support.refusals import assert_refused
from understudy.certificates import (
    BaselineRounds,
    FixedPolicy,
    JointCertificate,
    SegmentCertificates,
    largest_ratios,
)
from understudy.certificates.curves import follow_joint
from understudy.certificates.difference import certificate_against
from understudy.errors import InvalidSnapshot
from understudy.logs import Policy, learn
from understudy.logs.evaluation.answers import GuardrailState
from understudy.logs.evaluation.questions import Question
from understudy.logs.policy import from_text
from understudy.snapshots import as_data

pytestmark = pytest.mark.plain

ACTIONS = tuple(sorted(LABELS))
BEHAVIOR: dict[int | str, float] = {"north": 0.4, "south": 0.1, "east": 0.3, "west": 0.2}
PLAIN = make_rows(1_200)
ROWS = with_metrics(PLAIN)
VECTORS = ROWS.with_columns(
    propensity_vector=pl.Series(
        [
            {label: q if label == action else (1.0 - q) / 3 for label in ACTIONS}
            for action, q in ROWS.select("action", "propensity").iter_rows()
        ]
    )
)
KNOWN: dict[str, dict[str, Any]] = {
    "logged": {},
    "least propensity": {"least_propensity": 0.05},
    "vectors": {"propensity_vector": "propensity_vector"},
    "given": {"behavior": BEHAVIOR},
    "eligible": {"eligible": "could"},
    "missing at random": {"quarantined": "missing-at-random"},
}
FIXED: dict[str, Any] = {"actions": list(ACTIONS), "learner": "exp3-ix", **QUESTION}


def rows_of(name: str) -> pl.DataFrame:
    rows = VECTORS if name == "vectors" else ROWS
    return rows.with_columns(could=pl.Series([list(ACTIONS)] * len(rows)))


def content(policy: Policy) -> dict[str, Any]:
    """policy.json without what each run finds by itself: its files, and whether rows are equal."""
    found: dict[str, Any] = json.loads(policy.to_json())
    for own in ("files", "repeated"):
        found["provenance"].pop(own)
    return found


# ----------------------------------------------------------------------- the same as certify does


@pytest.mark.parametrize("behavior", ["logged", "least propensity", "given"])
def test_the_certificates_are_those_of_the_trace(behavior: str) -> None:
    """Goal, guardrails and segments, on rows that can all be used, computed without any run."""
    usable = ROWS.filter(pl.col("reward").is_not_null(), pl.col("latency").is_not_null())
    found = learn(usable, **FIXED, **KNOWN[behavior])
    q: Any = us.Logged(n_actions=4, least_propensity=KNOWN[behavior].get("least_propensity"))
    log = as_log(usable, ACTIONS)
    if behavior == "given":
        q = np.array([BEHAVIOR[label] for label in ACTIONS])
        log = us.Log(log.actions, log.rewards)
    learner = us.exp3_ix(q)
    _, trace = learner.replay(learner.init(), log)
    north = np.array([label == "north" for label in ACTIONS], dtype=float)
    baseline = BaselineRounds(north[log.actions], largest_ratios(FixedPolicy(north), log, q))
    question = Question.of(**QUESTION)
    plain = us.Certificate(q, 0.95, 4)
    begun = certificate_against(plain, north)
    ratios = largest_ratios(trace, log, plain.behavior)
    metrics = np.stack([one.unit(usable[one.name]) for one in question.guardrails], axis=1)
    codes = np.array([{"it": 0, "es": 1, "fr": -1}[value] for value in usable["country"]])
    joint = JointCertificate.begin(begun, question.guardrails)
    joint, points = follow_joint(joint, log, trace.probability, ratios, metrics, baseline)
    segments = SegmentCertificates.begin(begun, ("it", "es"))
    segments = segments.advance(log, trace.probability, ratios, codes, baseline)
    path = found.policy.certificates
    assert path is not None
    assert path.joint is not None
    assert path.segments is not None
    assert as_data(path.joint) == as_data(joint)
    assert as_data(path.segments) == as_data(segments)
    assert list(path.points) == points
    assert path.without_rejected is None


@pytest.mark.parametrize("label", LABELS)
def test_the_gain_over_an_action_is_that_of_certify(label: str) -> None:
    usable = ROWS.filter(pl.col("reward").is_not_null())
    found = learn(usable, actions=ACTIONS, learner="prod", against=f"action:{label}")
    log, learner = as_log(usable, ACTIONS), us.prod(us.Logged(n_actions=4))
    _, trace = learner.replay(learner.init(), log)
    expected = us.certify(log, trace, behavior=us.Logged(n_actions=4), against=ACTIONS.index(label))
    assert found.certified is not None
    assert np.array_equal(found.certified.gain_curve, expected.gain_curve)  # type: ignore[arg-type] # a gain is certified
    assert found.certified.gain_upper == expected.gain_upper
    verdict = found.coverage.verdicts[0]
    assert verdict.baseline is not None
    assert verdict.baseline.name == f"always {label}"
    earned = usable.filter(pl.col("action") == label)
    weights = 1.0 / earned["propensity"]
    mean = float((weights * earned["reward"]).sum()) / float(weights.sum())
    assert verdict.baseline.reward == pytest.approx(mean, rel=1e-12)


def test_all_verdicts_are_about_the_same_baseline() -> None:
    verdicts = learn(ROWS, **FIXED).coverage.verdicts
    assert len({one.baseline for one in verdicts if one.baseline is not None}) >= 1
    assert all(one.baseline is not None and one.baseline.name == "always north" for one in verdicts)
    first, *others = verdicts
    assert [one.metric.name for one in first.guardrails] == ["latency", "visits"]
    assert first.segments is not None
    assert {one.gain.name for one in first.segments.segments} == {"it", "es"}
    assert not any(one.guardrails or one.segments for one in others)


def test_a_guardrail_that_the_learner_breaks_is_a_verdict_of_its_own() -> None:
    """The south earns most, and has the worst latency."""
    rows = make_rows(6_000, seed=3).with_columns(
        latency=pl.when(pl.col("action") == "south").then(900.0).otherwise(100.0)
    )
    asked: dict[str, Any] = {"actions": LABELS, "least_propensity": 0.05, "no_unit": True}
    alone = learn(rows, **asked)
    guarded = learn(rows, **asked, guardrail="latency:0:1000:lower:20")
    assert alone.verdict == "promote"
    assert guarded.verdict == guarded.outcome == "guardrail broken"
    assert guarded.joint is not None
    assert guarded.joint.broken == (True,)
    (bounds,) = guarded.coverage.verdicts[0].guardrails
    assert bounds.state is GuardrailState.BROKEN
    harmless = learn(rows, **asked, guardrail="latency:0:1000:higher:20")
    assert harmless.verdict == "promote"


# --------------------------------------------------------------------------- resuming and batches


@pytest.mark.parametrize("cuts", [(30,), (600,), (30, 500, 900)], ids=str)
@pytest.mark.parametrize("known", KNOWN)
def test_parts_are_the_whole_bit_for_bit(known: str, cuts: tuple[int, ...], tmp_path: Path) -> None:
    """Rows before the 40th can all be used, so the path forks in the first part, or later."""
    rows, asked = rows_of(known), FIXED | KNOWN[known]
    whole = learn(rows, **asked).policy
    (path,) = whole.study.curves
    assert path is not None
    assert path.without_rejected is not None
    found: Policy | None = None
    for first, last in pairwise((0, *cuts, len(rows))):
        given = asked if found is None else {}
        learned = learn(rows[first:last], resume=found, out=tmp_path, overwrite=not first, **given)
        text = (tmp_path / "policy.json").read_text(encoding="utf-8")
        found = Policy.load(tmp_path / "policy.json")
        assert learned.policy.to_json() == found.to_json() == text
    assert found is not None
    assert content(found) == content(whole)
    assert found.question == whole.question


@pytest.mark.parametrize("known", ["logged", "least propensity"])
def test_certificates_do_not_depend_on_batches(known: str, tmp_path: Path) -> None:
    """Each file is a batch, and the rows of one are the same as those of many."""
    asked = FIXED | KNOWN[known]
    cuts = [0, 1, 8, 9, 41, 42, 300, 777, len(ROWS)]
    paths = [
        write(tmp_path / f"{place}.parquet", ROWS[first:last])
        for place, (first, last) in enumerate(pairwise(cuts))
    ]
    assert content(learn(paths, **asked).policy) == content(learn(ROWS, **asked).policy)


def test_the_same_question_may_be_asked_again(tmp_path: Path) -> None:
    learn(ROWS[:600], out=tmp_path, **FIXED)
    again = learn(ROWS[600:], resume=tmp_path / "policy.json", **FIXED)
    implied = learn(ROWS[600:], resume=tmp_path / "policy.json")
    assert content(again.policy) == content(implied.policy)
    north = {"north": 1.0}
    learn(ROWS[600:], resume=tmp_path / "policy.json", against=north)


OTHERS: dict[str, tuple[Any, str]] = {
    "against": ("action:east", "always east: the policy was learned with always north"),
    "guardrail": ("latency:0:1000:lower:60", "latency:0:1000:lower:60: the policy was learned"),
    "segment": ("country=it", "country=it: the policy was learned with country=it,es"),
    "quarantined": ("missing-at-random", "the policy was learned with worst-case"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_question_is_refused(name: str) -> None:
    value, words = OTHERS[name]
    first = learn(ROWS[:600], **FIXED)
    assert_refused(lambda: learn(ROWS[600:], resume=first, **{name: value}), name, words)
    plain = learn(ROWS[:600], actions=ACTIONS)
    assert_refused(
        lambda: learn(ROWS[600:], resume=plain, **{name: value}), name, "the policy was learned"
    )


@pytest.mark.parametrize(
    ("name", "value"), [("against", "production"), ("quarantined", "worst-case")]
)
def test_production_and_the_worst_case_can_be_asked_for_by_name(name: str, value: str) -> None:
    """A value that is also the default is no less a question."""
    first = learn(ROWS[:600], **FIXED, quarantined="missing-at-random")
    plain = learn(ROWS[:600], actions=ACTIONS)
    asked: dict[str, Any] = {name: value}
    assert_refused(lambda: learn(ROWS[600:], resume=first, **asked), name, f"{value}: the")
    learn(ROWS[600:], resume=plain, **asked)


# ----------------------------------------------------------------------------------- files


def test_files_without_a_question_are_as_they_were() -> None:
    usable = ROWS.filter(pl.col("reward").is_not_null())
    found = content(learn(usable, actions=ACTIONS).policy)
    assert not {"segments", "baseline", "baseline_sums", "quarantined_rows", "without_rejected"} & (
        set(found)
    )
    assert found["certificate"]["kind"] == "Certificate"
    lost = content(learn(ROWS, actions=ACTIONS).policy)
    assert set(lost) == {*found, "without_rejected"}


def test_a_policy_that_lost_rows_without_a_fork_goes_on_without_one() -> None:
    """As those of older releases: what the certificate would be without them is not known."""
    first = learn(ROWS[:600], actions=ACTIONS).policy
    older = json.loads(first.to_json())
    del older["without_rejected"]
    found, forked = (learn(ROWS[600:], resume=one) for one in (from_text(json.dumps(older)), first))
    assert "without_rejected" not in content(found.policy)
    assert found.coverage.verdicts[0].other_gain is None
    assert forked.coverage.verdicts[0].other_gain is not None
    assert content(found.policy)["certificate"] == content(forked.policy)["certificate"]


def _with(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no goal": lambda data: data["certificate"].pop("goal"),
    "the goal alone": lambda data: data.update(certificate=data["certificate"]["goal"]),
    "a guardrail less": lambda data: data["certificate"]["guardrails"].pop(),
    "a margin": _with("certificate", "metrics", 0, "margin", value=-1.0),
    "a metric of another name": _with("certificate", "metrics", 0, "name", value="speed"),
    "a metric that is none": _with("certificate", "metrics", 0, value=7),
    "a late break": _with("certificate", "broken_at", 0, value=10**6),
    "half a break": _with("certificate", "broken_at", 0, value=0.5),
    "a late promotion": _with("certificate", "crossed", value=10**6),
    "a guardrail of other confidence": _with(
        "certificate", "guardrails", 0, "target", "confidence", value=0.9
    ),
    "a guardrail of fewer rounds": lambda data: data["certificate"]["guardrails"].__setitem__(
        0, data["segments"]["certificates"][0]
    ),
    "no segments": lambda data: data.pop("segments"),
    "a segment less": lambda data: data["segments"]["certificates"].pop(),
    "a segment of another name": _with("segments", "names", value=["it", 7]),
    "segments of another confidence": _with("segments", "confidence", value=0.5),
    "segments of fewer rounds": _with("segments", "rounds", value=3),
    "no baseline": lambda data: data.pop("baseline"),
    "a baseline without a name": _with("baseline", "name", value=None),
    "a baseline of three actions": _with("baseline", "policy", value=[0.5, 0.25, 0.25]),
    "a baseline that is no policy": _with("baseline", "policy", value=[0.5, 0.5, 0.5, 0.5]),
    "no sums": lambda data: data.pop("baseline_sums"),
    "sums that are not finite": _with("baseline_sums", "weights", value=float("nan")),
    "negative sums": _with("baseline_sums", "squares", value=-1.0),
    "sums of one metric": lambda data: data["baseline_sums"]["metrics"].pop(),
    "sums of no segment": _with("baseline_sums", "segments", value=None),
    "sums of fewer rows": _with("baseline_sums", "rows", value=7),
    "another treatment": _with("quarantined_rows", value="best-case"),
    "a fork without a certificate": lambda data: data["without_rejected"].pop("certificate"),
    "a fork that is none": _with("without_rejected", value={"certificate": None, "curve": []}),
    "a fork of the lost rows": lambda data: data.update(
        without_rejected={key: data[key] for key in data["without_rejected"]}
    ),
    "a fork of a fork": lambda data: data["without_rejected"].update(
        without_rejected=dict(data["without_rejected"])
    ),
    "no column of segments": _with("settings", "columns", "segments", value=[]),
    "another column of metrics": _with("settings", "columns", "metrics", value=["latency"]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_files_are_refused(damage: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(LEARNED)
    damage(data)
    with pytest.raises(InvalidSnapshot) as caught:
        from_text(json.dumps(data))
    assert "\n" not in str(caught.value)


LEARNED = learn(ROWS[:200], **FIXED).policy.to_json()
