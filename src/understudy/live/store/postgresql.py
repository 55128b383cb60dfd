"""Stores in PostgreSQL, in a schema of their own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from understudy.errors import (
    InvalidArgument,
    MissingExtra,
    StoreInUse,
    StoreUnavailable,
    first_line,
)
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

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ImportError:
    raise MissingExtra(
        "a store in PostgreSQL needs psycopg, which is not installed: "
        "pip install 'understudy[postgresql]'"
    ) from None

SCHEMA = "understudy"
# Keys of two advisory locks, "unde" and "rstu" in ASCII: one per writer, one per transaction.
WRITER_LOCK, TRANSACTION_LOCK = 0x756E6465, 0x72737475
STATEMENT_TIMEOUT = 30  # seconds: far above any statement of ours; then the store counts as lost
LOCK_TIMEOUT = 2  # seconds: the server frees the lock of a closed connection milliseconds later
# A dead connection is noticed within 25 seconds. A URL may say otherwise.
DEFAULTS = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# The server too must notice when a writer's machine dies: until then it keeps the lock.
SETTINGS = f"""
SET search_path = {SCHEMA};
SET synchronous_commit = on;
SET statement_timeout = '{STATEMENT_TIMEOUT}s';
SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3
"""
HOLDER = """
SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND classid = %s AND objid = 0
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
# Without compression, a snapshot of 13 MB is written in 110 ms, and not in 320. Events wait for it.
# It is left as it is if its table has another owner, or a program such as a backup reads it.
STORAGE = f"""
DO $$ BEGIN
    IF EXISTS (
        SELECT FROM pg_attribute WHERE attname = 'policy' AND attstorage <> 'e'
        AND attrelid = '{SCHEMA}.snapshots'::regclass
    ) THEN
        SET LOCAL lock_timeout = '100ms';
        ALTER TABLE {SCHEMA}.snapshots ALTER policy SET STORAGE EXTERNAL;
        ALTER TABLE {SCHEMA}.studies ALTER base SET STORAGE EXTERNAL;
    END IF;
EXCEPTION WHEN insufficient_privilege OR lock_not_available THEN
    NULL;
END $$
"""
TYPES = {
    **dict.fromkeys(("id", "context", "unit"), "text"),
    **dict.fromkeys(("propensity", "reward", "late_reward"), "double precision"),
    "propensity_vector": "bytea",
}  # of the columns that hold no whole numbers
NAMES = {"number": "DOUBLE PRECISION", "bytes": "BYTEA", "sorted": "", "version": VERSION}
ARRAYS = ", ".join(f"?::{TYPES.get(column, 'bigint')}[]" for column in COLUMNS)
REASONS: dict[type[Exception], str] = {
    errors.DiskFull: "the disk of the database server is full",
    errors.ReadOnlySqlTransaction: "the database may only be read",
    errors.InsufficientPrivilege: (
        f"its user may not do this; let it own the schema {SCHEMA}, or create it"
    ),
    errors.QueryCanceled: f"the database did not answer within {STATEMENT_TIMEOUT} seconds",
    errors.LockNotAvailable: "another program, such as a backup, reads its tables; try again later",
    errors.AdminShutdown: "the database server is shutting down",
    errors.CrashShutdown: "the database server has crashed",
    errors.CannotConnectNow: "the database server is starting up",
}


