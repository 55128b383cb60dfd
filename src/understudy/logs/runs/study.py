"""The fold over the validated batches of a log, for a learner or for fixed policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.behaviors import Behavior, Logged, propensities_of
from understudy.certificates import (
    AnyCertificate,
    Certificate,
)
from understudy.certificates.curves import Point
from understudy.certificates.difference import certificate_against
from understudy.certificates.evidence import RULES, WeightedRounds
from understudy.certificates.targets import (
    Target,
)
from understudy.constraints import Array
from understudy.logs.evaluation.answers import (
    NO_SUMS,
    Answers,
    Baseline,
    guardrails_of,
    segments_of,
)
from understudy.logs.evaluation.context_groups import ContextGroups
from understudy.logs.evaluation.questions import PLAIN_QUESTION, QuarantinedRows, Question
from understudy.logs.features import ContextFeatures
from understudy.logs.runs.certificate_path import (
    NOTHING_BESIDE,
    Beside,
    CertificatePath,
    among_all,
)
from understudy.logs.schema import UNKNOWN
from understudy.logs.statistics import ActionStatistics, CountsOverTime
from understudy.logs.validate import Rejected, ValidatedBatch
from understudy.protocols import Learner
from understudy.types import Integers, Log

LAST = 4_096  # rows whose contexts a policy is averaged over: recent ones, of a bounded number
Number = TypeVar("Number", bound=np.generic)


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
        self,
        log: Log,
        targets: Sequence[Target] = (),
        rejected: Rejected | None = None,
        beside: Beside = NOTHING_BESIDE,
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
                None
                if curve is None
                else curve.after(plain, target, self.sums.counts, rejected, beside)
                for curve, target in zip(self.curves, targets, strict=True)
            ),
        )


def observe_rows(
    rows: Iterable[ValidatedBatch],
    observed: Observed,
    targets: Callable[[ValidatedBatch], Sequence[Target]] = lambda _: (),
    beside: Callable[[ValidatedBatch], Beside] = lambda _: NOTHING_BESIDE,
) -> Observed:
    """Observe all rows of a log, for policies that are these `targets` in a batch of its rows."""
    for batch in rows:
        observed = observed.observe(batch.log(), targets(batch), batch.rejected, beside(batch))
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
        question: Question = PLAIN_QUESTION,
        against: Array | None = None,
        forks: bool = False,
    ) -> Study:
        """The study before the first row; without a confidence it has no certificate.

        `against` are the probabilities of the baseline of the question.
        """
        K, curve = learner.spec.n_actions, None
        if confidence is not None:
            plain = Certificate(behavior, confidence, K, rules=rules)
            certificate: AnyCertificate = plain
            if against is not None:
                certificate = certificate_against(plain, against, paired=not partial)
            curve = CertificatePath.begin(
                certificate,
                question,
                against=against,
                hindsight=not declared,
                partial=partial,
                forks=forks,
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

    def without_groups(self) -> Study:
        """The study as live ones go on with it: they neither count groups of contexts nor fork."""
        curves = (
            None if one is None else replace(one, forks=False, without_rejected=None)
            for one in self.curves
        )
        return replace(self, groups=None, curves=tuple(curves))

    def after(
        self,
        log: Log,
        rejected: Rejected | None = None,
        codes: Integers | None = None,
        beside: Beside = NOTHING_BESIDE,
    ) -> Study:
        """Learn from more rows, which carry propensities if the behavior is logged.

        Rejected rows among them are not learned from, but they count in the certificate. `codes`
        are the groups of contexts of all rows, also of these, whose gains are over production.
        """
        state, trace = self.learner.replay(self.state, self.learner.spec.visible(log))
        after = replace(self.observe(log, [trace], rejected, beside), state=state)
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


def answers_of(path: CertificatePath, question: Question, baseline: Baseline | None) -> Answers:
    """The answers of a policy's certificates to a question; no baseline stands for production."""
    own, other = path.chosen(question.quarantined), path.other(question.quarantined)
    sums, segments = own.baseline, question.segments
    return Answers(
        baseline=None if baseline is None else replace(baseline, sums=sums or NO_SUMS),
        joint=own.joint,
        guardrails=() if own.joint is None else guardrails_of(own.joint, sums),
        segments=None
        if own.segments is None or segments is None
        else segments_of(segments.column, own.segments, sums),
        missing_at_random=question.quarantined is QuarantinedRows.MISSING_AT_RANDOM,
        other_gain=None if other is None else other.mean_gain,
    )


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


def with_propensities(log: Log, behavior: Behavior | None) -> Log:
    """The log with the propensities that a given behavior has for its actions."""
    if behavior is None or isinstance(behavior, Logged):
        return log
    return Log._of(log.actions, log.rewards, behavior[log.actions], None)
