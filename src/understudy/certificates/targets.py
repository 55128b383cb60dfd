"""Targets of a certificate: a learner's trace, a fixed policy, or a column of probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.behaviors import (
    LEAST_DECLARED,
    LEAST_REMEDY,
    SLACK,
    Behavior,
    Logged,
    inverse_of,
    n_actions_of,
)
from understudy.constraints import PROBABILITIES, Array, Checked, array, dimensions_of, number
from understudy.errors import InvalidArgument, InvalidEvent
from understudy.types import Integers, Log, Trace


@dataclass(frozen=True, eq=False)
class FixedPolicy(Checked):
    """A target that plays with the same K probabilities in every round, and says so.

    K numbers alone are the same, except for a log of K rounds, in which they might be a column.

    >>> FixedPolicy([0.25, 0.75]).probabilities.tolist()
    [0.25, 0.75]
    """

    probabilities: Array
    CONSTRAINTS: ClassVar = {"probabilities": PROBABILITIES}

    if TYPE_CHECKING:

        def __init__(self, probabilities: ArrayLike) -> None: ...


Target = Trace | FixedPolicy | ArrayLike

REMEDY = (
    "pass the trace of a learner (what its replay gives second), a fixed policy (K,), or the "
    "probability of each logged action (n,), of policies (n, K) policies[np.arange(n), log.actions]"
)
PROBABILITY = number(0.0, 1.0, "pass the probability of the logged action under the target")
COLUMN = array(REMEDY, low=0.0, high=1.0)


def probabilities_under(
    target: Target, log: Log, n_actions: int, argument: str = "target"
) -> Array:
    """π_t(b_t), the probability of every logged action under the target, or a baseline.

    >>> log = Log(actions=[1, 1, 0], rewards=[1.0, 0.0, 1.0])
    >>> probabilities_under([0.25, 0.75], log, n_actions=2).tolist()
    [0.75, 0.75, 0.25]
    >>> probabilities_under([0.5, 0.6, 0.7], log, n_actions=2).tolist()
    [0.5, 0.6, 0.7]
    """
    if isinstance(target, Trace):
        return _trace_column(target, log, n_actions, argument)
    if isinstance(target, FixedPolicy):
        policy, reason = target.probabilities, f"the behavior has {n_actions} actions"
        _require(argument, target, len(policy) == n_actions, reason)
        return np.asarray(policy[log.actions])
    if dimensions_of(target) == 0:
        reason = f"a log of {len(log)} rounds needs as many probabilities"
        _require(argument, target, len(log) == 1, reason)
        return np.array([PROBABILITY(argument, target)])
    column: Array = COLUMN(argument, target)
    fits = len(column) in {n_actions, len(log)}
    _require(argument, target, fits, _length_reason(len(column), len(log), n_actions))
    if len(column) != n_actions:
        return column
    if len(column) != len(log):
        policy = PROBABILITIES(argument, target)
        return np.asarray(policy[log.actions])
    if not np.array_equal(column, column[log.actions]):
        raise InvalidArgument(
            argument,
            target,
            f"with {n_actions} actions and as many rounds it may be a policy or a column",
            "pass us.FixedPolicy(policy), or us.Trace(column, past_horizon=0, n_actions=K)",
        )
    return column


def largest_ratio(behavior: Behavior) -> float:
    """max_a 1/q(a), which no π(a)/q_t(a) exceeds; inf if it is not known, or an action has q = 0.

    >>> [largest_ratio(one) for one in (np.array([0.25, 0.75]), Logged(2), Logged(2, 0.1))]
    [4.0, inf, 10.0]
    """
    if isinstance(behavior, Logged):
        return math.inf if behavior.least_propensity is None else 1.0 / behavior.least_propensity
    least = float(behavior.min())
    return 1.0 / least if least > 0.0 else math.inf


def largest_ratios(target: Target, log: Log, behavior: Behavior | None) -> Array:
    """W_t ≥ max_a π_t(a)/q_t(a) of every round, known before b_t; inf where it is not known.

    A target whose probabilities of all actions are known has its own; another has the largest that
    is possible. Where the target may play an action that the behavior never plays, w is too small
    on average: then no center is valid, and W is inf.

    >>> log = Log(actions=[1, 1, 0], rewards=[1.0, 0.0, 1.0])
    >>> largest_ratios(FixedPolicy([0.25, 0.75]), log, np.array([0.5, 0.5])).tolist()
    [1.5, 1.5, 1.5]
    """
    n = len(log)
    if behavior is None:
        return np.full(n, math.inf)
    policy = fixed_policy(target, n, n_actions_of(behavior))
    vectors = log.propensity_vectors if isinstance(behavior, Logged) else None
    if policy is not None and vectors is None:
        return np.full(n, ratio_of_policy(policy, behavior))
    if policy is not None and vectors is not None:
        return np.asarray(np.minimum(_ratio(policy, vectors), ratio_of_policy(policy, behavior)))
    crude = np.full(n, largest_ratio(behavior))
    if vectors is not None:
        with np.errstate(divide="ignore"):
            crude = np.minimum(crude, 1.0 / vectors.min(axis=1))
    if not isinstance(target, Trace) or target.largest is None:
        return crude
    if target.inverse is None:
        known = target.largest * crude
    elif not np.array_equal(target.inverse, _inverse(behavior)):
        return crude
    else:
        known = target.largest
    return np.asarray(
        np.minimum(crude, (0.0 if target.follows is None else target.follows) + known)
    )


CERTAINLY_RARE = 1e-6  # the probability of an alarm about a right least propensity


def played_too_rarely(plays: Integers, rounds: int, least: float) -> NDArray[np.bool_]:
    """The actions that cannot have had at least this propensity in all of these rounds.

    With propensities of at least f, an action has a share of at most p of n rounds with a
    probability of at most exp(−n kl(p, f)) (Chernoff).

    >>> [played_too_rarely(np.array([450, 50]), 500, f).tolist() for f in (0.1, 0.3)]
    [[False, False], [False, True]]
    """
    n = max(rounds, 1)
    share = np.minimum(plays, n) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        played = np.where(share > 0.0, share * np.log(share / least), 0.0)
        rest = np.where(share < 1.0, (1.0 - share) * np.log((1.0 - share) / (1.0 - least)), 0.0)
    most = math.log(len(share) * n * (n + 1) / CERTAINLY_RARE)
    return np.asarray((share < least) & (n * (played + rest) > most))


def refuse_rare_actions(target: Target, log: Log, behavior: Behavior | None) -> None:
    """Raise `InvalidEvent` if a log shows that an action of the target was not always possible.

    A learner may play any action; of a column it is not known.
    """
    if not isinstance(behavior, Logged) or behavior.least_propensity is None:
        return
    K, n, f = behavior.n_actions, len(log), behavior.least_propensity
    policy = fixed_policy(target, n, K)
    if policy is None and not isinstance(target, Trace):
        return
    plays = np.bincount(log.actions, minlength=K)
    rare = played_too_rarely(plays, n, f) & (True if policy is None else policy > 0.0)
    if rare.any():
        a = int(np.argmax(rare))
        raise InvalidEvent(
            "actions",
            f"action {a} in {plays[a]:,} of {n:,} rounds",
            f"{LEAST_DECLARED.format(f)}, and so rare plays contradict it",
            LEAST_REMEDY,
        )


def ratio_of_policy(policy: Array, behavior: Behavior) -> float:
    """max_a π(a)/q_t(a) of a policy that plays the same in every round, inf if it is not known.

    >>> ratio_of_policy(np.array([0.2, 0.8]), Logged(2, least_propensity=0.1))
    8.0
    """
    if isinstance(behavior, Logged):
        return float(policy.max() * largest_ratio(behavior))
    return float(_ratio(policy, behavior))


def _inverse(behavior: Behavior) -> Array:
    """1/q of every action; nothing if it is logged."""
    found = inverse_of(behavior)
    return np.empty(0) if found is None else found


def _ratio(policy: Array, q: Array) -> Any:
    """max_a π(a)/q(a), inf where an action of the policy has q = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(policy > 0.0, policy / q, 0.0).max(axis=-1)


