"""All rows of all files, in their order: every format through one door."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from understudy.logs.progress import ProgressCallback
from understudy.logs.readers import dsjson, tabular, vowpal
from understudy.logs.readers.files import Source
from understudy.logs.readers.sorting import NUMBER, TimeColumn, in_order, keep_sorted, read_sorted
from understudy.logs.schema import ROW, TIME, Columns

__all__ = ["Origin", "Reading", "Table", "has_propensities", "name_of", "rows_by_file"]


@dataclass(frozen=True, eq=False)
class Table:
    """A frame that is in memory already, in place of a file."""

    frame: pl.DataFrame
    name: str = "frame"

    def fingerprint(self) -> str:
        """Its rows as one number: two frames of the same rows are the same log."""
        return f"{int(self.frame.hash_rows().sum() or 0):016x}"


Origin = Source | Table


def name_of(origins: Sequence[Origin]) -> str:
    """What an error about all files calls them.

    >>> name_of([Table(pl.DataFrame())] * 3)
    'frame and 2 more'
    """
    more = f" and {len(origins) - 1} more" if len(origins) > 1 else ""
    return origins[0].name + more


@dataclass(frozen=True)
class Reading:
    """Which files are read, which of their columns, and how times are written if they matter.

    `kept` is a file of all rows by their time, where those of the origins are not in order.
    """

    origins: Sequence[Origin]
    columns: Columns
    times: TimeColumn | None = None
    kept: Path | None = None

    def batches(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Rows in the order in which they are learned from, with the name of their file."""
        if self.kept is not None:
            for frame in read_sorted(self.kept):
                yield "", self._timed(frame)
            return
        for origin in self.origins:
            for frame in batches_of(origin, self.columns):
                yield origin.name, self._timed(frame)

    def _timed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """With times as numbers, null where they cannot be read."""
        if self.times is None:
            return frame
        return frame.with_columns(self.times.parse(frame[TIME]).alias(TIME))

    def in_time(self, folder: Path, watch: ProgressCallback) -> Reading:
        """The same rows by time: as they are if they are in order, else sorted in a folder."""
        if self.columns.time is None:
            return self
        times: TimeColumn | None = None
        previous: Any = None
        for _, frame in self.batches():
            watch("checking the order", len(frame), None)
            times = times or TimeColumn.of(frame[TIME])
            if times is None:
                continue
            parsed = times.parse(frame[TIME])
            if not in_order(previous, parsed):
                kept = folder / "sorted.parquet"
                keep_sorted(self.batches(), kept, watch)
                return Reading(self.origins, self.columns, times, kept)
            previous = parsed.max() if parsed.null_count() < len(parsed) else previous
        return Reading(self.origins, self.columns, times or TimeColumn(NUMBER))


def batches_of(origin: Origin, columns: Columns) -> Iterator[pl.DataFrame]:
    """The rows of one file, a batch at a time."""
    if isinstance(origin, Table):
        return _rows_of_table(origin, columns)
    if origin.format == "vw":
        return vowpal.read(origin.path, columns)
    if origin.format == "dsjson":
        return dsjson.read(origin.path, columns)
    return tabular.read(origin, columns)


def has_propensities(origin: Origin, columns: Columns) -> bool:
    """Whether there is a column for them; formats of their own have them always."""
    if isinstance(origin, Table):
        return columns.propensity in origin.frame.columns
    return origin.format in {"vw", "dsjson"} or columns.propensity in tabular.names(origin, columns)


def rows_by_file(origins: Sequence[Origin], columns: Columns) -> dict[str, int]:
    """How many rows each file has: of most formats it need not be read for that."""
    return {
        origin.name: sum(len(frame) for frame in batches_of(origin, columns))
        if isinstance(origin, Table)
        else int(tabular.scan(origin, columns).select(pl.len()).collect().item())
        for origin in origins
    }


def _rows_of_table(table: Table, columns: Columns) -> Iterator[pl.DataFrame]:
    columns.require(table.frame.columns, table.name)
    chosen = table.frame.select(
        pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias(ROW),
        *(pl.col(theirs).alias(ours) for theirs, ours in columns.renamed().items()),
    )
    return chosen.iter_slices(tabular.BATCH)
