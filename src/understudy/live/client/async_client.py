"""The client of a live service for `asyncio`: the same methods, to be awaited."""

from __future__ import annotations

import asyncio
import functools
import random as randomness
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import httpx
from tenacity import AsyncRetrying

from understudy.live.client import calls
from understudy.live.client.calls import URL, Call, path, read_object
from understudy.live.client.client import Client, StudyClient
from understudy.live.models import BatchTaken

P = ParamSpec("P")
T = TypeVar("T")
AsyncMethod = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def awaited(method: Callable[Concatenate[Any, P], T]) -> AsyncMethod[P, T]:
    """Make a coroutine method of a method of `Client` or `StudyClient`.

    That method must return the result of `self._ask` as it is, for that is awaited here.
    """
    ask: Any = method

    @functools.wraps(method)
    async def ask_and_wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return cast("T", await ask(self, *args, **kwargs))

    return ask_and_wait


def awaited_study(
    method: Callable[Concatenate[Any, P], StudyClient],
) -> AsyncMethod[P, AsyncStudyClient]:
    """Do the same to a method that returns a study: here that is an `AsyncStudyClient`."""
    return cast("AsyncMethod[P, AsyncStudyClient]", awaited(method))


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

    create_study = awaited_study(Client.create_study)
    load_snapshot = awaited_study(Client.load_snapshot)
    studies = awaited(Client.studies)
    study = awaited(Client.study)
    archive = awaited(Client.archive)

    async def _ask(self, call: Call[T]) -> T:
        return call.result(await self._send(call, stream=False))

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
            raise call.interruption(error) from None
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
            raise call.failure(error, attempt.retry_state.attempt_number) from None
        return response


class AsyncStudyClient:
    """A study of a live service; `AsyncClient.open` returns one."""

    def __init__(self, name: str, client: AsyncClient) -> None:
        self.name, self._ask, self._rows = name, client._ask, client._rows

    _take, _take_decision = StudyClient._take, StudyClient._take_decision
    observe = awaited(StudyClient.observe)
    decide = awaited(StudyClient.decide)
    reward = awaited(StudyClient.reward)
    policy = awaited(StudyClient.policy)
    draw = awaited(StudyClient.draw)
    coverage = awaited(StudyClient.coverage)
    certificate = awaited(StudyClient.certificate)
    snapshot = awaited(StudyClient.snapshot)

    async def send(self, events: Iterable[Mapping[str, Any]]) -> BatchTaken:
        """Send many events, as `StudyClient.send` does."""
        taken = BatchTaken()
        for first, batch in calls.batches(events):
            taken += await self._ask(calls.send_batch(self.name, batch, first))
        return taken

    def log(self) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the decisions that the study learned from, in order."""
        return self._rows(Call("GET", path(self.name, "log"), read_object))
