"""The rounds until a certificate decides, in games with fixed means: simulated, many runs.

A run draws a log, and observes it with a certificate until its gain is certain: the decision is
that of `us.certify(...).promoted_at`, bit for bit. It does so for the first `EXACT` rounds, and for
a learner always. A fixed policy may need millions of rounds; they go on in *blocks*.

A block is some .25 % of the rounds. In it the center of bets stays what it was at the start, so the
wealth of a bet depends on how often each outcome came with each importance weight, and these counts
are drawn at once. (Such a center is as valid; it differs by 1/√n from the one that moves.) The
wealth is looked at after each block, so that a decision may come .25 % later, and a little more
where wealth was enough only inside of a block.

With guardrails all rounds are in blocks. The joint certificate looks every 2 % of the rounds
anyway, and so do they; the first blocks have one round each.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from itertools import islice, pairwise, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy import kernels
from understudy.certificates import Bets, Evidence, WeightedRounds
from understudy.certificates.evidence import GAIN, POINTS
from understudy.certificates.targets import largest_ratios
from understudy.constraints import LARGEST_COUNT, Array
from understudy.simulation.game import RandomStreams
from understudy.simulation.planned_game import Outcomes, PlannedGame
from understudy.types import Integers, Log

EXACT = 1 << 15  # rounds: some hundred runs take a second or two
CHUNK = 1 << 13  # rounds at a time: their columns stay in the cache
BLOCKS, BLOCKS_OF_GUARDRAILS = 8, 2  # between two points, which are 2 % apart
DRAWN = 64  # blocks at once: one by one, calls would take most of the time
# A stage of all runs takes so many times the rounds of the one before: few are played in vain.
GROWTH = 1.3
FIRST_STAGE = 256
TASKS = 8  # per stage, so that no worker is idle for long
MOST_WEIGHTS = 64  # different ones: with more, a block costs more than its rounds
Report = Callable[[int], object]


class Decisions(NamedTuple):
    """The round of the decision in each run, or inf, and how many rounds were played at most.

    With guardrails `alone` has the rounds after which each metric was shown by itself, the goal
    first, (metrics, runs).
    """

    rounds: Array
    played: int
    alone: Array | None = None


def _no_report(decided: int) -> None: ...


def decision_rounds(
    game: PlannedGame,
    confidence: float,
    *,
    runs: int,
    enough: int,
    seed: int,
    longest: int,
    jobs: int | None = None,
    exact: int = EXACT,
    report: Report = _no_report,
) -> Decisions:
    """Simulate the decisions of runs.

    All runs end when `enough` of them are decided, or after the `longest` number of rounds; a run
    without a decision has inf. Run i is a function of (seed, i), and of `exact`, the number of
    rounds that are not in blocks. `jobs` are threads, as many as cores if left out. `report` is
    called with the number of runs just decided.
    """
    bets = [one.bets for one in game.certificates(confidence)]
    every = [PlannedRun(game, bets[0], RandomStreams(seed, run)) for run in range(runs)]
    played, decided, alone = 0, 0, None
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        for played in stages(_exact_rounds(game, exact, longest)):
            _advance_all(pool, [one for one in every if not one.decided], played)
            found = sum(one.decided > 0 for one in every)
            report(found - decided)
            decided = found
            if decided >= enough:
                break
    rounds = np.array([one.decided or math.inf for one in every], dtype=np.float64)
    if decided < enough and played < longest:
        going_on = np.flatnonzero(np.isinf(rounds))
        blocks = Blocks(game, bets, [every[i] for i in going_on])
        for _ in blocks.play(longest):
            found = runs - len(blocks.going_on)
            report(found - decided)
            decided = found
            if decided >= enough:
                break
        rounds[going_on], played = blocks.decided, blocks.rounds
        alone = blocks.alone if game.guardrails else None
    return Decisions(rounds, played, alone)


def _exact_rounds(game: PlannedGame, exact: int, longest: int) -> int:
    """How many rounds are not in blocks."""
    if not can_be_in_blocks(game):
        return longest
    return 0 if game.guardrails else min(exact, longest)


def can_be_in_blocks(game: PlannedGame) -> bool:
    """Whether the target is fixed, and its weights are few; with guardrails any fixed one is."""
    if not isinstance(game.target, np.ndarray):
        return False
    return bool(game.guardrails) or len(np.unique(game.differences)) <= MOST_WEIGHTS


def stages(longest: int) -> Iterator[int]:
    """Numbers of rounds, each some larger than the one before, up to the longest, if not 0."""
    rounds = FIRST_STAGE
    while rounds < longest:
        yield rounds
        rounds = math.ceil(GROWTH * rounds)
    if longest:
        yield longest


class PlannedRun:
    """One run: the evidence of the gain of its log so far, which it draws a chunk at a time."""

    def __init__(self, game: PlannedGame, bets: Bets, streams: RandomStreams) -> None:
        self.game, self.streams = game, streams
        # No other bets change a bit of those on the gain. The largest λ stays, since it sets when
        # logarithms are taken. A loss that was seen before costs no more tests.
        self.bets = replace(bets, values=bets.values[:1])
        self.evidence = replace(Evidence.none(self.bets), worse=1)
        learner = game.target
        self.state = None if isinstance(learner, np.ndarray) else learner.init()

    @property
    def decided(self) -> int:
        """The round of the decision, or 0."""
        return self.evidence.crossed

    def advance(self, until: int) -> None:
        """Play until so many rounds, or to the end of the chunk of the decision."""
        while self.evidence.rounds < until and not self.decided:
            rounds = min(CHUNK, until - self.evidence.rounds)
            self.evidence = self.evidence.after(self.bets, self._columns(rounds))

    def _columns(self, rounds: int) -> WeightedRounds:
        """Draw the next rounds, as a certificate sees them."""
        game, q, target = self.game, self.game.behavior, self.game.target
        actions, rewards = np.empty(rounds, dtype=np.int64), np.empty(rounds)
        kernels.games.draw_log(
            self.streams.behavior, self.streams.observed, *game.drawn, actions, rewards
        )
        own = q[actions]
        baseline = None if game.against is None else game.against[actions]
        if isinstance(target, np.ndarray):
            ratios = np.full(rounds, game.largest_ratio)
            return WeightedRounds(target[actions], own, rewards, ratios, baseline)
        shown = Log._of(actions, rewards, own, None)
        log = shown.visible(propensities=target.spec.propensities, features=False)
        self.state, trace = target.replay(self.state, log)
        ratios = largest_ratios(trace, log, q)
        return WeightedRounds(trace.probability, own, rewards, ratios, baseline)


def _advance_all(pool: Executor, runs: Sequence[PlannedRun], until: int) -> None:
    """Advance all runs; threads share them, since compiled code holds no lock."""
    share = max(1, -(-len(runs) // TASKS))
    tasks = [runs[i : i + share] for i in range(0, len(runs), share)]
    for _ in pool.map(_advance_some, tasks, repeat(until)):
        pass


def _advance_some(runs: Sequence[PlannedRun], until: int) -> None:
    for run in runs:
        run.advance(until)


# ------------------------------------------------------------------------------ in blocks


class MetricBlocks:
    """The wealth of the bets on the gain of a metric, of many runs, after the rounds so far."""

    def __init__(
        self, game: PlannedGame, metric: Outcomes, bets: Bets, before: Sequence[Evidence]
    ) -> None:
        self.bets, self.metric = bets, metric
        y, group, q = *np.unique(game.differences, return_inverse=True), game.behavior
        share = np.bincount(group, q, len(y))
        high = np.bincount(group, q * metric.chance, len(y))
        self.chance = np.divide(high, share, where=share > 0.0, out=np.zeros(len(y))).clip(0.0, 1.0)
        self.y = np.concatenate([y, y])  # of the kinds of rounds: lower outcomes, then higher ones
        self.reward = np.repeat([metric.low, metric.high], len(y))
        self.x = np.outer(self.y * self.reward, bets.gains)
        self.raw = np.log1p(self.x)
        largest = game.largest_difference
        self.cap = kernels.certificates.KAPPA / largest if largest > 0.0 else math.inf
        shape = len(before), bets.rows, len(bets.gains)
        self.S = np.array([one.log_wealths() for one in before])[:, bets.place(GAIN)].reshape(shape)
        self.earned = np.array([one.usable[1] for one in before])
        self.windows = [
            np.array([one.windows[j] for one in before]).reshape(shape)
            for j in range(len(before[0].windows))
        ]

    def play(self, played: int, counts: Array) -> None:
        """Let the bets win and lose in a block after the rounds `played`: counts of its kinds."""
        mean = (0.5 + self.earned) / (played + 1.0)
        center = np.minimum(np.outer(mean, self.bets.gains), self.cap)  # λ c
        centered = np.log1p(self.x - self.y[:, np.newaxis] * center[:, np.newaxis])
        self.S[:, 0] += counts @ self.raw
        self.S[:, 1] += np.einsum("rk,rki->ri", counts, centered)
        self.earned += counts @ self.reward

    def start_window(self) -> None:
        self.windows.append(self.S.copy())

    def shows(self, rounds: int, window: int) -> NDArray[np.bool_]:
        """Whether the gain is above minus the margin: in all rounds, or since round 2^`window`."""
        S, n, threshold = self.S, rounds, self.bets.thresholds[0]
        if window:
            S, n = S - self.windows[window - 1], rounds - 2**window + 1
            threshold = float(self.bets.thresholds[2][window - 1])
        if self.metric.margin:
            S = S - n * np.log1p(-self.metric.margin * self.bets.gains)
        wealth = (
            np.exp(np.minimum(S.reshape(len(S), -1), kernels.certificates.LARGEST_EXPONENT))
            @ self.bets.prior
        )
        return np.asarray(wealth >= threshold)

    def keep(self, runs: NDArray[np.bool_]) -> None:
        """Go on with these runs alone."""
        self.S, self.earned = self.S[runs], self.earned[runs]
        self.windows = [start[runs] for start in self.windows]


class Blocks:
    """Runs of a fixed policy that go on in blocks; all have had the same number of rounds.

    `decided` has the rounds of decisions, or inf, and `alone` those after which each metric was
    shown by itself; `going_on` are the runs without a decision.
    """

    def __init__(self, game: PlannedGame, bets: Sequence[Bets], runs: Sequence[PlannedRun]) -> None:
        self.generators = [run.streams.behavior for run in runs]
        self.rounds = runs[0].evidence.rounds
        self.decided = np.full(len(runs), math.inf)
        self.going_on = np.arange(len(runs))
        group = np.unique(game.differences, return_inverse=True)[1]
        shares = np.bincount(group, game.behavior)
        self.shares = shares / shares.sum()
        goal = MetricBlocks(game, game.metrics[0], runs[0].bets, [run.evidence for run in runs])
        self.metrics = [goal] + [
            MetricBlocks(game, metric, own, [Evidence.none(own)] * len(runs))
            for metric, own in zip(game.metrics[1:], bets[1:], strict=True)
        ]
        self.alone = np.full((len(self.metrics), len(runs)), math.inf)

    def play(self, longest: int) -> Iterator[None]:
        """Play block after block, up to the longest number of rounds; yield after each."""
        blocks = BLOCKS if len(self.metrics) == 1 else BLOCKS_OF_GUARDRAILS
        ends = block_ends(self.rounds, longest, blocks)
        while batch := list(islice(ends, DRAWN)):
            rounds = np.diff([end for end, _ in batch], prepend=self.rounds)
            drawn = self._draw(rounds)
            for i, (end, is_point) in enumerate(batch):
                for metric, counts in zip(self.metrics, drawn, strict=True):
                    metric.play(self.rounds, counts[self.going_on, i])
                    if (end + 1) & end == 0:  # a window starts with the next round
                        metric.start_window()
                self.rounds = end
                self._decide(is_point=is_point)
                yield
                if not len(self.going_on):
                    return

    def _draw(self, rounds: Integers) -> list[Array]:
        """Draw how often each outcome comes with each weight, per metric: (runs, blocks, kinds)."""
        kinds = 2 * len(self.shares)
        found = [np.zeros((len(self.decided), len(rounds), kinds)) for _ in self.metrics]
        for i in self.going_on:
            each = self.generators[i].multinomial(rounds, self.shares)
            for metric, own in zip(self.metrics, found, strict=True):
                high = self.generators[i].binomial(each, metric.chance)
                own[i] = np.concatenate([each - high, high], axis=1)
        return found

    def _decide(self, *, is_point: bool) -> None:
        """Note the runs whose wealth is enough, since round 1 or in a window; go on with others.

        A goal by itself is looked at all the time, but windows and guardrails at points.
        """
        windows = range(len(self.metrics[0].windows) + 1) if is_point else range(1)
        if not is_point and len(self.metrics) > 1:
            return
        crossed = np.zeros(len(self.going_on), dtype=bool)
        for window in windows:
            shown = np.array([metric.shows(self.rounds, window) for metric in self.metrics])
            crossed |= shown.all(axis=0)
            before = self.alone[:, self.going_on]
            self.alone[:, self.going_on] = np.where(shown, np.minimum(before, self.rounds), before)
        if crossed.any():
            self.decided[self.going_on[crossed]] = self.rounds
            self.going_on = self.going_on[~crossed]
            for metric in self.metrics:
                metric.keep(~crossed)


def block_ends(before: int, longest: int, blocks: int) -> Iterator[tuple[int, bool]]:
    """The last round of each block after the first rounds, and whether it is one of `POINTS`.

    A block never goes beyond the start of a window.

    >>> list(block_ends(510, 530, 2))
    [(511, False), (513, True), (518, False), (524, True), (529, False), (530, False)]
    """
    first = int(np.searchsorted(POINTS, before, side="right"))
    starts = [2**j - 1 for j in range(1, LARGEST_COUNT.bit_length())]
    for low, high in pairwise([int(POINTS[first - 1]) if first else 0, *POINTS[first:].tolist()]):
        inner: Integers = np.linspace(low, high, blocks + 1)[1:].astype(np.int64)
        ends = {*inner.tolist(), *(start for start in starts if low < start < high)}
        for end in sorted(ends - {low}):
            if before < min(end, longest):
                yield min(end, longest), end == high <= longest
            if end >= longest:
                return
