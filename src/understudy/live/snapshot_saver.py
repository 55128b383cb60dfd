"""Snapshots of studies: a thread of its own makes their texts, and the writer's thread writes them.

A state is an immutable value, so any thread can make its snapshot. That of a study with 10 000
actions takes a second and has 14 MB; events must not wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import structlog

from understudy.live.live_study import LiveStudy, MadeSnapshot
from understudy.live.store.sql import Store

BATCH = 0.05  # seconds: small snapshots are made for so long before they are written together
LAST = 5.0  # seconds for snapshots at the end: half of the time that the writer has to stop
PAUSE = 5e-4  # seconds between two pieces of a text: enough for another thread to take over

log = structlog.get_logger("understudy.live")


def let_others_run() -> None:
    """Give up the interpreter's lock for a moment."""
    time.sleep(PAUSE)


class SnapshotSaver:
    """Saves snapshots as often as they are cheap, the studies with the most new decisions first.

    The writer's thread calls `advance` at every turn, and `finish` at the end. Each study is saved
    every `every` seconds, or less often if snapshots would take more than 1/`share` of the time.
    """

    def __init__(
        self, every: float, share: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every = every
        self._share = share
        self._clock = clock
        self._next_at = 0.0
        self._thread: threading.Thread | None = None
        self._made: list[tuple[LiveStudy, MadeSnapshot]] = []
        self._made_all = True
        self._took = 0.0
        self._ending = False

    def advance(self, store: Store, studies: Iterable[LiveStudy]) -> None:
        """Write the snapshots that are made, or begin to make others when it is time."""
        if self._thread is None:
            if self._clock() >= self._next_at:
                self._begin(studies)
        elif not self._thread.is_alive():
            self._thread = None
            self._next_at = self._clock() + self._every  # also if the store cannot be written
            self._write(store)

    def finish(self, store: Store, studies: Iterable[LiveStudy]) -> None:
        """Save the newest snapshots, for `LAST` seconds; one that is being made is given up.

        The next start processes the decisions of the others again.
        """
        if self._thread is not None:
            self._ending = True
            self._thread.join()
            self._thread, self._ending = None, False
        until = self._clock() + LAST
        for study in _unsaved(studies):
            if self._clock() >= until:
                return
            study.save_snapshot(store)

    def _begin(self, studies: Iterable[LiveStudy]) -> None:
        unsaved = _unsaved(studies)
        self._next_at = self._clock() + self._every
        if not unsaved:
            return
        self._made = []
        thread = threading.Thread(
            target=self._make, args=(unsaved,), name="understudy-snapshots", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more of them: the next time, perhaps
            log.warning("no snapshot was made", reason=str(error))
            return
        self._thread = thread

    def _make(self, studies: list[LiveStudy]) -> None:
        begun = self._clock()
        for study in studies:
            self._made.append((study, study.make_snapshot(self._pause)))
            if self._clock() > begun + BATCH or self._ending:
                break
        self._made_all = len(self._made) == len(studies)
        self._took = self._clock() - begun

    def _pause(self) -> None:
        if self._ending:
            raise InterruptedError("the service ends: a newer snapshot follows")
        let_others_run()

    def _write(self, store: Store) -> None:
        begun = self._clock()
        for study, made in self._made:
            study.keep_snapshot(store, made)
        self._made = []
        took = self._took + self._clock() - begun
        self._next_at = self._clock() + max(
            self._every if self._made_all else 0.0, self._share * took
        )


def _unsaved(studies: Iterable[LiveStudy]) -> list[LiveStudy]:
    """Return the studies that have new decisions, those with the most of them first."""
    found = [study for study in studies if study.unsaved()]
    return sorted(found, key=lambda study: study.unsaved(), reverse=True)
