"""Text tables, CSV and NDJSON: their columns, and the search for a wrong line."""

from __future__ import annotations

import csv
import glob
import io
import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TextIO

import polars as pl
from polars.io.plugins import register_io_source

from understudy.errors import first_line
from understudy.logs.readers.files import (
    BATCH,
    BYTE_ORDER_MARK,
    FileSource,
    invalid_file,
    open_bytes,
    read_records,
)
from understudy.logs.schema import Columns

LINES_PEEKED = 1_000  # of NDJSON: keys that come later are not known as columns
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
Frames = Callable[[list[str] | None], Iterator[pl.DataFrame]]  # by the columns, None for all
Pairs = tuple[tuple[str, Any], ...]  # a JSON object as it is written: a key may come twice


class BrokenFile(ValueError):
    """A damaged file; the message says which line is wrong, and why."""


def csv_header(source: FileSource, columns: Columns) -> list[str]:
    """The header of a CSV file, or `InvalidLog` if it cannot be that of a log."""
    with _open_text(source) as file:
        header = next(csv.reader(file, delimiter=source.separator), [])
        line_ends = file.newlines
    if line_ends == "\r":
        reason = "its lines end in carriage returns alone"
        raise invalid_file(source.path, reason, "convert it, such as with tr '\\r' '\\n'")
    others = [words for sign, words in SEPARATORS.items() if sign in "".join(header)]
    if len(header) == 1 and others:
        reason = f"its fields are separated by {others[0]}, not by {SEPARATORS[source.separator]}"
        remedy = "write .csv files with commas and .tsv files with tabs"
        raise invalid_file(source.path, reason, remedy)
    _refuse_repeated(header, source, columns)
    return header


def json_keys(source: FileSource, columns: Columns) -> list[str]:
    """The keys of the first objects of an NDJSON file, or `InvalidLog` if it cannot be a log."""
    nested: dict[str, bool] = {}  # whether all values of a key are lists or objects
    with _open_text(source) as file:
        for pairs in _parse_json_lines(islice(file, LINES_PEEKED)):
            _refuse_repeated([key for key, _ in pairs], source, columns)
            for key, value in pairs:
                nested[key] = nested.get(key, True) and isinstance(value, tuple | list)
    if nested.get(columns.action, False):
        reason = f"its column {columns.action!r} holds lists or objects, not labels"
        raise invalid_file(source.path, reason, "name another column with --action")
    return list(nested)


def scan_csv(source: FileSource) -> pl.LazyFrame:
    """The rows of a CSV file, as text.

    Polars reads ahead, and 256 million empty lines, which gzip packs into 260 kB, took 3.6 GB. So
    it gets the records of a gzip file in blocks.
    """
    if not source.is_compressed:
        return pl.scan_csv(source.path, infer_schema=False, separator=source.separator, glob=False)

    def frames(columns: list[str] | None) -> Iterator[pl.DataFrame]:
        for text in read_records(source):
            yield pl.read_csv(
                text,
                columns=columns,
                separator=source.separator,
                infer_schema=False,
                raise_if_empty=False,
            )

    return lazy_frame(frames, next(frames(None)).schema)


def scan_ndjson(source: FileSource, keys: Sequence[str]) -> pl.LazyFrame:
    """The values of some keys of an NDJSON file, as text, read as by `scan_csv`."""
    schema = dict.fromkeys(keys, pl.String)
    if not source.is_compressed:
        return pl.scan_ndjson(glob.escape(source.name), schema=schema)

    def frames(columns: list[str] | None) -> Iterator[pl.DataFrame]:
        kinds = dict.fromkeys(columns or keys, pl.String)
        return (pl.read_ndjson(text, schema=kinds) for text in read_records(source))

    return lazy_frame(frames, schema)


def lazy_frame(
    frames: Frames, schema: Mapping[str, pl.DataType | type[pl.DataType]]
) -> pl.LazyFrame:
    """The rows of frames that are made one after the other, as a lazy frame."""

    def batches(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        left = rows
        for frame in frames(columns):
            part = frame if left is None else frame.head(left)
            left = None if left is None else left - len(part)
            yield from (part if predicate is None else part.filter(predicate)).iter_slices(BATCH)
            if left == 0:
                return

    return register_io_source(batches, schema=schema)


def wrong_line(source: FileSource) -> str | None:
    """The first wrong line of a CSV or NDJSON file, in words; None if there is none.

    This is a slow, exact search, for files that a fast reader refused.
    """
    if source.format not in {"csv", "ndjson"}:
        return None
    with _open_text(source) as file:
        if source.format == "csv":
            return _wrong_csv_line(file, source.separator)
        try:
            deque(_parse_json_lines(file), maxlen=0)
        except BrokenFile as broken:
            return str(broken)
    return None


def _parse_json_lines(lines: Iterable[str]) -> Iterator[Pairs]:
    """The object of each line that is not blank; `BrokenFile` names the first line without one."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if line.startswith(BYTE_ORDER_MARK):
            raise BrokenFile("it begins with a byte order mark, which JSON must not")
        try:
            value = json.loads(line, object_pairs_hook=tuple, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise BrokenFile(f"line {number} is not JSON: {first_line(error)}") from None
        if not isinstance(value, tuple):
            raise BrokenFile(f"line {number} is no JSON object")
        yield value


def _open_text(source: FileSource) -> TextIO:
    """The text of a table, without a byte order mark if it is CSV; JSON must not have one."""
    encoding, newline = ("utf-8-sig", "") if source.format == "csv" else ("utf-8", "\n")
    return io.TextIOWrapper(open_bytes(source.path), encoding=encoding, newline=newline)


def _refuse_repeated(names: list[str], source: FileSource, columns: Columns) -> None:
    for name in columns.names():
        if names.count(name) > 1:
            reason = f"it has two columns {name!r}"
            raise invalid_file(source.path, reason, "give each its own name")


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is no number in JSON, null is")


def _wrong_csv_line(file: TextIO, separator: str) -> str | None:
    """The first row with too many fields, or with a quote in the wrong place."""
    limit = csv.field_size_limit(sys.maxsize)
    last = 0  # the last line of the row before
    try:
        reader = csv.reader(file, delimiter=separator, strict=True)
        header = next(reader, [])
        last = reader.line_num
        for row in reader:
            if len(row) > len(header):
                return f"line {last + 1} has {len(row)} fields, the header has {len(header)}"
            last = reader.line_num
    except csv.Error as error:
        return f"line {last + 1}: {error}"
    finally:
        csv.field_size_limit(limit)
    file.seek(0)
    odd = (number for number, line in enumerate(file, start=1) if line.count('"') % 2)
    unpaired = next(odd, None)
    return None if unpaired is None else f"line {unpaired} has a lone quote"
