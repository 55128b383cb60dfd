"""One game with more and more actions: the cost of a round stays the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import understudy as us
from benchmarks.measurement import Benchmark, Contender, Ratio, Timing

__all__ = ["ROUNDS"]

SIZES = (10**2, 10**3, 10**4, 10**5, 10**6)
PROMISED = {10**5: 5.0}  # caches are missed, no more work is done


def label(n_actions: int) -> str:
    return f"K = {n_actions:,}"


def contenders(quick: bool) -> Iterator[Contender]:
    rounds = 2_000 if quick else 2_000_000
    for n_actions in SIZES[: 4 if quick else None]:
        pi_b = us.behaviors.interpolated(n_actions=n_actions, alpha=0.5)
        game = us.Game(us.adversaries.switching(n_actions=n_actions, rounds=rounds), pi_b, rounds)
        learners = {"Exp3-IX": us.exp3_ix(pi_b, horizon=rounds)}
        us.simulate(
            us.Game(game.adversary, pi_b, rounds=1), learners
        )  # compiled before the clock runs
        yield Contender(label(n_actions), partial(us.simulate, game, learners), rounds, "ns/round")


def ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    small = timings[label(SIZES[0])].value
    return [
        Ratio(
            f"{label(n)} / {label(SIZES[0])}",
            timings[label(n)].value / small,
            at_most=PROMISED.get(n),
        )
        for n in SIZES[1:]
        if label(n) in timings
    ]


ROUNDS = Benchmark(
    "rounds",
    "One game of 2 000 000 rounds, Exp3-IX: the cost of a round against K",
    contenders,
    ratios,
)
