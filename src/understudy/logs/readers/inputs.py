"""The sources of a log, and the reader of their rows: one interface for all formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from understudy.logs.readers import dsjson, tabular, vowpal
from understudy.logs.readers.files import FileSource
from understudy.logs.readers.progress import ProgressCallback
from understudy.logs.readers.sorting import (
    NUMBER,
    TimeColumn,
    in_order,
    read_sorted,
    write_sorted,
)
from understudy.logs.schema import ROW, TIME, Columns


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

    `times` is the format of the column of times, and `sorted_file` holds all rows by time if those
    of the sources are in another order.
    """

    sources: Sequence[LogSource]
    columns: Columns
    times: TimeColumn | None = None
    sorted_file: Path | None = None

    def batches(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Batches of rows in order, each with the name of its source.

        The name is empty if rows of several sources are mixed; a column `file` then names them.
        """
        if self.sorted_file is not None:
            for frame in read_sorted(self.sorted_file):
                yield "", self._parse_times(frame)
            return
        for source in self.sources:
            for frame in _batches(source, self.columns):
                yield source.name, self._parse_times(frame)

    def in_time_order(self, folder: Path, watch: ProgressCallback) -> LogReader:
        """A reader of the same rows by time; they are sorted in a folder if they are not."""
        if self.columns.time is None:
            return self
        times: TimeColumn | None = None
        previous: Any = None
        for _, frame in self.batches():
            watch("checking the order", len(frame), None)
            times = times or TimeColumn.detect(frame[TIME])
            if times is None:
                continue
            parsed = times.parse(frame[TIME])
            if not in_order(previous, parsed):
                path = folder / "sorted.parquet"
                write_sorted(self.batches(), path, watch)
                return replace(self, times=times, sorted_file=path)
            previous = parsed.max() if parsed.null_count() < len(parsed) else previous
        return replace(self, times=times or TimeColumn(NUMBER))

    def _parse_times(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with times as numbers, null where they cannot be parsed."""
        if self.times is None:
            return frame
        return frame.with_columns(self.times.parse(frame[TIME]).alias(TIME))


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
        return _frame_batches(source, columns)
    if source.format == "vw":
        return vowpal.read(source.path, columns)
    if source.format == "dsjson":
        return dsjson.read(source.path, columns)
    return tabular.read(source, columns)


def _frame_batches(source: FrameSource, columns: Columns) -> Iterator[pl.DataFrame]:
    columns.require(source.frame.columns, source.name)
    rows = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias(ROW)
    return source.frame.select(rows, *columns.selection()).iter_slices(tabular.BATCH)
