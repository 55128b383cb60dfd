"""Files of text for the readers of logs, and what makes a row one that cannot be learned from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from understudy.logs.schema import Columns

__all__ = ["Columns", "Reader", "Row", "is_refused", "number", "rows_of"]

Reader = Callable[[Path, Columns], Iterator[pl.DataFrame]]
Row = dict[str, Any]


def rows_of(
    reader: Reader, content: str | bytes, columns: Columns | None = None, name: str = "log"
) -> list[Row]:
    """All rows that a reader finds in a file of that content."""
    data = content if isinstance(content, bytes) else content.encode()
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        frames = list(reader(path, columns or Columns()))
    assert all(len(frame) for frame in frames)
    assert len({tuple(frame.schema.items()) for frame in frames}) <= 1
    return [row for frame in frames for row in frame.to_dicts()]


def number(text: str | None) -> float | None:
    """The number that a text is, if it is one."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def is_refused(row: Row) -> bool:
    """Whether a check of the row finds something missing, no number, or out of range."""
    reward, propensity = number(row["reward"]), number(row["propensity"])
    if row["action"] is None or reward is None or propensity is None:
        return True
    return not math.isfinite(reward) or not 0.0 < propensity <= 1.0
