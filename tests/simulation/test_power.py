"""Simulated decisions: those of certificates on the same logs, exactly, or in blocks by law."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import understudy as us
from tests.support.strategies import Array
from understudy.certificates import Evidence
from understudy.simulation import power
from understudy.simulation.game import RandomStreams, log_chunks
from understudy.simulation.planned_game import PlannedGame
from understudy.simulation.power import (
    Blocks,
    Decisions,
    PlannedRun,
    block_ends,
    can_be_in_blocks,
    decision_rounds,
    stages,
)

Integers = NDArray[np.int64]
Q = np.array([0.5, 0.3, 0.2])
MEANS = np.array([0.3, 0.4, 0.6])
BEST = np.array([0.0, 0.0, 1.0])
MIXED = np.array([0.1, 0.2, 0.7])
ROUNDS = 600
TARGETS: dict[str, Any] = {
    "best": BEST,
    "mixed": MIXED,
    "Exp3-IX": us.exp3_ix(Q, horizon=ROUNDS),
    "grid": us.prod_grid(Q, prior="behavior"),
    "logged": us.exp3_ix(us.Logged(3), horizon=ROUNDS),
}
LATENCY = us.Guardrail("latency_ms", low=0.0, high=1000.0, better="lower", margin=100.0)
ERRORS = us.Guardrail("error", low=0.0, high=1.0, better="lower", margin=0.1)
GUARDRAILS = us.PlannedGuardrail(LATENCY, 200.0, 50.0), us.PlannedGuardrail(ERRORS, 0.02)


def log_of(run: int, seed: int = 0) -> us.Log:
    """The log that a simulation of the library draws in this run."""
    game = us.Game(us.adversaries.stationary(MEANS), Q, ROUNDS)
    (whole,) = log_chunks(game, RandomStreams(seed, run), size=ROUNDS, all_rewards=False)
    return whole.log


def play(game: PlannedGame, **options: Any) -> Decisions:
    chosen = {"runs": 12, "enough": 12, "seed": 0, "longest": ROUNDS, "jobs": 1, **options}
    return decision_rounds(game, 0.95, **chosen)


@pytest.mark.parametrize("against", [None, 0])
@pytest.mark.parametrize("name", TARGETS)
def test_a_decision_is_that_of_certify_on_the_same_log(name: str, against: int | None) -> None:
    target = TARGETS[name]
    baseline = None if against is None else np.eye(3)[against]
    found, played, _ = play(PlannedGame(Q, MEANS, target, baseline))
    assert played == ROUNDS or np.isfinite(found).all()
    assert np.isfinite(found).sum() > 3
    for run, round_ in enumerate(found):
        log = log_of(run)
        policy: Any = target
        if not isinstance(target, np.ndarray):
            shown = log if name == "logged" else us.Log(log.actions, log.rewards)
            policy = target.replay(target.init(), shown)[1]
        plain = us.Log(log.actions, log.rewards)
        over = None if baseline is None else us.FixedPolicy(baseline)
        certified = us.certify(plain, policy, behavior=Q, against=over)
        assert (certified.promoted_at or math.inf) == round_


@pytest.mark.parametrize("name", ["mixed", "Exp3-IX"])
def test_decisions_do_not_depend_on_batches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    game = PlannedGame(Q, MEANS, TARGETS[name])
    found, _, _ = play(game)
    monkeypatch.setattr(power, "CHUNK", 7)
    monkeypatch.setattr(power, "TASKS", 3)
    monkeypatch.setattr(power, "FIRST_STAGE", 100)
    again, _, _ = play(game, jobs=2)
    assert again.tolist() == found.tolist()


@pytest.mark.parametrize("guardrails", [(), GUARDRAILS])
def test_a_run_is_a_function_of_seed_and_number(guardrails: Any) -> None:
    game = PlannedGame(Q, MEANS - 0.2, BEST, None, guardrails)
    found, _, _ = play(game, exact=100, longest=5_000)
    fewer, _, _ = play(game, exact=100, longest=5_000, runs=5, enough=5)
    assert fewer.tolist() == found[:5].tolist()
    assert play(game, exact=100, longest=5_000)[0].tolist() == found.tolist()
    assert play(game, exact=100, longest=5_000, seed=1)[0].tolist() != found.tolist()


def test_runs_end_when_enough_are_decided() -> None:
    reported: list[int] = []
    game = PlannedGame(Q, MEANS, BEST)
    found, played, _ = play(game, enough=6, exact=64, longest=10**6, report=reported.append)
    assert 6 <= np.isfinite(found).sum() == sum(reported)
    assert np.max(found, where=np.isfinite(found), initial=0.0) <= played < 10**6
    assert played < np.sort(play(game, longest=10**6)[0])[6]


class Replayed:
    """A generator that gives, for blocks of one round each, the rounds of a log."""

    def __init__(self, group: Integers, outcomes: list[Integers]) -> None:
        self.group, self.outcomes, self.at, self.metric = group, outcomes, 0, 0

    def multinomial(self, rounds: Integers, shares: Array) -> Integers:
        assert (rounds == 1).all()
        rows = slice(self.at, self.at + len(rounds))
        self.drawn, self.metric = rows, 0
        self.at = rows.stop
        return np.asarray(np.eye(len(shares), dtype=np.int64)[self.group[rows]])

    def binomial(self, counts: Integers, _chance: Array) -> Integers:
        own = self.outcomes[self.metric][self.drawn]
        self.metric += 1
        return np.asarray(counts * own[:, np.newaxis])


def play_log(blocks: Blocks, group: Integers, outcomes: list[Integers]) -> None:
    """Let one run go on with the rounds of a log, each a block of its own."""
    blocks.generators = [Replayed(group, outcomes)]  # type: ignore[list-item] # a generator
    for _ in blocks.play(blocks.rounds + len(group)):
        pass


@pytest.mark.parametrize("lost", [0, 80])
def test_blocks_of_one_round_decide_as_the_joint_certificate(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With guardrails, on the same log: at the points, for all of them together, in any window.

    In the first rounds that are `lost`, the policy earns less and breaks its guardrails.
    """
    monkeypatch.setattr(power, "BLOCKS_OF_GUARDRAILS", 8)  # then blocks have one round until 400
    q, policy, n, decided = np.array([0.5, 0.5]), np.array([0.0, 1.0]), 390, []
    latency = us.Guardrail("latency_ms", low=0.0, high=1000.0, better="lower", margin=100.0)
    errors = us.Guardrail("error", low=0.0, high=1.0, better="lower", margin=0.5)
    planned = us.PlannedGuardrail(latency, 200.0, 150.0), us.PlannedGuardrail(errors, 0.02)
    game = PlannedGame(q, np.array([0.05, 0.9]), policy, None, planned)
    assert game.differences.tolist() == [-1.0, 1.0]  # the groups are the actions
    bets = [one.bets for one in game.certificates(0.9)]
    for run in range(12):
        rng = np.random.default_rng(run)
        actions = rng.integers(2, size=n)
        high = [(rng.random(n) < one.chance[actions]).astype(int) for one in game.metrics]
        for one in high:
            one[:lost] = 1 - actions[:lost]
        blocks = Blocks(game, bets, [PlannedRun(game, bets[0], RandomStreams(0, run))])
        play_log(blocks, actions, high)
        joint = us.JointCertificate.begin(us.Certificate(q, 0.9), [latency, errors])
        pairs = zip(high[1:], game.metrics[1:], strict=True)
        values = np.stack([np.where(h, m.high, m.low) for h, m in pairs], 1)
        log = us.Log(actions, high[0].astype(float))
        joint = joint.advance(log, policy[actions], 2.0, values)
        decided.append(joint.crossed)
        assert blocks.decided.tolist() == [joint.crossed or math.inf]
        assert (blocks.alone[:, 0] <= blocks.decided[0]).all()
    assert len(set(decided)) > 3
    assert 0 < max(decided) < n


