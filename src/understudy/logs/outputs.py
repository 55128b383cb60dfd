"""The outputs of a run: progress, the quarantine, and files, of which all or none are written."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from understudy.errors import InvalidArgument, first_line
from understudy.logs.schema import QUARANTINE, ROW

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None

POLICY_FILE, REPORT_FILE, QUARANTINE_FILE = "policy.json", "report.html", "quarantine.parquet"
UNITS_FILE = "units.parquet"  # the hashes of the units that a policy was learned from
RESULTS = (QUARANTINE_FILE, REPORT_FILE, POLICY_FILE)  # in the order in which they are published
SCHEMA = pa.schema([(name, pa.int64() if name == ROW else pa.string()) for name in QUARANTINE])
EXAMPLES = 100  # quarantined rows that a report can show: a page of them
ProgressCallback = Callable[[str, int, int | None], None]  # phase, rows since, rows expected


def no_progress(phase: str, rows: int, expected: int | None) -> None:
    """No progress reporting."""


@contextmanager
def scratch_folder(near: Path) -> Iterator[Path]:
    """A hidden folder on the same disk as `near`, removed at the end, also after an error.

    It is in `near`, or in the nearest folder above that exists.
    """
    nearest = next(folder for folder in (near, *near.absolute().parents) if folder.is_dir())
    hidden = None
    try:
        hidden = Path(tempfile.mkdtemp(prefix=".understudy-", dir=nearest))
        yield hidden
    except OSError as error:  # of writing: readers raise errors of their own
        reason = f"it cannot be written to ({error.strerror or first_line(error)})"
        remedy = "make room there, or choose another folder"
        raise InvalidArgument("folder", str(near), reason, remedy) from None
    finally:
        if hidden is not None:
            shutil.rmtree(hidden, ignore_errors=True)


def publish(
    hidden: Path, out: Path, names: Sequence[str], check: Callable[[], None] = lambda: None
) -> None:
    """Move finished files into a folder, in the order of `names`: the last one marks completion.

    `check` runs while no other run can publish there. If it raises, no file is moved.
    """
    created = [folder for folder in (out, *out.absolute().parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with _lock(out):
            check()
            for name in names:
                with (hidden / name).open("rb") as file:
                    os.fsync(file.fileno())
                (hidden / name).replace(out / name)
    except BaseException:
        for folder in created:
            with suppress(OSError):  # a folder that is not empty stays
                folder.rmdir()
        raise


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keep other runs from publishing in a folder, on systems that can lock one."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
        os.fsync(handle)
    finally:
        os.close(handle)


class Quarantine:
    """The writer of quarantine.parquet: rejected rows as they come, in constant memory.

    `counts` are rejected rows by file and reason, `rows` all rows by file, `examples` the first
    rejected rows.
    """

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self.counts: Counter[tuple[str, str]] = Counter()
        self.rows: Counter[str] = Counter()
        self.examples = pl.DataFrame(schema=QUARANTINE)

    def add(self, rows: pl.DataFrame) -> None:
        """Write and count rejected rows."""
        if not len(rows):
            return
        self._writer.write_table(rows.to_arrow().cast(SCHEMA))
        counts = rows.group_by("file", "reason", maintain_order=True).len()
        for file, reason, count in counts.rows():
            self.counts[file, reason] += count
        room = EXAMPLES - len(self.examples)
        if room > 0:
            self.examples = pl.concat([self.examples, rows.head(room)])

    def copy(self, path: Path, rows: int) -> None:
        """Write the first rows of an earlier quarantine, without counting them again."""
        for table in _read_quarantine(path):
            self._writer.write_table(table[:rows])
            rows -= min(rows, len(table))

    def by_reason(self) -> Counter[str]:
        """The rejected rows of all files by reason."""
        return by_reason(self.counts)

    def by_file(self) -> Counter[str]:
        """The rejected rows by file."""
        totals: Counter[str] = Counter()
        for (file, _), count in self.counts.items():
            totals[file] += count
        return totals

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()


def by_reason(counts: Mapping[tuple[str, str], int]) -> Counter[str]:
    """The rejected rows by reason, from those by file and reason."""
    totals: Counter[str] = Counter()
    for (_, reason), count in counts.items():
        totals[reason] += count
    return totals


def _read_quarantine(path: Path) -> Iterator[pa.Table]:
    """The rows of an earlier quarantine, or `InvalidArgument` if they cannot be read."""
    try:
        with pq.ParquetFile(path) as earlier:
            for batch in earlier.iter_batches(columns=SCHEMA.names):
                yield pa.Table.from_batches([batch]).cast(SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = f"the quarantine of the earlier run cannot be read ({first_line(error)})"
        remedy = "put the file back as it was, or move it away"
        raise InvalidArgument("resume", str(path), reason, remedy) from None
