"""One learner for every comparator at once: mirror descent with a rate for every action."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.behaviors import BEHAVIOR, Behavior, Logged, n_actions_of, propensities_of
from understudy.constraints import HORIZON, ROUNDS, TRUTH, Array, array, enforce, number, one_of
from understudy.errors import InvalidArgument
from understudy.estimators import GainFormula
from understudy.learners.exponential_weights import CARRIED_ERROR, ScoreLearner
from understudy.learners.outside_policies import NOTHING, ProductionFollower, add_production
from understudy.protocols import (
    PRODUCTION,
    AllPolicies,
    CompiledPath,
    EventSpec,
    ExpectedReward,
    Recorder,
)
from understudy.schedules import last_change
from understudy.theory.coverage_adaptive import (
    POSITIVE_PRIOR,
    PRIOR,
    RATES,
    check_tuning,
    refuse_other_length,
)
from understudy.types import Integers, Log, added, kernel_view, read_only, saved

LOGARITHMIC = "logarithmic"
GAIN = one_of(
    "pass 'implicit' for R/(q + η/2), or 'logarithmic' for log(1 + ηR/q)/η", "implicit", LOGARITHMIC
)
SHARE = number(0.0, 1.0, "pass the prior share of production, below 1", below=True)

# Rates, log w₁, the row of every action; which gain; the index of the behavior policy, or −1;
# whether rates without weight may be ignored in the search of Λ.
GroupTuning = tuple[Array, Array, Integers, bool, int, bool]


@saved
@dataclass(frozen=True, eq=False)
class LeveledScores:
    """G of every expert, the number of rounds, and the level Λ at which the weights sum to 1.

    G is `scores` + `residues`: one row for actions, or one for each level of the grid. For each
    group of experts with one rate, `totals` is Σ exp(η (G − `references`)). With a prior w₁(a)
    over actions, (log w₁(a))/η is a part of G. If the behavior policy is an expert, it is the last
    column.
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
class CoverageAdaptive(ScoreLearner[LeveledScores], ProductionFollower[LeveledScores]):
    r"""Plays $\pi_t(a) = w_1(a) \exp(\eta_a (G_t(a) - \Lambda_t))$, Λ_t such that they sum to 1,

    the mirror descent of the weighted entropy Σ_a w(a) log w(a)/η_a, with G_t(a) the sum of the
    gains R/(q + η_a/2) (or log(1 + η_a R/q)/η_a) before round t.

    `rates` and `prior` are η_a and w₁(a) of every action. With `us.Logged` they are those of the
    levels of a grid: every action is then an expert on every level, each level's prior is shared
    by all actions alike, and an action is played with the sum of its experts' weights. If
    `decaying`, the rates of round t are these divided by √t. Experts of one rate and one prior are
    a group; a round costs O(groups).

    With `grid` a vector of probabilities has levels too. The levels may have an `action_prior`, and
    `production` is the prior share of one more expert, which plays as the behavior policy does.
    """

    behavior: Behavior
    rates: Array
    prior: Array
    gain: str = "implicit"
    horizon: int | None = None
    decaying: bool = False
    grid: bool = added(False)
    action_prior: Array | None = added(None)  # noqa: RUF009 - a field
    production: float = added(0.0)
    CONSTRAINTS: ClassVar = {
        "behavior": BEHAVIOR,
        "rates": RATES,
        "prior": PRIOR,
        "gain": GAIN,
        "horizon": HORIZON.optional(),
        "decaying": TRUTH,
        "grid": TRUTH,
        "action_prior": POSITIVE_PRIOR.optional(),
        "production": SHARE,
    }
    COMPILED: ClassVar = CompiledPath.LOGS
    KERNELS: ClassVar = "weighted_entropy"
    SUMS: ClassVar = array("pass one sum of gains per expert", dimensions=(2,))

    def __post_init__(self) -> None:
        enforce(self)
        check_tuning(self.rates, self.prior)
        if not self.has_levels:
            refuse_other_length(self.rates, n_actions_of(self.behavior))
            if self.action_prior is not None or self.production > 0:
                reason = "only a grid of rates has a prior over actions beside that of rates"
                raise InvalidArgument("grid", self.grid, reason, "pass grid=True")
        elif not (self.prior > 0).all():
            raise InvalidArgument(
                "prior", self.prior, "a level of weight 0 is never used", "leave that level out"
            )
        if self.action_prior is not None:
            refuse_other_length(self.action_prior, n_actions_of(self.behavior), "action_prior")
        self._refuse_large_scores()

    @cached_property
    def has_levels(self) -> bool:
        """Whether every action is an expert on every level of a grid."""
        return self.grid or isinstance(self.behavior, Logged)

    @cached_property
    def spec(self) -> EventSpec:
        spec = EventSpec.for_behavior(self.behavior)
        outside = (PRODUCTION,) if self.production > 0 and spec.propensities else ()
        return replace(spec, outside=outside)

    @cached_property
    def _groups(self) -> tuple[Array, Array, Integers]:
        """Rate and log w₁ of the experts of each group, and the row of every action's groups:

        its own group alone, or on a grid the only row, which is all levels.
        """
        if self.has_levels:
            alike = n_actions_of(self.behavior) if self._log_action_prior is None else 1
            rows = np.zeros(self.shape[1], dtype=np.int64)
            return (
                kernel_view(self.rates),
                kernel_view(np.log(self.prior / alike)),
                kernel_view(rows),
            )
        seen = self.prior > 0
        pairs = np.stack([self.rates[seen], self.prior[seen]], axis=1)
        kinds, own = np.unique(pairs, axis=0, return_inverse=True)
        rows = np.full(len(self.prior), len(kinds))  # that of no group: never played
        rows[seen] = own.reshape(-1)
        return kernel_view(kinds[:, 0]), kernel_view(np.log(kinds[:, 1])), kernel_view(rows)

    @cached_property
    def _log_action_prior(self) -> Array | None:
        """log w₁ of every action, and of the behavior policy; None if all actions are alike."""
        if self.action_prior is None and self.production == 0:
            return None
        K = n_actions_of(self.behavior)
        prior = np.full(K, 1.0 / K) if self.action_prior is None else self.action_prior
        if self.production > 0:
            prior = np.append((1.0 - self.production) * prior, self.production)
        return np.asarray(np.log(prior))

    def _prior_scores(self, rates: Array) -> Array | float:
        """(log w₁(a))/η of every action and level, (K, levels): the prior as a part of G."""
        if self._log_action_prior is None:
            return 0.0
        return self._log_action_prior[:, np.newaxis] / rates

    def tuning(self, rounds: int) -> GroupTuning:
        """Return the rates after `rounds`, log w₁, the row of each action, the kind of gain."""
        rates, log_prior, rows = self._groups
        if self.decaying:
            rates = kernel_view(rates / np.sqrt(last_change(np.asarray(rounds + 1))))
        production = self.spec.n_actions if self.production > 0 else -1
        # Λ of learners without `grid` keeps the bits that it had before there were any.
        ignores = self.grid and not self.decaying
        return rates, log_prior, rows, self.gain == LOGARITHMIC, production, ignores

    @cached_property
    def shape(self) -> tuple[int, ...]:
        levels = len(self.rates) if self.has_levels else 1
        return levels, n_actions_of(self.behavior) + (self.production > 0)

    def init(self) -> LeveledScores:
        if self._log_action_prior is not None:
            return self._from_scores(np.zeros(self.shape), 0)
        rates, _, rows = self._groups
        nothing = read_only(np.zeros(self.shape, order="F"))
        of_one_group = np.bincount(rows, minlength=len(rates) + 1)[:-1]
        members = len(rows) if self.has_levels else of_one_group
        totals = np.full(len(rates), members, dtype=np.float64)
        return LeveledScores(
            nothing, nothing, 0, read_only(np.zeros(len(rates))), read_only(totals), 0.0
        )

    def policy(
        self,
        state: LeveledScores,
        features: ArrayLike | None = None,
        *,
        production: ArrayLike | None = None,
    ) -> Array:
        given, weights = self.check_outside(production), super().policy(state, features)
        return np.asarray(self._with_production(weights[np.newaxis], given)[0])

    def policies_at(
        self,
        state: LeveledScores,
        features: ArrayLike | None,
        rows: int = 1,
        *,
        production: ArrayLike | None = None,
    ) -> Array:
        given = self.check_outside(production, rows=rows)
        return self._with_production(np.tile(super().policy(state, features), (rows, 1)), given)

    def evaluator(self, state: LeveledScores) -> Callable[..., Array]:
        weights = super().policy(state)[np.newaxis]

        def evaluate(_: None, outside: Mapping[str, Array] = NOTHING, rows: int = 1) -> Array:
            return self._with_production(weights.repeat(rows, axis=0), outside)[:, np.newaxis]

        return evaluate

    def _with_production(self, weights: Array, outside: Mapping[str, Array]) -> Array:
        """Policies (n, K) of weights, whose last column is production's share if it has one."""
        if self.production == 0:
            return weights
        known = outside.get(PRODUCTION) if isinstance(self.behavior, Logged) else self.behavior
        return add_production(weights, known)

    def known_at(
        self, state: LeveledScores, features: Array | None, rows: int = 1
    ) -> tuple[Array, Array]:
        if not self.spec.outside:
            return super().known_at(state, features, rows)
        weights = ScoreLearner.policy(self, state)
        return np.tile(weights[:-1], (rows, 1)), weights[-1:]

    def advance(self, state: LeveledScores, log: Log, recorder: Recorder) -> LeveledScores:
        if self.production == 0 or not recorder.whole:
            return super().advance(state, log, recorder)
        shown = self._production_of(recorder, len(log))
        if isinstance(recorder, ExpectedReward):
            rewards, starts = recorder.rewards_of(len(log))
            whole = np.column_stack([rewards, rewards @ shown])
            with_production = ExpectedReward(whole, starts)
            state = super().advance(state, log, with_production)
            recorder.add_found(with_production.total)
            return state
        weights = AllPolicies(len(log), self.shape[1])
        state = super().advance(state, log, weights)
        recorder.add(add_production(weights.policies, shown))
        return state

    def _production_of(self, recorder: Recorder, rounds: int) -> Array:
        """π_B of the next rounds: the behavior, or the recorder's if each event has its own."""
        if not isinstance(self.behavior, Logged):
            return self.behavior
        return recorder.production_of(rounds)

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
        residues, tuning = np.zeros(self.shape[::-1]), self.tuning(rounds)
        by_experts = by_action(scores) + self._prior_scores(tuning[0])
        return state_from_scores(tuning, by_experts, residues, rounds)

    def add_states(self, first: LeveledScores, second: LeveledScores) -> LeveledScores:
        scores, residues = by_action(first.scores), by_action(first.residues + second.residues)
        rounds = first.rounds + second.rounds
        tuning = self.tuning(rounds)
        more = second.scores.T - self._prior_scores(tuning[0])  # both have the prior
        kernels.weighted_entropy.add(scores, residues, kernel_view(more))
        return state_from_scores(tuning, scores, residues, rounds)

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
        q = propensities_of(self.behavior, log)
        events = kernel_view(log.actions), kernel_view(log.rewards), kernel_view(q)
        return self._run_kernel(state, len(log), kernel, state.rounds, events, *arguments)

    def learn_from_all(
        self, state: LeveledScores, events: tuple[Array, Array, Array, Array]
    ) -> tuple[LeveledScores, Array]:
        """The state after rounds in which every action has an estimated reward, and π_t, (n, K).

        `events` are ratios w, (n, K), and of each round the reward R, the center c and the largest
        w less 1. Estimates are w (R − c) + c. This is the form for `us.exp4`, whose experts are the
        actions here.
        """
        policies, kernel = np.empty(events[0].shape), kernels.weighted_entropy.replay_all
        columns = tuple(kernel_view(column) for column in events)
        state, _ = self._run_kernel(state, len(policies), kernel, columns, policies)
        return state, policies

    def _run_kernel(
        self, state: LeveledScores, count: int, kernel: Callable[..., Any], *arguments: Any
    ) -> tuple[LeveledScores, list[float]]:
        tuning, rounds = self.tuning(state.rounds), state.rounds + count
        scores, residues = by_action(state.scores), by_action(state.residues)
        sums = state.references.copy(), state.totals.copy()
        level, *found = kernel(tuning, scores, residues, sums, state.level, *arguments)
        if self.decaying and not np.array_equal((moved := self.tuning(rounds))[0], tuning[0]):
            if self._log_action_prior is not None:
                more = self._prior_scores(moved[0]) - self._prior_scores(tuning[0])
                kernels.weighted_entropy.add(scores, residues, kernel_view(np.asarray(more)))
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
