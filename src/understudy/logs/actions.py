"""Actions by their labels: what a log calls them, and the index that a learner knows them by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from understudy.errors import InvalidArgument
from understudy.report.wording import quoted
from understudy.types import Integers

__all__ = ["Actions", "Label", "a_few", "as_text", "in_words", "is_unicode"]

Label = int | str
WIDEST = 1 << 20  # of a table from whole numbers to indices
UNKNOWN = -1
LONGEST = 40  # characters of a label within a sentence
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
        if not known or high - low >= WIDEST or max(abs(low), abs(high)) >= 1 << 62:
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
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


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
