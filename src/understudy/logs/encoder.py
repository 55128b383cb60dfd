"""Contexts as features, by what the warm-up of a log showed.

What a column is, its mean, its labels are taken from the warm-up and frozen. From then on the
features of a row are a function of that row alone, and bounded whatever it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidLog, InvalidSnapshot
from understudy.logs.columns import CONTEXT
from understudy.logs.encoded_columns import (
    TEXTS,
    Category,
    Column,
    Number,
    fit_column,
    is_numeric,
    refuse_type,
)

__all__ = ["Encoder"]

REMEDY = "use a file that understudy learn wrote, unchanged"
WHOLE_BITS = 64  # of a whole number in a column, with its sign
KINDS: dict[str, type[Column]] = {"number": Number, "category": Category}


@dataclass(frozen=True)
class Encoder:
    """From a context to p features: the constant 1, then those of each column.

    `constants` are columns that were the same in all of the warm-up: they are left out.

    >>> warmup = pl.DataFrame({"context.age": ["30", "50"], "context.city": ["Rome", "Oslo"]})
    >>> encoder = Encoder.fit(warmup, ["age", "city"])
    >>> encoder.features
    ('1', 'age', 'city = Oslo', 'city = Rome')
    >>> encoder.encode(warmup)
    array([[ 1., -1.,  0.,  1.],
           [ 1.,  1.,  1.,  0.]])
    >>> encoder.encode_one({"age": 60, "city": "Bonn"})
    array([1., 2., 0., 0.])
    """

    columns: tuple[Column, ...]
    constants: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise InvalidArgument(
                "columns", list(self.names), "a column is in it twice", "name each column once"
            )

    @staticmethod
    def fit(frame: pl.DataFrame, names: Sequence[str]) -> Encoder:
        """What the rows of a warm-up say about these columns, `context.<name>` in the frame."""
        refuse_empty(frame)
        columns = {name: fit_column(name, _context(frame, name)) for name in names}
        kept = tuple(column for column in columns.values() if column is not None)
        return Encoder(kept, tuple(name for name in columns if columns[name] is None))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a context may have."""
        return (*(column.name for column in self.columns), *self.constants)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """What the features are called, (p,)."""
        return ("1", *(name for column in self.columns for name in column.features))

    def encode(self, frame: pl.DataFrame) -> Array:
        """The features of every row, (n, p): the same bits, however a log is cut into frames."""
        read = [column.read(_context(frame, column.name)) for column in self.columns]
        return np.concatenate([np.ones((len(frame), 1)), *read], axis=1)

    def encode_one(self, context: Mapping[str, object]) -> Array:
        """The features of one context, (p,); a value of None or nan is a missing one."""
        self._refuse_incomplete(context)
        read = [column.read(_one(column, context[column.name])) for column in self.columns]
        return np.concatenate([np.ones(1), *(own[0] for own in read)])

    def _refuse_incomplete(self, context: object) -> None:
        """Raise `InvalidArgument` unless it is a dictionary of all columns that are features."""
        needed = [column.name for column in self.columns]
        example = ", ".join(f"{name!r}: …" for name in needed)
        remedy = f"pass {{{example}}}, with None for what is missing"
        if not isinstance(context, Mapping):
            reason = "a context is a dictionary of the columns that the policy depends on"
            raise InvalidArgument("context", context, reason, remedy)
        for name in context:
            if name not in self.names:
                reason = f"the log had no column of contexts {name!r}"
                raise InvalidArgument("context", dict(context), reason, remedy)
        if absent := [name for name in needed if name not in context]:
            reason = f"it does not say {', '.join(absent)}"
            raise InvalidArgument("context", dict(context), reason, remedy)

    def oddities(self, frame: pl.DataFrame) -> Counter[str]:
        """How many values are unlike all of the warm-up, by what is odd about them.

        >>> encoder = Encoder((Number("age", 40.0, 10.0, missing=False),))
        >>> encoder.oddities(pl.DataFrame({"context.age": ["41", "old", "ill", None]}))
        Counter({'age is not a number': 2, 'age is missing': 1})
        """
        found: Counter[str] = Counter()
        for column in self.columns:
            found.update(column.oddities(_context(frame, column.name)))
        return +found  # without what was not found

    def describe(self) -> list[str]:
        """A line for each column."""
        left_out = [f"{name}: the same in all of the warm-up, left out" for name in self.constants]
        return [str(column) for column in self.columns] + left_out

    def as_data(self) -> dict[str, Any]:
        """As what JSON can hold, exactly."""
        kinds = {cls: kind for kind, cls in KINDS.items()}
        columns = [{"kind": kinds[type(column)], **asdict(column)} for column in self.columns]
        return {"columns": columns, "constants": list(self.constants)}

    @staticmethod
    def from_data(data: object) -> Encoder:
        """What `as_data` made data of, or `InvalidSnapshot`.

        >>> encoder = Encoder((Number("age", 40.0, 10.0, missing=False),), ("site",))
        >>> Encoder.from_data(encoder.as_data()) == encoder
        True
        """
        if not isinstance(data, dict) or set(data) != {"columns", "constants"}:
            raise InvalidSnapshot("encoder", data, "it is no encoder", REMEDY)
        if not isinstance(data["columns"], list):
            raise InvalidSnapshot("encoder.columns", data["columns"], "it is no list", REMEDY)
        try:
            columns = tuple(_column_from_data(column) for column in data["columns"])
            return Encoder(columns, TEXTS("encoder.constants", data["constants"]))
        except InvalidSnapshot:
            raise
        except InvalidArgument as error:
            raise InvalidSnapshot(error.argument, error.value, error.reason, REMEDY) from error


def refuse_empty(frame: pl.DataFrame) -> None:
    """Raise `InvalidLog` if a warm-up has no rows."""
    if not len(frame):
        raise InvalidLog(
            "warm-up", "no rows", "features are scaled by its rows", "pass a longer --warmup"
        )


def _column_from_data(data: Any) -> Column:
    kind = KINDS.get(str(data.get("kind"))) if isinstance(data, dict) else None
    if kind is None or set(data) != {"kind", *(field.name for field in fields(kind))}:
        raise InvalidSnapshot("encoder.columns", data, "it is no column", REMEDY)
    return kind(**{name: value for name, value in data.items() if name != "kind"})


def _context(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column of contexts, of a type that features are made of."""
    if CONTEXT + name not in frame.columns:
        raise InvalidLog(
            "contexts", frame.columns, f"there is no column {name!r}", "pass logs with one form"
        )
    column = frame[CONTEXT + name]
    refuse_type(name, column)
    return column


def _one(column: Column, value: object) -> pl.Series:
    """One value as a column."""
    name = column.name
    value = value.item() if isinstance(value, np.generic) else value
    if not (value is None or isinstance(value, bool | int | float | str)):
        raise InvalidArgument(
            f"context[{name!r}]",
            value,
            "a context is a number, a label or missing",
            "pass a number, text, True, False or None",
        )
    if isinstance(value, int) and not isinstance(value, bool):
        value = _whole(value)
    found = pl.Series(name, [value])
    if isinstance(column, Number) and not is_numeric(found):
        raise InvalidArgument(
            f"context[{name!r}]",
            value,
            "it is not a number, as this column was in the log",
            "pass a number, or None if it is missing",
        )
    return found


def _whole(value: int) -> int | float:
    """A whole number as a column can hold it."""
    try:
        return value if value.bit_length() < WHOLE_BITS else float(value)
    except OverflowError:
        return np.inf
