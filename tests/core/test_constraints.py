"""`understudy.constraints`: negative tests, generated from those that arguments are declared with.

Each constraint refuses its wrong values, whatever argument it is for; each declaration is applied
to its argument. The callables are found by walking the package, the wrong values come from the
constraints. One valid call of each is written by hand; a new callable without one fails a test.
"""

from __future__ import annotations

import dataclasses
import inspect
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.logs.encoders import example_encoder
from tests.support.package_modules import modules
from tests.support.refusals import LONGEST_VALUE, shorten
from tests.support.strategies import falling_rate
from understudy import constraints, errors
from understudy.certificates import Evidence, UncenteredEvidence
from understudy.constraints import Constraint, ConstraintViolation, constrained, enforce
from understudy.errors import InvalidArgument
from understudy.learners import (
    ContextStates,
    Estimates,
    LeveledScores,
    MixtureState,
    Regressions,
    Scores,
    Sums,
    SumsAndInverse,
)

Arguments = dict[str, Any]

K, D = 3, 2
PI = [0.5, 0.3, 0.2]
V = np.eye(D) / 2
BLOCKS = np.stack([V] * K)
PHI = np.full((4, K, D), 0.5)
GAME = us.Game(adversary=us.adversaries.stationary([0.1, 0.5, 0.9]), behavior=PI, rounds=5)
PLAYERS = {"Exp3": us.exp3(PI, eta=0.1)}
EXPERTS = {"production": "production", "ix": us.exp3_ix(PI, eta=0.1)}
MIXTURE = us.exp4(PI, EXPERTS)
LOGGED = us.Certificate(us.Logged(n_actions=K))
SIZES: Arguments = {"n_actions": K, "horizon": 10}
RATIOS: Arguments = {**SIZES, "coverage": 2.0}

