"""Exponential weights: Algorithm 1 of the paper, whatever the estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import (
    HORIZON,
    LARGEST_COUNT,
    RATE,
    Array,
    array,
    enforce,
    having,
    integer,
)
from understudy.errors import InvalidArgument, NotMergeable
from understudy.protocols import Estimator, Form, not_a_state
from understudy.types import (
    Feedback,
    Integers,
    Log,
    Trace,
    frozen,
    one_event,
    rounds_past,
    rounds_per_stretch,
    saved,
)

__all__ = ["ExponentialWeights", "Scores"]

ESTIMATOR = having("pass one of us.estimators", "form", "gains", "reads_past")


@saved
@dataclass(frozen=True, eq=False)
class Scores:
    """G(a) = Σ_{k<t} r̃_k(a), the number of rounds t−1, and what the estimator remembers."""

    scores: Array
    rounds: int
    memory: Integers
    CONSTRAINTS: ClassVar = {  # enforced by snapshots: a learner makes no wrong state itself
        "scores": array("pass one score per action"),
        "rounds": integer(0, "pass a number of rounds", LARGEST_COUNT),
        "memory": array("pass counts", dtype=np.int64, low=0),
    }


@saved
@dataclass(frozen=True, eq=False)
class ExponentialWeights:
    r"""Plays $\pi_t(a) \propto \exp(\eta \sum_{k<t} \tilde r_k(a))$.

    The weights exist only as scores, their logarithms over η, so that no number of rounds can
    overflow them. The recipes (`exp3`, `exp3_ix`, `exp3_ix_unknown`, `prod`) choose η and the
    estimator as the theorems do.

    >>> from understudy.estimators import ImplicitExploration
    >>> learner = ExponentialWeights(0.5, ImplicitExploration([0.5, 0.5], gamma=0.25))
    >>> state = learner.update(learner.init(), Feedback(action=0, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.6608, 0.3392]
    """

    eta: float
    estimator: Estimator
    horizon: int | None = None
    CONSTRAINTS: ClassVar = {"eta": RATE, "estimator": ESTIMATOR, "horizon": HORIZON.optional()}

    def __post_init__(self) -> None:
        enforce(self)

    @property
    def form(self) -> Form:
        return self.estimator.form

    def init(self) -> Scores:
        return Scores(frozen(np.zeros(self.form.n_actions)), 0, self.estimator.init())

    def policy(self, state: Scores, features: ArrayLike | None = None) -> Array:
        self._check_own(state)
        if features is not None:
            raise InvalidArgument(
                "features", features, "this learner ignores contexts", "leave them out"
            )
        return softmax(self.eta, state.scores)

    def update(self, state: Scores, feedback: Feedback) -> Scores:
        self._check_own(state)
        log = one_event(feedback)
        self.form.check(log)
        gains, memory = self.estimator.gains(state.memory, state.rounds, log)
        scores = state.scores.copy()
        scores[feedback.action] += gains[0]
        return Scores(frozen(scores), state.rounds + 1, memory)

    def policies(self, state: Scores, log: Log) -> tuple[Scores, Array]:
        self._check_own(state)
        self.form.check(log)
        return self._policies(state, log)

    def replay(self, state: Scores, log: Log) -> tuple[Scores, Trace]:
        self._check_own(state)
        self.form.check(log)
        probability = np.empty(len(log))
        start = state.rounds
        for stretch in log.stretches(rounds_per_stretch(self.form.n_actions)):
            first = state.rounds - start
            state, policies = self._policies(state, stretch)
            rows = np.arange(len(stretch))
            probability[first : first + len(stretch)] = policies[rows, stretch.actions]
        past = self.past_horizon(state)
        return state, Trace(frozen(probability), min(past, len(log)))

    def merge(self, first: Scores, second: Scores) -> Scores:
        if self.estimator.reads_past is not None:
            raise NotMergeable(
                f"{self.estimator.reads_past}; replay the logs one after the other instead"
            )
        self.validate(first)
        self.validate(second)
        scores = frozen(first.scores + second.scores)
        return Scores(scores, first.rounds + second.rounds, first.memory)

    def rounds(self, state: Scores) -> int:
        return state.rounds

    def past_horizon(self, state: Scores) -> int:
        return rounds_past(self.horizon, state.rounds)

    def validate(self, state: Scores) -> None:
        self._check_own(state)
        if not self.estimator.remembers(state.memory, state.rounds):
            raise not_a_state(state, f"{self.form.n_actions} actions")

    def _check_own(self, state: Scores) -> None:
        if not isinstance(state, Scores) or len(state.scores) != self.form.n_actions:
            raise not_a_state(state, f"{self.form.n_actions} actions")

    def _policies(self, state: Scores, log: Log) -> tuple[Scores, Array]:
        gains, memory = self.estimator.gains(state.memory, state.rounds, log)
        # Row t is G before round t: adding one row at a time, as `update` does, keeps the bits.
        scores = np.zeros((len(log) + 1, self.form.n_actions))
        scores[0] = state.scores
        scores[np.arange(1, len(log) + 1), log.actions] = gains
        np.cumsum(scores, axis=0, out=scores)
        after = Scores(frozen(scores[-1].copy()), state.rounds + len(log), memory)
        return after, softmax(self.eta, scores[:-1])


def softmax(eta: float, scores: Array) -> Array:
    """exp(η G(a)) / Σ exp(η G(·)), relative to the largest G so that nothing overflows.

    >>> softmax(1.0, np.array([0.0, 1e6])).tolist()
    [0.0, 1.0]
    """
    weights = np.exp(eta * (scores - scores.max(axis=-1, keepdims=True)))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), dtype=np.float64)
