"""Production logs: read, validated, covered, learned from, certified."""

from __future__ import annotations

import warnings

from understudy.logs.certify import CertifyResult, certify
from understudy.logs.coverage import CoverageResult, coverage
from understudy.logs.learn import LearnResult, learn
from understudy.logs.policy import Policy
from understudy.logs.readers.bandit_feedback import from_bandit_feedback, to_bandit_feedback

__all__ = [
    "CertifyResult",
    "CoverageResult",
    "LearnResult",
    "Policy",
    "certify",
    "coverage",
    "from_bandit_feedback",
    "learn",
    "to_bandit_feedback",
]

RENAMED = {"Learned": LearnResult, "Judged": CertifyResult, "Covered": CoverageResult}


def __getattr__(name: str) -> type:
    """Return a class under its name of 0.5, with a warning: these names go with 0.7."""
    if name not in RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    renamed = RENAMED[name]
    message = f"us.logs.{name} is now us.logs.{renamed.__name__}; the old name goes with 0.7"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return renamed
