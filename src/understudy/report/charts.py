"""The pictures of a report, as SVG: a certificate over time, a gain, a range, a policy."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.formatting import (
    approximate,
    count,
    counted,
    gain,
    least_gain,
    most_gain,
    named,
    number,
    percent,
    plain,
)
from understudy.logs.evaluation.outcomes import GainBounds
from understudy.report.data import ActionRow, CertificateCurve
from understudy.report.tables import most_important

Points = NDArray[np.float64]
ROUNDS, LOWER, UPPER, PRODUCTION, GAIN = range(5)
SHOWN = 1_000.0  # rounds before a thousandth of the last say little, and take much room
SETTLED = 30.0  # values of rounds before a thirtieth of the last may leave the picture
TIP_WIDTH = 10.0  # pixels that share a tip
MOST_BARS = 20
NARROW = 500.0  # pixels: a picture for a phone says less
LABEL = 12.5  # the size of an action's name, as in report.css
LETTER = 0.56  # the width of a letter as a share of its height, about
DOUBLE = "WF"  # what Unicode calls letters that are twice as wide
LINE_HEIGHT = 14.0
FAR = 1e4  # pixels, far outside of every picture: points beyond it are drawn there
LEFT, RIGHT, TOP, BOTTOM = 58.0, 74.0, 10.0, 40.0
LINE_TOP, BAR = 42.0, 16.0  # pixels above a number line, and the height of its bar
SIDE = 10.0  # pixels left free beside the marks of a number line
RULER = 40  # letters of a number line in a terminal
MARGIN = 0.06  # of the range, left free below and above
NARROWEST = 1e-9  # of the values: a narrower range is mostly rounding
SMALLEST = 1e-290  # of a range: the pixels of smaller ones would overflow
STEPS = (1.0, 2.0, 5.0, 10.0)
MOST_STEPS = 5  # between the round values on an axis
FEW_POWERS = 2  # of ten on an axis: fewer than three say little

# --------------------------------------------------------------------------------------- pictures


def has_history(curve: CertificateCurve) -> bool:
    """Whether there is more than one point to draw."""
    return len(_drawn_rounds(curve)) > 1


def draw_certificate(curve: CertificateCurve, width: float = 720.0, height: float = 320.0) -> str:
    """The band between the bounds over the rounds, production, and when promotion was justified."""
    plot = TimePlot(curve, width, height, (LOWER, UPPER, PRODUCTION))
    x, lower, upper, production, _ = plot.pixels()
    ends = plot.table[-1]
    curves = [
        svg_area(x, lower, upper, "band"),
        svg_line(x, upper, "bound"),
        svg_line(x, lower, "bound least"),
        svg_line(x, production, "production"),
    ]
    return plot.chart(
        "The certificate over time",
        f"the policy would have earned between {number(ends[LOWER])} and {number(ends[UPPER])} per "
        f"round; {_earned(curve, ends[PRODUCTION])}.",
        plot.clipped(curves),
        [
            ("at most", ends[UPPER], "name target"),
            ("at least", ends[LOWER], "name target"),
            ("production", ends[PRODUCTION], "name played"),
        ],
    )


def draw_gain(curve: CertificateCurve, width: float = 720.0, height: float = 200.0) -> str:
    """The lower bound on the gain over the rounds, with the line that it has to cross."""
    plot = TimePlot(curve, width, height, (GAIN,))
    x, *_, gain = plot.pixels()
    end, level = plot.table[-1, GAIN], float(plot.y(0.0))
    zero = svg_element("line", x1=plot.x.start, x2=plot.x.stop, y1=level, y2=level, class_="zero")
    band = plot.clipped([svg_area(x, gain, np.full_like(gain, level), "band"), zero])
    return plot.chart(
        "The gain over production, at least",
        f"the gain over production is at least {number(end)} per round.",
        band + plot.clipped([svg_line(x, gain, "bound least")]),
        [("gain", end, "name target"), ("no gain", 0.0, "name quiet")],
    )


def draw_interval(curve: CertificateCurve, width: float = 720.0) -> str:
    """The range of what the policy would have earned, and production, on one axis."""
    lower, upper, production = curve.table[-1, LOWER : PRODUCTION + 1]
    x = linear_scale([lower, upper, production], 20.0, width - 20.0)
    parts = []
    for value in round_values(x.low, x.high):
        at = float(x(value))
        parts.append(svg_element("line", x1=at, x2=at, y1=24.0, y2=80.0, class_="grid"))
        parts.append(svg_text(approximate(value), at, 96.0, class_="tick", anchor="middle"))
    if np.isfinite([lower, upper]).all():
        start, stop = sorted(x([lower, upper]).tolist())
        box = {"x": start, "width": stop - start, "y": 42.0, "height": 22.0, "rx": 4}
        parts.append(svg_element("rect", class_="range", **box))
    if np.isfinite(production):
        at = float(x(production))
        anchor = "end" if at > width / 2 else "start"
        parts.append(svg_element("line", x1=at, x2=at, y1=24.0, y2=80.0, class_="production"))
        parts.append(svg_text("production", at, 16.0, class_="name played", anchor=anchor))
    parts.append(svg_text("reward per round", width / 2, 114.0, class_="tick", anchor="middle"))
    return svg_chart(
        "The certified range",
        f"Between {number(lower)} and {number(upper)} per round; {_earned(curve, production)}.",
        width,
        118.0,
        parts,
    )


# --------------------------------------------------------------------------- the gain, on a line


@dataclass(frozen=True)
class DrawnGain:
    """What a number line shows of a gain; None where nothing is known.

    If only a window shows a gain, its lower bound alone is drawn: the others are of all rows.
    """

    least: str
    most: str
    estimate: str
    low: float | None
    high: float | None
    middle: float | None

    @staticmethod
    def of(bounds: GainBounds | None) -> DrawnGain | None:
        """The parts of a number line; None if there are no bounds."""
        if bounds is None or bounds.low is None:
            return None
        if bounds.since is not None and bounds.low_since is not None:
            least = f"at least {least_gain(bounds.low_since)} since row {count(bounds.since)}"
            return DrawnGain(least, "", "", bounds.low_since, None, None)
        return DrawnGain(
            f"at least {least_gain(bounds.low)}",
            "" if bounds.high is None else f"at most {most_gain(bounds.high)}",
            "" if bounds.estimate is None else f"estimated {gain(bounds.estimate)}",
            bounds.low,
            bounds.high,
            bounds.estimate,
        )

    @property
    def marks(self) -> list[float]:
        """All values that are drawn, with 0."""
        return [0.0, *(x for x in (self.low, self.high, self.middle) if x is not None)]

    def __str__(self) -> str:
        return ", ".join(part for part in (self.least, self.estimate, self.most) if part)


def draw_gain_bounds(bounds: GainBounds | None, width: float = 720.0) -> str:
    """The number line as a picture; empty if there are no bounds."""
    drawn = DrawnGain.of(bounds)
    if drawn is None:
        return ""
    x = linear_scale(drawn.marks, SIDE, width - SIDE)
    zero = float(x(0.0))
    start = x.start if drawn.low is None else float(x(drawn.low))
    stop = x.stop if drawn.high is None else float(x(drawn.high))
    box: dict[str, Any] = {"x": min(start, stop), "width": abs(stop - start)}
    box |= {"y": LINE_TOP - BAR / 2, "height": BAR, "rx": 3}
    parts = [
        svg_element("line", x1=x.start, x2=x.stop, y1=LINE_TOP, y2=LINE_TOP, class_="grid"),
        svg_element("rect", class_="range", **box),
        svg_element("line", x1=zero, x2=zero, y1=LINE_TOP - 18, y2=LINE_TOP + 18, class_="zero"),
        *_above(drawn, start, stop, width),
        _under("no gain", zero, 88.0, width, "tick"),
    ]
    if drawn.middle is not None:
        at = float(x(drawn.middle))
        parts.append(svg_element("circle", cx=at, cy=LINE_TOP, r=6, class_="estimate"))
        parts.append(_under(drawn.estimate, at, 72.0, width, "note"))
    return svg_chart(f"Gain per row: {drawn}", str(drawn), width, 92.0, parts)


def _above(drawn: DrawnGain, start: float, stop: float, width: float) -> list[str]:
    """The labels of both ends above them, apart from each other and inside the picture."""
    least, most = label_width(drawn.least), label_width(drawn.most)
    apart = (least + most) / 2 + SIDE
    middle = (start + stop) / 2
    low, high = min(start, middle - apart / 2), max(stop, middle + apart / 2)
    low = float(np.clip(low, least / 2, max(width - most / 2 - apart, least / 2)))
    high = float(np.clip(high, low + apart, max(width - most / 2, low + apart)))
    labels = (drawn.least, low), (drawn.most, high)
    return [svg_text(text, at, 13.0, class_="note", anchor="middle") for text, at in labels if text]


def _under(text: str, at: float, y: float, width: float, class_: str) -> str:
    """A label below a mark, moved where it would leave the picture."""
    half = label_width(text) / 2
    inside = float(np.clip(at, half, max(width - half, half)))
    return svg_text(text, inside, y, class_=class_, anchor="middle")


def gain_ruler(bounds: GainBounds | None) -> str:
    """The number line in letters; empty if there are no bounds.

    >>> gain_ruler(GainBounds(0.01, -0.02, 0.04))
    'at least −0.021 ├────────────0──────●──────────────────┤ at most +0.041'
    >>> gain_ruler(GainBounds(0.3, 0.25, 0.35))
    'at least +0.25  0                           ├────●─────┤ at most +0.35'
    """
    drawn = DrawnGain.of(bounds)
    if drawn is None:
        return ""
    x = linear_scale(drawn.marks, 0.0, 1.0)
    low, high = min(drawn.marks), max(drawn.marks) if drawn.high is not None else x.high

    def place(value: float) -> int:
        share = (value - low) / (high - low) if high > low else 0.0
        return round(share * (RULER - 1))

    letters = [" "] * RULER
    start = place(drawn.low or 0.0)
    stop = RULER - 1 if drawn.high is None else place(drawn.high)
    letters[start : stop + 1] = "─" * (stop + 1 - start)
    letters[place(0.0)] = "0"
    letters[start] = "├"
    letters[stop] = "→" if drawn.high is None else "┤"
    if drawn.middle is not None:
        letters[place(drawn.middle)] = "●"
    return f"{drawn.least:15} {''.join(letters)} {drawn.most}".rstrip()


def draw_policy(actions: Sequence[ActionRow], width: float = 720.0) -> str:
    """Two bars for each action: how often the policy plays it, and how often production did."""
    shown, _ = most_important(actions, MOST_BARS)
    rows = sorted(shown, key=lambda row: (-(row.policy or 0.0), -row.share))
    names = [fit_label(row.label, min(0.34 * width, 220.0)) for row in rows]
    left = max([0.0, *(label_width(name) for name in names)]) + 12.0
    largest = max([0.0, *(max(row.policy or 0.0, row.share) for row in rows)])
    x = PixelScale(0.0, largest or 1.0, left, width - 64.0)
    parts = []
    for i, (row, name) in enumerate(zip(rows, names, strict=True)):
        top = 36.0 * i + 4.0
        label = svg_text(name, left - 10, 17.0, class_="action", anchor="end")
        parts.append(svg_element("svg", label, x=0, y=top, width=left - 8, height=28))
        parts += _bar(x, row.policy, top, "policy", f"{name}: the policy plays it")
        parts += _bar(x, row.share, top + 14.0, "share", f"{name}: production played it")
    described = ", ".join(
        f"{named(row.label, 40)} {percent(row.policy)} against {percent(row.share)}"
        for row in rows[:3]
    )
    return svg_chart(
        "The policy against production",
        f"How often each plays an action; first of all {described}.",
        width,
        36.0 * len(rows) + 7.0,
        parts,
    )


def _bar(x: PixelScale, value: float | None, top: float, class_: str, said: str) -> list[str]:
    length = 0.0 if value is None else float(x(value)) - x.start
    tip = svg_element("title", html.escape(f"{said} {percent(value)}"))
    return [
        svg_element("rect", tip, x=x.start, y=top, width=length, height=11.0, rx=2, class_=class_),
        svg_text(percent(value), x.start + length + 6, top + 9.5, class_="tick"),
    ]


def _earned(curve: CertificateCurve, production: float) -> str:
    return f"production earned {'at most ' if curve.at_most else ''}{number(production)}"


# ------------------------------------------------------------------------------ curves over rounds


@dataclass(frozen=True)
class TimePlot:
    """A frame for curves: rounds on a logarithmic scale below, values at the left, names right.

    The `columns` of the certificate's table fit into it, except for the first rounds.
    """

    curve: CertificateCurve
    width: float
    height: float
    columns: tuple[int, ...]

    @cached_property
    def table(self) -> Points:
        """The rows of the drawn rounds."""
        return _drawn_rounds(self.curve)

    @cached_property
    def x(self) -> PixelScale:
        """The scale of the rounds."""
        first, last = self.table[[0, -1], ROUNDS].tolist()
        return PixelScale(first, last, LEFT, self.width - RIGHT, logarithmic=True)

    @cached_property
    def y(self) -> PixelScale:
        """The scale of the values, with 0 for a gain: the lowest is at the bottom."""
        late = self.table[self.table[:, ROUNDS] >= self.table[-1, ROUNDS] / SETTLED]
        values = late[:, self.columns]
        return linear_scale(values, self.height - BOTTOM, TOP, zero=self.columns == (GAIN,))

    def chart(
        self, title: str, description: str, curves: str, names: Sequence[tuple[str, float, str]]
    ) -> str:
        """The whole picture; `names` has the name of every curve, its last value and its class."""
        parts = [*self.axes(), curves, *self.promotion(), *self.names(names), *self.tips()]
        after = f"After {counted(int(self.table[-1, ROUNDS]), 'round')} {description}"
        return svg_chart(title, after, self.width, self.height, parts)

    def pixels(self) -> tuple[Points, ...]:
        """The rounds and the values of all columns, in pixels."""
        points = self._thinned(1.0)
        return self.x(points[:, ROUNDS]), *self.y(points[:, LOWER:]).T

    def _thinned(self, pixels: float) -> Points:
        """The first row, and the last row of each column of `pixels` pixels."""
        column = np.floor((self.x(self.table[:, ROUNDS]) - LEFT) / pixels)
        last = np.append(np.diff(column) > 0, True)
        last[0] = True
        return np.compress(last, self.table, axis=0)

    def axes(self) -> list[str]:
        """Grid lines at round values, and their labels."""
        left, right = self.x.start, self.x.stop
        bottom, top = self.y.start, self.y.stop
        parts = []
        for value in round_values(self.y.low, self.y.high):
            at = float(self.y(value))
            parts.append(svg_element("line", x1=left, x2=right, y1=at, y2=at, class_="grid"))
            parts.append(
                svg_text(approximate(value), left - 8, at + 4, class_="tick", anchor="end")
            )
        for value in decades(self.x.low, self.x.high):
            at = float(self.x(value))
            parts.append(svg_element("line", x1=at, x2=at, y1=bottom, y2=top, class_="grid"))
            parts.append(
                svg_text(approximate(value), at, bottom + 16, class_="tick", anchor="middle")
            )
        at, y = (left + right) / 2, self.height - 4
        return [*parts, svg_text("rounds, on a log scale", at, y, class_="tick", anchor="middle")]

    def clipped(self, parts: Iterable[str]) -> str:
        """Parts of a picture, clipped to the frame."""
        left, top = self.x.start, self.y.stop
        width, height = self.x.stop - left, self.y.start - top
        box = " ".join(map(_value, (left, top, width, height)))
        return svg_element(
            "svg", "".join(parts), x=left, y=top, width=width, height=height, viewBox=box
        )

    def promotion(self) -> list[str]:
        """A vertical line at the round of the promotion, labelled on the side with more room."""
        promoted = self.curve.promoted_at
        if promoted is None or not self.x.low <= promoted <= self.x.high:
            return []
        at, wide = float(self.x(promoted)), self.width > NARROW
        words = f"promotion justified after round {count(promoted)}" if wide else "promotion"
        before = at - self.x.start > self.x.stop - at
        place, anchor = (at - 6, "end") if before else (at + 6, "start")
        return [
            svg_element("line", x1=at, x2=at, y1=self.y.start, y2=self.y.stop, class_="mark"),
            svg_text(words, place, self.y.stop + 12, class_="note", anchor=anchor),
        ]

    def names(self, ends: Sequence[tuple[str, float, str]]) -> list[str]:
        """The names of curves beside their ends."""
        wanted = np.clip([float(self.y(end)) for _, end, _ in ends], self.y.stop, self.y.start)
        places = spread_labels(wanted.tolist(), self.y.stop + 4, self.y.start)
        return [
            svg_text(name, self.x.stop + 6, place + 4, class_=class_)
            for (name, _, class_), place in zip(ends, places, strict=True)
        ]

    def tips(self) -> list[str]:
        """Invisible columns whose tooltips tell the values of the curves."""
        points = self._thinned(TIP_WIDTH)
        edges = self.x(points[:, ROUNDS]).tolist()
        box = {"y": self.y.stop, "height": self.y.start - self.y.stop, "class_": "tip"}
        tips = []
        for start, stop, row in zip([LEFT, *edges], edges, points.tolist(), strict=False):
            rounds, lower, upper, production, gain = row
            said = (
                f"after {counted(int(rounds), 'round')}: between {number(lower)} and "
                f"{number(upper)} per round; production {number(production)}"
            )
            said += "" if math.isnan(gain) else f"; gain at least {number(gain)}"
            title = svg_element("title", html.escape(said))
            tips.append(svg_element("rect", title, x=start, width=stop - start, **box))
        return tips


def _drawn_rounds(curve: CertificateCurve) -> Points:
    """The rows with known bounds, from a thousandth of the last round on."""
    table = curve.table
    kept = np.isfinite(table[:, : PRODUCTION + 1]).all(axis=1) & (table[:, ROUNDS] >= 1.0)
    if curve.gain is not None:
        kept &= np.isfinite(table[:, GAIN])
    first = table[kept, ROUNDS].max(initial=1.0) / SHOWN
    if curve.promoted_at is not None:
        first = min(first, curve.promoted_at / 2)
    return np.compress(kept & (table[:, ROUNDS] >= first), table, axis=0)


# ---------------------------------------------------------------------------------------- scales


@dataclass(frozen=True)
class PixelScale:
    """A range of values over a range of pixels, linear or logarithmic."""

    low: float
    high: float
    start: float
    stop: float
    logarithmic: bool = False

    def __call__(self, values: ArrayLike) -> NDArray[np.float64]:
        """The pixels of values."""
        x, low, high = np.asarray(values, dtype=np.float64), self.low, self.high
        if self.logarithmic:
            x, low, high = np.log(x), math.log(low), math.log(high)
        return self.start + (x - low) / (high - low) * (self.stop - self.start)


def linear_scale(values: ArrayLike, start: float, stop: float, *, zero: bool = False) -> PixelScale:
    """A linear scale that shows all finite values, and 0 if asked for."""
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


def round_values(low: float, high: float) -> list[float]:
    """Round numbers in a range, a few equal steps apart.

    >>> round_values(0.13, 0.38)
    [0.15, 0.2, 0.25, 0.3, 0.35]
    """
    least = (high - low) / MOST_STEPS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * s for s in STEPS if power * s >= least * (1 - NARROWEST))
    first, last = math.ceil(low / step), math.floor(high / step)
    decimals = max(0, 1 - math.floor(math.log10(step)))
    return [round(k * step, decimals) for k in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """The powers of ten in a range, or 1, 2 and 5 times them where these are few.

    >>> decades(1.0, 2000.0), decades(60.0, 600.0)
    ([1.0, 10.0, 100.0, 1000.0], [100.0, 200.0, 500.0])
    """
    powers = [10.0**k for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    inside = [power for power in powers if low <= power <= high]
    if len(inside) > FEW_POWERS:
        return inside
    return [s * power for power in powers for s in STEPS[:3] if low <= s * power <= high]


def spread_labels(places: Sequence[float], low: float, high: float) -> list[float]:
    """Places of labels in the same order, moved apart so that none covers another.

    >>> spread_labels([50.0, 52.0, 10.0], 0.0, 100.0), spread_labels([99.0, 98.0], 0.0, 100.0)
    ([50.0, 64.0, 10.0], [100.0, 86.0])
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


