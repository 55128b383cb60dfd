"""Small files of the user's: lists of actions, and probabilities of actions."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from understudy.constraints import PROBABILITIES, Array, Refused
from understudy.errors import InvalidArgument, shorten
from understudy.logs.schema import Actions, Label, is_unicode

__all__ = [
    "arranged",
    "behavior_by_action",
    "checked_probabilities",
    "read_actions",
    "read_probabilities",
]

PROBABLE = 'JSON {"label": probability, …}, or CSV with columns action and probability'
REMEDIES = {
    "actions": "write one label a line, or a JSON list",
    "behavior": f"pass logged, estimated, or a file of {PROBABLE}",
    "policy": f"pass uniform, policy.json, or a file of {PROBABLE}",
}


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
        labels = [line.strip() for line in text.split("\n") if line.strip()]
    if len({str(label) for label in labels}) < len(labels):
        raise _refused("actions", path, "it names an action twice")
    if len(labels) < 2:  # noqa: PLR2004 - a choice
        raise _refused("actions", path, "it names fewer than two actions")
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
        pairs: list[tuple[Any, Any]] = _json(argument, path, text, list)
    else:
        pairs = [(row["action"], row["probability"]) for row in _rows(argument, path, text)]
    if not all(_is_label(label) for label, _ in pairs):
        raise _refused(argument, path, "a line has no action, or is not Unicode text")
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
    found: dict[Label, float] = {label: _number(p) for label, p in probabilities.items()}
    remedy = "give every action a probability, 1 in all"
    for label, value in found.items():
        if math.isnan(value):
            reason = f"the probability of {shorten(label)} is not a number"
            raise InvalidArgument(argument, where, reason, remedy)
    if list(found.values()) == [1.0]:  # always the same action
        return found
    try:
        values = PROBABILITIES.parse(list(found.values()))
    except Refused as refusal:
        reason = f"its probabilities are refused: {refusal}"
        raise InvalidArgument(argument, where, reason, remedy) from None
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


def _rows(argument: str, path: Path, text: str) -> list[dict[str | None, Any]]:
    """The rows of a small table with the columns that are wanted, and no more fields than these."""
    try:
        rows: list[dict[str | None, Any]] = list(csv.DictReader(StringIO(text, newline="")))
    except csv.Error as error:
        raise _refused(argument, path, f"it is not CSV ({error})") from None
    if not rows or not {"action", "probability"} <= set(rows[0]):
        raise _refused(argument, path, "it has no columns 'action' and 'probability' with rows")
    if any(None in row for row in rows):
        raise _refused(argument, path, "a line has more fields than the header")
    return rows


def _json(argument: str, path: Path, text: str, pairs: Callable[..., Any] | None = None) -> Any:
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise _refused(argument, path, f"it is not JSON ({str(error)[:80]})") from None


def _is_label(value: object) -> bool:
    if isinstance(value, str):
        return is_unicode(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> float:
    """A number, or nan, which no constraint on probabilities lets through."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _refused(argument: str, path: Path, reason: str) -> InvalidArgument:
    return InvalidArgument(argument, str(path), reason, REMEDIES[argument])
