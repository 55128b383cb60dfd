"""Production logs: read, validated, covered, learned from, certified."""

from __future__ import annotations

from understudy.deprecated import old_module_names
from understudy.logs.certify import certify
from understudy.logs.coverage import coverage
from understudy.logs.learn import learn
from understudy.logs.policy import Policy
from understudy.logs.readers.bandit_feedback import from_bandit_feedback, to_bandit_feedback
from understudy.logs.results import CertifyResult, CoverageResult, LearnResult

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

__getattr__ = old_module_names(
    "us.logs", {"Learned": LearnResult, "Judged": CertifyResult, "Covered": CoverageResult}
)
