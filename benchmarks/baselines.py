"""Baselines in NumPy: Figure 1 vectorized over runs, and LinProd's product in BLAS.

`softmax_every_round` is the direct way: it computes all weights of all runs in every round.
`one_weight_a_round` uses our own idea that only one weight changes, for both learners of all games
at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from understudy.behaviors import choose
from understudy.constraints import Array
from understudy.experiments.experiment import RegretPoint
from understudy.theory import exp3_ix_rate
from understudy.types import Integers

__all__ = ["lin_prod_in_blocks", "one_weight_a_round", "softmax_every_round"]


START = 300.0  # the first weights are exp(-START): small enough that none overflows in Figure 1


@dataclass(frozen=True, eq=False)
class LoggedRuns:
    """The logs of many runs at a point of Figure 1: actions and rewards (n, runs), means (n, K).

    `gains` (2, K) are those of Exp3 and Exp3-IX for a reward of 1.
    """

    actions: Integers
    rewards: Array
    means: Array
    gains: Array
    eta: float

    @staticmethod
    def draw(point: RegretPoint, runs: int, rng: np.random.Generator) -> LoggedRuns:
        game = point.game
        means = game.means_between(0, game.rounds, None)
        actions = choose(game.behavior, rng.random(game.rounds * runs)).reshape(-1, runs)
        drawn = rng.random(actions.shape) < np.take_along_axis(means, actions, axis=1)
        eta = exp3_ix_rate(game.n_actions, game.rounds)
        gains = np.stack([1 / game.behavior, 1 / (game.behavior + eta / 2)])
        return LoggedRuns(actions, drawn.astype(np.float64), means, gains, eta)


def softmax_every_round(points: Sequence[RegretPoint], runs: int) -> Array:
    """The mean reward of Exp3 and Exp3-IX at each point, (points, 2)."""
    rng = np.random.default_rng(0)
    logs = (LoggedRuns.draw(point, runs, rng) for point in points)
    return np.array([[_softmax(one, learner).mean() for learner in (0, 1)] for one in logs])


def _softmax(logs: LoggedRuns, learner: int) -> Array:
    runs, n_actions = logs.actions.shape[1], logs.means.shape[1]
    scores, weights = np.zeros((runs, n_actions)), np.empty((runs, n_actions))
    every, earned = np.arange(runs), np.zeros(runs)
    for a, reward, means in zip(logs.actions, logs.rewards, logs.means, strict=True):
        np.subtract(scores, scores.max(axis=1, keepdims=True), out=weights)
        weights *= logs.eta
        np.exp(weights, out=weights)
        earned += (weights @ means) / weights.sum(axis=1)
        scores[every, a] += reward * logs.gains[learner, a]
    return earned


def one_weight_a_round(points: Sequence[RegretPoint], runs: int) -> Array:
    """The same with running sums W and Σwm: O(1) a round, all points and learners at once."""
    rng = np.random.default_rng(0)
    logs = [LoggedRuns.draw(point, runs, rng) for point in points]
    actions = np.concatenate([np.tile(one.actions, 2) for one in logs], axis=1)
    rewards = np.concatenate([np.tile(one.rewards, 2) for one in logs], axis=1)
    gains = logs[0].eta * np.concatenate([np.repeat(one.gains, runs, axis=0) for one in logs])
    means = logs[0].means  # the same game at every point; only the behavior differs
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
