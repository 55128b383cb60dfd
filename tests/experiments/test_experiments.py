"""Figure 1 and its companions: the numbers, not only that they run."""

from __future__ import annotations

import csv
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.paths import DOCS
from understudy import Simulation
from understudy.experiments import EXPERIMENTS, ExperimentOptions, write
from understudy.experiments.experiment import RegretRow
from understudy.experiments.figure1 import FIGURE_1
from understudy.experiments.linear_game import LINEAR
from understudy.experiments.tail_probability import (
    PROBABILITY,
    bounds_of_runs,
    tail_games,
    tail_rows,
)
from understudy.experiments.unknown_coverage import ADAPTIVES, COMMON, PAIRS, RARE, rare_action_game
from understudy.learners import Learner

PUBLISHED = {  # read off the published figure, at α = 0 and α = 1
    (0.0, "Exp3"): 1900.0,
    (0.0, "Exp3-IX"): 1550.0,
    (1.0, "Exp3"): 2040.0,
    (1.0, "Exp3-IX"): 860.0,
}
READING = 25.0  # how finely the published figure can be read


@pytest.fixture(scope="module")
def ends() -> dict[float, Simulation]:
    """Full-size games at both ends of Figure 1: 100 runs, as published."""
    options = FIGURE_1.defaults
    return {
        point.alpha: us.simulate(
            point.game, point.learners, runs=options.runs, comparators=[0], jobs=2
        )
        for point in FIGURE_1.points(ExperimentOptions(100, 10_000, 100, alphas=2))
    }


@pytest.mark.large
@pytest.mark.parametrize(("alpha", "learner"), PUBLISHED)
def test_means_agree_with_the_published_figure(
    ends: dict[float, Simulation], alpha: float, learner: str
) -> None:
    """Both are means of 100 runs, so they differ by √2 standard errors, and by the reading."""
    regret = ends[alpha].regret[learner][:, 0]
    standard_error = math.sqrt(2) * regret.std(ddof=1) / math.sqrt(len(regret))
    assert abs(regret.mean() - PUBLISHED[alpha, learner]) < 3 * standard_error + READING


@pytest.mark.large
def test_exp3_ix_halves_the_regret_of_exp3_where_the_comparator_is_covered(
    ends: dict[float, Simulation],
) -> None:
    covered = ends[1.0].regret
    assert covered["Exp3-IX"].mean() < covered["Exp3"].mean() / 2


@pytest.mark.large
def test_the_ceiling_is_half_of_half_the_rounds(ends: dict[float, Simulation]) -> None:
    """(n/2)·½ = 2500 is what never playing the comparator costs on top: n is 10 000."""
    largest = max(result.regret["Exp3"].max() for result in ends.values())
    assert 2450 < largest <= 2500 + 1e-6


def test_figure_1_is_set_up_as_in_the_paper() -> None:
    points = list(FIGURE_1.points(FIGURE_1.defaults))
    assert FIGURE_1.defaults.runs == 100
    assert [point.alpha for point in points] == pytest.approx([k / 19 for k in range(20)])
    assert {(point.game.n_actions, point.game.rounds) for point in points} == {(100, 10_000)}
    learner = us.exp3_ix(points[0].game.behavior, horizon=10_000)
    assert learner.eta == math.sqrt(math.log(100) / 10_000)
    assert points[0].coverage == pytest.approx(5050)
    assert points[-1].coverage == pytest.approx(50.5)
    eta, q = learner.eta, 2 / 101
    by_hand = math.log(100) / eta + eta / 2 * 7500 / (q + eta / 2)
    assert points[-1].bounds["Exp3-IX"] == pytest.approx(by_hand)


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "sizes"),
    [("figure1", (8, 4000, 20)), ("unknown", (8, 4000, 20)), ("linear", (20, 600, 4))],
)
def test_mean_regret_stays_below_its_bound(name: str, sizes: tuple[int, int, int]) -> None:
    experiment = EXPERIMENTS[name]
    runs, rounds, actions = sizes
    rows = experiment.run(ExperimentOptions(runs, rounds, actions, alphas=4))
    bounded = [row for row in rows if row.bound is not None]
    assert all(row.mean < row.bound for row in bounded if row.bound is not None)
    telling = [row for row in bounded if row.bound is not None and row.bound < rounds / 4]
    assert telling  # some bounds are below the largest regret that the game allows


@pytest.mark.large
def test_both_learners_profit_from_coverage_known_behavior_or_not() -> None:
    rows = EXPERIMENTS["unknown"].run(ExperimentOptions(30, 4000, 20, alphas=2))
    for name in {row.learner for row in rows}:
        poor, good = (row.mean for row in rows if row.learner == name)
        assert good < poor / 2, name


