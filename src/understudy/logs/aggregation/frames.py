"""A log as a lazy frame of any engine: the columns that are read, and which rows are valid.

The rules are those of `validate`. Labels become text after they were counted, because engines
write numbers as text in different ways.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import polars as pl

from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.reject_reasons import REASON
from understudy.logs.schema import ACTION, LOG, PROPENSITY, REWARD, TARGET, Columns, RewardScale
from understudy.logs.validate import (
    TEXTS,
    BoundedColumn,
    Rule,
    all_hold,
    first_reason,
    number_rule,
    require_labels,
    require_numbers,
)

GOOD = "good"
ENGINES = (
    nw.Implementation.POLARS,
    nw.Implementation.DUCKDB,
    nw.Implementation.DASK,
    nw.Implementation.PYSPARK,
)


@dataclass(frozen=True)
class Rows:
    """A lazy frame with the columns `action`, `reward` and, where they are read, `propensity` and

    `target`, and what their numbers must be. Rewards in `scale` become numbers in [0, 1]. `own` are
    columns that were put beside the rows, and need no check.
    """

    frame: nw.LazyFrame[Any]
    numbers: tuple[BoundedColumn, ...]
    scale: RewardScale
    own: tuple[str, ...] = ()

    @property
    def rules(self) -> list[Rule]:
        """What the numbers of a row must be, in the order in which reasons are looked for."""
        return [number_rule(column) for column in self.numbers]

    def clean(self) -> nw.LazyFrame[Any]:
        """All rows, in which every number is null if one of them is not valid."""
        good = all_hold(self.rules)
        values = [
            nw.when(good).then(self._value(column)).alias(column.role) for column in self.numbers
        ]
        return self.frame.select(nw.col(ACTION, *self.own), *values)

    def with_rejected(self, positive: str) -> nw.LazyFrame[Any]:
        """All rows, with numbers that can be computed with, and whether the row is `good`.

        A reward that cannot be used is 1, `positive` is 1 where it is not, other numbers are 0.
        """
        good = all_hold(self.rules).fill_null(False)
        for name in self.own:
            good = good & ~nw.col(name).is_null()
        if positive in self.own:
            good = good & (nw.col(positive) > 0.0)
        instead = {REWARD: 1.0, positive: 1.0}
        values = [
            nw.when(number_rule(column).holds if column.role == REWARD else good)
            .then(self._value(column))
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
        """The rows, each with the table's values for its label; null where the table has none."""
        joined = self.frame.join(_alike(self.frame, table), on=ACTION, how="left")
        own = tuple(name for name in table.columns if name != ACTION)
        return dataclasses.replace(self, frame=joined, own=own)

    def rejected(self) -> nw.LazyFrame[Any]:
        """Of every row whose numbers are not valid, its `action` and the first `reason`."""
        marked = self.frame.select(nw.col(ACTION), first_reason(self.rules, nw))
        return marked.filter(~nw.col(REASON).is_null())

    def _value(self, column: BoundedColumn) -> nw.Expr:
        value: Any = nw.col(column.parsed)
        rescaled: nw.Expr = self.scale.unit(value) if column.role == REWARD else value
        return rescaled


def rows_of(
    frame: Any,
    columns: Columns,
    *,
    reward_range: Sequence[float] | None = None,
    propensities: bool = True,
    target: str | None = None,
) -> Rows:
    """What is read of a native frame: without `propensities` they are not looked at.

    `target` names a column with the target's probability of the logged action.

    >>> log = pl.DataFrame({"action": ["a", "b"], "click": ["5", "many"], "propensity": [0.5, 0.5]})
    >>> rows = rows_of(log, Columns(reward="click"), reward_range=(0, 10))
    >>> rows.clean().collect().to_native().rows()
    [('a', 0.5, 0.5), ('b', None, None)]
    >>> rows.rejected().collect().to_native().rows()
    [('b', 'reward is not a number')]
    """
    scale = RewardScale.from_range(reward_range)
    if columns.eligible is not None:
        raise InvalidArgument(
            "columns.eligible",
            columns.eligible,
            "sets of eligible actions are not read where the order of rows does not matter",
            "leave out --engine and --horizon, or --eligible",
        )
    named = {ACTION: columns.action, REWARD: columns.reward}
    if propensities and columns.propensity is not None:
        named[PROPENSITY] = columns.propensity
    if not propensities:
        columns = dataclasses.replace(columns, propensity=None)
    found = lazy(frame)
    schema = found.collect_schema()
    columns.require(list(schema), LOG)
    if target is not None:
        require_column(list(schema), target, "--target-probability")
        named[TARGET] = target
    shown = found.select(*(_readable(name, schema[name], role) for role, name in named.items()))
    numbers = tuple(
        BoundedColumn.of(role, scale, text=isinstance(schema[name], TEXTS), library=nw)
        for role, name in named.items()
        if role != ACTION
    )
    return Rows(shown.with_columns(*(column.parse() for column in numbers)), numbers, scale)


def lazy(frame: Any) -> nw.LazyFrame[Any]:
    """A native frame of any engine as a lazy one; a frame in memory goes to Polars.

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
    """A column under the name of its role: numbers as doubles, text as text."""
    column = nw.col(name)
    if role == ACTION:
        require_labels(LOG, role, dtype)
    else:
        require_numbers(LOG, role, dtype)
    if isinstance(dtype, nw.Categorical | nw.Enum):
        column = column.cast(nw.String)
    elif role != ACTION and not isinstance(dtype, nw.String | nw.Float64):
        column = column.cast(nw.Float64)
    return column.alias(role)
