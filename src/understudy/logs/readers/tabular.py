"""Tables in files: CSV, Parquet, NDJSON and Arrow, read through Polars a batch of rows at a time.

Values of text formats stay text here. Validation makes numbers of them, so that a value that is no
number costs one row and not the file.
"""

from __future__ import annotations

import csv
import glob
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from understudy.errors import first_line
from understudy.logs.readers.files import BATCH, FileSource, invalid_file, unreadable
from understudy.logs.readers.text_tables import BrokenFile, csv_header, json_keys, wrong_line
from understudy.logs.schema import ROW, Columns

NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # Hive's name for null
READ_ERRORS = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    pa.ArrowException,
    OSError,
    EOFError,
    BrokenFile,
    csv.Error,
    zlib.error,
)


def read(source: FileSource, columns: Columns) -> Iterator[pl.DataFrame]:
    """The rows of a file in their order, numbered from 1, under the column names of `schema`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv")
    ...     _ = path.write_text("action,reward,propensity\\na,1,0.5\\n", encoding="utf-8")
    ...     [frame.rows() for frame in read(FileSource(path, "csv"), Columns())]
    [[(1, 'a', '1', '0.5')]]
    """
    first = 1
    with _one_error(source):
        frame = scan(source, columns)
        for batch in frame.collect_batches(chunk_size=BATCH, maintain_order=True):
            rows = pl.int_range(first, first + batch.height, dtype=pl.Int64, eager=True)
            yield batch.insert_column(0, rows.alias(ROW))
            first += batch.height
        if source.format == "parquet" and first - 1 != pq.read_metadata(source.path).num_rows:
            raise BrokenFile("a page is damaged")  # a reader that fails in its thread may just end


def scan(source: FileSource, columns: Columns) -> pl.LazyFrame:
    """The columns of a file that are read, as a lazy frame."""
    with _one_error(source):
        frame, found = _open(source, columns)
        columns.require(found, source.name)
        return frame.select(columns.selection())


def names(source: FileSource, columns: Columns) -> list[str]:
    """All columns of a file, as the file names them."""
    with _one_error(source):
        return _open(source, columns)[1]


def scan_arrow(path: Path) -> pl.LazyFrame:
    """The rows of an Arrow file, read and checked by PyArrow.

    Polars would write a page to standard error for each fault of a damaged file.
    """

    def batches(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        left = rows
        for frame in _arrow_batches(path, columns):
            found = frame if left is None else frame.head(left)
            left = None if left is None else left - len(found)
            yield found if predicate is None else found.filter(predicate)
            if left == 0:
                return

    return register_io_source(batches, schema=_arrow_schema(path))


def check_arrow(path: Path) -> None:
    """Read a whole Arrow file and check it: another engine would crash on a damaged one."""
    for _ in _arrow_batches(path, None):
        pass


def _open(source: FileSource, columns: Columns) -> tuple[pl.LazyFrame, list[str]]:
    """A file as a lazy frame, and its columns, with those that the names of its folders add."""
    found: list[str] | None = None
    if source.format == "csv":
        found = csv_header(source, columns)
        frame = pl.scan_csv(source.path, infer_schema=False, separator=source.separator, glob=False)
    elif source.format == "ndjson":
        found = json_keys(source, columns)
        schema = dict.fromkeys(columns.names(), pl.String)
        frame = pl.scan_ndjson(glob.escape(source.name), schema=schema)
    elif source.format == "arrow":
        frame = scan_arrow(source.path)
    else:
        _check_pages(source, columns)
        frame = pl.scan_parquet(source.path, glob=False)
    found = frame.collect_schema().names() if found is None else found
    added = {name: value for name, value in _partition(source).items() if name not in found}
    return frame.with_columns(**added), [*found, *added]


def _partition(source: FileSource) -> dict[str, pl.Expr]:
    """Columns in the names of folders, as Hive writes them: day=2026-01-31."""
    pairs = (folder.partition("=") for folder in source.path.parent.parts)
    values = {unquote(name): unquote(value) for name, sign, value in pairs if sign and name}
    return {
        name: pl.lit(None if value == NO_PARTITION else value, pl.String)
        for name, value in values.items()
    }


def _check_pages(source: FileSource, columns: Columns) -> None:
    """Raise `InvalidLog` if pages of Parquet lie outside of the file: Polars does not check."""
    size, metadata = source.path.stat().st_size, pq.read_metadata(source.path)
    read = [
        number
        for number in range(metadata.num_columns)
        if metadata.schema.column(number).path.partition(".")[0] in columns.names()
    ]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, read):
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            if not 0 <= first <= first + chunk.total_compressed_size <= size:
                raise invalid_file(source.path, "a part of it is missing", "write the file again")


def _arrow_batches(path: Path, columns: list[str] | None) -> Iterator[pl.DataFrame]:
    names = _arrow_schema(path).names()
    fields = None if columns is None else sorted(names.index(name) for name in columns)
    options = pyarrow.ipc.IpcReadOptions(included_fields=fields)
    with pa.OSFile(str(path)) as file, pyarrow.ipc.open_file(file, options=options) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            batch.validate(full=True)
            yield pl.DataFrame(batch)


def _arrow_schema(path: Path) -> pl.Schema:
    with pa.OSFile(str(path)) as file, pyarrow.ipc.open_file(file) as reader:
        return pl.DataFrame(reader.schema.empty_table()).schema


@contextmanager
def _one_error(source: FileSource) -> Iterator[None]:
    """Turn every error that a reader raises about a file into an `InvalidLog` that names it."""
    try:
        yield
    except UnicodeError:
        remedy = "save it as UTF-8, or as Parquet"
        raise invalid_file(source.path, "it is not UTF-8 text", remedy) from None
    except READ_ERRORS as error:
        if isinstance(error, OSError) and not source.path.is_file():
            raise unreadable(source.path, error) from None
        raise invalid_file(
            source.path,
            f"it is truncated, corrupt, or not what its name says ({_diagnose(source, error)})",
            "write the file again, or leave it out",
        ) from None


def _diagnose(source: FileSource, error: BaseException) -> str:
    """The line that is wrong, or else the message of the reader."""
    with suppress(UnicodeError, *READ_ERRORS):
        if wrong := wrong_line(source):
            return wrong
    return first_line(error)
