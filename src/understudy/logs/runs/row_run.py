"""A run over the rows of a log in their order: what learning, coverage and certificates share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from understudy.certificates import AnyCertificate, Certificate
from understudy.certificates.difference import certificate_against
from understudy.logs.evaluation.questions import Question
from understudy.logs.evaluation.target_policies import Target
from understudy.logs.options import Options
from understudy.logs.outputs import ProgressCallback, Quarantine
from understudy.logs.policy import Provenance
from understudy.logs.readers.inputs import LogSource
from understudy.logs.readers.units import UsedUnits
from understudy.logs.runs.certificate_path import CertificatePath
from understudy.logs.runs.setup import ResolvedLog, RowTests, provenance_of, validated_batches
from understudy.logs.validate import ValidatedBatch

NO_CERTIFICATE = "without propensities, contexts or eligible sets prevent a certificate"
NAME_PROPENSITIES = "name their column with --propensity, or leave it out"


@dataclass(frozen=True, eq=False)
class RowRun:
    """A run over the rows of a log in their order; it writes into a scratch folder."""

    sources: Sequence[LogSource]
    options: Options
    folder: Path
    watch: ProgressCallback
    strict: bool = False

    def _path(
        self,
        log: ResolvedLog,
        baseline: Target | None,
        confidence: float,
        *,
        hindsight: bool,
        partial: bool = False,
    ) -> CertificatePath:
        """The certificates of a policy before the first row, for the question of the options."""
        sets, against = log.reader.columns.eligible is not None, None
        plain = Certificate(log.behavior, confidence, len(log.actions))
        certificate: AnyCertificate = plain
        if baseline is not None:
            against = baseline.fixed(log.actions)
            certificate = certificate_against(plain, against, paired=not sets)
        return CertificatePath.begin(
            certificate,
            self.options.question,
            against=against,
            hindsight=hindsight,
            partial=partial or sets,
            forks=True,
        )

    def _provenance(
        self,
        log: ResolvedLog,
        fingerprints: Sequence[str],
        quarantine: Quarantine,
        tests: RowTests,
    ) -> Provenance:
        return provenance_of(
            self.sources,
            fingerprints,
            quarantine,
            repeated=tests.repeated(),
            sticky=tests.sticky_columns(),
            units=log.reader.units,
            bound=log.weight_bound,
        )

    def _batches(
        self, log: ResolvedLog, quarantine: Quarantine, phase: str, tests: RowTests
    ) -> Iterator[ValidatedBatch]:
        return validated_batches(
            log, quarantine, phase, self.watch, strict=self.strict, tests=tests
        )


def used_units(targets: Sequence[Target | None]) -> UsedUnits | None:
    """The units that these policies were learned from, None if they have none."""
    learned = [target.learned for target in targets if target is not None]
    found = [one.used_units() for one in learned if one is not None]
    used = [units.hashes for units in found if units is not None]
    return UsedUnits.of(*used) if used else None


def refuse_without_propensities(question: Question, log: ResolvedLog) -> None:
    """Raise `InvalidArgument` if guardrails or segments are asked for, and no gain is certified."""
    if log.behavior is not None or not (question.guardrails or question.segments):
        return
    reason = "it needs the propensity of every row, and the log has none"
    question.refuse(reason, NAME_PROPENSITIES, "guardrail", "segment")
