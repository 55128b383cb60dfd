"""The saved form of values, which holds all that they do: to compare and to damage them."""

from __future__ import annotations

import copy
import json
from typing import Any

from understudy.learners import Learner
from understudy.snapshots import as_data, fields_as_data, to_json

__all__ = ["damaged", "saved_fields", "saved_form", "saved_text", "snapshot_text"]


def saved_form(value: Any) -> Any:
    """A value marked `@saved`, or an array, as it is in files: what JSON can hold."""
    return as_data(value)


def saved_text(value: Any) -> str:
    """The saved form as text: JSON keeps every bit of a float."""
    return json.dumps(as_data(value))


def snapshot_text(learner: Learner[Any], state: Any) -> str:
    """The text of the file that `us.Understudy(learner, state).save` writes."""
    return to_json(learner, state)


def saved_fields(value: Any) -> Any:
    """The fields of a record as policy.json holds them."""
    return fields_as_data(value)


def damaged(value: Any, changes: dict[str, Any]) -> str:
    """The text of a certificate's file, with other values at some paths, such as 'guardrails.0'."""
    data = copy.deepcopy(as_data(value))
    for path, changed in changes.items():
        *parents, last = path.split(".")
        place = data
        for name in parents:
            place = place[int(name) if isinstance(place, list) else name]
        place[int(last) if isinstance(place, list) else last] = changed
    return json.dumps({"format": "understudy", "version": 2, "certificate": data})
