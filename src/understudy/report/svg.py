"""Charts as text: elements of SVG, scales, and the frame with axes that a curve is drawn in."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.formatting import approximate, named, plain

LETTER = 0.56  # the width of a letter as a share of its height, about
WIDE = "WF"  # what Unicode calls letters that are twice as wide
LINE_HEIGHT = 14.0
FAR = 1e4  # pixels: what lies beyond is as invisible there
LEFT, RIGHT, TOP, BOTTOM = 58.0, 74.0, 10.0, 40.0
MARGIN = 0.06  # of the range, left free below and above
NARROWEST = 1e-9  # of the values: a narrower range is mostly rounding
SMALLEST = 1e-290  # of a range whose pixels are doubles
STEPS = (1.0, 2.0, 5.0, 10.0)


def element(name: str, content: str = "", **attributes: object) -> str:
    """One element; names of attributes have - for _, and `content` is SVG already.

    >>> element("line", x1=0.0, stroke_width=2)
    '<line x1="0" stroke-width="2"/>'
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{said}>{content}</{name}>" if content else f"<{name}{said}/>"


def text(content: object, x: float, y: float, *, class_: str, anchor: str = "start") -> str:
    """A text, whatever it holds.

    >>> text("<b>", 1.0, 2.0, class_="name")
    '<text x="1" y="2" class="name" text-anchor="start">&lt;b&gt;</text>'
    """
    said = html.escape(plain(content))
    return element("text", said, x=x, y=y, class_=class_, text_anchor=anchor)


def chart(title: str, description: str, width: float, height: float, parts: Iterable[str]) -> str:
    """A whole picture that can be read aloud; it has no ids, so a page may hold it twice.

    >>> chart("Nothing", "Empty.", 10.0, 5.0, [])
    '<svg viewBox="0 0 10 5" role="img" aria-label="Nothing"><desc>Empty.</desc></svg>'
    """
    content = element("desc", html.escape(plain(description))) + "".join(parts)
    box = f"0 0 {_value(width)} {_value(height)}"
    return element("svg", content, viewBox=box, role="img", aria_label=plain(title))


def line(x: NDArray[np.float64], y: NDArray[np.float64], class_: str) -> str:
    """A curve through points.

    >>> line(np.array([0.0, 1.0]), np.array([2.0, 3.5]), "lower")
    '<path d="M0 2L1 3.5" class="lower"/>'
    """
    return element("path", d=_path(x, y), class_=class_)


def area(
    x: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64], class_: str
) -> str:
    """What lies between two curves.

    >>> area(np.array([0.0, 1.0]), np.array([2.0, 2.0]), np.array([0.0, 1.0]), "band")
    '<path d="M0 2L1 2L1 1L0 0Z" class="band"/>'
    """
    outline = _path(np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]]))
    return element("path", d=outline + "Z", class_=class_)


def breadth(label: str, size: float) -> float:
    """How wide a label is, letters being of that size; about, for fonts differ.

    >>> breadth("商", 10.0) == breadth("ab", 10.0)
    True
    """
    return size * LETTER * sum(1 + (unicodedata.east_asian_width(c) in WIDE) for c in label)


def cut(label: object, width: float, size: float) -> str:
    """A label that fits into a width.

    >>> cut("a long name for an action", 60.0, 12.0)
    'a lon…on'
    """
    line = named(label, longest=200)
    if breadth(line, size) <= width:
        return line
    letter = breadth(line, size) / len(line)
    return plain(line, longest=max(4, int(width / letter)))


def spread(places: Sequence[float], low: float, high: float) -> list[float]:
    """Places of labels in the same order, moved apart so that none covers another.

    >>> spread([50.0, 52.0, 10.0], 0.0, 100.0)
    [50.0, 64.0, 10.0]
    >>> spread([99.0, 98.0], 0.0, 100.0)
    [100.0, 86.0]
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved, edge = list(places), low
    for i in order:
        moved[i] = edge = max(edge, places[i])
        edge += LINE_HEIGHT
    edge = high
    for i in reversed(order):
        moved[i] = min(edge, moved[i])
        edge = moved[i] - LINE_HEIGHT
    return moved


@dataclass(frozen=True)
class PixelScale:
    """A range of values over a range of pixels, linear or logarithmic.

    >>> PixelScale(0.0, 10.0, 100.0, 200.0)([0.0, 5.0]).tolist()
    [100.0, 150.0]
    >>> PixelScale(1.0, 100.0, 0.0, 200.0, logarithmic=True)(10.0).tolist()
    100.0
    """

    low: float
    high: float
    start: float
    stop: float
    logarithmic: bool = False

    def __call__(self, values: ArrayLike) -> NDArray[np.float64]:
        """Where the values are, in pixels; those beyond the range lie outside."""
        x, low, high = np.asarray(values, dtype=np.float64), self.low, self.high
        if self.logarithmic:
            x, low, high = np.log(x), math.log(low), math.log(high)
        return self.start + (x - low) / (high - low) * (self.stop - self.start)


def fitted(values: ArrayLike, start: float, stop: float, *, zero: bool = False) -> PixelScale:
    """A linear scale on which all finite values can be seen, and 0 if wanted.

    >>> fitted([2.0, 4.0], 0.0, 100.0)
    PixelScale(low=1.88, high=4.12, start=0.0, stop=100.0, logarithmic=False)
    >>> fitted([], 0.0, 100.0).low < 0.0 < fitted([], 0.0, 100.0).high
    True
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[np.isfinite(x)]
    if zero or not len(x):
        x = np.append(x, 0.0)
    low, high = float(x.min()), float(x.max())
    size = max(abs(low), abs(high))
    if size < SMALLEST:  # too small to be divided by
        low, high = -1.0, 1.0
    elif high - low <= NARROWEST * size:
        low, high = low - size / 10, high + size / 10
    margin = MARGIN * (high - low)
    return PixelScale(low - margin, high + margin, start, stop)


