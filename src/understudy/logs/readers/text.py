"""What other libraries say, in a line of ours.

Logs that are lines of text: read piece by piece, so that memory does not grow with the file.

Which line of a text file is wrong, looked for once a fast reader has refused the file.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import polars as pl

from understudy.errors import InvalidLog, first_line
from understudy.logs.readers.files import Source
from understudy.logs.schema import ACTION, PROPENSITY, REWARD, ROW, Columns

__all__ = [
    "LINE",
    "BrokenFile",
    "Pairs",
    "first_fault",
    "negated",
    "parsed",
    "read_lines",
    "require_own_names",
    "text_of",
]


LINE = "line"
ROWS = 1 << 16
PIECE = 1 << 23  # bytes
LONGEST = 1 << 26  # bytes of a line: more is no text


def read_lines(path: Path) -> Iterator[pl.DataFrame]:
    r"""The lines of a UTF-8 file, which may be gzipped: frames of `row`, from 1, and `line`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.txt")
    ...     _ = path.write_bytes(b"one\r\n\ntwo")
    ...     [frame.rows() for frame in read_lines(path)]
    [[(1, 'one'), (2, ''), (3, 'two')]]
    """
    try:
        with _opened(path) as file:
            for before, text in _texts(file, path):
                lines = pl.Series(LINE, [text]).str.split("\n").explode().str.strip_suffix("\r")
                frame = lines.to_frame().with_row_index(ROW, before + 1)
                yield from frame.with_columns(pl.col(ROW).cast(pl.Int64)).iter_slices(ROWS)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidLog(
            "log",
            str(path),
            f"it cannot be read to its end ({first_line(error)})",
            "check that it is complete",
        ) from None


def negated(cost: pl.Expr) -> pl.Expr:
    """The reward of a cost, both as text; what is no number stays as it is, to be refused as such.

    >>> costs = pl.DataFrame({"cost": ["0.50", "-1", "+2", "--3", None]})
    >>> costs.select(negated(pl.col("cost"))).to_series().to_list()
    ['-0.50', '1', '-2', '--3', None]
    """
    positive = pl.lit("-") + cost.str.strip_prefix("+")
    reward = pl.when(cost.str.starts_with("-")).then(cost.str.slice(1)).otherwise(positive)
    return pl.when(cost.cast(pl.Float64, strict=False).is_null()).then(cost).otherwise(reward)


def require_own_names(columns: Columns, path: Path) -> None:
    """Refuse names for what the format names itself.

    >>> require_own_names(Columns(reward="click"), Path("log.vw"))
    Traceback (most recent call last):
    understudy.errors.InvalidLog: log = 'log.vw': it has no column 'click': its format says ...
    """
    roles = ((columns.action, ACTION), (columns.reward, REWARD), (columns.propensity, PROPENSITY))
    for name, own in roles:
        if name not in {own, None}:
            raise InvalidLog(
                "log",
                str(path),
                f"it has no column {name!r}: its format says itself where the action, the cost and "
                "the probability are",
                "leave out --action, --reward, --propensity and --preset",
            )


def _opened(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _texts(file: BinaryIO, path: Path) -> Iterator[tuple[int, str]]:
    """Whole lines, the last without its end, and how many lines came before them."""
    before, rest = 0, b""
    while piece := file.read(PIECE):
        data = rest + piece
        if len(piece) < PIECE and not data.endswith(b"\n"):
            data += b"\n"  # the last line may have no end
        whole, end, rest = data.rpartition(b"\n")
        if end:
            yield before, _decoded(whole, before, path)
            before += whole.count(b"\n") + 1
        if len(rest) > LONGEST:
            raise InvalidLog(
                "log",
                str(path),
                f"line {before + 1} is longer than {LONGEST} bytes",
                "pass a file of text with one event or action a line",
            )
    if rest:
        yield before, _decoded(rest, before, path)


def _decoded(data: bytes, before: int, path: Path) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = before + 1 + data.count(b"\n", 0, error.start)
        raise InvalidLog(
            "log",
            str(path),
            f"line {line} is not UTF-8 text",
            "convert it first, such as with iconv -t UTF-8",
        ) from None
    return text if before else text.removeprefix("\ufeff")


LONGEST_JSON_ERROR = 80  # characters of a foreign message
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
    understudy.logs.readers.text.BrokenFile: line 2 is no JSON object
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if line.startswith(BYTE_ORDER_MARK):
            raise BrokenFile("it begins with a byte order mark, which JSON must not")
        try:
            value = json.loads(line, object_pairs_hook=Pairs, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise BrokenFile(
                f"line {number} is not JSON: {str(error)[:LONGEST_JSON_ERROR]}"
            ) from None
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
