"""Diagnostics of a log: calibration, drift, overlap, and the sample size that shows a gain.

*Calibration* asks whether the logged propensities agree with how often actions were played. If
action a is possible in every row, and the propensities are right, then X_t = 1{b_t = a}/q_t(a) has
mean 1 in every row, whatever happened before; where a was not possible, or hardly (eligible sets,
contexts that rule it out), it has a smaller one. So Σ_t X_t is about n, or less.

More than n means that propensities are too small. A bet on that wins nothing while it is not so:
Π_t (1 + λ(X_t − 1)) has mean at most 1 for 0 ≤ λ < 1, and reaches 1/p with a probability of at most
p, at any time (Ville). Each of the n − N rows without a adds log(1 − λ) to its logarithm, and the N
rows with it at least what they would if their 1/q had the same mean m and variance v, but two
values only, the smallest and x:

    N ((1 − s) f(x₀) + s f(x)),   f(x) = log(1 − λ + λx),   x₀ = min 1/q,   x = m + v/(m − x₀),
    s = (m − x₀)² / ((m − x₀)² + v)

(The third derivative of f is positive: of all distributions with these moments on [x₀, ∞), this one
has the least mean of f.) Rejected rows count in n: each may have been of any action.

Each of K declared actions has a level of .01/K. An action that the log itself made known was played
once, whatever its propensity: over a large catalogue that alone is no sign of a wrong one. So if
actions were not declared, the process of an action begins after its first row, a stopping time, and
the j-th action to come up has a level of .01/(j(j + 1)), which sum to .01. The sums do not show the
first row and the order; without the row of the largest 1/q, and with j the number of actions seen,
the test is more careful still.

Less than n can be seen only if no rare play weighs much. Then Σ_t X_t has about the variance
n (Σ 1/q² / Σ 1/q − 1), and the score is its distance from n in standard errors: for one q, that of
a binomial count.

*Drift* compares the propensities of one action in all rows, and the shares of actions over time.

*Sample size.* A gain of g a row over production shows itself when the wealth of the certificate
reaches m/δ for the best of its m bets λ. With d_t = (w_t − 1)(R_t − c), log(1 + λ d) ≈ λ d −
λ² d²/2 grows by λ g − λ² E[d²]/2 a row, at best g²/(2 E[d²]), with λ = g/E[d²]. So it takes about

    n = 2 E[d²] log(m/δ) / g²

rows. If production played the policy in a share ε of the rows and its own actions in all others,
and these differ, then d is (1/ε − 1) R in those and −R elsewhere, so that E[d²] ≈ r̄/ε, with r̄ the
mean reward of the policy. Hence n rows suffice with about

    ε = 2 r̄ log(m/δ) / (n g²).

Above ε = ½ there are too few rows, and the policy would be tested rather than explored: ½ it is, in
a longer log. Such a log has other rows, so that no number of rows like these stands for it.

The same equation, solved for g, says which gain n rows would show: √(2 E[d²] log(m/δ)/n).

A rejected row has d = −R, with R = 1 if its reward is unknown: if s of the rows are rejected, with
a mean reward of r̄ₛ, then a gain of g in the others is one of (1 − s) g − s r̄ₛ, which may be none.

*Estimated gain.* The mean ĝ of d = (w − 1)(R − c), with c the mean reward r̄ of production. It is
paired, since both policies are judged by the same rows, and lies between the estimates (w − 1) R
and (w − 1)(R − 1), from which the two bounds on the gain are made. Its variance is
(Σ d²/n − ĝ²)/n. The rewards of an action a with mean m_a have a variance of at most
v_a = m_a (1 − m_a), which is that of rewards of 0 and 1. If propensities do not depend on rewards
within an action, then for w = π(a)/q, with N_a the rows of the action,

    Σ d² = Σ_a (π_a² Σ 1/q² − 2 π_a Σ 1/q + N_a) (v_a + (m_a − c)²).

Of a policy that depends on the row, only Σ R, Σ w R, Σ w and Σ w² are known. Then (R − c)² has the
same mean for all weights: the larger one of r̄ (1 − r̄) and, with μ = Σ w R/Σ w, of
μ (1 − μ) + (μ − r̄)²; and Σ d² is that mean times Σ w² − 2 Σ w + n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.certificates import AnyCertificate
from understudy.certificates.evidence import LARGEST_BET
from understudy.certificates.targets import largest_ratio
from understudy.constraints import Array
from understudy.logs.schema import LOGGED, PropensitySource
from understudy.logs.statistics import ActionStatistics
from understudy.types import Integers, read_only

# ---------------------------------------------------------------------------------- calibration

FALSE_ALARM = 0.01  # the probability of an alarm about right propensities, over all actions
ENOUGH = 30.0  # rows of an action that its propensities lead to expect: below, no score is normal
BETS: Array = read_only(np.append(0.9, 2.0 ** -np.arange(1.0, 13.0)))  # λ


class CalibrationFinding(StrEnum):
    """Whether logged propensities agree with how often actions were played."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    TOO_FEW_ROWS = "too few rows"
    NO_PROPENSITIES = "no propensities"
    NOT_EXAMINED = "not examined"


