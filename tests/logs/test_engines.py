"""Engines of `understudy.logs.aggregation`: files read alike, faults said in one line."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from tests.support.logs.invalid_rows import dirty_log
from tests.support.logs.log_files import write
from tests.support.logs.sums import Columns, FileSource, LogStatistics
from understudy.errors import InvalidArgument, InvalidLog, MissingExtra
from understudy.logs.aggregation import engines
from understudy.logs.aggregation.aggregates import log_statistics
from understudy.logs.aggregation.engines import ENGINES, lazy, open_frame

pytestmark = pytest.mark.plain

HERE = [engine for engine in ENGINES if engine != "pyspark"]
FORMATS = ("csv", "parquet", "ndjson", "arrow")


def written(table: pa.Table, form: str, path: Path) -> Path:
    if form == "csv":
        pl.DataFrame(pl.from_arrow(table)).write_csv(path)
    elif form == "parquet":
        pyarrow.parquet.write_table(table, path)
    elif form == "arrow":
        pyarrow.feather.write_feather(table, path, compression="uncompressed")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return path


def finite(table: pa.Table) -> pa.Table:
    """JSON knows no other numbers."""
    frame = pl.DataFrame(pl.from_arrow(table))
    numbers = pl.col("reward", "propensity")
    return frame.with_columns(pl.when(numbers.is_finite()).then(numbers)).to_arrow()


def read(engine: str, *sources: FileSource, columns: Columns | None = None) -> LogStatistics:
    with open_frame(engine, sources, columns or Columns()) as frame:
        return log_statistics(frame, columns or Columns())


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("engine", HERE)
def test_every_format_says_the_same_on_every_engine(engine: str, form: str, tmp_path: Path) -> None:
    table = finite(dirty_log())
    path = written(table, form, tmp_path / f"log.{form}")
    found, expected = read(engine, FileSource(path, form)), log_statistics(table, Columns())
    assert found.reject_counts == expected.reject_counts
    assert found.actions == expected.actions
    np.testing.assert_allclose(found.sums.squares, expected.sums.squares, rtol=1e-9)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("engine", HERE)
def test_a_name_is_no_pattern(engine: str, form: str, tmp_path: Path) -> None:
    """Files that Polars writes itself, whose texts other libraries may not know.

    As a pattern, each name would find a file that was not asked for.
    """
    rows = pl.DataFrame({"action": ["a", "b"], "reward": 1.0, "propensity": 0.5})
    write(tmp_path / f"log1.{form}", pl.concat([rows] * 10))
    names = ("log[1]", "lo*", "log?", "log{1,2}")
    sources = [FileSource(write(tmp_path / f"{name}.{form}", rows), form) for name in names]
    assert read(engine, *sources).sums.counts.tolist() == [4, 4]


@pytest.mark.parametrize("engine", HERE)
def test_compressed_text_is_read(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"action,reward,propensity\na,1,0.5\nb,1,0.5\n"))
    assert read(engine, FileSource(path, "csv")).sums.counts.tolist() == [1, 1]


@pytest.mark.parametrize("engine", HERE)
def test_only_the_columns_that_are_named_are_read(engine: str, tmp_path: Path) -> None:
    table = dirty_log()
    path = written(table, "parquet", tmp_path / "log.parquet")
    with open_frame(
        engine, [FileSource(path, "parquet")], Columns(propensity=None, target="target")
    ) as log:
        assert list(lazy(log).collect_schema()) == ["action", "reward", "target"]


HEAD = b"action,reward,propensity\n"
BROKEN: dict[str, tuple[str, bytes | None]] = {
    "missing": ("csv", None),
    "empty": ("csv", b""),
    "empty table": ("parquet", b""),
    "text for a table": ("parquet", b"action,reward\n"),
    "binary": ("csv", bytes(range(256)) * 20),
    "other columns": ("csv", b"a,b\n1,2\n"),
    "more fields": ("csv", HEAD + b"a,1,0.5\nb,1,0.5,7,8\n"),
    "two columns of one name": ("csv", b"action,action,reward,propensity\na,b,1,0.5\n"),
    "a quote that does not end": ("csv", HEAD + b'"a,1,0.5\nb,1,0.5\n'),
    "another encoding": ("csv", HEAD + b"caf\xe9,1,0.5\nb,1,0.5\n"),
    "no gz": ("csv.gz", b"\x1f\x8b" + HEAD),
    "a line that is cut": ("ndjson", b'{"action":1,"reward":1,"propensity":0.5}\n{"action":2,"rew'),
    "no JSON": ("ndjson", b"hello\n"),
    "lists": ("ndjson", b'{"action":[1],"reward":1,"propensity":0.5}\n'),
    "no Arrow": ("arrow", b"hello, this is not a table"),
    "a header only": ("csv", HEAD),
}


@pytest.mark.parametrize(("ending", "content"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("engine", HERE)
def test_files_that_cannot_be_read_are_one_clear_line(
    engine: str, ending: str, content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / f"log.{ending}"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidLog) as caught:
        read(engine, FileSource(path, ending.removesuffix(".gz")))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert str(path) in str(caught.value) or caught.value.argument == "log"


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_truncated_tables_are_one_clear_line(engine: str, keep: float, tmp_path: Path) -> None:
    path = written(dirty_log(), "parquet", tmp_path / "log.parquet")
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(InvalidLog, match=r"\w+ cannot read it: "):
        read(engine, FileSource(path, "parquet"))


def test_errors_of_the_caller_stay_what_they_are(tmp_path: Path) -> None:
    path = written(dirty_log(), "parquet", tmp_path / "log.parquet")
    with (
        pytest.raises(ZeroDivisionError),
        open_frame("duckdb", [FileSource(path, "parquet")], Columns()),
    ):
        _ = 1 / 0


def test_engines_and_formats_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    path = written(dirty_log(), "parquet", tmp_path / "log.parquet")
    with pytest.raises(InvalidArgument, match="engine = 'duck': it must be 'polars' or 'duckdb'"):
        read("duck", FileSource(path, "parquet"))
    with pytest.raises(InvalidLog, match="polars reads csv, parquet, ndjson, arrow here"):
        read("polars", FileSource(path, "vw"))
    with pytest.raises(InvalidLog, match="pyspark reads csv, parquet, ndjson here; leave out"):
        read("pyspark", FileSource(path, "arrow"))
    with pytest.raises(InvalidArgument, match="files of one format at a time"):
        read("polars", FileSource(path, "parquet"), FileSource(path, "csv"))


@pytest.mark.parametrize("engine", ["duckdb", "dask", "pyspark"])
def test_an_engine_that_is_not_installed_is_named_with_its_command(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def refuse(name: str) -> Any:
        if name.startswith(engine):
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    extra = {"duckdb": "logs", "dask": "dask", "pyspark": "spark"}[engine]
    with pytest.raises(MissingExtra, match=rf"type pip install 'understudy\[{extra}\]'"):
        read(engine, FileSource(tmp_path / "log.csv", "csv"))


@pytest.mark.needs("pyspark")
def test_spark_without_java_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MissingExtra, match="needs Java 17 or newer, and there is none"):
        read("pyspark", FileSource(tmp_path / "log.csv", "csv"))


ON_SPARK = """
import sys
from pathlib import Path
from understudy.errors import InvalidLog
from understudy.logs.schema import Columns
from understudy.logs.aggregation.engines import open_frame
from understudy.logs.readers.files import FileSource
from understudy.logs.aggregation.aggregates import log_statistics

