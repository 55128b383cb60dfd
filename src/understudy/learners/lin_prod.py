"""LinProd: Algorithm 2 of the paper, in three forms.

`LinProd` computes the product exactly, in logarithms, at a cost that grows with t.
`LinProdCompact` keeps two sums, in constant memory, with Theorem 3's guarantee.
`LinProdUnknown` does the same when V(π_B) is not known: a heuristic that stays within bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from understudy import kernels
from understudy.constraints import (
    COUNT,
    FEATURE_BOUND,
    HORIZON,
    N_ACTIONS,
    POSITIVE,
    RATE,
    ROUNDS,
    TRUTH,
    Array,
    array,
    enforce,
    having,
)
from understudy.errors import InadmissibleRate
from understudy.learners.linear import (
    ROUNDING,
    KnownCovariance,
    Linear,
    check_feature_norms,
    features_by_action,
    linear_spec,
    played_features,
    refuse_large_regressions,
    theta_hats,
)
from understudy.protocols import CompiledPath, EventSpec, Recorder
from understudy.schedules import Decaying, chunks_of_constant_rate, last_change, rate_at
from understudy.theory.rates import FIRST_CURVATURE, LIN_PROD_CURVATURE, SAFE_CURVATURE
from understudy.types import Integers, Log, added, kernel_view, read_only, saved


@saved
@dataclass(frozen=True, eq=False)
class Estimates:
    """θ̂_1 … θ̂_{t−1}, one row a round, and the actions they were estimated from."""

    thetas: Array
    actions: Integers
    CONSTRAINTS: ClassVar = {
        "thetas": array("one row of numbers per round", dimensions=(2,)),
        "actions": array("one action per round", dtype=np.int64, low=0),
    }


@saved
@dataclass(frozen=True, eq=False)
class LinProd(KnownCovariance[Estimates]):
    r"""Plays $\pi_t(a|x) \propto \prod_{k<t} (1 + \eta \langle\hat\theta_k, \varphi(x,a)\rangle)$

    with the unbiased $\hat\theta_t = V^{-1} \varphi(X_t, A^B_t) R^B_t$. A round costs O(t K d): the
    product is over all rounds before (`kernels/lin_prod.py`).

    `capped` says that the theorem's rate was above 1/(2κ) and was lowered to it. `curvature` is the
    constant of its bound (`us.theory.lin_prod_bound`).
    """

    eta: float
    curvature: ClassVar[float] = LIN_PROD_CURVATURE
    CONSTRAINTS: ClassVar = {**KnownCovariance.CONSTRAINTS, "eta": RATE}
    COMPILED: ClassVar = CompiledPath.LOGS

    def init(self) -> Estimates:
        no_rounds = read_only(np.zeros((0, self.features.shape[-1])))
        return Estimates(no_rounds, read_only(np.zeros(0, dtype=np.int64)))

    @property
    def order_dependence(self) -> None:
        return None

    def add_states(self, first: Estimates, second: Estimates) -> Estimates:
        return Estimates(
            read_only(np.concatenate([first.thetas, second.thetas])),
            read_only(np.concatenate([first.actions, second.actions])),
        )

    def rounds(self, state: Estimates) -> int:
        return len(state.thetas)

    def is_possible(self, state: Estimates) -> bool:
        # θ̂ᵀVθ̂ = R² φᵀV⁻¹φ ≤ κ: beyond it, a factor 1 + ηr̂ could be negative
        size = self.features.squared_norms(state.thetas, state.actions)
        return not (size > self.kappa * (1 + ROUNDING)).any()

    def accepts(self, state: Estimates) -> bool:
        return (
            isinstance(state, Estimates)
            and state.thetas.shape == (len(state.actions), self.features.shape[-1])
            and not (state.actions >= self.features.n_actions).any()
        )

    def advance(self, state: Estimates, log: Log, recorder: Recorder) -> Estimates:
        new = Estimates(theta_hats(self.features.V_inverse, log), log.actions)
        after = self.add_states(state, new)
        if recorder.wants_policies:
            recorder.add(self._policies_from_round(len(state.thetas), after, log.features))
        return after

    def _policies_at(self, state: Estimates, features: Array) -> Array:
        return self._policies_from_round(len(state.thetas), state, features)

    def _policies_from_round(self, start: int, after: Estimates, features: Any) -> Array:
        """π_t(·|x) of rounds start + 1, …, one per row of features, (n, K)."""
        policies = self.features.log_weights(
            self.eta, after.thetas, after.actions, start, kernel_view(features)
        )
        kernels.lin_prod.softmax(policies)
        return policies


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
        "rounds": ROUNDS,
    }


@saved
@dataclass(frozen=True, eq=False)
class LinProdCompact(KnownCovariance[Sums]):
    r"""Plays $\pi_t(a|x) \propto \exp(\eta_t \sum_{k<t} (z_k - c\,\eta_k z_k^2))$

    with $z_k = \langle\hat\theta_k, \varphi(x,a)\rangle$ and the unbiased
    $\hat\theta_t = V^{-1} \varphi(X_t, A^B_t) R^B_t$. The sum is ⟨Θ, φ⟩ − c φᵀSφ, so that a round
    costs O(K d²) whatever t is. Since $e^{u - c u^2} \le 1 + u$ for u ≥ −½, each weight is at most
    the product's, and Theorem 3 holds as it does for the product, with c in its second term.

    η_t is `eta`, or, of a rate that falls with time, what of it is not above 1/(2κ). `capped` says
    that the theorem's rate was above 1/(2κ), if only at first, and was lowered to it.

    c is `curvature`: 0.7726, and 1 in files of release 0.5. It is not in the state, so the sums are
    the same for every c, and add up.
    """

    curvature: float = added(LIN_PROD_CURVATURE, absent=FIRST_CURVATURE)
    CONSTRAINTS: ClassVar = {**KnownCovariance.CONSTRAINTS, "curvature": SAFE_CURVATURE}
    COMPILED: ClassVar = CompiledPath.LOGS

    def init(self) -> Sums:
        return initial_sums(self.features.V.shape)

    def rates(self, t: Integers) -> Array:
        """η_t = min(1/(2κ), η) for rounds t ≥ 1."""
        wanted = np.broadcast_to(rate_at(self.eta, t), t.shape)
        return np.asarray(np.minimum(self.largest_rate, wanted))

    @property
    def order_dependence(self) -> str | None:
        if isinstance(self.eta, Decaying):
            return "the rate falls with time, and every gain is frozen with the rate of its round"
        return None

    def add_states(self, first: Sums, second: Sums) -> Sums:
        return Sums(
            read_only(first.theta + second.theta),
            read_only(first.squares + second.squares),
            first.rounds + second.rounds,
        )

    def is_possible(self, state: Sums) -> bool:
        V, theta, S, n = self.features.V, state.theta, state.squares, state.rounds
        # each θ̂ᵀVθ̂ ≤ κ, so that √(ΘᵀVΘ) ≤ n√κ and Tr(VS) = Σ_k η_k θ̂_kᵀVθ̂_k ≤ n η_1 κ
        size = float(np.einsum("...i,...ij,...j->...", theta, V, theta).sum())
        trace, first = float((V * S).sum()), float(self.rates(np.ones(1, dtype=np.int64))[0])
        smallest = float(np.linalg.eigvalsh(S).min())
        return (
            size <= n**2 * self.kappa * (1 + ROUNDING)
            and trace <= n * first * self.kappa * (1 + ROUNDING)
            and smallest >= -ROUNDING * float(np.abs(S).max())
            and np.array_equal(S, np.swapaxes(S, -1, -2))
        )

    def accepts(self, state: Sums) -> bool:
        shape = self.features.V.shape
        return (
            isinstance(state, Sums)
            and state.squares.shape == shape
            and state.theta.shape == shape[:-1]
        )

    def _policies_at(self, state: Sums, features: Array) -> Array:
        return np.asarray(self.evaluator(state)(features)[:, 0])

    def evaluator(self, state: Sums) -> Callable[[Array], Array]:
        (eta,) = self.rates(np.array([state.rounds + 1]))
        evaluate = evaluator_of_sums(state, float(eta), self.curvature, self.features.n_actions)
        return lambda features: evaluate(features)[:, np.newaxis]

    def advance(self, state: Sums, log: Log, recorder: Recorder) -> Sums:
        etas = self.rates(np.arange(state.rounds + 1, state.rounds + len(log) + 1))
        thetas = theta_hats(self.features.V_inverse, log)
        after, policies = advance_sums(
            state, etas, thetas, log, self.features.n_actions, curvature=self.curvature
        )
        recorder.add(policies)
        return after


def initial_sums(shape: tuple[int, ...]) -> Sums:
    """The sums before round 1, for V of this shape."""
    return Sums(read_only(np.zeros(shape[:-1])), read_only(np.zeros(shape)), rounds=0)


def advance_sums(
    sums: Sums, etas: Array, thetas: Array, log: Log, n_actions: int, *, curvature: float
) -> tuple[Sums, Array]:
    """The sums after a log with these rates and estimates, and π_t(·|X_t) of its rounds, (n, K)."""
    theta, squares = sums.theta.copy(), sums.squares.copy()
    policies = np.empty((len(log), n_actions))
    kernels.lin_prod.replay(
        kernel_view(etas),
        curvature,
        kernel_view(thetas),
        kernel_view(log.actions),
        np.atleast_2d(theta),
        as_blocks(squares),
        kernel_view(features_by_action(log.features)),
        policies,
    )
    kernels.lin_prod.softmax(policies)
    return Sums(read_only(theta), read_only(squares), sums.rounds + len(log)), policies


def evaluator_of_sums(
    sums: Sums, eta: float, curvature: float, n_actions: int
) -> Callable[[Array], Array]:
    """A function of contexts: π(·|x) of each, (n, K), with the bits that it has alone."""
    theta, squares = kernel_view(np.atleast_2d(sums.theta)), kernel_view(as_blocks(sums.squares))
    log_weights, softmax = kernels.lin_prod.log_weights, kernels.lin_prod.softmax

    def evaluate(features: Array) -> Array:
        policies = np.empty((len(features), n_actions))
        by_action = kernel_view(features_by_action(features))
        log_weights(eta, curvature, theta, squares, by_action, policies)
        softmax(policies)
        return policies

    return evaluate


def as_blocks(matrices: Array) -> Array:
    """A view as blocks (B, d, d), where one matrix is one block."""
    return matrices.reshape(-1, *matrices.shape[-2:])


@saved
@dataclass(frozen=True, eq=False)
class SumsAndInverse:
    """The sums of the weights; Σ_k φ_k φ_kᵀ of what was played; and M, as it was last made."""

    sums: Sums
    seen: Array
    inverse: Array
    CONSTRAINTS: ClassVar = {  # enforced by snapshots: a learner makes no wrong state itself
        "sums": having("pass Sums", "theta", "squares", "rounds"),
        "seen": array("pass Σ φφᵀ as (d, d), or one block per action", dimensions=(2, 3)),
        "inverse": array("pass M as (d, d), or one block per action", dimensions=(2, 3)),
    }


@saved
@dataclass(frozen=True, eq=False)
class LinProdUnknown(Linear[SumsAndInverse]):
    r"""Plays $\pi_t(a|x) \propto \exp(\eta \sum_{k<t} (z_k - c\,\eta z_k^2))$, a heuristic,

    with $z_k = \langle M_k \varphi(X_k, b_k) R_k, \varphi(x,a)\rangle$ and
    $M_t = (\hat V_t + \beta I)^{-1}$, where $\hat V_t$ is the average of
    $\varphi(X_k, b_k) \varphi(X_k, b_k)^\top$ over rounds before t, up to the last round in which t
    had grown by 5 % (`schedules.last_change`). β ≥ 2ηB² keeps |η z| ≤ ½. c is `curvature`, as of
    `LinProdCompact`.
    """

    eta: float
    n_actions: int
    dimension: int
    feature_bound: float
    beta: float
    disjoint: bool = False
    horizon: int | None = None
    curvature: float = added(LIN_PROD_CURVATURE, absent=FIRST_CURVATURE)
    CONSTRAINTS: ClassVar = {
        "eta": RATE,
        "n_actions": N_ACTIONS,
        "dimension": COUNT,
        "feature_bound": FEATURE_BOUND,
        "beta": POSITIVE,
        "disjoint": TRUTH,
        "horizon": HORIZON.optional(),
        "curvature": SAFE_CURVATURE,
    }
    COMPILED: ClassVar = CompiledPath.LOGS

    def __post_init__(self) -> None:
        enforce(self)
        blocks = self.n_actions if self.disjoint else 1
        refuse_large_regressions(self.n_actions, self.dimension, lambda p: blocks * p**2)
        smallest = 2.0 * self.eta * self.feature_bound**2
        if self.beta < smallest * (1 - ROUNDING):
            largest = self.beta / (2.0 * self.feature_bound**2)
            raise InadmissibleRate(
                "beta",
                self.beta,
                f"with eta = {self.eta:.6g} and feature_bound = {self.feature_bound:.6g} the "
                "estimates can leave |ηr̂| ≤ ½, where weights mean nothing",
                f"pass beta >= {smallest!r}, or eta <= {largest!r}",
                largest=largest,
            )

    @cached_property
    def spec(self) -> EventSpec:
        p = self.dimension
        return linear_spec(self.n_actions, (p,) if self.disjoint else (self.n_actions, p))

    @property
    def _shape(self) -> tuple[int, ...]:
        """The shape of V."""
        square = (self.dimension, self.dimension)
        return (self.n_actions, *square) if self.disjoint else square

    def init(self) -> SumsAndInverse:
        nothing = np.zeros(self._shape)
        inverse = nothing + np.eye(self.dimension) / self.beta
        return SumsAndInverse(initial_sums(self._shape), read_only(nothing), read_only(inverse))

    @property
    def order_dependence(self) -> str:
        return "each estimate depends on the features of all rounds before it"

    def rounds(self, state: SumsAndInverse) -> int:
        return state.sums.rounds

    def is_possible(self, state: SumsAndInverse) -> bool:
        n, B = state.sums.rounds, self.feature_bound
        longest = B / self.beta  # of any θ̂ = Mφ R
        # An inverse is right to the last digits of its condition number, at most B²/β.
        rounding = max(ROUNDING, 16 * self.dimension * np.finfo(np.float64).eps * B**2 / self.beta)
        possible = np.linalg.norm(state.sums.theta) <= n * longest * (1 + ROUNDING)
        for matrices, largest in (
            (state.sums.squares, n * self.eta * longest**2),
            (state.seen, n * B**2),
            (state.inverse, 1 / self.beta),  # beyond it, |ηr̂| could exceed ½
        ):
            eigenvalues = np.linalg.eigvalsh(matrices)
            slack = rounding * largest
            possible &= np.allclose(matrices, np.swapaxes(matrices, -1, -2), rtol=0, atol=slack)
            possible &= eigenvalues.min() >= -slack and eigenvalues.max() <= largest + slack
        return bool(possible)

    def accepts(self, state: SumsAndInverse) -> bool:
        return (
            isinstance(state, SumsAndInverse)
            and isinstance(state.sums, Sums)
            and state.sums.squares.shape == state.seen.shape == state.inverse.shape == self._shape
            and state.sums.theta.shape == self._shape[:-1]
        )

    def _check_size(self, features: Array, *, numbered: bool) -> None:
        check_feature_norms(features, self.feature_bound, numbered)

    def _policies_at(self, state: SumsAndInverse, features: Array) -> Array:
        evaluate = evaluator_of_sums(state.sums, self.eta, self.curvature, self.n_actions)
        return evaluate(features)

    def advance(self, state: SumsAndInverse, log: Log, recorder: Recorder) -> SumsAndInverse:
        before, parts = state.sums.rounds, [np.empty((0, self.n_actions))]
        for start, rounds in chunks_of_constant_rate(before, len(log), max(1, len(log))):
            state, policies = self._advance_chunk(state, log[start : start + rounds])
            parts.append(policies)
        recorder.add(np.concatenate(parts))
        return state

    def _advance_chunk(self, state: SumsAndInverse, log: Log) -> tuple[SumsAndInverse, Array]:
        """A chunk in which M stays; it is computed again if it changes in the first round."""
        t, inverse, seen = state.sums.rounds + 1, state.inverse, state.seen.copy()
        if last_change(np.array([t]))[0] == t:
            inverse = self._inverse(seen, rounds=t - 1)
        thetas = theta_hats(inverse, log)
        etas = np.full(len(log), self.eta)
        sums, policies = advance_sums(
            state.sums, etas, thetas, log, self.n_actions, curvature=self.curvature
        )
        kernels.lin_prod.add_squares(
            kernel_view(played_features(log.features, log.actions)),
            kernel_view(log.actions),
            as_blocks(seen),
        )
        return SumsAndInverse(sums, read_only(seen), inverse), policies

    def _inverse(self, seen: Array, rounds: int) -> Array:
        """(V̂ + βI)⁻¹, with V̂ = 0 before the first round."""
        matrices = seen / max(1, rounds) + self.beta * np.eye(self.dimension)
        kernels.lin_prod.invert(as_blocks(matrices))
        return read_only(matrices)
