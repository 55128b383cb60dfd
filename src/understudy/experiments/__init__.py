"""The paper's experiment, its companions, and what goes beyond: each is data plus a picture."""

from __future__ import annotations

from understudy.experiments.certificate_validity import CERTIFICATE
from understudy.experiments.coverage_sweep import ADAPTIVE
from understudy.experiments.experiment import Experiment, Options, write
from understudy.experiments.figure1 import FIGURE_1
from understudy.experiments.linear_game import LINEAR
from understudy.experiments.rate_sweep import RATES
from understudy.experiments.regret_curves import Point, Row
from understudy.experiments.tail_probability import PROBABILITY
from understudy.experiments.unknown_behavior import UNKNOWN

__all__ = ["EXPERIMENTS", "Experiment", "Options", "Point", "Row", "write"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (FIGURE_1, UNKNOWN, LINEAR, ADAPTIVE, RATES, PROBABILITY, CERTIFICATE)
}
