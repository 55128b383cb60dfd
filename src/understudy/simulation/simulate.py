"""`simulate` plays a game many times, or a whole sweep: in parallel, and resumable."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from understudy.constraints import (
    COUNT,
    SEED,
    Array,
    Constraint,
    ConstraintViolation,
    constrained,
    integer,
)
from understudy.errors import InvalidArgument
from understudy.simulation.engine import (
    COMPILED,
    Comparator,
    EnginePath,
    Learners,
    Rewards,
    SimulationPlan,
    Totals,
    play_runs,
)
from understudy.simulation.game import Game
from understudy.simulation.sweep import (
    REWARDS,
    CellResult,
    ResultCache,
    Results,
    Sweep,
    SweepCell,
)
from understudy.types import chunks

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

ROUNDS_PER_TASK = 500_000  # tens of milliseconds of compiled code: far more than a task costs
TASKS_PER_WORKER = 4  # at least, so that no worker is idle for long at the end
ONLY_GAME = "game"
Progress = bool | Callable[[int], object]
Folder = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Simulation:
    """Results of a simulated game, by learner: arrays with one row per run.

    `regret[name]` is (runs, comparators). `reward[name]` and `behavior_reward[name]` are (runs,):
    total rewards of the learner and of the behavior policy. `path[name]` is the engine's path:
    "compiled", "stretches" (the learner's policies over chunks of the log), or "referee" (round by
    round in Python).
    """

    regret: dict[str, Array]
    reward: dict[str, Array]
    behavior_reward: dict[str, Array]
    path: dict[str, EnginePath]


def _jobs(value: Any) -> int:
    jobs = int(AT_LEAST_MINUS_ONE.parse(value))
    if jobs == 0:
        raise ConstraintViolation("it must be at least 1, or -1")
    return jobs


def _progress(value: Any) -> Any:
    if not callable(value) and not isinstance(value, bool):
        raise ConstraintViolation(
            "it must be True, False, or a function of the number of runs just done"
        )
    return value


def _folder(value: Any) -> Path:
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise ConstraintViolation("it is not the name of a folder")
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
    progress: Progress = False,
    keep: Folder | None = None,
) -> Simulation: ...


@overload
def simulate(
    game: Sweep,
    *,
    jobs: int = 1,
    progress: Progress = False,
    keep: Folder | None = None,
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
    progress: Progress = False,
    keep: Folder | None = None,
) -> Simulation | Results:
    """Play a game many times, or a whole sweep, and record the regret of every learner.

    Workers are threads if everything that runs is compiled code of this library, else processes.
    joblib's `parallel_config` can choose otherwise, for instance a Dask cluster. The result does
    not depend on the workers.

    Args:
        game: a `us.Game`, or a `us.Sweep`, which contains the next five arguments.
        learners: by name.
        runs: number of runs; run i is a pure function of (seed, i).
        seed: of the random numbers.
        comparators: actions, policies (K,), context-dependent policies, or "best".
        rewards: "mean" counts conditional means of the rewards, "realised" the rewards drawn.
        jobs: number of workers, or -1 for one per core.
        progress: True for a bar, or a function that is called with the number of runs just done.
        keep: a folder for finished cells (a cell is a learner in a game under a seed). A cell that
            is in the folder is not played again, so a simulation that was stopped goes on where it
            was. The key of a cell covers its game, learner, seed, runs, comparators and rewards,
            and the source of your own classes among them. It does not cover functions that these
            classes call: if one changes, use a new folder.

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
        defaults = {"learners": None, "runs": 1, "seed": 0, "comparators": (), "rewards": "mean"}
        given = (learners, runs, seed, comparators, rewards)
        for (name, default), value in zip(defaults.items(), given, strict=True):
            if type(value) is not type(default) or value != default:
                reason, remedy = "the sweep says it already", f"pass {name} to us.Sweep"
                raise InvalidArgument(name, value, reason, remedy)
        return _simulate(game, jobs, progress, keep)
    by_name = {} if learners is None else learners
    sweep = Sweep({ONLY_GAME: game}, by_name, [seed], runs, comparators, rewards)
    results = _simulate(sweep, jobs, progress, keep)
    by_learner = {cell.learner: result for cell, result in results.items()}
    return Simulation(
        *(
            {name: getattr(result, field) for name, result in by_learner.items()}
            for field in ("regret", "reward", "behavior_reward", "path")
        )
    )


