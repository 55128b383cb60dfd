"""`understudy.live.reader_thread`: a store that hangs holds few threads, and no user for long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.live.temporary_stores import Place, a_store
from understudy.errors import StoreUnavailable
from understudy.live.reader_thread import ReaderThread

pytestmark = pytest.mark.plain


def blocked_by(gate: threading.Event) -> Callable[..., Any]:
    def open_it(*_: object) -> Any:
        gate.wait()
        raise StoreUnavailable("it is gone")

    return open_it


def test_readers_that_hang_are_few() -> None:
    """They keep their slots until the store answers, and free them then."""
    gate, slots = threading.Event(), threading.Semaphore(2)
    for _ in range(2):
        with (
            pytest.raises(StoreUnavailable, match="has not answered"),
            ReaderThread(blocked_by(gate), slots, 0.01) as reader,
        ):
            reader.read(lambda store: store.clock())
    with pytest.raises(StoreUnavailable, match="too many requests"):
        ReaderThread(blocked_by(gate), slots, 0.01)
    gate.set()
    for _ in range(3):
        with (
            pytest.raises(StoreUnavailable, match="it is gone"),
            ReaderThread(blocked_by(gate), slots, 60.0) as reader,
        ):
            reader.read(lambda store: store.clock())


def test_a_thread_that_cannot_start_keeps_no_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    place, slots = Place(str(tmp_path / "store.db")), threading.Semaphore(1)
    with place.opened:
        _, key = a_store(place)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fail)
            with pytest.raises(StoreUnavailable, match="no thread"):
                ReaderThread(place.reader, slots, 0.01)
        with ReaderThread(place.reader, slots, 60.0) as reader:
            assert reader.read(lambda store: store.last_seq(key)) == 3


def test_a_reader_reads_and_is_closed_by_its_thread(tmp_path: Path) -> None:
    place, slots = Place(str(tmp_path / "store.db")), threading.Semaphore(1)
    with place.opened:
        _, key = a_store(place)
        for _ in range(3):  # in turn: each waits for the slot of the one before
            with ReaderThread(place.reader, slots, 60.0) as reader:
                assert reader.read(lambda store: store.last_seq(key)) == 3
                assert len(reader.read(lambda store: store.decisions(key, 0, 9))) == 3
            with (
                pytest.raises(ZeroDivisionError),
                ReaderThread(place.reader, slots, 60.0) as reader,
            ):
                reader.read(lambda _: 1 / 0)
