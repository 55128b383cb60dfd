"""Rounds to a decision: the information limit, published sequences, and the games."""

from __future__ import annotations

import math

import numpy as np
import pytest

import understudy as us
from tests.support.strategies import Array
from understudy.experiments.certificate_speed import (
    DELTA,
    SEQUENCES,
    bernstein_round,
    decision_rounds,
    first_round,
    hedged_round,
    limit_round,
    plug_in_round,
)
from understudy.experiments.decision_games import (
    BETTER,
    ROUTER_GAIN,
    ROUTER_REWARD,
    ROUTERS,
    WORSE,
    DecisionGame,
    PlainGame,
    points_until,
    random_worlds,
)

GAMES = (*BETTER, *WORSE, *ROUTERS)


def kl(q: Array, p: Array) -> Array:
    return np.asarray(q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p)))


def test_the_limit_of_a_fixed_policy_is_a_quotient() -> None:
    q, r, policy = np.array([0.8, 0.2]), np.array([0.9, 0.95]), np.array([[0.0, 1.0]] * 2)
    wanted = math.log(1 / DELTA) / float(q @ kl(r, np.full(2, q @ r)))
    assert limit_round(policy, np.array([1, 5_000]), q, r) == math.ceil(wanted) == 1_083
    assert limit_round(policy, np.array([1, 500]), q, r) == math.inf


def one_log(run: int, n: int, *, gain: float = 0.0) -> tuple[Array, Array, float]:
    """w, R and W of a log in which the second action earns so much more."""
    rng, q, policy = np.random.default_rng(run), np.array([0.8, 0.2]), np.array([0.1, 0.9])
    b = (rng.random(n) < q[1]).astype(int)
    R = (rng.random(n) < 0.5 + gain * b).astype(float)
    return (policy / q)[b], R, 4.5


def first(factors: list[float]) -> float:
    wealth = np.cumsum(np.log(factors))
    return first_round(wealth >= math.log(1 / DELTA))


def hedged_by_hand(w: Array, R: Array, W: float) -> float:
    """Round by round: the bets of the past, shrunk until half of the wealth is kept."""
    factors, b, A, psi = [], np.zeros(2), np.eye(2), 2 - 4 * math.log(2)
    for x in np.stack([w - 1, (w - 1) * R], axis=1):
        bet = np.linalg.inv(A) @ b / (-2 * psi)
        if bet[1] < 0:
            bet = np.zeros(2)
        possible = [(v - 1) * (bet[0] + bet[1] * reward) for v in (0.0, W) for reward in (0, 1)]
        if min(possible) < -0.5:
            bet *= 0.5 / -min(possible)
        factors.append(1 + float(bet @ x))
        b, A = b + x, A + np.outer(x, x)
    assert min(factors) >= 0.5 - 1e-12
    return first(factors)


def plug_in_by_hand(w: Array, R: Array, W: float) -> float:
    factors, total, squares, earned = [], 0.0, 1.0, 0.5
    for t, (ratio, reward) in enumerate(zip(w, R, strict=True), start=1):
        c = earned / t
        bet = min(max(total / squares, 0.0), 0.9 / max(1.0, (W - 1) * c))
        x = (ratio - 1) * (reward - c)
        factors.append(1 + bet * x)
        total, squares, earned = total + x, squares + x * x, earned + reward
    assert min(factors) >= 0.1 - 1e-12
    return first(factors)


def bernstein_by_hand(w: Array, R: Array) -> float:
    bets = us.Certificate(behavior=[0.5, 0.5]).bets
    rho = 1 / (np.arange(len(bets.gains)) + 4.0) ** 2
    log_wealth, seen = np.zeros(len(rho)), 0.0
    for t, x in enumerate((w - 1) * R / 2, start=1):
        guess = min(max(seen / t, -0.5), 0.5)
        psi = -np.log(1 - bets.gains) - bets.gains
        log_wealth += bets.gains * x - psi * (x - guess) ** 2
        seen += x
        if rho / rho.sum() @ np.exp(log_wealth) >= 1 / DELTA:
            return float(t)
    return math.inf


@pytest.mark.parametrize("gain", [0.0, 0.2])
def test_published_sequences_are_their_formulas(gain: float) -> None:
    """Sums over the whole log, and loops round by round."""
    found = []
    for run in range(3):
        w, R, W = one_log(run, 1_500, gain=gain)
        bets = us.Certificate(behavior=[0.5, 0.5]).bets
        mine = bernstein_round(w, R, bets), hedged_round(w, R, W), plug_in_round(w, R, W)
        assert mine == (bernstein_by_hand(w, R), hedged_by_hand(w, R, W), plug_in_by_hand(w, R, W))
        found.append(mine)
    assert np.isfinite(found).all() == (gain > 0.0)


