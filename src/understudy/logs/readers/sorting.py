"""Rows by time: the parsing of times, and a sort that needs little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from understudy.errors import InvalidLog, first_line
from understudy.logs.outputs import ProgressCallback, no_progress
from understudy.logs.readers.files import BATCH
from understudy.logs.schema import ACTION, FILE, TIME, label_text, stripped

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
ARRIVAL = "number of the row"  # no log has such a column
SORTED = f'SELECT * EXCLUDE "{ARRIVAL}" FROM parts ORDER BY "{TIME}" NULLS LAST, "{ARRIVAL}"'
TimeParser = Callable[[pl.Series], pl.Series]  # to Int64 or Float64, null where there is no time


def time_parser(column: pl.Series) -> TimeParser | None:
    """The parser for the format of the first time in a column, or None if it has no time.

    All other times of a log are parsed in the same way. Numbers are compared as they are. Dates, of
    a date type or ISO 8601 text, become nanoseconds since 1970; a date without a zone is UTC.

    >>> parse = time_parser(pl.Series(["soon", "2024-05-01T10:00:00+02:00"]))
    >>> parse(pl.Series(["2024-05-01 08:00", "2024-05-01T08:00:00.5Z", "3", None])).to_list()
    [1714550400000000000, 1714550400500000000, None, None]
    """
    as_numbers = numbers(column)
    first = (as_numbers.is_not_null() | dates(column).is_not_null()).arg_true()
    if not len(first):
        return None
    number = as_numbers[int(first[0])]
    if number is None:
        return dates
    return whole_numbers if abs(number) >= EXACT else numbers


def in_order(previous: float | None, times: pl.Series) -> bool:
    """Whether times are sorted and none is before `previous`; nulls do not count."""
    known = times.drop_nulls()
    if not len(known):
        return True
    return known.is_sorted() and (previous is None or bool(known[0] >= previous))


def look_like_dates(texts: pl.Series) -> pl.Series:
    """A mask of the texts with the form of ISO 8601 dates, valid in the calendar or not."""
    return texts.str.contains(ISO)


def write_sorted(
    batches: Iterable[tuple[str, pl.DataFrame]],
    parse: TimeParser,
    path: Path,
    watch: ProgressCallback = no_progress,
    *,
    memory_limit: str = "512MB",
) -> None:
    """Write the rows of all batches to a Parquet file by time; rows of the same time keep order.

    Times are written as they are parsed; rows without one come last. As rows of several files mix,
    a column `file` gets the name that comes with each batch. DuckDB sorts with `memory_limit` and
    spills the rest to the folder of the file.

    >>> batches = [("a", pl.DataFrame({"time": ["3", "1"]})), ("b", pl.DataFrame({"time": [2]}))]
    >>> with TemporaryDirectory() as folder:
    ...     write_sorted(batches, numbers, Path(folder, "sorted"))
    ...     pl.read_parquet(Path(folder, "sorted")).rows()
    [(1.0, 'a'), (2.0, 'b'), (3.0, 'a')]
    """
    import duckdb  # noqa: PLC0415 - most logs are read without it

    try:
        with TemporaryDirectory(prefix="sorting-", dir=path.parent) as spilled:
            _spill(batches, parse, Path(spilled), watch)
            _sort(Path(spilled), path, memory_limit, watch)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        reason = f"the rows cannot be sorted in this folder ({first_line(error)})"
        remedy = "choose a folder on a disk with more room, or sort the log and leave out --time"
        raise InvalidLog("time", str(path.parent), reason, remedy) from None


def _spill(
    batches: Iterable[tuple[str, pl.DataFrame]],
    parse: TimeParser,
    folder: Path,
    watch: ProgressCallback,
) -> None:
    """Write the batches to Parquet, and a new part whenever the types of columns change."""
    writer: pq.ParquetWriter | None = None
    arrived = parts = 0
    try:
        for name, batch in batches:
            added = [
                pl.lit(name).alias(FILE),
                parse(batch[TIME]).alias(TIME),
                pl.int_range(arrived, arrived + pl.len()).alias(ARRIVAL),
            ]
            if ACTION in batch.columns and batch[ACTION].dtype.is_float():
                # Labels of another part may be text, and DuckDB would make '1.0' of 1.0, not '1'.
                added.append(label_text(pl.col(ACTION), batch[ACTION].dtype))
            table = batch.with_columns(added).to_arrow()
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


def _sort(folder: Path, path: Path, memory_limit: str, watch: ProgressCallback) -> None:
    """Sort the parts in a folder into one file.

    DuckDB works in another thread, so that this one can be interrupted and end the sort.
    """
    import duckdb  # noqa: PLC0415 - most logs are read without it

    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "temp_directory": str(folder / "duckdb"),
    }
    with (
        duckdb.connect(config=limits) as connection,
        ThreadPoolExecutor(1, thread_name_prefix="understudy-sorter") as pool,
    ):
        parts = connection.read_parquet(str(folder / "*.parquet"), union_by_name=True)
        rows = parts.query("parts", SORTED)
        assert rows is not None  # as of every query that is a SELECT
        sorting = pool.submit(rows.write_parquet, str(path), row_group_size=BATCH)
        try:
            while not sorting.done():
                wait([sorting], POLL)
                watch(PHASE, 0, None)
        except BaseException:
            while not sorting.done():  # repeatedly: a sort that has not begun ignores it
                connection.interrupt()
                wait([sorting], POLL)
            raise
        sorting.result()


def numbers(column: pl.Series) -> pl.Series:
    """A column of numbers, or of text that reads as numbers, as floats."""
    texts = stripped(column)
    if texts is None and not column.dtype.is_numeric():
        return _nulls(column, pl.Float64())
    floats = (column if texts is None else texts).cast(pl.Float64, strict=False)
    return floats.set(~floats.is_finite(), None)


def whole_numbers(column: pl.Series) -> pl.Series:
    """A column as integers, which are exact where floats are not."""
    if column.dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        return whole.set(whole.cast(pl.Float64) != column.cast(pl.Float64), None)
    texts = stripped(column)
    if texts is None and not column.dtype.is_integer():
        return _nulls(column, pl.Int64())
    return (column if texts is None else texts).cast(pl.Int64, strict=False)


def dates(column: pl.Series) -> pl.Series:
    """A column as nanoseconds since 1970; null where 64 bits do not hold them."""
    texts = stripped(column)
    if texts is not None:
        return texts.to_frame("text").select(_nanoseconds(pl.col("text"))).to_series()
    if column.dtype not in (pl.Date, pl.Datetime):
        return _nulls(column, pl.Int64())
    return column.dt.epoch("ns")


def _nanoseconds(text: pl.Expr) -> pl.Expr:
    """ISO 8601 text as nanoseconds since 1970; null where it is something else."""
    groups = text.str.extract_groups(ISO).struct
    minute, second = (
        groups.field("minute").fill_null("00:00"),
        groups.field("second").fill_null("00"),
    )
    written = groups.field("date") + pl.lit("T") + minute + pl.lit(":") + second
    seconds = written.str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="ms", strict=False)
    fraction = groups.field("fraction").fill_null("").str.slice(0, 9).str.pad_end(9, "0")
    hours, minutes = (
        groups.field(name).fill_null("0").cast(pl.Int64) for name in ("hours", "minutes")
    )
    east = pl.when(groups.field("sign") == "-").then(-1).otherwise(1) * (hours * 60 + minutes) * 60
    return seconds.dt.epoch("ns") + fraction.cast(pl.Int64) - east * SECOND


def _nulls(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    return pl.Series(column.name, [None], dtype).new_from_index(0, len(column))
