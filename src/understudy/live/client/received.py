"""What a live service answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from understudy.logs.schema import Label

__all__ = ["BatchTaken", "Drawn", "RefusedEvent", "Taken"]


@dataclass(frozen=True)
class Drawn:
    """An action that was drawn from the policy after `learned` decisions, with its probability."""

    action: Label
    probability: float
    learned: int


@dataclass(frozen=True)
class Taken:
    """An event that is on disk: "accepted", or "known" if it was there before."""

    id: str
    status: Literal["accepted", "known"]


@dataclass(frozen=True)
class RefusedEvent:
    """An event that was not taken, by its place among all that were sent, and why."""

    index: int
    id: str
    error: str
    message: str


@dataclass(frozen=True)
class BatchTaken:
    """How many events were accepted, how many known before, and which were refused.

    >>> BatchTaken(accepted=3) + BatchTaken(accepted=1, known=1)
    BatchTaken(accepted=4, known=1, refused=())
    """

    accepted: int = 0
    known: int = 0
    refused: tuple[RefusedEvent, ...] = ()

    def __add__(self, other: BatchTaken) -> BatchTaken:
        return BatchTaken(
            self.accepted + other.accepted,
            self.known + other.known,
            self.refused + other.refused,
        )
