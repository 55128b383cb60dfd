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

from markupsafe import Markup, escape

from understudy.formatting import plain
from understudy.logs.evaluation.outcomes import GainBounds, VerdictOutcome
from understudy.report import charts, expert_charts, tables
from understudy.report.data import CandidateRow, CertificateCurve, Report

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
    """The templates of reports and of other packages, which may use those of reports.

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
    """Escape invisible characters of foreign text, before jinja2 escapes HTML."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def sections(report: Report, where: str) -> dict[str, Markup]:
    """The sections of a page by name, without their headings; a section may be empty.

    `where` says where a reader finds the actions that a table leaves out.
    """
    macros: Any = environment().get_template("sections.html").module
    picture = _in_two_widths(charts.draw_policy, report.actions) if report.has_policy else ""
    made = {
        "step": macros.step(report, escape(report.code)),
        "gain": macros.gain(report, _number_line(report)),
        "metrics": macros.metrics(report, tables),
        "segments": macros.segments(report, tables),
        "bounds": macros.bounds(report, tables),
        "care": macros.care(report),
        "certificate": macros.certificate(report, tables, _pictures(report.certificate)),
        "policy": macros.policy(report, tables, picture, charts.MOST_BARS),
        "contexts": macros.contexts(report, tables, MOST_ROWS),
        "experts": macros.experts(report, tables, _drawn_experts(report)),
        "coverage": macros.coverage(
            report,
            tables.tabulate_candidates(report),
            tables.tabulate_actions(report, MOST_ACTIONS, where),
        ),
    }
    return {name: Markup(text.strip()) for name, text in made.items()}


def _number_line(report: Report) -> Markup | None:
    drawn = charts.draw_gain_bounds(_drawn_gain(report))
    return _in_two_widths(charts.draw_gain_bounds, report.gain) if drawn else None


def _drawn_gain(report: Report) -> GainBounds | None:
    """The gain to draw; none where the log shows nothing of it."""
    return None if report.outcome is VerdictOutcome.IMPOSSIBLE else report.gain


def _drawn_experts(report: Report) -> Markup | None:
    if not report.experts:
        return None
    return _in_two_widths(expert_charts.draw_experts, report.experts)


def _pictures(curve: CertificateCurve | None) -> list[Markup]:
    """The certificate and its gain over time; its last range if it has no history."""
    if curve is None:
        return []
    if not charts.has_history(curve):
        return [_in_two_widths(charts.draw_interval, curve)]
    drawn = [_in_two_widths(charts.draw_certificate, curve)]
    return drawn if curve.gain is None else [*drawn, _in_two_widths(charts.draw_gain, curve)]


def _in_two_widths(draw: Callable[[Data, float], str], data: Data) -> Markup:
    """A picture in two widths, of which the page shows the one that fits."""
    return Markup(
        f'<div class="wide">{draw(data, WIDE)}</div><div class="narrow">{draw(data, NARROW)}</div>'
    )


def render_page(report: Report) -> str:
    """The report as one HTML page, which loads nothing."""
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
    """A short report for a notebook's cell; its style affects no other cell."""
    actions = tables.tabulate_actions(report, MOST_IN_NOTEBOOKS, "in .table")
    template = environment().get_template("fragment.html")
    return template.render(report=report, tables=tables, actions=actions)


# -------------------------------------------------------------------------------------- terminal


def show(report: Report, console: Console) -> None:
    """Print a report, the verdict first.

    >>> from rich.console import Console
    >>> from understudy.logs.evaluation.outcomes import VerdictOutcome
    >>> show(Report(title="A log", verdict="Too few rows.", verdict_kind="not yet",
    ...     outcome=VerdictOutcome.NOT_ENOUGH_DATA, step="Next: go on logging.",
    ...     generated_by="understudy", generated_at="today"), Console(width=80))
    A log
    … Not enough data yet. Too few rows.
    Next: go on logging.
    No row is quarantined.
    """
    mark, curve = report.mark, report.certificate
    _print_line(console, report.title, style="bold")
    _print_line(console, report.subtitle, style="dim")
    _print_line(console, f"{mark.sign} {mark.word}. {report.verdict}", style=STYLES[mark.style])
    _print_line(console, charts.gain_ruler(_drawn_gain(report)))
    _print_line(console, report.step, style="bold")
    for line in report.code.splitlines():
        _print_line(console, f"    {line}")
    _print_table(console, tables.tabulate_metrics(report))
    _print_line(console, tables.metrics_note(report), style="dim")
    _print_table(console, tables.tabulate_segments(report))
    _print_line(console, tables.segments_note(report), style="dim")
    for warning in report.warnings:
        _print_line(console, f"! {warning}", style="yellow")
    for assumption in report.assumptions:
        _print_line(console, f"Assumes that {assumption}.", style="yellow")
    if curve is not None:
        _print_pairs(console, tables.bounds(curve, report.verdict_kind).items())
        _print_pairs(console, tables.estimates(curve, report.verdict_kind).items())
        _print_line(console, tables.confidence_note(curve), style="dim")
    _print_pairs(console, report.facts)
    for detail in report.details:
        _print_line(console, f"Assumes that {detail}.", style="dim")
    _print_table(console, tables.tabulate_actions(report, MOST_LINES, ALL).without("propensity"))
    _print_line(console, tables.average_note(report), style="dim")
    if report.contexts:
        largest = tables.tabulate_largest_differences(report, MOST_FILES, ALL)
        _print_table(console, largest.without("production plays"))
        _print_line(console, tables.contexts_note(report), style="dim")
    if report.experts:
        _print_table(console, tables.tabulate_experts(report))
    for sentence in report.coverage:
        _print_line(console, f"• {sentence}")
    candidates = tables.tabulate_candidates(report)
    headings = [column.heading for column in candidates.columns[2:]]
    for name, verdict, *numbers in candidates.rows:
        said = ", ".join(f"{h} {n.text}" for h, n in zip(headings, numbers, strict=True))
        again = verdict.text == plain(report.words)  # what was certified, as said above
        _print_line(console, f"• {name.text}: {said if again else f'{verdict.text} ({said})'}")
    _print_line(console, tables.quarantine_line(report))
    _print_table(console, tables.tabulate_quarantine(report, MOST_FILES))
    _print_table(console, tables.tabulate_files(report, MOST_FILES).without("SHA-256"))


