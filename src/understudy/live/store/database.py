"""A connection to a database: its transactions, its errors, and the tables that it must have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from operator import attrgetter
from typing import Any, ClassVar, Literal, NamedTuple

from understudy.errors import InvalidArgument, StoreUnavailable, shorten
from understudy.live.store.records import (
    COLUMNS,
    FIRST_COLUMNS,
    FIRST_VERSION,
    OUTAGES,
    VERSION,
    Decision,
    Rewarded,
)

# "change": changes tokens beside the writer; "create": the same, and creates the store if there is
# none; "write": the one writer, which creates it too.
Access = Literal["read", "change", "create", "write"]
Row = tuple[Any, ...]

STORES = "pass the path of a file, or postgresql://user@host/database"
TABLE_NAMES = {"meta", "studies", "decisions", "snapshots", "refused", "tokens"}  # in every store
SELECT_DECISIONS = f"SELECT {', '.join(COLUMNS)} FROM decisions"
SELECT_FIRST = f"SELECT {', '.join(FIRST_COLUMNS)} FROM decisions"  # from tables of 0.5.0
INSERT_DECISIONS = f"INSERT INTO decisions (study, {', '.join(COLUMNS)})"
as_row = attrgetter(*COLUMNS)  # the fields of a `Decision` as a row of `decisions`


class Lookup(NamedTuple):
    """An index by which decisions are found: its column, its name, and its condition."""

    column: str
    name: str
    condition: str = ""


BY_ID = Lookup("id", "decision_ids")
FIRST_OF_UNIT = Lookup("unit", "units", " AND place = 1")
LATER_OF_UNIT = Lookup("unit", "unit_events", " AND place > 1")


class Database(ABC):
    """A connection to a database. A reader connects on first use, a writer by `connect`.

    After an error nothing is half done: the transaction is rolled back, or the connection is
    closed. A subclass holds everything in which one database differs from another: `error` is the
    base class of the driver's exceptions, `begin` starts a transaction and lets no other writer
    start one, `create` holds the statements of an empty store, `migrate` those that make the tables
    of the newest version of the first ones, `tuning` is a statement for writers, `tables` a query
    for the names of the tables, `update` begins an update of several rows.
    """

    error: ClassVar[type[Exception]]
    begin: ClassVar[str]
    create: ClassVar[str]
    migrate: ClassVar[str]
    tuning: ClassVar[str]
    tables: ClassVar[str]
    update: ClassVar[str] = "UPDATE"

    def __init__(self, access: Access) -> None:
        self.access = access
        self.may_create = access in {"create", "write"}  # until it has connected once
        self._resources = ExitStack()
        self._connection: Any = None
        self._version = VERSION

    @abstractmethod
    def open_connection(self) -> AbstractContextManager[Any]:
        """Yield a new connection; for a writer, hold the writer's lock as well."""

    @abstractmethod
    def execute(self, statement: str, values: Sequence[object]) -> Any:
        """Run a statement, in which each `?` is one of the values; return the cursor."""

    @abstractmethod
    def insert(self, study: int, decisions: Sequence[Decision]) -> None:
        """Insert decisions, in few statements."""

    @abstractmethod
    def find(self, lookup: Lookup, study: int, keys: Sequence[str]) -> list[Row]:
        """Return the rows of decisions with these keys, in few statements."""

    @abstractmethod
    def set_rewards(self, column: str, study: int, rewards: Sequence[Rewarded]) -> int:
        """Set rewards where the column is NULL; return how many rows changed."""

    @abstractmethod
    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""

    @abstractmethod
    def translate(self, error: Any) -> Exception:
        """Return the error to raise for one of the driver's."""

    def last_acknowledged(self) -> int | None:
        """Return the number of the last acknowledged write from the lock file.

        0 for a database without a lock file, None if the file has no number.
        """
        return 0

    # The files of a database server are not ours: so these do nothing unless a subclass has files.
    def settle(self) -> None:  # noqa: B027
        """Make sure that the writes so far are in the file of the store, and not beside it."""

    def watch(self) -> None:  # noqa: B027
        """Remember which files the open store has, for `check` and `acknowledge`."""

    def check(self) -> None:  # noqa: B027
        """Raise `StoreUnavailable` if a file of the store was removed, replaced or emptied."""

    def acknowledge(self, write: int) -> None:  # noqa: B027
        """Note outside of the database that a write is on disk, if the store is where it was."""

    def is_new(self) -> bool:
        """Return whether there is nothing yet; create nothing."""
        with self._translated_errors(), self.open_connection() as connection:
            return not connection.execute(self.tables).fetchall()

    def connect(self) -> None:
        """Connect, closing an earlier connection; create the tables, or check their version."""
        self.close()
        try:
            with self._translated_errors():
                self._connection = self._resources.enter_context(self.open_connection())
            if self.may_create:
                with self.transaction():
                    if not self.rows(self.tables):
                        self._run(self.create)
            self._check_version()
            if self.access == "write" and self._version != VERSION:
                with self.transaction():
                    self._run(self.migrate if self.has_table("outages") else OUTAGES + self.migrate)
                self._check_version()
            if self.access != "read":
                self.change(self.tuning)
            self.may_create = False
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._connection = None
        self._resources.close()

    @property
    def connection(self) -> Any:
        """The connection. A writer never connects by itself: it must load the store again first."""
        if self._connection is None:
            if self.access == "write":
                raise StoreUnavailable("the store was closed after an error, or is not open yet")
            self.connect()
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything that happens inside, or nothing."""
        with self._translated_errors():
            self.execute(self.begin, ())
            yield
            self.execute("COMMIT", ())

    def rows(self, statement: str, *values: object) -> list[Row]:
        """Return the rows of a query."""
        with self._translated_errors():
            found: list[Row] = self.execute(statement, values).fetchall()
            return found

    def scalar(self, query: str, *values: object) -> int:
        """Return the one whole number that a query finds."""
        rows = self.rows(query, *values)
        if len(rows) != 1 or not isinstance(rows[0][0], int):
            raise damaged(f"{query} finds {shorten(rows)}")
        return rows[0][0]

    def change(self, statement: str, *values: object) -> int:
        """Run a statement; return how many rows it changed."""
        with self._translated_errors():
            return int(self.execute(statement, values).rowcount)

    def has_table(self, name: str) -> bool:
        """Return whether there is such a table: 0.5.0 had fewer."""
        return (name,) in self.rows(self.tables)

    @property
    def is_migrated(self) -> bool:
        """Whether the tables are the newest: a reader leaves those of 0.5.0 as they are.

        It looks again, since a writer may have migrated them meanwhile.
        """
        _ = self.connection
        if self._version != VERSION:
            self._check_version()
        return self._version == VERSION

    def _run(self, script: str) -> None:
        for statement in filter(str.strip, script.split(";")):
            self.change(statement)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except self.error as error:
            self._recover()
            raise self.translate(error) from error
        except BaseException:
            self._recover()
            raise

    def _recover(self) -> None:
        if self._connection is not None:
            try:
                if self.in_transaction():
                    self.execute("ROLLBACK", ())
            except self.error:
                self.close()

    def _check_version(self) -> None:
        found = {name for (name,) in self.rows(self.tables)}
        if not found >= {"meta", "studies"}:
            what = "holds other tables" if found else "is empty"
            raise StoreUnavailable(
                f"this is no store of a live service: it {what}; name another, or a new one"
            )
        if missing := TABLE_NAMES - found:
            raise damaged(f"it has no table {', '.join(sorted(missing))}")
        version = self.scalar("SELECT value FROM meta WHERE key = 'format'")
        if not FIRST_VERSION <= version <= VERSION:
            raise StoreUnavailable(
                f"this store has format {version}, and this version of understudy reads formats "
                f"{FIRST_VERSION} to {VERSION}; use the version that wrote it, or name a new store"
            )
        self._version = version


def damaged(fault: str) -> StoreUnavailable:
    """Return the error for a store that another program has changed, or that is incomplete."""
    return StoreUnavailable(f"its content is damaged: {fault}; restore a backup")


def constraint_error(said: str) -> InvalidArgument:
    """Return the error for rows that violate a constraint of the database."""
    return InvalidArgument(
        "changes", said, "the store does not take such a row", "find what is there before you write"
    )
