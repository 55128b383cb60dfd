"""The order of time: that of Python's own stable sort, found without memory for all rows."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.logs.log_files import make_rows
from tests.support.logs.text_logs import Columns
from tests.support.refusals import assert_refused
from tests.support.strategies import quick
from understudy.logs import coverage
from understudy.logs.readers import sorting
from understudy.logs.readers.inputs import FrameSource, LogReader
from understudy.logs.readers.sorting import (
    dates,
    in_order,
    numbers,
    time_parser,
    whole_numbers,
    write_sorted,
)

pytestmark = pytest.mark.plain

Batch = tuple[str, pl.DataFrame]
UTC = dt.UTC
NANOSECONDS = 10**9
PHASES = ("sorting", "looking", "counting", "certifying")


def parsed(values: list[Any], dtype: Any = None) -> list[Any]:
    """The times of a column, read as its first one is."""
    column = pl.Series("time", values, dtype)
    parse = time_parser(column)
    assert parse is not None
    return parse(column).to_list()


def since_1970(moment: dt.datetime) -> int:
    whole = moment.replace(microsecond=0)
    return int(whole.timestamp()) * NANOSECONDS + moment.microsecond * 1000


moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))
offsets = st.integers(-14 * 60, 14 * 60)


@quick
@given(st.lists(st.tuples(moments, offsets), min_size=1, max_size=5))
def test_iso_text_is_read_as_python_reads_it(written: list[tuple[dt.datetime, int]]) -> None:
    zoned = [
        moment.replace(tzinfo=dt.timezone(dt.timedelta(minutes=offset)))
        for moment, offset in written
    ]
    exact = [since_1970(moment) for moment in zoned]
    assert parsed([moment.isoformat() for moment in zoned]) == exact
    assert parsed([str(moment) for moment in zoned]) == exact
    naive = [moment for moment, _ in written]
    assert parsed([moment.isoformat() for moment in naive]) == [
        since_1970(moment.replace(tzinfo=UTC)) for moment in naive
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86400),
        ("1970-01-01 00:01", 60),
        ("1970-01-01T00:00:01Z", 1),
        ("1970-01-01T00:00:01.25 UTC", 1.25),
        ("1970-01-01T00:00:01,5Z", 1.5),
        ("1970-01-01T01:00:00+01", 0),
        ("1970-01-01T01:00:00-0130", 9000),
        (" 1970-01-01T00:00:00.0000001Z ", 1e-7),
        ("1970-01-01T00:00:00.1234567891Z", 0.123456789),
    ],
)
def test_other_spellings_of_iso_8601(text: str, seconds: float) -> None:
    assert parsed([text]) == [round(seconds * NANOSECONDS)]


NO_TIMES = ["soon", "", "2024-13-01", "2024-02-30", "2024-01-01T25:00", "1066-10-14", "9999-12-31"]
NO_TIMES += [
    "24-01-01",
    "2024-01-01T10",
    "2024-01-01 10:00 Berlin",
    "7",
    "nan",
    "2024-01-01T10:00:61",
]


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_date_is_null_among_dates(text: str) -> None:
    assert parsed(["2024-01-01", text])[1] is None


@pytest.mark.parametrize("text", ["soon", "", "nan", "inf", "2024-01-01", "1,5", "0x10"])
def test_what_is_no_number_is_null_among_numbers(text: str) -> None:
    assert parsed(["7", text, "-1.5e3"]) == [7.0, None, -1500.0]


def test_dates_of_every_type_are_the_same() -> None:
    moment = dt.datetime(2024, 5, 1, 10, 30, 0, 250_000, tzinfo=UTC)
    exact = since_1970(moment)
    for unit in ("ms", "us", "ns"):
        assert parsed([moment.replace(tzinfo=None)], pl.Datetime(unit)) == [exact]
        assert parsed([moment], pl.Datetime(unit, "Europe/Zurich")) == [exact]
    assert parsed([moment.astimezone(ZoneInfo("Asia/Tokyo")).isoformat()]) == [exact]
    assert parsed([moment.date()]) == [since_1970(dt.datetime(2024, 5, 1, tzinfo=UTC))]
    assert parsed([moment.isoformat()], pl.Categorical) == [exact]
    assert parsed([dt.date(2024, 5, 1), dt.date(9999, 12, 31), None])[1:] == [None, None]


def test_numbers_of_every_type_are_the_same() -> None:
    for dtype in (pl.Int8, pl.UInt64, pl.Float32, pl.Decimal(10, 2), pl.String):
        column = pl.Series([1, None, 3]).cast(dtype)
        assert parsed(column.to_list(), dtype) == [1.0, None, 3.0]
    assert parsed([math.nan, 2.0, math.inf]) == [None, 2.0, None]


def test_whole_numbers_that_floats_cannot_hold_stay_exact() -> None:
    large = 1_714_550_400_000_000_001  # nanoseconds
    assert parsed([large, large + 1, None]) == [large, large + 1, None]
    assert parsed([str(large), str(large + 1), "1.5", "x"]) == [large, large + 1, None, None]
    assert whole_numbers(pl.Series([2.0**53, 0.5])).to_list() == [2**53, None]
    assert parsed([2**64 - 1, 5], pl.UInt64) == [None, 5]


def test_what_holds_no_times_has_no_kind() -> None:
    for column in (
        pl.Series(["soon", None]),
        pl.Series([None, None]),
        pl.Series([True]),
        pl.Series([[1]]),
        pl.Series([dt.time(1)]),
        pl.Series([b"7"]),
        pl.Series([], dtype=pl.String),
    ):
        assert time_parser(column) is None
        for parse in (numbers, whole_numbers, dates):
            assert parse(column).null_count() == len(column)


@quick
@given(st.lists(st.none() | st.integers(0, 3), max_size=9), st.lists(st.integers(1, 3), max_size=9))
def test_the_order_is_seen_across_batches(drawn: list[int | None], sizes: list[int]) -> None:
    """Of times as they were drawn, and of the same in order."""
    ordered: list[int | None] = [*sorted(time for time in drawn if time is not None)]
    for times in (drawn, ordered):
        ends = np.cumsum([0, *sizes])
        parts = [times[start:end] for start, end in itertools.pairwise([*ends, len(drawn) + 9])]
        assert_order_is_seen([part for part in parts if part])


def assert_order_is_seen(batches: list[list[int | None]]) -> None:
    previous: float | None = None
    ordered = True
    for batch in batches:
        times = pl.Series(batch, dtype=pl.Int64)
        ordered &= in_order(previous, times)
        known = times.drop_nulls()
        previous = known[-1] if len(known) else previous
    flat = [time for batch in batches for time in batch if time is not None]
    assert ordered == (flat == sorted(flat))


def sorted_rows(batches: list[Batch]) -> list[dict[str, Any]]:
    """The rows as they are sorted by times that are numbers; nothing but these is left behind."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "sorted.parquet")
        write_sorted(iter(batches), numbers, path)
        assert list(Path(folder).iterdir()) == [path]
        return pl.read_parquet(path).to_dicts()


