"""Arrow files by PyArrow, which checks what it reads.

Polars reads them too, but of one that is damaged it writes a page to standard error for each fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.ipc
from polars.io.plugins import register_io_source

__all__ = ["check_arrow", "scan_arrow"]


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
