"""Studies that continue from a policy.json."""

from __future__ import annotations

from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store.records import Decision
from understudy.logs import LearnResult, Policy

__all__ = ["continued", "specification"]


def specification(policy: Policy) -> StudySpec:
    """Of a study that continues from the policy."""
    return StudySpec.from_policy("more", policy, reward_wait=None, default_reward=None)


def continued(policy: Policy) -> LearnResult:
    """The result of a study that continues from the policy, after one decision."""
    sent = Decision(1, "1", 0, 0.5, None, 1, reward=1.0, rewarded_at=1)
    result = StudyState.begin(specification(policy), policy).after([sent]).result
    assert result is not None
    return result