@pytest.mark.large
def test_chernoff_has_the_smaller_bound_and_less_regret_where_coverage_is_poor() -> None:
    """Bounds at every α, the further apart the poorer the coverage; means of 30 runs at α < 1.

    Not at α = 1: there more pessimism than needed does no harm on this game, and even helps.
    """
    rows = EXPERIMENTS["unknown"].run(ExperimentOptions(30, 4000, 20, alphas=4))
    by_alpha: dict[float, dict[str, RegretRow]] = {}
    for row in rows:
        by_alpha.setdefault(row.alpha, {})[row.learner] = row
    gaps = []
    for own in by_alpha.values():
        theorem2, chernoff = own["Exp3-IX, unknown"], own["Exp3-IX, unknown, kl"]
        assert chernoff.mean < theorem2.mean or chernoff.alpha == 1.0
        assert chernoff.bound is not None
        assert theorem2.bound is not None
        gaps.append(theorem2.bound / chernoff.bound)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] > 1


def test_the_bound_of_a_run_is_the_theorems_for_its_own_rewards() -> None:
    game = tail_games(ExperimentOptions(runs=1, rounds=50, actions=3))["switching"]
    compared, rewards = np.array([0, 2, 2]), np.array([50.0, 0.0, 12.5])
    for who, delta in (("fixed", 0.1), ("best in hindsight", 0.02), ("fixed", None)):
        found = bounds_of_runs(game, compared, rewards, who, delta)
        arguments: dict[str, Any] = {"horizon": 50, "eta": us.theory.exp3_ix_rate(3, 50)}
        for i, (a, earned) in enumerate(zip(compared.tolist(), rewards.tolist(), strict=True)):
            totals = np.where(np.arange(3) == a, earned, 0.0)
            if delta is None:
                wanted = us.theory.theorem1_bound(
                    a, game.behavior, **arguments, total_rewards=totals
                )
            else:
                wanted = us.theory.theorem1_high_probability_bound(
                    a,
                    game.behavior,
                    **arguments,
                    delta=delta,
                    total_rewards=totals,
                    every_comparator=who != "fixed",
                )
            assert found[i] == pytest.approx(wanted, rel=1e-12)


def test_rows_count_the_runs_above_their_bounds() -> None:
    """Regrets made up around the bound: one of four runs above it, one of four at most exceeded."""
    game = tail_games(ExperimentOptions(runs=1, rounds=50, actions=3))["stationary"]
    limit = float(bounds_of_runs(game, np.array([0]), np.array([30.0]), "fixed", 0.2)[0])
    regret = np.full((4, 3), -5.0)
    regret[:, 0] = [0.0, 1.0, limit - 1e-6, limit + 1e-6]
    rows = list(tail_rows("made up", game, regret, 30.0 - regret[:, 0]))
    (row,) = [row for row in rows if (row.comparator, row.delta) == ("fixed", 0.2)]
    assert (row.above, row.standard_error) == (0.25, math.sqrt(3) / 8)
    assert row.bound == pytest.approx(limit)
    assert row.regret == pytest.approx(np.quantile(regret[:, 0], 0.8))
    assert row.above < row.at_most < 1
    (mean,) = [row for row in rows if row.delta is None]
    assert mean.regret == pytest.approx(regret[:, 0].mean())


@pytest.mark.large
def test_bounds_fail_no_more_often_than_they_may_and_single_runs_exceed_that_on_the_mean() -> None:
    """400 runs a game: within 3 standard errors of δ."""
    rows = PROBABILITY.run(ExperimentOptions(400, 500, 3))
    for row in rows:
        if row.delta is None:
            assert row.regret < row.bound
        else:
            error = math.sqrt(row.delta * (1 - row.delta) / 400)
            assert row.above <= row.delta + 3 * error
            assert row.regret < row.bound
    assert max(row.above for row in rows if row.delta is None) > 0.01


def test_linear_coverage_grows_as_the_behavior_slides_away() -> None:
    points = list(LINEAR.points(LINEAR.defaults))
    coverages = [point.coverage for point in points]
    assert coverages == sorted(coverages, reverse=True)
    assert coverages[0] > 5 * coverages[-1]


