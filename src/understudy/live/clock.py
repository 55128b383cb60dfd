"""The clock of the service, and the waits for rewards that it measures.

Which decisions are processed, and with which reward, depends on the store alone: on the rewards in
it, on the clock that is written with every change, and on the outages that are written with the
clock. So a wait that is over stays over, whatever the machine's clock says after a restart.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from typing import NamedTuple, Protocol

import numpy as np

from understudy.errors import InvalidArgument, StoreUnavailable
from understudy.live.spec import SECOND, StudySpec
from understudy.live.store.records import Decision, Outage, StudyRecord
from understudy.live.store.sql import BATCH, Reader, Store

MICROSECOND = 1_000  # nanoseconds
# Seconds until clients are back after an outage, and have sent the rewards that they kept: ours
# waits at most 10 between two tries.
RETURN = 15
# Microseconds without a turn of the writer that are an outage: turns are a twentieth of a second
# apart, and a healthy disk writes in a few milliseconds.
PAUSE = 2 * SECOND
# Microseconds between two writes of the clock while decisions wait: after a crash, so much time is
# taken for an outage at most; and a commit every five seconds costs nothing.
BEAT = 5 * SECOND
# Seconds: a mistaken time zone or daylight saving sets a clock an hour wrong, and a kept clock that
# is less ahead is overtaken soon.
FAR_AHEAD = 3600
LATEST = 221_845_392_000 * SECOND  # the year 9000: the times of Python end in 9999, and waits add

Microseconds = Callable[[], int]


def machine_time() -> int:
    """Return the machine's clock: microseconds since 1970."""
    return time.time_ns() // MICROSECOND


def elapsed_time() -> int:
    """Return microseconds since some moment; on Linux they go on while the machine sleeps."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // MICROSECOND
    return time.monotonic_ns() // MICROSECOND


def shown(at: int) -> str:
    """Return a stored time as text, also one that no calendar has.

    >>> shown(1_800_000_000_000_000), shown(2**63 - 1)
    ('2027-01-15T08:00:00Z', '294247-01-10T04:00:54Z')
    """
    return f"{np.datetime64(at // SECOND, 's')}Z"


class ServiceClock:
    """Microseconds since 1970, which never go back and never jump while the process runs.

    It begins with the machine's clock, or with the store's if that is ahead. From then on it counts
    elapsed time: if the machine's clock is set, that matters at the next start only.

    >>> machine, elapsed = iter([70, 20]), iter([0, 5, 5, 5, 6, 6])
    >>> clock = ServiceClock(lambda: next(machine), lambda: next(elapsed))
    >>> clock.now()
    75
    >>> clock.not_before(90)
    >>> clock.now(), clock.ahead()
    (91, 71)
    """

    def __init__(
        self, machine: Microseconds = machine_time, elapsed: Microseconds = elapsed_time
    ) -> None:
        self._machine, self._elapsed = machine, elapsed
        self._offset = machine() - elapsed()

    def now(self) -> int:
        """Return the time."""
        return self._offset + self._elapsed()

    def not_before(self, kept: int) -> None:
        """Go on from a time that was written to the store, if that is later."""
        if self.now() < kept:
            self._offset = kept - self._elapsed()

    def ahead(self) -> int:
        """Return by how much it is ahead of the machine's clock; negative if it is behind."""
        return self.now() - self._machine()


class Outages:
    """Intervals in which clients could not deliver rewards: in order, without overlaps.

    >>> outages = Outages([Outage(10, 20), Outage(50, 90)])
    >>> [outages.served(time) for time in (5, 10, 15, 20, 50, 60, 100)]
    [5, 10, 10, 10, 40, 40, 50]
    """

    def __init__(self, found: Sequence[Outage] = ()) -> None:
        self.found = tuple(found)
        self._begun = [outage.begun for outage in self.found]
        lengths = (outage.ended - outage.begun for outage in self.found)
        self._total = [0, *accumulate(lengths)]  # before each of them, and after the last

    def served(self, until: int) -> int:
        """Return the time without outages up to a time; it never falls."""
        count = bisect_right(self._begun, until)
        if count == 0:
            return until
        unfinished = max(0, self.found[count - 1].ended - until)
        return until - self._total[count] + unfinished

    def after(self, since: int) -> int:
        """Return how long all outages after a time last."""
        return self._total[-1] - (since - self.served(since))

    def next(self, begun: int, ended: int) -> Outage | None:
        """Return the part of an interval after the last known outage; None if nothing is left."""
        begun = max(begun, self.found[-1].ended) if self.found else begun
        return Outage(begun, ended) if begun < ended else None

    def __add__(self, outage: Outage) -> Outages:
        return Outages((*self.found, outage))


