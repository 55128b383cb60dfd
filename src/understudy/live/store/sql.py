"""The SQL of a store that all databases share: its readers, its tokens, its one writer."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import structlog

from understudy.errors import InvalidArgument
from understudy.live.store.database import (
    BY_ID,
    FIRST_OF_UNIT,
    LATER_OF_UNIT,
    SELECT_DECISIONS,
    SELECT_FIRST,
    Database,
    damaged,
)
from understudy.live.store.records import (
    LATER,
    LATER_OTHER,
    Changes,
    Decision,
    Outage,
    Rewarded,
    Scope,
    Snapshot,
    StudyRecord,
    TokenRecord,
)

# Each `open` draws a number up to this one. If they counted, a replica without the last `open`
# would give its number to another writer. Version 0.5.0 adds one, and a BIGINT has room for it.
LARGEST_EPOCH = 1 << 62
BATCH = 10_000  # decisions read at a time: without contexts, some 3 MB
SELECT_STUDIES = "SELECT key, name, spec, base, created_at, archived_at FROM studies"
# Writes are counted: a store that counts fewer than were acknowledged has lost some.
ADD_COUNTS = (
    "INSERT INTO meta (key, value) VALUES ('writes', 0), ('lost', 0) ON CONFLICT DO NOTHING"
)
TIMES = {
    "studies": ("created_at", "archived_at"),
    "decisions": ("decided_at", "rewarded_at"),
    "tokens": ("created_at",),
    "outages": ("ended",),
}  # the columns that hold times, but for those that begin outages

log = structlog.get_logger("understudy.live")


class Reader:
    """Reads a store, also while another process writes to it. Used by one thread at a time.

    Errors of the database are raised as `StoreUnavailable`, with the reason in plain words, and
    broken constraints as `InvalidArgument`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def studies(self) -> list[StudyRecord]:
        """Return all studies, the oldest first."""
        return [StudyRecord(*row) for row in self._database.rows(f"{SELECT_STUDIES} ORDER BY key")]

    def decisions(self, study: int, after: int, limit: int) -> list[Decision]:
        """Return the decisions after a `seq`, in order, at most `limit`."""
        select = SELECT_DECISIONS if self._database.is_migrated else SELECT_FIRST
        query = f"{select} WHERE study = ? AND seq > ? ORDER BY seq LIMIT ?"
        found = [Decision(*row) for row in self._database.rows(query, study, after, limit)]
        return self._with_events(study, found)

    def _with_events(self, study: int, decisions: list[Decision]) -> list[Decision]:
        """Return decisions with the later events of their units, those that count."""
        by_unit = {one.unit: one for one in decisions if one.unit is not None and one.place == 1}
        if by_unit:
            rows = self._database.find(LATER_OF_UNIT, study, list(by_unit))
            events = sorted((Decision(*row) for row in rows), key=lambda one: one.place or 0)
            for event in events:
                if event.unit is not None:
                    first = by_unit[event.unit]
                    first.events = (*first.events, event)
        return decisions

    def batches(
        self, study: int, until: int = sys.maxsize, *, after: int = 0, most: int = BATCH
    ) -> Iterator[list[Decision]]:
        """Yield the decisions of a study in order, at most so many at a time, between two `seq`."""
        while found := self.decisions(study, after, min(most, until - after)):
            yield found
            after = found[-1].seq

    def last_seq(self, study: int) -> int:
        """Return the `seq` of the newest decision, 0 if there is none."""
        query = "SELECT coalesce(max(seq), 0) FROM decisions WHERE study = ?"
        return self._database.scalar(query, study)

    def least_seq(self, study: int) -> int:
        """Return the `seq` of the newest later event of a unit, 0 if there is none."""
        if not self._database.is_migrated:
            return 0
        query = "SELECT coalesce(min(seq), 0) FROM decisions WHERE study = ? AND seq < 0"
        return self._database.scalar(query, study)

    def later_events(self, study: int) -> tuple[int, int]:
        """Count the later events of units that do not count; and those with another action."""
        if not self._database.is_migrated:
            return 0, 0
        query = f"SELECT count(*) FROM decisions WHERE study = ? AND place <= {LATER}"
        others = f"{query} AND place <= {LATER_OTHER}"  # the index needs the first condition
        return self._database.scalar(query, study), self._database.scalar(others, study)

    def snapshot(self, study: int) -> Snapshot | None:
        """Return the newest snapshot, if there is one."""
        query = "SELECT seq, policy, expired FROM snapshots WHERE study = ?"
        rows = self._database.rows(query, study)
        return Snapshot(*rows[0]) if rows else None

    def refused_counts(self, study: int) -> dict[str, int]:
        """Count refused events by reason."""
        query = "SELECT reason, count FROM refused WHERE study = ? ORDER BY reason"
        return dict(self._database.rows(query, study))

    def late_count(self, study: int) -> int:
        """Count the rewards that came after their wait."""
        query = "SELECT count(*) FROM decisions WHERE study = ? AND late_reward IS NOT NULL"
        return self._database.scalar(query, study)

    def clock(self) -> int:
        """Return the latest time that was written."""
        return self._database.scalar("SELECT value FROM meta WHERE key = 'clock'")

    def outages(self) -> list[Outage]:
        """Return all outages, in order."""
        if not self._database.has_table("outages"):
            return []
        rows = self._database.rows("SELECT begun, ended FROM outages ORDER BY begun")
        return [Outage(*row) for row in rows]

    def closed_seq(self, study: int) -> int:
        """Return the `seq` up to which no decision waits, whatever the clock says."""
        if not self._database.has_table("closed"):
            return 0
        return self._database.scalar(
            "SELECT coalesce(max(seq), 0) FROM closed WHERE study = ?", study
        )

    def tokens(self) -> list[TokenRecord]:
        """Return all valid tokens."""
        rows = self._database.rows("SELECT name, digest, scope FROM tokens ORDER BY name")
        try:
            return [TokenRecord(name, bytes.fromhex(digest), scope) for name, digest, scope in rows]
        except (TypeError, ValueError):
            raise damaged("a token has no digest") from None

    def lost_writes(self) -> int:
        """Return how many acknowledged writes are missing, and were not accepted as lost."""
        acknowledged = self._database.last_acknowledged() or 0  # first: a writer may be at work
        return self._kept("lost") + max(acknowledged - self._kept("writes"), 0)

    def _kept(self, key: str) -> int:
        """Return a number that stores of version 0.5.0 do not have: there it is 0."""
        return self._database.scalar(
            f"SELECT coalesce(max(value), 0) FROM meta WHERE key = '{key}'"
        )

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


