"""One result, many ways: workers of every kind, tasks of every size, in memory that stays small."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
import pytest

import understudy as us
from tests.support.strategies import Array
from tests.support.sweep_bits import Bits, bits
from understudy import Round
from understudy.contexts import FiniteContexts
from understudy.learners import Learner

ROUNDS = 60
RUNS = 4
PI = np.array([0.4, 0.3, 0.2, 0.1])
TABLE = np.random.default_rng(0).random((ROUNDS, 4))
PHI = np.random.default_rng(1).uniform(0.1, 0.5, (3, 4, 2))
FINITE = FiniteContexts(table=PHI, probabilities=[0.5, 0.3, 0.2])
THETA = us.adversaries.drifting([0.9, 0.1], [0.1, 0.9], rounds=ROUNDS)


@dataclass(frozen=True)
class Turning:
    """An adversary in plain Python: the best action is as many further as the learner's was."""

    size: int = 4
    bernoulli: bool = True

    def init(self) -> int:
        return 0

    def choose(self, memory: int, t: int) -> Array:  # noqa: ARG002 - it remembers
        return np.roll(np.linspace(0.1, 0.9, 4), memory)

    def observe(self, memory: int, played: Round) -> int:
        return memory + played.action


def game(adversary: Any, **changed: Any) -> us.Game:
    return us.Game(**{"adversary": adversary, "behavior": PI, "rounds": ROUNDS, **changed})


GAMES: dict[str, us.Game] = {
    "switching": game(us.adversaries.switching(n_actions=4, rounds=ROUNDS)),
    "table": game(us.adversaries.table(TABLE)),
    "drifting": game(us.adversaries.drifting([0, 0.2, 0.4, 1], [1] * 4, rounds=ROUNDS)),
    "contexts": game(THETA, contexts=FINITE),
    "hiding": game(us.adversaries.hiding(n_actions=4)),
    "retaliating": game(us.adversaries.retaliating(n_actions=4)),
    "in Python": game(Turning()),
}
COMPILED = {name: world for name, world in GAMES.items() if name != "in Python"}
CLUSTERED = {name: GAMES[name] for name in ("switching", "contexts", "hiding", "in Python")}


def cast(world: us.Game) -> dict[str, Learner[Any]]:
    learners: dict[str, Learner[Any]] = {
        "known": us.exp3_ix(PI, horizon=ROUNDS),
        "unknown": us.exp3_ix_unknown(4, horizon=ROUNDS),
    }
    if isinstance(world.contexts, FiniteContexts):
        V = world.contexts.covariance(world.behavior)
        learners["linear"] = us.lin_prod(V, n_actions=4, horizon=ROUNDS, kappa=200.0)
    return learners


def sweep(games: dict[str, us.Game], rewards: Any = "mean") -> us.Sweep:
    return us.Sweep(games, cast, seeds=[5], runs=RUNS, comparators=[3, "best"], rewards=rewards)


def results_of(games: dict[str, us.Game], **options: Any) -> Bits:
    """The bits of all cells, with means and with realised rewards counted."""
    both = {}
    for rewards in ("mean", "realised"):
        for cell, found in bits(us.simulate(sweep(games, rewards), **options)).items():
            both[cell._replace(learner=f"{cell.learner}, {rewards}")] = found
    return both


@pytest.fixture(scope="module")
def alone() -> Bits:
    """What one worker gives."""
    return results_of(GAMES)


def in_(games: dict[str, us.Game], results: Bits) -> Bits:
    return {cell: found for cell, found in results.items() if cell.game in games}


def test_the_games_are_played_in_all_ways(alone: Bits) -> None:
    """So that nothing below is the same for being the same code."""
    assert {cell.game: str(found[-1]) for cell, found in alone.items()} == {
        **dict.fromkeys(COMPILED, "compiled"),
        "in Python": "referee",
    }
    assert len(alone) == 2 * (2 * len(GAMES) + 1)


def test_threads_give_the_same_bits(alone: Bits) -> None:
    """They are what compiled games get by themselves."""
    assert results_of(COMPILED, jobs=2) == in_(COMPILED, alone)


def test_processes_give_the_same_bits(alone: Bits) -> None:
    """They are what games in Python get by themselves, and those played with them."""
    assert results_of(GAMES, jobs=2) == alone


@pytest.mark.parametrize("backend", ["loky", "threading", "sequential"])
def test_the_backend_that_is_chosen_gives_the_same_bits(backend: str, alone: Bits) -> None:
    with joblib.parallel_config(backend=backend):
        assert results_of(GAMES, jobs=2) == alone


