"""The paper's quantities as functions: coverage, learning rates, and one bound per theorem."""

from __future__ import annotations

from understudy.theory.adaptive import (
    Tuning,
    coverage_adaptive_bound,
    coverage_adaptive_price,
    coverage_adaptive_tuning,
    coverage_adaptive_uniform_bound,
    coverage_grid_bound,
    coverage_grid_tuning,
)
from understudy.theory.anytime import (
    theorem1_anytime_bound,
    theorem1_anytime_tuned_bound,
    theorem1_anytime_uniform_bound,
)
from understudy.theory.bounds import (
    exp3_bound,
    exp3_condition,
    exp3_order,
    exp3_worst_case_bound,
    lin_prod_bound,
    lin_prod_tuned_bound,
    lin_prod_uniform_bound,
    prod_bound,
    theorem1_bound,
    theorem1_tuned_bound,
    theorem1_uniform_bound,
    theorem2_bound,
    theorem2_simplified_bound,
)
from understudy.theory.coverage import (
    coverage,
    feature_covariance,
    feature_coverage,
    largest_leverage,
    leverage,
)
from understudy.theory.high_probability import theorem1_high_probability_bound
from understudy.theory.linear import lin_prod_anytime_bound
from understudy.theory.rates import (
    anytime_scale,
    exp3_ix_rate,
    exp3_worst_case_rate,
    kappa_from_feature_bound,
    largest_lin_prod_rate,
    lin_prod_rate,
)
from understudy.theory.unknown import chernoff_bound, chernoff_simplified_bound

__all__ = [
    "Tuning",
    "anytime_scale",
    "chernoff_bound",
    "chernoff_simplified_bound",
    "coverage",
    "coverage_adaptive_bound",
    "coverage_adaptive_price",
    "coverage_adaptive_tuning",
    "coverage_adaptive_uniform_bound",
    "coverage_grid_bound",
    "coverage_grid_tuning",
    "exp3_bound",
    "exp3_condition",
    "exp3_ix_rate",
    "exp3_order",
    "exp3_worst_case_bound",
    "exp3_worst_case_rate",
    "feature_covariance",
    "feature_coverage",
    "kappa_from_feature_bound",
    "largest_leverage",
    "largest_lin_prod_rate",
    "leverage",
    "lin_prod_anytime_bound",
    "lin_prod_bound",
    "lin_prod_rate",
    "lin_prod_tuned_bound",
    "lin_prod_uniform_bound",
    "prod_bound",
    "theorem1_anytime_bound",
    "theorem1_anytime_tuned_bound",
    "theorem1_anytime_uniform_bound",
    "theorem1_bound",
    "theorem1_high_probability_bound",
    "theorem1_tuned_bound",
    "theorem1_uniform_bound",
    "theorem2_bound",
    "theorem2_simplified_bound",
]
