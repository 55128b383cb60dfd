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

__all__ = [
    "Curve",
    "Frame",
    "Panel",
    "Tail",
    "draw_bars",
    "draw_certificates",
    "draw_frames",
    "draw_regret",
    "draw_tails",
    "require_matplotlib",
    "to_bytes",
]

# Okabe and Ito: safe for all eyes.
COLORS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00", "#8C8C8C")
PANELS_ACROSS = 4
MOST_BARS, LONGEST_LABEL = 40, 20
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
class Tail:
    """The regret that a share δ of the runs exceeded, and the bound that may fail so often."""

    name: str
    delta: ArrayLike
    regret: ArrayLike
    bound: ArrayLike
    bound_on_mean: float | None = None


@dataclass(frozen=True, eq=False)
class Frame:
    """Curves that share axes, one of several pictures beside each other.

    `levels` are horizontal lines by name: what does not depend on x.
    """

    title: str
    x_label: str
    curves: Sequence[Curve]
    levels: Mapping[str, float] | None = None


def draw_bars(labels: Sequence[object], columns: Mapping[str, Sequence[float]]) -> Figure:
    """A row of bars per column, for the labels with the largest values of the first one.

    >>> draw_bars(["a", "b"], {"share": [0.25, 0.75]}).axes[0].get_ylabel()
    'share'
    """
    require_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415 - imported when something is drawn
    from matplotlib.figure import Figure  # noqa: PLC0415

    first = np.asarray(next(iter(columns.values())))
    shown = np.argsort(-first, kind="stable")[:MOST_BARS]
    with rc_context(STYLE):
        figure = Figure(figsize=(7.0, 2.2 * len(columns)), layout="constrained")
        panels = figure.subplots(len(columns), sharex=True, squeeze=False)[:, 0]
        for axes, (name, values), color in zip(panels, columns.items(), COLORS, strict=False):
            axes.bar(range(len(shown)), np.asarray(values)[shown], color=color)
            axes.set_ylabel(name)
        names = [str(labels[i])[:LONGEST_LABEL] for i in shown]
        panels[-1].set_xticks(range(len(shown)), names, rotation=90)
        if len(shown) < len(first):
            panels[0].set_title(f"{len(shown)} of {len(first)}", fontsize="medium")
    return figure


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
        above.legend(loc="best", fontsize=8, ncols=len(above.get_lines()))


def draw_tails(panels: Mapping[str, Sequence[Tail]], *, title: str) -> Figure:
    """A panel for each game: δ on a logarithmic scale over the regret, and over its bound."""
    require_matplotlib()
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and optional
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and optional

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (name, tails) in zip(row, panels.items(), strict=True):
            for color, marker, tail in zip(COLORS, MARKERS, tails, strict=False):
                style = {"color": color, "marker": marker, "ms": 3.5}
                axes.plot(tail.regret, tail.delta, lw=1.6, label=tail.name, **style)
                axes.plot(tail.bound, tail.delta, lw=1.4, ls="--", label="its bound", **style)
                if tail.bound_on_mean is not None:
                    axes.axvline(
                        tail.bound_on_mean, color=color, lw=1.0, ls=":", label="bound on its mean"
                    )
            axes.set_yscale("log")
            axes.grid(visible=True, color="#dddddd", lw=0.6)
            axes.set_axisbelow(True)
            axes.set_title(name, fontsize=9, loc="left")
            axes.set_xlabel("total regret")
        row[0].set_ylabel("share of runs above it\n(at most, for a bound)")
        figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
        return figure


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


@dataclass(frozen=True, eq=False)
class Panel:
    """A certificate over time, as means a round; what else is known is drawn with it.

    `truth` is what the target did earn. `wrong` says in what share of such games the lower bound,
    the upper bound and the gain were ever wrong, `limit` how often they may be.
    """

    title: str
    rounds: ArrayLike
    lower: ArrayLike
    upper: ArrayLike
    production: ArrayLike
    gain: ArrayLike | None
    promoted_at: int | None
    truth: ArrayLike | None = None
    wrong: tuple[float, float, float] | None = None
    limit: float | None = None


