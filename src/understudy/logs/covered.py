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
from understudy.logs.actions import Label
from understudy.logs.coverage import Candidate, Coverage, candidates_of, covered
from understudy.logs.options import CONFIDENT, Options
from understudy.logs.origins import origins_of
from understudy.logs.outputs import QUARANTINE_FILE, Quarantine, workplace
from understudy.logs.passes import files_read, good_rows
from understudy.logs.policies import FileRead, Policy
from understudy.logs.prepare import Prepared, prepare
from understudy.logs.reporting import BEHAVIOR_WORDS, KINDS, Scale, assemble
from understudy.logs.stretches import Stretches
from understudy.logs.study import with_propensities
from understudy.logs.survey import Watch
from understudy.logs.tallies import Tallied
from understudy.logs.tally import Tally
from understudy.logs.targets import Target, target_of
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
            words=self.coverage.describe()[0],
            facts=[("Behavior", BEHAVIOR_WORDS[self.kind])],
            assumptions=(),
            certificate=None,
            coverage=self.coverage,
            policy=None,
            averaged_over=None,
            files=self.files,
            quarantined=self.quarantined,
            examples=self.examples,
        )

    def plot(self) -> Figure:
        """How often each action was played and what it earned, as a matplotlib figure."""
        return draw_actions(self.table)

    def __repr__(self) -> str:
        return "\n".join(self.coverage.describe())

    def _repr_html_(self) -> str:
        return fragment(self.report)
