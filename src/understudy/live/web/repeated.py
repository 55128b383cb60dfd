"""Names that stand twice in one JSON object: which of their values is meant, nobody can say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from understudy.live.spec import Event, StudySpec

__all__ = ["names_in", "names_in_spec", "repeated_names"]

WRONG = "it is there twice; send it once"


def names_in(event: Event) -> int:
    """How many names were read of an event and its context.

    >>> names_in(Event(id="a", action="x", context={"age": 40.0}))
    4
    """
    context = event.context
    return len(event.model_fields_set) + (len(context) if context else 0)


def names_in_spec(spec: StudySpec) -> int:
    """How many names were read of a study and the objects in it.

    >>> names_in_spec(StudySpec.of({"name": "a", "actions": [1, 2], "behavior": {"1": 1.0}}))
    4
    """
    inner = (spec.context, spec.behavior)
    return len(spec.model_fields_set) + sum(len(one) for one in inner if isinstance(one, dict))


def repeated_names(body: bytes, names: int) -> dict[str, str]:
    """What is wrong with JSON of which so many names were read, by name; empty if nothing is.

    A colon follows every name: if there are no more colons than names, none stands twice, and the
    body need not be read again.

    >>> repeated_names(b'{"id": "a:1", "reward": 0.5}', 2)
    {}
    >>> repeated_names(b'{"id": "a:1", "reward": 0.5, "reward": 1.0}', 2)
    {'reward': 'it is there twice; send it once'}
    """
    if body.count(b":") <= names:
        return {}
    found: dict[str, str] = {}

    def look(pairs: Sequence[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen:
                    found[name] = WRONG
                seen.add(name)

    json.loads(body, object_pairs_hook=look)
    return found
