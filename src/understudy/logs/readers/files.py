"""Files, globs and folders, as the list of files that they mean, in the order in which to read."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from understudy.errors import LONGEST_PATH, InvalidLog, shorten
from understudy.logs.outputs import REPORT_FILE, RESULTS

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
ENDINGS = tuple(ending for endings in FORMATS.values() for ending in endings)
KNOWN = ", ".join(ENDINGS)
SIGNATURES = {b"PAR1": "parquet", b"PARE": "parquet", b"ARROW1": "arrow"}  # PARE if encrypted
STREAM = b"\xff\xff\xff\xff"  # how Arrow begins where it is not a file
UTF16 = (b"\xff\xfe", b"\xfe\xff")
START = 8  # bytes that say what a file is
FEW = 3  # names that a sentence holds


@dataclass(frozen=True)
class Source:
    """A file and its format; the first of a folder also says which of its files are not read."""

    path: Path
    format: str
    remark: str = field(default="", compare=False)

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
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise unreadable(self.name, error) from None


def find(logs: Iterable[str | os.PathLike[str]], format: str | None = None) -> list[Source]:  # noqa: A002 - the option's name
    """Every file that is meant, once, in the order given; those of a glob or folder by name.

    `format` says what the files are; without it their names do.

    >>> find(["missing.csv"])
    Traceback (most recent call last):
    understudy.errors.InvalidLog: log = 'missing.csv': there is no such file or folder; ...
    """
    found = [
        Source(path, format or format_of(path), remark)
        for log in logs
        for path, remark in _expand(str(log), format)
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


def unreadable(name: str, error: OSError) -> InvalidLog:
    """The error for a file that the system does not let us read.

    >>> print(unreadable("log.csv", PermissionError(13, "Permission denied")))
    log = 'log.csv': it cannot be read (Permission denied); check the path and its permissions
    """
    reason = f"it cannot be read ({error.strerror or error})"
    return InvalidLog("log", name, reason, "check the path and its permissions")


def _expand(log: str, form: str | None) -> Iterator[tuple[Path, str]]:
    """The files that a name means, and what is to be said beside them."""
    path = Path(log)
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:  # such as a name that is too long
        raise unreadable(log, error) from None
    if not log:
        raise InvalidLog("log", log, "no file is named", "name a file, glob or folder; . is here")
    if is_folder:
        yield from _in_folder(path, form)
    elif exists:
        yield path, ""
    elif not glob.has_magic(log):
        raise InvalidLog("log", log, "there is no such file or folder", "check the path")
    else:
        matches = sorted(glob.glob(log, recursive=True))  # noqa: PTH207 - patterns may be absolute
        files = [Path(match) for match in matches if not Path(match).is_dir()]
        if not files:
            raise InvalidLog("log", log, "no file matches", "check the pattern")
        yield from ((file, "") for file in files)


def _in_folder(folder: Path, form: str | None) -> Iterator[tuple[Path, str]]:
    """All files of a known format below a folder; what is hidden and _SUCCESS are not data."""

    def fail(error: OSError) -> None:
        raise unreadable(str(error.filename), error) from None

    walked = os.walk(folder, onerror=fail)
    inside = [Path(place, name) for place, _, names in walked for name in names]
    shown = [path for path in sorted(inside) if not _is_hidden(path.relative_to(folder))]
    shown = [path for path in shown if not _is_ours(path)]
    named = [p for p in shown if form or p.name.lower().removesuffix(COMPRESSED).endswith(ENDINGS)]
    if not named:
        raise InvalidLog(
            "log", str(folder), "this folder holds no log", f"its files must end in one of {KNOWN}"
        )
    others = [str(path.relative_to(folder)) for path in sorted({*shown} - {*named})]
    yield named[0], _not_read(folder, others) if others else ""
    yield from ((path, "") for path in named[1:])


def _not_read(folder: Path, names: list[str]) -> str:
    """A sentence about files that are passed over, so that nothing is left out in silence."""
    few = ", ".join([*map(shorten, names[:FEW]), *(["…"] if len(names) > FEW else [])])
    where = f"of the folder {shorten(str(folder), LONGEST_PATH)}"
    if len(names) == 1:
        return (
            f"1 file {where} was not read, for its name does not say what it holds: {few}; "
            "name it, with --format."
        )
    return (
        f"{len(names):,} files {where} were not read, for their names do not say what they hold: "
        f"{few}; name them, with --format."
    )


def _is_ours(path: Path) -> bool:
    """Whether it is what an earlier run has written, beside its report."""
    return path.name in RESULTS and (path.parent / REPORT_FILE).exists()


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _check(source: Source) -> None:
    """Say what is wrong with a file before anything is read of it."""
    start = _start(source)
    if not start:
        raise InvalidLog("log", source.name, "the file is empty", "leave it out")
    if source.compressed:
        _check_compressed(source, start)
        return
    if start.startswith(GZIP):
        raise InvalidLog("log", source.name, "it is gzip", "rename it to end in .gz")
    signed = next((form for sign, form in SIGNATURES.items() if start.startswith(sign)), None)
    if signed not in {None, source.format}:
        raise InvalidLog(
            "log", source.name, f"it is a {signed} file", f"rename it, or pass --format {signed}"
        )
    if signed is None and source.format in SIGNATURES.values():
        stream = source.format == "arrow" and start.startswith(STREAM)
        raise InvalidLog(
            "log",
            source.name,
            "it is an Arrow stream" if stream else f"it does not begin as {source.format} does",
            "write it as an Arrow file" if stream else "rename it, or pass --format",
        )
    if signed is None and (start.startswith(UTF16) or b"\0" in start):
        raise InvalidLog(
            "log", source.name, "it is not UTF-8 text, but perhaps UTF-16", "save it as UTF-8"
        )


def _check_compressed(source: Source, start: bytes) -> None:
    if not start.startswith(GZIP):
        raise InvalidLog(
            "log", source.name, "its name ends in .gz, but it is not gzip", "rename it"
        )
    if source.format not in COMPRESSIBLE:
        raise InvalidLog(
            "log",
            source.name,
            f"a {source.format} file compresses its own columns and is not read through gzip",
            "unpack it",
        )


def _start(source: Source) -> bytes:
    """The first bytes of a file, if it is one that can be read again and again."""
    try:
        source.name.encode()
    except UnicodeEncodeError:
        raise InvalidLog("log", source.name, "its name is not UTF-8", "rename it") from None
    try:
        if not stat.S_ISREG(source.path.stat().st_mode):  # opening a pipe could wait forever
            raise InvalidLog(
                "log",
                source.name,
                "it is no regular file, and a log is read more than once",
                "copy what it gives into a file first",
            )
        with source.path.open("rb") as file:
            return file.read(START)
    except OSError as error:
        raise unreadable(source.name, error) from None
