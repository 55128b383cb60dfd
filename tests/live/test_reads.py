"""While events come in, every answer is about one state of the study: that after so many rows."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

import understudy as us
from tests.support.live.changing_study import asked, learn_one, watched
from tests.support.live.durability import create, states_after
from tests.support.live.load_generator import ACTIONS, Ledger, Load, until
from tests.support.live.local_server import serving_store
from tests.support.live.single_study import SingleStudy

pytestmark = pytest.mark.plain

READERS = 3
READS = 300
STUDY = "/v1/studies/patient"


@dataclass
class Reading:
    """The answers that readers got, by the number of rows that they are about."""

    http: httpx.AsyncClient
    reads: int = 0
    policies: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    snapshots: dict[int, str] = field(default_factory=dict)
    logs: list[list[str]] = field(default_factory=list)

    async def go_on(self, load: Load, rng: random.Random) -> None:
        checks = (
            *(self.study, self.policy, self.policy, self.draw, self.certificate),
            *(self.coverage, self.snapshot, self.log, self.live),
        )
        while not load.ending.is_set():
            await rng.choice(checks)()
            self.reads += 1

    async def get(self, path: str) -> httpx.Response:
        found = await self.http.get(STUDY + path)
        assert found.status_code == 200, found.text
        return found

    async def study(self) -> None:
        now = (await self.get("")).json()
        assert now["learned"] == now["folded"] <= now["decisions"]
        assert now["waiting"] == now["decisions"] - now["folded"]

    async def policy(self) -> None:
        now = (await self.get("/policy")).json()
        assert now["learned"] <= now["decisions"]
        assert sum(row["probability"] for row in now["policy"]) == pytest.approx(1.0, abs=1e-12)
        assert self.policies.setdefault(now["learned"], now["policy"]) == now["policy"]

    async def draw(self) -> None:
        drawn = (await self.http.post(f"{STUDY}/draw")).json()
        known = self.policies.get(drawn["learned"], [])
        probabilities = {row["action"]: row["probability"] for row in known}
        assert probabilities.get(drawn["action"], drawn["probability"]) == drawn["probability"]

    async def certificate(self) -> None:
        now = (await self.get("/certificate")).json()
        if now["learned"]:
            assert now["certificate"]["rounds"] == now["curve"]["rounds"][-1] == now["learned"]

    async def coverage(self) -> None:
        now = (await self.get("/coverage")).json()
        assert sum(row["count"] for row in now["actions"]) == now["learned"]

    async def snapshot(self) -> None:
        text = (await self.get("/snapshot")).text
        rows = json.loads(text)["rows"]
        assert self.snapshots.setdefault(rows, text) == text

    async def log(self) -> None:
        self.logs.append((await self.get("/log")).text.splitlines())

    async def live(self) -> None:
        async with self.http.stream("GET", f"{STUDY}/live") as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "event: state"
            shown = json.loads((await anext(lines)).removeprefix("data: "))
        counters = shown["counters"]
        assert counters["learned"] + counters["waiting"] == counters["decisions"]


async def read_under_load(url: str, ledger: Ledger) -> Reading:
    load = Load(url, [ledger])
    async with httpx.AsyncClient(base_url=url, timeout=60.0) as http, asyncio.TaskGroup() as group:
        reading = Reading(http)
        group.create_task(load.run())
        await load.progress()
        for number in range(READERS):
            group.create_task(reading.go_on(load, random.Random(number)))
        await until(lambda: reading.reads >= READS)
        load.ending.set()
    return reading


@pytest.mark.full
def test_every_answer_is_about_one_state(tmp_path: Path) -> None:
    ledger = Ledger("patient", patient=True)
    with serving_store(tmp_path / "store.db") as url:
        create(url, ledger)
        reading = asyncio.run(read_under_load(url, ledger))
        spec = httpx.get(url + STUDY).json()["study"]
        lines = httpx.get(f"{url}{STUDY}/log").text.splitlines()
    assert len(lines) == len(ledger.facts)
    assert min(len(reading.policies), len(reading.snapshots), len(reading.logs)) > 3
    for log in reading.logs:
        assert log == lines[: len(log)]
    rows_read = [json.loads(line) for line in lines]
    states = states_after({*reading.policies, *reading.snapshots}, spec, rows_read)
    for learned, policy in reading.policies.items():
        probabilities = states[learned].probabilities().tolist()
        assert [row["probability"] for row in policy] == probabilities
        assert [row["action"] for row in policy] == list(ACTIONS)
    for rows, text in reading.snapshots.items():
        expected = states[rows].policy
        assert expected is not None
        assert text == expected.to_json()
        path = tmp_path / "policy.json"
        path.write_text(text, encoding="utf-8")
        assert us.logs.Policy.load(path).rows == rows


def test_an_answer_looks_once(tmp_path: Path) -> None:
    """Whatever happens while an answer is made: it is about the state that was looked at first."""
    single = SingleStudy(tmp_path)
    answer = asked(single)
    for _ in range(10):
        policy = answer("/policy")
        looked_at = single.study.state
        assert policy["learned"] == policy["decisions"] == looked_at.learned
        shown = [row["probability"] for row in policy["policy"]]
        assert shown == looked_at.probabilities().tolist()
        drawn = answer("/draw", "POST")
        looked_at = single.study.state
        probability = looked_at.probabilities()["ab".index(drawn["action"])]
        assert (drawn["learned"], drawn["probability"]) == (looked_at.learned, probability)
        certificate = answer("/certificate")
        rounds = certificate["certificate"]["rounds"]
        assert rounds == certificate["curve"]["rounds"][-1] == certificate["learned"]
        coverage = answer("/coverage")
        assert sum(row["count"] for row in coverage["actions"]) == coverage["learned"]
        now = answer("")
        assert now["learned"] == now["folded"] == now["decisions"] - now["waiting"]
        viewed = watched(single)
        assert viewed["learned"] + viewed["waiting"] == viewed["decisions"]
    single.store.close()


@pytest.mark.parametrize("before", [1, 2])
def test_a_promotion_and_its_date_come_together(tmp_path: Path, before: int) -> None:
    single = SingleStudy(tmp_path)
    while single.study.state.promoted_seq is None:
        learn_one(single)
    promoted = single.study.state.seq
    single.store.close()
    (tmp_path / "again").mkdir()
    again = SingleStudy(tmp_path / "again")
    for _ in range(promoted - before - 1):
        learn_one(again)
    answer, verdicts = asked(again), []
    for _ in range(4):
        now = answer("/certificate")
        assert (now["promoted_since"] is None) == (now["verdict"] != "promote")
        verdicts.append(now["verdict"])
    assert verdicts[0] != verdicts[-1] == "promote"
    again.store.close()
