"""`understudy.live.writer` on a store that fails at any moment."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args
from unittest import mock

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from tests.support.live.load_generator import PATIENCE, until
from tests.support.live.running_service import (
    Event,
    Service,
    policy_after,
    served,
    study_spec,
)
from tests.support.live.temporary_stores import decisions_in
from tests.support.strategies import quick
from understudy.errors import StoreUnavailable
from understudy.live import writer
from understudy.live.store import open_reader

pytestmark = pytest.mark.plain

Fate = Literal["fine", "before", "after", "another"]
FATES: tuple[Fate, ...] = get_args(Fate)
CALLS = 200  # of a store; later ones are fine
Found = TypeVar("Found")
SPEC = study_spec("study")
N = 6


class UnreliableStore:
    """A store whose calls fail: before they did anything, after they did all of it, or because

    another writer was there in the meantime.
    """

    def __init__(self, store: Any, path: Path, fates: Iterator[Fate]) -> None:
        self._store = store
        self._path = path
        self._fates = fates

    def close(self) -> None:
        self._store.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            fate = next(self._fates)
            if fate == "before":
                raise StoreUnavailable("before")
            found = getattr(self._store, name)(*arguments)
            if fate == "another":
                self._sign_as_another()
            if fate != "fine":
                raise StoreUnavailable("after")
            return found

        return call

    def _sign_as_another(self) -> None:
        with closing(sqlite3.connect(self._path)) as other, other:
            other.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")


def event(i: int, *, decided: bool = True, rewarded: bool = True) -> Event:
    action = {"action": "ab"[i % 2], "propensity": 0.25 + 0.1 * i} if decided else {}
    reward = {"reward": i * 5 % N / N} if rewarded else {}
    return Event.model_validate({"id": f"d{i}", **action, **reward})


async def insist(ask: Callable[[], Awaitable[Found]]) -> Found:
    """What it gives as soon as the store can be used."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                await asyncio.sleep(1e-3)


async def played(service: Service, messages: Sequence[Sequence[Event]]) -> str:
    """policy.json after all messages, each of them sent until it is taken."""
    await insist(lambda: asyncio.to_thread(service.open))
    await service.start()
    try:
        study = await insist(lambda: service.create(SPEC))
        for message in messages:
            for outcome in await insist(partial(service.ingest, study, message)):
                assert not outcome.is_refused
        assert service.study(SPEC.name) is study
        await insist(lambda: service.archive(SPEC.name))
        assert study.record.archived_at is not None
        while (state := study.state).seq < N:  # it begins again if another writer was there
            await asyncio.sleep(1e-3)
    finally:
        await service.stop()
    with closing(open_reader(service.where)) as reader:
        assert reader.studies() == [study.record]
    assert state.policy is not None
    return state.policy.to_json()


@quick
@given(seed=st.integers(0, 10**6), faults=st.sampled_from([0.05, 0.1, 0.2]))
def test_whatever_fails_every_event_counts_once(seed: int, faults: float) -> None:
    rng = random.Random(seed)
    fates = rng.choices(FATES, [1.0 - faults, *[faults / 3] * 3], k=CALLS)
    rewards = rng.sample(range(N), N)
    sent = [event(i, rewarded=i % 3 == 0) for i in range(N)]
    sent += [event(i, decided=False) for i in rewards if i % 3]
    messages: list[list[Event]] = []
    while sent:
        size = rng.randrange(1, 4)
        messages.append(sent[:size])
        sent = sent[size:]
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(writer, "RETRY", 1e-3),
        structlog.testing.capture_logs(),
    ):
        path = Path(folder, "store.db")

        async def run() -> str:
            service = Service(str(path))
            fine: Iterator[Fate] = itertools.repeat("fine")
            plan = itertools.chain(fates, fine)
            unreliable: Any = UnreliableStore(service.writer.store, path, plan)
            service.writer.store = unreliable
            return await played(service, messages)

        policy = asyncio.run(run())
        rows = decisions_in(path)
    assert [row.id for row in rows] == [f"d{i}" for i in range(N)]
    assert policy == policy_after(SPEC, [event(i) for i in range(N)])


@pytest.mark.parametrize("method", ["decisions", "tokens", "save_snapshot"])
def test_an_error_of_the_service_is_told_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Without its thread the service would never answer again."""

    async def run() -> None:
        async with served(tmp_path / "store.db") as service:
            study = service.study("ads")
            await insist(lambda: service.ingest(study, [event(0)]))
            failing = mock.Mock(side_effect=KeyError)
            with monkeypatch.context() as broken:

                def break_it() -> None:
                    broken.setattr(service.writer.store, method, failing)
                    study.all_in_memory, study.snapshot_seq = False, -1  # read and keep all again

                await service.writer.run(break_it)  # between two turns of the thread
                await until(lambda: failing.called)
            assert (await insist(lambda: service.ingest(study, [event(1)])))[0].status == "accepted"

    for name in ("RETRY", "POLL"):
        monkeypatch.setattr(writer, name, 1e-3)
    for name in ("TOKENS_EVERY", "SNAPSHOT_EVERY", "SNAPSHOT_SHARE"):
        monkeypatch.setattr(writer, name, 0.0)
    with structlog.testing.capture_logs() as logs:
        asyncio.run(run())
    assert any("an error of the service" in entry["event"] for entry in logs)
    assert [row.id for row in decisions_in(tmp_path / "store.db")] == ["d0", "d1"]


def test_what_is_on_disk_is_acknowledged_even_if_processing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with served(tmp_path / "store.db") as service:
            study = service.study("ads")

            def break_it() -> None:
                failing = mock.Mock(side_effect=[KeyError, []])
                monkeypatch.setattr(service.writer.store, "decisions", failing)
                study.all_in_memory = False

            await service.writer.run(break_it)
            (outcome,) = await insist(lambda: service.ingest(study, [event(0)]))
            assert outcome.status == "accepted"

    monkeypatch.setattr(writer, "POLL", 3600.0)  # it is the write that meets the error
    with structlog.testing.capture_logs() as logs:
        asyncio.run(run())
    assert any("an error of the service" in entry["event"] for entry in logs)
    monkeypatch.undo()
    assert [row.id for row in decisions_in(tmp_path / "store.db")] == ["d0"]
