"""The defaults of `learn` on games with known means, and on the digits of examples/digits.py.

The games are those of docs/theory.md: rare clicks; two worlds with one rare action; two games with
a certificate, an easy one, and one whose best action is the one that production plays most.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import understudy as us
from benchmarks.measurement import Benchmark, Evaluation, Ratio, Report, Table
from benchmarks.policies import REMEDIES
from benchmarks.policy_worlds import NO_CONTEXTS
from benchmarks.replay import installed
from understudy.constraints import Array
from understudy.logs.features import LearnerFactory
from understudy.logs.settings import name_of_default

__all__ = ["DEFAULTS"]

RUNS, GAMES, SEEDS = 100, 200, 5
PROMOTION_ROUNDS = 20_000
REGRETS = {"clicks": 400.0, "rare A": 10_500.0, "rare B": 500.0}
PROMOTIONS = {"easy": None, "hard": 400.0}


@dataclass(frozen=True)
class FixedGame:
    """Production's policy, and the mean reward of every action in every round."""

    q: Array
    means: Array
    rounds: int

    def log(self, seed: int) -> us.Log:
        """The log of a run, with propensities."""
        rng = np.random.default_rng(seed)
        actions = us.behaviors.choose(self.q, rng.random(self.rounds))
        rewards = (rng.random(self.rounds) < self.means[actions]).astype(np.float64)
        return us.Log(actions, rewards, propensities=self.q[actions])


Maker = Callable[[FixedGame], Any]


def default(behavior: Any) -> Any:
    """The default of `learn` without contexts."""
    K = behavior.n_actions if isinstance(behavior, us.Logged) else len(behavior)
    name = name_of_default(behavior, contexts=False)
    return LearnerFactory(behavior, K).make(name, {})


LEARNERS: dict[str, Maker] = {
    "default, logged propensities": lambda game: default(us.Logged(n_actions=len(game.q))),
    "default, known behavior": lambda game: default(game.q),
    "coverage_adaptive": lambda game: us.coverage_adaptive(game.q, horizon=game.rounds),
    "exp3_ix": lambda game: us.exp3_ix(game.q, horizon=game.rounds),
}
DEFAULTS_OF_LEARN = tuple(LEARNERS)[:2]


def fixed_world(name: str) -> FixedGame:
    """A world of `bench policies` without contexts whose means are fixed."""
    world, logger, rounds = NO_CONTEXTS[name]()
    production = logger.deploy(world, np.random.default_rng(0))
    return FixedGame(production.start[0], world.means[0], rounds)


def promotion_games() -> dict[str, FixedGame]:
    """Two games with a certificate: in the hard one, production mostly plays the best action."""
    rising = np.linspace(1.0, 3.0, 10)
    return {
        "easy": FixedGame(rising / rising.sum(), np.append(np.full(9, 0.4), 0.7), PROMOTION_ROUNDS),
        "hard": FixedGame(
            np.append(np.full(9, 0.2 / 9), 0.8), np.append(np.full(9, 0.2), 0.6), PROMOTION_ROUNDS
        ),
    }


def regret(learner: Any, game: FixedGame, log: us.Log) -> float:
    """The regret of a learner against the best action, with the means of the rewards."""
    shown, state = learner.spec.visible(log), learner.init()
    if learner.spec.outside:
        production = np.tile(game.q, (len(log), 1))
        _, policies = learner.policies(state, shown, production=production)
        earned = float((policies @ game.means).sum())
    else:
        _, earned = learner.expected_reward(
            state, shown, game.means[np.newaxis], np.zeros(1, dtype=np.int64)
        )
    return float(game.means.max() * len(log) - earned)


def promoted_at(learner: Any, log: us.Log, K: int) -> float:
    """The round of promotion; infinite if there is none."""
    _, trace = learner.replay(learner.init(), learner.spec.visible(log))
    at = us.certify(log, trace, behavior=us.Logged(n_actions=K)).promoted_at
    return np.inf if at is None else float(at)


def _evaluate(quick: bool, report: Report) -> Evaluation:
    runs, games, seeds = (2, 2, 1) if quick else (RUNS, GAMES, SEEDS)
    regrets, ratios = _regrets(runs, report)
    promotions, more = _promotions(games, report)
    tables, ratios = [regrets, promotions], [*ratios, *more]
    if installed("sklearn"):
        table, more = _digits(seeds, report, quick=quick)
        tables, ratios = [*tables, table], [*ratios, *more]
    return Evaluation(tables, ratios)


