"""How an answer is understood: what was asked for, or the error that says what to do."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import httpx

from understudy.errors import Refused, ServiceUnavailable
from understudy.live.client.calls import Call
from understudy.live.client.patience import AGAIN, Outcome

__all__ = ["Lines", "interrupted", "read", "settle"]

T = TypeVar("T")

START = "start it with `understudy serve`, or pass the url of one that runs"
REMEDIES = {
    401: "pass Client(token=...), made by `understudy token add NAME --scope write`",
    403: "pass Client(token=...) with the scope that this needs",
}


def settle(call: Call[Any], outcome: Outcome, tries: int) -> httpx.Response:
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
    """What was asked for.

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
