"""Target policies: a policy to certify stays as it is, whatever it was made from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from understudy.constraints import Array
from understudy.errors import InvalidArgument, InvalidSnapshot
from understudy.logs.action_files import check_probabilities, probability_vector, read_probabilities
from understudy.logs.outputs import POLICY_FILE
from understudy.logs.policy import Policy, playable
from understudy.logs.schema import Actions, Label, first_few
from understudy.logs.statistics import LogStatistics
from understudy.logs.validate import ValidatedBatch
from understudy.snapshots import Understudy

UNIFORM = "uniform"
POLICIES = (
    "pass --policy FILE (policy.json, or probabilities by action), --policy uniform, or "
    "--target-probability COLUMN"
)


class Target(Protocol):
    """A policy that does not change: the probability that it gives to logged actions."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> frozenset[str]:
        """The actions that it knows of, as text."""
        ...

    def fixed(self, actions: Actions) -> Array | None:
        """The probability of every action, if it is the same in all rows."""
        ...

    def probabilities(self, rows: ValidatedBatch, actions: Actions) -> Array:
        """The probability of the logged action in every row."""
        ...

    def oddities(self, rows: ValidatedBatch) -> Counter[str]:
        """Values of contexts that are unlike those that it was made of, counted."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Every action with the same probability."""

    name: str = UNIFORM
    labels: frozenset[str] = frozenset()

    def fixed(self, actions: Actions) -> Array:
        return np.full(len(actions), 1.0 / len(actions))

    def probabilities(self, rows: ValidatedBatch, actions: Actions) -> Array:
        return np.asarray(self.fixed(actions)[rows.actions])

    def oddities(self, rows: ValidatedBatch) -> Counter[str]:  # noqa: ARG002 - it reads no contexts
        return Counter()


@dataclass(frozen=True)
class Fixed:
    """The same probabilities in every row; an action that is not named is never played."""

    name: str
    by_label: Mapping[Label, float]

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(str(label) for label in self.by_label)

    def fixed(self, actions: Actions) -> Array:
        return probability_vector("policy", dict(self.by_label), actions)

    def probabilities(self, rows: ValidatedBatch, actions: Actions) -> Array:
        return np.asarray(self.fixed(actions)[rows.actions])

    def oddities(self, rows: ValidatedBatch) -> Counter[str]:  # noqa: ARG002 - it reads no contexts
        return Counter()


@dataclass(frozen=True, eq=False)
class ContextualTarget:
    """A learned policy that looks at the context, as it was when it was written."""

    name: str
    policy: Policy
    best_action: bool

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(self.policy.actions.texts)

    def fixed(self, actions: Actions) -> None:  # noqa: ARG002 - it depends on the context
        return None

    def probabilities(self, rows: ValidatedBatch, actions: Actions) -> Array:
        """Of the policy's own actions; one that it does not know is never played."""
        contextual = self.policy.contextual
        assert contextual is not None
        x = contextual.features(rows.contexts())
        found = contextual.learner.policies_at(self.policy.study.state, x)
        if self.best_action:
            best = found.argmax(axis=1)[:, np.newaxis]
            found = (np.arange(found.shape[1]) == best).astype(np.float64)
        place = {text: i for i, text in enumerate(self.policy.actions.texts)}
        own = np.array([place.get(text, -1) for text in actions.texts])[rows.actions]
        return np.where(own < 0, 0.0, found[np.arange(len(own)), np.maximum(own, 0)])

    def oddities(self, rows: ValidatedBatch) -> Counter[str]:
        contextual = self.policy.contextual
        assert contextual is not None
        return contextual.encoder.unexpected_values(rows.contexts())


@dataclass(frozen=True)
class ColumnTarget:
    """A model of the user's own: the probability of the logged action stands in each row."""

    name: str
    labels: frozenset[str] = frozenset()

    def fixed(self, actions: Actions) -> None:  # noqa: ARG002 - the others are not known
        return None

    def probabilities(self, rows: ValidatedBatch, actions: Actions) -> Array:  # noqa: ARG002 - as above
        return rows.targets()

    def oddities(self, rows: ValidatedBatch) -> Counter[str]:  # noqa: ARG002 - it reads no contexts
        return Counter()


