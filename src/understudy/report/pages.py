"""A report as HTML: a page that asks nothing of any network, and a part for notebooks."""

from __future__ import annotations

import base64
import hashlib

from markupsafe import Markup

from understudy.report import statements, tables
from understudy.report.data import Report
from understudy.report.sections import environment, sections

__all__ = ["fragment", "render"]

MOST_ROWS, MOST_IN_NOTEBOOKS = 100, 8


def render(report: Report) -> str:
    """The whole report as one HTML page without any request to anywhere.

    >>> page = render(Report(title="A log", verdict="Nothing yet.", verdict_kind="not yet",
    ...     generated_by="understudy", generated_at="today"))
    >>> page.startswith("<!doctype html>"), "Nothing yet." in page
    (True, True)
    """
    templates = environment()
    script = templates.get_template("sort.js").render()
    return templates.get_template("report.html").render(
        report=report,
        statements=statements,
        mark=statements.MARKS[report.verdict_kind],
        sections=sections(report, "with --json"),
        reasons=tables.tabulate_reasons(report),
        quarantine=tables.tabulate_quarantine(report, MOST_ROWS),
        examples=tables.tabulate_examples(report, MOST_ROWS),
        files=tables.tabulate_files(report, MOST_ROWS),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def fragment(report: Report) -> str:
    """The report in short, for a notebook's cell: its style touches nothing around it.

    >>> part = fragment(Report(title="A log", verdict="Nothing yet.", verdict_kind="not yet",
    ...     generated_by="understudy", generated_at="today"))
    >>> part.startswith('<div class="understudy-report">'), "Nothing yet." in part
    (True, True)
    """
    return (
        environment()
        .get_template("fragment.html")
        .render(
            report=report,
            statements=statements,
            mark=statements.MARKS[report.verdict_kind],
            actions=tables.tabulate_actions(report, MOST_IN_NOTEBOOKS, "in .table"),
        )
    )
