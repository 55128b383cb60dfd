"""What all linear learners do alike: check what they are shown, and go through a log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import FEATURE_BOUND, HORIZON, POSITIVE, TRUTH, Array, enforce, having
from understudy.errors import InadmissibleRate, InvalidArgument, InvalidEvent
from understudy.learners.features import Features, rows
from understudy.protocols import Form, not_a_state
from understudy.schedules import ETA, Rate
from understudy.theory import largest_lin_prod_rate, leverage
from understudy.types import (
    FEATURES,
    Feedback,
    Integers,
    Log,
    Trace,
    frozen,
    one_event,
    rounds_past,
    spread,
)

__all__ = ["ROUNDING", "KnownCovariance", "Linear", "linear_form"]

State = TypeVar("State")

ROUNDING = 1e-9  # relative: φᵀV⁻¹φ is computed, κ may have been computed otherwise


class Linear(ABC, Generic[State]):
    """A learner of features φ(x, a): its weights are the subclass's, the rest is here."""

    horizon: int | None

    @property
    @abstractmethod
    def form(self) -> Form: ...

    @abstractmethod
    def rounds(self, state: State) -> int: ...

    @abstractmethod
    def _fits(self, state: State) -> bool:
        """Whether the state is of this learner's class and shapes."""

    @abstractmethod
    def _check_size(self, what: str, features: Array) -> None:
        """Raise `InvalidEvent` at the first features, (n, …), that are larger than promised."""

    @abstractmethod
    def _policy(self, state: State, features: Array) -> Array:
        """π_t(·|x) of one context, (K,)."""

    @abstractmethod
    def _learn(self, state: State, log: Log) -> State:
        """The state after a stretch of log."""

    @abstractmethod
    def _policies(self, state: State, log: Log) -> tuple[State, Array]:
        """The state after a stretch of log, and π_t(·|X_t) of each of its rounds, (n, K)."""

    def policy(self, state: State, features: ArrayLike | None = None) -> Array:
        self._check_own(state)
        checked = FEATURES("features", features)
        if checked.shape != self.form.features:
            raise InvalidArgument(
                "features",
                checked.shape,
                f"the context asked about must be given as features of shape {self.form.features}",
                "pass φ(x, ·), or the context x if features are disjoint",
            )
        self._check_size("features", checked[np.newaxis])
        return self._policy(state, checked)

    def update(self, state: State, feedback: Feedback) -> State:
        self._check_own(state)
        log = one_event(feedback)
        self._check(log)
        return self._learn(state, log)

    def policies(self, state: State, log: Log) -> tuple[State, Array]:
        self._check_own(state)
        self._check(log)
        return self._policies(state, log)

    def replay(self, state: State, log: Log) -> tuple[State, Trace]:
        after, policies = self.policies(state, log)
        probability = policies[np.arange(len(log)), log.actions]
        past = min(self.past_horizon(after), len(log))
        return after, Trace(frozen(probability), past, self.form.n_actions)

    def earn(self, state: State, log: Log, rewards: Array, starts: Integers) -> tuple[State, float]:
        """`replay` for a referee: Σ_t ⟨π_t, r_t⟩ in place of a trace.

        Row i of `rewards` holds from event starts[i] on.
        """
        after, policies = self.policies(state, log)
        return after, float((policies * spread(rewards, starts, len(log))).sum())

    def past_horizon(self, state: State) -> int:
        return rounds_past(self.horizon, self.rounds(state))

    def _check_own(self, state: State) -> None:
        if not self._fits(state):
            raise self._foreign(state)

    def _foreign(self, state: State) -> InvalidArgument:
        return not_a_state(state, f"features {self.form.features}")

    def _check(self, log: Log) -> None:
        self.form.check(log)
        self._check_size("features of event", log.features)  # type: ignore[arg-type] # it has some


@dataclass(frozen=True, eq=False)
class KnownCovariance(Linear[State]):
    """A linear learner that knows V(π_B), and so θ̂ and the largest rate 1/(2κ).

    Its factors 1 + η⟨θ̂, φ⟩ stay in [½, 1½] because η κ ≤ ½ for κ ≥ sup φᵀV⁻¹φ, which is checked on
    every event and every context asked about.
    """

    eta: Rate
    features: Features
    kappa: float
    feature_bound: float | None = None
    horizon: int | None = None
    capped: bool = False
    CONSTRAINTS: ClassVar = {
        "eta": ETA,
        "features": having("pass SharedFeatures or DisjointFeatures", "V_inverse", "log_weights"),
        "kappa": POSITIVE,
        "feature_bound": FEATURE_BOUND.optional(),
        "horizon": HORIZON.optional(),
        "capped": TRUTH,
    }

    def __post_init__(self) -> None:
        enforce(self)
        largest = largest_lin_prod_rate(self.kappa)
        if isinstance(self.eta, float) and self.eta > largest:
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
        return linear_form(self.features.n_actions, self.features.shape)

    def _check_size(self, what: str, features: Array) -> None:
        if self.feature_bound is not None:
            refuse_long(what, features, self.feature_bound)
        with np.errstate(over="ignore", invalid="ignore"):  # then it is not below κ
            found = leverage(features, self.features.V_inverse)
        refuse_above(what, "kappa", self.kappa, found, "φᵀV⁻¹φ")


def linear_form(n_actions: int, features: tuple[int, ...]) -> Form:
    """What an event must look like for a learner of features of this shape.

    >>> linear_form(2, (2, 3)).features
    (2, 3)
    """
    unread = "leave it out, in a log with log.visible(propensities=False, features=True)"
    return Form(n_actions, features=features, unread=unread)


def refuse_long(what: str, features: Array, feature_bound: float) -> None:
    """Raise `InvalidEvent` at the first φ(x, a) with ‖φ‖ > B."""
    with np.errstate(over="ignore"):
        norms = np.asarray(np.linalg.norm(rows(features), axis=-1))
    refuse_above(what, "feature_bound", feature_bound, norms, "‖φ‖")


def refuse_above(what: str, bound: str, value: float, found: Any, symbol: str) -> None:
    """Raise `InvalidEvent` at the first features, (n, K), that exceed what was promised."""
    above = ~(found <= value * (1 + ROUNDING))  # so that nan, of what overflowed, is above too
    if above.any():
        t, a = np.argwhere(above)[0]
        raise InvalidEvent(
            f"{what} {t}" if what.endswith("event") else what,
            f"{symbol} = {found[t, a]:.6g} for action {a}",
            f"{bound} = {value:.6g} was promised as an upper bound, and the guarantee needs it",
            f"make the learner with a larger {bound}, or scale the features",
        )
