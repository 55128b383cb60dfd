"""The roots of mixtures of bets (`understudy.kernels.certificates`)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

import understudy as us
from tests.support import formulas
from tests.support.strategies import quick, unit_numbers
from understudy.kernels import certificates


@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1.0, 1e8, 1e100])
@pytest.mark.parametrize("x", [1e-100, 1e-3, 1.0, 1e100])
def test_roots_are_found_for_any_grid(scale: float, x: float) -> None:
    """One λ has a root in closed form: m = (exp((S − log(1/δ))/n) − 1)/λ."""
    lambdas, n, log_threshold = np.array([scale]), 7, math.log(40)
    S = np.array([n * math.log1p(scale * x)])
    m = math.expm1(min(700.0, (S[0] - log_threshold) / n)) / scale
    found = certificates.root(S, lambdas, n, log_threshold, 0.0)
    assert found == pytest.approx(min(1.0, max(0.0, m)), rel=1e-9)


@quick
@forall(
    x=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=30),
    mu=st.lists(unit_numbers, min_size=30, max_size=30),
    delta=st.floats(0.001, 0.9),
)
def test_a_wrong_bound_means_a_large_martingale(
    x: list[float], mu: list[float], delta: float
) -> None:
    """Jensen: if the root is above the mean μ̄, then Σ_i ρ_i Π_t (1+λ_i x_t)/(1+λ_i μ_t) > 1/δ."""
    lambdas = us.Certificate(behavior=[0.5, 0.5]).lambdas
    S = np.log1p(np.outer(x, lambdas)).sum(axis=0)
    n, mean = len(x), float(np.mean(mu[: len(x)]))
    m = certificates.root(S, lambdas, n, -math.log(delta), 0.0)
    own = S - np.log1p(np.outer(mu[:n], lambdas)).sum(axis=0)
    martingale = np.exp(own).mean()
    if m > mean + 1e-12:
        assert martingale > (1 - 1e-9) / delta
    at_mean = np.exp(formulas.log_mixture(S, lambdas, n, mean))
    assert at_mean <= martingale * (1 + 1e-9)
