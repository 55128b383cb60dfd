"""Finished cells of a sweep on disk: each is recognized by all that it is a function of."""

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
from understudy.simulation.sweep import Cell, Played, Sweep
from understudy.snapshots import FORMAT, VERSION, as_data, from_data, parse, write_atomically

__all__ = ["ResultCache"]

# Goes up when the same cell comes to give other bits, so that none is mixed with old ones.
NUMERICS = 1


class ResultCache:
    """Finished cells on disk, a file each, named by what they are a function of."""

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        if folder.exists() and not folder.is_dir():
            raise InvalidArgument("keep", str(folder), "it is a file", "pass a folder")
        self.folder, self.sweep = folder, sweep
        self.games = {name: self._game(name) for name in sweep.games}
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, cell: Cell, learner: Learner[Any]) -> Played | None:
        """What came out of a cell, if it was finished before."""
        key = self.key(cell, learner)
        path = self.path(key)
        if not path.exists():
            return None
        try:
            record = parse(path.read_text(encoding="utf-8"))
            played = from_data(record.get("played"), "played")
        except InvalidArgument as error:
            raise self._not_a_cell(path, f"{error.argument}: {error.reason}") from None
        except (UnicodeDecodeError, RecursionError) as error:
            raise self._not_a_cell(path, type(error).__name__) from None
        if record.get("key") != key or not self._fits(cell, played):
            raise self._not_a_cell(path, "it holds something else")
        return played  # type: ignore[no-any-return] # it fits

    def _fits(self, cell: Cell, played: Any) -> bool:
        runs = self.sweep.runs
        comparators = len(self.sweep.compared_with(cell.game))
        return (
            isinstance(played, Played)
            and played.regret.shape == (runs, comparators)
            and played.reward.shape == played.behavior_reward.shape == (runs,)
        )

    @staticmethod
    def _not_a_cell(path: Path, why: str) -> InvalidArgument:
        reason = f"{path} is not a finished cell of this sweep ({why})"
        return InvalidArgument("keep", str(path), reason, "delete this file to play it again")

    def write(self, cell: Cell, learner: Learner[Any], played: Played) -> None:
        """Keep what came out of a cell, whole or not at all."""
        key = self.key(cell, learner)
        record = {
            "format": FORMAT,
            "version": VERSION,
            "key": key,
            "cell": cell._asdict(),
            "played": as_data(played),
        }
        text = json.dumps(record, allow_nan=False, ensure_ascii=False)
        write_atomically(self.path(key), text.encode())

    def path(self, key: str) -> Path:
        """The file of a cell."""
        return self.folder / f"{key[:32]}.json"

    def key(self, cell: Cell, learner: Learner[Any]) -> str:
        """All that a cell is a function of, as one hash."""
        return digest(
            {
                "numerics": NUMERICS,
                "game": self.games[cell.game],
                "learner": recognizable(learner, f"learner {cell.learner!r}"),
                "rewards": self.sweep.rewards,
                "runs": self.sweep.runs,
                "seed": cell.seed,
            }
        )

    def _game(self, name: str) -> str:
        """A game and its comparators, which many cells share, as one hash."""
        comparators = [
            recognizable(plain(one), f"a comparator of game {name!r}")
            for one in self.sweep.compared_with(name)
        ]
        game = recognizable(self.sweep.games[name], f"game {name!r}")
        return digest({"game": game, "comparators": comparators})


def digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def recognizable(value: Any, what: str) -> Any:
    """A value as data, by which its cells are recognized, with the code of classes not of ours."""
    try:
        return [as_data(value, what), sorted(set(foreign_code(value)))]
    except NotSaveable as error:
        raise NotSaveable(
            f"a finished cell would not be recognized again: {error}; or simulate without keep"
        ) from None


def plain(comparator: Comparator) -> Any:
    """A comparator as a number, a name or an array; functions are left as they are."""
    if isinstance(comparator, str | int) or callable(comparator):
        return comparator
    return np.asarray(comparator, dtype=np.float64)


def foreign_code(value: Any) -> Iterator[str]:
    """The source of every class in a value that this library did not bring."""
    if not dataclasses.is_dataclass(value):
        return
    cls = type(value)
    if not cls.__module__.startswith("understudy."):
        try:
            yield inspect.getsource(cls)  # the same when its file is run and when it is imported
        except (OSError, TypeError):  # typed into a session: only its name is known
            yield cls.__qualname__
    for field in dataclasses.fields(value):
        yield from foreign_code(getattr(value, field.name))