times = st.none() | st.sampled_from(["soon", "3", "-1", "2.5", "2.5", "10"])


@quick
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(times, max_size=6)), min_size=1, max_size=6)
)
def test_rows_come_as_a_stable_sort_has_them(written: list[tuple[str, list[str | None]]]) -> None:
    """Of several files that mix; rows without a time come last, and none is lost."""
    batches = [
        (
            name,
            pl.DataFrame({"row": range(len(column)), "time": pl.Series(column, dtype=pl.String)}),
        )
        for name, column in written
    ]
    rows: list[dict[str, Any]] = [
        {"row": row, "time": None if time in {None, "soon"} else float(time or 0), "file": name}
        for name, column in written
        for row, time in enumerate(column)
    ]
    known = sorted((row for row in rows if row["time"] is not None), key=lambda row: row["time"])
    assert sorted_rows(batches) == known + [row for row in rows if row["time"] is None]


def test_files_of_other_types_are_one_log() -> None:
    """A column that is text in one file becomes text; labels without a point, as everywhere."""
    batches = [
        ("none", pl.DataFrame({"action": [9], "time": [None]})),
        ("csv", pl.DataFrame({"action": ["1", "b"], "time": ["30", "20"]})),
        ("parquet", pl.DataFrame({"action": [2.0, 3.5], "time": [25.0, 10.0]})),
        ("arrow", pl.DataFrame({"action": [7], "time": [5]})),
    ]
    read = sorted_rows(batches)
    assert [row["action"] for row in read] == ["7", "3.5", "b", "2", "1", "9"]
    assert [row["file"] for row in read] == ["arrow", "parquet", "csv", "parquet", "csv", "none"]