@pytest.mark.parametrize("games", [COMPILED, GAMES], ids=["threads", "processes"])
@pytest.mark.parametrize("work", [1, 2 * ROUNDS, 3 * ROUNDS, 10**9])
def test_it_does_not_matter_how_many_runs_are_in_a_task(
    work: int, games: dict[str, us.Game], alone: Bits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One, two, three and the one that is left, all; short games without contexts only."""
    monkeypatch.setattr(sys.modules["understudy.simulation.simulate"], "ROUNDS_PER_TASK", work)
    monkeypatch.setattr(sys.modules["understudy.simulation.simulate"], "TASKS_PER_WORKER", 1)
    done: list[int] = []
    assert results_of(games, jobs=2, progress=done.append) == in_(games, alone)
    first = {1: [1, 1, 1, 1], 2 * ROUNDS: [2, 2], 3 * ROUNDS: [3, 1], 10**9: [4]}[work]
    assert done[: len(first)] == first
    assert sum(done) == 2 * RUNS * len(games)


def too_late(*_: object) -> None:
    raise TimeoutError("the cluster does not answer")


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A Dask cluster of two processes on this computer, which answers within two minutes."""
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(120)
    distributed = pytest.importorskip("distributed")
    options: Any = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    with (
        distributed.LocalCluster(host="127.0.0.1", dashboard_address=None, **options) as local,
        distributed.Client(local) as client,
    ):
        yield client
        signal.alarm(0)


@pytest.mark.plain  # processes: the games themselves are played above
def test_a_dask_cluster_gives_the_same_bits(
    cluster: Any, alone: Bits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From two processes, neither of them this one, and both of them at work.

    Of each way to play, one game: a process of its own loads the compiled code of each.
    """
    from distributed import get_task_stream  # noqa: PLC0415 - a second that only this test needs

    monkeypatch.setattr(sys.modules["understudy.simulation.simulate"], "ROUNDS_PER_TASK", 1)
    with get_task_stream(client=cluster) as stream, joblib.parallel_config(backend="dask"):
        found = results_of(CLUSTERED, jobs=2)
    assert found == in_(CLUSTERED, alone)
    processes = cluster.run(os.getpid)
    assert len({*processes.values(), os.getpid()}) == 3
    at_work = {task["worker"] for task in stream.data if "play_runs" in str(task["key"])}
    assert at_work == set(processes)


class Plain:
    """A learner without `expected_reward`, which is therefore played through all its policies."""

    def __init__(self, learner: Learner[Any]) -> None:
        self.learner = learner

    def __getattr__(self, name: str) -> Any:
        if name in ("expected_reward", "meet", "learner"):
            raise AttributeError(name)
        return getattr(self.learner, name)


def test_learners_without_earn_give_the_same_bits_in_processes() -> None:
    """They go over stretches, which counts as not compiled."""
    learners = {"plain": Plain(us.exp3_ix(PI, horizon=ROUNDS))}
    one, two = (
        us.simulate(GAMES["drifting"], learners, runs=RUNS, comparators=[0], jobs=jobs)
        for jobs in (1, 2)
    )
    assert one.path == {"plain": "stretches"}
    assert one.regret["plain"].tobytes() == two.regret["plain"].tobytes()


def world(name: str, n_actions: int, rounds: int) -> tuple[us.Game, Learner[Any], Any]:
    """A game of that size for each way to play it: game, learner, how rewards are counted."""
    pi_b = us.behaviors.interpolated(n_actions=n_actions, alpha=0.5)
    adversary: Any = us.adversaries.switching(n_actions=n_actions, rounds=rounds)
    learner: Any = us.exp3_ix(pi_b, horizon=rounds)
    if name == "unknown":
        learner = us.exp3_ix_unknown(n_actions, horizon=rounds)
    if name == "stretches":
        learner = Plain(learner)
    if name == "drifting":
        adversary = us.adversaries.drifting([0.0] * n_actions, [1.0] * n_actions, rounds=rounds)
    if name == "hiding":
        adversary = us.adversaries.hiding(n_actions=n_actions)
    rewards = "realised" if name == "realised" else "mean"
    return us.Game(adversary, pi_b, rounds=rounds), learner, rewards


WAYS = ["whole games", "unknown", "realised", "drifting", "hiding", "stretches"]


def peak(name: str, n_actions: int, rounds: int) -> int:
    """The most memory, in bytes, that a simulation held at any time."""
    played, learner, rewards = world(name, n_actions, rounds)
    gc.collect()
    tracemalloc.start()
    try:
        us.simulate(played, {"one": learner}, comparators=[0, "best"], rewards=rewards)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.large
@pytest.mark.full  # half a million rounds, traced
@pytest.mark.parametrize("name", [name for name in WAYS if name != "hiding"])
def test_memory_does_not_grow_with_the_rounds(name: str) -> None:
    peak(name, 50, 1_000)  # what is made once: imports, compiled code
    short, long = peak(name, 50, 20_000), peak(name, 50, 500_000)
    assert long - short < 64 * 1024 + 0.1 * short


@pytest.mark.large
@pytest.mark.parametrize("name", WAYS)
def test_memory_is_proportional_to_the_actions(name: str) -> None:
    peak(name, 2_000, 30)
    few, many = peak(name, 2_000, 30), peak(name, 20_000, 30)
    assert many < 12 * few
