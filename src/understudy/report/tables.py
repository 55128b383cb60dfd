"""The tables of a report: what stands in them, not how they look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from understudy.errors import shorten
from understudy.formatting import count, counted, named, number, percent, plain, size
from understudy.logs.evaluation.verdicts import VerdictKind
from understudy.report.data import ActionRow, CertificateCurve, Report

LONGEST_LABEL, LONGEST_NAME, LONGEST_ROW = 80, 120, 400
MOST = "would have earned at most"


class TextColumn(NamedTuple):
    """A heading, and whether words stand below it or numbers."""

    heading: str
    words: bool = False


class TextCell(NamedTuple):
    """What is shown, and the number that it stands for, if it does."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class TextTable:
    """Rows under headings; `rest` says what is left out, or nothing."""

    caption: str
    columns: tuple[TextColumn, ...]
    rows: Sequence[tuple[TextCell, ...]]
    rest: str = ""

    def without(self, heading: str) -> TextTable:
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


def tabulate_actions(report: Report, most: int, where: str) -> TextTable:
    """What the log says about each action, the most important first; where all are to be seen.

    >>> one = Report(title="A log", verdict="Yes.", verdict_kind="promote", generated_by="",
    ...     generated_at="", actions=[ActionRow("a", 0, 0.0), ActionRow("b", 9, 1.0)])
    >>> table = tabulate_actions(one, most=1, where="with --json")
    >>> [cell.text for cell in table.rows[0]][:3], table.rest
    (['b', '9', '100 %'], '… and 1 more action: with --json')
    """
    columns = (
        TextColumn("action", words=True),
        TextColumn("rows"),
        TextColumn("share of rows"),
        TextColumn("policy"),
        TextColumn("mean reward"),
        TextColumn("propensity"),
        TextColumn("coverage ratio"),
        TextColumn("effective sample size"),
    )
    shown, others = folded(report.actions, most)
    rest = f"{_rest(len(others), 'action')}: {where}" if others else ""
    rows = [_action(row) for row in shown]
    table = TextTable("What the log says about each action", columns, rows, rest)
    return table if report.has_policy else table.without("policy")


def _action(row: ActionRow) -> tuple[TextCell, ...]:
    return (
        TextCell(named(row.label, LONGEST_LABEL)),
        TextCell(count(row.count) if row.count else "never", row.count),
        TextCell(percent(row.share), row.share),
        TextCell(percent(row.policy), row.policy),
        TextCell(number(row.mean_reward), row.mean_reward),
        TextCell(_range(row.lowest, row.highest), row.lowest),
        TextCell(number(row.coverage), row.coverage),
        TextCell(size(row.effective_sample_size), row.effective_sample_size),
    )


def _range(lowest: float | None, highest: float | None) -> str:
    low, high = number(lowest), number(highest)
    return low if low == high else f"{low} … {high}"


def tabulate_candidates(report: Report) -> TextTable:
    """What the log can say about policies."""
    columns = (
        TextColumn("policy", words=True),
        TextColumn("verdict", words=True),
        TextColumn("estimate"),
        TextColumn("coverage ratio"),
        TextColumn("effective sample size"),
    )
    rows = [
        (
            TextCell(named(one.name, LONGEST_LABEL)),
            TextCell(one.words),
            TextCell(number(one.estimate), one.estimate),
            TextCell(number(one.coverage), one.coverage),
            TextCell(size(one.effective_sample_size), one.effective_sample_size),
        )
        for one in report.candidates
    ]
    return TextTable("What this log can say about policies", columns, rows)


def tabulate_reasons(report: Report) -> TextTable:
    """Why rows are quarantined, over all files."""
    columns = (TextColumn("reason", words=True), TextColumn("rows"), TextColumn("share of these"))
    rows = [
        (TextCell(reason), TextCell(count(total), total), _share(total, report.quarantined))
        for reason, total in report.reasons.items()
    ]
    return TextTable("Why rows are quarantined", columns, rows)


def _share(part: int, whole: int) -> TextCell:
    return TextCell(percent(part / whole), part / whole) if whole else TextCell(percent(None))


