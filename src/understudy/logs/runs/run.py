"""What a run over a log gives back, in order or from sums: the same types from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from understudy.certificates import Certified
from understudy.logs.aggregation.aggregates import LogStatistics
from understudy.logs.encoder import Unexpected
from understudy.logs.evaluation.target_policies import Asked, Target
from understudy.logs.evaluation.verdicts import Coverage
from understudy.logs.policy import Policy
from understudy.logs.runs.provenance import Provenance
from understudy.logs.schema import PropensitySource
from understudy.types import Integers


@dataclass(frozen=True, eq=False)
class LearnOutcome:
    """A policy, the files that it came from, and how many contexts had unusual values."""

    policy: Policy
    intake: Provenance
    oddities: Mapping[tuple[str, Unexpected], int]


@dataclass(frozen=True, eq=False)
class CoverageOutcome:
    """What a log says about actions and policies, and where its propensities come from."""

    coverage: Coverage
    kind: PropensitySource
    intake: Provenance


@dataclass(frozen=True, eq=False)
class CertifyOutcome:
    """The certificate of one policy, and what the log showed: `stretches` if it has an order."""

    certified: Certified
    tallied: LogStatistics
    kind: PropensitySource
    intake: Provenance
    stretches: Integers | None = None
    oddities: Mapping[tuple[str, Unexpected], int] = field(default_factory=dict)


class Run(Protocol):
    """One run over a log: `OrderedRun` row by row, or `AggregateRun` from sums in no order."""

    def learn(self, resume: Policy | None, earlier: Path | None) -> LearnOutcome:
        """Learn from the log; `earlier` is the quarantine of the policy to go on from."""
        ...

    def cover(self, asked: Sequence[Asked], fingerprints: Sequence[str]) -> CoverageOutcome:
        """Say what the log can tell, also about the policies that were asked about."""
        ...

    def certify(self, target: Target, fingerprints: Sequence[str]) -> CertifyOutcome:
        """Certify a policy that stays the same."""
        ...
