"""A certificate in a line of English; the sentences about results of logs are in `report.words`."""

from __future__ import annotations

from typing import Protocol

from understudy.formatting import count, counted, least_gain, number, percent

CONTRADICTION = (
    "the bounds contradict each other, so behavior, propensities or target are wrong: check the "
    "order of the actions, and that every probability was made before its own round"
)


class Bounds(Protocol):
    """What is said of a certificate: totals over its rounds."""

    @property
    def confidence(self) -> float: ...

    @property
    def rounds(self) -> int: ...

    @property
    def lower(self) -> float: ...

    @property
    def upper(self) -> float: ...

    @property
    def production(self) -> float: ...

    @property
    def gain(self) -> float | None: ...

    @property
    def promoted(self) -> bool | None: ...

    @property
    def promoted_at(self) -> int | None: ...


def describe(bounds: Bounds) -> str:
    """One line: the decision, the bounds.

    >>> import understudy as us
    >>> describe(us.Certificate(behavior=[0.5, 0.5]))
    'Certificate(95 % confidence, nothing observed yet)'
    """
    n, confidence = bounds.rounds, f"{percent(bounds.confidence)} confidence"
    if not n:
        return f"Certificate({confidence}, nothing observed yet)"
    rounds = counted(n, "round")
    if bounds.lower > bounds.upper:
        return f"Cannot tell after {rounds}: {CONTRADICTION}"
    lower, production = number(bounds.lower / n), number(bounds.production / n)
    return (
        f"{_decision(bounds)} after {rounds}: {_gain(bounds)}the target earns at least {lower}, "
        f"production earned {production} per round ({confidence})"
    )


def _decision(bounds: Bounds) -> str:
    if bounds.gain is None:
        return "No gain is certified (propensities are estimated)"
    if not bounds.promoted:
        return "Not enough data yet"
    when = f" (certain since round {count(bounds.promoted_at)})" if bounds.promoted_at else ""
    return f"{'Promote' if bounds.gain > 0.0 else 'No gain any more'}{when}"


def _gain(bounds: Bounds) -> str:
    if bounds.gain is None:
        return ""
    return f"gain at least {least_gain(bounds.gain / bounds.rounds)}, "
