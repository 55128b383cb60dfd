"""What was learned from a log, as people look at it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from understudy.certificates import Certified
from understudy.errors import InvalidArgument
from understudy.logs.columns import ESTIMATED
from understudy.logs.findings import Candidate, Coverage, candidates_of, covered
from understudy.logs.options import CONFIDENT
from understudy.logs.passes import Intake
from understudy.logs.planning import LAST
from understudy.logs.policies import Policy, playable
from understudy.logs.reporting import (
    BEHAVIOR_WORDS,
    assemble,
    curve_of,
    drifting,
    panel_of,
    sentence,
    set_aside,
    unusable,
    verdict,
)
from understudy.logs.tallies import Tallied
from understudy.logs.verdicts import judge_rows
from understudy.plots import draw_certificates
from understudy.report import Report, VerdictKind, fragment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DRIFTING", "Learned", "coverage_of_policy", "told"]

UNDERSTUDY = "the understudy"
ELSEWHERE = "not looked at here; understudy coverage --engine does"
OF_PROPENSITIES = (
    "lowest_propensity",
    "highest_propensity",
    "coverage_ratio",
    "effective_sample_size",
    "estimate",
    "self_normalised",
)
DRIFTING = (
    "This log cannot tell: production changed over time, so its propensities cannot be counted. "
    "Log them with every row."
)
IN_NO_ORDER = (
    "Nothing was judged: a certificate of what was earned while learning takes rows in order. "
    "Certify the policy on a later log."
)
UNKNOWN_IN_CONTEXT = (
    "Nothing was judged: with contexts, a certificate takes the propensity of every row. "
    "Name their column with --propensity."
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
        found: tuple[VerdictKind, str] = ("cannot tell", self._why_uncertified())
        curve = None
        if certified is not None and not self._withheld():
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

    def _withheld(self) -> bool:
        """Whether nothing that the certificate says may be relied on."""
        return self.certified is not None and (
            drifting(self.policy.settings.behavior, self.coverage)
            or unusable(self.policy.rows, self.policy.refused) is not None
            or self.certified.lower > self.certified.upper
        )

    def _why_uncertified(self) -> str:
        policy, coverage = self.policy, self.coverage
        if (few := unusable(policy.rows, policy.refused)) is not None:
            return few
        if self.certified is None:
            return UNKNOWN_IN_CONTEXT if policy.contextual is not None else IN_NO_ORDER
        if drifting(policy.settings.behavior, coverage):
            return DRIFTING
        return f"{coverage.verdicts[0].words[0].upper()}{coverage.verdicts[0].words[1:]}."

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
        if self.certified is not None and not self._withheld():
            aside = sum(self.policy.refused.values())
            words = sentence(self.certified, settings.scale, UNDERSTUDY, aside=aside)
            found.append(("Certificate", f"While learning, {words}."))
            found.append(("The policy now", "is certified by a later log: understudy certify"))
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
        found += told(self.oddities)
        if policy.contextual is not None and (same := policy.contextual.encoder.constants):
            found.append(f"Contexts that never change are left out: {', '.join(same)}.")
        if policy.study.certificate is not None:
            tally = policy.study.tally
            mean = scale.reward(float(tally.rewards.sum()) / max(tally.rows, 1))
            found += set_aside(policy.refused, mean)
        return found

    def plot(self) -> Figure:
        """The certificate over time, as a matplotlib figure."""
        if self.certified is None:
            raise InvalidArgument(
                "certificate",
                None,
                "there is nothing to draw",
                "learn in order, from propensities",
            )
        panel = panel_of(self.certified, self.policy.settings.scale)
        return draw_certificates([panel], title="What the understudy would have earned")

    @property
    def verdict(self) -> VerdictKind:
        """'promote', 'not yet', 'worse', or 'cannot tell'; `report.verdict` says it in words."""
        return self.report.verdict_kind

    def __repr__(self) -> str:
        return f"Learned({self.report.verdict})"

    def _repr_html_(self) -> str:
        return fragment(self.report)


def _without_propensities(found: Coverage) -> Coverage:
    """Of sums that learners need, which do not hold what coverage does."""
    unknown = [pl.lit(None, pl.Float64).alias(name) for name in OF_PROPENSITIES]
    return dataclasses.replace(
        found,
        table=found.table.with_columns(unknown),
        calibration=dataclasses.replace(found.calibration, words=ELSEWHERE),
        drift=dataclasses.replace(found.drift, words=ELSEWHERE),
        verdicts=(),
    )


def told(oddities: Mapping[str, int]) -> list[str]:
    """What was odd about contexts, in sentences.

    >>> told({"age is missing": 3})
    ['Context: age is missing in 3 rows, and was taken for missing or unknown.']
    """
    return [
        f"Context: {what} in {count:,} rows, and was taken for missing or unknown."
        for what, count in oddities.items()
    ]


def coverage_of_policy(policy: Policy) -> Coverage:
    """What the log says about actions, and about the understudy beside other policies."""
    study, scale = policy.study, policy.settings.scale
    tallied = Tallied(policy.actions, study.tally, dict(policy.refused))
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
    aside = certificate.rounds - study.rounds
    watched = judge_rows(UNDERSTUDY, certificate, aside=aside, scale=scale)
    return dataclasses.replace(found, verdicts=(watched, *found.verdicts))
