"""Arrow files by PyArrow, which checks what it reads.

Polars reads them too, but of one that is damaged it writes a page to standard error for each fault.

Tables in files, through Polars: CSV, Parquet, NDJSON and Arrow, a batch of rows at a time.

Text formats are read as text and made numbers of by the checks, so that a value that is no number
is one quarantined row and not the end of the file.
"""

from __future__ import annotations

import csv
import glob
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from understudy.errors import InvalidLog, first_line
from understudy.logs.readers.files import Source, unreadable
from understudy.logs.readers.text import BrokenFile, Pairs, first_fault, parsed, text_of
from understudy.logs.schema import ROW, Columns

__all__ = ["BATCH", "check_arrow", "header_of", "names", "read", "scan", "scan_arrow"]


def scan_arrow(path: Path) -> pl.LazyFrame:
    """The rows of a file, read a batch at a time, and only the columns that are asked for.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.arrow")
    ...     pl.DataFrame({"action": ["a", "b"], "reward": [1, 0]}).write_ipc(path)
    ...     scan_arrow(path).select("reward").collect().rows()
    [(1,), (0,)]
    """

    def batches(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        left = rows
        for frame in _frames(path, columns):
            found = frame if left is None else frame.head(left)
            left = None if left is None else left - len(found)
            yield found if predicate is None else found.filter(predicate)
            if left == 0:
                return

    return register_io_source(batches, schema=_schema(path))


def check_arrow(path: Path) -> None:
    """Go over a file that others will read without a check: a damaged one would end the process.

    >>> check_arrow(Path("nowhere.arrow"))
    Traceback (most recent call last):
    FileNotFoundError: ...
    """
    for _ in _frames(path, None):
        pass


def _schema(path: Path) -> pl.Schema:
    with pa.OSFile(str(path)) as file, pyarrow.ipc.open_file(file) as reader:
        return _polars(reader.schema.empty_table()).schema


def _frames(path: Path, columns: list[str] | None) -> Iterator[pl.DataFrame]:
    names = _schema(path).names()
    fields = None if columns is None else sorted(names.index(name) for name in columns)
    options = pyarrow.ipc.IpcReadOptions(included_fields=fields)
    with pa.OSFile(str(path)) as file, pyarrow.ipc.open_file(file, options=options) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            batch.validate(full=True)
            yield _polars(batch)


def _polars(table: Any) -> pl.DataFrame:
    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)
    return found


BATCH = 1 << 16  # rows at a time
PEEK = 1_000  # lines of NDJSON whose keys are looked at
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
Opened = tuple[pl.LazyFrame, list[str]]
BROKEN = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    pa.ArrowException,
    OSError,
    EOFError,
    BrokenFile,
    csv.Error,
    zlib.error,
)


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
    with readable(source):
        frame = scan(source, columns)
        for batch in frame.collect_batches(chunk_size=BATCH, maintain_order=True):
            rows = pl.int_range(first, first + batch.height, dtype=pl.Int64, eager=True)
            yield batch.insert_column(0, rows.alias(ROW))
            first += batch.height
        _check_all_read(source, first - 1)


def scan(source: Source, columns: Columns) -> pl.LazyFrame:
    """The columns that are read of a file, with our names, before any row of it is."""
    with readable(source):
        frame, found = _opened(source, columns)
        columns.require(found, source.name)
        return frame.select(
            pl.col(theirs).alias(ours) for theirs, ours in columns.renamed().items()
        )


def names(source: Source, columns: Columns) -> list[str]:
    """The columns that a file has, as it calls them."""
    with readable(source):
        return _opened(source, columns)[1]


def _opened(source: Source, columns: Columns) -> Opened:
    """A file with its columns, and those that the names of its folders add to them."""
    frame, found = _OPEN[source.format](source, columns)
    added = {name: value for name, value in _partition(source).items() if name not in found}
    return frame.with_columns(**added), [*found, *added]


def _partition(source: Source) -> dict[str, pl.Expr]:
    """What folders say of all rows below them, as Hive names them: day=2026-01-31."""
    pairs = (folder.partition("=") for folder in source.path.parent.parts)
    said = {unquote(name): unquote(value) for name, sign, value in pairs if sign and name}
    return {
        name: pl.lit(None if value == NO_PARTITION else value, pl.String)
        for name, value in said.items()
    }


