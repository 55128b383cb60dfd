"""The honest baselines: Figure 1 in NumPy, vectorized over runs; LinProd's product in BLAS.

`softmax_every_round` is what one writes: all weights of all runs in every round.
`one_weight_a_round` has our own idea, that only one weight changes, in NumPy: both learners of
all games at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from understudy.behaviors import choose
from understudy.constraints import Array
from understudy.experiments.regret_curves import RegretPoint
from understudy.theory import exp3_ix_rate
from understudy.types import Integers

__all__ = ["lin_prod_in_blocks", "one_weight_a_round", "softmax_every_round"]


START = 300.0  # minus the exponent of the first weights, so that none overflows in Figure 1


@dataclass(frozen=True, eq=False)
class Seen:
    """A point of Figure 1 in many runs: actions and rewards (n, runs), means (n, K).

    `gains` (2, K) are those of Exp3 and Exp3-IX for a reward of 1.
    """

    actions: Integers
    rewards: Array
    means: Array
    gains: Array
    eta: float

    @staticmethod
    def at(point: RegretPoint, runs: int, rng: np.random.Generator) -> Seen:
        game = point.game
        means = game.means_between(0, game.rounds, None)
        actions = choose(game.behavior, rng.random(game.rounds * runs)).reshape(-1, runs)
        drawn = rng.random(actions.shape) < np.take_along_axis(means, actions, axis=1)
        eta = exp3_ix_rate(game.n_actions, game.rounds)
        gains = np.stack([1 / game.behavior, 1 / (game.behavior + eta / 2)])
        return Seen(actions, drawn.astype(np.float64), means, gains, eta)


def softmax_every_round(points: Sequence[RegretPoint], runs: int) -> Array:
    """The mean reward of Exp3 and Exp3-IX at each point, (points, 2)."""
    rng = np.random.default_rng(0)
    seen = (Seen.at(point, runs, rng) for point in points)
    return np.array([[_softmax(one, learner).mean() for learner in (0, 1)] for one in seen])


def _softmax(seen: Seen, learner: int) -> Array:
    runs, n_actions = seen.actions.shape[1], seen.means.shape[1]
    scores, weights = np.zeros((runs, n_actions)), np.empty((runs, n_actions))
    every, earned = np.arange(runs), np.zeros(runs)
    for a, reward, means in zip(seen.actions, seen.rewards, seen.means, strict=True):
        np.subtract(scores, scores.max(axis=1, keepdims=True), out=weights)
        weights *= seen.eta
        np.exp(weights, out=weights)
        earned += (weights @ means) / weights.sum(axis=1)
        scores[every, a] += reward * seen.gains[learner, a]
    return earned


def one_weight_a_round(points: Sequence[RegretPoint], runs: int) -> Array:
    """The same with W and Σwm carried along: O(1) a round, all points and learners at once."""
    rng = np.random.default_rng(0)
    seen = [Seen.at(point, runs, rng) for point in points]
    actions = np.concatenate([np.tile(one.actions, 2) for one in seen], axis=1)
    rewards = np.concatenate([np.tile(one.rewards, 2) for one in seen], axis=1)
    gains = seen[0].eta * np.concatenate([np.repeat(one.gains, runs, axis=0) for one in seen])
    means = seen[0].means  # one game, seen through another behavior at every point
    rows = np.arange(actions.shape[1])  # a row is a run of a learner at a point
    weights = np.full((len(rows), means.shape[1]), np.exp(-START))
    total, weighted, earned = weights.sum(axis=1), weights @ means[0], np.zeros(len(rows))
    for t, (a, reward) in enumerate(zip(actions, rewards, strict=True)):
        if t > 0 and (means[t] != means[t - 1]).any():
            weighted = weights @ means[t]
        earned += weighted / total
        before = weights[rows, a]
        after = before * np.exp(reward * gains[rows, a])
        weights[rows, a] = after
        total += after - before
        weighted += (after - before) * means[t, a]
    return np.asarray(earned.reshape(len(points), 2, runs).mean(axis=2))


def lin_prod_in_blocks(eta: float, thetas: Array, features: Array, block: int = 64) -> Array:
    """log w_t for all t: one matrix product and its logarithms per block of rounds."""
    n, K, d = features.shape
    out = np.zeros((n, K))
    for start in range(0, n, block):
        stop = min(start + block, n)
        r_hat = features[start:stop].reshape(-1, d) @ thetas[: stop - 1].T
        logs = np.log1p(eta * r_hat).reshape(stop - start, K, -1)
        for t in range(start, stop):
            out[t] = logs[t - start, :, :t].sum(axis=1)
    return out
