"""The picture of a mixture: the weight of every expert over the rounds, each in a row of its own.

Rows of their own need no colors to be told apart, and fit on a phone.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from understudy.formatting import approximate, count, named
from understudy.report.charts import (
    PixelScale,
    decades,
    fit_label,
    label_width,
    svg_area,
    svg_chart,
    svg_element,
    svg_line,
    svg_text,
)
from understudy.report.details import ExpertRow
from understudy.report.tables import rough_share

MOST_EXPERTS = 12  # that are drawn, the heaviest: a picture as high as a page
ROW, PLOT = 46.0, 34.0  # pixels from one row to the next, and of a weight of 1
TOP, BOTTOM = 8.0, 38.0
WEIGHT = 62.0  # pixels for the weight at the end of a row


def draw_experts(experts: Sequence[ExpertRow], width: float = 720.0) -> str:
    """The weight of each expert over the rounds, from 0 to 1, on a logarithmic scale of rounds."""
    rows = experts[:MOST_EXPERTS]
    names = [fit_label(row.name, min(0.34 * width, 220.0)) for row in rows]
    left = max([0.0, *(label_width(name) for name in names)]) + 14.0
    first, last = rows[0].history[0][0], rows[0].history[-1][0]
    x = PixelScale(first, last, left, width - WEIGHT, logarithmic=True)
    bottom = TOP + ROW * len(rows)
    parts = []
    for value in decades(x.low, x.high):
        at = float(x(value))
        parts.append(svg_element("line", x1=at, x2=at, y1=TOP, y2=bottom, class_="grid"))
        label = approximate(value)
        parts.append(svg_text(label, at, bottom + 16, class_="tick", anchor="middle"))
    for i, (row, name) in enumerate(zip(rows, names, strict=True)):
        parts += _row(row, name, x, TOP + ROW * i)
    middle = (x.start + x.stop) / 2
    words = "rounds, on a log scale; each row is a weight from 0 to 1"
    if width - left < label_width(words):
        words = "rounds, on a log scale"
    parts.append(svg_text(words, middle, bottom + BOTTOM - 4, class_="tick", anchor="middle"))
    described = ", ".join(f"{named(row.name, 40)} {rough_share(row.weight)}" for row in rows[:3])
    return svg_chart(
        "The weights of the experts over the rounds",
        f"After {count(last - 1)} rounds the heaviest experts are {described}.",
        width,
        bottom + BOTTOM,
        parts,
    )


def _row(row: ExpertRow, name: str, x: PixelScale, top: float) -> list[str]:
    """The name, the weight over the rounds as an area, and the weight now."""
    base = top + PLOT
    rounds, weights = np.array(row.history, dtype=np.float64).T
    across, up = x(rounds), base - PLOT * weights
    said = "; ".join(
        f"{rough_share(weight)} before round {count(int(at))}"
        for at, weight in row.history[:: max(1, len(row.history) // 4)]
    )
    tip = svg_element("title", html.escape(f"{name}: weight {said}; now {rough_share(row.weight)}"))
    box = {"x": x.start, "y": top, "width": x.stop - x.start, "height": PLOT}
    return [
        svg_text(name, x.start - 10, base - 6, class_="action", anchor="end"),
        svg_area(across, np.full_like(across, base), up, "band"),
        svg_line(across, up, "bound least"),
        svg_element("line", x1=x.start, x2=x.stop, y1=base, y2=base, class_="zero"),
        svg_text(rough_share(row.weight), x.stop + 8, base - 6, class_="tick"),
        svg_element("rect", tip, class_="tip", **box),
    ]
