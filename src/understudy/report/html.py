"""A report as HTML: a page that loads nothing, its sections, and a part for notebooks."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from understudy.formatting import plain
from understudy.report import charts, tables, words
from understudy.report.data import CertificateCurve, Report

MOST_ACTIONS = 200
MOST_ROWS, MOST_IN_NOTEBOOKS = 100, 8
WIDE, NARROW = 720.0, 330.0  # pixels of a picture: on a laptop, on a phone
Data = TypeVar("Data")


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
    others = words.others(tables.folded(report.actions, charts.MOST_BARS)[1])
    said = {
        "bounds": made.bounds(report, tables),
        "care": made.care(report),
        "certificate": made.certificate(report, tables, words, _pictures(report.certificate)),
        "policy": made.policy(report, words, _policy(report), others),
        "coverage": made.coverage(
            report,
            tables.tabulate_candidates(report),
            tables.tabulate_actions(report, MOST_ACTIONS, where),
        ),
    }
    return {name: Markup(text.strip()) for name, text in said.items()}


@cache
def environment(*packages: str) -> Environment:
    """Templates of a report, and of packages that show it in pages of their own.

    >>> environment().from_string("{{ label }}").render(label="<b>\\u202e")
    '&lt;b&gt;\\\\u202e'
    """
    return Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, "understudy.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


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
        words=words,
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
            tables=tables,
            words=words,
            actions=tables.tabulate_actions(report, MOST_IN_NOTEBOOKS, "in .table"),
        )
    )


def _policy(report: Report) -> str:
    return _both(charts.draw_policy, report.actions) if report.has_policy else ""


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


def _finalize(value: object) -> object:
    """Foreign text loses what cannot be seen, before it is escaped."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value
