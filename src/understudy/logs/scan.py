"""A first look at a whole log: which actions, how many rows, in order or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from understudy.errors import InvalidLog, shorten
from understudy.logs.checking import ValidatedBatch
from understudy.logs.progress import ProgressCallback
from understudy.logs.schema import ACTION, as_text
from understudy.report.wording import counted as so_many

__all__ = [
    "MOST_ACTIONS",
    "ScanResult",
    "counted",
    "nothing_left",
    "refuse_bad_rows",
    "remedy_for",
    "scan",
    "too_few",
]

MOST_ACTIONS = 100_000  # that a log may bring up by itself
REMEDIES = {
    "action is missing": "name the column of actions with --action, or the format with --format",
    "action is unknown": "compare its labels with those of --actions FILE, of --behavior FILE, or "
    "of the policy that --resume goes on from: no others are known",
    "action is not eligible": "see whether the column named with --eligible lists what could be "
    "played",
    "action has probability 0 in the behavior": "give what was played a probability in --behavior",
    "reward is out of range": "pass the smallest and largest possible with --reward-range LOW HIGH",
    "propensity is out of range": "divide percentages by 100: propensities are above 0, at most 1",
    "time is missing or not a time": "name a column of numbers or of ISO 8601 dates with --time",
}


@dataclass(frozen=True)
class ScanResult:
    """The labels that good rows show, as text, how many these are, and why others are not."""

    labels: frozenset[str]
    rows: int
    refused: Mapping[str, int]


def scan(batches: Iterator[ValidatedBatch], watch: ProgressCallback) -> ScanResult:
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
                min(labels),
                f"the log shows more than {MOST_ACTIONS:,} actions, this among them",
                "check --action, or declare so many with --actions FILE",
            )
    return ScanResult(frozenset(labels), rows, refused)


def nothing_left(file: str, refused: Mapping[str, int]) -> InvalidLog:
    """The error for a log of which no row can be learned from.

    >>> print(nothing_left("log.csv", {"propensity is out of range": 3}))
    log = 'log.csv': none of its rows can be learned from (propensity is out of range: 3); ...
    """
    reason = f"none of its rows can be learned from ({counted(refused) or 'there are none'})"
    return InvalidLog("log", file, reason, remedy_for(refused))


def too_few(file: str, found: ScanResult) -> InvalidLog:
    """The error for a log whose good rows show one action only.

    >>> print(too_few("log.csv", ScanResult(frozenset("a"), 9, {"reward is not a number": 3})))
    log = 'log.csv': it cannot tell: its good rows show the action 'a' alone: production was ...
    """
    (label,) = found.labels
    refused = f" (refused: {counted(found.refused)})" if found.refused else ""
    return InvalidLog(
        "log",
        file,
        f"it cannot tell: its good rows show the action {shorten(label)} alone: production was "
        f"deterministic, or one action is all there is{refused}",
        remedy_for(found.refused) if found.refused else "name the others in --actions FILE",
    )


def counted(refused: Mapping[str, int]) -> str:
    """How many rows were refused for which reason.

    >>> counted({"reward is missing": 1_200})
    'reward is missing: 1,200'
    """
    return ", ".join(f"{reason}: {count:,}" for reason, count in refused.items())


def remedy_for(refused: Mapping[str, int]) -> str:
    """What to do about the reason that most rows are refused for, with its name if there are more.

    >>> remedy_for({"reward is out of range": 3})
    'pass the smallest and largest possible with --reward-range LOW HIGH'
    >>> remedy_for({"time is missing": 1, "reward is not finite": 3})
    'where the reward is not finite, check the column of the reward'
    """
    if not refused:
        return "leave it out"
    reason = max(refused, key=refused.__getitem__)
    what, _, fault = reason.partition(" is ")
    remedy = REMEDIES.get(reason, f"check the column of the {what}")
    if fault == "not a number":
        remedy = f"write each {what} with a point and no other signs, such as 0.5"
    return remedy if len(refused) == 1 else f"where the {reason}, {remedy}"


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
            so_many(count, "row"),
            reason,
            "correct them, or leave out --strict to set them aside",
        )
