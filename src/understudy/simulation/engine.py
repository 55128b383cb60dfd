"""The engine: plays the runs of a game, for every learner by the fastest path that it has.

It adds up the rewards of the learner, of the behavior and of the comparators of a regret. Paths:

compiled    off-policy feedback does not depend on the learner, so against an oblivious adversary
            the engine makes the log a chunk at a time, and every learner reads the same chunk. An
            adaptive adversary is played round by round, in a compiled loop.
stretches   the same for a learner of your own: through all its policies, (n, K) at a time.
referee     `game.play`, round by round, in Python: everything that is not compiled.

The result of a learner is a pure function of game, learner, seed and the number of the run: it does
not depend on other learners, nor on the runs that are played together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy import kernels
from understudy.behaviors import cdf, choose
from understudy.constraints import Array, dimensions_of
from understudy.contexts import ContextPolicy, FiniteContexts
from understudy.contexts import rows as policy_rows
from understudy.errors import InvalidArgument
from understudy.learners import ExponentialWeights
from understudy.protocols import CompiledPath, EventSpec, Learner
from understudy.schedules import Constant, HalfOf, HoeffdingWidth, Tabulated
from understudy.simulation.adversaries import Compiled, Oblivious, Piecewise
from understudy.simulation.game import Game, LogChunk, RandomStreams, log_chunks, play
from understudy.theory.coverage_ratio import as_policy
from understudy.types import Integers, Log, chunks, durations, expand, kernel_view

BEST = "best"  # the best fixed action in hindsight, which may differ from run to run
Comparator = int | ArrayLike | ContextPolicy | str
Rewards = Literal["mean", "realised"]
EnginePath = Literal["compiled", "stretches", "referee"]
Learners = Mapping[str, Learner[Any]]

COMPILED: EnginePath = "compiled"
STRETCHES: EnginePath = "stretches"
REFEREE: EnginePath = "referee"
ROUNDS_WITHOUT_TABLE = 1 << 13  # at a time where no table (n, K) is needed: they fit the cache
RUNS_PER_CALL = 8  # enough that memory of one run is fetched while another computes
ROUNDS_PER_CALL = 1 << 22  # of each run: a second or so, after which Ctrl-C is noticed
OWN_SCHEDULES = Constant | Tabulated | HalfOf | HoeffdingWidth  # callable, yet no user's function
NO_CONTEXTS: Integers = np.zeros(0, dtype=np.int64)
ONE_ROUND: Integers = np.ones(1, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Totals:
    """Total rewards of one run: the learner's, the behavior's and each comparator's."""

    learner: float
    behavior: float
    comparators: Array


class ComparatorTotals:
    """Running totals of the behavior and of the comparators (actions, policies or `BEST`)."""

    def __init__(self, game: Game, comparators: Sequence[Comparator]) -> None:
        self.game = game
        self.fixed: dict[int, Array] = {}
        self.contextual: dict[int, ContextPolicy] = {}
        for i, comparator in enumerate(comparators):
            self._add_comparator(i, comparator)
        self.behavior = 0.0
        self.by_action = np.zeros(game.n_actions)
        self.by_comparator = np.zeros(len(comparators))  # filled in for the contextual ones alone

    def add(
        self, contexts: NDArray[Any], behavior: Array, rewards: Array, rounds: Integers
    ) -> None:
        """Add a chunk. Row i of the rewards counts `rounds[i]` times; once if it has a context."""
        weights = rounds[:, np.newaxis]
        self.behavior += float((behavior * rewards * weights).sum())
        self.by_action += (rewards * weights).sum(axis=0)  # not `@`: BLAS may reorder sums
        for i, comparator in self.contextual.items():
            policy = policy_rows(comparator, contexts, self.game.n_actions, "comparators")
            self.by_comparator[i] += (policy * rewards).sum()

    def totals(self, learner: float) -> Totals:
        """The totals so far, beside the total reward of a learner."""
        best = self.by_action.max()
        comparators = np.full(len(self.by_comparator), best)  # of BEST; others overwrite it
        for i, policy in self.fixed.items():
            comparators[i] = (policy * self.by_action).sum()
        for i in self.contextual:
            comparators[i] = self.by_comparator[i]
        return Totals(float(learner), self.behavior, comparators)

    def _add_comparator(self, i: int, comparator: Comparator) -> None:
        if isinstance(comparator, str):
            if comparator != BEST:
                raise InvalidArgument(
                    "comparators",
                    comparator,
                    f"the only one with a name is {BEST!r}, the best fixed action in hindsight",
                    f"pass {BEST!r}, an action, or a policy",
                )
        elif callable(comparator) or dimensions_of(comparator) > 1:
            if self.game.contexts is None:
                raise InvalidArgument(
                    "comparators", comparator, "the game has no contexts", "pass K probabilities"
                )
            self.contextual[i] = comparator
        else:
            self.fixed[i] = as_policy(comparator, self.game.n_actions)


