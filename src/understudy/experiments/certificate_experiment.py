"""Certificates: how soon they decide, beside what is possible, and how often they are ever wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from understudy.errors import InvalidArgument
from understudy.experiments.certificate_games import CONFIDENCE, KINDS, GameKind
from understudy.experiments.certificate_speed import SEQUENCES, decision_rounds
from understudy.experiments.certificate_validity import STATEMENTS, ever_wrong
from understudy.experiments.decision_games import (
    BETTER,
    ROUTERS,
    WORSE,
    DecisionGame,
    random_worlds,
)
from understudy.experiments.experiment import Column, Experiment, ExperimentOptions
from understudy.simulation.simulate import in_parallel, reporter
from understudy.types import chunks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMES_PER_TASK = 10  # of a worker: enough that the cost of a task does not show
SMALL_SHARE = 0.9  # of the games, have decided by the later of the two rounds of a sequence
BETTER_PART, WORSE_PART, ROUTER_PART = "promote", "worse", "router"
WORLD_PART, VALIDITY_PART = "worlds", "ever wrong"


@dataclass(frozen=True)
class CertificateRow:
    """A game or a kind of games. Of a game with a decision: the rounds until each sequence decides.

    Each is the median over the games, and with `_90` the round by which nine games in ten have
    decided; None if that is after the last round, or if the sequence is not valid in this game.
    `decided` and `decided_1` are the shares of games with a decision, now and by rules 1. Of a kind
    of unkind games: the share of games in which each statement was wrong after any round, and the
    largest share that chance `allows`, 5 % and three standard errors.
    """

    part: str
    game: str
    target: str
    rounds: int
    games: int
    limit: float | None = None
    now: float | None = None
    now_90: float | None = None
    rules_1: float | None = None
    rules_1_90: float | None = None
    bernstein: float | None = None
    bernstein_90: float | None = None
    hedged: float | None = None
    hedged_90: float | None = None
    plug_in: float | None = None
    plug_in_90: float | None = None
    decided: float | None = None
    decided_1: float | None = None
    lower: float | None = None
    upper: float | None = None
    gain: float | None = None
    gain_upper: float | None = None
    windows: float | None = None
    promoted: float | None = None
    worse: float | None = None
    allowed: float | None = None


def judge_speed(
    game: DecisionGame, options: ExperimentOptions, runs: range
) -> list[dict[str, float]]:
    """The rounds of the decisions in some runs of a game."""
    rounds = game_rounds(game, options)
    return [decision_rounds(game, rounds, options.seed, run) for run in runs]


def game_rounds(game: DecisionGame, options: ExperimentOptions) -> int:
    """Games with a decision have their own lengths, at the experiment's default size."""
    return max(2, round(game.rounds * options.rounds / CertificateExperiment.defaults.rounds))


def judge_validity(
    kind: GameKind, options: ExperimentOptions, runs: range
) -> list[dict[str, float]]:
    """Whether each statement was ever wrong, in some runs of a kind."""
    return [dict(ever_wrong(kind.record(options.rounds, options.seed, run))) for run in runs]


def summarize_speed(
    part: str, game: DecisionGame, options: ExperimentOptions, found: Sequence[Mapping[str, float]]
) -> CertificateRow:
    """Medians, and later quantiles, over the runs of a game."""
    quantiles: dict[str, float | None] = {}
    for name in SEQUENCES:
        if name in found[0]:
            rounds = np.array([one[name] for one in found])
            quantiles[name] = _finite(float(np.median(rounds)))
            if name != "limit":
                later = np.quantile(rounds, SMALL_SHARE, method="inverted_cdf")
                quantiles[f"{name}_90"] = _finite(float(later))
    shares = (np.mean([math.isfinite(one[name]) for one in found]) for name in ("now", "rules_1"))
    decided, decided_1 = (float(share) for share in shares)
    rounds, games = game_rounds(game, options), len(found)
    own = part, game.name, game.target, rounds, games
    return CertificateRow(*own, **quantiles, decided=decided, decided_1=decided_1)


def _finite(rounds: float) -> float | None:
    return rounds if math.isfinite(rounds) else None


def summarize_validity(
    part: str, kind: GameKind, options: ExperimentOptions, found: Sequence[Mapping[str, float]]
) -> CertificateRow:
    """The shares of games in which each statement was ever wrong."""
    games, delta = len(found), 1.0 - CONFIDENCE
    shares = {name: float(np.mean([one[name] for one in found])) for name in STATEMENTS}
    allowed = delta + 3.0 * math.sqrt(delta * (1.0 - delta) / games)
    own = part, kind.name, kind.target, kind.rounds(options.rounds), games
    return CertificateRow(*own, **shares, allowed=allowed)


Subject = DecisionGame | GameKind


def judge(subject: Subject, options: ExperimentOptions, runs: range) -> list[dict[str, float]]:
    """Some runs of a game or a kind, for a worker."""
    if isinstance(subject, GameKind):
        return judge_validity(subject, options, runs)
    return judge_speed(subject, options, runs)


def subjects(seed: int) -> list[tuple[str, Subject]]:
    """All games with their parts, in the order of the rows."""
    parts: dict[str, Sequence[Subject]] = {
        BETTER_PART: BETTER,
        WORSE_PART: WORSE,
        ROUTER_PART: ROUTERS,
        WORLD_PART: random_worlds(seed),
        VALIDITY_PART: KINDS,
    }
    return [(part, subject) for part, own in parts.items() for subject in own]


class CertificateExperiment(Experiment):
    """Rounds until a decision in some games, and the validity of all statements in unkind ones."""

    name = "certificate"
    title = "Certificates: how soon they decide, and how often they are ever wrong"
    defaults = ExperimentOptions(runs=300, rounds=2_000)
    sizes = ("runs", "rounds")
    text_columns = ("game",)
    sections = ("part",)
    columns: ClassVar[Mapping[str, Column]] = {"game": lambda row: row.game}

    def run(self, options: ExperimentOptions, *, progress: bool = False) -> list[CertificateRow]:
        if options.keep is not None:
            raise InvalidArgument(
                "keep", options.keep, "games of certificates are not kept", "leave it out"
            )
        everything = subjects(options.seed)
        tasks = [
            (subject, options, range(first, first + count))
            for _, subject in everything
            for first, count in chunks(options.runs, GAMES_PER_TASK)
        ]
        found: list[list[dict[str, float]]] = [[] for _ in everything]
        place = {id(subject): i for i, (_, subject) in enumerate(everything)}
        with (
            reporter(progress, options.runs * len(everything)) as report,
            in_parallel(judge, tasks, options.jobs) as results,
        ):
            for (subject, _, runs), own in zip(tasks, results, strict=True):
                found[place[id(subject)]] += own
                report(len(runs))
        return [
            summarize_validity(part, subject, options, own)
            if isinstance(subject, GameKind)
            else summarize_speed(part, subject, options, own)
            for (part, subject), own in zip(everything, found, strict=True)
        ]

    def draw(self, options: ExperimentOptions, rows: Sequence[CertificateRow]) -> Figure:
        raise NotImplementedError

    def notes(self, options: ExperimentOptions) -> list[str]:
        return []


CERTIFICATE = CertificateExperiment()
