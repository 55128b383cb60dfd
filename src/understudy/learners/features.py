"""How φ(x, a) is given, and what V = V(π_B) makes of it.

`SharedFeatures`: one vector φ(x, a) ∈ R^d per action, V is (d, d).
`DisjointFeatures`: φ(x, a) = e_a ⊗ x, so that V is K blocks (p, p) and nothing of size K·p
is ever built.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from understudy import kernels
from understudy.constraints import N_ACTIONS, Array, enforce
from understudy.theory.coverage import COVARIANCE, COVARIANCE_BLOCKS
from understudy.types import Integers, Log, frozen, given, rounds_per_stretch, saved

__all__ = ["DisjointFeatures", "Features", "SharedFeatures", "played", "rows", "theta_hats"]


@saved
@dataclass(frozen=True, eq=False)
class SharedFeatures:
    """φ(x, ·) as a matrix (K, d); V (d, d).

    >>> SharedFeatures(V=[[0.5, 0.0], [0.0, 0.5]], n_actions=3).shape
    (3, 2)
    """

    V: Array
    n_actions: int
    CONSTRAINTS: ClassVar = {"V": COVARIANCE, "n_actions": N_ACTIONS}

    def __post_init__(self) -> None:
        enforce(self)
        _ = self.V_inverse  # made here and not in a worker, whose LAPACK may round otherwise

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n_actions, len(self.V))

    @cached_property
    def V_inverse(self) -> Array:  # noqa: N802 - the paper's V
        return inverse(self.V)

    def squared_norms(self, thetas: Array, actions: Integers) -> Array:  # noqa: ARG002 - one V
        """θ̂_kᵀ V θ̂_k for every round."""
        return np.asarray(((thetas @ self.V) * thetas).sum(axis=-1))

    def log_weights(
        self,
        eta: float,
        thetas: Array,
        actions: Integers,  # noqa: ARG002 - θ̂ says it all
        start: int,
        features: Array,
    ) -> Array:
        """Σ_{k<t} log(1 + η ⟨θ̂_k, φ(x, a)⟩) for t = start, … and every action, (n, K)."""
        out = np.empty(features.shape[:2])
        kernels.lin_prod.shared_log_weights(eta, given(thetas), start, features, out)
        return out


@saved
@dataclass(frozen=True, eq=False)
class DisjointFeatures:
    """The context x as a vector (p,), one block of parameters per action; V (K, p, p).

    >>> DisjointFeatures(V=[[[0.5]], [[0.25]]]).shape
    (1,)
    """

    V: Array
    CONSTRAINTS: ClassVar = {"V": COVARIANCE_BLOCKS}

    def __post_init__(self) -> None:
        enforce(self)
        _ = self.V_inverse  # made here and not in a worker, whose LAPACK may round otherwise

    @property
    def n_actions(self) -> int:
        return len(self.V)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.V.shape[-1],)

    @cached_property
    def V_inverse(self) -> Array:  # noqa: N802 - the paper's V
        return inverse(self.V)

    def squared_norms(self, thetas: Array, actions: Integers) -> Array:
        """θ̂_kᵀ V_a θ̂_k, a = b_k, for every round."""
        norms = np.zeros(len(thetas))
        for a, V in enumerate(self.V):
            own = thetas[actions == a]
            norms[actions == a] = ((own @ V) * own).sum(axis=-1)
        return norms

    def log_weights(
        self, eta: float, thetas: Array, actions: Integers, start: int, features: Array
    ) -> Array:
        """Σ_{k<t} log(1 + η ⟨θ̂_k, x⟩ 1{a = b_k}) for t = start, … and every action, (n, K)."""
        out = np.empty((len(features), self.n_actions))
        kernels.lin_prod.disjoint_log_weights(
            eta, given(thetas), given(actions), start, features, out
        )
        return out


Features = SharedFeatures | DisjointFeatures


def inverse(V: Array) -> Array:
    return np.asarray(frozen(np.linalg.inv(V)))


def rows(features: Any) -> Array:
    """φ(X_t, ·) of every round as (n, K, d); contexts, which all actions share, as (n, 1, p).

    >>> rows(np.zeros((5, 3))).shape
    (5, 1, 3)
    """
    return np.asarray(features if features.ndim == 3 else features[:, np.newaxis])  # noqa: PLR2004 - (n, K, d)


def played(features: Any, actions: Integers) -> Array:
    """φ(X_t, b) of every round, (n, d); contexts, of which b takes its block, as they are.

    >>> played(np.array([[[1.0], [2.0]]]), np.array([1])).tolist()
    [[2.0]]
    """
    shown = rows(features)
    return np.asarray(shown[np.arange(len(actions)), np.minimum(actions, shown.shape[1] - 1)])


def theta_hats(V_inverse: Array, log: Log) -> Array:
    """θ̂_t = V⁻¹ φ(X_t, b) R of every round, (n, d); of blocks V⁻¹, the one that is not zero.

    >>> log = Log([1, 0], [1.0, 0.5], features=[[1.0], [1.0]])
    >>> theta_hats(np.array([[[2.0]], [[4.0]]]), log).tolist()
    [[4.0], [1.0]]
    """
    size = V_inverse.shape[-1]
    parts = [np.empty((0, size))]
    for part in log.stretches(rounds_per_stretch(size**2)):
        phi = played(part.features, part.actions) * part.rewards[:, np.newaxis]
        parts.append(times(V_inverse if V_inverse.ndim == 2 else V_inverse[part.actions], phi))  # noqa: PLR2004 - a matrix
    return np.concatenate(parts)


def times(matrix: Array, vectors: Array) -> Array:
    """matrix @ vector for every row, summed in one order whatever the number of rows:

    BLAS would take other roads for one row than for many, and `update` must give the bits of
    `replay`.
    """
    return np.asarray((matrix * vectors[:, np.newaxis, :]).sum(axis=-1))
