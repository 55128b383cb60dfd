"""The client of a live service for `asyncio`: the same methods, to be awaited."""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

import httpx

from understudy.live.client import calls
from understudy.live.client.calls import BatchTaken, Drawn, StudyOptions, Taken
from understudy.live.client.client import URL
from understudy.live.client.events import (
    Context,
    batches,
    decision_event,
    make_event,
    observation_event,
    reward_event,
)
from understudy.live.client.transport import AsyncConnection, retry_policy, settings_of

if TYPE_CHECKING:
    from understudy.logs.schema import Label


class AsyncClient:
    """Talks to a live service as `Client` does. Use it in an `async with` block.

    Its arguments and its methods are those of `Client`, whose documentation holds. There is no
    `background`: that of `Client` never waits, so that it can be used here too.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 5,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        retry, settings = retry_policy(retries, random), settings_of(url, token, timeout)
        http = httpx.AsyncClient(**settings, transport=transport)
        self._connection = AsyncConnection(http, retry, sleep)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._connection.close()

    def open(self, name: str) -> AsyncStudyClient:
        """A study by its name; this sends no request."""
        return AsyncStudyClient(name, self._connection)

    async def create_study(
        self, name: str, actions: Sequence[Label], **options: Unpack[StudyOptions]
    ) -> AsyncStudyClient:
        """A new study; `StudyOptions` says what it can be created with."""
        await self._connection.ask(calls.create_study(name, actions, options))
        return self.open(name)

    async def load_snapshot(
        self,
        name: str,
        policy_json: str | Mapping[str, Any],
        *,
        reward_wait: float | None = None,
        default_reward: float | None = None,
    ) -> AsyncStudyClient:
        """A new study that goes on from a policy.json, of a service or of `understudy learn`."""
        await self._connection.ask(
            calls.load_snapshot(
                name, policy_json, reward_wait=reward_wait, default_reward=default_reward
            )
        )
        return self.open(name)

    async def studies(self, *, archived: bool = False) -> list[dict[str, Any]]:
        """All studies; `archived` adds those that take no more events."""
        return await self._connection.ask(calls.studies(archived=archived))

    async def study(self, name: str) -> dict[str, Any]:
        """What a study is, and how far it has come."""
        return await self._connection.ask(calls.about(name))

    async def archive(self, name: str) -> dict[str, Any]:
        """Let a study take no more events."""
        return await self._connection.ask(calls.archive(name))


class AsyncStudyClient:
    """A study of a live service; `AsyncClient.open` gives one."""

    def __init__(self, name: str, connection: AsyncConnection) -> None:
        self.name, self._connection = name, connection

    async def observe(
        self,
        action: Label,
        reward: float,
        *,
        propensity: float | None = None,
        context: Context | None = None,
        id: str | None = None,  # noqa: A002 - its name in the event
    ) -> Taken:
        """A decision and its reward, in one piece."""
        event = observation_event(action, reward, propensity, context, id)
        return await self._connection.ask(calls.send(self.name, event))

    async def decide(
        self,
        action: Label,
        *,
        propensity: float | None = None,
        context: Context | None = None,
        id: str | None = None,  # noqa: A002 - its name in the event
    ) -> str:
        """A decision whose reward will come later; gives the id that the reward must name."""
        event = decision_event(action, propensity, context, id)
        return (await self._connection.ask(calls.send(self.name, event))).id

    async def reward(self, id: str, reward: float) -> Taken:  # noqa: A002 - its name in the event
        """The reward of an earlier decision."""
        return await self._connection.ask(calls.send(self.name, reward_event(id, reward)))

    async def send(self, events: Iterable[Mapping[str, Any]]) -> BatchTaken:
        """Many events, each a mapping with `action`, `propensity`, `context`, `reward`, `id`."""
        taken = BatchTaken()
        for first, batch in batches(map(make_event, events)):
            taken += await self._connection.ask(calls.batch(self.name, batch, first))
        return taken

    async def policy(self, context: Context | None = None) -> dict[Label, float]:
        """What the understudy would do now."""
        return await self._connection.ask(calls.policy(self.name, context))

    async def draw(self, context: Context | None = None) -> Drawn:
        """An action drawn from that policy."""
        return await self._connection.ask(calls.draw(self.name, context))

    async def coverage(self) -> dict[str, Any]:
        """What the decisions so far can say, action by action."""
        return await self._connection.ask(calls.part(self.name, "coverage"))

    async def certificate(self) -> dict[str, Any]:
        """What is certain about the understudy, with the curve of it."""
        return await self._connection.ask(calls.part(self.name, "certificate"))

    async def snapshot(self) -> str:
        """The policy.json of this moment, as text."""
        return await self._connection.ask(calls.snapshot(self.name))

    def log(self) -> AsyncIterator[dict[str, Any]]:
        """What was learned from, decision by decision, in order."""
        return self._connection.rows(calls.log(self.name))
