"""Theorem 3 on a contextual game: LinProd as the behavior slides away from the comparator.

Eight contexts, features on the simplex of R³, and θ_t that switches at half-time, so that the
rewards ⟨θ_t, φ⟩ are the means of Bernoulli draws. The comparator plays the best action of each
context; the behavior is a mixture of it (weight α), of the worst action of each context, and of a
little of everything. Regret and bound are shown against the feature coverage C_φ.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from understudy import theory
from understudy.constraints import Array
from understudy.contexts import FiniteContexts
from understudy.experiments.experiment import Options
from understudy.experiments.regret_curves import Point, RegretExperiment
from understudy.learners import LinProd, lin_prod
from understudy.simulation.adversaries import halves
from understudy.simulation.game import Game

__all__ = ["LINEAR"]

N_CONTEXTS = 8
THETAS = np.array([[0.4, 0.1, 0.8], [1.0, 0.1, 0.0]])
EVERYTHING = 0.2  # the behavior's weight on the uniform policy
WORLD_SEED = 2  # the features are part of the experiment: the same for every --seed
UNIFORM_NAME, TUNED_NAME = "LinProd", "LinProd, tuned to C"


def world(n_actions: int) -> tuple[FiniteContexts, Array, Array]:
    """The contexts, and the best and the worst policy on them."""
    rng = np.random.default_rng(WORLD_SEED)
    table = rng.dirichlet(np.full(THETAS.shape[1], 0.3), size=(N_CONTEXTS, n_actions))
    contexts = FiniteContexts(table, np.full(N_CONTEXTS, 1 / N_CONTEXTS))
    rewards = table @ THETAS.mean(axis=0)
    actions = np.eye(n_actions)
    return contexts, actions[rewards.argmax(axis=1)], actions[rewards.argmin(axis=1)]


def points(options: Options) -> Iterator[Point]:
    contexts, best, worst = world(options.actions)
    V_comparator = contexts.covariance(best)
    for alpha in options.grid():
        played = alpha * best + (1 - alpha) * worst
        behavior = (1 - EVERYTHING) * played + EVERYTHING / options.actions
        V = contexts.covariance(behavior)
        kappa = theory.largest_leverage(contexts.table, V)
        coverage = theory.feature_coverage(V_comparator, V)
        learners = {
            name: lin_prod(
                V,
                n_actions=options.actions,
                horizon=options.rounds,
                kappa=kappa,
                coverage=target,
            )
            for name, target in ((UNIFORM_NAME, None), (TUNED_NAME, coverage))
        }
        yield Point(
            alpha=float(alpha),
            game=Game(halves(THETAS, rounds=options.rounds), behavior, options.rounds, contexts),
            learners=learners,
            comparator=best,
            coverage=coverage,
            bounds={name: bound(learner, coverage) for name, learner in learners.items()},
        )


def bound(learner: LinProd, coverage: float) -> float:
    assert learner.horizon is not None
    return theory.lin_prod_bound(
        learner.features.n_actions, horizon=learner.horizon, eta=learner.eta, coverage=coverage
    )


def notes(options: Options) -> list[str]:
    capped = [
        f"α = {point.alpha:.2f} ({name})"
        for point in points(options)
        for name, learner in point.learners.items()
        if isinstance(learner, LinProd) and learner.capped
    ]
    cap = f"capped at 1/(2κ) for {', '.join(capped)}" if capped else "never capped at 1/(2κ)"
    return [
        f"bound: Theorem 3 at the learner's own rate, {cap}",
        "regret against the best action of each context, counted with conditional mean rewards",
    ]


LINEAR = RegretExperiment(
    name="linear",
    title="LinProd as the behavior policy slides away from the comparator",
    defaults=Options(runs=50, rounds=2_000, actions=4, alphas=10),
    points=points,
    x="coverage",
    x_label=r"feature coverage ratio $C_\varphi$ of the comparator",
    bound_label="Theorem 3",
    notes=notes,
)
