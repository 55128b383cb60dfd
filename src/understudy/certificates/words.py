"""A certificate in words: what the target would have earned, and whether it may be promoted."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Bounds", "describe"]

CONTRADICTION = (
    "but lower and upper bound contradict each other, so behavior, propensities or target are not "
    "what they are said to be: check the order of the actions, and that no probability was taken "
    "after its own round"
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
    """Two sentences in one line.

    >>> import understudy as us
    >>> describe(us.Certificate(behavior=[0.5, 0.5]))
    'Certificate(95 % confidence, nothing observed yet)'
    """
    n, percent = bounds.rounds, f"{100 * bounds.confidence:.6g} % confidence"
    if not n:
        return f"Certificate({percent}, nothing observed yet)"
    return (
        f"With {percent}, after {n:,} round{'' if n == 1 else 's'}: the target would have earned "
        f"at least {bounds.lower / n:.4f} a round, production earned {bounds.production / n:.4f}; "
        f"{CONTRADICTION if bounds.lower > bounds.upper else _gain(bounds)}"
    )


def _gain(bounds: Bounds) -> str:
    if bounds.gain is None:
        return "the behavior was only counted, so no gain over production is certified"
    gain = f"{bounds.gain / bounds.rounds:.4f}".replace("-", "−")
    return f"the gain over production is at least {gain} a round, and promotion {_verdict(bounds)}"


def _verdict(bounds: Bounds) -> str:
    if not bounds.promoted:
        return "is not justified yet"
    when = f" after round {bounds.promoted_at:,}" if bounds.promoted_at else ""
    lost = "" if (bounds.gain or 0.0) > 0.0 else ", but over all rounds there is no gain any more"
    return f"was justified{when}{lost}"
