"""The meaning of a log's columns: their roles, the labels of actions, the scale of rewards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
import polars as pl

from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidLog, shorten
from understudy.formatting import quoted
from understudy.types import Integers

# Frames of rows have columns of these names, whatever the file calls them.
ROW = "row"  # counted from 1 in each file, without the header
FILE = "file"  # only where rows of several files are mixed
ACTION, REWARD, PROPENSITY = "action", "reward", "propensity"
TIME, ELIGIBLE, ID, UNIT = "time", "eligible", "id", "unit"
VECTOR = "propensity_vector"  # the propensities of all actions
TARGET = "target"  # the probability of the logged action under the policy to certify
CONTEXT = "context."  # the prefix of context columns
EXPERT = "expert."  # the prefix of columns of experts: their probability of the logged action
METRIC = "metric."  # the prefix of columns of guardrails' metrics
SEGMENT = "segment."  # the prefix of columns whose values are segments
ROW_HASH = "hash of the row"  # over the columns of the log, only where rows are compared
VALUE_HASH = "hash."  # the prefix of hashes of single values, where sticky columns are sought
UNIT_FAULT = "fault of the unit"  # the reason to reject a row that stands for a unit, or null
ROLE_OPTIONS = {
    ACTION: "--action",
    REWARD: "--reward",
    PROPENSITY: "--propensity",
    TIME: "--time",
    ELIGIBLE: "--eligible",
    TARGET: "--target-probability",
    ID: "--id",
    UNIT: "--unit",
    VECTOR: "--propensity-vector",
}  # the role of a column, and the option that names it; contexts have --context
QUARANTINE = {
    FILE: pl.String,
    ROW: pl.Int64,
    "reason": pl.String,
    ACTION: pl.String,
    REWARD: pl.String,
    PROPENSITY: pl.String,
}  # the columns of quarantine.parquet
NO_VECTORS = "none"  # in place of the name of their column: none are read
LOG = "log"  # the argument in an error about rows whose file is unknown

PropensitySource = Literal["logged", "given", "estimated"]
LOGGED: PropensitySource = "logged"  # a column of the log
GIVEN: PropensitySource = "given"  # fixed probabilities by action
ESTIMATED: PropensitySource = "estimated"  # action frequencies


class WeightBound(StrEnum):
    """The source of the bound on a row's weight, known before its action: it centers bets."""

    BEHAVIOR = "behavior"
    VECTORS = "propensity vectors"
    LEAST_PROPENSITY = "least propensity"
    UNKNOWN = "unknown"

    @staticmethod
    def of(source: PropensitySource, least: float | None, *, vectors: bool) -> WeightBound | None:
        """The bound of a log, by its propensities; None if no bets are centered with them.

        >>> WeightBound.of(LOGGED, 0.05, vectors=False)
        <WeightBound.LEAST_PROPENSITY: 'least propensity'>
        """
        if source == ESTIMATED:
            return None
        if source == GIVEN:
            return WeightBound.BEHAVIOR
        if vectors:
            return WeightBound.VECTORS
        return WeightBound.UNKNOWN if least is None else WeightBound.LEAST_PROPENSITY


COLUMNS_SHOWN = 20  # by an error: a screen of text at most
LONGEST_SHOWN = 40  # characters of a name or label in a sentence, which stays one line
LABELS_SHOWN = 3
WIDEST_TABLE = 1 << 20  # whole numbers between the smallest and the largest label: 8 MB
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")  # of 64 bits: at most 19 digits, and none to spare
# A whole number with a fraction of zeros, as many writers of CSV make of a float. Other spellings,
# such as 007 or 1e3, are names as often as numbers, and stay different labels.
WITH_FRACTION = r"^(?:-?(0)|(-?[1-9][0-9]*))\.0*$"
UNKNOWN = -1
NARROWEST, WIDEST = 1e-100, 1e100  # so that squares of rewards neither underflow nor overflow


@dataclass(frozen=True)
class Columns:
    """The names that a log has for the columns that are read.

    All but `action`, `reward` and those that are several are None if there is no such column to
    read. A column of segments may be a context too.

    >>> Columns(reward="click", context=("age",)).names()
    ['action', 'click', 'propensity', 'age']
    """

    action: str = ACTION
    reward: str = REWARD
    propensity: str | None = PROPENSITY
    time: str | None = None
    eligible: str | None = None
    target: str | None = None
    context: tuple[str, ...] = ()
    id: str | None = None
    experts: tuple[str, ...] = ()
    unit: str | None = None
    propensity_vector: str | None = None
    metrics: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [name for role, name in self.roles() if not role.startswith(SEGMENT)]
        names += [name for name in self.segments if name not in self.context]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise InvalidArgument(
                "columns", repeated[0], "two roles name this column", "name a column for each role"
            )

    def names(self) -> list[str]:
        """The columns that are read, as the log names them, each once."""
        return list(dict.fromkeys(name for _, name in self.roles()))

    def selection(self) -> list[pl.Expr]:
        """Expressions that select the columns under the names of their roles."""
        return [pl.col(name).alias(role) for role, name in self.roles()]

    def require(self, names: Sequence[str], where: str) -> None:
        """Raise `InvalidLog` if a file does not have all columns that are read."""
        if not names:
            raise InvalidLog("log", where, "it has no columns", "leave it out")
        for role, name in self.roles():
            if name not in names:
                shown = ", ".join(shorten(one, LONGEST_SHOWN) for one in names[:COLUMNS_SHOWN])
                more = len(names) - COLUMNS_SHOWN
                others = f" and {more} more" if more > 0 else ""
                reason = f"it has no column {name!r}, only {shown}{others}"
                raise InvalidLog("log", where, reason, _remedy(role, name, names))

    def roles(self) -> list[tuple[str, str]]:
        """The role of every column that is read, and its name in the log."""
        roles = [(role, getattr(self, role)) for role in ROLE_OPTIONS]
        known = [(role, name) for role, name in roles if name is not None]
        several = {
            CONTEXT: self.context,
            EXPERT: self.experts,
            METRIC: self.metrics,
            SEGMENT: self.segments,
        }
        return known + [(kind + name, name) for kind, names in several.items() for name in names]


