"""Whether logged propensities agree with how often actions were played.

If action a is possible in every row, and the propensities are right, then X_t = 1{b_t = a}/q_t(a)
has mean 1 in every row, whatever happened before; where a was not possible, or hardly (eligible
sets, contexts that rule it out), it has a smaller one. So Σ_t X_t is about n, or less.

More than n means that propensities are too small. Nobody can win by betting on that while it is not
so: Π_t (1 + λ(X_t − 1)) has mean at most 1 for 0 ≤ λ < 1, and reaches 1/p with a probability of at
most p, at any time (Ville). Each of the n − N rows without a adds log(1 − λ) to its logarithm, and
the N rows with it at least what they would if their 1/q had the same mean m and variance v, but two
values only, the smallest and x:

    N ((1 − s) f(x₀) + s f(x)),   f(x) = log(1 − λ + λx),   x₀ = min 1/q,   x = m + v/(m − x₀),
    s = (m − x₀)² / ((m − x₀)² + v)

(The third derivative of f is positive: of all distributions with these moments on [x₀, ∞), this one
has the least mean of f.) Rows that were set aside count in n: they may have been anybody's.

Less than n can be told only if no rare play weighs much. Then Σ_t X_t has about the variance
n (Σ 1/q² / Σ 1/q − 1), and the score is its distance from n in standard errors: for one q, that of
a binomial count.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from understudy.constraints import Array
from understudy.logs.schema import Actions, in_words
from understudy.logs.statistics import ActionStatistics
from understudy.types import read_only

__all__ = ["Calibration", "calibrate"]

LEVEL = 0.01  # the probability of an alarm about right propensities, over all actions
ENOUGH = 30.0  # rows of an action that its propensities lead to expect: below, no score is normal
BETS: Array = read_only(np.append(0.9, 2.0 ** -np.arange(1.0, 13.0)))  # λ
NAMED = 3  # actions in one sentence


@dataclass(frozen=True, eq=False)
class Calibration:
    """How often each action was played, for how often its propensities say it should have been.

    `ratios` are Σ 1/q / n and `scores` how many standard errors that is from 1, both nan where the
    log says too little. `shown` is the share of the rows in which an action was possible, as far as
    the log shows: 1 unless it was played too rarely for chance, 0 if it was never played. `wrong`
    marks the actions that were played too often for chance.
    """

    ratios: Array
    scores: Array
    shown: Array
    wrong: NDArray[np.bool_]
    agrees: bool | None
    words: str


def calibrate(tally: ActionStatistics, actions: Actions, aside: int = 0) -> Calibration:
    """Compare propensities and frequencies, with Bonferroni's correction over the actions.

    So many rows were set `aside`, which the sums do not have.

    >>> counts, q = np.array([900, 100]), np.full(2, 0.5)
    >>> sums = ActionStatistics.of_behavior(counts, counts * 1.0, q)
    >>> calibrate(sums, Actions(("a", "b"))).words
    'action a was played 1.8× as often as its propensities say: these propensities are wrong, ...'
    """
    above = _played_too_often(tally, aside)
    ratios, scores = _score(tally, aside, above)
    told = np.isfinite(ratios)
    threshold = NormalDist().inv_cdf(1.0 - LEVEL / (2.0 * max(1, told.sum())))
    below = ~above & (scores < -threshold)
    shown = np.where(below, ratios, np.where(tally.counts > 0, 1.0, 0.0))
    return Calibration(
        read_only(ratios),
        read_only(scores),
        read_only(shown),
        read_only(above),
        not (above.any() or below.any()) if told.any() else None,
        _describe(tally, actions, ratios, above, below),
    )


def _played_too_often(tally: ActionStatistics, aside: int) -> NDArray[np.bool_]:
    """For which actions the bets on too small propensities have won more than chance lets them."""
    seen = tally.weights > 0.0  # nowhere if no propensity is known
    mixture = np.logaddexp.reduce(_won(tally, seen, aside), axis=1) - np.log(len(BETS))
    found = np.zeros(len(seen), dtype=bool)
    found[seen] = mixture >= np.log(max(seen.sum(), 1) / LEVEL)
    return found


def _won(tally: ActionStatistics, seen: NDArray[np.bool_], aside: int) -> Array:
    """What each of the bets on each of the actions seen has won at least, as logarithms."""
    n, N = float(tally.rows + aside), tally.counts[seen][:, np.newaxis]
    weights, squares, highest = (
        column[seen][:, np.newaxis] for column in (tally.weights, tally.squares, tally.highest)
    )
    mean, least = weights / N, 1.0 / highest
    variance, above = np.maximum(squares / N - mean**2, 0.0), np.maximum(mean - least, 0.0)
    far = mean + np.divide(variance, above, out=np.zeros_like(mean), where=above > 0.0)
    both = above**2 + variance
    share = np.divide(above**2, both, out=np.zeros_like(mean), where=both > 0.0)
    near_log, far_log = (np.log1p(BETS * (x - 1.0)) for x in (least, far))
    return np.asarray((n - N) * np.log1p(-BETS) + N * (near_log + share * (far_log - near_log)))


def _score(tally: ActionStatistics, aside: int, wrong: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Σ 1/q / n of every action, and its distance from 1 in standard errors.

    Too few may only be said if the rows set aside would not have changed it, were they all its own.
    """
    n, unknown = max(tally.rows + aside, 1), np.full(len(tally.counts), np.nan)
    seen = tally.weights > 0.0
    mean_inverse = np.divide(tally.squares, tally.weights, out=unknown.copy(), where=seen)
    largest = np.divide(1.0, tally.lowest, out=np.full_like(unknown, np.inf), where=seen)
    told = seen & (n >= ENOUGH * largest)
    ratios = np.where(told | wrong, tally.weights / n, np.nan)
    own = np.divide(tally.weights, tally.counts, out=np.zeros_like(unknown), where=seen)
    distance = np.where(ratios < 1.0, np.minimum(ratios + aside * own / n, 1.0), ratios) - 1.0
    spread = np.sqrt(np.maximum(mean_inverse - 1.0, 0.0) / n)
    always = told & (spread == 0.0)  # propensity 1: then nothing else may ever be played
    scores = np.divide(distance, spread, out=unknown.copy(), where=(told | wrong) & ~always)
    return ratios, np.where(always, np.where(distance < 0.0, -np.inf, 0.0), scores)


