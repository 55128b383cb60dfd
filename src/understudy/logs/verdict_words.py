"""Verdicts as people read them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from understudy.certificates import Certificate
from understudy.logs.sample_size import SampleSize
from understudy.logs.schema import Scale
from understudy.report.wording import counted, number

__all__ = ["CANNOT", "CONTRADICTION", "COUNTED", "WRONG", "Case"]

CANNOT = "this log cannot tell"
WRONG = "the propensities of actions that it plays are wrong, see the calibration"
CONTRADICTION = (
    "the bounds of its certificate contradict each other, so propensities or probabilities are not "
    "what they are said to be"
)
COUNTED = "production's propensities were only counted, and no gain is certified without them"
AS_PRODUCTION = "it plays as production does, so there is no gain to show"
UNSEEN = "actions that the log never shows"
NOT_SHOWN = "not shown by these rows: what it plays was rare or impossible there"
COUNTLESS = 1e15  # rows
PERCENT = 100.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """All that words about a policy are made of; `rows` are all, of which some were set `aside`.

    What is said holds with the `confidence`, also of a policy that was chosen out of several, whose
    certificate is surer. An `obstacle` is why no number of rows of this kind would decide. `hidden`
    is the share of its plays that the log does not show, `unseen` whether there are actions among
    them that it never shows. `seems` says that the gain of `enough` is the estimated one.
    """

    decision: str
    certificate: Certificate | None
    confidence: float
    effective_sample_size: float
    hidden: float
    enough: SampleSize
    rows: int
    aside: int
    earned: float
    scale: Scale
    obstacle: str | None
    unseen: bool
    seems: bool

    def describe(self) -> str:
        """What the log says about the policy, or why it says nothing."""
        if self.certificate is not None and self.decision != "unknown":
            return self._decided(self.certificate)
        if self.obstacle is not None:
            return f"{CANNOT}: {self.obstacle}"
        if self.hidden:
            share = f"{PERCENT * self.hidden:.3g} %"
            what = UNSEEN if self.unseen else NOT_SHOWN
            return f"{CANNOT}: {share} of its plays are {what}; {self._explored()}"
        plays = counted(round(self.effective_sample_size), "play")
        worth = f"{counted(self.rows, 'row')} are worth {plays} of its own"
        if self.certificate is None:
            return f"it is covered: {worth}; certify it for a verdict"
        return f"{CANNOT}: {self._undecided(worth)}"

    def _undecided(self, worth: str) -> str:
        if not self.enough.rows:
            return AS_PRODUCTION
        gain = self._gain()
        if math.isinf(self.enough.rows) and self.aside:
            return (
                f"no number of such rows would show {gain}: {self.aside:,} of {self.rows:,} were "
                "set aside, and count as if it earned nothing there"
            )
        before = self._lost()
        needed = _about(self.enough.rows)
        if self.enough.rows <= self.rows and not self.seems:
            return f"{before}{worth}; {needed} would have shown {gain}, a smaller one takes more"
        return f"{before}{worth}; {needed} like these would show {gain}, more often than not"

    def _lost(self) -> str:
        certificate = self.certificate
        if certificate is None or not certificate.promoted:
            return ""
        when = f" after round {certificate.promoted_at:,}" if certificate.promoted_at else ""
        return f"it was ahead of production{when}, but over all rows no gain is certain any more; "

    def _decided(self, certificate: Certificate) -> str:
        n, scale = certificate.rounds, self.scale
        percent = f"{PERCENT * self.confidence:.6g} % confidence"
        if self.decision == "worse":
            worth = certificate.least_production(self.earned)
            most, least = (number(scale.reward(x / n)) for x in (certificate.upper, worth))
            return (
                f"worse than production: with {percent} it earns at most {most} a row, production "
                f"at least {least}"
            )
        least, production = (
            number(scale.reward(total / n)) for total in (certificate.lower, certificate.production)
        )
        gain = number(scale.gain((certificate.gain or 0.0) / n))
        return (
            f"better than production: with {percent} it earns at least {least} a row, production "
            f"earned {production}, and the gain is at least {gain}"
        )

    def _gain(self) -> str:
        words = f"a gain of {number(self.scale.gain(self.enough.gain))} a row"
        return f"{words}, which it seems to have" if self.seems else words

    def _explored(self) -> str:
        enough, gain = self.enough, self._gain()
        share = PERCENT * (enough.exploration or 0.0)
        if enough.rows > self.rows:
            return f"{_about(enough.rows)}, half of them played by it, would show {gain}"
        return (
            f"if production followed it in about {share:.2g} % of as many rows, {gain} would show"
        )


def _about(rows: float) -> str:
    return (
        f"about {counted(round(rows), 'row')}"
        if rows < COUNTLESS
        else "more rows than there will ever be"
    )
