"""The rounds until a certificate decides, in games with fixed means: simulated, many runs.

A run draws a log, and observes it with a certificate until its gain is certain: the decision is
that of `us.certify(...).promoted_at`, bit for bit. It does so for the first `EXACT` rounds, and for
a learner always. A fixed policy may need millions of rounds; they go on in *blocks*.

A block is some .25 % of the rounds. In it the center of bets stays what it was at the start, so the
wealth of a bet depends on how often each reward came with each importance weight, and these counts
are drawn at once. (Such a center is as valid; it differs by 1/√n from the one that moves.) The
wealth is looked at after each block, so that a decision may come .25 % later, and a little more,
where wealth was enough only inside of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from understudy import kernels
from understudy.behaviors import cdf
from understudy.certificates import Bets, Certificate, Evidence, WeightedRounds
from understudy.certificates.evidence import GAIN, POINTS
from understudy.certificates.targets import largest_ratios, ratio_of_policy
from understudy.constraints import LARGEST_COUNT, Array
from understudy.kernels.certificates import KAPPA, LARGEST_EXPONENT
from understudy.protocols import Learner
from understudy.simulation.game import RandomStreams
from understudy.simulation.simulate import in_parallel
from understudy.types import Integers, Log, kernel_view

EXACT = 1 << 16  # rounds: 200 runs take a second or two
CHUNK = 1 << 13  # rounds at a time: their columns stay in the cache
BLOCKS_PER_POINT = 8  # points are 2 % apart
# A stage of all runs takes so many times the rounds of the one before: few are played in vain.
GROWTH = 1.3
FIRST_STAGE = 256
TASKS = 8  # per stage, so that no worker is idle for long
# Different weights × rewards: more would cost more than a round by itself.
MOST_WEIGHTS = 256
Report = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class PlannedGame:
    """Production's policy, the mean reward of each action (0 or 1 in a round), and the target."""

    behavior: Array
    means: Array
    target: Array | Learner[Any]

    @property
    def production(self) -> float:
        """The mean reward of production."""
        return float(self.behavior @ self.means)

    @property
    def weights(self) -> Array | None:
        """π(a)/q(a) of a fixed policy, 0 where production never plays; None of a learner."""
        if not isinstance(self.target, np.ndarray):
            return None
        played = self.behavior > 0.0
        return np.divide(self.target, self.behavior, where=played, out=np.zeros(len(played)))


def decision_rounds(
    game: PlannedGame,
    confidence: float,
    *,
    runs: int,
    enough: int,
    seed: int,
    longest: int,
    jobs: int = -1,
    exact: int = EXACT,
    report: Report = lambda decided: None,
) -> tuple[Array, int]:
    """The round of the decision in each run, and how many rounds were played at most.

    All runs end when `enough` of them are decided, or after the `longest` number of rounds; a run
    without a decision has inf. Run i is a function of (seed, i), and of `exact`. `report` is called
    with the number of runs just decided.
    """
    bets = gain_bets(game, confidence)
    every = [PlannedRun(game, bets, RandomStreams(seed, run)) for run in range(runs)]
    last = longest if game.weights is None or not _has_few_weights(game) else min(exact, longest)
    played, decided = 0, 0
    for played in stages(last):
        _advance_all([one for one in every if not one.decided], played, jobs)
        found = sum(one.decided > 0 for one in every)
        report(found - decided)
        decided = found
        if decided >= enough:
            break
    rounds = np.array([one.decided or math.inf for one in every], dtype=np.float64)
    if decided < enough and played < longest:
        open_runs = np.flatnonzero(np.isinf(rounds))
        blocks = Blocks(game, bets, [every[i] for i in open_runs])
        for played in blocks.play(longest):
            found = int((blocks.decided > 0).sum())
            report(found + runs - len(open_runs) - decided)
            decided = found + runs - len(open_runs)
            if decided >= enough:
                break
        rounds[open_runs] = np.where(blocks.decided > 0, blocks.decided, math.inf)
    return rounds, played


def gain_bets(game: PlannedGame, confidence: float) -> Bets:
    """The bets of a certificate that decide about the gain; of the others, as few as there can be.

    No other bet changes a bit of these. The largest λ stays, since it sets when logarithms are
    taken.
    """
    bets = Certificate(game.behavior, confidence).bets
    return replace(bets, values=bets.values[:1])


def stages(longest: int) -> Iterator[int]:
    """Numbers of rounds, each some larger than the one before, up to the longest."""
    rounds = FIRST_STAGE
    while rounds < longest:
        yield rounds
        rounds = math.ceil(GROWTH * rounds)
    yield longest


class PlannedRun:
    """One run: the evidence of its log so far, which it draws a chunk at a time."""

    def __init__(self, game: PlannedGame, bets: Bets, streams: RandomStreams) -> None:
        self.game, self.bets, self.streams = game, bets, streams
        # Losses are not asked for: a loss that was seen before costs no more tests.
        self.evidence = replace(Evidence.none(bets), worse=1)
        edges = kernel_view(cdf(game.behavior))
        self.drawn = edges, kernels.games.guide_table(edges), kernel_view(game.means)
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
        game, q = self.game, self.game.behavior
        actions, rewards = np.empty(rounds, dtype=np.int64), np.empty(rounds)
        kernels.games.draw_log(
            self.streams.behavior, self.streams.observed, *self.drawn, actions, rewards
        )
        own = q[actions]
        if isinstance(game.target, np.ndarray):
            ratios = np.full(rounds, ratio_of_policy(game.target, q))
            return WeightedRounds(game.target[actions], own, rewards, ratios)
        shown = Log._of(actions, rewards, own, None)
        log = shown.visible(propensities=game.target.spec.propensities, features=False)
        self.state, trace = game.target.replay(self.state, log)
        return WeightedRounds(trace.probability, own, rewards, largest_ratios(trace, log, q))


