"""Sweeps as data: a table of games × learners × seeds, and the results of its cells.

A cell is one learner in one game under one seed, with all its runs. Its result is a pure function
of these, so `ResultCache` stores a finished cell in a file, and it need not be played again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from understudy.constraints import (
    COUNT,
    SEED,
    Array,
    Checked,
    Constraint,
    ConstraintViolation,
    array,
    enforce,
    one_of,
)
from understudy.deprecated import OldName
from understudy.errors import InvalidArgument, NotSaveable, UnknownCell, shorten
from understudy.protocols import Learner
from understudy.simulation.engine import (
    COMPILED,
    REFEREE,
    STRETCHES,
    Comparator,
    ComparatorTotals,
    EnginePath,
    Learners,
    Rewards,
    SimulationPlan,
    Totals,
)
from understudy.simulation.game import Game, check_player
from understudy.snapshots import FORMAT, VERSION, as_data, from_data, parse, write_atomically
from understudy.types import saved


def _by_name(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        raise ConstraintViolation("there must be at least one, by name")
    return dict(value)


def _seeds(value: Any) -> tuple[int, ...]:
    given = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ConstraintViolation("it must be a list of at least one seed")
    seeds = tuple(SEED.parse(seed) for seed in given)
    if len(set(seeds)) < len(seeds):
        raise ConstraintViolation("it names a seed twice")
    return seeds


PATH = one_of("pass the path of the engine", COMPILED, STRETCHES, REFEREE)
REWARDS = one_of(
    "pass 'mean' (conditional means: same expectation, less noise) or 'realised' (the paper's)",
    "mean",
    "realised",
)
GAMES = Constraint('pass {"name": us.Game(...)}', _by_name, ({}, [], None, "game"))
LEARNERS = Constraint(
    'pass {"name": learner}, or a function of the game that returns it', GAMES.parse, GAMES.wrong
)
SEEDS = Constraint("pass [0, 1, …]", _seeds, ([], 7, "01", [0, 0], [-1], [0.5], None))


# Part of every key. Increase it when a change of code changes the bits of any result.
NUMERICS = 1


class SweepCell(NamedTuple):
    """The place of a result in the table of a sweep."""

    game: str
    learner: str
    seed: int


@saved(tag="Played")
@dataclass(frozen=True, eq=False)
class CellResult(Checked):
    """Result of a cell: regret (runs, comparators), rewards (runs,), and the engine's path."""

    regret: Array
    reward: Array
    behavior_reward: Array
    path: EnginePath
    CONSTRAINTS: ClassVar = {
        "regret": array("pass (runs, comparators)", dimensions=(2,)),
        "reward": array("pass one number per run"),
        "behavior_reward": array("pass one number per run"),
        "path": PATH,
    }

    @staticmethod
    def from_totals(totals: Sequence[Totals], path: EnginePath) -> CellResult:
        """Collect the totals of all runs in arrays."""
        reward = np.array([run.learner for run in totals])
        comparators = np.array([run.comparators for run in totals])
        return CellResult(
            regret=comparators - reward[:, np.newaxis],
            reward=reward,
            behavior_reward=np.array([run.behavior for run in totals]),
            path=path,
        )


