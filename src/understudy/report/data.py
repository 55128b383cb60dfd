"""A report about a result, as data in the units of the log.

The page, the notebook, the terminal and JSON show the same report.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, singledispatch
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.behaviors import Logged
from understudy.certificates import AnyCertificate, Certified, Window
from understudy.formatting import count, counted, percent
from understudy.learners import Exp4
from understudy.logs.evaluation.diagnostics import CalibrationFinding, DriftFinding
from understudy.logs.evaluation.outcomes import (
    GainBounds,
    NextStep,
    Obstacle,
    PolicyDecision,
    Reason,
    Step,
    Verdict,
    VerdictKind,
    VerdictOutcome,
)
from understudy.logs.evaluation.repeated_rows import RepeatedRows
from understudy.logs.evaluation.sticky_columns import StickyColumns
from understudy.logs.evaluation.verdicts import Coverage
from understudy.logs.outputs import POLICY_FILE
from understudy.logs.policy import FileRead, Policy
from understudy.logs.readers.units import UnitCounts
from understudy.logs.results import UNDERSTUDY, CertifyResult, CoverageResult, LearnResult, Result
from understudy.logs.runs.study import LAST
from understudy.logs.schema import ESTIMATED, LOGGED, RewardScale, WeightBound
from understudy.logs.settings import Assumption
from understudy.plots import CertificatePanel
from understudy.protocols import PRODUCTION
from understudy.report import findings, words
from understudy.report.details import (
    ContextRow,
    ExpertRow,
    GuardrailRow,
    SegmentRow,
    context_rows,
    expert_rows,
    guardrail_rows,
    segment_rows,
)
from understudy.report.words import MARKS, Mark

COLUMNS = {
    "mean_reward": "mean_reward",
    "lowest": "lowest_propensity",
    "highest": "highest_propensity",
    "coverage": "coverage_ratio",
    "effective_sample_size": "effective_sample_size",
}  # of an `ActionRow`, in the table of the coverage


@dataclass(frozen=True, eq=False, kw_only=True)
class CertificateCurve:
    """A certificate after each of some rounds, and estimates beside it at the end.

    All rewards are means per round. Without an order of rows there is one round, the last: then
    `promoted_at` is unknown, and `promoted` says whether promotion is justified. `gain` is None
    where none is certified, `target` names the certified policy. `at_most` says that production may
    have earned less: quarantined rows may count in it with the highest reward. `gain_upper` is the
    last upper bound on the gain, which is `over` production or another baseline, and `window` the
    gain since a round, where only a window shows one. Bets had centers in `centered` rounds,
    because of the `weight_bound`; None if they never have. `worse` says whether a loss was ever
    shown, None if none can be, and `worse_at` after which round first; `rules` is the version of
    the certificate's rules.
    """

    rounds: ArrayLike
    lower: ArrayLike
    upper: ArrayLike
    production: ArrayLike
    gain: ArrayLike | None
    promoted_at: int | None
    confidence: float
    estimate: float
    self_normalised: float
    effective_sample_size: float
    target: str = UNDERSTUDY
    promoted: bool = False
    at_most: bool = False
    gain_upper: float | None = None
    window: Window | None = None
    centered: int | None = None
    weight_bound: WeightBound | None = None
    worse: bool | None = None
    worse_at: int | None = None
    rules: int | None = None
    over: str = PRODUCTION

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """Rounds, lower, upper, production and gain as columns; gain is nan where there is none."""
        gain = np.full(np.shape(self.rounds), np.nan) if self.gain is None else self.gain
        columns = (self.rounds, self.lower, self.upper, self.production, gain)
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


@dataclass(frozen=True)
class ActionRow:
    """What the log and the policy say about one action; None where nothing is known.

    `share` is of the log's rows, `policy` the probability that the policy plays it, `lowest` and
    `highest` the range of its propensities, `coverage` its coverage ratio.
    """

    label: object
    count: int
    share: float
    policy: float | None = None
    mean_reward: float | None = None
    lowest: float | None = None
    highest: float | None = None
    coverage: float | None = None
    effective_sample_size: float | None = None


@dataclass(frozen=True)
class CandidateRow:
    """A policy, and the verdict of the log about it in words and in numbers.

    The fields of a verdict are as in `Report`. `exploration_needed` is in `next_step` too.
    """

    name: str
    words: str
    coverage: float | None = None
    effective_sample_size: float | None = None
    estimate: float | None = None
    decision: PolicyDecision | None = None
    obstacle: Obstacle | None = None
    estimated_gain: float | None = None
    rows_needed: float | None = None
    exploration_needed: float | None = None
    outcome: VerdictOutcome | None = None
    reason: Reason | Obstacle | None = None
    standard_error: float | None = None
    visible_gain: float | None = None
    gain: GainBounds | None = None
    next_step: NextStep | None = None


@dataclass(frozen=True)
class QuarantineCount:
    """How many rows of a file were quarantined for one reason."""

    file: str
    reason: str
    count: int


@dataclass(frozen=True)
class QuarantinedRow:
    """One row that was quarantined, as it stood in its file."""

    file: str
    row: int
    reason: str
    values: Mapping[str, object]


@dataclass(frozen=True, eq=False, kw_only=True)
class Report:
    """A report about a log, and about a policy learned from it or certified on it.

    `verdict` has the numbers or the cause behind the outcome, in words, `step` the next step, and
    `code` Python for it. `outcome`, `reason`, `gain` and `next_step` say the same as data;
    `verdict_kind`, `decision`, `obstacle`, `estimated_gain` and `rows_needed` say it as in release
    0.5. `standard_error` is that of the estimated gain, and `visible_gain` the gain that so many
    rows would show. If the policy depends on the context, the probabilities of its actions are
    means over the last `averaged_over` rows. `contexts` has groups of contexts, whose intervals
    hold with `context_confidence`; `columns_left_out` counts columns of contexts that it leaves
    out. `details` are assumptions about V, κ and the ridge.

    The gain is over the `baseline`, which earns an estimated `baseline_reward`. With `guardrails`
    the decision needs each of them. `worse_somewhere` says whether the policy is certainly worse
    in some of the `segments`. If quarantined rows were left out as `missing_at_random`, or else
    counted with the worst that they may have been, `other_gain` is the lower bound of the other.
    """

    title: str
    verdict: str
    verdict_kind: VerdictKind
    generated_by: str
    generated_at: str
    subtitle: str = ""
    step: str = ""
    code: str = ""
    facts: Sequence[tuple[str, str]] = ()
    details: Sequence[str] = ()
    assumptions: Sequence[str] = ()
    certificate: CertificateCurve | None = None
    actions: Sequence[ActionRow] = ()
    averaged_over: int | None = None
    contexts: Sequence[ContextRow] = ()
    context_confidence: float | None = None
    columns_left_out: int = 0
    experts: Sequence[ExpertRow] = ()
    coverage: Sequence[str] = ()
    candidates: Sequence[CandidateRow] = ()
    quarantine: Sequence[QuarantineCount] = ()
    examples: Sequence[QuarantinedRow] = ()
    files: Sequence[FileRead] = ()
    warnings: Sequence[str] = ()
    decision: PolicyDecision | None = None
    obstacle: Obstacle | None = None
    estimated_gain: float | None = None
    rows_needed: float | None = None
    outcome: VerdictOutcome | None = None
    reason: Reason | Obstacle | None = None
    standard_error: float | None = None
    visible_gain: float | None = None
    gain: GainBounds | None = None
    next_step: NextStep | None = None
    baseline: str = PRODUCTION
    baseline_reward: float | None = None
    guardrails: Sequence[GuardrailRow] = ()
    segment_column: str | None = None
    segments: Sequence[SegmentRow] = ()
    worse_somewhere: bool | None = None
    missing_at_random: bool = False
    other_gain: float | None = None
    calibration: CalibrationFinding | None = None
    drift: DriftFinding | None = None
    repeated_rows: RepeatedRows | None = None
    sticky_columns: StickyColumns | None = None
    units: UnitCounts | None = None
    weight_bound: WeightBound | None = None

    @property
    def mark(self) -> Mark:
        """Sign, word and style of the outcome."""
        return words.COVERAGE if self.outcome is None else MARKS[self.outcome]

    @property
    def said(self) -> str:
        """The numbers or the cause behind the outcome, and the next step."""
        return f"{self.verdict} {self.step}".rstrip()

    @property
    def words(self) -> str:
        """The verdict in a line: its word, where something was to be decided, and the numbers."""
        return self.said if self.outcome is None else f"{self.mark.word}. {self.said}"

    @cached_property
    def has_policy(self) -> bool:
        """Whether the report is about a policy with known probabilities."""
        return any(row.policy is not None for row in self.actions)

    @cached_property
    def rows(self) -> int:
        """How many rows the files have, with quarantined ones."""
        return sum(file.rows for file in self.files)

    @cached_property
    def quarantined(self) -> int:
        """How many rows were quarantined."""
        return sum(group.count for group in self.quarantine)

    @cached_property
    def reasons(self) -> dict[str, int]:
        """How many rows were quarantined for each reason, the most frequent first."""
        totals = Counter[str]()
        for group in self.quarantine:
            totals[group.reason] += group.count
        return dict(totals.most_common())


# ---------------------------------------------------------------------------- reports from results


@singledispatch
def report_of(result: Result) -> Report:
    """The report about a result of `learn`, `certify` or `coverage`."""
    raise TypeError(f"there is no report about {type(result).__name__}")


@report_of.register
def _report_learned(result: LearnResult) -> Report:
    policy, settings = result.policy, result.policy.settings
    facts = [
        ("Learner", words.learner(settings)),
        ("Guarantee", words.guarantee(settings)),
        ("Behavior", words.BEHAVIORS[settings.behavior]),
        (f"{_noun(result)} learned from", count(policy.study.rounds)),
        ("Horizon", "none needed" if settings.horizon is None else count(settings.horizon)),
    ]
    if reason := words.why_chosen(policy):
        facts.insert(1, ("Why this learner", reason))
    if share := words.production_share(policy):
        facts.append(("Plays in which it does as production does", percent(share)))
    if policy.warmup:
        facts.append(("Rows that prepared the features", count(policy.warmup)))
    proven = _certificate_facts(result.certified, result.coverage, UNDERSTUDY, "While learning")
    if proven:
        proven.append(("The policy now", "certify it on a later log with understudy certify"))
    return Report(
        title="What was learned from this log",
        facts=[*facts, *proven],
        assumptions=[*words.assumptions(policy), *_about_runs(result)],
        details=words.feature_assumptions(policy),
        averaged_over=None if policy.contextual is None else min(LAST, policy.rows),
        code=_ramp_code(result, policy, POLICY_FILE),
        **_detail_fields(policy),
        **_verdict_fields(result, result.certified, result.obstacle, UNDERSTUDY),
        **_log_fields(result, files=policy.files),
    )


def _ramp_code(result: LearnResult | CertifyResult, policy: Policy | None, name: str) -> str:
    """Python that plays a promoted policy, if it can be loaded."""
    if policy is None or result.outcome is not VerdictOutcome.PROMOTE:
        return ""
    path = name if Path(name).suffix == Path(POLICY_FILE).suffix else POLICY_FILE
    columns = [] if policy.contextual is None else list(policy.contextual.encoder.names)
    return words.ramp_code(path, columns, policy.study.learner.spec.outside)


def _about_runs(result: LearnResult) -> list[str]:
    """What no run of several could find: a unit whose rows are in different runs."""
    policy = result.policy
    resumed = len(policy.files) > len(result.intake.files)
    declared = policy.units is not None or policy.settings.no_unit
    return [words.FRESH_DRAWS_OF_RUNS] if resumed and not declared else []


@report_of.register
def _report_certified(result: CertifyResult) -> Report:
    facts = [
        ("Policy", result.name),
        ("Behavior", words.BEHAVIORS[result.kind]),
        (_noun(result), count(result.certified.certificate.rounds)),
        *_certificate_facts(result.certified, result.coverage, result.name, "On this log"),
    ]
    by_unit = result.coverage.by_unit
    own = "rows or units" if by_unit else "rows"
    assumptions = [f"the policy was neither learned from {own} of this log nor chosen by them"]
    if result.kind == ESTIMATED:
        assumptions.append(words.ASSUMPTIONS[Assumption.FIXED_BEHAVIOR])
    if by_unit:
        assumptions.append(words.UNITS)
    elif result.coverage.sticky is None or not result.coverage.sticky.found:
        assumptions.append(words.FRESH_DRAWS)  # no search sees all: the user may be in no column
    return Report(
        title=f"What this log says about {result.name}",
        code=_ramp_code(result, result.learned, result.name),
        facts=facts,
        assumptions=assumptions,
        **_verdict_fields(result, result.certified, None, result.name),
        **_log_fields(result),
    )


@report_of.register
def _report_coverage(result: CoverageResult) -> Report:
    coverage = result.coverage
    actions, facts = (
        counted(len(coverage.table), "action"),
        [("Behavior", words.BEHAVIORS[result.kind])],
    )
    if bound := result.intake.weight_bound:
        facts.append(("Bound on the weights of a row", words.weight_bound(bound)))
    return Report(
        title="What this log can say",
        verdict=f"{counted(coverage.rows, words.round_noun(coverage))} of {actions}.",
        facts=facts,
        **_log_fields(result),
    )


def _noun(result: Result) -> str:
    """What a row of the result is."""
    return f"{words.round_noun(result.coverage).capitalize()}s"


def curve_of(
    certified: Certified,
    coverage: Coverage,
    target: str = UNDERSTUDY,
    bound: WeightBound | None = None,
) -> CertificateCurve:
    """The curve of a certificate, as means per round; estimates are means of valid rows."""
    scale, rows, certificate = coverage.scale, coverage.rows, certified.certificate
    t, n, gain, most = (
        certified.rounds,
        certificate.rounds,
        certified.gain_curve,
        certified.gain_upper,
    )
    window = certified.window
    if window is not None and (window.start == 1 or window.gain <= 0.0):
        window = None
    _, weighted, weights, _ = certified.certificate.evidence.totals.tolist()
    return CertificateCurve(
        rounds=t,
        lower=scale.reward(certified.lower_curve / t),
        upper=scale.reward(certified.upper_curve / t),
        production=scale.reward(certified.production_curve / t),
        gain=None if gain is None else scale.gain(gain / t),
        promoted_at=certified.promoted_at,
        confidence=certified.certificate.confidence,
        estimate=scale.weighted(weighted, weights) / max(rows, 1),
        self_normalised=scale.reward(certified.self_normalised / n),
        effective_sample_size=certified.effective_sample_size,
        target=target,
        promoted=bool(certified.promoted),
        at_most=n > rows,
        gain_upper=None if most is None else scale.gain(most / n),
        window=None if window is None else Window(window.start, scale.gain(window.gain)),
        centered=certificate.centered_rounds if certificate.centered else None,
        weight_bound=bound or _bound_of(certificate),
        worse=certificate.worse,
        worse_at=certificate.worse_at,
        rules=certificate.rules,
        over=_baseline_name(coverage),
    )


def _baseline_name(coverage: Coverage) -> str:
    """The baseline of the first verdict."""
    baseline = coverage.verdicts[0].baseline if coverage.verdicts else None
    return PRODUCTION if baseline is None else baseline.name


def _bound_of(certificate: AnyCertificate) -> WeightBound | None:
    """What bounded the weights of a certificate, if all that is known is the certificate."""
    if not isinstance(certificate.behavior, Logged):
        return None if certificate.behavior is None else WeightBound.BEHAVIOR
    least = certificate.behavior.least_propensity
    vectors = least is None and certificate.centered_rounds > 0
    return WeightBound.of(LOGGED, least, vectors=vectors)


def panel_of(certified: Certified, coverage: Coverage) -> CertificatePanel:
    """The curves of a certificate for a matplotlib figure."""
    curve = curve_of(certified, coverage)
    return CertificatePanel(
        f"{percent(curve.confidence)} confidence",
        curve.rounds,
        curve.lower,
        curve.upper,
        curve.production,
        curve.gain,
        curve.promoted_at,
    )


def _certificate_facts(
    certified: Certified | None, coverage: Coverage, who: str, when: str
) -> list[tuple[str, str]]:
    """The bounds of a certificate as a fact; none if the verdict calls it unsound."""
    if certified is None or not coverage.verdicts[0].sound:
        return []
    found = coverage.verdicts[0]
    facts = [("Certificate", words.describe_certificate(certified, coverage, who, when))]
    if found.other_gain is not None:
        facts.append(("Quarantined rows", words.describe_quarantined(found, coverage)))
    return facts


def _verdict_fields(
    result: Result, certified: Certified | None, obstacle: Obstacle | None, who: str
) -> dict[str, Any]:
    """The fields of the verdict about the first policy; without a certificate, the obstacle."""
    coverage, bound = result.coverage, result.intake.weight_bound
    if certified is None:
        assert obstacle is not None  # every missing certificate has one
        finding, step = words.explain_obstacle(
            obstacle, coverage.refused, coverage.repeated, coverage.sticky
        )
        return {
            "verdict": finding,
            "step": step,
            "decision": PolicyDecision.UNKNOWN,
            "obstacle": obstacle,
            "outcome": VerdictOutcome.CANNOT_TELL,
            "reason": obstacle,
            "next_step": NextStep(Step.REMOVE_OBSTACLE),
        }
    found = coverage.verdicts[0]
    finding, step = words.explain(found, coverage)
    curve = curve_of(certified, coverage, who, bound) if found.sound else None
    if curve is not None and result.joint is not None:  # which a promotion needs, too
        at, promoted = result.joint.promoted_at, result.joint.promoted
        curve = replace(curve, promoted=promoted, promoted_at=at if curve.promoted_at else None)
    return {
        "verdict": finding,
        "step": step,
        "certificate": curve,
        **_decision_fields(found, coverage.scale),
        **_question_fields(found, coverage.scale),
    }


def _detail_fields(policy: Policy) -> dict[str, Any]:
    """The fields about contexts and experts, of a policy that has them."""
    groups, contextual = policy.study.groups, policy.contextual
    found: dict[str, Any] = {}
    if groups is not None and contextual is not None:
        shown = {name for key in groups.keys for name in key.columns}
        found = {
            "contexts": context_rows(policy),
            "context_confidence": groups.confidence,
            "columns_left_out": len(contextual.encoder.columns) - len(shown),
        }
    if isinstance(policy.study.learner, Exp4):
        found["experts"] = expert_rows(policy.study, policy.settings.scale)
    return found


def _decision_fields(found: Verdict, scale: RewardScale) -> dict[str, Any]:
    needed, bounds = found.sample_size, found.gain

    def in_units(gain: float | None) -> float | None:
        return None if gain is None else _none_if_nan(scale.gain(gain))

    return {
        "decision": found.decision,
        "obstacle": found.obstacle,
        "estimated_gain": in_units(found.estimated_gain),
        "rows_needed": None if needed is None else needed.rows,
        "outcome": found.outcome,
        "reason": found.reason,
        "standard_error": in_units(found.standard_error),
        "visible_gain": in_units(found.visible_gain),
        "gain": GainBounds(
            in_units(bounds.estimate),
            in_units(bounds.low),
            in_units(bounds.high),
            bounds.since,
            in_units(bounds.low_since),
        ),
        "next_step": found.next_step,
    }


def _question_fields(found: Verdict, scale: RewardScale) -> dict[str, Any]:
    """The fields of the question that was asked about the first policy."""
    baseline, segments, other = found.baseline, found.segments, found.other_gain
    return {
        "baseline": PRODUCTION if baseline is None else baseline.name,
        "baseline_reward": None
        if baseline is None
        else _none_if_nan(scale.reward(baseline.reward)),
        "guardrails": guardrail_rows(found),
        "segment_column": None if segments is None else segments.column,
        "segments": segment_rows(found, scale),
        "worse_somewhere": None if segments is None else segments.worse_somewhere,
        "missing_at_random": found.missing_at_random,
        "other_gain": None if other is None else scale.gain(other),
    }


def _log_fields(result: Result, files: Sequence[FileRead] | None = None) -> dict[str, Any]:
    """The fields of every report: actions, findings, policies, files and quarantine.

    `files` replaces the files of this run where a policy remembers earlier ones too.
    """
    coverage, intake, average = result.coverage, result.intake, result.average
    examples = intake.examples
    return {
        "verdict_kind": result.verdict,
        "generated_by": f"understudy {version('understudy')}",
        "generated_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "warnings": [*findings.unread_warnings(intake.unread), *result.warnings],
        "actions": [
            ActionRow(
                label=row["action"],
                count=row["count"],
                share=row["share"],
                policy=None if average is None else float(average[i]),
                **{name: _none_if_nan(row[column]) for name, column in COLUMNS.items()},
            )
            for i, row in enumerate(coverage.table.iter_rows(named=True))
        ],
        "coverage": findings.describe_log(coverage),
        "candidates": [_candidate_row(found, coverage) for found in coverage.verdicts],
        "calibration": coverage.calibration.finding,
        "drift": coverage.drift.finding,
        "repeated_rows": coverage.repeated,
        "sticky_columns": coverage.sticky,
        "units": coverage.units,
        "weight_bound": intake.weight_bound,
        "quarantine": [
            QuarantineCount(file, reason, rows)
            for (file, reason), rows in intake.quarantined.items()
        ],
        "examples": [
            QuarantinedRow(file, row, reason, dict(zip(examples.columns[3:], values, strict=True)))
            for file, row, reason, *values in examples.iter_rows()
        ],
        "files": intake.files if files is None else files,
    }


def _candidate_row(found: Verdict, coverage: Coverage) -> CandidateRow:
    needed = found.sample_size
    return CandidateRow(
        name=found.name,
        words=words.describe_verdict(found, coverage),
        coverage=found.overlap.coverage_ratio,
        effective_sample_size=found.overlap.effective_sample_size,
        estimate=coverage.scale.reward(found.overlap.estimate),
        exploration_needed=None if needed is None else needed.exploration,
        **_decision_fields(found, coverage.scale),
    )


def _none_if_nan(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
