"""The paper's algorithms, and the compact LinProd: plain loops over numbers of fifty digits.

Nothing here is fast, and nothing here is shared with the library. The weights are the weights of
the paper, never their logarithms; mpmath's numbers have no largest exponent, so they cannot
overflow. Every function returns π_1 .. π_{n+1}, one row each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "disjoint",
    "exp3",
    "exp3_ix",
    "exp3_ix_unknown",
    "lin_prod",
    "lin_prod_compact",
    "lin_prod_unknown",
    "prod",
    "theorem2_gammas",
]

Number = Any  # mpmath ships no type information
Floats = Sequence[float] | NDArray[np.float64]
Integers = Sequence[int] | NDArray[np.int64]
DIGITS = 50


def exp3(
    n_actions: int, eta: float, actions: Integers, rewards: Floats, propensities: Floats
) -> NDArray[np.float64]:
    """Algorithm 1 with γ_t = 0; `propensities[t]` is π_B(A^B_t)."""
    return exp3_ix(n_actions, eta, actions, rewards, propensities, gammas=[0.0] * len(actions))


def exp3_ix(
    n_actions: int,
    eta: float,
    actions: Integers,
    rewards: Floats,
    propensities: Floats,
    *,
    gammas: Floats,
) -> NDArray[np.float64]:
    """Algorithm 1: w_{t+1}(a) = w_t(a) e^{η r̃_t(a)}, r̃_t(A^B_t) = R^B_t / (π_B(A^B_t) + γ_t)."""
    with mpmath.workdps(DIGITS):
        estimates = [
            mpmath.mpf(float(reward)) / (mpmath.mpf(float(q)) + mpmath.mpf(float(gamma)))
            for reward, q, gamma in zip(rewards, propensities, gammas, strict=True)
        ]
        factors = [mpmath.exp(mpmath.mpf(eta) * estimate) for estimate in estimates]
        return multiplicative_weights(n_actions, actions, factors)


def exp3_ix_unknown(
    n_actions: int,
    eta: float,
    actions: Integers,
    rewards: Floats,
    gammas: Floats | None = None,
) -> NDArray[np.float64]:
    """Section 3.2: Algorithm 1 with π̂_1 = 0, π̂_t(a) = #{k < t : A^B_k = a} / (t − 1)."""
    with mpmath.workdps(DIGITS):
        if gammas is None:
            widths = theorem2_gammas(n_actions, eta, len(actions))
        else:
            widths = [mpmath.mpf(float(gamma)) for gamma in gammas]
        factors = []
        for t in range(1, len(actions) + 1):
            action, reward = int(actions[t - 1]), mpmath.mpf(float(rewards[t - 1]))
            frequency = mpmath.mpf(0)
            if t > 1:
                seen = sum(1 for k in range(1, t) if int(actions[k - 1]) == action)
                frequency = mpmath.mpf(seen) / (t - 1)
            estimate = reward / (frequency + widths[t - 1])
            factors.append(mpmath.exp(mpmath.mpf(eta) * estimate))
        return multiplicative_weights(n_actions, actions, factors)


def theorem2_gammas(n_actions: int, eta: float, rounds: int) -> list[Number]:
    """Theorem 2: γ_1 = 1 + η/2, γ_t = η/2 + √(log(K (t − 1)²) / (2t − 2))."""
    with mpmath.workdps(DIGITS):
        half = mpmath.mpf(eta) / 2
        later = [
            half + mpmath.sqrt(mpmath.log(mpmath.mpf(n_actions) * (t - 1) ** 2) / (2 * t - 2))
            for t in range(2, rounds + 1)
        ]
        return [1 + half, *later][:rounds]


def prod(
    n_actions: int, eta: float, actions: Integers, rewards: Floats, propensities: Floats
) -> NDArray[np.float64]:
    """Prod on the unbiased estimates: w_{t+1}(a) = w_t(a) (1 + η R^B_t 1{A^B_t = a} / π_B(a))."""
    with mpmath.workdps(DIGITS):
        factors = [
            1 + mpmath.mpf(eta) * mpmath.mpf(float(reward)) / mpmath.mpf(float(q))
            for reward, q in zip(rewards, propensities, strict=True)
        ]
        return multiplicative_weights(n_actions, actions, factors)


