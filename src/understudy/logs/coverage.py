"""`us.logs.coverage`: what a log can say, before anything is learned from it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Unpack

from understudy.errors import InvalidArgument
from understudy.logs.evaluation.target_policies import ContextualTarget, Target, target_of
from understudy.logs.evaluation.verdicts import coverage_from
from understudy.logs.options import LogOptions, Options, with_options
from understudy.logs.outputs import ProgressCallback, no_progress, scratch_folder
from understudy.logs.policy import Policy
from understudy.logs.results import CoverageResult, LearnResult
from understudy.logs.runs.ordered_run import run_over
from understudy.logs.runs.provenance import fingerprints_of
from understudy.logs.runs.setup import LogInput
from understudy.logs.schema import Label

Asked = Policy | LearnResult | str | os.PathLike[str] | Mapping[Label, float]


@with_options(LogOptions)
def coverage(
    log: Any,
    policies: Asked | Sequence[Asked] = (),
    *,
    watch: ProgressCallback = no_progress,
    **options: Unpack[LogOptions],
) -> CoverageResult:
    """What a log can say about each action, and about policies, before learning.

    Beside the `policies` that are given (as `us.logs.certify` takes them), two are judged: the
    uniform one, and always playing the action that looks best, whose certificate pays for having
    been chosen. A policy that was learned from this very log is judged by its coverage alone.

    Args:
        log: as `us.logs.learn` takes it.
        policies: those to ask about, or one.
        watch: called with what is being done, how many rows were, and how many are expected.
        (options)

    >>> import polars as pl
    >>> rows = pl.DataFrame({"action": ["a", "b"] * 200, "reward": [0, 1] * 200, "propensity": 0.5})
    >>> coverage(rows)
    CoverageResult(400 rows of 2 actions.)
    >>> print(coverage(rows))
    400 rows...
    """
    asked = [_fixed_target(policy) for policy in _several(policies)]
    checked = Options.of(**options)
    passed = LogInput.of(log, checked.format)
    fingerprints = fingerprints_of(passed.sources)
    with scratch_folder(Path(gettempdir())) as hidden:
        run = run_over(passed, checked, hidden, watch)
        found, candidates, certificates = run.cover(asked, fingerprints)
    covered = coverage_from(
        found.tallied,
        behavior=found.kind,
        candidates=candidates,
        certificates=certificates,
        stretches=found.stretches,
        confidence=checked.sure,
        scale=checked.scale,
    )
    return CoverageResult(
        coverage=covered, scale=checked.scale, kind=found.kind, intake=found.intake
    )


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
