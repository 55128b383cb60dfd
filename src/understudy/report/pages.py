"""A report as HTML: a page that asks nothing of any network, and a part for notebooks."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from understudy.report import charts, statements, tables
from understudy.report.data import CertificateCurve, Report
from understudy.report.wording import plain

__all__ = ["fragment", "render"]

MOST_ACTIONS, MOST_ROWS, MOST_IN_NOTEBOOKS = 200, 100, 8
WIDE, NARROW = 720.0, 330.0  # pixels of a picture: on a laptop, on a phone
Data = TypeVar("Data")


def render(report: Report) -> str:
    """The whole report as one HTML page without any request to anywhere.

    >>> page = render(Report(title="A log", verdict="Nothing yet.", verdict_kind="not yet",
    ...     generated_by="understudy", generated_at="today"))
    >>> page.startswith("<!doctype html>"), "Nothing yet." in page
    (True, True)
    """
    environment = _environment()
    script = environment.get_template("sort.js").render()
    return environment.get_template("report.html").render(
        report=report,
        statements=statements,
        mark=statements.MARKS[report.verdict_kind],
        pictures=_pictures(report.certificate),
        policy=_both(charts.draw_policy, report.actions) if report.has_policy else "",
        others=statements.others(tables.folded(report.actions, charts.MOST_BARS)[1]),
        actions=tables.tabulate_actions(report, MOST_ACTIONS, "with --json"),
        candidates=tables.tabulate_candidates(report),
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
        _environment()
        .get_template("fragment.html")
        .render(
            report=report,
            statements=statements,
            mark=statements.MARKS[report.verdict_kind],
            actions=tables.tabulate_actions(report, MOST_IN_NOTEBOOKS, "in .table"),
        )
    )


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


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("understudy.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
