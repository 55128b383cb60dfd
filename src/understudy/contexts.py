"""Distributions of the i.i.d. contexts of a linear game, over a finite or a continuous space.

A context-dependent policy is a table (X, K) over a finite space, a function from contexts to
rows of probabilities over any space, or a vector (K,) that ignores the context.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from understudy.behaviors import choose
from understudy.constraints import (
    CALLABLE,
    COUNT,
    N_ACTIONS,
    SEED,
    SUM_TOLERANCE,
    Array,
    Checked,
    array,
    enforce,
)
from understudy.errors import InvalidArgument
from understudy.theory.coverage_ratio import feature_covariance
from understudy.types import saved

__all__ = ["ContextPolicy", "Contexts", "ContinuousContexts", "FiniteContexts", "rows"]

FEATURES = array("return φ(x, ·) as (n, K, d)", dimensions=(3,))
POLICY = array(
    "pass (K,), a table (X, K), or a function from contexts to (n, K)", dimensions=(1, 2)
)
ContextPolicy = ArrayLike | Callable[[NDArray[Any]], ArrayLike]


class Contexts(Protocol):
    """A distribution of contexts with a feature map φ: X × A → R^d."""

    @property
    def n_actions(self) -> int: ...

    @property
    def dimension(self) -> int: ...

    def draw(self, rng: Generator, rounds: int) -> NDArray[Any]:
        """Draw contexts X_t, one per round."""
        ...

    def features(self, contexts: NDArray[Any]) -> Array:
        """Return φ(X_t, ·) of every round, (n, K, d)."""
        ...


@saved
@dataclass(frozen=True, eq=False)
class FiniteContexts:
    """Finitely many contexts, numbered from 0; `table` is φ as (X, K, d).

    >>> contexts = FiniteContexts(table=[[[1.0, 0.0], [0.0, 1.0]]], probabilities=[1.0])
    >>> contexts.covariance([[0.75, 0.25]]).tolist()
    [[0.75, 0.0], [0.0, 0.25]]
    """

    table: Array
    probabilities: Array

    if TYPE_CHECKING:

        def __init__(self, table: ArrayLike, probabilities: ArrayLike) -> None: ...

    CONSTRAINTS: ClassVar = {
        "table": array("pass φ(x, a) as (X, K, d)", dimensions=(3,)),
        "probabilities": array("pass one probability per context", low=0.0, high=1.0),
    }

    def __post_init__(self) -> None:
        enforce(self)
        total = float(self.probabilities.sum())
        if len(self.probabilities) != len(self.table) or abs(total - 1) > SUM_TOLERANCE:
            raise InvalidArgument(
                "probabilities",
                self.probabilities,
                f"they must be {len(self.table)} and sum to 1, one per context of the table",
                "pass the probability of each context",
            )
        N_ACTIONS("number of actions in table", self.n_actions)

    @property
    def n_actions(self) -> int:
        return int(self.table.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.table.shape[2])

    def draw(self, rng: Generator, rounds: int) -> NDArray[Any]:
        return choose(self.probabilities, rng.random(rounds))

    def features(self, contexts: NDArray[Any]) -> Array:
        return np.asarray(self.table[contexts])

    def covariance(self, policy: ContextPolicy) -> Array:
        """Compute V(π) exactly."""
        everywhere = rows(policy, np.arange(len(self.table)), self.n_actions, "policy")
        return feature_covariance(everywhere, self.table, self.probabilities)


@dataclass(frozen=True, eq=False)
class ContinuousContexts(Checked):
    """Contexts from a sampler, `sample(rng, n)`, with `feature_map(contexts)` as (n, K, d).

    >>> contexts = ContinuousContexts(
    ...     sample=lambda rng, n: rng.random((n, 1)),
    ...     feature_map=lambda x: np.stack([x, 1 - x], axis=1),
    ...     n_actions=2,
    ...     dimension=1,
    ... )
    >>> V = contexts.covariance([0.5, 0.5], samples=10_000, seed=0)
    >>> abs(V[0, 0] - 1 / 3) < 0.01
    np.True_
    """

    sample: Callable[[Generator, int], NDArray[Any]]
    feature_map: Callable[[NDArray[Any]], ArrayLike]
    n_actions: int
    dimension: int
    CONSTRAINTS: ClassVar = {
        "sample": CALLABLE,
        "feature_map": CALLABLE,
        "n_actions": N_ACTIONS,
        "dimension": COUNT,
    }

    def draw(self, rng: Generator, rounds: int) -> NDArray[Any]:
        contexts = np.asarray(self.sample(rng, rounds))
        if contexts.shape[:1] != (rounds,):
            raise InvalidArgument(
                "sample",
                f"contexts of shape {contexts.shape}",
                f"{rounds} were asked for",
                "return one context per round from sample(rng, n)",
            )
        return contexts

    def features(self, contexts: NDArray[Any]) -> Array:
        features: Array = FEATURES("feature_map", self.feature_map(contexts))
        wanted = (len(contexts), self.n_actions, self.dimension)
        if features.shape != wanted:
            raise InvalidArgument(
                "feature_map",
                f"features of shape {features.shape}",
                f"they must be of shape {wanted}",
                FEATURES.remedy,
            )
        return features

    def covariance(self, policy: ContextPolicy, *, samples: int, seed: int) -> Array:
        """Estimate V(π) as a mean over `samples` sampled contexts."""
        rng = np.random.default_rng(SEED("seed", seed))
        contexts = self.draw(rng, COUNT("samples", samples))
        return feature_covariance(
            rows(policy, contexts, self.n_actions, "policy"), self.features(contexts)
        )


def rows(policy: ContextPolicy, contexts: NDArray[Any], n_actions: int, argument: str) -> Array:
    """Return π(·|X_t) of every round, (n, K); refuse a policy of the wrong shape or sum.

    >>> rows([0.5, 0.5], np.array([0, 0, 1]), 2, "policy").shape
    (3, 2)
    """
    if callable(policy):
        found = POLICY(argument, policy(contexts))
    else:
        given = POLICY(argument, policy)
        if given.ndim == 1:
            found = np.broadcast_to(given, (len(contexts), len(given)))
        elif contexts.dtype.kind == "i" and contexts.max(initial=0) < len(given):
            found = given[contexts]
        else:
            raise InvalidArgument(
                argument,
                f"a table of {len(given)} rows",
                f"the contexts are not the numbers 0 to {len(given) - 1}",
                POLICY.remedy,
            )
    if found.shape != (len(contexts), n_actions):
        raise InvalidArgument(
            argument,
            f"probabilities of shape {found.shape}",
            f"{len(contexts)} contexts and {n_actions} actions need ({len(contexts)}, {n_actions})",
            POLICY.remedy,
        )
    if not (found >= 0).all() or np.abs(found.sum(axis=1) - 1).max(initial=0) > SUM_TOLERANCE:
        raise InvalidArgument(
            argument, found, "a row is not a probability vector", "pass rows that sum to 1"
        )
    return np.asarray(found)
