"""Events that a thread sends in the background: production does not wait for the service."""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from threading import Condition, Thread
from typing import Self

from understudy.constraints import COUNT
from understudy.errors import Refused, ServiceUnavailable, Undelivered
from understudy.live.client.calls import EventMethods, OutgoingEvent, named
from understudy.live.models import MOST_EVENTS, BatchTaken

LATE = "late"
PAUSE = 1.0  # seconds between rounds of tries
REFUSED_PAUSE = 10.0  # a refusal is one try; ten wrong tokens a minute would block the address


@dataclass(frozen=True)
class Delivery:
    """What became of the events; rewards that came `late` are known to the service as such."""

    taken: int = 0
    late: int = 0
    refused: int = 0
    dropped: int = 0
    unsent: int = 0

    def missing(self) -> str:
        """Say which events did not reach the study; empty if all did.

        >>> Delivery(taken=7, dropped=2, unsent=1).missing()
        '2 found no room (pass a larger most), 1 could not be sent'
        """
        parts = {
            "found no room (pass a larger most)": self.dropped,
            "were refused": self.refused,
            "could not be sent": self.unsent,
        }
        return ", ".join(f"{number} {what}" for what, number in parts.items() if number)


class Background(EventMethods[bool, str | None]):
    """Takes events and returns at once; the end of its `with` block sends the rest.

    Decisions are accepted while fewer than `most` events wait, rewards while fewer than 2 × `most`
    do, because a lost reward counts as the default reward. If an event is not accepted, `decide`
    returns None, `observe` and `reward` return False. Events wait in their order while no service
    answers, and while it refuses requests for a reason that is not in the events. `delivery` counts
    what became of them, `trouble` is the last error, and `close` raises `Undelivered` if any did
    not reach the study. If the thread ends before `close`, because the client was closed, no event
    is accepted. `Client.background` returns one.
    """

    delivery: Delivery
    trouble: Exception | None

    def __init__(self, send: Callable[[Sequence[OutgoingEvent]], BatchTaken], most: int) -> None:
        self._send, self._most, self._size = send, COUNT("most", most), MOST_EVENTS
        self.delivery, self.trouble = Delivery(), None
        self._waiting: deque[OutgoingEvent] = deque()
        self._changed, self._closing, self._ended = Condition(), False, False
        self._thread = Thread(target=self._work, name="understudy background", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Send the rest, and wait for it; `Undelivered` if any event is missing in the end."""
        atexit.unregister(self.close)
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        if missing := self.delivery.missing():
            last = "" if self.trouble is None else f"; the last error: {named(self.trouble)}"
            raise Undelivered(f"not all events reached the study: {missing}{last}")

    def _take(self, event: OutgoingEvent) -> bool:
        with self._changed:
            if self._closing or self._ended:
                self._count(unsent=1)
                return False
            if len(self._waiting) >= (self._most if event.opens else 2 * self._most):
                self._count(dropped=1)
                return False
            self._waiting.append(event)
            self._changed.notify_all()
            return True

    def _take_decision(self, event: OutgoingEvent) -> str | None:
        return event.id if self._take(event) else None

    def _work(self) -> None:
        try:
            self._deliver()
        except Exception as error:  # of a client that was closed, or of a foreign transport
            self.trouble = error
            raise
        finally:
            with self._changed:
                self._ended = True
                self._count(unsent=len(self._waiting))

    def _deliver(self) -> None:
        """Send batches until the end; only an answer about the events removes them."""
        while batch := self._next():
            last_time = self._closing
            try:
                taken = self._send(batch)
            except (Refused, ServiceUnavailable) as error:
                self.trouble = error
                match error:
                    case Refused(status=413 | 422) if len(batch) > 1:  # for its size, or one event
                        self._size = len(batch) // 2
                    case Refused(status=409 | 413 | 422):
                        self._done(batch, refused=len(batch))
                    case _ if last_time:
                        return
                    case _:  # a token, a path, a proxy; 400 too, as every event is valid JSON
                        self._pause(REFUSED_PAUSE if isinstance(error, Refused) else PAUSE)
            else:
                self._size = min(2 * self._size, MOST_EVENTS)
                self._sort(batch, taken)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)

    def _next(self) -> list[OutgoingEvent]:
        """Wait for a batch and return it, empty at the end; it stays queued until it is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return list(islice(self._waiting, self._size))

    def _sort(self, batch: list[OutgoingEvent], taken: BatchTaken) -> None:
        refused = [one for one in taken.refused if one.error != LATE]
        for one in refused:
            self.trouble = Refused(409, one.error, f"{one.message} (id {one.id})")
        late = len(taken.refused) - len(refused)
        self._done(batch, taken=taken.accepted + taken.known, late=late, refused=len(refused))

    def _done(self, batch: list[OutgoingEvent], **became: int) -> None:
        with self._changed:
            for _ in batch:
                self._waiting.popleft()
            self._count(**became)

    def _count(self, **more: int) -> None:
        with self._changed:
            sums = {name: getattr(self.delivery, name) + number for name, number in more.items()}
            self.delivery = replace(self.delivery, **sums)
