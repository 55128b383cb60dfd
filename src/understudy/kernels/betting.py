"""The wealth of bets on centered rewards: certificates of rules 2, in O(1) a round.

A part is a bound, and its bets are of the form x(w, R) − y c:

    lower  x = w R            y = w − 1     c = c_t        on the target's mean reward
    upper  x = w (1 − R)      y = w − 1     c = 1 − c_t    on one minus it
    gain   x = (w − 1) R      y = w − 1     c = c_t        on its mean gain over production
    loss   x = (w − 1)(1 − R) y = w − 1     c = 1 − c_t    on minus the gain

with w = π_t(b)/q_t(b). Since E_t w = 1, a center c changes no mean, but it takes the noise of w away
where most rewards are alike. Each part has several rows of bets, one per center: the first has
c = 0, which is always valid; the others have the mean reward so far, or constants. For a bet λ the
center is at most κ/(λ (W_t − 1)), where W_t ≥ max_a π_t(a)/q_t(a) is known before b_t is drawn: so
every factor 1 + λ (x − y c) is at least 1 − κ. Where W_t is not known (inf), c is 0.

`sums` and `products` hold the rows of the parts in this order, as in `kernels.certificates`: S_i =
Σ_t log(1 + λ_i (x − y c)) is `sums` + log `products`. Products move into sums after every 32nd
round of the log, so that any batching gives the same bits, and before and after a round with a huge
weight.

A row that cannot be used has nan as its w or R, or both, and gets the smallest factor over all that
they could be (w from 0 to W, R from 0 to 1). A W of nan is one that should be known, but is not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from understudy.kernels.compiler import compiled

Array = Any

KAPPA = 0.9  # no bet loses more in a round: factors stay above .1
FACTORS = 32  # multiplications per logarithm: .1^32 and 5^32 are far from the ends of a double
HUGE = 1e5  # of a factor: 31 smaller ones and one of 1e100 are still a double
LARGEST_EXPONENT = 600.0  # of a weight: far above any threshold, below overflow
ROUNDING = 1e-9  # more than rounding can add to the mixture in a round
NO_CAP = 1e300  # the largest λ c where W ≤ 1: no center is too large


@compiled
def bet(
    products: Array, first: int, lambdas: Array, x: float, y: float, c: float, cap: float
) -> None:
    """Multiply a row of products by 1 + λ x − y min(λ c, cap)."""
    for i in range(lambdas.size):
        lam = lambdas[i]
        shift = lam * c
        shift = min(shift, cap)
        products[first + i] *= 1.0 + lam * x - y * shift


@compiled
def bet_least(
    products: Array, first: int, lambdas: Array, x: float, c: float, cap: float, excess: float
) -> None:
    """Multiply a row by the smallest factor, where w can be anything from 0 to 1 + `excess`.

    `x` is the smallest at w = 0; with the largest w the reward is taken for 0. An `excess` of nan
    leaves the cap itself, κ.
    """
    for i in range(lambdas.size):
        lam = lambdas[i]
        shift = min(lam * c, cap)
        factor = 1.0 + lam * x + shift
        loss = KAPPA if math.isnan(excess) else shift * max(excess, 0.0)
        products[first + i] *= min(factor, 1.0 - min(loss, KAPPA))


@compiled
def flush(sums: Array, products: Array) -> None:
    """Move all products into the sums."""
    for i in range(sums.size):
        sums[i] += math.log(products[i])
        products[i] = 1.0


@compiled
def weigh(sums: Array, first: int, prior: Array, weights: Array) -> None:
    """Compute ρ e^S of each bet of a part, without the pending products."""
    for i in range(weights.size):
        weights[i] = prior[i] * math.exp(min(LARGEST_EXPONENT, sums[first + i]))


@compiled
def mixture(weights: Array, products: Array, first: int) -> float:
    """Return Σ_i ρ_i e^{S_i}, summed in a fixed order."""
    total = 0.0
    for i in range(weights.size):
        total += weights[i] * products[first + i]
    return total


@compiled
def window_crosses(
    sums: Array, products: Array, first: int, prior: Array, start: Array, threshold: float
) -> bool:
    """Return whether Σ_i ρ_i exp(S_i − S_i at the start of the window) is at least `threshold`."""
    total = 0.0
    for i in range(prior.size):
        S = sums[first + i] + math.log(products[first + i]) - start[i]
        total += prior[i] * math.exp(min(LARGEST_EXPONENT, S))
    return total >= threshold


@compiled
def observe(  # noqa: C901 - one loop over rounds, with a branch for rows that cannot be used
    grids: tuple[Array, Array],
    centers: Array,
    running: bool,
    prior: Array,
    thresholds: tuple[float, float, Array],
    looks: Array,
    sums: Array,
    products: Array,
    totals: Array,
    usable: Array,
    windows: Array,
    rounds: int,
    crossed: tuple[int, int],
    columns: tuple[Array, Array, Array],
) -> tuple[int, int]:
    """Add a chunk of rounds to sums, products, totals and windows, in place.

    Args:
        grids: λ of the first two parts, and of the last two (empty if there is no gain).
        centers: of the rows after the first.
        running: whether there is one such row, and its center is the mean reward so far.
        prior: ρ of the bets of the gain, in the order of its rows.
        thresholds: of the gain, of the loss, and of the gain in each window.
        looks: the rounds after which windows are looked at, in their order.
        sums: Σ log factors, without `products`.
        products: of the factors since the last multiple of `FACTORS`.
        totals: Σ R, Σ w R, Σ w and Σ w²; in rows without a reward, Σ R has the largest possible.
        usable: the number of usable rows, and the sum of their rewards.
        windows: row j has S of the gain before round 2^(j+1), its start; none without windows.
        rounds: how many there were before.
        crossed: the first rounds after which gain and loss reached a threshold, or 0.
        columns: w, R and W of the rounds.

    Returns `crossed` after these rounds. Exact tests are rare: between them a ceiling bounds the
    mixture, which grows by its largest factor at most.
    """
    values, gains = grids
    w_column, R_column, W_column = columns
    better, worse = crossed
    low, rows = 0, centers.size + 1
    high = rows * values.size
    gain = 2 * high
    loss = gain + rows * gains.size
    widest = max(values[0], 1.0) if values.size > 0 else 1.0
    has_gain = gains.size > 0
    first_bet = gains[0] if has_gain else 0.0
    better_weights, worse_weights = np.empty(prior.size), np.empty(prior.size)
    ceiling_better = ceiling_worse = math.inf
    if has_gain:
        weigh(sums, gain, prior, better_weights)
        weigh(sums, loss, prior, worse_weights)
    look, window, next_start = 0, 0, 2
    while next_start <= rounds:
        next_start *= 2
        window += 1
    for k in range(R_column.size):
        t, w, R, W = rounds + k + 1, w_column[k], R_column[k], W_column[k]
        if t == next_start and window < windows.shape[0]:
            for i in range(prior.size):
                windows[window, i] = sums[gain + i] + math.log(products[gain + i])
            window += 1
            next_start *= 2
        excess, mean, centered = W - 1.0, (0.5 + usable[1]) / (usable[0] + 1.0), not math.isinf(W)
        cap = KAPPA / excess if excess > 0.0 else NO_CAP
        up = down = (
            0.0  # the largest x − y c of gain and loss: none grows by more than λ_1 times it
        )
        huge = 1.0 + widest * w > HUGE  # not if w is nan
        if huge:
            flush(sums, products)
            if has_gain:
                weigh(sums, gain, prior, better_weights)
                weigh(sums, loss, prior, worse_weights)
        if not (math.isnan(w) or math.isnan(R) or math.isnan(W)):
            totals[0] += R
            totals[1] += w * R
            totals[2] += w
            totals[3] += w * w
            y, rest = w - 1.0, 1.0 - R
            up, down = max(0.0, y * R), max(0.0, y * rest)
            for row in range(rows):
                c = c_rest = 0.0
                if row > 0 and centered:
                    c = mean if running else centers[row - 1]
                    c_rest = 1.0 - c
                    if y < 0.0:
                        up, down = max(up, y * (R - c)), max(down, y * (c - R))
                if R > 0.0 or c > 0.0:
                    bet(products, low + row * values.size, values, w * R, y, c, cap)
                    bet(products, gain + row * gains.size, gains, y * R, y, c, cap)
                if R < 1.0 or c_rest > 0.0:
                    bet(products, high + row * values.size, values, w * rest, y, c_rest, cap)
                    bet(products, loss + row * gains.size, gains, y * rest, y, c_rest, cap)
            usable[0] += 1.0
            usable[1] += R
        elif not math.isnan(R) or math.isnan(w) or math.isnan(W):  # w may be any
            totals[0] += 1.0 if math.isnan(R) else R
            least = -1.0 if math.isnan(R) else -R
            least_rest = -1.0 if math.isnan(R) else R - 1.0
            for row in range(rows):
                c = c_rest = spread = 0.0
                if row > 0 and centered:
                    c = mean if running else centers[row - 1]
                    c_rest, spread = 1.0 - c, excess
                bet_least(products, low + row * values.size, values, 0.0, c, cap, spread)
                bet_least(products, high + row * values.size, values, 0.0, c_rest, cap, spread)
                bet_least(products, gain + row * gains.size, gains, least, c, cap, spread)
                bet_least(products, loss + row * gains.size, gains, least_rest, c_rest, cap, spread)
        else:  # the reward alone is missing: for each part the worst
            totals[0] += 1.0
            y = w - 1.0
            least = min(0.0, y)
            for row in range(rows):
                c = c_rest = 0.0
                if row > 0 and centered:
                    c = mean if running else centers[row - 1]
                    c_rest = 1.0 - c
                bet(products, low + row * values.size, values, 0.0, y, c, cap)
                bet(products, high + row * values.size, values, 0.0, y, c_rest, cap)
                bet(products, gain + row * gains.size, gains, least, y, c, cap)
                bet(products, loss + row * gains.size, gains, least, y, c_rest, cap)
        if has_gain and better == 0 and up > 0.0:
            ceiling_better *= (1.0 + first_bet * up) * (1.0 + ROUNDING)
            if ceiling_better >= thresholds[0]:
                ceiling_better = mixture(better_weights, products, gain)
                if ceiling_better >= thresholds[0]:
                    better = t
        if has_gain and worse == 0 and down > 0.0:
            ceiling_worse *= (1.0 + first_bet * down) * (1.0 + ROUNDING)
            if ceiling_worse >= thresholds[1]:
                ceiling_worse = mixture(worse_weights, products, loss)
                if ceiling_worse >= thresholds[1]:
                    worse = t
        if look < looks.size and t == looks[look]:
            look += 1
            for j in range(window):
                if better == 0 and window_crosses(
                    sums, products, gain, prior, windows[j], thresholds[2][j]
                ):
                    better = t
        if huge or t % FACTORS == 0:
            flush(sums, products)
            if has_gain and better == 0:
                weigh(sums, gain, prior, better_weights)
            if has_gain and worse == 0:
                weigh(sums, loss, prior, worse_weights)
    return better, worse
