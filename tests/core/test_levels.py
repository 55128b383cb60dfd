"""How the adaptive learner stays cheap: the exp, levels and weights of `understudy.kernels`."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

import understudy as us
from tests.support import formulas
from tests.support.strategies import Array, Integers, quick, seeds
from understudy.kernels import normalizer, weighted_entropy
from understudy.learners import CoverageAdaptive, LeveledScores


def bits(state: LeveledScores) -> list[Any]:
    return [np.asarray(part).tobytes() for part in dataclasses.astuple(state)]


# exp


EVERYWHERE = st.one_of(
    st.floats(normalizer.SMALLEST, normalizer.LARGEST),
    st.floats(-1.0, 1.0),
    st.integers(-2042, 2045).map(lambda n: n / 2 * math.log(2)),  # where n changes, and where r = 0
)


@quick
@forall(x=EVERYWHERE)
def test_exp_is_right_to_the_last_digit(x: float) -> None:
    """Within one unit in the last place of e^x, from e^-708 to e^709."""
    with mpmath.workdps(40):
        exact = mpmath.exp(mpmath.mpf(x))
        for found in (normalizer.exp_by_series(x), normalizer.exp_by_library(x)):
            assert abs(mpmath.mpf(found) - exact) < math.ulp(float(exact))


@pytest.mark.large
def test_exp_is_right_to_the_last_digit_in_loops() -> None:
    """Ten thousand at a time, as vectors, are the same bits as one by one."""
    x = np.random.default_rng(0).uniform(-720.0, 720.0, 10_000)
    weights = np.empty((1, len(x)))
    ones, zeros = np.ones(weights.shape), np.zeros(weights.shape)
    row: Integers = np.zeros(1, dtype=np.int64)
    weighted_entropy.weigh_all(ones, zeros, row, x[np.newaxis], zeros, weights)
    assert weights[0].tolist() == [normalizer.exp(value) for value in x]


@pytest.mark.parametrize("exp", [normalizer.exp_by_series, normalizer.exp_by_library])
def test_exp_has_ends(exp: Any) -> None:
    """0 where doubles would lose digits, infinite where they end, and 1 in the middle."""
    assert exp(0.0) == exp(-0.0) == exp(1e-300) == 1.0
    assert exp(normalizer.SMALLEST) > 0.0
    assert exp(normalizer.LARGEST) < math.inf
    with np.errstate(over="ignore", invalid="ignore"):  # the bits of what is not returned
        for beyond in (-708.1, -745.0, -1e4, -1e300, -math.inf):
            assert exp(beyond) == 0.0
        for beyond in (709.1, 720.0, 1e4, 1e300, math.inf):
            assert exp(beyond) == math.inf


# The level


class Groups:
    """Groups of any rates and sizes at their level, after which some of their S grow."""

    def __init__(self, rng: np.random.Generator, decades: float) -> None:
        size = int(rng.integers(1, 9))
        self.rates: Array = 10.0 ** rng.uniform(-decades, 0.0, size)
        self.log_prior: Array = np.log(rng.dirichlet(np.ones(size)) + 1e-9)
        self.references: Array = rng.uniform(-50.0, 50.0, size) / self.rates.max()
        self.totals: Array = np.exp(rng.uniform(0.0, 20.0, size))
        self.scales: Array = np.empty(size)
        self.level = self.sought(0.0)
        normalizer.rescale(*self.columns, self.level, self.scales)

    @property
    def columns(self) -> tuple[Array, Array, Array, Array]:
        return self.rates, self.log_prior, self.references, self.totals

    def sought(self, start: float) -> float:
        first = normalizer.seek(*self.columns, start, np.empty(len(self.rates)))
        return float(normalizer.seek(*self.columns, first, np.empty(len(self.rates))))

    def x(self, level: float) -> Array:
        return self.log_prior + np.log(self.totals) + self.rates * (self.references - level)

    def settle(self, fresh: bool = False) -> tuple[float, float]:
        fastest = float(self.rates.max())
        level, mass = normalizer.settle(*self.columns, self.level, self.scales, fastest, fresh)
        return float(level), float(mass)

    def assert_settled(self, level: float, mass: float) -> None:
        """At the root to the last digits, where all weights sum to 1, with the scales of it."""
        wanted = formulas.exact_root(self.rates, self.x(0.0))
        weights = np.exp(self.x(wanted))
        size = 1.0 + float((self.rates * np.abs(self.references)).max() + self.rates.max())
        slope = float(self.rates @ weights)
        rounding = 1e-13 * size + 4 * slope * math.ulp(wanted)
        assert abs(level - wanted) * slope <= rounding
        assert mass == pytest.approx(1.0, abs=2 * rounding)
        np.testing.assert_allclose(self.scales * self.totals, weights, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("decades", [1.0, 15.0])
@quick
@forall(seed=seeds, growth=st.floats(-14.0, 2.5), fresh=st.booleans())
def test_the_level_follows_growth_of_any_size(
    decades: float, seed: int, growth: float, fresh: bool
) -> None:
    """One S grows by a factor of 1 + 1e-14 to e^300, whatever the share it had."""
    rng = np.random.default_rng(seed)
    groups = Groups(rng, decades)
    groups.totals[rng.integers(len(groups.totals))] *= math.exp(10.0**growth)
    if fresh:  # scales that mean nothing, though all seems well with them
        groups.scales[:] = 1.0 / (groups.totals * len(groups.totals))
    groups.assert_settled(*groups.settle(fresh))


@quick
@forall(seed=seeds, growth=st.floats(-9.0, 0.5))
def test_a_step_leaves_less_than_its_cube(seed: int, growth: float) -> None:
    """In units of 1/η: hence three steps from 0.25 are enough, and one from 3e-5."""
    rng = np.random.default_rng(seed)
    groups = Groups(rng, decades=3.0)
    groups.totals[rng.integers(len(groups.totals))] *= math.exp(10.0**growth)
    fastest, reach, level = float(groups.rates.max()), [], groups.level
    for _ in range(2):
        step = float(normalizer.step_of(groups.rates, groups.totals, groups.scales))
        reach.append(fastest * abs(step))
        level += step
        normalizer.rescale(*groups.columns, level, groups.scales)
    rounding = 1e-12 * fastest / groups.rates.min()
    assert reach[0] > normalizer.NEARBY or reach[1] <= reach[0] ** 3 + rounding
    assert (
        (normalizer.NEARBY**3) ** 3
    ) <= normalizer.NOTHING_LEFT  # two steps, and the third is the last


# Any batching, and what a referee counts, where sums and levels are made again


def wild(logged: bool, horizon: int | None, name: str) -> tuple[CoverageAdaptive, us.Log]:
    """Two refreshes of rounds, rewards of 0 and 1 and between, and gains that overflow."""
    rng, n = np.random.default_rng(3), 2080
    q = np.array([0.2, 0.3, 0.5])
    actions: Integers = rng.choice(3, size=n, p=q)
    rewards = rng.choice([0.0, 0.0, 1.0, 0.3], size=n)
    if not logged:
        return us.coverage_adaptive(q, horizon=horizon, gain=name, multiplier=9.0), us.Log(
            actions, rewards
        )
    drifting = rng.uniform(0.05, 1.0, n)
    for early in (700, 1500):  # three of these are more than a weight may grow before it overflows
        few = slice(early, early + 3)
        actions[few], rewards[few], drifting[few] = 1, 1.0, 1e-100
    own: Any = {} if horizon is None else {"rates": [3.0, 0.2, 0.01], "prior": [0.5, 0.3, 0.2]}
    learner = us.coverage_adaptive(us.Logged(3), gain=name, **own)
    return learner, us.Log(actions, rewards, drifting)


CASES = {
    "grid, no horizon": (True, None, "implicit"),
    "grid, overflows": (True, 2000, "logarithmic"),
    "by action, no horizon": (False, None, "logarithmic"),
    "by action": (False, 2000, "implicit"),
}
CUTS = ([1, 2, 703], [1023, 1024, 1025, 2047], [512, 2048, 2079])


@pytest.mark.parametrize("case", CASES)
def test_any_batching_gives_the_same_bits(case: str) -> None:
    """All fields of the state and the whole trace, cut also next to refreshes and overflows."""
    learner, log = wild(*CASES[case])
    state, trace = learner.replay(learner.init(), log)
    for cuts in CUTS:
        part, traces = learner.init(), []
        for start, stop in zip([0, *cuts], [*cuts, len(log)], strict=True):
            part, seen = learner.replay(part, log[start:stop])
            traces.append(seen.probability)
        assert bits(part) == bits(state)
        assert np.concatenate(traces).tobytes() == trace.probability.tobytes()
    learner.validate(state)


@pytest.mark.parametrize("case", CASES)
def test_policies_and_earnings_are_those_of_the_trace(case: str) -> None:
    """The same bits in the policies, and their sum with the rewards in what a referee counts."""
    learner, log = wild(*CASES[case])
    state, trace = learner.replay(learner.init(), log)
    after, table = learner.policies(learner.init(), log)
    assert bits(after) == bits(state)
    assert table[np.arange(len(log)), log.actions].tobytes() == trace.probability.tobytes()
    starts: Integers = np.array([0, 5, 701, 1024, 1500])
    rewards = np.random.default_rng(4).random((5, 3))
    after, earned = learner.expected_reward(learner.init(), log, rewards, starts)
    row = np.searchsorted(starts, np.arange(len(log)), side="right") - 1
    assert bits(after) == bits(state)
    assert earned == pytest.approx(float((table * rewards[row]).sum()), rel=1e-11)


@pytest.mark.parametrize("gain", ["implicit", "logarithmic"])
@pytest.mark.parametrize("rate", [1e-9, 0.03, 5.0])
def test_the_kernel_computes_the_formula_of_the_estimators(gain: str, rate: float) -> None:
    rng = np.random.default_rng(0)
    R, q = rng.random(200), rng.uniform(1e-6, 1.0, 200)
    learner = us.coverage_adaptive([0.5, 0.5], rates=[rate, rate], prior=[0.5, 0.5], gain=gain)
    formula = learner.gain_formula
    assert formula is not None
    logarithmic = gain == "logarithmic"
    found = [weighted_entropy.gain_of(logarithmic, *pair, rate) for pair in zip(R, q, strict=True)]
    np.testing.assert_allclose(found, formula(R, q, formula.rates[0]), rtol=1e-14)
    estimator = (
        us.estimators.Logarithmic([0.5, 0.5], rate)  # type: ignore[arg-type] # converted
        if logarithmic
        else us.estimators.ImplicitExploration([0.5, 0.5], rate / 2)  # type: ignore[arg-type]
    )
    t = np.arange(1, 201)
    np.testing.assert_array_equal(estimator.gain(R, q, t), formula(R, q, formula.rates[0]))


@quick
@forall(seed=seeds, size=st.integers(1, 12))
def test_the_root_cannot_fail(seed: int, size: int) -> None:
    """Rates over twelve decades, logarithms from −10⁶ to 10⁶: right to the last digits."""
    rng = np.random.default_rng(seed)
    rates = 10.0 ** rng.uniform(-9, 3, size)
    x = rng.choice([-1.0, 1.0], size) * 10.0 ** rng.uniform(-6, 6, size)
    found, wanted = normalizer.root(rates, x), formulas.exact_root(rates, x)
    assert math.isfinite(found)
    # An error of Λ counts by what it does to the weights: relative to the x it is made from.
    size_of = max(1.0, float(np.abs(x).max()), float((rates * abs(wanted)).max()))
    slope = float((rates * np.exp(np.minimum(0.0, x - rates * wanted))).sum())
    assert abs(found - wanted) * slope <= 1e-14 * size_of + 1e-13
