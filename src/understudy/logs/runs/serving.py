"""A learned policy that answers requests: one at a time, or many at once.

All that no request changes is computed once, so that a request costs little more than its
arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from understudy.constraints import SUM_TOLERANCE, Array, dimensions_of
from understudy.errors import InvalidArgument, first_line
from understudy.learners.outside_policies import (
    NOTHING,
    ProductionFollower,
    argument_of,
    best_actions,
    given_by_name,
    rows_by_name,
    rows_of_probabilities,
)
from understudy.logs.action_files import probability_vector
from understudy.logs.features import ContextFeatures
from understudy.logs.schema import CONTEXT, Actions
from understudy.protocols import Learner

# The probabilities of one request: by label, or in the order of the actions.
Chances = Mapping[Any, float] | Sequence[float] | Array


@dataclass(frozen=True, eq=False)
class Serving:
    """A learner at one state, with the labels of its actions and the features of its contexts."""

    actions: Actions
    learner: Learner[Any]
    state: Any
    contextual: ContextFeatures | None

    def one(
        self,
        context: Mapping[str, Any] | None,
        production: Chances | None,
        experts: Mapping[str, Chances] | None,
    ) -> Array:
        """π of one request, (K,)."""
        features, outside = self._features_of(context), NOTHING
        if production is not None or experts:
            given = given_by_name(self.learner.spec, production, experts)
            outside = {name: self._row(argument_of(name), row) for name, row in given.items()}
        return np.asarray(self._evaluate(features, outside, 1)[0])

    def many(
        self,
        contexts: Any,
        production: ArrayLike | None,
        experts: Mapping[str, ArrayLike] | None,
    ) -> Array:
        """π of many requests, (n, K), each with the bits that it has alone."""
        given, features = given_by_name(self.learner.spec, production, experts), None
        n = max([1, *(len(rows) for rows in given.values() if dimensions_of(rows))])
        if self.contextual is not None:
            needed = [column.name for column in self.contextual.encoder.columns]
            features = self.contextual.features(_table(contexts, needed))
            n = len(features)
        elif contexts is not None:
            raise _contexts_are_ignored(contexts)
        outside = rows_by_name(given, (n, len(self.actions)))
        found = self._evaluate(features, outside, n)
        return found if len(found) == n else np.tile(found, (n, 1))

    def best(self, context: Mapping[str, Any] | None) -> int:
        """The most probable action of the part of the policy that follows no outside policy."""
        return int(best_actions(self.learner, self.state, self._features_of(context))[0])

    @cached_property
    def _evaluate(self) -> Callable[[Array | None, Mapping[str, Array], int], Array]:
        """A function of contexts, outside policies and a number of rows: the policies, (n, K).

        There is one row if none of these matters.
        """
        learner = self.learner
        learner.check_state(self.state)
        evaluate = learner.evaluator(self.state)
        if isinstance(learner, ProductionFollower):
            return lambda *given: np.asarray(evaluate(*given)[:, 0])
        if len(learner.variants) > 1:
            return lambda features, *_: np.asarray(evaluate(features).mean(axis=1))
        return lambda features, *_: np.asarray(evaluate(features)[:, 0])

    def __getstate__(self) -> dict[str, Any]:
        """All but the function above, which cannot be pickled and is made again."""
        return {name: value for name, value in vars(self).items() if name != "_evaluate"}

    def _features_of(self, context: Mapping[str, Any] | None) -> Array | None:
        """The features of one context, (1, p); None if the policy ignores contexts."""
        if self.contextual is not None:
            return self.contextual.features_of_one(context)[np.newaxis]  # type: ignore[arg-type] # it refuses None
        if context is not None:
            raise _contexts_are_ignored(context)
        return None

    def _row(self, argument: str, given: Any) -> Array:
        """The probabilities of one request in the order of the actions, (1, K)."""
        values = given
        if isinstance(given, Mapping):
            values = [given.get(label) for label in self.actions.labels]
            if None in values or len(given) > len(values):  # other spellings of labels, or zeros
                values = probability_vector(argument, given, self.actions)
        if isinstance(values, np.ndarray):
            values = values.tolist()
        try:  # the checks of `rows_of_probabilities`, of so few numbers faster in Python
            total, least, count = sum(values), min(values), len(values)
        except (TypeError, ValueError):
            total, least, count = 0.0, 0.0, 0
        K = len(self.actions)
        if count == K and least >= 0.0 and abs(total - 1.0) <= SUM_TOLERANCE:
            return np.array([values], dtype=np.float64)
        return rows_of_probabilities(argument, values, (K,))[np.newaxis]


def _contexts_are_ignored(given: object) -> InvalidArgument:
    return InvalidArgument("context", given, "this policy ignores contexts", "leave it out")


def _table(contexts: Any, needed: Sequence[str]) -> pl.DataFrame:
    """Contexts as a frame with these columns, under the names that they have in a log."""
    try:
        if isinstance(contexts, Mapping):
            frame = pl.DataFrame(dict(contexts), strict=False)  # no number: missing, as in a log
        else:
            frame = nw.from_native(contexts, eager_only=True).to_polars()
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        remedy = "pass a data frame, or a dictionary of columns of one length"
        raise InvalidArgument("contexts", contexts, first_line(error), remedy) from None
    if absent := [name for name in needed if name not in frame.columns]:
        remedy = f"pass the columns {', '.join(needed)}, with None for what is missing"
        raise InvalidArgument(
            "contexts", frame.columns, f"there is no column {absent[0]!r}", remedy
        )
    return frame.rename(lambda name: CONTEXT + name)
