"""Reads of `understudy.live.service` end, whether the store answers or not."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.live.running_service import Event, served
from understudy.errors import StoreUnavailable
from understudy.live import service as service_module

pytestmark = pytest.mark.plain


def test_reads_of_a_store_that_hangs_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(service_module, "STALLED", 0.05, raising=False)

    def never_open(_: str) -> Any:
        go_on.wait()
        raise StoreUnavailable("the test is over")

    async def play() -> None:
        async with asyncio.timeout(60), served(tmp_path / "store.db") as service:
            study = service.study("ads")
            await service.ingest(study, [Event(id="1", action="a", propensity=0.5, reward=1.0)])
            with monkeypatch.context() as patched:
                patched.setattr(service_module, "open_reader", never_open)
                with pytest.raises(StoreUnavailable, match="not answered"):
                    await asyncio.to_thread(list, service.log_lines(study))
            (lines,) = await asyncio.to_thread(list, service.log_lines(study))
            assert lines.startswith('{"id":"1"')

    try:
        asyncio.run(play())
    finally:
        go_on.set()
