"""LinProd: Algorithm 2 of the paper, with the product computed exactly, in logarithms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.constraints import HORIZON, POSITIVE, RATE, TRUTH, Array, array, enforce, having
from understudy.errors import InadmissibleRate, InvalidArgument, InvalidEvent
from understudy.learners.features import Features
from understudy.protocols import Form, not_a_state
from understudy.theory import largest_lin_prod_rate, leverage
from understudy.types import (
    FEATURES,
    Feedback,
    Integers,
    Log,
    Trace,
    frozen,
    given,
    one_event,
    rounds_past,
    rounds_per_stretch,
    saved,
    spread,
)

__all__ = ["Estimates", "LinProd"]

ROUNDING = 1e-9  # relative: φᵀV⁻¹φ is computed, κ may have been computed otherwise


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
class LinProd:
    r"""Plays $\pi_t(a|x) \propto \prod_{k<t} (1 + \eta \langle\hat\theta_k, \varphi(x,a)\rangle)$

    with the unbiased $\hat\theta_t = V^{-1} \varphi(X_t, A^B_t) R^B_t$. All factors stay in
    [½, 1½] because η κ ≤ ½ for κ ≥ sup φᵀV⁻¹φ, which is checked on every event and every
    context asked about. A round costs O(t K d): the product is over all rounds before
    (`kernels/lin_prod.py`).

    `capped` says that the theorem's rate was above 1/(2κ) and was lowered to it.
    """

    eta: float
    features: Features
    kappa: float
    feature_bound: float | None = None
    horizon: int | None = None
    capped: bool = False
    CONSTRAINTS: ClassVar = {
        "eta": RATE,
        "features": having("pass SharedFeatures or DisjointFeatures", "V_inverse", "theta_hat"),
        "kappa": POSITIVE,
        "feature_bound": POSITIVE.optional(),
        "horizon": HORIZON.optional(),
        "capped": TRUTH,
    }

    def __post_init__(self) -> None:
        enforce(self)
        largest = largest_lin_prod_rate(self.kappa)
        if self.eta > largest:
            raise InadmissibleRate(
                "eta",
                self.eta,
                f"with kappa = {self.kappa:.6g} the factors 1 + ηr̂ can leave [½, 1½] and "
                "Theorem 3 does not hold",
                f"pass eta <= {largest!r}, the largest admissible rate",
                largest=largest,
            )

    @property
    def form(self) -> Form:
        return Form(self.features.n_actions, features=self.features.shape)

    def init(self) -> Estimates:
        no_rounds = frozen(np.zeros((0, self.features.shape[-1])))
        return Estimates(no_rounds, frozen(np.zeros(0, dtype=np.int64)))

    def policy(self, state: Estimates, features: ArrayLike | None = None) -> Array:
        self._check_own(state)
        checked = FEATURES("features", features)
        if checked.shape != self.features.shape:
            raise InvalidArgument(
                "features",
                checked.shape,
                f"the context asked about must be given as features of shape {self.features.shape}",
                "pass φ(x, ·), or the context x if features are disjoint",
            )
        self._check_size("features", checked[np.newaxis])
        policies = self._policies(len(state.thetas), state, checked[np.newaxis])
        return np.asarray(policies[0])

    def update(self, state: Estimates, feedback: Feedback) -> Estimates:
        self._check_own(state)
        log = one_event(feedback)
        self._check(log)
        return self._append(state, log)

    def policies(self, state: Estimates, log: Log) -> tuple[Estimates, Array]:
        self._check_own(state)
        self._check(log)
        after = self._append(state, log)
        return after, self._policies(len(state.thetas), after, log.features)

    def replay(self, state: Estimates, log: Log) -> tuple[Estimates, Trace]:
        self._check_own(state)
        self._check(log)
        after = self._append(state, log)
        policies = self._policies(len(state.thetas), after, log.features)
        probability = policies[np.arange(len(log)), log.actions]
        past = min(self.past_horizon(after), len(log))
        return after, Trace(frozen(probability), past, self.features.n_actions)

    def earn(
        self, state: Estimates, log: Log, rewards: Array, starts: Integers
    ) -> tuple[Estimates, float]:
        after, policies = self.policies(state, log)
        return after, float((policies * spread(rewards, starts, len(log))).sum())

    def merge(self, first: Estimates, second: Estimates) -> Estimates:
        self.validate(first)
        self.validate(second)
        return joined([first, second])

    def rounds(self, state: Estimates) -> int:
        return len(state.thetas)

    def past_horizon(self, state: Estimates) -> int:
        return rounds_past(self.horizon, self.rounds(state))

    def validate(self, state: Estimates) -> None:
        self._check_own(state)
        size = self.features.squared_norms(state.thetas, state.actions)
        if (size > self.kappa * (1 + ROUNDING)).any():
            # θ̂ᵀVθ̂ = R² φᵀV⁻¹φ ≤ κ: beyond it, a factor 1 + ηr̂ could be negative
            raise not_a_state(state, f"features {self.features.shape}")

    def _check_own(self, state: Estimates) -> None:
        if (
            not isinstance(state, Estimates)
            or state.thetas.shape != (len(state.actions), self.features.shape[-1])
            or (state.actions >= self.features.n_actions).any()
        ):
            raise not_a_state(state, f"features {self.features.shape}")

    def _policies(self, start: int, after: Estimates, features: Any) -> Array:
        """π_t(·|x) of rounds start + 1, …, one per row of features, (n, K)."""
        policies = self.features.log_weights(
            self.eta, after.thetas, after.actions, start, given(features)
        )
        kernels.lin_prod.softmax(policies)
        return policies

    def _append(self, state: Estimates, log: Log) -> Estimates:
        estimates = [state]
        for part in log.stretches(rounds_per_stretch(self.features.V.shape[-1] ** 2)):
            thetas = self.features.theta_hat(part.features, part.actions, part.rewards)
            estimates.append(Estimates(thetas, part.actions))
        return joined(estimates)

    def _check(self, log: Log) -> None:
        self.form.check(log)
        self._check_size("features of event", log.features)

    def _check_size(self, what: str, features: Any) -> None:
        if self.feature_bound is not None:
            norms = self.features.norms(features)
            refuse_above(what, "feature_bound", self.feature_bound, norms, "‖φ‖")
        found = leverage(features, self.features.V_inverse)
        refuse_above(what, "kappa", self.kappa, found, "φᵀV⁻¹φ")


def joined(parts: Sequence[Estimates]) -> Estimates:
    """The estimates of one stretch of log after the other."""
    return Estimates(
        frozen(np.concatenate([part.thetas for part in parts])),
        frozen(np.concatenate([part.actions for part in parts])),
    )


def refuse_above(what: str, bound: str, value: float, found: Array, symbol: str) -> None:
    """Raise `InvalidEvent` at the first features, (n, K), that exceed what was promised."""
    above = found > value * (1 + ROUNDING)
    if above.any():
        t, a = np.argwhere(above)[0]
        raise InvalidEvent(
            f"{what} {t}" if what.endswith("event") else what,
            f"{symbol} = {found[t, a]:.6g} for action {a}",
            f"{bound} = {value:.6g} was promised as an upper bound, and the guarantee needs it",
            f"make the learner with a larger {bound}, or scale the features",
        )
