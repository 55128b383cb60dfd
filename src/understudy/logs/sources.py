"""Files, globs and folders, as the list of files that they mean, in the order in which to read."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from understudy.errors import InvalidLog

__all__ = ["FORMATS", "Source", "find"]

FORMATS = {
    "csv": (".csv", ".tsv"),
    "parquet": (".parquet", ".pq"),
    "ndjson": (".ndjson", ".jsonl"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "vw": (".vw",),
    "dsjson": (".dsjson",),
}
COMPRESSED = ".gz"
GZIP = b"\x1f\x8b"
COMPRESSIBLE = ("csv", "ndjson", "vw", "dsjson")
KNOWN = ", ".join(ending for endings in FORMATS.values() for ending in endings)


@dataclass(frozen=True)
class Source:
    """A file and its format."""

    path: Path
    format: str

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def compressed(self) -> bool:
        return self.path.name.lower().endswith(COMPRESSED)

    @property
    def separator(self) -> str:
        """What stands between the fields of a text table."""
        return "\t" if ".tsv" in self.path.name.lower() else ","

    def fingerprint(self) -> str:
        """The SHA-256 of its bytes: what was learned from, whatever it is called."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def find(logs: Iterable[str | os.PathLike[str]], format: str | None = None) -> list[Source]:  # noqa: A002 - the option's name
    """Every file that is meant, once, in the order given; those of a glob or folder by name.

    `format` says what the files are; without it their names do.

    >>> find(["missing.csv"])
    Traceback (most recent call last):
    understudy.errors.InvalidLog: log = 'missing.csv': there is no such file or folder; ...
    """
    found = [
        Source(path, format or format_of(path))
        for log in logs
        for path in _expand(str(log), format)
    ]
    if not found:
        raise InvalidLog("log", "", "no file is named", "name at least one file, glob or folder")
    seen: set[Path] = set()
    for source in found:
        where = source.path.resolve()
        if where in seen:
            raise InvalidLog("log", source.name, "this file is named twice", "name every file once")
        seen.add(where)
        _check(source)
    return found


def format_of(path: Path) -> str:
    """The format that a file's name says.

    >>> format_of(Path("a/Log.CSV.gz")), format_of(Path("b.dsjson"))
    ('csv', 'dsjson')
    """
    name = path.name.lower().removesuffix(COMPRESSED)
    for form, endings in FORMATS.items():
        if name.endswith(endings):
            return form
    raise InvalidLog(
        "log",
        str(path),
        "its name does not say what format it has",
        f"rename it to end in one of {KNOWN}, or pass --format",
    )


def _expand(log: str, form: str | None) -> Iterator[Path]:
    path = Path(log)
    if path.is_dir():
        yield from _in_folder(path, form)
    elif path.exists():
        yield path
    elif not glob.has_magic(log):
        raise InvalidLog("log", log, "there is no such file or folder", "check the path")
    else:
        matches = sorted(glob.glob(log, recursive=True))  # noqa: PTH207 - patterns may be absolute
        if not matches:
            raise InvalidLog("log", log, "no file matches", "check the pattern")
        for match in matches:
            if Path(match).is_file():
                yield Path(match)


def _in_folder(folder: Path, form: str | None) -> list[Path]:
    """All files of a known format below a folder; hidden ones and _SUCCESS are not data."""
    inside = sorted(path for path in folder.rglob("*") if path.is_file())
    shown = [path for path in inside if not path.name.startswith((".", "_"))]
    endings = tuple(ending for known in FORMATS.values() for ending in known)
    named = [p for p in shown if form or p.name.lower().removesuffix(COMPRESSED).endswith(endings)]
    if not named:
        raise InvalidLog(
            "log", str(folder), "this folder holds no log", f"its files must end in one of {KNOWN}"
        )
    return named


def _check(source: Source) -> None:
    """Say what is wrong with a file before anything is read of it."""
    try:
        with source.path.open("rb") as file:
            start = file.read(2)
    except OSError as error:
        raise InvalidLog(
            "log", source.name, f"it cannot be read ({error.strerror})", "check the file"
        ) from None
    if not start:
        raise InvalidLog("log", source.name, "the file is empty", "leave it out")
    if source.compressed and start != GZIP:
        raise InvalidLog(
            "log", source.name, "its name ends in .gz, but it is not gzip", "rename it"
        )
    if source.compressed and source.format not in COMPRESSIBLE:
        raise InvalidLog(
            "log",
            source.name,
            f"a {source.format} file compresses its own columns and is not read through gzip",
            "unpack it",
        )
