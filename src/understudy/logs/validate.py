"""Validation of batches: the valid rows, and the rejected ones with their reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from understudy.constraints import Array
from understudy.logs.readers.propensity_vectors import CheckedVectors, check_vectors, read_entries
from understudy.logs.rules import (
    ELIGIBLE_RULE,
    ID_RULE,
    INDEX,
    LABEL,
    LISTED,
    PLAYABLE,
    REASON,
    SUPPORT_RULE,
    TIME_RULE,
    UNIT_RULE,
    VECTOR_FAULT,
    VECTOR_RULE,
    BoundedColumn,
    RejectReason,
    Rule,
    action_rule,
    all_hold,
    first_reason,
    limit_rule,
    narwhals_type,
    number_rule,
    parse_numbers,
    require_labels,
    require_numbers,
    rows_by_file,
)
from understudy.logs.schema import (
    ACTION,
    CONTEXT,
    ELIGIBLE,
    EXPERT,
    FILE,
    ID,
    METRIC,
    PROPENSITY,
    QUARANTINE,
    REWARD,
    ROW,
    SEGMENT,
    TARGET,
    TIME,
    UNIT_FAULT,
    UNKNOWN,
    VECTOR,
    Actions,
    RewardScale,
    column_text,
    label_text,
)
from understudy.types import Integers, Log

MOST_ACTIONS = 100_000  # of a log without declared ones: more labels are no column of actions
LONGEST = 200  # characters of a value that is quarantined: enough to recognize it

TEXT_TYPES = (pl.String, pl.Categorical, pl.Enum)
# Labels of a list that is text
QUOTED, BETWEEN, WORDS = r'"[^"]*"', r"[^,|;\[\]]+", r"[^\s\[\]]+"

UNIT = RewardScale()
NONE_QUARANTINED = pl.DataFrame(schema=QUARANTINE)

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RowRules:
    """The rules of one log.

    `actions` is None while they are collected, and `closed` if there are no others. `propensities`
    says whether the log's own are read. `support` marks the actions that a given behavior can play.
    `limits` are the smallest and the largest propensity that a declared least one allows. `order`
    has the actions as they were declared, which is the order of propensity vectors that are lists;
    `known` are those that are known before the log if the actions are not `closed`.
    """

    actions: Actions | None = None
    scale: RewardScale = UNIT
    propensities: bool = True
    support: Mask | None = None
    closed: bool = True
    limits: tuple[float, float] | None = None
    order: tuple[str, ...] | None = None
    known: frozenset[str] = frozenset()

    def numbers(self, frame: pl.DataFrame) -> dict[str, BoundedColumn]:
        """The columns of a batch that must hold numbers, by role."""
        given = [role for role in frame.columns if role == TARGET or role.startswith(EXPERT)]
        roles = (REWARD, *([PROPENSITY] if self.propensities else []), *given)
        return {
            role: BoundedColumn.of(role, self.scale, text=isinstance(frame[role].dtype, TEXT_TYPES))
            for role in roles
        }

    def of(self, frame: pl.DataFrame, numbers: Mapping[str, BoundedColumn]) -> list[Rule]:
        """The rules for a batch, in the order in which reasons are looked for."""
        columns = {role: number_rule(column) for role, column in numbers.items()}
        last = [columns.pop(role) for role in numbers if role not in {REWARD, PROPENSITY}]
        rules = [action_rule(closed=self.closed), *columns.values()]
        if VECTOR in frame.columns:  # before the propensity, which may be made of it
            rules.insert(2, VECTOR_RULE)
        if UNIT_FAULT in frame.columns:
            rules.insert(0, UNIT_RULE)
        if self.support is not None:
            rules.append(SUPPORT_RULE)
        if self.limits is not None and PROPENSITY in numbers:
            rules.append(limit_rule(numbers[PROPENSITY], *self.limits))
        if ELIGIBLE in frame.columns:
            rules.append(ELIGIBLE_RULE)
        if TIME in frame.columns:
            rules.append(TIME_RULE)
        if ID in frame.columns:
            rules.append(ID_RULE)
        rules += last
        return rules if self.closed else [*rules, action_rule()]


@dataclass(frozen=True, eq=False)
class Rejected:
    """The rejected rows of a batch; `valid` is a mask over all its rows.

    `rewards` are those of the rejected rows, 1 where a row has no usable one, which `has_reward`
    tells; `actions` their indices, −1 where a row has none; `propensities` are nan where a row has
    no usable one, and None if the log has none. `contexts` are theirs, and `beside`
    has their metrics and segments, as read.
    """

    valid: Mask
    actions: Integers
    rewards: Array
    has_reward: Mask
    propensities: Array | None
    contexts: pl.DataFrame | None = None
    beside: pl.DataFrame | None = None

    def after(self, rows: int) -> Rejected:
        """Drop the first valid rows and the rejected rows before and among them."""
        start = int(np.flatnonzero(self.valid)[rows - 1]) + 1 if rows else 0
        skipped = int((~self.valid[:start]).sum())
        q = None if self.propensities is None else self.propensities[skipped:]
        columns = (self.actions[skipped:], self.rewards[skipped:], self.has_reward[skipped:], q)
        contexts, beside = (
            None if frame is None else frame[skipped:] for frame in (self.contexts, self.beside)
        )
        return Rejected(self.valid[start:], *columns, contexts, beside)


@dataclass(frozen=True, eq=False)
class ValidatedBatch:
    """The valid rows of a batch, and the quarantined ones.

    `files` counts the rows of each file. `frame` holds the valid rows as they came; `actions` their
    indices, if the labels are known. `rejected` is None if all rows are valid. `vectors` has the
    propensities of all actions, if the log has them.
    """

    files: Mapping[str, int]
    frame: pl.DataFrame
    actions: Integers
    rewards: Array
    propensities: Array | None
    quarantined: pl.DataFrame
    rejected: Rejected | None = None
    vectors: Array | None = None

    def __len__(self) -> int:
        return len(self.rewards)

    def after(self, rows: int) -> ValidatedBatch:
        """Drop the first valid rows."""
        q = None if self.propensities is None else self.propensities[rows:]
        frame, actions, rewards = self.frame[rows:], self.actions[rows:], self.rewards[rows:]
        rejected = None if self.rejected is None else self.rejected.after(rows)
        vectors = None if self.vectors is None else self.vectors[rows:]
        return ValidatedBatch(
            self.files, frame, actions, rewards, q, self.quarantined, rejected, vectors
        )

    def log(self, features: Array | None = None) -> Log:
        names = [name for name in self.frame.columns if name.startswith(EXPERT)]
        experts = np.stack([*map(self._probabilities, names)], axis=1) if names else None
        # Every column was checked before.
        return Log._of(
            self.actions, self.rewards, self.propensities, features, experts, self.vectors
        )

    def targets(self) -> Array:
        """The probability of each logged action under the user's own policy."""
        return self._probabilities(TARGET)

    def _probabilities(self, role: str) -> Array:
        column = self.frame[role]
        text = isinstance(column.dtype, TEXT_TYPES)
        return _as_array(parse_numbers(BoundedColumn.of(role, UNIT, text=text), column))

    def reasons(self) -> list[str]:
        """The reason of each rejected row."""
        return self.quarantined[REASON].to_list()

    def contexts(self) -> pl.DataFrame:
        return _columns_of(self.frame, CONTEXT)

    def beside(self) -> pl.DataFrame:
        """The metrics and segments of all rows, also of rejected ones, as read."""
        valid = _columns_of(self.frame, METRIC, SEGMENT)
        if self.rejected is None:
            return valid
        assert self.rejected.beside is not None  # it is read where those of valid rows are
        rows, places = pl.concat([valid, self.rejected.beside]), self.rejected.valid
        order = np.empty(len(places), dtype=np.int64)
        order[places], order[~places] = np.arange(len(valid)), np.arange(len(valid), len(places))
        return rows[order]


