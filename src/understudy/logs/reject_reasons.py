"""Why a row of a log is rejected: each rule once, as an expression that every engine computes.

A rule has a reason, and a reason its remedy. A rule reads columns that were parsed before: numbers
as doubles, the index of the action. `validate` applies the rules to batches of a log in order,
`aggregates` to lazy frames. So a rule about numbers is written with what Polars and narwhals have
in common: Polars computes it on batches, where narwhals would translate every expression for every
batch, and narwhals on engines.

Engines differ in what they take for a number. So a text is a number if it reads like a decimal
(`DECIMAL`) once the blanks around it are gone: not `1_000`, `0x1`, `0,5`, nor digits that are not
ASCII. `true` and `false` in any case are 1 and 0. On engines NaN is asked for by name: some hold
it to be above all numbers, as Polars does, for others it is not comparable, and DuckDB takes it for
a number between the bounds that a Parquet file states.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any, Self

import narwhals as nw
import polars as pl

from understudy.constraints import SMALLEST_PROBABILITY
from understudy.errors import InvalidLog, shorten
from understudy.logs.schema import ELIGIBLE, PROPENSITY, REWARD, TARGET, TIME, RewardScale

REASON = "reason"

# Columns that rules read, beside those of the log.
INDEX = "index of the action"  # −1 where it is missing or unknown
LABEL = "label of the action"  # as text, null where it is missing
PLAYABLE = "whether the behavior plays it"
LISTED = "whether it is eligible"

DECIMAL = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
TRUE, FALSE = r"^[tT][rR][uU][eE]$", r"^[fF][aA][lL][sS][eE]$"
NOT_FINITE = r"(?i)^[+-]?(?:nan|inf|infinity)$"
TEXTS = (nw.String, nw.Categorical, nw.Enum)
NO_LABELS = (nw.Binary, nw.Object, nw.Duration)

Expression = Any  # of Polars or of narwhals: the methods that are used here have the same names

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


Fault = tuple[RejectReason, Expression]


@dataclass(frozen=True, eq=False)
class Rule:
    """A condition on every row, true where it `holds`, and why rows are rejected where it does not.

    `faults` are looked at in their order: the first that is true is the reason.
    """

    holds: Expression
    faults: tuple[Fault, ...]


def all_hold(rules: Iterable[Rule]) -> Expression:
    """Whether a row obeys every rule; null where a rule cannot say so."""
    return functools.reduce(lambda a, b: a & b, [rule.holds for rule in rules])


def first_reason(rules: Sequence[Rule], library: ModuleType = pl) -> Expression:
    """The first reason to reject a row, as text; null where it obeys every rule."""
    reason = library.lit(None, dtype=library.String)
    for why, where in reversed([fault for rule in rules for fault in rule.faults]):
        reason = library.when(where).then(library.lit(why.value)).otherwise(reason)
    return reason.alias(REASON)


# ---------------------------------------------------------------------------------------- rules


@dataclass(frozen=True)
class BoundedColumn:
    """A column that holds numbers in [low, high], or `text` that reads as such numbers.

    Its expressions are those of a `library`: Polars, or narwhals for the frames of engines.
    """

    role: str
    low: float
    high: float
    text: bool
    library: ModuleType = pl

    @staticmethod
    def of(role: str, scale: RewardScale, *, text: bool, library: ModuleType = pl) -> BoundedColumn:
        """The column of a role, with the range that its numbers must be in."""
        ranges = {REWARD: (scale.low, scale.high), PROPENSITY: (SMALLEST_PROBABILITY, 1.0)}
        return BoundedColumn(role, *ranges.get(role, (0.0, 1.0)), text, library)

    @property
    def parsed(self) -> str:
        """The name of the column with the numbers that `parse` finds."""
        return f"{self.role} as a number"

    @property
    def raw(self) -> Expression:
        """As it came; of text, without blanks around it, and 1 and 0 for true and false."""
        column = self.library.col(self.role)
        if not self.text:
            return column
        return column.str.strip_chars().str.replace_all(TRUE, "1").str.replace_all(FALSE, "0")

    def parse(self) -> Expression:
        """The number, or null where it is missing or none."""
        found, library = self.raw, self.library
        if self.text:
            found = library.when(found.str.contains(DECIMAL)).then(found).cast(library.Float64)
        return found.alias(self.parsed)


FAULTS = ("MISSING", "NOT_A_NUMBER", "NOT_FINITE", "OUT_OF_RANGE")  # of a number, in this order


@functools.cache
def number_rule(column: BoundedColumn) -> Rule:
    """A number is there, is finite, and is in its range."""
    missing, no_number, not_finite, out_of_range = (
        RejectReason[f"{column.role.upper()}_{fault}"] for fault in FAULTS
    )
    raw, value = column.raw, column.library.col(column.parsed)
    holds = (value >= column.low) & (value <= column.high)
    if column.library is nw:  # for Polars, NaN is above all numbers; not so for every engine
        holds = value.is_finite() & holds
    if not column.text:
        typed = ((missing, raw.is_null()), (not_finite, ~value.is_finite()), (out_of_range, ~holds))
        return Rule(holds, typed)
    spelled = raw.str.contains(NOT_FINITE)
    return Rule(
        holds,
        (
            (missing, raw.is_null() | (raw == "")),
            (no_number, ~raw.str.contains(DECIMAL) & ~spelled),
            (not_finite, ~value.is_finite() | spelled),
            (out_of_range, ~holds),
        ),
    )


@functools.cache
def action_rule(*, closed: bool = True) -> Rule:
    """The action is there and known.

    If the list of actions is not `closed`, it holds those of the valid rows: then "unknown" is no
    reason by itself, and `check` looks for it last.
    """
    known = pl.col(INDEX) >= 0
    missing = (RejectReason.ACTION_MISSING, pl.col(LABEL).is_null())
    unknown = (RejectReason.ACTION_UNKNOWN, ~known)
    return Rule(known, (missing, unknown) if closed else (missing,))


def support_rule() -> Rule:
    """The behavior plays the action with a probability above 0."""
    return Rule(pl.col(PLAYABLE), ((RejectReason.ACTION_IMPOSSIBLE, ~pl.col(PLAYABLE)),))


def eligible_rule() -> Rule:
    """The action is among those that could be played."""
    return Rule(pl.col(LISTED), ((RejectReason.ACTION_NOT_ELIGIBLE, ~pl.col(LISTED)),))


def time_rule() -> Rule:
    """The time could be read."""
    missing = pl.col(TIME).is_null()
    return Rule(~missing, ((RejectReason.TIME_MISSING, missing),))


# ------------------------------------------------------------------------------ types of columns


def require_labels(file: str, role: str, dtype: nw.dtypes.DType, holds: str | None = None) -> None:
    """Raise `InvalidLog` if a column of this type cannot hold labels."""
    if dtype.is_nested() or isinstance(dtype, NO_LABELS):
        raise _wrong_type(file, role, holds or f"{dtype}, not labels")


def require_numbers(file: str, role: str, dtype: nw.dtypes.DType) -> None:
    """Raise `InvalidLog` if a column of this type cannot hold numbers, also as text."""
    plain = dtype.is_numeric() or isinstance(dtype, nw.Boolean | nw.Unknown)  # all null: Unknown
    if not (plain or isinstance(dtype, TEXTS)):
        raise _wrong_type(file, role, f"{dtype}, not numbers")


def _wrong_type(file: str, role: str, holds: str) -> InvalidLog:
    what = "eligible actions" if role == ELIGIBLE else role
    option = "--target-probability" if role == TARGET else f"--{role}"
    reason = f"its column for the {what} holds {holds}"
    return InvalidLog("log", file, reason, f"name another column with {option}")


# ---------------------------------------------------------------------------------------- errors


def counted(reject_counts: Mapping[str, int]) -> str:
    """How many rows were refused for which reason, such as 'reward is missing: 1,200'."""
    return ", ".join(f"{reason}: {count:,}" for reason, count in reject_counts.items())


def remedy_for(reject_counts: Mapping[str, int]) -> str:
    """What to do about the most frequent reason, which is named if there are others.

    >>> remedy_for({"reward is out of range": 3})
    'pass the smallest and largest possible with --reward-range LOW HIGH'
    >>> remedy_for({"target is missing": 1, "reward is not finite": 3})
    'where the reward is not finite, check the column of the reward'
    """
    if not reject_counts:
        return "leave it out"
    reason = max(reject_counts, key=reject_counts.__getitem__)
    known = (one.remedy for one in RejectReason if one == reason)
    remedy = next(known, "correct these rows")  # a file may be of a later version
    return remedy if len(reject_counts) == 1 else f"where the {reason}, {remedy}"


def nothing_left(file: str, reject_counts: Mapping[str, int]) -> InvalidLog:
    """The error for a log of which no row can be learned from.

    >>> print(nothing_left("log.csv", {"propensity is out of range": 3}))
    log = 'log.csv': none of its rows can be learned from (propensity is out of range: 3); ...
    """
    reason = f"none of its rows can be learned from ({counted(reject_counts) or 'there are none'})"
    return InvalidLog("log", file, reason, remedy_for(reject_counts))


def too_few(file: str, label: str, reject_counts: Mapping[str, int]) -> InvalidLog:
    """The error for a log whose valid rows show one action only.

    >>> print(too_few("log.csv", "a", {"reward is not a number": 3}))
    log = 'log.csv': it cannot tell: its valid rows show the action 'a' alone: production was ...
    """
    others = f" (rejected: {counted(reject_counts)})" if reject_counts else ""
    return InvalidLog(
        "log",
        file,
        f"it cannot tell: its valid rows show the action {shorten(label)} alone: production was "
        f"deterministic, or one action is all there is{others}",
        remedy_for(reject_counts) if reject_counts else "name the others in --actions FILE",
    )


def refuse_bad_rows(reject_counts: Mapping[str, int]) -> None:
    """Raise `InvalidLog` if rows were refused: --strict for sums, which do not say which rows.

    >>> refuse_bad_rows({"reward is missing": 3})
    Traceback (most recent call last):
    understudy.errors.InvalidLog: log = '3 rows': reward is missing; correct them, or ...
    """
    for reason, count in reject_counts.items():
        rows = "1 row" if count == 1 else f"{count:,} rows"
        remedy = "correct them, or leave out --strict to quarantine them"
        raise InvalidLog("log", rows, reason, remedy)
