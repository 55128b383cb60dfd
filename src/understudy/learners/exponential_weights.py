"""Exponential weights: Algorithm 1 of the paper, whatever the estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.constraints import (
    HORIZON,
    LARGEST_COUNT,
    Array,
    array,
    enforce,
    having,
    integer,
    number,
)
from understudy.errors import InvalidArgument, NotMergeable
from understudy.protocols import Estimator, EventSpec, not_a_state, refuse_features
from understudy.schedules import ETA, Decaying, Rate, chunks_of_constant_rate, rate_at
from understudy.types import (
    Feedback,
    Integers,
    Log,
    Trace,
    chunks,
    kernel_view,
    one_event,
    read_only,
    rounds_past,
    saved,
    segments,
)

__all__ = ["ExponentialWeights", "Scores"]

STRETCH = 1 << 13  # events at a time, so that their columns stay in the cache
LARGEST_RESIDUE = 300.0  # of an exponent: as in the kernel
CARRIED = 1e-9  # relative: how far the carried sum of weights may be from their sum
SUMS = array("pass one sum of gains per action")
ROUNDS = integer(0, "pass a number of rounds", LARGEST_COUNT)
ESTIMATOR = having("pass one of us.estimators", "spec", "gains", "order_dependence")


@saved
@dataclass(frozen=True, eq=False)
class Scores:
    """G(a) = Σ_{k<t} r̃_k(a), the number of rounds t−1, and what the estimator remembers.

    G(a) is `scores[a]` + `residues[a]`: the second holds what rounding took from the first. `total`
    is Σ_a exp(η_t (G(a) − `reference`)), carried along because one term changes a round.
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
        "rounds": ROUNDS,
        "memory": array("pass counts", dtype=np.int64, low=0),
        "reference": number(-math.inf, math.inf, "pass the score whose weight counts as 1"),
        "total": number(0.0, math.inf, "pass the sum of all weights", above=True),
    }


