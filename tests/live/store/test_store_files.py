"""The files of a store in SQLite: their modes, their names, and their removal under a writer."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import structlog

from tests.support.live.server_process import Server
from tests.support.live.temporary_stores import (
    Place,
    a_store,
    content,
    decisions_in,
    fresh,
    process,
)
from understudy.errors import InvalidArgument, StoreInUse, StoreUnavailable
from understudy.live.store import open_reader, open_store, open_tokens, sqlite, stored_tokens

pytestmark = pytest.mark.plain


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A place in a folder of its own; every write looks at the files of the store."""
    monkeypatch.setattr(sqlite, "CHECK_EVERY", 0.0)
    here = Place(str(tmp_path / "store.db"))
    with here.opened:
        yield here


def modes(folder: Path) -> dict[str, str]:
    return {path.name: f"{stat.S_IMODE(path.stat().st_mode):o}" for path in folder.iterdir()}


@pytest.fixture
def generous() -> Iterator[None]:
    """New files may be opened by all users, unless they are created otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("generous")
def test_new_files_belong_to_their_owner_alone(file: Place, tmp_path: Path) -> None:
    a_store(file)
    file.reader().clock()
    names = ("store.db", "store.db-wal", "store.db-shm", "store.db.lock")
    assert modes(tmp_path) == dict.fromkeys(names, "600")


@pytest.mark.usefixtures("generous")
def test_a_token_makes_a_store_for_its_owner_alone(file: Place, tmp_path: Path) -> None:
    file.token_book().add_token("a", b"a", "read", 1)
    assert set(modes(tmp_path).values()) == {"600"}


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
def test_a_store_that_others_may_open_warns_and_keeps_its_mode(file: Place, mode: int) -> None:
    a_store(file)
    file.opened.close()
    Path(file.where).chmod(mode)
    with structlog.testing.capture_logs() as logs:
        file.writer()
    (warning,) = logs
    assert warning["event"] == "other users may open the store"
    assert (warning["mode"], warning["remedy"]) == (f"{mode:04o}", "chmod 600 store.db*")
    assert modes(Path(file.where).parent)["store.db"] == f"{mode:o}"


def test_a_file_with_two_names_is_refused(file: Place, tmp_path: Path) -> None:
    """Each name has a lock and a NAME-wal of its own: two writers would destroy the store."""
    store, key = a_store(file)
    other = tmp_path / "other.db"
    other.hardlink_to(file.where)
    for opens in (open_store, open_reader, open_tokens, stored_tokens):
        with pytest.raises(InvalidArgument, match=r"has 2 names \(hard links\).*remove the others"):
            opens(str(other))
    assert not list(tmp_path.glob("other.db?*"))
    store.write([fresh(key, 1, after=3)], 2)
    other.unlink()
    assert file.reader().last_seq(key) == 4


def test_a_store_that_moved_under_its_writer_has_no_second_writer_that_acknowledges(
    file: Place, tmp_path: Path
) -> None:
    """The lock is beside the old name: so the old writer must notice before its next answer."""
    store, key = a_store(file)
    Path(file.where).rename(tmp_path / "moved.db")
    with pytest.raises(
        StoreUnavailable, match=r"its file store\.db was removed, replaced or emptied"
    ):
        store.write([fresh(key, 1, after=3)], 2)


@pytest.mark.parametrize("link", ["link.db", "folder/link.db"])
def test_links_lead_to_one_lock(file: Place, tmp_path: Path, link: str) -> None:
    a_store(file)
    (tmp_path / "folder").mkdir()
    (tmp_path / link).symlink_to(file.where)
    other = Place(str(tmp_path / link), file.opened)
    with pytest.raises(StoreInUse, match=f"process {os.getpid()}"):
        other.store().open()
    assert other.reader().last_seq(1) == 3
    assert sorted(path.name for path in tmp_path.glob("**/*.lock")) == ["store.db.lock"]


def test_a_link_to_nothing_is_refused_and_creates_nothing(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "unmounted.db")
    for opens in (open_store, open_reader, open_tokens, stored_tokens):
        with pytest.raises(InvalidArgument, match=r"a link to '.*unmounted\.db'.*no such file"):
            opens(str(link))
    assert list(tmp_path.iterdir()) == [link]


def test_a_store_that_is_removed_takes_nothing_until_it_is_back(
    file: Place, tmp_path: Path
) -> None:
    store, key = a_store(file)
    away, where = tmp_path / "away", Path(file.where)
    where.rename(away)
    with pytest.raises(
        StoreUnavailable, match=r"its file store\.db was removed, replaced or emptied"
    ):
        store.write([fresh(key, 1, after=3)], 2)
    for act in (store.check, lambda: store.write([fresh(key, 1, after=3)], 2)):
        with pytest.raises(StoreUnavailable, match="closed after an error"):
            act()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"its file store\.db is gone"):
            store.open()
    assert not where.exists()  # no new, empty store in its place
    away.rename(where)
    store.open()
    assert store.lost == 0
    last = store.last_seq(key)
    assert last in {3, 4}  # what was not acknowledged is there, or not
    store.write([fresh(key, 1, after=last)], 2)
    assert file.reader().last_seq(key) == last + 1


def test_another_file_in_its_place_is_noticed(file: Place, tmp_path: Path) -> None:
    store, key = a_store(file)
    other = Place(str(tmp_path / "other.db"))
    with other.opened:
        other.writer().add_study("b", "{}", None, 1)
    shutil.move(other.where, file.where)
    with pytest.raises(
        StoreUnavailable, match=r"its file store\.db was removed, replaced or emptied"
    ):
        store.write([fresh(key, 1, after=3)], 2)


@pytest.mark.parametrize("act", ["write", "check"])
def test_an_emptied_store_is_noticed(file: Place, act: str) -> None:
    """SQLite itself would notice when it reads a page again: seconds, and many answers, later."""
    store, key = a_store(file)
    acts = {"write": lambda: store.write([fresh(key, 1, after=3)], 2), "check": store.check}
    os.truncate(file.where, 0)
    with pytest.raises(StoreUnavailable, match=r"its file store\.db was .* or emptied"):
        acts[act]()


def test_wal_and_lock_may_be_empty(file: Place, tmp_path: Path) -> None:
    """Another program has moved the writes to the store; the disk has no room for the lock."""
    store, key = a_store(file)
    os.truncate(tmp_path / "store.db.lock", 0)
    with closing(sqlite3.connect(file.where)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert (tmp_path / "store.db-wal").stat().st_size == 0
    store.check()
    store.write([fresh(key, 1, after=3)], 2)


def test_an_older_copy_under_a_writer_is_loaded_as_that_of_another_writer(
    file: Place, tmp_path: Path
) -> None:
    """Even if the writer has not been away since the copy was made."""
    store, key = a_store(file)
    with (
        closing(sqlite3.connect(file.where)) as own,
        closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
    ):
        own.backup(copy)
    store.write([fresh(key, 1, after=3)], 2)
    (tmp_path / "copy.db").replace(file.where)
    with pytest.raises(StoreUnavailable, match="was removed, replaced or emptied"):
        store.check()
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"store.db{suffix}").unlink(missing_ok=True)
    with structlog.testing.capture_logs() as logs:
        assert store.open()
    assert [entry.get("missing_writes") for entry in logs] == [1, None]  # and its mode
    assert (store.lost, store.last_seq(key)) == (1, 3)


@pytest.mark.parametrize("held", [False, True])
def test_a_removed_wal_loses_nothing(file: Place, tmp_path: Path, held: bool) -> None:
    """Its writes go to the file of the store, also if another connection is open."""
    store, key = a_store(file)
    reader = file.reader()
    if held:
        assert reader.last_seq(key) == 3
    (tmp_path / "store.db-wal").unlink()
    with pytest.raises(
        StoreUnavailable, match=r"its file store\.db-wal was removed, replaced or emptied"
    ):
        store.write([fresh(key, 1, after=3)], 2)
    reader.close()
    assert not store.open()
    assert (store.lost, store.last_seq(key)) == (0, 4)
    store.write([fresh(key, 1, after=4)], 2)
    file.opened.close()
    assert file.reader().last_seq(key) == 5


CHECKPOINT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
connection.close()
"""


