"""LinProd's exact product over all rounds before, in tiles that stay in the cache.

    log w_t(x, a) = Σ_{k<t} log(1 + η ⟨θ̂_k, φ(x, a)⟩)

All factors lie in [½, 1½], so up to 8 × 512 of them are multiplied, as eight products side by
side, before one logarithm each is taken. Tiles and products begin at absolute rounds, and every sum
has one order: a policy asked for alone has the bits that it has in the middle of a long log. (BLAS
would choose its order by the shape of a batch and the number of threads.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from understudy.kernels.compiler import compiled

__all__ = ["disjoint_log_weights", "shared_log_weights", "softmax"]

Array = Any

TILE = 256  # rounds of the past at a time
LANES = 8  # products side by side
SPAN = 16 * TILE  # rounds between logarithms: 512 factors a lane, at least 2^-512
QUERIES = 64  # contexts that share a tile


@compiled
def factors(eta: float, tile: Array, rounds: int, phi: Array, out: Array) -> None:
    """1 + η ⟨θ̂_k, φ⟩ for the first rounds of a tile (d, TILE): four features at a time."""
    size = phi.size
    odd = size % 4
    for k in range(rounds):
        out[k] = 1.0
    for i in range(odd):
        c = eta * phi[i]
        for k in range(rounds):
            out[k] += c * tile[i, k]
    for i in range(odd, size, 4):
        c0, c1, c2, c3 = eta * phi[i], eta * phi[i + 1], eta * phi[i + 2], eta * phi[i + 3]
        for k in range(rounds):
            out[k] += (c0 * tile[i, k] + c1 * tile[i + 1, k]) + (
                c2 * tile[i + 2, k] + c3 * tile[i + 3, k]
            )


@compiled
def multiply(values: Array, rounds: int, products: Array) -> None:
    """Factor k goes to lane k mod 8."""
    whole = rounds - rounds % LANES
    for k in range(0, whole, LANES):
        for lane in range(LANES):
            products[lane] *= values[k + lane]
    for k in range(whole, rounds):
        products[k - whole] *= values[k]


@compiled
def take_logarithms(products: Array, out: Array) -> None:
    """Add the logarithms of all products to their queries' sums, and begin again at 1."""
    for q in range(out.shape[0]):
        for a in range(out.shape[1]):
            for lane in range(products.shape[2]):
                out[q, a] += math.log(products[q, a, lane])
                products[q, a, lane] = 1.0


@compiled
def load(thetas: Array, first: int, last: int, tile: Array) -> None:
    """θ̂_first … θ̂_{last−1} as columns."""
    for k in range(first, last):
        for i in range(thetas.shape[1]):
            tile[i, k - first] = thetas[k, i]


@compiled
def shared_log_weights(eta: float, thetas: Array, start: int, features: Array, out: Array) -> None:
    """log w of round start, start + 1, … for features (n, K, d), (n, K)."""
    n, n_actions, size = features.shape
    tile, values = np.empty((size, TILE)), np.empty(TILE)
    for first in range(0, n, QUERIES):
        last = min(n, first + QUERIES)
        sums = out[first:last]
        sums[:] = 0.0
        products = np.ones((last - first, n_actions, LANES))
        past = start + last - 1
        for begin in range(0, past, TILE):
            end = min(begin + TILE, past)
            load(thetas, begin, end, tile)
            for q in range(first, last):
                rounds = min(end, start + q) - begin
                if rounds > 0:
                    for a in range(n_actions):
                        factors(eta, tile, rounds, features[q, a], values)
                        multiply(values, rounds, products[q - first, a])
            if end % SPAN == 0 or end == past:
                take_logarithms(products, sums)


@compiled
def disjoint_log_weights(
    eta: float, thetas: Array, played: Array, start: int, contexts: Array, out: Array
) -> None:
    """The same for contexts (n, p): θ̂_k speaks of the action played in round k only."""
    n, size = contexts.shape
    tile, values = np.empty((size, TILE)), np.empty(TILE)
    for first in range(0, n, QUERIES):
        last = min(n, first + QUERIES)
        sums = out[first:last]
        sums[:] = 0.0
        products = np.ones((last - first, out.shape[1], 1))
        past = start + last - 1
        for begin in range(0, past, TILE):
            end = min(begin + TILE, past)
            load(thetas, begin, end, tile)
            for q in range(first, last):
                rounds = min(end, start + q) - begin
                factors(eta, tile, rounds, contexts[q], values)
                for k in range(rounds):
                    products[q - first, played[begin + k], 0] *= values[k]
            take_logarithms(products, sums)


@compiled
def softmax(log_weights: Array) -> None:
    """Rows of logarithms become rows of probabilities, in place."""
    for row in range(log_weights.shape[0]):
        largest = log_weights[row].max()
        total = 0.0
        for a in range(log_weights.shape[1]):
            log_weights[row, a] = math.exp(log_weights[row, a] - largest)
            total += log_weights[row, a]
        for a in range(log_weights.shape[1]):
            log_weights[row, a] /= total
