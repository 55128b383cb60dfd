"""The one thread that writes: group commit, and an answer when the group is on disk.

While one group is being written the next one gathers, so a commit is shared by all requests that
came in the meantime: durability costs latency, not throughput. An event that comes alone is
processed before it is answered, unless an earlier decision still waits for its reward. Under load,
events are answered first and processed a moment later, many at a time.

A store may hang for any time, and the thread with it. The event loop notices, answers all requests
that wait, and refuses new ones until the thread goes on.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from understudy.errors import StoreUnavailable
from understudy.live.clock import FAR_AHEAD, ServiceClock, StoreClock, shown
from understudy.live.ingest import Outcome
from understudy.live.live_study import LiveStudy
from understudy.live.models import Event
from understudy.live.request_queue import EventRequest, RequestQueue, StoreTask
from understudy.live.snapshot_saver import SnapshotSaver
from understudy.live.spec import SECOND
from understudy.live.store.records import StudyRecord, TokenRecord
from understudy.live.store.sql import Store

POLL = 0.05  # seconds between two searches for expired decisions and unprocessed groups
RETRY = 0.5  # seconds between two attempts to reopen a lost store: clients retry after one
TOKENS_EVERY = 2.0  # seconds until an added or removed token counts
SNAPSHOT_EVERY = 10.0  # seconds: a crash costs at most about so much work at the next start
SNAPSHOT_SHARE = 50.0  # snapshots may take a fiftieth of the time
# Seconds after which a store that does not answer counts as unavailable: a second more than SQLite
# or a connection needs to fail by itself, with a better reason; less than the ten of a client.
STALLED = 6.0
WATCH = 1.0  # seconds between two looks at the thread
GRACE = 10.0  # seconds for the last writes: a store that hangs is noticed after six

# Steps of a turn, for the reason if one takes too long.
WAITING, PROCESSING = "waiting for its store", "reading and processing decisions"
SAVING = "saving the states of its studies"

log = structlog.get_logger("understudy.live")


class Writer:
    """Owns the store and changes the studies. The event loop calls `submit` and `run`.

    `store_error` is the last error of the store, if it has not worked since; `unavailable` says why
    requests are refused.
    """

    def __init__(self, store: Store, clock: ServiceClock) -> None:
        self.store = store
        self.clock = StoreClock(clock)
        self.studies: dict[str, LiveStudy] = {}
        self.tokens: list[TokenRecord] = []
        self.store_error: str | None = None
        self.commits = 0
        self.is_open = False
        self.stopping = False
        self._loop: asyncio.AbstractEventLoop
        self._requests = RequestQueue()
        self._turn_at: float | None = None
        self._step = WAITING
        self._is_stalled = False  # at the last look
        self._watcher: asyncio.TimerHandle
        self._answered_all = False
        self._outdated = False
        self._unprocessed = False
        self._poll_at = 0.0
        self._snapshots = SnapshotSaver(SNAPSHOT_EVERY, SNAPSHOT_SHARE)
        self._tokens_at = 0.0
        self._retry_at = 0.0
        self._thread = threading.Thread(target=self._run, name="understudy-writer", daemon=True)

    def open(self) -> None:
        """Become the writer of the store, and load its studies."""
        try:
            self._open_store()
        except BaseException:
            self.store.close()
            raise
        self.is_open = True
        now, ahead = self.time(), self.clock.running.ahead()
        if ahead > FAR_AHEAD * SECOND:
            log.warning(
                "the store's clock is far ahead of the machine's, and the service goes on with it",
                store=shown(now),
                machine=shown(now - ahead),
                remedy="if the machine's is right, stop the service: understudy clock --set-back",
            )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; answers go to this event loop."""
        self._loop = loop
        self._requests.start(loop)
        self._thread.start()
        self._watch()

    async def stop(self, grace: float = GRACE) -> bool:
        """Write all queued requests, save snapshots, close the store; wait so many seconds for it.

        Return whether the store has answered every request. The others may be on disk or not.
        """
        self.stopping = True
        self._requests.end()
        await asyncio.to_thread(self._thread.join, grace)
        self._watcher.cancel()
        if not self._answered_all:
            log.error("the service ends before its store has answered", reason=self._stalled())
            self._requests.fail_pending("the service has ended before its store answered")
        return self._answered_all

    @property
    def is_running(self) -> bool:
        """Whether the thread has not ended: a store that hangs may keep it beyond `stop`."""
        return self._thread.is_alive()

    @property
    def unavailable(self) -> str | None:
        """Why requests are refused now; None if they are not."""
        if self.stopping:
            return "the service is shutting down"
        return self._stalled() or self.store_error

    def _stalled(self) -> str | None:
        """Say what the thread has been doing, if its present turn takes too long."""
        began = self._turn_at
        if began is None or (lasted := time.monotonic() - began) < STALLED:
            return None
        return f"the service has been {self._step} for {lasted:.0f} seconds"

    def _watch(self) -> None:
        """Answer requests that wait for a store that hangs; look again in a second."""
        self._watcher = self._loop.call_later(WATCH, self._watch)
        stall = self._stalled()
        if stall is not None:
            if not self._is_stalled:
                log.warning("the store cannot be used", reason=stall)
            self._requests.fail_pending(stall)
        elif self._is_stalled:
            log.info("the store can be used again")
        self._is_stalled = stall is not None

    def submit(self, study: LiveStudy, events: Sequence[Event]) -> asyncio.Future[list[Outcome]]:
        """Queue events; their outcomes come when they are on disk."""
        self._check_available()
        return self._requests.add_events(study, events)

    def run(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """Queue work for the thread that owns the store."""
        self._check_available()
        return self._requests.add_task(work)

    def _check_available(self) -> None:
        """Raise if requests are refused now; a request may try a lost store again after a while."""
        reason = self.unavailable
        may_retry = reason is self.store_error and time.monotonic() >= self._retry_at
        if reason is not None and not may_retry:
            raise StoreUnavailable(reason)

    def now(self) -> int:
        """Return the time for a write; for the thread alone."""
        return self.clock.now(self.store, self.studies.values())

    def time(self) -> int:
        """Return the time, for other threads."""
        return self.clock.running.now()

    def _open_store(self) -> None:
        """Become the writer, and load the studies: another writer may have changed them."""
        self._outdated = self.store.open() or self._outdated  # until all studies are loaded
        self.clock.load(self.store)
        tokens = self.store.tokens()
        known = {study.record.key: study for study in self.studies.values()}
        studies = [
            self._load_study(record, known.get(record.key)) for record in self.store.studies()
        ]
        self.tokens = tokens
        self.studies = {study.spec.name: study for study in studies}
        self._outdated = False

    def _load_study(self, record: StudyRecord, known: LiveStudy | None) -> LiveStudy:
        # After a failover, or in an older copy, the key may be that of another study.
        if known is None or replace(known.record, archived_at=record.archived_at) != record:
            return LiveStudy(record, self.store, self.clock.outages)
        known.record = record
        known.wait = replace(known.wait, outages=self.clock.outages)
        if self._outdated:
            known.load(self.store)
        else:
            known.reload(self.store)
        return known

    def _run(self) -> None:
        stopping = False
        while not stopping:
            self._turn_at = None
            group, stopping = self._requests.take(0.0 if self._unprocessed else POLL)
            self._turn_at = time.monotonic()
            for task in (item for item in group if isinstance(item, StoreTask)):
                self._run_task(task)
            requests = [item for item in group if isinstance(item, EventRequest)]
            if requests:
                self._write(requests)
            self._answered_all = stopping
            if self._unprocessed or time.monotonic() >= self._poll_at or stopping:
                self._poll()
            self._save_snapshots(all_of_them=stopping)
        self.store.close()

    def _run_task(self, task: StoreTask) -> None:
        try:
            self._reopen_store()
            result = task.work()
        except StoreUnavailable as error:
            self._requests.refuse([task], self._lose_store(error))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            self._requests.refuse([task], error)
        else:
            self._requests.answer([task], [result])

    def _write(self, requests: Sequence[EventRequest]) -> None:
        """Write all requests in one transaction, and answer each."""
        try:
            self._reopen_store()
            requests = self._refuse_outdated(requests)
            outcomes = self._commit(requests)
        except StoreUnavailable as error:
            self._requests.refuse(requests, self._lose_store(error))
        except Exception as error:  # noqa: BLE001 - every request must get an answer
            self._write_separately(requests, error)
        else:
            if not self._requests.is_busy:  # else by the next poll, for many groups at once
                self._process({request.study: None for request in requests})
            self._requests.answer(requests, outcomes)

    def _refuse_outdated(self, requests: Sequence[EventRequest]) -> Sequence[EventRequest]:
        """Return the requests whose study is still in the store; refuse the others."""
        found = self.studies.get
        outdated = [one for one in requests if found(one.study.spec.name) is not one.study]
        if not outdated:
            return requests
        error = StoreUnavailable("the store holds other studies now; send the request again")
        self._requests.refuse(outdated, error)
        return [request for request in requests if request not in outdated]

    def _write_separately(self, requests: Sequence[EventRequest], error: Exception) -> None:
        """Write each request alone: an unexpected error of one must not fail the others."""
        log.error("a group could not be written", requests=len(requests), exc_info=error)
        self.store_error, self._retry_at = "the last write failed", 0.0  # so the store is reopened
        if len(requests) > 1:
            for request in requests:
                self._write([request])
        else:
            self._requests.refuse(requests, error)

    def _commit(self, requests: Sequence[EventRequest]) -> list[list[Outcome]]:
        now = self.now()
        events: dict[LiveStudy, list[Event]] = {}
        for request in requests:
            events.setdefault(request.study, []).extend(request.events)
        groups = {study: study.ingest(self.store, own, now) for study, own in events.items()}
        outcomes = [groups[request.study].add(request.events) for request in requests]
        self.store.write([ingest.changes for ingest in groups.values()], now)
        self.clock.kept = now
        self.commits += 1
        for study, ingest in groups.items():
            study.apply(ingest)
        return outcomes

    def _reopen_store(self) -> None:
        """Open the store again if it was lost, and load its studies."""
        if self.store_error is None:
            return
        if time.monotonic() < self._retry_at:
            raise StoreUnavailable(self.store_error)
        try:
            self._open_store()
        except StoreUnavailable:
            raise
        except Exception as error:  # it is the store's, not that of the request that comes first
            raise self._lose_store(error) from error
        log.info("the store can be used again")
        self.store_error = None

    def _lose_store(self, error: Exception) -> StoreUnavailable:
        """Note that the store must be reopened: the last write may or may not have happened."""
        lost = error
        if not isinstance(lost, StoreUnavailable):
            log.error("an error of the service", exc_info=error)
            lost = StoreUnavailable(f"an error of the service; its log has it ({error!r:.80})")
        if self.store_error is None:
            log.warning("the store cannot be used", reason=str(lost))
        self.store_error = str(lost)
        self._retry_at = time.monotonic() + RETRY
        self._unprocessed = False  # not now: else it would be tried without a pause
        return lost

    def _process(self, studies: Iterable[LiveStudy]) -> None:
        """Process a chunk of each study's ready decisions."""
        self._step = PROCESSING
        try:
            more = [study.process(self.store, self.clock.kept) for study in studies]
            self._unprocessed = any(more)
        except Exception as error:  # noqa: BLE001 - the thread must go on, and answer requests
            self._lose_store(error)
        self._step = WAITING

    def _poll(self) -> None:
        """Process expired decisions, read the tokens, reopen a lost store."""
        self._poll_at = time.monotonic() + POLL
        try:
            if self.store_error is not None and time.monotonic() >= self._retry_at:
                self._reopen_store()
            if self.store_error is None:
                self.clock.beat(self.store, self.studies.values())
                self._process(self.studies.values())
                if time.monotonic() >= self._tokens_at:  # other processes add and remove them
                    self.store.check()
                    self.tokens = self.store.tokens()
                    self._tokens_at = time.monotonic() + TOKENS_EVERY
        except Exception as error:  # noqa: BLE001 - as above
            self._lose_store(error)

    def _save_snapshots(self, *, all_of_them: bool) -> None:
        """Save snapshots, which make the next start quick."""
        if self.store_error is not None:
            return
        studies = self.studies.values()
        try:
            if all_of_them:
                self._step = SAVING
                self._snapshots.finish(self.store, studies)
            else:
                self._snapshots.advance(self.store, studies)
        except Exception as error:  # noqa: BLE001 - as above
            self._lose_store(error)
