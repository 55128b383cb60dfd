"""`us.logs.learn`: from a log to a policy, and to the files that keep it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from understudy.errors import InvalidArgument
from understudy.logs.actions import Label
from understudy.logs.checking import Checked
from understudy.logs.engine_runs import Unordered, learn_from
from understudy.logs.learned import Learned, coverage_of_policy
from understudy.logs.options import Options
from understudy.logs.origins import fingerprints_of, origins_of, refuse_inside, refuse_learned
from understudy.logs.outputs import (
    POLICY_FILE,
    QUARANTINE_FILE,
    REPORT_FILE,
    RESULTS,
    Quarantine,
    put_in_place,
    workplace,
)
from understudy.logs.passes import Intake, good_rows, intake_of
from understudy.logs.planning import fold, plan
from understudy.logs.policies import Policy
from understudy.logs.prepare import Prepared
from understudy.logs.reading import Origin, name_of, rows_by_file
from understudy.logs.survey import nothing_left, refuse_bad_rows
from understudy.logs.watching import Watch, unwatched
from understudy.report import render

__all__ = ["learn"]


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
    resume: Policy | Learned | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    engine: str | None = None,
    watch: Watch = unwatched,
) -> Learned:
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
    with workplace(folder or Path(gettempdir())) as hidden:
        run = Run(origins, options, hidden, watch, strict)
        learned = (
            run.in_order(kept, earlier) if unordered is None else run.in_no_order(unordered, kept)
        )
        if folder is not None:
            learned.policy.save(hidden / POLICY_FILE)
            (hidden / REPORT_FILE).write_text(render(learned.report), encoding="utf-8")
            put_in_place(hidden, folder, RESULTS, lambda: _refuse_changed(folder, before))
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
    resume: Policy | Learned | str | os.PathLike[str] | None,
) -> tuple[Policy | None, Path | None]:
    """The policy to go on from, and where its quarantine is if it comes from a file."""
    if isinstance(resume, Learned):
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
    watch: Watch
    strict: bool

    def in_order(self, kept: Policy | None, earlier: Path | None) -> Learned:
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
        return Learned(
            policy=policy, coverage=coverage, intake=intake, oddities=dict(done.oddities)
        )

    def in_no_order(self, log: Unordered, kept: Policy | None) -> Learned:
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
            intake = Intake.in_no_order(log.engine, found.refused, log.origins)
        coverage = coverage_of_policy(policy)
        return Learned(policy=policy, coverage=coverage, intake=intake, oddities={})

    def _good_rows(self, log: Prepared, quarantine: Quarantine, phase: str) -> Iterator[Checked]:
        return good_rows(log, quarantine, phase, self.watch, strict=self.strict)
