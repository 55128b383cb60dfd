"""Events that are sent by a thread, so that production does not wait for its understudy."""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from threading import Condition, Thread
from typing import TYPE_CHECKING, Self

from understudy.constraints import COUNT
from understudy.errors import Refused, ServiceUnavailable, Undelivered, UnderstudyError
from understudy.live import facts
from understudy.live.facts import LARGEST_BATCH, Context, Event
from understudy.live.taken import BatchTaken

if TYPE_CHECKING:
    from understudy.logs.actions import Label

__all__ = ["Background", "Delivery"]

SMALLER_MAY_DO = {413, 422}  # refused whole, because of its size or of one event
PAUSE = 1.0  # seconds between rounds of tries


@dataclass(frozen=True)
class Delivery:
    """What became of the events; printed, it says which are missing, and why."""

    taken: int = 0
    refused: int = 0
    dropped: int = 0
    unsent: int = 0

    @property
    def lost(self) -> int:
        """How many did not reach the study."""
        return self.refused + self.dropped + self.unsent

    def __str__(self) -> str:
        parts = {
            "found no room (pass a larger most)": self.dropped,
            "were refused": self.refused,
            "could not be sent": self.unsent,
        }
        return ", ".join(f"{number} {what}" for what, number in parts.items() if number)


class Background:
    """Takes events and returns at once; the end of its `with` block sends what is left.

    An event for which there is no room is not taken, and the method says so. Rewards have room
    where decisions have none left, for a decision whose reward is lost counts as the default
    reward. While no service answers, events wait, in their order. If any did not reach the study,
    `close` raises `Undelivered`; `delivery` counts and `trouble` names the last error before that.
    """

    def __init__(self, send: Callable[[Sequence[Event]], BatchTaken], most: int) -> None:
        self._send, self._most, self._size = send, COUNT("most", most), LARGEST_BATCH
        self.delivery = Delivery()
        self.trouble: UnderstudyError | None = None
        self._waiting: deque[Event] = deque()
        self._changed, self._closing = Condition(), False
        self._thread = Thread(target=self._work, name="understudy events", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def observe(
        self,
        action: Label,
        reward: float,
        *,
        propensity: float | None = None,
        context: Context | None = None,
        id: str | None = None,  # noqa: A002 - its name in the event
    ) -> bool:
        """A decision and its reward; False if there is no room."""
        return self._offer(facts.observation(action, reward, propensity, context, id))

    def decide(
        self,
        action: Label,
        *,
        propensity: float | None = None,
        context: Context | None = None,
        id: str | None = None,  # noqa: A002 - its name in the event
    ) -> str | None:
        """A decision; gives the id that its reward must name, or None if there is no room."""
        event = facts.decision(action, propensity, context, id)
        return event.id if self._offer(event) else None

    def reward(self, id: str, reward: float) -> bool:  # noqa: A002 - its name in the event
        """The reward of an earlier decision; False if there is no room."""
        return self._offer(facts.later_reward(id, reward))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Send what is left, and wait for it; `Undelivered` if anything is missing in the end."""
        atexit.unregister(self.close)
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._count(unsent=len(self._waiting))
        if self.delivery.lost:
            raise Undelivered(self._explained()) from self.trouble

    def _offer(self, event: Event) -> bool:
        with self._changed:
            room = self._most if event.opens else 2 * self._most
            taken = not self._closing and len(self._waiting) < room
            if taken:
                self._waiting.append(event)
                self._changed.notify_all()
            else:
                self._count(dropped=1)
        return taken

    def _work(self) -> None:
        while batch := self._next():
            last = self._closing
            try:
                taken = self._send(batch)
            except ServiceUnavailable as error:
                self.trouble = error
                if last:
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, PAUSE)
            except Refused as error:
                self.trouble = error
                if len(batch) > 1 and error.status in SMALLER_MAY_DO:
                    self._size = len(batch) // 2
                else:
                    self._done(batch, taken=0, refused=len(batch))
            else:
                for one in taken.refused:
                    self.trouble = Refused(409, one.error, f"{one.message} (id {one.id})")
                self._size = min(2 * self._size, LARGEST_BATCH)
                self._done(batch, taken.accepted + taken.known, len(taken.refused))

    def _next(self) -> list[Event]:
        """What to send now, or nothing if that is all; it goes on waiting until it is done with."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return list(islice(self._waiting, self._size))

    def _done(self, batch: list[Event], taken: int, refused: int) -> None:
        with self._changed:
            for _ in batch:
                self._waiting.popleft()
            self._count(taken=taken, refused=refused)

    def _count(self, **more: int) -> None:
        with self._changed:
            so_far = self.delivery
            sums = {name: getattr(so_far, name) + number for name, number in more.items()}
            self.delivery = replace(so_far, **sums)

    def _explained(self) -> str:
        of = f"{self.delivery.lost} of {self.delivery.lost + self.delivery.taken} events"
        last = "" if self.trouble is None else f"; the last error: {self.trouble}"
        return f"{of} did not reach the study: {self.delivery}{last}"
