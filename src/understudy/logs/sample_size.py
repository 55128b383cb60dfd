"""How much of a log it takes to show a gain.

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

A row that was set aside has d = −R, with R = 1 if nobody knows it: if s of the rows are, with a
mean reward of r̄ₛ, then a gain of g in the others is one of (1 − s) g − s r̄ₛ, which may be none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from understudy.certificates.evidence import LARGEST_BET
from understudy.constraints import Array
from understudy.logs.statistics import ActionStatistics

__all__ = ["RejectedShare", "SampleSize", "exploration_for", "rows_for", "second_moment"]

BETS = 22  # m, of the grid that certificates have if nobody chooses another
MOST_EXPLORATION = 0.5
NEGLIGIBLE = 1e-12  # E[d²] of a policy that plays as production does, but for rounding


@dataclass(frozen=True)
class SampleSize:
    """What would suffice to show a gain.

    So many `rows` of this kind (0 if there can be no gain, infinite if none will do); or, where the
    log shows nothing of a policy, so many in which production plays it with probability
    `exploration`.
    """

    gain: float
    rows: float
    exploration: float | None


@dataclass(frozen=True)
class RejectedShare:
    """How many of all rows were set aside, s, and what production earned in them a row, r̄ₛ."""

    share: float = 0.0
    reward: float = 0.0

    def gain(self, gain: float) -> float:
        """What is left of a gain in the other rows, (1 − s) g − s r̄ₛ.

        >>> round(RejectedShare(share=0.05, reward=1.0).gain(0.1), 4)
        0.045
        """
        return (1.0 - self.share) * gain - self.share * self.reward

    def second_moment(self, others: float) -> float:
        """E[d²] with these rows, taking R² for R."""
        return (1.0 - self.share) * others + self.share * self.reward


def rows_for(
    second_moment: float, gain: float, confidence: float = 0.95, lost: RejectedShare | None = None
) -> float:
    """n = 2 E[d²] log(m/δ)/g²: about so many rows show a gain of g, more often than not.

    More if g/E[d²] is a larger bet than certificates make; 0 where d is, and no gain can be.

    >>> round(rows_for(second_moment=0.5, gain=0.1))
    609
    """
    if second_moment <= NEGLIGIBLE:
        return 0.0
    lost = lost or RejectedShare()
    left, spread = lost.gain(gain), lost.second_moment(second_moment)
    if left <= 0.0:
        return math.inf
    bet = min(LARGEST_BET, left / spread)
    grown = bet * left - bet**2 * spread / 2.0
    return _budget(confidence) / grown if grown > 0.0 else math.inf  # it may be no double


def exploration_for(reward: float, gain: float, rows: int, confidence: float = 0.95) -> SampleSize:
    """ε = 2 r̄ log(m/δ)/(n g²), with n as given or, if that is above ½, as it would have to be.

    >>> round(exploration_for(reward=0.35, gain=0.05, rows=20_000).exploration, 4)
    0.0852
    >>> round(exploration_for(reward=0.35, gain=0.05, rows=100).rows)
    6817
    """
    needed = 2.0 * reward * _budget(confidence) / gain / gain  # the square may be no double
    if rows and needed / rows <= MOST_EXPLORATION:
        return SampleSize(gain, rows, needed / rows)
    return SampleSize(gain, 4.0 * needed, MOST_EXPLORATION)


def second_moment(tally: ActionStatistics, policy: Array) -> float:
    """E[d²] of d = (π/q − 1) R, taking R² for R, which it is for rewards of 0 and 1, and no more.

    >>> import numpy as np
    >>> counts, rewards = np.array([500, 500]), np.array([200.0, 200.0])
    >>> sums = ActionStatistics.of_behavior(counts, rewards, np.full(2, 0.5))
    >>> second_moment(sums, np.array([0.0, 1.0]))
    0.4
    """
    seen = tally.counts > 0
    weights, squares, pi = tally.weights[seen], tally.squares[seen], policy[seen]
    means = tally.weighted[seen] / weights
    total = (means * (pi**2 * squares - 2.0 * pi * weights + tally.counts[seen])).sum()
    return max(0.0, float(total) / max(tally.rows, 1))


def _budget(confidence: float) -> float:
    """log(m/δ), what the log of the best bet's wealth must reach."""
    return math.log(BETS / (1.0 - confidence))
