"""The requests of the client, each with how its response is read; nothing here does any I/O.

So `Client` and `AsyncClient` send the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote

import httpx

from understudy.errors import InvalidArgument
from understudy.live.client.events import Context, OutgoingEvent, as_json

if TYPE_CHECKING:
    from understudy.logs.schema import Label

T = TypeVar("T")


class StudyOptions(TypedDict, total=False):
    """What a study may be created with, beside its name and actions; all of it has a default.

    Args:
        learner: a learner by name, as for `understudy learn --learner`.
        behavior: "logged" (each decision carries its propensity, the default), "estimated", or
            production's fixed probabilities by action.
        horizon: for how many decisions the learner is tuned; without one it needs none.
        reward_range: the least and the largest reward; (0, 1) if left out.
        reward_wait: for how many seconds a decision waits for its reward; an hour if left out.
        default_reward: the reward of a decision whose wait is over; the lowest if left out.
        confidence: that of the certificate; 0.95 if left out.
        context: the kind of each part of a context, "number" or "text", by name.
        warmup: how many decisions at first only teach what contexts look like.
    """

    learner: str | None
    behavior: str | Mapping[str, float] | Mapping[int, float]
    horizon: int | None
    reward_range: tuple[float, float]
    reward_wait: float | None
    default_reward: float | None
    confidence: float
    context: Mapping[str, Literal["number", "text"]] | None
    warmup: int | None


@dataclass(frozen=True)
class Drawn:
    """An action that was drawn from the policy after `learned` decisions, with its probability."""

    action: Label
    probability: float
    learned: int


@dataclass(frozen=True)
class Taken:
    """An event that is on disk: "accepted", or "known" if it was there before."""

    id: str
    status: Literal["accepted", "known"]


@dataclass(frozen=True)
class RefusedEvent:
    """An event that was not taken, by its place among all that were sent, and why."""

    index: int
    id: str
    error: str
    message: str


@dataclass(frozen=True)
class BatchTaken:
    """How many events were accepted, how many known before, and which were refused.

    >>> BatchTaken(accepted=3) + BatchTaken(accepted=1, known=1)
    BatchTaken(accepted=4, known=1, refused=())
    """

    accepted: int = 0
    known: int = 0
    refused: tuple[RefusedEvent, ...] = ()

    def __add__(self, other: BatchTaken) -> BatchTaken:
        return BatchTaken(
            self.accepted + other.accepted,
            self.known + other.known,
            self.refused + other.refused,
        )


@dataclass(frozen=True)
class Call(Generic[T]):
    """A question; `first` is how many events were sent before those of this batch."""

    method: Literal["GET", "POST"]
    path: str
    read: Callable[[httpx.Response], T]
    content: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    first: int = 0


def create_study(
    name: str, actions: Sequence[Label], options: StudyOptions
) -> Call[dict[str, Any]]:
    """A new study.

    >>> create_study("mugs", ["red", "blue"], {"reward_wait": 60.0}).content
    '{"name": "mugs", "actions": ["red", "blue"], "reward_wait": 60.0}'
    """
    if isinstance(actions, str):
        raise InvalidArgument("actions", actions, "it is one text", 'pass a list: ["red", "blue"]')
    given = {option: value for option, value in options.items() if value is not None}
    content = {"name": name, "actions": list(actions), **given}
    return Call("POST", "/v1/studies", _object, as_json("study", content))


def load_snapshot(
    name: str,
    policy_json: str | Mapping[str, Any],
    *,
    reward_wait: float | None,
    default_reward: float | None,
) -> Call[dict[str, Any]]:
    """A study that goes on from a policy.json; text is sent as it is, to the last bit.

    >>> load_snapshot("mugs", "{}", reward_wait=60.0, default_reward=None).params
    {'name': 'mugs', 'reward_wait': '60.0'}
    """
    options = {"reward_wait": reward_wait, "default_reward": default_reward}
    params = {option: str(value) for option, value in options.items() if value is not None}
    text = policy_json if isinstance(policy_json, str) else as_json("policy_json", policy_json)
    return Call("POST", "/v1/snapshots", _object, text, {"name": name, **params})


def studies(*, archived: bool) -> Call[list[dict[str, Any]]]:
    """All studies.

    >>> studies(archived=True).params
    {'archived': 'true'}
    """
    params = {"archived": "true"} if archived else {}
    return Call("GET", "/v1/studies", lambda said: list(said.json()["studies"]), params=params)


def about(study: str) -> Call[dict[str, Any]]:
    """What a study is, and how far it has come.

    >>> about("mugs & cups").path
    '/v1/studies/mugs%20%26%20cups'
    """
    return Call("GET", _path(study), _object)


def archive(study: str) -> Call[dict[str, Any]]:
    """Take no more events.

    >>> archive("mugs").path
    '/v1/studies/mugs/archive'
    """
    return Call("POST", _path(study, "archive"), _object, "{}")


def send(study: str, event: OutgoingEvent) -> Call[Taken]:
    """One event.

    >>> from understudy.live.client.events import make_event
    >>> send("mugs", make_event({"id": "a1", "reward": 0.5})).content
    '{"id": "a1", "reward": 0.5}'
    """
    return Call("POST", _path(study, "events"), _taken, event.text)


def batch(study: str, events: Sequence[OutgoingEvent], first: int = 0) -> Call[BatchTaken]:
    """Many events; what is said about one of them counts from the first of all.

    >>> from understudy.live.client.events import make_event
    >>> batch("mugs", [make_event({"id": "a1", "reward": 0.5})]).content
    '{"events": [{"id": "a1", "reward": 0.5}]}'
    """
    content = f'{{"events": [{", ".join(event.text for event in events)}]}}'

    def read(said: httpx.Response) -> BatchTaken:
        answer = said.json()
        refused = tuple(
            RefusedEvent(first + one["index"], one["id"], one["error"], one["message"])
            for one in answer["refused"]
        )
        return BatchTaken(int(answer["accepted"]), int(answer["known"]), refused)

    return Call("POST", _path(study, "batches"), read, content, first=first)


def policy(study: str, context: Context | None) -> Call[dict[Label, float]]:
    """What the understudy would do now.

    >>> policy("mugs", {"age": 40}).params
    {'context': '{"age": 40}'}
    """
    params = {} if context is None else {"context": as_json("context", context)}
    return Call("GET", _path(study, "policy"), _policy, params=params)


def draw(study: str, context: Context | None) -> Call[Drawn]:
    """An action, drawn from the policy.

    >>> draw("mugs", None).content
    '{}'
    """
    content = {} if context is None else {"context": context}
    return Call("POST", _path(study, "draw"), _drawn, as_json("context", content))


def part(study: str, name: Literal["coverage", "certificate"]) -> Call[dict[str, Any]]:
    """A part of what can be said about a study.

    >>> part("mugs", "coverage").path
    '/v1/studies/mugs/coverage'
    """
    return Call("GET", _path(study, name), _object)


def snapshot(study: str) -> Call[str]:
    """policy.json, as text.

    >>> snapshot("mugs").read(httpx.Response(200, text="{}"))
    '{}'
    """
    return Call("GET", _path(study, "snapshot"), lambda said: said.content.decode())


def log(study: str) -> Call[None]:
    """What was learned from, a decision a line: read as it comes, not at once.

    >>> log("mugs").path
    '/v1/studies/mugs/log'
    """
    return Call("GET", _path(study, "log"), lambda _: None)


def _path(study: str, *parts: str) -> str:
    if not isinstance(study, str) or study in {"", ".", ".."}:
        raise InvalidArgument("study", study, "it is not the name of a study", "pass its name")
    return "/".join(["/v1/studies", quote(study, safe=""), *parts])


def _object(said: httpx.Response) -> dict[str, Any]:
    return dict(said.json())


def _taken(said: httpx.Response) -> Taken:
    answer = said.json()
    return Taken(answer["id"], answer["status"])


def _drawn(said: httpx.Response) -> Drawn:
    answer = said.json()
    return Drawn(answer["action"], float(answer["probability"]), int(answer["learned"]))


def _policy(said: httpx.Response) -> dict[Label, float]:
    return {row["action"]: float(row["probability"]) for row in said.json()["policy"]}
