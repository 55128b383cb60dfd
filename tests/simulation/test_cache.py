"""Finished cells in a folder: read and not played again, and told from what they are not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.saved_values import snapshot_text
from tests.support.sweep_bits import bits
from understudy.contexts import ContinuousContexts, FiniteContexts
from understudy.errors import InvalidArgument, NotSaveable
from understudy.simulation.engine import SimulationPlan
from understudy.simulation.sweep import SweepCell

PI = np.array([0.4, 0.3, 0.2, 0.1])
RUNS = 3
LEARNERS = {"known": us.exp3_ix(PI, eta=0.1), "prod": us.prod(PI, eta=0.1)}
PHI = np.random.default_rng(1).uniform(0.1, 0.5, (2, 4, 2))
THETA = us.adversaries.drifting([0.9, 0.1], [0.1, 0.9], rounds=40)
CONTINUOUS = ContinuousContexts(
    sample=lambda rng, n: rng.random(n),
    feature_map=lambda x: np.stack([np.stack([x, 1 - x], axis=1)] * 4, axis=1),
    n_actions=4,
    dimension=2,
)


def tilted(contexts: Any) -> Any:
    """A policy that is a function of contexts."""
    return np.tile(PI, (len(contexts), 1))


def switching(rounds: int = 50, **changed: Any) -> us.Game:
    adversary = us.adversaries.switching(n_actions=4, rounds=50)
    return us.Game(**{"adversary": adversary, "behavior": PI, "rounds": rounds, **changed})


def linear(contexts: Any = CONTINUOUS, behavior: Any = PI) -> us.Game:
    return us.Game(adversary=THETA, behavior=behavior, rounds=40, contexts=contexts)


def sweep(**changed: Any) -> us.Sweep:
    """Two cells of one game and one seed, unless it is changed."""
    return us.Sweep(
        **{
            "games": {"switching": switching()},
            "learners": LEARNERS,
            "runs": RUNS,
            "comparators": [0, PI],
            **changed,
        }
    )


@dataclass
class Calls:
    """What was played, and not read."""

    plans: list[SimulationPlan] = field(default_factory=list)

    def cells(self) -> list[tuple[int, str, int]]:
        """Rounds of the game, learner and seed, of every cell that was played."""
        played = ((p.game.rounds, name, p.seed) for p in self.plans for name in p.learners)
        return list(dict.fromkeys(played))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Notes what simulations play from here on, in this process."""
    module, noted = sys.modules["understudy.simulation.simulate"], Calls()
    play_runs = module.__dict__["play_runs"]

    def note(plan: SimulationPlan, runs: Sequence[int]) -> Any:
        noted.plans.append(plan)
        return play_runs(plan, runs)

    monkeypatch.setattr(module, "play_runs", note)
    return noted


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_finished_cells_are_kept_in_readable_files(tmp_path: Path) -> None:
    """One each, which says the cell and what came out of it; nothing else is left in the folder."""
    folder = tmp_path / "new" / "folder"
    results = us.simulate(sweep(seeds=[3, 0]), keep=folder)
    records = [json.loads(text) for text in files(folder).values()]
    assert all(name.endswith(".json") for name in files(folder))
    assert len(records) == len(results) == 4
    assert {SweepCell(**record["cell"]) for record in records} == set(results)
    for record in records:
        played = results[SweepCell(**record["cell"])]
        assert (record["format"], record["played"]["path"]) == ("understudy", "compiled")
        assert record["played"]["regret"]["values"] == played.regret.ravel().tolist()
        assert record["played"]["regret"]["shape"] == [RUNS, 2]


GAMES = {
    "switching": switching(),
    "linear": linear(FiniteContexts(table=PHI, probabilities=[0.6, 0.4])),
    "table": us.Game(us.adversaries.table(np.random.default_rng(0).random((20, 4))), PI, rounds=20),
    "hiding": us.Game(us.adversaries.hiding(n_actions=4), PI, rounds=30),
}


