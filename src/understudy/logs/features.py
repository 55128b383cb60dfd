"""The features of contexts, and the learners of a log, made from its warm-up.

The rows of a warm-up decide how contexts are encoded, the random Fourier features, the V and κ of
LinProd. Their rewards are not read, and they are not learned from. After the warm-up the features
of a row depend on its context alone, so that every policy is predictable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import polars as pl

from understudy import kernels, learners
from understudy.behaviors import Behavior, Logged
from understudy.certificates.evidence import FIRST_RULES, RULES
from understudy.constraints import NONNEGATIVE, Array, enforce, integer
from understudy.errors import InvalidArgument, InvalidLog
from understudy.formatting import counted
from understudy.learners import DisjointFeatures, LinProdCompact, Mapped, lin_prod_compact
from understudy.learners.experts import has_columns
from understudy.learners.feature_maps import bound_leverage
from understudy.learners.per_context import MOST_CONTEXTS
from understudy.logs.encoder import (
    MOST_CATEGORIES,
    MOST_IN_ALL,
    REMEDY,
    CategoryColumn,
    Encoder,
    NumberColumn,
)
from understudy.protocols import LEARNER, PRODUCTION, Learner
from understudy.snapshots import fields_as_data, fields_from_data
from understudy.theory import leverage, prod_grid_tuning
from understudy.theory.rates import FIRST_CURVATURE, LIN_PROD_CURVATURE
from understudy.types import Integers, kernel_view, rounds_per_chunk

# The ridge of V is min(1, 16/√m) times the mean eigenvalue of V: 1 for a short warm-up, 0.16 for
# one of 10⁴ rows. A large ridge leaves a bias for good; a small one makes κ large and so the start
# slow, for which long logs have time.
RIDGE = 16.0
LARGEST_STATE = 1 << 23  # numbers in V, and in the state, K p² each: 64 MB
# Numbers in the states and matrices of a default mixture. With up to 30 characters each, they take
# at most 31.5 MB of a policy.json, which a live service accepts. Each learner takes at most a third
# (or is the only one), and random features take the rest.
LARGEST_MIXTURE = 1 << 20
PER_ACTION = 60  # numbers of each action elsewhere in policy.json: a grid of rates, counts
FOURIER_FEATURES = 300  # enough for the digits of examples/digits.py; a row costs their square
LEAST_FOURIER = 16  # fewer say less than the columns themselves
PAIRS = 1_000  # rows whose distances give the scale of the kernel
FOURIER_SEED = 0  # the frequencies are drawn once, and saved
# Two softmaxes of estimates of rewards in [0, 1]: one for actions that differ by a hundredth, as
# clicks do, which is nearly greedy; one for estimates that are that uncertain.
TEMPERATURES = (0.002, 0.02)
RAW_RIDGE, FOURIER_RIDGE = 1.0, 0.1  # ℓ of features of size 1, and of cosines of size √(2/300)
MOST_CELLS = 1_000  # combinations of labels with a learner of their own: a state of some MB
ROWS_PER_CELL = 2  # in a warm-up of a tenth, so some 20 in the log: fewer teach a table nothing
DECIMALS = 1e-6  # of logged propensities, which may have few digits: their sum misses 1 by so much
COUNT = integer(0, "pass a number of rows")
NO_LABELS = (
    "it has one learner for each combination of labels, and these columns hold numbers, or one "
    "label alone"
)
Parameters = Mapping[str, Any]


class ConstantContexts(InvalidLog):
    """No column of contexts changes within a warm-up, so there are no features; later ones may."""


@dataclass(frozen=True, eq=False)
class ContextFeatures:
    """An encoder, the learner that takes its features, and statistics of their warm-up.

    `rows` counts the rows of the warm-up, `unseen` the actions without a row. For LinProd alone,
    `shrunk` counts the rows above κ, and `ridge` was added to V: its features are scaled down to
    κ. Other learners take the features of the encoder.
    """

    encoder: Encoder
    learner: Any
    rows: int
    shrunk: int
    unseen: int
    ridge: float
    CONSTRAINTS: ClassVar = {"rows": COUNT, "shrunk": COUNT, "unseen": COUNT, "ridge": NONNEGATIVE}

    def __post_init__(self) -> None:
        enforce(self)
        p = len(self.encoder.features)
        LEARNER("learner", self.learner)
        if self.learner.spec.features != (p,):
            reason = f"it does not take contexts with {p} features"
            raise InvalidArgument("learner", self.learner, reason, "pass the one that was fitted")

    def features(self, frame: pl.DataFrame) -> Array:
        """The features of every row as the learner sees them, (n, p): the same in any batching."""
        return self.seen_by_learner(self.encoder.encode(frame))

    def features_of_one(self, context: Mapping[str, object]) -> Array:
        """The features of one context as the learner sees them, (p,)."""
        return np.asarray(self.seen_by_learner(self.encoder.encode_one(context)[np.newaxis])[0])

    def seen_by_learner(self, x: Array) -> Array:
        """Encoded contexts as the learner sees them: LinProd sees them scaled down to κ."""
        if not isinstance(self.learner, LinProdCompact):
            return x
        return bound_leverage(x, self.learner.features.V_inverse, self.learner.kappa)

    def as_data(self) -> dict[str, Any]:
        """Everything but the learner as JSON data; snapshots hold the learner."""
        names = ("encoder", "rows", "shrunk", "unseen", "ridge")
        return {name: fields_as_data(getattr(self, name)) for name in names}

    @staticmethod
    def from_data(data: object, learner: object) -> ContextFeatures:
        """Parse the data that `as_data` made, with the learner, or raise `InvalidSnapshot`."""
        fields = {**data, "learner": learner} if isinstance(data, dict) else data
        return fields_from_data(
            ContextFeatures, fields, "contexts", REMEDY, encoder=Encoder.from_data
        )


@dataclass(frozen=True, eq=False)
class Warmup:
    """The rows of a warm-up without their rewards: contexts, actions and propensities."""

    encoder: Encoder
    contexts: Array
    actions: Integers
    propensities: Array | None

    @staticmethod
    def fit(
        frame: pl.DataFrame,
        actions: Integers,
        q: Array | None,
        context: Sequence[str],
        *,
        rules: int = RULES,
    ) -> Warmup:
        """Fit an encoder to the contexts of a warm-up, and encode them."""
        most = MOST_CATEGORIES
        if rules > FIRST_RULES:
            most = max(most, MOST_IN_ALL // max(1, len(context)))
        encoder = Encoder.fit(frame, context, most)
        if not encoder.columns:
            raise ConstantContexts(
                "contexts",
                ", ".join(encoder.constants),
                f"no context changes in the {counted(len(frame), 'row')} of the warm-up, "
                "so there are no features",
                "pass a larger --warmup, such as 0.5, name other columns, or leave out --context",
            )
        return Warmup(encoder, encoder.encode(frame), actions, q)

    @property
    def dimension(self) -> int:
        return len(self.encoder.features)

    @cached_property
    def kernel_scale(self) -> float | None:
        """γ = 1/median ‖x − x'‖² over pairs of rows; None if all contexts are equal."""
        x = self.contexts[:PAIRS]
        squares = np.square(x).sum(axis=1)
        distances = squares[:, np.newaxis] + squares - 2.0 * (x @ x.T)
        some = distances[np.triu_indices(len(x), 1)]
        apart = some[some > 1e-9 * max(1.0, float(squares.max(initial=0.0)))]
        return None if not len(apart) else 1.0 / float(np.median(apart))

    @cached_property
    def label_places(self) -> tuple[list[int], list[int]]:
        """Where the features of each column of labels begin, and how many they are."""
        found = [
            (start, len(column.features))
            for column, start in zip(self.encoder.columns, self.encoder.starts, strict=True)
            if isinstance(column, CategoryColumn)
        ]
        return [start for start, _ in found], [size for _, size in found]