def _print_line(console: Console, sentence: str, style: str = "") -> None:
    if sentence:
        console.print(_text(sentence, style))


def _print_pairs(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    from rich.table import Table  # noqa: PLC0415 - imported when there is something to draw

    grid = Table.grid(padding=(0, 2))
    for name, value in pairs:
        grid.add_row(_text(name, "dim"), _text(value))
    console.print(grid)


def _print_table(console: Console, table: tables.TextTable) -> None:
    """Print a table, and below it what it leaves out; labels are cut before numbers are."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - imported when there is something to draw
    from rich.table import Table  # noqa: PLC0415

    if not table.rows:
        return
    drawn = Table(title=_text(table.caption, "bold"), title_justify="left", box=SIMPLE_HEAD)
    room = _first_column_width(table, console.width)
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
    _print_line(console, table.rest, style="dim")


def _first_column_width(table: tables.TextTable, width: int) -> int:
    """The letters that are left for the first column of a table."""
    others = 0
    for i, column in enumerate(table.columns[1:], start=1):
        texts = [*column.heading.split(), *(row[i].text for row in table.rows)]
        others += min(max(map(len, texts)), WIDEST)
    return max(NARROWEST, width - others - 3 * len(table.columns) - 1)


def _text(sentence: str, style: str = "") -> Text:
    """Text without markup, and without commands to the terminal."""
    from rich.text import Text  # noqa: PLC0415 - imported when there is something to draw

    return Text(plain(sentence), style=style)


# ------------------------------------------------------------------------------------------ JSON


def as_dict(report: Report) -> dict[str, Any]:
    """A report as JSON can hold it, with null for unknown numbers."""
    found: dict[str, Any] = {
        "verdict": report.verdict_kind,
        "decision": report.decision,
        "obstacle": report.obstacle,
        "estimated_gain": report.estimated_gain,
        "rows_needed": report.rows_needed,
        "outcome": report.outcome,
        "reason": report.reason,
        "standard_error": report.standard_error,
        "visible_gain": report.visible_gain,
        "gain": None if report.gain is None else report.gain._asdict(),
        "next_step": None if report.next_step is None else _next_step(report),
        "baseline": report.baseline,
        "baseline_reward": report.baseline_reward,
        "guardrails": [asdict(row) for row in report.guardrails],
        "segment_column": report.segment_column,
        "segments": [asdict(row) for row in report.segments],
        "worse_somewhere": report.worse_somewhere,
        "missing_at_random": report.missing_at_random,
        "other_gain": report.other_gain,
        "words": report.words,
        "facts": dict(report.facts),
        "assumptions": [*report.assumptions, *report.details],
        "warnings": list(report.warnings),
        "coverage": list(report.coverage),
        "calibration": report.calibration,
        "drift": report.drift,
        "weight_bound": report.weight_bound,
        "repeated_rows": None if report.repeated_rows is None else asdict(report.repeated_rows),
        "sticky_columns": None if report.sticky_columns is None else asdict(report.sticky_columns),
        "units": None if report.units is None else asdict(report.units),
        "certificate": None if report.certificate is None else _last_point(report.certificate),
        "candidates": [_candidate(candidate) for candidate in report.candidates],
        "actions": [asdict(row) for row in report.actions],
        "contexts": [asdict(row) for row in report.contexts],
        "context_confidence": report.context_confidence,
        "experts": [asdict(row) for row in report.experts],
        "quarantined": [asdict(group) for group in report.quarantine],
        "files": [asdict(file) for file in report.files],
    }
    return {key: _without_nan(value) for key, value in found.items()}


def _next_step(report: Report) -> dict[str, Any]:
    assert report.next_step is not None  # the caller has looked
    return {**asdict(report.next_step), "words": report.step, "code": report.code or None}


def _candidate(row: CandidateRow) -> dict[str, Any]:
    return {**asdict(row), "gain": None if row.gain is None else row.gain._asdict()}


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
        "gain_upper": curve.gain_upper,
        "window": None if curve.window is None else curve.window._asdict(),
        "centered_rounds": curve.centered,
        "weight_bound": curve.weight_bound,
        "promoted_at": curve.promoted_at,
        "worse": curve.worse,
        "worse_at": curve.worse_at,
        "rules": curve.rules,
        "ips": curve.estimate,
        "self_normalised_ips": curve.self_normalised,
        "effective_sample_size": curve.effective_sample_size,
    }


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