def tabulate_quarantine(report: Report, most: int) -> TextTable:
    """How many rows of each file are quarantined for each reason."""
    columns = (TextColumn("file", words=True), TextColumn("reason", words=True), TextColumn("rows"))
    rows = [
        (
            TextCell(named(group.file, LONGEST_NAME)),
            TextCell(group.reason),
            TextCell(count(group.count), group.count),
        )
        for group in report.quarantine[:most]
    ]
    rest = _rest(len(report.quarantine) - most, "line")
    return TextTable("Quarantined rows, by file", columns, rows, rest)


def tabulate_examples(report: Report, most: int) -> TextTable:
    """Some of the rows that are quarantined, as they stood in their files."""
    columns = (
        TextColumn("file", words=True),
        TextColumn("row"),
        TextColumn("reason", words=True),
        TextColumn("values", words=True),
    )
    rows = [
        (
            TextCell(named(one.file, LONGEST_NAME)),
            TextCell(count(one.row), one.row),
            TextCell(one.reason),
            TextCell(plain(_values(one.values), LONGEST_ROW)),
        )
        for one in report.examples[:most]
    ]
    return TextTable(
        "Some of these rows", columns, rows, _rest(len(report.examples) - most, "example")
    )


def _values(values: Mapping[str, object]) -> str:
    """The values of a row, as they would be typed.

    >>> _values({"reward": float("nan"), "action": "a b"})
    "reward = nan, action = 'a b'"
    """
    return ", ".join(f"{name} = {shorten(value)}" for name, value in values.items())


def tabulate_files(report: Report, most: int) -> TextTable:
    """The files that were read, and what they held."""
    columns = (
        TextColumn("file", words=True),
        TextColumn("rows"),
        TextColumn("quarantined"),
        TextColumn("SHA-256", words=True),
    )
    rows = [
        (
            TextCell(named(file.name, LONGEST_NAME)),
            TextCell(count(file.rows), file.rows),
            TextCell(count(file.quarantined), file.quarantined),
            TextCell(file.sha256),
        )
        for file in report.files[:most]
    ]
    return TextTable("Files that were read", columns, rows, _rest(len(report.files) - most, "file"))


def _rest(left: int, noun: str) -> str:
    """What is left out of a table, in words."""
    if left <= 0:
        return ""
    return f"… and {counted(left, f'more {noun}')}"


def bounds(curve: CertificateCurve, kind: VerdictKind) -> dict[str, str]:
    """What a certificate says at its end, by name, as far as it matters to the verdict.

    >>> curve = CertificateCurve(rounds=[9], lower=[0.1], upper=[0.3], production=[0.2], gain=None,
    ...     promoted_at=None, confidence=0.95, estimate=0.25, self_normalised=0.2,
    ...     effective_sample_size=7.0)
    >>> for name, value in bounds(curve, "not yet").items():
    ...     print(name, "·", value)
    the understudy would have earned at least · 0.1
    production earned · 0.2
    gain over production, at least · not certified
    promotion justified after round · not certified
    """
    _, lower, upper, production, gain = curve.table[-1].tolist()
    certified = curve.gain is not None
    worse = kind == "worse"
    return {
        f"{curve.target} would have earned at least": number(lower),
        **({MOST: number(upper)} if worse else {}),
        f"production earned{' at most' if curve.at_most else ''}": number(production),
        "gain over production, at least": number(gain) if certified else "not certified",
        **({} if worse else {"promotion justified after round": _promotion(curve)}),
    }


def _promotion(curve: CertificateCurve) -> str:
    if curve.gain is None:
        return "not certified"
    if curve.promoted_at is not None:
        return count(curve.promoted_at)
    return "not known without an order" if curve.promoted else "not yet"


def estimates(curve: CertificateCurve, kind: VerdictKind) -> dict[str, str]:
    """The other bound, and estimates that bound nothing."""
    rounds, _, upper, *_ = curve.table[-1].tolist()
    plays = f"{size(curve.effective_sample_size)} of {counted(int(rounds), 'round')}"
    return {
        **({} if kind == "worse" else {MOST: number(upper)}),
        "inverse propensity score (IPS)": number(curve.estimate),
        "self-normalised IPS": number(curve.self_normalised),
        "effective sample size": plays,
    }
