"""Why a row of a log cannot be used, and what the user can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from understudy.errors import InvalidLog, shorten

REASON = "reason"


CHECK = "check the column of the {}".format
WRITE = "write each {} with a point and no other signs, such as 0.5".format


class RejectReason(StrEnum):
    """The first rule that a row breaks, as quarantine.parquet and policy.json have it.

    `remedy` is what the user can do about it.
    """

    remedy: str

    def __new__(cls, text: str, remedy: str) -> Self:
        """A member is a text, beside which its remedy stands."""
        reason = str.__new__(cls, text)
        reason._value_, reason.remedy = text, remedy
        return reason

    ACTION_MISSING = (
        "action is missing",
        "name the column of actions with --action, or the format with --format",
    )
    ACTION_UNKNOWN = (
        "action is unknown",
        "compare its labels with those of --actions FILE, of --behavior FILE, or of the policy "
        "that --resume goes on from: no others are known",
    )
    ACTION_IMPOSSIBLE = (
        "action has probability 0 in the behavior",
        "give what was played a probability in --behavior",
    )
    ACTION_NOT_ELIGIBLE = (
        "action is not eligible",
        "see whether the column named with --eligible lists what could be played",
    )
    REWARD_MISSING = "reward is missing", CHECK("reward")
    REWARD_NOT_A_NUMBER = "reward is not a number", WRITE("reward")
    REWARD_NOT_FINITE = "reward is not finite", CHECK("reward")
    REWARD_OUT_OF_RANGE = (
        "reward is out of range",
        "pass the smallest and largest possible with --reward-range LOW HIGH",
    )
    PROPENSITY_MISSING = "propensity is missing", CHECK("propensity")
    PROPENSITY_NOT_A_NUMBER = "propensity is not a number", WRITE("propensity")
    PROPENSITY_NOT_FINITE = "propensity is not finite", CHECK("propensity")
    PROPENSITY_OUT_OF_RANGE = (
        "propensity is out of range",
        "divide percentages by 100: propensities are above 0, at most 1",
    )
    TARGET_MISSING = "target is missing", CHECK("target")
    TARGET_NOT_A_NUMBER = "target is not a number", WRITE("target")
    TARGET_NOT_FINITE = "target is not finite", CHECK("target")
    TARGET_OUT_OF_RANGE = "target is out of range", CHECK("target")
    TIME_MISSING = (
        "time is missing or not a time",
        "name a column of numbers or of ISO 8601 dates with --time",
    )


# Rows that may have been of any action: a behavior that is counted cannot be relied on.
WITHOUT_ACTION = (RejectReason.ACTION_MISSING, RejectReason.ACTION_UNKNOWN)


def counted(refused: Mapping[str, int]) -> str:
    """How many rows were refused for which reason.

    >>> counted({RejectReason.REWARD_MISSING: 1_200})
    'reward is missing: 1,200'
    """
    return ", ".join(f"{reason}: {count:,}" for reason, count in refused.items())


def remedy_for(refused: Mapping[str, int]) -> str:
    """What to do about the most frequent reason, which is named if there are others.

    >>> remedy_for({"reward is out of range": 3})
    'pass the smallest and largest possible with --reward-range LOW HIGH'
    >>> remedy_for({"target is missing": 1, "reward is not finite": 3})
    'where the reward is not finite, check the column of the reward'
    """
    if not refused:
        return "leave it out"
    reason = max(refused, key=refused.__getitem__)
    known = (one.remedy for one in RejectReason if one == reason)
    remedy = next(known, "correct these rows")  # a file may be of a later version
    return remedy if len(refused) == 1 else f"where the {reason}, {remedy}"


def nothing_left(file: str, refused: Mapping[str, int]) -> InvalidLog:
    """The error for a log of which no row can be learned from.

    >>> print(nothing_left("log.csv", {"propensity is out of range": 3}))
    log = 'log.csv': none of its rows can be learned from (propensity is out of range: 3); ...
    """
    reason = f"none of its rows can be learned from ({counted(refused) or 'there are none'})"
    return InvalidLog("log", file, reason, remedy_for(refused))


def too_few(file: str, label: str, refused: Mapping[str, int]) -> InvalidLog:
    """The error for a log whose good rows show one action only.

    >>> print(too_few("log.csv", "a", {"reward is not a number": 3}))
    log = 'log.csv': it cannot tell: its good rows show the action 'a' alone: production was ...
    """
    others = f" (refused: {counted(refused)})" if refused else ""
    return InvalidLog(
        "log",
        file,
        f"it cannot tell: its good rows show the action {shorten(label)} alone: production was "
        f"deterministic, or one action is all there is{others}",
        remedy_for(refused) if refused else "name the others in --actions FILE",
    )


def refuse_bad_rows(refused: Mapping[str, int]) -> None:
    """Raise `InvalidLog` if rows were refused: --strict for sums, which do not say which rows.

    >>> refuse_bad_rows({"reward is missing": 3})
    Traceback (most recent call last):
    understudy.errors.InvalidLog: log = '3 rows': reward is missing; correct them, or ...
    """
    for reason, count in refused.items():
        rows = "1 row" if count == 1 else f"{count:,} rows"
        remedy = "correct them, or leave out --strict to quarantine them"
        raise InvalidLog("log", rows, reason, remedy)
