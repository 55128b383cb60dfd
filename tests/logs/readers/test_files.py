"""Folders and patterns as files, files as batches: in order, numbered, and read ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support.logs.log_files import write
from tests.support.logs.text_logs import Columns
from understudy.errors import InvalidLog
from understudy.logs.readers.files import BATCH, find_files, format_of
from understudy.logs.readers.inputs import LogReader, prefetch

ROWS = pl.DataFrame({"action": ["a", "b"], "reward": [1.0, 0.0], "propensity": [0.5, 0.25]})


def test_rows_are_numbered_through_the_batches_of_a_file(tmp_path: Path) -> None:
    many = pl.DataFrame({"action": ["a"], "reward": [1.0], "propensity": [0.5]})
    path = write(tmp_path / "log.parquet", many.select(pl.all().repeat_by(BATCH + 10).explode()))
    reader = LogReader(find_files([path]), Columns())
    numbers = [frame["row"] for _, frame in reader.batches()]
    assert len(numbers) > 1
    assert pl.concat(numbers).to_list() == list(range(1, BATCH + 11))


def test_folders_and_globs_are_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "day=2").mkdir()
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".hidden.csv").write_text("x")
    (tmp_path / "notes.md").write_text("x")
    names = ["b.csv", "a.parquet", "day=2/c.ndjson"]
    for name in names:
        write(tmp_path / name, ROWS)
    found = [str(source.path.relative_to(tmp_path)) for source in find_files([tmp_path])]
    assert found == ["a.parquet", "b.csv", "day=2/c.ndjson"]
    assert [s.path.name for s in find_files([str(tmp_path / "*.csv"), tmp_path / "a.parquet"])] == [
        "b.csv",
        "a.parquet",
    ]
    with pytest.raises(InvalidLog, match="named twice"):
        find_files([tmp_path, tmp_path / "b.csv"])
    with pytest.raises(InvalidLog, match="no file matches"):
        find_files([str(tmp_path / "*.arrow")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidLog, match="holds no log"):
        find_files([tmp_path / "empty"])
    with pytest.raises(InvalidLog, match="does not say what format"):
        format_of(Path("log.txt"))


def test_reading_ahead_keeps_order_and_errors() -> None:
    def some() -> Any:
        yield from range(10)
        raise ValueError("broken")

    items = prefetch(some())
    assert [next(items) for _ in range(10)] == list(range(10))
    with pytest.raises(ValueError, match="broken"):
        next(items)
    first = next(prefetch(iter(range(10**9))))
    assert first == 0
