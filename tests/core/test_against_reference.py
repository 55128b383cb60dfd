"""The library's policies are those of the paper's algorithms, to 1e-10.

`reference.py` multiplies weights of fifty digits in plain loops; the library adds logarithms of
weights in NumPy. Rates and γ_t are worked out here again, from the statements of the theorems.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support import reference
from tests.support.strategies import (
    Array,
    Integers,
    LinearGame,
    behaviors,
    linear_games,
    linear_logs,
    logs,
    quick,
    rates,
)
from understudy.learners import ExponentialWeights, Learner, LinProd, LinProdCompact

TOLERANCE = 1e-10

Behavior = Array | us.Logged
Recipe = Callable[..., ExponentialWeights]
KNOWN: dict[str, Recipe] = {"exp3": us.exp3, "exp3_ix": us.exp3_ix, "prod": us.prod}
horizons = st.integers(1, 10_000)


def expected(name: str, behavior: Behavior, eta: float, log: us.Log) -> Array:
    """The reference's policies for a recipe with its default γ."""
    n_actions = behavior.n_actions if isinstance(behavior, us.Logged) else len(behavior)
    if name == "exp3_ix_unknown":
        return reference.exp3_ix_unknown(n_actions, eta, log.actions, log.rewards)
    q = played_probabilities(behavior, log)
    if name == "exp3_ix":
        gammas = [eta / 2] * len(log)
        return reference.exp3_ix(n_actions, eta, log.actions, log.rewards, q, gammas=gammas)
    algorithm = {"exp3": reference.exp3, "prod": reference.prod}[name]
    return algorithm(n_actions, eta, log.actions, log.rewards, q)


def played_probabilities(behavior: Behavior, log: us.Log) -> Array:
    """π_B(A^B_t)."""
    if isinstance(behavior, us.Logged):
        assert log.propensities is not None
        return log.propensities
    return behavior[log.actions]


