"""Studies, decisions and tokens in tables: what readers and the writer of any SQL database do."""

from __future__ import annotations

from collections.abc import Sequence

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
from understudy.live.store.schema import COLUMNS
from understudy.live.store.session import Session

__all__ = ["SqlReader", "SqlStore", "SqlTokens"]

STUDIES = "SELECT key, name, spec, base, created_at, archived_at FROM studies"


class SqlReader:
    """A `Reader` of any SQL database."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def studies(self) -> list[StudyRecord]:
        """All studies, the oldest first."""
        return [StudyRecord(*row) for row in self._session.rows(f"{STUDIES} ORDER BY key")]

    def decisions(self, study: int, after: int, limit: int) -> list[Decision]:
        """The next decisions after a `seq`, in order, at most so many."""
        query = f"SELECT {COLUMNS} FROM decisions WHERE study = ? AND seq > ? ORDER BY seq LIMIT ?"
        return [Decision(*row) for row in self._session.rows(query, study, after, limit)]

    def last_seq(self, study: int) -> int:
        """The `seq` of the newest decision; 0 if there is none."""
        return self._number("SELECT coalesce(max(seq), 0) FROM decisions WHERE study = ?", study)

    def snapshot(self, study: int) -> Snapshot | None:
        """The newest one, if there is any."""
        query = "SELECT seq, policy, expired FROM snapshots WHERE study = ?"
        rows = self._session.rows(query, study)
        return Snapshot(*rows[0]) if rows else None

    def refused(self, study: int) -> dict[str, int]:
        """How many events were refused, by reason."""
        query = "SELECT reason, count FROM refused WHERE study = ? ORDER BY reason"
        return dict(self._session.rows(query, study))

    def late(self, study: int) -> int:
        """How many rewards came after their wait was over."""
        query = "SELECT count(*) FROM decisions WHERE study = ? AND late_reward IS NOT NULL"
        return self._number(query, study)

    def clock(self) -> int:
        """The latest time that was written."""
        return self._number("SELECT value FROM meta WHERE key = 'clock'")

    def tokens(self) -> list[TokenRecord]:
        """All tokens that may be used."""
        rows = self._session.rows("SELECT name, digest, scope FROM tokens ORDER BY name")
        return [TokenRecord(name, bytes.fromhex(digest), scope) for name, digest, scope in rows]

    def close(self) -> None:
        """Let go of it."""
        self._session.close()

    def _number(self, query: str, *values: object) -> int:
        ((number,),) = self._session.rows(query, *values)
        return int(number)


class SqlTokens(SqlReader):
    """A reader that may also change tokens, whoever is the writer."""

    def add_token(self, name: str, digest: bytes, scope: Scope, at: int) -> None:
        """A token; one of the same name is replaced."""
        self._session.change(
            "INSERT INTO tokens (name, digest, scope, created_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, scope = excluded.scope, "
            "created_at = excluded.created_at",
            *(name, digest.hex(), scope, at),
        )

    def remove_token(self, name: str) -> bool:
        """Whether there was one."""
        return self._session.change("DELETE FROM tokens WHERE name = ?", name) > 0


class SqlStore(SqlTokens):
    """A `Store` in any SQL database."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._epoch = 0  # what a new store begins with

    def open(self) -> bool:
        """Connect and become the writer; True if another writer was here since the last time."""
        self._session.connect()
        try:
            with self._session.transaction():
                found = self._number("SELECT value FROM meta WHERE key = 'epoch'")
                self._session.change("UPDATE meta SET value = ? WHERE key = 'epoch'", found + 1)
        except BaseException:  # nobody may write who has not signed
            self._session.close()
            raise
        expected, self._epoch = self._epoch, found + 1
        return found != expected

    def find(self, study: int, ids: Sequence[str]) -> dict[str, Decision]:
        """The decisions with these ids, as far as there are any."""
        found = (Decision(*row) for row in self._session.find(study, ids))
        return {decision.id: decision for decision in found}

    def write(self, changes: Sequence[Changes], clock: int) -> None:
        """All of it in one transaction, or nothing."""
        with self._session.transaction():
            for change in changes:
                self._session.insert(change.study, change.decisions)
                self._fill("reward", change.study, change.rewards)
                self._fill("late_reward", change.study, change.late)
                for reason, count in change.refused.items():
                    self._count_refused(change.study, reason, count)
            self._advance(clock)

    def add_study(self, name: str, spec: str, base: str | None, at: int) -> StudyRecord:
        """A new study."""
        with self._session.transaction():
            self._session.change(
                "INSERT INTO studies (key, name, spec, base, created_at) "
                "SELECT coalesce(max(key), 0) + 1, ?, ?, ?, ? FROM studies",
                *(name, spec, base, at),
            )
            (row,) = self._session.rows(f"{STUDIES} WHERE name = ?", name)
            self._advance(at)
        return StudyRecord(*row)

    def archive(self, study: int, at: int) -> None:
        """Take no more events."""
        with self._session.transaction():
            self._session.change(
                "UPDATE studies SET archived_at = ? WHERE key = ? AND archived_at IS NULL",
                *(at, study),
            )
            self._advance(at)

    def keep_snapshot(self, study: int, snapshot: Snapshot) -> None:
        """In place of the one before."""
        self._session.change(
            "INSERT INTO snapshots (study, seq, policy, expired) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (study) DO UPDATE SET seq = excluded.seq, policy = excluded.policy, "
            "expired = excluded.expired",
            *(study, snapshot.seq, snapshot.policy, snapshot.expired),
        )

    def _advance(self, clock: int) -> None:
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
