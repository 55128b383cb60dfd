"""Units of randomization, each one decision: `understudy.logs.readers.units`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.logs.log_files import write
from tests.support.logs.sticky import sticky_log
from understudy.logs.readers.units import UnitRows, UsedUnits, unit_hash

B: dict[int | str, float] = {"a": 0.1, "b": 0.9}


def units_of(log: pl.DataFrame, *, most_rows: int | None = None) -> pl.DataFrame:
    """One row for each unit, by the definition: a loop over all rows."""
    found: dict[Any, dict[str, Any]] = {}
    for row in log.iter_rows(named=True):
        own = found.setdefault(row["user"], {**row, "rewards": []})
        own["rewards"].append(row["reward"])
    rows = []
    for own in found.values():
        rewards: Sequence[float] = own.pop("rewards")
        total = sum(rewards[:most_rows])
        rows.append(own | {"reward": total / (most_rows or len(rewards))})
    return pl.DataFrame(rows).drop("user", "page")


def same(first: us.logs.CertifyResult, second: us.logs.CertifyResult) -> bool:
    one, two = first.certified.certificate, second.certified.certificate
    return (one.rounds, one.lower, one.upper, one.gain, one.gain_upper, one.promoted_at) == (
        two.rounds,
        two.lower,
        two.upper,
        two.gain,
        two.gain_upper,
        two.promoted_at,
    )


@pytest.mark.parametrize("most_rows", [None, 1, 3, 100])
@pytest.mark.parametrize("form", ["csv", "parquet", "ndjson"])
def test_a_certificate_is_that_of_the_units(
    form: str, most_rows: int | None, tmp_path: Path
) -> None:
    log = sticky_log(5, users=300, rows=2_000, gain=0.2)
    path = write(tmp_path / f"log.{form}", log)
    options: dict[str, Any] = {"actions": ["a", "b"], "least_propensity": 0.5}
    found = us.logs.certify(path, B, unit="user", unit_rows=most_rows, **options)
    expected = us.logs.certify(units_of(log, most_rows=most_rows), B, **options)
    assert same(found, expected)
    assert found.intake.units is not None
    assert [file.rows for file in found.intake.files] == [2_000]
    assert (found.intake.units.units, found.intake.units.rows) == (
        expected.certified.certificate.rounds,
        2_000,
    )


@pytest.mark.parametrize("batch", [1, 7, 2_000])
def test_units_do_not_depend_on_batches(batch: int) -> None:
    log = sticky_log(5, users=300, rows=2_000).rename({"user": "unit"})
    rows = log.with_row_index("row")
    frames = (("log", part) for part in rows.iter_slices(batch))
    found = UnitRows.collect(frames, column="user", most_rows=3)
    reward = pl.concat([frame for _, frame in found.batches()])["reward"]
    expected = units_of(log.rename({"unit": "user"}), most_rows=3)["reward"]
    assert reward.to_list() == expected.to_list()


def test_learning_sees_each_unit_once_in_the_order_of_first_rows() -> None:
    log = sticky_log(6, users=200, rows=3_000, gain=0.3)
    by_unit = us.logs.learn(log, unit="user", learner="exp3-ix", actions=["a", "b"])
    by_row = us.logs.learn(units_of(log), learner="exp3-ix", actions=["a", "b"])
    for policy in (by_unit.policy, by_row.policy):
        assert policy.rows == 200
    assert by_unit.policy.probabilities() == by_row.policy.probabilities()
    assert by_unit.policy.study.curve == by_row.policy.study.curve


def test_units_in_several_files_of_other_types_and_by_time_are_one(tmp_path: Path) -> None:
    log = sticky_log(7, users=50, rows=400).with_row_index("second")
    write(tmp_path / "a.csv", log[:200])
    write(tmp_path / "b.parquet", log[200:])
    paths = [tmp_path / "a.csv", tmp_path / "b.parquet"]
    found = us.logs.certify(paths, B, unit="user", actions=["a", "b"])
    assert same(found, us.logs.certify(log, B, unit="user", actions=["a", "b"]))
    shuffled = log.sample(fraction=1.0, shuffle=True, seed=2)
    timed = us.logs.certify(shuffled, B, unit="user", time="second", actions=["a", "b"])
    assert same(found, timed)


@pytest.mark.parametrize(
    ("change", "reason", "units"),
    [
        ({"action": "b"}, "action of the unit changes", 1),
        ({"user": None}, "unit is missing", 1),
        ({"reward": None}, "reward is missing", 1),
        ({"reward": 7.0}, "reward is out of range", 1),
        ({"reward": float("nan")}, "reward is not finite", 1),
        ({"propensity": None}, None, 0),  # of a later row: that of the first one counts
    ],
)
def test_a_unit_with_a_row_that_cannot_be_used_is_quarantined(
    change: dict[str, Any], reason: str | None, units: int
) -> None:
    log = sticky_log(8, users=100, rows=1_000)
    first = log.with_row_index().filter(pl.col("action") == "a")
    later = next(
        row["index"]
        for row in first.iter_rows(named=True)
        if log["user"][: row["index"]].is_in([row["user"]]).any()
    )
    name, value = next(iter(change.items()))
    column = log[name].to_list()
    column[later] = value
    changed = log.with_columns(pl.Series(name, column, dtype=log[name].dtype))
    found = us.logs.certify(changed, B, unit="user", actions=["a", "b"])
    counts = {} if reason is None else {reason: units}
    assert dict(found.intake.refused) == counts
    assert found.certified.certificate.rounds == 100 + (name == "user")


def test_a_missing_unit_takes_nothing_from_the_others() -> None:
    log = sticky_log(8, users=100, rows=1_000)
    gone = log.with_columns(user=pl.when(pl.int_range(pl.len()) >= 3).then("user"))
    found = us.logs.coverage(gone, unit="user")
    assert found.coverage.refused == {"unit is missing": 3}
    assert found.coverage.rows == 100


def test_the_worst_of_a_unit_with_a_missing_reward_knows_its_action() -> None:
    log = sticky_log(8, users=100, rows=1_000)
    lost = log.with_columns(reward=pl.when(pl.col("user") != log["user"][0]).then("reward"))
    options: dict[str, Any] = {"actions": ["a", "b"], "least_propensity": 0.5}
    known = us.logs.certify(lost, B, unit="user", **options)
    plain = units_of(log).with_columns(reward=pl.when(pl.int_range(pl.len()) > 0).then("reward"))
    assert same(known, us.logs.certify(plain, B, **options))


# ------------------------------------------------------------------------------ used units


def test_a_unit_is_used_once(tmp_path: Path) -> None:
    learned = us.logs.learn(sticky_log(9, users=200, rows=1_000), unit="user", out=tmp_path)
    both = pl.concat(
        [
            sticky_log(9, users=200, rows=1_000),
            sticky_log(10, users=100, rows=500, first_user=5_000),
        ]
    )
    for policy in (learned, learned.policy, tmp_path / "policy.json"):
        found = us.logs.certify(both[::-1], policy)
        assert found.intake.units is not None
        assert (found.intake.units.left_out, found.certified.certificate.rounds) == (200, 100)
        assert any(line.startswith("200 units left out") for line in found.report.coverage)
    again = us.logs.learn(both, unit="user", resume=tmp_path / "policy.json")
    assert again.policy.units is not None
    assert again.policy.units.counts.units == 200 + 300
    assert (len(again.policy.units.at_hand()), again.policy.rows) == (300, 300)
    covered = us.logs.coverage(both, tmp_path / "policy.json", unit="user")
    assert covered.coverage.rows == 100


def test_a_log_of_used_units_alone_is_refused() -> None:
    log = sticky_log(9, users=200, rows=1_000)
    learned = us.logs.learn(log[:600], unit="user")
    with pytest.raises(us.errors.InvalidLog, match="learned from all of its"):
        us.logs.certify(log[:500], learned)


def test_without_the_file_of_units_nothing_is_certified_or_learned(tmp_path: Path) -> None:
    us.logs.learn(sticky_log(9, users=200, rows=1_000), unit="user", out=tmp_path)
    units = (tmp_path / "units.parquet").read_bytes()
    assert "units" in json.loads((tmp_path / "policy.json").read_text("utf-8"))["provenance"]
    later = sticky_log(10, users=100, rows=500, first_user=5_000)
    other = UsedUnits.of(np.array([1, 2], dtype=np.uint64))
    for damage in (None, b"", units[:100], other):
        (tmp_path / "units.parquet").unlink()
        if isinstance(damage, bytes):
            (tmp_path / "units.parquet").write_bytes(damage)
        elif damage is not None:
            damage.save(tmp_path / "units.parquet")
        policy = us.logs.Policy.load(tmp_path / "policy.json")  # it can be played
        assert sum(policy.probabilities().values()) == pytest.approx(1.0)
        for command in (us.logs.certify, us.logs.coverage):
            with pytest.raises(us.errors.InvalidArgument, match=r"put the units\.parquet"):
                command(later, policy)
        with pytest.raises(us.errors.InvalidArgument, match=r"put the units\.parquet"):
            us.logs.learn(later, unit="user", resume=policy)
        (tmp_path / "units.parquet").write_bytes(units)
    assert us.logs.certify(later, tmp_path / "policy.json").certified.certificate.rounds == 100


def test_a_saved_policy_takes_its_units_along(tmp_path: Path) -> None:
    learned = us.logs.learn(sticky_log(9, users=200, rows=1_000), unit="user")
    learned.policy.save(tmp_path / "policy.json")
    loaded = us.logs.Policy.load(tmp_path / "policy.json")
    assert loaded.units is not None
    assert learned.policy.units is not None
    assert loaded.units.at_hand().hashes.tolist() == learned.policy.units.at_hand().hashes.tolist()
    assert loaded.to_json() == learned.policy.to_json()


def test_hashes_of_units_never_change() -> None:
    """They are in files: a new version must know the units of an old one."""
    assert [unit_hash(text) for text in ("ann", "7")] == [
        11957940740637538957,
        9407870976149377255,
    ]


def test_used_units_contain_their_hashes_and_no_others() -> None:
    rng = np.random.default_rng(0)
    some = rng.integers(0, 1 << 63, 1_000).astype(np.uint64)
    used = UsedUnits.of(some, some[:10])
    assert len(used) == 1_000
    assert used.contain(some).all()
    assert not used.contain(some + np.uint64(1)).any()
    assert not UsedUnits.of().contain(some).any()


# ------------------------------------------------------------------------------------- validity


def null_gains(seed: int, *, by_unit: bool) -> bool:
    """Whether a gain is certified of always playing b, which gains nothing."""
    log = sticky_log(seed, users=40, rows=2_000)
    options: dict[str, Any] = {"unit": "user"} if by_unit else {"no_unit": True}
    found = us.logs.certify(log, {"b": 1.0}, actions=["a", "b"], least_propensity=0.5, **options)
    return bool(found.certified.promoted)


def test_sticky_rows_certify_gains_that_do_not_exist_and_units_do_not() -> None:
    """40 users, 50 rows each, no effect at all."""
    logs = range(60)
    assert sum(null_gains(seed, by_unit=False) for seed in logs) > 10
    assert sum(null_gains(seed, by_unit=True) for seed in logs) <= 3


def test_the_same_units_in_both_logs_would_promote_a_policy_of_no_effect() -> None:
    """The policy fits the users that it has seen, whose actions were drawn once, for both logs."""

    def grouped(log: pl.DataFrame) -> pl.DataFrame:
        return log.with_columns(group=pl.format("g{}", pl.col("user") % 100))

    options: dict[str, Any] = {"best_action": True, "least_propensity": 0.5}
    unguarded = guarded = 0
    for seed in range(10):
        log = grouped(sticky_log(seed, users=1_000, rows=10_000))
        first, later = log[:5_000], log[5_000:]
        wishes: dict[str, Any] = {"context": "group", "learner": "tables", "warmup": 100}
        policy = us.logs.learn(first, unit="user", actions=["a", "b"], **wishes).policy
        columns = replace(policy.settings.columns, unit=None)
        rows = replace(policy.settings, columns=columns, no_unit=True)
        forgetful = replace(policy, units=None, settings=rows)
        same_units = us.logs.certify(later, forgetful, unit="user", **options)
        unguarded += bool(same_units.certified.promoted)
        newer = grouped(sticky_log(seed + 100, users=1_000, rows=5_000, first_user=5_000))
        found = us.logs.certify(pl.concat([later, newer]), policy, **options)
        guarded += bool(found.certified.promoted)
        assert found.intake.units is not None
        assert found.intake.units.left_out > 900
    assert (guarded, unguarded >= 6) == (0, True)


@pytest.mark.parametrize("kind", [pl.Float64, pl.Decimal(20, 2)])
@pytest.mark.parametrize("text", [False, True])
def test_a_unit_with_a_number_is_the_same_in_all_types(
    kind: pl.DataType, *, text: bool, tmp_path: Path
) -> None:
    """pandas makes 7.0 of 7 where a column has a missing value, in frames and in CSV files."""
    log = sticky_log(9, users=200, rows=1_000)
    learned = us.logs.learn(log[:800], unit="user")
    other = log.with_columns(pl.col("user").cast(kind))
    if text:
        other = other.with_columns(pl.col("user").cast(pl.String))
    newer = us.logs.certify(write(tmp_path / "log.csv", other), learned).intake.units
    assert newer is not None
    assert newer.left_out == log[:800]["user"].n_unique()


@pytest.mark.parametrize("folder", ["run[1]", "run*", "a b?"])
def test_the_file_of_units_is_read_in_any_folder(folder: str, tmp_path: Path) -> None:
    learned = us.logs.learn(sticky_log(9, users=200, rows=1_000), unit="user")
    (tmp_path / folder).mkdir()
    learned.policy.save(tmp_path / folder / "policy.json")
    loaded = us.logs.Policy.load(tmp_path / folder / "policy.json")
    assert loaded.units is not None
    assert len(loaded.units.at_hand()) == 200


@pytest.mark.parametrize("column", [["ann"], [[1]], [-1], [None], [1.5], []])
def test_another_file_of_that_name_is_no_file_of_units(column: list[Any], tmp_path: Path) -> None:
    pl.DataFrame({"unit": column}).write_parquet(tmp_path / "units.parquet")
    assert UsedUnits.load(tmp_path / "units.parquet") is None
    pl.DataFrame({"user": column}).write_parquet(tmp_path / "units.parquet")
    assert UsedUnits.load(tmp_path / "units.parquet") is None
    (tmp_path / "folder").mkdir()
    assert UsedUnits.load(tmp_path / "folder") is None


def test_two_policies_of_a_folder_have_a_file_of_units_each(tmp_path: Path) -> None:
    logs = [sticky_log(seed, users=50, rows=300, first_user=100 * seed) for seed in (1, 2, 3)]
    for name, log in zip(("v1.json", "v2.json", "policy.json"), logs, strict=True):
        us.logs.learn(log, unit="user").policy.save(tmp_path / name)
    for name, log in zip(("v1.json", "v2.json", "policy.json"), logs, strict=True):
        with pytest.raises(us.errors.InvalidLog, match="learned from all of its"):
            us.logs.certify(log[:200], tmp_path / name)
    (tmp_path / "moved").mkdir()
    for name, later in (("policy.json", "best.json"), ("units.parquet", "units.parquet")):
        (tmp_path / name).rename(tmp_path / "moved" / later)
    with pytest.raises(us.errors.InvalidLog, match="learned from all of its"):
        us.logs.certify(logs[2][:200], tmp_path / "moved" / "best.json")


def test_a_resumed_run_counts_as_many_rows_of_a_unit() -> None:
    learned = us.logs.learn(sticky_log(9, users=200, rows=1_000), unit="user", unit_rows=2)
    later = sticky_log(10, users=100, rows=500, first_user=5_000)
    once = us.logs.learn(later, resume=learned).policy
    again = us.logs.learn(later, resume=learned, unit="user").policy
    assert again.to_json() == once.to_json()
    named = us.logs.certify(later, learned, unit="user")
    assert same(named, us.logs.certify(later, learned))


def test_rows_that_a_unit_does_not_have_are_in_the_range_of_the_policy_too() -> None:
    log, later = (
        sticky_log(seed, users=200, rows=1_000, first_user=1_000 * seed).with_columns(
            reward=1 + 4 * pl.col("reward")
        )
        for seed in (1, 2)
    )
    learned = us.logs.learn(log, unit="user", reward_range=(1, 5))
    with pytest.raises(us.errors.InvalidArgument, match="a --reward-range with 0 in it"):
        us.logs.certify(later, learned, unit="user", unit_rows=2)
    learned = us.logs.learn(log, unit="user", reward_range=(0, 5), unit_rows=2)
    with pytest.raises(us.errors.InvalidArgument, match="a --reward-range with 0 in it"):
        us.logs.certify(later, learned, reward_range=(1, 5))


@pytest.mark.parametrize("options", [{}, {"no_unit": True}, {"engine": "polars"}])
def test_coverage_judges_a_policy_of_units_by_units(options: dict[str, Any]) -> None:
    """One row of each unit: no column shows that the action is sticky."""
    log = sticky_log(9, users=200, rows=1_000)
    learned = us.logs.learn(log, unit="user")
    later = log[::-1].unique("user", keep="first", maintain_order=True)
    with pytest.raises(us.errors.InvalidArgument, match="pass --unit user"):
        us.logs.coverage(later, [learned.policy], **options)


def test_a_policy_of_sticky_rows_is_not_judged_by_units() -> None:
    """Its units are not known, so that they could be used again."""
    log = sticky_log(9, users=200, rows=2_000)
    learned = us.logs.learn(log)
    assert learned.obstacle == "sticky columns"
    for command in (us.logs.certify, us.logs.coverage):
        with pytest.raises(us.errors.InvalidArgument, match="learn it again, with --unit user"):
            command(log[::-1][:1_500], learned.policy, unit="user")
    later = log[::-1].unique("user", keep="first", maintain_order=True)
    assert us.logs.certify(later, learned).coverage.obstacle == "sticky columns"
    assert us.logs.coverage(later, learned).coverage.obstacle == "sticky columns"
    assert us.logs.coverage(later).coverage.obstacle is None
    assert us.logs.certify(later, learned, no_unit=True).coverage.obstacle is None


def test_a_policy_of_rows_that_may_be_of_units_is_not_judged_by_units() -> None:
    """One row of each user, in both logs: nothing repeats, and the users may be the same."""
    log = sticky_log(9, users=2_000, rows=4_000).unique("user", maintain_order=True)
    learned, declared = (us.logs.learn(log, no_unit=no_unit).policy for no_unit in (False, True))
    with pytest.raises(us.errors.InvalidArgument, match="its units are not known, and could be us"):
        us.logs.certify(log[::-1][:500], learned, unit="user")
    assert us.logs.certify(log[::-1][:500], declared, unit="user").coverage.obstacle is None


# ------------------------------------------------------------------------------------- formats


def dsjson(log: pl.DataFrame, path: Path) -> Path:
    lines = [
        {
            "_label_cost": -row["reward"],
            "_label_probability": row["propensity"],
            "_label_Action": 1 + (row["action"] == "b"),
            "session": row["user"],
            "c": {"person": {"name": f"u{row['user']}"}},
        }
        for row in log.iter_rows(named=True)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("unit", ["session", "c.person.name"])
def test_units_of_dsjson_are_keys_of_any_depth(unit: str, tmp_path: Path) -> None:
    log = sticky_log(5, users=100, rows=600)
    path = dsjson(log, tmp_path / "log.dsjson")
    found = us.logs.certify(path, {1: 0.1, 2: 0.9}, unit=unit, actions=[1, 2])
    assert same(found, us.logs.certify(log, B, unit="user", actions=["a", "b"]))


@pytest.mark.parametrize("unit", ["c", "nothing", "c.person"])
def test_a_unit_of_dsjson_that_is_no_single_value_is_missing(unit: str, tmp_path: Path) -> None:
    path = dsjson(sticky_log(5, users=100, rows=600), tmp_path / "log.dsjson")
    with pytest.raises(us.errors.InvalidLog, match="unit is missing: 600"):
        us.logs.coverage(path, unit=unit)


def test_text_of_vowpal_wabbit_has_no_units(tmp_path: Path) -> None:
    path = tmp_path / "log.vw"
    path.write_text("1:-1:0.5 | user:3\n2:0:0.5 | user:4\n", encoding="utf-8")
    with pytest.raises(us.errors.InvalidLog, match=r"has no units.*write its events as a table"):
        us.logs.coverage(path, unit="user")


# ------------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit_rows": 3}, "name its column with --unit"),
        ({"unit": "user", "unit_rows": 0}, "it must be at least 1"),
        ({"unit": "user", "unit_rows": 10**12}, "it must be at most 1000000"),
        ({"unit": "user", "id": "page"}, "leave it out"),
        ({"unit": "user", "unit_rows": 2, "reward_range": (1, 5)}, "a --reward-range with 0 in it"),
        ({"unit": "users"}, "it has no column 'users'"),
        ({"unit": ["user"]}, r"unit = \['user'\]: it is not the name .* pass one name"),
        ({"unit": True}, "unit = True: it is not the name of a column"),
        ({"unit": pl.col("user")}, "pass one name"),
        ({"no_unit": "no"}, "it must be True or False"),
        ({"unit": "user", "no_unit": []}, "it must be True or False"),
        (
            {"unit": "user", "engine": "polars"},
            "sums in no order do not read it; leave out --engine",
        ),
    ],
)
def test_contradictions_are_named(options: dict[str, Any], message: str) -> None:
    log = sticky_log(1, users=20, rows=200)
    with pytest.raises((us.errors.InvalidArgument, us.errors.InvalidLog), match=message):
        us.logs.coverage(log, **options)


def test_pandas_may_have_units_of_several_types() -> None:
    log = sticky_log(1, users=20, rows=200).to_pandas()
    log["user"] = [f"u{user}" if user % 2 else user for user in log["user"]]
    with pytest.raises(us.errors.InvalidLog, match=r"values of several types.*astype\(str\)"):
        us.logs.coverage(log, unit="user")


def test_a_policy_of_units_is_certified_by_units() -> None:
    learned = us.logs.learn(sticky_log(9, users=200, rows=1_000), unit="user", unit_rows=2)
    later = sticky_log(10, users=100, rows=500, first_user=5_000)
    found = us.logs.certify(later, learned)
    assert found.intake.units is not None
    assert (found.intake.units.most_rows, found.certified.certificate.rounds) == (2, 100)
    options: list[dict[str, Any]]
    options = [{"unit": "page"}, {"unit": "user", "unit_rows": 5}]
    for option in options:
        with pytest.raises(us.errors.InvalidArgument, match="the policy was learned with"):
            us.logs.learn(later, resume=learned, **option)


def test_a_policy_of_units_takes_no_ids() -> None:
    """Its column of units is the default of later logs."""
    first = us.logs.learn(sticky_log(1, users=200, rows=600), unit="user").policy
    later = sticky_log(2, users=200, rows=600, first_user=200)
    with pytest.raises(us.errors.InvalidArgument, match="ids of decisions are not read"):
        us.logs.certify(later, first, id="page")
    with pytest.raises(us.errors.InvalidArgument, match="ids of decisions are not read"):
        us.logs.learn(later, resume=first, id="page")


def test_a_unit_reward_stays_in_the_range() -> None:
    rows = sticky_log(1, users=2, rows=30).with_columns(reward=pl.lit(0.1))
    assert sum([0.1] * 15) / 15 != 0.1
    found = us.logs.coverage(rows, unit="user", actions=["a", "b"], reward_range=(0.0, 0.1))
    assert (found.coverage.rows, found.coverage.refused) == (2, {})


def test_eligible_sets_and_contexts_are_those_of_the_first_row() -> None:
    log = sticky_log(11, users=400, rows=3_000, gain=0.2)
    by_page = us.logs.learn(log, unit="user", context="page", learner="ridge", warmup=50)
    assert by_page.policy.rows == 350
    listed = log.with_columns(eligible=pl.lit("a|b"))
    assert us.logs.coverage(listed, unit="user", eligible="eligible").coverage.rows == 400


def test_one_row_for_each_unit_changes_nothing() -> None:
    log = sticky_log(12, users=10, rows=500).with_row_index("user id").drop("user")
    options: dict[str, Any] = {"actions": ["a", "b"], "least_propensity": 0.5}
    assert same(
        us.logs.certify(log, B, unit="user id", **options),
        us.logs.certify(log, B, no_unit=True, **options),
    )


def test_the_rows_of_a_unit_may_be_said_again_with_a_policy_of_units(tmp_path: Path) -> None:
    log = sticky_log(3, users=300, rows=1_500)
    first, later = log.filter(pl.col("user") % 2 == 0), log.filter(pl.col("user") % 2 == 1)
    learned = us.logs.learn(first, unit="user", unit_rows=5, out=tmp_path)
    judged = us.logs.certify(later, learned, unit_rows=5)
    assert judged.intake.units is not None
    assert judged.intake.units.most_rows == 5
    again = us.logs.learn(later, resume=tmp_path / "policy.json", unit_rows=5)
    assert again.policy.settings.unit_rows == 5
    for command in (us.logs.certify, us.logs.coverage):
        with pytest.raises(us.errors.InvalidArgument, match="name its column with --unit"):
            command(log, {"a": 0.5, "b": 0.5}, unit_rows=5)
