"""The encoder of contexts as feature vectors: numbers standardised, labels one-hot.

A warm-up fixes the type of a column, its mean and its labels. After it the features of a row depend
on that row alone, and they are bounded for any value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from math import isfinite
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from understudy.constraints import (
    NONNEGATIVE,
    TRUTH,
    Array,
    Constraint,
    ConstraintViolation,
    enforce,
    number,
)
from understudy.errors import InvalidArgument, InvalidLog, InvalidSnapshot
from understudy.logs.readers.sorting import look_like_dates
from understudy.logs.schema import CONTEXT, column_text, stripped
from understudy.snapshots import fields_from_data

BOUND = 5.0  # standard deviations: an outlier counts as this far out, so that features are bounded
# Labels with a feature of their own. The learner's state has K p² numbers, so that a column has
# fifty; a few columns share two hundred.
MOST_CATEGORIES, MOST_IN_ALL = 50, 200
MOST_RARE = 1_000  # labels that are remembered: a column of ids would fill policy.json
MISSING = ("", "-", "na", "n/a", "nan", "null", "none")  # in lower case, in a column of numbers
LONGEST_INTEGER = 64  # bits of an integer in a frame, with its sign
REMEDY = "use a file that understudy learn wrote, unchanged"
NO_DATES = (
    "a date does not come again, so that nothing learned about it could be used",
    "make columns of it that repeat, such as the hour and the day of the week",
)


class Unexpected(StrEnum):
    """A way in which a value of a context differs from all values of the warm-up."""

    NEW = "new"
    MISSING = "missing"
    NOT_A_NUMBER = "not a number"


UnexpectedValues = Counter[tuple[str, Unexpected]]  # how many, by column


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConstraintViolation("it must be text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise ConstraintViolation("it must be a list of texts")
    if len(set(value)) < len(value):
        raise ConstraintViolation("a text is in it twice")
    return tuple(value)


TEXT = Constraint("pass the name of a column", _text, (None, 3, ["a"]))
TEXTS = Constraint("pass each text once", _texts, (None, "ab", [1], ["a", "a"], {"a"}))
MEAN = number(-np.inf, np.inf, "pass the mean of the column")


@dataclass(frozen=True)
class Encoder:
    """The map from a context to p features: the constant 1, then the features of each column.

    `constants` are columns with one value in the whole warm-up; they have no features.

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

    columns: tuple[NumberColumn | CategoryColumn, ...]
    constants: tuple[str, ...] = ()
    CONSTRAINTS: ClassVar = {"constants": TEXTS}

    def __post_init__(self) -> None:
        enforce(self)
        if len(set(self.names)) < len(self.names):
            raise InvalidArgument(
                "columns", list(self.names), "a column is in it twice", "name each column once"
            )

    @staticmethod
    def fit(
        frame: pl.DataFrame, names: Sequence[str], most_labels: int = MOST_CATEGORIES
    ) -> Encoder:
        """The encoder of these columns, `context.<name>` in a frame of warm-up rows.

        At most `most_labels` of a column have a feature of their own.
        """
        if not len(frame):
            raise InvalidLog(
                "warm-up", "no rows", "features are scaled by its rows", "pass a longer --warmup"
            )
        fitted = {name: _fit_column(name, _context(frame, name), most_labels) for name in names}
        columns = tuple(column for column in fitted.values() if column is not None)
        return Encoder(columns, tuple(name for name in fitted if fitted[name] is None))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a context may have."""
        return (*(column.name for column in self.columns), *self.constants)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The names of the features, (p,)."""
        return ("1", *(name for column in self.columns for name in column.features))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The index of the first feature of each column; before them all is the constant."""
        sizes = [len(column.features) for column in self.columns]
        return tuple(accumulate(sizes[:-1], initial=1)) if sizes else ()

    def encode(self, frame: pl.DataFrame) -> Array:
        """The features of every row, (n, p): the same bits, however a log is cut into frames."""
        encoded = [column.encode(_context(frame, column.name)) for column in self.columns]
        return np.concatenate([np.ones((len(frame), 1)), *encoded], axis=1)

    def encode_one(self, context: Mapping[str, object]) -> Array:
        """The features of one context, (p,), bit for bit those of `encode`.

        None and NaN are missing values.
        """
        if not (
            isinstance(context, Mapping)
            and context.keys() <= self._allowed
            and context.keys() >= self._needed
        ):
            raise self._refusal(context)
        features = self._constant.copy()
        for name, put, place in self._places:
            put(context[name], features, place)
        return np.array(features)

    @cached_property
    def _allowed(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def _needed(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    @cached_property
    def _constant(self) -> list[float]:
        """The features of a context whose columns have none: a list, which is faster to fill."""
        return [1.0, *[0.0] * (len(self.features) - 1)]

    @cached_property
    def _places(self) -> tuple[tuple[str, Callable[[object, list[float], int], None], int], ...]:
        """The name of each column, the function that encodes a value, and its first feature."""
        return tuple(
            (column.name, column.put, start)
            for column, start in zip(self.columns, self.starts, strict=True)
        )

    def _refusal(self, context: object) -> InvalidArgument:
        """The error for a context without the columns that are features, or with others."""
        needed = [column.name for column in self.columns]
        example = ", ".join(f"{name!r}: …" for name in needed)
        value = dict(context) if isinstance(context, Mapping) else context
        if not isinstance(value, dict):
            reason = "a context is a dictionary of the columns that the policy depends on"
        elif unknown := [name for name in value if name not in self.names]:
            reason = f"the log had no column of contexts {unknown[0]!r}"
        else:
            absent = [name for name in needed if name not in value]
            reason = f"it has no value of {', '.join(absent)}"
        remedy = f"pass {{{example}}}, with None for what is missing"
        return InvalidArgument("context", value, reason, remedy)

    def unexpected_values(self, frame: pl.DataFrame) -> UnexpectedValues:
        """Count the values that are unlike all values of the warm-up, by column."""
        counts = UnexpectedValues()
        for column in self.columns:
            for how, count in column.unexpected_values(_context(frame, column.name)).items():
                counts[column.name, how] += count
        return +counts  # without zeros

    @staticmethod
    def from_data(data: object) -> Encoder:
        """Parse the data that `fields_as_data` made, or raise `InvalidSnapshot`."""
        return fields_from_data(Encoder, data, "encoder", REMEDY, columns=_columns_from_data)


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: (x − mean)/scale, cut at ±`BOUND`, and 0 for a missing number.

    `missing`: the warm-up had missing numbers, so that a second feature marks them. A `scale` of 0:
    all numbers of the warm-up were equal, and there is no first feature.

    >>> NumberColumn("age", mean=40.0, scale=10.0, missing=True).encode(pl.Series([50, 1000, None]))
    array([[1., 0.],
           [5., 0.],
           [0., 1.]])
    """

    name: str
    mean: float
    scale: float
    missing: bool
    KIND: ClassVar = "number"
    CONSTRAINTS: ClassVar = {"name": TEXT, "mean": MEAN, "scale": NONNEGATIVE, "missing": TRUTH}

    def __post_init__(self) -> None:
        enforce(self)

    @staticmethod
    def fit(name: str, column: pl.Series) -> NumberColumn:
        """Mean and standard deviation of the warm-up."""
        values = _finite(column)
        known = values[~np.isnan(values)]
        largest = float(np.abs(known).max())
        unit = known / (largest or 1.0)  # so that squares do not overflow
        differ = bool(known.min() < known.max())  # rounding may leave a deviation above 0
        scale = float(unit.std()) * largest if differ else 0.0
        return NumberColumn(name, float(unit.mean()) * largest, scale, len(known) < len(values))

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features."""
        value = (self.name,) if self.scale > 0 else ()
        return (*value, f"{self.name} is missing") if self.missing else value

    def encode(self, column: pl.Series) -> Array:
        """The features of every row."""
        values = _finite(column)
        absent = np.isnan(values)
        features = []
        if self.scale > 0:
            with np.errstate(over="ignore"):  # infinity is cut too
                standard = np.clip((values - self.mean) / self.scale, -BOUND, BOUND)
            features.append(np.where(absent, 0.0, standard))
        if self.missing:
            features.append(absent.astype(np.float64))
        return np.stack(features, axis=1)

    def put(self, value: object, features: list[float], place: int) -> None:
        """Write the features of one value into a row of zeros, from `place` on."""
        number = value if type(value) is float else self._number(value)
        if not isfinite(number):
            if self.missing:
                features[place + (self.scale > 0)] = 1.0
        elif self.scale > 0:
            standard = (number - self.mean) / self.scale
            cut = BOUND if standard > BOUND else -BOUND if standard < -BOUND else standard
            features[place] = cut

    def _number(self, value: object) -> float:
        """A value as a number, NaN if it is missing; `InvalidArgument` if it is no number."""
        if value is None:
            return math.nan
        if isinstance(value, np.generic):
            return self._number(value.item())
        if isinstance(value, int | float):
            try:
                return float(value)
            except OverflowError:
                return math.inf
        return float(_finite(_one(self, value))[0])  # text

    def unexpected_values(self, column: pl.Series) -> dict[Unexpected, int]:
        """Count values that are no number, and missing ones if the warm-up had none."""
        absent = np.isnan(_finite(column))
        if not absent.any():
            return {}
        blank = _is_blank(column)
        return {
            Unexpected.NOT_A_NUMBER: int((absent & ~blank).sum()),
            Unexpected.MISSING: 0 if self.missing else int(blank.sum()),
        }


@dataclass(frozen=True)
class CategoryColumn:
    """A column of labels: one feature per label, 1 where the row has it.

    `rare`: labels of the warm-up beyond the most frequent ones, of which the
    first `MOST_RARE` are remembered. If there are any, they share one feature with all new labels;
    otherwise a new label has no feature.

    >>> cities = CategoryColumn("city", ("Rome", "Oslo"), rare=(), missing=False)
    >>> cities.encode(pl.Series(["Oslo", "Bonn"]))
    array([[0., 1.],
           [0., 0.]])
    """

    name: str
    categories: tuple[str, ...]
    rare: tuple[str, ...]
    missing: bool
    KIND: ClassVar = "category"
    CONSTRAINTS: ClassVar = {"name": TEXT, "categories": TEXTS, "rare": TEXTS, "missing": TRUTH}

    def __post_init__(self) -> None:
        enforce(self)

    @staticmethod
    def fit(name: str, column: pl.Series, most_labels: int = MOST_CATEGORIES) -> CategoryColumn:
        """The most frequent labels of the warm-up; equally frequent ones by name."""
        texts = _labels(column)
        counts = texts.drop_nulls().value_counts(name="rows")
        order = counts.sort(["rows", texts.name], descending=[True, False])
        labels = order[texts.name].to_list()
        most, rare = tuple(labels[:most_labels]), tuple(labels[most_labels:][:MOST_RARE])
        return CategoryColumn(name, most, rare, texts.null_count() > 0)

    @property
    def other(self) -> bool:
        """Whether labels without a feature of their own share one."""
        return bool(self.rare)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features."""
        own = tuple(f"{self.name} = {category}" for category in self.categories)
        rest = (f"{self.name} is another",) if self.other else ()
        return (*own, *rest, f"{self.name} is missing") if self.missing else (*own, *rest)

    def encode(self, column: pl.Series) -> Array:
        """The features of every row."""
        texts, own = _labels(column), len(self.categories)
        places = texts.cast(pl.Enum(self.categories), strict=False).to_physical()
        index = places.cast(pl.Int64).fill_null(-1).to_numpy()
        one_hot = np.zeros((len(column), own + self.other + self.missing))
        known = np.flatnonzero(index >= 0)
        one_hot[known, index[known]] = 1.0
        if self.other:
            one_hot[(index < 0) & texts.is_not_null().to_numpy(), own] = 1.0
        if self.missing:
            one_hot[texts.is_null().to_numpy(), -1] = 1.0
        return one_hot

    def put(self, value: object, features: list[float], place: int) -> None:
        """Write the features of one value into a row of zeros, from `place` on."""
        label = value if type(value) is str else self._label(value)
        if label:
            own = self._own.get(label)
            if own is not None:
                features[place + own] = 1.0
            elif self.other:
                features[place + len(self.categories)] = 1.0
        elif self.missing:
            features[place + len(self.categories) + self.other] = 1.0

    @cached_property
    def _own(self) -> dict[str, int]:
        return {category: i for i, category in enumerate(self.categories)}

    def _label(self, value: object) -> str | None:
        """A value as text, as `column_text` writes it; None if it is missing."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, np.generic):
            return self._label(value.item())
        if type(value) is int and value.bit_length() < LONGEST_INTEGER:
            return str(value)
        text: str | None = _labels(_one(self, value))[0]
        return text

    def unexpected_values(self, column: pl.Series) -> dict[Unexpected, int]:
        """Count new labels, and missing ones if the warm-up had none."""
        texts = _labels(column)
        known = pl.Series([*self.categories, *self.rare], dtype=pl.String)
        return {
            Unexpected.NEW: int((~texts.drop_nulls().is_in(known.implode())).sum()),
            Unexpected.MISSING: 0 if self.missing else texts.null_count(),
        }


Column = NumberColumn | CategoryColumn


def _fit_column(name: str, column: pl.Series, most_labels: int) -> Column | None:
    """A column of the warm-up; None if all rows have the same value."""
    if not _is_numeric(column):
        _refuse_dates(name, column)
        labels = CategoryColumn.fit(name, column, most_labels)
        return labels if len(labels.features) > 1 else None
    if np.isnan(_finite(column)).all():
        return None
    numbers = NumberColumn.fit(name, column)
    return numbers if numbers.features else None


def _columns_from_data(data: Any) -> tuple[Column, ...]:
    if not isinstance(data, list):
        raise InvalidSnapshot("encoder.columns", data, "it is no list", REMEDY)
    kinds: tuple[type[Column], ...] = (NumberColumn, CategoryColumn)
    return tuple(fields_from_data(kinds, item, "encoder.columns", REMEDY) for item in data)


def _context(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column of contexts, or `InvalidLog` if it has a type without features."""
    if CONTEXT + name not in frame.columns:
        raise InvalidLog(
            "contexts", frame.columns, f"there is no column {name!r}", "pass logs that have it"
        )
    column = frame[CONTEXT + name]
    dtype = column.dtype
    if dtype.is_temporal():
        raise InvalidLog(f"context {name}", dtype, *NO_DATES)
    if dtype.is_nested() or dtype in {pl.Binary, pl.Object}:
        reason, remedy = "a context is a number, a label or missing", "make columns of its parts"
        raise InvalidLog(f"context {name}", dtype, reason, remedy)
    return column


