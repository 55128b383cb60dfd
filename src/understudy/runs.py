"""Runs of a game, for every learner by the fastest path that it allows.

compiled    off-policy feedback does not depend on the learner, so against an oblivious adversary
            a run is: make the log a stretch at a time, let every learner go over the same one. An
            adversary that watches is met round by round, in a compiled loop.
stretches   the same for a learner of your own: through all its policies, (n, K) at a time.
referee     `game.play`, round by round, in Python: everything that is not compiled.

What comes out for a learner is a pure function of game, learner, seed and the number of the run:
not of the path's other learners, nor of the runs that are played together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from understudy import kernels
from understudy.adversaries import Compiled, Oblivious, Piecewise
from understudy.behaviors import choose, edges_of
from understudy.comparators import Comparator, Tally, Totals
from understudy.constraints import Array
from understudy.contexts import FiniteContexts
from understudy.errors import InvalidArgument
from understudy.estimators import CountedBehavior, KnownBehavior
from understudy.game import Dice, Game, play
from understudy.learners import (
    CoverageAdaptive,
    ExponentialWeights,
    LinProd,
    LinProdCompact,
    LinProdUnknown,
)
from understudy.protocols import Form, Learner
from understudy.schedules import Constant, HalfOf, HoeffdingWidth, Tabulated
from understudy.stretches import Stretch, stretches
from understudy.types import Integers, Log, cut, given, lasting, spread

__all__ = ["COMPILED", "REFEREE", "STRETCHES", "How", "Plan", "Rewards", "Totals", "play_runs"]

Rewards = Literal["mean", "realised"]
How = Literal["compiled", "stretches", "referee"]
Learners = Mapping[str, Learner[Any]]

COMPILED: How = "compiled"
STRETCHES: How = "stretches"
REFEREE: How = "referee"
LONG = 1 << 13  # rounds at a time where no table (n, K) is needed
ABREAST = 8  # runs in a compiled call
ATTENTIVE = 1 << 22  # rounds of each: a second or so, until Ctrl-C is heard
CALM = (
    Constant | Tabulated | HalfOf | HoeffdingWidth
)  # schedules of ours, which are called like functions
EARN_THEMSELVES = (CoverageAdaptive, ExponentialWeights, LinProd, LinProdCompact, LinProdUnknown)
NO_CONTEXTS: Integers = np.zeros(0, dtype=np.int64)
ONE_ROUND: Integers = np.ones(1, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Plan:
    """What every run of a simulation has in common."""

    game: Game
    learners: Learners
    comparators: Sequence[Comparator]
    rewards: Rewards
    seed: int

    @cached_property
    def players(self) -> dict[str, Player]:
        """Who plays for each learner."""
        return {name: _player(self, learner) for name, learner in self.learners.items()}

    @property
    def paths(self) -> dict[str, How]:
        """How each learner's runs are played."""
        return {name: PATHS[player] for name, player in self.players.items()}

    def played_by(self, player: Player) -> Learners:
        """The learners that a player plays for: they share the log."""
        own = (name for name, other in self.players.items() if other is player)
        return {name: self.learners[name] for name in own}

    @property
    def holds_no_lock(self) -> bool:
        """Whether all that runs is compiled, or NumPy, and ours: then threads can play at once."""
        game = self.game
        estimators = [getattr(one, "estimator", one) for one in self.learners.values()]
        parts: list[object] = [game.adversary, *self.learners.values(), *estimators]
        functions = [game.behavior, *self.comparators]
        functions += [getattr(estimator, "gamma", None) for estimator in estimators]
        return (
            set(self.paths.values()) == {COMPILED}
            and all(type(part).__module__.startswith("understudy.") for part in parts)
            and isinstance(game.contexts, FiniteContexts | None)
            and not any(callable(one) and not isinstance(one, CALM) for one in functions)
        )

    @property
    def draws_all_rewards(self) -> bool:
        """Whether the rewards of all actions are drawn in every round, not only the observed."""
        return self.rewards == "realised" and self.game.adversary.bernoulli


Player = Callable[[Plan, Learners, Sequence[int]], Iterator[dict[str, Totals]]]


