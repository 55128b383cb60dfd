"""What is known after so many rows: learner, certificate, coverage. A fold of the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from understudy.behaviors import Behavior, Logged
from understudy.certificates import Certificate
from understudy.certificates.curves import Point, follow
from understudy.constraints import Array
from understudy.logs.statistics import ActionStatistics, CountsOverTime
from understudy.logs.validate import Rejected
from understudy.protocols import Learner
from understudy.types import Integers, Log

__all__ = ["Study", "observe", "with_propensities", "with_rejected", "without_first_plays"]


@dataclass(frozen=True, eq=False)
class Study:
    """A learner, what it knows, and what can be said about it, after the rows so far.

    `behavior` is what is known of who was on stage: probabilities, `us.Logged`, or None. Without a
    `certificate`, none is kept: contexts whose behavior is not known cannot be certified.
    `stretches` counts actions early and late; `curve` has the points of the certificate so far.
    If the actions were not `declared`, but read from the log, the first row of each counts in the
    certificate as one in which the learner earned nothing: it knew too early that it would come.
    """

    learner: Learner[Any]
    state: Any
    behavior: Behavior | None
    certificate: Certificate | None
    tally: ActionStatistics
    stretches: CountsOverTime
    curve: tuple[Point, ...] = ()
    declared: bool = True

    @staticmethod
    def begin(
        learner: Learner[Any],
        behavior: Behavior | None,
        confidence: float | None,
        *,
        declared: bool = True,
    ) -> Study:
        """Before the first row; no confidence, no certificate.

        >>> import understudy as us
        >>> study = Study.begin(us.exp3_ix([0.5, 0.5]), np.array([0.5, 0.5]), 0.95)
        >>> study.after(Log([1, 0], [1.0, 0.0])).rounds
        2
        """
        K = learner.spec.n_actions
        certificate = None if confidence is None else Certificate(behavior, confidence, K)
        empty = ActionStatistics.empty(K), CountsOverTime.empty(K)
        state = learner.init()
        return Study(learner, state, behavior, certificate, *empty, declared=declared)

    @property
    def rounds(self) -> int:
        return self.learner.rounds(self.state)

    def after(self, log: Log, rejected: Rejected | None = None) -> Study:
        """Learn from more rows, which carry propensities if the behavior is logged.

        Rejected rows among them are not learned from, but they count in the certificate.
        """
        spec = self.learner.spec
        shown = log.visible(propensities=spec.propensities, features=spec.features is not None)
        state, trace = self.learner.replay(self.state, shown)
        plain = log.visible(propensities=isinstance(self.behavior, Logged), features=False)
        learned = replace(
            self,
            state=state,
            tally=self.tally.after(with_propensities(plain, self.behavior)),
            stretches=self.stretches.after(log.actions),
        )
        if self.certificate is None:
            return learned
        pi = trace.probability
        if not self.declared:
            pi = without_first_plays(pi, log.actions, self.tally.counts)
        certificate, more = observe(self.certificate, plain, pi, rejected)
        return replace(learned, certificate=certificate, curve=(*self.curve, *more))


def with_rejected(
    log: Log, probability: Array, rejected: Rejected, behavior: Behavior | None
) -> tuple[Log, Array]:
    """The log and the target's probabilities with the rows that were quarantined, in their places.

    The target is taken to earn nothing in them, and production what the row says, or the most there
    is: π(b) = 0. Then all bounds hold whatever happened in these rows, so that nobody gains by what
    could not be read. Where the behavior is counted, a row without an action tells nothing.

    >>> rejected = Rejected(np.array([True, False]), np.array([-1]), np.array([1.0]))
    >>> good, behavior = Log([1], [0.5], [0.25]), Logged(n_actions=2)
    >>> log, p = with_rejected(good, np.array([0.9]), rejected, behavior)
    >>> log.rewards.tolist(), log.propensities.tolist(), p.tolist()
    ([0.5, 1.0], [0.25, 1.0], [0.9, 0.0])
    """
    good, n = rejected.good, len(rejected.good)
    actions, rewards, pi = np.zeros(n, dtype=np.int64), np.empty(n), np.zeros(n)
    actions[good], rewards[good], pi[good] = log.actions, log.rewards, probability
    rewards[~good] = rejected.rewards
    if behavior is None:
        known = good.copy()
        known[~good] = rejected.actions >= 0
        actions[~good] = np.maximum(rejected.actions, 0)
        return Log._of(actions[known], rewards[known], None, None), pi[known]
    if isinstance(behavior, Logged):
        q = np.ones(n)
        q[good] = log.propensities
        return Log._of(actions, rewards, q, None), pi
    actions[~good] = int(np.argmax(behavior))  # any that can be played: it weighs nothing
    return Log._of(actions, rewards, None, None), pi


def without_first_plays(probability: Array, actions: Integers, counts: Integers) -> Array:
    """The target's probabilities, 0 where an action comes up for the first time.

    A target over the actions that a log shows is none that anybody could have played before. But
    one that spreads what it has over the actions seen so far is, and has no less in all other rows.

    >>> without_first_plays(np.full(3, 0.5), np.array([1, 0, 1]), np.array([7, 0])).tolist()
    [0.0, 0.5, 0.5]
    """
    new = np.flatnonzero(counts[actions] == 0)
    if not len(new):
        return probability
    _, first = np.unique(actions[new], return_index=True)
    found = probability.copy()
    found[new[first]] = 0.0
    return found


def with_propensities(log: Log, behavior: Behavior | None) -> Log:
    """The log with the propensities that a given behavior has for its actions.

    >>> with_propensities(Log([1, 0], [1.0, 0.0]), np.array([0.25, 0.75])).propensities.tolist()
    [0.75, 0.25]
    """
    if behavior is None or isinstance(behavior, Logged):
        return log
    return Log._of(log.actions, log.rewards, behavior[log.actions], None)


def observe(
    certificate: Certificate, log: Log, probability: Array, rejected: Rejected | None = None
) -> tuple[Certificate, list[Point]]:
    """The certificate after more rounds, with those quarantined, and its points on the way.

    `probability` is that of each action under the target.
    """
    if rejected is not None:
        log, probability = with_rejected(log, probability, rejected, certificate.behavior)
    return follow(certificate, log, probability)