EXAMPLES: dict[str, Arguments] = {
    "simulation.adversaries.Drifting": {"first": [0.1, 0.2], "last": [0.3, 0.4], "rounds": 5},
    "simulation.adversaries.Hiding": {"n_actions": K, "low": 0.2, "high": 0.7},
    "simulation.adversaries.Piecewise": {"values": [[0.1, 0.2], [0.3, 0.4]], "starts": [0, 3]},
    "simulation.adversaries.Retaliating": {"n_actions": K, "low": 0.2, "high": 0.7},
    "simulation.adversaries.RewardTable": {"values": [[0.1, 0.2]]},
    "simulation.adversaries.halves": {"values": [[0.1, 0.2], [0.3, 0.4]], "rounds": 10},
    "simulation.adversaries.stationary": {"means": [0.1, 0.2]},
    "simulation.adversaries.switching": {"n_actions": K, "rounds": 10},
    "behaviors.Logged": {"n_actions": K},
    "behaviors.interpolated": {"n_actions": K, "alpha": 0.5},
    "behaviors.uniform": {"n_actions": K},
    "certificates.certificate.Certificate": {
        "behavior": PI,
        "confidence": 0.9,
        "n_actions": K,
        "lambdas": [1.0, 0.5],
    },
    "certificates.curves.certify": {
        "log": us.Log([0, 1], [0.5, 1.0]),
        "target": PI,
        "behavior": PI,
        "confidence": 0.9,
    },
    "certificates.curves.certify_by": {
        "groups": ["a", "b"],
        "log": us.Log([0, 1], [0.5, 1.0]),
        "target": PI,
        "behavior": PI,
        "confidence": 0.9,
    },
    "certificates.difference.DifferenceCertificate": {
        "target": LOGGED,
        "baseline": LOGGED,
        "crossed": 0,
        "lost": 0,
    },
    "certificates.evidence.Evidence": {
        "rounds": 1,
        "sums": [0.0],
        "products": [1.5],
        "totals": [1.0, 1.0, 1.0, 1.0],
        "usable": [1.0, 1.0, 0.0],
        "crossed": 1,
        "worse": 0,
        "windows": [[0.0]],
        "merged": False,
    },
    "certificates.guardrails.Guardrail": {
        "name": "latency_ms",
        "low": 0.0,
        "high": 2000.0,
        "better": "lower",
        "margin": 20.0,
    },
    "certificates.joint.JointCertificate": {
        "goal": us.Certificate(PI, 0.975),
        "guardrails": (us.Certificate(PI, 0.975),),
        "metrics": (us.Guardrail("errors", 0.0, 1.0, "lower", 0.01),),
        "crossed": 0,
        "broken_at": (0,),
    },
    "certificates.segments.SegmentCertificates": {
        "names": ("new", "old"),
        "certificates": (us.Certificate(PI, 0.975),) * 2,
        "confidence": 0.95,
        "rounds": 0,
        "worse_at": 0,
    },
    "certificates.uncentered.UncenteredEvidence": {
        "rounds": 1,
        "sums": [0.0],
        "products": [1.5],
        "totals": [1.0, 1.0, 1.0, 1.0],
        "counts": [1, 0],
        "crossed": 1,
        "merged": False,
    },
    "certificates.targets.FixedPolicy": {"probabilities": PI},
    "contexts.ContinuousContexts": {
        "sample": lambda rng, n: rng.random((n, 1)),
        "feature_map": lambda x: np.stack([x, 1 - x], axis=1),
        "n_actions": 2,
        "dimension": 1,
    },
    "contexts.FiniteContexts": {"table": PHI, "probabilities": [0.25] * 4},
    "estimators.ChernoffPlugIn": {"n_actions": K, "gamma": 0.0},
    "estimators.ImplicitExploration": {"behavior": PI, "gamma": 0.1},
    "estimators.ImportanceWeighting": {"behavior": PI},
    "estimators.Logarithmic": {"behavior": PI, "eta": 0.1},
    "estimators.PlugIn": {"n_actions": K, "gamma": 0.1},
    "experiments.experiment.ExperimentOptions": {"runs": 1, "rounds": 5, "actions": K, "alphas": 2},
    "simulation.game.Game": {"adversary": GAME.adversary, "behavior": PI, "rounds": 5},
    "learners.weighted_entropy.CoverageAdaptive": {
        "behavior": PI,
        "rates": [0.1, 0.2, 0.3],
        "prior": PI,
        "horizon": 10,
    },
    "learners.exp4.Exp4": {
        "behavior": PI,
        "names": MIXTURE.names,
        "experts": MIXTURE.experts,
        "weights": MIXTURE.weights,
    },
    "learners.exp4.MixtureState": {
        "weights": MIXTURE.init().weights,
        "experts": MIXTURE.init().experts,
        "earned": [0.0, 0.0],
        "moments": np.zeros((4, 2)),
        "history": [[0.5, 0.5]],
        "rewards": 0.5,
        "least": 0.5,
        "rounds": 1,
    },
    "learners.exp4.exp4": {"pi_b": PI, "experts": EXPERTS, "prior": [0.9, 0.1]},
    "learners.experts.Model": {
        "model": SimpleNamespace(probabilities=np.asarray),
        "n_actions": K,
        "dimension": D,
    },
    "learners.experts.Outside": {"name": "mine"},
    "learners.feature_maps.Cell": {"dimension": 4, "starts": [0, 2], "sizes": [2, 2]},
    "learners.feature_maps.Leverage": {"V": BLOCKS, "kappa": 4.0},
    "learners.feature_maps.Mapped": {
        "learner": us.ridge(n_actions=K, dimension=D),
        "map": us.learners.Leverage(BLOCKS, 4.0),
    },
    "learners.feature_maps.RandomFourier": {"frequencies": V, "phases": [0.0, 1.0]},
    "learners.feature_maps.random_fourier": {
        "dimension": D,
        "features": 3,
        "gamma": 0.5,
        "rng": np.random.default_rng(0),
        "constant": False,
    },
    "learners.per_context.ContextStates": {"states": (None, None), "rounds": 0},
    "learners.per_context.PerContext": {"learner": PLAYERS["Exp3"], "n_contexts": 2},
    "learners.per_context.per_context": {"learner": PLAYERS["Exp3"], "n_contexts": 2},
    "learners.ridge.Regressions": {
        "inverse": [[1.0, 0.0, 1.0]] * K,
        "by_reward": [[0.0, 0.5]] * K,
        "by_one": [[0.0, 1.0]] * K,
        "counts": [1, 0, 2],
        "rewards": 1.5,
        "rounds": 3,
    },
    "learners.ridge.Ridge": {
        "n_actions": K,
        "dimension": D,
        "ridge": 1.0,
        "temperatures": [0.1, 0.2],
        "betas": [0.0, 1.0],
        "centered": True,
    },
    "learners.ridge.ridge": {
        "n_actions": K,
        "dimension": D,
        "temperature": [0.1, 0.2],
        "beta": 0.5,
    },
    "learners.weighted_entropy.LeveledScores": {
        "scores": [[0.0, 1.0]],
        "residues": [[0.0, 0.0]],
        "rounds": 1,
        "references": [0.0],
        "totals": [2.0],
        "level": 0.5,
    },
    "learners.exponential_weights.ExponentialWeights": {
        "eta": 0.1,
        "estimator": us.estimators.ImportanceWeighting(np.array(PI)),
        "horizon": 10,
    },
    "learners.exponential_weights.Scores": {
        "scores": [0.0, 1.0],
        "residues": [0.0, 0.0],
        "rounds": 1,
        "memory": [1, 0],
        "reference": 0.0,
        "total": 2.0,
    },
    "learners.linear.DisjointFeatures": {"V": BLOCKS},
    "learners.linear.SharedFeatures": {"V": V, "n_actions": K},
    "learners.lin_prod.Estimates": {"thetas": [[0.5, 0.5]], "actions": [0]},
    "learners.lin_prod.LinProd": {
        "eta": 0.1,
        "features": us.learners.SharedFeatures(V, K),
        "kappa": 4.0,
        "feature_bound": 1.0,
        "horizon": 10,
    },
    "learners.lin_prod.LinProdCompact": {
        "eta": falling_rate(0.5),
        "features": us.learners.SharedFeatures(V, K),
        "kappa": 4.0,
        "feature_bound": 1.0,
        "horizon": 10,
        "curvature": 0.8,
    },
    "learners.lin_prod.Sums": {"theta": [0.5, 0.5], "squares": V, "rounds": 1},
    "learners.lin_prod.LinProdUnknown": {
        "eta": 0.1,
        "n_actions": K,
        "dimension": D,
        "feature_bound": 1.0,
        "beta": 0.2,
        "horizon": 10,
        "curvature": 0.8,
    },
    "learners.lin_prod.SumsAndInverse": {
        "sums": us.learners.Sums(np.zeros(D), np.zeros((D, D)), 0),
        "seen": V,
        "inverse": V,
    },
    "learners.linear_recipes.lin_prod": {"V": V, **SIZES, "kappa": 4.0},
    "learners.linear_recipes.lin_prod_compact": {"V": V, **SIZES, "kappa": 4.0},
    "learners.linear_recipes.lin_prod_unknown": {**SIZES, "dimension": D, "feature_bound": 1.0},
    "learners.recipes.coverage_adaptive": {"pi_b": PI, "horizon": 10, "multiplier": 2.0},
    "learners.recipes.exp3": {"pi_b": PI, "horizon": 10},
    "learners.recipes.exp3_ix": {"pi_b": PI, "horizon": 10, "gamma": 0.1},
    "learners.recipes.exp3_ix_unknown": {**SIZES, "gamma": [0.2] * 10},
    "learners.recipes.prod_grid": {"pi_b": PI, "prior": "behavior", "production": 0.1},
    "learners.recipes.prod": {"pi_b": PI, "horizon": 10, "coverage": 2.0},
    "logs.encoder.CategoryColumn": {
        "name": "city",
        "categories": ["Rome", "Oslo"],
        "rare": ["Bonn"],
        "missing": True,
    },
    "logs.encoder.Encoder": {"columns": (), "constants": ["site"]},
    "logs.features.ContextFeatures": {
        "encoder": example_encoder(),
        "learner": us.lin_prod_compact(np.tile(np.eye(2), (K, 1, 1)), n_actions=K, kappa=1.0),
        **{"rows": 3, "shrunk": 1, "unseen": 0, "ridge": 0.5},
    },
    "logs.encoder.NumberColumn": {"name": "age", "mean": 40, "scale": 10.0, "missing": False},
    "schedules.Constant": {"gamma": 0.1},
    "schedules.Decaying": {"scale": 0.5},
    "schedules.HalfOf": {"eta": falling_rate(0.5)},
    "schedules.HoeffdingWidth": {"eta": 0.1, "n_actions": K},
    "schedules.Tabulated": {"gamma": [0.2, 0.1]},
    "simulation.planned_game.PlannedGuardrail": {
        "guardrail": us.Guardrail("latency", low=0.0, high=10.0, better="lower", margin=1.0),
        "mean": 5.0,
        "deviation": 1.0,
        "effect": 0.5,
    },
    "simulation.planning.plan": {
        "production": PI,
        "means": [0.1, 0.2, 0.3],
        "runs": 1,
        "longest": 5,
    },
    "simulation.simulate.simulate": {
        "game": GAME,
        "learners": PLAYERS,
        "runs": 1,
        "seed": 0,
        "jobs": 1,
    },
    "simulation.sweep.CellResult": {
        "regret": [[1.0]],
        "reward": [2.0],
        "behavior_reward": [3.0],
        "path": "compiled",
    },
    "simulation.sweep.Sweep": {
        "games": {"game": GAME},
        "learners": PLAYERS,
        "seeds": [0],
        "runs": 1,
    },
    "theory.coverage_adaptive.coverage_adaptive_bound": {
        "comparator": 0,
        "pi_b": PI,
        "horizon": 10,
        "rates": [0.1, 0.2, 0.3],
        "prior": PI,
    },
    "theory.coverage_adaptive.coverage_adaptive_price": {"rates": [0.1, 0.2, 0.3], "prior": PI},
    "theory.coverage_adaptive.coverage_adaptive_tuning": {"pi_b": PI, "horizon": 10},
    "theory.coverage_adaptive.coverage_adaptive_uniform_bound": {
        "pi_b": PI,
        "horizon": 10,
        "coverage": 2.0,
    },
    "theory.coverage_adaptive.coverage_grid_bound": {**SIZES, "inverse_propensities": 20.0},
    "theory.coverage_adaptive.coverage_grid_tuning": SIZES,
    "theory.coverage_adaptive.exp4_bound": {"n_experts": 2, "squares": 50.0, "share": 0.1},
    "theory.bounds.theorem1_anytime_bound": {
        "comparator": 0,
        "pi_b": PI,
        "horizon": 10,
        "scale": 0.5,
    },
    "theory.rates.theorem1_anytime_tuned_bound": RATIOS,
    "theory.rates.theorem1_anytime_uniform_bound": RATIOS,
    "theory.bounds.exp3_bound": {"pi_b": PI, "horizon": 10, "eta": 0.1},
    "theory.bounds.exp3_condition": {"pi_b": PI, "eta": 0.1},
    "theory.rates.exp3_order": {"pi_b": PI, "horizon": 10},
    "theory.rates.exp3_worst_case_bound": {"pi_b": PI, "horizon": 10},
    "theory.rates.lin_prod_bound": {**RATIOS, "eta": 0.1},
    "theory.rates.lin_prod_tuned_bound": RATIOS,
    "theory.rates.lin_prod_uniform_bound": RATIOS,
    "theory.bounds.prod_bound": {"comparator": 0, "pi_b": PI, "horizon": 10, "eta": 0.1},
    "theory.bounds.theorem1_bound": {"comparator": 0, "pi_b": PI, "horizon": 10, "eta": 0.1},
    "theory.rates.theorem1_tuned_bound": RATIOS,
    "theory.rates.theorem1_uniform_bound": RATIOS,
    "theory.bounds.theorem2_bound": {**RATIOS, "eta": 0.1},
    "theory.rates.theorem2_simplified_bound": RATIOS,
    "theory.coverage_ratio.coverage": {"comparator": 0, "pi_b": PI},
    "theory.coverage_ratio.feature_coverage": {"V_comparator": V, "V_behavior": V},
    "theory.coverage_ratio.feature_covariance": {"policy": [PI] * 4, "features": PHI},
    "theory.coverage_ratio.largest_leverage": {"features": PHI, "V": V},
    "theory.rates.lin_prod_anytime_bound": {**RATIOS, "eta": falling_rate(0.5), "kappa": 4.0},
    "theory.rates.anytime_scale": {"n_actions": K, "coverage": 2.0},
    "theory.bounds.theorem1_high_probability_bound": {
        "comparator": 0,
        "pi_b": PI,
        "horizon": 10,
        "eta": 0.1,
        "delta": 0.05,
    },
    "theory.rates.exp3_ix_rate": RATIOS,
    "theory.rates.exp3_worst_case_rate": {"pi_b": PI, "horizon": 10},
    "theory.rates.kappa_from_feature_bound": {"V": V, "feature_bound": 1.0},
    "theory.rates.largest_lin_prod_rate": {"kappa": 4.0},
    "theory.rates.lin_prod_rate": RATIOS,
    "theory.bounds.chernoff_bound": {"comparator": 0, "pi_b": PI, "horizon": 10, "eta": 0.1},
    "theory.rates.chernoff_simplified_bound": {**RATIOS, "eta": 0.1},
    "types.Feedback": {"action": 0, "reward": 0.5, "propensity": 0.5, "features": PHI[0]},
    "types.Log": {
        "actions": [0, 1],
        "rewards": [0.5, 1.0],
        "propensities": [0.5, 0.5],
        "features": PHI[:2],
    },
}


