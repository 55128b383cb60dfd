"""Events, validated before they are sent.

An event gets its id before the first try, and the service is idempotent: it counts an event once,
however often it is sent.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy.constraints import SMALLEST_PROBABILITY, number
from understudy.errors import InvalidEvent

if TYPE_CHECKING:
    from understudy.logs.schema import Label

Context = Mapping[str, Any]

LARGEST_BATCH = 1_000  # events: what the service accepts
LONGEST_ID = 128  # characters: what the service accepts
REWARD = number(-math.inf, math.inf, "pass the reward, within the study's reward range")
NUMBERS = {
    "reward": REWARD,
    "propensity": number(
        SMALLEST_PROBABILITY,
        1.0,
        "pass the probability with which this action was played, at the moment of the decision",
    ),
}
FIELDS = ("id", "action", "propensity", "context", "reward")


@dataclass(frozen=True)
class OutgoingEvent:
    """An event that is ready to be sent, as JSON; `opens` is whether it states a decision."""

    id: str
    opens: bool
    text: str


def make_event(fields: Mapping[str, Any]) -> OutgoingEvent:
    """What is stated about one decision; what is None is not known. Without an id it gets one.

    >>> make_event({"id": "a1", "action": "mug", "propensity": 0.5, "reward": None}).text
    '{"id": "a1", "action": "mug", "propensity": 0.5}'
    >>> make_event({"id": "a1", "reward": 1}).opens
    False
    >>> make_event({"action": "mug", "propensity": 1.5})
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: propensity = 1.5: it must be at most 1; pass the ...
    """
    if not isinstance(fields, Mapping):
        raise InvalidEvent(
            "event", fields, "it is no mapping", f"pass a dict of {', '.join(FIELDS)}"
        )
    stated = {name: value for name, value in fields.items() if value is not None}
    for name, value in stated.items():
        if name not in FIELDS:
            raise InvalidEvent(name, value, "events have no such field", f"use {', '.join(FIELDS)}")
        if name in NUMBERS:
            stated[name] = NUMBERS[name](name, value)
    opens = "action" in stated
    if not opens and "id" not in stated:
        raise InvalidEvent(
            "id", None, "a reward needs the id of its decision", "pass what `decide` gave"
        )
    stated = {"id": str(uuid.uuid4()), **stated}
    if not isinstance(stated["id"], str) or not 1 <= len(stated["id"]) <= LONGEST_ID:
        raise InvalidEvent(
            "id", stated["id"], f"it must be text of 1 to {LONGEST_ID} characters", "shorten it"
        )
    return OutgoingEvent(stated["id"], opens, as_json("event", stated))


def decision_event(
    action: Label, propensity: float | None, context: Context | None, key: str | None
) -> OutgoingEvent:
    """A decision whose reward is not known yet.

    >>> decision_event("mug", 0.5, None, "a1").text
    '{"id": "a1", "action": "mug", "propensity": 0.5}'
    """
    return make_event({"id": key, "action": action, "propensity": propensity, "context": context})


def observation_event(
    action: Label,
    reward: float,
    propensity: float | None,
    context: Context | None,
    key: str | None,
) -> OutgoingEvent:
    """A decision with its reward; None is not taken for "not yet".

    >>> observation_event("mug", None, 0.5, None, "a1")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: reward = None: it must be a number; pass the reward, ...
    """
    known = REWARD("reward", reward)
    return make_event(
        {"id": key, "action": action, "propensity": propensity, "context": context, "reward": known}
    )


def reward_event(key: str, reward: float) -> OutgoingEvent:
    """The reward of an earlier decision.

    >>> reward_event("a1", 1.0).text
    '{"id": "a1", "reward": 1.0}'
    """
    return make_event({"id": key, "reward": REWARD("reward", reward)})


def batches(events: Iterable[OutgoingEvent]) -> Iterator[tuple[int, Sequence[OutgoingEvent]]]:
    """Events cut into batches that a service takes, each with how many came before it.

    >>> [(first, len(part)) for first, part in batches([make_event({"action": "mug"})] * 1_500)]
    [(0, 1000), (1000, 500)]
    """
    rest, first = iter(events), 0
    while part := list(islice(rest, LARGEST_BATCH)):
        yield first, part
        first += len(part)


def as_json(name: str, value: object) -> str:
    """The value as JSON, NumPy's numbers as numbers.

    >>> as_json("context", {"age": np.int64(40)})
    '{"age": 40}'
    >>> as_json("context", {"age": math.nan})
    Traceback (most recent call last):
    understudy.errors.InvalidEvent: context = {'age': nan}: JSON cannot hold it (...); pass ...
    """
    try:
        return json.dumps(value, allow_nan=False, default=_item)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(
            name, value, f"JSON cannot hold it ({error})", "pass texts and finite numbers"
        ) from None


def _item(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a kind of JSON")
