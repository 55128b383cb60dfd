"""Whether the statements of a certificate are ever wrong, after any round of a game.

The referee knows the truth of every round. A bound m exceeds the true mean exactly where the
mixture at the true mean exceeds its threshold, so no root is computed.
"""

from __future__ import annotations

import numpy as np

from understudy.behaviors import propensities_of
from understudy.certificates.evidence import GAIN, LOSS, LOWER, UPPER, Bets, WeightedRounds
from understudy.constraints import Array
from understudy.experiments.certificate_games import CONFIDENCE, GameRecord
from understudy.kernels.certificates import LARGEST_EXPONENT, wealth_path
from understudy.types import Integers

# Lower and upper bound on the reward; on the gain since round 1; lower bounds on the gain since any
# of the rounds 1, 2, 4, …; and the decisions that follow from them.
STATEMENTS = ("lower", "upper", "gain", "gain_upper", "windows", "promoted", "worse")
TINY = 1e-12  # rounding of a mean gain: below it, a gain is no gain


def wealths(record: GameRecord) -> Array:
    """S_i of all bets of the record's certificate after every round, (n, bets)."""
    bets = record.certificate().bets
    q = propensities_of(record.known, record.log)
    other = record.baseline_rounds
    own = None if other is None else other.probabilities
    columns = WeightedRounds(record.probabilities, q, record.log.rewards, record.ratios, own)
    path = np.empty((len(record.log), bets.size))
    each = columns.kernel_columns()
    wealth_path(bets.kernel_grids, *bets.kernel_centers, bets.prior, each, path)
    return path


def mixture(bets: Bets, part: int, S: Array, rounds: Integers, means: Array | float) -> Array:
    """Σ_i ρ_i exp(S_i − n log(1 + λ_i m)) of a part: one for each row of S_i, n and m."""
    if part in (GAIN, LOSS):
        grid, prior = bets.gains, bets.prior
    else:
        grid = bets.values
        prior = np.repeat(bets.weights.ravel() / len(grid), len(grid))
    fair = rounds[:, np.newaxis] * np.log1p(np.outer(np.broadcast_to(means, len(S)), grid))
    exponents = S - np.tile(fair, bets.rows)
    return np.asarray(np.exp(np.minimum(exponents, LARGEST_EXPONENT)) @ prior)


def ever_wrong(record: GameRecord, confidence: float = CONFIDENCE) -> dict[str, bool]:
    """Whether each of the statements was wrong after any round."""
    bets, path, n = record.certificate(confidence).bets, wealths(record), len(record.log)
    rounds, earned = np.arange(1, n + 1), np.cumsum(record.target_rewards)
    S = {part: path[:, bets.place(part)] for part in (LOWER, UPPER, GAIN, LOSS)}
    lower = mixture(bets, LOWER, S[LOWER], rounds, earned / rounds)
    upper = mixture(bets, UPPER, S[UPPER], rounds, 1.0 - earned / rounds)
    better, worse, later = bets.thresholds
    starts = starts_of(bets, n)
    since = [
        gain_wrong(bets, GAIN, S[GAIN], record.gains, start=start, threshold=threshold)
        for start, threshold in zip(starts, [better, *later], strict=False)
    ]
    loss = gain_wrong(bets, LOSS, S[LOSS], -record.gains, start=1, threshold=worse)
    return {
        "lower": bool((lower >= 2.0 / bets.delta).any()),
        "upper": bool((upper >= 2.0 / bets.delta).any()),
        "gain": since[0][0],
        "gain_upper": loss[0],
        "windows": any(bound for bound, _ in since),
        "promoted": any(decision for _, decision in since),
        "worse": loss[1],
    }


def starts_of(bets: Bets, rounds: int) -> list[int]:
    """The first rounds of all windows: 1, 2, 4, …, or 1 alone.

    >>> import understudy as us
    >>> starts_of(us.Certificate([0.5, 0.5]).bets, 5)
    [1, 2, 4]
    """
    return [1, *(2**j for j in range(1, rounds.bit_length()) if bets.windows)]


def gain_wrong(
    bets: Bets, part: int, S: Array, gains: Array, *, start: int, threshold: float
) -> tuple[bool, bool]:
    """Whether the bound on the gain since a round was ever wrong, and that there is a gain.

    `S` are S_i of the part after every round.
    """
    since = S[start - 1 :] - (S[start - 2] if start > 1 else 0.0)
    rounds = np.arange(1, len(since) + 1)
    means = np.cumsum(gains[start - 1 :]) / rounds
    bound = mixture(bets, part, since, rounds, means) >= threshold
    none = means <= TINY
    decision = mixture(bets, part, since[none], rounds[none], 0.0) >= threshold
    return bool(bound.any()), bool(decision.any())