def declared() -> dict[str, Any]:
    """Every function and dataclass of the package that declares constraints, by its name.

    Abstract ones cannot be made: what derives from them is found instead.
    """
    return {
        f"{module.__name__}.{name}".removeprefix("understudy."): thing
        for module in modules()
        for name, thing in vars(module).items()
        if isinstance(getattr(thing, "CONSTRAINTS", None), dict)
        and thing.__module__ == module.__name__
        and thing.__name__ == name
        and not inspect.isabstract(thing)
    }


DECLARED = declared()
# Arguments without a constraint: what they must be depends on other arguments, or is the business
# of the object itself.
COMPARATOR = {"comparator"}
CHECKED_OTHERWISE: dict[str, set[str]] = {
    "simulation.adversaries.Piecewise": {"rounds"},
    "simulation.adversaries.halves": {"values"},
    "simulation.adversaries.stationary": {"bernoulli"},
    "certificates.curves.certify": {"log", "target", "against"},
    "certificates.curves.certify_by": {"groups", "log", "target"},
    "simulation.game.Game": {"behavior"},
    "learners.exp4.exp4": {"experts"},
    "logs.encoder.Encoder": {"columns"},
    "logs.features.ContextFeatures": {"encoder", "learner"},
    "simulation.planning.plan": {"learner"},
    "simulation.simulate.simulate": {"game", "learners", "comparators"},
    "simulation.sweep.Sweep": {"learners", "comparators"},
    "theory.coverage_adaptive.coverage_adaptive_bound": COMPARATOR,
    "theory.bounds.theorem1_anytime_bound": COMPARATOR,
    "theory.bounds.prod_bound": COMPARATOR,
    "theory.bounds.theorem1_bound": COMPARATOR,
    "theory.coverage_ratio.coverage": COMPARATOR,
    "theory.bounds.theorem1_high_probability_bound": COMPARATOR,
    "theory.bounds.chernoff_bound": COMPARATOR,
}
# states, which a learner makes right and a file may not
UNCHECKED_WHEN_MADE = (
    *(Scores, LeveledScores, Estimates, Sums, SumsAndInverse, Evidence, UncenteredEvidence),
    *(Regressions, ContextStates, MixtureState),
)


