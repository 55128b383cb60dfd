"""Small files of the user's: lists of actions, and probabilities of actions."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from understudy.constraints import PROBABILITIES, Array, Refused
from understudy.errors import InvalidArgument
from understudy.logs.actions import Actions, Label

__all__ = [
    "arranged",
    "behavior_by_action",
    "checked_probabilities",
    "read_actions",
    "read_probabilities",
]


def read_actions(path: Path) -> Actions:
    """The actions that a file declares: one label a line, or a JSON list.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "actions.txt")
    ...     _ = path.write_text("up\\ndown\\n", encoding="utf-8")
    ...     read_actions(path).labels
    ('down', 'up')
    """
    text = _text("actions", path)
    if text.lstrip().startswith("["):
        labels = _json("actions", path, text)
        if not all(_is_label(label) for label in labels):
            raise _refused("actions", path, "its entries must be texts or whole numbers")
    else:
        labels = [line.strip() for line in text.splitlines() if line.strip()]
    if len({str(label) for label in labels}) < len(labels):
        raise _refused("actions", path, "it names an action twice")
    return Actions.of(labels)


def read_probabilities(argument: str, path: Path) -> dict[Label, float]:
    """Probabilities by action: a JSON object, or a CSV file with columns action and probability.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "behavior.csv")
    ...     _ = path.write_text("action,probability\\nup,0.25\\ndown,0.75\\n", encoding="utf-8")
    ...     read_probabilities("behavior", path)
    {'up': 0.25, 'down': 0.75}
    """
    text = _text(argument, path)
    if text.lstrip().startswith("{"):
        found = _json(argument, path, text)
        pairs = list(found.items())
    else:
        rows = list(csv.DictReader(text.splitlines()))
        if not rows or not {"action", "probability"} <= set(rows[0]):
            raise _refused(argument, path, "it has no columns 'action' and 'probability'")
        pairs = [(row["action"], _number(row["probability"])) for row in rows]
    if len({label for label, _ in pairs}) < len(pairs):
        raise _refused(argument, path, "it names an action twice")
    return checked_probabilities(argument, dict(pairs), str(path))


def checked_probabilities(
    argument: str, probabilities: Mapping[Any, Any], where: str
) -> dict[Label, float]:
    """The same, if they are probabilities that sum to 1.

    >>> checked_probabilities("policy", {"a": 0.5}, "policy")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: policy = 'policy': its probabilities are refused: ...
    """
    try:
        values = PROBABILITIES.parse([_number(value) for value in probabilities.values()])
    except Refused as refusal:
        raise InvalidArgument(
            argument,
            where,
            f"its probabilities are refused: {refusal}",
            "give every action a probability, 1 in all",
        ) from None
    return dict(zip(probabilities, values.tolist(), strict=True))


def arranged(argument: str, probabilities: dict[Label, float], actions: Actions) -> Array:
    """Probabilities in the order of the actions, 0 for those that are not named.

    >>> arranged("policy", {"b": 1.0}, Actions(("a", "b"))).tolist()
    [0.0, 1.0]
    """
    place = {text: i for i, text in enumerate(actions.texts)}
    strange = [label for label in probabilities if str(label) not in place]
    if strange:
        raise InvalidArgument(
            argument,
            strange[0],
            "this action is not among those of the log",
            "declare it in --actions FILE, one label a line, with all the others",
        )
    found = np.zeros(len(actions))
    for label, probability in probabilities.items():
        found[place[str(label)]] = probability
    return found


def behavior_by_action(behavior: Mapping[Any, float], actions: Actions) -> Array:
    """The fixed probabilities of production, in the order of the actions, checked.

    >>> behavior_by_action({"b": 0.25, "a": 0.75}, Actions(("a", "b"))).tolist()
    [0.75, 0.25]
    """
    return arranged("behavior", checked_probabilities("behavior", behavior, "behavior"), actions)


def _text(argument: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _refused(argument, path, f"it cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise _refused(argument, path, "it is not UTF-8 text") from None


def _json(argument: str, path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(argument, path, f"it is not JSON ({str(error)[:80]})") from None


def _is_label(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _number(value: object) -> float:
    """A number, or nan, which no constraint on probabilities lets through."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _refused(argument: str, path: Path, reason: str) -> InvalidArgument:
    remedy = (
        "write one label a line, or a JSON list"
        if argument == "actions"
        else 'write JSON {"label": probability, …}, or CSV with columns action and probability'
    )
    return InvalidArgument(argument, str(path), reason, remedy)