def _columns_of(frame: pl.DataFrame, *kinds: str) -> pl.DataFrame:
    return frame.select(name for name in frame.columns if name.startswith(kinds))


def check(file: str, frame: pl.DataFrame, rules: RowRules) -> ValidatedBatch:
    """Split a batch into valid rows, which obey all rules, and rejected rows with reasons.

    >>> frame = pl.DataFrame({"row": [1, 2], "action": ["a", "b"], "reward": ["0.5", "1e9"]})
    >>> checked = check("log.csv", frame, RowRules(Actions(("a", "b")), propensities=False))
    >>> checked.rewards.tolist(), checked.quarantined["reason"].to_list()
    ([0.5], ['reward is out of range'])
    """
    vectors = None
    if VECTOR in frame.columns:
        frame, vectors = _with_vectors(file, frame, rules)
    numbers = rules.numbers(frame)
    batch_rules = rules.of(frame, numbers)
    parsed, actions = _parse(file, frame, rules, numbers)
    holds = parsed.select(all_hold(batch_rules)).to_series()
    rewards = _as_array(parsed[numbers[REWARD].parsed])
    q = _as_array(parsed[numbers[PROPENSITY].parsed]) if rules.propensities else None
    table = None
    if vectors is not None:
        q, table, frame = vectors.own, vectors.table, frame.drop(VECTOR, VECTOR_FAULT)
    files = rows_by_file(file, frame)
    if holds.all(ignore_nulls=False):
        unit = rules.scale.unit(rewards)
        return ValidatedBatch(files, frame, actions, unit, q, NONE_QUARANTINED, None, table)
    valid = _as_mask(holds)
    rejected = parsed.filter(~valid)
    usable = valid.copy()
    usable[~valid] = _as_mask(rejected.select(number_rule(numbers[REWARD]).holds).to_series())
    unit = rules.scale.unit(np.where(usable, rewards, rules.scale.high))
    rejected_q = None
    if q is not None:
        has_q = _as_mask(rejected.select(number_rule(numbers[PROPENSITY]).holds).to_series())
        rejected_q = np.where(has_q, q[~valid], np.nan)
    return ValidatedBatch(
        files,
        frame.filter(valid),
        actions[valid],
        unit[valid],
        None if q is None else q[valid],
        _quarantined(file, rejected, batch_rules),
        Rejected(
            valid,
            actions[~valid],
            unit[~valid],
            usable[~valid],
            rejected_q,
            _columns_of(rejected, CONTEXT),
            _columns_of(rejected, METRIC, SEGMENT),
        ),
        None if table is None else table[valid],
    )


