"""LinProd in constant memory when V(π_B) is not known: a heuristic that stays within bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from understudy import kernels
from understudy.constraints import (
    COUNT,
    FEATURE_BOUND,
    HORIZON,
    N_ACTIONS,
    POSITIVE,
    RATE,
    TRUTH,
    Array,
    array,
    enforce,
    having,
)
from understudy.errors import InadmissibleRate, NotMergeable
from understudy.learners.lin_prod_compact import Sums, blocks, learned, no_sums, policies_of
from understudy.learners.linear import (
    ROUNDING,
    Linear,
    linear_form,
    played,
    refuse_long,
    theta_hats,
)
from understudy.protocols import EventSpec
from understudy.schedules import chunks_of_constant_rate, last_change
from understudy.types import Log, kernel_view, read_only, saved

__all__ = ["LinProdUnknown", "SumsAndInverse"]

EPSILON = float(np.finfo(np.float64).eps)


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
    r"""Plays $\pi_t(a|x) \propto \exp(\eta \sum_{k<t} (z_k - \eta z_k^2))$, a heuristic,

    with $z_k = \langle M_k \varphi(X_k, b_k) R_k, \varphi(x,a)\rangle$ and
    $M_t = (\hat V_t + \beta I)^{-1}$, where $\hat V_t$ is the average of
    $\varphi(X_k, b_k) \varphi(X_k, b_k)^\top$ over rounds before t, up to the last round in which t
    had grown by 5 % (`schedules.held`). β ≥ 2ηB² keeps |η z| ≤ ½.
    """

    eta: float
    n_actions: int
    dimension: int
    feature_bound: float
    beta: float
    disjoint: bool = False
    horizon: int | None = None
    CONSTRAINTS: ClassVar = {
        "eta": RATE,
        "n_actions": N_ACTIONS,
        "dimension": COUNT,
        "feature_bound": FEATURE_BOUND,
        "beta": POSITIVE,
        "disjoint": TRUTH,
        "horizon": HORIZON.optional(),
    }

    def __post_init__(self) -> None:
        enforce(self)
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

    @property
    def spec(self) -> EventSpec:
        p = self.dimension
        return linear_form(self.n_actions, (p,) if self.disjoint else (self.n_actions, p))

    @property
    def _shape(self) -> tuple[int, ...]:
        """The shape of V."""
        square = (self.dimension, self.dimension)
        return (self.n_actions, *square) if self.disjoint else square

    def init(self) -> SumsAndInverse:
        nothing = np.zeros(self._shape)
        inverse = nothing + np.eye(self.dimension) / self.beta
        return SumsAndInverse(no_sums(self._shape), read_only(nothing), read_only(inverse))

    def merge(self, first: SumsAndInverse, second: SumsAndInverse) -> SumsAndInverse:
        del first, second
        raise NotMergeable(
            "each estimate depends on the features of all rounds before it; "
            "replay the logs one after the other instead"
        )

    def rounds(self, state: SumsAndInverse) -> int:
        return state.sums.rounds

    def validate(self, state: SumsAndInverse) -> None:
        self._check_own(state)
        n, B = state.sums.rounds, self.feature_bound
        longest = B / self.beta  # of any θ̂ = Mφ R
        # An inverse is right to the last digits of its condition number, at most B²/β.
        rounding = max(ROUNDING, 16 * self.dimension * EPSILON * B**2 / self.beta)
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
        if not possible:
            raise self._foreign(state)

    def _fits(self, state: SumsAndInverse) -> bool:
        return (
            isinstance(state, SumsAndInverse)
            and isinstance(state.sums, Sums)
            and state.sums.squares.shape == state.seen.shape == state.inverse.shape == self._shape
            and state.sums.theta.shape == self._shape[:-1]
        )

    def _check_size(self, what: str, features: Array) -> None:
        refuse_long(what, features, self.feature_bound)

    def _policy(self, state: SumsAndInverse, features: Array) -> Array:
        one = features[np.newaxis]
        return np.asarray(policies_of(state.sums, self.eta, one, self.n_actions)[0])

    def _learn(self, state: SumsAndInverse, log: Log) -> SumsAndInverse:
        return self._policies(state, log)[0]

    def _policies(self, state: SumsAndInverse, log: Log) -> tuple[SumsAndInverse, Array]:
        before, parts = state.sums.rounds, [np.empty((0, self.n_actions))]
        for start, rounds in chunks_of_constant_rate(before, len(log), max(1, len(log))):
            state, policies = self._with_one_inverse(state, log[start : start + rounds])
            parts.append(policies)
        return state, np.concatenate(parts)

    def _with_one_inverse(self, state: SumsAndInverse, log: Log) -> tuple[SumsAndInverse, Array]:
        """A stretch in which M stays; it is made anew if the stretch begins where it moves."""
        t, inverse, seen = state.sums.rounds + 1, state.inverse, state.seen.copy()
        if last_change(np.array([t]))[0] == t:
            inverse = self._inverse(seen, rounds=t - 1)
        thetas = theta_hats(inverse, log)
        sums, policies = learned(
            state.sums, np.full(len(log), self.eta), thetas, log, self.n_actions
        )
        kernels.lin_prod.add_squares(
            kernel_view(played(log.features, log.actions)), kernel_view(log.actions), blocks(seen)
        )
        return SumsAndInverse(sums, read_only(seen), inverse), policies

    def _inverse(self, seen: Array, rounds: int) -> Array:
        """(V̂ + βI)⁻¹, with V̂ = 0 before the first round."""
        matrices = seen / max(1, rounds) + self.beta * np.eye(self.dimension)
        kernels.lin_prod.invert(blocks(matrices))
        return read_only(matrices)
