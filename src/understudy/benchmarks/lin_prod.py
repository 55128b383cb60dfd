"""LinProd's exact product: the cost of n rounds, each over all rounds before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

import understudy as us
from understudy.benchmarks.baselines import lin_prod_in_blocks
from understudy.benchmarks.core import Benchmark, Contender, Ratio, Timing

__all__ = ["LIN_PROD"]

K, D = 10, 10
SIZES = (1_000, 2_000, 5_000, 10_000)


def ours(n: int) -> str:
    return f"Understudy, n = {n:,}"


def blas(n: int) -> str:
    return f"NumPy, blocks of one matrix product, n = {n:,}"


def contenders(quick: bool) -> Iterator[Contender]:
    sizes = (50, 100) if quick else SIZES
    rng = np.random.default_rng(0)
    n = sizes[-1]
    features = rng.uniform(0.0, 1.0, (n, K, D)) / np.sqrt(D)
    log = us.Log(rng.integers(K, size=n), rng.random(n), features=features)
    V = np.einsum("nkd,nke->de", features, features) / (n * K)
    kappa = us.theory.largest_leverage(features, V)
    learner = us.lin_prod(V, n_actions=K, horizon=n, kappa=kappa)
    learner.replay(learner.init(), log[:10])  # compiled, or loaded, before the clock runs
    for size in sizes:
        yield Contender(ours(size), partial(learner.replay, learner.init(), log[:size]), 1.0, "s")
    state, _ = learner.replay(learner.init(), log)
    yield Contender(
        blas(n),
        lambda: lin_prod_in_blocks(learner.eta, state.thetas, features),
        1.0,
        "s",
        repeats=3,
    )


def ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    *_, largest, baseline = timings.values()
    found = [Ratio(f"{baseline.name} / {largest.name}", baseline.seconds / largest.seconds)]
    if largest.name == ours(SIZES[-1]):
        found.append(Ratio(f"{largest.name}, seconds", largest.seconds, at_most=1))
    return found


LIN_PROD = Benchmark(
    "lin_prod", "LinProd exact, K = 10, d = 10: replay of n rounds, O(n²)", contenders, ratios
)
