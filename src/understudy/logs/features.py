"""Features of contexts, bounded by κ, and the learner whose V and κ come from the same warm-up.

V is the second moment of the features that production plays, and κ the bound on φᵀV⁻¹φ that
Theorem 3 needs. Features above κ are scaled down to it. After the warm-up this scaling depends on
the context alone: so every policy is predictable, κ holds for every later context, and no row is
rejected. The learner does not learn from the warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from understudy import kernels
from understudy.constraints import NONNEGATIVE, Array, enforce, integer
from understudy.errors import InvalidArgument, InvalidLog
from understudy.formatting import counted
from understudy.learners import DisjointFeatures, LinProdCompact, lin_prod_compact
from understudy.logs.encoder import REMEDY, Encoder
from understudy.snapshots import fields_as_data, fields_from_data
from understudy.theory import leverage
from understudy.types import Integers, kernel_view, rounds_per_chunk

# The ridge is min(1, 16/√m) times the mean eigenvalue of V: 1 for a short warm-up, 0.16 for one of
# 10⁴ rows. A large ridge leaves a bias for good; a small one makes κ large and so the start slow,
# for which long logs have time.
RIDGE = 16.0
LARGEST_STATE = 1 << 23  # numbers in V, and in the state, K p² each: 64 MB
COUNT = integer(0, "pass a number of rows")


class ConstantContexts(InvalidLog):
    """No column of contexts changes within a warm-up, so there are no features; later ones may."""


@dataclass(frozen=True, eq=False)
class ContextFeatures:
    """An encoder, the learner that takes its features, and statistics of their warm-up.

    `rows` counts the rows of the warm-up, `shrunk` those above κ, `unseen` the actions without a
    row; `ridge` was added to V.
    """

    encoder: Encoder
    learner: LinProdCompact
    rows: int
    shrunk: int
    unseen: int
    ridge: float
    CONSTRAINTS: ClassVar = {"rows": COUNT, "shrunk": COUNT, "unseen": COUNT, "ridge": NONNEGATIVE}

    def __post_init__(self) -> None:
        enforce(self)
        p = len(self.encoder.features)
        if not isinstance(self.learner, LinProdCompact) or self.learner.spec.features != (p,):
            reason = f"it is no lin_prod_compact of contexts with {p} features"
            raise InvalidArgument("learner", self.learner, reason, "pass the one that was fitted")

    def features(self, frame: pl.DataFrame) -> Array:
        """The features of every row as the learner sees them, (n, p): the same in any batching."""
        return _shrink(self.encoder.encode(frame), self.learner)

    def features_of_one(self, context: Mapping[str, object]) -> Array:
        """The features of one context as the learner sees them, (p,)."""
        return _shrink(self.encoder.encode_one(context)[np.newaxis], self.learner)[0]  # type: ignore[no-any-return] # a row

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


def fit_context_features(
    encoder: Encoder,
    frame: pl.DataFrame,
    actions: Integers,
    n_actions: int,
    *,
    horizon: int | None = None,
) -> ContextFeatures:
    r"""`lin_prod_compact` with a block of parameters per action, and its features, from a warm-up.

    `frame` holds the contexts of the rows that `encoder` was fitted to, `actions` the index of the
    action that was played in each.

    $$V_a = \frac{n_a}{n_a + p} \hat V_a + \Big(\frac{p}{n_a + p} + \rho\Big) \lambda I, \qquad
    \hat V_a = \frac1m \sum_{b=a} x x^\top, \qquad
    \kappa = \mathrm{median} \max_a x^\top V_a^{-1} x$$

    over m rows, n_a of them with action a, where λ is the mean eigenvalue of all V̂_a and
    ρ = min(1, 16/√m). So V_a of an action with few rows is near that of an average action, which
    keeps its estimates and κ small: with the ridge alone, one rare action would slow down all.
    """
    _check_size(encoder, len(frame), n_actions)
    p, m = len(encoder.features), len(frame)
    squares = np.zeros((n_actions, p, p))
    for start, x in _chunks(encoder, frame):
        played = kernel_view(actions[start : start + len(x)])
        kernels.lin_prod.add_squares(kernel_view(x), played, squares)
    counts = np.bincount(actions, minlength=n_actions)
    doubt = (p / (counts + p))[:, np.newaxis, np.newaxis]
    typical = float(np.trace(squares, axis1=1, axis2=2).mean()) / (m * p)
    ridge = min(1.0, RIDGE / math.sqrt(m)) * typical
    V = (1.0 - doubt) * squares / m + (doubt * typical + ridge) * np.eye(p)
    inverse = DisjointFeatures(V).V_inverse
    leverages = np.concatenate([_largest_leverages(x, inverse) for _, x in _chunks(encoder, frame)])
    kappa = float(np.median(leverages))
    return ContextFeatures(
        encoder,
        lin_prod_compact(V, n_actions=n_actions, kappa=kappa, horizon=horizon),
        rows=m,
        shrunk=int((leverages > kappa).sum()),
        unseen=int((counts == 0).sum()),
        ridge=ridge,
    )


def _check_size(encoder: Encoder, rows: int, n_actions: int) -> None:
    """Raise `ConstantContexts` if the constant is the only feature, `InvalidLog` if too many."""
    p = len(encoder.features)
    if not encoder.columns:
        raise ConstantContexts(
            "contexts",
            ", ".join(encoder.constants),
            f"no context changes in the {counted(rows, 'row')} of the warm-up, "
            "so there are no features",
            "pass a larger --warmup, such as 0.5, name other columns, or leave out --context",
        )
    if n_actions * p**2 > LARGEST_STATE:
        most = math.isqrt(LARGEST_STATE // n_actions)
        reason = f"the state of the learner would have {n_actions * p**2:,} numbers"
        remedy = f"name fewer columns of contexts: at most {most} features"
        raise InvalidLog("contexts", f"{p} features, {n_actions} actions", reason, remedy)


def _chunks(encoder: Encoder, frame: pl.DataFrame) -> Iterator[tuple[int, Array]]:
    """The features of the rows in chunks, each with the index of its first row."""
    size = rounds_per_chunk(len(encoder.features))
    for start in range(0, len(frame), size):
        yield start, encoder.encode(frame[start : start + size])


def _shrink(x: Array, learner: LinProdCompact) -> Array:
    """x · min(1, √(κ / max_a xᵀ V_a⁻¹ x)): features that satisfy κ."""
    leverages = _largest_leverages(x, learner.features.V_inverse)
    return np.asarray(x * np.sqrt(np.minimum(1.0, learner.kappa / leverages))[:, np.newaxis])


def _largest_leverages(x: Array, inverse: Array) -> Array:
    """max_a xᵀ V_a⁻¹ x of every context, (n,)."""
    return np.asarray(leverage(x, inverse).max(axis=1))
