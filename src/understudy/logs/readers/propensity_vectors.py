"""Propensity vectors: the propensities of all actions in each row, in any form that logs have.

A vector is a mapping from labels to propensities, or a list in the order in which the actions were
declared. In files of text both are JSON. An action that a mapping does not name has propensity 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from understudy.behaviors import SLACK, sum_slack
from understudy.constraints import SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidLog
from understudy.logs.rules import VECTOR_FAULT, VECTOR_FAULTS, RejectReason
from understudy.logs.schema import UNKNOWN, Actions, label_key, label_text
from understudy.types import Integers

LABELS, VALUES = "labels", "values"  # the fields of `pair`
LARGEST_TABLE = 1 << 22  # propensities of all actions at a time: 32 MB
MISSING = -2  # in place of the index of an action that no vector names
WIDEST = 1 << 16  # between labels that are numbers, to count them without a table of labels
TEXTS = (pl.String, pl.Categorical, pl.Enum)
PAIR = pl.Struct({LABELS: pl.String, VALUES: pl.String})
Mask = NDArray[np.bool_]
FAULT_TEXTS = pl.Series([reason.value for reason in VECTOR_FAULTS])


def pair(labels: pl.Expr, values: pl.Expr) -> pl.Expr:
    """A column of vectors from lists of whole numbers, the labels, and of propensities, as JSON.

    >>> lists = pl.DataFrame({"a": "[2,1]", "p": "[0.25,0.75]"})
    >>> read_entries("log", lists.select(pair(pl.col("a"), pl.col("p"))).to_series()).labels
    ('1', '2')
    """
    return pl.struct(labels.alias(LABELS), values.alias(VALUES))


def small_parts(frame: pl.DataFrame, n_actions: int) -> Iterator[pl.DataFrame]:
    """A frame in parts whose table of propensities of all actions is not too large."""
    return frame.iter_slices(max(1, LARGEST_TABLE // n_actions))


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of all vectors of a batch, one after the other.

    Entry i is `values[i]`, nan where it is no number; its action is `labels[codes[i]]`, and its row
    `rows[i]`. `faults` has the place in `VECTOR_FAULTS` for each row without entries, else −1.
    """

    rows: Integers
    codes: Integers
    values: Array
    labels: tuple[str, ...]
    faults: Integers


@dataclass(frozen=True, eq=False)
class CheckedVectors:
    """The vectors of a batch: a fault for each row, or null, and what is known of the others.

    `own` is the propensity of the action that was played, nan where it has none. `table` has the
    propensities of all actions, (n, K); None if the actions that matter are not known beforehand.
    """

    own: Array
    faults: pl.Series
    table: Array | None


def read_entries(file: str, column: pl.Series, order: Sequence[str] | None = None) -> Entries:
    """The entries of a column of vectors; `order` has the actions as they were declared.

    >>> read_entries("log", pl.Series([{"x": 0.25, "y": 0.75}])).values.tolist()
    [0.25, 0.75]
    >>> found = read_entries("log", pl.Series(["[0.5, 0.5]", None, "0.5"]), ["x", "y"])
    >>> found.values.tolist(), [VECTOR_FAULTS[i].value for i in found.faults[1:]]
    ([0.5, 0.5], ['propensity vector is missing', 'propensity vector is not readable'])
    """
    n, kind = len(column), column.dtype
    faults = np.full(n, UNKNOWN)
    faults[column.is_null().to_numpy()] = _place(RejectReason.VECTOR_MISSING)
    labels: pl.Series | None = None
    if kind == PAIR:
        labels, values = (_split(column.struct.field(name)) for name in (LABELS, VALUES))
        missing = (labels.is_null() | values.is_null()).to_numpy()
        faults[missing] = _place(RejectReason.VECTOR_MISSING)
    elif isinstance(kind, pl.Struct) and all(_is_number(field.dtype) for field in kind.fields):
        return _of_struct(column, faults)
    elif isinstance(kind, pl.List | pl.Array) and _is_number(kind.inner):
        values = column.cast(pl.List(pl.Float64))
    elif isinstance(kind, (*TEXTS, pl.Null)):
        text = column.cast(pl.String).str.strip_chars()
        faults[(text == "").fill_null(value=False).to_numpy()] = _place(RejectReason.VECTOR_MISSING)
        labels, values = _parsed(text)
        unread = values.is_null().to_numpy() & (faults == UNKNOWN)
        faults[unread] = _place(RejectReason.VECTOR_UNREADABLE)
    else:
        raise InvalidLog(
            "log",
            file,
            f"its column for the propensity vector holds {kind}, not vectors of propensities",
            "name another column with --propensity-vector: a list of numbers in the order of "
            "--actions, a mapping from labels to numbers, or either as JSON",
        )
    # In a mapping an action without a number has propensity 0.
    nothing = math.nan if kind == PAIR else 0.0
    return _of_lists(labels, values, order, faults, nothing)


