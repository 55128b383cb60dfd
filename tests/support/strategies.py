"""Hypothesis strategies: behaviors, rates, logs that fit a learner, games, linear games."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import understudy as us
from tests.support.reference import disjoint
from understudy.learners import Learner, LinProd, LinProdCompact
from understudy.schedules import Decaying

__all__ = [
    "Game",
    "LinearGame",
    "behaviors",
    "falling_rate",
    "games",
    "linear_games",
    "linear_logs",
    "logs",
    "policies",
    "quick",
    "rates",
    "seeds",
    "unit_numbers",
]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
LARGEST_KAPPA = 1e4
LARGEST_CONDITION = 1e6  # of V: so that θ̂ is right to nine digits
Player = TypeVar("Player")

quick = settings(max_examples=25, deadline=None, derandomize=True)

unit_numbers = st.one_of(st.floats(1e-6, 1.0), st.sampled_from([0.0, 1.0]))
rates = st.floats(0.01, 2.0)
seeds = st.integers(0, 2**32 - 1)


def falling_rate(scale: float) -> Decaying:
    """η_t = scale/√t', with t' at most 5 % before t: the rate of a learner without a horizon."""
    return Decaying(scale)


def sizes(low: int, high: int) -> st.SearchStrategy[int]:
    """Whole numbers, the largest first: most examples are then large enough to say something."""
    return st.sampled_from(range(high, low - 1, -1))


@st.composite
def behaviors(
    draw: st.DrawFn, *, max_actions: int = 5, decades: float = 3.0, zeros: bool = True
) -> Array:
    """π_B: probabilities over so many orders of magnitude, some of them 0 if `zeros`."""
    n_actions = draw(sizes(2, max_actions))
    powers = arrays(np.float64, n_actions, elements=st.floats(-decades, 0.0), fill=st.nothing())
    weights = 10.0 ** draw(powers)
    if zeros:
        unseen = draw(st.sets(st.integers(0, n_actions - 1), max_size=n_actions - 1))
        weights[list(unseen)] = 0.0
    return np.asarray(weights / weights.sum())


def policies(n_actions: int) -> st.SearchStrategy[Array]:
    """A comparator π*: an action, or a mixture of them."""
    mixtures = arrays(np.float64, n_actions, elements=st.floats(0.01, 1.0))
    pure = st.integers(0, n_actions - 1).map(lambda a: np.eye(n_actions)[a])
    return st.one_of(pure, mixtures.map(lambda weights: weights / weights.sum()))


@st.composite
def logs(draw: st.DrawFn, learner: Learner[Any], *, max_rounds: int = 40) -> us.Log:
    """A log without contexts, of the form that the learner asks for."""
    form = learner.spec
    support = range(form.n_actions) if form.support is None else np.flatnonzero(form.support)
    n = draw(sizes(0, max_rounds))
    played = st.sampled_from([int(a) for a in support])
    propensities = arrays(np.float64, n, elements=st.floats(1e-3, 1.0))
    return us.Log(
        actions=draw(arrays(np.int64, n, elements=played, fill=st.nothing())),
        rewards=draw(arrays(np.float64, n, elements=unit_numbers, fill=st.nothing())),
        propensities=draw(propensities) if form.propensities else None,
    )


@dataclass(frozen=True, eq=False)
class Game:
    """A behavior and an oblivious adversary: π_B, and r_t(a) as a table (n, K)."""

    behavior: Array
    rewards: Array

    @property
    def rounds(self) -> int:
        return len(self.rewards)


@st.composite
def games(
    draw: st.DrawFn, *, max_actions: int = 3, max_rounds: int = 4, zeros: bool = True
) -> Game:
    """Small enough to enumerate all Kⁿ sequences of behavior actions."""
    behavior = draw(behaviors(max_actions=max_actions, zeros=zeros))
    shape = (draw(sizes(1, max_rounds)), len(behavior))
    table = arrays(np.float64, shape, elements=unit_numbers, fill=st.nothing())
    return Game(behavior, draw(table))


@dataclass(frozen=True, eq=False)
class LinearGame:
    """A finite linear game: φ (X, K, d), P(X = x), π_B(a|x), and θ_t (n, d).

    All rewards ⟨θ_t, φ(x, a)⟩ are in [0, 1]. With `contexts` (X, p) the features are disjoint,
    φ(x, a) = e_a ⊗ x, and the learner sees the contexts only.
    """

    features: Array
    probabilities: Array
    behavior: Array
    thetas: Array
    contexts: Array | None = None

    @property
    def n_actions(self) -> int:
        return int(self.features.shape[1])

    @cached_property
    def rewards(self) -> Array:
        """r_t(x, a) = ⟨θ_t, φ(x, a)⟩, (n, X, K), in [0, 1] in spite of rounding."""
        rewards = np.einsum("xkd,nd->nxk", self.features, self.thetas)
        return np.asarray(rewards.clip(0.0, 1.0))

    @cached_property
    def V(self) -> Array:  # noqa: N802 - the paper's V
        """V(π_B)."""
        return self.covariance(self.behavior)

    def covariance(self, policy: Array) -> Array:
        """V(π) = Σ_x P(x) Σ_a π(a|x) φ(x, a) φ(x, a)ᵀ, summed as it is written."""
        total = np.zeros((self.features.shape[2],) * 2)
        for x, a in np.ndindex(policy.shape):
            phi = self.features[x, a]
            total += self.probabilities[x] * policy[x, a] * np.outer(phi, phi)
        return total

    @property
    def shown_V(self) -> Array:  # noqa: N802 - the paper's V
        """V as the learner wants it: whole, or one block per action."""
        if self.contexts is None:
            return self.V
        p = self.contexts.shape[1]
        corners = range(0, len(self.V), p)
        return np.array([self.V[i : i + p, i : i + p] for i in corners])

    @property
    def shown(self) -> Array:
        """What the learner is shown of each context."""
        return self.features if self.contexts is None else self.contexts

    @cached_property
    def kappa(self) -> float:
        """κ = max φᵀV⁻¹φ."""
        solved = np.linalg.solve(self.V, self.features.reshape(-1, len(self.V)).T).T
        return float((solved.reshape(self.features.shape) * self.features).sum(axis=2).max())

    @property
    def largest_rate(self) -> float:
        """1/(2κ), up to the rounding of κ."""
        return 0.5 / (self.kappa * (1 + 1e-12))

    def learner(self, eta: float) -> LinProd:
        """LinProd with this rate."""
        return self.play(us.lin_prod, eta)

    def play(self, recipe: Callable[..., Player], eta: float) -> Player:
        """What a recipe makes of this game with this rate."""
        kappa = self.kappa * (1 + 1e-12)
        return recipe(self.shown_V, n_actions=self.n_actions, eta=eta, kappa=kappa)

    def falling(self, first: float) -> LinProdCompact:
        """LinProd in constant memory, with a rate that begins at so many times the largest one."""
        made = self.play(us.lin_prod_compact, self.largest_rate)
        return replace(made, eta=falling_rate(first * self.largest_rate))

    def log(self, contexts: Integers, actions: Integers, rewards: Array) -> us.Log:
        """A log of these rounds."""
        return us.Log(actions=actions, rewards=rewards, features=self.shown[contexts])


@st.composite
def linear_games(
    draw: st.DrawFn, *, max_contexts: int = 3, max_actions: int = 3, rounds: int = 4
) -> LinearGame:
    """Shared or disjoint features in general position; continuous parts come from a seed."""
    rng = np.random.default_rng(draw(seeds))
    n_actions = draw(sizes(2, max_actions))
    n_contexts = draw(sizes(1, max_contexts))
    if draw(st.booleans()):
        p = draw(sizes(1, min(2, n_contexts)))
        contexts = with_constant(rng, (n_contexts, p))
        _, features = disjoint(np.zeros((n_actions, p, p)), contexts)
    else:
        p = draw(sizes(2, min(3, n_contexts * n_actions)))
        contexts = None
        features = with_constant(rng, (n_contexts, n_actions, p))
    game = LinearGame(
        features,
        skewed(rng, (n_contexts,)),
        skewed(rng, (n_contexts, n_actions)),
        fitting_thetas(rng, features, p, rounds),
        contexts,
    )
    assume(np.linalg.cond(game.V) < LARGEST_CONDITION and game.kappa < LARGEST_KAPPA)
    return game


@st.composite
def linear_logs(
    draw: st.DrawFn, game: LinearGame, *, max_rounds: int = 12
) -> tuple[Integers, us.Log]:
    """Contexts X_1 .. X_{n+1}, and a log of the first n with any rewards in [0, 1]."""
    n = draw(sizes(0, max_rounds))
    rng = np.random.default_rng(draw(seeds))
    contexts = rng.integers(len(game.features), size=n + 1)
    rewards = (1.5 * rng.random(n) - 0.25).clip(0.0, 1.0)  # a third of them 0 or 1
    return contexts, game.log(contexts[:-1], rng.integers(game.n_actions, size=n), rewards)


def with_constant(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal numbers, with 1 as the first coordinate of each vector."""
    vectors = rng.normal(size=shape)
    vectors[..., 0] = 1.0
    return vectors


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Rows of probabilities that differ by up to a factor of 30."""
    weights = 30.0 ** -rng.random(shape)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def fitting_thetas(rng: np.random.Generator, features: Array, p: int, rounds: int) -> Array:
    """θ_t with all ⟨θ_t, φ(x, a)⟩ in [0, 1], each t with its own smallest and largest reward.

    A normal θ gives rewards on both sides of 0; the constant coordinates, every p-th, of which
    each φ(x, a) has exactly one that is not 0, shift them into the interval.
    """
    thetas = rng.normal(size=(rounds, features.shape[2]))
    rewards = np.einsum("xkd,nd->nxk", features, thetas)
    low, high = rewards.min(axis=(1, 2)), rewards.max(axis=(1, 2))
    scale = rng.uniform(0.2, 1.0, rounds) / np.maximum(high - low, 1.0)
    thetas *= scale[:, np.newaxis]
    slack = 1.0 - scale * (high - low)
    thetas[:, ::p] += (rng.random(rounds) * slack - scale * low)[:, np.newaxis]
    return np.asarray(thetas)
