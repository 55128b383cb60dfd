"""Which line of a text file is wrong, looked for once a fast reader has refused the file."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from understudy.logs.sources import Source

__all__ = ["BrokenFile", "Pairs", "first_fault", "parsed", "text_of"]

WORDS = 80  # characters of a foreign message
BYTE_ORDER_MARK = "\ufeff"


class BrokenFile(ValueError):
    """A file that is not what it should be; the message says which line of it, and why."""


class Pairs(tuple[tuple[str, Any], ...]):
    """The keys and values of a JSON object, as they were written: a key may come twice."""

    __slots__ = ()


@contextmanager
def text_of(source: Source) -> Iterator[TextIO]:
    """A text file to read, unpacked if its name ends in .gz; tables may have a byte order mark.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv.gz")
    ...     _ = path.write_bytes(gzip.compress(b"a,b"))
    ...     with text_of(Source(path, "csv")) as file:
    ...         file.read()
    'a,b'
    """
    table = source.format == "csv"
    how = {
        "mode": "rt",
        "encoding": "utf-8-sig" if table else "utf-8",
        "newline": "" if table else "\n",
    }
    with gzip.open(source.path, **how) if source.compressed else source.path.open(**how) as file:  # type: ignore[call-overload] # the same arguments
        yield file


def first_fault(source: Source) -> str | None:
    """The first line that is wrong, in words; None if a plain reader finds none.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv")
    ...     _ = path.write_text("action,reward\\na,1\\nb,0,7\\n", encoding="utf-8")
    ...     first_fault(Source(path, "csv"))
    'line 3 has 3 fields, the header has 2'
    """
    if source.format not in {"csv", "ndjson"}:
        return None
    with text_of(source) as file:
        if source.format == "csv":
            return _first_row(file, source.separator)
        try:
            deque(parsed(file), maxlen=0)
        except BrokenFile as broken:
            return str(broken)
    return None


def parsed(lines: Iterable[str]) -> Iterator[Pairs]:
    """The object in each line that is not blank; `BrokenFile` with its number if it is none.

    >>> next(parsed(['{"a": 1, "a": 2}']))
    (('a', 1), ('a', 2))
    >>> list(parsed(["{}", "[1]"]))
    Traceback (most recent call last):
    understudy.logs.faults.BrokenFile: line 2 is no JSON object
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if line.startswith(BYTE_ORDER_MARK):
            raise BrokenFile("it begins with a byte order mark, which JSON must not")
        try:
            value = json.loads(line, object_pairs_hook=Pairs, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise BrokenFile(f"line {number} is not JSON: {str(error)[:WORDS]}") from None
        if not isinstance(value, Pairs):
            raise BrokenFile(f"line {number} is no JSON object")
        yield value


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON, null is")


def _first_row(file: TextIO, separator: str) -> str | None:
    """The first row of a table that has too many fields, or quotes in the wrong places."""
    lone = _LoneQuote(file)
    reader = csv.reader(lone, delimiter=separator, strict=True)
    before = 0  # lines that rows so far have taken
    with _fields_of_any_length():
        try:
            header = next(reader, [])
            before = reader.line_num
            for row in reader:
                if len(row) > len(header):
                    fields = f"{len(row)} fields, the header has {len(header)}"
                    return f"line {before + 1} has {fields}"
                before = reader.line_num
        except csv.Error as error:
            return f"line {before + 1}: {error}"
    return None if lone.line is None else f"line {lone.line} has a lone quote"


class _LoneQuote:
    """The lines of a file, and which is the first with one quote too many."""

    def __init__(self, file: TextIO) -> None:
        self.line: int | None = None
        self._lines = enumerate(file, start=1)

    def __iter__(self) -> Iterator[str]:
        for number, line in self._lines:
            if self.line is None and line.count('"') % 2:
                self.line = number
            yield line


@contextmanager
def _fields_of_any_length() -> Iterator[None]:
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)