def draw_certificates(panels: Sequence[Panel], *, title: str) -> Figure:
    """A panel for each, and at the end, if it is known, how often their bounds were ever wrong."""
    require_matplotlib()
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and optional
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and optional

    alone = len(panels) == 1
    judged = [panel for panel in panels if panel.wrong is not None]
    count = len(panels) + bool(judged)
    across = min(count, PANELS_ACROSS)
    down = -(-count // across)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.2 * across + 0.6, 2.6 * down + 0.6), layout="constrained")
        cells = figure.subplots(down, across, squeeze=False).ravel()
        for i, panel in enumerate(panels):
            _draw_panel(cells[i], panel, "" if alone else f"{i + 1}. ")
        if alone:
            cells[0].set_ylim(*_late_range(panels[0]))
        lines = {
            label: line
            for axes in cells
            for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            list(lines.values()),
            list(lines),
            loc="outside lower center" if alone else "outside upper right",
            ncols=3 if alone else 5,
            fontsize=8,
        )
        if judged:
            _draw_shares(cells[len(panels)], judged)
        for axes in cells[count:]:
            axes.set_axis_off()
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
        return figure


def _late_range(panel: Panel) -> tuple[float, float]:
    """What to show of the rewards: all that matters once a tenth of the rounds have passed."""
    rounds = np.asarray(panel.rounds)
    late = rounds >= rounds[-1] / 10
    curves = [panel.lower, panel.upper, panel.production, panel.gain]
    values = np.concatenate([[0.0], *(np.asarray(c)[late] for c in curves if c is not None)])
    margin = 0.05 * (values.max() - values.min())
    return float(values.min() - margin), float(values.max() + margin)


def _draw_panel(axes: Axes, panel: Panel, number: str) -> None:
    """The band between the bounds, the truth, production, the gain, and when it was enough."""
    gain, production, target, *_ = COLORS
    axes.fill_between(
        panel.rounds, panel.lower, panel.upper, color=target, alpha=0.25, lw=0, label="certified"
    )
    if panel.truth is not None:
        axes.plot(panel.rounds, panel.truth, color=target, lw=1.6, label="truth")
    axes.plot(panel.rounds, panel.production, color=production, ls="--", lw=1.4, label="production")
    if panel.gain is not None:
        axes.plot(panel.rounds, panel.gain, color=gain, ls="-.", lw=1.4, label="gain, at least")
    if panel.promoted_at is not None:
        axes.axvline(panel.promoted_at, color=gain, lw=0.9, ls=":", label="promotion")
    axes.axhline(0.0, color="#888888", lw=0.6)
    axes.set_xscale("log")
    axes.set_ylim(-0.35, 1.02)
    axes.set_title(number + panel.title, fontsize=8, loc="left")
    axes.set_xlabel("rounds", fontsize=8)
    axes.set_ylabel("reward a round", fontsize=8)


def _draw_shares(axes: Axes, panels: Sequence[Panel]) -> None:
    """A row of marks for each kind of game: the share in which a bound was ever wrong."""
    places = np.arange(len(panels))[::-1]
    names = ("lower", "upper", "gain")
    for i, (name, color, marker) in enumerate(zip(names, COLORS, MARKERS, strict=False)):
        shares = [100 * panel.wrong[i] for panel in panels if panel.wrong is not None]
        axes.plot(shares, places + 0.18 * (1 - i), marker, color=color, ms=4, label=name)
    limits = [100 * panel.limit for panel in panels if panel.limit is not None]
    if limits:
        axes.plot(limits, places, "|", color="#444444", ms=11, label="5 % + 3 s.e.")
    axes.set_yticks(places, [str(i + 1) for i in range(len(panels))])
    axes.set_xlim(left=-0.3)
    axes.set_xlabel("% of games", fontsize=8)
    axes.set_title("games in which a bound was ever wrong", fontsize=8, loc="left")
    axes.legend(loc="center", fontsize=7)


def to_bytes(figure: Figure, form: str) -> bytes:
    """The figure as a PNG or SVG file, without a date: the same figure is the same file."""
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and optional

    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if form == "svg" else {"Software": None}
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=form, dpi=200, metadata=metadata)
    return buffer.getvalue()
