"""The paper's experiment and its companions: each is data plus a picture."""

from __future__ import annotations

from understudy.experiments.core import Experiment, Options, Point, Row, run, write
from understudy.experiments.figure1 import FIGURE_1
from understudy.experiments.linear import LINEAR
from understudy.experiments.unknown import UNKNOWN

__all__ = ["EXPERIMENTS", "Experiment", "Options", "Point", "Row", "run", "write"]

EXPERIMENTS = {experiment.name: experiment for experiment in (FIGURE_1, UNKNOWN, LINEAR)}
