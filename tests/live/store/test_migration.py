"""A store of 0.5.0 gets the newest tables in one transaction, when a writer opens it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.golden.compare import EXPECTED
from tests.support.live.temporary_stores import (
    Changes,
    Place,
    a_store,
    as_of_0_5_0,
    audited,
    cluster,
    content,
    database,
    database_of,
    format_of,
    fresh,
    place,
)
from understudy.errors import StoreUnavailable
from understudy.live.store.records import Decision, pack_doubles

__all__ = ["cluster", "database", "place"]  # fixtures

pytestmark = pytest.mark.plain

VECTOR = pack_doubles(np.array([0.1, 0.2, 0.7]))
KILLED = """
import os, sys
from understudy.live.store import open_store
store = open_store(sys.argv[1])
database, left = store._database, [int(sys.argv[2])]
def change(statement, *values, real=database.change):
    left[0] -= database.in_transaction()
    if not left[0]:
        os._exit(9)
    return real(statement, *values)
database.change = change
store.open()
"""


def old_store(place: Place) -> int:
    """A store as 0.5.0 made it, with three decisions of one study; the key of the study."""
    store, key = a_store(place)
    as_of_0_5_0(store)
    return key


def test_a_writer_migrates_and_keeps_all(place: Place) -> None:
    key = old_store(place)
    reader = place.reader()
    before = content(reader)
    assert format_of(reader) == 1
    store = place.writer()
    assert format_of(reader) == format_of(store) == 2
    assert content(reader) == content(store) == before
    unit = Decision(4, "id 4", 0, 0.1, None, 9, propensity_vector=VECTOR, unit="ada", place=1)
    later = [replace(unit, seq=-n, id=f"later {n}", place=n + 1) for n in (1, 2)]
    store.write([Changes(key, [unit], events=[*later, replace(unit, seq=-3, id="x", place=0)])], 9)
    found = replace(unit, events=tuple(later))
    assert reader.decisions(key, 3, 9) == [found]  # by a reader that saw the old tables
    assert store.find_units(key, ["ada", "eve"]) == {"ada": found}
    assert (reader.last_seq(key), reader.least_seq(key)) == (4, -3)
    assert reader.later_events(key) == (1, 0)


def test_only_a_writer_migrates(place: Place) -> None:
    key = old_store(place)
    reader, book = place.reader(), place.token_book()
    before = content(reader)
    assert (reader.least_seq(key), reader.later_events(key)) == (0, (0, 0))
    book.add_token("early", bytes(32), "read", 1)
    assert (format_of(reader), format_of(book)) == (1, 1)
    assert content(reader)[:2] == content(book)[:2] == before[:2]


STATEMENTS = range(1, 10)  # of a migration with the tables of outages


@pytest.mark.parametrize("at", STATEMENTS)
def test_a_migration_that_fails_changes_nothing(
    place: Place, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = old_store(place)
    reader, store = place.reader(), place.store()
    before, session = content(reader), database_of(store)
    left, real = [at], session.change

    def change(statement: str, *values: object) -> int:
        left[0] -= session.in_transaction()
        if not left[0]:
            raise OSError("a fault")
        return real(statement, *values)

    monkeypatch.setattr(session, "change", change)
    with pytest.raises(OSError, match="a fault"):
        store.open()
    monkeypatch.undo()
    assert (format_of(reader), content(reader)) == (1, before)
    store.open()
    assert (format_of(reader), content(reader)) == (2, before)
    store.write([fresh(key, 1, after=3)], 1)


@pytest.mark.parametrize("at", [STATEMENTS[0], STATEMENTS[-1]])
def test_a_migration_that_is_killed_changes_nothing(place: Place, at: int) -> None:
    old_store(place)
    before = content(place.reader())
    command = [sys.executable, "-c", KILLED, place.where, str(at)]
    assert subprocess.run(command, check=False).returncode == 9
    reader = place.reader()
    assert (format_of(reader), content(reader)) == (1, before)
    place.writer()
    assert (format_of(reader), content(reader)) == (2, before)


@pytest.mark.needs("pg_ctl")
def test_a_migration_does_not_wait_for_a_backup(database: Place) -> None:
    old_store(database)
    reader, backup, store = database.reader(), database.reader(), database.store()
    database_of(backup).rows("SELECT 1")
    database_of(backup).execute("BEGIN; SELECT FROM decisions", ())
    with pytest.raises(StoreUnavailable, match="such as a backup, reads its tables; try again"):
        store.open()
    assert format_of(reader) == 1
    database_of(backup).execute("COMMIT", ())
    store.open()
    assert format_of(reader) == 2


def test_the_store_that_0_5_0_wrote(tmp_path: Path) -> None:
    """What it holds is the same before and after, and passes the same audit."""
    path = Path(shutil.copy(EXPECTED / "live" / "understudy.db", tmp_path))
    here = Place(str(path))
    with here.opened:
        reader = here.reader()
        before, found = content(reader), audited(path, rounded=True)
        assert format_of(reader) == 1
        here.writer()
        assert format_of(reader) == 2
        assert (content(reader), audited(path, rounded=True)) == (before, found)
        assert all(one.passed for one in found)


def test_a_newer_store_is_refused(place: Place) -> None:
    store = place.writer()
    database_of(store).change("UPDATE meta SET value = 3 WHERE key = 'format'")
    store.close()
    acts: list[Callable[[], object]] = [
        store.open,
        place.reader().clock,
        place.token_book().tokens,
    ]
    for act in acts:
        with pytest.raises(StoreUnavailable, match=r"format 3, .* reads formats 1 to 2; use the"):
            act()
