"""Production logs: read, checked, covered, learned from, certified."""

from __future__ import annotations

from understudy.logs.bandit_feedback import from_bandit_feedback, to_bandit_feedback
from understudy.logs.covered import Covered, coverage
from understudy.logs.judged import Judged, certify
from understudy.logs.learned import Learned, learn
from understudy.logs.policies import Policy

__all__ = [
    "Judged",
    "Learned",
    "Policy",
    "certify",
    "from_bandit_feedback",
    "learn",
    "to_bandit_feedback",
]
