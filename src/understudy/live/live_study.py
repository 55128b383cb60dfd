"""A study while the service runs. Only the writer's thread changes it; other threads read `state`.

Decisions that wait for their reward are kept in memory as far as they fit. The rest are read back
from the store when their turn comes, and so are all of them after a restart.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from typing import NamedTuple

import structlog
from pydantic_core import to_json

from understudy.errors import InvalidSnapshot, UnderstudyError
from understudy.live.clock import Outages, RewardWait
from understudy.live.ingest import Found, Ingest
from understudy.live.models import Event
from understudy.live.spec import SECOND, StudySpec
from understudy.live.state import StudyState
from understudy.live.store.records import LATER, Decision, Snapshot, StudyRecord
from understudy.live.store.sql import Reader, Store

MOST_IN_MEMORY = 100_000  # decisions that wait: some 30 MB; a reward in memory needs no query
MOST_TEXT = 1 << 26  # characters of their contexts: one may have 64,000, and a byte or four each
CHUNK = 4_096  # decisions processed, or read back, at a time: some milliseconds of work
CHUNK_WORK = 1 << 26  # numbers of the learner's state that they change: some 60 milliseconds

NO_OUTAGES = Outages()
Version = tuple[int, int, int, int, int]
log = structlog.get_logger("understudy.live")


class Rate:
    """Events per second, over the last ten seconds.

    >>> rate = Rate()
    >>> rate.add(20, now=0)
    >>> rate.at(now=5 * SECOND), rate.at(now=20 * SECOND)
    (2.0, 0.0)
    """

    SPAN = 10  # seconds: steady enough to read, and a stop shows soon

    def __init__(self) -> None:
        self._counts = deque[tuple[int, int]](maxlen=self.SPAN)

    def add(self, events: int, now: int) -> None:
        """Count events at a time in microseconds."""
        second = now // SECOND
        if self._counts and self._counts[-1][0] == second:
            events += self._counts.pop()[1]
        self._counts.append((second, events))

    def at(self, now: int) -> float:
        """Return the events per second at a time in microseconds."""
        oldest = now // SECOND - self.SPAN
        counts = tuple(self._counts)  # another thread may add to them
        return sum(count for second, count in counts if second > oldest) / self.SPAN


class MadeSnapshot(NamedTuple):
    """A snapshot, the error of making it, or None in a warm-up; and how often the study was loaded.

    Another writer may have processed other rewards before the study was loaded again.
    """

    load: int
    result: Snapshot | Exception | None


def _text_length(decisions: Sequence[Decision]) -> int:
    """Return the number of characters in the contexts of decisions, and of bytes in vectors."""
    return sum(len(one.context or "") + len(one.propensity_vector or b"") for one in decisions)


class LiveStudy:
    """A study: its state, and the decisions that wait to be processed.

    `known` counts events that were sent before, since the service started; `late` counts rewards
    that came after their wait; `malformed` counts requests that were no valid events. `later`
    counts the events of units that do not count, and `other` those of them with another action.
    `fault` says why the study has stopped learning, if it has.
    """

    def __init__(
        self,
        record: StudyRecord,
        store: Reader,
        outages: Outages = NO_OUTAGES,
        begun: StudyState | None = None,
    ) -> None:
        self.record = record
        self.spec = StudySpec.model_validate_json(record.spec)
        self.rate = Rate()
        self.known = 0
        self.malformed = 0
        self.loads = 0
        self.fault: str | None
        self._policy: tuple[Version, bytes] | None = None
        self.wait = RewardWait(self.spec.reward_wait_us, outages, events=self.spec.unit_rows or 1)
        self.load(store, begun)

    def load(self, store: Reader, begun: StudyState | None = None) -> None:
        """Load the state from the store; `begun` is that before the first decision, if known."""
        self.wait = replace(self.wait, closed=store.closed_seq(self.record.key))
        self.fault = None
        try:
            begun = begun or StudyState.begin(self.spec, self.record.base)
            self.state = self._restored(begun, store)
        except InvalidSnapshot as error:  # the policy.json that it continues cannot be read
            self.state = StudyState(self.spec)
            self._stop_learning(error)
        self.loads += 1  # after the state: other threads read them in the other order
        self.snapshot_seq = self.state.seq
        self.reload(store)

    def _restored(self, begun: StudyState, store: Reader) -> StudyState:
        """Return the state of the newest snapshot, or the one before the first decision."""
        snapshot = store.snapshot(self.record.key)
        if snapshot is None:
            return begun
        seq = snapshot.seq

        def last(rows: int) -> Iterator[list[Decision]]:
            most = self.spec.rows_at_a_time(CHUNK)
            return store.batches(self.record.key, seq, after=seq - rows, most=most)

        try:
            return begun.restored(snapshot, last)
        except InvalidSnapshot as error:  # of another version, say: a snapshot is only a cache
            name, reason = self.spec.name, str(error)
            log.warning("all decisions are processed again", study=name, reason=reason)
            return begun

    def reload(self, store: Reader) -> None:
        """Read all but the state again: the last write may or may not have happened."""
        self.late = store.late_count(self.record.key)
        self.refused = Counter(store.refused_counts(self.record.key))
        self.next_seq = store.last_seq(self.record.key) + 1
        self.least_seq = store.least_seq(self.record.key)
        self.later, self.other = store.later_events(self.record.key)
        self.waiting = deque[Decision]()
        self.waiting_text = 0
        self.by_id: dict[str, Decision] = {}
        self.by_unit: dict[str, Decision] = {}
        self.all_in_memory = self.next_seq == self.state.seq + 1

    @property
    def version(self) -> Version:
        """Version of the study; changes with every update."""
        refused = sum(self.refused.values()) + self.late - self.least_seq
        archived = self.record.archived_at or 0
        return self.loads, self.state.seq, self.next_seq, refused, archived

    def refusals(self) -> Counter[str]:
        """Count refused events by reason; malformed ones since the service started."""
        return +(self.refused + Counter({"late": self.late, "malformed": self.malformed}))

    def policy_json(self, show: Callable[[LiveStudy, StudyState], object]) -> bytes:
        """Return the policy as JSON, cached until the version changes."""
        version = self.version
        if self._policy is None or self._policy[0] != version:
            shown = show(self, self.state)
            self._policy = version, to_json(shown)  # seven times faster than json
        return self._policy[1]

    def ingest(self, store: Store, events: Iterable[Event], now: int) -> Ingest:
        """Return an empty group for these events."""
        return Ingest(self, self._find(store, list(events)), now)

    def _find(self, store: Store, events: Sequence[Event]) -> Found:
        """Read what is in the store about events, and not in memory."""
        unknown = [event.id for event in events if event.id not in self.by_id]
        found = store.find(self.record.key, unknown) if unknown else {}
        if self.spec.unit_rows is None:
            return Found(found)
        units = {str(event.unit) for event in events if event.unit is not None}
        units |= {one.unit for one in found.values() if one.unit is not None}
        missing = sorted(units - self.by_unit.keys())
        return Found(found, store.find_units(self.record.key, missing) if missing else {})

    def apply(self, ingest: Ingest) -> None:
        """Apply a group of events that is on disk now."""
        changes = ingest.changes
        self.next_seq, self.least_seq = ingest.next_seq, ingest.least_seq
        self.later += ingest.later
        self.other += ingest.other
        rows, text = len(changes.decisions), _text_length(changes.decisions)
        fits = len(self.by_id) + rows <= MOST_IN_MEMORY and self.waiting_text + text <= MOST_TEXT
        self.all_in_memory = self.all_in_memory and fits
        if self.all_in_memory:
            self._remember(changes.decisions)
        for event in changes.events:
            first = self.by_unit.get(event.unit or "")
            if first is not None and event.place is not None and event.place > LATER:
                first.events = (*first.events, event)
                self.by_id[event.id] = event
        if len(self.by_id) > MOST_IN_MEMORY:  # such units are read back when their turn comes
            self._forget_all()
        for updated in ingest.updated:
            if (waiting := self.by_id.get(updated.id)) is not None:
                waiting.reward, waiting.rewarded_at = updated.reward, updated.rewarded_at
                waiting.late_reward = updated.late_reward
        self.refused = self.refused + changes.refused  # a new object: other threads read the old
        self.late += len(changes.late)
        self.known += ingest.known
        self.rate.add(ingest.event_count, ingest.now)

    def _remember(self, decisions: Sequence[Decision]) -> None:
        self.waiting.extend(decisions)
        self.waiting_text += _text_length(decisions)
        self.by_id.update((decision.id, decision) for decision in decisions)
        if self.spec.unit_rows is not None:
            self.by_id.update((event.id, event) for one in decisions for event in one.events)
            self.by_unit.update((one.unit, one) for one in decisions if one.unit is not None)

    def _forget_all(self) -> None:
        self.waiting, self.by_id, self.by_unit = deque(), {}, {}
        self.waiting_text, self.all_in_memory = 0, False

    def _forget(self, decision: Decision) -> None:
        del self.by_id[decision.id]
        if decision.unit is not None:
            del self.by_unit[decision.unit]
            for event in decision.events:
                del self.by_id[event.id]

    @property
    def has_waiting(self) -> bool:
        """Whether a decision waits for its reward, or for its turn."""
        return self.next_seq > self.state.seq + 1

    def expires_between(self, kept: int, now: int) -> bool:
        """Return whether the wait of the oldest decision ends between two times."""
        if not self.waiting:
            return False
        oldest = self.waiting[0]
        is_over, waits = self.wait.is_over, not oldest.is_rewarded(self.wait.events)
        return waits and is_over(oldest, now) and not is_over(oldest, kept)

    def process(self, store: Reader, clock: int) -> bool:
        """Process at most a chunk of ready decisions; return whether more may be ready.

        `clock` must be on disk: then the decisions that expire by it have expired for good. After
        an error the decisions stay in the store, and `fault` says why.
        """
        if self.fault is not None:
            return False
        chunk = self._chunk_size()
        if not self.waiting and not self.all_in_memory:
            found = store.decisions(self.record.key, self.state.seq, chunk)
            self.all_in_memory = len(found) < chunk
            self._remember(found)
        first = islice(self.waiting, chunk)
        ready = list(takewhile(lambda decision: self.wait.is_ready(decision, clock), first))
        if not ready:
            return False
        try:
            self.state = self.state.after(ready)
        except Exception as error:  # noqa: BLE001 - any error stops this study, and no other
            self._stop_learning(error, ready)
            return False
        for _ in ready:
            self._forget(self.waiting.popleft())
        self.waiting_text -= _text_length(ready)
        return len(ready) == chunk or (not self.waiting and not self.all_in_memory)

    def _chunk_size(self) -> int:
        """Return how many decisions to process at a time: requests wait meanwhile."""
        return min(self.spec.rows_at_a_time(CHUNK), max(1, CHUNK_WORK // self.state.numbers))

    def next_deadline(self) -> int | None:
        """Return the time at which the oldest decision stops waiting for its reward, if any."""
        try:
            return self.wait.deadline(self.waiting[0])
        except IndexError:  # the writer's thread may have processed it meanwhile
            return None

    def unsaved(self) -> int:
        """Return how many decisions are newer than the snapshot: a crash repeats their work."""
        if self.fault is not None or self.state.study is None:  # a warm-up has no snapshot
            return 0
        return self.state.seq - self.snapshot_seq

    def make_snapshot(self, pause: Callable[[], object] = lambda: None) -> MadeSnapshot:
        """Make a snapshot of the state; any thread may do it."""
        load = self.loads  # before the state: the writer may load the study in between
        try:
            return MadeSnapshot(load, self.state.snapshot(pause))
        except Exception as error:  # noqa: BLE001 - any error stops this study, and no other
            return MadeSnapshot(load, error)

    def save_snapshot(self, store: Store) -> None:
        """Make a snapshot and write it, if the state is newer than the last one."""
        if self.unsaved():
            self.keep_snapshot(store, self.make_snapshot())

    def keep_snapshot(self, store: Store, made: MadeSnapshot) -> None:
        """Write a snapshot that was made, unless the study has stopped or was loaded since."""
        result = made.result
        if self.fault is not None or result is None or made.load != self.loads:
            return
        if isinstance(result, Exception):
            self._stop_learning(result)
        elif result.seq > self.snapshot_seq:
            store.save_snapshot(self.record.key, result)
            self.snapshot_seq = result.seq

    def _stop_learning(self, error: Exception, ready: Sequence[Decision] = ()) -> None:
        """Note why the study stops; its decisions are in the store, those of a warm-up too."""
        if isinstance(error, UnderstudyError):  # the message says all
            self.fault = str(error)
            log.error("a study has stopped", study=self.spec.name, reason=self.fault)
        else:
            self.fault = f"{type(error).__name__}: {error}"
            log.error("a study has stopped", study=self.spec.name, exc_info=error)
        self.state = self.state.stopped(ready)
