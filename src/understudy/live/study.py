"""One study while the service runs. Only the writer's thread changes it; others look at `standing`.

Decisions that wait are kept in memory as far as they fit, the rest are read back when their turn
comes. A start after a crash is the same as that: nothing is in memory, all is read back.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import islice, takewhile

import structlog

from understudy.errors import InvalidSnapshot
from understudy.live.rates import Rate
from understudy.live.spec import Event, StudySpec
from understudy.live.standing import StudyState
from understudy.live.store.records import Changes, Decision, StudyRecord
from understudy.live.store.stores import Reader, Store
from understudy.live.taking import Ingest, Outcome, is_ready
from understudy.logs.setup import LAST

__all__ = ["LiveStudy", "standing_of"]

MOST_WAITING = 100_000  # decisions in memory
STRETCH = 4_096  # decisions that are folded, or read back, at a time

log = structlog.get_logger("understudy.live")


def standing_of(store: Reader, record: StudyRecord) -> StudyState:
    """What the newest snapshot says, or the beginning."""
    spec = StudySpec.model_validate_json(record.spec)
    begun = StudyState.begin(spec, record.base)
    snapshot = store.snapshot(record.key)
    if snapshot is None:
        return begun
    before: list[Decision] = []
    if spec.context is not None:
        before = store.decisions(record.key, max(0, snapshot.seq - LAST), LAST)
        before = [decision for decision in before if decision.seq <= snapshot.seq]
    try:
        return begun.resumed(snapshot, before)
    except InvalidSnapshot as error:  # of another version, say: it is only a cache
        log.warning("all is folded again", study=record.name, reason=str(error))
        return begun


class LiveStudy:
    """A study, its standing, and the decisions that wait for their turn."""

    def __init__(self, record: StudyRecord, store: Reader) -> None:
        self.record = record
        self.spec = StudySpec.model_validate_json(record.spec)
        self.rate = Rate()
        self.seen = Counter[str]()
        self.malformed = 0
        self.fault: str | None = None
        self._policy: tuple[tuple[int, int, int, int], bytes] | None = None
        self.load(store)

    def load(self, store: Reader) -> None:
        """Stand where the store does."""
        try:
            self.standing = standing_of(store, self.record)
        except InvalidSnapshot as error:  # what it goes on from cannot be read
            self.standing = StudyState(self.spec)
            self._stop(error)
        self.kept = self.standing.seq
        self.seen["late"] = store.late(self.record.key)
        self.refused = Counter(store.refused(self.record.key))
        self.look_again(store)

    def look_again(self, store: Reader) -> None:
        """Forget what waits in memory: after a write of which nobody knows whether it happened."""
        self.next_seq = store.last_seq(self.record.key) + 1
        self.waiting = deque[Decision]()
        self.by_id: dict[str, Decision] = {}
        self.all_in_memory = self.next_seq == self.standing.seq + 1

    @property
    def version(self) -> tuple[int, int, int, int]:
        """Changes whenever there is something new to say."""
        refused = sum(self.refused.values()) + self.seen["late"]
        archived = self.record.archived_at or 0
        return self.standing.seq, self.next_seq, refused, archived

    def refusals(self) -> Counter[str]:
        """What was not taken, by reason; what was malformed, since the service started."""
        own = Counter({"late": self.seen["late"], "malformed": self.malformed})
        return +(self.refused + own)

    def policy_now(self, show: Callable[[LiveStudy, StudyState], object]) -> bytes:
        """The policy as JSON; made anew only if there is something new to say."""
        version = self.version
        if self._policy is None or self._policy[0] != version:
            shown = show(self, self.standing)
            self._policy = version, json.dumps(shown, ensure_ascii=False).encode()
        return self._policy[1]

    def unknown(self, events: Sequence[Event]) -> list[str]:
        """The ids that the store has to be asked about."""
        return [event.id for event in events if event.id not in self.by_id]

    def taking(self, found: dict[str, Decision], now: int) -> Ingest:
        """What decides about events, with what the store found."""
        known = found | self.by_id if found else self.by_id
        changes = Changes(self.record.key)
        archived = self.record.archived_at is not None
        return Ingest(self.spec, changes, known, self.standing.seq, self.next_seq, now, archived)

    def count(self, outcomes: Sequence[Outcome], now: int) -> None:
        """Count what was sent."""
        self.seen["known"] += sum(outcome.status == "known" for outcome in outcomes)
        self.rate.add(len(outcomes), now)

    def written(self, taking: Ingest) -> None:
        """Keep what is on disk now."""
        changes = taking.changes
        self.next_seq = taking.next_seq
        fits = len(self.waiting) + len(changes.decisions) <= MOST_WAITING
        self.all_in_memory = self.all_in_memory and fits
        if self.all_in_memory:
            self._remember(changes.decisions)
        for rewarded in taking.touched:
            waiting = self.by_id.get(rewarded.id)
            if waiting is not None:
                waiting.reward, waiting.rewarded_at = rewarded.reward, rewarded.rewarded_at
                waiting.late_reward = rewarded.late_reward
        self.refused = self.refused + changes.refused  # others look at it: never half changed
        self.seen["late"] += len(changes.late)

    def _remember(self, decisions: Sequence[Decision]) -> None:
        self.waiting.extend(decisions)
        self.by_id.update((decision.id, decision) for decision in decisions)

    def fold(self, store: Reader, now: int) -> bool:
        """Fold what has its turn, a stretch at most; whether there may be more.

        If that fails, the decisions stay where they are, on disk, and `fault` says why.
        """
        if self.fault is not None:
            return False
        if not self.waiting and not self.all_in_memory:
            found = store.decisions(self.record.key, self.standing.seq, STRETCH)
            self.all_in_memory = len(found) < STRETCH
            self._remember(found)
        first = islice(self.waiting, STRETCH)
        ready = list(takewhile(lambda decision: is_ready(decision, self.spec, now), first))
        if not ready:
            return False
        try:
            self.standing = self.standing.after(ready)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this study's
            self._stop(error)
            return False
        for decision in ready:
            self.waiting.popleft()
            del self.by_id[decision.id]
        return len(ready) == STRETCH or (not self.waiting and not self.all_in_memory)

    def due(self) -> int | None:
        """When the oldest decision stops waiting for its reward, if one does."""
        try:
            return self.waiting[0].decided_at + self.spec.wait + 1
        except IndexError:  # who asks may be another thread than the one that folds
            return None

    def unkept(self) -> int:
        """How many decisions would have to be folded again after a crash."""
        return self.standing.seq - self.kept

    def keep(self, store: Store) -> None:
        """Write a snapshot, if there is something new in it."""
        standing = self.standing
        if standing.seq <= self.kept or self.fault is not None:
            return
        try:
            snapshot = standing.snapshot()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this study's
            self._stop(error)
            return
        if snapshot is not None:
            store.keep_snapshot(self.record.key, snapshot)
            self.kept = snapshot.seq

    def _stop(self, error: Exception) -> None:
        """Its events stay where they are, on disk; other studies go on."""
        log.error("a study cannot go on", study=self.spec.name, exc_info=error)
        self.fault = f"{type(error).__name__}: {error}"