def call(thing: Any, arguments: Arguments) -> Any:
    """Call it; the records that only snapshots check are checked as snapshots do."""
    result = thing(**arguments)
    if thing in UNCHECKED_WHEN_MADE:
        enforce(result)
    return result


def assert_explains(error: InvalidArgument, argument: str, value: object) -> None:
    """The error is ours, and its one line says which argument, which value, why, and what to do."""
    assert isinstance(error, errors.UnderstudyError)
    assert isinstance(error, ValueError)
    assert error.argument == argument
    assert error.value is value
    assert len(error.reason) >= 5
    assert len(error.remedy) >= 5
    message = str(error)
    for part in (argument, shorten(value), error.reason, error.remedy):
        assert part in message
    assert "\n" not in message
    assert len(shorten(value)) <= LONGEST_VALUE


def test_every_declaration_has_an_example_and_every_example_a_declaration() -> None:
    assert set(EXAMPLES) == set(DECLARED)


def test_the_walk_finds_functions_and_records_in_every_kind_of_module() -> None:
    assert {"types.Feedback", "simulation.simulate.simulate", "theory.rates.lin_prod_rate"} <= set(
        DECLARED
    )
    assert len(DECLARED) >= 55


@pytest.mark.parametrize("where", EXAMPLES)
def test_the_example_is_accepted(where: str) -> None:
    call(DECLARED[where], EXAMPLES[where])


