"""Exponential weights: Algorithm 1 of the paper, whatever the estimator.

`ScoreLearner` is the driver of all learners that carry sums of gains along a log by a kernel.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.constraints import (
    HORIZON,
    LARGEST_COUNT,
    ROUNDS,
    Array,
    Constraint,
    array,
    enforce,
    number,
    refuse_large_state,
)
from understudy.deprecated import OldName
from understudy.errors import InvalidArgument
from understudy.estimators import GainFormula
from understudy.protocols import (
    ESTIMATOR,
    CompiledPath,
    Estimator,
    EventSpec,
    Learner,
    Recorder,
)
from understudy.schedules import ETA, Decaying, Rate, chunks_of_constant_rate, rate_at
from understudy.theory.coverage_adaptive import POSITIVE_PRIOR, refuse_other_length
from understudy.types import Integers, Log, added, chunks, kernel_view, read_only, saved

CHUNK = 1 << 13  # events at a time: their four columns, 256 KB, stay in the cache
# Relative error of carried sums of weights: far above that of max(1024, K) roundings.
CARRIED_ERROR = 1e-9

State = TypeVar("State", bound=Any)  # it has `rounds`


class ScoreLearner(Learner[State]):
    """A learner without contexts that weighs sums of gains, its scores.

    `KERNELS` names the module of its kernels, `SUMS` is the constraint on sums made elsewhere.
    """

    KERNELS: ClassVar[str]
    SUMS: ClassVar[Constraint]
    of_sums = OldName()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the scores."""

    @property
    @abstractmethod
    def decaying(self) -> bool:
        """Whether the rate falls with time."""

    @property
    @abstractmethod
    def gain_formula(self) -> GainFormula | None:
        """The gain of an event, if it is a formula that any engine can sum in any order."""

    @abstractmethod
    def _fill_policy(self, state: State, policy: Array) -> None:
        """Write π_t of a checked state."""

    @abstractmethod
    def _learn(
        self, state: State, log: Log, kernel: Callable[..., Any], arguments: tuple[Array, ...]
    ) -> tuple[State, list[float]]:
        """The state after rounds of one rate, and what the kernel found beside it."""

    @abstractmethod
    def _from_scores(self, scores: Array, rounds: int) -> State:
        """The state of rounds with these checked sums of gains."""

    def _refuse_large_scores(self) -> None:
        """Raise `InvalidArgument` if there are more scores than a machine holds."""
        levels = math.prod(self.shape[:-1])
        refuse_large_state("n_actions", self.spec.n_actions, lambda K: levels * K)

    @property
    def order_dependence(self) -> str | None:
        return "η_t depends on the round in which an event happened" if self.decaying else None

    def policy(self, state: State, features: ArrayLike | None = None) -> Array:
        self.check_state(state)
        if features is not None:
            reason, remedy = "this learner ignores contexts", "leave them out"
            raise InvalidArgument("features", features, reason, remedy)
        policy = np.empty(self.shape[-1])
        self._fill_policy(state, policy)
        return policy

    def advance(self, state: State, log: Log, recorder: Recorder) -> State:
        kernel = getattr(getattr(kernels, self.KERNELS), recorder.kernel)
        n = len(log)
        for start, count in self._chunks(state.rounds, n, whole=recorder.one_sum):
            part = log if count == n else log[start : start + count]
            state, found = self._learn(state, part, kernel, recorder.kernel_arguments(count))
            for sum_of_chunk in found:
                recorder.add_found(sum_of_chunk)
        return state

    def from_sufficient_statistics(self, sums: ArrayLike, rounds: int) -> State:
        """The state of rounds whose gains were summed elsewhere, such as by a database.

        `sums` are the scores: sums of gains of each action, (K,), or of each expert of a
        coverage-adaptive learner, (1, K), or (levels, K) on a grid.

        >>> import understudy as us
        >>> learner = us.exp3([0.5, 0.5], eta=0.5)
        >>> state = learner.from_sufficient_statistics([2.0, 0.0], rounds=1)
        >>> learner.policy(state).round(4).tolist()
        [0.7311, 0.2689]
        """
        self.refuse_order_dependence()
        scores = self.SUMS("sums", sums)
        if scores.shape != self.shape:
            reason = f"its shape must be {self.shape}"
            raise InvalidArgument("sums", sums, reason, self.SUMS.remedy)
        return self._from_scores(scores, ROUNDS("rounds", rounds))

    @property
    def _largest_chunk(self) -> int:
        """How many rounds the kernel gets at a time."""
        return LARGEST_COUNT

    def _chunks(self, before: int, rounds: int, *, whole: bool) -> Iterable[tuple[int, int]]:
        """Chunks in each of which the rate stays; `whole` ones are cut by that alone."""
        if rounds == 1:
            return ((0, 1),)  # of `update`, which is called for every event
        size = LARGEST_COUNT if whole else self._largest_chunk
        if self.decaying:
            return chunks_of_constant_rate(before, rounds, size)
        return chunks(rounds, size)


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
class ExponentialWeights(ScoreLearner[Scores]):
    r"""Plays $\pi_t(a) \propto \exp(\eta_t \sum_{k<t} \tilde r_k(a))$.

    η_t is a number, or a `Decaying` rate that needs no horizon: all weights are computed again when
    it moves, which is rare enough that a round still costs O(1). The weights exist only as
    scores, their logarithms over η, so that no number of rounds can overflow them. The recipes
    (`exp3`, `exp3_ix`, `exp3_ix_unknown`, `prod`) choose η and the estimator as the theorems do.

    With a `prior` w₁ the policy is $\pi_t(a) \propto w_1(a) \exp(\eta_t \sum_{k<t} \tilde r_k(a))$:
    (log w₁(a))/η_t is a part of the scores.

    >>> import understudy as us
    >>> learner = ExponentialWeights(0.5, us.estimators.ImplicitExploration([0.5, 0.5], gamma=0.25))
    >>> state = learner.update(learner.init(), us.Feedback(action=0, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.6608, 0.3392]
    """

    eta: Rate
    estimator: Estimator
    horizon: int | None = None
    prior: Array | None = added(None)  # noqa: RUF009 - a field
    CONSTRAINTS: ClassVar = {
        "eta": ETA,
        "estimator": ESTIMATOR,
        "horizon": HORIZON.optional(),
        "prior": POSITIVE_PRIOR.optional(),
    }
    COMPILED: ClassVar = CompiledPath.LOGS | CompiledPath.WHOLE_GAMES | CompiledPath.ADAPTIVE
    KERNELS: ClassVar = "exponential_weights"
    SUMS: ClassVar = array("pass one sum of gains per action")
    meet = OldName()

    def __post_init__(self) -> None:
        enforce(self)
        self._refuse_large_scores()
        if self.prior is not None:
            refuse_other_length(self.prior, self.spec.n_actions, "prior")

    @cached_property
    def spec(self) -> EventSpec:
        return self.estimator.spec

    @cached_property
    def _log_prior(self) -> Array | None:
        return None if self.prior is None else np.asarray(np.log(self.prior))

    def _prior_scores(self, eta: float) -> Array | float:
        """(log w₁)/η of every action: the prior as a part of the scores."""
        return 0.0 if self._log_prior is None else self._log_prior / eta

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return (self.spec.n_actions,)

    @property
    def decaying(self) -> bool:
        return isinstance(self.eta, Decaying)

    @property
    def order_dependence(self) -> str | None:
        return super().order_dependence or self.estimator.order_dependence

    @property
    def gain_formula(self) -> GainFormula | None:
        if self.order_dependence is not None:
            return None
        formula: GainFormula | None = getattr(self.estimator, "formula", None)
        return formula

    def init(self) -> Scores:
        K = self.spec.n_actions
        if self.prior is not None:
            return self._from_scores(np.zeros(K), 0)
        nothing = read_only(np.zeros(K))
        return Scores(nothing, nothing, 0, self.estimator.init(), reference=0.0, total=float(K))

    def rate(self, rounds: int) -> float:
        """Return η_t of the round t = `rounds` + 1."""
        if isinstance(self.eta, float):
            return self.eta
        return float(rate_at(self.eta, np.asarray(rounds + 1)))

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
        for start, count in self._chunks(state.rounds, len(actions), whole=False):
            part = slice(start, start + count)
            q = None if shown is None else shown[part]
            logs = [Log._of(actions[part], np.full(count, r), q, None) for r in (0.0, 1.0)]
            both = [self.gains(state.memory, state.rounds, log) for log in logs]
            gains, memory = np.stack([gain for gain, _ in both]), both[0][1]
            state, more = self._run_kernel(
                lambda *learner: referee(learner), state, actions[part], gains, memory
            )
            found += more
        return state, found.tolist()

    def gains(self, memory: Integers, start: int, log: Log) -> tuple[Array, Integers]:
        """The gains of the estimator; `InvalidArgument` if they are not finite numbers."""
        found, memory = self.estimator.gains(memory, start, log)
        gains = np.asarray(found, dtype=np.float64)
        if gains.shape != log.actions.shape or not np.isfinite(gains).all():
            raise InvalidArgument(
                "estimator.gains",
                gains,
                f"{len(log)} events need {len(log)} finite numbers",
                "return one gain per event from gains",
            )
        return gains, memory

    def add_states(self, first: Scores, second: Scores) -> Scores:
        scores, residues = first.scores.copy(), first.residues + second.residues
        rounds = first.rounds + second.rounds
        eta = self.rate(rounds)
        more = second.scores - self._prior_scores(eta)  # both have the prior
        sums = kernels.exponential_weights.merge(eta, scores, residues, kernel_view(more))
        return Scores(read_only(scores), read_only(residues), rounds, first.memory, *sums)

    def accepts(self, state: Scores) -> bool:
        return (
            isinstance(state, Scores) and state.scores.shape == state.residues.shape == self.shape
        )

    def is_possible(self, state: Scores) -> bool:
        eta = self.rate(state.rounds)
        with np.errstate(over="ignore"):  # of a state that is not one
            largest = kernels.exponential_weights.LARGEST_RESIDUE
            residues = np.clip(eta * state.residues, -largest, largest)
            weights = np.exp(eta * (state.scores - state.reference) + residues)
            carried = bool(abs(weights.sum() - state.total) <= CARRIED_ERROR * state.total)
        return carried and self.estimator.accepts_memory(state.memory, state.rounds)

    @property
    def compiled_paths(self) -> CompiledPath:
        paths = super().compiled_paths
        if self.order_dependence is not None or self.prior is not None:
            paths &= ~CompiledPath.WHOLE_GAMES  # whose weights begin equal
        if not getattr(self.estimator, "memory_ignores_rewards", False):
            paths &= ~CompiledPath.ADAPTIVE  # gains are made before rewards are known
        return paths

    @property
    def _largest_chunk(self) -> int:
        return max(CHUNK, self.spec.n_actions)  # a chunk makes K weights

    def _fill_policy(self, state: Scores, policy: Array) -> None:
        scores, residues = kernel_view(state.scores), kernel_view(state.residues)
        kernels.exponential_weights.policy(
            self.rate(state.rounds), scores, residues, state.reference, state.total, policy
        )

    def _from_scores(self, scores: Array, rounds: int) -> Scores:
        eta = self.rate(rounds)
        own, residues = scores + self._prior_scores(eta), np.zeros(len(scores))
        sums = reference_and_total(eta, own, residues)
        return Scores(read_only(own), read_only(residues), rounds, self.estimator.init(), *sums)

    def _learn(
        self, state: Scores, log: Log, kernel: Callable[..., Any], arguments: tuple[Array, ...]
    ) -> tuple[Scores, list[float]]:
        gains, memory = self.gains(state.memory, state.rounds, log)
        return self._run_kernel(kernel, state, log.actions, gains, memory, *arguments)

    def _run_kernel(
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
        if eta is not self.eta and (moved := self.rate(rounds)) != eta:  # it falls with time
            if self._log_prior is not None:
                more = self._log_prior / moved - self._log_prior / eta
                kernels.exponential_weights.merge(moved, scores, residues, kernel_view(more))
            reference, total = reference_and_total(moved, scores, residues)
        after = Scores(read_only(scores), read_only(residues), rounds, memory, reference, total)
        return after, found


def reference_and_total(eta: float, scores: Array, residues: Array) -> tuple[float, float]:
    """The reference and the total of a state, computed from its scores alone."""
    room = np.empty(len(scores))
    reference, total = kernels.exponential_weights.refresh(eta, scores, residues, room)
    return reference, total
