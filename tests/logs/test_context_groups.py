"""Groups of contexts (`understudy.logs.evaluation.context_groups`): sums, intervals, storage."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support import formulas
from tests.support.logs.encoders import Encoder
from tests.support.strategies import Array, Integers
from understudy.certificates import WeightedRounds
from understudy.errors import InvalidSnapshot
from understudy.logs import Policy, learn
from understudy.logs.evaluation.context_groups import (
    FEW,
    MOST_COLUMNS,
    MOST_COMBINATIONS,
    MOST_COUNTS,
    ContextGroups,
    GroupKey,
    GroupSums,
)

pytestmark = pytest.mark.plain

K, CONFIDENCE = 3, 0.9
CITIES, DEVICES = np.array(["Rome", "Oslo", "Bonn", None]), np.array(["phone", "desktop"])
Row = dict[str, Any]


def contexts(seed: int, n: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 60, n).astype(float)
    return pl.DataFrame(
        {
            "context.age": [None if rng.random() < 0.1 else x for x in age],
            "context.city": rng.choice(CITIES, n, p=[0.5, 0.3, 0.1, 0.1]),
            "context.device": rng.choice(DEVICES, n, p=[0.7, 0.3]),
        }
    )


WARMUP = contexts(0, 300)
ENCODER = Encoder.fit(WARMUP, ["age", "city", "device"])


def fitted(confidence: float | None = CONFIDENCE) -> ContextGroups:
    return ContextGroups.fit(ENCODER, ENCODER.encode(WARMUP), K, confidence)


LARGEST = 4.5  # of the ratios below: .9/.2


def log_and_policy(seed: int, n: int) -> tuple[us.Log, Array]:
    rng = np.random.default_rng(seed)
    q = rng.choice([0.2, 0.3, 0.5], n)
    log = us.Log(rng.integers(0, K, n), rng.integers(0, 5, n) / 4.0, q)
    return log, rng.choice([0.0, 0.1, 0.9], n)


def folded(groups: ContextGroups, frame: pl.DataFrame, log: us.Log, pi: Array, *cuts: int) -> Any:
    """The groups after a log that comes in batches."""
    for start, stop in itertools.pairwise([0, *cuts, len(log)]):
        codes = groups.codes(ENCODER, ENCODER.encode(frame[start:stop]))
        part, ratios = log[start:stop], np.full(stop - start, LARGEST)
        columns = None
        if part.propensities is not None:
            columns = WeightedRounds(pi[start:stop], part.propensities, part.rewards, ratios)
        groups = groups.after(codes, part.actions, columns)
    return groups


def belongs(key: GroupKey, row: Row, groups: ContextGroups) -> bool:
    """Whether a row is in a group, by the words that define it."""
    values = [row[f"context.{name}"] for name in key.columns]
    if key.kind == "missing":
        return values[0] is None
    if key.kind == "range":
        low, high = -math.inf if key.low is None else key.low, key.high or math.inf
        return values[0] is not None and low + 1e-6 < values[0] <= high + 1e-6
    if key.kind == "other":
        alike = [one for one in groups.keys if one.columns == key.columns and one != key]
        return not any(belongs(one, row, groups) for one in alike)
    return tuple(values) == key.labels


def test_a_row_is_in_the_groups_whose_words_fit_it_and_in_one_of_each_grouping() -> None:
    groups, frame = fitted(), contexts(1, 400)
    codes = groups.codes(ENCODER, ENCODER.encode(frame))
    for row, own in zip(frame.iter_rows(named=True), codes.tolist(), strict=True):
        found = [i for i, key in enumerate(groups.keys) if belongs(key, row, groups)]
        assert sorted(own) == found
    assert len(set(codes.ravel().tolist())) > len(groups.keys) // 2


def test_the_warm_up_alone_decides_the_groups() -> None:
    keys = fitted().keys
    ages = sorted(x for x in WARMUP["context.age"].to_list() if x is not None)
    quartiles = [ages[math.ceil(len(ages) * share) - 1] for share in (0.25, 0.5, 0.75)]
    assert [key.high for key in keys if key.kind == "range"][:-1] == pytest.approx(quartiles)
    cities = Counter(WARMUP["context.city"].drop_nulls().to_list())
    labels = [key.labels[0] for key in keys if key.kind == "label"]
    assert labels[:3] == [name for name, _ in cities.most_common()]
    pairs = Counter(WARMUP.drop_nulls("context.city").select(pl.exclude("context.age")).rows())
    combined = [key.labels for key in keys if key.kind == "combination"]
    assert [pairs[labels] for labels in combined] == [n for _, n in pairs.most_common()]


def test_groups_are_few() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({f"context.{i}": rng.integers(0, 9, 900).astype(str) for i in range(12)})
    frame = frame.with_columns(pl.all() + "x")
    encoder = Encoder.fit(frame, [str(i) for i in range(12)])
    groups = ContextGroups.fit(encoder, encoder.encode(frame), K, CONFIDENCE)
    assert len({key.columns for key in groups.keys}) == MOST_COLUMNS + 1
    assert sum(key.kind == "combination" for key in groups.keys) == MOST_COMBINATIONS


@pytest.mark.parametrize(("groups", "columns"), [(300, 9), (100, 8), (65, 5), (8, 0)])
def test_with_many_actions_groups_have_no_more_counts_than_allowed(
    groups: int, columns: int
) -> None:
    """WeightedRounds whose groups are too many are left out, and so are combinations."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({f"context.{i}": rng.integers(0, 9, 900).astype(str) for i in range(8)})
    frame = frame.with_columns(pl.all() + "x")
    encoder = Encoder.fit(frame, [str(i) for i in range(8)])
    n_actions = MOST_COUNTS // groups
    fitted = ContextGroups.fit(encoder, encoder.encode(frame), n_actions, CONFIDENCE)
    assert len({key.columns for key in fitted.keys}) == columns
    assert len(fitted.keys) * n_actions <= MOST_COUNTS
    codes = fitted.codes(encoder, encoder.encode(frame))
    half, actions = np.full(900, 0.5), np.zeros(900, dtype=np.int64)
    after = fitted.after(codes, actions, WeightedRounds(half, half, half, np.ones(900)))
    assert after.fits(900, encoder)


