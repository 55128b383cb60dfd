"""`understudy bench policies`: logs with true propensities, exact values, honest counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.policies import evaluate, missing, score, understudy_default
from benchmarks.policy_peers import (
    CHUNK,
    PRODUCTION,
    VOWPAL,
    Competitor,
    Referee,
    greedy_means,
    logistic_regression,
    one_hot,
    production,
)
from benchmarks.policy_tables import DEFAULT, BenchmarkCell, Difference, Score, evaluation, growth
from benchmarks.policy_worlds import (
    LOGGERS,
    NO_CONTEXTS,
    HeldOut,
    Logger,
    ProductionLog,
    World,
    draw_log,
    null_world,
    stream,
)

pytestmark = pytest.mark.plain

Array = NDArray[np.float64]
K = 4


def small_world(examples: int = 200) -> World:
    """Four classes around four corners: any linear model tells them apart."""
    rng = np.random.default_rng(5)
    labels = np.arange(examples) % K
    contexts = 3.0 * np.eye(K)[labels] + rng.normal(size=(examples, K))
    order = rng.permutation(examples)
    return World("small", contexts, np.eye(K)[labels], order[50:], order[:50])


WORLD = small_world()


def draw(logger: Logger, rounds: int, world: World = WORLD) -> tuple[ProductionLog, Array, HeldOut]:
    return draw_log(world, logger, rounds, np.random.default_rng(7))


@pytest.mark.parametrize("name", LOGGERS)
def test_propensities_are_true_and_cover_every_action(name: str) -> None:
    """Of 1{action = a}/q − 1, whose mean is 0 for each a at the start and at the end of a log."""
    log, means, held_out = draw(LOGGERS[name], 40_000)
    assert log.production.min() >= 0.2 / K - 1e-12
    np.testing.assert_allclose(log.production.sum(axis=1), 1.0)
    np.testing.assert_allclose(held_out.production.sum(axis=1), 1.0)
    np.testing.assert_array_equal(log.propensities, log.production[range(len(log)), log.actions])
    for part in (slice(10_000), slice(30_000, None)):
        errors = one_hot(log.actions[part], K) / log.production[part] - 1.0
        deviation = np.sqrt((1.0 / log.production[part] - 1.0).sum(axis=0))
        assert (np.abs(errors.sum(axis=0)) < 4 * deviation).all()
    np.testing.assert_array_equal(log.rewards, means[range(len(log)), log.actions])


def test_the_drifting_logger_drifts_and_the_others_do_not() -> None:
    for name, logger in LOGGERS.items():
        deployed = logger.deploy(WORLD, np.random.default_rng(0))
        rows = np.zeros(2, dtype=np.int64)
        first, last = deployed.probabilities(rows, np.array([0.0, 1.0]))
        assert (first == last).all() == (name != "drifting")


def test_rows_held_out_are_in_no_log() -> None:
    shown = WORLD.draw(10_000, np.random.default_rng(0))
    assert set(shown) == set(WORLD.train)
    assert not set(WORLD.train) & set(WORLD.held_out)


def test_a_game_shows_its_phases_in_their_order() -> None:
    world, logger, _ = NO_CONTEXTS["switching leaders"]()
    log, means, _ = draw(logger, 11, world)
    assert log.contexts.shape == (11, 0)
    assert means.argmax(axis=1).tolist() == [9] * 6 + [0] * 5


SOFT = replace(WORLD, means=0.1 + 0.6 * WORLD.means)  # other actions than the label earn too


@pytest.mark.parametrize(("rounds", "world"), [(500, WORLD), (CHUNK + 300, WORLD), (500, SOFT)])
def test_values_of_a_known_policy_are_the_truth(rounds: int, world: World) -> None:
    log, means, held_out = draw(LOGGERS["ε-greedy"], rounds, world)
    mixed = np.array([0.1, 0.2, 0.3, 0.4])

    def plays(log: ProductionLog, held_out: HeldOut, referee: Referee) -> Array:
        for start in range(0, len(log), 64):  # in chunks that are not the referee's
            referee.record(np.tile(mixed, (len(log.actions[start : start + 64]), 1)))
        return np.tile(mixed, (len(held_out.contexts), 1))

    found = score(plays, world, log, means, held_out)
    after = slice(log.warmup, None)
    truth = (means[after] @ mixed).mean()
    assert found.progressive == pytest.approx(truth)
    assert found.final == pytest.approx((world.means[world.held_out] @ mixed).mean())
    produced = (means * log.production).sum(axis=1)[after].mean()
    assert found.gain == pytest.approx(truth - produced)
    assert found.certified is not None
    assert found.certified < truth - produced


def test_production_has_no_gain() -> None:
    log, means, held_out = draw(LOGGERS["drifting"], 2_000)
    found = score(production, WORLD, log, means, held_out)
    assert found.gain == 0
    assert found.promoted_at is None
    last = (held_out.production * WORLD.means[WORLD.held_out]).sum(axis=1).mean()
    assert found.final == pytest.approx(last)


def test_a_promotion_without_a_gain_is_counted_as_false() -> None:
    """A competitor that sees its own round's reward fools the certificate, not the referee."""
    log, means, held_out = draw(LOGGERS["ε-greedy"], 2_000, null_world(WORLD))
    assert np.ptp(means) == 0
    assert 0.4 < log.rewards.mean() < 0.6

    def cheats(log: ProductionLog, held_out: HeldOut, referee: Referee) -> Array:
        other = (log.actions + 1) % K
        referee.record_actions(np.where(log.rewards > 0, log.actions, other))
        return held_out.production

    found = score(cheats, null_world(WORLD), log, means, held_out)
    assert found.promoted_at is not None
    assert found.false_promotion
    honest = score(production, null_world(WORLD), log, means, held_out)
    assert not honest.false_promotion
    certain, means, held_out = draw(LOGGERS["skewed"], 5_000)
    assert not score(logistic_regression, WORLD, certain, means, held_out).false_promotion


