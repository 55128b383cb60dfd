"""Many games: runs × learners, games × learners × seeds, in parallel, resumable."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from understudy.constraints import COUNT, SEED, Array, Constraint, Refused, constrained, integer
from understudy.errors import InvalidArgument
from understudy.protocols import Learner
from understudy.simulation.cache import ResultCache
from understudy.simulation.comparators import Comparator, Totals
from understudy.simulation.engine import COMPILED, How, Rewards, SimulationPlan, play_runs
from understudy.simulation.game import Game
from understudy.simulation.sweep import REWARDS, Cell, Learners, Played, Results, Sweep
from understudy.types import chunks

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Simulation", "closing", "progress_bar", "reporter", "simulate"]

WORK = 500_000  # rounds in a task: tens of milliseconds of compiled code
TASKS = 4  # at least, for every worker
ONLY_GAME = "game"


@dataclass(frozen=True, eq=False)
class Simulation:
    """What came out: arrays with one row per run.

    `regret[name]` is (runs, comparators); `reward[name]` and `behavior_reward[name]` are (runs,),
    the total reward of the learner and of the behavior policy it watched. `path[name]` says how
    it was played: "compiled", in "stretches" of log, or by the "referee" round by round.
    """

    regret: dict[str, Array]
    reward: dict[str, Array]
    behavior_reward: dict[str, Array]
    path: dict[str, How]


def _jobs(value: Any) -> int:
    jobs = int(AT_LEAST_MINUS_ONE.parse(value))
    if jobs == 0:
        raise Refused("it must be at least 1, or -1")
    return jobs


def _progress(value: Any) -> Any:
    if not callable(value) and not isinstance(value, bool):
        raise Refused("it must be True, False, or a function of the number of runs just done")
    return value


def _folder(value: Any) -> Path:
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise Refused("it is not the name of a folder")
    return Path(value)


AT_LEAST_MINUS_ONE = integer(-1, "pass the number of workers, or -1 for one per core")
PROGRESS = Constraint("pass True for a bar", _progress, ("yes", 1, None))
JOBS = Constraint(AT_LEAST_MINUS_ONE.remedy, _jobs, (0, *AT_LEAST_MINUS_ONE.wrong))
KEEP = Constraint("pass a folder for the finished cells", _folder, (1, "", True, [])).optional()


@overload
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
    keep: str | os.PathLike[str] | None = None,
) -> Simulation: ...


@overload
def simulate(
    game: Sweep,
    *,
    jobs: int = 1,
    progress: bool | Callable[[int], object] = False,
    keep: str | os.PathLike[str] | None = None,
) -> Results: ...


@constrained(runs=COUNT, seed=SEED, rewards=REWARDS, jobs=JOBS, progress=PROGRESS, keep=KEEP)
def simulate(
    game: Game | Sweep,
    learners: Learners | None = None,
    *,
    runs: int = 1,
    seed: int = 0,
    comparators: Sequence[Comparator] = (),
    rewards: Rewards = "mean",
    jobs: int = 1,
    progress: bool | Callable[[int], object] = False,
    keep: str | os.PathLike[str] | None = None,
) -> Simulation | Results:
    """Play a game many times, or a whole sweep, and record the regret of every learner.

    Workers are threads where all that runs is ours and compiled, and processes where functions of
    yours take part; joblib's `parallel_config` chooses otherwise, a Dask cluster for instance. The
    result depends on none of this.

    Args:
        game: what is played, or a `us.Sweep`, which says all of the next five itself.
        learners: by name.
        runs: how often; run i is a pure function of (seed, i).
        seed: of the random numbers.
        comparators: actions, policies (K,), context-dependent policies, or "best".
        rewards: "mean" counts conditional means of the rewards, "realised" the rewards drawn.
        jobs: workers.
        progress: True for a bar, or a function that is called with the number of runs just done.
        keep: a folder for finished cells (a learner in a game under a seed). Those that it holds
            are not played again, so a simulation that was stopped goes on where it was. A cell is
            recognized by its game, learner, seed, runs, comparators and rewards, and by the source
            of classes of your own among them (not by what they call: then use a new folder).

    >>> import understudy as us
    >>> pi_b = us.behaviors.interpolated(n_actions=10, alpha=1.0)
    >>> adversary = us.adversaries.switching(n_actions=10, rounds=1000)
    >>> game = us.Game(adversary=adversary, behavior=pi_b, rounds=1000)
    >>> learners = {"Exp3-IX": us.exp3_ix(pi_b, horizon=1000)}
    >>> result = us.simulate(game, learners, runs=5, seed=0, comparators=[0, "best"])
    >>> result.regret["Exp3-IX"].shape, result.path["Exp3-IX"]
    ((5, 2), 'compiled')
    """
    if isinstance(game, Sweep):
        _refuse_twice("learners", learners, learners is not None)
        _refuse_twice("runs", runs, runs != 1)
        _refuse_twice("seed", seed, seed != 0)
        _refuse_twice("comparators", comparators, not isinstance(comparators, tuple) or comparators)
        _refuse_twice("rewards", rewards, rewards != "mean")
        return _simulate(game, jobs, progress, keep)
    cast = {} if learners is None else learners
    sweep = Sweep({ONLY_GAME: game}, cast, [seed], runs, comparators, rewards)
    played = {cell.learner: one for cell, one in _simulate(sweep, jobs, progress, keep).items()}
    return Simulation(
        *(
            {name: getattr(one, what) for name, one in played.items()}
            for what in ("regret", "reward", "behavior_reward", "path")
        )
    )


def _refuse_twice(name: str, value: object, given: object) -> None:
    if given:
        raise InvalidArgument(name, value, "the sweep says it already", f"pass {name} to us.Sweep")


def _simulate(
    sweep: Sweep,
    jobs: int,
    progress: bool | Callable[[int], object],
    keep: str | os.PathLike[str] | None,
) -> Results:
    folder = None if keep is None else ResultCache(Path(keep), sweep)
    played: dict[Cell, Played] = {}
    missing = []
    for cells in sweep.plans():
        for cell, learner in cells.items():
            found = None if folder is None else folder.read(cell, learner)
            if found is not None:
                played[cell] = found
        left = {cell: learner for cell, learner in cells.items() if cell not in played}
        if left:
            missing.append(left)
    with reporter(progress, sweep.runs * len(missing)) as report:
        for finished, plan, totals in _play(sweep, missing, jobs, report):
            for cell, learner in finished.items():
                own = [run[cell.learner] for run in totals]
                played[cell] = Played.of(own, plan.paths[cell.learner])
                if folder is not None:
                    folder.write(cell, learner, played[cell])
    return Results({cell: played[cell] for cell in sweep.cells()})


def _play(
    sweep: Sweep,
    groups: Sequence[Mapping[Cell, Learner[Any]]],
    jobs: int,
    report: Callable[[int], object],
) -> Iterator[tuple[Mapping[Cell, Learner[Any]], SimulationPlan, list[dict[str, Totals]]]]:
    """Every group of cells as it is finished, how it was played, and the totals of all its runs."""
    import joblib  # noqa: PLC0415 - a tenth of a second that only simulations need

    if not groups:
        return
    plans = [sweep.plan(cells) for cells in groups]
    workers, runs = joblib.effective_n_jobs(jobs), sweep.runs * len(plans)
    share = runs if workers == 1 else -(-runs // (TASKS * workers))
    batches = [list(_batches(plan, sweep.runs, share)) for plan in plans]
    tasks = (
        joblib.delayed(play_runs)(plan, batch)
        for plan, own in zip(plans, batches, strict=True)
        for batch in own
    )
    threads = all(plan.holds_no_lock for plan in plans)
    parallel = joblib.Parallel(
        n_jobs=jobs, prefer="threads" if threads else None, return_as="generator"
    )
    with closing(parallel(tasks)) as results:
        for cells, plan, own in zip(groups, plans, batches, strict=True):
            totals: list[dict[str, Totals]] = []
            for batch in own:
                totals += next(results)
                report(len(batch))
            yield cells, plan, totals


@contextmanager
def closing(results: Any) -> Iterator[Any]:
    """Let the workers go, also when not all of their results are wanted any more.

    >>> with closing(i for i in range(3)) as results:
    ...     next(results)
    0
    """
    try:
        yield results
    finally:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*have been cancelled", category=UserWarning)
            results.close()


def _batches(plan: SimulationPlan, runs: int, share: int) -> Iterator[range]:
    """The runs of a task: many if they are short, but not more than a worker's share."""
    cheap = plan.game.contexts is None and set(plan.paths.values()) == {COMPILED}
    size = max(1, min(share, WORK // plan.game.rounds)) if cheap else 1
    return (range(first, first + count) for first, count in chunks(runs, size))


@contextmanager
def reporter(
    progress: bool | Callable[[int], object], runs: int
) -> Iterator[Callable[[int], object]]:
    """`progress` as a function that is told how many runs were just done.

    >>> with reporter(progress=print, runs=3) as report:
    ...     report(2)
    2
    """
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
    from rich.console import Console  # noqa: PLC0415 - imported when there is a bar to draw
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