def _parquet(source: Source, columns: Columns) -> Opened:
    _check_pages(source, columns)
    frame = pl.scan_parquet(source.path, glob=False)
    return frame, frame.collect_schema().names()


def _check_all_read(source: Source, rows: int) -> None:
    """A reader that fails in a thread of its own may end as if there were no more rows."""
    if source.format == "parquet" and rows != pq.read_metadata(source.path).num_rows:
        raise BrokenFile("a page is damaged")


def _check_pages(source: Source, columns: Columns) -> None:
    """Whether all that is read is inside of the file, for which Polars does not ask."""
    size, found = source.path.stat().st_size, pq.read_metadata(source.path)
    read = [
        number
        for number in range(found.num_columns)
        if found.schema.column(number).path.partition(".")[0] in columns.names()
    ]
    for group in map(found.row_group, range(found.num_row_groups)):
        for chunk in map(group.column, read):
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            if not 0 <= first <= first + chunk.total_compressed_size <= size:
                raise InvalidLog(
                    "log", source.name, "a part of it is missing", "write the file again"
                )


def _arrow(source: Source, columns: Columns) -> Opened:  # noqa: ARG001 - one signature
    frame = scan_arrow(source.path)
    return frame, frame.collect_schema().names()


def _csv(source: Source, columns: Columns) -> Opened:
    header = header_of(source, columns)
    frame = pl.scan_csv(source.path, infer_schema=False, separator=source.separator, glob=False)
    return frame, header


def header_of(source: Source, columns: Columns) -> list[str]:
    """The header of a text table, if no column that is read is there twice."""
    with text_of(source) as file:
        header = next(csv.reader(file, delimiter=source.separator), [])
        only_returns = file.newlines == "\r"
    _check_header(header, source, columns, only_returns=only_returns)
    return header


def _check_header(
    header: list[str], source: Source, columns: Columns, *, only_returns: bool
) -> None:
    """Say what is odd about a table of text, where its first line shows it."""
    if only_returns:
        raise InvalidLog(
            "log",
            source.name,
            "its lines end in carriage returns alone",
            "convert it, such as with tr '\\r' '\\n'",
        )
    others = [words for sign, words in SEPARATORS.items() if sign in "".join(header)]
    if len(header) == 1 and others:
        raise InvalidLog(
            "log",
            source.name,
            f"its fields are separated by {others[0]}, not by {SEPARATORS[source.separator]}",
            "write .csv files with commas and .tsv files with tabs",
        )
    _refuse_repeated(header, source, columns)


def _refuse_repeated(found: list[str], source: Source, columns: Columns) -> None:
    for name in columns.names():
        if found.count(name) > 1:
            raise InvalidLog(
                "log", source.name, f"it has two columns {name!r}", "give each its own name"
            )


def _ndjson(source: Source, columns: Columns) -> Opened:
    found: dict[str, bool] = {}  # whether all values of a key are nested
    with text_of(source) as file:
        for pairs in parsed(islice(file, PEEK)):
            _refuse_repeated([name for name, _ in pairs], source, columns)
            for name, value in pairs:
                found[name] = found.get(name, True) and isinstance(value, Pairs | list)
    if found.get(columns.action, False):
        raise InvalidLog(
            "log",
            source.name,
            f"its column {columns.action!r} holds lists or objects, not labels",
            "name another column with --action",
        )
    schema = dict.fromkeys(columns.names(), pl.String)
    return pl.scan_ndjson(glob.escape(source.name), schema=schema), list(found)


_OPEN = {"parquet": _parquet, "arrow": _arrow, "csv": _csv, "ndjson": _ndjson}


@contextmanager
def readable(source: Source) -> Iterator[None]:
    """Turn what readers raise about a file into one error that names it."""
    try:
        yield
    except InvalidLog:
        raise
    except UnicodeError:
        raise InvalidLog(
            "log", source.name, "it is not UTF-8 text", "save it as UTF-8, or as Parquet"
        ) from None
    except BROKEN as error:
        if isinstance(error, OSError) and not source.path.is_file():
            raise unreadable(source.name, error) from None
        raise InvalidLog(
            "log",
            source.name,
            f"it is truncated, corrupt, or not what its name says ({_why(source, error)})",
            "write the file again, or leave it out",
        ) from None


def _why(source: Source, error: BaseException) -> str:
    """The line that is wrong, or else what the reader says."""
    with suppress(UnicodeError, *BROKEN):
        if wrong := first_fault(source):
            return wrong
    return first_line(error)
