"""Target policies: a policy to certify stays as it is, whatever it was made from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from understudy.certificates import Certificate
from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidSnapshot
from understudy.logs.action_files import check_probabilities, probability_vector, read_probabilities
from understudy.logs.aggregation.sufficient_statistics import certify_sums
from understudy.logs.encoder import UnexpectedValues
from understudy.logs.evaluation.verdicts import UNIFORM, Candidate, candidates_of
from understudy.logs.features import ContextFeatures
from understudy.logs.outputs import POLICY_FILE
from understudy.logs.policy import Policy, playable
from understudy.logs.schema import Actions, Columns, Label
from understudy.logs.statistics import LogStatistics
from understudy.logs.validate import ValidatedBatch
from understudy.snapshots import Understudy
from understudy.types import Integers

POLICIES = (
    "pass --policy FILE (policy.json, or probabilities by action), --policy uniform, or "
    "--target-probability COLUMN"
)


@dataclass(frozen=True, eq=False)
class Target:
    """A policy that does not change: the probability that it gives to logged actions."""

    name: str

    @property
    def labels(self) -> frozenset[str]:
        """The actions that it knows of, as text."""
        return frozenset()

    def fixed(self, actions: Actions) -> Array | None:  # noqa: ARG002 - for those that have it
        """The probability of every action, if it is the same in all rows."""
        return None

    def probabilities(self, rows: ValidatedBatch, actions: Actions) -> Array:
        """The probability of the logged action in every row."""
        policy = self.fixed(actions)
        assert policy is not None  # others have their own way
        return np.asarray(policy[rows.actions])

    def oddities(self, rows: ValidatedBatch) -> UnexpectedValues:  # noqa: ARG002 - for those with contexts
        """Values of contexts that are unlike those that it was made of, counted."""
        return UnexpectedValues()


@dataclass(frozen=True, eq=False)
class Uniform(Target):
    """Every action with the same probability."""

    name: str = UNIFORM

    def fixed(self, actions: Actions) -> Array:
        return np.full(len(actions), 1.0 / len(actions))


@dataclass(frozen=True, eq=False)
class Fixed(Target):
    """The same probabilities in every row; an action that is not named is never played."""

    by_label: Mapping[Label, float]

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(str(label) for label in self.by_label)

    def fixed(self, actions: Actions) -> Array:
        return probability_vector("policy", dict(self.by_label), actions)


@dataclass(frozen=True, eq=False)
class ContextualTarget(Target):
    """A learned policy that looks at the context, as it was when it was written."""

    policy: Policy
    contextual: ContextFeatures
    best_action: bool

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(self.policy.actions.texts)

    def probabilities(self, rows: ValidatedBatch, actions: Actions) -> Array:
        """Of the policy's own actions; one that it does not know is never played."""
        x = self.contextual.features(rows.contexts())
        found = self.contextual.learner.policies_at(self.policy.study.state, x)
        if self.best_action:
            best = found.argmax(axis=1)[:, np.newaxis]
            found = (np.arange(found.shape[1]) == best).astype(np.float64)
        place = {text: i for i, text in enumerate(self.policy.actions.texts)}
        own = np.array([place.get(text, -1) for text in actions.texts])[rows.actions]
        return np.where(own < 0, 0.0, found[np.arange(len(own)), np.maximum(own, 0)])

    def oddities(self, rows: ValidatedBatch) -> UnexpectedValues:
        return self.contextual.encoder.unexpected_values(rows.contexts())


@dataclass(frozen=True, eq=False)
class ColumnTarget(Target):
    """A model of the user's own: the probability of the logged action stands in each row."""

    def probabilities(self, rows: ValidatedBatch, actions: Actions) -> Array:  # noqa: ARG002 - as above
        return rows.targets()


def is_hindsight(target: Target, actions: Actions, declared: frozenset[str]) -> bool:
    """Whether it is spread over actions of which some were not declared: only the log shows them.

    >>> is_hindsight(Uniform(), Actions(("a", "b")), frozenset("a"))
    True
    """
    return isinstance(target, Uniform) and not declared >= set(actions.texts)


class DisjointActions(NamedTuple):
    """The actions that a policy knows, and those that a log shows: none is in both."""

    policy: tuple[str, ...]
    log: tuple[str, ...]


def disjoint_actions(target: Target, log: LogStatistics) -> DisjointActions | None:
    """The actions of a policy and of the rows of a log, if none is in both."""
    shown = tuple(log.actions.texts[i] for i in log.tally.counts.nonzero()[0])
    if not target.labels or target.labels & set(shown):
        return None
    return DisjointActions(tuple(sorted(target.labels)), shown)