def test_kept_cells_are_read_bit_for_bit_and_not_played_again(tmp_path: Path, calls: Calls) -> None:
    learners = {"known": us.exp3_ix(PI, eta=0.1), "unknown": us.exp3_ix_unknown(4, horizon=50)}
    all_games = sweep(games=GAMES, learners=learners, seeds=[3, 0], comparators=["best", 1, PI])
    first = us.simulate(all_games, keep=tmp_path)
    assert len(calls.cells()) == len(first) == 16
    kept = files(tmp_path)
    calls.plans.clear()
    again = us.simulate(all_games, keep=str(tmp_path))
    assert calls.plans == []
    assert bits(again) == bits(first) == bits(us.simulate(all_games))
    assert list(again) == all_games.cells()
    assert files(tmp_path) == kept


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_is_kept_as_soon_as_it_is_finished(jobs: int, tmp_path: Path) -> None:
    """When the runs of the next game and seed are done, it is on disk."""
    found: list[int] = []

    def count(_: int) -> None:
        found.append(len(files(tmp_path)))

    us.simulate(sweep(seeds=range(4)), keep=tmp_path, progress=count, jobs=jobs)
    assert sorted(set(found)) == [0, 2, 4, 6]
    assert found == sorted(found)


def test_a_simulation_of_one_game_keeps_the_same_cells(tmp_path: Path, calls: Calls) -> None:
    options: Any = {"runs": RUNS, "comparators": [0, PI], "keep": tmp_path}
    first = us.simulate(switching(), LEARNERS, **options)
    calls.plans.clear()
    again, results = (
        us.simulate(switching(), LEARNERS, **options),
        us.simulate(sweep(), keep=tmp_path),
    )
    assert calls.plans == []
    assert again.path == first.path
    for name in LEARNERS:
        assert again.regret[name].tobytes() == first.regret[name].tobytes()
        assert results["switching", name, 0].regret.tobytes() == first.regret[name].tobytes()


MORE: dict[str, tuple[dict[str, Any], list[tuple[int, str, int]]]] = {
    "a learner": ({"learners": {"new": us.exp3(PI, eta=0.2), **LEARNERS}}, [(50, "new", 0)]),
    "a seed": ({"seeds": [9, 0]}, [(50, "known", 9), (50, "prod", 9)]),
    "a game": (
        {"games": {"shorter": switching(40), "switching": switching()}},
        [(40, "known", 0), (40, "prod", 0)],
    ),
    "names": (
        {
            "games": {"γ": switching()},
            "learners": {"p": us.prod(PI, eta=0.1), "k": us.exp3_ix(list(PI), eta=0.1)},
        },
        [],
    ),
    "spelling": ({"comparators": (0, list(PI)), "seeds": range(1), "runs": np.int64(RUNS)}, []),
}


@pytest.mark.parametrize("name", MORE)
def test_what_is_added_is_all_that_is_played(name: str, tmp_path: Path, calls: Calls) -> None:
    """A cell is what it is a function of; its name and its place in the table are not."""
    changed, expected = MORE[name]
    us.simulate(sweep(), keep=tmp_path)
    kept = files(tmp_path)
    calls.plans.clear()
    larger = sweep(**changed)
    results = us.simulate(larger, keep=tmp_path)
    assert calls.cells() == expected
    assert list(results) == larger.cells()
    assert bits(results) == bits(us.simulate(larger))
    assert files(tmp_path).items() >= kept.items()
    assert len(files(tmp_path)) == 2 + len(expected)


