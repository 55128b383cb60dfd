"""Stores in SQLite: one file, with nothing to set up."""

from __future__ import annotations

import sqlite3
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from understudy.errors import StoreUnavailable
from understudy.live.store.database import (
    INSERT_DECISIONS,
    SELECT_DECISIONS,
    Access,
    Database,
    Lookup,
    Row,
    as_row,
    constraint_error,
)
from understudy.live.store.records import (
    COLUMNS,
    MIGRATION,
    TABLES,
    VERSION,
    Decision,
    Rewarded,
)
from understudy.live.store.store_files import (
    FULL_DISK,
    WriterLock,
    beside,
    checked_path,
    create_private,
    last_acknowledged,
    writer_lock,
)

# Seconds between two looks at the files of a store that acknowledges writes: a look takes six
# microseconds, and gives up the interpreter's lock three times.
CHECK_EVERY = 0.05
BUSY_TIMEOUT = 5.0  # seconds that another program, such as a backup, may lock the file
PRAGMAS = (
    "synchronous = FULL",  # a commit is on disk when it returns
    "fullfsync = ON",  # on macOS too, where a plain fsync leaves it in the cache of the disk
    "foreign_keys = ON",
    "wal_autocheckpoint = 4000",  # pages, 16 MB: ids come in any order and hit the same pages again
    "cache_size = -65536",  # kibibytes: so that the index of ids stays in memory
)
# A BLOB column keeps -0.0, a REAL column stores 0.
TYPES = {"number": "BLOB", "bytes": "BLOB", "sorted": "WITHOUT ROWID", "version": VERSION}
# Rows in a statement: SQLite compiles each size once, and a group takes the next larger one.
SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
WIDTH = 1 + len(COLUMNS)  # values per row of `decisions`: the study, and the fields of a Decision
REASONS = {  # by SQLite's primary result codes
    sqlite3.SQLITE_FULL: FULL_DISK,
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
    create = TABLES.format(**TYPES)
    migrate = MIGRATION.format(**TYPES)
    tuning = "PRAGMA journal_mode = WAL"
    tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
    # A row that is refused ends the transaction anyway. Without the words, SQLite keeps a journal
    # of the statement, to undo the rows before: 10 microseconds.
    update = "UPDATE OR ROLLBACK"

    def __init__(self, where: str, access: Access) -> None:
        super().__init__(access)
        self.path = checked_path(where, must_exist=not self.may_create)
        self._lock: WriterLock | None = None
        self._check_at = 0.0

    @contextmanager
    def open_connection(self) -> Iterator[sqlite3.Connection]:
        with ExitStack() as stack:
            if self.may_create:
                create_private(self.path)
            elif not self.path.exists():
                raise StoreUnavailable(f"its file {self.path.name} is gone; bring it back")
            if self.access == "write":
                self._lock = stack.enter_context(writer_lock(self.path))
                stack.callback(setattr, self, "_lock", None)
            connection = stack.enter_context(
                closing(self._open("ro" if self.access == "read" else "rw"))
            )
            for pragma in PRAGMAS if self.access != "read" else ():
                connection.execute(f"PRAGMA {pragma}")
            yield connection

    def _open(self, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT,
            isolation_level=None,
            check_same_thread=False,
        )

    def is_new(self) -> bool:
        return not self.path.exists() or super().is_new()

    def last_acknowledged(self) -> int | None:
        return last_acknowledged(self.path)

    def settle(self) -> None:
        self.rows("PRAGMA wal_checkpoint(PASSIVE)")

    def watch(self) -> None:
        if self._lock is not None:
            self._lock.watch()

    def acknowledge(self, write: int) -> None:
        if time.monotonic() >= self._check_at:
            self.check()
        if self._lock is not None:
            self._lock.sign(write)

    def check(self) -> None:
        self._check_at = time.monotonic() + CHECK_EVERY
        if self._lock is None or (gone := self._lock.missing()) is None:
            return
        if gone == str(beside(self.path, "-shm")):
            self._close_without_checkpoint()
        elif gone != str(self.path):
            # A removed NAME-wal is still open: its writes go to the file of the store before it is
            # closed. SQLite would do so itself only if no other process had the store open.
            with suppress(StoreUnavailable):
                self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        self.close()
        raise StoreUnavailable(f"its file {Path(gone).name} was removed, replaced or emptied")

    def _close_without_checkpoint(self) -> None:
        """Close the connection, and leave NAME-wal as it is.

        Without NAME-shm, SQLite's locks do not hold: another program may have changed NAME-wal, so
        nothing of it may be copied to the store. SQLite copies when the last connection is closed,
        unless that one may only read.
        """
        with closing(self._open("ro")) as last:
            with suppress(sqlite3.Error):
                last.execute("SELECT 1 FROM sqlite_master").fetchall()  # so that it opens the file
            self.close()

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

    def find(self, lookup: Lookup, study: int, keys: Sequence[str]) -> list[Row]:
        found: list[Row] = []
        for group, size in padded_groups(keys):
            padding = [group[-1]] * (size - len(group))  # a repeated key finds its rows once
            query = (
                f"{SELECT_DECISIONS} INDEXED BY {lookup.name} "  # else it may scan
                f"WHERE study = ? AND {lookup.column} IN {placeholders(size)}{lookup.condition}"
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
