"""`understudy.logs.rules`: every reason has a remedy."""

from __future__ import annotations

from understudy.logs.rules import RejectReason, remedy_for


def test_every_reason_has_a_remedy() -> None:
    for reason in RejectReason:
        assert remedy_for({reason.value: 1}) == reason.remedy
    assert remedy_for({"a reason of a later version": 1}) == "correct these rows"
