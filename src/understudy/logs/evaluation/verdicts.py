"""The coverage of a log, and how verdicts about policies follow from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl

from understudy.behaviors import Logged
from understudy.certificates import AnyCertificate
from understudy.certificates.evidence import confidence_of_each
from understudy.certificates.targets import played_too_rarely
from understudy.constraints import Array
from understudy.logs.evaluation.answers import (
    NO_QUESTION,
    Answers,
    Baseline,
    BaselineReward,
    GuardrailState,
    most_rows,
)
from understudy.logs.evaluation.diagnostics import (
    ENOUGH,
    FAR,
    NEGLIGIBLE,
    Calibration,
    CalibrationFinding,
    Drift,
    DriftFinding,
    GainEstimate,
    Overlap,
    SampleSize,
    calibrate,
    difference_moment,
    drift_of,
    estimate_gain,
    estimate_gain_of_rows,
    exploration_for,
    overlap_of,
    overlap_of_rows,
    rows_for,
    second_moment,
    visible_gain,
    weights_are_wrong,
)
from understudy.logs.evaluation.outcomes import (
    BEYOND_SUCH_ROWS,
    Obstacle,
    PolicyDecision,
    Reason,
    Verdict,
)
from understudy.logs.evaluation.repeated_rows import RepeatedRows
from understudy.logs.evaluation.sticky_columns import StickyColumns
from understudy.logs.readers.units import UnitCounts
from understudy.logs.rules import AGAINST_LEAST, WITHOUT_ACTION, without_copies
from understudy.logs.schema import ESTIMATED, Label, PropensitySource, RewardScale, short_label
from understudy.logs.statistics import ActionStatistics, LogStatistics
from understudy.types import Integers, read_only

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


# ------------------------------------------------------------------------------------- policies


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy to judge: K probabilities, or None if they depend on the row.

    `chosen_from` is the number of policies out of which the log itself chose it; its certificate
    pays for the choice. A policy that was learned from the log may not be judged by it. If its
    actions were read from the log, it is a `hindsight`: the first row of each action counts as one
    in which it earned nothing. `answers` has the log's to a question about it.
    """

    name: str
    policy: Array | None
    chosen_from: int = 1
    may_be_judged: bool = True
    hindsight: bool = False
    answers: Answers = NO_QUESTION

    def confidence(self, wanted: float) -> float:
        """1 − δ/k for a policy that was chosen out of k, so that all k certificates hold."""
        return confidence_of_each(wanted, self.chosen_from)

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
    certificates: Sequence[AnyCertificate | None] = (),
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
    certificate: AnyCertificate | None,
    sums: ActionStatistics,
    log: Coverage,
    confidence: float,
) -> Verdict:
    """The verdict about a policy, from the sums of the log and the policy's certificate.

    An obstacle, or a wrong propensity of an action that the policy plays, makes the decision
    unknown: too small propensities would make a policy look better than it is. With an estimated
    behavior no gain is certified.
    """
    answers = candidate.answers
    shown = _shown_of(candidate.policy, certificate, sums, log, answers.baseline)
    earned, valid = float(sums.rewards.sum()), sums.rows
    obstacle = log.obstacle
    # Wrong propensities come before what they bring about: bounds that contradict each other, and
    # columns that seem sticky.
    seems_sticky = obstacle is Obstacle.STICKY_COLUMNS and _are_too_small(sums)
    if shown.wrong and (obstacle is None or seems_sticky):
        obstacle = Obstacle.WRONG_PROPENSITIES
    elif obstacle is None and certificate is not None:
        obstacle = _contradiction(candidate.policy, certificate, sums, log.calibration)
    guarded = None if obstacle else _reason_of_guardrails(answers)
    decision = PolicyDecision.UNKNOWN
    if obstacle is None and guarded is None:
        decision = _decide(certificate, earned)
    gains = certificate is not None and certificate.gain is not None
    if obstacle is None and log.drift.behavior == ESTIMATED and not gains:
        obstacle = Obstacle.BEHAVIOR_ESTIMATED
    rows = valid if certificate is None else certificate.rounds
    corrected = confidence if certificate is None else certificate.confidence
    rejected = 0.0, 0.0
    if certificate is not None and rows > valid:  # rejected rows count there
        rejected = (rows - valid) / rows, (certificate.production - earned) / (rows - valid)
    gain = shown.sure_gain
    needed = rows_for(shown.moment, gain, corrected, rejected) if gain > NOTICEABLE else math.inf
    reason: Reason | Obstacle
    if decision is not PolicyDecision.UNKNOWN:
        reason = _reason_to_decide(decision, certificate)
    elif guarded is not None:
        reason, needed = guarded, most_rows(answers.guardrails)
    else:
        reason = _reason_to_wait(obstacle, shown, certificate, sums, needed)
    sample_size = None
    if reason in BEYOND_SUCH_ROWS:
        wanted = _usual_gain(shown.production, shown.largest_gain)
        sample_size = exploration_for(min(1.0, shown.production + wanted), wanted, rows, corrected)
    elif reason in NEED_ROWS or (
        reason in (Reason.NO_CERTIFICATE, Reason.GAIN_IS_LOST)
        and gain >= shown.gain.error
        and math.isfinite(needed)
    ):
        sample_size = SampleSize(gain, needed, None)
    hidden = shown.overlap.hidden if shown.hides else 0.0
    undecided = decision is PolicyDecision.UNKNOWN and obstacle is None
    seeming = shown.overlap.estimate - shown.production  # by which release 0.5 said "not yet"
    soon = (
        seeming > NOTICEABLE
        and 0.0 < (rows_for(shown.moment, seeming, corrected, rejected)) < NEAR * rows
    )
    return Verdict(
        name=candidate.name,
        decision=decision,
        reason=reason,
        obstacle=obstacle,
        overlap=shown.overlap,
        hidden=hidden,
        sample_size=sample_size,
        near=undecided and not hidden and soon,
        certificate=certificate,
        confidence=confidence,
        rows=rows,
        rejected=rows - valid,
        earned=earned,
        estimated_gain=shown.gain.value,
        standard_error=shown.gain.error,
        visible_gain=visible_gain(shown.moment, rows, corrected, rejected),
        baseline=None
        if answers.baseline is None
        else BaselineReward(answers.baseline.name, shown.production),
        guardrails=answers.guardrails,
        segments=answers.segments,
        missing_at_random=answers.missing_at_random,
        other_gain=answers.other_gain,
    )


