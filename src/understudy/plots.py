"""Figures for print, readable without color.

`matplotlib` is an extra and slow to import, so it is imported only when a figure is drawn.
"""

from __future__ import annotations

import functools
import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from numpy.typing import ArrayLike

from understudy.errors import MissingExtra
from understudy.formatting import FEW_DIGITS, approximate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: people with any kind of color vision can tell these apart.
COLORS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00", "#8C8C8C")
MARKERS = ("s", "o", "^", "D", "*", "v", "P", "X")
LINES = ("--", ":", "-.")
MOST_BARS, LONGEST_LABEL = 40, 20  # bars, and characters of a label, that fit the width of a page
LOG_SCALE_FROM = 50  # bounds that differ by a larger factor are shown on a logarithmic scale
STYLE: dict[Any, Any] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "understudy",  # the same figure gives the same file
}
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, eq=False)
class RegretCurve:
    """Mean regret of a learner with quartiles, and the bound that holds for it, if any."""

    name: str
    x: ArrayLike
    mean: ArrayLike
    low: ArrayLike
    high: ArrayLike
    bound: ArrayLike | None = None


@dataclass(frozen=True, eq=False)
class CurvePanel:
    """Curves that share axes. `levels` are horizontal lines by name."""

    title: str
    x_label: str
    curves: Sequence[RegretCurve]
    levels: Mapping[str, float] | None = None


@dataclass(frozen=True, eq=False)
class CertificatePanel:
    """A certificate over time, as means per round."""

    title: str
    rounds: ArrayLike
    lower: ArrayLike
    upper: ArrayLike
    production: ArrayLike
    gain: ArrayLike | None
    promoted_at: int | None


@dataclass(frozen=True, eq=False)
class PowerPanel:
    """The chance of a verdict over time, with the times that reach the shares of `marks`.

    A time is infinite if the curve ends below its share.
    """

    times: ArrayLike
    power: ArrayLike
    unit: str
    marks: Mapping[float, float]


def require_matplotlib() -> None:
    """Raise `MissingExtra` if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra(
            "drawing needs matplotlib, which is not installed; type: pip install matplotlib"
        )


def in_our_style(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Call a drawing function in our style, if matplotlib is installed."""

    @functools.wraps(draw)
    def styled(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        require_matplotlib()
        from matplotlib import rc_context  # noqa: PLC0415 - slow, and optional

        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return styled


def new_figure(width: float, height: float, title: str | None = None) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow, and optional

    figure = Figure(figsize=(width, height), layout="constrained")
    if title is not None:
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    return figure


def add_grid(axes: Axes) -> None:
    axes.grid(visible=True, color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)


@in_our_style
def draw_bars(labels: Sequence[object], columns: Mapping[str, Sequence[float]]) -> Figure:
    """Draw a row of bars per column, for the labels with the largest values in the first column.

    >>> draw_bars(["a", "b"], {"share": [0.25, 0.75]}).axes[0].get_ylabel()
    'share'
    """
    first = np.asarray(next(iter(columns.values())))
    shown = np.argsort(-first, kind="stable")[:MOST_BARS]
    figure = new_figure(7.0, 2.2 * len(columns))
    panels = figure.subplots(len(columns), sharex=True, squeeze=False)[:, 0]
    for axes, (name, values), color in zip(panels, columns.items(), COLORS, strict=False):
        axes.bar(range(len(shown)), np.asarray(values)[shown], color=color)
        axes.set_ylabel(name)
    names = [str(labels[i])[:LONGEST_LABEL] for i in shown]
    panels[-1].set_xticks(range(len(shown)), names, rotation=90)
    if len(shown) < len(first):
        panels[0].set_title(f"{len(shown)} of {len(first)}", fontsize="medium")
    return figure


@in_our_style
def draw_regret(
    curves: Sequence[RegretCurve], *, title: str, x_label: str, bound_label: str
) -> Figure:
    """Draw the regrets with bands from the first to the third quartile; the bounds above them."""
    figure = new_figure(5.6, 4.6, title)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2.6])
    for color, marker, curve in zip(COLORS, MARKERS, curves, strict=False):
        below.fill_between(curve.x, curve.low, curve.high, color=color, alpha=0.18, lw=0)
        style = {"color": color, "marker": marker, "ms": 3.5, "lw": 1.6}
        below.plot(curve.x, curve.mean, label=curve.name, **style)
        if curve.bound is not None:
            above.plot(curve.x, curve.bound, color=color, ls="--", lw=1.4, label=curve.name)
    add_grid(above)
    add_grid(below)
    below.set_ylim(bottom=min(0.0, below.get_ylim()[0]))
    below.set_xlabel(x_label)
    below.set_ylabel("total regret\n(mean, quartiles)")
    below.legend(loc="best")
    bounds = [value for line in above.get_lines() for value in np.asarray(line.get_ydata())]
    if bounds and max(bounds) > LOG_SCALE_FROM * min(bounds) > 0:
        above.set_yscale("log")
    else:
        above.set_ylim(bottom=0.0)
    above.set_ylabel("bound on\nthe mean")
    above.set_title(bound_label, fontsize=8, loc="right", color="#444444")
    if len(above.get_lines()) > 1:
        above.legend(loc="best", fontsize=8, ncols=len(above.get_lines()))
    return figure


