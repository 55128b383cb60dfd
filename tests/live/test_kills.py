"""Whatever is killed whenever: what was acknowledged is on disk, counts once, and is learned from.

`understudy.live.store` finds no write missing after a kill.
UNDERSTUDY_KILLS and UNDERSTUDY_SERVER_KILLS say how often; `make soak` kills more often.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.live.durability import survive
from tests.support.live.load_generator import Load
from tests.support.live.postgresql_server import Cluster
from tests.support.live.server_process import Server
from tests.support.live.temporary_stores import Place, cluster, database, decisions_in
from understudy.live.store import open_reader

__all__ = ["cluster", "database"]  # fixtures

pytestmark = [pytest.mark.plain, pytest.mark.full]

KILLS = int(os.environ.get("UNDERSTUDY_KILLS", "3"))
SERVER_KILLS = int(os.environ.get("UNDERSTUDY_SERVER_KILLS", "2"))


async def kill_often(server: Server, load: Load, rng: random.Random) -> None:
    """While it answers, while it stops, and while it starts."""
    kills = 0
    while kills < KILLS:
        await asyncio.sleep(rng.uniform(0.0, 1.0))
        if rng.random() < 0.25:
            server.tell(signal.SIGTERM)
            await asyncio.sleep(rng.uniform(0.0, 0.3))
        server.tell(signal.SIGKILL)
        assert server.exit_code in {0, -signal.SIGKILL}
        kills += 1
        with closing(open_reader(server.store)) as reader:
            assert reader.lost_writes() == 0
        server.spawn()
        while rng.random() < 0.25 and kills < KILLS:
            await asyncio.sleep(rng.uniform(0.0, 3.0))
            server.kill()
            kills += 1
            server.spawn()
        await asyncio.to_thread(server.wait_until_it_listens)
        await load.progress()


def test_kills_on_sqlite(tmp_path: Path) -> None:
    with Server(tmp_path / "store.db") as server:
        load = survive(server, partial(kill_often, server), tmp_path)
        assert load.unanswered > 0


@pytest.mark.needs("pg_ctl")
def test_kills_on_postgresql(tmp_path: Path, database: Place) -> None:
    with Server(database.where) as server:
        load = survive(server, partial(kill_often, server), tmp_path)
        assert load.unanswered > 0


async def kill_database(server: Server, cluster: Cluster, load: Load, rng: random.Random) -> None:
    """While it is gone the service says so; when it is back, the service goes on by itself."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30.0) as http:
        for _ in range(SERVER_KILLS):
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            await asyncio.to_thread(cluster.kill)
            await load.refusal()
            ready = await http.get("/readyz")
            assert (ready.status_code, ready.json()["error"]) == (503, "store unavailable")
            assert (await http.get("/healthz")).status_code == 200
            assert (await http.get("/v1/studies/patient/policy")).status_code == 200
            await asyncio.to_thread(cluster.start)
            await load.progress()
            assert (await http.get("/readyz")).status_code == 200


@pytest.mark.needs("pg_ctl")
def test_kills_of_the_database_server(tmp_path: Path, cluster: Cluster, database: Place) -> None:
    with Server(database.where) as server:
        pid = server.pid
        load = survive(server, partial(kill_database, server, cluster), tmp_path)
        assert server.pid == pid
        assert load.unanswered == 0
        assert any("cannot be reached" in reason for reason in load.unavailable)


def test_units_survive_kills(tmp_path: Path) -> None:
    """Every event is sent until it is acknowledged: a unit counts each once."""
    units, rows = 40, 3
    spec = {"name": "units", "actions": ["a", "b"], "unit_rows": rows, "propensity_vectors": True}
    events: list[dict[str, Any]] = []
    for i in range(units * rows):
        unit = i % units
        stated = {"propensity_vector": {"a": 0.25, "b": 0.75}} if i < units else {}
        action = "ab"[unit % 2] if i != units else "b"  # the first unit changes
        events.append({"id": f"e{i}", "unit": unit, "action": action, **stated})
        events.append({"id": f"e{i}", "reward": float(i % 4 == 0)})
    rng = random.Random(0)
    kills = set(rng.sample(range(len(events)), KILLS))
    with Server(tmp_path / "store.db") as server, httpx.Client(timeout=30.0) as client:
        assert client.post(f"{server.url}/v1/studies", json=spec).status_code == 201
        for i, event in enumerate(events):
            sent = [event] if i not in kills else [event, *events[i - 3 : i + 1]]
            if i in kills:
                server.tell(signal.SIGKILL)
                assert server.exit_code == -signal.SIGKILL
                server.spawn()
                server.wait_until_it_listens()
            for one in sent:  # some of them again
                answer = client.post(f"{server.url}/v1/studies/units/events", json=one)
                assert answer.is_success, answer.text
        found = client.get(f"{server.url}/v1/studies/units").json()
        assert (found["folded"], found["learned"], found["changing_units"]) == (units, units - 1, 1)
        assert found["later_events"] == 0
        assert server.stop() == 0
    decisions = decisions_in(tmp_path / "store.db")
    assert [len(one.events) + 1 for one in decisions] == [rows] * units
