"""Sums per action from a frame of any engine: one pass, and another only if rows are refused.

Which rows are valid is said by the rules of `validate`. Labels become text after they were counted,
because engines write numbers as text in different ways.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from understudy.constraints import SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidArgument
from understudy.logs.action_files import behavior_vector
from understudy.logs.aggregation.engines import alike, lazy
from understudy.logs.reject_reasons import (
    INDEX,
    LABEL,
    PLAYABLE,
    REASON,
    TEXTS,
    BoundedColumn,
    Rule,
    action_rule,
    all_hold,
    first_reason,
    nothing_left,
    number_rule,
    require_labels,
    require_numbers,
    support_rule,
    too_few,
)
from understudy.logs.schema import (
    ACTION,
    LOG,
    PROPENSITY,
    REWARD,
    TARGET,
    UNKNOWN,
    Actions,
    Columns,
    RewardScale,
)
from understudy.logs.statistics import ActionStatistics, LogStatistics
from understudy.logs.validate import MOST_ACTIONS, labels_of
from understudy.types import Integers, read_only

ROWS, GOOD = "rows", "good"


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
        joined = self.frame.join(alike(self.frame, table), on=ACTION, how="left")
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
) -> Rows:
    """What is read of a native frame: without `propensities` they are not looked at.

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
    if not propensities:
        columns = dataclasses.replace(columns, propensity=None)
    found = lazy(frame)
    schema = found.collect_schema()
    columns.require(list(schema), LOG)
    read = {REWARD: columns.reward, PROPENSITY: columns.propensity, TARGET: columns.target}
    named = {role: name for role, name in read.items() if name is not None}
    numbers = tuple(
        BoundedColumn.of(role, scale, text=isinstance(schema[name], TEXTS), library=nw)
        for role, name in named.items()
    )
    shown = found.select(
        _readable(columns.action, schema[columns.action], ACTION),
        *(_readable(name, schema[name], role) for role, name in named.items()),
    )
    return Rows(shown.with_columns(*(column.parse() for column in numbers)), numbers, scale)


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


@dataclass(frozen=True, eq=False)
class Groups:
    """A table with a row for each label of a log, which action each is, and what was refused.

    `table` has the label as it came, `rows`, `good` rows, and sums; `indices` is −1 where the label
    is no action.
    """

    actions: Actions
    table: pl.DataFrame
    indices: Integers
    refused: dict[str, int]

    @property
    def counts(self) -> Integers:
        """The good rows of every action."""
        return read_only(self.sums(GOOD).astype(np.int64))

    @property
    def rounds(self) -> int:
        """The good rows of all actions."""
        return int(self.counts.sum())

    def sums(self, name: str) -> Array:
        """A column of sums, by action."""
        known, values = self.indices >= 0, self.table[name].fill_null(0.0).to_numpy()
        found = np.bincount(self.indices[known], values[known], len(self.actions))
        return read_only(found.astype(np.float64))

    def extremes(self, name: str, pick: np.ufunc) -> Array:
        """A column of smallest or largest numbers, by action; nan where there is none."""
        known, values = self.indices >= 0, self.table[name].fill_null(np.nan).to_numpy()
        found = np.full(len(self.actions), np.nan)
        pick.at(found, self.indices[known], values[known])
        return read_only(found)


