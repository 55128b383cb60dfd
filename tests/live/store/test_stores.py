"""A store keeps every write, whole or not at all, for one writer; in any database."""

from __future__ import annotations

import os
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.live.temporary_stores import (
    Place,
    cluster,
    content,
    database,
    database_of,
    fresh,
    place,
    process,
)
from tests.support.strategies import quick
from understudy.errors import InvalidArgument, MissingExtra, StoreInUse, StoreUnavailable
from understudy.live.store import open_reader, open_store, open_tokens
from understudy.live.store.records import Changes, Decision, Rewarded, Snapshot, TokenRecord

__all__ = ["cluster", "database", "place"]  # fixtures

pytestmark = pytest.mark.plain

on_one_store = settings(quick, suppress_health_check=[HealthCheck.function_scoped_fixture])

numbers = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=128)
times = st.integers(0, 2**63 - 1)


EDGES = (-0.0, 0.0, 1.0, 0.1, 5e-324, -2.2250738585072011e-308, sys.float_info.max, 2.0**63)


def with_number(after: int, x: float) -> list[Decision]:
    """The same number wherever a decision has one."""
    rewarded = ((None, None, None), (x, 1, None), (None, 1, x))
    numbered = enumerate(rewarded, start=after + 1)
    return [Decision(seq, f"id {seq}", 0, x, None, 1, *reward) for seq, reward in numbered]


def bits(decisions: Sequence[Decision]) -> list[tuple[Any, ...]]:
    """Every field, and of a double its bytes: -0.0 == 0.0 would hide a difference."""
    return [
        tuple(
            struct.pack("<d", field) if isinstance(field, float) else field
            for field in astuple(decision)
        )
        for decision in decisions
    ]


@st.composite
def logs(draw: st.DrawFn) -> list[Decision]:
    """Decisions in one piece and in two, some with a reward that came too late."""
    ids = draw(st.lists(texts, max_size=12, unique=True))
    actions = st.integers(0, 2**31)
    made = st.tuples(actions, st.none() | numbers, st.none() | texts, times)
    rewarded = st.one_of(
        st.just((None, None, None)),
        st.tuples(numbers, times, st.none()),
        st.tuples(st.none(), times, numbers),
    )
    return [
        Decision(seq, name, *draw(made), *draw(rewarded)) for seq, name in enumerate(ids, start=1)
    ]


def later(decision: Decision, column: str) -> list[Rewarded]:
    reward, at = getattr(decision, column), decision.rewarded_at
    return [] if reward is None or at is None else [Rewarded(decision.seq, reward, at)]


def test_a_decision_comes_back_bit_for_bit(place: Place) -> None:
    """In one piece, and in two: the decision first, what became of it in another write."""
    store, reader, names = place.writer(), place.reader(), iter(range(10**6))

    @on_one_store
    @given(logs())
    @example([decision for n, x in enumerate(EDGES) for decision in with_number(3 * n, x)])
    def check(log: list[Decision]) -> None:
        whole, parts = (store.add_study(f"s{next(names)}", "{}", None, 1).key for _ in "12")
        store.write([Changes(whole, log)], 1)
        bare = [replace(d, reward=None, rewarded_at=None, late_reward=None) for d in log]
        store.write([Changes(parts, bare)], 1)
        assert bits(reader.decisions(parts, 0, 100)) == bits(bare)
        rewards = [reward for d in log for reward in later(d, "reward")]
        late = [reward for d in log for reward in later(d, "late_reward")]
        store.write([Changes(parts, rewards=rewards, late=late)], 1)
        for study in (whole, parts):
            assert bits(reader.decisions(study, 0, 100)) == bits(log)
            found = store.find(study, [d.id for d in log] + ["x" * 129])
            assert bits([found.pop(d.id) for d in log]) == bits(log)
            assert not found
            assert reader.late_count(study) == len(late)
            assert reader.last_seq(study) == len(log)

    check()


@pytest.mark.parametrize("count", [1, 7, 512, 1_100])
def test_groups_of_any_size_are_written_found_and_rewarded(place: Place, count: int) -> None:
    store, reader = place.writer(), place.reader()
    key, other = (store.add_study(name, "{}", None, 1).key for name in "ab")
    store.write([fresh(key, count), fresh(other, 3)], 1)
    found = store.find(key, [f"id {n}" for n in range(count + 5)])
    assert bits(sorted(found.values(), key=lambda d: d.seq)) == bits(fresh(key, count).decisions)
    store.write(
        [Changes(key, rewards=[Rewarded(n + 1, 1.0 / (n + 1), n) for n in range(count)])], 1
    )
    expected = [
        replace(d, reward=1.0 / d.seq, rewarded_at=d.seq - 1) for d in fresh(key, count).decisions
    ]
    assert bits(reader.decisions(key, 0, count + 1)) == bits(expected)
    assert bits(reader.decisions(other, 0, 10)) == bits(fresh(other, 3).decisions)


