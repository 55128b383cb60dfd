"""A learner of contexts, made from the warm-up of a log, which it does not learn from.

The features of a context are those of the encoder, scaled down where φᵀV⁻¹φ is above κ. That is a
function of the context alone, frozen by the warm-up: so every policy is predictable, the promise
κ holds for every context that can ever come, and no row is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from understudy import kernels
from understudy.constraints import HORIZON, N_ACTIONS, NONNEGATIVE, Array, constrained, integer
from understudy.errors import InvalidArgument, InvalidLog, InvalidSnapshot
from understudy.learners import DisjointFeatures, LinProdCompact, lin_prod_compact
from understudy.logs.encoder import REMEDY, Encoder, refuse_empty
from understudy.report.wording import counted, percent
from understudy.theory import leverage
from understudy.types import Integers, kernel_view, rounds_per_chunk

__all__ = ["Contextual", "make_contextual"]

# Of the mean eigenvalue of V: 1 in a short warm-up, 0.16 in one of 10⁴ rows. A ridge costs a bias
# that stays, and a small one a large κ, so a slow start: long logs have time for that.
RIDGE = 16.0
LARGEST = 1 << 23  # numbers in V, and in the state: K p² of them
COUNT = integer(0, "pass a number of rows")


@dataclass(frozen=True, eq=False)
class Contextual:
    """An encoder, a learner whose V and κ come from the same warm-up, and what that was like.

    `rows` is how many rows it had, `shrunk` how many of them lie above κ, `unseen` how many actions
    it never showed, and `ridge` what was added to V.
    """

    encoder: Encoder
    learner: LinProdCompact
    rows: int
    shrunk: int
    unseen: int
    ridge: float

    def features(self, frame: pl.DataFrame) -> Array:
        """What the learner is shown of every row, (n, p): the same bits in any batching."""
        return shrink(self.encoder.encode(frame), self.learner)

    def features_of_one(self, context: Mapping[str, object]) -> Array:
        """What the learner is shown of one context, (p,)."""
        return shrink(self.encoder.encode_one(context)[np.newaxis], self.learner)[0]  # type: ignore[no-any-return] # a row

    def left_out(self) -> list[str]:
        """Which columns say nothing to the learner, and what would change that, in a sentence."""
        if not self.encoder.constants:
            return []
        return [
            f"Contexts that did not change in the {counted(self.rows, 'row')} of the warm-up are "
            f"left out: {', '.join(self.encoder.constants)}; a larger --warmup may see them change."
        ]

    def assumptions(self) -> list[str]:
        """What Theorem 3 assumes and nobody has checked, or is known not to hold here."""
        share = self.shrunk / self.rows
        found = [
            "mean rewards are linear in the features: no log can show that",
            "contexts are drawn alike, and production plays alike, in the warm-up and after it",
            f"V is known: here it is an average of {counted(self.rows, 'row')} and a ridge of "
            f"{self.ridge:.3g}, which makes estimates cautious and biased",
            f"features are bounded: here {percent(share)} of the warm-up are scaled down to "
            f"κ = {self.learner.kappa:.4g}, and rewards would have to be linear in what is left",
        ]
        if self.unseen:
            found.append(
                f"production plays every action: {self.unseen} of {self.learner.spec.n_actions} "
                "are not in the warm-up, and V of these is a guess"
            )
        return found

    def as_data(self) -> dict[str, Any]:
        """As what JSON can hold, exactly: all but the learner, which snapshots hold."""
        return {
            "encoder": self.encoder.as_data(),
            "rows": self.rows,
            "shrunk": self.shrunk,
            "unseen": self.unseen,
            "ridge": self.ridge,
        }

    @staticmethod
    def from_data(data: object, learner: object) -> Contextual:
        """What `as_data` made data of, with the learner that goes with it, or `InvalidSnapshot`."""
        names = {"encoder", "rows", "shrunk", "unseen", "ridge"}
        if not isinstance(data, dict) or set(data) != names:
            raise InvalidSnapshot("contexts", data, "it is nothing made of contexts", REMEDY)
        encoder = Encoder.from_data(data["encoder"])
        p = len(encoder.features)
        if not isinstance(learner, LinProdCompact) or learner.spec.features != (p,):
            reason = f"it is no lin_prod_compact of contexts with {p} features"
            raise InvalidSnapshot("learner", learner, reason, REMEDY)
        try:
            rows, shrunk, unseen = (
                COUNT(name, data[name]) for name in ("rows", "shrunk", "unseen")
            )
            ridge = NONNEGATIVE("ridge", data["ridge"])
        except InvalidArgument as error:
            raise InvalidSnapshot(error.argument, error.value, error.reason, REMEDY) from error
        return Contextual(encoder, learner, rows, shrunk, unseen, ridge)


@constrained(n_actions=N_ACTIONS, horizon=HORIZON.optional())
def make_contextual(
    encoder: Encoder,
    frame: pl.DataFrame,
    actions: Integers,
    n_actions: int,
    *,
    horizon: int | None = None,
) -> Contextual:
    r"""`lin_prod_compact` with a block of parameters for each action, from the rows of a warm-up.

    $$V_a = \frac{n_a}{n_a + p} \hat V_a + \Big(\frac{p}{n_a + p} + \rho\Big) \lambda I, \qquad
    \hat V_a = \frac1m \sum_{b=a} x x^\top, \qquad
    \kappa = \mathrm{median} \max_a x^\top V_a^{-1} x$$

    over its m rows, n_a of action a, with λ the mean eigenvalue of all V̂_a and ρ = min(1, 16/√m).
    So an action that is hardly in it counts as played like any other, which makes its estimates
    small, and κ too: with the ridge alone, one such action would slow the learning of all.

    >>> warmup = pl.DataFrame({"context.age": [20.0, 40.0, 60.0, 80.0]})
    >>> encoder = Encoder.fit(warmup, ["age"])
    >>> made = make_contextual(encoder, warmup, np.array([0, 1, 1, 0]), 2)
    >>> made.learner.features.V.shape, made.features(warmup).shape
    ((2, 2, 2), (4, 2))
    """
    p, m = len(encoder.features), len(frame)
    refuse_empty(frame)
    refuse_actions(actions, m, n_actions)
    if not encoder.columns:
        raise InvalidLog(
            "contexts",
            ", ".join(encoder.constants),
            f"no context changes in the {counted(m, 'row')} of the warm-up, so there is nothing to "
            "tell contexts apart by",
            "pass a larger --warmup, such as 0.5, name other columns, or leave out --context",
        )
    if n_actions * p**2 > LARGEST:
        raise InvalidLog(
            "contexts",
            f"{p} features, {n_actions} actions",
            f"the state of the learner would hold {n_actions * p**2:,} numbers",
            f"name fewer columns of contexts: at most {math.isqrt(LARGEST // n_actions)} features",
        )
    squares = np.zeros((n_actions, p, p))
    for start, x in encoded(encoder, frame):
        played = kernel_view(actions[start : start + len(x)])
        kernels.lin_prod.add_squares(kernel_view(x), played, squares)
    counts = np.bincount(actions, minlength=n_actions)
    doubt = (p / (counts + p))[:, np.newaxis, np.newaxis]
    typical = float(np.trace(squares, axis1=1, axis2=2).mean()) / (m * p)
    ridge = min(1.0, RIDGE / math.sqrt(m)) * typical
    V = (1.0 - doubt) * squares / m + (doubt * typical + ridge) * np.eye(p)
    inverse = DisjointFeatures(V).V_inverse
    found = np.concatenate([largest_leverages(x, inverse) for _, x in encoded(encoder, frame)])
    kappa = float(np.median(found))
    learner = lin_prod_compact(V, n_actions=n_actions, kappa=kappa, horizon=horizon)
    return Contextual(
        encoder, learner, m, int((found > kappa).sum()), int((counts == 0).sum()), ridge
    )


def encoded(encoder: Encoder, frame: pl.DataFrame) -> Iterator[tuple[int, Array]]:
    """The features of the rows from each start on, a stretch at a time."""
    size = rounds_per_chunk(len(encoder.features))
    for start in range(0, len(frame), size):
        yield start, encoder.encode(frame[start : start + size])


def largest_leverages(x: Array, inverse: Array) -> Array:
    """max_a xᵀ V_a⁻¹ x of every context, (n,)."""
    return np.asarray(leverage(x, inverse).max(axis=1))


def shrink(x: Array, learner: LinProdCompact) -> Array:
    """x · min(1, √(κ / max_a xᵀ V_a⁻¹ x)): as it is, or as large as κ allows."""
    found = largest_leverages(x, learner.features.V_inverse)
    return np.asarray(x * np.sqrt(np.minimum(1.0, learner.kappa / found))[:, np.newaxis])


def refuse_actions(actions: Integers, rows: int, n_actions: int) -> None:
    """Raise `InvalidArgument` unless there is the index of an action for every row."""
    if len(actions) != rows or not ((actions >= 0) & (actions < n_actions)).all():
        raise InvalidArgument(
            "actions",
            actions,
            f"there are {rows} rows and {n_actions} actions, counted from 0",
            "pass the index of the action that was played in each row",
        )
