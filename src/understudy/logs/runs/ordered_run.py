"""A log row by row, in its order: learning, coverage, and certificates with their curves."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import narwhals as nw
import numpy as np
import polars as pl

from understudy.certificates import Certificate, Certified
from understudy.constraints import Array
from understudy.errors import InvalidArgument
from understudy.logs.action_files import probability_vector
from understudy.logs.encoder import UnexpectedValues
from understudy.logs.evaluation.target_policies import (
    Asked,
    ContextualTarget,
    Target,
    candidates_beside,
    is_hindsight,
)
from understudy.logs.evaluation.verdicts import Candidate
from understudy.logs.features import ContextFeatures
from understudy.logs.options import Options, agree
from understudy.logs.outputs import QUARANTINE_FILE, ProgressCallback, Quarantine
from understudy.logs.policy import Policy
from understudy.logs.readers.inputs import LogReader, LogSource, prefetch, sources_name
from understudy.logs.reject_reasons import nothing_left
from understudy.logs.runs.aggregate_run import AggregateRun
from understudy.logs.runs.default_learner import (
    Choice,
    choose,
    choose_contextual,
    name_of_default,
)
from understudy.logs.runs.provenance import (
    Provenance,
    RunOutcome,
    fingerprints_of,
    intake_of,
    refuse_learned,
)
from understudy.logs.runs.setup import (
    LogInput,
    ResolvedLog,
    UnexpectedAction,
    good_rows,
    resolve,
    rules_of,
)
from understudy.logs.runs.study import (
    CertificatePath,
    Observed,
    Study,
    average_policy,
    last_rows,
    observe_rows,
)
from understudy.logs.schema import ESTIMATED
from understudy.logs.settings import CONTEXTUAL, Assumption, Settings
from understudy.logs.statistics import LogStatistics
from understudy.logs.validate import ValidatedBatch
from understudy.types import Integers


def run_over(
    log: LogInput, options: Options, folder: Path, watch: ProgressCallback, *, strict: bool = False
) -> OrderedRun | AggregateRun:
    """The run over a log: row by row if it has an order; from sums if an engine is named."""
    if log.native is None and options.engine is None:
        return OrderedRun(log.sources, options, folder, watch, strict)
    engine = options.engine or ""
    if log.native is not None:
        engine = str(nw.from_native(log.native).implementation)
    return AggregateRun(log.sources, options, folder, watch, strict, engine, log.native)


@dataclass(frozen=True, eq=False)
class RunPlan:
    """Everything that is fixed before the first row is learned from."""

    log: ResolvedLog
    settings: Settings
    study: Study
    warmup: int
    contextual: ContextFeatures | None


@dataclass(frozen=True, eq=False)
class OrderedRun:
    """One run over a log: what is read, what was asked for, and a folder for what it writes."""

    sources: Sequence[LogSource]
    options: Options
    folder: Path
    watch: ProgressCallback
    strict: bool = False

    # ------------------------------------------------------------------------------------ learn

    def learn(
        self, resume: Policy | None, earlier: Path | None
    ) -> tuple[Policy, Provenance, UnexpectedValues]:
        """Learn row by row, from the beginning or from a policy, whose quarantine is kept too."""
        with ThreadPoolExecutor(1) as pool:
            hashing = pool.submit(fingerprints_of, self.sources)
            if resume is not None:
                refuse_learned(self.sources, hashing.result(), resume)
            plan = self._begin() if resume is None else self._go_on(resume)
            with Quarantine(self.folder / QUARANTINE_FILE) as quarantine:
                if resume is not None and earlier is not None and earlier.exists():
                    quarantine.copy(earlier, sum(resume.refused.values()))
                rows = self._rows(plan.log, quarantine, "learning")
                study, average, oddities = _learn(plan, rows)
            fingerprints = hashing.result()
        if study.rounds == plan.study.rounds:
            raise nothing_left(sources_name(self.sources), quarantine.by_reason())
        refused, intake = quarantine.by_reason(), intake_of(self.sources, fingerprints, quarantine)
        files = intake.files
        if resume is not None:
            refused.update(resume.refused)
            files = (*resume.files, *files)
        policy = Policy(
            actions=plan.log.actions,
            study=study,
            settings=plan.settings,
            average=average,
            files=files,
            refused=refused,
            warmup=plan.warmup if resume is None else resume.warmup,
            contextual=plan.contextual,
        )
        return policy, intake, oddities

    def _begin(self) -> RunPlan:
        """Look at the log as far as needed, and fix who learns from it and how."""
        options = self.options
        share = bool(options.columns.get("context")) and options.warmup < 1
        log = resolve(self.sources, options, self.folder, self.watch, count=share)
        choice, contextual, warmup = self._choice(log)
        columns, declared = log.reading.columns, bool(options.declared())
        unmet = []
        if not declared:
            unmet.append(Assumption.DECLARED_ACTIONS)
        if log.kind == ESTIMATED and options.behavior is None:
            unmet.append(Assumption.KNOWN_PROPENSITIES)
        if columns.time is None:
            unmet.append(Assumption.TIME_ORDER)
        settings = choice.settings(columns, options.scale, log.kind, *unmet)
        uncountable = contextual is not None or columns.eligible is not None
        confidence = None if log.behavior is None and uncountable else options.sure
        study = Study.begin(choice.learner, log.behavior, confidence, declared=declared)
        return RunPlan(log, settings, study, warmup, contextual)

    def _choice(self, log: ResolvedLog) -> tuple[Choice, ContextFeatures | None, int]:
        """The learner; with contexts also their features, and how many rows they were made of."""
        options, context = self.options, log.reading.columns.context
        name = options.learner or name_of_default(log.behavior, contexts=bool(context))
        if not context:
            return choose(name, log.behavior, len(log.actions), options.horizon), None, 0
        if name != CONTEXTUAL:
            raise InvalidArgument(
                "learner", name, "it ignores contexts", f"pass {CONTEXTUAL}, or leave out --context"
            )
        frame, played = self._first_rows(log, options.warmup_of(log.rows or 0))
        choice, contextual = choose_contextual(
            frame, played, context, len(log.actions), options.horizon
        )
        return choice, contextual, len(played)

    def _first_rows(self, log: ResolvedLog, count: int) -> tuple[pl.DataFrame, Integers]:
        """The contexts and actions of the first valid rows."""
        frames, actions, left = [], [], count
        refused = Counter[str]()
        for batch in log.batches():
            frames.append(batch.contexts().head(left))
            actions.append(batch.actions[:left])
            refused.update(batch.reasons())
            left -= len(actions[-1])
            if left <= 0:
                break
        if left == count:
            raise nothing_left(sources_name(self.sources), refused)
        return pl.concat(frames), np.concatenate(actions)

    def _go_on(self, kept: Policy) -> RunPlan:
        """Go on where an earlier run stopped; what it fixed stays fixed."""
        options, settings, behavior = self.options, kept.settings, kept.study.behavior
        agree("reward_range", options.reward_range, settings.reward_range)
        agree("actions", options.actions, kept.actions)
        agree("behavior", options.behavior, settings.behavior)
        agree("learner", options.learner, settings.learner)
        agree("horizon", options.horizon, settings.horizon)
        if options.probabilities is not None:
            given = probability_vector("behavior", dict(options.probabilities), kept.actions)
            agree("behavior", given.tolist(), np.asarray(behavior).tolist())
        if kept.study.certificate is not None:
            agree("confidence", options.confidence, kept.study.certificate.confidence)
        columns = options.columns_of(settings)
        rules = rules_of(
            options.after(settings), settings.behavior, kept.actions, behavior, closed=True
        )
        reading = LogReader(self.sources, columns).in_time_order(self.folder, self.watch)
        log = ResolvedLog(reading, rules, kept.actions, settings.behavior, behavior, None)
        settings = dataclasses.replace(settings, columns=columns)
        (curve,) = kept.study.curves
        if curve is not None:  # the first run has declared the actions
            curve = dataclasses.replace(curve, hindsight=False)
        study = dataclasses.replace(kept.study, curves=(curve,))
        return RunPlan(log, settings, study, 0, kept.contextual)

    # ------------------------------------------------------------------------------------ cover

    def cover(
        self, asked: Sequence[Asked], fingerprints: Sequence[str]
    ) -> tuple[RunOutcome, Sequence[Candidate], Sequence[Certificate | None]]:
        """Two passes: the second certifies the policies that the first has brought up."""
        options = self.options
        known = frozenset(label for target, _ in asked for label in target.labels)
        log = resolve(self.sources, options, self.folder, self.watch, known=known)
        begin = Observed.nothing(len(log.actions), log.behavior)
        with Quarantine(self.folder / QUARANTINE_FILE) as quarantine:
            seen = observe_rows(self._rows(log, quarantine, "counting"), begin)
        tallied = LogStatistics(log.actions, seen.tally, dict(quarantine.by_reason()))
        stretches, declared = seen.stretches.counts, bool(options.declared())
        candidates = candidates_beside(asked, fingerprints, tallied, stretches, declared=declared)
        intake = intake_of(self.sources, fingerprints, quarantine)
        outcome = RunOutcome(tallied, log.kind, intake, stretches)
        return outcome, candidates, self._certificates(log, candidates)

    def _certificates(
        self, log: ResolvedLog, candidates: Sequence[Candidate]
    ) -> list[Certificate | None]:
        """The certificate of each candidate that this log may judge."""
        if log.behavior is None and log.reading.columns.eligible is not None:
            return [None] * len(candidates)  # what can be played differs, so it cannot be counted
        K = len(log.actions)
        curves = [
            CertificatePath(
                Certificate(log.behavior, one.confidence(self.options.sure), K), one.hindsight
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
            lambda batch: [one.probabilities(batch.actions) for one in candidates],
        )
        return [None if curve is None else curve.certificate for curve in seen.curves]

    # ---------------------------------------------------------------------------------- certify

    def certify(self, target: Target, fingerprints: Sequence[str]) -> tuple[Certified, RunOutcome]:
        """In one pass, if all actions of the log are declared; else a scan comes before it."""
        found = None
        if self.options.actions is not None and self.options.probabilities is None:
            try:
                found = self._certify(target, fingerprints, declared_only=True)
            except UnexpectedAction:
                self.watch("looking", 0, None)
        return found or self._certify(target, fingerprints, declared_only=False)

    def _certify(
        self, target: Target, fingerprints: Sequence[str], *, declared_only: bool
    ) -> tuple[Certified, RunOutcome]:
        log = resolve(
            self.sources,
            self.options,
            self.folder,
            self.watch,
            known=target.labels,
            grow=True,
            declared_only=declared_only,
        )
        _refuse_uncertifiable(target, log)
        certificate = Certificate(log.behavior, self.options.sure, len(log.actions))
        hindsight = is_hindsight(target, log.actions, self.options.declared())
        curves = [CertificatePath(certificate, hindsight)]
        oddities = UnexpectedValues()

        def probabilities(batch: ValidatedBatch) -> list[Array]:
            oddities.update(target.oddities(batch))
            return [target.probabilities(batch, log.actions)]

        with Quarantine(self.folder / QUARANTINE_FILE) as quarantine:
            seen = observe_rows(
                self._rows(log, quarantine, "certifying"),
                Observed.nothing(len(log.actions), log.behavior, curves),
                probabilities,
            )
        if not seen.tally.rows:
            raise nothing_left(sources_name(self.sources), quarantine.by_reason())
        (curve,) = seen.curves
        assert curve is not None
        tallied = LogStatistics(log.actions, seen.tally, dict(quarantine.by_reason()))
        intake = intake_of(self.sources, fingerprints, quarantine)
        outcome = RunOutcome(tallied, log.kind, intake, seen.stretches.counts, +oddities)
        return Certified.of(curve.certificate, curve.points), outcome

    def _rows(
        self, log: ResolvedLog, quarantine: Quarantine, phase: str
    ) -> Iterator[ValidatedBatch]:
        return good_rows(log, quarantine, phase, self.watch, strict=self.strict)


def _learn(plan: RunPlan, rows: Iterator[ValidatedBatch]) -> tuple[Study, Array, UnexpectedValues]:
    """Learn from every valid row after the warm-up: the study, its policy, unusual contexts."""
    study, skip, contextual = plan.study, plan.warmup, plan.contextual
    last, oddities = None, UnexpectedValues()
    for batch in rows:
        skipped = min(skip, len(batch))
        skip -= skipped
        rest = batch.after(skipped) if skipped else batch
        if skip:
            continue  # of the warm-up, nothing counts
        x = None
        if contextual is not None:
            x = contextual.features(rest.contexts())
            oddities += contextual.encoder.unexpected_values(rest.contexts())
            last = last_rows(last, x)
        study = study.after(rest.log(x), rest.rejected)
    return study, average_policy(study, contextual, last), oddities


def _refuse_uncertifiable(target: Target, log: ResolvedLog) -> None:
    depends = isinstance(target, ContextualTarget) or log.reading.columns.eligible
    if depends and log.behavior is None:
        raise InvalidArgument(
            "behavior",
            log.kind,
            "a behavior that may depend on contexts or eligible sets cannot be counted",
            "name the column of propensities with --propensity",
        )
