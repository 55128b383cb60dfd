"""Events, requests, the rule for retries and the reading of responses; nothing here does any I/O.

`Client` and `AsyncClient` share all of it, so they send, retry and fail alike. A request may be
sent again at any time: an event gets its id before the first try, and the service counts an id
once.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import mktime_tz, parsedate_tz
from itertools import islice
from typing import Any, Generic, Literal, NamedTuple, SupportsFloat, TypeVar, cast
from urllib.parse import quote

import httpx
import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError
from tenacity import RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential

from understudy.constraints import POSITIVE, integer
from understudy.errors import InvalidArgument, InvalidEvent, Refused, ServiceUnavailable
from understudy.live import models
from understudy.live.models import Action, BatchTaken, Taken

T = TypeVar("T")
R = TypeVar("R")
Context = Mapping[str, Any]
Production = Mapping[Any, float]

URL = "http://127.0.0.1:8642"  # of `understudy serve` without options
RETRIES = integer(0, "pass how often to try again, a whole number of at least 0")
NOT_NOW = {429, 502, 503, 504}  # the service took nothing, and may take it later
BACKOFF = wait_exponential(multiplier=0.25, max=10.0)  # seconds: five waits outlast a restart
LONGEST_RETRY_AFTER = 120.0  # seconds: a longer wait is for the caller to decide

FIELDS = ", ".join(models.Event.model_fields)
REMEDIES = {
    "id": f"pass a text of 1 to {models.LONGEST_ID} characters, such as the one `decide` returned",
    "action": "pass the action that was taken, a text or a whole number",
    "propensity": "pass the probability with which this action was taken, above 0 and at most 1",
    "propensity_vector": "pass a dict of the propensities of all actions, such as {'small': 0.9}",
    "unit": "pass a text or a whole number, such as the id of a user",
    "context": "pass a dict of texts, finite numbers, True, False or None",
    "reward": "pass a finite number such as 1.0, within the study's reward range",
    "production": "pass a dict of probabilities by action, such as {'small': 0.9, 'large': 0.1}",
}
REASONS = {  # where pydantic's words do not help
    "extra_forbidden": "events have no such field",
    "greater_than_equal": "it must be at least {ge:g}",
    "less_than_equal": "it must be at most {le:g}",
}
MAPPINGS = ("context", "propensity_vector")  # fields that hold fields
TOKEN_REMEDIES = {
    401: "pass Client(token=...), made by `understudy token add NAME --scope write`",
    403: "pass Client(token=...) with the scope that this needs",
}

read_object = TypeAdapter(dict[str, Any]).validate_json


class OutgoingEvent(NamedTuple):
    """A valid event as JSON; `opens` says whether it states a decision."""

    id: str
    opens: bool
    text: str


def make_event(fields: Mapping[str, Any], *required: str) -> OutgoingEvent:
    """Validate an event, as the service will; a field that is None is left out.

    A decision without an id gets one.

    >>> make_event({"id": "a1", "action": "mug", "propensity": np.float32(0.5), "reward": None})
    OutgoingEvent(id='a1', opens=True, text='{"id":"a1","action":"mug","propensity":0.5}')
    """
    if not isinstance(fields, Mapping):
        raise InvalidEvent("event", fields, "it is no mapping", f"pass a dict of {FIELDS}")
    stated = {name: value for name, value in fields.items() if value is not None}
    for name in required:
        if name not in stated:
            raise InvalidEvent(name, None, "it is missing", REMEDIES[name])
    opens = "action" in stated
    if "id" not in stated:
        if not opens:
            raise InvalidEvent("id", None, "a reward needs that of its decision", REMEDIES["id"])
        stated["id"] = str(uuid.uuid4())
    return OutgoingEvent(stated["id"], opens, validated_json(models.Event, "event", stated))


class EventMethods(ABC, Generic[T, R]):
    """Methods that make events; a subclass sends them at once or queues them."""

    @abstractmethod
    def _take(self, event: OutgoingEvent) -> T:
        """Send or queue an event."""

    @abstractmethod
    def _take_decision(self, event: OutgoingEvent) -> R:
        """Send or queue a decision, and return its id."""

    def observe(
        self,
        action: Action,
        reward: float,
        *,
        propensity: float | None = None,
        propensity_vector: Production | None = None,
        unit: Action | None = None,
        context: Context | None = None,
        id: str | None = None,  # noqa: A002 - its name in the event
    ) -> T:
        """Send a decision and its reward."""
        made = {"id": id, "action": action, "propensity": propensity, "context": context}
        made |= {"propensity_vector": propensity_vector, "unit": unit}
        return self._take(make_event({**made, "reward": reward}, "action", "reward"))

    def decide(
        self,
        action: Action,
        *,
        propensity: float | None = None,
        propensity_vector: Production | None = None,
        unit: Action | None = None,
        context: Context | None = None,
        id: str | None = None,  # noqa: A002 - its name in the event
    ) -> R:
        """Send a decision whose reward will come later; return the id for `reward`."""
        made = {"id": id, "action": action, "propensity": propensity, "context": context}
        made |= {"propensity_vector": propensity_vector, "unit": unit}
        return self._take_decision(make_event(made, "action"))

    def reward(self, id: str, reward: float) -> T:  # noqa: A002 - its name in the event
        """Send the reward of an earlier decision."""
        return self._take(make_event({"id": id, "reward": reward}, "id", "reward"))


def batches(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, list[OutgoingEvent]]]:
    """Validate events and split them into batches, each with the number of events before it."""
    if isinstance(events, Mapping) or not isinstance(events, Iterable):
        raise InvalidEvent("events", events, "it is no list of events", "pass [{...}, {...}]")
    rest, first = _numbered(events), 0
    while part := list(islice(rest, models.MOST_EVENTS)):
        yield first, part
        first += len(part)


def _numbered(events: Iterable[Mapping[str, Any]]) -> Iterator[OutgoingEvent]:
    """Validate events; an error names the place of its event, as those of the service do."""
    for index, fields in enumerate(events):
        try:
            yield make_event(fields)
        except InvalidEvent as error:
            place = f"events.{index}.{error.argument}".removesuffix(".event")
            raise InvalidEvent(place, error.value, error.reason, error.remedy) from None


def _number(value: object) -> object:
    """Convert a number that `json` cannot write: of NumPy, a `Decimal`, a `Fraction`."""
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        return value.item()
    if isinstance(value, SupportsFloat) and not isinstance(value, np.ndarray):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not a kind of JSON")


# Made once: `json.dumps` would make one for each event, which takes a microsecond.
JSON = json.JSONEncoder(default=_number, separators=(",", ":"), allow_nan=False)
JSON_WITH_NAN = json.JSONEncoder(default=_number, separators=(",", ":"))


def as_json(name: str, value: object, encoder: json.JSONEncoder = JSON) -> str:
    """Write a value as JSON."""
    try:
        return encoder.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(
            name, value, f"JSON cannot hold it ({error})", "pass texts and finite numbers"
        ) from None


def validated_json(model: type[BaseModel], name: str, value: object) -> str:
    """Write a value as JSON that the service will find valid, or say which field is not."""
    text = as_json(name, value, JSON_WITH_NAN)  # the model finds the field that holds a NaN
    try:
        model.model_validate_json(text)
    except ValidationError as error:
        # A field of several types fails once for each: an error inside the right one tells most.
        wrong = min(error.errors(include_url=False), key=lambda one: one["type"].endswith("_type"))
        place, *inner = wrong["loc"] or (name,)
        field = f"{place}.{inner[0]}" if place in MAPPINGS and inner else str(place)
        words = REASONS.get(wrong["type"])
        reason = words.format_map(wrong.get("ctx", {})) if words else wrong["msg"]
        remedy = REMEDIES.get(str(place), f"pass {FIELDS}")
        raise InvalidEvent(field, wrong["input"], reason, remedy) from None
    return text


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request and how the body of its response is read.

    `first` counts the events of earlier batches: an error counts from the first event of all.
    """

    method: Literal["GET", "POST"]
    path: str
    read: Callable[[bytes], T]
    content: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    first: int = 0

    def request(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """Build the request for one try."""
        return http.build_request(self.method, self.path, params=self.params, content=self.content)

    def then(self, convert: Callable[[T], R]) -> Call[R]:
        """Return the same call with a result that is converted."""
        read = self.read
        return replace(cast("Call[Any]", self), read=lambda body: convert(read(body)))

    def result(self, response: httpx.Response) -> T:
        """Read the result from a successful response."""
        try:
            return self.read(response.content)
        except (ValueError, LookupError, TypeError):
            reason = "the server at this URL is not an Understudy service; pass the URL of one"
            raise self._unavailable(reason) from None

    def interruption(self, error: Exception) -> ServiceUnavailable:
        """Make the error of a stream that broke off."""
        return self._unavailable(f"it broke off ({named(error)}); begin it again")

    def failure(self, error: httpx.HTTPError, tries: int) -> Refused | ServiceUnavailable:
        """Make the error of the call from that of its last try."""
        number = "one try" if tries == 1 else f"{tries} tries"
        if not isinstance(error, httpx.HTTPStatusError):
            return self._unavailable(
                f"no answer in {number} ({named(error)}); start it with `understudy serve`, or "
                "pass the url of one that runs"
            )
        response = error.response
        if response.is_redirect:
            place = response.headers.get("location")
            return self._unavailable(f"sent elsewhere, to {place}; pass the url of the service")
        refused = _refused(response, self.first)
        if response.status_code not in NOT_NOW:
            return refused
        return self._unavailable(
            f"not now, after {number} ({refused}); try again later, with the same ids"
        )

    def _unavailable(self, reason: str) -> ServiceUnavailable:
        return ServiceUnavailable(f"{self.method} {self.path}: {reason}")


def named(error: Exception) -> str:
    """Write an error with the name of its class."""
    return f"{type(error).__name__}: {error}"


def _refused(response: httpx.Response, first: int) -> Refused:
    """Read the reason that the service gives, or say that it gives none."""
    try:
        said = models.Refusal.model_validate_json(response.content)
    except ValidationError:
        error = response.reason_phrase.lower()
        said = models.Refusal(error=error, message="it does not say why")
    remedy = TOKEN_REMEDIES.get(response.status_code)
    message = said.message if remedy is None else f"{said.message}; {remedy}"
    fields = tuple((_shifted(wrong.field, first), wrong.message) for wrong in said.fields)
    return Refused(response.status_code, said.error, message, fields)


def _shifted(name: str, first: int) -> str:
    """Count the event that a field is in from the first of all batches."""
    return re.sub(r"^events\.(\d+)", lambda found: f"events.{int(found[1]) + first}", name)


def path(study: str, *parts: str) -> str:
    """Return the path of a study, or of a part of it."""
    if not isinstance(study, str) or study in {"", ".", ".."}:
        raise InvalidArgument("study", study, "it is not the name of a study", "pass its name")
    return "/".join(["/v1/studies", quote(study, safe=""), *parts])


def draw_body(context: Context | None, production: Production | None = None) -> str:
    """Write the body of a draw."""
    return validated_json(models.Draw, "context", _draw(context, production))


def draw_params(context: Context | None, production: Production | None) -> dict[str, str]:
    """Write the parameters of a request for the policy: each is JSON."""
    draw_body(context, production)  # raises if one of them is not valid
    return {name: as_json(name, value) for name, value in _draw(context, production).items()}


def _draw(context: Context | None, production: Production | None) -> dict[str, Any]:
    given = {"context": context, "production": production}
    return {name: value for name, value in given.items() if value is not None}


def send_event(study: str, event: OutgoingEvent) -> Call[Taken]:
    """Send one event."""
    return Call("POST", path(study, "events"), Taken.model_validate_json, event.text)


def send_batch(study: str, events: Sequence[OutgoingEvent], first: int = 0) -> Call[BatchTaken]:
    """Send a batch of events; their places in the response count from the first of all batches."""

    def read(body: bytes) -> BatchTaken:
        taken = BatchTaken.model_validate_json(body)
        if taken.accepted + taken.known + len(taken.refused) != len(events):
            raise ValueError("the response leaves events out")
        moved = (one.model_copy(update={"index": first + one.index}) for one in taken.refused)
        return taken.model_copy(update={"refused": tuple(moved)})

    content = f'{{"events":[{",".join(event.text for event in events)}]}}'
    return Call("POST", path(study, "batches"), read, content, first=first)


def complete_rows(received: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """Read the JSON objects of a stream up to its last line feed, and return the rest.

    Nothing else ends a line: texts may hold what Unicode calls the end of one.
    """
    *lines, rest = received.split(b"\n")
    return [json.loads(line) for line in lines if line], rest


def http_settings(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    """Check the address and the token, and return the arguments of an httpx client."""
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        found = httpx.URL("")
    if found.scheme not in {"http", "https"} or not found.host:
        raise InvalidArgument("url", url, "it is no address of a service", f'pass one like "{URL}"')
    headers = {"accept": "application/json", "content-type": "application/json"}
    if token is not None:
        if not (
            isinstance(token, str) and token.isascii() and token.isprintable() and token.strip()
        ):
            raise InvalidArgument("token", "…", "it is no token", "pass it as it was shown")
        headers["authorization"] = f"Bearer {token}"
    return {"base_url": found, "headers": headers, "timeout": POSITIVE("timeout", timeout)}


def retry_settings(retries: int, random: Callable[[], float], sleep: Any) -> dict[str, Any]:
    """Return the arguments of tenacity's `Retrying` or `AsyncRetrying`.

    `random`, in [0, 1), spreads the tries of many clients.
    """

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        return _retry_after(error) + BACKOFF(state) * (1.0 + random()) / 2.0

    return {
        "stop": stop_after_attempt(RETRIES("retries", retries) + 1),
        "wait": wait,
        "retry": retry_if_exception(_may_succeed_later),
        "sleep": sleep,
        "reraise": True,
    }


def _may_succeed_later(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        not_now = error.response.status_code in NOT_NOW
        return not_now and _retry_after(error) <= LONGEST_RETRY_AFTER
    return isinstance(error, httpx.RequestError)


def _retry_after(error: BaseException | None) -> float:
    """Seconds for which a response asks to wait: they come as a number, or as a date."""
    if not isinstance(error, httpx.HTTPStatusError):
        return 0.0
    said = error.response.headers.get("retry-after", "")
    if said.isascii() and said.isdigit():
        return float(said)
    try:
        until = parsedate_tz(said)
        return max(0.0, mktime_tz(until) - time.time()) if until else 0.0
    except (ValueError, OverflowError):  # such as a year that no calendar has
        return 0.0
