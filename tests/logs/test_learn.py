"""From a log to a policy: the file is its arrays, its halves are the whole, nothing is lost."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.logs.log_files import LABELS, K, as_log, make_rows, write
from tests.support.refusals import assert_refused
from understudy.errors import InvalidArgument, InvalidLog, InvalidSnapshot
from understudy.logs import Policy, learn
from understudy.report import as_dict

pytestmark = pytest.mark.plain

ROWS = make_rows(3_000)
TEXTS = tuple(sorted(LABELS))
LOGGED = us.Logged(n_actions=K)
RECIPES: dict[str, Any] = {
    "exp3": us.exp3,
    "exp3-ix": us.exp3_ix,
    "prod": us.prod,
    "coverage-adaptive": us.coverage_adaptive,
}
BITS = ("learner", "state", "certificate", "curve", "tally", "policy", "actions", "rows")


def content(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "policy.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("horizon", [None, 3_000])
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("suffix", ["csv", "parquet", "ndjson", "arrow"])
def test_learning_from_a_file_is_replaying_its_arrays(
    name: str, horizon: int | None, suffix: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"log.{suffix}", ROWS)
    learned = learn(path, learner=name, actions=LABELS, horizon=horizon)
    learner = RECIPES[name](LOGGED, horizon=horizon)
    log = as_log(ROWS, TEXTS)
    state, trace = learner.replay(learner.init(), log)
    certified = us.certify(log, trace, behavior=LOGGED)
    assert learned.policy.actions.texts == TEXTS
    assert np.array_equal(learned.policy.average, learner.policy(state))
    assert learned.certified is not None
    for curve in ("lower_curve", "upper_curve", "production_curve", "gain_curve"):
        assert np.array_equal(getattr(learned.certified, curve), getattr(certified, curve))
    assert learned.certified.promoted_at == certified.promoted_at


@pytest.mark.parametrize("cut", [1, 1_234, 2_999])
@pytest.mark.parametrize(
    ("name", "horizon"),
    [("exp3-ix", None), ("exp3-ix", 3_000), ("coverage-adaptive", None), ("exp3-ix-unknown", None)],
)
def test_two_halves_are_the_whole_bit_for_bit(
    name: str, horizon: int | None, cut: int, tmp_path: Path
) -> None:
    behavior = "estimated" if "unknown" in name else "logged"
    fixed: dict[str, Any] = {"learner": name, "actions": LABELS, "behavior": behavior}
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    learn(write(tmp_path / "all.parquet", ROWS), out=whole, horizon=horizon, **fixed)
    learn(write(tmp_path / "a.csv", ROWS[:cut]), out=halves, horizon=horizon, **fixed)
    learn(write(tmp_path / "b.ndjson", ROWS[cut:]), out=halves, resume=halves / "policy.json")
    ours, theirs = content(halves), content(whole)
    for part in BITS:
        assert ours[part] == theirs[part], part
    assert [file["rows"] for file in ours["provenance"]["files"]] == [cut, 3_000 - cut]


def test_a_contextual_policy_goes_on_with_the_features_that_it_began_with(tmp_path: Path) -> None:
    rows = make_rows(4_000, context=True)
    context = ("x", "color")
    first = learn(rows[:3_000], context=context, actions=LABELS, out=tmp_path / "out")
    assert first.policy.warmup == 300
    assert first.policy.rows == 2_700
    path = tmp_path / "out" / "policy.json"
    again = Policy.load(path)
    assert again.to_json() == path.read_text(encoding="utf-8")
    second = learn(rows[3_000:], resume=path)
    assert second.policy.rows == 3_700
    assert second.policy.warmup == 300
    here = second.policy.probabilities({"x": 2.0, "color": "red"})
    assert set(here) == set(LABELS)
    assert sum(here.values()) == pytest.approx(1.0)
    there = second.policy.probabilities({"x": -2.0, "color": "green"})
    assert here["south"] > there["south"]


@pytest.mark.large
def test_contexts_are_learned_from_and_certified() -> None:
    rows = make_rows(60_000, context=True)
    learned = learn(rows, context=["x", "color"])
    assert learned.policy.settings.learner == "exp4"
    assert learned.certified is not None
    assert learned.certified.promoted
    right = learned.policy.probabilities({"x": 1.5, "color": "red"})
    left = learned.policy.probabilities({"x": -1.5, "color": "red"})
    assert max(right, key=right.__getitem__) == "south"
    assert max(left, key=left.__getitem__) == "east"


def test_a_log_out_of_order_is_sorted_by_time(tmp_path: Path) -> None:
    timed = ROWS.with_columns(at=pl.int_range(pl.len()) // 3)  # three rows share a time
    shuffled = timed.sample(fraction=1.0, shuffle=True, seed=0).sort("at", maintain_order=True)
    late, early = shuffled[1_500:], shuffled[:1_500]
    wanted = learn(shuffled, actions=LABELS, learner="exp3-ix")
    paths = [write(tmp_path / "late.parquet", late), write(tmp_path / "early.parquet", early)]
    found = learn(paths, actions=LABELS, learner="exp3-ix", time="at")
    assert np.array_equal(found.policy.average, wanted.policy.average)
    assert [file.rows for file in found.policy.files] == [1_500, 1_500]
    sorted_already = learn(shuffled, actions=LABELS, learner="exp3-ix", time="at")
    assert np.array_equal(sorted_already.policy.average, wanted.policy.average)


def test_nothing_is_lost(tmp_path: Path) -> None:
    """Good rows are learned from, bad ones are in quarantine.parquet: together they are all."""
    bad = ROWS.with_row_index("n").with_columns(
        reward=pl.when(pl.col("n") % 10 == 3).then(2.0).otherwise(pl.col("reward")),
        propensity=pl.when(pl.col("n") % 10 == 5).then(None).otherwise(pl.col("propensity")),
    )
    path = write(tmp_path / "log.csv", bad.drop("n"))
    learned = learn(path, out=tmp_path / "out", actions=LABELS, learner="exp3-ix")
    quarantine = pl.read_parquet(tmp_path / "out" / "quarantine.parquet")
    assert learned.policy.rows + len(quarantine) == len(ROWS)
    assert learned.policy.refused == {
        "reward is out of range": 300,
        "propensity is missing": 300,
    }
    rows = quarantine.filter(pl.col("reason") == "reward is out of range")["row"]
    assert rows.to_list() == list(range(4, 3_000, 10))
    clean = bad.filter((pl.col("n") % 10 != 3) & (pl.col("n") % 10 != 5)).drop("n")
    wanted = learn(clean, actions=LABELS, learner="exp3-ix")
    assert np.array_equal(learned.policy.average, wanted.policy.average)
    later = write(tmp_path / "later.csv", bad.drop("n")[:500].with_columns(action=pl.lit("up")))
    learn(
        [later, write(tmp_path / "more.csv", clean[:10])],
        out=tmp_path / "out",
        resume=tmp_path / "out" / "policy.json",
    )
    both = pl.read_parquet(tmp_path / "out" / "quarantine.parquet")
    assert len(both) == 600 + 500
    assert content(tmp_path / "out")["provenance"]["quarantined"]["action is unknown"] == 500


def test_what_is_asked_for_decides_the_learner() -> None:
    plain = ROWS.drop("propensity")
    behavior = {"north": 0.4, "south": 0.2, "east": 0.2, "west": 0.2}
    cases: list[tuple[pl.DataFrame, dict[str, Any], str, str]] = [
        (ROWS, {}, "prod-grid", "logged"),
        (plain, {}, "exp3-ix-unknown", "estimated"),
        (plain, {"behavior": behavior}, "prod-grid", "given"),
        (ROWS, {"behavior": "estimated"}, "exp3-ix-unknown", "estimated"),
    ]
    for rows, asked, learner, kind in cases:
        settings = learn(rows[:200], **asked).policy.settings
        assert (settings.learner, settings.behavior) == (learner, kind)
        theorem = "first-order" if learner == "prod-grid" else "none"
        assert settings.theorem == theorem  # without a horizon, none is known for estimates


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"learner": "exp3-ix", "behavior": "estimated"}, "needs the propensities"),
        ({"learner": "lin-prod-compact"}, "none are named"),
        ({"learner": "sarsa"}, "there is no such"),
        ({"learner": "exp3-ix", "context": ["reward"]}, "two roles"),
        ({"reward_range": (1.0, 0.0)}, "a lower and a higher"),
        ({"reward_range": (1.0,)}, "two numbers"),
        ({"confidence": 1.5}, "confidence"),
        ({"horizon": 0}, "horizon"),
        ({"preset": "movielens"}, "no such"),
        ({"behavior": {"north": 0.5, "south": 0.1}}, "refused"),
        ({"behavior": "nowhere.csv"}, "cannot be read"),
        ({"actions": ["one"]}, "at least two"),
        ({"action": "what"}, "no column 'what'"),
        ({"propensity": "q"}, "no column 'q'"),
        ({"warmup": 0.0}, "warmup"),
        ({"strict": True, "actions": ["north", "south"]}, "row .*: action is unknown"),
        ({"resume": "nowhere.json"}, "cannot be read"),
        ({"resume": True}, "the path of a policy.json, a us.logs.Policy, or a result of"),
        ({"resume": us.Understudy(us.exp3_ix([0.5, 0.5]))}, "the path of a policy.json"),
    ],
)
def test_wrong_wishes_are_refused_in_one_line(
    asked: dict[str, Any], words: str, tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "out"
    with pytest.raises(InvalidArgument, match=words) as caught:
        learn(ROWS[:100], out=out, **asked)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_was_fixed_stays_fixed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    path = write(tmp_path / "log.csv", ROWS[:500])
    learn(path, out=out, learner="exp3-ix")
    before = (out / "policy.json").read_bytes()
    more = write(tmp_path / "more.csv", ROWS[500:700])
    wishes: list[dict[str, Any]] = [
        {"learner": "prod"},
        {"actions": ["a", "b"]},
        {"reward_range": (0.0, 2.0)},
        {"behavior": "estimated"},
        {"horizon": 100},
        {"confidence": 0.9},
        {"context": ["x"]},
    ]
    for asked in wishes:
        with pytest.raises(InvalidArgument, match="was learned with"):
            learn(more, out=out, resume=out / "policy.json", **asked)
    with pytest.raises(InvalidLog, match="learned from this file already"):
        learn(path, out=out, resume=out / "policy.json")
    with pytest.raises(InvalidArgument, match="holds a policy already"):
        learn(more, out=out)
    with pytest.raises(InvalidArgument, match="the log is in this folder"):
        learn(more, out=tmp_path)
    assert (out / "policy.json").read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"out", "log.csv", "more.csv"}
    learn(more, out=out, overwrite=True)
    assert us.load(out / "policy.json").rounds == 200


def test_damaged_policies_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    learn(ROWS[:300], out=out, learner="exp3-ix")
    whole = content(out)
    path = tmp_path / "damaged.json"
    values: list[Any] = [None, 7, "x", [], {}, [[]]]
    for part in whole:
        for value in values:
            if whole[part] == value:
                continue
            path.write_text(json.dumps({**whole, part: value}), encoding="utf-8")
            if part == "encoder" and value is None:
                continue
            with pytest.raises(InvalidSnapshot) as caught:
                Policy.load(path)
            assert "\n" not in str(caught.value)
    for text in ("", "{", "[]", "nan", '{"format": "understudy"}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InvalidSnapshot):
            Policy.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidSnapshot, match="not text"):
        Policy.load(path)


def test_a_result_shows_itself() -> None:
    learned = learn(ROWS, learner="exp3-ix")
    assert learned.table.height == K
    assert learned.table["policy"].sum() == pytest.approx(1.0)
    html = learned._repr_html_()
    assert "understudy" in html
    assert learned.plot().axes
    assert repr(learned).startswith("LearnResult(")


def test_frames_of_other_libraries_and_dictionaries_are_logs() -> None:
    wanted = learn(ROWS, learner="exp3-ix", actions=LABELS).policy.average
    for frame in (ROWS.lazy(), ROWS.to_arrow(), ROWS.to_pandas()):
        assert np.array_equal(
            learn(frame, learner="exp3-ix", actions=LABELS).policy.average, wanted
        )
    log = as_log(ROWS, TEXTS)
    feedback = us.logs.to_bandit_feedback(log, n_actions=K + 1)
    found = learn(feedback, learner="exp3-ix")
    assert found.policy.actions.labels == (0, 1, 2, 3, 4)
    with pytest.raises(InvalidLog, match="not a log"):
        learn(3.0)
    with pytest.raises(InvalidLog, match=r"must be .* bandit_feedback, .*pl\.DataFrame\(log\)"):
        learn({"action": ["a", "b"], "reward": [0, 1]})
    assert len(learn(pl.DataFrame({"action": ["a", "b"], "reward": [0, 1]})).table) == 2


@pytest.mark.parametrize("aside", [0, 1])
def test_production_is_a_bound_in_words_tiles_and_json_where_rows_were_set_aside(
    aside: int,
) -> None:
    rows = ROWS.sample(fraction=1.0, shuffle=True, seed=0).with_columns(
        reward=pl.when(pl.int_range(pl.len()) < aside).then(None).otherwise(pl.col("reward"))
    )
    results = [
        learn(rows, learner="exp3-ix"),
        us.logs.certify(rows, "uniform"),
        us.logs.certify(rows, "uniform", behavior="estimated", actions=LABELS),
    ]
    for result in results:
        facts, curve = dict(result.report.facts), result.report.certificate
        assert curve is not None
        assert ("production earned at most" in facts["Certificate"]) == bool(aside)
        assert curve.at_most == bool(aside)
        found = as_dict(result.report)["certificate"]
        assert found["production_is_at_most"] == bool(aside)
        said = [words for words in result.report.warnings if "quarantined" in words]
        assert [words[:22] for words in said] == ["1 row is quarantined ("] * aside


def test_losses_have_one_minus_sign_in_words_and_python_s_in_json() -> None:
    """Costs in [−1, 0], and a policy that is worse than production."""
    rows = ROWS.with_columns(reward=pl.col("reward") - 1.0)
    judged = us.logs.certify(rows, {"north": 1.0}, reward_range=(-1, 0))
    words = dict(judged.report.facts)["Certificate"]
    assert re.search(
        r"at least −0\.\d+ .*earned −0\.\d+\. The gain is at least −0\.\d+, and at most", words
    )
    assert json.loads(json.dumps(as_dict(judged.report)))["certificate"]["gain"] < 0
    learned = learn(rows, reward_range=(-1, 0), learner="exp3-ix")
    assert any("rescaled from [−1, 0]" in words for words in learned.warnings)


def test_what_is_no_policy_is_named_in_the_words_of_python(tmp_path: Path) -> None:
    learn(ROWS[:500], learner="exp3-ix", out=tmp_path / "out")
    path = tmp_path / "out" / "policy.json"
    assert_refused(lambda: us.load(path.parent), "path", "it is a folder; name the file in it")
    assert_refused(lambda: us.load_certificate(path.parent), "path", "it is a folder")
    labels = "has no labels; pass the path of its policy.json, or us.logs.Policy.load(path)"
    others = "pass a path, a us.logs.Policy, probabilities by label in a dict, or 'uniform'"
    later = ROWS[500:]
    ask: Any
    for ask in (us.logs.certify, us.logs.coverage):
        assert_refused(partial(ask, later, us.load(path)), "policy", labels)
        for wrong in (3, np.array([0.5, 0.5]), later):
            assert_refused(partial(ask, later, wrong), "policy", others)
    right: list[Any] = [path, str(path), Policy.load(path)]
    assert len({ask(later, policy).coverage.rows for policy in right}) == 1


def test_a_contextual_policy_asks_for_its_columns() -> None:
    policy = learn(make_rows(600, context=True), context=("x", "color")).policy
    needed = "pass {'x': …, 'color': …}, with None for what is missing"
    frame = pl.DataFrame({"x": [1.0], "color": ["red"]})
    none: list[Any] = [None, {}, {"x": 1.0}, frame, frame.to_pandas(), frame["x"], 3]
    for wrong in none:
        assert_refused(partial(policy.probabilities, wrong), "context", needed)
    assert_refused(policy.probabilities, "context", needed)
    abc = partial(policy.probabilities, {"x": "abc", "color": "red"})
    assert_refused(abc, "context['x']", "it is not a number")
    there = partial(policy.probabilities, production=dict.fromkeys(LABELS, 0.25))
    missing = there({"x": None, "color": "red"})
    assert there({"x": np.nan, "color": "red"}) == missing
    assert there(frame.row(0, named=True)) != missing


def test_labels_that_the_warm_up_did_not_have_are_counted_and_told() -> None:
    """Each row of its own: all after the warm-up are new, though rare labels share a feature."""
    rows = make_rows(2_000).with_columns(
        id=pl.Series([f"u{i}" for i in range(2_000)]), day=pl.Series([1] * 500 + [2] * 1_500)
    )
    learned = learn(rows, context=("id", "day"))
    told = [words for words in learned.report.warnings if "warm-up" in words]
    assert told == [
        "Context: id is new in 1,800 rows, unlike the warm-up; encoded as rare, missing or "
        "unknown.",
        "Contexts that did not change in the 200 rows of the warm-up are left out: day; "
        "a larger --warmup may see them change.",
    ]
    again = learn(rows[:700], context="id", warmup=0.5, resume=None)
    assert again.oddities == {("id", "new"): 350}
    with pytest.raises(InvalidLog, match="no context changes in the 200 rows of the warm-up"):
        learn(rows, context="day")
    assert learn(rows, context="day", warmup=0.5).policy.rows == 1_000


def certified_gain(rows: pl.DataFrame, **asked: Any) -> tuple[str, us.Certified]:
    learned = learn(rows, learner="exp3-ix", **asked)
    assert learned.certified is not None
    return learned.report.verdict_kind, learned.certified


@pytest.mark.large
def test_what_cannot_be_read_never_makes_the_understudy_look_better() -> None:
    """All actions pay alike, so a promotion is an error: of 20 logs hardly one may have it.

    Rows are lost by their action, by their reward, or because their reward is out of range. If they
    were left out of the certificate, most of these logs would promote.
    """
    wrong = {"unknown actions": 0, "missing rewards": 0, "rewards out of range": 0}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        action = rng.choice(["a", "b", "c"], p=[0.45, 0.45, 0.1], size=600)
        q = np.where(action == "c", 0.1, 0.45)
        reward = (rng.random(600) < 0.5).astype(float)
        rows = pl.DataFrame({"action": action, "reward": reward, "propensity": q})
        lost = (pl.col("action") == "a") & (pl.col("reward") == 0.0)
        some = pl.Series(rng.random(600) < 0.6)
        missing = rows.with_columns(reward=pl.when(lost & some).then(None).otherwise("reward"))
        high = rows.with_columns(reward=pl.when(lost & some).then(-1.0).otherwise("reward"))
        wrong["unknown actions"] += certified_gain(rows, actions=["a", "b"])[0] == "promote"
        wrong["missing rewards"] += certified_gain(missing)[0] == "promote"
        wrong["rewards out of range"] += certified_gain(high)[0] == "promote"
    assert max(wrong.values()) <= 3, wrong  # 5 % of 20 is 1, and two standard errors are 2


def test_rows_set_aside_count_in_the_certificate_where_they_stood() -> None:
    """As rows in which the understudy earns nothing and production what they say, or 1."""
    bad = ROWS.with_row_index("n").with_columns(
        reward=pl.when(pl.col("n") % 10 == 3).then(None).otherwise(pl.col("reward")),
        propensity=pl.when(pl.col("n") % 10 == 5).then(0.0).otherwise(pl.col("propensity")),
    )
    learned = learn(bad.drop("n"), learner="exp3-ix", actions=LABELS)
    good = bad.filter(~pl.col("n").mod(10).is_in([3, 5]))
    learner = us.exp3_ix(LOGGED)
    _, trace = learner.replay(learner.init(), as_log(good, TEXTS))
    everything = as_log(bad.with_columns(pl.col("reward").fill_null(1.0), propensity=1.0), TEXTS)
    n = np.arange(len(bad))
    probability, q = np.zeros(len(bad)), np.ones(len(bad))
    probability[~np.isin(n % 10, [3, 5])] = trace.probability
    q[~np.isin(n % 10, [3, 5])] = good["propensity"]
    log = us.Log(everything.actions, everything.rewards, q)
    wanted = us.certify(log, us.Trace(probability, 0, K), behavior=LOGGED)
    assert learned.certified is not None
    assert np.array_equal(learned.certified.lower_curve, wanted.lower_curve)
    assert np.array_equal(learned.certified.gain_curve, wanted.gain_curve)  # type: ignore[arg-type] # logged, so there
    assert any("quarantined" in words for words in learned.warnings)
    judged = us.logs.certify(bad.drop("n"), "uniform")
    assert judged.warnings == [words for words in learned.warnings if "quarantined" in words]


def test_a_drifting_behavior_that_was_only_counted_certifies_nothing(tmp_path: Path) -> None:
    """Also if it changed where one file ended and the next began."""
    rng = np.random.default_rng(0)
    first = rng.choice(["a", "b"], p=[0.8, 0.2], size=3_000)
    second = rng.choice(["a", "b"], p=[0.2, 0.8], size=3_000)
    parts = [
        pl.DataFrame({"action": part, "reward": (rng.random(3_000) < 0.4).astype(float)})
        for part in (first, second)
    ]
    whole = learn(pl.concat(parts))
    learn(parts[0], out=tmp_path / "out")
    halves = learn(parts[1], resume=tmp_path / "out" / "policy.json")
    for learned in (whole, halves):
        assert learned.report.verdict_kind == "cannot tell"
        assert "changed over time" in learned.report.verdict
        assert learned.report.certificate is None


def test_the_same_rows_do_not_count_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", ROWS[:300])
    copy = tmp_path / "copy.csv"
    copy.write_bytes(path.read_bytes())
    with pytest.raises(InvalidLog, match="is a copy of"):
        learn([path, copy])
    out = tmp_path / "results"
    learn(path, out=out, actions=LABELS)
    write(path, ROWS[:310])
    with pytest.raises(InvalidLog, match="has changed since"):
        learn(path, out=out, resume=out / "policy.json")
    assert us.logs.coverage(tmp_path.as_posix() + "/*.csv").table["count"].sum() == 610
    below = learn(tmp_path, out=tmp_path / "more" / "results")  # not from what was set aside
    assert below.policy.rows == 610


def test_two_runs_into_one_folder_do_not_overwrite_each_other(tmp_path: Path) -> None:
    out = tmp_path / "out"
    learn(ROWS[:300], out=out, actions=LABELS, learner="exp3-ix")

    def another(*_: Any) -> None:
        if us.load(out / "policy.json").rounds == 300:
            learn(ROWS[300:400], out=out, resume=out / "policy.json")

    with pytest.raises(InvalidArgument, match="another run has written a policy there"):
        learn(ROWS[400:500], out=out, resume=out / "policy.json", watch=another)
    assert us.load(out / "policy.json").rounds == 400


def test_a_clear_log_ends_in_a_policy_of_one_action() -> None:
    """Probabilities that are too small to divide by are none, wherever policies are judged."""
    rows = pl.DataFrame({"action": ["a", "b"] * 600, "reward": [0.0, 1.0] * 600, "propensity": 0.5})
    learned = learn(rows, learner="exp3-ix", horizon=4)
    assert 0.0 < learned.policy.probabilities()["a"] < 1e-100
    assert us.logs.certify(rows[:1_198], learned).policy == {"a": 0.0, "b": 1.0}


def test_the_average_over_contexts_is_over_the_last_rows_however_they_came(tmp_path: Path) -> None:
    rows = make_rows(3_000, context=True)
    halves = [write(tmp_path / "a.csv", rows[:2_999]), write(tmp_path / "b.csv", rows[2_999:])]
    whole = learn(write(tmp_path / "all.csv", rows), context="x", actions=LABELS).policy
    assert np.array_equal(learn(halves, context="x", actions=LABELS).policy.average, whole.average)


@pytest.mark.parametrize("behavior", [None, {"north": 0.4, "south": 0.2, "east": 0.2, "west": 0.2}])
@pytest.mark.parametrize("name", RECIPES)
def test_sums_in_no_order_give_the_same_policy(name: str, behavior: Any) -> None:
    """Up to rounding; bad rows and labels that only they have are nothing in both."""
    bad = pl.DataFrame({"action": ["up"], "reward": [9.0], "propensity": [0.5]})
    rows = pl.concat([ROWS, bad])
    asked: dict[str, Any] = {"learner": name, "horizon": 3_000, "behavior": behavior}
    ordered = learn(rows, **asked)
    summed = learn(rows.sample(fraction=1.0, shuffle=True, seed=1), engine="polars", **asked)
    assert summed.policy.actions == ordered.policy.actions
    np.testing.assert_allclose(summed.policy.average, ordered.policy.average, rtol=1e-9)
    assert summed.certified is None
    assert summed.report.verdict_kind == "cannot tell"
    assert sum(summed.policy.refused.values()) == 1


def test_resume_says_that_no_least_propensity_was_declared() -> None:
    log = pl.DataFrame({"action": ["a", "b"] * 50, "reward": [0.0, 1.0] * 50, "propensity": 0.5})
    learned = us.logs.learn(log, no_unit=True, repeated_rows="allow")
    refused = r"least_propensity = 0\.5: the policy was learned without one; leave it out"
    with pytest.raises(us.errors.InvalidArgument, match=refused):
        us.logs.learn(log.with_columns(x=1), resume=learned, least_propensity=0.5)