def test_published_sequences_are_valid_for_a_fixed_policy() -> None:
    """They see a gain where there is none in 5 % of logs at most, and three standard errors."""
    bets, rounds = us.Certificate(behavior=[0.5, 0.5]).bets, []
    for run in range(300):
        w, R, W = one_log(run, 1_000)
        rounds.append((bernstein_round(w, R, bets), hedged_round(w, R, W), plug_in_round(w, R, W)))
    assert (np.isfinite(rounds).mean(axis=0) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)).all()


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
def test_a_decision_is_that_of_the_certificates(game: DecisionGame) -> None:
    rounds = 2_000
    found, seen = decision_rounds(game, rounds, 0, 3), game.observe(rounds, 0, 3)
    fixed = game.target == "fixed policy"
    assert set(found) == set(SEQUENCES if fixed else SEQUENCES[:4])
    now = us.certify(seen.log, seen.target, behavior=seen.known)
    before = us.Certificate(seen.known, rules=1).observe(seen.log, seen.target)
    decided = now.worse_at if game.worse else now.promoted_at
    assert found["now"] == (decided or math.inf)
    if not game.worse:
        assert found["rules_1"] == (before.promoted_at or math.inf)
        return
    at = found["rules_1"]
    if math.isinf(at):
        assert before.upper >= before.least_production()
        return
    points = points_until(rounds).tolist()
    for t in (int(at), points[points.index(int(at)) - 1]):
        target = us.FixedPolicy(seen.policies[0])
        then = us.Certificate(seen.known, rules=1).observe(seen.log[:t], target)
        assert (then.upper < then.least_production()) == (t == at)


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
def test_the_decision_of_a_game_is_the_right_one(game: DecisionGame) -> None:
    """By the truth: the last policy earns more than production, or less; a router's world too."""
    seen = game.observe(2_000, 1, 5)
    np.testing.assert_allclose(seen.policies.sum(axis=1), 1.0)
    assert seen.behavior.sum() == pytest.approx(1.0)
    gain = float((seen.policies[-1] - seen.behavior) @ seen.means)
    if game.name == "router, no gain":
        assert gain == pytest.approx(0.0, abs=1e-15)
    else:
        assert (gain < 0.0) == game.worse
    again = game.observe(2_000, 1, 5)
    assert again.log.rewards.tobytes() == seen.log.rewards.tobytes()


def test_routers_are_as_stated() -> None:
    """57 contexts, propensities .9 and .1, production earns .72, the best policy .03 more."""
    best, even = ROUTERS
    for run in range(50):
        seen = best.observe(14_000, 0, run)
        assert len(seen.means) == 2 * 57
        assert 0.0 < seen.means.min() < seen.means.max() < 1.0
        assert seen.behavior @ seen.means == pytest.approx(ROUTER_REWARD)
        gain = (seen.policies[0] - seen.behavior) @ seen.means
        assert gain == pytest.approx(ROUTER_GAIN)
        greedy = seen.means.reshape(57, 2).max(axis=1)
        shares = seen.behavior.reshape(57, 2).sum(axis=1)
        assert seen.policies[0] @ seen.means == pytest.approx(shares @ greedy)
        assert seen.log.propensities is not None
        assert set(seen.log.propensities.tolist()) == {0.9, 0.1}
        assert seen.log.rewards.mean() == pytest.approx(ROUTER_REWARD, abs=0.02)
        other = even.observe(14_000, 0, run)
        assert np.abs(other.policies - other.behavior).sum() > 0.2


def test_random_worlds_are_drawn_as_stated() -> None:
    worlds = [world for seed in range(20) for world in random_worlds(seed)]
    for i, world in enumerate(worlds):
        K, q, r = len(world.means), np.array(world.behavior), np.array(world.means)
        assert 2 <= K <= 15
        assert q.min() >= 0.1 / K * (1 - 1e-9)
        assert q.sum() == pytest.approx(1.0)
        assert 0.01 <= r.min() <= r.max() <= 0.99
        assert (world.policy is None) == (i % 2 == 0)
        if world.policy is not None:
            assert world.policy == tuple((r == r.max()).astype(float))
    assert {len(world.means) for world in worlds} == set(range(2, 16))
    deviations = np.concatenate([np.array(w.means) - np.mean(w.means) for w in worlds])
    assert deviations.std() == pytest.approx(0.08, abs=0.01)


def test_a_learner_gets_no_bets_that_move() -> None:
    """They would test that no round has a gain."""
    learner = PlainGame("learner", 100, (0.5, 0.5), (0.2, 0.8))
    assert {"hedged", "plug_in"}.isdisjoint(decision_rounds(learner, 100, 0, 0))
