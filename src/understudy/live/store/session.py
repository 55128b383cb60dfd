"""A database session: the tables of a store, and a connection that may fail at any moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Literal, Protocol

from understudy.errors import InvalidArgument, StoreUnavailable
from understudy.live.store.records import Decision, Rewarded

Access = Literal["read", "tokens", "write"]
Row = tuple[Any, ...]

VERSION = 1  # of the tables below; another one needs a migration
COLUMNS = "seq, id, action, propensity, context, decided_at, reward, rewarded_at, late_reward"

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BIGINT NOT NULL);
CREATE TABLE studies (
    key BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, spec TEXT NOT NULL, base TEXT,
    created_at BIGINT NOT NULL, archived_at BIGINT
);
CREATE TABLE decisions (
    study BIGINT NOT NULL REFERENCES studies (key), seq BIGINT NOT NULL, id TEXT NOT NULL,
    action BIGINT NOT NULL, propensity {number}, context TEXT, decided_at BIGINT NOT NULL,
    reward {number}, rewarded_at BIGINT, late_reward {number},
    PRIMARY KEY (study, seq)
) {sorted};
CREATE UNIQUE INDEX decision_ids ON decisions (study, id);
CREATE INDEX late_rewards ON decisions (study, late_reward) WHERE late_reward IS NOT NULL;
CREATE TABLE snapshots (
    study BIGINT PRIMARY KEY REFERENCES studies (key), seq BIGINT NOT NULL, policy TEXT NOT NULL,
    expired BIGINT NOT NULL
);
CREATE TABLE refused (
    study BIGINT NOT NULL REFERENCES studies (key), reason TEXT NOT NULL, count BIGINT NOT NULL,
    PRIMARY KEY (study, reason)
);
CREATE TABLE tokens (
    name TEXT PRIMARY KEY, digest TEXT NOT NULL, scope TEXT NOT NULL, created_at BIGINT NOT NULL
);
INSERT INTO meta (key, value) VALUES ('format', {version}), ('clock', 0), ('epoch', 0)
"""


def create_statements(number: str, sorted_by_key: str) -> list[str]:
    """Return the statements that create an empty store.

    `number` is the type that keeps every bit of a double; `sorted_by_key` is the clause that keeps
    a table in the order of its key.

    >>> create_statements("BLOB", "WITHOUT ROWID")[0]
    'CREATE TABLE meta (key TEXT PRIMARY KEY, value BIGINT NOT NULL)'
    """
    text = TABLES.format(number=number, sorted=sorted_by_key, version=VERSION)
    return [statement.strip() for statement in text.split(";")]


class Cursor(Protocol):
    """The part of a DB-API cursor that is used."""

    @property
    def rowcount(self) -> int: ...

    def fetchall(self) -> list[Any]: ...


class Dialect(Protocol):
    """Everything in which one database differs from another.

    `error` is the base class of the driver's exceptions. `begin` starts a transaction and lets no
    other writer start one. `create` holds the statements of an empty store, `tuning` a statement
    for writers, `tables` a query for the names of the tables.
    """

    @property
    def access(self) -> Access: ...
    @property
    def error(self) -> type[Exception]: ...
    @property
    def begin(self) -> str: ...
    @property
    def create(self) -> Sequence[str]: ...
    @property
    def tuning(self) -> str: ...
    @property
    def tables(self) -> str: ...

    def connected(self) -> AbstractContextManager[Any]:
        """Connect; for a writer, hold the writer's lock as well."""

    def execute(self, connection: Any, statement: str, values: Sequence[object]) -> Cursor:
        """Run a statement, in which each `?` is one of the values."""

    def insert(self, connection: Any, study: int, decisions: Sequence[Decision]) -> None:
        """Insert decisions, in few statements."""

    def find(self, connection: Any, study: int, ids: Sequence[str]) -> list[Row]:
        """Return the rows with these ids, in few statements."""

    def fill(self, connection: Any, column: str, study: int, rewards: Sequence[Rewarded]) -> int:
        """Set rewards where the column is NULL; return how many rows changed."""

    def roll_back(self, connection: Any) -> None:
        """Roll back the open transaction, if there is one."""

    def explain(self, error: Exception) -> Exception:
        """Return the error to raise for one of the driver's."""


class Session:
    """One connection at a time. A reader connects on first use, a writer by `connect`.

    After an error nothing is half done: the transaction is rolled back, or the connection is
    closed.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._held = ExitStack()
        self._connection: Any = None

    def connect(self) -> None:
        """Connect, closing an earlier connection; create the tables, or check their version."""
        self.close()
        try:
            with self._explaining():
                self._connection = self._held.enter_context(self.dialect.connected())
            if self.dialect.access != "read":
                with self.transaction():
                    self._create_tables_if_missing()
            self._check_version()
            if self.dialect.access != "read":
                self.change(self.dialect.tuning)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._connection = None
        self._held.close()

    @property
    def connection(self) -> Any:
        """The connection. A writer never connects by itself: it must load the store again first."""
        if self._connection is None:
            if self.dialect.access == "write":
                raise StoreUnavailable("the store was closed after an error, or is not open yet")
            self.connect()
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything that happens inside, or nothing."""
        with self._explaining():
            self.dialect.execute(self.connection, self.dialect.begin, ())
            yield
            self.dialect.execute(self.connection, "COMMIT", ())

    def rows(self, statement: str, *values: object) -> list[Row]:
        """Return the rows of a query."""
        with self._explaining():
            return self.dialect.execute(self.connection, statement, values).fetchall()

    def change(self, statement: str, *values: object) -> int:
        """Run a statement; return how many rows it changed."""
        with self._explaining():
            return self.dialect.execute(self.connection, statement, values).rowcount

    def insert(self, study: int, decisions: Sequence[Decision]) -> None:
        """Insert decisions."""
        with self._explaining():
            self.dialect.insert(self.connection, study, decisions)

    def find(self, study: int, ids: Sequence[str]) -> list[Row]:
        """Return the rows with these ids."""
        with self._explaining():
            return self.dialect.find(self.connection, study, ids)

    def fill(self, column: str, study: int, rewards: Sequence[Rewarded]) -> int:
        """Set rewards where the column is NULL; return how many rows changed."""
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

    def _create_tables_if_missing(self) -> None:
        if not self.rows(self.dialect.tables):
            for statement in self.dialect.create:
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
    """Return a decision's fields in the order of `COLUMNS`.

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
    """Return the error for rows that violate a constraint of the database.

    >>> print(refused_rows("Key (name)=(a) already exists."))
    changes = 'Key (name)=(a) already exists.': the store does not take such a row; find what ...
    """
    return InvalidArgument(
        "changes", said, "the store does not take such a row", "find what is there before you write"
    )
