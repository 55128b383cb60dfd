"""What a report says, as plain data: a page, a notebook and a terminal show the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.errors import InvalidArgument

__all__ = [
    "ActionRow",
    "Candidate",
    "CertificateCurve",
    "FileRow",
    "QuarantineCount",
    "QuarantinedRow",
    "Report",
    "VerdictKind",
]

VerdictKind = Literal["promote", "not yet", "cannot tell", "worse", "coverage"]


@dataclass(frozen=True, eq=False, kw_only=True)
class CertificateCurve:
    """A certificate after each of some rounds, and what stands beside it at the end.

    All rewards are means a round. One round is enough (the last): then there is no picture over
    time. `gain` is None where none is certified, `promoted_at` where promotion was not justified.
    `target` names what is certified. It may be `promoted` though nobody knows when.
    `at_most` says that production earned no more than that: rows that were set aside may count in
    it with the most possible.
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
class Candidate:
    """What the log can say about one policy, in words and in numbers."""

    name: str
    words: str
    coverage: float | None = None
    effective_sample_size: float | None = None
    estimate: float | None = None


@dataclass(frozen=True)
class QuarantineCount:
    """How many rows of a file were set aside for one reason."""

    file: str
    reason: str
    count: int


@dataclass(frozen=True)
class QuarantinedRow:
    """One row that was set aside, as it stood in its file."""

    file: str
    row: int
    reason: str
    values: Mapping[str, object]


@dataclass(frozen=True)
class FileRow:
    """A file that was read: `rows` counts all of its rows, `quarantined` those set aside."""

    name: str
    sha256: str
    rows: int
    quarantined: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Report:
    """All that is said about a log and the policy that was learned from it.

    `verdict` is one sentence, `verdict_kind` its mark. `averaged_over` is given where the policy
    depends on the context: the probabilities of its actions are means over so many last rows.
    """

    title: str
    verdict: str
    verdict_kind: VerdictKind
    generated_by: str
    generated_at: str
    subtitle: str = ""
    facts: Sequence[tuple[str, str]] = ()
    assumptions: Sequence[str] = ()
    certificate: CertificateCurve | None = None
    actions: Sequence[ActionRow] = ()
    averaged_over: int | None = None
    coverage: Sequence[str] = ()
    candidates: Sequence[Candidate] = ()
    quarantine: Sequence[QuarantineCount] = ()
    examples: Sequence[QuarantinedRow] = ()
    files: Sequence[FileRow] = ()
    warnings: Sequence[str] = ()

    @cached_property
    def has_policy(self) -> bool:
        """Whether there is a policy to set beside production."""
        return any(row.policy is not None for row in self.actions)

    @cached_property
    def rows(self) -> int:
        """How many rows the files have, those that were set aside included."""
        return sum(file.rows for file in self.files)

    @cached_property
    def quarantined(self) -> int:
        """How many rows were set aside."""
        return sum(group.count for group in self.quarantine)

    @cached_property
    def reasons(self) -> dict[str, int]:
        """How many rows were set aside for each reason, the most frequent first."""
        totals: dict[str, int] = {}
        for group in self.quarantine:
            totals[group.reason] = totals.get(group.reason, 0) + group.count
        return dict(sorted(totals.items(), key=lambda item: -item[1]))
