"""LinProd: the exact product over all earlier rounds in tiles, and the form in constant memory.

    log w_t(x, a) = Σ_{k<t} log(1 + η ⟨θ̂_k, φ(x, a)⟩)

All factors lie in [½, 1½], so up to 8 × 512 of them are multiplied, in eight parallel products,
before one logarithm of each is taken. Tiles fit the cache. Tiles and products begin at absolute
rounds, and every sum has a fixed order: a policy has the same bits alone and within a long log.
(The order of BLAS depends on the shape of a batch and the number of threads.)

LinProd in constant memory replaces the product by two sums:

    log w_t(x, a) = η_t ⟨Θ − cSφ(x, a), φ(x, a)⟩,  Θ = Σ_{k<t} θ̂_k,  S = Σ_{k<t} η_k θ̂_k θ̂_kᵀ

c is the curvature. Θ is (B, d) and S (B, d, d): one block for all actions, or one for each.
Features are (n, A, d): a row for each action, or one for all. Every sum runs over the rounds, and
over the features of a round, in a fixed order, so that batching does not change a bit. Inner loops
run over the entries of a vector, each with its own sum, so that the compiler can vectorize them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from understudy.kernels.compiler import compiled

Array = Any

TILE = 256  # earlier rounds at a time
LANES = 8  # parallel products
SPAN = 16 * TILE  # rounds between logarithms: 512 factors a lane, at least 2^-512
QUERIES = 64  # contexts that share a tile


@compiled
def factors(eta: float, tile: Array, rounds: int, phi: Array, out: Array) -> None:
    """Compute 1 + η ⟨θ̂_k, φ⟩ for the first rounds of a tile (d, TILE), four features at a time."""
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
    """Multiply factor k into lane k mod 8."""
    whole = rounds - rounds % LANES
    for k in range(0, whole, LANES):
        for lane in range(LANES):
            products[lane] *= values[k + lane]
    for k in range(whole, rounds):
        products[k - whole] *= values[k]


@compiled
def take_logarithms(products: Array, out: Array) -> None:
    """Add the logarithms of all products to the sums of their queries; reset products to 1."""
    for q in range(out.shape[0]):
        for a in range(out.shape[1]):
            for lane in range(products.shape[2]):
                out[q, a] += math.log(products[q, a, lane])
                products[q, a, lane] = 1.0


@compiled
def load(thetas: Array, first: int, last: int, tile: Array) -> None:
    """Copy θ̂_first … θ̂_{last−1} into the columns of a tile."""
    for k in range(first, last):
        for i in range(thetas.shape[1]):
            tile[i, k - first] = thetas[k, i]


@compiled
def shared_log_weights(eta: float, thetas: Array, start: int, features: Array, out: Array) -> None:
    """Compute log w, (n, K), of rounds start, start + 1, … for features (n, K, d)."""
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
    """Compute log w for contexts (n, p): θ̂_k is about the action of round k only."""
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
    """Turn rows of log weights into rows of probabilities, in place."""
    for row in range(log_weights.shape[0]):
        largest = log_weights[row].max()
        total = 0.0
        for a in range(log_weights.shape[1]):
            log_weights[row, a] = math.exp(log_weights[row, a] - largest)
            total += log_weights[row, a]
        for a in range(log_weights.shape[1]):
            log_weights[row, a] /= total


@compiled
def weigh(
    eta: float, curvature: float, Theta: Array, S: Array, phi: Array, rest: Array, out: Array
) -> None:
    """Compute log w(x, a) of every action; `rest` is a buffer for Θ − cSφ."""
    blocks, size = Theta.shape
    for a in range(out.size):
        block, row = min(a, blocks - 1), min(a, phi.shape[0] - 1)
        for i in range(size):
            rest[i] = Theta[block, i]
        for j in range(size):
            c = curvature * phi[row, j]
            for i in range(size):
                rest[i] -= c * S[block, j, i]  # S is symmetric
        total = 0.0
        for i in range(size):
            total += rest[i] * phi[row, i]
        out[a] = eta * total


@compiled
def log_weights(
    eta: float, curvature: float, Theta: Array, S: Array, features: Array, out: Array
) -> None:
    """Compute log w(x, a) of every context and action in one state, (n, K)."""
    rest = np.empty(Theta.shape[1])
    for row in range(features.shape[0]):
        weigh(eta, curvature, Theta, S, features[row], rest, out[row])


@compiled
def leverages(contexts: Array, inverses: Array, out: Array) -> None:
    """Compute xᵀ V_a⁻¹ x, (n, K), for contexts (n, p) and blocks (K, p, p); skip zeros of x."""
    size = contexts.shape[1]
    image = np.empty(size)
    for t in range(contexts.shape[0]):
        for a in range(inverses.shape[0]):
            image[:] = 0.0
            for j in range(size):
                c = contexts[t, j]
                if c != 0.0:
                    for i in range(size):
                        image[i] += c * inverses[a, j, i]
            total = 0.0
            for i in range(size):
                total += image[i] * contexts[t, i]
            out[t, a] = total


@compiled
def add_square(weight: float, vector: Array, block: int, S: Array) -> None:
    """Add weight · vector vectorᵀ to a block of S, in place."""
    for i in range(vector.size):
        for j in range(vector.size):
            S[block, i, j] += weight * (vector[i] * vector[j])  # in brackets: S stays symmetric


@compiled
def add_squares(vectors: Array, actions: Array, S: Array) -> None:
    """Add vector vectorᵀ of each row (n, d) to S, in the block of its action."""
    for t in range(actions.size):
        add_square(1.0, vectors[t], min(actions[t], S.shape[0] - 1), S)


@compiled
def replay(
    etas: Array,
    curvature: float,
    thetas: Array,
    actions: Array,
    Theta: Array,
    S: Array,
    features: Array,
    out: Array,
) -> None:
    """Compute log w_t(X_t, a), (n, K), of every round before its θ̂_t is added to the sums."""
    blocks, size = Theta.shape
    rest = np.empty(size)
    for t in range(actions.size):
        weigh(etas[t], curvature, Theta, S, features[t], rest, out[t])
        block = min(actions[t], blocks - 1)
        for i in range(size):
            Theta[block, i] += thetas[t, i]
        add_square(etas[t], thetas[t], block, S)


@compiled
def invert(matrices: Array) -> None:
    """Invert positive definite matrices (B, d, d) in place, by Gauss-Jordan elimination.

    They need no pivots. The bits of LAPACK's inverse depend on its number of threads.
    """
    for block in range(matrices.shape[0]):
        M = matrices[block]
        for k in range(M.shape[0]):
            pivot = 1.0 / M[k, k]
            M[k, k] = 1.0
            for j in range(M.shape[0]):
                M[k, j] *= pivot
            for i in range(M.shape[0]):
                if i != k:
                    factor = M[i, k]
                    M[i, k] = 0.0
                    for j in range(M.shape[0]):
                        M[i, j] -= factor * M[k, j]
