"""Validity of certificates: how often they are ever wrong, and when they justify a promotion.

The target of a game is Exp3-IX or a fixed policy. The referee sees all rewards, so that in every
game the lower bound, the upper bound and the bound on the gain can be compared with the realised
rewards of the target, after every round. The games of the last two kinds are longer: they show how
soon a better policy is recognized.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from understudy import behaviors
from understudy.certificates import Certificate, certify
from understudy.constraints import Array
from understudy.errors import InvalidArgument
from understudy.experiments.experiment import Column, Experiment, ExperimentOptions
from understudy.learners import exp3_ix
from understudy.plots import CertificatePanel, draw_certificates
from understudy.simulation import Game, adversaries, play
from understudy.simulation.game import RandomStreams, log_chunks
from understudy.simulation.simulate import in_parallel, reporter
from understudy.types import Log, Trace, chunks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIDENCE = 0.95
GAMES_PER_TASK = 10  # of a worker: enough that the cost of a task does not show
# Games that show when a promotion is justified are longer, so that the hard one is promoted too;
# there are fewer of them, as each takes ten times as long.
PROMOTION_LENGTH, PROMOTION_SHARE = 10, 0.4
ADAPTIVE_LENGTH = 0.25  # of games against an adaptive adversary: they are played in Python
# Of a game: whether each bound was ever wrong, and means per round.
CHECKS = ("lower_wrong", "upper_wrong", "gain_wrong", "production", "lower", "truth", "upper")


@dataclass(frozen=True)
class GameKind:
    """A game of any number of rounds, and its target: Exp3-IX, or a fixed policy.

    `length` and `share` are factors of the experiment's rounds and runs.
    """

    name: str
    game: Callable[[int], Game]
    policy: tuple[float, ...] | None = None
    length: float = 1.0
    share: float = 1.0

    @property
    def target(self) -> str:
        return "Exp3-IX" if self.policy is None else "fixed policy"

    def rounds(self, options: ExperimentOptions) -> int:
        return max(1, round(self.length * options.rounds))

    def games(self, options: ExperimentOptions) -> int:
        return max(1, round(self.share * options.runs))


def rising_game(rounds: int) -> Game:
    """Ten actions, each played more often than the one before; the second pays .7, others .4."""
    weights, means = np.linspace(1.0, 3.0, 10), np.full(10, 0.4)
    means[1] = 0.7
    return Game(adversaries.stationary(means), weights / weights.sum(), rounds)


def settled_game(rounds: int) -> Game:
    """Production already plays the best of ten actions, four times in five."""
    behavior, means = np.append(np.full(9, 0.2 / 9), 0.8), np.append(np.full(9, 0.2), 0.6)
    return Game(adversaries.stationary(means), behavior, rounds)


def switching_game(rounds: int) -> Game:
    """The paper's game, with ten actions."""
    behavior = behaviors.interpolated(n_actions=10, alpha=0.9)
    return Game(adversaries.switching(n_actions=10, rounds=rounds), behavior, rounds)


def retaliating_game(rounds: int) -> Game:
    """An adversary that punishes the learner's last policy and action."""
    behavior = behaviors.interpolated(n_actions=5, alpha=0.9)
    return Game(adversaries.retaliating(n_actions=5), behavior, rounds)


def rare_game(rounds: int) -> Game:
    """The best action is played once in a thousand rounds."""
    behavior = np.append(np.full(4, 0.999 / 4), 0.001)
    return Game(adversaries.stationary([0.5, 0.4, 0.3, 0.2, 0.9]), behavior, rounds)


KINDS = (
    GameKind("stationary", rising_game),
    GameKind("switching", switching_game),
    GameKind("adaptive adversary", retaliating_game, length=ADAPTIVE_LENGTH),
    GameKind("tiny propensities", rare_game),
    GameKind("tiny, fixed policy", rare_game, policy=(0.25, 0.25, 0.0, 0.0, 0.5)),
    GameKind("promotion, easy", rising_game, length=PROMOTION_LENGTH, share=PROMOTION_SHARE),
    GameKind("promotion, hard", settled_game, length=PROMOTION_LENGTH, share=PROMOTION_SHARE),
)


