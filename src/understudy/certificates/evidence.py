"""The evidence of a certificate: its bets and their wealth; the checks of its arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

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
from understudy.schedules import geometric_grid
from understudy.types import Integers, kernel_view, read_only, saved

# Versions of the rules: of release 0.5, and of what is new. Certificates have one, and so have
# learners from logs (`understudy.logs.features`): a live study has one version for both.
FIRST_RULES, RULES = 1, 2
LOWER, UPPER, GAIN, LOSS = range(4)  # the parts of a certificate, in the order of its sums

LARGEST_BET = 0.9  # of the λ on a gain x ≥ −1: below 1, so that no round can take all the wealth
# 4, 2, 1, …, 2^-21: the best λ is of the order √(log(1/δ)/n), so this serves some 10^12 rounds.
GRID: Array = read_only(2.0 ** -np.arange(-2.0, 22.0))

# Of the wealth, for bets without a center, which are valid whatever is known of W. Centered bets
# are better in nearly all games; log 5 is what they cost where centers do not help.
RAW_WEIGHT = 0.2
# ρ_i ∝ 1/(i + 4)² over the bets of a gain: large λ decide early, and no λ is expensive.
PRIOR_SHIFT, PRIOR_POWER = 4.0, 2.0
# Of δ, for all windows that begin after round 1. It enters through log(1/δ): .9 for the whole log
# costs .1 there, under 2 % of the rounds to a promotion.
WINDOW_SHARE = 0.1
# Rounds after which windows are looked at, and curves have a point: every 2 %. These are 1 707
# points up to the largest count.
POINTS: Integers = geometric_grid(2)
POINTS_SET = frozenset(POINTS.tolist())
# Centers without an order of rows: the mean reward is not far from one of them.
CENTERS: Array = read_only(np.array([0.25, 0.5, 0.75, 1.0]))
MOST_WINDOWS = 62  # starts 2, 4, 8, …: below the largest count


class Window(NamedTuple):
    """The rounds from `start` on, and a lower bound on the mean gain over production in them."""

    start: int
    gain: float


class WeightedRounds(NamedTuple):
    """Rounds to observe: π_t(b), q_t(b), R, and W_t ≥ max_a π_t(a)/q_t(a), inf if not known.

    A row that cannot be used has nan as its probability or propensity, as its reward, or as both.
    `baseline` has π₀(b), known where π_t(b) is; without it the gain is over production.
    """

    probabilities: Array
    propensities: Array
    rewards: Array
    ratios: Array
    baseline: Array | None = None

    def take(self, rows: Integers) -> WeightedRounds:
        """Some of the rounds."""
        return WeightedRounds(*(None if one is None else one[rows] for one in self))  # type: ignore[arg-type] # as they are here

    def kernel_columns(self) -> tuple[Array, Array, Array, Array, Array]:
        """w, R, W, w₀ and D as kernels take them; W bounds (π_t − π₀)/q_t too, for any π₀."""
        w, W = self.probabilities / self.propensities, np.asarray(self.ratios)
        if self.baseline is None:
            found = w, self.rewards, W, np.ones(len(w)), W - 1.0
        else:
            found = w, self.rewards, W, self.baseline / self.propensities, W
        each = map(kernel_view, found)
        return next(each), next(each), next(each), next(each), next(each)


class BaselineRounds(NamedTuple):
    """The baseline in rounds to observe: π₀(b_t), and its W_t, as of a target."""

    probabilities: Array
    ratios: Array

    def part(self, rounds: slice) -> BaselineRounds:
        """Some of the rounds."""
        return BaselineRounds(self.probabilities[rounds], self.ratios[rounds])

    def take(self, rows: Integers) -> BaselineRounds:
        """The rounds at these places."""
        return BaselineRounds(self.probabilities[rows], self.ratios[rows])


@dataclass(frozen=True, eq=False)
class Bets:
    """The bets of a certificate, and the wealth at which they decide.

    `values` are λ of the bounds on the reward, `gains` those on the gain, empty if there is none.
    `centers` are constants, or None for the mean reward so far. `windows` says whether gains are
    also bounded since rounds 2, 4, 8, …: this needs an order of rounds, and a part of δ. `most` is
    B, the largest weight that the baseline can have: 1 of production.
    """

    values: Array
    gains: Array
    delta: float
    centers: Array | None = None
    windows: bool = True
    most: float = 1.0

    @cached_property
    def grids(self) -> Array:
        """λ of lower bound, upper bound and gain, one after the other: of bets without centers."""
        return kernel_view(np.concatenate([self.values, self.values, self.gains]))

    @property
    def rows(self) -> int:
        """How many rows of bets each part has: one without a center, and one per center."""
        return 2 if self.centers is None else 1 + len(self.centers)

    @property
    def size(self) -> int:
        """The number of all bets."""
        return 2 * self.rows * (len(self.values) + len(self.gains))

    def place(self, part: int) -> slice:
        """The sums of a part."""
        first = self.rows * len(self.values)
        second = self.rows * len(self.gains)
        starts = [0, first, 2 * first, 2 * first + second, 2 * (first + second)]
        return slice(starts[part], starts[part + 1])

    @cached_property
    def weights(self) -> Array:
        """The share of the wealth of each row, (rows, 1)."""
        if self.centers is None:
            return np.array([[RAW_WEIGHT], [1.0 - RAW_WEIGHT]])
        return np.full((self.rows, 1), 1.0 / self.rows)  # 0 is one of the possible centers

    @cached_property
    def prior(self) -> Array:
        """ρ of all bets of a gain, row by row."""
        rho = 1.0 / (np.arange(len(self.gains)) + PRIOR_SHIFT) ** PRIOR_POWER
        return kernel_view((self.weights * (rho / rho.sum())).ravel())

    @property
    def whole_delta(self) -> float:
        """The part of δ for the gain since round 1."""
        return self.delta * (1.0 - WINDOW_SHARE) if self.windows else self.delta

    def window_delta(self, j: int) -> float:
        """The part of δ for the gain since round 2^j, j ≥ 1: they sum to the share of windows."""
        return WINDOW_SHARE * self.delta / (j * (j + 1.0))

    @cached_property
    def thresholds(self) -> tuple[float, float, Array]:
        """The wealth that shows a gain since round 1, a loss, and a gain in each window."""
        if self.delta == 0.0:  # they decide nothing
            return math.inf, math.inf, kernel_view(np.empty(0))
        windows = [1.0 / self.window_delta(j) for j in range(1, MOST_WINDOWS + 1)]
        return 1.0 / self.whole_delta, 1.0 / self.delta, kernel_view(np.array(windows))

    @cached_property
    def kernel_centers(self) -> tuple[Array, bool]:
        """The centers of the rows after the first, and whether they are the mean so far."""
        running = self.centers is None
        return kernel_view(np.zeros(1) if self.centers is None else self.centers), running

    @cached_property
    def kernel_grids(self) -> tuple[Array, Array, float]:
        return kernel_view(self.values), kernel_view(self.gains), self.most

    def terms(self, ratio: float, *, production: bool = True) -> list[tuple[int, float, float]]:
        """Part, λ and center of every bet, in the order of the sums, if W is `ratio` in all rows.

        The center of the parts of the upper bound and of the loss is one of 1 − R. The gain is over
        `production`, or over another baseline.
        """
        assert self.centers is not None  # the mean so far depends on the order of rows
        known = math.isfinite(ratio)
        found: list[tuple[int, float, float]] = []
        for part in (LOWER, UPPER, GAIN, LOSS):
            excess = ratio - 1.0 if production or part in (LOWER, UPPER) else ratio
            cap = kernels.certificates.KAPPA / excess if excess > 0.0 else math.inf
            grid = (self.values if part in (LOWER, UPPER) else self.gains).tolist()
            for center in (0.0, *self.centers.tolist()):
                own = 1.0 - center if part in (UPPER, LOSS) and center else center
                found += [(part, bet, min(own, cap / bet) if known else 0.0) for bet in grid]
        return found


@saved(tag="CenteredEvidence")
@dataclass(frozen=True, eq=False)
class Evidence:
    """The state of a certificate: the wealth of every bet, and the totals of the log.

    The log-wealth S_i is `sums[i]` + log `products[i]`, for the bets of the lower bound, the upper
    bound, the gain and the loss (`kernels.certificates`). `totals` are Σ R, Σ w R, Σ w and Σ w²,
    and `usable` the number of usable rows, the sum of their rewards, and the number of those whose
    bets had centers. `crossed` and `worse` are the first rounds that justified a promotion, and
    that showed a loss, or 0; if logs were `merged`, the first observed ones. Row j − 1 of `windows`
    has the S_i of the gain before round 2^j.
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
        "usable": array("pass the number of usable rows and their sums", low=0.0),
        "crossed": integer(0, "pass a round, or 0", LARGEST_COUNT),
        "worse": integer(0, "pass a round, or 0", LARGEST_COUNT),
        "windows": array("pass a row of sums per window", dimensions=(2,)),
        "merged": TRUTH,
    }

    @staticmethod
    def none(bets: Bets) -> Evidence:
        """The evidence before round 1."""
        nothing, one = read_only(np.zeros(bets.size)), read_only(np.ones(bets.size))
        totals, usable = read_only(np.zeros(4)), read_only(np.zeros(3))
        windows = read_only(np.zeros((0, len(bets.prior))))
        return Evidence(0, nothing, one, totals, usable, 0, 0, windows, merged=False)

    @staticmethod
    def from_sufficient_statistics(
        bets: Bets, rounds: int, S: ArrayLike, totals: ArrayLike, *, centered: bool = True
    ) -> Evidence:
        """The evidence of usable rounds summed elsewhere, with S_i of all bets."""
        sums = replace(
            Evidence.none(bets),
            rounds=rounds,
            sums=S,  # type: ignore[arg-type] # made arrays next
            totals=totals,  # type: ignore[arg-type]
            merged=True,
        )
        enforce(sums)
        if not sums._has_shapes(bets, windows=0):
            reason = f"{bets.size} bets have as many, and there are 4 totals"
            raise InvalidArgument(
                "S", S, reason, "pass S_i of all bets, as `bets.terms` lists them"
            )
        usable = np.array([sums.rounds, sums.totals[0], sums.rounds * centered])
        return replace(sums, usable=read_only(usable)).looked_at(bets)

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

    def after(self, bets: Bets, columns: WeightedRounds) -> Evidence:
        """The evidence after more rounds."""
        sums, products = self.sums.copy(), self.products.copy()
        totals, usable = self.totals.copy(), self.usable.copy()
        n = len(columns.rewards)
        rounds, follows = self.rounds + n, bets.windows and not self.merged
        windows = np.zeros((_windows(rounds) if follows else 0, len(bets.prior)))
        windows[: len(self.windows)] = self.windows
        looks = POINTS[slice(*np.searchsorted(POINTS, [self.rounds, rounds], side="right"))]
        crossed, worse = kernels.certificates.observe(
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
            columns.kernel_columns(),
        )
        return Evidence(
            rounds,
            read_only(sums),
            read_only(products),
            read_only(totals),
            read_only(usable),
            crossed,
            worse,
            read_only(windows),
            self.merged,
        )

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
        return both.looked_at(bets)

    def looked_at(self, bets: Bets) -> Evidence:
        """The evidence with `crossed` and `worse` set by the sums after the last round alone."""
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

    def fits(self, bets: Bets) -> bool:
        """Whether a certificate with these bets can have it: for snapshots that were damaged."""
        windows = 0 if self.merged or not bets.windows else _windows(self.rounds)
        if not self._has_shapes(bets, windows):
            return False
        rows, earned, centered = self.usable.tolist()
        crosses = self._crosses(bets)
        return (
            self.rounds >= self.totals[0]
            and max(earned, centered) <= rows <= self.rounds
            and bool(self.rounds % kernels.certificates.FACTORS or (self.products == 1.0).all())
            and bool((self.products <= kernels.certificates.LARGEST_PRODUCT).all())
            and max(self.crossed, self.worse) <= self.rounds
            and (bool(self.crossed) or not crosses[0])
            and (bool(self.worse) or not crosses[1])
        )

    def _has_shapes(self, bets: Bets, windows: int) -> bool:
        """Whether all arrays have the shapes of these bets."""
        return (
            self.sums.shape == self.products.shape == (bets.size,)
            and self.totals.shape == (4,)
            and self.usable.shape == (3,)
            and self.windows.shape == (windows, len(bets.prior))
        )