def test_decisions_are_read_in_pages(place: Place) -> None:
    store, reader = place.writer(), place.reader()
    key = store.add_study("a", "{}", None, 1).key
    for start in (10, 0, 20):  # in whatever order they were written
        store.write([fresh(key, 10, after=start)], 1)
    pages, after = [], 0
    while page := reader.decisions(key, after, 7):
        assert len(page) <= 7
        assert page[0].seq == after + 1
        pages += page
        after = page[-1].seq
    assert [decision.seq for decision in pages] == list(range(1, 31))
    assert reader.decisions(key + 1, 0, 7) == []
    assert (reader.last_seq(key), reader.last_seq(key + 1)) == (30, 0)


def test_ids_that_look_alike_are_not_the_same(place: Place) -> None:
    store = place.writer()
    key = store.add_study("a", "{}", None, 1).key
    ids = ["e", "E", "é", "e\u0301", "e ", " e", "\u200be", "😀", "%", "_", "'", "?", "%b", "\\"]
    store.write(
        [Changes(key, [Decision(n, name, 0, None, None, 1) for n, name in enumerate(ids)])], 1
    )
    assert {name: d.seq for name, d in store.find(key, ids).items()} == dict(
        zip(ids, range(len(ids)), strict=True)
    )
    assert store.find(key, ["ee", "\u00c9", "ё"]) == {}
    assert store.find(key, []) == {}


def broken_changes(key: int) -> dict[str, Changes]:
    new, known = Decision(4, "id 4", 0, None, None, 4), fresh(key, 1).decisions[0]
    return {
        "an id twice": Changes(key, [new, replace(new, seq=5)]),
        "a seq twice": Changes(key, [new, replace(new, id="other")]),
        "an id that is known": Changes(key, [new, replace(known, seq=5)]),
        "no such study": Changes(key + 7, [new]),
        "a reward of nothing": Changes(key, [new], [Rewarded(4, 1.0, 4), Rewarded(5, 1.0, 4)]),
        "a reward twice": Changes(key, [new], [Rewarded(4, 1.0, 4), Rewarded(4, 1.0, 4)]),
        "another reward": Changes(key, [new], [Rewarded(2, 0.5, 4)]),
        "another late reward": Changes(key, [new], late=[Rewarded(3, 0.5, 4)]),
        "refused by no study": Changes(key + 7, refused=Counter({"late": 1})),
    }


@pytest.mark.parametrize("fault", broken_changes(1))
def test_a_write_is_all_or_nothing(place: Place, fault: str) -> None:
    """What was written before the fault, of the same study and of another, is not there."""
    store, reader = place.writer(), place.reader()
    key, other = (store.add_study(name, "{}", None, 1).key for name in "ab")
    known = Changes(key, fresh(key, 3).decisions, [Rewarded(2, 1.0, 3)], [Rewarded(3, 1.0, 3)])
    store.write([known], 5)
    before = content(reader)
    good = fresh(other, 2)
    good.refused["conflict"] = 3
    with pytest.raises(InvalidArgument, match=r"changes = |reward = ") as refused:
        store.write([good, broken_changes(key)[fault]], 9)
    assert "\n" not in str(refused.value)
    assert content(reader) == before
    store.write([good], 9)
    assert reader.last_seq(other) == 2
    assert (reader.refused_counts(other), reader.refused_counts(key)) == ({"conflict": 3}, {})


def test_counts_add_up_and_the_clock_never_goes_back(place: Place) -> None:
    store, reader = place.writer(), place.reader()
    assert reader.clock() == 0
    key, other = (store.add_study(name, "{}", None, at).key for name, at in (("a", 7), ("b", 5)))
    assert reader.clock() == 7
    for counts, clock in (({"late": 2, "conflict": 1}, 50), ({"late": 3}, 40), ({}, 2**62)):
        store.write([Changes(key, refused=Counter(counts)), Changes(other)], clock)
        assert reader.clock() == max(50, clock)
    store.archive(other, 2**63 - 1)
    assert reader.clock() == 2**63 - 1
    assert reader.refused_counts(key) == {"late": 5, "conflict": 1}
    assert reader.refused_counts(other) == {}


def test_studies_and_snapshots(place: Place) -> None:
    store, reader = place.writer(), place.reader()
    first = store.add_study("checkout", '{"actions": []}', None, 11)
    second = store.add_study("é ' %", "{}", '{"base": 1}', 12)
    assert reader.studies() == store.studies() == [first, second]
    assert astuple(second) == (second.key, "é ' %", "{}", '{"base": 1}', 12, None)
    with pytest.raises(InvalidArgument, match="name"):
        store.add_study("checkout", "{}", None, 13)
    for at in (20, 30):
        store.archive(first.key, at)
    assert reader.studies() == [replace(first, archived_at=20), second]
    assert reader.snapshot(first.key) is None
    for kept in (Snapshot(5, "{}", 0), Snapshot(9, '{"long": "' + "x" * 100_000 + '"}', 3)):
        store.save_snapshot(first.key, kept)
        assert (reader.snapshot(first.key), reader.snapshot(second.key)) == (kept, None)
    with pytest.raises(InvalidArgument):
        store.save_snapshot(99, Snapshot(1, "{}", 0))