@dataclass(frozen=True)
class RewardWait:
    """The wait of a study's decisions for their rewards: `length` microseconds without outages.

    Decisions up to `closed` wait no more, whatever the clock says: it was set back since. With
    units, a decision waits for the rewards of so many `events` of its unit, from its own on.

    >>> wait = RewardWait(10, Outages([Outage(105, 205)]))
    >>> decision = Decision(1, "a", 0, 0.5, None, decided_at=100)
    >>> wait.is_over(decision, clock=210), wait.is_over(decision, clock=211)
    (False, True)
    >>> wait.deadline(decision)
    211
    """

    length: int
    outages: Outages
    closed: int = 0
    events: int = 1

    def is_ready(self, decision: Decision, clock: int) -> bool:
        """Return whether a decision has all rewards, or its wait is over."""
        return decision.is_rewarded(self.events) or self.is_over(decision, clock)

    def is_over(self, decision: Decision, clock: int) -> bool:
        """Return whether a wait is over.

        Waits end in the order of decisions: `served` never falls, and so the wait that began first
        is the longest.
        """
        if decision.seq <= self.closed:
            return True
        since = decision.decided_at
        return clock - since > self.length and self.waited(since, clock) > self.length

    def waited(self, since: int, until: int) -> int:
        """Return the time between two times, without outages."""
        return self.outages.served(until) - self.outages.served(since)

    def deadline(self, decision: Decision) -> int:
        """Return the first time at which a wait is over that is not over yet."""
        since = decision.decided_at
        return since + self.length + self.outages.after(since) + 1


class WaitingStudy(Protocol):
    """A study, as far as its decisions wait; `fault` is not None if it has stopped learning."""

    wait: RewardWait
    fault: str | None

    @property
    def has_waiting(self) -> bool:
        """Whether a decision waits for its reward, or for its turn."""

    def expires_between(self, kept: int, now: int) -> bool:
        """Return whether the wait of the oldest decision ends between two times."""


class StoreClock:
    """The service's clock as the store keeps it, and the outages; for the writer's thread.

    `kept` is a time on disk, and `seen` the time of the last turn, None if the store was opened
    since.
    """

    def __init__(self, running: ServiceClock) -> None:
        self.running = running
        self.outages = Outages()
        self.kept = 0
        self.seen: int | None = None

    def load(self, store: Reader) -> None:
        """Go on from the store, which was just opened."""
        kept = store.clock()
        if kept > LATEST:
            raise StoreUnavailable("its clock is after the year 9000: understudy clock --set-back")
        self.kept = kept
        self.running.not_before(self.kept)
        self.outages = Outages(store.outages())
        self.seen = None

    def now(self, store: Store, studies: Collection[WaitingStudy]) -> int:
        """Return the time for a write, after noting an outage before it."""
        now = self.running.now()
        if self.seen is None or now > self.seen + PAUSE:
            self._note_outage(store, studies, now)
        self.seen = now
        return now

    def _note_outage(self, store: Store, studies: Collection[WaitingStudy], now: int) -> None:
        """Write an outage that ends now, if decisions waited.

        It begins at or after `kept`, so it prolongs no wait that was over.
        """
        begun = self.kept if self.seen is None else self.seen
        outage = self.outages.next(begun, now + RETURN * SECOND)
        if outage is None or not any(study.has_waiting for study in studies):
            return
        store.write_clock(now, outage)
        self.kept = now
        self.outages = self.outages + outage
        for study in studies:
            study.wait = replace(study.wait, outages=self.outages)

    def beat(self, store: Store, studies: Collection[WaitingStudy]) -> None:
        """Write the time while decisions wait: every few seconds, and when a wait is over.

        A study that has stopped learning needs neither: none of its decisions is processed. It
        still takes rewards, so outages are written for it too.
        """
        now = self.now(store, studies)
        learning = [study for study in studies if study.fault is None]
        due = any(study.expires_between(self.kept, now) for study in learning)
        if due or (now >= self.kept + BEAT and any(study.has_waiting for study in learning)):
            store.write_clock(now)
            self.kept = now


def reward_wait(store: Reader, record: StudyRecord, spec: StudySpec) -> RewardWait:
    """Return the wait of a study, as the store knows it."""
    outages, closed = Outages(store.outages()), store.closed_seq(record.key)
    return RewardWait(spec.reward_wait_us, outages, closed, spec.unit_rows or 1)


class Clocks(NamedTuple):
    """The clock that a store keeps, and the machine's: microseconds since 1970."""

    kept: int
    machine: int

    @property
    def ahead(self) -> float:
        """Seconds by which the store's clock is ahead."""
        return (self.kept - self.machine) / SECOND


def set_back(store: Store, machine: int) -> None:
    """Set the clock of an open store back to the machine's.

    Later times become that time, so decisions stay in their order, and those that wait begin their
    wait again. A wait that is over stays over.
    """
    clocks = Clocks(store.clock(), machine)
    if clocks.ahead <= 0:
        raise InvalidArgument(
            "clock",
            f"{-clocks.ahead:.0f} s behind the machine's",
            "it can only be set back",
            "leave it as it is: the service goes on with the machine's clock",
        )
    closed = {record.key: _last_ready(store, record, clocks.kept) for record in store.studies()}
    store.set_back(machine, closed)


def _last_ready(store: Reader, record: StudyRecord, clock: int) -> int:
    """Return the `seq` before the first decision of a study that waits; all before it are ready."""
    spec = StudySpec.model_validate_json(record.spec)
    wait = reward_wait(store, record, spec)
    snapshot = store.snapshot(record.key)
    last = 0 if snapshot is None else snapshot.seq  # 0.5.0 did not write every time it went by
    for decisions in store.batches(record.key, after=last, most=spec.rows_at_a_time(BATCH)):
        ready = list(takewhile(lambda decision: wait.is_ready(decision, clock), decisions))
        last += len(ready)
        if len(ready) < len(decisions):
            break
    return last