@dataclass(frozen=True, eq=False)
class SimulationPlan:
    """A game, its learners and all else that the runs of a simulation share."""

    game: Game
    learners: Learners
    comparators: Sequence[Comparator]
    rewards: Rewards
    seed: int

    @cached_property
    def players(self) -> dict[str, Player]:
        """The player of each learner."""
        return {name: _fastest_player(self, learner) for name, learner in self.learners.items()}

    @property
    def paths(self) -> dict[str, EnginePath]:
        """The path of each learner's runs."""
        return {name: PATHS[player] for name, player in self.players.items()}

    @property
    def holds_no_lock(self) -> bool:
        """Whether a run is compiled code of this library alone: then threads can play at once."""
        game = self.game
        estimators = [getattr(one, "estimator", one) for one in self.learners.values()]
        parts: list[object] = [game.adversary, *self.learners.values(), *estimators]
        functions = [game.behavior, *self.comparators]
        functions += [getattr(estimator, "gamma", None) for estimator in estimators]
        return (
            set(self.paths.values()) == {COMPILED}
            and all(type(part).__module__.startswith("understudy.") for part in parts)
            and isinstance(game.contexts, FiniteContexts | None)
            and not any(callable(one) and not isinstance(one, OWN_SCHEDULES) for one in functions)
        )

    @property
    def draws_all_rewards(self) -> bool:
        """Whether the rewards of all actions are drawn in every round, not only the observed."""
        return self.rewards == "realised" and self.game.adversary.bernoulli


Player = Callable[[SimulationPlan, Learners, Sequence[int]], Iterator[dict[str, Totals]]]


def play_runs(plan: SimulationPlan, runs: Sequence[int]) -> list[dict[str, Totals]]:
    """All learners' totals in every run."""
    totals: list[dict[str, Totals]] = [{} for _ in runs]
    for player in dict.fromkeys(plan.players.values()):
        learners = {
            name: learner for name, learner in plan.learners.items() if plan.players[name] is player
        }
        for total, more in zip(totals, player(plan, learners, runs), strict=True):
            total.update(more)
    return totals


def _fastest_player(plan: SimulationPlan, learner: Learner[Any]) -> Player:
    """The fastest player that the learner, the adversary and the way to count rewards allow."""
    adversary, paths = plan.game.adversary, _compiled_paths(learner)
    binary = plan.game.contexts is None and adversary.bernoulli
    if not isinstance(adversary, Oblivious):
        ready = binary and CompiledPath.ADAPTIVE in paths and _compiles_itself(adversary)
        return _play_adaptive_compiled if ready else _play_referee
    if CompiledPath.LOGS not in paths:
        return _play_policies
    piecewise = binary and _is_piecewise(plan.game) and plan.rewards == "mean"
    return _play_whole_games if piecewise and CompiledPath.WHOLE_GAMES in paths else _play_logs


def _compiled_paths(learner: Learner[Any]) -> CompiledPath:
    """The paths that the learner declares; none if it is no subclass of `Learner`."""
    known = hasattr(type(learner), "compiled_paths")
    return learner.compiled_paths if known else CompiledPath.NONE


def _is_piecewise(game: Game) -> bool:
    """Whether means are constant in segments, without contexts; a subclass may vary them."""
    return type(game.adversary) is Piecewise and game.contexts is None