def lin_prod(
    V: NDArray[np.float64],
    eta: float,
    actions: Integers,
    rewards: Floats,
    features: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Algorithm 2; `features` holds φ(X_t, ·) for t = 1 .. n+1, so one row more than `actions`.

    θ̂_t = V⁻¹ φ(X_t, A^B_t) R^B_t and w_t(X_t, a) = Π_{k<t} (1 + η ⟨θ̂_k, φ(X_t, a)⟩).
    """
    with mpmath.workdps(DIGITS):
        inverse = mpmath.matrix(V.tolist()) ** -1
        thetas: list[Number] = []
        policies = []
        for t in range(len(actions) + 1):
            phis = [mpmath.matrix([float(x) for x in phi]) for phi in features[t]]
            policies.append(normalized([product_weight(eta, thetas, phi) for phi in phis]))
            if t < len(actions):
                reward = mpmath.mpf(float(rewards[t]))
                thetas.append(inverse * phis[int(actions[t])] * reward)
        return as_floats(policies)


def lin_prod_compact(
    V: NDArray[np.float64],
    etas: Floats,
    actions: Integers,
    rewards: Floats,
    features: NDArray[np.float64],
    *,
    curvature: float,
) -> NDArray[np.float64]:
    """w_t(X_t, a) = exp(η_t Σ_{k<t} (z_k − c η_k z_k²)), z_k = ⟨V⁻¹ φ(X_k, b_k) R_k, φ(X_t, a)⟩.

    As in `lin_prod`, `features` has one row more than `actions`; so has `etas`.
    """
    with mpmath.workdps(DIGITS):
        inverse = mpmath.matrix(V.tolist()) ** -1
        return exponential_linear_weights(
            [inverse] * len(actions), etas, actions, rewards, features, curvature=curvature
        )


def lin_prod_unknown(
    beta: float,
    eta: float,
    actions: Integers,
    rewards: Floats,
    features: NDArray[np.float64],
    *,
    curvature: float,
) -> NDArray[np.float64]:
    """The same with (V̂ + βI)⁻¹ in place of V⁻¹, computed again in rounds 1, 2, … that grow by 5 %.

    V̂ is the average of φ(X_k, A^B_k) φ(X_k, A^B_k)ᵀ over all rounds before.
    """
    with mpmath.workdps(DIGITS):
        d, moves = features.shape[2], {1}
        while max(moves) <= len(actions):
            moves.add(max(max(moves) + 1, math.ceil(max(moves) * Fraction(21, 20))))
        seen, inverses = mpmath.zeros(d), []
        for t in range(1, len(actions) + 1):
            if t in moves:
                average = seen / max(1, t - 1)
                inverses.append((average + mpmath.mpf(beta) * mpmath.eye(d)) ** -1)
            else:
                inverses.append(inverses[-1])
            phi = mpmath.matrix([float(x) for x in features[t - 1, int(actions[t - 1])]])
            seen = seen + phi * phi.T
        etas = [eta] * (len(actions) + 1)
        return exponential_linear_weights(
            inverses, etas, actions, rewards, features, curvature=curvature
        )


def exponential_linear_weights(
    inverses: Sequence[Number],
    etas: Floats,
    actions: Integers,
    rewards: Floats,
    features: NDArray[np.float64],
    *,
    curvature: float,
) -> NDArray[np.float64]:
    """π_t ∝ exp(η_t Σ_{k<t} (z_k − c η_k z_k²)) with θ̂_k = M_k φ(X_k, A^B_k) R^B_k, for any M_k."""
    rates = [mpmath.mpf(float(eta)) for eta in etas]
    c = mpmath.mpf(float(curvature))
    thetas: list[Number] = []
    policies = []
    for t in range(len(actions) + 1):
        phis = [mpmath.matrix([float(x) for x in phi]) for phi in features[t]]
        z = [[mpmath.fdot(list(theta), list(phi)) for theta in thetas] for phi in phis]
        sums = [mpmath.fsum(x - c * rates[k] * x**2 for k, x in enumerate(row)) for row in z]
        policies.append(normalized([mpmath.exp(rates[t] * total) for total in sums]))
        if t < len(actions):
            thetas.append(inverses[t] * phis[int(actions[t])] * mpmath.mpf(float(rewards[t])))
    return as_floats(policies)


def disjoint(
    V: NDArray[np.float64], contexts: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Blocks (K, p, p) and contexts (m, p) as one V (Kp, Kp) and φ(x, a) = e_a ⊗ x, (m, K, Kp)."""
    n_actions, p, _ = V.shape
    whole = np.zeros((n_actions * p, n_actions * p))
    features = np.zeros((len(contexts), n_actions, n_actions * p))
    for a in range(n_actions):
        block = slice(a * p, (a + 1) * p)
        whole[block, block] = V[a]
        features[:, a, block] = contexts
    return whole, features


def multiplicative_weights(
    n_actions: int, actions: Integers, factors: Iterable[Number]
) -> NDArray[np.float64]:
    """w_1 = 1; each round multiplies one weight; π_t = w_t / W_t."""
    weights = [mpmath.mpf(1) for _ in range(n_actions)]
    policies = [normalized(weights)]
    for action, factor in zip(actions, factors, strict=True):
        weights[int(action)] = weights[int(action)] * factor
        policies.append(normalized(weights))
    return as_floats(policies)


def product_weight(eta: float, thetas: Sequence[Number], phi: Number) -> Number:
    """w_t(x, a) = Π_k (1 + η ⟨θ̂_k, φ(x, a)⟩)."""
    weight = mpmath.mpf(1)
    for theta in thetas:
        weight = weight * (1 + mpmath.mpf(eta) * mpmath.fdot(list(theta), list(phi)))
    return weight


def normalized(weights: Sequence[Number]) -> list[Number]:
    """w / W."""
    total = mpmath.fsum(weights)
    return [weight / total for weight in weights]


def as_floats(policies: Sequence[Sequence[Number]]) -> NDArray[np.float64]:
    """Rounded only at the very end."""
    return np.array([[float(p) for p in policy] for policy in policies])