class SeenIds:
    """The ids of the rows so far, of which a log counts the first row alone.

    A hash of 64 bits stands for an id: 8 bytes each. Two of n ids have the same hash with a
    probability of about n²/2⁶⁵, which is 3e-6 for ten million.
    """

    def __init__(self) -> None:
        self._sorted: list[NDArray[np.uint64]] = []  # each at least twice as long as the next

    def split(
        self, file: str, frame: pl.DataFrame
    ) -> tuple[pl.DataFrame, Callable[[ValidatedBatch], ValidatedBatch]]:
        """The rows whose id is new or missing, and a function that adds the others to their batch.

        >>> rows = pl.DataFrame({"row": [1, 2, 3], "action": "a", "reward": 1, "id": [7, 8, 7]})
        >>> SeenIds().split("log.csv", rows)[0]["row"].to_list()
        [1, 2]
        """
        ids = frame.select(column_text(pl.col(ID), frame[ID].dtype)).to_series()
        new = self._add(ids.hash().to_numpy()) | ids.is_null().to_numpy()
        if new.all():
            return frame.with_columns(ids), lambda batch: batch
        copies = frame.filter(~new)
        reasons = pl.repeat(RejectReason.ID_REPEATED.value, len(copies), eager=True)

        def with_copies(batch: ValidatedBatch) -> ValidatedBatch:
            refused = pl.concat([batch.quarantined, _as_text(file, copies, reasons.alias(REASON))])
            return replace(batch, files=rows_by_file(file, frame), quarantined=refused.sort(ROW))

        return frame.with_columns(ids).filter(new), with_copies

    def _add(self, hashes: NDArray[np.uint64]) -> Mask:
        """Add ids; a mask of those that are new."""
        fresh, first = np.unique(hashes, return_index=True)
        for known in self._sorted:
            place = np.minimum(np.searchsorted(known, fresh), len(known) - 1)
            new = known[place] != fresh
            fresh, first = fresh[new], first[new]
        if len(fresh):
            self._sorted.append(fresh)
        while len(self._sorted) > 1 and len(self._sorted[-2]) < 2 * len(self._sorted[-1]):
            last = self._sorted.pop()
            self._sorted[-1] = np.union1d(self._sorted[-1], last)
        mask = np.zeros(len(hashes), dtype=np.bool_)
        mask[first] = True
        return mask