def test_rounds_that_chose_a_setting_are_not_certified() -> None:
    """A competitor knows the rewards of the first half, says so, and is certified after it."""
    log, means, held_out = draw(LOGGERS["ε-greedy"], 2_000, null_world(WORLD))
    half = len(log) // 2

    def tuned(log: ProductionLog, held_out: HeldOut, referee: Referee) -> Array:
        known = np.where(log.rewards > 0, log.actions, (log.actions + 1) % K)
        referee.record_actions(known[:half])
        referee.record(log.production[half:])
        referee.settled = half
        return held_out.production

    found = score(tuned, null_world(WORLD), log, means, held_out)
    assert found.promoted_at is None
    assert found.certified is not None
    assert found.certified <= 0


@pytest.mark.parametrize(
    "competitor",
    [
        logistic_regression,
        pytest.param(VOWPAL["VW mtr"], marks=pytest.mark.needs("vowpalwabbit"), id="VW mtr"),
    ],
)
def test_tuned_competitors_are_promoted_in_the_second_half(competitor: Competitor) -> None:
    log, means, held_out = draw(LOGGERS["skewed"], 4_000)
    found = score(competitor, WORLD, log, means, held_out)
    assert found.promoted_at is not None
    assert found.promoted_at > len(log) // 2
    assert found.certified is not None
    assert 0 < found.certified < 1


def test_rounds_of_promotion_count_from_the_beginning_of_the_log() -> None:
    """The certificate of an untuned policy begins after the warm-up."""
    log, means, held_out = draw(LOGGERS["skewed"], 4_000)
    best = int(means.mean(axis=0).argmax())

    def mostly(log: ProductionLog, held_out: HeldOut, referee: Referee) -> Array:
        right = 0.8 * means + 0.2 * one_hot(np.full(len(log), best), K)
        referee.record(right)
        return held_out.production

    found = score(mostly, WORLD, log, means, held_out)
    assert found.promoted_at is not None
    assert log.warmup < found.promoted_at < len(log) // 2


def test_greedy_means_know_earlier_rounds_only() -> None:
    log, means, held_out = draw(LOGGERS["skewed"], CHUNK + 500)
    referee = Referee(log, means)
    final = greedy_means(log, held_out, referee)
    counts, sums, chosen = np.zeros(K), np.zeros(K), []
    for action, reward in zip(log.actions, log.rewards, strict=True):
        chosen.append(int((sums / np.maximum(counts, 1)).argmax()))
        counts[action] += 1
        sums[action] += reward
    np.testing.assert_array_equal(referee.logged, np.array(chosen) == log.actions)
    assert final[0].argmax() == (sums / counts).argmax()


