"""Numbers and foreign text, written for people: the same on a page and in a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping

from understudy.errors import shorten

__all__ = [
    "approximate",
    "count",
    "counted",
    "fields",
    "named",
    "number",
    "percent",
    "plain",
    "propensities",
    "quoted",
    "seen",
    "size",
]

NOTHING = "–"
DIGITS = 4
FEWEST_WHOLE = 1_000
LARGEST_PLAIN, SMALLEST_PLAIN = 1e15, 1e-4
SMALLEST_SHARE, LARGEST_SHARE = 1e-5, 0.9999
LONGEST_TEXT = 2_000
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SIZES = ((1e9, " bn"), (1e6, " M"), (1e3, " k"))


def plain(text: object, longest: int = LONGEST_TEXT) -> str:
    r"""A text on one line without anything invisible, cut in its middle where it is too long.

    What a log holds can neither color a terminal nor turn the direction of a page's letters.

    >>> plain("a\tb\n"), plain("\x1b[31m\u202e"), plain("x" * 50, longest=9)
    ('a b', '\\x1b[31m\\u202e', 'xxxxx…xxx')
    """
    line = " ".join(str(text).split())
    if len(line) > 2 * longest:
        line = line[:longest] + line[-longest:]  # more than that is never shown
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    if len(line) <= longest:
        return line
    tail = (longest - 1) * 2 // 5
    return f"{line[: longest - 1 - tail]}…{line[len(line) - tail :]}"


def named(label: object, longest: int) -> str:
    """The label of an action, the name of a file: never nothing.

    >>> named(3, longest=9), named("a ", longest=9), named("", longest=9)
    ('3', "'a '", '(empty)')
    """
    return plain(quoted(label), longest) or "(empty)"


def quoted(label: object) -> str:
    """A label in quotes if it begins or ends with what cannot be seen: it is not the one without.

    >>> quoted("a b"), quoted(" a b"), quoted("a b ")
    ('a b', "' a b'", "'a b '")
    """
    text = str(label)
    return text if text == text.strip() else f"'{text}'"


def number(value: float | None) -> str:
    """A number with four significant digits.

    >>> [number(x) for x in (0.123456, -1234567.0, 0.1, 12.0, 0.0, float("inf"), None)]
    ['0.1235', '−1,235,000', '0.1', '12', '0', '∞', '–']
    >>> number(1.5e-7), number(-2e30)
    ('1.5·10⁻⁷', '−2·10³⁰')
    """
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    rounded = float(f"{value:.{DIGITS}g}")
    if rounded and not SMALLEST_PLAIN <= abs(rounded) < LARGEST_PLAIN:
        digits, exponent = f"{value:.{DIGITS - 1}e}".split("e")
        text = f"{_trimmed(digits)}·10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    else:
        decimals = max(0, DIGITS - 1 - _magnitude(rounded))
        text = _trimmed(f"{rounded:,.{decimals}f}")
    return text.replace("-", "−")


def size(value: float | None) -> str:
    """How many, if not exactly a whole number: as a whole one where nobody minds the difference.

    >>> [size(x) for x in (29191.4, 1000.0, 999.54, 12.345, 1e16, float("inf"), None)]
    ['29,191', '1,000', '999.5', '12.35', '10,000,000,000,000,000', '∞', '–']
    """
    if value is None or not math.isfinite(value) or abs(value) < FEWEST_WHOLE:
        return number(value)
    return count(round(value))


def count(value: int) -> str:
    """A whole number, exactly.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{value:,}"


def seen(value: int) -> str:
    """How often an action was seen.

    >>> seen(1000), seen(0)
    ('1,000', 'never')
    """
    return count(value) if value else "never"


def counted(value: int, noun: str) -> str:
    """So many of something.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def percent(share: float | None) -> str:
    """A share of the whole; what is not all or nothing is never written as such.

    >>> [percent(x) for x in (0.123456, 0.5, 1.0, 0.0, None)]
    ['12.35 %', '50 %', '100 %', '0 %', '–']
    >>> percent(0.99999), percent(1e-9)
    ('> 99.99 %', '< 0.001 %')
    """
    if share is None or math.isnan(share):
        return NOTHING
    if 0.0 < share < SMALLEST_SHARE:
        return f"< {100 * SMALLEST_SHARE:g} %"
    if LARGEST_SHARE < share < 1.0:
        return f"> {100 * LARGEST_SHARE:g} %"
    return f"{number(100.0 * share)} %"


def propensities(lowest: float | None, highest: float | None) -> str:
    """The range of an action's propensities.

    >>> propensities(0.25, 0.5), propensities(0.25, 0.25), propensities(None, None)
    ('0.25 … 0.5', '0.25', '–')
    """
    low, high = number(lowest), number(highest)
    return low if low == high else f"{low} … {high}"


def approximate(value: float) -> str:
    """A number for the axis of a chart.

    >>> [approximate(x) for x in (1, 500, 1e3, 2e4, 1e6, 5e9, 0.25, -1e3)]
    ['1', '500', '1 k', '20 k', '1 M', '5 bn', '0.25', '−1 k']
    """
    for size, unit in SIZES:
        if size <= abs(value) < 1e3 * size:
            return number(value / size) + unit
    return number(value)


def fields(values: Mapping[str, object]) -> str:
    """The values of a row, as they would be typed.

    >>> fields({"reward": float("nan"), "action": "a b"})
    "reward = nan, action = 'a b'"
    """
    return ", ".join(f"{name} = {shorten(value)}" for name, value in values.items())


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