@pytest.mark.parametrize(("target", "against"), [(MIXED, 0), (BEST, 0), (BEST, None), (MIXED, 1)])
def test_blocks_of_one_round_have_the_wealth_of_certificates(
    target: Array, against: int | None
) -> None:
    """After exact rounds, too: sums, windows and centers go on, also where centers are capped."""
    baseline = None if against is None else np.eye(3)[against]
    game = PlannedGame(Q, MEANS, target, baseline)
    (certificate,) = game.certificates(0.999999)
    rng, n = np.random.default_rng(0), 300
    actions = rng.choice(3, size=n, p=Q)
    log = us.Log(actions, (rng.random(n) < 0.9).astype(float))
    begun = certificate.observe(log[:40], us.FixedPolicy(target))
    run = PlannedRun(game, certificate.bets, RandomStreams(0, 0))
    run.bets, run.evidence = certificate.bets, begun.evidence  # type: ignore[assignment] # of rules 2
    blocks = Blocks(game, [run.bets], [run])
    group = np.unique(game.differences, return_inverse=True)[1]
    play_log(blocks, group[actions[40:]], [log.rewards[40:].astype(int)])
    whole = certificate.observe(log, us.FixedPolicy(target))
    assert isinstance(whole.evidence, Evidence)
    (metric,), S = blocks.metrics, whole.evidence.log_wealths()[whole.bets.place(2)]  # of the gain
    np.testing.assert_allclose(metric.S.ravel(), S, rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(metric.windows, whole.evidence.windows, strict=True):
        np.testing.assert_allclose(mine.ravel(), theirs, rtol=1e-9, atol=1e-12)
    assert metric.earned.tolist() == [float(log.rewards.sum())]


def test_a_metric_alone_decides_as_it_does_by_itself() -> None:
    """The goal at half of δ, looked at at points, and a guardrail that is never shown."""
    strict = us.PlannedGuardrail(us.Guardrail("error", 0.0, 1.0, "lower", 0.0), 0.5)
    game = PlannedGame(Q, MEANS, BEST, None, (strict,))
    found = play(game, longest=2_000)
    assert found.alone is not None
    assert found.alone.shape == (2, 12)
    assert np.isfinite(found.rounds).sum() <= 1
    easy = us.PlannedGuardrail(us.Guardrail("error", 0.0, 1.0, "lower", 0.999), 0.5)
    alone = play(PlannedGame(Q, MEANS, BEST, None, (easy,)), longest=2_000)
    assert alone.alone is not None
    assert alone.rounds.tolist() == np.maximum(alone.alone[0], alone.alone[1]).tolist()
    assert np.median(alone.alone[0]) == pytest.approx(np.median(found.alone[0]), rel=0.5)


def test_guardrails_have_centers_of_their_own() -> None:
    """The wealth of a metric with outcomes between 0 and 1 is that of its certificate."""
    game = PlannedGame(Q, MEANS, BEST, None, GUARDRAILS)
    certificates = game.certificates(0.95)
    rng, n = np.random.default_rng(1), 90
    actions, metric = rng.choice(3, size=n, p=Q), game.metrics[1]
    high = [rng.integers(2, size=n) for _ in game.metrics]
    bets = [one.bets for one in certificates]
    blocks = Blocks(game, bets, [PlannedRun(game, bets[0], RandomStreams(0, 0))])
    play_log(blocks, np.unique(game.differences, return_inverse=True)[1][actions], high)
    values = np.where(high[1], metric.high, metric.low)
    evidence = certificates[1].observe(us.Log(actions, values), us.FixedPolicy(BEST)).evidence
    S = evidence.log_wealths()[bets[1].place(2)]
    np.testing.assert_allclose(blocks.metrics[1].S.ravel(), S, rtol=1e-9, atol=1e-12)


@pytest.mark.large
def test_blocks_decide_as_late_as_single_rounds() -> None:
    """Quartiles of 1 000 runs each, of two seeds: four standard errors are about 20 %."""
    game = PlannedGame(np.array([0.8, 0.2]), np.array([0.5, 0.58]), np.array([0.0, 1.0]))
    options: dict[str, Any] = {"runs": 1_000, "enough": 800, "longest": 10**6, "jobs": 2}
    exact, _, _ = play(game, exact=10**6, **options)
    blocks, _, _ = play(game, exact=64, **{**options, "seed": 1})
    for share in (0.25, 0.5, 0.75):
        ratio = np.quantile(blocks, share, method="lower") / np.quantile(
            exact, share, method="lower"
        )
        assert 0.8 < ratio < 1.2


def test_blocks_end_at_points_and_before_windows() -> None:
    ends = list(block_ends(0, 10_000, 4))
    rounds = [end for end, _ in ends]
    assert rounds == sorted(set(rounds))
    assert rounds[:50] == list(range(1, 51))
    assert rounds[-1] == 10_000
    assert {2**j - 1 for j in range(1, 14)} <= set(rounds)
    points = [1]
    while points[-1] < 9_000:
        points.append(max(points[-1] + 1, -(-points[-1] * 102 // 100)))
    assert [end for end, is_point in ends if is_point and end <= 9_000] == points[:-1]
    assert [end for end, _ in block_ends(500, 10_000, 4)] == [end for end in rounds if end > 500]


def test_stages_grow_up_to_the_longest() -> None:
    assert list(stages(0)) == []
    assert list(stages(10)) == [10]
    found = list(stages(1_000))
    assert found == [256, 333, 433, 563, 732, 952, 1_000]


def test_many_different_weights_are_not_in_blocks() -> None:
    q = np.arange(1.0, 101.0)
    q /= q.sum()
    means = np.linspace(0.1, 0.9, 100)
    game = PlannedGame(q, means, means / means.sum())
    assert not can_be_in_blocks(game)
    assert can_be_in_blocks(dataclasses.replace(game, guardrails=GUARDRAILS))
    found, played, _ = play(game, runs=2, enough=2, exact=10, longest=300)
    assert played == 300
    assert len(found) == 2