def tally(
    frame: Any,
    columns: Columns,
    *,
    actions: Actions | None = None,
    behavior: Mapping[Any, float] | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> LogStatistics:
    """What a log says about each action, from a native frame of Polars, DuckDB, Dask, PySpark, ….

    The frame is read once, and once more if rows have to be refused. `behavior` has the probability
    of every label, if production always played with these: then propensities are not read. Without
    it, and without `columns.propensity`, sums that need propensities are nan. Left out, the actions
    are those of the behavior, or those of the good rows.

    >>> log = pl.DataFrame(
    ...     {"action": [7, 8, 7, None], "reward": [1, 0, 2, 1], "propensity": [0.5, 0.25, 0.5, 0.5]}
    ... )
    >>> found = tally(log, Columns())
    >>> found.actions.labels, found.tally.counts.tolist(), found.tally.weights.tolist()
    ((7, 8), [1, 1], [2.0, 4.0])
    >>> found.refused
    {'action is missing': 1, 'reward is out of range': 1}
    """
    rows = rows_of(frame, columns, reward_range=reward_range, propensities=behavior is None)
    fixed = None
    if behavior is not None:
        actions = Actions.from_labels(behavior) if actions is None else actions
        fixed = behavior_vector(behavior, actions)
    R, q = nw.col(REWARD), nw.col(PROPENSITY)
    terms = {"rewards": R}
    if logged := fixed is None and columns.propensity is not None:
        terms |= {"weighted": R / q, "weights": 1.0 / q, "squares": 1.0 / (q * q), PROPENSITY: q}
    groups = group(rows, columns, terms, actions, fixed)
    counts, rewards = groups.counts, groups.sums("rewards")
    if logged:
        found = ActionStatistics(
            counts,
            rewards,
            groups.sums("weighted"),
            groups.sums("weights"),
            groups.sums("squares"),
            groups.extremes("lowest", np.fmin),
            groups.extremes("highest", np.fmax),
        )
    elif fixed is not None:
        found = ActionStatistics.of_behavior(counts, rewards, fixed)
    else:
        found = ActionStatistics.without_propensities(counts, rewards)
    return LogStatistics(groups.actions, found, groups.refused)


def seen_actions(frame: Any, columns: Columns) -> Actions:
    """All labels of the column of actions, good rows or not: the quickest look at a log.

    >>> log = pl.DataFrame({"action": [3.0, 1.0, None, 3.0], "reward": 1.0})
    >>> seen_actions(log, Columns(propensity=None)).labels
    (1, 3)
    """
    whole = lazy(frame)
    columns.require(list(whole.collect_schema()), LOG)
    found = whole.select(nw.col(columns.action).alias(ACTION))
    table = collect(found.unique().head(MOST_ACTIONS + 1))
    _refuse_too_many(table, columns)
    return _found(labels_of(table[ACTION]), {})


def group(
    rows: Rows,
    columns: Columns,
    terms: Mapping[str, nw.Expr],
    actions: Actions | None,
    behavior: Array | None = None,
) -> Groups:
    """One pass: for every label its rows, its good rows, and a sum for each term.

    Of the propensity, which is no sum, the smallest and the largest. What a fixed behavior never
    plays is refused.
    """
    summed = [name for name in terms if name != PROPENSITY]
    clean = rows.clean().select(nw.col(ACTION), *(term.alias(name) for name, term in terms.items()))
    aggregates = [nw.len().alias(ROWS), nw.col(summed[0]).count().alias(GOOD)]
    aggregates += [nw.col(name).sum().alias(f"sum of {name}") for name in summed]
    if PROPENSITY in terms:
        q = nw.col(PROPENSITY)
        aggregates += [q.min().alias("lowest"), q.max().alias("highest")]
    found = collect(clean.group_by(ACTION).agg(*aggregates).head(MOST_ACTIONS + 1))
    _refuse_too_many(found, columns)
    table = found.rename({f"sum of {name}": name for name in summed})
    labels = _with_indices(table, actions)
    refused = _refused(rows, labels, actions)
    good = labels.filter(pl.col(GOOD) > 0)[LABEL]
    known = _found(good, refused) if actions is None else actions
    indices = known.indices(labels[LABEL])
    if behavior is not None:
        playable = (indices < 0) | (behavior[indices] >= SMALLEST_PROBABILITY)
        labels = labels.with_columns(pl.Series(PLAYABLE, playable))
        refused |= _counted(_reasons(labels, support_rule()), GOOD, support_rule())
        indices = np.where(playable, indices, UNKNOWN)
    return Groups(known, table, indices, refused)


def collect(frame: nw.LazyFrame[Any]) -> pl.DataFrame:
    """A small result as a Polars frame, whatever the engine."""
    streaming = {"engine": "streaming"} if frame.implementation.is_polars() else {}
    found: pl.DataFrame = frame.collect(backend="polars", **streaming).to_native()
    return found


def _with_indices(table: pl.DataFrame, actions: Actions | None) -> pl.DataFrame:
    """The labels with the columns that rules about actions read; if none are declared, all are."""
    texts = labels_of(table[ACTION])
    if actions is None:
        indices = texts.is_null().cast(pl.Int64) * UNKNOWN
    else:
        indices = pl.Series(actions.indices(texts))
    return table.with_columns(texts, indices.alias(INDEX))


def _found(texts: pl.Series, refused: Mapping[str, int]) -> Actions:
    """The labels that a log shows, if there are some to choose from."""
    labels = frozenset(texts.drop_nulls())
    if not labels:
        raise nothing_left(LOG, refused)
    if len(labels) == 1:
        raise too_few(LOG, next(iter(labels)), refused)
    return Actions.from_labels(labels)


def _refused(rows: Rows, labels: pl.DataFrame, actions: Actions | None) -> dict[str, int]:
    """How many rows were refused, by reason: a second pass says which, if numbers were wrong."""
    reasons = _reasons(labels, action_rule())
    refused = _counted(reasons, ROWS, action_rule())
    if reasons.filter(pl.col(REASON).is_null()).select(pl.col(ROWS) - pl.col(GOOD)).sum().item():
        wrong = collect(rows.rejected().group_by(ACTION, REASON).agg(nw.len().alias(ROWS)))
        ours = _with_indices(wrong, actions).filter(pl.col(INDEX) >= 0)
        refused |= _counted(ours, ROWS, *rows.rules)
    return refused


def _reasons(labels: pl.DataFrame, rule: Rule) -> pl.DataFrame:
    """The labels, each with the reason to refuse its rows, if there is one."""
    return labels.with_columns(first_reason([rule]))


def _counted(table: pl.DataFrame, rows: str, *rules: Rule) -> dict[str, int]:
    """The rows of each reason, in the order of the rules."""
    found = dict(table.group_by(REASON).agg(pl.col(rows).sum()).iter_rows())
    order = [reason for rule in rules for reason, _ in rule.faults]
    return {reason.value: int(found[reason]) for reason in order if found.get(reason)}


def _refuse_too_many(table: pl.DataFrame, columns: Columns) -> None:
    if len(table) > MOST_ACTIONS:
        raise InvalidArgument(
            "columns.action",
            columns.action,
            f"it has more than {MOST_ACTIONS:,} different labels, too many for actions",
            "name the column of actions with --action",
        )
