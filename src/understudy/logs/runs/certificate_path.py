"""The certificates of one policy after the rows so far: its goal, guardrails and segments.

Rejected rows are among the rows, as the worst that they may have been.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.behaviors import Behavior, Logged, propensities_of
from understudy.certificates import (
    AnyCertificate,
    BaselineRounds,
    FixedPolicy,
    JointCertificate,
    SegmentCertificates,
)
from understudy.certificates.curves import Point, follow, follow_joint
from understudy.certificates.targets import (
    Target,
    largest_ratio,
    largest_ratios,
    probabilities_under,
    ratio_of_policy,
)
from understudy.constraints import Array
from understudy.logs.evaluation.questions import PLAIN_QUESTION, QuarantinedRows, Question
from understudy.logs.statistics import BaselineSums
from understudy.logs.validate import Rejected
from understudy.types import Integers, Log

Number = TypeVar("Number", bound=np.generic)
DIGITS = 15  # of a confidence: half of δ, doubled again, may differ from δ in the last bit


class Beside(NamedTuple):
    """The columns of a question in the rows of a batch.

    `against` is a baseline that depends on the row, in the valid rows, None if there is none;
    `metrics` are those of all rows in [0, 1], (n, m), and nan where one cannot be used; `codes` are
    the segments of all rows.
    """

    against: Target | None = None
    metrics: Array | None = None
    codes: Integers | None = None

    def of_valid(self, rejected: Rejected | None) -> Beside:
        """The columns of the valid rows alone."""
        if rejected is None:
            return self
        metrics = None if self.metrics is None else self.metrics[rejected.valid]
        codes = None if self.codes is None else self.codes[rejected.valid]
        return Beside(self.against, metrics, codes)


NOTHING_BESIDE = Beside()


@dataclass(frozen=True, eq=False)
class CertificatePath:
    """The certificate of one policy after the rows so far, and the points of its curve.

    A policy over actions that were read from the log itself is a `hindsight`: the first row of each
    action counts as one in which the policy earned nothing. Then weights are too small on average,
    so that no center is valid. So they may be if the policy is `partial`: it may play actions that
    production cannot play, because rows have eligible sets, or because only a column shows it.

    With guardrails, `joint` decides, and the certificate is that of its goal. `against` is a
    baseline with the same probabilities in every row, and `baseline` has sums that estimate the
    gain over a baseline; both are None for production. `without_rejected` is the path without the
    rejected rows, from the first of them on, if it `forks`.
    """

    certificate: AnyCertificate
    hindsight: bool = False
    partial: bool = False
    points: tuple[Point, ...] = ()
    joint: JointCertificate | None = None
    segments: SegmentCertificates | None = None
    baseline: BaselineSums | None = None
    against: Array | None = None
    forks: bool = False
    without_rejected: CertificatePath | None = None

    @staticmethod
    def begin(
        certificate: AnyCertificate,
        question: Question = PLAIN_QUESTION,
        *,
        against: Array | None = None,
        hindsight: bool = False,
        partial: bool = False,
        forks: bool = False,
    ) -> CertificatePath:
        """The path before the first row; the confidence of the certificate is that of each part.

        The certificate is made for its baseline, such as by `certificate_against`.
        """
        guardrails, segments = question.guardrails, question.segments
        joint = JointCertificate.begin(certificate, guardrails) if guardrails else None
        return CertificatePath(
            certificate if joint is None else joint.goal,
            hindsight,
            partial,
            joint=joint,
            segments=None
            if segments is None
            else SegmentCertificates.begin(certificate, segments.values),
            against=against,
            forks=forks,
        )

    def after(
        self,
        log: Log,
        target: Target,
        counts: Integers,
        rejected: Rejected | None,
        beside: Beside = NOTHING_BESIDE,
    ) -> CertificatePath:
        """The path after more rows, with the policy's probabilities of the logged actions."""
        if self.forks and rejected is not None and self.without_rejected is None:
            fork = replace(self, forks=False)
            return replace(self, without_rejected=fork).after(log, target, counts, rejected, beside)
        other = self.without_rejected
        if other is not None:
            other = other.after(log, target, counts, None, beside.of_valid(rejected))
        columns = self.columns(log, target, counts, rejected)
        if self.against is not None:
            beside = beside._replace(against=FixedPolicy(self.against))
        baseline, totals = None, self.baseline
        if beside.against is not None:
            columns, baseline = self._with_baseline(columns, log, beside.against, rejected)
            totals = self._baseline_sums(log, target, beside, rejected)
        certificate, joint, segments = self.certificate, self.joint, self.segments
        if joint is None:
            certificate, more = follow(certificate, *columns, baseline)
        else:
            assert beside.metrics is not None  # of the guardrails
            joint, more = follow_joint(joint, *columns, beside.metrics, baseline)
            certificate = joint.goal
        if segments is not None:
            assert beside.codes is not None  # of the segments
            segments = segments.advance(*columns, beside.codes, baseline)
        return replace(
            self,
            certificate=certificate,
            points=(*self.points, *more),
            joint=joint,
            segments=segments,
            baseline=totals,
            without_rejected=other,
        )

    def _with_baseline(
        self,
        columns: tuple[Log, Array, Array],
        log: Log,
        against: Target,
        rejected: Rejected | None,
    ) -> tuple[tuple[Log, Array, Array], BaselineRounds]:
        """The columns, and π₀(b_t) and its W_t in the same rows.

        A rejected row whose w is known has the baseline's too: else neither counts as known.
        """
        certificate, (every, probability, ratios) = self.certificate, columns
        behavior = certificate.behavior
        own = probabilities_under(against, log, certificate.n_actions)
        known = largest_ratios(against, log, behavior)
        if rejected is None:
            return columns, BaselineRounds(own, known)
        if not certificate.centered:
            _, own = with_rejected(log, own, rejected, behavior)
            return columns, BaselineRounds(own, np.full(len(own), math.inf))
        known = among_all(known, rejected.valid, _ratio_of_rejected(against, log, behavior))
        _, own = with_unusable(log, own, rejected, behavior, against)
        probability = np.where(np.isnan(own), math.nan, probability)
        return (every, probability, ratios), BaselineRounds(own, known)

    def _baseline_sums(
        self, log: Log, target: Target, beside: Beside, rejected: Rejected | None
    ) -> BaselineSums | None:
        """The sums that estimate the gain over the baseline; None if propensities are unknown."""
        if (behavior := self.certificate.behavior) is None or beside.against is None:
            return None
        K, q = self.certificate.n_actions, propensities_of(behavior, log)
        w0 = probabilities_under(beside.against, log, K) / q
        squares = (probabilities_under(target, log, K) / q - w0) ** 2
        own, old = beside.of_valid(rejected), self.baseline or BaselineSums()
        totals = np.stack([w0 * log.rewards, w0, squares, squares * log.rewards], axis=1)
        metrics, segments = old.metrics, old.segments
        if own.metrics is not None:
            usable, plays = ~np.isnan(own.metrics), w0[:, np.newaxis]
            weighted = np.where(usable, own.metrics, 0.0) * plays
            metrics = _added(metrics, np.stack([weighted, usable * plays], axis=2))
        if own.codes is not None and self.segments is not None:
            segments = np.zeros((len(self.segments.names), 2)) if segments is None else segments
            among, segments = own.codes >= 0, segments.copy()
            np.add.at(segments, own.codes[among], totals[among, :2])
        rewards, weights, each, weighted = _added(np.array(old[:4]), totals).tolist()
        n = old.rows + len(log)
        return BaselineSums(rewards, weights, each, weighted, n, metrics, segments)

    def chosen(self, quarantined: QuarantinedRows) -> CertificatePath:
        """The path with, or without, the rejected rows."""
        left_out = quarantined is QuarantinedRows.MISSING_AT_RANDOM
        return self if self.without_rejected is None or not left_out else self.without_rejected

    def other(self, quarantined: QuarantinedRows) -> CertificatePath | None:
        """The path with the other treatment of rejected rows; None if there are none."""
        if self.without_rejected is None:
            return None
        return self if self.chosen(quarantined) is not self else self.without_rejected

    def resumed(self, rows: int, *, partial: bool) -> CertificatePath:
        """The path to go on with after a run whose actions, of so many rows, are known by now.

        It may fork if it has forked, or if no rejected row has been observed.
        """
        other = self.without_rejected
        return replace(
            self,
            hindsight=False,
            partial=partial,
            forks=other is not None or self.certificate.rounds == rows,
            without_rejected=None if other is None else other.resumed(rows, partial=partial),
        )

    @property
    def confidence(self) -> float:
        """1 − δ, of the goal and its guardrails together."""
        if self.joint is None:
            return self.certificate.confidence
        return round(self.joint.confidence, DIGITS)

    @property
    def holds(self) -> bool:
        """Whether the goal gains, together with its guardrails."""
        return self.mean_gain > 0.0 if self.joint is None else self.joint.shows_gain()

    @property
    def mean_gain(self) -> float:
        """The largest certain gain per round; −1 if none is certified."""
        window = self.certificate.window
        return -1.0 if window is None else window.gain

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


def _added(sums: Array | None, rows: Array) -> Array:
    """The sums after more rows, added one after the other: the same bits in any batching.

    >>> _added(np.array([1.0]), np.array([[0.5], [0.25]]))
    array([1.75])
    """
    before = np.zeros(rows.shape[1:]) if sums is None else sums
    return np.asarray(np.cumsum(np.concatenate([before[np.newaxis], rows]), axis=0)[-1])


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
        actions[places] = np.maximum(rejected.actions, 0)  # the baseline's w is of this action
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
