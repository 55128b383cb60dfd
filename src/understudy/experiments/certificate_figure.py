"""The figure of the certificate experiment: decisions, worlds, validity, and one game."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy.certificates import Certificate
from understudy.certificates.evidence import FIRST_RULES
from understudy.certificates.targets import largest_ratios, probabilities_under
from understudy.constraints import Array
from understudy.experiments.certificate_games import CONFIDENCE
from understudy.experiments.certificate_validity import STATEMENTS
from understudy.experiments.decision_games import DecisionGame
from understudy.plots import COLORS, add_grid, in_our_style, new_figure
from understudy.types import Integers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ORANGE, BLUE, GREEN, PINK, BLACK, SKY, YELLOW, GRAY = COLORS
NAMES = {
    "limit": "information limit",
    "now": "now",
    "rules_1": "rules 1",
    "bernstein": "Bernstein",
    "hedged": "hedged bets",
    "plug_in": "plug-in bets",
}
STYLES: dict[str, dict[str, Any]] = {
    "limit": {"marker": "|", "color": BLACK, "ms": 13, "mew": 2.0},
    "rules_1": {"marker": "s", "color": ORANGE, "mfc": "white", "ms": 5},
    "bernstein": {"marker": "^", "color": GREEN, "mfc": "white", "ms": 5},
    "hedged": {"marker": "D", "color": PINK, "ms": 4},
    "plug_in": {"marker": "v", "color": YELLOW, "ms": 5},
    "now": {"marker": "o", "color": BLUE, "ms": 6},
}
STATEMENT_NAMES = {
    "lower": "reward, at least",
    "upper": "reward, at most",
    "gain": "gain, at least",
    "gain_upper": "gain, at most",
    "windows": "gain since some round",
    "promoted": "promote",
    "worse": "worse",
}
LATER = 1.5  # the length of an arrow, as a factor of the rounds
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.13), "fontsize": 7.5}
STATEMENT_MARKERS = ("<", ">", "^", "v", "s", "P", "X")


@dataclass(frozen=True, eq=False)
class GainOverTime:
    """The gain in one game, a round: the truth, the bounds, and the best window's bound.

    `decisions` are the rounds of the promotion by name.
    """

    title: str
    rounds: Integers
    truth: Array
    recent: Array
    lower: Array
    upper: Array
    window: Array
    decisions: dict[str, float]


def gain_over_time(game: DecisionGame, rounds: int, seed: int) -> GainOverTime:
    """The certificate of the first run of a game, after rounds that are 2 % apart."""
    seen = game.observe(rounds, seed, 0)
    log, points = seen.log, seen.points.tolist()
    certificate = Certificate(seen.known, CONFIDENCE)
    probability = probabilities_under(seen.target, log, certificate.n_actions)
    ratios = largest_ratios(seen.target, log, seen.known)
    curves = []
    for low, high in pairwise([0, *points]):
        part = slice(low, high)
        certificate = certificate.advance(log[part], probability[part], ratios[part])
        gain, most, window = certificate.gain, certificate.gain_upper, certificate.window
        assert gain is not None
        assert most is not None
        assert window is not None
        curves.append((gain / high, most / high, window.gain))
    lower, upper, window_gain = np.array(curves).T
    now = (seen.policies - seen.behavior) @ seen.means
    every = np.interp(np.arange(1, rounds + 1), points, now)
    first = Certificate(seen.known, CONFIDENCE, rules=FIRST_RULES).observe(log, seen.target)
    decisions = {"now": certificate.promoted_at, "rules_1": first.promoted_at}
    return GainOverTime(
        f"The gain in one {game.name} game",
        seen.points,
        np.cumsum(every)[seen.points - 1] / seen.points,
        now,
        lower,
        upper,
        window_gain,
        {name: float(at) for name, at in decisions.items() if at is not None},
    )


@in_our_style
def draw_all(
    decisions: Sequence[Any],
    worlds: Sequence[Any],
    kinds: Sequence[Any],
    over_time: GainOverTime,
    *,
    title: str,
) -> Figure:
    """Draw the four panels, from the rows of the experiment and one game."""
    figure = new_figure(11.0, 11.0, title)
    cells = figure.subplots(2, 2, width_ratios=[1.5, 1.0], height_ratios=[1.0, 1.8])
    draw_decisions(cells[0, 0], decisions)
    draw_worlds(cells[0, 1], worlds)
    draw_shares(cells[1, 0], kinds)
    draw_gain(cells[1, 1], over_time)
    return figure


def draw_decisions(axes: Axes, rows: Sequence[Any]) -> None:
    """A line per game: the median round of each sequence, and of the latest tenth now."""
    places = np.arange(len(rows))[::-1]
    for row, y in zip(rows, places, strict=True):
        end = row.now_90 if row.now_90 is not None else row.rounds
        if row.now is not None:
            axes.plot([row.now, end], [y, y], color=BLUE, lw=1.6, alpha=0.5, zorder=1)
    for name, style in STYLES.items():
        known = [(getattr(row, name), y) for row, y in zip(rows, places, strict=True)]
        found = np.array([(x, y) for x, y in known if x is not None]).reshape(-1, 2)
        axes.plot(*found.T, ls="", label=NAMES[name], zorder=2, **style)
    for row, y in zip(rows, places, strict=True):
        if row.rules_1 is None:  # later than the last round
            arrow = {"arrowstyle": "->", "color": ORANGE, "lw": 1.4}
            axes.annotate("", (row.rounds * LATER, y), (row.rounds, y), arrowprops=arrow)
    axes.set_xscale("log")
    axes.set_xlim(right=LATER * max(row.rounds for row in rows))
    add_grid(axes)
    names = [f"{row.game}{' (worse)' if row.part == 'worse' else ''}" for row in rows]
    axes.set_yticks(places, names, fontsize=8)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(
        "rounds (line: until nine games in ten decided; arrow: rules 1 decide later)", fontsize=8
    )
    axes.set_title("a. Median round of the decision", fontsize=9, loc="left")
    axes.legend(**BELOW, ncols=6, columnspacing=1.0, handletextpad=0.3)


def draw_worlds(axes: Axes, rows: Sequence[Any]) -> None:
    """A mark per world and rules: its round of the decision over that of the limit."""
    limits = [row.limit for row in rows if row.limit is not None] or [1.0]
    ends = np.array([min(limits) / 1.5, max(limits) * 1.5])
    axes.plot(ends, ends, color=BLACK, lw=1.4, label=NAMES["limit"])
    for name in ("rules_1", "now"):
        style = STYLES[name]
        known = [(row, getattr(row, name)) for row in rows if row.limit is not None]
        found = [(row.limit, x) for row, x in known if x is not None]
        if found:
            ratio = math.exp(np.mean([math.log(y / x) for x, y in found]))
            label = f"{NAMES[name]}: {ratio:.2f} × the limit"
            axes.plot(*zip(*found, strict=True), ls="", label=label, **style)
            axes.plot(ends, ratio * ends, color=style["color"], ls="--", lw=1.0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    add_grid(axes)
    axes.set_xlabel("information limit, rounds", fontsize=8)
    axes.set_ylabel("rounds to a promotion", fontsize=8)
    axes.set_title(f"b. {len(rows)} worlds drawn at random", fontsize=9, loc="left")
    axes.legend(loc="upper left", fontsize=7.5)


def draw_shares(axes: Axes, rows: Sequence[Any]) -> None:
    """A line per kind of game: the shares of games in which each statement was ever wrong."""
    places = np.arange(len(rows))[::-1]
    for i, (name, marker) in enumerate(zip(STATEMENTS, STATEMENT_MARKERS, strict=True)):
        known = [(getattr(row, name), y) for row, y in zip(rows, places, strict=True)]
        shares = np.array([(100.0 * share, y) for share, y in known if share is not None])
        lift = np.array([0.0, 0.3 - 0.1 * i])
        columns = (shares.reshape(-1, 2) + lift).T
        axes.plot(*columns, marker, color=COLORS[i], ms=4, label=STATEMENT_NAMES[name])
    axes.axvline(100.0 * (1.0 - CONFIDENCE), color=BLACK, lw=1.4, label="promised, at most")
    axes.axvline(100.0 * rows[0].allowed, color=GRAY, lw=1.0, ls="--", label="and 3 s.e.")
    axes.set_yticks(places, [row.game for row in rows], fontsize=7.5)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(-0.15, 110.0 * rows[0].allowed)
    axes.grid(visible=True, axis="x", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"% of games of {rows[0].games} of each kind", fontsize=8)
    axes.set_title("c. Games in which a statement was ever wrong", fontsize=9, loc="left")
    axes.legend(loc="center", bbox_to_anchor=(0.72, 0.5), fontsize=7.5)


def draw_gain(axes: Axes, found: GainOverTime) -> None:
    """The gain a round, its bounds, the bound since the best round, and the promotions."""
    t = found.rounds
    axes.fill_between(t, found.lower, found.upper, color=BLUE, alpha=0.15, lw=0, label="certified")
    axes.plot(t, found.truth, color=GREEN, lw=1.6, label="truth since round 1")
    axes.plot(t, found.recent, color=GREEN, lw=1.0, ls=":", label="truth of this round")
    axes.plot(t, found.window, color=BLUE, lw=1.4, ls="-.", label="certified since some round")
    for name, at in found.decisions.items():
        color = STYLES[name]["color"]
        label = f"promoted, {NAMES[name]}"
        axes.axvline(at, color=color, lw=1.2, ls="-" if name == "now" else "--", label=label)
    axes.axhline(0.0, color=BLACK, lw=0.8)
    axes.set_xscale("log")
    axes.set_xlim(max(1.0, t[-1] / 400.0), t[-1])
    low = min(found.truth.min(), -0.1)
    axes.set_ylim(1.3 * low, max(0.1, -0.5 * low))
    add_grid(axes)
    axes.set_xlabel("rounds", fontsize=8)
    axes.set_ylabel("gain over production, a round", fontsize=8)
    axes.set_title(f"d. {found.title}", fontsize=9, loc="left")
    axes.legend(**{**BELOW, "bbox_to_anchor": (0.45, -0.07)}, ncols=2)
