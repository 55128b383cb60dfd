"""The coverage of a log, and verdicts about policies as data; `report.words` makes sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

import numpy as np
import polars as pl

from understudy.behaviors import Logged
from understudy.certificates import Certificate
from understudy.certificates.targets import played_too_rarely
from understudy.constraints import Array
from understudy.logs.evaluation.diagnostics import (
    FAR,
    Calibration,
    CalibrationFinding,
    Drift,
    DriftFinding,
    Overlap,
    SampleSize,
    calibrate,
    drift_of,
    exploration_for,
    overlap_of,
    overlap_of_rows,
    rows_for,
    second_moment,
    weights_are_wrong,
)
from understudy.logs.evaluation.repeated_rows import RepeatedRows
from understudy.logs.evaluation.sticky_columns import StickyColumns
from understudy.logs.readers.units import UnitCounts
from understudy.logs.rules import AGAINST_LEAST, WITHOUT_ACTION, without_copies
from understudy.logs.schema import ESTIMATED, Label, PropensitySource, RewardScale, short_label
from understudy.logs.statistics import ActionStatistics, LogStatistics
from understudy.types import Integers, read_only

VerdictKind = Literal["promote", "not yet", "cannot tell", "worse", "coverage"]
UNIFORM = "uniform"
UNIT = RewardScale()
USUAL_GAIN = 0.05  # a row: the gain to show if the policy seems to have none
HIDDEN = 0.001  # the share of a policy's plays that the log need not show
NEAR = 10  # times the rows: a gain that needs more is not within reach of this log
NOTICEABLE = 1e-6  # a gain a row: less may be rounding
CERTAIN = 1.0 - 1e-9  # a propensity of 1, rounded
OF_PROPENSITIES = (
    "lowest_propensity",
    "highest_propensity",
    "coverage_ratio",
    "effective_sample_size",
    "estimate",
    "self_normalised",
)


class PolicyDecision(StrEnum):
    """The decision about a policy, against production."""

    BETTER = "better"
    WORSE = "worse"
    UNKNOWN = "unknown"


class Obstacle(StrEnum):
    """The reason why no number of rows like these would decide."""

    MOSTLY_REJECTED = "mostly rejected"
    REPEATED_ROWS = "repeated rows"
    STICKY_COLUMNS = "sticky columns"
    WRONG_LEAST_PROPENSITY = "wrong least propensity"
    BEHAVIOR_CHANGED = "behavior changed"
    UNKNOWN_ACTIONS = "unknown actions"
    CONTRADICTORY_BOUNDS = "contradictory bounds"
    WRONG_WEIGHTS = "wrong weights"
    WRONG_PROPENSITIES = "wrong propensities"
    BEHAVIOR_ESTIMATED = "behavior estimated"
    NO_ORDER = "no order"
    NO_PROPENSITIES_WITH_ELIGIBLE_SETS = "no propensities with eligible sets"
    NO_PROPENSITIES_WITH_CONTEXTS = "no propensities with contexts"


# ------------------------------------------------------------------------------------- policies


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy to judge: K probabilities, or None if they depend on the row.

    `chosen_from` is the number of policies out of which the log itself chose it; its certificate
    pays for the choice. A policy that was learned from the log may not be judged by it. If its
    actions were read from the log, it is a `hindsight`: the first row of each action counts as one
    in which it earned nothing.
    """

    name: str
    policy: Array | None
    chosen_from: int = 1
    may_be_judged: bool = True
    hindsight: bool = False

    def confidence(self, wanted: float) -> float:
        """1 − δ/k for a policy that was chosen out of k, so that all k certificates hold."""
        return 1.0 - (1.0 - wanted) / self.chosen_from

    def probabilities(self, actions: Integers) -> Array:
        """The probability that it gives to each logged action."""
        assert self.policy is not None  # one that depends on the row has a certificate
        return np.asarray(self.policy[actions])


