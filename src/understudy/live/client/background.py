"""Feedback that is sent by a thread, so that production does not wait for its understudy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from understudy.errors import UnderstudyError
from understudy.live.client import facts
from understudy.live.client.facts import Context
from understudy.live.client.outbox import Delivery, Outbox

if TYPE_CHECKING:
    from understudy.logs.schema import Label

__all__ = ["Background"]


class Background:
    """Takes events and returns at once; the end of its `with` block sends what is left.

    An event for which there is no room is not taken, and the method says so. Rewards have room
    where decisions have none left, for a decision whose reward is lost counts as the default
    reward. While no service answers, events wait, in their order. `delivery` counts what became of
    them, `trouble` is the last error, and if any did not reach the study `close` raises
    `Undelivered`. `Client.background` gives one.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

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
        return self._outbox.offer(facts.observation(action, reward, propensity, context, id))

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
        return event.id if self._outbox.offer(event) else None

    def reward(self, id: str, reward: float) -> bool:  # noqa: A002 - its name in the event
        """The reward of an earlier decision; False if there is no room."""
        return self._outbox.offer(facts.later_reward(id, reward))

    @property
    def delivery(self) -> Delivery:
        """What became of the events so far."""
        return self._outbox.delivery

    @property
    def trouble(self) -> UnderstudyError | None:
        """The last error of a request, if there was any."""
        return self._outbox.trouble

    def close(self) -> None:
        """Send what is left, and wait for it; `Undelivered` if anything is missing in the end."""
        self._outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
