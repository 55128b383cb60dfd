"""Results as reports: what is said about a log, in the units of its rewards."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import polars as pl

from understudy.certificates import Certified
from understudy.constraints import Array
from understudy.logs.coverage_table import Coverage
from understudy.logs.provenance import Provenance
from understudy.logs.scan import counted, remedy_for
from understudy.logs.schema import ESTIMATED, GIVEN, LOGGED, Scale
from understudy.logs.verdict_words import CANNOT
from understudy.logs.verdicts import Verdict
from understudy.plots import Panel
from understudy.report import (
    ActionRow,
    Candidate,
    CertificateCurve,
    FileRow,
    QuarantineCount,
    QuarantinedRow,
    Report,
    VerdictKind,
)
from understudy.report.wording import counted as so_many
from understudy.report.wording import number

__all__ = [
    "BEHAVIOR_WORDS",
    "Said",
    "as_dict",
    "assemble",
    "panel_of",
    "say",
    "set_aside",
]

BEHAVIOR_WORDS = {
    LOGGED: "propensities as logged, row by row",
    GIVEN: "fixed probabilities, as given",
    ESTIMATED: "not known: counted, and taken to be the same in all rows",
}


@dataclass(frozen=True, eq=False)
class Said:
    """A verdict, in words; `curve` and `sentence` only if the certificate can be relied on."""

    kind: VerdictKind
    words: str
    curve: CertificateCurve | None = None
    sentence: str | None = None


def say(certified: Certified, coverage: Coverage, who: str, scale: Scale) -> Said:
    """What a certificate says about the first policy of `coverage`, if anything."""
    found = coverage.verdicts[0]
    kind, words = _verdict(certified, found, who)
    if not found.sound:
        return Said(kind, words)
    aside = certified.certificate.rounds - coverage.rows
    certainty = _certainty(certified, scale, who, aside=aside)
    return Said(kind, words, _curve_of(certified, scale, who, coverage.rows), certainty)


def _curve_of(certified: Certified, scale: Scale, target: str, rows: int) -> CertificateCurve:
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


def _certainty(certified: Certified, scale: Scale, who: str, *, aside: int) -> str:
    """What the certificate says, as people say it; `aside` of its rows could not be read."""
    at_most = "at most " if aside else ""
    n, percent = certified.certificate.rounds, 100 * certified.certificate.confidence
    lower, production = (scale.reward(x / n) for x in (certified.lower, certified.production))
    gain = (
        "no gain is certified, as the behavior was only counted"
        if certified.gain is None
        else f"the gain is at least {number(scale.gain(certified.gain / n))}"
    )
    return (
        f"with {percent:.6g} % confidence, {who} would have earned at least {number(lower)} per "
        f"round; production earned {at_most}{number(production)}; {gain}"
    )


def _verdict(certified: Certified, found: Verdict, who: str) -> tuple[VerdictKind, str]:
    """One clear sentence: promote, not yet, worse, or that this log cannot tell, and why."""
    percent = f"{100 * certified.certificate.confidence:.6g} % confidence"
    if found.decision == "better":
        when = f" after round {certified.promoted_at:,}" if certified.promoted_at else ""
        return "promote", _sentence(f"{who} was shown to beat production{when}, with {percent}")
    if found.decision == "worse":
        return "worse", _sentence(f"{who} earns less than production, with {percent}")
    if found.near:
        return "not yet", _sentence(f"{who}: {found.words.removeprefix(f'{CANNOT}: ')}")
    return "cannot tell", _sentence(f"{CANNOT} about {who}{found.words.removeprefix(CANNOT)}")


def set_aside(refused: Mapping[str, int], production: float) -> list[str]:
    """What becomes of rows that were set aside, and what to do about them, in sentences."""
    aside = sum(refused.values())
    if not aside:
        return []
    return [
        f"{so_many(aside, 'row')} {'was' if aside == 1 else 'were'} set aside "
        f"({counted(refused)}): {remedy_for(refused)}. In the certificate the policy earns nothing "
        "there, and production what is said, or the most possible where nothing is; in the rows "
        f"that can be read it earned {number(production)}."
    ]


def panel_of(certified: Certified, scale: Scale) -> Panel:
    """The curves of a certificate for a picture, in the units of the log."""
    panel = certified.panel(f"{100 * certified.certificate.confidence:.6g} % confidence")
    return dataclasses.replace(
        panel,
        lower=scale.reward(np.asarray(panel.lower)),
        upper=scale.reward(np.asarray(panel.upper)),
        production=scale.reward(np.asarray(panel.production)),
        gain=None if panel.gain is None else scale.gain(np.asarray(panel.gain)),
    )


def _sentence(words: str) -> str:
    first = words.split(" ", maxsplit=1)[0]
    begin = words[0].upper() if first.isalpha() else words[0]  # not that of a path
    return f"{begin}{words[1:]}."


def assemble(
    *,
    title: str,
    said: Said,
    facts: Sequence[tuple[str, str]],
    coverage: Coverage,
    scale: Scale,
    intake: Provenance,
    assumptions: Sequence[str] = (),
    policy: Array | None = None,
    averaged_over: int | None = None,
    warnings: Sequence[str] = (),
) -> Report:
    """A report from its parts."""
    examples = intake.examples
    return Report(
        title=title,
        verdict=said.words,
        verdict_kind=said.kind,
        generated_by=f"understudy {version('understudy')}",
        generated_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        facts=facts,
        assumptions=assumptions,
        certificate=said.curve,
        actions=_action_rows(coverage.table, policy),
        averaged_over=averaged_over,
        coverage=coverage.findings(),
        candidates=[_candidate(found, scale) for found in coverage.verdicts],
        quarantine=[QuarantineCount(f, reason, n) for (f, reason), n in intake.quarantined.items()],
        examples=[
            QuarantinedRow(file, row, reason, dict(zip(examples.columns[3:], values, strict=True)))
            for file, row, reason, *values in examples.iter_rows()
        ],
        files=[FileRow(f.name, f.sha256, f.rows, f.quarantined) for f in intake.files],
        warnings=[*intake.remarks, *warnings],
    )


def _candidate(found: Verdict, scale: Scale) -> Candidate:
    reach = found.reach
    return Candidate(
        found.name,
        found.words,
        reach.coverage_ratio,
        reach.effective_sample_size,
        scale.reward(reach.estimate),
    )


def _action_rows(table: pl.DataFrame, policy: Array | None) -> list[ActionRow]:
    names = {
        "mean_reward": "mean_reward",
        "lowest": "lowest_propensity",
        "highest": "highest_propensity",
        "coverage": "coverage_ratio",
        "effective_sample_size": "effective_sample_size",
    }
    return [
        ActionRow(
            label=row["action"],
            count=row["count"],
            share=row["share"],
            policy=None if policy is None else float(policy[i]),
            **{name: _known(row[column]) for name, column in names.items()},
        )
        for i, row in enumerate(table.iter_rows(named=True))
    ]


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def as_dict(report: Report) -> dict[str, Any]:
    """A report for machines: what JSON can hold, null for what is not known."""
    curve = report.certificate
    found: dict[str, Any] = {
        "verdict": report.verdict_kind,
        "words": report.verdict,
        "facts": dict(report.facts),
        "assumptions": list(report.assumptions),
        "warnings": list(report.warnings),
        "coverage": list(report.coverage),
        "certificate": None,
        "candidates": [dataclasses.asdict(candidate) for candidate in report.candidates],
        "actions": [dataclasses.asdict(row) for row in report.actions],
        "quarantined": [dataclasses.asdict(count) for count in report.quarantine],
        "files": [dataclasses.asdict(file) for file in report.files],
    }
    if curve is not None:
        rounds, lower, upper, production, gain = curve.table[-1].tolist()
        found["certificate"] = {
            "confidence": curve.confidence,
            "rounds": int(rounds),
            "lower": lower,
            "upper": upper,
            "production": production,
            "production_is_at_most": curve.at_most,
            "gain": gain,
            "promoted_at": curve.promoted_at,
            "ips": curve.estimate,
            "self_normalised_ips": curve.self_normalised,
            "effective_sample_size": curve.effective_sample_size,
        }
    return {key: _finite(value) for key, value in found.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