def candidates_of(statistics: LogStatistics, *, declared: bool = True) -> list[Candidate]:
    """The two candidates of every log: uniform, and always the action that looks best.

    If the actions were not `declared`, the j-th action of the log spends δ/(j(j+1)), so that any
    number of them together spends less than δ.
    """
    K, sums = len(statistics.actions), _with_frequencies(statistics.sums)
    means = np.divide(sums.weighted, sums.weights, out=np.full(K, -1.0), where=sums.counts > 0)
    best = int(np.argmax(means))
    only = read_only((np.arange(K) == best).astype(np.float64))
    always = f"always {short_label(statistics.actions.labels[best])}"
    return [
        Candidate(UNIFORM, read_only(np.full(K, 1.0 / K)), hindsight=not declared),
        Candidate(always, only, K if declared else K * (K + 1), hindsight=not declared),
    ]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The decision about one policy, with its numbers.

    An unknown decision has either an `obstacle`, or the `sample_size` that would show a gain, the
    estimated one if `gain_is_estimated`. It is `near` if the policy seems to have a gain and
    fewer than `NEAR` times as many rows would show it. Of all `rows` some were `rejected`; in the
    others production `earned` a total. `hidden` is the share of the policy's plays that the log
    does not show, 0 if it is negligible, and `plays_unseen` whether it plays unlogged actions. The
    decision holds with the `confidence`; the certificate of a policy that was chosen out of several
    has a higher one.
    """

    name: str
    decision: PolicyDecision
    obstacle: Obstacle | None
    overlap: Overlap
    hidden: float
    sample_size: SampleSize | None
    near: bool
    gain_is_estimated: bool
    plays_unseen: bool
    certificate: Certificate | None
    confidence: float
    rows: int
    rejected: int
    earned: float

    @property
    def sound(self) -> bool:
        """Whether nothing speaks against the certificate."""
        return self.obstacle in (None, Obstacle.BEHAVIOR_ESTIMATED)

    @property
    def kind(self) -> VerdictKind:
        """'promote', 'worse', 'not yet' or 'cannot tell'."""
        if self.decision is PolicyDecision.UNKNOWN:
            return "not yet" if self.near else "cannot tell"
        return "promote" if self.decision is PolicyDecision.BETTER else "worse"

    @property
    def production(self) -> float:
        """Production's mean reward in the valid rows."""
        return self.earned / max(self.rows - self.rejected, 1)

    @property
    def estimated_gain(self) -> float:
        """The estimated gain a row over production; nan if the log shows none of its plays."""
        return self.overlap.estimate - self.production


# ------------------------------------------------------------------------------------- coverage


@dataclass(frozen=True, eq=False, kw_only=True)
class Coverage:
    """The coverage of the actions of a log, and verdicts about policies.

    `table` has a row for each action, rewards in the units of the log. With R and q the reward and
    propensity of the rows of an action, and n all rows: `coverage_ratio` as in
    `ActionStatistics.coverage_ratios`; `effective_sample_size` (Σ 1/q)² / Σ 1/q²; `estimate`
    Σ R/q / n; `self_normalised` Σ R/q / Σ 1/q; `calibration` and `calibration_score` as in
    `Calibration`. `rows` counts the valid rows, `refused` the others by reason. A `deterministic`
    production shows nothing of other actions. `repeated` is the finding about equal rows, None if
    they were not compared or are allowed, and `sticky` that about columns, None if they were not
    examined. `units` counts the units, if each counts as one row (`by_unit`) and they are known. An
    `obstacle` is one to all policies.
    """

    table: pl.DataFrame
    rows: int
    refused: dict[str, int]
    unseen: tuple[Label, ...]
    deterministic: bool
    calibration: Calibration
    drift: Drift
    obstacle: Obstacle | None = None
    verdicts: tuple[Verdict, ...] = ()
    scale: RewardScale = UNIT
    repeated: RepeatedRows | None = None
    sticky: StickyColumns | None = None
    units: UnitCounts | None = None
    by_unit: bool = False

    @property
    def mean_reward(self) -> float:
        """Production's mean reward in the valid rows."""
        earned = (self.table["count"] * self.table["mean_reward"]).sum()
        return float(earned) / max(self.rows, 1)

    def without_propensities(self) -> Coverage:
        """The coverage without the columns and findings that need propensities."""
        unknown = [pl.lit(None, pl.Float64).alias(name) for name in OF_PROPENSITIES]
        return replace(
            self,
            table=self.table.with_columns(unknown),
            calibration=replace(self.calibration, finding=CalibrationFinding.NOT_EXAMINED),
            drift=replace(self.drift, finding=DriftFinding.NOT_EXAMINED),
            verdicts=(),
        )


