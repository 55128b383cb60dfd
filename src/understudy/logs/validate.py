"""What a valid row of a log is: each rule once, as an expression that every engine computes.

A rule reads columns that were parsed before: numbers as doubles, the index of the action. Batches
of a log in order are parsed and validated here; `frames` applies the same rules to lazy frames. So
a rule about numbers is written with what Polars and narwhals have in common: Polars computes it on
batches, without a translation of every expression for every batch, and narwhals on engines.

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
from types import ModuleType
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from understudy.constraints import SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidLog
from understudy.logs.reject_reasons import REASON, RejectReason
from understudy.logs.schema import (
    ACTION,
    CONTEXT,
    ELIGIBLE,
    FILE,
    PROPENSITY,
    QUARANTINE,
    REWARD,
    ROW,
    TARGET,
    TIME,
    UNKNOWN,
    Actions,
    RewardScale,
    label_text,
)
from understudy.types import Integers, Log

MOST_ACTIONS = 100_000  # that a log may bring up by itself: more are no column of actions
LONGEST = 200  # characters of a value that is quarantined: enough to recognize it

# Columns that rules read, beside those of the log.
INDEX = "index of the action"  # −1 where it is missing or unknown
LABEL = "label of the action"  # as text, null where it is missing
PLAYABLE = "whether the behavior plays it"
LISTED = "whether it is eligible"

DECIMAL = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
TRUE, FALSE = r"^[tT][rR][uU][eE]$", r"^[fF][aA][lL][sS][eE]$"
NOT_FINITE = r"(?i)^[+-]?(?:nan|inf|infinity)$"
TEXTS = (nw.String, nw.Categorical, nw.Enum)
TEXT_TYPES = (pl.String, pl.Categorical, pl.Enum)
NO_LABELS = (nw.Binary, nw.Object, nw.Duration)
# Labels of a list that is text
QUOTED, BETWEEN, WORDS = r'"[^"]*"', r"[^,|;\[\]]+", r"[^\s\[\]]+"

UNIT = RewardScale()
NONE_QUARANTINED = pl.DataFrame(schema=QUARANTINE)

Mask = NDArray[np.bool_]
Expression = Any  # of Polars or of narwhals: the methods that are used here have the same names
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

    If the list of actions is not `closed`, it holds those of the good rows: then "unknown" is no
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


# ----------------------------------------------------------------------------- batches in order


@dataclass(frozen=True, eq=False)
class RowRules:
    """The rules of one log.

    `actions` is None while they are being collected; `closed` says that there are no others.
    `propensities` says whether the log's own are read. `support` marks the actions that a given
    behavior can play.
    """

    actions: Actions | None = None
    scale: RewardScale = UNIT
    propensities: bool = True
    support: Mask | None = None
    closed: bool = True

    def numbers(self, frame: pl.DataFrame) -> dict[str, BoundedColumn]:
        """The columns of a batch that must hold numbers, by role."""
        roles = (REWARD, *([PROPENSITY] if self.propensities else []), TARGET)
        return {
            role: BoundedColumn.of(role, self.scale, text=isinstance(frame[role].dtype, TEXT_TYPES))
            for role in roles
            if role != TARGET or role in frame.columns
        }

    def of(self, frame: pl.DataFrame, numbers: Mapping[str, BoundedColumn]) -> list[Rule]:
        """The rules for a batch, in the order in which reasons are looked for."""
        columns = {role: number_rule(column) for role, column in numbers.items()}
        target = columns.pop(TARGET, None)
        found = [action_rule(closed=self.closed), *columns.values()]
        if self.support is not None:
            found.append(support_rule())
        if ELIGIBLE in frame.columns:
            found.append(eligible_rule())
        if TIME in frame.columns:
            found.append(time_rule())
        if target is not None:
            found.append(target)
        return found if self.closed else [*found, action_rule()]


@dataclass(frozen=True, eq=False)
class Rejected:
    """The rows of a batch that were rejected, and where they stood: `good` marks all its rows.

    `rewards` are those of the rejected rows, 1 where a row has no usable one; `actions` their
    indices, −1 where a row has none.
    """

    good: Mask
    actions: Integers
    rewards: Array

    def after(self, rows: int) -> Rejected:
        """Without the first good rows and what stands before and among them."""
        start = int(np.flatnonzero(self.good)[rows - 1]) + 1 if rows else 0
        skipped = int((~self.good[:start]).sum())
        return Rejected(self.good[start:], self.actions[skipped:], self.rewards[skipped:])


@dataclass(frozen=True, eq=False)
class ValidatedBatch:
    """The valid rows of a batch, and the quarantined ones.

    `files` counts the rows of each file. `frame` holds the valid rows as they came; `actions` their
    indices, if the labels are known. `rejected` is None if all rows are valid.
    """

    files: Mapping[str, int]
    frame: pl.DataFrame
    actions: Integers
    rewards: Array
    propensities: Array | None
    quarantined: pl.DataFrame
    rejected: Rejected | None = None

    def __len__(self) -> int:
        return len(self.rewards)

    def after(self, rows: int) -> ValidatedBatch:
        """Without the first valid rows."""
        q = None if self.propensities is None else self.propensities[rows:]
        frame, actions, rewards = self.frame[rows:], self.actions[rows:], self.rewards[rows:]
        rejected = None if self.rejected is None else self.rejected.after(rows)
        return ValidatedBatch(self.files, frame, actions, rewards, q, self.quarantined, rejected)

    def log(self, features: Array | None = None) -> Log:
        return Log._of(self.actions, self.rewards, self.propensities, features)  # checked already

    def targets(self) -> Array:
        """The probability of each logged action under the user's own policy."""
        column = self.frame[TARGET]
        text = isinstance(column.dtype, TEXT_TYPES)
        return _as_array(_parsed(BoundedColumn.of(TARGET, UNIT, text=text), column))

    def reasons(self) -> list[str]:
        """Why rows were rejected, one reason each."""
        return self.quarantined[REASON].to_list()

    def contexts(self) -> pl.DataFrame:
        return self.frame.select(name for name in self.frame.columns if name.startswith(CONTEXT))


