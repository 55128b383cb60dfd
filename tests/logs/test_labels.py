"""Whole numbers are one action in all spellings, formats and engines: `understudy.logs.schema`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import understudy as us
from understudy.logs.schema import Actions, label_key

pytestmark = pytest.mark.plain

N = 60
ROWS = pl.DataFrame(
    {
        "action": [1, 2, 10] * (N // 3),
        "reward": [0.0, 1.0, 0.5] * (N // 3),
        "propensity": [0.25, 0.25, 0.5] * (N // 3),
    }
)
INTEGERS = ROWS["action"]
FLOATS = INTEGERS.cast(pl.Float64)
PADDED = INTEGERS.cast(pl.String) + ".00"
SPELLINGS: dict[str, tuple[str, pl.Series]] = {
    "Parquet, integers": ("log.parquet", INTEGERS),
    "Parquet, floats": ("log.parquet", FLOATS),
    "Parquet, text": ("log.parquet", INTEGERS.cast(pl.String)),
    "Parquet, text with a fraction": ("log.parquet", PADDED),
    "Parquet, decimals": (
        "log.parquet",
        pl.Series([Decimal(f"{value}.0") for value in INTEGERS], dtype=pl.Decimal(10, 1)),
    ),
    "Parquet, categories": ("log.parquet", PADDED.cast(pl.Categorical)),
    "Arrow, floats": ("log.arrow", FLOATS),
    "CSV, integers": ("log.csv", INTEGERS),
    "CSV, floats": ("log.csv", FLOATS),
    "CSV, a fraction": ("log.csv", PADDED),
    "gzip, floats": ("log.csv.gz", FLOATS),
    "NDJSON, integers": ("log.ndjson", INTEGERS),
    "NDJSON, floats": ("log.ndjson", FLOATS),
    "NDJSON, text": ("log.ndjson", PADDED),
}


def write(folder: Path, name: str, labels: pl.Series, rows: pl.DataFrame = ROWS) -> Path:
    frame, path = rows.with_columns(labels.alias("action")), folder / name
    writers: dict[str, Any] = {
        ".parquet": frame.write_parquet,
        ".arrow": frame.write_ipc,
        ".csv": frame.write_csv,
        ".gz": lambda at: frame.write_csv(at, compression="gzip"),
        ".ndjson": frame.write_ndjson,
    }
    writers[path.suffix](path)
    return path


@pytest.fixture(params=list(SPELLINGS))
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path, *SPELLINGS[request.param])


EXPECTED = us.logs.coverage(ROWS).table


def test_the_actions_of_a_log_are_the_same_in_all_formats(log: Path) -> None:
    assert us.logs.coverage(log).table.equals(EXPECTED)
    learned = us.logs.learn(log)
    assert list(learned.policy.probabilities()) == [1, 2, 10]
    assert not learned.policy.refused


ON_ENGINES = [
    *((engine, name) for engine in ("polars", "duckdb") for name in SPELLINGS),
    ("dask", "CSV, floats"),
    pytest.param("dask", "NDJSON, floats", marks=pytest.mark.full),
    pytest.param("dask", "Parquet, floats", marks=pytest.mark.full),
    pytest.param("pyspark", "CSV, floats", marks=pytest.mark.needs("java", "pyspark")),
]


@pytest.mark.parametrize(("engine", "name"), ON_ENGINES)
def test_the_actions_of_a_log_are_the_same_on_all_engines(
    engine: str, name: str, tmp_path: Path
) -> None:
    log = write(tmp_path, *SPELLINGS[name])
    covered = us.logs.coverage(log, engine=engine)
    assert covered.table["action"].to_list() == [1, 2, 10]
    assert covered.table["count"].to_list() == [N // 3] * 3
    learned = us.logs.learn(log, engine=engine, horizon=N, learner="exp3-ix")
    assert list(learned.policy.probabilities()) == [1, 2, 10]


def test_a_policy_of_one_format_is_certified_on_the_others(log: Path, tmp_path: Path) -> None:
    others = ROWS.with_columns(reward=1.0 - ROWS["reward"])
    learned = us.logs.learn(log)
    for name, (file, labels) in SPELLINGS.items():
        folder = tmp_path / name
        folder.mkdir()
        judged = us.logs.certify(write(folder, f"later.{file}", labels, others), learned)
        assert judged.strange is None
        assert list(judged.policy or ()) == [1, 2, 10]
        assert not judged.coverage.unseen


def test_a_policy_is_not_judged_by_its_rows_in_another_spelling(log: Path) -> None:
    learned = us.logs.learn(ROWS)
    with pytest.raises(us.errors.InvalidLog, match="learned from these rows"):
        us.logs.certify(log, learned)


FILES: dict[str, str] = {
    "lines": "1\n2.0\n10.00\n",
    "a list of numbers": "[1, 2, 10]",
    "a list of texts": '["1.0", "2", "10."]',
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_declared_actions_may_have_any_spelling(text: str, log: Path, tmp_path: Path) -> None:
    path = tmp_path / "actions"
    path.write_text(text)
    assert us.logs.coverage(log, actions=path).table.equals(EXPECTED)
    assert us.logs.coverage(log, actions=["1.0", 2, "10"]).table.equals(EXPECTED)


@pytest.mark.parametrize(
    "behavior", [{1: 0.25, 2: 0.25, 10: 0.5}, {"1.0": 0.25, "2": 0.25, "10.00": 0.5}]
)
def test_probabilities_may_have_any_spelling(behavior: Mapping[Any, float], log: Path) -> None:
    rows = us.logs.coverage(log, behavior=behavior)
    assert rows.table["count"].to_list() == [N // 3] * 3
    judged = us.logs.certify(log, {"2.0": 1.0}, behavior=behavior)
    assert judged.policy == {1: 0.0, 2: 1.0, 10: 0.0}


def test_eligible_actions_may_have_any_spelling(tmp_path: Path) -> None:
    for eligible in ("1|2.0|10", '["1.0", "2", "10.0"]', "1.00 2 10"):
        rows = ROWS.with_columns(
            pl.lit(eligible).alias("eligible"), (INTEGERS.cast(pl.String) + ".0").alias("action")
        )
        path = tmp_path / "eligible.csv"
        rows.write_csv(path)
        assert not us.logs.coverage(path, eligible="eligible").coverage.refused
    lists = ROWS.with_columns(pl.Series("eligible", [[1.0, 2.0, 10.0]] * N))
    assert not us.logs.coverage(lists, eligible="eligible").coverage.refused


def test_a_log_may_mix_spellings(tmp_path: Path) -> None:
    mixed = pl.Series([f"{label}{'.0' * (i % 2)}" for i, label in enumerate(INTEGERS)])
    assert us.logs.coverage(write(tmp_path, "log.csv", mixed)).table.equals(EXPECTED)


def test_other_texts_stay_different_labels() -> None:
    texts = ["1", "01", "1e0", " 1", "1.5", "1.50", "v1.0", "1.0.0", "+1.0", "-1.0", "-1", "1,0"]
    assert [label_key(text) for text in texts] == [*texts[:9], "-1", "-1", "1,0"]
    rows = pl.DataFrame({"action": ["1", "01", "1e0"] * 20, "reward": 1, "propensity": 0.5})
    assert us.logs.coverage(rows).table["action"].to_list() == ["01", "1", "1e0"]


def test_a_file_that_names_an_action_in_two_spellings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "actions"
    path.write_text("1\n1.0\n2\n")
    with pytest.raises(us.errors.InvalidArgument, match="twice"):
        us.logs.coverage(ROWS, actions=path)
    path.write_text('{"1": 0.5, "1.0": 0.25, "2": 0.25}')
    with pytest.raises(us.errors.InvalidArgument, match="twice"):
        us.logs.coverage(ROWS, behavior=path)


def spelled(path: Path, labels: list[str]) -> Path:
    """A policy.json as 0.5.0 wrote it, with these texts as labels."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content["actions"] = labels
    for row, label in zip(content["policy"], labels, strict=True):
        row["action"] = label
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_policy_with_other_spellings_goes_on(tmp_path: Path) -> None:
    us.logs.learn(ROWS, out=tmp_path / "out", actions=[1, 2, 10])
    path = spelled(tmp_path / "out" / "policy.json", ["1.0", "2.0", "10.0"])
    later = ROWS.with_columns(reward=1.0 - ROWS["reward"])
    for labels in (["1.0", "2.0", "10.0"], [1, 2, 10]):
        more = us.logs.learn(later, resume=path, actions=labels)
        assert more.policy.rows == 2 * N
        assert not more.policy.refused
    assert list(more.policy.probabilities()) == ["1.0", "2.0", "10.0"]
    assert list(us.logs.certify(later, path).policy or ()) == [1, 2, 10]


def test_a_policy_with_two_spellings_of_an_action_still_loads(tmp_path: Path) -> None:
    us.logs.learn(ROWS, out=tmp_path / "out", actions=[1, 2, 10])
    path = spelled(tmp_path / "out" / "policy.json", ["1", "1.0", "10"])
    policy = us.logs.Policy.load(path)
    assert list(policy.probabilities()) == ["1", "1.0", "10"]
    later = ROWS.with_columns(reward=1.0 - ROWS["reward"])
    both = us.logs.certify(later, policy).policy
    assert both is not None
    assert both[1] == pytest.approx(sum(policy.average[:2]))


def test_a_list_with_two_spellings_keeps_both() -> None:
    actions = Actions(("1", "1.0", "2.0"))
    assert actions.keys == ("1", "1.0", "2")
    assert [actions.index(label) for label in (1, "1.0", "1.00", 2, "2.0", 3)] == [
        0,
        1,
        0,
        2,
        2,
        -1,
    ]
    assert actions.indices(pl.Series(["1", "1.0", "1.00", "2", None])).tolist() == [0, 1, 0, 2, -1]
