"""The state of a study: a fold of its decisions, in the order of production.

A decision is processed when its reward is known, or its wait is over and it counts with the default
reward, and every earlier one has been processed. So the order in which rewards arrive changes
neither what is learned nor the certificate: if rewarded decisions went before those that time out,
the first rows would all have rewards, and no bound would hold.

In a study with units a decision is the first event of a unit. It is processed when the rewards of
all its events are known, or its wait is over: its reward is their sum divided by the declared
number of events. A unit whose events have other actions than its first one is not sticky, so what
it earned is not that of its action: its reward counts as unknown.

Such a unit, and a decision whose propensities contradict the declared least one, are rejected rows,
as in `us.logs.learn`: they are not learned from, and count in the certificate with the worst that
they may have been.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from understudy.behaviors import Logged
from understudy.certificates.evidence import FIRST_RULES
from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidLog
from understudy.learners import Exp4, Mapped, Outside
from understudy.learners.outside_policies import unknown_policy
from understudy.live.decision_contexts import (
    StickySearch,
    context_bytes,
    context_frame,
    may_be_sticky,
    search_ends,
)
from understudy.live.spec import StudySpec
from understudy.live.store.records import Decision, Snapshot, unpack_doubles
from understudy.logs.action_files import check_probabilities, probability_vector
from understudy.logs.evaluation.sticky_columns import StickyColumns
from understudy.logs.features import (
    ConstantContexts,
    ContextFeatures,
    Warmup,
    context_features,
)
from understudy.logs.learn import coverage_of_policy
from understudy.logs.policy import Policy, Provenance, from_text, playable
from understudy.logs.results import LearnResult
from understudy.logs.rules import AGAINST_LEAST, RejectReason, limit_faults
from understudy.logs.runs.study import LAST, Study, average_policy, last_rows
from understudy.logs.schema import (
    ESTIMATED,
    LOGGED,
    PROPENSITY,
    QUARANTINE,
    UNIT,
    VECTOR,
    Columns,
)
from understudy.logs.settings import Choice, Settings, choose
from understudy.logs.validate import Rejected
from understudy.protocols import PRODUCTION
from understudy.types import Integers, Log

MOST_WARMUP_ROWS = 200_000  # twice the largest `warmup`, so that each can be doubled once
MOST_WARMUP_BYTES = 1 << 27  # of contexts: twice 1,000 of 64 texts with 1,000 characters each
WarmupRow = tuple[int, bytes, float | None]  # action, context and propensity of a decision


@dataclass(frozen=True, eq=False)
class StudyState:
    """A study after the decisions up to `seq`, as an immutable value.

    During the warm-up of contexts there is neither `study` nor `settings`. The first `warmup_count`
    of `warmup_rows` are its decisions without their rewards: states that follow each other
    share this list, and only add to it. `warmup` counts them afterwards, and `warmup_plays` their
    actions until then. `last_features` are those of the last rows, over which a policy with
    contexts is averaged. `expired` counts the decisions that got the default reward, or, with
    units, whose wait was over, and `rejected` the rejected ones by reason. `base_study` is the
    study in the policy.json that this one continues, if any, and `base_refused` counts the rejected
    rows of its log. `search` looks for `sticky` contexts in the first decisions; like a warm-up's
    rows, it is shared. Sticky columns of the log that the policy.json was learned from stay, as its
    rows count too.

    `least_warmup` is the number of decisions that a warm-up has at least, if that is known: version
    0.5.0 ended none at a number of bytes, and doubled its size after any error.
    """

    spec: StudySpec
    seq: int = 0
    expired: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    study: Study | None = None
    settings: Settings | None = None
    contextual: ContextFeatures | None = None
    warmup_rows: Sequence[WarmupRow] = ()
    warmup_count: int = 0
    warmup_bytes: int = 0
    warmup_plays: Integers | None = None
    warmup: int = 0
    last_features: Array | None = None
    base_study: Study | None = None
    base_refused: Mapping[str, int] = field(default_factory=dict)
    least_warmup: int = 0
    search: StickySearch | None = None
    sticky: StickyColumns | None = None

    @staticmethod
    def begin(spec: StudySpec, base: str | Policy | None = None) -> StudyState:
        """Return the state before the first decision; `base` is the policy.json to continue."""
        empty = StudyState(spec, search=StickySearch() if may_be_sticky(spec) else None)
        if base is not None:
            policy = from_text(base) if isinstance(base, str) else base
            # 0.5.0 forgot the rejected rows, and its studies go on as they began.
            refused = {} if spec.rules == FIRST_RULES else policy.refused
            continued = empty._with_policy(policy)
            return replace(continued, base_study=policy.study, base_refused=refused)
        if spec.context is not None:
            return empty
        return empty._begin_learning(choose(spec.wanted, spec.factory()), None)

    def restored(
        self, snapshot: Snapshot, last: Callable[[int], Iterable[Sequence[Decision]]]
    ) -> StudyState:
        """Return the state of a snapshot; `last` reads so many decisions up to it, in batches."""
        policy = from_text(snapshot.policy)
        found = replace(
            self._with_policy(policy),
            seq=snapshot.seq,
            expired=snapshot.expired,
            rejected=Counter(policy.refused) - Counter(self.base_refused),
        )
        if found.search is not None and not search_ends(found.seq):
            examined = 0
            for decisions in last(snapshot.seq):
                found, examined = found._examine(decisions, examined), decisions[-1].seq
        else:
            found = replace(found, search=None)
        if found.contextual is None:
            return found
        rows, features = min(LAST, found.learned), None  # without the warm-up
        for decisions in last(rows + sum(found.rejected.values())) if rows else ():
            valid = without(decisions, reject_reasons(decisions, found.spec))
            frame = found._context_frame(list(map(context_bytes, valid)))
            features = last_rows(features, found.contextual.features(frame))[-rows:]
        return replace(found, last_features=features)

    def _with_policy(self, policy: Policy) -> StudyState:
        return replace(
            self,
            study=policy.study.without_groups(),
            settings=policy.settings,
            contextual=policy.contextual,
            warmup=policy.warmup,
            sticky=policy.sticky,
        )

    def _begin_learning(self, choice: Choice, contextual: ContextFeatures | None) -> StudyState:
        spec = self.spec
        columns = Columns(
            propensity=PROPENSITY if spec.propensity_source == LOGGED else None,
            context=tuple(spec.context or ()),
            unit=None if spec.unit_rows is None else UNIT,
            propensity_vector=VECTOR if spec.propensity_vectors else None,
        )
        settings = replace(
            choice.settings(columns, spec.scale, spec.propensity_source),
            unit_rows=spec.unit_rows,
            no_unit=spec.no_unit,
        )
        uncertified = contextual is not None and spec.propensity_source == ESTIMATED
        confidence = None if uncertified else spec.confidence
        study = Study.begin(choice.learner, spec.pi_b, confidence, rules=spec.rules)
        return replace(self, study=study, settings=settings, contextual=contextual)

    def after(self, decisions: Sequence[Decision]) -> StudyState:
        """Return the state after more decisions, each of them ready."""
        if not decisions:
            return self
        events, reasons = self.spec.unit_rows, reject_reasons(decisions, self.spec)
        if events is None:
            expired = sum(decision.reward is None for decision in decisions)
        else:
            expired = sum(not decision.is_rewarded(events) for decision in decisions)
        advanced = replace(self, seq=decisions[-1].seq, expired=self.expired + expired)
        if reasons:
            rejected = Counter(self.rejected) + Counter(reasons.values())
            advanced = replace(advanced, rejected=rejected)
        if self.search is not None:
            advanced = advanced._examine(decisions, after=self.seq)
        if self.study is None:
            return advanced._warm_up(decisions, reasons)
        return advanced._learn(self.study, decisions, reasons)

    def _examine(self, decisions: Sequence[Decision], after: int) -> StudyState:
        """Return the state with the finding about sticky contexts, while the search goes on."""
        search = self.search
        if search is None or search.seq != after:  # another state went on with it
            return replace(self, search=None)
        found = search.after(self.spec, decisions)
        rest = None if search_ends(search.seq) else search
        return replace(self, search=rest, sticky=found if found.found else self.sticky)

    def _warm_up(
        self, decisions: Sequence[Decision], reasons: Mapping[int, RejectReason]
    ) -> StudyState:
        """Collect decisions until their contexts differ; learn from those that follow.

        If all contexts of the warm-up are equal, its size doubles. It ends early with the decision
        that fills `MOST_WARMUP_BYTES`: the contexts alone determine where, so a study does not
        depend on the size of its groups.
        """
        rows, size, total = self._rows_to_extend(), self._warmup_size, self.warmup_bytes
        for count, decision in enumerate(decisions, start=1):
            if decision.seq in reasons:
                continue
            context = context_bytes(decision)
            rows.append((decision.action, context, decision.propensity))
            total += len(context)
            may_end = len(rows) >= self.least_warmup
            is_full = may_end and total >= MOST_WARMUP_BYTES
            if len(rows) < size and not is_full:
                continue
            try:
                ready = self._finish_warm_up(rows)
            except InvalidLog as error:
                size *= 2
                if may_end and not isinstance(error, ConstantContexts):
                    raise
                if may_end and (is_full or size > MOST_WARMUP_ROWS):
                    raise InvalidLog(
                        "context",
                        f"{len(rows):,} decisions",
                        "all contexts are alike, so no policy can depend on them",
                        "create a study without contexts, or with others",
                    ) from None
            else:
                learned = ready.after(decisions[count:])
                own = ("seq", "expired", "rejected", "search", "sticky")
                return replace(learned, **{name: getattr(self, name) for name in own})
        counted = self._count_plays(decisions)
        return replace(counted, warmup_rows=rows, warmup_count=len(rows), warmup_bytes=total)

    def _count_plays(self, decisions: Sequence[Decision]) -> StudyState:
        plays = np.bincount([d.action for d in decisions], minlength=len(self.spec.labels))
        before = 0 if self.warmup_plays is None else self.warmup_plays
        return replace(self, warmup_plays=before + plays)

    def _rows_to_extend(self) -> list[WarmupRow]:
        """Return the list of rows, or a copy if another state has added to it: a warm-up is long,
        and may get its decisions one by one.
        """
        rows = self.warmup_rows
        if isinstance(rows, list) and len(rows) == self.warmup_count:
            return rows
        return list(rows[: self.warmup_count])

    def _finish_warm_up(self, rows: Sequence[WarmupRow]) -> StudyState:
        actions = np.array([action for action, _, _ in rows], dtype=np.int64)
        frame = self._context_frame([context for _, context, _ in rows])
        q = None
        if self.spec.propensity_source == LOGGED:
            q = np.array([propensity for _, _, propensity in rows], dtype=np.float64)
        names, rules = tuple(self.spec.context or ()), self.spec.rules
        warmup = Warmup.fit(frame, actions, q, names, rules=rules)
        factory = self.spec.factory(warmup)
        choice = choose(self.spec.wanted, factory)
        contextual = context_features(choice.learner, warmup, factory)
        empty = StudyState(self.spec, warmup=len(rows), least_warmup=self.least_warmup)
        return empty._begin_learning(choice, contextual)

    def stopped(self, decisions: Sequence[Decision] = ()) -> StudyState:
        """Return the state of a study that cannot learn from these decisions.

        Those of the warm-up take memory, so it keeps their actions alone.
        """
        counted = self._count_plays(decisions) if self.study is None and decisions else self
        return replace(counted, warmup_rows=(), warmup_count=0, warmup_bytes=0)

    def _learn(
        self, study: Study, decisions: Sequence[Decision], reasons: Mapping[int, RejectReason]
    ) -> StudyState:
        spec, q, x, last, vectors = self.spec, None, None, self.last_features, None
        rejected = _rejected(decisions, reasons, spec) if reasons else None
        decisions = without(decisions, reasons)
        actions = np.array([d.action for d in decisions], dtype=np.int64)
        rewards = np.array([reward_of(d, spec) for d in decisions], dtype=np.float64)
        if spec.propensity_source == LOGGED:
            q = np.array([d.propensity for d in decisions], dtype=np.float64)
        if spec.propensity_vectors:
            vectors = np.empty((len(decisions), len(spec.labels)))
            for row, decision in zip(vectors, decisions, strict=True):
                row[:] = unpack_doubles(decision.propensity_vector or b"")
        if self.contextual is not None:
            x = self.contextual.features(self._context_frame(list(map(context_bytes, decisions))))
            last = last_rows(self.last_features, x)
        # Events were checked on arrival.
        log = Log._of(actions, spec.scale.unit(rewards), q, x, None, vectors)
        return replace(self, study=study.after(log, rejected), last_features=last)

    def _context_frame(self, contexts: Sequence[bytes]) -> pl.DataFrame:
        return context_frame(self.spec.context or {}, contexts)

    @property
    def changing(self) -> int:
        """The number of units whose action changed."""
        return self.rejected.get(RejectReason.UNIT_CHANGES, 0)

    @property
    def contradictions(self) -> int:
        """The number of decisions whose propensities contradict the declared least one."""
        return sum(self.rejected.get(reason, 0) for reason in AGAINST_LEAST)

    @property
    def learned(self) -> int:
        """The number of decisions of this study that were learned from, without the warm-up."""
        return self.rounds - (0 if self.base_study is None else self.base_study.rounds)

    @property
    def rounds(self) -> int:
        """The number of rows learned from, with those of the policy.json that it continues."""
        return 0 if self.study is None else self.study.rounds

    @property
    def numbers(self) -> int:
        """The size of the learner's state, the sum of K p² of its experts: a decision's work."""
        if self.study is None:
            return len(self.spec.labels)
        learner = self.study.learner
        experts = learner.experts if isinstance(learner, Exp4) else (learner,)
        return len(self.spec.labels) * sum(map(_squared_features, experts))

    @property
    def promoted_seq(self) -> int | None:
        """The `seq` at which the certificate first justified promotion; 0 if before the first."""
        certificate = None if self.study is None else self.study.certificate
        if certificate is None or certificate.promoted_at is None:
            return None
        since = certificate.rounds - certificate.promoted_at
        return max(0, self.seq - since)

    @property
    def warmup_left(self) -> int:
        """The least number of decisions that the warm-up still needs."""
        return 0 if self.study is not None else self._warmup_size - self.warmup_count

    @property
    def _warmup_size(self) -> int:
        """The next size of the warm-up: in smaller ones all contexts were equal."""
        size = self.spec.warmup
        while size <= self.warmup_count:
            size *= 2
        return size

    def probabilities(
        self,
        context: Mapping[str, object] | None = None,
        production: Mapping[str, float] | None = None,
    ) -> Array:
        """Return π of the next round, (K,); that of production during the warm-up.

        `production` are the probabilities of the behavior policy by label, for a policy that does
        as production does in part; others ignore them. Without contexts, frequencies of actions
        stand for them; with contexts, they are needed if the share matters.
        """
        if (fault := self.spec.fault_of_context(context)) is not None:
            raise InvalidArgument("context", context, fault, "see the study's contexts")
        if self.study is None and self.spec.rules == FIRST_RULES:
            return self._uniform
        q = None
        if production is not None:
            checked = check_probabilities(PRODUCTION, dict(production), PRODUCTION)
            q = probability_vector(PRODUCTION, checked, self.spec.labels)
        found = self._production(q) if self.study is None else self._policy(self.study, context, q)
        kept = playable(found)
        return np.asarray(kept / kept.sum())

    def _policy(self, study: Study, context: Mapping[str, object] | None, q: Array | None) -> Array:
        learner: Any = study.learner  # one that follows production takes it, and no other
        x, given = None, {}
        if self.contextual is not None and context is not None:
            x = self.contextual.features_of_one(context)
        if PRODUCTION in learner.spec.outside:
            if q is None and self.contextual is None:
                return average_policy(study, None, None)
            given = {} if q is None else {PRODUCTION: q}
        return np.asarray(learner.policy(study.state, x, **given))

    def _production(self, q: Array | None) -> Array:
        """Production's policy in the warm-up: as known, as given, or estimated by frequencies."""
        if isinstance(self.spec.pi_b, np.ndarray):
            return self.spec.pi_b
        if q is not None:
            return q
        if self.spec.propensity_source == LOGGED:
            raise unknown_policy(PRODUCTION, PRODUCTION, 1.0)
        plays = self.warmup_plays
        return self._uniform if plays is None else plays / plays.sum()

    @property
    def _uniform(self) -> Array:
        return np.full(len(self.spec.labels), 1.0 / len(self.spec.labels))

    @cached_property
    def policy(self) -> Policy | None:
        """The policy that `understudy learn` learns from these decisions; None in a warm-up."""
        if self.study is None or self.settings is None:
            return None
        return Policy(
            actions=self.spec.labels,
            study=self.study,
            settings=self.settings,
            average=average_policy(self.study, self.contextual, self.last_features),
            files=(),
            refused=dict(sorted((Counter(self.base_refused) + Counter(self.rejected)).items())),
            warmup=self.warmup,
            contextual=self.contextual,
            sticky=self.sticky,
        )

    @cached_property
    def result(self) -> LearnResult | None:
        """The result of learning, with coverage and verdict; None before the first row."""
        if self.policy is None or not (self.rounds or self.rejected):
            return None
        nothing = Provenance((), {}, pl.DataFrame(schema=QUARANTINE))
        coverage = coverage_of_policy(self.policy)
        return LearnResult(policy=self.policy, coverage=coverage, intake=nothing, oddities={})

    def snapshot(self, pause: Callable[[], object] = lambda: None) -> Snapshot | None:
        """Return a snapshot for the store, with which a start need not process all decisions.

        `pause` is called again and again: it may let other threads run.
        """
        policy = self.policy
        return None if policy is None else Snapshot(self.seq, policy.to_json(pause), self.expired)


