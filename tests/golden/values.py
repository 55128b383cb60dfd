"""Values of the library whose results are kept: learners, certificates, games, bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import understudy as us

from .compare import INPUTS

__all__ = [
    "CERTIFICATES",
    "GAMES",
    "RECIPES",
    "THEORY",
    "certificate_after",
    "figures_of",
    "log_of",
    "plain",
    "probe",
]

Q = [0.5, 0.3, 0.2]
LOGGED = us.Logged(n_actions=3)
SHARED_V = np.array([[0.2, 0.01], [0.01, 0.15]])
DISJOINT_V = np.stack([q * SHARED_V for q in Q])
LINEAR: dict[str, Any] = {"n_actions": 3, "kappa": 9.0}
HEURISTIC: dict[str, Any] = {"n_actions": 3, "dimension": 2, "feature_bound": 1.0}
FIRST: dict[str, Any] = {"curvature": 1.0}  # that of LinProd in 0.5.0, which is sharper now
Recipe = Callable[[], Any]

# By name: the learner, and the columns of a log that it reads beside actions and rewards.
RECIPES: dict[str, tuple[Recipe, tuple[str, ...]]] = {
    "exp3-horizon": (lambda: us.exp3(Q, horizon=100), ()),
    "exp3-decaying": (lambda: us.exp3(Q), ()),
    "exp3-logged": (lambda: us.exp3(LOGGED, eta=0.05), ("propensities",)),
    "exp3_ix-horizon": (lambda: us.exp3_ix(Q, horizon=100), ()),
    "exp3_ix-decaying": (lambda: us.exp3_ix(Q), ()),
    "exp3_ix-coverage": (lambda: us.exp3_ix(Q, coverage=4.0), ()),
    "exp3_ix-gamma": (lambda: us.exp3_ix(Q, eta=0.1, gamma=0.02), ()),
    "exp3_ix-table": (lambda: us.exp3_ix(Q, eta=0.1, gamma=np.linspace(0.2, 0.1, 120)), ()),
    "exp3_ix-logged": (lambda: us.exp3_ix(LOGGED, horizon=100), ("propensities",)),
    "exp3_ix-logged-decaying": (lambda: us.exp3_ix(LOGGED), ("propensities",)),
    "exp3_ix_unknown-horizon": (lambda: us.exp3_ix_unknown(3, horizon=100), ()),
    "exp3_ix_unknown-decaying": (lambda: us.exp3_ix_unknown(3), ()),
    "exp3_ix_unknown-kl": (lambda: us.exp3_ix_unknown(3, horizon=100, width="kl"), ()),
    "exp3_ix_unknown-kl-decaying": (lambda: us.exp3_ix_unknown(3, width="kl"), ()),
    "prod-horizon": (lambda: us.prod(Q, horizon=100), ()),
    "prod-decaying": (lambda: us.prod(Q), ()),
    "prod-logged": (lambda: us.prod(LOGGED, horizon=100, coverage=3.0), ("propensities",)),
    "coverage_adaptive-horizon": (lambda: us.coverage_adaptive(Q, horizon=100), ()),
    "coverage_adaptive-decaying": (lambda: us.coverage_adaptive(Q), ()),
    "coverage_adaptive-logged": (
        lambda: us.coverage_adaptive(LOGGED, horizon=100),
        ("propensities",),
    ),
    "coverage_adaptive-logged-decaying": (
        lambda: us.coverage_adaptive(LOGGED, multiplier=2.0),
        ("propensities",),
    ),
    "coverage_adaptive-logarithmic": (
        lambda: us.coverage_adaptive(Q, gain="logarithmic"),
        (),
    ),
    "coverage_adaptive-rates": (
        lambda: us.coverage_adaptive(Q, rates=[0.1, 0.2, 0.05], prior=[0.2, 0.3, 0.5]),
        (),
    ),
    "lin_prod-shared": (lambda: us.lin_prod(SHARED_V, horizon=100, **LINEAR), ("shared",)),
    "lin_prod-disjoint": (
        lambda: us.lin_prod(DISJOINT_V, n_actions=3, horizon=100, feature_bound=1.0),
        ("contexts",),
    ),
    "lin_prod_compact-shared": (
        lambda: us.lin_prod_compact(SHARED_V, horizon=100, **LINEAR, **FIRST),
        ("shared",),
    ),
    "lin_prod_compact-shared-decaying": (
        lambda: us.lin_prod_compact(SHARED_V, coverage=2.0, **LINEAR, **FIRST),
        ("shared",),
    ),
    "lin_prod_compact-disjoint": (
        lambda: us.lin_prod_compact(DISJOINT_V, n_actions=3, eta=0.01, kappa=40.0, **FIRST),
        ("contexts",),
    ),
    "lin_prod_compact-disjoint-decaying": (
        lambda: us.lin_prod_compact(DISJOINT_V, n_actions=3, kappa=40.0, **FIRST),
        ("contexts",),
    ),
    "lin_prod_unknown-shared": (
        lambda: us.lin_prod_unknown(horizon=100, **HEURISTIC, **FIRST),
        ("shared",),
    ),
    "lin_prod_unknown-disjoint": (
        lambda: us.lin_prod_unknown(eta=0.05, disjoint=True, **HEURISTIC, **FIRST),
        ("contexts",),
    ),
}


@cache
def _feedback() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((INPUTS / "feedback.json").read_text(encoding="utf-8"))
    return found


def log_of(half: str, columns: tuple[str, ...]) -> us.Log:
    """A half of the feedback, with the columns that a learner reads."""
    rows = _feedback()[half]
    features = rows[columns[0]] if columns[:1] in {("shared",), ("contexts",)} else None
    return us.Log(
        rows["actions"],
        rows["rewards"],
        propensities=rows["propensities"] if "propensities" in columns else None,
        features=None if features is None else np.array(features),
    )


def probe(columns: tuple[str, ...]) -> Any:
    """Features to ask a policy at, if it takes any."""
    if columns[:1] in {("shared",), ("contexts",)}:
        return np.array(_feedback()["second"][columns[0]][7])
    return None


TARGET = [0.1, 0.2, 0.7]
PROPENSITIES = ("propensities",)

# By name: an empty certificate, the columns that it reads, and the policy that it is about.
CERTIFICATES: dict[str, tuple[Recipe, tuple[str, ...], Any]] = {
    "known": (lambda: us.Certificate(Q, rules=1), (), TARGET),
    "known-best": (
        lambda: us.Certificate(Q, confidence=0.8, rules=1),
        (),
        us.FixedPolicy([0, 0, 1]),
    ),
    "logged": (lambda: us.Certificate(LOGGED, confidence=0.9, rules=1), PROPENSITIES, TARGET),
    "counted": (lambda: us.Certificate(None, n_actions=3), (), TARGET),
    "own-grid": (lambda: us.Certificate(Q, lambdas=[2.0, 0.5, 0.125], rules=1), (), TARGET),
}


def certificate_after(certificate: Any, name: str, half: str) -> Any:
    """The certificate after a half of the feedback."""
    _, columns, target = CERTIFICATES[name]
    return certificate.observe(log_of(half, columns), target)


FIGURES = (
    *("rounds", "lower", "upper", "gain", "production", "estimate", "self_normalised"),
    *("effective_sample_size", "promoted", "promoted_at"),
)


def figures_of(certificate: Any) -> dict[str, Any]:
    """All that a certificate says in numbers."""
    found = {name: getattr(certificate, name) for name in FIGURES}
    if hasattr(certificate, "least_production"):
        found["least_production"] = certificate.least_production()
    for curve in ("lower_curve", "upper_curve", "production_curve", "gain_curve"):
        if hasattr(certificate, curve):
            found[curve] = getattr(certificate, curve)
    return plain(found)  # type: ignore[no-any-return] # of a dict it is one


def plain(value: Any) -> Any:
    """As JSON holds it: arrays as lists, tuples too, numbers of NumPy as Python's."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return value


