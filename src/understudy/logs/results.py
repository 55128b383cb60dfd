"""What the three commands give back: values that people can look at."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from understudy.certificates import Certified
from understudy.errors import InvalidArgument
from understudy.logs.coverage_table import Coverage
from understudy.logs.default_learner import FIXED
from understudy.logs.encoder import NEW
from understudy.logs.policy import Policy
from understudy.logs.provenance import Provenance
from understudy.logs.reporting import BEHAVIOR_WORDS, Said, assemble, panel_of, say, set_aside
from understudy.logs.schema import ESTIMATED, Kind, Label, Scale
from understudy.logs.setup import LAST
from understudy.plots import draw_bars, draw_certificates
from understudy.report import Report, VerdictKind, fragment
from understudy.report.wording import counted, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["UNDERSTUDY", "CertifyResult", "CoverageResult", "LearnResult", "Result"]

UNDERSTUDY = "the understudy"
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


class Result(ABC):
    """A report, seen as a line, as a table, as a picture, or in a notebook."""

    @property
    @abstractmethod
    def report(self) -> Report:
        """All of it as plain data, for the page, the notebook and the terminal."""

    @property
    @abstractmethod
    def table(self) -> pl.DataFrame:
        """One row per action: what the log shows of it, and what the policy does."""

    @abstractmethod
    def plot(self) -> Figure:
        """A matplotlib figure."""

    @property
    def verdict(self) -> VerdictKind:
        """'promote', 'not yet', 'worse', 'cannot tell', or 'coverage' if nothing was to be decided.

        `report.verdict` says it in words.
        """
        return self.report.verdict_kind

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.report.verdict})"

    def _repr_html_(self) -> str:
        return fragment(self.report)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnResult(Result):
    """A policy learned from a log, and what the log can say about it.

    `oddities` counts values of contexts that are unlike those that the features were made of.
    """

    policy: Policy
    coverage: Coverage
    intake: Provenance
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CertifyResult(Result):
    """What a log says about one policy that stays as it is.

    `policy` has the probability of every action, or is None if that depends on the row; `strange`
    says what the two have to do with each other, if it is nothing.
    """

    name: str
    policy: dict[Label, float] | None
    certified: Certified
    coverage: Coverage
    scale: Scale
    kind: Kind
    intake: Provenance
    oddities: Mapping[str, int]
    strange: Sequence[str] = ()

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per action: what the log shows of it, and the policy's probability."""
        if self.policy is None:
            return self.coverage.table
        return self.coverage.table.with_columns(policy=pl.Series(list(self.policy.values())))

    @cached_property
    def report(self) -> Report:
        """All of it as plain data, for the page, the notebook and the terminal."""
        said = say(self.certified, self.coverage, self.name, self.scale)
        facts = [
            ("Policy", self.name),
            ("Behavior", BEHAVIOR_WORDS[self.kind]),
            ("Rows", f"{self.certified.certificate.rounds:,}"),
        ]
        if said.sentence is not None:
            facts.append(("Certificate", f"On this log, {said.sentence}."))
        assumptions = ["the policy was neither learned from rows of this log nor chosen by them"]
        if self.kind == ESTIMATED:
            assumptions.append(FIXED)
        return assemble(
            title=f"What this log says about {self.name}",
            said=said,
            facts=facts,
            assumptions=assumptions,
            coverage=self.coverage,
            scale=self.scale,
            policy=None if self.policy is None else np.array(list(self.policy.values())),
            intake=self.intake,
            warnings=self.warnings,
        )

    @property
    def warnings(self) -> list[str]:
        """What the reader should know before believing the rest."""
        aside = set_aside(self.coverage.refused, self.coverage.mean_reward)
        return [*self.strange, *told(self.oddities), *aside]

    def plot(self) -> Figure:
        """The certificate over time, as a matplotlib figure."""
        panel = panel_of(self.certified, self.scale)
        return draw_certificates([panel], title=f"What {self.name} would have earned")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CoverageResult(Result):
    """What a log can say about its actions, and about policies."""

    coverage: Coverage
    scale: Scale
    kind: Kind
    intake: Provenance

    @property
    def policy(self) -> None:
        """None: nothing was learned."""

    @property
    def table(self) -> pl.DataFrame:
        """One row per action: how often it was played, what it earned, how well it is covered."""
        return self.coverage.table

    @cached_property
    def report(self) -> Report:
        """All of it as plain data, for the page, the notebook and the terminal."""
        return assemble(
            title="What this log can say",
            said=Said(
                "coverage",
                f"{counted(self.coverage.rows, 'row')} of {counted(len(self.table), 'action')}.",
            ),
            facts=[("Behavior", BEHAVIOR_WORDS[self.kind])],
            coverage=self.coverage,
            scale=self.scale,
            intake=self.intake,
        )

    def plot(self) -> Figure:
        """How often each action was played, and what it earned, as a matplotlib figure."""
        labels, shares = self.table["action"].to_list(), self.table["share"].to_list()
        means = self.table["mean_reward"].fill_null(0.0).to_list()
        return draw_bars(labels, {"share of rows": shares, "mean reward": means})

    def __str__(self) -> str:
        return "\n".join(self.coverage.describe())


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
