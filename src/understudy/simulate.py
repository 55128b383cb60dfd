"""Many games: runs × learners, in parallel, with the regret against any comparators.

Off-policy feedback does not depend on the learner. Against an oblivious adversary a run is
therefore: make the log, a stretch at a time, and let every learner go over the same log. Only an
adaptive adversary, which looks at the learner, needs the referee's loop, one learner at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import joblib
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from understudy.adversaries import Oblivious
from understudy.constraints import COUNT, SEED, Array, Constraint, Refused, constrained, integer
from understudy.errors import InvalidArgument
from understudy.game import Comparator, Comparators, Dice, Game, check_player, play
from understudy.protocols import Learner
from understudy.types import Log

__all__ = ["Simulation", "progress_bar", "simulate"]

Rewards = Literal["mean", "realised"]
Learners = Mapping[str, Learner[Any]]


@dataclass(frozen=True, eq=False)
class Simulation:
    """What came out: arrays with one row per run.

    `regret[name]` is (runs, comparators); `reward[name]` and `behavior_reward[name]` are (runs,),
    the total reward of the learner and of the behavior policy it watched. `path` says how it was
    played: in "stretches" of log, or by the "referee" round by round.
    """

    regret: dict[str, Array]
    reward: dict[str, Array]
    behavior_reward: dict[str, Array]
    path: str


def _rewards(value: Any) -> str:
    if not isinstance(value, str) or value not in ("mean", "realised"):
        raise Refused("there are two ways to count")
    return str(value)


def _jobs(value: Any) -> int:
    jobs = int(AT_LEAST_MINUS_ONE.parse(value))
    if jobs == 0:
        raise Refused("it must be at least 1, or -1")
    return jobs


def _progress(value: Any) -> Any:
    if not callable(value) and not isinstance(value, bool):
        raise Refused("it must be True, False, or a function of the number of runs just done")
    return value


AT_LEAST_MINUS_ONE = integer(-1, "pass the number of processes, or -1 for one per core")
PROGRESS = Constraint("pass True for a bar", _progress, ("yes", 1, None))
REWARDS = Constraint(
    "pass 'mean' (conditional means: same expectation, less noise) or 'realised' (the paper's)",
    _rewards,
    ("realized", "Mean", None, 1, True),
)
JOBS = Constraint(AT_LEAST_MINUS_ONE.remedy, _jobs, (0, *AT_LEAST_MINUS_ONE.wrong))


@constrained(runs=COUNT, seed=SEED, rewards=REWARDS, jobs=JOBS, progress=PROGRESS)
def simulate(
    game: Game,
    learners: Learners,
    *,
    runs: int = 1,
    seed: int = 0,
    comparators: Sequence[Comparator] = (),
    rewards: Rewards = "mean",
    jobs: int = 1,
    progress: bool | Callable[[int], object] = False,
) -> Simulation:
    """Play a game many times and record the regret of every learner.

    Args:
        game: what is played.
        learners: by name.
        runs: how often; run i is a pure function of (seed, i).
        seed: of the random numbers.
        comparators: actions, policies (K,), context-dependent policies, or "best".
        rewards: "mean" counts conditional means of the rewards, "realised" the rewards drawn.
        jobs: processes; the result does not depend on it.
        progress: True for a bar, or a function that is called with the number of runs just done.

    >>> import understudy as us
    >>> pi_b = us.behaviors.interpolated(n_actions=10, alpha=1.0)
    >>> adversary = us.adversaries.switching(n_actions=10, rounds=1000)
    >>> game = us.Game(adversary=adversary, behavior=pi_b, rounds=1000)
    >>> learners = {"Exp3-IX": us.exp3_ix(pi_b, horizon=1000)}
    >>> result = us.simulate(game, learners, runs=5, seed=0, comparators=[0, "best"])
    >>> result.regret["Exp3-IX"].shape, result.path
    ((5, 2), 'stretches')
    """
    check_cast(game, learners, comparators)
    oblivious = isinstance(game.adversary, Oblivious)
    play_run = _run_in_stretches if oblivious else _run_by_referee
    plan = Plan(game, learners, comparators, rewards, seed)
    tasks = (joblib.delayed(play_run)(plan, run) for run in range(runs))
    results = []
    with _reporter(progress, runs) as report:
        for result in joblib.Parallel(n_jobs=jobs, return_as="generator")(tasks):
            results.append(result)
            report(1)
    earned, by_behavior, by_comparators = (
        {name: np.array([totals[name] for totals in column]) for name in learners}
        for column in zip(*results, strict=True)
    )
    regret = {name: by_comparators[name] - earned[name][:, np.newaxis] for name in learners}
    return Simulation(regret, earned, by_behavior, "stretches" if oblivious else "referee")


@dataclass(frozen=True, eq=False)
class Plan:
    """What every run of a simulation has in common."""

    game: Game
    learners: Learners
    comparators: Sequence[Comparator]
    rewards: Rewards
    seed: int


Run = tuple[dict[str, float], dict[str, float], dict[str, Array]]


def _run_in_stretches(plan: Plan, run: int) -> Run:
    """The reward of the learners, of the behavior, and of the comparators in one run."""
    game, learners = plan.game, plan.learners
    states = {name: learner.init() for name, learner in learners.items()}
    earned = dict.fromkeys(learners, 0.0)
    by_behavior = 0.0
    tally = Comparators(game, plan.comparators)
    dice = Dice(plan.seed, run)
    for log, contexts, behavior, counted in _stretches(game, plan.rewards, dice):
        for name, learner in learners.items():
            form = learner.form
            visible = log.visible(propensities=form.propensities, features=bool(form.features))
            states[name], policies = learner.policies(states[name], visible)
            earned[name] += float((policies * counted).sum())
        by_behavior += float((behavior * counted).sum())
        tally.add(contexts, counted)
    return earned, dict.fromkeys(learners, by_behavior), dict.fromkeys(learners, tally.totals())


def _stretches(
    game: Game, rewards: Rewards, dice: Dice
) -> Iterator[tuple[Log, NDArray[Any], Array, Array]]:
    """The game's log a stretch at a time, with contexts, π_B, and the rewards that count."""
    for start in range(0, game.rounds, game.stretch):
        stop = min(start + game.stretch, game.rounds)
        contexts, features, behavior = dice.draw_contexts(game, stop - start)
        means = game.means_between(start, stop, features)
        actions = dice.draw_behavior_actions(behavior)
        observed = dice.draw_observed_rewards(game, means, actions)
        propensities = behavior[np.arange(len(actions)), actions]
        log = Log(actions, observed, propensities, features)
        counted = means if rewards == "mean" else dice.draw_rewards(game, means, actions, observed)
        yield log, contexts, behavior, counted


