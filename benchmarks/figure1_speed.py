"""The whole of Figure 1: 2 000 games of 10 000 rounds, two learners in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from benchmarks.baselines import one_weight_a_round, softmax_every_round
from benchmarks.measurement import Benchmark, Contender, Ratio, Timing
from understudy import behaviors
from understudy.experiments.figure1 import FIGURE_1 as EXPERIMENT
from understudy.learners import exp3
from understudy.simulation import adversaries
from understudy.simulation.game import Game
from understudy.simulation.simulate import simulate

__all__ = ["EXPERIMENT", "FIGURE_1"]

OURS, ONE_THREAD = "Understudy, two threads", "Understudy, one thread"
SOFTMAX = "NumPy vectorized over runs"
LOOPS, ONE_LOOP = "two compiled loops on two threads", "two compiled loops on one thread"
UNIT = "ns/round"
CARRIED = "NumPy vectorized over all games and learners, with our O(1) update"


def contenders(quick: bool) -> Iterator[Contender]:
    options = EXPERIMENT.defaults
    if quick:
        options = replace(options, runs=4, rounds=300, actions=10, alphas=2)
    points = list(EXPERIMENT.points(options))
    work = 2.0 * options.alphas * options.runs * options.rounds
    EXPERIMENT.run(replace(options, runs=1, alphas=1))  # compiled before the clock runs
    for name, jobs in ((OURS, 2), (ONE_THREAD, 1)):
        game = partial(EXPERIMENT.run, replace(options, jobs=jobs))
        yield Contender(name, game, work, UNIT, repeats=9)
    for name, threads in ((LOOPS, 2), (ONE_LOOP, 1)):
        yield Contender(name, partial(loops, threads, 500 if quick else 20_000_000), 1.0, "s", 9)
    softmax = partial(softmax_every_round, points, options.runs)
    yield Contender(SOFTMAX, softmax, work, UNIT, repeats=1)
    carried = partial(one_weight_a_round, points, options.runs)
    yield Contender(CARRIED, carried, work, UNIT, repeats=3)


def loops(threads: int, rounds: int) -> None:
    """Two games in one compiled call each: the most that two threads can gain on this machine."""
    pi_b = behaviors.uniform(n_actions=10)
    game = Game(adversaries.stationary(pi_b), pi_b, rounds)
    learners = {"Exp3": exp3(pi_b, eta=0.01)}
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda seed: simulate(game, learners, seed=seed), range(2)))


def ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    def faster(slow: str, fast: str) -> float:
        return timings[slow].seconds / timings[fast].seconds

    return [
        Ratio(f"{SOFTMAX} / {OURS}", faster(SOFTMAX, OURS), at_least=50),
        Ratio(f"{SOFTMAX} / {ONE_THREAD}", faster(SOFTMAX, ONE_THREAD)),
        Ratio(f"{CARRIED} / {ONE_THREAD}", faster(CARRIED, ONE_THREAD)),
        Ratio("Figure 1 on one thread / on two", faster(ONE_THREAD, OURS), at_least=1.8),
        Ratio("two loops that share nothing on one thread / on two", faster(ONE_LOOP, LOOPS)),
    ]


FIGURE_1 = Benchmark(
    "figure1",
    "Figure 1 whole: 20 behaviors × 100 runs × 2 learners, K = 100, n = 10 000",
    contenders,
    ratios,
)
