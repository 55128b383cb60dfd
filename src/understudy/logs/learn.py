"""`us.logs.learn`: from a log to a policy, and to the files that keep it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Unpack

import numpy as np

from understudy.errors import InvalidArgument
from understudy.logs.aggregation.aggregates import LogStatistics
from understudy.logs.evaluation.verdicts import (
    Candidate,
    Coverage,
    candidates_of,
    coverage_from,
)
from understudy.logs.options import CONFIDENT, LearnOptions, Options, with_options
from understudy.logs.outputs import (
    POLICY_FILE,
    QUARANTINE_FILE,
    REPORT_FILE,
    RESULTS,
    ProgressCallback,
    no_progress,
    publish,
    scratch_folder,
)
from understudy.logs.policy import Policy, playable
from understudy.logs.readers.inputs import LogSource
from understudy.logs.results import UNDERSTUDY, LearnResult
from understudy.logs.runs.aggregate_run import LogInput
from understudy.logs.runs.provenance import refuse_inside
from understudy.logs.schema import ESTIMATED


def coverage_of_policy(policy: Policy) -> Coverage:
    """What the log says about actions, and about the understudy beside other policies."""
    study, scale = policy.study, policy.settings.scale
    tallied = LogStatistics(policy.actions, study.tally, dict(policy.refused))
    certificate, candidates = study.certificate, candidates_of(tallied)
    if policy.contextual is None:  # else its average is another policy
        now = Candidate(f"{UNDERSTUDY}'s policy now", playable(policy.average))
        candidates = [now, *candidates]
    if certificate is not None:
        candidates = [Candidate(UNDERSTUDY, None), *candidates]
    found = coverage_from(
        tallied,
        behavior=policy.settings.behavior,
        candidates=candidates,
        certificates=[certificate, *[None] * (len(candidates) - 1)],
        stretches=study.stretches.counts if study.stretches.rows else None,
        confidence=CONFIDENT if certificate is None else certificate.confidence,
        scale=scale,
    )
    if np.isnan(study.tally.weights).all() and policy.settings.behavior != ESTIMATED:
        return found.without_propensities()
    return found


@with_options(LearnOptions)
def learn(
    log: Any,
    *,
    out: str | os.PathLike[str] | None = None,
    strict: bool = False,
    resume: Policy | LearnResult | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    watch: ProgressCallback = no_progress,
    **options: Unpack[LearnOptions],
) -> LearnResult:
    """Learn a policy from the log of another one, and certify what it earned while learning.

    Args:
        log: a path, a glob, a folder, several of them, a frame (Polars, pandas, …), or Open Bandit
            Pipeline's bandit_feedback. A native frame of DuckDB, Dask or PySpark is taken as with
            `engine`.
        out: a folder for policy.json, report.html and quarantine.parquet; left out: no files.
        strict: whether a row that would be quarantined is an error.
        resume: the policy to go on from: the path of a policy.json, a `Policy`, or what `learn`
            gave.
        overwrite: whether a policy that is in `out` already may be replaced.
        watch: called with what is being done, how many rows were, and how many are expected.
        (options)

    `actions` may also be a list of labels, `behavior` a dict of probabilities by label, `context` a
    list of names. With `engine`, learning takes a horizon and gives no certificate.

    >>> import polars as pl
    >>> rows = pl.DataFrame({"action": ["a", "b"] * 200, "reward": [0, 1] * 200, "propensity": 0.5})
    >>> learned = learn(rows)
    >>> learned.policy.probabilities()["b"] > 0.9, learned.certified.promoted
    (True, True)
    """
    if "actions" not in options or options["actions"] is None:
        options["actions"] = _actions_of(log)
    checked = Options.of(**options)
    if resume is not None:
        _refuse_beginning(overwrite=overwrite or None, warmup=options.get("warmup"))
    source = LogInput.of(log, checked.format)
    kept, earlier = _kept(resume)
    folder = None if out is None else Path(out)
    before = None
    if folder is not None:
        _check_folder(folder, source.origins, may_replace=overwrite or kept is not None)
        before = _content(folder)
        earlier = earlier or folder / QUARANTINE_FILE
    with scratch_folder(folder or Path(gettempdir())) as hidden:
        found = source.run(checked, hidden, watch, strict=strict).learn(kept, earlier)
        learned = LearnResult(
            policy=found.policy,
            coverage=coverage_of_policy(found.policy),
            intake=found.intake,
            oddities=found.oddities,
        )
        if folder is not None:
            learned.policy.save(hidden / POLICY_FILE)
            (hidden / REPORT_FILE).write_text(learned.page(), encoding="utf-8")
            publish(hidden, folder, RESULTS, lambda: _refuse_changed(folder, before))
    return learned


def _actions_of(log: Any) -> range | None:
    """The actions that the log declares: a bandit_feedback has their number."""
    if isinstance(log, Mapping) and isinstance(log.get("n_actions"), int):
        return range(log["n_actions"])
    return None


def _refuse_beginning(**options: object) -> None:
    """Raise `InvalidArgument` for options that only have a meaning for a policy that begins."""
    for name, value in options.items():
        if value is not None:
            raise InvalidArgument(
                name,
                value,
                "a policy that --resume goes on from does not begin again",
                f"leave out --{name}, or --resume to begin again",
            )


def _kept(
    resume: Policy | LearnResult | str | os.PathLike[str] | None,
) -> tuple[Policy | None, Path | None]:
    """The policy to go on from, and where its quarantine is if it comes from a file."""
    if isinstance(resume, LearnResult):
        return resume.policy, None
    if isinstance(resume, Policy | None):
        return resume, None
    if not isinstance(resume, str | os.PathLike):
        raise InvalidArgument(
            "resume",
            resume,
            "it is not a policy to go on from",
            "pass the path of a policy.json, a us.logs.Policy, or what us.logs.learn gave",
        )
    return Policy.load(resume), Path(resume).parent / QUARANTINE_FILE


def _check_folder(out: Path, origins: Sequence[LogSource], *, may_replace: bool) -> None:
    """Say before the work that its results must not be written there."""
    refuse_inside(out, origins)
    if (out / POLICY_FILE).exists() and not may_replace:
        raise InvalidArgument(
            "out",
            str(out),
            "it holds a policy already",
            "pass --resume to go on with it, --overwrite to replace it, or another folder",
        )


def _content(out: Path) -> bytes | None:
    """The policy that is there now."""
    return (out / POLICY_FILE).read_bytes() if (out / POLICY_FILE).exists() else None


def _refuse_changed(out: Path, before: bytes | None) -> None:
    """Raise `InvalidArgument` if another run has written a policy since this one began."""
    if _content(out) != before:
        raise InvalidArgument(
            "out",
            str(out),
            "another run has put a policy there in the meantime, and nothing is written",
            "run it again, with --resume to go on from that policy",
        )
