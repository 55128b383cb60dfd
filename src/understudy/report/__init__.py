"""Results for people: a self-contained page, a cell of a notebook (`report.html`), a terminal."""

from __future__ import annotations

from understudy.report.data import (
    ActionRow,
    CandidateRow,
    CertificateCurve,
    QuarantineCount,
    QuarantinedRow,
    Report,
    as_dict,
)
from understudy.report.terminal import show

__all__ = [
    "ActionRow",
    "CandidateRow",
    "CertificateCurve",
    "QuarantineCount",
    "QuarantinedRow",
    "Report",
    "as_dict",
    "show",
]