def label_width(label: str) -> float:
    """The width of a label in pixels; fonts differ, so it is approximate."""
    return LABEL * LETTER * sum(1 + (unicodedata.east_asian_width(c) in DOUBLE) for c in label)


def fit_label(label: object, width: float) -> str:
    """A label that fits into a width."""
    line = named(label, longest=200)
    if label_width(line) <= width:
        return line
    letter = label_width(line) / len(line)
    return plain(line, longest=max(4, int(width / letter)))


# --------------------------------------------------------------------------------- elements of SVG


def svg_chart(
    title: str, description: str, width: float, height: float, parts: Iterable[str]
) -> str:
    """A whole picture with a description; it has no ids, so a page may hold it twice."""
    content = svg_element("desc", html.escape(plain(description))) + "".join(parts)
    box = f"0 0 {_value(width)} {_value(height)}"
    return svg_element("svg", content, viewBox=box, role="img", aria_label=plain(title))


def svg_element(name: str, content: str = "", **attributes: object) -> str:
    """One element; attribute names get - for _, and `content` is SVG already."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{said}>{content}</{name}>" if content else f"<{name}{said}/>"


def svg_text(content: object, x: float, y: float, *, class_: str, anchor: str = "start") -> str:
    """A text element; what it holds is escaped."""
    said = html.escape(plain(content))
    return svg_element("text", said, x=x, y=y, class_=class_, text_anchor=anchor)


def svg_line(x: Points, y: Points, class_: str, end: str = "") -> str:
    """A curve through points; with the `end` "Z" it is closed."""
    points = zip(x.tolist(), np.clip(y, -FAR, FAR).tolist(), strict=True)
    path = "M" + "L".join(f"{_value(a)} {_value(b)}" for a, b in points)
    return svg_element("path", d=path + end, class_=class_)


def svg_area(x: Points, low: Points, high: Points, class_: str) -> str:
    """The area between two curves."""
    there_and_back = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
    return svg_line(*there_and_back, class_, end="Z")


def _value(value: object) -> str:
    """The value of an attribute: numbers with a screen's precision, other values escaped."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return html.escape(str(value))
