"""The evidence of a certificate: its sums over a log, and the constraints on its arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.behaviors import BEHAVIOR, Behavior, n_actions_of
from understudy.constraints import (
    LARGEST_COUNT,
    LARGEST_RATE,
    ROUNDS,
    TRUTH,
    Array,
    Constraint,
    ConstraintViolation,
    array,
    enforce,
    having,
    integer,
    number,
)
from understudy.errors import InvalidArgument
from understudy.types import Integers, kernel_view, read_only, saved

LARGEST_BET = 0.9  # of the λ on a gain x ≥ −1: below 1, so that no round can take all the wealth
# 4, 2, 1, …, 2^-21: the best λ is of the order √(log(1/δ)/n), so this serves some 10^12 rounds.
GRID: Array = read_only(2.0 ** -np.arange(-2.0, 22.0))


def _lambdas(value: Any) -> Array:
    checked: Array = GRID if value is None else POSITIVE_ROW.parse(value)
    if not len(checked):
        raise ConstraintViolation("the grid is empty")
    if checked.min() <= 0.0:
        raise ConstraintViolation(f"it holds {checked.min():g}, and every λ must be positive")
    if checked.min() > 1.0:
        raise ConstraintViolation("the gain bets 0.9 λ for every λ of at most 1, and there is none")
    return read_only(np.sort(checked)[::-1].copy())


CONFIDENCE = number(0.0, 1.0, "pass a number between 0 and 1, such as 0.95", above=True, below=True)
POSITIVE_ROW = array("", low=0.0, high=LARGEST_RATE)
LAMBDAS = Constraint(
    "leave it out for 4, 2, 1, …, 2^-21, or pass positive numbers, one of them at most 1",
    _lambdas,
    ([], [0.0], [1.0, -0.5], [2.0, 4.0], [[0.5]], [math.nan], [math.inf], [1e101], "wide", 0.5),
)


@saved
@dataclass(frozen=True, eq=False)
class Evidence:
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

    @staticmethod
    def none(size: int, counted: int) -> Evidence:
        """The evidence before round 1, with `size` bets in all and `counted` actions to count."""
        nothing, one = read_only(np.zeros(size)), read_only(np.ones(size))
        counts = read_only(np.zeros(counted, dtype=np.int64))
        return Evidence(0, nothing, one, read_only(np.zeros(4)), counts, crossed=0, merged=False)

    @staticmethod
    def from_sufficient_statistics(rounds: int, S: ArrayLike, totals: ArrayLike) -> Evidence:
        """The evidence of rounds summed elsewhere; the caller tests whether it crosses 1/δ."""
        uncounted, one = np.zeros(0, dtype=np.int64), read_only(np.ones(np.size(S)))
        evidence = Evidence(rounds, S, one, totals, uncounted, crossed=0, merged=True)  # type: ignore[arg-type] # made arrays next
        enforce(evidence)
        return evidence

    def log_wealths(self) -> Array:
        """S_i of all grids."""
        S = np.empty(len(self.sums))
        kernels.certificates.log_wealths(kernel_view(self.sums), kernel_view(self.products), S)
        return S

    def after(
        self,
        lambdas: Array,
        size: int,
        threshold: float,
        columns: tuple[Array, Array, Array],
        counts: Integers,
    ) -> Evidence:
        """The evidence after more rounds, given as columns π_t(b), q_t(b) and R."""
        sums, products, totals = self.sums.copy(), self.products.copy(), self.totals.copy()
        crossed = kernels.certificates.observe(
            lambdas,
            size,
            threshold,
            sums,
            products,
            totals,
            self.rounds,
            self.crossed,
            *(kernel_view(column) for column in columns),
        )
        rounds = self.rounds + len(columns[0])
        arrays = (read_only(sums), read_only(products), read_only(totals), counts)
        return Evidence(rounds, *arrays, crossed, self.merged)

    def count(self, actions: Integers, delta: float) -> tuple[Array, Integers]:
        """Upper confidence bounds on q(b_t) from the rounds before t, and the counts after all.

        (t−1) kl(q̂_t(a), q(a)) ≤ log(K t (t+1)/δ₁) for all a and t with probability 1 − δ₁.
        """
        counts, t = self.counts.copy(), self.rounds + np.arange(1.0, len(actions) + 1.0)
        seen, q = np.empty(len(actions), dtype=np.int64), np.empty(len(actions))
        kernels.certificates.count_before(counts, kernel_view(actions), seen)
        budgets = math.log(len(counts) / delta) + np.log(t) + np.log(t + 1.0)
        frequencies = seen / np.maximum(t - 1.0, 1.0)
        kernels.certificates.kl_uppers(
            kernel_view(frequencies), kernel_view(t - 1.0), kernel_view(budgets), q
        )
        return q, read_only(counts)

    def merge(self, other: Evidence) -> Evidence:
        """The evidence of both logs: sums add up; the caller tests whether it crosses 1/δ."""
        sums = read_only(self.log_wealths() + other.log_wealths())
        totals = read_only(self.totals + other.totals)
        one, rounds = read_only(np.ones(len(sums))), self.rounds + other.rounds
        return Evidence(rounds, sums, one, totals, self.counts, crossed=0, merged=True)

    def crosses(self, start: int, delta: float) -> bool:
        """Whether the S_i of the gain, from `start` on, have Σ_i ρ_i e^{S_i} ≥ 1/δ: a promotion."""
        S = self.log_wealths()[start:]
        log_mixture = np.logaddexp.reduce(S) - math.log(max(len(S), 1))
        return bool(log_mixture >= -math.log(delta))

    def fits(self, size: int, n_lambdas: int, counted: int) -> bool:
        """Whether a certificate can have it: two grids of this size, `n_lambdas` in all."""
        if (
            not self.sums.shape == self.products.shape == (n_lambdas,)
            or self.totals.shape != (4,)
            or self.counts.shape != (counted,)
        ):
            return False
        return (
            (not counted or sum(self.counts.tolist()) == self.rounds)
            and bool((self.log_wealths()[: 2 * size] >= 0).all())
            and bool(self.totals[0] <= self.rounds)
            and bool((self.products <= kernels.certificates.LARGEST_PRODUCT).all())
            and bool(self.rounds % kernels.certificates.FACTORS or (self.products == 1.0).all())
            and self.crossed <= (0 if counted else self.rounds)
        )


def resolve_n_actions(behavior: Behavior | None, n_actions: int | None) -> int:
    """K of the behavior, or the argument `n_actions`; an error if both or neither fit."""
    if behavior is None:
        if n_actions is None:
            raise InvalidArgument(
                "n_actions",
                None,
                "the number of actions is not known without a behavior",
                "pass n_actions=K, or the behavior",
            )
        return n_actions
    known = n_actions_of(behavior)
    if n_actions not in {None, known}:
        raise InvalidArgument(
            "n_actions", n_actions, f"the behavior has {known} actions", "leave it out"
        )
    return known


BEHAVIOR_OR_NONE = Constraint(
    f"{BEHAVIOR.remedy}, or None to count it", BEHAVIOR.optional().parse, BEHAVIOR.optional().wrong
)


EVIDENCE = having(
    "pass the evidence of a certificate that was made with the same arguments",
    "log_wealths",
    "crosses",
)
