"""`us.logs.coverage`: what a log can say, before anything is learned from it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import polars as pl

from understudy.behaviors import Logged
from understudy.certificates import Certificate, FixedPolicy
from understudy.errors import InvalidArgument
from understudy.logs.actions import Label
from understudy.logs.checking import QUARANTINE
from understudy.logs.covering import Candidate, Coverage, candidates_of, covered
from understudy.logs.engine_runs import Unordered, coverage_of
from understudy.logs.options import CONFIDENT, Options
from understudy.logs.origins import origins_of
from understudy.logs.outputs import QUARANTINE_FILE, Quarantine, workplace
from understudy.logs.passes import files_read, good_rows
from understudy.logs.policies import FileRead, Policy
from understudy.logs.prepare import Prepared, prepare
from understudy.logs.reporting import BEHAVIOR_WORDS, KINDS, assemble
from understudy.logs.scale import Scale
from understudy.logs.stretches import Stretches
from understudy.logs.study import with_propensities
from understudy.logs.survey import Watch
from understudy.logs.tallies import Tallied
from understudy.logs.tally import Tally
from understudy.logs.targets import Contextual, Target, target_of
from understudy.plots import draw_bars
from understudy.report import Report, fragment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Covered", "coverage"]


@dataclass(frozen=True, eq=False, repr=False)
class Covered:
    """What a log can say about its actions, and about policies."""

    coverage: Coverage
    reward_range: tuple[float, float]
    kind: str
    files: tuple[FileRead, ...]
    quarantined: Mapping[tuple[str, str], int]
    examples: pl.DataFrame

    @property
    def table(self) -> pl.DataFrame:
        """One row per action: how often it was played, what it earned, how well it is covered."""
        return self.coverage.table

    @property
    def policy(self) -> None:
        """None: nothing was learned."""

    @cached_property
    def report(self) -> Report:
        """All of it as plain data, for the page, the notebook and the terminal."""
        return assemble(
            title="What this log can say",
            verdict_kind="coverage",
            words=f"{self.coverage.rows:,} rows of {len(self.table):,} actions.",
            facts=[("Behavior", BEHAVIOR_WORDS[self.kind])],
            assumptions=(),
            certificate=None,
            coverage=self.coverage,
            scale=Scale(*self.reward_range),
            policy=None,
            averaged_over=None,
            files=self.files,
            quarantined=self.quarantined,
            examples=self.examples,
        )

    def plot(self) -> Figure:
        """How often each action was played, and what it earned, as a matplotlib figure."""
        labels, shares = self.table["action"].to_list(), self.table["share"].to_list()
        means = self.table["mean_reward"].fill_null(0.0).to_list()
        return draw_bars(labels, {"share of rows": shares, "mean reward": means})

    def __repr__(self) -> str:
        return "\n".join(self.coverage.describe())

    def _repr_html_(self) -> str:
        return fragment(self.report)


def coverage(
    log: Any,
    policies: Sequence[Policy | str | os.PathLike[str] | Mapping[Label, float]] = (),
    *,
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
    engine: str | None = None,
    watch: Watch = lambda _phase, _rows, _expected: None,
) -> Covered:
    """What a log can say about each action, and about policies, before learning.

    Beside the `policies` that are given (as `us.logs.certify` takes them), two are judged: the
    uniform one, and always playing the action that looks best, whose certificate pays for having
    been chosen. A policy that was learned from this very log is judged by its coverage alone.
    `engine` computes the sums with Polars, DuckDB, Dask or PySpark, in no order. The
    other arguments are those of `us.logs.learn`.

    >>> rows = pl.DataFrame({"action": ["a", "b"] * 200, "reward": [0, 1] * 200, "propensity": 0.5})
    >>> print(coverage(rows))
    400 rows...
    """
    asked = [_fixed_target(policy) for policy in policies]
    targets = [target for target, _ in asked]
    options = Options.of(
        preset=preset,
        action=action,
        reward=reward,
        propensity=propensity,
        time=time,
        eligible=eligible,
        reward_range=reward_range,
        actions=actions,
        behavior=behavior,
        confidence=confidence,
    )
    native = Unordered.of(log)
    origins = [] if native else origins_of(log, format)
    if native or engine is not None:
        return _unordered(native or Unordered(engine or "", origins), options, targets)
    fingerprints = [origin.fingerprint() for origin in origins]
    own = {target.name for target, policy in asked if policy and policy.knows(fingerprints)}
    known = frozenset(label for target in targets for label in target.labels)
    with workplace(Path(gettempdir())) as hidden:
        chosen = prepare(origins, options, hidden, watch, known=known)
        with Quarantine(hidden / QUARANTINE_FILE) as quarantine:
            tallied, stretches = _tallied(chosen, quarantine, watch)
        candidates = [*_candidates(targets, chosen), *candidates_of(tallied)]
        found = covered(
            tallied,
            behavior=KINDS[chosen.kind],
            candidates=candidates,
            certificates=_certificates(
                chosen,
                [candidate for candidate in candidates if candidate.name not in own],
                options.confidence or CONFIDENT,
                watch,
            ),
            stretches=stretches.counts,
            confidence=options.confidence or CONFIDENT,
            scale=Scale(*chosen.rules.reward_range),
        )
    return Covered(
        found,
        chosen.rules.reward_range,
        chosen.kind,
        files_read(origins, fingerprints, quarantine),
        quarantine.counts,
        quarantine.examples,
    )


def _unordered(log: Unordered, options: Options, targets: Sequence[Target]) -> Covered:
    found, kind = coverage_of(log, options, targets)
    refused = {("all files", reason): count for reason, count in found.refused.items()}
    reward_range = options.reward_range or (0.0, 1.0)
    return Covered(found, reward_range, kind, (), refused, pl.DataFrame(schema=QUARANTINE))


def _fixed_target(
    policy: Policy | str | os.PathLike[str] | Mapping[Label, float],
) -> tuple[Target, Policy | None]:
    target, learned = target_of(policy, None, best_action=False)
    if isinstance(target, Contextual):
        raise InvalidArgument(
            "policy",
            target.name,
            "it depends on contexts, of which coverage per action says nothing",
            "ask understudy certify about it",
        )
    return target, learned


def _candidates(targets: Sequence[Target], chosen: Prepared) -> list[Candidate]:
    found = [(target.name, target.fixed(chosen.actions)) for target in targets]
    return [Candidate(name, policy) for name, policy in found if policy is not None]


def _tallied(chosen: Prepared, quarantine: Quarantine, watch: Watch) -> tuple[Tallied, Stretches]:
    """The sums of all good rows, and how often actions were played early and late."""
    K = len(chosen.actions)
    tally, stretches = Tally.empty(K), Stretches.empty(K)
    for checked in good_rows(chosen, quarantine, "counting", watch, strict=False):
        log = checked.log()
        tally = tally.after(with_propensities(log, chosen.behavior))
        stretches = stretches.after(checked.actions)
    return Tallied(chosen.actions, tally, dict(quarantine.by_reason())), stretches


def _certificates(
    chosen: Prepared, candidates: Sequence[Candidate], confidence: float, watch: Watch
) -> dict[str, Certificate]:
    """The certificate of each candidate, paying for having been chosen by this very log."""
    found = {
        candidate.name: Certificate(
            chosen.behavior, 1.0 - (1.0 - confidence) / candidate.chosen_from, len(chosen.actions)
        )
        for candidate in candidates
    }
    logged = isinstance(chosen.behavior, Logged)
    for checked in chosen.checked():
        watch("certifying", len(checked), chosen.rows)
        log = checked.log().visible(propensities=logged, features=False)
        for candidate in candidates:
            found[candidate.name] = found[candidate.name].observe(
                log, FixedPolicy(candidate.policy)
            )
    return found
