"""The evidence of a certificate: the wealth of its bets, the totals of the log, and its windows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.certificates.bets import GAIN, LOSS, MOST_WINDOWS, POINTS, Bets, Columns
from understudy.constraints import LARGEST_COUNT, ROUNDS, TRUTH, Array, array, enforce, integer
from understudy.types import kernel_view, read_only, saved


@saved(tag="CenteredEvidence")
@dataclass(frozen=True, eq=False)
class Evidence:
    """The state of a certificate: the wealth of every bet, and the totals of the log.

    The log-wealth S_i is `sums[i]` + log `products[i]`, for the parts of the lower bound, the upper
    bound, the gain and the loss, row after row (`kernels.betting`). `totals` are Σ R, Σ w R, Σ w
    and Σ w², and `usable` the number of usable rows and the sum of their rewards. `crossed` and
    `worse` are the first rounds that justified a promotion, and that showed a loss, or 0; if logs
    were `merged`, the first observed ones. Row j − 1 of `windows` has the S_i of the gain before
    round 2^j.
    """

    rounds: int
    sums: Array
    products: Array
    totals: Array
    usable: Array
    crossed: int
    worse: int
    windows: Array
    merged: bool
    CONSTRAINTS: ClassVar = {  # enforced by snapshots: a certificate makes no wrong one itself
        "rounds": ROUNDS,
        "sums": array("pass one sum per bet"),
        "products": array("pass one positive product per bet", low=5e-324),
        "totals": array("pass four totals", low=0.0),
        "usable": array("pass the number of usable rows and the sum of their rewards", low=0.0),
        "crossed": integer(0, "pass a round, or 0", LARGEST_COUNT),
        "worse": integer(0, "pass a round, or 0", LARGEST_COUNT),
        "windows": array("pass a row of sums per window", dimensions=(2,)),
        "merged": TRUTH,
    }

    @staticmethod
    def none(bets: Bets) -> Evidence:
        """The evidence before round 1."""
        nothing, one = read_only(np.zeros(bets.size)), read_only(np.ones(bets.size))
        totals, usable = read_only(np.zeros(4)), read_only(np.zeros(2))
        windows = read_only(np.zeros((0, len(bets.prior))))
        return Evidence(0, nothing, one, totals, usable, 0, 0, windows, merged=False)

    @staticmethod
    def from_sufficient_statistics(
        bets: Bets, rounds: int, S: ArrayLike, totals: ArrayLike
    ) -> Evidence:
        """The evidence of usable rounds summed elsewhere, with S_i of all bets."""
        sums = replace(
            Evidence.none(bets),
            rounds=rounds,
            sums=S,
            totals=totals,
            usable=np.array([rounds, np.ravel(totals)[0]]),
            merged=True,
        )
        enforce(sums)
        return sums._with_crossing(bets)

    def log_wealths(self) -> Array:
        """S_i of all bets."""
        S = np.empty(len(self.sums))
        kernels.certificates.log_wealths(kernel_view(self.sums), kernel_view(self.products), S)
        return S

    def part(self, bets: Bets, part: int) -> Array:
        """log Σ ρ e^S over the bets of each λ of a part, for equal weights of λ."""
        return _over_rows(bets, part, self.log_wealths()[bets.place(part)])

    def window_part(self, bets: Bets, j: int) -> Array:
        """`part` of the gain in the rounds from 2^j on."""
        return _over_rows(bets, GAIN, self.log_wealths()[bets.place(GAIN)] - self.windows[j - 1])

    def after(self, bets: Bets, columns: Columns) -> Evidence:
        """The evidence after more rounds."""
        sums, products = self.sums.copy(), self.products.copy()
        totals, usable = self.totals.copy(), self.usable.copy()
        n = len(columns.rewards)
        rounds, follows = self.rounds + n, bets.windows and not self.merged
        windows = np.zeros((_windows(rounds) if follows else 0, len(bets.prior)))
        windows[: len(self.windows)] = self.windows
        looks = POINTS[slice(*np.searchsorted(POINTS, [self.rounds, rounds], side="right"))]
        crossed, worse = kernels.betting.observe(
            bets.kernel_grids,
            *bets.kernel_centers,
            bets.prior,
            bets.thresholds,
            kernel_view(looks),
            sums,
            products,
            totals,
            usable,
            windows,
            self.rounds,
            (self.crossed, self.worse),
            (
                kernel_view(columns.probabilities / columns.propensities),
                kernel_view(columns.rewards),
                kernel_view(columns.ratios),
            ),
        )
        arrays = map(read_only, (sums, products, totals, usable))
        return Evidence(rounds, *arrays, crossed, worse, read_only(windows), self.merged)

    def merge(self, bets: Bets, other: Evidence) -> Evidence:
        """The evidence of both logs: sums add up; windows need one order of rounds."""
        both = replace(
            Evidence.none(bets),
            rounds=self.rounds + other.rounds,
            sums=read_only(self.log_wealths() + other.log_wealths()),
            totals=read_only(self.totals + other.totals),
            usable=read_only(self.usable + other.usable),
            merged=True,
        )
        return both._with_crossing(bets)

    def _with_crossing(self, bets: Bets) -> Evidence:
        """The evidence with `crossed` and `worse` set, as its sums allow after the last round."""
        crossed, worse = self._crosses(bets)
        n = self.rounds
        return replace(self, crossed=n if crossed else 0, worse=n if worse else 0)

    def _crosses(self, bets: Bets) -> tuple[bool, bool]:
        """Whether the mixtures since round 1 show a gain, and a loss."""
        if not len(bets.gains):
            return False, False
        gain, loss = (_log_mixture(self.part(bets, part)) for part in (GAIN, LOSS))
        better, worse, _ = bets.thresholds
        return gain >= math.log(better), loss >= math.log(worse)

    def fits(self, bets: Bets, counted: int) -> bool:
        """Whether a certificate with these bets can have it: for snapshots that were damaged."""
        del counted
        windows = 0 if self.merged or not bets.windows else _windows(self.rounds)
        if (
            not self.sums.shape == self.products.shape == (bets.size,)
            or self.totals.shape != (4,)
            or self.usable.shape != (2,)
            or self.windows.shape != (windows, len(bets.prior))
        ):
            return False
        rows, earned = self.usable.tolist()
        crosses = self._crosses(bets)
        return (
            self.rounds >= self.totals[0]
            and earned <= rows <= self.rounds
            and bool(self.rounds % kernels.betting.FACTORS or (self.products == 1.0).all())
            and max(self.crossed, self.worse) <= self.rounds
            and (bool(self.crossed) or not crosses[0])
            and (bool(self.worse) or not crosses[1])
        )


def _windows(rounds: int) -> int:
    """How many of the starts 2, 4, 8, … are in the first rounds."""
    return min(MOST_WINDOWS, max(0, rounds.bit_length() - 1))


def _over_rows(bets: Bets, part: int, S: Array) -> Array:
    """log Σ_rows weight e^S for each λ; of a gain with ρ, relative to equal weights of λ."""
    if part in (GAIN, LOSS):
        size = len(bets.gains)
        log_prior = np.log(bets.prior.reshape(bets.rows, size)) + math.log(size)
    else:
        size, log_prior = len(bets.values), np.log(bets.weights)
    return np.asarray(np.logaddexp.reduce(S.reshape(bets.rows, size) + log_prior, axis=0))


def _log_mixture(S: Array) -> float:
    return float(np.logaddexp.reduce(S)) - math.log(len(S))
