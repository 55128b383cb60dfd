"""Certificates at work: how often they are ever wrong, and when they justify a promotion.

Games of several kinds, each watched by Exp3-IX or by a policy that stays. In every game the lower
bound, the upper bound and the bound on the gain are held against what the target did earn, with
realised rewards, after every single round: m > μ̄ exactly where the mixture at μ̄ is above 1/δ, so
that no root is needed. The last two games are longer: they show how soon a better policy is found
to be one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from understudy.certificates import Certificate, certify
from understudy.errors import InvalidArgument
from understudy.experiments.certified_games import KINDS, Kind, watch, wrong
from understudy.experiments.experiment import Column, Options
from understudy.plots import Panel, draw_certificates
from understudy.simulation.simulate import closing, reporter
from understudy.types import chunks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CERTIFICATE", "CertificateExperiment", "Row"]

CONFIDENCE = 0.95
BATCH = 10  # games in a task


@dataclass(frozen=True)
class Row:
    """One kind of game: how many were played, and in what share of them each bound was ever wrong.

    `limit` is 5 % and three standard errors of a share of 5 %. What the target and production
    earned, and the bounds, are means a round, after the last one; `promotion` is the median round
    in which it was justified, None where it was in less than half of the games.
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
class Found:
    """What came out of one game: means a round, and whether and when things happened."""

    wrong: tuple[bool, bool, bool]
    means: tuple[float, float, float, float]
    promoted_at: int | None


def judge(kind: Kind, options: Options, runs: range) -> list[Found]:
    """Play some games of a kind and hold their certificates against the truth.

    >>> judge(KINDS[0], Options(runs=1, rounds=20), range(1))[0].wrong
    (False, False, False)
    """
    found = []
    for run in runs:
        watched = watch(kind, options, run)
        start = Certificate(behavior=watched.behavior, confidence=CONFIDENCE)
        certificate = start.observe(watched.log, watched.trace)
        earned = float(watched.earned.sum())
        totals = (certificate.production, certificate.lower, earned, certificate.upper)
        production, lower, truth, upper = (total / len(watched.log) for total in totals)
        found.append(
            Found(
                wrong(watched, start),
                (production, lower, truth, upper),
                certificate.promoted_at,
            )
        )
    return found


def row_of(kind: Kind, options: Options, found: Sequence[Found]) -> Row:
    """The shares and means of all games of a kind.

    >>> options = Options(runs=2, rounds=20)
    >>> row_of(KINDS[0], options, judge(KINDS[0], options, range(2))).games
    2
    """
    n, delta = kind.rounds(options), 1 - CONFIDENCE
    lower_wrong, upper_wrong, gain_wrong = np.mean([one.wrong for one in found], axis=0).tolist()
    production, lower, truth, upper = np.mean([one.means for one in found], axis=0).tolist()
    promotions = np.array([one.promoted_at or n + 1 for one in found])
    median = float(np.median(promotions))
    return Row(
        kind=kind.name,
        target=kind.target,
        rounds=n,
        games=len(found),
        lower_wrong=lower_wrong,
        upper_wrong=upper_wrong,
        gain_wrong=gain_wrong,
        limit=delta + 3 * math.sqrt(delta * (1 - delta) / len(found)),
        production=production,
        lower=lower,
        truth=truth,
        upper=upper,
        promoted=float((promotions <= n).mean()),
        promotion=median if median <= n else None,
    )


def panel(kind: Kind, options: Options, row: Row) -> Panel:
    """The first game of a kind as a picture, over its rounds."""
    watched = watch(kind, options, run=0)
    found = certify(watched.log, watched.trace, behavior=watched.behavior, confidence=CONFIDENCE)
    return replace(
        found.panel(kind.name),
        truth=np.cumsum(watched.earned)[found.rounds - 1] / found.rounds,
        wrong=(row.lower_wrong, row.upper_wrong, row.gain_wrong),
        limit=row.limit,
    )


@dataclass(frozen=True)
class CertificateExperiment:
    """Many games of every kind, and a picture of one of each."""

    name: str
    title: str
    defaults: Options
    kinds: tuple[Kind, ...]
    sizes: ClassVar = ("runs", "rounds")
    words: ClassVar = ("game",)
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

    def sections(self, row: Row) -> object:
        return row.games

    def run(self, options: Options, *, progress: bool = False) -> list[Row]:
        """Play and judge all games, with a bar if wanted.

        >>> rows = CERTIFICATE.run(Options(runs=2, rounds=10))
        >>> [(row.kind, row.games) for row in rows[:2]]
        [('stationary', 2), ('switching', 2)]
        """
        if options.keep is not None:
            raise InvalidArgument(
                "keep", options.keep, "games of certificates are not kept", "leave it out"
            )
        import joblib  # noqa: PLC0415 - a tenth of a second that only this needs

        tasks = [
            (kind, range(first, first + count))
            for kind in self.kinds
            for first, count in chunks(kind.games(options), BATCH)
        ]
        found: dict[Kind, list[Found]] = {kind: [] for kind in self.kinds}
        parallel = joblib.Parallel(n_jobs=options.jobs, return_as="generator")
        calls = (joblib.delayed(judge)(kind, options, runs) for kind, runs in tasks)
        total = sum(len(runs) for _, runs in tasks)
        with reporter(progress, total) as report, closing(parallel(calls)) as results:
            for (kind, runs), judged in zip(tasks, results, strict=True):
                found[kind] += judged
                report(len(runs))
        return [row_of(kind, options, own) for kind, own in found.items()]

    def draw(self, options: Options, rows: Sequence[Row]) -> Figure:
        """The first game of every kind, and the share of games in which each bound was wrong."""
        panels = [panel(kind, options, row) for kind, row in zip(self.kinds, rows, strict=True)]
        return draw_certificates(panels, title=self.title)

    def notes(self, options: Options) -> list[str]:
        games = sum(kind.games(options) for kind in self.kinds)
        lengths = ", ".join(f"{kind.name} {kind.rounds(options):,}" for kind in self.kinds)
        return [
            f"wrong: the share of games (of {games:,} in all) in which the lower bound, the upper "
            "bound and the gain were, after any round, against realised rewards; promised are at "
            "most 5 % for the first two together, and 5 % for the gain",
            "promoted: after this round in half of the games, with 95 % confidence",
            f"rounds: {lengths}",
        ]


CERTIFICATE = CertificateExperiment(
    name="certificate",
    title="What the understudy would have earned, from rewards it never saw",
    defaults=Options(runs=500, rounds=2_000),
    kinds=KINDS,
)
