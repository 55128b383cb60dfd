"""The tables of a store, and how one is recognised."""

from __future__ import annotations

from typing import Literal

__all__ = ["COLUMNS", "VERSION", "Access", "declarations"]

Access = Literal["read", "tokens", "write"]

VERSION = 1
# In the order of the fields of a Decision.
COLUMNS = "seq, id, action, propensity, context, decided_at, reward, rewarded_at, late_reward"

_DECLARATIONS = """
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


def declarations(number: str, sorted_by_key: str) -> list[str]:
    """The statements that make an empty store.

    `number` is the type that keeps every bit of a double; `sorted_by_key` is what to add so that a
    table is kept in the order of its key.

    >>> declarations("BLOB", "WITHOUT ROWID")[0]
    'CREATE TABLE meta (key TEXT PRIMARY KEY, value BIGINT NOT NULL)'
    """
    text = _DECLARATIONS.format(number=number, sorted=sorted_by_key, version=VERSION)
    return [statement.strip() for statement in text.split(";")]
