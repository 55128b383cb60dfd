"""What a log shows of each action, and the policies that it is asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from understudy.certificates import Certificate
from understudy.certificates.evidence import CONFIDENCE
from understudy.constraints import PROBABILITIES, Array, number
from understudy.errors import InvalidArgument
from understudy.logs.aggregation.sufficient_statistics import certify_sums
from understudy.logs.evaluation.diagnostics import (
    Calibration,
    CalibrationFinding,
    Drift,
    DriftFinding,
    calibrate,
    drift_of,
)
from understudy.logs.evaluation.target_policies import Target, Uniform
from understudy.logs.evaluation.verdicts import UNIT, JudgeContext, Obstacle, Verdict, judge_policy
from understudy.logs.policy import Policy
from understudy.logs.reject_reasons import WITHOUT_ACTION
from understudy.logs.runs.provenance import knows_rows
from understudy.logs.schema import (
    ESTIMATED,
    Columns,
    Label,
    PropensitySource,
    RewardScale,
    short_label,
)
from understudy.logs.statistics import ActionStatistics, LogStatistics
from understudy.types import Integers, read_only

GAIN = number(0.0, 1.0, "pass a gain a row in (0, 1], with rewards in [0, 1]", above=True)
CERTAIN = 1.0 - 1e-9  # a propensity of 1, rounded
OF_PROPENSITIES = (
    "lowest_propensity",
    "highest_propensity",
    "coverage_ratio",
    "effective_sample_size",
    "estimate",
    "self_normalised",
)
Asked = tuple[Target, Policy | None]  # a policy, and what `learn` wrote about it if it did


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy to be judged, K probabilities.

    `chosen_from` is out of how many policies the log itself picked it: as many chances to be lucky,
    for which its certificate must pay. One that was learned from the log may not be judged by it.
    If its actions were read from the log too, it is a `hindsight`: it knows which actions will come
    up, so the first row of each counts as one in which it earned nothing.
    """

    name: str
    policy: Array
    chosen_from: int = 1
    may_be_judged: bool = True
    hindsight: bool = False

    def confidence(self, wanted: float) -> float:
        """1 − δ/k for a policy that was chosen out of k: then all k hold together."""
        return 1.0 - (1.0 - wanted) / self.chosen_from


@dataclass(frozen=True, eq=False)
class Coverage:
    """What a log can say about its actions, and about policies.

    `table` has a row for each action, rewards in the units of the log. With R and q the reward and
    propensity of the rows of an action, and n all rows: `coverage_ratio` as in
    `ActionStatistics.coverage_ratios`; `effective_sample_size`
    (Σ 1/q)² / Σ 1/q², the plays that would say as much about always playing it; `estimate`
    Σ R/q / n; `self_normalised` Σ R/q / Σ 1/q; `calibration` and `calibration_score` as in
    `Calibration`. `rows` counts the valid rows, `refused` the others by reason. Production was
    `deterministic` if it left nothing to chance: then the log shows nothing of other actions.
    """

    table: pl.DataFrame
    rows: int
    refused: dict[str, int]
    unseen: tuple[Label, ...]
    deterministic: bool
    judge_context: JudgeContext
    drift: Drift
    verdicts: tuple[Verdict, ...]
    scale: RewardScale

    @property
    def calibration(self) -> Calibration:
        """Whether propensities agree with frequencies."""
        return self.judge_context.calibration

    @property
    def mean_reward(self) -> float:
        """What production earned in a good row."""
        earned = (self.table["count"] * self.table["mean_reward"]).sum()
        return float(earned) / max(self.rows, 1)


