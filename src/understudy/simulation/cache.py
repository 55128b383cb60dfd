"""Results of finished cells on disk, under a hash of everything that they depend on."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from understudy.errors import InvalidArgument, NotSaveable
from understudy.protocols import Learner
from understudy.simulation.comparators import Comparator
from understudy.simulation.sweep import CellResult, Sweep, SweepCell
from understudy.snapshots import FORMAT, VERSION, as_data, from_data, parse, write_atomically

# Part of every key. Increase it when a change of code changes the bits of any result.
NUMERICS = 1


class ResultCache:
    """A folder with one file per finished cell of a sweep."""

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        if folder.exists() and not folder.is_dir():
            raise InvalidArgument("keep", str(folder), "it is a file", "pass a folder")
        self.folder, self.sweep = folder, sweep
        self.games = {name: self._game(name) for name in sweep.games}
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, cell: SweepCell, learner: Learner[Any]) -> CellResult | None:
        """The result of a cell, or None if the folder does not have it."""
        key = self.key(cell, learner)
        path = self.path(key)
        if not path.exists():
            return None
        try:
            record = parse(path.read_text(encoding="utf-8"))
            result = from_data(record.get("played"), "played")
        except InvalidArgument as error:
            raise self._not_a_cell(path, f"{error.argument}: {error.reason}") from None
        except (UnicodeDecodeError, RecursionError) as error:
            raise self._not_a_cell(path, type(error).__name__) from None
        if record.get("key") != key or not self._fits(cell, result):
            raise self._not_a_cell(path, "it holds something else")
        return result  # type: ignore[no-any-return] # `_fits` has checked it

    def _fits(self, cell: SweepCell, result: Any) -> bool:
        runs = self.sweep.runs
        comparators = len(self.sweep.compared_with(cell.game))
        return (
            isinstance(result, CellResult)
            and result.regret.shape == (runs, comparators)
            and result.reward.shape == result.behavior_reward.shape == (runs,)
        )

    @staticmethod
    def _not_a_cell(path: Path, why: str) -> InvalidArgument:
        reason = f"{path} is not a finished cell of this sweep ({why})"
        return InvalidArgument("keep", str(path), reason, "delete this file to play it again")

    def write(self, cell: SweepCell, learner: Learner[Any], result: CellResult) -> None:
        """Store the result of a cell; the file appears whole or not at all."""
        key = self.key(cell, learner)
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

    def key(self, cell: SweepCell, learner: Learner[Any]) -> str:
        """A hash of everything that the result of a cell depends on."""
        return digest(
            {
                "numerics": NUMERICS,
                "game": self.games[cell.game],
                "learner": as_key(learner, f"learner {cell.learner!r}"),
                "rewards": self.sweep.rewards,
                "runs": self.sweep.runs,
                "seed": cell.seed,
            }
        )

    def _game(self, name: str) -> str:
        """A hash of a game and its comparators, made once for all cells of the game."""
        comparators = [
            as_key(plain(one), f"a comparator of game {name!r}")
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


def plain(comparator: Comparator) -> Any:
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
