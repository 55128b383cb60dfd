"""A client of a live service: whatever it sends it may send again, for every event has an id."""

from __future__ import annotations

import random as randomness
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

import httpx

from understudy.live.client import calls
from understudy.live.client.background import Background, Outbox
from understudy.live.client.calls import BatchTaken, Drawn, StudyOptions, Taken
from understudy.live.client.events import (
    Context,
    batches,
    decision_event,
    make_event,
    observation_event,
    reward_event,
)
from understudy.live.client.transport import Connection, retry_policy, settings_of

if TYPE_CHECKING:
    from understudy.logs.schema import Label

URL = "http://127.0.0.1:8642"


class Client:
    """Talks to a live service. Use it in a `with` block, from as many threads as you like.

    Lost connections, time-outs and the answers 429, 502, 503 and 504 are tried again, after a while
    that doubles, and not before the service asked to (Retry-After). That is safe: events get their
    id before the first try. All other refusals are raised at once, as `errors.Refused`; a service
    that does not answer in the end is `errors.ServiceUnavailable`.

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
    Drawn(action='mug', probability=0.75, learned=9)
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
        retry, settings = retry_policy(retries, random), settings_of(url, token, timeout)
        http = httpx.Client(**settings, transport=transport)
        self._connection = Connection(http, retry, sleep)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._connection.close()

    def open(self, name: str) -> StudyClient:
        """A study by its name; this sends no request."""
        return StudyClient(name, self._connection)

    def create_study(
        self, name: str, actions: Sequence[Label], **options: Unpack[StudyOptions]
    ) -> StudyClient:
        """A new study; `StudyOptions` says what it can be created with."""
        self._connection.ask(calls.create_study(name, actions, options))
        return self.open(name)

    def load_snapshot(
        self,
        name: str,
        policy_json: str | Mapping[str, Any],
        *,
        reward_wait: float | None = None,
        default_reward: float | None = None,
    ) -> StudyClient:
        """A new study that goes on from a policy.json, of a service or of `understudy learn`."""
        self._connection.ask(
            calls.load_snapshot(
                name, policy_json, reward_wait=reward_wait, default_reward=default_reward
            )
        )
        return self.open(name)

    def studies(self, *, archived: bool = False) -> list[dict[str, Any]]:
        """All studies; `archived` adds those that take no more events."""
        return self._connection.ask(calls.studies(archived=archived))

    def study(self, name: str) -> dict[str, Any]:
        """What a study is, and how far it has come."""
        return self._connection.ask(calls.about(name))

    def archive(self, name: str) -> dict[str, Any]:
        """Let a study take no more events."""
        return self._connection.ask(calls.archive(name))

    def background(self, name: str, *, most: int = 10_000) -> Background:
        """A thread that sends events of a study in the background; it holds at most `most`."""
        return Background(
            Outbox(lambda events: self._connection.ask(calls.batch(name, events)), most)
        )


class StudyClient:
    """A study of a live service; `Client.open` gives one."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name, self._connection = name, connection

    def observe(
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
        return self._connection.ask(calls.send(self.name, event))

    def decide(
        self,
        action: Label,
        *,
        propensity: float | None = None,
        context: Context | None = None,
        id: str | None = None,  # noqa: A002 - its name in the event
    ) -> str:
        """A decision whose reward will come later; gives the id that the reward must name."""
        event = decision_event(action, propensity, context, id)
        return self._connection.ask(calls.send(self.name, event)).id

    def reward(self, id: str, reward: float) -> Taken:  # noqa: A002 - its name in the event
        """The reward of an earlier decision."""
        return self._connection.ask(calls.send(self.name, reward_event(id, reward)))

    def send(self, events: Iterable[Mapping[str, Any]]) -> BatchTaken:
        """Many events, each a mapping with `action`, `propensity`, `context`, `reward`, `id`.

        They are sent by the thousand. Give them ids of your own if you may want to send them again.
        """
        taken = BatchTaken()
        for first, batch in batches(map(make_event, events)):
            taken += self._connection.ask(calls.batch(self.name, batch, first))
        return taken

    def policy(self, context: Context | None = None) -> dict[Label, float]:
        """What the understudy would do now."""
        return self._connection.ask(calls.policy(self.name, context))

    def draw(self, context: Context | None = None) -> Drawn:
        """An action drawn from that policy."""
        return self._connection.ask(calls.draw(self.name, context))

    def coverage(self) -> dict[str, Any]:
        """What the decisions so far can say, action by action."""
        return self._connection.ask(calls.part(self.name, "coverage"))

    def certificate(self) -> dict[str, Any]:
        """What is certain about the understudy, with the curve of it."""
        return self._connection.ask(calls.part(self.name, "certificate"))

    def snapshot(self) -> str:
        """The policy.json of this moment, as text."""
        return self._connection.ask(calls.snapshot(self.name))

    def log(self) -> Iterator[dict[str, Any]]:
        """What was learned from, decision by decision, in order."""
        return self._connection.rows(calls.log(self.name))
