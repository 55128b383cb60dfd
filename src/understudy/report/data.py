"""A report as plain data: a page, a notebook, a terminal and JSON show the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.errors import InvalidArgument
from understudy.logs.evaluation.diagnostics import CalibrationFinding, DriftFinding
from understudy.logs.evaluation.verdicts import Obstacle, PolicyDecision, VerdictKind
from understudy.logs.policy import FileRead


class Mark(NamedTuple):
    """How a verdict looks: its sign and word differ, not its color alone."""

    sign: str
    word: str
    style: str


MARKS: dict[VerdictKind, Mark] = {
    "promote": Mark("✓", "Promote", "good"),
    "not yet": Mark("…", "Not enough data yet", "wait"),
    "cannot tell": Mark("?", "Cannot tell", "open"),
    "worse": Mark("✕", "Worse than production", "bad"),
    "coverage": Mark("i", "Coverage", "open"),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class CertificateCurve:
    """A certificate after each of some rounds, and what stands beside it at the end.

    All rewards are means a round. One round is enough (the last): then there is no picture over
    time. `gain` is None where none is certified, `promoted_at` where promotion was not justified.
    `target` names what is certified. It may be `promoted` though the rows have no order, so that
    `promoted_at` is unknown. `at_most` says that production earned no more than that: quarantined
    rows may count in it with the highest reward.
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
    target: str = "the understudy"
    promoted: bool = False
    at_most: bool = False

    def __post_init__(self) -> None:
        points = np.shape(self.rounds)
        curves = [self.lower, self.upper, self.production]
        curves += [] if self.gain is None else [self.gain]
        if len(points) != 1 or not points[0] or any(np.shape(curve) != points for curve in curves):
            raise InvalidArgument(
                "certificate",
                [points, *(np.shape(curve) for curve in curves)],
                "its curves need one value for each round, and at least one",
                "pass arrays of one length",
            )

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
    """What the log can say about one policy, in words and in numbers."""

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
    """All that is said about a log and the policy that was learned from it.

    `verdict` has the numbers behind the verdict and the next step, in words; `verdict_kind` gives
    its `mark`, whose word may be another `headline`. `decision`, `obstacle` and `rows_needed` say
    the same as data. `averaged_over` is given where the policy depends on the context: the
    probabilities of its actions are means over so many last rows.
    """

    title: str
    verdict: str
    verdict_kind: VerdictKind
    generated_by: str
    generated_at: str
    subtitle: str = ""
    headline: str = ""
    facts: Sequence[tuple[str, str]] = ()
    assumptions: Sequence[str] = ()
    certificate: CertificateCurve | None = None
    actions: Sequence[ActionRow] = ()
    averaged_over: int | None = None
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
    calibration: CalibrationFinding | None = None
    drift: DriftFinding | None = None

    @property
    def mark(self) -> Mark:
        """Sign, word and style of the verdict."""
        mark = MARKS[self.verdict_kind]
        return mark._replace(word=self.headline) if self.headline else mark

    @property
    def words(self) -> str:
        """The verdict in a line: its word, where something was to be decided, and the numbers."""
        decided = self.verdict_kind != "coverage"
        return f"{self.mark.word}. {self.verdict}" if decided else self.verdict

    @cached_property
    def has_policy(self) -> bool:
        """Whether there is a policy to set beside production."""
        return any(row.policy is not None for row in self.actions)

    @cached_property
    def rows(self) -> int:
        """How many rows the files have, those that were quarantined included."""
        return sum(file.rows for file in self.files)

    @cached_property
    def quarantined(self) -> int:
        """How many rows were quarantined."""
        return sum(group.count for group in self.quarantine)

    @cached_property
    def reasons(self) -> dict[str, int]:
        """How many rows were quarantined for each reason, the most frequent first."""
        totals: dict[str, int] = {}
        for group in self.quarantine:
            totals[group.reason] = totals.get(group.reason, 0) + group.count
        return dict(sorted(totals.items(), key=lambda item: -item[1]))


def as_dict(report: Report) -> dict[str, Any]:
    """A report for machines: what JSON can hold, null for what is not known."""
    curve = report.certificate
    found: dict[str, Any] = {
        "verdict": report.verdict_kind,
        "decision": report.decision,
        "obstacle": report.obstacle,
        "estimated_gain": report.estimated_gain,
        "rows_needed": report.rows_needed,
        "words": report.words,
        "facts": dict(report.facts),
        "assumptions": list(report.assumptions),
        "warnings": list(report.warnings),
        "coverage": list(report.coverage),
        "calibration": report.calibration,
        "drift": report.drift,
        "certificate": None if curve is None else _certificate(curve),
        "candidates": [asdict(candidate) for candidate in report.candidates],
        "actions": [asdict(row) for row in report.actions],
        "quarantined": [asdict(count) for count in report.quarantine],
        "files": [asdict(file) for file in report.files],
    }
    return {key: _finite(value) for key, value in found.items()}


def _certificate(curve: CertificateCurve) -> dict[str, Any]:
    rounds, lower, upper, production, gain = curve.table[-1].tolist()
    return {
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


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
