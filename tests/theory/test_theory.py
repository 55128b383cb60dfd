"""Coverage, learning rates and bounds: against the formulas as written, and against each other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.enumeration import ROUNDING, assert_at_most
from tests.support.strategies import (
    Array,
    LinearGame,
    behaviors,
    linear_games,
    policies,
    quick,
    unit_numbers,
)
from understudy import theory
from understudy.errors import InadmissibleRate

# Coverage, rates and bounds


@quick
@given(data=st.data(), behavior=behaviors())
def test_coverage(data: st.DataObject, behavior: Array) -> None:
    """Equation (coverage_def): C = Σ_a π*(a)/q(a), and C(π_B; π_B) = K if π_B plays all."""
    assert us.coverage(behavior, behavior) == pytest.approx(np.count_nonzero(behavior))
    seen = behavior[behavior > 0] / behavior.sum()
    if len(seen) >= 2:
        comparator = data.draw(policies(len(seen)))
        wanted = sum(p / q for p, q in zip(comparator, seen, strict=True))
        assert us.coverage(comparator, seen) == pytest.approx(wanted, rel=1e-12)
        assert wanted >= 1 - ROUNDING


@quick
@given(game=linear_games(), data=st.data())
def test_feature_coverage(game: LinearGame, data: st.DataObject) -> None:
    """Equation (ccoverage): C_φ = Tr[V(π_B)⁻¹ V(π*)], and d for π* = π_B; V and κ as defined."""
    d = len(game.V)
    assert us.feature_coverage(game.V, game.V) == pytest.approx(d, rel=1e-9)
    rows = [data.draw(policies(game.n_actions)) for _ in game.features]
    V = game.covariance(np.array(rows))
    wanted = np.trace(np.linalg.solve(game.V, V))
    assert us.feature_coverage(V, game.V) == pytest.approx(wanted, rel=1e-8)
    found = theory.feature_covariance(game.behavior, game.shown, game.probabilities)
    np.testing.assert_allclose(found, game.shown_V, rtol=1e-12, atol=1e-14)
    kappa = theory.largest_leverage(game.shown, game.shown_V)
    assert kappa == pytest.approx(game.kappa, rel=1e-8)
    assert kappa >= d * (1 - ROUNDING)


@quick
@given(data=st.data(), behavior=behaviors(zeros=False))
def test_coverage_is_a_feature_coverage(data: st.DataObject, behavior: Array) -> None:
    """With φ(x, a) = e_a, V(π) = diag(π) and C_φ(π*; π_B) = C(π*; π_B)."""
    comparator = data.draw(policies(len(behavior)))
    found = us.feature_coverage(np.diag(comparator), np.diag(behavior))
    assert found == pytest.approx(us.coverage(comparator, behavior), rel=1e-9)


@quick
@given(game=linear_games())
def test_admissible_rates(game: LinearGame) -> None:
    """1/(2κ) keeps |η r̂| ≤ ½ and is at least Theorem 3's λ_min(V)/(2 sup‖φ‖²)."""
    bound = float(np.linalg.norm(game.features, axis=2).max())
    smallest = float(np.linalg.eigvalsh(game.V).min())
    largest = theory.largest_lin_prod_rate(game.kappa)
    assert largest == pytest.approx(1 / (2 * game.kappa), rel=1e-12)
    assert largest >= smallest / (2 * bound**2) * (1 - ROUNDING)
    kappa = theory.kappa_from_feature_bound(game.shown_V, bound)
    assert kappa == pytest.approx(bound**2 / smallest, rel=1e-9)
    phi = game.features.reshape(-1, len(game.V))
    r_hat = phi @ np.linalg.solve(game.V, phi.T)
    assert largest * np.abs(r_hat).max() <= 0.5 * (1 + ROUNDING)
    with pytest.raises(InadmissibleRate) as refusal:
        game.learner(largest * 1.001)
    assert refusal.value.largest == pytest.approx(largest, rel=1e-9)


