"""Log files: the search by paths, globs and folders, and the reading of bytes and lines."""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import polars as pl

from understudy.errors import InvalidLog, first_line
from understudy.logs.outputs import REPORT_FILE, RESULTS
from understudy.logs.schema import ROW, is_unicode

FORMATS = {
    "csv": (".csv", ".tsv"),
    "parquet": (".parquet", ".pq"),
    "ndjson": (".ndjson", ".jsonl"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "vw": (".vw",),
    "dsjson": (".dsjson",),
}
ENDINGS = tuple(ending for endings in FORMATS.values() for ending in endings)
GZIP_ENDING = ".gz"
TEXT_TABLES = ("csv", "ndjson")  # which Polars reads; `read_lines` reads other text
GZIP_FORMATS = ("csv", "ndjson", "vw", "dsjson")  # the others compress their own columns
GZIP_START = b"\x1f\x8b"
# Polars would unpack these under any name, and no other reader here does.
UNREAD_STARTS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    **dict.fromkeys((b"x\x01", b"x^", b"x\x9c", b"x\xda"), "zlib"),
}
SIGNATURES = {b"PAR1": "parquet", b"PARE": "parquet", b"ARROW1": "arrow"}  # PARE if encrypted
ARROW_STREAM_START = b"\xff\xff\xff\xff"
UTF16_STARTS = (b"\xff\xfe", b"\xfe\xff")
SIGNATURE_SIZE = 8  # bytes: enough for every signature above
LINE = "line"  # the column of `read_lines`
BATCH = 1 << 16  # rows: large enough for columnar speed, small enough for a few MB of memory
READ_SIZE = 1 << 23  # bytes of text read at a time: about 2^16 lines of 100 bytes
BLOCK_SIZE = 1 << 20  # bytes of records parsed at a time: as empty lines, 50 MB of three columns
# Bytes of a line, or of a CSV record with line breaks in quotes. Events of real logs have less than
# 1 MB, and readers hold up to nine copies of a line: 150 MB at most.
LONGEST_LINE = 1 << 24
BYTE_ORDER_MARK = "\ufeff"


class UnreadFiles(NamedTuple):
    """The files of a folder that are not read, because their names do not say the format."""

    folder: Path
    names: tuple[str, ...]


@dataclass(frozen=True)
class FileSource:
    """A log file and its format; `unread` is set on the first file of a folder."""

    path: Path
    format: str
    unread: UnreadFiles | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def is_compressed(self) -> bool:
        return _is_compressed(self.path)

    @property
    def separator(self) -> str:
        """The separator of fields in a text table."""
        return "\t" if ".tsv" in self.path.name.lower() else ","

    def fingerprint(self) -> str:
        """The SHA-256 of its bytes, which identifies a log under any name."""
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise unreadable(self.path, error) from None


def find_files(
    logs: Iterable[str | os.PathLike[str]],
    format: str | None = None,  # noqa: A002 - the option's name
) -> list[FileSource]:
    """Find the files that the arguments name, in their order; those of a glob or folder are sorted.

    `format` overrides the format that the names of the files say.
    """
    sources = [
        FileSource(path, format or format_of(path), unread)
        for log in logs
        for path, unread in _expand(str(log), format)
    ]
    if not sources:
        raise invalid_file("", "no file is named", "name at least one file, glob or folder")
    seen: set[Path] = set()
    for source in sources:
        resolved = source.path.resolve()
        if resolved in seen:
            raise invalid_file(source.path, "this file is named twice", "name every file once")
        seen.add(resolved)
        _check_start(source)
        if source.format in TEXT_TABLES:
            _refuse_long_records(source)
    return sources


def format_of(path: Path) -> str:
    """The format that the name of a file says."""
    name = path.name.lower().removesuffix(GZIP_ENDING)
    for format_name, endings in FORMATS.items():
        if name.endswith(endings):
            return format_name
    reason = "its name does not say what format it has"
    remedy = f"rename it to end in one of {', '.join(ENDINGS)}, or pass --format"
    raise invalid_file(path, reason, remedy)


def open_bytes(path: Path) -> BinaryIO:
    """A file to read, unpacked if its name ends in .gz."""
    return cast("BinaryIO", gzip.open(path)) if _is_compressed(path) else path.open("rb")


