"""How well a behavior policy covers a comparator: C(π*; π_B), C_φ(π*; π_B), V(π)."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.constraints import (
    PROBABILITIES,
    SUM_TOLERANCE,
    Array,
    Constraint,
    ConstraintViolation,
    array,
    constrained,
    dimensions_of,
    integer,
    number,
)
from understudy.errors import InfiniteCoverage, InvalidArgument
from understudy.types import kernel_view

# Relative to the largest eigenvalue: a smaller one is the rounding of a d × d matrix, d ≤ 1000.
SINGULAR = 1e-12
ACTION = integer(0, "pass the 0-based index of an action")
COVARIANCE_REMEDY = "pass us.theory.feature_covariance(...) of a behavior that excites all features"
NO_COVARIANCES = ([[1.0, 2.0]], [[np.nan, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.0, 1.0]], [[-1.0]])
SINGULAR_MATRIX = [[1.0, 1.0], [1.0, 1.0]]


def covariance(*dimensions: int, singular: bool = False) -> Constraint:
    """V, (d, d) or blocks (K, p, p): symmetric, and positive definite unless it may be singular."""
    matrix = array(COVARIANCE_REMEDY, dimensions=dimensions)

    def parse(value: Any) -> Array:
        V: Array = matrix.parse(value)
        if V.shape[-1] != V.shape[-2] or not V.size:
            raise ConstraintViolation(f"its shape {V.shape} is not square")
        size, eigenvalues = float(np.abs(V).max()), np.linalg.eigvalsh(V)
        if not np.allclose(V, np.swapaxes(V, -1, -2), rtol=0.0, atol=1e-8 * size):
            raise ConstraintViolation("it is not symmetric")
        if eigenvalues.min() < -1e-8 * size:
            raise ConstraintViolation("it has a negative eigenvalue, so it is no average of φφᵀ")
        if not singular and (eigenvalues.min(-1) <= SINGULAR * eigenvalues.max(-1)).any():
            raise ConstraintViolation(
                "it is singular: the behavior never excites some direction of the features"
            )
        return V

    wrong = (*NO_COVARIANCES, np.zeros((0, 0)), *(() if singular else (SINGULAR_MATRIX,)))
    wrong = wrong if 2 in dimensions else (*([V] for V in wrong), np.eye(2))  # noqa: PLR2004 - a matrix
    return Constraint(COVARIANCE_REMEDY, parse, (*matrix.wrong, *wrong))


COVARIANCE, COVARIANCE_BLOCKS, COVARIANCES = covariance(2), covariance(3), covariance(2, 3)
SEMIDEFINITE = covariance(2, 3, singular=True)


def ratio(low: float) -> Constraint:
    """A coverage ratio of at least `low`, or infinity."""
    finite = number(low, math.inf, "pass us.coverage(...) or us.feature_coverage(...), inf too")

    def parse(value: Any) -> float:
        infinite = isinstance(value, float | np.floating) and value == math.inf
        return math.inf if infinite else float(finite.parse(value))

    wrong = tuple(value for value in finite.wrong if value != math.inf)
    return Constraint(finite.remedy, parse, wrong)


RATIO = ratio(1.0 - 1e-8)  # C(π*; π_B) ≥ 1, but for the rounding of probabilities
FEATURE_RATIO = ratio(0.0)
COVERAGE_RATIO = number(  # of a rate
    1.0 - 1e-8,
    math.inf,
    "pass us.coverage(comparator, pi_b), which is at least 1; no rate suits an infinite one",
)


def as_policy(comparator: int | ArrayLike, n_actions: int) -> Array:
    """A comparator as K probabilities: an action becomes the policy that always plays it."""
    if dimensions_of(comparator) == 0:
        action = ACTION("comparator", comparator)
        if action >= n_actions:
            raise InvalidArgument(
                "comparator",
                action,
                f"there are {n_actions} actions, counted from 0",
                f"pass an index from 0 to {n_actions - 1}, or {n_actions} probabilities",
            )
        always = np.zeros(n_actions)
        always[action] = 1.0
        return always
    policy: Array = PROBABILITIES("comparator", comparator)
    if len(policy) != n_actions:
        raise InvalidArgument(
            "comparator",
            comparator,
            f"it has {len(policy)} entries for {n_actions} actions",
            "pass one probability per action",
        )
    return policy


@constrained(pi_b=PROBABILITIES)
def coverage(comparator: int | ArrayLike, pi_b: ArrayLike) -> float:
    r"""The coverage ratio $C(\pi^*; \pi_B) = \sum_a \pi^*(a) / \pi_B(a)$, with 0/0 = 0.

    Infinite, with a warning that names the action, if the comparator plays what the behavior
    never does: then no log of that behavior can say anything about it.

    >>> coverage(0, [0.5, 0.25, 0.25]), coverage([0.5, 0.5, 0.0], [0.5, 0.25, 0.25])
    (2.0, 3.0)
    """
    q = np.asarray(pi_b, dtype=np.float64)
    policy = as_policy(comparator, len(q))
    uncovered = (policy > 0) & (q == 0)
    if uncovered.any():
        action = int(np.argmax(uncovered))
        warnings.warn(
            f"coverage is infinite: the comparator plays action {action} with probability "
            f"{policy[action]:g}, and the behavior policy never does",
            InfiniteCoverage,
            stacklevel=3,
        )
        return float("inf")
    played = policy > 0
    return float((policy[played] / q[played]).sum())


@constrained(
    policy=array("pass π(a|x) as (X, K)", dimensions=(2,), low=0.0, high=1.0),
    features=array("pass φ(x, a) as (X, K, d), or contexts as (X, p)", dimensions=(2, 3)),
    weights=array("pass one probability per context", low=0.0).optional(),
)
def feature_covariance(
    policy: ArrayLike, features: ArrayLike, weights: ArrayLike | None = None
) -> Array:
    r"""$V(\pi) = E[\sum_a \pi(a|X) \varphi(X,a) \varphi(X,a)^\top]$, a matrix (d, d).

    Rows are contexts: all of them with their probabilities as `weights`, or a sample of them,
    each counted alike. Contexts (X, p) stand for disjoint features φ(x, a) = e_a ⊗ x, and give
    the blocks of V, (K, p, p).

    >>> feature_covariance([[0.5, 0.5]], [[[1.0, 0.0], [0.0, 1.0]]]).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    >>> feature_covariance([[0.25, 0.75]], [[2.0]]).tolist()
    [[[1.0]], [[3.0]]]
    """
    pi, phi = np.asarray(policy), np.asarray(features)
    disjoint = phi.ndim == 2  # noqa: PLR2004 - contexts
    if len(pi) != len(phi) or not (disjoint or pi.shape == phi.shape[:2]) or not phi.size:
        raise InvalidArgument(
            "policy",
            pi.shape,
            f"it does not go with features of shape {phi.shape}",
            "pass one row per context and one column per action",
        )
    if np.abs(pi.sum(axis=1) - 1).max() > SUM_TOLERANCE:
        raise InvalidArgument(
            "policy", policy, "a row does not sum to 1", "pass π(·|x) in every row"
        )
    p = np.full(len(pi), 1 / len(pi)) if weights is None else np.asarray(weights)
    if len(p) != len(pi) or abs(p.sum() - 1) > SUM_TOLERANCE:
        raise InvalidArgument(
            "weights",
            weights,
            f"they must be {len(pi)} probabilities that sum to 1",
            "pass one probability per context",
        )
    indices = "x,xk,xd,xe->kde" if disjoint else "x,xk,xkd,xke->de"
    return np.asarray(np.einsum(indices, p, pi, phi, phi))


@constrained(V_comparator=SEMIDEFINITE, V_behavior=SEMIDEFINITE)
def feature_coverage(V_comparator: ArrayLike, V_behavior: ArrayLike) -> float:
    r"""The feature coverage ratio $C_\varphi(\pi^*; \pi_B) = \mathrm{Tr}[V(\pi_B)^{-1} V(\pi^*)]$.

    It is d when the two policies match. Blocks (K, p, p), for disjoint features, are the blocks of
    a block-diagonal V. Infinite, with a warning, if the comparator's features
    leave the span of the behavior's.

    >>> feature_coverage([[1.0, 0.0], [0.0, 0.0]], [[0.5, 0.0], [0.0, 0.5]])
    2.0
    >>> feature_coverage([[[0.5]], [[0.0]]], [[[0.25]], [[0.75]]])
    2.0
    """
    comparator, behavior = np.asarray(V_comparator), np.asarray(V_behavior)
    if comparator.shape != behavior.shape:
        raise InvalidArgument(
            "V_comparator",
            comparator.shape,
            f"V_behavior has shape {behavior.shape}",
            "pass two matrices of the same features",
        )
    eigenvalues, vectors = np.linalg.eigh(behavior)
    mass = np.einsum("...di,...de,...ei->...i", vectors, comparator, vectors)
    unseen = eigenvalues <= SINGULAR * eigenvalues.max()
    if (mass[unseen] > SINGULAR * max(mass.sum(), np.finfo(float).tiny)).any():
        warnings.warn(
            "feature coverage is infinite: the comparator excites a direction of the features "
            "that the behavior policy never does",
            InfiniteCoverage,
            stacklevel=3,
        )
        return float("inf")
    return float((mass[~unseen] / eigenvalues[~unseen]).sum())


@constrained(features=array("pass (X, K, d), or (X, p)", dimensions=(2, 3)), V=COVARIANCES)
def largest_leverage(features: ArrayLike, V: ArrayLike) -> float:
    r"""$\kappa = \max_{x,a} \varphi(x,a)^\top V^{-1} \varphi(x,a)$ over the given contexts.

    Features (X, K, d) go with V (d, d), disjoint ones (X, p) with V (K, p, p). Exact for a
    finite context space that is given whole; for a sample it is a lower bound on κ.

    >>> largest_leverage([[[1.0, 0.0], [0.0, 1.0]]], [[0.5, 0.0], [0.0, 0.25]])
    4.0
    >>> largest_leverage([[1.0], [2.0]], [[[0.5]], [[0.25]]])
    16.0
    """
    phi, matrix = np.asarray(features), np.asarray(V)
    if phi.shape[-1] != matrix.shape[-1] or phi.ndim + matrix.ndim != 5 or not phi.size:  # noqa: PLR2004 - 3 + 2 or 2 + 3
        raise InvalidArgument(
            "features",
            phi.shape,
            f"they do not go with V of shape {matrix.shape}",
            "pass φ as (X, K, d) with V (d, d), or contexts as (X, p) with V (K, p, p)",
        )
    return float(leverage(phi, np.linalg.inv(matrix)).max())


def leverage(features: Array, V_inverse: Array) -> Array:
    """φ(x, a)ᵀ V⁻¹ φ(x, a) for every context and action, (X, K), of checked features.

    >>> leverage(np.array([[1.0], [2.0]]), np.array([[[2.0]], [[4.0]]])).tolist()
    [[2.0, 4.0], [8.0, 16.0]]
    """
    features, V_inverse = np.asarray(features), np.asarray(V_inverse)
    if V_inverse.ndim == 2:  # noqa: PLR2004 - one matrix for all actions
        return np.asarray(((features @ V_inverse) * features).sum(axis=-1))
    found = np.empty((len(features), len(V_inverse)))
    kernels.lin_prod.leverages(kernel_view(features), kernel_view(V_inverse), found)
    return found


def smallest_probability(pi_b: ArrayLike) -> float:
    """min_a q(a), which must be positive for any bound that divides by it."""
    q = np.asarray(pi_b)
    if q.min() == 0:
        raise InvalidArgument(
            "pi_b",
            pi_b,
            f"action {int(q.argmin())} has probability 0, so min q = 0 and the bound is infinite",
            "use theorem1_bound, which stays finite",
        )
    return float(q.min())