def target_of(
    policy: Policy | str | os.PathLike[str] | Mapping[Label, float] | None,
    column: str | None,
    *,
    best_action: bool,
) -> tuple[Target, Policy | None]:
    """What is to be certified, and the learned policy that it comes from, if it does.

    >>> target_of({"a": 0.25, "b": 0.75}, None, best_action=True)[0].fixed(Actions(("a", "b")))
    array([0., 1.])
    """
    if (policy is None) == (column is None):
        raise InvalidArgument("policy", policy, "there must be one thing to certify", POLICIES)
    if column is not None or (isinstance(policy, str) and policy == UNIFORM):
        if best_action:
            reason = "the uniform policy has none" if column is None else "a column has no best"
            raise InvalidArgument("best_action", True, reason, "leave it out")
        return Uniform() if column is None else ColumnTarget(f"column {column}"), None
    name = "the given policy"
    found: Policy | dict[Label, float]
    if isinstance(policy, str | os.PathLike):
        path = Path(policy, POLICY_FILE) if Path(policy).is_dir() else policy
        name, found = str(path), _read_policy(Path(path))
    elif isinstance(policy, Mapping):
        found = check_probabilities("policy", dict(policy), "policy")
    elif isinstance(policy, Policy):
        found = policy
    else:
        raise InvalidArgument("policy", policy, *_no_policy(policy))
    if best_action:
        name = f"the best action of {name}"
    if isinstance(found, Policy) and found.contextual is not None:
        return ContextualTarget(name, found, found.contextual, best_action), found
    by_label = _average(found) if isinstance(found, Policy) else found
    if best_action:
        best = max(by_label, key=by_label.__getitem__)
        by_label = {label: float(label == best) for label in by_label}
    return Fixed(name, by_label), found if isinstance(found, Policy) else None


def _average(policy: Policy) -> dict[Label, float]:
    return dict(zip(policy.actions.labels, playable(policy.average).tolist(), strict=True))


def _no_policy(found: object) -> tuple[str, str]:
    """Why something that only Python can pass is no policy, and what to pass instead."""
    if isinstance(found, Understudy):
        reason = "an Understudy knows actions by their index, and has no labels"
        return reason, "pass the path of its policy.json, or us.logs.Policy.load(path)"
    reason = "it is not a policy"
    return reason, "pass a path, a us.logs.Policy, probabilities by label in a dict, or 'uniform'"


def _read_policy(path: Path) -> Policy | dict[Label, float]:
    """The policy.json that a path names, or the probabilities of another kind of file."""
    try:
        start = path.read_bytes()[:200]
    except OSError as error:
        raise InvalidSnapshot(
            "policy", str(path), f"it cannot be read ({error.strerror})", "name a file"
        ) from None
    return Policy.load(path) if b'"format"' in start else read_probabilities("policy", path)


# -------------------------------------------------------------------- policies that a log judges

Asked = tuple[Target, Policy | None]  # a policy, and what `learn` wrote about it if it did


def candidates_beside(
    asked: Sequence[Asked],
    fingerprints: Sequence[str],
    tallied: LogStatistics,
    stretches: Integers | None = None,
    *,
    declared: bool,
) -> list[Candidate]:
    """The policies that were asked about, and those of `candidates_of` beside them.

    What was learned from these files, or from these rows however they came, may not be judged.
    """

    def own(learned: Policy | None) -> bool:
        return learned is not None and (
            learned.knows(fingerprints) or learned.knows_rows(tallied, stretches)
        )

    theirs = [
        Candidate(
            target.name,
            policy,
            may_be_judged=not own(learned),
            hindsight=isinstance(target, Uniform) and not declared,
        )
        for target, learned in asked
        if (policy := target.fixed(tallied.actions)) is not None
    ]
    names = {candidate.name for candidate in theirs}
    others = candidates_of(tallied, declared=declared)
    return [*theirs, *(one for one in others if one.name not in names)]


def certify_candidates(
    frame: Any,
    columns: Columns,
    tallied: LogStatistics,
    candidates: Sequence[Candidate],
    *,
    behavior: Mapping[Any, float] | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> list[Certificate | None]:
    """The certificate of each candidate that the log may judge, as sure as `confidence` says.

    Without an order the first row of an action is unknown, so a hindsight gets none.

    >>> import polars as pl
    >>> from understudy.logs.aggregation.aggregates import tally
    >>> log = pl.DataFrame({"action": ["a", "b"] * 99, "reward": [0, 1] * 99, "propensity": 0.5})
    >>> sums = tally(log, Columns())
    >>> found = certify_candidates(log, Columns(), sums, candidates_of(sums))
    >>> [certificate.promoted for certificate in found]
    [False, True]
    """
    return [
        certify_sums(
            frame,
            columns,
            actions=tallied.actions,
            policy=candidate.policy,
            behavior=behavior,
            reward_range=reward_range,
            confidence=candidate.confidence(confidence),
        ).certificate
        if candidate.may_be_judged and not candidate.hindsight
        else None
        for candidate in candidates
    ]
