"""The pictures of a report, drawn from its data: a certificate over time, a policy, a range."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.formatting import approximate, count, counted, named, number, percent
from understudy.report.data import ActionRow, CertificateCurve
from understudy.report.svg import (
    PixelScale,
    Plot,
    area,
    breadth,
    chart,
    cut,
    element,
    fitted,
    line,
    round_values,
    text,
)
from understudy.report.tables import folded

Points = NDArray[np.float64]
ROUNDS, LOWER, UPPER, PRODUCTION, GAIN = range(5)
SHOWN = 1_000.0  # rounds before the last one's thousandth say little, and take much room
SETTLED = 30.0  # the values of rounds before this part of all may leave the picture
COLUMN = 10.0  # pixels that share a tip
MOST_BARS = 20
LABEL = 12.5  # the size of an action's name, as in report.css
NARROW = 500.0  # pixels: a picture for a phone says less


def has_history(curve: CertificateCurve) -> bool:
    """Whether there is more than one point to draw."""
    return len(_shown(curve)) > 1


def draw_certificate(curve: CertificateCurve, width: float = 720.0, height: float = 320.0) -> str:
    """The band between the bounds over the rounds, production, and when promotion was justified."""
    table = _shown(curve)
    late = table[table[:, ROUNDS] >= table[-1, ROUNDS] / SETTLED]
    y = fitted(late[:, LOWER : PRODUCTION + 1], *Plot.inside(height))
    plot = Plot(width, height, table[0, ROUNDS], table[-1, ROUNDS], y)
    points = _thinned(table, plot.x, 1.0)
    x, (_, lower, upper, production, _) = plot.x(points[:, ROUNDS]), y(points).T
    ends = table[-1]
    return chart(
        "The certificate over time",
        f"After {counted(int(ends[ROUNDS]), 'round')} the policy would have earned between "
        f"{number(ends[LOWER])} and {number(ends[UPPER])} per round; "
        f"{_earned(curve, ends[PRODUCTION])}.",
        width,
        height,
        [
            *plot.axes(),
            plot.clipped(
                [
                    area(x, lower, upper, "band"),
                    line(x, upper, "bound"),
                    line(x, lower, "bound least"),
                    line(x, production, "production"),
                ]
            ),
            *_promotion(plot, curve, width),
            *plot.names(
                [
                    ("at most", ends[UPPER], "name target"),
                    ("at least", ends[LOWER], "name target"),
                    ("production", ends[PRODUCTION], "name played"),
                ]
            ),
            *_tips(plot, table),
        ],
    )


def draw_gain(curve: CertificateCurve, width: float = 720.0, height: float = 200.0) -> str:
    """The lower bound on the gain over the rounds, with the line that it has to cross."""
    table = _shown(curve)
    late = table[table[:, ROUNDS] >= table[-1, ROUNDS] / SETTLED]
    y = fitted(late[:, GAIN], *Plot.inside(height), zero=True)
    plot = Plot(width, height, table[0, ROUNDS], table[-1, ROUNDS], y)
    points = _thinned(table, plot.x, 1.0)
    x, gain, level = plot.x(points[:, ROUNDS]), y(points[:, GAIN]), float(y(0.0))
    zero = element("line", x1=plot.x.start, x2=plot.x.stop, y1=level, y2=level, class_="zero")
    return chart(
        "The gain over production, at least",
        f"After {counted(int(table[-1, ROUNDS]), 'round')} the gain over production is at least "
        f"{number(table[-1, GAIN])} per round.",
        width,
        height,
        [
            *plot.axes(),
            plot.clipped([area(x, gain, np.full_like(gain, level), "band"), zero]),
            plot.clipped([line(x, gain, "bound least")]),
            *_promotion(plot, curve, width),
            *plot.names([("gain", table[-1, GAIN], "name target"), ("no gain", 0.0, "name quiet")]),
            *_tips(plot, table),
        ],
    )


def draw_interval(curve: CertificateCurve, width: float = 720.0) -> str:
    """The range of what the policy would have earned, and production, on one axis."""
    lower, upper, production = curve.table[-1, LOWER : PRODUCTION + 1]
    ends = np.array([lower, upper, production])
    known = ends[np.isfinite(ends)]
    x = fitted(known, 20.0, width - 20.0)
    parts = []
    for value in round_values(x.low, x.high, most=5):
        at = float(x(value))
        parts.append(element("line", x1=at, x2=at, y1=24.0, y2=80.0, class_="grid"))
        parts.append(text(approximate(value), at, 96.0, class_="tick", anchor="middle"))
    if np.isfinite([lower, upper]).all():
        start, stop = sorted(x([lower, upper]).tolist())
        box = {"x": start, "width": stop - start, "y": 42.0, "height": 22.0, "rx": 4}
        parts.append(element("rect", class_="range", **box))
    if np.isfinite(production):
        at = float(x(production))
        anchor = "end" if at > width / 2 else "start"
        parts.append(element("line", x1=at, x2=at, y1=24.0, y2=80.0, class_="production"))
        parts.append(text("production", at, 16.0, class_="name played", anchor=anchor))
    parts.append(text("reward per round", width / 2, 114.0, class_="tick", anchor="middle"))
    return chart(
        "The certified range",
        f"Between {number(lower)} and {number(upper)} per round; {_earned(curve, production)}.",
        width,
        118.0,
        parts,
    )


def draw_policy(actions: Sequence[ActionRow], width: float = 720.0) -> str:
    """Two bars for each action: how often the policy plays it, and how often production did."""
    shown, _ = folded(actions, MOST_BARS)
    rows = sorted(shown, key=lambda row: (-(row.policy or 0.0), -row.share))
    names = [cut(row.label, min(0.34 * width, 220.0), LABEL) for row in rows]
    left = max([0.0, *(breadth(name, LABEL) for name in names)]) + 12.0
    largest = max([0.0, *(max(row.policy or 0.0, row.share) for row in rows)])
    x = PixelScale(0.0, largest or 1.0, left, width - 64.0)
    parts = []
    for i, (row, name) in enumerate(zip(rows, names, strict=True)):
        top = 36.0 * i + 4.0
        label = text(name, left - 10, 17.0, class_="action", anchor="end")
        parts.append(element("svg", label, x=0, y=top, width=left - 8, height=28))
        parts += _bar(x, row.policy, top, "policy", f"{name}: the policy plays it")
        parts += _bar(x, row.share, top + 14.0, "share", f"{name}: production played it")
    described = ", ".join(
        f"{named(row.label, 40)} {percent(row.policy)} against {percent(row.share)}"
        for row in rows[:3]
    )
    return chart(
        "The policy against production",
        f"How often each plays an action; first of all {described}.",
        width,
        36.0 * len(rows) + 7.0,
        parts,
    )


def _bar(x: PixelScale, value: float | None, top: float, class_: str, said: str) -> list[str]:
    length = 0.0 if value is None else float(x(value)) - x.start
    tip = element("title", html.escape(f"{said} {percent(value)}"))
    return [
        element("rect", tip, x=x.start, y=top, width=length, height=11.0, rx=2, class_=class_),
        text(percent(value), x.start + length + 6, top + 9.5, class_="tick"),
    ]


def _shown(curve: CertificateCurve) -> Points:
    """The rounds that are drawn: those with known bounds, from the last one's thousandth on."""
    table = curve.table
    kept = np.isfinite(table[:, : PRODUCTION + 1]).all(axis=1) & (table[:, ROUNDS] >= 1.0)
    if curve.gain is not None:
        kept &= np.isfinite(table[:, GAIN])
    first = table[kept, ROUNDS].max(initial=1.0) / SHOWN
    if curve.promoted_at is not None:
        first = min(first, curve.promoted_at / 2)
    return np.compress(kept & (table[:, ROUNDS] >= first), table, axis=0)


def _thinned(table: Points, x: PixelScale, pixels: float) -> Points:
    """The first row, and the last of the rows that share so many pixels."""
    column = np.floor((x(table[:, ROUNDS]) - x.start) / pixels)
    last = np.append(np.diff(column) > 0, True)
    last[0] = True
    return np.compress(last, table, axis=0)


def _earned(curve: CertificateCurve, production: float) -> str:
    return f"production earned {'at most ' if curve.at_most else ''}{number(production)}"


def _promotion(plot: Plot, curve: CertificateCurve, width: float) -> list[str]:
    at = curve.promoted_at
    if at is None or not plot.first <= at <= plot.last:
        return []
    words = f"promotion justified after round {count(at)}" if width > NARROW else "promotion"
    return plot.mark(at, words)


def _tips(plot: Plot, table: Points) -> list[str]:
    points = _thinned(table, plot.x, COLUMN)
    words = []
    for rounds, lower, upper, production, gain in points.tolist():
        said = (
            f"after {counted(int(rounds), 'round')}: between {number(lower)} and {number(upper)} "
            f"per round; production {number(production)}"
        )
        words.append(said if np.isnan(gain) else f"{said}; gain at least {number(gain)}")
    return plot.tips(points[:, ROUNDS], words)
