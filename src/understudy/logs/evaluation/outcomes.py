"""Verdicts about policies as data: the outcome, its reason, the numbers, and the next step.

`verdicts` decides; `report.words` makes sentences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from understudy.certificates import AnyCertificate
from understudy.logs.evaluation.answers import BaselineReward, GuardrailBounds, SegmentVerdict
from understudy.logs.evaluation.diagnostics import Overlap, SampleSize

VerdictKind = Literal["promote", "not yet", "cannot tell", "worse", "coverage", "guardrail broken"]
# The shares of decisions in which a promoted policy plays, one after the other. No log shows an
# error in how a policy is served: at 1 % it costs little. Each share is at most ten times the one
# before, so that each stage of the ramp is a log that can judge the next one.
RAMP = (0.01, 0.1, 0.5, 1.0)


class PolicyDecision(StrEnum):
    """The decision about a policy, against production."""

    BETTER = "better"
    WORSE = "worse"
    UNKNOWN = "unknown"


class VerdictOutcome(StrEnum):
    """What a verdict comes to: the situations that ask for different next steps."""

    PROMOTE = "promote"
    NOT_ENOUGH_DATA = "not enough data"
    NO_VISIBLE_GAIN = "no visible gain"
    WORSE = "worse"
    GUARDRAIL_BROKEN = "guardrail broken"
    NO_LONGER_CERTAIN = "no longer certain"
    IMPOSSIBLE = "impossible"
    CANNOT_TELL = "cannot tell"
    NOT_CERTIFIED = "not certified"


class Obstacle(StrEnum):
    """The finding about a log because of which it decides nothing."""

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


class Reason(StrEnum):
    """Why a verdict without an obstacle has its outcome."""

    GAIN_IS_CERTAIN = "gain is certain"
    GAIN_IS_CERTAIN_OF_LATE = "gain is certain since a later row"
    LOSS_IS_CERTAIN = "loss is certain"
    GUARDRAIL_IS_BROKEN = "a guardrail is broken"
    GUARDRAIL_IS_UNCERTAIN = "gain is certain, a guardrail is not"
    GAIN_IS_LOST = "gain was certain once"
    SIGN_IS_UNCERTAIN = "sign of the gain is uncertain"
    TOO_FEW_ROWS = "too few rows to show every action"
    WITHIN_ONE_STANDARD_ERROR = "estimate is within one standard error"
    NO_REWARDS = "all rewards are the lowest"
    SAME_AS_PRODUCTION = "policy plays as production does"
    DETERMINISTIC_PRODUCTION = "production is deterministic"
    UNSEEN_ACTIONS = "policy plays actions that the log never shows"
    RARE_ACTIONS = "policy plays actions that are rare or impossible in the log"
    QUARANTINED_ROWS = "too many rows are quarantined"
    NO_CERTIFICATE = "policy has no certificate"


OUTCOMES = {
    Reason.GAIN_IS_CERTAIN: VerdictOutcome.PROMOTE,
    Reason.GAIN_IS_CERTAIN_OF_LATE: VerdictOutcome.PROMOTE,
    Reason.LOSS_IS_CERTAIN: VerdictOutcome.WORSE,
    Reason.GUARDRAIL_IS_BROKEN: VerdictOutcome.GUARDRAIL_BROKEN,
    Reason.GUARDRAIL_IS_UNCERTAIN: VerdictOutcome.NOT_ENOUGH_DATA,
    Reason.GAIN_IS_LOST: VerdictOutcome.NO_LONGER_CERTAIN,
    Reason.SIGN_IS_UNCERTAIN: VerdictOutcome.NOT_ENOUGH_DATA,
    Reason.TOO_FEW_ROWS: VerdictOutcome.NOT_ENOUGH_DATA,
    Reason.WITHIN_ONE_STANDARD_ERROR: VerdictOutcome.NO_VISIBLE_GAIN,
    Reason.NO_REWARDS: VerdictOutcome.NO_VISIBLE_GAIN,
    Reason.SAME_AS_PRODUCTION: VerdictOutcome.NO_VISIBLE_GAIN,
    Reason.DETERMINISTIC_PRODUCTION: VerdictOutcome.IMPOSSIBLE,
    Reason.UNSEEN_ACTIONS: VerdictOutcome.IMPOSSIBLE,
    Reason.RARE_ACTIONS: VerdictOutcome.IMPOSSIBLE,
    Reason.QUARANTINED_ROWS: VerdictOutcome.IMPOSSIBLE,
    Reason.NO_CERTIFICATE: VerdictOutcome.NOT_CERTIFIED,
}


# Of these, exploration shows what no number of rows like those of the log would.
BEYOND_SUCH_ROWS = (Reason.DETERMINISTIC_PRODUCTION, Reason.UNSEEN_ACTIONS, Reason.RARE_ACTIONS)


class Step(StrEnum):
    """What a user does next."""

    RAMP_UP = "ramp up"
    LOG_MORE_ROWS = "log more rows"
    EXPLORE = "explore"
    KEEP_PRODUCTION = "keep production"
    DIFFER = "try a policy that differs"
    REJECT = "reject the policy"
    HOLD = "hold the ramp"
    CORRECT_ROWS = "correct rows"
    CHECK_REWARDS = "check the rewards"
    REMOVE_OBSTACLE = "remove the obstacle"
    CERTIFY = "certify"


STEPS = {
    VerdictOutcome.PROMOTE: Step.RAMP_UP,
    VerdictOutcome.NOT_ENOUGH_DATA: Step.LOG_MORE_ROWS,
    VerdictOutcome.NO_VISIBLE_GAIN: Step.KEEP_PRODUCTION,
    VerdictOutcome.WORSE: Step.REJECT,
    VerdictOutcome.GUARDRAIL_BROKEN: Step.REJECT,
    VerdictOutcome.NO_LONGER_CERTAIN: Step.HOLD,
    VerdictOutcome.IMPOSSIBLE: Step.EXPLORE,
    VerdictOutcome.CANNOT_TELL: Step.REMOVE_OBSTACLE,
    VerdictOutcome.NOT_CERTIFIED: Step.CERTIFY,
}


OTHER_STEPS: dict[Reason | Obstacle, Step] = {  # than those of their outcomes
    Reason.QUARANTINED_ROWS: Step.CORRECT_ROWS,
    Reason.NO_REWARDS: Step.CHECK_REWARDS,
    Reason.SAME_AS_PRODUCTION: Step.DIFFER,
}


@dataclass(frozen=True)
class NextStep:
    """The one next step, with its numbers.

    `rows` is how many rows like these would decide, None if that is not known. `exploration` is the
    share of the decisions in which production would have to follow the policy. `shares` are the
    stages of a ramp.
    """

    step: Step
    rows: float | None = None
    exploration: float | None = None
    shares: tuple[float, ...] = ()


class GainBounds(NamedTuple):
    """The estimated gain over production, and bounds on it; None where nothing is known.

    All are means per row, over all rows. If only a window shows a gain, it is at least `low_since`
    in the rows from `since` on.
    """

    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    since: int | None = None
    low_since: float | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The decision about one policy, with its numbers.

    An undecided verdict has the `obstacle` as its `reason`, if there is one. `estimated_gain` is
    per row, over production, and `standard_error` its standard error; `visible_gain` is the gain
    that so many rows would show more often than not. All three are nan where they are not known.
    `sample_size` is what would decide: rows like these if the estimated gain is the true one, or
    exploration; None if nothing is known that would. The verdict is `near` if fewer than
    `verdicts.NEAR` times as many rows would show a gain that the policy seems to have.

    The gain is over the `baseline`, or over production. With `guardrails` it holds together with
    theirs. If rejected rows were left out as `missing_at_random`, or else counted with the worst
    that they may have been, `other_gain` is the lower bound that the other treatment gives.

    Of all `rows` some were `rejected`; in the others production `earned` a total. `hidden` is the
    share of the policy's plays that the log does not show, 0 if it is negligible. The decision
    holds with the `confidence`; the certificate of a policy that was chosen out of several has a
    higher one.
    """

    name: str
    decision: PolicyDecision
    reason: Reason | Obstacle
    obstacle: Obstacle | None
    overlap: Overlap
    hidden: float
    sample_size: SampleSize | None
    near: bool
    certificate: AnyCertificate | None
    confidence: float
    rows: int
    rejected: int
    earned: float
    estimated_gain: float = math.nan
    standard_error: float = math.nan
    visible_gain: float = math.nan
    baseline: BaselineReward | None = None
    guardrails: tuple[GuardrailBounds, ...] = ()
    segments: SegmentVerdict | None = None
    missing_at_random: bool = False
    other_gain: float | None = None

    @property
    def outcome(self) -> VerdictOutcome:
        """What the verdict comes to."""
        return (
            VerdictOutcome.CANNOT_TELL
            if isinstance(self.reason, Obstacle)
            else OUTCOMES[self.reason]
        )

    @property
    def next_step(self) -> NextStep:
        """The one next step: never rows and exploration, and no rows where none are known to do."""
        step, needed = STEPS[self.outcome], self.sample_size
        if self.reason in OTHER_STEPS:
            return NextStep(OTHER_STEPS[self.reason])
        if step is Step.RAMP_UP:
            return NextStep(step, shares=RAMP)
        if step is Step.EXPLORE and needed is not None:
            return NextStep(step, exploration=needed.exploration)
        if step is Step.LOG_MORE_ROWS and needed is not None:
            return NextStep(step, rows=needed.rows)
        return NextStep(step)

    @property
    def sound(self) -> bool:
        """Whether nothing speaks against the certificate."""
        return self.obstacle in (None, Obstacle.BEHAVIOR_ESTIMATED)

    @property
    def kind(self) -> VerdictKind:
        """One of the four of release 0.5, or 'guardrail broken'."""
        if self.reason is Reason.GUARDRAIL_IS_BROKEN:
            return "guardrail broken"
        if self.decision is PolicyDecision.UNKNOWN:
            return "not yet" if self.near else "cannot tell"
        return "promote" if self.decision is PolicyDecision.BETTER else "worse"

    @property
    def production(self) -> float:
        """Production's mean reward in the valid rows."""
        return self.earned / max(self.rows - self.rejected, 1)

    @property
    def gain(self) -> GainBounds:
        """The estimated gain per row, and its bounds if nothing speaks against the certificate."""
        estimate = None if math.isnan(self.estimated_gain) else self.estimated_gain
        certificate = self.certificate
        if certificate is None or not self.sound or not certificate.rounds:
            return GainBounds(estimate)
        n, window = certificate.rounds, certificate.window
        low = None if certificate.gain is None else certificate.gain / n
        high = None if certificate.gain_upper is None else certificate.gain_upper / n
        if window is None or window.start == 1 or window.gain <= 0.0:
            return GainBounds(estimate, low, high)
        return GainBounds(estimate, low, high, window.start, window.gain)
