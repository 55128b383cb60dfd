"""Learning from the rows of a log in their order, from the beginning or from an earlier policy."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from understudy.behaviors import Logged
from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidLog, Verbatim
from understudy.formatting import counted
from understudy.logs.action_files import probability_vector
from understudy.logs.encoder import UnexpectedValues
from understudy.logs.evaluation.context_groups import ContextGroups
from understudy.logs.evaluation.questions import (
    PRODUCTION,
    NamedBaseline,
    QuarantinedRows,
    Question,
)
from understudy.logs.evaluation.target_policies import (
    Fixed,
    Target,
    baseline_over,
    fixed_baseline_of,
    refuse_unplayed_baseline,
    refuse_used_units,
)
from understudy.logs.features import ContextFeatures, LearnerFactory, Warmup, context_features
from understudy.logs.options import Options, require_same
from understudy.logs.outputs import QUARANTINE_FILE, Quarantine
from understudy.logs.policy import Policy, Provenance
from understudy.logs.readers.inputs import sources_name, with_vectors_of
from understudy.logs.readers.units import UnitRecord
from understudy.logs.rules import list_reasons, nothing_left
from understudy.logs.runs.certificate_path import Beside, among_all
from understudy.logs.runs.row_run import (
    NAME_PROPENSITIES,
    NO_CERTIFICATE,
    RowRun,
    refuse_without_propensities,
    used_units,
)
from understudy.logs.runs.setup import (
    ResolvedLog,
    RowTests,
    fingerprints_of,
    reader_of,
    refuse_learned,
    refuse_same_rows,
    resolve,
    rules_of,
)
from understudy.logs.runs.study import Study, last_policies, last_rows, mean_policy
from understudy.logs.schema import ESTIMATED, VECTOR
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

DEFAULTS = {"against": PRODUCTION, "quarantined": QuarantinedRows.WORST_CASE.value}


def _require_same_learner(wanted: Wanted, settings: Settings) -> None:
    """Raise `InvalidArgument` if a learner is not the one of the earlier run, or has no name."""
    name = named(wanted)
    if OWN in (name.values() if isinstance(name, Mapping) else (name,)):
        reason = "--resume goes on with the learner of the policy"
        raise InvalidArgument("learner", wanted, reason, "leave it out")
    if name != settings.learner:  # exp4 also stands for the experts that it mixes
        require_same("learner", name, settings.wanted or settings.learner)


def _with_name(question: Question, baseline: Fixed) -> Question:
    """The question, with the name and the probabilities of its baseline."""
    learned = () if baseline.learned is None else baseline.learned.files
    files = tuple(file.sha256 for file in learned)
    named_baseline = NamedBaseline(baseline.name, baseline.by_label, files)
    return dataclasses.replace(question, against=named_baseline)


def _refuse_files_of(baseline: NamedBaseline, fingerprints: Iterable[str]) -> None:
    """Raise `InvalidLog` if the baseline was itself learned from one of these files."""
    if not set(baseline.files).isdisjoint(fingerprints):
        reason = "the baseline was learned from a file of this log, so that it is not fixed"
        raise InvalidLog("against", baseline.name, reason, "pass a log of other rows")


def _refuse_baseline_of(log: ResolvedLog, baseline: Target, study: Study) -> None:
    """Raise an error if no row shows an action of the baseline, or it was learned from the rows."""
    statistics = LogStatistics(log.actions, study.sums, {})
    refuse_unplayed_baseline(baseline, statistics)
    if baseline.learned is not None:
        refuse_same_rows(statistics, study.counts_over_time.counts, baseline.learned)


def _require_same_question(options: Options, earlier: Policy) -> None:
    """Raise `InvalidArgument` if the user asks another question than that of the earlier run."""
    asked, known = options.question, earlier.question
    (curve,) = earlier.study.curves
    same = {
        "guardrail": set(asked.guardrails) == set(known.guardrails),
        "segment": asked.segments == known.segments,
        "quarantined": asked.quarantined is known.quarantined,
    }
    if "against" in options.asked:
        given, before = fixed_baseline_of(asked), None if curve is None else curve.against
        now = given and baseline_over(given, earlier.actions).fixed(earlier.actions)
        same["against"] = np.array_equal(now, before)  # type: ignore[arg-type] # None equals itself
    for name in options.asked:
        if not same[name]:
            each = [one.texts[name] or DEFAULTS.get(name) for one in (asked, known)]
            values = [None if one is None else Verbatim(one) for one in each]
            require_same(name, values[0] or Verbatim("none"), values[1])


@dataclass(frozen=True, eq=False)
class RunPlan:
    """The log, settings, study, features and sums of the warm-up of a run before its first row.

    `question` is what the certificate of the study answers, and `baseline` the one of a first run.
    """

    log: ResolvedLog
    settings: Settings
    study: Study
    warmup: ActionStatistics
    contextual: ContextFeatures | None
    question: Question
    baseline: Target | None = None


@dataclass(frozen=True, eq=False)
class LearningRun(RowRun):
    """A run that learns from the rows of a log."""

    def learn(
        self, earlier: Policy | None, earlier_quarantine: Path | None
    ) -> tuple[Policy, Provenance, UnexpectedValues]:
        """Learn row by row, from the beginning or from an earlier policy."""
        with ThreadPoolExecutor(1) as pool:
            hashing = pool.submit(fingerprints_of, self.sources)
            if earlier is not None:
                refuse_learned(self.sources, hashing.result(), earlier)
            plan = self._begin() if earlier is None else self._go_on(earlier)
            baseline = plan.baseline
            if isinstance(plan.question.against, NamedBaseline):
                _refuse_files_of(plan.question.against, hashing.result())
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
        if baseline is not None:
            _refuse_baseline_of(plan.log, baseline, study)
        provenance = self._provenance(plan.log, fingerprints, quarantine, tests)
        policy = _policy(plan, study, average, provenance, quarantine, earlier)
        return policy, provenance, unexpected

    def _begin(self) -> RunPlan:
        """Resolve the log, choose the learner, and begin its study."""
        options = self.options
        share = bool(options.columns.get("context")) and options.warmup < 1
        asked = options.question.against is not None
        baseline = fixed_baseline_of(options.question) if asked else None
        if baseline is not None:
            refuse_used_units([baseline], options)
        used = used_units([baseline])
        log = resolve(self.sources, options, self.folder, self.watch, count=share, used=used)
        refuse_without_propensities(options.question, log)
        against, question = None, options.question
        if baseline is not None:
            baseline = baseline_over(baseline, log.actions, options.declared())
            against, question = baseline.fixed(log.actions), _with_name(question, baseline)
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
        if confidence is None:
            question.refuse(NO_CERTIFICATE, NAME_PROPENSITIES)
        study = Study.begin(
            choice.learner,
            log.behavior,
            confidence,
            declared=declared,
            partial=columns.eligible is not None,
            groups=groups,
            question=question,
            against=against,
            forks=True,
        )
        return RunPlan(log, settings, study, warmup, contextual, question, baseline)

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
        (curve,) = earlier.study.curves
        if curve is not None:
            require_same("confidence", options.confidence, curve.confidence)
        _require_same_question(options, earlier)
        columns, resumed = options.resumed_columns(settings), options.with_defaults_of(settings)
        resumed = dataclasses.replace(resumed, question=earlier.question)
        rules = rules_of(
            resumed,
            settings.behavior,
            earlier.actions,
            behavior,
            closed=True,
        )
        read = columns
        if VECTOR not in options.columns and curve is not None and curve.certificate.centered:
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
        if curve is not None:  # the first run declares the actions for this one
            curve = curve.resumed(earlier.rows, partial=columns.eligible is not None)
        study = dataclasses.replace(earlier.study, curves=(curve,))
        nothing = ActionStatistics.empty(len(log.actions))
        return RunPlan(log, settings, study, nothing, earlier.contextual, earlier.question)


def _policy(  # noqa: PLR0917 - all that a run made
    plan: RunPlan,
    study: Study,
    average: Array,
    provenance: Provenance,
    quarantine: Quarantine,
    earlier: Policy | None,
) -> Policy:
    """The policy of a run, with what is known of the `earlier` one that it goes on from."""
    repeated, sticky, units = provenance.repeated, provenance.sticky, plan.log.reader.units
    files, reject_counts = provenance.files, quarantine.by_reason()
    if earlier is not None:
        files = (*earlier.files, *files)
        reject_counts.update(earlier.refused)
        if earlier.repeated is not None and earlier.repeated.found:
            repeated = earlier.repeated  # its rows are learned from
        if earlier.sticky is not None and earlier.sticky.found:
            sticky = earlier.sticky
    return Policy(
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
        else UnitRecord.of(
            units, None if earlier is None else earlier.units, used_units([plan.baseline])
        ),
        question=plan.question,
    )


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
        beside = Beside(None, *plan.question.columns_of(rest))
        study = study.after(rest.log(x), rest.rejected, codes, beside)
    policies = last_policies(study, contextual, last)
    if study.groups is not None and last is not None and last_codes is not None:
        groups = study.groups.with_policies(last_codes, *policies)
        study = dataclasses.replace(study, groups=groups)
    return study, mean_policy(study, *policies), unexpected
