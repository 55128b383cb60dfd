"""Evidence of bets without centers: of certificates of rules 1, and where the behavior is counted.

Files of release 0.5 hold it. They go on by their own rules, bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.certificates.evidence import GAIN, Bets, WeightedRounds
from understudy.constraints import LARGEST_COUNT, ROUNDS, TRUTH, Array, array, enforce, integer
from understudy.types import Integers, kernel_view, read_only, saved


@saved(tag="Evidence")
@dataclass(frozen=True, eq=False)
class UncenteredEvidence:
    """The state of a certificate: the wealth of every bet, and the totals of the log.

    The log-wealth S_i is `sums[i]` + log `products[i]`, for the grids of the lower bound, the upper
    bound and the gain, one after the other. `totals` are Σ R, Σ w R, Σ w and Σ w². `counts` are the
    plays of each action, where the behavior is not known. `crossed` is the first round after which
    the mixture of the gain was at least 1/δ, or 0; if logs were `merged`, the first observed one.
    """

    rounds: int
    sums: Array
    products: Array
    totals: Array
    counts: Integers
    crossed: int
    merged: bool
    CONSTRAINTS: ClassVar = {  # enforced by snapshots: a certificate makes no wrong one itself
        "rounds": ROUNDS,
        "sums": array("pass one sum per λ"),
        "products": array("pass one positive product per λ", low=5e-324),
        "totals": array("pass four totals", low=0.0),
        "counts": array("pass counts", dtype=np.int64, low=0),
        "crossed": integer(0, "pass a round, or 0", LARGEST_COUNT),
        "merged": TRUTH,
    }

    worse = 0  # the gain has no upper bound
    windows: ClassVar[tuple[()]] = ()

    @staticmethod
    def none(bets: Bets, counted: int = 0) -> UncenteredEvidence:
        """The evidence before round 1, with `counted` actions to count."""
        size = len(bets.grids)
        nothing, one = read_only(np.zeros(size)), read_only(np.ones(size))
        counts = read_only(np.zeros(counted, dtype=np.int64))
        totals = read_only(np.zeros(4))
        return UncenteredEvidence(0, nothing, one, totals, counts, crossed=0, merged=False)

    @staticmethod
    def from_sufficient_statistics(
        bets: Bets, rounds: int, S: ArrayLike, totals: ArrayLike
    ) -> UncenteredEvidence:
        """The evidence of rounds summed elsewhere, with S_i of all grids."""
        uncounted, one = np.zeros(0, dtype=np.int64), read_only(np.ones(np.size(S)))
        evidence = UncenteredEvidence(rounds, S, one, totals, uncounted, crossed=0, merged=True)  # type: ignore[arg-type] # made arrays next
        enforce(evidence)
        return evidence.looked_at(bets)

    def log_wealths(self) -> Array:
        """S_i of all grids."""
        S = np.empty(len(self.sums))
        kernels.certificates.log_wealths(kernel_view(self.sums), kernel_view(self.products), S)
        return S

    def part(self, bets: Bets, part: int) -> Array:
        """S_i of a bound, with equal weights."""
        start, size = part * len(bets.values), len(bets.gains if part == GAIN else bets.values)
        return self.log_wealths()[start : start + size]

    def after(
        self, bets: Bets, columns: WeightedRounds, counts: Integers | None = None
    ) -> UncenteredEvidence:
        """The evidence after more rounds; `counts` are the plays of each action after them."""
        sums, products, totals = self.sums.copy(), self.products.copy(), self.totals.copy()
        crossed = kernels.uncentered_bets.observe(
            bets.grids,
            len(bets.values),
            1.0 / bets.delta,
            sums,
            products,
            totals,
            self.rounds,
            self.crossed,
            kernel_view(columns.probabilities),
            kernel_view(columns.propensities),
            kernel_view(columns.rewards),
        )
        rounds = self.rounds + len(columns.rewards)
        after = self.counts if counts is None else counts
        arrays = (read_only(sums), read_only(products), read_only(totals), after)
        return UncenteredEvidence(rounds, *arrays, crossed, self.merged)

    def count(self, actions: Integers, delta: float) -> tuple[Array, Integers]:
        """Upper confidence bounds on q(b_t) from the rounds before t, and the counts after all.

        (t−1) kl(q̂_t(a), q(a)) ≤ log(K t (t+1)/δ₁) for all a and t with probability 1 − δ₁.
        """
        counts, t = self.counts.copy(), self.rounds + np.arange(1.0, len(actions) + 1.0)
        seen, q = np.empty(len(actions), dtype=np.int64), np.empty(len(actions))
        kernels.confidence.count_before(counts, kernel_view(actions), seen)
        budgets = math.log(len(counts) / delta) + np.log(t) + np.log(t + 1.0)
        frequencies = seen / np.maximum(t - 1.0, 1.0)
        kernels.confidence.kl_uppers(
            kernel_view(frequencies), kernel_view(t - 1.0), kernel_view(budgets), q
        )
        return q, read_only(counts)

    def merge(self, bets: Bets, other: UncenteredEvidence) -> UncenteredEvidence:
        """The evidence of both logs: sums add up."""
        sums = read_only(self.log_wealths() + other.log_wealths())
        totals = read_only(self.totals + other.totals)
        one, rounds = read_only(np.ones(len(sums))), self.rounds + other.rounds
        both = UncenteredEvidence(rounds, sums, one, totals, self.counts, crossed=0, merged=True)
        return both.looked_at(bets)

    def looked_at(self, bets: Bets) -> UncenteredEvidence:
        """The evidence with `crossed` set by the sums after the last round alone."""
        return replace(self, crossed=self.rounds if self._crosses(bets) else 0)

    def _crosses(self, bets: Bets) -> bool:
        """Whether the S_i of the gain have Σ_i ρ_i e^{S_i} ≥ 1/δ: a promotion."""
        S = self.part(bets, GAIN)
        log_mixture = np.logaddexp.reduce(S) - math.log(max(len(S), 1))
        return bool(log_mixture >= -math.log(bets.delta))

    def fits(self, bets: Bets, counted: int) -> bool:
        """Whether a certificate with these bets can have it: for snapshots that were damaged."""
        if (
            not self.sums.shape == self.products.shape == bets.grids.shape
            or self.totals.shape != (4,)
            or self.counts.shape != (counted,)
        ):
            return False
        return (
            (not counted or sum(self.counts.tolist()) == self.rounds)
            and bool((self.log_wealths()[: 2 * len(bets.values)] >= 0).all())
            and bool(self.totals[0] <= self.rounds)
            and bool((self.products <= kernels.uncentered_bets.LARGEST_PRODUCT).all())
            and bool(self.rounds % kernels.uncentered_bets.FACTORS or (self.products == 1.0).all())
            and self.crossed <= (0 if counted else self.rounds)
            and (bool(self.crossed) or bool(counted) or not self._crosses(bets))
        )
