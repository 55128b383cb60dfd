"""Broken files give one line that names them, exit code 2, and leave nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support.command_line import COMMANDS, Place, place
from tests.support.logs.broken_files import BROKEN, HEADER, TEXT, WRONG_TYPES, as_bytes
from tests.support.logs.log_files import make_rows

__all__ = ["place"]

pytestmark = pytest.mark.plain

ROWS = make_rows(40)


@pytest.mark.parametrize(("name", "content", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_by_every_command(
    name: str, content: str | bytes, words: str, place: Place
) -> None:
    path = place.write(name, content)
    for command in COMMANDS:
        line = place.refused(command, path)
        assert name in line
        assert words in line


FOR_ENGINES = ["header only", "percentages", "one action", "Latin-1", "semicolons"]
FOR_ENGINES += ["a broken object", "Parquet, half", "Arrow with wrong offsets"]


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("case", FOR_ENGINES)
def test_engines_refuse_the_same(case: str, engine: str, place: Place) -> None:
    name, content, _ = BROKEN[case]
    assert name in place.refused("coverage", place.write(name, content), "--engine", engine)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize(("column", "values"), WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_a_column_of_a_wrong_type_is_named(
    column: str, values: list[Any], form: str, place: Place
) -> None:
    path = place.write(f"log.{form}", as_bytes(ROWS.with_columns(pl.Series(column, values)), form))
    for command in COMMANDS:
        line = place.refused(command, path)
        assert f"its column for the {column} holds" in line
        assert f"log.{form}" in line


@pytest.mark.parametrize("part", range(1, 20))
def test_a_parquet_file_is_whole_or_refused(part: int, place: Place) -> None:
    whole = as_bytes(ROWS, "parquet")
    path = place.write("log.parquet", whole[: len(whole) * part // 20])
    assert "log.parquet" in place.refused("learn", path)


SUBPROCESSES = ["Latin-1", "Parquet with a wrong page"]


@pytest.mark.parametrize("case", SUBPROCESSES)
def test_a_real_process_says_the_same(case: str, place: Place) -> None:
    name, content, words = BROKEN[case]
    path = place.write(name, content)
    before = place.files()
    done = subprocess.run(
        [sys.executable, "-m", "understudy", "learn", path, "--out", place.out],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "TMPDIR": str(place.root / "temporary"), "RUST_BACKTRACE": "1"},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("understudy: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert place.files() == before


SOME_BAD: dict[str, tuple[str, str | bytes, dict[str, int]]] = {
    "too few fields": ("log.csv", TEXT + "north,1\nnorth\n", {"missing": 2}),
    "blank lines": ("log.csv", TEXT + "\n\n", {"action is missing": 2}),
    "an empty label": ("log.csv", TEXT + '"",1,0.5\n', {"action is missing": 1}),
    "words for numbers": ("log.csv", TEXT + "north,high,0.5\n", {"reward is not a number": 1}),
    "infinities": (
        "log.csv",
        TEXT + "north,1e999,0.5\nnorth,-inf,0.5\nnorth,NaN,0.5\nnorth,1,Infinity\n",
        {"reward is not finite": 3, "propensity is not finite": 1},
    ),
    "numbers of 10⁶ digits": (
        "log.csv",
        f"{TEXT}north,{'9' * 10**6},0.5\nnorth,1,0.{'0' * 10**6}1\n",
        {"reward is not finite": 1, "propensity is out of range": 1},
    ),
    "a text of 10⁶ characters": (
        "log.csv",
        f"{TEXT}north,{'x' * 10**6},0.5\n",
        {"reward is not a number": 1},
    ),
    "whole numbers beyond 2⁶⁴": (
        "log.csv",
        TEXT + f"north,{2**70},0.5\n",
        {"reward is out of range": 1},
    ),
    "a key that is missing": (
        "log.ndjson",
        as_bytes(ROWS, "ndjson") + b'{"action": "north", "reward": 1}\n',
        {"propensity is missing": 1},
    ),
    "values of other types": (
        "log.ndjson",
        as_bytes(ROWS, "ndjson")
        + b'{"action": "north", "reward": [1], "propensity": 0.5}\n'
        + b'{"action": "north", "reward": {"x": 1}, "propensity": 0.5}\n',
        {"reward is not a number": 2},
    ),
    "labels that are not numbers": (
        "log.parquet",
        as_bytes(
            ROWS.with_columns(action=pl.Series([1.0, 2.0, float("nan"), float("inf")] * 10)),
            "parquet",
        ),
        {"action is missing": 20},
    ),
    "columns that are empty": (
        "log.parquet",
        as_bytes(
            pl.concat([ROWS, ROWS[:5].with_columns(reward=pl.lit(None, pl.Float64))]), "parquet"
        ),
        {"reward is missing": 5},
    ),
    "an action without a good row": (
        "log.csv",
        TEXT + "up,7,0.5\n",
        {"reward is out of range": 1},
    ),
    "lines of vw that say nothing": (
        "log.vw",
        "1:-1:0.5 | a\n2:0:0.5 | a\n| a\nx:y:z | a\n",
        {"action is missing": 1, "reward is not a number": 1},
    ),
    "lines of dsjson that are no JSON": (
        "log.dsjson",
        "".join(
            json.dumps({"_label_cost": -1, "_label_probability": 0.5, "_label_Action": a}) + "\n"
            for a in (1, 2)
        )
        + "{\n[]\n",
        {"action is missing": 2},
    ),
}


@pytest.mark.parametrize(("name", "content", "reasons"), SOME_BAD.values(), ids=SOME_BAD)
def test_where_some_rows_are_bad_each_of_them_is_kept(
    name: str, content: str | bytes, reasons: dict[str, int], place: Place
) -> None:
    path = place.write(name, content)
    ranged = ["--reward-range", "-1", "1"] if name.endswith(("vw", "dsjson")) else []
    said = place.run_on("learn", path, *ranged)
    assert (said.code, said.error) == (0, "")
    policy = json.loads((place.out / "policy.json").read_text(encoding="utf-8"))
    quarantine = pl.read_parquet(place.out / "quarantine.parquet")
    (file,) = policy["provenance"]["files"]
    assert policy["provenance"]["quarantined"] == dict(quarantine["reason"].value_counts().rows())
    assert file["rows"] == policy["rows"] + len(quarantine)
    assert file["quarantined"] == len(quarantine) == sum(reasons.values())
    for reason, count in reasons.items():
        assert quarantine["reason"].str.contains(reason).sum() == count
    for command in ("coverage", "certify"):
        said = place.run_on(command, path, *ranged, "--json")
        assert (said.code, said.error) == (0, "")
        counted = json.loads(said.out)["quarantined"]
        assert sum(row["count"] for row in counted) == len(quarantine)
    strict = place.run_on("certify", path, *ranged, "--strict")
    assert (strict.code, strict.error.count("\n")) == (2, 1)


ODD_LABELS = [
    "🍎",
    "line\nbreak",
    "\x07bell",
    "\x1b[31mred",
    "<script>alert(1)</script>",
    "[b]",
    "\u202eabc",
    "x" * 10**6,
]


def test_labels_may_be_anything_and_do_no_harm(place: Place) -> None:
    rows = pl.concat([ROWS.with_columns(action=pl.lit(label)) for label in ODD_LABELS])
    path = place.write("log.csv", as_bytes(rows, "csv"))
    for command in COMMANDS:
        said = place.run_on(command, path)
        assert (said.code, said.error) == (0, "")
        assert not {"\x1b", "\x07", "\u202e"} & set(said.out)
        assert len(said.out) < 20_000
    policy = json.loads((place.out / "policy.json").read_text(encoding="utf-8"))
    assert policy["actions"] == sorted(ODD_LABELS)
    page = (place.out / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert not {"\x1b", "\x07", "\u202e"} & set(page)
    assert len(page) < 10**6


def test_files_that_are_none(place: Place) -> None:
    logs = place.root / "logs"
    (logs / "folder.csv").mkdir()
    (logs / "dangling.csv").symlink_to(logs / "nowhere.csv")
    (logs / "loop.csv").symlink_to(logs / "loop.csv")
    os.mkfifo(logs / "pipe.csv")
    latin = os.fsdecode(os.fsencode(logs) + b"/caf\xe9.csv")
    Path(latin).write_text(TEXT, encoding="utf-8")
    cases = {
        logs / "folder.csv": "this folder holds no log",
        logs / "dangling.csv": "there is no such file",
        logs / "loop.csv": "there is no such file",
        logs / "pipe.csv": "no regular file",
        logs / "nothing*.csv": "no file matches",
        logs / "log.txt": "there is no such file",
        Path("/dev/zero"): "its name does not say",
        Path("x" * 5_000 + ".csv"): "File name too long",
        Path(latin): "its name is not UTF-8",
    }
    for path, words in cases.items():
        assert words in place.refused("coverage", path)
    Path(latin).unlink()
    assert "dangling.csv" in place.refused("coverage", logs)
    assert "no file is named" in place.refused("coverage", "")
    for device in ("/dev/zero", "/dev/null"):
        assert "no regular file" in place.refused("coverage", device, "--format", "csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(place: Place) -> None:
    path = place.write("log.csv", TEXT)
    path.chmod(0)
    try:
        with pytest.raises(PermissionError):
            path.read_bytes()
        said = place.run_on("learn", path)
    finally:
        path.chmod(0o600)
    assert said.code == 2
    assert "Permission denied" in said.error


def test_columns_that_folders_say(place: Place) -> None:
    for action, rows in {"a": 9, "b": 8}.items():
        place.write(f"action={action}/0.csv", "reward,propensity\n" + "1,0.5\n" * rows)
        place.write(f"action={action}/_temporary/1.csv", "nothing")
    said = place.run_on("learn", place.root / "logs")
    assert (said.code, said.error) == (0, "")
    policy = json.loads((place.out / "policy.json").read_text(encoding="utf-8"))
    assert (policy["actions"], policy["rows"]) == (["a", "b"], 17)


def test_what_a_user_may_write_is_read(place: Place) -> None:
    written = {
        "spaces after commas": HEADER + "a, 1, 0.5\nb, 0, 0.5\n",
        "quoted numbers": HEADER + '"a","1","0.5"\n"b","0","0.5"\n',
        "lines of Windows": (HEADER + "a,1,0.5\nb,0,0.5\n").replace("\n", "\r\n"),
        "a byte order mark": "\ufeff" + HEADER + "a,1,0.5\nb,0,0.5\n",
        "truths": HEADER + "a,true,0.5\nb,False,0.5\n",
        "an index": ",action,reward,propensity\n0,a,1,0.5\n1,b,0,0.5\n",
    }
    counts = set()
    for content in written.values():
        path = place.write("log.csv", content)
        for engine in ((), ("--engine", "polars")):
            said = place.run_on("coverage", path, "--json", *engine)
            assert (said.code, said.error) == (0, "")
            rows = json.loads(said.out)["actions"]
            counts.add(tuple((row["label"], row["count"], row["mean_reward"]) for row in rows))
    assert len(counts) == 1


def test_labels_that_are_numbers_may_be_long(place: Place) -> None:
    labels = ["7", "10", str(2**64), "9" * 5_000]
    rows = "".join(f"{label},1,0.25\n" for label in labels) * 5
    said = place.run_on("learn", place.write("log.csv", HEADER + rows))
    assert (said.code, said.error) == (0, "")
    policy = json.loads((place.out / "policy.json").read_text(encoding="utf-8"))
    assert sorted(policy["actions"]) == sorted(labels)


def test_eligible_sets_of_text_are_lists_of_labels(place: Place) -> None:
    lists = ['["New York", "Rome"]', "New York, Rome", "New York|Rome", "['New York', 'Rome']"]
    rows = pl.DataFrame(
        {
            "action": ["New York", "Rome", "Oslo", "New"] * len(lists),
            "reward": 1.0,
            "propensity": 0.5,
            "could": [one for one in lists for _ in range(4)],
        }
    )
    path = place.write("log.parquet", as_bytes(rows, "parquet"))
    said = place.run_on("coverage", path, "--eligible", "could", "--json")
    assert (said.code, said.error) == (0, "")
    found = json.loads(said.out)
    assert {row["label"]: row["count"] for row in found["actions"]} == {"New York": 4, "Rome": 4}
    assert [(row["reason"], row["count"]) for row in found["quarantined"]] == [
        ("action is not eligible", 8)
    ]


@pytest.mark.parametrize("values", [[[["a"]]], [{"x": 1}], [b"a"]], ids=["deep", "struct", "bytes"])
def test_eligible_sets_of_a_wrong_type_are_named(values: list[Any], place: Place) -> None:
    rows = ROWS.with_columns(pl.Series("could", values * len(ROWS)))
    path = place.write("log.parquet", as_bytes(rows, "parquet"))
    line = place.refused("learn", path, "--eligible", "could")
    assert "its column for the eligible actions holds" in line


def test_times_that_are_none(place: Place) -> None:
    path = place.write("log.parquet", as_bytes(ROWS.with_columns(at=pl.lit("soon")), "parquet"))
    assert "ISO 8601" in place.refused("learn", path, "--time", "at")
