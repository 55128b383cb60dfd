"""The tables of a report: what stands in them, not how they look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from understudy.report.data import ActionRow, Report
from understudy.report.wording import (
    count,
    counted,
    fields,
    named,
    number,
    percent,
    plain,
    propensities,
    seen,
    size,
)

__all__ = [
    "Cell",
    "Column",
    "Table",
    "folded",
    "tabulate_actions",
    "tabulate_candidates",
    "tabulate_examples",
    "tabulate_files",
    "tabulate_quarantine",
    "tabulate_reasons",
]

LONGEST_LABEL, LONGEST_NAME, LONGEST_ROW = 80, 120, 400


class Column(NamedTuple):
    """A heading, and whether words stand below it or numbers."""

    heading: str
    words: bool = False


class Cell(NamedTuple):
    """What is shown, and the number that it stands for, if it does."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows under headings; `rest` says what is left out, or nothing."""

    caption: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Cell, ...]]
    rest: str = ""

    def without(self, heading: str) -> Table:
        """The same without a column."""
        kept = [i for i, column in enumerate(self.columns) if column.heading != heading]
        columns = tuple(self.columns[i] for i in kept)
        return replace(
            self, columns=columns, rows=[tuple(row[i] for i in kept) for row in self.rows]
        )


def folded(
    actions: Sequence[ActionRow], most: int
) -> tuple[Sequence[ActionRow], Sequence[ActionRow]]:
    """The actions that matter most to the policy or to production, and the others.

    >>> a, b = ActionRow("a", 3, 0.75, policy=0.1), ActionRow("b", 1, 0.25, policy=0.9)
    >>> folded([a, b], most=1) == ([b], [a])
    True
    """
    ordered = sorted(actions, key=lambda row: -max(row.policy or 0.0, row.share))
    return ordered[:most], ordered[most:]


def tabulate_actions(report: Report, most: int, where: str) -> Table:
    """What the log says about each action, the most important first; where all are to be seen.

    >>> one = Report(title="A log", verdict="Yes.", verdict_kind="promote", generated_by="",
    ...     generated_at="", actions=[ActionRow("a", 0, 0.0), ActionRow("b", 9, 1.0)])
    >>> table = tabulate_actions(one, most=1, where="with --json")
    >>> [cell.text for cell in table.rows[0]][:3], table.rest
    (['b', '9', '100 %'], '… and 1 more action: with --json')
    """
    columns = (
        Column("action", words=True),
        Column("rows"),
        Column("share of rows"),
        Column("policy"),
        Column("mean reward"),
        Column("propensity"),
        Column("coverage ratio"),
        Column("effective sample size"),
    )
    shown, others = folded(report.actions, most)
    rest = f"{_rest(len(others), 'action')}: {where}" if others else ""
    rows = [_action(row) for row in shown]
    table = Table("What the log says about each action", columns, rows, rest)
    return table if report.has_policy else table.without("policy")


def _action(row: ActionRow) -> tuple[Cell, ...]:
    return (
        Cell(named(row.label, LONGEST_LABEL)),
        Cell(seen(row.count), row.count),
        Cell(percent(row.share), row.share),
        Cell(percent(row.policy), row.policy),
        Cell(number(row.mean_reward), row.mean_reward),
        Cell(propensities(row.lowest, row.highest), row.lowest),
        Cell(number(row.coverage), row.coverage),
        Cell(size(row.effective_sample_size), row.effective_sample_size),
    )


def tabulate_candidates(report: Report) -> Table:
    """What the log can say about policies.

    >>> one = Report(title="A log", verdict="Yes.", verdict_kind="promote", generated_by="",
    ...     generated_at="")
    >>> tabulate_candidates(one).rows
    []
    """
    columns = (
        Column("policy", words=True),
        Column("verdict", words=True),
        Column("estimate"),
        Column("coverage ratio"),
        Column("effective sample size"),
    )
    rows = [
        (
            Cell(named(one.name, LONGEST_LABEL)),
            Cell(one.words),
            Cell(number(one.estimate), one.estimate),
            Cell(number(one.coverage), one.coverage),
            Cell(size(one.effective_sample_size), one.effective_sample_size),
        )
        for one in report.candidates
    ]
    return Table("What this log can say about policies", columns, rows)


def tabulate_reasons(report: Report) -> Table:
    """Why rows were set aside, over all files.

    >>> one = Report(title="A log", verdict="Yes.", verdict_kind="promote", generated_by="",
    ...     generated_at="")
    >>> tabulate_reasons(one).rows
    []
    """
    columns = (Column("reason", words=True), Column("rows"), Column("share of these"))
    rows = [
        (Cell(reason), Cell(count(total), total), _share(total, report.quarantined))
        for reason, total in report.reasons.items()
    ]
    return Table("Why rows were set aside", columns, rows)


def _share(part: int, whole: int) -> Cell:
    return Cell(percent(part / whole), part / whole) if whole else Cell(percent(None))


def tabulate_quarantine(report: Report, most: int) -> Table:
    """How many rows of each file were set aside for each reason.

    >>> one = Report(title="A log", verdict="Yes.", verdict_kind="promote", generated_by="",
    ...     generated_at="")
    >>> tabulate_quarantine(one, most=9).rows
    []
    """
    columns = (Column("file", words=True), Column("reason", words=True), Column("rows"))
    rows = [
        (
            Cell(named(group.file, LONGEST_NAME)),
            Cell(group.reason),
            Cell(count(group.count), group.count),
        )
        for group in report.quarantine[:most]
    ]
    rest = _rest(len(report.quarantine) - most, "line")
    return Table("Rows set aside, by file", columns, rows, rest)


def tabulate_examples(report: Report, most: int) -> Table:
    """Some of the rows that were set aside, as they stood in their files.

    >>> one = Report(title="A log", verdict="Yes.", verdict_kind="promote", generated_by="",
    ...     generated_at="")
    >>> tabulate_examples(one, most=9).rows
    []
    """
    columns = (
        Column("file", words=True),
        Column("row"),
        Column("reason", words=True),
        Column("values", words=True),
    )
    rows = [
        (
            Cell(named(one.file, LONGEST_NAME)),
            Cell(count(one.row), one.row),
            Cell(one.reason),
            Cell(plain(fields(one.values), LONGEST_ROW)),
        )
        for one in report.examples[:most]
    ]
    return Table("Some of these rows", columns, rows, _rest(len(report.examples) - most, "example"))


def tabulate_files(report: Report, most: int) -> Table:
    """The files that were read, and what they held.

    >>> one = Report(title="A log", verdict="Yes.", verdict_kind="promote", generated_by="",
    ...     generated_at="")
    >>> tabulate_files(one, most=9).rows
    []
    """
    columns = (
        Column("file", words=True),
        Column("rows"),
        Column("set aside"),
        Column("SHA-256", words=True),
    )
    rows = [
        (
            Cell(named(file.name, LONGEST_NAME)),
            Cell(count(file.rows), file.rows),
            Cell(count(file.quarantined), file.quarantined),
            Cell(file.sha256),
        )
        for file in report.files[:most]
    ]
    return Table("Files that were read", columns, rows, _rest(len(report.files) - most, "file"))


def _rest(left: int, noun: str) -> str:
    """What is left out of a table, in words."""
    if left <= 0:
        return ""
    return f"… and {counted(left, f'more {noun}')}"
