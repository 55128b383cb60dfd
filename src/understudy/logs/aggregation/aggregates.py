"""Sums per action from a frame of any engine: one pass, and another only if rows are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from understudy.constraints import SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidArgument
from understudy.logs.action_files import behavior_vector
from understudy.logs.aggregation.frames import GOOD, Rows, lazy, require_column, rows_of
from understudy.logs.reject_reasons import REASON, nothing_left, too_few
from understudy.logs.schema import (
    ACTION,
    LOG,
    PROPENSITY,
    REWARD,
    UNKNOWN,
    Actions,
    Columns,
    label_text,
)
from understudy.logs.statistics import ActionStatistics
from understudy.logs.validate import (
    INDEX,
    LABEL,
    MOST_ACTIONS,
    PLAYABLE,
    Rule,
    action_rule,
    first_reason,
    support_rule,
)
from understudy.types import Integers, read_only

ROWS = "rows"


@dataclass(frozen=True, eq=False)
class LogStatistics:
    """What `tally` found: actions, their sums, and how many rows were refused for which reason."""

    actions: Actions
    tally: ActionStatistics
    refused: dict[str, int]


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

    Args:
        frame: the log; lazy frames are read once, and once more if rows have to be refused.
        columns: what its columns mean. Without `columns.propensity`, and without a behavior, all
            sums that need propensities are nan. With `columns.target`, rows whose target is no
            probability are refused.
        actions: the actions; left out: those of the behavior, or those of the good rows.
        behavior: the probability of every label, if production always played with these: then
            propensities are not read.
        reward_range: the lowest and the highest reward; they become 0 and 1.

    >>> log = pl.DataFrame(
    ...     {"action": [7, 8, 7, None], "reward": [1, 0, 2, 1], "propensity": [0.5, 0.25, 0.5, 0.5]}
    ... )
    >>> found = tally(log, Columns())
    >>> found.actions.labels, found.tally.counts.tolist(), found.tally.weights.tolist()
    ((7, 8), [1, 1], [2.0, 4.0])
    >>> found.refused
    {'action is missing': 1, 'reward is out of range': 1}
    """
    rows = rows_of(
        frame,
        columns,
        reward_range=reward_range,
        propensities=behavior is None,
        target=columns.target,
    )
    fixed = None
    if behavior is not None:
        actions = Actions.from_labels(behavior) if actions is None else actions
        fixed = behavior_vector(behavior, actions)
    R, q = nw.col(REWARD), nw.col(PROPENSITY)
    terms = {"rewards": R}
    if logged := fixed is None and columns.propensity is not None:
        terms |= {"weighted": R / q, "weights": 1.0 / q, "squares": 1.0 / (q * q), PROPENSITY: q}
    groups = group(rows, columns, terms, actions, fixed)
    if logged:
        found = _of_sums(groups)
    elif fixed is not None:
        found = ActionStatistics.of_behavior(groups.counts, groups.sums("rewards"), fixed)
    else:
        found = ActionStatistics.without_propensities(groups.counts, groups.sums("rewards"))
    return LogStatistics(groups.actions, found, groups.refused)


def seen_actions(frame: Any, columns: Columns) -> Actions:
    """All labels of the column of actions, good rows or not: the quickest look at a log.

    >>> seen_actions(pl.DataFrame({"item": [3.0, 1.0, None, 3.0]}), Columns(action="item")).labels
    (1, 3)
    """
    whole = lazy(frame)
    require_column(list(whole.collect_schema()), columns.action, "--action")
    found = whole.select(nw.col(columns.action).alias(ACTION))
    table = collect(found.unique().head(MOST_ACTIONS + 1))
    _refuse_too_many(table, columns)
    return _found(frozenset(_texts(table).drop_nulls()), {})


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

    >>> frame = pl.DataFrame({"action": ["b", "b", "a"], "reward": [1.0, 0.5, 7.0]})
    >>> columns = Columns(propensity=None)
    >>> both = Actions(("a", "b"))
    >>> found = group(rows_of(frame, columns), columns, {"R": nw.col("reward")}, both)
    >>> found.counts.tolist(), found.sums("R").tolist(), found.refused
    ([0, 2], [0.0, 1.5], {'reward is out of range': 1})
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
    known = _those_of_good_rows(labels, refused) if actions is None else actions
    indices = known.indices(labels[LABEL])
    if behavior is not None:
        playable = (indices < 0) | (behavior[indices] >= SMALLEST_PROBABILITY)
        labels = labels.with_columns(pl.Series(PLAYABLE, playable))
        refused |= _counted(_reasons(labels, support_rule()), GOOD, support_rule())
        indices = np.where(playable, indices, UNKNOWN)
    return Groups(known, table, indices, refused)


def collect(frame: nw.LazyFrame[Any]) -> pl.DataFrame:
    """A small result as a Polars frame, whatever the engine.

    >>> collect(lazy(pl.DataFrame({"n": [1, 2]})).select(nw.col("n").sum())).rows()
    [(3,)]
    """
    streaming = {"engine": "streaming"} if frame.implementation.is_polars() else {}
    found: pl.DataFrame = frame.collect(backend="polars", **streaming).to_native()
    return found


def _of_sums(groups: Groups) -> ActionStatistics:
    """With the propensities of the rows."""
    return ActionStatistics(
        groups.counts,
        groups.sums("rewards"),
        groups.sums("weighted"),
        groups.sums("weights"),
        groups.sums("squares"),
        groups.extremes("lowest", np.fmin),
        groups.extremes("highest", np.fmax),
    )


def _texts(table: pl.DataFrame) -> pl.Series:
    """The labels as text: null where a label is missing, or no number at all."""
    return table.select(label_text(pl.col(ACTION), table[ACTION].dtype))[ACTION]


def _with_indices(table: pl.DataFrame, actions: Actions | None) -> pl.DataFrame:
    """The labels with the columns that rules about actions read; if none are declared, all are."""
    texts = _texts(table)
    if actions is None:
        indices = texts.is_null().cast(pl.Int64) * UNKNOWN
    else:
        indices = pl.Series(actions.indices(texts))
    return table.with_columns(texts.alias(LABEL), indices.alias(INDEX))


def _those_of_good_rows(labels: pl.DataFrame, refused: Mapping[str, int]) -> Actions:
    return _found(frozenset(labels.filter(pl.col(GOOD) > 0)[LABEL].drop_nulls()), refused)


def _found(labels: frozenset[str], refused: Mapping[str, int]) -> Actions:
    """The labels that a log shows, if there are some to choose from."""
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
