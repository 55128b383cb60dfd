"""The random numbers of a run: one stream for each purpose, all from (seed, run)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from understudy.behaviors import choose
from understudy.constraints import Array
from understudy.contexts import rows
from understudy.types import Integers, chunks

if TYPE_CHECKING:
    from understudy.simulation.game import Game


class RandomStreams:
    """The random numbers of one run.

    A run is a pure function of (seed, run). No two purposes share a stream, so the numbers are the
    same for rounds drawn one by one or in chunks, and for any set of learners.
    """

    # The place of a purpose is part of its stream's key: add new ones at the end.
    PURPOSES = ("contexts", "behavior", "observed", "unobserved", "learner")

    def __init__(self, seed: int, run: int) -> None:
        self.seed, self.run = seed, run

    @cached_property
    def contexts(self) -> Generator:
        return Generator(self._bits("contexts"))

    @cached_property
    def behavior(self) -> Generator:
        return Generator(self._bits("behavior"))

    @cached_property
    def observed(self) -> Generator:
        return Generator(self._bits("observed"))

    @cached_property
    def unobserved(self) -> Generator:
        return Generator(self._bits("unobserved"))

    @cached_property
    def learner(self) -> Generator:
        return Generator(self._bits("learner"))

    def restart(self, generator: Generator, purpose: str) -> None:
        """Set a generator to the start of a stream; this is cheaper than a new generator."""
        generator.bit_generator.state = self._bits(purpose).state

    def _bits(self, purpose: str) -> PCG64:
        key = (self.run, self.PURPOSES.index(purpose))
        return PCG64(np.random.SeedSequence(self.seed, spawn_key=key))

    def rounds(self, game: Game) -> Iterator[tuple[NDArray[Any], Any, Array]]:
        """Draw contexts, features and behavior of every round; each array has one row."""
        for _, count in chunks(game.rounds, game.chunk_size):
            contexts, features, behavior = self.draw_contexts(game, count)
            for i in range(count):
                one = slice(i, i + 1)
                yield contexts[one], None if features is None else features[one], behavior[one]

    def draw_contexts(self, game: Game, rounds: int) -> tuple[NDArray[Any], Array | None, Array]:
        """Draw X_t of the next rounds, with φ(X_t, ·) and π_B(·|X_t)."""
        if game.contexts is None:
            behavior = np.broadcast_to(game.behavior, (rounds, game.n_actions))
            return np.zeros(rounds, dtype=np.int64), None, behavior
        contexts = game.contexts.draw(self.contexts, rounds)
        behavior = rows(game.behavior, contexts, game.n_actions, "behavior")
        return contexts, game.contexts.features(contexts), behavior

    def draw_behavior_actions(self, behavior: Array) -> Integers:
        """Draw A^B_t ~ π_B(·|X_t)."""
        same_in_every_row = behavior.strides[0] == 0  # a broadcast vector: one cdf serves all
        probabilities = behavior[0] if same_in_every_row else behavior
        return choose(probabilities, self.behavior.random(len(behavior)))

    def draw_observed_rewards(self, game: Game, means: Array) -> Array:
        """Draw R^B_t = r_t(A^B_t) from the means of the A^B_t: all that a learner may see."""
        uniforms = self.observed.random(len(means))
        return (uniforms < means).astype(np.float64) if game.adversary.bernoulli else means

    def draw_rewards(self, game: Game, means: Array, actions: Integers, observed: Array) -> Array:
        """Draw r_t of all actions, for the referee; it agrees with the observed rewards."""
        if not game.adversary.bernoulli:
            return means
        rewards = (self.unobserved.random(means.shape) < means).astype(np.float64)
        rewards[np.arange(len(actions)), actions] = observed
        return rewards
