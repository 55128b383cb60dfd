"""Theorem 2 on the paper's game, beside the known case: the behavior policy is only counted."""

from __future__ import annotations

from collections.abc import Iterator

from understudy import theory
from understudy.experiments.core import Options
from understudy.experiments.figure1 import COMPARATOR, paper_game, theorem1_for
from understudy.experiments.regret import Point, RegretExperiment
from understudy.learners import exp3_ix, exp3_ix_unknown

__all__ = ["UNKNOWN"]

KNOWN_NAME, UNKNOWN_NAME = "Exp3-IX", "Exp3-IX, unknown"


def points(options: Options) -> Iterator[Point]:
    for alpha in options.grid():
        game = paper_game(options, float(alpha))
        coverage = theory.coverage(COMPARATOR, game.behavior)
        known = exp3_ix(game.behavior, horizon=options.rounds)
        unknown = exp3_ix_unknown(options.actions, horizon=options.rounds)
        theorem2 = theory.theorem2_bound(
            options.actions, horizon=options.rounds, eta=unknown.rate(0), coverage=coverage
        )
        yield Point(
            alpha=float(alpha),
            game=game,
            learners={UNKNOWN_NAME: unknown, KNOWN_NAME: known},
            comparator=COMPARATOR,
            coverage=coverage,
            bounds={KNOWN_NAME: theorem1_for(game, known.rate(0)), UNKNOWN_NAME: theorem2},
        )


def notes(options: Options) -> list[str]:
    return [
        "bound: Theorem 1 in full where the behavior is known, Theorem 2 in full where it is not; "
        f"no regret on this game exceeds {options.rounds / 4:g}, so larger bounds say nothing",
        "regret against action 0, counted with conditional mean rewards",
    ]


UNKNOWN = RegretExperiment(
    name="unknown",
    title="Exp3-IX, behavior policy known and unknown",
    defaults=Options(runs=100, rounds=10_000, actions=100, alphas=20),
    points=points,
    x="alpha",
    x_label=r"$\alpha$: from favoring the last action to favoring the comparator",
    bound_label="Theorem 1 (known), Theorem 2 (unknown)",
    notes=notes,
)