def _remedy(role: str, name: str, names: Sequence[str]) -> str:
    """The remedy for a log without a column."""
    if role.startswith(EXPERT):
        return "pass logs with this column: an expert's probability of the logged action"
    several = {METRIC: "--guardrail", SEGMENT: "--segment"}
    others = (option for kind, option in several.items() if role.startswith(kind))
    option = ROLE_OPTIONS.get(role) or next(others, "--context")
    alike = [column for column in names if column.strip().lower() == name.strip().lower()]
    remedy = f"pass {option} {alike[0]!r}" if alike else f"name the right one with {option}"
    if role == PROPENSITY:
        remedy += ", or pass --behavior estimated if there is none"
    if role == VECTOR:
        remedy += f", or pass {option} {NO_VECTORS} if there is none"
    return remedy


PRESETS = {
    "obd": Columns(action="item_id", reward="click", propensity="propensity_score"),
}


Label = int | str


@dataclass(frozen=True)
class Actions:
    """The labels of K actions, in the order of the learner's indices. Labels are compared as text.

    So `3` of a Parquet file and `"3"` of a CSV file are the same action, and so are all spellings
    of `label_key`.

    >>> Actions.from_labels(["10", "9", "9"])
    Actions(texts=('9', '10'))
    >>> Actions.from_labels(["10", "9"]).labels
    (9, 10)
    >>> Actions(("a", "1")).indices(pl.Series(["1.0", "c", None])).tolist()
    [1, -1, -1]
    """

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        for text in self.texts:
            if not is_unicode(text):
                raise InvalidArgument("actions", text, "it is not Unicode text", "rename it")
        repeated = len(set(self.texts)) < len(self.texts)
        if repeated or len(self.texts) < 2:  # noqa: PLR2004 - a choice
            raise InvalidArgument(
                "actions",
                self.texts,
                "a label is repeated" if repeated else "there must be at least two to choose from",
                "declare each action once; --actions FILE can name more than the log shows",
            )

    @staticmethod
    def from_labels(labels: Iterable[Label]) -> Actions:
        """Each label once, sorted: as numbers if all are whole numbers, else as text."""
        texts = {str(label) for label in labels}
        whole = all(_is_whole(text) for text in texts)
        return Actions(tuple(sorted(texts, key=int if whole else None)))

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """The labels to show: numbers if all are whole numbers."""
        whole = all(_is_whole(text) for text in self.texts)
        return tuple(int(text) for text in self.texts) if whole else self.texts

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The `label_key` of each label; a label whose key is that of another stays as it is.

        Only lists that were made before 0.6 have such labels.
        """
        taken, keys = set(self.texts), list(self.texts)
        for i, text in enumerate(self.texts):
            if (key := label_key(text)) not in taken:
                keys[i] = key
                taken.add(key)
        return tuple(keys)

    def index(self, label: Label) -> int:
        """The index of a label in any of its spellings; −1 if it is unknown."""
        found = self._by_text.get(str(label))
        return self._by_text.get(label_key(label), UNKNOWN) if found is None else found

    @cached_property
    def _by_text(self) -> dict[str, int]:
        return {key: i for keys in (self.keys, self.texts) for i, key in enumerate(keys)}

    def indices(self, column: pl.Series) -> Integers:
        """The index of every label of a column; −1 where it is missing or unknown."""
        if column.dtype.is_integer() and self._table is not None:
            low, table = self._table
            whole = column.cast(pl.Int64, strict=False).fill_null(low - 1).to_numpy()
            inside = (whole >= low) & (whole < low + len(table))
            return np.where(inside, table[np.where(inside, whole - low, 0)], UNKNOWN)
        texts = column.to_frame("a").select(column_text(pl.col("a"), column.dtype))["a"]
        categories = pl.Enum(self.keys)
        indices = texts.cast(categories, strict=False).to_physical().cast(pl.Int64)
        if indices.null_count() > texts.null_count():  # few labels have another spelling
            other = (indices.is_null() & texts.is_not_null()).arg_true()
            keys = texts.gather(other).str.replace(WITH_FRACTION, "${1}${2}")
            found = keys.cast(categories, strict=False).to_physical().cast(pl.Int64)
            indices = indices.scatter(other, found)
        return indices.fill_null(UNKNOWN).to_numpy()

    @cached_property
    def _table(self) -> tuple[int, Integers] | None:
        """The smallest whole number that is a label, and the index of each number from there on."""
        known = {int(text): i for i, text in enumerate(self.keys) if _is_whole(text)}
        low, high = min(known, default=0), max(known, default=0)
        if not known or high - low >= WIDEST_TABLE or max(abs(low), abs(high)) >= 1 << 62:
            return None
        table = np.full(high - low + 1, UNKNOWN, dtype=np.int64)
        table[np.array(list(known)) - low] = list(known.values())
        return low, table


def label_key(label: Label) -> str:
    """The text by which a label is found: a whole number has no fraction of zeros.

    So 1, 1.0, "1", "1.0" and "1.00" are one action; "01", "1e0" and " 1" are others.

    >>> [label_key(text) for text in ("1.0", "-0.0", "1.50", "v1.0", "01.0")]
    ['1', '0', '1.50', 'v1.0', '01.0']
    """
    return re.sub(WITH_FRACTION, r"\1\2", str(label))


def label_text(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The `label_key` of each label of a column; null where `column_text` is.

    >>> frame = pl.DataFrame({"a": ["1.0", "2.5", ""]})
    >>> frame.select(label_text(pl.col("a"), frame["a"].dtype))["a"].to_list()
    ['1', '2.5', None]
    """
    text = column_text(column, dtype)
    return text if dtype.is_integer() else text.str.replace(WITH_FRACTION, "${1}${2}")


