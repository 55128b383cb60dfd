"""What the kernels compute, in NumPy, a formula a line: the tests compare the two."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import mpmath
import numpy as np

Array = Any


def exponential_weights(eta: float, scores: Array, actions: Array, gains: Array) -> Array:
    """π_t(a) ∝ exp(η G_t(a)) before each event, and after the last: (n + 1, K), in log space.

    >>> exponential_weights(1.0, np.zeros(2), np.array([0]), np.array([np.log(3)])).tolist()
    [[0.5, 0.5], [0.75, 0.25]]
    """
    steps = np.zeros((len(actions) + 1, len(scores)))
    steps[0] = scores
    steps[np.arange(1, len(actions) + 1), actions] = gains
    return softmax(eta * np.cumsum(steps, axis=0))


def lin_prod(eta: float, thetas: Array, start: int, features: Array) -> Array:
    """π_t(a|X_t) ∝ Π_{k<t} (1 + η ⟨θ̂_k, φ(X_t, a)⟩) for t = start, start + 1, …: (n, K).

    >>> lin_prod(0.5, np.array([[1.0, 0.0]]), 1, np.eye(2)[np.newaxis]).round(3).tolist()
    [[0.6, 0.4]]
    """
    return np.array(
        [
            softmax(np.log1p(eta * (phi @ thetas[:t].T)).sum(axis=1))
            for t, phi in enumerate(features, start)
        ]
    )


def lin_prod_compact(etas: Array, curvature: float, thetas: Array, features: Array) -> Array:
    """π_t(a|X_t) ∝ exp(η_t Σ_{k<t} (z − c η_k z²)), z = ⟨θ̂_k, φ(X_t, a)⟩, from round 1 on: (n, K).

    >>> features = np.broadcast_to(np.eye(2), (2, 2, 2))
    >>> thetas = np.array([[1.0, 0.0], [0.0, 0.0]])
    >>> lin_prod_compact(np.array([0.5, 0.5]), 1.0, thetas, features).round(3).tolist()
    [[0.5, 0.5], [0.562, 0.438]]
    """
    z = [phi @ thetas[:t].T for t, phi in enumerate(features)]
    gains = [z[t] - curvature * etas[:t] * z[t] ** 2 for t in range(len(etas))]
    return softmax(np.array([eta * gains[t].sum(axis=1) for t, eta in enumerate(etas)]))


def softmax(log_weights: Array) -> Array:
    """exp(x) / Σ exp(x) along the last axis, relative to the largest x.

    >>> softmax(np.array([0.0, 1e6])).tolist()
    [0.0, 1.0]
    """
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def observe(edges: Array, means: Array, uniforms: Array) -> tuple[Array, Array]:
    """A^B_t, and R^B_t with means (n, K), from two uniform numbers a round, (2, n).

    >>> observe(np.array([0.5, 1.0]), np.array([[0.2, 0.9]]), np.array([[0.7], [0.3]]))
    (array([1]), array([1.]))
    """
    actions = np.searchsorted(edges, uniforms[0], side="right")
    return actions, (uniforms[1] < means[np.arange(len(actions)), actions]).astype(float)


def count_before(counts: Array, actions: Array) -> Array:
    """How often each event's action came before it.

    >>> count_before(np.array([5, 0]), np.array([0, 1, 0])).tolist()
    [5, 0, 6]
    """
    return np.array([counts[a] + (actions[:t] == a).sum() for t, a in enumerate(actions)])


def kl_upper(frequency: float, count: float, budget: float) -> float:
    """max{p ∈ [q̂, 1] : count · kl(q̂, p) ≤ budget}, by halving.

    >>> round(kl_upper(0.0, 10.0, 1.0), 4), round(kl_upper(0.5, 10.0, 1.0), 4), kl_upper(1, 10, 1)
    (0.0952, 0.7129, 1.0)
    """
    low, high = float(frequency), 1.0
    for _ in range(100):
        p = (low + high) / 2.0
        low, high = (p, high) if count * kl(frequency, p) <= budget else (low, p)
    return high


def kl(q: float, p: float) -> float:
    """The Bernoulli kl(q, p) = q log(q/p) + (1 − q) log((1 − q)/(1 − p)), with 0 log 0 = 0.

    >>> kl(0.5, 0.5), round(kl(0.5, 0.75), 4), kl(0.5, 1.0)
    (0.0, 0.1438, inf)
    """
    pairs = [(x, y) for x, y in ((q, p), (1.0 - q, 1.0 - p)) if x > 0]
    return float(sum(x * np.log(x / y) if y > 0 else np.inf for x, y in pairs))


def weighted_entropy(rates: Array, prior: Array, scores: Array) -> Array:
    """w(e) = w₁(e) exp(η_e (G(e) − Λ)), with Λ found by bisection so that the weights sum to 1.

    >>> weighted_entropy(np.array([1.0, 1.0]), np.array([0.5, 0.5]), np.array([0.0, np.log(3)]))
    array([0.25, 0.75])
    """
    seen = prior > 0
    x = np.log(prior[seen]) + rates[seen] * (scores[seen] - scores[seen].max())
    low, high = (x / rates[seen]).max(), ((x + np.log(len(x))) / rates[seen]).max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.exp(x - rates[seen] * middle).sum() > 1 else (low, middle)
    weights = np.zeros(len(scores))
    weights[seen] = np.exp(x - rates[seen] * high)
    return weights / weights.sum()


def grid_weights(rates: Array, prior: Array, shares: Array, estimates: Array) -> Array:
    """The weight of every expert before each round of estimated rewards, and after: (n + 1, M).

    Expert m on level i has the prior share_m · prior_i and gains log(1 + η_i r̂(m, i))/η_i a round.
    Estimates are (n, M), or (n, M, levels).

    >>> grid_weights(np.array([0.5]), np.array([1.0]), np.full(2, 0.5), np.array([[2.0, 0.0]]))
    array([[0.5       , 0.5       ],
           [0.66666667, 0.33333333]])
    """
    by_level = estimates if estimates.ndim > 2 else estimates[:, :, np.newaxis]
    gains = np.log1p(by_level * rates) / rates
    sums = np.concatenate([np.zeros((1, len(shares), len(rates))), np.cumsum(gains, axis=0)])
    w1, etas = np.outer(shares, prior), np.tile(rates, len(shares))
    rows = [weighted_entropy(etas, w1.ravel(), G.ravel()).reshape(w1.shape) for G in sums]
    return np.array(rows).sum(axis=2)


def centered_estimates(rates: Array, w: Array, R: Array, center: Array, excess: Array) -> Array:
    """w (R − c) + c of every expert and level, with c = min(center, ½/(η (w_max − 1))).

    At least −½/η, below which only a w above the largest could take it.

    >>> w, R, center = np.array([[2.0, 0.0]]), np.array([0.5]), np.array([0.25])
    >>> centered_estimates(np.array([0.1, 4.0]), w, R, center, np.array([1.0]))[0].tolist()
    [[0.75, 0.875], [0.25, 0.125]]
    """
    with np.errstate(divide="ignore"):
        most = 0.5 / (rates * excess[:, np.newaxis])
    c = np.minimum(center[:, np.newaxis], most)[:, np.newaxis]
    x = w[:, :, np.newaxis] * (R[:, np.newaxis, np.newaxis] - c) + c
    return np.maximum(x, -0.5 / rates)


def ridge_moments(
    ridge: float, n_actions: int, contexts: Array, actions: Array, rewards: Array
) -> tuple[Array, Array, Array]:
    """A_a = ℓI + Σ xxᵀ, Σ xR and Σ x over the rows of every action.

    >>> [part.tolist() for part in ridge_moments(1.0, 1, np.ones((2, 1)), np.zeros(2), np.ones(2))]
    [[[[3.0]]], [[2.0]], [[2.0]]]
    """
    own = [(contexts[actions == a], rewards[actions == a]) for a in range(n_actions)]
    A = np.array([ridge * np.eye(contexts.shape[1]) + X.T @ X for X, _ in own])
    return A, np.array([X.T @ R for X, R in own]), np.array([X.sum(axis=0) for X, _ in own])


def ridge_policy(
    moments: tuple[Array, Array, Array], center: float, betas: Array, taus: Array, x: Array
) -> Array:
    """softmax((xᵀA_a⁻¹(Σ xR − r̄ Σ x) − β √(xᵀA_a⁻¹x))/τ) of every β and τ: (variants, K).

    >>> moments = ridge_moments(1.0, 2, np.ones((1, 1)), np.zeros(1), np.ones(1))
    >>> ridge_policy(moments, 0.0, np.zeros(1), np.ones(1), np.ones(1)).round(3).tolist()
    [[0.622, 0.378]]
    """
    A, by_reward, by_one = moments
    solved = [np.linalg.solve(matrix, x) for matrix in A]
    estimates = [x_ @ (u - center * v) for x_, u, v in zip(solved, by_reward, by_one, strict=True)]
    widths = np.sqrt([x_ @ x for x_ in solved])
    return softmax((np.array(estimates) - np.outer(betas, widths)) / taus[:, np.newaxis])


def fourier(frequencies: Array, phases: Array, contexts: Array) -> Array:
    """(1, √(2/D) cos(⟨ω_d, x⟩ + φ_d)), d = 1..D, of every context: (n, D + 1).

    >>> fourier(np.zeros((1, 2)), np.zeros(2), np.ones((1, 1))).tolist()
    [[1.0, 1.0, 1.0]]
    """
    cosines = np.sqrt(2 / len(phases)) * np.cos(contexts @ frequencies + phases)
    return np.column_stack([np.ones(len(contexts)), cosines])


def tally(actions: Array, rewards: Array, propensities: Array, n_actions: int) -> Array:
    """Rows, Σ R, Σ R/q, Σ 1/q, Σ 1/q², min q and max q of each action: (7, K).

    >>> tally(np.array([0, 0]), np.array([1.0, 0.5]), np.array([0.5, 0.25]), 1).ravel().tolist()
    [2.0, 1.5, 4.0, 6.0, 20.0, 0.25, 0.5]
    """
    columns = []
    for a in range(n_actions):
        R, q = rewards[actions == a], propensities[actions == a]
        sums = [len(q), R.sum(), (R / q).sum(), (1 / q).sum(), (1 / q**2).sum()]
        columns.append([*sums, q.min(initial=np.inf), q.max(initial=-np.inf)])
    return np.array(columns).T


def log_wealths(lambdas: Array, x: Array) -> Array:
    """S_i = Σ_{k≤t} log(1 + λ_i x_k) after every round t: (n, number of λ).

    >>> log_wealths(np.array([1.0]), np.array([1.0, 0.0, 3.0])).round(4).tolist()
    [[0.6931], [0.6931], [2.0794]]
    """
    return np.cumsum(np.log1p(np.outer(x, lambdas)), axis=0)


def log_mixture(S: Array, lambdas: Array, rounds: Array, m: Array) -> Array:
    """log Σ_i ρ_i exp(S_i − n log(1 + λ_i m)) with equal ρ, along the last axis of S.

    >>> float(log_mixture(np.array([np.log(6.0)]), np.array([1.0]), 1, 1.0).round(4))
    1.0986
    """
    n, m = np.asarray(rounds)[..., np.newaxis], np.asarray(m)[..., np.newaxis]
    return np.logaddexp.reduce(S - n * np.log1p(lambdas * m), axis=-1) - np.log(len(lambdas))


def lower_root(S: Array, lambdas: Array, rounds: int, log_threshold: float, low: float) -> float:
    """The m in [low, 1] at which `log_mixture` falls to the threshold, by bisection, or an end.

    >>> round(lower_root(np.array([np.log(6.0)]), np.array([4.0]), 1, np.log(2.0), 0.0), 9)
    0.5
    """
    high = 1.0
    if log_mixture(S, lambdas, rounds, low) <= log_threshold:
        return low
    if log_mixture(S, lambdas, rounds, high) >= log_threshold:
        return high
    while low < (middle := (low + high) / 2) < high:
        above = log_mixture(S, lambdas, rounds, middle) > log_threshold
        low, high = (middle, high) if above else (low, middle)
    return low


def centered_wealths(
    w: Array,
    R: Array,
    W: Array,
    values: Array,
    gains: Array,
    *,
    centers: Any = None,
    baseline: Array | None = None,
    most: float = 1.0,
) -> Array:
    """S_i of all bets of a certificate of rules 2 after every round: (n, number of bets).

    Row after row of the four parts; nan in w or R stands for what is not known of a row, nan in W
    for a largest ratio that is not known where it should be. `centers` of None is the mean reward
    of the usable rows so far. `baseline` has w₀ ≤ `most` of every row; without it, production's.

    >>> one = np.array([1.0])
    >>> centered_wealths(np.array([2.0]), one, np.array([2.0]), one, 0.5 * one).round(3).tolist()
    [[1.099, 0.916, 0.0, -0.693, 0.405, 0.223, 0.0, -0.288]]
    """
    n = len(R)
    usable = ~(np.isnan(w) | np.isnan(R) | np.isnan(W))
    earned = np.concatenate([[0.0], np.cumsum(np.where(usable, R, 0.0))[:-1]])
    mean = (0.5 + earned) / (np.concatenate([[0], np.cumsum(usable)[:-1]]) + 1.0)
    rows = [mean] if centers is None else [np.full(n, c) for c in centers]
    w0, D = (np.ones(n), W - 1.0) if baseline is None else (baseline, W)
    found = []
    for part, grid in enumerate((values, values, gains, gains)):
        for center in (np.zeros(n), *rows):
            raw = not center.any()
            c = center if part % 2 == 0 or raw else 1.0 - center
            c = np.where(np.isinf(W), 0.0, c)
            factors = np.empty((n, len(grid)))
            for t in range(n):
                row = _Row(w[t], R[t], W[t], w0[t], D[t], most)
                for i, bet in enumerate(grid):
                    factors[t, i] = row.factor(part, bet, c[t], raw=raw)
            found.append(np.cumsum(np.log(factors), axis=0))
    return np.concatenate(found, axis=1)


KAPPA = 0.9


class _Row(NamedTuple):
    """w, R, W, w₀ and D of a row, and B."""

    w: float
    R: float
    W: float
    w0: float
    D: float
    most: float

    def x(self, part: int, bet: float, c: float, w: float, R: float) -> float:
        """What a bet is on, with its center."""
        largest = self.W - 1.0 if part < 2 else self.D
        cap = KAPPA / (bet * largest) if largest > 0.0 else np.inf
        own, reward = min(c, cap), 1.0 - R if part % 2 else R
        return w * (reward - own) + own if part < 2 else (w - self.w0) * (reward - own)

    def factor(self, part: int, bet: float, c: float, *, raw: bool) -> float:
        """1 + λ x of one round: the smallest over all that a row may have been."""
        w, R, W = self.w, self.R, self.W
        if not raw and np.isnan(W):
            return 1.0 - KAPPA
        if not (np.isnan(w) or np.isnan(R) or np.isnan(W)):
            return 1.0 + bet * self.x(part, bet, c, w, R)
        if not (np.isnan(w) or np.isnan(W)):
            return 1.0 + bet * min(self.x(part, bet, c, w, r) for r in (0.0, 1.0))
        rewards = (0.0, 1.0) if np.isnan(R) else (R,)
        # No center at the smallest w: the row may be one in which production had no choice.
        corners = [0.0 if part < 2 else -self.most * (1.0 - r if part % 2 else r) for r in rewards]
        if c > 0.0:  # the largest w, with the worst reward whatever it was
            largest = W if part < 2 else self.D
            worst = self._replace(w0=0.0).x(part, bet, c, largest, 1.0 if part % 2 else 0.0)
            corners.append(max(-KAPPA / bet, worst))
        return 1.0 + bet * min(corners)


def first_crossing(lambdas: Array, x: Array, log_threshold: float) -> int:
    """The first round after which log Σ_i ρ_i e^{S_i} is at least the threshold, or 0.

    >>> first_crossing(np.array([1.0]), np.array([1.0, 1.0]), np.log(3.0))
    2
    """
    S = log_wealths(lambdas, x)
    reached = log_mixture(S, lambdas, np.zeros(len(S)), np.zeros(len(S))) >= log_threshold
    return int(np.argmax(reached)) + 1 if reached.any() else 0


def exact_upper(frequency: float, count: float, budget: float) -> Any:
    """The root by halving log log((1−q)/(1−p)), which no p leaves for want of digits."""
    q, c = mpmath.mpf(frequency), mpmath.mpf(budget) / mpmath.mpf(count)

    def at(power: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
        v = mpmath.exp(power)
        p = q - (1 - q) * mpmath.expm1(-v)
        return p, (q * mpmath.log(q / p) if q > 0 else 0) + (1 - q) * v

    low, high = mpmath.mpf(-60), mpmath.mpf(60)
    for _ in range(110):  # to 31 digits, twice as many as a float has
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle)[1] <= c else (low, middle)
    return at(low)[0]


def exact_root(rates: Array, x: Array) -> float:
    """log Σ_j exp(x_j − η_j δ) = 0, to fifty digits."""
    with mpmath.workdps(50):
        pairs = [
            (mpmath.mpf(float(eta)), mpmath.mpf(float(v))) for eta, v in zip(rates, x, strict=True)
        ]
        low = max(v / eta for eta, v in pairs)
        high = max((v + mpmath.log(len(pairs))) / eta for eta, v in pairs)
        for _ in range(400):
            middle = (low + high) / 2
            if mpmath.fsum(mpmath.exp(v - eta * middle) for eta, v in pairs) > 1:
                low = middle
            else:
                high = middle
        return float(low)


def last_change(t: Array) -> Array:
    """The round in which the falling rate of round t was set, at most 5 % before, by counting.

    >>> last_change(np.array([1, 2, 19, 100, 104])).tolist()
    [1, 2, 19, 97, 102]
    """
    changes = [1]
    while changes[-1] <= np.max(t, initial=1):
        changes.append(max(changes[-1] + 1, math.ceil(changes[-1] * 21 / 20)))
    return np.array(changes)[np.searchsorted(changes, t, side="right") - 1]


def first_decisions(S: Array, bets: Any) -> tuple[int, int]:
    """The first rounds that show a gain and a loss, by S_i of all bets after every round.

    By the mixture after every round, and by windows; the round after the last one if there is none.
    """
    n, log_prior = len(S), np.log(bets.prior)
    gain, loss = (S[:, bets.place(part)] + log_prior for part in (2, 3))
    better, worse, windows = bets.thresholds
    shown = [
        np.logaddexp.reduce(gain[t]) >= math.log(better)
        or any(
            np.logaddexp.reduce(gain[t] - S[2**j - 2][bets.place(2)]) >= math.log(windows[j - 1])
            for j in range(1, 8)
            if 2**j <= t + 1
        )
        for t in range(n)
    ]
    lost = np.logaddexp.reduce(loss, axis=1) >= math.log(worse)
    first, last = (next((t + 1 for t in range(n) if one[t]), n + 1) for one in (shown, lost))
    return first, last
