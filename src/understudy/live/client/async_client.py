"""The client of a live service for `asyncio`: the same methods, to be awaited."""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

import httpx
from tenacity import AsyncRetrying

from understudy.live.client import calls
from understudy.live.client.calls import URL, Call, Context
from understudy.live.models import Action, BatchTaken, Drawn, StudyOptions, Taken

T = TypeVar("T")


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
        settings = calls.http_settings(url, token, timeout)
        self._retry = calls.retry_settings(retries, random, sleep)
        self._http = httpx.AsyncClient(**settings, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def open(self, name: str) -> AsyncStudyClient:
        """Return the client of an existing study; this sends no request."""
        return AsyncStudyClient(name, self)

    async def create_study(
        self, name: str, actions: Sequence[Action], **options: Unpack[StudyOptions]
    ) -> AsyncStudyClient:
        """Create a study and return its client; `StudyOptions` describes the options."""
        await self._ask(calls.create_study(name, actions, options))
        return self.open(name)

    async def load_snapshot(
        self,
        name: str,
        policy_json: str | Mapping[str, Any],
        *,
        reward_wait: float | None = None,
        default_reward: float | None = None,
    ) -> AsyncStudyClient:
        """Create a study that continues a policy.json, of a service or of `understudy learn`."""
        await self._ask(calls.load_snapshot(name, policy_json, reward_wait, default_reward))
        return self.open(name)

    async def studies(self, *, archived: bool = False) -> list[dict[str, Any]]:
        """List the studies; `archived` adds those that take no more events."""
        return await self._ask(calls.studies(archived=archived))

    async def study(self, name: str) -> dict[str, Any]:
        """Describe a study: its options, its counts, and how far it has come."""
        return await self._ask(calls.view(name))

    async def archive(self, name: str) -> dict[str, Any]:
        """Archive a study: it takes no more events."""
        return await self._ask(calls.archive(name))

    async def _ask(self, call: Call[T]) -> T:
        return calls.read(call, await self._send(call, stream=False))

    async def _rows(self, call: Call[Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the objects of a response as they come, one per line."""
        response, rest = await self._send(call, stream=True), b""
        try:
            async for received in response.aiter_bytes():
                rows, rest = calls.complete_rows(rest + received)
                for row in rows:
                    yield row
            for row in calls.complete_rows(rest + b"\n")[0]:
                yield row
        except (httpx.RequestError, ValueError) as error:
            raise calls.interruption(call, error) from None
        finally:
            await response.aclose()

    async def _send(self, call: Call[Any], *, stream: bool) -> httpx.Response:
        """Return a successful response, after as many tries as it takes and `retries` allows."""
        try:
            async for attempt in AsyncRetrying(**self._retry):
                with attempt:
                    response = await self._http.send(call.request(self._http), stream=stream)
                    if not response.is_success:
                        await response.aread()
                    response.raise_for_status()
        except httpx.HTTPError as error:
            raise calls.failure(call, error, attempt.retry_state.attempt_number) from None
        return response


class AsyncStudyClient:
    """A study of a live service; `AsyncClient.open` returns one."""

    def __init__(self, name: str, client: AsyncClient) -> None:
        self.name, self._client = name, client

    async def observe(
        self,
        action: Action,
        reward: float,
        *,
        propensity: float | None = None,
        context: Context | None = None,
        id: str | None = None,  # noqa: A002 - its name in the event
    ) -> Taken:
        """Send a decision and its reward."""
        event = calls.decision_event(action, propensity, context, id, reward=reward)
        return await self._client._ask(calls.send(self.name, event))

    async def decide(
        self,
        action: Action,
        *,
        propensity: float | None = None,
        context: Context | None = None,
        id: str | None = None,  # noqa: A002 - its name in the event
    ) -> str:
        """Send a decision whose reward will come later; return the id for `reward`."""
        event = calls.decision_event(action, propensity, context, id)
        return (await self._client._ask(calls.send(self.name, event))).id

    async def reward(self, id: str, reward: float) -> Taken:  # noqa: A002 - its name in the event
        """Send the reward of an earlier decision."""
        return await self._client._ask(calls.send(self.name, calls.reward_event(id, reward)))

    async def send(self, events: Iterable[Mapping[str, Any]]) -> BatchTaken:
        """Send many events, each a mapping with `action`, `propensity`, `context`, `reward`, `id`.

        They are sent by the thousand. An invalid event raises an error when its thousand is due:
        give events ids of your own if you may want to send them again.
        """
        taken = BatchTaken()
        for first, batch in calls.batches(events):
            taken += await self._client._ask(calls.batch(self.name, batch, first))
        return taken

    async def policy(self, context: Context | None = None) -> dict[Action, float]:
        """Read the probabilities with which the understudy would act now, by action."""
        return await self._client._ask(calls.policy(self.name, context))

    async def draw(self, context: Context | None = None) -> Drawn:
        """Draw an action from that policy."""
        return await self._client._ask(calls.draw(self.name, context))

    async def coverage(self) -> dict[str, Any]:
        """Read how well the decisions so far cover each action, and candidate policies."""
        return await self._client._ask(calls.view(self.name, "coverage"))

    async def certificate(self) -> dict[str, Any]:
        """Read the verdict on the understudy, the bounds behind it, and their curve."""
        return await self._client._ask(calls.view(self.name, "certificate"))

    async def snapshot(self) -> str:
        """Read the policy.json of this moment, as text."""
        return await self._client._ask(calls.snapshot(self.name))

    def log(self) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the decisions that the study learned from, in order."""
        return self._client._rows(calls.view(self.name, "log"))