def _refuse_dates(name: str, column: pl.Series) -> None:
    """Raise `InvalidLog` if all texts of a column are dates, as in a CSV file."""
    texts = column.cast(pl.String).filter(~_is_blank(column))
    if len(texts) and look_like_dates(texts).all():
        raise InvalidLog(f"context {name}", texts[0], *NO_DATES)


def _one(column: Column, value: object) -> pl.Series:
    """One value as a series."""
    name = column.name
    value = value.item() if isinstance(value, np.generic) else value
    if not (value is None or isinstance(value, bool | int | float | str)):
        reason = "a context is a number, a label or missing"
        remedy = "pass a number, text, True, False or None"
        raise InvalidArgument(f"context[{name!r}]", value, reason, remedy)
    if isinstance(value, int) and value.bit_length() >= LONGEST_INTEGER:
        try:
            value = float(value)
        except OverflowError:
            value = np.inf
    series = pl.Series(name, [value])
    if isinstance(column, NumberColumn) and not _is_numeric(series):
        reason = "it is not a number, as this column was in the log"
        remedy = "pass a number, or None if it is missing"
        raise InvalidArgument(f"context[{name!r}]", value, reason, remedy)
    return series


def _is_numeric(column: pl.Series) -> bool:
    """Whether a column holds only numbers and missing values; true and false are numbers."""
    if column.dtype == pl.String:
        return bool((_numbers(column).is_not_null().to_numpy() | _is_blank(column)).all())
    return column.dtype.is_numeric() or column.dtype in {pl.Boolean, pl.Null}


def _numbers(column: pl.Series) -> pl.Series:
    """A column as floats, null where it holds no number; the texts true and false are 1 and 0."""
    texts = stripped(column)
    if texts is None:
        return column.cast(pl.Float64)
    words = texts.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None)
    return texts.cast(pl.Float64, strict=False).fill_null(words.cast(pl.Float64))


def _finite(column: pl.Series) -> Array:
    """A column as an array, NaN where it holds no finite number."""
    values = _numbers(column).fill_null(np.nan).to_numpy()
    return np.where(np.isfinite(values), values, np.nan)


def _is_blank(column: pl.Series) -> NDArray[np.bool_]:
    """Where a column has no value, rather than a value that is no number."""
    blank, texts = column.is_null(), stripped(column)
    if texts is not None:
        blank |= texts.str.to_lowercase().is_in(MISSING).fill_null(value=False)
    elif column.dtype.is_float():
        blank |= column.is_nan().fill_null(value=False)
    return blank.to_numpy()


def _labels(column: pl.Series) -> pl.Series:
    """The labels of a column as text, null where it has none."""
    text = column_text(pl.col(column.name), column.dtype)
    return column.to_frame().select(text)[column.name]
