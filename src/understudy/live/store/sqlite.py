"""A store in one SQLite file, with nothing to set up."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from understudy.errors import StoreInUse, StoreUnavailable
from understudy.live.store.records import Decision, Rewarded
from understudy.live.store.schema import COLUMNS, Access, declarations
from understudy.live.store.session import Row, Session, as_row, refused_rows
from understudy.live.store.sql import SqlReader, SqlStore, SqlTokens

__all__ = ["SqliteReader", "SqliteStore", "SqliteTokens"]

WAIT = 5_000  # milliseconds for which another program may hold the file
PRAGMAS = (
    "synchronous = FULL",
    "foreign_keys = ON",
    "wal_autocheckpoint = 4000",  # pages: ids come in any order, and hit the same pages again
    "cache_size = -65536",  # kilobytes: so that their index stays in memory
)
SIZES = tuple(2**power for power in range(9, -1, -1))  # of groups of rows: few, so few statements
DECISION = "(" + ", ".join("?" * 10) + ")"
REWARD = "(?, ?, ?)"
REASONS = {
    "FULL": "the disk is full",
    "IOERR": "the disk cannot be read or written",
    "READONLY": "its file may be read only",
    "BUSY": "another program holds its file",
    "LOCKED": "another program holds its file",
    "CORRUPT": "its file is damaged",
    "NOTADB": "its file is not an SQLite database",
    "CANTOPEN": "its file cannot be opened",
    "PERM": "its file cannot be opened",
}
Item = TypeVar("Item")


class SqliteStore(SqlStore):
    """The one writer of a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(Session(Sqlite(Path(path).resolve(), "write")))


class SqliteReader(SqlReader):
    """Looks into a file that may be written to at the same time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(Session(Sqlite(Path(path).resolve(), "read")))


class SqliteTokens(SqlTokens):
    """Changes the tokens in a file, whoever is its writer."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(Session(Sqlite(Path(path).resolve(), "tokens")))


@dataclass(frozen=True)
class Sqlite:
    """How SQLite is spoken to.

    Every step of a statement lets other threads run, and waits for them to let this one: so many
    rows go into one statement, and the numbers of rows are few, so that statements are compiled
    once.
    """

    path: Path
    access: Access
    error: type[Exception] = sqlite3.Error
    begin: str = "BEGIN IMMEDIATE"
    declarations: tuple[str, ...] = tuple(  # BLOB keeps numbers as they come, REAL makes 0 of -0.0
        declarations(number="BLOB", sorted_by_key="WITHOUT ROWID")
    )
    tuning: str = "PRAGMA journal_mode = WAL"
    tables: str = "SELECT name FROM sqlite_master WHERE type = 'table'"

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """A connection, with the lock of the writer if it is to write."""
        mode = "ro" if self.access == "read" else "rwc"
        with (
            locked(self.path) if self.access == "write" else nullcontext(),
            closing(
                sqlite3.connect(
                    f"{self.path.as_uri()}?mode={mode}",
                    uri=True,
                    timeout=WAIT / 1_000,
                    isolation_level=None,
                    check_same_thread=False,
                )
            ) as connection,
        ):
            for pragma in PRAGMAS if self.access != "read" else ():
                connection.execute(f"PRAGMA {pragma}")
            yield connection

    def execute(
        self, connection: sqlite3.Connection, statement: str, values: Sequence[object]
    ) -> sqlite3.Cursor:
        """Run a statement."""
        return connection.execute(statement, values)

    def insert(
        self, connection: sqlite3.Connection, study: int, decisions: Sequence[Decision]
    ) -> None:
        """All of these rows, in few steps."""
        for group in groups(decisions):
            values = [value for decision in group for value in (study, *as_row(decision))]
            statement = f"INSERT INTO decisions (study, {COLUMNS}) VALUES "
            connection.execute(statement + ", ".join([DECISION] * len(group)), values)

    def find(self, connection: sqlite3.Connection, study: int, ids: Sequence[str]) -> list[Row]:
        """The rows with these ids, in few steps."""
        found: list[Row] = []
        for group in groups(ids):
            marks = ", ".join("?" * len(group))
            query = (
                f"SELECT {COLUMNS} FROM decisions INDEXED BY decision_ids "  # else it reads all
                f"WHERE study = ? AND id IN ({marks})"
            )
            found += connection.execute(query, (study, *group)).fetchall()
        return found

    def fill(
        self,
        connection: sqlite3.Connection,
        column: str,
        study: int,
        rewards: Sequence[Rewarded],
    ) -> int:
        """Put rewards where there is none; how many were."""
        filled = 0
        for group in groups(rewards):
            marks = ", ".join([REWARD] * len(group))
            statement = (
                f"UPDATE decisions SET {column} = given.column2, rewarded_at = given.column3 "
                f"FROM (VALUES {marks}) AS given "
                f"WHERE study = ? AND seq = given.column1 AND {column} IS NULL"
            )
            values = [value for reward in group for value in reward]
            filled += connection.execute(statement, (*values, study)).rowcount
        return filled

    def roll_back(self, connection: sqlite3.Connection) -> None:
        """Undo what was not committed, unless SQLite has done so itself."""
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def explain(self, error: Exception) -> Exception:
        """What went wrong, in plain words."""
        if isinstance(error, sqlite3.IntegrityError):
            return refused_rows(str(error))
        kind = getattr(error, "sqlite_errorname", "").split("_")[1:2]
        return StoreUnavailable(REASONS.get("".join(kind), str(error)))


def groups(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The items in order, cut into groups whose sizes are powers of two.

    >>> [len(group) for group in groups(range(1_035))]
    [512, 512, 8, 2, 1]
    """
    start = 0
    for size in SIZES:
        while len(items) - start >= size:
            yield items[start : start + size]
            start += size


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the only writer of a file, until the end or the death of this process."""
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
        with suppress(OSError):  # a full disk holds no number, and the lock holds all the same
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        yield
