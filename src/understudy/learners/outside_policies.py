"""Outside policies: those that a learner follows in part, and knows at logged actions only.

To play, the learner needs their probabilities of all actions (`EventSpec.outside`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import SUM_TOLERANCE, Array, array
from understudy.errors import InvalidArgument
from understudy.protocols import PRODUCTION, AllPolicies, EventSpec, Learner
from understudy.types import Integers, Log

State = TypeVar("State")
NOTHING: Mapping[str, Any] = MappingProxyType({})
# Of an unknown policy: a smaller share is left out, which moves no probability by more than this.
LEAST_SHARE = 1e-3


def argument_of(name: str) -> str:
    """The argument that holds the probabilities of an outside policy."""
    return PRODUCTION if name == PRODUCTION else f"experts[{name!r}]"


def given_by_name(
    spec: EventSpec, production: Any, experts: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What was given of each outside policy; `InvalidArgument` for one that is not followed."""
    if not isinstance(experts, Mapping | None):
        remedy = "pass a dictionary: the probabilities of each expert column, by its name"
        raise InvalidArgument("experts", experts, "they need names", remedy)
    given = dict(experts or {})
    for name in given:
        if name not in spec.columns:
            known = ", ".join(spec.columns)
            remedy = f"pass those of {known}" if known else "leave it out"
            raise InvalidArgument("experts", name, "the policy has no such expert column", remedy)
    if production is not None:
        if PRODUCTION not in spec.outside:
            reason = "the policy follows no production that it does not know"
            raise InvalidArgument(PRODUCTION, production, reason, "leave it out")
        given[PRODUCTION] = production
    return given


def rows_by_name(given: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Array]:
    """The probabilities of each outside policy, (n, K), given as (n, K) or, of one row, (K,)."""
    return {
        name: np.atleast_2d(rows_of_probabilities(argument_of(name), value, shape))
        for name, value in given.items()
    }


def rows_of_probabilities(argument: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Probabilities of this shape, whose last axis sums to 1, or `InvalidArgument`."""
    remedy = f"pass probabilities of shape {shape} that sum to 1 over the actions"
    checked = array(remedy, dimensions=(len(shape),), low=0.0, high=1.0)(argument, value)
    if checked.shape != shape:
        raise InvalidArgument(argument, checked.shape, f"its shape must be {shape}", remedy)
    if np.abs(checked.sum(axis=-1) - 1.0).max(initial=0.0) > SUM_TOLERANCE:
        raise InvalidArgument(argument, value, "a row does not sum to 1", remedy)
    return np.asarray(checked)


def unknown_policy(name: str, outside: str, share: float) -> InvalidArgument:
    """The error for an outside policy whose probabilities are needed and were not given."""
    of_production = outside == PRODUCTION
    what = "production=" if of_production else f"experts={{{outside!r}: …}}"
    return InvalidArgument(
        PRODUCTION if of_production else "experts",
        None,
        f"with probability {share:.2g} this policy does as {name!r} does, whose probabilities are "
        "not known here",
        f"pass {what}, its probability of every action for this request",
    )


def add_production(weights: Array, production: Array | None) -> Array:
    """Policies (n, K) of weights (n, K + 1), whose last column is the share of production.

    >>> add_production(np.array([[0.2, 0.3, 0.5]]), np.array([1.0, 0.0])).tolist()
    [[0.7, 0.3]]
    """
    known, share = weights[:, :-1], weights[:, -1:]
    if production is not None:
        return np.minimum(1.0, known + share * production)
    largest = float(share.max(initial=0.0))
    if largest > LEAST_SHARE:
        raise unknown_policy(PRODUCTION, PRODUCTION, largest)
    return np.asarray(known / known.sum(axis=1, keepdims=True))


def best_actions(
    learner: Learner[Any], state: Any, features: Array | None, rows: int = 1
) -> Integers:
    """The most probable actions, (n,), of the part of a policy that follows no outside policy.

    An expert column does not show the best action of its model, so it must not be the larger part.
    """
    known, shares = learner.known_at(state, features, rows)
    outside = zip(learner.spec.outside, shares.tolist(), strict=True)
    followed = {name: share for name, share in outside if name in learner.spec.columns}
    if (share := sum(followed.values())) > 0.5:  # noqa: PLR2004 - the larger part
        raise InvalidArgument(
            "best_action",
            True,
            f"with probability {share:.3g} the policy does as expert columns do "
            f"({', '.join(followed)}), which do not show a best action",
            "leave it out, or certify a column that is 1 where the model's best action was logged",
        )
    return np.asarray(known.argmax(axis=1))


class ProductionFollower(Learner[State]):
    """A learner that may do as production does, which the log shows at logged actions only.

    Its `evaluator` also takes the probabilities of outside policies, (n, K) by name, and a number
    of rows.
    """

    def policies(
        self, state: State, log: Log, *, production: ArrayLike | None = None
    ) -> tuple[State, Array]:
        """Like `replay`, with every π_t in full: an array (n, K).

        `production` is π_B(·|X_t) of all rounds, (n, K), if the learner follows it and does not
        know it.
        """
        self.check_state(state)
        self.check_log(log)
        given = self.check_outside(production, rows=len(log)).get(PRODUCTION)
        recorder = AllPolicies(len(log), self.spec.n_actions, given)
        state = self._advance_recorded(state, log, recorder)
        return state, recorder.policies

    def check_outside(
        self,
        production: ArrayLike | None,
        experts: Mapping[str, ArrayLike] | None = None,
        rows: int | None = None,
    ) -> dict[str, Array]:
        """Given probabilities by name, (n, K): of many rows, or of one, given as (K,)."""
        K = self.spec.n_actions
        shape = (K,) if rows is None else (rows, K)
        return rows_by_name(given_by_name(self.spec, production, experts), shape)
