"""Readers and the writer of a store: the SQL that every database shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from understudy.errors import InvalidArgument
from understudy.live.store.records import (
    Changes,
    Decision,
    Rewarded,
    Scope,
    Snapshot,
    StudyRecord,
    TokenRecord,
)
from understudy.live.store.session import COLUMNS, Session

BATCH = 10_000  # decisions read at a time, some 3 MB
STUDIES = "SELECT key, name, spec, base, created_at, archived_at FROM studies"


class Reader:
    """Reads a store, also while another process writes to it. Used by one thread at a time.

    Every error of the database is raised as `StoreUnavailable`, with its reason in plain words.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def studies(self) -> list[StudyRecord]:
        """Return all studies, the oldest first."""
        return [StudyRecord(*row) for row in self._session.rows(f"{STUDIES} ORDER BY key")]

    def decisions(self, study: int, after: int, limit: int) -> list[Decision]:
        """Return the decisions after a `seq`, in order, at most `limit`."""
        query = f"SELECT {COLUMNS} FROM decisions WHERE study = ? AND seq > ? ORDER BY seq LIMIT ?"
        return [Decision(*row) for row in self._session.rows(query, study, after, limit)]

    def in_order(self, study: int, until: int | None = None) -> Iterator[list[Decision]]:
        """Yield all decisions of a study up to a `seq`, a batch at a time."""
        after = 0
        while until is None or after < until:
            limit = BATCH if until is None else min(BATCH, until - after)
            found = self.decisions(study, after, limit)
            if not found:
                return
            yield found
            after = found[-1].seq

    def last_seq(self, study: int) -> int:
        """Return the `seq` of the newest decision, 0 if there is none."""
        return self._number("SELECT coalesce(max(seq), 0) FROM decisions WHERE study = ?", study)

    def snapshot(self, study: int) -> Snapshot | None:
        """Return the newest snapshot, if there is one."""
        query = "SELECT seq, policy, expired FROM snapshots WHERE study = ?"
        rows = self._session.rows(query, study)
        return Snapshot(*rows[0]) if rows else None

    def refused(self, study: int) -> dict[str, int]:
        """Count refused events by reason."""
        query = "SELECT reason, count FROM refused WHERE study = ? ORDER BY reason"
        return dict(self._session.rows(query, study))

    def late(self, study: int) -> int:
        """Count the rewards that came after their wait."""
        query = "SELECT count(*) FROM decisions WHERE study = ? AND late_reward IS NOT NULL"
        return self._number(query, study)

    def clock(self) -> int:
        """Return the latest time that was written."""
        return self._number("SELECT value FROM meta WHERE key = 'clock'")

    def tokens(self) -> list[TokenRecord]:
        """Return all valid tokens."""
        rows = self._session.rows("SELECT name, digest, scope FROM tokens ORDER BY name")
        return [TokenRecord(name, bytes.fromhex(digest), scope) for name, digest, scope in rows]

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _number(self, query: str, *values: object) -> int:
        ((number,),) = self._session.rows(query, *values)
        return int(number)


class TokenStore(Reader):
    """A reader that also changes tokens; another process may be the writer."""

    def add_token(self, name: str, digest: bytes, scope: Scope, at: int) -> None:
        """Add a token, in place of one of the same name."""
        self._session.change(
            "INSERT INTO tokens (name, digest, scope, created_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, scope = excluded.scope, "
            "created_at = excluded.created_at",
            *(name, digest.hex(), scope, at),
        )

    def remove_token(self, name: str) -> bool:
        """Remove a token; return whether there was one."""
        return self._session.change("DELETE FROM tokens WHERE name = ?", name) > 0


class Store(TokenStore):
    """The one writer of a store. When a method returns, its changes are on disk."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._epoch = 0  # that of a new store; every `open` adds one

    def open(self) -> bool:
        """Connect and become the writer; return whether there was another one since the last time.

        It may be called again after `StoreUnavailable`; if another process is the writer, it raises
        `StoreInUse`.
        """
        self._session.connect()
        try:
            with self._session.transaction():
                found = self._number("SELECT value FROM meta WHERE key = 'epoch'")
                self._session.change("UPDATE meta SET value = ? WHERE key = 'epoch'", found + 1)
        except BaseException:  # a writer that has not counted itself must not write
            self._session.close()
            raise
        expected, self._epoch = self._epoch, found + 1
        return found != expected

    def find(self, study: int, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decisions that have one of these ids, by id."""
        found = (Decision(*row) for row in self._session.find(study, ids))
        return {decision.id: decision for decision in found}

    def write(self, changes: Sequence[Changes], clock: int) -> None:
        """Write all changes in one transaction, or nothing."""
        with self._session.transaction():
            for change in changes:
                self._session.insert(change.study, change.decisions)
                self._fill("reward", change.study, change.rewards)
                self._fill("late_reward", change.study, change.late)
                for reason, count in change.refused.items():
                    self._count_refused(change.study, reason, count)
            self._advance_clock(clock)

    def add_study(self, name: str, spec: str, base: str | None, at: int) -> StudyRecord:
        """Add a study."""
        with self._session.transaction():
            self._session.change(
                "INSERT INTO studies (key, name, spec, base, created_at) "
                "SELECT coalesce(max(key), 0) + 1, ?, ?, ?, ? FROM studies",
                *(name, spec, base, at),
            )
            (row,) = self._session.rows(f"{STUDIES} WHERE name = ?", name)
            self._advance_clock(at)
        return StudyRecord(*row)

    def archive(self, study: int, at: int) -> None:
        """Mark a study as archived."""
        with self._session.transaction():
            self._session.change(
                "UPDATE studies SET archived_at = ? WHERE key = ? AND archived_at IS NULL",
                *(at, study),
            )
            self._advance_clock(at)

    def save_snapshot(self, study: int, snapshot: Snapshot) -> None:
        """Save a snapshot in place of the one before."""
        self._session.change(
            "INSERT INTO snapshots (study, seq, policy, expired) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (study) DO UPDATE SET seq = excluded.seq, policy = excluded.policy, "
            "expired = excluded.expired",
            *(study, snapshot.seq, snapshot.policy, snapshot.expired),
        )

    def _advance_clock(self, clock: int) -> None:
        self._session.change(
            "UPDATE meta SET value = ? WHERE key = 'clock' AND value < ?", clock, clock
        )

    def _fill(self, column: str, study: int, rewards: Sequence[Rewarded]) -> None:
        if self._session.fill(column, study, rewards) != len(rewards):
            raise InvalidArgument(
                column,
                [reward.seq for reward in rewards],
                f"one of these decisions of study {study} is not there, or has its {column}",
                "name decisions that are there and wait for it, each once",
            )

    def _count_refused(self, study: int, reason: str, count: int) -> None:
        self._session.change(
            "INSERT INTO refused (study, reason, count) VALUES (?, ?, ?) "
            "ON CONFLICT (study, reason) DO UPDATE SET count = refused.count + excluded.count",
            *(study, reason, count),
        )
