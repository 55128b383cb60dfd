"""A study from a policy.json in `understudy.live.service`: events do not wait until it is read."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tests.support.live.running_service import (
    Event,
    parsing_threads,
    policy_after,
    served,
    study_spec,
)

pytestmark = pytest.mark.plain


def whole(name: str) -> Event:
    return Event(id=name, action="a", propensity=0.5, reward=1.0)


def test_a_policy_is_parsed_once_and_not_by_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = policy_after(study_spec("before"), [whole("1"), whole("2")])
    threads = parsing_threads(monkeypatch)

    async def play() -> None:
        async with served(tmp_path / "store.db") as service:
            study = await service.create_from_policy(
                "more", text, reward_wait=None, default_reward=None
            )
            assert len(threads) == 1
            assert threads[0] not in (threading.main_thread(), service.writer._thread)
            await service.ingest(study, [whole("3")])
            assert (study.record.base, study.state.rounds) == (text, 3)

    asyncio.run(play())
