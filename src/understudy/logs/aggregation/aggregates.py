"""Sums per action from a frame of any engine: one pass, and another only if rows are rejected.

The rules of `rules` decide which rows are valid. Labels become text after the rows were
counted, because engines write numbers as text in different ways.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from understudy.behaviors import Logged
from understudy.constraints import SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidArgument
from understudy.logs.action_files import behavior_vector
from understudy.logs.aggregation.engines import alike, lazy
from understudy.logs.rules import (
    INDEX,
    LABEL,
    PLAYABLE,
    REASON,
    SUPPORT_RULE,
    TEXTS,
    BoundedColumn,
    Rule,
    action_rule,
    all_hold,
    first_reason,
    limit_rule,
    nothing_left,
    number_rule,
    require_labels,
    require_numbers,
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
    label_key,
)
from understudy.logs.statistics import ActionStatistics, LogStatistics
from understudy.logs.validate import MOST_ACTIONS, labels_of
from understudy.types import Integers, read_only

ROWS, VALID = "rows", "valid"
HAS_REWARD = "whether the reward can be used"
HAS_WEIGHT = "whether all but the reward can be used"
OCCURS = "how often a row occurs"


@dataclass(frozen=True)
class Rows:
    """The rows of a log as a lazy frame, with the ranges of their `numbers`.

    The frame has the columns `action`, `reward` and, if they are read, `propensity` and `target`.
    Rewards in `scale` become numbers in [0, 1]. `own` are the columns that `beside`
    added, which need no check. `limits` are the smallest and the largest propensity allowed. Where
    the scale is `flipped`, the smallest reward is the best, and becomes 1.
    """

    frame: nw.LazyFrame[Any]
    numbers: tuple[BoundedColumn, ...]
    scale: RewardScale
    own: tuple[str, ...] = ()
    limits: tuple[float, float] = (0.0, 1.0)
    flipped: bool = False

    @property
    def rules(self) -> list[Rule]:
        """The rules of the numbers, in the order in which reasons are looked for."""
        found = [number_rule(column) for column in self.numbers]
        if self.limits != (0.0, 1.0):
            q = next(column for column in self.numbers if column.role == PROPENSITY)
            found.append(limit_rule(q, *self.limits))
        return found

    def clean(self) -> nw.LazyFrame[Any]:
        """All rows; if a number of a row is not valid, all its numbers are null."""
        valid = all_hold(self.rules)
        values = [
            nw.when(valid).then(self._value(column)).alias(column.role) for column in self.numbers
        ]
        return self.frame.select(nw.col(ACTION, *self.own), *values)

    def with_rejected(self, positive: str) -> nw.LazyFrame[Any]:
        """All rows with usable numbers, and columns that tell whether a row is valid, whether its
        reward can be used, and whether all else can.

        A reward that cannot be used is 1; where all else cannot, `positive` is 1, the others are 0.
        """
        others = self.rules
        reward_rule = others.pop([column.role for column in self.numbers].index(REWARD))
        has_reward = reward_rule.holds.fill_null(False)
        conditions = [rule.holds for rule in others]
        conditions += [~nw.col(name).is_null() for name in self.own]
        if positive in self.own:
            conditions.append(nw.col(positive) > 0.0)
        has_weight = nw.all_horizontal(*conditions, ignore_nulls=False).fill_null(False)
        instead = {REWARD: 1.0, positive: 1.0}
        values = [
            nw.when(has_reward if column.role == REWARD else has_weight)
            .then(self._value(column))
            .otherwise(instead.get(column.role, 0.0))
            .alias(column.role)
            for column in self.numbers
        ]
        safe = [
            nw.when(has_weight).then(nw.col(name)).otherwise(instead.get(name, 0.0)).alias(name)
            for name in self.own
        ]
        found = {VALID: has_reward & has_weight, HAS_REWARD: has_reward, HAS_WEIGHT: has_weight}
        marks = [mark.alias(name) for name, mark in found.items()]
        return self.frame.select(*values, *safe, *marks)

    def beside(self, table: pl.DataFrame) -> Rows:
        """The rows, each with the table's values for its label; null where the table has none."""
        joined = self.frame.join(alike(self.frame, table), on=ACTION, how="left")
        own = tuple(name for name in table.columns if name != ACTION)
        return dataclasses.replace(self, frame=joined, own=own)

    def rejected(self) -> nw.LazyFrame[Any]:
        """The `action` and the first `reason` of every row whose numbers are not valid."""
        marked = self.frame.select(nw.col(ACTION), first_reason(self.rules, nw))
        return marked.filter(~nw.col(REASON).is_null())

    def _value(self, column: BoundedColumn) -> nw.Expr:
        value: Any = nw.col(column.parsed)
        if column.role != REWARD:
            return value  # type: ignore[no-any-return] # an expression
        rescaled: nw.Expr = self.scale.unit(value)
        return 1.0 - rescaled if self.flipped else rescaled


