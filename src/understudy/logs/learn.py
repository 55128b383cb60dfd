"""What was learned from a log, as people look at it.

`us.logs.learn`: from a log to a policy, and to the files that keep it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from understudy.errors import InvalidArgument
from understudy.logs.aggregates import LogStatistics
from understudy.logs.coverage_table import Candidate, Coverage, candidates_of, covered
from understudy.logs.engine_runs import Unordered, learn_from
from understudy.logs.options import CONFIDENT, Options
from understudy.logs.outputs import (
    POLICY_FILE,
    QUARANTINE_FILE,
    REPORT_FILE,
    RESULTS,
    Quarantine,
    publish,
    scratch_folder,
)
from understudy.logs.policy import Policy, playable
from understudy.logs.progress import ProgressCallback, no_progress
from understudy.logs.provenance import (
    Provenance,
    fingerprints_of,
    good_rows,
    intake_of,
    origins_of,
    refuse_inside,
    refuse_learned,
)
from understudy.logs.readers.inputs import Origin, name_of, rows_by_file
from understudy.logs.reject_reasons import nothing_left, refuse_bad_rows
from understudy.logs.results import UNDERSTUDY, LearnResult
from understudy.logs.schema import ESTIMATED, Label
from understudy.logs.setup import ResolvedLog, fold, plan
from understudy.logs.validate import ValidatedBatch
from understudy.logs.verdicts import judge_rows
from understudy.report import render

if TYPE_CHECKING:
    pass

__all__ = ["LearnResult", "coverage_of_policy", "learn"]


ELSEWHERE = "not looked at here; understudy coverage --engine does"
OF_PROPENSITIES = (
    "lowest_propensity",
    "highest_propensity",
    "coverage_ratio",
    "effective_sample_size",
    "estimate",
    "self_normalised",
)


def _without_propensities(found: Coverage) -> Coverage:
    """Of sums that learners need, which do not hold what coverage does."""
    unknown = [pl.lit(None, pl.Float64).alias(name) for name in OF_PROPENSITIES]
    return dataclasses.replace(
        found,
        table=found.table.with_columns(unknown),
        grounds=dataclasses.replace(
            found.grounds, calibration=dataclasses.replace(found.calibration, words=ELSEWHERE)
        ),
        drift=dataclasses.replace(found.drift, words=ELSEWHERE),
        verdicts=(),
    )


def coverage_of_policy(policy: Policy) -> Coverage:
    """What the log says about actions, and about the understudy beside other policies."""
    study, scale = policy.study, policy.settings.scale
    tallied = LogStatistics(policy.actions, study.tally, dict(policy.refused))
    now = [Candidate(f"{UNDERSTUDY}'s policy now", playable(policy.average))]
    if policy.contextual is not None:  # its average is another policy
        now = []
    certificate = study.certificate
    found = covered(
        tallied,
        behavior=policy.settings.behavior,
        candidates=[*now, *candidates_of(tallied)],
        stretches=study.stretches.counts if study.stretches.rows else None,
        confidence=CONFIDENT if certificate is None else certificate.confidence,
        scale=scale,
    )
    if np.isnan(study.tally.weights).all() and policy.settings.behavior != ESTIMATED:
        return _without_propensities(found)
    if certificate is None:
        return found
    watched = judge_rows(UNDERSTUDY, certificate, study.tally, found.grounds)
    return dataclasses.replace(found, verdicts=(watched, *found.verdicts))


def learn(
    log: Any,
    *,
    out: str | os.PathLike[str] | None = None,
    action: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    context: str | Sequence[str] | None = None,
    time: str | None = None,
    eligible: str | None = None,
    preset: str | None = None,
    format: str | None = None,  # noqa: A002 - the option's name
    reward_range: Sequence[float] | None = None,
    actions: Iterable[Label] | str | os.PathLike[str] | None = None,
    behavior: str | os.PathLike[str] | Mapping[Label, float] | None = None,
    learner: str | None = None,
    horizon: int | None = None,
    confidence: float | None = None,
    warmup: float | None = None,
    strict: bool = False,
    resume: Policy | LearnResult | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    engine: str | None = None,
    watch: ProgressCallback = no_progress,
) -> LearnResult:
    """Learn a policy from the log of another one, and certify what it earned while learning.

    Args:
        log: a path, a glob, a folder, several of them, a frame (Polars, pandas, …), or Open Bandit
            Pipeline's bandit_feedback.
        out: a folder for policy.json, report.html and quarantine.parquet; left out: no files.
        action, reward, propensity: the names of columns, if they are not these.
        context: the columns of the context, numbers or categories.
        time: the column to check the order by, or to sort by.
        eligible: the column with the actions that could be played in each row.
        preset: 'obd' for the columns of the Open Bandit Dataset.
        format: of the files, if their names do not say.
        reward_range: the smallest and the largest reward possible; they become 0 and 1.
        actions: all labels, or a file of them; left out: those that the log shows.
        behavior: 'logged', 'estimated', or production's fixed probabilities, or a file of them.
        learner: by name; left out: one that suits what is known.
        horizon: fixes the rate for so many rows; left out: it falls as the log grows.
        confidence: of the certificate; left out: 0.95.
        warmup: the rows that only prepare the features of contexts: a share below 1, or how many.
        strict: whether a row that would be quarantined is an error.
        resume: the policy to go on from: the path of a policy.json, a `Policy`, or what `learn`
            gave.
        overwrite: whether a policy that is in `out` already may be replaced.
        engine: learn from sums in no order, computed by 'polars', 'duckdb', 'dask' or 'pyspark'; it
            takes a horizon, and gives no certificate. A native frame of these does the same.
        watch: called with what is being done, how many rows were, and how many are expected.

    >>> import polars as pl
    >>> rows = pl.DataFrame({"action": ["a", "b"] * 200, "reward": [0, 1] * 200, "propensity": 0.5})
    >>> learned = learn(rows)
    >>> learned.policy.probabilities()["b"] > 0.9, learned.certified.promoted
    (True, True)
    """
    options = Options.of(
        preset=preset,
        action=action,
        reward=reward,
        propensity=propensity,
        time=time,
        eligible=eligible,
        context=context,
        reward_range=reward_range,
        actions=_declared(log, actions),
        behavior=behavior,
        learner=learner,
        horizon=horizon,
        confidence=confidence,
        warmup=warmup,
    )
    if resume is not None:
        _refuse_anew(overwrite=overwrite or None, warmup=warmup)
    native = Unordered.of(log)
    origins = [] if native else origins_of(log, format)
    unordered = native or (None if engine is None else Unordered(engine, origins))
    kept, earlier = _kept(resume)
    folder = None if out is None else Path(out)
    before = None
    if folder is not None:
        _check_folder(folder, origins, may_replace=overwrite or kept is not None)
        before = _content(folder)
        earlier = earlier or folder / QUARANTINE_FILE
    with scratch_folder(folder or Path(gettempdir())) as hidden:
        run = Run(origins, options, hidden, watch, strict)
        learned = (
            run.in_order(kept, earlier) if unordered is None else run.in_no_order(unordered, kept)
        )
        if folder is not None:
            learned.policy.save(hidden / POLICY_FILE)
            (hidden / REPORT_FILE).write_text(render(learned.report), encoding="utf-8")
            publish(hidden, folder, RESULTS, lambda: _refuse_changed(folder, before))
    return learned


def _refuse_anew(**options: object) -> None:
    """Raise `InvalidArgument` for options that only have a meaning for a policy that begins."""
    for name, value in options.items():
        if value is not None:
            raise InvalidArgument(
                name,
                value,
                "a policy that --resume goes on from is not begun anew",
                f"leave out --{name}, or --resume to begin anew",
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


def _check_folder(out: Path, origins: Sequence[Origin], *, may_replace: bool) -> None:
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
    """Nobody's work is overwritten unseen."""
    if _content(out) != before:
        raise InvalidArgument(
            "out",
            str(out),
            "another run has put a policy there in the meantime, and nothing is written",
            "run it again, with --resume to go on from that policy",
        )


