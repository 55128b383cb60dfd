"""What makes a row a good one: rows as engines see them, and a rule more."""

from __future__ import annotations

import polars as pl
import pytest

from understudy.logs import rules, validate
from understudy.logs.aggregation import aggregates
from understudy.logs.rules import VECTOR_FAULTS, RejectReason
from understudy.logs.schema import Actions, Columns, RewardScale

__all__ = [
    "VECTOR_FAULTS",
    "Actions",
    "RejectReason",
    "RewardScale",
    "refuse_the_reward",
    "rows_on_engines",
]


def rows_on_engines(
    frame: pl.DataFrame, reward_range: tuple[float, float]
) -> tuple[list[str], list[float]]:
    """The reasons of rejected rows, and the rewards of the others, by the rules for engines."""
    rows = aggregates.rows_of(frame, Columns(propensity=None), reward_range=reward_range)
    rejected, clean = rows.rejected().collect(), rows.clean().collect()
    return rejected["reason"].to_list(), clean["reward"].drop_nulls().to_list()


def refuse_the_reward(value: float, patch: pytest.MonkeyPatch) -> None:
    """Add a rule: a reward of exactly this value is an error of the logger, and not finite."""
    today = rules.number_rule

    def stricter(column: rules.BoundedColumn) -> rules.Rule:
        rule, wrong = today(column), column.library.col(column.parsed) == value
        if column.role != "reward":
            return rule
        fault = (RejectReason.REWARD_NOT_FINITE, wrong)
        return rules.Rule(rule.holds & ~wrong, (fault, *rule.faults))

    patch.setattr(validate, "number_rule", stricter)
    patch.setattr(aggregates, "number_rule", stricter)
