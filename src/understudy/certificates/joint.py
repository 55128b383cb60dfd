"""The certificate of a goal and its guardrails: they decide together, on the same rounds.

A guardrail is a metric that may not become worse, against production or another baseline, by more
than a margin. Every metric has a range and a certificate of its own: the goal spends δ/2, and each
of m guardrails δ/(2m), so that all bounds hold together, whatever drifts. A policy is promoted at
a round if the goal's lower bound is above 0 and each guardrail's is above minus its margin, in the
same window of rounds. A guardrail is broken if its upper bound is below minus its margin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy.certificates.difference import (
    ANY_CERTIFICATE,
    ROUND,
    AnyCertificate,
    have_same_rounds,
    have_same_share,
    require_no_rounds,
    require_observed,
)
from understudy.certificates.evidence import POINTS_SET, BaselineRounds, parts_between_points
from understudy.certificates.guardrails import METRICS, Guardrail
from understudy.certificates.targets import Target
from understudy.constraints import (
    Array,
    Checked,
    enforce,
    tuple_of,
)
from understudy.errors import InvalidArgument
from understudy.formatting import counted, percent
from understudy.types import Feedback, Log, saved

GUARDRAILS_SHARE = 0.5  # of δ: the goal has the other half, since both must be shown


@saved
@dataclass(frozen=True, eq=False, repr=False)
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
        "goal": ANY_CERTIFICATE,
        "guardrails": tuple_of("pass a tuple of certificates", ANY_CERTIFICATE),
        "metrics": METRICS,
        "crossed": ROUND,
        "broken_at": tuple_of("pass a tuple of rounds", ROUND),
    }

    def __post_init__(self) -> None:
        enforce(self)
        m = len(self.metrics)
        for name in ("guardrails", "broken_at"):
            if len(getattr(self, name)) != m:
                reason = f"there are {m} guardrails"
                raise InvalidArgument(name, getattr(self, name), reason, "pass one of each")
        if not m or len({metric.name for metric in self.metrics}) < m:
            reason = "two have the same name" if m else "there is no guardrail"
            remedy = "pass one or several guardrails, of different metrics"
            raise InvalidArgument("metrics", self.metrics, reason, remedy)
        for at in (self.crossed, *self.broken_at):
            require_observed("broken_at" if at in self.broken_at else "crossed", at, self.rounds)
        _, each = self.confidences(self.confidence, m)
        for one in self.guardrails:
            if not (
                have_same_share(one.confidence, each)
                and type(one) is type(self.goal)
                and have_same_rounds(one, self.goal)
            ):
                reason = "its behavior, its rounds, or its share of δ are not those of the goal"
                remedy = "make the certificate with us.JointCertificate.begin"
                raise InvalidArgument("guardrails", one, reason, remedy)

    @staticmethod
    def begin(goal: AnyCertificate, metrics: Sequence[Guardrail]) -> JointCertificate:
        """The certificate before round 1, of the confidence that the `goal` has by itself."""
        require_no_rounds("goal", ANY_CERTIFICATE("goal", goal))
        checked: tuple[Guardrail, ...] = METRICS("metrics", tuple(metrics))
        m = len(checked)
        alone, each = JointCertificate.confidences(goal.confidence, m)
        guardrails = (goal.with_confidence(each),) * m
        return JointCertificate(goal.with_confidence(alone), guardrails, checked, 0, (0,) * m)

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

    def observe(
        self,
        log: Log | Feedback,
        target: Target,
        metrics: Mapping[str, ArrayLike],
        baseline: Target | None = None,
    ) -> JointCertificate:
        """The certificate after more rounds, whose rewards are those of the goal.

        `metrics` has the values of each guardrail, by its name. A value that is missing (nan), or
        out of range, counts as the worst, for this guardrail alone. Other arguments are those of
        `Certificate.observe`.
        """
        shown, probabilities, ratios, other = self.goal.rounds_of(log, target, baseline)
        names = [metric.name for metric in self.metrics]
        if not isinstance(metrics, Mapping) or set(metrics) != set(names):
            reason = f"the guardrails are {', '.join(map(repr, names))}"
            raise InvalidArgument(
                "metrics", metrics, reason, "pass the values of each, by its name"
            )
        unit = [metric.column(metrics[metric.name], len(shown)) for metric in self.metrics]
        return self.advance(shown, probabilities, ratios, np.stack(unit, axis=1), other)

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

    def __repr__(self) -> str:
        n, confidence = self.rounds, f"{percent(self.confidence)} confidence"
        if not n:
            return f"JointCertificate({confidence}, nothing observed yet)"
        broken = [one.name for one, now in zip(self.metrics, self.broken, strict=True) if now]
        decision = "Promote" if self.promoted else "Not enough data yet"
        if broken:
            decision = f"Broken: {', '.join(broken)}"
        return f"{decision} after {counted(n, 'round')}, with {confidence}. Goal: {self.goal!r}"
