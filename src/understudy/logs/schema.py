"""Which columns of a log mean what, and the names that they have in here.

Actions by their labels: what a log calls them, and the index that a learner knows them by.

Rewards between 0 and 1, as learners see them, in the units of the log, as people do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
import polars as pl

from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidLog
from understudy.report.wording import quoted
from understudy.types import Integers

__all__ = [
    "ACTION",
    "CONTEXT",
    "ELIGIBLE",
    "ESTIMATED",
    "FILE",
    "GIVEN",
    "LOGGED",
    "PRESETS",
    "PROPENSITY",
    "REWARD",
    "ROW",
    "TARGET",
    "TIME",
    "Actions",
    "Columns",
    "Kind",
    "Label",
    "Scale",
    "a_few",
    "as_text",
    "in_words",
    "is_unicode",
]


Kind = Literal["logged", "given", "estimated"]  # where propensities come from
LOGGED: Kind = "logged"
GIVEN: Kind = "given"
ESTIMATED: Kind = "estimated"

# A frame of rows has columns of these names, whatever they were called in the file.
ROW = "row"  # counted from 1 in each file, a header not counted
FILE = "file"  # where the rows of several files are mixed
ACTION, REWARD, PROPENSITY = "action", "reward", "propensity"
TIME, ELIGIBLE = "time", "eligible"
TARGET = "target"  # the probability of the logged action under somebody's own policy
LOG = "log"  # what an error calls rows whose files it does not know
CONTEXT = "context."  # and the name of the context column
MANY = 20  # columns that an error lists
LONGEST_COLUMN = 40  # characters that it shows of each


@dataclass(frozen=True)
class Columns:
    """The names that a log has for what is read of it.

    `propensity`, `time`, `eligible` and `target` are None where there is no such column to read.

    >>> Columns(reward="click", context=("age",)).renamed()
    {'action': 'action', 'click': 'reward', 'propensity': 'propensity', 'age': 'context.age'}
    """

    action: str = ACTION
    reward: str = REWARD
    propensity: str | None = PROPENSITY
    time: str | None = None
    eligible: str | None = None
    target: str | None = None
    context: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        roles = (self.action, self.reward, self.propensity, self.time, self.eligible, self.target)
        named = [name for name in (*roles, *self.context) if name is not None]
        repeated = [name for name in named if named.count(name) > 1]
        if repeated:
            raise InvalidArgument(
                "columns", repeated[0], "two roles are given to this column", "name two columns"
            )

    def names(self) -> list[str]:
        """The columns that are read, as the log names them."""
        return list(self.renamed())

    def renamed(self) -> dict[str, str]:
        """What each column is called in here."""
        roles = {
            ACTION: self.action,
            REWARD: self.reward,
            PROPENSITY: self.propensity,
            TIME: self.time,
            ELIGIBLE: self.eligible,
            TARGET: self.target,
        }
        own = {name: role for role, name in roles.items() if name is not None}
        return own | {name: CONTEXT + name for name in self.context}

    def require(self, found: Sequence[str], where: str) -> None:
        """Raise `InvalidLog` if a column that is read is not among those found in a file."""
        if not found:
            raise InvalidLog("log", where, "it has no columns", "leave it out: there are no rows")
        for name in self.names():
            if name not in found:
                shown = ", ".join(_cut(column) for column in found[:MANY])
                more = f" and {len(found) - MANY} more" if len(found) > MANY else ""
                raise InvalidLog(
                    "log",
                    where,
                    f"it has no column {name!r}, only {shown}{more}",
                    self._remedy(name, found),
                )

    def _remedy(self, name: str, found: Sequence[str]) -> str:
        """What to type in place of a name that a log does not have."""
        options = {
            self.action: "--action",
            self.reward: "--reward",
            self.propensity: "--propensity",
            self.time: "--time",
            self.eligible: "--eligible",
            self.target: "--target-probability",
        }
        option = options.get(name, "--context")
        alike = [column for column in found if column.strip().lower() == name.strip().lower()]
        remedy = f"pass {option} {alike[0]!r}" if alike else f"name the right one with {option}"
        if name == self.propensity:
            remedy += ", or pass --behavior estimated if there is none"
        return remedy


def _cut(column: str) -> str:
    return repr(column if len(column) <= LONGEST_COLUMN else column[:LONGEST_COLUMN] + "…")


PRESETS = {
    "obd": Columns(action="item_id", reward="click", propensity="propensity_score"),
}


Label = int | str
WIDEST_TABLE = 1 << 20  # of a table from whole numbers to indices
UNKNOWN = -1
LONGEST_LABEL = 40  # characters of a label within a sentence
FEW = 3  # labels of many within a sentence
DIGITS = 19  # of the largest whole number of 64 bits


@dataclass(frozen=True)
class Actions:
    """K labels, in the order of the learner's indices. Labels are compared as text.

    So `3` of a Parquet file and `"3"` of a CSV file are the same action. Where all labels are
    whole numbers, people see them as such.

    >>> Actions.of(["10", "9", "9"])
    Actions(texts=('9', '10'))
    >>> Actions.of(["10", "9"]).labels
    (9, 10)
    >>> Actions(("a", "b")).indices(pl.Series(["b", "c", None])).tolist()
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
    def of(labels: Iterable[Label]) -> Actions:
        """Each label once: in the order of numbers if all are whole, else of the alphabet."""
        texts = {str(label) for label in labels}
        whole = all(_is_whole(text) for text in texts)
        return Actions(tuple(sorted(texts, key=int if whole else None)))

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """What people see: numbers where all are whole numbers."""
        whole = all(_is_whole(text) for text in self.texts)
        return tuple(int(text) for text in self.texts) if whole else self.texts

    def indices(self, column: pl.Series) -> Integers:
        """The index of every label of a column; −1 where it is missing or unknown."""
        if column.dtype.is_integer() and self._table is not None:
            low, table = self._table
            whole = column.cast(pl.Int64, strict=False).fill_null(low - 1).to_numpy()
            inside = (whole >= low) & (whole < low + len(table))
            return np.where(inside, table[np.where(inside, whole - low, 0)], UNKNOWN)
        texts = column.to_frame("a").select(as_text(pl.col("a"), column.dtype))["a"]
        found = texts.cast(pl.Enum(self.texts), strict=False).to_physical()
        return found.cast(pl.Int64).fill_null(UNKNOWN).to_numpy()

    @cached_property
    def _table(self) -> tuple[int, Integers] | None:
        """The smallest whole number that is a label, and the index of each from there on."""
        known = {int(text): i for i, text in enumerate(self.texts) if _is_whole(text)}
        low, high = min(known, default=0), max(known, default=0)
        if not known or high - low >= WIDEST_TABLE or max(abs(low), abs(high)) >= 1 << 62:
            return None
        table = np.full(high - low + 1, UNKNOWN, dtype=np.int64)
        table[np.array(list(known)) - low] = list(known.values())
        return low, table


