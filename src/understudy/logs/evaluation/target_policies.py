"""Target policies: fixed policies that a log evaluates, and the candidates of `coverage`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from understudy.certificates import Certificate, FixedPolicy
from understudy.certificates.targets import Target as RoundTarget
from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidSnapshot
from understudy.learners.outside_policies import LEAST_SHARE, best_actions
from understudy.logs.action_files import check_probabilities, probability_vector, read_probabilities
from understudy.logs.aggregation.sufficient_statistics import certify_sums
from understudy.logs.encoder import UnexpectedValues
from understudy.logs.evaluation.questions import Always, Question
from understudy.logs.evaluation.sticky_columns import StickyColumns
from understudy.logs.evaluation.verdicts import UNIFORM, Candidate, candidates_of
from understudy.logs.options import Options
from understudy.logs.outputs import POLICY_FILE
from understudy.logs.policy import Policy, playable
from understudy.logs.schema import Actions, Columns, Label, first_few, label_key, short_label
from understudy.logs.statistics import LogStatistics
from understudy.logs.validate import ValidatedBatch
from understudy.snapshots import Understudy
from understudy.types import Integers, Trace

POLICIES = (
    "pass --policy FILE (policy.json, or probabilities by action), --policy uniform, or "
    "--target-probability COLUMN"
)


@dataclass(frozen=True, eq=False)
class Target:
    """A policy that does not change while a log evaluates it.

    `learned` is the policy of `learn` that it comes from, if it does.
    """

    name: str
    learned: Policy | None = field(default=None, kw_only=True)

    @property
    def labels(self) -> frozenset[str]:
        """The actions that it knows, as text."""
        return frozenset()

    def fixed(self, actions: Actions) -> Array | None:  # noqa: ARG002 - for those that have it
        """The probability of every action, if it is the same in all rows."""
        return None

    def in_rows(self, rows: ValidatedBatch, actions: Actions) -> RoundTarget:  # noqa: ARG002 - as above
        """The policy in these rows, as certificates take it."""
        policy = self.fixed(actions)
        assert policy is not None  # other targets override this method
        return FixedPolicy(policy)

    def unexpected_values(self, rows: ValidatedBatch) -> UnexpectedValues:  # noqa: ARG002 - for those with contexts
        """Count the values of contexts that are unlike all values of the policy's warm-up."""
        return UnexpectedValues()


@dataclass(frozen=True, eq=False)
class Uniform(Target):
    """The policy that plays every action with the same probability."""

    name: str = UNIFORM

    def fixed(self, actions: Actions) -> Array:
        return np.full(len(actions), 1.0 / len(actions))


@dataclass(frozen=True, eq=False)
class Fixed(Target):
    """The policy with the same probabilities in every row, 0 for an action without one."""

    by_label: Mapping[Label, float]

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(label_key(label) for label in self.by_label)

    def fixed(self, actions: Actions) -> Array:
        return probability_vector("policy", dict(self.by_label), actions)


@dataclass(frozen=True, eq=False)
class RowTarget(Target):
    """A learned policy whose probabilities depend on the row: its context, or outside policies.

    An outside policy is production, or an expert whose probability is a column. The best action is
    that of `Policy.best_action`, which follows no outside policy.
    """

    policy: Policy
    best_action: bool

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(self.policy.actions.keys)

    @property
    def outside(self) -> tuple[str, ...]:
        """The outside policies that it plays as in part."""
        return () if self.best_action else self.policy.study.learner.spec.outside

    def in_rows(self, rows: ValidatedBatch, actions: Actions) -> Trace:
        """Its probability of every logged action is 0 if it does not know the action."""
        contextual, study = self.policy.contextual, self.policy.study
        x = None if contextual is None else contextual.features(rows.contexts())
        own = np.array([self.policy.actions.index(key) for key in actions.keys])[rows.actions]
        if self.best_action:
            best = best_actions(study.learner, study.state, x, len(own))
            return Trace(np.asarray(own == best, dtype=np.float64), 0, len(actions))
        log = replace(study.learner.spec.visible(rows.log(x)), actions=np.maximum(own, 0))
        trace = study.learner.trace_at(study.state, log)
        return replace(
            trace, probability=np.where(own < 0, 0.0, trace.probability), n_actions=len(actions)
        )

    def unexpected_values(self, rows: ValidatedBatch) -> UnexpectedValues:
        contextual = self.policy.contextual
        if contextual is None:
            return super().unexpected_values(rows)
        return contextual.encoder.unexpected_values(rows.contexts())


@dataclass(frozen=True, eq=False)
class ColumnTarget(Target):
    """A policy whose probability of the logged action is a column of the log."""

    def in_rows(self, rows: ValidatedBatch, actions: Actions) -> Trace:
        return Trace(rows.targets(), 0, len(actions))


