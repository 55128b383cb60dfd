"""Pictures fit for a paper: readable in print, told apart without color."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from understudy.errors import MissingExtra

if TYPE_CHECKING:  # matplotlib is imported only when something is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "Frame", "draw_frames", "draw_regret", "require_matplotlib", "to_bytes"]

# Okabe and Ito: safe for all eyes.
COLORS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00", "#8C8C8C")
ORDERS = 50  # bounds that differ by more are shown on a logarithmic scale
MARKERS = ("s", "o", "^", "D", "*", "v", "P", "X")
STYLE: dict[Any, Any] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "understudy",  # the same picture gives the same file
}


@dataclass(frozen=True, eq=False)
class Curve:
    """One learner: its mean regret with quartiles, and the bound that holds for it, if any."""

    name: str
    x: ArrayLike
    mean: ArrayLike
    low: ArrayLike
    high: ArrayLike
    bound: ArrayLike | None = None


@dataclass(frozen=True, eq=False)
class Frame:
    """Curves that share axes, one of several pictures beside each other.

    `levels` are horizontal lines by name: what does not depend on x.
    """

    title: str
    x_label: str
    curves: Sequence[Curve]
    levels: Mapping[str, float] | None = None


def require_matplotlib() -> None:
    """Raise `MissingExtra` if nothing can be drawn, before any work is done."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra(
            "drawing needs matplotlib, which is not installed; type: pip install matplotlib"
        )


def draw_regret(curves: Sequence[Curve], *, title: str, x_label: str, bound_label: str) -> Figure:
    """Regret below, with a band from the first to the third quartile; the bounds above."""
    require_matplotlib()
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and optional
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and optional

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 4.6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2.6])
        for color, marker, curve in zip(COLORS, MARKERS, curves, strict=False):
            below.fill_between(curve.x, curve.low, curve.high, color=color, alpha=0.18, lw=0)
            below.plot(
                curve.x, curve.mean, color=color, marker=marker, ms=3.5, lw=1.6, label=curve.name
            )
            if curve.bound is not None:
                above.plot(curve.x, curve.bound, color=color, ls="--", lw=1.4, label=curve.name)
        _label(above, below, x_label=x_label, bound_label=bound_label)
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
        return figure


def _label(above: Axes, below: Axes, *, x_label: str, bound_label: str) -> None:
    for axes in (above, below):
        axes.grid(visible=True, color="#dddddd", lw=0.6)
        axes.set_axisbelow(True)
    below.set_ylim(bottom=min(0.0, below.get_ylim()[0]))
    below.set_xlabel(x_label)
    below.set_ylabel("total regret\n(mean, quartiles)")
    below.legend(loc="best")
    bounds = [value for line in above.get_lines() for value in np.asarray(line.get_ydata())]
    if bounds and max(bounds) > ORDERS * min(bounds) > 0:
        above.set_yscale("log")
    else:
        above.set_ylim(bottom=0.0)
    above.set_ylabel("bound on\nthe mean")
    above.set_title(bound_label, fontsize=8, loc="right", color="#444444")
    if len(above.get_lines()) > 1:
        above.legend(loc="best", fontsize=8)


def draw_frames(frames: Sequence[Frame], *, title: str, y_label: str) -> Figure:
    """Frames beside each other, x on a logarithmic scale, with one legend for all."""
    require_matplotlib()
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and optional
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and optional

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.3 * len(frames), 4.2), layout="constrained")
        row = figure.subplots(1, len(frames), squeeze=False)[0]
        for axes, frame in zip(row, frames, strict=True):
            for color, marker, curve in zip(COLORS, MARKERS, frame.curves, strict=False):
                axes.fill_between(curve.x, curve.low, curve.high, color=color, alpha=0.1, lw=0)
                style = {"color": color, "marker": marker, "ms": 4, "lw": 1.5}
                axes.plot(curve.x, curve.mean, label=curve.name, **style)
            for ls, (name, level) in zip(
                ("--", ":", "-."), (frame.levels or {}).items(), strict=False
            ):
                axes.axhline(level, color="#000000", ls=ls, lw=1.4, label=name)
            axes.set_xscale("log")
            axes.set_ylim(bottom=0.0)
            axes.grid(visible=True, color="#dddddd", lw=0.6)
            axes.set_axisbelow(True)
            axes.set_title(frame.title, fontsize=9, loc="left")
            axes.set_xlabel(frame.x_label, fontsize=8)
        row[0].set_ylabel(y_label)
        handles, labels = row[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
        return figure


def to_bytes(figure: Figure, form: str) -> bytes:
    """The figure as a PNG or SVG file, without a date: the same figure is the same file."""
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and optional

    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if form == "svg" else {"Software": None}
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=form, dpi=200, metadata=metadata)
    return buffer.getvalue()
