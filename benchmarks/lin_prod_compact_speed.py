"""LinProd in constant memory beside the exact product, and its last rounds beside its first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import understudy as us
from benchmarks.lin_prod_speed import D, K, linear_log
from benchmarks.measurement import Benchmark, Contender, Ratio, Timing

__all__ = ["COMPACT"]

N = 100_000
PARTS = 10  # the log is replayed so many times: a million rounds
PRODUCT, SAME = "the exact product", "in constant memory"
FIRST, LAST = "in constant memory, first tenth", "in constant memory, last tenth"


def contenders(quick: bool) -> Iterator[Contender]:
    n = 100 if quick else N
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


def ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    value = {name: timing.value for name, timing in timings.items()}
    return [
        Ratio(f"{PRODUCT} / {SAME}", value[PRODUCT] / value[SAME], at_least=100),
        Ratio(f"{LAST} / {FIRST}", value[LAST] / value[FIRST], at_most=1.2),
    ]


COMPACT = Benchmark(
    "compact",
    f"LinProd in constant memory, K = {K}, d = {D}: 100 000 rounds, and tenths of 1 000 000",
    contenders,
    ratios,
)
