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
from tests.support.logs.questions import (
    QUESTION,
    as_data,
    certificates_of,
    from_text,
    with_metrics,
)
from tests.support.logs.sticky import sticky_log
from tests.support.refusals import assert_refused
from understudy.errors import InvalidArgument, InvalidSnapshot
from understudy.logs import Policy, learn

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
        found["provenance"].pop(own, None)
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
    joint, points, segments = certificates_of(usable, log, trace, q, north)
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
    always = [float(one == label) for one in ACTIONS]
    expected = us.certify(log, trace, behavior=us.Logged(n_actions=4), against=always)
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
    assert bounds.state == "broken"
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
    "against": ("action:east", "action:east: the policy was learned with always north"),
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


# ------------------------------------------------------------------------- rows that lack a value


def test_a_missing_metric_is_the_worst_for_this_metric_alone() -> None:
    usable = PLAIN.with_columns(ROWS["visits", "country"], latency=pl.lit(150.0))
    missing = usable.with_columns(
        latency=pl.when(pl.int_range(pl.len()) % 7 == 3).then(None).otherwise("latency")
    )
    whole, found = (learn(rows, **FIXED, least_propensity=0.05) for rows in (usable, missing))
    assert whole.joint is not None
    assert found.joint is not None
    assert found.segments is not None
    assert as_data(found.joint.goal) == as_data(whole.joint.goal)
    assert as_data(found.segments) == as_data(whole.segments)
    (latency, visits), (before, same) = found.joint.guardrails, whole.joint.guardrails
    assert as_data(visits) == as_data(same)
    assert latency.rounds == before.rounds
    for one, other in ((latency.gain, before.gain), (before.gain_upper, latency.gain_upper)):
        assert one is not None
        assert other is not None
        assert one < other
    assert not found.intake.refused


@pytest.mark.parametrize("asked", [{}, {"against": "action:north", "least_propensity": 0.05}])
def test_rows_that_are_missing_at_random_are_left_out(asked: dict[str, Any]) -> None:
    """The certificate is that of the other rows, and both treatments are in the verdict."""
    asked |= {"actions": ACTIONS, "learner": "prod"}
    left = learn(ROWS, quarantined="missing-at-random", **asked)
    worst = learn(ROWS, **asked)
    other = learn(ROWS.filter(pl.col("reward").is_not_null()), **asked)
    assert left.certified is not None
    assert other.certified is not None
    assert as_data(left.certified.certificate) == as_data(other.certified.certificate)
    assert np.array_equal(left.certified.lower_curve, other.certified.lower_curve)
    assert worst.certified is not None
    assert worst.certified.certificate.rounds == len(ROWS)
    verdicts = [one.coverage.verdicts[0] for one in (left, worst, other)]
    windows = [one.certified.window for one in (left, worst, other) if one.certified is not None]
    assert all(one is not None for one in windows)
    gains = [one.gain for one in windows if one is not None]
    assert [one.missing_at_random for one in verdicts] == [True, False, False]
    assert [one.other_gain for one in verdicts] == [gains[1], gains[0], None]
    assert gains[0] > gains[1]


# --------------------------------------------------------------------------------- units, contexts


def test_units_have_the_metrics_of_their_rows_and_the_segment_of_the_first() -> None:
    log = sticky_log(4, users=400, rows=2_000, gain=0.2)
    rng = np.random.default_rng(2)
    log = log.with_columns(
        speed=pl.Series(rng.uniform(0.0, 10.0, len(log))),
        device=pl.Series(rng.choice(["phone", "desk"], len(log))),
    )
    first = log.group_by("user", maintain_order=True).agg(
        pl.col("action", "propensity", "device").first(), pl.col("reward", "speed").mean()
    )
    asked: dict[str, Any] = {
        "actions": ["a", "b"],
        "least_propensity": 0.5,
        "against": "action:a",
        "guardrail": {"speed": (0, 10, "lower", 1)},
        "segment": {"device": ["phone", "desk"]},
    }
    found = learn(log, unit="user", **asked).policy
    expected = learn(first.drop("user"), no_unit=True, **asked).policy
    assert found.rows == len(first) < len(log)
    ours, theirs = found.certificates, expected.certificates
    assert ours is not None
    assert theirs is not None
    assert as_data(ours.segments) == as_data(theirs.segments)
    assert ours.joint is not None
    assert theirs.joint is not None
    for one, other in zip(
        (ours.joint.goal, *ours.joint.guardrails),
        (theirs.joint.goal, *theirs.joint.guardrails),
        strict=True,
    ):
        assert one.gain == pytest.approx(other.gain, rel=1e-9)
        assert one.gain_upper == pytest.approx(other.gain_upper, rel=1e-9)


