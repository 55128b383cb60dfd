"""Lines without an end are refused in bounded memory, by `understudy.logs.readers.files`."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from understudy.errors import InvalidLog
from understudy.logs.readers import files
from understudy.logs.readers.files import find_files

pytestmark = pytest.mark.plain

HEADER = b"action,reward,propensity\n"
ROWS = HEADER + b"a,1,0.5\nb,0,0.5\n"
OBJECTS = b'{"action": "a", "reward": 1, "propensity": 0.5}\n' * 2
LONG = b"x" * 300
ENDLESS: dict[str, tuple[str, bytes, int]] = {
    "a header": ("log.csv", LONG, 1),
    "a row": ("log.csv", ROWS + LONG, 4),
    "a row before others": ("log.csv", ROWS + LONG + b"\n" + ROWS, 4),
    "a row of a .tsv": ("log.tsv", ROWS.replace(b",", b"\t") + LONG, 4),
    "an object": ("log.ndjson", OBJECTS + LONG, 3),
    "an object with quotes": ("log.ndjson", OBJECTS + b'"\n' + LONG, 4),
    "an event of vw": ("log.vw", b"1:1:0.5 | a\n" + LONG, 2),
    "an event of dsjson": ("log.dsjson", b"{}\n" + LONG, 2),
    "a quote": ("log.csv", ROWS + b'"' + ROWS * 5, 4),
    "a quote after others": ("log.csv", ROWS + b'"a ""b""\nc",1,1\n"' + ROWS * 5, 6),
}


@pytest.fixture(params=[1, 7, 64])
def short_lines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 100)
    monkeypatch.setattr(files, "READ_SIZE", request.param)


def read(path: Path) -> None:
    for source in find_files([path]):
        if source.format not in files.TEXT_TABLES:
            list(files.read_lines(source.path))


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(("name", "content", "line"), ENDLESS.values(), ids=ENDLESS)
def test_a_line_without_an_end_is_named(
    name: str, content: bytes, line: int, packed: bool, tmp_path: Path
) -> None:
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(InvalidLog, match=f"line {line} is longer than 100 bytes"):
        read(path)


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_many_lines_and_breaks_in_quotes_are_read(packed: bool, tmp_path: Path) -> None:
    for name, content in {
        "log.csv": HEADER + b'"a ""quoted""\nlabel",1,0.5\nb,0,"0.5"\n' * 20,
        "log.ndjson": OBJECTS * 20,
        "a.csv": HEADER + b"x" * 100 + b"\n" + b"x" * 100,
    }.items():
        path = tmp_path / (name + ".gz" * packed)
        path.write_bytes(gzip.compress(content) if packed else content)
        read(path)


@pytest.mark.parametrize("level", [1, 5, 6, 9])
@pytest.mark.parametrize("name", ["log.csv", "log.ndjson"])
def test_text_that_polars_would_unpack_is_refused(name: str, level: int, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(zlib.compress(ROWS, level))
    with pytest.raises(InvalidLog, match="it begins as zlib does"):
        find_files([tmp_path / name])
    (tmp_path / name).write_bytes(b"\x28\xb5\x2f\xfd" + ROWS)
    with pytest.raises(InvalidLog, match="it begins as zstd does"):
        find_files([tmp_path / name])


MEASURED = """
import resource, sys
import understudy as us
from understudy.logs.readers import files

files.LONGEST_LINE, files.READ_SIZE = 1 << 20, 1 << 18
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    us.logs.coverage(sys.argv[1])
except us.errors.InvalidLog as error:
    print(error, file=sys.stderr)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
@pytest.mark.parametrize("name", ["log.csv.gz", "log.ndjson.gz"])
def test_memory_does_not_depend_on_the_ratio_of_compression(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(ROWS if "csv" in name else OBJECTS)
        for _ in range(200):
            file.write(b"x" * (1 << 20))  # 200 MiB, about 1 MB on disk
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, path],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert "is longer than 1048576 bytes" in done.stderr
    assert done.stderr.count("\n") == 1
    assert int(done.stdout) < 50  # MiB, where the line alone has 200