def _advance_all(runs: Sequence[PlannedRun], until: int, jobs: int) -> None:
    """Advance all runs; threads share them, and all that takes time holds no lock."""
    share = max(1, -(-len(runs) // TASKS))
    tasks = [(runs[i : i + share], until) for i in range(0, len(runs), share)]
    if jobs == 1:
        for task in tasks:
            _advance_some(*task)
        return
    with in_parallel(_advance_some, tasks, jobs, threads=True) as done:
        for _ in done:
            pass


def _advance_some(runs: Sequence[PlannedRun], until: int) -> None:
    for run in runs:
        run.advance(until)


# ------------------------------------------------------------------------------ in blocks


def _has_few_weights(game: PlannedGame) -> bool:
    return game.weights is not None and len(np.unique(game.weights)) <= MOST_WEIGHTS


class Blocks:
    """Runs of a fixed policy that go on in blocks; all runs have had the same number of rounds."""

    def __init__(self, game: PlannedGame, bets: Bets, runs: Sequence[PlannedRun]) -> None:
        assert game.weights is not None  # a fixed policy
        self.bets = bets
        self.generators = [run.streams.behavior for run in runs]
        self.decided = np.zeros(len(runs), dtype=np.int64)
        self.open = np.arange(len(runs))  # the runs without a decision, the rows of what follows
        place, evidence = bets.place(GAIN), [run.evidence for run in runs]
        shape = len(runs), bets.rows, len(bets.gains)
        self.S = np.array([one.log_wealths()[place] for one in evidence]).reshape(shape)
        self.rounds = evidence[0].rounds
        self.earned = np.array([one.usable[1] for one in evidence])
        starts = range(len(evidence[0].windows))
        self.windows = [
            np.array([one.windows[j] for one in evidence]).reshape(shape) for j in starts
        ]
        self._types(game, game.weights)

    def _types(self, game: PlannedGame, weights: Array) -> None:
        """The kinds of rounds: a weight and a reward of 0 or 1, with their probabilities."""
        w, group = np.unique(weights, return_inverse=True)
        won = np.bincount(group, game.behavior * game.means, len(w))
        lost = np.bincount(group, game.behavior * (1.0 - game.means), len(w))
        shares = np.concatenate([lost, won])
        self.shares = shares / shares.sum()
        self.y, self.R = np.tile(w, 2) - 1.0, np.repeat([0.0, 1.0], len(w))
        excess = ratio_of_policy(game.target, game.behavior) - 1.0  # type: ignore[arg-type] # fixed
        self.cap = KAPPA / excess if excess > 0.0 else math.inf
        self.raw = np.log1p(np.outer(self.y * self.R, self.bets.gains))

    def play(self, longest: int) -> Iterator[int]:
        """Play block after block; yield the number of rounds after each."""
        for end, is_look in block_ends(self.rounds, longest):
            self._block(end - self.rounds)
            self.rounds = end
            if (end + 1) & end == 0:  # a window starts with the next round
                self.windows.append(self.S.copy())
            self._decide(is_look=is_look)
            yield end
            if not len(self.open):
                return

    def _block(self, rounds: int) -> None:
        """Draw the counts of a block, and let the bets win and lose."""
        counts = np.array(
            [self.generators[i].multinomial(rounds, self.shares) for i in self.open],
            dtype=np.float64,
        )
        mean = (0.5 + self.earned) / (self.rounds + 1.0)
        center = np.minimum(np.outer(mean, self.bets.gains), self.cap)  # λ c
        x = np.outer(self.y * self.R, self.bets.gains) - self.y[:, np.newaxis] * center[:, np.newaxis]
        self.S[:, 0] += counts @ self.raw
        self.S[:, 1] += np.einsum("rk,rki->ri", counts, np.log1p(x))
        self.earned += counts @ self.R

    def _decide(self, *, is_look: bool) -> None:
        """Note the runs whose wealth is enough, since round 1 or in a window; go on with others."""
        whole, _, by_window = self.bets.thresholds
        crossed = self._mixture(self.S) >= whole
        if is_look:
            for start, threshold in zip(self.windows, by_window.tolist(), strict=False):
                crossed |= self._mixture(self.S - start) >= threshold
        if crossed.any():
            self.decided[self.open[crossed]] = self.rounds
            left = ~crossed
            self.open, self.S, self.earned = self.open[left], self.S[left], self.earned[left]
            self.windows = [start[left] for start in self.windows]

    def _mixture(self, S: Array) -> Array:
        return np.exp(np.minimum(S.reshape(len(S), -1), LARGEST_EXPONENT)) @ self.bets.prior


def block_ends(before: int, longest: int) -> Iterator[tuple[int, bool]]:
    """The last round of each block after the first rounds, and whether windows are looked at.

    >>> [end for end, _ in block_ends(2**16, 67_000)]
    [65698, 65860, 66022, 66187, 66352, 66517, 66682, 66847, 67000]
    """
    first = int(np.searchsorted(POINTS, before, side="right"))
    starts = [2**j - 1 for j in range(before.bit_length(), LARGEST_COUNT.bit_length())]
    for low, high in pairwise([int(POINTS[first - 1]), *POINTS[first:].tolist()]):
        inner: Integers = np.linspace(low, high, BLOCKS_PER_POINT + 1)[1:].astype(np.int64)
        ends = {*inner.tolist(), *(start for start in starts if low < start < high)}
        for end in sorted(ends):
            if before < min(end, longest):
                yield min(end, longest), end == high <= longest
            if end >= longest:
                return
