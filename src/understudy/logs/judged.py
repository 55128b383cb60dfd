"""`us.logs.certify`: what a policy that stays as it is would have earned on a log."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from understudy.behaviors import Logged
from understudy.certificates import Certificate, Certified
from understudy.errors import InvalidArgument
from understudy.logs.actions import Actions, Label
from understudy.logs.checking import QUARANTINE, Checked
from understudy.logs.covering import Candidate, Coverage, covered
from understudy.logs.engine_runs import Unordered, judge
from understudy.logs.options import CONFIDENT, Options
from understudy.logs.origins import origins_of, refuse_learned
from understudy.logs.outputs import (
    QUARANTINE_FILE,
    REPORT_FILE,
    Quarantine,
    put_in_place,
    workplace,
)
from understudy.logs.passes import files_read, good_rows
from understudy.logs.policies import FileRead, Policy
from understudy.logs.prepare import Prepared, prepare
from understudy.logs.reporting import BEHAVIOR_WORDS, KINDS, assemble, curve_of, sentence, verdict
from understudy.logs.scale import Scale
from understudy.logs.stretches import Stretches
from understudy.logs.study import Curve, observe, with_propensities
from understudy.logs.survey import Watch
from understudy.logs.tallies import Tallied
from understudy.logs.tally import Tally
from understudy.logs.targets import Contextual, Target, target_of
from understudy.logs.verdicts import judge_rows
from understudy.report import Report, fragment, render
from understudy.types import Integers, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Judged", "certify"]


@dataclass(frozen=True, eq=False, repr=False)
class Judged:
    """What a log says about one policy that stays as it is.

    `policy` has the probability of every action, or is None if that depends on the row.
    """

    name: str
    policy: dict[Label, float] | None
    certified: Certified
    coverage: Coverage
    reward_range: tuple[float, float]
    kind: str
    files: tuple[FileRead, ...]
    quarantined: Mapping[tuple[str, str], int]
    examples: pl.DataFrame

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per action: what the log shows of it, and the policy's probability."""
        if self.policy is None:
            return self.coverage.table
        return self.coverage.table.with_columns(policy=pl.Series(list(self.policy.values())))

    @cached_property
    def report(self) -> Report:
        """All of it as plain data, for the page, the notebook and the terminal."""
        scale = Scale(*self.reward_range)
        kind, words = verdict(self.certified, self.coverage.verdicts[0], self.name)
        probabilities = None if self.policy is None else np.array(list(self.policy.values()))
        return assemble(
            title=f"What this log says about {self.name}",
            verdict_kind=kind,
            words=words,
            facts=[
                ("Policy", self.name),
                ("Behavior", BEHAVIOR_WORDS[self.kind]),
                ("Rows", f"{self.certified.certificate.rounds:,}"),
                ("Certificate", f"On this log, {sentence(self.certified, scale, self.name)}."),
            ],
            assumptions=["the policy was not chosen by what this log says"],
            certificate=curve_of(self.certified, scale, self.name),
            coverage=self.coverage,
            scale=scale,
            policy=probabilities,
            averaged_over=None,
            files=self.files,
            quarantined=self.quarantined,
            examples=self.examples,
        )

    def plot(self) -> Figure:
        """The certificate over time, as a matplotlib figure."""
        return self.certified.plot(f"What {self.name} would have earned")

    def __repr__(self) -> str:
        return f"Judged({self.report.verdict})"

    def _repr_html_(self) -> str:
        return fragment(self.report)


