"""When the events of a log happened, as numbers that can be compared."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

__all__ = ["TimeColumn", "in_order", "look_like_dates"]

NUMBER, WHOLE, DATE = "number", "whole number", "date"
EXACT = 2**53  # from here on, not every whole number is a float
SECOND = 10**9  # nanoseconds
# A date; a time, with seconds and their fraction or without; a zone: Z, UTC, or an offset.
ISO = (
    r"^\s*(?<date>\d{4}-\d\d-\d\d)"
    r"(?:[T ](?<minute>\d\d:\d\d)(?::(?<second>\d\d)(?:[.,](?<fraction>\d+))?)?)?"
    r"\s?(?:Z|UTC|(?<sign>[+-])(?<hours>\d\d)(?::?(?<minutes>\d\d))?)?\s*$"
)


@dataclass(frozen=True)
class TimeColumn:
    """How the times of a log are written: all of them are read as the first one is.

    Numbers are compared as they are; dates, of a type of their own or as ISO 8601 text, as the
    nanoseconds since 1970 began. A date without a zone is taken for UTC.

    >>> times = TimeColumn.of(pl.Series(["soon", "2024-05-01T10:00:00+02:00"]))
    >>> times.parse(pl.Series(["2024-05-01 08:00", "2024-05-01T08:00:00.5Z", "3", None])).to_list()
    [1714550400000000000, 1714550400500000000, None, None]
    """

    kind: str

    @staticmethod
    def of(column: pl.Series) -> TimeColumn | None:
        """As the first time of a column is written; None if it has no time.

        >>> TimeColumn.of(pl.Series([None, "7"])), TimeColumn.of(pl.Series(["soon", None]))
        (TimeColumn(kind='number'), None)
        """
        numbers, dates = _numbers(column), _dates(column)
        first = (numbers.is_not_null() | dates.is_not_null()).arg_true()
        if not len(first):
            return None
        number = numbers[int(first[0])]
        if number is None:
            return TimeColumn(DATE)
        return TimeColumn(WHOLE if abs(number) >= EXACT else NUMBER)

    def parse(self, column: pl.Series) -> pl.Series:
        """The times as Int64 or Float64; null where there is none, or none of this kind."""
        return {NUMBER: _numbers, WHOLE: _whole_numbers, DATE: _dates}[self.kind](column)


def in_order(previous: float | None, times: pl.Series) -> bool:
    """Whether no time is before the one that it follows; those that are null do not count.

    >>> in_order(2, pl.Series([2, None, 5])), in_order(3, pl.Series([2, 5]))
    (True, False)
    """
    known = times.drop_nulls()
    if not len(known):
        return True
    return known.is_sorted() and (previous is None or bool(known[0] >= previous))


def look_like_dates(texts: pl.Series) -> pl.Series:
    """Which texts are written as ISO 8601 writes dates, whether the calendar has them or not.

    >>> look_like_dates(pl.Series(["2024-05-01", "0000-00-00 10:00", "12:30", None])).to_list()
    [True, True, False, None]
    """
    return texts.str.contains(ISO)


def _numbers(column: pl.Series) -> pl.Series:
    """As floats: of numbers, and of text that reads as one."""
    if not (column.dtype.is_numeric() or _is_text(column)):
        return _nothing(column, pl.Float64())
    numbers = _text(column) if _is_text(column) else column
    floats = numbers.cast(pl.Float64, strict=False)
    return floats.set(~floats.is_finite(), None)


def _whole_numbers(column: pl.Series) -> pl.Series:
    """As integers, which are exact where floats are not."""
    if column.dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        return whole.set(whole.cast(pl.Float64) != column.cast(pl.Float64), None)
    if not (column.dtype.is_integer() or _is_text(column)):
        return _nothing(column, pl.Int64())
    return (_text(column) if _is_text(column) else column).cast(pl.Int64, strict=False)


def _dates(column: pl.Series) -> pl.Series:
    """As nanoseconds since 1970 began; null where these are too many to be counted."""
    if _is_text(column):
        return _text(column).to_frame("text").select(_nanoseconds(pl.col("text"))).to_series()
    if column.dtype not in (pl.Date, pl.Datetime):
        return _nothing(column, pl.Int64())
    return column.dt.epoch("ns")


def _nanoseconds(text: pl.Expr) -> pl.Expr:
    """Of dates that are written as ISO 8601 has it; null where they are not."""
    found = text.str.extract_groups(ISO).struct
    minute, second = found.field("minute").fill_null("00:00"), found.field("second").fill_null("00")
    written = found.field("date") + pl.lit("T") + minute + pl.lit(":") + second
    seconds = written.str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="ms", strict=False)
    fraction = found.field("fraction").fill_null("").str.slice(0, 9).str.pad_end(9, "0")
    hours, minutes = (
        found.field(name).fill_null("0").cast(pl.Int64) for name in ("hours", "minutes")
    )
    east = pl.when(found.field("sign") == "-").then(-1).otherwise(1) * (hours * 60 + minutes) * 60
    return seconds.dt.epoch("ns") + fraction.cast(pl.Int64) - east * SECOND


def _is_text(column: pl.Series) -> bool:
    return column.dtype in (pl.String, pl.Categorical, pl.Enum)


def _text(column: pl.Series) -> pl.Series:
    return column.cast(pl.String).str.strip_chars()


def _nothing(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    return pl.Series(column.name, [None], dtype).new_from_index(0, len(column))
