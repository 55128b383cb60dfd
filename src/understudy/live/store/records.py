"""The tables of a store, their rows in Python, and the changes of one write."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

Scope = Literal["read", "write"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

VERSION = 1  # of the tables below; another one needs a migration
# `{number}` is the type that keeps every bit of a double, `{sorted}` the clause that keeps a table
# in the order of its key.
TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BIGINT NOT NULL);
CREATE TABLE studies (
    key BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, spec TEXT NOT NULL, base TEXT,
    created_at BIGINT NOT NULL, archived_at BIGINT
);
CREATE TABLE decisions (
    study BIGINT NOT NULL REFERENCES studies (key), seq BIGINT NOT NULL, id TEXT NOT NULL,
    action BIGINT NOT NULL, propensity {number}, context TEXT, decided_at BIGINT NOT NULL,
    reward {number}, rewarded_at BIGINT, late_reward {number},
    PRIMARY KEY (study, seq)
) {sorted};
CREATE UNIQUE INDEX decision_ids ON decisions (study, id);
CREATE INDEX late_rewards ON decisions (study, late_reward) WHERE late_reward IS NOT NULL;
CREATE TABLE snapshots (
    study BIGINT PRIMARY KEY REFERENCES studies (key), seq BIGINT NOT NULL, policy TEXT NOT NULL,
    expired BIGINT NOT NULL
);
CREATE TABLE refused (
    study BIGINT NOT NULL REFERENCES studies (key), reason TEXT NOT NULL, count BIGINT NOT NULL,
    PRIMARY KEY (study, reason)
);
CREATE TABLE tokens (
    name TEXT PRIMARY KEY, digest TEXT NOT NULL, scope TEXT NOT NULL, created_at BIGINT NOT NULL
);
INSERT INTO meta (key, value) VALUES ('format', {version}), ('clock', 0), ('epoch', 0)
"""

# Tables that 0.5.0 did not have, and ignores. A writer adds them when it opens a store.
LATER_TABLES = """
CREATE TABLE outages (begun BIGINT PRIMARY KEY, ended BIGINT NOT NULL);
CREATE TABLE closed (study BIGINT PRIMARY KEY REFERENCES studies (key), seq BIGINT NOT NULL)
"""


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


COLUMNS = tuple(column.name for column in fields(Decision))  # of `decisions`, after the study


class Rewarded(NamedTuple):
    """A reward that came after its decision."""

    seq: int
    reward: float
    rewarded_at: int


class Outage(NamedTuple):
    """An interval that does not count as waiting: clients could not deliver rewards."""

    begun: int
    ended: int


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
    """Return a stored time as a `datetime`."""
    return EPOCH + timedelta(microseconds=microseconds)
