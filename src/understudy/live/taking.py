"""Events against what is known: what is new, what was said before, and what cannot be taken.

All is decided before anything is written, and nothing here changes what is known: if the write
fails, nothing has happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from understudy.errors import shorten
from understudy.live.spec import Event, StudySpec
from understudy.live.store.records import Changes, Decision, Rewarded

__all__ = ["REASONS", "Ingest", "Outcome", "is_ready"]

Status = Literal["accepted", "known", "conflict", "late", "unknown decision", "archived"]
REASONS: dict[str, str] = {
    "conflict": "this id was sent before, and said something else",
    "late": "its decision has stopped waiting, and counts with the default reward",
    "archived": "this study is archived: it takes rewards of decisions that wait, and no others",
    "unknown decision": "no decision has this id; send the decision first, then its reward",
}
COUNTED = frozenset(REASONS) - {"late"}  # which is counted by decision, however often it is sent


class Outcome(NamedTuple):
    """What became of an event."""

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
    """Whether a decision may be folded, if all earlier ones are: a reward, or no time left for it.

    >>> spec = StudySpec.of({"name": "a", "actions": [0, 1], "reward_wait": 1.0})
    >>> decision = Decision(1, "x", 0, 0.5, None, decided_at=0)
    >>> is_ready(decision, spec, now=1_000_000), is_ready(decision, spec, now=1_000_001)
    (False, True)
    """
    return decision.reward is not None or now > decision.decided_at + spec.wait


@dataclass
class Ingest:
    """One study's part of a group of events that are written together.

    `known` are the decisions that the events may be about, by id; `folded` the `seq` up to which
    nothing can change any more. `touched` are decisions whose reward has come, as they will be.
    A study that is `archived` takes no new decisions.
    """

    spec: StudySpec
    changes: Changes
    known: Mapping[str, Decision]
    folded: int
    next_seq: int
    now: int
    archived: bool = False
    staged: dict[str, Decision] = field(default_factory=dict)
    touched: list[Decision] = field(default_factory=list)

    def take(self, events: Sequence[Event]) -> list[Outcome]:
        """What becomes of each event, in their order."""
        return [self._outcome(event) for event in events]

    def _outcome(self, event: Event) -> Outcome:
        found = self.staged.get(event.id) or self.known.get(event.id)
        status = self._take(event, found)
        if found is None or status != "conflict":
            return Outcome(event.id, status)
        return Outcome(event.id, status, self._contradiction(found, event))

    def _take(self, event: Event, found: Decision | None) -> Status:
        if event.action is None:
            status = "unknown decision" if found is None else self._reward(found, event.reward)
        elif found is None:
            status = "archived" if self.archived else self._decide(event)
        elif not self._same(found, event):
            status = "conflict"
        else:
            status = "known" if event.reward is None else self._reward(found, event.reward)
        if status in COUNTED:
            self.changes.refused[status] += 1
        return status

    def _decide(self, event: Event) -> Status:
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

    def _same(self, found: Decision, event: Event) -> bool:
        return (
            found.action == self.spec.index[str(event.action)]
            and found.propensity == event.propensity
            and found.context == self.spec.context_text(event.context)
        )

    def _contradiction(self, found: Decision, event: Event) -> str:
        """What is known, and what was sent, of the first field in which they differ."""
        pairs: list[tuple[str, object, object]] = []
        if event.action is not None:
            pairs = [
                ("action", self.spec.labels.texts[found.action], str(event.action)),
                ("propensity", found.propensity, event.propensity),
                ("context", found.context, self.spec.context_text(event.context)),
            ]
        pairs.append(("reward", found.reward, event.reward))
        name, kept, sent = next(pair for pair in pairs if pair[1] != pair[2])
        return f"{name}: {shorten(kept)} is kept, {shorten(sent)} was sent"

    def _reward(self, found: Decision, reward: float | None) -> Status:
        assert reward is not None  # an event says something: an action, or a reward
        if found.reward is not None:
            return "known" if found.reward == reward else "conflict"
        if found.seq <= self.folded or self.now > found.decided_at + self.spec.wait:
            self._late(found, reward)
            return "late"
        rewarded = replace(found, reward=reward, rewarded_at=self.now)
        self.staged[found.id] = rewarded
        if found.seq > self.changes_begin:
            self.changes.decisions[found.seq - self.changes_begin - 1] = rewarded
        else:
            self.changes.rewards.append(Rewarded(found.seq, reward, self.now))
            self.touched.append(rewarded)
        return "accepted"

    @property
    def changes_begin(self) -> int:
        """The last `seq` before those of this group."""
        return self.next_seq - 1 - len(self.changes.decisions)

    def _late(self, found: Decision, reward: float) -> None:
        if found.late_reward is None:  # it counts once, however often it is sent
            kept = replace(found, late_reward=reward, rewarded_at=self.now)
            self.staged[found.id] = kept
            self.touched.append(kept)
            self.changes.late.append(Rewarded(found.seq, reward, self.now))
