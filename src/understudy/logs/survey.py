"""A first look at a whole log: which actions, how many rows, in order or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from understudy.errors import InvalidLog
from understudy.logs.actions import as_text
from understudy.logs.checking import Checked
from understudy.logs.columns import ACTION
from understudy.logs.watching import Watch

__all__ = ["MOST_ACTIONS", "Survey", "nothing_left", "refuse_bad_rows", "survey"]

MOST_ACTIONS = 100_000  # that a log may bring up by itself


@dataclass(frozen=True)
class Survey:
    """The labels that good rows show, as text, how many these are, and why others are not."""

    labels: frozenset[str]
    rows: int
    refused: Mapping[str, int]


def survey(batches: Iterator[Checked], watch: Watch) -> Survey:
    """Go over a log once without learning."""
    labels: set[str] = set()
    refused: Counter[str] = Counter()
    rows = 0
    for checked in batches:
        labels |= _labels(checked.frame)
        rows += len(checked)
        refused.update(checked.quarantined["reason"])
        watch("looking", len(checked), None)
        if len(labels) > MOST_ACTIONS:
            raise InvalidLog(
                "action",
                next(iter(labels)),
                f"the log shows more than {MOST_ACTIONS:,} actions, this among them",
                "check --action, or declare so many with --actions FILE",
            )
    return Survey(frozenset(labels), rows, refused)


def nothing_left(file: str, refused: Mapping[str, int]) -> InvalidLog:
    """The error for a log of which no row can be learned from.

    >>> print(nothing_left("log.csv", {"reward is missing": 3}))
    log = 'log.csv': none of its rows can be learned from (reward is missing: 3); ...
    """
    counts = ", ".join(f"{reason}: {count:,}" for reason, count in refused.items())
    return InvalidLog(
        "log",
        file,
        f"none of its rows can be learned from ({counts or 'there are none'})",
        "check the names of the columns and --reward-range",
    )


def _labels(frame: pl.DataFrame) -> set[str]:
    found = frame[ACTION].unique()
    texts = found.to_frame().select(as_text(pl.col(ACTION), found.dtype))
    return set(texts.to_series().drop_nulls())


def refuse_bad_rows(refused: Mapping[str, int]) -> None:
    """Raise `InvalidLog` if rows were refused: for those who are strict, where nobody knows which.

    >>> refuse_bad_rows({"reward is missing": 3})
    Traceback (most recent call last):
    understudy.errors.InvalidLog: log = '3 rows': reward is missing; correct them, or ...
    """
    for reason, count in refused.items():
        raise InvalidLog(
            "log",
            f"{count:,} rows",
            reason,
            "correct them, or leave out --strict to set them aside",
        )