def fixed_policy(target: Target, rounds: int, n_actions: int) -> Array | None:
    """The probabilities of all actions of a target that plays the same in every round."""
    if isinstance(target, FixedPolicy):
        return target.probabilities
    if isinstance(target, Trace) or dimensions_of(target) == 0:
        return None
    column = np.asarray(target, dtype=np.float64)
    return column if len(column) == n_actions != rounds else None


def actions_of(target: Target, rounds: int) -> int | None:
    """K, if the target tells it: a trace does, and so does a policy; a column does not."""
    if isinstance(target, Trace):
        return target.n_actions
    if isinstance(target, FixedPolicy):
        return len(target.probabilities)
    column: Array = COLUMN("target", target)
    return len(PROBABILITIES("target", target)) if len(column) != rounds else None


def _trace_column(trace: Trace, log: Log, n_actions: int, argument: str) -> Array:
    if trace.n_actions != n_actions:
        raise InvalidArgument(
            argument,
            f"a trace of {trace.n_actions} actions",
            f"the behavior has {n_actions}",
            "pass the trace of a learner that watched this behavior",
        )
    column: Array = COLUMN(f"{argument}.probability", trace.probability)
    _require(argument, trace, len(column) == len(log), _length_reason(len(column), len(log), None))
    if trace.largest is not None:
        v = 1.0 if trace.inverse is None else trace.inverse[log.actions]
        most = trace.largest + (0.0 if trace.follows is None else trace.follows)
        too_small = column * v > most * (1.0 + SLACK)  # then a bet could lose more than it has
        if too_small.any():
            t = int(np.argmax(too_small))
            raise InvalidArgument(
                f"{argument}.largest",
                float(trace.largest[t]),
                f"the logged action of round {t} has a larger one (probability {column[t]:.6g})",
                "pass the largest over all actions, or leave it out",
            )
    return column


def _length_reason(found: int, rounds: int, n_actions: int | None) -> str:
    actions = "" if n_actions is None else f" and {n_actions} actions"
    return f"it has {found} entries, and the log {rounds} rounds{actions}"


def _require(argument: str, target: Any, fits: bool, reason: str) -> None:
    if not fits:
        raise InvalidArgument(argument, target, reason, REMEDY)
