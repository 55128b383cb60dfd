"""Stores that are none, damaged, or closed to us: one line and exit code 2 from every command.

`understudy.live.web.server` must not come as far as to compile.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.command_line import Run, understudy
from tests.support.live.postgresql_server import Cluster
from tests.support.live.temporary_stores import Place, cluster, database
from understudy.live.web import server

__all__ = ["cluster", "database", "understudy"]  # fixtures

pytestmark = pytest.mark.plain

SERVE = ("serve", "--port", "0")
AUDIT, EXPORT = ("audit",), ("export", "ads", "--out", "log.ndjson")
ADD, REMOVE, LIST = (
    ("token", "add", "ci", "--scope", "read"),
    ("token", "remove", "ci"),
    ("token", "list"),
)
COMMANDS = (SERVE, AUDIT, (*AUDIT, "--accept-loss"), EXPORT, ADD, REMOVE, LIST)
NOBODY = 65534  # a user without rights
GOOD = '{"name": "ads", "actions": ["a", "b"]}'
DECISION = (
    "INSERT INTO decisions (study, seq, id, action, propensity, decided_at, reward, rewarded_at)"
)
STUDY = f"INSERT INTO studies VALUES (1, 'ads', '{GOOD}', NULL, 1, NULL)"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; a service that starts is a failure."""

    def start() -> None:
        raise AssertionError("the store was not refused")

    monkeypatch.setattr(server, "precompile", start)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(understudy: Run, store: str, reason: str, *commands: tuple[str, ...]) -> None:
    """Every command says in one line why it does not work, and leaves the store as it is."""
    for command in commands or COMMANDS:
        said = understudy(*command, "--store", store)
        assert (said.returncode, said.stdout) == (2, ""), (command, said)
        assert said.stderr.startswith("understudy: store = "), command
        assert said.stderr.count("\n") == 1, said.stderr
        assert len(said.stderr) < 500
        assert reason in said.stderr, command


def other_program() -> None:
    with closing(sqlite3.connect("x")) as connection, connection:
        connection.execute("CREATE TABLE songs (name)")


PLACES: dict[str, tuple[Callable[[], object], str, str]] = {
    "a pipe": (lambda: os.mkfifo("x"), "x", "this is a pipe"),
    "a device": (lambda: None, "/dev/null", "this is a device"),
    "a folder": (lambda: Path("x").mkdir(), "x", "this is a folder"),
    "a folder by its name": (lambda: None, "x/", "this names a folder"),
    "a text": (lambda: Path("x").write_text("a,b\n" * 999), "x", "not an SQLite database"),
    "another program's": (other_program, "x", "it holds other tables"),
    "a link to nothing": (lambda: Path("x").symlink_to("y"), "x", "a link to 'y'"),
    "links in a circle": (lambda: Path("x").symlink_to("x"), "x", "levels of symbolic links"),
    "below a file": (lambda: Path("x").write_text(""), "x/y.db", "Not a directory"),
    "a NUL": (lambda: None, "a\0b", "embedded null"),
    "a long name": (lambda: None, "x" * 5_000, "File name too long"),
    "a long path": (lambda: None, "x/" * 2_500 + "a.db", "File name too long"),
    "memory": (lambda: None, ":memory:", "a name for SQLite"),
    "a URI": (lambda: None, "file:x?mode=memory", "a name for SQLite"),
    "no name": (lambda: None, "", "no file is named"),
    "another scheme": (lambda: None, "mysql://root@localhost/db", "no store of this kind"),
}


@pytest.mark.parametrize("place", PLACES)
def test_places_that_are_no_store(place: str, understudy: Run, folder: Path) -> None:
    make, store, reason = PLACES[place]
    make()
    before = {path.name for path in folder.iterdir()}
    refused(understudy, store, reason)
    assert {path.name for path in folder.iterdir()} - before <= {"x.lock"}


def test_a_socket_is_no_store(understudy: Run) -> None:
    with socket.socket(socket.AF_UNIX) as own:
        own.bind("x")
        refused(understudy, "x", "this is a socket")


def test_an_empty_file_becomes_a_store_and_is_none_yet(understudy: Run) -> None:
    Path("x").touch(mode=0o600)
    refused(understudy, "x", "it is empty", AUDIT, EXPORT, REMOVE, LIST)
    assert Path("x").stat().st_size == 0
    assert understudy(*ADD, "--store", "x").returncode == 0


def changed(statement: str) -> None:
    """A store that another program has changed."""
    here = Place("x")
    with here.opened:
        here.writer()
    with closing(sqlite3.connect("x")) as connection, connection:
        connection.executescript(statement)


@pytest.mark.parametrize(
    "table", ["meta", "studies", "decisions", "snapshots", "refused", "tokens"]
)
def test_a_missing_table(table: str, understudy: Run) -> None:
    changed(f"DROP TABLE {table}")
    reason = "it holds other tables" if table in {"meta", "studies"} else f"no table {table}"
    refused(understudy, "x", reason)


@pytest.mark.parametrize(
    ("key", "commands"),
    [
        ("format", COMMANDS),
        ("clock", (SERVE, EXPORT)),
        ("epoch", (SERVE,)),
        ("writes", (SERVE, AUDIT)),
        ("lost", (SERVE, AUDIT)),
    ],
)
@pytest.mark.parametrize("value", ["'abc'", "x'00ff'", "1e400"])
def test_a_number_that_is_none(
    key: str, commands: tuple[tuple[str, ...], ...], value: str, understudy: Run
) -> None:
    changed(f"{STUDY}; UPDATE meta SET value = {value} WHERE key = '{key}'")
    refused(understudy, "x", "damaged: SELECT", *commands)


