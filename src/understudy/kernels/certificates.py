"""Betting confidence sequences in O(1) a round, with centered bets: certificates of rules 2.

A part is a bound, and its bets are of the form x(w, R) − y c:

    lower  x = w R            y = w − 1     c = c_t        on the target's mean reward
    upper  x = w (1 − R)      y = w − 1     c = 1 − c_t    on one minus it
    gain   x = (w − w₀) R     y = w − w₀    c = c_t        on its mean gain over a baseline
    loss   x = (w − w₀)(1−R)  y = w − w₀    c = 1 − c_t    on minus the gain

with w = π_t(b)/q_t(b), and w₀ that of the baseline: 1 of production, or π₀(b)/q_t(b) ≤ B. Since
E_t w = E_t w₀ = 1, a center c changes no mean, but takes the noise of the weights away
where most rewards are alike. Each part has several rows of bets, one per center: the first has
c = 0, which is always valid; the others have the mean reward so far, or constants. For a bet λ the
center is at most κ/(λ Y_t), where Y_t ≥ y is known before b_t is drawn: W_t − 1 with
W_t ≥ max_a π_t(a)/q_t(a), and D_t ≥ max_a (π_t(a) − π₀(a))/q_t(a) of gain and loss, whose λ are
divided by B. So every factor 1 + λ (x − y c) is at least 1 − κ. Where Y_t is not known (inf),
c is 0.

`sums` and `products` hold the rows of the parts in this order: S_i = Σ_t log(1 + λ_i (x − y c)) is
`sums` + log `products`. Products move into sums after every 32nd round of the log, so that any
batching gives the same bits, and before and after a round with a huge weight.

A row that cannot be used has nan as its w or R, or both, and gets the smallest factor over all that
they could be (w from 0 to W, R from 0 to 1). If w alone is known, W must be that of a usable row: a
center that depends on which rows lack a reward depends on the action. W is
nan where a row had a W that is lost.
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
LARGEST_PRODUCT = 1e160  # of 31 factors up to 1e5
LARGEST_EXPONENT = 600.0  # of a weight: far above any threshold, below overflow
ROUNDING = 1e-9  # more than rounding can add to the mixture in a round
STEPS = 1000  # a guard against an endless loop: every step is a valid bound
NEGLIGIBLE = 60.0  # e^-60 of the largest term is below its last digit
NO_CAP = 1e300  # the largest λ c where W ≤ 1: no center is too large


@compiled
def bet(
    products: Array, first: int, lambdas: Array, x: float, y: float, c: float, cap: float
) -> None:
    """Multiply a row of products by 1 + λ x − y min(λ c, cap).

    The row is a slice: an index that may be negative would keep the loop from being vectorized.
    """
    row = products[first : first + lambdas.size]
    for i in range(lambdas.size):
        row[i] *= 1.0 + lambdas[i] * x - y * min(lambdas[i] * c, cap)


@compiled
def bet_least(
    products: Array, first: int, lambdas: Array, x: float, c: float, cap: float, excess: float
) -> None:
    """Multiply a row by the smallest factor, where w − w₀ can be anything up to `excess`.

    `x` is the smallest at w = 0, without the center: production may have played this action for
    sure, and then a center changes the mean. With the largest w the reward is taken for 0. An
    `excess` of nan leaves the cap itself, κ.
    """
    for i in range(lambdas.size):
        loss = KAPPA if math.isnan(excess) else min(lambdas[i] * c, cap) * max(excess, 0.0)
        products[first + i] *= min(1.0 + lambdas[i] * x, 1.0 - min(loss, KAPPA))


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
def center_of(row: int, centers: Array, running: bool, mean: float, known: bool) -> float:
    """Return c of a row of bets: 0 of the first, and where W is not known."""
    if row == 0 or not known:
        return 0.0
    return mean if running else float(centers[row - 1])


@compiled
def cap_of(excess: float) -> float:
    """Return the largest λ c for weights up to this above their mean; nan is above nothing."""
    return KAPPA / excess if excess > 0.0 else NO_CAP


@compiled
def bet_usable(
    products: Array,
    values: Array,
    gains: Array,
    centers: Array,
    running: bool,
    known: bool,
    event: tuple[float, float, float, float, float, float],
) -> None:
    """Bet on a round of w and R, in all parts.

    `event` has w, R, w − w₀, the mean so far, and the caps of the bets on rewards and on the gain.
    """
    w, R, d, mean, cap, gain_cap = event
    y, rest, rows, n, m = w - 1.0, 1.0 - R, centers.size + 1, values.size, gains.size
    for row in range(rows):
        c = center_of(row, centers, running, mean, known)
        c_rest = 1.0 - c if row > 0 and known else 0.0
        if R > 0.0 or c > 0.0:  # else all factors are 1
            bet(products, row * n, values, w * R, y, c, cap)
            bet(products, 2 * rows * n + row * m, gains, d * R, d, c, gain_cap)
        if R < 1.0 or c_rest > 0.0:
            bet(products, (rows + row) * n, values, w * rest, y, c_rest, cap)
            bet(products, 2 * rows * n + (rows + row) * m, gains, d * rest, d, c_rest, gain_cap)


@compiled
def bet_unusable(
    products: Array,
    values: Array,
    gains: Array,
    centers: Array,
    running: bool,
    known: bool,
    most: float,
    event: tuple[float, float, float, float, float, float],
) -> None:
    """Bet on a row that cannot be used, in all parts, as the worst that it may have been.

    If w is known, the reward is not: it is the worst for each part. `most` is B, and `event` has w,
    R, w − w₀, the mean so far, W − 1 and D.
    """
    w, R, d, mean, excess, difference = event
    rows, n, m, y = centers.size + 1, values.size, gains.size, w - 1.0
    cap, gain_cap = cap_of(excess), cap_of(difference)
    least = -most if math.isnan(R) else -most * R
    least_rest = -most if math.isnan(R) else most * (R - 1.0)
    for row in range(rows):
        c = center_of(row, centers, running, mean, known)
        centered = row > 0 and known
        c_rest, spread = 1.0 - c if centered else 0.0, excess if centered else 0.0
        gain_spread = difference if centered else 0.0
        low, high = row * n, (rows + row) * n
        gain, loss = 2 * rows * n + row * m, 2 * rows * n + (rows + row) * m
        if math.isnan(w):
            bet_least(products, low, values, 0.0, c, cap, spread)
            bet_least(products, high, values, 0.0, c_rest, cap, spread)
            bet_least(products, gain, gains, least, c, gain_cap, gain_spread)
            bet_least(products, loss, gains, least_rest, c_rest, gain_cap, gain_spread)
        else:
            bet(products, low, values, 0.0, y, c, cap)
            bet(products, high, values, 0.0, y, c_rest, cap)
            bet(products, gain, gains, min(0.0, d), d, c, gain_cap)
            bet(products, loss, gains, min(0.0, d), d, c_rest, gain_cap)


@compiled
def largest_growth(bet: float, y: float, R: float, highest: float) -> float:
    """Return a bound on the factors 1 + λ (y R − y c) of centers up to this, for λ up to `bet`."""
    return (1.0 + bet * max(y * R, -y * (highest - R), 0.0)) * (1.0 + ROUNDING)


@compiled
def begin_windows(
    t: int, sums: Array, products: Array, first: int, windows: Array, started: int
) -> int:
    """Keep S of the gain if round t is the start of the next window; return how many started."""
    if started < windows.shape[0] and t == 1 << (started + 1):
        for i in range(windows.shape[1]):
            windows[started, i] = sums[first + i] + math.log(products[first + i])
        return started + 1
    return started


@compiled
def observe(  # noqa: C901, PLR0912, PLR0915 - one loop over rounds, and calls cost time
    grids: tuple[Array, Array, float],
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
    columns: tuple[Array, Array, Array, Array, Array],
) -> tuple[int, int]:
    """Add a chunk of rounds to sums, products, totals and windows, in place.

    Args:
        grids: λ of the first two parts, and of the last two (empty if there is no gain); B.
        centers: of the rows after the first.
        running: whether there is one such row, and its center is the mean reward so far.
        prior: ρ of the bets of the gain, in the order of its rows.
        thresholds: of the gain, of the loss, and of the gain in each window.
        looks: the rounds after which windows are looked at, in their order.
        sums: Σ log factors, without `products`.
        products: of the factors since the last multiple of `FACTORS`.
        totals: Σ R, Σ w R, Σ w and Σ w²; in rows without a reward, Σ R has the largest possible.
        usable: the number of usable rows, the sum of their rewards, and the number with known W.
        windows: row j has S of the gain before round 2^(j+1), its start; none without windows.
        rounds: how many there were before.
        crossed: the first rounds after which gain and loss reached a threshold, or 0.
        columns: w, R, W, w₀ and D of the rounds.

    Returns `crossed` after these rounds. Exact tests are rare: between them a ceiling bounds the
    mixture.
    """
    values, gains, most = grids
    w_column, R_column, W_column, baseline_column, D_column = columns
    better_at, worse_at, window_at = thresholds
    better, worse = crossed
    gain = 2 * (centers.size + 1) * values.size
    loss = gain + (centers.size + 1) * gains.size
    widest = max(values[0], 1.0) if values.size > 0 else 1.0
    largest = gains[0] if gains.size > 0 else 0.0
    highest = 1.0 if running or centers.size == 0 else centers[-1]
    lowest = 0.0 if running or centers.size == 0 else centers[0]
    better_weights, worse_weights = np.empty(prior.size), np.empty(prior.size)
    better_ceiling = worse_ceiling = math.inf
    weigh(sums, gain, prior, better_weights)
    weigh(sums, loss, prior, worse_weights)
    look, started = 0, 0
    while started < windows.shape[0] and 1 << (started + 1) <= rounds:
        started += 1
    for k in range(R_column.size):
        t, w, R, W = rounds + k + 1, w_column[k], R_column[k], W_column[k]
        d, D = w - baseline_column[k], D_column[k]
        started = begin_windows(t, sums, products, gain, windows, started)
        excess, mean, known = W - 1.0, (0.5 + usable[1]) / (usable[0] + 1.0), not math.isinf(W)
        huge = 1.0 + widest * w > HUGE  # not if w is nan
        if huge:
            flush(sums, products)
            weigh(sums, gain, prior, better_weights)
            weigh(sums, loss, prior, worse_weights)
        if not (math.isnan(w) or math.isnan(R) or math.isnan(W)):
            event = w, R, d, mean, cap_of(excess), cap_of(D)
            bet_usable(products, values, gains, centers, running, known, event)
            totals[0] += R
            totals[1] += w * R
            totals[2] += w
            totals[3] += w * w
            usable[0] += 1.0
            usable[1] += R
            usable[2] += 1.0 if known else 0.0
            up = mean if running else highest
            down = 1.0 - (mean if running else lowest)
            if better == 0:  # else the ceilings do not matter
                better_ceiling *= largest_growth(largest, d, R, up)
                if better_ceiling >= better_at:
                    better_ceiling = mixture(better_weights, products, gain)
                    better = t if better_ceiling >= better_at else 0
            if worse == 0:
                worse_ceiling *= largest_growth(largest, d, 1.0 - R, down)
                if worse_ceiling >= worse_at:
                    worse_ceiling = mixture(worse_weights, products, loss)
                    worse = t if worse_ceiling >= worse_at else 0
        else:  # no factor is above 1
            unknown = math.nan if math.isnan(W) or not math.isnan(R) else w
            event = unknown, R, d, mean, excess, D
            bet_unusable(products, values, gains, centers, running, known, most, event)
            totals[0] += 1.0 if math.isnan(R) else R
        if look < looks.size and t == looks[look]:
            look += 1
            for j in range(started):
                if better == 0 and window_crosses(
                    sums, products, gain, prior, windows[j], window_at[j]
                ):
                    better = t
        if huge or t % FACTORS == 0:
            flush(sums, products)
            if better == 0:
                weigh(sums, gain, prior, better_weights)
            if worse == 0:
                weigh(sums, loss, prior, worse_weights)
    return better, worse


@compiled
def log_wealths(sums: Array, products: Array, out: Array) -> None:
    """Compute the log wealth S_i = Σ_t log(1 + λ_i x_t) of every bet."""
    for i in range(sums.size):
        out[i] = sums[i] + math.log(products[i])


@compiled
def wealth_path(
    grids: tuple[Array, Array, float],
    centers: Array,
    running: bool,
    prior: Array,
    columns: tuple[Array, Array, Array, Array, Array],
    path: Array,
) -> None:
    """Compute S_i of every bet after every round of a log, (n, bets); arguments as of `observe`."""
    w, R, W, baseline, D = columns
    sums, products = np.zeros(path.shape[1]), np.ones(path.shape[1])
    totals, usable, windows = np.zeros(4), np.zeros(3), np.zeros((0, prior.size))
    never, looks = (math.inf, math.inf, np.empty(0)), np.empty(0)
    state = looks, sums, products, totals, usable, windows
    for t in range(R.size):
        one = slice(t, t + 1)
        row = w[one], R[one], W[one], baseline[one], D[one]
        observe(grids, centers, running, prior, never, *state, t, (1, 1), row)
        log_wealths(sums, products, path[t])


@compiled
def log_mixture(
    S: Array, lambdas: Array, rounds: int, m: float, exponents: Array
) -> tuple[float, float]:
    """Return log Σ_i ρ_i exp(S_i − n log(1 + λ_i m)), and its derivative in m."""
    largest = -math.inf
    for i in range(S.size):
        exponents[i] = S[i] - rounds * math.log1p(lambdas[i] * m)
        largest = max(largest, exponents[i])
    total = slope = 0.0
    for i in range(S.size):
        if exponents[i] < largest - NEGLIGIBLE:
            continue
        weight = math.exp(exponents[i] - largest)
        total += weight
        slope -= weight * rounds * lambdas[i] / (1.0 + lambdas[i] * m)
    return largest + math.log(total / S.size), slope / total


@compiled
def root(S: Array, lambdas: Array, rounds: int, log_threshold: float, low: float) -> float:
    """Return the m in [low, 1] at which `log_mixture` falls to `log_threshold`, or an end.

    `log_mixture` is decreasing and convex in m, so Newton's steps from the left never pass the
    root: each step is a valid bound.
    """
    exponents = np.empty(S.size)
    value, slope = log_mixture(S, lambdas, rounds, low, exponents)
    if value <= log_threshold:
        return low
    for _ in range(STEPS):
        m = min(1.0, low + (log_threshold - value) / slope)
        if m <= low:
            break
        low = m
        value, slope = log_mixture(S, lambdas, rounds, low, exponents)
        if value <= log_threshold or low == 1.0:
            break
    return low


@compiled
def tally(
    actions: Array,
    rewards: Array,
    propensities: Array,
    counts: Array,
    totals: Array,
    ranges: Array,
) -> None:
    """Add events to the sums of their actions, in place, in order.

    `totals` are Σ R, Σ R/q, Σ 1/q and Σ 1/q², (4, K); `ranges` the smallest and largest q, (2, K),
    nan before the first.
    """
    for t in range(actions.size):
        a, R, q = actions[t], rewards[t], propensities[t]
        weight = 1.0 / q
        counts[a] += 1
        totals[0, a] += R
        totals[1, a] += R * weight
        totals[2, a] += weight
        totals[3, a] += weight * weight
        if not ranges[0, a] <= q:  # also where it is nan
            ranges[0, a] = q
        if not ranges[1, a] >= q:
            ranges[1, a] = q
