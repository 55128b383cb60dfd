"""Coverage, verdicts and certificates of a small log, as evaluation gives them to reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

import understudy as us
from understudy.logs.evaluation.diagnostics import (
    Calibration,
    CalibrationFinding,
    Drift,
    DriftFinding,
    Overlap,
    SampleSize,
    ShareChange,
)
from understudy.logs.evaluation.outcomes import (
    BEYOND_SUCH_ROWS,
    Obstacle,
    PolicyDecision,
    Reason,
    Step,
    Verdict,
    VerdictOutcome,
)
from understudy.logs.evaluation.repeated_rows import RepeatedRows, Repetition
from understudy.logs.evaluation.sticky_columns import StickyColumn, StickyColumns
from understudy.logs.evaluation.verdicts import Coverage

__all__ = [
    "BEYOND_SUCH_ROWS",
    "CALIBRATION",
    "COVERAGE",
    "LABELS",
    "STEADY",
    "CalibrationFinding",
    "Drift",
    "DriftFinding",
    "Obstacle",
    "PolicyDecision",
    "Reason",
    "RepeatedRows",
    "Repetition",
    "SampleSize",
    "ShareChange",
    "Step",
    "StickyColumn",
    "StickyColumns",
    "VerdictOutcome",
    "certificate",
    "verdict",
]


LABELS = ("a", "b")


CALIBRATION = Calibration(
    CalibrationFinding.AGREES,
    np.array([1.0, 1.0]),
    np.zeros(2),
    np.ones(2),
    np.zeros(2, dtype=bool),
    np.zeros(2, dtype=bool),
)


STEADY = Drift(DriftFinding.STEADY, 1.0, 0.5, "logged", 12)


COVERAGE = Coverage(
    table=pl.DataFrame({"action": LABELS, "count": [500, 500]}),
    rows=1_000,
    refused={},
    unseen=(),
    deterministic=False,
    calibration=CALIBRATION,
    drift=STEADY,
)


def certificate(rewards: tuple[float, float], rows: int = 1_000, rules: int = 2) -> us.Certificate:
    """Of always playing b, which a fair coin played in every second row."""
    log = us.Log([0, 1] * (rows // 2), list(rewards) * (rows // 2))
    return us.Certificate(behavior=[0.5, 0.5], rules=rules).observe(log, us.FixedPolicy([0.0, 1.0]))


def verdict(**changes: Any) -> Verdict:
    plain: dict[str, Any] = {
        "name": "mine",
        "decision": PolicyDecision.UNKNOWN,
        "reason": Reason.SIGN_IS_UNCERTAIN,
        "obstacle": None,
        "overlap": Overlap(2.0, 500.0, 0.5067, 0.0),
        "hidden": 0.0,
        "sample_size": SampleSize(0.0067, 984_253.0, None),
        "near": False,
        "certificate": certificate((0.5, 0.5)),
        "confidence": 0.95,
        "rows": 1_000,
        "rejected": 0,
        "earned": 500.0,
        "estimated_gain": 0.0067,
        "standard_error": 0.005,
        "visible_gain": 0.05,
    }
    return Verdict(**{**plain, **changes})