def are_known(actions: Actions, target: Target, declared: frozenset[str]) -> bool:
    """Whether all actions were known before the log, by a declaration or by the target."""
    return declared | target.labels >= set(actions.keys)


def is_hindsight(target: Target, actions: Actions, declared: frozenset[str]) -> bool:
    """Whether a target plays actions that only the log shows, because they were not declared."""
    return isinstance(target, Uniform) and not are_known(actions, target, declared)


def may_play_others(target: Target, actions: Actions, declared: Actions | None) -> bool:
    """Whether a target may play actions beside these: a column shows it at logged actions only.

    If all actions were `declared`, there are no others. A given behavior does not say so: the
    policy of a column may play what production never did.
    """
    if not isinstance(target, ColumnTarget):
        return False
    return declared is None or not set(declared.keys) >= set(actions.keys)


class DisjointActions(NamedTuple):
    """The actions of a policy, and those of a log that shares none with it."""

    policy: tuple[str, ...]
    log: tuple[str, ...]


def disjoint_actions(target: Target, log: LogStatistics) -> DisjointActions | None:
    """The actions of a policy and of a log, if they have none in common."""
    shown = tuple(log.actions.keys[i] for i in log.sums.counts.nonzero()[0])
    if not target.labels or target.labels & set(shown):
        return None
    return DisjointActions(tuple(sorted(target.labels)), shown)


def target_of(
    policy: Policy | str | os.PathLike[str] | Mapping[Label, float] | None,
    column: str | None,
    *,
    best_action: bool,
) -> Target:
    """The target that a user names by a policy or by a column.

    >>> target_of({"a": 0.25, "b": 0.75}, None, best_action=True).fixed(Actions(("a", "b")))
    array([0., 1.])
    """
    if (policy is None) == (column is None):
        raise InvalidArgument("policy", policy, "there must be one policy to certify", POLICIES)
    if column is not None or (isinstance(policy, str) and policy == UNIFORM):
        if best_action:
            reason = "the uniform policy has none" if column is None else "a column has no best"
            raise InvalidArgument("best_action", True, reason, "leave it out")
        return Uniform() if column is None else ColumnTarget(f"column {column}")
    name, source = _source_of(policy)
    if best_action:
        name = f"the best action of {name}"
    learned = source if isinstance(source, Policy) else None
    if learned is not None and _depends_on_rows(learned, best_action=best_action):
        return RowTarget(name, learned, best_action, learned=learned)
    by_label = source if isinstance(source, dict) else average_by_label(source)
    if best_action:
        best = max(by_label, key=by_label.__getitem__) if learned is None else learned.best_action()
        by_label = {label: float(label == best) for label in by_label}
    return Fixed(name, by_label, learned=learned)


def baseline_of(question: Question) -> Target | None:
    """The target that the baseline of a question is; None for production."""
    if question.against is None:
        return None
    if isinstance(question.against, Always):
        label = label_key(question.against.label)
        return Fixed(f"always {short_label(label)}", {label: 1.0})
    try:
        return target_of(question.against, None, best_action=False)
    except InvalidArgument as error:
        if error.argument != "policy":
            raise
        value, reason, remedy = error.value, error.reason, error.remedy
        raise type(error)("against", value, reason, remedy) from None


def refuse_unplayed_baseline(baseline: Target | None, statistics: LogStatistics) -> None:
    """Raise `InvalidArgument` if no row shows an action of the baseline."""
    if baseline is None or (policy := baseline.fixed(statistics.actions)) is None:
        return
    unseen = (policy > 0.0) & (statistics.sums.counts == 0)
    if unseen.any():
        labels, played = statistics.actions.labels, statistics.sums.counts > 0
        label = labels[int(np.argmax(unseen))]
        others = first_few([labels[a] for a in np.flatnonzero(played).tolist()])
        reason = "no valid row of the log has this action of the baseline"
        raise InvalidArgument("against", label, reason, f"name one of the log's actions: {others}")


def refuse_used_units(targets: Iterable[Target], options: Options) -> None:
    """Raise `InvalidArgument` if the units that a policy was learned from could judge it.

    The action of a unit was drawn once, for all logs.
    """
    unit = options.columns.get("unit")
    for target in targets:
        learned = target.learned
        if learned is not None and learned.used_units() is not None and unit is None:
            column = learned.settings.columns.unit
            reason = f"it was learned from units of {column!r}, and a unit may be used once"
            remedy = f"pass --unit {column}" + (", and no --engine" if options.engine else "")
            raise InvalidArgument("policy", target.name, reason, remedy)
        if learned is not None and unit is not None and not _knows_units(learned):
            reason = (
                "it was learned from rows, so that its units are not known, and could be used again"
            )
            remedy = f"learn it again, with --unit {unit}, or --no-unit if every row had a draw"
            raise InvalidArgument("policy", target.name, reason, remedy)


