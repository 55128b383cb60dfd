"""Why a row of a log cannot be used, and what the user can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from understudy.errors import InvalidLog, shorten

REASON = "reason"


class RejectReason(StrEnum):
    """The first rule that a row breaks. The texts stand in quarantine.parquet and policy.json."""

    ACTION_MISSING = "action is missing"
    ACTION_UNKNOWN = "action is unknown"
    ACTION_IMPOSSIBLE = "action has probability 0 in the behavior"
    ACTION_NOT_ELIGIBLE = "action is not eligible"
    REWARD_MISSING = "reward is missing"
    REWARD_NOT_A_NUMBER = "reward is not a number"
    REWARD_NOT_FINITE = "reward is not finite"
    REWARD_OUT_OF_RANGE = "reward is out of range"
    PROPENSITY_MISSING = "propensity is missing"
    PROPENSITY_NOT_A_NUMBER = "propensity is not a number"
    PROPENSITY_NOT_FINITE = "propensity is not finite"
    PROPENSITY_OUT_OF_RANGE = "propensity is out of range"
    TARGET_MISSING = "target is missing"
    TARGET_NOT_A_NUMBER = "target is not a number"
    TARGET_NOT_FINITE = "target is not finite"
    TARGET_OUT_OF_RANGE = "target is out of range"
    TIME_MISSING = "time is missing or not a time"


# Rows that may have been of any action: a behavior that is counted cannot be relied on.
WITHOUT_ACTION = (RejectReason.ACTION_MISSING, RejectReason.ACTION_UNKNOWN)
CHECK = "check the column of the {}".format
WRITE = "write each {} with a point and no other signs, such as 0.5".format
REMEDIES: dict[str, str] = {
    RejectReason.ACTION_MISSING: "name the column of actions with --action, or the format with "
    "--format",
    RejectReason.ACTION_UNKNOWN: "compare its labels with those of --actions FILE, of --behavior "
    "FILE, or of the policy that --resume goes on from: no others are known",
    RejectReason.ACTION_IMPOSSIBLE: "give what was played a probability in --behavior",
    RejectReason.ACTION_NOT_ELIGIBLE: "see whether the column named with --eligible lists what "
    "could be played",
    RejectReason.REWARD_MISSING: CHECK("reward"),
    RejectReason.REWARD_NOT_A_NUMBER: WRITE("reward"),
    RejectReason.REWARD_NOT_FINITE: CHECK("reward"),
    RejectReason.REWARD_OUT_OF_RANGE: "pass the smallest and largest possible with --reward-range "
    "LOW HIGH",
    RejectReason.PROPENSITY_MISSING: CHECK("propensity"),
    RejectReason.PROPENSITY_NOT_A_NUMBER: WRITE("propensity"),
    RejectReason.PROPENSITY_NOT_FINITE: CHECK("propensity"),
    RejectReason.PROPENSITY_OUT_OF_RANGE: "divide percentages by 100: propensities are above 0, at "
    "most 1",
    RejectReason.TARGET_MISSING: CHECK("target"),
    RejectReason.TARGET_NOT_A_NUMBER: WRITE("target"),
    RejectReason.TARGET_NOT_FINITE: CHECK("target"),
    RejectReason.TARGET_OUT_OF_RANGE: CHECK("target"),
    RejectReason.TIME_MISSING: "name a column of numbers or of ISO 8601 dates with --time",
}


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
    remedy = REMEDIES.get(reason, "correct these rows")  # a file may be of a later version
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
