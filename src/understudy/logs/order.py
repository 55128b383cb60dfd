"""A log that is not in the order of time, put into it without being held in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from understudy.errors import InvalidLog
from understudy.logs.actions import as_text
from understudy.logs.columns import ACTION, FILE, TIME
from understudy.logs.foreign import first_line
from understudy.logs.times import TimeColumn

__all__ = ["sorted_by_time"]

INSTANT, ARRIVAL = "instant of the event", "number of the row"
ROWS = 1 << 16


def sorted_by_time(
    batches: Iterable[tuple[str, pl.DataFrame]], folder: Path, *, memory_limit: str = "512MB"
) -> Iterator[pl.DataFrame]:
    """The rows of all batches by their column `time`, those of one time as they came.

    A batch comes with the name of its file, which becomes its column `file`: rows of several files
    mix. Rows whose time cannot be read come last. What does not fit into `memory_limit` (as DuckDB
    writes it) is kept in `folder`, and removed at the end, and when the iterator is closed.

    >>> batches = [("a", pl.DataFrame({"time": [3, 1]})), ("b", pl.DataFrame({"time": [2]}))]
    >>> with TemporaryDirectory() as folder:
    ...     [frame.rows() for frame in sorted_by_time(batches, Path(folder))]
    [[(1, 'a'), (2, 'b'), (3, 'a')]]
    """
    try:
        with TemporaryDirectory(prefix="sorting-", dir=folder) as spilled:
            if _spill(batches, Path(spilled)):
                yield from _merged(Path(spilled), memory_limit)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise InvalidLog(
            "time",
            str(folder),
            f"the rows cannot be sorted in this folder ({first_line(error)})",
            "name a folder with more room, or sort the log and leave out --time",
        ) from None


def _spill(batches: Iterable[tuple[str, pl.DataFrame]], folder: Path) -> int:
    """Write the batches with the keys to sort by, a new part where the types of columns change."""
    writer: pq.ParquetWriter | None = None
    times: TimeColumn | None = None
    arrived = parts = 0
    try:
        for name, batch in batches:
            times = times or TimeColumn.of(batch[TIME])
            table = _keyed(name, batch, times, arrived).to_arrow()
            arrived += len(batch)
            if writer is None or writer.schema != table.schema:
                if writer is not None:
                    writer.close()
                writer = pq.ParquetWriter(folder / f"{parts}.parquet", table.schema)
                parts += 1
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
    return arrived


def _keyed(name: str, batch: pl.DataFrame, times: TimeColumn | None, arrived: int) -> pl.DataFrame:
    instants = None if times is None else times.parse(batch[TIME])
    keys = [
        pl.lit(name).alias(FILE),
        pl.lit(instants).alias(INSTANT),
        pl.int_range(arrived, arrived + pl.len()).alias(ARRIVAL),
    ]
    if ACTION in batch.columns and batch[ACTION].dtype.is_float():
        keys.append(as_text(pl.col(ACTION), batch[ACTION].dtype))  # may meet text of another part
    return batch.with_columns(keys)


def _merged(folder: Path, memory_limit: str) -> Iterator[pl.DataFrame]:
    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "temp_directory": str(folder / "duckdb"),
    }
    with duckdb.connect(config=limits) as connection:
        parts = connection.read_parquet(str(folder / "*.parquet"), union_by_name=True)
        rows = parts.order(f'"{INSTANT}" NULLS LAST, "{ARRIVAL}"')
        for batch in rows.to_arrow_reader(ROWS):
            yield pl.DataFrame(batch).drop(INSTANT, ARRIVAL)