def _reason_of_guardrails(answers: Answers) -> Reason | None:
    """Why guardrails prevent a promotion; None if they do not, or the goal does by itself."""
    if any(one.state is GuardrailState.BROKEN for one in answers.guardrails):
        return Reason.GUARDRAIL_IS_BROKEN
    joint = answers.joint
    if joint is None or joint.shows_gain() or not joint.goal.shows_gain():
        return None
    return Reason.GUARDRAIL_IS_UNCERTAIN


NEED_ROWS = (
    Reason.SIGN_IS_UNCERTAIN,
    Reason.QUARANTINED_ROWS,
    Reason.GUARDRAIL_IS_UNCERTAIN,
)


class _Shown(NamedTuple):
    """What a log shows of a policy.

    `moment` is E[d²], and `largest_gain` the largest gain that the policy could have. `unseen` says
    whether it plays unlogged actions, and `wrong` whether a propensity of its actions is.
    """

    overlap: Overlap
    gain: GainEstimate
    moment: float
    production: float
    largest_gain: float
    unseen: bool
    wrong: bool

    @property
    def hides(self) -> bool:
        """Whether the log does not show a part of the policy's plays."""
        return self.overlap.hidden > HIDDEN

    @property
    def sure_gain(self) -> float:
        """The estimated gain; if hidden plays are many, with no reward for any of them."""
        return self.gain.least if self.hides else self.gain.value


def _shown_of(
    policy: Array | None,
    certificate: AnyCertificate | None,
    sums: ActionStatistics,
    log: Coverage,
    baseline: Baseline | None,
) -> _Shown:
    shown = _shown_over_production(policy, certificate, sums, log)
    if baseline is None:
        return shown
    center, other, found = shown.production, baseline.policy, baseline.sums
    if policy is None or other is None:
        mean, wrong = found.mean, shown.wrong
        gained = mean - center
        moments = found.moment(center), found.moment(0.0)
        largest = 1.0
    else:
        mean = overlap_of(other, sums, log.calibration.shown).estimate
        gained = estimate_gain(other, sums).value
        moments = (
            difference_moment(sums, policy - other, center),
            difference_moment(sums, policy - other, 0.0),
        )
        largest = float(np.maximum(policy - other, 0.0).sum())
        wrong = shown.wrong or bool(other[log.calibration.wrong].any())
    centered = certificate is not None and bool(certificate.centered_rounds)
    return shown._replace(
        moment=moments[0] if centered else moments[1],
        gain=GainEstimate(
            shown.gain.value - gained,
            math.sqrt(moments[0] / max(sums.rows, 1)),
            shown.gain.least - gained,
        ),
        production=mean,
        largest_gain=largest,
        wrong=wrong,
    )