@pytest.mark.parametrize(("fives", "bins"), [(50, 1), (49, 2), (10, 1)])
def test_equal_numbers_make_fewer_bins_and_none_is_empty(fives: int, bins: int) -> None:
    numbers = [5.0] * fives + [7.0] * (50 - fives)
    frame = pl.DataFrame({"context.x": [*numbers, 5.0, None], "context.y": range(52)})
    encoder = Encoder.fit(frame, ["x", "y"])
    groups = ContextGroups.fit(encoder, encoder.encode(frame), K, CONFIDENCE)
    codes = groups.codes(encoder, encoder.encode(frame))[:, 0]
    own = [i for i, key in enumerate(groups.keys) if key.columns == ("x",)]
    assert sorted(set(codes.tolist())) == own
    assert len(own) == bins + 1  # one for rows without a number


def test_sums_are_those_of_a_plain_computation() -> None:
    groups, frame = fitted(), contexts(1, 500)
    log, pi = log_and_policy(2, 500)
    assert log.propensities is not None
    after = folded(groups, frame, log, pi)
    codes = groups.codes(ENCODER, ENCODER.encode(frame))
    for group, sums in enumerate(after.sums):
        own = (codes == group).any(axis=1)
        a, R, w = log.actions[own], log.rewards[own], pi[own] / log.propensities[own]
        assert sums.plays.tolist() == [(a == k).sum() for k in range(K)]
        if own.any():
            bets, W = 0.9 * 2.0 ** -np.arange(22.0), np.full(own.sum(), LARGEST)
            S = formulas.centered_wealths(w, R, W, np.empty(0), bets)[-1]
            assert sums.evidence.log_wealths() == pytest.approx(S, rel=1e-9, abs=1e-9)
        if own.any():
            estimate = math.fsum((w - 1) * (R - R.mean())) / own.sum()
            assert sums.difference(CONFIDENCE).estimate == pytest.approx(estimate, abs=1e-12)


