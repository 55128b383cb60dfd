"""The `bandit_feedback` dictionary of the Open Bandit Pipeline, to and from frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from understudy.constraints import COUNT, N_ACTIONS, array
from understudy.errors import InvalidArgument
from understudy.logs.schema import ACTION, PROPENSITY, REWARD
from understudy.types import Log

POSITION, NUMBERED = "position", "context_"
REQUIRED = ("n_rounds", "n_actions", "action", "reward", "pscore")
NUMBERS = array("pass one finite number per round")
CONTEXTS = array("pass one row of finite numbers per round", dimensions=(2,))
POSITIONS = array("pass one whole number per round, from 0, or None", dtype=np.int64, low=0)


def from_bandit_feedback(feedback: Mapping[str, Any]) -> pl.DataFrame:
    """A frame with the columns `action`, `reward`, `propensity`, `position`, `context_0`, …

    `propensity`, `position` and the contexts are left out if `pscore`, `position` and `context` are
    None or absent. `action_context`, `expected_reward` and `pi_b` have no place in a log.

    >>> feedback = {"n_rounds": 2, "n_actions": 3, "action": [2, 0], "reward": [1, 0]}
    >>> from_bandit_feedback({**feedback, "pscore": [0.5, 0.2], "context": [[0.1], [0.3]]}).rows()
    [(2, 1.0, 0.5, 0.1), (0, 0.0, 0.2, 0.3)]
    """
    missing = [key for key in REQUIRED if key not in feedback]
    if missing:
        raise InvalidArgument(
            "feedback",
            sorted(feedback),
            f"it has no {missing[0]!r}, only these",
            "pass what obtain_batch_bandit_feedback returns, of single actions; "
            "'pscore' may be None if the propensities are not known",
        )
    n_actions = N_ACTIONS("feedback['n_actions']", feedback["n_actions"])
    columns: dict[str, NDArray[Any]] = {
        ACTION: _actions("feedback['action']", feedback["action"], n_actions),
        REWARD: NUMBERS("feedback['reward']", feedback["reward"]),
    }
    if feedback["pscore"] is not None:
        columns[PROPENSITY] = NUMBERS("feedback['pscore']", feedback["pscore"])
    if feedback.get("position") is not None:
        columns[POSITION] = POSITIONS("feedback['position']", feedback["position"])
    if feedback.get("context") is not None:
        columns |= _contexts(CONTEXTS("feedback['context']", feedback["context"]))
    n_rounds = COUNT("feedback['n_rounds']", feedback["n_rounds"])
    for name, column in columns.items():
        if len(column) != n_rounds:
            raise InvalidArgument(
                f"feedback, for the column {name!r}",
                f"{len(column)} rows",
                f"n_rounds is {n_rounds}",
                "pass arrays of one row per round",
            )
    return pl.DataFrame(columns)


def to_bandit_feedback(
    log: pl.DataFrame | Log, *, n_actions: int, context: Sequence[str] | None = None
) -> dict[str, Any]:
    """The dictionary with which the Open Bandit Pipeline evaluates policies.

    `log` is a `us.Log`, whose features must be contexts (n, p), or a frame with the columns
    `action` (0 … n_actions − 1), `reward`, and perhaps `propensity` and `position`; `context` names
    its columns of contexts, by default `context_0`, `context_1`, …

    `action_context` is one-hot. `expected_reward` and `pi_b`, which a log does not have, are None;
    so is `pscore` without propensities.

    >>> log = Log(actions=[2, 0], rewards=[1.0, 0.0], propensities=[0.5, 0.2])
    >>> feedback = to_bandit_feedback(log, n_actions=3)
    >>> feedback["n_rounds"], feedback["pscore"].tolist(), feedback["context"].shape
    (2, [0.5, 0.2], (2, 0))
    """
    size = N_ACTIONS("n_actions", n_actions)
    frame = _frame(log, context) if isinstance(log, Log) else log
    numbered = [f"{NUMBERED}{i}" for i in range(frame.width)]
    names = [name for name in numbered if name in frame.columns] if context is None else context
    for name in (ACTION, REWARD, *names):
        if name not in frame.columns:
            raise InvalidArgument(
                "log", frame.columns, f"it has no column {name!r}, only these", "rename its columns"
            )
    contexts = [NUMBERS(f"log[{name!r}]", _values(frame, name)) for name in names]
    known = {name: _values(frame, name) for name in (POSITION, PROPENSITY) if name in frame.columns}
    return {
        "n_rounds": len(frame),
        "n_actions": size,
        "context": np.stack(contexts, axis=1) if contexts else np.empty((len(frame), 0)),
        "action_context": np.eye(size, dtype=np.int64),
        "action": _actions("log['action']", _values(frame, ACTION), size),
        "position": POSITIONS.optional()("log['position']", known.get(POSITION)),
        "reward": NUMBERS("log['reward']", _values(frame, REWARD)),
        "expected_reward": None,
        "pi_b": None,
        "pscore": NUMBERS.optional()("log['propensity']", known.get(PROPENSITY)),
    }


def _actions(argument: str, value: object, n_actions: int) -> NDArray[np.int64]:
    remedy = f"pass the index of an action per round, 0 to {n_actions - 1}"
    indices = array(remedy, dtype=np.int64, low=0, high=n_actions - 1)
    return np.asarray(indices(argument, value))


def _frame(log: Log, context: Sequence[str] | None) -> pl.DataFrame:
    """The columns of a `us.Log` as a frame."""
    if context is not None:
        raise InvalidArgument(
            "context", context, "the columns of a us.Log have no names", "leave it out"
        )
    columns = {ACTION: log.actions, REWARD: log.rewards}
    if log.propensities is not None:
        columns[PROPENSITY] = log.propensities
    if log.features is not None:
        columns |= _contexts(CONTEXTS("log.features", log.features))
    return pl.DataFrame(columns)


def _contexts(table: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    return {f"{NUMBERED}{i}": table[:, i] for i in range(table.shape[1])}


def _values(frame: pl.DataFrame, name: str) -> NDArray[Any]:
    column = frame[name]
    if column.null_count():
        reason = "the dictionary has no missing values"
        remedy = f"fill them in, or leave them out with log.drop_nulls({name!r})"
        raise InvalidArgument(f"log[{name!r}]", f"{column.null_count()} nulls", reason, remedy)
    return column.to_numpy()
