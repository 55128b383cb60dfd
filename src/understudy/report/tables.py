"""The tables, lists and notes of a report: their content, not their looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from understudy.certificates.evidence import FIRST_RULES
from understudy.errors import shorten
from understudy.formatting import (
    FEW_DIGITS,
    NOTHING,
    count,
    counted,
    gain,
    least_gain,
    most_gain,
    named,
    number,
    percent,
    plain,
    rough_count,
    size,
)
from understudy.logs.evaluation.answers import GuardrailState
from understudy.logs.evaluation.outcomes import GainBounds, PolicyDecision, VerdictKind
from understudy.logs.rules import RejectReason
from understudy.protocols import PRODUCTION
from understudy.report.data import ActionRow, CertificateCurve, QuarantinedRow, Report
from understudy.report.details import ContextRow
from understudy.report.words import centering

LONGEST_LABEL, LONGEST_NAME, LONGEST_ROW = 80, 120, 400  # letters in a cell
SHORT_LABEL = 24  # letters of an action within a cell
MOST_PLAYED, LEAST_SHOWN = 2, 0.005  # actions in a cell, and the share from which one is named
MOST = "would have earned at most"


class TextColumn(NamedTuple):
    """The heading of a column, and whether the column has words or numbers."""

    heading: str
    words: bool = False


class TextCell(NamedTuple):
    """A shown text, and the number behind it, if it shows one."""

    text: str
    value: float | None = None


Column = tuple[TextColumn, Callable[[Any], TextCell]]  # with a function from an item to its cell


@dataclass(frozen=True)
class TextTable:
    """Rows under headings; `rest` says what is left out, or nothing."""

    caption: str
    columns: tuple[TextColumn, ...]
    rows: Sequence[tuple[TextCell, ...]]
    rest: str = ""

    def without(self, heading: str) -> TextTable:
        """The table without a column."""
        kept = [i for i, column in enumerate(self.columns) if column.heading != heading]
        columns = tuple(self.columns[i] for i in kept)
        return replace(
            self, columns=columns, rows=[tuple(row[i] for i in kept) for row in self.rows]
        )


def _tabulate(caption: str, items: Iterable[Any], *columns: Column, rest: str = "") -> TextTable:
    headings, cells = zip(*columns, strict=True)
    return TextTable(caption, headings, [tuple(cell(one) for cell in cells) for one in items], rest)


def _text_column(heading: str, text: Callable[[Any], str]) -> Column:
    return TextColumn(heading, words=True), lambda item: TextCell(text(item))


def _number_column(
    heading: str, value: Callable[[Any], Any], shown: Callable[[Any], str]
) -> Column:
    return TextColumn(heading), lambda item: TextCell(shown(value(item)), value(item))


def _left_out(left: int, noun: str) -> str:
    """A line about the items that a table leaves out."""
    return f"… and {counted(left, f'more {noun}')}" if left > 0 else ""


# ---------------------------------------------------------------------------------------- tables


def most_important(
    actions: Sequence[ActionRow], most: int
) -> tuple[Sequence[ActionRow], Sequence[ActionRow]]:
    """The actions that the policy or production plays most, and the others."""
    ordered = sorted(actions, key=lambda row: -max(row.policy or 0.0, row.share))
    return ordered[:most], ordered[most:]


def tabulate_actions(report: Report, most: int, where: str) -> TextTable:
    """The most important actions; `where` says where a reader finds the others."""
    shown, others = most_important(report.actions, most)
    table = _tabulate(
        "What the log says about each action",
        shown,
        _text_column("action", lambda row: named(row.label, LONGEST_LABEL)),
        _number_column(
            "rows", lambda row: row.count, lambda rows: count(rows) if rows else "never"
        ),
        _number_column("share of rows", lambda row: row.share, percent),
        _number_column("policy", lambda row: row.policy, percent),
        _number_column("mean reward", lambda row: row.mean_reward, number),
        (TextColumn("propensity"), lambda row: TextCell(_range(row), row.lowest)),
        _number_column("coverage ratio", lambda row: row.coverage, number),
        _number_column("effective sample size", lambda row: row.effective_sample_size, size),
        rest=f"{_left_out(len(others), 'action')}: {where}" if others else "",
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
        _text_column("policy", lambda one: named(one.name, LONGEST_LABEL)),
        _text_column("verdict", lambda one: one.words),
        _number_column("estimate", lambda one: one.estimate, number),
        _number_column("coverage ratio", lambda one: one.coverage, number),
        _number_column("effective sample size", lambda one: one.effective_sample_size, size),
    )


STATES = {
    GuardrailState.HOLDS: "✓ holds",
    GuardrailState.BROKEN: "✕ broken",
    GuardrailState.UNCERTAIN: "… not certain yet",
}
DECISIONS = {
    PolicyDecision.BETTER: "✓ better",
    PolicyDecision.WORSE: "✕ worse",
    PolicyDecision.UNKNOWN: "… not certain yet",
}


class _Metric(NamedTuple):
    """A row of the table of goal and guardrails."""

    name: str
    estimate: float | None
    low: float | None
    high: float | None
    margin: float | None
    state: str


def tabulate_metrics(report: Report) -> TextTable:
    """The goal and its guardrails side by side."""
    goal, decision = report.gain or GainBounds(), report.decision or PolicyDecision.UNKNOWN
    if (goal.low or 0.0) > 0.0:  # also where a guardrail prevents the decision
        decision = PolicyDecision.BETTER
    rows = [_Metric("goal: reward", goal.estimate, goal.low, goal.high, 0.0, DECISIONS[decision])]
    for one in report.guardrails:
        margin = one.margin if one.better == "lower" else -one.margin
        name = f"{one.name} ({one.better} is better)"
        rows.append(_Metric(name, one.estimate, one.low, one.high, margin, STATES[one.state]))
    return _tabulate(
        f"Goal and guardrails, as changes against {report.baseline}",
        rows if report.guardrails else [],
        _text_column("metric", lambda one: named(one.name, LONGEST_LABEL)),
        _text_column("state", lambda one: one.state),
        _number_column("at least", lambda one: one.low, _least),
        _number_column("estimate", lambda one: one.estimate, _gain),
        _number_column("at most", lambda one: one.high, _most),
        _number_column("limit", lambda one: one.margin, _gain),
    )


def metrics_note(report: Report) -> str:
    """A note: what the states of guardrails mean, and the rows without a metric."""
    if not report.guardrails:
        return ""
    lost = [
        f"{one.name} is missing or out of its range in {counted(one.unusable_rows, 'row')}, which "
        "count with its worst value"
        for one in report.guardrails
        if one.unusable_rows
    ]
    note = "A policy is promoted if the goal gains and every guardrail stays within its limit."
    return " ".join([note, *(f"{line}." for line in lost)])


def tabulate_segments(report: Report) -> TextTable:
    """The segments, the largest estimated gain first."""
    return _tabulate(
        f"Gain over {report.baseline} by {plain(report.segment_column or '', LONGEST_NAME)}",
        report.segments,
        _text_column("segment", lambda one: named(one.name, LONGEST_LABEL)),
        _text_column("decision", lambda one: DECISIONS[one.decision]),
        _number_column("rows", lambda one: one.rows, count),
        _number_column("at least", lambda one: one.low, _least),
        _number_column("estimate", lambda one: one.estimate, _gain),
        _number_column("at most", lambda one: one.high, _most),
    )


def segments_note(report: Report) -> str:
    """A note: with which confidence intervals of segments hold, and whether one is worse."""
    if not report.segments:
        return ""
    worse = "No segment is certainly worse."
    if report.worse_somewhere:
        worse = "The policy is certainly worse in at least one segment."
    return f"All intervals hold together, with the confidence of the certificate. {worse}"


def tabulate_contexts(report: Report, most: int) -> list[TextTable]:
    """The groups of contexts, a table for each column and one for combinations of labels."""
    groups: dict[tuple[str, ...], list[ContextRow]] = {}
    for row in report.contexts:
        groups.setdefault(row.columns, []).append(row)
    return [
        _context_table(f"Contexts by {plain(' and '.join(columns), LONGEST_NAME)}", rows, most)
        for columns, rows in groups.items()
    ]


def tabulate_largest_differences(report: Report, most: int, where: str) -> TextTable:
    """The contexts with the largest differences; `where` says where a reader finds the others."""
    ordered = sorted(report.contexts, key=lambda row: -abs(row.estimate or 0.0))
    table = _context_table("Contexts with the largest differences", ordered, most, played=1)
    rest = _left_out(len(ordered) - most, "context")
    return replace(table, rest=f"{rest}: {where}" if rest else "")


def _context_table(
    caption: str, rows: Sequence[ContextRow], most: int, played: int = MOST_PLAYED
) -> TextTable:
    table = _tabulate(
        caption,
        rows[:most],
        _text_column("context", lambda row: named(row.name, LONGEST_LABEL)),
        _number_column("rows", lambda row: row.rows, count),
        _number_column("estimated difference", lambda row: row.estimate, _gain),
        _number_column("at least", lambda row: row.lower, _least),
        _number_column("at most", lambda row: row.upper, _most),
        _text_column("policy plays", lambda row: _most_played(row.policy, played)),
        _text_column("production plays", lambda row: _most_played(row.production, played)),
        rest=_left_out(len(rows) - most, "context"),
    )
    if any(row.estimate is not None for row in rows):
        return table
    return table.without("estimated difference").without("at least").without("at most")


def _most_played(shares: Mapping[str, float] | None, most: int) -> str:
    """The most frequent actions with their shares."""
    if shares is None:
        return "no row of late"
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    some = [one for one in ordered[:most] if one[1] >= LEAST_SHOWN]
    return ", ".join(f"{named(label, SHORT_LABEL)} {rough_share(share)}" for label, share in some)


def rough_share(share: float) -> str:
    """A share with two digits, unless it would seem to be all.

    >>> rough_share(0.87461), rough_share(0.0003278), rough_share(0.9961)
    ('87 %', '0.033 %', '99.61 %')
    """
    return percent(float(f"{share:.{FEW_DIGITS}g}") if share < 1.0 - LEAST_SHOWN else share)


def _gain(value: float | None) -> str:
    return NOTHING if value is None else gain(value)


def _least(value: float | None) -> str:
    return NOTHING if value is None else least_gain(value)


def _most(value: float | None) -> str:
    return NOTHING if value is None else most_gain(value)


def tabulate_experts(report: Report) -> TextTable:
    """The experts of a mixture."""
    return _tabulate(
        "The experts of the mixture",
        report.experts,
        _text_column("expert", lambda row: named(row.name, LONGEST_LABEL)),
        _number_column("weight now", lambda row: row.weight, rough_share),
        (
            TextColumn("estimated reward per row"),
            lambda row: _with_error(row.reward, number, row.reward_error),
        ),
        (TextColumn("over production"), lambda row: _with_error(row.gain, gain, row.gain_error)),
    )


def _with_error(value: float, shown: Callable[[float], str], error: float) -> TextCell:
    return TextCell(f"{shown(value)} ± {number(error, FEW_DIGITS)}", value)


def tabulate_reasons(report: Report) -> TextTable:
    """Why rows are quarantined, over all files."""
    whole = report.quarantined
    return _tabulate(
        "Why rows are quarantined",
        report.reasons.items(),
        _text_column("reason", lambda item: item[0]),
        _number_column("rows", lambda item: item[1], count),
        _number_column("share of these", lambda item: item[1] / whole if whole else None, percent),
    )


def tabulate_quarantine(report: Report, most: int) -> TextTable:
    """How many rows of each file are quarantined for each reason."""
    return _tabulate(
        "Quarantined rows, by file",
        report.quarantine[:most],
        _text_column("file", lambda group: named(group.file, LONGEST_NAME)),
        _text_column("reason", lambda group: group.reason),
        _number_column("rows", lambda group: group.count, count),
        rest=_left_out(len(report.quarantine) - most, "line"),
    )


def tabulate_examples(report: Report, most: int) -> TextTable:
    """Some quarantined rows, as they are in their files."""
    return _tabulate(
        "Some of these rows",
        report.examples[:most],
        _text_column("file", lambda one: named(one.file, LONGEST_NAME)),
        _number_column("row", lambda one: one.row, count),
        _text_column("reason", lambda one: one.reason),
        _text_column("values", _values),
        rest=_left_out(len(report.examples) - most, "example"),
    )


def _values(row: QuarantinedRow) -> str:
    """The values of a row, as Python writes them."""
    typed = ", ".join(f"{name} = {shorten(value)}" for name, value in row.values.items())
    return plain(typed, LONGEST_ROW)


def tabulate_files(report: Report, most: int) -> TextTable:
    """The files that were read, with their rows and hashes."""
    return _tabulate(
        "Files that were read",
        report.files[:most],
        _text_column("file", lambda file: named(file.name, LONGEST_NAME)),
        _number_column("rows", lambda file: file.rows, count),
        _number_column("quarantined", lambda file: file.quarantined, count),
        _text_column("SHA-256", lambda file: file.sha256),
        rest=_left_out(len(report.files) - most, "file"),
    )


# ------------------------------------------------------------------------- numbers of a certificate


def bounds(curve: CertificateCurve, kind: VerdictKind) -> dict[str, str]:
    """The last bounds of a certificate by name, as far as the verdict depends on them."""
    _, lower, upper, production, gain = curve.table[-1].tolist()
    certified, worse = curve.gain is not None, kind == "worse"
    found = {
        f"{curve.target} would have earned at least": number(lower),
        **({MOST: number(upper)} if worse else {}),
        f"production earned{' at most' if curve.at_most else ''}": number(production),
        f"gain over {curve.over}, at least": number(gain) if certified else "not certified",
    }
    if curve.gain_upper is not None:
        found[f"gain over {curve.over}, at most"] = number(curve.gain_upper)
    found |= _window(curve)
    if not worse:
        found["promotion justified after round"] = _promotion(curve)
    elif curve.worse_at is not None:
        found["loss certain after round"] = count(curve.worse_at)
    return found


def _window(curve: CertificateCurve) -> dict[str, str]:
    """The gain since a later round, where only that shows a gain."""
    if curve.window is None:
        return {}
    start, gain = curve.window
    return {f"gain since round {count(start)}, at least": number(gain)}


def _promotion(curve: CertificateCurve) -> str:
    if curve.gain is None:
        return "not certified"
    if curve.promoted_at is not None:
        return count(curve.promoted_at)
    return "not known without an order" if curve.promoted else "not yet"


def estimates(curve: CertificateCurve, kind: VerdictKind) -> dict[str, str]:
    """The upper bound, if `bounds` leaves it out, and estimates without a guarantee."""
    rounds, _, upper, *_ = curve.table[-1].tolist()
    plays = f"{size(curve.effective_sample_size)} of {counted(int(rounds), 'round')}"
    return {
        **({} if kind == "worse" else {MOST: number(upper)}),
        "inverse propensity score (IPS)": number(curve.estimate),
        "self-normalised IPS": number(curve.self_normalised),
        "effective sample size": plays,
    }


# ----------------------------------------------------------------------------------------- notes


def confidence_note(curve: CertificateCurve) -> str:
    """A note: what the bounds guarantee, and with which confidence."""
    sure = percent(curve.confidence)
    if curve.gain is None:
        gain = ""
    elif curve.gain_upper is None:
        gain = f" The gain holds with {sure} by itself."
    else:
        wrong = percent(2.0 * (1.0 - curve.confidence))
        gain = (
            f" Each bound on the gain holds with {sure} by itself; the probability that “promote” "
            f"or “worse” is ever said and false is at most {wrong}."
        )
    return (
        f"Rewards are means per round. The two bounds on the reward hold together with {sure} "
        f"confidence, after every round.{gain}{_since(curve)}{_centering(curve)}"
    )


def _since(curve: CertificateCurve) -> str:
    """Why a gain may be certain although the curve of the gain over all rounds is below 0."""
    if curve.window is None:
        return ""
    start = count(curve.window.start)
    return f" The curve of the gain is over all rounds, not since round {start} alone."


def _centering(curve: CertificateCurve) -> str:
    """Whether bets were centered at the mean reward, and how they could be."""
    if curve.rules == FIRST_RULES and curve.gain is not None:
        return (
            " This certificate goes on by the rules of release 0.5; one that begins now needs "
            "fewer rows."
        )
    if curve.centered is None or curve.weight_bound is None:
        return ""
    return f" {centering(curve.weight_bound, curve.centered, int(curve.table[-1, 0]))}"


def average_note(report: Report) -> str:
    """A note about the probabilities of a policy that depends on the context; else empty."""
    if report.averaged_over is None:
        return ""
    rows = counted(report.averaged_over, "row")
    return f"The policy depends on the context: its shares are means over the last {rows}."


def contexts_note(report: Report) -> str:
    """A note: what the differences and the shares in groups of contexts are."""
    left = report.columns_left_out
    note = (
        "The shares of the policy are those of the policy now. Rows of the warm-up are in no "
        "context; a quarantined row counts in its contexts with the worst that it may have been."
    )
    if left:
        note += f" {counted(left, 'more column')} {'is' if left == 1 else 'are'} not shown."
    sure = report.context_confidence
    if sure is None:
        return f"{note} Differences are not known, since propensities are not."
    return (
        "The difference is the mean reward per row of the policy, as it was played while learning, "
        f"less that of production. Each interval holds with {percent(sure)} confidence by itself: "
        f"of {counted(len(report.contexts), 'interval')}, {_misses(report)} may be wrong. {note}"
    )


def _misses(report: Report) -> str:
    """How many of the intervals may be wrong on average, in words."""
    misses = len(report.contexts) * (1.0 - (report.context_confidence or 0.0))
    return f"about {rough_count(misses)}" if misses >= 1.0 else "on average less than one"


def experts_note(report: Report) -> str:
    """A note: what weights and rewards of experts are."""
    follows = any(row.name == PRODUCTION for row in report.experts)
    copies = f" “{PRODUCTION}” plays as production does." if follows else ""
    return (
        "The mixture plays each expert with its weight. An expert's reward is the unbiased "
        "estimate of its mean reward per row over this log, while it learned from it, ± one "
        f"standard error.{copies}"
    )


def not_drawn(actions: Sequence[ActionRow], most: int) -> str:
    """A note about the actions that a picture of the `most` important ones leaves out."""
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
    if report.units is not None:  # files have more rows: a unit counts as one
        whole = report.quarantined + sum(row.count for row in report.actions)
        share = percent(report.quarantined / whole)
        units = "units"
        if RejectReason.UNIT_MISSING in report.reasons:
            units = "units, and rows without one,"
        return (
            f"{count(report.quarantined)} of {count(whole)} {units} {verb} quarantined ({share})."
        )
    if not report.rows:
        return f"{counted(report.quarantined, 'row')} {verb} quarantined."
    share = percent(report.quarantined / report.rows)
    rows = counted(report.rows, "row")
    return f"{count(report.quarantined)} of {rows} ({share}) {verb} quarantined."