@in_our_style
def draw_curve_panels(panels: Sequence[CurvePanel], *, title: str, y_label: str) -> Figure:
    """Draw panels side by side, x on a logarithmic scale, with one legend for all."""
    figure = new_figure(3.3 * len(panels), 4.2, title)
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(row, panels, strict=True):
        for color, marker, curve in zip(COLORS, MARKERS, panel.curves, strict=False):
            axes.fill_between(curve.x, curve.low, curve.high, color=color, alpha=0.1, lw=0)
            style = {"color": color, "marker": marker, "ms": 4, "lw": 1.5}
            axes.plot(curve.x, curve.mean, label=curve.name, **style)
        for ls, (name, level) in zip(LINES, (panel.levels or {}).items(), strict=False):
            axes.axhline(level, color="#000000", ls=ls, lw=1.4, label=name)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0.0)
        add_grid(axes)
        axes.set_title(panel.title, fontsize=9, loc="left")
        axes.set_xlabel(panel.x_label, fontsize=8)
    row[0].set_ylabel(y_label)
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    return figure


@in_our_style
def draw_certificate(panel: CertificatePanel, *, title: str) -> Figure:
    """Draw the band between the bounds, production, the gain, and the promotion."""
    figure = new_figure(3.8, 3.2, title)
    axes = figure.subplots()
    gain, production, target, *_ = COLORS
    axes.fill_between(
        panel.rounds, panel.lower, panel.upper, color=target, alpha=0.25, lw=0, label="certified"
    )
    axes.plot(panel.rounds, panel.production, color=production, ls="--", lw=1.4, label="production")
    if panel.gain is not None:
        axes.plot(panel.rounds, panel.gain, color=gain, ls="-.", lw=1.4, label="gain, at least")
    if panel.promoted_at is not None:
        axes.axvline(panel.promoted_at, color=gain, lw=0.9, ls=":", label="promotion")
    axes.axhline(0.0, color="#888888", lw=0.6)
    axes.set_xscale("log")
    axes.set_ylim(*_late_range(panel))
    axes.set_title(panel.title, fontsize=8, loc="left")
    axes.set_xlabel("rounds", fontsize=8)
    axes.set_ylabel("reward a round", fontsize=8)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure


@in_our_style
def draw_power(panel: PowerPanel, *, title: str) -> Figure:
    """Draw the chance of a verdict over time, and lines at the shares of its marks."""
    figure = new_figure(4.6, 3.2, title)
    axes = figure.subplots()
    mark, curve, *_ = COLORS
    times, power = np.asarray(panel.times), np.asarray(panel.power)
    start = np.concatenate([[0.0], times]), np.concatenate([[0.0], 100.0 * power])
    axes.step(*start, where="post", color=curve, lw=1.8)
    last = max([*times.tolist()[-1:], *filter(np.isfinite, panel.marks.values())], default=1.0)
    for (share, time), ls in zip(panel.marks.items(), LINES, strict=False):
        axes.axhline(100.0 * share, color="#888888", lw=0.8, ls=ls)
        if np.isfinite(time):
            axes.plot([time, time], [0.0, 100.0 * share], color=mark, lw=1.2, ls=ls)
            axes.plot(time, 100.0 * share, color=mark, marker="o", ms=4.5)
            text = f"{approximate(float(f'{time:.{FEW_DIGITS}g}'))} {panel.unit}"
            place: dict[str, Any] = {
                "xytext": (-5, 4),
                "ha": "right",
                "textcoords": "offset points",
                "fontsize": 8,
            }
            axes.annotate(text, (time, 100.0 * share), color=mark, **place)
    axes.set_xlim(0.0, 1.12 * last)
    axes.set_ylim(0.0, 100.0)
    axes.set_yticks([0, 25, 50, 75, 90, 100])
    axes.xaxis.set_major_formatter(lambda value, _: approximate(value))
    axes.set_xlabel(f"{panel.unit} of data")
    axes.set_ylabel("chance of a verdict (%)")
    return figure


def _late_range(panel: CertificatePanel) -> tuple[float, float]:
    """The range of rewards to show: all values after the first tenth of the rounds.

    Bounds are very wide at first; the rest would be flat beside them.
    """
    rounds = np.asarray(panel.rounds)
    late = rounds >= rounds[-1] / 10
    curves = [panel.lower, panel.upper, panel.production, panel.gain]
    values = np.concatenate([[0.0], *(np.asarray(c)[late] for c in curves if c is not None)])
    margin = 0.05 * (values.max() - values.min())
    return float(values.min() - margin), float(values.max() + margin)


def to_bytes(figure: Figure, file_format: str) -> bytes:
    """The figure as a PNG or SVG file. It has no date, so the same figure gives the same bytes."""
    from matplotlib import rc_context  # noqa: PLC0415 - slow, and optional

    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if file_format == "svg" else {"Software": None}
    with rc_context(STYLE):
        figure.savefig(buffer, format=file_format, dpi=200, metadata=metadata)
    return buffer.getvalue()
