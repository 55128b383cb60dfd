"""The linear experiment: LinProd in constant memory is as good in its games as the product is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.strategies import Array
from understudy.experiments import ExperimentOptions
from understudy.experiments.linear_game import LINEAR, TUNED_NAME, UNIFORM_NAME
from understudy.learners import LinProd, LinProdCompact


def linear_game(options: ExperimentOptions) -> dict[str, list[Array]]:
    """Regrets of the experiment's learners, and of their compact twins, at every point: (runs,)."""
    found: dict[str, list[Array]] = {}
    for point in LINEAR.points(options):
        players: dict[str, Any] = dict(point.learners)
        for name, product in point.learners.items():
            assert isinstance(product, LinProd)
            players[f"compact {name}"] = LinProdCompact(
                product.eta, product.features, product.kappa, horizon=options.rounds
            )
        result = us.simulate(point.game, players, runs=options.runs, comparators=point.comparators)
        assert set(result.path.values()) == {"compiled"}
        for name in players:
            regret = result.regret[name][:, 0]
            found.setdefault(name, []).append(regret)
            error = float(regret.std(ddof=1)) / math.sqrt(options.runs)
            bound = point.bounds[name.removeprefix("compact ")]
            assert regret.mean() + 4 * error < bound
    return found


@pytest.mark.large
def test_regret_is_within_the_bound() -> None:
    linear_game(ExperimentOptions(runs=4, rounds=300, actions=4, alphas=3))


@pytest.mark.full
@pytest.mark.large
def test_the_compact_learner_is_near_the_product() -> None:
    """The experiment at its own size: the mean regret over all its points is the product's ± 5 %.

    Tuned to the coverage, it is at most 10 % above the product's at every single point. (50 runs on
    the same logs; the standard error of a difference is below 5 of a regret of 100.)
    """
    found = linear_game(LINEAR.defaults)
    means = {name: np.array([one.mean() for one in regrets]) for name, regrets in found.items()}
    for name in (UNIFORM_NAME, TUNED_NAME):
        assert abs(means[f"compact {name}"].mean() / means[name].mean() - 1) < 0.05
    assert (means[f"compact {TUNED_NAME}"] < 1.1 * means[TUNED_NAME]).all()
