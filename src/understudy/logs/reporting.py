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
from understudy.logs.columns import ESTIMATED, GIVEN, LOGGED, Kind
from understudy.logs.findings import Coverage
from understudy.logs.passes import Intake
from understudy.logs.scale import Scale
from understudy.logs.survey import counted, remedy_for
from understudy.logs.verdicts import CANNOT, Verdict
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

__all__ = [
    "BEHAVIOR_WORDS",
    "Said",
    "as_dict",
    "assemble",
    "panel_of",
    "say",
    "set_aside",
    "unusable",
]

NEAR = 10  # times the rows: what so many would show is not shown yet, beyond nobody can tell
BEHAVIOR_WORDS = {
    LOGGED: "propensities as logged, row by row",
    GIVEN: "fixed probabilities, as given",
    ESTIMATED: "not known: counted, and taken to be the same in all rows",
}
DRIFTING = (
    "This log cannot tell: production changed over time, so its propensities cannot be counted. "
    "Log them with every row."
)


@dataclass(frozen=True, eq=False)
class Said:
    """A verdict, in words; `curve` and `sentence` only if the certificate can be relied on."""

    kind: VerdictKind
    words: str
    curve: CertificateCurve | None = None
    sentence: str | None = None


def say(
    certified: Certified,
    coverage: Coverage,
    behavior: Kind,
    *,
    who: str,
    rows: int,
    refused: Mapping[str, int],
    scale: Scale,
) -> Said:
    """What a certificate says about the first policy of `coverage`, if anything.

    `rows` were used, and others refused. That of a counted behavior holds only if it stayed the
    same; one whose bounds contradict each other shows that something is wrong with the log.
    """
    if (few := unusable(rows, refused)) is not None:
        return Said("cannot tell", few)
    if behavior == ESTIMATED and coverage.drift.fixed is False:
        return Said("cannot tell", DRIFTING)
    kind, words = _verdict(certified, coverage.verdicts[0], who)
    if certified.lower > certified.upper:
        return Said(kind, words)
    certainty = _certainty(certified, scale, who, aside=sum(refused.values()))
    return Said(kind, words, _curve_of(certified, scale, who), certainty)


def _curve_of(certified: Certified, scale: Scale, target: str) -> CertificateCurve:
    """A certificate over time, as means a round."""
    t, n = certified.rounds, certified.certificate.rounds
    gain = certified.gain_curve
    return CertificateCurve(
        rounds=t,
        lower=scale.reward(certified.lower_curve / t),
        upper=scale.reward(certified.upper_curve / t),
        production=scale.reward(certified.production_curve / t),
        gain=None if gain is None else scale.gain(gain / t),
        promoted_at=certified.promoted_at,
        confidence=certified.certificate.confidence,
        estimate=scale.reward(certified.estimate / n),
        self_normalised=scale.reward(certified.self_normalised / n),
        effective_sample_size=certified.effective_sample_size,
        target=target,
        promoted=bool(certified.promoted),
    )


def _certainty(certified: Certified, scale: Scale, who: str, *, aside: int) -> str:
    """What the certificate says, as people say it; `aside` rows were set aside."""
    at_most = "at most " if aside else ""
    n, percent = certified.certificate.rounds, 100 * certified.certificate.confidence
    lower, production = (scale.reward(x / n) for x in (certified.lower, certified.production))
    gain = (
        "no gain is certified, as the behavior was only counted"
        if certified.gain is None
        else f"the gain is at least {scale.gain(certified.gain / n):.4g}"
    )
    return (
        f"with {percent:.6g} % confidence, {who} would have earned at least {lower:.4g} per round; "
        f"production earned {at_most}{production:.4g}; {gain}"
    )


def _verdict(certified: Certified, found: Verdict, who: str) -> tuple[VerdictKind, str]:
    """One clear sentence: promote, not yet, worse, or that this log cannot tell, and why."""
    percent = f"{100 * certified.certificate.confidence:.6g} % confidence"
    if certified.lower > certified.upper:
        return "cannot tell", _sentence(found.words)
    if certified.promoted:
        when = f" after round {certified.promoted_at:,}" if certified.promoted_at else ""
        lost = (
            ""
            if (certified.gain or 0.0) > 0.0
            else ", but over all rounds there is no certain gain any more"
        )
        return "promote", _sentence(
            f"{who} was shown to beat production{when}, with {percent}{lost}"
        )
    if certified.upper < certified.production:
        return "worse", _sentence(f"{who} earns less than production, with {percent}")
    if certified.gain is None or found.enough is None or found.reach.hidden > 0.0:
        return "cannot tell", _sentence(found.words)
    near = found.enough.rows < NEAR * certified.certificate.rounds
    if near and certified.estimate > certified.production:
        return "not yet", _sentence(found.words.removeprefix(f"{CANNOT}: "))
    return "cannot tell", _sentence(found.words)


def unusable(rows: int, refused: Mapping[str, int]) -> str | None:
    """Why nothing is said, if more rows were set aside than were used."""
    if sum(refused.values()) <= rows:
        return None
    return f"This log cannot tell: most of its rows were set aside ({counted(refused)}); " + (
        f"{remedy_for(refused)}."
    )


def set_aside(refused: Mapping[str, int], production: float) -> list[str]:
    """What becomes of rows that were set aside, and what to do about them, in sentences."""
    aside = sum(refused.values())
    if not aside:
        return []
    return [
        f"{aside:,} rows were set aside ({counted(refused)}): {remedy_for(refused)}. In the "
        "certificate the policy earns nothing in them, and production what they say, or the most "
        f"possible where they do not; in the rows that can be read it earned {production:.4g}."
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
    intake: Intake,
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