@saved
@dataclass(frozen=True, eq=False)
class ExponentialWeights:
    r"""Plays $\pi_t(a) \propto \exp(\eta_t \sum_{k<t} \tilde r_k(a))$.

    η_t is a number, or a `Decaying` rate that needs no horizon: then all weights are made anew
    whenever it moves, which is rare enough that a round still costs O(1). The weights exist only as
    scores, their logarithms over η, so that no number of rounds can overflow them. The recipes
    (`exp3`, `exp3_ix`, `exp3_ix_unknown`, `prod`) choose η and the estimator as the theorems do.

    >>> from understudy.estimators import ImplicitExploration
    >>> learner = ExponentialWeights(0.5, ImplicitExploration([0.5, 0.5], gamma=0.25))
    >>> state = learner.update(learner.init(), Feedback(action=0, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.6608, 0.3392]
    """

    eta: Rate
    estimator: Estimator
    horizon: int | None = None
    CONSTRAINTS: ClassVar = {"eta": ETA, "estimator": ESTIMATOR, "horizon": HORIZON.optional()}

    def __post_init__(self) -> None:
        enforce(self)

    @property
    def spec(self) -> EventSpec:
        return self.estimator.spec

    @property
    def order_dependence(self) -> str | None:
        """Why the state depends on the order of events, or None if it does not."""
        if isinstance(self.eta, Decaying):
            return "η_t depends on the round in which an event happened"
        return self.estimator.order_dependence

    def init(self) -> Scores:
        K = self.spec.n_actions
        nothing = read_only(np.zeros(K))
        return Scores(nothing, nothing, 0, self.estimator.init(), reference=0.0, total=float(K))

    def policy(self, state: Scores, features: ArrayLike | None = None) -> Array:
        self._check_own(state)
        refuse_features(features)
        policy = np.empty(len(state.scores))
        scores, residues = kernel_view(state.scores), kernel_view(state.residues)
        eta = self.rate(state.rounds)
        kernels.exponential_weights.policy(
            eta, scores, residues, state.reference, state.total, policy
        )
        return policy

    def rate(self, rounds: int) -> float:
        """η_t of the round that comes after so many."""
        return float(rate_at(self.eta, np.asarray(rounds + 1)))

    def update(self, state: Scores, feedback: Feedback) -> Scores:
        self._check_own(state)
        log = one_event(feedback)
        self.spec.check(log)
        return self._learn(state, log, kernels.exponential_weights.replay, np.empty(1))[0]

    def replay(self, state: Scores, log: Log) -> tuple[Scores, Trace]:
        self._check(state, log)
        probability = np.empty(len(log))
        for start, count in self._stretches(state.rounds, len(log)):
            stretch, out = log[start : start + count], probability[start : start + count]
            state, _ = self._learn(state, stretch, kernels.exponential_weights.replay, out)
        past = self.past_horizon(state)
        return state, Trace(read_only(probability), min(past, len(log)), self.spec.n_actions)

    def policies(self, state: Scores, log: Log) -> tuple[Scores, Array]:
        self._check(state, log)
        policies = np.empty((len(log), self.spec.n_actions))
        for start, count in self._stretches(state.rounds, len(log)):
            stretch, out = log[start : start + count], policies[start : start + count]
            state, _ = self._learn(state, stretch, kernels.exponential_weights.policies, out)
        return state, policies

    def expected_reward(
        self, state: Scores, log: Log, rewards: Array, starts: Integers
    ) -> tuple[Scores, float]:
        """`replay` for a referee, whose log fits: Σ_t ⟨π_t, r_t⟩ in place of a trace.

        Row i of `rewards` holds from event starts[i] on.
        """
        earned = 0.0
        for start, count in self._stretches(state.rounds, len(log), size=max(1, len(log))):
            held, since = segments(rewards, starts, start, count)
            state, (more,) = self._learn(
                state,
                log[start : start + count],
                kernels.exponential_weights.expected_reward,
                kernel_view(held),
                kernel_view(since),
            )
            earned += more
        return state, earned

    def play_adaptive(
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
        shown = propensities if self.spec.propensities else None
        found = np.zeros(2)
        for start, count in self._stretches(state.rounds, len(actions)):
            part = slice(start, start + count)
            q = None if shown is None else shown[part]
            logs = [Log._of(actions[part], np.full(count, r), q, None) for r in (0.0, 1.0)]
            both = [self.gains(state.memory, state.rounds, log) for log in logs]
            gains, memory = np.stack([gain for gain, _ in both]), both[0][1]
            state, more = self._run(
                lambda *learner: referee(learner), state, actions[part], gains, memory
            )
            found += more
        return state, found.tolist()

    def from_sufficient_statistics(self, sums: ArrayLike, rounds: int) -> Scores:
        """The state of rounds whose gains were summed elsewhere, such as by a database.

        `sums` are the K sums G(a) of what the estimator would have said of each event.

        >>> from understudy.estimators import ImportanceWeighting
        >>> learner = ExponentialWeights(0.5, ImportanceWeighting([0.5, 0.5]))
        >>> state = learner.from_sufficient_statistics([2.0, 0.0], rounds=1)
        >>> learner.policy(state).round(4).tolist()
        [0.7311, 0.2689]
        """
        self._refuse_order()
        K, scores = self.spec.n_actions, SUMS("sums", sums).copy()
        if scores.shape != (K,):
            raise InvalidArgument("sums", sums, f"there are {K} actions", SUMS.remedy)
        residues, counted = np.zeros(K), ROUNDS("rounds", rounds)
        reference, total = kernels.exponential_weights.refresh(
            self.rate(counted), scores, residues, np.empty(K)
        )
        memory = self.estimator.init()
        return Scores(read_only(scores), read_only(residues), counted, memory, reference, total)

    def merge(self, first: Scores, second: Scores) -> Scores:
        self._refuse_order()
        self.validate(first)
        self.validate(second)
        scores, residues = first.scores.copy(), first.residues + second.residues
        rounds = first.rounds + second.rounds
        reference, total = kernels.exponential_weights.merge(
            self.rate(rounds), scores, residues, kernel_view(second.scores)
        )
        return Scores(
            read_only(scores), read_only(residues), rounds, first.memory, reference, total
        )

    def rounds(self, state: Scores) -> int:
        return state.rounds

    def past_horizon(self, state: Scores) -> int:
        return rounds_past(self.horizon, state.rounds)

    def validate(self, state: Scores) -> None:
        self._check_own(state)
        eta = self.rate(state.rounds)
        with np.errstate(over="ignore"):  # of a state that is not one
            residues = np.clip(eta * state.residues, -LARGEST_RESIDUE, LARGEST_RESIDUE)
            weights = np.exp(eta * (state.scores - state.reference) + residues)
            carried = abs(weights.sum() - state.total) <= CARRIED * state.total
        if not carried or not self.estimator.accepts_memory(state.memory, state.rounds):
            raise not_a_state(state, f"{self.spec.n_actions} actions")

    def _refuse_order(self) -> None:
        if self.order_dependence is not None:
            raise NotMergeable(
                f"{self.order_dependence}; replay the logs one after the other instead"
            )

    def _check_own(self, state: Scores) -> None:
        shape = (self.spec.n_actions,)
        if not isinstance(state, Scores) or not state.scores.shape == state.residues.shape == shape:
            raise not_a_state(state, f"{self.spec.n_actions} actions")

    def _check(self, state: Scores, log: Log) -> None:
        self._check_own(state)
        self.spec.check(log)

    def _stretches(
        self, before: int, rounds: int, size: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """Stretches in each of which the rate stays, of a size that stays in the cache."""
        size = max(STRETCH, self.spec.n_actions) if size is None else size
        if isinstance(self.eta, Decaying):
            return chunks_of_constant_rate(before, rounds, size)
        return chunks(rounds, size)

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
        eta, rounds = self.rate(state.rounds), state.rounds + len(actions)
        reference, total, *found = kernel(
            eta,
            scores,
            residues,
            state.reference,
            state.total,
            state.rounds,
            kernel_view(actions),
            kernel_view(gains),
            *rest,
        )
        if self.rate(rounds) != eta:
            reference, total = kernels.exponential_weights.refresh(
                self.rate(rounds), scores, residues, np.empty(len(scores))
            )
        return Scores(
            read_only(scores), read_only(residues), rounds, memory, reference, total
        ), found
