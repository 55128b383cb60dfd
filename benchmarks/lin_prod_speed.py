"""LinProd's exact product, and LinProd in constant memory.

With the exact product, n rounds cost O(n²), as each one goes over all earlier rounds. In constant
memory, the last rounds cost as much as the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

import understudy as us
from benchmarks.baselines import lin_prod_in_blocks
from benchmarks.measurement import Benchmark, Contender, Ratio, Timing
from understudy.constraints import Array

__all__ = ["COMPACT", "LIN_PROD", "linear_log"]

K, D = 10, 10
SIZES = (1_000, 2_000, 5_000, 10_000)
COMPACT_SIZE = 100_000
PARTS = 10  # the log is replayed so many times: a million rounds
PRODUCT, SAME = "the exact product", "in constant memory"
FIRST, LAST = "in constant memory, first tenth", "in constant memory, last tenth"


def linear_log(n: int) -> tuple[us.Log, Array, float]:
    """Random features on the cube, played uniformly; their V and κ.

    >>> log, V, _ = linear_log(100)
    >>> len(log), V.shape
    (100, (10, 10))
    """
    rng = np.random.default_rng(0)
    features = rng.uniform(0.0, 1.0, (n, K, D)) / np.sqrt(D)
    log = us.Log(rng.integers(K, size=n), rng.random(n), features=features)
    V = np.einsum("nkd,nke->de", features, features) / (n * K)
    return log, V, us.theory.largest_leverage(features, V)


def ours(n: int) -> str:
    return f"Understudy, n = {n:,}"


def blas(n: int) -> str:
    return f"NumPy, blocks of one matrix product, n = {n:,}"


def contenders(quick: bool) -> Iterator[Contender]:
    sizes = (50, 100) if quick else SIZES
    n = sizes[-1]
    log, V, kappa = linear_log(n)
    learner = us.lin_prod(V, n_actions=K, horizon=n, kappa=kappa)
    learner.replay(learner.init(), log[:10])  # compiled, or loaded, before the clock runs
    for size in sizes:
        yield Contender(ours(size), partial(learner.replay, learner.init(), log[:size]), 1.0, "s")
    state, _ = learner.replay(learner.init(), log)
    features = log.features
    assert features is not None
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


def compact_contenders(quick: bool) -> Iterator[Contender]:
    n = 100 if quick else COMPACT_SIZE
    log, V, kappa = linear_log(n)
    product = us.lin_prod(V, n_actions=K, horizon=n, kappa=kappa)
    same = us.lin_prod_compact(V, n_actions=K, horizon=n, kappa=kappa)
    long = us.lin_prod_compact(V, n_actions=K, horizon=PARTS * n, kappa=kappa)
    late = long.init()
    for _ in range(PARTS - 1):
        late, _ = long.replay(late, log)
    product.replay(product.init(), log[:10])  # compiled, or loaded, before the clock runs
    yield Contender(PRODUCT, partial(product.replay, product.init(), log), n, "ns/round", repeats=1)
    yield Contender(SAME, partial(same.replay, same.init(), log), n, "ns/round")
    yield Contender(FIRST, partial(long.replay, long.init(), log), n, "ns/round")
    yield Contender(LAST, partial(long.replay, late, log), n, "ns/round")


def compact_ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    value = {name: timing.value for name, timing in timings.items()}
    return [
        Ratio(f"{PRODUCT} / {SAME}", value[PRODUCT] / value[SAME], at_least=100),
        Ratio(f"{LAST} / {FIRST}", value[LAST] / value[FIRST], at_most=1.2),
    ]


LIN_PROD = Benchmark(
    "lin_prod", "LinProd exact, K = 10, d = 10: replay of n rounds, O(n²)", contenders, ratios
)
COMPACT = Benchmark(
    "compact",
    f"LinProd in constant memory, K = {K}, d = {D}: 100 000 rounds, and tenths of 1 000 000",
    compact_contenders,
    compact_ratios,
)
