"""LinProd: Algorithm 2 of the paper, with the product computed exactly, in logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from understudy import kernels
from understudy.constraints import RATE, Array, array
from understudy.learners.linear import ROUNDING, KnownCovariance, theta_hats
from understudy.types import Integers, Log, kernel_view, read_only, saved

__all__ = ["Estimates", "LinProd"]


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

    `capped` says that the theorem's rate was above 1/(2κ) and was lowered to it.
    """

    eta: float
    CONSTRAINTS: ClassVar = {**KnownCovariance.CONSTRAINTS, "eta": RATE}

    def init(self) -> Estimates:
        no_rounds = read_only(np.zeros((0, self.features.shape[-1])))
        return Estimates(no_rounds, read_only(np.zeros(0, dtype=np.int64)))

    def merge(self, first: Estimates, second: Estimates) -> Estimates:
        self.validate(first)
        self.validate(second)
        return joined([first, second])

    def rounds(self, state: Estimates) -> int:
        return len(state.thetas)

    def validate(self, state: Estimates) -> None:
        self._check_own(state)
        size = self.features.squared_norms(state.thetas, state.actions)
        if (size > self.kappa * (1 + ROUNDING)).any():
            # θ̂ᵀVθ̂ = R² φᵀV⁻¹φ ≤ κ: beyond it, a factor 1 + ηr̂ could be negative
            raise self._foreign(state)

    def _fits(self, state: Estimates) -> bool:
        return (
            isinstance(state, Estimates)
            and state.thetas.shape == (len(state.actions), self.features.shape[-1])
            and not (state.actions >= self.features.n_actions).any()
        )

    def _policy(self, state: Estimates, features: Array) -> Array:
        return np.asarray(self._from(len(state.thetas), state, features[np.newaxis])[0])

    def _learn(self, state: Estimates, log: Log) -> Estimates:
        thetas = theta_hats(self.features.V_inverse, log)
        return joined([state, Estimates(thetas, log.actions)])

    def _policies(self, state: Estimates, log: Log) -> tuple[Estimates, Array]:
        after = self._learn(state, log)
        return after, self._from(len(state.thetas), after, log.features)

    def _from(self, start: int, after: Estimates, features: Any) -> Array:
        """π_t(·|x) of rounds start + 1, …, one per row of features, (n, K)."""
        policies = self.features.log_weights(
            self.eta, after.thetas, after.actions, start, kernel_view(features)
        )
        kernels.lin_prod.softmax(policies)
        return policies


def joined(parts: Sequence[Estimates]) -> Estimates:
    """The estimates of one stretch of log after the other."""
    return Estimates(
        read_only(np.concatenate([part.thetas for part in parts])),
        read_only(np.concatenate([part.actions for part in parts])),
    )
