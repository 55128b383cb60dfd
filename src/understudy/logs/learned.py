"""`us.logs.learn`, and what it returns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import polars as pl

from understudy.certificates import Certified
from understudy.errors import InvalidArgument
from understudy.logs.actions import Label
from understudy.logs.covering import Coverage, covered
from understudy.logs.learning import LAST, fold, plan
from understudy.logs.options import Options
from understudy.logs.origins import inside, origins_of, refuse_learned
from understudy.logs.outputs import (
    POLICY_FILE,
    QUARANTINE_FILE,
    REPORT_FILE,
    Quarantine,
    put_in_place,
    workplace,
)
from understudy.logs.passes import files_read, good_rows
from understudy.logs.policies import Policy
from understudy.logs.reading import Origin
from understudy.logs.reporting import BEHAVIOR_WORDS, Scale, assemble, sentence, verdict
from understudy.logs.survey import Watch, nothing_left
from understudy.logs.tallies import Tallied
from understudy.report import Report, fragment, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Learned", "learn"]

UNCERTIFIED = "contexts whose propensities are not known cannot be certified"


@dataclass(frozen=True, eq=False, repr=False)
class Learned:
    """A policy learned from a log, and what the log can say about it.

    `quarantined` counts the rows that were refused, by file and reason; `examples` are some.
    """

    policy: Policy
    coverage: Coverage
    quarantined: Mapping[tuple[str, str], int]
    examples: pl.DataFrame

    @cached_property
    def certified(self) -> Certified | None:
        """The certificate of what was played while learning, with its curves."""
        study = self.policy.study
        return None if study.certificate is None else study.curve.certified(study.certificate)

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per action: what the log shows of it, and the policy's probability."""
        return self.coverage.table.with_columns(policy=pl.Series(self.policy.average))

    @cached_property
    def report(self) -> Report:
        """All of it as plain data, for the page, the notebook and the terminal."""
        policy, settings = self.policy, self.policy.settings
        scale, who = Scale(settings.reward_range), "the understudy"
        kind, words = verdict(self.certified, who, UNCERTIFIED)
        certified = self.certified
        contextual = policy.contextual is not None
        return assemble(
            title="What was learned from this log",
            verdict_kind=kind,
            words=words,
            facts=self._facts(scale),
            assumptions=settings.unmet,
            certificate=None if certified is None else scale.curve(certified, who),
            coverage=self.coverage,
            policy=policy.average,
            averaged_over=LAST if contextual else None,
            files=policy.files,
            quarantined=self.quarantined,
            examples=self.examples,
            warnings=self.warnings(),
        )

    def _facts(self, scale: Scale) -> list[tuple[str, str]]:
        settings, study = self.policy.settings, self.policy.study
        found = [
            ("Learner", settings.learner),
            ("Guarantee", settings.theorem),
            ("Behavior", BEHAVIOR_WORDS[settings.behavior]),
            ("Rows learned from", f"{study.rounds:,}"),
            ("Horizon", "none needed" if settings.horizon is None else f"{settings.horizon:,}"),
        ]
        if self.policy.warmup:
            found.append(("Rows that prepared the features", f"{self.policy.warmup:,}"))
        if self.certified is not None:
            words = sentence(self.certified, scale, "the understudy")
            found.append(("Certificate", f"While learning, {words}."))
        return found

    def warnings(self) -> list[str]:
        """What the reader should know before believing the rest."""
        policy = self.policy
        found = []
        past = policy.study.learner.past_horizon(policy.study.state)
        if past:
            found.append(f"{past:,} rows came after the horizon: no theorem speaks of them.")
        if policy.settings.reward_range != (0.0, 1.0):
            low, high = policy.settings.reward_range
            found.append(
                f"Rewards were rescaled from [{low:g}, {high:g}]. Pessimism is about the reward "
                "above the lowest one: another range gives another learner."
            )
        unknown = policy.refused.get("action is unknown", 0)
        if unknown:
            found.append(
                f"{unknown:,} rows were of actions that are not in the list, and set aside: all "
                "that is said is about the other rows."
            )
        return found

    def plot(self) -> Figure:
        """The certificate over time, as a matplotlib figure."""
        if self.certified is None:
            raise InvalidArgument(
                "log",
                "no certificate",
                "contexts whose propensities are not known cannot be certified, nor drawn",
                "log the propensities",
            )
        return self.certified.plot("What the understudy would have earned while learning")

    def __repr__(self) -> str:
        return f"Learned({self.report.verdict})"

    def _repr_html_(self) -> str:
        return fragment(self.report)


