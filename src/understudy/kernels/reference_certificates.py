"""What the kernels of certificates compute, in NumPy, a formula a line: see `reference.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["first_crossing", "log_mixture", "log_wealths", "lower_root"]

Array = Any


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


def first_crossing(lambdas: Array, x: Array, log_threshold: float) -> int:
    """The first round after which log Σ_i ρ_i e^{S_i} is at least the threshold, or 0.

    >>> first_crossing(np.array([1.0]), np.array([1.0, 1.0]), np.log(3.0))
    2
    """
    S = log_wealths(lambdas, x)
    reached = log_mixture(S, lambdas, np.zeros(len(S)), np.zeros(len(S))) >= log_threshold
    return int(np.argmax(reached)) + 1 if reached.any() else 0
