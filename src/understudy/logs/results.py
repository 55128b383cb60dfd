"""What the three commands give back: values that people can look at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import polars as pl

from understudy.report import Report, VerdictKind, fragment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Result"]


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