CHANGED: dict[str, dict[str, Any]] = {
    "eta": {"learners": {"known": us.exp3_ix(PI, eta=0.2, gamma=0.05)}},
    "gamma": {"learners": {"known": us.exp3_ix(PI, eta=0.1, gamma=0.06)}},
    "the estimate": {"learners": {"known": us.exp3(PI, eta=0.1)}},
    "what the learner takes for the behavior": {
        "learners": {"known": us.exp3_ix(PI[::-1], eta=0.1, gamma=0.05)}
    },
    "runs": {"runs": RUNS + 1},
    "rewards": {"rewards": "realised"},
    "an action": {"comparators": [1]},
    "a policy": {"comparators": [[1.0, 0.0, 0.0, 0.0]]},
    "the best": {"comparators": ["best"]},
    "the number of comparators": {"comparators": [0, 1]},
    "the order of comparators": {"comparators": [1, 0]},
    "rounds": {"games": {"switching": switching(49)}},
    "the behavior": {"games": {"switching": switching(behavior=PI[::-1])}},
    "the adversary": {
        "games": {"switching": switching(adversary=us.adversaries.stationary([0.2, 0.4, 0.6, 0.8]))}
    },
    "the seed": {"seeds": [1]},
}


def test_no_change_is_taken_for_another(tmp_path: Path, calls: Calls) -> None:
    """Each makes a cell of its own, and gives what it gives without the folder."""
    before = {"learners": {"known": us.exp3_ix(PI, eta=0.1, gamma=0.05)}, "comparators": [0]}
    us.simulate(sweep(**before), keep=tmp_path)
    for count, (name, changed) in enumerate(CHANGED.items(), start=2):
        calls.plans.clear()
        other = sweep(**{**before, **changed})
        results = us.simulate(other, keep=tmp_path)
        assert len(calls.cells()) == 1, name
        assert len(files(tmp_path)) == count, name
        assert bits(results) == bits(us.simulate(other)), name


def edited(**changed: Any) -> Callable[[bytes], bytes]:
    """A file in which something stands otherwise."""
    return lambda content: json.dumps({**json.loads(content), **changed}).encode()


def replayed(**changed: Any) -> Callable[[bytes], bytes]:
    """The same for what came out of the cell."""

    def edit(content: bytes) -> bytes:
        played = {**json.loads(content)["played"], **changed}
        return edited(played=played)(content)

    return edit


def numbers(*shape: int) -> dict[str, Any]:
    count = int(np.prod(shape))
    return {"array": "float64", "shape": list(shape), "values": [0.5] * count}


def nested(depth: int) -> dict[str, Any]:
    record: dict[str, Any] = {"kind": "Constant", "gamma": 0.1}
    for _ in range(depth):
        record = {"kind": "Constant", "gamma": record}
    return record


def snapshot(_: bytes) -> bytes:
    learner = us.exp3_ix(PI, eta=0.1)
    return snapshot_text(learner, learner.init()).encode()


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "without its last character": lambda content: content[:-1],
    "not UTF-8": lambda content: b"\xff\xfe" + content,
    "zeros": lambda content: bytes(len(content)),
    "not JSON": lambda _: b"learner,mean\n",
    "a list": lambda _: b"[]",
    "nested deeply": lambda _: b"[" * 100_000,
    "of another program": lambda _: b'{"played": {}}',
    "of another version": edited(version=1),
    "a snapshot of a learner": snapshot,
    "without what was played": edited(played=None),
    "a number in its place": edited(played=3),
    "another record in its place": edited(played={"kind": "Constant", "gamma": 0.1}),
    "records in records": edited(played=nested(450)),
    "a field too few": edited(played={"kind": "Played", "path": "compiled"}),
    "not finite": lambda content: content.replace(b'"values": [', b'"values": [NaN, '),
    "a word for a number": replayed(reward="much"),
    "regret of other runs": replayed(regret=numbers(RUNS + 1, 1)),
    "regret of other comparators": replayed(regret=numbers(RUNS, 2)),
    "rewards of other runs": replayed(reward=numbers(RUNS - 1)),
    "the behavior's of other runs": replayed(behavior_reward=numbers(RUNS + 1)),
    "an unknown path": replayed(path="guessed"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_cell_is_refused_and_named(name: str, tmp_path: Path, calls: Calls) -> None:
    """The message says which file, and to delete it; that done, the sweep goes on."""
    cells = sweep(learners={"known": us.exp3_ix(PI, eta=0.1)}, comparators=[0], seeds=[0, 1])
    expected = bits(us.simulate(cells, keep=tmp_path))
    kept, path = files(tmp_path), min(tmp_path.iterdir())
    path.write_bytes(DAMAGED[name](kept[path.name]))
    damaged = files(tmp_path)
    calls.plans.clear()
    with pytest.raises(InvalidArgument) as caught:
        us.simulate(cells, keep=tmp_path)
    assert (caught.value.argument, caught.value.value) == ("keep", str(path))
    assert "delete this file" in str(caught.value)
    assert calls.plans == []
    assert files(tmp_path) == damaged
    path.unlink()
    assert bits(us.simulate(cells, keep=tmp_path)) == expected
    assert len(calls.cells()) == 1
    assert files(tmp_path) == kept


def test_the_message_names_the_file_in_full_however_long_the_path(tmp_path: Path) -> None:
    """It is to be deleted, so it must be possible to find."""
    folder = tmp_path / "a-folder-with-a-name-of-some-length"
    us.simulate(sweep(), keep=folder)
    path = min(folder.iterdir())
    path.write_text("damaged")
    with pytest.raises(InvalidArgument) as caught:
        us.simulate(sweep(), keep=folder)
    assert str(path) in str(caught.value)


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    others = {"notes.txt": b"mine", "a.json": b"{", ".0123456789ab.tmp": b"half", "0" * 32: b"\xff"}
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.json").mkdir()
    us.simulate(sweep(), keep=tmp_path)
    us.simulate(sweep(), keep=tmp_path)
    (tmp_path / "folder.json").rmdir()
    assert len(files(tmp_path)) == len(others) + 2
    assert files(tmp_path).items() >= others.items()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="it is a file; pass a folder"):
        us.simulate(sweep(), keep=tmp_path / "file")


