"""One learner for every comparator at once: mirror descent with a rate for every action."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from understudy import kernels
from understudy.behaviors import BEHAVIOR, Behavior, Logged, propensities_of
from understudy.constraints import HORIZON, ROUNDS, TRUTH, Array, array, enforce, number, one_of
from understudy.errors import InvalidArgument
from understudy.estimators import GainFormula
from understudy.learners.exponential_weights import CARRIED_ERROR, ScoreLearner
from understudy.protocols import CompiledPath, EventSpec
from understudy.schedules import last_change
from understudy.theory.coverage_adaptive import PRIOR, RATES, check_tuning, refuse_other_length
from understudy.types import Integers, Log, kernel_view, read_only, saved

LOGARITHMIC = "logarithmic"
GAIN = one_of(
    "pass 'implicit' for R/(q + η/2), or 'logarithmic' for log(1 + ηR/q)/η", "implicit", LOGARITHMIC
)

GroupTuning = tuple[Array, Array, Integers, bool]  # rates, log w₁, row of every action; which gain


@saved
@dataclass(frozen=True, eq=False)
class LeveledScores:
    """G of every expert, the number of rounds, and the level Λ at which the weights sum to 1.

    G is `scores` + `residues`: one row for actions, or one for each level of the grid. For each
    group of experts with one rate, `totals` is Σ exp(η (G − `references`)).
    """

    scores: Array
    residues: Array
    rounds: int
    references: Array
    totals: Array
    level: float
    CONSTRAINTS: ClassVar = {  # enforced by snapshots: a learner makes no wrong state itself
        "scores": array("pass rows of scores", dimensions=(2,)),
        "residues": array("pass rows of residues", dimensions=(2,)),
        "rounds": ROUNDS,
        "references": array("pass the score of each group whose weight counts as 1"),
        "totals": array("pass the sum of each group's weights", low=0.0),
        "level": number(-math.inf, math.inf, "pass the level at which all weights sum to 1"),
    }


@saved
@dataclass(frozen=True, eq=False)
class CoverageAdaptive(ScoreLearner[LeveledScores]):
    r"""Plays $\pi_t(a) = w_1(a) \exp(\eta_a (G_t(a) - \Lambda_t))$, Λ_t such that they sum to 1,

    the mirror descent of the weighted entropy Σ_a w(a) log w(a)/η_a, with G_t(a) the sum of the
    gains R/(q + η_a/2) (or log(1 + η_a R/q)/η_a) before round t.

    `rates` and `prior` are η_a and w₁(a) of every action. With `us.Logged` they are those of the
    levels of a grid: every action is then an expert on every level, each level's prior is shared
    by all actions alike, and an action is played with the sum of its experts' weights. If
    `decaying`, the rates of round t are these divided by √t. Experts of one rate and one prior are
    a group; a round costs O(groups).
    """

    behavior: Behavior
    rates: Array
    prior: Array
    gain: str = "implicit"
    horizon: int | None = None
    decaying: bool = False
    CONSTRAINTS: ClassVar = {
        "behavior": BEHAVIOR,
        "rates": RATES,
        "prior": PRIOR,
        "gain": GAIN,
        "horizon": HORIZON.optional(),
        "decaying": TRUTH,
    }
    COMPILED: ClassVar = CompiledPath.LOGS
    KERNELS: ClassVar = "weighted_entropy"
    SUMS: ClassVar = array("pass one sum of gains per expert", dimensions=(2,))

    def __post_init__(self) -> None:
        enforce(self)
        check_tuning(self.rates, self.prior)
        if not isinstance(self.behavior, Logged):
            refuse_other_length(self.rates, len(self.behavior))
        elif not (self.prior > 0).all():
            raise InvalidArgument(
                "prior", self.prior, "a level of weight 0 is never used", "leave that level out"
            )

    @cached_property
    def spec(self) -> EventSpec:
        return EventSpec.for_behavior(self.behavior)

    @cached_property
    def _groups(self) -> tuple[Array, Array, Integers]:
        """Rate and log w₁ of the experts of each group, and the row of every action's groups:

        its own group alone, or on a grid the only row, which is all levels.
        """
        if isinstance(self.behavior, Logged):
            log_prior = np.log(self.prior / self.behavior.n_actions)
            rows = np.zeros(self.behavior.n_actions, dtype=np.int64)
            return kernel_view(self.rates), kernel_view(log_prior), kernel_view(rows)
        seen = self.prior > 0
        pairs = np.stack([self.rates[seen], self.prior[seen]], axis=1)
        kinds, own = np.unique(pairs, axis=0, return_inverse=True)
        rows = np.full(len(self.prior), len(kinds))  # that of no group: never played
        rows[seen] = own.reshape(-1)
        return kernel_view(kinds[:, 0]), kernel_view(np.log(kinds[:, 1])), kernel_view(rows)

    def tuning(self, rounds: int) -> GroupTuning:
        """Return the rates after `rounds`, log w₁, the row of each action, the kind of gain."""
        rates, log_prior, rows = self._groups
        if self.decaying:
            rates = kernel_view(rates / np.sqrt(last_change(np.asarray(rounds + 1))))
        return rates, log_prior, rows, self.gain == LOGARITHMIC

    @cached_property
    def shape(self) -> tuple[int, ...]:
        levels = len(self.rates) if isinstance(self.behavior, Logged) else 1
        return levels, self.spec.n_actions

    def init(self) -> LeveledScores:
        rates, _, rows = self._groups
        nothing = read_only(np.zeros(self.shape, order="F"))
        of_one_group = np.bincount(rows, minlength=len(rates) + 1)[:-1]
        members = len(rows) if isinstance(self.behavior, Logged) else of_one_group
        totals = np.full(len(rates), members, dtype=np.float64)
        return LeveledScores(
            nothing, nothing, 0, read_only(np.zeros(len(rates))), read_only(totals), 0.0
        )

    def _fill_policy(self, state: LeveledScores, policy: Array) -> None:
        sums = kernel_view(state.references), kernel_view(state.totals)
        scores, residues = kernel_view(state.scores.T), kernel_view(state.residues.T)
        kernels.weighted_entropy.policy(
            self.tuning(state.rounds), scores, residues, sums, state.level, policy
        )

    @property
    def gain_formula(self) -> GainFormula | None:
        if self.decaying:
            return None
        logarithmic = self.gain == LOGARITHMIC
        rates = self.rates if logarithmic else self.rates / 2.0
        return GainFormula(logarithmic, rates, self.behavior)

    def _from_scores(self, scores: Array, rounds: int) -> LeveledScores:
        residues = np.zeros(self.shape[::-1])
        return state_from_scores(self.tuning(rounds), by_action(scores), residues, rounds)

    def add_states(self, first: LeveledScores, second: LeveledScores) -> LeveledScores:
        scores, residues = by_action(first.scores), by_action(first.residues + second.residues)
        kernels.weighted_entropy.add(scores, residues, kernel_view(second.scores.T))
        rounds = first.rounds + second.rounds
        return state_from_scores(self.tuning(rounds), scores, residues, rounds)

    def accepts(self, state: LeveledScores) -> bool:
        n_groups = len(self._groups[0])
        return (
            isinstance(state, LeveledScores)
            and state.scores.shape == state.residues.shape == self.shape
            and state.references.shape == state.totals.shape == (n_groups,)
        )

    def is_possible(self, state: LeveledScores) -> bool:
        tuning = self.tuning(state.rounds)
        scores, residues = by_action(state.scores), by_action(state.residues)
        fresh = state_from_scores(tuning, scores, residues, state.rounds)
        rates = tuning[0]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of no state
            moved = rates * (state.references - fresh.references)
            carried = np.abs(np.log(state.totals) + moved - np.log(fresh.totals))
            level = np.abs(rates * (state.level - fresh.level)).max()
        size = 1.0 + np.abs(rates * fresh.level).max()  # the level is a number that grows
        return bool((carried <= CARRIED_ERROR * size).all() and level <= CARRIED_ERROR * size)

    def _learn(
        self,
        state: LeveledScores,
        log: Log,
        kernel: Callable[..., Any],
        arguments: tuple[Array, ...],
    ) -> tuple[LeveledScores, list[float]]:
        tuning, rounds = self.tuning(state.rounds), state.rounds + len(log)
        scores, residues = by_action(state.scores), by_action(state.residues)
        sums = state.references.copy(), state.totals.copy()
        q = propensities_of(self.behavior, log)
        events = kernel_view(log.actions), kernel_view(log.rewards), kernel_view(q)
        level, *found = kernel(
            tuning, scores, residues, sums, state.level, state.rounds, events, *arguments
        )
        if self.decaying and not np.array_equal((moved := self.tuning(rounds))[0], tuning[0]):
            return state_from_scores(moved, scores, residues, rounds), found
        references, totals = (read_only(part) for part in sums)
        after = LeveledScores(
            read_only(scores.T), read_only(residues.T), rounds, references, totals, level
        )
        return after, found


def by_action(rows: Array) -> Array:
    """A copy for the kernels, in which the experts of an action lie side by side: (K, rows)."""
    return rows.T.copy()


def state_from_scores(
    tuning: GroupTuning, scores: Array, residues: Array, rounds: int
) -> LeveledScores:
    """The state of scores (K, rows), with all sums and the level computed from them alone."""
    references, totals = np.empty(len(tuning[0])), np.empty(len(tuning[0]))
    level = kernels.weighted_entropy.begin(tuning, scores, residues, (references, totals))
    sums = read_only(references), read_only(totals)
    return LeveledScores(read_only(scores.T), read_only(residues.T), rounds, *sums, level)
