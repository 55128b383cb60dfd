"""One game with more and more actions: the cost of a round.

Exp3-IX does O(1) work a round, the coverage-adaptive learner O(groups of rates).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import understudy as us
from benchmarks.measurement import Benchmark, Contender, Ratio, Timing
from understudy.protocols import Learner

__all__ = ["ADAPTIVE", "ROUNDS"]

SIZES = (10**2, 10**3, 10**4, 10**5, 10**6)
ADAPTIVE_SIZES = SIZES[:-1]
FORMS = ("by action", "grid", "no horizon")
PROMISED = 5.0  # a round with 10⁵ actions, against one with 10²: caches are missed, no more work


def label(n_actions: int, form: str = "") -> str:
    size = f"K = {n_actions:,}"
    return f"{form}, {size}" if form else size


def switching_game(n_actions: int, alpha: float, rounds: int) -> us.Game:
    pi_b = us.behaviors.interpolated(n_actions=n_actions, alpha=alpha)
    return us.Game(us.adversaries.switching(n_actions=n_actions, rounds=rounds), pi_b, rounds)


def player(name: str, game: us.Game, learner: Learner[Any], repeats: int) -> Contender:
    """Play one round now, so that kernels are compiled before the clock runs."""
    learners = {name: learner}
    us.simulate(us.Game(game.adversary, game.behavior, rounds=1), learners)
    play = partial(us.simulate, game, learners)
    return Contender(name, play, game.rounds, "ns/round", repeats)


def contenders(quick: bool) -> Iterator[Contender]:
    rounds = 2_000 if quick else 2_000_000
    for n_actions in SIZES[: 4 if quick else None]:
        game = switching_game(n_actions, 0.5, rounds)
        yield player(label(n_actions), game, us.exp3_ix(game.behavior, horizon=rounds), repeats=5)


def adaptive_contenders(quick: bool) -> Iterator[Contender]:
    """Probabilities from 1 to K: as many dyadic groups as K has binary digits."""
    rounds = 2_000 if quick else 1_000_000
    for n_actions in ADAPTIVE_SIZES[: 2 if quick else None]:
        game = switching_game(n_actions, 0.0, rounds)
        learners = (
            us.coverage_adaptive(game.behavior, horizon=rounds),
            us.coverage_adaptive(us.Logged(n_actions), horizon=rounds),
            us.coverage_adaptive(game.behavior),
        )
        for form, learner in zip(FORMS, learners, strict=True):
            yield player(label(n_actions, form), game, learner, repeats=3)


def ratios(timings: Mapping[str, Timing], form: str = "", promised_for: str = "") -> list[Ratio]:
    """The cost of a round against that with 100 actions; a promise holds for 10⁵ actions."""
    small = label(SIZES[0], form)
    return [
        Ratio(
            f"{label(n, form)} / {small}",
            timings[label(n, form)].value / timings[small].value,
            at_most=PROMISED if n == 10**5 and form == promised_for else None,
        )
        for n in SIZES[1:]
        if label(n, form) in timings
    ]


def adaptive_ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    return [ratio for form in FORMS for ratio in ratios(timings, form, promised_for=FORMS[0])]


ROUNDS = Benchmark(
    "rounds",
    "One game of 2 000 000 rounds, Exp3-IX: the cost of a round against K",
    contenders,
    ratios,
)
ADAPTIVE = Benchmark(
    "adaptive",
    "One game of 1 000 000 rounds, coverage-adaptive: the cost of a round against K",
    adaptive_contenders,
    adaptive_ratios,
)