def test_the_first_time_decides_for_the_whole_log() -> None:
    frames = [
        pl.DataFrame({"action": ["a", "b"], "reward": 1.0, "at": times})
        for times in (["soon", None], ["7", "2024-01-01"], ["2024-01-01", "3"])
    ]
    sources = [FrameSource(frame, name) for frame, name in zip(frames, "abc", strict=True)]
    with TemporaryDirectory() as folder:
        reader = LogReader(sources, Columns(propensity=None, time="at"))
        ordered = reader.in_time_order(Path(folder), lambda *_: None)
        rows = [row for _, frame in ordered.batches() for row in frame.to_dicts()]
    assert [row["time"] for row in rows] == [3.0, 7.0, None, None, None, None]
    assert "".join(row["file"] for row in rows) == "cbaabc"


def test_lists_and_missing_columns_survive() -> None:
    batches = [
        ("a", pl.DataFrame({"time": [2, 1], "eligible": [["x", "y"], None]})),
        ("b", pl.DataFrame({"time": [0]})),
    ]
    assert [row["eligible"] for row in sorted_rows(batches)] == [None, None, ["x", "y"]]


def many(batches: int, rows: int) -> Iterator[Batch]:
    generator = np.random.default_rng(0)
    for _ in range(batches):
        yield "log", pl.DataFrame({"time": generator.random(rows), "x": generator.random(rows)})


def test_a_small_limit_is_kept_by_writing_to_the_folder(tmp_path: Path) -> None:
    """80 MB of keys and values are sorted with a limit of 64 MB."""
    spilled: set[str] = set()

    def watch(_phase: str, _rows: int, _expected: int | None) -> None:
        spilled.update(path.name for path in tmp_path.rglob("duckdb/*"))

    path = tmp_path / "sorted.parquet"
    write_sorted(many(32, 1 << 16), numbers, path, watch, memory_limit="64MB")
    times = pl.read_parquet(path)["time"]
    assert spilled
    assert len(times) == 32 << 16
    assert times.is_sorted()
    assert list(tmp_path.iterdir()) == [path]


ENDLESS = "SELECT sum(a.i * b.i) FROM range(10000000) a(i), range(10000000) b(i)"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_impatient_user_ends_the_sort(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are told as they are spilled; then nothing but that it goes on, until it must not."""
    seen: list[tuple[str, int]] = []

    def watch(phase: str, rows: int, _expected: int | None) -> None:
        seen.append((phase, rows))
        if len(seen) == 5:
            raise error

    monkeypatch.setattr(sorting, "SORTED", ENDLESS)
    with pytest.raises(error):
        write_sorted(many(2, 1 << 10), numbers, tmp_path / "sorted.parquet", watch)
    assert seen == [("sorting", 1 << 10)] * 2 + [("sorting", 0)] * 3
    assert list(tmp_path.iterdir()) == []
    assert not [one for one in threading.enumerate() if one.name.startswith("understudy-sorter")]


def test_a_log_is_sorted_once_however_often_it_is_gone_over() -> None:
    rows, told = make_rows(300).with_columns(at=-pl.int_range(pl.len())), Counter[str]()
    covered = coverage(rows, time="at", watch=lambda phase, n, _: told.update({phase: n}))
    assert told == {"checking the order": 300, **dict.fromkeys(PHASES, 300)}
    assert covered.coverage.rows == 300


def test_an_error_of_the_reader_passes_and_nothing_is_left_behind(tmp_path: Path) -> None:
    def broken() -> Iterator[Batch]:
        yield from many(1, 10)
        raise KeyError("of the reader")

    with pytest.raises(KeyError, match="of the reader"):
        write_sorted(broken(), numbers, tmp_path / "sorted.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_sort_that_fails_says_where(tmp_path: Path) -> None:
    def call(folder: Path, limit: str) -> None:
        path = folder / "sorted.parquet"
        write_sorted(many(4, 1 << 16), numbers, path, memory_limit=limit)

    assert_refused(lambda: call(tmp_path, "1MB"), "time", "cannot be sorted")
    assert_refused(lambda: call(tmp_path, "plenty"), "time", "cannot be sorted")
    assert_refused(lambda: call(tmp_path / "nowhere", "64MB"), "time", "cannot be sorted")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(duckdb.Error):
        duckdb.connect(config={"memory_limit": "plenty"})
