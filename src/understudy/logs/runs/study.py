"""The fold over the validated batches of a log, for a learner or for fixed policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.behaviors import Behavior, Logged, propensities_of
from understudy.certificates import AnyCertificate, Certificate, FixedPolicy
from understudy.certificates.curves import Point, follow
from understudy.certificates.evidence import RULES, WeightedRounds
from understudy.certificates.targets import (
    Target,
    largest_ratio,
    largest_ratios,
    probabilities_under,
    ratio_of_policy,
)
from understudy.constraints import Array
from understudy.logs.evaluation.context_groups import ContextGroups
from understudy.logs.features import ContextFeatures
from understudy.logs.schema import UNKNOWN
from understudy.logs.statistics import ActionStatistics, CountsOverTime
from understudy.logs.validate import Rejected, ValidatedBatch
from understudy.protocols import Learner
from understudy.types import Integers, Log

LAST = 4_096  # rows whose contexts a policy is averaged over: recent ones, of a bounded number
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, eq=False)
class CertificatePath:
    """The certificate of one policy after the rows so far, and the points of its curve.

    A policy over actions that were read from the log itself is a `hindsight`: the first row of each
    action counts as one in which the policy earned nothing. Then weights are too small on average,
    so that no center is valid. So they may be if the policy is `partial`: it may play actions that
    production cannot play, because rows have eligible sets, or because only a column shows it.
    """

    certificate: AnyCertificate
    hindsight: bool = False
    partial: bool = False
    points: tuple[Point, ...] = ()

    def after(
        self, log: Log, target: Target, counts: Integers, rejected: Rejected | None
    ) -> CertificatePath:
        """The path after more rows, with the policy's probabilities of the logged actions."""
        columns = self.columns(log, target, counts, rejected)
        certificate, more = follow(self.certificate, *columns)
        return replace(self, certificate=certificate, points=(*self.points, *more))

    @property
    def may_center(self) -> bool:
        """Whether weights have a mean of 1, as centers need it."""
        return not (self.hindsight or self.partial)

    def columns(
        self, log: Log, target: Target, counts: Integers, rejected: Rejected | None
    ) -> tuple[Log, Array, Array]:
        """The log of all rows, π_t(b_t) and W_t; actions were played so often before."""
        probability, ratios = self._columns_of_valid(log, target, counts)
        if rejected is None:
            return log, probability, ratios
        certificate = self.certificate
        behavior, most = certificate.behavior, math.inf
        if self.may_center:
            most = _ratio_of_rejected(target, log, behavior)
        if not self.may_center or log.propensity_vectors is not None:
            target = probability  # so that no w is known: w needs the W of usable rows
        if certificate.centered:
            ratios = among_all(ratios, rejected.valid, most)
            return *with_unusable(log, probability, rejected, behavior, target), ratios
        log, probability = with_rejected(log, probability, rejected, behavior)
        return log, probability, np.full(len(log), math.inf)

    def _columns_of_valid(self, log: Log, target: Target, counts: Integers) -> tuple[Array, Array]:
        """π_t(b_t) and W_t of valid rows."""
        certificate = self.certificate
        probability = probabilities_under(target, log, certificate.n_actions)
        if self.hindsight:
            probability = without_first_plays(probability, log.actions, counts)
        if not self.may_center:
            return probability, np.full(len(log), math.inf)
        return probability, largest_ratios(target, log, certificate.behavior)


@dataclass(frozen=True, eq=False)
class Observed:
    """The sums per action, counts over time, and certificates of policies after the rows so far.

    `behavior` holds the probabilities of production, `us.Logged`, or None if they are not known. A
    policy that the log may not judge has None instead of a certificate.
    """

    behavior: Behavior | None
    sums: ActionStatistics
    counts_over_time: CountsOverTime
    curves: tuple[CertificatePath | None, ...]

    @staticmethod
    def nothing(
        n_actions: int,
        behavior: Behavior | None,
        curves: Iterable[CertificatePath | None] = (),
    ) -> Observed:
        """The state before the first row."""
        empty = ActionStatistics.empty(n_actions), CountsOverTime.empty(n_actions)
        return Observed(behavior, *empty, tuple(curves))

    def observe(
        self, log: Log, targets: Sequence[Target] = (), rejected: Rejected | None = None
    ) -> Self:
        """The state after more rows; `targets` are the policies in these rows.

        Rejected rows are in no sum, but they count in the certificates.
        """
        plain = log.visible(
            propensities=isinstance(self.behavior, Logged), features=False, vectors=True
        )
        return replace(
            self,
            sums=self.sums.after(with_propensities(plain, self.behavior)),
            counts_over_time=self.counts_over_time.after(log.actions),
            curves=tuple(
                None if curve is None else curve.after(plain, target, self.sums.counts, rejected)
                for curve, target in zip(self.curves, targets, strict=True)
            ),
        )


def observe_rows(
    rows: Iterable[ValidatedBatch],
    observed: Observed,
    targets: Callable[[ValidatedBatch], Sequence[Target]] = lambda _: (),
) -> Observed:
    """Observe all rows of a log, for policies that are these `targets` in a batch of its rows."""
    for batch in rows:
        observed = observed.observe(batch.log(), targets(batch), batch.rejected)
    return observed


