"""Numbers and foreign text as people read them in errors, on pages and in a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

NOTHING = "–"
DIGITS = 4  # of a mean reward: enough to tell two policies apart
FEW_DIGITS = 2  # of an estimate: more would be noise
FEWEST_WHOLE = 1_000  # from here on a fraction of one says nothing
LARGEST_PLAIN, SMALLEST_PLAIN = 1e15, 1e-4  # outside, powers of ten are shorter
SMALLEST_SHARE, LARGEST_SHARE = 1e-5, 0.9999
LONGEST_TEXT = 2_000
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SIZES = ((1e9, " bn"), (1e6, " M"), (1e3, " k"))
LARGE_COUNTS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


def plain(text: object, longest: int = LONGEST_TEXT) -> str:
    r"""A text on one line: invisible characters are escaped, the middle of a long text is cut.

    So no text of a log can color a terminal or reverse the letters of a page.

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
    """A label or a name on one line; "(empty)" if it has no letters.

    >>> named(3, longest=9), named("a ", longest=9), named("", longest=9)
    ('3', "'a '", '(empty)')
    """
    return plain(quoted(label), longest) or "(empty)"


def quoted(label: object) -> str:
    """A label, in quotes if it begins or ends with a space, which a reader would miss."""
    text = str(label)
    return text if text == text.strip() else f"'{text}'"


def number(value: float | None, digits: int = DIGITS) -> str:
    """A number with some significant digits, four by default.

    >>> [number(x) for x in (0.123456, -1234567.0, 0.1, 12.0, 0.0, float("inf"), None)]
    ['0.1235', '−1,235,000', '0.1', '12', '0', '∞', '–']
    >>> number(1.5e-7), number(-2e30), number(1234.5, FEW_DIGITS)
    ('1.5·10⁻⁷', '−2·10³⁰', '1,200')
    """
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    rounded = float(f"{value:.{digits}g}")
    if rounded and not SMALLEST_PLAIN <= abs(rounded) < LARGEST_PLAIN:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        text = f"{_trimmed(mantissa)}·10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    else:
        magnitude = math.floor(math.log10(abs(rounded))) if rounded else 0
        decimals = max(0, digits - 1 - magnitude)
        text = _trimmed(f"{rounded:,.{decimals}f}")
    return text.replace("-", "−")


def gain(value: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """A difference of mean rewards, with its sign and two significant digits.

    >>> gain(0.006662), gain(-0.0256), gain(0.0), gain(1234.5)
    ('+0.0067', '−0.026', '0', '+1,200')
    """
    if not value or not math.isfinite(value):
        return number(value)
    exact = Decimal(value)
    unit = Decimal(1).scaleb(exact.adjusted() - FEW_DIGITS + 1)
    rounded = float(exact.quantize(unit, rounding=rounding))
    return f"{'+' if rounded > 0 else ''}{number(rounded)}"


def least_gain(value: float) -> str:
    """A lower bound on a gain, rounded down, so that the written bound holds too.

    >>> least_gain(0.0299), least_gain(-0.0251)
    ('+0.029', '−0.026')
    """
    return gain(value, ROUND_FLOOR)


def most_gain(value: float) -> str:
    """An upper bound on a gain, rounded up, so that the written bound holds too.

    >>> most_gain(0.0291), most_gain(-0.0259)
    ('+0.03', '−0.025')
    """
    return gain(value, ROUND_CEILING)


def rough_count(value: float) -> str:
    """An estimated count, with two significant digits.

    >>> [rough_count(x) for x in (9, 984_253, 1_040_000, 2.35e9, 1e12)]
    ['9', '980,000', '1 million', '2.4 billion', '1 trillion']
    """
    rounded = float(f"{value:.{FEW_DIGITS}g}")
    for size, unit in LARGE_COUNTS:
        if rounded >= size:
            return f"{number(rounded / size)} {unit}"
    return count(round(rounded))


def size(value: float | None) -> str:
    """An effective sample size, as a whole number if it is large.

    >>> [size(x) for x in (29191.4, 1000.0, 999.54, 12.345, 1e16, float("inf"), None)]
    ['29,191', '1,000', '999.5', '12.35', '10,000,000,000,000,000', '∞', '–']
    """
    if value is None or not math.isfinite(value) or abs(value) < FEWEST_WHOLE:
        return number(value)
    return count(round(value))


def count(value: int) -> str:
    """A whole number, exactly."""
    return f"{value:,}"


def counted(value: int, noun: str) -> str:
    """A whole number and its noun.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def list_some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are.

    >>> list_some(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    hidden = len(names) - most
    return ", ".join(names[:most]) + (f" and {count(hidden)} more" if hidden > 0 else "")


def percent(share: float | None) -> str:
    """A share in percent: only 1 is written as 100 %, and only 0 as 0 %.

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


def approximate(value: float) -> str:
    """A number for the axis of a chart.

    >>> [approximate(x) for x in (1, 500, 1e3, 2e4, 1e6, 5e9, 0.25, -1e3)]
    ['1', '500', '1 k', '20 k', '1 M', '5 bn', '0.25', '−1 k']
    """
    for size, unit in SIZES:
        if size <= abs(value) < 1e3 * size:
            return number(value / size) + unit
    return number(value)


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