def _describe(
    tally: ActionStatistics,
    actions: Actions,
    ratios: Array,
    above: NDArray[np.bool_],
    below: NDArray[np.bool_],
) -> str:
    if np.isnan(tally.weights).all():
        return "no propensities are known, so there is nothing to compare with the frequencies"
    told = int(np.isfinite(ratios).sum())
    if not told:
        return "too few rows to tell whether the propensities are right"
    if not (above.any() or below.any()):
        return (
            "logged propensities agree with the observed frequencies, as far as these can show "
            f"({told:,} of {len(actions):,} actions have enough rows to tell)"
        )
    parts = []
    if above.any():
        worst = _worst(actions, ratios, above, -ratios)
        parts.append(f"{worst}: these propensities are wrong, and so is what is made of them")
    if below.any():
        why = (
            "they are too high, in some rows it was not possible (eligible sets, contexts), or it "
            "is rare plays that did not come up"
        )
        parts.append(f"{_worst(actions, ratios, below, ratios)}: {why}")
    return "; ".join(parts)


def _worst(actions: Actions, ratios: Array, which: NDArray[np.bool_], order: Array) -> str:
    """The actions that differ most, in words."""
    found = [int(a) for a in np.argsort(order) if which[a]]
    words = ", ".join(
        f"action {in_words(actions.texts[a])} {ratios[a]:.2g}×" for a in found[1:NAMED]
    )
    more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
    first, often = in_words(actions.texts[found[0]]), f"{ratios[found[0]]:.2g}× as often"
    return f"action {first} was played {often} as its propensities say" + (
        f" ({words}{more})" if words else ""
    )
