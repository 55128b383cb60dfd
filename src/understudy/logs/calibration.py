"""Whether logged propensities agree with how often actions were played.

If action a is possible in every row, and the propensities are right, then X_t = 1{b_t = a}/q_t(a)
has mean 1 in every row, whatever happened before, and the variance 1/q_t(a) − 1. So Σ_t X_t is n
but for noise of variance Σ_t (1/q_t(a) − 1), of which only the rows that played a are logged. Their

    n (Σ 1/q² / Σ 1/q − 1)

estimates it: both sums over the rows of a, the fraction is a weighted mean of 1/q. For one q it is
n (1/q − 1), and the score is that of a binomial count.

Sums below n have two explanations, sums above n only one: where an action was not possible, or
hardly (eligible sets, contexts that rule it out), X_t is 0, which lowers the sum and never more.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from understudy.constraints import Array
from understudy.logs.actions import Actions, in_words
from understudy.logs.tally import Tally
from understudy.types import frozen

__all__ = ["Calibration", "calibrate"]

LEVEL = 0.01  # the probability of an alarm about right propensities, over all actions
ENOUGH = 30.0  # rows of an action that its propensities lead to expect: below, no score is normal
NAMED = 3  # actions in one sentence


@dataclass(frozen=True, eq=False)
class Calibration:
    """How often each action was played, for how often its propensities say it should have been.

    `ratios` are Σ 1/q / n and `scores` how many standard errors that is from 1, both nan where the
    log says too little. `shown` is the share of the rows in which an action was possible, as far as
    the log shows: 1 unless it was played too rarely for noise, 0 if it was never played. `wrong`
    marks the actions that were played too often for noise.
    """

    ratios: Array
    scores: Array
    shown: Array
    wrong: NDArray[np.bool_]
    agrees: bool | None
    words: str


def calibrate(tally: Tally, actions: Actions) -> Calibration:
    """Compare propensities and frequencies, with Bonferroni's correction over the actions.

    >>> counts, q = np.array([900, 100]), np.full(2, 0.5)
    >>> sums = Tally(counts, counts, counts / q, counts / q, counts / q**2, q, q)
    >>> calibrate(sums, Actions(("a", "b"))).words
    'action a was played 1.8× as often as its propensities say: these propensities are wrong, ...'
    """
    ratios, scores = _score(tally)
    told = np.isfinite(ratios)
    threshold = NormalDist().inv_cdf(1.0 - LEVEL / (2.0 * max(1, told.sum())))
    above, below = scores > threshold, scores < -threshold
    shown = np.where(below, ratios, np.where(tally.counts > 0, 1.0, 0.0))
    return Calibration(
        frozen(ratios),
        frozen(scores),
        frozen(shown),
        frozen(above),
        not (above.any() or below.any()) if told.any() else None,
        _describe(tally, actions, ratios, above, below),
    )


def _score(tally: Tally) -> tuple[Array, Array]:
    """Σ 1/q / n of every action, and its distance from 1 in standard errors."""
    n, unknown = tally.rows, np.full(len(tally.counts), np.nan)
    seen = tally.weights > 0.0  # nowhere if no propensity is known
    mean_inverse = np.divide(tally.squares, tally.weights, out=unknown.copy(), where=seen)
    told = seen & (n >= ENOUGH * np.nan_to_num(mean_inverse, nan=np.inf))
    ratios = np.where(told, tally.weights / max(n, 1), np.nan)
    spread = np.sqrt(np.maximum(mean_inverse - 1.0, 0.0) / max(n, 1))
    always = told & (spread == 0.0)  # propensity 1: then nothing else may ever be played
    scores = np.divide(ratios - 1.0, spread, out=unknown.copy(), where=told & ~always)
    return ratios, np.where(always, np.where(ratios < 1.0, -np.inf, 0.0), scores)


def _describe(
    tally: Tally,
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
            "logged propensities agree with the observed frequencies "
            f"({told:,} of {len(actions):,} actions have enough rows to tell)"
        )
    parts = []
    if above.any():
        worst = _worst(actions, ratios, above, -ratios)
        parts.append(f"{worst}: these propensities are wrong, and so is what is made of them")
    if below.any():
        why = "they are too high, or in some rows it was not possible (eligible sets, contexts)"
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
