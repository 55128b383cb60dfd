"""A column of contexts as features: numbers standardised, labels one-hot.

Contexts as features, by what the warm-up of a log showed.

What a column is, its mean, its labels are taken from the warm-up and frozen. From then on the
features of a row are a function of that row alone, and bounded whatever it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from understudy.constraints import (
    NONNEGATIVE,
    TRUTH,
    Array,
    Constraint,
    Refused,
    enforce,
    number,
)
from understudy.errors import InvalidArgument, InvalidLog, InvalidSnapshot, shorten
from understudy.logs.readers.sorting import look_like_dates
from understudy.logs.schema import CONTEXT, as_text
from understudy.report import wording

__all__ = ["NEW", "Category", "Column", "Encoder", "Number", "fit_column"]


Truths = NDArray[np.bool_]

BOUND = 5.0  # in standard deviations: what is further out counts as this far
MOST_CATEGORIES = 50
MOST_RARE = 1_000  # that are remembered: a column of ids would fill policy.json with them
NEW = "is new"
MOMENTS = (
    "a moment never comes back, so that nothing learned about it could be used",
    "make columns of it that do, such as the hour and the day of the week",
)
MISSING = ("", "-", "na", "n/a", "nan", "null", "none")  # as numbers are written, in lower case


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Refused("it must be text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise Refused("it must be a list of texts")
    if len(set(value)) < len(value):
        raise Refused("a text is in it twice")
    return tuple(value)


TEXT = Constraint("pass the name of a column", _text, (None, 3, ["a"]))
TEXTS = Constraint("pass each category once", _texts, (None, "ab", [1], ["a", "a"], {"a"}))
MEAN = number(-np.inf, np.inf, "pass the mean of the column")


@dataclass(frozen=True)
class Number:
    """A column of numbers: (x − mean)/scale, at most `BOUND` in size, and 0 where there is none.

    `missing`: a feature of its own says where there is none, as in the warm-up. A scale of 0 says
    that the numbers of the warm-up were all the same, so that they are no feature.

    >>> Number("age", mean=40.0, scale=10.0, missing=True).read(pl.Series([50, 1000, None]))
    array([[1., 0.],
           [5., 0.],
           [0., 1.]])
    """

    name: str
    mean: float
    scale: float
    missing: bool
    CONSTRAINTS: ClassVar = {"name": TEXT, "mean": MEAN, "scale": NONNEGATIVE, "missing": TRUTH}

    def __post_init__(self) -> None:
        enforce(self)

    @staticmethod
    def of(name: str, column: pl.Series) -> Number:
        """Mean and standard deviation of the warm-up, which may have numbers of any size."""
        found = _finite(column)
        there = found[~np.isnan(found)]
        largest = float(np.abs(there).max())
        unit = there / (largest or 1.0)  # squares of unit size do not overflow
        differ = bool(there.min() < there.max())  # a computed deviation may miss 0 by rounding
        scale = float(unit.std()) * largest if differ else 0.0
        return Number(name, float(unit.mean()) * largest, scale, len(there) < len(found))

    @property
    def features(self) -> tuple[str, ...]:
        """What the features are called."""
        value = (self.name,) if self.scale > 0 else ()
        return (*value, f"{self.name} is missing") if self.missing else value

    def read(self, column: pl.Series) -> Array:
        """The features of every row."""
        found = _finite(column)
        absent = np.isnan(found)
        values = []
        if self.scale > 0:
            with np.errstate(over="ignore"):  # then it is clipped
                standard = np.clip((found - self.mean) / self.scale, -BOUND, BOUND)
            values.append(np.where(absent, 0.0, standard))
        if self.missing:
            values.append(absent.astype(np.float64))
        return np.stack(values, axis=1)

    def oddities(self, column: pl.Series) -> dict[str, int]:
        """How many values are no number, and how many are missing where none was before."""
        absent = np.isnan(_finite(column))
        if not absent.any():
            return {}
        blank = _blank(column)
        return {
            f"{self.name} is not a number": int((absent & ~blank).sum()),
            f"{self.name} is missing": 0 if self.missing else int(blank.sum()),
        }

    def __str__(self) -> str:
        value = f"mean {wording.number(self.mean)}, standard deviation {wording.number(self.scale)}"
        value = (
            value if self.scale > 0 else f"always {wording.number(self.mean)} where there is one"
        )
        return f"{self.name}: a number, {value}{', or missing' if self.missing else ''}"


@dataclass(frozen=True)
class Category:
    """A column of labels: a feature for each, 1 where the row has it.

    `rare`: the labels that the warm-up had beyond the `MOST_CATEGORIES` most frequent ones, or the
    first `MOST_RARE` of them. They share a feature with all that are new; if there are none, a new
    label has no feature that is 1.

    >>> cities = Category("city", ("Rome", "Oslo"), rare=(), missing=False)
    >>> cities.read(pl.Series(["Oslo", "Bonn"]))
    array([[0., 1.],
           [0., 0.]])
    """

    name: str
    categories: tuple[str, ...]
    rare: tuple[str, ...]
    missing: bool
    CONSTRAINTS: ClassVar = {"name": TEXT, "categories": TEXTS, "rare": TEXTS, "missing": TRUTH}

    def __post_init__(self) -> None:
        enforce(self)

    @staticmethod
    def of(name: str, column: pl.Series) -> Category:
        """The most frequent labels of the warm-up; of equally frequent ones the first by name."""
        texts = _labels(column)
        counts = texts.drop_nulls().value_counts(name="rows")
        order = counts.sort(["rows", texts.name], descending=[True, False])
        labels = order[texts.name].to_list()
        most, rare = tuple(labels[:MOST_CATEGORIES]), tuple(labels[MOST_CATEGORIES:][:MOST_RARE])
        return Category(name, most, rare, texts.null_count() > 0)

    @property
    def other(self) -> bool:
        """Whether labels without a feature of their own share one."""
        return bool(self.rare)

    @property
    def features(self) -> tuple[str, ...]:
        """What the features are called."""
        own = tuple(f"{self.name} = {category}" for category in self.categories)
        rest = (f"{self.name} is another",) if self.other else ()
        return (*own, *rest, f"{self.name} is missing") if self.missing else (*own, *rest)

    def read(self, column: pl.Series) -> Array:
        """The features of every row."""
        texts = _labels(column)
        found = self._places(texts)
        own = len(self.categories)
        one_hot = np.zeros((len(column), own + self.other + self.missing))
        known = np.flatnonzero(found >= 0)
        one_hot[known, found[known]] = 1.0
        if self.other:
            one_hot[(found < 0) & texts.is_not_null().to_numpy(), own] = 1.0
        if self.missing:
            one_hot[texts.is_null().to_numpy(), -1] = 1.0
        return one_hot

    def oddities(self, column: pl.Series) -> dict[str, int]:
        """How many labels the warm-up hardly had, and how many miss where none did before."""
        texts = _labels(column)
        known = pl.Series([*self.categories, *self.rare], dtype=pl.String)
        return {
            f"{self.name} {NEW}": int((~texts.drop_nulls().is_in(known.implode())).sum()),
            f"{self.name} is missing": 0 if self.missing else texts.null_count(),
        }

    def _places(self, texts: pl.Series) -> NDArray[np.int64]:
        """The index of every label, −1 where it is missing or has none."""
        places = texts.cast(pl.Enum(self.categories), strict=False).to_physical()
        return places.cast(pl.Int64).fill_null(-1).to_numpy()

    def __str__(self) -> str:
        labels = shorten(list(self.categories))
        rest = ", or another" if self.other else ""
        missing = ", or missing" if self.missing else ""
        return f"{self.name}: one of {len(self.categories)} labels, {labels}{rest}{missing}"


Column = Number | Category


def fit_column(name: str, column: pl.Series) -> Column | None:
    """What a column of the warm-up is; None if it is the same in every row, and so says nothing.

    >>> fit_column("age", pl.Series(["30", "50", "n/a"]))
    Number(name='age', mean=40.0, scale=10.0, missing=True)
    >>> fit_column("city", pl.Series(["Oslo", "Rome", "Rome"])).categories
    ('Rome', 'Oslo')
    >>> fit_column("site", pl.Series(["A", "A"]))
    """
    refuse_type(name, column)
    if not is_numeric(column):
        refuse_dates(name, column)
        labels = Category.of(name, column)
        return labels if len(labels.features) > 1 else None
    if np.isnan(_finite(column)).all():
        return None
    numbers = Number.of(name, column)
    return numbers if numbers.features else None


def refuse_type(name: str, column: pl.Series) -> None:
    """Raise `InvalidLog` if a column is of a type that no feature is made of.

    >>> refuse_type("tags", pl.Series([["a", "b"]]))
    Traceback (most recent call last):
    understudy.errors.InvalidLog: context tags = List(String): a context is a number, a label ...
    """
    dtype = column.dtype
    if dtype.is_temporal():  # as a number it would leave the range of the warm-up at once
        reason, remedy = MOMENTS
    elif dtype.is_nested() or dtype in {pl.Binary, pl.Object}:
        reason, remedy = "a context is a number, a label or missing", "make columns of its parts"
    else:
        return
    raise InvalidLog(f"context {name}", dtype, reason, remedy)


def refuse_dates(name: str, column: pl.Series) -> None:
    """Raise `InvalidLog` if all that a column of text holds are dates, as a CSV file has them.

    >>> refuse_dates("when", pl.Series(["2024-05-01", "2024-05-02 10:30", ""]))
    Traceback (most recent call last):
    understudy.errors.InvalidLog: context when = '2024-05-01': a moment never comes back, ...
    """
    texts = column.cast(pl.String).filter(~_blank(column))
    if len(texts) and look_like_dates(texts).all():
        raise InvalidLog(f"context {name}", texts[0], *MOMENTS)


def is_numeric(column: pl.Series) -> bool:
    """Whether a column holds numbers, whatever its type, or nothing.

    >>> is_numeric(pl.Series(["1.5", "n/a", "true"])), is_numeric(pl.Series(["1.5", "old"]))
    (True, False)
    """
    if column.dtype == pl.String:
        return bool((_numbers(column).is_not_null().to_numpy() | _blank(column)).all())
    return column.dtype.is_numeric() or column.dtype in {pl.Boolean, pl.Null}


def _numbers(column: pl.Series) -> pl.Series:
    """A column as floats, null where it holds no number; texts may say true or false, as 1 or 0."""
    if not isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum):
        return column.cast(pl.Float64)
    texts = column.cast(pl.String).str.strip_chars()
    words = texts.str.to_lowercase().replace_strict({"true": 1.0, "false": 0.0}, default=None)
    return texts.cast(pl.Float64, strict=False).fill_null(words.cast(pl.Float64))


def _finite(column: pl.Series) -> Array:
    """The same as an array, nan where there is no finite number."""
    found = _numbers(column).fill_null(np.nan).to_numpy()
    return np.where(np.isfinite(found), found, np.nan)


def _blank(column: pl.Series) -> Truths:
    """Where a column of numbers has no value at all, rather than one that is no number."""
    if isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum):
        texts = column.cast(pl.String).str.strip_chars().str.to_lowercase()
        return (texts.is_null() | texts.is_in(MISSING)).to_numpy()
    absent = column.is_null()
    return (
        absent | column.is_nan().fill_null(False) if column.dtype.is_float() else absent
    ).to_numpy()


def _labels(column: pl.Series) -> pl.Series:
    """The labels of a column as text; an empty one is none."""
    text = as_text(pl.col(column.name), column.dtype)
    return column.to_frame().select(pl.when(text != "").then(text))[column.name]


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
