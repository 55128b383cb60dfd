"""Logs that are lines of text, read piece by piece: memory does not grow with the file."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TextIO

import polars as pl

from understudy.errors import first_line
from understudy.logs.readers.files import FileSource, invalid_file, open_bytes
from understudy.logs.schema import ACTION, PROPENSITY, REWARD, ROLE_OPTIONS, ROW, Columns

LINE = "line"
ROWS = 1 << 16  # lines of a frame, as in `tabular.BATCH`
PIECE = 1 << 23  # bytes read at a time: about 2^16 lines of 100 bytes
LONGEST = 1 << 26  # bytes of a line: a longer one is no text
BYTE_ORDER_MARK = "\ufeff"


def open_text(source: FileSource) -> TextIO:
    """A table of text to read, without a byte order mark if it is CSV; JSON must not have one."""
    table = source.format == "csv"
    encoding, newline = ("utf-8-sig", "") if table else ("utf-8", "\n")
    return io.TextIOWrapper(open_bytes(source.path), encoding=encoding, newline=newline)


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
        with open_bytes(path) as file:
            for before, text in _pieces(file, path):
                lines = pl.Series(LINE, [text]).str.split("\n").explode().str.strip_suffix("\r")
                frame = lines.to_frame().with_row_index(ROW, before + 1)
                yield from frame.with_columns(pl.col(ROW).cast(pl.Int64)).iter_slices(ROWS)
    except (OSError, EOFError, zlib.error) as error:
        reason = f"it cannot be read to its end ({first_line(error)})"
        raise invalid_file(path, reason, "check that it is complete") from None


def reward_of_cost(cost: pl.Expr) -> pl.Expr:
    """The reward −cost, both as text; text that is no number stays, so that the row is refused.

    >>> costs = pl.DataFrame({"cost": ["0.50", "-1", "+2", "--3", None]})
    >>> costs.select(reward_of_cost(pl.col("cost"))).to_series().to_list()
    ['-0.50', '1', '-2', '--3', None]
    """
    positive = pl.lit("-") + cost.str.strip_prefix("+")
    reward = pl.when(cost.str.starts_with("-")).then(cost.str.slice(1)).otherwise(positive)
    return pl.when(cost.cast(pl.Float64, strict=False).is_null()).then(cost).otherwise(reward)


def refuse_column_names(columns: Columns, path: Path) -> None:
    """Raise `InvalidLog` if columns are named that the format itself defines."""
    for role in (ACTION, REWARD, PROPENSITY):
        name = getattr(columns, role)
        if name not in {role, None}:
            raise invalid_file(
                path,
                f"it has no column {name!r}: its format defines where the action, the cost and the "
                "probability are",
                "leave out --action, --reward, --propensity and --preset",
            )


def select_roles(columns: Columns, values: Mapping[str, pl.Expr]) -> list[pl.Expr]:
    """The number of the row and, of the values by role, those that are read."""
    read = [role for role in ROLE_OPTIONS if role in values and getattr(columns, role) is not None]
    return [pl.col(ROW), *(values[role].alias(role) for role in read)]


def _pieces(file: BinaryIO, path: Path) -> Iterator[tuple[int, str]]:
    """Texts of whole lines, the last line without its end, and the number of lines before them."""
    before, rest = 0, b""
    while piece := file.read(PIECE):
        data = rest + piece
        if len(piece) < PIECE and not data.endswith(b"\n"):
            data += b"\n"  # the last line may have no end
        whole, end, rest = data.rpartition(b"\n")
        if end:
            yield before, _decode(whole, before, path)
            before += whole.count(b"\n") + 1
        if len(rest) > LONGEST:
            raise invalid_file(
                path,
                f"line {before + 1} is longer than {LONGEST} bytes",
                "pass a text file with one event or action per line",
            )
    if rest:
        yield before, _decode(rest, before, path)


def _decode(data: bytes, before: int, path: Path) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = before + 1 + data.count(b"\n", 0, error.start)
        reason = f"line {line} is not UTF-8 text"
        remedy = "convert the file first, such as with iconv -t UTF-8"
        raise invalid_file(path, reason, remedy) from None
    return text if before else text.removeprefix(BYTE_ORDER_MARK)