@dataclass(frozen=True, eq=False)
class GameRecord:
    """A game that was played: its log, every π_t and all realised rewards, (n, K)."""

    log: Log
    policies: Array
    rewards: Array
    behavior: Array

    @property
    def trace(self) -> Trace:
        probability = self.policies[np.arange(len(self.log)), self.log.actions]
        return Trace(probability, past_horizon=0, n_actions=self.policies.shape[1])

    @property
    def target_rewards(self) -> Array:
        """⟨π_t, r_t⟩ of every round."""
        return np.asarray((self.policies * self.rewards).sum(axis=1))

    @property
    def gains(self) -> Array:
        """⟨π_t − π_B, r_t⟩ of every round."""
        return np.asarray(((self.policies - self.behavior) * self.rewards).sum(axis=1))


def record_game(kind: GameKind, options: ExperimentOptions, run: int) -> GameRecord:
    """Play a game of this kind; the record is a function of the seed and the run."""
    game = kind.game(kind.rounds(options))
    learner = exp3_ix(game.behavior, horizon=game.rounds)
    if not isinstance(game.adversary, adversaries.Oblivious):
        rounds = list(play(game, learner, seed=options.seed, run=run))
        rewards = np.array([one.rewards for one in rounds])
        actions = np.array([one.behavior_action for one in rounds])
        log = Log(actions, rewards[np.arange(len(actions)), actions])
        return GameRecord(log, np.array([one.policy for one in rounds]), rewards, game.behavior)
    streams = RandomStreams(options.seed, run)
    (whole,) = log_chunks(game, streams, size=game.rounds, all_rewards=True)
    log = whole.log.visible(propensities=False, features=False)
    if kind.policy is None:
        policies = learner.policies(learner.init(), log)[1]
    else:
        policies = np.broadcast_to(np.array(kind.policy), whole.rewards.shape)
    return GameRecord(log, policies, whole.rewards, game.behavior)


def ever_wrong(record: GameRecord, certificate: Certificate) -> tuple[bool, bool, bool]:
    """Whether the lower bound, the upper bound and the gain were wrong after any round.

    A bound m exceeds the true mean μ̄ exactly where the mixture at μ̄ exceeds 1/δ, so no root is
    computed.
    """
    R, w = record.log.rewards, record.trace.probability / record.behavior[record.log.actions]
    t, delta = np.arange(1, len(R) + 1), 1.0 - certificate.confidence
    lower, upper, gain = certificate.grids
    mean, mean_gain = np.cumsum(record.target_rewards) / t, np.cumsum(record.gains) / t

    def ever(lambdas: Array, x: Array, means: Array, share: float) -> bool:
        S = np.cumsum(np.log1p(np.outer(x, lambdas)), axis=0)
        fair = t[:, np.newaxis] * np.log1p(lambdas * means[:, np.newaxis])
        mixtures = np.logaddexp.reduce(S - fair, axis=-1) - np.log(len(lambdas))
        return bool((mixtures > -math.log(share)).any())

    return (
        ever(lower, w * R, mean, delta / 2),
        ever(upper, w * (1 - R), 1 - mean, delta / 2),
        ever(gain, (w - 1) * R, mean_gain, delta),
    )


def check_games(kind: GameKind, options: ExperimentOptions, runs: range) -> list[list[float]]:
    """Play some games of a kind: the numbers of `CHECKS` of each, and its round of promotion."""
    checks = []
    for run in runs:
        record = record_game(kind, options, run)
        start = Certificate(behavior=record.behavior, confidence=CONFIDENCE)
        certificate = start.observe(record.log, record.trace)
        n, truth = len(record.log), float(record.target_rewards.sum())
        totals = (certificate.production, certificate.lower, truth, certificate.upper)
        means = (total / n for total in totals)
        promoted_at = certificate.promoted_at or n + 1  # after the last round if never
        checks.append([*ever_wrong(record, start), *means, promoted_at])
    return checks


@dataclass(frozen=True)
class CertificateRow:
    """One kind of game: how many were played, and the share in which each bound was ever wrong.

    `limit` is 5 % plus three standard errors of a share of 5 %. `production`, `lower`, `truth` and
    `upper` are means per round, after the last one. `promotion` is the median round of the
    promotion, None if less than half of the games had one.
    """

    kind: str
    target: str
    rounds: int
    games: int
    lower_wrong: float
    upper_wrong: float
    gain_wrong: float
    limit: float
    production: float
    lower: float
    truth: float
    upper: float
    promoted: float
    promotion: float | None