def _run_by_referee(plan: Plan, run: int) -> Run:
    """The same as `_run_in_stretches` for an adversary that watches: each learner on its own."""
    earned, by_behavior, by_comparators = {}, {}, {}
    for name, learner in plan.learners.items():
        own = behaviors = 0.0
        tally = Comparators(plan.game, plan.comparators)
        for played in play(plan.game, learner, seed=plan.seed, run=run):
            counted = played.means if plan.rewards == "mean" else played.rewards
            own += float(played.policy @ counted)
            behaviors += float(played.behavior @ counted)
            tally.add(np.asarray(played.context)[np.newaxis], counted[np.newaxis])
        earned[name], by_behavior[name], by_comparators[name] = own, behaviors, tally.totals()
    return earned, by_behavior, by_comparators


def check_cast(game: Game, learners: Learners, comparators: Sequence[Comparator]) -> None:
    """Say what does not fit before any process starts."""
    if not isinstance(learners, Mapping) or not learners:
        raise InvalidArgument(
            "learners", learners, "there must be at least one, by name", 'pass {"name": learner}'
        )
    for learner in learners.values():
        check_player(game, learner)
    if isinstance(comparators, str) or not isinstance(comparators, Sequence):
        raise InvalidArgument(
            "comparators", comparators, "it is not a list of comparators", "pass [comparator, …]"
        )
    Comparators(game, comparators)


@contextmanager
def _reporter(
    progress: bool | Callable[[int], object], runs: int
) -> Iterator[Callable[[int], object]]:
    """`progress` as a function that is told how many runs were just done."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda done: done
    else:
        with progress_bar() as bar:
            task = bar.add_task("runs", total=runs)
            yield lambda done: bar.advance(task, done)


def progress_bar() -> Progress:
    """The bar of this library, on standard error so that output can be piped.

    >>> progress_bar().finished
    True
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
