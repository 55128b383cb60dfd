"""Logs that are lines of text: read piece by piece, so that memory does not grow with the file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl

from understudy.errors import InvalidLog
from understudy.logs.columns import ACTION, PROPENSITY, REWARD, ROW, Columns
from understudy.logs.foreign import first_line

__all__ = ["LINE", "negated", "read_lines", "require_own_names"]

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
