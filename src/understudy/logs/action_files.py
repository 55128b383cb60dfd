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
from understudy.errors import InvalidArgument, first_line, shorten
from understudy.logs.schema import UNKNOWN, Actions, Label, first_few, is_unicode, label_key

FORM = 'JSON {"label": probability, …}, or CSV with columns action and probability'
REMEDIES = {
    "actions": "write one label per line, or a JSON list",
    "behavior": f"pass logged, estimated, or a file of {FORM}",
    "policy": f"pass uniform, policy.json, or a file of {FORM}",
}


def read_actions(path: Path) -> tuple[str, ...]:
    """The actions that a file declares, in its order: one label per line, or a JSON list."""
    return tuple(map(label_key, _parsed("actions", path, _parse_labels)))


def read_probabilities(argument: str, path: Path) -> dict[Label, float]:
    """Probabilities by action: a JSON object, or a CSV file with columns action and probability.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "behavior.csv")
    ...     _ = path.write_text("action,probability\\nup,0.25\\ndown,0.75\\n", encoding="utf-8")
    ...     read_probabilities("behavior", path)
    {'up': 0.25, 'down': 0.75}
    """
    return check_probabilities(argument, dict(_parsed(argument, path, _parse_pairs)), str(path))


def check_probabilities(
    argument: str, probabilities: Mapping[Any, Any], where: str
) -> dict[Label, float]:
    """Probabilities by action as floats, or `InvalidArgument` if they do not sum to 1.

    A single action of probability 1 is a policy too.
    """
    numbers: dict[Label, float] = {label: _number(p) for label, p in probabilities.items()}
    remedy = "give every action a probability; their sum is 1"
    for label, value in numbers.items():
        if math.isnan(value):
            reason = f"the probability of {shorten(label)} is not a number"
            raise InvalidArgument(argument, where, reason, remedy)
    if list(numbers.values()) == [1.0]:
        return numbers
    try:
        values = PROBABILITIES.parse(list(numbers.values()))
    except ConstraintViolation as refusal:
        reason = f"its probabilities are refused: {refusal}"
        raise InvalidArgument(argument, where, reason, remedy) from None
    return dict(zip(probabilities, values.tolist(), strict=True))


def probability_vector(
    argument: str, probabilities: Mapping[Label, float], actions: Actions
) -> Array:
    """Probabilities in the order of the actions, (K,), 0 for those that are not named."""
    vector = np.zeros(len(actions))
    for label, probability in probabilities.items():
        index = actions.index(label)
        if index == UNKNOWN:
            reason = "this action is not among those of the log or study"
            remedy = f"declare all actions, or name some of {first_few(actions.labels)}"
            raise InvalidArgument(argument, label, reason, remedy)
        vector[index] += probability  # 1 and "1.0" are the same action
    return vector


def behavior_vector(behavior: Mapping[Any, float], actions: Actions) -> Array:
    """Fixed propensities by action, checked, in the order of the actions, (K,)."""
    checked = check_probabilities("behavior", behavior, "behavior")
    return probability_vector("behavior", checked, actions)


def _parsed(argument: str, path: Path, parse: Callable[[str], list[Any]]) -> list[Any]:
    """Parse the text of a file, or raise `InvalidArgument`."""
    try:
        return parse(path.read_text(encoding="utf-8-sig"))
    except ConstraintViolation as violation:
        reason = str(violation)
    except OSError as error:
        reason = f"it cannot be read ({error.strerror})"
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except csv.Error as error:
        reason = f"it is not CSV ({error})"
    except (ValueError, RecursionError) as error:
        reason = f"it is not JSON ({first_line(error)})"
    raise InvalidArgument(argument, str(path), reason, REMEDIES[argument])


def _parse_labels(text: str) -> list[Label]:
    labels: list[Label]
    if text.lstrip().startswith("["):
        labels = json.loads(text)
        if not all(map(_is_label, labels)):
            raise ConstraintViolation("its entries must be texts or whole numbers")
    else:
        labels = [line.strip() for line in text.split("\n") if line.strip()]
    if len(set(map(label_key, labels))) < len(labels):
        raise ConstraintViolation("it names an action twice")
    if len(labels) < 2:  # noqa: PLR2004 - a choice
        raise ConstraintViolation("it names fewer than two actions")
    return labels


def _parse_pairs(text: str) -> list[tuple[Label, Any]]:
    pairs: list[tuple[Label, Any]]
    if text.lstrip().startswith("{"):
        pairs = json.loads(text, object_pairs_hook=list)
    else:
        rows: list[dict[Any, Any]] = list(csv.DictReader(StringIO(text, newline="")))
        if not rows or not {"action", "probability"} <= set(rows[0]):
            raise ConstraintViolation("it has no columns 'action' and 'probability' with rows")
        if any(None in row for row in rows):
            raise ConstraintViolation("a line has more fields than the header")
        pairs = [(row["action"], row["probability"]) for row in rows]
    if not all(_is_label(label) for label, _ in pairs):
        raise ConstraintViolation("a line has no action, or is not Unicode text")
    if len({label_key(label) for label, _ in pairs}) < len(pairs):
        raise ConstraintViolation("it names an action twice")
    return pairs


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
