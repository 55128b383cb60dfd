"""Theorem 3 on a contextual game: LinProd as the behavior moves away from the comparator.

Eight contexts, features on the simplex of R³, and θ_t that switches after half of the rounds; the
rewards are Bernoulli draws with means ⟨θ_t, φ⟩. The comparator plays the best action of each
context. The behavior is a mixture of the comparator (weight α), of the worst action of each
context, and of the uniform policy. The figure shows regret and bound against the feature coverage
C_φ.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from understudy import theory
from understudy.constraints import Array
from understudy.contexts import FiniteContexts
from understudy.experiments.experiment import ExperimentOptions, RegretExperiment, RegretPoint
from understudy.learners import LinProd, lin_prod
from understudy.simulation import Game, adversaries

N_CONTEXTS = 8  # few, so that every context is seen hundreds of times in 2 000 rounds
THETAS = np.array([[0.4, 0.1, 0.8], [1.0, 0.1, 0.0]])  # the third feature pays, later the first
UNIFORM_WEIGHT = 0.2  # of the behavior, so that V is invertible for every α
WORLD_SEED = 2  # the features are part of the experiment: the same for every --seed
UNIFORM_NAME, TUNED_NAME = "LinProd", "LinProd, tuned to C"


def linear_world(n_actions: int) -> tuple[FiniteContexts, Array, Array]:
    """The contexts, and the best and the worst policy on them."""
    rng, concentration = np.random.default_rng(WORLD_SEED), np.full(THETAS.shape[1], 0.3)
    # Below 1, so that most vectors have one large feature, and actions differ.
    table = rng.dirichlet(concentration, size=(N_CONTEXTS, n_actions))
    contexts = FiniteContexts(table, np.full(N_CONTEXTS, 1 / N_CONTEXTS))
    rewards = table @ THETAS.mean(axis=0)
    actions = np.eye(n_actions)
    return contexts, actions[rewards.argmax(axis=1)], actions[rewards.argmin(axis=1)]


class LinearGame(RegretExperiment):
    """LinProd at its default rate, and tuned to the coverage of the comparator."""

    name = "linear"
    title = "LinProd as the behavior policy slides away from the comparator"
    defaults = ExperimentOptions(runs=50, rounds=2_000, actions=4, alphas=10)
    x = "coverage"
    x_label = r"feature coverage ratio $C_\varphi$ of the comparator"
    bound_label = "Theorem 3"

    def points(self, options: ExperimentOptions) -> Iterator[RegretPoint]:
        K, n = options.actions, options.rounds
        contexts, best, worst = linear_world(K)
        V_comparator = contexts.covariance(best)
        for alpha in options.grid():
            mixture = alpha * best + (1 - alpha) * worst
            behavior = (1 - UNIFORM_WEIGHT) * mixture + UNIFORM_WEIGHT / K
            V = contexts.covariance(behavior)
            kappa = theory.largest_leverage(contexts.table, V)
            coverage = theory.feature_coverage(V_comparator, V)
            learners = {
                name: lin_prod(V, n_actions=K, horizon=n, kappa=kappa, coverage=target)
                for name, target in ((UNIFORM_NAME, None), (TUNED_NAME, coverage))
            }
            adversary = adversaries.halves(THETAS, rounds=n)
            yield RegretPoint(
                game=Game(adversary, behavior, n, contexts),
                learners=learners,
                comparators=[best],
                alpha=alpha,
                coverage=coverage,
                bounds={
                    name: theory.lin_prod_bound(K, horizon=n, eta=learner.eta, coverage=coverage)
                    for name, learner in learners.items()
                },
            )

    def notes(self, options: ExperimentOptions) -> list[str]:
        capped = [
            f"α = {point.alpha:.2f} ({name})"
            for point in self.points(options)
            for name, learner in point.learners.items()
            if isinstance(learner, LinProd) and learner.capped
        ]
        cap = f"capped at 1/(2κ) for {', '.join(capped)}" if capped else "never capped at 1/(2κ)"
        return [
            f"bound: Theorem 3 at the learner's own rate, {cap}",
            "regret against the best action of each context, counted with conditional mean rewards",
        ]


LINEAR = LinearGame()
