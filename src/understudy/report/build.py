"""Reports from results: what `learn`, `certify` and `coverage` found, in the units of the log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import singledispatch
from importlib.metadata import version
from typing import Any

import numpy as np
import polars as pl

from understudy.certificates import Certified
from understudy.constraints import Array
from understudy.formatting import count, counted, percent
from understudy.logs.evaluation.coverage_table import Coverage
from understudy.logs.evaluation.verdicts import Obstacle, PolicyDecision, Verdict
from understudy.logs.results import UNDERSTUDY, CertifyResult, CoverageResult, LearnResult, Result
from understudy.logs.runs.default_learner import FIXED
from understudy.logs.runs.provenance import Provenance
from understudy.logs.runs.study import LAST
from understudy.logs.schema import ESTIMATED, RewardScale
from understudy.plots import CertificatePanel
from understudy.report import words
from understudy.report.data import (
    ActionRow,
    CandidateRow,
    CertificateCurve,
    QuarantineCount,
    QuarantinedRow,
    Report,
)

COLUMNS = {
    "mean_reward": "mean_reward",
    "lowest": "lowest_propensity",
    "highest": "highest_propensity",
    "coverage": "coverage_ratio",
    "effective_sample_size": "effective_sample_size",
}  # of an `ActionRow`, in the table of the coverage


@singledispatch
def report_of(result: Result) -> Report:
    """The report about a result of `learn`, `certify` or `coverage`."""
    raise TypeError(f"there is no report about {type(result).__name__}")


@report_of.register
def _learned(result: LearnResult) -> Report:
    policy, coverage, settings = result.policy, result.coverage, result.policy.settings
    facts = [
        ("Learner", settings.learner),
        ("Guarantee", settings.theorem),
        ("Behavior", words.BEHAVIORS[settings.behavior]),
        ("Rows learned from", count(policy.study.rounds)),
        ("Horizon", "none needed" if settings.horizon is None else count(settings.horizon)),
    ]
    if policy.warmup:
        facts.append(("Rows that prepared the features", count(policy.warmup)))
    if result.certified is not None and coverage.verdicts[0].sound:
        line = _certified_line(result.certified, coverage, UNDERSTUDY, "While learning")
        facts.append(("Certificate", line))
        facts.append(("The policy now", "certify it on a later log with understudy certify"))
    return Report(
        title="What was learned from this log",
        verdict_kind=result.verdict,
        facts=facts,
        assumptions=settings.unmet,
        averaged_over=None if policy.contextual is None else LAST,
        warnings=[*result.intake.remarks, *result.warnings],
        **_judged(result.certified, result.obstacle, coverage, UNDERSTUDY),
        **_log(coverage, replace(result.intake, files=policy.files), policy.average),
    )


@report_of.register
def _certified(result: CertifyResult) -> Report:
    coverage, certified = result.coverage, result.certified
    facts = [
        ("Policy", result.name),
        ("Behavior", words.BEHAVIORS[result.kind]),
        ("Rows", count(certified.certificate.rounds)),
    ]
    if coverage.verdicts[0].sound:
        line = _certified_line(certified, coverage, result.name, "On this log")
        facts.append(("Certificate", line))
    assumptions = ["the policy was neither learned from rows of this log nor chosen by them"]
    if result.kind == ESTIMATED:
        assumptions.append(FIXED)
    policy = None if result.policy is None else np.array(list(result.policy.values()))
    return Report(
        title=f"What this log says about {result.name}",
        verdict_kind=result.verdict,
        facts=facts,
        assumptions=assumptions,
        warnings=[*result.intake.remarks, *result.warnings],
        **_judged(certified, None, coverage, result.name),
        **_log(coverage, result.intake, policy),
    )


@report_of.register
def _covered(result: CoverageResult) -> Report:
    coverage = result.coverage
    actions = counted(len(coverage.table), "action")
    return Report(
        title="What this log can say",
        verdict=f"{counted(coverage.rows, 'row')} of {actions}.",
        verdict_kind=result.verdict,
        facts=[("Behavior", words.BEHAVIORS[result.kind])],
        warnings=result.intake.remarks,
        **_log(coverage, result.intake, None),
    )


def panel_of(certified: Certified, scale: RewardScale) -> CertificatePanel:
    """The curves of a certificate for a picture, in the units of the log."""
    panel = certified.panel(f"{percent(certified.certificate.confidence)} confidence")
    return replace(
        panel,
        lower=scale.reward(np.asarray(panel.lower)),
        upper=scale.reward(np.asarray(panel.upper)),
        production=scale.reward(np.asarray(panel.production)),
        gain=None if panel.gain is None else scale.gain(np.asarray(panel.gain)),
    )


def _judged(
    certified: Certified | None, obstacle: Obstacle | None, coverage: Coverage, who: str
) -> dict[str, Any]:
    """The verdict about one policy, the first of the coverage's; or why there is none."""
    if certified is None:
        assert obstacle is not None  # that there is no certificate has a reason
        explained = words.explain_obstacle(obstacle, coverage.refused)
        return {"verdict": explained, "decision": PolicyDecision.UNKNOWN, "obstacle": obstacle}
    found = coverage.verdicts[0]
    needed = found.sample_size
    curve = _curve(certified, coverage.scale, who, coverage.rows) if found.sound else None
    return {
        "headline": words.headline(found),
        "verdict": words.explain(found, coverage),
        "decision": found.decision,
        "obstacle": found.obstacle,
        "estimated_gain": _known(coverage.scale.gain(found.estimated_gain)),
        "rows_needed": None if needed is None else needed.rows,
        "certificate": curve,
    }


