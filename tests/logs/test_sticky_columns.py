"""Columns in which the action is sticky: `understudy.logs.evaluation.sticky_columns`."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.command_line import COMMANDS, Place, place
from tests.support.logs.log_files import write
from tests.support.logs.sticky import examine_rows, fresh_log, sticky_log, upper_bound
from understudy.logs.evaluation.sticky_columns import (
    BETS,
    COUNTING_SHARE,
    FALSE_ALARM,
    StickyColumns,
    StickyDetector,
    _Frequencies,
)

__all__ = ["place"]


def finding(log: pl.DataFrame, batch: int = 500, *columns: str) -> StickyColumns:
    detector = StickyDetector()
    for part in log.iter_slices(batch):
        hashes = {name: part[name].hash() for name in columns or ("user", "page")}
        actions = (part["action"] == "b").cast(pl.Int64).to_numpy()
        detector.add(hashes, actions, part["propensity"].to_numpy())
    return detector.finding()


def test_the_wealth_of_a_bet_is_one_in_expectation() -> None:
    """Over all sequences of actions, for any values and any propensities that the past decides."""
    values = np.array([3, 5, 3, 3, 5], dtype=np.uint64) << np.uint64(33)

    def propensity(past: tuple[int, ...]) -> float:  # of action 1
        return 0.2 + 0.6 * ((sum(past) * 3 + len(past)) % 5) / 4

    total = 0.0
    for actions in itertools.product((0, 1), repeat=len(values)):
        q = [propensity(actions[:t]) for t in range(len(values))]
        own = [q[t] if a else 1 - q[t] for t, a in enumerate(actions)]
        detector = StickyDetector()
        detector.add({"user": pl.Series(values)}, np.array(actions), np.array(own))
        total += float(np.prod(own)) * detector._columns["user"].wealth.mean()
    assert total == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("starts", [1, 2, 3])
def test_the_wealth_of_all_starts_is_one_in_expectation(
    starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what later starts get: 1 − 1/2 − 1/6 − … is 1/(their number + 1)."""
    monkeypatch.setattr("understudy.logs.evaluation.sticky_columns.STARTS", starts)
    n, q = 6, 0.3
    total = 0.0
    for actions in itertools.product((0, 1), repeat=n):
        own = np.where(np.array(actions) == 1, q, 1 - q)
        detector = StickyDetector()
        values = {"user": pl.Series([1 << 33] * n, dtype=pl.UInt64)}
        detector.add(values, np.array(actions), own)
        begun = -(-(n - 1) // starts)
        wealth = detector._columns["user"].wealth.mean()
        total += float(np.prod(own)) * (wealth + 1 / (begun + 1))
    assert total == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_sticky_logs_are_found(share: float) -> None:
    """At least 1,000 repeats, and the unit's column in sight: 99 of 100 logs."""
    found = 0
    for seed in range(200):
        log = sticky_log(seed, users=1_000, rows=2_000, share=share)
        columns = finding(log).columns
        found += [column.name for column in columns] == ["user"]
    assert found >= 198


def test_fresh_draws_with_contexts_raise_no_alarm() -> None:
    for seed in range(200):
        assert not finding(fresh_log(seed, 3_000), 500, "user", "page", "x").found


def test_the_finding_does_not_depend_on_batches() -> None:
    log = sticky_log(1, users=200, rows=3_000)
    assert finding(log, 7) == finding(log, 3_000)


def test_missing_values_are_no_value() -> None:
    log = sticky_log(1, users=200, rows=3_000).with_columns(
        action=pl.lit("b"), propensity=pl.lit(0.5)
    )
    hashes = {"user": pl.Series([0] * 3_000, dtype=pl.UInt64)}
    detector = StickyDetector()
    detector.add(hashes, np.ones(3_000, dtype=np.int64), log["propensity"].to_numpy())
    assert detector.finding() == StickyColumns((), 1)


@pytest.mark.large
def test_an_assignment_that_becomes_sticky_late_is_found() -> None:
    """1,000 users: fresh draws in a million rows, and then one for each user, as by a new flag."""
    rng = np.random.default_rng(0)
    fresh, late = 1_200_000, 8_000
    user, page = (rng.integers(0, values, fresh + late) for values in (1_000, 20))
    actions = rng.integers(0, 2, fresh + late)
    detector = StickyDetector()
    hashes = {"user": pl.Series(user).hash(), "page": pl.Series(page).hash()}
    detector.add({k: h[:fresh] for k, h in hashes.items()}, actions[:fresh], np.full(fresh, 0.5))
    assert not detector.finding().found
    kept = rng.integers(0, 2, 1_000)[user[fresh:]]
    detector.add({k: h[fresh:] for k, h in hashes.items()}, kept, np.full(late, 0.5))
    assert [column.name for column in detector.finding().columns] == ["user"]
    assert (len(BETS), FALSE_ALARM) == (6, 1e-6)


def test_rows_whose_rewards_are_missing_are_draws_too() -> None:
    """Rewards of b come late: in the valid rows a is more frequent than its propensity says."""
    rng = np.random.default_rng(1)
    drawn = pl.Series(np.array(["a", "b"])[rng.integers(0, 2, 60_000)])
    log = fresh_log(0, 60_000).with_columns(action=drawn, propensity=pl.lit(0.5))
    lost = (pl.col("action") == "b") & pl.Series(rng.random(len(log)) < 0.7)
    late = log.with_columns(reward=pl.when(~lost).then("reward"))
    sticky = us.logs.coverage(late).coverage.sticky
    assert sticky is not None
    assert (sticky.examined, sticky.found) == (4, False)


def test_an_unknown_action_is_no_repeat() -> None:
    """Whatever was played there: the bet loses, and the value keeps its last action."""
    detector = StickyDetector()
    hashes = {"user": pl.Series([1 << 33] * 4, dtype=pl.UInt64)}
    detector.add(hashes, np.array([-1, 1, -1, 1]), np.array([1.0, 0.5, 1.0, 0.5]))
    bets = detector._columns["user"]
    assert bets.counts.tolist() == [1, 1, 2]
    assert bets.wealth.tolist() == pytest.approx((0.5 * (1 - BETS) * (1 + BETS)).tolist())


def test_the_rows_in_a_row_are_a_column_of_one_value() -> None:
    """Their wealth is that of a column whose value never changes; there is no row before the first.

    And its name cannot be that of a column.
    """
    log = sticky_log(1, users=2, rows=300)
    actions = (log["action"] == "b").cast(pl.Int64).to_numpy()
    same = {"": pl.Series([7] * len(log), dtype=pl.UInt64).hash()}
    detector = StickyDetector(in_order=True)
    for start in range(0, len(log), 7):
        rows = slice(start, start + 7)
        hashes = {name: values[rows] for name, values in same.items()}
        detector.add(hashes, actions[rows], log["propensity"].to_numpy()[rows])
    mine, other = detector._columns[None], detector._columns[""]
    assert mine.wealth.tolist() == other.wealth.tolist()
    assert mine.counts.tolist() == other.counts.tolist()
    assert mine.counts[2] == len(log) - 1
    assert mine.enough == 2 / FALSE_ALARM


def test_the_rows_in_a_row_are_named_last() -> None:
    """Also after a column that only later files have."""
    values, ones = pl.Series([5] * 60, dtype=pl.UInt64), np.ones(60, dtype=np.int64)
    detector = StickyDetector(in_order=True)
    detector.add({}, ones, np.full(60, 0.5))
    detector.add({"user": values}, ones, np.full(60, 0.5))
    assert [one.name for one in detector.finding("session").columns] == ["user", None]
    assert detector.finding("session").unit == "session"


# ------------------------------------------------------------------------------------- commands


def switchback(seed: int, hours: int = 60, rows: int = 3_000) -> pl.DataFrame:
    """Rows of an action that was drawn once an hour."""
    log = sticky_log(seed, users=hours, rows=rows).sort("user", maintain_order=True)
    return log.rename({"user": "hour"})


@pytest.mark.parametrize("dropped", [["hour"], []])
def test_an_action_that_is_drawn_for_an_hour_is_found_without_its_column(
    dropped: list[str],
) -> None:
    log = switchback(3).drop(dropped).with_row_index("second")
    found = us.logs.certify(log, {"b": 1.0}, actions=["a", "b"], time="second")
    sticky = found.coverage.sticky
    assert sticky is not None
    names = [one.name for one in sticky.columns]
    assert names == (["page", None] if dropped else ["hour", "page", None])
    assert found.coverage.obstacle == "sticky columns"
    said = str(found)
    assert "rows in a row (" in said
    assert "; if it drew one for a period, make a column of that, and pass it. If it drew" in said
    alone = str(us.logs.certify(log.select("action", "reward", "propensity"), {"b": 1.0}))
    assert "make a column of that period or user, and pass it as --unit." in alone
    assert "the order of the log follows from the action, pass --no-unit" in alone
    by_unit = us.logs.coverage(switchback(3), unit="hour").coverage
    assert by_unit.obstacle is None


def test_the_times_of_a_log_are_examined() -> None:
    """Rows of one second come with the others of other seconds, and the log is in their order."""
    log = switchback(3).with_columns(page=pl.int_range(pl.len()))
    found = us.logs.coverage(log, time="hour").coverage.sticky
    assert found is not None
    assert [one.name for one in found.columns] == ["hour", None]


def sessions(seed: int, users: int = 60, rows: int = 6_000) -> pl.DataFrame:
    """Rows of users who keep an action over all of their sessions, of about four rows each."""
    log = sticky_log(seed, users=users, rows=rows)
    visit = pl.int_range(pl.len()).over("user") // 4
    return log.with_columns(session=pl.format("{} {}", "user", visit))


def test_a_unit_that_is_too_fine_is_found() -> None:
    for unit in ("session", "request"):
        log = sessions(3).with_columns(request=pl.int_range(pl.len()))
        found = us.logs.certify(log.drop({"session", "request"} - {unit}), {"b": 1.0}, unit=unit)
        sticky = found.coverage.sticky
        assert sticky is not None
        assert [one.name for one in sticky.columns] == ["user"]
        assert (sticky.unit, found.verdict) == (unit, "cannot tell")
        said = str(found)
        assert f"Units of {unit} with the same value of a column seem to have the same" in said
        assert f"pass --unit user in place of {unit}. If" in said
        assert "pass --no-unit too." in said
    again = us.logs.certify(log, {"b": 1.0}, unit="user")
    assert again.coverage.sticky == StickyColumns((), 4, "user")  # session, page, request, order


def test_units_of_fresh_draws_raise_no_alarm() -> None:
    """Each user keeps an action, and other columns do not show it."""
    for seed in range(20):
        log = sticky_log(seed, users=2_000, rows=4_000)
        sticky = us.logs.coverage(log, unit="user").coverage.sticky
        assert sticky == StickyColumns((), 2, "user")


def test_a_policy_of_units_that_are_too_fine_decides_nothing_until_the_user_says_so() -> None:
    log = sessions(3, users=500)
    learned = us.logs.learn(log, unit="session")
    assert learned.obstacle == "sticky columns"
    later = sticky_log(4, users=60, rows=500, first_user=900).with_columns(session=pl.lit("x"))
    more = us.logs.learn(later[:1], resume=learned, no_unit=True)
    assert (more.obstacle, more.policy.settings.no_unit) == (None, True)
    other = sessions(5, users=500).with_columns(session="other " + pl.col("session"))
    assert us.logs.certify(other, learned).coverage.obstacle == "sticky columns"
    assert us.logs.certify(other, learned, no_unit=True).coverage.obstacle is None
    assert us.logs.certify(other, more.policy).coverage.obstacle is None
    other_unit = us.logs.certify(other, more.policy, unit="user").coverage
    assert other_unit.sticky is not None  # what was said of sessions was not said of users


def test_several_columns_are_all_named() -> None:
    found = us.logs.coverage(sessions(3).with_columns(country=pl.col("user") // 2 * 0 + 1))
    names = [one.name for one in found.coverage.sticky.columns]  # type: ignore[union-attr] # found
    assert names == ["user", "session"]
    said = us.logs.certify(sessions(3), {"b": 1.0})
    assert "user (" in str(said)
    assert "session (" in str(said)
    assert "pass that one as --unit; in doubt, the one with the fewest values" in str(said)


@pytest.mark.parametrize("form", ["csv", "parquet", "ndjson", "arrow"])
def test_every_command_names_the_column_and_decides_nothing(form: str, place: Place) -> None:
    log = sticky_log(3, users=100, rows=4_000, gain=0.3).with_columns(
        user=pl.format("user {}", "user")
    )
    path = write(place.root / "logs" / f"log.{form}", log)
    for command in COMMANDS:
        said = place.run_on(command, path, "--json")
        assert (said.code, said.error) == (0, "")
        report = json.loads(said.out)
        (column,) = report["sticky_columns"]["columns"]
        assert (column["name"], column["same"]) == ("user", column["repeats"])
        assert {one["obstacle"] for one in report["candidates"]} == {"sticky columns"}
        assert any(line.startswith("Sticky columns: user") for line in report["coverage"])
        if command != "coverage":
            assert (report["decision"], report["obstacle"]) == ("unknown", "sticky columns")
            assert "pass --unit user" in report["words"]
            assert report["certificate"] is None
        overwrite = ["--overwrite"] if command == "learn" else []
        for declared in (["--no-unit"], ["--unit", "user"]):
            again = place.run_on(command, path, "--json", *declared, *overwrite)
            found = json.loads(again.out)["sticky_columns"]
            unit = {"columns": [], "examined": 2, "unit": "user"}  # page, and the units in a row
            assert found == (None if declared == ["--no-unit"] or command == "learn" else unit)
            assert json.loads(again.out)["obstacle"] is None


def test_a_context_column_may_be_sticky_too() -> None:
    log = sticky_log(3, users=100, rows=4_000)
    learned = us.logs.learn(log, context=["user", "page"], learner="ridge")
    assert learned.obstacle == "sticky columns"


def test_rows_by_time_are_examined_in_their_order() -> None:
    log = sticky_log(3, users=100, rows=4_000).with_row_index("second")
    found = us.logs.coverage(log.sample(fraction=1.0, shuffle=True, seed=1), time="second")
    again = us.logs.coverage(log.drop("second"))
    assert found.coverage.sticky is not None
    assert again.coverage.sticky is not None
    assert found.coverage.sticky.columns == again.coverage.sticky.columns
    assert found.coverage.sticky.examined == again.coverage.sticky.examined + 1  # the time


def test_a_policy_remembers_sticky_columns_and_that_there_is_no_unit(tmp_path: Path) -> None:
    log = sticky_log(3, users=100, rows=4_000)
    us.logs.learn(log, out=tmp_path)
    policy = us.logs.Policy.load(tmp_path / "policy.json")
    assert policy.sticky is not None
    assert policy.sticky.found
    assert us.logs.learn(fresh_log(1, 500), resume=policy).obstacle == "sticky columns"
    more = us.logs.learn(fresh_log(1, 500), resume=policy, no_unit=True)
    assert (more.obstacle, more.policy.settings.no_unit) == (None, True)
    later = sticky_log(4, users=100, rows=4_000)
    assert us.logs.certify(later, more.policy).coverage.obstacle is None
    broken = json.loads((tmp_path / "policy.json").read_text(encoding="utf-8"))
    broken["provenance"]["sticky"]["columns"][0]["repeats"] = -1
    (tmp_path / "policy.json").write_text(json.dumps(broken), encoding="utf-8")
    with pytest.raises(us.errors.InvalidSnapshot):
        us.logs.Policy.load(tmp_path / "policy.json")


def test_unknown_propensities_are_bounded_by_frequencies() -> None:
    log = sticky_log(3, users=100, rows=4_000).drop("propensity")
    found = us.logs.certify(log, {"b": 1.0}).coverage
    assert found.obstacle == "sticky columns"
    assert found.sticky is not None
    assert ([one.name for one in found.sticky.columns], found.sticky.examined) == (["user"], 2)
    assert us.logs.certify(log, {"b": 1.0}, no_unit=True).coverage.sticky is None
    assert us.logs.certify(log, {"b": 1.0}, unit="user").coverage.obstacle != "sticky columns"
    with_contexts = us.logs.learn(log, context="page")
    assert with_contexts.coverage.sticky is None  # no certificate has estimates there


def counted_bounds(actions: Any, batch: int) -> Any:
    frequencies = _Frequencies()
    parts = [actions[start : start + batch] for start in range(0, len(actions), batch)]
    return np.concatenate([frequencies.bounds_before(part) for part in parts])


def test_counted_bounds_are_those_of_their_definition() -> None:
    """From the rows after the first one of the action, at the level of its order."""
    rng = np.random.default_rng(1)
    actions = rng.choice([-1, 4, 0, 2], 300, p=[0.1, 0.6, 0.2, 0.1])
    found, known = counted_bounds(actions, 300), [a for a in actions if a >= 0]
    assert found.tolist() == counted_bounds(actions, 7).tolist()
    order, t = list(dict.fromkeys(known)), 0
    for b, bound in zip(actions, found, strict=True):
        if b < 0:
            assert bound == 1.0
            continue
        past = known[:t][known.index(b) + 1 :] if b in known[:t] else []
        j, n, t = order.index(b) + 1, len(past), t + 1
        if not n:
            assert bound == 1.0
            continue
        budget = np.log(j * (j + 1) * n * (n + 1) / (FALSE_ALARM * COUNTING_SHARE))
        exact = upper_bound(past.count(b) / n, n, budget)
        assert bound == pytest.approx(exact, rel=1e-12)  # logarithms of sums and of products


def test_fresh_draws_of_unknown_propensities_raise_no_alarm() -> None:
    """A fixed behavior of many actions, of which some are rare, and an action by chance again."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        q = rng.dirichlet(np.full(20, 0.3))
        actions, user, page = rng.choice(20, 3_000, p=q), *rng.integers(0, 50, (2, 3_000))
        detector = StickyDetector(counted=True)
        detector.add(
            {"user": pl.Series(user).hash(), "page": pl.Series(page).hash()}, actions, None
        )
        bets = detector._columns["user"]
        assert bets.enough == 2 / (FALSE_ALARM * (1 - COUNTING_SHARE))
        assert bets.wealth.mean() < 1e3
        assert not detector.finding().found


def test_given_propensities_are_examined() -> None:
    log = sticky_log(3, users=100, rows=4_000).drop("propensity")
    found = us.logs.coverage(log, behavior={"a": 0.5, "b": 0.5}).coverage
    assert found.obstacle == "sticky columns"


# ------------------------------------------------------------------------------------- engines


@pytest.mark.parametrize("engine", ["polars", "duckdb", "native"])
def test_engines_decide_nothing_about_a_sticky_log(engine: str, tmp_path: Path) -> None:
    log = sticky_log(3, users=100, rows=4_000, gain=0.3)
    path = write(tmp_path / "log.parquet", log)
    passed: Any = path if engine != "native" else duckdb.sql(f"SELECT * FROM '{path}'")
    named: dict[str, Any] = {} if engine == "native" else {"engine": engine}
    policy: Any = {"a": 0.1, "b": 0.9}
    for found in (us.logs.certify(passed, policy, **named), us.logs.coverage(passed, **named)):
        assert found.coverage.obstacle == "sticky columns"
        sticky = found.coverage.sticky
        assert sticky is not None
        assert ([one.name for one in sticky.columns], sticky.examined) == (["user"], 3)
        assert "pass --unit user" in str(found)
    again = us.logs.certify(passed, policy, no_unit=True, **named)
    assert (again.coverage.obstacle, again.coverage.sticky) == (None, None)
    with pytest.raises(us.errors.InvalidArgument) as refused:
        us.logs.certify(passed, policy, unit="user", **named)
    remedy = "pass files, or a frame of Polars, in place of the native frame"
    assert refused.value.remedy == (remedy if engine == "native" else "leave out --engine")


def test_engines_examine_the_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as a run in order would of these rows; a run in order reads all of them."""
    examine_rows(monkeypatch, 2_000)
    fresh, sticky = fresh_log(1, 2_000), sticky_log(3, users=100, rows=4_000)
    log = pl.concat([fresh.drop("x"), sticky])
    for passed in (log, duckdb.sql("SELECT * FROM log")):
        named: dict[str, Any] = {"engine": "polars"} if passed is log else {}
        found = us.logs.coverage(passed, **named).coverage
        assert (found.obstacle, found.sticky) == (None, StickyColumns((), 3))
    assert us.logs.coverage(log).coverage.obstacle == "sticky columns"


# ------------------------------------------------------------------------------ nested columns

NESTED = pl.struct("page", pl.struct(id="user", row=pl.int_range(pl.len())).alias("who"))


def nested_files(folder: Path) -> list[tuple[Any, str, Any]]:
    """The same sticky log in forms that have users in nested values, with the user's name there."""
    log = sticky_log(3, users=100, rows=4_000).with_columns(user=pl.format("u{}", "user"))
    table = log.select("action", "reward", "propensity", NESTED.alias("x"))
    events = [
        {
            "_label_cost": -row["reward"],
            "_label_probability": row["propensity"],
            "_label_Action": "ab".index(row["action"]) + 1,
            "_label_price": row["action"],
            "EventId": str(number),
            "Version": "1",
            "c": {"_multi": [{}, {}], **row["x"], "odd.name": row["x"]["who"]["id"]},
        }
        for number, row in enumerate(table.iter_rows(named=True))
    ]
    path = folder / "log.dsjson"
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    lines = [json.dumps(row) for row in table.iter_rows(named=True)]
    (folder / "log.ndjson").write_text("\n".join(lines), encoding="utf-8")
    parquet = write(folder / "log.parquet", table)
    names = {"a": 0.0, "b": 1.0}
    return [
        (path, "c.who.id", {"1": 0.0, "2": 1.0}),
        (folder / "log.ndjson", "x.who.id", names),
        (parquet, "x.who.id", names),
        (table, "x.who.id", names),
        (table.to_pandas(use_pyarrow_extension_array=True), "x.who.id", names),
    ]


def test_users_in_nested_values_are_found_and_can_be_units(tmp_path: Path) -> None:
    for log, name, policy in nested_files(tmp_path):
        found = us.logs.certify(log, policy)
        sticky = found.coverage.sticky
        assert sticky is not None
        assert [one.name for one in sticky.columns] == [name]
        assert f"pass --unit {name}. If" in str(found)
        by_unit = us.logs.certify(log, policy, unit=name)
        assert by_unit.coverage.obstacle is None
        assert by_unit.coverage.units is not None
        assert by_unit.coverage.units.units == 100
        with pytest.raises(us.errors.InvalidLog, match=r"unit is missing|it has no column"):
            us.logs.certify(log, policy, unit=name + "s")


def test_a_nested_value_of_a_column_in_use_is_not_examined() -> None:
    """The vector of propensities has leaves, too; and a column of a leaf's name goes before it."""
    log = sticky_log(3, users=100, rows=4_000).with_columns(
        propensity_vector=pl.struct(a=1 - pl.lit(0.5), b=pl.lit(0.5))
    )
    found = us.logs.coverage(log, propensity_vector="propensity_vector").coverage.sticky
    assert found is not None
    assert ([one.name for one in found.columns], found.examined) == (["user"], 3)
    taken = log.select(
        pl.exclude("user", "propensity_vector"),
        NESTED.alias("x"),
        pl.int_range(pl.len()).alias("x.who.id"),
    )
    units = us.logs.coverage(taken, unit="x.who.id").coverage.units
    assert units is not None
    assert units.units == 4_000


def test_odd_names_in_json_do_no_harm(tmp_path: Path) -> None:
    log = sticky_log(3, users=100, rows=1_000)
    rows = [
        {key: row[key] for key in ("action", "reward", "propensity")}
        | {"x": {"ü ’s'[0]": row["user"], "a.b": n, "": n}, "y": {"z": "{"}}
        for n, row in enumerate(log.iter_rows(named=True))
    ]
    rows[5] |= {"x": "text"}
    rows[6] |= {"x": ["list"]}
    rows[7] |= {"x": {'a"b': 1, "a\\b": 2}}  # Polars writes it as broken JSON
    (tmp_path / "log.ndjson").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    sticky = us.logs.coverage(tmp_path / "log.ndjson").coverage.sticky
    assert sticky is not None
    assert [one.name for one in sticky.columns] == ["x.ü ’s'[0]"]
    for name in ('x.a"b', "x.a\\b", "x.", "x..b"):
        with pytest.raises(us.errors.InvalidLog):
            us.logs.coverage(tmp_path / "log.ndjson", unit=name)


def test_leaves_are_bounded() -> None:
    fields = [pl.lit(number).alias(f"f{number}") for number in range(40)]
    deep = pl.struct(a=pl.struct(b=pl.struct(c=pl.struct(d=pl.lit(1)))))
    log = fresh_log(1, 500).with_columns(wide=pl.struct(fields), deep=deep)
    sticky = us.logs.coverage(log).coverage.sticky
    assert sticky is not None
    assert sticky.examined == 3 + 1 + 16  # columns, rows in a row, leaves