def test_a_clock_that_no_calendar_shows(understudy: Run) -> None:
    changed(f"{STUDY}; UPDATE meta SET value = 9223372036854775807 WHERE key = 'clock'")
    refused(understudy, "x", "after the year 9000", SERVE)
    assert understudy("clock", "--set-back", "--store", "x").returncode == 0
    assert understudy("audit", "--store", "x").returncode == 0


@pytest.mark.parametrize("digits", [20, 21, 5_000])
def test_a_lock_with_a_number_that_no_store_counts_to(digits: int, understudy: Run) -> None:
    changed(STUDY)
    Path("x.lock").write_text(f"{1:>10} {'9' * digits}\n", encoding="ascii")
    for options in ((), ("--accept-loss",)):
        audited = understudy("audit", "--store", "x", *options)
        assert (audited.returncode, audited.stderr) == (0, "")


@pytest.mark.parametrize("key", ["format", "clock", "epoch"])
def test_a_number_that_is_missing(key: str, understudy: Run) -> None:
    changed(f"{STUDY}; DELETE FROM meta WHERE key = '{key}'")
    refused(understudy, "x", "finds []", SERVE)


@pytest.mark.parametrize(
    ("statement", "commands"),
    [
        ("INSERT INTO studies VALUES (1, 'ads', 'no JSON', NULL, 1, NULL)", (SERVE, AUDIT, EXPORT)),
        ("INSERT INTO studies VALUES (1, 'ads', '{}', NULL, 1, NULL)", (SERVE, AUDIT, EXPORT)),
        ("INSERT INTO studies VALUES (1, 'ads', x'ff00', NULL, 1, NULL)", (SERVE, AUDIT, EXPORT)),
        (
            "INSERT INTO studies VALUES (1, 'ads', CAST(x'ff00' AS TEXT), NULL, 1, NULL)",
            (SERVE, AUDIT, EXPORT),
        ),
        (
            f"{STUDY}; {DECISION} VALUES (1, 1, 'x', 77, 0.5, 1, 1.0, 1)",
            (EXPORT,),
        ),
        (
            f"{STUDY}; {DECISION} VALUES (1, 1, 'x', 'a', 0.5, 1, 1.0, 1)",
            (EXPORT,),
        ),
        ("INSERT INTO tokens VALUES ('ci', 'zz', 'read', 1)", (SERVE, ADD, LIST)),
        ("INSERT INTO tokens VALUES ('ci', x'00', 'read', 1)", (SERVE, ADD, LIST)),
        ("ALTER TABLE studies RENAME COLUMN spec TO other", (SERVE, AUDIT, EXPORT)),
    ],
)
def test_rows_that_another_program_changed(
    statement: str, commands: tuple[tuple[str, ...], ...], understudy: Run
) -> None:
    changed(statement)
    refused(understudy, "x", "store = 'x': ", *commands)
    assert not Path("log.ndjson").exists()


@contextmanager
def without_rights() -> Iterator[Path]:
    """A folder, and a user for whom the permissions of files count, unlike root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        user = os.geteuid()
        if user == 0:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(user)
            folder.chmod(0o700)


def test_a_folder_that_may_not_be_entered(understudy: Run) -> None:
    with without_rights() as folder:
        folder.chmod(0)
        refused(understudy, str(folder / "a.db"), "cannot be used (Permission denied)")


def test_a_folder_that_may_not_be_written_to(understudy: Run) -> None:
    with without_rights() as folder:
        folder.chmod(0o500)
        missing = str(folder / "a.db")
        refused(understudy, missing, "its file cannot be created (Permission", SERVE, ADD)
        refused(understudy, missing, "there is no such file", AUDIT, EXPORT, REMOVE, LIST)
        folder.chmod(0o700)
        here = Place(str(folder / "b.db"))
        with here.opened:
            here.writer()
        (folder / "b.db.lock").unlink()
        folder.chmod(0o500)
        refused(understudy, str(folder / "b.db"), "b.db.lock cannot be opened", SERVE)


def test_a_file_that_may_not_be_read(understudy: Run) -> None:
    with without_rights() as folder:
        here = Place(str(folder / "a.db"))
        with here.opened:
            here.writer()
        Path(here.where).chmod(0)
        refused(understudy, here.where, "its file cannot be opened")
        Path(here.where).chmod(0o400)
        refused(understudy, here.where, "its file may be read only", SERVE, ADD)


@pytest.mark.needs("pg_ctl")
def test_databases_that_are_no_store(understudy: Run, cluster: Cluster, database: Place) -> None:
    cluster.sql("DROP DATABASE IF EXISTS latin")
    cluster.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    cluster.sql("DROP ROLE IF EXISTS guest")
    cluster.sql("CREATE ROLE guest LOGIN")
    here = database.where
    guest = here.replace("postgres@", "guest@")
    refused(understudy, guest, "its user may not do this; let it own the schema", SERVE, ADD)
    refused(understudy, guest, "it is empty", AUDIT, EXPORT, REMOVE, LIST)
    for store, reason in {
        "postgresql://postgres@127.0.0.1:99999/postgres": "invalid port number",
        "postgresql://postgres@127.0.0.1:port/postgres": "cannot be reached",
        f"{here}?colour=red": "no URL of a PostgreSQL database",
        "postgresql://%zz@127.0.0.1/postgres": "no URL of a PostgreSQL database",
        "postgresql://\udcff@127.0.0.1/postgres": "no URL of a PostgreSQL database",
        cluster.url("nowhere"): 'database "nowhere" does not exist',
        cluster.url("latin"): "encoded in LATIN1",
    }.items():
        refused(understudy, store, reason)
    assert cluster.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'understudy'") == "0"
