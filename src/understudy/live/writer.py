"""The one thread that writes: what waits is written together, and answered when it is on disk.

While one group is being written the next one gathers, so a commit is shared by all who came in the
meantime: durability costs a wait, not throughput. What comes alone is folded before it is answered,
unless an earlier decision still waits for its reward; what comes in crowds is folded a moment
later, many at a time.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from understudy.errors import StoreUnavailable
from understudy.live.spec import Event
from understudy.live.store.records import StudyRecord, TokenRecord
from understudy.live.store.stores import Store
from understudy.live.study import LiveStudy
from understudy.live.taking import Ingest, Outcome

__all__ = ["Writer"]

MOST_IN_GROUP = 4_096  # events
MOST_QUEUED = 100_000  # events
CROWD = 4  # requests in a group: from here on, more are expected while one is being written
GATHER = 3e-3  # seconds that a group then waits for them
SWEEP = 0.05  # seconds between two looks at what has expired, and what came in crowds
RETRY = 0.5  # seconds between two tries to reach a store that is gone
TOKENS_EVERY = 2.0  # seconds
SNAPSHOT_EVERY = 10.0  # seconds
SNAPSHOT_SHARE = 50.0  # snapshots may take a fiftieth of the time
KEEP = 0.05  # seconds after which no further snapshot is begun for now
MICROSECOND = 1_000  # nanoseconds

Answer = tuple[asyncio.Future[Any], Any, BaseException | None]
log = structlog.get_logger("understudy.live")


@dataclass(eq=False)
class Sent:
    """Events of one request, and who waits for the answer."""

    study: LiveStudy
    events: Sequence[Event]
    answer: asyncio.Future[Any]


@dataclass(eq=False)
class Asked:
    """Something else to be done with the store, in the thread that owns it."""

    work: Callable[[], Any]
    answer: asyncio.Future[Any]


class Writer:
    """Owns the store and all changes of studies. `submit` and `ask` belong to the event loop."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.studies: dict[str, LiveStudy] = {}
        self.tokens: list[TokenRecord] = []
        self.obstacle: str | None = None
        self.commits = 0
        self.is_open = False
        self.stopping = False
        self._loop: asyncio.AbstractEventLoop
        self._queue: queue.SimpleQueue[Sent | Asked | None] = queue.SimpleQueue()
        self._queued = 0
        self._clock = 0
        self._outdated = False
        self._more_to_fold = False
        self._crowded = False
        self._sweep_at = 0.0
        self._snapshot_at = 0.0
        self._tokens_at = 0.0
        self._retry_at = 0.0
        self._thread = threading.Thread(target=self._run, name="understudy-writer")

    def open(self) -> None:
        """Become the writer of the store, and stand where it does."""
        self._enter()
        self.is_open = True

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to write, in a thread of its own; answers go to this loop."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, keep snapshots, let go of the store."""
        self.stopping = True
        self._queue.put(None)
        self._thread.join()

    def submit(self, study: LiveStudy, events: Sequence[Event]) -> asyncio.Future[list[Outcome]]:
        """Hand over events; the answer comes when they are on disk."""
        self._refuse_at_once()
        if self._queued + len(events) > MOST_QUEUED:
            raise StoreUnavailable("more events are waiting to be written than there is room for")
        answer: asyncio.Future[list[Outcome]] = self._loop.create_future()
        self._queued += len(events)
        self._queue.put(Sent(study, events, answer))
        return answer

    def ask(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """Have something done by the thread that owns the store."""
        self._refuse_at_once()
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put(Asked(work, answer))
        return answer

    def _refuse_at_once(self) -> None:
        if self.stopping:
            raise StoreUnavailable("the service is shutting down")
        if self.obstacle is not None and time.monotonic() < self._retry_at:
            raise StoreUnavailable(self.obstacle)

    def now(self) -> int:
        """The time in microseconds, which never goes back; for the writer's own thread."""
        self._clock = self.time()
        return self._clock

    def time(self) -> int:
        """The same, for whoever only looks."""
        return max(self._clock, time.time_ns() // MICROSECOND)

    def _enter(self) -> None:
        """Become the writer, and look what the store holds: anything may have been written."""
        self._outdated = self.store.open() or self._outdated  # until all is loaded
        self._clock = max(self._clock, self.store.clock())
        tokens = self.store.tokens()
        known = {study.record.key: study for study in self.studies.values()}
        studies = [self._entered(record, known.get(record.key)) for record in self.store.studies()]
        self.tokens = tokens
        self.studies = {study.spec.name: study for study in studies}
        self._outdated = False

    def _entered(self, record: StudyRecord, known: LiveStudy | None) -> LiveStudy:
        if known is None:
            return LiveStudy(record, self.store)
        known.record = record
        if self._outdated:
            known.load(self.store)
        else:
            known.look_again(self.store)
        return known

    def _run(self) -> None:
        stopping = False
        while not stopping:
            group, stopping = self._gather()
            for asked in (item for item in group if isinstance(item, Asked)):
                self._do(asked)
            sent = [item for item in group if isinstance(item, Sent)]
            if sent:
                self._write(sent)
            if self._more_to_fold or time.monotonic() >= self._sweep_at or stopping:
                self._sweep()
            if time.monotonic() >= self._snapshot_at or stopping:
                self._keep(all_of_them=stopping)
        self.store.close()

    def _gather(self) -> tuple[list[Sent | Asked], bool]:
        """All that waits, or nothing if nothing came for a while; whether it is time to stop."""
        group: list[Sent | Asked] = []
        events, wait = 0, 0.0 if self._more_to_fold else SWEEP
        while events < MOST_IN_GROUP:
            try:
                item = self._queue.get(block=not group and wait > 0.0, timeout=wait or None)
            except queue.Empty:
                break
            if item is None:
                return group, True
            if not group and self._crowded:
                time.sleep(GATHER)
            group.append(item)
            events += len(item.events) if isinstance(item, Sent) else 1
        self._crowded = len(group) >= CROWD
        return group, False

    def _do(self, asked: Asked) -> None:
        try:
            self._reach()
            answered: Answer = asked.answer, asked.work(), None
        except StoreUnavailable as lost:
            answered = asked.answer, None, self._lost(lost)
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            answered = asked.answer, None, error
        self._answer([answered])

    def _write(self, sent: Sequence[Sent]) -> None:
        """One transaction for all; then each knows what became of its events."""
        events = sum(len(item.events) for item in sent)
        try:
            self._reach_whatever_happens()
            outcomes = self._commit(sent)
        except StoreUnavailable as error:
            self._lost(error)
            self._answer([(item.answer, None, error) for item in sent], events)
        except Exception as error:  # noqa: BLE001 - whoever waits must get an answer
            self._apart(sent, error)
        else:
            if not self._crowded:  # else at the next sweep, for many at once
                self._fold({item.study: None for item in sent})
            answers = [(item.answer, own, None) for item, own in zip(sent, outcomes, strict=True)]
            self._answer(answers, events)

    def _apart(self, sent: Sequence[Sent], error: Exception) -> None:
        """What nobody foresaw is the fault of one request, and must not be that of the others."""
        log.error("a group could not be written", requests=len(sent), exc_info=error)
        self.obstacle, self._retry_at = "the last write failed", 0.0  # so all is looked at again
        if len(sent) > 1:
            for item in sent:
                self._write([item])
        else:
            self._answer([(sent[0].answer, None, error)], len(sent[0].events))

    def _reach_whatever_happens(self) -> None:
        """What goes wrong on the way to the store is no fault of what is to be written."""
        try:
            self._reach()
        except StoreUnavailable:
            raise
        except Exception as error:
            raise self._lost(error) from error

    def _commit(self, sent: Sequence[Sent]) -> list[list[Outcome]]:
        now = self.now()
        takings = dict(self._takings(sent, now))
        outcomes = [takings[item.study].take(item.events) for item in sent]
        self.store.write([taking.changes for taking in takings.values()], now)
        self.commits += 1
        for item, own in zip(sent, outcomes, strict=True):
            item.study.count(own, now)
        for study, taking in takings.items():
            study.written(taking)
        return outcomes

    def _takings(self, sent: Sequence[Sent], now: int) -> Iterator[tuple[LiveStudy, Ingest]]:
        for study in {item.study: None for item in sent}:
            ids = [i for item in sent if item.study is study for i in study.unknown(item.events)]
            yield study, study.taking(self.store.find(study.record.key, ids) if ids else {}, now)

    def _answer(self, answers: Sequence[Answer], events: int = 0) -> None:
        """Wake all who wait, in one call: the event loop is another thread."""
        self._loop.call_soon_threadsafe(self._resolve, answers, events)

    def _resolve(self, answers: Sequence[Answer], events: int) -> None:
        self._queued -= events
        for answer, result, error in answers:
            if answer.done():  # whoever asked has gone away
                continue
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

    def _reach(self) -> None:
        """Reach a store that was gone, and look what it holds."""
        if self.obstacle is None:
            return
        if time.monotonic() < self._retry_at:
            raise StoreUnavailable(self.obstacle)
        self._enter()
        log.info("the store can be used again")
        self.obstacle = None

    def _lost(self, error: Exception) -> StoreUnavailable:
        """Nothing is known of the last write: look again before the next one."""
        if isinstance(error, StoreUnavailable):
            lost = error
        else:
            log.error("an error of the service", exc_info=error)
            lost = StoreUnavailable(f"an error of the service; its log has it ({error!r:.80})")
        if self.obstacle is None:
            log.warning("the store cannot be used", reason=str(lost))
        self.obstacle = str(lost)
        self._retry_at = time.monotonic() + RETRY
        self._more_to_fold = False  # not now: else it would be tried without a pause
        return lost

    def _fold(self, studies: Iterable[LiveStudy]) -> None:
        """Fold what has its turn, a stretch of each."""
        try:
            more = [study.fold(self.store, self.now()) for study in studies]
            self._more_to_fold = any(more)
        except Exception as error:  # noqa: BLE001 - without this thread nobody would be answered
            self._lost(error)

    def _sweep(self) -> None:
        """What is to be done though nobody asked: what has expired, a store that was gone."""
        self._sweep_at = time.monotonic() + SWEEP
        try:
            if self.obstacle is not None and time.monotonic() >= self._retry_at:
                self._reach()
            if self.obstacle is None:
                self._fold(self.studies.values())
                self._look_for_tokens()
        except Exception as error:  # noqa: BLE001 - as above
            self._lost(error)

    def _look_for_tokens(self) -> None:
        """Others add and remove tokens while this runs."""
        if time.monotonic() >= self._tokens_at:
            self.tokens = self.store.tokens()
            self._tokens_at = time.monotonic() + TOKENS_EVERY

    def _keep(self, *, all_of_them: bool) -> None:
        """Snapshots, so that the next start is quick; as often as they are cheap.

        Nobody is answered meanwhile: so it is done for a moment only, the largest gaps first.
        """
        begun, finished = time.monotonic(), True
        if self.obstacle is None:
            try:
                for study in sorted(self.studies.values(), key=LiveStudy.unkept, reverse=True):
                    finished = all_of_them or time.monotonic() < begun + KEEP
                    if not finished:
                        break
                    study.keep(self.store)
            except Exception as error:  # noqa: BLE001 - as above
                self._lost(error)
        took = time.monotonic() - begun
        pause = max(SNAPSHOT_EVERY if finished else 0.0, SNAPSHOT_SHARE * took)
        self._snapshot_at = time.monotonic() + pause
