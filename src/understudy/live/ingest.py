"""Ingestion of events: each is compared with what is known before anything is written.

So it is idempotent: an event that is sent again changes nothing.

In a study with units, the first event of a unit is its decision. Later ones only add their rewards
to it: so many of them as the study declares, while the decision waits.
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
from understudy.live.store.records import (
    LATER,
    LATER_OTHER,
    Changes,
    Decision,
    Rewarded,
    StudyRecord,
)

Status = Literal[
    "accepted", "known", "conflict", "late", "unknown decision", "incomplete", "archived"
]
REASONS: dict[str, str] = {
    "conflict": "this id was sent before, and said something else",
    "late": "its decision has stopped waiting, and counts with the default reward",
    "archived": "this study is archived: it takes rewards of decisions that wait, and no others",
    "unknown decision": "no decision has this id; send the decision first, then its reward",
    "incomplete": "it is the first event of its unit, and so its decision, which needs more",
}
# Values of contexts and of vectors, and characters of texts, that count as one more event: each of
# the three takes about a kilobyte.
VALUES_PER_EVENT, TEXT_PER_EVENT = 16, 1_000
COUNTED = frozenset(REASONS) - {"late"}  # late rewards are counted per decision, in the store


class Outcome(NamedTuple):
    """The result of one event: its status, and the first field that differs, or is missing."""

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
    if spec.context is None and not spec.propensity_vectors:
        return len(events)
    values = len(events) * len(spec.context or ())
    text = 0
    for event in events:  # for a single one, `sum` would take half as long again
        values += len(event.propensity_vector or ())
        for value in (event.context or {}).values():
            if isinstance(value, str):
                text += len(value)
    return len(events) + values // VALUES_PER_EVENT + text // TEXT_PER_EVENT


class KnownStudy(Protocol):
    """A study, as far as events are compared with it.

    `by_id` has the events in memory, `by_unit` their decisions; later events of units have the
    `seq` from `least_seq` up to -1.
    """

    record: StudyRecord
    spec: StudySpec
    state: StudyState
    wait: RewardWait
    next_seq: int
    least_seq: int
    by_id: dict[str, Decision]
    by_unit: dict[str, Decision]


class Found(NamedTuple):
    """What the store has of a group of events: decisions by id and by unit."""

    by_id: Mapping[str, Decision] = {}
    by_unit: Mapping[str, Decision] = {}


class Ingest:
    """One study's part of a group of events that are written together.

    It does not change the study: if the write fails, the group is dropped. `changes` are to be
    written; `updated` holds earlier decisions with the reward that they get here; `known` counts
    events that were sent before, `later` those of units that do not count, and `other` those of
    them with another action.
    """

    def __init__(self, study: KnownStudy, in_store: Found, now: int) -> None:
        self.now = now
        self.next_seq = study.next_seq
        self.least_seq = study.least_seq
        self.later = self.other = 0
        self.changes = Changes(study.record.key)
        self.updated: list[Decision] = []
        self.event_count = 0
        self.known = 0
        self._study = study
        self._spec = study.spec
        self._in_store = in_store
        self._staged: dict[str, Decision] = {}
        self._units: dict[str, Decision] = {}  # decisions that are new in this group
        self._counted: dict[str, int] = {}  # events that count, of units with new ones

    def add(self, events: Sequence[Event]) -> list[Outcome]:
        """Add events to the group; return the outcome of each, in their order."""
        outcomes = [self._outcome(event) for event in events]
        self.event_count += len(outcomes)
        self.known += sum(outcome.status == "known" for outcome in outcomes)
        return outcomes

    def _outcome(self, event: Event) -> Outcome:
        name, in_store = event.id, self._in_store.by_id
        found = self._staged.get(name) or self._study.by_id.get(name) or in_store.get(name)
        difference = "" if found is None else self._contradiction(found, event)
        status = "conflict" if difference else self._status(event, found)
        if status == "incomplete":
            missing = self._spec.missing_of_decision(event).items()
            difference = "; ".join(f"{field}: {said}" for field, said in missing)
        if status in COUNTED:
            self.changes.refused[status] += 1
        return Outcome(name, status, difference)

    def _unit(self, event: Event, found: Decision | None) -> Decision | None:
        """Return the decision of an event's unit, if it is known."""
        name = self._name_of_unit(event) if found is None else found.unit
        if name is None:
            return None
        in_memory = self._units.get(name) or self._study.by_unit.get(name)
        return in_memory or self._in_store.by_unit.get(name)

    def _name_of_unit(self, event: Event) -> str | None:
        return None if event.unit is None else str(event.unit)

    def _contradiction(self, found: Decision, event: Event) -> str:
        """Describe the first field in which an event contradicts a decision; empty if none does."""
        fields: list[tuple[str, object, object]] = []
        if event.action is not None:
            fields = [
                ("action", self._spec.labels.texts[found.action], str(event.action)),
                ("unit", found.unit, self._name_of_unit(event)),
            ]
        if event.action is not None and found.seq > 0:  # later events of a unit need not repeat it
            q, vector = self._spec.propensities(event)
            fields += [
                ("propensity", found.propensity, q),
                ("propensity_vector", found.propensity_vector, vector),
                ("context", found.context, self._spec.context_text(event.context)),
            ]
        if event.reward is not None and found.reward is not None:
            fields.append(("reward", found.reward, event.reward))
        for name, kept, sent in fields:
            if kept != sent and name == "propensity_vector":
                return f"{name}: another one is kept"
            if kept != sent:
                return f"{name}: {shorten(kept)} is kept, {shorten(sent)} was sent"
        return ""

    def _status(self, event: Event, found: Decision | None) -> Status:
        """Return the status of an event that contradicts nothing, after adding what is new."""
        unit = None if self._spec.unit_rows is None else self._unit(event, found)
        if found is None:
            return self._status_of_new(event, unit)
        if event.reward is None or found.reward is not None:
            return "known"
        counts = found.place is None or found.place > LATER
        if counts and self._is_over(found if unit is None else unit):
            self._add_late_reward(found, event.reward)
            return "late"
        self._add_reward(found, event.reward)
        return "accepted"

    def _status_of_new(self, event: Event, unit: Decision | None) -> Status:
        """Add a decision, or a later event of a unit; return the status."""
        if event.action is None:
            return "unknown decision"
        if unit is not None:
            self._add_event(event, unit)
            return "accepted"
        if self._study.record.archived_at is not None:
            return "archived"
        if self._spec.unit_rows is not None and self._spec.missing_of_decision(event):
            return "incomplete"
        self._add_decision(event)
        return "accepted"

    def _is_over(self, decision: Decision) -> bool:
        """Return whether a decision waits no more."""
        processed = decision.seq <= self._study.state.seq
        return processed or self._study.wait.is_over(decision, self.now)

    def _add_decision(self, event: Event) -> None:
        q, vector = self._spec.propensities(event)
        decision = Decision(
            self.next_seq,
            event.id,
            self._spec.action_index[str(event.action)],
            q,
            self._spec.context_text(event.context),
            self.now,
            event.reward,
            None if event.reward is None else self.now,
            None,
            vector,
        )
        self.next_seq += 1
        self._staged[event.id] = decision
        self.changes.decisions.append(decision)
        if (unit := self._name_of_unit(event)) is not None:
            decision.unit, decision.place = unit, 1
            self._units[unit] = decision

    def _add_event(self, event: Event, first: Decision) -> None:
        """Add a later event of a unit."""
        assert first.unit is not None
        counted = self._counted.get(first.unit, 1 + len(first.events))
        if counted < (self._spec.unit_rows or 0) and not self._is_over(first):
            place = self._counted[first.unit] = counted + 1
        else:
            is_other = self._spec.action_index[str(event.action)] != first.action
            place = LATER_OTHER if is_other else LATER
            self.later += 1
            self.other += is_other
        self.least_seq -= 1
        made = Decision(
            self.least_seq,
            event.id,
            self._spec.action_index[str(event.action)],
            None,
            None,
            self.now,
            event.reward,
            None if event.reward is None else self.now,
            unit=first.unit,
            place=place,
        )
        self._staged[event.id] = made
        self.changes.events.append(made)

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
