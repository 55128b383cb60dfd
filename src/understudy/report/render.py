"""A report for people and machines: a page, a notebook's cell, a terminal, JSON.

jinja2 and rich are imported when there is something to show.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from markupsafe import Markup

from understudy.formatting import plain
from understudy.report import charts, tables
from understudy.report.data import CertificateCurve, Report

if TYPE_CHECKING:
    from jinja2 import Environment
    from rich.console import Console
    from rich.text import Text

MOST_ACTIONS, MOST_ROWS = 200, 100  # of a table on a page
MOST_IN_NOTEBOOKS = 8
WIDE, NARROW = 720.0, 330.0  # pixels of a picture: on a laptop, on a phone
MOST_LINES, MOST_FILES = 15, 10  # of the table of actions in a terminal, and of others
ALL = "in report.html, or with --json"
NARROWEST, WIDEST = 10, 28  # letters of a first column, and of another one
STYLES = {"good": "bold green", "wait": "bold yellow", "open": "bold", "bad": "bold red"}
Data = TypeVar("Data")


# ------------------------------------------------------------------------------------------ HTML


@cache
def environment(*packages: str) -> Environment:
    """Templates of a report, and of packages that show it in pages of their own.

    >>> environment().from_string("{{ label }}").render(label="<b>\\u202e")
    '&lt;b&gt;\\\\u202e'
    """
    from jinja2 import (  # noqa: PLC0415 - imported when there is a page to make
        ChoiceLoader,
        Environment,
        PackageLoader,
        StrictUndefined,
    )

    return Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, "understudy.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalize(value: object) -> object:
    """Foreign text loses what cannot be seen, before it is escaped."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def sections(report: Report, where: str) -> dict[str, Markup]:
    """The sections by name, without their headings, empty where there is nothing to say.

    `where` says where the actions are to be seen that are too many for a table.

    >>> one = Report(title="A log", verdict="Not yet.", verdict_kind="not yet", generated_by="",
    ...     generated_at="", warnings=["Few rows."])
    >>> found = sections(one, "with --json")
    >>> [name for name, said in found.items() if said], "<li>Few rows.</li>" in found["care"]
    (['care'], True)
    """
    made: Any = environment().get_template("sections.html").module  # its macros
    picture = _both(charts.draw_policy, report.actions) if report.has_policy else ""
    said = {
        "bounds": made.bounds(report, tables),
        "care": made.care(report),
        "certificate": made.certificate(report, tables, _pictures(report.certificate)),
        "policy": made.policy(report, tables, picture, charts.MOST_BARS),
        "coverage": made.coverage(
            report,
            tables.tabulate_candidates(report),
            tables.tabulate_actions(report, MOST_ACTIONS, where),
        ),
    }
    return {name: Markup(text.strip()) for name, text in said.items()}


def _pictures(curve: CertificateCurve | None) -> list[Markup]:
    """The certificate over time and its gain, or, without a history, its range."""
    if curve is None:
        return []
    if not charts.has_history(curve):
        return [_both(charts.draw_interval, curve)]
    drawn = [_both(charts.draw_certificate, curve)]
    return drawn if curve.gain is None else [*drawn, _both(charts.draw_gain, curve)]


def _both(draw: Callable[[Data, float], str], data: Data) -> Markup:
    """A picture in two widths: letters keep their size, and the page shows the one that fits."""
    return Markup(
        f'<div class="wide">{draw(data, WIDE)}</div><div class="narrow">{draw(data, NARROW)}</div>'
    )


