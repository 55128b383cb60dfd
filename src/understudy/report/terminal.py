"""A report in the terminal: the verdict first, and nothing wider than the screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from understudy.formatting import plain
from understudy.report import tables, words
from understudy.report.data import Report

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MOST_ACTIONS, MOST_ROWS = 15, 10
ALL = "in report.html, or with --json"
NARROWEST, WIDEST = 10, 28  # letters of a first column, and of another one
STYLES = {"good": "bold green", "wait": "bold yellow", "open": "bold", "bad": "bold red"}


def show(report: Report, console: Console) -> None:
    """Print a report: verdict, certificate, actions, coverage, quarantine and files.

    >>> from rich.console import Console
    >>> show(Report(title="A log", verdict="Too few rows.", verdict_kind="not yet",
    ...     generated_by="understudy", generated_at="today"), Console(width=80))
    A log
    … Not enough data yet. Too few rows.
    No row is quarantined.
    """
    _show_verdict(report, console)
    if report.certificate is not None:
        _list(console, tables.bounds(report.certificate, report.verdict_kind).items())
        _list(console, tables.estimates(report.certificate, report.verdict_kind).items())
        _say(console, words.holds(report.certificate), style="dim")
    _list(console, report.facts)
    _show_coverage(report, console)
    _say(console, words.quarantine_line(report))
    _draw(console, tables.tabulate_quarantine(report, MOST_ROWS))
    _draw(console, tables.tabulate_files(report, MOST_ROWS).without("SHA-256"))


def _show_verdict(report: Report, console: Console) -> None:
    mark = report.mark
    _say(console, report.title, style="bold")
    _say(console, report.subtitle, style="dim")
    _say(console, f"{mark.sign} {mark.word}. {report.verdict}", style=STYLES[mark.style])
    for warning in report.warnings:
        _say(console, f"! {warning}", style="yellow")
    for assumption in report.assumptions:
        _say(console, f"To check: {assumption}", style="yellow")


def _show_coverage(report: Report, console: Console) -> None:
    _draw(console, tables.tabulate_actions(report, MOST_ACTIONS, ALL).without("propensity"))
    _say(console, words.averaged(report), style="dim")
    for sentence in report.coverage:
        _say(console, f"• {sentence}")
    candidates = tables.tabulate_candidates(report)
    for name, verdict, *numbers in candidates.rows:
        headings = [column.heading for column in candidates.columns[2:]]
        said = ", ".join(f"{h} {n.text}" for h, n in zip(headings, numbers, strict=True))
        _say(console, f"• {name.text}: {verdict.text} ({said})")


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
    if table.rest:
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
