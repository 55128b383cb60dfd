"""`us.logs.coverage`: what a log can show before learning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Unpack

from understudy.errors import InvalidArgument
from understudy.logs.evaluation.target_policies import (
    Fixed,
    RowTarget,
    Target,
    average_by_label,
    refuse_used_units,
    sticky_columns_of,
    target_of,
)
from understudy.logs.evaluation.verdicts import coverage_from
from understudy.logs.options import LogOptions, Options, with_options
from understudy.logs.outputs import ProgressCallback, no_progress, scratch_folder
from understudy.logs.results import CoverageResult, LearnResult, PolicyLike
from understudy.logs.runs.ordered_run import run_over
from understudy.logs.runs.setup import LogInput, fingerprints_of
from understudy.protocols import PRODUCTION


@with_options(LogOptions)
def coverage(
    log: Any,
    policies: PolicyLike | Sequence[PolicyLike] = (),
    *,
    watch: ProgressCallback = no_progress,
    **options: Unpack[LogOptions],
) -> CoverageResult:
    """Measure what a log shows of each action, and of policies, before learning.

    Two policies are judged beside the given `policies`: the uniform one, and the one that always
    plays the action that looks best, whose certificate pays for the choice. A policy that was
    learned from the same log gets no certificate.

    Args:
        log: as `us.logs.learn` takes it.
        policies: one policy or several, as `us.logs.certify` takes them.
        watch: called with what is being done, how many rows were, and how many are expected.
        (options)

    >>> import polars as pl
    >>> rows = pl.DataFrame({"action": ["a", "b"] * 200, "reward": [0, 1] * 200, "propensity": 0.5})
    >>> coverage(rows)
    CoverageResult(400 rows of 2 actions.)
    >>> print(coverage(rows))
    400 rows...
    """
    single = isinstance(policies, str) or not isinstance(policies, Sequence)
    several: Any = [policies] if single else policies
    targets = [_fixed_target(policy) for policy in several]
    checked = Options.of(**options)
    checked.refuse_rows_without_unit()
    refuse_used_units(targets, checked)
    passed = LogInput.of(log, checked.format)
    fingerprints = fingerprints_of(passed.sources)
    with scratch_folder(Path(gettempdir())) as hidden:
        run = run_over(passed, checked, hidden, watch)
        outcome, candidates, certificates = run.cover(targets, fingerprints)
    return CoverageResult(
        coverage=coverage_from(
            outcome.statistics,
            behavior=outcome.propensity_source,
            candidates=candidates,
            certificates=certificates,
            counts_over_time=outcome.counts_over_time,
            confidence=checked.confidence_or_default,
            scale=checked.scale,
            repeated=outcome.provenance.repeated,
            declared=bool(checked.declared()),
            sticky=sticky_columns_of(outcome.provenance.sticky, targets, checked),
            units=outcome.provenance.units,
        ),
        scale=checked.scale,
        kind=outcome.propensity_source,
        intake=outcome.provenance,
    )


def _fixed_target(policy: PolicyLike) -> Target:
    """The target of a policy, or `InvalidArgument` if it depends on the row."""
    target = target_of(
        policy.policy if isinstance(policy, LearnResult) else policy, None, best_action=False
    )
    if isinstance(target, RowTarget):
        learned, outside = target.policy, target.policy.study.learner.spec.outside
        if learned.contextual is None and outside == (PRODUCTION,):
            return Fixed(target.name, average_by_label(learned), learned=learned)
        on = "contexts" if learned.contextual is not None else ", ".join(outside)
        reason = f"it depends on {on}, row by row, and coverage is computed per action"
        raise InvalidArgument("policy", target.name, reason, "pass it to understudy certify")
    return target
