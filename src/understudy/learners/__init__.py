"""Learners: weight rules, and the paper's algorithms as recipes over them.

    exponential_weights    Algorithm 1, for every estimator
    weighted_entropy       mirror descent with a rate for every action
    linear, lin_prod       Algorithm 2, for features φ(x, a)
    recipes                the algorithms without features, by name
    linear_recipes         the algorithms with features, by name

`RECIPES` is the table that the tests and the docs read: a new algorithm is a function in recipes.py
(or linear_recipes.py) and its name here. A learner of your own is a subclass of `Learner` with four
members (docs/guide.md).
"""

from __future__ import annotations

from understudy.learners.exponential_weights import ExponentialWeights, Scores
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
from understudy.learners.recipes import (
    coverage_adaptive,
    exp3,
    exp3_ix,
    exp3_ix_unknown,
    prod,
)
from understudy.learners.weighted_entropy import CoverageAdaptive, LeveledScores
from understudy.protocols import EventSpec, Learner, Recorder

__all__ = [
    "RECIPES",
    "CoverageAdaptive",
    "DisjointFeatures",
    "Estimates",
    "EventSpec",
    "ExponentialWeights",
    "Learner",
    "LeveledScores",
    "LinProd",
    "LinProdCompact",
    "LinProdUnknown",
    "Recorder",
    "Scores",
    "SharedFeatures",
    "Sums",
    "SumsAndInverse",
    "coverage_adaptive",
    "exp3",
    "exp3_ix",
    "exp3_ix_unknown",
    "lin_prod",
    "lin_prod_compact",
    "lin_prod_unknown",
    "prod",
]

RECIPES = {
    recipe.__name__: recipe
    for recipe in (
        exp3,
        exp3_ix,
        exp3_ix_unknown,
        prod,
        coverage_adaptive,
        lin_prod,
        lin_prod_compact,
        lin_prod_unknown,
    )
}