def play_runs(plan: Plan, runs: Sequence[int]) -> list[dict[str, Totals]]:
    """All learners' totals in every run.

    >>> from understudy import adversaries, exp3
    >>> game = Game(adversaries.stationary([0.5, 0.9]), [0.5, 0.5], rounds=10)
    >>> plan = Plan(game, {"Exp3": exp3(game.behavior, eta=0.1)}, [1], "mean", seed=0)
    >>> [run["Exp3"].comparators.tolist() for run in play_runs(plan, [0, 1])]
    [[9.0], [9.0]]
    """
    totals: list[dict[str, Totals]] = [{} for _ in runs]
    for player in dict.fromkeys(plan.players.values()):
        for total, own in zip(totals, player(plan, plan.played_by(player), runs), strict=True):
            total.update(own)
    return totals


def _player(plan: Plan, learner: Learner[Any]) -> Player:
    """The fastest one that does what the learner, its estimator and the adversary say.

    Compiled code knows the classes of this library: a subclass that does something otherwise is
    asked itself.
    """
    adversary, plain = plan.game.adversary, plan.game.contexts is None
    ours = type(learner) is ExponentialWeights and plain and adversary.bernoulli
    if not isinstance(adversary, Oblivious):
        # Gains are made before rewards are known, so they must not read the rewards of the past.
        ready = ours and _forgets_rewards(learner.estimator)  # type: ignore[attr-defined] # ours
        return _meet_compiled if ready and _compiles_itself(adversary) else _meet
    if type(learner) not in EARN_THEMSELVES:
        return _go_over_policies
    timeless = ours and learner.reads_past is None  # type: ignore[attr-defined] # ours
    whole = timeless and type(adversary) is Piecewise and plan.rewards == "mean"
    return _play_whole_games if whole else _go_over_logs


def _forgets_rewards(estimator: object) -> bool:
    return any(
        isinstance(estimator, base) and type(estimator).gains is base.gains
        for base in (KnownBehavior, CountedBehavior)
    )


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
    plan: Plan, learners: Mapping[str, Any], runs: Sequence[int]
) -> Iterator[dict[str, Totals]]:
    """Means that stay for a while, gains that depend on nothing but the event: O(1) a round."""
    game = plan.game
    means, starts = (given(part) for part in game.pieces_between(0, game.rounds))
    tally = Tally(game, plan.comparators)
    tally.add(NO_CONTEXTS, game.behavior, means, lasting(starts, game.rounds))
    everywhere = tally.totals(earned=0.0)  # of behavior and comparators: the same in all runs
    edges = given(edges_of(game.behavior))
    world = edges, given(kernels.logs.guide_for(edges)), means, starts
    etas = np.array([learner.rate(0) for learner in learners.values()])
    gains = [_gains_of_every_event(learner, game.behavior) for learner in learners.values()]
    cast = given(etas), given(np.array(gains))
    generators = tuple(np.random.default_rng(0) for _ in range(2 * ABREAST))  # of any seed
    behaviors, observed = generators[:ABREAST], generators[ABREAST:]
    for first, count in cut(len(runs), ABREAST):
        for run, one, other in zip(runs[first:], behaviors, observed, strict=False):
            dice = Dice(plan.seed, run)
            dice.lend("behavior", one)
            dice.lend("observed", other)
        state = kernels.games.init(count, len(learners), game.n_actions)
        for start, rounds in cut(game.rounds, ATTENTIVE):
            kernels.games.play_abreast((behaviors, observed), world, start, rounds, cast, state)
        *_, earnings = state
        for earned in earnings.tolist():
            yield {
                name: replace(everywhere, learner=own)
                for name, own in zip(learners, earned, strict=True)
            }


def _gains_of_every_event(learner: ExponentialWeights, behavior: Array) -> Array:
    """The gain of each action if its reward is 0, or 1: (2, K)."""
    (played,) = np.nonzero(behavior)
    table = np.zeros((2, len(behavior)))
    for reward in (0, 1):
        log = Log._of(played, np.full(len(played), float(reward)), behavior[played], None)
        memory = learner.estimator.init()
        table[reward, played], _ = learner.gains(memory, 0, _shown(log, learner.form))
    return table


# A stretch of log at a time.


def _go_over_logs(
    plan: Plan, learners: Learners, runs: Sequence[int]
) -> Iterator[dict[str, Totals]]:
    """Learners that say themselves what they earn; long stretches if no table (n, K) is needed."""
    game = plan.game
    rows_last = type(game.adversary) is Piecewise and game.contexts is None
    long = rows_last and not plan.draws_all_rewards
    size = max(LONG, game.n_actions) if long else game.stretch

    def earn(learner: Any, state: Any, stretch: Stretch) -> tuple[Any, float]:
        log = _shown(stretch.log, learner.form)
        return learner.earn(state, log, stretch.rewards, stretch.starts)  # type: ignore[no-any-return] # it can

    return (_go_over_log(plan, learners, run, size, earn) for run in runs)


