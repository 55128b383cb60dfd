"""The bodies of requests and responses, from which the OpenAPI document is made.

A component of that document is named by its title and `__qualname__`, which are part of the API:
they stay where a class has another name.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from understudy.live.models import STRICT, Action, Context, Event, Id
from understudy.live.spec import StudySpec

MOST_EVENTS = 1_000
ANSWER = ConfigDict(extra="forbid")


class Batch(BaseModel):
    """Several events at once. If one of them is malformed, none is taken."""

    model_config = STRICT
    events: list[Event] = Field(min_length=1, max_length=MOST_EVENTS)


class Draw(BaseModel):
    """What an action is to be drawn for."""

    model_config = STRICT
    context: Context | None = Field(None, description="needed where the study has contexts")


class EventResult(BaseModel):
    """What became of an event that is on disk now."""

    model_config = ConfigDict(extra="forbid", title="Taken")
    __qualname__ = "Taken"
    id: Id
    status: Literal["accepted", "known"]


class EventRefusal(BaseModel):
    """An event of a batch that was not taken."""

    model_config = ConfigDict(extra="forbid", title="Refused")
    __qualname__ = "Refused"
    index: int
    id: Id
    error: str
    message: str


class BatchResult(BaseModel):
    """What became of the events of a batch."""

    model_config = ConfigDict(extra="forbid", title="BatchTaken")
    __qualname__ = "BatchTaken"
    accepted: int
    known: int
    refused: list[EventRefusal]


class StudyNow(BaseModel):
    """A study, and what it has seen.

    `decisions` were accepted; `folded` of them had their turn, `learned` were learned from, and
    `expired` counted with the default reward. `late` rewards came too late, `known` events were
    sent before (since the service started), `refused` by reason.
    """

    model_config = ANSWER
    study: StudySpec
    created_at: str
    archived_at: str | None
    decisions: int
    folded: int
    learned: int
    waiting: int
    expired: int
    late: int
    known: int
    refused: dict[str, int]
    warmup_left: int
    events_per_second: float
    fault: str | None = Field(description="why decisions are kept but not learned from, if so")


class StudyList(BaseModel):
    """All studies, the oldest first."""

    model_config = ANSWER
    studies: list[StudyNow]


class ActionNow(BaseModel):
    """An action and its probability."""

    model_config = ANSWER
    action: Action
    probability: float


class PolicyNow(BaseModel):
    """What the understudy would do now."""

    model_config = ANSWER
    study: str
    decisions: int
    learned: int
    policy: list[ActionNow]


class DrawResult(BaseModel):
    """An action that was drawn from the policy; nothing is written."""

    model_config = ConfigDict(extra="forbid", title="Drawn")
    __qualname__ = "Drawn"
    action: Action
    probability: float
    learned: int


class CurveTable(BaseModel):
    """Means a round, after each of some rounds."""

    model_config = ConfigDict(extra="forbid", title="Curve")
    __qualname__ = "Curve"
    rounds: list[int]
    lower: list[float]
    upper: list[float]
    production: list[float]
    gain: list[float] | None


class CertificateNow(BaseModel):
    """What can be said about the understudy against production, and the bounds that say it."""

    model_config = ANSWER
    study: str
    learned: int
    verdict: str
    words: str
    promoted_since: str | None
    certificate: dict[str, Any] | None
    curve: CurveTable | None


class CoverageNow(BaseModel):
    """What the log of a study can say about each action, and about policies."""

    model_config = ANSWER
    study: str
    learned: int
    findings: list[str]
    actions: list[dict[str, Any]]
    candidates: list[dict[str, Any]]