def check(file: str, frame: pl.DataFrame, rules: RowRules) -> ValidatedBatch:
    """Split a batch into rows that obey the rules and rows that do not, with reasons.

    >>> frame = pl.DataFrame({"row": [1, 2], "action": ["a", "b"], "reward": ["0.5", "1e9"]})
    >>> checked = check("log.csv", frame, RowRules(Actions(("a", "b")), propensities=False))
    >>> checked.rewards.tolist(), checked.quarantined["reason"].to_list()
    ([0.5], ['reward is out of range'])
    """
    numbers = rules.numbers(frame)
    each = rules.of(frame, numbers)
    parsed, actions = _parse(file, frame, rules, numbers)
    holds = parsed.select(all_hold(each)).to_series()
    rewards = _as_array(parsed[numbers[REWARD].parsed])
    q = _as_array(parsed[numbers[PROPENSITY].parsed]) if rules.propensities else None
    files = {file: len(frame)}
    if FILE in frame.columns:
        files = dict(frame.group_by(FILE, maintain_order=True).len().rows())
    if holds.all(ignore_nulls=False):
        unit = rules.scale.unit(rewards)
        return ValidatedBatch(files, frame, actions, unit, q, NONE_QUARANTINED)
    good = _as_mask(holds)
    bad = parsed.filter(~good)
    usable = good.copy()
    usable[~good] = _as_mask(bad.select(number_rule(numbers[REWARD]).holds).to_series())
    unit = rules.scale.unit(np.where(usable, rewards, rules.scale.high))
    return ValidatedBatch(
        files,
        frame.filter(good),
        actions[good],
        unit[good],
        None if q is None else q[good],
        _quarantined(file, bad, each),
        Rejected(good, actions[~good], unit[~good]),
    )


def _as_mask(holds: pl.Series) -> Mask:
    """The rows of which a condition is true."""
    return holds.fill_null(value=False).to_numpy()


def _parse(
    file: str, frame: pl.DataFrame, rules: RowRules, numbers: Mapping[str, BoundedColumn]
) -> tuple[pl.DataFrame, Integers]:
    """The batch with the columns that the rules read, and the index of each action."""
    require_labels(file, ACTION, _dtype(frame[ACTION].dtype))
    for role in numbers:
        require_numbers(file, role, _dtype(frame[role].dtype))
    found = [_parsed(column, frame[role]) for role, column in numbers.items()]
    if rules.actions is None:  # any label is an action
        labels, actions = frame[ACTION], np.zeros(len(frame), dtype=np.int64)
        if not labels.dtype.is_integer():
            labels = labels_of(labels)
        if labels.null_count():
            actions[labels.is_null().to_numpy()] = UNKNOWN
    else:
        actions = rules.actions.indices(frame[ACTION])
    found.append(pl.Series(INDEX, actions))
    if rules.support is not None:
        found.append(pl.Series(PLAYABLE, rules.support[np.maximum(actions, 0)]))
    if ELIGIBLE in frame.columns:
        found.append(_listed(file, frame))
    return frame.hstack(found), actions