@dataclass(frozen=True, eq=False)
class LearnerFactory:
    """Makes learners by name for a log: its behavior policy, its horizon, its warm-up.

    `behavior` is None if propensities are unknown. `rules` is the version of the rules here: a
    study that is processed again from its first decision needs those of its creation. By the first
    ones, V comes from plays alone, and LinProd has the curvature 1. `restricted`: production may
    not play every action in every row.
    """

    behavior: Behavior | None
    n_actions: int
    horizon: int | None = None
    warmup: Warmup | None = None
    rules: int = RULES
    restricted: bool = False

    def make(self, name: str, parameters: Parameters) -> Learner[Any]:
        """The learner of this name, or `InvalidArgument` if it does not suit the log."""
        self.check(name)
        made: Learner[Any] = MAKERS[name](self, dict(parameters))
        return made

    def check(self, name: str) -> None:
        """Raise `InvalidArgument` if a learner needs contexts or propensities, and has none."""
        if self.warmup is None and name in NEED_CONTEXTS:
            reason = "it learns from contexts, and none are named"
            raise InvalidArgument("learner", name, reason, "name columns of contexts")
        if self.behavior is None and name not in NEED_NO_PROPENSITIES:
            reason = "it needs the propensities of the behavior policy, and they are unknown"
            raise InvalidArgument("learner", name, reason, WITHOUT_PROPENSITIES)

    # --------------------------------------------------------------------------- without contexts

    def _recipe(self, recipe: Callable[..., Learner[Any]]) -> Callable[..., Learner[Any]]:
        return lambda **parameters: recipe(self._known_behavior, horizon=self.horizon, **parameters)

    @property
    def _known_behavior(self) -> Behavior:
        assert self.behavior is not None  # `check` has seen to it, and `choose` for experts
        return self.behavior

    def prod_grid(self, parameters: dict[str, Any]) -> Learner[Any]:
        """Prod at a grid of rates, which begins as production."""
        behavior = self._known_behavior
        as_production = (
            {"production": PRODUCTION_SHARE}
            if isinstance(behavior, Logged)
            else {"prior": "behavior"}
        )
        if parameters.get("prior") == "uniform":
            parameters = {**parameters, "prior": None}
        return learners.prod_grid(behavior, **{**as_production, **parameters})

    def exp3_ix_unknown(self, parameters: dict[str, Any]) -> Learner[Any]:
        """Exp3-IX with estimated propensities."""
        parameters = {"width": "kl", **parameters}
        return learners.exp3_ix_unknown(self.n_actions, horizon=self.horizon, **parameters)

    # ------------------------------------------------------------------------------ with contexts

    @property
    def _contexts(self) -> Warmup:
        assert self.warmup is not None  # `make` has checked it
        return self.warmup

    def lin_prod(self, parameters: dict[str, Any]) -> LinProdCompact:
        """LinProd with the V and κ of the warm-up."""
        self._check_size(LARGEST_STATE)
        return self._lin_prod_of(self.covariance[0], parameters)

    def _lin_prod_of(self, V: Array, parameters: dict[str, Any]) -> LinProdCompact:
        kappa = float(np.median(self.leverages(V)))
        return lin_prod_compact(
            V,
            n_actions=self.n_actions,
            kappa=kappa,
            horizon=self.horizon,
            curvature=self.curvature,
            **parameters,
        )

    @property
    def curvature(self) -> float:
        """c of LinProd."""
        return FIRST_CURVATURE if self.rules == FIRST_RULES else LIN_PROD_CURVATURE

    def bounded_lin_prod(self, parameters: dict[str, Any]) -> Learner[Any]:
        """LinProd that scales features down to κ itself, as an expert does."""
        made = self._lin_prod_of(self.covariance[0], parameters)
        return Mapped(made, learners.Leverage(made.features.V, made.kappa))

    def _check_size(self, largest: int) -> None:
        """Raise `InvalidLog` if a learner of K p² numbers would have too many."""
        p, K = self._contexts.dimension, self.n_actions
        if K * p**2 > largest:
            most = math.isqrt(largest // K)
            reason = f"the state of the learner would have {K * p**2:,} numbers"
            remedy = f"name fewer columns, or columns with fewer labels: at most {most} features"
            raise InvalidLog("contexts", f"{p} features, {K} actions", reason, remedy)

    def _check_fourier(self, learner: str, features: int, most: int) -> None:
        """Raise `InvalidArgument` if regressions on so many features had too many numbers."""
        if features > most:
            reason = f"the state of the learner would have {self.n_actions * features**2:,} numbers"
            raise InvalidArgument("learner", learner, reason, f"pass at most features={most}")

    @cached_property
    def covariance(self) -> tuple[Array, float]:
        r"""V from propensities: if every action has one propensity in all rows of the warm-up,

        $\hat V_a = \frac{q(a)}{m} \sum x x^\top$ over all rows, and n_a = m in the formula of
        `played_covariance`; else that.
        """
        fixed, x = self._fixed_propensities(), self._contexts.contexts
        if fixed is None or self.rules == FIRST_RULES:
            return self.played_covariance
        squares = np.zeros((1, x.shape[1], x.shape[1]))
        every = kernel_view(np.zeros(len(x), dtype=np.int64))
        kernels.lin_prod.add_squares(kernel_view(x), every, squares)
        whole = fixed[:, np.newaxis, np.newaxis] * squares
        return self._shrunk_covariance(whole, np.full(self.n_actions, len(x)))

    @cached_property
    def played_covariance(self) -> tuple[Array, float]:
        r"""V from the rows of the warm-up in which each action was played, and the ridge in it.

        $$V_a = \frac{n_a}{n_a + p} \hat V_a + \Big(\frac{p}{n_a + p} + \rho\Big) \lambda I, \qquad
        \hat V_a = \frac1m \sum_{b=a} x x^\top$$

        over m rows, n_a of them with action a, where λ is the mean eigenvalue of all V̂_a and
        ρ = min(1, 16/√m). So V_a of an action with few rows is near that of an average action,
        which keeps its estimates and κ small: with the ridge alone, one rare action would slow
        down all.
        """
        warmup, K = self._contexts, self.n_actions
        squares = np.zeros((K, warmup.dimension, warmup.dimension))
        x, played = kernel_view(warmup.contexts), kernel_view(warmup.actions)
        kernels.lin_prod.add_squares(x, played, squares)
        return self._shrunk_covariance(squares, np.bincount(warmup.actions, minlength=K))

    def _shrunk_covariance(self, squares: Array, counts: Integers) -> tuple[Array, float]:
        m, p = self._contexts.contexts.shape
        doubt = (p / (counts + p))[:, np.newaxis, np.newaxis]
        typical = float(np.trace(squares, axis1=1, axis2=2).mean()) / (m * p)
        ridge = min(1.0, RIDGE / math.sqrt(m)) * typical
        return (1.0 - doubt) * squares / m + (doubt * typical + ridge) * np.eye(p), ridge

    def _fixed_propensities(self) -> Array | None:
        """q of every action, if it is given, or the same in all rows of the warm-up."""
        if isinstance(self.behavior, np.ndarray):
            return self.behavior
        q, actions = self._contexts.propensities, self._contexts.actions
        if q is None or len(np.unique(actions)) < self.n_actions:
            return None
        low, high = np.full(self.n_actions, np.inf), np.zeros(self.n_actions)
        np.minimum.at(low, actions, q)
        np.maximum.at(high, actions, q)
        one = np.allclose(low, high, rtol=1e-9, atol=0.0) and abs(high.sum() - 1.0) < DECIMALS
        return high if one else None

    def leverages(self, V: Array) -> Array:
        """max_a xᵀV_a⁻¹x of every row of the warm-up."""
        inverse, x = DisjointFeatures(V).V_inverse, self._contexts.contexts
        size = rounds_per_chunk(x.shape[1])
        parts = [leverage(x[i : i + size], inverse).max(axis=1) for i in range(0, len(x), size)]
        return np.concatenate(parts)

    def ridge(self, parameters: dict[str, Any]) -> Learner[Any]:
        """Ridge regression on the features, or with `features` on so many Fourier features."""
        warmup = self._contexts
        fourier = parameters.pop("features", 0)
        settings: dict[str, Any] = {"temperature": TEMPERATURES, **parameters}
        if not fourier:
            self._check_size(LARGEST_STATE)
            settings = {"ridge": RAW_RIDGE, **settings}
            return learners.ridge(n_actions=self.n_actions, dimension=warmup.dimension, **settings)
        most = math.isqrt(LARGEST_STATE // self.n_actions) - 1
        self._check_fourier(f"ridge:features={fourier}", fourier, most)
        rng, gamma = np.random.default_rng(FOURIER_SEED), warmup.kernel_scale or 1.0
        drawn = learners.random_fourier(
            dimension=warmup.dimension, features=fourier, gamma=gamma, rng=rng
        )
        settings = {"ridge": FOURIER_RIDGE, **settings}
        made = learners.ridge(n_actions=self.n_actions, dimension=drawn.shape[0], **settings)
        return Mapped(made, drawn)

    def tables(self, parameters: dict[str, Any]) -> Learner[Any]:
        """A learner for each combination of labels."""
        warmup = self._contexts
        starts, sizes = warmup.label_places
        cells = self._n_cells
        if not sizes or cells > MOST_CONTEXTS:
            reason = f"there are {cells:,} combinations of labels" if sizes else NO_LABELS
            remedy = f"name columns of labels with at most {MOST_CELLS:,} combinations, or ridge"
            raise InvalidArgument("learner", "tables", reason, remedy)
        map_ = learners.Cell(warmup.dimension, starts, sizes)  # type: ignore[arg-type] # converted
        own = learners.prod_grid(self._known_behavior, **parameters)
        return Mapped(learners.per_context(own, n_contexts=cells), map_)

    def mixture(self, parameters: dict[str, Any]) -> Learner[Any]:
        """The default with contexts: production, and learners of every kind that suits the log."""
        K, p = self.n_actions, self._contexts.dimension
        squares = K * p**2
        sizes = {"ridge": squares // 2, "lin-prod-compact": 3 * squares}  # twice V, and its state
        if self._has_few_cells():
            rates = len(prod_grid_tuning()[0])
            sizes["tables"] = self._n_cells * K * 2 * rates  # gains, and their rounding
        fit = [name for name, size in sizes.items() if size <= LARGEST_MIXTURE // 3]
        left = max(0, LARGEST_MIXTURE - sum(sizes[name] for name in fit) - PER_ACTION * K)
        # F features and a constant have K (F + 1)²/2 sums and p F frequencies
        most = max(0, (math.isqrt(p**2 + 2 * K * (left + p)) - p) // K - 1)
        if (fourier := parameters.pop("features", None)) is not None:
            self._check_fourier(f"exp4:features={fourier}", fourier, most)
        else:
            fourier = min(FOURIER_FEATURES, most if most >= LEAST_FOURIER else 0)
        if self._has_interactions() and fourier:
            fit.append("fourier ridge")
        if not fit:  # all are large: the smaller one of these alone, if it is possible
            tables = sizes.get("tables", math.inf)
            if tables > LARGEST_STATE:
                self._check_size(LARGEST_STATE)
            fit = ["ridge" if squares <= LARGEST_STATE and sizes["ridge"] < tables else "tables"]
        makers: dict[str, Callable[[], Learner[Any]]] = {
            "tables": lambda: self.tables({}),
            "ridge": lambda: self.ridge({}),
            "fourier ridge": lambda: self.ridge({"features": fourier}),
            "lin-prod-compact": lambda: self.bounded_lin_prod({}),
        }
        experts: dict[str, Any] = {PRODUCTION: PRODUCTION, "prod-grid": self._plain_grid()}
        return self.mix(experts | {name: make() for name, make in makers.items() if name in fit})

    def mix(self, experts: Mapping[str, Any]) -> Learner[Any]:
        """A mixture of these experts, whose estimates are centred if production covers them."""
        behavior, least = self._known_behavior, None
        if isinstance(behavior, Logged) and not has_columns(experts.values()):
            least = self._least_propensity
        return learners.exp4(behavior, experts, least_propensity=least)

    @property
    def _least_propensity(self) -> float | None:
        """The least propensity, declared or of the warm-up; None if rows have eligible sets."""
        if self.restricted:
            return None
        if isinstance(self.behavior, Logged) and self.behavior.least_propensity is not None:
            return self.behavior.least_propensity
        if self.warmup is None or self.warmup.propensities is None:
            return None
        return float(self.warmup.propensities.min())

    def _plain_grid(self) -> Learner[Any]:
        """`prod_grid` without production, which is an expert of its own."""
        return learners.prod_grid(self._known_behavior)

    @property
    def _n_cells(self) -> int:
        return math.prod(size + 1 for size in self._contexts.label_places[1])

    def _has_few_cells(self) -> bool:
        rows = len(self._contexts.actions)
        return 1 < self._n_cells <= min(MOST_CELLS, rows // ROWS_PER_CELL)

    def _has_interactions(self) -> bool:
        """Whether features can say more together than alone: not those of one column of labels."""
        columns = self._contexts.encoder.columns
        numbers = any(isinstance(column, NumberColumn) for column in columns)
        return (numbers or len(columns) > 1) and self._contexts.kernel_scale is not None


NEED_CONTEXTS = ("lin-prod-compact", "ridge", "tables", "exp4")
NEED_NO_PROPENSITIES = ("exp3-ix-unknown", "ridge", "lin-prod-compact")
WITHOUT_PROPENSITIES = (
    "pass the learner 'exp3-ix-unknown', or 'ridge' with contexts, or the propensities"
)
WITHOUT_PROPENSITIES_OF_COLUMNS = "leave out the columns of experts, or pass the propensities"

PRODUCTION_SHARE = 1e-5  # of the prior: to rely on production costs log(10⁵)/η, at a large η

MAKERS: dict[str, Callable[[LearnerFactory, dict[str, Any]], Learner[Any]]] = {
    "exp3": lambda own, parameters: own._recipe(learners.exp3)(**parameters),
    "exp3-ix": lambda own, parameters: own._recipe(learners.exp3_ix)(**parameters),
    "prod": lambda own, parameters: own._recipe(learners.prod)(**parameters),
    "coverage-adaptive": lambda own, parameters: own._recipe(learners.coverage_adaptive)(
        **parameters
    ),
    "prod-grid": LearnerFactory.prod_grid,
    "exp3-ix-unknown": LearnerFactory.exp3_ix_unknown,
    "lin-prod-compact": LearnerFactory.lin_prod,
    "ridge": LearnerFactory.ridge,
    "tables": LearnerFactory.tables,
    "exp4": LearnerFactory.mixture,
}


def context_features(
    learner: Learner[Any], warmup: Warmup, factory: LearnerFactory
) -> ContextFeatures:
    """The features of contexts for a learner, with the statistics of their warm-up."""
    shrunk, ridge = 0, 0.0
    if isinstance(learner, LinProdCompact):
        shrunk = int((factory.leverages(learner.features.V) > learner.kappa).sum())
        ridge = factory.covariance[1]
    seen = len(np.unique(warmup.actions))
    return ContextFeatures(
        warmup.encoder, learner, len(warmup.actions), shrunk, factory.n_actions - seen, ridge
    )
