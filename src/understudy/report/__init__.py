"""Results for people: a self-contained page, a cell of a notebook, a terminal, JSON."""

from __future__ import annotations

from understudy.logs.evaluation.outcomes import GainBounds
from understudy.report.data import (
    ActionRow,
    CandidateRow,
    CertificateCurve,
    QuarantineCount,
    QuarantinedRow,
    Report,
)
from understudy.report.details import ContextRow, ExpertRow
from understudy.report.render import as_dict, show

__all__ = [
    "ActionRow",
    "CandidateRow",
    "CertificateCurve",
    "ContextRow",
    "ExpertRow",
    "GainBounds",
    "QuarantineCount",
    "QuarantinedRow",
    "Report",
    "as_dict",
    "show",
]
