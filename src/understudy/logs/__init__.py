"""Production logs: read, checked, covered, learned from, certified."""

from __future__ import annotations

from understudy.logs.bandit_feedback import from_bandit_feedback, to_bandit_feedback
from understudy.logs.certifying import Judged, certify
from understudy.logs.covering import Covered, coverage
from understudy.logs.learned import Learned
from understudy.logs.learning import learn
from understudy.logs.policies import Policy

__all__ = [
    "Covered",
    "Judged",
    "Learned",
    "Policy",
    "certify",
    "coverage",
    "from_bandit_feedback",
    "learn",
    "to_bandit_feedback",
]
