"""The certificate of a goal and its guardrails: they decide together, on the same rounds.

A guardrail is a metric that may not become worse, against production or another baseline, by more
than a margin. Every metric has a range and a certificate of its own: the goal spends δ/2, and each
of m guardrails δ/(2m), so that all bounds hold together, whatever drifts. A policy is promoted at
a round if the goal's lower bound is above 0 and each guardrail's is above minus its margin, in the
same window of rounds. A guardrail is broken if its upper bound is below minus its margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy.certificates.certificate import Certificate
from understudy.certificates.difference import (
    POINTS_SET,
    ROUND,
    DifferenceCertificate,
    parts_between_points,
)
from understudy.certificates.evidence import BaselineRounds
from understudy.constraints import Array, Checked, having, number, one_of, text
from understudy.errors import InvalidArgument
from understudy.types import Log, saved

HIGHER, LOWER = "higher", "lower"
GUARDRAILS_SHARE = 0.5  # of δ: the goal has the other half, since both must be shown
AnyCertificate = Certificate | DifferenceCertificate


@saved
@dataclass(frozen=True)
class Guardrail(Checked):
    """A metric that may not become worse by more than a margin.

    Args:
        name: of the metric, such as that of its column.
        low: the smallest value that is possible.
        high: the largest value that is possible.
        better: which values are better, 'higher' or 'lower'.
        margin: the loss per round that is still harmless, in the units of the metric.

    >>> latency = Guardrail("latency_ms", low=0.0, high=2000.0, better="lower", margin=20.0)
    >>> latency.unit([0.0, 500.0, 3000.0]).tolist(), latency.unit_margin
    ([1.0, 0.75, nan], 0.01)
    """

    name: str
    low: float
    high: float
    better: str
    margin: float
    CONSTRAINTS: ClassVar = {
        "name": text("pass the name of the metric, such as 'latency_ms'"),
        "low": number(-1e300, 1e300, "pass the smallest possible value"),
        "high": number(-1e300, 1e300, "pass the largest possible value"),
        "better": one_of("pass 'higher' or 'lower'", HIGHER, LOWER),
        "margin": number(0.0, 1e300, "pass the loss that is still harmless, 0 or above"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            reason = f"it is not above the smallest one, {self.low:g}"
            raise InvalidArgument("high", self.high, reason, "pass the range of possible values")
        if self.margin >= self.high - self.low:
            reason = f"no loss is larger, since values are from {self.low:g} to {self.high:g}"
            raise InvalidArgument("margin", self.margin, reason, "pass a smaller margin")

    @property
    def unit_margin(self) -> float:
        """The margin as a share of the range."""
        return self.margin / (self.high - self.low)

    def unit(self, values: ArrayLike) -> Array:
        """The values as rewards in [0, 1], of which more is better; nan where one is unusable."""
        low, high = (self.high, self.low) if self.better == LOWER else (self.low, self.high)
        unit = (self.usable(values) - low) / (high - low)
        return np.asarray(np.clip(unit, 0.0, 1.0))  # rounding; nan stays

    def usable(self, values: ArrayLike) -> Array:
        """The values in the range, nan where one is out of it."""
        found = np.asarray(values, dtype=np.float64)
        return np.where((found >= self.low) & (found <= self.high), found, np.nan)

    def gain(self, unit: float) -> float:
        """A gain on the scale of `unit` as a change of the metric, in its units.

        >>> Guardrail("latency_ms", 0.0, 2000.0, "lower", 20.0).gain(-0.01)
        20.0
        """
        return unit * (self.high - self.low) * (-1.0 if self.better == LOWER else 1.0)


@saved
@dataclass(frozen=True, eq=False)
class JointCertificate(Checked):
    """The certificate of a goal and its guardrails, which decide together.

    `crossed` is the first round of `POINTS` after which goal and guardrails held together, and
    `broken_at` that at which each guardrail was first shown to be broken, or 0.

    >>> import understudy as us
    >>> speed = Guardrail("latency_ms", low=0.0, high=100.0, better="lower", margin=5.0)
    >>> joint = JointCertificate.begin(us.Certificate([0.5, 0.5]), [speed])
    >>> log = us.Log([0, 1] * 4000, [0.0, 1.0] * 4000)
    >>> latency = np.full((8000, 1), 40.0)
    >>> after = joint.advance(log, np.array([0.1, 0.9] * 4000), 1.8, speed.unit(latency))
    >>> after.promoted, after.broken
    (True, (False,))
    """

    goal: AnyCertificate
    guardrails: tuple[AnyCertificate, ...]
    metrics: tuple[Guardrail, ...]
    crossed: int = 0
    broken_at: tuple[int, ...] = ()
    CONSTRAINTS: ClassVar = {
        "goal": having("pass a certificate", "lower", "upper"),
        "crossed": ROUND,
    }

    @staticmethod
    def begin(goal: AnyCertificate, metrics: Sequence[Guardrail]) -> JointCertificate:
        """The certificate before round 1, of the confidence that the `goal` has by itself."""
        m = len(metrics)
        if not metrics:
            raise InvalidArgument("metrics", (), "there is no guardrail", "pass one or several")
        alone, each = JointCertificate.confidences(goal.confidence, m)
        guardrails = (goal.with_confidence(each),) * m
        goal = goal.with_confidence(alone)
        return JointCertificate(goal, guardrails, tuple(metrics), broken_at=(0,) * m)

    @staticmethod
    def confidences(confidence: float, guardrails: int) -> tuple[float, float]:
        """The confidence of the goal, and that of each guardrail, if all hold with this one.

        >>> JointCertificate.confidences(0.9, 0), JointCertificate.confidences(0.5, 2)
        ((0.9, 0.9), (0.75, 0.875))
        """
        if not guardrails:
            return confidence, confidence
        delta = 1.0 - confidence
        share = GUARDRAILS_SHARE * delta
        return 1.0 - (delta - share), 1.0 - share / guardrails

    def advance(
        self,
        log: Log,
        probabilities: Array,
        ratios: Array | float,
        metrics: Array,
        baseline: BaselineRounds | None = None,
    ) -> JointCertificate:
        """The certificate after more rounds; arguments as of `Certificate.advance`.

        `metrics` has the values of all guardrails in [0, 1], (n, m), and nan where one cannot be
        used: such a row counts with the worst value, for this guardrail alone.
        """
        after, before = self, self.rounds
        known = np.broadcast_to(ratios, len(log))
        for part in parts_between_points(before, len(log)):
            one = None if baseline is None else baseline.part(part)
            columns = log[part], probabilities[part], known[part]
            rows = columns[0]
            guardrails = [
                certificate.advance(rows.with_rewards(metrics[part, k]), *columns[1:], one)
                for k, certificate in enumerate(after.guardrails)
            ]
            goal = after.goal.advance(*columns, one)
            after = replace(after, goal=goal, guardrails=tuple(guardrails))
            if before + part.stop in POINTS_SET:
                after = after._look()
        return after

    def _look(self) -> JointCertificate:
        n = self.rounds
        return replace(
            self,
            crossed=self.crossed or (n if self.shows_gain() else 0),
            broken_at=tuple(
                at or (n if now else 0)
                for at, now in zip(self.broken_at, self._broken_now(), strict=True)
            ),
        )

    def shows_gain(self) -> bool:
        """Whether the goal gains and no guardrail is lost beyond its margin, in one window."""
        for window in range(self.goal.window_count + 1):
            if self.goal.shows_gain(0.0, window) and all(
                one.shows_gain(-metric.unit_margin, window)
                for one, metric in zip(self.guardrails, self.metrics, strict=True)
            ):
                return True
        return False

    def _broken_now(self) -> list[bool]:
        return [
            one.shows_loss(-metric.unit_margin)
            for one, metric in zip(self.guardrails, self.metrics, strict=True)
        ]

    @property
    def rounds(self) -> int:
        """n, how many rounds were observed."""
        return self.goal.rounds

    @property
    def confidence(self) -> float:
        """1 − δ, of goal and guardrails together."""
        return 1.0 - (1.0 - self.goal.confidence) / (1.0 - GUARDRAILS_SHARE)

    @property
    def contradicts(self) -> bool:
        """Whether bounds of any metric contradict each other."""
        return any(one.contradicts for one in (self.goal, *self.guardrails))

    @property
    def promoted(self) -> bool:
        """Whether goal and guardrails have, at some time, held together."""
        return bool(self.crossed or self.shows_gain()) and not self.contradicts

    @property
    def promoted_at(self) -> int | None:
        """The first round of `POINTS` after which `promoted` held, or the last one."""
        return (self.crossed or self.rounds) if self.promoted else None

    @property
    def broken(self) -> tuple[bool, ...]:
        """Whether each guardrail has, at some time, been shown to be broken."""
        now = self._broken_now()
        found = [bool(at or n) for at, n in zip(self.broken_at, now, strict=True)]
        return tuple(one and not self.contradicts for one in found)