def coverage_from(
    tallied: LogStatistics,
    *,
    behavior: PropensitySource = "logged",
    candidates: Sequence[Candidate] | None = None,
    certificates: Sequence[Certificate | None] = (),
    stretches: Integers | None = None,
    gain: float | None = None,
    confidence: float = 0.95,
    scale: RewardScale = UNIT,
) -> Coverage:
    """What a log can say, from its sums.

    Args:
        tallied: the sums of the log (`tally`).
        behavior: where the propensities come from: 'logged', 'given', or 'estimated', for which the
            frequencies of the log are taken.
        candidates: policies to judge; left out: those of `candidates_of`.
        certificates: of the candidates, or none; without one, no decision (`certify_candidates`).
        stretches: how often each action was played in a few stretches of time, (B, K).
        gain: how much a row the log should be able to show, in rewards of [0, 1] (`JudgeContext`).
        confidence: 1 − δ, of what would suffice.
        scale: the units of rewards in words and table.

    >>> from understudy.logs.aggregation.aggregates import tally
    >>> log = pl.DataFrame({"action": ["a", "b"] * 50, "reward": [0, 1] * 50, "propensity": 0.5})
    >>> found = coverage_from(tally(log, Columns()))
    >>> found.table.select("action", "count", "mean_reward", "coverage_ratio").rows()
    [('a', 50, 0.0, 2.0), ('b', 50, 1.0, 2.0)]
    >>> [(verdict.name, verdict.overlap.effective_sample_size) for verdict in found.verdicts]
    [('uniform', 100.0), ('always b', 50.0)]
    """
    sure, wanted = CONFIDENCE("confidence", confidence), GAIN.optional()("gain", gain)
    unknown = bool(np.isnan(tallied.tally.weights).all())
    kind: PropensitySource = ESTIMATED if unknown else behavior
    counts, rewards = tallied.tally.counts, tallied.tally.rewards
    given = (
        ActionStatistics.without_propensities(counts, rewards)
        if kind == ESTIMATED
        else tallied.tally
    )
    sums, drift = _known(given), drift_of(given, kind, stretches)
    chosen = candidates_of(tallied) if candidates is None else candidates
    proofs = certificates or [None] * len(chosen)
    context = JudgeContext(
        calibrate(given, sum(tallied.refused.values())),
        obstacle_of(tallied, kind, drift),
        estimated=kind == ESTIMATED,
        gain=wanted,
        confidence=sure,
    )
    verdicts = [
        judge_policy(
            candidate.name, _policy(candidate, len(sums.counts)), sums, context, certificate
        )
        for candidate, certificate in zip(chosen, proofs, strict=True)
    ]
    labels = tallied.actions.labels
    return Coverage(
        _table(labels, sums, context.calibration, scale),
        sums.rows,
        tallied.refused,
        tuple(labels[a] for a in np.flatnonzero(sums.counts == 0)),
        _is_deterministic(given),
        context,
        drift,
        tuple(verdicts),
        scale,
    )


def without_propensities(found: Coverage) -> Coverage:
    """The same without what takes propensities: sums that learners need do not hold them."""
    unknown = [pl.lit(None, pl.Float64).alias(name) for name in OF_PROPENSITIES]
    calibration = replace(found.calibration, finding=CalibrationFinding.NOT_EXAMINED)
    return replace(
        found,
        table=found.table.with_columns(unknown),
        judge_context=replace(found.judge_context, calibration=calibration),
        drift=replace(found.drift, finding=DriftFinding.NOT_EXAMINED),
        verdicts=(),
    )


def obstacle_of(tallied: LogStatistics, kind: PropensitySource, drift: Drift) -> Obstacle | None:
    """Why nothing can be decided by a log, whatever the policy, if so.

    A certificate of an estimated behavior holds only if that stayed the same, and if all rows were
    counted: rows without an action may have been of any one.

    >>> from understudy.logs.schema import Actions
    >>> none = ActionStatistics.empty(2)
    >>> sums = LogStatistics(Actions(("a", "b")), none, {"reward is missing": 3})
    >>> obstacle_of(sums, "logged", drift_of(sums.tally)).value
    'mostly rejected'
    """
    if sum(tallied.refused.values()) > tallied.tally.rows:
        return Obstacle.MOSTLY_REJECTED
    if kind != ESTIMATED:
        return None
    if drift.fixed is False:
        return Obstacle.BEHAVIOR_CHANGED
    unlabelled = any(tallied.refused.get(reason) for reason in WITHOUT_ACTION)
    return Obstacle.UNKNOWN_ACTIONS if unlabelled else None


