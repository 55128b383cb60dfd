"""What was learned from a log, as people look at it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from understudy.certificates import Certified
from understudy.errors import InvalidArgument
from understudy.logs.findings import Candidate, Coverage, candidates_of, covered
from understudy.logs.options import CONFIDENT
from understudy.logs.passes import Intake
from understudy.logs.planning import LAST
from understudy.logs.policies import Policy
from understudy.logs.reporting import (
    BEHAVIOR_WORDS,
    assemble,
    curve_of,
    sentence,
    verdict,
)
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Learned:
    """A policy learned from a log, and what the log can say about it.

    `oddities` counts values of contexts that are unlike those that the features were made of.
    """

    policy: Policy
    coverage: Coverage
    intake: Intake
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
        policy, settings, certified = self.policy, self.policy.settings, self.certified
        found: tuple[VerdictKind, str] = ("cannot tell", UNCERTIFIED)
        curve = None
        if certified is not None:
            found = verdict(certified, self.coverage.verdicts[0], UNDERSTUDY)
            curve = curve_of(certified, settings.scale, UNDERSTUDY)
        return assemble(
            title="What was learned from this log",
            verdict=found,
            facts=self._facts(),
            assumptions=settings.unmet,
            certificate=curve,
            coverage=self.coverage,
            scale=settings.scale,
            policy=policy.average,
            averaged_over=None if policy.contextual is None else LAST,
            intake=dataclasses.replace(self.intake, files=policy.files),
            warnings=self.warnings,
        )

    def _facts(self) -> list[tuple[str, str]]:
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
            words = sentence(self.certified, settings.scale, UNDERSTUDY)
            found.append(("Certificate", f"While learning, {words}."))
        return found

    @property
    def warnings(self) -> list[str]:
        """What the reader should know before believing the rest."""
        policy = self.policy
        found = []
        past = policy.study.learner.past_horizon(policy.study.state)
        if past:
            found.append(f"{past:,} rows came after the horizon: no theorem speaks of them.")
        scale = policy.settings.scale
        if not scale.is_unit:
            found.append(
                f"Rewards were rescaled from [{scale.low:g}, {scale.high:g}]. Pessimism is about "
                "the reward above the lowest one: another range gives another learner."
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
        behavior=policy.settings.behavior,
        candidates=[Candidate(UNDERSTUDY, policy.average), *candidates_of(tallied)],
        certificates=[certificate, None, None],
        stretches=stretches,
        confidence=CONFIDENT if certificate is None else certificate.confidence,
        scale=policy.settings.scale,
    )
