"""The client of a live service, which waits for each answer."""

from __future__ import annotations

import random as randomness
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

import httpx
from tenacity import Retrying

from understudy.errors import InvalidArgument
from understudy.live.client import calls
from understudy.live.client.background import Background
from understudy.live.client.calls import (
    URL,
    Call,
    Context,
    EventMethods,
    Production,
    path,
    read_object,
)
from understudy.live.models import Action, BatchTaken, Drawn, PolicyNow, StudyOptions, Taken

T = TypeVar("T")


class Client:
    """Talks to a live service. Use it in a `with` block, from as many threads as you like.

    It tries again after lost connections, time-outs and the statuses 429, 502, 503 and 504, at
    intervals that double, and not before the service asks for it (Retry-After). That is safe:
    events get their id before the first try. All other refusals are raised at once, as
    `errors.Refused`; a service that does not answer in the end is `errors.ServiceUnavailable`.

    Args:
        url: of the service.
        token: the one to show, where the service wants one.
        timeout: seconds to wait for an answer.
        retries: how often to try again.
        transport: another way to carry requests, such as `httpx.MockTransport`.
        sleep: how to wait between tries.
        random: numbers in [0, 1) that spread the tries of many clients.

    >>> answer = httpx.Response(200, json={"action": "mug", "probability": 0.75, "learned": 9})
    >>> with Client(transport=httpx.MockTransport(lambda request: answer)) as client:
    ...     client.open("offers").draw()
    Drawn(action='mug', probability=0.75, learned=9, warmup_left=0)
    """

    def __init__(
        self,
        url: str = URL,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 5,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self._retry = calls.retry_settings(retries, random, sleep)
        self._http = httpx.Client(**calls.http_settings(url, token, timeout), transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def open(self, name: str) -> StudyClient:
        """Return the client of an existing study; this sends no request."""
        return StudyClient(name, self)

    def create_study(
        self, name: str, actions: Sequence[Action], **options: Unpack[StudyOptions]
    ) -> StudyClient:
        """Create a study and return its client; `StudyOptions` describes the options."""
        if isinstance(actions, str) or not isinstance(actions, Iterable):
            raise InvalidArgument("actions", actions, "it is no list", 'pass one: ["red", "blue"]')
        given = {option: value for option, value in options.items() if value is not None}
        text = calls.as_json("study", {"name": name, "actions": list(actions), **given})
        call = Call("POST", "/v1/studies", read_object, text)
        return self._ask(call.then(lambda _: self.open(name)))

    def load_snapshot(
        self,
        name: str,
        policy_json: str | Mapping[str, Any],
        *,
        reward_wait: float | None = None,
        default_reward: float | None = None,
        propensity_vectors: bool = False,
    ) -> StudyClient:
        """Create a study that continues a policy.json, of a service or of `understudy learn`.

        With `propensity_vectors` every decision carries the propensities of all actions.
        """
        given = policy_json
        text = given if isinstance(given, str) else calls.as_json("policy_json", given)
        if not text.lstrip().startswith("{"):
            remedy = 'pass the text of the file: Path("policy.json").read_text()'
            raise InvalidArgument("policy_json", policy_json, "it is no JSON object", remedy)
        options = {"name": name, "reward_wait": reward_wait, "default_reward": default_reward}
        params = {option: str(value) for option, value in options.items() if value is not None}
        if propensity_vectors:
            params["propensity_vectors"] = "true"
        call = Call("POST", "/v1/snapshots", read_object, text, params)
        return self._ask(call.then(lambda _: self.open(name)))

    def studies(self, *, archived: bool = False) -> list[dict[str, Any]]:
        """List the studies; `archived` adds the archived ones."""
        params = {"archived": "true"} if archived else {}
        call = Call("GET", "/v1/studies", read_object, params=params)
        return self._ask(call.then(lambda found: list(found["studies"])))

    def study(self, name: str) -> dict[str, Any]:
        """Describe a study: its options, its counts, and how far it has come."""
        return self._ask(Call("GET", path(name), read_object))

    def archive(self, name: str) -> dict[str, Any]:
        """Archive a study: it accepts no new decisions, but rewards of decisions that wait."""
        return self._ask(Call("POST", path(name, "archive"), read_object, "{}"))

    def background(self, name: str, *, most: int = 10_000) -> Background:
        """Start a thread that sends events of a study; `Background` says how many may wait."""
        path(name)  # raises if it is not the name of a study
        return Background(lambda events: self._ask(calls.send_batch(name, events)), most)

    def _ask(self, call: Call[T]) -> T:
        return call.result(self._send(call, stream=False))

    def _rows(self, call: Call[Any]) -> Iterator[dict[str, Any]]:
        """Yield the objects of a response as they come, one per line."""
        response, rest = self._send(call, stream=True), b""
        try:
            for received in response.iter_bytes():
                rows, rest = calls.complete_rows(rest + received)
                yield from rows
            yield from calls.complete_rows(rest + b"\n")[0]
        except (httpx.RequestError, ValueError) as error:
            raise call.interruption(error) from None
        finally:
            response.close()

    def _send(self, call: Call[Any], *, stream: bool) -> httpx.Response:
        """Return a successful response, after as many tries as it takes and `retries` allows."""
        try:
            for attempt in Retrying(**self._retry):
                with attempt:
                    response = self._http.send(call.request(self._http), stream=stream)
                    if not response.is_success:
                        response.read()
                    response.raise_for_status()
        except httpx.HTTPError as error:
            raise call.failure(error, attempt.retry_state.attempt_number) from None
        return response


class StudyClient(EventMethods[Taken, str]):
    """A study of a live service; `Client.open` returns one."""

    def __init__(self, name: str, client: Client) -> None:
        self.name, self._ask, self._rows = name, client._ask, client._rows

    def _take(self, event: calls.OutgoingEvent) -> Taken:
        return self._ask(calls.send_event(self.name, event))

    def _take_decision(self, event: calls.OutgoingEvent) -> str:
        return self._ask(calls.send_event(self.name, event).then(lambda taken: taken.id))

    def send(self, events: Iterable[Mapping[str, Any]]) -> BatchTaken:
        """Send many events, each a mapping of the fields that `observe` takes as arguments.

        They are sent by the thousand. An invalid event raises an error when its thousand is due:
        give events ids of your own if you may want to send them again.
        """
        taken = BatchTaken()
        for first, batch in calls.batches(events):
            taken += self._ask(calls.send_batch(self.name, batch, first))
        return taken

    def policy(
        self, context: Context | None = None, *, production: Production | None = None
    ) -> dict[Action, float]:
        """Read the probabilities with which the understudy would act now, by action.

        `production` has the probabilities of production there: needed where the policy does as
        production does with a share that matters.
        """
        params = calls.draw_params(context, production)
        call = Call("GET", path(self.name, "policy"), PolicyNow.model_validate_json, params=params)
        return self._ask(call.then(lambda now: {row.action: row.probability for row in now.policy}))

    def draw(
        self, context: Context | None = None, *, production: Production | None = None
    ) -> Drawn:
        """Draw an action from that policy."""
        read, body = Drawn.model_validate_json, calls.draw_body(context, production)
        return self._ask(Call("POST", path(self.name, "draw"), read, body))

    def coverage(self) -> dict[str, Any]:
        """Read how well the decisions so far cover each action, and candidate policies."""
        return self._ask(Call("GET", path(self.name, "coverage"), read_object))

    def certificate(self) -> dict[str, Any]:
        """Read the verdict on the understudy, the bounds behind it, and their curve."""
        return self._ask(Call("GET", path(self.name, "certificate"), read_object))

    def snapshot(self) -> str:
        """Read the policy.json of this moment, as text."""
        return self._ask(Call("GET", path(self.name, "snapshot"), bytes.decode))

    def log(self) -> Iterator[dict[str, Any]]:
        """Iterate over the decisions that the study learned from, in order."""
        return self._rows(Call("GET", path(self.name, "log"), read_object))
