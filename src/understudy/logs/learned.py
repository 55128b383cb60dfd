"""What was learned from a log, as people look at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from understudy.certificates import Certified
from understudy.errors import InvalidArgument
from understudy.logs.covering import Candidate, Coverage, candidates_of, covered
from understudy.logs.learning import LAST
from understudy.logs.options import CONFIDENT
from understudy.logs.policies import Policy
from understudy.logs.reporting import (
    BEHAVIOR_WORDS,
    KINDS,
    assemble,
    curve_of,
    sentence,
    verdict,
)
from understudy.logs.scale import Scale
from understudy.logs.tallies import Tallied
from understudy.report import Report, VerdictKind, fragment
from understudy.types import Integers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Learned", "coverage_of_policy"]

UNDERSTUDY = "the understudy"
UNCERTIFIED = (
    "There is no certificate: it takes rows in order, and with contexts their propensities. "
    "Certify the policy on a later log."
)


@dataclass(frozen=True, eq=False, repr=False)
class Learned:
    """A policy learned from a log, and what the log can say about it.

    `quarantined` counts the rows that were refused, by file and reason; `examples` are some.
    `oddities` counts values of contexts that are unlike those that the features were made of.
    """

    policy: Policy
    coverage: Coverage
    quarantined: Mapping[tuple[str, str], int]
    examples: pl.DataFrame
    oddities: Mapping[str, int]

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
        scale, certified = Scale(*settings.reward_range), self.certified
        kind: VerdictKind = "cannot tell"
        words = UNCERTIFIED
        if certified is not None:
            kind, words = verdict(certified, self.coverage.verdicts[0], UNDERSTUDY)
        contextual = policy.contextual is not None
        return assemble(
            title="What was learned from this log",
            verdict_kind=kind,
            words=words,
            facts=self._facts(scale),
            assumptions=settings.unmet,
            certificate=None if certified is None else curve_of(certified, scale, UNDERSTUDY),
            coverage=self.coverage,
            scale=scale,
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
            words = sentence(self.certified, scale, UNDERSTUDY)
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
        found += [
            f"Context: {what} in {count:,} rows, and was taken for missing or unknown."
            for what, count in self.oddities.items()
        ]
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
                "there is nothing to draw",
                "learn in order, from propensities",
            )
        return self.certified.plot("What the understudy would have earned while learning")

    def __repr__(self) -> str:
        return f"Learned({self.report.verdict})"

    def _repr_html_(self) -> str:
        return fragment(self.report)


def coverage_of_policy(policy: Policy, stretches: Integers | None) -> Coverage:
    """What the log says about actions, and about the policy, the uniform one, the best action."""
    study = policy.study
    tallied = Tallied(policy.actions, study.tally, dict(policy.refused))
    certificate = study.certificate
    return covered(
        tallied,
        behavior=KINDS[policy.settings.behavior],
        candidates=[Candidate(UNDERSTUDY, policy.average), *candidates_of(tallied)],
        certificates={} if certificate is None else {UNDERSTUDY: certificate},
        stretches=stretches,
        confidence=CONFIDENT if certificate is None else certificate.confidence,
        scale=Scale(*policy.settings.reward_range),
    )