class Postgres(Database):
    """A schema of PostgreSQL: many rows travel as arrays, and numbers in binary, bit for bit.

    A writer holds an advisory lock of its connection, and loses it with the connection.
    """

    error = psycopg.Error
    begin = f"BEGIN; SELECT pg_advisory_xact_lock({TRANSACTION_LOCK}, 0)"  # as BEGIN IMMEDIATE
    create = f"CREATE SCHEMA IF NOT EXISTS {SCHEMA};" + TABLES.format(**NAMES)
    # It does not wait for a backup; the indices of many decisions take their time.
    migrate = (
        f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'; SET LOCAL statement_timeout = 0;"
        + MIGRATION.format(**NAMES)
    )
    # Every query has an index. Without statistics, the planner might still choose a scan.
    tuning = (
        "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;" + STORAGE
    )
    tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{SCHEMA}'"

    def __init__(self, url: str, access: Access) -> None:
        super().__init__(access)
        self._settings = connection_settings(url)

    @contextmanager
    def open_connection(self) -> Iterator[psycopg.Connection]:
        with closing(psycopg.connect(autocommit=True, **self._settings)) as connection:
            encoding = connection.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                raise StoreUnavailable(
                    f"this database is encoded in {encoding} and cannot hold every text; "
                    "create one with ENCODING 'UTF8'"
                )
            connection.execute(SETTINGS)
            if self.access == "read":
                connection.execute("SET default_transaction_read_only = on")
            if self.access == "write":
                become_writer(connection)
            yield connection

    def execute(self, statement: str, values: Sequence[object]) -> Any:
        if not values:  # several statements may go at once
            return self.connection.execute(statement.encode())
        return self.connection.execute(statement.replace("?", "%b").encode(), values, binary=True)

    def insert(self, study: int, decisions: Sequence[Decision]) -> None:
        if decisions:
            columns = [list(column) for column in zip(*map(as_row, decisions), strict=True)]
            self.change(f"{INSERT_DECISIONS} SELECT ?, * FROM unnest ({ARRAYS})", study, *columns)

    def find(self, lookup: Lookup, study: int, keys: Sequence[str]) -> list[Row]:
        # OFFSET keeps the planner from making a join of it, and id = ANY (…) would scan the whole
        # study while there are no statistics.
        query = (
            "SELECT found.* FROM unnest(?::text[]) AS wanted (key), LATERAL ("
            f"{SELECT_DECISIONS} WHERE study = ? AND {lookup.column} = wanted.key{lookup.condition}"
            " OFFSET 0) AS found"
        )
        return self.rows(query, list(keys), study)

    def set_rewards(self, column: str, study: int, rewards: Sequence[Rewarded]) -> int:
        if not rewards:
            return 0
        statement = (
            f"UPDATE decisions SET {column} = given.reward, rewarded_at = given.rewarded_at "
            "FROM unnest(?::bigint[], ?::bigint[], ?::double precision[], ?::bigint[]) "
            "AS given (study, seq, reward, rewarded_at) "
            "WHERE decisions.study = given.study AND decisions.seq = given.seq "
            f"AND decisions.{column} IS NULL"
        )  # the study in every row: as a constant, it might be the only key used of the index
        columns = [list(values) for values in zip(*rewards, strict=True)]
        return self.change(statement, [study] * len(rewards), *columns)

    def in_transaction(self) -> bool:
        status: TransactionStatus = self.connection.info.transaction_status
        return status != TransactionStatus.IDLE

    def translate(self, error: psycopg.Error) -> Exception:
        said = first_line(error)
        if isinstance(error, psycopg.IntegrityError | psycopg.DataError):
            return constraint_error(error.diag.message_detail or said)
        if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
            return StoreUnavailable(f"the database server cannot be reached ({said})")
        return StoreUnavailable(REASONS.get(type(error), f"the database server says: {said}"))


def connection_settings(url: str) -> dict[str, Any]:
    """Return the settings of a URL, and our defaults for those that it leaves out."""
    try:
        given = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):  # its message repeats the URL, which may hold a password
        raise InvalidArgument(
            "store",
            "postgresql://…",
            "this is no URL of a PostgreSQL database",
            "pass postgresql://user@host/database, with %40 for an @ in a password",
        ) from None
    who = {"application_name": f"understudy, process {os.getpid()} on {socket.gethostname()}"}
    return {**DEFAULTS, **who, **given}


def become_writer(connection: psycopg.Connection) -> None:
    """Take the writer's lock, which PostgreSQL frees soon after its connection is closed."""
    connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}s'")
    try:
        connection.execute("SELECT pg_advisory_lock(%s, 0)", (WRITER_LOCK,))
    except errors.LockNotAvailable:
        held = connection.execute(HOLDER, (WRITER_LOCK,)).fetchone()
        who = held[0] if held else "one that is just leaving"
        raise StoreInUse(
            f"another server writes to the database {connection.info.dbname!r}: {who}; "
            "stop it first, or name another store"
        ) from None
    connection.execute("RESET lock_timeout")