def as_text(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """The labels of a column as text: whole numbers without a point, whatever their type.

    What is missing is null, and so are an empty text and what is no finite number.

    >>> frame = pl.DataFrame({"a": [1.0, 2.5, None]})
    >>> frame.select(as_text(pl.col("a"), frame["a"].dtype))["a"].to_list()
    ['1', '2.5', None]
    """
    if dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        same = whole.cast(dtype) == column
        text = pl.when(same).then(whole.cast(pl.String)).otherwise(column.cast(pl.String))
        return pl.when(column.is_finite()).then(text)
    text = column.cast(pl.String)
    return pl.when(text != "").then(text)


def in_words(label: Label) -> str:
    """A label within a sentence: cut where it would be all of it, quoted where its end is not seen.

    >>> in_words(7), in_words("a "), len(in_words("x" * 1_000))
    ('7', "'a '", 40)
    """
    text = quoted(label)
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def a_few(labels: Sequence[Label]) -> str:
    """Labels within a sentence: the first of them, where there are many.

    >>> a_few("ab"), a_few("abcde")
    ('a, b', 'a, b, c, …')
    """
    more = ["…"] if len(labels) > FEW else []
    return ", ".join([*map(in_words, labels[:FEW]), *more])


def _is_whole(text: str) -> bool:
    """Whether a label reads as a whole number of 64 bits, written in the one usual way."""
    digits = text.removeprefix("-")
    short = len(digits) <= DIGITS and digits.isascii() and digits.isdigit()
    return short and str(int(digits)) == digits and text != "-0" and int(digits) < 1 << 63


def is_unicode(text: str) -> bool:
    """Whether a text can be written: half of a pair of surrogates, which JSON can hold, can not.

    >>> is_unicode("é"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


NARROWEST, WIDEST = 1e-100, 1e100  # so that squares of rewards are numbers too
Numbers = TypeVar("Numbers", float, Array)


@dataclass(frozen=True)
class Scale:
    """The smallest and the largest reward that are possible: 0 and 1 of the learner.

    >>> Scale(-1.0, 3.0).reward(0.5), Scale(-1.0, 3.0).gain(0.5), Scale(-1.0, 3.0).unit(0.0)
    (1.0, 2.0, 0.25)
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        width = self.high - self.low
        if not (self.low < self.high and NARROWEST <= width <= WIDEST):
            raise InvalidArgument(
                "reward_range",
                (self.low, self.high),
                "it must be a lower and a higher number, 1e-100 to 1e100 apart",
                "pass the smallest and the largest reward that are possible",
            )

    @staticmethod
    def of(reward_range: Sequence[float] | None) -> Scale:
        """As people pass it: two numbers, or nothing for [0, 1].

        >>> Scale.of([0, 5])
        Scale(low=0.0, high=5.0)
        """
        if reward_range is None:
            return Scale()
        try:
            low, high = (float(value) for value in reward_range)
        except (TypeError, ValueError):
            raise InvalidArgument(
                "reward_range", reward_range, "it must be two numbers", "pass LOW HIGH, such as 0 5"
            ) from None
        return Scale(low, high)

    @property
    def is_unit(self) -> bool:
        return self == Scale()

    def reward(self, mean: Numbers) -> Numbers:
        """A mean reward."""
        return self.low + (self.high - self.low) * mean

    def gain(self, difference: Numbers) -> Numbers:
        """A difference of mean rewards."""
        return (self.high - self.low) * difference

    def weighted(self, rewards: Numbers, weights: Numbers) -> Numbers:
        """Σ w R in these units, of Σ w R between 0 and 1 and of Σ w.

        >>> Scale(-1.0, 3.0).weighted(0.5 * 0.25 + 2.0 * 1.0, 0.5 + 2.0)  # rewards of 0 and 3
        6.0
        """
        return self.low * weights + (self.high - self.low) * rewards

    def unit(self, reward: Numbers) -> Numbers:
        """A reward of the log as the learner sees it; the same bits if it is in [0, 1] already."""
        return reward if self.is_unit else (reward - self.low) / (self.high - self.low)
