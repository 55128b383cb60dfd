"""From a log to a policy: the file is its arrays, its halves are the whole, nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from log_files import LABELS, K, as_log, make_rows, write
from understudy.errors import InvalidArgument, InvalidLog, InvalidSnapshot
from understudy.logs import Policy, learn

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
    assert learned.policy.settings.learner == "lin-prod-compact"
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
        (ROWS, {}, "coverage-adaptive", "logged"),
        (plain, {}, "exp3-ix-unknown", "estimated"),
        (plain, {"behavior": behavior}, "coverage-adaptive", "given"),
        (ROWS, {"behavior": "estimated"}, "exp3-ix-unknown", "estimated"),
    ]
    for rows, asked, learner, kind in cases:
        settings = learn(rows[:200], **asked).policy.settings
        assert (settings.learner, settings.behavior) == (learner, kind)
        assert settings.theorem


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
    assert repr(learned).startswith("Learned(")


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