ROUNDS = 80
FEATURES = np.array([[[0.6, 0.4], [0.2, 0.8], [0.5, 0.5]], [[0.9, 0.1], [0.3, 0.7], [0.4, 0.6]]])


def _bandits() -> dict[str, Any]:
    return {
        "Exp3": us.exp3(Q, horizon=ROUNDS),
        "Exp3-IX": us.exp3_ix(Q, horizon=ROUNDS),
        "Prod": us.prod(Q),
        "unknown": us.exp3_ix_unknown(3, horizon=ROUNDS, width="kl"),
        "adaptive": us.coverage_adaptive(Q),
        "logged": us.coverage_adaptive(LOGGED, horizon=ROUNDS),
    }


def _played(adversary: Any, **options: Any) -> Any:
    game = us.Game(adversary=adversary, behavior=Q, rounds=ROUNDS)
    found = us.simulate(game, _bandits(), runs=2, seed=3, comparators=[0, Q, "best"], **options)
    return plain([found.regret, found.reward, found.behavior_reward])


def _contextual() -> Any:
    contexts = us.contexts.FiniteContexts(FEATURES, [0.4, 0.6])
    behavior = [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]]
    V = contexts.covariance(behavior)
    kappa = us.theory.largest_leverage(FEATURES, V)
    learners: dict[str, Any] = {
        "LinProd": us.lin_prod(V, n_actions=3, horizon=ROUNDS, kappa=kappa),
        "compact": us.lin_prod_compact(V, n_actions=3, kappa=kappa, **FIRST),
        "unknown": us.lin_prod_unknown(horizon=ROUNDS, **HEURISTIC, **FIRST),
    }
    adversary = us.adversaries.stationary([0.9, 0.1])
    game = us.Game(adversary=adversary, behavior=behavior, rounds=ROUNDS, contexts=contexts)
    found = us.simulate(game, learners, runs=2, comparators=[0, np.eye(3)[[1, 2]]])
    return plain([found.regret, found.reward, found.behavior_reward])


