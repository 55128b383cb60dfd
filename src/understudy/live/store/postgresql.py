"""The PostgreSQL dialect: a store in a schema of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from understudy.errors import (
    InvalidArgument,
    MissingExtra,
    StoreInUse,
    StoreUnavailable,
    first_line,
)
from understudy.live.store.records import Decision, Rewarded
from understudy.live.store.session import (
    COLUMNS,
    Access,
    Row,
    as_row,
    create_statements,
    refused_rows,
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
# Every query has an index. Without statistics, the planner might still choose a scan.
TUNING = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
HOLDER = """
SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND classid = %s AND objid = 0
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
TYPES = (
    *("bigint", "text", "bigint", "double precision", "text", "bigint"),
    *("double precision", "bigint", "double precision"),
)  # of the fields of a Decision
ARRAYS = ", ".join(f"%b::{name}[]" for name in TYPES)
REASONS: dict[type[Exception], str] = {
    errors.DiskFull: "the disk of the database server is full",
    errors.ReadOnlySqlTransaction: "the database may only be read",
    errors.QueryCanceled: f"the database did not answer within {STATEMENT_TIMEOUT} seconds",
    errors.AdminShutdown: "the database server is shutting down",
    errors.CrashShutdown: "the database server has crashed",
    errors.CannotConnectNow: "the database server is starting up",
}


@dataclass(frozen=True)
class Postgres:
    """The `Dialect` of PostgreSQL: many rows travel as arrays, and numbers in binary, bit for bit.

    A writer holds an advisory lock of its connection, and loses it with the connection.
    """

    settings: dict[str, Any] = field(repr=False)  # may hold a password
    access: Access
    error: type[Exception] = psycopg.Error
    begin: str = (
        f"BEGIN; SELECT pg_advisory_xact_lock({TRANSACTION_LOCK}, 0)"  # as with BEGIN IMMEDIATE
    )
    create: tuple[str, ...] = (
        f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
        *create_statements(number="DOUBLE PRECISION", sorted_by_key=""),
    )
    tuning: str = TUNING
    tables: str = f"SELECT tablename FROM pg_tables WHERE schemaname = '{SCHEMA}'"

    @contextmanager
    def connected(self) -> Iterator[psycopg.Connection]:
        with closing(psycopg.connect(autocommit=True, **self.settings)) as connection:
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

    def execute(
        self, connection: psycopg.Connection, statement: str, values: Sequence[object]
    ) -> psycopg.Cursor[Row]:
        if not values:
            return connection.execute(statement.encode())
        return connection.execute(statement.replace("?", "%b").encode(), values, binary=True)

    def insert(
        self, connection: psycopg.Connection, study: int, decisions: Sequence[Decision]
    ) -> None:
        if decisions:
            columns = [list(column) for column in zip(*map(as_row, decisions), strict=True)]
            statement = f"INSERT INTO decisions (study, {COLUMNS}) SELECT %b, * FROM unnest"
            connection.execute(f"{statement} ({ARRAYS})".encode(), (study, *columns))

    def find(self, connection: psycopg.Connection, study: int, ids: Sequence[str]) -> list[Row]:
        query = (
            "SELECT found.* FROM unnest(%b::text[]) AS wanted (id), LATERAL ("
            f"SELECT {COLUMNS} FROM decisions WHERE study = %b AND id = wanted.id LIMIT 1"
            ") AS found"
        )  # id = ANY (…) scans the whole study while there are no statistics
        return connection.execute(query.encode(), (list(ids), study), binary=True).fetchall()

    def fill(
        self,
        connection: psycopg.Connection,
        column: str,
        study: int,
        rewards: Sequence[Rewarded],
    ) -> int:
        if not rewards:
            return 0
        statement = (
            f"UPDATE decisions SET {column} = given.reward, rewarded_at = given.rewarded_at "
            "FROM unnest(%b::bigint[], %b::bigint[], %b::double precision[], %b::bigint[]) "
            "AS given (study, seq, reward, rewarded_at) "
            "WHERE decisions.study = given.study AND decisions.seq = given.seq "
            f"AND decisions.{column} IS NULL"
        )  # the study in every row: as a constant, it might be the only key used of the index
        columns = [list(values) for values in zip(*rewards, strict=True)]
        values = ([study] * len(rewards), *columns)
        return connection.execute(statement.encode(), values).rowcount

    def roll_back(self, connection: psycopg.Connection) -> None:
        if connection.info.transaction_status != TransactionStatus.IDLE:
            connection.execute("ROLLBACK")

    def explain(self, error: Exception) -> Exception:
        said = first_line(error)
        if isinstance(error, psycopg.IntegrityError | psycopg.DataError):
            return refused_rows(error.diag.message_detail or said)
        if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
            return StoreUnavailable(f"the database server cannot be reached ({said})")
        return StoreUnavailable(REASONS.get(type(error), f"the database server says: {said}"))


def settings_of(url: str) -> dict[str, Any]:
    """Return the settings of a URL, and our defaults for those that it leaves out.

    >>> settings_of("postgresql://ada@db.example/studies?connect_timeout=9")["connect_timeout"]
    '9'
    """
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:  # its message repeats the URL, which may hold a password
        raise InvalidArgument(
            "store",
            "postgresql://…",
            "this is no URL of a PostgreSQL database",
            "pass postgresql://user@host/database, with %40 for an @ in a password",
        ) from None
    who = {"application_name": f"understudy, process {os.getpid()} on {socket.gethostname()}"}
    return {**DEFAULTS, **who, **given}


def become_writer(connection: psycopg.Connection) -> None:
    """Take the writer's lock, which PostgreSQL releases with the connection."""
    taken = connection.execute("SELECT pg_try_advisory_lock(%s, 0)", (WRITER_LOCK,)).fetchone()
    if taken != (True,):
        held = connection.execute(HOLDER, (WRITER_LOCK,)).fetchone()
        who = held[0] if held else "one that is just leaving"
        raise StoreInUse(
            f"another server writes to the database {connection.info.dbname!r}: {who}; "
            "stop it first, or name another store"
        )
