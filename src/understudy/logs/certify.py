"""`us.logs.certify`: off-policy evaluation of a fixed policy, with a certificate."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Unpack

from understudy.certificates import Certified
from understudy.errors import InvalidArgument
from understudy.logs.evaluation.answers import Baseline
from understudy.logs.evaluation.target_policies import (
    Target,
    are_known,
    baseline_of,
    disjoint_actions,
    refuse_unplayed_baseline,
    refuse_used_units,
    sticky_columns_of,
    target_of,
)
from understudy.logs.evaluation.verdicts import Candidate, coverage_from
from understudy.logs.options import Options, QuestionOptions, with_options
from understudy.logs.outputs import (
    POLICY_FILE,
    QUARANTINE_FILE,
    REPORT_FILE,
    ProgressCallback,
    no_progress,
    publish,
    scratch_folder,
)
from understudy.logs.results import CertifyResult, LearnResult, PolicyLike
from understudy.logs.runs.certificate_path import CertificatePath
from understudy.logs.runs.ordered_run import OrderedRun, run_over
from understudy.logs.runs.setup import (
    LogInput,
    RunOutcome,
    fingerprints_of,
    refuse_learned,
    refuse_same_rows,
)
from understudy.logs.runs.study import answers_of


@with_options(QuestionOptions)
def certify(
    log: Any,
    policy: PolicyLike | Sequence[PolicyLike] | None = None,
    *,
    best_action: bool = False,
    target_probability: str | None = None,
    out: str | os.PathLike[str] | None = None,
    strict: bool = False,
    watch: ProgressCallback = no_progress,
    **options: Unpack[QuestionOptions],
) -> CertifyResult:
    """Certify a fixed policy on a log that it was not learned from.

    Args:
        log: as `us.logs.learn` takes it.
        policy: a result or file of `learn`, probabilities by label or a file of them, or 'uniform';
            or several of these, which are compared at one confidence: the result is about the one
            with the largest certain gain.
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
    >>> certify(rows, {"a": 0.1, "b": 0.9}, against="action:a").certified.gain > 200
    True
    """
    folder = None if out is None else Path(out)
    _refuse_folder_of_policy(folder)
    targets = targets_of(policy, target_probability, best_action=best_action)
    checked = Options.of(target=target_probability, **options)
    baseline = baseline_of(checked.question)
    every = [*targets, *([] if baseline is None else [baseline])]
    known = [target.learned for target in every if target.learned is not None]
    checked = checked.with_defaults_of_all([learned.settings for learned in known])
    refuse_used_units(every, checked)
    checked.refuse_rows_without_unit()
    passed = LogInput.of(log, checked.format)
    if folder is not None:
        passed.refuse_folder(folder)
    fingerprints = fingerprints_of(passed.sources)
    for learned in known:
        refuse_learned(passed.sources, fingerprints, learned)
    with scratch_folder(folder or Path(gettempdir())) as hidden:
        run = run_over(OrderedRun, passed, checked, hidden, watch, strict=strict)
        paths, outcome = run.certify(targets, baseline, fingerprints)
        statistics = outcome.statistics
        for learned in known:
            refuse_same_rows(statistics, outcome.counts_over_time, learned)
        refuse_unplayed_baseline(baseline, statistics)
        result = _result(targets, baseline, checked, paths, outcome, best_action=best_action)
        if folder is not None:
            (hidden / REPORT_FILE).write_text(result.page(), encoding="utf-8")
            names = [QUARANTINE_FILE, REPORT_FILE]
            publish(hidden, folder, names, lambda: _refuse_folder_of_policy(folder))
    return result


def targets_of(
    policy: PolicyLike | Sequence[PolicyLike] | None,
    target_probability: str | None,
    *,
    best_action: bool,
) -> list[Target]:
    """The targets that a user names, each once, by policies or by a column."""
    several = isinstance(policy, Sequence) and not isinstance(policy, str)
    policies: Any = policy if several else [policy]
    found = [
        target_of(
            one.policy if isinstance(one, LearnResult) else one,
            target_probability,
            best_action=best_action,
        )
        for one in policies or [None]
    ]
    names = [target.name for target in found]
    if several and policies and target_probability is not None:
        reason = "a column is compared with no policies"
        raise InvalidArgument("target_probability", target_probability, reason, "leave it out")
    for name in names:
        if names.count(name) > 1 and isinstance(policies[0], str | os.PathLike):
            raise InvalidArgument("policy", name, "it is named twice", "name each policy once")
    return found


def _result(
    targets: Sequence[Target],
    baseline: Target | None,
    options: Options,
    paths: Sequence[CertificatePath],
    outcome: RunOutcome,
    *,
    best_action: bool,
) -> CertifyResult:
    """The result about the target with the largest certain gain, of those whose guardrails hold."""
    statistics, question = outcome.statistics, options.question
    judged = [path.chosen(question.quarantined) for path in paths]
    best = max(range(len(judged)), key=lambda i: (judged[i].holds, judged[i].mean_gain))
    target, path = targets[best], judged[best]
    labels, fixed = statistics.actions.labels, target.fixed(statistics.actions)
    known = None
    if baseline is not None:
        known = Baseline(baseline.name, baseline.fixed(statistics.actions))
    order = [best, *(i for i in range(len(targets)) if i != best)]
    return CertifyResult(
        name=target.name,
        policy=None if fixed is None else dict(zip(labels, fixed.tolist(), strict=True)),
        certified=Certified.of(path.certificate, path.points),
        coverage=coverage_from(
            statistics,
            behavior=outcome.propensity_source,
            candidates=[
                Candidate(
                    targets[i].name,
                    targets[i].fixed(statistics.actions),
                    answers=answers_of(paths[i], question, known),
                )
                for i in order
            ],
            certificates=[judged[i].certificate for i in order],
            counts_over_time=outcome.counts_over_time,
            confidence=options.confidence_or_default,
            scale=options.scale,
            repeated=outcome.provenance.repeated,
            declared=all(are_known(statistics.actions, one, options.declared()) for one in targets),
            sticky=sticky_columns_of(outcome.provenance.sticky, targets, options),
            units=outcome.provenance.units,
        ),
        scale=options.scale,
        kind=outcome.propensity_source,
        intake=outcome.provenance,
        oddities=outcome.unexpected,
        strange=disjoint_actions(target, statistics),
        learned=None if best_action else target.learned,
        joint=path.joint,
        segments=path.segments,
    )


def _refuse_folder_of_policy(out: Path | None) -> None:
    """Raise `InvalidArgument` if a folder holds what `learn` wrote, which belongs together."""
    if out is not None and (out / POLICY_FILE).exists():
        reason = "it holds a policy and the report about it"
        raise InvalidArgument("out", str(out), reason, "choose another folder")
