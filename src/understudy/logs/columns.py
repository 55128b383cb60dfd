"""Which columns of a log mean what, and the names that they have in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from understudy.errors import InvalidArgument, InvalidLog

__all__ = [
    "ACTION",
    "CONTEXT",
    "ELIGIBLE",
    "ESTIMATED",
    "FILE",
    "GIVEN",
    "LOGGED",
    "PRESETS",
    "PROPENSITY",
    "REWARD",
    "ROW",
    "TARGET",
    "TIME",
    "Columns",
    "Kind",
]

Kind = Literal["logged", "given", "estimated"]  # where propensities come from
LOGGED: Kind = "logged"
GIVEN: Kind = "given"
ESTIMATED: Kind = "estimated"

# A frame of rows has columns of these names, whatever they were called in the file.
ROW = "row"  # counted from 1 in each file, a header not counted
FILE = "file"  # where the rows of several files are mixed
ACTION, REWARD, PROPENSITY = "action", "reward", "propensity"
TIME, ELIGIBLE = "time", "eligible"
TARGET = "target"  # the probability of the logged action under somebody's own policy
LOG = "log"  # what an error calls rows whose files it does not know
CONTEXT = "context."  # and the name of the context column
MANY = 20  # columns that an error lists
LONGEST = 40  # characters that it shows of each


@dataclass(frozen=True)
class Columns:
    """The names that a log has for what is read of it.

    `propensity`, `time`, `eligible` and `target` are None where there is no such column to read.

    >>> Columns(reward="click", context=("age",)).renamed()
    {'action': 'action', 'click': 'reward', 'propensity': 'propensity', 'age': 'context.age'}
    """

    action: str = ACTION
    reward: str = REWARD
    propensity: str | None = PROPENSITY
    time: str | None = None
    eligible: str | None = None
    target: str | None = None
    context: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        roles = (self.action, self.reward, self.propensity, self.time, self.eligible, self.target)
        named = [name for name in (*roles, *self.context) if name is not None]
        repeated = [name for name in named if named.count(name) > 1]
        if repeated:
            raise InvalidArgument(
                "columns", repeated[0], "two roles are given to this column", "name two columns"
            )

    def names(self) -> list[str]:
        """The columns that are read, as the log names them."""
        return list(self.renamed())

    def renamed(self) -> dict[str, str]:
        """What each column is called in here."""
        roles = {
            ACTION: self.action,
            REWARD: self.reward,
            PROPENSITY: self.propensity,
            TIME: self.time,
            ELIGIBLE: self.eligible,
            TARGET: self.target,
        }
        own = {name: role for role, name in roles.items() if name is not None}
        return own | {name: CONTEXT + name for name in self.context}

    def require(self, found: Sequence[str], where: str) -> None:
        """Raise `InvalidLog` if a column that is read is not among those found in a file."""
        if not found:
            raise InvalidLog("log", where, "it has no columns", "leave it out: there are no rows")
        for name in self.names():
            if name not in found:
                shown = ", ".join(_cut(column) for column in found[:MANY])
                more = f" and {len(found) - MANY} more" if len(found) > MANY else ""
                raise InvalidLog(
                    "log",
                    where,
                    f"it has no column {name!r}, only {shown}{more}",
                    self._remedy(name, found),
                )

    def _remedy(self, name: str, found: Sequence[str]) -> str:
        """What to type in place of a name that a log does not have."""
        options = {
            self.action: "--action",
            self.reward: "--reward",
            self.propensity: "--propensity",
            self.time: "--time",
            self.eligible: "--eligible",
            self.target: "--target-probability",
        }
        option = options.get(name, "--context")
        alike = [column for column in found if column.strip().lower() == name.strip().lower()]
        remedy = f"pass {option} {alike[0]!r}" if alike else f"name the right one with {option}"
        if name == self.propensity:
            remedy += ", or pass --behavior estimated if there is none"
        return remedy


def _cut(column: str) -> str:
    return repr(column if len(column) <= LONGEST else column[:LONGEST] + "…")


PRESETS = {
    "obd": Columns(action="item_id", reward="click", propensity="propensity_score"),
}
