"""Studies that continue from a policy.json with a question, or with lost rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

import understudy as us
from tests.support.live.continued import continued, specification
from tests.support.logs.log_files import LABELS, make_rows
from tests.support.logs.questions import QUESTION, with_metrics
from understudy.errors import InvalidArgument

ROWS = with_metrics(make_rows(200))


@pytest.mark.parametrize("name", [*QUESTION, "quarantined"])
def test_a_policy_with_a_question_is_not_continued(name: str) -> None:
    """A study is about the gain over production: it would answer another question than before."""
    asked: dict[str, Any] = {name: {"quarantined": "missing-at-random", **QUESTION}[name]}
    policy = us.logs.learn(ROWS, actions=LABELS, **asked).policy
    with pytest.raises(InvalidArgument, match="learn a policy without it") as caught:
        specification(policy)
    assert caught.value.argument == name


def test_a_study_goes_on_with_the_worst_case_of_lost_rows() -> None:
    policy = us.logs.learn(ROWS, actions=LABELS).policy
    (path,) = policy.study.curves
    assert path is not None
    assert path.without_rejected is not None
    result = continued(policy)
    assert "without_rejected" not in json.loads(result.policy.to_json())
    assert result.certified is not None
    assert result.certified.certificate.rounds == len(ROWS) + 1
    assert result.coverage.verdicts[0].other_gain is None