def certify(
    log: Any,
    policy: Policy | str | os.PathLike[str] | Mapping[Label, float] | None = None,
    *,
    best_action: bool = False,
    target_probability: str | None = None,
    out: str | os.PathLike[str] | None = None,
    action: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    time: str | None = None,
    eligible: str | None = None,
    preset: str | None = None,
    format: str | None = None,  # noqa: A002 - the option's name
    reward_range: Sequence[float] | None = None,
    actions: Iterable[Label] | str | os.PathLike[str] | None = None,
    behavior: str | os.PathLike[str] | Mapping[Label, float] | None = None,
    confidence: float | None = None,
    strict: bool = False,
    engine: str | None = None,
    watch: Watch = lambda _phase, _rows, _expected: None,
) -> Judged:
    """Certify a policy that stays as it is, on a log that it was not learned from.

    Args:
        log: as `us.logs.learn` takes it.
        policy: what `learn` gave or wrote, probabilities by label or a file of them, or 'uniform'.
        best_action: whether only the most probable action of the policy is played.
        target_probability: in place of a policy, the column with the probability of the logged
            action under a model of your own.
        out: a folder for report.html and quarantine.parquet; left out: no files.
        engine: compute the sums that need no order with this engine.

    The others are those of `us.logs.learn`; where a learned policy is certified, its columns and
    its range of rewards are the defaults. An action that the policy does not know is one that it
    never plays: rows of it count.

    >>> rows = pl.DataFrame({"action": ["a", "b"] * 200, "reward": [0, 1] * 200, "propensity": 0.5})
    >>> certify(rows, {"a": 0.1, "b": 0.9}).certified.promoted
    True
    """
    target, learned = target_of(policy, target_probability, best_action=best_action)
    kept = None if learned is None else learned.settings
    options = Options.of(
        preset=preset,
        action=action,
        reward=reward,
        propensity=propensity,
        time=time,
        eligible=eligible,
        target=target_probability,
        context=None if kept is None else kept.columns.context,
        reward_range=reward_range,
        actions=actions,
        behavior=behavior,
        confidence=confidence,
    ).after(kept)
    native = Unordered.of(log)
    if native or engine is not None:
        unordered = native or Unordered(engine or "", origins_of(log, format))
        return _judged_unordered(unordered, options, target)
    origins = origins_of(log, format)
    fingerprints = [origin.fingerprint() for origin in origins]
    if learned is not None:
        refuse_learned(origins, fingerprints, learned)
    folder = None if out is None else Path(out)
    with workplace(folder or Path(gettempdir())) as hidden:
        chosen = prepare(origins, options, hidden, watch, known=target.labels, grow=True)
        _refuse_uncertifiable(target, chosen)
        with Quarantine(hidden / QUARANTINE_FILE) as quarantine:
            rows = good_rows(chosen, quarantine, "certifying", watch, strict=strict)
            certified, coverage = _observed(chosen, target, rows, options.confidence)
        judged = Judged(
            target.name,
            _by_label(target, chosen.actions),
            certified,
            coverage,
            chosen.rules.reward_range,
            chosen.kind,
            files_read(origins, fingerprints, quarantine),
            quarantine.counts,
            quarantine.examples,
        )
        if folder is not None:
            (hidden / REPORT_FILE).write_text(render(judged.report), encoding="utf-8")
            put_in_place(hidden, folder, [QUARANTINE_FILE, REPORT_FILE])
    return judged


def _judged_unordered(log: Unordered, options: Options, target: Target) -> Judged:
    """From sums in no order: at the end, without a curve."""
    certificate, tallied, kind = judge(log, options, target)
    reward_range = options.reward_range or (0.0, 1.0)
    coverage = _coverage(tallied, target, certificate, kind, reward_range, None)
    refused = {(log.engine, reason): count for reason, count in tallied.refused.items()}
    return Judged(
        target.name,
        _by_label(target, tallied.actions),
        Curve().certified(certificate),
        coverage,
        reward_range,
        kind,
        (),
        refused,
        pl.DataFrame(schema=QUARANTINE),
    )


def _observed(
    chosen: Prepared, target: Target, rows: Iterator[Checked], confidence: float | None
) -> tuple[Certified, Coverage]:
    """The certificate over all good rows, and what they say about each action."""
    K, logged = len(chosen.actions), isinstance(chosen.behavior, Logged)
    certificate = Certificate(chosen.behavior, confidence or CONFIDENT, K)
    curve, tally, stretches = Curve(), Tally.empty(K), Stretches.empty(K)
    for checked in rows:
        log = checked.log().visible(propensities=logged, features=False)
        trace = Trace(target.probabilities(checked, chosen.actions), 0, K)
        certificate, points = observe(certificate, log, trace)
        curve = curve.after(points)
        tally = tally.after(with_propensities(log, chosen.behavior))
        stretches = stretches.after(checked.actions)
    tallied = Tallied(chosen.actions, tally, {})
    coverage = _coverage(
        tallied, target, certificate, chosen.kind, chosen.rules.reward_range, stretches.counts
    )
    return curve.certified(certificate), coverage


def _coverage(  # noqa: PLR0917 - all that is known, once
    tallied: Tallied,
    target: Target,
    certificate: Certificate,
    kind: str,
    reward_range: tuple[float, float],
    stretches: Integers | None,
) -> Coverage:
    """What the log says about actions, and about the one policy that was asked about."""
    fixed, scale = target.fixed(tallied.actions), Scale(*reward_range)
    found = covered(
        tallied,
        behavior=KINDS[kind],
        candidates=[] if fixed is None else [Candidate(target.name, fixed)],
        certificates={target.name: certificate},
        stretches=stretches,
        confidence=certificate.confidence,
        scale=scale,
    )
    if fixed is not None:
        return found
    verdict = judge_rows(target.name, certificate, confidence=certificate.confidence, scale=scale)
    return dataclasses.replace(found, verdicts=(verdict,))


def _by_label(target: Target, actions: Actions) -> dict[Label, float] | None:
    fixed = target.fixed(actions)
    return None if fixed is None else dict(zip(actions.labels, fixed.tolist(), strict=True))


def _refuse_uncertifiable(target: Target, chosen: Prepared) -> None:
    if isinstance(target, Contextual) and chosen.behavior is None:
        raise InvalidArgument(
            "behavior",
            chosen.kind,
            "a behavior that may depend on contexts cannot be counted",
            "name the column of propensities",
        )