def _shown_over_production(
    policy: Array | None,
    certificate: AnyCertificate | None,
    sums: ActionStatistics,
    log: Coverage,
) -> _Shown:
    n, calibration = max(sums.rows, 1), log.calibration
    production = float(sums.rewards.sum()) / n
    center = production if certificate is not None and certificate.centered_rounds else 0.0
    if policy is None:
        assert certificate is not None  # it has the policy's weights
        overlap, moment = overlap_of_rows(certificate, sums, center)
        gain, wrong = estimate_gain_of_rows(certificate, sums), bool(calibration.wrong.any())
        return _Shown(overlap, gain, moment, production, 1.0, unseen=False, wrong=wrong)
    return _Shown(
        overlap_of(policy, sums, calibration.shown),
        estimate_gain(policy, sums),
        second_moment(sums, policy, center),
        production,
        float(np.maximum(policy - sums.counts / n, 0.0).sum()),
        unseen=bool(policy[sums.counts == 0].any()),
        wrong=bool(policy[calibration.wrong].any()),
    )


def _reason_to_decide(decision: PolicyDecision, certificate: AnyCertificate | None) -> Reason:
    if decision is PolicyDecision.WORSE:
        return Reason.LOSS_IS_CERTAIN
    assert certificate is not None  # without one there is no decision
    late = certificate.window is not None and certificate.window.start > 1
    return Reason.GAIN_IS_CERTAIN_OF_LATE if late else Reason.GAIN_IS_CERTAIN


def _reason_to_wait(
    obstacle: Obstacle | None,
    shown: _Shown,
    certificate: AnyCertificate | None,
    sums: ActionStatistics,
    needed: float,
) -> Reason | Obstacle:
    """Why nothing is decided: a cause comes before its consequences.

    What no number of rows can change comes before what more rows would. A policy with hidden plays
    is not beyond such rows if it gains although each of these earns nothing.
    """
    estimated = obstacle is Obstacle.BEHAVIOR_ESTIMATED
    if obstacle is not None and not estimated:
        return obstacle
    plays_as_production = shown.moment <= NEGLIGIBLE and not shown.hides
    gain = shown.sure_gain
    out_of_reach = shown.hides and not gain > 0.0
    # If a tenth of the plays were drawn from all actions alike, each would occur three times on
    # average in so many rows: it would be missing in one log of twenty.
    short = sums.rows < ENOUGH * len(sums.counts)
    no_rewards = plays_as_production and not sums.rewards.any()
    lost = certificate is not None and certificate.rounds > sums.rows  # rejected rows count there
    found: list[tuple[Reason | Obstacle, bool]] = [
        (Reason.GAIN_IS_LOST, certificate is not None and bool(certificate.promoted)),
        (
            Reason.DETERMINISTIC_PRODUCTION,
            not plays_as_production and _never_explores(sums, estimated=estimated),
        ),
        (Obstacle.BEHAVIOR_ESTIMATED, estimated),
        (Reason.TOO_FEW_ROWS, not sums.rows or (out_of_reach and short)),
        (Reason.UNSEEN_ACTIONS, out_of_reach and shown.unseen),
        (Reason.RARE_ACTIONS, out_of_reach),
        (Reason.QUARANTINED_ROWS, no_rewards and lost),
        (Reason.NO_REWARDS, no_rewards),
        (Reason.SAME_AS_PRODUCTION, plays_as_production),
        (Reason.NO_CERTIFICATE, certificate is None),
        (Reason.WITHIN_ONE_STANDARD_ERROR, not gain > max(shown.gain.error, NOTICEABLE)),
        (Reason.QUARANTINED_ROWS, math.isinf(needed)),
    ]
    return next((one for one, there in found if there), Reason.SIGN_IS_UNCERTAIN)


def _are_too_small(sums: ActionStatistics) -> bool:
    """Whether propensities are so small that no sticky draws explain it.

    The mean of 1/q is the number of possible actions at most, also if draws are kept; twice as many
    leave room for rare actions that were drawn and kept.
    """
    return bool(sums.weights.sum() > 2.0 * len(sums.counts) * sums.rows)


def _never_explores(sums: ActionStatistics, *, estimated: bool) -> bool:
    """Whether production could not have played another action in any row, by its propensities.

    If these are `estimated` from frequencies, it takes enough rows to say so.
    """
    played = sums.counts > 0
    certain = played.any() and (sums.lowest[played] >= CERTAIN).all()
    return bool(certain) and (not estimated or sums.rows >= ENOUGH)


def _contradiction(
    policy: Array | None,
    certificate: AnyCertificate,
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
    if certificate.contradicts:
        return Obstacle.CONTRADICTORY_BOUNDS
    return None


def _usual_gain(production: float, largest: float) -> float:
    """0.05, but at most production's mean reward and the `largest` gain the policy can have."""
    usual = min(USUAL_GAIN, production) if production > 0.0 else USUAL_GAIN
    return min(usual, largest) if largest > 0.0 else usual


def _decide(certificate: AnyCertificate | None, earned: float) -> PolicyDecision:
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