def coverage_from(
    statistics: LogStatistics,
    *,
    behavior: PropensitySource = "logged",
    candidates: Sequence[Candidate] | None = None,
    certificates: Sequence[Certificate | None] = (),
    counts_over_time: Integers | None = None,
    confidence: float = 0.95,
    scale: RewardScale = UNIT,
    repeated: RepeatedRows | None = None,
    declared: bool = True,
    sticky: StickyColumns | None = None,
    units: UnitCounts | None = None,
    by_unit: bool = False,
) -> Coverage:
    """The coverage of a log, and the verdicts about candidates, from its statistics.

    Args:
        statistics: the actions of the log, their sums, and the rejected rows.
        behavior: the source of the propensities: 'logged', 'given', or 'estimated' from the
            frequencies of the log.
        candidates: policies to judge; left out: those of `candidates_of`.
        certificates: of the candidates; without one there is no decision.
        counts_over_time: how often each action was played in each of a few periods, (B, K).
        confidence: 1 − δ.
        scale: the units of rewards in the table.
        repeated: the finding about equal rows; copies prevent all decisions.
        declared: whether the actions were known before the log was read.
        sticky: the finding about sticky columns; one prevents all decisions.
        units: the counts of units, if each counts as one row.
        by_unit: whether each unit counts as one row, also where there are no counts of units.
    """
    logged = statistics.sums
    source: PropensitySource = ESTIMATED if np.isnan(logged.weights).all() else behavior
    if source == ESTIMATED:
        logged = ActionStatistics.without_propensities(logged.counts, logged.rewards)
    sums, drift = _with_frequencies(logged), drift_of(logged, source, counts_over_time)
    rejected = without_copies(statistics.reject_counts)
    calibration = calibrate(logged, sum(rejected.values()), declared=declared)
    judged = candidates_of(statistics) if candidates is None else candidates
    labels = statistics.actions.labels
    coverage = Coverage(
        table=_table(labels, sums, calibration, scale),
        rows=sums.rows,
        refused=statistics.reject_counts,
        unseen=tuple(labels[a] for a in np.flatnonzero(sums.counts == 0)),
        deterministic=_is_deterministic(logged),
        calibration=calibration,
        drift=drift,
        obstacle=_obstacle(statistics, source, drift, repeated, sticky),
        scale=scale,
        repeated=repeated,
        sticky=sticky,
        units=units,
        by_unit=by_unit or units is not None,
    )
    verdicts = [
        judge(candidate, certificate, sums, coverage, confidence)
        for candidate, certificate in zip(judged, certificates or [None] * len(judged), strict=True)
    ]
    return replace(coverage, verdicts=tuple(verdicts))


def _obstacle(
    statistics: LogStatistics,
    source: PropensitySource,
    drift: Drift,
    repeated: RepeatedRows | None,
    sticky: StickyColumns | None,
) -> Obstacle | None:
    """The obstacle to all decisions by a log, if there is one.

    A certificate of an estimated behavior holds only if production did not change, and if every row
    has an action. Where a propensity is below the declared least one, a weight may be larger than
    any bet allows for, and no worst case of these rows is bad enough; where it is so large that
    another must be below, actions may be impossible.
    """
    rejected = statistics.reject_counts
    found = {
        Obstacle.MOSTLY_REJECTED: sum(without_copies(rejected).values()) > statistics.sums.rows,
        Obstacle.REPEATED_ROWS: repeated is not None and repeated.found,
        Obstacle.STICKY_COLUMNS: sticky is not None and sticky.found,
        Obstacle.WRONG_LEAST_PROPENSITY: any(map(rejected.get, AGAINST_LEAST)),
    }
    if source == ESTIMATED:
        found |= {
            Obstacle.BEHAVIOR_CHANGED: drift.fixed is False,
            Obstacle.UNKNOWN_ACTIONS: any(rejected.get(reason) for reason in WITHOUT_ACTION),
        }
    return next((obstacle for obstacle, there in found.items() if there), None)


def _with_frequencies(sums: ActionStatistics) -> ActionStatistics:
    """The sums; if no propensities are known, with the frequencies of actions instead."""
    if not np.isnan(sums.weights).all():
        return sums
    return ActionStatistics.of_behavior(sums.counts, sums.rewards, sums.counts / max(sums.rows, 1))


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
    """Whether production played one action, or all actions with propensity 1."""
    played = sums.counts > 0
    return bool(played.sum() == 1 or (played.any() and (sums.lowest[played] >= CERTAIN).all()))


# ------------------------------------------------------------------------------------- decisions


