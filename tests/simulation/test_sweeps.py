"""Sweeps as data: a table of cells, each of them what a simulation of it alone gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.refusals import assert_refused
from tests.support.sweep_bits import bits
from understudy.contexts import FiniteContexts
from understudy.learners import Learner
from understudy.simulation.sweep import CellResult, SweepCell

PI = np.array([0.4, 0.3, 0.2, 0.1])
THREE = np.array([0.5, 0.25, 0.25])
RUNS = 3
PHI = np.random.default_rng(1).uniform(0.1, 0.5, (2, 4, 2))
FINITE = FiniteContexts(table=PHI, probabilities=[0.6, 0.4])
THETA = us.adversaries.drifting([0.9, 0.1], [0.1, 0.9], rounds=40)


def switching(rounds: int = 50, behavior: Any = PI) -> us.Game:
    adversary = us.adversaries.switching(n_actions=len(behavior), rounds=rounds)
    return us.Game(adversary=adversary, behavior=behavior, rounds=rounds)


GAMES: dict[str, us.Game] = {
    "switching": switching(),
    "linear": us.Game(adversary=THETA, behavior=PI, rounds=40, contexts=FINITE),
    "hiding": us.Game(us.adversaries.hiding(n_actions=3), behavior=THREE, rounds=30),
}


def cast(game: us.Game) -> dict[str, Learner[Any]]:
    """Learners for the game's actions and rounds, one of them only where there are features."""
    horizon, K = game.rounds, game.n_actions
    learners: dict[str, Learner[Any]] = {
        "known": us.exp3_ix(game.behavior, horizon=horizon),
        "unknown": us.exp3_ix_unknown(K, horizon=horizon),
    }
    if isinstance(game.contexts, FiniteContexts):
        V = game.contexts.covariance(game.behavior)
        learners["linear"] = us.lin_prod(V, n_actions=K, horizon=horizon, kappa=200.0)
    return learners


def compared_with(game: us.Game) -> list[Any]:
    return ["best", game.n_actions - 1, game.behavior]


def everything(**changed: Any) -> us.Sweep:
    """Games of different actions, learners and comparators that depend on them."""
    return us.Sweep(
        **{
            "games": GAMES,
            "learners": cast,
            "seeds": [7, 0],
            "runs": RUNS,
            "comparators": compared_with,
            **changed,
        }
    )


def one(**changed: Any) -> us.Sweep:
    """One cell."""
    learners = {"known": us.exp3_ix(PI, eta=0.1)}
    return us.Sweep(
        **{
            "games": {"switching": switching()},
            "learners": learners,
            "runs": RUNS,
            "comparators": [0],
            **changed,
        }
    )


def test_the_cells_are_games_by_learners_by_seeds_in_order() -> None:
    """A game's seeds come one after the other, the learners of each in their order."""
    sweep = everything()
    assert sweep.cells() == [
        SweepCell(game, learner, seed)
        for game in ("switching", "linear", "hiding")
        for seed in (7, 0)
        for learner in ("known", "unknown", *(["linear"] if game == "linear" else []))
    ]


def test_old_names_of_a_sweep_warn_and_work() -> None:
    sweep = everything()
    with pytest.warns(DeprecationWarning, match="learners_by_game"):
        assert sweep.casts is sweep.learners_by_game
    with pytest.warns(DeprecationWarning, match="groups"):
        assert list(sweep.plans()) == list(sweep.groups())


def test_results_are_a_mapping_from_cells_in_the_order_of_the_sweep() -> None:
    sweep = everything()
    results = us.simulate(sweep)
    assert list(results) == sweep.cells()
    assert len(results) == 14
    assert isinstance(results["linear", "linear", 7], CellResult)
    assert results[SweepCell("hiding", "known", 0)] is results["hiding", "known", 0]
    assert ("linear", "linear", 7) in results
    for unknown in (("hiding", "linear", 7), ("hiding", "known", 1), ("", "known", 0)):
        assert unknown not in results
        with pytest.raises(KeyError, match=r"game: .*'hiding'.*; learner: .*; seed: \[7, 0\]"):
            results[unknown]


def test_what_is_not_the_shape_of_a_cell_is_not_in_the_results() -> None:
    """Like any mapping, for keys of any kind."""
    results = us.simulate(one())
    for other in ("switching", ("switching", "known"), 3):
        assert other not in results  # type: ignore[comparison-overlap] # the point


@pytest.mark.parametrize("rewards", ["mean", "realised"])
def test_every_cell_is_what_a_simulation_of_it_alone_gives(rewards: Any) -> None:
    """Bit for bit, with everybody or with one learner."""
    results = us.simulate(everything(rewards=rewards))
    options: Any = {"runs": RUNS, "rewards": rewards}
    for cell, played in results.items():
        game = GAMES[cell.game]
        options.update(seed=cell.seed, comparators=compared_with(game))
        for learners in (cast(game), {cell.learner: cast(game)[cell.learner]}):
            alone = us.simulate(game, learners, **options)
            for what in ("regret", "reward", "behavior_reward"):
                expected = getattr(alone, what)[cell.learner]
                assert getattr(played, what).tobytes() == expected.tobytes()
            assert played.path == alone.path[cell.learner]
        assert played.regret.shape == (RUNS, 3)