def read(path, form):
    with open_frame("pyspark", [FileSource(Path(path), form)], Columns()) as frame:
        return log_statistics(frame, Columns()).sums.counts.tolist()

print(read(sys.argv[1], "csv"))
print(read(sys.argv[2], "ndjson"))
for path, form in zip(sys.argv[3::2], sys.argv[4::2]):
    try:
        print(read(path, form))
    except InvalidLog as error:
        print(error)
"""


@pytest.mark.needs("java", "pyspark")
def test_spark_begins_and_ends_with_the_frame_and_is_quiet(tmp_path: Path) -> None:
    """In a process of its own: twice, so that a session that ended is begun again."""
    table = finite(dirty_log())
    arguments = []
    for form in ("csv", "ndjson"):
        arguments.append(str(written(table, form, tmp_path / f"log[1].{form}")))
        written(pa.concat_tables([table, table]), form, tmp_path / f"log1.{form}")  # not asked for
    broken = {"text for a table": "parquet"}
    for name, form in broken.items():
        content = BROKEN[name][1]
        assert content is not None
        path = tmp_path / f"broken.{form}"
        path.write_bytes(content)
        arguments += [str(path), form]
    ran = subprocess.run(
        [sys.executable, "-c", ON_SPARK, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    counts, *lines = ran.stdout.splitlines()
    assert counts == lines[0] == str(log_statistics(table, Columns()).sums.counts.tolist())
    assert len(lines) == 1 + len(broken)
    assert all("pyspark cannot read it: " in line for line in lines[1:])


def test_standard_error_comes_back(capfd: pytest.CaptureFixture[str]) -> None:
    with engines._without_stderr():
        os.write(2, b"hidden\n")
    os.write(2, b"shown\n")
    assert capfd.readouterr().err == "shown\n"
