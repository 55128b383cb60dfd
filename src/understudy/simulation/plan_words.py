"""All English about plans: the decision, and what it assumes. It works without the extras."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from understudy.formatting import FEW_DIGITS, gain, number, percent, rough_count

if TYPE_CHECKING:
    from understudy.simulation.planning import Plan

DAYS_A_YEAR, HOURS_A_DAY, MINUTES_AN_HOUR = 365.25, 24.0, 60.0
FEWEST = 2.0  # of a unit of time: less is written in the next smaller one


def duration(days: float) -> str:
    """Days as people say them, with two significant digits.

    >>> [duration(x) for x in (12.34, 1.0, 0.05, 0.0001, 1000.0)]
    ['12 days', '24 hours', '72 minutes', 'less than a minute', '2.7 years']
    """
    sizes = (
        (DAYS_A_YEAR, "years"),
        (1.0, "days"),
        (1.0 / HOURS_A_DAY, "hours"),
        (1.0 / HOURS_A_DAY / MINUTES_AN_HOUR, "minutes"),
    )
    for size, unit in sizes:
        if days >= FEWEST * size:
            return f"{number(days / size, FEW_DIGITS)} {unit}"
    return "less than a minute" if days < sizes[-1][0] else "a minute"


def time_of(plan: Plan, rounds: float) -> str:
    """So many rounds as days of the traffic, or as rows if it is not known."""
    days = plan.days_of(rounds)
    return f"{rough_count(rounds)} rows" if days is None else duration(days)


def decision(plan: Plan) -> str:
    """The first sentence: how long it takes."""
    more = f"more than {time_of(plan, plan.longest)}"
    if math.isinf(plan.median):
        return f"{more.capitalize()} for a 50 % chance of a verdict."
    last = more if math.isinf(plan.ninety) else time_of(plan, plan.ninety)
    return f"About {time_of(plan, plan.median)} for a 50 % chance of a verdict, {last} for 90 %."


def hints(plan: Plan) -> list[str]:
    """What could make it sooner, and how soon it could be."""
    found = []
    if plan.limit is not None and math.isinf(plan.ninety):
        found.append(
            f"Even a test that knows all mean rewards needs about {time_of(plan, plan.limit)} on "
            "average (the information limit)."
        )
    shorter = [
        f"about {time_of(plan, rounds)} with {percent(share)}"
        for share, rounds in plan.sooner.items()
    ]
    if shorter:
        found.append(
            f"More exploration is sooner. For a 90 % chance: {', '.join(shorter)} (scaled by the "
            "information limit, not simulated)."
        )
    return found


def assumptions(plan: Plan) -> list[str]:
    """What the simulated logs assume, each as a sentence."""
    game = plan.game
    found = [f"production plays {_shares(plan)}", _rewards(plan), _target(plan)]
    found.append("mean rewards stay the same, and all rows can be used")
    found.append(
        "production draws an action in every row; if it draws one for each user, count users"
    )
    found.append(
        f"the verdict has {percent(plan.confidence)} confidence, and is looked at all the time"
    )
    assert len(game.means) > 1
    return [f"Assumes that {one}." for one in found]


MOST_NAMED = 6  # actions whose shares and rewards fit into a sentence


def _shares(plan: Plan) -> str:
    q, K = plan.game.behavior, len(plan.game.behavior)
    if plan.exploration is not None:
        each = f"each of the other {K - 1} actions" if K > 2 else "the other one"  # noqa: PLR2004
        return f"one action in {_percent(q[0])} of the rows, and {each} in {_percent(q[1])}"
    return f"its {K} actions in {_listed(q)} of the rows"


def _rewards(plan: Plan) -> str:
    means = plan.game.means
    best = int(np.argmax(np.where(plan.game.behavior > 0.0, means, -1.0)))
    if plan.against is None:
        return f"rewards are 0 or 1, with the means {_listed(means)}"
    others = _percent(float(np.delete(means, best)[0]))
    over = "production" if plan.against == "production" else "production's most frequent action"
    return (
        f"rewards are 0 or 1: 1 in {others} of the rows of all actions but action {best}, and in "
        f"{_percent(means[best])} of the rows of that one, which earns {gain(plan.gain_stated)} a "
        f"row more than {over}"
    )


def _target(plan: Plan) -> str:
    target, q = plan.game.target, plan.game.behavior
    if not isinstance(target, np.ndarray):
        return "the verdict is about a learner while it learns, and it begins without a log"
    best = int(np.argmax(target))
    if target[best] < 1.0:
        return f"the verdict is about the policy {_listed(target)}"
    return (
        f"the verdict is about always playing action {best}, which production plays in "
        f"{_percent(q[best])} of the rows"
    )


def _percent(share: float) -> str:
    return f"{number(100.0 * share, 3)} %"


def _listed(shares: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    shown = [_percent(float(share)) for share in shares[:MOST_NAMED]]
    if len(shares) > MOST_NAMED:
        return f"{', '.join(shown)}, …"
    return f"{', '.join(shown[:-1])} and {shown[-1]}"