def assert_agrees(
    learner: Learner[Any], log: us.Log, wanted: Array, last: Array | None = None
) -> None:
    """π_1 .. π_{n+1} by every way of asking: at once, in two parts, along a replay.

    `last` is the context of round n+1, for learners that have contexts.
    """
    after, found = learner.policies(learner.init(), log)
    np.testing.assert_allclose(found, wanted[:-1], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(learner.policy(after, last), wanted[-1], rtol=0, atol=TOLERANCE)
    half = len(log) // 2
    middle, _ = learner.replay(learner.init(), log[:half])
    _, rest = learner.policies(middle, log[half:])
    np.testing.assert_allclose(rest, wanted[half:-1], rtol=0, atol=TOLERANCE)
    _, trace = learner.replay(learner.init(), log)
    played = wanted[np.arange(len(log)), log.actions]
    np.testing.assert_allclose(trace.probability, played, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", KNOWN)
@quick
@given(data=st.data(), behavior=behaviors(), eta=rates)
def test_known_behavior(name: str, data: st.DataObject, behavior: Array, eta: float) -> None:
    """Algorithm 1 with γ = 0 and γ = η/2, and Prod."""
    learner = KNOWN[name](behavior, eta=eta)
    log = data.draw(logs(learner))
    assert_agrees(learner, log, expected(name, behavior, eta, log))


@pytest.mark.parametrize("name", KNOWN)
@quick
@given(data=st.data(), n_actions=st.integers(2, 5), eta=rates)
def test_logged_propensities(name: str, data: st.DataObject, n_actions: int, eta: float) -> None:
    """Algorithm 1 and Prod where each event carries its own π_B(A^B_t)."""
    behavior = us.Logged(n_actions)
    learner = KNOWN[name](behavior, eta=eta)
    log = data.draw(logs(learner))
    assert_agrees(learner, log, expected(name, behavior, eta, log))


@quick
@given(data=st.data(), n_actions=st.integers(2, 5), eta=rates)
def test_unknown_behavior(data: st.DataObject, n_actions: int, eta: float) -> None:
    """Section 3.2, with the γ_t of Theorem 2."""
    learner = us.exp3_ix_unknown(n_actions, eta=eta)
    log = data.draw(logs(learner))
    wanted = reference.exp3_ix_unknown(n_actions, eta, log.actions, log.rewards)
    assert_agrees(learner, log, wanted)


def falling(t: int) -> float:
    """A γ_t that changes with t, and is 0 nowhere."""
    return 0.7 / math.sqrt(t) + 0.01


GAMMAS: dict[str, tuple[Any, list[float]]] = {
    "number": (0.3, [0.3] * 40),
    "array": (np.linspace(0.9, 0.1, 40), list(np.linspace(0.9, 0.1, 40))),
    "list": ([falling(t) for t in range(1, 41)], [falling(t) for t in range(1, 41)]),
    "function": (falling, [falling(t) for t in range(1, 41)]),
}


@pytest.mark.parametrize("form", GAMMAS)
@quick
@given(data=st.data(), behavior=behaviors(), eta=rates)
def test_gamma_of_known_behavior(
    form: str, data: st.DataObject, behavior: Array, eta: float
) -> None:
    """Algorithm 1's input (γ_t): γ_1 is the first entry of an array, f(1) of a function."""
    gamma, values = GAMMAS[form]
    learner = us.exp3_ix(behavior, eta=eta, gamma=gamma)
    log = data.draw(logs(learner))
    q = behavior[log.actions]
    wanted = reference.exp3_ix(
        len(behavior), eta, log.actions, log.rewards, q, gammas=values[: len(log)]
    )
    assert_agrees(learner, log, wanted)


@pytest.mark.parametrize("form", GAMMAS)
@quick
@given(data=st.data(), n_actions=st.integers(2, 5), eta=rates)
def test_gamma_of_unknown_behavior(
    form: str, data: st.DataObject, n_actions: int, eta: float
) -> None:
    """Equation (pit) with a (γ_t) that is not Theorem 2's."""
    gamma, values = GAMMAS[form]
    learner = us.exp3_ix_unknown(n_actions, eta=eta, gamma=gamma)
    log = data.draw(logs(learner))
    wanted = reference.exp3_ix_unknown(n_actions, eta, log.actions, log.rewards, values[: len(log)])
    assert_agrees(learner, log, wanted)


@pytest.mark.parametrize("name", KNOWN)
@quick
@given(data=st.data(), behavior=behaviors(), horizon=horizons)
def test_uniform_tuning(name: str, data: st.DataObject, behavior: Array, horizon: int) -> None:
    """Theorem 1's first rate, η = √(log K / n)."""
    learner = KNOWN[name](behavior, horizon=horizon)
    log = data.draw(logs(learner, max_rounds=20))
    eta = math.sqrt(math.log(len(behavior)) / horizon)
    assert_agrees(learner, log, expected(name, behavior, eta, log))


@quick
@given(data=st.data(), n_actions=st.integers(2, 5), horizon=horizons)
def test_uniform_tuning_of_unknown_behavior(
    data: st.DataObject, n_actions: int, horizon: int
) -> None:
    """Theorem 2's rate, η = √(log K / n), in the weights and in γ_t."""
    learner = us.exp3_ix_unknown(n_actions, horizon=horizon)
    log = data.draw(logs(learner, max_rounds=20))
    eta = math.sqrt(math.log(n_actions) / horizon)
    wanted = reference.exp3_ix_unknown(n_actions, eta, log.actions, log.rewards)
    assert_agrees(learner, log, wanted)


@pytest.mark.parametrize("name", ["exp3_ix", "prod"])
@quick
@given(
    data=st.data(),
    behavior=behaviors(),
    horizon=horizons,
    coverage=st.floats(1.0, 1e4),
    logged=st.booleans(),
)
def test_coverage_tuning(
    name: str,
    *,
    data: st.DataObject,
    behavior: Array,
    horizon: int,
    coverage: float,
    logged: bool,
) -> None:
    """Theorem 1's second bound, at the rate that gives it: η = √(2 log K / (C n))."""
    known: Behavior = us.Logged(len(behavior)) if logged else behavior
    learner = KNOWN[name](known, horizon=horizon, coverage=coverage)
    log = data.draw(logs(learner, max_rounds=20))
    eta = math.sqrt(2 * math.log(len(behavior)) / (coverage * horizon))
    assert_agrees(learner, log, expected(name, known, eta, log))


@pytest.mark.parametrize("name", [*KNOWN, "exp3_ix_unknown"])
def test_many_rounds(name: str) -> None:
    """Nothing drifts in three thousand rounds that leave no action far ahead."""
    n, behavior, eta = 3000, np.array([0.3, 0.25, 0.25, 0.2]), 0.02
    rng = np.random.default_rng(1)
    log = us.Log(actions=rng.choice(4, size=n, p=behavior), rewards=rng.random(n))
    unknown = us.exp3_ix_unknown(4, eta=eta)
    learner = unknown if name == "exp3_ix_unknown" else KNOWN[name](behavior, eta=eta)
    wanted = expected(name, behavior, eta, log)
    assert wanted.min() > 1e-3  # or it would be a comparison of zeros and ones
    assert_agrees(learner, log, wanted)


def assert_lin_prod_agrees(
    learner: LinProd, game: LinearGame, eta: float, data: st.DataObject
) -> None:
    """Algorithm 2 on φ(x, a) written out in full, disjoint or not."""
    contexts, log = data.draw(linear_logs(game))
    features = game.features[contexts]
    wanted = reference.lin_prod(game.V, eta, log.actions, log.rewards, features)
    assert_agrees(learner, log, wanted, game.shown[contexts[-1]])


@quick
@given(data=st.data(), game=linear_games(), fraction=st.floats(0.01, 1.0))
def test_lin_prod(data: st.DataObject, game: LinearGame, fraction: float) -> None:
    """Algorithm 2 at any admissible rate, for shared and for disjoint features."""
    eta = fraction * game.largest_rate
    assert_lin_prod_agrees(game.learner(eta), game, eta, data)


@pytest.mark.parametrize("tuned", [False, True])
@quick
@given(
    data=st.data(),
    game=linear_games(),
    horizon=st.integers(1, 100_000),
    coverage=st.floats(0.1, 100.0),
)
def test_lin_prod_tunings(
    tuned: bool, data: st.DataObject, game: LinearGame, horizon: int, coverage: float
) -> None:
    """Theorem 3's rates, √(log K / n) and √(log K / (C_φ n)), neither above 1/(2κ)."""
    kappa = game.kappa * 1.5
    learner = us.lin_prod(
        game.shown_V,
        n_actions=game.n_actions,
        horizon=horizon,
        kappa=kappa,
        coverage=coverage if tuned else None,
    )
    wanted = math.sqrt(math.log(game.n_actions) / (horizon * (coverage if tuned else 1.0)))
    assert learner.capped == (wanted > 1 / (2 * kappa))
    assert_lin_prod_agrees(learner, game, min(wanted, 1 / (2 * kappa)), data)


@quick
@given(data=st.data(), game=linear_games())
def test_lin_prod_with_a_feature_bound(data: st.DataObject, game: LinearGame) -> None:
    """Theorem 3's own condition, λ_min(V) ≥ 2η sup‖φ‖², met with equality by a capped rate."""
    bound = float(np.linalg.norm(game.features, axis=2).max())
    learner = us.lin_prod(
        game.shown_V, n_actions=game.n_actions, horizon=1, feature_bound=bound * (1 + 1e-12)
    )
    smallest = float(np.linalg.eigvalsh(game.V).min())
    eta = min(math.sqrt(math.log(game.n_actions)), smallest / (2 * bound**2))
    assert_lin_prod_agrees(learner, game, eta, data)


def test_lin_prod_after_many_rounds() -> None:
    """A hundred and fifty rounds of Algorithm 2 at the largest admissible rate."""
    rng = np.random.default_rng(2)
    features = rng.normal(size=(5, 3, 3))
    uniform = np.full((5, 3), 1 / 3)
    game = LinearGame(features, np.full(5, 0.2), uniform, np.zeros((1, 3)))
    contexts, actions = rng.integers(5, size=151), rng.integers(3, size=150)
    log = game.log(contexts[:-1], actions, rng.random(150))
    eta = game.largest_rate
    wanted = reference.lin_prod(game.V, eta, actions, log.rewards, features[contexts])
    assert_agrees(game.learner(eta), log, wanted, features[contexts[-1]])


def assert_compact_agrees(learner: LinProdCompact, game: LinearGame, data: st.DataObject) -> None:
    """The two sums give what one exponential weight per round gives."""
    contexts, log = data.draw(linear_logs(game))
    etas = learner.rates(np.arange(1, len(log) + 2))
    features = game.features[contexts]
    columns = (log.actions, log.rewards, features)
    wanted = reference.lin_prod_compact(game.V, etas, *columns, curvature=learner.curvature)
    assert_agrees(learner, log, wanted, game.shown[contexts[-1]])


curvatures = st.sampled_from([0.7726, 0.9, 1.0])


@quick
@given(data=st.data(), game=linear_games(), fraction=st.floats(0.01, 1.0), curvature=curvatures)
def test_lin_prod_compact(
    data: st.DataObject, game: LinearGame, fraction: float, curvature: float
) -> None:
    """At any admissible rate, for shared features and for disjoint ones, on φ written out."""
    eta = fraction * game.largest_rate
    learner = replace(game.play(us.lin_prod_compact, eta), curvature=curvature)
    assert learner.rates(np.array([1, 99])).tolist() == [eta, eta]
    assert_compact_agrees(learner, game, data)


@quick
@given(data=st.data(), game=linear_games(), first=st.floats(0.1, 3.0))
def test_lin_prod_compact_with_a_falling_rate(
    data: st.DataObject, game: LinearGame, first: float
) -> None:
    """η_t = min(1/(2κ), c/√t'): each gain keeps the rate of its round, all are weighed by η_t."""
    learner = game.falling(first)
    largest = 1 / (2 * learner.kappa)
    wanted = [min(largest, first * game.largest_rate / math.sqrt(t)) for t in range(1, 14)]
    np.testing.assert_allclose(learner.rates(np.arange(1, 14)), wanted, rtol=1e-12)
    assert_compact_agrees(learner, game, data)


@pytest.mark.parametrize("coverage", [None, 7.0])
def test_lin_prod_compact_without_a_horizon(coverage: float | None) -> None:
    """η_t = min(1/(2κ), √(log K / (2 C t'))), with t' at most 5 % before t."""
    learner = us.lin_prod_compact(np.eye(2), n_actions=3, kappa=20.0, coverage=coverage)
    t = np.array([1, 21, 22, 1000, 10**6])
    wanted = np.sqrt(math.log(3) / (2 * (coverage or 1.0) * np.array([1, 21, 21, 993, 975_206])))
    np.testing.assert_allclose(learner.rates(t), np.minimum(1 / 40, wanted), rtol=1e-12)
    assert learner.capped
    assert not us.lin_prod_compact(np.eye(2), n_actions=3, kappa=2.0, coverage=90.0).capped


@quick
@given(
    data=st.data(),
    game=linear_games(),
    eta=st.floats(0.01, 0.5),
    more=st.floats(1.0, 3.0),
    curvature=curvatures,
)
def test_lin_prod_unknown(
    data: st.DataObject, game: LinearGame, eta: float, more: float, curvature: float
) -> None:
    """M_t = (V̂_t + βI)⁻¹ of all rounds before t."""
    contexts, log = data.draw(linear_logs(game))
    assert_unknown_agrees(game, contexts, log, eta=eta, more=more, curvature=curvature)


@pytest.mark.parametrize("disjoint", [False, True])
def test_lin_prod_unknown_while_the_inverse_is_held(disjoint: bool) -> None:
    """After round 21 the inverse is that of some rounds before."""
    rng = np.random.default_rng(5)
    x, uniform = rng.normal(size=(5, 2)), np.full((5, 3), 1 / 3)
    _, stacked = reference.disjoint(np.zeros((3, 2, 2)), x)
    features, shown = (stacked, x) if disjoint else (rng.normal(size=(5, 3, 3)), None)
    game = LinearGame(features, np.full(5, 0.2), uniform, np.zeros((1, 1)), shown)
    contexts, actions = rng.integers(5, size=71), rng.integers(3, size=70)
    log = game.log(contexts[:-1], actions, rng.random(70))
    assert_unknown_agrees(game, contexts, log, eta=0.05, more=1.0)


def assert_unknown_agrees(
    game: LinearGame,
    contexts: Integers,
    log: us.Log,
    *,
    eta: float,
    more: float,
    curvature: float = 0.7726,
) -> None:
    bound = float(np.linalg.norm(game.features, axis=2).max())
    beta = more * 2 * eta * bound**2
    learner = us.lin_prod_unknown(
        n_actions=game.n_actions,
        dimension=game.shown.shape[-1],
        feature_bound=bound,
        eta=eta,
        beta=beta,
        disjoint=game.contexts is not None,
        curvature=curvature,
    )
    columns = (log.actions, log.rewards, game.features[contexts])
    wanted = reference.lin_prod_unknown(beta, eta, *columns, curvature=curvature)
    assert_agrees(learner, log, wanted, game.shown[contexts[-1]])