def test_tokens_change_while_the_server_runs(place: Place) -> None:
    """And before it ran for the first time."""
    book = place.token_book()
    book.add_token("early", bytes(range(32)), "read", 1)
    store = place.writer()
    assert store.tokens() == [TokenRecord("early", bytes(range(32)), "read")]
    book.add_token("deploy", b"\0" * 32, "write", 2)
    store.add_token("early", b"\xff" * 32, "write", 3)
    expected = [
        TokenRecord("deploy", b"\0" * 32, "write"),
        TokenRecord("early", b"\xff" * 32, "write"),
    ]
    assert store.tokens() == book.tokens() == place.reader().tokens() == expected
    assert (book.remove_token("early"), book.remove_token("early")) == (True, False)
    assert store.tokens() == expected[:1]


def test_a_second_writer_is_refused_until_the_first_has_closed(place: Place) -> None:
    first, second, here = place.writer(), place.store(), rf"process {os.getpid()}\b"
    key = first.add_study("a", "{}", None, 1).key
    for _ in range(2):
        with pytest.raises(StoreInUse, match=rf"{here}.*stop it first"):
            second.open()
        with pytest.raises(StoreUnavailable, match="not open"):
            second.write([fresh(key, 1)], 1)
    first.write([fresh(key, 1)], 1)
    first.close()
    assert second.open()
    second.write([fresh(key, 1, after=1)], 1)
    with pytest.raises(StoreInUse, match=here):
        first.open()
    second.close()
    assert first.open()
    assert first.last_seq(key) == 2


def test_a_writer_that_was_killed_has_let_go_and_lost_nothing(place: Place) -> None:
    with process(place.where) as other:
        store, reader = place.store(), place.reader()
        with pytest.raises(StoreInUse, match=f"process {other.pid}"):
            store.open()
        before = content(reader)
        other.kill()
        other.wait()
    assert content(reader) == content(place.reader()) == before  # while there is no writer
    assert store.open()
    assert content(store) == content(reader) == content(place.reader()) == before
    assert before[1][0][1] == 1
    store.write([fresh(1, 3, after=1)], 1)


def test_opening_again_tells_whether_another_writer_was_here(place: Place) -> None:
    first, second = place.store(), place.store()
    assert [first.open() for _ in range(3)] == [False] * 3  # a new store, then its own
    first.close()
    assert not first.open()
    first.close()
    assert second.open()
    second.close()
    assert (first.open(), first.open()) == (True, False)


def test_another_writer_is_noticed_in_a_store_that_went_back(place: Place) -> None:
    """A replica that takes over may lack the last opening; another writer opens it as often."""
    first, second = place.writer(), place.store()
    database_of(first).change("UPDATE meta SET value = 0 WHERE key = 'epoch'")
    first.close()
    second.open()
    second.close()
    assert first.open()


def test_a_writer_that_is_not_open_does_nothing(place: Place) -> None:
    store = place.store()
    for _ in range(2):
        for act in (store.studies, store.clock, store.tokens, lambda: store.find(1, ["a"])):
            with pytest.raises(StoreUnavailable, match="not open"):
                act()
        store.close()
    store.open()
    assert store.studies() == []


def test_readers_wait_for_a_store_and_do_not_make_one(place: Place, tmp_path: Path) -> None:
    if place.where.startswith("postgresql"):
        with pytest.raises(StoreUnavailable, match="it is empty"):
            place.reader().studies()
    else:
        with pytest.raises(InvalidArgument, match="there is no such file"):
            place.reader()
        assert not list(tmp_path.iterdir())
    place.writer()
    assert place.reader().studies() == []


def test_what_cannot_be_a_store_is_refused(tmp_path: Path) -> None:
    for where, reason in {
        "mysql://root:secret@localhost/db": r"'mysql://…': there is no store of this kind; pass",
        "postgresql://ada:secret@[/db": "postgresql://…",
        str(tmp_path / "no" / "a.db"): r"there is no folder '.*no'; make it first",
        str(tmp_path): "this is a folder",
        "": "no file is named",
    }.items():
        for opens in (open_store, open_reader, open_tokens):
            with pytest.raises(InvalidArgument, match=reason) as refused:
                opens(where)
            assert "secret" not in str(refused.value)


def test_postgresql_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "understudy.live.store.postgresql", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for scheme in ("postgres", "postgresql"):
        with pytest.raises(MissingExtra, match=r"pip install 'understudy\[postgresql\]'"):
            open_store(f"{scheme}://localhost/db")
