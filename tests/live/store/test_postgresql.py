"""A database server that is killed, breaks the connection, or says no; and comes back."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.live.postgresql_server import Cluster
from tests.support.live.temporary_stores import (
    Place,
    a_store,
    cluster,
    content,
    database,
    database_of,
    fresh,
)
from understudy.errors import StoreInUse, StoreUnavailable
from understudy.live.store import open_store, postgresql
from understudy.live.store.sql import Reader

__all__ = ["cluster", "database"]  # fixtures

pytestmark = [pytest.mark.plain, pytest.mark.needs("pg_ctl")]


def test_a_server_that_was_killed_is_found_again(cluster: Cluster, database: Place) -> None:
    """What was acknowledged is there, there was no other writer, and readers connect again."""
    store, key = a_store(database)
    reader, book = database.reader(), database.token_book()
    book.add_token("a", b"a", "read", 1)
    before = content(reader)
    cluster.kill()
    for _ in range(2):
        for act in (lambda: store.write([fresh(key, 1, after=3)], 9), reader.clock, book.tokens):
            with pytest.raises(StoreUnavailable):
                act()
        with pytest.raises(StoreUnavailable, match=r"cannot be reached .*Connection refused"):
            store.open()
    cluster.start()
    assert content(reader) == before
    with pytest.raises(StoreUnavailable, match="not open"):
        store.clock()
    assert not store.open()
    store.write([fresh(key, 1, after=3)], 9)
    assert (reader.last_seq(key), reader.clock(), book.tokens()) == (4, 9, store.tokens())


def test_who_lost_the_connection_lost_the_right_to_write(cluster: Cluster, database: Place) -> None:
    store, key = a_store(database)
    backend = database_of(store).connection.info.backend_pid
    cluster.sql(f"SELECT pg_terminate_backend({backend}, 10000)")
    other = database.writer()
    other.write([fresh(key, 1, after=3)], 2)
    with pytest.raises(StoreUnavailable):
        store.write([fresh(key, 2, after=3)], 2)
    with pytest.raises(StoreInUse, match=rf"process {os.getpid()}"):
        store.open()
    other.close()
    assert store.open()
    assert store.last_seq(key) == 4


def test_the_answer_to_a_commit_is_lost(database: Place) -> None:
    """The writer gets an error, and finds what it wrote when it opens the store again."""
    with cut_off_at_commit(database.where) as (where, armed):
        store = open_store(where)
        store.open()
        key = store.add_study("a", "{}", None, 1).key
        armed.set()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            store.write([fresh(key, 3)], 1)
        armed.clear()
        assert not store.open()
        assert sorted(store.find(key, ["id 1", "id 2", "id 3", "id 4"])) == ["id 1", "id 2", "id 3"]
        store.close()


@contextmanager
def cut_off_at_commit(url: str) -> Iterator[tuple[str, threading.Event]]:
    """A way to the server that breaks, once armed, when a commit has been answered."""
    port = int(url.rpartition(":")[2].partition("/")[0])
    armed = threading.Event()

    def serve(client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            while asked := client.recv(65_536):
                server.sendall(asked)
                last = b"COMMIT" in asked and armed.is_set()
                answer = server.recv(65_536)
                while not complete(answer):
                    answer += server.recv(65_536)
                if last:
                    return
                client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        proxied = f":{listening.getsockname()[1]}/".join(url.split(f":{port}/"))
        yield f"{proxied}?sslmode=disable&gssencmode=disable", armed
        listening.shutdown(socket.SHUT_RDWR)


def complete(answer: bytes) -> bool:
    """Whether the server waits for the next question: its last message is ReadyForQuery."""
    return answer[-6:-1] == b"Z\0\0\0\x05"


def test_errors_of_the_server_are_told_in_plain_words(
    cluster: Cluster, database: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raised by a trigger, for a full disk cannot be had; each leaves the store as it was."""
    monkeypatch.setattr(postgresql, "SETTINGS", postgresql.SETTINGS.replace("'30s'", "'300ms'"))
    store, key = a_store(database)
    session = database_of(store)
    for body, reason in {
        "RAISE EXCEPTION USING ERRCODE = 'disk_full'": "the disk of the database server is full",
        "RAISE EXCEPTION 'no %', 1 USING ERRCODE = 'XX000'": "the database server says: no 1",
        "PERFORM pg_sleep(5)": "the database did not answer within 30 seconds",
    }.items():
        session.change(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {body}; RETURN NEW; END $$"
        )
        session.change("CREATE TRIGGER fails AFTER INSERT ON decisions EXECUTE FUNCTION fail()")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=f"^{reason}$"):
                store.write([fresh(key, 2, after=3)], 2)
            assert store.last_seq(key) == 3
        session.change("DROP TRIGGER fails ON decisions")
    store.write([fresh(key, 2, after=3)], 2)
    assert store.last_seq(key) == 5
    cluster.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    for name, reason in {
        "latin": "encoded in LATIN1",
        "nowhere": '"nowhere" does not exist',
    }.items():
        with pytest.raises(StoreUnavailable, match=reason):
            open_store(cluster.url(name)).open()


def test_two_who_find_an_empty_database_make_one_store(database: Place) -> None:
    books = [database.token_book() for _ in range(4)]
    ready = threading.Barrier(len(books))
    failed: list[BaseException] = []

    def add(n: int) -> None:
        try:
            ready.wait()
            books[n].add_token(f"token {n}", b"a", "read", 1)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test is to say it
            failed.append(error)

    threads = [threading.Thread(target=add, args=(n,)) for n in range(len(books))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(database.reader().tokens()) == 4


EXTENDED = (
    "ALTER TABLE understudy.snapshots ALTER policy SET STORAGE EXTENDED;"
    "ALTER TABLE understudy.studies ALTER base SET STORAGE EXTENDED"
)  # as 0.5.0 made them
STORAGE = """
SELECT DISTINCT attstorage::text FROM pg_attribute WHERE attname IN ('policy', 'base')
AND attrelid IN ('understudy.snapshots'::regclass, 'understudy.studies'::regclass)
"""


def storage(reader: Reader) -> list[tuple[str]]:
    """How large texts are stored: "e" without compression, "x" with it."""
    return database_of(reader).rows(STORAGE)


def test_large_texts_are_stored_without_compression(cluster: Cluster, database: Place) -> None:
    """To compress them takes twice as long as to write them. An older store is changed too."""
    store, _ = a_store(database)
    reader = database.reader()
    assert storage(reader) == [("e",)]
    cluster.sql(EXTENDED)
    assert storage(reader) == [("x",)]
    store.open()
    assert storage(reader) == [("e",)]


def test_a_store_opens_while_a_backup_reads_it(cluster: Cluster, database: Place) -> None:
    """It is compressed until the next time."""
    store, _ = a_store(database)
    cluster.sql(EXTENDED)
    reader = database.reader()
    backup = database_of(reader)
    backup.execute("BEGIN; SELECT FROM snapshots", ())
    store.open()
    backup.execute("COMMIT", ())
    assert (storage(reader), store.clock()) == ([("x",)], 1)
