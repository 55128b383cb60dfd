"""The files of a store in SQLite: their places, their modes, and the lock of the one writer."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOSPC
from pathlib import Path

import structlog

from understudy.errors import InvalidArgument, StoreInUse, StoreUnavailable
from understudy.live.store.database import STORES

OWNER_ONLY = 0o600  # rewards, contexts and hashes of tokens are for no other user of the machine
OTHERS = 0o077  # the bits of a mode that concern other users
MOST_WRITES = (1 << 63) - 1  # that a store can count, in a BIGINT of SQL
LONGEST_NUMBER = 20  # digits that NAME.lock has room for; Python refuses to read 5,000 of them
FULL_DISK = "the disk is full"
KINDS = {  # by the type that a mode holds
    stat.S_IFDIR: "this is a folder",
    stat.S_IFIFO: "this is a pipe",
    stat.S_IFSOCK: "this is a socket",
    stat.S_IFCHR: "this is a device",
    stat.S_IFBLK: "this is a device",
}
log = structlog.get_logger("understudy.live")


def checked_path(where: str, *, must_exist: bool) -> Path:
    """Return the path of a store without links; `InvalidArgument` if no store can be there."""
    path = Path(where)
    reason, remedy = "", STORES
    try:
        if not where:
            reason = "no file is named"
        elif where.endswith(os.sep):
            reason = "this names a folder"
        elif where == ":memory:" or where.startswith("file:"):
            reason = "this is a name for SQLite, and a store is a file on a disk"
        else:
            reason, remedy = _fault_of_file(path.stat())
    except FileNotFoundError:
        reason, remedy = _fault_of_missing(path, must_exist=must_exist)
    except (OSError, ValueError) as error:  # too long, with a NUL, in a folder that is closed
        reason = f"this path cannot be used ({getattr(error, 'strerror', None) or error})"
    if reason:
        raise InvalidArgument("store", where, reason, remedy)
    return path.resolve()


def _fault_of_file(found: os.stat_result) -> tuple[str, str]:
    """Return the reason why a file can be no store, and the remedy."""
    if not stat.S_ISREG(found.st_mode):
        return KINDS.get(stat.S_IFMT(found.st_mode), "this is no file"), STORES
    if found.st_nlink > 1:  # SQLite finds the latest writes by the name of the file
        names = f"this file has {found.st_nlink} names (hard links)"
        return f"{names}, and each would have a writer", "remove the others, or copy the file"
    return "", ""


def _fault_of_missing(path: Path, *, must_exist: bool) -> tuple[str, str]:
    if path.is_symlink():
        target = str(path.readlink())
        reason = f"this is a link to {target!r}, and there is no such file"
        return reason, "bring the file back, or remove the link"
    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r}", "make it first"
    return ("there is no such file", STORES) if must_exist else ("", "")


def create_private(path: Path) -> None:
    """Create an empty file for its owner alone, if there is none.

    SQLite gives the mode of this file to NAME-wal and NAME-shm. A file that is there is not opened:
    to close it would release the locks that SQLite holds on it for this process.
    """
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
    except OSError as error:
        full = error.errno == ENOSPC
        reason = FULL_DISK if full else f"its file cannot be created ({error.strerror})"
        raise StoreUnavailable(reason) from error


class WriterLock:
    """NAME.lock: the lock of the one writer; the end of the process releases it too.

    The file holds the process id of the writer and the number of the last acknowledged write. The
    number is written in place and without a sync: `kill -9` does not lose it, and after a power cut
    it is at most too small. A store that counts fewer writes has lost some.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._descriptor = descriptor
        self._path = path
        self._found: dict[str, tuple[int, int]] = {}

    def sign(self, write: int | str) -> None:
        """Note the process id beside the number of the last acknowledged write."""
        with suppress(OSError):  # on a full disk the lock holds all the same
            os.pwrite(
                self._descriptor, f"{os.getpid():>10} {write:>{LONGEST_NUMBER}}\n".encode(), 0
            )

    def watch(self) -> None:
        """Remember which files the open store has; warn if other users may open them.

        An older version made them so, or their owner did, and may have a reason.
        """
        found = self._path.stat()
        mode = stat.S_IMODE(found.st_mode)
        if mode & OTHERS:
            log.warning(
                "other users may open the store",
                file=str(self._path),
                mode=f"{mode:04o}",
                remedy=f"chmod 600 {self._path.name}*",
            )
        self._found = {str(self._path): _identity(found)}
        for path in (beside(self._path, "-wal"), beside(self._path, "-shm")):
            if path.exists():  # SQLite does without where files cannot be shared in memory
                self._found[str(path)] = _identity(path.stat())
        self._found[str(beside(self._path, ".lock"))] = _identity(os.fstat(self._descriptor))

    def missing(self) -> str | None:
        """Return the first path at which there is no file, another than before, or an empty store.

        NAME-wal may be empty, as other programs move its writes to the store, and so may NAME.lock,
        on a full disk.
        """
        store = str(self._path)
        for path, before in self._found.items():
            try:
                found = os.stat(path)  # noqa: PTH116 - faster than Path.stat
            except OSError:
                return path
            if _identity(found) != before or (path == store and not found.st_size):
                return path
        return None


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def beside(path: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to a store."""
    return path.with_name(path.name + suffix)


def last_acknowledged(path: Path) -> int | None:
    """Return the number of the last acknowledged write as NAME.lock has it, if it does.

    A file of version 0.5.0 has none, and a number that no store can count to is none.
    """
    digits = "".join(_words(beside(path, ".lock"))[1:2])
    if not digits.isdecimal() or len(digits) > LONGEST_NUMBER:
        return None
    number = int(digits)
    return number if number <= MOST_WRITES else None


def _words(lock: Path) -> list[str]:
    with suppress(OSError):
        return lock.read_text(encoding="ascii", errors="replace").split()
    return []


@contextmanager
def writer_lock(path: Path) -> Iterator[WriterLock]:
    """Hold the lock of a store's one writer."""
    if sys.platform == "win32":
        raise StoreUnavailable(
            "Windows cannot lock a file as this store needs; use --store postgresql://…"
        )
    import fcntl  # noqa: PLC0415 - not on Windows

    lock = beside(path, ".lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    except OSError as error:
        reason = f"its lock {lock.name} cannot be opened ({error.strerror})"
        raise StoreUnavailable(reason) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = (_words(lock) or ["unknown"])[0]
            raise StoreInUse(
                f"another server writes to {str(path)!r}: process {holder}; "
                "stop it first, or name another store"
            ) from None
        held = WriterLock(path, descriptor)
        known = last_acknowledged(path)
        held.sign("" if known is None else known)
        yield held
    finally:
        os.close(descriptor)
