"""Competitors of `understudy bench policies`: Vowpal Wabbit, logistic regression, greedy means.

A competitor sees the log and the contexts held out. It tells the referee its policy of each round,
which it made of earlier rounds, and returns its final policy on the contexts held out. Settings are
chosen on the first half of the log, by the importance-weighted reward there, never by the truth. So
the rewards of the first half are in the policies that play it: they may be certified only after it.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.policy_worlds import HeldOut, ProductionLog
from benchmarks.replay import installed
from understudy.constraints import Array
from understudy.types import Integers

__all__ = [
    "CHUNK",
    "PRODUCTION",
    "VOWPAL",
    "VOWPAL_PASSES",
    "Competitor",
    "Referee",
    "greedy_means",
    "logistic_regression",
    "peers",
    "production",
    "vowpal_wabbit",
]

PRODUCTION = "production"
CHUNK = 4096  # rounds at a time: policies of 26 actions take less than a megabyte
VOWPAL_KINDS = ("ips", "mtr", "dr", "dm")
# VW's default is 0.5. dr needs small rates where propensities are small; the others larger ones.
VOWPAL_RATES = (0.001, 0.01, 0.1, 0.5, 2.5)
PASSES = 5
STRENGTHS = (0.1, 1.0, 10.0)  # scikit-learn's C; 1 is its default
REFITS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)  # of the log: a user refits whenever it has doubled

ITERATIONS = 100  # scikit-learn's default


@dataclass(eq=False)
class Referee:
    """The referee knows the mean rewards (n, K), and records the value of a policy, round by round.

    `values` are expected rewards; `logged` the probabilities of the logged actions. `settled` is
    the first round whose policy was made of earlier rounds alone; a certificate begins there.
    """

    log: ProductionLog
    means: Array
    _values: list[Array] = field(default_factory=list)
    _logged: list[Array] = field(default_factory=list)
    recorded: int = 0
    settled: int = 0

    def record(self, policies: Array) -> None:
        """Record the policies (c, K) of the next c rounds."""
        part = slice(self.recorded, self.recorded + len(policies))
        self._values.append((policies * self.means[part]).sum(axis=1))
        self._logged.append(policies[np.arange(len(policies)), self.log.actions[part]])
        self.recorded = part.stop

    def record_actions(self, chosen: Integers) -> None:
        """Record the actions (c,) that a deterministic policy plays in the next c rounds."""
        for start in range(0, len(chosen), CHUNK):
            self.record(one_hot(chosen[start : start + CHUNK], self.log.n_actions))

    @property
    def values(self) -> Array:
        """The expected reward of the policy in each recorded round."""
        return np.concatenate(self._values) if self._values else np.empty(0)

    @property
    def logged(self) -> Array:
        """The probability of the logged action in each recorded round."""
        return np.concatenate(self._logged) if self._logged else np.empty(0)


class Competitor(Protocol):
    """A learner of a policy: it records all rounds or none, and returns its final policy (m, K)."""

    def __call__(self, log: ProductionLog, held_out: HeldOut, referee: Referee, /) -> Array: ...


def one_hot(chosen: Integers, n_actions: int) -> Array:
    """Deterministic policies as probabilities.

    >>> one_hot(np.array([1]), 3).tolist()
    [[0.0, 1.0, 0.0]]
    """
    return np.asarray(np.eye(n_actions)[chosen])


def importance_weighted(log: ProductionLog, chosen: Integers, part: slice) -> float:
    """The importance-weighted mean reward of chosen actions on a part of the log."""
    agrees = chosen[part] == log.actions[part]
    return float((agrees * log.rewards[part] / log.propensities[part]).mean())


def production(log: ProductionLog, held_out: HeldOut, referee: Referee) -> Array:
    """Production itself."""
    referee.record(log.production)
    return held_out.production


def greedy_means(log: ProductionLog, held_out: HeldOut, referee: Referee) -> Array:
    """The action with the largest mean reward so far, whatever the propensity.

    With labels, of this label; other contexts are ignored.
    """
    if log.labels:
        return _means_per_label(log, held_out, referee)
    K, counts, sums = log.n_actions, np.zeros(log.n_actions), np.zeros(log.n_actions)
    for start in range(0, len(log), CHUNK):
        part = slice(start, start + CHUNK)
        played = one_hot(log.actions[part], K)
        earned = played * log.rewards[part, np.newaxis]
        many, much = counts + played.cumsum(axis=0), sums + earned.cumsum(axis=0)
        before = np.vstack([counts, many[:-1]]), np.vstack([sums, much[:-1]])
        referee.record_actions((before[1] / np.maximum(before[0], 1.0)).argmax(axis=1))
        counts, sums = many[-1], much[-1]
    best = int((sums / np.maximum(counts, 1.0)).argmax())
    return one_hot(np.full(len(held_out.contexts), best), K)


def _means_per_label(log: ProductionLog, held_out: HeldOut, referee: Referee) -> Array:
    labels = log.contexts.argmax(axis=1)
    counts, sums = np.zeros((2, log.contexts.shape[1], log.n_actions))
    chosen = np.empty(len(log), dtype=np.int64)
    for t, (label, action) in enumerate(zip(labels.tolist(), log.actions.tolist(), strict=True)):
        chosen[t] = (sums[label] / np.maximum(counts[label], 1.0)).argmax()
        counts[label, action] += 1.0
        sums[label, action] += log.rewards[t]
    referee.record_actions(chosen)
    best = (sums / np.maximum(counts, 1.0)).argmax(axis=1)
    return one_hot(best[held_out.contexts.argmax(axis=1)], log.n_actions)


def logistic_regression(log: ProductionLog, held_out: HeldOut, referee: Referee) -> Array:
    """scikit-learn's classifier of the action with weights R/q, refitted whenever the log doubles.

    Before the first fit its policy is uniform.
    """
    half, quarter = len(log) // 2, len(log) // 4
    referee.settled = half
    tried = {C: _fit_weighted(log, quarter, C) for C in STRENGTHS}
    second = slice(quarter, half)
    C = max(
        tried,
        key=lambda C: importance_weighted(log, tried[C](log.contexts), second),
    )
    edges = [int(share * len(log)) for share in REFITS] + [len(log)]
    referee.record(np.full((edges[0], log.n_actions), 1.0 / log.n_actions))
    for start, end in pairwise(edges):
        referee.record_actions(_fit_weighted(log, start, C)(log.contexts[start:end]))
    return one_hot(_fit_weighted(log, len(log), C)(held_out.contexts), log.n_actions)


def _fit_weighted(log: ProductionLog, rounds: int, C: float) -> Callable[[Array], Integers]:
    """The classifier of the first rounds.

    Without features, or without two rewarded actions, it is the action with the largest weight.
    """
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 - a peer, and optional
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - scikit-learn needs it

    rewarded = np.flatnonzero(log.rewards[:rounds] > 0)
    actions = log.actions[rewarded]
    weights = log.rewards[rewarded] / log.propensities[rewarded]
    if not log.contexts.shape[1] or len(np.unique(actions)) < 2:  # noqa: PLR2004 - two classes
        best = int(np.bincount(actions, weights, log.n_actions).argmax())
        return lambda x: np.full(len(x), best)
    model = LogisticRegression(C=C, max_iter=ITERATIONS)
    with warnings.catch_warnings(), threadpool_limits(1):  # for small fits, threads cost more
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(log.contexts[rewarded], actions, sample_weight=weights / weights.mean())
    return lambda x: np.asarray(model.predict(x), dtype=np.int64)


class VowpalRuns:
    """Vowpal Wabbit's runs on one log, through files: its own reader is faster than its binding.

    The shared features interact with the action's; alone, they would be the same for all actions.
    """

    def __init__(self, log: ProductionLog, held_out: HeldOut) -> None:
        self.log, self.held_out = log, held_out
        self.folder = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self.folder)
        self._learned: dict[tuple[str, float, int], tuple[Integers, Integers]] = {}
        self._write()

    def best_rate(self, kind: str) -> float:
        """The rate with the largest importance-weighted reward on the first half."""
        first = slice(len(self.log) // 2)

        def earned(rate: float) -> float:
            return importance_weighted(self.log, self.learn(kind, rate)[0], first)

        return max(VOWPAL_RATES, key=earned)

    def learn(self, kind: str, rate: float, passes: int = 1) -> tuple[Integers, Integers]:
        """The actions of each round before it was learned from, and those of the final model.

        After several passes the first ones are empty: later passes have seen all rounds.
        """
        key = (kind, rate, passes)
        if key not in self._learned:
            self._learned[key] = self._learn(*key)
        return self._learned[key]

    def _write(self) -> None:
        """Write the log and the contexts held out as text."""
        log, K = self.log, self.log.n_actions
        labels = zip(
            log.actions.tolist(), log.rewards.tolist(), log.propensities.tolist(), strict=True
        )
        with (self.folder / "log.vw").open("w") as file:
            for shared, (action, reward, propensity) in zip(
                _shared_lines(log.contexts), labels, strict=True
            ):
                lines = [f"|a {k}" for k in range(K)]
                lines[action] = f"0:{-reward:g}:{propensity:.9g} {lines[action]}"
                file.write("\n".join([*shared, *lines]) + "\n\n")
        with (self.folder / "held_out.vw").open("w") as file:
            for shared in _shared_lines(self.held_out.contexts):
                file.write("\n".join([*shared, *(f"|a {k}" for k in range(K))]) + "\n\n")

    def _learn(self, kind: str, rate: float, passes: int) -> tuple[Integers, Integers]:
        quadratic = "-q sa" if self.log.contexts.shape[1] else ""
        common = f"--cb_adf --cb_type {kind} -l {rate} {quadratic} -f {self._path('model')}"
        if passes > 1:
            # Without --holdout_off, VW would leave out every tenth round.
            more = f"--passes {passes} --holdout_off -k --cache_file {self._path('cache')}"
            self._run(f"{common} {more} -d {self._path('log.vw')}")
            chosen = np.empty(0, dtype=np.int64)
        else:
            self._run(f"{common} -d {self._path('log.vw')} -p {self._path('chosen')}")
            chosen = self._chosen()
        held_out = f"-d {self._path('held_out.vw')} -p {self._path('chosen')}"
        self._run(f"-t -i {self._path('model')} {held_out}")
        return chosen, self._chosen()

    def _path(self, name: str) -> str:
        return str(self.folder / name)

    def _chosen(self) -> Integers:
        """The best action of each prediction; VW writes it first."""
        with (self.folder / "chosen").open() as file:
            return np.array([int(line.partition(":")[0]) for line in file if line != "\n"])

    @staticmethod
    def _run(arguments: str) -> None:
        import vowpalwabbit  # noqa: PLC0415 - a peer, and optional

        vowpalwabbit.Workspace(f"{arguments} --quiet --no_stdin").finish()


def _shared_lines(contexts: Array) -> Iterator[list[str]]:
    """The line of the shared features of each round; none without contexts."""
    for x in contexts:
        features = " ".join(f"{i}:{value:.6g}" for i, value in enumerate(x.tolist()) if value)
        yield [f"shared |s {features}"] if features else []


@lru_cache(maxsize=1)
def vowpal_runs(log: ProductionLog, held_out: HeldOut) -> VowpalRuns:
    """The runs on a log: competitors of the same log share its files and the runs of the grid."""
    return VowpalRuns(log, held_out)


def vowpal_wabbit(
    log: ProductionLog, held_out: HeldOut, referee: Referee, *, kind: str, passes: int = 1
) -> Array:
    """`--cb_adf` with one estimator, greedy, at the rate that did best on the first half."""
    runs = vowpal_runs(log, held_out)
    chosen, final = runs.learn(kind, runs.best_rate(kind), passes)
    if len(chosen):
        referee.record_actions(chosen)
        referee.settled = len(log) // 2
    return one_hot(final, log.n_actions)


VOWPAL_ONLINE: dict[str, Competitor] = {
    f"VW {kind}": partial(vowpal_wabbit, kind=kind) for kind in VOWPAL_KINDS
}
VOWPAL_PASSES: dict[str, Competitor] = {
    f"VW {kind}, {PASSES} passes": partial(vowpal_wabbit, kind=kind, passes=PASSES)
    for kind in VOWPAL_KINDS
}
VOWPAL = VOWPAL_ONLINE | VOWPAL_PASSES
PEERS: dict[str, dict[str, Competitor]] = {
    "vowpalwabbit": VOWPAL,
    "sklearn": {"IPW logistic": logistic_regression},
}


def peers() -> dict[str, Competitor]:
    """The competitors that need no package, and those whose package is installed, by name."""
    found: dict[str, Competitor] = {PRODUCTION: production, "greedy means": greedy_means}
    for package, competitors in PEERS.items():
        if installed(package):
            found |= competitors
    return found
