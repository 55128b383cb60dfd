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
from understudy.logs.encoded_columns import NEW
from understudy.logs.findings import Candidate, Coverage, candidates_of, covered
from understudy.logs.options import CONFIDENT
from understudy.logs.passes import Intake
from understudy.logs.planning import LAST
from understudy.logs.policies import Policy, playable
from understudy.logs.reporting import (
    BEHAVIOR_WORDS,
    Said,
    assemble,
    panel_of,
    say,
    set_aside,
)
from understudy.logs.results import Result
from understudy.logs.tallies import Tallied
from understudy.logs.verdicts import judge_rows
from understudy.plots import draw_certificates
from understudy.report import Report
from understudy.report.wording import counted, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Learned", "coverage_of_policy", "told"]

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
IN_NO_ORDER = (
    "Nothing was judged: a certificate of what was earned while learning takes rows in order. "
    "Certify the policy on a later log."
)
UNKNOWN_WHERE_ELIGIBLE = (
    "Nothing was judged: where not all can be played in all rows, a certificate takes the "
    "propensity of every row. Name their column with --propensity."
)
UNKNOWN_IN_CONTEXT = (
    "Nothing was judged: with contexts, a certificate takes the propensity of every row. "
    "Name their column with --propensity."
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Learned(Result):
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
        return None if study.certificate is None else Certified.of(study.certificate, study.curve)

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per action: what the log shows of it, and the policy's probability."""
        return self.coverage.table.with_columns(policy=pl.Series(self.policy.average))

    @cached_property
    def report(self) -> Report:
        """All of it as plain data, for the page, the notebook and the terminal."""
        policy = self.policy
        return assemble(
            title="What was learned from this log",
            said=self._said,
            facts=self._facts(),
            assumptions=policy.settings.unmet,
            coverage=self.coverage,
            scale=policy.settings.scale,
            policy=policy.average,
            averaged_over=None if policy.contextual is None else LAST,
            intake=dataclasses.replace(self.intake, files=policy.files),
            warnings=self.warnings,
        )

    @cached_property
    def _said(self) -> Said:
        if self.certified is not None:
            return say(self.certified, self.coverage, UNDERSTUDY, self.policy.settings.scale)
        obstacle = self.coverage.grounds.obstacle
        why = self._why_uncertified() if obstacle is None else f"This log cannot tell: {obstacle}."
        return Said("cannot tell", why)

    def _why_uncertified(self) -> str:
        if self.policy.contextual is not None:
            return UNKNOWN_IN_CONTEXT
        return IN_NO_ORDER if self.policy.study.behavior is not None else UNKNOWN_WHERE_ELIGIBLE

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
        if self._said.sentence is not None:
            found.append(("Certificate", f"While learning, {self._said.sentence}."))
            found.append(("The policy now", "is certified by a later log: understudy certify"))
        return found

    @property
    def warnings(self) -> list[str]:
        """What the reader should know before believing the rest."""
        policy = self.policy
        found = []
        past = policy.study.learner.past_horizon(policy.study.state)
        if past:
            found.append(f"{counted(past, 'row')} came after the horizon: no theorem covers that.")
        scale = policy.settings.scale
        if not scale.is_unit:
            found.append(
                f"Rewards were rescaled from [{number(scale.low)}, {number(scale.high)}]. "
                "Pessimism is about the reward above the lowest one: another range gives another "
                "learner."
            )
        found += told(self.oddities)
        if policy.contextual is not None:
            found += policy.contextual.left_out()
        if policy.study.certificate is not None:
            found += set_aside(policy.refused, self.coverage.mean_reward)
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


def told(oddities: Mapping[str, int]) -> list[str]:
    """What was odd about contexts, in sentences.

    >>> told({"age is missing": 3})
    ['Context: age is missing in 3 rows, and was taken for missing or unknown.']
    """
    new = ": labels that the warm-up did not have, or hardly, taken for rare or unknown."
    other = ", and was taken for missing or unknown."
    return [
        f"Context: {what} in {counted(count, 'row')}{new if what.endswith(NEW) else other}"
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
    watched = judge_rows(UNDERSTUDY, certificate, study.tally, found.grounds)
    return dataclasses.replace(found, verdicts=(watched, *found.verdicts))
