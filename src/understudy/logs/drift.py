"""Whether production stayed the same: in its propensities, and over time in what it played."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from understudy.constraints import Array
from understudy.errors import InvalidArgument
from understudy.logs.schema import Actions, Kind, in_words
from understudy.logs.statistics import ActionStatistics
from understudy.types import Integers

__all__ = ["Drift", "drift_of", "homogeneity"]

SAME = 1.01  # propensities that differ by less are one propensity, rounded
LEVEL = 0.001  # the probability of an alarm about a production that stayed the same
SMALLEST_CELL = 5.0  # rows that a cell must lead to expect, for its square to be like χ²
PERCENT = 100.0


@dataclass(frozen=True)
class Drift:
    """`factor`, by which the propensity of one action varies at most (nan if none is known), and

    `p_value` of the hypothesis that actions have the same shares at all times (None if no time was
    looked at, or there are too few rows). `fixed` says whether production was one fixed behavior,
    as far as can be told.
    """

    factor: float
    p_value: float | None
    fixed: bool | None
    words: str


def drift_of(
    tally: ActionStatistics,
    actions: Actions,
    kind: Kind = "logged",
    stretches: Integers | None = None,
) -> Drift:
    """What is known about a production that may change.

    Args:
        tally: the sums of the log.
        actions: the actions.
        kind: where the propensities come from; only logged ones may vary.
        stretches: how often each action was played in each of a few stretches of time, (B, K).

    >>> counts = np.array([[90, 10], [10, 90]])
    >>> empty = ActionStatistics.empty(2)
    >>> drift_of(empty, Actions(("a", "b")), "estimated", counts).words
    'the shares of actions change over time (action a: between 10 % and 90 %), which ...'
    """
    factor = _largest_factor(tally) if kind == "logged" else math.nan
    counts = None if stretches is None else _without_stub(_checked(stretches, actions))
    p_value = None if counts is None else homogeneity(counts)[1]
    words = []
    if kind == "logged" and math.isfinite(factor):
        words.append(_about_propensities(factor))
    if counts is not None:
        words.append(_about_time(p_value, counts, actions, kind, fixed=factor <= SAME))
    varies = factor > SAME or (p_value is not None and p_value < LEVEL)
    known = math.isfinite(factor) or p_value is not None
    nothing = "nothing is known about changes of production: name a column with --time"
    return Drift(factor, p_value, not varies if known else None, "; ".join(words) or nothing)


def homogeneity(counts: Integers) -> tuple[float, float | None]:
    """χ² for one distribution behind all rows of a table, and its p-value (Wilson and Hilferty's).

    Actions too rare for that are put together; if then less than two are left there is no p-value.

    >>> statistic, p_value = homogeneity(np.array([[30, 20], [20, 30]]))
    >>> statistic, round(p_value, 3)
    (4.0, 0.043)
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
    """Without empty stretches, and with rare actions as one: no cell is too small for χ²."""
    table = table[table.sum(axis=1) > 0]
    if not len(table):
        return table
    least = table.sum(axis=0) * table.sum(axis=1).min() / table.sum()
    order = np.argsort(least)
    rare = int((least < SMALLEST_CELL).sum())
    while 0 < rare < len(order) and least[order[:rare]].sum() < SMALLEST_CELL:
        rare += 1  # the rare ones together are too rare still
    rest = table[:, order[:rare]].sum(axis=1, keepdims=True)
    return np.hstack([table[:, order[rare:]], rest]) if rare else table


def _largest_factor(tally: ActionStatistics) -> float:
    seen = np.isfinite(tally.lowest)
    return float((tally.highest[seen] / tally.lowest[seen]).max()) if seen.any() else math.nan


def _about_propensities(factor: float) -> str:
    if factor > SAME:
        return (
            f"the propensity of one action varies by a factor of up to {factor:.3g}: production is "
            "no fixed behavior, so use the logged propensities, and do not estimate them"
        )
    return "each action has one propensity in all rows: production is a fixed behavior"


def _about_time(
    p_value: float | None, counts: Integers, actions: Actions, kind: Kind, *, fixed: bool
) -> str:
    if p_value is None:
        return "too few rows to tell whether production changed over time"
    if p_value >= LEVEL:
        return f"actions have the same shares at all times ({len(counts)} stretches of time)"
    counts = counts[counts.sum(axis=1) > 0]
    shares = counts / counts.sum(axis=1, keepdims=True)
    most = int(np.argmax(np.ptp(shares, axis=0)))
    low, high = (PERCENT * float(pick(shares[:, most])) for pick in (np.min, np.max))
    change = (
        f"the shares of actions change over time (action {in_words(actions.texts[most])}: "
        f"between {low:.3g} % and {high:.3g} %)"
    )
    if kind == "logged" and fixed:
        return (
            f"{change}, though each has one propensity: these are wrong, or it was not chance "
            "alone that decided"
        )
    if kind == "logged":
        return f"{change}, which logged propensities take care of"
    return f"{change}, which {kind} propensities do not know of: log the propensity of each row"


def _without_stub(counts: Integers) -> Integers:
    """With a last stretch that has just begun as part of the one before: too few rows for shares.

    >>> _without_stub(np.array([[3, 5], [4, 4], [0, 1]])).tolist()
    [[3, 5], [4, 5]]
    """
    if len(counts) < 2 or 2 * counts[-1].sum() >= counts[0].sum():  # noqa: PLR2004 - none before it
        return counts
    return np.vstack([counts[:-2], counts[-2:].sum(axis=0, keepdims=True)])


def _checked(stretches: Integers, actions: Actions) -> Integers:
    counts = np.asarray(stretches)
    if counts.ndim != 2 or counts.shape[1] != len(actions) or (counts < 0).any():  # noqa: PLR2004 - a table
        raise InvalidArgument(
            "stretches",
            counts.shape,
            f"it must be counts in rows of {len(actions)} actions",
            "count the actions of each stretch of time in a row",
        )
    return counts
