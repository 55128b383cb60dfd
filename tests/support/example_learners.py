"""A learner of every recipe, and logs that fit learners."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from understudy.conformance import example_log
from understudy.learners import RECIPES, Learner, exp3_ix, ridge
from understudy.types import one_event

__all__ = ["EXAMPLE_ARGUMENTS", "example_learners", "example_log", "one_event"]

PI_B = np.array([0.4, 0.3, 0.2, 0.1])
EXAMPLE_ARGUMENTS: dict[str, Any] = {
    "pi_b": PI_B,
    "learner": exp3_ix(PI_B),
    "n_contexts": 2,
    "experts": {
        "production": "production",
        "ix": exp3_ix(PI_B),
        "ridge": ridge(n_actions=4, dimension=2, temperature=[0.05, 0.5]),
    },
    "n_actions": 4,
    "horizon": 50,
    "V": np.array([[0.5, 0.1, 0.0], [0.1, 0.4, 0.0], [0.0, 0.0, 0.3]]),
    "feature_bound": 2.0,
    "dimension": 3,
}


def example_learners() -> Iterator[tuple[str, Learner[Any]]]:
    """Every recipe with example arguments, found by their names."""
    for name, recipe in RECIPES.items():
        parameters = inspect.signature(recipe).parameters
        yield (
            name,
            recipe(**{p: EXAMPLE_ARGUMENTS[p] for p in parameters if p in EXAMPLE_ARGUMENTS}),
        )
