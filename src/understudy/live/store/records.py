"""What a store holds, row by row, and what is written to it in one step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

__all__ = [
    "Changes",
    "Decision",
    "Rewarded",
    "Scope",
    "Snapshot",
    "StudyRecord",
    "TokenRecord",
    "moment",
]

Scope = Literal["read", "write"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Decision:
    """One decision of production, and its reward once it is known.

    `seq` counts the decisions of a study from 1, in the order in which they were accepted: that is
    the order in which they are learned from. Times are microseconds since 1970, by the clock of the
    service, which never goes back. `late_reward` came after the wait was over: it is kept, and not
    learned from. `context` is a JSON object, as text.
    """

    seq: int
    id: str
    action: int
    propensity: float | None
    context: str | None
    decided_at: int
    reward: float | None = None
    rewarded_at: int | None = None
    late_reward: float | None = None


class Rewarded(NamedTuple):
    """A reward that came after its decision."""

    seq: int
    reward: float
    rewarded_at: int


@dataclass(slots=True)
class Changes:
    """What one write does to one study; `study` is its key in the store."""

    study: int
    decisions: list[Decision] = field(default_factory=list)
    rewards: list[Rewarded] = field(default_factory=list)
    late: list[Rewarded] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class StudyRecord:
    """A study: `spec` is what it was created with, as JSON; `base` the policy.json that it goes on

    from, or None if it began with nothing.
    """

    key: int
    name: str
    spec: str
    base: str | None
    created_at: int
    archived_at: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """A cache: what the fold of all decisions up to `seq` gave, as a policy.json.

    `expired` of them counted with the default reward.
    """

    seq: int
    policy: str
    expired: int


@dataclass(frozen=True)
class TokenRecord:
    """A token that may be used: the hash of it, never itself."""

    name: str
    digest: bytes
    scope: Scope


def moment(microseconds: int) -> datetime:
    """A time of the store.

    >>> moment(1_000_000).isoformat()
    '1970-01-01T00:00:01+00:00'
    """
    return EPOCH + timedelta(microseconds=microseconds)
