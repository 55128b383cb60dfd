"""`us.logs.learn`: learn a policy from a log, and write its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Unpack

import numpy as np

from understudy.errors import InvalidArgument
from understudy.logs.evaluation.answers import Answers
from understudy.logs.evaluation.verdicts import Candidate, Coverage, candidates_of, coverage_from
from understudy.logs.options import DEFAULT_CONFIDENCE, LearnOptions, Options, with_options
from understudy.logs.outputs import (
    POLICY_FILE,
    QUARANTINE_FILE,
    REPORT_FILE,
    RESULTS,
    UNITS_FILE,
    ProgressCallback,
    no_progress,
    publish,
    scratch_folder,
)
from understudy.logs.policy import Policy, playable
from understudy.logs.results import UNDERSTUDY, LearnResult
from understudy.logs.runs.learning_run import LearningRun
from understudy.logs.runs.ordered_run import refuse_question_of_sums, run_over
from understudy.logs.runs.setup import LogInput
from understudy.logs.runs.study import answers_of
from understudy.logs.schema import ESTIMATED
from understudy.logs.settings import ALLOW, Assumption, refuse_unsaveable
from understudy.logs.statistics import LogStatistics


def coverage_of_policy(policy: Policy) -> Coverage:
    """The coverage of the log that a policy was learned from, with its verdicts."""
    study, scale = policy.study, policy.settings.scale
    statistics = LogStatistics(policy.actions, study.sums, dict(policy.refused))
    path, candidates = policy.certificates, candidates_of(statistics)
    certificate, baseline = None if path is None else path.certificate, policy.baseline
    if policy.contextual is None:  # else its average is another policy
        now = Candidate(f"{UNDERSTUDY}'s policy now", playable(policy.average))
        candidates = [now, *candidates]
    if baseline is not None:
        candidates = [replace(one, answers=Answers(baseline)) for one in candidates]
    if path is not None:
        (whole,) = study.curves
        assert whole is not None  # the path is it, or the one without rejected rows
        answers = answers_of(whole, policy.question, baseline)
        candidates = [Candidate(UNDERSTUDY, None, answers=answers), *candidates]
    coverage = coverage_from(
        statistics,
        behavior=policy.settings.behavior,
        candidates=candidates,
        certificates=[certificate, *[None] * (len(candidates) - 1)],
        counts_over_time=study.counts_over_time.counts if study.counts_over_time.rows else None,
        confidence=DEFAULT_CONFIDENCE if path is None else path.confidence,
        scale=scale,
        repeated=None if policy.settings.repeated_rows == ALLOW else policy.repeated,
        declared=Assumption.DECLARED_ACTIONS not in policy.settings.unmet,
        sticky=None if policy.settings.no_unit else policy.sticky,
        units=None if policy.units is None else policy.units.counts,
        by_unit=policy.settings.columns.unit is not None,
    )
    if np.isnan(study.sums.weights).all() and policy.settings.behavior != ESTIMATED:
        return coverage.without_propensities()
    return coverage


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
        resume: the policy to go on from: the path of a policy.json, a `Policy`, or a result of
            `learn`.
        overwrite: whether a policy that is in `out` already may be replaced.
        watch: called with what is being done, how many rows were, and how many are expected.
        (options)

    `actions` may also be a list of labels, `behavior` a dict of probabilities by label, `context` a
    list of names. `learner` may also be a learner of this library or of your own, or a dictionary
    of experts for `us.exp4`: names of learners, learners, "production", and models as
    `us.learners.Model`. With `engine`, learning takes a horizon and gives no certificate.

    >>> import polars as pl
    >>> rows = pl.DataFrame({"action": ["a", "b"] * 200, "reward": [0, 1] * 200, "propensity": 0.5})
    >>> learned = learn(rows)
    >>> learned.policy.probabilities()["b"] > 0.9, learned.certified.promoted
    (True, True)
    """
    if options.get("actions") is None and isinstance(log, Mapping):
        number = log.get("n_actions")  # which a bandit_feedback declares
        options["actions"] = range(number) if isinstance(number, int) else None
    checked = Options.of(**options)
    for name, value in (("overwrite", overwrite or None), ("warmup", options.get("warmup"))):
        if resume is not None and value is not None:
            reason = "--resume goes on from a policy, and does not begin again"
            remedy = f"leave out --{name}, or --resume to begin again"
            raise InvalidArgument(name, value, reason, remedy)
    if resume is None:
        checked.refuse_rows_without_unit()
    if out is not None:
        refuse_unsaveable(checked.learner)
    passed = LogInput.of(log, checked.format)
    earlier, earlier_quarantine = _earlier_policy(resume)
    folder = None if out is None else Path(out)
    before = None
    if folder is not None:
        passed.refuse_folder(folder)
        before = _content(folder)
        if before is not None and earlier is None and not overwrite:
            reason = "it holds a policy already"
            remedy = "pass --resume to go on with it, --overwrite to replace it, or another folder"
            raise InvalidArgument("out", str(folder), reason, remedy)
        earlier_quarantine = earlier_quarantine or folder / QUARANTINE_FILE
    with scratch_folder(folder or Path(gettempdir())) as hidden:
        run = run_over(LearningRun, passed, checked, hidden, watch, strict=strict)
        refuse_question_of_sums(run)
        policy, provenance, unexpected = run.learn(earlier, earlier_quarantine)
        result = LearnResult(
            policy=policy,
            coverage=coverage_of_policy(policy),
            intake=provenance,
            oddities=unexpected,
        )
        if folder is not None:
            policy.save(hidden / POLICY_FILE)
            (hidden / REPORT_FILE).write_text(result.page(), encoding="utf-8")
            units = () if policy.units is None else (UNITS_FILE,)
            publish(hidden, folder, (*units, *RESULTS), lambda: _refuse_changed(folder, before))
    return result


def _earlier_policy(
    resume: Policy | LearnResult | str | os.PathLike[str] | None,
) -> tuple[Policy | None, Path | None]:
    """The policy to go on from, and the path of its quarantine if it comes from a file."""
    if isinstance(resume, LearnResult):
        return resume.policy, None
    if isinstance(resume, Policy | None):
        return resume, None
    if not isinstance(resume, str | os.PathLike):
        reason = "it is not a policy to go on from"
        remedy = "pass the path of a policy.json, a us.logs.Policy, or a result of us.logs.learn"
        raise InvalidArgument("resume", resume, reason, remedy)
    return Policy.load(resume), Path(resume).parent / QUARANTINE_FILE


def _content(out: Path) -> bytes | None:
    """The bytes of the policy.json in a folder, or None if it has none."""
    return (out / POLICY_FILE).read_bytes() if (out / POLICY_FILE).exists() else None


def _refuse_changed(out: Path, before: bytes | None) -> None:
    """Raise `InvalidArgument` if another run has written a policy since this one began."""
    if _content(out) != before:
        reason = "another run has written a policy there in the meantime; nothing was written"
        remedy = "run it again, with --resume to go on from that policy"
        raise InvalidArgument("out", str(out), reason, remedy)