def _simulate(sweep: Sweep, jobs: int, progress: Progress, keep: Folder | None) -> Results:
    cache = None if keep is None else ResultCache(Path(keep), sweep)
    results = {} if cache is None else cache.read()
    groups = ([cell for cell in group if cell not in results] for group in sweep.groups())
    missing = [group for group in groups if group]
    with reporter(progress, sweep.runs * len(missing)) as report:
        for finished in _play(sweep, missing, jobs, report):
            results |= finished
            if cache is not None:
                cache.write(finished)
    return Results({cell: results[cell] for cell in sweep.cells()})


def _play(
    sweep: Sweep,
    groups: Sequence[Sequence[SweepCell]],
    jobs: int,
    report: Callable[[int], object],
) -> Iterator[dict[SweepCell, CellResult]]:
    """Play groups of cells, each of one game and seed; yield a group's results when it is done."""
    import joblib  # noqa: PLC0415 - its import takes 0.1 s, which only simulations need

    if not groups:
        return
    plans = [sweep.plan(cells) for cells in groups]
    workers, runs = joblib.effective_n_jobs(jobs), sweep.runs * len(plans)
    share = runs if workers == 1 else -(-runs // (TASKS_PER_WORKER * workers))
    batches = [list(_batches(plan, sweep.runs, share)) for plan in plans]
    tasks = ((plan, batch) for plan, own in zip(plans, batches, strict=True) for batch in own)
    threads = all(plan.holds_no_lock for plan in plans)
    with in_parallel(play_runs, tasks, jobs, threads=threads) as results:
        for cells, plan, own in zip(groups, plans, batches, strict=True):
            totals: list[dict[str, Totals]] = []
            for batch in own:
                totals += next(results)
                report(len(batch))
            yield {
                cell: CellResult.from_totals(
                    [run[cell.learner] for run in totals], plan.paths[cell.learner]
                )
                for cell in cells
            }


@contextmanager
def in_parallel(
    function: Callable[..., Any],
    tasks: Iterable[tuple[Any, ...]],
    jobs: int,
    *,
    threads: bool = False,
) -> Iterator[Iterator[Any]]:
    """The function's results for all tasks, in order; the workers stop at the end of the block."""
    import joblib  # noqa: PLC0415 - as above

    prefer = "threads" if threads else None
    parallel = joblib.Parallel(n_jobs=jobs, prefer=prefer, return_as="generator")
    results = parallel(joblib.delayed(function)(*task) for task in tasks)
    try:
        yield results
    finally:  # some results may be unread
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*have been cancelled", category=UserWarning)
            results.close()


def _batches(plan: SimulationPlan, runs: int, share: int) -> Iterator[range]:
    """The runs of each task: many if they are short, but at most a worker's share."""
    cheap = plan.game.contexts is None and set(plan.paths.values()) == {COMPILED}
    size = max(1, min(share, ROUNDS_PER_TASK // plan.game.rounds)) if cheap else 1
    return (range(first, first + count) for first, count in chunks(runs, size))


@contextmanager
def reporter(progress: Progress, runs: int) -> Iterator[Callable[[int], object]]:
    """`progress` as a function of the number of runs just done."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda done: done
    else:
        with progress_bar() as bar:
            task = bar.add_task("runs", total=runs)
            yield lambda done: bar.advance(task, done)


def progress_bar() -> Bar:
    """A progress bar on standard error, so that standard output can be piped."""
    from rich.console import Console  # noqa: PLC0415 - imported only if a bar is drawn
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
