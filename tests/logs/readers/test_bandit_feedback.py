"""The Open Bandit Pipeline's dictionary: there and back, and refused where it does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.refusals import assert_refused
from tests.support.strategies import quick
from understudy.logs import from_bandit_feedback, to_bandit_feedback

pytestmark = pytest.mark.plain

KEYS = ["n_rounds", "n_actions", "context", "action_context", "action", "position", "reward"]
KEYS += ["expected_reward", "pi_b", "pscore"]


def feedback(**changes: Any) -> dict[str, Any]:
    """As the package makes it, for two rounds of three actions."""
    made: dict[str, Any] = {
        "n_rounds": 2,
        "n_actions": 3,
        "context": np.array([[0.5, -1.0], [0.25, 2.0]]),
        "action_context": np.eye(3, dtype=int),
        "action": np.array([2, 0]),
        "position": None,
        "reward": np.array([1, 0]),
        "expected_reward": np.full((2, 3), 0.5),
        "pi_b": np.full((2, 3, 1), 1 / 3),
        "pscore": np.array([0.5, 0.25]),
    }
    return {**made, **changes}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in feedback().items() if name != key}


def test_a_dictionary_becomes_a_frame() -> None:
    frame = from_bandit_feedback(feedback(position=np.array([1, 0])))
    assert frame.to_dict(as_series=False) == {
        "action": [2, 0],
        "reward": [1.0, 0.0],
        "propensity": [0.5, 0.25],
        "position": [1, 0],
        "context_0": [0.5, 0.25],
        "context_1": [-1.0, 2.0],
    }
    assert frame.dtypes == [pl.Int64, pl.Float64, pl.Float64, pl.Int64, pl.Float64, pl.Float64]


@st.composite
def frames(draw: st.DrawFn) -> tuple[pl.DataFrame, int]:
    n_actions, rows, width = (
        draw(st.integers(2, 5)),
        draw(st.integers(1, 6)),
        draw(st.integers(0, 12)),
    )
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    columns = {"action": generator.integers(0, n_actions, rows), "reward": generator.random(rows)}
    if draw(st.booleans()):
        columns["propensity"] = generator.random(rows)
    if draw(st.booleans()):
        columns["position"] = generator.integers(0, 3, rows)
    columns |= {f"context_{i}": generator.random(rows) for i in range(width)}
    return pl.DataFrame(columns), n_actions


@quick
@given(frames())
def test_a_frame_survives_the_way_there_and_back(drawn: tuple[pl.DataFrame, int]) -> None:
    frame, n_actions = drawn
    made = to_bandit_feedback(frame, n_actions=n_actions)
    assert from_bandit_feedback(made).equals(frame)
    assert list(made) == KEYS
    assert made["context"].shape == (len(frame), sum("context" in name for name in frame.columns))
    assert made["action"].dtype == made["action_context"].dtype == np.int64
    assert made["reward"].dtype == made["context"].dtype == np.float64
    assert (made["pscore"] is None) == ("propensity" not in frame.columns)


def test_a_log_and_a_frame_make_the_same_dictionary() -> None:
    frame = from_bandit_feedback(feedback())
    log = us.Log(
        actions=frame["action"],
        rewards=frame["reward"],
        propensities=frame["propensity"],
        features=frame.select("context_0", "context_1"),
    )
    theirs = to_bandit_feedback(frame, n_actions=3)
    for key, value in to_bandit_feedback(log, n_actions=3).items():
        np.testing.assert_array_equal(value, theirs[key])


def test_context_columns_can_be_named() -> None:
    frame = from_bandit_feedback(feedback()).rename({"context_0": "age"})
    made = to_bandit_feedback(frame, n_actions=3, context=["context_1", "age"])
    np.testing.assert_array_equal(made["context"], [[-1.0, 0.5], [2.0, 0.25]])


def test_what_is_not_there_is_left_out() -> None:
    frame = from_bandit_feedback(feedback(pscore=None, context=None))
    assert frame.columns == ["action", "reward"]


@pytest.mark.parametrize("key", ["n_rounds", "n_actions", "action", "reward", "pscore"])
def test_a_missing_key_is_refused(key: str) -> None:
    assert_refused(lambda: from_bandit_feedback(without(key)), "feedback", f"no {key!r}")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_rounds": 3}, "n_rounds is 3"),
        ({"n_rounds": 0}, "at least 1"),
        ({"n_actions": 2}, "outside [0, 1]"),
        ({"n_actions": "3"}, "whole number"),
        ({"action": [2]}, "'action'"),
        ({"action": [0.5, 1.5]}, "whole"),
        ({"action": [-1, 0]}, "outside"),
        ({"action": [[2, 0]]}, "dimension"),
        ({"reward": [1.0]}, "'reward'"),
        ({"reward": ["a", "b"]}, "numbers"),
        ({"reward": [np.nan, 0.0]}, "finite"),
        ({"pscore": [0.5, 0.5, 0.5]}, "'propensity'"),
        ({"pscore": [[0.5, 0.5]]}, "dimension"),
        ({"context": [0.5, 0.5]}, "dimension"),
        ({"context": [[0.5], [0.5], [0.5]]}, "'context_0'"),
        ({"position": [0.5, 1.0]}, "whole"),
    ],
)
def test_a_dictionary_that_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    assert_refused(lambda: from_bandit_feedback(feedback(**changes)), "feedback", words)


@pytest.mark.parametrize(
    ("log", "arguments", "argument", "words"),
    [
        (pl.DataFrame({"reward": [1.0]}), {}, "log", "no column 'action'"),
        (pl.DataFrame({"action": [1]}), {}, "log", "no column 'reward'"),
        (pl.DataFrame({"action": [3], "reward": [1.0]}), {}, "log['action']", "outside [0, 2]"),
        (pl.DataFrame({"action": ["a"], "reward": [1.0]}), {}, "log['action']", "numbers"),
        (pl.DataFrame({"action": [0], "reward": [None]}), {}, "log['reward']", "1 nulls"),
        (
            pl.DataFrame({"action": [0], "reward": [1.0]}),
            {"context": ["x"]},
            "log",
            "no column 'x'",
        ),
        (
            pl.DataFrame({"action": [0], "reward": [1.0]}),
            {"n_actions": 1},
            "n_actions",
            "at least 2",
        ),
        (us.Log([0], [1.0]), {"context": ["x"]}, "context", "no names"),
        (us.Log([0], [1.0], features=np.ones((1, 3, 2))), {}, "log.features", "dimension"),
    ],
)
def test_a_log_that_does_not_fit_is_refused(
    log: pl.DataFrame | us.Log, arguments: dict[str, Any], argument: str, words: str
) -> None:
    assert_refused(
        lambda: to_bandit_feedback(log, **{"n_actions": 3, **arguments}), argument, words
    )
