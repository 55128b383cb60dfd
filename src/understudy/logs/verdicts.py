"""What a log can say about a policy, and how much it would take to say more.

A gain of g a row over production shows itself when the wealth of the certificate reaches m/δ for
the best of its m bets λ. With d_t = (w_t − 1) R_t, log(1 + λ d) ≈ λ d − λ² d²/2 grows by
λ g − λ² E[d²]/2 a row, at best g²/(2 E[d²]), with λ = g/E[d²]. So it takes about

    n = 2 E[d²] log(m/δ) / g²

rows. If production played the policy in a share ε of the rows and its own actions in all others,
and these differ, then d is (1/ε − 1) R in those and −R elsewhere, so that E[d²] ≈ r̄/ε, with r̄ the
mean reward of the policy. Hence n rows suffice with about

    ε = 2 r̄ log(m/δ) / (n g²).

Above ε = ½ there are too few rows: with half of them E[d²] ≈ r̄, and the gain over what was played
is g/2, so that about n = 8 r̄ log(m/δ) / g² rows are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from understudy.certificates import Certificate
from understudy.certificates.evidence import LARGEST_BET
from understudy.constraints import Array
from understudy.logs.calibration import Calibration
from understudy.logs.scale import Scale
from understudy.logs.tally import Tally

__all__ = [
    "Enough",
    "Reach",
    "Verdict",
    "exploration_for",
    "judge",
    "judge_rows",
    "reach_of",
    "rows_for",
    "second_moment",
]

Decision = Literal["better", "worse", "unknown"]
BETS = 22  # m, of the grid that certificates have if nobody chooses another
LARGEST_GAIN = 0.05  # that is asked for if nobody says which
HIDDEN = 0.001  # the share of its plays that a policy may make where the log shows nothing
COUNTLESS = 1e15  # rows
MOST_EXPLORATION = 0.5
NEGLIGIBLE = 1e-12  # E[d²] of a policy that plays as production does, but for rounding
CANNOT = "this log cannot tell"
WRONG = "the propensities of actions that it plays are wrong, see the calibration"
CONTRADICTION = (
    "the bounds of its certificate contradict each other, so propensities or probabilities are not "
    "what they are said to be"
)
PERCENT = 100.0
THREE = 3.0  # standard errors
UNIT = Scale()
COUNTED = "production's propensities were only counted, and no gain is certified without them"


@dataclass(frozen=True)
class Enough:
    """What would suffice to show a gain.

    So many `rows` of this kind (0 if there can be no gain); or, where the log shows nothing of a
    policy, so many in which production plays it with probability `exploration`.
    """

    gain: float
    rows: float
    exploration: float | None


@dataclass(frozen=True)
class Reach:
    """How far a log reaches a policy.

    `coverage_ratio` is C(π) = Σ π(a) C(a); `effective_sample_size` how many plays of its own would
    say as much; `estimate` its self-normalised mean reward, nan if it plays nothing that is logged;
    `hidden` the share of its plays that the log never shows.
    """

    coverage_ratio: float
    effective_sample_size: float
    estimate: float
    hidden: float


@dataclass(frozen=True)
class Verdict:
    """What this log says about one policy, against production; if nothing, what would suffice."""

    name: str
    decision: Decision
    words: str
    reach: Reach
    enough: Enough | None


def rows_for(second_moment: float, gain: float, confidence: float = 0.95) -> float:
    """n = 2 E[d²] log(m/δ)/g²: about so many rows show a gain of g.

    More if g/E[d²] is a larger bet than certificates make; 0 where d is, and no gain can be.

    >>> round(rows_for(second_moment=0.5, gain=0.1))
    609
    """
    if second_moment <= NEGLIGIBLE:
        return 0.0
    bet = min(LARGEST_BET, gain / second_moment)
    grown = bet * gain - bet**2 * second_moment / 2.0
    return _budget(confidence) / grown if grown > 0.0 else math.inf  # it may be no double


def exploration_for(reward: float, gain: float, rows: int, confidence: float = 0.95) -> Enough:
    """ε = 2 r̄ log(m/δ)/(n g²), with n as given or, if that is above ½, as it would have to be.

    >>> round(exploration_for(reward=0.35, gain=0.05, rows=20_000).exploration, 4)
    0.0852
    >>> round(exploration_for(reward=0.35, gain=0.05, rows=100).rows)
    6817
    """
    needed = 2.0 * reward * _budget(confidence) / gain / gain  # the square may be no double
    if rows and needed / rows <= MOST_EXPLORATION:
        return Enough(gain, rows, needed / rows)
    return Enough(gain, 4.0 * needed, MOST_EXPLORATION)


def second_moment(tally: Tally, policy: Array) -> float:
    """E[d²] of d = (π/q − 1) R, taking R² for R, which it is for rewards of 0 and 1, and no more.

    >>> import numpy as np
    >>> counts, q = np.array([500, 500]), np.full(2, 0.5)
    >>> sums = Tally(counts, 0.4 * counts, 0.4 * counts / q, counts / q, counts / q**2, q, q)
    >>> second_moment(sums, np.array([0.0, 1.0]))
    0.4
    """
    seen = tally.counts > 0
    weights, squares, pi = tally.weights[seen], tally.squares[seen], policy[seen]
    means = tally.weighted[seen] / weights
    total = (means * (pi**2 * squares - 2.0 * pi * weights + tally.counts[seen])).sum()
    return max(0.0, float(total) / max(tally.rows, 1))


def judge(
    name: str,
    policy: Array,
    tally: Tally,
    calibration: Calibration,
    *,
    certificate: Certificate | None = None,
    gain: float | None = None,
    confidence: float = 0.95,
    scale: Scale = UNIT,
) -> Verdict:
    """The verdict about a policy, from the sums of the log and, for a decision, its certificate.

    `gain` is the gain a row that a log should be able to show: 0.05, or production's mean reward if
    that is less. Nothing is decided with propensities that are wrong: too small ones, which is what
    the calibration can tell, would make the policy look better than it is. Words are in the units
    of the `scale`.

    >>> import numpy as np
    >>> from understudy.logs.actions import Actions
    >>> from understudy.logs.calibration import calibrate
    >>> counts, q = np.array([500, 500]), np.full(2, 0.5)
    >>> sums = Tally(counts, 0.4 * counts, 0.4 * counts / q, counts / q, counts / q**2, q, q)
    >>> calibration = calibrate(sums, Actions(("a", "b")))
    >>> judge("second", np.array([0.0, 1.0]), sums, calibration).words
    'it is covered: 1,000 rows are worth 500 plays of its own; certify it for a verdict'
    """
    reach, wrong = reach_of(policy, tally, calibration.shown), bool(policy[calibration.wrong].any())
    decision = "unknown" if wrong else _decide(certificate)
    sure = confidence if certificate is None else certificate.confidence
    production = float(tally.rewards.sum()) / max(tally.rows, 1)
    wanted = _wanted(gain, production)
    if reach.hidden > HIDDEN:
        enough = exploration_for(min(1.0, production + wanted), wanted, tally.rows, sure)
    else:
        enough = Enough(wanted, rows_for(second_moment(tally, policy), wanted, sure), None)
    case = Case(decision, certificate, confidence, reach, enough, tally.rows, scale)
    words = case.describe()
    if wrong:
        words = f"{CANNOT}: {WRONG}"
    return Verdict(name, decision, words, reach, enough if decision == "unknown" else None)


def judge_rows(
    name: str, certificate: Certificate, *, aside: int = 0, scale: Scale = UNIT
) -> Verdict:
    """The verdict about a policy that depends on the row, from the weights w that it gave rise to.

    Its coverage ratio is then the mean of w², at most C(π); what it plays that the log never shows
    is what is missing from a mean weight of 1, beyond three standard errors. `aside` is how many
    rows were set aside, which have no weight.
    """
    rewards, weighted, weights, squares = certificate.evidence.totals.tolist()
    n, read = max(certificate.rounds, 1), max(certificate.rounds - aside, 1)
    error = math.sqrt(max(0.0, squares / read - (weights / read) ** 2) / read)
    hidden = max(0.0, 1.0 - weights / read - THREE * error)
    confidence = certificate.confidence
    estimate = weighted / weights if weights else math.nan
    reach = Reach(squares / n, certificate.effective_sample_size, estimate, hidden)
    production = rewards / n
    wanted, decision = _wanted(None, production), _decide(certificate)
    spread = production * max(0.0, squares - 2.0 * weights + n) / n
    enough = (
        exploration_for(min(1.0, production + wanted), wanted, certificate.rounds, confidence)
        if hidden > HIDDEN
        else Enough(wanted, rows_for(spread, wanted, confidence), None)
    )
    case = Case(
        decision,
        certificate,
        confidence,
        reach,
        enough,
        certificate.rounds,
        scale,
        hidden="what production does not play in such rows",
    )
    words = case.describe()
    return Verdict(name, decision, words, reach, enough if decision == "unknown" else None)


def reach_of(policy: Array, tally: Tally, shown: Array) -> Reach:
    """What the sums of a log tell about a policy before any certificate.

    >>> import numpy as np
    >>> counts, q = np.array([500, 0]), np.array([0.5, np.nan])
    >>> nothing = np.zeros(2)
    >>> sums = Tally(counts, nothing, nothing, np.array([1e3, 0]), np.array([2e3, 0]), q, q)
    >>> reach_of(np.array([0.9, 0.1]), sums, np.array([1.0, 0.0]))
    Reach(coverage_ratio=inf, effective_sample_size=500.0, estimate=0.0, hidden=0.1)
    """
    seen = tally.counts > 0
    pi = policy[seen]
    weights = float((pi * tally.weights[seen]).sum())
    weighted = float((pi * tally.weighted[seen]).sum())
    squares = float((pi**2 * tally.squares[seen]).sum())
    ratio = float((pi * tally.coverage_ratios()[seen]).sum())
    return Reach(
        math.inf if policy[~seen].any() else ratio,
        weights * (weights / squares) if squares else 0.0,
        weighted / weights if weights else math.nan,
        float((policy * (1.0 - shown)).sum()),
    )


def _about(rows: float) -> str:
    return f"about {rows:,.0f} rows" if rows < COUNTLESS else "more rows than there will ever be"


def _budget(confidence: float) -> float:
    """log(m/δ), what the log of the best bet's wealth must reach."""
    return math.log(BETS / (1.0 - confidence))


