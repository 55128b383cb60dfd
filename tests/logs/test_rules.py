"""`understudy.logs.rules`: every reason has a remedy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from understudy.errors import InvalidLog
from understudy.logs.rules import RejectReason, remedy_for


def test_every_reason_has_a_remedy() -> None:
    for reason in RejectReason:
        assert remedy_for({reason.value: 1}) == reason.remedy
    assert remedy_for({"a reason of a later version": 1}) == "correct these rows"


@pytest.mark.parametrize(
    ("changes", "reason", "remedy"),
    [
        ({"reward": [0.0, -1.0]}, "reward is out of range: 50", "with --reward-range LOW HIGH"),
        ({"reward": [0.0, 12.5]}, "reward is out of range: 50", "with --reward-range LOW HIGH"),
        ({"propensity": [0.5, 50.0]}, "propensity is out of range: 50", "percentages by 100)"),
        ({"propensity": [0.5, 0.0]}, "propensity is out of range: 50", "percentages by 100)"),
        ({"propensity": [0.5, None]}, "propensity is missing: 50", "of the propensity"),
        ({"reward": ["0", "yes"]}, "reward is not a number: 50", "such as 0.5"),
    ],
)
@pytest.mark.parametrize("engine", [None, "polars"])
def test_rejected_rows_come_before_the_action_that_they_leave(
    changes: dict[str, list[Any]], reason: str, remedy: str, engine: str | None
) -> None:
    """Every row of one action has the wrong value, so that the other one seems to be alone."""
    columns: dict[str, list[Any]] = {
        "action": ["a", "b"],
        "reward": [0.0, 1.0],
        "propensity": [0.5, 0.5],
        **changes,
    }
    log = pl.DataFrame({name: pair * 50 for name, pair in columns.items()})
    commands: list[Callable[..., object]] = [us.logs.coverage]
    commands.append(partial(us.logs.learn, horizon=100) if engine else us.logs.learn)
    for command in commands:
        with pytest.raises(InvalidLog) as refused:
            command(log, engine=engine)
        said = str(refused.value)
        cause = f"50 of its rows are rejected ({reason})"
        assert said.startswith((f"log = 'frame': {cause}", f"log = 'log': {cause}"))
        assert said.endswith(remedy)


def test_rejected_rows_come_before_what_they_leave_of_a_verdict() -> None:
    rewards = [0.0, 12.5] * 100  # all that are not 0 are out of range
    log = pl.DataFrame({"action": ["a", "a", "b", "b"] * 50, "reward": rewards, "propensity": 0.5})
    report = us.logs.certify(log, {"b": 1.0}, no_unit=True, repeated_rows="allow").report
    assert report.verdict.startswith("100 of 200 rows are quarantined")
    assert "--reward-range LOW HIGH" in report.step
    mostly = log.with_columns(
        reward=pl.when(pl.col("action") == "b").then(12.5).otherwise("reward")
    )
    found = us.logs.certify(mostly, {"b": 1.0}, no_unit=True, repeated_rows="allow")
    assert found.report.verdict.startswith("Most rows are quarantined (reward is out of range")
    assert not any("no action in common" in warning for warning in found.warnings)


def test_too_small_propensities_come_before_the_stickiness_that_they_feign() -> None:
    rng = np.random.default_rng(0)
    log = pl.DataFrame(
        {
            "action": np.array(["a", "b"])[rng.integers(2, size=400)],
            "reward": rng.integers(2, size=400) * 1.0,
            "propensity": 0.05,
        }
    )
    found = us.logs.certify(log, {"b": 1.0})
    assert found.coverage.sticky is not None
    assert found.coverage.sticky.found
    assert found.report.obstacle == "wrong propensities"
