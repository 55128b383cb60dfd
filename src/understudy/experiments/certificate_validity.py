"""Validity of certificates: how often they are ever wrong, and when they justify a promotion.

The target of a game is Exp3-IX or a fixed policy. In every game, the lower bound, the upper bound
and the bound on the gain are compared with the realised rewards of the target, after every round.
The games of the last two kinds are longer: they show how soon a better policy is recognized.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from understudy.certificates import Certificate, certify
from understudy.errors import InvalidArgument
from understudy.experiments.certified_games import KINDS, GameKind, ever_wrong, record_game
from understudy.experiments.experiment import Column, Experiment, ExperimentOptions
from understudy.plots import CertificatePanel, draw_certificates
from understudy.simulation.simulate import closing, reporter
from understudy.types import chunks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIDENCE = 0.95
GAMES_PER_TASK = 10  # of a worker: enough that the cost of a task does not show


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


@dataclass(frozen=True)
class CertificateCheck:
    """The certificate of one game beside the truth: means per round, and the promotion."""

    wrong: tuple[bool, bool, bool]
    means: tuple[float, float, float, float]
    promoted_at: int | None


def check_games(kind: GameKind, options: ExperimentOptions, runs: range) -> list[CertificateCheck]:
    """Play some games of a kind and compare their certificates with the truth."""
    checks = []
    for run in runs:
        record = record_game(kind, options, run)
        start = Certificate(behavior=record.behavior, confidence=CONFIDENCE)
        certificate = start.observe(record.log, record.trace)
        earned = float(record.earned.sum())
        totals = (certificate.production, certificate.lower, earned, certificate.upper)
        production, lower, truth, upper = (total / len(record.log) for total in totals)
        means = (production, lower, truth, upper)
        checks.append(CertificateCheck(ever_wrong(record, start), means, certificate.promoted_at))
    return checks


def row_of(
    kind: GameKind, options: ExperimentOptions, checks: Sequence[CertificateCheck]
) -> CertificateRow:
    """Shares and means over all games of a kind."""
    n, delta = kind.rounds(options), 1 - CONFIDENCE
    lower_wrong, upper_wrong, gain_wrong = np.mean([one.wrong for one in checks], axis=0).tolist()
    production, lower, truth, upper = np.mean([one.means for one in checks], axis=0).tolist()
    promotions = np.array([one.promoted_at or n + 1 for one in checks])
    median = float(np.median(promotions))
    return CertificateRow(
        kind=kind.name,
        target=kind.target,
        rounds=n,
        games=len(checks),
        lower_wrong=lower_wrong,
        upper_wrong=upper_wrong,
        gain_wrong=gain_wrong,
        limit=delta + 3 * math.sqrt(delta * (1 - delta) / len(checks)),
        production=production,
        lower=lower,
        truth=truth,
        upper=upper,
        promoted=float((promotions <= n).mean()),
        promotion=median if median <= n else None,
    )


def panel(kind: GameKind, options: ExperimentOptions, row: CertificateRow) -> CertificatePanel:
    """The certificate of the first game of a kind, over its rounds."""
    record = record_game(kind, options, run=0)
    found = certify(record.log, record.trace, behavior=record.behavior, confidence=CONFIDENCE)
    return replace(
        found.panel(kind.name),
        truth=np.cumsum(record.earned)[found.rounds - 1] / found.rounds,
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
        """Play and check all games, with a progress bar on request.

        >>> rows = CERTIFICATE.run(ExperimentOptions(runs=2, rounds=10))
        >>> [(row.kind, row.games) for row in rows[:2]]
        [('stationary', 2), ('switching', 2)]
        """
        if options.keep is not None:
            raise InvalidArgument(
                "keep", options.keep, "games of certificates are not kept", "leave it out"
            )
        import joblib  # noqa: PLC0415 - its import takes 0.1 s, which only simulations need

        tasks = [
            (kind, range(first, first + count))
            for kind in KINDS
            for first, count in chunks(kind.games(options), GAMES_PER_TASK)
        ]
        checks: dict[GameKind, list[CertificateCheck]] = {kind: [] for kind in KINDS}
        parallel = joblib.Parallel(n_jobs=options.jobs, return_as="generator")
        calls = (joblib.delayed(check_games)(kind, options, runs) for kind, runs in tasks)
        total = sum(len(runs) for _, runs in tasks)
        with reporter(progress, total) as report, closing(parallel(calls)) as results:
            for (kind, runs), found in zip(tasks, results, strict=True):
                checks[kind] += found
                report(len(runs))
        return [row_of(kind, options, own) for kind, own in checks.items()]

    def draw(self, options: ExperimentOptions, rows: Sequence[CertificateRow]) -> Figure:
        """Draw the first game of every kind, and the shares of games with a wrong bound."""
        panels = [panel(kind, options, row) for kind, row in zip(KINDS, rows, strict=True)]
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
