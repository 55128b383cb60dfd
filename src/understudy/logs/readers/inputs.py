"""The sources of a log, and the reader of their rows: one interface for all formats."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow.parquet as pq

from understudy.logs.outputs import ProgressCallback
from understudy.logs.readers import tabular, vowpal
from understudy.logs.readers.files import BATCH, FileSource
from understudy.logs.readers.sorting import (
    TimeParser,
    in_order,
    numbers,
    time_parser,
    write_sorted,
)
from understudy.logs.schema import ROW, TIME, Columns

DEPTH = 4  # batches that wait: enough to smooth out slow ones, a few MB of memory
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class FrameSource:
    """A log that is a frame in memory."""

    frame: pl.DataFrame
    name: str = "frame"

    def fingerprint(self) -> str:
        """A hash of its rows in any order."""
        return f"{int(self.frame.hash_rows().sum() or 0):016x}"


LogSource = FileSource | FrameSource


@dataclass(frozen=True)
class LogReader:
    """The rows of all sources in order: as they come, or by time once `in_time_order` was called.

    `parse_times` reads the column of times. `sorted_file` holds all rows by time, with times
    that are parsed, if those of the sources are in another order.
    """

    sources: Sequence[LogSource]
    columns: Columns
    parse_times: TimeParser | None = None
    sorted_file: Path | None = None

    def batches(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Batches of rows in order, each with the name of its source.

        The name is empty if rows of several sources are mixed; a column `file` then names them.
        Times are numbers once `in_time_order` was called, null where they cannot be parsed.
        """
        if self.sorted_file is not None:
            with pq.ParquetFile(self.sorted_file) as file:
                for batch in file.iter_batches(BATCH):
                    yield "", pl.DataFrame(batch)
            return
        for source in self.sources:
            for frame in _batches(source, self.columns):
                if self.parse_times is None:
                    yield source.name, frame
                else:
                    yield source.name, frame.with_columns(self.parse_times(frame[TIME]).alias(TIME))

    def in_time_order(self, folder: Path, watch: ProgressCallback) -> LogReader:
        """A reader of the same rows by time; they are sorted in a folder if they are not."""
        if self.columns.time is None:
            return self
        parse: TimeParser | None = None
        previous: Any = None
        for _, frame in self.batches():
            watch("checking the order", len(frame), None)
            parse = parse or time_parser(frame[TIME])
            if parse is None:
                continue
            times = parse(frame[TIME])
            if not in_order(previous, times):
                path = folder / "sorted.parquet"
                write_sorted(self.batches(), parse, path, watch)
                return replace(self, sorted_file=path)
            previous = times.max() if times.null_count() < len(times) else previous
        return replace(self, parse_times=parse or numbers)


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """The same items in the same order, made by another thread, a few of them in advance.

    So one thread reads and validates batches while another learns from them. An error of the other
    thread is raised here, in its place.
    """

    def next_one() -> list[Item]:
        return list(islice(items, 1))  # none at the end

    with ThreadPoolExecutor(1, thread_name_prefix="understudy-reader") as pool:
        waiting = deque(pool.submit(next_one) for _ in range(DEPTH))
        while found := waiting.popleft().result():
            waiting.append(pool.submit(next_one))
            yield found[0]


def sources_name(sources: Sequence[LogSource]) -> str:
    """The name of all sources together, for an error.

    >>> sources_name([FrameSource(pl.DataFrame())] * 3)
    'frame and 2 more'
    """
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return sources[0].name + more


def has_propensities(source: LogSource, columns: Columns) -> bool:
    """Whether a source has the column of propensities; Vowpal Wabbit's formats always do."""
    if isinstance(source, FrameSource):
        return columns.propensity in source.frame.columns
    return source.format in {"vw", "dsjson"} or columns.propensity in tabular.names(source, columns)


def count_rows(sources: Sequence[LogSource], columns: Columns) -> dict[str, int]:
    """The number of rows by source; most formats store it, so that no row is read."""
    return {
        source.name: source.frame.height
        if isinstance(source, FrameSource)
        else int(tabular.scan(source, columns).select(pl.len()).collect().item())
        for source in sources
    }


def _batches(source: LogSource, columns: Columns) -> Iterator[pl.DataFrame]:
    if isinstance(source, FrameSource):
        columns.require(source.frame.columns, source.name)
        rows = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias(ROW)
        return source.frame.select(rows, *columns.selection()).iter_slices(BATCH)
    if source.format == "vw":
        return vowpal.read_text(source.path, columns)
    if source.format == "dsjson":
        return vowpal.read_dsjson(source.path, columns)
    return tabular.read(source, columns)
