"""The rows of a store, and the changes of one write."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

Scope = Literal["read", "write"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Decision:
    """One decision of production, and its reward once it is known.

    `seq` counts the decisions of a study from 1, in the order in which they were accepted, which is
    the order in which they are processed. Times are microseconds since 1970, by the clock of the
    service, which never goes back. A `late_reward` came after the wait: it is stored, and not
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
    """The changes of one write to one study; `study` is its key in the store."""

    study: int
    decisions: list[Decision] = field(default_factory=list)
    rewards: list[Rewarded] = field(default_factory=list)
    late: list[Rewarded] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class StudyRecord:
    """A study: its `spec` as JSON, and `base`, the policy.json that it continues, if any."""

    key: int
    name: str
    spec: str
    base: str | None
    created_at: int
    archived_at: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """A cache of the state after the decisions up to `seq`, as a policy.json.

    `expired` of them counted with the default reward.
    """

    seq: int
    policy: str
    expired: int


@dataclass(frozen=True)
class TokenRecord:
    """A valid token, as its SHA-256; the token itself is never stored."""

    name: str
    digest: bytes
    scope: Scope


def moment(microseconds: int) -> datetime:
    """Return a stored time as a `datetime`.

    >>> moment(1_000_000).isoformat()
    '1970-01-01T00:00:01+00:00'
    """
    return EPOCH + timedelta(microseconds=microseconds)