def _with_vectors(
    file: str, frame: pl.DataFrame, rules: RowRules
) -> tuple[pl.DataFrame, CheckedVectors]:
    """The batch with the faults of its propensity vectors, and what is known of the vectors.

    Where there is no column of propensities, the vector's entry for the action is the propensity.
    """
    require_labels(file, ACTION, narwhals_type(frame[ACTION].dtype))
    q = None
    if PROPENSITY in frame.columns:
        text = isinstance(frame[PROPENSITY].dtype, TEXT_TYPES)
        column = BoundedColumn.of(PROPENSITY, UNIT, text=text)
        require_numbers(file, PROPENSITY, narwhals_type(frame[PROPENSITY].dtype))
        q = _as_array(parse_numbers(column, frame[PROPENSITY]))
    vectors = check_vectors(
        read_entries(file, frame[VECTOR], rules.order),
        frame[ACTION],
        q,
        rules.actions,
        closed=rules.closed,
        known=rules.known,
        least=0.0 if rules.limits is None else rules.limits[0],
    )
    frame = frame.with_columns(vectors.faults)
    if q is None:
        frame = frame.with_columns(pl.Series(PROPENSITY, vectors.own).fill_nan(None))
    return frame, vectors


def _as_mask(holds: pl.Series) -> Mask:
    """A mask of the rows for which a condition is true."""
    return holds.fill_null(value=False).to_numpy()


def _parse(
    file: str, frame: pl.DataFrame, rules: RowRules, numbers: Mapping[str, BoundedColumn]
) -> tuple[pl.DataFrame, Integers]:
    """The batch with the columns that the rules read, and the index of each action."""
    require_labels(file, ACTION, narwhals_type(frame[ACTION].dtype))
    for role in numbers:
        require_numbers(file, role, narwhals_type(frame[role].dtype))
    parsed = [parse_numbers(column, frame[role]) for role, column in numbers.items()]
    if rules.actions is None:  # any label is an action
        labels, actions = frame[ACTION], np.zeros(len(frame), dtype=np.int64)
        if not labels.dtype.is_integer():
            labels = frame.select(column_text(pl.col(ACTION), labels.dtype)).to_series()
        if labels.null_count():
            actions[labels.is_null().to_numpy()] = UNKNOWN
    else:
        actions = rules.actions.indices(frame[ACTION])
    parsed.append(pl.Series(INDEX, actions))
    if rules.support is not None:
        parsed.append(pl.Series(PLAYABLE, rules.support[np.maximum(actions, 0)]))
    if ELIGIBLE in frame.columns:
        parsed.append(_listed(file, frame))
    return frame.hstack(parsed), actions


def _as_array(values: pl.Series) -> Array:
    return np.asarray(values.to_numpy(), dtype=np.float64)  # nan where it is null


def labels_of(column: pl.Series) -> pl.Series:
    """The labels of a column as text, null where there is none."""
    return column.to_frame(LABEL).select(label_text(pl.col(LABEL), column.dtype)).to_series()


def _listed(file: str, frame: pl.DataFrame) -> pl.Series:
    """Whether each action is among those that were eligible; a missing list allows all."""
    kind, among = frame[ELIGIBLE].dtype, pl.col(ELIGIBLE)
    inner: Any = getattr(kind, "inner", kind)
    require_labels(file, ELIGIBLE, narwhals_type(inner), f"{kind}, not lists of labels")
    if isinstance(kind, pl.List | pl.Array):
        lists = among.arr.to_list() if isinstance(kind, pl.Array) else among
        listed = lists.list.eval(label_text(pl.element(), inner))
    else:
        texts = _labels_in(column_text(among, kind))
        listed = texts.list.eval(label_text(pl.element(), pl.String()))
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


def _quarantined(file: str, rejected: pl.DataFrame, rules: Sequence[Rule]) -> pl.DataFrame:
    """The rejected rows with the first rule that each breaks."""
    categories = pl.selectors.by_dtype(pl.Categorical, pl.Enum)
    label = column_text(pl.col(ACTION), rejected[ACTION].dtype).alias(LABEL)
    readable = rejected.with_columns(label, categories.cast(pl.String))
    return _as_text(file, rejected, readable.select(first_reason(rules)).to_series())


def _as_text(file: str, rejected: pl.DataFrame, reasons: pl.Series) -> pl.DataFrame:
    """Rows with their reasons as quarantine.parquet has them."""
    values = {
        name: pl.col(name).cast(pl.String, strict=False).str.slice(0, LONGEST)
        if name in rejected.columns
        else pl.lit(None, dtype=pl.String)
        for name in (ACTION, REWARD, PROPENSITY)
    }
    return rejected.select(
        pl.col(FILE) if FILE in rejected.columns else pl.lit(file).alias(FILE),
        pl.col(ROW).cast(pl.Int64),
        reasons,
        **values,
    )