def _sweep() -> Any:
    adversary = us.adversaries.switching(n_actions=3, rounds=ROUNDS)
    game = us.Game(adversary=adversary, behavior=Q, rounds=ROUNDS)
    sweep = us.Sweep({"switching": game}, _bandits(), seeds=(0, 7), runs=2, comparators=[1])
    return plain(us.simulate(sweep).rows())


def _play() -> Any:
    adversary = us.adversaries.retaliating(n_actions=3)
    game = us.Game(adversary=adversary, behavior=Q, rounds=20)
    rounds = us.play(game, us.exp3_ix(Q, horizon=20), seed=1)
    return [plain([one.policy, one.action]) for one in rounds]


GAMES: dict[str, Recipe] = {
    "switching": lambda: _played(us.adversaries.switching(n_actions=3, rounds=ROUNDS)),
    "stationary": lambda: _played(us.adversaries.stationary([0.2, 0.5, 0.7]), rewards="realised"),
    "halves": lambda: _played(us.adversaries.halves([[0, 0.5, 1], [1, 0.5, 0]], rounds=ROUNDS)),
    "drifting": lambda: _played(
        us.adversaries.drifting(np.array([0.1, 0.5, 0.9]), np.array([0.9, 0.5, 0.1]), ROUNDS)
    ),
    "table": lambda: _played(us.adversaries.table(np.linspace(0, 1, 3 * ROUNDS).reshape(-1, 3))),
    "hiding": lambda: _played(us.adversaries.hiding(n_actions=3)),
    "retaliating": lambda: _played(us.adversaries.retaliating(n_actions=3)),
    "contexts": _contextual,
    "sweep": _sweep,
    "play": _play,
}