SEEN = {  # reported for these worlds: mean regret and standard error of 120 runs
    ("A", "Exp3-IX"): (15843, 32),
    ("A", "adaptive"): (8309, 320),
    ("A", "for C = 500"): (6600, 221),
    ("A", "for C = 9"): (11683, 424),
    ("B", "Exp3-IX"): (496, 26),
    ("B", "adaptive"): (783, 23),
    ("B", "for C = 500"): (1687, 4),
    ("B", "for C = 9"): (776, 23),
}


@pytest.mark.large
def test_the_two_worlds() -> None:
    """K = 10, n = 40 000, a rare action with q = .002: means as reported, within 4 errors of both.

    And the learner that was told nothing stays within 1.5 of the better tuning in both worlds.
    """
    n, best = 40_000, {"A": (RARE, 0.9), "B": (COMMON, 0.55)}
    for name, (action, mean) in best.items():
        game = rare_action_game(0.002, action, mean, n_actions=10, rounds=n)
        q = game.behavior
        learners: dict[str, Learner[Any]] = {
            "Exp3-IX": us.exp3_ix(q, horizon=n),
            "adaptive": us.coverage_adaptive(q, horizon=n),
            "for C = 500": us.exp3_ix(q, horizon=n, coverage=500.0),
            "for C = 9": us.exp3_ix(q, horizon=n, coverage=9.0),
        }
        found = us.simulate(game, learners, runs=120, comparators=[action], jobs=2).regret
        for learner, regret in found.items():
            error = regret.std(ddof=1) / math.sqrt(120)
            wanted, theirs = SEEN[name, learner]
            assert abs(regret.mean() - wanted) < 4 * math.hypot(error, theirs), (name, learner)
        better = min(found["for C = 500"].mean(), found["for C = 9"].mean())
        assert found["adaptive"].mean() < 1.5 * better


def rates_table() -> str:
    """The page's table of the rates experiment, from its numbers."""
    lines = ["| q | rounds | best single rate, worst ratio | adaptive | twice its rates |"]
    lines.append("|---|---:|---:|---:|---:|")
    for pair in PAIRS:
        own = {row["learner"]: row for row in read_csv("rates") if row["pair"] == pair.name}
        worst = {name: float(row["worst_ratio"]) for name, row in own.items()}
        best = min((name for name in own if name.startswith("C = ")), key=lambda name: worst[name])
        cells = [f"{worst[best]:.2f} (for {best})", *(f"{worst[name]:.2f}" for name in ADAPTIVES)]
        lines.append(f"| {pair.name} | {pair.rounds:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def read_csv(name: str) -> list[dict[str, str]]:
    with (DOCS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_table_on_the_page_is_the_numbers_beside_it() -> None:
    assert rates_table() in (DOCS / "experiments.md").read_text(encoding="utf-8")


def test_on_the_hardest_pair_the_adaptive_learner_is_below_every_single_rate() -> None:
    """The committed table (redrawn by the test below): worst ratios, pair by pair."""
    rows = read_csv("rates")
    for pair in PAIRS:
        own = {r["learner"]: float(r["worst_ratio"]) for r in rows if r["pair"] == pair.name}
        single = [ratio for learner, ratio in own.items() if learner.startswith("C = ")]
        assert len(single) >= 15
        assert own["adaptive"] < min(single), pair.name


def test_notes_are_true() -> None:
    """Exp3's condition fails everywhere at full size, and holds everywhere in an easy game."""
    assert any("0 of 20" in note for note in FIGURE_1.notes(FIGURE_1.defaults))
    easy = ExperimentOptions(1, 10_000, 2, alphas=5)
    assert any("5 of 5" in note for note in FIGURE_1.notes(easy))


@pytest.mark.full
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_pictures_in_the_docs_are_what_the_commands_draw(name: str, tmp_path: Path) -> None:
    """Numbers to 1e-6 (processors differ in the last bits of exp), pixels to a hundredth."""
    from matplotlib.image import imread  # noqa: PLC0415 - only this test reads pictures

    experiment = EXPERIMENTS[name]
    options = replace(experiment.defaults, jobs=-1)
    rows = experiment.run(options)
    committed = read_csv(name)
    assert len(rows) == len(committed)
    for row, line in zip(rows, committed, strict=True):
        for column, value in asdict(row).items():
            if isinstance(value, float):
                assert value == pytest.approx(float(line[column]), rel=1e-6, abs=1e-6)
            else:
                assert str("" if value is None else value) == line[column]
    write(experiment, options, rows, tmp_path)
    drawn, shown = imread(tmp_path / f"{name}.png"), imread(DOCS / f"{name}.png")
    assert drawn.shape == shown.shape
    assert np.abs(drawn - shown).mean() < 0.01
