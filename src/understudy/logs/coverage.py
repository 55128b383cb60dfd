"""`us.logs.coverage`: what a log can say, before anything is learned from it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from understudy.behaviors import Logged
from understudy.certificates import Certificate
from understudy.errors import InvalidArgument
from understudy.logs.aggregates import LogStatistics
from understudy.logs.certified_targets import ContextualTarget, Target, target_of
from understudy.logs.coverage_table import Candidate, candidates_beside, covered
from understudy.logs.engine_runs import Unordered, cover_from
from understudy.logs.options import CONFIDENT, LogOptions, Options
from understudy.logs.outputs import QUARANTINE_FILE, Quarantine, scratch_folder
from understudy.logs.policy import Policy
from understudy.logs.progress import ProgressCallback, no_progress
from understudy.logs.provenance import Provenance, fingerprints_of, good_rows, intake_of, origins_of
from understudy.logs.results import CoverageResult, LearnResult
from understudy.logs.schema import Label
from understudy.logs.setup import ResolvedLog, prepare
from understudy.logs.statistics import ActionStatistics, CountsOverTime
from understudy.logs.study import observe, with_propensities, without_first_plays

if TYPE_CHECKING:
    pass

__all__ = ["CoverageResult", "coverage"]

Asked = Policy | LearnResult | str | os.PathLike[str] | Mapping[Label, float]


def coverage(
    log: Any,
    policies: Asked | Sequence[Asked] = (),
    *,
    engine: str | None = None,
    watch: ProgressCallback = no_progress,
    **options: Unpack[LogOptions],
) -> CoverageResult:
    """What a log can say about each action, and about policies, before learning.

    Beside the `policies` that are given (as `us.logs.certify` takes them), two are judged: the
    uniform one, and always playing the action that looks best, whose certificate pays for having
    been chosen. A policy that was learned from this very log is judged by its coverage alone.
    `engine` computes the sums with 'polars', 'duckdb', 'dask' or 'pyspark', in no order. The other
    arguments are those of `us.logs.learn` that say how a log is read.

    >>> rows = pl.DataFrame({"action": ["a", "b"] * 200, "reward": [0, 1] * 200, "propensity": 0.5})
    >>> coverage(rows)
    CoverageResult(400 rows of 2 actions.)
    >>> print(coverage(rows))
    400 rows...
    """
    asked = [_fixed_target(policy) for policy in _several(policies)]
    checked = Options.of(**options)
    native = Unordered.of(log)
    origins = [] if native else origins_of(log, options.get("format"))
    fingerprints = fingerprints_of(origins)
    if native or engine is not None:
        unordered = native or Unordered(engine or "", origins)
        found, kind = cover_from(unordered, checked, asked, fingerprints)
        intake = Provenance.in_no_order(unordered.engine, found.refused, origins)
        return CoverageResult(coverage=found, scale=checked.scale, kind=kind, intake=intake)
    known = frozenset(label for target, _ in asked for label in target.labels)
    with scratch_folder(Path(gettempdir())) as hidden:
        chosen = prepare(origins, checked, hidden, watch, known=known)
        with Quarantine(hidden / QUARANTINE_FILE) as quarantine:
            tallied, stretches = _tallied(chosen, quarantine, watch)
        candidates = candidates_beside(
            asked, fingerprints, tallied, stretches.counts, declared=bool(checked.declared())
        )
        confidence = checked.confidence or CONFIDENT
        found = covered(
            tallied,
            behavior=chosen.kind,
            candidates=candidates,
            certificates=_certificates(chosen, candidates, confidence, watch),
            stretches=stretches.counts,
            confidence=confidence,
            scale=checked.scale,
        )
    intake = intake_of(origins, fingerprints, quarantine)
    return CoverageResult(coverage=found, scale=checked.scale, kind=chosen.kind, intake=intake)


def _several(policies: Asked | Sequence[Asked]) -> Sequence[Asked]:
    """A list of one, where only one was passed."""
    one = isinstance(policies, str) or not isinstance(policies, Sequence)
    return [policies] if one else policies  # type: ignore[list-item,return-value] # seen just now


def _fixed_target(policy: Asked) -> tuple[Target, Policy | None]:
    found = policy.policy if isinstance(policy, LearnResult) else policy
    target, learned = target_of(found, None, best_action=False)
    if isinstance(target, ContextualTarget):
        raise InvalidArgument(
            "policy",
            target.name,
            "it depends on contexts, of which coverage per action says nothing",
            "ask understudy certify about it",
        )
    return target, learned


def _tallied(
    chosen: ResolvedLog, quarantine: Quarantine, watch: ProgressCallback
) -> tuple[LogStatistics, CountsOverTime]:
    """The sums of all good rows, and how often actions were played early and late."""
    K = len(chosen.actions)
    tally, stretches = ActionStatistics.empty(K), CountsOverTime.empty(K)
    for checked in good_rows(chosen, quarantine, "counting", watch, strict=False):
        tally = tally.after(with_propensities(checked.log(), chosen.behavior))
        stretches = stretches.after(checked.actions)
    return LogStatistics(chosen.actions, tally, dict(quarantine.by_reason())), stretches


def _certificates(
    chosen: ResolvedLog, candidates: Sequence[Candidate], confidence: float, watch: ProgressCallback
) -> list[Certificate | None]:
    """The certificate of each candidate that this log may judge."""
    if chosen.behavior is None and chosen.reading.columns.eligible is not None:
        return [None] * len(candidates)  # what can be played differs, so it cannot be counted
    K, logged = len(chosen.actions), isinstance(chosen.behavior, Logged)
    found = [
        Certificate(chosen.behavior, candidate.confidence(confidence), K)
        if candidate.may_be_judged
        else None
        for candidate in candidates
    ]
    seen = np.zeros(K, dtype=np.int64)
    for checked in chosen.checked():
        watch("certifying", len(checked), chosen.rows)
        log = checked.log().visible(propensities=logged, features=False)
        for i, candidate in enumerate(candidates):
            certificate = found[i]
            if certificate is not None:
                pi = candidate.policy[log.actions]
                if candidate.hindsight:
                    pi = without_first_plays(pi, log.actions, seen)
                found[i], _ = observe(certificate, log, pi, checked.rejected)
        seen += np.bincount(log.actions, minlength=K)
    return found
