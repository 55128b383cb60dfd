"""Production under load: clients that retry, and remember what was acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from understudy.live.store.records import Decision

__all__ = ["ACTIONS", "PATIENCE", "Ledger", "Load", "until"]

ACTIONS = ("north", "south", "west")
CLIENTS = 8
MOST_IN_BATCH = 40
PAUSE = 0.05  # seconds before a client tries again
PATIENCE = 120.0  # seconds until what does not happen is a failure
RESENT = 0.15  # of messages go out twice at once
Event = dict[str, Any]


@dataclass
class Ledger:
    """All that was ever sent about the decisions of a study, and what was answered with 200.

    `late` are rewards of which the service said that they came too late. In a study that is
    `patient` none does, and every reward is sent.
    """

    study: str
    patient: bool
    facts: dict[str, Event] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)
    rewarded: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)

    def acknowledge(self, event: Event) -> None:
        if "action" in event:
            self.decided.add(event["id"])
        if "reward" in event:
            self.rewarded.add(event["id"])

    def check(self, decisions: Sequence[Decision]) -> None:
        """All that was acknowledged is there, once, as it was sent; and nothing that was not."""
        ids = [decision.id for decision in decisions]
        assert len(set(ids)) == len(ids)
        assert self.decided <= set(ids) <= set(self.facts)
        for decision in decisions:
            fact = self.facts[decision.id]
            sent = ACTIONS.index(fact["action"]), fact["propensity"]
            assert (decision.action, decision.propensity) == sent
            assert decision.reward in {None, fact["reward"]}
            if decision.id in self.rewarded:
                assert decision.reward == fact["reward"]
            if decision.id in self.late:
                assert (decision.reward, decision.late_reward) == (None, fact["reward"])


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what will happen, or fail."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


class Load:
    """Clients that decide, reward, batch and repeat themselves until they have to end.

    Whatever is not answered, or answered with 503, is sent again until it is.
    """

    def __init__(self, url: str, ledgers: Sequence[Ledger], seed: int = 0) -> None:
        self.ending = asyncio.Event()
        self.acknowledged = 0  # events
        self.unanswered = 0  # requests
        self.unavailable: list[str] = []  # the reasons of answers with 503
        self._url = url
        self._ledgers = ledgers
        self._seed = seed

    async def run(self) -> None:
        """All clients, until each has sent what it owes."""
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._produce(number))

    async def progress(self, events: int = 1) -> None:
        """Wait until so many more events are acknowledged."""
        enough = self.acknowledged + events
        await until(lambda: self.acknowledged >= enough)

    async def refusal(self, requests: int = 1) -> None:
        """Wait until so many more requests are answered with 503."""
        enough = len(self.unavailable) + requests
        await until(lambda: len(self.unavailable) >= enough)

    async def _produce(self, number: int) -> None:
        rng = random.Random(f"{self._seed}-{number}")
        async with httpx.AsyncClient(base_url=self._url, timeout=30.0) as http:
            clients = [Client(self, http, ledger, number, rng) for ledger in self._ledgers]
            while not self.ending.is_set():
                await rng.choice(clients).step()
            for client in clients:
                await client.pay()

    async def post(self, http: httpx.AsyncClient, path: str, body: object) -> httpx.Response:
        """Send until there is an answer other than that it cannot be written now."""
        while True:
            try:
                response = await http.post(path, json=body)
            except httpx.TransportError:
                self.unanswered += 1
            else:
                if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    return response
                assert response.headers["retry-after"]
                self.unavailable.append(response.json()["message"])
            await asyncio.sleep(PAUSE)


class Client:
    """One client of one study; its decisions are its own."""

    def __init__(
        self, load: Load, http: httpx.AsyncClient, ledger: Ledger, number: int, rng: random.Random
    ) -> None:
        self._load = load
        self._http = http
        self._ledger = ledger
        self._names: Iterator[str] = (f"{ledger.study}-{number}-{i}" for i in itertools.count())
        self._rng = rng
        self._owed: list[Event] = []  # rewards of decisions that were sent without
        self._told: list[Event] = []  # events that were acknowledged

    async def step(self) -> None:
        """One message: a single event, or a batch."""
        single = self._rng.random() < 0.5
        size = 1 if single else self._rng.randrange(1, MOST_IN_BATCH)
        known = [self._known() for _ in range(size) if self._told and self._rng.random() < 0.2]
        await self._send([self._new() for _ in range(size - len(known))], known)

    async def pay(self) -> None:
        """Send the rewards that are owed: all of them, or some where others may never come."""
        owed, self._owed = self._owed, []
        for reward in owed if self._ledger.patient else owed[::2]:
            await self._send([reward], [])

    def _known(self) -> Event:
        return self._rng.choice(self._told)

    def _new(self) -> Event:
        kind = self._rng.random()
        if kind < 0.4 and self._owed:
            return self._owed.pop(self._rng.randrange(len(self._owed)))
        return self._decision(whole=kind < 0.7)

    def _decision(self, *, whole: bool) -> Event:
        rng = self._rng
        fact: Event = {
            "id": next(self._names),
            "action": rng.choice(ACTIONS),
            "propensity": rng.uniform(0.05, 1.0),
            "reward": rng.choice((0.0, 1.0, rng.random())),
        }
        self._ledger.facts[fact["id"]] = fact
        if whole:
            return fact
        self._owed.append({"id": fact["id"], "reward": fact["reward"]})
        return {key: value for key, value in fact.items() if key != "reward"}

    async def _send(self, new: list[Event], known: list[Event]) -> None:
        """Until it is answered; then each event is on disk, or its reward was too late."""
        events = [*new, *known]
        times = 2 if self._rng.random() < RESENT else 1
        taken = await asyncio.gather(*(self._sent(events) for _ in range(times)))
        assert sum(accepted for accepted, _ in taken) <= len(new)
        late = {index for _, refused in taken for index in refused}
        assert max(late, default=-1) < len(new)
        for index, event in enumerate(new):
            if index in late:
                self._ledger.late.add(event["id"])
            else:
                self._ledger.acknowledge(event)
                self._told.append(event)
        self._load.acknowledged += len(events)

    async def _sent(self, events: list[Event]) -> tuple[int, list[int]]:
        """How many were accepted, and which came too late."""
        path = f"/v1/studies/{self._ledger.study}"
        if len(events) == 1:
            response = await self._load.post(self._http, f"{path}/events", events[0])
            found = response.json()
            if response.status_code == httpx.codes.CONFLICT:
                self._check_late(found)
                return 0, [0]
            assert response.status_code == httpx.codes.OK, found
            assert found["id"] == events[0]["id"]
            return int(found["status"] == "accepted"), []
        response = await self._load.post(self._http, f"{path}/batches", {"events": events})
        found = response.json()
        assert response.status_code == httpx.codes.OK, found
        for refusal in found["refused"]:
            self._check_late(refusal)
        assert found["accepted"] + found["known"] + len(found["refused"]) == len(events)
        return found["accepted"], [refusal["index"] for refusal in found["refused"]]

    def _check_late(self, refusal: dict[str, Any]) -> None:
        assert refusal["error"] == "late", refusal
        assert not self._ledger.patient
