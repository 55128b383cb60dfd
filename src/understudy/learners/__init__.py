"""Learners: weight rules, and the algorithms as recipes over them.

`RECIPES` is the table that the tests, the docs and `us.check_learner` go through: a new
algorithm is a function in recipes.py or linear_recipes.py and its name here.
"""

from __future__ import annotations

from understudy.learners.exponential_weights import ExponentialWeights, Scores
from understudy.learners.lin_prod import Estimates, LinProd
from understudy.learners.lin_prod_compact import LinProdCompact, Sums
from understudy.learners.lin_prod_unknown import LinProdUnknown, SumsAndInverse
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

__all__ = [
    "RECIPES",
    "CoverageAdaptive",
    "DisjointFeatures",
    "Estimates",
    "ExponentialWeights",
    "LeveledScores",
    "LinProd",
    "LinProdCompact",
    "LinProdUnknown",
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
