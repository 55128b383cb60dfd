"""Rows that are there more than once, far beyond chance.

A copy of a row is no new decision, but a certificate would count it as one, and promote policies
that gain nothing. Rows are compared in all columns of the log, also in those that are not used.

Chance: separate decisions are independent, and a row that is equal to another has the same
distribution. Then the number of times that each different row occurs is a Poisson variable, whose
mean is unknown and differs from row to row. So a log of two actions and 0/1 rewards may have four
different rows. Four traces of copies contradict chance, whatever the means are:

- MULTIPLES: the counts of different rows are multiples of k. A Poisson variable is a multiple of k
  with a probability of at most π_k, about 1/k (`_share_of_multiples`).
- TIMES: far more rows occur j times than j − 1 and j + 1 times. With N_j different rows that occur
  j times, the numbers j! E N_j are moments of a measure. So E N_j² ≤ (1 + 1/j) E N_{j−1} E N_{j+1}
  (Cauchy, Schwarz). Rows that a pipeline delivered twice break it: N_2 is large, and N_3 is not.
- RUNS: equal rows follow each other in groups of k. The length of a run of independent rows is
  geometric, and a multiple of k with a probability of at most 1/k.
- PARTS: the log consists of k equal parts, of at least `SHORTEST_PART` rows: a shorter period is a
  schedule, not a copy.

Each test is a Chernoff bound. All tests together find copies in a log of independent rows with a
probability of at most `FALSE_ALARM`. One different row is left out of MULTIPLES: the number of all
rows of a log is often round.

Copies stay unseen where counts hardly differ from those of independent rows: shuffled copies in a
log of fewer than ten different rows, a few copies among rows that occur often by themselves, or
numbers of copies that are geometric, which is a mixture of Poisson variables. Name ids then.

Memory is constant: up to `MOST_ROWS` different rows are counted exactly, and then those of a share
of the hashes that halves as often as needed; so many rows show copies without an order. 64 bits of
hash confuse two of n rows with probability n²/2⁶⁵, which moves one count.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from understudy.constraints import Array
from understudy.errors import InvalidSnapshot
from understudy.snapshots import fields_from_data

FALSE_ALARM = 1e-6  # rare for one log, and for all logs of a team
MOST_TIMES = 20  # copies of a row; more are found by their divisors
MOST_ROWS = 1 << 15  # different rows that are counted: at most 1 MB; half show 5 % of copies
MOST_ORDERED = 1 << 22  # rows whose order is compared: 4 MB
MOST_IN_RUNS = 1 << 18  # rows whose runs are counted: copies side by side show soon
SHORTEST_PART = 100  # rows
SURE_COUNT = 40  # a mean below a quarter of such a count has probability 1e-11

HASH, TIMES = "hash", "times"
COUNTS = {HASH: pl.UInt64, TIMES: pl.get_index_type()}
COPIES = range(2, MOST_TIMES + 1)
EACH = math.log(4 * len(COPIES) / FALSE_ALARM)  # nats for each test and number of copies


class Repetition(StrEnum):
    """The trace that copies of rows left in a log."""

    NONE = "none"
    MULTIPLES = "multiples"
    TIMES = "times"
    RUNS = "runs"
    PARTS = "parts"


@dataclass(frozen=True)
class RepeatedRows:
    """The finding about a log of `rows` rows.

    Of a number of things, `observed` show the trace, of which about `expected` would by chance: of
    different rows that occur a multiple of `times`, or exactly so often (estimated in large logs);
    of runs of equal rows; of rows that equal the row one part before.
    """

    trace: Repetition = Repetition.NONE
    times: int = 1
    observed: int = 0
    expected: float = 0.0
    of: int = 0
    rows: int = 0

    @property
    def found(self) -> bool:
        return self.trace is not Repetition.NONE

    @staticmethod
    def from_data(data: object) -> RepeatedRows:
        """The finding of a policy.json, or `InvalidSnapshot`."""
        found = fields_from_data(RepeatedRows, data, "repeated", trace=Repetition)
        numbers = (found.times, found.observed, found.expected, found.of, found.rows)
        if not all(isinstance(x, int | float) and 0 <= x < math.inf for x in numbers):
            raise InvalidSnapshot("repeated", data, "its counts are not numbers", "load another")
        return found


class RowCounter:
    """The counts of a log's different rows, from the hashes of rows in their order.

    >>> rows = pl.Series(range(1_000), dtype=pl.UInt64).hash()
    >>> counter = RowCounter()
    >>> counter.add(rows.sample(5_000, with_replacement=True, seed=1))
    >>> counter.finding().trace
    <Repetition.NONE: 'none'>
    >>> counter.add((rows + 1).repeat_by(2).explode())
    >>> counter.finding().trace
    <Repetition.MULTIPLES: 'multiples'>
    """

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most = most_rows
        self._step = 1  # a power of 2: hashes that are multiples of it are counted
        self._counts = [pl.DataFrame(schema=COUNTS)]  # the first has all but the last batches
        self._runs: Counter[int] = Counter()
        self._last, self._length = np.uint64(0), 0  # of the run that may go on
        self._order: list[NDArray[np.uint8]] = []
        self.rows = 0

    def add(self, hashes: pl.Series) -> None:
        """Count more rows."""
        if not len(hashes):
            return
        self.rows += len(hashes)
        values = hashes.to_numpy()
        if self._step > 1:
            sampled = (values & np.uint64(self._step - 1)) == 0
            hashes = pl.Series(values[sampled])
        else:  # where rows differ so much, copies show without an order
            if self.rows <= MOST_IN_RUNS:
                self._add_runs(values)
            if self.rows <= MOST_ORDERED:
                self._order.append((values >> np.uint64(56)).astype(np.uint8))
        self._counts.append(hashes.alias(HASH).value_counts(name=TIMES))
        if sum(map(len, self._counts[1:])) > self._most:
            self._merge()

    def _merge(self) -> pl.DataFrame:
        """The counts of all batches; rows are dropped if there are too many."""
        counts = pl.concat(self._counts).group_by(HASH).agg(pl.col(TIMES).sum())
        while len(counts) > self._most:
            self._step *= 2
            counts = counts.filter(pl.col(HASH) & (self._step - 1) == 0)
        self._counts = [counts]
        return counts

    def _add_runs(self, hashes: NDArray[np.uint64]) -> None:
        changes = np.concatenate([[hashes[0] != self._last], hashes[1:] != hashes[:-1]])
        starts = np.flatnonzero(changes)
        if not len(starts):
            self._length += len(hashes)
            return
        if self._length:
            self._runs[self._length + int(starts[0])] += 1
        for length, number in enumerate(np.bincount(np.diff(starts)).tolist()):
            if number:
                self._runs[length] += number
        self._last, self._length = hashes[-1], len(hashes) - int(starts[-1])

    def finding(self) -> RepeatedRows:
        """The first trace of copies, or none."""
        cells = Counter(self._merge()[TIMES].to_list())
        found = _multiples(cells, self._step) or _times(cells, self._step)
        if found is None and self._step == 1:
            found = self._found_runs() or self._found_parts()
        return RepeatedRows(**vars(found or RepeatedRows()) | {"rows": self.rows})

    def _found_runs(self) -> RepeatedRows | None:
        runs = self._runs + Counter([self._length] if self._length else [])
        whole = {k: sum(n for length, n in runs.items() if length % k == 0) for k in COPIES}
        nats = {k: _chernoff(whole[k], runs.total(), 1.0 / k) for k in COPIES}
        k = max(COPIES, key=nats.__getitem__)
        if nats[k] <= EACH:
            return None
        return RepeatedRows(Repetition.RUNS, k, whole[k], runs.total() / k, runs.total())

    def _found_parts(self) -> RepeatedRows | None:
        if self.rows > MOST_ORDERED or not self.rows:
            return None
        order = np.concatenate(self._order)
        alike = float(((np.bincount(order) / self.rows) ** 2).sum())  # of two independent rows
        for k in reversed(COPIES):
            part, rest = divmod(self.rows, k)
            later = self.rows - part
            if rest or part < SHORTEST_PART or later * -math.log(alike) <= EACH:
                continue
            if _has_period(order, part) and not any(
                _has_period(order, short) for short in range(1, SHORTEST_PART)
            ):
                return RepeatedRows(Repetition.PARTS, k, later, later * alike, later)
        return None


def histogram_finding(cells: Mapping[int, int]) -> RepeatedRows:
    """The finding from the number of different rows by their count, which any engine computes."""
    found = _multiples(cells, 1) or _times(cells, 1) or RepeatedRows()
    rows = sum(count * number for count, number in cells.items())
    return RepeatedRows(**vars(found) | {"rows": rows})


# ---------------------------------------------------------------------------------------- tests


def _multiples(cells: Mapping[int, int], step: int) -> RepeatedRows | None:
    """Whether too many counts are multiples of k; `step` scales those of a sample."""
    different = sum(cells.values())
    if not different:
        return None
    whole = {k: sum(n for count, n in cells.items() if count % k == 0) for k in COPIES}
    chance = {
        k: sum(n * _share_of_multiples(k, count) for count, n in cells.items()) / different
        for k in COPIES
    }
    nats = {k: _chernoff(whole[k] - 1, different - 1, chance[k]) for k in COPIES}
    k = max(COPIES, key=nats.__getitem__)
    if nats[k] <= EACH:
        return None
    of = different * step
    return RepeatedRows(Repetition.MULTIPLES, k, whole[k] * step, chance[k] * of, of)


def _times(cells: Mapping[int, int], step: int) -> RepeatedRows | None:
    """Whether too many rows occur j times, against those that occur j − 1 and j + 1 times.

    The statistic is the smallest sum of three Kullback–Leibler divergences between the observed
    numbers a, b, c and Poisson means that chance allows. Those means are a + s, b − 2s and c + s,
    by Lagrange. Each divergence exceeds x with probability 2 exp(−x) at most.
    """
    for j in COPIES:
        a, b, c = (cells.get(j + d, 0) for d in (-1, 0, 1))
        ratio = j / (j + 1)
        if ratio * b**2 <= a * c:
            continue
        square, linear, constant = 1 - 4 * ratio, a + c + 4 * ratio * b, a * c - ratio * b**2
        s = 2 * -constant / (linear + math.sqrt(linear**2 - 4 * square * constant))
        g = b * math.log(b / (b - 2 * s))
        g += sum(x * math.log(x / (x + s)) for x in (a, c) if x)
        excess = max(g - 3 * math.log(2), 0.0)
        if excess - math.log(1 + excess + excess**2 / 2) > EACH:
            expected = math.sqrt(a * c / ratio)
            return RepeatedRows(
                Repetition.TIMES, j, b * step, expected * step, sum(cells.values()) * step
            )
    return None


def _chernoff(hits: int, of: int, p: float) -> float:
    """The nats by which `hits` of independent trials exceed chance: −log of Chernoff's bound."""
    share = hits / of if of > 0 else 0.0
    if share <= p:
        return 0.0
    misses = 0.0 if share == 1.0 else (1.0 - share) * math.log((1.0 - share) / (1.0 - p))
    return of * (share * math.log(share / p) + misses)


@functools.cache
def _share_of_multiples(k: int, count: int) -> float:
    """The largest probability that a positive Poisson variable is a multiple of k.

    The mean is at least a quarter of a large count, which brings the probability close to 1/k.

    >>> [round(_share_of_multiples(k, 1), 2) for k in (2, 5, 10)]
    [0.5, 0.2, 0.13]
    >>> round(_share_of_multiples(10, 1_000), 3)
    0.1
    """
    least = count / 4 if count >= SURE_COUNT else 0.01
    return max(share for mean, share in _shares(k) if mean >= min(least, 2.0 * k**2))


@functools.cache
def _shares(k: int) -> list[tuple[float, float]]:
    """The probability of a multiple of k for many means: a sum over the roots of unity."""
    means: Array = np.geomspace(0.01, 2.0 * k**2, 500)
    roots = np.exp(2j * np.pi * np.arange(k) / k)
    multiple = np.exp(np.outer(means, roots - 1)).mean(axis=1).real
    zero = np.exp(-means)
    return list(zip(means.tolist(), ((multiple - zero) / (1 - zero)).tolist(), strict=True))


def _has_period(order: NDArray[Any], period: int) -> bool:
    return bool((order[period:] == order[:-period]).all())
