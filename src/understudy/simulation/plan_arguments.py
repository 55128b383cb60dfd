"""The arguments of plans: what each must be, and the game that they mean together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from understudy.constraints import (
    Array,
    Constraint,
    ConstraintViolation,
    array,
    integer,
    number,
    one_of,
)
from understudy.errors import InvalidArgument, shorten
from understudy.formatting import number as written
from understudy.learners import exp3_ix, prod_grid
from understudy.protocols import Learner
from understudy.simulation.adversaries import stationary
from understudy.simulation.game import Game, check_player
from understudy.simulation.planned_game import PlannedGame, PlannedGuardrail
from understudy.types import read_only

PRODUCTION, ACTION = "production", "action"  # what the gain is measured against
AGAINST = one_of("pass 'production', or 'action' for its most frequent one", PRODUCTION, ACTION)
BEST = integer(0, "pass the index of an action, counted from 0")
NAMED_LEARNERS = ("prod-grid", "exp3-ix")
MOST_ACTIONS = 10**6  # all of them fit into megabytes
ACTIONS = integer(2, f"pass the number of actions, at most {MOST_ACTIONS}", MOST_ACTIONS)
EXPLORATION = number(
    1e-12, 1.0, "pass a share of rows such as 0.1 (without exploration a log shows one action only)"
)
MEAN_REWARD = number(0.0, 1.0, "pass the mean reward of production, such as a click rate of 0.02")
GAIN_THAT_MATTERS = number(
    0.0, 1.0, "pass the smallest gain that matters, such as 0.003", above=True
)
MEANS = array("pass the mean reward of each action, in [0, 1]", low=0.0, high=1.0)


def _guardrails(value: Any) -> tuple[PlannedGuardrail, ...]:
    if not isinstance(value, list | tuple):
        raise ConstraintViolation("it is no list")
    for one in value:
        if not isinstance(one, PlannedGuardrail):
            raise ConstraintViolation(f"it holds {shorten(one)}")
    if len({one.guardrail.name for one in value}) < len(value):
        raise ConstraintViolation("a metric is there twice")
    return tuple(value)


GUARDRAILS = Constraint(
    "pass a list of us.PlannedGuardrail", _guardrails, (None, "latency", 3, [0.1], {})
)


def production_of(actions: int | None, production: Any, exploration: float | None) -> Array:
    """π_B, from its shares or from an incumbent and exploration."""
    if (production is None) == (exploration is None):
        value, reason = exploration, "production's policy is given twice"
        if production is None:
            value, reason = None, "production's policy is not known"
        remedy = "pass production, its K probabilities, or the share of rows in which it explores"
        raise InvalidArgument("exploration", value, reason, remedy)
    if production is not None:
        if actions not in {None, len(production)}:
            reason = f"production has {len(production)} probabilities"
            raise InvalidArgument("actions", actions, reason, "leave it out")
        if np.max(production) == 1.0:
            reason = "production plays one action only, so no log shows what another one earns"
            raise InvalidArgument("production", np.asarray(production).tolist(), reason, EXPLORE)
        return np.asarray(production)
    if actions is None:
        raise InvalidArgument(
            "actions", None, "it is not known how many can be explored", "pass their number"
        )
    assert exploration is not None  # as seen above
    return exploring(actions, exploration)


def always(action: int, actions: int) -> Array:
    """The policy that always plays one action."""
    policy = np.zeros(actions)
    policy[action] = 1.0
    return read_only(policy)


def exploring(actions: int, exploration: float) -> Array:
    q = np.full(actions, exploration / actions)
    q[0] += 1.0 - exploration
    return read_only(q)


def one_better(
    q: Array, reward: float | None, gain: float | None, best: int | None, against: Array | None
) -> Array:
    """The mean rewards of a game in which one action has the smallest gain that matters."""
    for name, value in (("reward", reward), ("gain", gain)):
        if value is None:
            reason = "the rewards of the game are not known"
            remedy = "pass the mean reward of production and the smallest gain that matters"
            raise InvalidArgument(name, None, reason, f"{remedy}, or means")
    assert reward is not None
    assert gain is not None
    if best is None:
        least = np.where(q > 0.0, q, math.inf)
        best = int(np.flatnonzero(least == least.min())[-1])
    if best >= len(q):
        reason = f"there are {len(q)} actions, counted from 0"
        raise InvalidArgument("best", best, reason, f"pass an index of at most {len(q) - 1}")
    if q[best] == 0.0:
        reason = "production never plays it, so no log can show what it earns"
        raise InvalidArgument("best", best, reason, EXPLORE)
    if (q if against is None else against)[best] == 1.0:
        reason = "production plays it already, and it has no gain over itself"
        raise InvalidArgument("best", best, reason, "name another action")
    means = means_with_gain(q, reward, gain, best, against)
    if means[best] > 1.0:
        earned = written(float(means[best]))
        reason = f"the best action would have to earn {earned} a row, and the most is 1"
        raise InvalidArgument("gain", gain, reason, "pass a smaller gain")
    return means


def means_with_gain(
    q: Array, reward: float, gain: float, best: int, against: Array | None
) -> Array:
    """Production's mean reward for all actions but the best, whose gain is given."""
    means = np.full(len(q), reward)
    # The gain is this share of the difference, because production plays the best action, too.
    means[best] += gain / (1.0 - (q if against is None else against)[best])
    return means