def render_page(report: Report) -> str:
    """The whole report as one HTML page without any request to anywhere."""
    templates = environment()
    script = templates.get_template("sort.js").render()
    return templates.get_template("report.html").render(
        report=report,
        sections=sections(report, "with --json"),
        reasons=tables.tabulate_reasons(report),
        quarantine=tables.tabulate_quarantine(report, MOST_ROWS),
        quarantine_line=tables.quarantine_line(report),
        examples=tables.tabulate_examples(report, MOST_ROWS),
        files=tables.tabulate_files(report, MOST_ROWS),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def fragment(report: Report) -> str:
    """The report in short, for a notebook's cell: its style touches nothing around it."""
    actions = tables.tabulate_actions(report, MOST_IN_NOTEBOOKS, "in .table")
    template = environment().get_template("fragment.html")
    return template.render(report=report, tables=tables, actions=actions)


# -------------------------------------------------------------------------------------- terminal


def show(report: Report, console: Console) -> None:
    """Print a report, the verdict first: nothing is wider than the terminal.

    >>> from rich.console import Console
    >>> show(Report(title="A log", verdict="Too few rows.", verdict_kind="not yet",
    ...     generated_by="understudy", generated_at="today"), Console(width=80))
    A log
    … Not enough data yet. Too few rows.
    No row is quarantined.
    """
    mark, curve = report.mark, report.certificate
    _say(console, report.title, style="bold")
    _say(console, report.subtitle, style="dim")
    _say(console, f"{mark.sign} {mark.word}. {report.verdict}", style=STYLES[mark.style])
    for warning in report.warnings:
        _say(console, f"! {warning}", style="yellow")
    for assumption in report.assumptions:
        _say(console, f"To check: {assumption}", style="yellow")
    if curve is not None:
        _list(console, tables.bounds(curve, report.verdict_kind).items())
        _list(console, tables.estimates(curve, report.verdict_kind).items())
        _say(console, tables.holds(curve), style="dim")
    _list(console, report.facts)
    _draw(console, tables.tabulate_actions(report, MOST_LINES, ALL).without("propensity"))
    _say(console, tables.averaged(report), style="dim")
    for sentence in report.coverage:
        _say(console, f"• {sentence}")
    candidates = tables.tabulate_candidates(report)
    headings = [column.heading for column in candidates.columns[2:]]
    for name, verdict, *numbers in candidates.rows:
        said = ", ".join(f"{h} {n.text}" for h, n in zip(headings, numbers, strict=True))
        _say(console, f"• {name.text}: {verdict.text} ({said})")
    _say(console, tables.quarantine_line(report))
    _draw(console, tables.tabulate_quarantine(report, MOST_FILES))
    _draw(console, tables.tabulate_files(report, MOST_FILES).without("SHA-256"))


def _say(console: Console, sentence: str, style: str = "") -> None:
    if sentence:
        console.print(_text(sentence, style))


def _list(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, one below the other."""
    from rich.table import Table  # noqa: PLC0415 - imported when there is something to draw

    grid = Table.grid(padding=(0, 2))
    for name, value in pairs:
        grid.add_row(_text(name, "dim"), _text(value))
    console.print(grid)


def _draw(console: Console, table: tables.TextTable) -> None:
    """A table with what it leaves out below it; labels are cut before numbers are."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - imported when there is something to draw
    from rich.table import Table  # noqa: PLC0415

    if not table.rows:
        return
    drawn = Table(title=_text(table.caption, "bold"), title_justify="left", box=SIMPLE_HEAD)
    room = _room(table, console.width)
    for i, column in enumerate(table.columns):
        drawn.add_column(
            column.heading if column.words else column.heading.replace(" ", "\n"),
            justify="left" if column.words else "right",
            overflow="fold" if i else "ellipsis",
            no_wrap=i == 0,
            max_width=None if i else room,
        )
    for first, *others in table.rows:
        drawn.add_row(_text(plain(first.text, room)), *(_text(cell.text) for cell in others))
    console.print(drawn)
    _say(console, table.rest, style="dim")


def _room(table: tables.TextTable, width: int) -> int:
    """How many letters of the first column fit once the others have what they need."""
    needed = [
        max(
            [len(word) for word in column.heading.split()]
            + [len(row[i].text) for row in table.rows]
        )
        for i, column in enumerate(table.columns)
    ]
    others = sum(min(letters, WIDEST) for letters in needed[1:])
    return max(NARROWEST, width - others - 3 * len(needed) - 1)


def _text(sentence: str, style: str = "") -> Text:
    """Text as it stands: nothing in it is taken for markup or for a command to the terminal."""
    from rich.text import Text  # noqa: PLC0415 - imported when there is something to draw

    return Text(plain(sentence), style=style)


# ------------------------------------------------------------------------------------------ JSON


def as_dict(report: Report) -> dict[str, Any]:
    """A report for machines: what JSON can hold, null for what is not known."""
    found: dict[str, Any] = {
        "verdict": report.verdict_kind,
        "decision": report.decision,
        "obstacle": report.obstacle,
        "estimated_gain": report.estimated_gain,
        "rows_needed": report.rows_needed,
        "words": report.words,
        "facts": dict(report.facts),
        "assumptions": list(report.assumptions),
        "warnings": list(report.warnings),
        "coverage": list(report.coverage),
        "calibration": report.calibration,
        "drift": report.drift,
        "certificate": None if report.certificate is None else _last_point(report.certificate),
        "candidates": [asdict(candidate) for candidate in report.candidates],
        "actions": [asdict(row) for row in report.actions],
        "quarantined": [asdict(group) for group in report.quarantine],
        "files": [asdict(file) for file in report.files],
    }
    return {key: _finite(value) for key, value in found.items()}


def _last_point(curve: CertificateCurve) -> dict[str, Any]:
    rounds, lower, upper, production, gain = curve.table[-1].tolist()
    return {
        "confidence": curve.confidence,
        "rounds": int(rounds),
        "lower": lower,
        "upper": upper,
        "production": production,
        "production_is_at_most": curve.at_most,
        "gain": gain,
        "promoted_at": curve.promoted_at,
        "ips": curve.estimate,
        "self_normalised_ips": curve.self_normalised,
        "effective_sample_size": curve.effective_sample_size,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