def _log(coverage: Coverage, intake: Provenance, policy: Array | None) -> dict[str, Any]:
    """What stands in every report: the actions, the log, the policies, files and quarantine."""
    examples = intake.examples
    return {
        "generated_by": f"understudy {version('understudy')}",
        "generated_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "actions": _action_rows(coverage.table, policy),
        "coverage": words.findings(coverage),
        "candidates": [_candidate(found, coverage) for found in coverage.verdicts],
        "calibration": coverage.calibration.finding,
        "drift": coverage.drift.finding,
        "quarantine": [
            QuarantineCount(file, reason, rows)
            for (file, reason), rows in intake.quarantined.items()
        ],
        "examples": [
            QuarantinedRow(file, row, reason, dict(zip(examples.columns[3:], values, strict=True)))
            for file, row, reason, *values in examples.iter_rows()
        ],
        "files": intake.files,
    }


def _certified_line(certified: Certified, coverage: Coverage, who: str, when: str) -> str:
    rejected = certified.certificate.rounds - coverage.rows
    return words.certified_line(certified, coverage.scale, who, when, rejected=rejected)


def _curve(certified: Certified, scale: RewardScale, target: str, rows: int) -> CertificateCurve:
    """A certificate over time, as means a round; estimates are of the `rows` that were read."""
    t, n = certified.rounds, certified.certificate.rounds
    gain = certified.gain_curve
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
    )


def _candidate(found: Verdict, coverage: Coverage) -> CandidateRow:
    needed, scale = found.sample_size, coverage.scale
    return CandidateRow(
        name=found.name,
        words=words.judged(found, coverage),
        coverage=found.overlap.coverage_ratio,
        effective_sample_size=found.overlap.effective_sample_size,
        estimate=scale.reward(found.overlap.estimate),
        decision=found.decision,
        obstacle=found.obstacle,
        estimated_gain=_known(scale.gain(found.estimated_gain)),
        rows_needed=None if needed is None else needed.rows,
        exploration_needed=None if needed is None else needed.exploration,
    )


def _action_rows(table: pl.DataFrame, policy: Array | None) -> Sequence[ActionRow]:
    return [
        ActionRow(
            label=row["action"],
            count=row["count"],
            share=row["share"],
            policy=None if policy is None else float(policy[i]),
            **{name: _known(row[column]) for name, column in COLUMNS.items()},
        )
        for i, row in enumerate(table.iter_rows(named=True))
    ]


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
