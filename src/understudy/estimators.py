"""Reward estimates from the behavior policy's rewards: one formula each.

In round t the behavior policy plays b = A^B_t with probability q(b) and gets R = R^B_t. An
estimator says by how much the score of b grows; all other scores stay. The learner needs no more
than that (`learners/exponential_weights.py`).

    ImportanceWeighting    R / q(b)                   unbiased; Exp3
    ImplicitExploration    R / (q(b) + γ_t)           pessimistic; Exp3-IX, Theorem 1
    Logarithmic            log(1 + η R / q(b)) / η    pessimistic; Prod
    PlugIn                 R / (q̂_t(b) + γ_t)         q unknown, counted; Theorem 2
    ChernoffPlugIn         R / (ucb_t(b) + γ_t)       q unknown, bounded by what was counted

Pessimism needs rewards R ≥ 0 where more is better: for losses the same formulas are optimistic.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from understudy import kernels
from understudy.behaviors import BEHAVIOR, Behavior, propensities_of
from understudy.constraints import N_ACTIONS, Array, Checked, Constraint, ConstraintViolation
from understudy.deprecated import OldName, adopt_old_members
from understudy.errors import InvalidArgument
from understudy.protocols import EventSpec
from understudy.schedules import ETA, GAMMA, Constant, Rate, Schedule, Tabulated, rate_at
from understudy.types import Integers, Log, kernel_view, read_only, saved

__all__ = [
    "ChernoffPlugIn",
    "CountedBehavior",
    "GainFormula",
    "ImplicitExploration",
    "ImportanceWeighting",
    "KnownBehavior",
    "Logarithmic",
    "PlugIn",
    "implicit_gain",
    "logarithmic_gain",
]

NO_MEMORY: Integers = read_only(np.zeros(0, dtype=np.int64))


def implicit_gain(R: Any, q: Any, gamma: Any) -> Any:
    """R/(q + γ), the gain of implicit exploration; γ = 0 gives importance weighting.

    Of numbers, arrays, or expressions of a dataframe library.

    >>> implicit_gain(np.array([1.0]), np.array([0.25]), 0.25).tolist()
    [2.0]
    """
    return R / (q + gamma)


def logarithmic_gain(R: Any, q: Any, eta: Any, log1p: Callable[[Any], Any] = np.log1p) -> Any:
    """log(1 + η R/q) / η: the largest gain with e^{ηg} ≤ 1 + η R/q.

    Of numbers or arrays; of expressions with their own `log1p`.

    >>> logarithmic_gain(np.array([1.0]), np.array([0.25]), 0.5).round(4).tolist()
    [2.1972]
    """
    return log1p(eta * (R / q)) / eta


@dataclass(frozen=True, eq=False)
class GainFormula:
    """The gain of an event as a formula of its reward R, its propensity q and a rate.

    `rates` has one entry for all actions, or one for each action, or one for each level of a grid.
    The kernel of `weighted_entropy` computes the same formulas: the tests compare the two.

    >>> formula = GainFormula(False, rates=np.array([0.25]), behavior=np.array([0.5, 0.5]))
    >>> formula(1.0, 0.25, formula.rates).tolist()
    [2.0]
    """

    logarithmic: bool
    rates: Array
    behavior: Behavior

    def __call__(self, R: Any, q: Any, rate: Any, log1p: Callable[[Any], Any] = np.log1p) -> Any:
        """The gain at one of the `rates`."""
        return (
            logarithmic_gain(R, q, rate, log1p) if self.logarithmic else implicit_gain(R, q, rate)
        )


class CheckedEstimator(Checked, ABC):
    """Base of the estimators here: checked fields, and the old names of members."""

    if not TYPE_CHECKING:  # a subclass of 0.5 defines them
        form, reads_past, remembers = OldName(), OldName(), OldName()

    @property
    @abstractmethod
    def order_dependence(self) -> str | None:
        """Why states cannot be merged, or None."""

    def __init_subclass__(cls) -> None:
        adopt_old_members(cls, CheckedEstimator)

    @property
    def memory_ignores_rewards(self) -> bool:
        """Whether gains can be made for both rewards, 0 and 1, before one of them is drawn."""
        return type(self).gains in {KnownBehavior.gains, CountedBehavior.gains}  # type: ignore[attr-defined] # of a subclass


@dataclass(frozen=True, eq=False)
class KnownBehavior(CheckedEstimator):
    """Base of the estimators with a known q: a subclass defines `gain` and `order_dependence`."""

    behavior: Behavior
    CONSTRAINTS: ClassVar[dict[str, Constraint]] = {"behavior": BEHAVIOR}

    @abstractmethod
    def gain(self, R: Array, q: Array, t: Integers) -> Array:
        """The gains of events with reward R, played with probability q in rounds t."""

    @cached_property
    def spec(self) -> EventSpec:
        return EventSpec.for_behavior(self.behavior)

    @property
    def formula(self) -> GainFormula | None:
        """The gain as a formula of R, q and a rate that is the same in all rounds, if it is one."""
        return None

    def init(self) -> Integers:
        return NO_MEMORY

    def accepts_memory(self, memory: Integers, rounds: int) -> bool:  # noqa: ARG002 - nothing, ever
        return memory.shape == NO_MEMORY.shape

    def gains(self, memory: Integers, start: int, log: Log) -> tuple[Array, Integers]:
        q = propensities_of(self.behavior, log)
        return self.gain(log.rewards, q, rounds_of(start, log)), memory


@saved
@dataclass(frozen=True, eq=False)
class ImportanceWeighting(KnownBehavior):
    r"""The unbiased estimate $\hat r_t(b) = R / q(b)$.

    >>> log = Log(actions=[0, 1], rewards=[1.0, 0.5])
    >>> estimator = ImportanceWeighting(behavior=[0.5, 0.25, 0.25])
    >>> estimator.gains(estimator.init(), 0, log)[0].tolist()
    [2.0, 2.0]
    """

    order_dependence: ClassVar[None] = None

    @property
    def formula(self) -> GainFormula:
        return GainFormula(logarithmic=False, rates=np.zeros(1), behavior=self.behavior)

    def gain(self, R: Array, q: Array, t: Integers) -> Array:  # noqa: ARG002 - the same in all t
        return R / q


@saved
@dataclass(frozen=True, eq=False)
class ImplicitExploration(KnownBehavior):
    r"""The IX estimate of Algorithm 1, $\tilde r_t(b) = R / (q(b) + \gamma_t)$.

    >>> log = Log(actions=[0, 1], rewards=[1.0, 0.5])
    >>> estimator = ImplicitExploration(behavior=[0.5, 0.25, 0.25], gamma=0.25)
    >>> estimator.gains(estimator.init(), 0, log)[0].round(4).tolist()
    [1.3333, 1.0]
    """

    gamma: Schedule
    CONSTRAINTS: ClassVar = {"behavior": BEHAVIOR, "gamma": GAMMA}

    @property
    def order_dependence(self) -> str | None:
        return "γ_t depends on the round in which an event happened" if self.gamma.varies else None

    @property
    def formula(self) -> GainFormula | None:
        if self.gamma.varies:
            return None
        rates = self.gamma(np.ones(1, dtype=np.int64))
        return GainFormula(logarithmic=False, rates=rates, behavior=self.behavior)

    def gain(self, R: Array, q: Array, t: Integers) -> Array:
        gains: Array = implicit_gain(R, q, self.gamma(t))
        return gains


@saved
@dataclass(frozen=True, eq=False)
class Logarithmic(KnownBehavior):
    r"""The estimate behind Prod, $\frac1\eta \log(1 + \eta R / q(b))$: at least IX's with γ = η/2.

    >>> log = Log(actions=[0, 1], rewards=[1.0, 0.5])
    >>> estimator = Logarithmic(behavior=[0.5, 0.25, 0.25], eta=0.5)
    >>> estimator.gains(estimator.init(), 0, log)[0].round(4).tolist()
    [1.3863, 1.3863]
    """

    eta: Rate
    CONSTRAINTS: ClassVar = {"behavior": BEHAVIOR, "eta": ETA}

    @property
    def order_dependence(self) -> str | None:
        return None if isinstance(self.eta, float) else "η_t depends on the round of an event"

    @property
    def formula(self) -> GainFormula | None:
        if not isinstance(self.eta, float):
            return None
        return GainFormula(logarithmic=True, rates=np.array([self.eta]), behavior=self.behavior)

    def gain(self, R: Array, q: Array, t: Integers) -> Array:
        return np.asarray(logarithmic_gain(R, q, rate_at(self.eta, t)))


@dataclass(frozen=True, eq=False)
class CountedBehavior(CheckedEstimator):
    r"""Base of the estimators with an unknown q: a subclass defines `gain`, of the frequencies

    $\hat q_1 = 0$, $\hat q_t(a) = \#\{k < t : A^B_k = a\} / (t-1)$. The memory is the counts.
    """

    n_actions: int
    gamma: Schedule
    CONSTRAINTS: ClassVar[dict[str, Constraint]] = {"n_actions": N_ACTIONS, "gamma": GAMMA}
    order_dependence: ClassVar[str] = (
        "q̂_t, the behavior counted so far, depends on the order of events"
    )

    @abstractmethod
    def gain(self, R: Array, q_hat: Array, t: Integers) -> Array:
        """The gains of events with reward R, whose action has had frequency q̂_t in rounds t."""

    @cached_property
    def spec(self) -> EventSpec:
        unread = "leave it out, in a log with log.visible(propensities=False, features=False)"
        return EventSpec(self.n_actions, unread=unread)

    def init(self) -> Integers:
        return read_only(np.zeros(self.n_actions, dtype=np.int64))

    def accepts_memory(self, memory: Integers, rounds: int) -> bool:
        return memory.shape == (self.n_actions,) and sum(memory.tolist()) == rounds

    def gains(self, memory: Integers, start: int, log: Log) -> tuple[Array, Integers]:
        t = rounds_of(start, log)
        counts, seen = memory.copy(), np.empty(len(log), dtype=np.int64)
        kernels.confidence.count_before(counts, kernel_view(log.actions), seen)
        return self.gain(log.rewards, seen / np.maximum(t - 1, 1), t), read_only(counts)


def _above_zero(value: Any) -> Schedule:
    gamma: Schedule = GAMMA.parse(value)
    if isinstance(gamma, Constant | Tabulated) and (np.asarray(gamma.gamma) <= 0).any():
        raise ConstraintViolation(ZERO)
    return gamma


ZERO = "an action that was not seen yet has q̂ = 0, and R / (q̂ + 0) has no value"
ABOVE_ZERO = Constraint(
    "pass γ > 0, or leave it out for Theorem 2's", _above_zero, (*GAMMA.wrong, 0.0, [0.1, 0.0])
)


@saved
@dataclass(frozen=True, eq=False)
class PlugIn(CountedBehavior):
    r"""IX with the behavior counted so far: $\tilde r_t(b) = R / (\hat q_t(b) + \gamma_t)$.

    >>> log = Log(actions=[0, 0, 1], rewards=[1.0, 1.0, 1.0])
    >>> estimator = PlugIn(n_actions=2, gamma=0.5)
    >>> gains, counts = estimator.gains(estimator.init(), 0, log)
    >>> gains.round(4).tolist(), counts.tolist()
    ([2.0, 0.6667, 2.0], [2, 1])
    """

    CONSTRAINTS: ClassVar = {"n_actions": N_ACTIONS, "gamma": ABOVE_ZERO}

    def gain(self, R: Array, q_hat: Array, t: Integers) -> Array:
        gamma = self.gamma(t)
        if (gamma <= 0).any():
            raise InvalidArgument("gamma", float(gamma.min()), ZERO, ABOVE_ZERO.remedy)
        return np.asarray(implicit_gain(R, q_hat, gamma))


@saved
@dataclass(frozen=True, eq=False)
class ChernoffPlugIn(CountedBehavior):
    r"""IX with an upper confidence bound on q(b): $\tilde r_t(b) = R / (u_t(b) + \gamma_t)$,

    $u_1 = 1$, $u_t(a) = \max\{p : (t-1)\,\mathrm{kl}(\hat q_t(a), p) \le \log(K t^2)\}$: far less
    pessimistic than Theorem 2's width where q is small. As u_t > 0, γ may be 0.

    >>> log = Log(actions=[0, 0, 1], rewards=[1.0, 1.0, 1.0])
    >>> estimator = ChernoffPlugIn(n_actions=2, gamma=0.5)
    >>> gains, counts = estimator.gains(estimator.init(), 0, log)
    >>> gains.round(4).tolist(), counts.tolist()
    ([0.6667, 0.6667, 0.791], [2, 1])
    """

    def gain(self, R: Array, q_hat: Array, t: Integers) -> Array:
        budget, ucb = math.log(self.n_actions) + 2.0 * np.log(t), np.empty(len(t))
        kernels.confidence.kl_uppers(
            kernel_view(q_hat), kernel_view(t - 1), kernel_view(budget), ucb
        )
        return np.asarray(implicit_gain(R, ucb, self.gamma(t)))


def rounds_of(start: int, log: Log) -> Integers:
    """The paper's t = 1, 2, … of every event, after `start` rounds."""
    return np.arange(start + 1, start + len(log) + 1, dtype=np.int64)