def test_learners_and_comparators_may_be_functions_of_the_game_or_not() -> None:
    constant = one(seeds=[3, 4])
    functions = one(seeds=[3, 4], learners=lambda _: constant.learners, comparators=lambda _: [0])
    assert bits(us.simulate(constant)) == bits(us.simulate(functions))


def test_rows_are_one_record_per_run_and_comparator() -> None:
    results = us.simulate(everything())
    rows = results.rows()
    assert len(rows) == 14 * RUNS * 3
    where = ("game", "learner", "seed", "run", "comparator")
    assert [tuple(row[name] for name in where) for row in rows] == [
        (*cell, run, other) for cell in results for run in range(RUNS) for other in range(3)
    ]
    for row in rows:
        played = results[row["game"], row["learner"], row["seed"]]
        assert row["regret"] == played.regret[row["run"], row["comparator"]]
        assert row["reward"] == played.reward[row["run"]]
        assert row["behavior_reward"] == played.behavior_reward[row["run"]]
        assert row["path"] == played.path
    assert json.loads(json.dumps(rows)) == rows


def test_without_comparators_the_rows_are_the_runs() -> None:
    results = us.simulate(one(comparators=()))
    assert [row["regret"] for row in results.rows()] == [None] * len(results.rows())
    assert {row["run"] for row in results.rows()} == set(range(results.rows()[-1]["run"] + 1))
    assert len(results.rows()) == sum(len(played.reward) for played in results.values())


TOLD_TWICE: dict[str, Any] = {
    "learners": {"known": us.exp3_ix(PI, eta=0.1)},
    "runs": 2,
    "seed": 1,
    "rewards": "realised",
    "comparators": [0],
}
REFUSED: dict[str, tuple[Callable[[], object], str, str]] = {
    "no games": (lambda: one(games={}), "games", 'pass {"name": us.Game(...)}'),
    "games without names": (lambda: one(games=[switching()]), "games", "by name"),
    "a name without a game": (lambda: one(games={"game": 3}), "game", "pass us.Game(...)"),
    "no seeds": (lambda: one(seeds=[]), "seeds", "pass [0, 1, …]"),
    "a seed alone": (lambda: one(seeds=3), "seeds", "pass [0, 1, …]"),
    "a seed twice": (lambda: one(seeds=[1, 2, 1]), "seeds", "twice"),
    "a negative seed": (lambda: one(seeds=[0, -1]), "seeds", "at least 0"),
    "no runs": (lambda: one(runs=0), "runs", "at least 1"),
    "rewards spelled otherwise": (lambda: one(rewards="realized"), "rewards", "'realised'"),
    "no learners": (lambda: one(learners={}), "learners", 'pass {"name": learner}'),
    "a function to no learners": (lambda: one(learners=lambda _: None), "learners", "function"),
    "a learner that fits one game of two": (
        lambda: one(games={"fits": switching(), "not": switching(50, THREE)}),
        "learner",
        "for 3 actions",
    ),
    "comparators as a word": (lambda: one(comparators="best"), "comparators", "pass [comparator"),
    "a function to a word": (lambda: one(comparators=lambda _: "best"), "comparators", "pass ["),
    "an action that one game has not": (
        lambda: everything(comparators=[3]),
        "comparator",
        "0 to 2",
    ),
    "a function without contexts": (lambda: one(comparators=[cast]), "comparators", "no contexts"),
    "a folder without a name": (lambda: us.simulate(one(), keep=""), "keep", "pass a folder"),
    "a number for a folder": (lambda: us.simulate(one(), keep=3), "keep", "pass a folder"),  # type: ignore[call-overload] # the point
    **{
        f"{name} twice": (
            lambda name=name: us.simulate(one(), **{name: TOLD_TWICE[name]}),  # type: ignore[misc] # mypy infers no default
            name,
            f"pass {name} to us.Sweep",
        )
        for name in TOLD_TWICE
    },
    "an array of comparators twice": (
        lambda: us.simulate(one(), comparators=PI),  # type: ignore[call-overload] # the point
        "comparators",
        "pass comparators to us.Sweep",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    assert_refused(*REFUSED[name])


def test_progress_counts_all_runs_once_for_the_learners_of_a_game_and_a_seed() -> None:
    done: list[int] = []
    us.simulate(everything(), progress=done.append)
    assert sum(done) == RUNS * 3 * 2


def test_the_bar_of_a_sweep_is_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    us.simulate(everything(), progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{RUNS * 3 * 2}/{RUNS * 3 * 2}" in shown.err
