"""Any bytes are a log or are refused in one line: never another error, and no row is lost."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from tests.support.command_line import Place, place
from tests.support.logs.broken_files import PARQUET, ROWS, as_bytes
from tests.support.strategies import quick
from understudy.errors import InvalidArgument
from understudy.report import as_dict

__all__ = ["place"]

pytestmark = pytest.mark.plain

TABLE = as_bytes(ROWS, "csv")
LINES = as_bytes(ROWS, "ndjson")
EVENTS = list(enumerate(ROWS.select("reward", "propensity").rows()))
TEXT = "".join(f"{1 + i % 3}:{-r}:{q} | x:{i} new\n" for i, (r, q) in EVENTS)
GROUPS = "".join(f"shared | x:{i}\n| a\n0:{-r}:{q} | b\n| c\n\n" for i, (r, q) in EVENTS)
DECISIONS = "".join(
    json.dumps({"_label_cost": -r, "_label_probability": q, "_label_Action": 1 + i % 3, "a": [1]})
    + "\n"
    for i, (r, q) in EVENTS
)
VALID: dict[str, bytes] = {
    "log.csv": TABLE,
    "log.csv.gz": gzip.compress(TABLE, mtime=0),
    "log.parquet": PARQUET,
    "log.ndjson": LINES,
    "log.arrow": as_bytes(ROWS, "arrow"),
    "log.vw": TEXT.encode(),
    "groups.vw": GROUPS.encode(),
    "log.dsjson": DECISIONS.encode(),
}
TOKENS = [
    b",",
    b'"',
    b"\n",
    b"\r\n",
    b"\r",
    b"\0",
    b"{",
    b"]",
    b":",
    b"|",
    b"nan",
    b"1e999",
    b"\xff",
]
TOKENS += [
    b"PAR1",
    b"\xef\xbb\xbf",
    b"9" * 30,
    b"null",
    b"true",
    b"shared",
    b"\\ud800",
    b'""',
    b"-",
]


def edit(content: bytes, change: tuple[str, float, int, bytes]) -> bytes:
    """One change to a file, somewhere."""
    kind, where, length, new = change
    start = int(where * len(content))
    before, part, after = (
        content[:start],
        content[start : start + length],
        content[start + length :],
    )
    return {
        "flip": before + bytes(byte ^ (1 << length % 8) for byte in part[:1]) + part[1:] + after,
        "cut": before + after,
        "end": before,
        "insert": before + new + part + after,
        "replace": before + new[: len(part)] + part[len(new) :] + after,
        "double": before + part + part + after,
    }[kind]


kinds = st.sampled_from(["flip", "cut", "end", "insert", "replace", "double"])
news = st.one_of(st.sampled_from(TOKENS), st.binary(min_size=1, max_size=8))
places = st.one_of(st.floats(0.0, 1.0), st.floats(0.75, 1.0))  # footers are at the end
changes = st.lists(st.tuples(kinds, places, st.integers(1, 64), news), min_size=1, max_size=4)
wishes: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {}, {"time": "x"}, {"eligible": "a"}, {"actions": ["north", "1"]}, {"context": ["x"]}]
)


def rows_by_a_plain_reader(name: str, content: bytes) -> int | None:
    """How many rows there are, where another reader can say so."""
    try:
        if name.endswith(".gz"):
            content = gzip.decompress(content)
        if ".csv" in name:
            text = content.decode("utf-8-sig")
            lone = "\r" in text.replace("\r\n", "")  # of which readers think differently
            return None if lone else len(list(csv.reader(io.StringIO(text, newline="")))) - 1
        if name.endswith(".parquet"):
            return int(pq.read_table(io.BytesIO(content)).num_rows)
        if name.endswith(".arrow"):
            return int(pa.ipc.open_file(io.BytesIO(content)).read_all().num_rows)
        if name.endswith("json"):
            return sum(bool(line.strip()) for line in content.decode().split("\n"))
    except (OSError, EOFError, ValueError, csv.Error, pa.ArrowException):
        pass
    return None


def check(name: str, content: bytes, wish: dict[str, Any]) -> None:
    """A file is learned from with nothing lost, or refused; and nothing else is left of it."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "logs", name), Path(folder, "results", "out")
        temporary = Path(folder, "temporary")
        path.parent.mkdir()
        temporary.mkdir()
        path.write_bytes(content)
        with mock.patch.object(tempfile, "tempdir", str(temporary)):
            read = attempt(lambda: us.logs.learn(path, out=out, **wish))
            if "context" not in wish:
                attempt(lambda: us.logs.coverage(path, **wish))
        left = {found.name for found in Path(folder).rglob("*")}
        results = {"policy.json", "report.html", "quarantine.parquet", "results", "out"}
        assert left == {"logs", "temporary", name} | (results if read else set())
        if read:
            aside = len(pl.read_parquet(out / "quarantine.parquet"))
            rows = read.policy.rows + read.policy.warmup + aside
            assert rows == sum(file.rows for file in read.policy.files)
            assert rows_by_a_plain_reader(name, content) in {rows, None}


def attempt(run: Callable[[], Any]) -> Any:
    """What it gives, if it can be shown; None if it is refused."""
    line = ""
    try:
        found = run()
    except InvalidArgument as error:
        line = str(error)
    if line:
        assert "\n" not in line
        assert len(line) < 2_000
        return None
    json.dumps(as_dict(found.report), allow_nan=False)
    found.page()
    return found


@pytest.mark.parametrize(
    "examples", [8, pytest.param(40, marks=pytest.mark.full)], ids=["some", "all"]
)
@pytest.mark.parametrize("name", VALID)
def test_changed_files_are_read_or_refused(name: str, examples: int) -> None:
    check(name, VALID[name], {})

    @settings(quick, max_examples=examples)
    @given(changes, wishes)
    def changed(many: list[tuple[str, float, int, bytes]], wish: dict[str, Any]) -> None:
        content = VALID[name]
        for change in many:
            content = edit(content, change)
        check(name, content, wish)

    changed()


@settings(quick, max_examples=60)
@given(st.sampled_from(list(VALID)), st.binary(max_size=80))
def test_any_bytes_are_refused_or_read(name: str, content: bytes) -> None:
    check(name, content, {})


def test_a_damaged_parquet_file_loses_no_row(place: Place) -> None:
    """Wherever a byte is wrong: all rows are there, or none is used."""
    for at in (106, 108, *range(4, len(PARQUET), 13)):
        content = PARQUET[:at] + bytes([PARQUET[at] ^ 255]) + PARQUET[at + 1 :]
        said = place.run_on("coverage", place.write("log.parquet", content), "--json")
        if said.code == 0:
            assert not said.error
            assert json.loads(said.out)["files"][0]["rows"] == len(ROWS)
        else:
            assert (said.code, said.error.count("\n")) == (2, 1), said.error
            assert said.error.startswith("understudy: ")


def test_a_reader_that_ends_too_early_is_noticed(place: Place) -> None:
    def one_batch(frame: pl.LazyFrame, **_: Any) -> Any:
        return iter([frame.collect().head(30)])

    path = place.write("log.parquet", PARQUET)
    place.monkeypatch.setattr(pl.LazyFrame, "collect_batches", one_batch)
    assert "a page is damaged" in place.refused("learn", path)
