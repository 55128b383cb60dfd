"""The paper's experiment, its companions, and what goes beyond: each is data plus a picture."""

from __future__ import annotations

from understudy.experiments.adaptive import ADAPTIVE
from understudy.experiments.core import Experiment, Options, write
from understudy.experiments.figure1 import FIGURE_1
from understudy.experiments.linear import LINEAR
from understudy.experiments.rates import RATES
from understudy.experiments.regret import Point, Row
from understudy.experiments.unknown import UNKNOWN

__all__ = ["EXPERIMENTS", "Experiment", "Options", "Point", "Row", "write"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (FIGURE_1, UNKNOWN, LINEAR, ADAPTIVE, RATES)
}
