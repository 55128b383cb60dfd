"""Idempotent ingestion: classifies events against what is known, before anything is written.

`Ingest` changes nothing but itself. If the write fails, nothing has happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from understudy.errors import shorten
from understudy.live.spec import Event, StudySpec
from understudy.live.store.records import Changes, Decision, Rewarded

Status = Literal["accepted", "known", "conflict", "late", "unknown decision", "archived"]
REASONS: dict[str, str] = {
    "conflict": "this id was sent before, and said something else",
    "late": "its decision has stopped waiting, and counts with the default reward",
    "archived": "this study is archived: it takes rewards of decisions that wait, and no others",
    "unknown decision": "no decision has this id; send the decision first, then its reward",
}
COUNTED = frozenset(REASONS) - {"late"}  # late rewards are counted per decision, in the store


class Outcome(NamedTuple):
    """The result of one event: its status, and for a conflict the fields that differ."""

    id: str
    status: Status
    about: str = ""

    @property
    def is_refused(self) -> bool:
        return self.status in REASONS

    @property
    def reason(self) -> str:
        """Why it was refused.

        >>> Outcome("d-1", "conflict", "propensity: 0.5 is kept, 0.4 was sent").reason
        'this id was sent before, and said something else (propensity: 0.5 is kept, 0.4 was sent)'
        """
        return REASONS[self.status] + (f" ({self.about})" if self.about else "")


def is_ready(decision: Decision, spec: StudySpec, now: int) -> bool:
    """Return whether a decision has its reward, or no time left for it.

    >>> spec = StudySpec.of({"name": "a", "actions": [0, 1], "reward_wait": 1.0})
    >>> decision = Decision(1, "x", 0, 0.5, None, decided_at=0)
    >>> is_ready(decision, spec, now=1_000_000), is_ready(decision, spec, now=1_000_001)
    (False, True)
    """
    return decision.reward is not None or now > decision.decided_at + spec.reward_wait_us


@dataclass
class Ingest:
    """One study's part of a group of events that are written together.

    The events may refer to decisions `in_memory` or `in_store`, by id. Decisions up to the `seq`
    `processed` are final. `updated` holds earlier decisions with the reward that they get here.
    A study that is `archived` accepts no new decisions. `known` counts events that were sent
    before.
    """

    spec: StudySpec
    changes: Changes
    in_memory: Mapping[str, Decision]
    in_store: Mapping[str, Decision]
    processed: int
    next_seq: int
    now: int
    archived: bool
    staged: dict[str, Decision] = field(default_factory=dict)
    updated: list[Decision] = field(default_factory=list)
    events: int = 0
    known: int = 0

    def add(self, events: Sequence[Event]) -> list[Outcome]:
        """Add events to the group; return the outcome of each, in their order."""
        outcomes = [self._outcome(event) for event in events]
        self.events += len(outcomes)
        self.known += sum(outcome.status == "known" for outcome in outcomes)
        return outcomes

    def _outcome(self, event: Event) -> Outcome:
        name = event.id
        found = self.staged.get(name) or self.in_memory.get(name) or self.in_store.get(name)
        about = "" if found is None else self._contradiction(found, event)
        status = "conflict" if about else self._status(event, found)
        if status in COUNTED:
            self.changes.refused[status] += 1
        return Outcome(name, status, about)

    def _contradiction(self, found: Decision, event: Event) -> str:
        """Name the first field in which an event contradicts what is stored, if there is one."""
        fields: list[tuple[str, object, object]] = []
        if event.action is not None:
            fields = [
                ("action", self.spec.labels.texts[found.action], str(event.action)),
                ("propensity", found.propensity, event.propensity),
                ("context", found.context, self.spec.context_text(event.context)),
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
            return "archived" if self.archived else self._add_decision(event)
        if event.reward is None or found.reward is not None:
            return "known"
        if found.seq <= self.processed or is_ready(found, self.spec, self.now):
            self._add_late_reward(found, event.reward)
            return "late"
        self._add_reward(found, event.reward)
        return "accepted"

    def _add_decision(self, event: Event) -> Status:
        decision = Decision(
            self.next_seq,
            event.id,
            self.spec.index[str(event.action)],
            event.propensity,
            self.spec.context_text(event.context),
            self.now,
            event.reward,
            None if event.reward is None else self.now,
        )
        self.next_seq += 1
        self.staged[event.id] = decision
        self.changes.decisions.append(decision)
        return "accepted"

    def _add_reward(self, found: Decision, reward: float) -> None:
        rewarded = replace(found, reward=reward, rewarded_at=self.now)
        self.staged[found.id] = rewarded
        first = self.next_seq - len(self.changes.decisions)  # the first `seq` of this group
        if found.seq >= first:
            self.changes.decisions[found.seq - first] = rewarded
        else:
            self.changes.rewards.append(Rewarded(found.seq, reward, self.now))
            self.updated.append(rewarded)

    def _add_late_reward(self, found: Decision, reward: float) -> None:
        if found.late_reward is None:  # a late reward that is sent again counts once
            late = replace(found, late_reward=reward, rewarded_at=self.now)
            self.staged[found.id] = late
            self.updated.append(late)
            self.changes.late.append(Rewarded(found.seq, reward, self.now))
