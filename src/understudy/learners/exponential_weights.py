"""Exponential weights: Algorithm 1 of the paper, whatever the estimator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.constraints import (
    HORIZON,
    LARGEST_COUNT,
    RATE,
    Array,
    array,
    enforce,
    having,
    integer,
    number,
)
from understudy.errors import InvalidArgument, NotMergeable
from understudy.protocols import Estimator, Form, not_a_state
from understudy.types import (
    Feedback,
    Integers,
    Log,
    Trace,
    frozen,
    given,
    one_event,
    rounds_past,
    saved,
)

__all__ = ["ExponentialWeights", "Scores"]

STRETCH = 1 << 13  # events at a time, so that their columns stay in the cache
LARGEST_RESIDUE = 300.0  # of an exponent: as in the kernel
CARRIED = 1e-9  # relative: how far the carried sum of weights may be from their sum
ESTIMATOR = having("pass one of us.estimators", "form", "gains", "reads_past")


@saved
@dataclass(frozen=True, eq=False)
class Scores:
    """G(a) = Σ_{k<t} r̃_k(a), the number of rounds t−1, and what the estimator remembers.

    G(a) is `scores[a]` + `residues[a]`: the second holds what rounding took from the first. `total`
    is Σ_a exp(η (G(a) − `reference`)), carried along because one term changes a round.
    """

    scores: Array
    residues: Array
    rounds: int
    memory: Integers
    reference: float
    total: float
    CONSTRAINTS: ClassVar = {  # enforced by snapshots: a learner makes no wrong state itself
        "scores": array("pass one score per action"),
        "residues": array("pass one residue per action"),
        "rounds": integer(0, "pass a number of rounds", LARGEST_COUNT),
        "memory": array("pass counts", dtype=np.int64, low=0),
        "reference": number(-math.inf, math.inf, "pass the score whose weight counts as 1"),
        "total": number(0.0, math.inf, "pass the sum of all weights", above=True),
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
        K = self.form.n_actions
        nothing = frozen(np.zeros(K))
        return Scores(nothing, nothing, 0, self.estimator.init(), reference=0.0, total=float(K))

    def policy(self, state: Scores, features: ArrayLike | None = None) -> Array:
        self._check_own(state)
        if features is not None:
            raise InvalidArgument(
                "features", features, "this learner ignores contexts", "leave them out"
            )
        policy = np.empty(len(state.scores))
        scores, residues = given(state.scores), given(state.residues)
        kernels.exponential_weights.policy(
            self.eta, scores, residues, state.reference, state.total, policy
        )
        return policy

    def update(self, state: Scores, feedback: Feedback) -> Scores:
        self._check_own(state)
        log = one_event(feedback)
        self.form.check(log)
        return self._learn(state, log, kernels.exponential_weights.replay, np.empty(1))[0]

    def replay(self, state: Scores, log: Log) -> tuple[Scores, Trace]:
        self._check(state, log)
        probability = np.empty(len(log))
        replay, first = kernels.exponential_weights.replay, state.rounds
        for stretch in log.stretches(max(STRETCH, self.form.n_actions)):
            out = probability[state.rounds - first :][: len(stretch)]
            state, _ = self._learn(state, stretch, replay, out)
        past = self.past_horizon(state)
        return state, Trace(frozen(probability), min(past, len(log)), self.form.n_actions)

    def policies(self, state: Scores, log: Log) -> tuple[Scores, Array]:
        self._check(state, log)
        policies = np.empty((len(log), self.form.n_actions))
        after, _ = self._learn(state, log, kernels.exponential_weights.policies, policies)
        return after, policies

    def earn(
        self, state: Scores, log: Log, rewards: Array, starts: Integers
    ) -> tuple[Scores, float]:
        """`replay` for a referee, whose log fits: Σ_t ⟨π_t, r_t⟩ in place of a trace.

        Row i of `rewards` holds from event starts[i] on.
        """
        after, (earned,) = self._learn(
            state, log, kernels.exponential_weights.earn, given(rewards), given(starts)
        )
        return after, earned

    def meet(
        self,
        state: Scores,
        actions: Integers,
        propensities: Array,
        referee: Callable[..., Any],
    ) -> tuple[Scores, list[float]]:
        """Play rounds whose rewards depend on this learner's past, by a compiled referee.

        The gains are made for both rewards, 0 and 1, and the referee takes one of the two: so the
        estimator's memory must not depend on rewards.
        """
        shown = propensities if self.form.propensities else None
        logs = [Log._of(actions, np.full(len(actions), r), shown, None) for r in (0.0, 1.0)]
        (nothing, memory), (won, _) = (self.gains(state.memory, state.rounds, log) for log in logs)
        gains = np.stack([nothing, won])
        return self._run(lambda *learner: referee(learner), state, actions, gains, memory)

    def merge(self, first: Scores, second: Scores) -> Scores:
        if self.estimator.reads_past is not None:
            raise NotMergeable(
                f"{self.estimator.reads_past}; replay the logs one after the other instead"
            )
        self.validate(first)
        self.validate(second)
        scores, residues = first.scores.copy(), first.residues + second.residues
        reference, total = kernels.exponential_weights.merge(
            self.eta, scores, residues, given(second.scores)
        )
        rounds = first.rounds + second.rounds
        return Scores(frozen(scores), frozen(residues), rounds, first.memory, reference, total)

    def rounds(self, state: Scores) -> int:
        return state.rounds

    def past_horizon(self, state: Scores) -> int:
        return rounds_past(self.horizon, state.rounds)

    def validate(self, state: Scores) -> None:
        self._check_own(state)
        with np.errstate(over="ignore"):  # of a state that is not one
            residues = np.clip(self.eta * state.residues, -LARGEST_RESIDUE, LARGEST_RESIDUE)
            weights = np.exp(self.eta * (state.scores - state.reference) + residues)
            carried = abs(weights.sum() - state.total) <= CARRIED * state.total
        if not carried or not self.estimator.remembers(state.memory, state.rounds):
            raise not_a_state(state, f"{self.form.n_actions} actions")

    def _check_own(self, state: Scores) -> None:
        shape = (self.form.n_actions,)
        if not isinstance(state, Scores) or not state.scores.shape == state.residues.shape == shape:
            raise not_a_state(state, f"{self.form.n_actions} actions")

    def _check(self, state: Scores, log: Log) -> None:
        self._check_own(state)
        self.form.check(log)

    def _learn(
        self, state: Scores, log: Log, kernel: Callable[..., Any], *rest: Any
    ) -> tuple[Scores, list[float]]:
        """The state after a stretch of log, and what else the kernel has found."""
        gains, memory = self.gains(state.memory, state.rounds, log)
        return self._run(kernel, state, log.actions, gains, memory, *rest)

    def gains(self, memory: Integers, start: int, log: Log) -> tuple[Array, Integers]:
        """What the estimator says, once it is known to be numbers."""
        found, memory = self.estimator.gains(memory, start, log)
        gains = np.asarray(found, dtype=np.float64)
        if gains.shape != (len(log),) or not np.isfinite(gains).all():
            raise InvalidArgument(
                "estimator.gains",
                gains,
                f"{len(log)} events need {len(log)} finite numbers",
                "return one gain per event from gains",
            )
        return gains, memory

    def _run(
        self,
        kernel: Callable[..., Any],
        state: Scores,
        actions: Integers,
        gains: Array,
        memory: Integers,
        *rest: Any,
    ) -> tuple[Scores, list[float]]:
        scores, residues = state.scores.copy(), state.residues.copy()
        reference, total, *found = kernel(
            self.eta,
            scores,
            residues,
            state.reference,
            state.total,
            state.rounds,
            given(actions),
            given(gains),
            *rest,
        )
        rounds = state.rounds + len(actions)
        return Scores(frozen(scores), frozen(residues), rounds, memory, reference, total), found