def test_parts_of_units_are_the_whole(tmp_path: Path) -> None:
    early = sticky_log(4, users=200, rows=900, gain=0.2)
    late = sticky_log(5, users=200, rows=900, gain=0.2, first_user=200)
    rng = np.random.default_rng(2)
    early, late = (
        one.with_columns(speed=pl.Series(rng.uniform(0.0, 10.0, len(one)))) for one in (early, late)
    )
    asked: dict[str, Any] = {
        "actions": ["a", "b"],
        "unit": "user",
        "against": {"a": 0.25, "b": 0.75},
        "guardrail": {"speed": (0, 10, "lower", 1)},
    }
    whole = learn(pl.concat([early, late]), **asked).policy
    learn(early, out=tmp_path, **asked)
    found = learn(late, resume=tmp_path / "policy.json").policy
    assert content(found) == content(whole)


def test_units_that_a_baseline_was_learned_from_are_left_out(tmp_path: Path) -> None:
    """Also by later runs: policy.json counts them among the units that were used."""
    early = sticky_log(4, users=200, rows=900, gain=0.2)
    late = sticky_log(5, users=200, rows=900, gain=0.2, first_user=100)
    asked: dict[str, Any] = {"actions": ["a", "b"], "unit": "user"}
    learn(early, out=tmp_path / "baseline", **asked)
    found = learn(late, against=f"policy:{tmp_path / 'baseline'}", **asked)
    units = found.policy.units
    assert units is not None
    assert units.counts.left_out > 0
    assert units.used is not None
    users = {*early["user"].unique(), *late["user"].unique()}
    assert len(units.used) == len(users)
    alone = learn(late.filter(~pl.col("user").is_in(early["user"].implode())), **asked)
    assert found.policy.rows == alone.policy.rows


def test_groups_of_contexts_stay_over_production() -> None:
    """Their sums know no other baseline, and the result says so."""
    rows = with_metrics(make_rows(1_500, context=True))
    asked: dict[str, Any] = {"context": ["color"], "actions": ACTIONS, "learner": "ridge"}
    plain, found = learn(rows, **asked), learn(rows, **asked, **QUESTION)
    assert found.policy.study.groups is not None
    assert plain.policy.study.groups is not None
    assert found.policy.study.groups.as_data() == plain.policy.study.groups.as_data()
    assert (found.contexts_over_production, plain.contexts_over_production) == (True, False)
    assert found.coverage.verdicts[0].baseline is not None
    assert found.joint is not None
    assert found.joint.rounds > found.policy.rows  # rejected rows count


# ------------------------------------------------------------------------------------ wrong inputs


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "an action of no row": ({"against": "action:up"}, "against", "name one of the log's actions"),
    "a policy with an action of no row": (
        {"against": {"up": 0.5, "north": 0.5}},
        "against",
        "name one of the log's actions",
    ),
    "a declared action of no row": (
        {"against": "action:up", "actions": [*ACTIONS, "up"]},
        "against",
        "name one of the log's actions: east, north, south",
    ),
    "all actions, undeclared": ({"against": "policy:uniform"}, "against", "declare all of them"),
    "an engine": ({"engine": "polars", "horizon": 100, "segment": "country=it"}, "segment", "--en"),
    "lost rows, with an engine": (
        {"engine": "polars", "horizon": 100, "quarantined": "missing-at-random"},
        "quarantined",
        "leave out --engine",
    ),
    "no propensities": (
        {"behavior": "estimated", "guardrail": "latency:0:1000:lower:1"},
        "guardrail",
        "name their column with --propensity",
    ),
    "no certificate": (
        {"behavior": "estimated", "context": "country", "against": "action:north"},
        "against",
        "name their column with --propensity",
    ),
    "a metric that is no column": ({"guardrail": "speed:0:1:lower:0.1"}, "", "speed"),
}