def judge(
    candidate: Candidate,
    certificate: Certificate | None,
    sums: ActionStatistics,
    log: Coverage,
    confidence: float,
) -> Verdict:
    """The verdict about a policy, from the sums of the log and the policy's certificate.

    An obstacle, or a wrong propensity of an action that the policy plays, makes the decision
    unknown: too small propensities would make a policy look better than it is. With an estimated
    behavior no gain is certified. The sample size is for the gain that the policy seems to have, or
    for a usual one.
    """
    policy, calibration = candidate.policy, log.calibration
    earned, valid = float(sums.rewards.sum()), sums.rows
    largest_gain, plays_unseen, wrong = 1.0, False, bool(calibration.wrong.any())
    production = earned / max(valid, 1)
    center = production if certificate is not None and certificate.centered_rounds else 0.0
    if policy is None:
        assert certificate is not None  # it has the policy's weights
        overlap, moment = overlap_of_rows(certificate, sums, center)
    else:
        overlap = overlap_of(policy, sums, calibration.shown)
        moment = second_moment(sums, policy, center)
        largest_gain = float(np.maximum(policy - sums.counts / max(valid, 1), 0.0).sum())
        plays_unseen = bool(policy[sums.counts == 0].any())
        wrong = bool(policy[calibration.wrong].any())
    gain, hidden = overlap.estimate - production, overlap.hidden > HIDDEN
    estimated = gain > NOTICEABLE and not hidden
    if not estimated:
        gain = _usual_gain(production, largest_gain)
    rows = valid if certificate is None else certificate.rounds
    corrected = confidence if certificate is None else certificate.confidence
    if hidden:
        sample_size = exploration_for(min(1.0, production + gain), gain, rows, corrected)
    else:
        rejected = 0.0, 0.0
        if certificate is not None and rows > valid:  # rejected rows count there
            rejected = (rows - valid) / rows, (certificate.production - earned) / (rows - valid)
        sample_size = SampleSize(gain, rows_for(moment, gain, corrected, rejected), None)
    obstacle = log.obstacle
    if obstacle is None and wrong:  # it names the actions, and explains bounds that contradict
        obstacle = Obstacle.WRONG_PROPENSITIES
    elif obstacle is None and certificate is not None:
        obstacle = _contradiction(policy, certificate, sums, calibration)
    decision = PolicyDecision.UNKNOWN if obstacle else _decide(certificate, earned)
    if obstacle is None and log.drift.behavior == ESTIMATED:
        obstacle = Obstacle.BEHAVIOR_ESTIMATED
    undecided = decision is PolicyDecision.UNKNOWN and obstacle is None
    return Verdict(
        name=candidate.name,
        decision=decision,
        obstacle=obstacle,
        overlap=overlap,
        hidden=overlap.hidden if hidden else 0.0,
        sample_size=sample_size if undecided else None,
        near=undecided and estimated and 0.0 < sample_size.rows < NEAR * rows,
        gain_is_estimated=estimated,
        plays_unseen=plays_unseen,
        certificate=certificate,
        confidence=confidence,
        rows=rows,
        rejected=rows - valid,
        earned=earned,
    )


def _contradiction(
    policy: Array | None,
    certificate: Certificate,
    sums: ActionStatistics,
    calibration: Calibration,
) -> Obstacle | None:
    """The assumption of a certificate that the log contradicts, if there is one.

    Centers need that every action of the policy is possible in every row.
    """
    behavior, rejected = certificate.behavior, certificate.rounds - sums.rows
    if isinstance(behavior, Logged) and behavior.least_propensity and certificate.centered_rounds:
        most = sums.counts + rejected  # each rejected row may be a play of any action
        rare = played_too_rarely(most, certificate.rounds, behavior.least_propensity)
        rare |= calibration.scores < -FAR  # rarer than its propensities say: impossible in some
        if rare.any() if policy is None else policy[rare].any():
            return Obstacle.WRONG_LEAST_PROPENSITY
    if policy is None and weights_are_wrong(certificate, rejected):
        return Obstacle.WRONG_WEIGHTS
    if certificate.lower > certificate.upper:
        return Obstacle.CONTRADICTORY_BOUNDS
    return None


def _usual_gain(production: float, largest: float) -> float:
    """0.05, but at most production's mean reward and the `largest` gain the policy can have."""
    usual = min(USUAL_GAIN, production) if production > 0.0 else USUAL_GAIN
    return min(usual, largest) if largest > 0.0 else usual


def _decide(certificate: Certificate | None, earned: float) -> PolicyDecision:
    """The decision of the certificate; plays that the log never shows make it more careful."""
    if certificate is None or not certificate.rounds:
        return PolicyDecision.UNKNOWN
    window, most = certificate.window, certificate.gain_upper
    # By rules 1, or if no gain is certified: by the bounds on the reward, and first.
    if most is None and certificate.upper < certificate.least_production(earned):
        return PolicyDecision.WORSE
    if certificate.promoted and window is not None and window.gain > 0.0:
        return PolicyDecision.BETTER
    worse = bool(certificate.worse) and most is not None and most < 0.0
    return PolicyDecision.WORSE if worse else PolicyDecision.UNKNOWN
