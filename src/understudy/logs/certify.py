"""`us.logs.certify`: what a policy that stays as it is would have earned on a log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Unpack

from understudy.errors import InvalidArgument
from understudy.logs.evaluation.target_policies import disjoint_actions, target_of
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
from understudy.logs.runs.aggregate_run import LogInput
from understudy.logs.runs.provenance import (
    fingerprints_of,
    refuse_inside,
    refuse_learned,
    refuse_same_rows,
)
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
    """Certify a policy that stays as it is, on a log that it was not learned from.

    Args:
        log: as `us.logs.learn` takes it.
        policy: what `learn` gave or wrote, probabilities by label or a file of them, or 'uniform'.
        best_action: whether only the most probable action of the policy is played.
        target_probability: in place of a policy, the column with the probability of the logged
            action under a model of your own.
        out: a folder for report.html and quarantine.parquet; left out: no files.
        strict: whether a row that would be quarantined is an error.
        watch: called with what is being done, how many rows were, and how many are expected.
        (options)

    Where a learned policy is certified, its columns and its range of rewards are the defaults. An
    action that the policy does not know is one that it never plays: rows of it count.

    >>> import polars as pl
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
    source = LogInput.of(log, checked.format)
    if folder is not None:
        refuse_inside(folder, source.origins)
    fingerprints = fingerprints_of(source.origins)
    if learned is not None:
        refuse_learned(source.origins, fingerprints, learned)
    with scratch_folder(folder or Path(gettempdir())) as hidden:
        found = source.run(checked, hidden, watch, strict=strict).certify(target, fingerprints)
        if learned is not None:
            refuse_same_rows(found.tallied, found.stretches, learned)
        labels, fixed = found.tallied.actions.labels, target.fixed(found.tallied.actions)
        certificate = found.certified.certificate
        judged = CertifyResult(
            name=target.name,
            policy=None if fixed is None else dict(zip(labels, fixed.tolist(), strict=True)),
            certified=found.certified,
            coverage=coverage_from(
                found.tallied,
                behavior=found.kind,
                candidates=[Candidate(target.name, fixed)],
                certificates=[certificate],
                stretches=found.stretches,
                confidence=certificate.confidence,
                scale=checked.scale,
            ),
            scale=checked.scale,
            kind=found.kind,
            intake=found.intake,
            oddities=found.oddities,
            strange=disjoint_actions(target, found.tallied),
        )
        if folder is not None:
            (hidden / REPORT_FILE).write_text(judged.page(), encoding="utf-8")
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