def _parsed(column: BoundedColumn, values: pl.Series) -> pl.Series:
    """What `BoundedColumn.parse` finds. Only text that Polars cannot cast needs a closer look.

    >>> rewards = pl.Series("reward", ["1", " 0.5", "one", "true", None])
    >>> _parsed(BoundedColumn.of("reward", UNIT, text=True), rewards).to_list()
    [1.0, 0.5, None, 1.0, None]
    """
    if not column.text:
        found = values if values.dtype == pl.Float64 else values.cast(pl.Float64, strict=False)
        return found.alias(column.parsed)
    text = values if values.dtype == pl.String else values.cast(pl.String)
    found = text.str.strip_chars().cast(pl.Float64, strict=False).alias(column.parsed)
    if found.null_count() == text.null_count():
        return found
    failed = found.is_null() & text.is_not_null()
    rest = text.filter(failed).to_frame(column.role).select(column.parse())
    return found.scatter(failed.arg_true(), rest.to_series())


def _as_array(values: pl.Series) -> Array:
    return np.asarray(values.to_numpy(), dtype=np.float64)  # nan where it is null


def labels_of(column: pl.Series) -> pl.Series:
    """The labels of a column as text, null where there is none."""
    return column.to_frame(LABEL).select(label_text(pl.col(LABEL), column.dtype)).to_series()


def _listed(file: str, frame: pl.DataFrame) -> pl.Series:
    """Whether each action is among those that were eligible; a missing list allows all."""
    kind, among = frame[ELIGIBLE].dtype, pl.col(ELIGIBLE)
    inner: Any = getattr(kind, "inner", kind)
    require_labels(file, ELIGIBLE, _dtype(inner), f"{kind}, not lists of labels")
    if isinstance(kind, pl.List | pl.Array):
        lists = among.arr.to_list() if isinstance(kind, pl.Array) else among
        listed = lists.list.eval(label_text(pl.element(), inner))
    else:
        listed = _labels_in(label_text(among, kind))
    label = label_text(pl.col(ACTION), frame[ACTION].dtype)
    inside = frame.select(listed.list.contains(label).fill_null(value=True).alias(LISTED))
    return inside.to_series()


def _labels_in(text: pl.Expr) -> pl.Expr:
    """The labels that a text lists: in quotes if it has any, else between signs, else words."""
    quoted = text.str.extract_all(QUOTED).list.eval(pl.element().str.strip_chars('"'))
    between = text.str.extract_all(BETWEEN).list.eval(pl.element().str.strip_chars(" '"))
    return (
        pl.when(text.str.contains(QUOTED))
        .then(quoted)
        .when(text.str.contains("[,|;]"))
        .then(between)
        .otherwise(text.str.extract_all(WORDS))
    )


def _quarantined(file: str, bad: pl.DataFrame, rules: Sequence[Rule]) -> pl.DataFrame:
    """The rejected rows as they are written, each with its reason."""
    categories = pl.selectors.by_dtype(pl.Categorical, pl.Enum)
    readable = bad.with_columns(labels_of(bad[ACTION]), categories.cast(pl.String))
    why = readable.select(first_reason(rules)).to_series()
    kept = {
        name: pl.col(name).cast(pl.String, strict=False).str.slice(0, LONGEST)
        if name in bad.columns
        else pl.lit(None, dtype=pl.String)
        for name in (ACTION, REWARD, PROPENSITY)
    }
    return bad.select(
        pl.col(FILE) if FILE in bad.columns else pl.lit(file).alias(FILE),
        pl.col(ROW).cast(pl.Int64),
        why,
        **kept,
    )


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


@functools.cache  # batches of a log have the same types
def _dtype(dtype: pl.DataType) -> nw.dtypes.DType:
    return nw.from_native(pl.Series(dtype=dtype), series_only=True).dtype
