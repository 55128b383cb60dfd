"""An adversary that a user compiles: in plain Python, and as kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.strategies import Array
from understudy import Round
from understudy.kernels.compiler import compiled
from understudy.kernels.games import play_adaptive
from understudy.simulation.adversaries import Adaptive

__all__ = ["CompiledWaves", "Waves"]


@compiled
def choose_waves(memory: Any, parameters: Any, t: int, means: Any) -> None:
    """More for what the behavior plays while it wins, with a wave of time over it."""
    for a in range(means.size):
        means[a] = parameters[0] + parameters[1] * memory[a] / t
    means[t % means.size] = parameters[2]


@compiled
def observe_waves(  # noqa: PLR0917 - the form of all adversaries
    memory: Any, parameters: Any, t: int, policy: Any, action: int, b: int, rewards: Any
) -> None:
    memory[b] += 0.25 * rewards[b]
    memory[action] += 0.25 * policy[action]
    memory[t % policy.size] += parameters[0] * rewards[(b + 1) % policy.size]


@compiled
def waves(adversary: Any, stage: Any, learner: Any) -> Any:
    return play_adaptive(choose_waves, observe_waves, adversary, stage, learner)


@dataclass(frozen=True)
class Waves(Adaptive):
    """An adversary of a user's own, in plain Python."""

    low: float = 0.2
    high: float = 0.7

    def init(self) -> Array:
        return np.zeros(self.n_actions)

    def choose(self, memory: Array, t: int) -> Array:
        means = self.low + 0.5 * memory / t
        means[t % self.n_actions] = self.high
        return np.asarray(means)

    def observe(self, memory: Array, played: Round) -> Array:
        after, b = memory.copy(), played.behavior_action
        after[b] += 0.25 * played.rewards[b]
        after[played.action] += 0.25 * played.policy[played.action]
        after[played.t % self.n_actions] += self.low * played.rewards[(b + 1) % self.n_actions]
        return after


@dataclass(frozen=True)
class CompiledWaves(Waves):
    """Its compiled twin."""

    def compiled(self) -> tuple[Callable[..., Any], Array, Array]:
        return waves, self.init(), np.array([self.low, 0.5, self.high])