@dataclass(frozen=True, eq=False)
class Calibration:
    """The frequency of each action, relative to its propensities.

    `ratios` are Σ 1/q / n and `scores` their distances from 1 in standard errors, both nan where
    there are too few rows. `shown` is the estimated share of the rows in which an action was
    possible: 1 unless it was played too rarely for chance, 0 if it was never played. `wrong` marks
    the actions that were played too often for chance, `rare` those played too rarely.
    """

    finding: CalibrationFinding
    ratios: Array
    scores: Array
    shown: Array
    wrong: NDArray[np.bool_]
    rare: NDArray[np.bool_]


def calibrate(sums: ActionStatistics, rejected: int = 0, *, declared: bool = True) -> Calibration:
    """Compare propensities and frequencies, with Bonferroni's correction over the actions.

    The sums do not hold the rows that were `rejected`. If the actions were not `declared`, they are
    those that the log shows.

    >>> counts, q = np.array([900, 100]), np.full(2, 0.5)
    >>> calibration = calibrate(ActionStatistics.of_behavior(counts, counts * 1.0, q))
    >>> calibration.finding.value, calibration.ratios.tolist(), calibration.wrong.tolist()
    ('disagrees', [1.8, 0.2], [True, False])
    """
    wrong = _played_too_often(sums, rejected, declared=declared)
    ratios, scores = _score(sums, rejected, wrong)
    examined = np.isfinite(ratios)
    threshold = NormalDist().inv_cdf(1.0 - FALSE_ALARM / (2.0 * max(1, examined.sum())))
    rare = ~wrong & (scores < -threshold)
    shown = np.where(rare, ratios, np.where(sums.counts > 0, 1.0, 0.0))
    if np.isnan(sums.weights).all():
        finding = CalibrationFinding.NO_PROPENSITIES
    elif not examined.any():
        finding = CalibrationFinding.TOO_FEW_ROWS
    elif wrong.any() or rare.any():
        finding = CalibrationFinding.DISAGREES
    else:
        finding = CalibrationFinding.AGREES
    return Calibration(finding, *map(read_only, (ratios, scores, shown, wrong, rare)))


def _played_too_often(
    sums: ActionStatistics, rejected: int, *, declared: bool
) -> NDArray[np.bool_]:
    """The actions for which the bets on too small propensities won more than chance allows."""
    seen = sums.weights > 0.0  # nowhere if no propensity is known
    K = max(int(seen.sum()), 1)
    tests = len(seen) if declared else K * (K + 1)
    examined = sums if declared else sums.without_largest_weight()
    others = sums.rows + rejected - sums.counts[seen]
    mixture = np.logaddexp.reduce(_log_wealth(examined, seen, others), axis=1) - np.log(len(BETS))
    too_often = np.zeros(len(seen), dtype=bool)
    too_often[seen] = mixture >= np.log(tests / FALSE_ALARM)
    return too_often


