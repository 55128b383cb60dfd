"""The certificate experiment: how soon certificates decide, and how often they are ever wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from understudy.errors import InvalidArgument
from understudy.experiments.certificate_figure import draw_all, gain_over_time
from understudy.experiments.certificate_games import CONFIDENCE, KINDS, GameKind
from understudy.experiments.certificate_speed import (
    certified_share,
    decision_rounds,
    guarded_rounds,
)
from understudy.experiments.certificate_validity import STATEMENTS
from understudy.experiments.decision_games import (
    BASELINES,
    BETTER,
    GUARDED,
    ROUTERS,
    WORSE,
    BaselineGame,
    DecisionGame,
    GuardedGame,
    random_worlds,
)
from understudy.experiments.experiment import Column, Experiment, ExperimentOptions
from understudy.experiments.question_games import QUESTIONS
from understudy.experiments.question_validity import statements_wrong
from understudy.simulation.simulate import in_parallel, reporter
from understudy.types import chunks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMES_PER_TASK = 10  # of a worker: enough that the cost of a task does not show
MOST = 0.9  # of the games have decided by the second of a sequence's two rounds
LEAST = 0.1  # of the games have shown no more of a gain than the second of its two shares
BETTER_PART, WORSE_PART, ROUTER_PART = "promote", "worse", "router"
GUARDED_PART, BASELINE_PART = "guardrails", "baselines"
WORLD_PART, VALIDITY_PART = "worlds", "validity"
HARD = BETTER[1]  # a learner that begins badly: the game in which windows matter most

Subject = DecisionGame | GameKind


@dataclass(frozen=True)
class CertificateRow:
    """A game with a decision, or a kind of games in which statements could be wrong.

    Of a game, the rounds until each sequence decides: the median over the games, and with `_90` the
    round by which nine games in ten have decided; None if it is later than the last round, or if
    the sequence is not valid in this game. `decided` and `decided_1` are the shares of games with a
    decision, now and by rules 1. With guardrails, `alone` are the rounds of the goal without them.
    Against a baseline, `certified` is the share of the true gain that the lower bound shows after
    all rounds: the median, and with `_10` what nine games in ten show. Of a kind, the share of
    games in which each statement was wrong after any round, None if there is none, and the
    largest that chance `allows`: 5 % and three standard errors.
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
    alone: float | None = None
    alone_90: float | None = None
    certified: float | None = None
    certified_10: float | None = None


def games_by_part(seed: int) -> dict[str, Sequence[Subject]]:
    """All games, in the order of the rows."""
    return {
        BETTER_PART: BETTER,
        WORSE_PART: WORSE,
        ROUTER_PART: ROUTERS,
        GUARDED_PART: GUARDED,
        BASELINE_PART: BASELINES,
        WORLD_PART: random_worlds(seed),
        VALIDITY_PART: (*KINDS, *QUESTIONS),
    }


def rounds_of(subject: Subject, options: ExperimentOptions) -> int:
    """The rounds of a game; those with a decision have their own at the default size."""
    if isinstance(subject, GameKind):
        return subject.rounds(options.rounds)
    return max(2, round(subject.rounds * options.rounds / CertificateExperiment.defaults.rounds))


def judge(subject: Subject, options: ExperimentOptions, runs: range) -> list[dict[str, float]]:
    """The numbers of some runs of a game: rounds of decisions, or which statements were wrong."""
    if isinstance(subject, GameKind):
        records = (subject.record(options.rounds, options.seed, run) for run in runs)
        return [dict(statements_wrong(record)) for record in records]
    rounds, seed = rounds_of(subject, options), options.seed
    if isinstance(subject, BaselineGame):
        return [certified_share(subject, rounds, seed, run) for run in runs]
    if isinstance(subject, GuardedGame):
        return [guarded_rounds(subject, rounds, seed, run) for run in runs]
    return [decision_rounds(subject, rounds, seed, run) for run in runs]


def summarize(
    part: str, subject: Subject, options: ExperimentOptions, found: Sequence[Mapping[str, float]]
) -> CertificateRow:
    """Medians, quantiles and shares over the runs of a game."""
    games = len(found)
    columns = {key: np.array([one[key] for one in found], dtype=float) for key in found[0]}
    own = part, subject.name, subject.target, rounds_of(subject, options), games
    if isinstance(subject, GameKind):
        delta = 1.0 - CONFIDENCE
        allowed = delta + 3.0 * math.sqrt(delta * (1.0 - delta) / games)
        shares: dict[str, Any] = {
            statement: float(found.mean()) for statement, found in columns.items()
        }
        return CertificateRow(*own, **shares, allowed=allowed)
    if isinstance(subject, BaselineGame):
        shown = columns["certified"]
        return CertificateRow(
            *own, certified=float(np.median(shown)), certified_10=float(np.quantile(shown, LEAST))
        )
    rounds = {key: float(np.median(one)) for key, one in columns.items()}
    for key in set(rounds) - {"limit"}:
        rounds[f"{key}_90"] = float(np.quantile(columns[key], MOST, method="inverted_cdf"))
    known: dict[str, Any] = {key: value for key, value in rounds.items() if math.isfinite(value)}
    for name, key in (("decided", "now"), ("decided_1", "rules_1")):
        if key in columns:
            known[name] = float(np.isfinite(columns[key]).mean())
    return CertificateRow(*own, **known)


