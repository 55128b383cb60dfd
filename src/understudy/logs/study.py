"""What is known after so many rows: learner, certificate, coverage. A fold of the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from understudy.behaviors import Behavior, Logged
from understudy.certificates import Certificate, Certified
from understudy.certificates.curves import POINTS
from understudy.logs.tally import Tally
from understudy.protocols import Learner
from understudy.types import Log, Trace, frozen

__all__ = ["Curve", "Study", "observe", "with_propensities"]

Point = tuple[float, float, float, float | None]


@dataclass(frozen=True)
class Curve:
    """The certificate after the rounds of a fixed grid: lower, upper, production, gain, totals."""

    points: tuple[Point, ...] = ()

    def after(self, more: list[Point]) -> Curve:
        return Curve((*self.points, *more)) if more else self

    def certified(self, certificate: Certificate) -> Certified:
        """The curve with its last point, as `us.certify` gives it."""
        points = list(self.points)
        rounds = [*POINTS[: len(points)].tolist()]
        if not rounds or rounds[-1] != certificate.rounds:
            rounds.append(certificate.rounds)
            points.append(point_of(certificate))
        lower, upper, production, gain = zip(*points, strict=True)
        return Certified(
            certificate,
            frozen(np.array(rounds)),
            frozen(np.array(lower)),
            frozen(np.array(upper)),
            frozen(np.array(production)),
            None if certificate.behavior is None else frozen(np.array(gain)),
        )


@dataclass(frozen=True, eq=False)
class Study:
    """A learner, what it knows, and what can be said about it, after the rows so far.

    `behavior` is what is known of who was on stage: probabilities, `us.Logged`, or None. Without a
    `certificate`, none is kept: contexts whose behavior is not known cannot be certified.
    """

    learner: Learner[Any]
    state: Any
    behavior: Behavior | None
    certificate: Certificate | None
    tally: Tally
    curve: Curve = Curve()

    @staticmethod
    def begin(learner: Learner[Any], behavior: Behavior | None, confidence: float | None) -> Study:
        """Before the first row; no confidence, no certificate.

        >>> import understudy as us
        >>> study = Study.begin(us.exp3_ix([0.5, 0.5]), np.array([0.5, 0.5]), 0.95)
        >>> study.after(Log([1, 0], [1.0, 0.0])).rounds
        2
        """
        K = learner.form.n_actions
        certificate = None if confidence is None else Certificate(behavior, confidence, K)
        return Study(learner, learner.init(), behavior, certificate, Tally.empty(K))

    @property
    def rounds(self) -> int:
        return self.learner.rounds(self.state)

    def after(self, log: Log) -> Study:
        """Learn from more rows, which carry propensities if the behavior is logged."""
        form = self.learner.form
        shown = log.visible(propensities=form.propensities, features=form.features is not None)
        state, trace = self.learner.replay(self.state, shown)
        plain = log.visible(propensities=isinstance(self.behavior, Logged), features=False)
        tally = self.tally.after(with_propensities(plain, self.behavior))
        learned = replace(self, state=state, tally=tally)
        if self.certificate is None:
            return learned
        certificate, points = observe(self.certificate, plain, trace)
        return replace(learned, certificate=certificate, curve=self.curve.after(points))


def with_propensities(log: Log, behavior: Behavior | None) -> Log:
    """The log with the propensities that a given behavior has for its actions.

    >>> with_propensities(Log([1, 0], [1.0, 0.0]), np.array([0.25, 0.75])).propensities.tolist()
    [0.75, 0.25]
    """
    if behavior is None or isinstance(behavior, Logged):
        return log
    return Log._of(log.actions, log.rewards, behavior[log.actions], None)


def observe(certificate: Certificate, log: Log, trace: Trace) -> tuple[Certificate, list[Point]]:
    """The certificate after more rounds, and its points after the rounds of the grid."""
    start, end = certificate.rounds, certificate.rounds + len(log)
    grid = _grid(start, end)
    points = []
    for low, high in pairwise(sorted({start, *grid, end})):
        part = slice(low - start, high - start)
        piece = Trace(trace.probability[part], 0, trace.n_actions)
        certificate = certificate.observe(log[part], piece)
        if high in grid:
            points.append(point_of(certificate))
    return certificate, points


def _grid(start: int, end: int) -> set[int]:
    """The rounds of the grid after `start`, up to `end`."""
    low, high = np.searchsorted(POINTS, [start, end], side="right")
    return set(POINTS[low:high].tolist())


def point_of(certificate: Certificate) -> Point:
    return certificate.lower, certificate.upper, certificate.production, certificate.gain