def _log_wealth(sums: ActionStatistics, seen: NDArray[np.bool_], others: Integers) -> Array:
    """The least log wealth of each bet on each action seen; `others` counts rows without it."""
    N, rest = sums.counts[seen][:, np.newaxis], others[:, np.newaxis]
    weights, squares, highest = (
        column[seen][:, np.newaxis] for column in (sums.weights, sums.squares, sums.highest)
    )
    some = np.maximum(N, 1)  # of 0 rows all terms are 0
    mean, least = weights / some, 1.0 / highest
    variance, above = np.maximum(squares / some - mean**2, 0.0), np.maximum(mean - least, 0.0)
    far = mean + np.divide(variance, above, out=np.zeros_like(mean), where=above > 0.0)
    both = above**2 + variance
    share = np.divide(above**2, both, out=np.zeros_like(mean), where=both > 0.0)
    near_log, far_log = (np.log1p(BETS * (x - 1.0)) for x in (least, far))
    return np.asarray(rest * np.log1p(-BETS) + N * (near_log + share * (far_log - near_log)))


def _score(sums: ActionStatistics, rejected: int, wrong: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Σ 1/q / n of every action, and its distance from 1 in standard errors.

    An action is too rare only if it would be so with all rejected rows as its own.
    """
    n, unknown = max(sums.rows + rejected, 1), np.full(len(sums.counts), np.nan)
    seen = sums.weights > 0.0
    mean_inverse = np.divide(sums.squares, sums.weights, out=unknown.copy(), where=seen)
    largest = np.divide(1.0, sums.lowest, out=np.full_like(unknown, np.inf), where=seen)
    examined = seen & (n >= ENOUGH * largest)
    ratios = np.where(examined | wrong, sums.weights / n, np.nan)
    own = np.divide(sums.weights, sums.counts, out=np.zeros_like(unknown), where=seen)
    distance = np.where(ratios < 1.0, np.minimum(ratios + rejected * own / n, 1.0), ratios) - 1.0
    spread = np.sqrt(np.maximum(mean_inverse - 1.0, 0.0) / n)
    always = examined & (spread == 0.0)  # propensity 1: then nothing else may ever be played
    scores = np.divide(distance, spread, out=unknown.copy(), where=(examined | wrong) & ~always)
    return ratios, np.where(always, np.where(distance < 0.0, -np.inf, 0.0), scores)


# --------------------------------------------------------- what centers need: E w = 1

# Standard errors of the mean weight from 1. They are normal in many rows, so that the weights of a
# policy are called wrong in one log of some three million.
FAR = 5.0
FEWEST_WEIGHTS = 100  # so many that their mean is near normal


def weights_are_wrong(certificate: AnyCertificate, rejected: int) -> bool:
    """Whether the weights w of a policy cannot have a mean of 1, or of 1 at most without centers.

    Far more than n is impossible with right probabilities. Far less is so if every action of the
    policy has a propensity of at least f, as centers need it: then E w² ≤ 1/f, and n − Σ w is above
    5 √(n/f) with a probability of at most e^−12.5. Each rejected row may have had the weight 1/f.
    """
    n = certificate.rounds
    _, _, weights, squares = certificate.evidence.totals.tolist()
    if n < FEWEST_WEIGHTS:
        return False
    if weights > n + FAR * math.sqrt(squares):
        return True
    largest = math.inf if certificate.behavior is None else largest_ratio(certificate.behavior)
    if not certificate.centered_rounds or math.isinf(largest):
        return False
    least = n - rejected * largest - FAR * math.sqrt(n * largest)
    return bool(weights < least)


# ---------------------------------------------------------------------------------------- drift

SAME = 1.01  # propensities that differ by less are one propensity, rounded
CHANGED = 0.001  # the probability of an alarm about a production that stayed the same
SMALLEST_CELL = 5.0  # rows that a cell must lead to expect, for its square to be like χ²


class DriftFinding(StrEnum):
    """Whether the shares of actions changed over time."""

    STEADY = "steady"
    CHANGED = "changed"
    TOO_FEW_ROWS = "too few rows"
    NO_TIME = "no time"
    NOT_EXAMINED = "not examined"


class ShareChange(NamedTuple):
    """The action (its index) whose share of the rows changed most, between which shares."""

    action: int
    lowest: float
    highest: float


@dataclass(frozen=True)
class Drift:
    """The evidence that production changed during the log.

    `factor` is the largest factor by which the propensity of one action varies (nan if none is
    known), `p_value` that of the hypothesis that actions have the same shares at all times (None
    without an order, or with too few rows), `periods` the number of periods compared. `change` is
    the largest one, if shares changed. `behavior` is the source of the propensities.
    """

    finding: DriftFinding
    factor: float
    p_value: float | None
    behavior: PropensitySource
    periods: int = 0
    change: ShareChange | None = None

    @property
    def varies(self) -> bool:
        """Whether the propensity of one action differs from row to row."""
        return self.factor > SAME

    @property
    def fixed(self) -> bool | None:
        """Whether the log shows one fixed behavior; None if it cannot show it."""
        if not math.isfinite(self.factor) and self.p_value is None:
            return None
        return not self.varies and self.finding is not DriftFinding.CHANGED


def drift_of(
    sums: ActionStatistics,
    source: PropensitySource = LOGGED,
    counts_over_time: Integers | None = None,
) -> Drift:
    """Test whether production changed.

    Args:
        sums: the sums of the log.
        source: of the propensities; only logged ones may vary.
        counts_over_time: how often each action was played in each of a few periods, (B, K).

    >>> counts = np.array([[90, 10], [10, 90]])
    >>> drift = drift_of(ActionStatistics.empty(2), "estimated", counts)
    >>> drift.finding.value, drift.change
    ('changed', ShareChange(action=0, lowest=0.1, highest=0.9))
    """
    seen, factor = np.isfinite(sums.lowest), math.nan
    if source == LOGGED and seen.any():
        factor = float((sums.highest[seen] / sums.lowest[seen]).max())
    if counts_over_time is None:
        return Drift(DriftFinding.NO_TIME, factor, None, source)
    counts = _without_stub(counts_over_time)
    p_value, change = homogeneity(counts)[1], None
    if p_value is None:
        finding = DriftFinding.TOO_FEW_ROWS
    elif p_value >= CHANGED:
        finding = DriftFinding.STEADY
    else:
        finding, change = DriftFinding.CHANGED, _largest_change(counts)
    return Drift(finding, factor, p_value, source, len(counts), change)


def homogeneity(counts: Integers) -> tuple[float, float | None]:
    """χ² for the same distribution in all rows of a table, and its p-value (Wilson and Hilferty's).

    Actions too rare for χ² are pooled; if fewer than two are left there is no p-value.
    """
    table = _pooled(np.asarray(counts, dtype=np.float64))
    if min(table.shape) < 2:  # noqa: PLR2004 - nothing to compare
        return 0.0, None
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
    small = 2.0 / (9.0 * degrees)  # (χ²/k)^⅓ is nearly normal, with this variance
    score = ((statistic / degrees) ** (1.0 / 3.0) - (1.0 - small)) / math.sqrt(small)
    return statistic, NormalDist().cdf(-score)


def _pooled(table: Array) -> Array:
    """Drop empty periods and pool rare actions, so that no cell is too small for χ²."""
    table = table[table.sum(axis=1) > 0]
    if not len(table):
        return table
    least = table.sum(axis=0) * table.sum(axis=1).min() / table.sum()
    order = np.argsort(least)
    rare = int((least < SMALLEST_CELL).sum())
    while 0 < rare < len(order) and least[order[:rare]].sum() < SMALLEST_CELL:
        rare += 1  # the rare ones together are still too rare
    rest = table[:, order[:rare]].sum(axis=1, keepdims=True)
    return np.hstack([table[:, order[rare:]], rest]) if rare else table


def _largest_change(counts: Integers) -> ShareChange:
    counts = counts[counts.sum(axis=1) > 0]
    shares = counts / counts.sum(axis=1, keepdims=True)
    most = int(np.argmax(np.ptp(shares, axis=0)))
    return ShareChange(most, float(shares[:, most].min()), float(shares[:, most].max()))


def _without_stub(counts: Integers) -> Integers:
    """Merge a short last period into the one before: it has too few rows for shares."""
    if len(counts) < 2 or 2 * counts[-1].sum() >= counts[0].sum():  # noqa: PLR2004 - none before it
        return counts
    return np.vstack([counts[:-2], counts[-2:].sum(axis=0, keepdims=True)])


# ------------------------------------------------------------------------ overlap and sample size

GAIN_BETS = 22  # m, of the grid that certificates have by default
MOST_EXPLORATION = 0.5
NEGLIGIBLE = 1e-12  # E[d²] of a policy that plays as production does, but for rounding
THREE = 3.0  # standard errors: a smaller gap may be chance


@dataclass(frozen=True)
class Overlap:
    """How well a log covers a policy.

    `coverage_ratio` is C(π) = Σ π(a) C(a), None if the policy depends on the row; `estimate` is its
    self-normalised mean reward, nan if it plays no logged action; `hidden` is the share of its
    plays that the log does not show.
    """

    coverage_ratio: float | None
    effective_sample_size: float
    estimate: float
    hidden: float


@dataclass(frozen=True)
class SampleSize:
    """The number of rows that show a gain of `gain` a row.

    `rows` is 0 if there can be no gain, infinite if no number suffices. Then, in as many rows as
    there are, production plays the policy with probability `exploration`.
    """

    gain: float
    rows: float
    exploration: float | None


def overlap_of(policy: Array, sums: ActionStatistics, shown: Array) -> Overlap:
    """The overlap of a fixed policy with a log, from its sums."""
    seen = sums.counts > 0
    pi = policy[seen]
    weights = float((pi * sums.weights[seen]).sum())
    weighted = float((pi * sums.weighted[seen]).sum())
    squares = float((pi**2 * sums.squares[seen]).sum())
    ratio = float((pi * sums.coverage_ratios()[seen]).sum())
    return Overlap(
        math.inf if policy[~seen].any() else ratio,
        weights * (weights / squares) if squares else 0.0,
        weighted / weights if weights else math.nan,
        float((policy * (1.0 - shown)).sum()),
    )


def second_moment(sums: ActionStatistics, policy: Array, center: float = 0.0) -> float:
    """An upper bound on E[d²], d = (π/q − 1)(R − c): R stands for R², exact for 0 and 1."""
    seen = sums.counts > 0
    weights, squares, pi = sums.weights[seen], sums.squares[seen], policy[seen]
    means = sums.weighted[seen] / weights * (1.0 - 2.0 * center) + center**2
    total = (means * (pi**2 * squares - 2.0 * pi * weights + sums.counts[seen])).sum()
    return max(0.0, float(total) / max(sums.rows, 1))


def difference_moment(sums: ActionStatistics, difference: Array, center: float) -> float:
    """`second_moment` for d = (π − π₀)/q (R − c), the difference of two fixed policies."""
    seen = sums.counts > 0
    means = sums.weighted[seen] / sums.weights[seen] * (1.0 - 2.0 * center) + center**2
    total = (means * difference[seen] ** 2 * sums.squares[seen]).sum()
    return max(0.0, float(total)) / max(sums.rows, 1)


def overlap_of_rows(
    certificate: AnyCertificate, sums: ActionStatistics, center: float = 0.0
) -> tuple[Overlap, float]:
    """The overlap and E[d²] of a policy that depends on the row, from the weights w that it gave.

    The hidden share is what is missing from a mean weight of 1, beyond three standard errors. The
    `sums` are of the valid rows; rejected ones have no weight.
    """
    _, weighted, weights, squares = certificate.evidence.totals.tolist()
    read, earned = max(sums.rows, 1), float(sums.rewards.sum())
    error = math.sqrt(max(0.0, squares / read - (weights / read) ** 2) / read)
    hidden = max(0.0, 1.0 - weights / read - THREE * error)
    estimate = weighted / weights if weights else math.nan
    mean = earned / read * (1.0 - 2.0 * center) + center**2  # of (R − c)², with R for R²
    moment = mean * max(0.0, squares - 2.0 * weights + read) / read
    return Overlap(None, certificate.effective_sample_size, estimate, hidden), moment


class GainEstimate(NamedTuple):
    """The estimated gain per row over production, and its standard error; nan without any play.

    `least` is the estimate if plays that the log does not show earn nothing.
    """

    value: float
    error: float
    least: float


def estimate_gain(policy: Array, sums: ActionStatistics) -> GainEstimate:
    """The estimated gain of a fixed policy, from the sums of the log.

    >>> counts, rewards = np.array([500, 500]), np.array([250.0, 250.0])
    >>> sums = ActionStatistics.of_behavior(counts, rewards, np.full(2, 0.5))
    >>> found = estimate_gain(np.array([0.0, 1.0]), sums)
    >>> found.value, round(found.error, 4)  # √(¼/1000), since (w − 1)² is 1 in every row
    (0.0, 0.0158)
    """
    seen = sums.counts > 0
    N, weights, pi = sums.counts[seen], sums.weights[seen], policy[seen]
    weighted, means = float((pi * sums.weighted[seen]).sum()), sums.weighted[seen] / weights
    production = float(sums.rewards.sum()) / max(sums.rows, 1)
    spread = means * (1.0 - means) + (means - production) ** 2
    squares = ((pi**2 * sums.squares[seen] - 2.0 * pi * weights + N) * spread).sum()
    return _estimate(weighted, float((pi * weights).sum()), float(squares), sums)


def estimate_gain_of_rows(certificate: AnyCertificate, sums: ActionStatistics) -> GainEstimate:
    """The estimated gain of a policy that depends on the row, from the weights that it gave."""
    _, weighted, weights, squares = certificate.evidence.totals.tolist()
    production = float(sums.rewards.sum()) / max(sums.rows, 1)
    own = min(weighted / weights, 1.0) if weights else 0.0
    spread = max(production * (1.0 - production), own * (1.0 - own) + (own - production) ** 2)
    return _estimate(weighted, weights, spread * (squares - 2.0 * weights + sums.rows), sums)


def _estimate(
    weighted: float, weights: float, squares: float, sums: ActionStatistics
) -> GainEstimate:
    """The estimate from Σ w R, Σ w and Σ d²."""
    n, earned = sums.rows, float(sums.rewards.sum())
    if not weights or not n:
        return GainEstimate(math.nan, math.nan, -earned / max(n, 1))
    least = (weighted - earned) / n
    value = least - earned / n * (weights / n - 1.0)
    return GainEstimate(value, math.sqrt(max(0.0, squares / n - value**2) / n), least)


def rows_for(
    second_moment: float,
    gain: float,
    confidence: float = 0.95,
    rejected: tuple[float, float] = (0.0, 0.0),
) -> float:
    """n = 2 E[d²] log(m/δ)/g², the number of rows that show a gain of g more often than not.

    It is larger if g/E[d²] is a larger bet than certificates make, and 0 if d is 0. `rejected` has
    s, the share of all rows that was rejected, and r̄ₛ, production's mean reward in them.

    >>> round(rows_for(second_moment=0.5, gain=0.1))
    609
    """
    if second_moment <= NEGLIGIBLE:
        return 0.0
    share, reward = rejected
    left = (1.0 - share) * gain - share * reward
    spread = (1.0 - share) * second_moment + share * reward  # with R for R²
    if left <= 0.0:
        return math.inf
    bet = min(LARGEST_BET, left / spread)
    grown = bet * left - bet**2 * spread / 2.0
    return _budget(confidence) / grown if grown > 0.0 else math.inf  # it may be no double


def visible_gain(
    second_moment: float,
    rows: int,
    confidence: float = 0.95,
    rejected: tuple[float, float] = (0.0, 0.0),
) -> float:
    """The gain for which `rows_for` gives this number of `rows`; nan if there is none.

    >>> round(visible_gain(second_moment=0.5, rows=609), 3)
    0.1
    """
    share, reward = rejected
    if second_moment <= NEGLIGIBLE or not rows or share >= 1.0:
        return math.nan
    spread = (1.0 - share) * second_moment + share * reward
    grown = _budget(confidence) / rows
    left = math.sqrt(2.0 * spread * grown)
    if left > LARGEST_BET * spread:
        left = (grown + LARGEST_BET**2 * spread / 2.0) / LARGEST_BET
    return (left + share * reward) / (1.0 - share)


def exploration_for(reward: float, gain: float, rows: int, confidence: float = 0.95) -> SampleSize:
    """ε = 2 r̄ log(m/δ)/(n g²) for n `rows`, at most ½; no number of rows like these would do.

    >>> round(exploration_for(reward=0.35, gain=0.05, rows=20_000).exploration, 4)
    0.0852
    >>> exploration_for(reward=0.35, gain=0.05, rows=100)
    SampleSize(gain=0.05, rows=inf, exploration=0.5)
    """
    needed = 2.0 * reward * _budget(confidence) / gain / gain  # the square may be no double
    share = needed / rows if rows else MOST_EXPLORATION
    return SampleSize(gain, math.inf, min(share, MOST_EXPLORATION))


def _budget(confidence: float) -> float:
    """log(m/δ), which the log wealth of the best bet must reach."""
    return math.log(GAIN_BETS / (1.0 - confidence))
