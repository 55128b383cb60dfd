"""Columns in whose rows of one value the action stays the same, beyond chance.

Feature flags and many canaries draw an action once per user, and keep it. Then the propensity of a
later row of the user, given the past, is 1 and not q, and all bounds of a certificate are false: it
would count each row as a draw of its own. The user may be in any column of the log.

Chance: let a row have a value that came before, and X = 1{b = action of the value's last row}/q(b).
If b was drawn afresh with the propensities of the row, E X = q(a)/q(a) = 1 for that action a, or 0
if a could not be played: at most 1, whatever the propensities are, and whatever the value says of
rewards. So Π (1 + λ (X − 1)) over these rows is a supermartingale for every λ in (0, 1), and so is
a mixture, also with bets that start later. With m columns there is an alarm in a column whose
mixture ever reaches m/`FALSE_ALARM` (Ville). Whether two values are confused does not matter: X
compares with an earlier action of the log, and any will do.

Rows that a log rejects for their rewards are draws as well: which rewards are missing may depend
on the action. Where the action or its propensity is unknown, X = 0, which is the worst.

A column that follows from the action, such as the name or the price of what was played, or that was
measured afterwards, raises an alarm too. The log cannot tell it from a sticky unit; its owner can.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from understudy import kernels
from understudy.constraints import Array
from understudy.errors import InvalidSnapshot
from understudy.snapshots import fields_from_data
from understudy.types import Integers, kernel_view

FALSE_ALARM = 1e-6  # of all columns together: rare for one log, and for all logs of a team
# Large bets see a sticky assignment in a few rows, small ones see one that is renewed at times.
BETS: Array = kernel_view(np.array([0.9, 0.5, 0.25, 0.1, 0.05, 0.02]))
SLOTS = 1 << 17  # values of a column that are followed: about 100 000, 1 MB
MOST_SLOTS = 1 << 23  # in all columns: 64 MB
# Repeats from one start of bets to the next. An assignment that becomes sticky shows in little more
# than so many, as a start costs little: start j has 1/(j (j + 1)) of the wealth.
STARTS = 1 << 12


@dataclass(frozen=True)
class StickyColumn:
    """A column in which `same` of the `repeats` of values have the action of the row before."""

    name: str
    repeats: int
    same: int


@dataclass(frozen=True)
class StickyColumns:
    """The finding about a log: the columns with an alarm, out of those `examined`."""

    columns: tuple[StickyColumn, ...] = ()
    examined: int = 0

    @property
    def found(self) -> bool:
        return bool(self.columns)

    @staticmethod
    def from_data(data: Any) -> StickyColumns:
        """The finding of a policy.json, or `InvalidSnapshot`."""
        columns = tuple(
            fields_from_data(StickyColumn, one, "sticky_columns") for one in data["columns"]
        )
        numbers = [data["examined"], *(n for one in columns for n in (one.repeats, one.same))]
        whole = all(isinstance(n, int) and n >= 0 for n in numbers)
        if not (whole and all(isinstance(one.name, str) for one in columns)):
            raise InvalidSnapshot("sticky_columns", data, "its counts are wrong", "load another")
        return StickyColumns(columns, data["examined"])


class StickyDetector:
    """The wealth of all bets on the columns of a log, from its rows in their order.

    >>> rng = np.random.default_rng(0)
    >>> user, page = rng.integers(0, 300, 3_000), rng.integers(0, 9, 3_000)
    >>> hashes = {"user": pl.Series(user).hash(), "page": pl.Series(page).hash()}
    >>> detector = StickyDetector()
    >>> detector.add(hashes, rng.integers(0, 2, 300)[user], np.full(3_000, 0.5))
    >>> [column.name for column in detector.finding().columns]
    ['user']
    """

    def __init__(self) -> None:
        self._columns: dict[str, _ColumnBets] = {}

    def add(self, hashes: Mapping[str, pl.Series], actions: Integers, propensities: Array) -> None:
        """Bet on more rows, given a hash of each value by column: 0 where a value is missing.

        An action is −1 where it or its propensity is unknown: there all bets lose.
        """
        columns = kernel_view(actions), kernel_view(propensities)
        for name, values in hashes.items():
            if name not in self._columns:
                self._columns[name] = _ColumnBets(max(len(hashes), len(self._columns)))
            self._columns[name].add(kernel_view(values.to_numpy()), *columns)

    def finding(self) -> StickyColumns:
        """The columns with an alarm; their counts are those of the rows until then."""
        found = [
            StickyColumn(name, *map(int, bets.counts[:2]))
            for name, bets in self._columns.items()
            if bets.alarm
        ]
        return StickyColumns(tuple(found), len(self._columns))


class _ColumnBets:
    """The bets on one of so many columns, up to an alarm."""

    def __init__(self, columns: int) -> None:
        slots = min(SLOTS, 1 << int(math.log2(max(1, MOST_SLOTS // columns))))
        self.tags = np.zeros(slots, dtype=np.uint32)
        self.last = np.zeros(slots, dtype=np.int32)
        self.wealth, self.counts = np.zeros(len(BETS)), np.zeros(3, dtype=np.int64)
        self.enough, self.alarm = columns / FALSE_ALARM, False

    def add(self, hashes: Any, actions: Integers, propensities: Array) -> None:
        if self.alarm:
            return
        state = self.tags, self.last, self.wealth, self.counts
        self.alarm = kernels.repeats.bet_on_repeats(
            BETS, hashes, actions, propensities, *state, STARTS, self.enough
        )
