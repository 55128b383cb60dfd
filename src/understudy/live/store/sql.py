"""The SQL of a store that all databases share: a connection, its readers, its one writer."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from operator import attrgetter
from typing import Any, ClassVar, Literal

import structlog

from understudy.errors import InvalidArgument, StoreUnavailable, shorten
from understudy.live.store.records import (
    COLUMNS,
    LATER_TABLES,
    VERSION,
    Changes,
    Decision,
    Outage,
    Rewarded,
    Scope,
    Snapshot,
    StudyRecord,
    TokenRecord,
)

# "change": changes tokens beside the writer; "create": the same, and creates the store if there is
# none; "write": the one writer, which creates it too.
Access = Literal["read", "change", "create", "write"]
Row = tuple[Any, ...]

STORES = "pass the path of a file, or postgresql://user@host/database"
TABLE_NAMES = {"meta", "studies", "decisions", "snapshots", "refused", "tokens"}  # in every store
BATCH = 10_000  # decisions read at a time, some 3 MB
SELECT_STUDIES = "SELECT key, name, spec, base, created_at, archived_at FROM studies"
SELECT_DECISIONS = f"SELECT {', '.join(COLUMNS)} FROM decisions"
INSERT_DECISIONS = f"INSERT INTO decisions (study, {', '.join(COLUMNS)})"
# Writes are counted: a store that counts fewer than were acknowledged has lost some.
ADD_COUNTS = (
    "INSERT INTO meta (key, value) VALUES ('writes', 0), ('lost', 0) ON CONFLICT DO NOTHING"
)
TIMES = {
    "studies": ("created_at", "archived_at"),
    "decisions": ("decided_at", "rewarded_at"),
    "tokens": ("created_at",),
    "outages": ("ended",),
}  # the columns that hold times, but for those that begin outages
as_row = attrgetter(*COLUMNS)  # the fields of a `Decision` as a row of `decisions`

log = structlog.get_logger("understudy.live")


class Database(ABC):
    """A connection to a database. A reader connects on first use, a writer by `connect`.

    After an error nothing is half done: the transaction is rolled back, or the connection is
    closed. A subclass holds everything in which one database differs from another: `error` is the
    base class of the driver's exceptions, `begin` starts a transaction and lets no other writer
    start one, `create` holds the statements of an empty store, `tuning` is a statement for writers,
    `tables` a query for the names of the tables, `update` begins an update of several rows.
    """

    error: ClassVar[type[Exception]]
    begin: ClassVar[str]
    create: ClassVar[str]
    tuning: ClassVar[str]
    tables: ClassVar[str]
    update: ClassVar[str] = "UPDATE"

    def __init__(self, access: Access) -> None:
        self.access = access
        self.may_create = access in {"create", "write"}  # until it has connected once
        self._resources = ExitStack()
        self._connection: Any = None

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
    def find(self, study: int, ids: Sequence[str]) -> list[Row]:
        """Return the rows with these ids, in few statements."""

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
        """Return the number of the last acknowledged write as it is known outside of the database.

        0 if the database has no such place, None if the place has no number.
        """
        return 0

    # The files of a database server are not ours: so these do nothing unless a subclass has files.
    def watch(self) -> None:  # noqa: B027
        """Remember which files the open store has, for `check` and `acknowledge`."""

    def check(self) -> None:  # noqa: B027
        """Raise `StoreUnavailable` if a file of the store was removed or replaced since then."""

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
                        for statement in self.create.split(";"):
                            self.change(statement)
            self._check_version()
            if self.access == "write" and not self.has_table("outages"):
                with self.transaction():
                    for statement in LATER_TABLES.split(";"):
                        self.change(statement)
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
        if version != VERSION:
            raise StoreUnavailable(
                f"this store has format {version}, and this version of understudy reads format "
                f"{VERSION}; use the version that wrote it, or name a new store"
            )


def damaged(fault: str) -> StoreUnavailable:
    """Return the error for a store that another program has changed, or that is incomplete."""
    return StoreUnavailable(f"its content is damaged: {fault}; restore a backup")


def constraint_error(said: str) -> InvalidArgument:
    """Return the error for rows that violate a constraint of the database."""
    return InvalidArgument(
        "changes", said, "the store does not take such a row", "find what is there before you write"
    )


class Reader:
    """Reads a store, also while another process writes to it. Used by one thread at a time.

    Every error of the database is raised as `StoreUnavailable`, with its reason in plain words.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def studies(self) -> list[StudyRecord]:
        """Return all studies, the oldest first."""
        return [StudyRecord(*row) for row in self._database.rows(f"{SELECT_STUDIES} ORDER BY key")]

    def decisions(self, study: int, after: int, limit: int) -> list[Decision]:
        """Return the decisions after a `seq`, in order, at most `limit`."""
        query = f"{SELECT_DECISIONS} WHERE study = ? AND seq > ? ORDER BY seq LIMIT ?"
        return [Decision(*row) for row in self._database.rows(query, study, after, limit)]

    def batches(
        self, study: int, until: int = sys.maxsize, *, after: int = 0
    ) -> Iterator[list[Decision]]:
        """Yield the decisions of a study in order, a batch at a time, between two `seq`."""
        while found := self.decisions(study, after, min(BATCH, until - after)):
            yield found
            after = found[-1].seq

    def last_seq(self, study: int) -> int:
        """Return the `seq` of the newest decision, 0 if there is none."""
        query = "SELECT coalesce(max(seq), 0) FROM decisions WHERE study = ?"
        return self._database.scalar(query, study)

    def snapshot(self, study: int) -> Snapshot | None:
        """Return the newest snapshot, if there is one."""
        query = "SELECT seq, policy, expired FROM snapshots WHERE study = ?"
        rows = self._database.rows(query, study)
        return Snapshot(*rows[0]) if rows else None

    def refused_counts(self, study: int) -> dict[str, int]:
        """Count refused events by reason."""
        query = "SELECT reason, count FROM refused WHERE study = ? ORDER BY reason"
        return dict(self._database.rows(query, study))

    def late_count(self, study: int) -> int:
        """Count the rewards that came after their wait."""
        query = "SELECT count(*) FROM decisions WHERE study = ? AND late_reward IS NOT NULL"
        return self._database.scalar(query, study)

    def clock(self) -> int:
        """Return the latest time that was written."""
        return self._database.scalar("SELECT value FROM meta WHERE key = 'clock'")

    def outages(self) -> list[Outage]:
        """Return all outages, in order."""
        if not self._database.has_table("outages"):
            return []
        rows = self._database.rows("SELECT begun, ended FROM outages ORDER BY begun")
        return [Outage(*row) for row in rows]

    def closed_seq(self, study: int) -> int:
        """Return the `seq` up to which no decision waits, whatever the clock says."""
        if not self._database.has_table("closed"):
            return 0
        return self._database.scalar(
            "SELECT coalesce(max(seq), 0) FROM closed WHERE study = ?", study
        )

    def tokens(self) -> list[TokenRecord]:
        """Return all valid tokens."""
        rows = self._database.rows("SELECT name, digest, scope FROM tokens ORDER BY name")
        try:
            return [TokenRecord(name, bytes.fromhex(digest), scope) for name, digest, scope in rows]
        except (TypeError, ValueError):
            raise damaged("a token has no digest") from None

    def lost_writes(self) -> int:
        """Return how many acknowledged writes are missing, and were not accepted as lost."""
        acknowledged = self._database.last_acknowledged() or 0  # first: a writer may be at work
        return self._kept("lost") + max(acknowledged - self._kept("writes"), 0)

    def _kept(self, key: str) -> int:
        """Return a number that stores of version 0.5.0 do not have: there it is 0."""
        return self._database.scalar(
            f"SELECT coalesce(max(value), 0) FROM meta WHERE key = '{key}'"
        )

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


