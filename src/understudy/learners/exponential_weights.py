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
    integer,
    number,
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
    refuse_features,
)
from understudy.recorders import Recorder
from understudy.schedules import ETA, Decaying, Rate, chunks_of_constant_rate, rate_at
from understudy.types import (
    Integers,
    Log,
    chunks,
    kernel_view,
    read_only,
    saved,
)

CHUNK = 1 << 13  # events at a time: their four columns, 256 KB, stay in the cache
LARGEST_RESIDUE = 300.0  # of an exponent: as in the kernel
CARRIED = (
    1e-9  # relative error of the carried sum of weights: far above that of max(1024, K) roundings
)
SUMS = array("pass one sum of gains per action")
ROUNDS = integer(0, "pass a number of rounds", LARGEST_COUNT)


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
class ExponentialWeights(Learner[Scores]):
    r"""Plays $\pi_t(a) \propto \exp(\eta_t \sum_{k<t} \tilde r_k(a))$.

    η_t is a number, or a `Decaying` rate that needs no horizon: all weights are computed again when
    it moves, which is rare enough that a round still costs O(1). The weights exist only as
    scores, their logarithms over η, so that no number of rounds can overflow them. The recipes
    (`exp3`, `exp3_ix`, `exp3_ix_unknown`, `prod`) choose η and the estimator as the theorems do.

    >>> import understudy as us
    >>> learner = ExponentialWeights(0.5, us.estimators.ImplicitExploration([0.5, 0.5], gamma=0.25))
    >>> state = learner.update(learner.init(), us.Feedback(action=0, reward=1.0))
    >>> learner.policy(state).round(4).tolist()
    [0.6608, 0.3392]
    """

    eta: Rate
    estimator: Estimator
    horizon: int | None = None
    CONSTRAINTS: ClassVar = {"eta": ETA, "estimator": ESTIMATOR, "horizon": HORIZON.optional()}
    COMPILED: ClassVar = CompiledPath.LOGS | CompiledPath.WHOLE_GAMES | CompiledPath.ADAPTIVE
    of_sums, meet = OldName(), OldName()

    def __post_init__(self) -> None:
        enforce(self)

    @property
    def spec(self) -> EventSpec:
        return self.estimator.spec

    @property
    def order_dependence(self) -> str | None:
        if isinstance(self.eta, Decaying):
            return "η_t depends on the round in which an event happened"
        return self.estimator.order_dependence

    def init(self) -> Scores:
        K = self.spec.n_actions
        nothing = read_only(np.zeros(K))
        return Scores(nothing, nothing, 0, self.estimator.init(), reference=0.0, total=float(K))

    def policy(self, state: Scores, features: ArrayLike | None = None) -> Array:
        self.check_state(state)
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

    def advance(self, state: Scores, log: Log, recorder: Recorder) -> Scores:
        kernel = getattr(kernels.exponential_weights, recorder.kernel)
        size = max(1, len(log)) if recorder.one_sum else max(CHUNK, self.spec.n_actions)
        for start, count in self._chunks(state.rounds, len(log), size):
            part = log if count == len(log) else log[start : start + count]
            gains, memory = self.gains(state.memory, state.rounds, part)
            arguments = recorder.kernel_arguments(count)
            state, found = self._run(kernel, state, part.actions, gains, memory, *arguments)
            for sum_of_chunk in found:
                recorder.add_found(sum_of_chunk)
        return state

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
        size = max(CHUNK, self.spec.n_actions)
        for start, count in self._chunks(state.rounds, len(actions), size):
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

    @property
    def gain_formula(self) -> GainFormula | None:
        """The gain of an event, if it is a formula that any engine can sum in any order."""
        if self.order_dependence is not None:
            return None
        formula: GainFormula | None = getattr(self.estimator, "formula", None)
        return formula

    def from_sufficient_statistics(self, sums: ArrayLike, rounds: int) -> Scores:
        """The state of rounds whose gains were summed elsewhere, such as by a database.

        `sums` are G(a), the sums of the estimator's gains of each action, (K,).

        >>> from understudy.estimators import ImportanceWeighting
        >>> learner = ExponentialWeights(0.5, ImportanceWeighting([0.5, 0.5]))
        >>> state = learner.from_sufficient_statistics([2.0, 0.0], rounds=1)
        >>> learner.policy(state).round(4).tolist()
        [0.7311, 0.2689]
        """
        self.refuse_order_dependence()
        K, scores = self.spec.n_actions, SUMS("sums", sums).copy()
        if scores.shape != (K,):
            raise InvalidArgument("sums", sums, f"there are {K} actions", SUMS.remedy)
        residues, counted = np.zeros(K), ROUNDS("rounds", rounds)
        reference, total = kernels.exponential_weights.refresh(
            self.rate(counted), scores, residues, np.empty(K)
        )
        memory = self.estimator.init()
        return Scores(read_only(scores), read_only(residues), counted, memory, reference, total)

    def add_states(self, first: Scores, second: Scores) -> Scores:
        scores, residues = first.scores.copy(), first.residues + second.residues
        rounds = first.rounds + second.rounds
        reference, total = kernels.exponential_weights.merge(
            self.rate(rounds), scores, residues, kernel_view(second.scores)
        )
        return Scores(
            read_only(scores), read_only(residues), rounds, first.memory, reference, total
        )

    def accepts(self, state: Scores) -> bool:
        shape = (self.spec.n_actions,)
        return isinstance(state, Scores) and state.scores.shape == state.residues.shape == shape

    def validate(self, state: Scores) -> None:
        self.check_state(state)
        eta = self.rate(state.rounds)
        with np.errstate(over="ignore"):  # of a state that is not one
            residues = np.clip(eta * state.residues, -LARGEST_RESIDUE, LARGEST_RESIDUE)
            weights = np.exp(eta * (state.scores - state.reference) + residues)
            carried = abs(weights.sum() - state.total) <= CARRIED * state.total
        if not carried or not self.estimator.accepts_memory(state.memory, state.rounds):
            raise self.not_own(state)

    @property
    def compiled_paths(self) -> CompiledPath:
        paths = super().compiled_paths
        if self.order_dependence is not None:
            paths &= ~CompiledPath.WHOLE_GAMES
        if not getattr(self.estimator, "memory_ignores_rewards", False):
            paths &= ~CompiledPath.ADAPTIVE  # gains are made before rewards are known
        return paths

    def _chunks(self, before: int, rounds: int, size: int) -> Iterator[tuple[int, int]]:
        """Chunks of at most `size` rounds, in each of which the rate stays."""
        if isinstance(self.eta, Decaying) and rounds > 1:  # one round, of an update, is one chunk
            return chunks_of_constant_rate(before, rounds, size)
        return chunks(rounds, size)

    def gains(self, memory: Integers, start: int, log: Log) -> tuple[Array, Integers]:
        """The gains of the estimator; `InvalidArgument` if they are not finite numbers."""
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
