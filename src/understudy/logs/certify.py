"""`us.logs.certify`: off-policy evaluation of a fixed policy, with a certificate."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Unpack

from understudy.errors import InvalidArgument
from understudy.logs.evaluation.target_policies import (
    are_known,
    disjoint_actions,
    refuse_used_units,
    sticky_columns_of,
    target_of,
)
from understudy.logs.evaluation.verdicts import Candidate, coverage_from
from understudy.logs.options import LogOptions, Options, with_options
from understudy.logs.outputs import (
    POLICY_FILE,
    QUARANTINE_FILE,
    REPORT_FILE,
    ProgressCallback,
    no_progress,
    publish,
    scratch_folder,
)
from understudy.logs.policy import Policy
from understudy.logs.results import CertifyResult, LearnResult
from understudy.logs.runs.ordered_run import run_over
from understudy.logs.runs.setup import LogInput, fingerprints_of, refuse_learned, refuse_same_rows
from understudy.logs.schema import Label


@with_options(LogOptions)
def certify(
    log: Any,
    policy: Policy | LearnResult | str | os.PathLike[str] | Mapping[Label, float] | None = None,
    *,
    best_action: bool = False,
    target_probability: str | None = None,
    out: str | os.PathLike[str] | None = None,
    strict: bool = False,
    watch: ProgressCallback = no_progress,
    **options: Unpack[LogOptions],
) -> CertifyResult:
    """Certify a fixed policy on a log that it was not learned from.

    Args:
        log: as `us.logs.learn` takes it.
        policy: a result or file of `learn`, probabilities by label or a file of them, or 'uniform'.
        best_action: whether only the most probable action of the policy is played.
        target_probability: in place of a policy, the column with the probability of the logged
            action under a model of your own.
        out: a folder for report.html and quarantine.parquet; left out: no files.
        strict: whether a row that would be quarantined is an error.
        watch: called with what is being done, how many rows were, and how many are expected.
        (options)

    The columns and the range of rewards of a learned policy are the defaults. The policy plays an
    action that it does not know with probability 0.

    >>> import polars as pl
    >>> rows = pl.DataFrame({"action": ["a", "b"] * 200, "reward": [0, 1] * 200, "propensity": 0.5})
    >>> certify(rows, {"a": 0.1, "b": 0.9}).certified.promoted
    True
    """
    folder = None if out is None else Path(out)
    _refuse_folder_of_policy(folder)
    target = target_of(
        policy.policy if isinstance(policy, LearnResult) else policy,
        target_probability,
        best_action=best_action,
    )
    learned = target.learned
    checked = Options.of(target=target_probability, **options)
    if learned is not None:
        checked = checked.with_defaults_of(learned.settings)
        refuse_used_units([target], checked)
    checked.refuse_rows_without_unit()
    passed = LogInput.of(log, checked.format)
    if folder is not None:
        passed.refuse_folder(folder)
    fingerprints = fingerprints_of(passed.sources)
    if learned is not None:
        refuse_learned(passed.sources, fingerprints, learned)
    with scratch_folder(folder or Path(gettempdir())) as hidden:
        run = run_over(passed, checked, hidden, watch, strict=strict)
        certified, outcome = run.certify(target, fingerprints)
        statistics, certificate = outcome.statistics, certified.certificate
        if learned is not None:
            refuse_same_rows(statistics, outcome.counts_over_time, learned)
        labels, fixed = statistics.actions.labels, target.fixed(statistics.actions)
        result = CertifyResult(
            name=target.name,
            policy=None if fixed is None else dict(zip(labels, fixed.tolist(), strict=True)),
            certified=certified,
            coverage=coverage_from(
                statistics,
                behavior=outcome.propensity_source,
                candidates=[Candidate(target.name, fixed)],
                certificates=[certificate],
                counts_over_time=outcome.counts_over_time,
                confidence=certificate.confidence,
                scale=checked.scale,
                repeated=outcome.provenance.repeated,
                declared=are_known(statistics.actions, target, checked.declared()),
                sticky=sticky_columns_of(outcome.provenance.sticky, [target], checked),
                units=outcome.provenance.units,
            ),
            scale=checked.scale,
            kind=outcome.propensity_source,
            intake=outcome.provenance,
            oddities=outcome.unexpected,
            strange=disjoint_actions(target, statistics),
            learned=None if best_action else learned,
        )
        if folder is not None:
            (hidden / REPORT_FILE).write_text(result.page(), encoding="utf-8")
            names = [QUARANTINE_FILE, REPORT_FILE]
            publish(hidden, folder, names, lambda: _refuse_folder_of_policy(folder))
    return result


def _refuse_folder_of_policy(out: Path | None) -> None:
    """Raise `InvalidArgument` if a folder holds what `learn` wrote, which belongs together."""
    if out is not None and (out / POLICY_FILE).exists():
        reason = "it holds a policy and the report about it"
        raise InvalidArgument("out", str(out), reason, "choose another folder")