def _compiles_itself(adversary: object) -> bool:
    """Whether `compiled` was written for this class, not for one whose methods it overrides."""

    def defined_in(name: str) -> type:
        return next(cls for cls in type(adversary).__mro__ if name in vars(cls))

    if not isinstance(adversary, Compiled):
        return False
    own = defined_in("compiled")
    return all(issubclass(own, defined_in(name)) for name in ("init", "choose", "observe"))


# Whole games in one compiled call each.


def _play_whole_games(
    plan: SimulationPlan, learners: Mapping[str, Any], runs: Sequence[int]
) -> Iterator[dict[str, Totals]]:
    """Piecewise constant means, gains that depend on nothing but the event: O(1) a round."""
    game = plan.game
    means, starts = (kernel_view(part) for part in game.pieces_between(0, game.rounds))
    comparator_totals = ComparatorTotals(game, plan.comparators)
    comparator_totals.add(NO_CONTEXTS, game.behavior, means, durations(starts, game.rounds))
    totals_of_all_runs = comparator_totals.totals(learner=0.0)  # all but the learner's
    edges = kernel_view(cdf(game.behavior))
    world = edges, kernel_view(kernels.games.guide_table(edges)), means, starts
    etas = np.array([learner.rate(0) for learner in learners.values()])
    gains = [_gains_of_every_event(learner, game.behavior) for learner in learners.values()]
    rates_and_gains = kernel_view(etas), kernel_view(np.array(gains))
    # Generators of any seed: each run restarts its two.
    behavior = tuple(np.random.default_rng(0) for _ in range(RUNS_PER_CALL))
    observed = tuple(np.random.default_rng(0) for _ in range(RUNS_PER_CALL))
    for first, count in chunks(len(runs), RUNS_PER_CALL):
        for run, of_behavior, of_observed in zip(runs[first:], behavior, observed, strict=False):
            streams = RandomStreams(plan.seed, run)
            streams.restart(of_behavior, "behavior")
            streams.restart(of_observed, "observed")
        state = kernels.games.init(count, len(learners), game.n_actions)
        for start, rounds in chunks(game.rounds, ROUNDS_PER_CALL):
            kernels.games.play_runs(
                (behavior, observed), world, start, rounds, rates_and_gains, state
            )
        *_, earnings = state
        for earned in earnings.tolist():
            yield {
                name: replace(totals_of_all_runs, learner=own)
                for name, own in zip(learners, earned, strict=True)
            }


def _gains_of_every_event(learner: ExponentialWeights, behavior: Array) -> Array:
    """The gain of each action if its reward is 0, or 1: (2, K)."""
    (played,) = np.nonzero(behavior)
    table = np.zeros((2, len(behavior)))
    for reward in (0, 1):
        log = Log._of(played, np.full(len(played), float(reward)), behavior[played], None)
        memory = learner.estimator.init()
        table[reward, played], _ = learner.gains(memory, 0, _visible(log, learner.spec))
    return table


# A chunk of log at a time.


def _play_logs(
    plan: SimulationPlan, learners: Learners, runs: Sequence[int]
) -> Iterator[dict[str, Totals]]:
    """Learners with a compiled `expected_reward`; longer chunks if no table (n, K) is needed."""
    game = plan.game
    no_table = _is_piecewise(game) and not plan.draws_all_rewards
    size = max(ROUNDS_WITHOUT_TABLE, game.n_actions) if no_table else game.chunk_size

    def expected_reward(learner: Any, state: Any, chunk: LogChunk) -> tuple[Any, float]:
        log = _visible(chunk.log, learner.spec)
        return learner.expected_reward(state, log, chunk.rewards, chunk.starts)  # type: ignore[no-any-return] # it can

    return (_play_log(plan, learners, run, size, expected_reward) for run in runs)


def _play_policies(
    plan: SimulationPlan, learners: Learners, runs: Sequence[int]
) -> Iterator[dict[str, Totals]]:
    """Any learner, through all its policies."""

    def expected_reward(learner: Any, state: Any, chunk: LogChunk) -> tuple[Any, float]:
        state, policies = learner.policies(state, _visible(chunk.log, learner.spec))
        rewards = expand(chunk.rewards, chunk.starts, len(chunk.log))
        return state, float((policies * rewards).sum())

    return (_play_log(plan, learners, run, plan.game.chunk_size, expected_reward) for run in runs)


