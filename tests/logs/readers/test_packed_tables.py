"""Gzipped tables have the rows of plain ones, in bounded memory, by `understudy.logs.readers`."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from collections import deque
from pathlib import Path
from typing import Literal

import polars as pl
import pytest

from tests.support.logs.text_logs import Columns
from understudy.errors import InvalidLog
from understudy.logs.readers import files
from understudy.logs.readers.files import find_files
from understudy.logs.readers.inputs import LogReader, count_rows

HEADER = b"action,reward,propensity\n"
ROW = b"a,1,0.5\n"
OBJECT = b'{"action": "a", "reward": 1, "propensity": 0.5}\n'
TABLES = {
    "rows": ("log.csv", HEADER + ROW + b"b,0,0.5\nc,,\n"),
    "no end of the last line": ("log.csv", HEADER + ROW + b"b,0,0.5"),
    "no row": ("log.csv", HEADER),
    "no row and no end": ("log.csv", HEADER.rstrip()),
    "Windows": ("log.csv", (HEADER + ROW * 3).replace(b"\n", b"\r\n")),
    "a byte order mark": ("log.csv", b"\xef\xbb\xbf" + HEADER + ROW * 3),
    "blank lines": ("log.csv", HEADER + b"\n" + ROW + b"\n\n,,\n" + ROW + b"\n"),
    "few fields": ("log.csv", HEADER + ROW + b"b\nc,1\n" + ROW),
    "breaks in quotes": ("log.csv", HEADER + b'"a ""b""\nc",1,"0.5"\n' * 9 + ROW),
    "a break in the header": ("log.csv", b'"a\nb",' + HEADER + b"x," + ROW + b"\ny," + ROW),
    "other columns": ("log.csv", b"x,action,,x,reward,propensity\n" + b"7,a,3,3,1,0.5\n" * 3),
    "tabs": ("log.tsv", (HEADER + ROW * 3).replace(b",", b"\t")),
    "objects": ("log.ndjson", OBJECT * 3 + OBJECT.replace(b'"a"', b"17").rstrip()),
    "blank lines between objects": ("log.ndjson", OBJECT + b"\n \n" + OBJECT + b"\n\n"),
    "other keys": ("log.ndjson", OBJECT + b'{"x": [1], "action": "b"}\n{}\n' + OBJECT),
}


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize(("name", "content"), TABLES.values(), ids=TABLES)
def test_a_packed_table_has_the_rows_of_a_plain_one(
    name: str, content: bytes, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_SIZE", block)
    plain, packed = tmp_path / name, tmp_path / f"{name}.gz"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    hashes: tuple[Literal["some", "every"] | None, ...] = (None, "some", "every")
    for hashed in hashes:
        found = []
        for path in (plain, packed):
            reader = LogReader(find_files([path]), Columns(), compared=True)
            found.append([frame for _, frame in reader.batches(hashed=hashed)])
        rows, unpacked = (pl.concat(frames) if frames else None for frames in found)
        if rows is None or unpacked is None:
            assert rows is unpacked
        else:
            assert unpacked.equals(rows)
    counts = (count_rows(find_files([path]), Columns()) for path in (plain, packed))
    assert [*next(counts).values()] == [*next(counts).values()]


@pytest.mark.parametrize("start", [b"x^", b"x\x01"])
def test_a_packed_table_may_begin_as_zlib_does(start: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(start + b"," + HEADER + b"2," + ROW))
    ((_, rows),) = LogReader(find_files([path]), Columns()).batches()
    assert rows.rows() == [(1, "a", "1", "0.5")]


@pytest.mark.parametrize("level", [1, 6])
def test_text_inside_of_gzip_is_not_unpacked_again(
    level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_SIZE", len(OBJECT))
    path = tmp_path / "log.ndjson.gz"
    twice = zlib.compress(OBJECT * 9, level).replace(b"\n", b"")
    path.write_bytes(gzip.compress(OBJECT * 2_000 + twice + b"\n"))
    reader = LogReader(find_files([path]), Columns())
    with pytest.raises(InvalidLog, match="InvalidUtf8"):
        deque(reader.batches(), maxlen=0)


MEASURED = """
import resource, sys
from understudy.logs.readers.files import find_files
from understudy.logs.readers.inputs import LogReader
from understudy.logs.schema import Columns

reader = LogReader(find_files([sys.argv[1]]), Columns(), compared=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(len(frame) for _, frame in reader.batches(hashed="some"))
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
def test_memory_does_not_depend_on_the_number_of_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(HEADER + ROW)
        for _ in range(16):
            file.write(b"\n" * (1 << 20))
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, path], capture_output=True, text=True, check=True
    )
    rows, mebibytes = map(int, done.stdout.split())
    assert rows == 1 + (16 << 20)
    assert mebibytes < 350  # all rows take a thousand