def _squared_features(learner: Any) -> int:
    """p² of a learner, after its own map of the features; 1 if it ignores contexts."""
    inner = learner.learner if isinstance(learner, Mapped) else learner
    (p,) = (1,) if isinstance(inner, Outside) else inner.spec.features or (1,)
    return int(p) ** 2


def reward_of(decision: Decision, spec: StudySpec) -> float:
    """Return the reward with which a ready decision counts."""
    default = spec.expired_reward
    if spec.unit_rows is None:
        return default if decision.reward is None else decision.reward
    events = (decision, *decision.events)
    rewards = [default if event.reward is None else event.reward for event in events]
    total = functools.reduce(operator.add, rewards)  # in their order, as a log of them is summed
    mean = total / spec.unit_rows
    return min(max(mean, spec.scale.low), spec.scale.high)  # rounding may lead out of the range


def reject_reasons(decisions: Iterable[Decision], spec: StudySpec) -> dict[int, RejectReason]:
    """Return why decisions are rejected rows, by their `seq`; all others are valid.

    The reasons are those that `us.logs.learn` finds in the exported log.
    """
    if spec.unit_rows is None and spec.least_propensity is None:
        return {}
    found = ((decision.seq, _reject_reason(decision, spec)) for decision in decisions)
    return {seq: reason for seq, reason in found if reason is not None}