def sticky_columns_of(
    log: StickyColumns | None, targets: Iterable[Target], options: Options
) -> StickyColumns | None:
    """The finding about a log, or else about one that a policy was learned from.

    A unit may have several rows there, and one row here, which shows nothing.
    """
    if (log is not None and log.found) or options.no_unit or options.columns.get("unit"):
        return log
    return next(filter(None, map(_sticky_rows_of, targets)), log)


def _sticky_rows_of(target: Target) -> StickyColumns | None:
    """The finding about the log of a policy, if neither a unit nor that there is none is known."""
    learned = target.learned
    if learned is None or _knows_units(learned):
        return None
    return learned.sticky if learned.sticky is not None and learned.sticky.found else None


def _knows_units(policy: Policy) -> bool:
    """Whether the units that a policy was learned from are known, or that there were none."""
    return policy.settings.columns.unit is not None or policy.settings.no_unit


def _depends_on_rows(policy: Policy, *, best_action: bool) -> bool:
    """Whether a policy has contexts, or does as outside policies do with a share that matters."""
    study = policy.study
    if policy.contextual is not None or best_action:
        return policy.contextual is not None
    if study.learner.spec.columns:
        return True
    _, shares = study.learner.known_at(study.state, None)
    return bool(shares.sum() > LEAST_SHARE)


def average_by_label(policy: Policy) -> dict[Label, float]:
    """The policy of the next row, in which frequencies stand for production."""
    return dict(zip(policy.actions.labels, playable(policy.average).tolist(), strict=True))


def _source_of(policy: object) -> tuple[str, Policy | dict[Label, float]]:
    """The name of a policy, and the learned policy or the probabilities that define it."""
    if isinstance(policy, str | os.PathLike):
        path = Path(policy, POLICY_FILE) if Path(policy).is_dir() else Path(policy)
        return str(path), _read_policy(path)
    name = "the given policy"
    if isinstance(policy, Mapping):
        return name, check_probabilities("policy", dict(policy), "policy")
    if isinstance(policy, Policy):
        return name, policy
    reason = "it is not a policy"
    remedy = "pass a path, a us.logs.Policy, probabilities by label in a dict, or 'uniform'"
    if isinstance(policy, Understudy):
        reason = "an Understudy knows actions by their index, and has no labels"
        remedy = "pass the path of its policy.json, or us.logs.Policy.load(path)"
    raise InvalidArgument("policy", policy, reason, remedy)


def _read_policy(path: Path) -> Policy | dict[Label, float]:
    """The policy.json that a path names, or the probabilities of another kind of file."""
    try:
        start = path.read_bytes()[:200]
    except OSError as error:
        raise InvalidSnapshot(
            "policy", str(path), f"it cannot be read ({error.strerror})", "name a file"
        ) from None
    return Policy.load(path) if b'"format"' in start else read_probabilities("policy", path)


# ----------------------------------------------------------------------------------- candidates


def all_candidates(
    targets: Sequence[Target],
    fingerprints: Sequence[str],
    statistics: LogStatistics,
    counts_over_time: Integers | None = None,
    *,
    declared: bool,
) -> list[Candidate]:
    """The candidates of the user's targets, then those of `candidates_of`.

    A policy that was learned from these files, or from rows with these sums, may not be judged.
    """

    def learned_here(target: Target) -> bool:
        return target.learned is not None and (
            target.learned.knows(fingerprints)
            or target.learned.knows_rows(statistics, counts_over_time)
        )

    named = [
        Candidate(
            target.name,
            policy,
            may_be_judged=not learned_here(target),
            hindsight=isinstance(target, Uniform) and not declared,
        )
        for target in targets
        if (policy := target.fixed(statistics.actions)) is not None
    ]
    names = {candidate.name for candidate in named}
    usual = candidates_of(statistics, declared=declared)
    return [*named, *(candidate for candidate in usual if candidate.name not in names)]


def certify_candidates(
    frame: Any,
    columns: Columns,
    statistics: LogStatistics,
    candidates: Sequence[Candidate],
    *,
    behavior: Mapping[Any, float] | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
    least_propensity: float | None = None,
) -> list[Certificate | None]:
    """The certificate of each candidate that the log may judge, from sums.

    Without an order the first row of an action is unknown, so a hindsight gets none.
    """
    return [
        certify_sums(
            frame,
            columns,
            actions=statistics.actions,
            policy=candidate.policy,
            behavior=behavior,
            reward_range=reward_range,
            confidence=candidate.confidence(confidence),
            least_propensity=least_propensity,
        ).certificate
        if candidate.may_be_judged and not candidate.hindsight
        else None
        for candidate in candidates
    ]
