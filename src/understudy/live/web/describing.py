"""Studies as the service shows them: plain data, made of what they know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from understudy.live.service import Service
from understudy.live.standing import StudyState
from understudy.live.store.records import moment
from understudy.live.study import LiveStudy
from understudy.logs.reporting import as_dict
from understudy.report import CertificateCurve

__all__ = ["certificate_of", "coverage_of", "describe", "policy_of"]

NOTHING = "nothing was learned yet"


def describe(study: LiveStudy, standing: StudyState, now: int) -> dict[str, Any]:
    """A study, and what it has seen; its standing may be another by now."""
    record = study.record
    archived = record.archived_at
    decisions = study.next_seq - 1
    return {
        "study": json.loads(record.spec),
        "created_at": moment(record.created_at).isoformat(),
        "archived_at": None if archived is None else moment(archived).isoformat(),
        "decisions": decisions,
        "folded": standing.seq,
        "learned": standing.learned,
        "waiting": decisions - standing.seq,
        "expired": standing.expired,
        "late": study.seen["late"],
        "known": study.seen["known"],
        "refused": dict(study.refusals()),
        "warmup_left": standing.warmup_left,
        "events_per_second": study.rate.at(now),
        "fault": study.fault,
    }


def policy_of(
    study: LiveStudy, standing: StudyState, context: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """What the understudy would do now."""
    probabilities = standing.probabilities(context)
    labels = study.spec.labels.labels
    return {
        "study": study.spec.name,
        "decisions": study.next_seq - 1,
        "learned": standing.learned,
        "policy": [
            {"action": label, "probability": probability}
            for label, probability in zip(labels, probabilities.tolist(), strict=True)
        ],
    }


def certificate_of(service: Service, study: LiveStudy) -> dict[str, Any]:
    """The verdict, the bounds, and how they came about."""
    standing = study.standing
    learned = standing.report
    found = {"study": study.spec.name, "learned": standing.learned}
    if learned is None:
        nothing = {"promoted_since": None, "certificate": None, "curve": None}
        return {**found, "verdict": "cannot tell", "words": NOTHING, **nothing}
    report = as_dict(learned.report)
    since = service.promoted_since(study, standing)
    curve = learned.report.certificate
    return {
        **found,
        "verdict": report["verdict"],
        "words": report["words"],
        "promoted_since": None if since is None else since.isoformat(),
        "certificate": report["certificate"],
        "curve": None if curve is None else _curve(curve),
    }


def _curve(curve: CertificateCurve) -> dict[str, Any]:
    rounds, lower, upper, production, gain = curve.table.T
    return {
        "rounds": rounds.astype(int).tolist(),
        "lower": lower.tolist(),
        "upper": upper.tolist(),
        "production": production.tolist(),
        "gain": None if curve.gain is None else gain.tolist(),
    }


def coverage_of(study: LiveStudy) -> dict[str, Any]:
    """What the log of a study can say about each action, and about policies."""
    standing = study.standing
    learned = standing.report
    found: dict[str, Any] = {"study": study.spec.name, "learned": standing.learned}
    if learned is None:
        return {**found, "findings": [NOTHING], "actions": [], "candidates": []}
    report = as_dict(learned.report)
    return {
        **found,
        "findings": report["coverage"],
        "actions": report["actions"],
        "candidates": report["candidates"],
    }
