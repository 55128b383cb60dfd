"""The games of plans: production, the mean reward of each action, the target and its guardrails.

All values have two possible outcomes. For bets that are small, as those of long logs are, only the
mean and the standard deviation of a metric matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from understudy import kernels
from understudy.behaviors import cdf
from understudy.certificates import Certificate, Guardrail, JointCertificate
from understudy.certificates.guardrails import LOWER
from understudy.certificates.targets import ratio_of_policy
from understudy.constraints import Array, Checked, having, number
from understudy.errors import InvalidArgument
from understudy.protocols import Learner
from understudy.theory.information import least_divergence
from understudy.types import kernel_view


@dataclass(frozen=True)
class PlannedGuardrail(Checked):
    """A guardrail of a plan, and what is known of its metric under production.

    Args:
        guardrail: the metric with its range and its margin.
        mean: its mean under production, in its units.
        deviation: its standard deviation; left out: the metric is a rate, all of whose values are
            the lowest or the highest one.
        effect: by how much the best action changes the mean, in its units.

    >>> import understudy as us
    >>> latency = us.Guardrail("latency_ms", low=0, high=2000, better="lower", margin=20)
    >>> planned = us.PlannedGuardrail(latency, mean=120, deviation=80)
    >>> [round(outcome, 3) for outcome in planned.unit_outcomes]
    [0.9, 0.98]
    """

    guardrail: Guardrail
    mean: float
    deviation: float | None = None
    effect: float = 0.0
    CONSTRAINTS: ClassVar = {
        "guardrail": having("pass a us.Guardrail", "unit", "unit_margin"),
        "mean": number(-math.inf, math.inf, "pass the mean of the metric under production"),
        "deviation": number(
            0.0, math.inf, "pass the standard deviation of the metric under production"
        ).optional(),
        "effect": number(-math.inf, math.inf, "pass a change of the mean, such as 0"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.guardrail.low, self.guardrail.high
        for name, value, mean in (
            ("mean", self.mean, self.mean),
            ("effect", self.effect, self.mean + self.effect),
        ):
            if not low <= mean <= high:
                reason = f"values of {self.guardrail.name} are from {low:g} to {high:g}"
                raise InvalidArgument(name, value, reason, "pass one in the range of the metric")
        most = math.sqrt((self.mean - low) * (high - self.mean))
        if self.deviation is not None and self.deviation > most:
            reason = f"values from {low:g} to {high:g} with this mean have at most {most:.6g}"
            raise InvalidArgument("deviation", self.deviation, reason, "pass a smaller one")
        bottom, top = self.unit_outcomes
        moved = self._unit(self.mean + self.effect)
        if self.effect and not bottom <= moved <= top:
            reason = "the effect is larger than the spread of the metric"
            raise InvalidArgument("effect", self.effect, reason, "pass a smaller one")

    def _unit(self, value: float) -> float:
        return float(self.guardrail.unit(value))

    @property
    def unit_outcomes(self) -> tuple[float, float]:
        """The two outcomes of the metric as rewards in [0, 1]: they have its mean and deviation.

        They are equally probable, unless one of them would leave the range.
        """
        if self.deviation is None:
            return 0.0, 1.0
        mean = self._unit(self.mean)
        s = self.deviation / (self.guardrail.high - self.guardrail.low)
        if mean < s:
            return 0.0, min(1.0, mean + s * s / mean if mean else 0.0)
        if 1.0 - mean < s:
            rest = 1.0 - mean
            return max(0.0, mean - (s * s / rest if rest else 0.0)), 1.0
        return mean - s, mean + s

    def outcomes(self, actions: int, best: int) -> Outcomes:
        """The outcomes of every action, of which the best one has the effect."""
        low, high = self.unit_outcomes
        spread = high - low or 1.0
        chance = np.full(actions, (self._unit(self.mean) - low) / spread)
        chance[best] = (self._unit(self.mean + self.effect) - low) / spread
        return Outcomes(low, high, chance.clip(0.0, 1.0), self.guardrail.unit_margin)

    @property
    def harmful(self) -> bool:
        """Whether the effect is a loss as large as the margin: then no policy is promoted."""
        worse = self.effect if self.guardrail.better == LOWER else -self.effect
        return worse >= self.guardrail.margin and worse > 0.0


class Outcomes(NamedTuple):
    """A metric in [0, 1]: its two outcomes, and the chance of the larger one, per action."""

    low: float
    high: float
    chance: Array
    margin: float = 0.0


@dataclass(frozen=True, eq=False)
class PlannedGame:
    """Production's policy, the mean reward of each action (0 or 1 in a row), and the target.

    The gain is over production, or over another policy, `against`.
    """

    behavior: Array
    means: Array
    target: Array | Learner[Any]
    against: Array | None = None
    guardrails: tuple[PlannedGuardrail, ...] = ()

    @cached_property
    def drawn(self) -> tuple[Array, Array, Array]:
        """What actions and rewards are drawn with, by `kernels.games.draw_log`."""
        edges = kernel_view(cdf(self.behavior))
        return edges, kernels.games.guide_table(edges), kernel_view(self.means)

    @property
    def baseline(self) -> Array:
        """The policy that the gain is over."""
        return self.behavior if self.against is None else self.against

    @property
    def best(self) -> int:
        """The action that earns most, of those that production plays."""
        return int(np.argmax(np.where(self.behavior > 0.0, self.means, -1.0)))

    @property
    def gain(self) -> float:
        """The gain of the target; of a learner, that of the best action."""
        fixed = isinstance(self.target, np.ndarray)
        earned = float(self.target @ self.means) if fixed else float(self.means[self.best])  # type: ignore[operator] # a fixed policy
        return earned - float(self.baseline @ self.means)

    @property
    def metrics(self) -> list[Outcomes]:
        """The goal, and the guardrails."""
        found = [one.outcomes(len(self.means), self.best) for one in self.guardrails]
        return [Outcomes(0.0, 1.0, self.means), *found]

    def certificates(self, confidence: float) -> list[Certificate]:
        """The certificates of the metrics before round 1; they decide together."""
        goal = Certificate(self.behavior, confidence, against=self.against)
        if not self.guardrails:
            return [goal]
        joint = JointCertificate.begin(goal, [one.guardrail for one in self.guardrails])
        return [joint.goal, *joint.guardrails]  # type: ignore[list-item] # as the goal

    @cached_property
    def largest_ratio(self) -> float:
        """W, the largest weight of a fixed policy."""
        assert isinstance(self.target, np.ndarray)
        return ratio_of_policy(self.target, self.behavior)

    @property
    def largest_difference(self) -> float:
        """D, the largest weight of a fixed policy less that of the baseline, as bets know it."""
        return self.largest_ratio - 1.0 if self.against is None else self.largest_ratio

    @cached_property
    def differences(self) -> Array:
        """(π(a) − π₀(a))/q(a) of a fixed policy, 0 where production never plays."""
        played = self.behavior > 0.0
        nothing = np.zeros(len(played))
        return np.divide(self.target - self.baseline, self.behavior, where=played, out=nothing)  # type: ignore[operator] # a fixed policy

    @property
    def divergence(self) -> float:
        """KLinf of a fixed policy, over the actions that production plays."""
        assert isinstance(self.target, np.ndarray)
        seen = self.behavior > 0.0
        rows = self.target[np.newaxis, seen], self.behavior[seen], self.means[seen]
        return float(least_divergence(*rows, self.baseline[seen])[0])
