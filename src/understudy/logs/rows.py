"""Rows of a log in a frame of any engine: which of them are good, and why the others are not.

Everything is a narwhals expression, so that Polars, DuckDB, Dask and PySpark compute the same. What
they differ in is avoided: numbers that are written as text are recognised by their characters
before they are cast, NaN is asked for by name (for some it is above all numbers, for others not
comparable, and DuckDB takes it for what lies between the bounds that a Parquet file states), and
labels become text when they have been counted.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import polars as pl

from understudy.constraints import SMALLEST_PROBABILITY, Constraint, Refused, number
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.schema import ACTION, PROPENSITY, REWARD, TARGET, Columns

__all__ = ["GOOD", "REWARD_RANGE", "Rows", "lazy", "require_column", "rows_of"]

REASON, GOOD = "reason", "good"
DECIMAL = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
TRUE, FALSE = r"^[tT][rR][uU][eE]$", r"^[fF][aA][lL][sS][eE]$"
NOT_FINITE = r"(?i)^[+-]?(?:nan|inf|infinity)$"
ENGINES = (
    nw.Implementation.POLARS,
    nw.Implementation.DUCKDB,
    nw.Implementation.DASK,
    nw.Implementation.PYSPARK,
)
TEXTS = (nw.String, nw.Categorical, nw.Enum)

FINITE = number(-math.inf, math.inf, "")


def _range(value: Any) -> tuple[float, float]:
    try:
        low, high = value
    except (TypeError, ValueError):
        raise Refused("it must be two numbers, the lowest and the highest reward") from None
    try:
        low, high = FINITE("low", low), FINITE("high", high)
    except InvalidArgument as refusal:
        raise Refused(f"{refusal.argument} is {refusal.value!r}, and {refusal.reason}") from None
    if not (low < high and math.isfinite(high - low)):
        raise Refused("the lowest reward must be below the highest")
    return low, high


REWARD_RANGE = Constraint(
    "pass (low, high), such as (0, 1)",
    _range,
    (None, 1.0, (0.0,), (1.0, 0.0), (0.5, 0.5), (0.0, math.nan), (-math.inf, 0.0), "01", "ab"),
)


@dataclass(frozen=True)
class Numbers:
    """A column that holds numbers, or should: as they came, and as they are read."""

    role: str
    low: float
    high: float
    text: bool

    @property
    def raw(self) -> nw.Expr:
        """As it came; of text, without blanks around it, and 1 and 0 for true and false."""
        column = nw.col(self.role)
        if not self.text:
            return column
        return column.str.strip_chars().str.replace_all(TRUE, "1").str.replace_all(FALSE, "0")

    @property
    def value(self) -> nw.Expr:
        """The number, or null where it is missing or none."""
        raw = self.raw
        return nw.when(raw.str.contains(DECIMAL)).then(raw).cast(nw.Float64) if self.text else raw

    @property
    def good(self) -> nw.Expr:
        """Whether the number is there, finite, and in its range."""
        return self.value.is_finite() & self.value.is_between(self.low, self.high)

    def reasons(self) -> list[tuple[str, nw.Expr]]:
        """What may be wrong with it, and in which rows it is; the first reason counts."""
        raw, value = self.raw, self.value
        infinite = ~value.is_finite()
        wrong = [("is missing", (raw.is_null() | (raw == "")) if self.text else raw.is_null())]
        if self.text:
            infinite = infinite | raw.str.contains(NOT_FINITE)
            neither = ~raw.str.contains(DECIMAL) & ~raw.str.contains(NOT_FINITE)
            wrong.append(("is not a number", neither))
        wrong += [("is not finite", infinite), ("is out of range", ~self.good)]
        return [(f"{self.role} {reason}", where) for reason, where in wrong]


@dataclass(frozen=True)
class Rows:
    """A lazy frame with the columns `action`, `reward` and, where they are read, `propensity` and

    `target`, and what their numbers must be. Rewards in `reward_range` become numbers in [0, 1].
    `own` are columns that were put beside the rows, and need no check.
    """

    frame: nw.LazyFrame[Any]
    numbers: tuple[Numbers, ...]
    reward_range: tuple[float, float]
    own: tuple[str, ...] = ()

    def clean(self) -> nw.LazyFrame[Any]:
        """All rows, in which every number is null if one of them is not good."""
        good = functools.reduce(lambda a, b: a & b, [column.good for column in self.numbers])
        values = [
            nw.when(good).then(self._rescaled(column)).alias(column.role) for column in self.numbers
        ]
        return self.frame.select(nw.col(ACTION, *self.own), *values)

    def witnessed(self, positive: str) -> nw.LazyFrame[Any]:
        """All rows, with numbers that can be computed with, and whether the row is `good`.

        A reward that cannot be used is 1, what is `positive` is 1 where it is not, other numbers 0.
        """
        own = [~nw.col(name).is_null() for name in self.own]
        if positive in self.own:
            own.append(nw.col(positive) > 0.0)
        checks = [column.good.fill_null(False) for column in self.numbers]
        good = functools.reduce(lambda a, b: a & b, [*checks, *own])
        instead = {REWARD: 1.0, positive: 1.0}
        values = [
            nw.when(column.good if column.role == REWARD else good)
            .then(self._rescaled(column))
            .otherwise(instead.get(column.role, 0.0))
            .alias(column.role)
            for column in self.numbers
        ]
        safe = [
            nw.when(good).then(nw.col(name)).otherwise(instead.get(name, 0.0)).alias(name)
            for name in self.own
        ]
        return self.frame.select(*values, *safe, good.alias(GOOD))

    def beside(self, table: pl.DataFrame) -> Rows:
        """The rows, each with what a small table says of its label; null where it says nothing."""
        joined = self.frame.join(_alike(self.frame, table), on=ACTION, how="left")
        own = tuple(name for name in table.columns if name != ACTION)
        return dataclasses.replace(self, frame=joined, own=own)

    def reasons(self) -> list[tuple[str, nw.Expr]]:
        """What may be wrong with a row, in the order in which it is looked for."""
        return [reason for column in self.numbers for reason in column.reasons()]

    def refused(self) -> nw.LazyFrame[Any]:
        """Of every row that is not good its `action` and the first `reason` why."""
        reason = nw.lit(None, dtype=nw.String)
        for words, where in reversed(self.reasons()):
            reason = nw.when(where).then(nw.lit(words)).otherwise(reason)
        marked = self.frame.select(nw.col(ACTION), reason.alias(REASON))
        return marked.filter(~nw.col(REASON).is_null())

    def _rescaled(self, column: Numbers) -> nw.Expr:
        low, high = self.reward_range
        if column.role != REWARD or (low, high) == (0.0, 1.0):
            return column.value
        return (column.value - low) / (high - low)


def rows_of(
    frame: Any,
    columns: Columns,
    *,
    reward_range: tuple[float, float] = (0.0, 1.0),
    propensities: bool = True,
    target: str | None = None,
) -> Rows:
    """What is read of a native frame: without `propensities` they are not looked at.

    `target` names a column with the target's probability of the logged action.

    >>> import polars as pl
    >>> log = pl.DataFrame({"action": ["a", "b"], "click": ["5", "many"], "propensity": [0.5, 0.5]})
    >>> rows = rows_of(log, Columns(reward="click"), reward_range=(0, 10))
    >>> rows.clean().collect().to_native().rows()
    [('a', 0.5, 0.5), ('b', None, None)]
    >>> rows.refused().collect().to_native().rows()
    [('b', 'reward is not a number')]
    """
    low, high = REWARD_RANGE("reward_range", reward_range)
    if columns.eligible is not None:
        raise InvalidArgument(
            "columns.eligible",
            columns.eligible,
            "sets of eligible actions are not read where the order of rows does not matter",
            "leave out --engine and --horizon, or --eligible",
        )
    if not propensities:
        columns = dataclasses.replace(columns, propensity=None)
    named = {ACTION: columns.action, REWARD: columns.reward}
    ranges = {REWARD: (low, high)}
    if columns.propensity is not None:
        named[PROPENSITY] = columns.propensity
        ranges[PROPENSITY] = (SMALLEST_PROBABILITY, 1.0)
    if target is not None:
        named[TARGET] = target
        ranges[TARGET] = (0.0, 1.0)
    found = lazy(frame)
    schema = found.collect_schema()
    columns.require(list(schema), "log")
    if target is not None:
        require_column(list(schema), target, "--target-probability")
    shown = found.select(*(_readable(name, schema[name], role) for role, name in named.items()))
    numbers = tuple(
        Numbers(role, *ranges[role], text=isinstance(schema[named[role]], TEXTS)) for role in ranges
    )
    return Rows(shown, numbers, (low, high))


def lazy(frame: Any) -> nw.LazyFrame[Any]:
    """A native frame of any engine as a lazy one; what is in memory goes to Polars.

    >>> lazy({"action": [1]})
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: frame = {'action': [1]}: it is no frame of an engine ...
    """
    try:
        found = nw.from_native(frame)
    except TypeError:
        found = None
    if isinstance(found, nw.DataFrame):
        return lazy(found.to_polars().lazy())
    if found is None or found.implementation not in ENGINES:
        raise InvalidArgument(
            "frame",
            frame,
            "it is no frame of an engine that is known here",
            "pass one of Polars, DuckDB, Dask, PySpark, pandas or PyArrow",
        )
    lazily: nw.LazyFrame[Any] = found
    return lazily


def _alike(frame: nw.LazyFrame[Any], table: pl.DataFrame) -> nw.LazyFrame[Any]:
    """A small table as a lazy frame of the same engine, so that the two can be joined."""
    native, engine = frame.to_native(), frame.implementation
    made: Any
    if engine.is_polars():
        made = table.lazy()
    elif engine.is_duckdb():
        small = table.to_arrow()  # noqa: F841 - found by its name, in the connection of the frame
        made = native.query("log", "SELECT * FROM small")
    elif engine.is_dask():
        dataframe: Any = importlib.import_module("dask.dataframe")
        pandas = table.to_pandas().astype({ACTION: native.dtypes[ACTION]})
        made = dataframe.from_pandas(pandas, npartitions=1)
    else:
        made = native.sparkSession.createDataFrame(table.to_arrow())
    return lazy(made)


def require_column(found: list[str], name: str, option: str) -> None:
    """Raise `InvalidLog` if a frame has not this column.

    >>> require_column(["item"], "action", "--action")
    Traceback (most recent call last):
    understudy.errors.InvalidLog: log = ['item']: it has no column 'action', only these; name ...
    """
    if name not in found:
        reason = f"it has no column {name!r}, only these"
        raise InvalidLog("log", found, reason, f"name the right one with {option}")


def _readable(name: str, dtype: nw.dtypes.DType, role: str) -> nw.Expr:
    """A column under its name in here: numbers as doubles, text as text."""
    column = nw.col(name)
    if isinstance(dtype, nw.Categorical | nw.Enum):
        column = column.cast(nw.String)
    elif role == ACTION:
        if dtype.is_nested() or isinstance(dtype, nw.Binary | nw.Object):
            raise _wrong_type(name, dtype, role, "labels")
    elif not isinstance(dtype, nw.String):
        if not (dtype.is_numeric() or isinstance(dtype, nw.Boolean)):
            raise _wrong_type(name, dtype, role, "numbers")
        if not isinstance(dtype, nw.Float64):
            column = column.cast(nw.Float64)
    return column.alias(role)


def _wrong_type(name: str, dtype: nw.dtypes.DType, role: str, wanted: str) -> InvalidLog:
    option = "--target-probability" if role == TARGET else f"--{role}"
    return InvalidLog(
        "log",
        f"{name}: {dtype}",
        f"it cannot hold {wanted}",
        f"name the right column with {option}",
    )
