"""What a study knows after so many decisions: a fold of them, in the order in which they were made.

A decision is folded when its reward is known, or its wait is over and it counts as the default, and
every earlier one has been folded. So the order in which rewards arrive has no say in what is
learned, nor in the certificate: had clicks gone before time-outs, the first rows would all be
clicks, and no bound would hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidLog
from understudy.live.spec import StudySpec
from understudy.live.store.records import Decision, Snapshot
from understudy.logs.checking import QUARANTINE
from understudy.logs.default_learner import Choice, choose
from understudy.logs.features import Contextual
from understudy.logs.learn import LearnResult, coverage_of_policy
from understudy.logs.policy import Policy, Settings, from_text, playable
from understudy.logs.provenance import Provenance
from understudy.logs.schema import CONTEXT, ESTIMATED, LOGGED, PROPENSITY, Columns
from understudy.logs.setup import LAST, choose_contextual
from understudy.logs.study import Study
from understudy.types import Log

__all__ = ["StudyState"]

MOST_WARMING = 200_000  # decisions: a warm-up of the largest size, twice
TYPES = {"number": pl.Float64(), "text": pl.String()}


@dataclass(frozen=True, eq=False)
class StudyState:
    """A study after the decisions up to `seq`; a value.

    While contexts are being prepared there is neither `study` nor `settings`, and `warming` holds
    the decisions so far. `last` are the features of the last rows, over which a policy with
    contexts is averaged. `expired` counts the decisions that got the default reward. The policy
    that it goes on from was learned from `begun_with` rows, and certified for `watched_before`.
    """

    spec: StudySpec
    seq: int = 0
    expired: int = 0
    study: Study | None = None
    settings: Settings | None = None
    contextual: Contextual | None = None
    warming: tuple[Decision, ...] = ()
    warmup: int = 0
    last: Array | None = None
    begun_with: int = 0
    watched_before: int = 0

    @staticmethod
    def begin(spec: StudySpec, base: str | None = None) -> StudyState:
        """Before the first decision: with nothing, or with the policy.json that it goes on from.

        >>> spec = StudySpec.of({"name": "ads", "actions": ["a", "b"], "behavior": "estimated"})
        >>> decision = Decision(1, "x", 0, None, None, decided_at=0, reward=1.0, rewarded_at=0)
        >>> StudyState.begin(spec).after([decision]).learned
        1
        """
        empty = StudyState(spec)
        if base is not None:
            policy = from_text(base)
            certificate = policy.study.certificate
            watched = 0 if certificate is None else certificate.rounds
            begun = empty._going_on(policy)
            return replace(begun, begun_with=policy.rows, watched_before=watched)
        if spec.context is not None:
            return empty
        choice = choose(spec.learner_name, spec.pi_b, len(spec.labels), spec.horizon)
        return empty._learning_with(choice, None)

    def resumed(self, snapshot: Snapshot, before: Sequence[Decision]) -> StudyState:
        """As a snapshot says, whose last decisions are these: what the fold up to there gives."""
        policy = from_text(snapshot.policy)
        found = replace(self._going_on(policy), seq=snapshot.seq, expired=snapshot.expired)
        rows = min(LAST, found.learned)  # those of a warm-up are no part of the average
        if found.contextual is None or not rows:
            return found
        return replace(found, last=found.contextual.features(found._frame(before[-rows:])))

    def _going_on(self, policy: Policy) -> StudyState:
        return replace(
            self,
            study=policy.study,
            settings=policy.settings,
            contextual=policy.contextual,
            warmup=policy.warmup,
        )

    def _learning_with(self, choice: Choice, contextual: Contextual | None) -> StudyState:
        spec = self.spec
        columns = Columns(
            propensity=PROPENSITY if spec.kind == LOGGED else None,
            context=tuple(spec.context or ()),
        )
        settings = Settings(
            columns=columns,
            reward_range=(spec.scale.low, spec.scale.high),
            behavior=spec.kind,
            learner=choice.name,
            horizon=spec.horizon,
            theorem=choice.theorem,
            unmet=choice.unmet,
        )
        uncertified = contextual is not None and spec.kind == ESTIMATED
        study = Study.begin(choice.learner, spec.pi_b, None if uncertified else spec.confidence)
        return replace(self, study=study, settings=settings, contextual=contextual)

    def after(self, decisions: Sequence[Decision]) -> StudyState:
        """The standing after more decisions, all of them with a reward or out of time."""
        if not decisions:
            return self
        expired = sum(decision.reward is None for decision in decisions)
        seen = replace(self, seq=decisions[-1].seq, expired=self.expired + expired)
        if self.study is None:
            return seen._warmed(decisions)
        return seen._taught(self.study, decisions)

    def _warmed(self, decisions: Sequence[Decision]) -> StudyState:
        """Collect decisions until they tell contexts apart; learn from those that come after.

        Where all contexts of the warm-up are alike, it goes on for twice as long.
        """
        rows = [*self.warming, *decisions]
        size = self.spec.warmup
        while size <= len(rows):
            if size > len(self.warming):
                try:
                    ready = self._prepared(rows[:size])
                except InvalidLog:
                    pass
                else:
                    return ready if size == len(rows) else ready.after(rows[size:])._at(self)
            size *= 2
        if len(rows) > MOST_WARMING:
            raise InvalidLog(
                "context",
                f"{len(rows):,} decisions",
                "all contexts are alike, so no policy can depend on them",
                "create a study without contexts, or with others",
            )
        return replace(self, warming=tuple(rows))

    def _at(self, seen: StudyState) -> StudyState:
        return replace(self, seq=seen.seq, expired=seen.expired)

    def _prepared(self, rows: Sequence[Decision]) -> StudyState:
        actions = np.array([row.action for row in rows], dtype=np.int64)
        names = tuple(self.spec.context or ())
        choice, contextual = choose_contextual(
            self._frame(rows), actions, names, len(self.spec.labels), self.spec.horizon
        )
        ready = replace(self, warming=(), warmup=len(rows))
        return ready._learning_with(choice, contextual)

    def _taught(self, study: Study, decisions: Sequence[Decision]) -> StudyState:
        if self.contextual is None:
            return replace(self, study=study.after(self._log(decisions, None)))
        x = self.contextual.features(self._frame(decisions))
        last = x[-LAST:] if self.last is None else np.concatenate([self.last, x])[-LAST:]
        return replace(self, study=study.after(self._log(decisions, x)), last=last)

    def _log(self, decisions: Sequence[Decision], features: Array | None) -> Log:
        default = self.spec.default
        rewards = np.array([default if d.reward is None else d.reward for d in decisions])
        q = None
        if self.spec.kind == LOGGED:
            q = np.array([d.propensity for d in decisions], dtype=np.float64)
        actions = np.array([d.action for d in decisions], dtype=np.int64)
        return Log._of(actions, self.spec.scale.unit(rewards), q, features)  # checked on arrival

    def _frame(self, decisions: Sequence[Decision]) -> pl.DataFrame:
        contexts = self.spec.context or {}
        rows = [json.loads(decision.context or "{}") for decision in decisions]
        return pl.DataFrame(
            {
                CONTEXT + name: pl.Series([row[name] for row in rows], dtype=TYPES[kind])
                for name, kind in contexts.items()
            }
        )

    @property
    def learned(self) -> int:
        """How many decisions of this study were learned from; a warm-up is not."""
        return 0 if self.study is None else self.study.rounds - self.begun_with

    @property
    def rounds(self) -> int:
        """How many rows were learned from, those of the policy that it goes on from included."""
        return 0 if self.study is None else self.study.rounds

    @property
    def promoted_seq(self) -> int | None:
        """The decision with which promotion was first justified; 0 if it was before the first."""
        certificate = None if self.study is None else self.study.certificate
        if certificate is None or certificate.promoted_at is None:
            return None
        own_warmup = 0 if self.begun_with else self.warmup
        return max(0, certificate.promoted_at - self.watched_before + own_warmup)

    @property
    def warmup_left(self) -> int:
        """How many more decisions the warm-up takes, at least."""
        if self.study is not None:
            return 0
        size = self.spec.warmup
        while size <= len(self.warming):
            size *= 2
        return size - len(self.warming)

    def probabilities(self, context: Mapping[str, object] | None = None) -> Array:
        """π of the next round, (K,); uniform while the warm-up goes on."""
        if (wrong := self.spec.fault_of_context(context)) is not None:
            raise InvalidArgument("context", context, wrong, "see the study's contexts")
        if self.study is None:
            return np.full(len(self.spec.labels), 1.0 / len(self.spec.labels))
        if self.contextual is None or context is None:
            found = self.study.learner.policy(self.study.state)
        else:
            x = self.contextual.features_of_one(context)
            found = self.study.learner.policy(self.study.state, x)
        kept = playable(found)
        return np.asarray(kept / kept.sum())

    @cached_property
    def policy(self) -> Policy | None:
        """policy.json: the same as `understudy learn` gives of these decisions."""
        if self.study is None or self.settings is None:
            return None
        return Policy(
            actions=self.spec.labels,
            study=self.study,
            settings=self.settings,
            average=self._average(self.study),
            files=(),
            refused={},
            warmup=self.warmup,
            contextual=self.contextual,
        )

    def _average(self, study: Study) -> Array:
        if self.contextual is None:
            return study.learner.policy(study.state)
        if self.last is None:
            return np.full(len(self.spec.labels), 1.0 / len(self.spec.labels))
        return np.asarray(self.contextual.learner.policies_at(study.state, self.last).mean(axis=0))

    @cached_property
    def report(self) -> LearnResult | None:
        """What can be said about it; None before anything was learned."""
        if self.policy is None or not self.rounds:
            return None
        nothing = Provenance((), {}, pl.DataFrame(schema=QUARANTINE))
        coverage = coverage_of_policy(self.policy)
        return LearnResult(policy=self.policy, coverage=coverage, intake=nothing, oddities={})

    def snapshot(self) -> Snapshot | None:
        """What to keep of it, so that the next start need not go over all decisions again."""
        policy = self.policy
        return None if policy is None else Snapshot(self.seq, policy.to_json(), self.expired)
