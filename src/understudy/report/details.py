"""What a learned policy does in groups of contexts, and how its mixture weighs its experts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from understudy.learners import Exp4
from understudy.learners.exp4 import HISTORY
from understudy.logs.evaluation.answers import GuardrailState
from understudy.logs.evaluation.context_groups import GroupKey, GroupSums
from understudy.logs.evaluation.outcomes import PolicyDecision, Verdict
from understudy.logs.policy import Policy
from understudy.logs.runs.study import Study
from understudy.logs.schema import RewardScale
from understudy.report.findings import name_context


@dataclass(frozen=True)
class ContextRow:
    """What the log and the policy say about one group of contexts.

    `columns` are those of the groups beside it, `name` says which contexts are in it. `production`
    and `policy` are shares by action, of the group's rows and of the policy now. The mean gain over
    production is about `estimate`, between `lower` and `upper`; None where it is not known.
    """

    columns: tuple[str, ...]
    name: str
    rows: int
    share: float
    production: dict[str, float]
    policy: dict[str, float] | None = None
    estimate: float | None = None
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True)
class ExpertRow:
    """One expert of a mixture: its weight now and over the rounds, and its estimated reward.

    `reward` is what it would have earned per row, `gain` that less production's reward, each with
    the standard error of the estimate. `history` has rounds with the weight before each of them.
    """

    name: str
    weight: float
    reward: float
    gain: float
    reward_error: float
    gain_error: float
    history: Sequence[tuple[int, float]] = field(default=(), repr=False)


def context_rows(policy: Policy) -> list[ContextRow]:
    """The groups that have rows, of one grouping after the other, sorted by the estimated gain."""
    groups = policy.study.groups
    assert groups is not None  # the caller has looked
    found = [
        _context_row(policy, key, sums, groups.confidence)
        for key, sums in zip(groups.keys, groups.sums, strict=True)
        if sums.rows
    ]
    order = {
        columns: place for place, columns in enumerate(dict.fromkeys(one.columns for one in found))
    }

    def place(row: ContextRow) -> tuple[int, float, int]:
        effect = 0.0 if row.estimate is None else row.estimate
        return order[row.columns], -effect, -row.rows

    return sorted(found, key=place)


def _context_row(
    policy: Policy, key: GroupKey, sums: GroupSums, confidence: float | None
) -> ContextRow:
    labels, scale = policy.actions.texts, policy.settings.scale
    row = ContextRow(
        columns=key.columns,
        name=name_context(key),
        rows=sums.rows,
        share=sums.rows / policy.rows,
        production=dict(zip(labels, (sums.plays / sums.rows).tolist(), strict=True)),
        policy=None
        if sums.policy is None
        else dict(zip(labels, sums.policy.tolist(), strict=True)),
    )
    difference = None if confidence is None else sums.difference(confidence)
    if difference is None:
        return row
    estimate, lower, upper = map(scale.gain, difference)
    return dataclasses.replace(row, estimate=estimate, lower=lower, upper=upper)


def expert_rows(study: Study, scale: RewardScale) -> list[ExpertRow]:
    """The experts of a mixture, those with the largest weights first; none of other learners."""
    learner, state = study.learner, study.state
    if not isinstance(learner, Exp4) or not state.rounds:
        return []
    n, weights = state.rounds, np.array(list(learner.shares(state).values()))
    rounds = [*HISTORY[: len(state.history)].tolist(), n + 1]
    history = np.concatenate([state.history, weights[np.newaxis]])
    means = np.stack([state.earned, state.earned - study.sums.rewards.sum()]) / n
    errors = np.sqrt(np.maximum(state.moments[:2] / n - means**2, 0.0) / n)
    rows = [
        ExpertRow(
            name=name,
            weight=float(weights[m]),
            reward=scale.reward(float(means[0, m])),
            gain=scale.gain(float(means[1, m])),
            reward_error=scale.gain(float(errors[0, m])),
            gain_error=scale.gain(float(errors[1, m])),
            history=tuple(zip(rounds, history[:, m].tolist(), strict=True)),
        )
        for m, name in enumerate(learner.labels)
    ]
    return sorted(rows, key=lambda row: -row.weight)


@dataclass(frozen=True)
class GuardrailRow:
    """A guardrail: the change of its metric, in its units, and whether it holds.

    In `unusable_rows` the metric is missing or out of its range, and counts as the worst value.
    """

    name: str
    state: GuardrailState
    estimate: float | None
    low: float | None
    high: float | None
    better: str
    margin: float
    rows_needed: float | None
    unusable_rows: int


@dataclass(frozen=True)
class SegmentRow:
    """The gain in a segment, with bounds that hold for all segments together."""

    name: str
    rows: int
    estimate: float | None
    low: float | None
    high: float | None
    decision: PolicyDecision


def guardrail_rows(verdict: Verdict) -> list[GuardrailRow]:
    """The guardrails of a verdict, in their order."""
    return [
        GuardrailRow(
            one.metric.name,
            one.state,
            one.estimate,
            one.low,
            one.high,
            one.metric.better,
            one.metric.margin,
            one.rows,
            one.unusable,
        )
        for one in verdict.guardrails
    ]


def segment_rows(verdict: Verdict, scale: RewardScale) -> list[SegmentRow]:
    """The segments of a verdict, the largest estimate first, in the units of the log."""
    if verdict.segments is None:
        return []

    def in_units(gain: float | None) -> float | None:
        return None if gain is None else scale.gain(gain)

    return [
        SegmentRow(
            gain.name,
            gain.rounds,
            in_units(estimate),
            in_units(gain.lower),
            in_units(gain.upper),
            PolicyDecision.BETTER
            if gain.promoted
            else PolicyDecision.WORSE
            if gain.worse
            else PolicyDecision.UNKNOWN,
        )
        for gain, estimate in verdict.segments.segments
    ]
