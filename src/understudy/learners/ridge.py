"""Ridge regression of the reward on the context, one for every action, as a policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.constraints import (
    COUNT,
    N_ACTIONS,
    POSITIVE,
    ROUNDS,
    TRUTH,
    Array,
    array,
    constrained,
    enforce,
    number,
)
from understudy.errors import InvalidArgument
from understudy.learners.linear import Linear, linear_spec, refuse_large_regressions
from understudy.protocols import CompiledPath, EventSpec, Recorder
from understudy.types import Log, kernel_view, read_only, saved

# Rewards are in [0, 1], so 1 is nearly uniform, and below 1e-6 differences are rounding.
TEMPERATURES = array("pass one or more temperatures τ, 1e-6 to 1e6", low=1e-6, high=1e6)
BETAS = array("pass a pessimism β ≥ 0 for each temperature", low=0.0, high=1e6)
ONE_OR_MORE = array(
    "pass a temperature τ, or several, 1e-6 to 1e6", dimensions=(0, 1), low=1e-6, high=1e6
)
ONE_OR_MORE_BETAS = array(
    "pass a pessimism β ≥ 0, or one for each temperature", dimensions=(0, 1), low=0.0, high=1e6
)
# Of a squared feature to the ridge: rounding leaves four digits where contexts depend linearly.
LARGEST_RATIO = 1e12


@saved
@dataclass(frozen=True, eq=False)
class Regressions:
    """The regression of every action after the rows so far.

    `inverse` holds the lower triangles of A_a⁻¹, (K, p(p + 1)/2), row by row; `by_reward` is
    A_a⁻¹ Σ xR and `by_one` is A_a⁻¹ Σ x, both (K, p). `rewards` is Σ R of all actions.
    """

    inverse: Array
    by_reward: Array
    by_one: Array
    counts: Array
    rewards: float
    rounds: int
    CONSTRAINTS: ClassVar = {  # enforced by snapshots: a learner makes no wrong state itself
        "inverse": array("pass a lower triangle for every action", dimensions=(2,)),
        "by_reward": array("pass p numbers for every action", dimensions=(2,)),
        "by_one": array("pass p numbers for every action", dimensions=(2,)),
        "counts": array("pass the rows of every action", dtype=np.int64, low=0),
        "rewards": number(0.0, math.inf, "pass the sum of all rewards"),
        "rounds": ROUNDS,
    }


@saved
@dataclass(frozen=True, eq=False)
class Ridge(Linear[Regressions]):
    r"""Plays $\pi(a|x) \propto \exp((\hat r(x, a) - \beta \|x\|_{A_a^{-1}})/\tau)$

    with $\hat r(x, a) = \bar r + x^\top A_a^{-1} \sum x (R - \bar r)$ over the rows of action a,
    $A_a = \ell I + \sum x x^\top$, and r̄ the mean reward of all rows so far (0 unless `centered`).

    Several temperatures are variants of one policy that share their regressions: a mixture of
    experts takes each as an expert; alone, the policy is their mean. The state is a sum over rows,
    in any order, so states can be merged. Rewards of 0 count too.
    """

    n_actions: int
    dimension: int
    ridge: float
    temperatures: Array
    betas: Array
    centered: bool = True
    CONSTRAINTS: ClassVar = {
        "n_actions": N_ACTIONS,
        "dimension": COUNT,
        "ridge": POSITIVE,
        "temperatures": TEMPERATURES,
        "betas": BETAS,
        "centered": TRUTH,
    }
    COMPILED: ClassVar = CompiledPath.LOGS

    def __post_init__(self) -> None:
        enforce(self)
        if not len(self.temperatures):
            raise InvalidArgument("temperatures", [], "there is none", TEMPERATURES.remedy)
        if len(self.temperatures) != len(self.betas):
            reason = f"there are {len(self.temperatures)} temperatures"
            raise InvalidArgument("betas", self.betas, reason, BETAS.remedy)
        K = self.n_actions
        refuse_large_regressions(K, self.dimension, lambda p: K * (p * (p + 1) // 2))

    @cached_property
    def spec(self) -> EventSpec:
        return linear_spec(self.n_actions, (self.dimension,))

    @property
    def variants(self) -> tuple[str, ...]:
        if len(self.temperatures) == 1:
            return ("",)
        return tuple(
            f"τ = {tau:g}" + (f", β = {beta:g}" if beta > 0 else "")
            for tau, beta in zip(self.temperatures, self.betas, strict=True)
        )

    @property
    def order_dependence(self) -> None:
        return None

    def init(self) -> Regressions:
        K, p = self.n_actions, self.dimension
        triangle = np.zeros(p * (p + 1) // 2)
        triangle[_diagonal(p)] = 1.0 / self.ridge
        nothing = read_only(np.zeros((K, p)))
        counts = read_only(np.zeros(K, dtype=np.int64))
        return Regressions(read_only(np.tile(triangle, (K, 1))), nothing, nothing, counts, 0.0, 0)

    def accepts(self, state: Regressions) -> bool:
        K, p = self.n_actions, self.dimension
        return (
            isinstance(state, Regressions)
            and state.inverse.shape == (K, p * (p + 1) // 2)
            and state.by_reward.shape == state.by_one.shape == (K, p)
            and state.counts.shape == (K,)
        )

    def is_possible(self, state: Regressions) -> bool:
        # 0 < A⁻¹ ≤ I/ℓ, so each entry on the diagonal is positive and at most 1/ℓ
        diagonal = state.inverse[:, _diagonal(self.dimension)]
        return bool(
            (diagonal > 0).all()
            and (diagonal <= (1 + 1e-9) / self.ridge).all()
            and state.counts.sum() == state.rounds
            and state.rewards <= state.rounds
        )

    def advance(self, state: Regressions, log: Log, recorder: Recorder) -> Regressions:
        state, found = self.advance_variants(state, log, whole=recorder.whole)
        recorder.add_rows(found.mean(axis=1))
        return state

    def advance_variants(
        self, state: Regressions, log: Log, *, whole: bool
    ) -> tuple[Regressions, Array]:
        out = np.empty((len(log), len(self.temperatures), self.n_actions if whole else 1))
        inverse = state.inverse.copy()
        by_reward, by_one = state.by_reward.copy(), state.by_one.copy()
        assert log.features is not None  # `EventSpec.check` requires them
        rewards = kernels.ridge.replay(
            inverse,
            by_reward,
            by_one,
            state.rewards,
            state.rounds,
            self.centered,
            kernel_view(self.betas),
            kernel_view(self.temperatures),
            (kernel_view(log.features), kernel_view(log.actions), kernel_view(log.rewards)),
            whole,
            out,
        )
        after = Regressions(
            read_only(inverse),
            read_only(by_reward),
            read_only(by_one),
            read_only(state.counts + np.bincount(log.actions, minlength=self.n_actions)),
            rewards,
            state.rounds + len(log),
        )
        return after, out

    def variants_at(self, state: Regressions, features: Array) -> Array:
        """π(·|x) of every variant for checked contexts (n, p): (n, variants, K)."""
        return self.evaluator(state)(features)

    def evaluator(self, state: Regressions) -> Callable[[Array], Array]:
        policies_at, shape = kernels.ridge.policies_at, (len(self.temperatures), self.n_actions)
        fixed = (
            kernel_view(state.inverse),
            kernel_view(state.by_reward),
            kernel_view(state.by_one),
            kernels.ridge.center_of(state.rewards, state.rounds, self.centered),
            kernel_view(self.betas),
            kernel_view(self.temperatures),
        )

        def evaluate(features: Array) -> Array:
            out = np.empty((len(features), *shape))
            policies_at(*fixed, kernel_view(features), out)
            return out

        return evaluate

    def _policies_at(self, state: Regressions, features: Array) -> Array:
        return np.asarray(self.variants_at(state, features).mean(axis=1))

    def _check_size(self, features: Array, *, numbered: bool) -> None:
        del numbered
        limit = math.sqrt(LARGEST_RATIO * self.ridge)
        if np.abs(features).max(initial=0.0) > limit:
            size, reason = (
                float(np.abs(features).max()),
                f"rounding drowns the ridge above {limit:g}",
            )
            raise InvalidArgument("features", size, reason, "scale the features, to about 1")

    def add_states(self, first: Regressions, second: Regressions) -> Regressions:
        moments = [self.moments(state) for state in (first, second)]
        squares = moments[0][0] + moments[1][0]
        return self.from_sufficient_statistics(
            squares,
            moments[0][1] + moments[1][1],
            moments[0][2] + moments[1][2],
            counts=first.counts + second.counts,
            rewards=first.rewards + second.rewards,
        )

    def moments(self, state: Regressions) -> tuple[Array, Array, Array]:
        """Σ xxᵀ, Σ xR and Σ x of every action: (K, p, p), (K, p), (K, p)."""
        p = self.dimension
        inverse = np.zeros((self.n_actions, p, p))
        rows, columns = np.tril_indices(p)
        inverse[:, rows, columns] = inverse[:, columns, rows] = state.inverse
        A = np.linalg.inv(inverse)
        by_reward, by_one = (
            np.einsum("aij,aj->ai", A, vector) for vector in (state.by_reward, state.by_one)
        )
        return A - self.ridge * np.eye(p), by_reward, by_one

    def from_sufficient_statistics(
        self,
        squares: ArrayLike,
        by_reward: ArrayLike,
        by_one: ArrayLike,
        *,
        counts: ArrayLike,
        rewards: float,
    ) -> Regressions:
        """The state of rows whose sums were made elsewhere, such as by a database.

        Args:
            squares: Σ xxᵀ over the rows of each action, (K, p, p).
            by_reward: Σ xR likewise, (K, p).
            by_one: Σ x likewise, (K, p).
            counts: the rows of each action, (K,).
            rewards: Σ R over all rows.

        >>> import understudy as us
        >>> learner = us.ridge(n_actions=2, dimension=1, temperature=0.1)
        >>> sums = [[[3.0]], [[1.0]]], [[2.0], [0.0]], [[3.0], [1.0]]
        >>> state = learner.from_sufficient_statistics(*sums, counts=[3, 1], rewards=2.0)
        >>> learner.policy(state, [1.0]).round(3).tolist()
        [0.977, 0.023]
        """
        K, p = self.n_actions, self.dimension
        sums: list[Any] = [
            array("pass a sum for every action", dimensions=(dimensions,))(name, value)
            for name, value, dimensions in (
                ("squares", squares, 3),
                ("by_reward", by_reward, 2),
                ("by_one", by_one, 2),
            )
        ]
        rows = array("pass the rows of each action", dtype=np.int64, low=0)("counts", counts)
        shapes = [found.shape for found in (*sums, rows)]
        if shapes != [(K, p, p), (K, p), (K, p), (K,)]:
            reason = f"{K} actions and {p} features need (K, p, p), (K, p), (K, p) and (K,)"
            raise InvalidArgument("squares", shapes, reason, "pass one sum per action")
        inverse = np.linalg.inv(sums[0] + self.ridge * np.eye(p))
        triangle = np.ascontiguousarray(inverse[:, *np.tril_indices(p)])
        solved = [np.einsum("aij,aj->ai", inverse, vector) for vector in sums[1:]]
        state = Regressions(
            read_only(triangle),
            read_only(solved[0]),
            read_only(solved[1]),
            read_only(rows.copy()),
            float(rewards),
            int(rows.sum()),
        )
        self.validate(state)
        return state


def _diagonal(dimension: int) -> Any:
    """The places of the diagonal in a lower triangle."""
    i = np.arange(dimension)
    return i * (i + 3) // 2


@constrained(
    n_actions=N_ACTIONS,
    dimension=COUNT,
    ridge=POSITIVE,
    temperature=ONE_OR_MORE,
    beta=ONE_OR_MORE_BETAS,
    centered=TRUTH,
)
def ridge(
    *,
    n_actions: int,
    dimension: int,
    ridge: float = 1.0,
    temperature: float | ArrayLike = 0.05,
    beta: float | ArrayLike = 0.0,
    centered: bool = True,
) -> Ridge:
    r"""Ridge regression for every action, as a policy: a softmax of pessimistic estimates.

    $$A_a = \ell I + \sum_{b_k = a} x_k x_k^\top, \quad
    \hat r(x, a) = \bar r + x^\top A_a^{-1} \sum_{b_k = a} x_k (R_k - \bar r), \quad
    \pi(a|x) \propto \exp\Big(\frac{\hat r(x, a) - \beta \|x\|_{A_a^{-1}}}{\tau}\Big)$$

    It needs no propensities, and it learns from rewards of 0 too. If the mean reward is linear in
    x, its regret is bounded (docs/theory.md); otherwise it is a heuristic, to be one of the experts
    of `us.exp4`. States can be merged, and sums of a database give a state
    (`from_sufficient_statistics`).

    Args:
        n_actions: K.
        dimension: p, the number of features of a context. Pass a constant 1 among them.
        ridge: ℓ. The theorem needs ℓ ≥ 1 for ‖x‖ ≤ 1.
        temperature: τ, or several: variants that share their regressions.
        beta: β, the pessimism, or one for each temperature. β > 0 costs O(K p²) a row.
        centered: whether estimates shrink to r̄, the mean reward of all rows so far, or to 0.

    >>> import understudy as us
    >>> learner = us.ridge(n_actions=2, dimension=1, temperature=0.5)
    >>> event = us.Feedback(action=1, reward=1.0, features=[1.0])
    >>> state = learner.update(learner.init(), event)
    >>> state = learner.update(state, us.Feedback(action=0, reward=0.0, features=[1.0]))
    >>> learner.policy(state, [1.0]).round(4).tolist()
    [0.2689, 0.7311]
    """
    temperatures, betas = np.atleast_1d(temperature), np.atleast_1d(beta)
    if len(betas) == 1:
        betas = np.repeat(betas, len(temperatures))
    return Ridge(n_actions, dimension, ridge, temperatures, betas, centered)