def column_text(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The values of a column as text: whole floats without a point.

    Null where the value is missing, empty, or not a finite number.

    >>> frame = pl.DataFrame({"a": [1.0, 2.5, None]})
    >>> frame.select(column_text(pl.col("a"), frame["a"].dtype))["a"].to_list()
    ['1', '2.5', None]
    """
    if dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        same = whole.cast(dtype) == column
        text = pl.when(same).then(whole.cast(pl.String)).otherwise(column.cast(pl.String))
        return pl.when(column.is_finite()).then(text)
    text = column.cast(pl.String)
    return pl.when(text != "").then(text)


def stripped(column: pl.Series) -> pl.Series | None:
    """A column of text without spaces at the ends of its values; None if it is no text."""
    if not isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum):
        return None
    return column.cast(pl.String).str.strip_chars()


def short_label(label: Label) -> str:
    """A label for a sentence: cut if it is long, in quotes if it begins or ends with a space."""
    text = quoted(label)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def first_few(labels: Sequence[Label]) -> str:
    """The first three labels, for a sentence."""
    more = ["…"] if len(labels) > LABELS_SHOWN else []
    return ", ".join([*map(short_label, labels[:LABELS_SHOWN]), *more])


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded: JSON can hold half of a surrogate pair, which UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_whole(text: str) -> bool:
    """Whether a label is a whole number of 64 bits, written without zeros or signs to spare."""
    return WHOLE.fullmatch(text) is not None and abs(int(text)) < 1 << 63


Numbers = TypeVar("Numbers", float, Array)


@dataclass(frozen=True)
class RewardScale:
    """The smallest and the largest possible reward, which learners see as 0 and 1.

    >>> scale = RewardScale(-1.0, 3.0)
    >>> scale.reward(0.5), scale.gain(0.5), scale.unit(0.0)
    (1.0, 2.0, 0.25)
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        width = self.high - self.low
        if not (self.low < self.high and NARROWEST <= width <= WIDEST):
            reason = "it must be a lower and a higher number, 1e-100 to 1e100 apart"
            remedy = "pass the smallest and the largest possible reward"
            raise InvalidArgument("reward_range", (self.low, self.high), reason, remedy)

    @staticmethod
    def from_range(reward_range: Sequence[float] | None) -> RewardScale:
        """The scale of a pair (low, high); [0, 1] for None."""
        if reward_range is None:
            return RewardScale()
        try:
            low, high = (float(value) for value in reward_range)
        except (TypeError, ValueError):
            raise InvalidArgument(
                "reward_range", reward_range, "it must be two numbers", "pass LOW HIGH, such as 0 5"
            ) from None
        return RewardScale(low, high)

    @property
    def is_unit(self) -> bool:
        return self == RewardScale()

    def unit(self, reward: Numbers) -> Numbers:
        """A reward of the log as the learner sees it; the same bits if the scale is [0, 1]."""
        return reward if self.is_unit else (reward - self.low) / (self.high - self.low)

    def reward(self, mean: Numbers) -> Numbers:
        """A mean reward of the learner in the units of the log."""
        return self.low + (self.high - self.low) * mean

    def gain(self, difference: Numbers) -> Numbers:
        """A difference of mean rewards in the units of the log."""
        return (self.high - self.low) * difference

    def weighted(self, rewards: Numbers, weights: Numbers) -> Numbers:
        """Σ w R in the units of the log, from Σ w R in those of the learner and Σ w."""
        return self.low * weights + (self.high - self.low) * rewards