@dataclass(frozen=True, eq=False)
class Sweep:
    """Games × learners × seeds, each with `runs` runs; `us.simulate` plays it.

    `learners` (by name) and `comparators` are the same for all games, or functions of the game.

    >>> import understudy as us
    >>> pi_b = us.behaviors.uniform(n_actions=3)
    >>> adversary = us.adversaries.stationary([0.2, 0.5, 0.9])
    >>> sweep = us.Sweep(
    ...     games={str(n): us.Game(adversary, pi_b, rounds=n) for n in (10, 100)},
    ...     learners=lambda game: {"Exp3-IX": us.exp3_ix(pi_b, horizon=game.rounds)},
    ...     seeds=[0, 1],
    ...     runs=5,
    ...     comparators=[2],
    ... )
    >>> len(sweep.cells())
    4
    >>> us.simulate(sweep)["100", "Exp3-IX", 1].regret.shape
    (5, 1)
    """

    games: Mapping[str, Game]
    learners: Learners | Callable[[Game], Learners]
    seeds: Sequence[int] = (0,)
    runs: int = 1
    comparators: Sequence[Comparator] | Callable[[Game], Sequence[Comparator]] = ()
    rewards: Rewards = "mean"
    CONSTRAINTS: ClassVar = {"games": GAMES, "seeds": SEEDS, "runs": COUNT, "rewards": REWARDS}
    casts, plans = OldName("learners_by_game"), OldName("groups")

    def __post_init__(self) -> None:
        enforce(self)
        for name, game in self.games.items():
            if not isinstance(game, Game):
                raise InvalidArgument("game", game, "it is not a us.Game", "pass us.Game(...)")
            for learner_name, learner in self.learners_by_game[name].items():
                self._check(name, learner_name, learner)
            ComparatorTotals(game, self.compared_with(name))

    def _check(self, game: str, name: str, learner: Learner[Any]) -> None:
        try:
            check_player(self.games[game], learner)
        except InvalidArgument as error:
            reason = f"{error.reason} (learner {name!r}, game {game!r})"
            raise InvalidArgument(error.argument, error.value, reason, error.remedy) from None

    @cached_property
    def learners_by_game(self) -> dict[str, dict[str, Learner[Any]]]:
        """The learners of each game, by name."""
        return {name: self._learners(game) for name, game in self.games.items()}

    def _learners(self, game: Game) -> dict[str, Learner[Any]]:
        learners = self.learners(game) if callable(self.learners) else self.learners
        by_name: dict[str, Learner[Any]] = LEARNERS("learners", learners)
        return by_name

    def compared_with(self, game: str) -> Sequence[Comparator]:
        """The comparators of a game."""
        given = self.comparators
        comparators = given(self.games[game]) if callable(given) else given
        if isinstance(comparators, str) or not isinstance(comparators, Sequence):
            raise InvalidArgument(
                "comparators",
                comparators,
                "it is not a list of comparators",
                "pass [comparator, …], or a function of the game that returns it",
            )
        return comparators

    def cells(self) -> list[SweepCell]:
        """All cells, in order."""
        return [cell for group in self.groups() for cell in group]

    def groups(self) -> Iterator[dict[SweepCell, Learner[Any]]]:
        """The cells with their learners, grouped by game and seed: a group shares its log."""
        for game, learners in self.learners_by_game.items():
            for seed in self.seeds:
                yield {SweepCell(game, name, seed): learner for name, learner in learners.items()}

    def plan(self, cells: Sequence[SweepCell]) -> SimulationPlan:
        """The engine's plan for some cells of a group."""
        name, _, seed = cells[0]
        learners = {cell.learner: self.learner(cell) for cell in cells}
        comparators = self.compared_with(name)
        return SimulationPlan(self.games[name], learners, comparators, self.rewards, seed)

    def learner(self, cell: SweepCell) -> Learner[Any]:
        """The learner of a cell."""
        return self.learners_by_game[cell.game][cell.learner]


class Results(Mapping[SweepCell, CellResult]):
    """Results of a sweep by cell: results["game", "learner", seed]."""

    def __init__(self, played: Mapping[SweepCell, CellResult]) -> None:
        self.played = dict(played)

    def __getitem__(self, cell: tuple[str, str, int]) -> CellResult:
        try:
            return self.played[cell]  # type: ignore[index] # a SweepCell is a tuple
        except (KeyError, TypeError):
            raise self._unknown(cell) from None

    def _unknown(self, cell: object) -> UnknownCell:
        parts = zip(SweepCell._fields, zip(*self.played, strict=True), strict=True)
        known = "; ".join(f"{part}: {shorten(list(dict.fromkeys(own)))}" for part, own in parts)
        reason = f"the sweep has no such cell, but these ({known})"
        return UnknownCell("cell", cell, reason, 'type results["game", "learner", seed]')

    def __iter__(self) -> Iterator[SweepCell]:
        return iter(self.played)

    def __len__(self) -> int:
        return len(self.played)

    def rows(self) -> list[dict[str, Any]]:
        """One record per run and comparator, for a table of any dataframe library.

        `comparator` is an index into the list of comparators. In a sweep without comparators, it
        and `regret` are None.
        """
        return [
            {
                **cell._asdict(),
                "run": run,
                "comparator": comparator,
                "regret": regret,
                "reward": float(result.reward[run]),
                "behavior_reward": float(result.behavior_reward[run]),
                "path": result.path,
            }
            for cell, result in self.played.items()
            for run, regrets in enumerate(result.regret.tolist())
            for comparator, regret in (enumerate(regrets) if regrets else [(None, None)])
        ]