def rows_of(
    frame: Any,
    columns: Columns,
    *,
    reward_range: Sequence[float] | None = None,
    propensities: bool = True,
    limits: tuple[float, float] = (0.0, 1.0),
    flipped: bool = False,
) -> Rows:
    """The rows of a native frame; without `propensities` those of the frame are not read.

    >>> log = pl.DataFrame({"action": ["a", "b"], "click": ["5", "many"], "propensity": [0.5, 0.5]})
    >>> rows = rows_of(log, Columns(reward="click"), reward_range=(0, 10))
    >>> rows.clean().collect().to_native().rows()
    [('a', 0.5, 0.5), ('b', None, None)]
    >>> rows.rejected().collect().to_native().rows()
    [('b', 'reward is not a number')]
    """
    scale = RewardScale.from_range(reward_range)
    if columns.eligible is not None:
        reason = "sets of eligible actions are not read where the order of rows does not matter"
        remedy = "leave out --engine and --horizon, or --eligible"
        raise InvalidArgument("columns.eligible", columns.eligible, reason, remedy)
    if not propensities:
        columns = dataclasses.replace(columns, propensity=None)
    whole = lazy(frame)
    schema = whole.collect_schema()
    columns.require(list(schema), LOG)
    read = {REWARD: columns.reward, PROPENSITY: columns.propensity, TARGET: columns.target}
    named = {role: name for role, name in read.items() if name is not None}
    numbers = tuple(
        BoundedColumn.of(role, scale, text=isinstance(schema[name], TEXTS), library=nw)
        for role, name in named.items()
    )
    selected = whole.select(
        _readable(columns.action, schema[columns.action], ACTION),
        *(_readable(name, schema[name], role) for role, name in named.items()),
    )
    parsed = selected.with_columns(*(column.parse() for column in numbers))
    return Rows(parsed, numbers, scale, limits=limits, flipped=flipped)


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
    """A table with a row for each label of a log, and the index of its action.

    `table` has the label as it came, the number of its `rows`, of its `valid` rows, and sums;
    `indices` is −1 where the label is no action.
    """

    actions: Actions
    table: pl.DataFrame
    indices: Integers
    reject_counts: dict[str, int]

    @property
    def counts(self) -> Integers:
        """The valid rows of every action."""
        return read_only(self.sums(VALID).astype(np.int64))

    @property
    def rounds(self) -> int:
        """The valid rows of all actions."""
        return int(self.counts.sum())

    def sums(self, name: str) -> Array:
        """A column of sums, by action."""
        known, values = self.indices >= 0, self.table[name].fill_null(0.0).to_numpy()
        sums = np.bincount(self.indices[known], values[known], len(self.actions))
        return read_only(sums.astype(np.float64))

    def extremes(self, name: str, pick: np.ufunc) -> Array:
        """A column of smallest or largest numbers, by action; nan where there is none."""
        known, values = self.indices >= 0, self.table[name].fill_null(np.nan).to_numpy()
        extremes = np.full(len(self.actions), np.nan)
        pick.at(extremes, self.indices[known], values[known])
        return read_only(extremes)


def limits_of(least_propensity: float | None, actions: Actions | None) -> tuple[float, float]:
    """The smallest and the largest propensity allowed; of an unknown number of actions, of two."""
    return Logged(2 if actions is None else len(actions), least_propensity).range


