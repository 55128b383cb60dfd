"""Copies of rows decide nothing: `understudy.logs.evaluation.repeated_rows`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.command_line import COMMANDS, Place, place
from tests.support.logs.log_files import make_rows, write
from understudy.logs.evaluation.repeated_rows import (
    MOST_ROWS,
    RepeatedRows,
    Repetition,
    RowCounter,
    histogram_finding,
)

__all__ = ["place"]

pytestmark = pytest.mark.plain

Order = Callable[[int, int, np.random.Generator], Any]
ORDERS: dict[str, Order] = {
    "side by side": lambda n, k, _: np.repeat(np.arange(n), k),
    "one after the other": lambda n, k, _: np.tile(np.arange(n), k),
    "shuffled": lambda n, k, rng: rng.permutation(np.repeat(np.arange(n), k)),
}


def null_log(seed: int, rows: int = 1_000, *, timed: bool = False) -> pl.DataFrame:
    """Rows in which no policy gains: all actions have the same mean reward."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(3, 3.0)) * 0.85 + 0.05
    actions = rng.choice(3, size=rows, p=q)
    frame = pl.DataFrame(
        {
            "action": actions,
            "reward": (rng.random(rows) < 0.3).astype(float),
            "propensity": q[actions],
        }
    )
    seconds = np.cumsum(rng.exponential(3.0, size=rows)).astype(int)
    return frame.with_columns(second=pl.Series(seconds)) if timed else frame


def finding(rows: Any, batch: int = 1 << 12, counter: RowCounter | None = None) -> RepeatedRows:
    counter = counter or RowCounter()
    for part in pl.Series(np.asarray(rows).astype(np.uint64)).hash().to_frame().iter_slices(batch):
        counter.add(part.to_series())
    return counter.finding()


# ------------------------------------------------------------------------------------ null logs


@pytest.mark.parametrize(
    ("order", "timed"),
    [("side by side", False), ("one after the other", False), ("shuffled", True)],
)
@pytest.mark.parametrize(
    "logs", [20, pytest.param(60, marks=pytest.mark.full)], ids=["some", "all"]
)
def test_no_null_log_with_ten_copies_of_each_row_is_promoted(
    order: str, timed: bool, logs: int
) -> None:
    promoted = allowed = 0
    for seed in range(logs):
        rng = np.random.default_rng(seed)
        rows = null_log(seed, 300, timed=timed)
        copied = rows[ORDERS[order](len(rows), 10, rng)]
        learned = us.logs.learn(copied)
        promoted += learned.verdict == "promote"
        assert learned.obstacle == "repeated rows"
        found = us.logs.learn(copied, repeated_rows="allow", no_unit=True)
        allowed += found.verdict == "promote"
        assert us.logs.learn(rows).obstacle != "repeated rows"
    assert promoted == 0
    assert allowed > logs // 12  # the copies alone promote


# ------------------------------------------------------------------------------- chance and copies