@pytest.mark.parametrize(("asked", "argument", "words"), WRONG.values(), ids=WRONG)
def test_wrong_questions_are_refused_before_files_are_written(
    asked: dict[str, Any], argument: str, words: str, tmp_path: Path
) -> None:
    log = write(tmp_path / "log.parquet", ROWS)
    assert_refused(lambda: learn(log, out=tmp_path / "out", **asked), argument, words)
    assert not (tmp_path / "out").exists()


def test_a_baseline_has_the_same_probabilities_in_all_rows(tmp_path: Path) -> None:
    """So no policy with contexts; a learned one without contexts may be it, on other rows."""
    rows = make_rows(900, context=True)
    learn(rows, context="color", out=tmp_path / "contexts")
    path = tmp_path / "contexts" / "policy.json"
    assert_refused(
        lambda: learn(PLAIN, against=f"policy:{path}"), "against", "pass it to understudy certify"
    )
    assert_refused(
        lambda: us.logs.coverage(PLAIN, against=f"policy:{path}"), "against", "understudy certify"
    )
    earlier = make_rows(400, seed=9)
    log = write(tmp_path / "earlier.csv", earlier)
    learn(log, actions=ACTIONS, learner="exp3-ix", out=tmp_path / "fixed")
    fixed = Policy.load(tmp_path / "fixed" / "policy.json")
    against = f"policy:{tmp_path / 'fixed' / 'policy.json'}"
    found = learn(PLAIN, actions=ACTIONS, against=against)
    again = from_text(found.policy.to_json())
    for policy in (found.policy, again):
        assert policy.baseline is not None
        assert policy.baseline.policy is not None
        assert np.array_equal(policy.baseline.policy, fixed.average)
        assert policy.baseline.name == against.removeprefix("policy:")
    assert again.question == found.policy.question
    for call in (
        lambda: learn(log, actions=ACTIONS, against=against),
        lambda: learn(log, resume=again),
        lambda: learn(earlier, actions=ACTIONS, against=against),
        lambda: us.logs.coverage(log, actions=ACTIONS, against=against),
        lambda: us.logs.coverage(earlier, actions=ACTIONS, against=against),
    ):
        with pytest.raises(InvalidArgument, match="pass a log of other rows"):
            call()


def test_certify_does_not_take_the_question() -> None:
    """A decision names its own question: a log without these columns can be asked, too."""
    later = make_rows(500, seed=4)
    found = us.logs.certify(later, learn(ROWS, **FIXED))
    assert found.joint is None
    assert found.segments is None
    assert found.coverage.verdicts[0].baseline is None
    judged = us.logs.certify(with_metrics(later), learn(ROWS, **FIXED), **QUESTION)
    assert judged.joint is not None


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
    "segments of more rounds": _with("segments", "rounds", value=201),
    "segments of another behavior": lambda data: [
        one[part]["behavior"].update(least_propensity=0.01)
        for one in data["segments"]["certificates"]
        for part in ("target", "baseline")
    ],
    "segments over production": lambda data: data["segments"].update(
        certificates=[one["target"] for one in data["segments"]["certificates"]]
    ),
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
    "a fork with another margin": _with(
        "without_rejected", "certificate", "metrics", 0, "margin", value=60.0
    ),
    "a fork with another segment": _with("without_rejected", "segments", "names", 0, value="fr"),
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


def test_the_bets_in_pairs_are_those_on_the_baseline() -> None:
    data = json.loads(learn(ROWS[:200], **FIXED, least_propensity=0.05).policy.to_json())
    assert data["certificate"]["goal"]["kind"] == "Certificate"
    assert from_text(json.dumps(data)).to_json()
    data["baseline"]["policy"] = [0.25, 0.25, 0.25, 0.25]
    with pytest.raises(InvalidSnapshot, match="their question and the rows disagree"):
        from_text(json.dumps(data))
