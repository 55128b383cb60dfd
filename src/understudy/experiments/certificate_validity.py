"""Whether the statements of a certificate are ever wrong, after any round of a game.

The referee knows the truth of every round. A bound m exceeds the true mean exactly where the
mixture at the true mean exceeds its threshold, so no root is computed.
"""

from __future__ import annotations

import numpy as np

from understudy.certificates.evidence import GAIN, LOSS, LOWER, UPPER, Bets
from understudy.constraints import Array
from understudy.experiments.certificate_games import GameRecord
from understudy.kernels.certificates import LARGEST_EXPONENT, wealth_path
from understudy.types import Integers, kernel_view

# Lower and upper bound on the reward; on the gain since round 1; lower bounds on the gain since any
# of the rounds 1, 2, 4, …; and the decisions that follow from them.
STATEMENTS = ("lower", "upper", "gain", "gain_upper", "windows", "promoted", "worse")
TINY = 1e-12  # rounding of a mean gain: below it, a gain is no gain


def wealths(record: GameRecord) -> Array:
    """S_i of all bets of the record's certificate after every round, (n, bets)."""
    certificate = record.certificate
    bets, known = certificate.bets, certificate.behavior
    q = record.log.propensities if not isinstance(known, np.ndarray) else known[record.log.actions]
    assert q is not None
    w = record.probabilities / q
    columns = (kernel_view(w), kernel_view(record.log.rewards), kernel_view(record.ratios))
    path = np.empty((len(record.log), bets.size))
    wealth_path(bets.kernel_grids, *bets.kernel_centers, bets.prior, columns, path)
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


def ever_wrong(record: GameRecord) -> dict[str, bool]:
    """Whether each of the statements was wrong after any round."""
    bets, path, n = record.certificate.bets, wealths(record), len(record.log)
    t = np.arange(1, n + 1)
    earned, gained = np.cumsum(record.target_rewards), np.cumsum(record.gains)
    S = {part: path[:, bets.place(part)] for part in (LOWER, UPPER, GAIN, LOSS)}
    better, worse, windows = bets.thresholds

    def wrong(part: int, means: Array, threshold: float) -> bool:
        return bool((mixture(bets, part, S[part], t, means) >= threshold).any())

    gain, promoted = wrong(GAIN, gained / t, better), False
    since_any = gain
    starts = [1, *(2**j for j in range(1, n.bit_length()) if bets.windows)]
    for start, threshold in zip(starts, [better, *windows], strict=False):
        before = S[GAIN][start - 2] if start > 1 else 0.0
        since, rounds = S[GAIN][start - 1 :] - before, t[: n - start + 1]
        mean = (gained[start - 1 :] - (gained[start - 2] if start > 1 else 0.0)) / rounds
        if start > 1:
            since_any |= bool((mixture(bets, GAIN, since, rounds, mean) >= threshold).any())
        none = mean <= TINY
        shown = mixture(bets, GAIN, since[none], rounds[none], 0.0) >= threshold
        promoted |= bool(shown.any())
    not_worse = gained / t >= -TINY
    shown = mixture(bets, LOSS, S[LOSS][not_worse], t[not_worse], 0.0) >= worse
    return {
        "lower": wrong(LOWER, earned / t, 2.0 / bets.delta),
        "upper": wrong(UPPER, 1.0 - earned / t, 2.0 / bets.delta),
        "gain": gain,
        "gain_upper": wrong(LOSS, -gained / t, worse),
        "windows": since_any,
        "promoted": promoted,
        "worse": bool(shown.any()),
    }