def column(field: str) -> Column:
    """The rounds of a field; nothing where there are none."""

    def text(row: CertificateRow) -> str:
        rounds = getattr(row, field)
        return "" if rounds is None else f"{rounds:,.0f}"

    return text


def decided_text(row: CertificateRow) -> str:
    """The shares of games with a decision, now and by rules 1, in %."""
    known = (share for share in (row.decided, row.decided_1) if share is not None)
    return ", ".join(f"{100 * share:.0f}" for share in known)


def wrong_text(row: CertificateRow) -> str:
    """The share of games in which the worst of the statements was wrong, in %."""
    if row.allowed is None:
        return ""
    return f"{100 * max(getattr(row, name) or 0.0 for name in STATEMENTS):.1f}"


def certified_text(row: CertificateRow) -> str:
    """The share of the true gain that is certified, in %: the median, and what most games show."""
    if row.certified is None or row.certified_10 is None:
        return ""
    return f"{100 * row.certified:.0f}, {100 * row.certified_10:.0f}"


class CertificateExperiment(Experiment):
    """Rounds until a decision in some games, and the validity of all statements in unkind ones."""

    name = "certificate"
    title = "Certificates: how soon they decide, and how often they are ever wrong"
    defaults = ExperimentOptions(runs=300, rounds=2_000)
    sizes = ("runs", "rounds")
    text_columns = ("game",)
    sections = ("part",)
    columns: ClassVar[Mapping[str, Column]] = {
        "game": lambda row: row.game,
        "limit": column("limit"),
        "now": column("now"),
        "90 %": column("now_90"),
        "rules 1": column("rules_1"),
        "Bernstein": column("bernstein"),
        "hedged": column("hedged"),
        "plug-in": column("plug_in"),
        "alone": column("alone"),
        "decided, %": decided_text,
        "certified, %": certified_text,
        "wrong, %": wrong_text,
    }

    def run(self, options: ExperimentOptions, *, progress: bool = False) -> list[CertificateRow]:
        if options.keep is not None:
            raise InvalidArgument(
                "keep", options.keep, "games of certificates are not kept", "leave it out"
            )
        parts = games_by_part(options.seed)
        subjects = [(part, subject) for part, own in parts.items() for subject in own]
        batches = [range(first, first + n) for first, n in chunks(options.runs, GAMES_PER_TASK)]
        tasks = [(subject, options, runs) for _, subject in subjects for runs in batches]
        rows = []
        with (
            reporter(progress, options.runs * len(subjects)) as report,
            in_parallel(judge, tasks, options.jobs) as results,
        ):
            for part, subject in subjects:
                found: list[dict[str, float]] = []
                for runs in batches:
                    found += next(results)
                    report(len(runs))
                rows.append(summarize(part, subject, options, found))
        return rows

    def draw(self, options: ExperimentOptions, rows: Sequence[CertificateRow]) -> Figure:
        """Draw the decisions, the worlds, the validity, and the first run of the hard game."""
        by_part = {part: [row for row in rows if row.part == part] for part in games_by_part(0)}
        best = by_part[ROUTER_PART][:1]  # about the other, there is nothing to decide
        decisions = [*by_part[BETTER_PART], *best, *by_part[WORSE_PART]]
        over_time = gain_over_time(HARD, rounds_of(HARD, options), options.seed)
        return draw_all(
            decisions, by_part[WORLD_PART], by_part[VALIDITY_PART], over_time, title=self.title
        )

    def notes(self, options: ExperimentOptions) -> list[str]:
        games = (len(KINDS) + len(QUESTIONS)) * options.runs
        return [
            "rounds: medians over the games, nothing if later than the last round; 90 %: nine "
            "games in ten have decided now",
            "limit: on average, no valid test of a fixed policy decides sooner",
            "hedged, plug-in: published bets that move with the data; only for fixed policies",
            "alone: the goal without its guardrails",
            "decided: games with a decision, now and by rules 1",
            "certified: of the true gain, after all rounds; the median, and in nine games in ten",
            f"wrong: games (of {games:,}) in which a statement was wrong after any round, of "
            "the statement that was wrong most often; promised are at most 5 %",
        ]


CERTIFICATE = CertificateExperiment()
