"""Tables in files, through Polars: CSV, Parquet, NDJSON and Arrow, a batch of rows at a time.

Text formats are read as text and made numbers of by the checks, so that a value that is no number
is one quarantined row and not the end of the file.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TextIO

import polars as pl

from understudy.errors import InvalidLog
from understudy.logs.columns import ROW, Columns
from understudy.logs.foreign import first_line
from understudy.logs.sources import Source

__all__ = ["BATCH", "names", "read", "refuse_repeated", "scan"]

BATCH = 1 << 16  # rows at a time
PEEK = 1_000  # lines of NDJSON whose keys are looked at


def read(source: Source, columns: Columns) -> Iterator[pl.DataFrame]:
    """The rows of a file in their order, with our names of columns, and numbered from 1.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv")
    ...     _ = path.write_text("action,reward,propensity\\na,1,0.5\\n", encoding="utf-8")
    ...     [frame.rows() for frame in read(Source(path, "csv"), Columns())]
    [[(1, 'a', '1', '0.5')]]
    """
    first = 1
    with readable(source.name):
        frame = scan(source, columns)
        for batch in frame.collect_batches(chunk_size=BATCH, maintain_order=True):
            rows = pl.int_range(first, first + batch.height, dtype=pl.Int64, eager=True)
            yield batch.insert_column(0, rows.alias(ROW))
            first += batch.height


def scan(source: Source, columns: Columns) -> pl.LazyFrame:
    """The columns that are read of a file, with our names, before any row of it is."""
    with readable(source.name):
        frame, found = _OPEN[source.format](source, columns)
        columns.require(found, source.name)
        return frame.select(
            pl.col(theirs).alias(ours) for theirs, ours in columns.renamed().items()
        )


def names(source: Source, columns: Columns) -> list[str]:
    """The columns that a file has, as it calls them."""
    with readable(source.name):
        return _OPEN[source.format](source, columns)[1]


def _parquet(source: Source, columns: Columns) -> tuple[pl.LazyFrame, list[str]]:  # noqa: ARG001 - one signature
    frame = pl.scan_parquet(source.path, glob=False)
    return frame, frame.collect_schema().names()


def _arrow(source: Source, columns: Columns) -> tuple[pl.LazyFrame, list[str]]:  # noqa: ARG001
    frame = pl.scan_ipc(source.path, glob=False)
    return frame, frame.collect_schema().names()


def _csv(source: Source, columns: Columns) -> tuple[pl.LazyFrame, list[str]]:
    header = refuse_repeated(source, columns)
    frame = pl.scan_csv(source.path, infer_schema=False, separator=source.separator, glob=False)
    return frame, header


def refuse_repeated(source: Source, columns: Columns) -> list[str]:
    """The header of a text table, if no column that is read is there twice."""
    with text_of(source) as file:
        header = next(csv.reader(file, delimiter=source.separator), [])
    repeated = [name for name in columns.names() if header.count(name) > 1]
    if repeated:
        raise InvalidLog(
            "log", source.name, f"it has two columns {repeated[0]!r}", "give each its own name"
        )
    return header


def _ndjson(source: Source, columns: Columns) -> tuple[pl.LazyFrame, list[str]]:
    with text_of(source) as file:
        peek = "\n".join(line for line in islice(file, PEEK) if line.strip())
    found = pl.read_ndjson(peek.encode(), infer_schema_length=None).columns if peek else []
    schema = dict.fromkeys(columns.names(), pl.String)
    return pl.scan_ndjson(source.path, schema=schema), found


_OPEN = {"parquet": _parquet, "arrow": _arrow, "csv": _csv, "ndjson": _ndjson}


@contextmanager
def text_of(source: Source) -> Iterator[TextIO]:
    """A text file to read, unpacked if its name ends in .gz."""
    how = {"mode": "rt", "encoding": "utf-8-sig", "newline": ""}
    with gzip.open(source.path, **how) if source.compressed else source.path.open(**how) as file:  # type: ignore[call-overload] # the same arguments
        yield file


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn what readers raise about a file into one error that names it."""
    try:
        yield
    except InvalidLog:
        raise
    except UnicodeError:
        raise InvalidLog(
            "log", name, "it is not UTF-8 text", "save it as UTF-8, or as Parquet"
        ) from None
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        OSError,
        EOFError,
        csv.Error,
    ) as error:
        raise InvalidLog(
            "log",
            name,
            f"it is truncated, corrupt, or not what its name says ({first_line(error)})",
            "write the file again, or leave it out",
        ) from None