def summarize(
    kind: GameKind, options: ExperimentOptions, checks: Sequence[Sequence[float]]
) -> CertificateRow:
    """Shares and means over all games of a kind."""
    n, delta = kind.rounds(options), 1 - CONFIDENCE
    *_, promotions = np.array(checks).T
    means = np.mean(checks, axis=0).tolist()
    median = float(np.median(promotions))
    return CertificateRow(
        kind=kind.name,
        target=kind.target,
        rounds=n,
        games=len(checks),
        limit=delta + 3 * math.sqrt(delta * (1 - delta) / len(checks)),
        **dict(zip(CHECKS, means, strict=False)),
        promoted=float((promotions <= n).mean()),
        promotion=median if median <= n else None,
    )


def example_panel(
    kind: GameKind, options: ExperimentOptions, row: CertificateRow
) -> CertificatePanel:
    """The certificate of the first game of a kind, over its rounds."""
    record = record_game(kind, options, run=0)
    found = certify(record.log, record.trace, behavior=record.behavior, confidence=CONFIDENCE)
    return replace(
        found.panel(kind.name),
        truth=np.cumsum(record.target_rewards)[found.rounds - 1] / found.rounds,
        wrong=(row.lower_wrong, row.upper_wrong, row.gain_wrong),
        limit=row.limit,
    )


class CertificateExperiment(Experiment):
    """Many games of every kind, and a picture of one game of each."""

    name = "certificate"
    title = "What the understudy would have earned, from rewards it never saw"
    defaults = ExperimentOptions(runs=500, rounds=2_000)
    sizes = ("runs", "rounds")
    text_columns = ("game",)
    sections = ("games",)
    columns: ClassVar[Mapping[str, Column]] = {
        "game": lambda row: row.kind,
        "wrong, %": lambda row: " ".join(
            f"{100 * share:.1f}" for share in (row.lower_wrong, row.upper_wrong, row.gain_wrong)
        ),
        "production": lambda row: f"{row.production:.3f}",
        "certified": lambda row: f"{row.lower:.2f}–{row.upper:.2f}",
        "truth": lambda row: f"{row.truth:.3f}",
        "promoted": lambda row: "" if row.promotion is None else f"{row.promotion:,.0f}",
    }

    def run(self, options: ExperimentOptions, *, progress: bool = False) -> list[CertificateRow]:
        if options.keep is not None:
            raise InvalidArgument(
                "keep", options.keep, "games of certificates are not kept", "leave it out"
            )
        tasks = [
            (kind, options, range(first, first + count))
            for kind in KINDS
            for first, count in chunks(kind.games(options), GAMES_PER_TASK)
        ]
        checks: dict[GameKind, list[list[float]]] = {kind: [] for kind in KINDS}
        total = sum(len(runs) for _, _, runs in tasks)
        with (
            reporter(progress, total) as report,
            in_parallel(check_games, tasks, options.jobs) as results,
        ):
            for (kind, _, runs), found in zip(tasks, results, strict=True):
                checks[kind] += found
                report(len(runs))
        return [summarize(kind, options, own) for kind, own in checks.items()]

    def draw(self, options: ExperimentOptions, rows: Sequence[CertificateRow]) -> Figure:
        """Draw the first game of every kind, and the shares of games with a wrong bound."""
        panels = [example_panel(kind, options, row) for kind, row in zip(KINDS, rows, strict=True)]
        return draw_certificates(panels, title=self.title)

    def notes(self, options: ExperimentOptions) -> list[str]:
        games = sum(kind.games(options) for kind in KINDS)
        lengths = ", ".join(f"{kind.name} {kind.rounds(options):,}" for kind in KINDS)
        return [
            f"wrong: the share of games (of {games:,} in all) in which the lower bound, the upper "
            "bound and the gain were wrong after any round, against realised rewards; promised are "
            "at most 5 % for the first two together, and 5 % for the gain",
            "promoted: after this round in half of the games, with 95 % confidence",
            f"rounds: {lengths}",
        ]


CERTIFICATE = CertificateExperiment()
