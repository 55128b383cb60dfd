"""What stands in the sections of a page about a policy: the same in a file and on a live page."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from understudy.report import charts, statements, tables
from understudy.report.data import CertificateCurve, Report
from understudy.report.wording import plain

__all__ = ["environment", "sections"]

MOST_ACTIONS = 200
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
    others = statements.others(tables.folded(report.actions, charts.MOST_BARS)[1])
    said = {
        "bounds": made.bounds(report, statements),
        "care": made.care(report),
        "certificate": made.certificate(report, statements, _pictures(report.certificate)),
        "policy": made.policy(report, statements, _policy(report), others),
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