@pytest.mark.parametrize("other", ["none", "before the write", "after it"])
def test_a_removed_shm_loses_nothing(file: Place, tmp_path: Path, other: str) -> None:
    """It has SQLite's locks: without it, another program may empty the -wal under the writer."""

    def checkpoint() -> None:
        subprocess.run([sys.executable, "-c", CHECKPOINT, file.where], check=True)

    store, key = a_store(file)
    for seq in range(3, 40):
        store.write([fresh(key, 1, after=seq)], 2)
    (tmp_path / "store.db-shm").unlink()
    if other == "before the write":
        checkpoint()
    with pytest.raises(
        StoreUnavailable, match=r"its file store\.db-shm was removed, replaced or emptied"
    ):
        store.write([fresh(key, 1, after=40)], 2)
    if other == "after it":
        checkpoint()
    assert not store.open()
    # The last write was not acknowledged: it may be in the store or not.
    last = store.last_seq(key)
    assert (store.lost, last in {40, 41}) == (0, True)
    store.write([fresh(key, 1, after=last)], 2)
    file.opened.close()
    with closing(sqlite3.connect(file.where)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert file.reader().last_seq(key) == last + 1


def test_a_removed_lock_lets_no_second_writer_in_unnoticed(file: Place, tmp_path: Path) -> None:
    store, key = a_store(file)
    (tmp_path / "store.db.lock").unlink()
    second = file.store()
    second.open()
    with pytest.raises(
        StoreUnavailable, match=r"its file store\.db\.lock was removed, replaced or emptied"
    ):
        store.check()
    with pytest.raises(StoreInUse):
        store.open()
    second.write([fresh(key, 1, after=3)], 2)
    second.close()
    assert store.open()
    assert store.lost == 0
    assert content(store) == content(file.reader())


def test_a_killed_writer_leaves_its_number_beside_its_process(tmp_path: Path) -> None:
    where = tmp_path / "store.db"
    with process(str(where)) as other:
        lock = (tmp_path / "store.db.lock").read_text(encoding="ascii")
    assert lock.split() == [str(other.pid), "2"]  # a study, and a decision


def ask_until(client: httpx.Client, status: int) -> dict[str, str]:
    """What /readyz says when it has this status."""
    for _ in range(6_000):
        if (answer := client.get("/readyz")).status_code == status:
            found: dict[str, str] = answer.json()
            return found
        time.sleep(0.01)
    raise AssertionError(f"{answer.status_code}: {answer.text}")


def test_the_service_notices_that_its_store_is_gone_and_back(tmp_path: Path) -> None:
    event = {"id": "e1", "action": "a", "propensity": 0.5, "reward": 1.0}
    where, away = tmp_path / "store.db", tmp_path / "away.db"
    with Server(where) as server, httpx.Client(base_url=server.url, timeout=60.0) as client:
        spec = {"name": "ads", "actions": ["a", "b"]}
        assert client.post("/v1/studies", json=spec).status_code == 201
        assert client.post("/v1/studies/ads/events", json=event).status_code == 200
        where.rename(away)
        ready = ask_until(client, 503)  # no event is sent: it looks by itself
        assert ready["error"] == "store unavailable"
        assert "store.db" in ready["message"]
        refused = client.post("/v1/studies/ads/events", json={**event, "id": "e2"})
        assert refused.status_code == 503
        assert not where.exists()
        away.rename(where)
        ask_until(client, 200)
        again = client.post("/v1/studies/ads/events", json={**event, "id": "e2"})
        assert again.status_code == 200
        assert server.stop() == 0
    assert [decision.id for decision in decisions_in(where)] == ["e1", "e2"]
