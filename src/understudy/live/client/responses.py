"""Responses of the service: whether to retry, and how they are read, as results or as errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx

from understudy.errors import Refused, ServiceUnavailable
from understudy.live.client.calls import Call

T = TypeVar("T")
Attempt = httpx.Response | httpx.RequestError

AGAIN = {429, 502, 503, 504}  # nothing was taken, and later it may be
FIRST_WAIT = 0.25  # doubled from try to try; five waits outlast a restart
LONGEST_WAIT = 10.0
LONGEST_OBEYED = 120.0  # who asks for more than that is not waited for

START = "start it with `understudy serve`, or pass the url of one that runs"
REMEDIES = {
    401: "pass Client(token=...), made by `understudy token add NAME --scope write`",
    403: "pass Client(token=...) with the scope that this needs",
}


@dataclass(frozen=True)
class RetryPolicy:
    """How often to try again; `random`, in [0, 1), keeps many clients from marching in step."""

    retries: int
    random: Callable[[], float]

    def wait(self, outcome: Attempt, tries: int) -> float | None:
        """Seconds until the next try, or None if there is none: it worked, or will not work.

        >>> RetryPolicy(retries=5, random=lambda: 1.0).wait(httpx.ConnectError("no"), tries=3)
        1.0
        >>> RetryPolicy(retries=5, random=lambda: 1.0).wait(httpx.Response(404), tries=1)
        """
        if tries > self.retries:
            return None
        retry_after = 0.0
        if isinstance(outcome, httpx.Response):
            if outcome.status_code not in AGAIN:
                return None
            retry_after = _retry_after(outcome)
            if retry_after > LONGEST_OBEYED:
                return None
        backoff: float = min(FIRST_WAIT * 2.0 ** (tries - 1), LONGEST_WAIT)
        return retry_after + backoff * (1.0 + self.random()) / 2.0


def _retry_after(response: httpx.Response) -> float:
    """Seconds that a service asks to be left alone for: they come as a number, or as a date."""
    said = response.headers.get("retry-after", "")
    if said.isascii() and said.isdigit():
        return float(said)
    try:
        until = parsedate_to_datetime(said)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def settle(call: Call[Any], outcome: Attempt, tries: int) -> httpx.Response:
    """The last outcome, if it is an answer to the question.

    >>> settle(Call("GET", "/v1/studies", read=len), httpx.ConnectError("refused"), tries=6)
    Traceback (most recent call last):
    understudy.errors.ServiceUnavailable: GET /v1/studies: no answer in 6 tries ...
    """
    if not isinstance(outcome, httpx.Response):
        reason = f"no answer in {_tries(tries)} ({type(outcome).__name__}: {outcome}); {START}"
    elif outcome.is_success:
        return outcome
    elif outcome.status_code in AGAIN:
        refused = _refusal(outcome, first=0)
        reason = f"not now, after {_tries(tries)} ({refused}); try again later, with the same ids"
    elif outcome.is_redirect:
        reason = (
            f"sent elsewhere, to {outcome.headers.get('location')}; pass the url of the service"
        )
    else:
        raise _refusal(outcome, call.first)
    raise ServiceUnavailable(f"{call.method} {call.path}: {reason}")


def read(call: Call[T], response: httpx.Response) -> T:
    """Return the result of a call.

    >>> read(Call("GET", "/v1/studies", read=lambda said: said.json()), httpx.Response(200))
    Traceback (most recent call last):
    understudy.errors.ServiceUnavailable: GET /v1/studies: what answers is no Understudy ...
    """
    try:
        return call.read(response)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ServiceUnavailable(
            f"{call.method} {call.path}: what answers is no Understudy service; pass the url of one"
        ) from None


class Lines:
    """A stream of bytes, cut into JSON objects at its line feeds.

    And at nothing else: texts within them may hold what Unicode calls the end of a line.
    """

    def __init__(self) -> None:
        self._rest = b""

    def rows(self, received: bytes) -> list[dict[str, Any]]:
        """The objects that are whole by now."""
        *whole, self._rest = (self._rest + received).split(b"\n")
        return [json.loads(line) for line in whole if line]


def interrupted(call: Call[Any], error: Exception) -> ServiceUnavailable:
    """The error of a stream that broke off.

    >>> interrupted(Call("GET", "/v1/studies/mugs/log", read=len), httpx.ReadError("reset"))
    ServiceUnavailable('GET /v1/studies/mugs/log: it broke off (ReadError: reset); begin it again')
    """
    reason = f"it broke off ({type(error).__name__}: {error}); begin it again"
    return ServiceUnavailable(f"{call.method} {call.path}: {reason}")


def _tries(tries: int) -> str:
    return "one try" if tries == 1 else f"{tries} tries"


def _refusal(response: httpx.Response, first: int) -> Refused:
    """What the service says about it, or what can be said if something else answered."""
    status = response.status_code
    try:
        said = response.json()
        error, message = str(said["error"]), str(said["message"])
        found = [(str(one["field"]), str(one["message"])) for one in said.get("fields") or ()]
    except (ValueError, LookupError, TypeError, AttributeError):
        error, message, found = response.reason_phrase.lower(), "it does not say why", []
    if status in REMEDIES:
        message = f"{message}; {REMEDIES[status]}"
    return Refused(
        status, error, message, tuple((_shifted(name, first), why) for name, why in found)
    )


def _shifted(field: str, first: int) -> str:
    """The name of a field of an event, counted from the first of all batches."""
    match field.split("."):
        case ["events", index, *rest] if index.isdigit():
            return ".".join(["events", str(int(index) + first), *rest])
    return field
