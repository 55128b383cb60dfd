"""The tables, lists and notes of a report: what stands in them, not how they look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from understudy.errors import shorten
from understudy.formatting import count, counted, named, number, percent, plain, size
from understudy.logs.evaluation.verdicts import VerdictKind
from understudy.report.data import ActionRow, CertificateCurve, QuarantinedRow, Report

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


Column = tuple[TextColumn, Callable[[Any], TextCell]]  # with what stands in the row of an item


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


def _tabulate(caption: str, items: Iterable[Any], *columns: Column, rest: str = "") -> TextTable:
    headings, cells = zip(*columns, strict=True)
    return TextTable(caption, headings, [tuple(cell(one) for cell in cells) for one in items], rest)


def _words(heading: str, text: Callable[[Any], str]) -> Column:
    return TextColumn(heading, words=True), lambda item: TextCell(text(item))


def _numbers(heading: str, value: Callable[[Any], Any], shown: Callable[[Any], str]) -> Column:
    return TextColumn(heading), lambda item: TextCell(shown(value(item)), value(item))


def _rest(left: int, noun: str) -> str:
    """What is left out of a table, in words."""
    return f"… and {counted(left, f'more {noun}')}" if left > 0 else ""


# ---------------------------------------------------------------------------------------- tables


def most_important(
    actions: Sequence[ActionRow], most: int
) -> tuple[Sequence[ActionRow], Sequence[ActionRow]]:
    """The actions that matter most to the policy or to production, and the others."""
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
    shown, others = most_important(report.actions, most)
    table = _tabulate(
        "What the log says about each action",
        shown,
        _words("action", lambda row: named(row.label, LONGEST_LABEL)),
        _numbers("rows", lambda row: row.count, lambda rows: count(rows) if rows else "never"),
        _numbers("share of rows", lambda row: row.share, percent),
        _numbers("policy", lambda row: row.policy, percent),
        _numbers("mean reward", lambda row: row.mean_reward, number),
        (TextColumn("propensity"), lambda row: TextCell(_range(row), row.lowest)),
        _numbers("coverage ratio", lambda row: row.coverage, number),
        _numbers("effective sample size", lambda row: row.effective_sample_size, size),
        rest=f"{_rest(len(others), 'action')}: {where}" if others else "",
    )
    return table if report.has_policy else table.without("policy")


def _range(row: ActionRow) -> str:
    low, high = number(row.lowest), number(row.highest)
    return low if low == high else f"{low} … {high}"


def tabulate_candidates(report: Report) -> TextTable:
    """What the log can say about policies."""
    return _tabulate(
        "What this log can say about policies",
        report.candidates,
        _words("policy", lambda one: named(one.name, LONGEST_LABEL)),
        _words("verdict", lambda one: one.words),
        _numbers("estimate", lambda one: one.estimate, number),
        _numbers("coverage ratio", lambda one: one.coverage, number),
        _numbers("effective sample size", lambda one: one.effective_sample_size, size),
    )


def tabulate_reasons(report: Report) -> TextTable:
    """Why rows are quarantined, over all files."""
    whole = report.quarantined
    return _tabulate(
        "Why rows are quarantined",
        report.reasons.items(),
        _words("reason", lambda item: item[0]),
        _numbers("rows", lambda item: item[1], count),
        _numbers("share of these", lambda item: item[1] / whole if whole else None, percent),
    )


def tabulate_quarantine(report: Report, most: int) -> TextTable:
    """How many rows of each file are quarantined for each reason."""
    return _tabulate(
        "Quarantined rows, by file",
        report.quarantine[:most],
        _words("file", lambda group: named(group.file, LONGEST_NAME)),
        _words("reason", lambda group: group.reason),
        _numbers("rows", lambda group: group.count, count),
        rest=_rest(len(report.quarantine) - most, "line"),
    )


def tabulate_examples(report: Report, most: int) -> TextTable:
    """Some of the rows that are quarantined, as they stood in their files."""
    return _tabulate(
        "Some of these rows",
        report.examples[:most],
        _words("file", lambda one: named(one.file, LONGEST_NAME)),
        _numbers("row", lambda one: one.row, count),
        _words("reason", lambda one: one.reason),
        _words("values", _values),
        rest=_rest(len(report.examples) - most, "example"),
    )


def _values(row: QuarantinedRow) -> str:
    """The values of a row, as they would be typed."""
    typed = ", ".join(f"{name} = {shorten(value)}" for name, value in row.values.items())
    return plain(typed, LONGEST_ROW)


def tabulate_files(report: Report, most: int) -> TextTable:
    """The files that were read, and what they held."""
    return _tabulate(
        "Files that were read",
        report.files[:most],
        _words("file", lambda file: named(file.name, LONGEST_NAME)),
        _numbers("rows", lambda file: file.rows, count),
        _numbers("quarantined", lambda file: file.quarantined, count),
        _words("SHA-256", lambda file: file.sha256),
        rest=_rest(len(report.files) - most, "file"),
    )


# ------------------------------------------------------------------------- numbers of a certificate


def bounds(curve: CertificateCurve, kind: VerdictKind) -> dict[str, str]:
    """What a certificate says at its end, by name, as far as it matters to the verdict."""
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


# ----------------------------------------------------------------------------------------- notes


def holds(curve: CertificateCurve) -> str:
    """What the bounds promise."""
    by_itself = "" if curve.gain is None else "; so does the gain, by itself"
    return (
        f"Rewards are means per round. The bounds hold together with {percent(curve.confidence)} "
        f"confidence, after every round{by_itself}."
    )


def averaged(report: Report) -> str:
    """What the policy's probabilities are, if it depends on the context; else nothing."""
    if report.averaged_over is None:
        return ""
    rows = counted(report.averaged_over, "row")
    return f"The policy depends on the context: its shares are means over the last {rows}."


def not_drawn(actions: Sequence[ActionRow], most: int) -> str:
    """What a picture of the `most` important actions leaves out; nothing if it has all."""
    _, others = most_important(actions, most)
    if not others:
        return ""
    policy, share = sum(row.policy or 0.0 for row in others), sum(row.share for row in others)
    return (
        f"{counted(len(others), 'more action')} {'has' if len(others) == 1 else 'have'} "
        f"{percent(policy)} of the policy and {percent(share)} of production."
    )


def quarantine_line(report: Report) -> str:
    """How many rows are quarantined, of how many."""
    if not report.quarantined:
        return "No row is quarantined."
    verb = "is" if report.quarantined == 1 else "are"
    if not report.rows:
        return f"{counted(report.quarantined, 'row')} {verb} quarantined."
    share = percent(report.quarantined / report.rows)
    rows = counted(report.rows, "row")
    return f"{count(report.quarantined)} of {rows} ({share}) {verb} quarantined."