@quick
@given(data=st.data(), behavior=behaviors(), eta=st.floats(1e-3, 50.0), n=st.integers(1, 10**6))
def test_bounds_of_known_behavior(data: st.DataObject, behavior: Array, eta: float, n: int) -> None:
    """Equation (bound_full) as it is written; Prod's bound as written, and never above it."""
    comparator = data.draw(policies(len(behavior)))
    shares = data.draw(st.lists(unit_numbers, min_size=len(behavior), max_size=len(behavior)))
    totals = n * np.array(shares)
    ix = prod = math.log(len(behavior)) / eta
    for p, q, total in zip(comparator, behavior, totals, strict=True):
        ix += eta / 2 * p * total / (q + eta / 2)
        prod += p * total * (1 - (q / eta * math.log1p(eta / q) if q else 0.0))
    arguments: Any = {"horizon": n, "eta": eta, "total_rewards": totals}
    assert theory.theorem1_bound(comparator, behavior, **arguments) == pytest.approx(ix, rel=1e-9)
    assert theory.prod_bound(comparator, behavior, **arguments) == pytest.approx(prod, rel=1e-9)
    assert_at_most(prod, ix)


@quick
@given(data=st.data(), behavior=behaviors(zeros=False), n=st.integers(1, 10**6))
def test_simplified_bounds_dominate(data: st.DataObject, behavior: Array, n: int) -> None:
    """Theorem 1: at their own rates the simplified forms are above the full one."""
    K, comparator = len(behavior), data.draw(policies(len(behavior)))
    ratio = us.coverage(comparator, behavior)
    for target, simplified in (
        (None, theory.theorem1_uniform_bound(K, n, ratio)),
        (ratio, theory.theorem1_tuned_bound(K, n, ratio)),
    ):
        eta = theory.exp3_ix_rate(K, n, target)
        full = theory.theorem1_bound(comparator, behavior, horizon=n, eta=eta)
        assert_at_most(full, simplified)


@quick
@given(K=st.integers(2, 1000), n=st.integers(1, 10**7), C=st.floats(1.0, 1e4))
def test_simplified_bounds_as_written(K: int, n: int, C: float) -> None:
    """Theorems 1 and 3: √(n log K)(1 + C/2), √(2 C n log K); √(n log K)(1 + C), 2√(C n log K).

    Each is the bound that is linear in η and 1/η at its rate; the second and the fourth rates
    are where that bound is smallest.
    """
    log_K = math.log(K)
    uniform, tuned = math.sqrt(log_K / n), math.sqrt(2 * log_K / (C * n))
    linear = math.sqrt(log_K / (C * n))
    assert theory.exp3_ix_rate(K, n) == pytest.approx(uniform, rel=1e-12)
    assert theory.exp3_ix_rate(K, n, C) == pytest.approx(tuned, rel=1e-12)
    assert theory.lin_prod_rate(K, n) == pytest.approx(uniform, rel=1e-12)
    assert theory.lin_prod_rate(K, n, C) == pytest.approx(linear, rel=1e-12)
    for found, eta, slope in (
        (theory.theorem1_uniform_bound(K, n, C), uniform, C * n / 2),
        (theory.theorem1_tuned_bound(K, n, C), tuned, C * n / 2),
        (theory.lin_prod_uniform_bound(K, n, C), uniform, C * n),
        (theory.lin_prod_tuned_bound(K, n, C), linear, C * n),
    ):
        assert found == pytest.approx(log_K / eta + slope * eta, rel=1e-12)
    for eta in (uniform, linear, 0.37):
        for c in (1.0, 0.7726):
            found = theory.lin_prod_bound(K, horizon=n, eta=eta, coverage=C, curvature=c)
            assert found == pytest.approx(log_K / eta + c * eta * n * C, rel=1e-12)
        paper = theory.lin_prod_bound(K, horizon=n, eta=eta, coverage=C)
        assert paper == pytest.approx(log_K / eta + eta * n * C, rel=1e-12)


@pytest.mark.parametrize("behavior", [[0.5, 0.5], [0.2, 0.3, 0.5], [0.05] * 20])
def test_the_printed_rate(behavior: list[float]) -> None:
    """Theorem 1 prints √(log K/(C n)), which gives 1.5 √(C n log K); √(2 log K/(C n)) gives √2.

    With η far below q the full bound is the simplified one: n = 10¹² leaves a relative 10⁻⁵.
    """
    K, n, ratio = len(behavior), 10**12, us.coverage(0, behavior)
    printed = math.sqrt(math.log(K) / (ratio * n))
    scale = math.sqrt(ratio * n * math.log(K))
    for eta, factor in ((printed, 1.5), (theory.exp3_ix_rate(K, n, ratio), math.sqrt(2))):
        bound = theory.theorem1_bound(0, behavior, horizon=n, eta=eta)
        assert factor * (1 - 1e-5) <= bound / scale <= factor


