"""The log of a run against an oblivious adversary, made a stretch at a time in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.constraints import Array
from understudy.game import Dice, Game
from understudy.types import Integers, Log, cut

__all__ = ["Stretch", "stretches"]


@dataclass(frozen=True, eq=False)
class Stretch:
    """Some rounds: what was logged, and the rewards of all actions as rows that hold for a while.

    `behavior` is π_B, (K,), or (n, K) where there are contexts.
    """

    log: Log
    contexts: NDArray[Any]
    behavior: Array
    rewards: Array
    starts: Integers


def stretches(game: Game, dice: Dice, *, size: int, all_rewards: bool) -> Iterator[Stretch]:
    """The run's log, at most that many rounds at a time.

    With `all_rewards` the rewards of every action are drawn in every round; else they are means.

    >>> from understudy import adversaries
    >>> game = Game(adversaries.stationary([0.5, 0.9]), [0.5, 0.5], rounds=5)
    >>> made = stretches(game, Dice(seed=0, run=0), size=2, all_rewards=False)
    >>> [len(stretch.log) for stretch in made]
    [2, 2, 1]
    """
    for start, rounds in cut(game.rounds, size):
        contexts, features, behavior = dice.draw_contexts(game, rounds)
        if features is None:
            rewards, starts = game.pieces_between(start, start + rounds)
            behavior_row = game.behavior
        else:
            rewards, starts = game.means_between(start, start + rounds, features), np.arange(rounds)
            behavior_row = behavior
        actions = dice.draw_behavior_actions(behavior)
        each = np.arange(rounds)
        row = np.searchsorted(starts, each, side="right") - 1
        observed = dice.draw_observed_rewards(game, rewards[row, actions])
        log = Log._of(actions, observed, behavior[each, actions], features)
        if all_rewards:
            rewards, starts = dice.draw_rewards(game, rewards[row], actions, observed), each
        yield Stretch(log, contexts, behavior_row, rewards, starts)
