"""A store in one SQLite file, with nothing to set up."""

from __future__ import annotations

import os
import sqlite3
import sys
from bisect import bisect_left
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
SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # of rows in a statement
WIDTH = 10  # the columns of a decision, and its study
DECISION = "(" + ", ".join("?" * WIDTH) + ")"
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

    Every statement lets other threads run, and waits for them to let this one: so all rows go into
    one, which may have room for more than there are. There are few sizes of statements, so that
    they are compiled once.
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
        for group, size in groups(decisions):
            marks = ", ".join([DECISION] * size)
            statement = (
                f"INSERT INTO decisions (study, {COLUMNS}) SELECT * FROM (VALUES {marks}) LIMIT ?"
            )
            values = [value for decision in group for value in (study, *as_row(decision))]
            nothing = [None] * (WIDTH * (size - len(group)))
            connection.execute(statement, (*values, *nothing, len(group)))

    def find(self, connection: sqlite3.Connection, study: int, ids: Sequence[str]) -> list[Row]:
        """The rows with these ids, in few steps."""
        found: list[Row] = []
        for group, size in groups(ids):
            marks = ", ".join("?" * size)
            query = (
                f"SELECT {COLUMNS} FROM decisions INDEXED BY decision_ids "  # else it reads all
                f"WHERE study = ? AND id IN ({marks})"
            )
            again = [group[-1]] * (size - len(group))  # what is named twice is found once
            found += connection.execute(query, (study, *group, *again)).fetchall()
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
        for group, size in groups(rewards):
            marks = ", ".join([REWARD] * size)
            statement = (
                f"UPDATE decisions SET {column} = given.column2, rewarded_at = given.column3 "
                f"FROM (VALUES {marks}) AS given "
                f"WHERE study = ? AND seq = given.column1 AND {column} IS NULL"
            )
            values = [value for reward in group for value in reward]
            nothing = [None] * (len(Rewarded._fields) * (size - len(group)))
            filled += connection.execute(statement, (*values, *nothing, study)).rowcount
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


def groups(items: Sequence[Item]) -> Iterator[tuple[Sequence[Item], int]]:
    """The items in order, each group with the size of the statement that holds it.

    >>> [(len(group), size) for group, size in groups(range(1_060))]
    [(512, 512), (512, 512), (36, 48)]
    """
    for start in range(0, len(items), SIZES[-1]):
        group = items[start : start + SIZES[-1]]
        yield group, SIZES[bisect_left(SIZES, len(group))]


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