class ResultCache:
    """A folder with one file per finished cell of a sweep."""

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        if folder.exists() and not folder.is_dir():
            raise InvalidArgument("keep", str(folder), "it is a file", "pass a folder")
        self.folder, self.sweep = folder, sweep
        self.games = {name: self._game(name) for name in sweep.games}
        folder.mkdir(parents=True, exist_ok=True)

    def read(self) -> dict[SweepCell, CellResult]:
        """The results of the cells that the folder has."""
        keys = {cell: self.key(cell) for cell in self.sweep.cells()}
        stored = {cell: key for cell, key in keys.items() if self.path(key).exists()}
        return {cell: self._read(cell, key) for cell, key in stored.items()}

    def _read(self, cell: SweepCell, key: str) -> CellResult:
        path = self.path(key)
        try:
            record = parse(path.read_text(encoding="utf-8"))
            result = from_data(record.get("played"), "played")
        except InvalidArgument as error:
            raise self._not_a_cell(path, f"{error.argument}: {error.reason}") from None
        except (UnicodeDecodeError, RecursionError) as error:
            raise self._not_a_cell(path, type(error).__name__) from None
        runs, comparators = self.sweep.runs, len(self.sweep.compared_with(cell.game))
        if (
            record.get("key") != key
            or not isinstance(result, CellResult)
            or result.regret.shape != (runs, comparators)
            or not result.reward.shape == result.behavior_reward.shape == (runs,)
        ):
            raise self._not_a_cell(path, "it holds something else")
        return result

    @staticmethod
    def _not_a_cell(path: Path, why: str) -> InvalidArgument:
        reason = f"{path} is not a finished cell of this sweep ({why})"
        return InvalidArgument("keep", str(path), reason, "delete this file to play it again")

    def write(self, results: Mapping[SweepCell, CellResult]) -> None:
        """Store the results of cells; each file appears whole or not at all."""
        for cell, result in results.items():
            key = self.key(cell)
            record = {
                "format": FORMAT,
                "version": VERSION,
                "key": key,
                "cell": cell._asdict(),
                "played": as_data(result),
            }
            text = json.dumps(record, allow_nan=False, ensure_ascii=False)
            write_atomically(self.path(key), text.encode())

    def path(self, key: str) -> Path:
        """The file of a cell."""
        return self.folder / f"{key[:32]}.json"

    def key(self, cell: SweepCell) -> str:
        """A hash of everything that the result of a cell depends on."""
        return digest(
            {
                "numerics": NUMERICS,
                "game": self.games[cell.game],
                "learner": as_key(self.sweep.learner(cell), f"learner {cell.learner!r}"),
                "rewards": self.sweep.rewards,
                "runs": self.sweep.runs,
                "seed": cell.seed,
            }
        )

    def _game(self, name: str) -> str:
        """A hash of a game and its comparators, made once for all cells of the game."""
        comparators = [
            as_key(comparator_as_data(one), f"a comparator of game {name!r}")
            for one in self.sweep.compared_with(name)
        ]
        game = as_key(self.sweep.games[name], f"game {name!r}")
        return digest({"game": game, "comparators": comparators})


def digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def as_key(value: Any, what: str) -> Any:
    """A value as data for a key, with the source of its classes that are not Understudy's."""
    try:
        return [as_data(value, what), sorted(set(user_code(value)))]
    except NotSaveable as error:
        raise NotSaveable(
            f"a finished cell would not be recognized again: {error}; or simulate without keep"
        ) from None


def comparator_as_data(comparator: Comparator) -> Any:
    """A comparator as a number, a name or an array; a function stays what it is."""
    if isinstance(comparator, str | int) or callable(comparator):
        return comparator
    return np.asarray(comparator, dtype=np.float64)


def user_code(value: Any) -> Iterator[str]:
    """Source code of every class in a value that is not Understudy's."""
    if not dataclasses.is_dataclass(value):
        return
    cls = type(value)
    if not cls.__module__.startswith("understudy."):
        try:
            yield inspect.getsource(cls)  # does not depend on how its file was started
        except (OSError, TypeError):  # typed into a session: it has no source file
            yield cls.__qualname__
    for field in dataclasses.fields(value):
        yield from user_code(getattr(value, field.name))
