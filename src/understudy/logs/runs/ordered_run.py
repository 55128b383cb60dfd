"""Learning, coverage and certificates from the rows of a log in their order."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import narwhals as nw
import numpy as np
import polars as pl

from understudy.behaviors import Logged
from understudy.certificates import AnyCertificate, Certificate, FixedPolicy
from understudy.certificates.difference import certificate_against
from understudy.certificates.targets import Target as RoundTarget
from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidLog
from understudy.formatting import counted
from understudy.logs.action_files import probability_vector
from understudy.logs.encoder import UnexpectedValues
from understudy.logs.evaluation.context_groups import ContextGroups
from understudy.logs.evaluation.questions import Question
from understudy.logs.evaluation.target_policies import (
    RowTarget,
    Target,
    all_candidates,
    is_hindsight,
    may_play_others,
)
from understudy.logs.evaluation.verdicts import Candidate
from understudy.logs.features import ContextFeatures, LearnerFactory, Warmup, context_features
from understudy.logs.options import Options, require_same
from understudy.logs.outputs import QUARANTINE_FILE, ProgressCallback, Quarantine
from understudy.logs.policy import Policy, Provenance
from understudy.logs.readers.inputs import (
    LogSource,
    prefetch,
    sources_name,
    with_vectors_of,
)
from understudy.logs.readers.units import UnitRecord, UsedUnits
from understudy.logs.rules import list_reasons, nothing_left
from understudy.logs.runs.aggregate_run import AggregateRun
from understudy.logs.runs.certificate_path import Beside, CertificatePath, among_all
from understudy.logs.runs.setup import (
    LogInput,
    ResolvedLog,
    RowTests,
    RunOutcome,
    UnexpectedAction,
    fingerprints_of,
    provenance_of,
    reader_of,
    refuse_learned,
    resolve,
    rules_of,
    validated_batches,
)
from understudy.logs.runs.study import (
    Observed,
    Study,
    last_policies,
    last_rows,
    mean_policy,
    observe_rows,
)
from understudy.logs.schema import ESTIMATED, GIVEN, VECTOR
from understudy.logs.settings import (
    CHECK,
    OWN,
    Assumption,
    Choice,
    Settings,
    Wanted,
    choose,
    name_of_default,
    named,
    refuse_without_contexts,
)
from understudy.logs.statistics import ActionStatistics, LogStatistics
from understudy.logs.validate import ValidatedBatch
from understudy.protocols import PRODUCTION


def run_over(
    log: LogInput, options: Options, folder: Path, watch: ProgressCallback, *, strict: bool = False
) -> OrderedRun | AggregateRun:
    """The run over a log: in order, or from sums if the user names an engine."""
    if log.native is None and options.engine is None:
        return OrderedRun(log.sources, options, folder, watch, strict)
    engine = options.engine or ""
    if log.native is not None:
        engine = str(nw.from_native(log.native).implementation)
    return AggregateRun(log.sources, options, folder, watch, strict, engine, log.native)


def _require_same_learner(wanted: Wanted, settings: Settings) -> None:
    """Raise `InvalidArgument` if a learner is not the one of the earlier run, or has no name."""
    name = named(wanted)
    if OWN in (name.values() if isinstance(name, Mapping) else (name,)):
        reason = "--resume goes on with the learner of the policy"
        raise InvalidArgument("learner", wanted, reason, "leave it out")
    if name != settings.learner:  # exp4 also stands for the experts that it mixes
        require_same("learner", name, settings.wanted or settings.learner)


@dataclass(frozen=True, eq=False)
class RunPlan:
    """The log, settings, study, features and sums of the warm-up of a run before its first row."""

    log: ResolvedLog
    settings: Settings
    study: Study
    warmup: ActionStatistics
    contextual: ContextFeatures | None


@dataclass(frozen=True, eq=False)
class OrderedRun:
    """A run over the rows of a log in their order; it writes into a scratch folder."""

    sources: Sequence[LogSource]
    options: Options
    folder: Path
    watch: ProgressCallback
    strict: bool = False

    # ------------------------------------------------------------------------------------ learn

    def learn(
        self, earlier: Policy | None, earlier_quarantine: Path | None
    ) -> tuple[Policy, Provenance, UnexpectedValues]:
        """Learn row by row, from the beginning or from an earlier policy."""
        with ThreadPoolExecutor(1) as pool:
            hashing = pool.submit(fingerprints_of, self.sources)
            if earlier is not None:
                refuse_learned(self.sources, hashing.result(), earlier)
            plan = self._begin() if earlier is None else self._go_on(earlier)
            with Quarantine(self.folder / QUARANTINE_FILE) as quarantine:
                if earlier is not None and earlier_quarantine and earlier_quarantine.exists():
                    quarantine.copy(earlier_quarantine, sum(earlier.refused.values()))
                tests = RowTests(plan.log)
                batches = self._batches(plan.log, quarantine, "learning", tests)
                study, average, unexpected = _learn(plan, batches)
            fingerprints = hashing.result()
        if study.rounds == plan.study.rounds and plan.warmup.rows:
            reason = "no valid rows come after the warm-up, from which nothing is learned"
            remedy = "pass a shorter one"
            if refused := quarantine.by_reason():
                remedy += f", or correct the quarantined rows ({list_reasons(refused)})"
            raise InvalidLog("warmup", counted(plan.warmup.rows, "row"), reason, remedy)
        if study.rounds == plan.study.rounds:
            raise nothing_left(sources_name(self.sources), quarantine.by_reason())
        provenance = self._provenance(plan.log, fingerprints, quarantine, tests)
        repeated, sticky, units = provenance.repeated, provenance.sticky, plan.log.reader.units
        files, reject_counts = provenance.files, quarantine.by_reason()
        if earlier is not None:
            files = (*earlier.files, *files)
            reject_counts.update(earlier.refused)
            if earlier.repeated is not None and earlier.repeated.found:
                repeated = earlier.repeated  # its rows are learned from
            if earlier.sticky is not None and earlier.sticky.found:
                sticky = earlier.sticky
        policy = Policy(
            actions=plan.log.actions,
            study=study,
            settings=plan.settings,
            average=average,
            files=files,
            refused=reject_counts,
            warmup=plan.warmup.rows if earlier is None else earlier.warmup,
            warmup_sums=plan.warmup if earlier is None else earlier.warmup_sums,
            contextual=plan.contextual,
            repeated=repeated,
            sticky=sticky if sticky is not None and sticky.found else None,
            units=None
            if units is None
            else UnitRecord.of(units, None if earlier is None else earlier.units),
        )
        return policy, provenance, unexpected

    def _begin(self) -> RunPlan:
        """Resolve the log, choose the learner, and begin its study."""
        options = self.options
        share = bool(options.columns.get("context")) and options.warmup < 1
        log = resolve(self.sources, options, self.folder, self.watch, count=share)
        choice, contextual, warmup, groups = self._choice(log)
        columns, declared = log.reader.columns, bool(options.declared())
        if VECTOR not in options.columns:  # dsjson's own: logs of other formats have no such column
            columns = dataclasses.replace(columns, propensity_vector=None)
        unmet = []
        if not declared:
            unmet.append(Assumption.DECLARED_ACTIONS)
        if log.propensity_source == ESTIMATED and options.behavior is None:
            unmet.append(Assumption.KNOWN_PROPENSITIES)
        if columns.time is None:
            unmet.append(Assumption.TIME_ORDER)
        settings = dataclasses.replace(
            choice.settings(columns, options.scale, log.propensity_source, *unmet),
            repeated_rows=options.repeated_rows or CHECK,
            no_unit=options.no_unit,
            unit_rows=options.unit_rows,
        )
        varies = contextual is not None or columns.eligible is not None
        confidence = None if log.behavior is None and varies else options.confidence_or_default
        study = Study.begin(
            choice.learner,
            log.behavior,
            confidence,
            declared=declared,
            partial=columns.eligible is not None,
            groups=groups,
        )
        return RunPlan(log, settings, study, warmup, contextual)

    def _choice(
        self, log: ResolvedLog
    ) -> tuple[Choice, ContextFeatures | None, ActionStatistics, ContextGroups | None]:
        """The learner, the features, the sums of the warm-up, and the groups of contexts."""
        options, columns = self.options, log.reader.columns
        wanted = options.learner or name_of_default(log.behavior, contexts=bool(columns.context))
        factory = LearnerFactory(
            log.behavior,
            len(log.actions),
            options.horizon,
            restricted=columns.eligible is not None,
        )
        if not columns.context:
            nothing = ActionStatistics.empty(len(log.actions))
            return choose(wanted, factory, columns.experts), None, nothing, None
        warmup, sums = self._first_rows(log, options.warmup_of(log.rows or 0))
        factory = dataclasses.replace(factory, warmup=warmup)
        choice = choose(wanted, factory, columns.experts)
        refuse_without_contexts(choice, log.behavior)
        features = context_features(choice.learner, warmup, factory)
        confidence = None if log.behavior is None else options.confidence_or_default
        groups = ContextGroups.fit(warmup.encoder, warmup.contexts, len(log.actions), confidence)
        return choice, features, sums, groups

    def _first_rows(self, log: ResolvedLog, count: int) -> tuple[Warmup, ActionStatistics]:
        """The first valid rows without their rewards, and their sums, by which they are known."""
        frames, logs, left = [], [], count
        reject_counts = Counter[str]()
        for batch in log.batches():
            frames.append(batch.contexts().head(left))
            logs.append(batch.log()[:left])
            reject_counts.update(batch.reasons())
            left -= len(logs[-1])
            if left <= 0:
                break
        if left == count:
            raise nothing_left(sources_name(self.sources), reject_counts)
        q = [part.propensities for part in logs]
        sums = ActionStatistics.empty(len(log.actions))
        for part in logs:
            sums = sums.after(part.visible(propensities=False, features=False))
        warmup = Warmup.fit(
            pl.concat(frames),
            np.concatenate([part.actions for part in logs]),
            None if q[0] is None else np.concatenate(q),  # type: ignore[arg-type] # all or none
            log.reader.columns.context,
        )
        return warmup, sums

    def _go_on(self, earlier: Policy) -> RunPlan:
        """Go on from an earlier policy with its settings."""
        options, settings, behavior = self.options, earlier.settings, earlier.study.behavior
        require_same("reward_range", options.reward_range, settings.reward_range)
        require_same("actions", options.actions, earlier.actions)
        require_same("behavior", options.behavior, settings.behavior)
        if options.learner is not None:
            _require_same_learner(options.learner, settings)
        require_same("horizon", options.horizon, settings.horizon)
        least = behavior.least_propensity if isinstance(behavior, Logged) else None
        require_same("least_propensity", options.least_propensity, least)
        if options.probabilities is not None:
            given = probability_vector("behavior", dict(options.probabilities), earlier.actions)
            require_same("behavior", given.tolist(), np.asarray(behavior).tolist())
        certificate = earlier.study.certificate
        if certificate is not None:
            require_same("confidence", options.confidence, certificate.confidence)
        columns, resumed = options.resumed_columns(settings), options.with_defaults_of(settings)
        rules = rules_of(
            resumed,
            settings.behavior,
            earlier.actions,
            behavior,
            closed=True,
        )
        read = columns
        if VECTOR not in options.columns and certificate is not None and certificate.centered:
            read = with_vectors_of(self.sources, columns)  # rules 1 reject no row for its vector
        reader = reader_of(
            self.sources,
            read,
            resumed,
            self.folder,
            self.watch,
            source=settings.behavior,
            used=earlier.used_units(),
        )
        log = ResolvedLog(reader, rules, earlier.actions, settings.behavior, behavior, None)
        allowed = resumed.repeated_rows or CHECK
        settings = dataclasses.replace(
            settings, columns=columns, repeated_rows=allowed, no_unit=resumed.no_unit
        )
        (curve,) = earlier.study.curves
        if curve is not None:  # the first run declares the actions for this one
            partial = columns.eligible is not None
            curve = dataclasses.replace(curve, hindsight=False, partial=partial)
        study = dataclasses.replace(earlier.study, curves=(curve,))
        nothing = ActionStatistics.empty(len(log.actions))
        return RunPlan(log, settings, study, nothing, earlier.contextual)

    # ------------------------------------------------------------------------------------ cover

    def cover(
        self, targets: Sequence[Target], fingerprints: Sequence[str]
    ) -> tuple[RunOutcome, Sequence[Candidate], Sequence[AnyCertificate | None]]:
        """Count in a first pass, and certify the candidates in a second."""
        options = self.options
        known = frozenset(label for target in targets for label in target.labels)
        used = _used_units(targets)
        log = resolve(self.sources, options, self.folder, self.watch, known=known, used=used)
        begin = Observed.nothing(len(log.actions), log.behavior)
        with Quarantine(self.folder / QUARANTINE_FILE) as quarantine:
            tests = RowTests(log)
            seen = observe_rows(self._batches(log, quarantine, "counting", tests), begin)
        statistics = LogStatistics(log.actions, seen.sums, dict(quarantine.by_reason()))
        counts_over_time, declared = seen.counts_over_time.counts, bool(options.declared())
        candidates = all_candidates(
            targets, fingerprints, statistics, counts_over_time, declared=declared
        )
        provenance = self._provenance(log, fingerprints, quarantine, tests)
        outcome = RunOutcome(statistics, log.propensity_source, provenance, counts_over_time)
        return outcome, candidates, self._certificates(log, candidates)

    def _certificates(
        self, log: ResolvedLog, candidates: Sequence[Candidate]
    ) -> list[AnyCertificate | None]:
        """The certificate of each candidate that this log may judge."""
        if log.behavior is None and log.reader.columns.eligible is not None:
            return [None] * len(candidates)  # frequencies estimate no behavior over varying sets
        K = len(log.actions)
        curves = [
            CertificatePath(
                Certificate(log.behavior, one.confidence(self.options.confidence_or_default), K),
                one.hindsight,
                partial=log.reader.columns.eligible is not None,
            )
            if one.may_be_judged
            else None
            for one in candidates
        ]

        def watched() -> Iterator[ValidatedBatch]:
            for batch in prefetch(log.batches()):
                self.watch("certifying", len(batch), log.rows)
                yield batch

        seen = observe_rows(
            watched(),
            Observed.nothing(K, log.behavior, curves),
            lambda _: [FixedPolicy(one.policy) for one in candidates],  # type: ignore[arg-type] # it has one
        )
        return [None if curve is None else curve.certificate for curve in seen.curves]

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
            used=_used_units(every),
        )
        for target in every:
            _refuse_uncertifiable(target, log)
        _refuse_without_propensities(self.options.question, log)
        curves = [self._path(target, baseline, log, len(targets)) for target in targets]
        unexpected, question = UnexpectedValues(), self.options.question

        def policies(batch: ValidatedBatch) -> list[RoundTarget]:
            for target in targets:
                unexpected.update(target.unexpected_values(batch))
            return [target.in_rows(batch, log.actions) for target in targets]

        def beside(batch: ValidatedBatch) -> Beside:
            against = None if baseline is None else baseline.in_rows(batch, log.actions)
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

    def _path(
        self, target: Target, baseline: Target | None, log: ResolvedLog, candidates: int
    ) -> CertificatePath:
        """The certificates of a target before the first row."""
        options, actions = self.options, log.actions
        sets = log.reader.columns.eligible is not None
        delta = (1.0 - options.confidence_or_default) / candidates
        confidence = options.confidence_or_default if candidates == 1 else 1.0 - delta
        plain = Certificate(log.behavior, confidence, len(actions))
        certificate: AnyCertificate = plain
        if baseline is not None:
            certificate = certificate_against(plain, baseline.fixed(actions), paired=not sets)
        return CertificatePath.begin(
            certificate,
            options.question.guardrails,
            () if options.question.segments is None else options.question.segments.values,
            hindsight=is_hindsight(target, actions, options.declared()),
            partial=may_play_others(target, actions, options.actions) or sets,
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


def _used_units(targets: Sequence[Target]) -> UsedUnits | None:
    """The units that these policies were learned from, None if they have none."""
    found = [target.learned.used_units() for target in targets if target.learned is not None]
    used = [units.hashes for units in found if units is not None]
    return UsedUnits.of(*used) if used else None


def _learn(
    plan: RunPlan, batches: Iterator[ValidatedBatch]
) -> tuple[Study, Array, UnexpectedValues]:
    """Learn from every valid row after the warm-up; also count unexpected values of contexts."""
    study, skip, contextual = plan.study, plan.warmup.rows, plan.contextual
    last, last_codes, unexpected = None, None, UnexpectedValues()
    for batch in batches:
        skipped = min(skip, len(batch))
        skip -= skipped
        rest = batch.after(skipped) if skipped else batch
        if skip:
            continue  # neither learner nor certificate sees the warm-up
        x, codes = None, None
        if contextual is not None:
            encoded = contextual.encoder.encode(rest.contexts())
            x = contextual.seen_by_learner(encoded)
            if study.groups is not None:
                codes = study.groups.codes(contextual.encoder, encoded)
                last_codes = last_rows(last_codes, codes)
                if rest.rejected is not None and rest.rejected.contexts is not None:
                    lost = contextual.encoder.encode(rest.rejected.contexts)
                    codes = among_all(codes, rest.rejected.valid, 0)
                    codes[~rest.rejected.valid] = study.groups.codes(contextual.encoder, lost)
            unexpected += contextual.encoder.unexpected_values(rest.contexts())
            if len(rest):
                last = last_rows(last, x)
        study = study.after(rest.log(x), rest.rejected, codes)
    policies = last_policies(study, contextual, last)
    if study.groups is not None and last is not None and last_codes is not None:
        groups = study.groups.with_policies(last_codes, *policies)
        study = dataclasses.replace(study, groups=groups)
    return study, mean_policy(study, *policies), unexpected


def _refuse_without_propensities(question: Question, log: ResolvedLog) -> None:
    """Raise `InvalidArgument` if guardrails or segments are asked for, and no gain is certified."""
    if log.behavior is not None or not (question.guardrails or question.segments):
        return
    name = "guardrail" if question.guardrails else "segment"
    reason = "it needs the propensity of every row, and the log has none"
    remedy = "name their column with --propensity, or leave it out"
    raise InvalidArgument(name, getattr(question, f"{name}s"), reason, remedy)


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