def _regrets(runs: int, report: Report) -> tuple[Table, list[Ratio]]:
    rows, ratios = [], []
    for done, (name, bound) in enumerate(REGRETS.items()):
        game = fixed_world(name)
        row = [f"{name}, {game.rounds:,} rounds"]
        for who, make in LEARNERS.items():
            report(f"{name}, {who}", done, len(REGRETS))
            found = [regret(make(game), game, game.log(seed)) for seed in range(runs)]
            error = np.std(found, ddof=1) / np.sqrt(runs)
            row.append(f"{np.mean(found):,.0f} ± {error:,.0f}")
            if who in DEFAULTS_OF_LEARN:
                ratios.append(Ratio(f"regret, {name}, {who}", float(np.mean(found)), at_most=bound))
        rows.append(row)
    return Table(f"Regret, mean of {runs} runs", ["", *LEARNERS], rows), ratios


def _promotions(games: int, report: Report) -> tuple[Table, list[Ratio]]:
    rows, ratios = [], []
    for done, (name, game) in enumerate(promotion_games().items()):
        row = [name]
        for who, make in LEARNERS.items():
            report(f"{name} game, {who}", done, len(PROMOTIONS))
            found = [promoted_at(make(game), game.log(seed), len(game.q)) for seed in range(games)]
            median, promoted = float(np.median(found)), int(np.isfinite(found).sum())
            shown = f"{median:,.0f}" if np.isfinite(median) else "–"
            row.append(f"{shown} ({promoted}/{games})")
            bound = PROMOTIONS[name]
            if who in DEFAULTS_OF_LEARN and bound is not None:
                value = min(median, float(game.rounds))
                ratios.append(Ratio(f"promotion, {name} game, {who}", value, at_most=bound))
        rows.append(row)
    title = f"Round of promotion, median of {games} games (promoted games/games)"
    return Table(title, ["", *LEARNERS], rows), ratios


def _digits(seeds: int, report: Report, *, quick: bool) -> tuple[Table, list[Ratio]]:
    """The learners of examples/digits.py on logs of several seeds."""
    digits = importlib.import_module("examples.digits")
    rounds = digits.PREFIX + (200 if quick else digits.ROUNDS)
    found: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        world = digits.make_world(rng)
        shown, log = digits.make_log(world, rounds, rng)
        for name, learner in digits.make_learners(world, shown[: digits.PREFIX]).items():
            report(f"digits, {name}", seed, seeds)
            learned = digits.learn(world, shown, log, learner)
            at = learned.certified.promoted_at
            values = [
                float(learned.earned.mean()),
                learned.final,
                learned.certified.gain / len(learned.earned),
                np.inf if at is None else float(at),
            ]
            found.setdefault(name, []).append(values)
    rows = [
        [
            name,
            *(
                f"{min(values):.3f} … {max(values):.3f}"
                for values in list(zip(*logs, strict=True))[:3]
            ),
            f"{np.median([values[3] for values in logs]):,.0f}",
        ]
        for name, logs in found.items()
    ]
    title = f"Digits, {seeds} seeds (lowest … highest; median round of promotion)"
    columns = ["", "value while learning", "final, held out", "certified gain", "promoted after"]
    earned, final, gain, at = zip(*list(found.values())[-1], strict=True)
    ratios = [
        Ratio("digits, mixture, lowest value while learning", min(earned), at_least=0.97),
        Ratio("digits, mixture, lowest value of the final policy", min(final), at_least=0.96),
        Ratio("digits, mixture, lowest certified gain", min(gain), at_least=0.45),
        Ratio(
            "digits, mixture, median round of promotion",
            min(float(np.median(at)), float(rounds)),
            at_most=400.0,
        ),
    ]
    return Table(title, columns, rows), ratios


def _skipped() -> list[str]:
    return [] if installed("sklearn") else [f"digits: {REMEDIES['sklearn']}"]


DEFAULTS = Benchmark(
    "defaults",
    "The defaults of learn on known games",
    skipped=_skipped,
    evaluate=_evaluate,
)
