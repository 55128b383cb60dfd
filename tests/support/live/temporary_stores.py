"""Places for stores: a new file or database for every test; and processes that hold them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.live.postgresql_server import Cluster, postgresql
from understudy.live.decision_log import AuditResult, audit
from understudy.live.store import open_reader, open_store, open_tokens
from understudy.live.store.database import Database
from understudy.live.store.records import (
    Changes,
    Decision,
    Rewarded,
    Scope,
    Snapshot,
    StudyRecord,
    TokenRecord,
)
from understudy.live.store.sql import Reader, Store, TokenStore
from understudy.live.web.tokens import digest_of

__all__ = [
    "Changes",
    "Place",
    "Rewarded",
    "Scope",
    "TokenRecord",
    "a_store",
    "add_tokens",
    "as_of_0_5_0",
    "audited",
    "cluster",
    "content",
    "database",
    "database_of",
    "decisions_in",
    "format_of",
    "fresh",
    "place",
    "process",
    "remove_token",
]

HOLDER = """
import sys
from understudy.live.store import open_store
from understudy.live.store.records import Changes, Decision
store = open_store(sys.argv[1])
store.open()
study = store.add_study("held", "{}", None, 1)
store.write([Changes(study.key, [Decision(1, "a", 0, None, None, 1)])], 1)
print("holding", flush=True)
sys.stdin.read()
"""
# What makes the tables of 0.5.0 of those of today.
FIRST_TABLES = """
DROP INDEX units; DROP INDEX unit_events; DROP INDEX later_events;
ALTER TABLE decisions DROP COLUMN propensity_vector;
ALTER TABLE decisions DROP COLUMN unit;
ALTER TABLE decisions DROP COLUMN place;
DROP TABLE outages; DROP TABLE closed;
UPDATE meta SET value = 1 WHERE key = 'format'
"""
EMPTY = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid();
DROP SCHEMA IF EXISTS understudy CASCADE
"""


@dataclass(frozen=True, eq=False)
class Place:
    """Where a store is; what is opened here is closed when the test is over."""

    where: str
    opened: ExitStack = field(default_factory=ExitStack)

    def store(self) -> Store:
        """Not open yet."""
        store = open_store(self.where)
        self.opened.callback(store.close)
        return store

    def writer(self) -> Store:
        """The one writer."""
        store = self.store()
        store.open()
        return store

    def reader(self) -> Reader:
        reader = open_reader(self.where)
        self.opened.callback(reader.close)
        return reader

    def token_book(self) -> TokenStore:
        book = open_tokens(self.where)
        self.opened.callback(book.close)
        return book


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with postgresql() as started:
        yield started


@pytest.fixture
def database(cluster: Cluster) -> Iterator[Place]:
    """An empty database of a server that runs."""
    if not cluster.running:  # another test has killed it, and failed
        cluster.start()
    cluster.sql(EMPTY)
    here = Place(cluster.url())
    with here.opened:
        yield here


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("pg_ctl"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "postgresql":
        yield request.getfixturevalue("database")
        return
    here = Place(str(tmp_path / "understudy.db"))
    with here.opened:
        yield here


@contextmanager
def process(where: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has written one decision, and holds the store until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "holding\n"
            yield started
        finally:
            started.kill()


def content(
    reader: Reader,
) -> tuple[
    list[StudyRecord],
    list[tuple[list[Decision], int, Snapshot | None, dict[str, int], int]],
    int,
    list[TokenRecord],
]:
    """All that a reader can see."""
    studies = reader.studies()
    each = [
        (
            reader.decisions(study.key, 0, 1_000_000),
            reader.last_seq(study.key),
            reader.snapshot(study.key),
            reader.refused_counts(study.key),
            reader.late_count(study.key),
        )
        for study in studies
    ]
    return studies, each, reader.clock(), reader.tokens()


def remove_token(path: Path, name: str) -> None:
    """As `understudy token remove` does it."""
    with closing(open_tokens(str(path))) as book:
        assert book.remove_token(name)


def audited(where: str | Path, *, rounded: bool = False) -> list[AuditResult]:
    """The audit of every study of a store that this machine made, or another that rounds."""
    with closing(open_reader(str(where))) as reader:
        found = audit(reader, lambda *_: None)
    assert rounded or not any(result.rounded for result in found)
    return found


def decisions_in(where: str | Path) -> list[Decision]:
    """All decisions of the one study of a store that passes its audit."""
    assert all(found.passed for found in audited(where))
    with closing(open_reader(str(where))) as reader:
        (record,) = reader.studies()
        return reader.decisions(record.key, 0, 10_000)


def add_tokens(where: str | Path, **tokens: str) -> None:
    """Add a token for each scope."""
    with closing(open_tokens(str(where))) as book:
        for scope, token in tokens.items():
            book.add_token(scope, digest_of(token), scope, 1)  # type: ignore[arg-type]


def as_of_0_5_0(store: Store) -> None:
    """Make the tables of an open store those of 0.5.0, and close it."""
    database = database_of(store)
    with database.transaction():
        for statement in FIRST_TABLES.split(";"):
            database.change(statement)
    store.close()


def format_of(reader: Reader) -> int:
    """The version of a store's tables."""
    return database_of(reader).scalar("SELECT value FROM meta WHERE key = 'format'")


def fresh(study: int, count: int, after: int = 0) -> Changes:
    """So many new decisions, without rewards."""
    numbers = range(after + 1, after + count + 1)
    return Changes(study, [Decision(n, f"id {n}", n % 3, 0.25, None, n) for n in numbers])


def a_store(place: Place) -> tuple[Store, int]:
    """A writer, and the key of its one study, which has three decisions."""
    store = place.writer()
    key = store.add_study("a", "{}", None, 1).key
    store.write([fresh(key, 3)], 1)
    return store, key


def database_of(reader: Reader) -> Database:
    """The connection behind a store, to look closer or to do harm."""
    return reader._database
