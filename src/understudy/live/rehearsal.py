"""What takes long the first time is done before anybody waits for it."""

from __future__ import annotations

import json
from typing import Any

from understudy.live.spec import StudySpec
from understudy.live.standing import StudyState
from understudy.live.store.records import Decision

__all__ = ["rehearse"]

KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"behavior": "estimated"},
    {"context": {"x": "number"}, "warmup": 10},
)
ROWS = 12


def rehearse() -> None:
    """Fold some decisions of each kind of study, so that what learns is compiled.

    On a new installation that takes some seconds, for which no event should have to wait;
    afterwards, a moment.

    >>> rehearse()
    """
    for kind in KINDS:
        spec = StudySpec.of({"name": "rehearsal", "actions": [0, 1], **kind})
        standing = StudyState.begin(spec).after([_decision(spec, seq) for seq in range(1, ROWS)])
        standing.snapshot()
        _ = standing.report


def _decision(spec: StudySpec, seq: int) -> Decision:
    context = None if spec.context is None else json.dumps({"x": float(seq)})
    propensity = 0.5 if spec.behavior == "logged" else None
    return Decision(seq, str(seq), seq % 2, propensity, context, seq, reward=1.0, rewarded_at=seq)