def test_an_interval_is_that_of_two_certificates_of_the_rows_of_the_group() -> None:
    groups, frame = fitted(), contexts(1, 2_000)
    log, pi = log_and_policy(2, 2_000)
    assert log.propensities is not None
    after = folded(groups, frame, log, pi)
    codes = groups.codes(ENCODER, ENCODER.encode(frame))
    delta = (1 - CONFIDENCE) / 2
    both = [us.Certificate(us.Logged(K), 1 - d) for d in (delta / 0.9, delta)]  # .1 is for windows
    compared = 0
    for group, sums in enumerate(after.sums):
        own = (codes == group).any(axis=1)
        if not own.any():
            assert sums.difference(CONFIDENCE) is None
            continue
        a, R, q = log.actions[own], log.rewards[own], log.propensities[own]
        first, second = (one.advance(us.Log(a, R, q), pi[own], LARGEST) for one in both)
        assert first.gain is not None
        assert second.gain_upper is not None
        wanted = first.gain / own.sum(), second.gain_upper / own.sum()
        _, lower, upper = sums.difference(CONFIDENCE)
        assert (lower, upper) == pytest.approx(wanted, abs=1e-9)
        compared += -1 < lower < upper < 1
    assert compared > len(groups.keys) // 2


@pytest.mark.parametrize("rewards", [(1.0, 0.0), (0.0, 1.0), (0.5, 0.25)])
def test_an_interval_misses_the_gain_as_seldom_as_it_says(rewards: tuple[float, float]) -> None:
    """Over all plays of twelve rounds, each with its probability."""
    n, pi, q = 12, np.array([0.7, 0.3]), np.array([0.3, 0.7])
    truth = float((pi - q) @ rewards)
    missed = known = 0.0
    for played in itertools.product((0, 1), repeat=n):
        actions, plays = np.array(played), n - sum(played)
        own = pi[actions], q[actions], np.array(rewards)[actions]
        columns = WeightedRounds(*own, np.full(n, 0.7 / 0.3))
        sums = GroupSums.none(2, certifies=True).after(actions, columns)
        found = sums.difference(0.5)
        assert found is not None
        likely = q[0] ** plays * q[1] ** (n - plays)
        missed += likely * (not found.lower <= truth <= found.upper)
        known += likely * (found.lower > -1 or found.upper < 1)
    assert missed <= 0.5
    assert known > 0.9


@pytest.mark.parametrize("cuts", [(250,), (1, 2, 17, 480), (16, 32, 48)])
def test_batches_change_no_bit_and_policy_json_keeps_all(cuts: tuple[int, ...]) -> None:
    frame, (log, pi) = contexts(1, 500), log_and_policy(2, 500)
    whole = folded(fitted(), frame, log, pi)
    known = np.full((500, K), 1 / K)
    whole = whole.with_policies(whole.codes(ENCODER, ENCODER.encode(frame)), known, 0.0)
    parts = folded(fitted(), frame, log, pi, *cuts)
    for one, other in zip(whole.sums, parts.sums, strict=True):
        assert {**one.as_data(), "policy": None} == other.as_data()
    text = json.dumps(whole.as_data())
    again = ContextGroups.from_data(json.loads(text), K)
    assert json.dumps(again.as_data()) == text
    assert again.keys == whole.keys
    assert again.fits(500, ENCODER)
    assert not again.fits(499, ENCODER)
    for grouping in again.groupings:
        for field in dataclasses.fields(grouping):
            for value in ("x", ("x",), (("x",),), (1.0, 0.0)):
                changed: dict[str, Any] = {field.name: value}
                other = dataclasses.replace(grouping, **changed)
                wrong = [other if one is grouping else one for one in again.groupings]
                assert not dataclasses.replace(again, groupings=tuple(wrong)).fits(500, ENCODER)
    more, rest = contexts(3, 100), log_and_policy(4, 100)
    assert folded(again, more, *rest).as_data() == folded(whole, more, *rest).as_data()


