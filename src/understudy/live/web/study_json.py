"""Studies as JSON: what the API answers about them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from understudy.live.live_study import LiveStudy
from understudy.live.models import ANSWER, CertificateNow, CoverageNow, Curve
from understudy.live.service import Service
from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store.records import moment
from understudy.report import CertificateCurve, as_dict
from understudy.report.details import expert_rows

# The report of a study that has learned nothing yet.
NOTHING: dict[str, Any] = {
    "verdict": "cannot tell",
    "words": "nothing was learned yet",
    "certificate": None,
    "coverage": ["nothing was learned yet"],
    "actions": [],
    "candidates": [],
}


class StudyNow(BaseModel):
    """A study, and the counts of its events.

    `decisions` were accepted; `folded` of them had their turn, `learned` were learned from, and
    `expired` counted with the default reward. `late` rewards came too late, `known` events were
    sent before (since the service started), `refused` by reason.

    With units, a decision is a unit. `expired` are those whose wait was over; `later_events` came
    after those that count; the rewards of `changing_units` are unknown, since their action changed;
    `later_changes` counts later events with another action.

    `contradictions` are decisions whose propensities contradict the declared `least_propensity`.
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
    later_events: int = 0
    changing_units: int = 0
    contradictions: int = 0
    later_changes: int = 0
    fault: str | None = Field(description="why decisions are kept but not learned from, if so")


class Expert(BaseModel):
    """An expert of a mixture: its weight now, and what it would have earned per decision.

    `gain` is that less the reward of production; both are estimates without a guarantee.
    """

    model_config = ANSWER
    name: str
    weight: float
    reward: float
    gain: float


class StudyDetails(StudyNow):
    """A study, the counts of its events, and the experts of its mixture, the heaviest first."""

    experts: list[Expert] = Field([], description="empty without a mixture, or before it learned")


class StudyList(BaseModel):
    """All studies, the oldest first."""

    model_config = ANSWER
    studies: list[StudyNow]


def describe(study: LiveStudy, state: StudyState, now: int) -> StudyNow:
    """A study, and the counts of its events; its state may be another by now."""
    record = study.record
    archived = record.archived_at
    decisions = study.next_seq - 1
    return StudyNow(
        study=study.spec,
        created_at=moment(record.created_at).isoformat(),
        archived_at=isoformat(None if archived is None else moment(archived)),
        decisions=decisions,
        folded=state.seq,
        learned=state.learned,
        waiting=decisions - state.seq,
        expired=state.expired,
        late=study.late,
        known=study.known,
        refused=dict(study.refusals()),
        warmup_left=warmup_left(study, state),
        events_per_second=study.rate.at(now),
        later_events=study.later,
        changing_units=state.changing,
        contradictions=state.contradictions,
        later_changes=study.other,
        fault=study.fault,
    )


def warmup_left(study: LiveStudy, state: StudyState) -> int:
    """How many decisions the warm-up still needs; a stopped study needs none."""
    return state.warmup_left if study.fault is None else 0


def details_of(service: Service, study: LiveStudy) -> StudyDetails:
    """All about a study that its settings, its counts and its experts say."""
    state = study.state
    now = describe(study, state, service.writer.time())
    experts = [] if state.study is None else expert_rows(state.study, study.spec.scale)
    names = Expert.model_fields
    found = [Expert(**{name: getattr(row, name) for name in names}) for row in experts]
    return StudyDetails(**dict(now), experts=found)


def isoformat(time: datetime | None) -> str | None:
    """A time as JSON has it, if there is one."""
    return None if time is None else time.isoformat()


def policy_of(
    study: LiveStudy,
    state: StudyState,
    context: Mapping[str, object] | None = None,
    production: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """What the understudy would do now."""
    probabilities = state.probabilities(context, production)
    labels = study.spec.labels.labels
    return {
        "study": study.spec.name,
        "decisions": study.next_seq - 1,
        "learned": state.learned,
        "warmup_left": warmup_left(study, state),
        "policy": [
            {"action": label, "probability": probability}
            for label, probability in zip(labels, probabilities.tolist(), strict=True)
        ],
    }


def certificate_of(service: Service, study: LiveStudy) -> CertificateNow:
    """The verdict, the bounds, and how they came about."""
    state = study.state
    curve = None if state.result is None else state.result.report.certificate
    return CertificateNow(
        **_report(state),
        study=study.spec.name,
        learned=state.learned,
        promoted_since=isoformat(service.promoted_since(study, state)),
        curve=None if curve is None else _curve(curve),
    )


def coverage_of(study: LiveStudy) -> CoverageNow:
    """What the log of a study can say about each action, and about policies."""
    state = study.state
    found = _report(state)
    return CoverageNow(
        **found, study=study.spec.name, learned=state.learned, findings=found["coverage"]
    )


def _report(state: StudyState) -> dict[str, Any]:
    return NOTHING if state.result is None else as_dict(state.result.report)


def _curve(curve: CertificateCurve) -> Curve:
    names = ("rounds", "lower", "upper", "production", "gain")
    found = dict(zip(names, curve.table.T.tolist(), strict=True))
    return Curve(**found if curve.gain is not None else {**found, "gain": None})