def _play_log(
    plan: SimulationPlan,
    learners: Learners,
    run: int,
    size: int,
    expected_reward: Callable[[Any, Any, LogChunk], tuple[Any, float]],
) -> dict[str, Totals]:
    states = {name: learner.init() for name, learner in learners.items()}
    earned = dict.fromkeys(learners, 0.0)
    comparator_totals = ComparatorTotals(plan.game, plan.comparators)
    streams = RandomStreams(plan.seed, run)
    for chunk in log_chunks(plan.game, streams, size=size, all_rewards=plan.draws_all_rewards):
        for name, learner in learners.items():
            states[name], more = expected_reward(learner, states[name], chunk)
            earned[name] += more
        rounds = durations(chunk.starts, len(chunk.log))
        comparator_totals.add(chunk.contexts, chunk.behavior, chunk.rewards, rounds)
    return {name: comparator_totals.totals(earned[name]) for name in learners}


def _visible(log: Log, spec: EventSpec) -> Log:
    """The columns of the log that the learner's spec asks for."""
    return log.visible(propensities=spec.propensities, features=bool(spec.features))


# Round by round, against an adaptive adversary.


def _play_adaptive_compiled(
    plan: SimulationPlan, learners: Mapping[str, Any], runs: Sequence[int]
) -> Iterator[dict[str, Totals]]:
    """The referee's loop, compiled; only the behavior's actions are drawn outside of it."""
    for run in runs:
        yield {name: _play_adaptive_run(plan, learner, run) for name, learner in learners.items()}


def _play_adaptive_run(plan: SimulationPlan, learner: ExponentialWeights, run: int) -> Totals:
    game, streams = plan.game, RandomStreams(plan.seed, run)
    comparator_totals = ComparatorTotals(game, plan.comparators)
    assert isinstance(game.adversary, Compiled)  # as `_fastest_player` checked
    referee, memory, parameters = game.adversary.compiled()
    referee_arguments = (
        kernel_view(game.behavior),
        comparator_totals.by_action,
        plan.rewards == "realised",
        streams.observed,
        streams.unobserved,
        streams.learner,
    )
    memory = np.array(memory, dtype=np.float64)  # a copy for this run: others share the array
    play_rounds = partial(referee, (memory, kernel_view(parameters)), referee_arguments)
    state, earned = learner.init(), 0.0
    for _, rounds in chunks(game.rounds, ROUNDS_WITHOUT_TABLE):
        actions = choose(game.behavior, streams.behavior.random(rounds))
        state, (own, behaviors) = learner.play_adaptive(
            state, actions, game.behavior[actions], play_rounds
        )
        if not math.isfinite(own):
            raise InvalidArgument(
                "adversary",
                game.adversary,
                "its compiled choose gave means outside of [0, 1]",
                "scale the means into [0, 1]",
            )
        earned += own
        comparator_totals.behavior += behaviors
    return comparator_totals.totals(earned)


def _play_referee(
    plan: SimulationPlan, learners: Learners, runs: Sequence[int]
) -> Iterator[dict[str, Totals]]:
    """`game.play`, and sums over its record of every round."""
    for run in runs:
        totals = {}
        for name, learner in learners.items():
            earned, comparator_totals = 0.0, ComparatorTotals(plan.game, plan.comparators)
            for played in play(plan.game, learner, seed=plan.seed, run=run):
                counted = played.means if plan.rewards == "mean" else played.rewards
                earned += float(played.policy @ counted)
                context = np.asarray(played.context)[np.newaxis]
                comparator_totals.add(context, played.behavior, counted[np.newaxis], ONE_ROUND)
            totals[name] = comparator_totals.totals(earned)
        yield totals


PATHS: dict[Player, EnginePath] = {
    _play_whole_games: COMPILED,
    _play_logs: COMPILED,
    _play_adaptive_compiled: COMPILED,
    _play_policies: STRETCHES,
    _play_referee: REFEREE,
}
