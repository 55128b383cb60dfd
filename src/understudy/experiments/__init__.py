"""Experiments: the paper's Figure 1, its companions, and those that go beyond the paper."""

from __future__ import annotations

from understudy.experiments.certificate_experiment import CERTIFICATE
from understudy.experiments.experiment import Experiment, ExperimentOptions, write
from understudy.experiments.figure1 import FIGURE_1, UNKNOWN
from understudy.experiments.linear_game import LINEAR
from understudy.experiments.tail_probability import PROBABILITY
from understudy.experiments.unknown_coverage import ADAPTIVE, RATES

__all__ = ["EXPERIMENTS", "Experiment", "ExperimentOptions", "write"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (FIGURE_1, UNKNOWN, LINEAR, ADAPTIVE, RATES, PROBABILITY, CERTIFICATE)
}