_AT: dict[str, Any] = {"horizon": 1000, "eta": 0.03}
_FEATURE_V = us.theory.feature_covariance([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], FEATURES)
THEORY: dict[str, Recipe] = {
    "anytime_scale": lambda: us.theory.anytime_scale(3, 4.0),
    "chernoff_bound": lambda: us.theory.chernoff_bound(2, Q, **_AT),
    "chernoff_simplified_bound": lambda: us.theory.chernoff_simplified_bound(
        3, coverage=5.0, **_AT
    ),
    "coverage": lambda: us.theory.coverage([0.1, 0.2, 0.7], Q),
    "coverage_adaptive_bound": lambda: us.theory.coverage_adaptive_bound(2, Q, horizon=1000),
    "coverage_adaptive_price": lambda: us.theory.coverage_adaptive_price([0.1, 0.2], [0.4, 0.6]),
    "coverage_adaptive_tuning": lambda: us.theory.coverage_adaptive_tuning(Q, horizon=1000),
    "coverage_adaptive_uniform_bound": lambda: us.theory.coverage_adaptive_uniform_bound(
        Q, horizon=1000, coverage=5.0
    ),
    "coverage_grid_bound": lambda: us.theory.coverage_grid_bound(
        3, horizon=1000, inverse_propensities=5000.0
    ),
    "coverage_grid_tuning": lambda: us.theory.coverage_grid_tuning(3, horizon=1000),
    "exp3_bound": lambda: us.theory.exp3_bound(Q, **_AT),
    "exp3_condition": lambda: us.theory.exp3_condition(0.03, Q),
    "exp3_ix_rate": lambda: us.theory.exp3_ix_rate(3, 1000, 5.0),
    "exp3_order": lambda: us.theory.exp3_order(Q, horizon=1000),
    "exp3_worst_case_bound": lambda: us.theory.exp3_worst_case_bound(Q, horizon=1000),
    "exp3_worst_case_rate": lambda: us.theory.exp3_worst_case_rate(Q, horizon=1000),
    "feature_covariance": lambda: _FEATURE_V,
    "feature_coverage": lambda: us.theory.feature_coverage(np.eye(2) / 3, _FEATURE_V),
    "kappa_from_feature_bound": lambda: us.theory.kappa_from_feature_bound(_FEATURE_V, 1.0),
    "largest_leverage": lambda: us.theory.largest_leverage(FEATURES, _FEATURE_V),
    "largest_lin_prod_rate": lambda: us.theory.largest_lin_prod_rate(7.0),
    "leverage": lambda: us.theory.leverage(FEATURES, np.linalg.inv(_FEATURE_V)),
    "lin_prod_anytime_bound": lambda: us.theory.lin_prod_anytime_bound(
        3, horizon=1000, eta=us.lin_prod_compact(SHARED_V, **LINEAR).eta, kappa=9.0, coverage=5.0
    ),
    "lin_prod_bound": lambda: us.theory.lin_prod_bound(3, coverage=5.0, **_AT),
    "lin_prod_rate": lambda: us.theory.lin_prod_rate(3, 1000, 5.0),
    "lin_prod_tuned_bound": lambda: us.theory.lin_prod_tuned_bound(3, 1000, 5.0),
    "lin_prod_uniform_bound": lambda: us.theory.lin_prod_uniform_bound(3, 1000, 5.0),
    "prod_bound": lambda: us.theory.prod_bound(2, Q, **_AT),
    "theorem1_anytime_bound": lambda: us.theory.theorem1_anytime_bound(
        2, Q, horizon=1000, scale=0.7
    ),
    "theorem1_anytime_tuned_bound": lambda: us.theory.theorem1_anytime_tuned_bound(3, 1000, 5.0),
    "theorem1_anytime_uniform_bound": lambda: us.theory.theorem1_anytime_uniform_bound(
        3, 1000, 5.0
    ),
    "theorem1_bound": lambda: us.theory.theorem1_bound(2, Q, **_AT),
    "theorem1_high_probability_bound": lambda: us.theory.theorem1_high_probability_bound(
        2, Q, delta=0.05, **_AT
    ),
    "theorem1_tuned_bound": lambda: us.theory.theorem1_tuned_bound(3, 1000, 5.0),
    "theorem1_uniform_bound": lambda: us.theory.theorem1_uniform_bound(3, 1000, 5.0),
    "theorem2_bound": lambda: us.theory.theorem2_bound(3, coverage=5.0, **_AT),
    "theorem2_simplified_bound": lambda: us.theory.theorem2_simplified_bound(3, 1000, 5.0),
    "interpolated": lambda: us.behaviors.interpolated(n_actions=5, alpha=0.7),
}