@pytest.mark.parametrize(
    "competitor",
    [
        pytest.param(logistic_regression, id="logistic regression"),
        pytest.param(understudy_default, id="Understudy"),
        *(
            pytest.param(competitor, id=name, marks=pytest.mark.needs("vowpalwabbit"))
            for name, competitor in VOWPAL.items()
        ),
    ],
)
def test_competitors_learn_an_easy_world(competitor: Competitor) -> None:
    """Production earns 1/K; every policy is a distribution, and ends far above chance."""
    log, means, held_out = draw(LOGGERS["skewed"], 4_000)
    referee = Referee(log, means)
    final = competitor(log, held_out, referee)
    np.testing.assert_allclose(final.sum(axis=1), 1.0)
    assert (final * WORLD.means[WORLD.held_out]).sum(axis=1).mean() > 0.7
    assert referee.recorded in {0, len(log)}
    if referee.recorded:
        assert referee.values[-1_000:].mean() > referee.values[:400].mean()


def test_a_log_depends_on_its_seed_and_cell_alone() -> None:
    assert stream(1, "a", "b").random() == stream(1, "a", "b").random()
    assert stream(1, "a", "b").random() != stream(2, "a", "b").random()
    assert stream(1, "a", "b").random() != stream(1, "a", "c").random()
    who = {PRODUCTION: production}
    first, second = (evaluate("clicks", "", 1_000, 3, who=who) for _ in range(2))
    assert first == second


def cell(default: list[float], vowpal: list[float], produced: list[float]) -> BenchmarkCell:
    values = {DEFAULT: default, "VW ips": vowpal, PRODUCTION: produced}
    seeds = range(len(default))
    return BenchmarkCell(
        "c", [{who: Score(v[i], v[i] + 0.1) for who, v in values.items()} for i in seeds]
    )


def test_the_targets_count_cells_by_paired_errors() -> None:
    """Differences of −0.1 ± 0.1 are noise beside VW; −0.2 ± 0 is below VW, and below production."""
    noise = cell([0.5, 0.5], [0.5, 0.7], [0.3, 0.3])
    worse = cell([0.5, 0.4], [0.7, 0.6], [0.6, 0.5])
    found = evaluation([noise, worse])
    reached, _, below, _ = (ratio.value for ratio in found.ratios)
    assert reached == 0.5
    assert below == 1
    assert [ratio.kept for ratio in found.ratios] == [False] * 4
    assert all(ratio.kept for ratio in evaluation([noise]).ratios)
    assert found.tables[0].rows[1][:2] == ["c", "0.450 ± 0.050"]


def test_a_log_without_effects_counts_its_false_promotions_only() -> None:
    false = Score(0.5, 0.5, promoted_at=3, false_promotion=True)
    null = BenchmarkCell("n", [{DEFAULT: false, PRODUCTION: Score(0.5, 0.5)}] * 2, null=True)
    *_, last = evaluation([cell([0.5, 0.5], [0.5, 0.5], [0.5, 0.5]), null]).ratios
    assert last.value == 1.0
    assert not last.kept


def test_growth_counts_steps_that_lose() -> None:
    ladder = [cell([v, v + 0.1], [0.0, 0.0], [0.0, 0.0]) for v in (0.5, 0.7, 0.8, 0.6)]
    found = growth([1, 2, 3, 4], {"set": ladder})
    assert [ratio.value for ratio in found.ratios] == [1, 1]
    assert [table.rows[1][0] for table in found.tables] == ["set, Understudy"] * 2


def test_one_seed_decides_nothing() -> None:
    assert not Difference.of([0.0], [1.0]).below(2.0)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("benchmarks.policies", "benchmarks.policy_worlds"):
        monkeypatch.setattr(f"{module}.installed", lambda _: False)
    reasons = missing()
    for name in ("VW dr", "digits", "letter"):
        assert any(name in reason for reason in reasons)
    assert all("pip install" in reason for reason in reasons)
