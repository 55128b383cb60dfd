"""Features φ(x, a), their covariance V = V(π_B), and the checks that linear learners share.

`SharedFeatures`: one vector φ(x, a) ∈ R^d per action, V is (d, d).
`DisjointFeatures`: φ(x, a) = e_a ⊗ x, so that V is K blocks (p, p) and nothing of size K·p
is ever built.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.constraints import (
    FEATURE_BOUND,
    HORIZON,
    N_ACTIONS,
    POSITIVE,
    TRUTH,
    Array,
    Checked,
    enforce,
    having,
    refuse_large_state,
)
from understudy.errors import InadmissibleRate, InvalidArgument, InvalidEvent
from understudy.protocols import EventSpec, Learner
from understudy.schedules import ETA, Rate
from understudy.theory.coverage_ratio import COVARIANCE, COVARIANCE_BLOCKS, leverage
from understudy.theory.rates import largest_lin_prod_rate
from understudy.types import (
    CONTEXTS,
    FEATURES,
    Integers,
    Log,
    chunks,
    kernel_view,
    read_only,
    rounds_per_chunk,
    saved,
)

ROUNDING = 1e-9  # relative: φᵀV⁻¹φ is computed, κ may have been computed otherwise

State = TypeVar("State")


class KnownFeatures(Checked):
    """Base of the two kinds of features: a checked V, and its inverse."""

    V: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.V_inverse  # computed here, because a worker's LAPACK may round otherwise

    @cached_property
    def V_inverse(self) -> Array:  # noqa: N802 - the paper's V
        return read_only(np.linalg.inv(self.V))


@saved
@dataclass(frozen=True, eq=False)
class SharedFeatures(KnownFeatures):
    """φ(x, ·) as a matrix (K, d); V (d, d).

    >>> SharedFeatures(V=[[0.5, 0.0], [0.0, 0.5]], n_actions=3).shape
    (3, 2)
    """

    V: Array
    n_actions: int
    CONSTRAINTS: ClassVar = {"V": COVARIANCE, "n_actions": N_ACTIONS}

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n_actions, len(self.V))

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
        kernels.lin_prod.shared_log_weights(eta, kernel_view(thetas), start, features, out)
        return out


@saved
@dataclass(frozen=True, eq=False)
class DisjointFeatures(KnownFeatures):
    """The context x as a vector (p,), one block of parameters per action; V (K, p, p).

    >>> DisjointFeatures(V=[[[0.5]], [[0.25]]]).shape
    (1,)
    """

    V: Array
    CONSTRAINTS: ClassVar = {"V": COVARIANCE_BLOCKS}

    @property
    def n_actions(self) -> int:
        return len(self.V)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.V.shape[-1],)

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
            eta, kernel_view(thetas), kernel_view(actions), start, features, out
        )
        return out


Features = SharedFeatures | DisjointFeatures


def features_by_action(features: Any) -> Array:
    """φ(X_t, ·) of every round as (n, K, d); contexts, which all actions share, as (n, 1, p)."""
    return np.asarray(features if features.ndim == 3 else features[:, np.newaxis])  # noqa: PLR2004 - (n, K, d)


def played_features(features: Any, actions: Integers) -> Array:
    """φ(X_t, b) of every round, (n, d); contexts, of which b takes its block, as they are."""
    shown = features_by_action(features)
    return np.asarray(shown[np.arange(len(actions)), np.minimum(actions, shown.shape[1] - 1)])


def theta_hats(V_inverse: Array, log: Log) -> Array:
    """θ̂_t = V⁻¹ φ(X_t, b) R of every round, (n, d); of blocks V⁻¹, the one that is not zero.

    Not by BLAS, which may sum in another order for many rows than for one: `update` must give the
    bits of `replay`.
    """
    size = V_inverse.shape[-1]
    parts = [np.empty((0, size))]
    for start, count in chunks(len(log), rounds_per_chunk(size**2)):
        part = log[start : start + count]
        phi = played_features(part.features, part.actions) * part.rewards[:, np.newaxis]
        matrix = V_inverse if V_inverse.ndim == 2 else V_inverse[part.actions]  # noqa: PLR2004
        parts.append((matrix * phi[:, np.newaxis, :]).sum(axis=-1))
    return np.concatenate(parts)


class Linear(Learner[State]):
    """A learner of features φ(x, a): checks features, and leaves the weights to a subclass."""

    @abstractmethod
    def _check_size(self, features: Array, *, numbered: bool) -> None:
        """Raise `InvalidEvent` at the first features, (n, …), that are larger than promised.

        The error says which event it is if they are `numbered`.
        """

    @abstractmethod
    def _policies_at(self, state: State, features: Array) -> Array:
        """π_t(·|x) of a checked context, given as (1, …): (1, K)."""

    def policy(self, state: State, features: ArrayLike | None = None) -> Array:
        self.check_state(state)
        checked = FEATURES("features", features)[np.newaxis]
        self._check_contexts(checked, numbered=False)
        return np.asarray(self._policies_at(state, checked)[0])

    def policies_at(self, state: State, features: ArrayLike | None, rows: int = 1) -> Array:
        del rows  # there are as many as contexts
        self.check_state(state)
        checked: Array = CONTEXTS("features", features)
        self._check_contexts(checked, numbered=True)
        return self._policies_at(state, checked)

    def variants_at(self, state: State, features: Array) -> Array:
        return self._policies_at(state, features)[:, np.newaxis]

    def expected_reward(
        self, state: State, log: Log, rewards: Array, starts: Integers
    ) -> tuple[State, float]:
        self.check_log(log)  # a game bounds no features
        return super().expected_reward(state, log, rewards, starts)

    def check_log(self, log: Log) -> None:
        super().check_log(log)
        self._check_size(log.features, numbered=True)  # type: ignore[arg-type] # it has some

    def _check_contexts(self, features: Array, *, numbered: bool) -> None:
        if features.shape[1:] != self.spec.features:
            raise InvalidArgument(
                "features",
                features.shape[1:],
                f"each context must be given as features of shape {self.spec.features}",
                "pass φ(x, ·), or the context x if features are disjoint",
            )
        self._check_size(features, numbered=numbered)


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
        largest = self.largest_rate
        if isinstance(self.eta, float) and self.eta > largest:
            raise InadmissibleRate(
                "eta",
                self.eta,
                f"with kappa = {self.kappa:.6g} the factors 1 + ηr̂ can leave [½, 1½] and "
                "Theorem 3 does not hold",
                f"pass eta <= {largest!r}, the largest admissible rate",
                largest=largest,
            )

    @cached_property
    def largest_rate(self) -> float:
        """1/(2κ), the largest admissible η."""
        return largest_lin_prod_rate(self.kappa)

    @cached_property
    def spec(self) -> EventSpec:
        return linear_spec(self.features.n_actions, self.features.shape)

    def _check_size(self, features: Array, *, numbered: bool) -> None:
        if self.feature_bound is not None:
            check_feature_norms(features, self.feature_bound, numbered)
        with np.errstate(over="ignore", invalid="ignore"):  # then it is not below κ
            found = leverage(features, self.features.V_inverse)
        check_promised_bound("kappa", self.kappa, found, "φᵀV⁻¹φ", numbered)


def linear_spec(n_actions: int, features: tuple[int, ...]) -> EventSpec:
    """What an event must look like for a learner of features of this shape."""
    unread = "leave it out, in a log with log.visible(propensities=False, features=True)"
    return EventSpec(n_actions, features=features, unread=unread)


def refuse_large_regressions(n_actions: int, dimension: int, numbers: Callable[[int], int]) -> None:
    """Raise `InvalidArgument` if a state with `numbers(dimension)` numbers would be too large."""
    refuse_large_state("n_actions", n_actions, lambda K: K)
    instead = ", or map contexts to fewer features, such as us.learners.random_fourier draws"
    refuse_large_state("dimension", dimension, numbers, instead=instead)


def check_feature_norms(features: Array, feature_bound: float, numbered: bool) -> None:
    """Raise `InvalidEvent` at the first φ(x, a) with ‖φ‖ > B."""
    with np.errstate(over="ignore"):
        norms = np.asarray(np.linalg.norm(features_by_action(features), axis=-1))
    check_promised_bound("feature_bound", feature_bound, norms, "‖φ‖", numbered)


def check_promised_bound(bound: str, value: float, found: Any, symbol: str, numbered: bool) -> None:
    """Raise `InvalidEvent` at the first features, (n, K), that exceed what was promised."""
    above = ~(found <= value * (1 + ROUNDING))  # so that nan, of what overflowed, is above too
    if above.any():
        t, a = np.argwhere(above)[0]
        raise InvalidEvent(
            f"features of event {t}" if numbered else "features",
            f"{symbol} = {found[t, a]:.6g} for action {a}",
            f"{bound} = {value:.6g} was promised as an upper bound, and the guarantee needs it",
            f"make the learner with a larger {bound}, or scale the features",
        )