class TokenStore(Reader):
    """A reader that also changes tokens and accepts losses; another process may be the writer."""

    def add_token(self, name: str, digest: bytes, scope: Scope, at: int) -> None:
        """Add a token, in place of one of the same name."""
        self._database.change(
            "INSERT INTO tokens (name, digest, scope, created_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, scope = excluded.scope, "
            "created_at = excluded.created_at",
            *(name, digest.hex(), scope, at),
        )

    def remove_token(self, name: str) -> bool:
        """Remove a token; return whether there was one."""
        return self._database.change("DELETE FROM tokens WHERE name = ?", name) > 0

    def accept_loss(self) -> int:
        """Accept that acknowledged writes are missing; return how many."""
        acknowledged = self._database.last_acknowledged() or 0
        lost = self.lost_writes()
        with self._database.transaction():
            self._database.change(ADD_COUNTS)
            self._database.change("UPDATE meta SET value = 0 WHERE key = 'lost'")
            self._database.change(
                "UPDATE meta SET value = ? WHERE key = 'writes' AND value < ?",
                *(acknowledged, acknowledged),
            )
        return lost


class Store(TokenStore):
    """The one writer of a store. When a method returns, its changes are on disk.

    `lost` counts acknowledged writes that are missing, and were not accepted as lost.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.lost = 0
        self._epoch = 0  # that of a new store; every `open` adds one
        self._writes = 0  # the number of the last acknowledged write

    def open(self) -> bool:
        """Connect and become the writer; return whether another one, or a loss, changed the store.

        It may be called again after `StoreUnavailable`; if another process is the writer, it raises
        `StoreInUse`.
        """
        self._database.connect()
        try:
            acknowledged = self._database.last_acknowledged()
            with self._database.transaction():
                found = self._database.scalar("SELECT value FROM meta WHERE key = 'epoch'")
                self._database.change("UPDATE meta SET value = ? WHERE key = 'epoch'", found + 1)
                self._database.change(ADD_COUNTS)
                writes = self._kept("writes")
                missing = max(self._writes, acknowledged or 0) - writes
                if missing > 0:
                    self._count_lost(missing)
            self._database.watch()
            self._database.acknowledge(writes + max(missing, 0))
            self.lost = self._kept("lost")
        except BaseException:  # a writer that has not counted itself must not write
            self._database.close()
            raise
        if acknowledged is None and writes > 0 == self._writes:
            log.warning(
                "it cannot be checked whether the store is complete",
                reason="its file NAME.lock is missing or empty, as after the restore of a backup",
            )
        expected, self._epoch = self._epoch, found + 1
        self._writes = writes + max(missing, 0)
        return found != expected or missing > 0

    def _count_lost(self, missing: int) -> None:
        """Note, in the store too, that acknowledged writes are missing."""
        log.error(
            "acknowledged events are missing from the store",
            missing_writes=missing,
            reason="NAME-wal was damaged or removed, or an older copy is in its place",
            remedy="restore a newer copy; or, for good: understudy audit --accept-loss",
        )
        self._database.change(
            "UPDATE meta SET value = value + ? WHERE key IN ('lost', 'writes')", missing
        )

    def check(self) -> None:
        """Raise `StoreUnavailable` if a file of the store was removed; read `lost` again."""
        self._database.check()
        self.lost = self._kept("lost")

    def find(self, study: int, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decisions that have one of these ids, by id."""
        found = (Decision(*row) for row in self._database.find(study, ids))
        return {decision.id: decision for decision in found}

    def write(self, changes: Sequence[Changes], clock: int) -> None:
        """Write all changes in one transaction, or nothing."""
        with self._acknowledged(clock):
            for change in changes:
                self._database.insert(change.study, change.decisions)
                self._set_rewards("reward", change.study, change.rewards)
                self._set_rewards("late_reward", change.study, change.late)
                for reason, count in change.refused.items():
                    self._database.change(
                        "INSERT INTO refused (study, reason, count) VALUES (?, ?, ?) ON CONFLICT "
                        "(study, reason) DO UPDATE SET count = refused.count + excluded.count",
                        *(change.study, reason, count),
                    )

    def _set_rewards(self, column: str, study: int, rewards: Sequence[Rewarded]) -> None:
        if self._database.set_rewards(column, study, rewards) != len(rewards):
            raise InvalidArgument(
                column,
                [reward.seq for reward in rewards],
                f"one of these decisions of study {study} is missing, or has its {column}",
                "name decisions that are stored and wait for it, each once",
            )

    @contextmanager
    def _acknowledged(self, clock: int) -> Iterator[None]:
        """Commit everything that happens inside, or nothing; count the write, advance the clock."""
        write = self._writes + 1
        with self._database.transaction():
            yield
            self._database.change(
                f"{self._database.update} meta SET value = CASE WHEN key = 'writes' THEN ? "
                "WHEN value < ? THEN ? ELSE value END WHERE key IN ('writes', 'clock')",
                *(write, clock, clock),
            )
        self._database.acknowledge(write)
        self._writes = write

    def write_clock(self, clock: int, outage: Outage | None = None) -> None:
        """Write the time, and the outage that ends there."""
        with self._acknowledged(clock):
            if outage is not None:
                self._database.change("INSERT INTO outages (begun, ended) VALUES (?, ?)", *outage)

    def set_back(self, clock: int, closed: Mapping[int, int]) -> None:
        """Set the clock and all later times back; `closed` has a `seq` for each study."""
        with self._acknowledged(clock):
            for table, columns in TIMES.items():
                for column in columns:
                    self._database.change(
                        f"UPDATE {table} SET {column} = ? WHERE {column} > ?", clock, clock
                    )
            self._database.change("DELETE FROM outages WHERE begun >= ?", clock)
            self._database.change("UPDATE meta SET value = ? WHERE key = 'clock'", clock)
            for study, seq in closed.items():
                self._database.change(
                    "INSERT INTO closed (study, seq) VALUES (?, ?) "
                    "ON CONFLICT (study) DO UPDATE SET seq = excluded.seq",
                    *(study, seq),
                )

    def add_study(self, name: str, spec: str, base: str | None, at: int) -> StudyRecord:
        """Add a study."""
        with self._acknowledged(at):
            self._database.change(
                "INSERT INTO studies (key, name, spec, base, created_at) "
                "SELECT coalesce(max(key), 0) + 1, ?, ?, ?, ? FROM studies",
                *(name, spec, base, at),
            )
            (row,) = self._database.rows(f"{SELECT_STUDIES} WHERE name = ?", name)
        return StudyRecord(*row)

    def archive(self, study: int, at: int) -> None:
        """Mark a study as archived."""
        with self._acknowledged(at):
            self._database.change(
                "UPDATE studies SET archived_at = ? WHERE key = ? AND archived_at IS NULL",
                *(at, study),
            )

    def save_snapshot(self, study: int, snapshot: Snapshot) -> None:
        """Save a snapshot in place of the one before."""
        self._database.change(
            "INSERT INTO snapshots (study, seq, policy, expired) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (study) DO UPDATE SET seq = excluded.seq, policy = excluded.policy, "
            "expired = excluded.expired",
            *(study, snapshot.seq, snapshot.policy, snapshot.expired),
        )
