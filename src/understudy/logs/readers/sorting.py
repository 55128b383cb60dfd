"""Rows by time: how a column of times is parsed, and a sort that does not need much memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from understudy.errors import InvalidLog, first_line
from understudy.logs.readers.progress import ProgressCallback, no_progress
from understudy.logs.schema import ACTION, FILE, TIME, label_text, stripped

if TYPE_CHECKING:
    import duckdb

NUMBER, WHOLE, DATE = "number", "whole number", "date"
EXACT = 2**53  # from here on, not every whole number is a float
SECOND = 10**9  # nanoseconds
# A date; a time, with or without seconds and their fraction; a zone: Z, UTC, or an offset.
ISO = (
    r"^\s*(?<date>\d{4}-\d\d-\d\d)"
    r"(?:[T ](?<minute>\d\d:\d\d)(?::(?<second>\d\d)(?:[.,](?<fraction>\d+))?)?)?"
    r"\s?(?:Z|UTC|(?<sign>[+-])(?<hours>\d\d)(?::?(?<minutes>\d\d))?)?\s*$"
)
PHASE = "sorting"
POLL = 0.1  # seconds between two reports of progress, and so until an interrupt is noticed
SORT_KEY, ARRIVAL = "instant of the event", "number of the row"  # no log has such columns
ROWS = 1 << 16  # of a batch, as in `tabular.BATCH`
Batches = Iterable[tuple[str, pl.DataFrame]]  # each with the name of its file


@dataclass(frozen=True)
class TimeColumn:
    """The format of a column of times, by its first time: all others are parsed in the same way.

    Numbers are compared as they are. Dates, of a date type or ISO 8601 text, become nanoseconds
    since 1970; a date without a zone is UTC.

    >>> times = TimeColumn.detect(pl.Series(["soon", "2024-05-01T10:00:00+02:00"]))
    >>> times.parse(pl.Series(["2024-05-01 08:00", "2024-05-01T08:00:00.5Z", "3", None])).to_list()
    [1714550400000000000, 1714550400500000000, None, None]
    """

    kind: str

    @staticmethod
    def detect(column: pl.Series) -> TimeColumn | None:
        """The format of the first time in a column; None if there is none.

        >>> TimeColumn.detect(pl.Series([None, "7"])), TimeColumn.detect(pl.Series(["soon", None]))
        (TimeColumn(kind='number'), None)
        """
        numbers, dates = _numbers(column), _dates(column)
        first = (numbers.is_not_null() | dates.is_not_null()).arg_true()
        if not len(first):
            return None
        number = numbers[int(first[0])]
        if number is None:
            return TimeColumn(DATE)
        return TimeColumn(WHOLE if abs(number) >= EXACT else NUMBER)

    def parse(self, column: pl.Series) -> pl.Series:
        """The times as Int64 or Float64; null where there is none of this format."""
        return {NUMBER: _numbers, WHOLE: _whole_numbers, DATE: _dates}[self.kind](column)


def in_order(previous: float | None, times: pl.Series) -> bool:
    """Whether no time is before the one that it follows; nulls do not count.

    >>> in_order(2, pl.Series([2, None, 5])), in_order(3, pl.Series([2, 5]))
    (True, False)
    """
    known = times.drop_nulls()
    if not len(known):
        return True
    return known.is_sorted() and (previous is None or bool(known[0] >= previous))


def look_like_dates(texts: pl.Series) -> pl.Series:
    """Which texts have the form of ISO 8601 dates, also if the calendar has no such date.

    >>> look_like_dates(pl.Series(["2024-05-01", "0000-00-00 10:00", "12:30", None])).to_list()
    [True, True, False, None]
    """
    return texts.str.contains(ISO)


def write_sorted(batches: Batches, path: Path, watch: ProgressCallback = no_progress) -> None:
    """Write the rows of all batches into a Parquet file, in the order of `sorted_by_time`.

    >>> with TemporaryDirectory() as folder:
    ...     write_sorted([("a", pl.DataFrame({"time": [3, 1]}))], Path(folder, "sorted"))
    ...     [frame.rows() for frame in read_sorted(Path(folder, "sorted"))]
    [[(1, 'a'), (3, 'a')]]
    """
    with ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for frame in sorted_by_time(batches, path.parent, watch):
            table = frame.to_arrow()
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(path, table.schema))
            writer.write_table(table)


def read_sorted(path: Path) -> Iterator[pl.DataFrame]:
    """The rows that `write_sorted` wrote, a batch at a time."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS):
            yield pl.DataFrame(batch)


def sorted_by_time(
    batches: Batches,
    folder: Path,
    watch: ProgressCallback = no_progress,
    *,
    memory_limit: str = "512MB",
) -> Iterator[pl.DataFrame]:
    """The rows of all batches by their column `time`; rows of the same time keep their order.

    The name of its file becomes a column `file` of a batch, as rows of several files mix. Rows
    whose time cannot be parsed come last. DuckDB sorts with `memory_limit` and keeps the rest in
    `folder`, until the end or until the iterator is closed.

    >>> batches = [("a", pl.DataFrame({"time": [3, 1]})), ("b", pl.DataFrame({"time": [2]}))]
    >>> with TemporaryDirectory() as folder:
    ...     [frame.rows() for frame in sorted_by_time(batches, Path(folder))]
    [[(1, 'a'), (2, 'b'), (3, 'a')]]
    """
    import duckdb  # noqa: PLC0415 - most logs are read without it

    try:
        with TemporaryDirectory(prefix="sorting-", dir=folder) as spilled:
            if _spill(batches, Path(spilled), watch):
                yield from _sort(Path(spilled), memory_limit, watch)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise InvalidLog(
            "time",
            str(folder),
            f"the rows cannot be sorted in this folder ({first_line(error)})",
            "choose a folder on a disk with more room, or sort the log and leave out --time",
        ) from None