class TokenStore(Reader):
    """A reader that also changes tokens and accepts losses; another process may be the writer."""

    def add_token(self, name: str, digest: bytes, scope: Scope, at: int) -> None:
        """Add a token, in place of one of the same name."""
        self._database.change(
            "INSERT INTO tokens (name, digest, scope, created_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, scope = excluded.scope, "
            "created_at = excluded.created_at",
            *(name, digest.hex(), scope, at),
        )

    def remove_token(self, name: str) -> bool:
        """Remove a token; return whether there was one."""
        return self._database.change("DELETE FROM tokens WHERE name = ?", name) > 0

    def accept_loss(self) -> int:
        """Accept that acknowledged writes are missing; return how many."""
        acknowledged = self._database.last_acknowledged() or 0
        lost = self.lost_writes()
        with self._database.transaction():
            self._database.change(ADD_COUNTS)
            self._database.change("UPDATE meta SET value = 0 WHERE key = 'lost'")
            self._database.change(
                "UPDATE meta SET value = ? WHERE key = 'writes' AND value < ?",
                *(acknowledged, acknowledged),
            )
        return lost


class Store(TokenStore):
    """The one writer of a store. When a method returns, its changes are on disk.

    `lost` counts acknowledged writes that are missing, and were not accepted as lost.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.lost = 0
        self._epoch = 0  # that of a new store; every `open` draws another
        self._writes = 0  # the number of the last acknowledged write

    def open(self) -> bool:
        """Connect and become the writer; return whether another one, or a loss, changed the store.

        It may be called again after `StoreUnavailable`; if another process is the writer, it raises
        `StoreInUse`.
        """
        self._database.connect()
        try:
            acknowledged = self._database.last_acknowledged()
            with self._database.transaction():
                found = self._database.scalar("SELECT value FROM meta WHERE key = 'epoch'")
                epoch = secrets.randbelow(LARGEST_EPOCH) + 1
                self._database.change("UPDATE meta SET value = ? WHERE key = 'epoch'", epoch)
                is_first = self._database.change(ADD_COUNTS) > 0
                writes = self._kept("writes")
                missing = max(self._writes, acknowledged or 0) - writes
                if missing > 0:
                    self._count_lost(missing)
            if is_first:  # the loss of NAME-wal and NAME.lock must not make the store look new
                self._database.settle()
            self._database.watch()
            self._database.acknowledge(writes + max(missing, 0))
            self.lost = self._kept("lost")
        except BaseException:  # a writer that has not counted itself must not write
            self._database.close()
            raise
        if acknowledged is None and not (is_first or self._epoch):
            log.warning(
                "it cannot be checked whether the store is complete",
                reason="its file NAME.lock is missing or empty, as after the restore of a backup",
            )
        expected, self._epoch = self._epoch, epoch
        self._writes = writes + max(missing, 0)
        return found != expected or missing > 0

    def _count_lost(self, missing: int) -> None:
        """Note, in the store too, that acknowledged writes are missing."""
        log.error(
            "acknowledged events are missing from the store",
            missing_writes=missing,
            reason="NAME-wal was damaged or removed, or an older copy is in its place",
            remedy="restore a newer copy; or, for good: understudy audit --accept-loss",
        )
        self._database.change(
            "UPDATE meta SET value = value + ? WHERE key IN ('lost', 'writes')", missing
        )

    def check(self) -> None:
        """Raise `StoreUnavailable` if a file of the store was removed; read `lost` again."""
        self._database.check()
        self.lost = self._kept("lost")

    def find(self, study: int, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decisions that have one of these ids, by id."""
        found = (Decision(*row) for row in self._database.find(BY_ID, study, ids))
        return {decision.id: decision for decision in found}

    def find_units(self, study: int, units: Sequence[str]) -> dict[str, Decision]:
        """Return the decisions of these units, with the later events that count, by unit."""
        rows = self._database.find(FIRST_OF_UNIT, study, units)
        found = self._with_events(study, [Decision(*row) for row in rows])
        return {decision.unit: decision for decision in found if decision.unit is not None}

    def write(self, changes: Sequence[Changes], clock: int) -> None:
        """Write all changes in one transaction, or nothing."""
        with self._acknowledged(clock):
            for change in changes:
                self._database.insert(change.study, [*change.decisions, *change.events])
                self._set_rewards("reward", change.study, change.rewards)
                self._set_rewards("late_reward", change.study, change.late)
                for reason, count in change.refused.items():
                    self._database.change(
                        "INSERT INTO refused (study, reason, count) VALUES (?, ?, ?) ON CONFLICT "
                        "(study, reason) DO UPDATE SET count = refused.count + excluded.count",
                        *(change.study, reason, count),
                    )

    def _set_rewards(self, column: str, study: int, rewards: Sequence[Rewarded]) -> None:
        if self._database.set_rewards(column, study, rewards) != len(rewards):
            raise InvalidArgument(
                column,
                [reward.seq for reward in rewards],
                f"one of these decisions of study {study} is missing, or has its {column}",
                "name decisions that are stored and wait for it, each once",
            )

    @contextmanager
    def _acknowledged(self, clock: int) -> Iterator[None]:
        """Commit everything that happens inside, or nothing; count the write, advance the clock."""
        write = self._writes + 1
        with self._database.transaction():
            yield
            self._database.change(
                f"{self._database.update} meta SET value = CASE WHEN key = 'writes' THEN ? "
                "WHEN value < ? THEN ? ELSE value END WHERE key IN ('writes', 'clock')",
                *(write, clock, clock),
            )
        self._database.acknowledge(write)
        self._writes = write

    def write_clock(self, clock: int, outage: Outage | None = None) -> None:
        """Write the time, and the outage that ends there."""
        with self._acknowledged(clock):
            if outage is not None:
                self._database.change("INSERT INTO outages (begun, ended) VALUES (?, ?)", *outage)

    def set_back(self, clock: int, closed: Mapping[int, int]) -> None:
        """Set the clock and all later times back; `closed` has a `seq` for each study."""
        with self._acknowledged(clock):
            for table, columns in TIMES.items():
                for column in columns:
                    self._database.change(
                        f"UPDATE {table} SET {column} = ? WHERE {column} > ?", clock, clock
                    )
            self._database.change("DELETE FROM outages WHERE begun >= ?", clock)
            self._database.change("UPDATE meta SET value = ? WHERE key = 'clock'", clock)
            for study, seq in closed.items():
                self._database.change(
                    "INSERT INTO closed (study, seq) VALUES (?, ?) "
                    "ON CONFLICT (study) DO UPDATE SET seq = excluded.seq",
                    *(study, seq),
                )

    def add_study(self, name: str, spec: str, base: str | None, at: int) -> StudyRecord:
        """Add a study."""
        with self._acknowledged(at):
            self._database.change(
                "INSERT INTO studies (key, name, spec, base, created_at) "
                "SELECT coalesce(max(key), 0) + 1, ?, ?, ?, ? FROM studies",
                *(name, spec, base, at),
            )
            key = self._database.scalar("SELECT key FROM studies WHERE name = ?", name)
        return StudyRecord(key, name, spec, base, at)

    def archive(self, study: int, at: int) -> None:
        """Mark a study as archived."""
        with self._acknowledged(at):
            self._database.change(
                "UPDATE studies SET archived_at = ? WHERE key = ? AND archived_at IS NULL",
                *(at, study),
            )

    def save_snapshot(self, study: int, snapshot: Snapshot) -> None:
        """Save a snapshot in place of the one before."""
        self._database.change(
            "INSERT INTO snapshots (study, seq, policy, expired) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (study) DO UPDATE SET seq = excluded.seq, policy = excluded.policy, "
            "expired = excluded.expired",
            *(study, snapshot.seq, snapshot.policy, snapshot.expired),
        )