@pytest.mark.parametrize("where", DECLARED)
def test_every_argument_is_constrained_or_known_not_to_be(where: str) -> None:
    """A declaration that is lost fails here; so does one of an argument that was renamed."""
    arguments = set(inspect.signature(DECLARED[where]).parameters)
    otherwise = CHECKED_OTHERWISE.get(where, set())
    assert set(DECLARED[where].CONSTRAINTS) == arguments - otherwise
    assert otherwise <= arguments


@pytest.mark.parametrize("where", DECLARED)
def test_every_declaration_is_applied(where: str) -> None:
    """One wrong value an argument: the callable refuses it in the words of its constraint."""
    for argument, constraint in DECLARED[where].CONSTRAINTS.items():
        wrong = constraint.wrong[0]
        with pytest.raises(InvalidArgument) as expected:
            constraint(argument, wrong)
        with pytest.raises(InvalidArgument) as caught:
            call(DECLARED[where], {**EXAMPLES[where], argument: wrong})
        assert str(caught.value) == str(expected.value)
        assert_explains(caught.value, argument, wrong)


class Unprintable:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


NASTY: tuple[Any, ...] = (
    object(),
    Unprintable(),
    Ellipsis,
    NotImplemented,
    int,
    {1, 2},
    {"a": [1]},
    b"bytes",
    "1e5",
    1j,
    np.complex128(1j),
    np.datetime64("2026-01-01"),
    np.str_("x"),
    10**400,
    -(10**400),
    Decimal("NaN"),
    Fraction(1, 2),
    range(3),
    [[1.0], [1.0, 2.0]],
    [[], [1.0]],
    [10**400, 1],
    [None, 1.0],
    [object()],
    np.array([]),
    np.array([1, 2]),
    np.array([True, False]),
    np.array([1j]),
    np.array([[0.5, 0.5], [0.5, 0.5]]),
    np.array(["a"], dtype=object),
    np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
    np.zeros((0, 3)),
)
DISTINCT_CONSTRAINTS = {
    id(constraint): pytest.param(constraint, id=f"{where}-{argument}")
    for where, thing in DECLARED.items()
    for argument, constraint in thing.CONSTRAINTS.items()
}


