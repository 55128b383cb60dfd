"""LinProd: Algorithm 2 of the paper, with the product computed exactly, in logarithms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from understudy.constraints import HORIZON, POSITIVE, RATE, TRUTH, Array, array, enforce, having
from understudy.errors import InadmissibleRate, InvalidArgument, InvalidEvent
from understudy.learners.exponential_weights import softmax
from understudy.learners.features import Features, times
from understudy.theory import largest_lin_prod_rate, leverage
from understudy.types import Feedback, Form, Integers, Log, Trace, frozen, rounds_past, saved

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
    context asked about. A round costs O(t K d): the product is over all rounds before.

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

    def policy(self, state: Estimates, features: Array | None = None) -> Array:
        if features is None or np.shape(features) != self.features.shape:
            raise InvalidArgument(
                "features",
                None if features is None else np.shape(features),
                f"the policy depends on the context, given as features of shape "
                f"{self.features.shape}",
                "pass learner.policy(state, features)",
            )
        checked = FEATURES("features", features)
        self._check_leverage(checked[np.newaxis])
        return self._policy(state.thetas, state.actions, checked)

    def update(self, state: Estimates, feedback: Feedback) -> Estimates:
        log = feedback.as_log()
        self._check(log)
        return self._append(state, log)

    def policies(self, state: Estimates, log: Log) -> tuple[Estimates, Array]:
        self._check(log)
        after = self._append(state, log)
        rows = list(self._each_policy(len(state.thetas), after, log))
        return after, np.array(rows).reshape(len(log), self.features.n_actions)

    def replay(self, state: Estimates, log: Log) -> tuple[Estimates, Trace]:
        self._check(log)
        after = self._append(state, log)
        policies = self._each_policy(len(state.thetas), after, log)
        played = [policy[b] for policy, b in zip(policies, log.actions, strict=True)]
        past = min(self.past_horizon(after), len(log))
        return after, Trace(frozen(np.array(played, dtype=np.float64)), past)

    def merge(self, first: Estimates, second: Estimates) -> Estimates:
        self.validate(first)
        self.validate(second)
        return self._joined(first, second)

    def _joined(self, first: Estimates, second: Estimates) -> Estimates:
        return Estimates(
            frozen(np.concatenate([first.thetas, second.thetas])),
            frozen(np.concatenate([first.actions, second.actions])),
        )

    def rounds(self, state: Estimates) -> int:
        return len(state.thetas)

    def past_horizon(self, state: Estimates) -> int:
        return rounds_past(self.horizon, self.rounds(state))

    def validate(self, state: Estimates) -> None:
        if (
            not isinstance(state, Estimates)
            or state.thetas.shape != (len(state.actions), self.features.shape[-1])
            or (state.actions >= self.features.n_actions).any()
            or not self._can_be_estimates(state)
        ):
            raise InvalidArgument(
                "state",
                state,
                f"it is not a state of this learner of {self.features.shape} features",
                "start from learner.init(), or load the learner with its state",
            )

    def _can_be_estimates(self, state: Estimates) -> bool:
        """θ̂ᵀVθ̂ = R² φᵀV⁻¹φ ≤ κ: beyond it, a factor 1 + ηr̂ could be negative."""
        V = self.features.V if self.features.V.ndim == 2 else self.features.V[state.actions]  # noqa: PLR2004
        size = (times(V, state.thetas) * state.thetas).sum(axis=-1)
        return bool((size <= self.kappa * (1 + ROUNDING)).all())

    def _policy(self, thetas: Array, actions: Integers, features: Array) -> Array:
        r_hat = self.features.estimated_rewards(thetas, actions, features)
        return softmax(1.0, np.log1p(self.eta * r_hat).sum(axis=1))

    def _each_policy(self, start: int, after: Estimates, log: Log) -> Iterator[Array]:
        assert log.features is not None
        for t, features in enumerate(log.features, start):
            yield self._policy(after.thetas[:t], after.actions[:t], features)

    def _append(self, state: Estimates, log: Log) -> Estimates:
        thetas = self.features.theta_hat(log.features, log.actions, log.rewards)
        return self._joined(state, Estimates(thetas, log.actions))

    def _check(self, log: Log) -> None:
        self.form.check(log)
        self._check_leverage(log.features)

    def _check_leverage(self, features: Any) -> None:
        found = leverage(features, self.features.V_inverse)
        self._refuse_above("kappa", self.kappa, found, "φᵀV⁻¹φ")
        if self.feature_bound is not None:
            norms = self.features.norms(features)
            self._refuse_above("feature_bound", self.feature_bound, norms, "‖φ‖")

    def _refuse_above(self, bound: str, value: float, found: Array, symbol: str) -> None:
        above = found > value * (1 + ROUNDING)
        if above.any():
            t, a = np.argwhere(above)[0]
            raise InvalidEvent(
                f"features of event {t}",
                f"{symbol} = {found[t, a]:.6g} for action {a}",
                f"{bound} = {value:.6g} was promised as an upper bound, and the guarantee needs it",
                f"make the learner with a larger {bound}, or scale the features",
            )


FEATURES = array("pass φ(x, ·) as (K, d), or the context as (p,)", dimensions=(1, 2))