@dataclass(frozen=True, eq=False)
class Study(Observed):
    """A learner with its state, certificate and statistics after the rows so far.

    Its only curve is that of the learner, None if contexts have an unknown behavior. A learner over
    actions that were not declared is a hindsight. `groups` has the sums of groups of contexts, if
    there are contexts.
    """

    learner: Learner[Any]
    state: Any
    groups: ContextGroups | None = None

    @staticmethod
    def begin(
        learner: Learner[Any],
        behavior: Behavior | None,
        confidence: float | None,
        *,
        declared: bool = True,
        partial: bool = False,
        groups: ContextGroups | None = None,
        rules: int = RULES,
    ) -> Study:
        """The study before the first row; without a confidence it has no certificate."""
        K, curve = learner.spec.n_actions, None
        if confidence is not None:
            curve = CertificatePath(
                Certificate(behavior, confidence, K, rules=rules), not declared, partial=partial
            )
        empty = Observed.nothing(K, behavior, [curve])
        return Study(**vars(empty), learner=learner, state=learner.init(), groups=groups)

    @property
    def rounds(self) -> int:
        return self.learner.rounds(self.state)

    @property
    def certificate(self) -> AnyCertificate | None:
        (curve,) = self.curves
        return None if curve is None else curve.certificate

    @property
    def curve(self) -> tuple[Point, ...]:
        """The points of the certificate so far."""
        (curve,) = self.curves
        return () if curve is None else curve.points

    def after(
        self, log: Log, rejected: Rejected | None = None, codes: Integers | None = None
    ) -> Study:
        """Learn from more rows, which carry propensities if the behavior is logged.

        Rejected rows among them are not learned from, but they count in the certificate. `codes`
        are the groups of contexts of all rows, also of these.
        """
        state, trace = self.learner.replay(self.state, self.learner.spec.visible(log))
        after = replace(self.observe(log, [trace], rejected), state=state)
        if self.groups is None or codes is None:
            return after
        valid = np.ones(len(log), dtype=np.bool_) if rejected is None else rejected.valid
        (curve,), plays = self.curves, among_all(log.actions, valid, UNKNOWN)
        rounds = None
        if curve is not None and self.behavior is not None:
            every, probability, ratios = curve.columns(log, trace, self.sums.counts, rejected)
            q = propensities_of(self.behavior, every)
            rounds = WeightedRounds(probability, q, every.rewards, ratios)
        return replace(after, groups=self.groups.after(codes, plays, rounds))


def last_rows(last: NDArray[Number] | None, rows: NDArray[Number]) -> NDArray[Number]:
    """The last rows after more rows: their features, or their groups."""
    return rows[-LAST:] if last is None else np.concatenate([last, rows])[-LAST:]


def last_policies(
    study: Study, contextual: ContextFeatures | None, last: Array | None
) -> tuple[Array, float]:
    """The policy of each of the last rows less the parts of outside policies, and their share.

    Without contexts it is the policy of the next row; there is no row if `last` has none.
    """
    if contextual is not None and last is None:
        return np.empty((0, study.learner.spec.n_actions)), 0.0
    known, shares = study.learner.known_at(study.state, last if contextual is not None else None)
    return known, float(shares.sum())


def mean_policy(study: Study, known: Array, follows: float) -> Array:
    """The mean of `last_policies`; before the first row it is uniform."""
    K = study.learner.spec.n_actions
    if not len(known):
        return np.full(K, 1.0 / K)
    # Outside policies are known at logged actions only: production's frequencies stand for them.
    seen = study.sums.counts.sum()
    frequencies = study.sums.counts / seen if seen else np.full(K, 1.0 / K)
    return np.asarray(known.mean(axis=0) + follows * frequencies)


def average_policy(study: Study, contextual: ContextFeatures | None, last: Array | None) -> Array:
    """The policy of the next row; with contexts, its mean over the last of them."""
    return mean_policy(study, *last_policies(study, contextual, last))


def with_rejected(
    log: Log, probability: Array, rejected: Rejected, behavior: Behavior | None
) -> tuple[Log, Array]:
    """Put the rejected rows, in their places, into a log and the target's probabilities.

    The target is taken to earn nothing in them, π(b) = 0, and production the reward of the row, or
    the largest possible. So all bounds hold for any outcome of these rows, and rows that cannot be
    read never make the target look better. If the behavior is estimated, a row without an action is
    left out.

    >>> one = np.array([-1]), np.array([1.0]), np.array([False]), np.array([0.5])
    >>> rejected = Rejected(np.array([True, False]), *one)
    >>> valid, behavior = Log([1], [0.5], [0.25]), Logged(n_actions=2)
    >>> log, p = with_rejected(valid, np.array([0.9]), rejected, behavior)
    >>> log.rewards.tolist(), log.propensities.tolist(), p.tolist()
    ([0.5, 1.0], [0.25, 1.0], [0.9, 0.0])
    """
    valid, n = rejected.valid, len(rejected.valid)
    actions, rewards, pi = np.zeros(n, dtype=np.int64), np.empty(n), np.zeros(n)
    actions[valid], rewards[valid], pi[valid] = log.actions, log.rewards, probability
    rewards[~valid] = rejected.rewards
    if behavior is None:
        known = valid.copy()
        known[~valid] = rejected.actions >= 0
        actions[~valid] = np.maximum(rejected.actions, 0)
        return Log._of(actions[known], rewards[known], None, None), pi[known]
    if isinstance(behavior, Logged):
        q = np.ones(n)
        q[valid] = log.propensities
        return Log._of(actions, rewards, q, None), pi
    actions[~valid] = int(np.argmax(behavior))  # any playable action: its weight is 0
    return Log._of(actions, rewards, None, None), pi


