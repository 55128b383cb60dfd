"""A log that is not in the order of time, put into it without being held in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from itertools import chain
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
from understudy.logs.watching import Watch, unwatched

__all__ = ["keep_sorted", "read_sorted", "sorted_by_time"]

PHASE = "sorting"
PATIENCE = 0.1  # seconds between two looks at a sort, and whether somebody wants it to end
INSTANT, ARRIVAL = "instant of the event", "number of the row"
ROWS = 1 << 16


def keep_sorted(
    batches: Iterable[tuple[str, pl.DataFrame]], path: Path, watch: Watch = unwatched
) -> None:
    """Put the rows of all batches into a file by their time, as `sorted_by_time` has them.

    >>> with TemporaryDirectory() as folder:
    ...     keep_sorted([("a", pl.DataFrame({"time": [3, 1]}))], Path(folder, "sorted"))
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
    """The rows that `keep_sorted` has put into a file, a batch at a time.

    >>> with TemporaryDirectory() as folder:
    ...     pl.DataFrame({"time": [1, 3]}).write_parquet(Path(folder, "sorted"))
    ...     [frame.rows() for frame in read_sorted(Path(folder, "sorted"))]
    [[(1,), (3,)]]
    """
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS):
            yield pl.DataFrame(batch)


def sorted_by_time(
    batches: Iterable[tuple[str, pl.DataFrame]],
    folder: Path,
    watch: Watch = unwatched,
    *,
    memory_limit: str = "512MB",
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
            if _spill(batches, Path(spilled), watch):
                yield from _merged(Path(spilled), memory_limit, watch)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise InvalidLog(
            "time",
            str(folder),
            f"the rows cannot be sorted in this folder ({first_line(error)})",
            "name a folder with more room, or sort the log and leave out --time",
        ) from None


def _spill(batches: Iterable[tuple[str, pl.DataFrame]], folder: Path, watch: Watch) -> int:
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
            watch(PHASE, len(batch), None)
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


def _merged(folder: Path, memory_limit: str, watch: Watch) -> Iterator[pl.DataFrame]:
    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "temp_directory": str(folder / "duckdb"),
    }
    with duckdb.connect(config=limits) as connection:
        parts = connection.read_parquet(str(folder / "*.parquet"), union_by_name=True)
        rows = parts.order(f'"{INSTANT}" NULLS LAST, "{ARRIVAL}"')
        first, others = _begun(connection, rows, watch)
        for batch in chain([first], others):
            yield pl.DataFrame(batch).drop(INSTANT, ARRIVAL)


def _begun(
    connection: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyRelation, watch: Watch
) -> tuple[pa.RecordBatch, pa.RecordBatchReader]:
    """The first rows, which come when all are sorted, and the others.

    The sort has a thread of its own, so that this one can be interrupted and end it.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="understudy-sorter") as pool:
        sorting = pool.submit(_begin, rows)
        try:
            while not sorting.done():
                wait([sorting], PATIENCE)
                watch(PHASE, 0, None)
        except BaseException:
            while not sorting.done():  # again, for what has not begun cannot be interrupted
                connection.interrupt()
                wait([sorting], PATIENCE)
            raise
        return sorting.result()


def _begin(rows: duckdb.DuckDBPyRelation) -> tuple[pa.RecordBatch, pa.RecordBatchReader]:
    reader = rows.to_arrow_reader(ROWS)
    return reader.read_next_batch(), reader
