"""Results as reports: what is said about a log, in the units of its rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
import polars as pl

from understudy.certificates import Certified
from understudy.constraints import Array
from understudy.logs.coverage import Coverage
from understudy.logs.policies import ESTIMATED, GIVEN, LOGGED, FileRead
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

__all__ = ["BEHAVIOR_WORDS", "Scale", "assemble", "sentence", "verdict"]

BEHAVIOR_WORDS = {
    LOGGED: "propensities as logged, row by row",
    GIVEN: "fixed probabilities, as given",
    ESTIMATED: "not known: counted, and taken to be the same in all rows",
}


class Scale:
    """Rewards between 0 and 1 in the units of the log.

    >>> Scale((-1.0, 3.0)).reward(0.5), Scale((-1.0, 3.0)).gain(0.5)
    (1.0, 2.0)
    """

    def __init__(self, reward_range: tuple[float, float]) -> None:
        self._low, high = reward_range
        self._width = high - self._low

    def reward(self, mean: float) -> float:
        return self._low + self._width * mean

    def gain(self, mean: float) -> float:
        return self._width * mean

    def curve(self, certified: Certified, target: str) -> CertificateCurve:
        """A certificate over time, as means a round."""
        t = certified.rounds
        n = int(t[-1])
        gain = certified.gain_curve
        return CertificateCurve(
            rounds=t,
            lower=self._rewards(certified.lower_curve / t),
            upper=self._rewards(certified.upper_curve / t),
            production=self._rewards(certified.production_curve / t),
            gain=None if gain is None else self._width * (gain / t),
            promoted_at=certified.promoted_at,
            confidence=certified.certificate.confidence,
            estimate=self.reward(certified.estimate / n),
            self_normalised=self.reward(certified.self_normalised / n),
            effective_sample_size=certified.effective_sample_size,
            target=target,
        )

    def _rewards(self, means: Array) -> Array:
        return np.asarray(self._low + self._width * means)


def sentence(certified: Certified, scale: Scale, who: str) -> str:
    """What the certificate says, as people say it."""
    n, percent = certified.certificate.rounds, 100 * certified.certificate.confidence
    lower, production = (scale.reward(x / n) for x in (certified.lower, certified.production))
    gain = (
        "no gain is certified, as the behavior was only counted"
        if certified.gain is None
        else f"the gain is at least {scale.gain(certified.gain / n):.4g}"
    )
    return (
        f"with {percent:.6g} % confidence, {who} would have earned at least {lower:.4g} per round; "
        f"production earned {production:.4g}; {gain}"
    )


def verdict(certified: Certified | None, who: str, cannot: str) -> tuple[VerdictKind, str]:
    """One clear sentence: promote, not yet, worse, or that this log cannot tell."""
    if certified is None:
        return "cannot tell", f"This log cannot tell: {cannot}."
    if certified.lower > certified.upper:
        return "cannot tell", (
            "This log cannot tell: its bounds contradict each other, so the propensities are not "
            "what they are said to be."
        )
    if certified.promoted:
        when = f" since round {certified.promoted_at:,}" if certified.promoted_at else ""
        percent = f"{100 * certified.certificate.confidence:.6g}"
        return (
            "promote",
            f"Promote: {who} is better than production,{when} with {percent} % confidence.",
        )
    if certified.upper < certified.production:
        return "worse", f"Keep production: {who} earns less."
    return "cannot tell", f"Not yet: {cannot}."


def assemble(
    *,
    title: str,
    verdict_kind: VerdictKind,
    words: str,
    facts: Sequence[tuple[str, str]],
    assumptions: Sequence[str],
    certificate: CertificateCurve | None,
    coverage: Coverage,
    policy: Array | None,
    averaged_over: int | None,
    files: Iterable[FileRead],
    quarantined: Mapping[tuple[str, str], int],
    examples: pl.DataFrame,
    warnings: Sequence[str] = (),
) -> Report:
    """A report from its parts."""
    return Report(
        title=title,
        verdict=words,
        verdict_kind=verdict_kind,
        generated_by=f"understudy {version('understudy')}",
        generated_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        facts=facts,
        assumptions=assumptions,
        certificate=certificate,
        actions=_action_rows(coverage.table, policy),
        averaged_over=averaged_over,
        coverage=coverage.describe(),
        candidates=[
            Candidate(v.name, v.words, v.coverage, v.effective_sample_size, v.estimate)
            for v in coverage.verdicts
        ],
        quarantine=[QuarantineCount(f, reason, n) for (f, reason), n in quarantined.items()],
        examples=[
            QuarantinedRow(file, row, reason, dict(zip(examples.columns[3:], values, strict=True)))
            for file, row, reason, *values in examples.iter_rows()
        ],
        files=[FileRow(file.name, file.sha256, file.rows, file.quarantined) for file in files],
        warnings=warnings,
    )


def _action_rows(table: pl.DataFrame, policy: Array | None) -> list[ActionRow]:
    names = ("mean_reward", "lowest", "highest", "coverage", "effective_sample_size")
    return [
        ActionRow(
            label=row["action"],
            count=row["count"],
            share=row["share"],
            policy=None if policy is None else float(policy[i]),
            **{name: _known(row[name]) for name in names},
        )
        for i, row in enumerate(table.iter_rows(named=True))
    ]


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
