"""Ingestion of events: each is compared with what is known before anything is written.

So it is idempotent: an event that is sent again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, Protocol

from understudy.errors import shorten
from understudy.live.clock import RewardWait
from understudy.live.models import Event
from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store.records import Changes, Decision, Rewarded, StudyRecord

Status = Literal["accepted", "known", "conflict", "late", "unknown decision", "archived"]
REASONS: dict[str, str] = {
    "conflict": "this id was sent before, and said something else",
    "late": "its decision has stopped waiting, and counts with the default reward",
    "archived": "this study is archived: it takes rewards of decisions that wait, and no others",
    "unknown decision": "no decision has this id; send the decision first, then its reward",
}
# Values of contexts, and characters of their texts, that count as one more event: each of the three
# takes about a kilobyte.
VALUES_PER_EVENT, TEXT_PER_EVENT = 16, 1_000
COUNTED = frozenset(REASONS) - {"late"}  # late rewards are counted per decision, in the store


class Outcome(NamedTuple):
    """The result of one event: its status, and for a conflict the first field that differs."""

    id: str
    status: Status
    difference: str = ""

    @property
    def is_refused(self) -> bool:
        return self.status in REASONS

    @property
    def reason(self) -> str:
        """Why it was refused."""
        return REASONS[self.status] + (f" ({self.difference})" if self.difference else "")


def weight(spec: StudySpec, events: Sequence[Event]) -> int:
    """Return how many events without contexts would take as much memory as these.

    >>> spec = StudySpec.of({"name": "a", "actions": [0, 1], "context": {"x": "text"}})
    >>> event = Event(id="d1", action=0, propensity=0.5, context={"x": "long " * 200})
    >>> weight(spec, [event]), weight(spec, [event] * 10), weight(spec, [Event(id="d1", reward=1)])
    (2, 20, 1)
    """
    if spec.context is None:
        return len(events)
    values = len(events) * len(spec.context)
    text = 0
    for event in events:  # for a single one, `sum` would take half as long again
        for value in (event.context or {}).values():
            if isinstance(value, str):
                text += len(value)
    return len(events) + values // VALUES_PER_EVENT + text // TEXT_PER_EVENT


class KnownStudy(Protocol):
    """A study, as far as events are compared with it; `by_id` has its decisions in memory."""

    record: StudyRecord
    spec: StudySpec
    state: StudyState
    wait: RewardWait
    next_seq: int
    by_id: dict[str, Decision]


class Ingest:
    """One study's part of a group of events that are written together.

    It does not change the study: if the write fails, the group is dropped. `changes` are to be
    written; `updated` holds earlier decisions with the reward that they get here; `known` counts
    events that were sent before.
    """

    def __init__(self, study: KnownStudy, in_store: Mapping[str, Decision], now: int) -> None:
        self.now = now
        self.next_seq = study.next_seq
        self.changes = Changes(study.record.key)
        self.updated: list[Decision] = []
        self.event_count = 0
        self.known = 0
        self._study = study
        self._spec = study.spec
        self._in_store = in_store
        self._staged: dict[str, Decision] = {}

    def add(self, events: Sequence[Event]) -> list[Outcome]:
        """Add events to the group; return the outcome of each, in their order."""
        outcomes = [self._outcome(event) for event in events]
        self.event_count += len(outcomes)
        self.known += sum(outcome.status == "known" for outcome in outcomes)
        return outcomes

    def _outcome(self, event: Event) -> Outcome:
        name = event.id
        found = self._staged.get(name) or self._study.by_id.get(name) or self._in_store.get(name)
        difference = "" if found is None else self._contradiction(found, event)
        status = "conflict" if difference else self._status(event, found)
        if status in COUNTED:
            self.changes.refused[status] += 1
        return Outcome(name, status, difference)

    def _contradiction(self, found: Decision, event: Event) -> str:
        """Describe the first field in which an event contradicts a decision; empty if none does."""
        fields: list[tuple[str, object, object]] = []
        if event.action is not None:
            fields = [
                ("action", self._spec.labels.texts[found.action], str(event.action)),
                ("propensity", found.propensity, event.propensity),
                ("context", found.context, self._spec.context_text(event.context)),
            ]
        if event.reward is not None and found.reward is not None:
            fields.append(("reward", found.reward, event.reward))
        for name, kept, sent in fields:
            if kept != sent:
                return f"{name}: {shorten(kept)} is kept, {shorten(sent)} was sent"
        return ""

    def _status(self, event: Event, found: Decision | None) -> Status:
        """Return the status of an event that contradicts nothing, after adding what is new."""
        if found is None:
            if event.action is None:
                return "unknown decision"
            if self._study.record.archived_at is not None:
                return "archived"
            self._add_decision(event)
            return "accepted"
        if event.reward is None or found.reward is not None:
            return "known"
        if found.seq <= self._study.state.seq or self._study.wait.is_over(found, self.now):
            self._add_late_reward(found, event.reward)
            return "late"
        self._add_reward(found, event.reward)
        return "accepted"

    def _add_decision(self, event: Event) -> None:
        decision = Decision(
            self.next_seq,
            event.id,
            self._spec.action_index[str(event.action)],
            event.propensity,
            self._spec.context_text(event.context),
            self.now,
            event.reward,
            None if event.reward is None else self.now,
        )
        self.next_seq += 1
        self._staged[event.id] = decision
        self.changes.decisions.append(decision)

    def _add_reward(self, found: Decision, reward: float) -> None:
        rewarded = replace(found, reward=reward, rewarded_at=self.now)
        self._staged[found.id] = rewarded
        first = self.next_seq - len(self.changes.decisions)  # the first `seq` of this group
        if found.seq >= first:
            self.changes.decisions[found.seq - first] = rewarded
        else:
            self.changes.rewards.append(Rewarded(found.seq, reward, self.now))
            self.updated.append(rewarded)

    def _add_late_reward(self, found: Decision, reward: float) -> None:
        if found.late_reward is None:  # a late reward that is sent again counts once
            late = replace(found, late_reward=reward, rewarded_at=self.now)
            self._staged[found.id] = late
            self.updated.append(late)
            self.changes.late.append(Rewarded(found.seq, reward, self.now))