def log_statistics(
    frame: Any,
    columns: Columns,
    *,
    actions: Actions | None = None,
    behavior: Mapping[Any, float] | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    least_propensity: float | None = None,
) -> LogStatistics:
    """The statistics of a log in a native frame of Polars, DuckDB, Dask, PySpark, ….

    The frame is read once, and once more if rows are rejected. `behavior` has the probability of
    every label, if production always played with these: then propensities are not read. Without it,
    and without `columns.propensity`, sums that need propensities are nan. By default the actions
    are those of the behavior, or those of the valid rows.

    >>> log = pl.DataFrame(
    ...     {"action": [7, 8, 7, None], "reward": [1, 0, 2, 1], "propensity": [0.5, 0.25, 0.5, 0.5]}
    ... )
    >>> statistics = log_statistics(log, Columns())
    >>> statistics.actions.labels, statistics.sums.counts.tolist(), statistics.sums.weights.tolist()
    ((7, 8), [1, 1], [2.0, 4.0])
    >>> statistics.reject_counts
    {'action is missing': 1, 'reward is out of range': 1}
    """
    rows = rows_of(
        frame,
        columns,
        reward_range=reward_range,
        propensities=behavior is None,
        limits=limits_of(least_propensity, actions),
    )
    fixed = None
    if behavior is not None:
        labels = map(label_key, behavior)
        actions = Actions.from_labels(labels) if actions is None else actions
        fixed = behavior_vector(behavior, actions)
    R, q = nw.col(REWARD), nw.col(PROPENSITY)
    terms = {"rewards": R}
    if logged := fixed is None and columns.propensity is not None:
        terms |= {"weighted": R / q, "weights": 1.0 / q, "squares": 1.0 / (q * q), PROPENSITY: q}
    groups = group(rows, columns, terms, actions, fixed)
    counts, rewards = groups.counts, groups.sums("rewards")
    if logged:
        sums = ActionStatistics(
            counts,
            rewards,
            groups.sums("weighted"),
            groups.sums("weights"),
            groups.sums("squares"),
            groups.extremes("lowest", np.fmin),
            groups.extremes("highest", np.fmax),
        )
    elif fixed is not None:
        sums = ActionStatistics.of_behavior(counts, rewards, fixed)
    else:
        sums = ActionStatistics.without_propensities(counts, rewards)
    return LogStatistics(groups.actions, sums, groups.reject_counts)


def seen_actions(frame: Any, columns: Columns) -> Actions:
    """All labels of the column of actions, of valid rows and of others."""
    whole = lazy(frame)
    columns.require(list(whole.collect_schema()), LOG)
    labels = whole.select(nw.col(columns.action).alias(ACTION))
    table = collect(labels.unique().head(MOST_ACTIONS + 1))
    _refuse_too_many(table, columns)
    return _actions_of(labels_of(table[ACTION]), {})


def row_counts(frame: Any) -> dict[int, int]:
    """The number of different rows by how often each occurs, over all columns of a native frame.

    >>> row_counts(pl.DataFrame({"action": ["a", "b", "a"], "user": [1, 2, 1]}))
    {1: 1, 2: 1}
    """
    whole = lazy(frame)
    plain = [
        nw.col(name).cast(nw.String)
        if isinstance(dtype, nw.Categorical | nw.Enum)
        else nw.col(name)
        for name, dtype in whole.collect_schema().items()
        if not dtype.is_nested() and not isinstance(dtype, nw.Object)
    ]
    rows = whole.select(*plain)
    counts = rows.group_by(*rows.collect_schema()).agg(nw.len().alias(OCCURS)).select(OCCURS)
    found = collect(counts.group_by(OCCURS).agg(nw.len().alias(ROWS))).sort(OCCURS)
    return dict(found.cast(pl.Int64).select(OCCURS, ROWS).iter_rows())


