"""The rules of a valid row, each once, as expressions that every engine computes.

A rule has reasons for rejecting a row, and a reason has its remedy. Rules read columns that were
parsed before: numbers as doubles, the index of the action. `validate` applies the rules to batches
in order, `aggregates` to lazy frames. So a rule about numbers uses only methods that Polars and
narwhals have in common: Polars computes it on batches, where narwhals would translate every
expression for every batch, and narwhals computes it on engines.

Engines disagree about which texts are numbers. Here a text is a number if it is a decimal
(`DECIMAL`) with blanks around it: not `1_000`, `0x1`, `0,5`, nor digits that are not ASCII. `true`
and `false` in any case are 1 and 0. On engines a rule tests for NaN explicitly: Polars and some
others order it above all numbers, for others it is not comparable, and DuckDB takes it for a number
between the bounds that a Parquet file states.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any, Self

import narwhals as nw
import numpy as np
import polars as pl

from understudy.constraints import SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidLog, shorten
from understudy.logs.schema import (
    ELIGIBLE,
    FILE,
    ID,
    LOG,
    METRIC,
    PROPENSITY,
    REWARD,
    ROLE_OPTIONS,
    TIME,
    UNIT_FAULT,
    RewardScale,
)

REASON = "reason"

# Columns that rules read, beside those of the log.
INDEX = "index of the action"  # −1 where it is missing or unknown
LABEL = "label of the action"  # as text, null where it is missing
PLAYABLE = "whether the behavior plays it"
LISTED = "whether it is eligible"
VECTOR_FAULT = "fault of the propensity vector"  # a reason, or null

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
        """Make a member: its value is the text, and `remedy` belongs to it."""
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
    REWARD_MISSING = (
        "reward is missing",
        "check the column of the reward (where there was none, write 0)",
    )
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
        "correct them: propensities are above 0, at most 1 (divide percentages by 100)",
    )
    VECTOR_MISSING = (
        "propensity vector is missing",
        "give every row the propensities of all actions, or pass --propensity-vector none",
    )
    VECTOR_UNREADABLE = (
        "propensity vector is not readable",
        "write it as a list of numbers, or as a mapping from labels to numbers: in text as JSON",
    )
    VECTOR_WITHOUT_ORDER = (
        "propensity vector has no labels",
        "declare the actions in the order of the list with --actions, or write it as a mapping "
        "from labels to numbers",
    )
    VECTOR_WRONG_LENGTH = (
        "propensity vector has another length",
        "a list has one number for each action of --actions, in their order, and p of dsjson one "
        "for each action in a",
    )
    VECTOR_NO_PROBABILITIES = (
        "propensity vector has numbers that are no probabilities",
        "correct them: propensities are from 0 to 1 (divide percentages by 100)",
    )
    VECTOR_WRONG_SUM = (
        "propensity vector does not sum to 1",
        "give the propensities of all actions with at least six digits, or pass "
        "--propensity-vector none",
    )
    VECTOR_UNKNOWN_ACTION = (
        "propensity vector has an unknown action",
        "compare its labels with those of --actions FILE, or of the policy that --resume goes on "
        "from: no others are known",
    )
    VECTOR_WITHOUT_ACTION = (
        "propensity vector gives the action no propensity",
        "give the action that was played its propensity: see whether labels are spelled alike, and "
        "whether the order of a list is that of --actions",
    )
    VECTOR_CONTRADICTS = (
        "propensity vector contradicts the propensity",
        "see whether the order of a list is that of --actions: the vector's entry for the action "
        "that was played must be the propensity",
    )
    PROPENSITY_BELOW_LEAST = (
        "propensity is below the least one",
        "declare a smaller one with --least-propensity, or none if some actions could not be "
        "played in some rows",
    )
    PROPENSITY_CONTRADICTS = (
        "propensity contradicts the least one",
        "declare a smaller one with --least-propensity, or none if some actions could not be "
        "played in some rows",
    )
    TARGET_MISSING = "target is missing", CHECK("target")
    TARGET_NOT_A_NUMBER = "target is not a number", WRITE("target")
    TARGET_NOT_FINITE = "target is not finite", CHECK("target")
    TARGET_OUT_OF_RANGE = "target is out of range", CHECK("target")
    EXPERT_MISSING = "expert is missing", CHECK("expert")
    EXPERT_NOT_A_NUMBER = "expert is not a number", WRITE("expert's probability")
    EXPERT_NOT_FINITE = "expert is not finite", CHECK("expert")
    EXPERT_OUT_OF_RANGE = (
        "expert is out of range",
        "an expert's column has its probability of the logged action, from 0 to 1",
    )
    TIME_MISSING = (
        "time is missing or not a time",
        "name a column of numbers or of ISO 8601 dates with --time",
    )
    ID_MISSING = "id is missing", CHECK("id")
    UNIT_MISSING = "unit is missing", CHECK("unit")
    UNIT_CHANGES = (
        "action of the unit changes",
        "name the column for whose values actions are drawn once, with --unit; if production drew "
        "one in every row, pass --no-unit instead",
    )
    ID_REPEATED = (
        "id came before",
        "leave out --id if rows with the same id are separate decisions",
    )


# Such a row may be of any action, so that an estimated behavior is not reliable.
WITHOUT_ACTION = (RejectReason.ACTION_MISSING, RejectReason.ACTION_UNKNOWN)
AGAINST_LEAST = (RejectReason.PROPENSITY_BELOW_LEAST, RejectReason.PROPENSITY_CONTRADICTS)


def without_copies(reject_counts: Mapping[str, int]) -> dict[str, int]:
    """The rejected rows that count in certificates: a copy of a row by its id is no decision."""
    return {why: n for why, n in reject_counts.items() if why != RejectReason.ID_REPEATED}


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
        """The name of the column that `parse` makes."""
        return f"{self.role} as a number"

    @property
    def raw(self) -> Expression:
        """The column as it came; text without blanks around it, with 1 and 0 for true and false."""
        column = self.library.col(self.role)
        if not self.text:
            return column
        return column.str.strip_chars().str.replace_all(TRUE, "1").str.replace_all(FALSE, "0")

    def parse(self) -> Expression:
        """The numbers, null where a value is missing or no number."""
        value, library = self.raw, self.library
        if self.text:
            value = library.when(value.str.contains(DECIMAL)).then(value).cast(library.Float64)
        return value.alias(self.parsed)


def parse_numbers(column: BoundedColumn, values: pl.Series) -> pl.Series:
    """The numbers of `BoundedColumn.parse`, faster.

    Text that Polars cannot cast is tried again: first without blanks around it, then by the rule.
    """
    if not column.text:
        numbers = values if values.dtype == pl.Float64 else values.cast(pl.Float64, strict=False)
        return numbers.alias(column.parsed)
    text = values if values.dtype == pl.String else values.cast(pl.String)
    numbers = text.cast(pl.Float64, strict=False).alias(column.parsed)
    for expression in (pl.col(column.role).str.strip_chars(), column.parse()):
        if numbers.null_count() == text.null_count():
            break
        failed = numbers.is_null() & text.is_not_null()
        rest = text.filter(failed).to_frame(column.role).select(expression).to_series()
        numbers = numbers.scatter(failed.arg_true(), rest.cast(pl.Float64, strict=False))
    return numbers


def metric_values(frame: pl.DataFrame, name: str) -> Array:
    """The numbers in the column of a metric, nan where one is missing or is no number."""
    column = frame[name]
    require_numbers(LOG, name, narwhals_type(column.dtype))
    text = isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum)
    numbers = parse_numbers(BoundedColumn(name, 0.0, 1.0, text), column)
    return np.asarray(numbers.to_numpy(), dtype=np.float64)  # nan where it is null


FAULTS = ("MISSING", "NOT_A_NUMBER", "NOT_FINITE", "OUT_OF_RANGE")  # of a number, in this order


@functools.cache
def number_rule(column: BoundedColumn) -> Rule:
    """The rule that a number is present, finite and in its range."""
    missing, no_number, not_finite, out_of_range = (
        RejectReason[f"{column.role.partition('.')[0].upper()}_{fault}"] for fault in FAULTS
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
def limit_rule(column: BoundedColumn, low: float, high: float) -> Rule:
    """The rule that a propensity does not contradict the least one that was declared."""
    value = column.library.col(column.parsed)
    return Rule((value >= low) & (value <= high), limit_faults(value, low, high))


def limit_faults(value: Any, low: float, high: float) -> tuple[tuple[RejectReason, Any], ...]:
    """What a propensity contradicts, if it is out of the `Logged.range` from `low` to `high`.

    The propensity is a number or an expression, and so is whether a fault is there.

    >>> [reason.value for reason, there in limit_faults(0.05, 0.1, 0.9) if there]
    ['propensity is below the least one']
    """
    return (
        (RejectReason.PROPENSITY_BELOW_LEAST, value < low),
        (RejectReason.PROPENSITY_CONTRADICTS, value > high),
    )


@functools.cache
def action_rule(*, closed: bool = True) -> Rule:
    """The rule that an action is present and known.

    A list of actions that is not `closed` has those of the valid rows. A row of an unknown action
    then breaks another rule too, and `check` looks for "unknown" last.
    """
    known = pl.col(INDEX) >= 0
    missing = (RejectReason.ACTION_MISSING, pl.col(LABEL).is_null())
    unknown = (RejectReason.ACTION_UNKNOWN, ~known)
    return Rule(known, (missing, unknown) if closed else (missing,))


def _simple(reason: RejectReason, holds: pl.Expr) -> Rule:
    return Rule(holds, ((reason, ~holds),))


SUPPORT_RULE = _simple(RejectReason.ACTION_IMPOSSIBLE, pl.col(PLAYABLE))
ELIGIBLE_RULE = _simple(RejectReason.ACTION_NOT_ELIGIBLE, pl.col(LISTED))
VECTOR_FAULTS = (
    *(reason for reason in RejectReason if reason.name.startswith("VECTOR_")),
    RejectReason.PROPENSITY_CONTRADICTS,
)  # in the order in which they are looked for
VECTOR_RULE = Rule(
    pl.col(VECTOR_FAULT).is_null(),
    tuple((reason, pl.col(VECTOR_FAULT) == reason.value) for reason in VECTOR_FAULTS),
)
TIME_RULE = _simple(RejectReason.TIME_MISSING, pl.col(TIME).is_not_null())
ID_RULE = _simple(RejectReason.ID_MISSING, pl.col(ID).is_not_null())
OF_UNITS = (
    RejectReason.UNIT_MISSING,
    RejectReason.UNIT_CHANGES,
    *(RejectReason[f"REWARD_{fault}"] for fault in FAULTS),
)
UNIT_RULE = Rule(
    pl.col(UNIT_FAULT).is_null(),
    tuple((reason, pl.col(UNIT_FAULT) == reason.value) for reason in OF_UNITS),
)


# ------------------------------------------------------------------------------ types of columns


def rows_by_file(file: str, frame: pl.DataFrame) -> dict[str, int]:
    """The number of rows of a batch by file."""
    if FILE not in frame.columns:
        return {file: len(frame)}
    return dict(frame.group_by(FILE, maintain_order=True).len().rows())


@functools.cache  # batches of a log have the same types
def narwhals_type(dtype: pl.DataType) -> nw.dtypes.DType:
    """The type of a column in the terms of narwhals."""
    return nw.from_native(pl.Series(dtype=dtype), series_only=True).dtype


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
    reason = f"its column for the {what} holds {holds}"
    option = "--guardrail" if role.startswith(METRIC) else ROLE_OPTIONS.get(role, "--expert")
    return InvalidLog("log", file, reason, f"name another column with {option}")


# ---------------------------------------------------------------------------------------- errors


def list_reasons(reject_counts: Mapping[str, int]) -> str:
    """The rejected rows by reason as text, such as 'reward is missing: 1,200'."""
    return ", ".join(f"{reason}: {count:,}" for reason, count in reject_counts.items())


def remedy_for(reject_counts: Mapping[str, int]) -> str:
    """The remedy of the most frequent reason, with the reason if there are others."""
    if not reject_counts:
        return "leave it out"
    reason = max(reject_counts, key=reject_counts.__getitem__)
    remedies = (known.remedy for known in RejectReason if known == reason)
    remedy = next(remedies, "correct these rows")  # a file may be of a later version
    return remedy if len(reject_counts) == 1 else f"where the {reason}, {remedy}"


def nothing_left(file: str, reject_counts: Mapping[str, int]) -> InvalidLog:
    """The error for a log without valid rows."""
    reason = (
        f"none of its rows can be learned from ({list_reasons(reject_counts) or 'there are none'})"
    )
    return InvalidLog("log", file, reason, remedy_for(reject_counts))


def too_few(file: str, label: str, reject_counts: Mapping[str, int]) -> InvalidLog:
    """The error for a log whose valid rows show only one action."""
    alone = f"show the action {shorten(label)} alone"
    if reject_counts:  # the cause first: rows of the other actions may be among these
        rows = sum(reject_counts.values())
        reason = (
            f"{rows:,} of its rows {'is' if rows == 1 else 'are'} rejected "
            f"({list_reasons(reject_counts)}), and the others {alone}"
        )
        return InvalidLog("log", file, reason, remedy_for(reject_counts))
    reason = f"it cannot tell: its rows {alone}: production was deterministic, or one action is all"
    return InvalidLog("log", file, f"{reason} there is", "name the others in --actions FILE")


def refuse_rejected_rows(reject_counts: Mapping[str, int]) -> None:
    """Raise `InvalidLog` if rows were rejected: --strict for sums, which do not identify rows."""
    for reason, count in reject_counts.items():
        rows = "1 row" if count == 1 else f"{count:,} rows"
        remedy = "correct them, or leave out --strict to quarantine them"
        raise InvalidLog("log", rows, reason, remedy)
