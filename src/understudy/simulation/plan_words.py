"""All English about plans: the decision, and what it assumes. It works without the extras."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from understudy.formatting import FEW_DIGITS, gain, named, number, percent, rough_count

if TYPE_CHECKING:
    from understudy.simulation.planned_game import PlannedGuardrail
    from understudy.simulation.planning import Plan

HOURS, MINUTES, YEARS = 1.0 / 24.0, 1.0 / 24.0 / 60.0, 365.25  # in days
# The fewest days that are written in years, days, hours and minutes.
UNITS = ((3.0 * YEARS, YEARS, "years"), (2.0, 1.0, "days"), (2.0 * HOURS, HOURS, "hours"))


def duration(days: float) -> str:
    """Days as people say them, with two significant digits.

    >>> [duration(x) for x in (12.34, 1.0, 0.05, 0.0001, 1000.0)]
    ['12 days', '24 hours', '72 minutes', 'a minute or less', '1,000 days']
    """
    for fewest, size, unit in UNITS:
        if days >= fewest:
            return f"{number(days / size, FEW_DIGITS)} {unit}"
    minutes = float(f"{days / MINUTES:.{FEW_DIGITS}g}")
    return "a minute or less" if minutes <= 1.0 else f"{number(minutes)} minutes"


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
    if plan.slowest is not None:
        name, rounds = plan.slowest
        when = "it was not shown in half of the logs"
        if math.isfinite(rounds):
            when = f"about {time_of(plan, rounds)} by itself for a 50 % chance"
        found.append(
            f"The guardrail {named(name, LONGEST_NAME)} takes longest: {when}. A larger margin is "
            "sooner."
        )
    if math.isinf(plan.ninety):
        found.append(f"No more than {rough_count(plan.longest)} rows were simulated (`longest`).")
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
    return [
        f"Assumes that {one}."
        for one in (
            f"production plays {_shares(plan)}",
            _rewards(plan),
            _target(plan),
            *map(_guardrail, plan.game.guardrails),
            "mean rewards stay the same, rewards are not late, and all rows can be used",
            "production draws an action in every row; if it draws one for each user, count users",
            f"the verdict has {percent(plan.confidence)} confidence, and is looked at all the time",
        )
    ]


LONGEST_NAME = 60  # characters of a metric
MOST_NAMED = 6  # actions whose shares and rewards fit into a sentence


def _shares(plan: Plan) -> str:
    q, K = plan.game.behavior, len(plan.game.behavior)
    if plan.exploration is not None and plan.exploration < 1.0:
        each = f"each of the other {K - 1} actions" if K > 2 else "the other one"  # noqa: PLR2004
        return f"one action in {_percent(q[0])} of the rows, and {each} in {_percent(q[1])}"
    if np.ptp(q) == 0.0:
        return f"each of its {K} actions in {_percent(q[0])} of the rows"
    return f"its {K} actions in {_listed(q)} of the rows"


def _rewards(plan: Plan) -> str:
    game = plan.game
    if not plan.stated:
        return f"rewards are 0 or 1, with the means {_listed(game.means)}"
    return (
        f"rewards are 0 or 1, with a mean of {_percent(game.means.min())}, and of "
        f"{_percent(game.means.max())} for action {game.best}: {gain(plan.gain)} a row more than "
        f"{_over(plan)}"
    )


def _over(plan: Plan) -> str:
    if plan.game.against is None:
        return "production earns"
    return f"action {int(np.argmax(plan.game.against))}, which production plays most"


def _target(plan: Plan) -> str:
    game, target = plan.game, plan.game.target
    if not isinstance(target, np.ndarray):
        return "the verdict is about a learner while it learns, from the first row on"
    best = int(np.argmax(target))
    if target[best] < 1.0:
        return f"the verdict is about the policy {_listed(target)}"
    played = _percent(game.behavior[best])
    return (
        f"the verdict is about always playing action {best}, which production plays in {played} of "
        "the rows"
    )


def _guardrail(planned: PlannedGuardrail) -> str:
    one = planned.guardrail
    spread = ""
    if planned.deviation is not None:
        spread = f" with a standard deviation of {number(planned.deviation)}"
    effect = "does not change it"
    if planned.effect:
        effect = f"changes it by {gain(planned.effect)}"
    name = named(one.name, LONGEST_NAME)
    worse = "above" if one.better == "lower" else "below"
    return (
        f"the mean of {name} is {number(planned.mean)}{spread}, the policy {effect}, and "
        f"{number(one.margin)} {worse} that is still harmless"
    )


def _percent(share: float) -> str:
    return f"{number(100.0 * share, 3)} %"


def _listed(shares: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    shown = [_percent(float(share)) for share in shares[:MOST_NAMED]]
    if len(shares) > MOST_NAMED:
        return f"{', '.join(shown)}, …"
    return f"{', '.join(shown[:-1])} and {shown[-1]}"
