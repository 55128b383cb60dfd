"""`us.logs.coverage` with a baseline, guardrails and segments, and with lost rows left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.logs.log_files import LABELS, make_rows
from tests.support.logs.questions import QUESTION, as_data, with_metrics
from tests.support.refusals import assert_refused

pytestmark = pytest.mark.plain

ACTIONS = tuple(sorted(LABELS))
NAMED: dict[int | str, float] = {"south": 0.75, "west": 0.25}
ROWS = with_metrics(make_rows(900))
ASKED: dict[str, dict[str, Any]] = {
    "baseline": {"against": "action:north"},
    "baseline, least propensity": {"against": "action:north", "least_propensity": 0.05},
    "another policy": {"against": {"north": 0.5, "east": 0.5}},
    "missing at random": {"quarantined": "missing-at-random"},
    "all": {**QUESTION, "least_propensity": 0.05},
    "all, missing at random": {**QUESTION, "quarantined": "missing-at-random"},
}


def compared(verdict: Any) -> list[Any]:
    return [
        verdict.outcome,
        verdict.gain,
        verdict.baseline,
        verdict.guardrails,
        verdict.segments,
        verdict.missing_at_random,
        verdict.other_gain,
        as_data(verdict.certificate),
    ]


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_candidates_are_judged_as_certify_judges_them(asked: dict[str, Any]) -> None:
    asked = asked | {"actions": ACTIONS}
    found = us.logs.coverage(ROWS, NAMED, **asked).coverage.verdicts
    policies: list[Any] = [NAMED, "uniform"]
    for verdict, policy in zip(found, policies, strict=False):
        (expected,) = us.logs.certify(ROWS, policy, **asked).coverage.verdicts
        assert compared(verdict) == compared(expected)
    *_, best = found
    assert best.name == "always south"
    confidence = 1.0 - 0.05 / len(ACTIONS)
    always: dict[int | str, float] = {"south": 1.0}
    (expected,) = us.logs.certify(ROWS, always, confidence=confidence, **asked).coverage.verdicts
    assert best.certificate is not None
    assert expected.certificate is not None
    assert as_data(best.certificate) == as_data(expected.certificate)


def test_a_policy_of_the_same_rows_is_compared_and_not_certified() -> None:
    learned = us.logs.learn(ROWS, actions=ACTIONS, learner="exp3-ix")
    first, *_ = us.logs.coverage(ROWS, learned, actions=ACTIONS, **QUESTION).coverage.verdicts
    assert first.certificate is None
    assert first.baseline is not None
    assert not first.guardrails
    valid = ROWS.filter(pl.col("reward").is_not_null())
    q, R = valid["propensity"].to_numpy(), valid["reward"].to_numpy()
    played = learned.policy.probabilities()
    w = np.array([played[label] for label in valid["action"]]) / q
    north = (valid["action"] == "north").to_numpy() / q
    assert first.baseline.reward == pytest.approx(north @ R / north.sum(), rel=1e-9)
    assert first.estimated_gain == pytest.approx(np.mean((w - north) * (R - R.mean())), rel=1e-9)


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "an action of no row": ({"against": "action:up"}, "against", "name one of the log's actions"),
    "a declared action of no row": (
        {"against": "action:up", "actions": [*ACTIONS, "up"]},
        "against",
        "name one of the log's actions",
    ),
    "all actions, undeclared": ({"against": "policy:uniform"}, "against", "declare all of them"),
    "an engine": ({"engine": "polars", "against": "action:north"}, "against", "out --engine"),
    "no propensities": (
        {"behavior": "estimated", "segment": "country=it"},
        "segment",
        "name their column with --propensity",
    ),
    "no certificates": (
        {"behavior": "estimated", "eligible": "could", "against": "action:north"},
        "against",
        "name their column with --propensity",
    ),
}


@pytest.mark.parametrize(("asked", "argument", "words"), WRONG.values(), ids=WRONG)
def test_wrong_questions_are_refused(asked: dict[str, Any], argument: str, words: str) -> None:
    rows = ROWS.with_columns(could=pl.Series([list(ACTIONS)] * len(ROWS)))
    assert_refused(lambda: us.logs.coverage(rows, **asked), argument, words)
