"""A store that was lost and is opened again by `understudy.live.writer`: it may have changed."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.support.live.load_generator import until
from tests.support.live.running_service import Event, Service, lose_answer, served, study_spec
from tests.support.live.temporary_stores import Place, audited, database_of
from understudy.errors import StoreUnavailable
from understudy.live import writer

pytestmark = pytest.mark.plain


def whole(name: str) -> Event:
    return Event(id=name, action="a", propensity=0.5, reward=1.0)


def replaced(service: Service, go_on: threading.Event) -> asyncio.Future[Any]:
    """Lose the store to another writer, which has another study under the same key.

    So it is after a failover to a database that had not got the first study.
    """

    def replace_study() -> None:
        go_on.wait()
        service.writer.store.close()
        here = Place(service.where)
        with here.opened:
            other = database_of(here.writer())
            other.change("DELETE FROM decisions")
            other.change("DELETE FROM snapshots")
            spec = study_spec("other", actions=["x", "y", "z"])
            other.change("UPDATE studies SET name = 'other', spec = ?", spec.model_dump_json())
        raise StoreUnavailable("lost")

    return service.writer.run(replace_study)


def test_a_key_that_became_another_study_is_another_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests for the first one, queued or not, change nothing of the second."""
    path = tmp_path / "store.db"
    monkeypatch.setattr(writer, "RETRY", 0.0)

    async def play() -> None:
        async with served(path) as service:
            ads = service.study("ads")
            await service.ingest(ads, [whole("1"), whole("2")])
            go_on = threading.Event()
            lost = replaced(service, go_on)
            queued = [service.ingest(ads, [whole("3")]), service.archive("ads")]
            sent = [asyncio.ensure_future(one) for one in queued]
            await asyncio.sleep(0)  # so that all are queued
            go_on.set()
            found = await asyncio.gather(lost, *sent, return_exceptions=True)
            assert [str(one).partition(";")[0] for one in found] == [
                "lost",
                "the store holds other studies now",
                "there is no study 'ads'",
            ]
            other = service.study("other")
            assert list(service.studies) == ["other"]
            assert (other.spec.actions, other.state.seq) == (["x", "y", "z"], 0)
            assert other.record.archived_at is None
            event = Event(id="1", action="z", propensity=0.5, reward=1.0)
            assert [one.status for one in await service.ingest(other, [event])] == ["accepted"]

    with structlog.testing.capture_logs():
        asyncio.run(play())
    (result,) = audited(path)
    assert (result.study, result.decisions, result.faults) == ("other", 1, ())


def test_counts_are_those_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write happened, but its answer was lost: what it refused is counted all the same."""
    monkeypatch.setattr(writer, "RETRY", 0.0)

    async def play() -> None:
        async with served(tmp_path / "store.db") as service:
            study = service.study("ads")
            await lose_answer(service, Event(id="unknown", reward=1.0))
            await until(lambda: service.writer.store_error is None)
            assert study.refusals() == {"unknown decision": 1}

    with structlog.testing.capture_logs():
        asyncio.run(play())
