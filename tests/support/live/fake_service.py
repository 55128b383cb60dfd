"""A service that is not there: it counts by id, answers as the real one does, and loses things."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

import understudy as us
from understudy.live.client.async_client import AsyncStudyClient

__all__ = ["Blocking", "Fake", "Fault", "Making", "blocking", "plain"]

Fault = Literal["none", "lost", "answer lost", "slow", "busy", "unavailable", "bad gateway"]
STATUSES = {"busy": 429, "unavailable": 503, "bad gateway": 502}
Making = Callable[..., Any]


@dataclass
class Fake:
    """`faults` are what happens to the requests, one after the other, and then nothing does."""

    faults: list[Fault] = field(default_factory=list)
    taken: Counter[str] = field(default_factory=Counter)  # facts, by id and field
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    answer: Callable[[httpx.Request], httpx.Response | None] = lambda _: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((request.method, request.url.raw_path.decode(), request.content))
        fault = self.faults.pop(0) if self.faults else "none"
        if fault == "lost":
            raise httpx.ConnectError("refused", request=request)
        if fault in STATUSES:
            said = {"error": fault, "message": "not now"}
            return httpx.Response(STATUSES[fault], json=said, headers={"retry-after": "3"})
        said_otherwise = self.answer(request)
        answered = self._answered(request) if said_otherwise is None else said_otherwise
        if fault == "answer lost":
            raise httpx.RemoteProtocolError("cut", request=request)
        if fault == "slow":
            raise httpx.ReadTimeout("timed out", request=request)
        return answered

    def _answered(self, request: httpx.Request) -> httpx.Response:
        said = json.loads(request.content or b"{}")
        if request.url.path.endswith("/events"):
            return httpx.Response(200, json={"id": said["id"], "status": self._status(said)})
        if request.url.path.endswith("/batches"):
            found = Counter(self._status(event) for event in said["events"])
            counts = {"accepted": found["accepted"], "known": found["known"], "refused": []}
            return httpx.Response(200, json=counts)
        return httpx.Response(200, json={})

    def _status(self, event: dict[str, Any]) -> str:
        facts = [f"{event['id']} {name}" for name in ("action", "reward") if name in event]
        new = [fact for fact in facts if fact not in self.taken]
        self.taken.update(new)
        return "accepted" if new else "known"


def plain(fake: Fake, **options: Any) -> us.live.Client:
    """A client that never waits."""
    chosen = {"sleep": lambda _: None, "random": lambda: 1.0, **options}
    return us.live.Client(transport=httpx.MockTransport(fake), **chosen)


def blocking(fake: Fake, **options: Any) -> Blocking:
    """The other client, which is then called in the same way."""
    sleep = options.pop("sleep", lambda _: None)

    async def wait(seconds: float) -> None:
        sleep(seconds)

    chosen = {"random": lambda: 1.0, **options, "sleep": wait}
    return Blocking(us.live.AsyncClient(transport=httpx.MockTransport(fake), **chosen))


class Blocking:
    """An asynchronous client or study whose methods are waited for."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._runner = asyncio.Runner()

    def __enter__(self) -> Blocking:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._runner.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            result = found(*arguments, **options)
            if inspect.isasyncgen(result):
                return self._listed(result)
            if inspect.iscoroutine(result):
                result = self._runner.run(result)
            if isinstance(result, AsyncStudyClient):
                study = Blocking(result)
                study._runner = self._runner
                return study
            return result

        return call

    def _listed(self, rows: Any) -> Iterator[Any]:
        while (row := self._runner.run(anext(rows, None))) is not None:
            yield row
