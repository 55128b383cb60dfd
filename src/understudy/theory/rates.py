"""Learning rates: the tunings of the three theorems, and the largest admissible ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import (
    FEATURE_BOUND,
    HORIZON,
    LARGEST_RATE,
    N_ACTIONS,
    POSITIVE,
    PROBABILITIES,
    constrained,
    number,
)
from understudy.errors import InvalidArgument
from understudy.theory.coverage_ratio import COVARIANCES

COVERAGE_RATIO = number(
    1.0 - 1e-8,  # 1, but for the rounding of probabilities
    math.inf,
    "pass us.coverage(comparator, pi_b), which is at least 1; no rate suits an infinite one",
)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=COVERAGE_RATIO.optional())
def exp3_ix_rate(n_actions: int, horizon: int, coverage: float | None = None) -> float:
    r"""Theorem 1's rates: $\sqrt{\log K / n}$, or $\sqrt{2 \log K / (C n)}$ for a coverage C.

    The second minimises log K/η + ηCn/2. The paper prints √(log K/(C n)), which does not give
    the bound it states (docs/paper.md). Theorem 2 uses the first.

    >>> round(exp3_ix_rate(100, 10_000), 4), round(exp3_ix_rate(100, 10_000, coverage=2.0), 4)
    (0.0215, 0.0215)
    """
    if coverage is None:
        return math.sqrt(math.log(n_actions) / horizon)
    return math.sqrt(2.0 * math.log(n_actions) / (coverage * horizon))


@constrained(n_actions=N_ACTIONS, coverage=COVERAGE_RATIO.optional())
def anytime_scale(n_actions: int, coverage: float | None = None) -> float:
    r"""s of the rate $\eta_t = s/\sqrt t$, which needs no horizon: $\sqrt{\log K/2}$, or
    $\sqrt{\log K/C}$ for a coverage C.

    They minimise log K/η_n + (C/2) Σ_t η_t ≤ √n (log K/s + C s), the first at C = 2
    (`theorem1_anytime_bound`).

    >>> round(anytime_scale(100), 4), round(anytime_scale(100, coverage=2.0), 4)
    (1.5174, 1.5174)
    """
    return math.sqrt(math.log(n_actions) / (2.0 if coverage is None else coverage))


@constrained(pi_b=PROBABILITIES, horizon=HORIZON)
def exp3_worst_case_rate(pi_b: ArrayLike, *, horizon: int) -> float:
    r"""The rate that minimises Exp3's bound in the worst case, $\sqrt{\min q \log K / n}$.

    It satisfies the bound's condition η ≤ min q as soon as n ≥ log K / min q.

    >>> round(exp3_worst_case_rate([0.01, 0.99], horizon=10_000), 6)
    0.000833
    """
    n_actions = len(np.asarray(pi_b))
    return math.sqrt(smallest_probability(pi_b) * math.log(n_actions) / horizon)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON, coverage=POSITIVE.optional())
def lin_prod_rate(n_actions: int, horizon: int, coverage: float | None = None) -> float:
    r"""Theorem 3's rates: $\sqrt{\log K / n}$, or $\sqrt{\log K / (C_\varphi n)}$.

    Neither need be admissible: see `largest_lin_prod_rate`.

    >>> round(lin_prod_rate(10, 10_000), 4), round(lin_prod_rate(10, 10_000, coverage=4.0), 4)
    (0.0152, 0.0076)
    """
    return math.sqrt(math.log(n_actions) / ((coverage or 1.0) * horizon))


@constrained(kappa=POSITIVE)
def largest_lin_prod_rate(kappa: float) -> float:
    r"""The largest admissible rate of LinProd, $1/(2\kappa)$ with κ ≥ sup φᵀV⁻¹φ.

    Then |η r̂| = η R |φᵀV⁻¹φ'| ≤ η κ ≤ ½, by Cauchy–Schwarz in the norm of V⁻¹.

    >>> largest_lin_prod_rate(20.0)
    0.025
    """
    return 1.0 / (2.0 * kappa)


@constrained(V=COVARIANCES, feature_bound=FEATURE_BOUND)
def kappa_from_feature_bound(V: ArrayLike, feature_bound: float) -> float:
    r"""$\kappa \le B^2/\lambda_{\min}(V)$ for features with ‖φ(x,a)‖ ≤ B.

    With it, the largest admissible rate is the paper's: λ_min(V) ≥ 2ηB².

    >>> kappa_from_feature_bound([[0.5, 0.0], [0.0, 0.25]], 1.0)
    4.0
    """
    smallest = float(np.linalg.eigvalsh(np.asarray(V)).min())
    if feature_bound**2 > LARGEST_RATE * smallest:
        raise InvalidArgument(
            "feature_bound",
            feature_bound,
            f"λ_min(V) = {smallest:.3g} is so much smaller that no rate is left: 1/(2κ) = "
            "λ_min(V)/(2B²)",
            "scale the features so that V is not that small, or give kappa",
        )
    return feature_bound**2 / smallest


def smallest_probability(pi_b: ArrayLike) -> float:
    """min_a q(a), which must be positive for any bound that divides by it.

    >>> smallest_probability([0.75, 0.25])
    0.25
    """
    q = np.asarray(pi_b)
    if q.min() == 0:
        raise InvalidArgument(
            "pi_b",
            pi_b,
            f"action {int(q.argmin())} has probability 0, so min q = 0 and the bound is infinite",
            "use theorem1_bound, which stays finite",
        )
    return float(q.min())
