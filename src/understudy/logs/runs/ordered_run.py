"""Coverage and certificates from the rows of a log in their order, or from an engine's sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import narwhals as nw

from understudy.certificates import AnyCertificate, FixedPolicy
from understudy.certificates.evidence import confidence_of_each
from understudy.certificates.targets import Target as RoundTarget
from understudy.errors import InvalidArgument
from understudy.logs.encoder import UnexpectedValues
from understudy.logs.evaluation.answers import Answers, Baseline
from understudy.logs.evaluation.target_policies import (
    RowTarget,
    Target,
    all_candidates,
    baseline_over,
    fixed_baseline_of,
    is_hindsight,
    may_play_others,
    refuse_unplayed_baseline,
    refuse_used_units,
)
from understudy.logs.evaluation.verdicts import Candidate
from understudy.logs.options import Options
from understudy.logs.outputs import QUARANTINE_FILE, ProgressCallback, Quarantine
from understudy.logs.readers.inputs import prefetch, sources_name
from understudy.logs.rules import nothing_left
from understudy.logs.runs.aggregate_run import AggregateRun
from understudy.logs.runs.certificate_path import Beside, CertificatePath
from understudy.logs.runs.row_run import (
    NAME_PROPENSITIES,
    NO_CERTIFICATE,
    RowRun,
    refuse_without_propensities,
    used_units,
)
from understudy.logs.runs.setup import (
    LogInput,
    ResolvedLog,
    RowTests,
    RunOutcome,
    UnexpectedAction,
    refuse_learned,
    refuse_same_rows,
    resolve,
)
from understudy.logs.runs.study import Observed, answers_of, observe_rows
from understudy.logs.schema import GIVEN
from understudy.logs.statistics import LogStatistics
from understudy.logs.validate import ValidatedBatch
from understudy.protocols import PRODUCTION

Ordered = TypeVar("Ordered", bound=RowRun)


def run_over(
    ordered: type[Ordered],
    log: LogInput,
    options: Options,
    folder: Path,
    watch: ProgressCallback,
    *,
    strict: bool = False,
) -> Ordered | AggregateRun:
    """The run over a log: in order, or from sums if the user names an engine."""
    if log.native is None and options.engine is None:
        return ordered(log.sources, options, folder, watch, strict)
    engine = options.engine or ""
    if log.native is not None:
        engine = str(nw.from_native(log.native).implementation)
    return AggregateRun(log.sources, options, folder, watch, strict, engine, log.native)


def refuse_question_of_sums(run: RowRun | AggregateRun) -> None:
    """Raise `InvalidArgument` if a question is asked of sums: `certify` alone may answer it."""
    if isinstance(run, AggregateRun):
        reason = "with an engine, or of a native frame, this command answers about production alone"
        run.options.question.refuse(reason, "leave it out, or leave out --engine")


@dataclass(frozen=True, eq=False)
class OrderedRun(RowRun):
    """A run over the rows of a log in their order, for coverage and certificates."""

    # ------------------------------------------------------------------------------------ cover

    def cover(
        self, targets: Sequence[Target], fingerprints: Sequence[str]
    ) -> tuple[RunOutcome, Sequence[Candidate], Sequence[AnyCertificate | None]]:
        """Count in a first pass, and certify the candidates in a second."""
        options = self.options
        baseline = fixed_baseline_of(options.question)
        learned = None if baseline is None else baseline.learned
        if baseline is not None:
            refuse_used_units([baseline], options)
        if learned is not None:
            refuse_learned(self.sources, fingerprints, learned)
        known = frozenset(label for target in targets for label in target.labels)
        used = used_units([*targets, baseline])
        log = resolve(self.sources, options, self.folder, self.watch, known=known, used=used)
        refuse_without_propensities(options.question, log)
        begin = Observed.nothing(len(log.actions), log.behavior)
        with Quarantine(self.folder / QUARANTINE_FILE) as quarantine:
            tests = RowTests(log)
            seen = observe_rows(self._batches(log, quarantine, "counting", tests), begin)
        statistics = LogStatistics(log.actions, seen.sums, dict(quarantine.by_reason()))
        counts_over_time, declared = seen.counts_over_time.counts, bool(options.declared())
        if baseline is not None:
            baseline = baseline_over(baseline, log.actions, options.declared())
            refuse_unplayed_baseline(baseline, statistics)
        if learned is not None:
            refuse_same_rows(statistics, counts_over_time, learned)
        candidates = all_candidates(
            targets, fingerprints, statistics, counts_over_time, declared=declared
        )
        provenance = self._provenance(log, fingerprints, quarantine, tests)
        outcome = RunOutcome(statistics, log.propensity_source, provenance, counts_over_time)
        return outcome, *self._certificates(log, candidates, baseline)

    def _certificates(
        self, log: ResolvedLog, candidates: Sequence[Candidate], baseline: Target | None
    ) -> tuple[list[Candidate], list[AnyCertificate | None]]:
        """The candidates with their answers, and the certificate of each that the log may judge."""
        question, K = self.options.question, len(log.actions)
        confidence = self.options.confidence_or_default
        may_judge = log.behavior is not None or log.reader.columns.eligible is None
        if not may_judge:  # frequencies estimate no behavior over varying sets
            question.refuse(NO_CERTIFICATE, NAME_PROPENSITIES)
        curves = [
            self._path(log, baseline, one.confidence(confidence), hindsight=one.hindsight)
            if one.may_be_judged and may_judge
            else None
            for one in candidates
        ]

        def watched() -> Iterator[ValidatedBatch]:
            for batch in prefetch(log.batches()):
                self.watch("certifying", len(batch), log.rows)
                yield batch

        if may_judge:
            curves = list(
                observe_rows(
                    watched(),
                    Observed.nothing(K, log.behavior, curves),
                    lambda _: [FixedPolicy(one.policy) for one in candidates],  # type: ignore[arg-type] # it has one
                    lambda batch: Beside(None, *question.columns_of(batch)),
                ).curves
            )
        known = None
        if baseline is not None:
            known = Baseline(baseline.name, baseline.fixed(log.actions))
        answered = [
            replace(
                one,
                answers=Answers(known) if path is None else answers_of(path, question, known),
            )
            for one, path in zip(candidates, curves, strict=True)
        ]
        return answered, [
            None if one is None else one.chosen(question.quarantined).certificate for one in curves
        ]

    # ---------------------------------------------------------------------------------- certify

    def certify(
        self, targets: Sequence[Target], baseline: Target | None, fingerprints: Sequence[str]
    ) -> tuple[list[CertificatePath], RunOutcome]:
        """Certify in one pass if all actions of the log are declared; else scan it first.

        All `targets` hold together: each of m has the confidence 1 − δ/m.
        """
        result = None
        if self.options.actions is not None and self.options.probabilities is None:
            try:
                result = self._certify(targets, baseline, fingerprints, declared_only=True)
            except UnexpectedAction:
                self.watch("looking", 0, None)
        return result or self._certify(targets, baseline, fingerprints, declared_only=False)

    def _certify(
        self,
        targets: Sequence[Target],
        baseline: Target | None,
        fingerprints: Sequence[str],
        *,
        declared_only: bool,
    ) -> tuple[list[CertificatePath], RunOutcome]:
        every = [*targets, *([] if baseline is None else [baseline])]
        log = resolve(
            self.sources,
            self.options,
            self.folder,
            self.watch,
            known=frozenset().union(*(target.labels for target in every)),
            grow=True,
            declared_only=declared_only,
            used=used_units(every),
        )
        for target in every:
            _refuse_uncertifiable(target, log)
        refuse_without_propensities(self.options.question, log)
        depends = baseline is not None and baseline.fixed(log.actions) is None
        if baseline is not None and not depends:
            baseline = baseline_over(baseline, log.actions, self.options.declared())
        curves = [self._path_of(target, baseline, log, len(targets)) for target in targets]
        unexpected, question = UnexpectedValues(), self.options.question

        def policies(batch: ValidatedBatch) -> list[RoundTarget]:
            for target in targets:
                unexpected.update(target.unexpected_values(batch))
            return [target.in_rows(batch, log.actions) for target in targets]

        def beside(batch: ValidatedBatch) -> Beside:
            against = baseline.in_rows(batch, log.actions) if depends and baseline else None
            return Beside(against, *question.columns_of(batch))

        with Quarantine(self.folder / QUARANTINE_FILE) as quarantine:
            tests = RowTests(log)
            seen = observe_rows(
                self._batches(log, quarantine, "certifying", tests),
                Observed.nothing(len(log.actions), log.behavior, curves),
                policies,
                beside,
            )
        if not seen.sums.rows:
            raise nothing_left(sources_name(self.sources), quarantine.by_reason())
        statistics = LogStatistics(log.actions, seen.sums, dict(quarantine.by_reason()))
        provenance = self._provenance(log, fingerprints, quarantine, tests)
        outcome = RunOutcome(
            statistics, log.propensity_source, provenance, seen.counts_over_time.counts, +unexpected
        )
        return [curve for curve in seen.curves if curve is not None], outcome

    def _path_of(
        self, target: Target, baseline: Target | None, log: ResolvedLog, candidates: int
    ) -> CertificatePath:
        """The certificates of a target before the first row."""
        options, actions = self.options, log.actions
        return self._path(
            log,
            baseline,
            confidence_of_each(options.confidence_or_default, candidates),
            hindsight=is_hindsight(target, actions, options.declared()),
            partial=may_play_others(target, actions, options.actions),
        )


def _refuse_uncertifiable(target: Target, log: ResolvedLog) -> None:
    row_target = target if isinstance(target, RowTarget) else None
    outside = () if row_target is None else row_target.outside
    if PRODUCTION in outside and log.propensity_source == GIVEN:
        reason = "the policy does as production does in part, whose propensities must be logged"
        raise InvalidArgument("behavior", GIVEN, reason, "leave it out, and name --propensity")
    if (row_target is not None or log.reader.columns.eligible) and log.behavior is None:
        reason = "a behavior that may depend on contexts or eligible sets cannot be estimated"
        remedy = "name the column of propensities with --propensity"
        raise InvalidArgument("behavior", log.propensity_source, reason, remedy)
