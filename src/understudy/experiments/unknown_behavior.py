"""The paper's game with a behavior policy that is only counted, beside the known case.

Theorem 2 widens the frequencies by Hoeffding's inequality, the same for every action; Chernoff's
bounds are far smaller where the behavior plays rarely.
"""

from __future__ import annotations

from collections.abc import Iterator

from understudy import theory
from understudy.experiments.experiment import Options
from understudy.experiments.figure1 import COMPARATOR, paper_game, theorem1_for
from understudy.experiments.regret_curves import Point, RegretExperiment
from understudy.learners import exp3_ix, exp3_ix_unknown

__all__ = ["UNKNOWN"]

KNOWN_NAME, UNKNOWN_NAME, CHERNOFF_NAME = "Exp3-IX", "Exp3-IX, unknown", "Exp3-IX, unknown, kl"


def points(options: Options) -> Iterator[Point]:
    for alpha in options.grid():
        game = paper_game(options, float(alpha))
        coverage = theory.coverage(COMPARATOR, game.behavior)
        known = exp3_ix(game.behavior, horizon=options.rounds)
        unknown = exp3_ix_unknown(options.actions, horizon=options.rounds)
        chernoff = exp3_ix_unknown(options.actions, horizon=options.rounds, width="kl")
        eta = known.rate(0)  # of all three
        theorem2 = theory.theorem2_bound(
            options.actions, horizon=options.rounds, eta=eta, coverage=coverage
        )
        yield Point(
            alpha=float(alpha),
            game=game,
            learners={UNKNOWN_NAME: unknown, CHERNOFF_NAME: chernoff, KNOWN_NAME: known},
            comparator=COMPARATOR,
            coverage=coverage,
            bounds={
                KNOWN_NAME: theorem1_for(game, eta),
                UNKNOWN_NAME: theorem2,
                CHERNOFF_NAME: theory.chernoff_bound(
                    COMPARATOR, game.behavior, horizon=options.rounds, eta=eta
                ),
            },
        )


def notes(options: Options) -> list[str]:
    return [
        "bound: in full, Theorem 1 where the behavior is known, Theorem 2 where it is not, and the "
        "one for Chernoff's bounds (docs/theory.md); no regret on this game exceeds "
        f"{options.rounds / 4:g}, so larger bounds say nothing",
        "regret against action 0, counted with conditional mean rewards",
    ]


UNKNOWN = RegretExperiment(
    name="unknown",
    title="Exp3-IX, behavior policy known and unknown",
    defaults=Options(runs=100, rounds=10_000, actions=100, alphas=20),
    points=points,
    x="alpha",
    x_label=r"$\alpha$: from favoring the last action to favoring the comparator",
    bound_label="Theorem 1 (known), Theorem 2 (unknown), Chernoff (unknown, kl)",
    notes=notes,
)
