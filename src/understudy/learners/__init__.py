"""Learners: weight rules, and the paper's algorithms as recipes over them.

    exponential_weights    Algorithm 1, for every estimator
    weighted_entropy       mirror descent with a rate for every action, or a grid of rates
    linear, lin_prod       Algorithm 2, for features φ(x, a)
    ridge                  a regression for every action, as a policy
    per_context            a learner for each of a few contexts
    exp4                   a mixture of experts, each of them any predictable policy
    experts                models of your own and outside policies as experts
    feature_maps           learners that see other features of a context
    recipes                the algorithms without features, by name
    linear_recipes         the algorithms with features, by name

`RECIPES` is the table that the tests and the docs read: a new algorithm is a function in recipes.py
(or linear_recipes.py) and its name here. A learner of your own is a subclass of `Learner` with four
members (docs/guide.md).
"""

from __future__ import annotations

from understudy.learners.exp4 import Exp4, MixtureState, exp4
from understudy.learners.experts import Model, Outside
from understudy.learners.exponential_weights import ExponentialWeights, Scores
from understudy.learners.feature_maps import (
    Cell,
    FeatureMap,
    Leverage,
    Mapped,
    RandomFourier,
    random_fourier,
)
from understudy.learners.lin_prod import (
    Estimates,
    LinProd,
    LinProdCompact,
    LinProdUnknown,
    Sums,
    SumsAndInverse,
)
from understudy.learners.linear import DisjointFeatures, SharedFeatures
from understudy.learners.linear_recipes import lin_prod, lin_prod_compact, lin_prod_unknown
from understudy.learners.per_context import ContextStates, PerContext, per_context
from understudy.learners.recipes import (
    coverage_adaptive,
    exp3,
    exp3_ix,
    exp3_ix_unknown,
    prod,
    prod_grid,
)
from understudy.learners.ridge import Regressions, Ridge, ridge
from understudy.learners.weighted_entropy import CoverageAdaptive, LeveledScores
from understudy.protocols import EventSpec, Learner, Recorder

__all__ = [
    "RECIPES",
    "Cell",
    "ContextStates",
    "CoverageAdaptive",
    "DisjointFeatures",
    "Estimates",
    "EventSpec",
    "Exp4",
    "ExponentialWeights",
    "FeatureMap",
    "Learner",
    "LeveledScores",
    "Leverage",
    "LinProd",
    "LinProdCompact",
    "LinProdUnknown",
    "Mapped",
    "MixtureState",
    "Model",
    "Outside",
    "PerContext",
    "RandomFourier",
    "Recorder",
    "Regressions",
    "Ridge",
    "Scores",
    "SharedFeatures",
    "Sums",
    "SumsAndInverse",
    "coverage_adaptive",
    "exp3",
    "exp3_ix",
    "exp3_ix_unknown",
    "exp4",
    "lin_prod",
    "lin_prod_compact",
    "lin_prod_unknown",
    "per_context",
    "prod",
    "prod_grid",
    "random_fourier",
    "ridge",
]

RECIPES = {
    recipe.__name__: recipe
    for recipe in (
        exp3,
        exp3_ix,
        exp3_ix_unknown,
        prod,
        coverage_adaptive,
        prod_grid,
        lin_prod,
        lin_prod_compact,
        lin_prod_unknown,
        ridge,
        per_context,
        exp4,
    )
}