def _wanted(gain: float | None, production: float) -> float:
    if gain is not None:
        return gain
    return min(LARGEST_GAIN, production) if production > 0.0 else LARGEST_GAIN


def _decide(certificate: Certificate | None) -> Decision:
    """What the certificate decides. Plays that the log never shows only make it more careful."""
    if certificate is None or not certificate.rounds or certificate.lower > certificate.upper:
        return "unknown"
    if certificate.promoted and (certificate.gain or 0.0) > 0.0:
        return "better"
    return "worse" if certificate.upper < certificate.production else "unknown"


@dataclass(frozen=True)
class Case:
    """All that words about a policy are made of."""

    decision: Decision
    certificate: Certificate | None
    confidence: float
    reach: Reach
    enough: Enough
    rows: int
    scale: Scale
    hidden: str = "actions that the log never shows"

    def describe(self) -> str:
        """What the log says about the policy, or why it says nothing."""
        certificate, reach = self.certificate, self.reach
        if certificate is not None and self.decision != "unknown":
            return self._decided(certificate)
        if certificate is not None and certificate.lower > certificate.upper:
            return f"{CANNOT}: {CONTRADICTION}"
        if certificate is not None and certificate.behavior is None:
            return f"{CANNOT}: {COUNTED}"
        if reach.hidden > HIDDEN:
            share = f"{PERCENT * reach.hidden:.3g} %"
            return f"{CANNOT}: {share} of its plays are {self.hidden}; {self._explored()}"
        worth = f"{self.rows:,} rows are worth {reach.effective_sample_size:,.0f} plays of its own"
        if certificate is None:
            return f"it is covered: {worth}; certify it for a verdict"
        return f"{CANNOT}: {self._undecided(worth)}"

    def _undecided(self, worth: str) -> str:
        if not self.enough.rows:
            return "it plays as production does, so there is no gain to show"
        needed = _about(self.enough.rows)
        gain = f"a gain of {self.scale.gain(self.enough.gain):.3g} a row"
        if self.enough.rows <= self.rows:
            return f"{worth}; {needed} would have shown {gain}, a smaller one takes more"
        return f"{worth}; {needed} like these would show {gain}"

    def _decided(self, certificate: Certificate) -> str:
        n, scale = certificate.rounds, self.scale
        percent = f"{PERCENT * self.confidence:.6g} % confidence"
        earned = f"production earned {scale.reward(certificate.production / n):.4g}"
        if self.decision == "worse":
            most = scale.reward(certificate.upper / n)
            return (
                f"worse than production: with {percent} it earns at most {most:.4g} a row, {earned}"
            )
        least = scale.reward(certificate.lower / n)
        gain = scale.gain((certificate.gain or 0.0) / n)
        return (
            f"better than production: with {percent} it earns at least {least:.4g} a row, "
            f"{earned}, and the gain is at least {gain:.4g}"
        )

    def _explored(self) -> str:
        enough, gain = self.enough, self.scale.gain(self.enough.gain)
        share = PERCENT * (enough.exploration or 0.0)
        if enough.rows > self.rows:
            return (
                f"{_about(enough.rows)}, half of them played by it, would show a gain of "
                f"{gain:.3g} a row"
            )
        return (
            f"if production followed it in about {share:.2g} % of as many rows, a gain of "
            f"{gain:.3g} a row would show"
        )
