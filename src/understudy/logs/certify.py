"""`us.logs.certify`: what a policy that stays as it is would have earned on a log."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Unpack

from understudy.behaviors import Logged
from understudy.certificates import Certificate, Certified
from understudy.certificates.curves import Point
from understudy.errors import InvalidArgument
from understudy.logs.aggregates import LogStatistics
from understudy.logs.certified_targets import (
    ContextualTarget,
    Target,
    is_hindsight,
    strangers,
    target_of,
)
from understudy.logs.coverage_table import Candidate, Coverage, covered
from understudy.logs.engine_runs import Unordered, certify_from
from understudy.logs.options import CONFIDENT, LogOptions, Options
from understudy.logs.outputs import (
    POLICY_FILE,
    QUARANTINE_FILE,
    REPORT_FILE,
    Quarantine,
    publish,
    scratch_folder,
)
from understudy.logs.policy import Policy
from understudy.logs.progress import ProgressCallback, no_progress
from understudy.logs.provenance import (
    Provenance,
    fingerprints_of,
    good_rows,
    intake_of,
    origins_of,
    refuse_inside,
    refuse_learned,
    refuse_same_rows,
)
from understudy.logs.readers.inputs import Origin, name_of
from understudy.logs.reject_reasons import nothing_left, refuse_bad_rows
from understudy.logs.results import CertifyResult, LearnResult
from understudy.logs.schema import Actions, Kind, Label
from understudy.logs.setup import ResolvedLog, prepare
from understudy.logs.statistics import ActionStatistics, CountsOverTime
from understudy.logs.study import observe, with_propensities, without_first_plays
from understudy.logs.validate import ValidatedBatch
from understudy.logs.verdicts import judge_rows
from understudy.report import render
from understudy.types import Integers

if TYPE_CHECKING:
    pass

__all__ = ["CertifyResult", "certify"]


def certify(
    log: Any,
    policy: Policy | LearnResult | str | os.PathLike[str] | Mapping[Label, float] | None = None,
    *,
    best_action: bool = False,
    target_probability: str | None = None,
    out: str | os.PathLike[str] | None = None,
    strict: bool = False,
    engine: str | None = None,
    watch: ProgressCallback = no_progress,
    **options: Unpack[LogOptions],
) -> CertifyResult:
    """Certify a policy that stays as it is, on a log that it was not learned from.

    Args:
        log: as `us.logs.learn` takes it.
        policy: what `learn` gave or wrote, probabilities by label or a file of them, or 'uniform'.
        best_action: whether only the most probable action of the policy is played.
        target_probability: in place of a policy, the column with the probability of the logged
            action under a model of your own.
        out: a folder for report.html and quarantine.parquet; left out: no files.
        strict: whether a row that would be quarantined is an error.
        engine: compute sums in no order with 'polars', 'duckdb', 'dask' or 'pyspark'.
        watch: called with what is being done, how many rows were, and how many are expected.
        options: those of `us.logs.learn` that say how a log is read; where a learned policy is
            certified, its columns and its range of rewards are the defaults.

    An action that the policy does not know is one that it never plays: rows of it count.

    >>> rows = pl.DataFrame({"action": ["a", "b"] * 200, "reward": [0, 1] * 200, "propensity": 0.5})
    >>> certify(rows, {"a": 0.1, "b": 0.9}).certified.promoted
    True
    """
    folder = None if out is None else Path(out)
    _refuse_folder_of_policy(folder)
    asked = policy.policy if isinstance(policy, LearnResult) else policy
    target, learned = target_of(asked, target_probability, best_action=best_action)
    kept = None if learned is None else learned.settings
    checked = Options.of(target=target_probability, **options).after(kept)
    native = Unordered.of(log)
    origins = [] if native else origins_of(log, options.get("format"))
    if folder is not None:
        refuse_inside(folder, origins)
    fingerprints = fingerprints_of(origins)
    if learned is not None:
        refuse_learned(origins, fingerprints, learned)
    with scratch_folder(folder or Path(gettempdir())) as hidden:
        run = Judging(target, learned, checked, hidden, watch, strict)
        if native or engine is not None:
            judged = run.in_no_order(native or Unordered(engine or "", origins))
        else:
            judged = run.in_order(origins, fingerprints)
        if folder is not None:
            (hidden / REPORT_FILE).write_text(render(judged.report), encoding="utf-8")
            names = [QUARANTINE_FILE, REPORT_FILE]
            publish(hidden, folder, names, lambda: _refuse_folder_of_policy(folder))
    return judged


def _refuse_folder_of_policy(out: Path | None) -> None:
    """What `learn` wrote belongs together: a report about something else is not put there."""
    if out is not None and (out / POLICY_FILE).exists():
        raise InvalidArgument(
            "out",
            str(out),
            "it holds a policy and the report about it",
            "choose another folder",
        )


@dataclass(frozen=True, eq=False)
class Observed:
    """What a run saw: the certificate, sums, actions early and late, and odd values of contexts."""

    certified: Certified
    tallied: LogStatistics
    stretches: Integers | None = None
    oddities: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Judging:
    """One run over a log: what is certified, what was asked for, a folder for what it writes.

    `learned` is the policy that the target was made from, if it was.
    """

    target: Target
    learned: Policy | None
    options: Options
    hidden: Path
    watch: ProgressCallback
    strict: bool

    def in_order(self, origins: Sequence[Origin], fingerprints: Sequence[str]) -> CertifyResult:
        """Row by row, with curves."""
        known = self.target.labels
        chosen = prepare(origins, self.options, self.hidden, self.watch, known=known, grow=True)
        self._refuse_uncertifiable(chosen)
        with Quarantine(self.hidden / QUARANTINE_FILE) as quarantine:
            rows = good_rows(chosen, quarantine, "certifying", self.watch, strict=self.strict)
            seen = self._observed(chosen, rows, quarantine)
        if not seen.tallied.tally.rows:
            raise nothing_left(name_of(origins), quarantine.by_reason())
        return self._judged(seen, chosen.kind, intake_of(origins, fingerprints, quarantine))

    def in_no_order(self, log: Unordered) -> CertifyResult:
        """From sums: at the end, without a curve."""
        certificate, tallied, kind = certify_from(log, self.options, self.target)
        if self.strict:
            refuse_bad_rows(tallied.refused)
        with Quarantine(self.hidden / QUARANTINE_FILE):
            pass  # which rows they are is not known
        intake = Provenance.in_no_order(log.engine, tallied.refused, log.origins)
        return self._judged(Observed(Certified.of(certificate), tallied), kind, intake)

    def _judged(self, seen: Observed, kind: Kind, intake: Provenance) -> CertifyResult:
        if self.learned is not None:
            refuse_same_rows(seen.tallied, seen.stretches, self.learned)
        return CertifyResult(
            name=self.target.name,
            policy=_by_label(self.target, seen.tallied.actions),
            certified=seen.certified,
            coverage=self._coverage(seen, kind),
            scale=self.options.scale,
            kind=kind,
            intake=intake,
            oddities=seen.oddities,
            strange=strangers(self.target, seen.tallied),
        )

    def _observed(
        self, chosen: ResolvedLog, rows: Iterator[ValidatedBatch], quarantine: Quarantine
    ) -> Observed:
        K, logged = len(chosen.actions), isinstance(chosen.behavior, Logged)
        certificate = Certificate(chosen.behavior, self.options.confidence or CONFIDENT, K)
        tally, stretches = ActionStatistics.empty(K), CountsOverTime.empty(K)
        points: list[Point] = []
        hindsight = is_hindsight(self.target, chosen.actions, self.options.declared())
        oddities = Counter[str]()
        for checked in rows:
            oddities += self.target.oddities(checked)
            log = checked.log().visible(propensities=logged, features=False)
            pi = self.target.probabilities(checked, chosen.actions)
            if hindsight:
                pi = without_first_plays(pi, log.actions, tally.counts)
            certificate, more = observe(certificate, log, pi, checked.rejected)
            points += more
            tally = tally.after(with_propensities(log, chosen.behavior))
            stretches = stretches.after(checked.actions)
        tallied = LogStatistics(chosen.actions, tally, dict(quarantine.by_reason()))
        return Observed(Certified.of(certificate, points), tallied, stretches.counts, oddities)

    def _coverage(self, seen: Observed, kind: Kind) -> Coverage:
        """What the log says about actions, and about the one policy that was asked about."""
        tallied, certificate = seen.tallied, seen.certified.certificate
        name, fixed = self.target.name, self.target.fixed(tallied.actions)
        found = covered(
            tallied,
            behavior=kind,
            candidates=[] if fixed is None else [Candidate(name, fixed)],
            certificates=[] if fixed is None else [certificate],
            stretches=seen.stretches,
            confidence=certificate.confidence,
            scale=self.options.scale,
        )
        if fixed is not None:
            return found
        verdict = judge_rows(name, certificate, tallied.tally, found.grounds)
        return dataclasses.replace(found, verdicts=(verdict,))

    def _refuse_uncertifiable(self, chosen: ResolvedLog) -> None:
        depends = isinstance(self.target, ContextualTarget) or chosen.reading.columns.eligible
        if depends and chosen.behavior is None:
            raise InvalidArgument(
                "behavior",
                chosen.kind,
                "a behavior that may depend on contexts or eligible sets cannot be counted",
                "name the column of propensities with --propensity",
            )


def _by_label(target: Target, actions: Actions) -> dict[Label, float] | None:
    fixed = target.fixed(actions)
    return None if fixed is None else dict(zip(actions.labels, fixed.tolist(), strict=True))