def read_lines(path: Path) -> Iterator[pl.DataFrame]:
    """The lines of a UTF-8 file, which may be gzipped: frames of `row`, from 1, and `line`."""
    try:
        with open_bytes(path) as file:
            for before, text in _whole_lines(file, path):
                lines = pl.Series(LINE, [text]).str.split("\n").explode().str.strip_suffix("\r")
                frame = lines.to_frame().with_row_index(ROW, before + 1)
                yield from frame.with_columns(pl.col(ROW).cast(pl.Int64)).iter_slices(BATCH)
    except (OSError, EOFError, zlib.error) as error:
        reason = f"it cannot be read to its end ({first_line(error)})"
        raise invalid_file(path, reason, "check that it is complete") from None


def read_records(source: FileSource) -> Iterator[bytes]:
    """The text of a table in blocks of whole records, each a table of its own.

    CSV begins with a byte order mark and the header, NDJSON with an empty line: Polars would unpack
    a block that begins as zlib or zstd does.
    """
    is_csv, inside, start, rest = source.format == "csv", False, b"", b""
    with open_bytes(source.path) as file:
        while is_csv and (line := file.readline()):
            start += line
            if start.count(b'"') % 2 == 0:
                break
        mark = BYTE_ORDER_MARK.encode()
        start = mark + start.removeprefix(mark) if is_csv else b"\n"
        while block := file.read(BLOCK_SIZE):
            last, inside = _last_record_end(block, inside=inside, quotes=is_csv)
            if last:
                yield start + rest + block[:last]
                rest = b""
            rest += block[last:]
        yield start + rest


def invalid_file(path: str | Path, reason: str, remedy: str) -> InvalidLog:
    """The error for a file that cannot be read as a log."""
    return InvalidLog("log", str(path), reason, remedy)


def unreadable(path: str | Path, error: OSError) -> InvalidLog:
    """The error for a file that the operating system does not let us read."""
    reason = f"it cannot be read ({error.strerror or error})"
    return invalid_file(path, reason, "check the path and its permissions")


def _is_compressed(path: Path) -> bool:
    return path.name.lower().endswith(GZIP_ENDING)


def _expand(log: str, format_name: str | None) -> Iterator[tuple[Path, UnreadFiles | None]]:
    """The files that an argument names, each with the unread files of its folder."""
    path = Path(log)
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:  # such as a name that is too long
        raise unreadable(log, error) from None
    if not log:
        raise invalid_file(log, "no file is named", "name a file, glob or folder; . is here")
    if is_folder:
        yield from _expand_folder(path, format_name)
    elif exists:
        yield path, None
    elif not glob.has_magic(log):
        raise invalid_file(log, "there is no such file or folder", "check the path")
    else:
        matches = sorted(glob.glob(log, recursive=True))  # noqa: PTH207 - patterns may be absolute
        files = [Path(match) for match in matches if not Path(match).is_dir()]
        if not files:
            raise invalid_file(log, "no file matches", "check the pattern")
        yield from ((file, None) for file in files)


def _expand_folder(
    folder: Path, format_name: str | None
) -> Iterator[tuple[Path, UnreadFiles | None]]:
    """All files of a known format below a folder, but for hidden ones and results of a run."""

    def fail(error: OSError) -> None:
        raise unreadable(str(error.filename), error) from None

    walk = os.walk(folder, onerror=fail)
    files = sorted(Path(parent, name) for parent, _, names in walk for name in names)
    files = [path for path in files if not (_is_hidden(path, folder) or _is_result(path))]
    logs = [
        p
        for p in files
        if format_name or p.name.lower().removesuffix(GZIP_ENDING).endswith(ENDINGS)
    ]
    if not logs:
        raise invalid_file(
            folder, "this folder holds no log", f"its files must end in one of {', '.join(ENDINGS)}"
        )
    others = tuple(str(path.relative_to(folder)) for path in sorted({*files} - {*logs}))
    yield logs[0], UnreadFiles(folder, others) if others else None
    yield from ((path, None) for path in logs[1:])


def _is_result(path: Path) -> bool:
    """Whether an earlier run wrote the file, with its report in the same folder."""
    return path.name in RESULTS and (path.parent / REPORT_FILE).exists()


