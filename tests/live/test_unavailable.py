"""Disks that are full, two servers on one store, clients that leave, and an end in good order."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.live.durability import survive
from tests.support.live.load_generator import Load, until
from tests.support.live.postgresql_server import Cluster
from tests.support.live.server_process import Server
from tests.support.live.temporary_stores import Place, cluster, database, decisions_in, place
from tests.support.small_disks import fill_up, small_disk

__all__ = ["cluster", "database", "place"]  # fixtures

pytestmark = pytest.mark.plain

READS = ("", "/policy", "/certificate", "/coverage", "/snapshot")
SPEC = {"name": "ads", "actions": ["a", "b"]}
# After an outage decisions wait longer, until clients are back. Here they are back at once.
BACK_SOON = "import understudy.live.clock; understudy.live.clock.RETURN = 1"
EVENT = {"id": "e1", "action": "a", "propensity": 0.5, "reward": 1.0}


@contextmanager
def no_growth(server: Server) -> Iterator[None]:
    """No file of the service may grow, its log neither."""
    before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)


async def readable(server: Server) -> None:
    """What is known can be asked for, and the process lives."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30.0) as http:
        for read in READS:
            assert (await http.get(f"/v1/studies/patient{read}")).status_code == 200
        # The log is read from the store, which may be away for readers too: then that is said.
        assert (await http.get("/v1/studies/patient/log")).status_code in {200, 503}
        assert (await http.get("/healthz")).status_code == 200


async def unavailable(server: Server, load: Load, reason: str) -> None:
    """Nothing is acknowledged, and the service says why; what is known can still be asked for."""
    await load.refusal(20)
    before = load.acknowledged
    await readable(server)
    async with httpx.AsyncClient(base_url=server.url, timeout=30.0) as http:
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["message"]) == (503, reason)
        refused = await http.post("/v1/studies", json=SPEC)
        assert (refused.status_code, refused.json()["message"]) == (503, reason)
    assert load.acknowledged == before
    assert load.unavailable[-1] == reason


async def until_ready(server: Server, load: Load) -> None:
    await load.progress()
    async with httpx.AsyncClient(base_url=server.url) as http:
        assert (await http.get("/readyz")).status_code == 200


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    async def trouble(load: Load, _: random.Random) -> None:
        with no_growth(server):
            await unavailable(server, load, "the disk cannot be read or written")
        await until_ready(server, load)

    with Server(tmp_path / "store.db", change=BACK_SOON) as server:
        load = survive(server, trouble, tmp_path)
        assert load.unanswered == 0


@pytest.mark.full
def test_a_full_disk(tmp_path: Path) -> None:
    async def trouble(load: Load, _: random.Random) -> None:
        for number in range(2):
            ballast = disk / f"ballast {number}"
            fill_up(ballast)
            await load.refusal(20)  # now and then one fits into the file that is there, and counts
            assert load.unavailable[-1] == "the disk is full"
            await readable(server)
            ballast.unlink()
            await until_ready(server, load)

    with (
        small_disk(tmp_path / "disk", megabytes=64) as disk,
        Server(disk / "store.db", change=BACK_SOON) as server,
    ):
        load = survive(server, trouble, tmp_path)
        assert load.unanswered == 0


@pytest.mark.full
@pytest.mark.needs("pg_ctl")
def test_a_database_that_hangs(cluster: Cluster, database: Place) -> None:
    """Its processes are stopped, so connections stay open: requests are refused with the reason.

    When it goes on, so does the service. If it does not, the service ends all the same.
    """
    with Server(database.where) as server, started(server) as client:
        assert client.post("/v1/studies/ads/events", json=EVENT).status_code == 200
        cluster.pause()
        try:
            second = {**EVENT, "id": "e2"}
            refused = client.post("/v1/studies/ads/events", json=second)
            ready, log = client.get("/readyz"), client.get("/v1/studies/ads/log")
            assert (refused.status_code, ready.status_code, log.status_code) == (503, 503, 503)
            for answer in (refused, ready):
                assert "waiting for its store for " in answer.json()["message"]
            assert "\nunderstudy_store_usable 0.0\n" in client.get("/metrics").text
            assert client.get("/healthz").status_code == 200
            assert client.get("/v1/studies/ads/policy").status_code == 200
            cluster.resume()
            while client.get("/readyz").status_code != 200:
                pass
            assert client.post("/v1/studies/ads/events", json=second).json()["status"] == "known"
            cluster.pause()
            assert client.post("/v1/studies/ads/events", json=EVENT).status_code == 503
            server.tell(signal.SIGTERM)
            assert server.exit_code >= 0
        finally:
            cluster.resume()
    assert ids_in(database.where) == ["e1", "e2"]


@pytest.mark.full
def test_the_end_is_in_good_order(tmp_path: Path) -> None:
    """Streams end, and requests that were sent are answered."""

    async def watch(path: str) -> None:
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=60.0) as http,
            http.stream("GET", path) as stream,
        ):
            watching.append(path)
            async for _ in stream.aiter_bytes():  # raises if it is not ended as it should be
                pass

    async def trouble(load: Load, rng: random.Random) -> None:
        for _ in range(2):
            watching.clear()
            async with asyncio.TaskGroup() as group:
                for path in ("/v1/live", "/v1/studies/patient/live"):
                    group.create_task(watch(path))
                await until(lambda: len(watching) == 2)
                await asyncio.sleep(rng.uniform(0.0, 1.0))
                assert await asyncio.to_thread(server.stop) == 0
            assert server.said.splitlines()[1:] == [f"listening on {server.url}"]
            await asyncio.to_thread(server.start)
            await load.progress()

    watching: list[str] = []
    with Server(tmp_path / "store.db") as server:
        survive(server, trouble, tmp_path)