def confidence_of_each(confidence: float, statements: int) -> float:
    """1 − δ/m, with which each of m statements holds if all hold together with 1 − δ.

    >>> confidence_of_each(0.5, 2), confidence_of_each(0.1, 1)
    (0.75, 0.1)
    """
    return confidence if statements == 1 else 1.0 - (1.0 - confidence) / statements


def parts_between_points(before: int, rounds: int) -> list[slice]:
    """Parts of the next rounds that end after a round of `POINTS`, or after the last one.

    >>> parts_between_points(0, 3)
    [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)]
    """
    first, last = np.searchsorted(POINTS, [before, before + rounds], side="right")
    ends = sorted({before, *POINTS[first:last].tolist(), before + rounds})
    return [slice(low - before, high - before) for low, high in pairwise(ends)]


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


# ------------------------------------------------------------------------------------ arguments


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
    "crossed",
)
BASELINE_RATIO = number(1.0, LARGEST_RATE, "pass B, such as 1/f of the least propensity f")
RULES_VERSION = integer(FIRST_RULES, "pass 2, or 1 for the rules of release 0.5", RULES)


def _centers(value: Any) -> Array:
    checked: Array = CENTER_ROW.parse(value)
    if (checked <= 0.0).any():
        raise ConstraintViolation("0 is always one of them")
    return read_only(np.sort(checked).copy())


CENTER_ROW = array("", low=0.0, high=1.0)
CENTERS_OR_NONE = Constraint(
    "leave it out for the mean reward so far, or pass rewards in (0, 1] that rows in any order "
    "share, such as [0.25, 0.5, 0.75, 1]",
    lambda value: None if value is None else _centers(value),
    ([0.0], [-0.5], [1.5], [[0.5]], [math.nan], "wide"),
)