@pytest.mark.parametrize("constraint", list(DISTINCT_CONSTRAINTS.values()))
def test_wrong_values_are_refused(constraint: Constraint) -> None:
    assert len(constraint.wrong) >= 3
    assert constraint.remedy
    for wrong in constraint.wrong:
        with pytest.raises(InvalidArgument) as caught:
            constraint("x", wrong)
        assert_explains(caught.value, "x", wrong)


@pytest.mark.parametrize("constraint", list(DISTINCT_CONSTRAINTS.values()))
def test_no_value_whatever_leaves_our_tree(constraint: Constraint) -> None:
    """A constraint takes a value or raises `InvalidArgument` in one line: never anything else."""
    for value in NASTY:
        try:
            constraint("x", value)
        except InvalidArgument as error:
            assert_explains(error, "x", value)


@pytest.mark.parametrize("constraint", list(DISTINCT_CONSTRAINTS.values()))
def test_optional_lets_none_through_and_nothing_else(constraint: Constraint) -> None:
    optional = constraint.optional()
    assert optional("x", None) is None
    assert "leave it out" in optional.remedy
    for wrong in optional.wrong:
        with pytest.raises(InvalidArgument):
            optional("x", wrong)


def test_arguments_arrive_checked_and_converted() -> None:
    """Whichever way they are passed: by position, by name, or left to their default."""

    @constrained(p=constraints.PROBABILITIES, k=constraints.COUNT)
    def both(p: Any, k: int = 3) -> tuple[Any, int]:
        return p, k

    count: Any = np.int64(2)
    by_position, by_name = both([0.5, 0.5], count), both(p=[0.5, 0.5])
    assert isinstance(by_position[0], np.ndarray)
    assert type(by_position[1]) is int
    assert by_name[1] == 3
    with pytest.raises(TypeError, match="missing a required argument: 'p'"):
        both()  # type: ignore[call-arg] # what is tested


