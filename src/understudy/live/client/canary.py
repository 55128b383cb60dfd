"""A canary: production and its understudy take turns, with known probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from understudy.constraints import NONNEGATIVE, SUM_TOLERANCE, number
from understudy.errors import InvalidArgument

Action = TypeVar("Action", bound=int | str)

SHARE = number(0.0, 1.0, "pass the share of decisions that the understudy takes, such as 0.1")


def mixture(
    production: Mapping[Action, float], understudy: Mapping[Any, float], share: float
) -> dict[Action, float]:
    r"""Mix two policies: the understudy takes a share of the decisions, $(1 - s)\, q + s\, \pi$.

    The propensity of a decision is the probability of its action under the mixture. Draw from the
    mixture, or throw a coin first and then draw from the chosen policy: that is the same.

    >>> mixture({"small": 0.5, "large": 0.5}, {"small": 0.0, "large": 1.0}, share=0.5)
    {'small': 0.25, 'large': 0.75}
    >>> mixture({"small": 1.0}, {"large": 1.0}, share=0.5)
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: understudy = {'large': 1.0}: it has other actions than ...
    """
    s = SHARE("share", share)
    q, pi = _distribution("production", production), _distribution("understudy", understudy)
    if q.keys() != pi.keys():
        raise InvalidArgument(
            "understudy",
            understudy,
            f"it has other actions than production, {list(q)}",
            "name the same in both (1 is not '1'), with probability 0 where one is never played",
        )
    return {action: (1.0 - s) * q[action] + s * pi[action] for action in q}


def _distribution(name: str, given: Mapping[Action, float]) -> dict[Action, float]:
    if not isinstance(given, Mapping):
        raise InvalidArgument(name, given, "it is no mapping", "pass a dict: {action: probability}")
    found = {action: float(NONNEGATIVE(f"{name}[{action!r}]", p)) for action, p in given.items()}
    total = math.fsum(found.values())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise InvalidArgument(
            name, given, f"its probabilities sum to {total:.12g}", "pass some that sum to 1"
        )
    return found
