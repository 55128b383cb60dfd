"""Stores in SQLite: one file, with nothing to set up."""

from __future__ import annotations

import os
import sqlite3
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from understudy.errors import InvalidArgument, StoreInUse, StoreUnavailable
from understudy.live.store.records import COLUMNS, TABLES, VERSION, Decision, Rewarded
from understudy.live.store.sql import (
    INSERT_DECISIONS,
    SELECT_DECISIONS,
    STORES,
    Access,
    Database,
    Row,
    as_row,
    constraint_error,
)

BUSY_TIMEOUT = 5.0  # seconds that another program, such as a backup, may lock the file
PRAGMAS = (
    "synchronous = FULL",  # a commit is on disk when it returns
    "foreign_keys = ON",
    "wal_autocheckpoint = 4000",  # pages, 16 MB: ids come in any order and hit the same pages again
    "cache_size = -65536",  # kibibytes: so that the index of ids stays in memory
)
# Rows in a statement: SQLite compiles each size once, and a group takes the next larger one.
SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
WIDTH = 1 + len(COLUMNS)  # values per row of `decisions`: the study, and the fields of a Decision
REASONS = {  # by SQLite's primary result codes
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written",
    sqlite3.SQLITE_READONLY: "its file may be read only",
    sqlite3.SQLITE_BUSY: "another program holds its file",
    sqlite3.SQLITE_LOCKED: "another program holds its file",
    sqlite3.SQLITE_CORRUPT: "its file is damaged",
    sqlite3.SQLITE_NOTADB: "its file is not an SQLite database",
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened",
    sqlite3.SQLITE_PERM: "its file cannot be opened",
}
Item = TypeVar("Item")


class Sqlite(Database):
    """A file of SQLite, with many rows per statement.

    Every statement releases the interpreter's lock and has to get it back: so all rows go into one,
    padded with NULLs to one of a few sizes, each of which is compiled once.
    """

    error = sqlite3.Error
    begin = "BEGIN IMMEDIATE"
    create = TABLES.format(  # a BLOB column keeps -0.0, a REAL column stores 0
        number="BLOB", sorted="WITHOUT ROWID", version=VERSION
    )
    tuning = "PRAGMA journal_mode = WAL"
    tables = "SELECT name FROM sqlite_master WHERE type = 'table'"

    def __init__(self, where: str, access: Access) -> None:
        super().__init__(access)
        self.path = checked_path(where, must_exist=access == "read").resolve()

    @contextmanager
    def open_connection(self) -> Iterator[sqlite3.Connection]:
        mode = "ro" if self.access == "read" else "rwc"
        with (
            writer_lock(self.path) if self.access == "write" else nullcontext(),
            closing(
                sqlite3.connect(
                    f"{self.path.as_uri()}?mode={mode}",
                    uri=True,
                    timeout=BUSY_TIMEOUT,
                    isolation_level=None,
                    check_same_thread=False,
                )
            ) as connection,
        ):
            for pragma in PRAGMAS if self.access != "read" else ():
                connection.execute(f"PRAGMA {pragma}")
            yield connection

    def execute(self, statement: str, values: Sequence[object]) -> Any:
        return self.connection.execute(statement, values)

    def insert(self, study: int, decisions: Sequence[Decision]) -> None:
        for group, size in padded_groups(decisions):
            values = [value for decision in group for value in (study, *as_row(decision))]
            padding = [None] * (WIDTH * (size - len(group)))
            statement = (
                f"{INSERT_DECISIONS} SELECT * FROM (VALUES {placeholders(WIDTH, size)}) LIMIT ?"
            )
            self.change(statement, *values, *padding, len(group))

    def find(self, study: int, ids: Sequence[str]) -> list[Row]:
        found: list[Row] = []
        for group, size in padded_groups(ids):
            padding = [group[-1]] * (size - len(group))  # a repeated id finds its row once
            query = (
                f"{SELECT_DECISIONS} INDEXED BY decision_ids "  # else it may scan
                f"WHERE study = ? AND id IN {placeholders(size)}"
            )
            found += self.rows(query, study, *group, *padding)
        return found

    def set_rewards(self, column: str, study: int, rewards: Sequence[Rewarded]) -> int:
        filled, width = 0, len(Rewarded._fields)
        for group, size in padded_groups(rewards):
            values = [value for reward in group for value in reward]
            padding = [None] * (width * (size - len(group)))
            statement = (
                f"UPDATE decisions SET {column} = given.column2, rewarded_at = given.column3 "
                f"FROM (VALUES {placeholders(width, size)}) AS given "
                f"WHERE study = ? AND seq = given.column1 AND {column} IS NULL"
            )
            filled += self.change(statement, *values, *padding, study)
        return filled

    def in_transaction(self) -> bool:
        found: bool = self.connection.in_transaction  # SQLite may have rolled back itself
        return found

    def translate(self, error: sqlite3.Error) -> Exception:
        if isinstance(error, sqlite3.IntegrityError):
            return constraint_error(str(error))
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without its details
        return StoreUnavailable(REASONS.get(code, str(error)))


def checked_path(where: str, *, must_exist: bool) -> Path:
    """Return the path of a store; raise `InvalidArgument` if no store can be there."""
    path = Path(where)
    if not where or path.is_dir():
        what = "this is a folder" if where else "no file is named"
        raise InvalidArgument("store", where, what, STORES)
    if not path.parent.is_dir():
        what = f"there is no folder {str(path.parent)!r}"
        raise InvalidArgument("store", where, what, "make it first")
    if must_exist and not path.exists():
        raise InvalidArgument("store", where, "there is no such file", STORES)
    return path


def placeholders(width: int, rows: int = 1) -> str:
    """Return the placeholders of rows of values.

    >>> placeholders(2, rows=3)
    '(?, ?), (?, ?), (?, ?)'
    """
    row = "(" + ", ".join("?" * width) + ")"
    return ", ".join([row] * rows)


def padded_groups(items: Sequence[Item]) -> Iterator[tuple[Sequence[Item], int]]:
    """Yield the items in groups, each with the size of the statement that holds it.

    >>> [(len(group), size) for group, size in padded_groups(range(1_060))]
    [(512, 512), (512, 512), (36, 48)]
    """
    for start in range(0, len(items), SIZES[-1]):
        group = items[start : start + SIZES[-1]]
        yield group, SIZES[bisect_left(SIZES, len(group))]


@contextmanager
def writer_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file's one writer; the end of the process releases it too."""
    if sys.platform == "win32":
        raise StoreUnavailable(
            "Windows cannot lock a file as this store needs; use --store postgresql://…"
        )
    import fcntl  # noqa: PLC0415 - not on Windows

    lock = path.with_name(path.name + ".lock")
    try:
        file = lock.open("a+b", buffering=0)
    except OSError as error:
        reason = f"its lock {lock.name} cannot be opened ({error.strerror})"
        raise StoreUnavailable(reason) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = lock.read_text(encoding="utf-8") or "unknown"
            raise StoreInUse(
                f"another server writes to {str(path)!r}: process {holder}; "
                "stop it first, or name another store"
            ) from None
        with suppress(OSError):  # on a full disk the lock holds without the process id
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        yield