def round_values(low: float, high: float, most: int) -> list[float]:
    """Round numbers in a range, with at most so many equal steps over all of it.

    >>> round_values(0.13, 0.38, most=5)
    [0.15, 0.2, 0.25, 0.3, 0.35]
    """
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * s for s in STEPS if power * s >= least * (1 - NARROWEST))
    first, last = math.ceil(low / step), math.floor(high / step)
    decimals = max(0, 1 - math.floor(math.log10(step)))
    return [round(k * step, decimals) for k in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """The powers of ten in a range, or 1, 2 and 5 times them where these are few.

    >>> decades(1.0, 2000.0)
    [1.0, 10.0, 100.0, 1000.0]
    >>> decades(60.0, 600.0)
    [100.0, 200.0, 500.0]
    """
    powers = [10.0**k for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    inside = [power for power in powers if low <= power <= high]
    if len(inside) > 2:  # noqa: PLR2004 - fewer say little
        return inside
    return [s * power for power in powers for s in STEPS[:3] if low <= s * power <= high]


@dataclass(frozen=True)
class Plot:
    """A frame: rounds on a logarithmic scale below, values at the left, names at the right."""

    width: float
    height: float
    first: float
    last: float
    y: PixelScale

    @staticmethod
    def inside(height: float) -> tuple[float, float]:
        """Where the values go in a picture of that height: the lowest is at the bottom.

        >>> Plot.inside(100.0)
        (60.0, 10.0)
        """
        return height - BOTTOM, TOP

    @cached_property
    def x(self) -> PixelScale:
        """The scale of the rounds."""
        return PixelScale(self.first, self.last, LEFT, self.width - RIGHT, logarithmic=True)

    def axes(self) -> list[str]:
        """Lines and names of round values, behind what is drawn."""
        left, right = self.x.start, self.x.stop
        bottom, top = self.y.start, self.y.stop
        parts = []
        for value in round_values(self.y.low, self.y.high, most=5):
            at = float(self.y(value))
            parts.append(element("line", x1=left, x2=right, y1=at, y2=at, class_="grid"))
            parts.append(text(approximate(value), left - 8, at + 4, class_="tick", anchor="end"))
        for value in decades(self.first, self.last):
            at = float(self.x(value))
            parts.append(element("line", x1=at, x2=at, y1=bottom, y2=top, class_="grid"))
            parts.append(text(approximate(value), at, bottom + 16, class_="tick", anchor="middle"))
        middle = (left + right) / 2
        parts.append(
            text("rounds, on a log scale", middle, self.height - 4, class_="tick", anchor="middle")
        )
        return parts

    def clipped(self, parts: Iterable[str]) -> str:
        """What is drawn inside the frame; the rest of it cannot be seen."""
        left, top = self.x.start, self.y.stop
        width, height = self.x.stop - left, self.y.start - top
        box = f"{_value(left)} {_value(top)} {_value(width)} {_value(height)}"
        return element(
            "svg", "".join(parts), x=left, y=top, width=width, height=height, viewBox=box
        )

    def mark(self, round_: float, words: str) -> list[str]:
        """A vertical line after a round, with words on the side that has more room."""
        at = float(self.x(round_))
        before = at - self.x.start > self.x.stop - at
        upright = element("line", x1=at, x2=at, y1=self.y.start, y2=self.y.stop, class_="mark")
        place, anchor = (at - 6, "end") if before else (at + 6, "start")
        return [upright, text(words, place, self.y.stop + 12, class_="note", anchor=anchor)]

    def names(self, ends: Sequence[tuple[str, float, str]]) -> list[str]:
        """The name of every curve beside its end: (name, last value, class)."""
        wanted = np.clip([float(self.y(end)) for _, end, _ in ends], self.y.stop, self.y.start)
        places = spread(wanted.tolist(), self.y.stop + 4, self.y.start)
        return [
            text(name, self.x.stop + 6, place + 4, class_=class_)
            for (name, _, class_), place in zip(ends, places, strict=True)
        ]

    def tips(self, rounds: NDArray[np.float64], words: Sequence[str]) -> list[str]:
        """Columns that say, where a pointer rests, what the curves are there."""
        edges = self.x(rounds)
        starts = np.concatenate([[self.x.start], edges[:-1]])
        box = {"y": self.y.stop, "height": self.y.start - self.y.stop, "class_": "tip"}
        return [
            element("rect", element("title", html.escape(said)), x=start, width=stop - start, **box)
            for start, stop, said in zip(starts.tolist(), edges.tolist(), words, strict=True)
        ]


def _path(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    points = zip(x.tolist(), np.clip(y, -FAR, FAR).tolist(), strict=True)
    return "M" + "L".join(f"{_value(a)} {_value(b)}" for a, b in points)


def _value(value: object) -> str:
    """Numbers with the precision of a screen, anything else so that it ends no attribute."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return html.escape(str(value))
