"""What was learned from a log, shown: a self-contained page, a notebook's cell, a terminal."""

from __future__ import annotations

from understudy.report.data import (
    ActionRow,
    Candidate,
    CertificateCurve,
    FileRow,
    QuarantineCount,
    QuarantinedRow,
    Report,
    VerdictKind,
)
from understudy.report.pages import fragment, render
from understudy.report.terminal import show

__all__ = [
    "ActionRow",
    "Candidate",
    "CertificateCurve",
    "FileRow",
    "QuarantineCount",
    "QuarantinedRow",
    "Report",
    "VerdictKind",
    "fragment",
    "render",
    "show",
]