# Numbers that stand for the rows of logs without copies.
LEGITIMATE: dict[str, Callable[[int, np.random.Generator], Any]] = {
    "two actions": lambda n, rng: rng.integers(0, 4, n),
    "a few rows": lambda n, rng: rng.choice(12, n, p=rng.dirichlet(np.ones(12))),
    "many contexts": lambda n, rng: rng.choice(3_000, n, p=rng.dirichlet(np.full(3_000, 0.2))),
    "uneven contexts": lambda n, rng: rng.zipf(1.3, n) % 100_000,
    "times in seconds": lambda n, rng: (
        np.cumsum(rng.exponential(0.3, n)).astype(int) * 8 + rng.integers(0, 8, n)
    ),
    "slates of three": lambda n, rng: np.add.outer(
        rng.integers(0, 10**9, n // 3 + 1) * 4, [0, 1, 2]
    ).ravel(),
    "sticky rows": lambda n, rng: np.repeat(rng.integers(0, 6, n), rng.geometric(0.2, n))[:n],
    "different rows": lambda n, rng: rng.permutation(n),
    "a round number": lambda _, rng: rng.integers(0, 10, 10_000),
    "a cycle": lambda n, _: np.arange(n - n % 6) % 3,
}


@pytest.mark.parametrize("kind", LEGITIMATE)
def test_rows_that_are_equal_by_chance_are_no_copies(kind: str) -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = LEGITIMATE[kind](int(rng.integers(500, 20_000)), rng)
        assert finding(rows).trace is Repetition.NONE


@pytest.mark.parametrize("copies", [2, 3, 7, 10, 20, 30])
@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize("different", [100, 5_000])
def test_rows_that_are_all_there_k_times_are_found(order: str, copies: int, different: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.choice(different, 3_000, p=rng.dirichlet(np.ones(different)))
    found = finding(rows[ORDERS[order](len(rows), copies, rng)])
    assert found.found
    assert copies % found.times == 0
    assert found.observed > 2 * found.expected
    assert found.rows == 3_000 * copies


@pytest.mark.parametrize("order", ["side by side", "one after the other"])
@pytest.mark.parametrize("copies", [2, 10])
def test_the_order_shows_copies_of_few_different_rows(order: str, copies: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 4, 500)
    found = finding(rows[ORDERS[order](len(rows), copies, rng)])
    assert found.trace is (Repetition.RUNS if order == "side by side" else Repetition.PARTS)
    assert found.times == copies


@pytest.mark.parametrize(("rows", "share"), [(5_000, 0.1), (20_000, 0.05), (300_000, 0.05)])
def test_a_pipeline_that_delivers_some_rows_twice_is_found(rows: int, share: float) -> None:
    rng = np.random.default_rng(0)
    twice = rng.choice(rows, int(share * rows), replace=False)
    found = finding(rng.permutation(np.concatenate([np.arange(rows), twice])))
    assert (found.trace, found.times) == (Repetition.TIMES, 2)
    assert found.observed == pytest.approx(share * rows, rel=0.15)
    assert found.of == pytest.approx(rows, rel=0.05)


def test_batches_change_nothing_and_memory_is_bounded() -> None:
    rng = np.random.default_rng(0)
    few, many = rng.integers(0, 5, 3_000).repeat(4), rng.permutation(np.arange(50_000).repeat(3))
    for rows in (few, many):
        assert (
            len({finding(rows, batch) for batch in (1, 999, 10**6) if batch > len(rows) / 500}) == 1
        )
    counter = RowCounter(most_rows=1_000)
    found = finding(many, counter=counter)
    assert (found.trace, found.times, found.rows) == (Repetition.MULTIPLES, 3, 150_000)
    assert found.of == pytest.approx(50_000, rel=0.15)
    assert MOST_ROWS < 50_000
    assert histogram_finding({3: 50_000}).trace is Repetition.MULTIPLES
    assert histogram_finding({1: 50_000}) == RepeatedRows(rows=50_000)
    assert RowCounter().finding() == RepeatedRows()


def test_false_alarms_are_rarer_than_promised() -> None:
    """The bounds are conservative: no finding in 2,000 logs, of whose tests 1e-6 may fail."""
    rng = np.random.default_rng(1)
    for _ in range(2_000):
        cells = np.bincount(rng.poisson(rng.gamma(1.0, rng.choice([0.1, 1.0, 10.0]), 200)))
        assert not histogram_finding(dict(enumerate(cells.tolist())) | {0: 0}).found


# ------------------------------------------------------------------------------------- commands

COPIED = make_rows(2_000).with_columns(second=pl.Series(np.arange(2_000) // 3))
COPIED = COPIED[np.random.default_rng(0).permutation(np.repeat(np.arange(2_000), 5))]


@pytest.mark.parametrize("form", ["csv", "parquet", "ndjson", "arrow"])
def test_every_command_names_the_finding(form: str, place: Place) -> None:
    path = write(place.root / "logs" / f"log.{form}", COPIED)
    for command in COMMANDS:
        said = place.run_on(command, path, "--json")
        assert (said.code, said.error) == (0, "")
        report = json.loads(said.out)
        found = report["repeated_rows"]
        assert (found["trace"], found["times"], found["rows"]) == ("multiples", 5, 10_000)
        assert any(line.startswith("Repeated rows: ") for line in report["coverage"])
        assert {one["obstacle"] for one in report["candidates"]} == {"repeated rows"}
        assert {one["decision"] for one in report["candidates"]} == {"unknown"}
        if command != "coverage":
            assert (report["verdict"], report["obstacle"]) == ("cannot tell", "repeated rows")
            assert "--repeated-rows allow" in report["words"]
            assert report["certificate"] is None
    for command in COMMANDS:
        overwrite = ["--overwrite"] if command == "learn" else []
        allowed = ["--repeated-rows", "allow", "--no-unit"]
        said = place.run_on(command, path, "--json", *allowed, *overwrite)
        assert json.loads(said.out)["repeated_rows"] is None
        assert "Repeated rows" not in said.out
        assert json.loads(said.out)["obstacle"] is None


def test_a_log_without_copies_says_so_as_data() -> None:
    for result in (us.logs.learn(make_rows(500)), us.logs.coverage(make_rows(500))):
        assert result.report.repeated_rows == RepeatedRows(rows=500)


def test_rows_are_compared_in_all_columns() -> None:
    """Three slots of a request look alike in the columns that are read first."""
    n = 3_000
    request = np.repeat(np.arange(n // 3), 3)
    rows = pl.DataFrame(
        {
            "action": np.repeat(np.random.default_rng(0).integers(0, 2, n // 3), 3),
            "reward": 0.0,
            "propensity": 0.5,
            "request": request,
            "slot": np.tile([0, 1, 2], n // 3),
        }
    )
    assert us.logs.coverage(rows.drop("slot")).coverage.obstacle == "repeated rows"
    assert us.logs.coverage(rows).coverage.obstacle == "sticky columns"
    assert us.logs.coverage(rows, no_unit=True).coverage.obstacle is None


def test_copies_in_several_files_and_by_time_are_found(tmp_path: Path) -> None:
    rows = make_rows(1_000).with_columns(second=pl.Series(np.arange(1_000)[::-1]))
    paths = [write(tmp_path / "a.csv", rows), write(tmp_path / "b.csv", rows.reverse())]
    for time in (None, "second"):
        found = us.logs.coverage(paths, time=time).coverage
        assert (found.obstacle, found.repeated.times) == ("repeated rows", 2)  # type: ignore[union-attr]


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_engines_find_copies_too(engine: str, tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", COPIED)
    assert us.logs.coverage(path, engine=engine).coverage.obstacle == "repeated rows"
    judged = us.logs.certify(path, {"south": 1.0}, engine=engine)
    assert (judged.verdict, judged.coverage.obstacle) == ("cannot tell", "repeated rows")
    learned = us.logs.learn(path, engine=engine, horizon=10_000)
    assert learned.obstacle == "repeated rows"
    allowed = us.logs.certify(
        path, {"south": 1.0}, engine=engine, repeated_rows="allow", no_unit=True
    )
    assert allowed.verdict == "promote"  # copies of a row look sticky, too


def test_a_native_frame_is_compared_by_its_engine() -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        relation = connection.from_arrow(COPIED.to_arrow())
        found = us.logs.coverage(relation).coverage
        assert (found.obstacle, found.repeated.times) == ("repeated rows", 5)  # type: ignore[union-attr]
        relation = connection.from_arrow(make_rows(500).to_arrow())
        assert us.logs.coverage(relation).coverage.obstacle is None


def test_a_policy_remembers_copies_and_what_was_allowed(tmp_path: Path) -> None:
    later = make_rows(500, 7)
    us.logs.learn(COPIED, out=tmp_path / "checked")
    path = tmp_path / "checked" / "policy.json"
    policy = us.logs.Policy.load(path)
    assert policy.settings.repeated_rows == "check"
    assert policy.repeated is not None
    assert policy.repeated.times == 5
    assert us.logs.learn(later, resume=path).obstacle == "repeated rows"
    more = us.logs.learn(later, resume=path, repeated_rows="allow", no_unit=True)
    assert (more.obstacle, more.policy.settings.repeated_rows) == (None, "allow")
    assert us.logs.certify(later[np.repeat(range(500), 5)], more).coverage.obstacle is None
    again = us.logs.certify(later[np.repeat(range(500), 5)], more, repeated_rows="check")
    assert again.coverage.obstacle == "repeated rows"
    content = json.loads(path.read_text(encoding="utf-8"))
    for part, value in (("trace", "unknown"), ("times", None), ("rows", -1)):
        broken = json.loads(json.dumps(content))
        broken["provenance"]["repeated"][part] = value
        path.write_text(json.dumps(broken), encoding="utf-8")
        with pytest.raises(us.errors.InvalidSnapshot):
            us.logs.Policy.load(path)
    assert not {"repeated_rows", "id"} & {*content["settings"], *content["settings"]["columns"]}
    del content["provenance"]["repeated"]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert us.logs.Policy.load(path).repeated is None  # a file of 0.5


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(us.errors.InvalidArgument, match="pass one of check, allow"):
        us.logs.learn(COPIED, repeated_rows="ignore")  # type: ignore[arg-type]
