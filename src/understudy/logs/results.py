"""The results of `learn`, `certify` and `coverage`: data, and ways to show it.

Reports and figures are above this module, and are imported when they are used.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from understudy.certificates import Certified, JointCertificate, SegmentCertificates
from understudy.constraints import Array
from understudy.errors import InvalidArgument
from understudy.logs.encoder import Unexpected
from understudy.logs.evaluation.outcomes import Obstacle, VerdictKind, VerdictOutcome
from understudy.logs.evaluation.target_policies import DisjointActions
from understudy.logs.evaluation.verdicts import Coverage
from understudy.logs.policy import Policy, Provenance
from understudy.logs.schema import Label, PropensitySource, RewardScale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from understudy.report.data import Report

UNDERSTUDY = "the understudy"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Result(ABC):
    """A result, which can be shown as a report, a line, a table, a figure, or in a notebook."""

    coverage: Coverage
    intake: Provenance

    @property
    def joint(self) -> JointCertificate | None:
        """The certificates of the goal and its guardrails, if there are guardrails."""
        return None

    @cached_property
    def report(self) -> Report:
        """The report in words and numbers, for the page, the notebook and the terminal."""
        from understudy.report.data import report_of  # noqa: PLC0415 - presentation is above

        return report_of(self)

    @property
    def average(self) -> Array | None:
        """The policy's probability of every action, if there is one and it is known."""
        return None

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per action: how often it was played, what it earned, how well it is covered.

        The column `policy` has the policy's probabilities, if they are known.
        """
        table = self.coverage.table
        average = self.average
        return table if average is None else table.with_columns(policy=pl.Series(average))

    @property
    @abstractmethod
    def verdict(self) -> VerdictKind:
        """'promote', 'not yet', 'worse', 'cannot tell', or 'coverage' if there was no decision."""

    @property
    def warnings(self) -> list[str]:
        """Warnings about the log and the result, in sentences."""
        from understudy.report import findings  # noqa: PLC0415 - presentation stands above data

        return list(findings.log_warnings(self))

    @abstractmethod
    def plot(self) -> Figure:
        """A matplotlib figure."""

    def page(self) -> str:
        """The report as one HTML page that loads nothing."""
        from understudy.report.render import render_page  # noqa: PLC0415 - presentation is above

        return render_page(self.report)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.report.words})"

    def _repr_html_(self) -> str:
        from understudy.report.render import fragment  # noqa: PLC0415 - presentation is above

        return fragment(self.report)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnResult(Result):
    """A policy learned from a log, with its certificate and the coverage of the log.

    `oddities` counts values of contexts that are unlike all values of the warm-up.
    """

    policy: Policy
    oddities: Mapping[tuple[str, Unexpected], int]

    @cached_property
    def certified(self) -> Certified | None:
        """The certificate of the policies that were played while learning, with its curves."""
        path = self.policy.certificates
        return None if path is None else Certified.of(path.certificate, path.points)

    @property
    def joint(self) -> JointCertificate | None:
        return None if self.policy.certificates is None else self.policy.certificates.joint

    @property
    def segments(self) -> SegmentCertificates | None:
        """The certificates of segments, if there are segments."""
        return None if self.policy.certificates is None else self.policy.certificates.segments

    @property
    def contexts_over_production(self) -> bool:
        """Whether groups of contexts have gains over production, and the verdict over another one.

        Their sums know no other baseline.
        """
        return self.policy.study.groups is not None and self.policy.baseline is not None

    @property
    def average(self) -> Array:
        """The policy's probability of every action; with contexts, a mean over the last rows."""
        return self.policy.average

    @property
    def verdict(self) -> VerdictKind:
        """'promote', 'not yet', 'worse' or 'cannot tell'."""
        return "cannot tell" if self.certified is None else self.coverage.verdicts[0].kind

    @property
    def outcome(self) -> VerdictOutcome:
        """What the verdict comes to."""
        known = self.certified is not None
        return self.coverage.verdicts[0].outcome if known else VerdictOutcome.CANNOT_TELL

    @property
    def obstacle(self) -> Obstacle | None:
        """The reason why no decision is possible, if there is one."""
        if self.certified is not None:
            return self.coverage.verdicts[0].obstacle
        if self.coverage.obstacle is not None:
            return self.coverage.obstacle
        if self.policy.contextual is not None:
            return Obstacle.NO_PROPENSITIES_WITH_CONTEXTS
        if self.policy.study.behavior is not None:
            return Obstacle.NO_ORDER
        return Obstacle.NO_PROPENSITIES_WITH_ELIGIBLE_SETS

    @property
    def warnings(self) -> list[str]:
        """Warnings about the log and the result, in sentences."""
        from understudy.report import findings  # noqa: PLC0415 - presentation stands above data

        return list(findings.learn_warnings(self))

    def plot(self) -> Figure:
        """The certificate over time, as a matplotlib figure."""
        if self.certified is None:
            remedy = "learn in order, from propensities"
            raise InvalidArgument("certificate", None, "there is nothing to draw", remedy)
        return _draw(self.certified, self.coverage, UNDERSTUDY)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CertifyResult(Result):
    """The off-policy evaluation of one fixed policy.

    `policy` has the probability of every action, or is None if that depends on the row; `strange`
    is given if policy and log have no action in common. `learned` is the policy of `learn` that was
    evaluated as it is. `joint` has the certificates of guardrails, and `segments` those of
    segments, each None where there are none. If several policies were compared, this one has the
    largest certain gain, and `coverage.verdicts` has them all.
    """

    name: str
    policy: dict[Label, float] | None
    certified: Certified
    scale: RewardScale
    kind: PropensitySource
    oddities: Mapping[tuple[str, Unexpected], int]
    strange: DisjointActions | None = None
    learned: Policy | None = None
    joint: JointCertificate | None = None
    segments: SegmentCertificates | None = None

    @property
    def average(self) -> Array | None:
        return None if self.policy is None else np.array(list(self.policy.values()))

    @property
    def verdict(self) -> VerdictKind:
        """'promote', 'not yet', 'worse' or 'cannot tell'."""
        return self.coverage.verdicts[0].kind

    @property
    def outcome(self) -> VerdictOutcome:
        """What the verdict comes to."""
        return self.coverage.verdicts[0].outcome

    @property
    def warnings(self) -> list[str]:
        """Warnings about the log and the result, in sentences."""
        from understudy.report import findings  # noqa: PLC0415 - presentation stands above data

        return list(findings.certify_warnings(self))

    def plot(self) -> Figure:
        """The certificate over time, as a matplotlib figure."""
        return _draw(self.certified, self.coverage, self.name)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CoverageResult(Result):
    """The coverage of a log, and verdicts about policies."""

    scale: RewardScale
    kind: PropensitySource

    @property
    def policy(self) -> None:
        """None: nothing was learned."""

    @property
    def verdict(self) -> VerdictKind:
        """'coverage': there was no decision."""
        return "coverage"

    def plot(self) -> Figure:
        """How often each action was played, and what it earned, as a matplotlib figure."""
        from understudy.plots import draw_bars  # noqa: PLC0415 - presentation stands above data

        labels, shares = self.table["action"].to_list(), self.table["share"].to_list()
        means = self.table["mean_reward"].fill_null(0.0).to_list()
        return draw_bars(labels, {"share of rows": shares, "mean reward": means})

    def __str__(self) -> str:
        from understudy.report.words import describe_coverage  # noqa: PLC0415 - presentation is above

        return describe_coverage(self.coverage)


PolicyLike = Policy | LearnResult | str | os.PathLike[str] | Mapping[Label, float]


def _draw(certified: Certified, coverage: Coverage, name: str) -> Figure:
    from understudy.plots import draw_certificate  # noqa: PLC0415 - presentation stands above data
    from understudy.report.data import panel_of  # noqa: PLC0415

    return draw_certificate(panel_of(certified, coverage), title=f"What {name} would have earned")
