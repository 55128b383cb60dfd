"""Rows with the id of an earlier row do not count: `understudy.logs.validate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.command_line import COMMANDS, Place, place
from tests.support.logs.log_files import make_rows, write
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.validate import SeenIds

__all__ = ["place"]

pytestmark = pytest.mark.plain

N = 1_000
ROWS = make_rows(N).with_columns(
    request=pl.Series([f"r{i}" for i in range(N)]), second=pl.Series(range(N))
)
COPIES = 70_000  # more rows than a batch has
ORDER = np.concatenate([np.arange(N), np.random.default_rng(0).integers(0, N, COPIES)])
COPIED = ROWS[ORDER]


def same(one: us.logs.LearnResult, other: us.logs.LearnResult) -> bool:
    a, b = (json.loads(result.policy.to_json()) for result in (one, other))
    parts = ("policy", "state", "certificate", "curve", "tally", "stretches")
    return all(a[part] == b[part] for part in parts)


@pytest.mark.parametrize("form", ["csv", "parquet", "ndjson", "arrow"])
def test_copies_change_no_bit(form: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"log.{form}", COPIED)
    once = us.logs.learn(write(tmp_path / f"once.{form}", ROWS), id="request")
    learned = us.logs.learn(path, id="request", out=tmp_path / "out")
    assert same(learned, once)
    assert (learned.verdict, learned.obstacle) == (once.verdict, None)
    assert learned.policy.refused == {"id came before": COPIES}
    quarantine = pl.read_parquet(tmp_path / "out" / "quarantine.parquet")
    assert quarantine["row"].to_list() == list(range(N + 1, N + COPIES + 1))
    assert quarantine["reason"].unique().to_list() == ["id came before"]
    (file,) = learned.policy.files
    assert (file.rows, file.quarantined) == (N + COPIES, COPIES)
    for result in (learned, us.logs.certify(path, "uniform", id="request")):
        assert any("70,000 rows have the id of an earlier row" in line for line in result.warnings)
    covered, plain = us.logs.coverage(path, id="request").coverage, us.logs.coverage(ROWS).coverage
    assert covered.table.equals(plain.table)
    assert covered.calibration.finding == plain.calibration.finding
    assert covered.obstacle is None


def test_ids_are_compared_in_the_order_of_time(tmp_path: Path) -> None:
    late = ROWS.with_columns(reward=1.0 - ROWS["reward"], second=ROWS["second"] + N)
    path = write(tmp_path / "log.parquet", pl.concat([late, ROWS]))
    learned = us.logs.learn(path, id="request", time="second")
    assert same(learned, us.logs.learn(ROWS, time="second"))


def test_ids_have_one_spelling_in_all_files(tmp_path: Path) -> None:
    numbered = ROWS.with_columns(request=pl.Series(range(N)))
    floats = numbered.with_columns(request=numbered["request"].cast(pl.Float64))
    paths = [write(tmp_path / "a.parquet", numbered), write(tmp_path / "b.parquet", floats)]
    assert us.logs.coverage(paths, id="request").coverage.refused == {"id came before": N}


def test_a_row_without_an_id_is_quarantined_and_counts() -> None:
    rows = ROWS.with_columns(request=pl.when(ROWS["second"] >= 10).then(pl.col("request")))
    learned = us.logs.learn(rows, id="request")
    assert learned.policy.refused == {"id is missing": 10}
    assert learned.certified is not None
    assert learned.certified.certificate.rounds == N


def test_a_copy_of_a_row_that_cannot_be_used_is_a_copy() -> None:
    rows = pl.concat([ROWS[:5].with_columns(reward=7.0), ROWS])
    found = us.logs.coverage(rows, id="request").coverage.refused
    assert found == {"reward is out of range": 5, "id came before": 5}


def test_every_command_has_the_option(place: Place) -> None:
    path = write(place.root / "logs" / "log.csv", COPIED)
    for command in COMMANDS:
        assert "pass --id 'request'" in place.refused(command, path, "--id", "Request")
        if command != "coverage":
            line = place.refused(command, path, "--id", "request", "--strict")
            assert "row 1001: id came before" in line
        said = place.run_on(command, path, "--id", "request", "--json")
        assert (said.code, said.error) == (0, "")
        report = json.loads(said.out)
        (counted,) = report["quarantined"]
        assert (counted["reason"], counted["count"]) == ("id came before", COPIES)
        assert report["repeated_rows"] is None


def test_going_on_keeps_the_column_of_ids(tmp_path: Path) -> None:
    us.logs.learn(ROWS, id="request", out=tmp_path / "out")
    path = tmp_path / "out" / "policy.json"
    assert us.logs.Policy.load(path).settings.columns.id == "request"
    later = make_rows(100, 7).with_columns(request=pl.Series(range(100)))
    more = us.logs.learn(pl.concat([later, later]), resume=path)
    assert (more.policy.rows, more.policy.refused) == (N + 100, {"id came before": 100})


def test_dsjson_has_ids_and_text_has_none(tmp_path: Path) -> None:
    label = {"_label_cost": -1, "_label_probability": 0.5}
    events = [{**label, "_label_Action": 1 + i % 2, "EventId": i} for i in [*range(50), *range(20)]]
    path = tmp_path / "log.dsjson"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert us.logs.coverage(path, id="EventId").coverage.refused == {"id came before": 20}
    (tmp_path / "log.vw").write_text("1:0:0.5 | a\n")
    with pytest.raises(InvalidLog, match="no ids"):
        us.logs.coverage(tmp_path / "log.vw", id="EventId")


def test_sums_in_no_order_have_no_earlier_row(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", COPIED)
    with pytest.raises(InvalidArgument, match="sums in no order do not read it"):
        us.logs.coverage(path, id="request", engine="duckdb")


def test_ids_are_those_of_a_set() -> None:
    rng, seen, known = np.random.default_rng(0), SeenIds(), set[Any]()
    for size in (1, 50, 3, 400, 1, 0, 90):
        ids = rng.integers(0, 300, size)
        frame = pl.DataFrame({"row": range(size), "id": ids}).with_columns(action=1, reward=1)
        new = [i for i, one in enumerate(ids) if one not in known and one not in ids[:i]]
        known |= set(ids.tolist())
        assert seen.split("log", frame)[0]["row"].to_list() == new
