"""The adaptive learner with more and more actions: a round costs O(groups of rates)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import understudy as us
from benchmarks.measurement import Benchmark, Contender, Ratio, Timing

__all__ = ["ADAPTIVE"]

SIZES = (10**2, 10**3, 10**4, 10**5)
FORMS = ("by action", "grid", "no horizon")
PROMISED = 5.0  # of a round with 10⁵ actions, against one with 10²


def label(form: str, n_actions: int) -> str:
    return f"{form}, K = {n_actions:,}"


def contenders(quick: bool) -> Iterator[Contender]:
    """Probabilities from 1 to K: as many dyadic groups as K has binary digits."""
    rounds = 2_000 if quick else 1_000_000
    for n_actions in SIZES[: 2 if quick else None]:
        pi_b = us.behaviors.interpolated(n_actions=n_actions, alpha=0.0)
        game = us.Game(us.adversaries.switching(n_actions=n_actions, rounds=rounds), pi_b, rounds)
        learners = {
            "by action": us.coverage_adaptive(pi_b, horizon=rounds),
            "grid": us.coverage_adaptive(us.Logged(n_actions), horizon=rounds),
            "no horizon": us.coverage_adaptive(pi_b),
        }
        for form, learner in learners.items():
            cast = {form: learner}
            us.simulate(us.Game(game.adversary, pi_b, rounds=1), cast)  # before the clock runs
            yield Contender(
                label(form, n_actions), partial(us.simulate, game, cast), rounds, "ns/round", 3
            )


def ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    return [
        Ratio(
            f"{label(form, n)} / {label(form, SIZES[0])}",
            timings[label(form, n)].value / timings[label(form, SIZES[0])].value,
            at_most=PROMISED if (form, n) == (FORMS[0], SIZES[-1]) else None,
        )
        for form in FORMS
        for n in SIZES[1:]
        if label(form, n) in timings
    ]


ADAPTIVE = Benchmark(
    "adaptive",
    "One game of 1 000 000 rounds, coverage-adaptive: the cost of a round against K",
    contenders,
    ratios,
)