class Mine:
    """A learner of one's own that was not marked for saving."""

    def __init__(self) -> None:
        self.learner = us.exp3_ix(PI, eta=0.1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learner, name)


NOT_SAVEABLE: dict[str, tuple[dict[str, Any], str]] = {
    "a function as gamma": (
        {"learners": {"known": us.exp3_ix(PI, eta=0.1, gamma=lambda t: 1 / t)}},
        "learner 'known'.estimator.gamma",
    ),
    "contexts from a sampler": ({"games": {"linear": linear()}}, "game 'linear'.contexts"),
    "a function as the behavior": (
        {"games": {"linear": linear(FiniteContexts(PHI, [0.6, 0.4]), tilted)}},
        "game 'linear'.behavior",
    ),
    "a function as a comparator": (
        {
            "games": {"linear": linear(FiniteContexts(PHI, [0.6, 0.4]))},
            "comparators": [0, tilted],
        },
        "comparator",
    ),
    "a learner of one's own": ({"learners": {"mine": Mine()}}, "learner"),
}


@pytest.mark.parametrize("name", NOT_SAVEABLE)
def test_what_cannot_be_recognized_later_is_refused_before_anything_is_played(
    name: str, tmp_path: Path, calls: Calls
) -> None:
    """Even if other cells come first; without the folder it is played."""
    changed, where = NOT_SAVEABLE[name]
    games = {"first": switching(), **changed.get("games", {"switching": switching()})}
    odd = sweep(**{**changed, **({"games": games} if "comparators" not in changed else {})})
    with pytest.raises(NotSaveable) as caught:
        us.simulate(odd, keep=tmp_path)
    assert f"{where}" in str(caught.value)
    assert "simulate without keep" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert calls.plans == []
    assert files(tmp_path) == {}
    assert len(us.simulate(odd)) == len(odd.cells())


def test_kept_cells_are_not_counted_as_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[int] = []
    us.simulate(sweep(seeds=[0]), progress=done.append, keep=tmp_path)
    us.simulate(sweep(seeds=[0, 1, 2]), progress=True, keep=tmp_path)
    us.simulate(sweep(seeds=[0, 1, 2]), progress=done.append, keep=tmp_path)
    assert sum(done) == RUNS
    assert f"{2 * RUNS}/{2 * RUNS}" in capsys.readouterr().err