def check_vectors(
    entries: Entries,
    played: pl.Series,
    propensities: Array | None,
    actions: Actions | None,
    *,
    closed: bool,
    known: frozenset[str],
    least: float,
) -> CheckedVectors:
    """Check the vectors of a batch against the actions that were played, and their propensities.

    `propensities` are nan where there is none, and None if the log has no column of them. `actions`
    is None while they are collected; if they are not `closed`, vectors may name others, and the
    table has 1 for all but the `known` ones. No propensity may be below the `least` one.
    """
    n, rows, values = len(entries.faults), entries.rows, entries.values
    places = entries.codes
    if actions is not None:
        found_at = [actions.index(label) for label in entries.labels]
        places = np.array(found_at, dtype=np.int64)[entries.codes]
    if closed and actions is not None:
        index = actions.indices(played)
        own = _of_rows(rows, values, places == np.where(index < 0, MISSING, index)[rows], n)
        own[index < 0] = np.nan  # a row of an unknown action has another fault
    else:
        texts = played.to_frame("a").select(label_text(pl.col("a"), played.dtype)).to_series()
        own = _of_rows(rows, values, entries.codes == _codes_of(texts, entries.labels)[rows], n)
        own[texts.is_null().to_numpy()] = np.nan
    bad = ~((values >= 0.0) & (values <= 1.0))
    sums, lengths = np.bincount(rows, values, n), np.bincount(rows, minlength=n)
    found = {
        RejectReason.VECTOR_NO_PROBABILITIES: _of_rows(rows, bad, bad, n) > 0,
        RejectReason.VECTOR_WRONG_SUM: ~(np.abs(sums - 1.0) <= sum_slack(lengths)),
        RejectReason.VECTOR_WITHOUT_ACTION: own < SMALLEST_PROBABILITY,
    }
    if propensities is not None:
        found[RejectReason.VECTOR_CONTRADICTS] = np.abs(own - propensities) > SLACK
    table: Array | None = None
    if closed and actions is not None:
        stray = (places == UNKNOWN) & (values > 0.0)
        found[RejectReason.VECTOR_UNKNOWN_ACTION] = _of_rows(rows, stray, stray, n) > 0
    if actions is not None and (closed or known):
        listed, K = places != UNKNOWN, len(actions)
        table = _of_rows(rows * K + places, values, listed, n * K).reshape(n, K)
        if not closed:
            table[:, [key not in known for key in actions.keys]] = 1.0
        if least > 0.0:
            found[RejectReason.PROPENSITY_CONTRADICTS] = table.min(axis=1) < least
    faults = entries.faults.copy()
    for place, reason in enumerate(VECTOR_FAULTS):
        if reason in found:
            faults[found[reason] & (faults == UNKNOWN)] = place
    own[faults != UNKNOWN] = np.nan
    return CheckedVectors(own, _texts(faults), table)


def _of_struct(column: pl.Series, faults: Integers) -> Entries:
    """The entries of mappings that all have the same labels."""
    names = [field.name for field in column.dtype.fields]  # type: ignore[attr-defined] # a struct
    fields = column.struct.unnest().select(pl.all().cast(pl.Float64))
    nothing = fields.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
    faults[nothing] = _place(RejectReason.VECTOR_MISSING)
    there = np.flatnonzero(faults == UNKNOWN)
    table = np.stack([fields[name].fill_null(0.0).to_numpy() for name in names], axis=1)[there]
    labels = tuple(dict.fromkeys(map(label_key, names)))
    codes = np.array([labels.index(label_key(name)) for name in names])
    return Entries(
        np.repeat(there, len(names)), np.tile(codes, len(there)), table.ravel(), labels, faults
    )