def target_of(
    q: Array, means: Array, policy: Any, learner: Any, horizon: int | None, *, stated: bool
) -> Array | Learner[Any]:
    """The policy, or the learner, whose certificate is simulated."""
    if learner is None and horizon is not None:
        raise InvalidArgument("horizon", horizon, "it is for learners", "leave it out")
    if policy is not None:
        refuse_beside("policy", {"learner": learner})
        if stated:
            reason = "without means it is not known what its actions earn"
            raise InvalidArgument("policy", policy, reason, "pass means, or leave it out")
        check_length("policy", policy, len(q))
        return np.asarray(policy)
    if learner is None:
        return always(PlannedGame(q, means, q).best, len(q))
    if isinstance(learner, str):
        return _named_learner(learner, q, horizon)
    if horizon is not None:
        reason = "a learner of your own has its own"
        raise InvalidArgument("horizon", horizon, reason, "leave it out")
    check_player(Game(stationary(means), q, 1), learner)
    return learner  # type: ignore[no-any-return] # checked


def _named_learner(name: str, q: Array, horizon: int | None) -> Learner[Any]:
    if name not in NAMED_LEARNERS:
        known = ", ".join(NAMED_LEARNERS)
        reason = "there is no such learner for plans"
        raise InvalidArgument("learner", name, reason, f"pass {known}, or a learner of your own")
    if name == "exp3-ix":
        return exp3_ix(q, horizon=horizon)
    if horizon is not None:
        raise InvalidArgument("horizon", horizon, f"{name} needs none", "leave it out")
    return prod_grid(q, prior="behavior")  # as `understudy learn` makes it


EXPLORE = "let production explore: play every action in some of the rows"
NO_GAIN = 1e-12  # rounding


def refuse_hopeless(game: PlannedGame, *, own_policy: bool) -> None:
    """Raise `InvalidArgument` if no number of rows can show a gain and keep all guardrails."""
    target, fixed = game.target, isinstance(game.target, np.ndarray)
    if fixed and (hidden := (target > 0.0) & (game.behavior == 0.0)).any():  # type: ignore[operator] # fixed
        reason = f"production never plays its action {int(np.argmax(hidden))}, so no log shows it"
        raise InvalidArgument("policy", target.tolist(), reason, EXPLORE)  # type: ignore[union-attr]
    if game.gain <= NO_GAIN:
        most, other = (
            written(float(x))
            for x in (game.baseline @ game.means + game.gain, game.baseline @ game.means)
        )
        over = "production" if game.against is None else "production's most frequent action"
        if own_policy:
            reason = f"it earns {most} a row, and {over} {other}: there is no gain"
            raise InvalidArgument("policy", target.tolist(), reason, "pass one that earns more")  # type: ignore[union-attr]
        reason = f"no action that production plays earns more than {over}, {other} a row"
        raise InvalidArgument("means", game.means.tolist(), reason, f"pass others, or {EXPLORE}")
    if game.guardrails and not fixed:
        reason = "the verdict about a learner with guardrails is not simulated"
        raise InvalidArgument("guardrails", [*game.guardrails], reason, "leave out the learner")
    for one in game.guardrails:
        if one.harmful:
            reason = f"the best action makes {one.guardrail.name} worse by its margin, or more"
            remedy = "pass a smaller effect or a larger margin"
            raise InvalidArgument("guardrails", one, reason, remedy)


def check_length(name: str, values: Any, actions: int) -> None:
    if len(values) != actions:
        reason = f"it has {len(values)} entries, and production {actions}"
        raise InvalidArgument(name, values, reason, "pass one number per action")


def refuse_beside(name: str, others: dict[str, Any]) -> None:
    for other, value in others.items():
        if value is not None:
            raise InvalidArgument(other, value, f"{name} says it already", "leave out one of them")
