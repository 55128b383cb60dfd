"""A connection to a database that may fail at any moment: held, lost, explained, made anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

from understudy.errors import InvalidArgument, StoreUnavailable
from understudy.live.store.records import Decision, Rewarded
from understudy.live.store.schema import VERSION, Access

__all__ = ["Dialect", "Row", "Session", "as_row", "refused_rows"]

Row = tuple[Any, ...]


class Cursor(Protocol):
    """What both drivers give for a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchall(self) -> list[Any]:
        """All rows."""


class Dialect(Protocol):
    """All in which one database differs from another."""

    @property
    def access(self) -> Access:
        """What the connection is for: only who writes has to be the only one."""

    @property
    def error(self) -> type[Exception]:
        """The root of what the driver raises."""

    @property
    def begin(self) -> str:
        """The statement that begins to write, and lets no other begin."""

    @property
    def declarations(self) -> Sequence[str]:
        """The statements that make an empty store."""

    @property
    def tuning(self) -> str:
        """A statement for those who write, once it is known that the store is one of ours."""

    @property
    def tables(self) -> str:
        """A query: the names of the tables that are there."""

    def connected(self) -> AbstractContextManager[Any]:
        """A connection, and with it the right to write if that is what it is for."""

    def execute(self, connection: Any, statement: str, values: Sequence[object]) -> Cursor:
        """Run a statement in which a `?` stands for each value."""

    def insert(self, connection: Any, study: int, decisions: Sequence[Decision]) -> None:
        """All of these rows, in few steps."""

    def find(self, connection: Any, study: int, ids: Sequence[str]) -> list[Row]:
        """The rows with these ids, in few steps."""

    def fill(self, connection: Any, column: str, study: int, rewards: Sequence[Rewarded]) -> int:
        """Put rewards where there is none; how many were."""

    def roll_back(self, connection: Any) -> None:
        """Undo what was not committed, if there is any."""

    def explain(self, error: Exception) -> Exception:
        """What went wrong, in plain words."""


class Session:
    """One connection at a time. A reader's is made when it is needed, a writer's by `connect`.

    After an error nothing is half done: what was not committed is undone, or the connection is
    given up.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._held = ExitStack()
        self._connection: Any = None

    def connect(self) -> None:
        """Begin anew, whatever was there before, with a store that is one of ours."""
        self.close()
        try:
            with self._explaining():
                self._connection = self._held.enter_context(self.dialect.connected())
            if self.dialect.access != "read":
                with self.transaction():
                    self._make_tables_if_there_are_none()
            self._check_version()
            if self.dialect.access != "read":
                self.change(self.dialect.tuning)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection, if there is one."""
        self._connection = None
        self._held.close()

    @property
    def connection(self) -> Any:
        """The connection; only who writes must have asked for it."""
        if self._connection is None:
            if self.dialect.access == "write":
                raise StoreUnavailable("the store was closed after an error, or is not open yet")
            self.connect()
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that happens inside is written, or nothing."""
        with self._explaining():
            self.dialect.execute(self.connection, self.dialect.begin, ())
            yield
            self.dialect.execute(self.connection, "COMMIT", ())

    def rows(self, statement: str, *values: object) -> list[Row]:
        """What a query gives."""
        with self._explaining():
            return self.dialect.execute(self.connection, statement, values).fetchall()

    def change(self, statement: str, *values: object) -> int:
        """How many rows a statement changed."""
        with self._explaining():
            return self.dialect.execute(self.connection, statement, values).rowcount

    def insert(self, study: int, decisions: Sequence[Decision]) -> None:
        """All of these rows."""
        with self._explaining():
            self.dialect.insert(self.connection, study, decisions)

    def find(self, study: int, ids: Sequence[str]) -> list[Row]:
        """The rows with these ids."""
        with self._explaining():
            return self.dialect.find(self.connection, study, ids)

    def fill(self, column: str, study: int, rewards: Sequence[Rewarded]) -> int:
        """Put rewards where there is none; how many were."""
        with self._explaining():
            return self.dialect.fill(self.connection, column, study, rewards)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except self.dialect.error as error:
            self._recover()
            raise self.dialect.explain(error) from error
        except BaseException:
            self._recover()
            raise

    def _recover(self) -> None:
        if self._connection is not None:
            try:
                self.dialect.roll_back(self._connection)
            except self.dialect.error:
                self.close()

    def _make_tables_if_there_are_none(self) -> None:
        if not self.rows(self.dialect.tables):
            for statement in self.dialect.declarations:
                self.change(statement)

    def _check_version(self) -> None:
        found = {name for (name,) in self.rows(self.dialect.tables)}
        if not found >= {"meta", "studies"}:
            what = "holds other tables" if found else "is empty"
            raise StoreUnavailable(
                f"this is no store of a live service: it {what}; name another, or a new one"
            )
        ((version,),) = self.rows("SELECT value FROM meta WHERE key = 'format'")
        if version != VERSION:
            raise StoreUnavailable(
                f"this store has format {version}, and this version of understudy reads format "
                f"{VERSION}; use the version that wrote it, or name a new store"
            )


def as_row(decision: Decision) -> Row:
    """A decision's fields, in the order of the columns.

    >>> as_row(Decision(1, "a", 3, 0.25, None, 1_700))
    (1, 'a', 3, 0.25, None, 1700, None, None, None)
    """
    return (
        decision.seq,
        decision.id,
        decision.action,
        decision.propensity,
        decision.context,
        decision.decided_at,
        decision.reward,
        decision.rewarded_at,
        decision.late_reward,
    )


def refused_rows(said: str) -> InvalidArgument:
    """The error for rows that a database does not take, with what it says of them.

    >>> print(refused_rows("Key (name)=(a) already exists."))
    changes = 'Key (name)=(a) already exists.': the store does not take such a row; find what ...
    """
    return InvalidArgument(
        "changes", said, "the store does not take such a row", "find what is there before you write"
    )
