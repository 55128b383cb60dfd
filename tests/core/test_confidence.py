"""The bounds of `understudy.kernels.confidence`: by kl against sixty digits, and by halving."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from tests.support import formulas
from tests.support.kernel_arrays import kernel_view
from tests.support.strategies import quick
from understudy.kernels import confidence

TIGHT = 1e-12  # relative: how far above the root the bound may be
MOST_COUNTED = 2.0**53

frequencies = st.one_of(
    st.floats(0.0, 1.0, allow_subnormal=False),  # a share of at most 2⁵³ rounds is none
    st.floats(-15.0, 0.0).map(lambda power: 10.0**power),
    st.floats(-15.0, 0.0).map(lambda power: 1.0 - 10.0**power),
    st.sampled_from([0.0, 1.0, 1e-15, 1e-200, 1.0 - 2.0**-53]),
)
counts = st.one_of(
    st.floats(0.0, 53.0).map(lambda power: float(int(2.0**power))),
    st.sampled_from([1.0, 2.0, MOST_COUNTED]),
)
budgets = st.floats(-1.0, 2.6).map(lambda power: 10.0**power)


@quick
@forall(frequency=frequencies, count=counts, budget=budgets)
def test_at_most_the_last_digits_above_the_root_and_never_below(
    frequency: float, count: float, budget: float
) -> None:
    found = confidence.kl_upper(frequency, count, budget)
    with mpmath.workdps(60):
        exact = formulas.exact_upper(frequency, count, budget) if frequency < 1 else mpmath.mpf(1)
        assert exact <= mpmath.mpf(found) or found == 1.0
        assert mpmath.mpf(found) <= exact * (1 + TIGHT)


@pytest.mark.large
@pytest.mark.parametrize("step", [9, pytest.param(4, marks=pytest.mark.full)])
def test_at_most_the_last_digits_above_the_root_on_a_grid(step: int) -> None:
    powers = 10.0 ** np.arange(-15.0, 0.0)
    for frequency in [*powers, 0.3, 0.5, 0.7, *(1.0 - powers[1:])]:
        for count in 2.0 ** np.arange(0, 54, step):
            found = confidence.kl_upper(float(frequency), float(count), 12.5)
            with mpmath.workdps(60):
                exact = formulas.exact_upper(float(frequency), float(count), 12.5)
                assert exact <= mpmath.mpf(found) or found == 1.0
                assert mpmath.mpf(found) <= exact * (1 + TIGHT)


@quick
@forall(frequency=frequencies, count=st.integers(1, 10**6), budget=budgets)
def test_agrees_with_plain_halving(frequency: float, count: int, budget: float) -> None:
    """As far as halving can see: kl itself is a difference there, of about 1e-16 of its terms."""
    found = confidence.kl_upper(frequency, float(count), budget)
    wanted = formulas.kl_upper(frequency, float(count), budget)
    assert found == pytest.approx(wanted, rel=1e-7, abs=1e-9)
    assert frequency <= found <= 1.0


def test_edges() -> None:
    """Nothing counted, never seen, always seen, and a budget of nothing."""
    assert confidence.kl_upper(0.0, 0.0, 3.0) == 1.0
    assert confidence.kl_upper(1.0, 7.0, 3.0) == 1.0
    assert confidence.kl_upper(0.0, 7.0, 3.0) == pytest.approx(-math.expm1(-3 / 7), rel=1e-15)
    assert confidence.kl_upper(0.0, MOST_COUNTED, 3.0) == pytest.approx(3 * 2.0**-53, rel=1e-15)
    assert confidence.kl_upper(0.4, 7.0, 0.0) == pytest.approx(0.4, rel=1e-15)
    assert confidence.kl_upper(0.4, 1.0, 1e6) == 1.0


@quick
@forall(frequency=st.floats(1e-15, 1.0 - 2.0**-53), budget=st.floats(-20.0, 3.0))
def test_newton_begins_above_the_root_and_needs_few_steps(frequency: float, budget: float) -> None:
    """`MOST_STEPS` of them are never made: from the first bound, six always were enough."""
    q, rest, c = frequency, 1.0 - frequency, 10.0**budget
    d = confidence.largest_distance(q, c)
    if d >= rest:
        return
    with mpmath.workdps(60):  # above the root but for the rounding of d itself
        assert q + mpmath.mpf(d) * (1 + 2.0**-50) >= formulas.exact_upper(q, 1.0, c)
    for _ in range(6):
        excess = q * confidence.beyond_log(d / q) + rest * confidence.beyond_log(-d / rest) - c
        d -= excess * (q + d) * (rest - d) / d
    assert q + d <= confidence.kl_upper(q, 1.0, c) <= (q + d) * (1 + TIGHT)


@quick
@forall(power=st.floats(-20.0, 1.0), sign=st.sampled_from([-0.099, 1.0]))
def test_beyond_log(power: float, sign: float) -> None:
    """x − log(1 + x) to the last digits, also where the two are nearly the same."""
    x = sign * 10.0**power
    with mpmath.workdps(60):
        exact = mpmath.mpf(x) - mpmath.log1p(mpmath.mpf(x))
        assert abs(confidence.beyond_log(x) - exact) <= 2e-14 * exact


def test_many_at_once() -> None:
    rng = np.random.default_rng(0)
    frequency, count, budget = rng.random(50), rng.integers(0, 100, 50), 10 * rng.random(50)
    found = np.empty(50)
    confidence.kl_uppers(kernel_view(frequency), kernel_view(count), kernel_view(budget), found)
    each = zip(frequency.tolist(), count.tolist(), budget.tolist(), strict=True)
    assert found.tolist() == [confidence.kl_upper(q, float(m), b) for q, m, b in each]


@pytest.mark.parametrize("q", [0.03, 0.4, 0.97])
def test_upper_confidence_bounds_fail_in_no_round_as_often_as_promised(q: float) -> None:
    """P(∃ t ≤ 300: u_t(a) < q(a)) ≤ δ₁/K, exactly, over all counts."""
    K, delta, alive, failed = 2, 0.8, np.array([1.0]), 0.0  # P(count = c, no failure yet) before t
    for t in range(1, 301):
        u = [
            confidence.kl_upper(
                c / max(t - 1, 1), float(t - 1), math.log(K * t * (t + 1) / (delta / 4))
            )
            for c in range(t)
        ]
        fails = np.array(u) < q
        failed += alive[fails].sum()
        alive = np.where(fails, 0.0, alive)
        alive = np.append(alive * (1 - q), 0.0) + np.append(0.0, alive * q)
    assert failed <= delta / 4 / K
