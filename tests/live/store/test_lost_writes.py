"""A store that has lost acknowledged writes says so; one that has lost none does not."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import structlog

from tests.support.command_line import Run, understudy
from tests.support.live.postgresql_server import Cluster
from tests.support.live.server_process import Server
from tests.support.live.temporary_stores import (
    Place,
    a_store,
    audited,
    cluster,
    content,
    database,
    database_of,
    fresh,
)
from understudy.live.store.sql import Store

__all__ = ["cluster", "database", "understudy"]  # fixtures

pytestmark = pytest.mark.plain

WRITES = 20
SPEC = '{"name": "a", "actions": ["x", "y", "z"]}'
BUSY_WRITER = f"""
import sys
from understudy.live.store import open_store
from understudy.live.store.records import Changes, Decision
store = open_store(sys.argv[1])
store.open()
key = store.add_study("a", '{SPEC}', None, 1).key
for n in range(1, {WRITES} + 1):
    store.write([Changes(key, [Decision(n, f"id {{n}}", 0, 0.5, None, n)])], n)
print("written", flush=True)
sys.stdin.read()
"""
MISSING = "acknowledged events are missing from the store"
UNKNOWN = "it cannot be checked whether the store is complete"


def killed(where: Path) -> Path:
    """A store whose writer was killed after its last write was acknowledged; its NAME-wal."""
    with subprocess.Popen(
        [sys.executable, "-c", BUSY_WRITER, str(where)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "written\n"
        started.kill()
    return where.with_name(f"{where.name}-wal")


def flip(wal: Path, at: float) -> None:
    """Change a byte, `at` a share of the length."""
    damaged = bytearray(wal.read_bytes())
    damaged[int(at * len(damaged))] ^= 0xFF
    wal.write_bytes(damaged)


def cut(wal: Path, share: float) -> None:
    os.truncate(wal, int(share * wal.stat().st_size))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda wal: cut(wal, 0.0),
    "cut in the middle": lambda wal: cut(wal, 0.5),
    "without its last byte": lambda wal: os.truncate(wal, wal.stat().st_size - 1),
    "a byte of its head": lambda wal: flip(wal, 0.0),
    "a byte in the middle": lambda wal: flip(wal, 0.5),
    "a byte near its end": lambda wal: flip(wal, 0.999),
}


def opened(place: Place) -> tuple[Store, list[str]]:
    """The writer, and what its opening logged."""
    with structlog.testing.capture_logs() as logs:
        store = place.writer()
    return store, [entry["event"] for entry in logs]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_wal_is_noticed(tmp_path: Path, damage: str, understudy: Run) -> None:
    where = tmp_path / "store.db"
    DAMAGES[damage](killed(where))
    before = understudy("audit", "--store", str(where))  # no writer has opened it since
    assert (before.returncode, "missing" in before.stdout) == (1, True)
    place = Place(str(where))
    with place.opened:
        store, said = opened(place)
        assert said == [MISSING]
        lost = store.lost
        assert 1 <= lost <= WRITES + 1
        studies = store.studies()
        last = store.last_seq(studies[0].key) if studies else 0
        assert last == max(WRITES - lost, 0)
        again = place.token_book()
        assert again.lost_writes() == lost
    with place.opened:
        assert opened(place)[1] == []  # it is said once, and kept
        after = understudy("audit", "--store", str(where))
        assert (after.returncode, f"{lost} acknowledged" in after.stdout) == (1, True)
        accepted = understudy("audit", "--store", str(where), "--accept-loss")
        assert (accepted.returncode, f"{lost} acknowledged" in accepted.stderr) == (0, True)
        assert understudy("audit", "--store", str(where), "--accept-loss").stderr == ""
        assert all(found.passed for found in audited(where))


def test_a_loss_can_be_accepted_before_a_writer_opens_the_store(
    tmp_path: Path, understudy: Run
) -> None:
    where = tmp_path / "store.db"
    killed(where).unlink()
    (row,) = json.loads(understudy("audit", "--json", "--store", str(where)).stdout)
    assert (row["study"], row["passed"], len(row["faults"])) == (None, False, 1)
    assert understudy("audit", "--store", str(where), "--accept-loss").returncode == 0
    place = Place(str(where))
    with place.opened:
        assert opened(place)[1] == []
        assert place.reader().lost_writes() == 0


def nothing(_: Path) -> None:
    pass


def read_by_another_program(wal: Path) -> None:
    """SQLite moves the writes to the file of the store, and removes NAME-wal."""
    with closing(sqlite3.connect(str(wal).removesuffix("-wal"))) as other:
        other.execute("SELECT * FROM meta").fetchall()
    assert not wal.exists()


def without_shm(wal: Path) -> None:
    wal.with_name(wal.name.removesuffix("-wal") + "-shm").unlink()


@pytest.mark.parametrize("harmless", [nothing, read_by_another_program, without_shm])
def test_a_kill_alone_loses_nothing_and_raises_no_alarm(
    tmp_path: Path, harmless: Callable[[Path], None]
) -> None:
    where = tmp_path / "store.db"
    harmless(killed(where))
    assert all(found.passed for found in audited(where))
    place = Place(str(where))
    with place.opened:
        store, said = opened(place)
        assert (said, store.lost, store.last_seq(1)) == ([], 0, WRITES)


def test_without_its_lock_file_a_store_warns_that_nothing_can_be_checked(tmp_path: Path) -> None:
    """As after the restore of a backup; a new store, and one of version 0.5.0, have no number."""
    where = tmp_path / "store.db"
    place = Place(str(where))
    with place.opened:
        store, said = opened(place)
        assert said == []
        key = store.add_study("a", SPEC, None, 1).key
    (tmp_path / "store.db.lock").write_text("")  # after a power cut
    with place.opened:
        assert opened(place)[1] == [UNKNOWN]
    (tmp_path / "store.db.lock").unlink()
    with place.opened:
        assert opened(place)[1] == [UNKNOWN]
    with place.opened:
        store, said = opened(place)
        assert (said, store.lost, store.studies()[0].key) == ([], 0, key)
        session = database_of(store)
        session.change("DELETE FROM meta WHERE key IN ('writes', 'lost')")
    (tmp_path / "store.db.lock").write_text("4711")
    assert all(found.passed for found in audited(where))
    with place.opened:
        assert opened(place)[1] == []


def test_a_new_store_that_lost_its_wal_and_its_lock_warns_too(tmp_path: Path) -> None:
    """Its file has the counts from the first moment; nothing tells how many writes are missing."""
    where = tmp_path / "store.db"
    killed(where).unlink()
    (tmp_path / "store.db.lock").unlink()
    place = Place(str(where))
    with place.opened:
        store, said = opened(place)
        assert (said, store.studies()) == ([UNKNOWN], [])
    with place.opened:
        assert opened(place)[1] == []


def test_a_store_that_a_token_made_is_new(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "store.db"))
    with place.opened:
        place.token_book().add_token("ada", bytes(32), "read", 1)
    with place.opened:
        assert opened(place)[1] == []


def test_an_older_copy_in_place_of_the_store_is_noticed(tmp_path: Path) -> None:
    where, copy = tmp_path / "store.db", tmp_path / "copy.db"
    place = Place(str(where))
    with place.opened:
        a_store(place)
    shutil.copy(where, copy)
    with place.opened:
        place.writer().write([fresh(1, 5, after=3)], 2)
    copy.replace(where)
    with place.opened:
        store, said = opened(place)
        assert (said, store.lost) == ([MISSING], 1)
        store.write([fresh(1, 1, after=3)], 3)
        assert store.lost == 1
        before = content(store)
    with place.opened:
        store, said = opened(place)
        assert (said, store.lost, content(store)) == ([], 1, before)


@pytest.mark.needs("pg_ctl")
def test_a_database_that_went_back_is_noticed(cluster: Cluster, database: Place) -> None:
    """A replica that takes over may lack the last writes."""
    store, key = a_store(database)
    store.write([fresh(key, 1, after=3)], 2)
    cluster.sql("DELETE FROM understudy.decisions WHERE seq = 4")
    cluster.sql("UPDATE understudy.meta SET value = value - 1 WHERE key = 'writes'")
    with structlog.testing.capture_logs() as logs:
        store.open()
    assert ([entry["event"] for entry in logs], store.lost) == ([MISSING], 1)
    assert database.reader().lost_writes() == 1
    assert database.token_book().accept_loss() == 1
    store.check()
    assert store.lost == 0


def test_the_service_says_at_its_start_that_events_are_missing(tmp_path: Path) -> None:
    where = tmp_path / "store.db"
    killed(where).unlink()
    with Server(where) as server:
        assert f'"missing_writes": {WRITES + 1}' in server.said
        assert MISSING in server.said
        metrics = httpx.get(f"{server.url}/metrics").text
        assert f"understudy_store_lost {WRITES + 1}.0\n" in metrics