def _reject_reason(decision: Decision, spec: StudySpec) -> RejectReason | None:
    if decision.changes_action:
        return RejectReason.UNIT_CHANGES
    if decision.propensity is None or not isinstance(spec.pi_b, Logged):
        return None
    low, high = spec.pi_b.range
    vector = decision.propensity_vector
    if vector is not None and unpack_doubles(vector).min() < low:
        return RejectReason.PROPENSITY_CONTRADICTS
    faults = limit_faults(decision.propensity, low, high)
    return next((reason for reason, there in faults if there), None)


def without(
    decisions: Sequence[Decision], reasons: Mapping[int, RejectReason]
) -> Sequence[Decision]:
    """Return the decisions that are not rejected."""
    return [one for one in decisions if one.seq not in reasons] if reasons else decisions


def _rejected(
    decisions: Sequence[Decision], reasons: Mapping[int, RejectReason], spec: StudySpec
) -> Rejected:
    """Return the rejected ones of some decisions.

    The reward of a unit whose action changes is unknown. All else that was sent is known.
    """
    rows = [decision for decision in decisions if decision.seq in reasons]
    earned = [spec.scale.high if row.changes_action else reward_of(row, spec) for row in rows]
    logged = spec.propensity_source == LOGGED
    return Rejected(
        np.array([decision.seq not in reasons for decision in decisions]),
        np.array([row.action for row in rows], dtype=np.int64),
        spec.scale.unit(np.array(earned, dtype=np.float64)),
        np.array([not row.changes_action for row in rows]),
        np.array([row.propensity for row in rows], dtype=np.float64) if logged else None,
    )


def precompile() -> None:
    """Compile the kernels of every kind of study, so that no event waits for the compiler.

    On a new installation that takes some seconds; afterwards Numba's cache has them.
    """
    contextual = {"context": {"x": "number"}, "warmup": 10}
    for kind in ({}, {"behavior": "estimated"}, contextual):  # one of each code path
        spec = StudySpec.of({"name": "precompile", "actions": [0, 1], **kind})
        q = 0.5 if spec.propensity_source == LOGGED else None
        decisions = [
            Decision(n, str(n), n % 2, q, spec.context_text({"x": n}), n, reward=1.0, rewarded_at=n)
            for n in range(1, 12)  # one more than the warm-up, so that the last one learns too
        ]
        state = StudyState.begin(spec).after(decisions)
        state.snapshot()
        _ = state.result