def _declared(log: Any, actions: Any) -> Any:
    """The actions; a bandit_feedback says how many there are."""
    if actions is None and isinstance(log, Mapping) and isinstance(log.get("n_actions"), int):
        return range(log["n_actions"])
    return actions


@dataclass(frozen=True, eq=False)
class Run:
    """One run over a log: what is read, what was asked for, and a folder for what it writes."""

    origins: Sequence[Origin]
    options: Options
    hidden: Path
    watch: ProgressCallback
    strict: bool

    def in_order(self, kept: Policy | None, earlier: Path | None) -> LearnResult:
        """Learn row by row, from the beginning or from a policy, whose quarantine is kept too."""
        with ThreadPoolExecutor(1) as pool:
            hashing = pool.submit(fingerprints_of, self.origins)
            if kept is not None:
                refuse_learned(self.origins, hashing.result(), kept)
            chosen = plan(self.origins, self.options, kept, self.hidden, self.watch)
            with Quarantine(self.hidden / QUARANTINE_FILE) as quarantine:
                if kept is not None and earlier is not None and earlier.exists():
                    quarantine.copy(earlier, sum(kept.refused.values()))
                done = fold(chosen, self._good_rows(chosen.log, quarantine, "learning"))
            fingerprints = hashing.result()
        if done.study.rounds == chosen.study.rounds:
            raise nothing_left(name_of(self.origins), quarantine.by_reason())
        refused, intake = quarantine.by_reason(), intake_of(self.origins, fingerprints, quarantine)
        files = intake.files
        if kept is not None:
            refused.update(kept.refused)
            files = (*kept.files, *files)
        policy = Policy(
            actions=chosen.log.actions,
            study=done.study,
            settings=chosen.settings,
            average=done.average,
            files=files,
            refused=refused,
            warmup=chosen.warmup if kept is None else kept.warmup,
            contextual=chosen.contextual,
        )
        coverage = coverage_of_policy(policy)
        return LearnResult(
            policy=policy, coverage=coverage, intake=intake, oddities=dict(done.oddities)
        )

    def in_no_order(self, log: Unordered, kept: Policy | None) -> LearnResult:
        """Learn from sums; which rows were refused is for a second look to say, in order."""
        if kept is not None:
            raise InvalidArgument(
                "resume", log.engine, "sums in no order begin anew", "leave out --engine"
            )
        with ThreadPoolExecutor(1) as pool:
            hashing = pool.submit(fingerprints_of, self.origins)
            found = learn_from(log, self.options)
            fingerprints = hashing.result()
        if self.strict:
            refuse_bad_rows(found.refused)
        with Quarantine(self.hidden / QUARANTINE_FILE) as quarantine:
            if found.refused and self.origins:
                for _ in self._good_rows(found.log, quarantine, "setting aside"):
                    pass
            else:
                quarantine.rows.update(rows_by_file(self.origins, found.log.reading.columns))
        intake = intake_of(self.origins, fingerprints, quarantine)
        policy = Policy(
            actions=found.log.actions,
            study=found.study,
            settings=found.settings,
            average=found.study.learner.policy(found.study.state),
            files=intake.files,
            refused=found.refused,
        )
        if not self.origins:
            intake = Provenance.in_no_order(log.engine, found.refused, log.origins)
        coverage = coverage_of_policy(policy)
        return LearnResult(policy=policy, coverage=coverage, intake=intake, oddities={})

    def _good_rows(
        self, log: ResolvedLog, quarantine: Quarantine, phase: str
    ) -> Iterator[ValidatedBatch]:
        return good_rows(log, quarantine, phase, self.watch, strict=self.strict)
