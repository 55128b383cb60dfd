"""The speed of the defaults: mixtures of experts with contexts, and the grid of rates without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

import understudy as us
from benchmarks.measurement import Benchmark, Contender, Ratio, Timing
from understudy.constraints import Array
from understudy.logs.features import LearnerFactory
from understudy.logs.settings import name_of_default

__all__ = ["MIXTURE"]

K, P, FOURIER = 10, 65, 300
KAPPA = 2_000.0  # of LinProd; it does not change the cost
TEMPERATURES = (0.002, 0.02)  # those of the default
FIVE = f"five experts, {P} features, first half"
LATER = f"five experts, {P} features, second half"
WITH_FOURIER = f"the same and ridge on {FOURIER} Fourier features"
GRID = "grid of rates (prod_grid), reward rate {:.0%}"
DEFAULT = "the same and production, the default without contexts, reward rate {:.0%}"
RATES = (0.5, 0.02)
UNIT = "events/s"
# Rows a second that the mixture must keep, and the grid at each reward rate.
WANTED = {FIVE: 4e4, WITH_FOURIER: 8e3, GRID.format(0.5): 4e6, GRID.format(0.02): 2e7}


def contenders(quick: bool) -> Iterator[Contender]:
    rounds, many = (40, 1_000) if quick else (20_000, 2_000_000)
    rng = np.random.default_rng(0)
    log = contextual_log(2 * rounds, rng)
    first, second = log[:rounds], log[rounds:]
    five = us.exp4(us.Logged(n_actions=K), experts(log))
    whole = us.exp4(us.Logged(n_actions=K), {**experts(log), "fourier": fourier_ridge(rng)})
    for learner in (five, whole):
        learner.replay(learner.init(), log[:10])  # compiled, or loaded, before the clock runs
    later, _ = five.replay(five.init(), first)
    yield Contender(FIVE, partial(five.replay, five.init(), first), rounds, UNIT)
    yield Contender(LATER, partial(five.replay, later, second), rounds, UNIT)
    yield Contender(WITH_FOURIER, partial(whole.replay, whole.init(), first), rounds, UNIT)
    behavior = us.Logged(n_actions=K)
    default = LearnerFactory(behavior, K).make(name_of_default(behavior, contexts=False), {})
    grids = {GRID: us.prod_grid(behavior), DEFAULT: default}
    for grid in grids.values():
        grid.replay(grid.init(), us.Log([0], [1.0], propensities=[0.5]))
    for rate in RATES:
        clicks = us.Log(
            rng.integers(K, size=many),
            (rng.random(many) < rate).astype(np.float64),
            propensities=np.full(many, 1.0 / K),
        )
        for name, grid in grids.items():
            work = partial(grid.replay, grid.init(), clicks)
            yield Contender(name.format(rate), work, many, UNIT)


def contextual_log(rounds: int, rng: np.random.Generator) -> us.Log:
    """Random contexts with a constant, and propensities that change from row to row."""
    contexts: Array = rng.normal(size=(rounds, P))
    contexts[:, 0] = 1.0
    policies = 0.8 * rng.dirichlet(np.ones(K), size=rounds) + 0.2 / K
    actions = (rng.random((rounds, 1)) > policies.cumsum(axis=1)).sum(axis=1).clip(max=K - 1)
    rewards = (rng.random(rounds) < 0.5).astype(np.float64)  # noqa: PLR2004 - a fair coin
    q = policies[np.arange(rounds), actions]
    return us.Log(actions, rewards, propensities=q, features=contexts)


def experts(log: us.Log) -> dict[str, Any]:
    """Production, the grid without contexts, ridge at two temperatures, and LinProd: five."""
    assert log.features is not None
    V = np.stack([log.features.T @ log.features / len(log) / K + 0.01 * np.eye(P) / K] * K)
    lin_prod = us.lin_prod_compact(V, n_actions=K, kappa=KAPPA)
    return {
        "production": "production",
        "prod_grid": us.prod_grid(us.Logged(n_actions=K)),
        "ridge": us.ridge(n_actions=K, dimension=P, temperature=TEMPERATURES),
        "lin_prod_compact": us.learners.Mapped(lin_prod, us.learners.Leverage(V, KAPPA)),
    }


def fourier_ridge(rng: np.random.Generator) -> us.learners.Learner[Any]:
    """Ridge on random Fourier features."""
    drawn = us.learners.random_fourier(dimension=P, features=FOURIER, gamma=1 / (2 * P), rng=rng)
    made = us.ridge(n_actions=K, dimension=FOURIER + 1, temperature=TEMPERATURES, ridge=0.1)
    return us.learners.Mapped(made, drawn)


def ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    found = [
        Ratio(f"{name}, rows a second", timings[name].value, at_least=bound)
        for name, bound in WANTED.items()
    ]
    later = timings[LATER].seconds / timings[FIVE].seconds
    return [*found, Ratio("time of the second half / first half", later, at_most=1.2)]


MIXTURE = Benchmark("mixture", "Replay with the default learners, one core", contenders, ratios)
