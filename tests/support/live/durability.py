"""That a store holds what was acknowledged, and that a policy is the fold of it, bit for bit."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import Any

import httpx

import understudy as us
from tests.support.live.load_generator import ACTIONS, PATIENCE, Ledger, Load
from tests.support.live.server_process import Server
from tests.support.live.single_study import learned_parts
from understudy.live.decision_log import audit, export, study_named
from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store import open_reader
from understudy.live.store.records import Decision

__all__ = ["as_decisions", "create", "states_after", "survive"]

Trouble = Callable[[Load, random.Random], Coroutine[Any, Any, None]]


def survive(server: Server, trouble: Trouble, folder: Path) -> Load:
    """Production goes on through the trouble, and then all is as if there had been none."""
    ledgers = [Ledger("patient", patient=True), Ledger("hasty", patient=False)]
    create(server.url, *ledgers)
    load = asyncio.run(under_load(server, ledgers, trouble))
    policies = [settled(server.url, ledger) for ledger in ledgers]
    assert server.stop() == 0
    for ledger, policy in zip(ledgers, policies, strict=True):
        prove(server.store, ledger, policy, folder)
    patient, hasty = ledgers
    assert set(patient.facts) == patient.decided == patient.rewarded
    assert set(hasty.facts) == hasty.decided > hasty.rewarded > set()
    return load


async def under_load(server: Server, ledgers: list[Ledger], trouble: Trouble) -> Load:
    """Clients that end when the trouble is over, and some more is acknowledged."""
    load = Load(server.url, ledgers)
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        await load.progress()
        await trouble(load, random.Random(0))
        await load.progress(100)
        load.ending.set()
    return load


def create(url: str, *ledgers: Ledger) -> None:
    """The studies of these ledgers: one that waits for every reward, or one that does not."""
    for ledger in ledgers:
        wait = 3600.0 if ledger.patient else 0.5
        spec = {"name": ledger.study, "actions": ACTIONS, "reward_wait": wait}
        assert httpx.post(f"{url}/v1/studies", json=spec).status_code == httpx.codes.CREATED


def settled(url: str, ledger: Ledger) -> str:
    """policy.json of a study, once every decision was learned from."""
    path = f"/v1/studies/{ledger.study}"
    deadline = time.monotonic() + PATIENCE
    with httpx.Client(base_url=url) as client:
        while (now := client.get(path).json())["waiting"]:
            assert now["fault"] is None
            assert now["learned"] <= now["decisions"] <= len(ledger.facts)
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert now["learned"] == now["decisions"] >= len(ledger.decided)
        return client.get(f"{path}/snapshot").text


def prove(store: str, ledger: Ledger, policy: str, folder: Path) -> None:
    """What is on disk is what was acknowledged; the last policy is what that teaches."""
    reader = open_reader(store)
    try:
        record = study_named(reader, ledger.study)
        decisions = [one for batch in reader.batches(record.key) for one in batch]
        ledger.check(decisions)
        assert reader.lost_writes() == 0
        (audited,) = [one for one in audit(reader, ignore) if one.study == ledger.study]
        exact = (audited.faults, audited.rounded, audited.processed)
        assert exact == ((), 0, len(decisions)), audited
        log = folder / f"{ledger.study}.ndjson"
        now = max(reader.clock(), time.time_ns() // 1_000)
        assert export(reader, record, log, now, ignore) == len(decisions)
    finally:
        reader.close()
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    folded = StudyState.begin(StudySpec.model_validate_json(record.spec)).after(as_decisions(rows))
    assert folded.policy is not None
    assert folded.policy.to_json() == policy
    learned = us.logs.learn(str(log), actions=ACTIONS, time="time").policy
    assert learned_parts(learned.to_json()) == learned_parts(policy)


def as_decisions(rows: Sequence[dict[str, Any]]) -> list[Decision]:
    """From an exported log alone."""
    return [
        Decision(
            seq=number,
            id=row["id"],
            action=ACTIONS.index(row["action"]),
            propensity=row["propensity"],
            context=None,
            decided_at=0,
            reward=row["reward"] if row["rewarded"] else None,
        )
        for number, row in enumerate(rows, start=1)
    ]


def ignore(*_: object) -> None:
    pass


def states_after(
    sizes: Collection[int], spec: dict[str, Any], rows: Sequence[dict[str, Any]]
) -> dict[int, StudyState]:
    """The state of a study after each of these numbers of rows, and before the first."""
    decisions = as_decisions(rows)
    state = StudyState.begin(StudySpec.model_validate(spec))
    found = {0: state}
    for size in sorted(sizes):
        state = state.after(decisions[state.seq : size])
        found[size] = state
    return found