@contextmanager
def half_sent(server: Server, event: dict[str, Any]) -> Iterator[tuple[socket.socket, bytes]]:
    """A connection on which the first half of a request was sent, and the other half."""
    body = json.dumps(event).encode()
    head = (
        "POST /v1/studies/ads/events HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"content-length: {len(body)}",
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=60.0) as connection:
        connection.sendall("".join(f"{line}\r\n" for line in (*head, "")).encode() + body[:9])
        yield connection, body[9:]


def wait_until_it_listens_no_more(server: Server) -> None:
    with suppress(ConnectionError):  # refused, or reset by who was about to go
        while True:
            socket.create_connection(("127.0.0.1", server.port)).close()


@contextmanager
def started(server: Server) -> Iterator[httpx.Client]:
    """A client of a server with a study."""
    with httpx.Client(base_url=server.url, timeout=60.0) as client:
        assert client.post("/v1/studies", json=SPEC).status_code == 201
        yield client


def ids_in(store: str) -> list[str]:
    return [decision.id for decision in decisions_in(store)]


@pytest.mark.full
def test_a_request_that_has_begun_is_answered_after_sigterm(tmp_path: Path) -> None:
    with Server(tmp_path / "store.db") as server, started(server) as client:
        with half_sent(server, EVENT) as (connection, rest):
            assert client.get("/readyz").status_code == 200  # so the first half was read
            server.tell(signal.SIGTERM)
            wait_until_it_listens_no_more(server)
            connection.sendall(rest)
            assert connection.makefile().readline() == "HTTP/1.1 200 OK\n"
        assert server.exit_code == 0
        assert ids_in(server.store) == ["e1"]


@pytest.mark.full
def test_who_asks_twice_loses_nothing(tmp_path: Path) -> None:
    """Ctrl-C, and again: requests that have begun are left alone, what was acknowledged is not."""
    with Server(tmp_path / "store.db") as server, started(server) as client:
        assert client.post("/v1/studies/ads/events", json=EVENT).status_code == 200
        with half_sent(server, {**EVENT, "id": "e2"}):
            assert client.get("/readyz").status_code == 200
            server.tell(signal.SIGINT)
            wait_until_it_listens_no_more(server)
            server.tell(signal.SIGINT)
            assert server.exit_code == 0
        assert ids_in(server.store) == ["e1"]


@pytest.mark.full
def test_a_second_server_is_refused_until_the_first_is_gone(place: Place) -> None:
    second = Server(place.where)
    try:
        with Server(place.where) as first, started(first) as client:
            assert client.post("/v1/studies/ads/events", json=EVENT).json()["status"] == "accepted"
            second.spawn()
            assert second.exit_code == 2
            assert second.said.startswith("understudy: another server writes to ")
            assert f"process {first.pid}" in second.said
            assert second.said.count("\n") == 1
            assert client.post("/v1/studies/ads/events", json=EVENT).json()["status"] == "known"
            first.kill()
            second.start()
        again = httpx.post(f"{second.url}/v1/studies/ads/events", json=EVENT)
        assert again.json() == {"id": "e1", "status": "known"}
    finally:
        second.end()


@pytest.mark.full
def test_a_server_that_lost_its_store_waits_until_the_other_is_gone(tmp_path: Path) -> None:
    """And then it knows what the other has written."""
    second = Server(tmp_path / "store.db")

    def send(server: Server, number: int) -> httpx.Response:
        event = {**EVENT, "id": f"e{number}"}
        return httpx.post(f"{server.url}/v1/studies/ads/events", json=event, timeout=60.0)

    with Server(tmp_path / "store.db") as first, started(first), ExitStack() as stack:
        stack.callback(second.end)
        assert send(first, 1).json()["status"] == "accepted"
        with no_growth(first):
            assert send(first, 2).status_code == 503
            second.start()
            assert send(second, 1).json()["status"] == "known"
            assert send(second, 2).json()["status"] == "accepted"
        while "another server" not in (refused := send(first, 3)).text:
            assert refused.status_code == 503
        assert f"process {second.pid}" in refused.json()["message"]
        assert second.stop() == 0
        while (taken := send(first, 3)).status_code == 503:
            pass
        assert taken.json()["status"] == "accepted"
        assert send(first, 2).json()["status"] == "known"
        assert first.stop() == 0
        assert ids_in(first.store) == ["e1", "e2", "e3"]


@pytest.mark.full
def test_clients_that_leave_in_the_middle_disturb_no_other(tmp_path: Path) -> None:
    with Server(tmp_path / "store.db") as server, started(server) as client:
        for _ in range(20):
            with half_sent(server, EVENT):
                pass
        assert client.get("/v1/studies/ads").json()["decisions"] == 0
        for number in range(20):
            with half_sent(server, {**EVENT, "id": f"e{number}"}) as (connection, rest):
                connection.sendall(rest)
        answers = [
            client.post("/v1/studies/ads/events", json={**EVENT, "id": f"e{number}"}).json()
            for number in range(20)
        ]
        assert {answer["status"] for answer in answers} <= {"accepted", "known"}
        for path in ("/v1/live", "/v1/studies/ads/live", "/v1/studies/ads/log"):
            with client.stream("GET", path) as stream:
                next(stream.iter_bytes(8))
        assert server.stop() == 0
        assert server.said.splitlines()[1:] == [f"listening on {server.url}"]
        assert sorted(ids_in(server.store)) == sorted(f"e{number}" for number in range(20))