def test_without_propensities_there_are_shares_and_no_intervals() -> None:
    frame, (log, pi) = contexts(1, 200), log_and_policy(2, 200)
    unknown = us.Log(log.actions, log.rewards)
    found = folded(fitted(confidence=None), frame, unknown, pi)
    known = folded(fitted(), frame, log, pi)
    assert [one.plays.tolist() for one in found.sums] == [one.plays.tolist() for one in known.sums]
    assert all(one.difference(CONFIDENCE) is None for one in found.sums)
    again = ContextGroups.from_data(json.loads(json.dumps(found.as_data())), K)
    assert again.as_data() == found.as_data()


def test_production_stands_for_itself_where_the_policy_does_as_it_does() -> None:
    frame, (log, pi) = contexts(1, 300), log_and_policy(2, 300)
    after = folded(fitted(), frame, log, pi)
    codes, known = after.codes(ENCODER, ENCODER.encode(frame)), np.zeros((300, K))
    known[:, 0] = 0.75
    for one in after.with_policies(codes, known, 0.25).sums:
        if one.rows:
            assert one.policy == pytest.approx([0.75, 0, 0] + 0.25 * one.plays / one.rows)
        else:
            assert one.policy is None


def test_certain_policies_with_few_plays_are_found() -> None:
    groups = fitted()
    n, rome = FEW + 1, next(i for i, key in enumerate(groups.keys) if key.labels == ("Rome",))
    frame = WARMUP.filter(pl.col("context.city") == "Rome")[:n]
    codes = groups.codes(ENCODER, ENCODER.encode(frame))
    for few, found in ((FEW - 1, True), (FEW, False)):
        actions = np.array([1] * few + [0] * (n - few))
        half = np.full(n, 0.5)
        after = groups.after(codes, actions, WeightedRounds(half, half, np.zeros(n), np.ones(n)))
        for share, certain in ((0.96875, True), (0.9375, False)):
            policy = np.tile([1 - share, share, 0.0], (n, 1))
            named = after.with_policies(codes, policy, 0.0).certain_and_few
            assert ((groups.keys[rome], 1, few) in named) == (found and certain)


# ------------------------------------------------------------------------------- of a learned log


def rows_of(seed: int, n: int) -> pl.DataFrame:
    frame = contexts(seed, n).rename(lambda name: name.removeprefix("context."))
    rng = np.random.default_rng([seed, 1])
    actions: Integers = rng.integers(0, 2, n)
    return frame.with_columns(
        action=np.array(["a", "b"])[actions],
        reward=(rng.random(n) < 0.4 + 0.2 * actions).astype(float),
        propensity=np.full(n, 0.5),
    )


ROWS = rows_of(5, 1_200)
OPTIONS: dict[str, Any] = {
    "context": ["age", "city"],
    "warmup": 200,
    "actions": ["a", "b"],
    "learner": "lin-prod-compact",
}


def test_learning_in_two_runs_makes_the_groups_of_one(tmp_path: Path) -> None:
    whole = learn(ROWS, **OPTIONS).policy.study.groups
    first = learn(ROWS[:700], **OPTIONS, out=tmp_path)
    assert first.policy.study.groups is not None
    second = learn(ROWS[700:], resume=tmp_path / "policy.json").policy.study.groups
    assert whole is not None
    assert second is not None
    assert second.keys == whole.keys
    for one, other in zip(whole.sums, second.sums, strict=True):
        assert {**one.as_data(), "policy": None} == {**other.as_data(), "policy": None}
    assert sum(one.rows for one in whole.sums) == 2 * 1_000  # a row is in a group of each column