def _is_hidden(path: Path, folder: Path) -> bool:
    """Whether a part of the path starts with a dot or, as _SUCCESS does, with an underscore."""
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _check_start(source: FileSource) -> None:
    """Raise `InvalidLog` if the first bytes of a file are not those of its format."""
    path, start = source.path, _start(source.path)
    if not start:
        raise invalid_file(path, "the file is empty", "leave it out")
    if _is_compressed(path):
        _check_compressed(source, start)
        return
    if start.startswith(GZIP_START):
        raise invalid_file(path, "it is gzip", "rename it to end in .gz")
    packed = next((form for sign, form in UNREAD_STARTS.items() if start.startswith(sign)), None)
    if packed is not None and source.format in TEXT_TABLES:
        raise invalid_file(path, f"it begins as {packed} does", "unpack it, or pack it with gzip")
    signed = next((form for sign, form in SIGNATURES.items() if start.startswith(sign)), None)
    if signed is not None:
        if signed != source.format:
            remedy = f"rename it, or pass --format {signed}"
            raise invalid_file(path, f"it is a {signed} file", remedy)
    elif source.format == "arrow" and start.startswith(ARROW_STREAM_START):
        raise invalid_file(path, "it is an Arrow stream", "write it as an Arrow file")
    elif source.format in SIGNATURES.values():
        reason = f"it does not begin as {source.format} does"
        raise invalid_file(path, reason, "rename it, or pass --format")
    elif start.startswith(UTF16_STARTS) or b"\0" in start:
        raise invalid_file(path, "it is not UTF-8 text, but perhaps UTF-16", "save it as UTF-8")


def _check_compressed(source: FileSource, start: bytes) -> None:
    if not start.startswith(GZIP_START):
        raise invalid_file(source.path, "its name ends in .gz, but it is not gzip", "rename it")
    if source.format not in GZIP_FORMATS:
        reason = f"a {source.format} file compresses its own columns and cannot be gzipped"
        raise invalid_file(source.path, reason, "unpack it")


def _start(path: Path) -> bytes:
    """The first bytes of a regular file: pipes cannot be read twice."""
    if not is_unicode(str(path)):
        raise invalid_file(path, "its name is not UTF-8", "rename it")
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe could wait forever
            reason = "it is no regular file, and a log is read more than once"
            raise invalid_file(path, reason, "copy its content into a file first")
        with path.open("rb") as file:
            return file.read(SIGNATURE_SIZE)
    except OSError as error:
        raise unreadable(path, error) from None


def _refuse_long_records(source: FileSource) -> None:
    """Raise `InvalidLog` if a record of a text table is longer than `LONGEST_LINE`.

    The file is unpacked as a stream, so that memory depends neither on its size nor on the ratio of
    its compression. Errors of reading are left to the reader of the rows, which names the line.
    """
    read = end = 0  # bytes so far, and those of whole records
    quotes, inside = source.format == "csv", False
    with suppress(OSError, EOFError, zlib.error), open_bytes(source.path) as file:
        while block := file.read(READ_SIZE):
            last, inside = _last_record_end(block, inside=inside, quotes=quotes)
            end = read + last if last else end
            read += len(block)
            if read - end > LONGEST_LINE:
                raise _too_long(source.path, _line_at(source.path, end), in_quotes=inside)


def _last_record_end(block: bytes, *, inside: bool, quotes: bool) -> tuple[int, bool]:
    """The end of the last record in a block, 0 if there is none; whether it ends inside quotes.

    >>> _last_record_end(b'a,"\\n', inside=False, quotes=True)
    (0, True)
    """
    if quotes and block.count(b'"') % 2:
        inside = not inside
    stop, outside = len(block), not inside
    while stop >= 0:
        start = block.rfind(b'"', 0, stop) if quotes else -1
        if outside and (last := block.rfind(b"\n", start + 1, stop)) >= 0:
            return last + 1, inside
        stop, outside = start, not outside
    return 0, inside


def _line_at(path: Path, offset: int) -> int:
    """The number of the line at an offset, from 1."""
    with open_bytes(path) as file:
        return 1 + sum(
            file.read(min(READ_SIZE, offset - at)).count(b"\n")
            for at in range(0, offset, READ_SIZE)
        )


def _too_long(path: Path, line: int, *, in_quotes: bool = False) -> InvalidLog:
    quoted = ", or a quote in it has no end" if in_quotes else ""
    reason = f"line {line} is longer than {LONGEST_LINE} bytes{quoted}"
    return invalid_file(path, reason, "pass a text file with one event or action per line")


def _whole_lines(file: BinaryIO, path: Path) -> Iterator[tuple[int, str]]:
    """Texts of whole lines, the last line without its end, and the number of lines before them."""
    before, rest = 0, b""
    while chunk := file.read(READ_SIZE):
        data = rest + chunk
        if len(chunk) < READ_SIZE and not data.endswith(b"\n"):
            data += b"\n"  # the last line may have no end
        whole, end, rest = data.rpartition(b"\n")
        if end:
            yield before, _decode(whole, before, path)
            before += whole.count(b"\n") + 1
        if len(rest) > LONGEST_LINE:
            raise _too_long(path, before + 1)
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
