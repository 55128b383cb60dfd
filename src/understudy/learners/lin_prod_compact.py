"""LinProd in constant memory: a state of two sums, with Theorem 3's guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.constraints import LARGEST_COUNT, Array, array, integer
from understudy.errors import InvalidArgument, NotMergeable
from understudy.learners.linear import ROUNDING, KnownCovariance, rows, theta_hats
from understudy.schedules import Decaying, rate_at
from understudy.theory import largest_lin_prod_rate
from understudy.types import Integers, Log, kernel_view, read_only, saved

__all__ = ["LinProdCompact", "Sums"]

CONTEXTS = array("pass φ(x, ·) as (n, K, d), or contexts as (n, p)", dimensions=(2, 3))


@saved
@dataclass(frozen=True, eq=False)
class Sums:
    """Θ = Σ_k θ̂_k, S = Σ_k η_k θ̂_k θ̂_kᵀ, and the number of rounds; (d,) and (d, d), or K blocks."""

    theta: Array
    squares: Array
    rounds: int
    CONSTRAINTS: ClassVar = {  # enforced by snapshots: a learner makes no wrong state itself
        "theta": array("pass Θ as (d,), or one row per action", dimensions=(1, 2)),
        "squares": array("pass S as (d, d), or one block per action", dimensions=(2, 3)),
        "rounds": integer(0, "pass a number of rounds", LARGEST_COUNT),
    }


@saved
@dataclass(frozen=True, eq=False)
class LinProdCompact(KnownCovariance[Sums]):
    r"""Plays $\pi_t(a|x) \propto \exp(\eta_t \sum_{k<t} (z_k - \eta_k z_k^2))$

    with $z_k = \langle\hat\theta_k, \varphi(x,a)\rangle$ and the unbiased
    $\hat\theta_t = V^{-1} \varphi(X_t, A^B_t) R^B_t$. The sum is ⟨Θ, φ⟩ − φᵀSφ, so that a round
    costs O(K d²) whatever t is. Since $e^{u - u^2} \le 1 + u$ for u ≥ −½, each weight is at most
    the product's, and Theorem 3 holds as it does for the product.

    η_t is `eta`, or, of a rate that falls with time, what of it is not above 1/(2κ). `capped` says
    that the theorem's rate was above 1/(2κ), if only at first, and was lowered to it.
    """

    def init(self) -> Sums:
        return no_sums(self.features.V.shape)

    def rates(self, t: Integers) -> Array:
        """η_t = min(1/(2κ), η) for rounds t ≥ 1."""
        wanted = np.broadcast_to(rate_at(self.eta, t), t.shape)
        return np.asarray(np.minimum(largest_lin_prod_rate(self.kappa), wanted))

    def merge(self, first: Sums, second: Sums) -> Sums:
        if isinstance(self.eta, Decaying):
            raise NotMergeable(
                "the rate falls with time, and every gain is frozen with the rate of its round; "
                "replay the logs one after the other instead"
            )
        self.validate(first)
        self.validate(second)
        return Sums(
            read_only(first.theta + second.theta),
            read_only(first.squares + second.squares),
            first.rounds + second.rounds,
        )

    def rounds(self, state: Sums) -> int:
        return state.rounds

    def validate(self, state: Sums) -> None:
        self._check_own(state)
        V, theta, S, n = self.features.V, state.theta, state.squares, state.rounds
        # each θ̂ᵀVθ̂ ≤ κ, so that √(ΘᵀVΘ) ≤ n√κ and Tr(VS) = Σ_k η_k θ̂_kᵀVθ̂_k ≤ n η_1 κ
        size = float(np.einsum("...i,...ij,...j->...", theta, V, theta).sum())
        trace, first = float((V * S).sum()), float(self.rates(np.ones(1, dtype=np.int64))[0])
        smallest = float(np.linalg.eigvalsh(S).min())
        if (
            size > n**2 * self.kappa * (1 + ROUNDING)
            or trace > n * first * self.kappa * (1 + ROUNDING)
            or smallest < -ROUNDING * float(np.abs(S).max())
            or not np.array_equal(S, np.swapaxes(S, -1, -2))
        ):
            raise self._foreign(state)

    def _fits(self, state: Sums) -> bool:
        shape = self.features.V.shape
        return (
            isinstance(state, Sums)
            and state.squares.shape == shape
            and state.theta.shape == shape[:-1]
        )

    def policies_at(self, state: Sums, features: ArrayLike) -> Array:
        """π(·|x) of many contexts at one state, (n, K): `policy` of each, bit for bit."""
        self._check_own(state)
        checked: Array = CONTEXTS("features", features)
        if checked.shape[1:] != self.spec.features:
            raise InvalidArgument(
                "features",
                checked.shape,
                f"each context must be given as features of shape {self.spec.features}",
                CONTEXTS.remedy,
            )
        self._check_size("features of event", checked)
        return self._policies_at(state, checked)

    def _policies_at(self, state: Sums, features: Array) -> Array:
        (eta,) = self.rates(np.array([state.rounds + 1]))
        return policies_of(state, float(eta), features, self.features.n_actions)

    def _policy(self, state: Sums, features: Array) -> Array:
        return np.asarray(self._policies_at(state, features[np.newaxis])[0])

    def _learn(self, state: Sums, log: Log) -> Sums:
        return self._policies(state, log)[0]

    def _policies(self, state: Sums, log: Log) -> tuple[Sums, Array]:
        etas = self.rates(np.arange(state.rounds + 1, state.rounds + len(log) + 1))
        thetas = theta_hats(self.features.V_inverse, log)
        return learned(state, etas, thetas, log, self.features.n_actions)


def no_sums(shape: tuple[int, ...]) -> Sums:
    """The sums before round 1, for V of this shape."""
    return Sums(read_only(np.zeros(shape[:-1])), read_only(np.zeros(shape)), rounds=0)


def learned(sums: Sums, etas: Array, thetas: Array, log: Log, n_actions: int) -> tuple[Sums, Array]:
    """The sums after a log with these rates and estimates, and π_t(·|X_t) of its rounds, (n, K)."""
    theta, squares = sums.theta.copy(), sums.squares.copy()
    policies = np.empty((len(log), n_actions))
    kernels.lin_prod.replay(
        kernel_view(etas),
        kernel_view(thetas),
        kernel_view(log.actions),
        np.atleast_2d(theta),
        blocks(squares),
        kernel_view(rows(log.features)),
        policies,
    )
    kernels.lin_prod.softmax(policies)
    return Sums(read_only(theta), read_only(squares), sums.rounds + len(log)), policies


def policies_of(sums: Sums, eta: float, features: Array, n_actions: int) -> Array:
    """π(·|x) of every context, (n, K), with the bits that it has alone."""
    policies = np.empty((len(features), n_actions))
    theta, squares = kernel_view(np.atleast_2d(sums.theta)), kernel_view(blocks(sums.squares))
    kernels.lin_prod.log_weights(eta, theta, squares, kernel_view(rows(features)), policies)
    kernels.lin_prod.softmax(policies)
    return policies


def blocks(matrices: Array) -> Array:
    """The same numbers as blocks (B, d, d), where one matrix is one block."""
    return matrices.reshape(-1, *matrices.shape[-2:])