def test_defaults_are_checked_too() -> None:
    @constrained(k=constraints.COUNT)
    def lazy(k: int = 0) -> int:
        return k

    with pytest.raises(InvalidArgument, match="k = 0"):
        lazy()


def test_records_own_what_they_were_given() -> None:
    """A probability vector or a V that the caller changes later does not change a learner."""
    mine = np.array(PI)
    learner = us.exp3_ix(mine, horizon=10)
    mine[:] = 99.0
    again = us.exp3_ix(PI, horizon=10)
    event = us.Feedback(action=0, reward=1.0)
    first, second = (x.update(x.init(), event).scores.tolist() for x in (learner, again))
    assert first == second
    with pytest.raises(ValueError, match="read-only"):
        learner.update(learner.init(), event).scores[0] = 1.0


BOUNDARIES = [
    (constraints.number(0.0, 1.0, "r"), 0.0, np.nextafter(0, -1)),
    (constraints.number(0.0, 1.0, "r"), 1.0, np.nextafter(1, 2)),
    (constraints.RATE, np.nextafter(0, 1), 0.0),
    (constraints.RATE, constraints.LARGEST_RATE, np.nextafter(constraints.LARGEST_RATE, np.inf)),
    (constraints.N_ACTIONS, 2, 1),
    (constraints.COUNT, 1, 0),
    (constraints.PROBABILITIES, [0.5, 0.5 + 9e-10], [0.5, 0.5 + 2e-9]),
    (constraints.PROBABILITIES, [1.0, 0.0], [1.0 + 1e-12, -1e-12]),
    (constraints.PROBABILITIES, [1.0, 1e-100], [1.0, 0.9e-100]),
    (constraints.array("r", low=0.0, high=1.0), [0.0, 1.0], [0.0, np.nextafter(1, 2)]),
]


@pytest.mark.parametrize(("constraint", "inside", "outside"), BOUNDARIES)
def test_the_edge_itself_is_inside(constraint: Constraint, inside: Any, outside: Any) -> None:
    np.testing.assert_array_equal(constraint("x", inside), inside)
    with pytest.raises(InvalidArgument):
        constraint("x", outside)


def test_refusals_never_leak_from_records() -> None:
    """`ConstraintViolation` is how constraints talk among themselves; a caller never sees it."""
    assert not issubclass(ConstraintViolation, errors.UnderstudyError)
    with pytest.raises(InvalidArgument) as caught:
        us.exp3_ix(PI, eta=0.1, gamma=[0.1, -1.0])
    assert caught.value.argument == "gamma"


def test_constrained_records_are_frozen() -> None:
    """What was checked once stays so."""
    records = [where for where, thing in DECLARED.items() if inspect.isclass(thing)]
    assert len(records) >= 20
    for where in records:
        record = call(DECLARED[where], EXAMPLES[where])
        for field in dataclasses.fields(record):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(record, field.name, None)