def _spill(batches: Batches, folder: Path, watch: ProgressCallback) -> int:
    """Write the batches with their sort keys, and a new part whenever the types of columns change.

    Returns the number of rows.
    """
    writer: pq.ParquetWriter | None = None
    times: TimeColumn | None = None
    arrived = parts = 0
    try:
        for name, batch in batches:
            times = times or TimeColumn.detect(batch[TIME])
            table = _with_keys(name, batch, times, arrived).to_arrow()
            arrived += len(batch)
            if writer is None or writer.schema != table.schema:
                if writer is not None:
                    writer.close()
                writer = pq.ParquetWriter(folder / f"{parts}.parquet", table.schema)
                parts += 1
            writer.write_table(table)
            watch(PHASE, len(batch), None)
    finally:
        if writer is not None:
            writer.close()
    return arrived


def _with_keys(
    name: str, batch: pl.DataFrame, times: TimeColumn | None, arrived: int
) -> pl.DataFrame:
    keys = [
        pl.lit(name).alias(FILE),
        pl.lit(None if times is None else times.parse(batch[TIME])).alias(SORT_KEY),
        pl.int_range(arrived, arrived + pl.len()).alias(ARRIVAL),
    ]
    if ACTION in batch.columns and batch[ACTION].dtype.is_float():
        # The labels of another part may be text, and DuckDB would make '1.0' of 1.0, not '1'.
        keys.append(label_text(pl.col(ACTION), batch[ACTION].dtype))
    return batch.with_columns(keys)


def _sort(folder: Path, memory_limit: str, watch: ProgressCallback) -> Iterator[pl.DataFrame]:
    import duckdb  # noqa: PLC0415 - most logs are read without it

    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "temp_directory": str(folder / "duckdb"),
    }
    with duckdb.connect(config=limits) as connection:
        parts = connection.read_parquet(str(folder / "*.parquet"), union_by_name=True)
        rows = parts.order(f'"{SORT_KEY}" NULLS LAST, "{ARRIVAL}"')
        first, others = _first_batch(connection, rows, watch)
        for batch in chain([first], others):
            yield pl.DataFrame(batch).drop(SORT_KEY, ARRIVAL)


def _first_batch(
    connection: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyRelation, watch: ProgressCallback
) -> tuple[pa.RecordBatch, pa.RecordBatchReader]:
    """The first batch, which comes once all rows are sorted, and a reader of the others.

    DuckDB sorts in another thread, so that this one can be interrupted and end the sort.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="understudy-sorter") as pool:
        sorting = pool.submit(_begin_sort, rows)
        try:
            while not sorting.done():
                wait([sorting], POLL)
                watch(PHASE, 0, None)
        except BaseException:
            while not sorting.done():  # repeatedly: a sort that has not begun ignores it
                connection.interrupt()
                wait([sorting], POLL)
            raise
        return sorting.result()


def _begin_sort(rows: duckdb.DuckDBPyRelation) -> tuple[pa.RecordBatch, pa.RecordBatchReader]:
    reader = rows.to_arrow_reader(ROWS)
    return reader.read_next_batch(), reader


def _numbers(column: pl.Series) -> pl.Series:
    """A column of numbers, or of text that reads as numbers, as floats."""
    texts = stripped(column)
    if texts is None and not column.dtype.is_numeric():
        return _nulls(column, pl.Float64())
    floats = (column if texts is None else texts).cast(pl.Float64, strict=False)
    return floats.set(~floats.is_finite(), None)


def _whole_numbers(column: pl.Series) -> pl.Series:
    """A column as integers, which are exact where floats are not."""
    if column.dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        return whole.set(whole.cast(pl.Float64) != column.cast(pl.Float64), None)
    texts = stripped(column)
    if texts is None and not column.dtype.is_integer():
        return _nulls(column, pl.Int64())
    return (column if texts is None else texts).cast(pl.Int64, strict=False)


def _dates(column: pl.Series) -> pl.Series:
    """A column as nanoseconds since 1970; null where 64 bits do not hold them."""
    texts = stripped(column)
    if texts is not None:
        return texts.to_frame("text").select(_nanoseconds(pl.col("text"))).to_series()
    if column.dtype not in (pl.Date, pl.Datetime):
        return _nulls(column, pl.Int64())
    return column.dt.epoch("ns")


def _nanoseconds(text: pl.Expr) -> pl.Expr:
    """ISO 8601 text as nanoseconds since 1970; null where it is something else."""
    found = text.str.extract_groups(ISO).struct
    minute, second = found.field("minute").fill_null("00:00"), found.field("second").fill_null("00")
    written = found.field("date") + pl.lit("T") + minute + pl.lit(":") + second
    seconds = written.str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="ms", strict=False)
    fraction = found.field("fraction").fill_null("").str.slice(0, 9).str.pad_end(9, "0")
    hours, minutes = (
        found.field(name).fill_null("0").cast(pl.Int64) for name in ("hours", "minutes")
    )
    east = pl.when(found.field("sign") == "-").then(-1).otherwise(1) * (hours * 60 + minutes) * 60
    return seconds.dt.epoch("ns") + fraction.cast(pl.Int64) - east * SECOND


def _nulls(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    return pl.Series(column.name, [None], dtype).new_from_index(0, len(column))