def _go_over_policies(
    plan: Plan, learners: Learners, runs: Sequence[int]
) -> Iterator[dict[str, Totals]]:
    """Any learner, through all its policies."""

    def earn(learner: Any, state: Any, stretch: Stretch) -> tuple[Any, float]:
        state, policies = learner.policies(state, _shown(stretch.log, learner.form))
        rewards = spread(stretch.rewards, stretch.starts, len(stretch.log))
        return state, float((policies * rewards).sum())

    return (_go_over_log(plan, learners, run, plan.game.stretch, earn) for run in runs)


def _go_over_log(
    plan: Plan,
    learners: Learners,
    run: int,
    size: int,
    earn: Callable[[Any, Any, Stretch], tuple[Any, float]],
) -> dict[str, Totals]:
    states = {name: learner.init() for name, learner in learners.items()}
    earned = dict.fromkeys(learners, 0.0)
    tally = Tally(plan.game, plan.comparators)
    dice = Dice(plan.seed, run)
    for stretch in stretches(plan.game, dice, size=size, all_rewards=plan.draws_all_rewards):
        for name, learner in learners.items():
            states[name], more = earn(learner, states[name], stretch)
            earned[name] += more
        rounds = lasting(stretch.starts, len(stretch.log))
        tally.add(stretch.contexts, stretch.behavior, stretch.rewards, rounds)
    return {name: tally.totals(earned[name]) for name in learners}


def _shown(log: Log, form: Form) -> Log:
    """What a learner is shown of the log: no more than its form asks for."""
    return log.visible(propensities=form.propensities, features=bool(form.features))


# Round by round, against an adversary that watches.


def _meet_compiled(
    plan: Plan, learners: Mapping[str, Any], runs: Sequence[int]
) -> Iterator[dict[str, Totals]]:
    """The referee's loop, compiled; only the behavior's actions are drawn outside of it."""
    for run in runs:
        yield {name: _meet_once(plan, learner, run) for name, learner in learners.items()}


def _meet_once(plan: Plan, learner: ExponentialWeights, run: int) -> Totals:
    game, dice, tally = plan.game, Dice(plan.seed, run), Tally(plan.game, plan.comparators)
    assert isinstance(game.adversary, Compiled)  # `_player` has seen to it
    referee, memory, parameters = game.adversary.compiled()
    stage = (
        given(game.behavior),
        tally.comparators.by_action,
        plan.rewards == "realised",
        dice.observed,
        dice.unobserved,
        dice.learner,
    )
    memory = np.array(memory, dtype=np.float64)  # a run's own, whoever else has seen it
    meet = partial(referee, (memory, given(parameters)), stage)
    state, earned = learner.init(), 0.0
    for _, rounds in cut(game.rounds, LONG):
        actions = choose(game.behavior, dice.behavior.random(rounds))
        state, (own, behaviors) = learner.meet(state, actions, game.behavior[actions], meet)
        if not math.isfinite(own):
            raise InvalidArgument(
                "adversary",
                game.adversary,
                "its compiled choose gave means outside of [0, 1]",
                "scale the means into [0, 1]",
            )
        earned += own
        tally.behavior += behaviors
    return tally.totals(earned)


def _meet(plan: Plan, learners: Learners, runs: Sequence[int]) -> Iterator[dict[str, Totals]]:
    """The readable path: the sums over the record of every round."""
    for run in runs:
        totals = {}
        for name, learner in learners.items():
            earned, tally = 0.0, Tally(plan.game, plan.comparators)
            for played in play(plan.game, learner, seed=plan.seed, run=run):
                counted = played.means if plan.rewards == "mean" else played.rewards
                earned += float(played.policy @ counted)
                context = np.asarray(played.context)[np.newaxis]
                tally.add(context, played.behavior, counted[np.newaxis], ONE_ROUND)
            totals[name] = tally.totals(earned)
        yield totals


PATHS: dict[Player, How] = {
    _play_whole_games: COMPILED,
    _go_over_logs: COMPILED,
    _meet_compiled: COMPILED,
    _go_over_policies: STRETCHES,
    _meet: REFEREE,
}
