"""Small files that a user writes: lists of actions, and probabilities by action."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from understudy.constraints import PROBABILITIES, Array, ConstraintViolation
from understudy.errors import InvalidArgument, shorten
from understudy.logs.schema import Actions, Label, first_few, is_unicode

FORM = 'JSON {"label": probability, …}, or CSV with columns action and probability'
REMEDIES = {
    "actions": "write one label per line, or a JSON list",
    "behavior": f"pass logged, estimated, or a file of {FORM}",
    "policy": f"pass uniform, policy.json, or a file of {FORM}",
}


def read_actions(path: Path) -> Actions:
    """The actions that a file declares: one label per line, or a JSON list.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "actions.txt")
    ...     _ = path.write_text("up\\ndown\\n", encoding="utf-8")
    ...     read_actions(path).labels
    ('down', 'up')
    """
    text = _read("actions", path)
    if text.lstrip().startswith("["):
        labels = _parse_json("actions", path, text)
        if not all(_is_label(label) for label in labels):
            raise _refused("actions", path, "its entries must be texts or whole numbers")
    else:
        labels = [line.strip() for line in text.split("\n") if line.strip()]
    if len({str(label) for label in labels}) < len(labels):
        raise _refused("actions", path, "it names an action twice")
    if len(labels) < 2:  # noqa: PLR2004 - a choice
        raise _refused("actions", path, "it names fewer than two actions")
    return Actions.from_labels(labels)


def read_probabilities(argument: str, path: Path) -> dict[Label, float]:
    """Probabilities by action: a JSON object, or a CSV file with columns action and probability.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "behavior.csv")
    ...     _ = path.write_text("action,probability\\nup,0.25\\ndown,0.75\\n", encoding="utf-8")
    ...     read_probabilities("behavior", path)
    {'up': 0.25, 'down': 0.75}
    """
    text = _read(argument, path)
    if text.lstrip().startswith("{"):
        pairs: list[tuple[Any, Any]] = _parse_json(argument, path, text, list)
    else:
        rows = _parse_csv(argument, path, text)
        pairs = [(row["action"], row["probability"]) for row in rows]
    if not all(_is_label(label) for label, _ in pairs):
        raise _refused(argument, path, "a line has no action, or is not Unicode text")
    if len({label for label, _ in pairs}) < len(pairs):
        raise _refused(argument, path, "it names an action twice")
    return check_probabilities(argument, dict(pairs), str(path))


def check_probabilities(
    argument: str, probabilities: Mapping[Any, Any], where: str
) -> dict[Label, float]:
    """Probabilities by action as floats, or `InvalidArgument` if they do not sum to 1.

    A single action of probability 1 is a policy too.

    >>> check_probabilities("policy", {"a": 0.5}, "policy")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: policy = 'policy': its probabilities are refused: ...
    """
    found: dict[Label, float] = {label: _number(p) for label, p in probabilities.items()}
    remedy = "give every action a probability; their sum is 1"
    for label, value in found.items():
        if math.isnan(value):
            reason = f"the probability of {shorten(label)} is not a number"
            raise InvalidArgument(argument, where, reason, remedy)
    if list(found.values()) == [1.0]:
        return found
    try:
        values = PROBABILITIES.parse(list(found.values()))
    except ConstraintViolation as refusal:
        reason = f"its probabilities are refused: {refusal}"
        raise InvalidArgument(argument, where, reason, remedy) from None
    return dict(zip(probabilities, values.tolist(), strict=True))


def probability_vector(
    argument: str, probabilities: Mapping[Label, float], actions: Actions
) -> Array:
    """Probabilities in the order of the actions, (K,), 0 for those that are not named.

    >>> probability_vector("policy", {"b": 1.0}, Actions(("a", "b"))).tolist()
    [0.0, 1.0]
    """
    index = {text: i for i, text in enumerate(actions.texts)}
    found = np.zeros(len(actions))
    for label, probability in probabilities.items():
        if str(label) not in index:
            raise InvalidArgument(
                argument,
                label,
                "this action is not among those of the log or study",
                f"declare all actions, or name some of {first_few(actions.labels)}",
            )
        found[index[str(label)]] = probability
    return found


def behavior_vector(behavior: Mapping[Any, float], actions: Actions) -> Array:
    """Fixed propensities by action, checked, in the order of the actions, (K,).

    >>> behavior_vector({"b": 0.25, "a": 0.75}, Actions(("a", "b"))).tolist()
    [0.75, 0.25]
    """
    checked = check_probabilities("behavior", behavior, "behavior")
    return probability_vector("behavior", checked, actions)


def _read(argument: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _refused(argument, path, f"it cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise _refused(argument, path, "it is not UTF-8 text") from None


def _parse_csv(argument: str, path: Path, text: str) -> list[dict[str | None, Any]]:
    try:
        rows: list[dict[str | None, Any]] = list(csv.DictReader(StringIO(text, newline="")))
    except csv.Error as error:
        raise _refused(argument, path, f"it is not CSV ({error})") from None
    if not rows or not {"action", "probability"} <= set(rows[0]):
        raise _refused(argument, path, "it has no columns 'action' and 'probability' with rows")
    if any(None in row for row in rows):
        raise _refused(argument, path, "a line has more fields than the header")
    return rows


def _parse_json(
    argument: str, path: Path, text: str, pairs: Callable[..., Any] | None = None
) -> Any:
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise _refused(argument, path, f"it is not JSON ({str(error)[:80]})") from None


def _is_label(value: object) -> bool:
    if isinstance(value, str):
        return is_unicode(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> float:
    """A value as a number, or NaN."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _refused(argument: str, path: Path, reason: str) -> InvalidArgument:
    return InvalidArgument(argument, str(path), reason, REMEDIES[argument])
