"""The kinds of games: what certificates see of them, and that they are as unkind as they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.strategies import Array
from understudy.experiments.certificate_games import (
    CERTAIN,
    FLOOR,
    KINDS,
    LEAST,
    GameKind,
    GameRecord,
)
from understudy.experiments.certificate_validity import ever_wrong

BY_NAME = {kind.name: kind for kind in KINDS}
LOST = ["no choice in some rows", "quarantined rows", "quarantined rows, floor"]
ROUNDS = 400


def rates(name: str, runs: int, change: Any = None, rounds: int = 2_000) -> dict[str, float]:
    """The shares of games in which each statement was wrong, perhaps of a changed record."""
    found = []
    for run in range(runs):
        record = BY_NAME[name].record(rounds, 0, run)
        found.append(ever_wrong(record if change is None else change(record)))
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_the_certificate_sees_is_what_the_referee_saw(kind: GameKind) -> None:
    record = kind.record(ROUNDS, seed=3, run=1)
    n, each = kind.rounds(ROUNDS), np.arange(kind.rounds(ROUNDS))
    assert len(record.log) == len(record.probabilities) == len(record.ratios) == n
    np.testing.assert_allclose(record.policies.sum(axis=1), 1.0)
    np.testing.assert_allclose(record.behavior.sum(axis=1), 1.0)
    actions, R = record.log.actions, record.log.rewards
    seen, known = ~np.isnan(R), ~np.isnan(record.probabilities)
    assert R[seen].tolist() == record.rewards[each, actions][seen].tolist()
    assert (seen & known).all() == (kind.name not in LOST)
    if kind.name != "undeclared actions":
        shown = record.policies[each, actions][known]
        assert record.probabilities[known].tolist() == pytest.approx(shown.tolist())
    assert record.log.propensities is not None
    assert record.log.propensities.tolist() == record.behavior[each, actions].tolist()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_largest_ratio_is_one(kind: GameKind) -> None:
    """W_t bounds the ratios of all actions, in rows that can be used."""
    record = kind.record(ROUNDS, seed=3, run=2)
    usable = ~np.isnan(record.probabilities) & ~np.isnan(record.log.rewards)
    ratios = (record.policies / np.where(record.behavior > 0, record.behavior, np.nan))[usable]
    assert (record.ratios[usable] >= np.nanmax(ratios, axis=1) * (1 - 1e-9)).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_record_is_a_function_of_seed_and_run(kind: GameKind) -> None:
    first, again, other = (kind.record(100, 5, run) for run in (0, 0, 1))
    assert first.rewards.tobytes() == again.rewards.tobytes()
    assert first.probabilities.tobytes() == again.probabilities.tobytes()
    same = first.log.actions.tobytes() == other.log.actions.tobytes()
    assert not same or kind.name == "propensities 1e-6"  # nearly always the last action


def test_where_nothing_can_be_gained_nothing_is() -> None:
    """In every round, so that each promotion is wrong."""
    for name in ("no gain", "no gain, order-free", "bold play", *LOST[1:]):
        record = BY_NAME[name].record(ROUNDS, 0, 0)
        np.testing.assert_allclose(record.gains, 0.0, atol=1e-15)
        assert np.abs(record.policies - record.behavior).max() >= 0.1, name


def test_production_learns_and_keeps_its_floor() -> None:
    for name in ("production learns, floor", "production learns, vectors"):
        record = BY_NAME[name].record(2_000, 0, 0)
        assert record.behavior.min() >= FLOOR * (1 - 1e-12)
        assert np.abs(np.diff(record.behavior, axis=0)).max(axis=1).min() > 0.0  # in every round
        assert record.behavior.std(axis=0).min() > 0.02
        assert 0.0 < record.rewards.min() < record.rewards.max() < 1.0


def test_the_rewards_flip_with_the_error() -> None:
    record = BY_NAME["flipping rewards"].record(4_000, 0, 0)
    each = np.arange(len(record.log))
    q, pi = record.behavior[each, record.log.actions], record.probabilities
    error = np.cumsum(pi / q * record.log.rewards - record.target_rewards)
    sure = np.abs(error[:-1]) > 1e-9  # of its sign
    assert (record.rewards[1:, 0] == (error[:-1] > 0.0))[sure].all()
    assert np.abs(np.diff(record.rewards[:, 0])).sum() >= 10


def test_the_target_is_better_until_it_is_nearly_promoted() -> None:
    record = BY_NAME["better until noticed"].record(8_000, 0, 0)
    positive = record.gains > 0.0
    assert 0.2 < positive[:200].mean() < 0.8
    assert 0.2 < positive[-1000:].mean() < 0.8


@pytest.mark.large
def test_bold_play_is_promoted_by_a_win() -> None:
    """A promotion is reached by a win of the rare action."""
    promoted = 0
    for run in range(60):
        record = BY_NAME["bold play"].record(2_000, 0, run)
        log, pi, W = record.log, record.probabilities, record.ratios
        certificate = record.certificate().advance(log, pi, W)
        if certificate.promoted_at is None:
            continue
        t = certificate.promoted_at - 1
        assert (log.actions[t], log.rewards[t]) == (0, 1.0)
        promoted += 1
    assert promoted


KNOWN: dict[str, dict[str, Any]] = {  # how the behavior is known
    LOST[0]: {"least_propensity": LEAST},
    LOST[1]: {"behavior": {"0": 0.5, "1": 0.5}},
    LOST[2]: {"least_propensity": LEAST},
}


@pytest.mark.parametrize("name", LOST)
def test_quarantined_rows_come_as_the_library_hands_them_over(name: str) -> None:
    """The same wealth, to the bit, from a frame with rows that `us.logs.certify` quarantines."""
    pl = pytest.importorskip("polars")
    record, certain = BY_NAME[name].record(ROUNDS, 0, 4), name == LOST[0]
    log, pi = record.log, record.probabilities
    has_reward, has_ratio = ~np.isnan(log.rewards), ~np.isnan(pi)
    lost = ~(has_reward & has_ratio)
    ways = {(True, False)} if certain else {(False, True), (True, False), (False, False)}
    assert set(zip(has_reward[lost].tolist(), has_ratio[lost].tolist(), strict=True)) == ways
    # A row that does not tell w has no action, or a propensity that cannot be.
    every_second = np.arange(ROUNDS) % 2 == 0
    no_action = ~has_ratio & (every_second | ("behavior" in KNOWN[name])) & (not certain)
    assert log.propensities is not None
    action: Any = log.actions.astype(str).astype(object)
    action[no_action] = None
    q = np.where(has_ratio, log.propensities, 1.0 if certain else 0.0)
    columns = {
        "action": action.tolist(),
        "reward": pl.Series(log.rewards).fill_nan(None),
        "propensity": q,
    }
    policy: dict[Any, float] = dict(zip("01", record.policies[0].tolist(), strict=True))
    found = us.logs.certify(pl.DataFrame(columns), policy, actions=["0", "1"], **KNOWN[name])
    mine = record.certificate().advance(log, pi, record.ratios)
    wealth = found.certified.certificate.evidence.log_wealths()
    assert mine.evidence.log_wealths().tolist() == wealth.tolist()


def without_lost_rows(record: GameRecord) -> GameRecord:
    """As if the rows that cannot be used were left out."""
    kept = ~np.isnan(record.probabilities) & ~np.isnan(record.log.rewards)
    columns = ("policies", "behavior", "rewards", "probabilities", "ratios")
    parts = {name: getattr(record, name)[kept] for name in columns}
    actions, R, q = record.log.actions[kept], record.log.rewards[kept], record.log.propensities
    assert q is not None
    return replace(record, log=us.Log(actions, R, q[kept]), **parts)


@pytest.mark.large
@pytest.mark.parametrize("name", LOST)
def test_rows_that_are_left_out_would_make_certificates_false(name: str) -> None:
    """These games bite: not all rows are lost at random."""
    truth = {run: BY_NAME[name].record(2_000, 0, run).gains.mean() for run in range(20)}
    shown = 0
    for run, gain in truth.items():
        record = without_lost_rows(BY_NAME[name].record(2_000, 0, run))
        after = record.certificate().advance(record.log, record.probabilities, record.ratios)
        assert after.gain is not None
        shown += after.gain / after.rounds > gain
    assert shown >= 10
    assert max(rates(name, 20).values()) <= 0.2


def test_rows_without_a_choice_are_as_many_as_stated() -> None:
    record = BY_NAME["no choice in some rows"].record(4_000, 0, 0)
    certain = record.behavior[:, 0] == 1.0
    assert certain.mean() == pytest.approx(CERTAIN, abs=0.02)
    assert (record.behavior[~certain].min(axis=1) == LEAST).all()
    assert np.isnan(record.probabilities).tolist() == certain.tolist()
    assert record.gains[certain].max() == -1.0
    assert record.gains[~certain].mean() > 0.1


def test_a_policy_over_the_actions_of_the_log_needs_its_guards() -> None:
    """With a center the bounds are false, and so they are if first rows count as any other."""

    def centered(record: GameRecord) -> GameRecord:
        ratio = record.probabilities.max() * record.policies.shape[1]
        return replace(record, ratios=np.full(len(record.log), ratio))

    record = BY_NAME["undeclared actions"].record(2_000, 0, 0)
    first = record.probabilities == 0.0
    assert first.sum() == len(set(record.log.actions.tolist()))
    assert not any(rates("undeclared actions", 10).values())
    assert rates("undeclared actions", 10, centered)["lower"] > 0.5
    hindsight = replace(record, probabilities=np.full(500, record.probabilities.max()))
    w = hindsight.probabilities * record.policies.shape[1]
    assert w.mean() > 1.1  # no policy known beforehand has such weights


def test_a_learner_has_the_records_of_its_own_trace() -> None:
    """π_t of the record is the learner's, known before round t."""
    record = BY_NAME["stationary"].record(ROUNDS, 0, 0)
    assert isinstance(record.known, np.ndarray)
    learner = us.exp3_ix(record.known, horizon=ROUNDS)
    _, trace = learner.replay(learner.init(), us.Log(record.log.actions, record.log.rewards))
    assert record.probabilities.tolist() == pytest.approx(trace.probability.tolist(), rel=1e-12)
    before: Array = np.full(10, 0.1)
    np.testing.assert_allclose(record.policies[0], before)