@quick
@given(behavior=behaviors(zeros=False), fraction=st.floats(0.01, 1.0), n=st.integers(1, 10**6))
def test_bounds_of_exp3(behavior: Array, fraction: float, n: int) -> None:
    """Section 3.1: log K/η + η n/min q at the most, √(n/min q) up to constants; η ≤ min q."""
    K, smallest = len(behavior), float(behavior.min())
    eta = fraction * smallest
    worst = math.log(K) / eta + eta * n / smallest
    assert theory.exp3_bound(behavior, horizon=n, eta=eta) == pytest.approx(worst, rel=1e-12)
    shares = np.linspace(1, 2, K) / np.linspace(1, 2, K).sum()
    wanted = math.log(K) / eta + eta * sum(n * s / q for s, q in zip(shares, behavior, strict=True))
    found = theory.exp3_bound(behavior, horizon=n, eta=eta, total_probabilities=n * shares)
    assert found == pytest.approx(wanted, rel=1e-9)
    rate = theory.exp3_worst_case_rate(behavior, horizon=n)
    balanced = math.log(K) / rate + rate * n / smallest
    assert theory.exp3_worst_case_bound(behavior, horizon=n) == pytest.approx(balanced, rel=1e-9)
    assert_at_most(balanced, worst)
    assert theory.exp3_order(behavior, horizon=n) == pytest.approx(math.sqrt(n / smallest))
    assert theory.exp3_condition(smallest, behavior)
    with pytest.raises(InadmissibleRate):
        theory.exp3_bound(behavior, horizon=n, eta=smallest * 1.001)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 100, 1000])
@pytest.mark.parametrize("K", [2, 3, 10, 1000])
def test_theorem2_bound_as_written(K: int, n: int) -> None:
    """Appendix B's last but one display, with 2δ_t for the two sides of Hoeffding's inequality."""
    eta, ratio = 0.3, 7.0
    deltas = [2 / (t - 1) ** 2 for t in range(2, n + 1)]
    widths = [math.sqrt(math.log(K * (t - 1) ** 2) / (2 * t - 2)) for t in range(2, n + 1)]
    wanted = math.log(K) / eta + (1 + 2 / eta) * sum(deltas)
    wanted += (eta * n / 2 + 2 * (1 + sum(widths))) * ratio
    found = theory.theorem2_bound(K, horizon=n, eta=eta, coverage=ratio)
    assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10, 30, 100, 1000, 10_000, 1_000_000])
@pytest.mark.parametrize("K", [2, 3, 10, 100, 10_000])
def test_theorem2_simplified(K: int, n: int) -> None:
    """Appendix B's last display, with 4√(n log(Kn)), is above the sums that it stands for."""
    eta = math.sqrt(math.log(K) / n)
    for ratio in (1.0, 2.0, 10.0, 1e3, 1e6):
        full = theory.theorem2_bound(K, horizon=n, eta=eta, coverage=ratio)
        simplified = theory.theorem2_simplified_bound(K, n, ratio)
        assert full <= simplified
        width = 4 * math.sqrt(n * math.log(K * n))
        wanted = (16 + math.log(K)) / eta + (eta * n / 2 + width) * ratio + 2
        assert simplified == pytest.approx(wanted, rel=1e-12)


def test_the_printed_constant_of_theorem2() -> None:
    """Appendix B's last display has 2√(n log(Kn)) for 2 Σ ε_t, which is too small.

    At K = 100 and n = 10⁶ they are 8584 and 14983.
    """
    K, n, eta = 100, 10**6, 0.1
    slope = theory.theorem2_bound(K, horizon=n, eta=eta, coverage=2.0)
    slope -= theory.theorem2_bound(K, horizon=n, eta=eta, coverage=1.0)
    assert round(slope - eta * n / 2) == 14983
    assert round(2 * math.sqrt(n * math.log(K * n))) == 8584
