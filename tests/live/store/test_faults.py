"""What becomes of a store when its disk or its file fails, and when they are back."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.live.temporary_stores import (
    Place,
    a_store,
    cluster,
    content,
    database,
    database_of,
    fresh,
    place,
)
from tests.support.paths import ROOT
from tests.support.small_disks import fill_up, small_disk
from understudy.errors import StoreUnavailable
from understudy.live.store import sqlite
from understudy.live.store.database import BY_ID
from understudy.live.store.records import Rewarded

__all__ = ["cluster", "database", "place"]  # fixtures

pytestmark = pytest.mark.plain

FULL_DISK = """
import resource, sys
from tests.support.live.temporary_stores import fresh
from understudy.errors import StoreUnavailable
from understudy.live.store import open_store

store = open_store(sys.argv[1])
store.open()
key = store.add_study("a", "{}", None, 1).key
store.write([fresh(key, 100)], 1)
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, unlimited[1]))
reasons = []
while len(reasons) < 3:
    last = store.last_seq(key)
    try:
        store.write([fresh(key, 500, after=last)], 2)
    except StoreUnavailable as error:
        assert store.last_seq(key) == last
        reasons.append(str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
store.write([fresh(key, 500, after=last)], 2)
assert [d.seq for d in store.decisions(key, 0, 10**6)] == list(range(1, last + 501))
assert not store.open()
print(*set(reasons))
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Place]:
    here = Place(str(tmp_path / "understudy.db"))
    with here.opened:
        yield here


def run(code: str, *arguments: str) -> str:
    paths = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_file_that_may_not_grow_takes_nothing_and_goes_on_when_it_may(tmp_path: Path) -> None:
    assert run(FULL_DISK, str(tmp_path / "a.db")) == "the disk cannot be read or written"


@pytest.mark.full
def test_a_full_disk_takes_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        here = Place(str(disk / "a.db"))
        with here.opened:
            store, key = a_store(here)
            ballast = disk / "ballast"
            ballast.write_bytes(b"x" * 300_000)
            last = 3
            reasons: list[str] = []
            while len(reasons) < 3:
                try:
                    store.write([fresh(key, 100, after=last)], 2)
                    last += 100
                except StoreUnavailable as error:
                    reasons.append(str(error))
                assert store.last_seq(key) == last
            assert set(reasons) == {"the disk is full"}
            fill_up(disk / "ballast 2")
            new = Place(str(disk / "b.db"), here.opened).store()
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="full"):
                    new.open()
            for path in disk.glob("ballast*"):
                path.unlink()
            assert not new.open()
            store.write([fresh(key, 100, after=last)], 2)
            numbers = [decision.seq for decision in store.decisions(key, 0, 10**6)]
            assert numbers == list(range(1, last + 101))


def test_a_file_that_another_program_holds(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT", 0.01)
    store, key = a_store(file)
    with closing(sqlite3.connect(file.where, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="another program holds its file"):
                store.write([fresh(key, 1, after=3)], 2)
            assert store.last_seq(key) == 3
        other.execute("ROLLBACK")
    store.write([fresh(key, 1, after=3)], 2)
    assert store.last_seq(key) == 4


def test_files_that_are_no_store(tmp_path: Path) -> None:
    text, damaged, other = (tmp_path / name for name in ("text.db", "damaged.db", "other.db"))
    text.write_text("id,action,reward\n" * 100, encoding="utf-8")
    here = Place(str(damaged))
    with here.opened:
        a_store(here)
    content_of = damaged.read_bytes()
    damaged.write_bytes(content_of[:5_000] + b"\xff" * (len(content_of) - 5_000))
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE meta (name TEXT)")
    for path, reason in {
        text: "its file is not an SQLite database",
        damaged: "its file is damaged",
        other: "this is no store of a live service: it holds other tables; name another",
    }.items():
        before, here = path.read_bytes(), Place(str(path))
        with here.opened:
            for act in (here.store().open, here.reader().clock, here.token_book().tokens):
                with pytest.raises(StoreUnavailable, match=reason):
                    act()
        assert path.read_bytes() == before


def test_a_store_of_another_version_is_refused(place: Place) -> None:
    store = place.writer()
    database_of(store).change("UPDATE meta SET value = 7 WHERE key = 'format'")
    store.close()
    for act in (store.open, place.reader().clock, place.token_book().tokens):
        for _ in range(2):
            with pytest.raises(
                StoreUnavailable, match=r"has format 7, .* reads formats 1 to 2; use the"
            ):
                act()


def test_readers_write_nothing(place: Place) -> None:
    a_store(place)
    reader = place.reader()
    before = content(reader)
    with pytest.raises(StoreUnavailable, match=r"read only|only be read"):
        database_of(reader).change("UPDATE meta SET value = 99 WHERE key = 'clock'")
    assert content(reader) == before


def test_what_is_acknowledged_is_on_disk(place: Place) -> None:
    """The part of it that a test can see: that the database is asked to wait for the disk."""
    store = place.writer()
    if place.where.startswith("postgresql"):
        database_of(store).change("ALTER ROLE postgres SET synchronous_commit = off")
        assert not store.open()
        assert database_of(store).rows("SHOW synchronous_commit") == [("on",)]
        database_of(store).change("ALTER ROLE postgres RESET synchronous_commit")
    else:
        assert database_of(store).rows("PRAGMA synchronous") == [(2,)]
        assert database_of(store).rows("PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize("asked", [8, 900])
def test_no_more_is_read_than_was_asked_for(place: Place, asked: int) -> None:
    """From the first minute on, when the database has not yet counted the rows of its tables."""
    store = place.writer()
    key = store.add_study("a", "{}", None, 1).key
    store.write([fresh(key, 5_000)], 1)
    session, ids = database_of(store), [f"id {n}" for n in range(1, asked + 1)]
    rewards = [Rewarded(n, 1.0, 1) for n in range(1, asked + 1)]
    if place.where.startswith("postgresql"):
        with session.transaction():
            assert (
                len(session.find(BY_ID, key, ids))
                == session.set_rewards("reward", key, rewards)
                == asked
            )
            query = (
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables "
                "WHERE relname = 'decisions'"
            )
            assert session.rows(query) == [(2 * asked,)]
        return
    steps: list[int] = []
    session.connection.set_progress_handler(lambda: steps.append(1), 100)
    assert (
        len(session.find(BY_ID, key, ids)) == session.set_rewards("reward", key, rewards) == asked
    )
    assert store.late_count(key) == 0
    assert store.last_seq(key) == 5_000
    assert 100 * len(steps) < 500 + 100 * asked


def test_windows_is_refused(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(StoreUnavailable, match=r"Windows cannot lock.*--store postgresql"):
        file.writer()
