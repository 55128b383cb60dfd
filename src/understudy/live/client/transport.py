"""Connections that send requests, retry them and read their responses: blocking, or for `asyncio`.

The two classes differ only in how they wait; requests (`calls`) and responses are shared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from typing import Any, TypeVar

import httpx

from understudy.constraints import POSITIVE, integer
from understudy.errors import InvalidArgument
from understudy.live.client.calls import Call
from understudy.live.client.responses import Attempt, Lines, RetryPolicy, interrupted, read, settle

T = TypeVar("T")

RETRIES = integer(0, "pass how often to try again, a whole number of at least 0")


def settings_of(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    """What an httpx client is made with.

    >>> settings_of("localhost:8642", None, 10.0)
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: url = 'localhost:8642': it is no address ...; pass ...
    """
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        found = httpx.URL("")
    if found.scheme not in {"http", "https"} or not found.host:
        raise InvalidArgument(
            "url", url, "it is no address of a service", 'pass one like "http://127.0.0.1:8642"'
        )
    headers = {"accept": "application/json", "content-type": "application/json"}
    if token is not None:
        if not token.isascii() or not token.isprintable() or not token.strip():
            raise InvalidArgument("token", "…", "it is no token", "pass it as it was shown")
        headers["authorization"] = f"Bearer {token}"
    return {"base_url": found, "headers": headers, "timeout": POSITIVE("timeout", timeout)}


def retry_policy(retries: int, random: Callable[[], float]) -> RetryPolicy:
    """How often to try again.

    >>> retry_policy(-1, random=lambda: 0.5)
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: retries = -1: it must be at least 0; pass how often ...
    """
    return RetryPolicy(RETRIES("retries", retries), random)


class Connection:
    """Waits for the answer."""

    def __init__(
        self, http: httpx.Client, retry: RetryPolicy, sleep: Callable[[float], object]
    ) -> None:
        self._http, self._retry, self._sleep = http, retry, sleep

    def ask(self, call: Call[T]) -> T:
        """The answer, after as many tries as the retry policy allows."""
        return read(call, self._answer(call, stream=False))

    def rows(self, call: Call[None]) -> Iterator[dict[str, Any]]:
        """An answer that comes line by line."""
        response, lines = self._answer(call, stream=True), Lines()
        try:
            for received in response.iter_bytes():
                yield from lines.rows(received)
            yield from lines.rows(b"\n")
        except (httpx.RequestError, ValueError) as error:
            raise interrupted(call, error) from None
        finally:
            response.close()

    def close(self) -> None:
        """Let go of it."""
        self._http.close()

    def _answer(self, call: Call[Any], *, stream: bool) -> httpx.Response:
        for tries in count(1):
            outcome = self._try(call, stream=stream)
            wait = self._retry.wait(outcome, tries)
            if wait is None:
                break
            self._sleep(wait)
        return settle(call, outcome, tries)

    def _try(self, call: Call[Any], *, stream: bool) -> Attempt:
        try:
            response = self._http.send(request_of(self._http, call), stream=stream)
            if stream and not response.is_success:
                response.read()
        except httpx.RequestError as error:
            return error
        return response


class AsyncConnection:
    """Lets others work until the answer comes."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        retry: RetryPolicy,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        self._http, self._retry, self._sleep = http, retry, sleep

    async def ask(self, call: Call[T]) -> T:
        """The answer, after as many tries as the retry policy allows."""
        return read(call, await self._answer(call, stream=False))

    async def rows(self, call: Call[None]) -> AsyncIterator[dict[str, Any]]:
        """An answer that comes line by line."""
        response, lines = await self._answer(call, stream=True), Lines()
        try:
            async for received in response.aiter_bytes():
                for row in lines.rows(received):
                    yield row
            for row in lines.rows(b"\n"):
                yield row
        except (httpx.RequestError, ValueError) as error:
            raise interrupted(call, error) from None
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Let go of it."""
        await self._http.aclose()

    async def _answer(self, call: Call[Any], *, stream: bool) -> httpx.Response:
        for tries in count(1):
            outcome = await self._try(call, stream=stream)
            wait = self._retry.wait(outcome, tries)
            if wait is None:
                break
            await self._sleep(wait)
        return settle(call, outcome, tries)

    async def _try(self, call: Call[Any], *, stream: bool) -> Attempt:
        try:
            response = await self._http.send(request_of(self._http, call), stream=stream)
            if stream and not response.is_success:
                await response.aread()
        except httpx.RequestError as error:
            return error
        return response


def request_of(http: httpx.Client | httpx.AsyncClient, call: Call[Any]) -> httpx.Request:
    """Return a new request for a call, one per try.

    >>> request_of(httpx.Client(base_url="http://host/api"), Call("GET", "/v1/studies", len)).url
    URL('http://host/api/v1/studies')
    """
    return http.build_request(call.method, call.path, params=call.params, content=call.content)