def group(
    rows: Rows,
    columns: Columns,
    terms: Mapping[str, nw.Expr],
    actions: Actions | None,
    behavior: Array | None = None,
) -> Groups:
    """Count and sum in one pass: the rows of every label, its valid rows, and each term.

    The propensity is no sum; its smallest and largest values are taken. Rows of an action that a
    fixed behavior never plays are rejected.
    """
    summed = [name for name in terms if name != PROPENSITY]
    clean = rows.clean().select(nw.col(ACTION), *(term.alias(name) for name, term in terms.items()))
    aggregates = [nw.len().alias(ROWS), nw.col(summed[0]).count().alias(VALID)]
    aggregates += [nw.col(name).sum().alias(f"sum of {name}") for name in summed]
    if PROPENSITY in terms:
        q = nw.col(PROPENSITY)
        aggregates += [q.min().alias("lowest"), q.max().alias("highest")]
    collected = collect(clean.group_by(ACTION).agg(*aggregates).head(MOST_ACTIONS + 1))
    _refuse_too_many(collected, columns)
    table = collected.rename({f"sum of {name}": name for name in summed})
    labels = _with_indices(table, actions)
    reject_counts = _reject_counts(rows, labels, actions)
    valid = labels.filter(pl.col(VALID) > 0)[LABEL]
    known = _actions_of(valid, reject_counts) if actions is None else actions
    indices = known.indices(labels[LABEL])
    if behavior is not None:
        playable = (indices < 0) | (behavior[indices] >= SMALLEST_PROBABILITY)
        labels = labels.with_columns(pl.Series(PLAYABLE, playable))
        reasons = labels.with_columns(first_reason([SUPPORT_RULE]))
        reject_counts |= _counted(reasons, VALID, SUPPORT_RULE)
        indices = np.where(playable, indices, UNKNOWN)
    return Groups(known, table, indices, reject_counts)


def collect(frame: nw.LazyFrame[Any]) -> pl.DataFrame:
    """A small result as a Polars frame, whatever the engine."""
    streaming = {"engine": "streaming"} if frame.implementation.is_polars() else {}
    collected: pl.DataFrame = frame.collect(backend="polars", **streaming).to_native()
    return collected


def _with_indices(table: pl.DataFrame, actions: Actions | None) -> pl.DataFrame:
    """The table with the label and index that rules about actions read.

    If no actions are declared, every label is an action.
    """
    texts = labels_of(table[ACTION])
    if actions is None:
        indices = texts.is_null().cast(pl.Int64) * UNKNOWN
    else:
        indices = pl.Series(actions.indices(texts))
    return table.with_columns(texts, indices.alias(INDEX))


def _actions_of(texts: pl.Series, reject_counts: Mapping[str, int]) -> Actions:
    """The actions of a log by its labels, or `InvalidLog` if there are fewer than two."""
    labels = frozenset(texts.drop_nulls())
    if not labels:
        raise nothing_left(LOG, reject_counts)
    if len(labels) == 1:
        raise too_few(LOG, next(iter(labels)), reject_counts)
    return Actions.from_labels(labels)


def _reject_counts(rows: Rows, labels: pl.DataFrame, actions: Actions | None) -> dict[str, int]:
    """The rejected rows by reason; a second pass counts them if numbers are wrong."""
    reasons = labels.with_columns(first_reason([action_rule()]))
    reject_counts = _counted(reasons, ROWS, action_rule())
    if reasons.filter(pl.col(REASON).is_null()).select(pl.col(ROWS) - pl.col(VALID)).sum().item():
        wrong = collect(rows.rejected().group_by(ACTION, REASON).agg(nw.len().alias(ROWS)))
        known = _with_indices(wrong, actions).filter(pl.col(INDEX) >= 0)
        reject_counts |= _counted(known, ROWS, *rows.rules)
    return reject_counts


def _counted(table: pl.DataFrame, rows: str, *rules: Rule) -> dict[str, int]:
    """The number of rows of each reason, in the order of the rules."""
    counts = dict(table.group_by(REASON).agg(pl.col(rows).sum()).iter_rows())
    order = [reason for rule in rules for reason, _ in rule.faults]
    return {reason.value: int(counts[reason]) for reason in order if counts.get(reason)}


def _refuse_too_many(table: pl.DataFrame, columns: Columns) -> None:
    if len(table) > MOST_ACTIONS:
        reason = f"it has more than {MOST_ACTIONS:,} different labels, too many for actions"
        remedy = "name the column of actions with --action"
        raise InvalidArgument("columns.action", columns.action, reason, remedy)
