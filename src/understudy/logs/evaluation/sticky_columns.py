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

The rows one after the other are examined like a column with one value: X compares with the row
before. So an action that is drawn for an hour, or a log that is sorted by user, shows without a
column of hours or users.

Where propensities are unknown, and the same in all rows, an upper bound on q takes its place: X is
then smaller, and so is the wealth. The bound is Chernoff's, from the frequency before the row. The
count begins after the first row of the action, which is a stopping time. The j-th action to come up
has the level `COUNTING_SHARE`·`FALSE_ALARM`/(j (j + 1)), of which 1/(n (n + 1)) is for the bound
after n rows; so all bounds hold together. The rows one after the other are left out there: if
production changes, they show it, and so does the test of drift, which says what it is.

If rows have units, a row is the first one of its unit, and its draw. Its past are the units that
came before, so all of this holds for it, and shows units that are too fine: sessions of a user who
keeps an action.
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
COUNTING_SHARE = 0.1  # of the false alarms, for bounds: it enters these through a logarithm alone
SAME_VALUE = np.uint64(1)  # the hash of a value that all rows have: any but 0


@dataclass(frozen=True)
class StickyColumn:
    """A column in which `same` of the `repeats` of values have the action of the row before.

    Without a name it stands for the rows one after the other.
    """

    name: str | None
    repeats: int
    same: int


@dataclass(frozen=True)
class StickyColumns:
    """The finding about a log: the columns with an alarm, out of those `examined`.

    If rows have units, each row is the first one of its `unit`, which is a column too.
    """

    columns: tuple[StickyColumn, ...] = ()
    examined: int = 0
    unit: str | None = None

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
        names = [data.get("unit"), *(one.name for one in columns)]
        if not (whole and all(name is None or isinstance(name, str) for name in names)):
            raise InvalidSnapshot("sticky_columns", data, "its counts are wrong", "load another")
        return StickyColumns(columns, data["examined"], data.get("unit"))


class StickyDetector:
    """The wealth of all bets on the columns of a log, from its rows in their order.

    If rows are `in_order`, it also bets on each row after the one before. If propensities are
    `counted`, it bounds those of a fixed behavior policy by frequencies.

    >>> rng = np.random.default_rng(0)
    >>> user, page = rng.integers(0, 300, 3_000), rng.integers(0, 9, 3_000)
    >>> hashes = {"user": pl.Series(user).hash(), "page": pl.Series(page).hash()}
    >>> detector = StickyDetector()
    >>> detector.add(hashes, rng.integers(0, 2, 300)[user], np.full(3_000, 0.5))
    >>> [column.name for column in detector.finding().columns]
    ['user']
    """

    def __init__(self, *, in_order: bool = False, counted: bool = False) -> None:
        self._in_order = in_order
        self._counts = _Frequencies() if counted else None
        self._level = FALSE_ALARM * (1.0 - COUNTING_SHARE) if counted else FALSE_ALARM
        self._columns: dict[str | None, _ColumnBets] = {}

    def add(
        self, hashes: Mapping[str, pl.Series], actions: Integers, propensities: Array | None
    ) -> None:
        """Bet on more rows, given a hash of each value by column: 0 where a value is missing.

        An action is −1 where it or its propensity is unknown: there all bets lose. Propensities are
        None if they are counted.
        """
        if propensities is None:
            assert self._counts is not None  # it was asked for
            propensities = self._counts.bounds_before(actions)
        drawn = kernel_view(actions), kernel_view(propensities)
        columns: dict[str | None, Any] = {n: values.to_numpy() for n, values in hashes.items()}
        if self._in_order:
            columns[None] = np.full(len(actions), SAME_VALUE)
        for name, values in columns.items():
            if name not in self._columns:
                number = max(len(columns), len(self._columns))
                self._columns[name] = _ColumnBets(number, self._level)
            self._columns[name].add(kernel_view(values), *drawn)

    def finding(self, unit: str | None = None) -> StickyColumns:
        """The columns with an alarm; their counts are those of the rows until then.

        The rows one after the other come last, as a column is the better advice.
        """
        found = [
            StickyColumn(name, *map(int, bets.counts[:2]))
            for name, bets in self._columns.items()
            if bets.alarm
        ]
        found.sort(key=lambda column: column.name is None)
        return StickyColumns(tuple(found), len(self._columns), unit)


class _Frequencies:
    """The plays of each action after its first one, which bound its probability.

    `_order` is the number of actions that had come up by then, with it.
    """

    def __init__(self) -> None:
        self._rows = 0
        self._plays, self._first, self._order = (np.zeros(0, dtype=np.int64) for _ in range(3))

    def bounds_before(self, actions: Integers) -> Array:
        """An upper bound on the probability of each row's action, from the rows before; then count.

        It is 1 in rows whose action is unknown, which count nowhere, and in the first of an action.
        """
        bounds = np.ones(len(actions))
        known = np.flatnonzero(actions >= 0)
        played, t = actions[known], self._rows + np.arange(len(known))
        self._rows += len(known)
        more = max(0, int(played.max(initial=-1)) + 1 - len(self._plays))
        self._plays, self._first, self._order = (
            np.pad(column, (0, more)) for column in (self._plays, self._first, self._order)
        )
        present, places = np.unique(played, return_index=True)
        new = self._plays[present] == 0
        begun, at = present[new], places[new]
        self._first[begun] = t[at]
        self._order[begun] = (self._order > 0).sum() + np.argsort(np.argsort(at)) + 1
        seen = np.empty(len(played), dtype=np.int64)
        kernels.confidence.count_before(self._plays, kernel_view(played), seen)
        rows, j = np.maximum(t - self._first[played] - 1, 0), self._order[played]
        budgets = np.log(j * (j + 1.0) * np.maximum(rows, 1) * (rows + 1.0))
        budgets -= math.log(FALSE_ALARM * COUNTING_SHARE)
        again, upper = np.maximum(seen - 1, 0), np.empty(len(played))
        kernels.confidence.kl_uppers(again / np.maximum(rows, 1), rows, budgets, upper)
        bounds[known] = upper
        return bounds


class _ColumnBets:
    """The bets on one of so many columns, up to an alarm."""

    def __init__(self, columns: int, level: float) -> None:
        slots = min(SLOTS, 1 << int(math.log2(max(1, MOST_SLOTS // columns))))
        self.tags = np.zeros(slots, dtype=np.uint32)
        self.last = np.zeros(slots, dtype=np.int32)
        self.wealth, self.counts = np.zeros(len(BETS)), np.zeros(3, dtype=np.int64)
        self.enough, self.alarm = columns / level, False

    def add(self, hashes: Any, actions: Integers, propensities: Array) -> None:
        if self.alarm:
            return
        state = self.tags, self.last, self.wealth, self.counts
        self.alarm = kernels.repeats.bet_on_repeats(
            BETS, hashes, actions, propensities, *state, STARTS, self.enough
        )