def _of_lists(
    labels: pl.Series | None,
    values: pl.Series,
    order: Sequence[str] | None,
    faults: Integers,
    nothing: float,
) -> Entries:
    """The entries of lists of values, with a list of labels each, or in the declared `order`.

    Where a label has no number, its value is `nothing`.
    """
    named = np.zeros(len(values), dtype=np.bool_) if labels is None else _there(labels)
    lengths = values.list.len().fill_null(0).to_numpy().astype(np.int64)
    if order is None:
        faults[~named & (faults == UNKNOWN)] = _place(RejectReason.VECTOR_WITHOUT_ORDER)
        order = ()
    wanted = np.full(len(values), len(order))
    if labels is not None:
        wanted[named] = labels.list.len().fill_null(0).to_numpy()[named]
    faults[(lengths != wanted) & (faults == UNKNOWN)] = _place(RejectReason.VECTOR_WRONG_LENGTH)
    good = faults == UNKNOWN
    numbers = _exploded(values, good).cast(pl.Float64, strict=False)
    rows = np.repeat(np.flatnonzero(good), lengths[good])
    of_named = named[rows]
    found = np.asarray(numbers.to_numpy(), dtype=np.float64)
    if labels is None:
        return Entries(rows, np.tile(np.arange(len(order)), good.sum()), found, (*order,), faults)
    if numbers.null_count():
        found = np.where(of_named & numbers.is_null().to_numpy(), nothing, found)
    texts = _exploded(labels, named & good)
    if math.isnan(nothing) and (whole := _whole(texts)) is not None:
        return Entries(rows, whole[0], found, whole[1], faults)
    keys = texts.to_frame("a").select(label_text(pl.col("a"), texts.dtype)).to_series()
    every = tuple(dict.fromkeys([*order, *keys.unique(maintain_order=True).drop_nulls()]))
    codes = np.empty(len(rows), dtype=np.int64)
    codes[of_named] = _codes_of(keys, every)
    codes[~of_named] = np.tile(np.arange(len(order)), (~named & good).sum())
    faults[rows[codes == UNKNOWN]] = _place(RejectReason.VECTOR_UNREADABLE)  # a label is missing
    there = faults[rows] == UNKNOWN
    return Entries(rows[there], codes[there], found[there], every, faults)


def _whole(texts: pl.Series) -> tuple[Integers, tuple[str, ...]] | None:
    """Codes and labels, if these are whole numbers that are not far from each other."""
    numbers = texts.cast(pl.Int64, strict=False)
    if not len(texts) or numbers.null_count():
        return None
    found = numbers.to_numpy()
    low, high = int(found.min()), int(found.max())
    if high - low >= WIDEST:
        return None
    return found - low, tuple(map(str, range(low, high + 1)))


def _split(lists: pl.Series) -> pl.Series:
    """The elements of lists in JSON without blanks and without commas in them, as text."""
    return lists.str.strip_chars("[]").str.split(",")


def _parsed(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The labels and the values of vectors in JSON; a list has no labels, other text no values."""
    import duckdb  # noqa: PLC0415 - most logs are read without it

    with duckdb.connect() as connection:
        connection.register("vectors", texts.alias("text").to_frame())
        found = connection.sql(
            "SELECT TRY(json_type(text)) AS kind,"
            " TRY(json_keys(text)) AS labels,"
            " TRY(CAST(json_extract(text, '$.*') AS DOUBLE[])) AS values,"
            " TRY(CAST(CAST(text AS JSON) AS DOUBLE[])) AS listed FROM vectors"
        )
        frame = pl.DataFrame(found.to_arrow_table())
    named = frame["kind"] == "OBJECT"
    chosen = frame.select(
        pl.when(named).then(LABELS), pl.when(named).then(VALUES).otherwise("listed")
    )
    return chosen[LABELS], chosen[VALUES]


def _exploded(lists: pl.Series, chosen: Mask) -> pl.Series:
    """The elements of the chosen lists, of which none is null; nothing for an empty one."""
    kept = lists.filter(pl.Series(chosen) & (lists.list.len() > 0))
    return kept.explode()


def _codes_of(labels: pl.Series, every: Sequence[str]) -> Integers:
    """The place of each label among all; −1 where it is missing or unknown."""
    codes = labels.cast(pl.Enum(every), strict=False).to_physical()
    return codes.cast(pl.Int64).fill_null(UNKNOWN).to_numpy()


def _there(values: pl.Series) -> Mask:
    return values.is_not_null().to_numpy()


def _of_rows(cells: Integers, values: NDArray[Any], which: Mask, size: int) -> Array:
    """The sum of some values in each cell."""
    chosen = cells if which.all() else cells[which]
    return np.asarray(np.bincount(chosen, values if which.all() else values[which], size), float)


def _is_number(dtype: Any) -> bool:
    return bool(dtype.is_numeric() or dtype == pl.Null)


def _place(reason: RejectReason) -> int:
    return VECTOR_FAULTS.index(reason)


def _texts(faults: Integers) -> pl.Series:
    """The reason of each row as text, null where there is none."""
    if (faults == UNKNOWN).all():
        return pl.repeat(None, len(faults), dtype=pl.String, eager=True).alias(VECTOR_FAULT)
    return FAULT_TEXTS.gather(pl.Series(faults).replace(UNKNOWN, None)).alias(VECTOR_FAULT)
