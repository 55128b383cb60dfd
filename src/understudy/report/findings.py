"""What a log shows, in words: its rows, actions, calibration and drift; and warnings about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.constraints import Array
from understudy.errors import LONGEST_PATH, shorten
from understudy.formatting import (
    FEW_DIGITS,
    count,
    counted,
    list_some,
    number,
    plain,
    quoted,
    rough_count,
)
from understudy.learners import Cell, Exp4, Mapped, Outside
from understudy.logs.encoder import Encoder, NumberColumn, Unexpected
from understudy.logs.evaluation.context_groups import FEW, ContextGroups, GroupKey
from understudy.logs.evaluation.diagnostics import (
    FAR,
    FEWEST_WEIGHTS,
    Calibration,
    CalibrationFinding,
    Drift,
    DriftFinding,
    ShareChange,
)
from understudy.logs.evaluation.outcomes import Obstacle
from understudy.logs.evaluation.repeated_rows import RepeatedRows, Repetition
from understudy.logs.evaluation.sticky_columns import StickyColumns
from understudy.logs.evaluation.verdicts import Coverage
from understudy.logs.readers.files import UnreadFiles
from understudy.logs.readers.units import UnitCounts
from understudy.logs.results import CertifyResult, LearnResult, Result
from understudy.logs.rules import RejectReason, list_reasons, remedy_for, without_copies
from understudy.logs.runs.study import Study
from understudy.logs.schema import LOGGED, Label, WeightBound, short_label

NOT_EXAMINED = "not examined here; understudy coverage --engine does it"
CALIBRATIONS = {
    CalibrationFinding.NO_PROPENSITIES: "there are no propensities to compare with frequencies",
    CalibrationFinding.NOT_EXAMINED: NOT_EXAMINED,
    CalibrationFinding.TOO_FEW_ROWS: "too few rows to check the propensities",
}
REPETITIONS = {
    Repetition.MULTIPLES: "{shown} different rows occur a multiple of {k} times",
    Repetition.TIMES: "{shown} different rows occur {k} times each",
    Repetition.RUNS: "{shown} runs of equal rows have a multiple of {k} rows",
    Repetition.PARTS: "the log has {k} equal parts: {shown} rows equal the row one part before",
}
LONGEST_CONTEXT = 60  # letters of its name in a sentence
FEW_NAMES, MANY_NAMES = 3, 10  # in a sentence about them, and in a list of them


def describe_log(coverage: Coverage) -> list[str]:
    """The rows, actions, calibration, drift and copies of a log, in lines."""
    lines, labels = [counted(coverage.rows, "row")], coverage.table["action"].to_list()
    if rejected := sum(coverage.refused.values()):
        lines[0] += f"; {count(rejected)} quarantined ({list_reasons(coverage.refused)})"
    if coverage.units is not None:
        lines += units_lines(coverage.units)
    if coverage.unseen:
        never = list_some(list(map(short_label, coverage.unseen)), MANY_NAMES)
        lines.append(f"Never played: {never}")
    if coverage.deterministic:
        played = coverage.table.filter(coverage.table["count"] > 0)["action"].to_list()
        always = f"it always played {short_label(played[0])}"
        why = always if len(played) == 1 else "every propensity is 1"
        lines.append(
            f"Production was deterministic ({why}), so the log shows nothing of other choices"
        )
    lines += [
        f"Calibration: {calibration_line(coverage.calibration, labels)}",
        f"Drift: {drift_line(coverage.drift, labels)}",
    ]
    if coverage.repeated is not None and coverage.repeated.found:
        lines.append(f"Repeated rows: {repeated_line(coverage.repeated)}")
    if coverage.sticky is not None and coverage.sticky.found:
        lines.append(f"Sticky columns: {sticky_line(coverage.sticky)}")
    return lines


def units_lines(units: UnitCounts) -> list[str]:
    """The units that count as rows, and those that were left out.

    >>> for line in units_lines(UnitCounts("user", 3, 90, 40, ignored=12, left_out=5)):
    ...     print(line)
    Units: each of 35 units of user counts as one row, whose reward is the sum over the first 3 rows
        of the unit, divided by 3; 12 later rows ignored
    5 units left out: the policy was learned from them, and their actions were drawn once
    """
    reward = "the mean over all rows of the unit, however often it returns"
    if units.most_rows is not None:
        first = "first row" if units.most_rows == 1 else f"first {counted(units.most_rows, 'row')}"
        reward = f"the sum over the {first} of the unit, divided by {count(units.most_rows)}"
    of_units = f"{counted(units.units - units.left_out, 'unit')} of {quoted(units.column)}"
    lines = [f"Units: each of {of_units} counts as one row, whose reward is {reward}"]
    if units.ignored:
        lines[0] += f"; {counted(units.ignored, 'later row')} ignored"
    if units.left_out:
        why = "the policy was learned from them, and their actions were drawn once"
        lines.append(f"{counted(units.left_out, 'unit')} left out: {why}")
    return lines


def sticky_line(sticky: StickyColumns) -> str:
    """The columns with a sticky action, and how often rows, or units, of one value repeat it.

    >>> from understudy.logs.evaluation.sticky_columns import StickyColumn
    >>> print(sticky_line(StickyColumns((StickyColumn("user", 950, 949),), 3)))
    user (949 of the first 950 rows with a value that came before have its action again)
    >>> print(sticky_line(StickyColumns((StickyColumn(None, 30, 30),), 3)))
    rows in a row (30 of the first 30 rows have the action of the one before)
    """
    kind = "row" if sticky.unit is None else "unit"
    parts = []
    for column in sticky.columns[:FEW_NAMES]:
        same = f"{count(column.same)} of the first {counted(column.repeats, kind)}"
        if column.name is None:
            parts.append(f"{kind}s in a row ({same} have the action of the one before)")
        else:
            again = "with a value that came before have its action again"
            parts.append(f"{quoted(column.name)} ({same} {again})")
    more = len(sticky.columns) - FEW_NAMES
    return "; ".join(parts) + (f"; and {counted(more, 'other column')}" if more > 0 else "")


def explain_sticky(sticky: StickyColumns) -> tuple[str, str]:
    """The finding about sticky columns, and the remedies for both of its causes.

    >>> from understudy.logs.evaluation.sticky_columns import StickyColumn
    >>> print(*explain_sticky(StickyColumns((StickyColumn("user", 9, 9),), 3, "session")))
    Units of session with the same value of a column seem to have the same action: user (...
    """
    names = [quoted(column.name) for column in sticky.columns if column.name is not None]
    kind, every, instead = "row", "in every row", ""
    columns = "The action seems to stay the same for each value of a column"
    no_unit = "pass --no-unit (in a live study: unit_rows, no_unit)"
    if sticky.unit is not None:
        unit = quoted(sticky.unit)
        kind, every, instead = "unit", f"for each {unit}", f" in place of {unit}"
        columns = f"Units of {unit} with the same value of a column seem to have the same action"
        no_unit = "pass --no-unit too"
    if not names:
        found = f"The action seems to stay the same from one {kind} to the next"
        kept = (
            "for a period of time or for a user, make a column of that period or user, and pass "
            f"it as --unit{instead}"
        )
        cause = "the order of the log"
    else:
        found, cause = columns, "the column"
        kept = f"per value and kept it, pass --unit {names[0]}{instead}"
    if len(names) > 1:
        kept = (
            f"per value of one of them and kept it, pass that one as --unit{instead}; in doubt, "
            "the one with the fewest values is the safe choice"
        )
    if 0 < len(names) < len(sticky.columns):
        kept += "; if it drew one for a period, make a column of that, and pass it"
    return (
        f"{found}: {sticky_line(sticky)}.",
        f"If production drew an action once {kept}. If it drew one {every}, and {cause} follows "
        f"from the action, {no_unit}.",
    )


def repeated_line(repeated: RepeatedRows) -> str:
    """How rows repeat, and how many would by chance.

    >>> repeated_line(RepeatedRows(Repetition.MULTIPLES, 10, 500, 63.0, 500, 5_000))
    '500 of 500 different rows occur a multiple of 10 times; about 63 would by chance'
    """
    k, chance = repeated.times, rough_count(repeated.expected)
    shown = f"{count(repeated.observed)} of {count(repeated.of)}"
    return (
        REPETITIONS[repeated.trace].format(k=k, shown=shown) + f"; about {chance} would by chance"
    )


def calibration_line(calibration: Calibration, labels: Sequence[Label]) -> str:
    """Whether propensities agree with frequencies; the actions that differ most are named."""
    if calibration.finding in CALIBRATIONS:
        return CALIBRATIONS[calibration.finding]
    if calibration.finding is CalibrationFinding.AGREES:
        examined = int(np.isfinite(calibration.ratios).sum())
        return (
            f"propensities agree with frequencies ({count(examined)} of "
            f"{counted(len(labels), 'action')} have enough rows to check)"
        )
    parts = []
    if calibration.wrong.any():
        worst = _worst(labels, calibration.ratios, calibration.wrong, -calibration.ratios)
        parts.append(f"{worst}: these propensities are wrong, and so is every estimate from them")
    if calibration.rare.any():
        worst = _worst(labels, calibration.ratios, calibration.rare, calibration.ratios)
        parts.append(
            f"{worst}: the propensities are too high, the action was not possible in some rows "
            "(eligible sets, contexts), or rare plays did not come up"
        )
    return "; ".join(parts)


def _worst(labels: Sequence[Label], ratios: Array, which: NDArray[np.bool_], order: Array) -> str:
    """The actions whose frequencies differ most from their propensities, by name."""
    first, *rest = [int(a) for a in np.argsort(order) if which[a]]
    names = [f"action {short_label(labels[a])} {ratios[a]:.2g}×" for a in rest]
    others = f" ({list_some(names, FEW_NAMES - 1)})" if names else ""
    often = f"{ratios[first]:.2g}× as often"
    return f"action {short_label(labels[first])} was played {often} as its propensities say{others}"


def drift_line(drift: Drift, labels: Sequence[Label]) -> str:
    """Whether production stayed the same, in its propensities and over time."""
    if drift.finding is DriftFinding.NOT_EXAMINED:
        return NOT_EXAMINED
    parts = []
    if drift.varies:
        parts.append(
            f"the propensity of an action varies by a factor of up to {drift.factor:.2g}, so use "
            "logged propensities and do not estimate them"
        )
    elif math.isfinite(drift.factor):
        parts.append("each action has the same propensity in all rows")
    if drift.finding is DriftFinding.TOO_FEW_ROWS:
        parts.append("too few rows to see changes over time")
    elif drift.finding is DriftFinding.STEADY:
        parts.append(f"shares of actions are steady over time ({drift.periods} periods compared)")
    elif drift.change is not None:
        parts.append(_changed(drift, drift.change, labels))
    return "; ".join(parts) or "unknown; name a column with --time to see changes over time"


def _changed(drift: Drift, most: ShareChange, labels: Sequence[Label]) -> str:
    change = (
        f"shares of actions change over time (action {short_label(labels[most.action])}: between "
        f"{100 * most.lowest:.2g} % and {100 * most.highest:.2g} %)"
    )
    if drift.behavior != LOGGED:
        return f"{change}, which {drift.behavior} propensities ignore: log that of every row"
    if drift.varies:
        return f"{change}, which logged propensities account for"
    return f"{change} though propensities do not: they are wrong, or actions were not random"


# ------------------------------------------------------------------------------------- warnings


UNUSED_BOUNDS = {
    WeightBound.LEAST_PROPENSITY: "The declared least propensity",
    WeightBound.VECTORS: "The propensities of all actions",
}


def log_warnings(result: Result) -> Iterator[str]:
    """Warnings about what was declared of a log and had no effect: bounds on weights, segments."""
    yield from _empty_segments(result.coverage)
    who = UNUSED_BOUNDS.get(result.intake.weight_bound or WeightBound.UNKNOWN)
    centered = [
        bool(one.certificate.centered_rounds)
        for one in result.coverage.verdicts
        if one.certificate is not None
    ]
    if who is not None and centered and not any(centered):
        yield (
            f"{who} had no effect: certificates use it only if the actions were known before the "
            "log, and rows have no eligible sets. If they were known, pass --actions FILE; usually "
            "fewer rows are needed then."
        )


def _empty_segments(coverage: Coverage) -> Iterator[str]:
    """A warning about segments that no row of the log is in."""
    segments = coverage.verdicts[0].segments if coverage.verdicts else None
    if segments is None:
        return
    empty = [short_label(one.gain.name) for one in segments.segments if not one.gain.rounds]
    if empty:
        yield (
            f"No row has {list_some(empty, FEW_NAMES)} in the column {short_label(segments.column)}"
            ": check how these segments are spelled."
        )


def learn_warnings(result: LearnResult) -> Iterator[str]:
    """Warnings about a learned policy."""
    yield from log_warnings(result)
    policy, scale, contextual = result.policy, result.coverage.scale, result.policy.contextual
    late = policy.study.learner.past_horizon(policy.study.state)
    if late:
        yield f"{counted(late, 'row')} came after the horizon, where no theorem holds."
    if not scale.is_unit:
        yield (
            f"Rewards were rescaled from [{number(scale.low)}, {number(scale.high)}] to [0, 1]. "
            "The learner depends on this range: pass the true one."
        )
    yield from _unexpected(result.oddities)
    yield from _no_policies(policy.study)
    if contextual is not None and contextual.encoder.constants:
        yield (
            f"Contexts that did not change in the {counted(contextual.rows, 'row')} of the warm-up "
            f"are left out: {', '.join(contextual.encoder.constants)}; a larger --warmup may see "
            "them change."
        )
    if contextual is not None:
        yield from _unused_numbers(policy.study.learner, contextual.encoder)
    if policy.study.groups is not None:
        yield from _certain_and_few(policy.study.groups, policy.actions.labels)
    if policy.study.certificate is not None:
        yield from _quarantined(policy.refused, result.coverage)


def certify_warnings(result: CertifyResult) -> Iterator[str]:
    """Warnings about a certified policy."""
    yield from log_warnings(result)
    if result.strange is not None and result.coverage.obstacle is not Obstacle.MOSTLY_REJECTED:
        known, shown = (list_some(list(map(short_label, one)), FEW_NAMES) for one in result.strange)
        yield (
            f"The policy and the log have no action in common: the policy knows {known}; the log "
            f"shows {shown}."
        )
    yield from _unexpected(result.oddities)
    yield from _quarantined(result.coverage.refused, result.coverage)


def unread_warnings(unread: Iterable[UnreadFiles]) -> Iterator[str]:
    """Warnings about files of folders that were not read, with the remedy."""
    for folder, names in unread:
        one = len(names) == 1
        yield (
            f"{counted(len(names), 'file')} of the folder {shorten(str(folder), LONGEST_PATH)} "
            f"{'was' if one else 'were'} not read, because "
            f"{'its name does' if one else 'their names do'} not say the format: "
            f"{list_some(list(map(shorten, names)), FEW_NAMES)}; name "
            f"{'it' if one else 'them'}, with --format."
        )


def _unexpected(oddities: Mapping[tuple[str, Unexpected], int]) -> Iterator[str]:
    """Warnings about values of contexts that the warm-up did not have.

    >>> print(*_unexpected({("age", Unexpected.MISSING): 3}))
    Context: age is missing in 3 rows, unlike the warm-up; encoded as rare, missing or unknown.
    """
    for (column, how), rows in oddities.items():
        yield (
            f"Context: {column} is {how} in {counted(rows, 'row')}, unlike the warm-up; encoded as "
            "rare, missing or unknown."
        )


def _no_policies(study: Study) -> Iterator[str]:
    """The expert columns that are no policy: π/q of a policy has a mean of 1 at most."""
    learner, state = study.learner, study.state
    if not isinstance(learner, Exp4) or state.rounds < FEWEST_WEIGHTS:
        return
    _, _, ratios, squares = state.moments
    for name, expert in zip(learner.names, learner.experts, strict=True):
        m = learner.labels.index(name) if isinstance(expert, Outside) else None
        if m is not None and ratios[m] - state.rounds > FAR * math.sqrt(squares[m]):
            yield (
                f"The expert column {quoted(expert.name)} is no policy: its probability over the "
                f"propensity has a mean of {number(ratios[m] / state.rounds, FEW_DIGITS)} in place "
                "of 1, so its reward is overestimated. Log the model's probability of the action "
                "that production played."
            )


def _unused_numbers(learner: Any, encoder: Encoder) -> Iterator[str]:
    """The columns of numbers that tables alone do not use."""
    numbers = [one.name for one in encoder.columns if isinstance(one, NumberColumn)]
    if numbers and isinstance(learner, Mapped) and isinstance(learner.map, Cell):
        yield (
            f"The learner has a table for each combination of labels, and does not use "
            f"{list_some(numbers, FEW_NAMES)}; the default learner and ridge do."
        )


def name_context(key: GroupKey) -> str:
    """The contexts of a group.

    >>> name_context(GroupKey(("city",), "label", ("Rome",)))
    'city = Rome'
    >>> name_context(GroupKey(("age",), "range", low=20.0, high=30.5))
    '20 < age ≤ 30.5'
    """
    column = key.columns[0]
    if key.kind == "range":
        if key.low is None and key.high is None:
            return f"{column} is a number"
        low = "" if key.low is None else f"{number(key.low)} < "
        high = "" if key.high is None else f" ≤ {number(key.high)}"
        return f"{low}{column}{high}" if high else f"{column} > {number(key.low)}"
    if key.kind == "missing":
        return f"{column} is missing"
    if key.kind == "other":
        return f"{column} is another" if len(key.columns) == 1 else "another combination"
    pairs = zip(key.columns, key.labels, strict=True)
    return ", ".join(f"{name} = {quoted(label)}" for name, label in pairs)


def _certain_and_few(groups: ContextGroups, labels: Sequence[Label]) -> Iterator[str]:
    """A warning that names contexts in which the policy is certain and the data are few."""
    found = groups.certain_and_few
    if found:
        names = [
            f"{plain(name_context(key), LONGEST_CONTEXT)} (action {short_label(labels[a])}, "
            f"{counted(plays, 'play')})"
            for key, a, plays in found
        ]
        yield (
            "The policy is certain and the data are few: it plays one action almost always, which "
            f"the log shows fewer than {FEW} times there, in {counted(len(found), 'context')}: "
            f"{list_some(names, FEW_NAMES)}."
        )


def _quarantined(refused: Mapping[str, int], coverage: Coverage) -> Iterator[str]:
    """Warnings that say how quarantined rows count in a certificate, with the remedy."""
    if copies := refused.get(RejectReason.ID_REPEATED, 0):
        yield (
            f"{counted(copies, 'row')} {'has' if copies == 1 else 'have'} the id of an earlier row "
            "and do not count; quarantine.parquet lists them."
        )
    refused = without_copies(refused)
    rejected = sum(refused.values())
    if rejected:
        one = rejected == 1
        yield (
            f"{counted(rejected, 'row')} {'is' if one else 'are'} quarantined "
            f"({list_reasons(refused)}): {remedy_for(refused)}. The certificate counts "
            f"{'it' if one else 'each'} with the worst that it may have been; where no reward is "
            "known, production counts with the highest one (its mean in valid rows is "
            f"{number(coverage.mean_reward)})."
        )
