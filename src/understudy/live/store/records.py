"""The tables of a store, their rows in Python, and the changes of one write."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

import numpy as np

from understudy.constraints import Array

Scope = Literal["read", "write"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FIRST_VERSION = 1  # of the tables of 0.5.0
VERSION = 2  # of the tables below; `MIGRATION` makes them of the first ones
# `{number}` is the type that keeps every bit of a double, `{bytes}` that of any bytes, `{sorted}`
# the clause that keeps a table in the order of its key.
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
    propensity_vector {bytes}, unit TEXT, place BIGINT,
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
INSERT INTO meta (key, value) VALUES ('format', {version}), ('clock', 0), ('epoch', 0);
"""
# Indices of the events of units: the first ones, the others that count, and those that came later.
UNITS = """
CREATE UNIQUE INDEX units ON decisions (study, unit) WHERE place = 1;
CREATE INDEX unit_events ON decisions (study, unit) WHERE place > 1;
CREATE INDEX later_events ON decisions (study, place) WHERE place <= 0;
"""
OUTAGES = """
CREATE TABLE outages (begun BIGINT PRIMARY KEY, ended BIGINT NOT NULL);
CREATE TABLE closed (study BIGINT PRIMARY KEY REFERENCES studies (key), seq BIGINT NOT NULL);
"""
TABLES += UNITS + OUTAGES
# What the first tables lack. Some stores of the first version have `OUTAGES` already.
MIGRATION = (
    """
ALTER TABLE decisions ADD COLUMN propensity_vector {bytes};
ALTER TABLE decisions ADD COLUMN unit TEXT;
ALTER TABLE decisions ADD COLUMN place BIGINT;
"""
    + UNITS
    + """
UPDATE meta SET value = {version} WHERE key = 'format'
"""
)


@dataclass(slots=True)
class Decision:
    """One decision of production, and its reward once it is known.

    `seq` counts the decisions of a study from 1, in the order in which they were accepted, which is
    the order in which they are processed. Times are microseconds since 1970, by the clock of the
    service, which never goes back. A `late_reward` came after the wait: it is stored, and not
    learned from. `context` is a JSON object, as text. `propensity_vector` has the propensities of
    all actions, in their order (`pack_doubles`).

    In a study with units a decision is the first event of its `unit`, with `place` 1. The later
    events are no decisions, and their `seq` counts down from -1. Those that count have the places
    from 2 on, and are the `events` of the decision. An event that came after them, or after the
    wait, has place `LATER`, or `LATER_OTHER` if its action is another one than the decision's.
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
    propensity_vector: bytes | None = None
    unit: str | None = None
    place: int | None = None
    events: tuple[Decision, ...] = ()

    def is_rewarded(self, events: int = 1) -> bool:
        """Return whether it has all rewards: its own, and those of so many events of its unit."""
        if self.reward is None or len(self.events) + 1 < events:
            return False
        return not self.events or all(event.reward is not None for event in self.events)

    @property
    def changes_action(self) -> bool:
        """Whether an event of its unit that counts has another action."""
        return any(event.action != self.action for event in self.events)


LATER, LATER_OTHER = 0, -1  # places of events that do not count
# Of the table `decisions`, after the study.
COLUMNS = tuple(column.name for column in fields(Decision) if column.name != "events")
FIRST_COLUMNS = COLUMNS[: COLUMNS.index("propensity_vector")]  # those of 0.5.0


DOUBLES = "<f8"  # how numbers are stored as bytes: every bit of them


def pack_doubles(values: Array) -> bytes:
    """Return numbers as they are stored.

    >>> unpack_doubles(pack_doubles(np.array([0.1, -0.0]))).tolist()
    [0.1, -0.0]
    """
    return values.astype(DOUBLES).tobytes()


def unpack_doubles(stored: bytes) -> Array:
    """Return stored numbers."""
    return np.frombuffer(stored, dtype=DOUBLES).astype(np.float64, copy=False)


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
    """The changes of one write to one study; `study` is its key in the store.

    `events` are later events of units.
    """

    study: int
    decisions: list[Decision] = field(default_factory=list)
    rewards: list[Rewarded] = field(default_factory=list)
    late: list[Rewarded] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    events: list[Decision] = field(default_factory=list)


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
