"""The kinds of games about questions: they are as unkind as they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from understudy.experiments.certificate_games import GameKind, GameRecord
from understudy.experiments.question_games import (
    MARGIN,
    QUESTIONS,
    CandidateRecord,
    DifferenceRecord,
    JointRecord,
    SegmentRecord,
)

ROUNDS = 800
BY_NAME = {kind.name: kind for kind in QUESTIONS}


def plain_records(record: Any) -> list[GameRecord]:
    """The records of one certificate each that a record holds."""
    match record:
        case GameRecord():
            return [record]
        case DifferenceRecord() | SegmentRecord():
            return [record.whole]
        case JointRecord():
            return list(record.metrics)
        case CandidateRecord():
            return list(record.candidates)
    raise TypeError


@pytest.mark.parametrize("kind", QUESTIONS, ids=lambda kind: kind.name)
def test_a_certificate_sees_what_the_referee_saw(kind: GameKind) -> None:
    for record in plain_records(kind.record(ROUNDS, seed=3, run=1)):
        n, each = kind.rounds(ROUNDS), np.arange(kind.rounds(ROUNDS))
        assert len(record.log) == len(record.probabilities) == len(record.ratios) == n
        np.testing.assert_allclose(record.policies.sum(axis=1), 1.0)
        np.testing.assert_allclose(record.behavior.sum(axis=1), 1.0)
        actions, R = record.log.actions, record.log.rewards
        seen, known = ~np.isnan(R), ~np.isnan(record.probabilities)
        assert R[seen].tolist() == record.rewards[each, actions][seen].tolist()
        assert (seen & known).all() == ("lost" not in kind.name and not (~seen).any())
        shown = record.policies[each, actions][known]
        assert record.probabilities[known].tolist() == shown.tolist()
        assert record.log.propensities is not None
        assert record.log.propensities.tolist() == record.behavior[each, actions].tolist()
        ratios = np.max(record.policies / np.maximum(record.behavior, 1e-9), axis=1)
        assert (record.ratios >= ratios * (1 - 1e-9)).all()


@pytest.mark.parametrize("kind", QUESTIONS, ids=lambda kind: kind.name)
def test_a_record_is_a_function_of_seed_and_run(kind: GameKind) -> None:
    first, again, other = (plain_records(kind.record(200, 5, run)) for run in (0, 0, 1))
    for one, same, another in zip(first, again, other, strict=True):
        assert one.rewards.tobytes() == same.rewards.tobytes()
        assert one.probabilities.tobytes() == same.probabilities.tobytes()
        assert one.log.actions.tobytes() != another.log.actions.tobytes()


WITHOUT_GAIN = [
    *("over an action", "over an action, lost rows", "over a rule"),
    *("two certificates", "two certificates, counted", "two certificates, ineligible"),
    *("2 segments, no gain", "20 segments, no gain", "5 candidates of 200", "missing at random"),
]


@pytest.mark.parametrize("name", WITHOUT_GAIN)
def test_where_nothing_can_be_gained_nothing_is(name: str) -> None:
    """In every round, so that each promotion and each loss is wrong."""
    for record in plain_records(BY_NAME[name].record(ROUNDS, 0, 0)):
        np.testing.assert_allclose(record.gains, 0.0, atol=1e-12)
        assert np.abs(record.policies - record.behavior).max() >= 0.1


def test_the_first_guardrail_is_at_its_margin_in_every_round() -> None:
    for m in (1, 2, 5):
        name = f"{m} guardrail at its margin" if m == 1 else f"{m} guardrails, one at its margin"
        record: Any = BY_NAME[name].record(2_000, 0, 0)
        goal, first, *others = record.metrics
        np.testing.assert_allclose(first.gains, -MARGIN)
        assert goal.gains.mean() > 0.1
        assert len(others) == m - 1
        assert all((np.abs(one.gains) < 1e-12).all() for one in others)
        seen = goal.rewards.mean(axis=1), first.rewards.mean(axis=1)
        assert np.corrcoef(*seen)[0, 1] > 0.9


def test_values_are_missing_where_they_are_bad() -> None:
    record: Any = BY_NAME["2 guardrails, missing when bad"].record(2_000, 0, 0)
    _, first, other = record.metrics
    gone = np.isnan(first.log.rewards)
    assert 0.02 < gone.mean() < 0.3
    assert (first.log.actions[gone] == 1).all()
    seen = first.log.actions == 1
    truth, left = first.rewards[seen, 1].mean(), first.log.rewards[seen & ~gone].mean()
    assert left > truth + 0.01
    assert not np.isnan(other.log.rewards).any()


def test_the_goal_has_no_gain_and_the_guardrails_have() -> None:
    record: Any = BY_NAME["3 guardrails, no gain"].record(2_000, 0, 0)
    goal, *guardrails = record.metrics
    np.testing.assert_allclose(goal.gains, 0.0, atol=1e-12)
    assert min(one.gains.mean() for one in guardrails) > 0.0


def test_goal_and_guardrails_take_turns() -> None:
    """Both phases come often, and the two are never good in the same one."""
    for name in ("1 guardrail, in turns", "4 guardrails, in turns"):
        record: Any = BY_NAME[name].record(8_000, 0, 0)
        goal, *guardrails = (one.gains.reshape(-1, 10).mean(axis=1) for one in record.metrics)
        for one in guardrails:
            assert np.corrcoef(goal, one)[0, 1] < -0.2
        blocks = goal > 0.0
        assert 0.2 < blocks.mean() < 0.9
        assert np.diff(blocks.astype(int)).astype(bool).sum() > 10


def test_gains_move_between_segments() -> None:
    record: Any = BY_NAME["2 segments, gains move"].record(8_000, 0, 0)
    for segment in range(2):
        own = record.whole.gains[record.codes == segment]
        phases = own[: len(own) // 50 * 50].reshape(-1, 50).mean(axis=1)
        assert phases.max() > 0.05
        assert phases.min() < -0.05


def test_segments_have_rows_of_their_own() -> None:
    record: Any = BY_NAME["20 segments, no gain"].record(8_000, 0, 0)
    counts = np.bincount(record.codes, minlength=20)
    assert counts.min() > 10
    assert counts[0] > 10 * counts[-1]
    levels = [record.whole.rewards[record.codes == s].mean() for s in (0, 19)]
    assert levels[0] < 0.3
    assert levels[1] > 0.7


def test_candidates_look_good_in_the_log_that_chose_them() -> None:
    """Their later log is another one."""
    record: Any = BY_NAME["5 candidates of 200"].record(2_000, 0, 0)
    assert len(record.candidates) == 5
    policies = [tuple(one.policies[0]) for one in record.candidates]
    assert len(set(policies)) == 5
    rewards = {one.rewards.tobytes() for one in record.candidates}
    assert len(rewards) == 1


def test_where_the_second_action_is_ineligible_no_center_is_known() -> None:
    record: Any = BY_NAME["two certificates, ineligible"].record(2_000, 0, 0)
    closed = record.whole.behavior[:, 1] == 0.0
    assert 0.4 < closed.mean() < 0.6
    assert np.isinf(record.whole.ratios).tolist() == closed.tolist()
    assert (record.whole.log.actions[closed] == 0).all()


def test_rows_are_missing_before_an_action_is_drawn() -> None:
    """The share of each action, and of each reward of an action, is that of all rows."""
    record: Any = BY_NAME["missing at random"].record(20_000, 0, 0)
    assert np.mean(record.log.actions == 0) == pytest.approx(0.8, abs=0.02)
    by_action = [record.log.rewards[record.log.actions == a].mean() for a in (0, 1)]
    assert by_action[0] == pytest.approx(by_action[1], abs=0.03)
    assert record.rewards.mean() > 0.53  # low rewards are missing more often