def learn(
    log: Any,
    *,
    out: str | os.PathLike[str] | None = None,
    action: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    context: Sequence[str] | None = None,
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
    resume: Policy | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    engine: str | None = None,
    watch: Watch = lambda _phase, _rows, _expected: None,
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
        warmup: the share of the rows that only prepares the features of contexts.
        strict: whether a row that would be quarantined is an error.
        resume: the policy to go on from.
        overwrite: whether a policy that is in `out` already may be replaced.
        watch: called with what is being done, how many rows were, and how many are expected.

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
    origins = origins_of(log, format)
    kept = resume if isinstance(resume, Policy | None) else Policy.load(resume)
    earlier = None if isinstance(resume, Policy | None) else Path(resume).parent / QUARANTINE_FILE
    folder = None if out is None else Path(out)
    if folder is not None:
        _check_folder(folder, origins, may_replace=overwrite or kept is not None)
    with workplace(folder or Path(gettempdir())) as hidden:
        learned = _run(origins, options, kept, hidden, earlier, watch, strict=strict)
        if folder is not None:
            learned.policy.save(hidden / POLICY_FILE)
            (hidden / REPORT_FILE).write_text(render(learned.report), encoding="utf-8")
            put_in_place(hidden, folder, [QUARANTINE_FILE, REPORT_FILE, POLICY_FILE])
    return learned


def _check_folder(out: Path, origins: Sequence[Origin], *, may_replace: bool) -> None:
    """Say before the work that its results must not be written there."""
    if inside(out, origins):
        raise InvalidArgument(
            "out", str(out), "the log is in this folder", "choose another folder for the results"
        )
    if (out / POLICY_FILE).exists() and not may_replace:
        raise InvalidArgument(
            "out",
            str(out),
            "it holds a policy already",
            "pass --resume to go on with it, --overwrite to replace it, or another folder",
        )


def _declared(log: Any, actions: Any) -> Any:
    """The actions; a bandit_feedback says how many there are."""
    if actions is None and isinstance(log, Mapping) and isinstance(log.get("n_actions"), int):
        return range(log["n_actions"])
    return actions


def _run(
    origins: Sequence[Origin],
    options: Options,
    kept: Policy | None,
    hidden: Path,
    earlier: Path | None,
    watch: Watch,
    *,
    strict: bool,
) -> Learned:
    with ThreadPoolExecutor(1) as pool:
        hashing = pool.submit(lambda: [origin.fingerprint() for origin in origins])
        if kept is not None:
            refuse_learned(origins, hashing.result(), kept)
        chosen = plan(origins, options, kept, hidden, watch)
        with Quarantine(hidden / QUARANTINE_FILE) as quarantine:
            if earlier is not None and earlier.exists():
                quarantine.copy(earlier)
            rows = good_rows(chosen.log, quarantine, "learning", watch, strict=strict)
            done = fold(chosen, rows)
        fingerprints = hashing.result()
    if not done.study.rounds:
        raise nothing_left(origins[0].name, quarantine.by_reason())
    refused = quarantine.by_reason()
    files = files_read(origins, fingerprints, quarantine)
    if kept is not None:
        refused.update(kept.refused)
        files = (*kept.files, *files)
    policy = Policy(
        chosen.log.actions,
        done.study,
        chosen.settings,
        done.average,
        files,
        refused,
        chosen.warmup if kept is None else kept.warmup,
        chosen.contextual,
    )
    coverage = covered(Tallied(policy.actions, done.study.tally, refused))
    return Learned(policy, coverage, quarantine.counts, quarantine.examples)
