"""LinProd in constant memory: two sums stand for all rounds before.

    log w_t(x, a) = η_t ⟨Θ − Sφ(x, a), φ(x, a)⟩,  Θ = Σ_{k<t} θ̂_k,  S = Σ_{k<t} η_k θ̂_k θ̂_kᵀ

Θ is (B, d) and S (B, d, d): one block for all actions, or one for each. Features are (n, A, d): a
row for each action, or one for all. Every sum goes through the rounds, and through the features of
a round, in one order, so that the cuts of a log do not change a bit; inner loops run over the
entries of a vector, each with a sum of its own, which a compiler may do side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from understudy.kernels.compiler import compiled

__all__ = ["add_squares", "invert", "leverages", "log_weights", "replay"]

Array = Any


@compiled
def weigh(eta: float, Theta: Array, S: Array, phi: Array, rest: Array, out: Array) -> None:
    """log w(x, a) of every action; `rest` is room for Θ − Sφ."""
    blocks, size = Theta.shape
    for a in range(out.size):
        block, row = min(a, blocks - 1), min(a, phi.shape[0] - 1)
        for i in range(size):
            rest[i] = Theta[block, i]
        for j in range(size):
            c = phi[row, j]
            for i in range(size):
                rest[i] -= c * S[block, j, i]  # S is symmetric
        total = 0.0
        for i in range(size):
            total += rest[i] * phi[row, i]
        out[a] = eta * total


@compiled
def log_weights(eta: float, Theta: Array, S: Array, features: Array, out: Array) -> None:
    """log w(x, a) of every context and action at one state, (n, K)."""
    rest = np.empty(Theta.shape[1])
    for row in range(features.shape[0]):
        weigh(eta, Theta, S, features[row], rest, out[row])


@compiled
def leverages(contexts: Array, inverses: Array, out: Array) -> None:
    """xᵀ V_a⁻¹ x for contexts (n, p) and blocks (K, p, p), (n, K); of one-hot x little is not 0."""
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
    """S + weight · vector vectorᵀ, in place."""
    for i in range(vector.size):
        for j in range(vector.size):
            S[block, i, j] += weight * (vector[i] * vector[j])  # in brackets: S stays symmetric


@compiled
def add_squares(vectors: Array, actions: Array, S: Array) -> None:
    """Σ vector vectorᵀ of all rows (n, d) joins S, each in the block of its action."""
    for t in range(actions.size):
        add_square(1.0, vectors[t], min(actions[t], S.shape[0] - 1), S)


@compiled
def replay(
    etas: Array, thetas: Array, actions: Array, Theta: Array, S: Array, features: Array, out: Array
) -> None:
    """log w_t(X_t, a) of every round, (n, K), before its θ̂_t joins the sums, in place."""
    blocks, size = Theta.shape
    rest = np.empty(size)
    for t in range(actions.size):
        weigh(etas[t], Theta, S, features[t], rest, out[t])
        block = min(actions[t], blocks - 1)
        for i in range(size):
            Theta[block, i] += thetas[t, i]
        add_square(etas[t], thetas[t], block, S)


@compiled
def invert(matrices: Array) -> None:
    """The inverses of positive definite matrices (B, d, d), in place, by Gauss and Jordan.

    Positive definite ones need no pivots. LAPACK's bits depend on the number of its threads.
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