def is_hindsight(target: Target, actions: Actions, declared: frozenset[str]) -> bool:
    """Whether it is spread over actions of which some were not declared: only the log tells them.

    >>> is_hindsight(Uniform(), Actions(("a", "b")), frozenset("a"))
    True
    """
    return isinstance(target, Uniform) and not declared >= set(actions.texts)


def strangers(target: Target, log: LogStatistics) -> list[str]:
    """That a policy and the rows of a log have no action in common, if it is so.

    >>> from understudy.logs.statistics import ActionStatistics
    >>> from understudy.types import Log
    >>> sums = ActionStatistics.empty(3).after(Log([1], [0.5]))
    >>> rows = LogStatistics(Actions(("a", "b", "c")), sums, {})
    >>> strangers(Fixed("mine", {"a": 0.5, "c": 0.5}), rows)
    ['The policy and the log have no action in common: the policy knows a, c; the log shows b.']
    """
    shown = [log.actions.texts[i] for i in log.tally.counts.nonzero()[0]]
    if not target.labels or target.labels & set(shown):
        return []
    return [
        "The policy and the log have no action in common: the policy knows "
        f"{first_few(sorted(target.labels))}; the log shows {first_few(shown)}."
    ]


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
        raise InvalidArgument(
            "policy",
            policy,
            "there must be one thing to certify",
            POLICIES,
        )
    if column is not None:
        if best_action:
            raise InvalidArgument(
                "best_action", True, "a column does not say the best", "leave it out"
            )
        return ColumnTarget(f"column {column}"), None
    if not isinstance(policy, Policy | str | os.PathLike | Mapping):
        raise InvalidArgument("policy", policy, *_no_policy(policy))
    if policy == UNIFORM:
        if best_action:
            raise InvalidArgument(
                "best_action", True, "the uniform policy has none", "leave it out"
            )
        return Uniform(), None
    if isinstance(policy, str | os.PathLike) and Path(policy).is_dir():
        policy = Path(policy) / POLICY_FILE
    learned = policy if isinstance(policy, Policy) else _learned(policy)
    name = str(policy) if isinstance(policy, str | os.PathLike) else "the given policy"
    if best_action:
        name = f"the best action of {name}"
    if learned is not None and learned.contextual is not None:
        return ContextualTarget(name, learned, best_action), learned
    return Fixed(name, _best(_by_label(policy, learned), best_action=best_action)), learned


def _no_policy(found: object) -> tuple[str, str]:
    """Why something that only Python can pass is no policy, and what to pass instead."""
    if isinstance(found, Understudy):
        reason = "an Understudy knows actions by their index, and has no labels"
        return reason, "pass the path of its policy.json, or us.logs.Policy.load(path)"
    reason = "it is not a policy"
    return reason, "pass a path, a us.logs.Policy, probabilities by label in a dict, or 'uniform'"


def _by_label(policy: object, learned: Policy | None) -> dict[Label, float]:
    if learned is not None:
        probabilities = playable(learned.average).tolist()
        return dict(zip(learned.actions.labels, probabilities, strict=True))
    if isinstance(policy, Mapping):
        return check_probabilities("policy", dict(policy), "policy")
    return read_probabilities("policy", Path(policy))  # type: ignore[arg-type] # a path, by now


def _best(by_label: dict[Label, float], *, best_action: bool) -> dict[Label, float]:
    if not best_action:
        return by_label
    best = max(by_label, key=by_label.__getitem__)
    return {label: float(label == best) for label in by_label}


def _learned(policy: object) -> Policy | None:
    """The policy.json that a path names; None if it is another kind of file, or none."""
    if not isinstance(policy, str | os.PathLike):
        return None
    try:
        start = Path(policy).read_bytes()[:200]
    except OSError as error:
        raise InvalidSnapshot(
            "policy", str(policy), f"it cannot be read ({error.strerror})", "name a file"
        ) from None
    return Policy.load(policy) if b'"format"' in start else None