def test_guard_rejected_rows_count_in_their_groups(tmp_path: Path) -> None:
    """All actions pay the same, and most rewards of 0 of one action are lost."""
    options: dict[str, Any] = {**OPTIONS, "least_propensity": 0.5}
    left_out = 0
    for seed in range(10):
        rng, log = np.random.default_rng(seed), rows_of(seed, 6_200)
        log = log.with_columns(reward=(rng.random(len(log)) < 0.5).astype(float))
        lost = (
            (log["action"] == "b") & (log["reward"] == 0.0) & pl.Series(rng.random(len(log)) < 0.6)
        )
        dirty = log.with_columns(reward=pl.when(~lost).then("reward"))
        whole = learn(dirty, **options).policy.study.groups
        clean = learn(log.filter(~lost), **options).policy.study.groups
        assert whole is not None
        assert clean is not None
        for sums, without in zip(whole.sums, clean.sums, strict=True):
            if sums.rows:
                found, wrong = sums.difference(0.95), without.difference(0.95)
                assert found is not None
                assert found.lower <= 0.0 <= found.upper
                left_out += wrong is not None and wrong.lower > 0.0
    assert left_out > 30
    assert whole is not None
    parts = learn(dirty[:3_000], **options, out=tmp_path)
    assert parts.policy.study.groups is not None
    again = learn(dirty[3_000:], resume=tmp_path / "policy.json").policy.study.groups
    assert again is not None
    for sums, other in zip(whole.sums, again.sums, strict=True):
        assert {**sums.as_data(), "policy": None} == {**other.as_data(), "policy": None}


def test_the_groups_of_a_column_have_the_gain_of_the_certificate() -> None:
    """One city: its group is the whole log, and its lower bound that of the certificate."""
    found = learn(ROWS.with_columns(city=pl.lit("Rome")), **OPTIONS, confidence=0.9)
    one = learn(
        ROWS.with_columns(
            city=pl.when(pl.int_range(pl.len()) == 0).then(None).otherwise(pl.lit("Rome"))
        ),
        **OPTIONS,
        confidence=0.9,
    )
    assert found.policy.study.groups is not None
    assert {key.columns for key in found.policy.study.groups.keys} == {("age",)}
    groups, certificate = one.policy.study.groups, one.policy.study.certificate
    assert groups is not None
    assert certificate is not None
    (sums,) = (s for k, s in zip(groups.keys, groups.sums, strict=True) if k.labels == ("Rome",))
    assert sums.rows == certificate.rounds
    difference = sums.difference(0.82)  # 0.09 for each side, and 0.01 for windows
    assert difference is not None
    assert certificate.gain is not None
    assert difference.lower == pytest.approx(certificate.gain / sums.rows, abs=1e-9)


def test_a_policy_without_groups_loads_goes_on_and_is_saved_without(tmp_path: Path) -> None:
    learn(ROWS[:700], **OPTIONS, out=tmp_path)
    path = tmp_path / "policy.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["context_groups"]
    path.write_text(json.dumps(content), encoding="utf-8")
    old = Policy.load(path)
    assert old.study.groups is None
    assert json.loads(old.to_json()) == content
    later = learn(ROWS[700:], resume=path)
    assert "context_groups" not in json.loads(later.policy.to_json())
    assert later.report.contexts == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda groups: groups.update(confidence=1.5),
        lambda groups: groups.update(groups=groups["groups"][:-1]),
        lambda groups: groups.update(groups=[None] * len(groups["groups"])),
        lambda groups: groups["groups"][0].update(plays=[1, 2, 3]),
        lambda groups: groups["groups"][0].update(plays=[-1, 2]),
        lambda groups: groups["groups"][0].update(policy=[0.5]),
        lambda groups: groups["groups"][0].update(evidence=None),
        lambda groups: groups["groups"][0]["evidence"].update(sums=[]),
        lambda groups: groups["groupings"].pop(),
        lambda groups: groups["groupings"][0].update(kind="squares"),
    ],
)
def test_damaged_groups_are_refused(damage: Any, tmp_path: Path) -> None:
    learn(ROWS[:400], **OPTIONS, out=tmp_path)
    path = tmp_path / "policy.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    damage(content["context_groups"])
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InvalidSnapshot):
        Policy.load(path)