def candidates_of(tallied: LogStatistics, *, declared: bool = True) -> list[Candidate]:
    """Two policies that every log is asked about: uniform, and always the action that looks best.

    If the actions were not `declared`, but came up one after the other, the j-th may spend
    δ/(j(j+1)): all of these together spend less than δ, however many there might have been.

    >>> from understudy.logs.schema import Actions
    >>> counts = np.array([2, 2])
    >>> sums = ActionStatistics(counts, *([counts * 1.0] * 6))
    >>> log = LogStatistics(Actions(("a", "b")), sums, {})
    >>> [candidate.name for candidate in candidates_of(log)]
    ['uniform', 'always a']
    """
    K, sums = len(tallied.actions), _known(tallied.tally)
    means = np.divide(sums.weighted, sums.weights, out=np.full(K, -1.0), where=sums.counts > 0)
    best = int(np.argmax(means))
    only = np.zeros(K)
    only[best] = 1.0
    always = f"always {short_label(tallied.actions.labels[best])}"
    return [
        Candidate(Uniform.name, read_only(np.full(K, 1.0 / K)), hindsight=not declared),
        Candidate(always, read_only(only), K if declared else K * (K + 1), hindsight=not declared),
    ]


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
            learned.knows(fingerprints) or knows_rows(learned, tallied, stretches)
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

    >>> from understudy.logs.aggregation.aggregates import tally
    >>> log = pl.DataFrame({"action": ["a", "b"] * 99, "reward": [0, 1] * 99, "propensity": 0.5})
    >>> sums = tally(log, Columns())
    >>> found = certify_candidates(log, Columns(), sums, candidates_of(sums))
    >>> [certificate.promoted for certificate in found]
    [False, True]
    """
    sure = CONFIDENCE("confidence", confidence)
    return [
        certify_sums(
            frame,
            columns,
            actions=tallied.actions,
            policy=candidate.policy,
            behavior=behavior,
            reward_range=reward_range,
            confidence=candidate.confidence(sure),
        ).certificate
        if candidate.may_be_judged and not candidate.hindsight
        else None
        for candidate in candidates
    ]


def _policy(candidate: Candidate, n_actions: int) -> Array:
    policy: Array = PROBABILITIES(candidate.name, candidate.policy)
    if len(policy) != n_actions:
        raise InvalidArgument(
            candidate.name,
            candidate.policy,
            f"there are {n_actions} actions, not {len(policy)}",
            "give one probability for each action",
        )
    return policy


def _known(tally: ActionStatistics) -> ActionStatistics:
    """The same rows; if no propensities are known, each with the frequency of its action."""
    if not np.isnan(tally.weights).all():
        return tally
    return ActionStatistics.of_behavior(
        tally.counts, tally.rewards, tally.counts / max(tally.rows, 1)
    )


def _table(
    labels: tuple[Label, ...], sums: ActionStatistics, calibration: Calibration, scale: RewardScale
) -> pl.DataFrame:
    n, seen = max(sums.rows, 1), sums.counts > 0
    with np.errstate(invalid="ignore", divide="ignore"):  # unseen actions have no means
        columns = {
            "share": sums.counts / n,
            "mean_reward": scale.reward(sums.rewards / sums.counts),
            "lowest_propensity": sums.lowest,
            "highest_propensity": sums.highest,
            "coverage_ratio": sums.coverage_ratios(),
            "effective_sample_size": np.where(seen, sums.weights**2 / sums.squares, 0.0),
            "estimate": np.where(seen, scale.weighted(sums.weighted, sums.weights) / n, np.nan),
            "self_normalised": scale.reward(sums.weighted / sums.weights),
            "calibration": calibration.ratios,
            "calibration_score": calibration.scores,
        }
    table = pl.DataFrame({"action": labels, "count": sums.counts, **columns})
    return table.with_columns(pl.col(*columns).fill_nan(None))


def _is_deterministic(sums: ActionStatistics) -> bool:
    """Whether production left nothing to chance: one action, or propensities of 1 alone."""
    played = sums.counts > 0
    return bool(played.sum() == 1 or (played.any() and (sums.lowest[played] >= CERTAIN).all()))
