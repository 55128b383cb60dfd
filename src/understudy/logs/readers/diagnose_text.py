"""Which line of a text table is wrong: a slow, exact search once a fast reader refused the file."""

from __future__ import annotations

import csv
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from understudy.logs.readers.files import FileSource
from understudy.logs.readers.text import BYTE_ORDER_MARK, open_text

LONGEST_JSON_ERROR = 80  # characters of Python's message, so that ours stays one line


class BrokenFile(ValueError):
    """A damaged file; the message says which line is wrong, and why."""


class JsonObject(tuple[tuple[str, Any], ...]):
    """The pairs of key and value of a JSON object, as written: a key may come twice."""

    __slots__ = ()


def diagnose_text(source: FileSource) -> str | None:
    """The first wrong line of a CSV or NDJSON file, in words; None if there is none.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv")
    ...     _ = path.write_text("action,reward\\na,1\\nb,0,7\\n", encoding="utf-8")
    ...     diagnose_text(FileSource(path, "csv"))
    'line 3 has 3 fields, the header has 2'
    """
    if source.format not in {"csv", "ndjson"}:
        return None
    with open_text(source) as file:
        if source.format == "csv":
            return _diagnose_csv(file, source.separator)
        try:
            deque(parse_json_lines(file), maxlen=0)
        except BrokenFile as broken:
            return str(broken)
    return None


def parse_json_lines(lines: Iterable[str]) -> Iterator[JsonObject]:
    """The object of each line that is not blank; `BrokenFile` names the first line without one.

    >>> next(parse_json_lines(['{"a": 1, "a": 2}']))
    (('a', 1), ('a', 2))
    >>> list(parse_json_lines(["{}", "[1]"]))
    Traceback (most recent call last):
    understudy.logs.readers.diagnose_text.BrokenFile: line 2 is no JSON object
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if line.startswith(BYTE_ORDER_MARK):
            raise BrokenFile("it begins with a byte order mark, which JSON must not")
        try:
            value = json.loads(line, object_pairs_hook=JsonObject, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            message = str(error)[:LONGEST_JSON_ERROR]
            raise BrokenFile(f"line {number} is not JSON: {message}") from None
        if not isinstance(value, JsonObject):
            raise BrokenFile(f"line {number} is no JSON object")
        yield value


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is no number in JSON, null is")


def _diagnose_csv(file: TextIO, separator: str) -> str | None:
    """The first row with too many fields, or with a quote in the wrong place."""
    lines = _QuoteCounter(file)
    reader = csv.reader(lines, delimiter=separator, strict=True)
    last = 0  # the last line of the row before
    with _unlimited_fields():
        try:
            header = next(reader, [])
            last = reader.line_num
            for row in reader:
                if len(row) > len(header):
                    return f"line {last + 1} has {len(row)} fields, the header has {len(header)}"
                last = reader.line_num
        except csv.Error as error:
            return f"line {last + 1}: {error}"
    return None if lines.unpaired is None else f"line {lines.unpaired} has a lone quote"


class _QuoteCounter:
    """The lines of a file, and the number of the first line with an odd count of quotes."""

    def __init__(self, file: TextIO) -> None:
        self.unpaired: int | None = None
        self._lines = enumerate(file, start=1)

    def __iter__(self) -> Iterator[str]:
        for number, line in self._lines:
            if self.unpaired is None and line.count('"') % 2:
                self.unpaired = number
            yield line


@contextmanager
def _unlimited_fields() -> Iterator[None]:
    """Python's csv module reads fields of any length."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)