def with_unusable(
    log: Log, probability: Array, rejected: Rejected, behavior: Behavior | None, target: Target
) -> tuple[Log, Array]:
    """Put the rejected rows, in their places, into a log and the target's probabilities.

    A row has nan as its reward if that is not known, and as its probability, unless the reward is
    all that is not known of it: the certificate takes the worst that the row may have been.

    >>> one = np.array([1]), np.array([1.0]), np.array([False]), np.array([0.5])
    >>> rejected = Rejected(np.array([True, False]), *one)
    >>> valid, behavior = Log([1], [0.5], [0.25]), Logged(n_actions=2)
    >>> log, p = with_unusable(valid, np.array([0.9]), rejected, behavior, [0.2, 0.8])
    >>> log.rewards.tolist(), log.propensities.tolist(), p.tolist()
    ([0.5, nan], [0.25, 0.5], [0.9, nan])
    >>> policy = FixedPolicy([0.2, 0.8])
    >>> with_unusable(valid, np.array([0.9]), rejected, behavior, policy)[1].tolist()
    [0.9, 0.8]
    """
    valid, places = rejected.valid, ~rejected.valid
    actions, rewards = among_all(log.actions, valid, 0), among_all(log.rewards, valid, math.nan)
    pi, own = among_all(probability, valid, math.nan), np.full(int(places.sum()), math.nan)
    rewards[places] = np.where(rejected.has_reward, rejected.rewards, math.nan)
    if isinstance(behavior, np.ndarray):
        playable = (rejected.actions >= 0) & (behavior[rejected.actions] > 0.0)
        actions[places] = np.where(playable, rejected.actions, int(np.argmax(behavior)))
        q = None
    else:
        assert behavior is not None  # a counted one has no centers
        assert log.propensities is not None and rejected.propensities is not None  # noqa: PT018
        low, high = behavior.range  # outside of it there may have been no choice: no w is known
        playable = (rejected.actions >= 0) & (rejected.propensities >= low)
        playable &= rejected.propensities <= high
        q = among_all(log.propensities, valid, 1.0)
        q[places] = np.where(playable, rejected.propensities, 1.0)
    if isinstance(target, FixedPolicy):
        known = playable & ~rejected.has_reward
        own[known] = target.probabilities[rejected.actions[known]]
    pi[places] = own
    return Log._of(actions, rewards, q), pi


def among_all(values: NDArray[Number], valid: NDArray[np.bool_], other: float) -> NDArray[Number]:
    """The values of valid rows in their places among all rows; the other rows have `other`.

    >>> among_all(np.array([0.5]), np.array([False, True]), 1.0).tolist()
    [1.0, 0.5]
    """
    found = np.full((len(valid), *values.shape[1:]), other, dtype=values.dtype)
    found[valid] = values
    return found


def _ratio_of_rejected(target: Target, log: Log, behavior: Behavior | None) -> float:
    """W of a row that cannot be used: at least that of its own, or nan if it has one unseen.

    A fixed policy without vectors has the W of usable rows. With a larger one, centers would be
    smaller in rows that lack a reward, and so depend on the action (docs/theory.md, section 11).
    """
    if behavior is None:
        return math.inf
    unseen = log.propensity_vectors is not None
    if isinstance(target, FixedPolicy):
        most = ratio_of_policy(target.probabilities, behavior)
    else:
        most = largest_ratio(behavior)
        unseen |= not isinstance(behavior, Logged)
    return math.nan if math.isinf(most) and unseen else most


def without_first_plays(probability: Array, actions: Integers, counts: Integers) -> Array:
    """The target's probabilities, 0 in the first row of each action.

    A target over the actions of the log cannot be played before the log is known. A target that
    spreads its probability over the actions seen so far can be, and gives no less to the logged
    action in all other rows.

    >>> without_first_plays(np.full(3, 0.5), np.array([1, 0, 1]), np.array([7, 0])).tolist()
    [0.0, 0.5, 0.5]
    """
    new = np.flatnonzero(counts[actions] == 0)
    if not len(new):
        return probability
    _, first = np.unique(actions[new], return_index=True)
    without = probability.copy()
    without[new[first]] = 0.0
    return without


def with_propensities(log: Log, behavior: Behavior | None) -> Log:
    """The log with the propensities that a given behavior has for its actions."""
    if behavior is None or isinstance(behavior, Logged):
        return log
    return Log._of(log.actions, log.rewards, behavior[log.actions], None)
